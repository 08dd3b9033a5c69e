"""How many invocations may run: concurrency limits and rates."""
