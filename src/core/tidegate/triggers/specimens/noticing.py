"""Ways to miss what became of an invocation. Each differs from `tidegate.triggers.noticing` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.record_documents import HISTORY, NOTICE, STATUS, TASK, unchanged
from tidegate.invocations.status import Accepted, StatusRecord
from tidegate.model.documents import ID, Document, Eq, Filter, Remove, Update
from tidegate.model.instants import Instant
from tidegate.model.operations import bulk_update, update_one
from tidegate.model.reading import needed
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen
from tidegate.triggers.noticing import PARTS, Noticer, NotNoticed
from tidegate.triggers.scenarios.noticing import HEARD, LEFT, NOTHING, RECORDS, notices, noticing

__all__ = ["SPECIMENS"]


async def removes_before_it_keeps(
    noticer: Noticer, found: tuple[Document, ...], others: frozenset[str], now: Instant
) -> tuple[NotNoticed, ...]:
    """The notice is removed, and then there is an occurrence: a crash in between, and nothing ever fires."""
    if found:
        await bulk_update(
            *tuple([update_one(noticer.records, noticer.parts.unheard(each), Remove(NOTICE)) for each in found])
        )
    return await PARTS.settle(noticer, found, others, now)


def removes_what_it_has_not_read(record: Document) -> Filter:
    """The notice is removed whatever it is by now, what was pushed meanwhile included."""
    return Eq(ID, needed(record, ID))


async def told_afterwards(before: StatusRecord, made: Accepted, updates: tuple[Update, ...]) -> None:
    """The status is written, and then triggers are told: a crash in between, and they never hear of it."""
    key = Eq(ID, "x")
    await update_one(RECORDS, unchanged("x", before), *updates)
    await update_one(RECORDS, key, *notices(made))


async def leaves_it(
    noticer: Noticer, found: tuple[Document, ...], others: frozenset[str], now: Instant
) -> tuple[NotNoticed, ...]:
    """The notice stays where it is, and each pass reads it again."""
    del others
    return await PARTS.settle(noticer, found, frozenset(record[TASK] for record in found), now)


async def takes_what_is_for_what_was(
    noticer: Noticer, found: tuple[Document, ...], others: frozenset[str], now: Instant
) -> tuple[NotNoticed, ...]:
    """Each version is taken to have had the status that the record has now."""
    return await PARTS.settle(noticer, tuple([as_it_is(record) for record in found]), others, now)


def as_it_is(record: Document) -> Document:
    last = record[HISTORY][-1][STATUS]
    return record.put(HISTORY, tuple(each.put(STATUS, last) for each in record[HISTORY]))


def planted(name: str, wrong: object, make: partial[Scenario], source: str, law: str = HEARD) -> Specimen:
    """The scenario, with the bug in its place."""
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(f"noticing.{name}", partial(make, summary=summary), law, source, "noticing")


SPECIMENS: Final = (
    planted(
        "removes_before_it_keeps",
        removes_before_it_keeps,
        partial(noticing, attrs.evolve(PARTS, settle=removes_before_it_keeps)),
        "Planted: what a queue does that pops, and what pynenc's broker does with its messages.",
    ),
    planted(
        "removes_what_it_has_not_read",
        removes_what_it_has_not_read,
        partial(noticing, attrs.evolve(PARTS, unheard=removes_what_it_has_not_read)),
        "Planted: a read and a write without a comparison.",
    ),
    planted(
        "told_afterwards",
        told_afterwards,
        partial(noticing, write=told_afterwards),
        "pynenc writes the status of an invocation, and then records the conditions that hold of it.",
    ),
    planted(
        "leaves_it",
        leaves_it,
        partial(noticing, attrs.evolve(PARTS, settle=leaves_it)),
        "Planted: what is read again and again grows without a bound.",
        LEFT,
    ),
    planted(
        "takes_what_is_for_what_was",
        takes_what_is_for_what_was,
        partial(noticing, attrs.evolve(PARTS, settle=takes_what_is_for_what_was)),
        "Planted: who looks late sees how it ended, and not what happened.",
        NOTHING,
    ),
)
