"""Which invocations does somebody mean, and how are they shown?

    InvocationQuery   which: by id, task, queue, status, tenant, callers, error, and when they were made
    InvocationRow     one of them, as it was read; in a list without arguments and result, and without history unless that is wanted
    InvocationPage    some of them, the newest first, and where the next ones begin

A query is a filter of the store, but for the text of an error, which is looked for in what the store has found
(`InvocationQuery.wants`).

Laws
    IQ1  What a query wants is what all of its parts say; nothing is said by default, so all are meant.
    IQ2  A record that cannot be read is a row that says why, and never keeps others from being shown.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.ending import RunError, error_of
from tidegate.invocations.invocation import INVOCATION
from tidegate.invocations.jobs import Job, job_of
from tidegate.invocations.record_documents import (
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
from tidegate.invocations.status import StatusRecord
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
"""What a list shows."""
BRIEF_TIMED: Final[Fields] = tuple(dict.fromkeys((*BRIEF, *TIMED)))
"""What a list shows with histories."""
NEWEST: Final[Sort] = (Descending(CREATED_AT),)
"""What was made last comes first."""


# --- what is asked ------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class InvocationQuery:
    """Which invocations are meant: those to which all of it applies.

    Attributes:
        ids: One of these; empty for any.
        tasks: Of one of these tasks; empty for any.
        queues: In one of these queues; empty for any.
        statuses: In one of these; empty for any.
        tenant: On behalf of this one; None for anybody.
        parent: Called by this invocation; None for any.
        root: Called, by whatever way, on behalf of this invocation; None for any.
        error: The type or the message of the last error has this in it, whatever the case of its letters; None for any.
        made_from: Made at this time, or after it; None for any time.
        made_before: Likewise before this time.
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
        """What the store is asked for: all but the text of an error (`wants`)."""
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
        """Whether one that the store has found is meant."""
        check_type(asked, InvocationRow, "an invocation")
        if self.error is None:
            return True
        text = "" if asked.error is None else f"{asked.error.type}: {asked.error.message}"
        return self.error.casefold() in text.casefold()


# --- what is answered ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class InvocationRow:
    """An invocation, as it was read.

    Attributes:
        key: Its id.
        record: Its status, its owner and its version; None where it cannot be read.
        job: What it is to do; None where it cannot be read; in a list without arguments.
        created_at: When it was made.
        changed_at: When it became what it is.
        due: From when on a runner may take it.
        is_held: An operator has it wait until it is resumed.
        tries: How many runs have begun.
        asked: What its runner was asked to do.
        error: Of the last run that has failed.
        versions: Its last versions, oldest first; none in a list without histories.
        document: All that is stored, for whoever shows it; None in a list.
        trouble: Why it cannot be read.
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
    """Some of the invocations that are asked for, the newest first.

    Attributes:
        rows: Those; fewer than asked for, or none, where the text of an error is looked for.
        after: Where the next page begins; empty where there are no more.
    """

    rows: tuple[InvocationRow, ...]
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)


def row(found: Document, *, is_whole: bool = False) -> InvocationRow:
    """What was found, as a row, whatever it holds.

    Args:
        found: The record, or the fields of it that a list shows (`BRIEF`).
        is_whole: It is the record.
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
