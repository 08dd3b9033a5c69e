"""Consumers in a group: rebalances, crashes and lost replies, over the reducer of one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tidegate import laws
from tidegate.effects import Effect
from tidegate.partition import AwaitDrain, Commit, Owned, Processor, Release, Unassigned, heard
from tidegate.sim.group import (
    GROUP,
    REBALANCES,
    Coordinator,
    Group,
    broker,
    committed,
    dead,
    lane,
    processed,
)
from tidegate.sim.reducers import Crash, Machine, Reducer
from tidegate.sim.scenario import Actor, Fault, Faults, Kind, Law, Scenario, State, StepLaw
from tidegate.sim.world import Plain

TOPIC: Final = "t"
FINISHED: Final = "the committed position never passes unfinished work"
NEVER_FALLS: Final = "the committed position never falls"
ONE_COMMIT: Final = "at most one commit is in flight"
OWNER: Final = "only the owner handles records"
BOUNDED: Final = "no more handlers run than may"
ALL: Final = "at rest every record is processed and committed"


def is_commit(effect: Effect[object]) -> bool:
    return isinstance(effect, Commit)


def is_release(effect: Effect[object]) -> bool:
    return isinstance(effect, Release)


def is_timer(effect: Effect[object]) -> bool:
    return isinstance(effect, AwaitDrain)


def partition(
    processor: Processor = Processor(running_max=2, drain=0),
    *,
    name: str = "partition",
    summary: str = "two consumers, rebalances, crashes, lost replies: at least once, committed in order",
    records: int = 3,
    rebalances: int = 2,
    budget: int = 2,
    gives_up: bool = False,
    expect: str | None = None,
) -> Scenario:
    """Two consumers of two partitions.

    Args:
        processor: The reducer, or a faulty variant of it.
        name: The scenario's name.
        summary: One line for people.
        records: How many records a partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike: crashes, lost replies of commits, and drains that give up if they may.
        gives_up: May a drain give up?
        expect: The law that a faulty variant breaks.
    """
    kinds = {Fault.LOST_REPLY: is_commit} | ({Fault.GAVE_UP: is_timer} if gives_up else {})
    consumers, numbers = ("a", "b"), range(2)

    def step(state: object, event: object) -> tuple[object, tuple[Effect[object], ...]]:
        done = processor.step(state, event)  # type: ignore[arg-type]
        return done.state, done.wishes

    parts = {
        (consumer, number): Reducer(
            lane(consumer, number),
            Unassigned(),
            step,
            heard,
            Faults(kinds),
            broker(records),
            is_commit,
            is_timer,
            is_release,
        )
        for consumer in consumers
        for number in numbers
    }
    crashes = tuple(
        Crash(consumer, tuple(parts[consumer, number] for number in numbers), dead(consumer)) for consumer in consumers
    )
    coordinator = Coordinator(TOPIC)
    world = coordinator.assign(Plain().write(REBALANCES, rebalances), Group(0, consumers, ("",) * len(numbers)))
    assert isinstance(world, Plain)
    actors: tuple[Actor, ...] = (*parts.values(), coordinator, *crashes)
    return Scenario(
        name=name,
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        always={
            FINISHED: tuple(map(is_finished, numbers)),
            ONE_COMMIT: tuple(has_one_commit(part.name) for part in parts.values()),
            OWNER: tuple(is_handled_by_owner(part.name) for part in parts.values()),
            BOUNDED: tuple(is_bounded(part.name, processor.running_max) for part in parts.values()),
        },
        step={f"{NEVER_FALLS}": never_falls(*numbers)},
        eventually={ALL: lambda state: all(is_done(state, number, records) for number in numbers)},
        sometimes={"a partition moves": lambda state: state.read(GROUP).generation > 1} if expect is None else {},
        expect=expect,
        kind=Kind.SPECIMEN if expect else Kind.PROGRAM,
    )


def is_finished(number: int) -> Law:
    def holds(state: State) -> bool:
        done = state.read(processed(number))
        return laws.partition.committed_is_finished(state.read(committed(number)), done)

    return holds


def never_falls(*numbers: int) -> StepLaw:
    return lambda before, after: all(
        laws.partition.committed_never_falls(before.read(committed(number)), after.read(committed(number)))
        for number in numbers
    )


def has_one_commit(name: str) -> Law:
    def holds(state: State) -> bool:
        match state.standing(name):
            case Machine(Owned(_, generation), wishes):
                return laws.partition.one_commit_in_flight(wishes, generation)
            case _:
                return True

    return holds


def is_handled_by_owner(name: str) -> Law:
    def holds(state: State) -> bool:
        machine = state.standing(name)
        return not isinstance(machine, Machine) or laws.partition.only_the_owner_handles(
            machine.wishes, state.read(GROUP).generation
        )

    return holds


def is_bounded(name: str, running_max: int) -> Law:
    def holds(state: State) -> bool:
        machine = state.standing(name)
        return not isinstance(machine, Machine) or laws.partition.handlers_are_bounded(machine.wishes, running_max)

    return holds


def is_done(state: State, number: int, records: int) -> bool:
    done = state.read(processed(number))
    position = state.read(committed(number))
    return not state.read(GROUP).members or laws.partition.all_is_processed(position, done, records)


SCENARIOS: Final[Mapping[str, Callable[[], Scenario]]] = {
    "partition": partition,
    "partition.gives_up": partial(
        partition,
        name="partition.gives_up",
        summary="the same where a drain may give up, on fewer records",
        records=2,
        rebalances=1,
        gives_up=True,
    ),
}
