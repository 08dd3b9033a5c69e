"""A brute-force search of a small scenario, from the documentation alone.

It shares no code with the simulator. A state is a value; the search visits each once, packs nothing
and leaves nothing out. Time is absolute or relative: relative time keeps each instant as its age,
up to the horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, combinations, permutations
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from tests.properties.independent.programs import (
    After,
    Ask,
    At,
    Broken,
    Code,
    Const,
    Doc,
    DocumentChange,
    Failed,
    From,
    Page,
    Program,
    Stands,
    Term,
    Truth,
    answered,
    begun,
    flat,
    same,
)

QUANTUM = 1_000_000
MANY = {"update many", "delete many", "bulk", "insert many"}
OF_DOCUMENTS = {"find and update", "update", "upsert", "insert", "delete"}
WRITES = {*OF_DOCUMENTS, *MANY, "call", "save", "reset", "commit"}
NOBODY_IS_ASKED = {"note", "sleep", "now"}


class Host(NamedTuple):
    """Processes of the same named host share a clock.

    Attributes:
        skew, jump: The maximum error of its clock at the beginning, and of one adjustment.
        drift: How fast its clock is, in parts per million.
    """

    name: str = ""
    skew: int = 0
    jump: int = 0
    drift: int = 0
    stall: int = 0


class Stream(NamedTuple):
    """A change stream; the store never forgets the last `keep` changes."""

    page: int
    keep: int
    is_watched: bool


class Actor(NamedTuple):
    """`on_writes`: request faults strike writes only; `comes_back`: it always restarts."""

    name: str
    program: Program
    faults: frozenset[str] = frozenset()
    on_writes: bool = False
    host: Host = Host()
    comes_back: bool = False


class Little(NamedTuple):
    """A scenario with one collection.

    Attributes:
        budget, budgets: The maximum number of faults, in all and of each kind.
        unique: A field with a unique index; "" for none.
        clock: (horizon, moves), the horizon None for absolute time; None if time does not pass.
        symmetric: Processes that are interchangeable.
        failover: The store may fail over, roll back writes, and read from stale members.
        history_lost: The store may forget the oldest changes.
        expiry: The store ends abandoned transactions.
        chosen, faults_max: The exploration's own limits on faults; None for none.
    """

    docs: tuple[Doc, ...]
    actors: tuple[Actor, ...]
    budget: int = 0
    budgets: tuple[tuple[str, int], ...] = ()
    unique: str = ""
    network: bool = False
    clock: tuple[int | None, int] | None = None
    answers: tuple[object, ...] = ()
    always: tuple[tuple[str, Law], ...] = ()
    step: tuple[tuple[str, Law], ...] = ()
    eventually: tuple[tuple[str, Law], ...] = ()
    sometimes: tuple[tuple[str, Law], ...] = ()
    symmetric: tuple[str, ...] = ()
    failover: bool = False
    stream: Stream | None = None
    history_lost: bool = False
    expiry: bool = False
    chosen: tuple[str, ...] | None = None
    faults_max: int | None = None

    @property
    def without_laws(self) -> Little:
        return self._replace(always=(), step=(), eventually=(), sometimes=())


class Law(NamedTuple):
    """All `facts` at once are forbidden (for a step: with `after` next); `at_least`: one must
    hold.
    """

    facts: tuple[Fact, ...]
    after: tuple[Fact, ...] = ()
    at_least: bool = False


class Fact(NamedTuple):
    """(doc, id, field, value), (stands, process, how, value), (note, process, name, value), (age,
    id, field, least age).
    """

    of: str
    who: str
    what: str
    value: object
    denied: bool = False


class Begun(NamedTuple):
    """A request of several steps; an upsert without a match has its insert `left`."""

    left: tuple[Ask, ...]
    passed: tuple[object, ...] = ()
    total: int = 0
    refused: int = 0
    ended: Failed | None = None


class Process(NamedTuple):
    stands: Stands
    life: int = 0
    notes: tuple[tuple[str, object], ...] = ()
    wakes: int | None = None
    is_stuck: bool = False
    begun: Begun | None = None


class Past(NamedTuple):
    """The store's past.

    Attributes:
        before: Snapshots before some writes, with the parts unwritten since (None: the set of ids).
        forgotten: How many changes the stream has forgotten; `changes` are those since then.
        record: The stream reader's stored progress.
    """

    before: tuple[tuple[tuple[Doc, ...], frozenset[object]], ...] = ()
    forgotten: int = 0
    changes: tuple[DocumentChange | None, ...] = ()
    record: Doc | None = None


class OpenTransaction(NamedTuple):
    """`stale` has the ids that others have written since it began, `deleted` also those inserted
    again.
    """

    owner: str
    view: tuple[Doc, ...]
    written: frozenset[object] = frozenset()
    stale: frozenset[object] = frozenset()
    deleted: frozenset[object] = frozenset()


class SessionState(NamedTuple):
    number: int
    open: OpenTransaction | None
    is_committed: bool = False


class State(NamedTuple):
    """`unconfirmed` has the documents before each write without a majority."""

    docs: tuple[Doc, ...]
    processes: tuple[Process, ...]
    budget: int
    budgets: tuple[tuple[str, int], ...]
    flying: tuple[Ask, ...] = ()
    now: int = 0
    moves: int = 0
    past: Past = Past()
    unconfirmed: tuple[tuple[tuple[Doc, ...], Past], ...] = ()
    ahead: tuple[tuple[str, int], ...] = ()
    sessions: tuple[tuple[str, SessionState], ...] = ()


class Move(NamedTuple):
    after: State
    must: bool = True
    fault: str = ""
    is_time: bool = False


Seen: TypeAlias = tuple[Any, ...]


class Found(NamedTuple):
    """The result of a search; `looks` has visible states in breadth-first order.

    Attributes:
        states: Variables that are never read again count here.
        changes: Pairs of successive visible states that differ.
        restless: States on cycles with no way to rest; laws about rest apply to them, too.
        livelocked: Laws about rest that fail somewhere on a cycle that never rests.
    """

    states: int
    looks: list[Seen]
    seen: frozenset[Seen]
    changes: dict[tuple[Seen, Seen], None]
    rest: frozenset[Seen]
    restless: frozenset[Seen]
    rests: bool
    faults: frozenset[str]
    goals: dict[str, bool]
    broken: dict[str, int]
    livelocked: frozenset[str]


class TooLargeError(Exception):
    pass


NO_ERROR = "no program raises an error"


class Graph(NamedTuple):
    states: list[State]
    depths: list[int]
    moves: list[list[tuple[int, Move]]]


@lru_cache(4)
def _explored(little: Little, states_max: int, horizon: int | None) -> tuple[Graph, list[Seen]]:
    graph = _graph(little, states_max, horizon)
    return graph, [_seen(little, state) for state in graph.states]


@lru_cache(8)
def search(little: Little, *, states_max: int, relative: bool = False) -> Found:
    horizon = little.clock[0] if little.clock and relative else None
    graph, looks = _explored(little.without_laws, states_max, horizon)
    must = [{to for to, move in moves if move.must} for moves in graph.moves]
    rest = {index for index, after in enumerate(must) if not after and not _is_anyone_asleep(graph.states[index])}
    goals = {name: any(not _holds(law, look) for look in looks) for name, law in little.sometimes}
    round_and_round = never_resting(must)
    return Found(
        states=len(looks),
        looks=looks,
        seen=frozenset(looks),
        changes={
            (looks[index], looks[to]): None
            for index, moves in enumerate(graph.moves)
            for to, _ in moves
            if looks[index] != looks[to]
        },
        rest=frozenset(looks[index] for index in rest),
        restless=frozenset(looks[index] for index in round_and_round),
        rests=bool(rest),
        faults=frozenset(move.fault for moves in graph.moves for _, move in moves if move.fault),
        goals=goals,
        broken=_broken(little, graph, looks, rest),
        livelocked=frozenset(
            name for name, law in little.eventually if any(not _holds(law, looks[index]) for index in round_and_round)
        ),
    )


def same_in_both_times(little: Little, moves: int, states_max: tuple[int, int]) -> bool | None:
    """None if one search is too large.

    Relative time equates instants beyond the horizon, exactly if both kinds of time show the same.
    """
    assert little.clock is not None
    horizon = little.clock[0]
    assert horizon is not None
    try:
        graph, looks = _explored(little.without_laws, states_max[0], horizon)
    except TooLargeError:
        return None
    passed = [0, *([moves + 1] * (len(looks) - 1))]
    todo = [0]
    for index in todo:  # which grows
        for to, move in graph.moves[index]:
            if passed[index] + move.is_time < passed[to]:
                passed[to] = passed[index] + move.is_time
                todo.append(to)
    try:
        absolute = _graph(little._replace(clock=(None, moves)), states_max[1], None)
    except TooLargeError:
        return None
    found = {_seen(little, _relative(state, horizon)) for state in absolute.states}
    return found == {look for look, number in zip(looks, passed, strict=True) if number <= moves}


def _graph(little: Little, states_max: int, horizon: int | None) -> Graph:
    codes = tuple(flat(actor.program) for actor in little.actors)
    processes = tuple(
        _standing(little, actor, code, Process(begun(code, actor.name, 0)), 0)
        for code, actor in zip(codes, little.actors, strict=True)
    )
    moves = little.clock[1] if little.clock and horizon is None else 0
    past = Past(record=Doc((("_id", "s"), ("epoch", 1), ("history", 0))) if little.stream else None)
    budget = little.budget if little.faults_max is None else min(little.budget, little.faults_max)
    first = State(little.docs, processes, budget, little.budgets, moves=moves, past=past)
    number, graph = {first: 0}, Graph([first], [0], [])
    for index, state in enumerate(graph.states):  # grows during the loop
        graph.moves.append([])
        for move in _moves(little, codes, state, horizon):
            to = number.setdefault(move.after, len(graph.states))
            if to == len(graph.states):
                graph.states.append(move.after)
                graph.depths.append(graph.depths[index] + 1)
            graph.moves[index].append((to, move))
        if len(graph.states) > states_max:
            raise TooLargeError
    return graph


def _broken(little: Little, graph: Graph, looks: list[Seen], rest: set[int]) -> dict[str, int]:
    broken: dict[str, int] = {}

    def breaks(name: str, depth: int) -> None:
        broken[name] = min(depth, broken.get(name, depth))

    for index, (look, depth) in enumerate(zip(looks, graph.depths, strict=True)):
        for name, law in (*little.always, *(little.eventually if index in rest else ())):
            if not _holds(law, look):
                breaks(name, depth)
        if any(how == "raised" for _, how, _ in look[1]):
            breaks(NO_ERROR, depth)
        for name, law in little.step:
            if not all(_joins(law, look, looks[to]) for to, _ in graph.moves[index]):
                breaks(name, depth + 1)
    return broken


def _is_anyone_asleep(state: State) -> bool:
    return any(process.wakes is not None for process in state.processes)


def never_resting(must: list[set[int]]) -> set[int]:
    before: dict[int, set[int]] = {}
    for index, after in enumerate(must):
        for to in after:
            before.setdefault(to, set()).add(index)
    restful = {index for index, after in enumerate(must) if not after}
    todo = list(restful)
    while todo:
        new = before.get(todo.pop(), set()) - restful
        restful |= new
        todo += new
    restless = set(range(len(must))) - restful
    reach = {index: _reached(must, index) for index in restless}
    return {index for index in restless if all(index in reach[to] for to in reach[index])}


def _reached(must: list[set[int]], begin: int) -> set[int]:
    found: set[int] = set()
    todo = [begin]
    while todo:
        new = must[todo.pop()] - found
        found |= new
        todo += new
    return found


def age_all(value: Any, by: int, horizon: int) -> Any:
    """The value with all instants earlier, none further back than the horizon."""
    match value:
        case At(at):
            return At(max(at - by, -horizon))
        case Doc(fields):
            return Doc(tuple((name, age_all(held, by, horizon)) for name, held in fields))
        case Past() | SessionState() | OpenTransaction() | Begun() | Ask() | Term() | Const():
            return type(value)(*(age_all(each, by, horizon) for each in value))
        case tuple() if type(value) is tuple:
            return tuple(age_all(each, by, horizon) for each in value)
        case _:
            return value


def _relative(state: State, horizon: int) -> State:
    def aged(value: Any) -> Any:
        return age_all(value, state.now, horizon)

    return state._replace(
        docs=aged(state.docs),
        past=aged(state.past),
        unconfirmed=aged(state.unconfirmed),
        sessions=aged(state.sessions),
        flying=aged(state.flying),
        processes=tuple(
            process._replace(
                wakes=None if process.wakes is None else max(process.wakes - state.now, 0), begun=aged(process.begun)
            )
            for process in state.processes
        ),
        now=0,
        moves=0,
    )


# --- moves --------------------------------------------------------------------------------------------------------------


def _moves(little: Little, codes: tuple[Code, ...], state: State, horizon: int | None) -> Iterator[Move]:
    for move in _all_moves(little, codes, state, horizon):
        if not move.fault:
            yield move
        elif little.chosen is not None and move.fault not in little.chosen:
            continue
        elif (left := spent(move.after, move.fault)) is not None:
            yield Move(left, must=False, fault=move.fault)


def _all_moves(little: Little, codes: tuple[Code, ...], state: State, horizon: int | None) -> Iterator[Move]:
    for index, code in enumerate(codes):
        yield from _of_process(little, code, index, state)
    if little.network:
        for number, ask in enumerate(state.flying):
            landed = state._replace(flying=state.flying[:number] + state.flying[number + 1 :])
            for done, begun, must in _steps(little, ask, ask.begun, landed):
                flying = _sorted((*done.flying, ask._replace(begun=begun)))
                yield Move(done._replace(flying=flying), must=must)
            for after, _ in _outcomes(little, ask, ask.begun, landed):
                yield Move(after)
                if state.unconfirmed and not after.unconfirmed:  # or it goes behind what no majority has
                    is_changed = (after.docs, after.past) != (state.docs, state.past)
                    behind = ((state.docs, state.past),) if is_changed else ()
                    yield Move(after._replace(unconfirmed=(*state.unconfirmed, *behind)), must=False)
    for kept, (docs, past) in enumerate(state.unconfirmed):
        yield Move(state._replace(docs=docs, past=past, unconfirmed=state.unconfirmed[:kept]), fault="rolled_back")
    if little.expiry:
        yield from _expired(little, state)
    if (
        little.stream
        and little.history_lost
        and not state.unconfirmed
        and (more := len(state.past.changes) - little.stream.keep) > 0
    ):
        past = state.past._replace(forgotten=state.past.forgotten + more, changes=state.past.changes[more:])
        yield Move(state._replace(past=past), fault="history_lost")
    if little.clock is not None and horizon is None and state.moves:
        yield Move(state._replace(now=state.now + QUANTUM, moves=state.moves - 1), is_time=True)
    if horizon is not None and (later := _relative(state._replace(now=QUANTUM), horizon)) != state:
        yield Move(later, is_time=True)


def _expired(little: Little, state: State) -> Iterator[Move]:
    """The owner has stopped, or others wait while no owner goes on. A slow owner is a stall."""
    opened = {session: (known.number, known.open.owner) for session, known in state.sessions if known.open is not None}
    does = {owner: _does(little, state, owner) for _, owner in opened.values()}
    for session, (number, owner) in opened.items():
        over = _with_session(state, session, SessionState(number, None))
        actor = next(actor for actor in little.actors if actor.name == owner)
        if does[owner] == "nothing" or "goes on" not in does.values():
            yield Move(over)
        elif "stall" in actor.faults:
            yield Move(over, fault="stall")


def _does(little: Little, state: State, name: str) -> str:
    index = next(index for index, actor in enumerate(little.actors) if actor.name == name)
    actor, process = little.actors[index], state.processes[index]
    ask = process.stands.what
    if process.stands.how != "asks":
        return "goes on" if actor.comes_back and process.stands.how in {"crashed", "cancelled"} else "nothing"
    assert isinstance(ask, Ask)
    is_local = ask.verb in {"note", "sleep", "now"}
    is_able = (
        is_local
        or _outcomes(little, ask, process.begun, state)
        or any(must for *_, must in _steps(little, ask, process.begun, state))
    )
    return "waits" if process.is_stuck or not is_able else "goes on"


S = TypeVar("S")


def spent(before: S, fault: str) -> S | None:
    state: Any = before
    own = dict(state.budgets)
    if state.budget < 1 or own.get(fault, 1) < 1:
        return None
    if fault in own:
        own[fault] -= 1
    return cast("S", state._replace(budget=state.budget - 1, budgets=tuple(own.items())))


def _of_process(little: Little, code: Code, index: int, state: State) -> Iterator[Move]:
    actor, process = little.actors[index], state.processes[index]
    stands, strikes = process.stands, actor.faults
    crashed, cancelled = (Process(Stands(how, 0, ()), process.life) for how in ("crashed", "cancelled"))
    match stands.how:
        case "returned" | "failed" if "crash_after" in strikes:
            yield Move(_with(state, index, crashed), fault="crash_after")
        case "crashed" | "cancelled" if "restart" in strikes or actor.comes_back:
            life = process.life + 1
            new = _standing(little, actor, code, Process(begun(code, actor.name, life), life), state.now)
            yield Move(_with(state, index, new), must=actor.comes_back, fault="" if actor.comes_back else "restart")
        case "asks":
            ask = stands.what
            assert isinstance(ask, Ask)
            may_strike = ask.verb in WRITES or not actor.on_writes
            if "crash_before" in strikes:
                yield Move(_with(state, index, crashed), fault="crash_before")
            if "cancelled" in strikes and may_strike:
                yield Move(_with(state, index, cancelled), fault="cancelled")
            if not process.is_stuck:
                yield from _asked(little, code, index, state, ask)
                if "stall" in strikes and may_strike and actor.host.stall and ask.verb != "sleep":
                    yield Move(state._replace(now=state.now + actor.host.stall), fault="stall")
        case _:
            pass


def _asked(little: Little, code: Code, index: int, state: State, ask: Ask) -> Iterator[Move]:
    actor, process = little.actors[index], state.processes[index]

    def replied(world: State, reply: object, notes: tuple[tuple[str, object], ...] = process.notes) -> State:
        new = Process(answered(code, process.stands, reply), process.life, notes)
        return _with(world, index, _standing(little, actor, code, new, state.now))

    if ask.verb == "note":
        yield Move(replied(state, None, tuple(sorted({**dict(process.notes), ask.name: ask.value.value}.items()))))
    elif ask.verb == "sleep":
        if process.wakes is None or process.wakes <= state.now:
            last = Process(answered(code, process.stands, None), process.life, process.notes)
            yield Move(_with(state, index, last) if process.wakes is None else replied(state, None))
    elif ask.verb == "now":
        for fault, world, reading in _readings(actor, state):
            if not fault or fault in actor.faults:
                yield Move(replied(world, reading), fault=fault)
    else:
        outcomes = _outcomes(little, ask, process.begun, state)
        for done, reply in outcomes:
            yield Move(replied(done, reply))
        for done, begun, must in _steps(little, ask, process.begun, state):
            yield Move(_with(done, index, process._replace(begun=begun)), must=must)
        if ask.verb == "call" and "failed" in actor.faults:
            yield Move(replied(state, Failed("refused")), fault="failed")
        if ask.verb == "call" and "never_returns" in actor.faults:
            yield Move(_with(state, index, process._replace(is_stuck=True)), fault="never_returns")
        if not actor.on_writes or ask.verb in WRITES:
            flying = state._replace(flying=_sorted((*state.flying, ask)))
            cancelled = Process(Stands("cancelled", 0, ()), process.life)
            for fault, after in _in_trouble(little, ask, state, flying, outcomes, replied):
                is_possible = process.begun is None or fault in {"lost_reply", "duplicate"}
                if fault in actor.faults and is_possible:
                    yield Move(after, fault=fault)
            at = process.begun
            if "partly_done" in actor.faults and at and at.left and ask.verb in MANY and (at.total or at.refused):
                yield Move(replied(state, Failed("ambiguous")), fault="partly_done")
            if "not_durable" in actor.faults:
                for after, reply in _unconfirmed(actor, state, ask, outcomes):
                    yield Move(replied(after, reply), fault="not_durable")
            is_find = ask.verb in {"find", "find all"} and ask.transaction is None
            if "stale_read" in actor.faults and little.failover and is_find:
                for docs, _ in state.past.before:  # the whole store, as on a stale member
                    for _, reply in outcomes_of(little, ask, state._replace(docs=docs)):
                        if not same(reply, outcomes[0][1]):
                            yield Move(replied(state, reply), fault="stale_read")
            if "cancelled" in actor.faults:
                is_late = "late" in actor.faults and process.begun is None
                for done in (*(done for done, _ in outcomes), *((flying,) if is_late else ())):
                    yield Move(_with(done, index, cancelled), fault="cancelled")
            may_be_late = "late" in actor.faults and (little.chosen is None or "late" in little.chosen)
            starts_again = "crash_before" in actor.faults and (actor.comes_back or "restart" in actor.faults)
            if may_be_late and starts_again and process.begun is None and not process.is_stuck:
                ends = answered(code, process.stands, Failed("ambiguous")).how != "asks"  # so it cannot die later
                if ends and (left := spent(flying, "late")) is not None:
                    yield Move(
                        _with(left, index, cancelled._replace(stands=Stands("crashed", 0, ()))), fault="crash_before"
                    )


def _in_trouble(  # noqa: PLR0917
    little: Little,
    ask: Ask,
    state: State,
    flying: State,
    outcomes: list[tuple[State, object]],
    replied: Callable[[State, object], State],
) -> Iterator[tuple[str, State]]:
    lost = Failed("ambiguous")
    yield "unsent", replied(state, Failed("not applied"))
    yield "dropped", replied(state, lost)
    yield "late", replied(flying, lost)
    is_statement = ask.transaction is not None and ask.verb not in {"commit", "abort"}
    for done, reply in outcomes:
        yield "lost_reply", replied(done, lost)
        if not is_statement:
            yield "duplicate", replied(done._replace(flying=flying.flying), reply)
    if ask.verb in MANY and not is_statement:
        parts = parts_of(ask, state.docs, state.now)
        for some in chain.from_iterable(combinations(parts, size) for size in range(1, len(parts))):
            worlds = [state]
            for part in some:  # one that waits for a transaction cannot be done
                worlds = [after for world in worlds for after, _ in served(little, part, world)]
            for world in worlds:
                yield "partly_done", replied(world, lost)


def _readings(actor: Actor, state: State) -> Iterator[tuple[str, State, At]]:
    host, name, known = actor.host, actor.host.name or f"of {actor.name}", dict(state.ahead)

    def read(ahead: int) -> tuple[State, At]:
        shown = At(state.now + ahead + state.now * host.drift // 1_000_000, wall=True)
        return state._replace(ahead=tuple(sorted({**known, name: ahead}.items()))), shown

    yield "", *read(known.get(name, 0))
    for sign in (1, -1):
        if host.skew and name not in known:
            yield "skew", *read(sign * host.skew)
        if host.jump:
            yield "clock_forward" if sign > 0 else "clock_back", *read(known.get(name, 0) + sign * host.jump)


def _unconfirmed(
    actor: Actor, state: State, ask: Ask, outcomes: list[tuple[State, object]]
) -> Iterator[tuple[State, object]]:
    """A rollback takes back all writes after it, too. A refusal is final, even without a
    majority.
    """
    for done, reply in outcomes:
        is_changed = (done.docs, done.past) != (state.docs, state.past)
        is_write = ask.verb in WRITES - {"call"} and (ask.transaction is None or ask.verb == "commit")
        is_refused = isinstance(reply, Failed)
        if is_write and (is_changed or (state.unconfirmed if is_refused else ask.verb != "reset")):
            more = ((state.docs, state.past),) if is_changed and "rolled_back" in actor.faults else ()
            told = reply if is_refused else Failed("not durable")
            yield done._replace(unconfirmed=(*state.unconfirmed, *more)), told


def _sorted(asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    return tuple(sorted(asks, key=repr))


def _with(state: State, index: int, process: Process) -> State:
    return state._replace(processes=(*state.processes[:index], process, *state.processes[index + 1 :]))


def _standing(little: Little, actor: Actor, code: Code, process: Process, now: int) -> Process:
    """A process before a sleep is asleep, by the clock of its machine.

    A sleep that no clock can show is over at once, since any process may be slow. A process that
    only sleeps is left asleep. After its last sleep a program ends; if it may die there, it stays
    awake.
    """
    passed: list[Stands] = []
    may_die = "crash_before" in actor.faults or ("cancelled" in actor.faults and not actor.on_writes)
    while True:
        ask = process.stands.what
        if process.stands.how != "asks" and passed and may_die:
            return process._replace(stands=passed[-1])
        if process.stands.how != "asks" or not isinstance(ask, Ask) or ask.verb != "sleep":
            return process
        lasts = ask.value * 1_000_000 // (1_000_000 + actor.host.drift)
        if process.stands in passed or (little.clock is not None and lasts >= QUANTUM):
            return process._replace(wakes=now + lasts)
        passed.append(process.stands)
        process = process._replace(stands=answered(code, process.stands, None))


# --- the store ----------------------------------------------------------------------------------------------------------


def served(little: Little, ask: Ask, state: State) -> Iterator[tuple[State, object]]:
    """No outcome while it waits for a transaction."""
    if ask.transaction is not None:
        yield _in_session(little, ask, state)
        return
    match ask.verb:
        case "locate":
            yield state, From(_confirmed_end(state))
        case "read":
            assert little.stream
            yield state, _page(little.stream, ask.value.value, state)
        case "save" | "reset":
            assert state.past.record
            record, reply, is_write = _recorded(ask, state.past.record)
            past = state.past._replace(record=record)
            yield state._replace(past=past, unconfirmed=() if is_write else state.unconfirmed), reply
        case _:
            for docs, reply in outcomes_of(little, ask, state):
                changed = _changed_ids(state.docs, docs) if state.sessions else frozenset()
                if any(known.open and known.open.written & changed for _, known in state.sessions):
                    continue
                is_write = ask.verb in MANY or ask.verb in OF_DOCUMENTS
                after = state._replace(docs=docs, past=_since(little, ask, state, docs))
                after = _with_stale(after, changed)
                yield (after._replace(unconfirmed=()) if is_write else after), reply


def _outcomes(little: Little, ask: Ask, at: Begun | None, state: State) -> list[tuple[State, object]]:
    if at is not None:
        return list(_rest(little, ask, at, state))
    return [*served(little, ask, state), *_ended_early(little, ask, state)]


def _ended_early(little: Little, ask: Ask, state: State) -> Iterator[tuple[State, object]]:
    """A write reaches documents in any order, so a refusal can come at any time, or never."""
    if ask.verb not in MANY:
        return
    if ask.transaction is not None:
        yield from _ended_early_in_session(little, ask, state)
        return
    parts = parts_of(ask, state.docs, state.now)
    begun = state._replace(unconfirmed=())
    known = [(done, reply) for done, reply in served(little, ask, state)]
    is_refused = bool(known) and all(isinstance(reply, Failed) for _, reply in known)
    todo, met = [(begun, Begun(parts))], list[tuple[State, Begun]]()
    while todo:
        before, at = todo.pop()
        for part in at.left:
            for done, after in _after(little, ask, at, part, before):
                is_other = is_refused or isinstance(_told(after), Failed)
                is_told = after.ended or (is_other and not after.left)
                if is_told and not any(one == done and reply == _told(after) for one, reply in known):
                    known.append((done, _told(after)))
                    yield done, _told(after)
                elif not is_told and (done, after) not in met:
                    met.append((done, after))
                    todo.append((done, after))


def _ended_early_in_session(little: Little, ask: Ask, state: State) -> Iterator[tuple[State, object]]:
    assert ask.transaction is not None
    named, number, begins = ask.transaction
    known = dict(state.sessions).get(str(named.value), SessionState(0, None))
    mine = known.open if known.number == number else None
    view = state.docs if begins else mine.view if mine else ()
    ((_, whole),) = served(little, ask, state)
    told = [whole]
    for order in permutations(parts_of(ask, view, state.now)):
        before, at, reply = state, Begun(order), whole
        for part in order:
            is_first = begins and part is order[0]
            ((before, reply),) = served(little, part._replace(transaction=(named, number, is_first)), before)
            if isinstance(reply, Failed):
                break
            at = _counted(ask, part, at, reply, view)
        reply = reply if isinstance(reply, Failed) else _told(at)
        if order and not any(reply == each or type(reply) is type(each) is not Failed for each in told):
            told.append(reply)
            yield before, reply


def _rest(little: Little, ask: Ask, at: Begun, state: State) -> Iterator[tuple[State, object]]:
    if ask.verb == "upsert":
        for done, reply in served(little, at.left[0], state):
            yield done, _new(at.left[0]) if reply is None else reply
    elif not at.left:
        yield state._replace(unconfirmed=()), _told(at)
    for part in (*at.left, *_new_parts(ask, at, state)) if ask.verb in MANY else ():
        for done, after in _after(little, ask, at, part, state):
            if after.ended or (part in at.left and not after.left):
                yield done._replace(unconfirmed=()), _told(after)


def _after(little: Little, ask: Ask, at: Begun, part: Ask, state: State) -> Iterator[tuple[State, Begun]]:
    """A majority need not have it."""
    left = tuple(each for each in at.left if each != part)
    passed = at.passed if ask.verb == "delete many" else tuple(sorted((*at.passed, _key(part)), key=repr))
    for done, reply in served(little, part, state):
        after = done
        if state.unconfirmed:
            more = ((state.docs, state.past),) if (done.docs, done.past) != (state.docs, state.past) else ()
            after = done._replace(unconfirmed=(*state.unconfirmed, *more))
        yield after, _counted(ask, part, at._replace(left=left, passed=passed), reply, state.docs)


def _key(part: Ask) -> object:
    return part.value.value if part.verb == "insert" else part.where[0].value.value


def _steps(little: Little, ask: Ask, at: Begun | None, state: State) -> Iterator[tuple[State, Begun, bool]]:
    """Yields one of several steps, and whether it must happen."""
    if ask.transaction is not None:
        return
    if ask.verb == "upsert":
        is_there = any(all(_matches(term, doc, state.now) for term in ask.where) for doc in state.docs)
        inserted = _updated(ask, _described(ask), state.now)
        if at is None and len(ask.where) > 1 and not is_there and inserted is not None:
            key, *fields = inserted.fields
            changes = tuple(Term("Put", name, Const(value)) for name, value in fields)
            yield state, Begun((Ask("insert", changes=changes, value=Const(key[1])),)), False
    elif ask.verb in MANY:
        parts = parts_of(ask._replace(begun=None), state.docs, state.now)
        is_scan = ask.verb in {"update many", "delete many"}
        now = Begun(tuple(sorted(parts, key=lambda part: repr(_key(part))))) if at is None else at
        if at is None and is_scan:
            yield state, now, False
        for part in now.left:
            for done, after in _after(little, ask, now, part, state):
                if not after.ended and (after.left or is_scan):
                    yield done, after, at is not None and bool(after.left)
        for part in () if at is None else _new_parts(ask, now, state):
            for done, after in _after(little, ask, now, part, state):
                if not after.ended:
                    yield done, after, False


def _new_parts(ask: Ask, at: Begun, state: State) -> tuple[Ask, ...]:
    """Documents that have begun to match since the request began, other than by their age."""
    if ask.verb not in {"update many", "delete many"} or "OlderThan" in repr(ask.where):
        return ()
    known = {*at.passed, *map(_key, at.left)}
    return tuple(part for part in parts_of(ask._replace(begun=None), state.docs, state.now) if _key(part) not in known)


def _changed_ids(before: tuple[Doc, ...], after: tuple[Doc, ...]) -> frozenset[object]:
    old, new = ({doc.get("_id"): doc for doc in docs} for docs in (before, after))
    return frozenset(key for key in {**old, **new} if (key in old) != (key in new) or not same(old[key], new[key]))


def _with_stale(state: State, changed: frozenset[object]) -> State:
    for session, known in state.sessions if changed else ():
        if known.open is not None:
            opened = known.open._replace(stale=known.open.stale | changed)
            state = _with_session(state, session, known._replace(open=opened))
    return state


def _with_session(state: State, session: str, known: SessionState) -> State:
    return state._replace(
        sessions=tuple(sorted({**dict(state.sessions), session: known}.items(), key=lambda each: each[0]))
    )


def _in_session(little: Little, ask: Ask, state: State) -> tuple[State, object]:
    """A statement, a commit or an abort under snapshot isolation; the first writer wins."""
    assert ask.transaction is not None
    named, number, begins = ask.transaction
    session = str(named.value)
    known = dict(state.sessions).get(session, SessionState(0, None))
    mine = known.open if known.number == number else None
    over = _with_session(state, session, SessionState(number, None))
    if ask.verb == "abort":
        return (over if mine else state), None
    if ask.verb == "commit":
        if mine is None:
            is_done = Truth(number == known.number and known.is_committed)
            return state, Failed("ambiguous") if number < known.number else is_done
        done = _with_session(state, session, SessionState(number, None, is_committed=True))
        return _with_stale(done._replace(docs=_merged(state.docs, mine)), mine.written), Truth(value=True)
    if begins and number <= known.number:
        return state, Failed("not applied")
    if begins:
        mine = OpenTransaction(session.partition("-")[0], state.docs)
    elif mine is None:
        return state, Failed("not applied")
    ((docs, reply),) = outcomes_of(little, ask, state._replace(docs=mine.view))
    changed = _changed_ids(mine.view, docs)
    others = [each.open.written for name, each in state.sessions if each.open is not None and name != session]
    if changed & mine.stale or any(changed & written for written in others):
        return over, Failed("not applied")
    if isinstance(reply, Failed):
        return over, Failed("refused") if reply.kind == "ambiguous" else reply
    deleted = changed - {doc.get("_id") for doc in docs}
    mine = mine._replace(view=docs, written=mine.written | changed, deleted=mine.deleted | deleted)
    return _with_session(state, session, SessionState(number, mine)), reply


def _merged(docs: tuple[Doc, ...], mine: OpenTransaction) -> tuple[Doc, ...]:
    view = {doc.get("_id"): doc for doc in mine.view}
    there = [doc.get("_id") for doc in docs]
    new = [doc for key, doc in view.items() if key in mine.deleted or (key in mine.written and key not in there)]
    return (
        *(
            view[key] if key in mine.written else doc
            for key, doc in zip(there, docs, strict=True)
            if key not in mine.deleted
        ),
        *new,
    )


def _since(little: Little, ask: Ask, state: State, docs: tuple[Doc, ...]) -> Past:
    old, new = ({doc.get("_id"): doc for doc in each} for each in (state.docs, docs))
    past, written = state.past, frozenset[object]()
    first = [part.where[0].value.value for part in ask.value] if ask.verb == "bulk" else ()
    for key in {**dict.fromkeys(first), **old, **new}:
        was, now = old.get(key), new.get(key)
        if was is now or (was and now and same(was, now)):
            continue
        written |= {key}
        if little.stream:
            change = DocumentChange("c", key, now is None) if little.stream.is_watched else None
            past = past._replace(changes=(*past.changes, change))
    if not written or not little.failover:
        return past
    written |= set() if list(old) == list(new) else {None}
    left = ((docs, own - written) for docs, own in past.before)
    return past._replace(before=(*((docs, own) for docs, own in left if own), (state.docs, written)))


def _confirmed_end(state: State) -> int:
    """One past the last change with a majority."""
    past = state.unconfirmed[0][1] if state.unconfirmed else state.past
    return past.forgotten + len(past.changes)


def _page(stream: Stream, position: After | From, state: State) -> Page | Broken:
    start = position.token + 1 if isinstance(position, After) else position.time
    if start < state.past.forgotten:
        return Broken(286)
    told: tuple[DocumentChange, ...] = ()
    for number in range(start, _confirmed_end(state)):
        change = state.past.changes[number - state.past.forgotten]
        told += () if change is None else (change,)
        position = After(number)
        if len(told) == stream.page:
            break
    return Page(told, position)


def _recorded(ask: Ask, record: Doc) -> tuple[Doc, object, bool]:
    epoch, history = map(int, ask.name.split(", "))
    is_epoch, is_history = record.get("epoch") == epoch, record.get("history") == history
    if ask.verb == "save":
        if not (is_epoch and is_history):
            return record, Failed("refused"), True
        position = ask.value.value
        if isinstance(position, After):
            return record.without("from").put("after", position.token), None, True
        return record.without("after").put("from", position.time), None, True
    if is_epoch and is_history:
        return record, None, False
    if not is_epoch or record.get("history") > history:  # type: ignore[operator]
        return record, Failed("refused"), True
    return record.put("history", history).without("after").without("from"), None, True


def outcomes_of(little: Little, ask: Ask, state: State) -> Iterator[tuple[tuple[Doc, ...], object]]:
    docs, now = state.docs, state.now
    matching = [index for index, doc in enumerate(docs) if all(_matches(term, doc, now) for term in ask.where)]
    if ask.sort or ask.verb == "find all":
        matching.sort(key=lambda index: str(docs[index].get("_id")))
        for name in reversed(ask.sort):
            matching.sort(key=lambda index: _rank(docs[index].get(name.lstrip("-"))), reverse=name[0] == "-")
    match ask.verb:
        case verb if verb in MANY:
            yield _done_to_many(little, ask, state)
        case "upsert" if not matching:
            inserted = _updated(ask, _described(ask), now)
            is_taken = any(same(doc.get("_id"), ask.where[0].value.value) for doc in docs)
            is_refused = inserted is None or is_taken or _clashes(little, inserted, docs)
            yield (docs, Failed("refused")) if inserted is None or is_refused else ((*docs, inserted), inserted)
        case "find":
            yield docs, docs[matching[0]] if matching else None
        case "find all":
            yield docs, tuple(docs[index] for index in matching[: ask.value])
        case "find and update" | "update" | "upsert":
            if not matching:
                yield docs, None if ask.verb == "find and update" else 0
                return
            new = _updated(ask, docs[matching[0]], now)
            others = docs[: matching[0]] + docs[matching[0] + 1 :]
            if new is None or _clashes(little, new, others):
                yield docs, Failed("refused")
                return
            after = (*docs[: matching[0]], new, *docs[matching[0] + 1 :])
            yield after, 1 if ask.verb == "update" else new
        case "insert":
            new = _new(ask)
            if any(same(doc.get("_id"), new.get("_id")) for doc in docs) or _clashes(little, new, docs):
                yield docs, Failed("refused")
            else:
                yield (*docs, new), None
        case "delete":
            yield tuple(doc for index, doc in enumerate(docs) if index not in matching[:1]), len(matching[:1])
        case "time":
            yield docs, At(now)
        case "call":
            for answer in little.answers:
                yield docs, answer
        case verb:
            raise AssertionError(verb)


def parts_of(ask: Ask, docs: tuple[Doc, ...], now: int) -> tuple[Ask, ...]:
    if ask.verb in {"bulk", "insert many"}:
        return tuple(ask.value)
    keys = [doc.get("_id") for doc in docs if all(_matches(term, doc, now) for term in ask.where)]
    return tuple(
        ask._replace(verb=ask.verb.removesuffix(" many"), where=(Term("Eq", "_id", Const(key)), *ask.where))
        for key in keys
    )


def _done_to_many(little: Little, ask: Ask, state: State) -> tuple[tuple[Doc, ...], object]:
    """A refusal ends an update of many; a duplicate id does not end an insert of many."""
    at = Begun(())
    for part in parts_of(ask, state.docs, state.now):
        ((docs, reply),) = outcomes_of(little, part, state)
        at = _counted(ask, part, at, reply, state.docs)
        state = state._replace(docs=docs)
        if at.ended:
            break
    return state.docs, _told(at)


def _counted(ask: Ask, part: Ask, at: Begun, reply: object, before: tuple[Doc, ...]) -> Begun:
    if not isinstance(reply, Failed):
        return at._replace(total=at.total + (1 if reply is None else reply))  # type: ignore[operator]
    if ask.verb == "update many":
        return at._replace(ended=Failed("ambiguous"))
    is_taken = part.verb == "insert" and any(same(doc.get("_id"), part.value.value) for doc in before)
    return at._replace(refused=at.refused + (not is_taken))


def _told(at: Begun) -> object:
    if at.ended or not at.refused:
        return at.ended or at.total
    return Failed("ambiguous" if at.total else "refused")


def _new(insert: Ask) -> Doc:
    return Doc((("_id", insert.value.value), *((term.field, term.value.value) for term in insert.changes)))


def _described(upsert: Ask) -> Doc:
    return Doc(tuple((term.field, term.value.value) for term in upsert.where if term.verb == "Eq"))


def _rank(value: object) -> tuple[int, Any]:
    """The sort order: null, numbers, texts, instants."""
    if value is None:
        return 0, 0
    ranks: dict[type, int] = {int: 1, str: 2, Truth: 3, At: 4}
    return ranks[type(value)], value


def _updated(ask: Ask, doc: Doc, now: int) -> Doc | None:
    for change in sorted(ask.changes, key=lambda change: change.field):  # new fields come in the order of names
        changed = _changed(change, doc, now)
        if changed is None:
            return None
        doc = changed
    return doc


def _clashes(little: Little, new: Doc, others: tuple[Doc, ...]) -> bool:
    return bool(little.unique) and any(same(new.get(little.unique), doc.get(little.unique)) for doc in others)


def _matches(term: Term, doc: Doc, now: int) -> bool:
    held, has = doc.get(term.field), term.field in dict(doc.fields)
    match term.verb:
        case "Eq":
            return same(held, term.value.value)
        case "In":
            return any(same(held, value) for value in term.value)
        case "Exists":
            return has
        case "Lt":
            return type(held) is int and held < term.value
        case "Contains":
            return isinstance(held, tuple) and any(same(each, term.value.value) for each in held)
        case "OlderThan":
            return isinstance(held, At) and now - held.at >= term.value
        case "any":
            return any(_matches(each, doc, now) for each in term.value)
        case verb:
            raise AssertionError(verb)


def _changed(term: Term, doc: Doc, now: int) -> Doc | None:
    value: Any
    held, has = doc.get(term.field), term.field in dict(doc.fields)
    value = term.value.value if isinstance(term.value, Const) else term.value
    match term.verb:
        case "Put":
            return doc.put(term.field, value)
        case "PutServerTime":
            return doc.put(term.field, At(now))
        case "Remove":
            return doc.without(term.field)
        case "Add":
            if has and type(held) is not int:
                return None
            return doc.put(term.field, (held if isinstance(held, int) else 0) + value)
        case verb:
            if verb == "Pull" and not has:
                return doc
            if has and type(held) is not tuple:
                return None
            array: tuple[object, ...] = held if isinstance(held, tuple) else ()
            if verb == "Pull":
                return doc.put(term.field, tuple(each for each in array if not same(each, value)))
            if verb == "AddToSet" and any(same(each, value) for each in array):
                return doc
            longer = (*array, value)
            return doc.put(term.field, longer[-2:] if verb == "Push last" else longer)


# --- visible facts, and laws about them ---------------------------------------------------------------------------------


def typed(value: object) -> object:
    match value:
        case Doc(fields):
            return ("document", tuple((name, typed(held)) for name, held in fields))
        case At():
            return ("at", *value)
        case After() | From():
            return value
        case tuple():
            return (type(value).__name__, tuple(map(typed, value)))
        case _:
            return (type(value).__name__, value)


ShowRequest: TypeAlias = Callable[[Ask], object]


def _seen(little: Little, state: State) -> Seen:
    return (
        tuple(map(typed, (*state.docs, *((state.past.record,) if little.stream else ())))),
        tuple(
            (actor.name, process.stands.how, _of_stands(process.stands))
            for actor, process in zip(little.actors, state.processes, strict=True)
        ),
        tuple(
            (actor.name, tuple((name, typed(value)) for name, value in process.notes))
            for actor, process in zip(little.actors, state.processes, strict=True)
        ),
        state.now,
    )


def _of_stands(stands: Stands) -> object:
    match stands.how:
        case "asks":
            return stands.what
        case "returned":
            return typed(stands.what)
        case "failed":
            return stands.what
        case _:
            return None


def _holds(law: Law, look: Seen) -> bool:
    facts = [is_fact(fact, look) for fact in law.facts]
    return any(facts) if law.at_least else not all(facts)


def _joins(law: Law, before: Seen, after: Seen) -> bool:
    if not all(is_fact(fact, before) for fact in law.facts):
        return True
    return all(is_fact(fact, before) for fact in law.after) or not all(is_fact(fact, after) for fact in law.after)


def is_fact(fact: Fact, look: Seen) -> bool:
    docs, stands, notes, now = look
    match fact.of:
        case "age":
            held = [dict(fields).get(fact.what) for _, fields in docs if dict(fields)["_id"] == typed(fact.who)]
            found = any(each and each[0] == "at" and now - each[1] >= fact.value for each in held)
        case "doc":
            held = [dict(fields).get(fact.what) for _, fields in docs if dict(fields)["_id"] == typed(fact.who)]
            found = held == [typed(fact.value)]
        case "stands":
            found = any(
                who == fact.who and how == fact.what and (how != "returned" or what == typed(fact.value))
                for who, how, what in stands
            )
        case _:
            mine = next(entries for who, entries in notes if who == fact.who)
            found = dict(mine).get(fact.what) == typed(fact.value)
    return found is not fact.denied
