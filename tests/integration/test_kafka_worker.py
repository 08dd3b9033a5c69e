"""Workers on a real topic, through kills and joins: at least once, and no record is skipped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from tests.integration.command_lines import said_here
from tests.integration.kafka_runs import hooked
from tests.integration.servers import KafkaServer, create_topic

from tidegate.conformance import breaches
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import FailurePolicy, PartitionRules
from tidegate.consumer.protocol.commands import CommitRefused, Committed, Event, Lost, MetadataRefused, Revoked, Work
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, Instant
from tidegate.model.records import BROKER, PRODUCER, Record
from tidegate.sim.program.recording import Other, Same, read
from tidegate_adapters.cli.recordings import again
from tidegate_adapters.kafka.client import client, record_of
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.observe.recorder import Recorder

RECORDS, PARTITIONS = 20_000, 8
MEMBER = Path(__file__).with_name("kafka_member.py")
LIMIT = 120.0


async def produce(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20)
    await producer.start()
    try:
        sent = [await producer.send(topic, b"%d" % n, partition=n % PARTITIONS) for n in range(RECORDS)]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


class Facts:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self, kind: str) -> Iterator[tuple[str, list[int]]]:
        for log in sorted(self.folder.glob("*.log")):
            text = log.read_text()
            for line in text[: text.rfind("\n") + 1].splitlines():
                word, *numbers = line.split()
                if word == kind:
                    yield log.stem, list(map(int, numbers))

    def processed(self) -> Counter[tuple[int, int]]:
        return Counter((partition, offset) for _, (partition, offset) in self.lines("processed"))


@contextmanager
def member(bootstrap: str, topic: str, name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(MEMBER), bootstrap, topic, f"group-{topic}", name, str(folder / f"{name}.log")]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Watcher:
    def __init__(self, bootstrap: str, topic: str, facts: Facts) -> None:
        self.bootstrap, self.topic, self.facts = bootstrap, topic, facts
        self.committed = [0] * PARTITIONS
        self.looks = 0

    async def until(self, done: Callable[[], bool]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            limit = time.monotonic() + LIMIT
            while not done():
                assert time.monotonic() < limit, f"committed {self.committed} after {LIMIT} s"
                await self.look(admin)
                await asyncio.sleep(0.2)
            await self.look(admin)
        finally:
            await admin.close()

    async def look(self, admin: AIOKafkaAdminClient) -> None:
        found = await admin.list_consumer_group_offsets(f"group-{self.topic}")
        processed = self.facts.processed()  # read AFTER the positions: work below them must be recorded
        for partition in range(PARTITIONS):
            entry = found.get(TopicPartition(self.topic, partition))
            position = 0 if entry is None else max(0, entry.offset)
            assert position >= self.committed[partition], f"partition {partition} fell from {self.committed[partition]}"
            missing = [
                offset for offset in range(self.committed[partition], position) if not processed[partition, offset]
            ]
            assert not missing, f"partition {partition} is committed to {position}, unfinished: {missing[:5]}"
            self.committed[partition] = position
        self.looks += 1


@pytest.mark.long  # the storm also kills members
def test_every_record_is_processed_though_a_member_is_killed(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    """Laws P1 and AS2 on a real broker, with a SIGKILL and two rebalances."""
    topic = make_topic(PARTITIONS)
    facts = Facts(tmp_path)
    watcher = Watcher(kafka, topic, facts)
    asyncio.run(produce(kafka, topic))
    with member(kafka, topic, "first", tmp_path) as first, member(kafka, topic, "second", tmp_path) as second:
        asyncio.run(watcher.until(lambda: sum(facts.processed().values()) >= RECORDS // 2))
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with member(kafka, topic, "third", tmp_path) as third:
            asyncio.run(watcher.until(lambda: sum(watcher.committed) >= RECORDS))
            for process in (second, third):
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=30) == 0

    processed = facts.processed()
    assert set(processed) == {(n % PARTITIONS, n // PARTITIONS) for n in range(RECORDS)}
    assert watcher.committed == [RECORDS // PARTITIONS] * PARTITIONS
    duplicates = sum(processed.values()) - RECORDS
    assert duplicates <= uncommitted_at_assignments(facts), f"{duplicates} duplicates"
    assert any(True for _ in facts.lines("closed")), "the gate never closed"
    assert watcher.looks > 10
    assert {name for name, _ in facts.lines("processed")} == {"first", "second", "third"}
    print(f"{duplicates} duplicates of at most {uncommitted_at_assignments(facts)}, {watcher.looks} looks")


def uncommitted_at_assignments(facts: Facts) -> int:
    """A record delivered n times was uncommitted at n - 1 assignments."""
    delivered = Counter((numbers[0], offset) for _, numbers in facts.lines("delivered") for offset in numbers[1:])
    floors: dict[int, list[int]] = {}
    for _, (partition, _, committed) in facts.lines("assigned"):
        floors.setdefault(partition, []).append(committed)
    for (partition, offset), times in delivered.items():
        assert times <= sum(floor <= offset for floor in floors[partition]), f"{partition} @{offset} came {times} times"
    return sum(delivered.values()) - len(delivered)


def test_a_failing_handler_stops_its_partition_uncommitted(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    """Laws P4, K2 and RE1 on a real broker; the recorded events reproduce the commands."""
    recorder = Recorder(tmp_path / "orders.jsonl", "orders", kind="reducer")
    topic = make_topic(2)
    seen: list[tuple[int, int]] = []
    events: list[Event] = []

    async def scenario() -> tuple[int | None, int | None]:
        producer = AIOKafkaProducer(bootstrap_servers=kafka)
        await producer.start()
        for n in range(40):
            await producer.send_and_wait(topic, b"%d" % n, partition=n % 2)
        await producer.stop()

        async def handle(record: Record) -> None:
            seen.append((record.partition, record.offset))
            if seen[-1] == (0, 5):
                raise RuntimeError("poison")

        def observe(event: Event, _: ConsumerState) -> None:
            events.append(event)

        worker = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", observe=observe, record=recorder.stepped
        )
        run = asyncio.create_task(worker.run())
        limit = time.monotonic() + 30
        while (1, 19) not in seen or (0, 5) not in seen:
            assert time.monotonic() < limit
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        worker.stop()
        await run
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        found = await admin.list_consumer_group_offsets(f"group-{topic}")
        await admin.close()
        return found[TopicPartition(topic, 0)].offset, found[TopicPartition(topic, 1)].offset

    with recorder:
        assert asyncio.run(scenario()) == (5, 20)
    assert breaches(events) == ()
    (tmp_path / "workers.py").write_text(REDUCERS)
    text = recorder.path.read_text()
    same = again(read(text), f"{tmp_path}/workers.py:orders")
    assert isinstance(same, Same)
    assert not same.then
    assert 4 <= same.steps <= len(events) + 2  # one step for each loop turn, plus the stop and the leave
    other = again(read(text), f"{tmp_path}/workers.py:fewer")
    assert isinstance(other, Other)
    assert other.recorded != other.now


def test_the_page_on_recording_records_a_worker_that_is_executed_again(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    (sample,) = re.findall(r"<!-- with a broker: worker.py -->\n```python\n(.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"`tidegate (replay orders.jsonl worker.py:\w+)`", page)
    topic = make_topic(1)
    asyncio.run(fill(kafka, topic, 5))
    (tmp_path / "worker.py").write_text(
        sample.replace('["orders"]', f'["{topic}"]').replace("localhost:9092", kafka).replace('"shop"', f'"{topic}"')
    )
    with subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            handled = {process.stdout.readline() for _ in range(5)}
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    done = said_here(command.split(), tmp_path, capsys)

    assert handled == {f"handled {offset}\n" for offset in range(5)}
    assert (done.code, done.err) == (0, "")
    assert re.match(r"reproduced \d+ steps of orders", done.out)


REDUCERS = """
from tidegate.consumer.worker.consumer import ConsumerRules
orders, fewer = ConsumerRules(), ConsumerRules(executors=1)
"""


async def fill(bootstrap: str, topic: str, records: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(topic, b"%d" % n, partition=0) for n in range(records)])
    finally:
        await producer.stop()


async def committed(bootstrap: str, topic: str) -> tuple[int, str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        found = (await admin.list_consumer_group_offsets(f"group-{topic}"))[TopicPartition(topic, 0)]
    finally:
        await admin.close()
    return found.offset, found.metadata


async def until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < limit
        await asyncio.sleep(0.02)


def test_what_is_done_behind_a_stuck_record_is_not_done_again(kafka: str, make_topic: Callable[[int], str]) -> None:
    """The first owner commits position 0 and metadata for the rest, and interrupts the stuck
    record.
    """
    topic = make_topic(1)
    seen: list[int] = []
    ended: list[str] = []
    brief = PartitionRules(drain=Budget(SECOND, SECOND // 4, SECOND // 4))

    async def stuck(record: Record) -> None:
        seen.append(record.offset)
        if record.offset == 0:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("interrupted")

    async def handled(record: Record) -> None:
        seen.append(record.offset)

    async def scenario() -> None:
        await fill(kafka, topic, 40)
        first = Worker([topic], stuck, bootstrap=kafka, group=f"group-{topic}", consumer=ConsumerRules(partition=brief))
        run = asyncio.create_task(first.run())
        await until(lambda: len(seen) == 40)
        first.stop()
        await run
        position, metadata = await committed(kafka, topic)
        assert (position, ended) == (0, ["interrupted"])
        assert metadata.startswith("tg1")
        seen.clear()
        second = Worker([topic], handled, bootstrap=kafka, group=f"group-{topic}")
        run = asyncio.create_task(second.run())
        await until(lambda: second.state.load == 0 and bool(seen))
        second.stop()
        await run
        assert await committed(kafka, topic) == (40, "")
        assert seen == [0]

    asyncio.run(scenario())


def test_what_was_done_by_a_handler_that_blocks_for_longer_than_the_session_is_not_done_again(
    kafka: str, make_topic: Callable[[int], str]
) -> None:
    """The group evicts the member, which commits after it is back."""
    topic = make_topic(1)
    seen: list[int] = []
    told: list[Event] = []

    async def blocks(record: Record) -> None:
        seen.append(record.offset)
        if record.offset == 0:
            time.sleep(3)  # noqa: ASYNC251  blocking is under test

    async def scenario() -> None:
        await fill(kafka, topic, 3)
        worker = Worker(
            [topic],
            blocks,
            bootstrap=kafka,
            group=f"group-{topic}",
            observe=lambda event, _: told.append(event),
            session_timeout_ms=2_000,
            heartbeat_interval_ms=300,
        )
        run = asyncio.create_task(worker.run())
        await until(lambda: any(isinstance(each, Committed) for each in told))
        worker.stop()
        await run
        assert (await committed(kafka, topic))[0] == 3
        assert any(isinstance(each, CommitRefused | Lost) for each in told)
        assert seen == [0, 1, 2]

    asyncio.run(scenario())


def test_a_record_that_failed_is_answered_for_and_work_goes_on(kafka: str, make_topic: Callable[[int], str]) -> None:
    """A wrong answer of the hook counts as a failure and stops the partition."""
    topic = make_topic(1)
    answered: list[tuple[str, tuple[int, ...]]] = []
    rules = ConsumerRules(partition=PartitionRules(failure_policy=FailurePolicy.SKIP))

    async def handle(record: Record) -> None:
        if record.offset in {5, 15}:
            raise RuntimeError("poison")

    async def hook(work: Work, records: tuple[Record, ...]) -> object:
        answered.append((type(work.request).__name__, tuple(record.offset for record in records)))
        return None if records[0].offset == 5 else "done"

    async def scenario() -> None:
        await fill(kafka, topic, 20)
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", consumer=rules)
        worker = hooked(worker, hook, worker.settings.consumer)
        run = asyncio.create_task(worker.run())
        await until(lambda: len(answered) == 2)
        await asyncio.sleep(0.3)
        worker.stop()
        await run
        assert (await committed(kafka, topic))[0] == 15

    asyncio.run(scenario())
    assert answered == [("DeliverRecords", (5,)), ("DeliverRecords", (15,))]


def test_a_rebalance_while_it_drains_is_let_go_as_well(kafka: str, make_topic: Callable[[int], str]) -> None:
    """Laws SD2 and SD5: another member joins while the first drains a stuck record."""
    topic = make_topic(1)
    seen: list[tuple[str, int]] = []
    wanted: list[Event] = []
    slowly = ConsumerRules(partition=PartitionRules(drain=Budget(4 * SECOND, SECOND // 2, SECOND // 2)))

    def worker(name: str, consumer: ConsumerRules) -> Worker:
        async def handle(record: Record) -> None:
            seen.append((name, record.offset))
            if record.offset == 1:
                await asyncio.Event().wait()

        def observe(event: Event, _: ConsumerState) -> None:
            if isinstance(event, Revoked):
                wanted.append(event)

        return Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", consumer=consumer, observe=observe,
            heartbeat_interval_ms=300,
        )  # fmt: skip

    async def scenario() -> None:
        await fill(kafka, topic, 2)
        first, second = worker("first", slowly), worker("second", ConsumerRules())
        run = asyncio.create_task(first.run())
        await until(lambda: len(seen) == 2)
        first.stop()
        other = asyncio.create_task(second.run())
        await until(lambda: bool(wanted))
        assert not run.done()
        await asyncio.wait_for(run, 20)
        assert (await committed(kafka, topic))[0] == 1
        await until(lambda: ("second", 1) in seen)
        second.stop()
        second.stop()
        began = time.monotonic()
        await asyncio.wait_for(other, 20)
        assert time.monotonic() - began < 5
        assert seen == [("first", 0), ("first", 1), ("second", 1)]

    asyncio.run(scenario())


@pytest.mark.long  # test_simulated_worker tests the replies
def test_a_broker_that_takes_no_metadata_gets_none() -> None:
    events: list[Event] = []
    goes_on = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.offset == 0:
            await goes_on.wait()

    def observe(event: Event, _: ConsumerState) -> None:
        events.append(event)

    async def scenario(bootstrap: str) -> None:
        await fill(bootstrap, "small", 20)
        rules = ConsumerRules(partition=PartitionRules(replay_max=1))
        worker = Worker(["small"], handle, bootstrap=bootstrap, group="group-small", consumer=rules, observe=observe)
        run = asyncio.create_task(worker.run())
        await until(lambda: sum(isinstance(event, MetadataRefused) for event in events) == 2)
        goes_on.set()
        await until(lambda: any(isinstance(event, Committed) and event.position == 20 for event in events))
        worker.stop()
        await run
        assert await committed(bootstrap, "small") == (20, "")

    with KafkaServer("offset.metadata.max.bytes=4\n") as server:
        server.create_topic("small", 1)
        asyncio.run(scenario(server.bootstrap))


def test_an_unreachable_broker_is_a_clear_error() -> None:
    async def handle(record: object) -> None:
        raise AssertionError(record)

    async def scenario() -> None:
        await Worker(["topic"], handle, bootstrap="127.0.0.1:1", group="group").run()

    with pytest.raises(TidegateError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        asyncio.run(scenario())


def test_a_session_that_the_broker_does_not_take_is_a_clear_error(kafka: str) -> None:
    """The broker's error does not name the option."""

    async def handle(record: object) -> None:
        raise AssertionError(record)

    async def scenario() -> None:
        await Worker(["topic"], handle, bootstrap=kafka, group="group", session_timeout_ms=3_600_000).run()

    with pytest.raises(TidegateError, match=r"(?s)InvalidSessionTimeoutError.*set session_timeout_ms"):
        asyncio.run(scenario())


def test_a_connection_that_is_closed_at_the_start_is_made_again(kafka: str) -> None:
    host, _, port = kafka.partition(":")
    count = 0

    async def piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        if count > 1:
            there, back = await asyncio.open_connection(host, int(port))
            await asyncio.gather(pumped(reader, back), pumped(there, writer))
        writer.close()

    async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def scenario() -> None:
        seen = asyncio.Event()

        async def handle(_: Record) -> None:
            seen.set()

        await fill(kafka, topic, 1)
        async with await asyncio.start_server(piped, "127.0.0.1", 0) as proxy:
            address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            worker = Worker([topic], handle, bootstrap=address, group=topic)
            run = asyncio.create_task(worker.run())
            async with asyncio.timeout(60):
                await seen.wait()
            worker.stop()
            await run
        assert count > 1

    topic = f"proxied-{os.getpid()}"
    create_topic(kafka, topic, 1)
    asyncio.run(scenario())


def test_a_worker_shows_no_option_and_changes_what_it_is_told_without_its_code() -> None:
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", sasl_plain_password="hunter2")  # noqa: S106  a name for one
    other = worker.configured(attrs.evolve(worker.settings, topics=("a", "b")))

    assert repr(worker) == "<Worker on orders in group g>"
    assert "hunter2" not in repr(worker.settings)
    assert (other.settings.topics, other.handle) == (("a", "b"), handle)
    assert other.settings.options == {"sasl_plain_password": "hunter2"}


@pytest.mark.parametrize(
    ("option", "said"),
    [("sesion_timeout_ms", "did you mean session_timeout_ms?"), ("enable_auto_commit", "the worker says that itself")],
)
def test_an_option_that_is_none_is_refused_without_its_value(option: str, said: str) -> None:
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    with pytest.raises(Misuse) as refused:
        Worker(["orders"], handle, bootstrap="b:1", group="g", **{option: "hunter2"})  # type: ignore[arg-type]

    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("bootstrap", ["", "host:", "host:port", "b:1,", "PLAINTEXT://b:1", "::1", "[::1", "b 1"])
def test_an_address_that_is_none_is_a_clear_error(bootstrap: str) -> None:
    with pytest.raises(Misuse, match="is no address of a broker"):
        client(bootstrap, "group", {})


@pytest.mark.parametrize("bootstrap", ["b", "b:1", "10.0.0.1:9092, b.example:1", "[::1]:9092", "[fe80::1%eth0]"])
def test_an_address_is_a_host_and_perhaps_a_port(bootstrap: str) -> None:
    async def made() -> None:
        await client(bootstrap, "group", {}).stop()

    asyncio.run(made())


def test_an_option_of_a_wrong_value_is_a_clear_error() -> None:
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    with pytest.raises(Misuse, match="security_protocol"):
        Worker(["orders"], handle, bootstrap="b:1", group="g", security_protocol="TLS")
    worker = Worker(
        ["orders"], handle, bootstrap="b:1", group="g", security_protocol="SASL_SSL", sasl_mechanism="PLAIN"
    )
    with pytest.raises(Misuse, match="sasl_plain_username"):
        asyncio.run(worker.run())


@pytest.mark.parametrize("topics", ["topic", [], [""]])
def test_topics_that_are_none_are_refused(topics: list[str]) -> None:
    async def handle(record: object) -> None:
        raise AssertionError(record)

    async def scenario() -> None:
        Worker(topics, handle, bootstrap="127.0.0.1:1", group="group")

    with pytest.raises(Misuse, match="topics"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("timestamp", "kind", "expected"),
    [
        (1_700, 0, Instant(1_700_000, PRODUCER)),
        (1_700, 1, Instant(1_700_000, BROKER)),
        (-1, 0, None),
        (None, None, None),
    ],
)
def test_a_record_of_aiokafka_becomes_a_value(
    timestamp: int | None, kind: int | None, expected: Instant | None
) -> None:
    """Milliseconds become microseconds of the same clock. A header may have no value."""
    for headers in ([("trace", b"1"), ("trace", None)], []):
        received = ConsumerRecord("topic", 1, 2, timestamp, kind, b"k", None, None, 1, 0, headers)
        made = Record("topic", 1, 2, b"k", None, tuple(headers), expected)
        assert (record_of(received), hash(record_of(received)), repr(record_of(received))) == (
            made,
            hash(made),
            repr(made),
        )


def test_what_a_deserialiser_makes_is_looked_at() -> None:
    with pytest.raises(Misuse, match="value"):
        record_of(ConsumerRecord("topic", 1, 2, 1_700, 0, None, {"a": 1}, None, 1, 0, []))
