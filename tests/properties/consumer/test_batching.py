"""The role of a batch in a partition's windows: a table over all kinds of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.checks.laws.batching import counts_as_a_whole, is_one_task, is_taken, tries_again
from tidegate.consumer.fanout import (
    Arrange,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Judge,
    Report,
    Start,
    Tally,
    Tasks,
    UserRequest,
)
from tidegate.consumer.protocol.batching import BatchAnswer, CallEnd, Counted, Nothing, RunBatch, batch_answer, counted
from tidegate.model.errors import Misuse

NUMBERS: Final = st.integers(0, 5)
OFFSETS: Final = st.sets(NUMBERS, min_size=1).map(lambda found: tuple(sorted(found)))
REQUESTS: Final[st.SearchStrategy[UserRequest]] = st.one_of(
    st.builds(Arrange, NUMBERS, OFFSETS),
    *(st.builds(kind, NUMBERS, st.just((0,)), st.integers(1, 5)) for kind in (Start, Judge, DeliverTasks)),
    st.builds(DeliverRecords, NUMBERS, OFFSETS),
    st.builds(DeliverWindow, NUMBERS, st.just(Tally(1, 1, 0, 0))),
)
LAWS: Final = (is_one_task, tries_again, is_taken)


@given(REQUESTS)
def test_a_window_is_one_task_that_is_tried_again(request: UserRequest) -> None:
    """Laws BT1 to BT3."""
    answer = batch_answer(request)

    assert [law.__name__ for law in LAWS if not law(request, answer)] == []
    if isinstance(request, Start):
        assert answer == RunBatch(request.attempt)


def test_every_kind_of_request_is_tried() -> None:
    assert {*get_args(UserRequest)} == {Arrange, Start, Judge, DeliverTasks, DeliverRecords, DeliverWindow}


@given(st.integers(0, 100), st.sampled_from(CallEnd))
def test_a_batch_counts_as_a_whole(records: int, end: CallEnd) -> None:
    """Law BT4."""
    assert counts_as_a_whole(records, end, counted(records, end))


Answers: TypeAlias = Callable[[UserRequest], BatchAnswer]


def instead(kind: type[UserRequest], answer: Callable[[UserRequest], BatchAnswer]) -> Answers:
    return lambda request: answer(request) if isinstance(request, kind) else batch_answer(request)


def alone(request: UserRequest) -> BatchAnswer:
    assert isinstance(request, Arrange)
    return Tasks(tuple((each,) for each in request.offsets))


def but_one(request: UserRequest) -> BatchAnswer:
    assert isinstance(request, Arrange)
    return Tasks((request.offsets[1:],))


ARRANGE, START, JUDGE = Arrange(0, (3, 4, 7)), Start(0, (0,), 1), Judge(0, (0,), 2)
WRONG: Final[dict[str, tuple[int, UserRequest, Answers]]] = {
    "each record is a task": (0, ARRANGE, instead(Arrange, alone)),
    "a record is left out": (0, ARRANGE, instead(Arrange, but_one)),
    "what has failed is skipped": (1, JUDGE, instead(Judge, lambda _: Report.SKIPPED)),
    "what has failed counts as done": (2, JUDGE, instead(Judge, lambda _: Report.SUCCEEDED)),
    "the handler is not called": (2, START, instead(Start, lambda _: Nothing())),
    "records are delivered again": (2, DeliverRecords(0, (3,)), instead(DeliverRecords, lambda _: RunBatch(1))),
}


@pytest.mark.parametrize(("law", "request_", "wrong"), WRONG.values(), ids=list(WRONG))
def test_each_law_is_broken_by_a_planted_bug(law: int, request_: UserRequest, wrong: Answers) -> None:
    """Laws BT1 to BT3."""
    assert LAWS[law](request_, batch_answer(request_))
    assert not LAWS[law](request_, wrong(request_))


@pytest.mark.parametrize(
    ("end", "count"),
    [
        (CallEnd.RAISED, Counted(handled=4, failures=1)),
        (CallEnd.RAISED, Counted(failures=4)),
        (CallEnd.INTERRUPTED, Counted(failures=1)),
        (CallEnd.RETURNED, Counted(handled=1)),
    ],
)
def test_what_counts_in_part_breaks_the_law(end: CallEnd, count: Counted) -> None:
    """Law BT4."""
    assert not counts_as_a_whole(4, end, count)


def test_bad_input_is_refused() -> None:
    with pytest.raises(Misuse, match="a request of a window"):
        batch_answer("arrange")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="a number of records"):
        counted(-1, CallEnd.RAISED)
    with pytest.raises(Misuse, match="how a call has ended"):
        counted(1, "raised")  # type: ignore[arg-type]
