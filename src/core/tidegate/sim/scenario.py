"""A scenario: a world, actors, a budget of faults, laws, and the expected result.

Everything that moves is an actor over cells: processes, the network, a clock, a group coordinator.
A step has a label, the world after it, whether it must happen in the end, and its fault, if any.

Laws read the cells and the status of processes:
    always       a predicate over a state
    step         a predicate over two states, one step apart; it holds when nothing changes
    eventually   a predicate over every state at rest: no step that must happen is left, faults
                 aside
    sometimes    a goal that must be reached, which shows an exploration that proves nothing

A scenario is expected to be clean, or to break one named law; a break of another law is unexpected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum, unique
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import NoneType
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import show
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse, shown, typed
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.operations import FindOne, FindOneAndUpdate
from tidegate.model.transactions import InTransaction
from tidegate.model.values import check_callable, check_int, check_tuple, check_type, got
from tidegate.sim.program.automaton import ProgramAutomaton
from tidegate.sim.program.isolation_check import check_apart
from tidegate.sim.world.alike import check_alike
from tidegate.sim.world.clocks import HOST, check_hosts
from tidegate.sim.world.faults import FAULTS, REBALANCES, Fault, Faults, bound
from tidegate.sim.world.world import CLOCK, Cell, Flying, Plain, World, perform

L = TypeVar("L")
V = TypeVar("V")

CLOCK_LANE: Final = "clock"
"""The clock's lane in traces."""
_BUDGET_MAX: Final = 1_000_000
NO_ERROR: Final = "no program raises an error"
"""A law of every scenario."""


@final
class Label(NamedTuple):
    """What happens in a step.

    Attributes:
        what: An effect, a verb, or an effect that did not happen.
        reply: The reply; a `Trouble` if there was none.
    """

    what: object
    reply: object = ""

    def __str__(self) -> str:
        done = self.what.operation if isinstance(self.what, InTransaction) else self.what
        finds = isinstance(done, (FindOne, FindOneAndUpdate))  # None is a reply only of these
        if self.reply == "" or (self.reply is None and not finds):
            return str(self.what)
        return f"{self.what} -> {self.reply if isinstance(self.reply, Trouble) else show(self.reply)}"


@final
@attrs.frozen
class Undone:
    """An effect that a crash prevents."""

    effect: Effect[object]

    def __str__(self) -> str:
        return f"crashes before it could {self.effect}"


@final
@attrs.frozen
class Delivers:
    """A request in flight arrives."""

    request: Flying

    def __str__(self) -> str:
        return f"delivers {self.request}"


@final
@attrs.frozen
class Trouble:
    """Why there was no reply."""

    what: str

    def __str__(self) -> str:
        return self.what


@final
class ActorStep(NamedTuple):
    """A possible next step.

    Attributes:
        label: What happens.
        world: The world after it.
        must: It happens in the end, unless another step disables it. A fault never must.
    """

    label: Label
    world: World
    must: bool = True
    fault: Fault | None = None


class Actor(Protocol):
    """Anything that moves. It keeps all its state in cells.

    Attributes:
        name: Its lane in a trace.
        place: The cell by whose values its steps are remembered; None for one memory.
        blind: It overwrites cells without reading them.
    """

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> Cell[object] | None: ...
    @property
    def blind(self) -> bool: ...
    def steps(self, world: World, /) -> Iterator[ActorStep]: ...


class ProcessActor(Actor, Protocol):
    """A process: an actor with a start, and with a status for laws."""

    def begin(self, world: World, /) -> World: ...
    def status(self, place: object, /) -> object: ...
    @property
    def unmerged(self) -> tuple[str, ...]: ...
    def in_time(self, *, is_relative: bool) -> None: ...
    @property
    def unexplored(self) -> tuple[str, ...]: ...
    @property
    def has_raised(self) -> bool: ...
    @property
    def automata(self) -> Iterable[ProgramAutomaton]: ...


class State(Protocol):
    """The view of a law."""

    def read(self, cell: Cell[V], /) -> V: ...
    def status(self, process: str, /) -> object: ...


Law: TypeAlias = Callable[[State], bool]
StepLaw: TypeAlias = Callable[[State, State], bool]


@final
@attrs.frozen
class NoLongerThan:
    """A law: something lasts at most `length`, by the store's clock.

    `NoLongerThan(MINUTE, lambda state: contents(state, "locks")[0][SINCE])` bounds the age of a
    lock.

    Attributes:
        length: In microseconds; below the clock's horizon, beyond which all lengths are equal.
        since: Reads its start from the state; None if it does not last.
    """

    length: Duration
    since: Callable[[State], Instant | None]

    def __attrs_post_init__(self) -> None:
        check_int(self.length, "a length of time in microseconds", 0)
        check_callable(self.since, "a function that says since when")

    def __call__(self, state: State) -> bool:
        since = self.since(state)
        check_type(since, (Instant, NoneType), "since when something lasts")
        return since is None or state.read(CLOCK) - since <= self.length


@final
@attrs.frozen
class Clock:
    """Time passes by one quantum at any point, while processes pause.

    Relative time keeps instants relative to now. Beyond the horizon they are equal, so time is
    unbounded. It requires that no program holds an instant across an await and that code compares
    only ages within the horizon; the simulator checks both. Absolute time keeps instants as they
    are and bounds the number of moves. Relative time is used if it fits and `horizon` is not None;
    otherwise the verdict gives the reason (docs/time.md).

    Attributes:
        quantum: In microseconds; whole milliseconds.
        horizon: The largest age that code compares, in microseconds; None for absolute time.
        moves: How often the clock may move in absolute time.
    """

    quantum: Duration
    horizon: Duration | None = None
    moves: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.quantum, "a quantum in microseconds", 1)
        if self.horizon is not None:
            check_int(self.horizon, "a horizon in microseconds", 0)
        check_int(self.moves, "a number of moves of a clock", 0)
        if self.quantum % 1_000:
            raise Misuse(f"a quantum of {self.quantum} us", why="documents keep whole milliseconds")
        if self.horizon is not None and self.horizon % 1_000:
            raise Misuse(f"a horizon of {self.horizon} us", why="documents keep whole milliseconds")
        if self.moves > _BUDGET_MAX:
            raise Misuse(f"{self.moves} moves of a clock", why=f"they are from 0 to {_BUDGET_MAX:,}")


def _check_answers(law: object, name: str, scenario: str) -> None:
    """Raise Misuse for a law that returns a coroutine or a generator, which is always true."""
    kinds: tuple[tuple[str, Callable[[object], bool], str], ...] = (
        ("an `async def`", iscoroutinefunction, "write a plain `def`: a law awaits nothing"),
        ("a generator", isgeneratorfunction, "write `return all(...)` instead of `yield`"),
        ("an asynchronous generator", isasyncgenfunction, "write a plain `def` that returns a bool"),
    )
    for kind, is_one, todo in kinds:
        if is_one(law):
            raise Misuse(
                f"the law {name!r} is {kind}",
                where=f"scenario {scenario}",
                why="what it answers is always true",
                todo=todo,
            )


def by_itself(world: World) -> World:
    """Prepare nothing for a restart."""
    return world


def parts_of(law: L | tuple[L, ...]) -> tuple[L, ...]:
    return law if isinstance(law, tuple) else (law,)


def _keeps_history(actor: Actor) -> bool:
    return getattr(getattr(actor, "meaning", None), "keeps_history", False)


def _meant(actor: Actor) -> object:
    """The meaning of its requests, also behind `when_quiet`."""
    meaning: object = getattr(actor, "meaning", None)
    while hasattr(meaning, "delivered"):
        meaning = meaning.delivered
    return meaning


def _may(actor: Actor, kind: Fault) -> bool:
    faults: object = getattr(actor, "faults", None)
    return isinstance(faults, Faults) and faults.allows(kind)


@final
@unique
class Kind(StrEnum):
    """Whether a scenario is meant to be correct."""

    DESIGN = "design"
    SPECIMEN = "specimen"


@final
@attrs.frozen(eq=False)
class Scenario:
    """A scenario and its expected result.

    Attributes:
        budget: How many faults may occur in a run, of all kinds. By default 1 if an actor declares
            or makes faults, as `Crash` does, else 0.
        budget_is_default: Whether no budget was given.
        budgets: Smaller limits by kind of fault; 0 for never.
        clock: How time passes. With None it does not, and a sleep ends at once (docs/time.md).
        always, step, eventually, sometimes: Its laws by name. A law in parts holds if all parts do.
            Each part is remembered by the cells that it reads, so one part per process is faster.
        expect: The law that it should break; None for clean.
        kind: A design, or a specimen: a faulty variant that the laws must catch.
        symmetric: Groups of interchangeable processes, which differ only in their names.
        written_only: Names of state outside of programs that no code reads, for example counters of
            metrics, a mock, or a list that a test reads later. Its changes make no verdict
            inconclusive. The assumption is not checked; `uncovered` reports it.
    """

    name: str
    summary: str
    world: Plain
    actors: tuple[Actor, ...]
    budget_is_default: bool = attrs.field(init=False, default=False)  # before `budget`, whose default sets it
    budget: int = attrs.field()
    budgets: Mapping[Fault, int] = attrs.field(factory=dict, kw_only=True)
    clock: Clock | None = None
    always: Mapping[str, Law | tuple[Law, ...]] = attrs.field(factory=dict)
    step: Mapping[str, StepLaw | tuple[StepLaw, ...]] = attrs.field(factory=dict)
    eventually: Mapping[str, Law | tuple[Law, ...]] = attrs.field(factory=dict)
    sometimes: Mapping[str, Law | tuple[Law, ...]] = attrs.field(factory=dict)
    expect: str | None = None
    kind: Kind = Kind.DESIGN
    symmetric: tuple[tuple[str, ...], ...] = attrs.field(default=(), kw_only=True)
    written_only: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    @budget.default
    def _(self) -> int:
        object.__setattr__(self, "budget_is_default", True)
        actors: object = self.actors  # checked below
        declared = [getattr(actor, "faults", None) for actor in actors] if isinstance(actors, tuple) else []
        made = any(getattr(actor, "makes", ()) for actor in actors) if isinstance(actors, tuple) else False
        return int(made or any(isinstance(faults, Faults) and faults.kinds for faults in declared))

    def __attrs_post_init__(self) -> None:
        self._check_types()
        names = [actor.name for actor in self.actors]
        if len(set(names)) != len(names):
            raise Misuse(
                f"two actors have one name: {names}",
                where=f"scenario {self.name}",
                todo="rename one: each actor has a name of its own",
            )
        if CLOCK_LANE in names and self.clock is not None:
            raise Misuse(
                f"an actor is called {CLOCK_LANE!r}",
                where=f"scenario {self.name}",
                why="the clock of the scenario has that name in traces",
                todo="give the actor another name",
            )
        births = [(actor.name, birth) for actor in self.actors if (birth := getattr(actor, "birth", None)) is not None]
        check_apart(births, f"scenario {self.name}")
        check_hosts((getattr(actor, "host", HOST) for actor in self.actors), f"scenario {self.name}")
        laws = [*self.always, *self.step, *self.eventually]
        if len(set(laws)) != len(laws):
            raise Misuse(f"two laws have one name: {laws}", where=f"scenario {self.name}")
        if NO_ERROR in (*laws, *self.sometimes):
            raise Misuse(
                f"a law is called {NO_ERROR!r}",
                where=f"scenario {self.name}",
                why="every scenario has a law of that name",
                todo="give the law another name",
            )
        if self.expect is not None and self.expect not in laws:
            raise Misuse(
                f"it expects to break {self.expect!r}, which is not a law of it",
                where=f"scenario {self.name}",
                todo=f"its laws are: {', '.join(laws)}",
            )
        horizon = None if self.clock is None else self.clock.horizon
        for actor in self.actors if horizon is not None else ():
            if getattr(actor, "host", HOST).stall and _may(actor, Fault.STALL):
                raise Misuse(
                    f"{actor.name} may stall by a fault, and time passes by itself",
                    where=f"scenario {self.name}",
                    why="in relative time it may pass at any point while anybody stands, which is a stall and costs nothing",
                    todo="leave the fault out, or let time be absolute: Clock(horizon=None)",
                )
        for name, law in {**self.always, **self.eventually, **self.sometimes}.items():
            for part in parts_of(law):
                if isinstance(part, NoLongerThan) and horizon is not None and part.length >= horizon:
                    raise Misuse(
                        f"the law {name!r} asks whether {seconds(part.length)} are over, and the horizon is {seconds(horizon)}",
                        where=f"scenario {self.name}",
                        why="beyond the horizon all lengths of time are the same",
                        todo="let the clock of the scenario have a horizon that is further away",
                    )
        self._check_same()
        object.__setattr__(self, "actors", self._delivering())
        self._check_history()
        self._check_group()
        grouped = [name for group in self.symmetric for name in group]
        if len(set(grouped)) != len(grouped) or not set(grouped) <= set(names):
            raise Misuse(
                f"no groups of processes: {self.symmetric}", where=f"scenario {self.name}", todo="name each once"
            )
        check_alike(self.symmetric, {actor.name: actor for actor in self.actors}, f"scenario {self.name}")
        rebalances = self.world.read(REBALANCES)
        check_type(rebalances, int, "a number of rebalances")
        for what, budget in (("faults", self.budget), ("rebalances", rebalances), *self.budgets.items()):
            if not 0 <= budget <= _BUDGET_MAX:
                raise Misuse(
                    f"a budget of {budget} {what}",
                    where=f"scenario {self.name}",
                    why=f"it is from 0 to {_BUDGET_MAX:,}",
                )

    def _check_same(self) -> None:
        """Raise Misuse if an actor refers to another object than the process of that name."""
        for actor in self.actors:
            meaning = getattr(actor, "meaning", None)
            others = (
                getattr(actor, "processes", ()),
                getattr(actor, "reducers", ()),
                getattr(meaning, "processes", ()),
            )
            for other in (each for group in others for each in group):
                if not any(other is each for each in self.actors):
                    raise Misuse(
                        f"{actor.name} is about a process {shown(other.name)} that is not among the actors",
                        where=f"scenario {self.name}",
                        why="it is asked where it stands, and one of the same name knows nothing of it",
                        todo="give both the same object",
                    )

    def _check_history(self) -> None:
        """Raise Misuse if the history of a stream would miss a write that arrives late."""
        keeping = [actor for actor in self.actors if _keeps_history(actor)]
        late = [each.name for each in keeping if _may(each, Fault.LATE) or _may(each, Fault.DUPLICATE)]
        for actor in self.actors if late else ():
            if hasattr(actor, "meaning") and not hasattr(actor, "faults") and not _keeps_history(actor):
                raise Misuse(
                    f"{actor.name} delivers what {late[0]} writes, and keeps no history of it",
                    where=f"scenario {self.name}",
                    why="a stream would not tell it",
                    todo="give both the meaning of the stream: Network(stream.meaning())",
                )

    def _delivering(self) -> tuple[Actor, ...]:
        """Give an actor that delivers requests, and has no meaning, that of the sending processes.

        Raises:
            Misuse: They have several.
        """
        late = [each for each in self.actors if _may(each, Fault.LATE) or _may(each, Fault.DUPLICATE)]
        meanings: list[object] = []
        for each in late:
            if hasattr(each, "meaning") and (meant := _meant(each)) not in meanings:
                meanings.append(meant)

        def given(actor: Actor) -> Actor:
            if getattr(actor, "meaning", perform) is not None or meanings in ([], [perform]):
                return actor
            if len(meanings) > 1 or not attrs.has(type(actor)):
                raise Misuse(
                    f"{actor.name} delivers what {', '.join(each.name for each in late)} send, by another meaning",
                    where=f"scenario {self.name}",
                    why="what arrives late would mean something else than what is done at once",
                    todo="give it the meaning by which all of it is done: Network(meaning)",
                )
            return attrs.evolve(actor, meaning=meanings[0])  # type: ignore[misc]

        return tuple(map(given, self.actors))

    def _check_group(self) -> None:
        """Raise Misuse if a member of a group may restart and does not rejoin."""
        _, group = self.world.cells.get(("group",), (None, None))
        members, owners = getattr(group, "members", ()), getattr(group, "owners", ())
        check_tuple(members, str, "a member of a group")
        check_tuple(owners, str, "the owner of a partition")
        if group is not None and not getattr(group, "rebalancing", True):
            for owner in owners:
                if owner and owner not in members:
                    raise Misuse(
                        f"{shown(owner)} owns a partition, and is no member of the group",
                        where=f"scenario {self.name}",
                        todo=f"its members are: {', '.join(members)}",
                    )
        for actor in self.actors if any(hasattr(actor, "rejoins") for actor in self.actors) else ():
            cell, prepared = getattr(actor, "dead", None), getattr(actor, "prepared", None)
            member = cell.name[-1] if isinstance(cell, Cell) else ""
            if prepared is not None and prepared is by_itself and member in members:
                raise Misuse(
                    f"{actor.name} starts {member} again, which is a member of a group",
                    where=f"scenario {self.name}",
                    why="who starts again is a new member, and nobody says that it joins",
                    todo=f"write Restart(..., prepared=coordinator.rejoins({shown(member)}))",
                )

    def _check_types(self) -> None:
        for text in (self.name, self.summary):
            check_type(text, str, "the name or the summary of a scenario")
        if not isinstance(self.world, Plain):
            raise Misuse(
                f"the world must be made by world_with, got {got(self.world)}",
                todo='write world_with({"rows": (Document.of({...}), ...)})',
            )
        check_type(self.actors, tuple, "a tuple of actors", 'write (Process("a", factory(program, ...)), ...)')
        for actor in self.actors:
            if not isinstance(getattr(actor, "name", None), str) or not callable(getattr(actor, "steps", None)):
                raise Misuse(
                    f"{typed(actor)} is not an actor",
                    where=f"scenario {self.name}",
                    why="an actor has a name, and steps",
                    todo='write Process("a", factory(program, ...))',
                )
        check_int(self.budget, "a number of faults", 0)
        check_type(self.budgets, Mapping, "a number for each kind of fault")
        for kind, budget in self.budgets.items():
            check_type(kind, Fault, "a kind of fault", "write {Fault.CRASH_BEFORE: 1}")
            check_int(budget, f"a number of faults that are {kind}", 0)
        check_type(self.clock, (Clock, NoneType), "a clock")
        for laws in (self.always, self.step, self.eventually, self.sometimes):
            check_type(laws, Mapping, "a law for each name", 'write {"what holds": lambda state: ...}')
            for name, law in laws.items():
                check_type(name, str, "the name of a law")
                if law == () and laws is not self.always:
                    raise Misuse(f"the law {name!r} has no parts", where=f"scenario {self.name}", todo="leave it out")
                for part in parts_of(law):
                    check_callable(part, "a law")
                    _check_answers(part, name, self.name)
        check_type(self.expect, (str, NoneType), "the name of a law")
        check_type(self.kind, Kind, "a kind of scenario")
        check_tuple(self.written_only, str, "the name of state that nothing reads")
        check_tuple(self.symmetric, tuple, "a group of processes")
        for group in self.symmetric:
            check_tuple(group, str, "the name of a process")

    def allowance(self) -> dict[Cell[int], int]:
        """The first budgets. A kind limited by the total alone needs none of its own."""
        bounds = {
            bound(kind): left
            for kind, left in self.budgets.items()
            if left < self.budget or kind is Fault.REBALANCE  # rebalances do not count in the total
        }
        return {FAULTS: self.budget} | bounds

    def choosing(self, kinds: Iterable[Fault]) -> Scenario:
        """Allow only these faults."""
        never = dict.fromkeys(set(Fault).difference(kinds), 0)
        return attrs.evolve(self, budgets={**self.budgets, **never})

    def at_most(self, faults: int) -> Scenario:
        """Bound the faults of a run, of all kinds together; never above its present budget.

        Rebalances count apart, under the same bound.
        """
        rebalances = min(self.budgets.get(Fault.REBALANCE, faults), faults)
        besides = {Fault.REBALANCE: rebalances} if self.world.read(REBALANCES) else {}
        return attrs.evolve(self, budget=min(self.budget, faults), budgets={**self.budgets, **besides})

    def bounded(self, kinds: Iterable[Fault] | None, faults_max: int | None) -> Scenario:
        """Apply both bounds; None for none."""
        chosen = self if kinds is None else self.choosing(kinds)
        return chosen if faults_max is None else chosen.at_most(faults_max)
