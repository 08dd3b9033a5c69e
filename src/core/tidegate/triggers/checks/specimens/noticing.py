"""Faulty variants of the noticer."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.record.record_documents import unchanged
from tidegate.invocations.record.status import Accepted, StatusRecord
from tidegate.model.documents import ID, Eq, Update
from tidegate.model.operations import update_one
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant
from tidegate.triggers.checks.scenarios.noticing import HEARD, LEFT, NOTHING, RECORDS, notices, noticing
from tidegate.triggers.outbox_relay import Noticer


async def told_afterwards(before: StatusRecord, made: Accepted, updates: tuple[Update, ...]) -> None:
    """Write the status, THEN the notice: a crash in between loses the notice."""
    key = Eq(ID, "x")
    await update_one(RECORDS, unchanged("x", before), *updates)
    await update_one(RECORDS, key, *notices(made))


KEEPS: Final = "        occurrences, read, skipped = await self._page(found, now)\n"
UNHEARD: Final = "AllOf((Eq(ID, needed(record, ID)), Eq(NOTICE, needed(record, NOTICE))))"

SPECIMENS: Final = (
    specimen(
        "noticing.removes_before_it_keeps", HEARD,
        "The notice is removed, and then there is an occurrence: a crash in between, and nothing ever fires.",
        "Planted: what a queue does that pops, and what pynenc's broker does with its messages.",
        partial(variant, Noticer, (KEEPS, "        await self._forget(found)\n" + KEEPS)),
        make=noticing, of="noticing"),
    specimen(
        "noticing.removes_what_it_has_not_read", HEARD,
        "The notice is removed whatever it is by now, what was pushed meanwhile included.",
        "Planted: a read and a write without a comparison.",
        partial(variant, Noticer, (UNHEARD, "Eq(ID, needed(record, ID))")),
        make=noticing, of="noticing"),
    specimen(
        "noticing.told_afterwards", HEARD,
        "The status is written, and then triggers are told: a crash in between, and they never hear of it.",
        "pynenc writes the status of an invocation, and then records the conditions that hold of it.",
        lambda: Noticer, make=partial(noticing, write=told_afterwards), of="noticing"),
    specimen(
        "noticing.leaves_it", LEFT,
        "The notice stays where it is, and each pass reads it again.",
        "Planted: what is read again and again grows without a bound.",
        partial(variant, Noticer, ("in read if needed(each, TASK) not in others", "in ()")),
        make=noticing, of="noticing"),
    specimen(
        "noticing.takes_what_is_for_what_was", NOTHING,
        "Each version is taken to have had the status that the record has now.",
        "Planted: who looks late sees how it ended, and not what happened.",
        partial(variant, Noticer, ("{each.version: each.status for", "{each.version: history(record)[-1].status for")),
        make=noticing, of="noticing"),
)  # fmt: skip
