"""A process of an orchestrator under a storm: `orchestrator_member.py URI DATABASE NAME LOG VERSION
SKEW_S`.

Its clock is ahead by SKEW_S. Only these read it:
    driver.py, `Now`     `Taker`, as part of a draw among the due invocations, not as a time
    workers.py           `_say_failed`, to log the time until the next attempt
    crons.py             `check_cron`, to check that an expression can be read
    logging              the times of lines
The rest uses the store's clock or the monotonic one.

It writes one fact a line into LOG, each with one system call, so that a kill loses no fact.
Instants are in ns of the machine's monotonic clock:

    began TASK ID VERSION LIMIT INSTANT   ended ID VERSION INSTANT       failed ID VERSION INSTANT
    turn TOKEN ROUND SINCE INSTANT        turned TOKEN ROUND SINCE INSTANT    alive SENT INSTANT

LIMIT is the run's concurrency group, `-` for none. SINCE is the start of the turn in us of the
store's clock. `alive` is a confirmed heartbeat and when it was sent. Version 2 has another task.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, final

from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.retries.polling import PollingBounds
from tidegate.retries.schedule import Missed
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.work.events import HeartbeatAcked, WorkerEvent
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Heartbeat, WorkerCommand
from tidegate_adapters.orchestrator import Happened, InvocationFailed, MaxRunning, Orchestrator, Task, on_cron
from tidegate_adapters.orchestrator.handles import CURRENT
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.turns import ServiceRules

AT_MOST: Final = 2
DEAD_AFTER: Final = 3 * SECOND
TURNS: Final = ServiceRules(
    interval=timedelta(seconds=4),
    spread=timedelta(milliseconds=100),
    check_every=timedelta(milliseconds=100),
    round_every=timedelta(milliseconds=200),
    recover="*/2 * * * * *",
)


@final
class Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._sent = 0

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, (*words, time.monotonic_ns()))) + "\n").encode())

    def observe(self, event: WorkerEvent, _: WorkerState, commands: Sequence[WorkerCommand]) -> None:
        if isinstance(event, HeartbeatAcked) and event.is_alive:
            self.write("alive", self._sent)
        if any(isinstance(each, Heartbeat) for each in commands):
            self._sent = time.monotonic_ns()

    @asynccontextmanager
    async def run(self, task: str, limited_by: object = "-") -> AsyncGenerator[str, None]:
        run = CURRENT.get().run
        self.write("began", task, run.id, run.token, limited_by)
        how = "failed"
        try:
            yield f"{run.id} {run.token}"
            how = "ended"
        finally:
            self.write(how, run.id, run.token)


def of_instant(what: Happened) -> dict[str, object]:
    assert what.due is not None
    return {"instant": what.due.isoformat()}


def application(
    store: str, database: str, log: Log, chance: random.Random, version: int
) -> tuple[Orchestrator, dict[str, Task[..., Any]]]:
    settings = OrchestratorSettings(
        database=database, beat_every=timedelta(milliseconds=500), dead_after=timedelta(microseconds=DEAD_AFTER), services=TURNS, result_every=timedelta(milliseconds=100),
        polling=PollingBounds(least=50 * MILLISECOND, most=500 * MILLISECOND, jitter=20 * MILLISECOND),
    )  # fmt: skip
    app = Orchestrator(store, settings=settings, observers=[log.observe])
    again: Any = {"retries": 3, "backoff": timedelta(milliseconds=50)}

    async def work() -> None:
        await asyncio.sleep(
            chance.expovariate(1 / (0.3 if chance.random() < 0.1 else 0.01))
        )  # so that some are running
        if chance.random() < 0.1:
            raise ArithmeticError("unlucky")

    @app.task(**again)
    async def single() -> str:
        async with log.run("single") as run:
            await work()
            return run

    @app.task(max_running=MaxRunning.per(lambda of: of, at_most=AT_MOST), **again)
    async def limited(of: str) -> str:
        async with log.run("limited", of) as run:
            await work()
            return run

    @app.task(**again)
    async def parent() -> str:
        async with log.run("parent") as run:
            key = run.split()[0]
            for each in [await single.enqueue(key=f"{key}.{number}") for number in range(2)]:
                try:
                    assert (await each.result()).startswith(each.id)
                except InvocationFailed:
                    continue
            await work()
            return run

    @app.task(triggers=[on_cron("* * * * * *", missed=Missed.EACH).calls_with(of_instant)])
    async def tick(instant: str) -> str:
        async with log.run("tick", instant) as run:
            return run

    rounds = itertools.count()

    @app.service()
    async def sweep(run: AtomicServiceRun, token: int) -> None:
        told = token, next(rounds), run.started.at
        log.write("turn", *told)
        try:
            await asyncio.sleep(0.05)
        finally:
            log.write("turned", *told)

    tasks: dict[str, Task[..., Any]] = {"single": single, "limited": limited, "parent": parent}
    if version > 1:

        @app.task(**again)
        async def novel() -> str:
            async with log.run("novel") as run:
                await work()
                return run

        tasks["novel"] = novel
    return app, tasks


def set_apart(seconds: float) -> None:
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + round(seconds * 10**9)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    uri, database, name, path, version, ahead = sys.argv[1:]
    set_apart(float(ahead))
    application(uri, database, Log(path), random.Random(name), int(version))[0].run()
