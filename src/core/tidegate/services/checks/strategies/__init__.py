"""Hypothesis strategies for the values of `tidegate.services`, one module per subject."""
