from __future__ import annotations

import attrs
from hypothesis import given

from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.checks.strategies.tasks import records
from tidegate.reactive.record.task_records import Ended, RunEnd, TaskRecord, TaskStatus
from tidegate.reactive.record.timeline import Moment, What, story


@given(records())
def test_moments_come_in_order_and_each_run_once(record: TaskRecord) -> None:
    """Law TL1."""
    moments = story(record)
    assert [each.at.at for each in moments] == sorted(each.at.at for each in moments)
    remembered = [*record.history, record.last_success]
    runs = {*remembered} - {None}
    ended = [each for each in moments if each.what is What.ENDED]
    assert len(ended) == len(
        [
            each
            for n, each in enumerate(remembered)
            if each is not None and (n < len(record.history) or each not in record.history)
        ]
    )
    assert {(each.at, each.token, each.error) for each in ended} == {
        (run.at, run.token, run.error) for run in runs if run
    }
    assert moments.count(Moment(record.created_at, What.SEEN)) == 1


def test_a_story_is_told_from_the_first_look_to_what_comes_next() -> None:
    failed = RunEnd(2, Ended.FAILED, Instant(9 * SECOND), 2 * SECOND, "no answer")
    record = TaskRecord(
        id="r",
        version=7,
        status=TaskStatus.PENDING,
        snapshot=None,
        next_run_at=Instant(20 * SECOND),
        due_at=Instant(6 * SECOND),
        changed_at=Instant(5 * SECOND),
        waiting_since=None,
        created_at=Instant(0),
        first_error_at=Instant(9 * SECOND),
        last_error="no answer",
        last_success=RunEnd(1, Ended.SUCCEEDED, Instant(3 * SECOND), SECOND),
        history=(failed,),
    )
    assert [str(each) for each in story(record)] == [
        "0 s@store: first seen",
        "2 s@store: a run began",
        "3 s@store: a run ended after 1 s, succeeded",
        "5 s@store: changed, or reset",
        "7 s@store: a run began",
        "9 s@store: a run ended after 2 s, failed",
        "9 s@store: failing since then",
        "20 s@store: due, pending",
    ]
    assert "no answer" not in repr(story(record))
    claimed = attrs.evolve(record, status=TaskStatus.PROCESSING, owner="w", claimed_at=Instant(10 * SECOND), token=3)
    assert [str(each) for each in story(claimed)][-2:] == [
        "10 s@store: claimed, by w",
        "20 s@store: the lease ends, processing",
    ]
