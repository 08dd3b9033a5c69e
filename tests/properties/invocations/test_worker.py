from __future__ import annotations

from typing import Final

import pytest

from tidegate.invocations.queue.completion import Cancelled, End, Failed, GivenBack, RunError, Succeeded
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.worker.worker import Attempt, InvocationResults, UntrackedRun, died, tries_of
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.retries.backoff import Policy
from tidegate.work.vocabulary import InterruptReason, NoAnswer, Run

POLICY: Final = Policy()
RUN: Final = Run("bill", "i", 2, 2 * SECOND, detail=Attempt(3, POLICY))
LATE: Final = Failed(
    RunError("TimeoutError", "it took longer than 2 s", above=("OSError", "Exception", "BaseException")), POLICY
)


@pytest.mark.parametrize(
    ("why", "answer", "result"),
    [
        (None, Failed(RunError("E")), Failed(RunError("E"))),
        (None, NoAnswer.NO_ANSWER, GivenBack()),
        (InterruptReason.CANCEL, NoAnswer.NO_ANSWER, Cancelled()),
        (InterruptReason.CANCEL, Failed(RunError("E")), Cancelled()),
        (InterruptReason.CANCEL, Succeeded(3), Succeeded(3)),
        (InterruptReason.KILL, NoAnswer.NO_ANSWER, GivenBack()),
        (InterruptReason.TOO_LONG, NoAnswer.NO_ANSWER, LATE),
        (InterruptReason.TOO_LONG, Succeeded(3), LATE),
        (InterruptReason.STOPPING, NoAnswer.NO_ANSWER, GivenBack()),
    ],
)
def test_a_run_that_has_succeeded_although_it_was_interrupted_has(
    why: InterruptReason | None, answer: object, result: End
) -> None:
    assert InvocationResults().result(RUN, answer, why) == result


def test_a_run_whose_owners_died_too_often_says_so() -> None:
    said = "5 times whoever ran it died, or was silent for so long that it was taken for dead"
    assert died(5) == Failed(RunError("ProcessDied", said, above=("Exception", "BaseException")))


def test_a_run_tells_its_tries_and_an_untracked_one_its_claim() -> None:
    assert (tries_of(RUN), tries_of(Run("bill", "i", 2))) == (3, 1)
    untracked = UntrackedRun("i", StatusRecord("running", "me", 2), 1)
    assert (untracked.id, untracked.token) == ("i", 2)


def test_what_is_wrong_is_misuse() -> None:
    with pytest.raises(Misuse):
        InvocationResults().result(RUN, 7, None)
    with pytest.raises(Misuse):
        Attempt(0)
