"""A document store in this process: the simulated world, run in real time, with no server.

What an operation means is `tidegate.sim.world.perform`, and what a planner asks `tidegate.sim.planners.planning`, the very meaning that the simulator explores. So a program that
runs here runs in the world that it was checked in, without the faults: no request is lost, and nothing is durable
beyond this process.

Any number of threads and tasks may use one store; operations happen one at a time, each wholly or not at all. The clock
of the store is that of the process, in whole milliseconds, as MongoDB keeps instants.

Transactions are those of the simulated world, too: one that is open for longer than a minute is aborted, as by a server. While one
is open, the first insert into a collection, or delete, costs a copy of its ids.

A write costs what it writes, and a filter that names no id a look at each document of the collection; so does a write where
the collection has unique indexes.

What happens to its collections can be followed (`Embedded.changes`).
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
from tidegate.reactive.change_stream import DocumentChange
from tidegate.reactive.plan_queries import FindChanged, FindOrphaned
from tidegate.sim.planners import planning
from tidegate.sim.transactions import aborted, known
from tidegate.sim.world import CLOCK, DOCUMENTS, IDS, Cell, Key, contents, perform, world_with
from tidegate_adapters.embedded.changes import EmbeddedChanges, Feed

Asked: TypeAlias = Operation | StoreTime | FindChanged | FindOrphaned | CountRecords
_MEANS: Final = planning(perform)
Transactional: TypeAlias = InTransaction[Any] | CommitTransaction | AbortTransaction
_LIFETIME: Final = 60 * SECOND
_LOOK_SECONDS: Final = 0.002
_EMPTY: Final[Mapping[str, tuple[Document, ...]]] = MappingProxyType({})


def process_clock() -> Instant:
    """What the clock of this process shows, in whole milliseconds."""
    return Instant(time.time_ns() // 1_000_000 * MILLISECOND)


@final
class Embedded:
    """A store whose instances carry out operations when they are called: `documents(Embedded())`.

    Args:
        contents: The documents to begin with, by collection.
        clock: Judges expiry, and is what `PutServerTime` puts and `StoreTime` replies.
        unique: The unique indexes of each collection.
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
        """Carry one operation out, alone or in a transaction, and answer it; a refusal is an answer too.

        Who writes what an open transaction has written waits for that one.
        """
        while (outcome := self._tried(effect)) is None:
            time.sleep(_LOOK_SECONDS)
        return outcome[0]

    async def awaited(self, effect: Asked | Transactional) -> object:
        """The same for an event loop: `documents(store.awaited)`. It waits for transactions alone."""
        while (outcome := self._tried(effect)) is None:  # noqa: ASYNC110  see below
            await asyncio.sleep(_LOOK_SECONDS)  # another thread may end it, so no event of this loop tells
        return outcome[0]

    def _tried(self, effect: Asked | Transactional) -> tuple[object] | None:
        """The answer; None where it must wait."""
        with self._lock:
            now = self._clock()
            self._end_the_oldest(now)
            if isinstance(effect, CommitTransaction) and not self._knows(effect.transaction):
                return (Ambiguous("nothing is known of the transaction here"),)
            # Another outcome is only of what others do at the same time.
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
        """Nothing is asked of it any more, as no request is ever late here."""
        self._cells.pop(known(session).name, None)
        self._begun.pop(session, None)

    def _end_the_oldest(self, now: Instant) -> None:
        """As a server does, with transactions that have been open for too long."""
        for session, since in tuple(self._begun.items()):
            if now - since > _LIFETIME:
                del self._begun[session]
                over = Transaction(session, self._cells[known(session).name].number)
                self._keep(cast("_Draft", aborted(_Draft(self._cells, {}), over)))

    def would_wait(self, effect: Operation) -> bool:
        """Tell whether it would wait for an open transaction now."""
        with self._lock:
            return next(perform(effect, _Draft(self._cells, {CLOCK.name: self._clock()}), "embedded"), None) is None

    def changes(self, watched: Collection[str], wait: timedelta = timedelta(seconds=1)) -> EmbeddedChanges:
        """What happens to these collections; what has happened before this was called first is not known.

        Args:
            watched: Their names.
            wait: How long a read waits where nothing happens.

        Raises:
            Misuse: Nothing is watched.
        """
        with self._lock:
            self._feed = self._feed or Feed()
        return EmbeddedChanges(self._feed, watched, wait)

    def contents(self, collection: str) -> tuple[Document, ...]:
        """All documents of a collection, in natural order."""
        with self._lock:
            return contents(_Draft(self._cells, {}), collection)


# --- the world of one operation -----------------------------------------------------------------------------------------

V = TypeVar("V")
_Cells: TypeAlias = "dict[tuple[str, ...], Any]"
_NOTHING: Final = object()


@final
class _Draft:
    """The store as one operation sees it: what it writes lies over what is there.

    A write hands what lies there on to the next draft, and costs no copy; the one before knows how to undo it.
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
        """Nothing is bounded here."""
        del budget
        return self


@final
class _Order:
    """The ids of a collection in natural order."""

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
    """Ids as they came: the first so many of what is held, so that the newest can share it with the next one."""

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
    """The same with what one operation has added or deleted, which is done to it once (`settled`)."""

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
