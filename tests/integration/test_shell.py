"""The shell of all runtimes: a fourth one needs a row in the table and little more."""

from __future__ import annotations

import json
import logging
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Final

import click
import pytest
from tests.integration import test_orchestrator_cli, test_reactive_cli, test_worker_cli
from tests.integration.command_lines import Asking
from tests.integration.page_requests import answered
from tests.integration.test_monitor import free_port, got

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.commands import cli
from tidegate_adapters.orchestrator import command_line as of_orchestrator
from tidegate_adapters.reactive import command_line as of_reactive

TICKER: Final = """
import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import attrs
from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli import main
from tidegate_adapters.cli.commands import cli
from tidegate_adapters.observe.prometheus import counter
from tidegate_adapters.page.live import Shown
from tidegate_adapters.shell.application import Answer
from tidegate_adapters.shell.commands import TARGET, Commands
from tidegate_adapters.shell.monitor import Monitor, of_health
from tidegate_adapters.shell.runtimes import RUNTIMES, Runtime
from tidegate_adapters.shell.settings import ServedSettings

TABLE = RUNTIMES["ticker"] = Runtime("Ticker", "ticker", "ticker", "ticker", ("shop.clock:app", "clock.py:app"))
COMMANDS = Commands(TABLE, f"Tick. {TARGET.format('a Ticker')}", ["tidegate ticker run shop.clock:app"], {ExitCode.OK: "done"})
COMMANDS.run("a ticker", "it tick once more", "EVERY='1 s'", ("", "--set every='1 s'"))
COMMANDS.add("status", "Tell how often it ticks.", ("", "--json"))
cli.add_command(COMMANDS.group)


@attrs.frozen(kw_only=True)
class TickerSettings(ServedSettings):
    every: timedelta = timedelta(milliseconds=10)


class Ticker:
    def __init__(self, settings=TickerSettings()):
        self.settings, self.ticks, self.is_stopping = settings, 0, False

    def configured(self, settings):
        return Ticker(settings)

    async def serve(self):
        shown = (lambda: self.ticks, None)
        async with Monitor(self.settings, None).showing(self.health, "ticker", shown, page=lambda: self):
            while not self.is_stopping:
                self.ticks += 1
                await asyncio.sleep(self.settings.every.total_seconds())

    def stop(self):
        self.is_stopping = True

    def health(self):
        return of_health({"ticks": self.ticks}, is_healthy=self.ticks > 0)

    async def shown(self, filters):
        return Shown("Ticker", f"{self.ticks} ticks", True, (), (), ())


def families(ticks=0, tallies=None):
    yield counter("tidegate_ticker_ticks", "Ticks.", (), [(ticks,)])


@asynccontextmanager
async def opened(app, target):
    yield app


async def status(app):
    return Answer({"every_s": app.settings.every.total_seconds()}, (f"each {app.settings.every}",))


app = Ticker()
"""
RUN: Final = "import sys, ticker; sys.exit(ticker.main(sys.argv[1:]))"


def arguments(*given: str) -> Sequence[str]:
    return sys.executable, "-c", RUN, "ticker", *given


@pytest.fixture
def ticker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ticker.py").write_text(TICKER)
    (tmp_path / "own.toml").write_text("[ticker]\nevery = '5 s'\nleave = '1 s'")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("ticker")
def test_a_row_brings_commands_settings_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_TICKER__EVERY", "20 ms")
    more = ("ticker:app", "--config", "own.toml")

    def said(*given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(arguments(*given), capture_output=True, text=True, check=False)

    rows = json.loads(said("run", *more, "--dry-run", "--json", "--set", "drain=3 s").stdout)["settings"]
    told = {each["path"]: (each["value"], each["origin"]) for each in rows}
    assert told["every"] == ("20 ms", "environment TIDEGATE_TICKER__EVERY")
    assert told["leave"] == ("1 s", "file own.toml")
    assert told["drain"] == ("3 s", "argument drain")
    assert json.loads(said("status", *more, "--json").stdout) == {
        "schema": "tidegate/ticker@1", "every_s": 0.02, "ok": True
    }  # fmt: skip
    assert "Tell how often it ticks." in said("status", "--help").stdout
    wrong = said("status", *more, "--set", "evry=1 s")
    assert (wrong.returncode, wrong.stdout) == (ExitCode.USAGE, "")
    assert "did you mean every?" in wrong.stderr


@pytest.mark.usefixtures("ticker")
def test_a_row_brings_signals_health_metrics_and_a_page(tmp_path: Path) -> None:
    ports = {"metrics_port": free_port(), "page_port": free_port()}
    settings = [each for name, port in ports.items() for each in ("--set", f"{name}={port}")]
    log = tmp_path / "log"
    with (
        log.open("wb") as err,
        subprocess.Popen(
            arguments("run", "ticker:app", "--json", *settings), stdout=subprocess.PIPE, stderr=err
        ) as process,
    ):
        assert process.stdout is not None
        while b"the page is at" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        assert answered(ports["metrics_port"], "/health")[0] == 200
        assert "tidegate_ticker_ticks_total" in got(ports["metrics_port"], "/metrics")[2]
        assert answered(ports["page_port"], "/state")[1]["title"] == "Ticker"
        process.send_signal(signal.SIGTERM)
        answer = json.loads(process.stdout.read())

    assert process.returncode == ExitCode.TERMINATED
    assert answer == {"schema": "tidegate/ticker@1", "ended_by": "SIGTERM", "ok": True}
    assert "SIGTERM: draining" in log.read_text()


@pytest.mark.parametrize("commands", [of_orchestrator, of_reactive], ids=["orchestrator", "reactive"])
def test_each_command_gives_its_function_what_it_takes(commands: Any) -> None:
    """Options and functions match by name alone."""
    group = cli.commands[commands.__name__.split(".")[1]]
    assert isinstance(group, click.Group)
    of = {"list": "list_invocations" if commands is of_orchestrator else "list_records", "import": "take_over"}
    asks = dict.fromkeys(("retry", "cancel", "kill", "hold", "release"), "ask") if commands is of_orchestrator else {}
    for name, command in group.commands.items():
        if name != "run":
            given = {each.name for each in command.params if each.expose_value}
            options = given - {"target", "config", "settings", "is_json", "is_all"} | (
                {"command"} if name in asks else set()
            )
            function = getattr(commands, {**of, **asks}.get(name, name))
            signature(function).bind(None, **dict.fromkeys(map(str, options)))


# --- misuse -------------------------------------------------------------------------------------------------------------


NOWHERE: Final = "mongodb://shop:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=200"
APPS: Final = {
    "jobs.py": test_orchestrator_cli.APP,
    "tasks.py": test_reactive_cli.APP,
    "orders.py": test_worker_cli.APP,
}


@pytest.fixture
def asking(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    for name, app in APPS.items():
        (tmp_path / name).write_text(app)
    monkeypatch.chdir(tmp_path)
    for name, value in {"URI": NOWHERE, "DATABASE": "shop", "TOPIC": "orders", "BOOTSTRAP": "127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    yield Asking("", capsys)
    root.setLevel(level)  # running commands set up logging
    root.handlers[:] = handlers


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("orchestrator run jobs.py:app --log-level error", ExitCode.NOT_MET, "no MongoDB answers"),
        ("orchestrator run jobs.py:empty --log-level error", ExitCode.USAGE, "an app without tasks"),
        ("orchestrator status jobs.py:number", ExitCode.USAGE, "jobs.py:number is no Orchestrator: int"),
        ("orchestrator status jobs.py:number", ExitCode.USAGE, "found there: app, empty, embedded"),
        ("orchestrator status jobs.py:raises", ExitCode.RAISED, "RuntimeError: no database"),
        ("orchestrator status tasks.py:app", ExitCode.USAGE, "help: tidegate reactive takes it"),
        ("orchestrator list jobs.py:app", ExitCode.NOT_MET, "no MongoDB answers"),
        ("orchestrator list jobs.py:embedded", ExitCode.USAGE, "keeps its invocations in its own process"),
        ("orchestrator status jobs.py:empty", ExitCode.USAGE, "jobs.py:empty has no tasks"),
        ("orchestrator cancel jobs.py:app", ExitCode.USAGE, "say which invocations are meant, by filters or by --all"),
        ("orchestrator retry jobs.py:app --all --task send", ExitCode.USAGE, "by filters or by --all"),
        ("orchestrator list jobs.py:app --status done", ExitCode.USAGE, "'done' is not one of"),
        ("orchestrator cancel jobs.py:app --task a --tenant ''", ExitCode.USAGE, "leave it out where all are meant"),
        ("orchestrator kill jobs.py:app --tenant a --id ''", ExitCode.USAGE, "leave it out where all are meant"),
        ("orchestrator pause jobs.py:app", ExitCode.USAGE, "name a task, or a --queue"),
        ("orchestrator show jobs.py:app", ExitCode.USAGE, "Missing argument 'ID'"),
        ("reactive run tasks.py:app --log-level error", ExitCode.NOT_MET, "no MongoDB answers"),
        ("reactive run tasks.py:empty --log-level error", ExitCode.USAGE, "an app without tasks"),
        ("reactive status tasks.py:number", ExitCode.USAGE, "tasks.py:number is no Reactive: int"),
        ("reactive status tasks.py:number", ExitCode.USAGE, "found there: app, empty, embedded"),
        ("reactive status tasks.py:takes", ExitCode.USAGE, "tasks.py:takes takes arguments"),
        ("reactive status tasks.py:raises", ExitCode.RAISED, "RuntimeError: no database"),
        ("reactive status tasks.py:nothing", ExitCode.USAGE, "there is no 'nothing' in tasks.py"),
        ("reactive status orders.py:worker", ExitCode.USAGE, "help: tidegate worker takes it"),
        ("reactive status orders.py:worker", ExitCode.USAGE, "orders.py:worker is no Reactive: Worker"),
        ("reactive list tasks.py:app", ExitCode.NOT_MET, "no MongoDB answers"),
        ("reactive list tasks.py:embedded", ExitCode.USAGE, "keeps its documents in its own process"),
        ("reactive count tasks.py:empty", ExitCode.USAGE, "tasks.py:empty has no tasks"),
        ("reactive retry tasks.py:app --task bill --error ''", ExitCode.USAGE, "leave it out where all are meant"),
        ("reactive retry tasks.py:app", ExitCode.USAGE, "say which records are meant, by filters or by --all"),
        ("reactive retry tasks.py:app --all --task bill", ExitCode.USAGE, "by filters or by --all"),
        ("reactive list tasks.py:app --status done", ExitCode.USAGE, "'done' is not one of"),
        ("reactive pause tasks.py:app", ExitCode.USAGE, "Missing argument 'TASK...'"),
        ("worker run orders.py:number --log-level error", ExitCode.USAGE, "orders.py:number is no Worker: int"),
        ("worker run orders.py:number --log-level error", ExitCode.USAGE, "found there: worker, blocked, fails"),
        ("worker run orders.py:takes --log-level error", ExitCode.USAGE, "orders.py:takes takes arguments"),
        ("worker run orders.py:raises --log-level error", ExitCode.RAISED, "RuntimeError: no database"),
        ("worker run orders.py:nothing --log-level error", ExitCode.USAGE, "there is no 'nothing' in orders.py"),
        ("worker run orders.py:worker --log-level error", ExitCode.NOT_MET, "no Kafka broker answers at 127.0.0.1:1"),
        ("worker run tasks.py:app --dry-run", ExitCode.USAGE, "tasks.py:app is no Worker: Reactive"),
    ],
)
def test_what_cannot_be_says_why(asking: Asking, line: str, code: ExitCode, said: str) -> None:
    done = asking.main(*shlex.split(line), "--json")

    assert said in done.err
    assert done.code == code
    answer = json.loads(done.out)
    assert (answer["schema"], answer["ok"]) == (f"tidegate/{line.partition(' ')[0]}@1", False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("orchestrator pause jobs.py:app sent", "there is no task 'sent'"),
        ("orchestrator list jobs.py:app --made-before yesterday", "'yesterday' is no time"),
        ("orchestrator cancel jobs.py:app --made-from 2026-11-24T12:00:00", "is no time"),
        ("reactive list tasks.py:app --task bil", "there is no task 'bil'"),
        ("reactive pause tasks.py:app bil", "there are: bill, mail"),
        ("""reactive list tasks.py:app --id '{"$oid": "x"}'""", "is no Extended JSON"),
        ("reactive list tasks.py:app --due-before yesterday", "'yesterday' is no time"),
        ("reactive list tasks.py:app --due-from 2026-11-24T12:00:00", "is no time"),
        ("reactive count tasks.py:app --error x", "a count by the text of an error"),
    ],
)
def test_what_is_asked_for_and_cannot_be_says_why(
    mongodb: str, asking: Asking, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("URI", mongodb)
    done = asking.main(*shlex.split(line))

    assert said in done.err, done.err
    assert (done.code, done.out) == (ExitCode.USAGE, "")
