"""Hypothesis strategies for the values of `tidegate.sinks`, one module a subject."""
