"""Re-execution of whole runs with fresh programs: in this process, and in a second one.

A search merges suspended programs by their frames, and runs each program once for each (node,
reply). State outside of the frames makes a merge wrong without any replay. So after a search,
`planned` chooses runs through the automaton:
    ways     from the start through each edge and on to an end. A cycle may have no end, so a run
             stops after `_BEYOND` replies without a new node, or `_ONWARD_MAX` replies, or when all
             runs together have used `_FURTHER_MAX` beyond their first `_BEYOND`. A later difference
             is missed.
    loops    a cycle without an end is repeated
Fresh programs execute them; each status is compared with the recorded one. Guaranteed: one further
way into each node is tried, then a second one, and so on, until the runs have as many replies as
the search; then some of the remaining edges.

A second process with another PYTHONHASHSEED executes the same `Case`, which consists of plain
values and functions (the port `SecondProcess`; adapter:
tidegate_adapters.exploring.second_process).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, cycle, repeat
from typing import Final, NamedTuple, Protocol, TypeAlias, final

import attrs

from tidegate.model.documents import exactly, show
from tidegate.model.effects import Program
from tidegate.model.errors import TidegateError, typed
from tidegate.sim.program.automaton import Birth, ProcessStatus, ProgramAutomaton, Raised, check_again, resume
from tidegate.sim.program.fingerprint import Canon
from tidegate.sim.program.source_locations import defined_at, told

_BEYOND: Final = 40
"""A run stops after this many replies in a row without a new node; it gets at least as many."""
_ONWARD_MAX: Final = 1_000
"""Limit of further replies for a run to reach an end."""
_FURTHER_MAX: Final = 10_000
"""The same for all runs of an automaton; these do not count as planned replies."""
REPLIES_MIN: Final = 300
_ENDS: Final = 20
_NEAR_MAX: Final = 30
"""Limit of nodes visited in search of a way back."""
_SHOWN_MAX: Final = 80
"""Limit of characters of a value in a message; a longer one is shown by its type."""
_EXACT: Final = 1
"""The first comparisons at a node are exact in types; later ones use equality, where 1
equals True.
"""
_GOLDEN: Final = 2_654_435_769
"""Its multiples modulo 2**32 are spread evenly (Knuth, The Art of Computer Programming, 6.4)."""

_Key: TypeAlias = Hashable
_Edge: TypeAlias = tuple[int, Hashable]
"""A node, and the key of a reply."""


@final
class ProgramRun(NamedTuple):
    """A run of a program.

    Attributes:
        life: The number of its life.
        steps: Its replies, each with the next node.
        loop: Further steps, which repeat.
        times: How often they repeat.
    """

    life: int
    first: int
    steps: tuple[tuple[object, int], ...]
    loop: tuple[tuple[object, int], ...] = ()
    times: int = 0

    @property
    def replies(self) -> int:
        return len(self.steps) + len(self.loop) * self.times


# --- planning ---------------------------------------------------------------------------------


def planned(automaton: ProgramAutomaton, replies: int = REPLIES_MIN, left: int = REPLIES_MIN) -> tuple[ProgramRun, ...]:
    """Runs from the start through the edges of the automaton.

    Args:
        automaton: The automaton.
        replies: Replies to spend on merges.
        left: Replies to spend on the remaining edges.
    """
    plan = _Plan(automaton)
    runs: list[ProgramRun] = []
    for ways, most in ((further_ways(automaton), replies), (plan.edges_left(), left)):
        given = 0
        for life, way, key in ways:
            if given >= most:
                break
            further = plan.further
            runs.append(plan.run(life, way, key))
            given += 1 + runs[-1].replies - (further - plan.further)
    return tuple(runs)


@final
class _Plan:
    def __init__(self, automaton: ProgramAutomaton) -> None:
        self.automaton = automaton
        self.walked: set[_Edge] = set()
        self.onward: dict[int, Iterator[_Key]] = {}
        self.further = _FURTHER_MAX

    def run(self, life: int, way: Sequence[int], key: _Key | None) -> ProgramRun:
        nodes, steps, at = self.automaton.nodes, list[tuple[object, int]](), way[0]
        for number in way[1:]:
            came = nodes[number].came
            assert came is not None, "the start of a way has no reply"
            self.walked.add((at, self.automaton.canon.key(came.reply)))
            steps.append((came.reply, number))
            at = number
        met, again, sure = set(way), 0, len(steps) + _BEYOND
        most = sure + min(_ONWARD_MAX, self.further)
        key = self.next_of(at) if key is None else key
        while key is not None and again < _BEYOND and len(steps) < most:
            self.walked.add((at, key))
            reply, at = nodes[at].edges[key]
            steps.append((reply, at))
            again = again + 1 if at in met else 0
            met.add(at)
            key = self.next_of(at)
        self.further -= max(0, len(steps) - sure)
        return ProgramRun(life, way[0], tuple(steps))

    def next_of(self, at: int) -> _Key | None:
        if at not in self.onward:
            self.onward[at] = cycle(self.automaton.nodes[at].edges)
        return next(self.onward[at], None)

    def edges_left(self) -> Iterator[tuple[int, list[int], _Key]]:
        """The edges without a run. The latest lie deepest, so runs to them take many edges."""
        nodes = self.automaton.nodes
        for number in range(len(nodes) - 1, self.automaton.CANCELLED, -1):
            for key in nodes[number].edges:
                if (number, key) not in self.walked:
                    yield nodes[number].life, self.automaton.way(number), key


def further_ways(automaton: ProgramAutomaton) -> Iterator[tuple[int, list[int], _Key | None]]:
    """The life, the nodes, and the last reply of each way; None if the way ends at its last node.

    First some ways that end: without merges, they show whether a program is deterministic. Then all
    further ways into nodes with several.
    """
    nodes = automaton.nodes
    ends = [number for number, node in enumerate(nodes) if number > automaton.CANCELLED and not node.edges]
    for number in ends[-_ENDS:]:
        yield nodes[number].life, automaton.way(number), None
    into: dict[int, list[tuple[int, int, _Key | None]]] = {}
    for life, to in automaton.births.items():
        if nodes[to].came is not None or nodes[to].life != life:
            into.setdefault(to, []).append((life, to, None))
    for number, key, to in merging(automaton):
        into.setdefault(to, []).append((nodes[number].life, number, key))
    spread = sorted(into, key=lambda to: to * _GOLDEN % 2**32)  # so that omitted ways are spread evenly
    for nth in range(max(map(len, into.values()), default=0)):
        for to in spread:
            if nth < len(into[to]):
                life, number, key = into[to][nth]
                yield life, [to] if key is None else automaton.way(number), key


def merging(automaton: ProgramAutomaton) -> Iterator[tuple[int, _Key, int]]:
    """The edges into nodes that another edge reached first."""
    for number, node in enumerate(automaton.nodes):
        for key, (reply, to) in node.edges.items():
            came = automaton.nodes[to].came
            if came is None or came.node != number or came.reply is not reply:  # equal replies may differ in type
                yield number, key, to


def loops(automaton: ProgramAutomaton, *, most: int, replies: int) -> Iterator[ProgramRun]:
    """Runs that repeat one cycle each.

    Args:
        automaton: The automaton.
        most: Limit of cycles.
        replies: Replies of a run.
    """
    for number, key, to in merging(automaton):
        if not most:
            return
        nodes, way = automaton.nodes, automaton.way(number)
        back = _way_between(automaton, to, way)
        if back is not None:
            most -= 1
            steps = [(nodes[each].came.reply, each) for each in way[1:]]  # type: ignore[union-attr]
            round_ = (nodes[number].edges[key], *back)
            yield ProgramRun(nodes[number].life, way[0], tuple(steps), round_, -(-replies // len(round_)))


def _way_between(automaton: ProgramAutomaton, start: int, way: list[int]) -> tuple[tuple[object, int], ...] | None:
    """From a node to the end of a way: along it if possible, else the shortest way; None if there
    is none.
    """
    nodes = automaton.nodes
    if start in way:
        return tuple((nodes[each].came.reply, each) for each in way[way.index(start) + 1 :])  # type: ignore[union-attr]
    came: dict[int, tuple[int, object] | None] = {start: None}
    todo = deque([start])
    while todo and way[-1] not in came:
        at = todo.popleft()
        for reply, to in nodes[at].edges.values():
            if to not in came and len(came) < _NEAR_MAX:
                came[to] = (at, reply)
                todo.append(to)
    if way[-1] not in came:
        return None
    found, at = list[tuple[object, int]](), way[-1]
    while (step := came[at]) is not None:
        found.append((step[1], at))
        at = step[0]
    return tuple(reversed(found))


# --- executing --------------------------------------------------------------------------------


@final
@attrs.frozen
class Mismatch:
    """A different result.

    Attributes:
        what: The recorded and the present result.
        src: `file.py:line function`; "" if unknown.
    """

    what: str
    src: str


@final
@attrs.frozen(eq=False)
class ProgramCase:
    """A program and its recorded runs.

    Attributes:
        process: The name of its process.
        birth: Makes a new run for a life.
        statuses: The status at each node.
        lines: The line of the request at each node.
    """

    process: str
    birth: Birth
    statuses: Mapping[int, ProcessStatus]
    lines: Mapping[int, str]
    runs: tuple[ProgramRun, ...]

    @property
    def name(self) -> str:
        return self.process

    def execute(
        self, see: Callable[[], None] | None = None, keep: Callable[[int, Program[object]], None] | None = None
    ) -> Mismatch | None:
        """Execute the runs with fresh programs and compare.

        Args:
            see: Called at each await.
            keep: Receives each program that has not ended, and its node.
        """
        exact, canon, compared = dict[int, object](), Canon(), Counter[int]()
        for run in self.runs:
            program, before = self.birth(run.life), run.first
            looped = chain.from_iterable(repeat(run.loop, run.times))
            for given, (reply, at) in enumerate(chain(((None, run.first),), run.steps, looped)):
                status = _resumed(program, reply)
                if see is not None:
                    see()
                compared[at] += 1
                if compared[at] > _EXACT and status == self.statuses[at]:
                    before = at
                    continue
                if at not in exact:
                    exact[at] = canon.key(self.statuses[at])
                if canon.key(status) != exact[at]:
                    line = self.lines[at] or self.lines[before] or defined_at(program)
                    check_again(self.statuses[at], status, line)
                    what = f"with the same replies a program was first {self.statuses[at]} and then stood at: {status}"
                    return Mismatch(f"{what} (after {given:,} repl{'y' if given == 1 else 'ies'})", line)
                before = at
            if keep is not None:
                keep(before, program)
        return None

    def shortened(self, replies: int) -> ProgramCase:
        sums = accumulate(run.replies for run in self.runs)
        runs = tuple(run for run, given in zip(self.runs, sums, strict=True) if given <= replies) or self.runs[:1]
        met = _met(runs)
        statuses, lines = {at: self.statuses[at] for at in met}, {at: self.lines[at] for at in met}
        return ProgramCase(self.process, self.birth, statuses, lines, runs)

    def repeated(self, replies: int) -> Iterator[ProgramCase]:
        """The same runs one by one, repeated for about this many replies."""
        each = sum(1 + run.replies for run in self.runs)
        for _ in range(-(-replies // max(1, each))):
            yield from (attrs.evolve(self, runs=(run,)) for run in self.runs)


def _resumed(program: Program[object], reply: object) -> ProcessStatus:
    try:
        return resume(program, reply)
    except TidegateError as error:  # the recorded run raised none
        return Raised(f"{type(error).__name__}: {error.what}", error.where)


def _met(runs: Iterable[ProgramRun]) -> set[int]:
    return {at for run in runs for at in (run.first, *(to for _, to in (*run.steps, *run.loop)))}


def case_of(automaton: ProgramAutomaton, runs: tuple[ProgramRun, ...]) -> ProgramCase:
    met, nodes = _met(runs), automaton.nodes
    statuses, lines = {at: nodes[at].status for at in met}, {at: nodes[at].src for at in met}
    return ProgramCase(automaton.process, automaton.birth, statuses, lines, runs)


@final
@attrs.frozen(eq=False)
class CallCase:
    """A function of a scenario and its recorded calls: of a reducer, or a meaning.

    Attributes:
        process: The name of its process, if any.
        what: Its role, for example `step`.
        line: Its line in the source.
    """

    process: str
    what: str
    line: str
    function: Callable[..., object]
    calls: tuple[tuple[tuple[object, ...], object], ...]

    @property
    def name(self) -> str:
        return self.process or self.what

    def execute(self) -> Mismatch | None:
        for arguments, result in self.calls:
            try:
                again = self.function(*arguments)
            except Exception as error:  # noqa: BLE001  the recorded call raised none
                again = Raised(told(error))
            if exactly(again) != exactly(result):
                called = f"{self.what}({', '.join(map(_brief, arguments[:2]))})"
                return Mismatch(f"{called} first returned {_brief(result)} and then {_brief(again)}", self.line)
        return None


def _brief(value: object) -> str:
    text = show(value)
    return text if len(text) <= _SHOWN_MAX else f"{typed(value)}"


Case: TypeAlias = ProgramCase | CallCase


@final
@attrs.frozen
class Unshipped:
    """The reason why a case was not executed in a second process."""

    why: str


Answer: TypeAlias = Mismatch | Unshipped | None
"""The result of a case in a second process; None if equal."""


class SecondProcess(Protocol):
    """The port to processes with another PYTHONHASHSEED, and to a clock."""

    def seconds(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    def execute(self, cases: Sequence[Case], *, is_thorough: bool) -> Callable[[], Sequence[Answer]]:
        """Start executing the cases.

        Args:
            cases: The cases.
            is_thorough: Use several hash seeds instead of one.

        Returns:
            A function that waits for the answers, one for each case.
        """
        ...
