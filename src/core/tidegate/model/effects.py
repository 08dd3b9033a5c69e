"""Effects: the operations that a program may await, and their replies.

A program is an `async def` that awaits effects and nothing else:

    record = await find_one(RECORDS, Eq(ID, key))          # record: Document | None

No event loop is involved. `Effect.__await__` yields the effect and returns the reply that the
driver, the simulator or a replay sends. The type checkers (`unused-awaitable`) and
`tidegate.model.unawaited` detect a forgotten `await`; with `yield from` no type checker would.
Between two awaits a program holds immutable values only, so it is itself a value
(`tidegate.sim.program.fingerprint`).

Failures are values too, raised into the program. The kind alone decides the next action:

    Refused      the world refused, definitely             never retry
    NotApplied   definitely not done                       a retry is free
    Ambiguous    it may have been done                     retry only if the effect recognises its
        own repetition
    NotDurable   done, but no majority has confirmed it    assert it again, do not redo it
    Unreadable   done, but no program can hold the reply   request less: a retry is unreadable again
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Final, Generic, TypeAlias, TypeVar, final

import attrs

from tidegate.model.errors import UnknownEffect, typed
from tidegate.model.instants import PPM, Duration, Instant, jittered, seconds
from tidegate.model.values import check_int, check_type, field_names

Reply_co = TypeVar("Reply_co", covariant=True)
T = TypeVar("T")


class Effect(Generic[Reply_co]):
    """One atomic operation of the world."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect[object], object, Reply_co]:
        # On its own line: any other value on the stack here would be part of the suspended
        # program's state.
        reply = yield self
        return reply  # type: ignore[return-value]  # no cast, which would be a call on the way of each effect


Program: TypeAlias = Coroutine[Effect[object], object, T]


def checked_effect(asked: object) -> Effect[object]:
    if not isinstance(asked, Effect):
        raise UnknownEffect(
            f"a program awaited {typed(asked)}, which is not an effect",
            why="programs await effects and nothing else: no sleep of an event loop, no future, no generator of values",
            todo="ask the world with an effect, such as find_one(...), Sleep(...) or Call(...)",
        )
    return asked


class Failure(Exception):  # noqa: N818  a reply, not an error: it is caught in the straight path of programs
    """A reply that is raised into the program; `reason` is one line without secrets."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failure) and type(self) is type(other) and self.reason == other.reason

    def __hash__(self) -> int:
        return hash((type(self), self.reason))

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.reason})"

    def fresh(self) -> Failure:
        """A copy to raise, because a raised exception collects a traceback and a context."""
        return type(self)(self.reason)


@final
class Refused(Failure):
    """The world refused, definitely: duplicate key, not authorised, validation."""


DUPLICATE_KEY: Final = "duplicate key"
"""The reason of a refusal by a unique index begins so; `is_duplicate` relies on it."""


def duplicate_key(*fields: str) -> Refused:
    """A write would duplicate the values of a unique index.

    The reason names the index: only a taken id may be the caller's own earlier request.
    """
    return Refused(DUPLICATE_KEY if fields == ("_id",) else f"{DUPLICATE_KEY} of the index on {', '.join(fields)}")


def is_duplicate(failure: Failure) -> bool:
    """Whether a unique index, that of the ids included, refused the write."""
    return isinstance(failure, Refused) and failure.reason.startswith(DUPLICATE_KEY)


@final
class NotApplied(Failure):
    """Definitely not done."""


@final
class Ambiguous(Failure):
    """It may have been done: reply lost, timeout, garbage."""


TOO_LATE: Final = "too late"
"""The reason of an `Ambiguous` write begins so if its time limit at the store ran out."""


def is_too_late(failure: Failure) -> bool:
    """Whether the time limit of a write ran out at the store, which is reachable."""
    return isinstance(failure, Ambiguous) and failure.reason.startswith(TOO_LATE)


@final
class NotDurable(Failure):
    """Done, but not confirmed by a majority."""


@final
class Unreadable(Failure):
    """Done, but no document can hold the reply; the reason says what and where."""


@final
@attrs.frozen
class Now(Effect[Instant]):
    """Read the clock of the calling machine (`WALL`)."""

    def __str__(self) -> str:
        return "read the clock"


@final
@attrs.frozen
class Sleep(Effect[None]):
    """Wait for microseconds. Invariants: 0 <= duration; 0 <= jitter_ppm <= PPM.

    Up to `jitter_ppm` of the duration is cut off, at random, so that sleepers do not wake together.
    """

    duration: Duration
    jitter_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.duration, "a time to sleep", 0)
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)

    @property
    def least(self) -> Duration:
        return self.lasting(PPM)

    def lasting(self, draw_ppm: int) -> Duration:
        return jittered(self.duration, self.jitter_ppm, draw_ppm)

    def __str__(self) -> str:
        return f"sleep {f'{seconds(self.least)} to ' if self.jitter_ppm else ''}{seconds(self.duration)}"


@final
@attrs.frozen(cache_hash=True)
class Cancel(Effect[None]):
    """Cancel an effect that has not happened yet: a timer, a call of user code."""

    effect: Effect[object]

    def __attrs_post_init__(self) -> None:
        check_type(self.effect, Effect, "an effect")

    def __str__(self) -> str:
        return f"cancel {self.effect}"


@final
@attrs.frozen(cache_hash=True)
class Call(Effect[object]):
    """Call the user code registered under `name` and reply its value.

    With `catches` an error is raised into the program, as `Refused`. Otherwise the program ends and
    the runner gets the error.
    """

    name: str
    arguments: tuple[object, ...] = ()
    catches: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_type(self.name, str, "the name of user code")
        check_type(self.arguments, tuple, "the arguments of user code")
        check_type(self.catches, bool, "catches")

    def __str__(self) -> str:
        return f"call {self.name}({', '.join(map(_text, self.arguments))})"


@final
@attrs.frozen(cache_hash=True)
class Note(Effect[None]):
    """Set the process's note `name` to `value`. Laws read notes; adapters ignore them."""

    name: str
    value: object

    def __attrs_post_init__(self) -> None:
        check_type(self.name, str, "the name of a mark")

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else _text(self.value)
        return f"note {self.name}: {value}"


def _text(value: object) -> str:
    """A set prints in order, because `str` of a set depends on the run."""
    if not _holds_set(value):
        return str(value)
    from tidegate.model.documents.printing import show  # noqa: PLC0415  documents import this module

    return show(value)


def _holds_set(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_holds_set, value))
    names = field_names(type(value)) or ()
    return isinstance(value, frozenset) or any(_holds_set(getattr(value, name)) for name in names)
