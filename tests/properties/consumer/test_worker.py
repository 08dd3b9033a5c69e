"""Shutting down a worker: the order of releases, without loss and within the time limit."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.checks.laws import worker as laws
from tidegate.consumer.flow.drain import Budget, InFlight
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import (
    Assigned,
    Commit,
    Fetch,
    Fetched,
    Interrupt,
    Lost,
    Release,
    Revoked,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkFailed,
)
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.worker import (
    Leave,
    LeaveAnswered,
    LeaveTimerFired,
    NameTaken,
    ShutdownEvent,
    ShutdownPhase,
    StartLeaveTimer,
    StopRequested,
    WorkerRules,
    WorkerState,
    event_for,
)
from tidegate.model.effects import Ambiguous, Cancel, Effect, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration
from tidegate.model.records import TopicPartition

PARTITIONS = tuple(TopicPartition("t", number) for number in range(2))
BUDGET = Budget(30 * SECOND, cancel=5 * SECOND, commit=5 * SECOND)
RIGHT = WorkerRules(
    ConsumerRules(executors=3, partition=PartitionRules(drain=BUDGET, metadata_max=0, batch_max=1)), leave=5 * SECOND
)


@attrs.define
class Life:
    rules: WorkerRules = RIGHT
    worker: WorkerState = attrs.field(factory=WorkerState)
    now: Duration = 0
    in_flight: dict[Effect[object], Duration] = attrs.field(factory=dict)
    commanded: list[Effect[object]] = attrs.field(factory=list)
    wanted: set[TopicPartition] = attrs.field(factory=set)

    def receives(self, event: ShutdownEvent) -> None:
        before, done = self.worker, self.rules.step(self.worker, event)
        self.worker = done.state
        self.commanded.extend(done.commands)
        if isinstance(event, Revoked):
            self.wanted.add(event.partition)
        begun: list[Effect[object]] = []
        for command in done.commands:
            if isinstance(command, Cancel):
                self.in_flight.pop(command.effect, None)
            elif isinstance(command, Release):
                self.wanted.discard(command.partition)
            elif not isinstance(command, Interrupt):
                self.in_flight[command] = self.now
                begun.append(command)
        owned = [part.partition for part in self.worker.consumer.partitions]
        assert laws.begins_nothing(before, self.worker, begun)
        assert laws.leaves_nothing_behind(self.worker, self.in_flight)
        assert laws.releases_what_is_wanted(self.wanted, owned, ())
        assert not isinstance(event, NameTaken) or laws.fenced_lets_go(self.worker, done.commands)

    def is_answered(self, command: Effect[object], reply: object) -> None:
        self.in_flight.pop(command, None)
        event = event_for(command, reply)
        assert event is not None
        self.receives(event)

    def is_at(self, phase: ShutdownPhase) -> bool:
        return self.worker.phase is phase

    def waits(self) -> bool:
        due = {
            command: at + command.duration
            for command, at in self.in_flight.items()
            if isinstance(command, StartDrainTimer | StartRetryTimer | StartLeaveTimer)
        }
        if not due:
            return False
        first = min(due, key=lambda command: due[command])
        self.now = due[first]
        self.is_answered(first, None)
        return True

    def works(self, records: int = 2) -> None:
        for partition in PARTITIONS:
            self.receives(Assigned(partition, 1, 0))
            self.is_answered(one(self, Fetch, partition), tuple(range(records)))


def one(life: Life, kind: type[Fetch | Work | Commit], partition: TopicPartition = PARTITIONS[0]) -> Effect[object]:
    return next(command for command in life.in_flight if isinstance(command, kind) and command.partition == partition)


def events() -> st.SearchStrategy[ShutdownEvent]:
    partitions = st.sampled_from(PARTITIONS)
    return st.one_of(
        st.builds(Assigned, partitions, st.integers(1, 3), st.integers(0, 3)),
        st.builds(Revoked, partitions),
        st.builds(Lost, partitions),
        st.sampled_from((StopRequested(), NameTaken(), LeaveAnswered(), LeaveTimerFired())),
    )


def replies(command: Effect[object]) -> tuple[object, ...]:
    match command:
        case Fetch(_, _, position):
            return ((position, position + 1),)
        case Commit():
            return (None, Ambiguous("no reply"), Refused("illegal generation"))
        case _:
            return (None,)


@given(st.lists(st.one_of(events(), st.integers(0, 30)), max_size=30))
def test_a_worker_that_leaves_holds_nothing_and_begins_nothing(steps: list[ShutdownEvent | int]) -> None:
    """Laws SD1, SD2 and SD5, for any events; a number completes one of the commands in flight."""
    life = Life()
    for step in steps:
        if not isinstance(step, int):
            life.receives(step)
        elif life.in_flight:
            which, how = divmod(step, 3)
            command = sorted(life.in_flight, key=str)[which % len(life.in_flight)]
            life.is_answered(command, replies(command)[how % len(replies(command))])


@given(st.booleans(), st.booleans(), st.integers(0, 3))
def test_whoever_was_asked_is_gone_in_time(finishes: bool, answers: bool, records: int) -> None:
    """Law SD4, with endless user code and a silent broker and group; the bound is reached."""
    life = Life()
    life.works(records)
    life.receives(StopRequested())
    for kind in (*((Work,) if finishes else ()), *((Commit,) if answers else ())):
        while command := next((each for each in life.in_flight if isinstance(each, kind)), None):
            life.is_answered(command, None)
    while life.waits():
        pass

    assert life.is_at(ShutdownPhase.GONE)
    assert not life.in_flight
    assert laws.is_gone_in_time(RIGHT, 0, life.now)
    assert (life.now == RIGHT.total == 35 * SECOND) is (records > 0 and finishes and not answers)


def test_what_was_finished_is_committed_before_it_leaves() -> None:
    """Law SD3. One of two records ends during the drain, the other after its end."""
    life = Life()
    life.receives(Assigned(PARTITIONS[0], 1, 0))
    life.is_answered(one(life, Fetch), (0, 1))
    life.receives(StopRequested())
    first = next(command for command in life.in_flight if isinstance(command, Work) and command.offsets == (0,))
    life.is_answered(first, None)
    life.is_answered(one(life, Commit), Ambiguous("no reply"))  # so it is committed again, after a while
    assert life.waits()
    life.is_answered(one(life, Commit), None)

    assert life.is_at(ShutdownPhase.DRAINING)
    while life.is_at(ShutdownPhase.DRAINING):
        assert life.waits()
    assert life.is_at(ShutdownPhase.LEAVING)
    assert laws.finished_is_committed(
        max(command.position for command in life.commanded if isinstance(command, Commit)), (0,)
    )
    assert list(life.in_flight) == [Leave(), StartLeaveTimer(5 * SECOND)]


def test_whoever_is_asked_again_waits_for_nothing() -> None:
    """The third request abandons the leaving; a fourth changes nothing."""
    life = Life()
    life.works()
    life.receives(StopRequested())
    assert life.is_at(ShutdownPhase.DRAINING)
    life.receives(StopRequested())
    assert life.is_at(ShutdownPhase.LEAVING)
    life.receives(StopRequested())
    assert (life.worker.phase, life.in_flight, life.now) == (ShutdownPhase.GONE, {}, 0)
    assert RIGHT.step(life.worker, StopRequested()).state is life.worker


def test_what_is_known_of_records_shortens_the_drain() -> None:
    life = Life()
    life.works(1)
    known = InFlight(0, expected=60 * SECOND, stoppable=False)
    life.receives(StopRequested((Revoked(PARTITIONS[0], (known,)), Revoked(PARTITIONS[1], (known,)))))
    assert (life.worker.phase, life.now) == (ShutdownPhase.LEAVING, 0)


def test_while_it_works_it_is_its_consumer() -> None:
    life, consumer = Life(), WorkerState().consumer
    for event in (Assigned(PARTITIONS[0], 1, 0), Fetched(PARTITIONS[0], 1, (0, 1)), Revoked(PARTITIONS[0])):
        done = RIGHT.consumer.step(consumer, event)
        consumer = done.state
        assert RIGHT.step(life.worker, event).commands == done.commands
        life.receives(event)
        assert life.worker.consumer == consumer
    works = [each for each in life.in_flight if isinstance(each, Work)]
    life.receives(Lost(PARTITIONS[0]))
    life.receives(LeaveTimerFired())
    life.receives(LeaveAnswered())
    assert [each.work for each in life.worker.consumer.outliving] == works
    for work in works:
        life.receives(WorkFailed(work.partition, work.generation, work.request))
    assert life.worker == WorkerState()


def test_a_refused_commit_ends_the_drain() -> None:
    life = Life()
    life.receives(Assigned(PARTITIONS[0], 1, 0))
    life.is_answered(one(life, Fetch), (0,))
    life.receives(StopRequested())
    life.is_answered(one(life, Work), None)
    life.is_answered(one(life, Commit), Refused("illegal generation"))
    assert life.is_at(ShutdownPhase.LEAVING)


def test_values_say_what_they_are() -> None:
    assert [*map(str, (Leave(), StartLeaveTimer(SECOND), StopRequested(), LeaveAnswered(), LeaveTimerFired()))] == [
        "leave the group", "wait 1 s to leave the group", "asked to stop", "left the group", "time to leave is over",
    ]  # fmt: skip
    assert str(WorkerState()) == "working; flow: the load is below high"
    with pytest.raises(Misuse, match="a time to leave"):
        WorkerRules(leave=-1)
