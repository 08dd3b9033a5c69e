"""Six ways to purge what has ended wrongly: bugs of the program, or of who registers beside it."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.purging import ADMITTED, KEPT, LEFT, OVER, STAYS, purging, swept
from tidegate.invocations.limits.registration import Registrar
from tidegate.invocations.limits.slot_documents import take_places
from tidegate.invocations.upkeep.pruning import Purging
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant


def beside(made: type[Registrar], *, summary: str) -> Scenario:
    return swept(registrar=made, summary=summary, budget=0)


HAS_PLACES: Final = "if places and not await self._vacated(places, ended):"
REMOVED: Final = """        if calls:
            await delete_many(self.calls, In(ID, calls))
        return await delete_many(self.records, In(ID, going), _IS_FINAL)
"""
RECORDS_FIRST: Final = """        gone = await delete_many(self.records, In(ID, going))
        if calls:
            await delete_many(self.calls, In(ID, calls))
        return gone
"""
RECORDS_ALONE: Final = "        return await delete_many(self.records, In(ID, going))\n"
VERSION_ALONE: Final = "AllOf((Eq(ID, places), Eq(VERSION, after - 1))), "

SPECIMENS: Final = (
    specimen(
        "purging.by_age", OVER,
        "What has ended goes by its age alone, though triggers have yet to hear of it.",
        "Planted: so does a TTL index of MongoDB.",
        partial(variant, Purging, ("OlderThan(CHANGED_AT, age), _IS_HEARD", "OlderThan(CHANGED_AT, age)")),
        make=partial(purging, budget=0), of="purging"),
    specimen(
        "purging.records_first", STAYS,
        "The record goes before its call, and its place stays: who finds it there takes it for one that is yet to be made.",
        "The first draft of this module.",
        partial(variant, Purging, (HAS_PLACES, "if False:"), (REMOVED, RECORDS_FIRST)),
        make=partial(purging, budget=0), of="purging", alone=True),
    specimen(
        "purging.keeps_its_place", ADMITTED,
        "What is gone still has its place, and nobody can look it up: who calls is kept out for ever.",
        "Planted: so does a TTL index on one of several collections.",
        partial(variant, Purging, (HAS_PLACES, "if False:")),
        make=partial(purging, budget=0), of="purging", alone=True),
    specimen(
        "purging.records_alone", LEFT,
        "The invocation goes, and its call stays.",
        "Planted: so does whoever purges one of two collections.",
        partial(variant, Purging, (REMOVED, RECORDS_ALONE)),
        make=partial(purging, budget=0), of="purging", alone=True),
    specimen(
        "purging.swept.clears_what_was_read", KEPT,
        "What was found empty is deleted, whoever is in it by then.",
        "Planted: who looks whether it is empty, and then deletes it, races with everybody who takes.",
        partial(variant, Purging, ("In(ID, keys), _EMPTY)", "In(ID, keys))")),
        make=partial(swept, budget=0), of="purging.swept"),
    specimen(
        "purging.swept.by_version_alone", KEPT,
        "A set that was removed and made anew has a version again that somebody has read of the one before.",
        "The ABA problem (IBM System/370 Principles of Operation, 1983): ours would have been, for versions began with 1 again.",
        lambda: variant(Registrar, take_places=variant(take_places, ("as_read(found), ", VERSION_ALONE))),
        make=beside, of="purging.swept"),
)  # fmt: skip
