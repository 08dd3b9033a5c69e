"""Hypothesis strategies for the values of `tidegate.reactive`, one module a subject."""
