"""The laws of `tidegate.consumer.batching` as predicates over a request and what it is answered, and a call and what it counts for."""

from __future__ import annotations

from tidegate.consumer.batching import BatchAnswer, CallEnd, Counted, Nothing, RunBatch
from tidegate.consumer.commands import Work, WorkReported, event_for
from tidegate.consumer.fanout import Arrange, DeliverRecords, Judge, Report, Start, Tasks, UserRequest
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition


def is_one_task(request: UserRequest, answer: BatchAnswer) -> bool:
    """Law BT1: a window is one task, of all its records, in their order."""
    return not isinstance(request, Arrange) or answer == Tasks((request.offsets,))


def tries_again(request: UserRequest, answer: BatchAnswer) -> bool:
    """Law BT2: what has failed is tried again."""
    return not isinstance(request, Judge) or answer is Report.RETRIED


def is_taken(request: UserRequest, answer: BatchAnswer) -> bool:
    """Law BT3: the window takes it for an answer, and what is to be run is run."""
    if isinstance(request, Start) != isinstance(answer, RunBatch):
        return False
    offsets = request.offsets if isinstance(request, Arrange | DeliverRecords) else (0,)
    work = Work(TopicPartition("t", 0), 1, request, offsets)
    try:
        event = event_for(work, None if isinstance(answer, Nothing | RunBatch) else answer)
    except Misuse:
        return False
    return isinstance(event, WorkReported)


def counts_as_a_whole(records: int, end: CallEnd, count: Counted) -> bool:
    """Law BT4: all records are handled, or one call has failed, or neither."""
    return count == {CallEnd.RETURNED: (records, 0), CallEnd.RAISED: (0, 1), CallEnd.INTERRUPTED: (0, 0)}[end]
