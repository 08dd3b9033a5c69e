"""A process of a reactive application under a storm: `reactive_member.py URI DATABASE NAME LOG
VERSION [limited]`.

It writes one fact a line into LOG, each with one system call, so that a kill loses no fact.
Instants are in ns of the machine's monotonic clock:

    began TASK ID VALUE TOKEN INSTANT    ended TASK ID TOKEN INSTANT    failed TASK ID TOKEN INSTANT

Version 2 has another task and another handler version. A limited application has a task with
`ATTEMPTS_MAX` attempts, whose handler fails often.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from tidegate.leases.lease import Terms
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.reactive.planning.evolution import OnNewVersion
from tidegate.retries.backoff import Fixed, Policy
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.settings import ReactiveSettings

LEASE = timedelta(seconds=5)
ATTEMPTS_MAX = 2
PLANNER = PlannerRules(terms=Terms(ttl=3 * SECOND, heartbeat=SECOND, margin=500 * MILLISECOND))


def handler(name: str, path: str, pauses: random.Random, failing: float = 0.01) -> Callable[[Change], Awaitable[None]]:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(change: Change) -> None:
        def write(word: str, *more: object) -> None:
            os.write(log, (" ".join(map(str, (word, name, change.id, *more, time.monotonic_ns()))) + "\n").encode())

        write("began", change.values["n"], change.token)
        how = "failed"
        try:
            await asyncio.sleep(pauses.expovariate(1 / (0.2 if pauses.random() < 0.2 else 0.004)))
            if pauses.random() < failing:
                raise ArithmeticError(f"{change.id} was unlucky")
            how = "ended"
        finally:
            write(how, change.token)

    return handle


def application(uri: str, database: str, name: str, path: str, version: int, *, is_limited: bool) -> Reactive:
    settings = ReactiveSettings(database=database, uri=uri, concurrency=20, planner=PLANNER)
    app = Reactive(uri, settings=settings)
    pauses = random.Random(name)
    policy = Policy(backoff=Fixed(50 * MILLISECOND), attempts_max=None)
    debounce, watch = timedelta(milliseconds=20), ["n"]
    app.task(
        "docs", watch=watch, debounce=debounce, retries=policy, lease=LEASE, name="first", version=version,
        on_new_version=OnNewVersion.REPROCESS_ALL,
    )(handler("first", path, pauses))  # fmt: skip
    if version > 1:
        app.task("docs", watch=watch, debounce=debounce, retries=policy, lease=LEASE, name="second")(
            handler("second", path, pauses)
        )
    if is_limited:
        limited = Policy(backoff=Fixed(50 * MILLISECOND), attempts_max=ATTEMPTS_MAX)
        app.task("docs", watch=watch, debounce=debounce, retries=limited, lease=LEASE, name="limited")(
            handler("limited", path, pauses, 0.3)
        )
    return app


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    uri, database, name, path, version, *more = sys.argv[1:]
    application(uri, database, name, path, int(version), is_limited="limited" in more).run()
