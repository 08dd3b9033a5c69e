"""When a partition is paused, drained, and where it begins."""
