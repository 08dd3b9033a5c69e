from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest
from tests.integration.interruptible import INTERRUPTIBLE

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun, records_of
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.testing.app import OnEmbedded

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
APP: Final = """
import asyncio
from tidegate_adapters.kafka.worker import Worker


async def handle(record):
    if record.value == b"poison":
        raise ValueError("it is poison")
    if record.value == b"stuck":
        print("stuck", flush=True)
        await asyncio.Event().wait()


worker = Worker(["orders"], handle, bootstrap="nowhere:1", group="shop")
"""


def lines(*values: str) -> str:
    return "".join(json.dumps({"topic": "orders", "value": value}) + "\n" for value in values)


def test_a_line_ends_where_json_lines_end(tmp_path: Path) -> None:
    """Text may contain characters that end lines elsewhere."""
    file = tmp_path / "records.jsonl"
    file.write_text('{"topic": "orders", "value": "a\u2028b\x85c"}\r\n', "utf-8")

    assert [each.value for each in records_of(file)] == ["a\u2028b\x85c".encode()]


def test_each_line_is_a_record(tmp_path: Path) -> None:
    """Text is UTF-8; other bytes are base 64."""
    file = tmp_path / "records.jsonl"
    file.write_text(
        '{"topic": "orders", "key": "ann", "value": {"base64": "/9j/4A=="}, "headers": [["a", "é"], ["a", null]]}\n\n'
        '{"topic": "orders", "partition": 1, "value": null}\n{"topic": "orders", "value": ""}\n'
    )

    assert records_of(file) == (
        Record("orders", 0, 0, b"ann", b"\xff\xd8\xff\xe0", (("a", "é".encode()), ("a", None))),
        Record("orders", 1, 0),
        Record("orders", 0, 0, None, b""),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "it is no JSON"),
        ("5", "a record is an object, and no int"),
        ("{}", "the name of a topic must be"),
        ('{"topic": "orders", "valu": "x"}', "did you mean value?"),
        ('{"topic": "orders", "partition": -1}', "a partition must be an integer from 0 on, got -1"),
        ('{"topic": "orders", "value": 5}', "a key or a value is text, and no int"),
        ('{"topic": "orders", "value": {"base64": "!"}}', "it is no JSON, or no base 64"),
        ('{"topic": "orders", "value": "\\ud800"}', "it is no JSON, or no base 64"),
        ('{"topic": "orders", "headers": {"a": "b"}}', "headers are a list"),
        ('{"topic": "orders", "headers": [["a"]]}', "a header is a pair"),
    ],
)
def test_a_line_that_is_no_record_is_told_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(lines("x") + line)

    with pytest.raises(Misuse, match=re.escape(said)) as refused:
        records_of(file)

    assert refused.value.where == f"{file}:2"


def test_a_line_that_is_nested_too_deeply_is_told(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("[" * 100_000)

    with pytest.raises(Misuse, match="it is no JSON"):
        records_of(file)


def test_a_run_ends_when_all_is_committed() -> None:
    seen: list[tuple[int, int]] = []

    async def handle(record: Record) -> None:
        await asyncio.sleep(0)
        seen.append((record.partition, record.offset))

    log = EmbeddedLog(Record("orders", n % 2, 0, None, b"x") for n in range(1_300))
    outcome = asyncio.run(EmbeddedRun(Worker(["orders"], handle, bootstrap="b:1", group="g"), log).run())

    assert (outcome.handled, outcome.failed, outcome.is_whole) == (1_300, 0, True)
    assert outcome.positions == {P0: 650, P1: 650}


def test_a_failure_stops_its_partition_and_the_run_ends_when_nothing_moves() -> None:
    async def handle(record: Record) -> None:
        if record.value == b"poison":
            raise ValueError

    values = [(0, b"a"), (1, b"a"), (0, b"poison"), (0, b"c"), (1, b"c")]
    log = EmbeddedLog(Record("orders", partition, 0, None, value) for partition, value in values)
    outcome = asyncio.run(EmbeddedRun(Worker(["orders"], handle, bootstrap="b:1", group="g"), log).run())

    assert outcome.positions == {P0: 1, P1: 2}
    assert not outcome.is_whole


class Odd(BaseException):
    """An exception outside the usual classes."""


@pytest.mark.parametrize("kind", [Odd, asyncio.CancelledError])
def test_whatever_the_handler_raises_has_failed(kind: type[BaseException]) -> None:
    """Earlier only an `Exception` counted, so the summary showed no failures."""

    async def handle(_: Record) -> None:
        raise kind

    log = EmbeddedLog([Record("orders", 0, 0)])
    outcome = asyncio.run(EmbeddedRun(Worker(["orders"], handle, bootstrap="b:1", group="g"), log).run())

    assert (outcome.handled, outcome.failed, outcome.is_whole) == (0, 1, False)


def test_what_is_interrupted_has_not_failed() -> None:
    async def handle(_: Record) -> None:
        running.worker.stop()
        running.worker.stop()
        await asyncio.sleep(60)

    log = EmbeddedLog([Record("orders", 0, 0)])
    running = EmbeddedRun(Worker(["orders"], handle, bootstrap="b:1", group="g"), log)

    assert asyncio.run(running.run()).failed == 0


def test_records_of_another_topic_are_refused() -> None:
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    worker = Worker(["orders"], handle, bootstrap="b:1", group="g")
    with pytest.raises(Misuse, match="records of 'order', which the worker does not consume"):
        EmbeddedRun(worker, EmbeddedLog([Record("order", 0, 0)]))


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(APP)
    (folder / "records.jsonl").write_text(text)
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "worker",
        "run",
        "app.py:worker",
        "--embedded",
        "records.jsonl",
        *options,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_tells_what_became_of_the_records(tmp_path: Path) -> None:
    whole = run(tmp_path, lines("a", "b"))
    broken = run(tmp_path, lines("a", "poison", "c"), "--json")

    assert (whole.returncode, whole.stdout) == (ExitCode.OK, "2 handled, 0 failed\norders-0: 2 of 2 committed\n")
    answer = json.loads(broken.stdout)
    assert (broken.returncode, answer["ok"], answer["failed"]) == (ExitCode.NOT_MET, False, 1)
    assert (answer["committed"], answer["ends"]) == ({"orders-0": 1}, {"orders-0": 3})
    assert "ValueError: it is poison" in broken.stderr


def test_a_signal_ends_a_run_that_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "records.jsonl").write_text(lines("stuck"))
    command = [*INTERRUPTIBLE, "worker", "run", "app.py:worker", "--embedded", "records.jsonl"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for word in ("stuck", "draining"):
            assert any(word in line for line in process.stderr), word
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == ExitCode.TERMINATED


LEFT_BEHIND: Final = """
import asyncio
import time
from contextlib import asynccontextmanager
from datetime import timedelta

from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import PartitionRules
from tidegate_adapters.kafka.worker import Worker


def in_a_thread(record):
    print("begun", flush=True)
    time.sleep(60)


async def stubborn(record):
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@asynccontextmanager
async def lifespan(worker):
    print("begun", flush=True)
    await asyncio.sleep(60)
    yield


told = {"bootstrap": "b:1", "group": "g", "leave": timedelta(seconds=1)}
threaded, will_not_be_cancelled = (Worker(["orders"], each, **told) for each in (in_a_thread, stubborn))
begins = Worker(["orders"], stubborn, lifespan=lifespan, **told)
soon = {**told, "consumer": ConsumerRules(partition=PartitionRules(drain=Budget(1_000_000, 200_000, 200_000)))}
threaded_soon, will_not_be_cancelled_soon = (Worker(["orders"], each, **soon) for each in (in_a_thread, stubborn))
"""


@contextmanager
def begun(folder: Path, target: str) -> Generator[tuple[subprocess.Popen[str], IO[str]]]:
    (folder / "app.py").write_text(LEFT_BEHIND)
    (folder / "records.jsonl").write_text(lines("a"))
    command = [*INTERRUPTIBLE, "worker", "run", f"app.py:{target}", "--embedded", "records.jsonl"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert any("begun" in line for line in process.stdout)
            yield process, process.stdout
        finally:
            process.kill()


@pytest.mark.parametrize("target", ["threaded_soon", "will_not_be_cancelled_soon"])
def test_a_signal_ends_a_process_of_which_something_will_not_end_by_its_deadline(tmp_path: Path, target: str) -> None:
    """Earlier the process waited for a thread, or forever for a task that ignores cancellation."""
    with begun(tmp_path, target) as (process, written):
        process.send_signal(signal.SIGTERM)
        assert any("is left behind: topic orders, partition 0, offset 0" in line for line in written)
        assert process.wait(timeout=20) == ExitCode.TERMINATED


@pytest.mark.parametrize("target", ["threaded", "will_not_be_cancelled", "begins"])
def test_a_second_signal_ends_a_process_of_which_something_will_not_end(tmp_path: Path, target: str) -> None:
    """Earlier it waited as in the test above."""
    with begun(tmp_path, target) as (process, written):
        process.send_signal(signal.SIGTERM)
        assert any("draining" in line for line in written)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == ExitCode.TERMINATED


def test_a_worker_of_a_module_is_tested_as_often_as_one_likes(on_embedded: OnEmbedded) -> None:
    page = (Path(__file__).parents[2] / "docs" / "worker.md").read_text("utf-8")
    (shown,) = re.findall(r"\n    async with worker.testing.*\n(?:    .*\n)+", page)

    async def handle(record: Record) -> None:
        if not record.value:
            raise ValueError("nothing is ordered")

    worker = Worker(["orders"], handle, bootstrap="nowhere:9092", group="g", metrics_port=1)
    made: dict[str, Any] = {"worker": worker}
    exec(f"async def test():\n{shown}", made)  # noqa: S102  it is ours
    for _ in range(2):
        asyncio.run(made["test"]())
    given = ({"topic": "orders", "value": "5 apples"}, Record("orders", 0, 7, None, b"2 pears"))
    assert on_embedded(worker, lambda run: run(*given)).is_whole
    with pytest.raises(Misuse, match="has no field 'valu'"):
        on_embedded(worker, lambda run: run({"topic": "orders", "valu": "x"}))
