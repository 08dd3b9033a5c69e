from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import Claim, Why, WhyNot
from tidegate.reactive.task import fetching, worker
from tidegate.reactive.task.completion import HandlerAnswer, Later
from tidegate.reactive.task.fetching import Idle, SetAside
from tidegate.work.vocabulary import InterruptReason, NoAnswer, PollResult, Renewal, Result, WriteReply


def run_of(number: int, trouble: str | None = None) -> fetching.Run:
    record = TaskRecord(
        id=f"r{number}", version=2, status=TaskStatus.PROCESSING, snapshot=Document(()), next_run_at=Instant(1),
        due_at=Instant(0), changed_at=Instant(0), waiting_since=None, created_at=Instant(0), attempts=1, token=1, owner="w", claimed_at=Instant(0),
    )  # fmt: skip
    return fetching.Run(number, record, Claim(record.id, "w", 1, record.snapshot, 1, None), trouble)


ONE = worker.run_of("bill", run_of(1), 7)


def test_a_run_has_the_claim_of_its_record() -> None:
    assert (ONE.task, ONE.id, ONE.token, ONE.timeout, ONE.rejected) == ("bill", "r1", 1, 7, None)
    assert worker.runs_of((ONE,)) == (run_of(1),)
    assert worker.run_of("bill", run_of(1, "cannot be computed")).rejected == "cannot be computed"


@pytest.mark.parametrize(
    ("answer", "why", "result"),
    [
        (None, None, None),
        ("it fails", None, "it fails"),
        (Later(7), None, Later(7)),
        ("interrupted", InterruptReason.TOO_LONG, InterruptReason.TOO_LONG.value),
        (None, InterruptReason.TOO_LONG, None),
        (Later(9), InterruptReason.TOO_LONG, Later(9)),
        ("interrupted", InterruptReason.STOPPING, Later(0)),
        (NoAnswer.NO_ANSWER, None, Later(0)),
        (NoAnswer.NO_ANSWER, InterruptReason.LEASE_LOST, Later(0)),
    ],
)
def test_a_handler_that_has_returned_although_it_was_interrupted_has_ended_well(
    answer: object, why: InterruptReason | None, result: HandlerAnswer
) -> None:
    assert worker.TaskResults().result(ONE, answer, why) == result


def test_what_a_poll_has_taken() -> None:
    def polled(*others: object) -> PollResult:
        return worker.poll_result("bill", 7, 3, ((run_of(1),), others))

    assert worker.poll_result("bill", 7, 3, (run_of(1),)) == PollResult((ONE,))
    assert polled(Idle.NOT_CLAIMED) == PollResult((ONE,), lost=1)
    # More is due, although fewer were claimed than requested.
    assert polled(Idle.NOT_CLAIMED, Idle.NOT_CLAIMED) == PollResult((ONE,), is_more=True, lost=2)
    assert polled(SetAside("r", "torn")) == PollResult((ONE,), is_more=True)
    assert polled(Idle.UNHEARD) == PollResult((ONE,), is_uncertain=True)
    # The next request must ask for more than the held records; a late write of one may still be
    # carried out.
    assert polled(Idle.HELD) == PollResult((ONE,), lost=1, is_uncertain=True)


def test_what_became_of_renewals() -> None:
    verdicts = (Why.RENEWED, Why.COMPLETING, WhyNot.ANOTHER_CLAIM, None)
    assert worker.renewals(verdicts) == (Renewal.RENEWED, Renewal.BUSY, Renewal.LOST, Renewal.UNKNOWN)


@pytest.mark.parametrize(
    ("verdict", "is_more"),
    [
        (Why.SUCCEEDED, False),
        (Why.RUNS_AGAIN, True),
        (WhyNot.ENDED, True),
        (WhyNot.ANOTHER_CLAIM, False),
        (None, False),
    ],
)
def test_a_record_that_has_changed_while_it_was_processed_is_due_at_once(
    verdict: Why | WhyNot | None, is_more: bool
) -> None:
    """Its handler, or a request whose reply was lost, may have completed it before a change."""
    results = (Result(ONE, 1, Later(5)),)
    left, dues = ((), (5,)) if verdict is not None else (results, ())
    assert worker.write_reply(results, (verdict,)) == WriteReply(left, is_more, dues=dues)
    assert worker.ends(results) == ((run_of(1), Later(5)),)


@pytest.mark.parametrize(
    "wrong",
    [lambda: worker.TaskResults().result(ONE, 7, None), lambda: worker.poll_result("bill", None, 3, ("x",))],
)
def test_what_is_wrong_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
