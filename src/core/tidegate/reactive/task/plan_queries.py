"""Find the documents that a planner must look at: queries that return only ids.

A look reads a record and its document, and most looks write nothing. So a pass over a whole
collection first queries the store, page by page, for the documents whose look might write:

    FindChanged    documents that are new to the task, differ from their record, or left its filter
    FindOrphaned   documents that are gone or left the filter, but still have a record

Each is one query of the store at one time. It returns a `PlanPage`: ids, and the start of the next
page. The store computes and compares snapshots (`tidegate.reactive.record.snapshot.differs`). The planner
then reads these documents again (`ReactiveTask.plan_pass`, `clean_up`).

Laws
    PQ1  A document that is not returned is one that a look would leave as it is: no change is lost
         by not looking.
    PQ2  A look at a returned document would write, except where the store cannot tell: the record
         keeps a digest or is there twice, or a value cannot be computed.
    PQ3  The pages cover each document once, in the order of ids of all types.
    PQ4  Several tasks (`together`) must look at a document that one of them must look at, as far as
         all of them were queried.
    PQ5  The rest of a page that is cut (`first_of`) is queried again, and nothing before it.

A processed record is always returned: its run may have read the document earlier, and may be about
to write that.

Known limits
    - A Computed without an expression cannot be queried, which is a Misuse; look at all documents.
    - A record whose id does not match its task and document counts here by its fields.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.model.documents import (
    FILTERS,
    Document,
    Filter,
    OlderThan,
    Value,
    checked,
    equal,
    exactly,
    in_order,
    matches,
    parts_of,
    show,
)
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import check_collection
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.record.snapshot import NotComputed, Projection, expression, snapshot
from tidegate.reactive.record.task_documents import DIGEST, DOCUMENT, SNAPSHOT, STATUS, TASK
from tidegate.reactive.record.task_records import PROCESSED

LOOKED_AT_MAX: Final = 10_000
"""The most documents that one page covers."""


@final
@attrs.frozen(cache_hash=True)
class PlanPage:
    """A page of ids.

    Attributes:
        ids: The ids of the documents to look at, in order.
        after: The last id that the page covers; empty if nothing is left.
    """

    ids: tuple[Value, ...] = attrs.field(default=(), eq=exactly)
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)

    def __attrs_post_init__(self) -> None:
        check_type(self.ids, tuple, "a tuple of ids")
        checked(self.ids, "the ids of documents")
        _check_after(self.after)

    def __str__(self) -> str:
        up_to = f", up to {show(self.after[0])}" if self.after else ""
        return f"{len(self.ids)} to look at{up_to}"


def together(pages: tuple[PlanPage, ...]) -> PlanPage:
    """One page for several tasks, from pages that begin after the same id: as far as the shortest,
    with the ids of all.

    A page is shorter or empty if documents were added since; change events report those.
    """
    check_tuple(pages, PlanPage, "a page")
    ends = [page.after for page in pages if page.after]
    if not ends:
        return PlanPage()
    end = min(ends, key=lambda after: in_order(after[0]))
    ids = {in_order(key): key for page in pages for key in page.ids}
    return PlanPage(tuple(ids[at] for at in sorted(ids) if at <= in_order(end[0])), end)


def first_of(page: PlanPage, count: int) -> PlanPage:
    """At most `most` ids of a page; `after` is the last of them if there are more."""
    check_type(page, PlanPage, "a page")
    check_int(count, "a number of ids", 1)
    ids = page.ids[:count]
    return page if len(ids) == len(page.ids) else PlanPage(ids, ids[-1:])


@final
@attrs.frozen(cache_hash=True)
class FindChanged(Effect[PlanPage]):
    """Ask for those of the next documents that a planner must look at.

    Invariants: 1 <= limit <= LOOKED_AT_MAX; each computed value has an expression.

    Attributes:
        collection: The collection of the documents.
        records: The collection of their records.
        task: The name of the task.
        watched: The watched values of a document.
        where: Filter of the task's documents; None for all.
        limit: How many documents the page covers at most.
        after: The id before the page; empty for the start.
    """

    collection: str
    records: str
    task: str
    watched: Projection
    where: Filter | None
    limit: int
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)

    def __attrs_post_init__(self) -> None:
        check_type(self.watched, Projection, "what is watched")
        _ = expression(self.watched)
        _check_query(self)

    def __str__(self) -> str:
        return f"ask what of {self.limit} of {self.collection}{_shown(self.after)} {self.records} of {self.task} do not know"


@final
@attrs.frozen(cache_hash=True)
class FindOrphaned(Effect[PlanPage]):
    """Ask for the documents of the next records that are gone.

    Invariant: 1 <= limit <= LOOKED_AT_MAX.

    Attributes:
        collection: The collection of the records.
        source: The collection of their documents.
        task: The name of the task.
        where: Documents that do not match count as gone; None if all match.
        limit: How many records the page covers at most.
        after: The id of the record before the page; empty for the start.
    """

    collection: str
    source: str
    task: str
    where: Filter | None
    limit: int
    after: tuple[Value, ...] = attrs.field(default=(), eq=exactly)

    def __attrs_post_init__(self) -> None:
        _check_query(self)

    def __str__(self) -> str:
        return f"ask what of {self.limit} of {self.collection}{_shown(self.after)} is gone from {self.source}"


def _check_query(query: FindChanged | FindOrphaned) -> None:
    check_collection(query.collection)
    check_collection(query.records if isinstance(query, FindChanged) else query.source)
    check_name(query.task, "a task")
    check_type(query.where, (*FILTERS, NoneType), "a filter")
    if query.where is not None and any(isinstance(part, OlderThan) for part in parts_of(query.where)):
        raise Misuse(
            "a filter of a reactive task asks how old something is", why="no change reports when that becomes true"
        )
    check_int(query.limit, "a number of documents", 1, LOOKED_AT_MAX)
    _check_after(query.after)


def _check_after(after: object) -> None:
    check_type(after, tuple, "a tuple of one id or none")
    checked(after, "the id to begin after")
    if isinstance(after, tuple) and len(after) > 1:
        raise Misuse(f"{len(after)} ids to begin after", todo="give the one that the page before says")


def _shown(after: tuple[Value, ...]) -> str:
    return "".join(f" after {show(each)}" for each in after)


def of_document(query: FindChanged | FindOrphaned, key: Value, records: tuple[Document, ...]) -> tuple[Document, ...]:
    """The records of this task and of the document with this id, by MongoDB's equality."""
    check_type(query, (FindChanged, FindOrphaned), "a question of a planner")
    check_tuple(records, Document, "a record")
    return tuple(each for each in records if each.held(TASK) == query.task and equal(each.held(DOCUMENT), key))


def must_look(query: FindChanged, doc: Document, records: tuple[Document, ...]) -> bool:
    """Whether a planner must look at a document.

    Args:
        query: The query.
        doc: The document.
        records: Its records of the task; more than one only if other code wrote them.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(query, FindChanged, "a question of a planner")
    check_type(doc, Document, "a document")
    check_tuple(records, Document, "a record")
    is_wanted = _matches(query.where, doc)
    if len(records) != 1:
        return is_wanted or bool(records)
    (record,) = records
    if record.has(DIGEST) or record.held(STATUS) in _PROCESSED:
        return True
    if not is_wanted or not record.has(SNAPSHOT):
        return is_wanted or record.has(SNAPSHOT)
    seen = snapshot(doc, query.watched)
    return isinstance(seen, NotComputed) or not equal(record.held(SNAPSHOT), seen)


_PROCESSED: Final = frozenset(status.value for status in PROCESSED)


def is_orphaned(query: FindOrphaned, doc: Document | None) -> bool:
    """Whether the document of a record is gone, or no longer matches."""
    check_type(query, FindOrphaned, "a question of a planner")
    check_type(doc, (Document, NoneType), "a document")
    return doc is None or not _matches(query.where, doc)


def _matches(where: Filter | None, doc: Document) -> bool:
    return where is None or matches(where, doc, _no_clock)


def _no_clock() -> Instant:
    raise AssertionError("no filter here asks for an age")
