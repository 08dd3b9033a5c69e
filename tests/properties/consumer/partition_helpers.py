"""What the tests of a partition share: events, and what becomes of it with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tidegate.consumer.commands import (
    Command,
    Event,
    Handle,
    RecordsHandled,
    Work,
    WorkFailed,
    WorkReported,
)
from tidegate.consumer.drain import Budget
from tidegate.consumer.fanout import (
    FanoutEvent,
    Rules,
)
from tidegate.consumer.partition import (
    Owned,
    PartitionRules,
    PartitionState,
    PartitionStep,
    Unassigned,
)
from tidegate.model.records import TopicPartition

TP: Final = TopicPartition("t", 0)
FLAT: Final = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
RETRIED: Final = Rules(1, 0, task_delivery=True, record_delivery=False, window_delivery=False)
SLOW: Final = Budget(4, cancel=1, commit=1)
ALL: Final = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P15")


def succeeded(generation: int, offset: int) -> Event:
    """The record was handled."""
    return WorkReported(TP, generation, RecordsHandled((offset,)))


def failed(generation: int, offset: int) -> Event:
    return WorkFailed(TP, generation, Handle((offset,)))


def handle(generation: int, *offsets: int, attempt: int = 1) -> Work:
    """The command to handle these."""
    return Work(TP, generation, Handle(offsets, attempt), offsets)


def course(rules: PartitionRules, *happened: Event) -> list[tuple[Command, ...]]:
    """The commands after each event."""
    state: PartitionState = Unassigned()
    commanded: list[tuple[Command, ...]] = []
    for event in happened:
        step = rules.step(state, event)
        state = step.state
        commanded.append(step.commands)
    return commanded


def after(rules: PartitionRules, *happened: Event) -> Owned:
    """The state after these events."""
    state: PartitionState = Unassigned()
    for event in happened:
        state = rules.step(state, event).state
    assert isinstance(state, Owned)
    return state


def reported(what: FanoutEvent) -> Event:
    return WorkReported(TP, 1, what)


Stepping: TypeAlias = Callable[[PartitionState, Event], PartitionStep]
Machine: TypeAlias = Callable[[PartitionRules], Stepping]
"""How a partition steps under these rules: as it does, or wrongly."""


def right(rules: PartitionRules) -> Stepping:
    """The machine that ships."""
    return rules.step
