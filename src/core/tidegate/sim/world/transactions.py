"""Snapshot isolation for transactions, as in MongoDB, over the cells of a world.

An open transaction keeps its writes, and the previous values that others have overwritten since it
began. It reads its writes first, then these values, then the world. The world holds none of its
writes before the commit. Beginning copies nothing: a writer saves the previous value for each open
transaction. If none is open, a write reads one more cell, which is empty.

    a transaction writes a cell that another open one has written,
    or that others have written since it began                      a conflict ends it
    others write a cell that an open transaction has written        they wait (`Waits`)
    a write that changes nothing                                    is no write

Values of unique indexes conflict as documents do. A value inserted while a transaction is open
counts as written, even if it was removed again. A write checks for a visible id first, then the
document, then each index: for other writers before a visible duplicate key.

A store knows the newest transaction of each session. It repeats the result of its commit on every
request, refuses requests of an earlier one, and begins none twice. `Expiry` (`tidegate.sim.servers.expiry`)
ends an abandoned transaction; a `Failover` ends all open ones.

A real MongoDB gave the same answers (tests/integration/test_mongo_transactions.py).

Laws
    TX1  Others see no uncommitted write; they see all writes of a commit at once.
    TX2  A transaction sees the documents as they were when it began, and its own writes.
    TX3  Of two overlapping transactions that write one document, at most one commits.
    TX4  A transaction commits once or never, however often requests are repeated or arrive late.

Known not to work
    - A statement is one step. On a server, two statements of many documents may block each other,
      and both transactions end. Others may write between the begin of a first statement and its
      write.
    - Inserts of a transaction come after concurrent inserts in natural order; in MongoDB they may
      come before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import equal
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, Refused
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.sim.program.relative_time import plain_text, same
from tidegate.sim.world.cells import (
    DOCUMENTS,
    IDS,
    UNCONFIRMED,
    Cell,
    Key,
    Meaning,
    Order,
    Outcomes,
    World,
    by_name,
    without,
)

V = TypeVar("V")

_Held: TypeAlias = tuple[tuple[Cell[object], object], ...]
Claim: TypeAlias = tuple[str, tuple[str, ...], tuple[object, ...]]
"""An entry of a unique index: the collection, the fields and their values."""


class Waits(Exception):  # noqa: N818  control flow of a meaning, never seen outside
    """A writer outside of transactions waits for an open one that has written this."""


class _Conflict(Exception):  # noqa: N818  likewise
    """Another transaction has this open, or it was written since the transaction began."""


@final
@attrs.frozen
class Open:
    """An open transaction.

    Attributes:
        owner: The process that began it.
        was: The values from before the first write of others since it began, by cell.
        claims: Its entries in unique indexes.
        taken: Entries in unique indexes that others have made since it began.
    """

    owner: str
    written: _Held = ()
    was: _Held = ()
    claims: tuple[Claim, ...] = ()
    taken: tuple[Claim, ...] = ()

    def after_others(self, cell: Cell[object], had: object, claims: tuple[Claim, ...]) -> Open:
        is_new = all(other.name != cell.name for other, _ in self.was)
        was = by_name((*self.was, (cell, had))) if is_new else self.was
        return attrs.evolve(self, was=was, taken=_with(self.taken, claims))

    def after_own(self, cell: Cell[object], value: object, claims: tuple[Claim, ...]) -> Open:
        written = tuple(each for each in self.written if each[0].name != cell.name)
        return attrs.evolve(self, written=(*written, (cell, value)), claims=_with(self.claims, claims))

    def in_order(self) -> Open:
        written = tuple((cell, value.in_order() if isinstance(value, _Ids) else value) for cell, value in self.written)
        claims, taken = _with((), self.claims), _with((), self.taken)
        return attrs.evolve(self, written=written, was=by_name(self.was), claims=claims, taken=taken)

    def has_written(self, cell: Cell[object], claims: tuple[Claim, ...]) -> bool:
        """Whether its writes keep others from this one."""
        return any(other.name == cell.name for other, _ in self.written) or _meet(self.claims, claims)


@final
@attrs.frozen
class Known:
    """The store's record of a session: its newest transaction."""

    number: int
    current: Open | None
    is_committed: bool = False

    def in_order(self) -> Known:
        """Sort each set by names, so that a state has one form under all names."""
        now = self.current
        return self if now is None else attrs.evolve(self, current=now.in_order())


OPEN: Final = Cell[tuple[str, ...]](("open transactions",), ())
"""The sessions with an open transaction; every writer reads it."""


def known(session: str) -> Cell[Known | None]:
    return Cell(("session", session), None)


def open_transactions(world: World) -> Iterator[tuple[str, Known, Open]]:
    for session in world.read(OPEN):
        now = world.read(known(session))
        assert now is not None, "a session whose transaction is open is known"
        assert now.current is not None, "it is listed as long as it is open"
        yield session, now, now.current


def put(world: World, cell: Cell[V], value: V, claims: Callable[[], tuple[Claim, ...]] = tuple) -> World:
    """Write a document or an order of ids; `claims` makes its entries in unique indexes.

    Raises:
        Waits: An open transaction has written the cell.
    """
    if isinstance(world, _Inside):
        return world.put(cell, value, claims())
    return _put(world, cell, value, claims()) if world.read(OPEN) else world.write(cell, value)


def _put(world: World, cell: Cell[V], value: V, claims: tuple[Claim, ...]) -> World:
    place = cast("Cell[object]", cell)
    if cell.name[0] != IDS:
        if same(world.read(cell), value):
            return world
        contend(world, cell, claims)
    return _saved(world, place, claims).write(cell, value)


def has_rivals(world: World) -> bool:
    return isinstance(world, _Inside) or bool(world.read(OPEN))


def contend(world: World, cell: Cell[V], claims: tuple[Claim, ...] = ()) -> None:
    """Check for other writers, as each write does before it checks for duplicates.

    Raises:
        Waits: An open transaction has written the cell or its claims, and the writer is in none.
    """
    place = cast("Cell[object]", cell)
    if isinstance(world, _Inside):
        world.contend(place, claims)
    elif any(each.has_written(place, claims) for _, _, each in open_transactions(world)):
        raise Waits


def _saved(world: World, cell: Cell[object], claims: tuple[Claim, ...]) -> World:
    had = world.read(cell)
    if cell.name[0] == IDS:
        had = tuple(cast("Order", had))  # copied: an `Order` may change
    for session, now, each in tuple(open_transactions(world)):
        world = world.write(known(session), attrs.evolve(now, current=each.after_others(cell, had, claims)))
    return world


# --- requests ---------------------------------------------------------------------------------

_GONE: Final = NotApplied("no such transaction")
_LATER: Final = "there is a later transaction"


def transacted(
    effect: InTransaction[object] | CommitTransaction | AbortTransaction, world: World, who: str, meaning: Meaning
) -> Outcomes:
    """The outcomes of an effect on a transaction; `meaning` is that of operations."""
    asked = effect.transaction
    now = world.read(known(asked.session))
    number = 0 if now is None else now.number
    mine = now.current if now is not None and number == asked.number else None
    match effect:
        case InTransaction(_, operation, begins=begins):
            if (seen := inside(effect, world, who)) is not None:
                yield from _stated(asked, operation, cast("_Inside", seen), who, meaning)
            elif begins:
                yield world, NotApplied("it has begun before" if asked.number == number else _LATER)
            else:
                yield world, _GONE.fresh()
        case CommitTransaction():
            if mine is not None:
                yield _committed(world, asked, mine), True
            elif now is not None and asked.number == number and now.is_committed:
                yield all_confirmed(world), True  # a majority has the first commit by now
            elif asked.number < number:
                yield world, Ambiguous(_LATER)
            else:
                yield world, False
        case AbortTransaction():
            yield world if mine is None else aborted(world, asked), None


def inside(effect: InTransaction[object], world: World, who: str) -> World | None:
    """The world as a statement sees it; None if its transaction is unknown or may not begin."""
    asked = effect.transaction
    now = world.read(known(asked.session))
    if effect.begins:
        is_new = now is None or now.number < asked.number
        return _Inside(_over(world, asked.session, None), asked.session, Open(who)) if is_new else None
    mine = None if now is None or now.number != asked.number else now.current
    return None if mine is None else _Inside(world, asked.session, mine)


def _stated(asked: Transaction, operation: Effect[object], inside: _Inside, who: str, meaning: Meaning) -> Outcomes:
    try:
        ((after, reply),) = meaning(operation, inside, who)
    except _Conflict:
        yield aborted(inside.world, asked), NotApplied("write conflict")
        return
    if isinstance(reply, Failure):
        # also undoes the parts done before the failure
        yield aborted(inside.world, asked), Refused(reply.reason) if isinstance(reply, Ambiguous) else reply
        return
    left = cast("_Inside", after)
    yield _over(left.world, asked.session, Known(asked.number, left.mine)), reply


def _over(world: World, session: str, now: Known | None) -> World:
    """Set the record of the session; None ends its open transaction and keeps the number."""
    before = world.read(known(session))
    if now is None:
        if before is None or before.current is None:
            return world
        now = Known(before.number, None)
    was_open, is_open = before is not None and before.current is not None, now.current is not None
    if was_open != is_open:
        others = tuple(each for each in world.read(OPEN) if each != session)
        world = world.write(OPEN, tuple(sorted((*others, session))) if is_open else others)
    return world.write(known(session), now)


def aborted(world: World, transaction: Transaction) -> World:
    return _over(world, transaction.session, Known(transaction.number, None))


def interrupted(world: World) -> World:
    for session, now, _ in tuple(open_transactions(world)):
        world = aborted(world, Transaction(session, now.number))
    return world


def closed(had: object) -> object:
    """The value that a failover restores: in a session's record, the transaction is neither open
    nor committed.
    """
    return Known(had.number, None) if isinstance(had, Known) and had.current is not None else had


def _committed(world: World, asked: Transaction, mine: Open) -> World:
    """Apply all its writes at once. A majority has them, and all earlier writes."""
    world = _over(world, asked.session, Known(asked.number, None, is_committed=True))
    for cell, value in mine.written:
        world = _settled(world, cell, value, mine.claims)
    return all_confirmed(world)


def all_confirmed(world: World) -> World:
    """Mark all earlier writes as confirmed, too: a majority has the newest one."""
    return world.write(UNCONFIRMED, ()) if world.read(UNCONFIRMED) else world


def _settled(world: World, cell: Cell[object], value: object, claims: tuple[Claim, ...]) -> World:
    if isinstance(value, _Ids):
        there = cast("tuple[Key, ...] | Order", world.read(cell))
        for key in value.deleted:
            there = without(there, key)
        value = there + value.added
    return _saved(world, cell, claims).write(cell, value)


# --- visibility -------------------------------------------------------------------------------


@final
@attrs.frozen
class _Ids:
    """The ids of a collection as a transaction sees them: the ids at its start, and its changes."""

    base: tuple[Key, ...] | Order | None
    added: tuple[Key, ...] = ()
    deleted: tuple[Key, ...] = ()

    def __iter__(self) -> Iterator[Key]:
        assert self.base is not None, "what is kept is given its base when it is read"
        yield from (key for key in self.base if key not in self.deleted)
        yield from self.added

    def __add__(self, keys: tuple[Key, ...]) -> _Ids:
        return attrs.evolve(self, added=self.added + keys)

    def without(self, key: Key) -> _Ids:
        added = tuple(each for each in self.added if each != key)
        return attrs.evolve(self, added=added, deleted=(*self.deleted, key)).in_order()

    def in_order(self) -> _Ids:
        return attrs.evolve(self, deleted=tuple(sorted(self.deleted, key=repr)))


@final
@attrs.frozen(eq=False)
class _Inside:
    """The world as an open transaction sees it; it records the writes."""

    world: World
    session: str
    mine: Open

    def read(self, cell: Cell[V]) -> V:
        kind = cell.name[0]
        if cell.name in _APART:
            return cell.empty
        if kind not in _STORED:
            return self.world.read(cell)
        base = next((had for other, had in self.mine.was if other.name == cell.name), None)
        is_old = any(other.name == cell.name for other, _ in self.mine.was)
        own = next((value for other, value in self.mine.written if other.name == cell.name), None)
        if kind == IDS:
            begun = base if is_old else self.world.read(cast("Cell[object]", cell))
            changed = own if isinstance(own, _Ids) else _Ids(None)
            return cast("V", attrs.evolve(changed, base=cast("Order", begun)))
        if any(other.name == cell.name for other, _ in self.mine.written):
            return cast("V", own)
        return cast("V", base) if is_old else self.world.read(cell)

    def write(self, cell: Cell[V], value: V) -> _Inside:
        kept = self.mine.after_own(cast("Cell[object]", cell), value, ())
        return attrs.evolve(self, mine=kept)

    def put(self, cell: Cell[V], value: V, claims: tuple[Claim, ...]) -> _Inside:
        """As `put`, but raises `_Conflict` where that waits."""
        place = cast("Cell[object]", cell)
        if cell.name[0] == IDS:
            return self.write(place, attrs.evolve(cast("_Ids", value), base=None))
        if same(self.read(cell), value):
            return self
        self.contend(place, claims)
        return attrs.evolve(self, mine=self.mine.after_own(place, value, claims))

    def contend(self, cell: Cell[object], claims: tuple[Claim, ...]) -> None:
        others = (each for session, _, each in open_transactions(self.world) if session != self.session)
        is_old = any(other.name == cell.name for other, _ in self.mine.was) or _meet(self.mine.taken, claims)
        if is_old or any(each.has_written(cell, claims) for each in others):
            raise _Conflict

    def taken(self, budget: Cell[int]) -> _Inside | None:
        after = self.world.taken(budget)
        return None if after is None else attrs.evolve(self, world=after)


_STORED: Final = frozenset({DOCUMENTS, IDS})
_APART: Final = frozenset({OPEN.name, UNCONFIRMED.name})
"""Empty inside: a transaction blocks no one and confirms no write before its commit."""


def _with(claims: tuple[Claim, ...], more: tuple[Claim, ...]) -> tuple[Claim, ...]:
    return tuple(sorted((*claims, *(each for each in more if not _meet(claims, (each,)))), key=plain_text))


def _meet(claims: tuple[Claim, ...], others: tuple[Claim, ...]) -> bool:
    """Whether both hold a value of one unique index; numbers compare by value."""
    return any(one[:2] == other[:2] and equal(one[2], other[2]) for one in claims for other in others)
