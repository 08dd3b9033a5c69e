"""Random small reducers, explored by brute force and by the simulator.

A reducer is a table: its phase and an event give the next phase and some commands, up to a limit. A
command is a request to the one collection or to user code, or a small program carries it out. Its
result is an event, delivered at once or (`split`) at any later time. A dead reducer may restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import permutations
from random import Random  # noqa: TID251  seeded
from typing import Any, NamedTuple, TypeAlias

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
    EXPLORED_MAX,
    NAMED,
    OF_CALLS,
    WORDS,
    DiffersError,
    Draw,
    Plainly,
    given,
    has_horizon,
    held,
    is_call,
    is_relative,
    program_of,
    seen_of,
    shown,
    stands_as,
    without_horizon,
)
from tests.properties.independent.search import (
    QUANTUM,
    Actor,
    Little,
    State,
    TooLargeError,
    age_all,
    never_resting,
    outcomes_of,
    spent,
    typed,
)

from tidegate.model.documents import Document
from tidegate.model.effects import Cancel, Failure
from tidegate.model.reducer import Step
from tidegate.sim import (
    Cell,
    Clock,
    Crash,
    Crashed,
    Exploration,
    Fault,
    Faults,
    Machine,
    Network,
    ReducerProcess,
    Reductions,
    Report,
    Reproduced,
    Scenario,
    Verdict,
    World,
    all_effects,
    calling,
    contents,
    document,
    explore,
    notes,
    replay,
    world_with,
)
from tidegate.sim import State as SimState
from tidegate.sim.servers.reducers import Restart
from tidegate.sim.world.world import inbox

STATES_MAX = 500
X = (Term("Eq", "_id", Const("x")),)
ASKS = (
    Ask("find", X),
    Ask("update", X, (Term("Add", "v", 1),)),
    Ask("find and update", (*X, Term("Eq", "v", Const(0))), (Term("Put", "v", Const(2)),)),
    Ask("update", (*X, Term("Eq", "v", Const(2))), (Term("Put", "v", Const(0)),)),
    Ask("call", name="user", value=Const(1)),
    Ask("update", X, (Term("PutServerTime", "t"),)),
    Ask("find and update", (*X, Term("OlderThan", "t", QUANTUM)), (Term("Put", "v", Const(3)), Term("Remove", "t"))),
)
ANSWERS = ("done",)
TAKE_BACK = len(ASKS)
"""A command of this number or higher withdraws the command that many places before it."""
KINDS = (
    "unsent", "dropped", "lost_reply", "late", "duplicate", "crash_before", "stall", "failed", "never_returns", "restart", "gave_up",
)  # fmt: skip


class Rules(NamedTuple):
    name: str
    table: tuple[tuple[tuple[int, object], tuple[int, tuple[int, ...]]], ...]
    commands_max: int
    inbox: tuple[str, ...]
    split: frozenset[int]
    timers: frozenset[int]
    at_once: frozenset[int]
    programs: tuple[tuple[int, Program], ...]
    again: tuple[str, ...]
    ends: frozenset[int] = frozenset()
    """Commands that are refused once withdrawn."""
    merges: bool = False


class Reducers(NamedTuple):
    rules: tuple[Rules, ...]
    faults: frozenset[str]
    budget: int
    budgets: tuple[tuple[str, int], ...] = ()
    clock: tuple[int | None, int] | None = None
    symmetric: bool = False
    laws: tuple[tuple[str, Bad, Bad], ...] = ()


Bad: TypeAlias = tuple[int, object]


class Standing(NamedTuple):
    """`left` is how many commands it may still give, `stuck` has commands whose user code never
    returns.
    """

    phase: int
    left: int
    commands: tuple[int, ...] = ()
    arrived: tuple[object, ...] = ()
    inbox: tuple[str, ...] = ()
    running: tuple[tuple[int, Stands, int | None], ...] = ()
    stuck: tuple[int, ...] = ()
    notes: tuple[tuple[str, object], ...] = ()
    is_dead: bool = False


class All(NamedTuple):
    docs: tuple[Doc, ...]
    reducers: tuple[Standing, ...]
    flying: tuple[Ask, ...]
    budget: int
    budgets: tuple[tuple[str, int], ...] = ()
    now: int = 0
    moves: int = 0


@lru_cache(1_000)
def code_of(program: Program) -> tuple[Any, ...]:
    return flat(program)


def taken(rules: Rules, index: int, state: All, event: object) -> All:
    standing = state.reducers[index]
    phase, given_out = dict(rules.table).get((standing.phase, event), (standing.phase, ()))
    if len(given_out) > standing.left:
        given_out = ()
    commands, running, stuck, programs = standing.commands, standing.running, standing.stuck, dict(rules.programs)
    ended: list[int] = []
    for number in given_out:
        if number >= TAKE_BACK:  # of several that are the same, all
            back = number - TAKE_BACK
            ended += [back] if back in rules.ends and back in (*commands, *stuck) else []
            commands, stuck = (tuple(each for each in several if each != back) for several in (commands, stuck))
            running = tuple(each for each in running if each[0] != back)
        elif number in rules.at_once:
            ((docs, _),) = _done(ASKS[number], state)
            state = state._replace(docs=docs)
        elif number in programs:
            running = (
                *running,
                _program_at(number, programs[number], begun(code_of(programs[number]), rules.name, 0), state),
            )
        else:
            commands = (*commands, number)
    left = standing.left - len(given_out)
    state = _with(
        state, index, standing._replace(phase=phase, left=left, commands=commands, running=running, stuck=stuck)
    )
    for number in ended:
        state = _replied(rules, index, state, number, Failed("refused"))
    return state


def _replied(rules: Rules, index: int, state: All, number: int, reply: object) -> All:
    event, standing = brief(number, reply), state.reducers[index]
    if number not in rules.split:
        return taken(rules, index, state, event)
    return _with(state, index, standing._replace(arrived=tuple(sorted((*standing.arrived, event), key=repr))))


def _program_at(number: int, program: Program, stands: Stands, state: All) -> tuple[int, Stands, int | None]:
    """A program before a sleep is asleep, if the clock can show the difference."""
    while stands.how == "asks" and isinstance(stands.what, Ask) and stands.what.verb == "sleep":
        if state.moves >= 0 and stands.what.value >= QUANTUM:
            return number, stands, state.now + stands.what.value
        stands = answered(code_of(program), stands, None)
    return number, stands, None


def brief(number: int, reply: object) -> object:
    match reply:
        case Failed(kind):
            return (number, kind)
        case Doc():
            return (number, reply.get("v"))
        case None | int() | str():
            return (number, reply)
        case _:
            return (number, "several")


def moves(reducers: Reducers, state: All, horizon: int | None) -> Iterator[tuple[All, bool, str]]:
    """Yields (next state, must it happen, fault)."""
    for after, must, fault in _all_moves(reducers, state):
        if not fault:
            yield after, must, ""
        elif fault in reducers.faults and (left := spent(after, fault)) is not None:
            yield left, False, fault
    if horizon is None and state.moves > 0:
        yield state._replace(now=state.now + QUANTUM, moves=state.moves - 1), True, ""
    if horizon is not None and (later := _later(state, horizon)) != state:
        yield later, True, ""


def _later(state: All, horizon: int) -> All:
    reducers = tuple(
        each._replace(
            running=tuple(
                (number, stands, None if until is None else max(until - QUANTUM, 0))
                for number, stands, until in each.running
            )
        )
        for each in state.reducers
    )
    return state._replace(docs=age_all(state.docs, QUANTUM, horizon), reducers=reducers)


def _all_moves(reducers: Reducers, state: All) -> Iterator[tuple[All, bool, str]]:
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
        come = (*standing.arrived, *standing.inbox[:1])
        for some in (
            ((standing.arrived, 0), (come, 1))[: 1 + bool(standing.inbox)] if rules.merges and len(come) > 1 else ()
        ):
            for events in set(permutations(some[0])) if len(some[0]) > 1 else ():
                after = _with(state, index, standing._replace(arrived=(), inbox=standing.inbox[some[1] :]))
                for event in events:
                    after = taken(rules, index, after, event)
                yield after, True, ""
        for number in set(standing.commands):
            yield from _of_command(rules, index, state, number)
        for running in set(standing.running):
            yield from _of_program(rules, index, state, running)
    for ask in set(state.flying):
        for docs, _ in _done(ask, state):
            yield state._replace(docs=docs, flying=_less(state.flying, ask)), True, ""


def _of_command(rules: Rules, index: int, state: All, number: int) -> Iterator[tuple[All, bool, str]]:
    standing = state.reducers[index]
    waiting = standing._replace(commands=_less(standing.commands, number))

    def told_of(world: All, reply: object) -> All:
        return _replied(rules, index, _with(world, index, waiting), number, reply)

    if number in rules.timers:  # it only reports its end
        yield told_of(state, None), False, "stall"
        yield told_of(state, None), False, "gave_up"
        return
    for world, reply, fault in _asked(ASKS[number], state):
        after = told_of(world, reply)
        yield after, after != state, fault
    if ASKS[number].verb == "call":
        yield _with(state, index, waiting._replace(stuck=(*waiting.stuck, number))), False, "never_returns"


def _of_program(
    rules: Rules, index: int, state: All, here: tuple[int, Stands, int | None]
) -> Iterator[tuple[All, bool, str]]:
    standing, (number, stands, until) = state.reducers[index], here
    others = standing._replace(running=_less(standing.running, here))
    program = dict(rules.programs)[number]
    code, ask = code_of(program), stands.what

    def goes_on(world: All, reply: object, notes: tuple[tuple[str, object], ...] = standing.notes) -> All:
        running = (*others.running, _program_at(number, program, answered(code, stands, reply), world))
        return _with(world, index, others._replace(running=running, notes=notes))

    if stands.how == "asks" and isinstance(ask, Ask):
        if ask.verb == "note":
            notes = {**dict(standing.notes), ask.name: ask.value.value}
            yield goes_on(state, None, tuple(sorted(notes.items()))), True, ""
            return
        if ask.verb == "sleep":
            if until is None or until <= state.now:
                yield goes_on(state, None), True, ""
            return
        for world, reply, fault in _asked(ask, state):
            yield goes_on(world, reply), True, fault
        if ask.verb == "call":
            yield _with(state, index, others._replace(stuck=(*others.stuck, number))), False, "never_returns"
    else:
        reply = Failed(str(ask)) if stands.how == "failed" else ask
        yield taken(rules, index, _with(state, index, others), brief(number, reply)), True, ""


def _asked(ask: Ask, state: All) -> Iterator[tuple[All, object, str]]:
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
    return outcomes_of(Little((), (), answers=ANSWERS), ask, State(state.docs, (), 0, (), now=state.now))


def _with(state: All, index: int, standing: Standing) -> All:
    """Sorted: the order of commands under way makes no difference."""
    standing = standing._replace(
        commands=tuple(sorted(standing.commands)), running=tuple(sorted(standing.running, key=repr)),
        stuck=tuple(sorted(standing.stuck)),
    )  # fmt: skip
    return state._replace(reducers=(*state.reducers[:index], standing, *state.reducers[index + 1 :]))


def _less(items: tuple[Any, ...], item: object) -> tuple[Any, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]


class Everything(NamedTuple):
    order: list[Any]
    seen: frozenset[Any]
    rest: frozenset[Any]
    pairs: frozenset[Any]
    faults: frozenset[str]
    broken: dict[str, int]
    livelocked: bool
    goals: dict[str, bool]


def brute_force(  # noqa: PLR0917
    first: Any,
    moves: Callable[[Any], Iterator[tuple[Any, bool, str]]],
    look: Callable[[Any], object],
    laws: tuple[tuple[str, Any, Any], ...],
    is_bad: Callable[[Any, Any], bool],
    states_max: int,
    is_asleep: Callable[[Any], bool] = lambda _: False,
) -> Everything:
    number, order, depths, steps = {first: 0}, [first], [0], list[list[tuple[int, bool, str]]]()
    for index, state in enumerate(order):  # which grows
        steps.append([])
        for after, must, fault in moves(state):
            to = number.setdefault(after, len(order))
            if to == len(order):
                order.append(after)
                depths.append(depths[index] + 1)
            steps[index].append((to, must, fault))
        if len(order) > states_max:
            raise TooLargeError
    looks, must_go = list(map(look, order)), [{to for to, must, _ in each if must} for each in steps]
    rest = [index for index, each in enumerate(must_go) if not each and not is_asleep(order[index])]
    broken, livelocked, goals = dict[str, int](), False, dict[str, bool]()
    for kind, bad, then in laws:
        begins, ends = ([is_bad(each, state) for state in order] for each in (bad, then))
        found: list[int] = []
        match kind:
            case "always":
                found = [depth for is_it, depth in zip(begins, depths, strict=True) if is_it]
            case "step":
                found = [
                    depths[index] + 1 for index, each in enumerate(steps)
                    if begins[index] and not ends[index] and any(ends[to] for to, _, _ in each)
                ]  # fmt: skip
            case "eventually":
                found = [depths[index] for index in rest if begins[index]]
                livelocked = any(begins[index] for index in never_resting(must_go))
            case _:
                goals[kind] = any(begins)
        if found:
            broken[kind] = min(found)
    return Everything(
        order, frozenset(looks), frozenset(looks[index] for index in rest),
        frozenset((looks[i], looks[to]) for i, each in enumerate(steps) for to, _, _ in each if looks[i] != looks[to]),
        frozenset(fault for each in steps for _, _, fault in each if fault), broken, livelocked, goals,
    )  # fmt: skip


def judged(
    scenario_with: Callable[..., Scenario], laws: tuple[tuple[str, Any, Any], ...], is_there: Any, **more: Any
) -> tuple[Scenario, Report]:
    def law(kind: str, bad: Any, then: Any) -> Any:
        match kind:
            case "always" | "eventually":
                return lambda state: not is_there(bad, state)
            case "step":
                return lambda before, after: (
                    not is_there(bad, before) or is_there(then, before) or not is_there(then, after)
                )
            case _:
                return lambda state: is_there(bad, state)

    kinds = {
        kind: {name: law(*rest) for name, *rest in ((each[0], *each) for each in laws) if name.startswith(kind)}
        for kind in KINDS_OF_LAWS
    }
    scenario = scenario_with(**kinds)
    return scenario, explore(scenario, Exploration(states_max=EXPLORED_MAX, **more))


KINDS_OF_LAWS = ("always", "step", "eventually", "sometimes")


def drawn_laws(random: Random, bad: Callable[[], Any]) -> tuple[tuple[str, Any, Any], ...]:
    kinds = (kind for kind in (*KINDS_OF_LAWS, "sometimes too") if random.random() < 0.4)
    return tuple((kind, bad(), bad()) for kind in kinds)


def must_be_right(scenario: Scenario, report: Report, found: Everything, subject: object) -> None:
    if found.broken:
        fewest = min(found.broken.values())
        must_be_the_same("the shortest way", fewest, report.trace and len(report.trace.steps), subject)
        must_be_the_same("the law", fewest, found.broken.get(report.law or ""), subject)
        assert report.trace is not None
        must_be_the_same("the trace", isinstance(replay(report.trace, scenario), Reproduced), True, subject)
    elif found.livelocked and (report.law or not report.cut_short):
        must_be_the_same("the livelock", (report.verdict, report.law), (Verdict.VIOLATED, "eventually"), subject)
    else:
        wanted = Verdict.COMPLETE if found.rest or not scenario.eventually else Verdict.INCONCLUSIVE
        must_be_the_same("the verdict on laws", wanted, report.verdict, subject)
        must_be_the_same("goals", found.goals, dict(report.goals), subject)


def first_of(reducers: Reducers, horizon: int | None = None) -> All:
    begin = tuple(Standing(0, rules.commands_max, inbox=rules.inbox) for rules in reducers.rules)
    # The number of moves is -1 where time does not pass.
    moves = -1 if reducers.clock is None else reducers.clock[1] if horizon is None else 0
    return All((Doc((("_id", "x"), ("v", 0))),), begin, (), reducers.budget, reducers.budgets, moves=moves)


@lru_cache(8)
def everything(reducers: Reducers, *, relative: bool = False) -> Everything:
    horizon = reducers.clock[0] if reducers.clock and relative else None
    states_max = STATES_MAX * (1 if relative or not reducers.clock else 5)
    return brute_force(
        first_of(reducers, horizon), lambda state: moves(reducers, state, horizon), _look, reducers.laws, _is_bad, states_max,
        _is_anyone_asleep,
    )  # fmt: skip


def _is_anyone_asleep(state: All) -> bool:
    return any(until is not None for each in state.reducers for _, _, until in each.running)


def _look(state: All) -> object:
    return tuple(map(typed, state.docs)), tuple(
        ("dead", ())
        if each.is_dead
        else (
            each.phase, each.commands, tuple(sorted(each.arrived, key=repr)), each.stuck,
            frozenset(Counter((number, *_shown(stands)) for number, stands, _ in each.running).items()),
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


def _is_bad(bad: Bad, state: All) -> bool:
    phase, value = bad
    is_there = any(doc.get("_id") == "x" and doc.get("v") == value for doc in state.docs)
    return is_there and any(each.phase == phase and not each.is_dead for each in state.reducers)


def carrying(random: Random, clock: tuple[int | None, int] | None) -> Program:
    draw = Draw(random)
    draw.calls = random.random() < 0.5
    draw.is_timed, draw.is_relative = clock is not None, clock is not None and clock[0] is not None
    draw.horizon = 1
    draw.raises = draw.has_clocks = draw.streams = draw.fails_over = draw.writes_many = draw.transacts = False
    return (draw.attempt(1),) if random.random() < 0.3 else draw.body(1)


REPLIES = (None, 0, 1, 2, "done", "ambiguous", "not applied", "refused")
EVENTS = ("go", "on", *((number, reply) for number in range(len(ASKS)) for reply in REPLIES))


def drawn_rules(random: Random, name: str, clock: tuple[int | None, int] | None) -> Rules:
    def entry() -> tuple[int, tuple[int, ...]]:
        count = random.choice((0, 1, 1, 2))
        numbers = (0, 1, 1, 2, 2, 3, 4, 5, 6, *(TAKE_BACK + number for number in (0, 1, 2, 2, 4)))
        return random.randrange(3), tuple(random.choice(numbers) for _ in range(count))

    table = {(phase, event): entry() for phase in range(3) for event in EVENTS if random.random() < 0.7}
    for event in ("go", "on"):
        table[0, event] = random.randrange(3), tuple(random.sample(range(len(ASKS)), random.choice((1, 2))))

    def some(share: float) -> frozenset[int]:
        return frozenset(number for number in range(len(ASKS)) if random.random() < share)

    return Rules(
        name, tuple(table.items()), random.choice((2, 3, 4)), ("go", "on")[: random.choice((1, 1, 2))],
        some(0.55), some(0.1), some(0.1),
        tuple((number, carrying(random, clock)) for number in sorted(some(0.25))), ("go",)[: random.choice((0, 1))],
        some(0.3) if random.random() < 0.3 else frozenset(), random.random() < 0.4,
    )  # fmt: skip


def drawn_reducers(seed: str) -> Reducers:
    random = Random(seed)
    while True:
        kinds = frozenset(kind for kind in KINDS if random.random() < 0.35)
        kinds |= {"crash_before"} if "restart" in kinds else set()
        clock = random.choice((None, None, (None, 1), (None, 2), (QUANTUM, 2), (QUANTUM, 2)))
        names, is_symmetric = "ab"[: random.choice((1, 2, 2))], random.random() < 0.35
        first = drawn_rules(random, "a", clock)
        rules = tuple(first._replace(name=name) if is_symmetric else drawn_rules(random, name, clock) for name in names)
        bounded = random.sample(sorted(kinds), min(len(kinds), random.choice((0, 0, 1, 2))))
        budgets = tuple((kind, random.choice((0, 1, 1, 2))) for kind in sorted(bounded))
        is_symmetric &= len(names) > 1
        made = Reducers(rules, kinds, random.choice((0, 1, 1, 2, 2, 3)), budgets, clock, is_symmetric)
        try:
            found = everything(made, relative=clock is not None and clock[0] is not None)
        except TooLargeError:
            continue

        def bad(order: list[All] = found.order) -> Bad:
            state = order[-1 - int(len(order) * random.random() ** 2)]
            return random.choice(state.reducers).phase, state.docs[0].get("v") if state.docs else 1

        if len(found.seen) > 5:
            return made._replace(laws=drawn_laws(random, bad))


# --- for the simulator --------------------------------------------------------------------------------------------------

MEANING = calling({"user": ANSWERS})
COMMANDS: tuple[Any, ...] = tuple(eval(request(ask), dict(WORDS)) for ask in ASKS)  # noqa: S307


def scenario_of(reducers: Reducers, **laws: Any) -> Scenario:
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
        budgets={Fault(kind): number for kind, number in reducers.budgets},
        clock=Clock(QUANTUM, horizon=reducers.clock[0], moves=reducers.clock[1]) if reducers.clock else None,
        symmetric=(tuple(rules.name for rules in reducers.rules),) if reducers.symmetric else (),
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
        are(rules.ends), (lambda events: events) if rules.merges else None,
    )  # fmt: skip


def _held(reply: object) -> object:
    return Failed(NAMED[type(reply).__name__]) if isinstance(reply, Failure) else held(reply)


def _seen(processes: dict[str, ReducerProcess], horizon: int | None, state: SimState) -> object:
    state = Plainly(state)
    docs: tuple[Document, ...] = contents(state, "c")
    return tuple(seen_of(horizon, doc) for doc in docs), tuple(
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
    processes: dict[str, ReducerProcess] = {}
    seen: set[object] = set()
    rest: set[object] = set()
    pairs: set[object] = set()

    horizon = reducers.clock[0] if reducers.clock else None

    def see(into: set[object]) -> Any:
        def law(state: SimState) -> bool:
            into.add(_seen(processes, horizon, state))
            return True

        return law

    def see_pair(before: SimState, after: SimState) -> bool:
        one, other = _seen(processes, horizon, before), _seen(processes, horizon, after)
        if one != other:
            pairs.add((one, other))
        return True

    def is_there(bad: Bad, state: SimState) -> bool:
        phase, value = bad
        statuses = [state.status(each.name) for each in reducers.rules]
        if not any(isinstance(each, Machine) and each.state[0] == phase for each in statuses):  # type: ignore[index]
            return False
        found = state.read(document("c", "x"))
        return found is not None and dict(found.items).get("v") == value

    def explored(clock: tuple[int | None, int] | None) -> Report:
        for collected in (seen, rest, pairs):
            collected.clear()
        whole = scenario_of(
            reducers._replace(clock=clock),
            always={"seen": see(seen)},
            eventually={"rest": see(rest)},
            step={"pairs": see_pair},
        )
        processes.update({each.name: each for each in whole.actors if isinstance(each, ReducerProcess)})
        return explore(whole, Exploration(states_max=EXPLORED_MAX))

    report = explored(reducers.clock)
    if has_horizon(reducers.clock) and not is_relative(report):
        report = explored(without_horizon(reducers.clock))
    found = everything(reducers, relative=is_relative(report))
    wanted = Verdict.COMPLETE if found.rest else Verdict.INCONCLUSIVE
    must_be_the_same("the verdict", wanted, report.verdict, reducers)
    must_be_the_same("what is seen", found.seen, seen, reducers)
    must_be_the_same("what changes", found.pairs, pairs, reducers)
    must_be_the_same("faults", found.faults, {str(kind) for kind in report.faults}, reducers)
    must_be_the_same("what is seen at rest", found.rest - rest, frozenset(), reducers)
    whole, report = judged(
        partial(scenario_of, reducers), reducers.laws, is_there, reductions=Reductions(symmetry=True)
    )
    must_be_right(whole, report, everything(reducers, relative=is_relative(report)), reducers)


def must_be_the_same(what: str, mine: Any, theirs: Any, subject: object) -> None:
    if mine != theirs:
        is_set = isinstance(mine, frozenset)
        differs = (list(mine - theirs)[:2], list(theirs - mine)[:2]) if is_set else (mine, theirs)
        raise DiffersError(f"{what}: {differs[0]} here, and {differs[1]} there\n{subject}")
