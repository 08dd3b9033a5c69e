"""The laws of `tidegate.invocations` as predicates, one module a subject."""

from tidegate.invocations.checks.laws import (
    admission,
    array_push_lock,
    asking,
    ending,
    enqueueing,
    purging,
    rates,
    recovery,
    status,
    taking,
    transition,
    waiting,
)

__all__ = [
    "admission",
    "array_push_lock",
    "asking",
    "ending",
    "enqueueing",
    "purging",
    "rates",
    "recovery",
    "status",
    "taking",
    "transition",
    "waiting",
]
