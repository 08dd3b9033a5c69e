"""The laws of `tidegate.model` as predicates, one module a subject."""

from tidegate.model.laws import history

__all__ = ["history"]
