"""Hypothesis strategies for the values of `tidegate.invocations`, one module a subject."""
