"""An application that runs by itself, `app.run()`, is gone in its time after a signal, whatever code of the user's goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from signal import SIGTERM
from subprocess import PIPE, Popen
from typing import Final

import pytest

from tidegate.exit_codes import ExitCode

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
from tidegate_adapters.embedded import Embedded
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
    """After the first signal, without another. Where nothing goes on, what comes after `run` is done."""
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
