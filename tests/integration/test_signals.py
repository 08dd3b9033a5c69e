"""`app.run()` ends in time after a signal, whatever user code continues."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from subprocess import PIPE, STDOUT, Popen
from typing import Final

import pytest
from tests.integration.interruptible import INTERRUPTIBLE

from tidegate.exit_codes import ExitCode
from tidegate_adapters.shell.signals import CODES

ORCHESTRATOR: Final = """
from datetime import timedelta
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
app = Orchestrator(Embedded(), settings=OrchestratorSettings(database="jobs", drain=timedelta(milliseconds=100), leave=timedelta(milliseconds=200)))
@app.task()
async def handle():
    await HANDLER
handle.enqueue_sync()
"""
REACTIVE: Final = """
from datetime import timedelta
from tidegate.model.documents import Document
from tidegate.model.operations import InsertOne
from tidegate_adapters.reactive import Reactive
from tidegate_adapters.reactive.settings import ReactiveSettings
store = Embedded()
app = Reactive(store, settings=ReactiveSettings(database="shop", drain=timedelta(milliseconds=100), leave=timedelta(milliseconds=200)))
@app.task(collection="orders", debounce=timedelta(0))
async def handle(change):
    await HANDLER
store(InsertOne("orders", Document.of({"_id": 7})))
"""
BEFORE: Final = """
import asyncio, threading, time
from datetime import timedelta
from tidegate_adapters.embedded.store import Embedded
async def ignores():
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
def sleeps():
    print("begun", flush=True)
    time.sleep(60)
async def ends():
    print("begun", flush=True)
"""
HANDLERS: Final = {"ignores": "ignores()", "in a thread": "asyncio.to_thread(sleeps)", "ends": "ends()"}


@pytest.mark.parametrize(
    ("app", "handler"),
    [
        pytest.param(ORCHESTRATOR, "ignores", id="orchestrator-ignores"),
        pytest.param(ORCHESTRATOR, "in a thread", id="orchestrator-in a thread", marks=pytest.mark.long),
        pytest.param(ORCHESTRATOR, "ends", id="orchestrator-ends"),
        pytest.param(REACTIVE, "ignores", id="reactive-ignores", marks=pytest.mark.long),
        pytest.param(REACTIVE, "in a thread", id="reactive-in a thread"),
        pytest.param(REACTIVE, "ends", id="reactive-ends"),
    ],
)
def test_an_app_is_gone_in_its_time_whatever_its_handlers_do(tmp_path: Path, app: str, handler: str) -> None:
    script = tmp_path / "app.py"
    script.write_text(BEFORE + app.replace("HANDLER", HANDLERS[handler]) + "app.run()\nprint('after', flush=True)\n")
    with Popen([sys.executable, script], stdout=PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "begun\n"
            time.sleep(0.1)
            running.send_signal(SIGTERM)
            code = running.wait(30)
            said = running.stdout.read()
        finally:
            running.kill()
    assert (code, said) == ((0, "after\n") if handler == "ends" else (ExitCode.TERMINATED, ""))


WORKER: Final = """
from tidegate_adapters.kafka.worker import Worker
async def handle(record):
    await HANDLER
app = Worker(["orders"], handle, bootstrap="b:1", group="g")
"""
CLOSES: Final = (
    BEFORE
    + """
async def closes():
    try:
        yield
    finally:
        print("closing", flush=True)
        await asyncio.sleep(0.5)
closing = closes()
def exits():
    threading.main_thread().join()
    print("exiting", flush=True)
    time.sleep(0.5)
async def begins():
    await anext(closing)
    threading.Thread(target=exits).start()
    print("begun", flush=True)
    await asyncio.sleep(0.5)
"""
)
KINDS: Final = {"worker": WORKER, "orchestrator": ORCHESTRATOR, "reactive": REACTIVE}


def signalled(folder: Path, command: tuple[str | Path, ...], when: str, number: Signals) -> tuple[int, str]:
    with Popen(command, cwd=folder, stdout=PIPE, stderr=STDOUT, text=True) as running:
        try:
            assert running.stdout is not None
            lines = list[str]()
            for word in ("begun", when):
                lines += iter(running.stdout.readline, f"{word}\n")
                running.send_signal(number)
            lines += running.stdout
        finally:
            running.kill()
    return running.returncode, "".join(lines)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("when", "number"),
    [
        ("closing", SIGTERM),
        ("exiting", SIGINT),
        pytest.param("closing", SIGINT, marks=pytest.mark.long),
        pytest.param("exiting", SIGTERM, marks=pytest.mark.long),
    ],
)
def test_a_second_signal_while_the_process_closes_changes_nothing(
    tmp_path: Path, kind: str, when: str, number: Signals
) -> None:
    """While the loop closes, or Python joins threads: it once killed the process."""
    (tmp_path / "app.py").write_text(CLOSES + KINDS[kind].replace("HANDLER", "begins()"))
    (tmp_path / "records").write_text('{"topic": "orders", "value": "x"}\n')
    options = ("--embedded", "records") if kind == "worker" else ()

    code, said = signalled(tmp_path, (*INTERRUPTIBLE, kind, "run", "app.py:app", *options), when, number)

    assert "Traceback" not in said, said
    assert ",:" not in said, said
    assert code == CODES[number], said


def test_a_second_signal_while_the_loop_of_an_app_closes_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    after = "import signal\napp.run()\nprint(signal.getsignal(signal.SIGTERM).name)\n"
    script.write_text(CLOSES + ORCHESTRATOR.replace("HANDLER", "begins()") + after)

    code, said = signalled(tmp_path, (sys.executable, "-u", script), "closing", SIGTERM)

    assert (code, said.splitlines()[-2:]) == (0, ["SIG_DFL", "exiting"]), said
