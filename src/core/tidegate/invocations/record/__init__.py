"""The record of an invocation, its statuses and transitions."""
