"""Laws of `tidegate.reactive.plan_queries`, over what is to be looked at and what a look would write."""

from __future__ import annotations

from tidegate.reactive.tasks import Leave, PlanVerdict

__all__ = ["no_more_is_looked_at", "what_is_not_looked_at_is_left"]


def what_is_not_looked_at_is_left(verdict: PlanVerdict, *, must_look: bool) -> bool:
    """Law PQ1: what need not be looked at is what a look would leave as it is.

    Args:
        verdict: What a look would write.
        must_look: What the store says.
    """
    return must_look or isinstance(verdict, Leave)


def no_more_is_looked_at(verdict: PlanVerdict, *, must_look: bool, can_tell: bool) -> bool:
    """Law PQ2: what is to be looked at is what a look would write about.

    Args:
        verdict: What a look would write.
        must_look: What the store says.
        can_tell: The store knows all that a look knows.
    """
    return not must_look or not can_tell or not isinstance(verdict, Leave)
