"""Which task records does somebody mean, in which order, and how are they shown?

    Query        which records: of which tasks and documents, in which status, due when, failed with what
    Order        in which order a list has them
    RecordPage   some of them, and where the next ones begin

Laws
    RQ1  Of two orders, each has every record once: no record is without a place, whatever stands in its dates.
    RQ2  Whoever asks page by page, each behind what the page before answers, is shown each record that keeps its place, once.

A query is a filter of the store (`Query.where`), but for the text of an error, which is looked for in what the store has
found (`Query.wants`).
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
    """Which records are meant: those to which all of it applies. Nothing is said of them by default, so all are meant.

    Attributes:
        tasks: Of one of these tasks; empty for any.
        statuses: In one of these; empty for any.
        documents: Of one of the documents of these ids, of any type that MongoDB takes for one; empty for any.
        error: The text of the last failure has this in it, whatever the case of its letters; None for any.
        has_error: There is a text of a last failure, or is none; None for both.
        due_from: Due at this time, or after it, or their lease ends then; what is finished never is. None for any time.
        due_before: Likewise before this time.
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
        """What the store is asked for, of the records of these tasks; all but the text of an error (`wants`)."""
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
        """Whether a record that the store has found is meant; None for what cannot be read."""
        check_type(record, (TaskRecord, NoneType), "a record")
        if self.error is None:
            return True
        return record is not None and self.error.casefold() in (record.last_error or "").casefold()


_FIRST: Final = Instant(-62_135_596_800 * SECOND)
"""The first day of the year 1, which clients and tools can read: before all that anybody means by a time."""
_IS_DUE: Final = Ge(NEXT_RUN_AT, _FIRST)
_IS_DATED: Final = Ge(CHANGED_AT, _FIRST)
Part: TypeAlias = tuple[Filter, Sort]


@final
class Order(Enum):
    """In which order records are listed, as one part after the other: what lacks the date comes last."""

    NEXT_RUN = (
        (_IS_DUE, (Ascending(NEXT_RUN_AT),)),
        (AllOf((Not(_IS_DUE), _IS_DATED)), (Descending(CHANGED_AT),)),
        (AllOf((Not(_IS_DUE), Not(_IS_DATED))), ()),
    )
    """What is due first, or whose lease ends first; then what is finished, the last changed one first."""
    CHANGED = ((_IS_DATED, (Descending(CHANGED_AT),)), (Not(_IS_DATED), ()))
    """What was last changed, or reset."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Which records come, and sorted by what."""
        parts: tuple[Part, ...] = self.value
        return parts


# --- what is answered ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class RecordRow:
    """A record, as it was read.

    Attributes:
        task: Its task.
        document: The id of its document.
        record: What it says; in a list without its snapshot, its history and its last success. None where it cannot be read.
        trouble: Why it cannot be read.
    """

    task: str
    document: Value = attrs.field(eq=exactly)
    record: TaskRecord | None
    trouble: str | None = None


@final
@attrs.frozen
class RecordPage:
    """Some of the records that are asked for, in order.

    Attributes:
        rows: The records; none, or fewer than asked for, where the text of an error is looked for.
        after: Where the next page begins; empty where there are no more.
    """

    rows: tuple[RecordRow, ...]
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)


def row(doc: Document) -> RecordRow:
    """What was found, as a row; whatever it holds."""
    check_type(doc, Document, "a document")
    task, document = str(doc.held(TASK)), doc.get(DOCUMENT)
    try:
        return RecordRow(task, document, loaded(doc))
    except Misuse as unreadable:
        return RecordRow(task, document, None, unreadable.what)


def begins_at(order: Order, after: object) -> tuple[int, tuple[Value, ...]]:
    """In which part of the order a page begins, and behind what.

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
