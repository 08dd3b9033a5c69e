"""Confirms a search before its report: a scenario must not depend on state outside it.

    programs    Fresh programs execute whole runs again (`tidegate.sim.program.rerun`).
    reducers    A sample of the steps of reducers, meanings and user's actors is repeated.
    outside     Other state that their code reaches must not change while they run
                (`tidegate.sim.program.outside`). If it does, or if they use a clock or random number, they
                run thousands of times.
    elsewhere   A second process with another PYTHONHASHSEED executes the same; several do if the
                order of a set may matter.

Any different result raises `Nondeterministic`. Outside state that changes without a difference in
thousands of replies is a `doubt`. The search is then incomplete: merged states may differ later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import islice, repeat
from typing import Final, cast, final

import attrs

from tidegate.model.effects import Program
from tidegate.sim.program.automaton import ProgramAutomaton
from tidegate.sim.program.outside import DATA_MAX, Reach, differs, objects_at, reached
from tidegate.sim.program.rerun import (
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
from tidegate.sim.scenario import ProcessActor
from tidegate.sim.search.recalled import asked, calls
from tidegate.sim.search.space import Space, Stepper
from tidegate.sim.world.packing import Packed


@final
@attrs.frozen
class _Effort:
    """How much to execute again if no code is suspect.

    Attributes:
        replies: Replies to confirm merges; with `is_all`, at least as many as the search gave.
        left: Replies along the remaining edges.
        loops: Cycles to repeat, in case a change outside goes unseen.
        sent: Replies to a program in a second process.
    """

    replies: int
    is_all: bool
    left: int
    loops: int
    loop_replies: int
    sent: int


_USERS: Final = _Effort(replies=REPLIES_MIN, is_all=True, left=REPLIES_MIN, loops=4, loop_replies=200, sent=400)
_SHIPPED: Final = _Effort(replies=40, is_all=False, left=0, loops=1, loop_replies=30, sent=12)
"""For tidegate's own programs: a separate test shows that they keep no state."""
_SUSPECT_LOOPS: Final = 32
_SUSPECT_REPLIES: Final = 12_000
"""For suspects: this many replies for all loops together, and as many for repeated runs."""
_LONG_S: Final = 2.0
_SNAPSHOTS: Final = 300
_WATCHED_MAX: Final = 2_000_000
"""The maximum number of values in all snapshots. Beyond it, snapshots are taken at the ends of runs
only; beyond twice that, not at all.
"""
_SECOND: Final = "tidegate_adapters.exploring.second_process"


@final
@attrs.frozen
class Confirmed:
    """What could not be shown.

    Attributes:
        doubts: Outside state that changes and may matter later.
        unsure: Code that no second process executed, with the reason; uses of clocks or random
            numbers; and state declared as written only.
    """

    doubts: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


@cache
def second_process() -> SecondProcess | None:
    try:
        adapter = import_module(_SECOND)
    except ModuleNotFoundError as error:
        if error.name not in (_SECOND, _SECOND.partition(".")[0]):
            raise
        return None
    return cast("Callable[[], SecondProcess]", adapter.second_process)()


def confirmed(
    space: Space,
    steppers: Iterable[Stepper],
    states: Sequence[Packed],
    is_at_rest: Callable[[Packed], bool],
    *,
    is_over: bool = False,
) -> Confirmed:
    """Execute again what a search learned.

    Args:
        space: The space of the search.
        steppers: Its actors with their remembered steps.
        states: Some states it has seen.
        is_at_rest: Do laws about rest apply to the state?
        is_over: The verdict does not rest on merges: a law is broken and its trace will be
            replayed, or a bound was reached.

    Raises:
        Nondeterministic: A result differs.
    """
    subjects = [
        *_programs(space.processes.values(), is_over=is_over),
        *(_Subject(case, reach) for case, reach in calls(space, steppers, states)),
        *(_Subject(case, reach, is_asked=True) for case, reach in asked(space, states, is_at_rest)),
    ]
    for subject in subjects:
        subject.left = subjects[0].left
    waiting = _begin_elsewhere(subjects)
    for subject in subjects:
        subject.execute()
    cut_short = [] if is_over else _executed_at_length([subject for subject in subjects if subject.is_suspect])
    unshipped = (line for wait in waiting for line in wait())
    written_only = space.scenario.written_only
    unsure = dict.fromkeys((*unshipped, *cut_short, *_uses(subjects), *_assumed(subjects, written_only)))
    return Confirmed(tuple(dict.fromkeys(_doubts(subjects, written_only))), tuple(unsure))


def _executed_at_length(subjects: Sequence[_Subject]) -> list[str]:
    """Execute suspects thousands of times, with a time limit; returns those cut short."""
    second = second_process()
    end = None if second is None else second.seconds() + _LONG_S
    names: dict[str, None] = {}
    for subject in subjects:
        for _ in subject.execute_at_length():
            if second is not None and end is not None and second.seconds() >= end:
                names[subject.case.name] = None
                break
    return [f"{name} was re-executed for {_LONG_S:g} s only, so fewer runs than usual were compared" for name in names]


# --- subjects -------------------------------------------------------------------------------------


@final
@attrs.define(eq=False)
class _Subject:
    """A recorded piece of code to execute again.

    Attributes:
        is_asked: A law, a goal or a predicate, evaluated once per state.
        left: The number of values that all subjects may still read.
        changes: Changes of outside state.
    """

    case: Case
    reach: Reach
    automaton: ProgramAutomaton | None = None
    sent: int = 0
    is_asked: bool = False
    left: list[int] = attrs.field(factory=lambda: [_WATCHED_MAX])
    is_watched: bool = True
    changes: dict[str, None] = attrs.field(factory=dict)

    @property
    def is_suspect(self) -> bool:
        return bool(self.changes or self.reach.clocks or self.reach.randoms)

    @property
    def name(self) -> str:
        case = self.case
        if self.is_asked and case.process and isinstance(case, CallCase):
            return f"{case.what} of {case.process}"
        return case.name

    @property
    def is_sent(self) -> bool:
        """Does a second process execute it too? Not a law that only outside state could make
        differ.
        """
        return not self.is_asked or bool(self.reach.has_sets or self.reach.clocks or self.reach.randoms)

    @property
    def is_merged(self) -> bool:
        """May it behave differently next time although the search merged it?"""
        return self.automaton is None or any(True for _ in merging(self.automaton))

    def execute(self) -> None:
        before, awaits, ends = self.reach.snapshot(), repeat(None, _SNAPSHOTS), repeat(None, _SNAPSHOTS)

        def see(left: Iterator[None], least: int = 0) -> None:
            for _ in islice(left, 1):
                if self.left[0] > least:
                    self.changes |= dict.fromkeys(self.reach.changed(before, self.left, self.changes))
                else:
                    self.is_watched = False

        def keep(node: int, program: Program[object]) -> None:
            see(ends, -_WATCHED_MAX)
            self.park(node, program)

        if isinstance(self.case, ProgramCase):
            found = self.case.execute((lambda: see(awaits)) if before else None, keep)
        else:
            found = self.case.execute()
        see(ends, -_WATCHED_MAX)
        self.raise_mismatch(found)

    def execute_at_length(self) -> Iterator[None]:
        if isinstance(self.case, CallCase):
            for _ in range(-(-_SUSPECT_REPLIES // max(1, len(self.case.calls)))):
                self.raise_mismatch(self.case.execute())
                yield
            return
        assert self.automaton is not None, "a program has one"
        number = len(list(loops(self.automaton, most=_SUSPECT_LOOPS, replies=1)))
        for run in loops(self.automaton, most=number, replies=_SUSPECT_REPLIES // max(1, number)):
            self.raise_mismatch(case_of(self.automaton, (run,)).execute(keep=self.park))
            yield
        for case in self.case.repeated(_SUSPECT_REPLIES):
            self.raise_mismatch(case.execute(keep=self.park))
            yield

    def park(self, node: int, program: Program[object]) -> None:
        """Keep the program: dropping it at an await may have side effects, and it can be reused."""
        assert self.automaton is not None, "a program has one"
        self.automaton.park_again(node, program)

    def raise_mismatch(self, found: Mismatch | None, *, is_second: bool = False) -> None:
        if found is not None:
            raise differs(
                found.what, self.case.process, found.src, self.reach, tuple(self.changes), is_second=is_second
            )


def _programs(processes: Iterable[ProcessActor], *, is_over: bool) -> Iterator[_Subject]:
    for process in processes:
        for automaton in process.automata:
            reach = reached(automaton.birth)
            effort = _USERS if reach.has_code else _SHIPPED
            edges = sum(len(node.edges) for node in automaton.nodes) if effort.is_all else 0
            runs = planned(automaton, effort.sent if is_over else max(edges, effort.replies), effort.left)
            looped = loops(automaton, most=0 if is_over else effort.loops, replies=effort.loop_replies)
            yield _Subject(case_of(automaton, (*runs, *looped)), reach, automaton, effort.sent)


def _doubts(subjects: Sequence[_Subject], written_only: tuple[str, ...]) -> Iterator[str]:
    owners = Counter(
        place for subject in subjects for place in {(id(holder), name) for _, holder, name in subject.reach.named}
    )
    for subject in subjects:
        shared = {label for label, holder, name in subject.reach.places if owners[id(holder), name] > 1}
        undeclared = (label for label in subject.changes if label not in written_only)
        names = tuple(label for label in undeclared if subject.is_merged or label in shared)
        read = set[str]()
        changed = [
            (label, holder, name, objects_at(holder, name, subject.reach.own))
            for label, holder, name in subject.reach.places
            if label in subject.changes
        ]
        for reader in subjects:
            if reader.is_asked and reader is not subject and (these := _read(changed, reader.reach)):
                read |= {*these}
                yield (
                    f"{subject.name} changes {', '.join(f'`{label}`' for label in these)} and {reader.name} reads it, but it is "
                    "evaluated only once for each state: read it from the state, or keep it in a document or a note"
                )
        if names := tuple(label for label in names if label not in read):
            labels = ", ".join(f"`{label}`" for label in names)
            proposed = tuple(label for label in names if label not in {*subject.reach.clocks, *subject.reach.randoms})
            declare = f"; if nothing reads it, declare Scenario(written_only={proposed})" if proposed else ""
            yield (
                f"{subject.name} changes {labels}, which is outside of its program and may decide later: "
                f"keep it in a local, or pass it as an argument{declare}"
            )


def _assumed(subjects: Sequence[_Subject], written_only: tuple[str, ...]) -> Iterator[str]:
    changed = {label for subject in subjects for label in subject.changes}
    places = {label for subject in subjects for label, _, _ in subject.reach.places}
    for label in dict.fromkeys(written_only):
        if label in changed:
            yield f"written_only: `{label}` is assumed to be read by nothing"
        elif label not in places:
            yield f"written_only names `{label}`, which no code reaches"


def _read(places: Sequence[tuple[str, object, str, frozenset[int]]], reach: Reach) -> list[str]:
    return [
        label
        for label, holder, name, objects in places
        if reach.names(holder, name) or not objects.isdisjoint(reach.objects)
    ]


def _uses(subjects: Sequence[_Subject]) -> Iterator[str]:
    users: dict[str, dict[str, None]] = {}
    for subject in subjects:
        if sources := (*subject.reach.clocks, *subject.reach.randoms):
            users.setdefault(", ".join(sources), {})[subject.name] = None
    for subject in subjects:
        if not subject.is_watched:
            yield (
                f"{subject.name}: the state outside of the program is large, and was not compared at every await: keep large "
                "tables immutable"
            )
        if subject.reach.left_out:
            yield f"{subject.name}: more than {DATA_MAX:,} objects outside of the program: not all were watched"
        for label in sorted(subject.reach.cut):
            yield f"{subject.name}: `{label}` holds too many values outside of the program: not all were watched"
    for used, names in users.items():
        yield (
            f"{', '.join(names)} {'uses' if len(names) == 1 else 'use'} {used}: a run at another time, or with other random "
            "numbers, may decide differently; read the time with an effect, and pass random numbers as arguments"
        )


# --- in a second process --------------------------------------------------------------------------


def _begin_elsewhere(subjects: Sequence[_Subject]) -> list[Callable[[], list[str]]]:
    second = second_process()
    return (
        []
        if second is None
        else [
            _sent(second, group, is_thorough=is_thorough)
            for is_thorough in (False, True)
            if (group := [each for each in subjects if each.is_sent and each.reach.has_sets is is_thorough])
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
                    name = subject.case.name
                    unshipped.append(f"{name} was not executed in a second process with another hash seed: {why}")
                case _:
                    subject.raise_mismatch(answer, is_second=True)
        return unshipped

    return answered
