"""`tidegate orchestrator` as a process: signals, exit codes and output, on a real MongoDB."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, final

import pytest
from pymongo import MongoClient
from tests.integration.command_lines import Asking, Running

from tidegate.exit_codes import ExitCode
from tidegate.invocations.record.invocation import INVOCATION
from tidegate_adapters.cli.orchestrator import STATUSES

APP: Final = """
import asyncio
import os
from datetime import timedelta
from pathlib import Path

from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.turns import ServiceRules
from tidegate.retries.polling import PollingBounds

app = Orchestrator(
    os.environ["URI"],
    settings=OrchestratorSettings(
        database=os.environ["DATABASE"],
        polling=PollingBounds(least=20_000, most=200_000, jitter=0),
        beat_every=timedelta(milliseconds=100),
        paused_every=timedelta(milliseconds=100),
        services=ServiceRules(recover="0 0 1 1 *", purge="0 0 1 1 *"),
    ),
)


@app.task()
async def send(to: str) -> str:
    print("begun", to, flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    if to == "nobody" and not Path("fixed").exists():
        raise RuntimeError("password=hunter2 is wrong")
    print("done", to, flush=True)
    return f"sent to {to}"


@app.task(queue="slow")
async def report(year: int) -> None:
    print("reported", year, flush=True)


@app.task(processes=True)
def heavy(number: int) -> int:
    report.enqueue_sync(number, key=f"report-{number}")
    return number


empty = Orchestrator(os.environ["URI"], database="shop")
embedded = Orchestrator(Embedded(), database="shop")


@embedded.task()
async def hold() -> None:
    pass


def by_function():
    return app


async def by_coroutine():
    await asyncio.sleep(0)
    return app


def raises():
    raise RuntimeError("no database")


number = 5
"""
ENQUEUE: Final = """
import asyncio
from app import app, report, send

async def main():
    for to in {to!r}:
        await send.enqueue(to, key="mail-" + to, tenant="shop")
    for year in {years!r}:
        await report.enqueue(year, key=f"report-{{year}}")
    await app.close()

asyncio.run(main())
"""
ENQUEUE_ELSEWHERE: Final = """
import attrs
from app import app, heavy

other = app.configured(attrs.evolve(app.settings, prefix="other_"))
heavy.of(other).enqueue_sync(2025, key="heavy")
"""

Run = Callable[..., Running]


@pytest.fixture
def asking(
    mongodb: str, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Asking:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("URI", mongodb)
    monkeypatch.setenv("DATABASE", database)
    return Asking("orchestrator", capsys)


@pytest.fixture
def run(asking: Asking, mongodb: str, database: str, tmp_path: Path) -> Iterator[Run]:
    del asking
    started: list[Running] = []

    def running(target: str = "app", *options: str) -> Running:
        started.append(Running("orchestrator", tmp_path, target, *options, URI=mongodb, DATABASE=database))
        return started[-1]

    yield running
    for each in started:
        each.process.kill()
        each.process.communicate()


@final
class Jobs:
    def __init__(self, client: MongoClient[dict[str, Any]], uri: str, database: str, folder: Path) -> None:
        self.records, self.folder = client[database]["orchestrator_invocations"], folder
        self.environ = {"URI": uri, "DATABASE": database}

    def enqueue(self, *to: str, years: tuple[int, ...] = ()) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.syspath_prepend(self.folder)
            patched.setattr(sys, "dont_write_bytecode", True)
            exec(ENQUEUE.format(to=to, years=years), {})  # noqa: S102  our own source
            del sys.modules["app"]

    def call(self, script: str) -> None:
        (self.folder / "enqueue.py").write_text(script)
        done = subprocess.run(
            [sys.executable, "enqueue.py"], cwd=self.folder, env={**os.environ, **self.environ}, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def statuses(self) -> dict[str, str]:
        return {each["_id"]: each["status"] for each in self.records.find(sort=[("_id", 1)])}

    def until(self, **statuses: str) -> None:
        limit = time.monotonic() + 60
        wanted = {f"mail-{to}": status for to, status in statuses.items()}
        while not wanted.items() <= (found := self.statuses()).items():
            assert time.monotonic() < limit, found
            time.sleep(0.05)


@pytest.fixture
def jobs(asking: Asking, mongodb: str, database: str, tmp_path: Path) -> Iterator[Jobs]:
    del asking
    with MongoClient[dict[str, Any]](mongodb) as client:
        yield Jobs(client, mongodb, database, tmp_path)


def ids(answer: dict[str, Any]) -> set[str]:
    return {each["id"] for each in answer["invocations"]}


# --- run ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "number"),
    [
        pytest.param("app", signal.SIGTERM, marks=pytest.mark.long),
        ("by_function", signal.SIGINT),
        ("by_coroutine", signal.SIGTERM),
    ],
)
def test_a_signal_lets_handlers_end(run: Run, jobs: Jobs, tmp_path: Path, target: str, number: signal.Signals) -> None:
    jobs.enqueue("a", "b", "c")
    running = run(target, "--json")
    running.until("begun", 3)
    running.asked(number, f"{number.name}: draining")
    (tmp_path / "go").touch()

    assert running.code() == 128 + number == ExitCode(128 + number)
    assert running.log.read_text().count("done") == 3
    assert running.process.stdout is not None
    answer = json.loads(running.process.stdout.read())
    jobs.until(a="success", b="success", c="success")
    assert answer == {"schema": "tidegate/orchestrator@1", "ended_by": number.name, "ok": True}


def test_a_handler_in_a_process_of_its_own_is_found_by_its_path_and_enqueues_where_the_app_is_told(
    run: Run, jobs: Jobs
) -> None:
    """Once no child could import a module loaded from a path."""
    jobs.call(ENQUEUE_ELSEWHERE)
    running = run("app", "--set", "prefix=other_", "--set", "queues=default,slow")
    running.until("reported 2025")
    others = jobs.records.database["other_invocations"]

    assert {each["_id"]: each["status"] for each in others.find()}["heavy"] == "success"
    assert jobs.statuses() == {}


def test_a_second_signal_waits_for_nothing(run: Run, jobs: Jobs) -> None:
    jobs.enqueue("a")
    running = run()
    running.until("begun")
    running.asked(signal.SIGTERM, "SIGTERM: draining")
    running.asked(signal.SIGINT, "SIGINT: waiting for nothing")

    assert running.code() == ExitCode.TERMINATED
    jobs.until(a="rerouted")


# --- queries and commands -----------------------------------------------------------------------------------------------


def test_the_statuses_are_those_of_the_table() -> None:
    assert set(STATUSES) == {each.status for each in INVOCATION.definitions}


def test_turns_are_listed_that_overlap_a_span_of_time(jobs: Jobs, asking: Asking) -> None:
    now = datetime.now(UTC)

    def took(run: str, ago_min: int, minutes: int | None, status: str, reason: str = "") -> dict[str, Any]:
        start = now - timedelta(minutes=ago_min)
        end = None if minutes is None else start + timedelta(minutes=minutes)
        return {"_id": run, "runner": run[0], "start": start, "end": end, "status": status, "reason": reason}

    rows = (
        took("a.1", 130, 1, "completed"),
        took("b.1", 70, 20, "abandoned", "it stood"),
        took("a.2", 5, None, "running"),
    )
    jobs.records.database["orchestrator_executions"].insert_many(rows)

    def listed(*options: str) -> list[str]:
        return [each["id"] for each in asking.told("executions", *options)["executions"]]

    assert listed() == ["a.2", "b.1"]  # of the last hour
    assert listed("--since", "1d") == ["a.2", "b.1", "a.1"]
    assert listed("--since", "3h", "--until", "90m") == ["a.1"]
    assert listed("--since", "1d", "--process", "a") == ["a.2", "a.1"]
    found = asking.told("executions", "--limit", "1")
    assert (found["more"], found["executions"][0]["ended"], found["executions"][0]["took_s"]) == (True, None, None)
    assert asking.told("executions", "--process", "b")["executions"][0]["took_s"] == 1200
    (line,) = asking.said("executions", "--process", "b").out.splitlines()
    assert line.split()[1:] == ["b", "abandoned", "20", "min", "0", "s", "it", "stood"]


def test_invocations_are_listed_shown_and_run_again(run: Run, jobs: Jobs, asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    jobs.enqueue("ann", "nobody", years=(2025,))
    running = run()
    jobs.until(ann="success", nobody="failed")

    assert ids(asking.told("list", "--queue", "default")) == {"mail-ann", "mail-nobody"}
    assert ids(asking.told("list", "--status", "failed", "--task", "send", "--tenant", "shop")) == {"mail-nobody"}
    assert ids(asking.told("list", "--error", "RUNTIMEerror")) == {"mail-nobody"}
    assert ids(asking.told("list", "--made-before", "1h")) == set()
    assert ids(asking.told("list", "--made-from", "1h", "--id", "mail-ann")) == {"mail-ann"}
    assert asking.told("list", "--limit", "1")["more"] is True
    (line,) = asking.said("list", "--status", "failed").out.splitlines()
    assert line.split()[:3] == ["send", "mail-nobody", "failed"]
    assert line.endswith("RuntimeError: password=*** is wrong")

    shown = asking.told("show", "mail-ann")["invocation"]
    assert (shown["arguments"], shown["result"], shown["tries"]) == ({"to": "ann"}, "sent to ann", 1)
    assert [each["status"] for each in shown["history"]] == ["registered", "running", "success"]
    times = [each["at"] for each in shown["history"]]
    assert times == sorted(times)
    assert times[0] == shown["created_at"]
    assert [each["by"] is None for each in shown["history"]] == [False, False, False]
    assert "version 3: failed" in asking.said("show", "mail-nobody").out
    absent = asking.said("show", "mail-nowhere")
    assert (absent.code, absent.out) == (ExitCode.NOTHING_SELECTED, "")
    assert "there is no invocation mail-nowhere" in absent.err

    (tmp_path / "fixed").touch()
    assert asking.told("retry", "--task", "send")["done"] == 1
    assert asking.said("retry", "--id", "mail-nobody").code == ExitCode.OK
    jobs.until(**{"nobody~2": "success", "nobody": "failed"})
    assert set(jobs.statuses()) == {"mail-ann", "mail-nobody", "mail-nobody~2", "report-2025"}
    assert asking.told("retry", "--task", "report", code=ExitCode.NOTHING_SELECTED)["done"] == 0
    running.asked(signal.SIGTERM, "SIGTERM: draining")


def test_what_waits_is_held_released_and_cancelled(jobs: Jobs, asking: Asking) -> None:
    jobs.enqueue("a", "b")
    assert asking.told("hold", "--id", "mail-a")["done"] == 1
    assert [each["held"] for each in asking.told("list", "--id", "mail-a")["invocations"]] == [True]
    assert asking.told("status")["queues"] == [
        {"queue": "default", "waiting": 1, "more": False, "lag_s": pytest.approx(30, abs=30), "paused": False},
        {
            "queue": "slow",
            "waiting": 0,
            "more": False,
            "lag_s": 0,
            "paused": False,
        },  # a task waits, and no process fetches
        {"queue": "tidegate", "waiting": 0, "more": False, "lag_s": 0, "paused": False},
    ]
    assert "no process runs it\nqueue default: 1 waiting, the oldest due for" in asking.said("status").out
    assert asking.told("status")["tasks"] == [{"task": "send", "counts": {"registered": 2}}]
    assert "task send: 2 registered\n" in asking.said("status").out
    released = asking.said("release", "--all")
    assert released.code == ExitCode.OK
    assert released.out == "1 released, 1 for which it cannot be done as they are\n"
    assert asking.told("cancel", "--task", "send")["done"] == 2
    assert jobs.statuses() == {"mail-a": "cancelled", "mail-b": "cancelled"}
    assert asking.told("cancel", "--all", code=ExitCode.NOTHING_SELECTED)["left"] == 0
    assert asking.told("cancel", "--id", "mail-a", code=ExitCode.INCONCLUSIVE)["left"] == 1
    jobs.enqueue("c")
    named = asking.said("cancel", "--id", "mail-c", "--id", "mail-nowhere")
    assert (named.code, named.out) == (ExitCode.INCONCLUSIVE, "1 cancelled, 1 that are not there\n")


def test_what_runs_is_cancelled_and_killed_by_its_process(run: Run, jobs: Jobs, asking: Asking, tmp_path: Path) -> None:
    jobs.enqueue("a", "b")
    running = run()
    running.until("begun", 2)
    (process,) = asking.told("status")["processes"]
    assert (process["alive"], str(running.process.pid) in process["id"]) == (True, True)
    assert "1 that run are asked to end" in asking.said("cancel", "--id", "mail-a").out
    jobs.until(a="cancelled")
    assert asking.told("kill", "--id", "mail-b")["told"] == 1
    running.until("begun b", 2)
    (tmp_path / "go").touch()
    jobs.until(a="cancelled", b="success")


def test_tasks_and_queues_are_paused_and_resumed(run: Run, jobs: Jobs, asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    assert asking.told("pause", "send", "--queue", "slow")["paused"] == {"tasks": ["send"], "queues": ["slow"]}
    jobs.enqueue("a", years=(2025,))
    running = run("app", "--set", "queues=default,slow")
    running.until("has joined")
    status = asking.told("status", "--set", "queues=default,slow")
    assert [(each["queue"], each["waiting"], each["paused"]) for each in status["queues"]] == [
        ("default", 1, False),
        ("slow", 1, True),
        ("tidegate", 0, False),
    ]
    assert "begun" not in running.log.read_text()
    assert asking.said("resume", "send").out == "paused: queue slow\n"
    assert asking.said("pause", "tidegate.purge").out == "paused: task tidegate.purge, queue slow\n"
    assert asking.said("resume", "tidegate.purge").out == "paused: queue slow\n"
    jobs.until(a="success")
    assert jobs.statuses()["report-2025"] == "registered"
    assert asking.said("resume", "--queue", "slow").out == "paused: none\n"
    running.until("reported 2025")
