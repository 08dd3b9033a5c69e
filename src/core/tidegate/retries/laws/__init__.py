"""The laws of `tidegate.retries` as predicates, one module a subject."""

from tidegate.retries.laws import polling, retry, schedule

__all__ = ["polling", "retry", "schedule"]
