"""Every law as a named predicate over a state, a step or a history; one module a subject.

Use them in tests of your own: the properties of this project, its simulator and its tests on real servers use the very
same predicates.
"""

from tidegate.laws import (
    array_push_lock,
    assignment,
    atomic_service,
    backpressure,
    partition,
    snapshot,
    status,
    transition,
    watermark,
)

__all__ = [
    "array_push_lock",
    "assignment",
    "atomic_service",
    "backpressure",
    "partition",
    "snapshot",
    "status",
    "transition",
    "watermark",
]
