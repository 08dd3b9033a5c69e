"""The simulator: explores the interleavings and faults of programs and reducers."""
