"""Transactions of a position and the handlers' answers; the scenarios `transactions` explore the
laws.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.checks import laws
from tidegate.consumer.committing.commit_metadata import encoded, surveyed
from tidegate.consumer.offsets.watermark import OffsetTracker, completed, delivered, low_watermark
from tidegate.consumer.protocol.commands import METADATA_REFUSED, Commit, CommitUnknown, event_for
from tidegate.consumer.worker.transactions import (
    FENCED,
    BeginTransaction,
    CommitTransaction,
    Fence,
    ReadPosition,
    SendAnswers,
    SendPosition,
    Tenure,
    Together,
    answers_due,
    commit_together,
    take_over,
    transactional_id,
)
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, Program, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition

PARTITION: Final = TopicPartition("orders", 3)
COMMIT: Final = Commit(PARTITION, 7, 5, "text")
BEFORE: Final = Tenure(1, 2, "")
LOST: Final = Ambiguous("no reply")


def ran(
    program: Program[object], replies: Mapping[type[Effect[object]], list[object]]
) -> tuple[list[Effect[object]], object]:
    """Each kind of effect gets its replies in order, the last one for ever."""
    asked: list[Effect[object]] = []
    left = {kind: [*given] for kind, given in replies.items()}
    reply: object = None
    while True:
        try:
            effect = program.throw(reply.fresh()) if isinstance(reply, Failure) else program.send(reply)
        except StopIteration as stop:
            return asked, stop.value
        asked.append(effect)
        told = left.get(type(effect), [None])
        reply = told.pop(0) if len(told) > 1 else told[0]


def kinds(asked: list[Effect[object]]) -> list[type[Effect[object]]]:
    return [type(effect) for effect in asked]


def test_who_takes_over_fences_before_it_reads() -> None:
    """Otherwise a late commit of its predecessor is handled again, and seen twice (EO1)."""
    asked, found = ran(take_over(PARTITION), {Fence: [4], ReadPosition: [(2, "text")]})

    assert kinds(asked) == [Fence, ReadPosition]
    assert found == Tenure(4, 2, "text")


def test_answers_and_position_go_into_one_transaction() -> None:
    """Law EO2: begun, filled and committed under one epoch."""
    asked, found = ran(commit_together(COMMIT, (3, 4), BEFORE), {})

    expected: list[Effect[object]] = [
        BeginTransaction(PARTITION, 1),
        SendAnswers(PARTITION, 1, (3, 4)),
        SendPosition(PARTITION, 1, 5, "text"),
        CommitTransaction(PARTITION, 1),
    ]
    assert asked == expected
    assert found == Together(None, Tenure(1, 5, "text"))


def test_without_answers_the_position_is_alone() -> None:
    asked, _ = ran(commit_together(COMMIT, (), BEFORE), {})

    assert kinds(asked) == [BeginTransaction, SendPosition, CommitTransaction]


STEPS: Final = (BeginTransaction, SendAnswers, SendPosition, CommitTransaction)


@pytest.mark.parametrize("failing", STEPS)
def test_who_is_fenced_asks_for_nothing_more(failing: type[Effect[object]]) -> None:
    """Law EO3: it does not fence the member that fenced it."""
    asked, found = ran(commit_together(COMMIT, (3,), BEFORE), {failing: [FENCED]})

    assert kinds(asked) == [*STEPS[: STEPS.index(failing) + 1]]
    assert found == Together(FENCED, BEFORE)


@pytest.mark.parametrize("failing", STEPS)
@pytest.mark.parametrize("failure", [LOST, NotApplied("not sent"), Refused("too large")], ids=repr)
@pytest.mark.parametrize(
    ("there", "reply"),
    [((5, "text"), None), ((2, ""), NotApplied), ((3, "text"), FENCED)],
    ids=["committed", "not committed", "somebody else has committed"],
)
def test_a_transaction_that_fails_is_ended_by_a_fence_and_the_position_tells_what_it_came_to(
    failing: type[Effect[object]], failure: Failure, there: tuple[int, str], reply: object
) -> None:
    """Laws EO1 and EO2: nothing is sent again before the result is known."""
    asked, found = ran(commit_together(COMMIT, (3,), BEFORE), {failing: [failure], Fence: [2], ReadPosition: [there]})

    assert isinstance(found, Together)
    assert kinds(asked) == [*STEPS[: STEPS.index(failing) + 1], Fence, ReadPosition]
    assert found.tenure in (Tenure(2, *there), BEFORE)
    assert found.reply == reply if reply is not NotApplied else found.reply == NotApplied(failure.reason)


def test_whoever_does_not_answer_is_asked_again() -> None:
    replies: dict[type[Effect[object]], list[object]] = {
        CommitTransaction: [LOST], Fence: [LOST, 2, 3], ReadPosition: [LOST, (5, "text")],
    }  # fmt: skip
    asked, found = ran(commit_together(COMMIT, (3,), BEFORE), replies)

    assert kinds(asked) == [*STEPS, Fence, Sleep, Fence, ReadPosition, Sleep, Fence, ReadPosition]
    assert found == Together(None, Tenure(3, 5, "text"))


def test_who_is_no_member_any_more_does_not_fence() -> None:
    asked, found = ran(commit_together(COMMIT, (3,), BEFORE), {SendPosition: [LOST], Fence: [FENCED]})

    assert kinds(asked) == [*STEPS[:3], Fence]
    assert found == Together(FENCED, BEFORE)


def test_metadata_that_is_too_large_is_said_to_be() -> None:
    _, found = ran(
        commit_together(COMMIT, (), BEFORE), {SendPosition: [METADATA_REFUSED], Fence: [2], ReadPosition: [(2, "")]}
    )
    _, other = ran(commit_together(COMMIT, (), BEFORE), {SendPosition: [LOST], Fence: [2], ReadPosition: [(2, "")]})

    assert isinstance(found, Together)
    assert isinstance(other, Together)
    assert found.reply == METADATA_REFUSED
    assert isinstance(event_for(COMMIT, other.reply), CommitUnknown)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 12))
def test_the_answers_of_what_a_commit_covers_are_due(done: set[int], answered: set[int], limit: int) -> None:
    """Laws EO2 and EO4: covered is below the position, or in the metadata that fits."""
    tracker = completed(delivered(OffsetTracker(0), range(41)), sorted(done))
    text = encoded(surveyed(tracker), limit=limit)
    commit = Commit(PARTITION, 1, low_watermark(tracker), text.text)
    covered = {*range(commit.position), *(offset for offset in done if offset < text.stop and text.text)}

    assert answers_due(commit, answered) == tuple(sorted(answered & covered))
    assert laws.transactions.covers_what_is_handled(answers_due(commit, done), done)
    assert laws.transactions.all_is_covered(covered, answers_due(commit, answered))


def test_what_the_laws_of_transactions_say() -> None:
    """Laws EO1, EO2, EO3, EO4 and EO5, each where it holds and where it does not."""
    assert laws.transactions.seen_at_most_once((1, 2, 3))
    assert not laws.transactions.seen_at_most_once((1, 2, 1))
    assert laws.transactions.appear_together((2, 1), (1, 2))
    assert not laws.transactions.appear_together((1,), (1, 2))
    assert not laws.transactions.appear_together((1, 2), (1,))
    assert laws.transactions.writes_nothing_when_fenced(3, 3)
    assert not laws.transactions.writes_nothing_when_fenced(2, 3)
    assert laws.transactions.covers_what_is_handled((1,), (1, 2))
    assert not laws.transactions.covers_what_is_handled((1, 2), (1,))
    assert laws.transactions.position_never_falls(1, 1)
    assert not laws.transactions.position_never_falls(2, 1)
    assert laws.transactions.all_is_covered((0, 1, 2), (0, 2))
    assert not laws.transactions.all_is_covered((0,), (0, 2))


_PLACES: Final = st.tuples(
    st.text("ab:.", min_size=1, max_size=4),
    st.builds(TopicPartition, st.text("ab.", min_size=1, max_size=4), st.integers(0, 2)),
)


@given(_PLACES, _PLACES)
def test_no_two_partitions_of_groups_share_an_id(
    here: tuple[str, TopicPartition], there: tuple[str, TopicPartition]
) -> None:
    """Otherwise one would fence the other."""
    assert (transactional_id(*here) == transactional_id(*there)) is (here == there)


def test_what_has_no_id_is_misuse() -> None:
    with pytest.raises(Misuse, match="a group"):
        transactional_id("", PARTITION)
    with pytest.raises(Misuse, match="a partition"):
        transactional_id("group", "orders-3")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="a commit"):
        answers_due("commit", ())  # type: ignore[arg-type]


def test_what_is_asked_and_found_reads_as_a_line() -> None:
    asked, found = ran(
        commit_together(attrs.evolve(COMMIT, metadata=""), (3,), BEFORE),
        {CommitTransaction: [LOST], Fence: [2], ReadPosition: [(2, "")]},
    )

    assert [
        *map(str, asked),
        str(found),
        str(Together(None, Tenure(1, 5, "text"))),
        str(SendPosition(PARTITION, 1, 5, "text")),
    ] == [
        "begin a transaction of orders-3 (epoch 1)",
        "send answers of orders-3 [3] (epoch 1)",
        "send position 5 of orders-3 (epoch 1)",
        "commit the transaction of orders-3 (epoch 1)",
        "fence orders-3",
        "read the position of orders-3",
        "NotApplied(no reply): 2 (epoch 2)",
        "committed: 5 with metadata (epoch 1)",
        "send position 5 of orders-3 and 4 characters of metadata (epoch 1)",
    ]
