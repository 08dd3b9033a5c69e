"""List, count and retry the records of tasks, for operators.

    list_records     pages by next run or last change (`tidegate.reactive.record.record_queries`)
    find             one record with its history; `tidegate.reactive.record.timeline` renders a time line
    count            records per status, and since when the oldest is due: the lag of a task
    retry            reset each record (`tasks.reset`), under the guard of what was read
    pause, resume    stop and restart the handlers of a task (`tidegate.reactive.admin.pausing`)

A retry pages through the records once, in the order of their ids. So it resets each at most once,
even if its handler fails again meanwhile. A processed record keeps its owner and lease, and runs
again afterwards. A write without a reply is found by the record that it makes. If others have
written since, it stays unknown and is not sent again. If fewer records match than were sent, others
have written the rest.

Laws
    DK1  A retry resets each record at most once, and counts each selected one once: reset, changed,
         unknown or unreadable.
    DK2  A record that was reported as reset runs again.
    DK3  A reset takes nothing from the worker that processes the record.

A desk touches only the tasks of its application: tasks elsewhere have rules of their own.

Known limits
    - A filter by error text runs in this process, so its records cannot be counted.
    - A record that changes during a list or a retry appears in its old or its new state. A record
      that another process writes during its reset is `changed`, and was not reset: retry it.
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Filter, In, Value, cursor, sort_key
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, UpdateOne, find_all, find_one, update_one
from tidegate.model.reading import needed
from tidegate.model.record_counts import CountRecords, RecordCount
from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.reactive.admin.pausing import PausedTask, Pausing
from tidegate.reactive.record import tasks
from tidegate.reactive.record._record_store import send_updates
from tidegate.reactive.record.record_queries import Order, Part, Query, RecordPage, RecordRow, begins_at, row
from tidegate.reactive.record.task_documents import BRIEF, DUE_AT, changes, guarded, record_id
from tidegate.reactive.record.task_records import FINISHED, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import UpdateRecord
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.idempotent import repeat

_KEY: Final = Field[Value](ID.name)
_ATTEMPTS: Final = 8


# --- what is answered ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class TaskCounts:
    """The records of a task by status.

    Attributes:
        task: The task.
        counts: The number for each status, 0 included; None counts unreadable ones.
        oldest: The earliest due time of unfinished records; None without any.
    """

    task: str
    counts: tuple[tuple[TaskStatus | None, int], ...]
    oldest: Instant | None

    @property
    def total(self) -> int:
        """The number of records."""
        return sum(count for _, count in self.counts)

    def lag(self, now: Instant) -> Duration:
        """The age of the oldest due record, in microseconds; 0 without one.

        Args:
            now: The store's time (`Tally.at`).
        """
        check_type(now, Instant, "the time")
        return 0 if self.oldest is None else max(0, now - self.oldest)


@final
@attrs.frozen
class Tally:
    """The records of all tasks.

    Attributes:
        at: The store's time BEFORE the count.
        tasks: Each requested task, in the order of the desk.
    """

    at: Instant
    tasks: tuple[TaskCounts, ...]


@final
@attrs.frozen(kw_only=True)
class Retried:
    """The result of a retry.

    Attributes:
        reset: Records that run again.
        changed: Records that another process wrote since they were read; they were not reset.
        unknown: Records whose write had no reply, where the present record does not show the
            result.
        unreadable: Documents that hold no record.
        is_complete: It reached the end; if False, replies stopped: retry.
    """

    reset: int = 0
    changed: int = 0
    unknown: int = 0
    unreadable: int = 0
    is_complete: bool = True

    def __add__(self, other: Retried) -> Retried:
        return Retried(
            reset=self.reset + other.reset,
            changed=self.changed + other.changed,
            unknown=self.unknown + other.unknown,
            unreadable=self.unreadable + other.unreadable,
            is_complete=self.is_complete and other.is_complete,
        )


# --- the desk -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Desk:
    """Operator commands for the tasks of one database. Invariants: unique names; 1 <= batch <=
    FOUND_MAX; 1 <= attempts.

    Attributes:
        tasks: The tasks of the application there.
        batch: Records that one request resets.
        attempts: Tries of each request; None for any number.
        pauses: The waits between tries.
    """

    tasks: tuple[ReactiveTask, ...]
    batch: int = FOUND_MAX
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_tuple(self.tasks, ReactiveTask, "a task")
        names = [task.name for task in self.tasks]
        if len({*names}) != len(names):
            raise Misuse("two tasks of one name", why="nobody could say which is meant", todo="name each differently")
        check_int(self.batch, "a number of records", 1, FOUND_MAX)
        check_attempts(self.attempts, self.pauses)

    # --- looking ---

    async def list_records(
        self, query: Query, *, order: Order = Order.CHANGED, limit: int = 50, after: tuple[Value, ...] = ()
    ) -> RecordPage:
        """A page of records, without snapshots and histories.

        Args:
            query: Selects the records.
            order: Their order.
            limit: How many at most; 1 <= limit <= FOUND_MAX.
            after: The end of the previous page (`RecordPage.after`); empty for the first.

        Raises:
            Misuse: There is no such task, or no page begins there.
            Failure: No reply.
        """
        check_type(order, Order, "an order of records")
        check_int(limit, "a number of records", 1, FOUND_MAX)
        collections = self._collections(query)
        number, begin = begins_at(order, after)
        rows: tuple[RecordRow, ...] = ()
        while number < len(order.parts):
            most = FOUND_MAX if query.error is not None else limit - len(rows)
            found = await self._found(query, collections, order.parts[number], begin, most)
            for doc in found:
                seen = row(doc)
                rows = (*rows, seen) if query.wants(seen.record) else rows
                if len(rows) == limit:
                    return RecordPage(rows, (number, *cursor(doc, order.parts[number][1])))
            if len(found) == most:
                return RecordPage(rows, (number, *cursor(found[-1], order.parts[number][1])))
            number, begin = number + 1, ()
        return RecordPage(rows)

    async def _found(
        self, query: Query, collections: _Collections, part: Part, after: tuple[Value, ...], most: int
    ) -> tuple[Document, ...]:
        """The next records of a part of the order, over all collections."""
        there, sort = part
        found: tuple[Document, ...] = ()
        for collection, names in collections:
            where = AllOf((query.where(names), there))
            asking = partial(find_all, collection, where, limit=most, after=after, fields=BRIEF, sort=sort)
            found += await repeat(asking, self.attempts, self.pauses)
        return found if len(collections) == 1 else tuple(sorted(found, key=lambda doc: sort_key(doc, sort))[:most])

    async def find(self, task: str, document: Value) -> RecordRow | None:
        """The whole record of a document; None if there is none.

        Args:
            task: The name of the task.
            document: The id of the document, of any type.

        Raises:
            Misuse: There is no such task, or MongoDB allows no such id.
            Failure: No reply.
        """
        ((collection, _),) = self._collections(Query(tasks=(task,)))
        asking = partial(find_one, collection, Eq(ID, record_id(task, document)))
        found = await repeat(asking, self.attempts, self.pauses)
        return None if found is None else row(found)

    async def count(self, query: Query) -> Tally:
        """Count records by task and status, with the earliest due time.

        Args:
            query: Selects the records.

        Raises:
            Misuse: There is no such task, or the query has an error text, which the store does not
                match.
            Failure: No reply.
        """
        collections = self._collections(query)
        if query.error is not None:
            raise Misuse(
                "a count by the text of an error",
                why="the store does not look for it",
                todo="list the records with that text",
            )
        at = await repeat(StoreTime, self.attempts, self.pauses)
        counts: tuple[RecordCount, ...] = ()
        for collection, names in collections:
            asking = partial(CountRecords, collection, names, _STATUSES, DUE_AT, query.where(names))
            counts += await repeat(asking, self.attempts, self.pauses)
        names = tuple(name for _, each in collections for name in each)
        return Tally(at, tuple(_counts_of(task.name, counts) for task in self.tasks if task.name in names))

    # --- running again ---

    async def retry(self, query: Query) -> Retried:
        """Run records again with attempts counted from zero; a processed one runs again after its
        run.

        Args:
            query: Selects the records; an empty one selects all.

        Returns:
            The result; all zeros if nothing is selected.

        Raises:
            Misuse: There is no such task.
            Refused: The store refuses for good; earlier records are reset.
        """
        retried = Retried()
        for collection, names in self._collections(query):
            after: tuple[Value, ...] = ()
            while True:
                page = await self._page(collection, query.where(names), after)
                if page is None:
                    return attrs.evolve(retried, is_complete=False)
                read = tuple((doc[ID], row(doc).record) for doc in page)
                meant = tuple((key, record) for key, record in read if query.wants(record))
                records = tuple((key, record) for key, record in meant if record is not None)
                retried += Retried(unreadable=len(meant) - len(records))
                if records:
                    retried += await self._reset(collection, records)
                if len(page) < self.batch:
                    break
                after = (needed(page[-1], _KEY),)
        return retried

    async def _page(self, collection: str, where: Filter, after: tuple[Value, ...]) -> tuple[Document, ...] | None:
        """The next records by id; None without a reply."""
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                return None
            attempt += 1
            try:
                return await find_all(collection, where, limit=self.batch, after=after, fields=BRIEF)
            except (Ambiguous, NotApplied):
                continue

    async def _reset(self, collection: str, records: tuple[tuple[str, TaskRecord], ...]) -> Retried:
        """Reset records of different documents, each at most once."""
        left: tuple[_Write, ...] = ()
        settled = Retried()
        may_be_done = False
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                return settled + Retried(unknown=len(left) or len(records), is_complete=False)
            attempt += 1
            try:
                if not left:
                    now = await StoreTime()  # the records that are made are the same in all attempts, to be recognised
                    left = tuple((key, record, tasks.reset(record, now=now)) for key, record in records)
                if may_be_done:
                    told, left = _told(left, await find_all(collection, _of(left), limit=len(left), fields=BRIEF))
                    settled += told
                    if not left:
                        return settled
                matched = await send_updates(tuple(self._update(collection, *each) for each in left))
                if matched == len(left) or not may_be_done:
                    return settled + Retried(reset=matched, changed=len(left) - matched)
            except NotApplied:
                continue
            except (Ambiguous, NotDurable):
                may_be_done = bool(left)

    def _update(self, collection: str, key: str, before: TaskRecord, write: UpdateRecord) -> UpdateOne:
        return update_one(collection, guarded(key, write.on), *changes(before, write.record))

    # --- pausing ---

    async def pause(self, *names: str) -> tuple[PausedTask, ...]:
        """Pause these tasks in all processes (`Pausing.pause`).

        Raises:
            Misuse: There is no such task.
            Failure: No reply.
        """
        _ = self._collections(Query(tasks=names))
        return await self._pausing.pause(*names)

    async def resume(self, *names: str) -> tuple[PausedTask, ...]:
        """Resume these tasks (`Pausing.resume`).

        Raises:
            Misuse: There is no such task.
            Failure: No reply.
        """
        _ = self._collections(Query(tasks=names))
        return await self._pausing.resume(*names)

    async def paused(self) -> tuple[PausedTask, ...]:
        """The paused tasks, also unknown ones (`Pausing.paused`)."""
        return await self._pausing.paused()

    @property
    def _pausing(self) -> Pausing:
        return Pausing(attempts=self.attempts, pauses=self.pauses)

    # --- which tasks ---

    def _collections(self, query: Query) -> _Collections:
        """The selected tasks, by the collection of their records.

        Raises:
            Misuse: There is no such task.
        """
        check_type(query, Query, "a query")
        known = [task.name for task in self.tasks]
        for name in query.tasks:
            if name not in known:
                raise Misuse(
                    f"there is no task {shown(name)}",
                    todo=f"name one of {', '.join(known) or 'none, for none is known'}",
                )
        meant = tuple(task for task in self.tasks if not query.tasks or task.name in query.tasks)
        collections = dict.fromkeys(task.records for task in meant)
        return tuple((each, tuple(task.name for task in meant if task.records == each)) for each in collections)


_Collections: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Collections of records, with the names of the selected tasks."""
_Write: TypeAlias = tuple[str, TaskRecord, UpdateRecord]
"""The id of a record, its last state, and the write."""


def _counts_of(task: str, counts: tuple[RecordCount, ...]) -> TaskCounts:
    mine = [(TaskStatus(each.status) if each.status else None, each) for each in counts if each.task == task]
    dues = [each.oldest for status, each in mine if status not in FINISHED and each.oldest is not None]
    return TaskCounts(
        task, tuple((status, each.count) for status, each in mine), min(dues, key=lambda due: due.at, default=None)
    )


_STATUSES: Final = tuple(status.value for status in TaskStatus)


def _of(writes: tuple[_Write, ...]) -> Filter:
    return In(ID, tuple(key for key, _, _ in writes))


def _told(writes: tuple[_Write, ...], found: tuple[Document, ...]) -> tuple[Retried, tuple[_Write, ...]]:
    """The results of writes without a reply, from the present records, and the writes not done so
    far.
    """
    known = {doc[ID]: row(doc).record for doc in found}
    done = sum(known.get(key) == write.record for key, _, write in writes)
    left = tuple(each for each in writes if (record := known.get(each[0])) is not None and record.guard == each[2].on)
    return Retried(reset=done, unknown=len(writes) - done - len(left)), left
