"""Six ways to purge what has ended wrongly, each in one place of `tidegate.invocations.purging`, or of who registers beside it."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.place_documents import take_places
from tidegate.invocations.purging import PURGING_PARTS, Purging, PurgingParts
from tidegate.invocations.record_documents import CHANGED_AT, STATUS
from tidegate.invocations.registration import Registrar
from tidegate.invocations.scenarios.purging import ADMITTED, KEPT, LEFT, OVER, STAYS, purging, swept
from tidegate.model.documents import ID, AllOf, Eq, Filter, In, OlderThan
from tidegate.model.instants import Duration
from tidegate.model.operations import delete_many
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen, specimen
from tidegate.sim.variants import variant

__all__ = ["SPECIMENS"]


def by_age(status: str, age: Duration) -> Filter:
    return AllOf((Eq(STATUS, status), OlderThan(CHANGED_AT, age)))


async def records_first(command: Purging, going: tuple[str, ...], calls: tuple[str, ...]) -> int:
    """The call of one that is gone is there for a moment."""
    gone = await delete_many(command.records, In(ID, going))
    if calls:
        await delete_many(command.calls, In(ID, calls))
    return gone


async def records_alone(command: Purging, going: tuple[str, ...], _: tuple[str, ...]) -> int:
    """Nobody sees to the calls."""
    return await delete_many(command.records, In(ID, going))


async def clears_what_was_read(collection: str, keys: tuple[str, ...], _: Filter) -> int:
    """What was found empty is deleted, whoever is in it by then."""
    return await delete_many(collection, In(ID, keys))


def beside(made: type[Registrar], *, summary: str) -> Scenario:
    return swept(registrar=made, summary=summary, budget=0)


BY_VERSION_ALONE: Final = partial(
    variant, take_places, ("as_read(found), ", "AllOf((Eq(ID, places), Eq(VERSION, after - 1))), ")
)


def planted(parts: PurgingParts, name: str, law: str, summary: str, source: str, *, alone: bool = False) -> Specimen:
    make = partial(purging, parts, summary=summary, budget=0)
    return Specimen(f"purging.{name}", make, law, source, of="purging", alone=alone)


SPECIMENS: Final = (
    planted(
        attrs.evolve(PURGING_PARTS, is_over=by_age),
        "by_age",
        OVER,
        "What has ended goes by its age alone, though triggers have yet to hear of it.",
        "Planted: so does a TTL index of MongoDB.",
    ),
    planted(
        attrs.evolve(PURGING_PARTS, vacates=False, remove=records_first),
        "records_first",
        STAYS,
        "The record goes before its call, and its place stays: who finds it there takes it for one that is yet to be made.",
        "The first draft of this module.",
        alone=True,
    ),
    planted(
        attrs.evolve(PURGING_PARTS, vacates=False),
        "keeps_its_place",
        ADMITTED,
        "What is gone still has its place, and nobody can look it up: who calls is kept out for ever.",
        "Planted: so does a TTL index on one of several collections.",
        alone=True,
    ),
    planted(
        attrs.evolve(PURGING_PARTS, remove=records_alone),
        "records_alone",
        LEFT,
        "The invocation goes, and its call stays.",
        "Planted: so does whoever purges one of two collections.",
        alone=True,
    ),
    Specimen(
        "purging.swept.clears_what_was_read",
        partial(
            swept,
            attrs.evolve(PURGING_PARTS, clear=clears_what_was_read),
            summary=(clears_what_was_read.__doc__ or "").partition("\n")[0],
            budget=0,
        ),
        KEPT,
        "Planted: who looks whether it is empty, and then deletes it, races with everybody who takes.",
        of="purging.swept",
    ),
    specimen(
        "purging.swept.by_version_alone",
        KEPT,
        "A set that was removed and made anew has a version again that somebody has read of the one before.",
        "The ABA problem (IBM System/370 Principles of Operation, 1983): ours would have been, for versions began with 1 again.",
        lambda: variant(Registrar, take_places=BY_VERSION_ALONE()),
        make=beside,
        of="purging.swept",
    ),
)
