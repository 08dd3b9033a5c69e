"""Each example of docs/decisions.md runs against a real Kafka or a real MongoDB."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, TopicPartition
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.mongo_loop import in_loop
from tests.integration.servers.processes import wait_until

from tidegate import Accepted, AtomicService, Changed, Thresholds
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, connect_async

PAGE: Final = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text("utf-8")
FILES: Final = dict(re.findall(r"<!-- file: (\w+)\.py -->\n```python\n(.*?)```", PAGE, re.DOTALL))
RECORDS: Final = 40
LIMITS: Final = Thresholds(high=6, low=2)


@pytest.fixture
def example() -> Iterator[Callable[[str], Any]]:
    def made(name: str) -> Any:
        module = sys.modules[name] = ModuleType(name)
        exec(compile(FILES[name], f"{name}.py", "exec"), vars(module))  # noqa: S102  the text of the page
        return module

    yield made
    for name in FILES:
        sys.modules.pop(name, None)


@pytest.fixture
def topic(kafka: str, make_topic: Callable[[int], str]) -> str:
    async def produced(name: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for number in range(RECORDS):
                _ = await producer.send(name, str(number).encode())

    name = make_topic(1)
    asyncio.run(produced(name))
    return name


# --- Kafka --------------------------------------------------------------------------------------------------------------


class Work:
    def __init__(self, held: set[int]) -> None:
        self.held, self.released = held, threading.Event()
        self.begun: list[int] = []
        self.done: list[int] = []

    def __call__(self, message: Any) -> None:
        offset = message.offset()
        self.begun.append(offset)
        if offset in self.held:
            assert self.released.wait(30)
        self.done.append(offset)


def ours(bootstrap: str, group: str) -> Consumer:
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
    })  # fmt: skip


def test_offsets_are_committed_with_confluent_kafka(example: Any, kafka: str, topic: str) -> None:
    work, stop, consumer = Work({0}), threading.Event(), ours(kafka, topic)
    observer = ours(kafka, topic)  # a polled consumer takes seconds to answer

    def committed() -> int:
        [position] = observer.committed([TopicPartition(topic, 0)], timeout=10)
        return int(position.offset)

    with ThreadPoolExecutor(1) as thread:
        loop = thread.submit(example("watermark_confluent").consume, consumer, [topic], work, stop)
        wait_until(lambda: len(work.done) == RECORDS - 1, "all but the first")
        before = committed()
        work.released.set()
        wait_until(lambda: committed() == RECORDS, "the commit")
        stop.set()
        loop.result(30)
    consumer.close()
    observer.close()

    assert before < 0


def test_a_consumer_of_confluent_kafka_pauses_and_resumes(example: Any, kafka: str, topic: str) -> None:
    module = example("backpressure_confluent")
    module.THRESHOLDS = LIMITS
    work, stop, consumer = Work(set(range(RECORDS))), threading.Event(), ours(kafka, topic)
    taken: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(consumer, name)

        def consume(self, num_messages: int, timeout: float) -> list[Any]:
            found = consumer.consume(min(num_messages, 4), timeout)
            taken.append(len(found))
            return found

    with ThreadPoolExecutor(1) as thread:
        loop = thread.submit(module.consume, Counting(), [topic], work, stop)
        wait_until(lambda: sum(taken) >= LIMITS.high and taken[-2:] == [0, 0], "the pause")
        held = sum(taken)
        work.released.set()
        wait_until(lambda: len(work.done) == RECORDS, "all records")
        stop.set()
        loop.result(30)
    consumer.close()

    assert LIMITS.high <= held < LIMITS.high + 4
    assert Counter(work.done) == Counter(range(RECORDS))


def started(bootstrap: str, topic: str, **options: object) -> Any:
    return AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest",
        **options,
    )  # fmt: skip


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  it is of the client
            await asyncio.sleep(0.02)


def test_offsets_are_committed_with_aiokafka(example: Any, kafka: str, topic: str) -> None:
    async def consumed() -> tuple[int | None, int | None]:
        released, stop, done = asyncio.Event(), asyncio.Event(), list[int]()

        async def handle(record: Any) -> None:
            if record.offset == 0:
                _ = await released.wait()
            done.append(record.offset)

        async with started(kafka, topic) as consumer:
            loop = asyncio.create_task(example("watermark_aiokafka").consume(consumer, handle, stop))
            await until(lambda: len(done) == RECORDS - 1)
            [partition] = consumer.assignment()
            before = await consumer.committed(partition)
            released.set()
            await until(lambda: len(done) == RECORDS)
            async with asyncio.timeout(30):
                while (after := await consumer.committed(partition)) != RECORDS:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            stop.set()
            await loop
            return before, after

    assert asyncio.run(consumed()) == (None, RECORDS)


def test_a_consumer_of_aiokafka_pauses_and_resumes(example: Any, kafka: str, topic: str) -> None:
    module = example("backpressure_aiokafka")
    module.THRESHOLDS = LIMITS

    async def consumed() -> tuple[int, Counter[int]]:
        released, stop = asyncio.Event(), asyncio.Event()
        begun, done = list[int](), list[int]()

        async def handle(record: Any) -> bool:
            begun.append(record.offset)
            _ = await released.wait()
            done.append(record.offset)
            return True  # the handler's result is ignored

        async with started(kafka, topic, max_poll_records=4) as consumer:
            loop = asyncio.create_task(module.consume(consumer, handle, stop))
            await until(lambda: bool(consumer.paused()))
            await asyncio.sleep(0.3)
            held = len(begun)
            released.set()
            await until(lambda: len(done) == RECORDS)
            stop.set()
            await loop
            return held, Counter(done)

    held, done = asyncio.run(consumed())

    assert LIMITS.high <= held < LIMITS.high + 4
    assert done == Counter(range(RECORDS))


# --- MongoDB ------------------------------------------------------------------------------------------------------------


def test_a_service_is_claimed_by_one_process_at_a_time(example: Any, mongodb: str, database: str) -> None:
    module = example("claim_pymongo")
    runs: list[tuple[int, str]] = []
    with MongoClient[Any](mongodb) as client:
        rooms = client[database]
        for name in ("a", "b"):
            module.beat(rooms, name)
        assert not module.may_run(rooms, "a")  # "a" joined in the middle of a cycle
        module.SERVICE = AtomicService(interval=timedelta(seconds=1), spread=timedelta(milliseconds=20))
        began = time.monotonic()
        while len({name for _, name in runs}) < 2 and time.monotonic() - began < 10:
            runs += [(time.time_ns() // 10**9, name) for name in ("a", "b") if module.may_run(rooms, name)]
            time.sleep(0.02)

    assert {name for _, name in runs} == {"a", "b"}
    assert len(set(runs)) == len(runs)


def test_a_status_changes_once(example: Any, mongodb: str, database: str) -> None:
    module = example("transition_pymongo")
    with MongoClient[Any](mongodb) as client:
        orders = client[database].orders
        orders.insert_one({"_id": 1, "status": "queued", "total": 5})

        class Stale:
            def find_one(self, where: Any) -> Any:
                found = orders.find_one(where)
                assert isinstance(module.move(orders, 1, "running", "other"), Accepted)
                return found

            def update_one(self, *arguments: Any) -> Any:
                return orders.update_one(*arguments)

        assert module.move(Stale(), 1, "running", "me") is None
        assert "not the owner" in str(module.move(orders, 1, "done", "me"))
        assert str(module.move(orders, 1, "done", "other")) == "accepted: 'done' at version 2"
        assert orders.find_one() == {"_id": 1, "status": "done", "owner": None, "version": 2, "total": 5}


def test_the_program_changes_a_status(example: Any, mongodb: str, database: str) -> None:
    example("transition_pymongo")
    module = example("transition_program")
    module.Mongo, module.AsyncMongo = (
        lambda client, _: Mongo(client, database),
        lambda client, _: AsyncMongo(client, database),
    )

    async def moved() -> str:
        client = await connect_async(mongodb)
        try:
            return str(await module.move_async(client, 1, "done", "me", "r2"))
        finally:
            await client.close()

    with connect(mongodb) as client:
        client[database].orders.insert_one({"_id": 1, "status": "queued"})
        assert str(module.move(client, 1, "running", "me", "r1")) == "granted: version 1"
        assert str(module.move(client, 1, "running", "me", "r3")).startswith("not allowed")
        assert in_loop(moved()) == "granted: version 2"


def test_a_watched_field_changes(example: Any, mongodb: str, database: str) -> None:
    module = example("diff_pymongo")
    read = {"_id": 1, "price": 5, "stock": {"berlin": datetime(2024, 1, 1), "rome": 0}}  # noqa: DTZ001  as pymongo reads it
    same, dearer = read | {"seen": 1, "stock": {**read["stock"], "rome": 9}}, read | {"price": 6}  # type: ignore[dict-item]

    async def different() -> list[str]:
        async with AsyncMongoClient[Any](mongodb) as client:
            snapshots = client[database].of_async
            return [str(await module.difference_async(snapshots, each)) for each in (read, same, dearer)]

    with MongoClient[Any](mongodb) as client:
        first, *later = (module.difference(client[database].of_sync, each) for each in (read, same, dearer))

    assert isinstance(first, Changed)
    assert [str(first), *map(str, later)] == in_loop(different())
    assert list(map(str, later)) == ["unchanged", 'changed: replace "/price": 6']
