"""Hypothesis strategies for the values of `tidegate.leases`, one module per subject."""
