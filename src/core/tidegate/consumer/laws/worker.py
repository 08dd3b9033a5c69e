"""Laws of `tidegate.consumer.worker`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.consumer.commands import Commit, Release
from tidegate.consumer.laws.partition import starts_nothing
from tidegate.consumer.worker import Leave, ShutdownPhase, StartLeaveTimer, WorkerRules, WorkerState
from tidegate.model.effects import Effect
from tidegate.model.instants import Duration
from tidegate.model.records import TopicPartition


def begins_nothing(before: WorkerState, after: WorkerState, begun: Iterable[Effect[object]]) -> bool:
    """Law SD1: once it was asked to stop, it begins nothing, and no partition comes to be its own.

    Args:
        before: The worker.
        after: The worker then.
        begun: Its commands since then.
    """
    if before.phase is ShutdownPhase.WORKING:
        return True
    owned = {(part.partition, part.generation) for part in before.consumer.partitions}
    return all(map(starts_nothing, begun)) and all(
        (part.partition, part.generation) in owned for part in after.consumer.partitions
    )


def leaves_nothing_behind(worker: WorkerState, in_flight: Iterable[Effect[object]]) -> bool:
    """Law SD2: whoever leaves, or is gone, owns nothing, and waits for nothing but the group's answer."""
    if worker.phase in (ShutdownPhase.WORKING, ShutdownPhase.DRAINING):
        return True
    return not worker.consumer.partitions and all(isinstance(command, Leave | StartLeaveTimer) for command in in_flight)


def finished_is_committed(committed: int, finished: Collection[int]) -> bool:
    """Law SD3: as it leaves, it has not finished the next record to be committed.

    Args:
        committed: The position of the group.
        finished: The offsets that it has finished, in this generation.
    """
    return committed not in finished


def is_gone_in_time(rules: WorkerRules, asked: Duration, gone: Duration) -> bool:
    """Law SD4: it is gone within the time to drain and the time to leave.

    Args:
        rules: What the worker does.
        asked: When it was first asked.
        gone: When it was gone, on the same clock.
    """
    return gone - asked <= rules.total


def releases_what_is_wanted(
    wanted: Iterable[TopicPartition], owned: Collection[TopicPartition], commands: Collection[Effect[object]]
) -> bool:
    """Law SD5: what the group wants back is released by now, or still drains.

    Args:
        wanted: Which partitions it wants back.
        owned: Those of the worker.
        commands: All commands since then.
    """
    return all(each in owned or Release(each) in commands for each in wanted)


def begins_at_the_committed(position: int, committed: int) -> bool:
    """Law SD6: whoever comes to own a partition begins where the group has committed."""
    return position == committed


def fenced_lets_go(after: WorkerState, asked: Iterable[Effect[object]]) -> bool:
    """Law SD8: whose name was taken owns nothing, begins and commits nothing, and leaves.

    Args:
        after: The worker, once it has heard of it.
        asked: What it has commanded then.
    """
    is_leaving = after.phase in (ShutdownPhase.LEAVING, ShutdownPhase.GONE)
    commanded = [*asked]
    return (
        is_leaving
        and not after.consumer.partitions
        and all(map(starts_nothing, commanded))
        and not any(isinstance(command, Commit) for command in commanded)
    )
