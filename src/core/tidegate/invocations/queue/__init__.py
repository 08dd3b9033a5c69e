"""The programs that enqueue, claim, finish and await invocations."""
