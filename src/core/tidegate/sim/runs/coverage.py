"""The states, faults, goals and laws that a search or random runs did not cover.

    states   Reached but not expanded, where a bound stopped the search; with the growing cell, if
             that is the cause.
    faults   Possible within budget, and never struck; or unable to strike within a budget of one;
             or never ended by any actor.
    goals    Never reached.
    writes   Of many documents, mostly written in one step, or done at once by a meaning
             (`tidegate.sim.servers.halfway`).
    ages     In filters, never reached; and sleeps that never end, because time stands still or the
             clock has too few moves.
    laws     That read a collection or notes that no state has (a misspelled name reads as empty);
             step laws that no step touched; rest laws without rest, or with rest only because the
             clock ran out of moves; all, if none is stated or no step happens.

The report also lists programs that end by an uncaught failure with an unknown outcome (`unsure`).

`missed` omits rest caused by a clock without moves: with a bounded clock it is normal.

Known not to work: a fault that strikes only effects no program awaits counts as never struck,
intended or not. The faults of an actor are unknown if it has neither `faults` nor `makes` (as
`Crash` has).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import Final, TypeAlias, cast

from tidegate.model.documents import Document, OlderThan
from tidegate.model.effects import Effect, Sleep
from tidegate.model.errors import shown
from tidegate.model.immutable import mapped
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.operations import BulkUpdate, DeleteMany, InsertMany, UpdateMany, UpsertOne
from tidegate.model.transactions import InTransaction
from tidegate.sim.program.automaton import Asking, Returned
from tidegate.sim.program.outside import reached
from tidegate.sim.program.relative_time import same
from tidegate.sim.program.source_locations import decided_at
from tidegate.sim.runs.sample import Sampled
from tidegate.sim.scenario import Actor, NoLongerThan, Scenario
from tidegate.sim.search.growth import DEPTH_MIN, growing
from tidegate.sim.search.search import Explored
from tidegate.sim.search.sizing import rounded
from tidegate.sim.search.steppers import Remembering
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.servers.halfway import APART_MAX, is_at_once, too_many
from tidegate.sim.servers.reducers import Machine, ReducerProcess
from tidegate.sim.trace.rendering import number_of
from tidegate.sim.world.cells import EARLIER
from tidegate.sim.world.clocks import HOST
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.packing import Lens, Looked
from tidegate.sim.world.world import CLOCK, DOCUMENTS, FLIGHT, IDS, MANY, NOTES, Flying, Many, perform


def uncovered(found: Explored) -> tuple[str, ...]:
    return (*_unlooked(found), *never(found), *_alone(found), *_untimely(found), *_between(found), *_in_one_step(found))


def _alone(found: Explored) -> tuple[str, ...]:
    """An explicit budget of one may be deliberate, so `missed` omits these; `budgets` declares it
    per kind.
    """
    return tuple(
        f"fault {kind} cannot strike: it takes another fault before it, and the budget is one; budgets={{Fault.{kind.name}: 0}} "
        "says that this is meant"
        for kind in cannot_follow(found.search.scenario)
    )


def cannot_follow(scenario: Scenario) -> tuple[Fault, ...]:
    if scenario.budget != 1 or scenario.budget_is_default:
        return ()
    named = {kind for actor in scenario.actors for kind in getattr(getattr(actor, "faults", None), "kinds", ())}
    return tuple(kind for kind in Fault if kind in named & _AFTER_ANOTHER and scenario.budgets.get(kind, 1))


def _unlooked(found: Explored) -> tuple[str, ...]:
    if not found.frontier:
        return ()
    left = "" if found.expected is None else f"; about {rounded(found.expected)} states were expected in all"
    were = f"from depth {found.depth:,} on {'was' if len(found.frontier) == 1 else 'were'} not looked beyond"
    states = f"{number_of(len(found.frontier), 'state')} {were}{left}"
    return (states, *(growing(found.search.space) if found.depth >= DEPTH_MIN else ()))


def _untimely(found: Explored) -> tuple[str, ...]:
    if not found.cut_short or not found.search.scenario.eventually:
        return ()
    rest = f"{found.cut_short:,} state{' rests or loops' if found.cut_short == 1 else 's rest or loop'}"
    why = "only because the clock has no moves left: laws about rest were not checked there; give the clock more moves"
    return (f"{rest} {why}",)


def _between(found: Explored) -> tuple[str, ...]:
    scenario, ages, lengths = found.search.scenario, set[Duration](), set[Duration]()
    slept: dict[tuple[str, Duration], dict[object, bool]] = {}

    def look(part: object) -> object:
        if isinstance(part, OlderThan):
            ages.add(part.age)
        return part

    for process in found.search.space.processes.values():
        for node, place in chain.from_iterable(automaton.placed() for automaton in process.automata):
            match node.status:
                case Asking(Sleep() as sleep):
                    lengths.add(sleep.least)
                    at, ends = _timeless(place), slept.setdefault((node.src, sleep.least), {})
                    ends[at] = ends.get(at, False) or bool(node.edges)
                case Asking(effect):
                    mapped(effect, look)
                case _:
                    pass
    never = _never_reached(found, ages) if ages else ()
    if scenario.clock is None:
        return never
    if not found.search.space.relative and not found.stopped:
        moves = number_of(scenario.clock.moves, "move")
        todo = "give the clock more moves" + ("" if scenario.clock.horizon else ", or a horizon")
        never += tuple(
            f"{src}: {'some sleeps' if some else 'no run comes to the end of a sleep'} of {seconds(length)}"
            f"{' end in no run' if some else ''}, because the clock has {moves}: what comes after "
            f"{'them' if some else 'it'} was not explored; {todo}"
            f"{', or keep immutable values across them, by which they are known to be the same' if unknown else ''}"
            for (src, length), ends in slept.items()
            if not all(ends.values())
            for some in (any(ends.values()),)
            for unknown in (some and any(isinstance(at, int) for at, ended in ends.items() if not ended),)
        )
    lengths |= ages | {part.length for law in found.search.stated if isinstance(part := law.holds, NoLongerThan)}
    quantum = scenario.clock.quantum
    return never + tuple(
        f"{seconds(length)} are no multiple of the quantum of {seconds(quantum)}: what happens when just that time is over was "
        "not explored; let the clock have a quantum that divides it"
        for length in sorted(lengths)
        if length > quantum and length % quantum
    )


def _timeless(place: object) -> object:
    """A program that keeps an instant has a new position after each clock move; this removes the
    time.
    """
    match place:
        case (kind, *_) if kind is Instant:
            return Instant
        case Document(items):
            return Document, _timeless(items)
        case tuple():
            return tuple(map(_timeless, place))
        case Instant():
            return Instant
        case _:
            return place


def _never_reached(found: Explored, ages: set[Duration]) -> tuple[str, ...]:
    space, clock = found.search.space, found.search.scenario.clock
    if space.relative or found.stopped:
        return ()
    slots, times, held = space.packing.slots, [space.scenario.world.read(CLOCK).at], list[int]()

    def look(part: object) -> object:
        if isinstance(part, Instant):
            held.append(part.at)
        return part

    if CLOCK.name in slots:
        times += [time.at for time in slots[CLOCK.name].values if isinstance(time, Instant)]
    if max(times) - min(times) >= max(ages):
        return ()
    for name, slot in slots.items():
        if name[0] in _HOLDING:
            for value in slot.values:
                mapped(value, look)
    most = max(times) - min(times + held)
    why = "time stands" if max(times) == times[0] else f"only {seconds(max(times) - times[0])} pass"
    moves = any(
        Fault.STALL in getattr(getattr(each, "faults", None), "kinds", ()) for each in found.search.scenario.actors
    )
    todo = "its clock more moves" + (", or a horizon" if clock and clock.horizon is None and not moves else "")
    todo = f"the scenario clock=Clock(quantum, {'moves' if moves else 'horizon'}=...)" if clock is None else todo
    return tuple(
        f"nothing ever becomes {seconds(age)} old, as a filter asks (OlderThan), because {why}; give {todo}"
        for age in sorted(ages)
        if age > most
    )


_HOLDING: Final = frozenset({DOCUMENTS, "session"})
"""Kinds of cells with documents; an open transaction holds some too."""


def _in_one_step(found: Explored) -> tuple[str, ...]:
    packing, most, stated = found.search.space.packing, dict[_Told, int](), dict[_Told, int]()
    at_once: dict[_Told, None] = {}
    there = {
        name[1]: max(len(cast("tuple[object, ...]", keys)) for keys in slot.values)
        for name, slot in packing.slots.items()
        if name[0] == IDS
    }
    for stepper in found.search.steppers:
        actor = stepper.actor if isinstance(stepper, Remembering) else None
        if not isinstance(actor, (Process, ReducerProcess, Network)):
            continue
        slot = packing.slots.get(FLIGHT.name if isinstance(actor, Network) else actor.place.name)
        meaning = (actor.meaning or perform) if isinstance(actor, Network) else actor.meaning
        if slot is None:
            continue
        asked = {at: each for at, held in enumerate(slot.seen) if (each := _in_steps(_asked(actor, held), there, 1))}
        some = APART_MAX if not asked or meaning is perform or not reached(meaning).has_code else 1
        if some > 1:
            asked = {at: left for at, each in asked.items() if (left := _in_steps(each, there, some))}
        for key in stepper.memo if asked else ():
            for who, effect, where in asked.get((key >> slot.shift) & slot.low, ()):
                world = Lens(packing, key, Looked())
                if not isinstance(actor, Process) or actor.asking(world, effect).at is None:
                    place = where or _asked_at(found, who, effect)
                    if isinstance(effect, InTransaction):
                        operation = cast("Many", effect.operation)
                        told = (place, type(operation).__name__, operation.collection)
                        stated[told] = too_many(effect, world, who, meaning, stated.get(told, 0))
                        continue
                    told = (place, type(effect).__name__, effect.collection)
                    if isinstance(effect, MANY):
                        most[told] = too_many(effect, world, who, meaning, most.get(told, 0))
                    if some == 1 and told not in at_once and is_at_once(effect, world, who, meaning):
                        at_once[told] = None
    return (
        *(
            f"{where}: {kind} of {number} documents of {collection}: all but the last {APART_MAX} are written in one step, so "
            "neither other orders nor what others do in between was explored; let the scenario have fewer documents, or split the "
            "write"
            for (where, kind, collection), number in most.items()
            if number
        ),
        *(
            f"{where}: {kind} of {number} documents of {collection} in a transaction: a unique index may refuse one of them in one "
            f"order alone, and of more than {APART_MAX} no other order was explored; let the scenario have fewer documents"
            for (where, kind, collection), number in stated.items()
            if number
        ),
        *(
            f"{where}: {kind} in {collection} is done at once, so what others may do in its middle was not explored: the meaning "
            "does otherwise for one document after the other; let it do with UpdateOne, DeleteOne and InsertOne what it does with this"
            for where, kind, collection in at_once
        ),
    )


_Told: TypeAlias = tuple[str, str, str]
"""The source line, the request type and its collection."""
_Asked: TypeAlias = tuple[str, Many | UpsertOne | InTransaction[object], str]
"""The process, its write request, and the source line if known."""


def _in_steps(asked: Iterable[tuple[str, object, str]], there: Mapping[str, int], some: int) -> list[_Asked]:
    """The requests that may write more than `some` documents. `there` is the largest size of each
    collection.
    """
    found: list[_Asked] = []
    for who, effect, where in asked:
        written = effect.operation if isinstance(effect, InTransaction) else effect
        match written:
            case InsertMany(docs=named) | BulkUpdate(updates=named):
                most = len(named)
            case UpdateMany() | DeleteMany():
                most = there.get(written.collection, 0)
            case UpsertOne() if some == 1 and not isinstance(effect, InTransaction):
                most = some + 1
            case _:
                continue
        if most > some:
            found.append((who, cast("Many | UpsertOne | InTransaction[object]", effect), where))
    return found


def _asked(actor: Actor, held: object) -> Iterator[tuple[str, Effect[object], str]]:
    """The requests not yet begun. `held` is an actor's node, or everything in flight."""
    match actor, held:
        case Process(), int():
            node = actor.behaviour.nodes[held]
            if isinstance(node.status, Asking):
                yield actor.name, node.status.effect, node.src
        case ReducerProcess(), Machine():
            yield from ((actor.name, command, "") for command in held.commands)
            for running in held.running:
                node = actor.behaviour(running.command).nodes[running.node]
                if running.come is None and isinstance(node.status, Asking):
                    yield actor.name, node.status.effect, node.src
        case Network(), tuple():
            flying = cast("tuple[Flying, ...]", held)
            yield from ((each.sender, each.effect, "") for each in flying if each.come is None)
        case _:
            pass


def _asked_at(found: Explored, who: str, effect: Effect[object]) -> str:
    process = found.search.space.processes.get(who)
    nodes = [node for each in (process.automata if process else ()) for node in each.nodes]
    asks = (node for node in nodes if isinstance(node.status, Asking) and same(node.status.effect, effect))
    lines = " or ".join(dict.fromkeys(node.src for node in asks))
    return lines or (decided_at(process.step) if isinstance(process, ReducerProcess) else who)


def missed(found: Explored | Sampled) -> tuple[str, ...]:
    """Why no violation could be found; goals never reached; faults that never struck."""
    goals = [f"goal never reached: {name}" for name, reached in found.goals.items() if not reached]
    possible = _possible(found.search.scenario)
    kinds = [f"fault {kind} never struck{_remedy(kind, found)}" for kind in possible if not found.faults.get(kind)]
    lost = [] if any(isinstance(actor, Network) for actor in found.search.scenario.actors) else _DELIVERED
    undelivered = [
        f"fault {kind} is a loss here: what is under way never arrives without a Network among the actors"
        for kind in possible
        if kind in lost and found.faults.get(kind)
    ]
    return (*_vacuous(found), *goals, *kinds, *undelivered)


def _remedy(kind: Fault, found: Explored | Sampled) -> str:
    search, scenario = found.search, found.search.scenario
    if kind in _AFTER_ANOTHER and scenario.budget == 1:
        return ": it strikes only after another fault, so it takes a budget of two: Scenario(..., budget=2)"
    if kind is Fault.ROLLED_BACK and not any(kind in getattr(actor, "makes", ()) for actor in scenario.actors):
        return ": nobody takes back a write; let a Failover() be among the actors"
    if kind is Fault.STALE_READ and not any(
        name == EARLIER.name and len(slot.values) > 1 for name, slot in search.space.packing.slots.items()
    ):
        return ": no earlier version was kept; give all who write, and a Network, the meaning recalling(perform)"
    named = _OF_HOST.get(kind)
    striking = [actor for actor in scenario.actors if kind in getattr(getattr(actor, "faults", None), "kinds", ())]
    if named is not None and not any(getattr(getattr(actor, "host", HOST), named) for actor in striking):
        return f": nobody says by how much; write Process(..., host=Host({named}=...))"
    return ""


_OF_HOST: Final = {
    Fault.STALL: "stall",
    Fault.SKEW: "skew",
    Fault.CLOCK_FORWARD: "jump",
    Fault.CLOCK_BACK: "jump",
}
"""The field of the host that sets its size."""


def _vacuous(found: Explored | Sampled) -> tuple[str, ...]:
    search, scenario = found.search, found.search.scenario
    view = search.space.view(search.first, Looked())
    is_over = all(isinstance(view.status(name), Returned) for name in search.space.processes)
    nothing = "nothing ever happens: does the program forget an await?"
    lawless = "no law is stated, so none can be broken"
    empty = [
        f"law {name!r} has no predicates, so it cannot be broken" for name, law in scenario.always.items() if law == ()
    ]
    has_laws = scenario.always or scenario.step or scenario.eventually
    return (
        *(empty if has_laws else (lawless,)),
        *((nothing,) if not found.transitions or (search.space.processes and is_over) else ()),
    )


def never(found: Explored) -> tuple[str, ...]:
    """As `missed`, with laws that were never evaluated."""
    scenario = found.search.scenario
    untouched = dict.fromkeys(law.name for law in found.search.step_laws if not law.good)  # a law in parts counts once
    steps = [f"no step touches what the law is about: {name}" for name in untouched]
    rest = [f"nothing came to rest for the law: {name}" for name in scenario.eventually if not found.resting]
    return (*missed(found), *_unknown(found), *steps, *rest)


def _unknown(found: Explored) -> tuple[str, ...]:
    """Collections and notes that laws or goals read and no state has, so they are always empty.

    An empty collection of the initial world exists.
    """
    search, scenario = found.search, found.search.scenario
    slots = search.space.packing.slots
    had = {name for name, slot in slots.items() if len(slot.values) > 1} | scenario.world.cells.keys()
    collections = {name[1]: None for name in had if name[0] in (DOCUMENTS, IDS)}
    processes = {actor.name: None for actor in scenario.actors} | {name[1]: None for name in had if name[0] == NOTES}
    read: dict[tuple[str, str], int] = {}
    for name, slot in slots.items():
        if name[0] in (DOCUMENTS, IDS) and name[1] not in collections:
            read["the collection", name[1]] = read.get(("the collection", name[1]), 0) | slot.mask
        if (
            name[0] == NOTES
            and name[1] not in processes
            and not name[1].startswith(tuple(f"{each} " for each in processes))
        ):
            read["the notes of", name[1]] = slot.mask
    told: list[str] = []
    for (what, named), bits in read.items():
        nearest = get_close_matches(named, collections if what == "the collection" else processes, 1)
        if nearest:
            todo = f"did you mean {shown(nearest[0])}?"
        elif what == "the collection":
            todo = f"if it is meant to be empty, begin the world with it: world_with({{{shown(named)}: ()}})"
        else:
            todo = f"there are: {', '.join(processes)}"
        laws = [each for each, looked in _looked(found) if looked & bits] or (
            ["a law, or a meaning,"] if not bits else []
        )
        told += [
            f"{each} reads {what} {shown(named)}, which no state has, so that it is always empty; {todo}"
            for each in laws
        ]
    return tuple(dict.fromkeys(told))


def _looked(found: Explored) -> list[tuple[str, int]]:
    search = found.search
    return [
        *((f"law {law.name!r}", law.looked.bits) for law in (*search.stated, *search.rest_laws)),
        *((f"law {law.name!r}", law.looked.bits | law.footprint.bits) for law in search.step_laws),
        *((f"goal {goal.name!r}", goal.looked.bits) for goal in search.goals),
    ]


def absent(scenario: Scenario, kinds: Iterable[Fault], struck: Container[Fault]) -> tuple[str, ...]:
    """Requested kinds of faults that the scenario lacks.

    Args:
        scenario: The scenario without the requested restriction.
        kinds: The requested kinds.
        struck: Kinds that struck; an actor without `faults` may make more.
    """
    there = _possible(scenario)
    has = ", ".join(there) or "none"
    missing = [kind for kind in kinds if kind not in there and kind not in struck]
    return tuple(
        f"fault {kind} strikes no process here, and it was asked for; the scenario has: {has}" for kind in missing
    )


def unsure(found: Explored | Sampled) -> tuple[str, ...]:
    """Programs that end by a failure with an unknown outcome, unless declared as handled by the
    caller.
    """
    ends: dict[str, list[str]] = {}
    for name, process in found.search.space.processes.items():
        for end in process.behaviour.unsure if isinstance(process, Process) and not process.raises else ():
            ends.setdefault(end, []).append(name)
    return tuple(
        f"{', '.join(names)}: ends by an uncaught {end}, so nobody finds out what was done: catch it and read back, or say "
        "Process(..., raises=True) if its caller does"
        for end, names in ends.items()
    )


_AFTER_ANOTHER: Final = frozenset({Fault.RESTART, Fault.ROLLED_BACK})
"""Faults that need an earlier fault: only a crashed process restarts, only a non-durable write
rolls back.
"""


_DELIVERED: Final = (Fault.LATE, Fault.DUPLICATE)
"""Faults that leave a request in flight, for a network to deliver."""


def _possible(scenario: Scenario) -> tuple[Fault, ...]:
    allowed: set[Fault] = set()
    for actor in scenario.actors:
        faults: Faults | None = getattr(actor, "faults", None)
        allowed.update(faults.kinds if faults is not None else getattr(actor, "makes", ()))

    def is_in_budget(kind: Fault) -> bool:
        least = 1 if scenario.budget_is_default else 1 + (kind in _AFTER_ANOTHER)  # an explicit budget of one is meant
        return scenario.budget >= least and scenario.budgets.get(kind, scenario.budget) > 0

    return tuple(kind for kind in Fault if kind in allowed and is_in_budget(kind))
