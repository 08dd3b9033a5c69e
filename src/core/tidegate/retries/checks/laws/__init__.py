"""The laws of `tidegate.retries` as predicates, one module a subject."""

from tidegate.retries.checks.laws import backoff, budget, failures, pauses, polling, repeating, schedule

__all__ = ["backoff", "budget", "failures", "pauses", "polling", "repeating", "schedule"]
