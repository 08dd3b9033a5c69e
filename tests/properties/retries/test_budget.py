"""Retries never exceed the bucket plus the credit of successful answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.retries import budget as budgets
from tidegate.retries.budget import Budget, Overspent, Paid
from tidegate.retries.checks.laws import budget as laws


@st.composite
def rules(draw: st.DrawFn) -> Budget:
    refund = draw(st.integers(1, 5))
    cost = draw(st.integers(refund, 12))
    return Budget(capacity=draw(st.integers(cost, 40)), cost=cost, refund=refund)


@settings(max_examples=100)
@given(rules(), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_a_course_is_paid_for(rules: Budget, course: list[tuple[bool, bool]]) -> None:
    left, sent, answers, answered_retries = rules.capacity, 0, 0, 0
    for is_retry, is_answered in course:
        before = left
        if is_retry:
            verdict = budgets.pay(rules, left)
            left = verdict.left
            assert laws.is_within(rules, left), "BU1"
            if isinstance(verdict, Overspent):
                continue
            sent += 1
        if is_answered:
            left = budgets.answered(rules, left, is_retry=is_retry)
            answers, answered_retries = answers + 1, answered_retries + is_retry
            assert laws.is_free_when_answered(before, left), "BU4"
        assert laws.is_within(rules, left), "BU1"
        assert laws.is_paid_for(rules, sent, answers, answered_retries), "BU2"


@settings(max_examples=100)
@given(rules(), st.integers(0, 40), st.integers(0, 15))
def test_answers_bring_something(rules: Budget, left: int, answers: int) -> None:
    left = min(left, rules.capacity)
    for _ in range(answers):
        left = budgets.answered(rules, left, is_retry=False)
    assert laws.is_sent_again(rules, answers, is_sent=isinstance(budgets.pay(rules, left), Paid)), "BU3"


PAID = "Paid(left - budget.cost) if left >= budget.cost else Overspent(left)"
REFUND = "left + budget.refund + (budget.cost if is_retry else 0)"

test_a_planted_bug_is_found = planted(
    budgets,
    bug(
        "without a bound", (f"min(budget.capacity, {REFUND})", "left + budget.refund + budget.cost"),
        test_a_course_is_paid_for, says="BU1",
    ),
    bug("on credit", (PAID, "Paid(left - budget.cost)"), test_a_course_is_paid_for, says="BU1"),
    bug("for nothing", (PAID, "Paid(left)"), test_a_course_is_paid_for, says="BU2"),
    bug(
        "answers bring nothing", (REFUND, "left + (budget.cost if is_retry else 0)"),
        test_answers_bring_something, says="BU3",
    ),
    bug("what worked is lost", (REFUND, "left + budget.refund"), test_a_course_is_paid_for, says="BU4"),
)  # fmt: skip


def test_the_default_is_that_of_mongodb_s_drivers() -> None:
    """1,000 retries at once, and a tenth of one per success."""
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
