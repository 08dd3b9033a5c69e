"""The servers do what the other integration tests rely on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from pymongo.errors import AutoReconnect, NotPrimaryError
from tests.integration.counting import MAJORITY, client, counter, increment, value
from tests.integration.servers import MongoServer, create_topic

ROOT = Path(__file__).parents[2]


# MongoDB


def test_a_change_stream_sees_a_majority_write(mongodb: str, database: str) -> None:
    with client(mongodb) as mongo:
        collection = mongo[database].get_collection("things", write_concern=MAJORITY)
        with collection.watch(max_await_time_ms=500) as stream:
            collection.insert_one({"_id": 7})
            event = stream.next()

    assert (event["operationType"], event["documentKey"]) == ("insert", {"_id": 7})


def test_an_aborted_transaction_leaves_nothing(mongodb: str, database: str) -> None:
    with client(mongodb) as mongo, mongo.start_session() as session:
        things = mongo[database]["things"]
        for key, end in (("kept", session.commit_transaction), ("gone", session.abort_transaction)):
            session.start_transaction()
            things.insert_one({"_id": key}, session=session)
            end()

        assert [thing["_id"] for thing in things.find()] == ["kept"]


def test_a_fail_point_fires_as_often_as_was_asked(mongod: MongoServer, database: str) -> None:
    with client(mongod.uri, retryWrites=False) as mongo:
        collection = counter(mongo, database)
        with mongod.fail("update", times=2, errorCode=10107):
            for _ in range(2):
                with pytest.raises(NotPrimaryError):
                    increment(collection)
            increment(collection)
        with mongod.fail("update", closeConnection=True), pytest.raises(AutoReconnect):
            increment(collection)
        increment(collection)

        assert value(collection) == 2


def test_a_killed_node_comes_back_with_its_data(disposable_mongod: MongoServer) -> None:
    server = disposable_mongod
    with client(server.uri, serverSelectionTimeoutMS=10_000) as mongo:
        collection = counter(mongo, "survives")
        increment(collection)
        server.kill()

        assert server.primary() is None

        server.restart()

        assert value(collection) == 1


@pytest.mark.mongo
@pytest.mark.long  # as test_mongo_failover kills one
def test_a_set_of_three_survives_its_primary() -> None:
    with MongoServer(nodes=3) as server, client(server.uri) as mongo:
        collection = counter(mongo, "survives")
        old = server.primary()
        assert old is not None
        server.kill(old)
        increment(collection)  # retried by the driver until the new primary answers

        assert value(collection) == 1
        assert server.primary() not in {None, old}

        server.restart(old)

        assert value(collection) == 1


# Kafka


def producer(bootstrap: str) -> Any:
    return AIOKafkaProducer(bootstrap_servers=bootstrap)


def member(bootstrap: str, group: str) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=2_000,
        heartbeat_interval_ms=200,
    )


async def owns(count: int, *members: Any) -> None:
    while any(len(each.assignment()) != count for each in members):  # noqa: ASYNC110  aiokafka has no event for it
        await asyncio.sleep(0.05)


def test_a_thousand_records_are_read_back_and_committed(kafka: str, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(4)

    async def consume(records: int) -> tuple[list[int], list[int]]:
        seen: list[int] = []
        async with member(kafka, topic) as consumer:
            consumer.subscribe([topic])
            await owns(4, consumer)
            while len(seen) < records:
                batches = await consumer.getmany(timeout_ms=1_000)
                seen += [int(record.value) for batch in batches.values() for record in batch]
            if records:
                await consumer.commit()
            return seen, [await consumer.committed(partition) for partition in consumer.assignment()]

    async def run() -> None:
        async with producer(kafka) as sender:
            await asyncio.gather(*[await sender.send(topic, b"%d" % n, partition=n % 4) for n in range(1_000)])
        seen, committed = await consume(1_000)

        assert sorted(seen) == list(range(1_000))
        assert committed == [250] * 4

        assert await consume(0) == ([], [250] * 4)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_two_members_share_a_group(kafka: str, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(4)

    async def run() -> None:
        listener = Listener()
        async with member(kafka, topic) as first:
            first.subscribe([topic], listener=listener)
            await owns(4, first)
            async with member(kafka, topic) as second:
                second.subscribe([topic])
                await owns(2, first, second)
            await owns(4, first)

        assert listener.calls[:4] == [("revoked", 0), ("assigned", 4), ("revoked", 4), ("assigned", 2)]

    asyncio.run(asyncio.wait_for(run(), 30))


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self.calls.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self.calls.append(("assigned", len(assigned)))


def test_a_topic_exists_once(kafka: str, make_topic: Callable[[int], str]) -> None:
    with pytest.raises(KafkaError, match="already exists"):
        create_topic(kafka, make_topic(1), 1)


# Processes


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL])
def test_servers_end_with_the_test_run_however_it_dies(death: signal.Signals) -> None:
    code = """if True:
        import json, time
        from tests.integration.servers.processes import Keeper
        keeper = Keeper()
        print(json.dumps([keeper.start(keeper.folder / "log", "sleep", "600"), str(keeper.folder)]), flush=True)
        time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        pid, folder = json.loads(run.stdout.readline())

        assert Path(folder, "log").exists()
        assert Path(f"/proc/{pid}").exists()

        os.kill(run.pid, death)
    deadline = time.monotonic() + 10
    while (Path(folder).exists() or Path(f"/proc/{pid}").exists()) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not Path(folder).exists()
    assert not Path(f"/proc/{pid}").exists()
