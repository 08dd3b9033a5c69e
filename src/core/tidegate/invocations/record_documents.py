"""The record of an invocation, or of anything else that moves along a table of statuses, as a document.

    {_id, status, owner, version, changed_at, history: [{version, request, status}, ...]}     the last 16 versions

Whoever makes one (`registration`, `transition`) makes it here, so that whoever reads one (`transition`, `picker`,
`recoverer`) finds the same fields: also the first version has an instant at which it became so, read of the store just
before. What an invocation calls is no part of its record; `registration` keeps it under the same id.

Laws
    IV1  A record that is made here is read as it was made: by `viewed`, by `history`, and by when it changed.
"""

from __future__ import annotations

from types import NoneType
from typing import Final

from tidegate.invocations.status import Accepted, StatusRecord
from tidegate.model.documents import (
    ID,
    AllOf,
    Document,
    Eq,
    Field,
    Fields,
    Filter,
    Push,
    Put,
    PutServerTime,
    Update,
)
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.instants import Instant
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_type, check_types

__all__ = [
    "CHANGED_AT", "HISTORY", "OWNER", "RECORD", "REQUEST", "STATUS", "VERSION", "VIEW", "changes", "history", "new_record", "unchanged", "viewed",
]  # fmt: skip

STATUS: Final = Field[str]("status")
OWNER: Final = Field[str | None]("owner")
VERSION: Final = Field[int]("version")
CHANGED_AT: Final = Field[Instant]("changed_at")
HISTORY: Final = Field[tuple[Document, ...]]("history")
REQUEST: Final = Field[str]("request")
VIEW: Final[Fields] = (STATUS, OWNER, VERSION)
"""What `viewed` needs."""
RECORD: Final[Fields] = (*VIEW, HISTORY)
"""What `history` needs, too."""


def new_record(key: str, first: StatusRecord, request: str, now: Instant) -> Document:
    """The document of a record that is not there yet.

    Args:
        key: Its id.
        first: What it is, at its first version.
        request: The id of the request that makes it.
        now: The time, by the store's clock.

    Returns:
        The document, to be inserted.

    Raises:
        Misuse: An argument is empty or of the wrong type.
    """
    check_name(key, "a record")
    check_type(first, StatusRecord, "a record")
    check_type(now, Instant, "an instant")
    made = {"status": first.status, "owner": first.owner, "version": first.version, "changed_at": now}
    return Document.of({ID.name: key, **made, HISTORY.name: (_entry(first, request),)})


def changes(verdict: Accepted, request: str) -> tuple[Update, ...]:
    """What the write of a decision changes in a record that is there.

    Args:
        verdict: The decision.
        request: The id of the request that carries it out.

    Raises:
        Misuse: An argument is empty or of the wrong type.
    """
    check_type(verdict, Accepted, "a decision that was accepted")
    return (
        Put(STATUS, verdict.status),
        Put(OWNER, verdict.owner),
        Put(VERSION, verdict.version),
        _CHANGES_NOW,
        Push(HISTORY, _entry(verdict, request), last=HISTORY_MAX),
    )


_CHANGES_NOW: Final = PutServerTime(CHANGED_AT)


def unchanged(key: str, expected: StatusRecord) -> Filter:
    """The filter of a write that is for this record alone, as it was when that was decided.

    Args:
        key: Its id.
        expected: What it was.
    """
    check_name(key, "a record")
    check_type(expected, StatusRecord, "a record")
    return AllOf((Eq(ID, key), Eq(STATUS, expected.status), Eq(OWNER, expected.owner), Eq(VERSION, expected.version)))


def viewed(record: Document | None) -> StatusRecord | None:
    """What a decision needs to know of the record.

    Raises:
        Misuse: The document is not a record: a field is missing or of the wrong type.
    """
    check_type(record, (Document, NoneType), "a document or None")
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


def _entry(made: StatusRecord | Accepted, request: str) -> Document:
    """The newest version in the history."""
    check_name(request, "a request")
    return Document((("version", made.version), ("request", request), ("status", made.status)))
