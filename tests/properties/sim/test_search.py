"""The packed search agrees with a naive one: states, depth, faults, goals, violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from random import Random  # noqa: TID251  seeded by Hypothesis
from typing import Generic, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests import length
from tests.properties.plain_search import Found, agree, plain_search

from tidegate.catalogue import shipped
from tidegate.consumer.checks.scenarios.partition import GIVES_UP, group, partition
from tidegate.invocations.checks.scenarios.transition import transition
from tidegate.leases.checks.scenarios.small_lock import small_lock
from tidegate.model.documents import ID, Add, Document, Eq, Field, Push, exactly
from tidegate.model.effects import Ambiguous, Call, Note, Sleep
from tidegate.model.instants import SECOND
from tidegate.model.operations import find_one, find_one_and_update, update_one
from tidegate.sim.program.automaton import Crashed, Failed, Returned
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import ActorStep, Clock, Label, Law, Scenario, State, StepLaw
from tidegate.sim.search.properties import Always, Between, Broken, Grew
from tidegate.sim.search.search import Search
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.packing import Lens, Looked
from tidegate.sim.world.world import Cell, Plain, World, calling, document, world_with

T = TypeVar("T")
V = TypeVar("V")


# --- shipped scenarios, made small --------------------------------------------------------------------------------------


def with_moves(scenario: Scenario, moves: int) -> Scenario:
    assert scenario.clock is not None
    return attrs.evolve(scenario, clock=attrs.evolve(scenario.clock, moves=moves), sometimes={})


def transition_of_two(budget: int) -> Scenario:
    whole = transition(budget=budget)
    actors = tuple(actor for actor in whole.actors if actor.name != "r2")
    always = {
        name: tuple(part for number, part in enumerate(law) if number != 1) if isinstance(law, tuple) else law
        for name, law in whole.always.items()
    }
    return attrs.evolve(whole, actors=actors, always=always, symmetric=())


SMALL: Mapping[str, Callable[[], Scenario]] = {
    **{
        f"small_lock{scope}": partial(small_lock, *scope)
        for scope in ((2, 1, 1, 1), (3, 1, 1, 0), (2, 2, 1, 1), (3, 1, 1, 1), (2, 2, 2, 2), (2, 1, 2, 3))
    },
    "transition": partial(transition, budget=0),
    "transition of two": partial(transition_of_two, 1),
    "array_push_lock": lambda: with_moves(shipped("array_push_lock"), 2),
    "array_push_lock.stall.2": lambda: with_moves(shipped("array_push_lock.stall.2"), 3),
    "array_push_lock.overwrite.2": lambda: with_moves(shipped("array_push_lock.overwrite.2"), 3),
    "array_push_lock.lost_reply": lambda: with_moves(shipped("array_push_lock.lost_reply"), 1),
    "array_push_lock.late": lambda: with_moves(shipped("array_push_lock.late"), 1),
    "partition": partial(partition, records=1, rebalances=1, budget=1),
    **(
        {"partition.gives_up": partial(partition, records=1, rebalances=1, budget=1, kinds=GIVES_UP)}
        if length.GIVES_UP
        else {}
    ),
    "group": partial(group, records=1, rebalances=0, budget=1),
}


@cache
def small(name: str) -> tuple[Scenario, Found]:
    scenario = SMALL[name]()
    return scenario, plain_search(scenario)


@pytest.mark.xdist_group("small scopes")
@pytest.mark.parametrize("name", SMALL)
def test_both_searches_find_the_same_in_small_scopes(name: str) -> None:
    found = agree(*small(name))
    assert found.states > 100 or found.broken is not None


@pytest.mark.parametrize(
    ("scope", "states", "transitions"),
    [((3, 3, 2, 1), 169_936, 672_588), ((4, 2, 2, 1), 1_117_605, 5_648_644), ((3, 4, 2, 2), 952_044, 4_473_477)][
        : length.SMALL_LOCK
    ],
)
def test_the_small_lock_has_the_states_that_tlc_counts(
    scope: tuple[int, int, int, int], states: int, transitions: int
) -> None:
    """TLC 2.15 on a TLA+ model of the same protocol."""
    report = explore(small_lock(*scope))
    assert (report.verdict, report.states, report.transitions) == (Verdict.COMPLETE, states, transitions)


# --- actors and laws drawn at random ------------------------------------------------------------------------------------

CELLS = tuple(Cell[int](("cell", str(number)), 0) for number in range(4))


@attrs.frozen
class Leaf(Generic[T]):
    value: T


@attrs.frozen
class Look(Generic[T]):
    cell: int
    side: int
    then: tuple[Leaf[T] | Look[T], ...]


Tree: TypeAlias = Leaf[T] | Look[T]


def decided(tree: Tree[T], *sides: World | State) -> T:
    while isinstance(tree, Look):
        tree = tree.then[sides[tree.side].read(CELLS[tree.cell]) % len(tree.then)]
    return tree.value


def tree(random: Random, leaf: Callable[[], T], sides: int = 1, depth: int = 3) -> Tree[T]:
    if depth == 0 or random.random() < 0.2:
        return Leaf(leaf())
    branches = tuple(tree(random, leaf, sides, depth - 1) for _ in range(random.randint(2, 3)))
    return Look(random.randrange(len(CELLS)), random.randrange(sides), branches)


@attrs.frozen
class Move:
    writes: tuple[tuple[int, int], ...]
    must: bool
    fault: Fault | None


@attrs.frozen(eq=False)
class Table:
    name: str
    moves: Tree[tuple[Move, ...]]
    at_once: tuple[int, ...] = ()
    place: Cell[object] | None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        moves = decided(self.moves, world)
        shared = world
        for cell in self.at_once:
            shared = shared.write(CELLS[cell], 1)
        for number, move in enumerate(moves):
            after = shared
            for cell, value in move.writes:
                after = after.write(CELLS[cell], value)
            yield ActorStep(Label(f"{self.name} makes move {number}"), after, move.must, move.fault)


def always_law(tree: Tree[bool]) -> Law:
    return lambda state: decided(tree, state)


def law_of_changes(cells: tuple[int, ...], tree: Tree[bool]) -> StepLaw:
    return lambda before, after: (
        all(before.read(CELLS[cell]) == after.read(CELLS[cell]) for cell in cells) or decided(tree, before, after)
    )


def law_of_growth(cells: tuple[int, ...], tree: Tree[bool]) -> StepLaw:
    return lambda before, after: (
        decided(tree, before, after) or all(before.read(CELLS[cell]) <= after.read(CELLS[cell]) for cell in cells)
    )


def random_scenario(random: Random) -> Scenario:
    share = random.choice((0.5, 0.9, 0.98))

    def cells(least: int, most: int) -> tuple[int, ...]:
        return tuple(random.randrange(len(CELLS)) for _ in range(random.randint(least, most)))

    def move() -> Move:
        writes = tuple((cell, random.randrange(3)) for cell in cells(1, 2))
        return Move(writes, random.random() < 0.5, random.choice((None, None, Fault.LATE, Fault.DROPPED)))

    def moves() -> tuple[Move, ...]:
        return tuple(move() for _ in range(random.choice((0, 1, 1, 2, 2))))

    def mostly() -> bool:
        return random.random() < share

    def table(number: int) -> Table:
        blind = random.random() < 0.4
        place = None if blind else random.choice((None, *CELLS))
        return Table(f"t{number}", tree(random, moves), cells(0, 1), cast("Cell[object] | None", place), blind)

    def laws(make: Callable[[], V], kind: str) -> dict[str, V]:
        return {f"{kind} {number}": make() for number in range(random.choice((0, 0, 1)))}

    world = Plain()
    for cell in CELLS:
        world = world.write(cell, random.randrange(3))
    return Scenario(
        name="tables",
        summary="",
        world=world,
        actors=tuple(table(number) for number in range(random.randint(2, 4))),
        always=laws(lambda: tuple(always_law(tree(random, mostly)) for _ in range(random.randint(1, 2))), "always"),
        step=laws(
            lambda: random.choice((law_of_changes, law_of_growth))(cells(1, 2), tree(random, mostly, sides=2)), "step"
        ),
        eventually=laws(lambda: always_law(tree(random, mostly)), "rest"),
        sometimes=laws(lambda: always_law(tree(random, mostly)), "goal"),
    )


def check_agreement(examples: int = 1_500) -> None:
    @settings(max_examples=examples, phases=[Phase.generate])
    @given(st.integers(0, 2**32))
    def both_find_the_same(seed: int) -> None:
        agree(random_scenario(Random(seed)))

    both_find_the_same()


def test_both_searches_find_the_same_in_random_tables() -> None:
    check_agreement(length.RANDOM_TABLES)


# --- adversarial scenarios ----------------------------------------------------------------------------------------------

A, B, C, D = (Cell[object](("cell", name), 0) for name in "abcd")


@attrs.frozen(eq=False)
class Does:
    name: str
    does: Callable[[World], Iterator[tuple[str, World]]]
    place: Cell[object] | None = None
    blind: bool = False
    must: bool = True

    def steps(self, world: World) -> Iterator[ActorStep]:
        for what, after in self.does(world):
            yield ActorStep(Label(what), after, self.must)


def does(*actors: Does, **laws: object) -> Scenario:
    return Scenario(name="adversary", summary="", world=Plain(), actors=actors, **laws)  # type: ignore[arg-type]


def toggles(cell: Cell[object]) -> Does:
    def steps(world: World) -> Iterator[tuple[str, World]]:
        yield "toggles", world.write(cell, 1 - int(world.read(cell) == 1))

    return Does(f"toggles {cell.name[-1]}", steps)


def counts(cell: Cell[object], values: tuple[object, ...], then: Cell[object] | None = None) -> Does:
    def steps(world: World) -> Iterator[tuple[str, World]]:
        at = [index for index, value in enumerate(values) if exactly(value) == exactly(world.read(cell))]
        following = at[0] + 1 if at else 0
        if following < len(values):
            after = world.write(cell, values[following])
            yield "counts", after.write(then, 1) if then and following + 1 == len(values) else after

    return Does(f"counts {cell.name[-1]}", steps)


def late_footprint(*, is_broken: bool) -> Scenario:
    """The law reads B only if A is 1. B toggles from the start; A becomes 1 at C = 3."""
    return does(
        toggles(B),
        counts(C, (1, 2, 3), A),
        step={
            "B never falls once A is 1": lambda before, after: (
                before.read(A) != 1 or not is_broken or before.read(B) <= after.read(B)
            )
        },
    )


def changed_first() -> Scenario:
    return does(
        toggles(B),
        counts(A, (1, 2)),
        counts(C, (1, 2)),
        step={
            "C is 2 before A is": lambda before, after: (
                before.read(A) == after.read(A) or after.read(A) != 2 or after.read(C) == 2
            )
        },
    )


def looks_elsewhere() -> Scenario:
    return does(
        toggles(A),
        counts(B, (1, 2, 3)),
        counts(C, (1, 2, 3, 4)),
        always={"not 4": lambda state: state.read(B if state.read(A) == 1 else C) != 4},
    )


def branches_blindly(world: World) -> Iterator[tuple[str, World]]:
    if world.read(A) != 2:
        shared = world.write(A, 2)
        shared.write(D, 1)
        yield "this", shared.write(B, 1)
        yield "that", shared.write(C, shared.read(D))


def looks_blindly(world: World) -> Iterator[tuple[str, World]]:
    after = world.write(D, 3)
    if world.read(B) == 1 and world.read(C) == 2:
        after = after.write(B, 2)
    if after.read(D) == 3:
        yield "strikes", after


def writes_unseen(world: World) -> Iterator[tuple[str, World]]:
    yield "writes", world.write(B, 2)


def same_again(world: World) -> Iterator[tuple[str, World]]:
    yield "nothing", world
    yield "nothing", world.write(A, world.read(A))


@attrs.frozen
class Left:
    n: int


@attrs.frozen
class Right:
    n: int


class LeftTuple(NamedTuple):
    n: int


class RightTuple(NamedTuple):
    n: int


def in_parts(kind: str, most: int) -> Scenario:
    law = (lambda *sides: sides[-1].read(B) in {None, 0, 1}, lambda *sides: int(sides[-1].read(A) or 0) < most)
    return does(counts(A, (1, 2)), toggles(B), counts(C, (1,)), **{kind: {"both": law}})


ALIKE = (1, True, 1.0, 0.0, -0.0, False, None, "1", b"1", (1,), (True,), Left(1), Right(1), LeftTuple(1), RightTuple(1),
         float("nan"), (float("nan"),), frozenset({1}), Document.of({"n": 1}), Document.of({"n": 1.0}))  # fmt: skip

ADVERSARIES: Mapping[str, Callable[[], Scenario]] = {
    "a footprint that grows late": partial(late_footprint, is_broken=False),
    "a footprint that grows late, and the law is broken": partial(late_footprint, is_broken=True),
    "what changed says where to look": changed_first,
    "a law that looks elsewhere": looks_elsewhere,
    "a blind actor with two steps": lambda: does(Does("x", branches_blindly, blind=True), toggles(B), toggles(D)),
    "a blind actor that looks": lambda: does(Does("x", looks_blindly, blind=True), toggles(B), counts(C, (1, 2))),
    "a write without a look": lambda: does(Does("x", writes_unseen), toggles(B), toggles(A)),
    "steps that change nothing": lambda: does(Does("x", same_again), toggles(A)),
    "values that are equal and not the same": lambda: does(counts(A, ALIKE), toggles(B)),
    "a cell of 700 values": lambda: does(
        attrs.evolve(counts(A, tuple(range(1, 700))), place=A),
        toggles(B),
        step={"A grows": lambda before, after: before.read(A) <= after.read(A)},
        always={"not so large": lambda state: state.read(A) != 698},
    ),
    "rest is shorter than a step": lambda: does(
        Does(
            "x", lambda world: iter([("r", world.write(A, 1)), ("s", world.write(A, 2))] if not world.read(A) else [])
        ),
        Does("y", lambda world: iter([("t", world.write(A, 3))] if world.read(A) == 2 else [])),
        step={"never 3": lambda before, after: before.read(A) == after.read(A) or after.read(A) != 3},
        eventually={"no rest at 1": lambda state: state.read(A) != 1},
    ),
    "what need not happen": lambda: does(
        attrs.evolve(toggles(A), must=False), counts(B, (1, 2)), eventually={"B is 2": lambda state: state.read(B) == 2}
    ),
    "a law that does not hold when nothing changes": lambda: does(
        counts(A, (1, 2)), step={"A moves": lambda before, after: before.read(A) != after.read(A)}
    ),
    "a law that looks at nothing": lambda: does(counts(A, (1, 2)), always={"no": lambda _: False}),
    **{
        f"a {kind} law in parts": partial(in_parts, kind, part)
        for kind in ("step", "eventually", "sometimes")
        for part in (1, 2, 3)
    },
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_both_searches_find_the_same_where_one_is_out_to_break_them(name: str) -> None:
    agree(ADVERSARIES[name]())


# --- planted bugs -------------------------------------------------------------------------------------------------------


def write_is_not_a_look(self: Lens, cell: Cell[V], value: V) -> Lens:
    slot = self.packing.slot(cell)
    return Lens(self.packing, slot.put(self.state, value), self.looked, self.blind, self.wrote | slot.mask)


def read_is_not_a_look(self: Lens, cell: Cell[V]) -> V:
    return cast("V", self.packing.slot(cell).get(self.state))


def judge_and_forget(self: Between, before: int, after: int, looked: Looked) -> None:  # noqa: ARG001
    """Planted: a step law's reads are not part of the step's footprint."""
    REAL_JUDGE(self, before, after, Looked())


def judged_without_growth(self: Search, layer: list[int]) -> Broken | None:
    """Planted: late growth of a footprint goes unnoticed."""
    try:
        return REAL_JUDGED(self, layer)
    except Grew:
        return None


def known_at_once(self: Always, states: list[int]) -> int | None:
    """Planted: a law runs once, and its reads count as constant."""
    mask = self.looked.bits or -1
    for state in states:
        if state & mask not in self.good:
            if not self.holds(self.space.view(state, Looked() if self.good else self.looked)):
                return state
            self.good.add(state & (self.looked.bits or -1))
            mask = self.looked.bits or -1
    return None


REAL_JUDGE, REAL_JUDGED = Between.judge, Search.judged

PLANTED: Mapping[str, tuple[object, str, object]] = {
    "a write is not a look": (Lens, "write", write_is_not_a_look),
    "a read is not a look": (Lens, "read", read_is_not_a_look),
    "a step forgets what its law looked at": (Between, "judge", judge_and_forget),
    "a late footprint goes unnoticed": (Search, "judged", judged_without_growth),
    "a law looks at the same cells for ever": (Always, "broken_by", known_at_once),
    "nothing is at rest": (Search, "judged_at_rest", lambda *_: None),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_in_the_search_makes_the_two_differ(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[bug])
    with pytest.raises((AssertionError, IndexError)):  # otherwise a packed state holds an unwritten value
        list(map(agree, (adversary() for adversary in ADVERSARIES.values())))


# --- programs drawn at random -------------------------------------------------------------------------------------------

N = Field[int]("n")
LOG = Field[tuple[int, ...]]("log")
ROW = Eq(ID, "x")


async def little(words: tuple[str, ...], me: int, life: int) -> tuple[int, ...]:
    seen: tuple[int, ...] = ()
    for number, word in enumerate(words):
        try:
            match word:
                case "add":
                    after = await find_one_and_update("rows", ROW, Add(N, 1))
                    seen = (*seen, after[N] % 3 if after else -1)
                case "push":
                    await update_one("rows", ROW, Push(LOG, 10 * me + life, last=2))
                case "read":
                    row = await find_one("rows", ROW)
                    seen = (row[N] if row else -1,)
                case "until":
                    for _ in range(2):
                        row = await find_one("rows", ROW)
                        if row is None or row[N] > 1:
                            break
                case "note":
                    await Note("at", number)
                case "sleep":
                    await Sleep(SECOND)
                case _:
                    seen = (*seen, cast("int", await Call("choose")))
        except Ambiguous:
            seen = (*seen, -2)
    return seen


def little_scenario(random: Random) -> Scenario:
    words = ("add", "push", "read", "until", "note", "sleep", "choose")
    kinds = [
        Fault.CRASH_BEFORE,
        Fault.CRASH_AFTER,
        Fault.RESTART,
        Fault.UNSENT,
        Fault.DROPPED,
        Fault.LOST_REPLY,
        Fault.LATE,
    ]
    faults = Faults.of(*random.sample(kinds, random.randint(0, 4)))
    means = calling({"choose": (1, 2)})

    def program(number: int) -> Process:
        said = tuple(random.choice(words) for _ in range(random.randint(1, 3)))
        return Process(f"p{number}", lambda life: little(said, number, life), faults, means)

    programs = tuple(program(number) for number in range(random.randint(1, 2)))
    limit = random.randint(1, 4)
    return Scenario(
        name="little",
        summary="",
        world=world_with({"rows": (Document.of({"_id": "x", "n": 0, "log": ()}),)}),
        actors=(*programs, Network(means)),
        budget=random.randint(0, 2),
        clock=random.choice((None, Clock(SECOND, moves=2))),
        always={"it stays small": lambda state: row_of(state)[N] < limit},
        step={"it never falls": lambda before, after: row_of(before)[N] <= row_of(after)[N]},
        eventually={
            "all have finished": lambda state: all(
                isinstance(state.status(each.name), (Returned, Crashed, Failed)) for each in programs
            )
        },
    )


def row_of(state: State) -> Document:
    row = state.read(document("rows", "x"))
    assert row is not None
    return row


def test_both_searches_find_the_same_in_random_programs() -> None:
    sizes = [agree(little_scenario(Random(seed))).states for seed in range(length.RANDOM_PROGRAMS)]
    assert max(sizes) > 400
