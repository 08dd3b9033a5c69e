"""Import the task records that mongodash (2.x) has left in a `<source>_tasks` collection.

They are read and never written: each is translated (`translated`) and inserted into another
collection, unless its document has a record there. So the import can be repeated after any failure.
At its end a marker beside the control document prevents a second one.

    theirs                        ours
    task, sourceDocId             the id of the record: one for each task and document, as their
                                  unique index ensures
    status                        the same; a processed one becomes pending and due, as it has no
                                  worker
    attempts                      the same; token: as many, or the number of runs in the history
    nextRunAt                     next_run_at, and retry_at after a failure; none if finished
    dueAt, updatedAt, createdAt   due_at, changed_at, created_at
    startedAt, lastFinalizedAt    claimed_at, finalised_at
    firstErrorAt, lastError       first_error_at, last_error
    lastSuccess                   last_success
    executionHistory              history, up to the maximum of the task's rules
    lastObservedValues            snapshot: the watched part; none if a value is computed, and then
                                  it runs again

Records that mongodash still writes would be missed. So the import is refused while the lease of a
mongodash leader lasts, by the store's time (`lock.expiresAt` in `_mongodash_globals`), while a
claim of its workers does, and if something changed in between: a planner raises `updatedAt`, a
worker `startedAt` and `lastFinalizedAt`.

Laws
    MD1  Pending records run here, no later than there; finished ones are finished, and run only if
         a watched value differs.
    MD2  Each of their records is imported, was there before, or counts as unreadable; none is
         changed.
    MD3  It is done once: nothing is inserted after the marker. If there were no records of the
         task, no marker is set.

Known not to work
    - A mongodash instance that starts during the import and writes only after the second check:
      stop all of them for good first.
    - Throttles and pauses of mongodash are in the memory of its processes.
    - Imported records whose insert had no reply count as there before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import (
    ID,
    AllOf,
    Descending,
    Document,
    Eq,
    Field,
    Gt,
    In,
    Sort,
    Value,
    exactly,
    show,
)
from tidegate.model.effects import Program, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, check_collection, find_all, find_one, insert_many
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed, one_of
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.admin.pausing import CONTROL
from tidegate.reactive.record.snapshot import Kept, NotComputed, remembered, snapshot
from tidegate.reactive.record.task_documents import record_id, stored
from tidegate.reactive.record.task_records import FINISHED, Ended, RunEnd, TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import PAUSES, Pauses, check_attempts
from tidegate.retries.idempotent import ATTEMPTS, repeat

T = TypeVar("T")

GLOBALS: Final = "_mongodash_globals"
"""The collection with the lease of mongodash's leader."""
_META: Final = Eq(ID, "_mongodash_planner_meta")
_LOCK: Final = Field[Document]("lock")
_EXPIRES_AT: Final = Field[Value]("expiresAt")

_TASK: Final = Field[str]("task")
_SOURCE_ID: Final = Field[Value]("sourceDocId")
_STATUS: Final = Field[str]("status")
_ATTEMPTS: Final = Field[Value]("attempts")
_NEXT_RUN_AT: Final = Field[Instant]("nextRunAt")
_OBSERVED: Final = Field[Value]("lastObservedValues")
_LAST_ERROR: Final = Field[Value]("lastError")
_LAST_SUCCESS: Final = Field[Value]("lastSuccess")
_HISTORY: Final = Field[Value]("executionHistory")
_KEY: Final = Field[Value](ID.name)
_WRITTEN_AT: Final = (Field[Instant]("updatedAt"), Field[Instant]("startedAt"), Field[Instant]("lastFinalizedAt"))
"""The fields that its planner and workers raise."""

_REASONS_MAX: Final = 10


# --- answers ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Imported:
    """The records are imported; or, in a dry run, would be.

    Attributes:
        taken: Imported records.
        there: Documents that had a record here before.
        unreadable: Documents that hold no record of theirs.
        reasons: The first of those, and why.
        is_dry: Nothing was written.
    """

    taken: int
    there: int
    unreadable: int
    reasons: tuple[str, ...]
    is_dry: bool

    @property
    def is_nothing(self) -> bool:
        """Whether there was no record of the task."""
        return not self.taken and not self.there and not self.unreadable


@final
@attrs.frozen
class ImportedBefore:
    """The import was done before; nothing was written."""

    at: Instant


class StillWritten(Enum):
    """mongodash still writes there: stop all its instances and repeat. No marker was set."""

    LED = "the lease of a leader lasts"
    RUN = "a worker runs one of the records"
    CHANGED = "something was written in between"


# --- one collection ---------------------------------------------------------------------------------------------------------


def check_not_theirs(records: str, unique: tuple[str, ...]) -> None:
    """Raise Misuse unless a collection can hold records of ours.

    Args:
        records: The collection.
        unique: The fields of its unique indexes.
    """
    check_collection(records)
    check_tuple(unique, str, "a field of an index")
    if _SOURCE_ID.name in unique:
        raise _shared(records)


def _shared(records: str) -> Misuse:
    return Misuse(
        f"records of mongodash's and of ours in {records}",
        why="their unique index refuses the second record of each task of ours, and theirs are to stay as they are",
        todo=f"stop mongodash, rename theirs, and take them over before the app starts: tidegate reactive import APP TASK --from {records}_of_mongodash",
    )


# --- one record ---------------------------------------------------------------------------------------------------------


def translated(theirs: Document, task: ReactiveTask, now: Instant) -> TaskRecord:
    """Translate a record of theirs.

    Args:
        theirs: The record as read.
        task: The task of ours.
        now: The store's time.

    Raises:
        Misuse: It is no record of theirs.
    """
    check_type(theirs, Document, "a record")
    check_type(task, ReactiveTask, "a task")
    check_type(now, Instant, "the time")
    status = _OURS[one_of(TaskStatus, needed(theirs, _STATUS))]
    _ = record_id(task.name, needed(theirs, _SOURCE_ID))
    first_error_at = _time(theirs, "firstErrorAt")
    attempts, runs = _count(theirs.held(_ATTEMPTS)), _runs(theirs.held(_HISTORY))
    token = max(attempts, len(runs))
    history = tuple(run(token - len(runs) + 1 + number) for number, run in enumerate(runs))
    last_success = _ended({**_items(theirs.held(_LAST_SUCCESS)), "status": "completed"})
    created_at = _time(theirs, "createdAt") or now
    changed_at = _time(theirs, "updatedAt") or created_at
    is_run = theirs.held(_STATUS) != status.value  # what is processed there is due here at once
    next_run_at = None if status in FINISHED else now if is_run else _time(theirs, _NEXT_RUN_AT.name) or now
    is_retry = status is TaskStatus.PENDING and not is_run and first_error_at is not None and attempts > 0
    error = theirs.held(_LAST_ERROR)
    return TaskRecord(
        id=f"mongodash {show(theirs.held(ID))}",
        version=1,
        status=status,
        snapshot=_snapshot(theirs.get(_OBSERVED), task),
        next_run_at=next_run_at,
        due_at=_time(theirs, "dueAt") or next_run_at or changed_at,
        changed_at=changed_at,
        waiting_since=changed_at if status is TaskStatus.PENDING and not is_retry else None,
        created_at=created_at,
        retry_at=next_run_at if is_retry else None,
        attempts=attempts,
        token=token,
        claimed_at=_time(theirs, "startedAt"),
        first_error_at=first_error_at,
        last_error=error if isinstance(error, str) else None,
        finalised_at=_time(theirs, "lastFinalizedAt"),
        last_success=None if last_success is None else last_success(max(token, 1)),
        history=history[-task.rules.history_max :] if task.rules.history_max else (),
    )


_OURS: Final = {
    TaskStatus.PENDING: TaskStatus.PENDING,
    TaskStatus.PROCESSING: TaskStatus.PENDING,
    TaskStatus.PROCESSING_DIRTY: TaskStatus.PENDING,
    TaskStatus.COMPLETED: TaskStatus.COMPLETED,
    TaskStatus.FAILED: TaskStatus.FAILED,
}


def _snapshot(observed: Value, task: ReactiveTask) -> Kept | None:
    """The watched values as observed there; None if they cannot be told, which counts as a change."""
    if not isinstance(observed, Document) or task.watched.computed:
        return None
    seen = snapshot(observed, task.watched)
    return None if isinstance(seen, NotComputed) else remembered(seen, task.rules.snapshot_bytes_max)


def _time(doc: Document, name: str) -> Instant | None:
    held = doc.held(Field[Value](name))
    return held if isinstance(held, Instant) else None


def _count(held: object) -> int:
    """A number of theirs, which JavaScript may have stored as a double."""
    is_number = isinstance(held, (int, float)) and not isinstance(held, bool) and 0 <= held < _COUNT_MAX
    return int(held) if is_number and isinstance(held, (int, float)) else 0


_COUNT_MAX: Final = 2**31


def _items(held: object) -> dict[str, Value]:
    return dict(held.items) if isinstance(held, Document) else {}


_Run: TypeAlias = Callable[[int], RunEnd]


def _runs(held: object) -> tuple[_Run, ...]:
    each = held if isinstance(held, tuple) else ()
    return tuple(run for one in each if (run := _ended(_items(one))) is not None)


def _ended(items: dict[str, Value]) -> _Run | None:
    """A run of theirs under a token; None if it is none."""
    at, status, error = items.get("at"), items.get("status"), items.get("error")
    if not isinstance(at, Instant) or status not in {"completed", "failed"}:
        return None
    duration, text = _count(items.get("durationMs")) * MILLISECOND, error if isinstance(error, str) else "Unknown error"
    if status == "completed":
        return lambda token: RunEnd(token, Ended.SUCCEEDED, at, duration)
    return lambda token: RunEnd(token, Ended.FAILED, at, duration, text)


# --- all of them --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class MongodashImport:
    """Imports the records of a task. Invariants: 0 <= quiet; 1 <= batch <= FOUND_MAX; two
    collections.

    Attributes:
        task: The task of ours that continues with them.
        theirs: Their collection.
        named: The name of the task there; that of ours by default.
        quiet: How long nothing may have changed there, in microseconds; mongodash polls at least
            every
            ten seconds.
        batch: Records that one request reads and inserts.
        attempts: Tries of each request; None for any number.
        pauses: The waits between tries.
    """

    task: ReactiveTask
    theirs: str
    named: str = attrs.field(default=attrs.Factory(lambda self: self.task.name, takes_self=True))
    quiet: Duration = 15 * SECOND
    batch: int = FOUND_MAX
    attempts: int | None = ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_type(self.task, ReactiveTask, "a task")
        check_collection(self.theirs)
        check_name(self.named, "a task of theirs")
        check_int(self.quiet, "a time in microseconds", 0)
        check_int(self.batch, "a number of records", 1, FOUND_MAX)
        check_attempts(self.attempts, self.pauses)
        if self.theirs == self.task.records:
            raise _shared(self.theirs)

    async def take_over(self, *, is_dry: bool = False) -> Imported | ImportedBefore | StillWritten:
        """Import the records, once. After a failure, repeat it: it continues.

        Args:
            is_dry: Write nothing.

        Raises:
            Failure: No reply, or the store refuses.
        """
        marker = f"mongodash {self.theirs} {self.task.name}"
        done = await self._asked(partial(find_one, CONTROL, Eq(ID, marker)))
        if done is not None:
            return ImportedBefore(needed(done, _AT))
        before = await self._last_written()
        if self.quiet:
            await Sleep(self.quiet)
        trouble = await self._still_written(before)
        if trouble is not None:
            return trouble
        imported = await self._imported(is_dry=is_dry)
        trouble = await self._still_written(before)
        if trouble is not None:
            return trouble
        if not is_dry and not imported.is_nothing:  # else a wrong name would be the end of it
            at = await self._asked(StoreTime)
            end = Document.of({"_id": marker, "at": at, "taken": imported.taken})
            await self._asked(partial(insert_new, CONTROL, end))
        return imported

    def _asked(self, make: Callable[[], Awaitable[T]]) -> Program[T]:
        """Each request changes nothing, or inserts what is recognised."""
        return repeat(make, self.attempts, self.pauses)

    async def _imported(self, *, is_dry: bool) -> Imported:
        taken, there = 0, 0
        unreadable: tuple[str, ...] = ()
        after: tuple[Value, ...] = ()
        count = 0
        while True:
            asking = partial(find_all, self.theirs, Eq(_TASK, self.named), limit=self.batch, after=after)
            page, now = await self._asked(asking), await self._asked(StoreTime)
            read = tuple(self._read(doc, now) for doc in page)
            readable = tuple(each for each in read if isinstance(each, Document))
            docs = tuple({doc[ID]: doc for doc in readable}.values())  # 7 and 7.0 are one document
            new = 0
            if docs:
                new = await (self._new(docs) if is_dry else self._asked(partial(insert_many, self.task.records, *docs)))
            taken, there = taken + new, there + len(readable) - new
            count += len(read) - len(readable)
            unreadable = (*unreadable, *(each for each in read if isinstance(each, str)))[:_REASONS_MAX]
            if len(page) < self.batch:
                return Imported(taken, there, count, unreadable, is_dry)
            after = (needed(page[-1], _KEY),)

    async def _new(self, docs: tuple[Document, ...]) -> int:
        """How many of them have no record here yet."""
        ids = tuple(doc[ID] for doc in docs)
        asking = partial(find_all, self.task.records, In(ID, ids), limit=len(docs), fields=())
        return len(docs) - len(await self._asked(asking))

    def _read(self, doc: Document, now: Instant) -> Document | str:
        """The insert for a record of theirs, or why it is none."""
        try:
            return stored(translated(doc, self.task, now), self.task.name, needed(doc, _SOURCE_ID))
        except Misuse as wrong:
            return f"{show(doc.held(ID))}: {wrong.what}"

    async def _last_written(self) -> tuple[tuple[Document, ...], ...]:
        """The record with the latest of each of the times, and that time."""
        found: tuple[tuple[Document, ...], ...] = ()
        for field in _WRITTEN_AT:
            sort: Sort = (Descending(field),)
            asking = partial(find_all, self.theirs, Eq(_TASK, self.named), limit=1, fields=(field,), sort=sort)
            found = (*found, await self._asked(asking))
        return found

    async def _still_written(self, before: tuple[tuple[Document, ...], ...]) -> StillWritten | None:
        meta, now = await self._asked(partial(find_one, GLOBALS, _META)), await self._asked(StoreTime)
        lock = None if meta is None else meta.held(_LOCK)
        until = lock.held(_EXPIRES_AT) if isinstance(lock, Document) else None
        if isinstance(until, Instant) and until - now > 0:
            return StillWritten.LED
        processed = (TaskStatus.PROCESSING.value, TaskStatus.PROCESSING_DIRTY.value)
        is_run = AllOf((Eq(_TASK, self.named), In(_STATUS, processed), Gt(_NEXT_RUN_AT, now)))
        if await self._asked(partial(find_one, self.theirs, is_run, fields=())) is not None:
            return StillWritten.RUN
        is_same = exactly(await self._last_written()) == exactly(before)
        return None if is_same else StillWritten.CHANGED


_AT: Final = Field[Instant]("at")
