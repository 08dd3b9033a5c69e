"""The process that runs invocations."""
