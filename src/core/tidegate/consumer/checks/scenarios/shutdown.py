"""A worker of a group is asked to stop (`tidegate.consumer.worker.worker`): rebalances, refusals,
timeouts.

Any timeout may expire at any point, before and after every other event, so no run depends on
durations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, final

import attrs

from tidegate.consumer.checks import laws
from tidegate.consumer.checks.scenarios.partition import is_commit, is_delivery, is_work
from tidegate.consumer.checks.scenarios.partition_states import ALL, FINISHED, NEVER_FALLS
from tidegate.consumer.fanout import DeliverRecords, Rules, Start
from tidegate.consumer.flow.drain import Budget, Stage
from tidegate.consumer.partition.partition import FailurePolicy, PartitionRules
from tidegate.consumer.protocol.commands import (
    Commit,
    CommitRefused,
    Interrupt,
    Release,
    Revoked,
    StartDrainTimer,
    Work,
)
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.worker import (
    Leave,
    NameTaken,
    ShutdownPhase,
    StartLeaveTimer,
    StopRequested,
    WorkerRules,
    WorkerState,
    event_for,
    merged,
)
from tidegate.model.effects import Effect
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, ActorStep, Label, Scenario, State
from tidegate.sim.servers.group import GROUP, REBALANCES, Coordinator, Group, broker, committed, dead, end, processed
from tidegate.sim.servers.reducers import Crash, Machine, Merge, ReducerProcess
from tidegate.sim.world.faults import Fault, Faults, Which
from tidegate.sim.world.world import Cell, Meaning, Outcomes, Plain, World, inbox, place

_TOPIC: Final = "t"
_STAYS, _STOPS = "a", "b"
"""At first the stopping worker owns the partition."""

BEGINS: Final = "once it was asked to stop, nothing is begun"
BEHIND: Final = "whoever leaves owns nothing, and nothing of it is in flight"
SAVED: Final = "what is finished is committed before it leaves"
GONE: Final = "whoever was asked to stop is gone in the end"
RELEASED: Final = "what the group wants back is released"
ANEW: Final = "the next owner begins exactly at what was committed"
FENCED: Final = "whose name was taken owns and commits nothing from then on, and leaves"

_ASKED: Final = Cell[int](("asked to stop",), 0)
"""The number of requests to stop."""
_EXCUSED: Final = Cell(("no time is left",), empty=False)
"""The drain timed out, or a second request came; then finished records may stay uncommitted."""
_TAKEN: Final = Cell(("its name was taken",), empty=False)


def finished(generation: int) -> Cell[tuple[int, ...]]:
    """The records that the stopping worker has finished in its generation."""
    return Cell(("finished", str(generation)), ())


def working(
    worker: type[WorkerRules] = WorkerRules,
    consumer: type[ConsumerRules] = ConsumerRules,
    partition: type[PartitionRules] = PartitionRules,
) -> WorkerRules:
    """Rules with two executors. Records are handled and their results delivered; then they are
    done.

    Args:
        worker: The rules of a worker, perhaps with a planted bug.
        consumer: Those of its consumer.
        partition: Those of its partitions.
    """
    sinks = partition(
        fanout=Rules(0, 0, task_delivery=False, window_delivery=False),
        failure_policy=FailurePolicy.SKIP,
        metadata_max=0,
        drain=Budget(25 * SECOND, cancel=5 * SECOND, commit=5 * SECOND),
    )
    return worker(consumer(executors=2, partition=sinks))


def _is_at_once(effect: Effect[object]) -> bool:
    return isinstance(effect, (Release, Interrupt))


def _never_ends(effect: Effect[object]) -> bool:
    """User code, or a group, that does not answer."""
    return isinstance(effect, (Work, Leave))


def _is_unanswered(effect: Effect[object]) -> bool:
    """Commands that may get no answer."""
    return isinstance(effect, (Commit, Leave))


FAULTS: Final[Mapping[Fault, Which]] = {
    Fault.LOST_REPLY: _is_unanswered,
    Fault.DROPPED: _is_unanswered,
    Fault.COMMIT_REFUSED: is_commit,
    Fault.NEVER_RETURNS: _never_ends,
    Fault.SINK_FAILED: is_delivery,
}


def _in_a_group(means: Meaning, coordinator: Coordinator) -> Meaning:
    """Time passes, members leave, and deliveries of the stopping worker are recorded."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case StartDrainTimer(_, _, stage):
                yield (world.write(_EXCUSED, value=True) if stage is Stage.COMMITTING else world), None
            case StartLeaveTimer():
                yield world, None
            case Leave():
                group = world.read(GROUP)
                members = tuple(member for member in group.members if member != who)
                owners = tuple("" if owner == who else owner for owner in group.owners)
                yield coordinator.revoke(world, attrs.evolve(group, members=members, owners=owners)), None
            case Work(_, _, Start()):
                yield world, None
            case Work(_, generation, DeliverRecords(), offsets) if who == _STOPS:
                own = finished(generation)
                for after, reply in means(effect, world, who):
                    yield after.write(own, tuple(sorted({*after.read(own), *offsets}))), reply
            case _:
                yield from means(effect, world, who)

    return meaning


@final
@attrs.frozen(eq=False)
class Signals:
    """A request to a worker to stop, at any time; perhaps a second one.

    Attributes:
        worker: The worker.
        most: How many requests at most.
    """

    worker: str
    most: int
    name: str = "signals"
    place: Cell[object] = _ASKED  # type: ignore[assignment]
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        asked = world.read(_ASKED)
        if asked < self.most and not world.read(dead(self.worker)):
            after = world.write(_ASKED, asked + 1).write(
                inbox(self.worker), (*world.read(inbox(self.worker)), StopRequested())
            )
            if asked:
                after = after.write(_EXCUSED, value=True)
            label = "asks it to stop at once" if asked else "asks it to stop"
            yield ActorStep(Label(f"{label}: {self.worker}"), after, must=not asked)


@final
@attrs.frozen(eq=False)
class Namesake:
    """Another process takes the static name of a worker once, at any time, with all that it owned.

    The group sees the other worker; the first one learns of it later.

    Attributes:
        worker: The worker with that name.
        coordinator: The coordinator of the group.
    """

    worker: str
    coordinator: Coordinator
    name: str = "namesake"
    place: Cell[object] = _TAKEN  # type: ignore[assignment]
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        group = world.read(GROUP)
        if not world.read(_TAKEN) and not world.read(dead(self.worker)) and self.worker in group.members:
            members = tuple(member for member in group.members if member != self.worker)
            owners = tuple("" if owner == self.worker else owner for owner in group.owners)
            after = self.coordinator.revoke(world, attrs.evolve(group, members=members, owners=owners))
            heard = (*after.read(inbox(self.worker)), NameTaken())
            after = after.write(inbox(self.worker), heard).write(_TAKEN, value=True).write(_EXCUSED, value=True)
            yield ActorStep(Label(f"takes the name of {self.worker}"), after, must=True)


@final
@attrs.frozen(eq=False)
class _Exit:
    """The process of a worker ends once it has left. If the group missed that, it finds out.

    Attributes:
        worker: The worker.
    """

    worker: str
    blind: bool = False
    place: Cell[object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "place", place(self.worker))

    @property
    def name(self) -> str:
        return f"{self.worker}'s process"

    def steps(self, world: World) -> Iterator[ActorStep]:
        if not world.read(dead(self.worker)) and _phase_of(world.read(self.place)) is ShutdownPhase.GONE:
            yield ActorStep(Label("exits"), world.write(dead(self.worker), value=True))


_RIGHT: Final = working()


def shutdown(
    rules: WorkerRules = _RIGHT,
    *,
    summary: str = "a worker is asked to stop, once or twice: it drains, commits and leaves, and another goes on",
    records: int = 2,
    rebalances: int = 1,
    budget: int = 1,
    signals: int = 2,
    merge: Merge | None = None,
    namesake: bool = False,
) -> Scenario:
    """Two workers and one partition, owned at first by the one that is asked to stop.

    Args:
        rules: The rules of both, perhaps with a planted bug.
        summary: One line for people.
        records: The number of records.
        rebalances: How often the group may rebalance without a reason.
        budget: How many faults may strike the stopping worker.
        signals: How many requests to stop at most.
        merge: How the stopping worker merges the events of a turn.
        namesake: Whether another process takes its name.
    """
    coordinator = Coordinator(_TOPIC, lambda consumer, _: consumer)
    means = _in_a_group(broker(records), coordinator)

    stays, stops = (
        ReducerProcess(
            name,
            WorkerState(),
            rules.step,
            event_for,
            faults,
            means,
            is_commit,
            at_once=_is_at_once,
            ends=is_work,
            merge=merge if name == _STOPS else None,
        )
        for name, faults in ((_STAYS, Faults()), (_STOPS, Faults(FAULTS)))
    )
    log = Plain().write(REBALANCES, rebalances).write(end(0), records)
    world = coordinator.assign(log, Group(0, (_STAYS, _STOPS), ("",), target=("",)))
    assert isinstance(world, Plain)
    actors: tuple[Actor, ...] = (
        stays,
        stops,
        coordinator,
        *([Signals(_STOPS, signals)] if signals else []),
        *([Namesake(_STOPS, coordinator)] if namesake else []),
        _Exit(_STOPS),
        Crash(f"{_STOPS}'s host", (stops,), dead(_STOPS)),
    )
    return Scenario(
        name="shutdown",
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        always={FINISHED: _is_finished, BEHIND: _leaves_nothing, RELEASED: _releases_what_is_wanted},
        step={NEVER_FALLS: _never_falls, BEGINS: _begins_nothing, SAVED: _saves_what_is_finished, ANEW: _begins_anew}
        | ({FENCED: _lets_go_as_fenced} if namesake else {}),
        eventually={GONE: _is_gone, ALL: partial(_is_done, records=records)},
        sometimes=_FENCED_GOALS
        if namesake
        else {
            "it drains whole": partial(_drains_whole, records=records),
            "its time is over": _is_cut,
            "a commit is refused while it drains": _is_refused_while_draining,
            **({"a rebalance comes while it drains": _is_rebalanced_while_draining} if rebalances else {}),
        },
    )


# --- laws ---------------------------------------------------------------------------------------------------------------


def _worker_of(status: object) -> WorkerState | None:
    return status.state if isinstance(status, Machine) and isinstance(status.state, WorkerState) else None


def _phase_of(status: object) -> ShutdownPhase | None:
    worker = _worker_of(status)
    return None if worker is None else worker.phase


def phase(state: State, name: str) -> ShutdownPhase | None:
    return _phase_of(state.status(name))


def _is_finished(state: State) -> bool:
    position, done = state.read(committed(0)), state.read(processed(0))
    return laws.partition.committed_is_finished(position, range(position), done)


def _leaves_nothing(state: State) -> bool:
    machine = state.status(_STOPS)
    match machine:
        case Machine(WorkerState() as worker, commands, _, stuck):
            return laws.worker.leaves_nothing_behind(worker, (*commands, *stuck))
        case _:
            return True


def _releases_what_is_wanted(state: State) -> bool:
    worker, group = _worker_of(state.status(_STOPS)), state.read(GROUP)
    if (
        worker is None
        or state.read(dead(_STOPS))
        or not group.rebalancing
        or _STOPS not in group.members
        or group.owners[0] != _STOPS
    ):
        return True
    partition = TopicPartition(_TOPIC, 0)
    if any(isinstance(event, Revoked) for event in state.read(inbox(_STOPS))):
        return True  # it is not there yet
    done = (Release(partition),) if (0, _STOPS) in group.released else ()
    owned = [part.partition for part in worker.consumer.partitions]
    return laws.worker.releases_what_is_wanted((partition,), owned, done)


def _never_falls(before: State, after: State) -> bool:
    return laws.partition.committed_never_falls(before.read(committed(0)), after.read(committed(0)))


def _begins_nothing(before: State, after: State) -> bool:
    match before.status(_STOPS), after.status(_STOPS):
        case Machine(WorkerState() as worker, commands), Machine(WorkerState() as then, now):
            begun = [command for command in now if command not in commands]
            return laws.worker.begins_nothing(worker, then, begun)
        case _:
            return True


def _saves_what_is_finished(before: State, after: State) -> bool:
    """When it leaves, unless refused."""
    if phase(after, _STOPS) is not ShutdownPhase.LEAVING or after.read(_EXCUSED):
        return True
    match before.status(_STOPS):
        case Machine(WorkerState(ShutdownPhase.DRAINING, consumer), _, events) if not any(map(_is_refusal, events)):
            position = after.read(committed(0))
            own = [after.read(finished(part.generation)) for part in consumer.partitions]
            return all(laws.worker.finished_is_committed(position, done) for done in own)
        case _:
            return True


def _lets_go_as_fenced(before: State, after: State) -> bool:
    """In the step in which it learns that its name was taken."""
    if not _has_heard(before, after):
        return True
    match before.status(_STOPS), after.status(_STOPS):
        case Machine(WorkerState(), commands), Machine(WorkerState() as then, now) if not after.read(dead(_STOPS)):
            return laws.worker.fenced_lets_go(then, [command for command in now if command not in commands])
        case _:
            return True


def _has_heard(before: State, after: State) -> bool:
    had, has = (sum(isinstance(each, NameTaken) for each in of.read(inbox(_STOPS))) for of in (before, after))
    return had > has


def _is_refusal(event: object) -> bool:
    return isinstance(event, CommitRefused)


def _begins_anew(before: State, after: State) -> bool:
    """A worker whose assignment is over when it learns of it, because its name was taken, owns
    nothing.
    """
    for name in (_STAYS, _STOPS):
        worker, then = _worker_of(before.status(name)), _worker_of(after.status(name))
        if worker is None or then is None or worker.consumer.partitions:
            continue
        for part in then.consumer.partitions:
            if before.read(_TAKEN) and part.generation < before.read(GROUP).generation:
                continue
            if not laws.worker.begins_at_the_committed(part.tracker.floor, before.read(committed(0))):
                return False
    return True


def _is_gone(state: State) -> bool:
    return _worker_of(state.status(_STOPS)) is None or phase(state, _STOPS) is ShutdownPhase.GONE


def _is_done(state: State, *, records: int) -> bool:
    position, done = state.read(committed(0)), state.read(processed(0))
    return laws.partition.all_is_processed(position, done, records)


# --- goals --------------------------------------------------------------------------------------------------------------


def _is_cut(state: State) -> bool:
    return state.read(_EXCUSED) and phase(state, _STOPS) is ShutdownPhase.GONE


def _drains_whole(state: State, *, records: int) -> bool:
    return (
        phase(state, _STOPS) is ShutdownPhase.LEAVING
        and not state.read(_EXCUSED)
        and any(len(state.read(finished(generation))) == records for generation in (1, 2))
        and state.read(committed(0)) == records
    )


def _is_rebalanced_while_draining(state: State) -> bool:
    worker = _worker_of(state.status(_STOPS))
    return (
        worker is not None
        and worker.phase is ShutdownPhase.DRAINING
        and bool(worker.consumer.partitions)
        and state.read(GROUP).rebalancing
    )


def _is_refused_while_draining(state: State) -> bool:
    match state.status(_STOPS):
        case Machine(WorkerState(ShutdownPhase.DRAINING), _, events):
            return any(map(_is_refusal, events))
        case _:
            return False


def _is_taken(state: State, *, at: ShutdownPhase) -> bool:
    return state.read(_TAKEN) and phase(state, _STOPS) is at


_FENCED_GOALS: Final = {
    "its name is taken while it works": partial(_is_taken, at=ShutdownPhase.WORKING),
    "its name is taken while it drains": partial(_is_taken, at=ShutdownPhase.DRAINING),
    "it is gone": partial(_is_taken, at=ShutdownPhase.GONE),
}


SCENARIOS: Final = (
    Shipped(
        "shutdown",
        partial(shutdown, rebalances=0),
        thorough=shutdown,
        large=partial(shutdown, records=4, rebalances=2, budget=3),
    ),
    Shipped(
        "shutdown.turns",
        partial(
            shutdown,
            summary="the same where events that have come are one step of it, as the runtime hands them over",
            rebalances=0,
            signals=1,
            merge=merged,
        ),
        thorough=partial(shutdown, merge=merged),
        large=partial(shutdown, records=3, rebalances=1, budget=2, merge=merged),
    ),
    Shipped(
        "shutdown.rebalance",
        partial(
            shutdown,
            summary="the same while the group rebalances: each partition is let go once, and nothing new is taken",
            records=1,
            signals=1,
        ),
        thorough=partial(shutdown, records=1, rebalances=2, budget=2),
        large=partial(shutdown, records=3, rebalances=3, budget=4),
    ),
    Shipped(
        "shutdown.namesake",
        partial(
            shutdown,
            summary="another comes under the name of a worker, before or after that is asked to stop: it gives up and leaves",
            records=1,
            rebalances=0,
            signals=1,
            namesake=True,
        ),
        thorough=partial(shutdown, rebalances=0, signals=1, namesake=True),
        large=partial(shutdown, records=3, rebalances=1, budget=2, namesake=True),
    ),
)
