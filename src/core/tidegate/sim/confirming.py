"""What a search has learned is confirmed before it is reported: nothing of a scenario may depend on what lies outside of it.

    programs    whole runs are executed again with fresh programs (`tidegate.sim.rerun`)
    reducers    a sample of the steps of reducers, of meanings and of actors of the user's is taken again
    outside     what their code reaches besides that must not change while they run (`tidegate.sim.outside`); where it does, or
                where they use a clock or a random number, they are executed thousands of times
    elsewhere   a second process with another PYTHONHASHSEED executes the same; where the order of a set may matter, several

Whatever does otherwise raises `Nondeterministic`. State outside that changes, although thousands of replies showed no
difference, is a `doubt`: the search is not complete then, for what was merged may differ after more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import islice, repeat
from types import CodeType
from typing import Final, cast, final

import attrs

from tidegate.model.bytecode import placed, reads
from tidegate.model.documents import exactly
from tidegate.model.effects import Effect, Program
from tidegate.sim.actors import Process
from tidegate.sim.automaton import ProgramAutomaton
from tidegate.sim.lines import decided_at
from tidegate.sim.outside import Reach, differs, reached
from tidegate.sim.packing import Lens, Looked
from tidegate.sim.reducers import ReducerProcess
from tidegate.sim.rerun import (
    REPLIES_MIN,
    CallCase,
    Case,
    Mismatch,
    ProgramCase,
    SecondProcess,
    Unshipped,
    case_of,
    loops,
    merging,
    planned,
)
from tidegate.sim.scenario import Actor, ProcessActor, Scenario
from tidegate.sim.space import Space, Stepper
from tidegate.sim.steppers import Remembering
from tidegate.sim.world import Cell, Meaning, Outcomes, Plain, World

__all__ = ["Confirmed", "confirmed", "second_process"]


@final
@attrs.frozen
class _Effort:
    """How much is executed again where nothing is suspect.

    Attributes:
        replies: How many replies are given to confirm merges, if that is more than the search gave.
        left: How many along the edges that are left.
        loops: How many cycles are repeated, in case it is not seen that something outside changes.
        loop_replies: How many replies each is given.
        sent: How many replies a program is given in a second process.
    """

    replies: int
    left: int
    loops: int
    loop_replies: int
    sent: int


_USERS: Final = _Effort(replies=REPLIES_MIN, left=REPLIES_MIN, loops=4, loop_replies=200, sent=400)
_SHIPPED: Final = _Effort(replies=100, left=0, loops=1, loop_replies=50, sent=40)
"""For programs of tidegate alone: a test of its own shows that they keep no state."""
_SUSPECT_LOOPS: Final = 32
_SUSPECT_REPLIES: Final = 12_000
"""And where something does."""
_SNAPSHOTS: Final = 300
"""How many snapshots are taken of what a program reaches."""
_STEPS: Final = 100
"""In how many states an actor with code of the user's moves again."""
_STEPS_SHIPPED: Final = 12
_CALLS: Final = 200
"""How many calls of a function are executed again."""
_SECOND: Final = "tidegate_adapters.second_process"


@final
@attrs.frozen
class Confirmed:
    """What was not shown.

    Attributes:
        doubts: State outside of programs that changes and may decide later.
        unshipped: What no second process has executed, and why.
    """

    doubts: tuple[str, ...] = ()
    unshipped: tuple[str, ...] = ()


@cache
def second_process() -> SecondProcess | None:
    """The adapter, if it is installed beside the core."""
    try:
        adapter = import_module(_SECOND)
    except ModuleNotFoundError as error:
        if error.name not in (_SECOND, _SECOND.partition(".")[0]):
            raise
        return None
    return cast("Callable[[], SecondProcess]", adapter.second_process)()


def confirmed(space: Space, steppers: Iterable[Stepper], *, is_broken: bool = False) -> Confirmed:
    """Execute again what a search has learned.

    Args:
        space: Of the search.
        steppers: Its actors, with what was remembered of their steps.
        is_broken: A law is broken, and the trace will be replayed: nothing rests on what was merged.

    Raises:
        Nondeterministic: Something does otherwise.
    """
    subjects = [*_programs(space.processes.values(), is_broken=is_broken), *_calls(space, steppers)]
    waiting = _begin_elsewhere(subjects)
    for subject in subjects:
        subject.execute()
    for subject in subjects:
        if subject.is_suspect:
            subject.execute_at_length()
    unshipped = tuple(dict.fromkeys(line for wait in waiting for line in wait()))
    return Confirmed(tuple(_doubts(subjects, space.scenario)), unshipped)


# --- what is executed ---------------------------------------------------------------------------------------------------


@final
@attrs.define(eq=False)
class _Subject:
    """What is executed again.

    Attributes:
        case: The recorded executions.
        reach: What its code reaches.
        automaton: Of a program.
        sent: How many replies it is given in a second process.
        changes: What changed outside while it ran.
    """

    case: Case
    reach: Reach
    automaton: ProgramAutomaton | None = None
    sent: int = 0
    changes: dict[str, None] = attrs.field(factory=dict)

    @property
    def is_suspect(self) -> bool:
        return bool(self.changes or self.reach.clocks or self.reach.randoms)

    @property
    def is_merged(self) -> bool:
        """May what it does next differ, although the search took it for the same?"""
        return self.automaton is None or any(True for _ in merging(self.automaton))

    def execute(self) -> None:
        """Execute it, and note what changes outside: at the first awaits, and at the end of each run."""
        before, awaits, ends = self.reach.snapshot(), repeat(None, _SNAPSHOTS), repeat(None, _SNAPSHOTS)

        def see(left: Iterator[None]) -> None:
            for _ in islice(left, 1):
                self.changes |= dict.fromkeys(self.reach.changed(before))

        def keep(node: int, program: Program[object]) -> None:
            see(ends)
            self.park(node, program)

        if isinstance(self.case, ProgramCase):
            found = self.case.execute((lambda: see(awaits)) if before else None, keep)
        else:
            found = self.case.execute()
        see(ends)
        self.raise_mismatch(found)

    def execute_at_length(self) -> None:
        """Execute it thousands of times."""
        if isinstance(self.case, CallCase):
            for _ in range(-(-_SUSPECT_REPLIES // max(1, len(self.case.calls)))):
                self.raise_mismatch(self.case.execute())
            return
        assert self.automaton is not None, "a program has one"
        for run in loops(self.automaton, most=_SUSPECT_LOOPS, replies=_SUSPECT_REPLIES):
            self.raise_mismatch(case_of(self.automaton, (run,)).execute(keep=self.park))
        self.raise_mismatch(self.case.repeated(_SUSPECT_REPLIES).execute(keep=self.park))

    def park(self, node: int, program: Program[object]) -> None:
        """A program may not like to be dropped where it awaits, and serves whoever stands there."""
        assert self.automaton is not None, "a program has one"
        self.automaton.park_again(node, program)

    def raise_mismatch(self, found: Mismatch | None, *, is_second: bool = False) -> None:
        if found is not None:
            raise differs(
                found.what, self.case.process, found.src, self.reach, tuple(self.changes), is_second=is_second
            )


def _programs(processes: Iterable[ProcessActor], *, is_broken: bool) -> Iterator[_Subject]:
    for process in processes:
        for automaton in process.automata:
            reach = reached(automaton.birth)
            effort = _USERS if reach.has_code else _SHIPPED
            edges = sum(len(node.edges) for node in automaton.nodes)
            runs = planned(automaton, effort.sent if is_broken else max(edges, effort.replies), effort.left)
            looped = loops(automaton, most=0 if is_broken else effort.loops, replies=effort.loop_replies)
            yield _Subject(case_of(automaton, (*runs, *looped)), reach, automaton, effort.sent)


def _doubts(subjects: Sequence[_Subject], scenario: Scenario) -> Iterator[str]:
    """State outside that may decide later: of what was merged, or of what several processes reach.

    What the scenario declares as written only is none, unless code of the user's is seen to read it: programs, reducers,
    meanings, laws.
    """
    laws = (
        *scenario.always.values(),
        *scenario.step.values(),
        *scenario.eventually.values(),
        *scenario.sometimes.values(),
    )
    codes = {id(code): code for reach in (*(each.reach for each in subjects), reached(*laws)) for code in reach.codes}
    owners = Counter(
        place for subject in subjects for place in {(id(holder), name) for _, holder, name in subject.reach.places}
    )
    for subject in subjects:
        shared = {label for label, holder, name in subject.reach.places if owners[id(holder), name] > 1}
        names = [label for label in subject.changes if subject.is_merged or label in shared]
        declared = {label: _reader(label, codes.values()) for label in names if label in scenario.written_only}
        if names := [label for label in names if declared.get(label) != ""]:
            labels = ", ".join(f"`{label}`" for label in names)
            readers = "".join(
                f"; {by} reads `{label}`, which is declared as written only" for label, by in declared.items() if by
            )
            yield (
                f"{subject.case.process} changes {labels}, which is outside of its program and may decide later: "
                f"keep it in a local, or pass it as an argument; if nothing reads it, declare "
                f"Scenario(written_only={tuple(names)}){readers}"
            )


def _reader(label: str, codes: Iterable[CodeType]) -> str:
    """The code that reads the place of that name; "" if none is seen to."""
    name = label.rpartition(".")[2]
    if name.startswith("__"):  # such as the attributes of a function, which are read by other names
        return "some code"
    return next((placed("", code, code.co_firstlineno) for code in codes if reads(code, name)), "")


# --- in a second process ------------------------------------------------------------------------------------------------


def _begin_elsewhere(subjects: Sequence[_Subject]) -> list[Callable[[], list[str]]]:
    """Begin to execute in a second process; each answer waits for it and says what was not executed."""
    second = second_process()
    return (
        []
        if second is None
        else [
            _sent(second, group, is_thorough=is_thorough)
            for is_thorough in (False, True)
            if (group := [each for each in subjects if each.reach.has_sets is is_thorough])
        ]
    )


def _sent(second: SecondProcess, subjects: Sequence[_Subject], *, is_thorough: bool) -> Callable[[], list[str]]:
    cases = [each.case.shortened(each.sent) if isinstance(each.case, ProgramCase) else each.case for each in subjects]
    wait = second.execute(cases, is_thorough=is_thorough)

    def answered() -> list[str]:
        unshipped = []
        for subject, answer in zip(subjects, wait(), strict=True):
            match answer:
                case Unshipped(why):
                    name = subject.case.process
                    unshipped.append(f"{name} was not executed in a second process with another hash seed: {why}")
                case _:
                    subject.raise_mismatch(answer, is_second=True)
        return unshipped

    return answered


# --- reducers, meanings, and actors of the user's -----------------------------------------------------------------------


@final
@attrs.frozen(eq=False)
class _Recorded:
    """A function that records its calls."""

    function: Callable[..., object]
    calls: list[tuple[tuple[object, ...], object]] = attrs.field(factory=list)

    def __call__(self, *arguments: object) -> object:
        result = self.function(*arguments)
        self.calls.append((arguments, result))
        return result


@final
@attrs.frozen(eq=False)
class _Meant:
    """A meaning that records in which worlds it was called."""

    meaning: Meaning
    calls: list[tuple[Effect[object], Plain, str]] = attrs.field(factory=list)

    def __call__(self, effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(world, Lens):  # else it watches what is written, and its calls are made in a Lens as well
            self.calls.append((effect, _plain(world), who))
        return self.meaning(effect, world, who)


def _plain(world: Lens) -> Plain:
    slots = world.packing.slots.values()
    held = {slot.name: (Cell(slot.name, slot.values[0]), slot.get(world.state)) for slot in slots if slot.width}
    return Plain({name: (cell, value) for name, (cell, value) in held.items() if value is not cell.empty})


@final
@attrs.frozen(eq=False)
class MeaningCase:
    """Calls a meaning in a plain world, and returns what it changes and replies, in no order."""

    meaning: Meaning

    def __call__(self, effect: Effect[object], world: Plain, who: str) -> object:
        """The outcomes as one value."""
        found = ((_changes(world, cast("Plain", after)), reply) for after, reply in self.meaning(effect, world, who))
        return frozenset(Counter(map(exactly, found)).items())


def _changes(before: Plain, after: Plain) -> tuple[object, ...]:
    return tuple(
        (name, value)
        for name, (cell, value) in sorted(after.cells.items())
        if exactly(value) != exactly(before.read(cell))
    )


def _calls(space: Space, steppers: Iterable[Stepper]) -> Iterator[_Subject]:
    """Take a sample of the remembered steps again, and record which functions of the user's they call."""
    for stepper in steppers:
        if isinstance(stepper, Remembering):
            yield from _of_actor(space, stepper)


def _of_actor(space: Space, stepper: Remembering) -> Iterator[_Subject]:
    actor = stepper.actor
    meaning: Meaning | None = getattr(actor, "meaning", None)
    meant = _Meant(meaning) if meaning is not None and reached(meaning).has_code else None
    functions: dict[str, _Recorded] = {}
    if isinstance(actor, ReducerProcess):
        named: Mapping[str, object] = {"step": actor.step, "event_for": actor.event_for, "merge": actor.merge}
        functions = {what: _Recorded(each) for what, each in named.items() if callable(each)}
    elif type(actor).__module__.startswith("tidegate.") and meant is None:
        return  # programs are executed by themselves
    has_code = meant is not None or reached(*(each.function for each in functions.values())).has_code
    again = _recording(actor, functions if meant is None else {**functions, "meaning": meant})
    for key in _spread(list(stepper.memo), _STEPS if has_code or not functions else _STEPS_SHIPPED):
        kind, steps = space.entry(key, list(space.steps(again, key, Looked())))
        known = stepper.memo[key]
        if kind != known[0] or sorted(steps) != sorted(known[1]):
            code = [each.function for each in functions.values()] + ([] if meaning is None else [meaning])
            what = f"{stepper.name} has other steps when it moves again in the same state"
            raise differs(what, stepper.name, decided_at(code[0]) if code else "", reached(*code or [type(actor)]))
    for what, each in functions.items():
        yield _Subject(
            CallCase(stepper.name, what, decided_at(each.function), each.function, tuple(each.calls[:_CALLS])),
            reached(each.function),
        )
    if meant is not None:
        case = MeaningCase(meant.meaning)
        calls = tuple((arguments, case(*arguments)) for arguments in meant.calls[:_CALLS])
        yield _Subject(
            CallCase(stepper.name, "meaning", decided_at(meant.meaning), case, calls), reached(meant.meaning)
        )


def _recording(actor: Actor, functions: Mapping[str, object]) -> Actor:
    """The actor with functions that record their calls, over what was learned of its programs."""
    if not functions or not isinstance(actor, (Process, ReducerProcess)):
        return actor
    again: Process | ReducerProcess = attrs.evolve(actor, **functions)  # type: ignore[arg-type]  # by the names of its fields
    if isinstance(actor, Process) and isinstance(again, Process):
        again.remember(actor.behaviour)
    if isinstance(actor, ReducerProcess) and isinstance(again, ReducerProcess):
        again.remember(actor.behaviours)
    return again


def _spread(keys: Sequence[int], most: int) -> Sequence[int]:
    """Some of them, from everywhere."""
    return keys[:: -(-len(keys) // most) or 1]
