"""The laws of `tidegate.consumer.worker.health` as predicates over a history of snapshots and a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidegate.consumer.worker.health import Health, Healthy, Sight, Unhealthy
from tidegate.consumer.worker.worker import ShutdownPhase
from tidegate.model.instants import Duration, Instant
from tidegate.model.records import TopicPartition

Looks: TypeAlias = Sequence[tuple[Instant, tuple[Sight, ...]]]
"""Snapshots in order, each with its time."""


def tells_who_stands(looks: Looks, patience: Duration, now: Instant, told: Health) -> bool:
    """Law HE1."""
    stalls = told.stalls if isinstance(told, Unhealthy) else ()
    expected: dict[TopicPartition, Duration] = {}
    for sight in looks[-1][1]:
        since = now
        for at, seen in reversed(looks):
            here = [each for each in seen if each.partition == sight.partition]
            if not here or not here[0].is_owed or _place(here[0]) != _place(sight):
                break
            since = at
        if sight.is_owed and now - since >= patience:
            expected[sight.partition] = now - since
    return {each.partition: each.time for each in stalls} == expected and len(stalls) == len(expected)


def changes_nothing_by_looking(told: Health, told_after_more_looks: Health) -> bool:
    """Law HE2."""
    return told == told_after_more_looks


def misses_polls_that_are_due(
    polls: Sequence[Instant], phase: ShutdownPhase, patience: Duration, now: Instant, told: Health
) -> bool:
    """Law HE3. No polls are reported missing before the first one."""
    is_due = bool(polls) and phase is ShutdownPhase.WORKING and now - polls[-1] >= patience
    silence = told.silence if isinstance(told, Unhealthy) else None
    return silence == (now - polls[-1] if is_due else None) and (not is_due or not isinstance(told, Healthy))


def _place(sight: Sight) -> tuple[int, int | None]:
    return sight.generation, sight.position
