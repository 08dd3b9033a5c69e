from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from tidegate.model.documents import Document
from tidegate.model.operations import InsertOne
from tidegate.model.records import Record
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun
from tidegate_adapters.kafka.worker import Worker
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.runtime import loop_watch

STANDS_S: Final = 0.1


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "STANDS_S", STANDS_S)
    monkeypatch.setattr(loop_watch, "_EVERY_S", 0.01)


def computes_for_long() -> None:
    time.sleep(4 * STANDS_S)


async def in_a_worker() -> None:
    async def blocks(record: Record) -> None:
        del record
        computes_for_long()

    await EmbeddedRun(
        Worker(["orders"], blocks, bootstrap="nowhere:1", group="g"), EmbeddedLog([Record("orders", 0, 0)])
    ).run()


async def served(app: Any, done: asyncio.Event) -> None:
    serving = asyncio.create_task(app.serve())
    await asyncio.wait_for(done.wait(), 30)
    app.stop()
    await serving


async def in_a_task() -> None:
    app, done = Orchestrator(Embedded(), "jobs"), asyncio.Event()

    @app.task()
    async def blocks() -> None:
        computes_for_long()
        done.set()

    _ = await blocks.enqueue()
    await served(app, done)


async def in_a_reactive_task() -> None:
    store, done = Embedded(), asyncio.Event()
    app = Reactive(store, "shop")

    @app.task("orders", debounce=timedelta(0))
    async def blocks(change: Change) -> None:
        del change
        computes_for_long()
        done.set()

    await store.awaited(InsertOne("orders", Document.of({"_id": 7})))
    await served(app, done)


@pytest.mark.parametrize(
    ("runs", "about"),
    [(in_a_worker, "topic orders, partition 0, offset 0"), (in_a_task, "blocks"), (in_a_reactive_task, "document 7")],
)
def test_a_handler_that_holds_up_the_loop_is_named(
    runs: Callable[[], Awaitable[None]], about: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        await runs()

    asyncio.run(run())
    for thread in threading.enumerate():  # its last message may be that the loop continues
        if thread.name == "tidegate-loop-watch":
            thread.join(10)
    said = [each.getMessage() for each in caplog.records if each.name == "tidegate.loop"]
    stands, goes_on = [each for each in said if "computes_for_long" in each]  # a busy machine may block elsewhere too
    line = f"in computes_for_long (tests/integration/test_loop_watch.py:{computes_for_long.__code__.co_firstlineno + 1}), called for "
    assert line in stands
    assert about in stands.partition("called for ")[2]
    assert "write a plain def" in stands
    assert line in goes_on


def test_a_loop_that_is_busy_in_turns_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        end = loop_watch.watched(asyncio.get_running_loop(), lambda _: "")
        for _ in range(20):
            time.sleep(STANDS_S / 4)  # noqa: ASYNC251  blocking is under test
            await asyncio.sleep(0)
        end()

    asyncio.run(run())
    assert [each for each in caplog.records if each.name == "tidegate.loop"] == []
