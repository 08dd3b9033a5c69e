"""A change stream over the simulated store: every change of the documents, in order, after a
position.

The store keeps a history of changes to watched collections. A position is a place in it: `After(n)`
follows change number n, `From(n)` begins with it. A reader receives pages of changes and the
position after them. Changes of other collections only move the position. A stream returns only
changes confirmed by a majority, so a failover takes back no change that was read. The store may
forget the oldest changes (HISTORY_LOST). A reader from an earlier position then learns that the
stream can never continue there (`change_stream.CANNOT_RESUME`, code 286).

This module gives the commands of `tidegate.reactive.planning.change_stream` their meaning, if each is one
atomic operation:

    Locate         the end of the history
    Read           the next page after the position; empty if there is no change (do not `split` it)
    Save           one write to the record of the stream that matches its epoch and history
    ResetHistory   one write to it that matches its epoch: next history, no position, and a reset of
                   reconciliation
    StartTimer     may end at any time; a scenario that counts it as a stall makes it a timer

`HandleChanged`, `HandleDeleted` and `Reconcile` are programs: use
`ReducerProcess(carried_out=...)`.

    stream = Stream("stream", watched=("orders",))
    meaning = stream.meaning()                       # of writers, the consumer's reducer, a Network
    world = stream.begun(world_with({...}))          # with an empty record
    elected = stream.elected(world, epoch=2)         # raises the epoch of the record: `Elected`
    actors = (..., Forgetful(keep=1))                # HISTORY_LOST may occur

Laws
    ST1  From a position, a stream returns each change of a watched collection exactly once and in
         order, whatever the pages; those of a transaction at its commit, each of its writes.
    ST2  A returned change was confirmed by a majority, and is never taken back.
    ST3  Before the kept history, a stream returns no change, and reports that it cannot continue.
    ST4  A position is saved, and a history begun, only under the epoch of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Lt, Put, Remove, Update
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import find_one_and_update
from tidegate.model.transactions import CommitTransaction, InTransaction
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.planning.change_stream import (
    After,
    Broken,
    DocumentChange,
    Elected,
    From,
    Locate,
    Page,
    Position,
    Read,
    ResetHistory,
    Save,
    StartTimer,
)
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.servers.failover import noted
from tidegate.sim.world.faults import Fault, spent
from tidegate.sim.world.transactions import Open, known
from tidegate.sim.world.world import (
    DOCUMENTS,
    UNCONFIRMED,
    Cell,
    Key,
    Meaning,
    Outcomes,
    Plain,
    World,
    document,
    ids,
    perform,
)

HISTORY_LOST: Final = 286
EPOCH: Final = Field[int]("epoch")
_HISTORY: Final = Field[int]("history")
AFTER: Final = Field[int]("after")
FROM: Final = Field[int]("from")


@final
@attrs.frozen
class Kept:
    """The kept history.

    Attributes:
        first: The number of its oldest change.
        changes: That one and all later ones; None for a change that is not watched.
    """

    first: int = 0
    changes: tuple[DocumentChange | None, ...] = ()

    @property
    def end(self) -> int:
        return self.first + len(self.changes)


KEPT: Final = Cell[Kept](("history",), Kept())


@final
@attrs.frozen
class Stream:
    """A stream, and the record in which its consumer stores its position.

    Invariants: 1 <= page; the record's collection is not watched.

    Attributes:
        name: The id of the record.
        watched: The collections whose changes it returns.
        others: Collections whose changes only move its position.
        page: The most changes in one page.
    """

    name: str
    watched: tuple[str, ...]
    others: tuple[str, ...] = ()
    page: int = 1_000
    collection: str = "streams"

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "the name of a stream")
        check_int(self.page, "the length of a page", 1)
        for collections in (self.watched, self.others):
            check_tuple(collections, str, "the name of a collection")
        if self.collection in (*self.watched, *self.others):
            raise Misuse(
                f"the stream {self.name} watches {self.collection}",
                why="its own record is there, which it writes as it goes on",
                todo="keep its record in another collection",
            )

    # the record

    def begun(self, world: Plain, epoch: int = 0) -> Plain:
        record = Document.of({ID.name: self.name, EPOCH.name: epoch, _HISTORY.name: 0})
        key: Key = self.name
        there = ids(self.collection)
        return world.write(document(self.collection, key), record).write(there, (*world.read(there), key))

    def record(self, world: World) -> Document:
        found = world.read(document(self.collection, self.name))
        if found is None:
            raise Misuse(f"there is no record of the stream {self.name}", todo="begin with stream.begun(world)")
        return found

    def position(self, world: World) -> Position | None:
        record = self.record(world)
        if record.has(AFTER):
            return After(record[AFTER])
        return From(record[FROM]) if record.has(FROM) else None

    def elected(self, world: World, epoch: int) -> tuple[World, Elected]:
        """Take the lease under a higher epoch, in the record; also returns the stored values."""
        record = self.record(world)
        items = tuple((key, epoch if key == EPOCH.name else value) for key, value in record.items)
        elected = Elected(epoch, record[_HISTORY], self.position(world))
        return world.write(document(self.collection, self.name), Document(items)), elected

    # the meaning of the commands

    def meaning(self, otherwise: Meaning = perform) -> Meaning:
        """A meaning that keeps the history of writes and handles the commands of a consumer."""
        return _Keeping(self, otherwise)

    def means(self, otherwise: Meaning, effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Locate():
                yield world, From(_known_end(world))
            case Read(_, position):
                yield world, self.read(world, position)
            case StartTimer():
                yield world, None
            case Save(epoch, history, position):
                where = AllOf((Eq(EPOCH, epoch), Eq(_HISTORY, history)))
                yield from self.fenced(world, who, where, *_stored(position))
            case ResetHistory(epoch, history):
                yield from self.forgets(world, who, epoch, history)
            case _:
                yield from self.writes(otherwise, effect, world, who)

    def read(self, world: World, position: Position) -> Page | Broken:
        kept, end = world.read(KEPT), _known_end(world)
        start = _number_of(position) + isinstance(position, After)
        if start < kept.first:
            return Broken(HISTORY_LOST)
        changes: list[DocumentChange] = []
        for number in range(start, end):
            change = kept.changes[number - kept.first]
            if change is not None and change.collection in self.watched:
                changes.append(change)
            if len(changes) == self.page or number == end - 1:
                return Page(tuple(changes), After(number))
        return Page((), position)

    def fenced(self, world: World, who: str, where: AllOf, *updates: Update) -> Outcomes:
        self.record(world)
        write = find_one_and_update(self.collection, AllOf((Eq(ID, self.name), where)), *updates)
        for after, reply in perform(write, world, who):
            if isinstance(reply, Failure):
                yield after, reply
            else:
                yield after, None if reply is not None else Refused("another epoch or history is stored")

    def forgets(self, world: World, who: str, epoch: int, history: int) -> Outcomes:
        if self.record(world)[_HISTORY] == history and self.record(world)[EPOCH] == epoch:
            yield world, None  # it was done before
            return
        older = AllOf((Eq(EPOCH, epoch), Lt(_HISTORY, history)))
        yield from self.fenced(world, who, older, Put(_HISTORY, history), Remove(AFTER), Remove(FROM))

    def writes(self, otherwise: Meaning, effect: Effect[object], world: World, who: str) -> Outcomes:
        for done, reply, overwritten in noted(otherwise, effect, world, who):
            if any(cell.name == KEPT.name for cell, _ in overwritten):
                raise Misuse(
                    "a write has the meanings of two streams",
                    why="the history of the store would keep its changes twice",
                    todo="give whoever writes the meaning of one stream that watches the collections of both",
                )
            changes = self.changes((cell, had, done.read(cell)) for cell, had in overwritten)
            after = done
            if isinstance(effect, (InTransaction, CommitTransaction)):
                after, changes = self.of_transaction(effect, world, done)
            kept = after.read(KEPT) if changes else Kept()
            told = attrs.evolve(kept, changes=(*kept.changes, *changes))
            yield (after.write(KEPT, told) if changes else after), reply

    def of_transaction(
        self, effect: InTransaction[object] | CommitTransaction, before: World, after: World
    ) -> tuple[World, _Changes]:
        """Collect the changes of an open transaction; return all of them at its commit."""
        session = effect.transaction.session
        was, now, pending = _open(before, session), _open(after, session), before.read(_pending(session))
        if now is was:
            return after, ()
        if now is None:
            left = after.write(_pending(session), ()) if pending else after
            return left, pending if isinstance(effect, CommitTransaction) else ()
        begins = isinstance(effect, InTransaction) and effect.begins
        changes = self.changes(_stated(before, None if begins else was, now))
        told = changes if begins else (*pending, *changes)
        return after if told == pending else after.write(_pending(session), told), ()

    def changes(self, writes: Iterable[_Write]) -> tuple[DocumentChange | None, ...]:
        """The changes that move its position; None for one that is not watched."""
        changes: list[DocumentChange | None] = []
        for cell, had, has in writes:
            collection = cell.name[1] if cell.name[0] == DOCUMENTS else ""
            if has != had and collection in (*self.watched, *self.others):
                there = has if isinstance(has, Document) else had
                assert isinstance(there, Document), "what is deleted was there"
                is_watched = collection in self.watched
                changes.append(DocumentChange(collection, there[ID], has is None) if is_watched else None)
        return tuple(changes)


@final
@attrs.frozen(eq=False)
class _Keeping:
    stream: Stream
    otherwise: Meaning
    keeps_history: bool = attrs.field(default=True, init=False)

    def __call__(self, effect: Effect[object], world: World, who: str) -> Outcomes:
        return self.stream.means(self.otherwise, effect, world, who)


_Write: TypeAlias = tuple[Cell[object], object, object]
"""A cell, its previous value, and its new value."""
_Changes: TypeAlias = tuple[DocumentChange | None, ...]


def _pending(session: str) -> Cell[_Changes]:
    return Cell(("changes", session), ())


def _open(world: World, session: str) -> Open | None:
    now = world.read(known(session))
    return None if now is None else now.current


def _stated(before: World, was: Open | None, now: Open) -> Iterator[_Write]:
    """The writes of a statement, in the order in which the transaction holds them."""
    own = {} if was is None else {cell.name: value for cell, value in was.written}
    for cell, has in now.written:
        if cell.name not in own:
            yield cell, before.read(cell), has
        elif own[cell.name] is not has:
            yield cell, own[cell.name], has


def _stored(position: Position) -> tuple[Update, ...]:
    if isinstance(position, After):
        return (Put(AFTER, _number_of(position)), Remove(FROM))
    return (Put(FROM, _number_of(position)), Remove(AFTER))


def _number_of(position: Position) -> int:
    check_type(position, (After, From), "a position in a stream")
    number = position.token if isinstance(position, After) else position.time
    check_type(number, int, "a number of a change, where the simulated stream begins")
    return cast("int", number)


def _known_end(world: World) -> int:
    """One past the newest change confirmed by a majority."""
    for overwritten in world.read(UNCONFIRMED):
        for cell, had in overwritten:
            if cell.name == KEPT.name:
                assert isinstance(had, Kept)
                return had.end
    return world.read(KEPT).end


@final
@attrs.frozen(eq=False)
class Forgetful:
    """The store forgets its oldest changes and keeps a number of them."""

    keep: int = 0
    name: str = "history"
    place: None = None
    blind: bool = False
    makes: tuple[Fault, ...] = (Fault.HISTORY_LOST,)

    def __attrs_post_init__(self) -> None:
        check_int(self.keep, "a number of changes", 0)

    def steps(self, world: World) -> Iterator[ActorStep]:
        kept = world.read(KEPT)
        lost = len(kept.changes) - self.keep
        if lost > 0 and not world.read(UNCONFIRMED) and (after := spent(world, Fault.HISTORY_LOST)):
            left = Kept(kept.first + lost, kept.changes[lost:])
            label = Label(f"forgets the oldest {'change' if lost == 1 else f'{lost} changes'}")
            yield ActorStep(label, after.write(KEPT, left), must=False, fault=Fault.HISTORY_LOST)
