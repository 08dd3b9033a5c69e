"""Random small consumer groups, explored by brute force and by the simulator.

A lane is a consumer's work on one partition: a table from phase and event kind to commands. It
keeps its assignment for good, so some commits are of past generations or released partitions. This
module writes the broker and its coordinator a second time, from the documentation of
`tidegate.sim.servers.group` and `tidegate.sim.servers.log`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from random import Random  # noqa: TID251  seeded
from typing import Any, NamedTuple, TypeAlias

from tests.properties.independent.machines import (
    Everything,
    brute_force,
    drawn_laws,
    judged,
    must_be_right,
    must_be_the_same,
)
from tests.properties.independent.programs import Failed
from tests.properties.independent.scenarios import EXPLORED_MAX, NAMED
from tests.properties.independent.search import TooLargeError, spent

from tidegate.consumer.protocol.commands import Assigned, Commit, Fetch, Lost, Records, Release, Revoked
from tidegate.model.effects import Effect, Failure
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.sim import (
    Crash,
    Crashed,
    Exploration,
    Fault,
    Faults,
    Machine,
    Network,
    ReducerProcess,
    Scenario,
    State,
    Verdict,
    all_effects,
    explore,
)
from tidegate.sim.servers.group import GROUP, NO_GENERATION, REBALANCES, Coordinator, Group, broker, committed, dead
from tidegate.sim.servers.log import Append, Compaction, Hole, Pause, Resume, log
from tidegate.sim.world.world import Plain, inbox

STATES_MAX = 1_000
KINDS = (
    "unsent",
    "dropped",
    "lost_reply",
    "late",
    "duplicate",
    "crash_before",
    "commit_refused",
    "evicted",
    "rebalance",
)
VERBS = ("fetch", "commit", "commit none", "commit first", "release", "pause", "resume", "append")


class Rules(NamedTuple):
    table: tuple[tuple[tuple[int, str], tuple[int, tuple[str, ...]]], ...]
    commands_max: int


class Groups(NamedTuple):
    members: tuple[str, ...]
    logs: tuple[tuple[str | None, ...], ...]
    """The entries of each partition: a record's key, or None for a hole."""
    rules: tuple[Rules, ...]
    most: int
    cooperative: bool
    evicts: bool
    compacts: bool
    rebalances: int
    faults: frozenset[str]
    budget: int
    split: frozenset[str]
    at_once: frozenset[str]
    budgets: tuple[tuple[str, int], ...] = ()
    laws: tuple[tuple[str, Bad, Bad], ...] = ()
    """(kind of law, forbidden or wanted facts); a step law has them before and after."""


Bad: TypeAlias = tuple[int, int, str]


class Command(NamedTuple):
    verb: str
    number: int
    generation: int
    at: int


Event = tuple[Any, ...]


class Lane(NamedTuple):
    member: str
    number: int
    left: int
    phase: int = 0
    generation: int = 0
    at: int = 0
    commands: tuple[Command, ...] = ()
    arrived: tuple[Event, ...] = ()
    inbox: tuple[Event, ...] = ()
    is_dead: bool = False
    is_paused: bool = False


class Coordination(NamedTuple):
    """`since` has the generation in which each partition got its owner, `target` the next owners
    while the group waits for releases, `away` evicted members that will rejoin.
    """

    generation: int
    members: tuple[str, ...]
    owners: tuple[str, ...]
    since: tuple[int, ...]
    target: tuple[str, ...] | None = None
    released: frozenset[int] = frozenset()
    away: tuple[str, ...] = ()


class All(NamedTuple):
    group: Coordination
    lanes: tuple[Lane, ...]
    logs: tuple[tuple[str | None, ...], ...]
    positions: tuple[int, ...]
    rebalances: int
    budget: int
    budgets: tuple[tuple[str, int], ...] = ()
    flying: tuple[tuple[int, Command], ...] = ()


# --- the reducers, which both run ---------------------------------------------------------------------------------------


class Holds(NamedTuple):
    left: int
    phase: int = 0
    generation: int = 0
    at: int = 0


def stepped(rules: Rules, number: int, holds: Holds, event: Event) -> tuple[Holds, tuple[Command, ...]]:
    match event:
        case ("assigned", generation, at):
            holds = holds._replace(generation=generation, at=at)
        case ("fetched", at):
            holds = holds._replace(at=at)
        case _:
            pass
    phase, verbs = dict(rules.table).get((holds.phase, event[0]), (holds.phase, ()))
    if len(verbs) > holds.left:
        verbs = ()
    commands = []
    for verb in verbs:
        generation = {"commit none": -1}.get(verb, holds.generation)
        commands.append(Command(verb.split()[0], number, generation, 0 if verb == "commit first" else holds.at))
    return holds._replace(phase=phase, left=holds.left - len(verbs)), tuple(commands)


def told_of(command: Command, reply: object) -> Event | None:
    match command.verb, reply:
        case _, Failed(kind):
            return (kind,)
        case "fetch", int():
            return ("fetched", reply)
        case "commit" | "append", _:
            return (command.verb,)
        case _:
            return None


# --- by brute force -----------------------------------------------------------------------------------------------------


def moves(groups: Groups, state: All) -> Iterator[tuple[All, bool, str]]:
    """Yields (next state, must it happen, fault). Rebalances have a budget of their own."""
    for after, must, fault in _all_moves(groups, state):
        if not fault:
            yield after, must, ""
        elif fault == "rebalance":
            own = dict(state.budgets)
            if state.rebalances and own.get(fault, 1):
                budgets = tuple((kind, left - (kind == fault)) for kind, left in state.budgets)
                yield after._replace(rebalances=state.rebalances - 1, budgets=budgets), False, fault
        elif fault in groups.faults and (left := spent(after, fault)) is not None:
            yield left, False, fault


def _all_moves(groups: Groups, state: All) -> Iterator[tuple[All, bool, str]]:
    yield from _of_coordinator(groups, state)
    for member in groups.members:
        if not _is_dead(state, member):
            died = state
            for index, lane in enumerate(state.lanes):
                if lane.member == member:
                    gone = Lane(member, lane.number, 0, is_dead=True, is_paused=lane.is_paused)
                    died = _with(died, index, gone)
            yield died, False, "crash_before"
    for index, lane in enumerate(state.lanes):
        if lane.inbox:
            rest = _with(state, index, lane._replace(inbox=lane.inbox[1:]))
            yield taken(groups, index, rest, lane.inbox[0]), True, ""
        for event in set(lane.arrived):
            rest = _with(state, index, lane._replace(arrived=_less(lane.arrived, event)))
            yield taken(groups, index, rest, event), True, ""
        for command in set(lane.commands):
            yield from _of_command(groups, index, state, command)
    for sent in set(state.flying):
        for after, _ in served(groups, *sent, state._replace(flying=_less(state.flying, sent))):
            yield after, True, ""
    for number, entries in enumerate(state.logs if groups.compacts else ()):
        for at, key in enumerate(entries):
            if key is not None and key in entries[at + 1 :]:
                left = (*entries[:at], None, *entries[at + 1 :])
                yield state._replace(logs=_put(state.logs, number, left)), False, ""


def taken(groups: Groups, index: int, state: All, event: Event) -> All:
    lane = state.lanes[index]
    rules = groups.rules[groups.members.index(lane.member)]
    holds, commands = stepped(rules, lane.number, Holds(lane.left, lane.phase, lane.generation, lane.at), event)
    later = tuple(each for each in commands if each.verb not in groups.at_once)
    lane = lane._replace(**holds._asdict(), commands=tuple(sorted((*lane.commands, *later))))
    state = _with(state, index, lane)
    for command in commands:
        if command not in later:
            ((state, _),) = served(groups, index, command, state)
    return state


def _of_command(groups: Groups, index: int, state: All, command: Command) -> Iterator[tuple[All, bool, str]]:
    lane = state.lanes[index]
    waiting = lane._replace(commands=_less(lane.commands, command))

    def told(world: All, reply: object) -> All:
        lane = waiting._replace(is_paused=world.lanes[index].is_paused)
        event = told_of(command, reply)
        if event is None:
            return _with(world, index, lane)
        if command.verb in groups.split:
            return _with(world, index, lane._replace(arrived=tuple(sorted((*lane.arrived, event), key=repr))))
        return taken(groups, index, _with(world, index, lane), event)

    lost, flying = Failed("ambiguous"), tuple(sorted((*state.flying, (index, command))))
    for done, reply in served(groups, index, command, state):
        after = told(done, reply)
        yield after, after != state, ""
        yield told(done, lost), False, "lost_reply"
        yield told(done._replace(flying=flying), reply), False, "duplicate"
    yield told(state, Failed("not applied")), False, "unsent"
    yield told(state, lost), False, "dropped"
    yield told(state._replace(flying=flying), lost), False, "late"
    if command.verb == "commit":
        yield told(state, Failed("refused")), False, "commit_refused"


def served(groups: Groups, index: int, command: Command, state: All) -> Iterator[tuple[All, object]]:
    verb, number, generation, at = command
    lane, group = state.lanes[index], state.group
    match verb:
        case "fetch":
            found = [offset for offset, key in enumerate(state.logs[number]) if offset >= at and key is not None]
            if found and not lane.is_paused:
                yield state, found[: groups.most][-1] + 1
        case "commit" if generation == -1:
            yield (state, Failed("refused")) if group.members else (_committed(state, number, at), None)
        case "commit":
            # A commit of a dead member counts until the partition has another owner, as if it came
            # before the eviction.
            if group.owners[number] == lane.member and group.since[number] == generation:
                yield _committed(state, number, at), None
            else:
                yield state, Failed("refused")
        case "release":
            if group.target is not None and group.owners[number] == lane.member:
                group = group._replace(released=group.released | {number})
            yield state._replace(group=group), None
        case "append":
            logs = _put(state.logs, number, (*state.logs[number], "k"))
            yield state._replace(logs=logs), len(state.logs[number])
        case _:
            yield _with(state, index, lane._replace(is_paused=verb == "pause")), None


def _committed(state: All, number: int, at: int) -> All:
    return state._replace(positions=_put(state.positions, number, at))


def _of_coordinator(groups: Groups, state: All) -> Iterator[tuple[All, bool, str]]:
    group = state.group
    if group.target is not None and _moving(groups, group) <= group.released:
        yield assigned(groups, state), True, ""
    for member in group.members:
        rest = group._replace(members=tuple(each for each in group.members if each != member))
        if _is_dead(state, member):
            yield _revoked(groups, state, rest), True, ""
        elif groups.evicts:
            out = state
            for number, owner in enumerate(group.owners):
                if owner == member:
                    out = _told(out, member, number, ("lost",))
            rest = rest._replace(
                owners=tuple("" if owner == member else owner for owner in group.owners), away=(*group.away, member)
            )
            yield _revoked(groups, out, rest), False, "evicted"
    if group.target is None:
        for member in group.away:
            lanes = [lane for lane in state.lanes if lane.member == member]
            if not _is_dead(state, member) and not any(("lost",) in lane.inbox for lane in lanes):
                away = tuple(each for each in group.away if each != member)
                joined = group._replace(members=tuple(sorted((*group.members, member))), away=away)
                yield _revoked(groups, state, joined), True, ""
        yield _revoked(groups, state, group), False, "rebalance"


def _moving(groups: Groups, group: Coordination) -> set[int]:
    assert group.target is not None
    return {
        number
        for number, owner in enumerate(group.owners)
        if owner in group.members and (not groups.cooperative or owner != group.target[number])
    }


def _revoked(groups: Groups, state: All, group: Coordination) -> All:
    if group.target is not None:
        return state._replace(group=group)
    group = group._replace(target=_fair(group) if groups.cooperative else (), released=frozenset())
    for number in _moving(groups, group):
        state = _told(state, group.owners[number], number, ("revoked",))
    return state._replace(group=group)


def _fair(group: Coordination) -> tuple[str, ...]:
    owners = _dealt(group.members, group.owners)
    if len(group.members) < 2:
        return owners
    while (difference := _difference(group.members, owners)) > 1:
        owners = _moved(owners, *_extremes(group.members, owners))
    if owners != group.owners:
        return owners
    most, least = _extremes(group.members, owners)
    moved = _moved(owners, most, least)
    return moved if difference else _put(moved, owners.index(least), most)


def _extremes(members: tuple[str, ...], owners: tuple[str, ...]) -> tuple[str, str]:
    by_load = _by_load(members, owners)
    return by_load[-1], by_load[0]


def _difference(members: tuple[str, ...], owners: tuple[str, ...]) -> int:
    most, least = _extremes(members, owners)
    return owners.count(most) - owners.count(least)


def _moved(owners: tuple[str, ...], most: str, least: str) -> tuple[str, ...]:
    own = [number for number, owner in enumerate(owners) if owner == most]
    return _put(owners, own[-1], least) if own else owners


def _dealt(members: tuple[str, ...], owners: tuple[str, ...]) -> tuple[str, ...]:
    owners = tuple(owner if owner in members else "" for owner in owners)
    for number, owner in enumerate(owners):
        if not owner and members:
            owners = _put(owners, number, _by_load(members, owners)[0])
    return owners


def _by_load(members: tuple[str, ...], owners: tuple[str, ...]) -> list[str]:
    return sorted(members, key=lambda member: (owners.count(member), member))


def assigned(groups: Groups, state: All) -> All:
    group = state.group
    generation, members = group.generation + 1, group.members
    numbers = range(len(group.owners))
    if groups.cooperative:
        owners = _dealt(members, group.target or group.owners)
        stays = [owners[each] == group.owners[each] and each not in group.released for each in numbers]
    else:
        owners = tuple(members[(each + generation) % len(members)] if members else "" for each in numbers)
        stays = [False for _ in numbers]
    since = tuple(group.since[each] if stays[each] else generation for each in numbers)
    for number, owner in enumerate(owners):
        if owner and not stays[number]:
            lanes = (
                lane._replace(is_paused=lane.is_paused and (lane.member, lane.number) != (owner, number))
                for lane in state.lanes
            )
            state = state._replace(lanes=tuple(lanes))
            state = _told(state, owner, number, ("assigned", generation, state.positions[number]))
    return state._replace(group=Coordination(generation, members, owners, since, away=group.away))


def _told(state: All, member: str, number: int, event: Event) -> All:
    index, lane = next(
        (i, each) for i, each in enumerate(state.lanes) if (each.member, each.number) == (member, number)
    )
    return state if lane.is_dead else _with(state, index, lane._replace(inbox=(*lane.inbox, event)))


def _is_dead(state: All, member: str) -> bool:
    return any(lane.is_dead for lane in state.lanes if lane.member == member)


def _with(state: All, index: int, lane: Lane) -> All:
    return state._replace(lanes=_put(state.lanes, index, lane))


def _put(items: tuple[Any, ...], at: int, item: object) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _less(items: tuple[Any, ...], item: object) -> tuple[Any, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]


def first_of(groups: Groups) -> All:
    count = len(groups.logs)
    lanes = tuple(
        Lane(member, number, rules.commands_max)
        for member, rules in zip(groups.members, groups.rules, strict=True)
        for number in range(count)
    )
    group = Coordination(0, groups.members, ("",) * count, (0,) * count, target=("",) * count)
    begin = All(group, lanes, groups.logs, (0,) * count, groups.rebalances, groups.budget, groups.budgets)
    return assigned(groups, begin)


@lru_cache(8)
def everything(groups: Groups) -> Everything:
    return brute_force(
        first_of(groups), lambda state: moves(groups, state), _look, groups.laws,
        lambda bad, state: _is_bad(bad, state.positions, state.group.owners), STATES_MAX,
    )  # fmt: skip


def _look(state: All) -> object:
    group = state.group
    return (
        (group.generation, group.members, group.owners, group.target is not None, group.away), state.positions, state.logs,
        tuple(
            "dead" if lane.is_dead
            else (lane[2:6], lane.commands, tuple(sorted(lane.arrived, key=repr)), lane.inbox)
            for lane in state.lanes
        ),
    )  # fmt: skip


def _is_bad(bad: Bad, positions: tuple[int, ...], owners: tuple[str, ...]) -> bool:
    number, position, owner = bad
    return positions[number] == position and owners[number] == owner


# --- drawn --------------------------------------------------------------------------------------------------------------

FROM_GROUP = ("assigned", "revoked", "lost")
ANSWERS = ("fetched", "commit", "append", "refused", "ambiguous", "not applied")


def drawn_groups(seed: str) -> Groups:
    random = Random(seed)

    def chance(share: float) -> bool:
        return random.random() < share

    def verbs(kind: str) -> tuple[str, ...]:
        if kind == "revoked":
            return random.choice((("release",), ("release",), ("commit", "release"), ("release", "commit"), ()))
        if kind == "assigned":
            return random.choice((("fetch",), ("commit",), ("fetch", "commit"), ("pause", "fetch"), ("append",), ()))
        if kind == "lost":
            return random.choice((("commit none",), ("commit none",), ("commit first",), ("commit",), ("fetch",), ()))
        return tuple(random.choice(VERBS) for _ in range(random.choice((0, 0, 1, 1, 2))))

    def rules() -> Rules:
        table = {
            (phase, kind): (random.choice((0, 0, 1)), verbs(kind))
            for phase in range(2)
            for kind in (*FROM_GROUP, *ANSWERS)
            if kind in FROM_GROUP or chance(0.5)
        }
        return Rules(tuple(table.items()), random.choice((1, 2, 3, 4)))

    while True:
        members = ("a", "b", "c")[: random.choice((1, 2, 2, 2, 3))]
        entries = (("k", "k"), ("k", None, "k"), ("j", "k", "k"), ("k",), ())
        common = rules()
        faults = frozenset(kind for kind in KINDS if chance(0.3))
        faults = random.choice((faults, faults, frozenset({"evicted"}), frozenset({"late", "crash_before"})))
        budget, rebalances = random.choice((0, 1, 1, 2, 3)), random.choice((0, 1, 1, 2))
        bounded = random.sample(sorted(faults), min(len(faults), random.choice((0, 0, 1, 2))))
        budgets = [(kind, random.choice((0, 1, 2))) for kind in sorted(bounded)]
        made = Groups(
            members, tuple(random.choice(entries) for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4)))),
            tuple(common if chance(0.5) else rules() for _ in members), random.choice((1, 2)),
            chance(0.5), "evicted" in faults, chance(0.2), rebalances, faults, budget,
            frozenset(verb for verb in ("commit", "fetch", "append") if chance(0.3)),
            frozenset({"release"} if chance(0.6) else ()) | frozenset({"pause", "resume"} if chance(0.5) else ()),
            tuple(budgets),
        )  # fmt: skip
        try:
            found = everything(made)
        except TooLargeError:
            continue

        def bad(order: list[All] = found.order) -> Bad:
            state = order[-1 - int(len(order) * random.random() ** 2)]
            number = random.randrange(len(state.positions))
            return number, state.positions[number], state.group.owners[number]

        if len(found.seen) > 8:
            return made._replace(laws=drawn_laws(random, bad))


# --- for the simulator --------------------------------------------------------------------------------------------------


def scenario_of(groups: Groups, **laws: Any) -> Scenario:
    means = broker(most=groups.most)
    faults = Faults(
        {Fault(kind): is_commit if kind == "commit_refused" else all_effects for kind in sorted(groups.faults)}
    )
    coordinator = Coordinator("t", lane_of, groups.cooperative, groups.evicts)
    count = len(groups.logs)
    lanes = {
        member: tuple(_process(groups, member, number, faults=faults, meaning=means) for number in range(count))
        for member in groups.members
    }
    world = Plain().write(REBALANCES, groups.rebalances)
    for number, entries in enumerate(groups.logs):
        world = world.write(log(number), tuple(Hole.CONTROL if key is None else key.encode() for key in entries))
    none = ("",) * count
    begun = coordinator.assign(world, Group(0, groups.members, none, target=none))
    assert isinstance(begun, Plain)
    befalls: list[Any] = [Compaction(tuple(range(count)))] if groups.compacts else []
    if "crash_before" in groups.faults:
        befalls += [Crash(f"crash {member}", own, dead(member)) for member, own in lanes.items()]
    return Scenario(
        name="group",
        summary="drawn at random",
        world=begun,
        actors=(*(each for own in lanes.values() for each in own), coordinator, Network(means), *befalls),
        budget=groups.budget,
        budgets={Fault(kind): number for kind, number in groups.budgets},
        **laws,
    )


def lane_of(member: str, number: int) -> str:
    return f"{member}.{number}"


def is_commit(effect: Effect[object]) -> bool:
    return isinstance(effect, Commit)


@cache
def effect_of(command: Command) -> Effect[Any]:
    verb, number, generation, at = command
    partition = TopicPartition("t", number)
    match verb:
        case "fetch":
            return Fetch(partition, generation, at)
        case "commit":
            return Commit(partition, NO_GENERATION if generation == -1 else generation, at)
        case "release":
            return Release(partition)
        case "append":
            return Append(partition, b"k")
        case "pause":
            return Pause(partition)
        case _:
            return Resume(partition)


def event_of(event: object) -> Event:
    match event:
        case Assigned(_, generation, at):
            return ("assigned", generation, at)
        case Revoked():
            return ("revoked",)
        case Lost():
            return ("lost",)
        case _:
            assert isinstance(event, tuple)
            return event


def _process(groups: Groups, member: str, number: int, **more: Any) -> ReducerProcess:
    rules = groups.rules[groups.members.index(member)]

    def step(state: tuple[int, ...], event: object) -> Step[Any, Any]:
        holds, commands = stepped(rules, number, Holds(*state), event_of(event))
        return Step(tuple(holds), tuple(map(effect_of, commands)))

    def event_for(command: Effect[object], reply: object) -> Event | None:
        return told_of(Command(verb_of(command), number, 0, 0), _short(reply))

    def is_one_of(verbs: frozenset[str]) -> Callable[[Effect[object]], bool]:
        return lambda command: verb_of(command) in verbs

    return ReducerProcess(
        lane_of(member, number), tuple(Holds(rules.commands_max)), step, event_for,
        split=is_one_of(groups.split), at_once=is_one_of(groups.at_once), **more,
    )  # fmt: skip


def verb_of(command: object) -> str:
    return type(command).__name__.lower()


def _short(reply: object) -> object:
    match reply:
        case Failure():
            return Failed(NAMED[type(reply).__name__])
        case Records(offsets):
            return offsets[-1] + 1
        case _:
            return reply


def _seen(groups: Groups, state: State) -> object:
    group = state.read(GROUP)
    numbers = range(len(groups.logs))
    lanes = tuple(_stands(state, lane_of(member, number)) for member in groups.members for number in numbers)
    logs = tuple(
        tuple(key.decode() if isinstance(key, bytes) else None for key in state.read(log(number))) for number in numbers
    )
    positions = tuple(state.read(committed(number)) for number in numbers)
    return (group.generation, group.members, group.owners, group.rebalancing, group.away), positions, logs, lanes


def _stands(state: State, name: str) -> object:
    match state.status(name):
        case Machine(holds, commands, arrived):
            waiting: tuple[object, ...] = state.read(inbox(name))
            events = tuple(map(event_of, waiting))
            return holds, _commands(commands), tuple(sorted(arrived, key=repr)), events
        case Crashed():
            return "dead"
        case status:
            return status


def _commands(commands: tuple[Any, ...]) -> tuple[object, ...]:
    return tuple(sorted(repr(each) for each in commands))


def _as_shown(look: Any) -> object:
    group, positions, logs, lanes = look
    return group, positions, logs, tuple(
        lane if lane == "dead" else (tuple(lane[0]), _commands(tuple(map(effect_of, lane[1]))), *lane[2:]) for lane in lanes
    )  # fmt: skip


def compared(groups: Groups) -> None:
    found = everything(groups)
    seen: set[object] = set()
    rest: set[object] = set()

    def see(into: set[object]) -> Callable[[State], bool]:
        def law(state: State) -> bool:
            into.add(_seen(groups, state))
            return True

        return law

    def is_there(bad: Bad, state: State) -> bool:
        positions = tuple(state.read(committed(number)) for number in range(len(groups.logs)))
        return _is_bad(bad, positions, state.read(GROUP).owners)

    whole = scenario_of(groups, always={"seen": see(seen)}, eventually={"rest": see(rest)})
    report = explore(whole, Exploration(states_max=EXPLORED_MAX))
    verdict = Verdict.COMPLETE if found.rest else Verdict.INCONCLUSIVE
    must_be_the_same("the verdict", verdict, report.verdict, groups)
    must_be_the_same("what is seen", frozenset(map(_as_shown, found.seen)), seen, groups)
    must_be_the_same("what is seen at rest", frozenset(map(_as_shown, found.rest)) - rest, frozenset(), groups)
    must_be_the_same("faults", found.faults, {str(kind) for kind in report.faults}, groups)
    must_be_right(*judged(partial(scenario_of, groups), groups.laws, is_there), found, groups)
