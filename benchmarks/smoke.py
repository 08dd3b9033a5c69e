"""A smoke run, `TIDEGATE_SMOKE=1 python -m benchmarks.NAME`: so little of each row that it shows only that the benchmark runs.

It leaves out what has to be installed first, and takes the servers of TIDEGATE_MONGODB_URI and TIDEGATE_KAFKA_BOOTSTRAP, if set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, final

SMOKE: Final = bool(os.environ.get("TIDEGATE_SMOKE"))
T = TypeVar("T")


def sized(full: T, little: T) -> T:
    """How much there is to do."""
    return little if SMOKE else full


@final
class _Given:
    """A server of somebody else's, as far as benchmarks use one."""

    def __init__(self, address: str) -> None:
        self.uri = self.bootstrap = address

    def create_topic(self, name: str, partitions: int) -> None:
        from tests.integration.servers import create_topic  # noqa: PLC0415  as below

        create_topic(self.bootstrap, name, partitions)


@contextmanager
def mongo(**told: Any) -> Iterator[Any]:
    """A replica set; not its own in a smoke run that is given one."""
    from tests.integration.servers import MongoServer  # noqa: PLC0415  benchmarks of the core need no drivers

    if SMOKE and (given := os.environ.get("TIDEGATE_MONGODB_URI")):
        yield _Given(given)
        return
    with MongoServer(**told) as server:
        yield server


@contextmanager
def kafka() -> Iterator[Any]:
    """A broker, likewise."""
    from tests.integration.servers import KafkaServer  # noqa: PLC0415  as above

    if SMOKE and (given := os.environ.get("TIDEGATE_KAFKA_BOOTSTRAP")):
        yield _Given(given)
        return
    with KafkaServer() as server:
        yield server
