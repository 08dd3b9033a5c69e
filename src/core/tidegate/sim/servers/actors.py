"""Programs, the network and the clock, as actors over cells.

A program meets faults at its effects; `tidegate.sim.servers.requests` has the possible outcomes of one
request. Faults of the process itself:

    crash            It dies before its next effect.
    cancelled        The program is closed. Its request is done or not, or, if it may be late, in
                     flight.
    never returns    User code never ends. The program waits until it crashes or is cancelled.
    stall            It pauses while the store's time passes.

A process may crash before any effect and after its last one (double execution hides there). A late
request that ends the program by an `Ambiguous` also permits a crash with it in flight. That takes
both faults.

A crashed or cancelled program may restart in a new life. It gets its life's number and so uses new
request ids. A restart is a fault (`Fault.RESTART`), so `eventually` also applies to runs without
it. A process with `comes_back` always restarts in the end, at no cost, as under a supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache, partial
from typing import Final, ParamSpec, cast, final

import attrs

from tidegate.model.effects import Call, Effect, Note, Now, Program, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, seconds
from tidegate.model.operations import FindAll, FindOne
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.model.values import check_callable, check_tuple, check_type
from tidegate.sim.program.automaton import (
    Asking,
    Birth,
    Cancelled,
    Crashed,
    Failed,
    ProcessStatus,
    ProgramAutomaton,
    Returned,
)
from tidegate.sim.program.relative_time import plain_text, unchanged
from tidegate.sim.scenario import CLOCK_LANE, ActorStep, Delivers, Label, Trouble, Undone
from tidegate.sim.servers.failover import unconfirmed
from tidegate.sim.servers.halfway import IN_STEPS, Answers, Steps, answers, stepping
from tidegate.sim.servers.requests import ANSWERED, NO_REPLY, Asker, noted_replies, replies, troubled, under_way
from tidegate.sim.world.clocks import HOST, Host
from tidegate.sim.world.faults import Fault, Faults, spent
from tidegate.sim.world.world import (
    CELLS_KEPT,
    CLOCK,
    FLIGHT,
    MOVES,
    QUANTUM,
    UNCONFIRMED,
    Cell,
    Flying,
    Halfway,
    Meaning,
    Outcomes,
    World,
    life,
    notes,
    perform,
    place,
    unpaused,
    wakes,
)

STARTS_AGAIN: Final = Label("starts again")


P = ParamSpec("P")


def factory(
    program: Callable[P, Coroutine[Effect[object], object, object]], *arguments: P.args, **named: P.kwargs
) -> Birth:
    """A birth that runs the same program in every life."""
    check_callable(program, "a program", 'write factory(program, "argument"), which calls it in each life')
    return partial(_begun, partial(program, *arguments, **named))


def _begun(run: Callable[[], Program[object]], life: int) -> Program[object]:  # noqa: ARG001  it is the same in each
    """A module-level function, so that it can be pickled for another process."""
    return run()


@final
@attrs.frozen(eq=False)
class Process:
    """A process that runs a program. Its place holds the node of the program's automaton.

    Attributes:
        birth: Maps a life to a new run of the program.
        comes_back: It must restart after every crash or cancellation.
        raises: Its caller expects an `Ambiguous` or `NotDurable` and finds out the outcome;
            otherwise a report lists where it ends by one.
    """

    name: str
    birth: Birth
    faults: Faults = attrs.field(factory=Faults)
    meaning: Meaning = perform
    host: Host = HOST
    comes_back: bool = attrs.field(default=False, kw_only=True)
    raises: bool = attrs.field(default=False, kw_only=True)
    asker: Asker = attrs.field(init=False)
    behaviour: ProgramAutomaton = attrs.field(init=False)
    place: Cell[object] = attrs.field(init=False)
    blind: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.name, str, "the name of a process")
        check_callable(
            self.birth, "what runs a program in each life", 'write Process("a", factory(program, "argument"))'
        )
        check_type(self.faults, Faults, "which faults may strike", "write Faults.of(Fault.CRASH_BEFORE, ...)")
        check_callable(self.meaning, "a meaning of effects")
        check_type(self.host, Host, "the machine that it runs on")
        check_type(self.comes_back, bool, "comes_back")
        check_type(self.raises, bool, "raises")
        if self.comes_back and self.faults.allows(Fault.RESTART):
            raise Misuse(
                f"{self.name} comes back, and may be restarted by a fault",
                why="either it must start again, or it may",
                todo="leave Fault.RESTART out of its faults, or comes_back=True",
            )
        object.__setattr__(self, "asker", Asker(self.name, self.meaning, self.faults, self.host))
        self.remember(ProgramAutomaton(self.birth, self.name))
        object.__setattr__(self, "place", place(self.name))

    def begin(self, world: World) -> World:
        return self.goes(world, self.behaviour.start(0))

    def status(self, at: object) -> ProcessStatus:
        return self.behaviour.status(cast("int", at))

    @property
    def unmerged(self) -> tuple[str, ...]:
        return self.behaviour.unmerged

    @property
    def unexplored(self) -> tuple[str, ...]:
        return self.behaviour.unexplored

    @property
    def has_raised(self) -> bool:
        return self.behaviour.has_raised

    def in_time(self, *, is_relative: bool) -> None:
        self.behaviour.is_relative |= is_relative

    def forget(self) -> Callable[[], None]:
        """Begin with an unknown program; returns a function that restores the known one."""
        known = self.behaviour
        self.remember(ProgramAutomaton(self.birth, self.name, is_checked=bool(known.births)))
        return lambda: self.remember(known)

    def remember(self, known: ProgramAutomaton) -> None:
        object.__setattr__(self, "behaviour", known)

    @property
    def automata(self) -> tuple[ProgramAutomaton, ...]:
        return (self.behaviour,)

    def asked_at(self, world: World) -> str:
        node = self.behaviour.nodes[cast("int", world.read(self.place))]
        return f"{node.src}, where it is {plain_text(node.status)}"

    def goes(self, world: World, node: int) -> World:
        """Move to the node. At a sleep that the clock can measure, set the wake-up time."""
        awake = self.behaviour.slept(node, world.read(QUANTUM), self.host.lasts)
        if awake != node and (last := self.last_sleep(node, awake)) is not None:
            return world.write(self.place, last)
        world = world.write(self.place, awake)
        match self.behaviour.status(awake):
            case Asking(Sleep() as sleep):
                return world.write(wakes(self.name), world.read(CLOCK) + self.host.lasts(sleep.least))
            case _:
                return world

    def last_sleep(self, node: int, awake: int) -> int | None:
        """The last skipped sleep at which it can die in a way it cannot at the awake node; None if
        there is none.
        """
        status, last = self.behaviour.status(awake), None
        then = status.effect if isinstance(status, Asking) else None
        may_crash = then is None and self.faults.allows(Fault.CRASH_BEFORE)
        is_cancelled_later = then is not None and self.faults.strikes(Fault.CANCELLED, then)
        while node != awake:
            match self.behaviour.status(node):
                case Asking(sleep) if may_crash or (
                    not is_cancelled_later and self.faults.strikes(Fault.CANCELLED, sleep)
                ):
                    last = node
                case _:
                    pass
            node = self.behaviour.after(node, None)
        return last

    def steps(self, world: World) -> Iterator[ActorStep]:
        node = cast("int", world.read(self.place))
        match self.behaviour.status(node):
            case Asking(effect):
                is_stuck, asker = self.is_stuck(world), self.asking(world, effect)
                outcomes = () if is_stuck else replies(effect, world, asker)
                if not is_stuck:
                    yield from self.asks(world, node, effect, outcomes)
                if self.faults.strikes(Fault.CANCELLED, effect):
                    yield from self.cancelled(world, effect, outcomes)
                if self.faults.allows(Fault.CRASH_BEFORE) and (after := spent(world, Fault.CRASH_BEFORE)):
                    label = Label(Undone(effect)) if asker.at is None else Label(effect, Trouble("crashes halfway"))
                    yield self.ends(after, label, Fault.CRASH_BEFORE, effect)
                    if not is_stuck and (flying := self.ended_by_late(after, node, asker, effect)):
                        label = Label(effect, Trouble("crashes while it is under way"))
                        yield self.ends(flying, label, Fault.CRASH_BEFORE, effect)
            case Returned() | Failed():
                if self.faults.allows(Fault.CRASH_AFTER) and (after := spent(world, Fault.CRASH_AFTER)):
                    yield self.ends(after, Label("crashes after its last effect"), Fault.CRASH_AFTER)
            case Crashed() | Cancelled():
                if self.comes_back:
                    yield ActorStep(STARTS_AGAIN, self.reborn(world))
                elif self.faults.allows(Fault.RESTART) and (after := spent(world, Fault.RESTART)):
                    yield ActorStep(STARTS_AGAIN, self.reborn(after), must=False, fault=Fault.RESTART)
            case _:
                pass

    def ended_by_late(self, world: World, node: int, asker: Asker, effect: Effect[object]) -> World | None:
        """The world with its request in flight, if that ends the program and it may restart.

        Such a program could not crash afterwards. Any other crashes in a later step.
        """
        is_late = (
            asker.at is None and not isinstance(effect, (Now, Sleep, Note)) and self.faults.strikes(Fault.LATE, effect)
        )
        may_start_again = self.comes_back or self.faults.allows(Fault.RESTART)
        after = spent(world, Fault.LATE) if is_late and may_start_again else None
        if after is None or isinstance(self.behaviour.status(self.behaviour.after(node, NO_REPLY)), Asking):
            return None
        return under_way(after, self.name, effect)

    def is_busy(self, world: World) -> bool:
        status = self.status(world.read(self.place))
        return isinstance(status, Asking) or (self.comes_back and isinstance(status, (Crashed, Cancelled)))

    def advances(self, world: World) -> bool:
        """Does it go on regardless of others? Not if it waits for them, or in user code that never
        returns.
        """
        match self.status(world.read(self.place)):
            case Asking(effect):
                if self.is_stuck(world):
                    return False
                asker = self.asking(world, effect)
                outcomes = () if isinstance(effect, _AT_ONCE) else replies(effect, world, asker)
                return bool(
                    isinstance(effect, _AT_ONCE)
                    or outcomes
                    or any(must for *_, must in self.halfway(world, effect, asker.at, outcomes))
                )
            case _:
                return self.is_busy(world)

    def asking(self, world: World, effect: Effect[object]) -> Asker:
        return self.asker.come(world.read(come(self.name))) if isinstance(effect, IN_STEPS) else self.asker

    def is_stuck(self, world: World) -> bool:
        return self.faults.allows(Fault.NEVER_RETURNS) and world.read(stuck(self.name))

    def reborn(self, world: World) -> World:
        which, world = world.read(life(self.name)) + 1, unpaused(world, self.name)
        return self.goes(world.write(life(self.name), which), self.behaviour.start(which))

    def asks(self, world: World, node: int, effect: Effect[object], outcomes: Answers) -> Iterator[ActorStep]:
        asker = self.asking(world, effect)

        def after_reply(after: World, reply: object) -> World:
            return self.goes(self.unasked(after, effect), self.behaviour.after(node, reply))

        for done, reply in outcomes:
            yield ActorStep(Label(effect, reply), after_reply(done, reply))
        for happened, after, at, must in self.halfway(world, effect, asker.at, outcomes):
            yield ActorStep(Label(effect, Trouble(happened)), after.write(come(self.name), at), must=must)
        for fault, trouble, known, reply in troubled(effect, outcomes, world, asker):
            yield ActorStep(Label(effect, trouble), after_reply(known, reply), must=False, fault=fault)
        yield from self.stands(world, effect)

    def halfway(self, world: World, effect: Effect[object], at: Halfway | None, outcomes: Answers) -> Steps:
        if isinstance(effect, IN_STEPS):
            yield from stepping(effect, world, self.name, self.meaning, at, outcomes)

    def unasked(self, world: World, effect: Effect[object]) -> World:
        is_halfway = isinstance(effect, IN_STEPS) and world.read(come(self.name)) is not None
        return world.write(come(self.name), None) if is_halfway else world

    def stands(self, world: World, effect: Effect[object]) -> Iterator[ActorStep]:
        may_stall = self.host.stall and self.faults.strikes(Fault.STALL, effect) and not isinstance(effect, Sleep)
        if may_stall and (after := spent(world, Fault.STALL)):
            label = Label(f"stands for {seconds(self.host.stall)}")
            yield ActorStep(
                label, after.write(CLOCK, after.read(CLOCK) + self.host.stall), must=False, fault=Fault.STALL
            )
        if isinstance(effect, ANSWERED) or not self.faults.strikes(Fault.NEVER_RETURNS, effect):
            return
        if after := spent(world, Fault.NEVER_RETURNS):
            label = Label(effect, Trouble("never returns"))
            yield ActorStep(label, after.write(stuck(self.name), value=True), must=False, fault=Fault.NEVER_RETURNS)

    def cancelled(self, world: World, effect: Effect[object], outcomes: Answers) -> Iterator[ActorStep]:
        is_halfway = self.asking(world, effect).at is not None
        happened = [(world, "halfway" if is_halfway else "before it was sent")]
        if not isinstance(effect, (Now, Sleep, Note)):
            happened += [(done, "after it was done") for done, _ in outcomes]
            if self.faults.strikes(Fault.LATE, effect) and not is_halfway:
                happened.append((under_way(world, self.name, effect), "while it is under way"))
        for known, when in happened:
            if ended := spent(known, Fault.CANCELLED):
                yield self.ends(ended, Label(effect, Trouble(f"cancelled {when}")), Fault.CANCELLED, effect)

    def ends(self, world: World, label: Label, fault: Fault, undone: Effect[object] | None = None) -> ActorStep:
        """It dies and loses its memory. `undone` is the awaited effect."""
        node = ProgramAutomaton.CANCELLED if fault is Fault.CANCELLED else ProgramAutomaton.CRASHED
        dead = world.write(self.place, node).write(notes(self.name), ())
        if isinstance(undone, Sleep):
            dead = dead.write(wakes(self.name), None)
        if undone is not None:
            dead = self.unasked(dead, undone)
        if undone is not None and self.faults.strikes(Fault.NEVER_RETURNS, undone):
            dead = dead.write(stuck(self.name), value=False)
        return ActorStep(label, dead, must=False, fault=fault)


_AT_ONCE: Final = (Now, Sleep, Note, InTransaction, CommitTransaction, AbortTransaction, FindOne, FindAll)

QUIET: Final = Call("all is quiet")
"""Wait until all others are done: for a program that checks or cleans up at the end of every run
(`when_quiet`).
"""


def when_quiet(processes: tuple[Process, ...], otherwise: Meaning = perform) -> Meaning:
    """A meaning that answers `QUIET` once no process acts any more and no request is in flight.

    Args:
        processes: All of them must have returned, failed, or died for good.
        otherwise: The meaning of all other effects.
    """
    check_tuple(processes, Process, "a process")
    check_callable(otherwise, "a meaning")
    return _WhenQuiet(processes, otherwise)


@final
@attrs.frozen(eq=False)
class _WhenQuiet:
    processes: tuple[Process, ...]
    otherwise: Meaning

    @property
    def delivered(self) -> Meaning:
        """The meaning of a late request, which `QUIET` never is."""
        return self.otherwise

    def __call__(self, effect: Effect[object], world: World, who: str) -> Outcomes:
        if effect != QUIET:
            yield from self.otherwise(effect, world, who)
        elif not world.read(FLIGHT) and not any(process.is_busy(world) for process in self.processes):
            yield world, None


@lru_cache(CELLS_KEPT)
def stuck(process: str) -> Cell[bool]:
    return Cell(("stuck", process), empty=False)


@lru_cache(CELLS_KEPT)
def come(process: str) -> Cell[Halfway | None]:
    """The store's progress with the request of the process."""
    return Cell(("halfway", process), None)


@final
@attrs.frozen(eq=False)
class Network:
    """Delivers requests in flight in any order, at any time; their replies are lost.

    Without a meaning, it takes the meaning of the scenario's processes with late requests, if they
    share one.
    """

    meaning: Meaning | None = None
    name: str = "network"
    place: None = None
    blind: bool = False

    def __attrs_post_init__(self) -> None:
        if self.meaning is not None:
            check_callable(self.meaning, "a meaning of effects", "write Network(meaning), that of the processes")

    def steps(self, world: World) -> Iterator[ActorStep]:
        flying = world.read(FLIGHT)
        for index, request in enumerate(flying):
            if any(unchanged(request, other) for other in flying[:index]):
                continue
            left = world.write(FLIGHT, flying[:index] + flying[index + 1 :])
            meaning = self.meaning or perform
            if isinstance(request.effect, IN_STEPS):
                whole = () if request.come else answers(meaning, request.effect, left, request.sender)
                for happened, after, at, must in stepping(
                    request.effect, left, request.sender, meaning, request.come, whole
                ):
                    later = under_way(after, request.sender, request.effect, at)
                    yield ActorStep(Label(Delivers(request), Trouble(happened)), later, must=must)
            yield from self.arrives(request, left)

    def arrives(self, request: Flying, left: World) -> Iterator[ActorStep]:
        """The request is done with a majority, or becomes the latest unconfirmed write."""
        asker = Asker(request.sender, self.meaning or perform, Faults()).come(request.come)
        if not (writes := left.read(UNCONFIRMED)):
            for done, reply in replies(request.effect, left, asker):
                yield ActorStep(Label(Delivers(request), reply), done)
            return
        for done, reply, overwritten in noted_replies(request.effect, left, asker):
            yield ActorStep(Label(Delivers(request), reply), done)
            if done.read(UNCONFIRMED) is not writes:
                happened = Trouble(f"{plain_text(reply)}, but no majority has confirmed it")
                behind = unconfirmed(left, done, overwritten, alone=True)
                yield ActorStep(Label(Delivers(request), happened), behind, must=False)


@final
@attrs.frozen(eq=False)
class Ticks:
    """The clock in absolute time: it moves by one quantum at any point, a bounded number of
    times.
    """

    quantum: Duration
    name: str = CLOCK_LANE
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        if moved := world.taken(MOVES):
            now = world.read(CLOCK) + self.quantum
            yield ActorStep(Label(f"{seconds(self.quantum)} pass"), moved.write(CLOCK, now))
