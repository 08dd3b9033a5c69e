"""A worker on Kafka: `Worker`, and the types of its arguments and handlers.

Start reading at `worker`; `member` is one life of a worker in its group, `client` wraps aiokafka.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate_adapters.kafka.worker import (
        Decode,
        Estimate,
        HandleRecords,
        Handlers,
        Later,
        Lifespan,
        Observer,
        OnFailure,
        Recording,
        Send,
        Undecodable,
        UserHandler,
        Worker,
    )

__all__ = [
    "Decode",
    "Estimate",
    "HandleRecords",
    "Handlers",
    "Later",
    "Lifespan",
    "Observer",
    "OnFailure",
    "Recording",
    "Send",
    "Undecodable",
    "UserHandler",
    "Worker",
]


def __getattr__(name: str) -> object:
    """Import on first use: reading settings does not need aiokafka."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tidegate_adapters.kafka.worker"), name)
