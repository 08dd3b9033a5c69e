"""The laws of `tidegate.consumer.worker.worker` as predicates over its states and commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.consumer.checks.laws.partition import starts_nothing
from tidegate.consumer.protocol.commands import Commit, Release
from tidegate.consumer.worker.worker import Leave, ShutdownPhase, StartLeaveTimer, WorkerRules, WorkerState
from tidegate.model.effects import Effect
from tidegate.model.instants import Duration
from tidegate.model.records import TopicPartition


def begins_nothing(before: WorkerState, after: WorkerState, begun: Iterable[Effect[object]]) -> bool:
    """Law SD1.

    Args:
        before: The worker before an event.
        after: The worker after it.
        begun: The commands in between.
    """
    if before.phase is ShutdownPhase.WORKING:
        return True
    owned = {(part.partition, part.generation) for part in before.consumer.partitions}
    return all(map(starts_nothing, begun)) and all(
        (part.partition, part.generation) in owned for part in after.consumer.partitions
    )


def leaves_nothing_behind(worker: WorkerState, in_flight: Iterable[Effect[object]]) -> bool:
    """Law SD2. A worker that leaves may only wait for the group's answer."""
    if worker.phase in (ShutdownPhase.WORKING, ShutdownPhase.DRAINING):
        return True
    return not worker.consumer.partitions and all(isinstance(command, Leave | StartLeaveTimer) for command in in_flight)


def finished_is_committed(committed: int, finished: Collection[int]) -> bool:
    """Law SD3, when the worker leaves: the next record to be committed is unfinished.

    Args:
        committed: The position of the group.
        finished: The offsets that the worker has finished in this generation.
    """
    return committed not in finished


def is_gone_in_time(rules: WorkerRules, asked: Duration, gone: Duration) -> bool:
    """Law SD4.

    Args:
        rules: The rules of the worker.
        asked: The time of the first stop request.
        gone: The time when the worker was gone, on the same clock.
    """
    return gone - asked <= rules.total


def releases_what_is_wanted(
    wanted: Iterable[TopicPartition], owned: Collection[TopicPartition], commands: Collection[Effect[object]]
) -> bool:
    """Law SD5: a revoked partition is released by now, or still drains.

    Args:
        wanted: The partitions that the group revokes.
        owned: The partitions of the worker.
        commands: All commands since the revocation.
    """
    return all(each in owned or Release(each) in commands for each in wanted)


def begins_at_the_committed(position: int, committed: int) -> bool:
    """Law SD6."""
    return position == committed


def fenced_lets_go(after: WorkerState, asked: Iterable[Effect[object]]) -> bool:
    """Law SD8.

    Args:
        after: The worker after it learned that its name was taken.
        asked: Its commands in that step.
    """
    is_leaving = after.phase in (ShutdownPhase.LEAVING, ShutdownPhase.GONE)
    commanded = [*asked]
    return (
        is_leaving
        and not after.consumer.partitions
        and all(map(starts_nothing, commanded))
        and not any(isinstance(command, Commit) for command in commanded)
    )
