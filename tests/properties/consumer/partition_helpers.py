from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tidegate.consumer.fanout import (
    FanoutEvent,
    Rules,
)
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition import partition
from tidegate.consumer.protocol import commands
from tidegate.model.records import TopicPartition

TP: Final = TopicPartition("t", 0)
FLAT: Final = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
RETRIED: Final = Rules(1, 0, task_delivery=True, record_delivery=False, window_delivery=False)
SLOW: Final = Budget(4, cancel=1, commit=1)
ALL: Final = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P15")


def succeeded(generation: int, offset: int) -> commands.Event:
    return commands.WorkReported(TP, generation, commands.RecordsHandled((offset,)))


def failed(generation: int, offset: int) -> commands.Event:
    return commands.WorkFailed(TP, generation, commands.Handle((offset,)))


def handle(generation: int, *offsets: int, attempt: int = 1) -> commands.Work:
    return commands.Work(TP, generation, commands.Handle(offsets, attempt), offsets)


def course(rules: partition.PartitionRules, *happened: commands.Event) -> list[tuple[commands.Command, ...]]:
    state: partition.PartitionState = partition.Unassigned()
    commanded: list[tuple[commands.Command, ...]] = []
    for event in happened:
        step = rules.step(state, event)
        state = step.state
        commanded.append(step.commands)
    return commanded


def after(rules: partition.PartitionRules, *happened: commands.Event) -> partition.Owned:
    state: partition.PartitionState = partition.Unassigned()
    for event in happened:
        state = rules.step(state, event).state
    assert isinstance(state, partition.Owned)
    return state


def reported(what: FanoutEvent) -> commands.Event:
    return commands.WorkReported(TP, 1, what)


Stepping: TypeAlias = Callable[[partition.PartitionState, commands.Event], partition.PartitionStep]
Machine: TypeAlias = Callable[[partition.PartitionRules], Stepping]


def right(rules: partition.PartitionRules) -> Stepping:
    return rules.step
