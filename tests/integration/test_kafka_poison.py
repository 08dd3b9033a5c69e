"""A header with a name that is not UTF-8, which aiokafka cannot decode, on a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import LeaderNotAvailableError

from tidegate.model.errors import TidegateError
from tidegate.model.records import Record, Send
from tidegate.model.records import TopicPartition as Partition
from tidegate_adapters.kafka.client import transactional_producer
from tidegate_adapters.kafka.decoding import is_undecodable, read
from tidegate_adapters.kafka.raw_batches import batch_of
from tidegate_adapters.kafka.worker import OnFailure, Undecodable, Worker
from tidegate_adapters.runtime.handlers import undecoded

Topics = Callable[[int], str]
IN_TIME_S: Final = 30.0
RECORDS: Final = 12
POISON: Final = (3, 4, 9)
NAME: Final = b"a\xff\xfe\xc3\xa9".decode(errors="surrogateescape")
HEADERS: Final = ((NAME, b"v"), ("fine", None), (NAME, b""))


async def fill(bootstrap: str, topic: str, compression: str | None = None) -> None:
    """Both partitions get the same records; only the first gets poison."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20)
    raw = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    await raw.start()
    try:
        for offset in range(RECORDS):
            for partition in (0, 1):
                if partition == 0 and offset in POISON:
                    poison = Send(topic, b"poison", b"k", HEADERS, 0)
                    await (await raw.send_batch(batch_of(poison), topic, partition=0))
                else:
                    await producer.send_and_wait(topic, b"%d" % offset, b"k", partition, headers=[("n", b"v")])
    finally:
        await producer.stop()
        await raw.stop()


async def positions(bootstrap: str, group: str) -> dict[int, int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        found = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    return {partition.partition: entry.offset for partition, entry in found.items()}


async def create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()


async def consumed(worker: Worker, bootstrap: str, expected: dict[int, int]) -> None:
    run = asyncio.create_task(worker.run())
    async with asyncio.timeout(IN_TIME_S):
        while await positions(bootstrap, worker.settings.group) != expected:  # noqa: ASYNC110  it is the broker's state
            await asyncio.sleep(0.1)
    worker.stop()
    await run


class Seen:
    def __init__(self) -> None:
        self.records: dict[tuple[int, int], Any] = {}
        self.count = 0

    async def __call__(self, record: Record) -> None:
        self.count += 1
        self.records[record.partition, record.offset] = record

    @property
    def poison(self) -> list[int]:
        return [offset for partition, offset in sorted(self.records) if partition == 0 and offset in POISON]


WHOLE: Final = {0: RECORDS, 1: RECORDS}
OTHERS: Final = 2 * RECORDS - len(POISON)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_it_is_handed_over_raw(compression: str | None, kafka: str, make_topic: Topics) -> None:
    topic, handle = make_topic(2), Seen()

    async def scenario() -> None:
        await fill(kafka, topic, compression)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", undecodable=Undecodable.RAW)
        await consumed(worker, kafka, WHOLE)

    asyncio.run(scenario())
    assert (len(handle.records), handle.count) == (2 * RECORDS, 2 * RECORDS)
    assert handle.poison == list(POISON)
    for offset in POISON:
        record = handle.records[0, offset]
        assert (record.key, record.value, record.headers) == (b"k", b"poison", HEADERS)
        assert record.headers[0][0].encode(errors="surrogateescape") == b"a\xff\xfe\xc3\xa9"
        assert undecoded(record) is not None


def test_it_is_skipped_and_said_so(kafka: str, make_topic: Topics, caplog: pytest.LogCaptureFixture) -> None:
    topic, seen = make_topic(2), list[bytes]()

    def decode(record: Record) -> bytes:
        assert undecoded(record) is None
        assert record.value is not None
        return record.value

    async def handle(value: bytes) -> None:
        seen.append(value)

    async def scenario() -> None:
        await fill(kafka, topic)
        worker = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", decode=decode, undecodable=Undecodable.SKIP
        )
        await consumed(worker, kafka, WHOLE)

    with caplog.at_level(logging.ERROR, "tidegate_adapters.kafka"):
        asyncio.run(scenario())
    assert len(seen) == OTHERS
    skipped = [each for each in caplog.records if "cannot be decoded" in each.getMessage()]
    assert [(each.topic, each.partition, each.offset) for each in skipped] == [  # type: ignore[attr-defined]
        (topic, 0, offset) for offset in POISON
    ]


@pytest.mark.parametrize("batch", [None, 4])
def test_it_is_dead_lettered_to_the_byte(batch: int | None, kafka: str, make_topic: Topics) -> None:
    topic = make_topic(2)
    dead, seen = f"{topic}.dead", list[Record]()

    async def handle(given: Any) -> None:
        seen.extend(given if isinstance(given, Sequence) else [given])

    async def scenario() -> list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]:
        await create(kafka, dead)
        await fill(kafka, topic)
        policy: dict[str, Any] = (
            {"undecodable": Undecodable.DEAD_LETTER, "batch": batch}
            if batch is not None
            else {"on_failure": OnFailure.DEAD_LETTER}
        )
        worker = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", dead_letter="{topic}.dead", **policy
        )  # fmt: skip
        await consumed(worker, kafka, WHOLE)
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(dead, 0)])
            _ = await consumer.end_offsets([TopicPartition(dead, 0)])
            found = await read(consumer, Partition(dead, 0), 0)
        finally:
            await consumer.stop()
        assert found is not None
        return [(each.key, each.value, tuple(each.headers)) for each in found.records]

    letters = asyncio.run(scenario())
    assert len(seen) == OTHERS
    assert [(key, value, headers[: len(HEADERS)]) for key, value, headers in letters] == [
        (b"k", b"poison", HEADERS) for _ in POISON
    ]
    why = [dict(headers[len(HEADERS) :]) for _, _, headers in letters]
    assert [
        (each["__dlq.errors.topic"], each["__dlq.errors.partition"], each["__dlq.errors.offset"]) for each in why
    ] == [(topic.encode(), b"0", b"%d" % offset) for offset in POISON]
    assert {each["tidegate.error"] for each in why} == {b"UnicodeDecodeError"}


def test_by_default_it_stops_its_partition_like_any_failure(
    kafka: str, make_topic: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic, handle = make_topic(2), Seen()

    async def scenario() -> None:
        await fill(kafka, topic)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}")
        await consumed(worker, kafka, {0: POISON[0], 1: RECORDS})

    with caplog.at_level(logging.ERROR, "tidegate_adapters.kafka"):
        asyncio.run(scenario())
    assert handle.poison == []
    failures = [each for each in caplog.records if "handler failed" in each.getMessage()]
    assert (failures[0].topic, failures[0].partition, failures[0].offset) == (topic, 0, POISON[0])  # type: ignore[attr-defined]
    assert "codec can't decode" in (failures[0].exc_text or str(failures[0].exc_info))


def test_it_is_sent_in_a_transaction_as_well(kafka: str, make_topic: Topics) -> None:
    topic = make_topic(1)

    async def scenario() -> None:
        made = transactional_producer(kafka, {}, f"id-{topic}")
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level="read_committed")
        await made.start()
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            _ = await consumer.end_offsets([TopicPartition(topic, 0)])
            await made.begin()
            for record in (Send(topic, None), Send(topic, b"poison", b"k", HEADERS)):
                await (await made.send(record))
            assert await read(consumer, Partition(topic, 0), 0) is None
            await made.commit()
            async with asyncio.timeout(IN_TIME_S):
                while (found := await read(consumer, Partition(topic, 0), 0)) is None:  # noqa: ASYNC110  the broker's state
                    await asyncio.sleep(0.05)
            assert [(each.value, tuple(each.headers)) for each in found.records] == [(None, ()), (b"poison", HEADERS)]
        finally:
            await consumer.stop()
            await made.stop()

    asyncio.run(scenario())


def test_of_what_can_be_decoded_nothing_is_found(kafka: str, make_topic: Topics) -> None:
    topic = make_topic(2)

    async def scenario() -> None:
        await fill(kafka, topic)
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, each) for each in (0, 1)])
            _ = await consumer.end_offsets([TopicPartition(topic, 0)])
            assert await read(consumer, Partition(topic, 1), 0) is None
            assert await read(consumer, Partition(topic, 0), POISON[-1] + 1) is None
            found = await read(consumer, Partition(topic, 0), 2)
            assert found is not None
            assert ([each.offset for each in found.records], found.stop) == (list(range(2, RECORDS)), RECORDS)
            with pytest.raises(LeaderNotAvailableError):
                await read(consumer, Partition(topic, 2), 0)
        finally:
            await consumer.stop()

    asyncio.run(scenario())
    assert not is_undecodable(ValueError())


def test_a_client_that_cannot_read_what_cannot_be_decoded_is_told_what_it_lacks() -> None:
    with pytest.raises(TidegateError) as raised:
        asyncio.run(read(cast("Any", object()), Partition("t", 0), 0))
    assert "neither read_raw nor" in str(raised.value)
