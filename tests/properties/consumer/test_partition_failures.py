"""After a final failure of a record, in each order."""

from __future__ import annotations

import attrs
import pytest
from tests.properties.consumer.partition_helpers import (
    FLAT,
    TP,
    after,
    course,
    failed,
    handle,
    reported,
    succeeded,
)

from tidegate.consumer import fanout
from tidegate.consumer.flow.backpressure import Load
from tidegate.consumer.offsets.watermark import done_offsets, open_offsets
from tidegate.consumer.partition.partition import (
    FailurePolicy,
    Ordering,
    PartitionRules,
    Phase,
)
from tidegate.consumer.protocol.commands import (
    Assigned,
    Commit,
    Committed,
    Event,
    Fetch,
    Fetched,
    Handle,
    RecordsParked,
    Release,
    RetryTimerFired,
    Revoked,
    StartRetryTimer,
    Work,
    WorkFailed,
    WorkReported,
    WorkUnanswered,
)
from tidegate.model.effects import Cancel
from tidegate.model.instants import SECOND


def test_what_is_before_a_failure_is_finished_and_committed() -> None:
    """Law P4: 1 fails; 1 is committed, 2 is finished and not committed, 3 never starts."""
    rules = PartitionRules(running_max=3, metadata_max=0)
    commanded = course(
        rules,
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1, 2, 3)),
        failed(1, 1),
        succeeded(1, 2),
        succeeded(1, 0),
        Committed(TP, 1, 1),
    )

    assert commanded[2:] == [(Cancel(Fetch(TP, 1, 4)),), (), (Commit(TP, 1, 1),), ()]


def test_what_waits_for_its_key_before_a_failure_is_still_taken() -> None:
    """Law P4: 1 waits for 0 of the same key when 2 fails."""
    rules = PartitionRules(running_max=2, metadata_max=0, ordering=Ordering.BY_KEY)
    fetched = Fetched(TP, 1, (0, 1, 2, 3), (b"k", b"k", b"l", b"m"))
    commanded = course(rules, Assigned(TP, 1, 0), fetched, failed(1, 2), succeeded(1, 0), succeeded(1, 1))

    assert commanded[3] == (Commit(TP, 1, 1), handle(1, 1))
    assert commanded[4] == ()


def test_what_stands_behind_an_answered_failure_is_diverted_in_order() -> None:
    """Law P9: 1 has the key of the failed 0, 2 has another."""
    rules = PartitionRules(2, metadata_max=0, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.DIVERT_KEY)
    fetched = Fetched(TP, 1, (0, 1, 2), (b"k", b"k", b"l"))
    commanded = course(rules, Assigned(TP, 1, 0), fetched, failed(1, 0), reported(fanout.RecordsDelivered(0, (0,))))

    assert commanded[1] == (Fetch(TP, 1, 3), handle(1, 0, 2))
    assert commanded[2] == (Work(TP, 1, fanout.DeliverRecords(0, (0,), (0,)), (0,)),)
    assert commanded[3] == (Commit(TP, 1, 1), Work(TP, 1, fanout.DeliverRecords(1, (1,), (1,)), (1,)))


@pytest.mark.parametrize("is_hooked", [False, True])
def test_all_of_a_partition_is_diverted_where_its_order_is_that_of_offsets(is_hooked: bool) -> None:
    """Law P9. Once a record that was neither queued nor in work at the key check ran."""
    rules = PartitionRules(
        2, hooks=is_hooked, metadata_max=0, ordering=Ordering.BY_OFFSET, failure_policy=FailurePolicy.DIVERT_KEY
    )
    begun = reported(fanout.ArrangeFailed(0)) if is_hooked else failed(1, 0)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), begun, reported(fanout.RecordsDelivered(0, (0,))))

    assert course(rules, *happened)[-1][-1] == Work(TP, 1, fanout.DeliverRecords(1, (1,), (1,)), (1,))


def test_the_rest_of_a_key_is_held_back_and_other_keys_go_on() -> None:
    """Laws P9 and P10: no record of the key starts, and later ones are not even queued."""
    rules = PartitionRules(2, metadata_max=0, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.BLOCK_KEY)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1, 2), (b"k", b"k", None)),
        failed(1, 0),
        Fetched(TP, 1, (3, 4), (b"k", b"l")),
        succeeded(1, 2),
        succeeded(1, 4),
    )
    state = after(rules, *happened)

    assert (state.phase, state.failed, state.queued, state.asked, state.load) == (Phase.FLOWING, (0,), (), (), Load())
    assert open_offsets(state.tracker) == (0, 1, 3)
    assert state.in_work == (0,)


def test_a_failure_holds_up_its_window_where_that_has_a_delivery_of_its_own() -> None:
    """Law P10: 0 and 1 are settled together, so both keys are blocked."""
    windows = fanout.Rules(0, 0, task_delivery=False, record_delivery=False)
    rules = PartitionRules(
        2, 2, fanout=windows, metadata_max=0, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.BLOCK_KEY
    )
    keys = (b"k", b"l", b"l", b"m")
    fetched = Fetched(TP, 1, (0, 1, 2, 3), keys)
    start = fanout.Start(0, (0, 1), 1)
    raised = WorkFailed(TP, 1, start)
    some = reported(fanout.TasksReported(0, (1,), 1, fanout.Report.SUCCEEDED))
    last = reported(fanout.TasksReported(1, (0,), 1, fanout.Report.SUCCEEDED))
    state = after(rules, Assigned(TP, 1, 0), fetched, some, raised, last, reported(fanout.WindowDelivered(1)))

    assert (state.failed, state.queued, state.load, state.running) == ((0, 1), (), Load(), 0)
    assert done_offsets(state.tracker) == (3,)


def test_only_what_was_not_delivered_is_answered_for() -> None:
    """Law P10. Once the delivered record was dead-lettered, too."""
    windows = fanout.Rules(0, 0, task_delivery=False, window_delivery=False)
    rules = PartitionRules(2, 2, fanout=windows, metadata_max=0, failure_policy=FailurePolicy.SKIP)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        reported(fanout.TasksReported(0, (0, 1), 1, fanout.Report.SUCCEEDED)),
        reported(fanout.RecordsDelivered(0, (0,))),
        WorkFailed(TP, 1, fanout.DeliverRecords(0, (0, 1))),
        WorkFailed(TP, 1, fanout.DeliverRecords(0, (1,), (1,))),
    )

    assert course(rules, *happened)[4] == (Work(TP, 1, fanout.DeliverRecords(0, (1,), (1,)), (1,)),)
    assert after(rules, *happened).failed == (1,)


def test_without_hooks_a_failure_is_tried_again_after_a_while() -> None:
    """Law P12: up to the number of retries."""
    rules = PartitionRules(1, fanout=attrs.evolve(FLAT, retries_max=1), metadata_max=0)
    again = Handle((0,), 2)
    happened = (
        *(Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), failed(1, 0)),
        *(RetryTimerFired(TP, 1, again), WorkFailed(TP, 1, again)),
    )

    assert course(rules, *happened)[2:4] == [
        (StartRetryTimer(TP, 1, again, SECOND // 10),),
        (Work(TP, 1, again, (0,)),),
    ]
    assert after(rules, *happened).failed == (0,)


def test_what_is_parked_is_handled_again_at_the_same_attempt_after_its_time() -> None:
    """Law P15: a failure counts as the first."""
    rules = PartitionRules(2, fanout=attrs.evolve(FLAT, retries_max=1), metadata_max=0)
    parked = WorkReported(TP, 1, RecordsParked((0,), 7 * SECOND))
    happened = (
        *(Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2)), parked, RetryTimerFired(TP, 1, Handle((0,)))),
        *(succeeded(1, 1), parked, RetryTimerFired(TP, 1, Handle((0,))), failed(1, 0)),
    )
    commands = course(rules, *happened)
    timer = StartRetryTimer(TP, 1, Handle((0,)), 7 * SECOND)

    assert commands[2] == (timer, handle(1, 2))
    assert commands[3] == ()
    assert commands[4] == (handle(1, 0),)
    assert commands[5] == (timer,)
    assert commands[7] == (StartRetryTimer(TP, 1, Handle((0,), 2), SECOND // 10),)


@pytest.mark.parametrize("ordering", [Ordering.BY_KEY, Ordering.BY_OFFSET])
def test_what_waits_for_a_parked_record_waits(ordering: Ordering) -> None:
    """Laws P8 and P15: with an order by key, other keys go on."""
    rules = PartitionRules(3, ordering=ordering, metadata_max=0)
    parked = WorkReported(TP, 1, RecordsParked((0,), SECOND))
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2), (b"k", b"k", b"l")), parked)
    begun = [each for step in course(rules, *happened) for each in step if isinstance(each, Work)]

    assert [each.offsets for each in begun] == [(0, 2) if ordering is Ordering.BY_KEY else (0,)]


def test_what_is_parked_is_left_to_the_next_owner() -> None:
    """Laws P11 and P15: a revocation cancels its timer."""
    rules = PartitionRules(2, metadata_max=0)
    parked = WorkReported(TP, 1, RecordsParked((0,), SECOND))
    before = course(rules, Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), parked, Revoked(TP))
    behind = course(rules, Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), Revoked(TP), parked)

    assert {Cancel(StartRetryTimer(TP, 1, Handle((0,)), SECOND)), Release(TP)} <= {*before[3]}
    assert Release(TP) in behind[3]
    assert not any(isinstance(each, StartRetryTimer) for each in behind[3])


def test_what_a_command_ends_with_beside_what_is_parked_has_failed() -> None:
    """Laws P14 and P15."""
    rules = PartitionRules(2, metadata_max=0)
    ended = WorkReported(TP, 1, RecordsParked((0,), SECOND), Handle((0, 1)))
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), ended)

    said = {StartRetryTimer(TP, 1, Handle((0,)), SECOND), WorkUnanswered(TP, 1, Handle((1,)))}
    assert said <= {*course(rules, *happened)[2]}
    assert after(rules, *happened).failed == (1,)


def test_replacements_are_ever_further_apart() -> None:
    """Law P12: a replacement waits like a retry, longer with each generation."""
    rules = PartitionRules(1, hooks=True, fanout=attrs.evolve(FLAT, generations_max=3), metadata_max=0)
    happened: list[Event] = [
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0,)),
        reported(fanout.WindowArranged(0, fanout.Tasks(((0,),)))),
    ]
    for number in range(3):
        happened += [
            reported(fanout.TasksReported(0, (number,), 1, fanout.Report.FAILED)),
            reported(fanout.TaskReplaced(0, number, 1, fanout.Tasks(((0,),)))),
            RetryTimerFired(TP, 1, fanout.Start(0, (number + 1,), 1, number)),
        ]
    commands = course(rules, *happened)

    waits = [each.duration for step in commands for each in step if isinstance(each, StartRetryTimer)]
    assert waits == [100_000, 200_000, 400_000]


def test_what_backs_off_is_left_to_the_next_owner() -> None:
    """Laws P5, P11 and P12: a revocation does not wait for it, and its timer is cancelled."""
    rules = PartitionRules(1, fanout=attrs.evolve(FLAT, retries_max=1), metadata_max=0)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), failed(1, 0), Revoked(TP))
    timer = StartRetryTimer(TP, 1, Handle((0,), 2), SECOND // 10)

    assert {Cancel(timer), Release(TP)} <= {*course(rules, *happened)[3]}
