"""Hypothesis strategies for the values of `tidegate.services`, one module a subject."""
