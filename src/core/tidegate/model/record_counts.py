"""How many records of which task have which status, and since when is the oldest of them due? A question to the store.

`CountRecords` is one query of the store as it is at one time, and answers a `RecordCount` for each task and status, so that
no records travel. It counts what has the fields `task` and `status`: records of reactive tasks, and invocations. What is none of
the statuses that are asked for is counted as None: somebody else has written there.

Laws
    CR1  Each record that matches is counted once, and no other.
    CR2  What is the oldest is due no later than any other of its count.

Known not to work: no index serves it, as one would cost each write of a record; so it reads what matches.
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
"""Of how many tasks it is asked at once."""
_TASK: Final = Field[str]("task")
_STATUS: Final = Field[str]("status")


@final
@attrs.frozen
class RecordCount:
    """How many records of a task have a status. Invariant: 1 <= count.

    Attributes:
        task: The task.
        status: The status; None for what is none.
        count: How many there are.
        oldest: When the oldest of them was due; None where none says so.
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
    """Ask how many records of these tasks have which status, by task and status in the order of their names.

    Invariants: 1 <= len(tasks) <= TASKS_MAX; there is a status.

    Attributes:
        collection: Where the records are.
        tasks: The names of the tasks.
        statuses: The names of the statuses.
        due: The field that says when a record is due, or was.
        where: Which records are counted; None for all.
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
    """What counting these records answers, each of a task.

    Args:
        query: What is asked.
        records: Those that match.

    Raises:
        Misuse: One of them has no task.
    """
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
