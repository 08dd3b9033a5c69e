"""Former bugs of the Kafka worker on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
)

from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import Assigned, Committed, Event, Fetched, WorkReported
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND
from tidegate.model.records import Record
from tidegate.model.records import TopicPartition as Partition
from tidegate_adapters.kafka import client as kafka_ports
from tidegate_adapters.kafka.worker import Worker

Topics = Callable[[int], str]
BRIEF = PartitionRules(drain=Budget(2 * SECOND, SECOND // 2, SECOND // 2))
IN_TIME_S = 30.0


async def filled(bootstrap: str, topic: str, records: int, partitions: int = 1) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        sent = [await producer.send(topic, b"%d" % n, partition=p) for n in range(records) for p in range(partitions)]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def positions(bootstrap: str, topic: str) -> dict[int, int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        found = await admin.list_consumer_group_offsets(f"group-{topic}")
    finally:
        await admin.close()
    return {partition.partition: entry.offset for partition, entry in found.items()}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(IN_TIME_S):
        while not is_so():  # noqa: ASYNC110  it is the broker's state, or user code's
            await asyncio.sleep(0.02)


class Own(BaseException):
    pass


@pytest.mark.parametrize("error", [asyncio.CancelledError, Own, GeneratorExit], ids=lambda each: each.__name__)
def test_whatever_a_handler_raises_is_a_failure_of_its_record(
    error: type[BaseException], kafka: str, make_topic: Topics
) -> None:
    topic, seen = make_topic(2), set[tuple[int, int]]()

    async def handle(record: Record) -> None:
        if (record.partition, record.offset) == (0, 2):
            raise error
        seen.add((record.partition, record.offset))

    async def scenario() -> None:
        await filled(kafka, topic, 8, 2)
        rules = ConsumerRules(partition=BRIEF)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", concurrency=1, consumer=rules)
        run = asyncio.create_task(worker.run())
        await until(lambda: len({offset for partition, offset in seen if partition == 1}) == 8)
        worker.stop()
        async with asyncio.timeout(10):
            await run
        assert await positions(kafka, topic) == {0: 2, 1: 8}

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt], ids=lambda each: each.__name__)
def test_an_exit_of_user_code_ends_the_worker_after_what_is_owed(
    error: type[BaseException], kafka: str, make_topic: Topics
) -> None:
    topic, ended = make_topic(1), set[int]()

    async def handle(record: Record) -> None:
        if record.offset == 5:
            raise error
        await asyncio.sleep(0.3)
        ended.add(record.offset)

    async def scenario() -> None:
        await filled(kafka, topic, 8)
        rules = ConsumerRules(partition=BRIEF)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", concurrency=8, consumer=rules)
        with pytest.raises(error):
            await worker.run()
        assert ended == {0, 1, 2, 3, 4, 6, 7}
        assert await positions(kafka, topic) == {0: 5}

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [Assigned, Fetched, WorkReported, Committed], ids=lambda each: each.__name__)
def test_an_observer_that_raises_loses_nothing(kind: type[Event], kafka: str, make_topic: Topics) -> None:
    topic, raised = make_topic(1), list[str]()

    def observe(event: Event, _: ConsumerState) -> None:
        if isinstance(event, kind) and not raised:
            raised.append("observe")
            raise OSError("the disk is full")

    def record(event: object, _: object) -> None:
        if isinstance(event, kind) and raised == ["observe"]:
            raised.append("record")
            raise asyncio.CancelledError

    async def handle(_: Record) -> None:
        pass

    async def scenario() -> None:
        await filled(kafka, topic, 20)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", observe=observe, record=record)
        run = asyncio.create_task(worker.run())
        async with asyncio.timeout(IN_TIME_S):
            while await positions(kafka, topic) != {0: 20}:  # noqa: ASYNC110  likewise
                await asyncio.sleep(0.1)
        worker.stop()
        await run

    asyncio.run(scenario())
    assert raised == ["observe", "record"]


@pytest.mark.parametrize(
    "error", [GroupCoordinatorNotAvailableError, KafkaTimeoutError], ids=lambda each: each.__name__
)
def test_a_partition_of_which_it_is_not_said_at_first_what_is_committed_is_consumed(
    error: type[Exception], kafka: str, make_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, seen, asked = make_topic(2), set[tuple[int, int]](), list[Partition]()
    committed = kafka_ports.committed

    async def fails_at_first(
        client: kafka_ports.Client, partitions: Sequence[Partition]
    ) -> dict[Partition, tuple[int, str]]:
        asked.extend(partitions)
        if min(map(asked.count, partitions)) <= 3:
            raise error
        return await committed(client, partitions)

    async def handle(record: Record) -> None:
        seen.add((record.partition, record.offset))

    async def scenario() -> None:
        await filled(kafka, topic, 30, 2)
        monkeypatch.setattr(kafka_ports, "committed", fails_at_first)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}")
        run = asyncio.create_task(worker.run())
        await until(lambda: len(seen) == 60)
        worker.stop()
        await run
        assert await positions(kafka, topic) == {0: 30, 1: 30}

    asyncio.run(scenario())


def test_what_will_never_be_said_ends_the_worker(
    kafka: str, make_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)

    async def refused(*_: object) -> tuple[int, str]:
        raise GroupAuthorizationFailedError(topic)

    async def handle(_: Record) -> None:
        pass

    monkeypatch.setattr(kafka_ports, "committed", refused)
    with pytest.raises(TidegateError, match=f"^nobody says what is committed for {topic}-0"):
        asyncio.run(Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}").run())


def test_how_long_a_record_may_take_is_asked_of_those_in_work_alone(kafka: str, make_topic: Topics) -> None:
    """The worker once failed on a finished record of a window."""
    topic, ended, asked = make_topic(1), list[int](), list[int]()

    async def handle(record: Record) -> None:
        await asyncio.sleep(1 if record.offset == 3 else 0)
        ended.append(record.offset)

    def expected(record: Record) -> timedelta:
        asked.append(record.offset)
        return timedelta(seconds=1)

    async def scenario() -> None:
        await filled(kafka, topic, 8)
        rules = ConsumerRules(partition=PartitionRules(window_max=4))
        worker = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", concurrency=4, consumer=rules, expected=expected
        )  # fmt: skip
        run = asyncio.create_task(worker.run())
        await until(lambda: len(ended) == 7)
        worker.stop()
        await run
        assert await positions(kafka, topic) == {0: 8}

    asyncio.run(scenario())
    assert asked == [3]


def test_times_that_do_not_fit_one_another_are_refused() -> None:
    """The group's clock starts at the rebalance, which a member learns from its heartbeat."""

    async def handle(_: Record) -> None:
        pass

    def worker(**times_ms: Any) -> Worker:
        rules = ConsumerRules(partition=BRIEF)
        return Worker(["t"], handle, bootstrap="x:1", group="g", consumer=rules, **times_ms)

    with pytest.raises(Misuse) as raised:
        worker(rebalance_timeout_ms=5_999)
    assert raised.value.todo.startswith("set it to 6000 or more, leave it out, or shorten ")
    worker(rebalance_timeout_ms=6_000)
    worker(rebalance_timeout_ms=3_300, heartbeat_interval_ms=300)
    with pytest.raises(Misuse):
        worker(rebalance_timeout_ms=6_000, heartbeat_interval_ms=3_001)
    for unheard in ({"heartbeat_interval_ms": 10_000}, {"session_timeout_ms": 3_000}):
        with pytest.raises(Misuse, match="session_timeout_ms") as raised:
            worker(**unheard)
        assert raised.value.todo.startswith("set heartbeat_interval_ms to ")
    for bad in (6_000.0, "6000", True, 0):
        with pytest.raises(Misuse):
            worker(rebalance_timeout_ms=bad)
        with pytest.raises(Misuse):
            worker(heartbeat_interval_ms=bad)
        with pytest.raises(Misuse):
            worker(session_timeout_ms=bad)


@pytest.mark.parametrize(
    "times_ms", [{}, {"rebalance_timeout_ms": None, "heartbeat_interval_ms": None}], ids=("left out", "None")
)
def test_the_group_is_told_to_wait_for_as_long_as_a_drain_may_take(
    kafka: str, make_topic: Topics, times_ms: dict[str, Any]
) -> None:
    topic, told = make_topic(1), list[Mapping[str, object]]()

    async def handle(_: Record) -> None:
        pass

    def connect(bootstrap: str, group: str, options: Mapping[str, object]) -> kafka_ports.Client:
        told.append(options)
        return kafka_ports.client(bootstrap, group, options)

    async def scenario() -> None:
        worker = Worker(
            [topic], handle, bootstrap=kafka, group="g", consumer=ConsumerRules(partition=BRIEF), **times_ms
        )
        worker.stop()  # stopped before the start: nothing starts
        await worker.run(connect)

    asyncio.run(scenario())
    assert told == [{"heartbeat_interval_ms": 3_000, "rebalance_timeout_ms": 7_000, "auto_offset_reset": "none"}]


def test_a_cancelled_run_drains_and_commits(kafka: str, make_topic: Topics) -> None:
    topic, begun, ended = make_topic(1), list[int](), list[int]()

    async def handle(record: Record) -> None:
        begun.append(record.offset)
        await asyncio.sleep(0.5)
        ended.append(record.offset)

    async def scenario() -> None:
        await filled(kafka, topic, 8)
        rules = ConsumerRules(partition=BRIEF)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", concurrency=8, consumer=rules)
        run = asyncio.create_task(worker.run())
        await until(lambda: len(begun) == 8)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert len(ended) == 8
        assert await positions(kafka, topic) == {0: 8}

    asyncio.run(scenario())


async def committed_by_hand(bootstrap: str, topic: str, position: int) -> None:
    client = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=f"group-{topic}", enable_auto_commit=False)
    await client.start()
    try:
        client.assign([TopicPartition(topic, 0)])
        await client.commit({TopicPartition(topic, 0): position})
    finally:
        await client.stop()


@pytest.mark.parametrize(("reset", "begins"), [("earliest", 0), ("latest", 10)])
def test_where_a_position_beyond_the_end_is_committed_the_group_begins_as_if_nothing_were(
    reset: Any, begins: int, kafka: str, make_topic: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker once took records for done until the log passed the committed position."""
    topic, seen = make_topic(1), list[int]()

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    async def scenario() -> None:
        await filled(kafka, topic, 10)
        await committed_by_hand(kafka, topic, 500)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", auto_offset_reset=reset)
        run = asyncio.create_task(worker.run())
        await until(lambda: "@500" in caplog.text)
        async with asyncio.timeout(IN_TIME_S):
            while await positions(kafka, topic) == {0: 500}:  # noqa: ASYNC110  it is the broker's
                await asyncio.sleep(0.1)
        await filled(kafka, topic, 10)
        await until(lambda: 19 in seen)
        worker.stop()
        await run
        assert sorted(seen) == [*range(begins, 20)]
        assert await positions(kafka, topic) == {0: 20}

    asyncio.run(scenario())
    assert f"{topic}-0 is committed @500, and its log ends @10: it begins @{begins}" in caplog.text


@pytest.mark.parametrize("committed", [None, 500])
def test_with_no_committed_position_or_one_beyond_the_end_it_may_fail(
    committed: int | None, kafka: str, make_topic: Topics
) -> None:
    """With `auto_offset_reset="none"` the error names the setting, and the client stops."""
    topic = make_topic(1)

    async def handle(_: Record) -> None:
        pass

    async def scenario() -> None:
        await filled(kafka, topic, 3)
        if committed is not None:
            await committed_by_hand(kafka, topic, committed)
        async with asyncio.timeout(IN_TIME_S):
            await Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", auto_offset_reset="none").run()

    with pytest.raises(TidegateError, match=r'(?s)no position in .*auto_offset_reset = "none"'):
        asyncio.run(scenario())


async def removed(bootstrap: str, topic: str, before: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=before)})
    finally:
        await admin.close()


@pytest.mark.parametrize("reset", ["latest", "none"])
def test_a_group_goes_on_at_the_first_record_that_is_left(
    reset: Any, kafka: str, make_topic: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """Laws BG5 and BG6: the records are deleted before the start, or while idle."""
    topic, seen, is_away = make_topic(1), list[int](), False

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    def connect(bootstrap: str, group: str, options: Mapping[str, object]) -> kafka_ports.Client:
        made: Any = kafka_ports.client(bootstrap, group, options)
        send = made._client.send  # noqa: SLF001  fetches fail there

        async def sent(node: int, request: Any, **more: Any) -> Any:
            if is_away and type(request).__name__ == "FetchRequest":
                raise KafkaConnectionError("broken by the test")
            return await send(node, request, **more)

        made._client.send = sent  # noqa: SLF001  likewise
        return made  # type: ignore[no-any-return]

    async def committed(position: int) -> None:
        async with asyncio.timeout(IN_TIME_S):
            while await positions(kafka, topic) != {0: position}:  # noqa: ASYNC110  it is the broker's
                await asyncio.sleep(0.1)

    async def scenario() -> None:
        nonlocal is_away
        await filled(kafka, topic, 10)
        await committed_by_hand(kafka, topic, 2)
        await removed(kafka, topic, 10)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", auto_offset_reset=reset)
        run = asyncio.create_task(worker.run(connect))
        await committed(10)
        is_away = True
        await asyncio.sleep(0.6)  # a fetch pending at the broker ends by then
        await filled(kafka, topic, 10)
        await removed(kafka, topic, 15)
        is_away = False
        await committed(20)
        worker.stop()
        await run

    asyncio.run(scenario())
    assert seen == [*range(15, 20)]
    for count, position, start in ((8, 2, 10), (5, 10, 15)):
        assert (
            f"{count} offsets of {topic}-0 were removed before group group-{topic} read them: its position was @{position}, and it goes on @{start}"
            in caplog.text
        )


def test_a_position_in_an_open_transaction_is_within_the_log(kafka: str, make_topic: Topics) -> None:
    """Law BG2: a group that changed to `read_committed` once handled all records again."""
    topic, seen = make_topic(1), list[int]()

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    async def scenario() -> None:
        await filled(kafka, topic, 3)
        producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
        await producer.start()
        async with producer.transaction():
            for _ in range(2):
                await producer.send_and_wait(topic, b"x", partition=0)
            await committed_by_hand(kafka, topic, 4)
            worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", isolation_level="read_committed")
            run = asyncio.create_task(worker.run())
            await until(lambda: bool(worker.state.partitions))
            assert await positions(kafka, topic) == {0: 4}
        await producer.stop()
        await until(lambda: bool(seen))
        worker.stop()
        await run

    asyncio.run(scenario())
    assert seen == [4]


def test_a_client_that_fails_at_the_start_is_stopped(kafka: str, make_topic: Topics) -> None:
    stopped = list[bool]()

    async def handle(_: Record) -> None:
        pass

    def connect(bootstrap: str, group: str, options: Mapping[str, object]) -> Any:
        made: Any = kafka_ports.client(bootstrap, group, options)
        start, stop = made.start, made.stop

        async def fails() -> None:
            await start()
            raise GroupAuthorizationFailedError(group)

        async def noted() -> None:
            stopped.append(True)
            await stop()

        made.start, made.stop = fails, noted
        return made

    with pytest.raises(TidegateError, match="the Kafka client does not start"):
        asyncio.run(Worker([make_topic(1)], handle, bootstrap=kafka, group="g").run(connect))
    assert stopped == [True]


def test_nothing_is_committed_under_another_generation_than_its_own(kafka: str, make_topic: Topics) -> None:
    """A group without members accepts commits without a generation; ours once moved one back."""
    topic = make_topic(1)
    place, named = TopicPartition(topic, 0), Partition(topic, 0)

    async def scenario() -> None:
        await filled(kafka, topic, 100)
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=f"group-{topic}", enable_auto_commit=False)
        await consumer.start()
        consumer.assign([place])
        try:
            assert kafka_ports.generation_of(consumer) == kafka_ports.NO_GENERATION
            await consumer.commit({place: 100})
            for generation in (3, kafka_ports.NO_GENERATION):
                with pytest.raises(CommitFailedError):
                    await kafka_ports.commit(consumer, {named: (6, "")}, generation)
            assert await positions(kafka, topic) == {0: 100}
            await consumer.commit({place: 6})  # the broker accepts it without a generation
            assert await positions(kafka, topic) == {0: 6}
        finally:
            await consumer.stop()

    asyncio.run(scenario())


def test_what_one_partition_is_answered_is_not_said_of_others(kafka: str, make_topic: Topics) -> None:
    """The client raises one partition's answer and retries all, forever if a topic is deleted."""
    topic = make_topic(1)

    async def scenario() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=f"group-{topic}", enable_auto_commit=False)
        await consumer.start()
        there, gone = Partition(topic, 0), Partition(topic, 7)
        consumer.assign([TopicPartition(each.topic, each.partition) for each in (there, gone)])
        try:
            async with asyncio.timeout(20):
                with pytest.raises(kafka_ports.NOT_OF_ALL):
                    await kafka_ports.commit(consumer, {gone: (1, ""), there: (5, "")}, None)
                await kafka_ports.commit(consumer, {there: (6, "")}, None)
            assert await positions(kafka, topic) == {0: 6}
            with pytest.raises(kafka_ports.NOT_OF_ALL):  # partition 8 does not exist
                await kafka_ports.commit(consumer, {there: (7, ""), Partition(topic, 8): (1, "")}, None)
        finally:
            await consumer.stop()

    asyncio.run(scenario())
