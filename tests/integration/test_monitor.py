from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from itertools import pairwise
from random import Random
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client import CollectorRegistry
from tests.integration.kafka_runs import hooked

from tidegate.consumer.fanout import Rules
from tidegate.consumer.flow.backpressure import Thresholds
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import FailurePolicy, PartitionRules
from tidegate.consumer.protocol.commands import Work
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.health import Healthy, Stall, Unhealthy
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import Fixed
from tidegate_adapters.kafka.client import Producer
from tidegate_adapters.kafka.embedded import EmbeddedLog
from tidegate_adapters.kafka.monitor import of_health
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.observe.handler_times import BOUNDS_S, Handled, HandlerTimes
from tidegate_adapters.observe.http import Answer, served
from tidegate_adapters.shell.monitor import looking
from tidegate_adapters.testing import event_loop

P0: Final = TopicPartition("orders", 0)
SOON: Final = timedelta(milliseconds=300)


def records(*values: bytes, partition: int = 0) -> list[Record]:
    return [Record("orders", partition, 0, b"secret-key", value) for value in values]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  a worker has no event for it
            await asyncio.sleep(0.01)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def got(port: int, path: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


def shown(registry: CollectorRegistry, name: str, topic: str = "orders", **labels: str) -> float | None:
    return registry.get_sample_value(f"tidegate_worker_{name}", {"topic": topic, **labels})


def run(worker: Worker, log: EmbeddedLog, meanwhile: Callable[[], Awaitable[None]]) -> None:
    async def both() -> None:
        running = asyncio.create_task(worker.run(log.connect))
        try:
            await meanwhile()
        finally:
            worker.stop()
            worker.stop()
            await running

    asyncio.run(both())


# --- metrics ------------------------------------------------------------------------------------------------------------


def test_a_registry_shows_what_has_happened_and_what_is() -> None:
    registry, stuck = CollectorRegistry(), asyncio.Event()

    async def handle(record: Record) -> None:
        if record.value == b"poison":
            raise ValueError
        if record.value == b"stuck":
            await stuck.wait()

    rules = ConsumerRules(
        partition=PartitionRules(
            fanout=Rules(1, 0, task_delivery=False, record_delivery=False, window_delivery=False), backoff=Fixed(1_000)
        )
    )
    log = EmbeddedLog([*records(b"a", b"stuck", b"b"), *records(b"a", b"poison", b"b", partition=1)])
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", consumer=rules, metrics=registry)

    async def meanwhile() -> None:
        failed = {"partition": "1"}
        await until(lambda: shown(registry, "failed_records", **failed) == 1)
        await until(lambda: shown(registry, "commits_total", partition="0", outcome="committed") == 1)
        assert shown(registry, "handled_records_total", partition="0") == 2
        assert shown(registry, "handler_failures_total", **failed) == 2
        assert shown(registry, "handler_failures_total", partition="0") == 0
        assert shown(registry, "retries_total", **failed) == 1
        assert shown(registry, "lag_records", partition="0") == 2
        assert shown(registry, "in_flight_records", partition="0", stage="running") == 1
        assert shown(registry, "in_flight_records", partition="0", stage="waiting") == 0
        assert shown(registry, "held_partitions", reason="failure") == 1
        assert shown(registry, "held_partitions", reason="load") == 0
        age_s = shown(registry, "oldest_record_age_seconds", partition="0")
        assert age_s is not None
        assert age_s > 0
        ended = shown(registry, "handler_seconds_count")
        assert ended == shown(registry, "handler_seconds_bucket", le="+Inf") == 6

    run(worker, log, meanwhile)

    assert list(registry.collect()) == []  # so another worker may use the registry


def test_a_dead_letter_counts_when_it_is_written() -> None:
    """Not when it is requested. A second one cannot be written and stays pending."""
    registry = CollectorRegistry()

    async def handle(_: Record) -> None:
        raise ValueError

    async def hooks(work: Work, _: object) -> None:
        if work.partition == P0:
            raise OSError

    rules = ConsumerRules(partition=PartitionRules(failure_policy=FailurePolicy.SKIP))
    log = EmbeddedLog([*records(b"a"), *records(b"a", b"b", partition=1)])
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", consumer=rules, metrics=registry)
    worker = hooked(worker, hooks, worker.settings.consumer)

    async def meanwhile() -> None:
        await until(lambda: shown(registry, "failed_records", partition="0") == 1)
        await until(lambda: shown(registry, "commits_total", partition="1", outcome="committed") == 1)
        assert shown(registry, "dead_letters_total", partition="1") == 2
        assert shown(registry, "dead_letters_total", partition="0") is None

    run(worker, log, meanwhile)


def test_batches_are_counted_by_their_records() -> None:
    registry = CollectorRegistry()

    async def handle(given: list[Record]) -> None:
        if given[0].partition:
            raise ValueError

    log = EmbeddedLog([*records(b"a", b"b", b"c"), *records(b"a", b"b", partition=1)])
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", batch=5, metrics=registry)

    async def meanwhile() -> None:
        await until(lambda: shown(registry, "handler_failures_total", partition="1") == 1)
        await until(lambda: shown(registry, "handled_records_total", partition="0") == 3)
        assert shown(registry, "handled_records_total", partition="1") == 0
        assert shown(registry, "handler_seconds_count") == 2

    run(worker, log, meanwhile)


@pytest.mark.parametrize("batch", [None, 2])
def test_what_is_interrupted_has_not_failed(batch: int | None) -> None:
    """A shutdown must not raise an alarm."""
    registry, counts = CollectorRegistry(), list[float | None]()

    async def handle(_: object) -> None:
        await asyncio.Event().wait()

    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncIterator[None]:
        yield
        counts.append(shown(registry, "handler_failures_total", partition="0"))

    rules = ConsumerRules(partition=PartitionRules(drain=Budget(30 * MILLISECOND, 10 * MILLISECOND, 10 * MILLISECOND)))
    worker = Worker(
        ["orders"], handle, bootstrap="b:1", group="g", consumer=rules, batch=batch, metrics=registry, lifespan=lifespan
    )  # fmt: skip

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run(EmbeddedLog(records(b"a")).connect))
            await until(lambda: shown(registry, "in_flight_records", partition="0", stage="running") == 1)
            worker.stop()

    asyncio.run(scenario())

    assert counts == [0]


def test_no_label_is_made_of_what_records_carry() -> None:
    """So the number of series is bounded, and no secret appears."""
    registry = CollectorRegistry()

    async def handle(record: Record) -> None:
        raise ValueError(record.value)

    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", metrics=registry)

    async def meanwhile() -> None:
        await until(lambda: shown(registry, "failed_records", partition="0") == 1)
        labels = {name for family in registry.collect() for sample in family.samples for name in sample.labels}
        values = {each for family in registry.collect() for sample in family.samples for each in sample.labels.values()}
        assert labels == {"topic", "partition", "stage", "reason", "le", "sink"}
        assert not [each for each in values if "secret" in each]

    run(worker, EmbeddedLog(records(b"secret-value")), meanwhile)


def test_a_gate_that_is_closed_holds_all_partitions() -> None:
    registry, stuck = CollectorRegistry(), asyncio.Event()
    rules = ConsumerRules(thresholds=Thresholds(2, 1))
    log = EmbeddedLog([*records(b"a", b"b", b"c"), *records(b"a", partition=1)])

    async def handle(_: Record) -> None:
        await stuck.wait()

    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", concurrency=1, consumer=rules, metrics=registry)

    async def meanwhile() -> None:
        await until(lambda: shown(registry, "held_partitions", reason="load") == 2)

    run(worker, log, meanwhile)


def test_durations_are_counted_as_one_by_one() -> None:
    for seed in range(20):
        seconds = [bound * (1 + (seed + at) % 3 / 2) for at, bound in enumerate(BOUNDS_S[: 1 + seed % 5])]
        at_once, one_by_one = Handled(), Handled()
        at_once.add(0, 1, seconds)
        for each in seconds:
            one_by_one.add(0, 0, [each])

        assert at_once.counts == one_by_one.counts
        assert sum(at_once.counts) == len(seconds)
        assert at_once.total_s == pytest.approx(one_by_one.total_s)


def test_how_long_a_handler_of_a_task_took_is_told_in_seconds() -> None:
    """A handler whose start was not observed took no time."""
    times, began = HandlerTimes(), Instant(0)
    times.begin(("a", "b"), began)
    times.end("send", ("a",), began + 1_500 * MILLISECOND)
    times.end("send", ("b", "unseen"), began + 40 * MILLISECOND)
    took = times.took["send"]
    assert took.total_s == pytest.approx(1.54)
    assert [bisect_left(BOUNDS_S, each) for each in (0.0, 0.04, 1.5)] == [
        at for at, count in enumerate(took.counts) if count
    ]


def test_a_store_that_takes_long_to_say_how_it_is_is_asked_for_a_tenth_of_the_time() -> None:
    asked: list[float] = []

    async def asking(takes: float, _: object) -> None:
        async def look() -> None:
            asked.append(asyncio.get_running_loop().time())
            await asyncio.sleep(takes)

        async with looking(look, 60 * SECOND):
            await asyncio.sleep(210)

    for takes, every in ((10.0, 100.0), (0.0, 5.0)):
        asked.clear()
        event_loop.run(partial(asking, takes), 1)
        assert {round(after - at) for at, after in pairwise(asked)} == {every}


def test_a_registry_shows_one_worker_at_a_time() -> None:
    """Two would be one series with two values."""
    registry, stuck = CollectorRegistry(), asyncio.Event()

    async def handle(_: Record) -> None:
        await stuck.wait()

    first, second = (Worker(["orders"], handle, bootstrap="b:1", group="g", metrics=registry) for _ in range(2))

    async def meanwhile() -> None:
        await until(lambda: shown(registry, "failed_records", partition="0") == 0)
        with pytest.raises(Misuse, match="shows another one already"):
            await second.run(EmbeddedLog(records(b"a")).connect)

    run(first, EmbeddedLog(records(b"a")), meanwhile)


# --- health -------------------------------------------------------------------------------------------------------------


def test_a_worker_whose_loop_is_held_up_is_not_healthy() -> None:
    port = free_port()
    answers: list[tuple[int, str, str]] = []

    async def blocks(_: Record) -> None:
        asked = asyncio.get_running_loop().run_in_executor(None, after_a_while, port, answers)
        time.sleep(1.5)  # noqa: ASYNC251  blocking is under test
        await asked

    worker = Worker(["orders"], blocks, bootstrap="b:1", group="g", metrics_port=port, stalled_after=SOON)

    async def meanwhile() -> None:
        await until(lambda: bool(answers))

    run(worker, EmbeddedLog(records(b"a")), meanwhile)
    status, _, text = answers[0]

    assert status == 503
    assert json.loads(text)["silent_s"] >= SOON.total_seconds()


def test_health_is_told_in_seconds() -> None:
    told = of_health(Unhealthy((Stall(P0, 3, 1_500 * MILLISECOND),), 2 * SECOND))

    stalled = {"topic": "orders", "partition": 0, "position": 3, "for_s": 1.5, "causes": []}
    assert json.loads(told.content) == {"healthy": False, "silent_s": 2, "stalled": [stalled], "sinks": []}


def test_a_sink_that_does_not_answer_is_shown_in_the_log_in_health_and_in_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry, is_away = CollectorRegistry(), [True]

    class Away(Producer):
        async def start(self) -> None:
            if is_away:
                raise OSError("no route")

        async def stop(self) -> None: ...

        async def send(self, record: Send) -> Awaitable[object]:  # noqa: ARG002  only the call counts
            return asyncio.sleep(0)

    async def handle(_: Record) -> Send:
        return Send("shipped", b"")

    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", metrics=registry)
    log = EmbeddedLog(records(*(b"%d" % each for each in range(8))))

    async def scenario(_: Random) -> None:
        run = asyncio.create_task(worker.run(log.connect, lambda *_: Away()))
        await until(lambda: registry.get_sample_value("tidegate_worker_sink_open", {"sink": "kafka"}) == 1)
        assert registry.get_sample_value("tidegate_worker_sink_waiting_payloads", {"sink": "kafka"}) == 8
        told = of_health(worker.health(), worker._member.status.sinks)  # type: ignore[union-attr]  # noqa: SLF001
        [sink] = json.loads(told.content)["sinks"]
        assert (told.status, sink) == (200, {"sink": "kafka", "circuit": "open", "waiting": 8})
        is_away.clear()
        await until(lambda: log.positions == log.ends)
        assert json.loads(of_health(worker.health(), worker._member.status.sinks).content)["sinks"] == []  # type: ignore[union-attr]  # noqa: SLF001
        worker.stop()
        await run

    event_loop.run(scenario, 1)
    assert "kafka does not answer: nothing is delivered for 5 s" in caplog.text
    assert "payloads were not delivered to kafka, and are tried again: OSError: no route" in caplog.text
    assert (
        registry.get_sample_value("tidegate_worker_sink_attempts_total", {"sink": "kafka", "outcome": "unanswered"})
        is None
    )


def after_a_while(port: int, answers: list[tuple[int, str, str]]) -> None:
    time.sleep(0.8)
    answers.append(got(port, "/health"))


def test_before_it_runs_a_worker_is_healthy() -> None:
    async def handle(_: Record) -> None: ...

    assert Worker(["orders"], handle, bootstrap="b:1", group="g").health() == Healthy()


def test_a_port_that_is_taken_is_told() -> None:
    """A worker must not run unmonitored."""

    async def handle(_: Record) -> None: ...

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = Worker(["orders"], handle, bootstrap="b:1", group="g", metrics_port=port)
        with pytest.raises(Misuse, match=f"nothing can listen on port {port}"):
            asyncio.run(worker.run(EmbeddedLog([]).connect))


@pytest.mark.parametrize(
    ("host", "asked"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")]  # noqa: S104  under test
)  # fmt: skip
def test_it_listens_where_it_is_told(host: str, asked: str) -> None:
    """The answers do not show the Python version."""
    page = {"/": lambda _: Answer(HTTPStatus.OK, "text/plain", b"here")}

    with served(host, 0, page) as port, urllib.request.urlopen(f"http://{asked}:{port}/", timeout=10) as answer:
        assert answer.read() == b"here"
        assert answer.headers["Server"].strip() == "tidegate"


def test_by_default_it_listens_on_loopback() -> None:
    async def handle(_: Record) -> None: ...

    assert Worker(["orders"], handle, bootstrap="b", group="g", metrics_port=1).settings.metrics_host == "127.0.0.1"
    with pytest.raises(Misuse, match="an address to listen on"):
        Worker(["orders"], handle, bootstrap="b", group="g", metrics_host="")
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", metrics_port=0, metrics_host="203.0.113.1")
    with pytest.raises(Misuse, match=r"nothing can listen on port 0 of 203\.0\.113\.1"):
        asyncio.run(worker.run(EmbeddedLog([]).connect))


@pytest.mark.parametrize("port", [-1, 65_536, True])
def test_what_is_no_port_is_refused(port: int) -> None:
    async def handle(_: Record) -> None: ...

    with pytest.raises(Misuse, match="_port must be"):
        Worker(["orders"], handle, bootstrap="b:1", group="g", metrics_port=port)


# --- a real broker ------------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_a_stuck_handler_is_seen_from_without(kafka: str, make_topic: Callable[[int], str]) -> None:
    topic, port, stuck = make_topic(2), free_port(), asyncio.Event()
    p0 = TopicPartition(topic, 0)

    async def handle(record: Record) -> None:
        if record.value == b"stuck":
            await stuck.wait()

    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka)
        await producer.start()
        for partition, value in ((0, b"a"), (0, b"stuck"), (0, b"b"), (1, b"a")):
            await producer.send_and_wait(topic, value, partition=partition)
        await producer.stop()
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", metrics_port=port, stalled_after=SOON)
        running = asyncio.create_task(worker.run())
        await until(lambda: is_at(worker.health(), p0, 1))
        status, kind, text = await asyncio.to_thread(got, port, "/health")
        told = json.loads(text)
        (stalled,) = told["stalled"]
        assert (status, kind, told["healthy"], told["silent_s"]) == (503, "application/json", False, None)
        assert (stalled["topic"], stalled["partition"], stalled["causes"]) == (topic, 0, [])
        assert stalled["for_s"] >= SOON.total_seconds()

        status, kind, text = await asyncio.to_thread(got, port, "/metrics")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert f'tidegate_worker_lag_records{{partition="0",topic="{topic}"}} 2.0' in text
        assert re.search(rf'tidegate_worker_handler_seconds_bucket{{le="0.001",topic="{topic}"}} [0-3].0', text)
        assert (await asyncio.to_thread(got, port, "/else"))[0] == 404

        stuck.set()
        await until(lambda: worker.health() == Healthy())
        assert (await asyncio.to_thread(got, port, "/health"))[0] == 200
        worker.stop()
        await running

    asyncio.run(scenario())
    with pytest.raises(urllib.error.URLError):
        got(port, "/health")


@pytest.mark.kafka
def test_the_lag_of_a_partition_that_is_not_fetched_from_grows_with_its_log(
    kafka: str, make_topic: Callable[[int], str]
) -> None:
    """The client learns a log's end with its records, which a stopped partition does not get."""
    topic, registry = make_topic(1), CollectorRegistry()

    async def handle(_: Record) -> None:
        raise ValueError

    def is_behind(records: int) -> bool:
        where = {"topic": topic, "partition": "0"}
        return registry.get_sample_value("tidegate_worker_lag_records", where) == records

    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka)
        await producer.start()
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", metrics=registry)
        running = asyncio.create_task(worker.run())
        for appended in (1, 101):
            while (await producer.send_and_wait(topic, b"", partition=0)).offset + 1 < appended:
                pass
            await until(partial(is_behind, appended))
        await producer.stop()
        worker.stop()
        await running

    asyncio.run(scenario())


@pytest.mark.kafka
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_lag_falls_to_0_where_a_log_ends_with_what_no_client_hands_out(
    isolation: Any, kafka: str, make_topic: Callable[[int], str]
) -> None:
    """A control marker, or with `read_committed` an aborted transaction."""
    topic, registry, seen = make_topic(1), CollectorRegistry(), list[bytes | None]()

    async def handle(record: Record) -> None:
        seen.append(record.value)

    def is_behind(records: int) -> bool:
        where = {"topic": topic, "partition": "0"}
        return registry.get_sample_value("tidegate_worker_lag_records", where) == records

    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"one", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"never", partition=0)
        await producer.abort_transaction()
        worker = Worker(
            [topic], handle, bootstrap=kafka, group=f"group-{topic}", metrics=registry, isolation_level=isolation
        )
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(seen) and is_behind(0))
        worker.stop()
        await running
        await producer.stop()

    asyncio.run(scenario())
    assert seen == [b"one", b"never"][: 1 if isolation == "read_committed" else 2]


def is_at(health: object, partition: TopicPartition, position: int) -> bool:
    return isinstance(health, Unhealthy) and [(each.partition, each.position) for each in health.stalls] == [
        (partition, position)
    ]


# --- without the extra --------------------------------------------------------------------------------------------------

WITHOUT: Final = """
import asyncio, sys, urllib.request
sys.modules["prometheus_client"] = None
from tidegate_adapters.kafka.embedded import EmbeddedLog
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.kafka.client import Producer
async def handle(record): ...

async def main():
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", {})
    run = asyncio.create_task(worker.run(EmbeddedLog([]).connect))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not run.done():
        print((await asyncio.to_thread(urllib.request.urlopen, "http://127.0.0.1:{}/health")).status)
    worker.stop()
    await run

asyncio.run(main())
"""


def test_health_is_served_without_the_extra_and_a_registry_says_what_to_install() -> None:
    port = free_port()
    served, refused = (
        subprocess.run(
            [sys.executable, "-c", WITHOUT.format(told, port)], capture_output=True, text=True, check=False, timeout=60
        )
        for told in (f"metrics_port={port}", "metrics=object()")
    )

    assert (served.returncode, served.stdout) == (0, "200\n")
    assert "pip install 'tidegate[metrics]'" in refused.stderr
