"""Hypothesis strategies for the values of `tidegate.triggers`, one module per subject."""
