"""Relative time: every instant is kept as its age, so that time has no bound and the states are finite.

A state keeps an instant as its distance to now, which is always 0. When time passes, every instant in the state moves back by
one quantum (`aged`), but no further back than the horizon. So one state stands for many: an instant at the horizon is any
instant that is at least so long ago, and each of them may be another one.

That is exact if no code ever sees more than what all of these have in common. So the search never hands out the instants of
a state. It hands out a `RelativeInstant` in place of each, and code may use that as follows, and in no other way:

    keep          Pass it on, put it into a document or a state, drop it, test whether it is there and `isinstance(it, Instant)`.
                  A copy in a state grows old as the original does.
    stamp         Let the store write the time (`PutServerTime`) or ask for it (`StoreTime`): that is 0, exactly.
    plus          Add a duration to an instant within the horizon: both move alike.
    minus         Subtract two instants of which one is within the horizon. If both are, the difference is a number that does
                  not depend on when time began. If one is not, the difference is an `Unknown`: at least so long.
    compare       Compare an `Unknown` with a number. The answer is the same for all instants that it stands for, or the use
                  is refused: "at least 40 s" is more than 30 s, and nobody knows whether it is more than 50 s.
    equal         Compare two instants, where one is within the horizon.

`OlderThan`, `Sleep` and `NoLongerThan` are made of these. Everything else (a number or a text of an instant, an order by
instants, a unique index over instants, an instant that is a constant) is refused where it happens (`InstantRefused`), also if
the code catches what it raises. The remedy is absolute time, in which instants are what they are and the number of moves of the
clock is bounded.

Two more uses are refused elsewhere: a program that holds an instant across an await, for its locals are not part of the state
(`tidegate.sim.automaton`), and a program that reads the clock of its machine (`Now`).

Laws
    AG1  What code answers in a relative state, it answers in each absolute state for which the relative one stands.
    AG2  To age twice is to age once by the sum.
    AG3  A value keeps its type and all that is no instant as time passes.

Known not to work: a step law sees no change where a step overwrites one instant beyond the horizon with another one;
`type(at) is Instant` is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeVar, cast, final

from tidegate.model.documents import Document, exactly, show
from tidegate.model.errors import ControlFlow
from tidegate.model.immutable import MergedError, mapped
from tidegate.model.instants import ClockName, Duration, Instant, seconds
from tidegate.model.values import field_names

T = TypeVar("T")
V = TypeVar("V")
_USES: Final = "compare ages up to the horizon: OlderThan in a filter, NoLongerThan in a law"


@final
class InstantRefused(ControlFlow):
    """Relative time does not fit: control flow of the search, never seen outside.

    Args:
        what: What was done with an instant.
        todo: What to write instead.
        where: At which line; "" if the caller knows better.
    It is no `Exception`, so that no `except Exception` of a program or a law hides it.
    """

    def __init__(self, what: str, todo: str, where: str = "") -> None:
        super().__init__(what, todo, where)
        self.what, self.todo, self.where = what, todo, where
        self.horizon: Horizon | None = None

    def forget(self) -> None:
        """The simulator itself used an instant so, and finds another way."""
        if self.horizon is not None and self.horizon.refused is self:
            self.horizon.refused = None

    def of(self, whom: str, where: str) -> InstantRefused:
        """The same, with who did it, and where."""
        return InstantRefused(f"{whom} {self.what}", self.todo, self.where or where)

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what


def aged(value: object, by: Duration, horizon: Duration) -> object:
    """The value with every instant in it moved back.

    Args:
        value: Any value.
        by: How far, in microseconds.
        horizon: How far back an instant lies at most, in microseconds before now, which is 0.

    Raises:
        InstantRefused: Two instants of a set would become one.
    """

    def older(each: object) -> object:
        return Instant(max(each.at - by, -horizon), each.clock) if type(each) is Instant else each

    try:
        return mapped(value, older)
    except MergedError:
        raise InstantRefused("keeps a set of instants, of which two lie beyond the horizon", "keep a tuple") from None


def holds_instant(value: object) -> bool:
    """Tell whether there is an instant anywhere in the value; a list, a set and a dict are looked through as well."""
    match value:
        case Instant():
            return True
        case str() | int() | None:
            return False
        case Document(items):
            return any(holds_instant(item) for _, item in items)
        case tuple() | frozenset() | list() | set():
            return any(map(holds_instant, value))
        case dict():
            return any(map(holds_instant, value.values()))
        case _:
            return any(holds_instant(getattr(value, name)) for name in field_names(type(value)) or ())


# --- what code sees of it ----------------------------------------------------------------------------------------------


@final
class Horizon:
    """The relative time of one search: how far back instants are told apart, and which use of one was refused.

    Args:
        length: The largest age that is ever compared, in microseconds.
    """

    def __init__(self, length: Duration) -> None:
        self.length = length
        self.refused: InstantRefused | None = None

    def seen(self, value: object) -> object:
        """What code sees of a value of a state."""
        return mapped(value, lambda each: self.relative(each) if type(each) is Instant else each)

    def relative(self, at: Instant) -> RelativeInstant:
        return RelativeInstant(self, at.at, at.clock, is_exact=at.at > -self.length)

    def now(self, at: Instant) -> RelativeInstant:
        """What the store's clock shows: that is exact, even if no age is ever compared."""
        return RelativeInstant(self, at.at, at.clock, is_exact=True)

    def stored(self, value: object) -> object:
        """A value that code has made, as a state keeps it.

        Raises:
            InstantRefused: There is an instant in it that is not from this world.
        """
        return mapped(value, self._stored)

    def _stored(self, each: object) -> object:
        if isinstance(each, RelativeInstant):
            return Instant(max(raw(each).at, -self.length), raw(each).clock)
        if type(each) is Instant:
            self.refuse(f"uses a constant instant, {each}", "let the store stamp it (PutServerTime)")
        return each

    def refuse(self, what: str, todo: str = _USES) -> NoReturn:
        """Refuse a use of an instant, once and for all."""
        refused = InstantRefused(what, todo)
        refused.horizon = self
        self.refused = self.refused or refused
        raise refused

    def check(self) -> None:
        """Raise what was refused, although the code that did it has caught it."""
        if (refused := self.refused) is not None:
            self.refused = None
            raise refused


@final
class RelativeInstant(Instant):  # type: ignore[misc]  # final for everybody else
    """An instant in relative time, as code sees it. It has the operations of the module's list, and no others.

    Args:
        horizon: Of which search.
        at: Its distance to now, in microseconds.
        clock: Whose time it is.
        is_exact: Is it just then? Otherwise it is then or any time earlier.
    """

    __slots__ = ("_at", "_horizon", "_is_exact")

    _at: int
    _horizon: Horizon
    _is_exact: bool

    def __init__(self, horizon: Horizon, at: int, clock: ClockName, *, is_exact: bool) -> None:
        for name, value in (("clock", clock), ("_horizon", horizon), ("_at", at), ("_is_exact", is_exact)):
            object.__setattr__(self, name, value)

    @property
    def at(self) -> int:
        self._horizon.refuse("uses an instant as a number, to sort, compare or convert it,")

    def settled(self) -> RelativeInstant:
        return self._horizon.relative(raw(self))

    def checked(self) -> RelativeInstant:
        """Itself, if no use of an instant was refused since the last check."""
        self._horizon.check()
        return self

    def __sub__(self, earlier: Instant) -> Duration:
        other = self._other(earlier)
        if other is self:
            return 0
        between = self._at - other._at
        if self._is_exact and other._is_exact:
            return between
        if not self._is_exact and not other._is_exact:
            self._horizon.refuse(f"subtracts two instants that lie {seconds(self._horizon.length)} back or more")
        return cast("Duration", Unknown(self._horizon, between, is_least=self._is_exact))

    def __rsub__(self, later: Instant) -> Duration:
        self._other(later)
        raise AssertionError("it is refused")

    def __add__(self, later: Duration) -> RelativeInstant:
        if type(later) is not int:
            self._horizon.refuse("adds what is no number to an instant")
        if not self._is_exact:
            self._horizon.refuse(f"adds to an instant that lies {seconds(self._horizon.length)} back or more")
        return RelativeInstant(self._horizon, self._at + later, self.clock, is_exact=True)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Instant):
            return self is other
        against = self._other(other)
        if self._is_exact is against._is_exact is False:
            self._horizon.refuse(f"compares two instants that lie {seconds(self._horizon.length)} back or more")
        if self._is_exact and against._is_exact:
            return (self._at, self.clock) == (against._at, against.clock)
        unknown, known = (against, self) if self._is_exact else (self, against)
        if known._at <= unknown._at:
            self._horizon.refuse("compares an instant with one that lies beyond the horizon")
        return False

    def __hash__(self) -> int:
        return hash(self.clock)

    def __str__(self) -> str:  # noqa: PLE0307  it returns nothing at all
        self._horizon.refuse("uses the text of an instant")

    __repr__ = __str__

    def __format__(self, _: str) -> str:
        return str(self)

    def __reduce__(self) -> NoReturn:
        self._horizon.refuse("copies an instant out of the simulator")

    def _other(self, other: object) -> RelativeInstant:
        if not isinstance(other, RelativeInstant):
            self._horizon.refuse("compares an instant with a constant")
        if other.clock != self.clock:
            _ = Instant(0, self.clock) - Instant(0, other.clock)  # which says why that is no use
        return other


def raw(at: RelativeInstant) -> Instant:
    """The instant as the search keeps it."""
    return Instant(at._at, at.clock)  # noqa: SLF001  only the search may look


def packed(at: RelativeInstant) -> tuple[object, tuple[object, ...]]:
    """How an instant is made in another process, as `pickle` wants it: no code of the user's may do so."""
    return _unpacked, (at._horizon.length, at._at, at.clock, at._is_exact)  # noqa: SLF001  only the search may look


def _unpacked(length: Duration, at: int, clock: ClockName, is_exact: bool) -> RelativeInstant:
    return RelativeInstant(Horizon(length), at, clock, is_exact=is_exact)


def plain(value: object) -> object:
    """The value with the instants that the search keeps: for people, and for keys."""
    return mapped(value, lambda each: raw(each) if isinstance(each, RelativeInstant) else each)


def settled(value: object) -> object:
    """A value that code has made, as code will see it once it has been in a state."""
    return mapped(value, lambda each: each.settled() if isinstance(each, RelativeInstant) else each)


def horizon_of(value: object) -> Duration | None:
    """How far back instants are told apart in the search that the value is of; None if it holds none of relative time."""
    found: list[Duration] = []

    def look(each: object) -> object:
        if isinstance(each, RelativeInstant):
            found.append(each._horizon.length)  # noqa: SLF001  only the search may look
        return each

    mapped(value, look)
    return found[0] if found else None


def check_use(reply: object) -> None:
    """Raise what was refused to code that was given this value, although the code has caught it.

    Raises:
        InstantRefused: There is an instant in it, and it was used in a way that is not permitted.
    """
    mapped(reply, lambda each: each.checked() if isinstance(each, RelativeInstant) else each)


def same(one: object, other: object) -> bool:
    """Whether two values are the same, types and all.

    Raises:
        InstantRefused: They differ in nothing but instants beyond the horizon, and nobody knows whether in these.
    """
    try:
        return exactly(one) == exactly(other)
    except InstantRefused as refused:
        if exactly(plain(one)) == exactly(plain(other)):
            raise
        refused.forget()
        return False


def unchanged(one: object, other: object) -> bool:
    """Whether the search keeps two values as one."""
    return _computed(lambda both: exactly(both[0]) == exactly(both[1]), (one, other))


def plain_text(value: object) -> str:
    """The one-line form of a value that code sees."""
    return _computed(show, value)


def by_text(values: Iterable[V]) -> tuple[V, ...]:
    """Sorted by their one-line forms."""
    found = tuple(values)
    return found if len(found) < 2 else tuple(sorted(found, key=plain_text))


def plain_str(value: object) -> str:
    """The text of a value that code sees."""
    return _computed(str, value)


def _computed(compute: Callable[[V], T], value: V) -> T:
    """What is computed of a value, without its relative instants where these are in the way: few values hold any."""
    try:
        return compute(value)
    except InstantRefused as refused:
        refused.forget()
        return compute(cast("V", plain(value)))


@final
class Unknown:
    """The difference of two instants, one of which lies beyond the horizon: a number that is only known on one side.

    Args:
        horizon: Of which search.
        bound: In microseconds.
        is_least: Is it the bound or more? Otherwise the bound or less.
    """

    __slots__ = ("bound", "horizon", "is_least")

    def __init__(self, horizon: Horizon, bound: Duration, *, is_least: bool) -> None:
        self.horizon, self.bound, self.is_least = horizon, bound, is_least

    def _is_above(self, number: object, *, or_equal: bool) -> bool:
        """Whether it is above a number, or that number."""
        if type(number) is int:
            if self.is_least and (number < self.bound or (or_equal and number == self.bound)):
                return True
            if not self.is_least and (number > self.bound or (not or_equal and number == self.bound)):
                return False
            self.horizon.refuse(
                f"compares an age with {seconds(number)}, and the horizon is {seconds(self.horizon.length)}",
                "let the horizon of the scenario's clock be longer than the largest age that is compared",
            )
        return self._refused()

    def __gt__(self, number: object) -> bool:
        return self._is_above(number, or_equal=False)

    def __ge__(self, number: object) -> bool:
        return self._is_above(number, or_equal=True)

    def __lt__(self, number: object) -> bool:
        return not self._is_above(number, or_equal=True)

    def __le__(self, number: object) -> bool:
        return not self._is_above(number, or_equal=False)

    def __eq__(self, number: object) -> bool:
        self._is_above(number, or_equal=not self.is_least)  # or it is refused
        return False

    def __hash__(self) -> int:  # noqa: PLE0309  it returns nothing at all
        self._refused()

    def _refused(self, *_: object) -> NoReturn:
        self.horizon.refuse(f"uses an age of {seconds(self.horizon.length)} or more other than to compare it")

    def __getattr__(self, name: str) -> NoReturn:
        self._refused()

    __bool__ = __str__ = __repr__ = __format__ = __reduce__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refused
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __divmod__ = __rdivmod__ = _refused
    __neg__ = __pos__ = __abs__ = __int__ = __index__ = __float__ = __round__ = _refused
