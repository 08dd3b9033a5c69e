"""Little reducers, drawn at random: what they can do by brute force, and the same for the simulator.

A reducer is a table: its phase and an event give the next phase and commands, as long as it has any to give. A command is one
request of the one collection; what became of it comes back as an event, at once or (`split`) at any later time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random  # noqa: TID251  seeded
from typing import Any, NamedTuple

from tests.properties.independent.programs import Ask, Const, Doc, Failed, Term, request
from tests.properties.independent.scenarios import WORDS, DiffersError, given, held
from tests.properties.independent.search import Little, State, outcomes_of, typed

from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Cancel, Failure, NotApplied
from tidegate.model.reducer import Step
from tidegate.sim import (
    Cell,
    Crash,
    Crashed,
    Exploration,
    Fault,
    Faults,
    Machine,
    Network,
    ReducerProcess,
    Reductions,
    Scenario,
    Verdict,
    contents,
    explore,
    world_with,
)
from tidegate.sim import State as SimState
from tidegate.sim.world import inbox

STATES_MAX = 500
X = (Term("Eq", "_id", Const("x")),)
ASKS = (
    Ask("find", X),
    Ask("update", X, (Term("Add", "v", 1),)),
    Ask("find and update", (*X, Term("Eq", "v", Const(0))), (Term("Put", "v", Const(2)),)),
    Ask("update", (*X, Term("Eq", "v", Const(2))), (Term("Put", "v", Const(0)),)),
)
TAKE_BACK = len(ASKS)
"""A command of this number and more takes back the one that is so many before it."""
KINDS = ("unsent", "dropped", "lost_reply", "late", "duplicate", "crash_before", "stall")


class Rules(NamedTuple):
    """A reducer: (phase, event) -> the next phase and commands by number; where nothing is said, it stays."""

    name: str
    table: tuple[tuple[tuple[int, object], tuple[int, tuple[int, ...]]], ...]
    commands_max: int
    inbox: tuple[str, ...]
    split: frozenset[int]
    timers: frozenset[int]


class Reducers(NamedTuple):
    """A scenario of reducers."""

    rules: tuple[Rules, ...]
    faults: frozenset[str]
    budget: int
    bad: tuple[int, object]
    """What must never be: somebody in that phase while the document holds that value."""


class Standing(NamedTuple):
    """Where a reducer stands: its phase, what it may still give, its commands and events; None for both when it is dead."""

    phase: int
    left: int
    commands: tuple[int, ...]
    arrived: tuple[object, ...]
    inbox: tuple[str, ...]
    is_dead: bool = False


class All(NamedTuple):
    """All that there is at one time."""

    docs: tuple[Doc, ...]
    reducers: tuple[Standing, ...]
    flying: tuple[int, ...]
    budget: int


def stepped(rules: Rules, standing: Standing, event: object) -> Standing:
    """What follows from the event."""
    phase, given_out = dict(rules.table).get((standing.phase, event), (standing.phase, ()))
    if len(given_out) > standing.left:
        given_out = ()
    commands = list(standing.commands)
    for number in given_out:
        if number < TAKE_BACK:
            commands.append(number)
        else:  # of several that are the same, all
            commands = [each for each in commands if each != number - TAKE_BACK]
    return standing._replace(phase=phase, left=standing.left - len(given_out), commands=tuple(sorted(commands)))


def brief(number: int, reply: object) -> object:
    """The event that tells what became of a command."""
    match reply:
        case Failed(kind):
            return (number, kind)
        case Doc():
            return (number, reply.get("v"))
        case _:
            return (number, reply)


def moves(reducers: Reducers, state: All) -> Iterator[tuple[All, bool]]:
    """What may happen next, and whether it must."""
    for index, rules in enumerate(reducers.rules):
        standing = state.reducers[index]
        if standing.is_dead:
            continue
        if "crash_before" in reducers.faults and state.budget:
            dead = Standing(0, 0, (), (), standing.inbox, is_dead=True)
            yield _with(state, index, dead)._replace(budget=state.budget - 1), False
        if standing.inbox:
            taken = standing._replace(inbox=standing.inbox[1:])
            yield _with(state, index, stepped(rules, taken, standing.inbox[0])), True
        for event in set(standing.arrived):
            yield (
                _with(state, index, stepped(rules, standing._replace(arrived=_less(standing.arrived, event)), event)),
                True,
            )
        for number in set(standing.commands):
            yield from _of_command(reducers, rules, index, state, number)
    for number in set(state.flying):
        for docs, _ in _done(number, state):
            yield state._replace(docs=docs, flying=_less(state.flying, number)), True


def _of_command(reducers: Reducers, rules: Rules, index: int, state: All, number: int) -> Iterator[tuple[All, bool]]:
    standing = state.reducers[index]
    waiting = standing._replace(commands=_less(standing.commands, number))

    def told(world: All, reply: object) -> All:
        event = brief(number, reply)
        if number in rules.split:
            return _with(world, index, waiting._replace(arrived=tuple(sorted((*waiting.arrived, event), key=repr))))
        return _with(world, index, stepped(rules, waiting, event))

    spent = state._replace(budget=state.budget - 1)
    outcomes = list(_done(number, state))
    if number in rules.timers:
        if "stall" in reducers.faults and state.budget:
            yield told(spent, None), False  # a timer tells that it is over, and does nothing else
    else:
        for docs, reply in outcomes:
            after = told(state._replace(docs=docs), reply)
            yield after, after != state
    if not state.budget:
        return
    lost, flying = Failed("ambiguous"), spent._replace(flying=tuple(sorted((*state.flying, number))))
    for docs, reply in outcomes:
        for kind, world, answer in (
            ("unsent", spent, Failed("not applied")),
            ("dropped", spent, lost),
            ("lost_reply", spent._replace(docs=docs), lost),
            ("late", flying, lost),
            ("duplicate", flying._replace(docs=docs), reply),
        ):
            if kind in reducers.faults and number not in rules.timers:
                yield told(world, answer), False


def _done(number: int, state: All) -> Iterator[tuple[tuple[Doc, ...], object]]:
    return outcomes_of(Little((), ()), ASKS[number], State(state.docs, (), 0, ()))


def _with(state: All, index: int, standing: Standing) -> All:
    return state._replace(reducers=(*state.reducers[:index], standing, *state.reducers[index + 1 :]))


def _less(items: tuple[Any, ...], item: object) -> tuple[Any, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]


class Everything(NamedTuple):
    """What can be seen, where it rests, what changes, and the fewest steps to what must never be."""

    seen: frozenset[Any]
    rest: frozenset[Any]
    pairs: frozenset[Any]
    steps: int | None
    rests: bool


def first_of(reducers: Reducers) -> All:
    begin = tuple(Standing(0, rules.commands_max, (), (), rules.inbox) for rules in reducers.rules)
    return All((Doc((("_id", "x"), ("v", 0))),), begin, (), reducers.budget)


@lru_cache(8)
def everything(reducers: Reducers) -> Everything:
    """All that they can do."""
    first = first_of(reducers)
    number, order, depths = {first: 0}, [first], [0]
    seen, rest, pairs, steps = set(), set(), set(), None
    for index, state in enumerate(order):
        look = _look(state)
        seen.add(look)
        if steps is None and _is_bad(reducers, state):
            steps = depths[index]
        has_to = False
        for after, must in moves(reducers, state):
            has_to |= must
            if number.setdefault(after, len(order)) == len(order):
                order.append(after)
                depths.append(depths[index] + 1)
            if _look(after) != look:
                pairs.add((look, _look(after)))
        if not has_to:
            rest.add(look)
        if len(order) > STATES_MAX:
            raise OverflowError
    return Everything(frozenset(seen), frozenset(rest), frozenset(pairs), steps, bool(rest))


def _look(state: All) -> object:
    return tuple(map(typed, state.docs)), tuple(
        "dead" if each.is_dead else (each.phase, each.commands, tuple(sorted(each.arrived, key=repr)))
        for each in state.reducers
    )


def _is_bad(reducers: Reducers, state: All) -> bool:
    phase, value = reducers.bad
    return state.docs[0].get("v") == value and any(each.phase == phase and not each.is_dead for each in state.reducers)


def drawn_reducers(seed: str) -> Reducers:
    """Some that are neither too large nor idle."""
    random = Random(seed)
    while True:
        replies = (None, 0, 1, 2, "ambiguous", "not applied")
        events = ("go", "on", *((number, reply) for number in range(len(ASKS)) for reply in replies))

        def rules(name: str, events: tuple[object, ...] = events) -> Rules:
            def entry() -> tuple[int, tuple[int, ...]]:
                count = random.choice((0, 1, 1, 2))
                return random.randrange(3), tuple(random.choice((0, 1, 1, 2, 2, 3, 5, 6)) for _ in range(count))

            table = {(phase, event): entry() for phase in range(3) for event in events if random.random() < 0.7}
            for event in ("go", "on"):
                table[0, event] = random.randrange(3), tuple(random.sample(range(4), random.choice((1, 2))))
            return Rules(
                name, tuple(table.items()), random.choice((2, 3, 4)), ("go", "on")[: random.choice((1, 1, 2))],
                frozenset(number for number in range(4) if random.random() < 0.4),
                frozenset({random.randrange(4)}) if random.random() < 0.2 else frozenset(),
            )  # fmt: skip

        made = Reducers(
            tuple(rules(name) for name in "ab"[: random.choice((1, 2, 2))]),
            frozenset(kind for kind in KINDS if random.random() < 0.35),
            random.choice((0, 1, 1, 2)),
            (random.randrange(3), random.choice((1, 2, 3))),
        )
        try:
            if len(everything(made).seen) > 5:
                return made
        except OverflowError:
            continue


# --- for the simulator --------------------------------------------------------------------------------------------------

COMMANDS: tuple[Any, ...] = tuple(eval(request(ask), dict(WORDS)) for ask in ASKS)  # noqa: S307


def scenario_of(reducers: Reducers, **laws: Any) -> Scenario:
    """The same for the simulator."""
    faults = Faults.of(*(Fault(kind) for kind in sorted(reducers.faults)))
    processes = tuple(_process(rules, faults) for rules in reducers.rules)
    crashes = tuple(Crash(f"crash {each.name}", (each,), Cell(("dead", each.name), empty=False)) for each in processes)
    world = world_with({"c": tuple(map(given, first_of(reducers).docs))})
    for rules in reducers.rules:
        world = world.write(inbox(rules.name), rules.inbox)
    return Scenario(
        name="reducers",
        summary="drawn at random",
        world=world,
        actors=(*processes, *(crashes if "crash_before" in reducers.faults else ()), Network()),
        budget=reducers.budget,
        **laws,
    )


def _process(rules: Rules, faults: Faults) -> ReducerProcess:
    table = dict(rules.table)

    def step(state: tuple[int, int], event: object) -> Step[Any, Any]:
        phase, left = state
        to, numbers = table.get((phase, event), (phase, ()))
        if len(numbers) > left:
            numbers = ()
        commands = (
            COMMANDS[number] if number < TAKE_BACK else Cancel(COMMANDS[number - TAKE_BACK]) for number in numbers
        )
        return Step((to, left - len(numbers)), tuple(commands))

    def event_for(command: object, reply: object) -> object:
        return brief(COMMANDS.index(command), _held(reply))

    return ReducerProcess(
        rules.name, (0, rules.commands_max), step, event_for, faults,
        split=lambda command: command in {COMMANDS[number] for number in rules.split},
        is_timer=lambda command: command in {COMMANDS[number] for number in rules.timers},
    )  # fmt: skip


def _held(reply: object) -> object:
    match reply:
        case Ambiguous():
            return Failed("ambiguous")
        case NotApplied():
            return Failed("not applied")
        case Failure():
            return Failed("refused")
        case _:
            return held(reply)


def _seen(reducers: Reducers, state: SimState) -> object:
    docs: tuple[Document, ...] = contents(state, "c")
    return tuple(typed(held(doc)) for doc in docs), tuple(_stands(state.status(each.name)) for each in reducers.rules)


def _stands(status: object) -> object:
    match status:
        case Machine((phase, _), commands, arrived):
            return phase, tuple(sorted(map(COMMANDS.index, commands))), tuple(sorted(arrived, key=repr))
        case Crashed():
            return "dead"
        case _:
            return status


def compared(reducers: Reducers, reductions: Reductions) -> None:
    """Assert that both find the same.

    Raises:
        DiffersError: They do not.
    """
    found = everything(reducers)
    seen: set[object] = set()
    rest: set[object] = set()
    pairs: set[object] = set()

    def see(into: set[object]) -> Any:
        def law(state: SimState) -> bool:
            into.add(_seen(reducers, state))
            return True

        return law

    def see_pair(before: SimState, after: SimState) -> bool:
        one, other = _seen(reducers, before), _seen(reducers, after)
        if one != other:
            pairs.add((one, other))
        return True

    def is_well(state: SimState) -> bool:
        phase, value = reducers.bad
        statuses = [state.status(each.name) for each in reducers.rules]
        is_there = any(isinstance(each, Machine) and each.state[0] == phase for each in statuses)  # type: ignore[index]
        return not is_there or dict(contents(state, "c")[0].items)["v"] != value

    whole = scenario_of(reducers, always={"seen": see(seen)}, eventually={"rest": see(rest)}, step={"pairs": see_pair})
    report = explore(whole, Exploration(reductions=Reductions()))
    _must_be_the_same(
        "the verdict", Verdict.COMPLETE if found.rests else Verdict.INCONCLUSIVE, report.verdict, reducers
    )
    _must_be_the_same("what is seen", seen, found.seen, reducers)
    _must_be_the_same("what changes", pairs, found.pairs, reducers)
    if found.rests:
        _must_be_the_same("what is seen at rest", rest >= found.rest, True, reducers)
    report = explore(scenario_of(reducers, always={"it is well": is_well}), Exploration(reductions=reductions))
    steps = None if report.trace is None else len(report.trace.steps)
    _must_be_the_same("the shortest way", found.steps, steps, reducers)


def _must_be_the_same(what: str, mine: Any, theirs: Any, reducers: Reducers) -> None:
    if mine != theirs:
        differs = mine ^ theirs if isinstance(mine, (set, frozenset)) else (mine, theirs)
        raise DiffersError(f"{what}: {differs}\n{reducers}")
