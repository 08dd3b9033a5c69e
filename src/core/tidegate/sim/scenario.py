"""A scenario: a world, whatever moves in it, a budget of faults, laws, and what it expects.

Everything that moves is an actor over cells: processes, the network, a clock, a group coordinator. A step of an actor is
what happened, the world afterwards, whether it must happen in the end, and which fault it was, if any.

Laws see the cells, and where processes stand:
    always       a predicate over a state
    step         a predicate over two states, one step apart; it holds when nothing changes
    eventually   a predicate over every state at rest: no step that must happen is left, faults aside
    sometimes    a goal that must be reached, so that an exploration which proves nothing says so

A scenario is expected to be clean, or expected to break one law that it names; breaking another one is not what it
expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum, unique
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, final

import attrs

from tidegate.documents import show
from tidegate.effects import Effect
from tidegate.errors import Misuse
from tidegate.instants import Duration
from tidegate.operations import FindOne, FindOneAndUpdate
from tidegate.sim.world import FAULTS, Cell, Plain, World

V = TypeVar("V")


@final
@unique
class Fault(StrEnum):
    """What may go wrong, one line each. Every occurrence spends one of the scenario's faults."""

    CRASH_BEFORE = "crash_before"
    """The process dies before its next effect."""
    CRASH_AFTER = "crash_after"
    """The process dies after its last effect, before anyone hears of its result."""
    RESTART = "restart"
    """A dead process starts again as a new life, with new request ids."""
    UNSENT = "unsent"
    """The request was never sent, and the caller knows it (NotApplied)."""
    DROPPED = "dropped"
    """The request is lost; the caller cannot tell (Ambiguous)."""
    LOST_REPLY = "lost_reply"
    """The request takes effect, and its reply is lost (Ambiguous)."""
    LATE = "late"
    """The caller gives up (Ambiguous); the request takes effect at any later point."""
    EVICTED = "evicted"
    """A member of a group stalls beyond its session and is put out while it goes on working."""
    GAVE_UP = "gave_up"
    """The time to drain is over before the work is."""
    FAILED = "failed"
    """User code raises."""


@final
class Label(NamedTuple):
    """What happened in a step.

    Attributes:
        what: An effect, or a verb, or what did not come to be.
        reply: What was heard, or in a `Trouble` why nothing was.
    """

    what: object
    reply: object = ""

    def __str__(self) -> str:
        finds = isinstance(self.what, (FindOne, FindOneAndUpdate))  # only there is None an answer
        if self.reply == "" or (self.reply is None and not finds):
            return str(self.what)
        return f"{self.what} -> {self.reply if isinstance(self.reply, Trouble) else show(self.reply)}"


@final
@attrs.frozen
class Undone:
    """What a process did not come to do, for it crashed before."""

    effect: Effect[object]

    def __str__(self) -> str:
        return f"crashes before it could {self.effect}"


@final
@attrs.frozen
class Trouble:
    """Why no reply was heard, in words."""

    what: str

    def __str__(self) -> str:
        return self.what


@final
class Step(NamedTuple):
    """One thing that may happen next.

    Attributes:
        label: What happens.
        world: The world afterwards.
        must: It happens in the end, unless something else disables it. Faults never must.
        fault: Which fault it is, if any.
    """

    label: Label
    world: World
    must: bool = True
    fault: Fault | None = None


class Actor(Protocol):
    """Whatever moves. All that it knows lies in cells.

    Attributes:
        name: Its lane in a trace.
        place: Its steps are remembered apart for each value of this cell; None for all in one.
        blind: It overwrites cells without reading them.
    """

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> Cell[object] | None: ...
    @property
    def blind(self) -> bool: ...
    def steps(self, world: World, /) -> Iterator[Step]: ...


class Stands(Actor, Protocol):
    """A process: an actor that begins, and that laws can ask where it stands."""

    def begin(self, world: World, /) -> World: ...
    def standing(self, place: object, /) -> object: ...
    def later(self, place: object, by: Duration, horizon: Duration, /) -> object: ...
    @property
    def unmerged(self) -> tuple[str, ...]: ...
    @property
    def has_raised(self) -> bool: ...


class State(Protocol):
    """What a law may look at."""

    def read(self, cell: Cell[V], /) -> V: ...
    def standing(self, process: str, /) -> object: ...


Law: TypeAlias = Callable[[State], bool]
StepLaw: TypeAlias = Callable[[State, State], bool]
Which: TypeAlias = Callable[[Effect[object]], bool]


def anything(effect: Effect[object]) -> bool:  # noqa: ARG001  the predicate that is true of all
    return True


def nothing(effect: Effect[object]) -> bool:  # noqa: ARG001  the predicate that is true of none
    return False


@final
@attrs.frozen
class Faults:
    """Which faults may strike a process, and which of its effects.

    Attributes:
        kinds: Each with the effects that it may strike; crashes and restarts strike whatever comes.
    """

    kinds: Mapping[Fault, Which] = attrs.field(factory=dict)

    @classmethod
    def of(cls, *kinds: Fault, on: Which = anything) -> Faults:
        """These kinds, each on the effects that `on` picks."""
        return cls(dict.fromkeys(kinds, on))

    def strikes(self, kind: Fault, effect: Effect[object]) -> bool:
        which = self.kinds.get(kind)
        return which is not None and which(effect)

    def allows(self, kind: Fault) -> bool:
        return kind in self.kinds


@final
@attrs.frozen
class Clock:
    """How time passes while processes stand: by one quantum, at any point.

    Relative: instants are kept relative to now and are equal beyond the horizon, so time is unbounded. It fits as long as
    no program holds an instant across an await. Absolute: instants are what they are, and the number of moves is bounded.
    Relative is used where it fits, unless `horizon` is None; else absolute, and the verdict says why.

    Attributes:
        quantum: In microseconds; whole milliseconds.
        horizon: The largest age that is ever compared, in microseconds; None for absolute time.
        moves: How often the clock may move in absolute time.
    """

    quantum: Duration
    horizon: Duration | None = None
    moves: int = 0

    def __attrs_post_init__(self) -> None:
        if self.quantum <= 0 or self.quantum % 1_000:
            raise Misuse(f"a quantum of {self.quantum} us", why="documents keep whole milliseconds")
        if self.horizon is not None and (self.horizon < 0 or self.horizon % 1_000):
            raise Misuse(f"a horizon of {self.horizon} us", why="it is 0 or more whole milliseconds, as in documents")
        if self.moves < 0:
            raise Misuse(f"{self.moves} moves of a clock")


@final
@unique
class Kind(StrEnum):
    """Whether what is explored is meant to be right."""

    PROGRAM = "program"
    SPECIMEN = "specimen"


@final
@attrs.frozen(eq=False)
class Scenario:
    """What is explored, and what is expected of it.

    Attributes:
        name: How it is asked for.
        summary: One line for people.
        world: How it begins.
        actors: Whatever moves.
        budget: How many faults may strike, all kinds together.
        clock: How time passes; None: it stands.
        always, step, eventually, sometimes: Its laws by name. A law in parts holds if all of them do; each part is
            remembered under what it looked at, so one part a process is quicker than one over all of them.
        expect: The law that it is expected to break; None: it is expected to be clean.
        kind: A program of ours, or a specimen: a faulty variant that the laws must catch.
    """

    name: str
    summary: str
    world: Plain
    actors: tuple[Actor, ...]
    budget: int = 0
    clock: Clock | None = None
    always: Mapping[str, Law | tuple[Law, ...]] = attrs.field(factory=dict)
    step: Mapping[str, StepLaw] = attrs.field(factory=dict)
    eventually: Mapping[str, Law] = attrs.field(factory=dict)
    sometimes: Mapping[str, Law] = attrs.field(factory=dict)
    expect: str | None = None
    kind: Kind = Kind.PROGRAM

    def __attrs_post_init__(self) -> None:
        names = [actor.name for actor in self.actors]
        if len(set(names)) != len(names):
            raise Misuse(f"two actors have one name: {names}", where=f"scenario {self.name}")
        laws = [*self.always, *self.step, *self.eventually]
        if len(set(laws)) != len(laws):
            raise Misuse(f"two laws have one name: {laws}", where=f"scenario {self.name}")
        if self.expect is not None and self.expect not in laws:
            raise Misuse(
                f"it expects to break {self.expect!r}, which is no law of it",
                where=f"scenario {self.name}",
                todo=f"its laws are: {', '.join(laws)}",
            )
        if self.budget < 0:
            raise Misuse(f"a budget of {self.budget} faults", where=f"scenario {self.name}")


def spent(world: World) -> World | None:
    """The world with one fault less to come, or None if none is left."""
    return world.taken(FAULTS)
