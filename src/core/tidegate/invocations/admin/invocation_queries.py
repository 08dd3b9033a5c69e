"""Queries for invocations, and the rows and pages that show them.

    InvocationQuery   a filter: id, task, queue, status, tenant, callers, error, creation time
    InvocationRow     one invocation as read; in a list without arguments, result and (by default)
                      history
    InvocationPage    a page, newest first, and where the next one begins

The store applies the query, except for the text of an error, which is matched afterwards
(`InvocationQuery.wants`).

Laws
    IQ1  A query matches if all of its parts do; the default matches all.
    IQ2  An unreadable record is a row with the reason, and never hides others.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.queue.completion import RunError, error_of
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job, job_of
from tidegate.invocations.record.record_documents import (
    ARGUMENTS,
    ASKED,
    CHANGED_AT,
    CREATED_AT,
    DEADLINE,
    DUE,
    ERROR,
    HELD,
    PARENT,
    PAYLOAD,
    PRIORITY,
    QUEUE,
    ROOT,
    STATUS,
    TASK,
    TENANT,
    TIMED,
    TRIES,
    VIEW,
    VersionMade,
    versions,
    viewed,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import (
    ID,
    AllOf,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Ge,
    In,
    Lt,
    Sort,
    Value,
    exactly,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.values import check_name, check_tuple, check_type, check_types

_KEY: Final = Field[Value](ID.name)
BRIEF: Final[Fields] = (
    *VIEW, TASK, QUEUE, PRIORITY, TENANT, PARENT, ROOT, DEADLINE, PAYLOAD, CREATED_AT, CHANGED_AT, DUE, HELD, TRIES, ASKED, ERROR,
)  # fmt: skip
"""The fields of a list."""
BRIEF_TIMED: Final[Fields] = tuple(dict.fromkeys((*BRIEF, *TIMED)))
"""The fields of a list with histories."""
NEWEST: Final[Sort] = (Descending(CREATED_AT),)
"""Newest first."""


# --- what is asked ------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class InvocationQuery:
    """A filter; all parts must match.

    Attributes:
        ids: One of these; empty for any.
        tasks: Of one of these tasks; empty for any.
        queues: In one of these queues; empty for any.
        statuses: In one of these; empty for any.
        tenant: Of this tenant; None for any.
        parent: Called by this invocation; None for any.
        root: Called directly or indirectly for this invocation; None for any.
        error: Text in the type or message of the last error, in any case; None for any.
        made_from: Created at or after this time; None for any.
        made_before: Created before this time; None for any.
    """

    ids: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    statuses: frozenset[str] = frozenset()
    tenant: str | None = None
    parent: str | None = None
    root: str | None = None
    error: str | None = None
    made_from: Instant | None = None
    made_before: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_tuple(self.ids, str, "the id of an invocation")
        check_tuple(self.tasks, str, "the name of a task")
        check_tuple(self.queues, str, "the name of a queue")
        check_type(self.statuses, frozenset, "a set of statuses that never changes", 'write frozenset({"failed"})')
        check_types(self.statuses, str, "a status")
        for status in self.statuses:
            _ = INVOCATION[status]
        for name in (self.tenant, self.parent, self.root, self.error):
            if name is not None:
                check_name(name, "what invocations are looked for by")
        for at in (self.made_from, self.made_before):
            check_type(at, (Instant, NoneType), "a time")
            _ = None if at is None else Ge(CREATED_AT, at)  # whether MongoDB keeps it

    @property
    def where(self) -> Filter:
        """The filter for the store: all but the text of an error (`wants`)."""
        parts: list[Filter] = []
        parts += [In(ID, self.ids)] if self.ids else []
        parts += [In(TASK, self.tasks)] if self.tasks else []
        parts += [In(QUEUE, self.queues)] if self.queues else []
        parts += [In(STATUS, tuple(sorted(self.statuses)))] if self.statuses else []
        parts += [
            Eq(field, name) for field, name in ((TENANT, self.tenant), (PARENT, self.parent), (ROOT, self.root)) if name
        ]
        parts += [Exists(ERROR)] if self.error is not None else []
        parts += [] if self.made_from is None else [Ge(CREATED_AT, self.made_from)]
        parts += [] if self.made_before is None else [Lt(CREATED_AT, self.made_before)]
        return AllOf(tuple(parts)) if parts else Exists(ID)

    def wants(self, asked: InvocationRow) -> bool:
        """Whether one that the store found matches."""
        check_type(asked, InvocationRow, "an invocation")
        if self.error is None:
            return True
        text = "" if asked.error is None else f"{asked.error.type}: {asked.error.message}"
        return self.error.casefold() in text.casefold()


# --- what is answered ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class InvocationRow:
    """An invocation as read.

    Attributes:
        key: Its id.
        record: Its status, owner and version; None if unreadable.
        job: Its work, in a list without arguments; None if unreadable.
        created_at: When it was created.
        changed_at: When it entered its status.
        due: When a runner may take it.
        is_held: An operator holds it until its release.
        tries: The number of runs begun.
        asked: The order to its runner.
        error: The error of the last failed run.
        versions: Its last versions, oldest first; empty in a list without histories.
        document: The whole document; None in a list.
        trouble: Why it is unreadable.
    """

    key: Value = attrs.field(eq=exactly)
    record: StatusRecord | None = None
    job: Job | None = None
    created_at: Instant | None = None
    changed_at: Instant | None = None
    due: Instant | None = None
    is_held: bool = False
    tries: int = 0
    asked: str | None = None
    error: RunError | None = None
    versions: tuple[VersionMade, ...] = ()
    document: Document | None = attrs.field(default=None, repr=False)
    trouble: str | None = None


@final
@attrs.frozen
class InvocationPage:
    """A page of matches, newest first.

    Attributes:
        rows: The rows; fewer than the limit, or none, if the query matches the text of an error.
        after: Where the next page begins; empty after the last.
    """

    rows: tuple[InvocationRow, ...]
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)


def row(found: Document, *, is_whole: bool = False) -> InvocationRow:
    """A document as a row, whatever it holds.

    Args:
        found: The record, or its fields `BRIEF`.
        is_whole: It is the whole record.
    """
    check_type(found, Document, "a document")
    key: Value = found.get(_KEY)
    try:
        error = found.get(ERROR)
        return InvocationRow(
            key=key,
            record=viewed(found),
            job=job_of(found if is_whole else found.put(ARGUMENTS, Document())),
            created_at=_instant(found, CREATED_AT),
            changed_at=_instant(found, CHANGED_AT),
            due=None if found.has(HELD) else _instant(found, DUE),
            is_held=found.has(HELD),
            tries=found.get(TRIES) or 0,
            asked=found.get(ASKED),
            error=None if error is None else error_of(error),
            versions=versions(found),
            document=found if is_whole else None,
        )
    except Misuse as unreadable:
        return InvocationRow(key=key, trouble=unreadable.what)


def _instant(found: Document, field: Field[Instant]) -> Instant | None:
    at = found.get(field)
    check_type(at, (Instant, NoneType), f"a time, as {field} is")
    return at
