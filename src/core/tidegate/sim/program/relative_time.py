"""Relative time: the search keeps ages of instants, so time is unbounded and states are finite.

Now is always 0. As time passes, `aged` moves every instant back, but not beyond the horizon. An
instant at the horizon represents all instants at least that old.

This is exact only if code sees no more than these have in common. So code gets a `RelativeInstant`
in place of each instant, with these uses only:

    keep          Pass it on, store it, drop it, test for its presence or `isinstance(it, Instant)`.
                  A stored copy ages too.
    stamp         Let the store write the time (`PutServerTime`) or ask for it (`StoreTime`):
                  exactly 0.
    plus          Add a duration to an instant within the horizon: both move alike.
    minus         Subtract two instants, one of them within the horizon. If both are, the result is
                  exact. Otherwise it is an `Unknown`: at least so long.
    compare       Compare an `Unknown` with a number. The use is refused if the answer is open: "at
                  least 40 s" exceeds 30 s, and perhaps 50 s.
    equal         Compare two instants, one of them within the horizon.

`OlderThan`, `Sleep` and `NoLongerThan` are built from these. Any other use is refused
(`InstantRefused`), even if the code catches the error: an instant as number or text, an order or a
unique index over instants, a constant instant. The remedy is absolute time, with a bounded number
of clock moves.

Programs also may not hold an instant across an await (`tidegate.sim.program.automaton`) or read their
machine's clock (`Now`).

Laws
    AG1  Code answers the same in a relative state and in each absolute state it represents.
    AG2  Ageing twice equals ageing once by the sum.
    AG3  As time passes, a value keeps its type and every part that is not an instant.

Known not to work: a step law misses an overwrite of one instant beyond the horizon by another;
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
    """Relative time does not fit. The search handles this error itself.

    Not an `Exception`, so that no `except Exception` hides it.

    Args:
        where: The source line; "" if the caller knows it better.
    """

    def __init__(self, what: str, todo: str, where: str = "") -> None:
        super().__init__(what, todo, where)
        self.what, self.todo, self.where = what, todo, where
        self.horizon: Horizon | None = None

    def forget(self) -> None:
        if self.horizon is not None and self.horizon.refused is self:
            self.horizon.refused = None

    def of(self, whom: str, where: str) -> InstantRefused:
        return InstantRefused(f"{whom} {self.what}", self.todo, self.where or where)

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what


def aged(value: object, by: Duration, horizon: Duration) -> object:
    """The value with every instant moved back.

    Args:
        value: Any value.
        by: Distance in microseconds.
        horizon: Maximum distance before now (0), in microseconds.

    Raises:
        InstantRefused: Two instants in a set would become equal.
    """

    def older(each: object) -> object:
        return Instant(max(each.at - by, -horizon), each.clock) if type(each) is Instant else each

    try:
        return mapped(value, older)
    except MergedError:
        raise InstantRefused("keeps a set of instants, of which two lie beyond the horizon", "keep a tuple") from None


def holds_instant(value: object) -> bool:
    """Tell whether the value contains an instant, also inside a list, set or dict."""
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


# --- code's view -------------------------------------------------------------------------------


@final
class Horizon:
    """The relative time of one search: its horizon, and the first refused use.

    Args:
        length: The largest age that code compares, in microseconds.
    """

    def __init__(self, length: Duration) -> None:
        self.length = length
        self.refused: InstantRefused | None = None

    def seen(self, value: object) -> object:
        return mapped(value, lambda each: self.relative(each) if type(each) is Instant else each)

    def relative(self, at: Instant) -> RelativeInstant:
        return RelativeInstant(self, at.at, at.clock, is_exact=at.at > -self.length)

    def now(self, at: Instant) -> RelativeInstant:
        """The store's time. It is exact, even if no code compares ages."""
        return RelativeInstant(self, at.at, at.clock, is_exact=True)

    def stored(self, value: object) -> object:
        """The form in which a state keeps a value made by code.

        Raises:
            InstantRefused: The value contains a constant instant.
        """
        return mapped(value, self._stored)

    def _stored(self, each: object) -> object:
        if isinstance(each, RelativeInstant):
            return Instant(max(raw(each).at, -self.length), raw(each).clock)
        if type(each) is Instant:
            self.refuse(f"uses a constant instant, {each}", "let the store stamp it (PutServerTime)")
        return each

    def refuse(self, what: str, todo: str = _USES) -> NoReturn:
        refused = InstantRefused(what, todo)
        refused.horizon = self
        self.refused = self.refused or refused
        raise refused

    def check(self) -> None:
        """Raise a pending refusal, even if the code that caused it caught the error."""
        if (refused := self.refused) is not None:
            self.refused = None
            raise refused


@final
class RelativeInstant(Instant):  # type: ignore[misc]  # final for everybody else
    """An instant in relative time, as code sees it, with only the uses listed above.

    Args:
        at: Its distance to now, in microseconds.
        is_exact: False if it represents this instant and every earlier one.
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
            _ = Instant(0, self.clock) - Instant(0, other.clock)
        return other


def raw(at: RelativeInstant) -> Instant:
    return Instant(at._at, at.clock)  # noqa: SLF001  only the search may look


def packed(at: RelativeInstant) -> tuple[object, tuple[object, ...]]:
    return _unpacked, (at._horizon.length, at._at, at.clock, at._is_exact)  # noqa: SLF001  only the search may look


def _unpacked(length: Duration, at: int, clock: ClockName, is_exact: bool) -> RelativeInstant:
    return RelativeInstant(Horizon(length), at, clock, is_exact=is_exact)


def plain(value: object) -> object:
    """The value with the search's own instants, for messages and keys."""
    return mapped(value, lambda each: raw(each) if isinstance(each, RelativeInstant) else each)


def settled(value: object) -> object:
    """A value made by code, as code will see it after a state has kept it."""
    return mapped(value, lambda each: each.settled() if isinstance(each, RelativeInstant) else each)


def horizon_of(value: object) -> Duration | None:
    found: list[Duration] = []

    def look(each: object) -> object:
        if isinstance(each, RelativeInstant):
            found.append(each._horizon.length)  # noqa: SLF001  only the search may look
        return each

    mapped(value, look)
    return found[0] if found else None


def check_use(reply: object) -> None:
    """Raise a refusal pending for this reply, even if the code that got the reply caught the error.

    Raises:
        InstantRefused: The code used an instant of the reply in a refused way.
    """
    mapped(reply, lambda each: each.checked() if isinstance(each, RelativeInstant) else each)


def same(one: object, other: object) -> bool:
    """Compare two values, types included.

    Raises:
        InstantRefused: They differ only in instants beyond the horizon, so the answer is unknown.
    """
    try:
        return exactly(one) == exactly(other)
    except InstantRefused as refused:
        if exactly(plain(one)) == exactly(plain(other)):
            raise
        refused.forget()
        return False


def unchanged(one: object, other: object) -> bool:
    return _computed(lambda both: exactly(both[0]) == exactly(both[1]), (one, other))


def plain_text(value: object) -> str:
    return _computed(show, value)


def by_text(values: Iterable[V]) -> tuple[V, ...]:
    found = tuple(values)
    return found if len(found) < 2 else tuple(sorted(found, key=plain_text))


def plain_str(value: object) -> str:
    return _computed(str, value)


def _computed(compute: Callable[[V], T], value: V) -> T:
    try:
        return compute(value)
    except InstantRefused as refused:
        refused.forget()
        return compute(cast("V", plain(value)))


@final
class Unknown:
    """A difference of two instants, one beyond the horizon: a number known on one side only.

    Args:
        bound: In microseconds.
        is_least: True if the number is the bound or more; False if it is the bound or less.
    """

    __slots__ = ("bound", "horizon", "is_least")

    def __init__(self, horizon: Horizon, bound: Duration, *, is_least: bool) -> None:
        self.horizon, self.bound, self.is_least = horizon, bound, is_least

    def _is_above(self, number: object, *, or_equal: bool) -> bool:
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
        self._is_above(number, or_equal=not self.is_least)  # raises if the answer is unknown
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
