"""A replica set in memory, as its clients see it.

`tidegate.sim.world.world.perform`, the explored world, applies operations to documents. Around it:

    Writes. A write takes effect on the primary at once; a majority has it and all earlier ones
        after `lag_s`. Majority reads see the majority's state. A primary that dies loses what no
        majority has.

    Elections. Clients know the set by one address. An election takes `election_s`. A primary that
        steps down keeps its connections and interrupts waits for a majority; one that dies breaks
        them. A new primary has all that a majority has, but learns only after `unaware_s` how much
        that is. Until then it answers from an earlier state, confirms no write, and delays reads of
        later times (`known`, `when_known`).

    Retryable writes. A repeated write is recognised only if the first attempt changed something.
        The memory is lost with its write.

    Transactions are those of `tidegate.sim.world.transactions`. Each expires after `lifetime_s`; a change
        of primary aborts all open ones. A conflicting write outside is `Blocked` until the
        transaction ends.

    History. `history` keeps each change for change streams and for checks of a run. `forget` drops
        older ones.

Laws
    RS1  What a majority has is never rolled back, and all clients see it in one order.
    RS2  A recognised write is not executed again; it gets its first reply.
    RS3  A rolled-back change, and each one after it, is in no history.
    RS4  A transaction's writes take effect together at its commit, or never.
    RS5  A read after a time is not answered from before it, and a confirmed write is one that the
         primary knows a majority to have.

Known not to be modelled
    - Reads from secondaries; sharding; users; server time limits (clients enforce their own),
      except for a write that waits for a transaction.
    - Dropping, renaming or indexing a collection while a transaction is open.
    - A failover in the middle of an operation on many documents, unless a command is struck so
      (`Code.parts`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias, cast, final

import attrs
from bson.timestamp import Timestamp

from tidegate.model.documents import ID, Document, Value
from tidegate.model.effects import Effect
from tidegate.model.instants import MILLISECOND, SECOND, STORE, Instant
from tidegate.model.operations import NO_INDEXES, Unique, check_unique
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.sim.world.cells import Meaning
from tidegate.sim.world.transactions import OPEN, aborted, interrupted, known, open_transactions, transacted
from tidegate.sim.world.world import CLOCK, DOCUMENTS, Plain, contents, perform, world_with
from tidegate_adapters.testing.event_loop import EPOCH_S

LIFETIME_S: Final = 60.0
"""From transactionLifetimeLimitSeconds."""
BEGUN: Final = Timestamp(EPOCH_S, 0)
_EARLIER: Final = 8
"""A new primary knows one of this many latest majority states."""

Waiting: TypeAlias = Callable[[bool], None]
"""Called with True for a majority, with False when the primary steps down."""


class Blocked(Exception):  # noqa: N818  no error: it is carried out later
    """A write conflicts with an open transaction."""


def namespace(database: str, collection: str) -> str:
    return f"{database}.{collection}"


@final
@attrs.frozen
class Change:
    """A change of a document, or a drop or rename.

    Attributes:
        number: Its place in the history.
        key: The document's id, or the collection's new name.
        before: None for an insert.
        after: None for a delete.
        by: The client.
    """

    number: int
    time: Timestamp
    kind: str
    database: str
    collection: str
    key: Value
    before: Document | None
    after: Document | None
    by: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.database}.{self.collection} {self.key!r} by {self.by}"


@final
@attrs.frozen
class Executed:
    """A session's latest retryable write."""

    number: int
    replies: Mapping[int, Mapping[str, Any]]


@final
@attrs.frozen(eq=False)
class State:
    """One member's data."""

    world: Plain
    changes: int = 0
    writes: int = 0
    executed: Mapping[bytes, Executed] = attrs.field(factory=dict)


@final
class SimulatedReplicaSet:
    """The set, created in its clients' event loop; pairs of seconds are shortest and longest times.

    Args:
        random: Draws durations.
        documents: Initial documents by namespace ("database.collection").
        unique: Unique indexes by namespace.
        lag_s: Time until a majority has a write.
        election_s: Time of an election.
        unaware_s: Time until a new primary knows the majority's state.
        lifetime_s: Longest open transaction, `LIFETIME_S` by default.

    Attributes:
        state: The primary's data.
        stable: The majority's data.
        known: What the primary knows of `stable`.
        history: All changes but rolled-back ones.
        term: Grows with each election.
        forgotten: Number of changes dropped from the history.
    """

    def __init__(
        self,
        random: Random,
        documents: Mapping[str, tuple[Document, ...]] | None = None,
        unique: Unique = NO_INDEXES,
        *,
        lag_s: tuple[float, float] = (0.000_5, 0.005),
        election_s: tuple[float, float] = (0.2, 2.0),
        unaware_s: tuple[float, float] = (0.001, 0.2),
        lifetime_s: float | None = None,
    ) -> None:
        check_unique(unique)
        self.random, self.loop = random, asyncio.get_running_loop()
        self._lag_s, self._election_s, self._unaware_s = lag_s, election_s, unaware_s
        self._lifetime_s = LIFETIME_S if lifetime_s is None else lifetime_s
        self.state = self.stable = self.known = State(world_with(documents or {}, unique))
        self._earlier = deque((self.stable,), _EARLIER)
        self.history: list[Change] = []
        self.taken_back: list[Change] = []
        self.term, self.is_primary, self.forgotten = 1, True, 0
        self.collated: dict[str, Mapping[str, object]] = {}
        self.watchers: list[Callable[[], object]] = []
        """Called when a majority has more."""
        self.on_role: list[Callable[[], object]] = []
        """Called when a primary appears or disappears."""
        self.on_death: list[Callable[[], object]] = []
        self._unstable: deque[State] = deque()
        self._waiting: list[tuple[int, Waiting]] = []
        self._blocked: list[Waiting] = []
        self._ticks = (0, 0)

    # --- what is asked ---

    def now(self) -> Instant:
        at = EPOCH_S * SECOND + round(self.loop.time() * SECOND)
        return Instant(at - at % MILLISECOND, STORE)

    def seen(self, effect: Effect[Any], *, by_majority: bool) -> object:
        state = self.known if by_majority else self.state
        _, reply = next(perform(effect, state.world.write(CLOCK, self.now()), ""))
        return reply

    def contents(self, database: str, collection: str) -> tuple[Document, ...]:
        return contents(self.stable.world, namespace(database, collection))

    def done(self, effect: Effect[Any], by: str) -> object:
        """`Blocked` until a transaction ends (`when_free`)."""
        before = self.state.world
        outcome = next(perform(effect, before.write(CLOCK, self.now()), by), None)
        if outcome is None:
            raise Blocked
        after, reply = outcome
        self._note(before, cast("Plain", after), by)
        return reply

    def transacted(
        self,
        effect: InTransaction[Any] | CommitTransaction | AbortTransaction,
        by: str,
        meaning: Meaning = perform,
    ) -> object:
        before = self.state.world
        after, reply = next(transacted(effect, before.write(CLOCK, self.now()), by, meaning))
        self._enter(cast("Plain", after))
        self._note(before, cast("Plain", after), by)
        if isinstance(effect, InTransaction) and effect.begins:
            self.loop.call_later(self._lifetime_s, self._expired, effect.transaction)
        return reply

    def transaction(self, session: bytes) -> tuple[int, bool]:
        found = self.state.world.read(known(session.hex()))
        return (0, False) if found is None else (found.number, found.is_committed)

    @property
    def open_transactions(self) -> tuple[str, ...]:
        return self.state.world.read(OPEN)

    def remember(self, session: bytes, number: int, statement: int, reply: Mapping[str, Any]) -> None:
        known = self.state.executed.get(session)
        replies = known.replies if known is not None and known.number == number else {}
        executed = {**self.state.executed, session: Executed(number, {**replies, statement: reply})}
        self._become(attrs.evolve(self.state, executed=executed))

    def begin(self, session: bytes, number: int) -> Executed | None:
        """None for an old number. A newer one aborts an open transaction."""
        newest, _ = self.transaction(session)
        if newest > number:
            return None
        if newest and newest < number and session.hex() in self.open_transactions:
            self._enter(cast("Plain", aborted(self.state.world, Transaction(session.hex(), newest))))
        executed = self.state.executed.get(session)
        if executed is None or executed.number < number:
            return Executed(number, {})
        return executed if executed.number == number else None

    def when_stable(self, then: Waiting) -> None:
        """Call it when the primary knows that a majority has all writes so far."""
        self._when_known(self.state.writes, then)

    def when_known(self, time: Timestamp, then: Waiting) -> None:
        """Call it once the primary knows that a majority has that time."""
        is_behind = self.known.writes < self.state.writes and self.time_of(self.known) < time
        self._when_known(self.known.writes + is_behind, then)

    def time_of(self, state: State) -> Timestamp:
        return self.history[state.changes - 1].time if state.changes else BEGUN

    def _when_known(self, writes: int, then: Waiting) -> None:
        if self.known.writes >= writes:
            then(True)
        else:
            self._waiting.append((writes, then))

    def when_free(self, then: Waiting) -> None:
        """Call it soon after a transaction ends; with False when the primary steps down."""
        self._blocked.append(then)

    def no_longer_waits(self, then: Waiting) -> bool:
        is_waiting = then in self._blocked
        if is_waiting:
            self._blocked.remove(then)
        return is_waiting

    # --- what happens to it ---

    def drop(self, database: str, collection: str, by: str = "") -> None:
        self._replaced(database, collection, None, by)

    def rename(self, database: str, collection: str, to: str, by: str = "") -> None:
        self._replaced(database, collection, to, by)

    def drop_database(self, database: str, by: str = "") -> None:
        names = {
            name[1].partition(".")[2]
            for name in self.state.world.cells
            if name[1:] and name[1].startswith(f"{database}.")
        }
        for name in sorted(names):
            self._replaced(database, name, None, by)
        self.write(self.state.world, [self._change(0, "dropDatabase", database, None, None, None, by)])

    def forget(self) -> None:
        """Drop what a majority has: no change stream can start before it."""
        self.forgotten = self.stable.changes

    def step_down(self, seconds: float | None = None) -> None:
        """The successor has all data."""
        if not self.is_primary:
            return
        blocked, self._blocked = self._blocked, []
        self._no_primary(seconds)
        waiting, self._waiting = self._waiting, []
        for then in (*(then for _, then in waiting), *blocked):
            then(False)

    def die(self, seconds: float | None = None) -> None:
        """What no majority has is lost."""
        if not self.is_primary:
            return
        self._waiting.clear()
        self._blocked.clear()
        self._unstable.clear()
        self.state = self.stable
        self.taken_back += self.history[self.stable.changes :]
        del self.history[self.stable.changes :]
        self._no_primary(seconds)
        for each in self.on_death:
            each()

    def _no_primary(self, seconds: float | None) -> None:
        self.is_primary = False
        self.term += 1
        self._enter(cast("Plain", interrupted(self.state.world)))
        self.loop.call_later(self._between(self._election_s) if seconds is None else seconds, self._elected)
        for each in self.on_role:
            each()

    def _elected(self) -> None:
        self.is_primary = True
        self.known = self.random.choice(self._earlier)
        self.loop.call_later(self._between(self._unaware_s), self._aware, self.term)
        for each in self.on_role:
            each()

    def _aware(self, term: int) -> None:
        if self.is_primary and self.term == term:
            self._learned()

    # --- within ---

    def _between(self, bounds: tuple[float, float]) -> float:
        shortest, longest = bounds
        return shortest + self.random.random() * (longest - shortest)

    def _note(self, before: Plain, after: Plain, by: str) -> None:
        changes: list[Change] = []
        for name, entry in after.cells.items():
            if name[0] != DOCUMENTS or before.cells.get(name) is entry:
                continue
            old = cast("Document | None", before.cells[name][1] if name in before.cells else None)
            new = cast("Document | None", entry[1])
            if old != new:
                kind = "insert" if old is None else "delete" if new is None else "update"
                key = cast("Document", new if old is None else old)[ID]
                changes.append(self._change(len(changes), kind, name[1], key, old, new, by))
        if changes:
            self.write(after, changes)

    def _enter(self, world: Plain) -> None:
        """The transaction's state exists on the primary alone; blocked writes wake up."""
        before = self.open_transactions
        self.state = attrs.evolve(self.state, world=world)
        if set(before) - set(self.open_transactions):
            for then in self._blocked:
                self.loop.call_later(self._between(self._lag_s), self._tried, then)

    def _tried(self, then: Waiting) -> None:
        if then in self._blocked:
            self._blocked.remove(then)
            then(True)

    def _expired(self, transaction: Transaction) -> None:
        if any(
            (session, now.number) == (transaction.session, transaction.number)
            for session, now, _ in open_transactions(self.state.world)
        ):
            self._enter(cast("Plain", aborted(self.state.world, transaction)))

    def write(self, world: Plain, changes: Sequence[Change] = ()) -> None:
        self.history += changes
        self._become(attrs.evolve(self.state, world=world, changes=len(self.history)))

    def _become(self, state: State) -> None:
        self.state = attrs.evolve(state, writes=state.writes + 1)
        self._unstable.append(self.state)
        self.loop.call_later(self._between(self._lag_s), self._replicated, self.state)

    def _replicated(self, state: State) -> None:
        if state.writes <= self.stable.writes or state not in self._unstable:
            return  # overtaken by a later one, or rolled back
        while self._unstable[0] is not state:
            self._unstable.popleft()
        knew = self.known is self.stable
        self.stable = self._unstable.popleft()
        self._earlier.append(self.stable)
        if knew:
            self._learned()
        for watcher in tuple(self.watchers):
            watcher()

    def _learned(self) -> None:
        self.known = self.stable
        ready = [then for writes, then in self._waiting if writes <= self.known.writes]
        self._waiting = [each for each in self._waiting if each[0] > self.known.writes]
        for then in ready:
            then(True)

    def _change(  # noqa: PLR0917  what a change holds
        self, ahead: int, kind: str, named: str, key: Value, before: Document | None, after: Document | None, by: str
    ) -> Change:
        database, _, collection = named.partition(".")
        seconds = EPOCH_S + int(self.loop.time())
        last, count = self._ticks
        self._ticks = (seconds, count + 1) if seconds == last else (seconds, 1)
        number = len(self.history) + ahead
        return Change(
            number=number,
            time=Timestamp(*self._ticks),
            kind=kind,
            database=database,
            collection=collection,
            key=key,
            before=before,
            after=after,
            by=by,
        )

    def _replaced(self, database: str, collection: str, to: str | None, by: str) -> None:
        there = namespace(database, collection)
        docs = contents(self.state.world, there)
        cells = {
            name: entry
            for name, entry in self.state.world.cells.items()
            if name[1:2] != (there,) and (to is None or name[1:2] != (namespace(database, to),))
        }
        world = Plain(cells)
        if to is not None:
            held = world_with({namespace(database, to): docs}).cells
            world = Plain({**cells, **held})
        kind = "drop" if to is None else "rename"
        self.write(world, [self._change(0, kind, there, to, None, None, by)])
