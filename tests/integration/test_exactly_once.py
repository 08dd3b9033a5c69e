"""Answers and positions in one transaction of a real broker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Theirs

from tidegate.consumer.worker.transactions import transactional_id
from tidegate.model.errors import Misuse
from tidegate.model.records import Record, Send, TopicPartition
from tidegate_adapters.kafka.client import transactional_producer
from tidegate_adapters.kafka.worker import OnFailure, Worker

PARTITIONS, RECORDS = 4, 600
MEMBER: Final = Path(__file__).with_name("exactly_once_member.py")
LIMIT_S: Final = 60.0
PATIENCE_S: Final = 1.0


@contextmanager
def member(bootstrap: str, topic: str, out: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(MEMBER), bootstrap, topic, out, name])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


class Reader:
    def __init__(self, bootstrap: str, *topics: str) -> None:
        self.seen: Counter[bytes] = Counter()
        self._client = AIOKafkaConsumer(
            *topics, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.seen) < count:
                await self.look()

    async def look(self, for_s: float = 0.1) -> None:
        for records in (await self._client.getmany(timeout_ms=round(for_s * 1_000))).values():
            self.seen.update(each.value for each in records)


async def produced(bootstrap: str, topic: str, count: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    sent = [await producer.send(topic, b"%d" % each, partition=each % PARTITIONS) for each in range(count)]
    await asyncio.gather(*sent)
    await producer.stop()


def test_each_answer_is_seen_once_though_members_are_killed_and_stopped(
    kafka: str, make_topic: Callable[[int], str]
) -> None:
    """Laws EO1 and EO5: one member is killed, another is paused beyond its session."""
    topic, out = make_topic(PARTITIONS), make_topic(2)

    async def watch() -> Counter[bytes]:
        await produced(kafka, topic, RECORDS)
        async with Reader(kafka, out) as reader:
            with member(kafka, topic, out, "a") as first, member(kafka, topic, out, "b") as second:
                await reader.until(RECORDS // 8)
                first.kill()
                with member(kafka, topic, out, "c"):
                    await reader.until(RECORDS // 3)
                    second.send_signal(signal.SIGSTOP)
                    await reader.until(RECORDS * 2 // 3)
                    second.send_signal(signal.SIGCONT)
                    await reader.until(RECORDS)
                    await reader.look(PATIENCE_S)
        return reader.seen

    seen = asyncio.run(watch())

    assert {*seen} == {b"%d" % each for each in range(RECORDS)}
    assert max(seen.values()) == 1


def test_who_is_fenced_and_owns_the_partition_takes_over_again(kafka: str, make_topic: Callable[[int], str]) -> None:
    """Laws EO1 and EO3: a producer with the same id fences the member's producer."""
    topic, out = make_topic(PARTITIONS), make_topic(1)
    handled: Counter[bytes] = Counter()

    async def handle(record: Record) -> Send:
        handled[record.value or b""] += 1
        await asyncio.sleep(0.005)
        return Send(out, record.value)

    async def fenced() -> Counter[bytes]:
        await produced(kafka, topic, 400)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", exactly_once=True)
        run = asyncio.create_task(worker.run())
        async with Reader(kafka, out) as reader:
            await reader.until(20)
            for number in range(PARTITIONS):
                name = transactional_id(f"group-{topic}", TopicPartition(topic, number))
                other = transactional_producer(kafka, {}, name)
                await other.start()
                await other.stop()
            await reader.until(400)
            await reader.look(PATIENCE_S)
            worker.stop()
            await run
        return reader.seen

    seen = asyncio.run(fenced())

    assert len(seen) == 400
    assert max(seen.values()) == 1


def test_dead_letters_and_positions_appear_together(kafka: str, make_topic: Callable[[int], str]) -> None:
    """Law EO2: each record ends as an answer or as a dead letter."""
    topic, out, dead = make_topic(PARTITIONS), make_topic(1), make_topic(1)

    async def handle(record: Record) -> Send:
        if int(record.value or b"") % 5 == 0:
            raise ValueError("five")
        return Send(out, record.value)

    async def run() -> tuple[Counter[bytes], list[int]]:
        await produced(kafka, topic, 100)
        worker = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", exactly_once=True,
            on_failure=OnFailure.DEAD_LETTER, dead_letter=dead,
        )  # fmt: skip
        running = asyncio.create_task(worker.run())
        async with Reader(kafka, out, dead) as reader:
            await reader.until(100)
            worker.stop()
            await running
            await reader.look(PATIENCE_S)
        client = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=f"group-{topic}", enable_auto_commit=False)
        await client.start()
        try:
            return reader.seen, [await client.committed(Theirs(topic, each)) for each in range(PARTITIONS)]
        finally:
            await client.stop()

    seen, positions = asyncio.run(run())

    assert seen == Counter(b"%d" % each for each in range(100))
    assert positions == [25] * PARTITIONS


def test_batches_are_refused() -> None:
    """A commit may cover only a part of a window."""
    with pytest.raises(Misuse, match="batches, and answers"):
        Worker(["orders"], lambda _: None, bootstrap="localhost:9092", group="g", batch=2, exactly_once=True)
