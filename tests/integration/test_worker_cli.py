"""`tidegate worker run` as a process: signals, exit codes and logs, on a real broker."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from tests.integration.command_lines import Running, Said, said_here

from tidegate.exit_codes import ExitCode

APP: Final = """
import asyncio
import os
import time
from pathlib import Path

from tidegate_adapters.kafka.worker import Worker


async def handle(record):
    print("begun", record.offset, flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    print("done", record.offset, flush=True)


async def block(record):
    print("begun", record.offset, flush=True)
    time.sleep(600)


async def fail(record):
    raise RuntimeError("password=hunter2 is wrong")


def made_of(code):
    return Worker([os.environ["TOPIC"]], code, bootstrap=os.environ["BOOTSTRAP"], group=os.environ["TOPIC"])


worker, blocked, fails = made_of(handle), made_of(block), made_of(fail)


def by_function():
    return worker


async def by_coroutine():
    await asyncio.sleep(0)
    return worker


def raises():
    raise RuntimeError("no database")


def takes(one):
    return worker


number = 5
"""


@contextmanager
def running(folder: Path, bootstrap: str, topic: str, target: str, *options: str) -> Iterator[Running]:
    (folder / "app.py").write_text(APP)
    found = Running("worker", folder, target, *options, TOPIC=topic, BOOTSTRAP=bootstrap)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


def filled(bootstrap: str, topic: str, count: int) -> None:
    async def fill() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(count):
                await producer.send_and_wait(topic, b"%d" % number, partition=0)

    asyncio.run(fill())


def committed(bootstrap: str, topic: str) -> int | None:
    async def ask() -> int | None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            found = (await admin.list_consumer_group_offsets(topic)).get(TopicPartition(topic, 0))
        finally:
            await admin.close()
        return None if found is None else found.offset

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("target", "number"),
    [
        pytest.param("worker", signal.SIGTERM, marks=pytest.mark.long),
        ("by_function", signal.SIGINT),
        ("by_coroutine", signal.SIGTERM),
    ],
)
def test_a_signal_lets_it_drain_commit_and_leave(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path, target: str, number: signal.Signals
) -> None:
    topic = make_topic(1)
    filled(kafka, topic, 3)
    with running(tmp_path, kafka, topic, target, "--json") as worker:
        worker.until("begun", 3)
        worker.asked(number, f"{number.name}: draining")
        (tmp_path / "go").touch()

        assert worker.code() == 128 + number == ExitCode(128 + number)
        assert worker.log.read_text().count("done") == 3
        assert worker.process.stdout is not None
        answer = json.loads(worker.process.stdout.read())
    assert answer == {"schema": "tidegate/worker@1", "ended_by": number.name, "ok": True}
    assert committed(kafka, topic) == 3


def test_a_second_signal_waits_for_nothing(kafka: str, make_topic: Callable[[int], str], tmp_path: Path) -> None:
    topic = make_topic(1)
    filled(kafka, topic, 1)
    with running(tmp_path, kafka, topic, "worker") as worker:
        worker.until("begun")
        worker.asked(signal.SIGTERM, "SIGTERM: draining")
        worker.asked(signal.SIGINT, "SIGINT: waiting for nothing")

        assert worker.code() == ExitCode.TERMINATED
    assert committed(kafka, topic) in {None, 0}


def test_of_two_with_one_name_the_older_ends_at_once_and_says_why(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    """Law SD8: the other's work goes on. The exit code is that of wrong settings."""
    topic = make_topic(1)
    filled(kafka, topic, 3)
    named = ("--set", "options.group_instance_id=shipping-1", "--set", "options.heartbeat_interval_ms=300")
    folders = older_folder, newer_folder = tmp_path / "older", tmp_path / "newer"
    for folder in folders:
        folder.mkdir()
    with running(older_folder, kafka, topic, "worker", *named) as older:
        older.until("begun", 3)
        with running(newer_folder, kafka, topic, "worker", *named) as newer:
            newer.until("begun", 3)

            assert older.code() == ExitCode.USAGE
            said = older.log.read_text()
            assert f"error: another worker has the name 'shipping-1' in group {topic}" in said
            assert f"where: group_instance_id of {topic}" in said
            assert "help: give each worker a group_instance_id of its own" in said
            assert "done" not in said

            (newer_folder / "go").touch()
            newer.until("done", 3)
            newer.asked(signal.SIGTERM, "SIGTERM: draining")
            assert newer.code() == ExitCode.TERMINATED
            assert newer.log.read_text().count("begun") == 3
    assert committed(kafka, topic) == 3


def test_a_third_signal_ends_what_holds_up_the_event_loop(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    topic = make_topic(1)
    filled(kafka, topic, 1)
    with running(tmp_path, kafka, topic, "blocked") as worker:
        worker.until("begun")
        limit = time.monotonic() + 60
        while worker.process.poll() is None and time.monotonic() < limit:
            worker.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)

        assert worker.process.returncode == ExitCode.TERMINATED


def test_logs_are_objects_with_the_place_and_without_secrets(
    kafka: str, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    topic = make_topic(1)
    filled(kafka, topic, 1)
    with running(tmp_path, kafka, topic, "fails", "--log-format", "json") as worker:
        worker.until("handler failed")
        worker.asked(signal.SIGTERM, "SIGTERM: draining")
        assert worker.code() == ExitCode.TERMINATED
        text = worker.log.read_text()

    entries = [json.loads(line) for line in text.splitlines()]
    [failed] = [each for each in entries if each["message"].startswith("handler failed")]
    assert (failed["level"], failed["topic"], failed["partition"], failed["offset"]) == ("error", topic, 0, 0)
    assert isinstance(failed["attempt"], int)
    assert "RuntimeError: password=***" in failed["exception"]
    assert "hunter2" not in text


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    (tmp_path / "app.py").write_text(APP)

    def answered(*arguments: str, **environment: str) -> Said:
        return said_here(arguments, tmp_path, capsys, **{"TOPIC": "orders", "BOOTSTRAP": "127.0.0.1:1", **environment})

    return answered


def test_what_it_is_told_comes_from_arguments_environment_file_and_code_in_this_order(
    asked: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tidegate.worker]\ngroup = 'by pyproject'")
    (tmp_path / "own.toml").write_text(
        "[worker]\ngroup = 'by file'\nconcurrency = 7\n[worker.options]\nclient_id = 'me'"
    )
    show = ("config", "show", "app.py:worker", "--json")
    concurrency = {"TIDEGATE_WORKER__CONCURRENCY": "8"}

    def rows(*arguments: str, **environment: str) -> dict[str, tuple[str, str]]:
        done = asked(*show, *arguments, **environment)
        assert done.code == 0, done.err
        answer = json.loads(done.out)
        assert (answer["schema"], answer["ok"]) == ("tidegate/config@1", True)
        return {each["path"]: (each["value"], each["origin"]) for each in answer["settings"]}

    assert rows()["group"] == ("by pyproject", "file pyproject.toml")
    assert rows("--config", "own.toml")["group"] == ("by file", "file own.toml")
    told = rows("--set", "group=by argument", TIDEGATE_CONFIG="own.toml", **concurrency)
    assert told["topics"] == ("orders", "code")
    assert told["group"] == ("by argument", "argument group")
    assert told["concurrency"] == ("8", "environment TIDEGATE_WORKER__CONCURRENCY")
    assert told["options.client_id"] == ("me", "file own.toml")
    assert told["consumer.partition.window_max"] == ("1", "default")


@pytest.mark.parametrize("command", [("config", "show", "--origin"), ("worker", "run", "--dry-run")])
def test_what_it_would_be_told_is_shown_without_secrets_and_without_a_broker(
    asked: Callable[..., Said], command: tuple[str, ...]
) -> None:
    secret = {"TIDEGATE_WORKER__OPTIONS__SASL_PLAIN_PASSWORD": "hunter2"}
    done = asked(*command, "app.py:worker", **secret)

    lines = [line.split(maxsplit=2) for line in done.out.splitlines()]
    assert done.code == 0, done.err
    assert ["topics", "orders", "code"] in lines
    assert ["concurrency", "100", "default"] in lines
    assert ["options.sasl_plain_password", "***", f"environment {next(iter(secret))}"] in lines
    assert "hunter2" not in done.out + done.err


def test_settings_that_do_not_fit_one_another_are_told_with_where_they_are_from(asked: Callable[..., Said]) -> None:
    short = {"TIDEGATE_WORKER__OPTIONS__REBALANCE_TIMEOUT_MS": "15000"}
    done = asked("worker", "run", "app.py:worker", "--set", "consumer.partition.drain.total=20 s", **short)

    assert done.code == ExitCode.USAGE
    assert f"where: argument consumer.partition.drain.total, environment {next(iter(short))}" in done.err


def test_what_is_wrong_with_a_setting_is_told_with_where_it_is_from(asked: Callable[..., Said]) -> None:
    done = asked("worker", "run", "app.py:worker", "--json", TIDEGATE_WORKER__CONCURENCY="8")

    assert done.code == ExitCode.USAGE
    assert json.loads(done.out)["error"] == {
        "what": "there is no setting concurency",
        "where": "environment TIDEGATE_WORKER__CONCURENCY",
        "why": "",
        "help": "did you mean concurrency?",
    }
