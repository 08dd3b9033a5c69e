from __future__ import annotations

import pytest
from tests.properties.consumer.partition_helpers import (
    FLAT,
    TP,
    after,
    course,
    handle,
    reported,
    succeeded,
)

from tidegate.consumer.fanout import (
    Report,
    Tasks,
    TasksReported,
    WindowArranged,
)
from tidegate.consumer.flow.drain import Budget, InFlight, Stage
from tidegate.consumer.partition.partition import (
    FailurePolicy,
    PartitionRules,
    PartitionState,
    Unassigned,
)
from tidegate.consumer.protocol import commands
from tidegate.model.effects import Cancel
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition


def test_a_drain_interrupts_then_abandons_then_commits() -> None:
    """Laws P5 and P11: each stage has its time, and records done during the drain are committed."""
    commanded = course(
        PartitionRules(running_max=2, metadata_max=0, drain=Budget(6 * SECOND, cancel=2 * SECOND, commit=SECOND)),
        commands.Assigned(TP, 1, 0),
        commands.Fetched(TP, 1, (0, 1)),
        commands.Revoked(TP),
        commands.DrainTimerFired(TP, 1, Stage.WAITING),
        succeeded(1, 0),
        commands.Committed(TP, 1, 1),
        commands.DrainTimerFired(TP, 1, Stage.CANCELLING),
    )

    assert commanded[3:] == [
        (
            commands.StartDrainTimer(TP, 1, Stage.CANCELLING, 2 * SECOND),
            commands.Interrupt(handle(1, 0, 1)),
        ),
        (commands.Commit(TP, 1, 1),),
        (),
        (
            commands.StartDrainTimer(TP, 1, Stage.COMMITTING, SECOND),
            Cancel(handle(1, 1)),
            Cancel(commands.StartDrainTimer(TP, 1, Stage.COMMITTING, SECOND)),
            commands.Release(TP),
        ),
    ]


def test_what_is_known_to_take_too_long_is_interrupted_or_abandoned_at_once() -> None:
    """Law P5: no wait for work that cannot end in time, and no second interruption."""
    known = (InFlight(0, 0, 9), InFlight(1, 0, 9, stoppable=False))
    commanded = course(
        PartitionRules(running_max=3, metadata_max=0, drain=Budget(4, cancel=1, commit=1)),
        commands.Assigned(TP, 1, 0),
        commands.Fetched(TP, 1, (0, 1, 2)),
        commands.Revoked(TP, known),
        commands.DrainTimerFired(TP, 1, Stage.WAITING),
    )

    first, second, third = (handle(1, number) for number in range(3))
    assert commanded[2][1:3] == (commands.Interrupt(first), Cancel(second))
    assert commanded[3][1:] == (commands.Interrupt(third),)


def test_what_was_asked_for_in_vain_is_taken_back() -> None:
    """Law P5: a lost partition cancels its work and fetches; a commit cannot be cancelled."""
    rules = PartitionRules(2, metadata_max=0)
    commanded = course(
        rules, commands.Assigned(TP, 1, 0), commands.Fetched(TP, 1, (0, 1)), succeeded(1, 0), commands.Lost(TP)
    )

    assert commanded[-2:] == [
        (commands.Commit(TP, 1, 1),),
        (Cancel(handle(1, 1)), Cancel(commands.Fetch(TP, 1, 2))),
    ]


def test_no_time_to_drain_releases_whatever_runs() -> None:
    """Law P5: with a budget of 0, the revocation releases the partition."""
    rules = PartitionRules(2, metadata_max=0, drain=Budget(0))
    commanded = course(rules, commands.Assigned(TP, 1, 0), commands.Fetched(TP, 1, (0,)), commands.Revoked(TP))

    assert commanded[-1] == (
        Cancel(handle(1, 0)),
        Cancel(commands.Fetch(TP, 1, 1)),
        commands.Release(TP),
    )


def test_what_fails_once_it_is_revoked_is_left_to_the_next_owner() -> None:
    """Law P11: an interrupted executor may report a failure, and a good record would be
    dead-lettered.
    """
    rules = PartitionRules(2, hooks=True, fanout=FLAT, metadata_max=0, failure_policy=FailurePolicy.SKIP)
    arranged = reported(WindowArranged(0, Tasks(((0,), (1,)))))
    happened = (commands.Assigned(TP, 1, 0), commands.Fetched(TP, 1, (0,)), arranged, commands.Revoked(TP))
    state = after(PartitionRules(2, 2, hooks=True, fanout=FLAT, metadata_max=0), *happened)

    assert rules.step(state, reported(TasksReported(0, (0,), 1, Report.FAILED))).commands == ()
    assert [
        type(command) for command in rules.step(state, reported(TasksReported(0, (0, 1), 1, Report.FAILED))).commands
    ] == [
        Cancel,
        commands.Release,
    ]


@pytest.mark.parametrize("is_told", [True, False])
def test_what_is_parked_while_it_drains_keeps_nobody_waiting(*, is_told: bool) -> None:
    """Laws P5 and P15. The scenario `partition.parks` found a release only after the drain time."""
    rules, orders = PartitionRules(metadata_max=0), TopicPartition("orders", 0)
    state: PartitionState = Unassigned()
    for event in (commands.Assigned(orders, 1, 0), commands.Fetched(orders, 1, (0,)), commands.Revoked(orders)):
        state = rules.step(state, event).state
    ended = commands.Handle((0,)) if is_told else None
    parked = rules.step(state, commands.WorkReported(orders, 1, commands.RecordsParked((0,), SECOND), ended))

    assert parked.state == Unassigned()
    assert commands.Release(orders) in parked.commands
