"""Transactions for `kafka_runs`: aiokafka's producers, which fail at times, and a reader."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias, final

from aiokafka import errors

from tidegate_adapters.kafka.client import WRITES, Producing
from tidegate_adapters.testing.kafka import (
    CODES,
    Network,
    Outcome,
    SimulatedBroker,
    SimulatedConsumer,
    SimulatedProducer,
)
from tidegate_adapters.testing.kafka.requests import (
    OF_PRODUCERS,
    AddPartitionsToTxn,
    Code,
    Partition,
    Produce,
    Request,
    Written,
)

Place: TypeAlias = tuple[int, int]
OUT: Final = "out"
_TROUBLE: Final = 0.05
"""The rate of each: failure before the request is carried out, failure after, refusal."""
_LIES: Final = {
    (Produce, errors.DuplicateSequenceNumber),
    (AddPartitionsToTxn, errors.TopicAuthorizationFailedError),
}
"""A real broker sends them only where true; aiokafka writes to a forbidden topic all the same."""
_SOMEBODY: Final = "somebody"
_READS: Final[Mapping[str, Any]] = {
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
}


def producing(network: Network, client: str, name: str) -> tuple[SimulatedProducer, Producing]:
    made = SimulatedProducer(network, client_id=client, transactional_id=name, **WRITES)
    return made, Producing(made, is_transactional=True)


async def fence(network: Network, name: str) -> None:
    made, _ = producing(network, _SOMEBODY, name)
    await made.start()
    await made.stop()


def trouble(random: Random, client: str, request: Request) -> Outcome | Code | None:
    if not isinstance(request, OF_PRODUCERS) or client == _SOMEBODY:
        return None
    drawn = random.random() / _TROUBLE
    if drawn < 1:
        return Outcome.UNSENT
    if drawn < 2:
        return Outcome.LOST_REPLY
    codes = [code for code in CODES[type(request)] if (type(request), code) not in _LIES]
    return random.choice(codes) if drawn < 3 else None


def place_of(value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> Place:
    said = dict(headers)
    place = (value or b"").split() if not said else (said["__dlq.errors.partition"], said["__dlq.errors.offset"])
    number, offset = (int(each or b"") for each in place)
    return number, offset


def places_in(broker: SimulatedBroker, partition: Partition, offsets: Sequence[int]) -> list[Place]:
    return [place_of(*broker.logs[partition].written.get(at, Written())) for at in offsets]


@final
class Reader:
    def __init__(self, network: Network, *topics: str) -> None:
        self.found: dict[tuple[str, int, int], Place] = {}
        consumer: Any = SimulatedConsumer(network, group_id="readers", client_id="reader", **_READS)
        consumer.subscribe(topics)
        self._task = asyncio.get_running_loop().create_task(self._reading(consumer), name="reader")

    @property
    def seen(self) -> Counter[Place]:
        return Counter(self.found.values())

    async def _reading(self, consumer: SimulatedConsumer) -> None:
        await consumer.start()
        try:
            while True:
                for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                    for each in records:
                        self.found[(*partition, each.offset)] = place_of(each.value, each.headers)
        finally:
            consumer.kill()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
