"""A query that counts records by task and status, with the oldest due time of each.

It counts documents with the fields `task` and `status`, in one snapshot: reactive task records and
invocations. A status that the query does not name counts as None.

Laws
    CR1  Each record that matches is counted once, and no other.
    CR2  The oldest record of a count is due no later than any other of it.

Known not to work: the query reads every match, because an index would cost each write of a record.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.documents import FILTERS, Document, Field, Filter
from tidegate.model.effects import Effect
from tidegate.model.instants import Instant
from tidegate.model.operations import check_collection
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type

TASKS_MAX: Final = 1_000
_TASK: Final = Field[str]("task")
_STATUS: Final = Field[str]("status")


@final
@attrs.frozen
class RecordCount:
    """The number of records of a task with a status.

    `status` is None for an unknown one, `oldest` None if no record has a due time.
    """

    task: str
    status: str | None
    count: int
    oldest: Instant | None

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        check_int(self.count, "a number of records", 1)

    def __str__(self) -> str:
        return f"{self.count} of {self.task} {'unreadable' if self.status is None else self.status}"


@final
@attrs.frozen(cache_hash=True)
class CountRecords(Effect[tuple[RecordCount, ...]]):
    """Count records by task and status, in the order of their names.

    Invariants: 1 <= len(tasks) <= TASKS_MAX; at least one status. `due` is the field with the due
    time.
    """

    collection: str
    tasks: tuple[str, ...]
    statuses: tuple[str, ...]
    due: Field[Instant]
    where: Filter | None = None

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_tuple(self.tasks, str, "the name of a task")
        check_int(len(self.tasks), "a number of tasks", 1, TASKS_MAX)
        check_tuple(self.statuses, str, "the name of a status")
        check_int(len(self.statuses), "a number of statuses", 1)
        check_type(self.due, Field, "a field")
        if self.where is not None:
            check_type(self.where, FILTERS, "a filter")

    def __str__(self) -> str:
        return f"count {self.collection} of {', '.join(self.tasks)} where {self.where or 'they are'}"


def counted(query: CountRecords, records: tuple[Document, ...]) -> tuple[RecordCount, ...]:
    """The reply to the query, computed from the records that match."""
    check_type(query, CountRecords, "a question")
    check_tuple(records, Document, "a record")
    counts: dict[tuple[str, str], RecordCount] = {}
    for record in records:
        task, held, due = needed(record, _TASK), record.held(_STATUS), record.held(query.due)
        check_name(task, "a task")
        status = held if isinstance(held, str) and held in query.statuses else None
        key = (task, status or "")
        before = counts.get(key)
        dues = [each for each in (due, before and before.oldest) if isinstance(each, Instant)]
        oldest = min(dues, key=lambda each: each.at, default=None)
        counts[key] = RecordCount(task, status, 1 if before is None else before.count + 1, oldest)
    return tuple(counts[key] for key in sorted(counts))
