"""Traces, and how they are shown."""
