"""Hypothesis strategies for the values of `tidegate.retries`, one module a subject."""
