"""The laws of `tidegate.consumer` as predicates, one module per subject."""

from tidegate.consumer.checks.laws import (
    backpressure,
    batching,
    beginning,
    commit_answers,
    commit_metadata,
    consumer,
    drain,
    explanation,
    fanout,
    health,
    partition,
    transactions,
    watermark,
    worker,
)

__all__ = [
    "backpressure", "batching", "beginning", "commit_answers", "commit_metadata", "consumer", "drain", "explanation", "fanout", "health", "partition",
    "transactions", "watermark", "worker",
]  # fmt: skip
