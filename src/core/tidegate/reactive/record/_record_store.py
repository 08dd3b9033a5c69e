"""What a task reads and writes: its records, and the documents that it follows.

The writes of several records are one request, each guarded by all that its decision was taken on. It answers a total: where all have
matched, each was written. A transaction may hold a record of a run (`Completer.complete`), so a write of such a record has a
time limit, and goes apart from all others. When a request of several runs out of time, each is sent alone.
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
"""By the time that decisions are taken with, it may be so much earlier than it is, so that none of them asks for it anew. A lease is
counted from then, so it may end so much sooner: whoever holds one gives it up before (`Queue.lease`)."""
_BULK_LIMITS: Final = 4
"""How many times as long several writes in one request may take."""
_HELD_MAX: Final = 8
"""After so many that are held, the others of a request are left as well: each has taken the whole of its time."""
_REMOVED_MAX: Final = 200
_KEY: Final = Field[Value](ID.name)

FoundDocument: TypeAlias = Document | NotComputed | None
"""What there is of a document: why it cannot be read, where it cannot."""
RecordUpdate: TypeAlias = tuple[Value, TaskRecord, UpdateRecord]
RecordWrite: TypeAlias = tuple[Value, TaskRecord | None, InsertRecord | UpdateRecord | RemoveRecord]


@final
@unique
class Sent(Enum):
    """What became of a write."""

    DONE = "it is written"
    OPEN = "it is not known to be written"
    HELD = "a transaction holds the record, and it cannot be written now"


async def send_updates(updates: tuple[UpdateOne, ...]) -> int:
    """Send updates, one or more, all within a time limit or all without: how many of them have matched?"""
    if len(updates) == 1:
        return await updates[0]
    within = updates[0].within
    return await bulk_update(*updates, within=None if within is None else _BULK_LIMITS * within)


@final
@attrs.frozen
class RecordStore:
    """The records of a task: the one of a document is found by the ids of both.

    Attributes:
        task: Its name.
        collection: Where they are.
        history_max: How many of its last changes a record keeps.
        within: The time limit of a write of a record that a transaction may hold.
    """

    task: str
    collection: str
    history_max: int
    within: Duration

    async def now(self) -> Instant:
        """The time by which decisions are taken."""
        return await StoreTime(BEHIND)

    def by_id(self, key: Value) -> Filter:
        """What the record of a document is found by."""
        return Eq(ID, record_id(self.task, key))

    def unchanged(self, key: Value, write: UpdateRecord | RemoveRecord) -> Filter:
        """What a write is guarded by: the record is still what this was decided on."""
        return guarded(record_id(self.task, key), write.on)

    async def find(self, keys: tuple[Value, ...], fields: Fields | None = DECIDED_ON) -> tuple[TaskRecord | None, ...]:
        """The records of these documents, in their order, without their histories; one that cannot be read is set aside, and has
        failed then.
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
        """The record that was found, or why it is none."""
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
        """Write them, those of a kind in one request: what became of each? After the first trouble, no more are known to be written."""
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
        """Insert the first records of documents: was there none of any?"""
        docs = tuple(stored(record, self.task, key) for key, record in new)
        if len(docs) == 1:
            return await insert_new(self.collection, docs[0])
        return await insert_many(self.collection, *docs) == len(docs)

    async def update(self, updates: tuple[RecordUpdate, ...]) -> tuple[int, tuple[Sent, ...]]:
        """Send these: how many were what they were decided on, and what became of each?

        Those of runs are sent apart, for a transaction may hold them up: within a time limit, and where that runs out, one after
        the other.
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
        """Send these within their limit: how many have matched, as far as that is known, and which are held."""
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
        """How many have matched; or all of them as late, where the limit runs out."""
        try:
            return await send_updates(updates), ()
        except Ambiguous as failure:
            if not is_too_late(failure):
                raise
        return 0, updates


@final
@attrs.frozen
class DocumentReader:
    """The documents that a task follows, as it sees them.

    Attributes:
        task: Its name.
        collection: Where they are.
        watched: What is watched of a document.
        where: Which documents it is for; None for all.
    """

    task: str
    collection: str
    watched: Projection
    where: Filter | None

    @property
    def fields(self) -> Fields | None:
        """What a look reads of a document, so that nothing else travels; None for all of it."""
        asked = () if self.where is None else tuple(parts_of(self.where))
        if not self.watched.paths or self.watched.computed or any(isinstance(part, HasOther) for part in asked):
            return None
        names = {way[0].name for way, _ in self.watched.ways}
        names.update(part.field.name for part in asked if not isinstance(part, (AllOf, AnyOf, Not, HasOther)))
        return tuple(Field(name) for name in sorted(names))

    async def find(self, keys: tuple[Value, ...]) -> tuple[FoundDocument, ...]:
        """The documents of these ids, in their order. One that is unreadable makes the reply so, and is found by halves."""
        try:
            return await self._find(keys)
        except Unreadable as failure:
            if len(keys) == 1:
                return (NotComputed("what is watched", failure.reason),)
        half = len(keys) // 2
        return (*await self.find(keys[:half]), *await self.find(keys[half:]))

    async def _find(self, keys: tuple[Value, ...]) -> tuple[FoundDocument, ...]:
        """The documents of these ids, in their order."""
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
    """How many were removed, each if it is still what was decided on: so many in a request as a server takes in its stride."""
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
    """What was found of each of these documents.

    Args:
        task: The name of the task.
        keys: The ids of the documents.
        found: What was found, in any order.
        of: The id of the record of the document that it is of, or that it is the record of.
    """
    if len(keys) == 1:
        return found or (None,)
    docs = {of(doc): doc for doc in found}
    return tuple(docs.get(record_id(task, key)) for key in keys)


def _any_of(filters: tuple[Filter, ...]) -> Filter:
    """Whatever matches one of them."""
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
