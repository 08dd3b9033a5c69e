"""What a transaction sees and keeps: snapshot isolation, as MongoDB has it, over the cells of a world.

An open transaction keeps what it has written, and what others have overwritten since it began. It reads the first, then
the second, then the world, so it sees the documents as they were and its own changes; and the world holds nothing of it before it is
committed. Nothing is copied when it begins: whoever writes while one is open saves what was there. While none is, a write
looks at one cell more, which is empty.

    a transaction writes what     another open one has written, or anybody since it began    a write conflict (Conflict): it is over
    others write what             an open one has written                                    they wait (Waits): no outcome
    a write that changes nothing  is no write

Values of unique indexes meet as documents do: one that is put while a transaction is open counts as written, also if it was
taken away again. The document is judged first, then each index in turn: whether somebody else has written it, and whether
what is seen has it, which is a duplicate key. An id that is seen is one before all that.

A store knows the newest transaction of each session. It answers whether that was committed as often as it is asked, refuses
what comes late of one before it, and begins none twice. `Expiry` (`tidegate.sim.expiry`) ends what nobody ends, and a
`Failover` all that are open.

A real MongoDB answered all of this likewise (tests/integration/test_mongo_transactions.py).

Laws
    TX1  What is not committed, nobody else sees; what is committed, others see all at once.
    TX2  A transaction sees the documents as they were when it began, and what it has written itself.
    TX3  Of two transactions that write one document, and overlap, one at most is committed.
    TX4  A transaction is committed once or never, whatever is asked again or comes late.

Known not to work
    - A statement is one step. On a server, two of many documents each may hold what the other one wants, and both are over; and
      between the beginning of a first statement and its write others may write.
    - What a transaction inserts comes behind what was inserted meanwhile, in natural order; in MongoDB it may come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import equal
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, Refused
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.sim.aging import plain_text, same
from tidegate.sim.cells import (
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
"""What a unique index is to hold of a document: the collection, the fields of the index, and their values."""


class Waits(Exception):  # noqa: N818  control flow of a meaning, never seen outside
    """An open transaction has written this: whoever writes it beside transactions waits."""


class _Conflict(Exception):  # noqa: N818  likewise
    """Somebody else has written this since the transaction began, or is about to."""


@final
@attrs.frozen
class Open:
    """A transaction that is open.

    Attributes:
        owner: Who has begun it.
        written: What it has written, cell by cell.
        was: What others have written since it began: what was there before.
        claims: What it has put into unique indexes.
        taken: What others have put there since it began.
    """

    owner: str
    written: _Held = ()
    was: _Held = ()
    claims: tuple[Claim, ...] = ()
    taken: tuple[Claim, ...] = ()

    def after_others(self, cell: Cell[object], had: object, claims: tuple[Claim, ...]) -> Open:
        """The same when somebody else has written the cell."""
        is_new = all(other.name != cell.name for other, _ in self.was)
        was = by_name((*self.was, (cell, had))) if is_new else self.was
        return attrs.evolve(self, was=was, taken=_with(self.taken, claims))

    def after_own(self, cell: Cell[object], value: object, claims: tuple[Claim, ...]) -> Open:
        """The same when it has written the cell itself."""
        written = tuple(each for each in self.written if each[0].name != cell.name)
        return attrs.evolve(self, written=(*written, (cell, value)), claims=_with(self.claims, claims))

    def in_order(self) -> Open:
        """The same under other names."""
        written = tuple((cell, value.in_order() if isinstance(value, _Ids) else value) for cell, value in self.written)
        claims, taken = _with((), self.claims), _with((), self.taken)
        return attrs.evolve(self, written=written, was=by_name(self.was), claims=claims, taken=taken)

    def has_written(self, cell: Cell[object], claims: tuple[Claim, ...]) -> bool:
        """Has it written that, so that nobody else may?"""
        return any(other.name == cell.name for other, _ in self.written) or _meet(self.claims, claims)


@final
@attrs.frozen
class Known:
    """What the store knows of a session: its newest transaction."""

    number: int
    current: Open | None
    is_committed: bool = False

    def in_order(self) -> Known:
        """The same, with each set in the order of names: so one state has one form under all of them."""
        now = self.current
        return self if now is None else attrs.evolve(self, current=now.in_order())


OPEN: Final = Cell[tuple[str, ...]](("open transactions",), ())
"""The sessions whose transactions are open; looked at by whoever writes."""


def known(session: str) -> Cell[Known | None]:
    """What the store knows of the session."""
    return Cell(("session", session), None)


def open_transactions(world: World) -> Iterator[tuple[str, Known, Open]]:
    """Those that are open: the session, what is known of it, and the transaction."""
    for session in world.read(OPEN):
        now = world.read(known(session))
        assert now is not None, "a session whose transaction is open is known"
        assert now.current is not None, "it is listed as long as it is open"
        yield session, now, now.current


def put(world: World, cell: Cell[V], value: V, claims: Callable[[], tuple[Claim, ...]] = tuple) -> World:
    """The world in which a store holds that, in a document or an order of ids.

    Args:
        world: What the writer sees.
        cell: Where.
        value: What.
        claims: What it puts into unique indexes.

    Raises:
        Waits: An open transaction has written it.
    """
    if isinstance(world, _Inside):
        return world.put(cell, value, claims())
    return _put(world, cell, value, claims()) if world.read(OPEN) else world.write(cell, value)


def _put(world: World, cell: Cell[V], value: V, claims: tuple[Claim, ...]) -> World:
    """The same where transactions are open: what was there is saved for them."""
    place = cast("Cell[object]", cell)
    if cell.name[0] != IDS:
        if same(world.read(cell), value):
            return world
        contend(world, cell, claims)
    return _saved(world, place, claims).write(cell, value)


def has_rivals(world: World) -> bool:
    """Tell whether there may be anybody to `contend` with."""
    return isinstance(world, _Inside) or bool(world.read(OPEN))


def contend(world: World, cell: Cell[V], claims: tuple[Claim, ...] = ()) -> None:
    """Come to whoever else writes that, as each write does before it is seen whether it is a duplicate.

    Args:
        world: What the writer sees.
        cell: Where it writes.
        claims: What it puts into unique indexes.

    Raises:
        Waits: An open transaction has written it, and the writer is in none.
    """
    place = cast("Cell[object]", cell)
    if isinstance(world, _Inside):
        world.contend(place, claims)
    elif any(each.has_written(place, claims) for _, _, each in open_transactions(world)):
        raise Waits


def _saved(world: World, cell: Cell[object], claims: tuple[Claim, ...]) -> World:
    """The world in which open transactions know what was there before it is written."""
    had = world.read(cell)
    if cell.name[0] == IDS:
        had = tuple(cast("Order", had))  # an order of its own may change
    for session, now, each in tuple(open_transactions(world)):
        world = world.write(known(session), attrs.evolve(now, current=each.after_others(cell, had, claims)))
    return world


# --- what is asked ------------------------------------------------------------------------------------------------------

_GONE: Final = NotApplied("no such transaction")
_LATER: Final = "there is a later transaction"


def transacted(
    effect: InTransaction[object] | CommitTransaction | AbortTransaction, world: World, who: str, meaning: Meaning
) -> Outcomes:
    """What an effect on a transaction means.

    Args:
        effect: What is asked.
        world: Where.
        who: By whom.
        meaning: What operations mean.
    """
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
                yield all_confirmed(world), True  # a majority has it by then
            elif asked.number < number:
                yield world, Ambiguous(_LATER)
            else:
                yield world, False
        case AbortTransaction():
            yield world if mine is None else aborted(world, asked), None


def inside(effect: InTransaction[object], world: World, who: str) -> World | None:
    """The world as a statement sees it; None where there is no such transaction, or it may not begin."""
    asked = effect.transaction
    now = world.read(known(asked.session))
    if effect.begins:
        is_new = now is None or now.number < asked.number
        return _Inside(_over(world, asked.session, None), asked.session, Open(who)) if is_new else None
    mine = None if now is None or now.number != asked.number else now.current
    return None if mine is None else _Inside(world, asked.session, mine)


def _stated(asked: Transaction, operation: Effect[object], inside: _Inside, who: str, meaning: Meaning) -> Outcomes:
    """One statement of it; a failure is its end."""
    try:
        ((after, reply),) = meaning(operation, inside, who)
    except _Conflict:
        yield aborted(inside.world, asked), NotApplied("write conflict")
        return
    if isinstance(reply, Failure):
        # What was done to others before it is undone.
        yield aborted(inside.world, asked), Refused(reply.reason) if isinstance(reply, Ambiguous) else reply
        return
    left = cast("_Inside", after)
    yield _over(left.world, asked.session, Known(asked.number, left.mine)), reply


def _over(world: World, session: str, now: Known | None) -> World:
    """The world in which that is known of the session; None for nothing more of its open transaction."""
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
    """The world in which the transaction is over, and nothing of it was done."""
    return _over(world, transaction.session, Known(transaction.number, None))


def interrupted(world: World) -> World:
    """The world in which no transaction is open, as after an election."""
    for session, now, _ in tuple(open_transactions(world)):
        world = aborted(world, Transaction(session, now.number))
    return world


def closed(had: object) -> object:
    """What a failover puts back into a cell: of a session, that its transaction was neither committed nor is open."""
    return Known(had.number, None) if isinstance(had, Known) and had.current is not None else had


def _committed(world: World, asked: Transaction, mine: Open) -> World:
    """All that it has written, at once. A majority has it, and all that was written before it."""
    world = _over(world, asked.session, Known(asked.number, None, is_committed=True))
    for cell, value in mine.written:
        world = _settled(world, cell, value, mine.claims)
    return all_confirmed(world)


def all_confirmed(world: World) -> World:
    """The world after a write that a majority has: it has all that was written before, too."""
    return world.write(UNCONFIRMED, ()) if world.read(UNCONFIRMED) else world


def _settled(world: World, cell: Cell[object], value: object, claims: tuple[Claim, ...]) -> World:
    if isinstance(value, _Ids):
        there = cast("tuple[Key, ...] | Order", world.read(cell))
        for key in value.deleted:
            there = without(there, key)
        value = there + value.added
    return _saved(world, cell, claims).write(cell, value)


# --- what it sees ---------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class _Ids:
    """The ids of a collection as a transaction sees them: those that were there, and what it has done to them."""

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
        """The same; in which order they were deleted makes no difference."""
        return attrs.evolve(self, deleted=tuple(sorted(self.deleted, key=repr)))


@final
@attrs.frozen(eq=False)
class _Inside:
    """The world as an open transaction sees it, and what it writes."""

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
        """As `put`, inside; a write conflict where somebody else has written it."""
        place = cast("Cell[object]", cell)
        if cell.name[0] == IDS:
            return self.write(place, attrs.evolve(cast("_Ids", value), base=None))
        if same(self.read(cell), value):
            return self
        self.contend(place, claims)
        return attrs.evolve(self, mine=self.mine.after_own(place, value, claims))

    def contend(self, cell: Cell[object], claims: tuple[Claim, ...]) -> None:
        """As `contend`, inside; a write conflict where somebody else has written it."""
        others = (each for session, _, each in open_transactions(self.world) if session != self.session)
        is_old = any(other.name == cell.name for other, _ in self.mine.was) or _meet(self.mine.taken, claims)
        if is_old or any(each.has_written(cell, claims) for each in others):
            raise _Conflict

    def taken(self, budget: Cell[int]) -> _Inside | None:
        after = self.world.taken(budget)
        return None if after is None else attrs.evolve(self, world=after)


_STORED: Final = frozenset({DOCUMENTS, IDS})
_APART: Final = frozenset({OPEN.name, UNCONFIRMED.name})
"""What others do to each other: a transaction keeps nobody waiting, and confirms nothing before it is committed."""


def _with(claims: tuple[Claim, ...], more: tuple[Claim, ...]) -> tuple[Claim, ...]:
    return tuple(sorted((*claims, *(each for each in more if not _meet(claims, (each,)))), key=plain_text))


def _meet(claims: tuple[Claim, ...], others: tuple[Claim, ...]) -> bool:
    """Does a unique index meet a value twice? Numbers are compared by value."""
    return any(one[:2] == other[:2] and equal(one[2], other[2]) for one in claims for other in others)
