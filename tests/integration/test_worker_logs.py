"""Log lines about a record name it and its attempt in fields, without its content."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kafka_runs import hooked

from tidegate.consumer.fanout import RecordsDelivered, Rules
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import FailurePolicy, PartitionRules
from tidegate.consumer.protocol.commands import Handle, Work
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.instants import MILLISECOND
from tidegate.model.records import Record
from tidegate.retries.backoff import Fixed
from tidegate_adapters.base.safe_log import Lines
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun
from tidegate_adapters.kafka.worker import OnFailure, Undecodable, Worker

RETRY_ONCE = Rules(1, 0, task_delivery=False, record_delivery=False, window_delivery=False)
AT_ONCE = Budget(40 * MILLISECOND, cancel=20 * MILLISECOND, commit=10 * MILLISECOND)


def run(handle: Any, rules: PartitionRules, *values: bytes, hooks: Any = None, **told: Any) -> None:
    worker = Worker(["orders"], handle, bootstrap="b:1", group="g", consumer=ConsumerRules(partition=rules), **told)
    worker = hooked(worker, hooks, worker.settings.consumer)
    log = EmbeddedLog(Record("orders", 3, 0, b"secret-key", value) for value in values)
    asyncio.run(EmbeddedRun(worker, log).run())


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "secret" not in caplog.text
    return [
        (
            each.getMessage().partition(" ")[0],
            *(vars(each).get(name) for name in ("topic", "partition", "offset", "attempt")),
        )
        for each in lines
    ]


def test_failures_and_what_is_skipped_are_told_with_their_attempt(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(record: Record) -> None:
        if record.offset == 1:
            raise ValueError

    run(
        handle, PartitionRules(fanout=RETRY_ONCE, backoff=Fixed(1_000)), b"secret", b"secret", on_failure=OnFailure.SKIP
    )

    assert told(caplog) == [
        ("handler", "orders", 3, 1, 1),
        ("handler", "orders", 3, 1, 2),
        ("skipped", "orders", 3, 1, 2),
    ]


def test_lines_that_are_lost_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """By the next line written, once; lines below the log's level do not count."""
    log = logging.getLogger("a log that raises")
    log.setLevel(logging.INFO)
    say, full = Lines(log), [True]

    def is_written(_: logging.LogRecord) -> bool:
        if full[0]:
            raise OSError("no space left on device")
        return True

    log.addFilter(is_written)
    for number in range(3):
        say(logging.WARNING, "line %s", number)
    say(logging.DEBUG, "what nobody reads")
    full[0] = False
    say(logging.DEBUG, "what nobody reads")
    say(logging.INFO, "line %s", 3, extra={"topic": "orders"})
    say(logging.INFO, "line 4")

    assert [each.getMessage() for each in caplog.records] == [
        "line 3 (3 lines before this one were lost: the log raised)",
        "line 4",
    ]
    first, second = map(vars, caplog.records)
    assert (first["topic"], first["lines_lost"], second.get("lines_lost")) == ("orders", 3, None)


def test_a_failure_that_is_tried_again_is_a_warning_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: Record) -> None:
        raise ValueError("out of stock")

    run(handle, PartitionRules(fanout=RETRY_ONCE, backoff=Fixed(1_000)), b"a", on_failure=OnFailure.SKIP)

    first, last = [each for each in caplog.records if "handler failed" in each.getMessage()]
    assert (first.levelno, first.exc_info) == (logging.WARNING, None)
    said, _, where = first.getMessage().partition(" (")
    assert said == "handler failed at orders-3 @0, attempt 1, and is called again: ValueError: out of stock"
    assert Path(where.partition(":")[0]).name == Path(__file__).name
    assert (last.levelno, last.getMessage()) == (logging.ERROR, "handler failed at orders-3 @0, attempt 2")
    assert last.exc_info is not None


def test_where_it_failed_is_said_in_a_folder_that_is_gone(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()

    async def handle(_: Record) -> None:
        raise ValueError

    run(handle, PartitionRules(fanout=RETRY_ONCE, backoff=Fixed(1_000)), b"a", on_failure=OnFailure.SKIP)

    assert [each[0] for each in told(caplog)] == ["handler", "handler", "skipped"]
    assert f"({__file__}:" in caplog.text


def test_what_cannot_be_decoded_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: object) -> None: ...

    def decode(_: Record) -> object:
        raise KeyError("total")

    run(handle, PartitionRules(), b"secret", decode=decode, undecodable=Undecodable.SKIP)

    assert told(caplog) == [("skipped", "orders", 3, 0, 1)]


def test_batches_are_told_with_all_their_records(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: list[Record]) -> None:
        raise ValueError

    run(handle, PartitionRules(), b"secret", b"secret", batch=2)

    assert told(caplog) == [("handler", "orders", 3, (0, 1), 1)]


def test_hooks_that_fail_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: Record) -> None:
        raise ValueError

    async def hooks(work: Work, _: object) -> None:
        assert not isinstance(work.request, Handle)
        raise OSError

    run(handle, PartitionRules(failure_policy=FailurePolicy.SKIP), b"secret", hooks=hooks)

    assert told(caplog) == [("handler", "orders", 3, 0, 1), ("hook", "orders", 3, (0,), None)]


def test_hooks_that_answer_for_something_else_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: Record) -> None:
        raise ValueError

    async def hooks(_: Work, __: object) -> object:
        return RecordsDelivered(1, (1,))

    run(handle, PartitionRules(failure_policy=FailurePolicy.SKIP), b"secret", hooks=hooks)

    assert told(caplog)[1:] == [("say", "orders", 3, (0,), None)]


def test_what_is_interrupted_or_left_behind_is_told(caplog: pytest.LogCaptureFixture) -> None:
    begun, stop = asyncio.Semaphore(0), asyncio.Event()

    async def handle(record: Record) -> None:
        begun.release()
        if record.offset == 0:
            await asyncio.Event().wait()
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue

    async def scenario() -> None:
        rules = PartitionRules(drain=AT_ONCE)
        worker = Worker(["orders"], handle, bootstrap="b:1", group="g", consumer=ConsumerRules(partition=rules))
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run(EmbeddedLog(Record("orders", 3, 0) for _ in range(2)).connect))
            await begun.acquire()
            await begun.acquire()
            worker.stop()
        stop.set()
        await asyncio.sleep(0)

    asyncio.run(scenario())

    assert {line[1:] for line in told(caplog)} == {("orders", 3, 0, 1), ("orders", 3, 1, 1)}
    assert "left behind" in caplog.text
    assert "interrupted" in caplog.text
