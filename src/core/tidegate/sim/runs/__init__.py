"""Random runs, replay, shrinking, and reports."""
