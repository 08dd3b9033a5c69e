"""One worker on the simulated Kafka: what it asks the broker, when, and what it is told of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from typing import Any, Final, cast

import pytest
from aiokafka import errors

from tidegate.consumer.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.commands import CommitRefused, Committed, CommitUnknown, Event, Measured, MetadataRefused
from tidegate.consumer.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.partition import PartitionRules
from tidegate.model.instants import SECOND
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.beginnings import Beginnings
from tidegate_adapters.kafka import Worker
from tidegate_adapters.kafka_ports import Client
from tidegate_adapters.simulated_kafka import Network, SimulatedBroker, SimulatedConsumer
from tidegate_adapters.simulated_kafka.requests import OffsetCommit, Partition, Position, Request
from tidegate_adapters.testing import run
from tidegate_adapters.worker_settings import WorkerSettings

EVER: Final = 1_000_000 * SECOND


def played(
    during: Callable[[SimulatedBroker], Awaitable[object]],
    handle: Callable[[Record], Awaitable[object]],
    strike: Callable[[Request], Any] = lambda _: None,
    **told: Any,
) -> None:
    """A worker begins, this happens, and it is asked to stop."""

    async def main(random: Random) -> None:
        broker = SimulatedBroker({"t": 1})
        network = Network(broker, random, strike=lambda _, request: strike(request))

        def connect(*_: object) -> Client:
            options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
            return cast("Client", SimulatedConsumer(network, group_id="g", **options))

        worker = Worker(["t"], handle, bootstrap="simulated", group="g", **told)
        running = asyncio.get_running_loop().create_task(worker.run(connect))
        await during(broker)
        worker.stop()
        await running

    run(main, 1)


def appends(broker: SimulatedBroker, count: int) -> None:
    """Each with a key of three bytes and a value of one."""
    for _ in range(count):
        broker.append("t", 0, b"key")


def test_what_is_held_up_is_measured() -> None:
    """The bytes of keys and values, and the age of the oldest, of what is not done."""
    ages: dict[int, int] = {}

    async def during(broker: SimulatedBroker) -> None:
        await asyncio.sleep(4)
        appends(broker, 3)
        await asyncio.sleep(0.7)
        appends(broker, 1)
        await asyncio.sleep(2)

    async def handle(_: Record) -> None:
        await asyncio.sleep(1)

    def observe(event: Event, _: ConsumerState) -> None:
        if isinstance(event, Measured):
            ages[event.size] = max(event.age, ages.get(event.size, 0))

    limits = PartitionLimits(size=Thresholds(high=1_000, low=1), age=Thresholds(high=EVER, low=1))
    played(during, handle, consumer=ConsumerRules(partition=PartitionRules(limits=limits)), observe=observe)
    assert ages.keys() == {0, 12, 16, 4}
    assert ages[0] == 0
    assert ages[16] > SECOND // 2


def test_commits_keep_their_pace_unless_partitions_are_given_back() -> None:
    """Then they go out at once: in a rebalance, which a heartbeat tells of, and after a stop; and between the two as before."""
    sent_s: list[float] = []

    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 1_000)
        await asyncio.sleep(4)
        broker.group("g").rebalance()
        await asyncio.sleep(4)

    async def handle(_: Record) -> None:
        await asyncio.sleep(0.01)

    def strike(request: Request) -> None:
        if isinstance(request, OffsetCommit):
            sent_s.append(asyncio.get_running_loop().time())

    played(during, handle, strike, consumer=ConsumerRules(executors=1))
    quickly_s = [round(after) for before, after in pairwise(sent_s) if after - before < 0.099]
    assert len(sent_s) > 70
    assert set(quickly_s) == {6, 8}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errors.IllegalGenerationError, CommitRefused),
        (errors.OffsetMetadataTooLargeError, MetadataRefused),
        (errors.UnknownError, CommitUnknown),
        (None, Committed),
    ],
)
def test_what_a_commit_is_answered_is_told(code: Any, kind: type[Event]) -> None:
    """As what it is, and first: refused, refused for what is committed along with it, unknown, taken."""
    told: list[type[Event]] = []
    answers = [code]

    async def during(broker: SimulatedBroker) -> None:
        appends(broker, 1)
        await asyncio.sleep(15)

    async def handle(_: Record) -> None: ...

    def observe(event: Event, _: ConsumerState) -> None:
        if isinstance(event, CommitRefused | MetadataRefused | CommitUnknown | Committed):
            told.append(type(event))

    played(
        during,
        handle,
        lambda request: answers.pop() if answers and isinstance(request, OffsetCommit) else None,
        observe=observe,
    )
    assert told[:1] == [kind]


def test_where_a_partition_begins_that_nothing_is_committed_for_stays_so() -> None:
    """At its end, as it was first asked for: whoever takes it over again leaves nothing out that came meanwhile."""

    async def main(random: Random) -> None:
        broker = SimulatedBroker({"t": 1})
        options: Any = {"auto_offset_reset": "latest"}
        consumer = SimulatedConsumer(Network(broker, random), group_id="g", enable_auto_commit=False, **options)
        consumer.subscribe(["t"])
        await consumer.start()
        await asyncio.sleep(5)
        try:
            told = WorkerSettings(("t",), "simulated", "g", options=options)
            beginnings, partition = Beginnings(cast("Client", consumer), told), TopicPartition("t", 0)
            appends(broker, 3)
            assert await beginnings.known(partition) == (3, "")
            appends(broker, 2)
            assert await beginnings.known(partition) == (3, "")
            broker.commit(OffsetCommit("g", 1, "a", {Partition("t", 0): Position(4, "done")}))
            assert await beginnings.known(partition) == (4, "done")
        finally:
            await consumer.stop()

    run(main, 1)
