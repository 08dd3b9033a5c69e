"""The laws of `tidegate.consumer.protocol.batching` as predicates over requests, their answers, and counted
calls.
"""

from __future__ import annotations

from tidegate.consumer.fanout import Arrange, DeliverRecords, Judge, Report, Start, Tasks, UserRequest
from tidegate.consumer.protocol.batching import BatchAnswer, CallEnd, Counted, Nothing, RunBatch
from tidegate.consumer.protocol.commands import Work, WorkReported, event_for
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition


def is_one_task(request: UserRequest, answer: BatchAnswer) -> bool:
    """Law BT1."""
    return not isinstance(request, Arrange) or answer == Tasks((request.offsets,))


def tries_again(request: UserRequest, answer: BatchAnswer) -> bool:
    """Law BT2."""
    return not isinstance(request, Judge) or answer is Report.RETRIED


def is_taken(request: UserRequest, answer: BatchAnswer) -> bool:
    """Law BT3: the window accepts the answer, and a `Start`, and no other request, calls the
    handler.
    """
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
    """Law BT4."""
    return count == {CallEnd.RETURNED: (records, 0), CallEnd.RAISED: (0, 1), CallEnd.INTERRUPTED: (0, 0)}[end]
