"""The laws of `tidegate.sinks` as predicates, one module a subject."""

from tidegate.sinks.checks.laws import circuit_breaker, dead_letters, dead_records, delivery, letter_writing, outbox

__all__ = ["circuit_breaker", "dead_letters", "dead_records", "delivery", "letter_writing", "outbox"]
