"""A task record (`tidegate.reactive.record.task_records`) as a document, and back: what the programs read and write.

    {_id: "<task>/<document>", task, document, record, version, status, snapshot | digest, next_run_at, ..., history: [...]}

The id is made of the task and the id of the document, whatever its type (`record_id`), so that there is one record of both,
whoever inserts it: `bill/x` of the string "x", `bill#7` of the number, `bill#objectId(...)`. In the name of the task `%`,
`/` and `#` are escaped. `record` is the id of this record's life, which no other one has. A field without a value is left out. A write puts the fields that differ from
the record that it was decided on, and is guarded by it (`guarded`).

What holds no record is set aside (`set_aside`): one that has failed, and that knows of no snapshot, takes its place, so that
it is told where failures are, is reset like any other, and runs at the next look. What was there is kept as text.

These are not the documents of mongodash, which names and forms the same things differently (`docs/lineage.md` has both). Keep
the two in different collections, though both would name theirs `<source>_tasks`: neither reads the records of the other, and
where mongodash has made its unique index on `sourceDocId` and `task`, it refuses the second record of each task here.

Laws
    TK1  What was stored is loaded the same, and so is what a write has made of it.
    TK2  A guard finds the record that it was made of, and none that differs in id, version, owner or token.
    TK3  Whatever a document holds, it is a record, or `set_aside` makes one of it that has failed.
    TK4  Two tasks, or two documents, have two ids; ids of documents that MongoDB takes for equal (7, 7.0) make one.
    TK5  What `RESET` makes of a record that is finished is what `tasks.reset` decides for it, at the store's time.
    TK6  Of a decision on a record that was read without its history and its last success, the same is written as of one on
         the whole record: the end of a run is appended, and how many are kept is the server's to see to.
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
"""What makes a record that is finished run again, for a write of many."""

_UNREADABLE: Final = Field[str]("unreadable")
_TEXT_MAX: Final = 10_000
"""How many characters are kept of what could not be read."""

_OWN: Final[Fields] = (
    SNAPSHOT, DIGEST, NEXT_RUN_AT, _WAITING_SINCE, _RETRY_AT, OWNER, _CLAIMED_AT, _FIRST_ERROR_AT, _FINALISED_AT, _LAST_SUCCESS,
    _HISTORY,
)  # fmt: skip
"""The fields that a record may be without."""

BRIEF: Final[Fields] = (
    TASK, DOCUMENT, RECORD, VERSION, STATUS, NEXT_RUN_AT, DUE_AT, CHANGED_AT, _WAITING_SINCE, _CREATED_AT, _RETRY_AT, _ATTEMPTS,
    _TOKEN, OWNER, _CLAIMED_AT, _FIRST_ERROR_AT, LAST_ERROR, _FINALISED_AT,
)  # fmt: skip
"""What a record is loaded from without its snapshot, its history and its last success; to reset it needs no more."""

DECIDED_ON: Final[Fields] = (*BRIEF, SNAPSHOT, DIGEST)
"""The same with its snapshot; no decision needs more."""

_ENDED: Final = Field[str]("ended")
_AT: Final = Field[Instant]("at")
_DURATION: Final = Field[int]("duration")
_ERROR: Final = Field[str]("error")


def record_id(task: str, document: Value) -> str:
    """The id of the document that holds the record of a task and a document.

    Args:
        task: The task's name.
        document: The id of the document that it follows.

    Raises:
        Misuse: The task has no name, or MongoDB takes no such id: an array, or a regular expression.
    """
    check_name(task, "a task")
    if type(document) is int and document in INT64:
        return f"{_escaped(task)}#{document}"  # as `_text` has it
    checked(document, "the id of a document")
    if isinstance(document, tuple) or is_regex(document):
        raise Misuse(
            f"{shown(document)} is no id of a document", why="MongoDB takes no array and no regular expression"
        )
    # Strings are kept apart from the texts of other values.
    return f"{_escaped(task)}/{document}" if isinstance(document, str) else f"{_escaped(task)}#{_text(document)}"


def _escaped(task: str) -> str:
    """The name of a task without what separates it."""
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
"""An integer of 64 bits has no more."""


def stored(record: TaskRecord, task: str, document: Value) -> Document:
    """The record as a document, to be inserted.

    Args:
        record: The record.
        task: The task's name.
        document: The id of the document that it follows.
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
    """What a write changes, where the record is still what it was decided on: nothing but the fields that differ.

    Args:
        before: The record as it was read.
        after: What it is to be.
        history_max: How many ends of runs are kept, where one more may have ended.

    Raises:
        Misuse: None does, or an argument is of another type.
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
    """Whether one more run has ended, of whose ends so many are kept."""
    return history_max > 0 and bool(after) and after == (*before, after[-1])[-history_max:]


def _fields(record: TaskRecord) -> tuple[tuple[str, Value], ...]:
    """The fields that a write may change; what is None, or empty, is left out."""
    held = ((field.name, of(record), as_value) for field, of, as_value in _CHANGING)
    fields = ((name, None if value is None else as_value(value)) for name, value, as_value in held)
    return tuple((name, value) for name, value in fields if value is not None)


def loaded(doc: Document) -> TaskRecord:
    """The record that a document holds.

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
        # Of which type each is, a record checks.
        **cast("Mapping[str, Never]", {name: held.get(name) for name in _AS_THEY_ARE}),
    )


def guarded(key: str, on: Guard) -> Filter:
    """The record under this id, if it still is what was decided on."""
    check_type(on, Guard, "a guard")
    return AllOf((Eq(ID, key), Eq(RECORD, on.id), Eq(VERSION, on.version), Eq(OWNER, on.owner), Eq(_TOKEN, on.token)))


def set_aside(doc: Document, why: str, now: Instant) -> tuple[Filter, tuple[Update, ...]]:
    """What makes a record that has failed of a document that holds none.

    Args:
        doc: The document as it was read.
        why: What is wrong with it.
        now: The time, by the store's clock.

    Returns:
        The document, if it is still what was read, and the updates of it.

    Raises:
        Misuse: An argument is of another type.
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
"""The fields that a write may change: what of a record stands there, and as which value; as none where it is not stored."""

_NEEDED: Final[Fields] = (RECORD, VERSION, STATUS, DUE_AT, CHANGED_AT, _CREATED_AT, _ATTEMPTS, _TOKEN)
_AS_THEY_ARE: Final = tuple(field.name for field, _, as_value in _CHANGING if as_value is _as_it_is)
"""The fields that hold what the record's attributes of their names do."""


def _run(doc: Document) -> RunEnd:
    return RunEnd(
        needed(doc, _TOKEN),
        one_of(Ended, needed(doc, _ENDED)),
        needed(doc, _AT),
        needed(doc, _DURATION),
        doc.get(_ERROR),
    )
