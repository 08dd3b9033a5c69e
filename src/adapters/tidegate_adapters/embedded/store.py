"""An in-process document store: the simulated world in real time, without a server.

`tidegate.sim.world.world.perform` executes operations and `tidegate.sim.world.planners.planning` planners'
queries, as in the simulator. So a program runs in the world it was checked in, without faults. Data
lives only as long as the process.

Any number of threads and tasks may share a store; operations run one at a time, atomically. The
clock is the process's, in whole milliseconds as in MongoDB.

Transactions are aborted after a minute, as by a server. While one is open, the first insert or
delete in a collection copies its ids.

A write costs what it writes. A filter without an id scans the collection, as does a write if the
collection has unique indexes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, final

from tidegate.model.documents import ID, Clock, Document
from tidegate.model.effects import Ambiguous
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import NO_INDEXES, Operation, StoreTime, Unique
from tidegate.model.record_counts import CountRecords
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.reactive.planning.change_stream import DocumentChange
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate.sim.world.planners import planning
from tidegate.sim.world.transactions import aborted, known
from tidegate.sim.world.world import CLOCK, DOCUMENTS, IDS, Cell, Key, contents, perform, world_with
from tidegate_adapters.embedded.changes import EmbeddedChanges, Feed

Asked: TypeAlias = Operation | StoreTime | FindChanged | FindOrphaned | CountRecords
_MEANS: Final = planning(perform)
Transactional: TypeAlias = InTransaction[Any] | CommitTransaction | AbortTransaction
_LIFETIME: Final = 60 * SECOND
_LOOK_SECONDS: Final = 0.002
_EMPTY: Final[Mapping[str, tuple[Document, ...]]] = MappingProxyType({})


def process_clock() -> Instant:
    return Instant(time.time_ns() // 1_000_000 * MILLISECOND)


@final
class Embedded:
    """A callable that executes operations: `documents(Embedded())`.

    Args:
        contents: Initial documents, by collection.
        clock: For expiry, `PutServerTime` and `StoreTime`.
        unique: Unique indexes, by collection.
    """

    is_store: ClassVar = True

    def __init__(
        self,
        contents: Mapping[str, tuple[Document, ...]] = _EMPTY,
        clock: Clock = process_clock,
        unique: Unique = NO_INDEXES,
    ) -> None:
        self._lock = threading.Lock()
        self._cells: _Cells = {name: held for name, (_, held) in world_with(contents, unique).cells.items()}
        for name, held in self._cells.items():
            if name[0] == IDS:
                self._cells[name] = _Order(dict.fromkeys(held))
        self._clock = clock
        self._begun: dict[str, Instant] = {}
        self._feed: Feed | None = None

    def __call__(self, effect: Asked | Transactional) -> object:
        """A refusal is a reply. A write that conflicts with an open transaction waits for it."""
        while (outcome := self._tried(effect)) is None:
            time.sleep(_LOOK_SECONDS)
        return outcome[0]

    async def awaited(self, effect: Asked | Transactional) -> object:
        """The same for an event loop: `documents(store.awaited)`; waits only for transactions."""
        while (outcome := self._tried(effect)) is None:  # noqa: ASYNC110  see below
            await asyncio.sleep(_LOOK_SECONDS)  # no event: another thread may end it
        return outcome[0]

    def _tried(self, effect: Asked | Transactional) -> tuple[object] | None:
        with self._lock:
            now = self._clock()
            self._end_the_oldest(now)
            if isinstance(effect, CommitTransaction) and not self._knows(effect.transaction):
                return (Ambiguous("nothing is known of the transaction here"),)
            # Other outcomes exist only for concurrent operations.
            outcome = next(_MEANS(effect, _Draft(self._cells, {CLOCK.name: now}), "embedded"), None)
            if outcome is None:
                return None
            after, reply = outcome
            self._keep(cast("_Draft", after))
            if isinstance(effect, InTransaction):
                self._begun.setdefault(effect.transaction.session, now)
            if isinstance(effect, (CommitTransaction, AbortTransaction)) and self._knows(effect.transaction):
                self._forget(effect.transaction.session)
        return (reply,)

    def _keep(self, after: _Draft) -> None:
        for name, held in after.written.items():
            if self._feed is not None and name[0] == DOCUMENTS and held != self._cells.get(name):
                there = cast("Document", held or self._cells[name])
                self._feed.tell(DocumentChange(name[1], there[ID], is_gone=held is None))
            self._cells[name] = _Order(held.settled()) if isinstance(held, _Changed) else held

    def _knows(self, asked: Transaction) -> bool:
        now = self._cells.get(known(asked.session).name)
        return now is not None and now.number == asked.number

    def _forget(self, session: str) -> None:
        self._cells.pop(known(session).name, None)
        self._begun.pop(session, None)

    def _end_the_oldest(self, now: Instant) -> None:
        for session, since in tuple(self._begun.items()):
            if now - since > _LIFETIME:
                del self._begun[session]
                over = Transaction(session, self._cells[known(session).name].number)
                self._keep(cast("_Draft", aborted(_Draft(self._cells, {}), over)))

    def would_wait(self, effect: Operation) -> bool:
        with self._lock:
            return next(perform(effect, _Draft(self._cells, {CLOCK.name: self._clock()}), "embedded"), None) is None

    def changes(self, watched: Collection[str], wait: timedelta = timedelta(seconds=1)) -> EmbeddedChanges:
        """Changes of these collections, from the first call on."""
        with self._lock:
            self._feed = self._feed or Feed()
        return EmbeddedChanges(self._feed, watched, wait)

    def contents(self, collection: str) -> tuple[Document, ...]:
        with self._lock:
            return contents(_Draft(self._cells, {}), collection)


# --- the world of one operation -----------------------------------------------------------------------------------------

V = TypeVar("V")
_Cells: TypeAlias = "dict[tuple[str, ...], Any]"
_NOTHING: Final = object()


@final
class _Draft:
    """One operation's view, with its writes on top.

    A write passes them on without a copy; the previous draft keeps the undo value.
    """

    __slots__ = ("_cells", "laid", "later")

    def __init__(self, cells: _Cells, written: _Cells) -> None:
        self._cells, self.laid = cells, written
        self.later: tuple[_Draft, tuple[str, ...], object] | None = None

    @property
    def written(self) -> _Cells:
        draft, undone = self, dict[tuple[str, ...], Any]()
        while draft.later is not None:
            draft, name, before = draft.later
            undone.setdefault(name, before)
        if not undone:
            return draft.laid
        return {name: value for name, value in (draft.laid | undone).items() if value is not _NOTHING}

    def read(self, cell: Cell[V]) -> V:
        name, written = cell.name, self.written
        if name in written:
            return cast("V", written[name])
        empty = _Order({}) if name[0] == IDS else cell.empty
        return cast("V", self._cells.get(name, empty))

    def write(self, cell: Cell[V], value: V) -> _Draft:
        written = self.written
        after = _Draft(self._cells, written)
        if self.later is None:
            self.later = after, cell.name, written.get(cell.name, _NOTHING)
        written[cell.name] = value
        return after

    def taken(self, budget: Cell[int]) -> _Draft:
        del budget
        return self


@final
class _Order:
    __slots__ = ("held",)

    def __init__(self, held: dict[Key, None]) -> None:
        self.held = held

    def __iter__(self) -> Iterator[Key]:
        return iter(self.held)

    def __add__(self, keys: tuple[Key, ...]) -> _Changed:
        return _Changed(self, _Some({}, 0), _Some({}, 0)) + keys

    def without(self, key: Key) -> _Changed:
        return _Changed(self, _Some({}, 0), _Some({}, 0)).without(key)


@final
class _Some:
    """The first `count` of the held ids; the newest version shares its dict with the next."""

    __slots__ = ("_count", "_held")

    def __init__(self, held: dict[Key, int], count: int) -> None:
        self._held, self._count = held, count

    def __iter__(self) -> Iterator[Key]:
        return islice(self._held, self._count)

    def __contains__(self, key: Key) -> bool:
        return self._held.get(key, self._count) < self._count

    def __add__(self, keys: tuple[Key, ...]) -> _Some:
        is_newest = len(self._held) == self._count
        held = self._held if is_newest else dict(islice(self._held.items(), self._count))
        for key in keys:
            held.setdefault(key, len(held))
        return _Some(held, len(held))


@final
class _Changed:
    """One operation's additions and deletions, applied once by `settled`."""

    __slots__ = ("_added", "_base", "_deleted")

    def __init__(self, base: _Order, added: _Some, deleted: _Some) -> None:
        self._base, self._added, self._deleted = base, added, deleted

    def __iter__(self) -> Iterator[Key]:
        return chain((key for key in self._base if key not in self._deleted), self._added)

    def __add__(self, keys: tuple[Key, ...]) -> _Changed:
        return _Changed(self._base, self._added + keys, self._deleted)

    def without(self, key: Key) -> _Changed:
        return _Changed(self._base, self._added, self._deleted + (key,))  # noqa: RUF005  no tuple

    def settled(self) -> dict[Key, None]:
        held = self._base.held
        for key in self._deleted:
            held.pop(key, None)
        held.update(dict.fromkeys(self._added))
        return held
