"""Effects: what a program may ask of the world, and what the world replies.

A program is an `async def` that awaits effects and nothing else:

    record = await find_one(RECORDS, Eq(ID, key))          # record: Document | None

No event loop is involved. Awaiting runs `Effect.__await__`, which yields the effect itself once and returns the reply,
typed by the class parameter. Whoever runs the program sends the replies: the drivers, the simulator, a replay. A forgotten
`await` is an error of the type checkers (`unused-awaitable`), of the simulator and a warning of the drivers
(`tidegate.model.unawaited`); with generators and `yield from` no type checker would see it.

Between two awaits a program holds immutable values only, so that it is itself a value (`tidegate.sim.fingerprint`).

Failures are values too: equal by kind and content, raised into the program so that the straight path reads straight.
There are five kinds, by what is known of the effect, because the kind alone says what to do next:

    Refused      the world said no, definitely             never try again
    NotApplied   definitely not done                       trying again is free
    Ambiguous    it may have been done                     only what carries its own recognition may be tried again
    NotDurable   done, but no majority has confirmed it    assert it again, do not redo it
    Unreadable   done, but no program can hold the reply   ask for less: the same again is unreadable again
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
    """One atomic operation of the world; subclasses are frozen attrs values."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect[object], object, Reply_co]:
        # On a line of its own: what else lay on the value stack here would be part of the suspended program's state.
        reply = yield self
        return reply  # type: ignore[return-value]  # no cast, which would be a call on the way of each effect


Program: TypeAlias = Coroutine[Effect[object], object, T]
"""A suspended run of an `async def` that awaits effects and returns a T."""


def checked_effect(asked: object) -> Effect[object]:
    """What a program awaited, if it is an effect."""
    if not isinstance(asked, Effect):
        raise UnknownEffect(
            f"a program awaited {typed(asked)}, which is not an effect",
            why="programs await effects and nothing else: no sleep of an event loop, no future, no generator of values",
            todo="ask the world with an effect, such as find_one(...), Sleep(...) or Call(...)",
        )
    return asked


class Failure(Exception):  # noqa: N818  a reply, not an error: it is caught in the straight path of programs
    """A reply that is raised into the program.

    Args:
        reason: What the world said, in one line, without secrets.
    """

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
        """A copy to throw: an exception that was thrown has collected a traceback and a context."""
        return type(self)(self.reason)


@final
class Refused(Failure):
    """The world said no, definitely: duplicate key, not authorised, validation."""


DUPLICATE_KEY: Final = "duplicate key"
"""Why an insert is refused where the id is taken. `is_duplicate` goes by this beginning of the reason, so whoever refuses a
duplicate begins with it (`duplicate_key`)."""


def duplicate_key(*fields: str) -> Refused:
    """The refusal of a write that would give two documents the same values in the fields of a unique index.

    It names the index: an id that is taken may be one's own earlier request, the value of another index hardly is.
    """
    return Refused(DUPLICATE_KEY if fields == ("_id",) else f"{DUPLICATE_KEY} of the index on {', '.join(fields)}")


def is_duplicate(failure: Failure) -> bool:
    """Tell whether a unique index, that of the ids included, refused the write."""
    return isinstance(failure, Refused) and failure.reason.startswith(DUPLICATE_KEY)


@final
class NotApplied(Failure):
    """Definitely not done; a retry is free."""


@final
class Ambiguous(Failure):
    """It may have been done: reply lost, time-out, garbage."""


TOO_LATE: Final = "too late"
"""Why a write is `Ambiguous` whose time limit at the store ran out; its reason begins so."""


def is_too_late(failure: Failure) -> bool:
    """Tell whether the store answered that the time limit of a write ran out: it answers, and something held the write up."""
    return isinstance(failure, Ambiguous) and failure.reason.startswith(TOO_LATE)


@final
class NotDurable(Failure):
    """Done, but a majority has not confirmed it."""


@final
class Unreadable(Failure):
    """Done, but the reply holds what no document of `tidegate.model.documents` can: the reason says what, and where."""


@final
@attrs.frozen
class Now(Effect[Instant]):
    """Reads the clock of the machine that asks (`WALL`)."""

    def __str__(self) -> str:
        return "read the clock"


@final
@attrs.frozen
class Sleep(Effect[None]):
    """Waits. Invariants: 0 <= duration, in microseconds; 0 <= jitter_ppm <= PPM.

    Attributes:
        duration: For how long.
        jitter_ppm: Which part of that is left out, at most; how much of it is for whoever runs the program to draw, so
            that many who wait do not wake together.
    """

    duration: Duration
    jitter_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.duration, "a time to sleep", 0)
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)

    @property
    def least(self) -> Duration:
        """How long it lasts at least, in microseconds."""
        return self.lasting(PPM)

    def lasting(self, draw_ppm: int) -> Duration:
        """How long it lasts, in microseconds, by a random number from 0 to PPM."""
        return jittered(self.duration, self.jitter_ppm, draw_ppm)

    def __str__(self) -> str:
        return f"sleep {f'{seconds(self.least)} to ' if self.jitter_ppm else ''}{seconds(self.duration)}"


@final
@attrs.frozen(cache_hash=True)
class Cancel(Effect[None]):
    """Withdraws an effect that this process asked for and that has not happened yet: a timer, a call of user code."""

    effect: Effect[object]

    def __attrs_post_init__(self) -> None:
        check_type(self.effect, Effect, "an effect")

    def __str__(self) -> str:
        return f"cancel {self.effect}"


@final
@attrs.frozen(cache_hash=True)
class Call(Effect[object]):
    """Calls the user code that is registered under `name`, with values as arguments, and replies its value.

    Attributes:
        name: Of the user code.
        arguments: What it is called with.
        catches: An error of the user code is raised into the program, as `Refused` with its type and its text. Otherwise
            whoever runs the program gets the error, and the program ends where it stands.
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
    """A mark that laws can see and adapters ignore: from now on, the process's note `name` is `value`."""

    name: str
    value: object

    def __attrs_post_init__(self) -> None:
        check_type(self.name, str, "the name of a mark")

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else _text(self.value)
        return f"note {self.name}: {value}"


def _text(value: object) -> str:
    """What it prints as; a set in order, for how `str` prints it depends on the run."""
    if not _holds_set(value):
        return str(value)
    from tidegate.model.documents.printing import show  # noqa: PLC0415  documents import this module

    return show(value)


def _holds_set(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_holds_set, value))
    names = field_names(type(value)) or ()
    return isinstance(value, frozenset) or any(_holds_set(getattr(value, name)) for name in names)
