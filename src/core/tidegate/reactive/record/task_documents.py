"""A task record (`tidegate.reactive.record.task_records`) as a document, and back.

    {_id: "<task>/<document>", task, document, record, version, status, snapshot | digest,
    next_run_at, ..., history: [...]}

The id consists of the task and the id of the document of any type (`record_id`), so each pair has
one record, whichever process inserts it: `bill/x` for the string "x", `bill#7` for the number,
`bill#objectId(...)`. `%`, `/` and `#` in task names are escaped. `record` is the unique id of this
record's life. Fields without a value are left out. A write sets the fields that differ from the
record of its decision, and is guarded by that (`guarded`).

A document that holds no record is set aside (`set_aside`): a failed record without a snapshot
replaces it. So it appears among failures, can be reset, and runs at the next look. The old content
is kept as text.

mongodash names and stores the same things differently (`docs/lineage.md` has both). Keep the two in
different collections, although both would use `<source>_tasks`: neither reads the other's records,
and mongodash's unique index on `sourceDocId` and `task` rejects the second record of each task.

Laws
    TK1  A stored record is loaded equal, also after a write.
    TK2  A guard finds the record it was made of, and none with another id, version, owner or token.
    TK3  Any document is a record, or `set_aside` makes a failed one of it.
    TK4  Two tasks or documents have two ids; ids that MongoDB takes for equal (7, 7.0) make one.
    TK5  `RESET` makes of a finished record what `tasks.reset` decides, at the store's time.
    TK6  A decision on a record read without history and last success writes the same as one on the
         whole record: the end of a run is appended, and the server trims the history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final, Never, cast

from tidegate.model.documents import (
    ID,
    INT64,
    Add,
    AllOf,
    Document,
    Eq,
    Field,
    Fields,
    Filter,
    Foreign,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    Value,
    checked,
    numeric,
    show,
)
from tidegate.model.documents.bson import is_regex
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.reading import needed, one_of
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.record.snapshot import Digest
from tidegate.reactive.record.task_records import Ended, Guard, RunEnd, TaskRecord, TaskStatus

TASK: Final = Field[str]("task")
DOCUMENT: Final = Field[Value]("document")
RECORD: Final = Field[str]("record")
VERSION: Final = Field[int]("version")
STATUS: Final = Field[str]("status")
SNAPSHOT: Final = Field[Document]("snapshot")
DIGEST: Final = Field[str]("digest")
NEXT_RUN_AT: Final = Field[Instant]("next_run_at")
DUE_AT: Final = Field[Instant]("due_at")
CHANGED_AT: Final = Field[Instant]("changed_at")
_WAITING_SINCE: Final = Field[Instant]("waiting_since")
_CREATED_AT: Final = Field[Instant]("created_at")
_RETRY_AT: Final = Field[Instant]("retry_at")
_ATTEMPTS: Final = Field[int]("attempts")
_TOKEN: Final = Field[int]("token")
OWNER: Final = Field[str]("owner")
_CLAIMED_AT: Final = Field[Instant]("claimed_at")
_FIRST_ERROR_AT: Final = Field[Instant]("first_error_at")
LAST_ERROR: Final = Field[str]("last_error")
_FINALISED_AT: Final = Field[Instant]("finalised_at")
_LAST_SUCCESS: Final = Field[Document]("last_success")
_HISTORY: Final = Field[tuple[Document, ...]]("history")

RESET: Final[tuple[Update, ...]] = (
    Add(VERSION, 1), Put(STATUS, TaskStatus.PENDING.value), PutServerTime(NEXT_RUN_AT), PutServerTime(DUE_AT),
    PutServerTime(CHANGED_AT), Put(_ATTEMPTS, 0), Remove(_FIRST_ERROR_AT),
)  # fmt: skip
"""Runs a finished record again, in a write of many."""

_UNREADABLE: Final = Field[str]("unreadable")
_TEXT_MAX: Final = 10_000
"""Characters that are kept of unreadable content."""

_OWN: Final[Fields] = (
    SNAPSHOT, DIGEST, NEXT_RUN_AT, _WAITING_SINCE, _RETRY_AT, OWNER, _CLAIMED_AT, _FIRST_ERROR_AT, _FINALISED_AT, _LAST_SUCCESS,
    _HISTORY,
)  # fmt: skip
"""The optional fields of a record."""

BRIEF: Final[Fields] = (
    TASK, DOCUMENT, RECORD, VERSION, STATUS, NEXT_RUN_AT, DUE_AT, CHANGED_AT, _WAITING_SINCE, _CREATED_AT, _RETRY_AT, _ATTEMPTS,
    _TOKEN, OWNER, _CLAIMED_AT, _FIRST_ERROR_AT, LAST_ERROR, _FINALISED_AT,
)  # fmt: skip
"""The fields of a record without snapshot, history and last success, as a reset needs them."""

DECIDED_ON: Final[Fields] = (*BRIEF, SNAPSHOT, DIGEST)
"""The same with the snapshot, as every decision needs them."""

_ENDED: Final = Field[str]("ended")
_AT: Final = Field[Instant]("at")
_DURATION: Final = Field[int]("duration")
_ERROR: Final = Field[str]("error")


def record_id(task: str, document: Value) -> str:
    """The id of the record of a task and a document.

    Args:
        task: The task's name.
        document: The id of its document.

    Raises:
        Misuse: The name is empty, or MongoDB allows no such id: an array, or a regular expression.
    """
    check_name(task, "a task")
    if type(document) is int and document in INT64:
        return f"{_escaped(task)}#{document}"  # as `_text` has it
    checked(document, "the id of a document")
    if isinstance(document, tuple) or is_regex(document):
        raise Misuse(
            f"{shown(document)} is no id of a document", why="MongoDB takes no array and no regular expression"
        )
    # Strings are kept apart from texts of other values.
    return f"{_escaped(task)}/{document}" if isinstance(document, str) else f"{_escaped(task)}#{_text(document)}"


def _escaped(task: str) -> str:
    """The name of a task with separators escaped."""
    return task.replace("%", "%25").replace("/", "%2F").replace("#", "%23")


def _text(value: Value) -> str:
    """One text for all values that MongoDB takes for equal, and for no others."""
    match value:
        case Document(items):
            return "{" + ", ".join([f"{show(key)}: {_text(held)}" for key, held in items]) + "}"
        case tuple():
            return "[" + ", ".join(map(_text, value)) + "]"
        case Instant(at):
            return f"date({at // MILLISECOND})"
        case bytes():
            return f"bytes({value.hex()})"
        case _:
            number = numeric(value)
    match number:
        case (significand, power):  # 7 as 7, whether it is an integer, a double or a decimal
            return f"{significand * 10**power}" if 0 <= power < _PLACES else f"{significand}E{power}"
        case str():
            return number
        case None:
            return f"{value.type}({value.payload.hex()})" if isinstance(value, Foreign) else show(value)


_PLACES: Final = 20
"""A 64-bit integer has no more digits."""


def stored(record: TaskRecord, task: str, document: Value) -> Document:
    """The record as a document to insert.

    Args:
        record: The record.
        task: The task's name.
        document: The id of its document.
    """
    check_type(record, TaskRecord, "a record")
    own: tuple[tuple[str, Value], ...] = (
        ("_id", record_id(task, document)),
        ("task", task),
        ("document", document),
        ("record", record.id),
    )
    return Document((*own, *_fields(record)))


def changes(before: TaskRecord, after: TaskRecord, history_max: int = 0) -> tuple[Update, ...]:
    """The updates of a write: the fields that differ, if the record is unchanged since the
    decision.

    Args:
        before: The record as read.
        after: The new record.
        history_max: How many ends of runs are kept, if one more has ended.

    Raises:
        Misuse: Nothing differs, or an argument has a wrong type.
    """
    check_type(before, TaskRecord, "a record")
    check_type(after, TaskRecord, "a record")
    check_int(history_max, "a number of ends of runs", 0)
    put: list[Update] = []
    removed: list[Update] = []
    for field, of, as_value in _CHANGING:
        was, is_now = of(before), of(after)
        if was is is_now or was == is_now:
            continue
        if field.name == _HISTORY.name and _has_ended(before.history, after.history, history_max):
            put.append(Push(_HISTORY, _written(after.history[-1]), history_max))
            continue
        old, new = None if was is None else as_value(was), None if is_now is None else as_value(is_now)
        if new is not None and new != old:  # of one type, and documents compare exactly
            put.append(Put(field, new))
        elif new is None and old is not None:  # a field without a value is not stored
            removed.append(Remove(field))
    if not put and not removed:
        raise Misuse("a write of a task record that changes nothing", todo="write only what a decision says")
    return (*put, *removed)


def _has_ended(before: tuple[RunEnd, ...], after: tuple[RunEnd, ...], history_max: int) -> bool:
    """Whether one more run has ended, with a history of at most this many."""
    return history_max > 0 and bool(after) and after == (*before, after[-1])[-history_max:]


def _fields(record: TaskRecord) -> tuple[tuple[str, Value], ...]:
    """The fields that a write may change; None and empty values are left out."""
    held = ((field.name, of(record), as_value) for field, of, as_value in _CHANGING)
    fields = ((name, None if value is None else as_value(value)) for name, value, as_value in held)
    return tuple((name, value) for name, value in fields if value is not None)


def loaded(doc: Document) -> TaskRecord:
    """The record in a document.

    Raises:
        Misuse: It holds none.
    """
    check_type(doc, Document, "a document")
    held = dict(doc.items)
    for field in _NEEDED:
        if field.name not in held:
            needed(doc, field)  # which says so
    digest, last_success, ends = doc.get(DIGEST), doc.get(_LAST_SUCCESS), doc.get(_HISTORY) or ()
    check_tuple(ends, Document, "the end of a run")
    return TaskRecord(
        id=needed(doc, RECORD),
        status=one_of(TaskStatus, needed(doc, STATUS)),
        snapshot=doc.get(SNAPSHOT) if digest is None else Digest(digest),
        last_success=None if last_success is None else _run(last_success),
        history=tuple([_run(run) for run in ends]),
        # A record checks their types.
        **cast("Mapping[str, Never]", {name: held.get(name) for name in _AS_THEY_ARE}),
    )


def guarded(key: str, on: Guard) -> Filter:
    """The record under this id, if unchanged since the decision."""
    check_type(on, Guard, "a guard")
    return AllOf((Eq(ID, key), Eq(RECORD, on.id), Eq(VERSION, on.version), Eq(OWNER, on.owner), Eq(_TOKEN, on.token)))


def set_aside(doc: Document, why: str, now: Instant) -> tuple[Filter, tuple[Update, ...]]:
    """The write that makes a failed record of a document that holds none.

    Args:
        doc: The document as read.
        why: What is wrong with it.
        now: The store's time.

    Returns:
        The guard (the document is unchanged) and the updates.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(doc, Document, "a document")
    check_name(why, "what is wrong")
    check_type(now, Instant, "the time")
    record = TaskRecord(
        id=f"set aside at {now.at}",
        version=1,
        status=TaskStatus.FAILED,
        snapshot=None,
        next_run_at=None,
        due_at=now,
        changed_at=now,
        waiting_since=None,
        created_at=now,
        last_error=f"the record could not be read: {why}"[:_TEXT_MAX],
    )
    still = [Eq(Field[object](field.name), doc.held(field)) for field in (ID, RECORD, VERSION, OWNER, _TOKEN)]
    new: dict[str, Value] = {RECORD.name: record.id, **dict(_fields(record)), _UNREADABLE.name: show(doc)[:_TEXT_MAX]}
    put = (Put(Field[object](name), value) for name, value in new.items())
    return AllOf(tuple(still)), (*put, *(Remove(field) for field in _OWN if field.name not in new and doc.has(field)))


def _written(run: RunEnd) -> Document:
    return Document(
        (
            ("token", run.token),
            ("ended", run.ended.value),
            ("at", run.at),
            ("duration", run.duration),
            *(() if run.error is None else (("error", run.error),)),
        )
    )


def _as_it_is(value: object) -> Value:
    return cast("Value", value)


def _status(value: object) -> Value:
    return cast("TaskStatus", value).value


def _whole(kept: object) -> Value:
    return kept if isinstance(kept, Document) else None


def _digest(kept: object) -> Value:
    return kept.sha256 if isinstance(kept, Digest) else None


def _run_end(run: object) -> Value:
    return _written(cast("RunEnd", run))


def _runs(runs: object) -> Value:
    return tuple(map(_written, cast("tuple[RunEnd, ...]", runs))) or None


_CHANGING: Final[tuple[tuple[Field[Value], Callable[[TaskRecord], object], Callable[[object], Value]], ...]] = (
    (Field("version"), attrgetter("version"), _as_it_is),
    (Field("status"), attrgetter("status"), _status),
    (Field("snapshot"), attrgetter("snapshot"), _whole),
    (Field("digest"), attrgetter("snapshot"), _digest),
    (Field("next_run_at"), attrgetter("next_run_at"), _as_it_is),
    (Field("due_at"), attrgetter("due_at"), _as_it_is),
    (Field("changed_at"), attrgetter("changed_at"), _as_it_is),
    (Field("waiting_since"), attrgetter("waiting_since"), _as_it_is),
    (Field("created_at"), attrgetter("created_at"), _as_it_is),
    (Field("retry_at"), attrgetter("retry_at"), _as_it_is),
    (Field("attempts"), attrgetter("attempts"), _as_it_is),
    (Field("token"), attrgetter("token"), _as_it_is),
    (Field("owner"), attrgetter("owner"), _as_it_is),
    (Field("claimed_at"), attrgetter("claimed_at"), _as_it_is),
    (Field("first_error_at"), attrgetter("first_error_at"), _as_it_is),
    (Field("last_error"), attrgetter("last_error"), _as_it_is),
    (Field("finalised_at"), attrgetter("finalised_at"), _as_it_is),
    (Field("last_success"), attrgetter("last_success"), _run_end),
    (Field("history"), attrgetter("history"), _runs),
)
"""The fields that a write may change: their part of the record, as a value; None is not stored."""

_NEEDED: Final[Fields] = (RECORD, VERSION, STATUS, DUE_AT, CHANGED_AT, _CREATED_AT, _ATTEMPTS, _TOKEN)
_AS_THEY_ARE: Final = tuple(field.name for field, _, as_value in _CHANGING if as_value is _as_it_is)
"""The fields with the names of the record's attributes."""


def _run(doc: Document) -> RunEnd:
    return RunEnd(
        needed(doc, _TOKEN),
        one_of(Ended, needed(doc, _ENDED)),
        needed(doc, _AT),
        needed(doc, _DURATION),
        doc.get(_ERROR),
    )
