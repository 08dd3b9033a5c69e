"""The common form of all reducers, for a runtime or the simulator; mypy checks the calls."""

from __future__ import annotations

from typing import TypeVar

from tidegate.consumer.partition.partition import PartitionRules, Unassigned
from tidegate.consumer.partition.partition_state import PartitionState
from tidegate.consumer.protocol.commands import SlotFreed
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.worker.worker import LeaveTimerFired, WorkerRules, WorkerState
from tidegate.leases.election import Candidate, ElectionState, Stopped, StopRequested
from tidegate.model.instants import Instant
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Reducer
from tidegate.reactive.planning.change_stream import consumer as change_stream
from tidegate.reactive.planning.change_stream import events as stream_events
from tidegate.reactive.task.worker import TaskResults
from tidegate.sinks.outbox import OutboxRules, OutboxState, TimerFired
from tidegate.work import events, state, vocabulary, worker

S = TypeVar("S")
E = TypeVar("E")
C = TypeVar("C")

HERE = TopicPartition("t", 0)


def ignored(reducer: Reducer[S, E, C], state: S, event: E) -> bool:
    step = reducer.step(state, event)
    return step.state == state and not step.commands


PARTITION: PartitionState = Unassigned()
CANDIDATE: ElectionState = Stopped()
TIMER: events.WorkerEvent = events.TimerFired(Instant(0))
STREAM: change_stream.StreamState = change_stream.Stopped()


def test_every_room_has_reducers_of_one_form() -> None:
    assert ignored(PartitionRules(), PARTITION, SlotFreed(HERE))
    assert ignored(ConsumerRules(), ConsumerState(), SlotFreed(HERE))
    assert ignored(WorkerRules(), WorkerState(), LeaveTimerFired())
    assert ignored(Candidate("ann", "ann-1"), CANDIDATE, StopRequested(Instant(0)))
    assert ignored(change_stream.ChangeStreamConsumer(), STREAM, stream_events.StopRequested())
    idle = worker.Worker(vocabulary.WorkerRules(queues=(), results=TaskResults()))
    assert idle.step(state.WorkerState(), TIMER).commands == ()
    assert ignored(OutboxRules(), OutboxState(), TimerFired(Instant(0)))
