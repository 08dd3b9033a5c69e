"""What is due is taken, one after the other, until `tidegate.invocations` has a program that takes many at once."""

from __future__ import annotations

from typing import final

import attrs

from tidegate.invocations.invocation import INVOCATION, RUNNING
from tidegate.invocations.record_documents import DUE, PRIORITY, QUEUE, TASK, TRIES, changes, unchanged, viewed
from tidegate.invocations.status import Accepted, StatusRecord, decide_transition
from tidegate.model.documents import ID, Add, Ascending, Descending, Document, In, OlderThan
from tidegate.model.effects import Ambiguous
from tidegate.model.operations import find_all, update_one

__all__ = ["Taken", "take"]


@final
@attrs.frozen
class Taken:
    """An invocation that runs here.

    Attributes:
        record: Its record, before.
        status: And since it was taken.
        tries: How many runs have begun, this one included.
    """

    record: Document
    status: StatusRecord
    tries: int


async def take(
    records: str, *, queues: tuple[str, ...], tasks: tuple[str, ...], most: int, owner: str, request: str
) -> tuple[Taken, ...]:
    """Take what is due: a program."""
    found = await find_all(
        records,
        OlderThan(DUE, 0),
        In(QUEUE, queues),
        In(TASK, tasks),
        limit=most,
        sort=(Descending(PRIORITY), Ascending(DUE)),
    )
    taken: tuple[Taken, ...] = ()
    for each in found:
        seen = viewed(each)
        assert seen is not None, "a document was found"
        verdict = decide_transition(INVOCATION, seen, RUNNING, owner)
        if not isinstance(verdict, Accepted):
            continue
        change = changes(INVOCATION, verdict, request, Add(TRIES, 1))
        try:
            is_mine = await update_one(records, unchanged(each[ID], seen), *change)
        except Ambiguous:  # nobody knows whether it is this process's: recovery finds out
            is_mine = 0
        if is_mine:
            taken = (*taken, Taken(each, verdict.record, (each.get(TRIES) or 0) + 1))
    return taken
