"""Hypothesis strategies for the values of `tidegate.consumer`, one module a subject."""
