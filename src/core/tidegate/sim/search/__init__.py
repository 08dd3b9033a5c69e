"""The exhaustive search."""
