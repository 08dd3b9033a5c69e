"""Retries are paid for: whatever comes, there are no more of them than the bucket and the answers allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.retries import budget as budgets
from tidegate.retries.budget import Budget, BudgetVerdict, Overspent, Paid
from tidegate.retries.laws import budget as laws


@attrs.frozen
class Bucket:
    """What a client asks: the real functions, but for one that is planted."""

    pay: Callable[[Budget, int], BudgetVerdict] = budgets.pay
    answered: Callable[..., int] = budgets.answered


@st.composite
def rules(draw: st.DrawFn) -> Budget:
    refund = draw(st.integers(1, 5))
    cost = draw(st.integers(refund, 12))
    return Budget(capacity=draw(st.integers(cost, 40)), cost=cost, refund=refund)


def effort(bucket: Bucket) -> settings:
    """A specimen is searched for as long as its profile says."""
    return settings(max_examples=100) if bucket == Bucket() else settings()


def check_course(bucket: Bucket) -> None:
    @effort(bucket)
    @given(rules(), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
    def it_is_kept(rules: Budget, course: list[tuple[bool, bool]]) -> None:
        """Each attempt is a retry or not, and answered or not."""
        left, sent, answers, answered_retries = rules.capacity, 0, 0, 0
        for is_retry, is_answered in course:
            before = left
            if is_retry:
                verdict = bucket.pay(rules, left)
                left = verdict.left
                assert laws.is_within(rules, left), "BU1"
                if isinstance(verdict, Overspent):
                    continue
                sent += 1
            if is_answered:
                left = bucket.answered(rules, left, is_retry=is_retry)
                answers, answered_retries = answers + 1, answered_retries + is_retry
                assert laws.is_free_when_answered(before, left), "BU4"
            assert laws.is_within(rules, left), "BU1"
            assert laws.is_paid_for(rules, sent, answers, answered_retries), "BU2"

    it_is_kept()


def check_recovery(bucket: Bucket) -> None:
    @effort(bucket)
    @given(rules(), st.integers(0, 40), st.integers(0, 15))
    def it_is_kept(rules: Budget, left: int, answers: int) -> None:
        left = min(left, rules.capacity)
        for _ in range(answers):
            left = bucket.answered(rules, left, is_retry=False)
        assert laws.is_sent_again(rules, answers, is_sent=isinstance(bucket.pay(rules, left), Paid)), "BU3"

    it_is_kept()


CHECKS: Mapping[str, Callable[[Bucket], None]] = {
    "BU1": check_course, "BU2": check_course, "BU3": check_recovery, "BU4": check_course,
}  # fmt: skip
PLANTED: Mapping[str, tuple[str, Bucket]] = {
    "without a bound": ("BU1", Bucket(answered=lambda rules, left, **_: left + rules.refund + rules.cost)),
    "on credit": ("BU1", Bucket(pay=lambda rules, left: Paid(left - rules.cost))),
    "for nothing": ("BU2", Bucket(pay=lambda _, left: Paid(left))),
    "answers bring nothing": (
        "BU3",
        Bucket(answered=lambda rules, left, *, is_retry: min(rules.capacity, left + rules.cost * is_retry)),
    ),
    "what worked is lost": ("BU4", Bucket(answered=lambda rules, left, **_: min(rules.capacity, left + rules.refund))),
}


@pytest.mark.parametrize("law", CHECKS)
def test_a_budget_keeps_the_law(law: str) -> None:
    """Laws BU1 to BU4."""
    CHECKS[law](Bucket())


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_budget_breaks_the_law(bug: str) -> None:
    """A law that nothing breaks says nothing."""
    law, bucket = PLANTED[bug]
    with pytest.raises(AssertionError, match=law):
        CHECKS[law](bucket)


def test_the_default_is_that_of_mongodb_s_drivers() -> None:
    """1,000 retries at once, and a tenth of one for each success."""
    assert (Budget().capacity // Budget().cost, Budget().cost // Budget().refund) == (1_000, 10)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Budget(capacity=0),
        lambda: Budget(capacity=5, cost=6),
        lambda: Budget(cost=3, refund=4),
        lambda: Budget(refund=0),
        lambda: budgets.pay(Budget(), -1),
        lambda: budgets.pay(Budget(), 10_001),
        lambda: budgets.answered(Budget(), True, is_retry=False),
        lambda: budgets.pay(7, 1),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


def test_a_refusal_says_what_is_left() -> None:
    assert str(Overspent(3)) == "too many retries: 3 tokens are left"
