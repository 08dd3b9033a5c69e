"""The reads and writes of a task: its records, and the documents that it follows.

The writes of several records are one request; each is guarded by what its decision has read. The
reply is a total: if all matched, all were written. A transaction may hold the record of a run
(`Completer.complete`), so such a write has a time limit and a request of its own. If a request of
several runs times out, each is sent alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import (
    ID,
    AllOf,
    AnyOf,
    Document,
    Eq,
    Field,
    Fields,
    Filter,
    HasOther,
    In,
    Not,
    Put,
    Sort,
    Value,
    exactly,
    matches,
    parts_of,
)
from tidegate.model.documents.bson import ZERO_TIMESTAMP
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Unreadable, is_too_late
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import (
    StoreTime,
    UpdateOne,
    bulk_update,
    delete_many,
    delete_one,
    find_all,
    find_one,
    insert_many,
    update_one,
)
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.reactive.record.orphans import RemoveRecord
from tidegate.reactive.record.snapshot import NotComputed, Projection, snapshot
from tidegate.reactive.record.task_documents import (
    DECIDED_ON,
    DOCUMENT,
    TASK,
    changes,
    guarded,
    loaded,
    record_id,
    set_aside,
    stored,
)
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.reactive.record.tasks import Gone, InsertRecord, Matching, NotMatching, Seen, UpdateRecord

BEHIND: Final = 20 * MILLISECOND
"""How far the reckoned time of decisions may be behind, so that few ask for the time.

A lease counts from then, so it may end that much earlier: its holder gives it up before
(`Queue.lease`).
"""
_BULK_LIMITS: Final = 4
"""Factor of the time limit for several writes in one request."""
_HELD_MAX: Final = 8
"""After so many held records the rest of a request is skipped: each took the whole time limit."""
_REMOVED_MAX: Final = 200
_KEY: Final = Field[Value](ID.name)

FoundDocument: TypeAlias = Document | NotComputed | None
"""A document as read, or why it cannot be read."""
RecordUpdate: TypeAlias = tuple[Value, TaskRecord, UpdateRecord]
RecordWrite: TypeAlias = tuple[Value, TaskRecord | None, InsertRecord | UpdateRecord | RemoveRecord]


@final
@unique
class Sent(Enum):
    """The result of a write."""

    DONE = "it is written"
    OPEN = "it is not known to be written"
    HELD = "a transaction holds the record, and it cannot be written now"


async def send_updates(updates: tuple[UpdateOne, ...]) -> int:
    """Send updates, all with a time limit or all without; return how many matched."""
    if len(updates) == 1:
        return await updates[0]
    within = updates[0].within
    return await bulk_update(*updates, within=None if within is None else _BULK_LIMITS * within)


@final
@attrs.frozen
class RecordStore:
    """The records of a task, found by the ids of task and document.

    Attributes:
        task: Its name.
        collection: Their collection.
        history_max: How many of its last changes a record keeps.
        within: The time limit of a write of a record that a transaction may hold.
    """

    task: str
    collection: str
    history_max: int
    within: Duration

    async def now(self) -> Instant:
        """The time of decisions."""
        return await StoreTime(BEHIND)

    def by_id(self, key: Value) -> Filter:
        """The filter that finds the record of a document."""
        return Eq(ID, record_id(self.task, key))

    def unchanged(self, key: Value, write: UpdateRecord | RemoveRecord) -> Filter:
        """The guard of a write: the record is unchanged since the decision."""
        return guarded(record_id(self.task, key), write.on)

    async def find(self, keys: tuple[Value, ...], fields: Fields | None = DECIDED_ON) -> tuple[TaskRecord | None, ...]:
        """The records of these documents, in order, without histories. An unreadable one is stored
        as failed.
        """
        where = _any_of(tuple(self.by_id(key) for key in keys))
        found = _in_order(self.task, keys, await found_of(self.collection, where, len(keys), fields=fields), _record_id)
        read = tuple(None if each is None else self.read(each) for each in found)
        if fields is not None and any(isinstance(record, str) for record in read):
            return await self.find(keys, None)  # what is kept of one is all that it held
        for key, doc, record in zip(keys, found, read, strict=True):
            if doc is not None and isinstance(record, str):
                await self.set_aside(doc, record, Put(TASK, self.task), Put(DOCUMENT, key))
        if any(isinstance(record, str) for record in read):
            return await self.find(keys)
        return tuple(record for record in read if not isinstance(record, str))

    def read(self, found: Document) -> TaskRecord | str:
        """The found record, or why there is none."""
        try:
            record = loaded(found)
            is_mine = matches(self.by_id(needed(found, DOCUMENT)), found, no_clock)
        except Misuse as unreadable:
            return unreadable.what
        return record if is_mine and found.held(TASK) == self.task else "its id is not that of its task and document"

    async def set_aside(self, found: Document, why: str, *names: Put[str] | Put[Value]) -> bool:
        now = await self.now()
        still, updates = set_aside(found, why, now)
        return await update_one(self.collection, still, *updates, *names) > 0

    async def write(self, writes: tuple[RecordWrite, ...]) -> tuple[Sent, ...]:
        """Write them, each kind in one request, and return each result. After an error the rest
        counts as not written.
        """
        new = tuple((key, write.record) for key, _, write in writes if isinstance(write, InsertRecord))
        gone = tuple(self.unchanged(key, write) for key, _, write in writes if isinstance(write, RemoveRecord))
        updates = tuple(
            (key, before, write)
            for key, before, write in writes
            if before is not None and isinstance(write, UpdateRecord)
        )
        done: tuple[type[object], ...] = ()
        marks = (Sent.OPEN,) * len(updates)
        try:
            if new and await self._insert(new):
                done = (InsertRecord,)
            if gone and await _removed(self.collection, gone) == len(gone):
                done = (*done, RemoveRecord)
            _, marks = await self.update(updates)
        except (Ambiguous, NotApplied, NotDurable):
            pass
        of_updates = iter(marks)
        return tuple(
            next(of_updates) if isinstance(write, UpdateRecord) else Sent.DONE if type(write) in done else Sent.OPEN
            for _, _, write in writes
        )

    async def _insert(self, new: tuple[tuple[Value, TaskRecord], ...]) -> bool:
        """Insert the first records of documents; whether none existed."""
        docs = tuple(stored(record, self.task, key) for key, record in new)
        if len(docs) == 1:
            return await insert_new(self.collection, docs[0])
        return await insert_many(self.collection, *docs) == len(docs)

    async def update(self, updates: tuple[RecordUpdate, ...]) -> tuple[int, tuple[Sent, ...]]:
        """Send these; return how many matched, and the result of each.

        Those of runs have requests of their own with a time limit; after a timeout each is sent
        alone.
        """
        asked = tuple(
            update_one(
                self.collection,
                self.unchanged(key, write),
                *changes(before, write.record, self.history_max),
                within=None if before.owner is None else self.within,
            )
            for key, before, write in updates
        )
        free = tuple(each for each in asked if each.within is None)
        of_runs = tuple(each for each in asked if each.within is not None)
        matched = await send_updates(free) if free else 0
        is_done = matched == len(free)
        more, late = await self._sent_in_time(of_runs) if of_runs else (0, ())
        marks = {
            **dict.fromkeys(free, Sent.DONE if is_done else Sent.OPEN),
            **dict.fromkeys(of_runs, Sent.DONE if more == len(of_runs) else Sent.OPEN),
            **dict.fromkeys(late, Sent.HELD),
        }
        return matched + more, tuple(marks[each] for each in asked)

    async def _sent_in_time(self, of_runs: tuple[UpdateOne, ...]) -> tuple[int, tuple[UpdateOne, ...]]:
        """Send these with their limit: how many matched, if known, and which are held."""
        matched, late = await self._tried(of_runs)
        if not late or len(of_runs) == 1:
            return matched, late
        late = ()
        for each in of_runs:
            if len(late) < _HELD_MAX:
                more, held = await self._tried((each,))
                matched, late = matched + more, (*late, *held)
            else:
                late = (*late, each)
        return matched, late

    async def _tried(self, updates: tuple[UpdateOne, ...]) -> tuple[int, tuple[UpdateOne, ...]]:
        """How many matched; all count as late after a timeout."""
        try:
            return await send_updates(updates), ()
        except Ambiguous as failure:
            if not is_too_late(failure):
                raise
        return 0, updates


@final
@attrs.frozen
class DocumentReader:
    """The documents that a task follows.

    Attributes:
        task: Its name.
        collection: Their collection.
        watched: The watched values of a document.
        where: Their filter; None for all.
    """

    task: str
    collection: str
    watched: Projection
    where: Filter | None

    @property
    def fields(self) -> Fields | None:
        """The projection of a look; None for whole documents."""
        asked = () if self.where is None else tuple(parts_of(self.where))
        if not self.watched.paths or self.watched.computed or any(isinstance(part, HasOther) for part in asked):
            return None
        names = {way[0].name for way, _ in self.watched.ways}
        names.update(part.field.name for part in asked if not isinstance(part, (AllOf, AnyOf, Not, HasOther)))
        return tuple(Field(name) for name in sorted(names))

    async def find(self, keys: tuple[Value, ...]) -> tuple[FoundDocument, ...]:
        """The documents of these ids, in order. Halving finds one that makes the reply unreadable."""
        try:
            return await self._find(keys)
        except Unreadable as failure:
            if len(keys) == 1:
                return (NotComputed("what is watched", failure.reason),)
        half = len(keys) // 2
        return (*await self.find(keys[:half]), *await self.find(keys[half:]))

    async def _find(self, keys: tuple[Value, ...]) -> tuple[FoundDocument, ...]:
        """The documents of these ids, in order."""
        where = _any_of(tuple(Eq(_KEY, key) for key in keys))
        found = await found_of(self.collection, where, len(keys), fields=self.fields)
        return _in_order(self.task, keys, found, lambda doc: record_id(self.task, needed(doc, _KEY)))

    def seen(self, document: FoundDocument) -> Seen:
        if document is None:
            return Gone()
        if isinstance(document, NotComputed):
            return document
        if document.held(ID) == ZERO_TIMESTAMP:
            return NotComputed(ID.name, "of a timestamp of 0 no record can be inserted")
        if self.where is not None and not matches(self.where, document, no_clock):
            return NotMatching()
        taken = snapshot(document, self.watched)
        return taken if isinstance(taken, NotComputed) else Matching(taken)


async def _removed(records: str, which: tuple[Filter, ...]) -> int:
    """How many unchanged records were removed, in requests of a size that a server handles easily."""
    total = 0
    for start in range(0, len(which), _REMOVED_MAX):
        some = which[start : start + _REMOVED_MAX]
        total += await (delete_one(records, some[0]) if len(some) == 1 else delete_many(records, AnyOf(some)))
    return total


async def found_of(
    collection: str, where: Filter, most: int, sort: Sort = (), fields: Fields | None = None
) -> tuple[Document, ...]:
    if most == 1:
        one = await find_one(collection, where, fields=fields, sort=sort)
        return () if one is None else (one,)
    return await find_all(collection, where, limit=most, fields=fields, sort=sort)


def _in_order(
    task: str, keys: tuple[Value, ...], found: tuple[Document, ...], of: Callable[[Document], Value]
) -> tuple[Document | None, ...]:
    """The found documents, by their ids.

    Args:
        task: The name of the task.
        keys: The ids of the documents.
        found: The found ones, in any order.
        of: Returns the id of the document that a found one is, or is the record of.
    """
    if len(keys) == 1:
        return found or (None,)
    docs = {of(doc): doc for doc in found}
    return tuple(docs.get(record_id(task, key)) for key in keys)


def _any_of(filters: tuple[Filter, ...]) -> Filter:
    """Any document that matches one of them."""
    if len(filters) == 1:
        return filters[0]
    equal = tuple(each for each in filters if isinstance(each, Eq))
    is_one_field = len(equal) == len(filters) and len({each.field for each in equal}) == 1
    return In(equal[0].field, tuple(each.value for each in equal)) if is_one_field else AnyOf(filters)


def _record_id(record: Document) -> Value:
    return needed(record, _KEY)  # whatever else it holds: it may be none


def is_in(key: Value, keys: tuple[Value, ...]) -> bool:
    return any(exactly(key) == exactly(each) for each in keys)


def no_clock() -> Instant:
    raise Misuse(
        "a filter of a reactive task asks how old something is", why="no change reports when that becomes true"
    )
