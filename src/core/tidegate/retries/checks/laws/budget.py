"""The laws of `tidegate.retries.budget` as predicates over a course of attempts."""

from __future__ import annotations

from tidegate.retries.budget import Budget


def is_within(budget: Budget, left: int) -> bool:
    """Law BU1."""
    return 0 <= left <= budget.capacity


def is_paid_for(budget: Budget, retries: int, answers: int, answered_retries: int) -> bool:
    """Law BU2; `answers` includes `answered_retries`."""
    return retries * budget.cost <= budget.capacity + answers * budget.refund + answered_retries * budget.cost


def is_sent_again(budget: Budget, answers_in_a_row: int, *, is_sent: bool) -> bool:
    """Law BU3."""
    return is_sent or answers_in_a_row * budget.refund < budget.cost


def is_free_when_answered(before: int, after: int) -> bool:
    """Law BU4."""
    return after >= before
