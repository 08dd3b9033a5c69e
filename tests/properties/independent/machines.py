"""Little reducers, drawn at random: what they can do by brute force, and the same for the simulator.

A reducer is a table: its phase and an event give the next phase and commands, as long as it has any to give. A command is one
request, of the one collection or of user code, or is carried out by a little program; what became of it comes back as an event,
at once or (`split`) at any later time. Who has died may start again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from random import Random  # noqa: TID251  seeded
from typing import Any, NamedTuple

from tests.properties.independent.programs import (
    Ask,
    Const,
    Doc,
    Failed,
    Program,
    Stands,
    Term,
    answered,
    begun,
    flat,
    request,
)
from tests.properties.independent.scenarios import (
    NAMED,
    OF_CALLS,
    WORDS,
    DiffersError,
    Draw,
    given,
    held,
    is_call,
    program_of,
    shown,
    stands_as,
)
from tests.properties.independent.search import Actor, Little, State, outcomes_of, typed

from tidegate.model.documents import Document
from tidegate.model.effects import Cancel, Failure
from tidegate.model.reducer import Step
from tidegate.sim import (
    Cell,
    Crash,
    Crashed,
    Fault,
    Faults,
    Machine,
    Network,
    ReducerProcess,
    Scenario,
    Verdict,
    World,
    all_effects,
    calling,
    contents,
    document,
    explore,
    notes,
    world_with,
)
from tidegate.sim import State as SimState
from tidegate.sim.reducers import Restart
from tidegate.sim.world import inbox

STATES_MAX = 500
X = (Term("Eq", "_id", Const("x")),)
ASKS = (
    Ask("find", X),
    Ask("update", X, (Term("Add", "v", 1),)),
    Ask("find and update", (*X, Term("Eq", "v", Const(0))), (Term("Put", "v", Const(2)),)),
    Ask("update", (*X, Term("Eq", "v", Const(2))), (Term("Put", "v", Const(0)),)),
    Ask("call", name="user", value=Const(1)),
)
ANSWERS = ("done",)
TAKE_BACK = len(ASKS)
"""A command of this number and more takes back the one that is so many before it."""
KINDS = (
    "unsent", "dropped", "lost_reply", "late", "duplicate", "crash_before", "stall", "failed", "never_returns", "restart",
)  # fmt: skip


class Rules(NamedTuple):
    """A reducer: (phase, event) -> the next phase and commands by number; where nothing is said, it stays."""

    name: str
    table: tuple[tuple[tuple[int, object], tuple[int, tuple[int, ...]]], ...]
    commands_max: int
    inbox: tuple[str, ...]
    split: frozenset[int]
    timers: frozenset[int]
    at_once: frozenset[int]
    programs: tuple[tuple[int, Program], ...]
    again: tuple[str, ...]
    """The inbox that it starts again with."""


class Reducers(NamedTuple):
    """A scenario of reducers."""

    rules: tuple[Rules, ...]
    faults: frozenset[str]
    budget: int
    bad: tuple[int, object]
    """What must never be: somebody in that phase while the document holds that value."""


class Standing(NamedTuple):
    """Where a reducer stands.

    Attributes:
        phase: Its phase.
        left: How many commands it may still give.
        commands: Those that have not come true.
        arrived: Events that it has not taken.
        inbox: Those of the world.
        running: Commands that programs carry out, each with where the program stands.
        stuck: Commands of which user code never returns.
        notes: What its programs have said.
        is_dead: Nothing of it happens any more.
    """

    phase: int
    left: int
    commands: tuple[int, ...] = ()
    arrived: tuple[object, ...] = ()
    inbox: tuple[str, ...] = ()
    running: tuple[tuple[int, Stands], ...] = ()
    stuck: tuple[int, ...] = ()
    notes: tuple[tuple[str, object], ...] = ()
    is_dead: bool = False


class All(NamedTuple):
    """All that there is at one time."""

    docs: tuple[Doc, ...]
    reducers: tuple[Standing, ...]
    flying: tuple[Ask, ...]
    budget: int


@lru_cache(1_000)
def code_of(program: Program) -> tuple[Any, ...]:
    return flat(program)


def taken(rules: Rules, index: int, state: All, event: object) -> All:
    """What follows from the event."""
    standing = state.reducers[index]
    phase, given_out = dict(rules.table).get((standing.phase, event), (standing.phase, ()))
    if len(given_out) > standing.left:
        given_out = ()
    commands, running, stuck, programs = standing.commands, standing.running, standing.stuck, dict(rules.programs)
    for number in given_out:
        if number >= TAKE_BACK:  # of several that are the same, all
            back = number - TAKE_BACK
            commands, stuck = (tuple(each for each in several if each != back) for several in (commands, stuck))
            running = tuple(each for each in running if each[0] != back)
        elif number in rules.at_once:
            ((docs, _),) = _done(ASKS[number], state)
            state = state._replace(docs=docs)
        elif number in programs:
            running = (*running, (number, begun(code_of(programs[number]), rules.name, 0)))
        else:
            commands = (*commands, number)
    left = standing.left - len(given_out)
    return _with(
        state, index, standing._replace(phase=phase, left=left, commands=commands, running=running, stuck=stuck)
    )


def brief(number: int, reply: object) -> object:
    """The event that tells what became of a command."""
    match reply:
        case Failed(kind):
            return (number, kind)
        case Doc():
            return (number, reply.get("v"))
        case None | int() | str():
            return (number, reply)
        case _:
            return (number, "several")


def moves(reducers: Reducers, state: All) -> Iterator[tuple[All, bool]]:
    """What may happen next, and whether it must."""
    for after, must, fault in _all_moves(reducers, state):
        if not fault:
            yield after, must
        elif state.budget and fault in reducers.faults:
            yield after._replace(budget=state.budget - 1), False


def _all_moves(reducers: Reducers, state: All) -> Iterator[tuple[All, bool, str]]:
    """Whatever faults cost."""
    for index, rules in enumerate(reducers.rules):
        standing = state.reducers[index]
        if standing.is_dead:
            again = Standing(0, rules.commands_max, inbox=rules.again)
            yield _with(state, index, again), False, "restart"
            continue
        yield _with(state, index, Standing(0, 0, is_dead=True)), False, "crash_before"
        if standing.inbox:
            rest = _with(state, index, standing._replace(inbox=standing.inbox[1:]))
            yield taken(rules, index, rest, standing.inbox[0]), True, ""
        for event in set(standing.arrived):
            rest = _with(state, index, standing._replace(arrived=_less(standing.arrived, event)))
            yield taken(rules, index, rest, event), True, ""
        for number in set(standing.commands):
            yield from _of_command(rules, index, state, number)
        for number, stands in set(standing.running):
            yield from _of_program(rules, index, state, number, stands)
    for ask in set(state.flying):
        for docs, _ in _done(ask, state):
            yield state._replace(docs=docs, flying=_less(state.flying, ask)), True, ""


def _of_command(rules: Rules, index: int, state: All, number: int) -> Iterator[tuple[All, bool, str]]:
    standing = state.reducers[index]
    waiting = standing._replace(commands=_less(standing.commands, number))

    def told_of(world: All, reply: object) -> All:
        event = brief(number, reply)
        if number in rules.split:
            arrived = tuple(sorted((*waiting.arrived, event), key=repr))
            return _with(world, index, waiting._replace(arrived=arrived))
        return taken(rules, index, _with(world, index, waiting), event)

    if number in rules.timers:  # it tells that it is over, and does nothing else
        yield told_of(state, None), False, "stall"
        return
    for world, reply, fault in _asked(ASKS[number], state):
        after = told_of(world, reply)
        yield after, after != state, fault
    if ASKS[number].verb == "call":
        yield _with(state, index, waiting._replace(stuck=(*waiting.stuck, number))), False, "never_returns"


def _of_program(rules: Rules, index: int, state: All, number: int, stands: Stands) -> Iterator[tuple[All, bool, str]]:
    """The next request of the program, or what became of the command."""
    standing = state.reducers[index]
    others = standing._replace(running=_less(standing.running, (number, stands)))
    code, ask = code_of(dict(rules.programs)[number]), stands.what

    def goes_on(world: All, reply: object, notes: tuple[tuple[str, object], ...] = standing.notes) -> All:
        running = (*others.running, (number, answered(code, stands, reply)))
        return _with(world, index, others._replace(running=running, notes=notes))

    if stands.how == "asks" and isinstance(ask, Ask):
        if ask.verb == "note":
            notes = {**dict(standing.notes), ask.name: ask.value.value}
            yield goes_on(state, None, tuple(sorted(notes.items()))), True, ""
            return
        for world, reply, fault in _asked(ask, state):
            yield goes_on(world, reply), True, fault
        if ask.verb == "call":
            yield _with(state, index, others._replace(stuck=(*others.stuck, number))), False, "never_returns"
    else:
        reply = Failed(str(ask)) if stands.how == "failed" else ask
        yield taken(rules, index, _with(state, index, others), brief(number, reply)), True, ""


def _asked(ask: Ask, state: All) -> Iterator[tuple[All, object, str]]:
    """What may become of a request."""
    lost, flying = Failed("ambiguous"), tuple(sorted((*state.flying, ask), key=repr))
    for docs, reply in _done(ask, state):
        done = state._replace(docs=docs)
        yield done, reply, ""
        yield done, lost, "lost_reply"
        yield done._replace(flying=flying), reply, "duplicate"
    yield state, Failed("not applied"), "unsent"
    yield state, lost, "dropped"
    yield state._replace(flying=flying), lost, "late"
    if ask.verb == "call":
        yield state, Failed("refused"), "failed"


def _done(ask: Ask, state: All) -> Iterator[tuple[tuple[Doc, ...], object]]:
    return outcomes_of(Little((), (), answers=ANSWERS), ask, State(state.docs, (), 0, ()))


def _with(state: All, index: int, standing: Standing) -> All:
    """With the reducer there; in which order things are under way makes no difference."""
    standing = standing._replace(
        commands=tuple(sorted(standing.commands)), running=tuple(sorted(standing.running, key=repr)),
        stuck=tuple(sorted(standing.stuck)),
    )  # fmt: skip
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
    begin = tuple(Standing(0, rules.commands_max, inbox=rules.inbox) for rules in reducers.rules)
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
        ("dead", ())
        if each.is_dead
        else (
            each.phase, each.commands, tuple(sorted(each.arrived, key=repr)), each.stuck,
            frozenset(Counter((number, *_shown(stands)) for number, stands in each.running).items()),
            tuple((name, typed(value)) for name, value in each.notes),
        )
        for each in state.reducers
    )  # fmt: skip


def _shown(stands: Stands) -> tuple[str, object]:
    match stands.how:
        case "asks":
            return "asks", shown(stands.what)
        case "failed":
            return "failed", stands.what
        case how:
            return how, typed(stands.what)


def _is_bad(reducers: Reducers, state: All) -> bool:
    phase, value = reducers.bad
    is_there = any(doc.get("_id") == "x" and doc.get("v") == value for doc in state.docs)
    return is_there and any(each.phase == phase and not each.is_dead for each in state.reducers)


def carrying(random: Random) -> Program:
    """A program that carries out a command."""
    draw = Draw(random)
    draw.calls = random.random() < 0.5
    draw.is_timed = draw.is_relative = draw.raises = draw.has_clocks = draw.streams = draw.fails_over = False
    return draw.body(1)


def drawn_reducers(seed: str) -> Reducers:
    """Some that are neither too large nor idle."""
    random = Random(seed)
    while True:
        replies = (None, 0, 1, 2, "done", "ambiguous", "not applied", "refused")
        events = ("go", "on", *((number, reply) for number in range(len(ASKS)) for reply in replies))

        def rules(name: str, events: tuple[object, ...] = events) -> Rules:
            def entry() -> tuple[int, tuple[int, ...]]:
                count = random.choice((0, 1, 1, 2))
                return random.randrange(3), tuple(random.choice((0, 1, 1, 2, 2, 3, 4, 6, 7, 9)) for _ in range(count))

            table = {(phase, event): entry() for phase in range(3) for event in events if random.random() < 0.7}
            for event in ("go", "on"):
                table[0, event] = random.randrange(3), tuple(random.sample(range(len(ASKS)), random.choice((1, 2))))

            def some(share: float) -> frozenset[int]:
                return frozenset(number for number in range(len(ASKS)) if random.random() < share)

            return Rules(
                name, tuple(table.items()), random.choice((2, 3, 4)), ("go", "on")[: random.choice((1, 1, 2))],
                some(0.4), some(0.05), some(0.1),
                tuple((number, carrying(random)) for number in sorted(some(0.25))), ("go",)[: random.choice((0, 1))],
            )  # fmt: skip

        kinds = frozenset(kind for kind in KINDS if random.random() < 0.35)
        made = Reducers(
            tuple(rules(name) for name in "ab"[: random.choice((1, 2, 2))]),
            kinds | {"crash_before"} if "restart" in kinds else kinds,
            random.choice((0, 1, 1, 2, 2)),
            (random.randrange(3), random.choice((1, 2, 3))),
        )
        try:
            if len(everything(made).seen) > 5:
                return made
        except OverflowError:
            continue


# --- for the simulator --------------------------------------------------------------------------------------------------

MEANING = calling({"user": ANSWERS})
COMMANDS: tuple[Any, ...] = tuple(eval(request(ask), dict(WORDS)) for ask in ASKS)  # noqa: S307


def scenario_of(reducers: Reducers, **laws: Any) -> Scenario:
    """The same for the simulator."""
    faults = Faults({Fault(kind): is_call if kind in OF_CALLS else all_effects for kind in sorted(reducers.faults)})
    processes = tuple(_process(rules, faults) for rules in reducers.rules)
    dead = [Cell(("dead", each.name), empty=False) for each in processes]
    befalls: list[Any] = []
    for process, rules, cell in zip(processes, reducers.rules, dead, strict=True):
        if "crash_before" in reducers.faults:
            befalls.append(Crash(f"crash {rules.name}", (process,), cell))
        if "restart" in reducers.faults:
            befalls.append(Restart(f"restart {rules.name}", (process,), cell, partial(_prepared, rules)))
    world = world_with({"c": tuple(map(given, first_of(reducers).docs))})
    for rules in reducers.rules:
        world = world.write(inbox(rules.name), rules.inbox)
    return Scenario(
        name="reducers",
        summary="drawn at random",
        world=world,
        actors=(*processes, *befalls, Network(MEANING)),
        budget=reducers.budget,
        **laws,
    )


def _prepared(rules: Rules, world: World) -> World:
    return world.write(inbox(rules.name), rules.again)


def _process(rules: Rules, faults: Faults) -> ReducerProcess:
    table = dict(rules.table)
    programs = {COMMANDS[number]: program_of(Actor(rules.name, program)) for number, program in rules.programs}

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

    def are(numbers: frozenset[int]) -> Any:
        return lambda command: command in {COMMANDS[number] for number in numbers}

    return ReducerProcess(
        rules.name, (0, rules.commands_max), step, event_for, faults, MEANING,
        are(rules.split), are(rules.timers), are(rules.at_once),
        lambda command: programs[command](0) if command in programs else None,
    )  # fmt: skip


def _held(reply: object) -> object:
    return Failed(NAMED[type(reply).__name__]) if isinstance(reply, Failure) else held(reply)


def _seen(processes: dict[str, ReducerProcess], state: SimState) -> object:
    docs: tuple[Document, ...] = contents(state, "c")
    return tuple(typed(held(doc)) for doc in docs), tuple(
        _stands(process, state.status(name), state.read(notes(name))) for name, process in processes.items()
    )


def _stands(process: ReducerProcess, status: object, said: tuple[tuple[str, object], ...]) -> object:
    match status:
        case Machine((phase, _), commands, arrived, stuck, running):
            return (
                phase, _numbers(commands), tuple(sorted(arrived, key=repr)), _numbers(stuck),
                frozenset(
                    Counter((COMMANDS.index(each.command), *stands_as(process.at(each))) for each in running).items()
                ),
                tuple((name, typed(held(value))) for name, value in said),
            )  # fmt: skip
        case Crashed():
            return "dead", said
        case _:
            return status


def _numbers(commands: tuple[object, ...]) -> tuple[int, ...]:
    return tuple(sorted(map(COMMANDS.index, commands)))


def compared(reducers: Reducers) -> None:
    """Assert that both find the same.

    Raises:
        DiffersError: They do not.
    """
    found = everything(reducers)
    processes: dict[str, ReducerProcess] = {}
    seen: set[object] = set()
    rest: set[object] = set()
    pairs: set[object] = set()

    def see(into: set[object]) -> Any:
        def law(state: SimState) -> bool:
            into.add(_seen(processes, state))
            return True

        return law

    def see_pair(before: SimState, after: SimState) -> bool:
        one, other = _seen(processes, before), _seen(processes, after)
        if one != other:
            pairs.add((one, other))
        return True

    def is_well(state: SimState) -> bool:
        phase, value = reducers.bad
        statuses = [state.status(each.name) for each in reducers.rules]
        is_there = any(isinstance(each, Machine) and each.state[0] == phase for each in statuses)  # type: ignore[index]
        found = state.read(document("c", "x"))
        return not is_there or found is None or dict(found.items).get("v") != value

    whole = scenario_of(reducers, always={"seen": see(seen)}, eventually={"rest": see(rest)}, step={"pairs": see_pair})
    processes |= {each.name: each for each in whole.actors if isinstance(each, ReducerProcess)}
    report = explore(whole)
    _must_be_the_same(
        "the verdict", Verdict.COMPLETE if found.rests else Verdict.INCONCLUSIVE, report.verdict, reducers
    )
    _must_be_the_same("what is seen", seen, found.seen, reducers)
    _must_be_the_same("what changes", pairs, found.pairs, reducers)
    if found.rests:
        _must_be_the_same("what is seen at rest", rest >= found.rest, True, reducers)
    report = explore(scenario_of(reducers, always={"it is well": is_well}))
    steps = None if report.trace is None else len(report.trace.steps)
    _must_be_the_same("the shortest way", found.steps, steps, reducers)


def _must_be_the_same(what: str, mine: Any, theirs: Any, reducers: Reducers) -> None:
    if mine != theirs:
        differs = mine ^ theirs if isinstance(mine, (set, frozenset)) else (mine, theirs)
        raise DiffersError(f"{what}: {differs}\n{reducers}")
