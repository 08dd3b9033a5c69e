"""Hypothesis strategies for the values of `tidegate.payloads`, one module a subject."""
