from __future__ import annotations

import pytest
from tests.properties.consumer.partition_helpers import (
    TP,
    after,
    course,
    handle,
    reported,
    succeeded,
)

from tidegate.consumer import fanout
from tidegate.consumer.committing.commit_metadata import encoded, surveyed
from tidegate.consumer.flow.backpressure import Free, Held, PartitionLimits, Signal, Thresholds
from tidegate.consumer.flow.drain import Budget, Stage
from tidegate.consumer.offsets.watermark import OffsetTracker, completed, delivered, done_offsets
from tidegate.consumer.partition.partition import (
    Owned,
    PartitionRules,
    Unassigned,
)
from tidegate.consumer.protocol.commands import (
    Assigned,
    Commit,
    Committed,
    CommitUnknown,
    Fetch,
    Fetched,
    Measured,
    Release,
    RetryTimerFired,
    Revoked,
    StartDrainTimer,
    StartRetryTimer,
    Work,
)
from tidegate.model.effects import Cancel
from tidegate.model.instants import SECOND


def test_a_life_from_assignment_to_release() -> None:
    """The header's example."""
    rules = PartitionRules(running_max=2, metadata_max=0)
    commanded = course(
        rules,
        Assigned(TP, 7, 10),
        Fetched(TP, 7, (10, 12, 13)),
        succeeded(7, 12),
        succeeded(7, 10),
        Revoked(TP),
        Committed(TP, 7, 13),
        succeeded(7, 13),
        CommitUnknown(TP, 7, 14),
        RetryTimerFired(TP, 7, None),
        Committed(TP, 7, 14),
    )

    assert commanded == [
        (Fetch(TP, 7, 10),),
        (Fetch(TP, 7, 14), handle(7, 10, 12)),
        (handle(7, 13),),
        (Commit(TP, 7, 13),),
        (
            StartDrainTimer(TP, 7, Stage.WAITING, 14 * SECOND),
            Cancel(Fetch(TP, 7, 14)),
        ),
        (),
        (Commit(TP, 7, 14),),
        (StartRetryTimer(TP, 7, None, SECOND // 10),),
        (Commit(TP, 7, 14),),
        (
            Cancel(StartDrainTimer(TP, 7, Stage.WAITING, 14 * SECOND)),
            Release(TP),
        ),
    ]


def test_a_window_is_taken_when_an_executor_is_free() -> None:
    rules = PartitionRules(1)
    state = rules.step(rules.step(Unassigned(), Assigned(TP, 1, 0)).state, Fetched(TP, 1, (0, 1))).state
    assert isinstance(state, Owned)
    assert (state.running, state.queued, state.in_work) == (1, (1,), (0,))


@pytest.mark.parametrize("metadata_max", [0, 4096])
def test_what_a_former_owner_wrote_is_read_where_metadata_is_used(metadata_max: int) -> None:
    text = encoded(surveyed(completed(delivered(OffsetTracker(0), range(3)), (1,))), limit=4096).text
    taken = PartitionRules(metadata_max=metadata_max).step(Unassigned(), Assigned(TP, 1, 0, metadata=text, end=3)).state
    assert isinstance(taken, Owned)
    assert tuple(done_offsets(taken.tracker)) == ((1,) if metadata_max else ())


def test_a_partition_that_is_assigned_while_it_is_owned_has_a_new_life() -> None:
    """Law P3: the waiting release is answered."""
    rules = PartitionRules(1, metadata_max=0, drain=Budget(SECOND))
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), Revoked(TP), Assigned(TP, 2, 5))

    assert course(rules, *happened)[-1] == (
        Cancel(handle(1, 0)),
        Cancel(StartDrainTimer(TP, 1, Stage.WAITING, SECOND)),
        Release(TP),
        Fetch(TP, 2, 5),
    )


def test_a_partition_is_held_on_its_own_account_and_let_go_again() -> None:
    """Law P6: for undone records, bytes and age. Fetching resumes once all are low."""
    bounds = PartitionLimits(span=Thresholds(2, 1), size=Thresholds(9, 3), age=Thresholds(9, 3), metadata=None)
    rules = PartitionRules(2, metadata_max=0, limits=bounds)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        Measured(TP, 1, 9, 9),
        succeeded(1, 0),
        Measured(TP, 1, 3, 4),
        Measured(TP, 1, 3, 3),
    )
    states = [after(rules, *happened[:count]) for count in range(2, 7)]

    assert [state.hold.by for state in states] == [
        (Signal.SPAN,),
        (Signal.SPAN, Signal.SIZE, Signal.AGE),
        (Signal.SIZE, Signal.AGE),
        (Signal.AGE,),
        (),
    ]
    assert [state.fetching for state in states] == [None, None, None, None, 2]
    assert (states[0].hold, states[-1].hold) == (Held((Signal.SPAN,)), Free())


def test_hooks_arrange_judge_and_deliver() -> None:
    rules = PartitionRules(1, 2, hooks=True, fanout=fanout.Rules(1, 0), metadata_max=0)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        reported(fanout.WindowArranged(0, fanout.Tasks(((0, 1), (1,))))),
        reported(fanout.TasksReported(0, (0,), 1, fanout.Report.FAILED)),
        reported(fanout.TasksReported(0, (1,), 1, fanout.Report.SUCCEEDED)),
        reported(fanout.TasksReported(0, (0,), 1, fanout.Report.RETRIED)),
        RetryTimerFired(TP, 1, fanout.Start(0, (0,), 2)),
        reported(fanout.TasksReported(0, (0,), 2, fanout.Report.SUCCEEDED)),
        reported(fanout.TasksReported(0, (1,), 1, fanout.Report.DELIVERED)),
        reported(fanout.TasksReported(0, (0,), 2, fanout.Report.DELIVERED)),
        reported(fanout.RecordsDelivered(0, (0, 1))),
        reported(fanout.WindowDelivered(0)),
    )

    assert course(rules, *happened)[1:] == [
        (Fetch(TP, 1, 2), Work(TP, 1, fanout.Arrange(0, (0, 1)), (0, 1))),
        (Work(TP, 1, fanout.Start(0, (0,), 1), (0, 1)),),
        (Work(TP, 1, fanout.Judge(0, (0,), 1), (0, 1)), Work(TP, 1, fanout.Start(0, (1,), 1), (1,))),
        (Work(TP, 1, fanout.DeliverTasks(0, (1,), 1), (1,)),),
        (StartRetryTimer(TP, 1, fanout.Start(0, (0,), 2), SECOND // 10),),
        (Work(TP, 1, fanout.Start(0, (0,), 2), (0, 1)),),
        (Work(TP, 1, fanout.DeliverTasks(0, (0,), 2), (0, 1)),),
        (),
        (Work(TP, 1, fanout.DeliverRecords(0, (0, 1)), (0, 1)),),
        (Work(TP, 1, fanout.DeliverWindow(0, fanout.Tally(2, 2, 0, 0)), (0, 1)),),
        (Commit(TP, 1, 2),),
    ]
