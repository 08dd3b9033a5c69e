"""Runs reducers and programs, and calls handlers."""
