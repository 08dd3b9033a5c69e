"""The laws of `tidegate.consumer` as predicates, one module a subject."""

from tidegate.consumer.laws import (
    backpressure,
    commit_metadata,
    drain,
    explanation,
    fanout,
    group,
    partition,
    shutdown,
    watermark,
)

__all__ = [
    "backpressure", "commit_metadata", "drain", "explanation", "fanout", "group", "partition", "shutdown", "watermark",
]  # fmt: skip
