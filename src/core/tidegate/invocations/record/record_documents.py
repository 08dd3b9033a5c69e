"""The document of an invocation, or of any record that moves along a table of statuses.

    {_id, status, owner, version, changed_at, history: [{version, request, status}, ...]}
                             history holds the last 16 versions
    at0 ... at15             the store's time of each of these: version v is in field v mod 16,
                             because MongoDB cannot put its time into an array
    due                      when a runner may take it: present exactly while its status is
                             available
    later                    the last due that was in the future when written; idle runners find the
                             next one by it

All creators (`registration`, `enqueueing`, `transition`) use this module, so all readers
(`transition`, `taking`, `recoverer`) find the same fields. The first version has a time too, read
from the store just before. The record is the message: an available one is queued by its `due`, and
the write that takes it removes `due`. So a crash leaves no invocation without a message, and no
message without an invocation.

An invocation also has these fields; each may be absent:

    task, arguments | payload, queue, priority, tenant, limited_by, rated_by, parent, root,
    deadline, trace          see `tidegate.invocations.record.jobs`
    created_at               the store's time of registration
    tries                    the number of runs begun
    deaths                   the number of runs taken from dead owners, counted by the taking writes
    result | result_payload  the result of a success, in the same write; or the id of its upload
    error                    {type, message, traceback} of the last failure, in the same write
    failing_since            the time of the first failure, in the same write
    notice                   the versions that triggers have not processed yet
    asked                    an operator's order to the runner, read at its next heartbeat: cancel
                             the invocation, or kill its run
    asked_of                 the version of that order: a kill concerns only that run
    held                     the due time before an operator held it
    waits                    since when it waits for a place; meanwhile `due` is its next poll

Laws
    IV1  A record made here reads back as made: by `viewed`, by `history`, by its change time, and
         by who made each version and when (`versions`).
    IV2  A record made or changed here has a `due` exactly while its status is available.
"""

from __future__ import annotations

from functools import lru_cache, partial
from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.record.status import Accepted, StatusRecord, StatusTable
from tidegate.model.documents import (
    ID,
    AllOf,
    Document,
    Eq,
    Field,
    Fields,
    Filter,
    In,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    Value,
)
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import check_key
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_type, check_types

KEY: Final = Field[Value](ID.name)
"""The id of a foreign record: of any type."""
STATUS: Final = Field[str]("status")
OWNER: Final = Field[str | None]("owner")
VERSION: Final = Field[int]("version")
CHANGED_AT: Final = Field[Instant]("changed_at")
HISTORY: Final = Field[tuple[Document, ...]]("history")
REQUEST: Final = Field[str]("request")

DUE: Final = Field[Instant]("due")
LATER: Final = Field[Instant]("later")
TASK: Final = Field[str]("task")
ARGUMENTS: Final = Field[Document]("arguments")
PAYLOAD: Final = Field[str]("payload")
QUEUE: Final = Field[str]("queue")
PRIORITY: Final = Field[int]("priority")
TENANT: Final = Field[str]("tenant")
LIMITED_BY: Final = Field[str]("limited_by")
RATED_BY: Final = Field[str]("rated_by")
PARENT: Final = Field[str]("parent")
ROOT: Final = Field[str]("root")
DEADLINE: Final = Field[Duration]("deadline")
TRACE: Final = Field[str]("trace")
CREATED_AT: Final = Field[Instant]("created_at")
TRIES: Final = Field[int]("tries")
DEATHS: Final = Field[int]("deaths")
RESULT: Final = Field[Value]("result")
RESULT_PAYLOAD: Final = Field[str]("result_payload")
ERROR: Final = Field[Document]("error")
FAILING_SINCE: Final = Field[Instant]("failing_since")
NOTICE: Final = Field[tuple[int, ...]]("notice")
ASKED: Final = Field[str]("asked")
ASKED_OF: Final = Field[int]("asked_of")
HELD: Final = Field[Instant]("held")
WAITS: Final = Field[Instant]("waits")

VIEW: Final[Fields] = (STATUS, OWNER, VERSION)
"""The fields that `viewed` needs."""
RECORD: Final[Fields] = (*VIEW, HISTORY)
"""The fields that `history` needs."""
TIMES: Final = tuple(Field[Instant](f"at{number}") for number in range(HISTORY_MAX))
"""The times of the last versions. Decisions read none of them."""
TIMED: Final[Fields] = (*RECORD, *TIMES)
"""The fields that `versions` needs."""
_NOTHING: Final = Document()


def new_record(
    key: Value,
    first: StatusRecord,
    request: str,
    now: Instant,
    *,
    due: Instant | None = None,
    more: Document = _NOTHING,
) -> Document:
    """The document of a new record.

    Args:
        key: Its id.
        first: Its first version.
        request: The id of the request that creates it.
        now: The store's time.
        due: When a runner may take it, if its status is available; otherwise None.
        more: Further fields.

    Returns:
        The document to insert.

    Raises:
        Misuse: An argument is empty or of the wrong type.
    """
    check_key(key, "a record")
    check_type(first, StatusRecord, "a record")
    check_type(now, Instant, "an instant")
    check_type(due, (Instant, NoneType), "an instant")
    check_type(more, Document, "a document")
    waits = () if due is None else ((DUE.name, due),)
    if due is not None and due - now > 0:
        waits = (*waits, (LATER.name, due))
    return Document((
        (ID.name, key), (STATUS.name, first.status), (OWNER.name, first.owner), (VERSION.name, first.version),
        (CHANGED_AT.name, now), (_time(first.version).name, now), (HISTORY.name, (_entry(first, request),)), *waits, *more.items,
    ))  # fmt: skip


def changes(table: StatusTable, verdict: Accepted, request: str, *also: Update) -> tuple[Update, ...]:
    """The updates that carry a decision out on an existing record.

    Args:
        table: The rules of the decision.
        verdict: The decision.
        request: The id of the request.
        also: Further changes of the same write: a result, or a due time (by default now).

    Raises:
        Misuse: An argument is empty or of the wrong type.
    """
    check_type(table, StatusTable, "a table of statuses")
    check_type(verdict, Accepted, "a decision that was accepted")
    waits: tuple[Update, ...] = (_IS_DUE_NOW if table[verdict.status].available else _IS_NOT_DUE,)
    for each in also:
        if each.field == DUE:
            waits = (Put(LATER, each.value),) if isinstance(each, Put) else ()
    return (
        _STATUS_BECOMES(verdict.status),
        _OWNER_BECOMES(verdict.owner),
        Put(VERSION, verdict.version),
        _CHANGES_NOW,
        _MADE_NOW[verdict.version % HISTORY_MAX],
        *waits,
        Push(HISTORY, _entry(verdict, request), last=HISTORY_MAX),
        *also,
    )


_remembered: Final = lru_cache(maxsize=1_024, typed=True)
"""Caches terms of statuses and owners: few values, four per write, slow to make."""
_STATUS_IS: Final = _remembered(partial(Eq, STATUS))
_OWNER_IS: Final = _remembered(partial(Eq, OWNER))
_STATUS_BECOMES: Final = _remembered(partial(Put, STATUS))
_OWNER_BECOMES: Final = _remembered(partial(Put, OWNER))
_CHANGES_NOW: Final = PutServerTime(CHANGED_AT)
_MADE_NOW: Final = tuple(PutServerTime(each) for each in TIMES)
_HAS_NO_VERSION: Final = In(Field[int | None](VERSION.name), (0, None))
"""None matches a missing field."""
_IS_DUE_NOW: Final = PutServerTime(DUE)
_IS_NOT_DUE: Final = Remove(DUE)


def unchanged(key: Value, expected: StatusRecord) -> Filter:
    """The filter that matches only this record, in the state decided on.

    Args:
        key: Its id.
        expected: The state.
    """
    check_key(key, "a record")
    check_type(expected, StatusRecord, "a record")
    is_version = Eq(VERSION, expected.version) if expected.version else _HAS_NO_VERSION
    return AllOf((Eq(KEY, key), _STATUS_IS(expected.status), _OWNER_IS(expected.owner), is_version))


def viewed(record: Document | None) -> StatusRecord | None:
    """The input of a decision.

    Raises:
        Misuse: The document is not a record: a field is missing or of the wrong type.
    """
    check_type(record, (Document, NoneType), "a document")
    if record is None:
        return None
    return StatusRecord(needed(record, STATUS), record.get(OWNER), needed(record, VERSION))


def history(record: Document) -> tuple[Change, ...]:
    """The remembered versions, newest last.

    Raises:
        Misuse: The document is not a record: its history holds other values than versions.
    """
    check_type(record, Document, "a document")
    entries = record.get(HISTORY) or ()
    check_types(entries, Document, "a version in the history of a record")
    return tuple(Change(needed(entry, VERSION), needed(entry, REQUEST), needed(entry, STATUS)) for entry in entries)


@final
@attrs.frozen
class VersionMade:
    """A version of a record, for display.

    Attributes:
        version: Its number.
        status: The status that it entered.
        by: The id of the requesting process or command; empty if unknown.
        at: The store's time; None if unknown.
    """

    version: int
    status: str
    by: str
    at: Instant | None


def versions(record: Document) -> tuple[VersionMade, ...]:
    """The remembered versions for display, newest last.

    Args:
        record: The record; its id and the fields `TIMED` are enough.

    Raises:
        Misuse: The document is not a record.
    """
    made, held = history(record), record.held(ID)
    key = held if isinstance(held, str) else ""
    times = tuple(record.get(_time(each.version)) for each in made)
    for at in times:
        check_type(at, (Instant, NoneType), "a time in the history of a record")
    return tuple(
        VersionMade(each.version, each.status, _asker(each, key), at) for each, at in zip(made, times, strict=True)
    )


def _asker(made: Change, key: str) -> str:
    """The requester of a version: the prefix of the request id.

    A process appends the version decided on, and the status if it ends a run, otherwise the
    invocation.
    An operator appends only the version, and a creator only the invocation.
    """
    version = made.version - 1
    for rest in (f".{version}.{made.status}", f".{key}.{version}", f".{key}", f".{version}"):
        if made.request_id.endswith(rest):
            return made.request_id.removesuffix(rest)
    return made.request_id.rpartition(f".{key}.")[0] if key else ""


def _time(version: int) -> Field[Instant]:
    return TIMES[version % HISTORY_MAX]


def _entry(made: StatusRecord | Accepted, request: str) -> Document:
    check_name(request, "a request")
    return Document((("version", made.version), ("request", request), ("status", made.status)))
