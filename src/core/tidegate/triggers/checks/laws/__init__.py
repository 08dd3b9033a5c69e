"""The laws of `tidegate.triggers` as predicates, one module per subject."""

from tidegate.triggers.checks.laws import conditions, evaluator, firing, noticing, trigger, turn

__all__ = ["conditions", "evaluator", "firing", "noticing", "trigger", "turn"]
