from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from tests.integration.servers import create_topic

from tidegate.consumer.partition.partition import FailurePolicy, PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun, Outcome
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.runtime.handlers import Called, Undecodable, Unread, called

RECORD = Record("orders", 0, 7, b"ann", b"5")
NAMES = ("orders", "audit.ann", "audit.bob", "other")


def made(handlers: Any, topics: Sequence[str] = ("orders",), threads: int = 2, **more: Any) -> Called:
    return called(handlers, topics, threads=threads, **more)


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**given: object) -> None:
        async def scenario() -> None:
            await test(**given)

        asyncio.run(scenario())

    return run


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110  of other threads, and of a broker
            await asyncio.sleep(0.01)


async def anything(_: object) -> None:
    pass


def on_log(worker: Worker, *values: bytes, topic: str = "orders") -> Outcome:
    log = EmbeddedLog(Record(topic, 0, 0, None, value) for value in values)
    return asyncio.run(EmbeddedRun(worker, log).run())


# --- direct calls -------------------------------------------------------------------------------------------------------


def test_an_async_handler_with_nothing_around_it_is_itself() -> None:
    assert made(anything) is anything
    assert made({"orders": anything}) is anything


@in_a_loop
async def test_each_topic_has_its_handler_and_a_name_goes_before_a_pattern() -> None:
    seen: list[tuple[str, str]] = []

    def as_(name: str) -> Callable[[Record], Awaitable[None]]:
        async def handle(record: Record) -> None:
            seen.append((name, record.topic))

        return handle

    handlers = {each: as_(each) for each in ("^audit[.].*", "^.*[.]bob$", "audit.bob", "orders", "^o.*")}
    call = made(handlers, tuple(handlers))
    for topic in (*NAMES, "orders"):
        await call(Record(topic, 0, 0, None, b""))

    assert seen == [
        ("orders", "orders"), ("^audit[.].*", "audit.ann"), ("audit.bob", "audit.bob"), ("^o.*", "other"), ("orders", "orders"),
    ]  # fmt: skip


@in_a_loop
async def test_a_plain_function_runs_in_a_thread_of_which_there_are_so_many() -> None:
    name, most, now, lock, threads = ContextVar("name", default=""), 0, 0, threading.Lock(), Counter[str]()
    met = threading.Barrier(2, timeout=10)

    def handle(_: Record) -> str:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
            threads[threading.current_thread().name] += 1
        met.wait()
        with lock:
            now -= 1
        return name.get()

    name.set("ann")
    call = made(handle)
    assert await asyncio.gather(*(call(RECORD) for _ in range(6))) == ["ann"] * 6
    assert most == 2
    assert threading.current_thread().name not in threads

    def fails(_: Record) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        await made(fails)(RECORD)


@in_a_loop
async def test_a_plain_function_that_answers_a_coroutine_is_awaited() -> None:
    async def later(record: Record) -> int:
        await asyncio.sleep(0)
        return record.offset

    assert await made(lambda record: later(record))(RECORD) == 7  # noqa: PLW0108


@in_a_loop
async def test_a_plain_function_in_which_an_iterator_ends_has_failed() -> None:
    """A future accepts no StopIteration, so the call would never end."""
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await asyncio.wait_for(made(lambda _: next(iter(())))(RECORD), 10)


@in_a_loop
async def test_an_interrupted_call_waits_for_its_thread_and_interrupted_once_more_it_does_not() -> None:
    began, end = threading.Event(), threading.Event()

    def handle(_: Record) -> None:
        began.set()
        end.wait(10)

    call = asyncio.ensure_future(made(handle)(RECORD))
    await until(began.is_set)
    call.cancel()
    done, _ = await asyncio.wait([call], timeout=0.05)
    assert not done
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    end.set()

    waited = asyncio.ensure_future(made(handle)(RECORD))
    await asyncio.sleep(0)
    waited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waited


@in_a_loop
async def test_a_call_that_has_no_thread_yet_is_interrupted_at_once() -> None:
    end = threading.Event()
    call = made(lambda _: end.wait(10), threads=1)
    first, second = asyncio.ensure_future(call(RECORD)), asyncio.ensure_future(call(RECORD))
    await asyncio.sleep(0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    end.set()
    await first


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("undecodable", "got"),
    [
        (Undecodable.FAIL, [{"a": 1}, "JSONDecodeError"]),
        (Undecodable.SKIP, [{"a": 1}, 7]),
        (Undecodable.RAW, [{"a": 1}, b"{"]),
    ],
    ids=["fail", "skip", "raw"],
)
@in_a_loop
async def test_a_handler_gets_what_its_record_is_decoded_to(
    undecodable: Undecodable, got: list[object], *, is_async: bool
) -> None:
    seen: list[object] = []

    async def handle(given: object) -> None:
        seen.append(given.value if isinstance(given, Record) else given)

    def decode(record: Record) -> object:
        return json.loads(record.value or b"")

    async def decode_later(record: Record) -> object:
        await asyncio.sleep(0)
        return decode(record)

    call = made(handle, decode=decode_later if is_async else decode, undecodable=undecodable)
    for value in (b'{"a": 1}', b"{"):
        try:
            if isinstance(unread := await call(Record("orders", 0, 7, None, value)), Unread):
                seen.append(unread.record.offset)
        except ValueError as error:
            seen.append(type(error).__name__)

    assert seen == got


@in_a_loop
async def test_what_takes_too_long_is_cancelled_and_has_failed() -> None:
    ended: list[str] = []

    async def handle(record: Record) -> None:
        if record.value == b"own":
            raise TimeoutError("the database")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            ended.append("ended")
            if record.value != b"kept":
                raise

    call = made(handle, timeout=20 * MILLISECOND)
    with pytest.raises(TimeoutError, match=r"it took longer than timeout, 20 ms"):
        await call(RECORD)
    with pytest.raises(TimeoutError, match=r"it took longer than timeout, 20 ms"):
        await call(Record("orders", 0, 0, None, b"kept"))
    with pytest.raises(TimeoutError, match="the database"):
        await call(Record("orders", 0, 0, None, b"own"))
    assert ended == ["ended", "ended"]


async def takes_two(one: object, two: object) -> None: ...


async def yields(given: object) -> AsyncIterator[object]:
    yield given


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"handle": None}, "nothing handles the records"),
        ({"handle": 7}, "a handler of records must be callable, got int 7"),
        ({"handle": {"other": anything}}, r"(?s)nothing handles 'orders'.*there are handlers of: other"),
        ({"topics": {"orders": None}, "handle": None}, "a handler of records must be callable, got None"),
        ({"topics": ["orders", ""]}, "topics must be a list of names"),
        ({"topics": ["^("]}, r"(?s)'\^\(' is no pattern of topics.*it is a regular expression"),
        (
            {"handle": print, "timeout": timedelta(seconds=1)},
            r"(?s)print is a plain function, and has a time limit.*thread",
        ),
        ({"timeout": 5}, r"(?s)timeout must be a timedelta, got int 5.*write timedelta\(seconds=5\)"),
        ({"timeout": timedelta(0)}, "timeout=0:00:00 is too short"),
        ({"timeout": 10**5000}, "timeout must be a timedelta, got int"),
        ({"stalled_after": 5.0}, "stalled_after must be a timedelta, got float 5.0"),
        ({"leave": 5}, "leave must be a timedelta, got int 5"),
        ({"grace": True}, "grace must be a timedelta, got bool True"),
        ({"backoff": 5}, "backoff must be a timedelta, got int 5"),
        ({"concurrency": 0}, "concurrency must be an integer from 1 on, got 0"),
        ({"concurrency": "8"}, "concurrency must be an integer from 1 on, got '8'"),
        ({"consumer": ConsumerRules(executors=8)}, r"(?s)8 executors.*write Worker\(concurrency=8\)"),
        ({"start_time": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"start_time": "yesterday"}, "start_time must be a datetime, got str"),
        ({"start_offsets": {"orders": 1}}, "a partition to start in must be a TopicPartition, got str"),
        (
            {"start_offsets": {TopicPartition("orders", 0): -1}},
            "an offset to start at must be an integer from 0 on, got -1",
        ),
        ({"start_offsets": 5}, "start_offsets must be a Mapping, got int 5"),
        ({"topics": 5}, "topics must be a list of names, got 5"),
        ({"topics": [5]}, "a topic must be a string, got int 5"),
        ({"group": 5}, "a group must be a string, got int 5"),
        ({"bootstrap": 5}, "an address must be a string, got int 5"),
        ({"consumer": 5}, "consumer must be a ConsumerRules, got int 5"),
        ({"dead_letter": 5}, "dead_letter must be a string, got int 5"),
        ({"decode": 5}, "decode= must be callable, got int 5"),
        ({"handle": yields}, "yields is an async generator"),
        ({"lifespan": yields}, r"(?s)lifespan= is an async generator.*@asynccontextmanager"),
        ({"observe": anything}, r"(?s)observe= is an async function.*not awaited"),
        ({"record": anything}, "record= is an async function"),
        ({"expected": anything}, "expected= is an async function"),
        ({"handle": takes_two}, "takes_two cannot be called with one record"),
        ({"handle": takes_two, "batch": 5}, "takes_two cannot be called with the list of a batch"),
        (
            {"handle": {"orders": anything, "b": anything}},
            r"(?s)a handler of 'b', which is not consumed.*take the handler out",
        ),
        ({"topics": ["a b"]}, r"(?s)'a b' cannot name a topic.*pattern"),
        ({"topics": ["x" * 250]}, "cannot name a topic"),
        ({"dead_letter": ".."}, "'..' cannot name a topic"),
        ({"bootstrap": "x:99999"}, r"(?s)'x:99999' is not the address of a broker.*65535"),
        ({"bootstrap": "a:1,"}, "'' is not the address of a broker"),
        ({"bootstrap": "PLAINTEXT://a:1"}, "is not the address of a broker"),
        ({"bootstrap": "a:0"}, "'a:0' is not the address of a broker"),
        ({"tracer_provider": 1}, "1 is not a provider of tracers"),
        ({"undecodable": "skip"}, r"(?s)undecodable must be an Undecodable, got str.*write Undecodable\.SKIP"),
    ],
)
def test_what_no_worker_can_be_told_is_refused(told: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        Worker(**{"topics": ["orders"], "handle": anything, "bootstrap": "b:1", "group": "g", **told})


# --- a worker -----------------------------------------------------------------------------------------------------------


def test_a_worker_with_a_plain_handler_by_topic_that_decodes() -> None:
    totals: list[int] = []

    def add(order: dict[str, int]) -> None:
        totals.append(order["total"])

    worker = Worker(
        {"^ord.*": add}, bootstrap="b:1", group="g", decode=lambda each: json.loads(each.value or b""),
        undecodable=Undecodable.SKIP,
    )  # fmt: skip
    outcome = on_log(worker.configured(worker.settings), b'{"total": 1}', b"?", b'{"total": 3}')

    assert sorted(totals) == [1, 3]
    assert outcome.is_whole


def test_a_handler_that_takes_too_long_fails_by_the_policy() -> None:
    async def handle(_: Record) -> None:
        await asyncio.sleep(10)

    rules = ConsumerRules(partition=PartitionRules(failure_policy=FailurePolicy.STOP))
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", consumer=rules, timeout=timedelta(milliseconds=50))
    outcome = on_log(worker, b"a")

    assert (outcome.failed, outcome.is_whole) == (1, False)


def test_what_lives_as_long_as_the_worker() -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncIterator[None]:
        told.append(f"begin {worker.settings.group}")
        try:
            yield
        finally:
            told.append("end")

    async def handle(record: Record) -> None:
        told.append(str(record.value))

    on_log(Worker(["orders"], handle, bootstrap="b:1", group="g", lifespan=lifespan), b"a")
    assert told == ["begin g", "b'a'", "end"]

    told.clear()
    with pytest.raises(TidegateError, match="no Kafka broker answers"):
        asyncio.run(Worker(["orders"], handle, bootstrap="127.0.0.1:1", group="g", lifespan=lifespan).run())
    assert told == ["begin g", "end"]


# --- on a broker --------------------------------------------------------------------------------------------------------


async def sent(bootstrap: str, topic: str, times_ms: Sequence[int]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for time in times_ms:
            await producer.send_and_wait(topic, b"%d" % time, partition=0, timestamp_ms=time)
    finally:
        await producer.stop()


async def consumed(worker: Worker, seen: list[tuple[str, int]], count: int) -> list[tuple[str, int]]:
    run = asyncio.create_task(worker.run())
    await until(lambda: len(seen) >= count or run.done())
    worker.stop()
    await run
    return sorted(seen)


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        ({}, [0, 1, 2, 3]),
        ({"start_time": datetime.fromtimestamp(2, UTC)}, [2, 3]),
        ({"start_time": datetime.fromtimestamp(1.5, UTC), "start_offsets": {TopicPartition("t", 1): 0}}, [2, 3]),
        ({"start_time": datetime.fromtimestamp(9, UTC)}, [4]),
        ({"start_offsets": 3}, [3]),
        ({"auto_offset_reset": "latest"}, [4]),
    ],
)
def test_where_a_group_begins_that_has_committed_nothing(
    start: dict[str, Any], offsets: list[int], kafka: str, make_topic: Callable[[int], str]
) -> None:
    topic, seen = make_topic(1), list[tuple[str, int]]()
    if start.get("start_offsets") == 3:
        start = {"start_offsets": {TopicPartition(topic, 0): 3}}

    async def handle(record: Record) -> None:
        seen.append((record.topic, record.offset))

    async def scenario() -> None:
        await sent(kafka, topic, [0, 1_000, 2_000, 3_000])
        worker = Worker([topic], handle, bootstrap=kafka, group=f"group-{topic}", **start)
        if offsets == [4]:
            run = asyncio.create_task(worker.run())
            await until(lambda: worker.state.partitions)
            await asyncio.sleep(0.5)  # until the worker has found the end of the log
            await sent(kafka, topic, [4_000])
            await until(lambda: seen)
            worker.stop()
            await run
        else:
            await consumed(worker, seen, len(offsets))
        assert sorted(seen) == [(topic, offset) for offset in offsets]
        seen.clear()
        await sent(kafka, topic, [5_000])
        assert len(await consumed(worker.configured(worker.settings), seen, 1)) == 1

    asyncio.run(scenario())


def test_a_group_that_must_not_begin_anywhere_says_so(kafka: str, make_topic: Callable[[int], str]) -> None:
    topic = make_topic(1)
    with pytest.raises(TidegateError, match=r'(?s)no position in .*auto_offset_reset = "none".*has committed nothing'):
        asyncio.run(Worker([topic], anything, bootstrap=kafka, group="new", auto_offset_reset="none").run())


def test_topics_of_a_pattern_are_found_also_those_that_come_to_be_later(
    kafka: str, make_topic: Callable[[int], str]
) -> None:
    topic, seen = make_topic(1), list[tuple[str, int]]()
    later, other = f"{topic}.later", f"not-{topic}.later"

    async def handle(record: Record) -> None:
        seen.append((record.topic, record.offset))

    async def scenario() -> None:
        await asyncio.to_thread(create_topic, kafka, other, 1)
        worker = Worker(
            {topic: handle, f"^{topic}[.].*": handle}, bootstrap=kafka, group=f"group-{topic}", metadata_max_age_ms=500
        )
        for name in (other, topic):
            await sent(kafka, name, [0])
        run = asyncio.create_task(worker.run())
        await until(lambda: len(seen) == 1)
        await asyncio.to_thread(create_topic, kafka, later, 1)
        await sent(kafka, later, [0])
        await until(lambda: len(seen) == 2)
        worker.stop()
        await run
        assert seen == [(topic, 0), (later, 0)]

    asyncio.run(scenario())
