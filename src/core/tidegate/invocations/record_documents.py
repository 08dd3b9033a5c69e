"""The record of an invocation, or of anything else that moves along a table of statuses, as a document.

    {_id, status, owner, version, changed_at, history: [{version, request, status}, ...]}     the last 16 versions
    at0 ... at15             when each of these was made, by the store's clock: version v in the field v mod 16, for MongoDB puts
                             its time into no array
    due                      since or from when a runner may take it: there exactly while its status is available
    later                    the last due that lay ahead when it was written, by which whoever is idle finds the next one

Whoever makes one (`registration`, `enqueueing`, `transition`) makes it here, so that whoever reads one (`transition`,
`taking`, `recoverer`) finds the same fields: also the first version has an instant at which it became so, read of the
store just before. The record is the message: what is available waits by its `due`, and the write that takes it removes
that, so no crash leaves an invocation that nothing leads to, nor a message that leads nowhere.

An invocation has beside these, each absent where there is none:

    task, arguments | payload, queue, priority, tenant, limited_by, rated_by, parent, root, deadline, trace      `tidegate.invocations.jobs`
    created_at               when it was registered, by the store's time
    tries                    how many runs have begun
    deaths                   how many of these were taken from owners that were gone, by the writes that took them
    result | result_payload  of a success, in the same write; or the id of an upload that was made before
    error                    {type, message, traceback} of the last failure, in the same write
    failing_since            when it failed for the first time, in the same write
    notice                   the versions that triggers have not heard of yet
    asked                    what an operator asks of its runner, which sees it at its next beat: to cancel it, or to kill its run
    asked_of                 of which version that was asked: to kill is said of that run alone
    held                     when it was due before an operator had it wait until it is released
    waits                    since when it was due that waits for a place: its due is when it is looked at in any case then

Laws
    IV1  A record that is made here is read as it was made: by `viewed`, by `history`, by when it changed, and by who made each
         version and when (`versions`).
    IV2  Made or changed here, a record has a `due` exactly while its status is available.
"""

from __future__ import annotations

from functools import lru_cache, partial
from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.status import Accepted, StatusRecord, StatusTable
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
"""The id of a record that was there before: of any type."""
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
"""What `viewed` needs."""
RECORD: Final[Fields] = (*VIEW, HISTORY)
"""What `history` needs, too."""
TIMES: Final = tuple(Field[Instant](f"at{number}") for number in range(HISTORY_MAX))
"""When each of the last versions was made: whoever decides reads none of them."""
TIMED: Final[Fields] = (*RECORD, *TIMES)
"""What `versions` needs, too."""
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
    """The document of a record that is not there yet.

    Args:
        key: Its id.
        first: What it is, at its first version.
        request: The id of the request that makes it.
        now: The time, by the store's clock.
        due: From when on a runner may take it, where its status is available; None where it is not.
        more: What else it holds.

    Returns:
        The document, to be inserted.

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
    """What the write of a decision changes in a record that is there.

    Args:
        table: The rules that it was made by.
        verdict: The decision.
        request: The id of the request that carries it out.
        also: What else the same write changes: a result, or when what is available again is due, which is at once otherwise.

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
"""For terms of statuses and owners: those are few, each write has four of them, and to make one takes four times as long."""
_STATUS_IS: Final = _remembered(partial(Eq, STATUS))
_OWNER_IS: Final = _remembered(partial(Eq, OWNER))
_STATUS_BECOMES: Final = _remembered(partial(Put, STATUS))
_OWNER_BECOMES: Final = _remembered(partial(Put, OWNER))
_CHANGES_NOW: Final = PutServerTime(CHANGED_AT)
_MADE_NOW: Final = tuple(PutServerTime(each) for each in TIMES)
_HAS_NO_VERSION: Final = In(Field[int | None](VERSION.name), (0, None))
"""None matches a field that is missing."""
_IS_DUE_NOW: Final = PutServerTime(DUE)
_IS_NOT_DUE: Final = Remove(DUE)


def unchanged(key: Value, expected: StatusRecord) -> Filter:
    """The filter of a write that is for this record alone, as it was when that was decided.

    Args:
        key: Its id.
        expected: What it was.
    """
    check_key(key, "a record")
    check_type(expected, StatusRecord, "a record")
    is_version = Eq(VERSION, expected.version) if expected.version else _HAS_NO_VERSION
    return AllOf((Eq(KEY, key), _STATUS_IS(expected.status), _OWNER_IS(expected.owner), is_version))


def viewed(record: Document | None) -> StatusRecord | None:
    """What a decision needs to know of the record.

    Raises:
        Misuse: The document is not a record: a field is missing or of the wrong type.
    """
    check_type(record, (Document, NoneType), "a document")
    if record is None:
        return None
    return StatusRecord(needed(record, STATUS), record.get(OWNER), needed(record, VERSION))


def history(record: Document) -> tuple[Change, ...]:
    """What the record remembers of its versions, newest last.

    Raises:
        Misuse: The document is not a record: its history holds something else than versions.
    """
    check_type(record, Document, "a document")
    entries = record.get(HISTORY) or ()
    check_types(entries, Document, "a version in the history of a record")
    return tuple(Change(needed(entry, VERSION), needed(entry, REQUEST), needed(entry, STATUS)) for entry in entries)


@final
@attrs.frozen
class VersionMade:
    """A version of a record, for whoever shows it.

    Attributes:
        version: Its number.
        status: What the record became by it.
        by: Who has asked for it: the id of a process, or of a command; empty where nobody knows.
        at: When, by the store's clock; None where nobody knows.
    """

    version: int
    status: str
    by: str
    at: Instant | None


def versions(record: Document) -> tuple[VersionMade, ...]:
    """What is remembered of the versions of a record, newest last.

    Args:
        record: The record; these of its fields are enough: `TIMED`, and its id.

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
    """Who has asked for a version: what a request begins with, by the forms that it has.

    A process names the version that it was decided on, and the status where it ends a run, else the invocation; an operator the
    version alone; and whoever makes an invocation that alone.
    """
    version = made.version - 1
    for rest in (f".{version}.{made.status}", f".{key}.{version}", f".{key}", f".{version}"):
        if made.request_id.endswith(rest):
            return made.request_id.removesuffix(rest)
    return made.request_id.rpartition(f".{key}.")[0] if key else ""


def _time(version: int) -> Field[Instant]:
    return TIMES[version % HISTORY_MAX]


def _entry(made: StatusRecord | Accepted, request: str) -> Document:
    """The newest version in the history."""
    check_name(request, "a request")
    return Document((("version", made.version), ("request", request), ("status", made.status)))
