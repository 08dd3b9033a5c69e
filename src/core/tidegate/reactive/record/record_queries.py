"""Queries over task records, and how they are listed.

    Query        selects records: tasks, documents, statuses, due times, errors
    Order        the order of a list
    RecordPage   some of them, and the start of the next page

Laws
    RQ1  Each order has every record exactly once, whatever its dates are.
    RQ2  Pages, each requested from the end of the one before, show each record that keeps its
         place once.

A query is a filter of the store (`Query.where`), except for the text of an error, which is matched
in the found records (`Query.wants`).
"""

from __future__ import annotations

from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Descending,
    Document,
    Exists,
    Filter,
    Ge,
    In,
    Lt,
    Not,
    Sort,
    Value,
    exactly,
    fields_of,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.values import check_name, check_tuple, check_type, check_types
from tidegate.reactive.record.task_documents import (
    CHANGED_AT,
    DOCUMENT,
    LAST_ERROR,
    NEXT_RUN_AT,
    STATUS,
    TASK,
    loaded,
    record_id,
)
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus

# --- what is asked ------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Query:
    """Selects records that meet all conditions; by default all.

    Attributes:
        tasks: One of these tasks; empty for any.
        statuses: One of these; empty for any.
        documents: One of these document ids, of any type MongoDB allows; empty for any.
        error: The text of the last failure contains this, ignoring case; None for any.
        has_error: Whether there is a text of a last failure; None for both.
        due_from: Due, or its lease ends, at or after this time; finished records never are. None
            for
            any time.
        due_before: The same before this time.
    """

    tasks: tuple[str, ...] = ()
    statuses: frozenset[TaskStatus] = frozenset()
    documents: tuple[Value, ...] = attrs.field(default=(), eq=exactly)
    error: str | None = None
    has_error: bool | None = None
    due_from: Instant | None = None
    due_before: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_tuple(self.tasks, str, "the name of a task")
        check_type(
            self.statuses, frozenset, "a set of statuses that never changes", "write frozenset({TaskStatus.FAILED})"
        )
        check_types(self.statuses, TaskStatus, "the status of a record")
        check_type(self.documents, tuple, "a tuple of ids")
        for each in self.documents:
            _ = record_id("any", each)
        if self.error is not None:
            check_name(self.error, "what is in the text of an error")
        check_type(self.has_error, (bool, NoneType), "whether there is an error")
        if self.error is not None and self.has_error is False:
            raise Misuse("a text of an error where there is none", todo="leave has_error out")
        for at in (self.due_from, self.due_before):
            check_type(at, (Instant, NoneType), "a time")
            _ = None if at is None else Ge(NEXT_RUN_AT, at)  # whether MongoDB keeps it

    def where(self, names: tuple[str, ...]) -> Filter:
        """The filter of the store, for the records of these tasks; without the text of an error
        (`wants`).
        """
        parts: list[Filter] = [In(TASK, names)]
        if self.documents:
            parts.append(In(ID, tuple(record_id(name, each) for name in names for each in self.documents)))
        if self.statuses:
            parts.append(In(STATUS, tuple(sorted(status.value for status in self.statuses))))
        if self.has_error is not None or self.error is not None:
            parts.append(Exists(LAST_ERROR) if self.has_error is not False else Not(Exists(LAST_ERROR)))
        parts += [] if self.due_from is None else [Ge(NEXT_RUN_AT, self.due_from)]
        parts += [] if self.due_before is None else [Lt(NEXT_RUN_AT, self.due_before)]
        return AllOf(tuple(parts))

    def wants(self, record: TaskRecord | None) -> bool:
        """Whether a found record is selected; None for an unreadable one."""
        check_type(record, (TaskRecord, NoneType), "a record")
        if self.error is None:
            return True
        return record is not None and self.error.casefold() in (record.last_error or "").casefold()


_FIRST: Final = Instant(-62_135_596_800 * SECOND)
"""The first day of the year 1, which clients and tools can read: before any meaningful time."""
_IS_DUE: Final = Ge(NEXT_RUN_AT, _FIRST)
_IS_DATED: Final = Ge(CHANGED_AT, _FIRST)
Part: TypeAlias = tuple[Filter, Sort]


@final
class Order(Enum):
    """An order of records, as parts that follow each other: records without the date come last."""

    NEXT_RUN = (
        (_IS_DUE, (Ascending(NEXT_RUN_AT),)),
        (AllOf((Not(_IS_DUE), _IS_DATED)), (Descending(CHANGED_AT),)),
        (AllOf((Not(_IS_DUE), Not(_IS_DATED))), ()),
    )
    """By due time or end of lease; then finished ones, last changed first."""
    CHANGED = ((_IS_DATED, (Descending(CHANGED_AT),)), (Not(_IS_DATED), ()))
    """Last changed or reset first."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The records of a part, and their sort."""
        parts: tuple[Part, ...] = self.value
        return parts


# --- what is answered ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class RecordRow:
    """A record as read.

    Attributes:
        task: Its task.
        document: The id of its document.
        record: The record; in a list without snapshot, history and last success. None if
            unreadable.
        trouble: Why it cannot be read.
    """

    task: str
    document: Value = attrs.field(eq=exactly)
    record: TaskRecord | None
    trouble: str | None = None


@final
@attrs.frozen
class RecordPage:
    """A page of records in order.

    Attributes:
        rows: The records; may be fewer than requested, or none, when an error text is matched.
        after: The start of the next page; empty if there is none.
    """

    rows: tuple[RecordRow, ...]
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)


def row(doc: Document) -> RecordRow:
    """A found record as a row, whatever it holds."""
    check_type(doc, Document, "a document")
    task, document = str(doc.held(TASK)), doc.get(DOCUMENT)
    try:
        return RecordRow(task, document, loaded(doc))
    except Misuse as unreadable:
        return RecordRow(task, document, None, unreadable.what)


def begins_at(order: Order, after: object) -> tuple[int, tuple[Value, ...]]:
    """The part of the order in which a page begins, and the key before it.

    Raises:
        Misuse: No page begins there.
    """
    check_type(order, Order, "an order of records")
    if after == ():
        return 0, ()
    if isinstance(after, tuple) and type(after[0]) is int and 0 <= after[0] < len(order.parts):
        number, begin = after[0], after[1:]
        if len(begin) == len(fields_of(order.parts[number][1])):
            return number, begin
    raise Misuse("no page begins there", todo="give what the page before answers, in the same order (RecordPage.after)")
