from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.instants import SECOND
from tidegate.model.records import Record
from tidegate_adapters.kafka.worker import OnFailure, Worker

IN_TIME_S = 30.0
IN_TIME = 30 * SECOND
SOON_MS = 200
"""The greatest age of cluster metadata."""
LATE_MS = 300_000
"""The client's default."""
MEGABYTE = 1_000_000
Place = tuple[str, int, int]


class World:
    def __init__(self, bootstrap: str, admin: Any, producer: Any) -> None:
        self.bootstrap, self._admin, self._producer = bootstrap, admin, producer
        self.begun: list[Place] = []
        self.handled: list[Place] = []
        self.goes_on = asyncio.Event()
        """Set to release the handlers that wait."""
        self.waits = ""
        """Handlers wait at records of this topic."""

    async def handle(self, record: Record) -> None:
        place = record.topic, record.partition, record.offset
        self.begun.append(place)
        if record.topic == self.waits:
            await self.goes_on.wait()
        if record.value == b"fails":
            raise ValueError("it fails")
        self.handled.append(place)

    @asynccontextmanager
    async def worker(self, *topics: str, age_ms: int = SOON_MS, **more: Any) -> AsyncGenerator[str, None]:
        group = f"group-{uuid.uuid4().hex}"
        rules = ConsumerRules(partition=PartitionRules(drain=Budget(2 * IN_TIME, SECOND, SECOND)))
        worker = Worker(
            topics, self.handle, bootstrap=self.bootstrap, group=group, consumer=rules, grace=timedelta(microseconds=3 * IN_TIME),
            metadata_max_age_ms=age_ms, **more,
        )  # fmt: skip
        run = asyncio.create_task(worker.run())
        try:
            yield group
        finally:
            worker.stop()
            await run

    async def create(self, topic: str, partitions: int) -> None:
        async with asyncio.timeout(IN_TIME_S):
            while not await self._is_created(topic, partitions):  # noqa: ASYNC110  it is the broker's state
                await asyncio.sleep(0.05)

    async def _is_created(self, topic: str, partitions: int) -> bool:
        answer = await self._admin.create_topics([NewTopic(topic, partitions, 1)])
        return all(code == 0 for _, code, _ in answer.topic_errors)

    async def grow(self, topic: str, partitions: int) -> None:
        await self._admin.create_partitions({topic: NewPartitions(partitions)})

    async def delete(self, topic: str) -> None:
        await self._admin.delete_topics([topic])

    async def send(self, topic: str, partitions: int, count: int = 5, value: bytes = b"x") -> None:
        async with asyncio.timeout(IN_TIME_S):
            while len(await self._producer.partitions_for(topic)) < partitions:
                await self._producer.client.force_metadata_update()
        sent = [
            await self._producer.send(topic, value, partition=each) for each in range(partitions) for _ in range(count)
        ]
        await asyncio.gather(*sent)

    async def until(self, handled: int) -> None:
        await until(lambda: len(self.handled) >= handled)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        found = await self._admin.list_consumer_group_offsets(group)
        return {tuple(partition): entry.offset for partition, entry in found.items()}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(IN_TIME_S):
        while not is_so():  # noqa: ASYNC110  it is the broker's state
            await asyncio.sleep(0.02)


@asynccontextmanager
async def world(bootstrap: str) -> AsyncGenerator[World, None]:
    admin, producer = AIOKafkaAdminClient(bootstrap_servers=bootstrap), AIOKafkaProducer(bootstrap_servers=bootstrap)
    await admin.start()
    await producer.start()
    try:
        yield World(bootstrap, admin, producer)
    finally:
        await producer.stop()
        await admin.close()


def places(topic: str, partitions: int, records: int) -> list[Place]:
    return [(topic, partition, offset) for partition in range(partitions) for offset in range(records)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "tidegate_adapters.kafka"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    caplog.set_level(logging.INFO, "tidegate_adapters.kafka")


@pytest.mark.parametrize("is_pattern", [False, True], ids=["name", "pattern"])
def test_a_topic_that_is_not_there_is_consumed_once_it_is(
    kafka: str, caplog: pytest.LogCaptureFixture, *, is_pattern: bool
) -> None:
    topic = f"later-{uuid.uuid4().hex}"
    name, age_ms = (f"^{topic}.*", SOON_MS) if is_pattern else (topic, LATE_MS)

    async def scenario() -> None:
        async with world(kafka) as there, there.worker(name, age_ms=age_ms):
            await asyncio.sleep(3 * SOON_MS / 1_000)
            await there.create(topic, 2)
            await there.send(topic, 2)
            await there.until(10)
            assert sorted(there.handled) == places(topic, 2, 5)

    asyncio.run(scenario())
    expected = [f"there is no topic {topic}; it is consumed as soon as it is there", f"there is a topic {topic} now"]
    assert [each for each in said(caplog) if each.startswith("there is")] == ([] if is_pattern else expected)


def test_records_of_new_partitions_are_consumed_from_their_beginning(kafka: str) -> None:
    topic = f"grows-{uuid.uuid4().hex}"

    async def scenario() -> None:
        async with world(kafka) as there:
            await there.create(topic, 1)
            await there.send(topic, 1)
            async with there.worker(topic) as group:
                await there.until(5)
                await there.grow(topic, 3)
                await there.send(topic, 3)
                await there.until(20)
            assert sorted(there.handled) == sorted(
                [*places(topic, 3, 5), *((topic, 0, offset) for offset in range(5, 10))]
            )
            assert await there.committed(group) == {(topic, 0): 10, (topic, 1): 5, (topic, 2): 5}

    asyncio.run(scenario())


def test_a_topic_that_is_deleted_holds_up_no_other(kafka: str, caplog: pytest.LogCaptureFixture) -> None:
    """No commit can succeed, so the worker gives it up before the drain ends."""
    gone, stays = (f"{name}-{uuid.uuid4().hex}" for name in ("gone", "stays"))

    async def scenario() -> None:
        async with world(kafka) as there:
            there.waits = gone
            for topic in (gone, stays):
                await there.create(topic, 2)
                await there.send(topic, 2)
            async with there.worker(gone, stays) as group:
                await there.until(10)
                await there.delete(gone)
                await asyncio.sleep(3 * SOON_MS / 1_000)
                there.goes_on.set()
                await there.send(stays, 2)
                await there.until(30)
                assert sorted(there.handled) == sorted([*places(gone, 2, 5), *places(stays, 2, 10)])
                await there.create(gone, 1)
                await there.send(gone, 1, 3)
                await there.until(33)
            assert sorted(there.handled[30:]) == places(gone, 1, 3)
            assert await there.committed(group) == {(gone, 0): 3, (stays, 0): 10, (stays, 1): 10}

    asyncio.run(scenario())
    assert f"there is no topic {gone}; it is consumed as soon as it is there" in said(caplog)


def test_a_topic_that_is_deleted_and_made_again_at_once_is_consumed_from_its_beginning(kafka: str) -> None:
    """Even if the client's metadata would stay valid for five minutes."""
    topic = f"anew-{uuid.uuid4().hex}"

    async def scenario() -> None:
        async with world(kafka) as there:
            await there.create(topic, 1)
            await there.send(topic, 1, 10)
            async with there.worker(topic, age_ms=LATE_MS) as group:
                await there.until(10)
                await there.delete(topic)
                await there.create(topic, 1)
                await there.send(topic, 1, 4)
                await there.until(14)
            assert there.handled == [*places(topic, 1, 10), *places(topic, 1, 4)]
            assert await there.committed(group) == {(topic, 0): 4}

    asyncio.run(scenario())


def test_what_is_in_work_of_a_deleted_topic_leaves_nothing_out_of_the_next(kafka: str) -> None:
    """The old records end after the new topic exists, and must not move its positions."""
    topic = f"again-{uuid.uuid4().hex}"

    async def scenario() -> None:
        async with world(kafka) as there:
            there.waits = topic
            await there.create(topic, 1)
            await there.send(topic, 1)
            async with there.worker(topic) as group:
                await until(lambda: len(there.begun) == 5)
                await there.delete(topic)
                await asyncio.sleep(3 * SOON_MS / 1_000)
                await there.create(topic, 1)
                await there.send(topic, 1, 10)
                there.goes_on.set()
                await there.until(15)
            assert sorted(there.handled) == sorted([*places(topic, 1, 5), *places(topic, 1, 10)])
            assert await there.committed(group) == {(topic, 0): 10}

    asyncio.run(scenario())


def test_a_pattern_matches_neither_its_own_dead_letters_nor_topics_of_the_broker_itself(kafka: str) -> None:
    """Otherwise a worker would dead-letter its own dead letters endlessly."""
    topic = f"orders-{uuid.uuid4().hex}"

    async def scenario() -> None:
        async with world(kafka) as there:
            for each in (topic, f"{topic}.dead", f"{topic}.more"):
                await there.create(each, 1)
            await there.send(topic, 1, 3, b"fails")
            patterns = f"^{topic}.*", "^__.*"
            letters: dict[str, Any] = {"on_failure": OnFailure.DEAD_LETTER, "dead_letter": "{topic}.dead"}
            async with there.worker(*patterns, **letters) as group:
                await until(lambda: len(there.begun) == 3)
                await there.send(f"{topic}.more", 1)
                await there.until(5)
            assert await there.committed(group) == {(topic, 0): 3, (f"{topic}.more", 0): 5}
            assert {name for name, _, _ in there.begun} == {topic, f"{topic}.more"}

    asyncio.run(scenario())


KEYS_AND_VALUES: Sequence[tuple[bytes | None, bytes | None]] = (
    (None, b""), (b"", None), (b"", b""), (b"key", None), (None, b"value"), (b"\x00\xff\xfe", bytes(range(256))),
    (bytes(MEGABYTE // 4), bytes(MEGABYTE // 2)), (None, bytes(MEGABYTE)),
)  # fmt: skip
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (), (("", None),), (("", b""), ("", b"")), (("é\x00\U0001f980", bytes(range(256))),), (("n" * 10_000, b"v"),),
)  # fmt: skip


def test_keys_values_and_headers_of_any_bytes_and_a_megabyte_are_handed_over(
    kafka: str, make_topic: Callable[[int], str]
) -> None:
    topic = make_topic(2)
    seen: dict[tuple[int, int], Record] = {}
    sent: dict[tuple[int, int], Record] = {}

    async def handle(record: Record) -> None:
        seen[record.partition, record.offset] = record

    async def scenario() -> None:
        async with world(kafka) as there:
            producer = AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=2 * MEGABYTE)
            await producer.start()
            for number, headers in enumerate(HEADERS * 2):
                for key, value in KEYS_AND_VALUES:
                    if key is None and value is None:
                        continue
                    done = await producer.send_and_wait(topic, value, key, partition=number % 2, headers=list(headers))
                    sent[done.partition, done.offset] = Record(topic, done.partition, done.offset, key, value, headers)
            await producer.stop()
            worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}")
            run = asyncio.create_task(worker.run())
            await until(lambda: len(seen) == len(sent))
            worker.stop()
            await run
            assert await there.committed(f"group-{topic}") == {(topic, each): len(sent) // 2 for each in (0, 1)}

    asyncio.run(scenario())
    for place, record in sent.items():
        found = seen[place]
        assert (found.key, found.value, found.headers) == (record.key, record.value, record.headers)
