"""Laws of `tidegate.assignment`."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.assignment import Assignment, Consumer, Poll
from tidegate.partition import Phase, TopicPartition


def executors_bound_the_running(consumer: Consumer, state: Assignment) -> bool:
    """Law AS1: no more than `executors` handlers run."""
    return state.running <= consumer.executors


def nothing_is_polled_at_high(consumer: Consumer, state: Assignment, poll: Poll) -> bool:
    """Law AS2: the load is below `high` before anything is polled."""
    return not poll.partitions or state.load < consumer.thresholds.high


def no_executor_waits(consumer: Consumer, state: Assignment) -> bool:
    """Law AS3: while an executor is free, no flowing partition has a record queued."""
    free = state.running < consumer.executors
    return not (free and any(part.queued for part in state.parts if part.phase is Phase.FLOWING))


def others_are_left_alone(before: Assignment, after: Assignment, partition: TopicPartition) -> bool:
    """Law AS4: an event of one partition changes of others no more than how many of their handlers run."""
    rest = {part.partition: part for part in before.parts if part.partition != partition}
    now = {part.partition: part for part in after.parts if part.partition != partition}
    return rest.keys() == now.keys() and all(
        (old.generation, old.phase, old.ledger, old.committing)
        == (now[key].generation, now[key].phase, now[key].ledger, now[key].committing)
        and set(old.running) <= set(now[key].running)
        for key, old in rest.items()
    )


def holds_what_is_not_polled(state: Assignment, paused: Collection[TopicPartition], poll: Poll) -> bool:
    """Law AS5: either some partitions are polled and none of them stays paused, or all are held."""
    held = (set(paused) | set(poll.hold)) - set(poll.release)
    return not held & set(poll.partitions) and (
        bool(poll.partitions) or held >= {part.partition for part in state.parts}
    )
