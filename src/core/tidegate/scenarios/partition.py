"""Consumers in a group: rebalances, crashes and lost replies, over the reducer of one partition and of a whole consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import attrs

from tidegate import laws
from tidegate.assignment import Assignment, Consumer
from tidegate.backpressure import Hold, Thresholds
from tidegate.effects import Effect
from tidegate.fanout import Arrange, DeliverMessages, Judge, Report, Rules, Start, Task, Tasks
from tidegate.partition import AfterFailure, Order, Owned, Phase, Processor, Unassigned
from tidegate.partition import State as PartitionState
from tidegate.scenarios.shipping import Shipped
from tidegate.sim.faults import Fault, Faults, Which
from tidegate.sim.group import GROUP, REBALANCES, Coordinator, Group, broker, committed, dead, end, processed
from tidegate.sim.reducers import Crash, Machine, Reducer
from tidegate.sim.scenario import Actor, Law, Scenario, State
from tidegate.sim.world import Meaning, Outcomes, Plain, World, place
from tidegate.watermark import open_offsets
from tidegate.wishes import AwaitDrain, Commit, Event, Fetch, Interrupt, Release, TopicPartition, Work, heard

TOPIC: Final = "t"
CONSUMERS: Final = ("a", "b")
NUMBERS: Final = (0, 1)

FINISHED: Final = "the committed position never passes unfinished work"
NEVER_FALLS: Final = "the committed position never falls"
ONE_COMMIT: Final = "at most one commit is in flight"
OWNER: Final = "only the owner works on records"
BOUNDED: Final = "no more tasks run than may"
LOAD: Final = "the load is bounded"
IN_TURN: Final = "each record waits for those before it"
NOT_RUN: Final = "what is diverted is not run"
ALL: Final = "at rest every record is processed and committed"


def is_commit(effect: Effect[object]) -> bool:
    return isinstance(effect, Commit)


def is_work(effect: Effect[object]) -> bool:
    return isinstance(effect, Work)


def is_timer(effect: Effect[object]) -> bool:
    return isinstance(effect, AwaitDrain)


def is_at_once(effect: Effect[object]) -> bool:
    return isinstance(effect, (Release, Interrupt))


LOST_REPLIES: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_commit}
HOOKS: Final = Processor(
    running_max=2,
    window_max=2,
    hooks=True,
    rules=Rules(1, 0, window_delivery=False),
    after_failure=AfterFailure.SKIP,
    metadata_max=0,
)
IN_ORDER: Final = Processor(running_max=2, order=Order.BY_OFFSET, after_failure=AfterFailure.DIVERT_KEY, metadata_max=0)
GIVES_UP: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_commit, Fault.GAVE_UP: is_timer}


def one_task_each(means: Meaning) -> Meaning:
    """User code handles a record."""
    return means


def with_hooks(means: Meaning) -> Meaning:
    """User code arranges a task for each record and one for all, judges as it likes, and delivers each record."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Work(_, _, Arrange(_, offsets)):
                yield world, Tasks((*((offset,) for offset in offsets), offsets))
            case Work(_, _, Judge()):
                yield world, Report.RETRIED
                yield world, Report.SKIPPED
            case Work(_, _, Start()):
                yield world, None
            case Work(TopicPartition(_, number), _, DeliverMessages(_, offsets)):
                done = processed(number)
                yield world.write(done, tuple(sorted({*world.read(done), *offsets}))), None
            case _:
                yield from means(effect, world, who)

    return meaning


def partition(
    processor: Processor = Processor(running_max=2, metadata_max=0),
    *,
    summary: str = "two consumers, rebalances, crashes, lost replies: at least once, committed in order",
    records: int = 3,
    rebalances: int = 2,
    budget: int = 2,
    kinds: Mapping[Fault, Which] = LOST_REPLIES,
    user: Callable[[Meaning], Meaning] = one_task_each,
) -> Scenario:
    """Two consumers of two partitions, a reducer each.

    Args:
        processor: The reducer, or a faulty variant of it.
        summary: One line for people.
        records: How many records a partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike.
        kinds: Which, besides crashes.
        user: What user code does, where it does more than to handle a record.
    """

    def step(state: object, event: object) -> tuple[object, tuple[Effect[object], ...]]:
        assert isinstance(state, PartitionState)
        assert isinstance(event, Event)
        done = processor.step(state, event)
        return done.state, done.wishes

    def lane(consumer: str, number: int) -> str:
        return f"{consumer}.{number}"

    parts = {
        consumer: tuple(
            reducer(lane(consumer, number), Unassigned(), step, user(broker(records)), kinds) for number in NUMBERS
        )
        for consumer in CONSUMERS
    }
    names = [lane(consumer, number) for consumer in CONSUMERS for number in NUMBERS]
    scenario = consumed("partition", summary, parts, lane, records=records, rebalances=rebalances, budget=budget)
    return attrs.evolve(
        scenario,
        always={
            **scenario.always,
            ONE_COMMIT: tuple(map(has_one_commit, names)),
            OWNER: tuple(map(is_handled_by_owner, names)),
            BOUNDED: tuple(is_bounded(name, processor.running_max) for name in names),
            **({} if processor.order is Order.ANY else {IN_TURN: tuple(is_in_turn(name, records) for name in names)}),
            **(
                {NOT_RUN: tuple(map(runs_nothing_diverted, names))}
                if processor.after_failure is AfterFailure.DIVERT_KEY
                else {}
            ),
        },
        eventually={
            ALL: lambda state: all(
                is_done(state, number, records) or is_stopped(state, lane(state.read(GROUP).owners[number], number))
                for number in NUMBERS
            )
        },
    )


def assignment(*, records: int = 2, rebalances: int = 1, budget: int = 1) -> Scenario:
    """Two consumers of two partitions, a reducer each, with two executors and a gate.

    Args:
        records: How many records a partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike: crashes, and lost replies of commits.
    """
    consumer = Consumer(executors=1, thresholds=Thresholds(high=2, low=1), each=Processor(metadata_max=0))

    def step(state: object, event: object) -> tuple[object, tuple[Effect[object], ...]]:
        assert isinstance(state, Assignment)
        assert isinstance(event, Event)
        done = consumer.step(state, event)
        return done.state, done.wishes

    means = gated(consumer, broker(records))
    whole = {name: (reducer(name, Assignment(), step, means, LOST_REPLIES),) for name in CONSUMERS}
    scenario = consumed(
        "assignment",
        "two whole consumers with executors and a gate: the same, and the load is bounded",
        whole,
        lambda name, _: name,
        records=records,
        rebalances=rebalances,
        budget=budget,
    )
    return attrs.evolve(
        scenario,
        always={
            **scenario.always,
            OWNER: tuple(map(is_handled_by_owner, CONSUMERS)),
            BOUNDED: tuple(is_bounded(name, consumer.executors) for name in CONSUMERS),
            LOAD: tuple(is_loaded_less(name, consumer.thresholds.high + records) for name in CONSUMERS),
        },
        sometimes={**scenario.sometimes, "the gate closes": lambda state: any(is_closed(state, n) for n in CONSUMERS)},
    )


def consumed(
    name: str,
    summary: str,
    reducers: Mapping[str, tuple[Reducer, ...]],
    lane: Callable[[str, int], str],
    *,
    records: int,
    rebalances: int,
    budget: int,
) -> Scenario:
    """What all scenarios of a group have in common."""
    coordinator = Coordinator(TOPIC, lane)
    log: World = Plain().write(REBALANCES, rebalances)
    for number in NUMBERS:
        log = log.write(end(number), records)
    world = coordinator.assign(log, Group(0, CONSUMERS, ("",) * len(NUMBERS)))
    assert isinstance(world, Plain)
    crashes = tuple(
        Crash(consumer if lane(consumer, 0) != consumer else f"{consumer}'s host", own, dead(consumer))
        for consumer, own in reducers.items()
    )
    actors: tuple[Actor, ...] = (*(each for own in reducers.values() for each in own), coordinator, *crashes)
    return Scenario(
        name=name,
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        always={FINISHED: tuple(map(is_finished, NUMBERS))},
        step={NEVER_FALLS: never_falls},
        eventually={ALL: lambda state: all(is_done(state, number, records) for number in NUMBERS)},
        sometimes={"a partition moves": lambda state: state.read(GROUP).generation > 1},
    )


def reducer(
    name: str,
    first: object,
    step: Callable[[object, object], tuple[object, tuple[Effect[object], ...]]],
    means: Meaning,
    kinds: Mapping[Fault, Which],
) -> Reducer:
    return Reducer(name, first, step, heard, Faults(kinds), means, is_commit, is_timer, is_at_once)


def gated(consumer: Consumer, means: Meaning) -> Meaning:
    """Records come only for partitions that the consumer polls."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Fetch):
            machine = world.read(place(who))
            assert isinstance(machine, Machine)
            assert isinstance(machine.state, Assignment)
            if effect.partition not in consumer.polling(machine.state, ()).poll:
                return
        yield from means(effect, world, who)

    return meaning


# --- laws ---------------------------------------------------------------------------------------------------------------


def is_finished(number: int) -> Law:
    def holds(state: State) -> bool:
        position, done = state.read(committed(number)), state.read(processed(number))
        return laws.partition.committed_is_finished(position, range(position), done)

    return holds


def never_falls(before: State, after: State) -> bool:
    return all(
        laws.partition.committed_never_falls(before.read(committed(number)), after.read(committed(number)))
        for number in NUMBERS
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
        return not isinstance(machine, Machine) or laws.partition.tasks_are_bounded(machine.wishes, running_max)

    return holds


def in_work(state: State, name: str) -> Iterator[tuple[Owned, Task, int]]:
    """What user code is asked for in this generation, record by record, and the partition that asks."""
    machine = state.standing(name)
    if isinstance(machine, Machine) and isinstance(machine.state, Owned):
        for wish in machine.wishes:
            if isinstance(wish, Work) and wish.generation == machine.state.generation:
                for offset in wish.offsets:
                    yield machine.state, wish.task, offset


def is_in_turn(name: str, records: int) -> Law:
    """Where all records of the partition are one line."""
    return lambda state: all(
        laws.partition.waits_its_turn(offset, range(records), open_offsets(part.ledger))
        for part, _, offset in in_work(state, name)
    )


def runs_nothing_diverted(name: str) -> Law:
    """Where all records of the partition have one key."""
    return lambda state: all(
        laws.partition.is_not_run(offset, task, (offset,) if part.closed else ())
        for part, task, offset in in_work(state, name)
    )


def is_loaded_less(name: str, bound: int) -> Law:
    def holds(state: State) -> bool:
        match state.standing(name):
            case Machine(Assignment() as all_parts):
                return all_parts.load < bound
            case _:
                return True

    return holds


def is_closed(state: State, name: str) -> bool:
    match state.standing(name):
        case Machine(Assignment(_, Hold())):
            return True
        case _:
            return False


def is_done(state: State, number: int, records: int) -> bool:
    done = state.read(processed(number))
    position = state.read(committed(number))
    return not state.read(GROUP).members or laws.partition.all_is_processed(position, done, records)


def is_stopped(state: State, name: str) -> bool:
    """A handler of it has failed, so it rightly stands still."""
    match state.standing(name):
        case Machine(Owned(_, _, Phase.STOPPED)):
            return True
        case _:
            return False


SCENARIOS: Final = (
    Shipped("partition", partition),
    Shipped(
        "partition.gives_up",
        partial(
            partition,
            summary="the same where a drain may give up, on fewer records",
            records=2,
            rebalances=1,
            kinds=GIVES_UP,
        ),
    ),
    Shipped(
        "partition.handler_fails",
        partial(
            partition,
            summary="a handler fails: its partition stops uncommitted, and is taken up again when it is assigned anew",
            records=2,
            rebalances=1,
            budget=1,
            kinds={Fault.FAILED: is_work},
        ),
    ),
    Shipped(
        "partition.metadata",
        partial(
            partition,
            Processor(running_max=2, replay_max=1),
            summary="what is done beyond the position is committed with it, and not done again",
            records=2,
            rebalances=1,
            budget=1,
        ),
    ),
    Shipped(
        "partition.hooks",
        partial(
            partition,
            HOOKS,
            summary="windows of two records, three tasks; any hook may raise, and failed records are answered for",
            records=2,
            rebalances=1,
            budget=1,
            kinds={Fault.FAILED: is_work},
            user=with_hooks,
        ),
    ),
    Shipped(
        "partition.diverts",
        partial(
            partition,
            IN_ORDER,
            summary="one record after the other; behind one that failed, none is run, and each is answered for",
            records=2,
            rebalances=1,
            budget=1,
            kinds={Fault.FAILED: is_work},
        ),
    ),
    Shipped("assignment", assignment),
)
