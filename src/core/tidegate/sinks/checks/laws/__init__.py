"""The laws of `tidegate.sinks` as predicates, one module a subject."""

from tidegate.sinks.checks.laws import circuit_breaker, dead_letters, delivery, letter_writing, outbox, replay

__all__ = ["circuit_breaker", "dead_letters", "delivery", "letter_writing", "outbox", "replay"]
