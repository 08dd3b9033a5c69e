"""The laws of `tidegate.services` as predicates, one module per subject."""

from tidegate.services.checks.laws import atomic_service, executions, membership, retention

__all__ = ["atomic_service", "executions", "membership", "retention"]
