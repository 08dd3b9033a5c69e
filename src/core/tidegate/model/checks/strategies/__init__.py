"""Hypothesis strategies for the values of `tidegate.model`, one module a subject."""
