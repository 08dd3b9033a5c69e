"""A replica set in memory, as its clients see it: what is written, what a majority has of it, and who is primary.

What an operation does to documents is `tidegate.sim.world.perform`, the world that is explored. Around it:

    A write takes effect on the primary at once; a majority has it a moment later (`lag_s`), and with it all before it. Reads
    with the read concern "majority" see what a majority has. A primary that dies takes with it what no majority has.

    Clients know the set by one address, whichever member is primary: where it is, is no concern of theirs. While there is
    none, an election is under way (`election_s`). A member that is no primary any more says so, keeps its connections, and
    interrupts whoever waits for a majority; one that dies breaks them. A new primary has all that a majority has, but learns
    only a moment later which of it that is (`unaware_s`). Until then it answers from before, confirms no write, and whoever asks
    for what is later waits (`known`, `when_known`).

    A write that is sent a second time under its number is recognised if the first one has changed anything, and only then:
    what matched nothing, or was refused, is not remembered. What was remembered goes where its write goes.

    Transactions are those of `tidegate.sim.transactions`. One that nobody ends is ended after `lifetime_s`, all that are open with
    each primary. A write beside them of what one has written is `Blocked` until one is over.

    What happens is kept (`history`), each change once a majority has it, for change streams and for whoever judges a run.
    The set forgets the older ones when it is told to (`forget`).

Laws
    RS1  What a majority has is never taken back, and is seen in one order by all.
    RS2  A write that is recognised is not done again, and is answered as it was.
    RS3  What is taken back is in nobody's history, and nothing after it is there either.
    RS4  What a transaction has written happens at once, when it is committed, or never.
    RS5  Who asks for what was written until a time is not answered from before it, and what is confirmed, the primary knows a
         majority to have.

Known not to be modelled
    - Secondaries that are read from; sharding; users; time limits on the server (a client gives up by its own), but for those of a
      write that waits for a transaction.
    - The locks of collections: one that is dropped or renamed, or is given an index, while a transaction is open.
    - A failover in the middle of an operation on many documents, unless a command is struck so (`Code.parts`).
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
from tidegate.sim.cells import Meaning
from tidegate.sim.transactions import OPEN, aborted, interrupted, known, open_transactions, transacted
from tidegate.sim.world import CLOCK, DOCUMENTS, Plain, contents, perform, world_with
from tidegate_adapters.testing.event_loop import EPOCH_S

LIFETIME_S: Final = 60.0
"""How long a transaction may be open: transactionLifetimeLimitSeconds."""
BEGUN: Final = Timestamp(EPOCH_S, 0)
"""The time of the cluster before anything was written."""
_EARLIER: Final = 8
"""What a new primary knows of is one of so many of the latest states that a majority had."""

Waiting: TypeAlias = Callable[[bool], None]
"""Who waits for a majority; called with whether it has what was waited for, or the primary is none any more."""


class Blocked(Exception):  # noqa: N818  no error: it is carried out later
    """A write waits for a transaction that has written what it writes."""


def namespace(database: str, collection: str) -> str:
    """The name of a collection of a database, as the world has it."""
    return f"{database}.{collection}"


@final
@attrs.frozen
class Change:
    """What has happened to a document, or to a collection.

    Attributes:
        number: Which one of all it is.
        time: Of the cluster; later ones are greater.
        kind: "insert", "update" or "delete"; "drop" or "rename" of a collection, or "dropDatabase".
        database: Where.
        collection: In which collection.
        key: The id of the document, or the new name of the collection.
        before: What it was; None if there was none.
        after: What it is; None if it is gone.
        by: Which client has asked for it.
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
    """The latest write of a session that may be sent again, and what its statements were answered, by their numbers."""

    number: int
    replies: Mapping[int, Mapping[str, Any]]


@final
@attrs.frozen(eq=False)
class State:
    """What one member holds.

    Attributes:
        world: The documents and unique indexes, by namespace.
        changes: How many of the changes it has.
        writes: How many writes, those that changed nothing not counted.
        executed: By session.
    """

    world: Plain
    changes: int = 0
    writes: int = 0
    executed: Mapping[bytes, Executed] = attrs.field(factory=dict)


@final
class SimulatedReplicaSet:
    """The set. It is made in the event loop that its clients run on.

    Args:
        random: Draws how long things take.
        documents: What it holds, by namespace ("database.collection").
        unique: Its unique indexes, likewise.
        lag_s: The shortest and the longest that a majority takes.
        election_s: The same for an election.
        unaware_s: The same until a new primary knows what a majority has.
        lifetime_s: How long a transaction may be open; `LIFETIME_S` unless it is set.

    Attributes:
        state: What the primary holds.
        stable: What a majority has.
        known: What the primary knows of that.
        history: Every change that a member has made, and that was not taken back.
        taken_back: Those that were.
        term: Of the primary; a higher one after each election.
        is_primary: Whether there is one.
        forgotten: How many of the changes are not known any more.
        collated: By namespace, the collations that collections were made with.
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
        """Called when there is a primary, or none any more."""
        self.on_death: list[Callable[[], object]] = []
        """Called when a primary dies."""
        self._unstable: deque[State] = deque()
        self._waiting: list[tuple[int, Waiting]] = []
        self._blocked: list[Waiting] = []
        self._ticks = (0, 0)

    # --- what is asked ---

    def now(self) -> Instant:
        """The time of the set, in whole milliseconds as its clock has it."""
        at = EPOCH_S * SECOND + round(self.loop.time() * SECOND)
        return Instant(at - at % MILLISECOND, STORE)

    def seen(self, effect: Effect[Any], *, by_majority: bool) -> object:
        """What a read is answered."""
        state = self.known if by_majority else self.state
        _, reply = next(perform(effect, state.world.write(CLOCK, self.now()), ""))
        return reply

    def contents(self, database: str, collection: str) -> tuple[Document, ...]:
        """What a majority has, in natural order."""
        return contents(self.stable.world, namespace(database, collection))

    def done(self, effect: Effect[Any], by: str) -> object:
        """Carry a write out on the primary.

        Raises:
            Blocked: Not now, but when a transaction is over (`when_free`).
        """
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
        """Carry a statement of a transaction out, or its end.

        Args:
            effect: What is asked.
            by: Which client asks.
            meaning: What its operation means, to the world as the transaction sees it.
        """
        before = self.state.world
        after, reply = next(transacted(effect, before.write(CLOCK, self.now()), by, meaning))
        self._enter(cast("Plain", after))
        self._note(before, cast("Plain", after), by)
        if isinstance(effect, InTransaction) and effect.begins:
            self.loop.call_later(self._lifetime_s, self._expired, effect.transaction)
        return reply

    def transaction(self, session: bytes) -> tuple[int, bool]:
        """The number of the newest transaction of a session, and whether it is committed."""
        found = self.state.world.read(known(session.hex()))
        return (0, False) if found is None else (found.number, found.is_committed)

    @property
    def open_transactions(self) -> tuple[str, ...]:
        """The sessions whose transactions are open."""
        return self.state.world.read(OPEN)

    def remember(self, session: bytes, number: int, statement: int, reply: Mapping[str, Any]) -> None:
        """Of the write that was just done: how it is answered when it comes again."""
        known = self.state.executed.get(session)
        replies = known.replies if known is not None and known.number == number else {}
        executed = {**self.state.executed, session: Executed(number, {**replies, statement: reply})}
        self._become(attrs.evolve(self.state, executed=executed))

    def begin(self, session: bytes, number: int) -> Executed | None:
        """What is remembered of this write; None for a number that is older than what is known of the session.

        A newer number ends a transaction of the session that is open.
        """
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
        """Call it when the primary knows that a majority has all that was written until now."""
        self._when_known(self.state.writes, then)

    def when_known(self, time: Timestamp, then: Waiting) -> None:
        """Call it when the primary knows that a majority has what was written at that time."""
        is_behind = self.known.writes < self.state.writes and self.time_of(self.known) < time
        self._when_known(self.known.writes + is_behind, then)

    def time_of(self, state: State) -> Timestamp:
        """The time of the cluster at which it was last written to."""
        return self.history[state.changes - 1].time if state.changes else BEGUN

    def _when_known(self, writes: int, then: Waiting) -> None:
        if self.known.writes >= writes:
            then(True)
        else:
            self._waiting.append((writes, then))

    def when_free(self, then: Waiting) -> None:
        """Call it when a transaction is over, soon after; with False when the primary is none any more."""
        self._blocked.append(then)

    def no_longer_waits(self, then: Waiting) -> bool:
        """Call it for no transaction any more; whether it was waiting."""
        is_waiting = then in self._blocked
        if is_waiting:
            self._blocked.remove(then)
        return is_waiting

    # --- what happens to it ---

    def drop(self, database: str, collection: str, by: str = "") -> None:
        """Drop a collection, with all that is in it."""
        self._replaced(database, collection, None, by)

    def rename(self, database: str, collection: str, to: str, by: str = "") -> None:
        """Rename a collection; one that has the new name is dropped."""
        self._replaced(database, collection, to, by)

    def drop_database(self, database: str, by: str = "") -> None:
        """Drop a database, collection by collection."""
        names = {
            name[1].partition(".")[2]
            for name in self.state.world.cells
            if name[1:] and name[1].startswith(f"{database}.")
        }
        for name in sorted(names):
            self._replaced(database, name, None, by)
        self.write(self.state.world, [self._change(0, "dropDatabase", database, None, None, None, by)])

    def forget(self) -> None:
        """Forget what a majority has: no change stream begins before that any more."""
        self.forgotten = self.stable.changes

    def step_down(self, seconds: float | None = None) -> None:
        """The primary steps down; another member has all that it has, and is elected."""
        if not self.is_primary:
            return
        blocked, self._blocked = self._blocked, []
        self._no_primary(seconds)
        waiting, self._waiting = self._waiting, []
        for then in (*(then for _, then in waiting), *blocked):
            then(False)

    def die(self, seconds: float | None = None) -> None:
        """The primary dies, with what no majority has; another member is elected."""
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
        """The primary of that term knows what a majority has."""
        if self.is_primary and self.term == term:
            self._learned()

    # --- within ---

    def _between(self, bounds: tuple[float, float]) -> float:
        shortest, longest = bounds
        return shortest + self.random.random() * (longest - shortest)

    def _note(self, before: Plain, after: Plain, by: str) -> None:
        """Become what a write has made, and keep what it has changed."""
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
        """Become what a transaction has made: what it keeps is on the primary alone. Who waited for one that is over tries again."""
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
        """Become this, by these changes."""
        self.history += changes
        self._become(attrs.evolve(self.state, world=world, changes=len(self.history)))

    def _become(self, state: State) -> None:
        self.state = attrs.evolve(state, writes=state.writes + 1)
        self._unstable.append(self.state)
        self.loop.call_later(self._between(self._lag_s), self._replicated, self.state)

    def _replicated(self, state: State) -> None:
        """A majority has it."""
        if state.writes <= self.stable.writes or state not in self._unstable:
            return  # a later one was quicker, or it was taken back
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
