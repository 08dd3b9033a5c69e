"""The laws of `tidegate.model` as predicates, one module a subject."""

from tidegate.model.checks.laws import history

__all__ = ["history"]
