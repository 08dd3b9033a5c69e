"""Consumers in a group: rebalances, crashes and lost replies, over the reducer of one partition and of a whole consumer.

By default the partitions have two records each, and there is one rebalance; three records and two rebalances are explored in
the thorough scope only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, final

import attrs

from tidegate.consumer.checks import laws
from tidegate.consumer.checks.scenarios.partition_states import (
    ALL,
    BEGINS,
    BOUNDED,
    CONSUMERS,
    DRAINS,
    FINISHED,
    FREE,
    IN_TURN,
    KEYS,
    LOAD,
    NEVER_FALLS,
    NOT_RUN,
    NUMBERS,
    ONE_COMMIT,
    OWNER,
    PARKED,
    TOPIC,
    Commands,
    Polling,
    crosses_a_hole,
    goes_on_behind_a_failure,
    holds_back,
    is_answer,
    is_bounded,
    is_closed,
    is_dead_lettered,
    is_done,
    is_finished,
    is_handled_by_owner,
    is_held,
    is_in_turn,
    is_loaded_less,
    is_parked,
    is_removed_in_work,
    is_stuck,
    is_tried_again,
    is_unanswered,
    never_falls,
    of_owned,
    pauses_and_resumes,
    planned,
    runs_nothing_diverted,
    stands_still,
    taken,
)
from tidegate.consumer.committing.commit_answers import CommitFailure, CommitVerdict, verdict
from tidegate.consumer.fanout import Arrange, DeliverRecords, Judge, Report, Rules, Start, Tasks
from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.offsets.kept import Kept, is_kept
from tidegate.consumer.offsets.watermark import done_offsets
from tidegate.consumer.partition.partition import (
    PLAIN,
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    Unassigned,
)
from tidegate.consumer.protocol.commands import (
    Commit,
    CommitsUnanswered,
    Event,
    Fetch,
    Fetched,
    Handle,
    Interrupt,
    Records,
    RecordsHandled,
    RecordsParked,
    Release,
    StartDrainTimer,
    Work,
    WorkUnanswered,
    event_for,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, ActorStep, Label, Law, Scenario, State
from tidegate.sim.servers.actors import Network
from tidegate.sim.servers.group import (
    GROUP,
    REBALANCES,
    Coordinator,
    Group,
    Recreation,
    broker,
    committed,
    dead,
    end,
    processed,
)
from tidegate.sim.servers.log import (
    CONTROL,
    Append,
    Compaction,
    Entries,
    Pause,
    Resume,
    begun,
    log,
    made_anew,
    paused,
    perform_on_log,
)
from tidegate.sim.servers.reducers import Crash, EventFor, Machine, ReducerProcess, Stepping
from tidegate.sim.world.faults import Fault, Faults, Which
from tidegate.sim.world.world import Meaning, Outcomes, Plain, World, place

_NOBODY: Final = ("",) * len(NUMBERS)


class Answers(Protocol):
    """What follows from a commit that has failed."""

    def __call__(self, failure: CommitFailure, said: str, *, is_given_back: bool) -> CommitVerdict: ...


def is_commit(effect: Effect[object]) -> bool:
    return isinstance(effect, Commit)


def is_work(effect: Effect[object]) -> bool:
    return isinstance(effect, Work)


def is_delivery(effect: Effect[object]) -> bool:
    """It goes to a sink."""
    return isinstance(effect, Work) and isinstance(effect.request, DeliverRecords) and not effect.request.to_dead_letter


def is_timer(effect: Effect[object]) -> bool:
    return isinstance(effect, StartDrainTimer)


def _is_at_once(effect: Effect[object]) -> bool:
    return isinstance(effect, (Release, Interrupt, WorkUnanswered, CommitsUnanswered))


_LOST_REPLIES: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_commit}
_NO_BUDGETS: Final[Mapping[Fault, int]] = MappingProxyType({})
_NO_GOALS: Final[Mapping[str, Law]] = MappingProxyType({})
_HOOKS: Final = PartitionRules(
    running_max=2,
    window_max=2,
    hooks=True,
    fanout=Rules(1, 0, window_delivery=False),
    failure_policy=FailurePolicy.SKIP,
    metadata_max=0,
)
WINDOWS: Final = PartitionRules(
    running_max=2,
    window_max=2,
    hooks=True,
    fanout=attrs.evolve(PLAIN, retries_max=1),
    ordering=Ordering.BY_OFFSET,
    metadata_max=0,
)
_IN_ORDER: Final = PartitionRules(
    running_max=2, ordering=Ordering.BY_OFFSET, failure_policy=FailurePolicy.DIVERT_KEY, metadata_max=0
)
SINKS: Final = PartitionRules(
    running_max=2,
    fanout=Rules(0, 0, task_delivery=False, window_delivery=False),
    failure_policy=FailurePolicy.SKIP,
    metadata_max=0,
)
BATCHES: Final = PartitionRules(
    running_max=3,
    fanout=attrs.evolve(PLAIN, retries_max=1),
    failure_policy=FailurePolicy.SKIP,
    metadata_max=0,
)
BY_KEY: Final = PartitionRules(
    running_max=2, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.BLOCK_KEY, metadata_max=0
)
HOLDS: Final = PartitionRules(running_max=2, limits=PartitionLimits(span=Thresholds(high=2, low=1)), metadata_max=0)
"""Of the records, where work is in the order of keys."""
HOLES: Final[Entries] = (b"k", CONTROL, b"k", CONTROL)
"""Two records of one key, of which compaction may remove the first, and the mark of a transaction behind each."""
GIVES_UP: Final[Mapping[Fault, Which]] = {Fault.LOST_REPLY: is_commit, Fault.GAVE_UP: is_timer}


def _one_task_each(means: Meaning) -> Meaning:
    """User code handles a record."""
    return means


def _with_hooks(means: Meaning) -> Meaning:
    """User code arranges a task for each record and one for all, judges as it likes, and delivers each record."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Work(_, _, Arrange(_, offsets)):
                yield world, Tasks((*((offset,) for offset in offsets), offsets))
            case Work(_, _, Judge()):
                yield world, Report.RETRIED
                yield world, Report.SKIPPED
            case Work(_, _, Start() | Handle()):
                yield world, None
            case Work(TopicPartition(_, number), _, DeliverRecords(_, offsets)):
                done = processed(number)
                yield world.write(done, tuple(sorted({*world.read(done), *offsets}))), None
            case _:
                yield from means(effect, world, who)

    return meaning


def a_task_each(means: Meaning) -> Meaning:
    """User code has one task for the records of a window, which it may judge to be tried again, or gives up."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Work(_, _, Arrange(_, offsets)):
                yield world, Tasks((offsets,))
            case Work(_, _, Judge()):
                yield world, Report.RETRIED
                yield world, Report.SKIPPED
            case _:
                yield from means(effect, world, who)

    return meaning


def with_a_sink(means: Meaning) -> Meaning:
    """User code makes something of a record, which is then delivered; only with that is the record processed."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Work(_, _, Start() | Handle()):
                yield world, None
            case _:
                yield from means(effect, world, who)

    return meaning


def in_batches(means: Meaning) -> Meaning:
    """All that a command names ends at the same time: well, or one of them badly."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        yield from means(effect, world, who)
        match effect:
            case Work(TopicPartition(_, number), _, Handle(offsets, attempt)) if len(offsets) > 1:
                done = processed(number)
                for failed in offsets:
                    handled = tuple(each for each in offsets if each != failed)
                    after = world.write(done, tuple(sorted({*world.read(done), *handled})))
                    yield after, RecordsHandled(handled, (failed,), attempt)
            case _:
                pass

    return meaning


def parks(means: Meaning) -> Meaning:
    """User code handles a record, or asks to be called again with it later."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        yield from means(effect, world, who)
        match effect:
            case Work(_, _, Handle(offsets, attempt)):
                yield world, RecordsParked(offsets, SECOND, attempt)
            case _:
                pass

    return meaning


def hands_over(means: Meaning) -> Meaning:
    """It is kept which records anybody was handed."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply in means(effect, world, who):
            match effect, reply:
                case Fetch(TopicPartition(_, number)), Records((first, *_)):
                    yield after.write(taken(number), min(first, after.read(taken(number)))), reply
                case _:
                    yield after, reply

    return meaning


def one_by_one(means: Meaning) -> Meaning:
    """Records come one by one."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply in means(effect, world, who):
            yield after, reply[:1] if isinstance(effect, Fetch) and isinstance(reply, tuple) else reply

    return meaning


def _event_of(answers: Answers, command: Effect[object], reply: object) -> Event | None:
    """Of a commit that has failed it is known whether it was refused, or what became of it is not."""
    if isinstance(command, Commit) and isinstance(reply, Failure):
        why = CommitFailure.FENCED if isinstance(reply, Refused) else CommitFailure.UNKNOWN
        reply = answers(why, reply.reason, is_given_back=False).reply
    return event_for(command, reply)


def _event_with_keys(answers: Answers, command: Effect[object], reply: object) -> Event | None:
    """Records come with their keys."""
    event = _event_of(answers, command, reply)
    if isinstance(event, Fetched):
        return attrs.evolve(event, keys=tuple(KEYS[offset] for offset in event.offsets))
    return event


def moves(state: State) -> bool:
    return state.read(GROUP).generation > 1


_MOVES: Final[Mapping[str, Law]] = MappingProxyType({"a partition moves": moves})


def _has_one_commit(part: Owned, commands: Commands) -> bool:
    return laws.partition.one_commit_in_flight(commands, part.generation)


def _has_not_failed(part: Owned, commands: Commands) -> bool:
    return laws.partition.has_not_failed(part, commands)


def _has_nothing_to_start(part: Owned, _: Commands) -> bool:
    return laws.partition.has_nothing_to_start(part)


def _commits_its_beginning(part: Owned, commands: Commands) -> bool:
    return laws.partition.commits_its_beginning(part, commands)


def _fetches_what_is_free(part: Owned, commands: Commands) -> bool:
    return all(laws.partition.fetches_what_is_free(command, part.hold) for command in commands)


def partition(
    made: type[PartitionRules] = PartitionRules,
    *,
    rules: PartitionRules = PartitionRules(running_max=2, metadata_max=0),
    summary: str = "two consumers, rebalances, crashes, lost replies: at least once, committed in order",
    records: int = 3,
    rebalances: int = 2,
    budget: int = 2,
    kinds: Mapping[Fault, Which] = _LOST_REPLIES,
    user: Callable[[Meaning], Meaning] = _one_task_each,
    goals: Mapping[str, Law] = _NO_GOALS,
    budgets: Mapping[Fault, int] = _NO_BUDGETS,
    late: bool = False,
    cooperative: bool = False,
    evicts: bool = False,
    entries: Entries = (),
    batches: bool = False,
    answers: Answers = verdict,
    at_end: bool = False,
) -> Scenario:
    """Two consumers of two partitions, a reducer each.

    Args:
        made: The reducer, or a faulty variant of it.
        rules: What each partition does.
        summary: One line for people.
        records: How many records a partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike.
        kinds: Which, besides crashes.
        user: What user code does, where it does more than to handle a record.
        goals: What must be reached, besides.
        budgets: How many of a kind may.
        late: Whether requests may arrive late.
        cooperative: Whether only what moves is revoked at a rebalance.
        evicts: Whether a member may be put out while it goes on working; then others work on the same records.
        entries: What each partition holds, where that is not one record after the other; compaction goes over it.
        batches: Whether records are handled in batches; otherwise each is a command of its own, and ends by itself.
        answers: What follows from a commit that has failed, or a faulty variant of that.
        at_end: Whether the group begins at the end of logs that are empty and grow to that many records; of those that nobody
            was handed, none is missed.
    """
    rules = made(**attrs.asdict(rules if batches else attrs.evolve(rules, batch_max=1), recurse=False))

    def lane(consumer: str, number: int) -> str:
        return f"{consumer}.{number}"

    means, event_of = (
        user(broker(None if entries or at_end else records)),
        partial(_event_with_keys if rules.ordering is Ordering.BY_KEY else _event_of, answers),
    )
    parts = {
        consumer: tuple(
            _reducer(lane(consumer, number), Unassigned(), rules.step, means, kinds, event_for=event_of)
            for number in NUMBERS
        )
        for consumer in CONSUMERS
    }
    names = [lane(consumer, number) for consumer in CONSUMERS for number in NUMBERS]
    may_be = Fault.COMMIT_REFUSED in kinds
    scenario = _consumed(
        "partition",
        summary,
        parts,
        lane,
        records=records,
        rebalances=rebalances,
        budget=budget,
        cooperative=cooperative,
        evicts=evicts,
        entries=entries,
        at_end=at_end,
    )
    more: tuple[Actor, ...] = (
        *((Network(means),) if late else ()),
        *((Compaction(NUMBERS),) if entries else ()),
        *((Producer(records),) if at_end else ()),
    )
    return attrs.evolve(
        scenario,
        actors=(*scenario.actors, *more),
        budgets=budgets,
        always={
            **scenario.always,
            ONE_COMMIT: tuple(of_owned(name, _has_one_commit) for name in names),
            **({} if evicts else {OWNER: tuple(map(is_handled_by_owner, names))}),
            BOUNDED: tuple(is_bounded(name, rules.running_max) for name in names),
            DRAINS: tuple(of_owned(name, _has_nothing_to_start) for name in names),
            **({BEGINS: tuple(of_owned(name, _commits_its_beginning) for name in names)} if at_end else {}),
            **({PARKED: tuple(of_owned(name, _has_not_failed) for name in names)} if user is parks else {}),
            **(
                {}
                if rules.ordering is Ordering.UNORDERED
                else {IN_TURN: tuple(is_in_turn(name, rules.ordering, records) for name in names)}
            ),
            **(
                {FREE: tuple(of_owned(name, _fetches_what_is_free) for name in names)}
                if rules.limits != PartitionLimits()
                else {}
            ),
            **(
                {NOT_RUN: tuple(map(runs_nothing_diverted, names))}
                if rules.failure_policy is FailurePolicy.DIVERT_KEY
                else {}
            ),
        },
        eventually={
            ALL: lambda state: (
                any(is_stuck(state, name) for name in names)
                or all(
                    is_done(state, number, records)
                    or stands_still(state, lane(state.read(GROUP).owners[number], number), may_be_refused=may_be)
                    for number in NUMBERS
                )
            )
        },
        sometimes={**(scenario.sometimes if rebalances else {}), **goals},
    )


def group(
    made: type[ConsumerRules] = ConsumerRules,
    *,
    summary: str = "two whole consumers with executors and a gate: the same, and the load is bounded",
    records: int = 2,
    rebalances: int = 1,
    budget: int = 1,
    pauses: bool = False,
    evicts: bool = False,
    recreates: bool = False,
) -> Scenario:
    """Two consumers of two partitions, a reducer each, with two executors and a gate.

    Args:
        made: The reducer, which plans what to poll, too; or a faulty variant of it.
        summary: One line for people.
        records: How many records a partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike: crashes, and lost replies of commits.
        pauses: Whether a client of each pauses and resumes partitions, as the plan for a poll says, before it polls; then
            records come one by one.
        evicts: Whether a member may be put out while it goes on working, and come back; then others work on the same records.
        recreates: Whether the log of a partition may be made anew while nobody has it.
    """
    given_up = records if evicts else 0  # what a member is at when it is put out never ends here
    consumer = made(
        executors=1 + given_up,
        thresholds=Thresholds(high=2 + given_up, low=1 + given_up),
        partition=PartitionRules(metadata_max=0),
    )
    plan = consumer.polling
    entries: Entries = (None,) * records if pauses else ()
    means = _polled_as_planned(plan, broker(None, most=1)) if pauses else _gated(plan, broker(records, knows=evicts))
    whole = {name: (_reducer(name, ConsumerState(), consumer.step, means, _LOST_REPLIES),) for name in CONSUMERS}
    scenario = _consumed(
        "group",
        summary,
        whole,
        lambda name, _: name,
        records=records,
        rebalances=rebalances,
        budget=budget,
        entries=entries,
        evicts=evicts,
    )
    return attrs.evolve(
        scenario,
        actors=(
            *scenario.actors,
            *((Client(plan, name) for name in CONSUMERS) if pauses else ()),
            *((Recreation(NUMBERS[:1]),) if recreates else ()),
        ),
        always={
            **scenario.always,
            **({} if evicts else {OWNER: tuple(map(is_handled_by_owner, CONSUMERS))}),
            BOUNDED: tuple(is_bounded(name, consumer.executors) for name in CONSUMERS),
            LOAD: tuple(is_loaded_less(name, consumer, records) for name in CONSUMERS),
        },
        sometimes={
            **(scenario.sometimes if rebalances else {}),
            **({} if evicts else {"the gate closes": lambda state: any(is_closed(state, name) for name in CONSUMERS)}),
            **(pauses_and_resumes(plan) if pauses else {}),
            **({"a record counts as done that was done before its partition was lost": counts_again} if evicts else {}),
            **({"a log is made anew of which something is kept": keeps_of_another} if recreates else {}),
        },
    )


def _with_kept(state: State) -> Iterator[tuple[Kept, PartitionState]]:
    """What consumers keep, and how the partition is."""
    for machine in map(state.status, CONSUMERS):
        if isinstance(machine, Machine) and isinstance(machine.state, ConsumerState):
            yield from ((each, machine.state[each.partition]) for each in machine.state.kept)


def counts_again(state: State) -> bool:
    return any(
        isinstance(part, Owned) and any(is_kept(kept, each) for each in done_offsets(part.tracker))
        for kept, part in _with_kept(state)
    )


def keeps_of_another(state: State) -> bool:
    return any(state.read(made_anew(kept.partition.partition)) for kept, _ in _with_kept(state))


def _consumed(
    name: str,
    summary: str,
    reducers: Mapping[str, tuple[ReducerProcess, ...]],
    lane: Callable[[str, int], str],
    *,
    records: int,
    rebalances: int,
    budget: int,
    cooperative: bool = False,
    evicts: bool = False,
    entries: Entries = (),
    at_end: bool = False,
) -> Scenario:
    """What all scenarios of a group have in common."""
    coordinator = Coordinator(TOPIC, lane, cooperative=cooperative, evicts=evicts, at_end=at_end)
    logs = Plain().write(REBALANCES, rebalances)
    for number in NUMBERS if not at_end else ():
        logs = begun(number, *entries, world=logs) if entries else logs.write(end(number), records)
    for number in NUMBERS if at_end else ():
        logs = logs.write(committed(number), -1).write(taken(number), records)
    world = coordinator.assign(logs, Group(0, CONSUMERS, _NOBODY, target=_NOBODY))
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
        sometimes=_MOVES,
    )


def _reducer(
    name: str,
    first: object,
    step: Stepping,
    means: Meaning,
    kinds: Mapping[Fault, Which],
    *,
    event_for: EventFor = event_for,
) -> ReducerProcess:
    return ReducerProcess(name, first, step, event_for, Faults(kinds), means, is_commit, is_timer, _is_at_once)


def _gated(polling: Polling, means: Meaning) -> Meaning:
    """Records come only for partitions that the consumer polls."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Fetch) and effect.partition not in planned(polling, world.read(place(who)), ()).poll:
            return
        yield from means(effect, world, who)

    return meaning


def _polled_as_planned(polling: Polling, means: Meaning) -> Meaning:
    """Records come when all is paused and resumed that is to be, of partitions that are not paused."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Fetch):
            now = planned(polling, world.read(place(who)), world.read(paused(who)))
            if now.pause or now.resume or effect.partition not in now.poll:
                return
        yield from means(effect, world, who)

    return meaning


@final
@attrs.frozen(eq=False)
class Client:
    """What polls for a consumer: it pauses and resumes partitions first, one after the other.

    Attributes:
        polling: How the plan is made.
        of: For whom it polls.
    """

    polling: Polling
    of: str
    name: str = attrs.field(init=False)
    place: None = attrs.field(init=False, default=None)
    blind: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.of}'s client")

    def steps(self, world: World) -> Iterator[ActorStep]:
        now = planned(self.polling, world.read(place(self.of)), world.read(paused(self.of)))
        asked: tuple[Pause | Resume, ...] = (
            *(Pause(each) for each in now.pause),
            *(Resume(each) for each in now.resume),
        )
        for effect in asked[:1]:
            for after, _ in perform_on_log(effect, world, self.of):
                yield ActorStep(Label(effect), after)


@final
@attrs.frozen(eq=False)
class Producer:
    """Appends records to each partition, at any time, up to so many."""

    records: int
    name: str = "producer"
    place: None = attrs.field(init=False, default=None)
    blind: bool = attrs.field(init=False, default=False)

    def steps(self, world: World) -> Iterator[ActorStep]:
        for number in NUMBERS:
            if len(world.read(log(number))) < self.records:
                append = Append(TopicPartition(TOPIC, number))
                for after, _ in perform_on_log(append, world, self.name):
                    yield ActorStep(Label(append), after)


FAILS: Final[Mapping[Fault, Which]] = {Fault.FAILED: is_work}
SINKS_FAIL: Final[Mapping[Fault, Which]] = {Fault.SINK_FAILED: is_delivery, Fault.DEAD_LETTER_FAILED: is_answer}
_STUCK: Final[Mapping[Fault, Which]] = {Fault.NEVER_RETURNS: is_work, Fault.GAVE_UP: is_timer}
REFUSED: Final[Mapping[Fault, Which]] = {Fault.COMMIT_REFUSED: is_commit, Fault.DROPPED: is_commit}

_Size: TypeAlias = tuple[int, int, int]
"""How many records a partition has, how often the group may rebalance, and how many faults may strike."""


class _Make(Protocol):
    def __call__(self, *, records: int, rebalances: int, budget: int) -> Scenario: ...


def _in(
    default: _Size, thorough: _Size, large: _Size, name: str, make: _Make, *, goals: Mapping[str, Law] = _NO_GOALS
) -> Shipped:
    """The design in three scopes, of which the default one reaches the goals."""
    first, *others = (
        partial(make, records=size[0], rebalances=size[1], budget=size[2]) for size in (default, thorough, large)
    )
    return Shipped(name, partial(first, goals=goals) if goals else first, *others)


SCENARIOS: Final = (
    _in((2, 1, 2), (3, 2, 2), (5, 3, 3), "partition", partition),
    _in((2, 1, 1), (2, 1, 2), (4, 3, 4), "partition.gives_up", partial(
        partition, kinds=GIVES_UP, summary="the same where a drain may give up")),
    _in((1, 1, 2), (2, 1, 2), (4, 3, 4), "partition.never_returns", partial(
        partition, kinds=_STUCK,
        summary="a handler never ends: its partition is let go when the time to drain is over")),
    _in((2, 1, 1), (2, 2, 2), (5, 3, 4), "partition.handler_fails", partial(
        partition, kinds=FAILS,
        summary="a handler fails: its partition stops uncommitted, and is taken up again when it is assigned anew")),
    _in((2, 1, 1), (2, 2, 2), (5, 3, 4), "partition.commit_fails", partial(
        partition, kinds=REFUSED,
        summary="a commit is refused, or lost: what is committed is finished, and is committed again")),
    _in((2, 1, 1), (3, 1, 1), (5, 3, 3), "partition.metadata", partial(
        partition, rules=PartitionRules(running_max=2, replay_max=1),
        summary="what is done beyond the position is committed with it, and not done again")),
    _in((2, 1, 1), (2, 1, 2), (4, 3, 4), "partition.hooks", partial(
        partition, rules=_HOOKS, kinds=FAILS, user=_with_hooks,
        summary="windows of two records, three tasks; any hook may raise, and failed records are answered for")),
    _in((3, 0, 1), (3, 1, 1), (5, 3, 3), "partition.windows", partial(
        partition, rules=WINDOWS, kinds=FAILS, user=a_task_each,
        summary="one window of two records after the other; one that has failed is tried again before the next one begins"),
        goals={"a window is tried again": is_tried_again}),
    _in((2, 0, 2), (2, 1, 2), (4, 3, 4), "partition.sinks", partial(
        partition, rules=SINKS, kinds=SINKS_FAIL, user=with_a_sink,
        summary="a sink fails, and dead letters may fail, too: nothing is committed that is in neither"),
        goals={"a dead letter is to be written": is_dead_lettered,
               "a failure that nobody can answer for stops the partition": is_unanswered}),
    _in((3, 0, 1), (3, 1, 1), (len(KEYS), 3, 3), "partition.keys", partial(
        partition, rules=BY_KEY, kinds=FAILS,
        summary="records of a key wait for each other; behind one that failed, none of its key is begun"),
        goals={"another key goes on behind a failure": goes_on_behind_a_failure,
               "the rest of a key is held back": holds_back}),
    _in((2, 1, 1), (3, 1, 1), (5, 3, 3), "partition.diverts", partial(
        partition, rules=_IN_ORDER, kinds=FAILS,
        summary="one record after the other; behind one that failed, none is run, and each is answered for")),
    _in((3, 0, 1), (3, 1, 1), (5, 3, 3), "partition.batches", partial(
        partition, rules=BATCHES, user=in_batches, batches=True,
        summary="handlers of a batch end at the same time, one of them badly or none; it is tried again, and answered for"),
        goals={"a record is tried again": is_tried_again}),
    _in((2, 0, 1), (3, 0, 1), (len(KEYS), 3, 3), "partition.parks", partial(
        partition, rules=BY_KEY, user=parks,
        summary="records are parked, at any time and as often as may be: their keys wait, and others go on"),
        goals={"a record is parked": is_parked}),
    _in((3, 0, 1), (3, 1, 1), (5, 3, 3), "partition.held", partial(
        partition, rules=HOLDS, user=one_by_one,
        summary="a partition holds up too much: no record is fetched until it does not"),
        goals={"a partition is held": is_held}),
    _in((2, 1, 1), (2, 2, 2), (5, 3, 3), "partition.cooperative", partial(
        partition, cooperative=True,
        summary="only what moves is revoked at a rebalance, and work on the rest goes on")),
    _in((2, 0, 1), (1, 1, 1), (4, 2, 3), "partition.evicted", partial(
        partition, evicts=True,
        summary="a consumer is put out of the group, and goes on working: what it commits is refused"),
        goals=_MOVES),
    _in((len(HOLES), 0, 1), (len(HOLES), 1, 1), (len(HOLES), 3, 3), "partition.gaps", partial(
        partition, entries=HOLES,
        summary="the marks of transactions and compaction leave holes in the log: what is committed goes beyond them"),
        goals={"a position is committed behind a record that nobody had fetched": crosses_a_hole,
               "a record is removed that somebody had fetched": is_removed_in_work}),
    _in((1, 0, 1), (2, 0, 1), (3, 2, 2), "partition.at_end", partial(
        partition, user=hands_over, at_end=True, goals=_MOVES,
        summary="a group that begins at the end of a log that grows: what anybody was handed is not missed")),
    _in((2, 1, 0), (2, 1, 1), (4, 3, 3), "group", group),
    _in((3, 0, 0), (3, 0, 1), (4, 2, 2), "group.pauses", partial(
        group, pauses=True,
        summary="the same where a client pauses what the gate holds, and resumes it: all records come in the end")),
    _in((1, 1, 1), (2, 1, 1), (3, 2, 2), "group.evicted", partial(
        group, evicts=True,
        summary="a member is put out while it works, and is back: what it has done is committed, and not done again")),
    _in((1, 0, 1), (2, 1, 1), (3, 2, 2), "group.recreated", partial(
        group, evicts=True, recreates=True,
        summary="the same, and a topic is made anew meanwhile: what was done of its records counts for nothing")),
)  # fmt: skip
