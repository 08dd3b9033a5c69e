"""What an orchestrator takes of a real MongoDB, and how long it takes until another process goes on.

    python -m benchmarks.orchestrator.upkeep [--records N] [--rounds N] [--only ROW ...] [--json FILE]

    space      N records (100,000) that wait, and as many that have ended: what they and their indexes take, on disk and in the
               server's cache. And a tenth of them is run by one process: what the oplog grew by, enqueueing included, and the
               process's memory at its largest
    killed     of two processes one is killed, in the midst of a handler: until that begins elsewhere, and the time from
               the last start of a cron of each second before to the next
    stopped    a process is asked to end, in the midst of a handler that does not: likewise, `drain` included
    node       the primary of three nodes is killed, which elect another after a second: the longest time from before `enqueue` to
               the handler, of invocations that are enqueued twenty times a second
    step down  the primary steps down, as when it is upgraded: likewise

A process is presumed dead after 10 s, the two share each 20 s, and recovery looks every 5 s. A time is told as the least, the
median and the most of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from statistics import median
from typing import Any, Final, TypeAlias
from uuid import uuid4

from benchmarks.orchestrator.__main__ import RECORDS, inserted
from benchmarks.smoke import mongo, sized
from benchmarks.upkeep import Process, served, until_begun
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from tests.integration.servers import MongoServer
from tests.integration.servers.processes import wait_until

from tidegate_adapters.orchestrator import Orchestrator, Task, on_cron
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.turns import ServiceRules

Client: TypeAlias = MongoClient[dict[str, Any]]

DATABASE: Final = "upkeep"
SETTINGS: Final = OrchestratorSettings(
    database=DATABASE,
    drain=timedelta(seconds=1),
    beat_every=timedelta(seconds=1),
    dead_after=timedelta(seconds=10),
    services=ServiceRules(
        processes=2, interval=timedelta(seconds=20), check_every=timedelta(seconds=0.5), recover="*/5 * * * * *"
    ),
)
NODE_S: Final = 15.0
TICK: Final = "tick"


def application(uri: str) -> tuple[Orchestrator, Task[[str, int, bool], None]]:
    """Tells when a handler begins; one that is told so never ends."""
    app = Orchestrator(uri, settings=SETTINGS)

    @app.task()
    async def handle(who: str, at: int, stays: bool) -> None:
        print(json.dumps([who, at, time.monotonic_ns()]), flush=True)
        if stays:
            await asyncio.sleep(3_600)

    @app.task(triggers=[on_cron("* * * * * *")])
    async def tick() -> None:
        at = time.monotonic_ns()
        print(json.dumps([TICK, at, at]), flush=True)

    return app, handle


def serving(uri: str) -> AbstractContextManager[Process]:
    return served(uri, "benchmarks.orchestrator.upkeep")


class Desk:
    """Enqueues. It has a loop of its own, as a process that does nothing else."""

    def __init__(self, uri: str) -> None:
        self._app, self._task = application(uri)

    def enqueue(self, key: str, *, stays: bool = False) -> tuple[str, int]:
        """What handlers will tell of it: the key, and when it was asked for, in ns."""
        at = time.monotonic_ns()
        _ = self._task.enqueue_sync(key, at, stays)
        return key, at


# --- space --------------------------------------------------------------------------------------------------------------


def space(client: Client, uri: str, count: int) -> dict[str, float]:
    found: dict[str, float] = {}
    client.drop_database(DATABASE)
    records = client[DATABASE][RECORDS]
    Desk(uri).enqueue("waits")
    waits = records.find_one()
    with serving(uri):
        wait_until(lambda: records.count_documents({"status": "success", "task": "handle"}) == 1, "it to be run", 60)
    for name, doc in (("waiting", waits), ("ended", records.find_one({"status": "success", "task": "handle"}))):
        assert doc is not None
        client.drop_database(DATABASE)
        Desk(uri).enqueue("makes its indexes")
        inserted(records, doc, "_id", [uuid4().hex for _ in range(count - 1)])
        client.admin.command("fsync")
        stats = client[DATABASE].command("collStats", RECORDS, indexDetails=True)
        cached = [stats["wiredTiger"], *stats["indexDetails"].values()]
        found |= {
            f"{name}, bytes each": stats["avgObjSize"],
            f"{name}, MB": stats["size"] / 1e6,
            f"{name}, MB on disk": stats["storageSize"] / 1e6,
            f"{name}, indexes, MB": stats["totalIndexSize"] / 1e6,
            f"{name}, MB in the cache, with indexes": sum(
                each["cache"]["bytes currently in the cache"] for each in cached
            )
            / 1e6,
        }
    client.drop_database(DATABASE)
    some = count // 10
    before = client["local"].command("collStats", "oplog.rs")["size"]
    asyncio.run(fill(uri, some))
    with serving(uri) as process:
        wait_until(
            lambda: records.count_documents({"status": "success", "task": "handle"}) == some, "all to be run", 600
        )
        found["process, MB at most"] = process.memory_mb()
    found["oplog, bytes an invocation"] = (client["local"].command("collStats", "oplog.rs")["size"] - before) / some
    return found


async def fill(uri: str, count: int) -> None:
    app, handle = application(uri)
    for begin in range(0, count, 1_000):
        await handle.enqueue_many([(f"n{n}", 0, False) for n in range(begin, min(begin + 1_000, count))])
    await app.close()


# --- what fails ---------------------------------------------------------------------------------------------------------


def ended(client: Client, uri: str, number: Signals) -> tuple[float, float]:
    """Until what it ran begins elsewhere, and the time between the last start of the cron before and the next, in s."""
    client.drop_database(DATABASE)
    desk = Desk(uri)
    with serving(uri) as first:
        until_begun(first, desk.enqueue("first"))
        held = desk.enqueue("held", stays=True)
        until_begun(first, held)
        with serving(uri) as second:
            wait_until(lambda: TICK in {key for key, _ in second.began}, "both to take part", 90)
            died = time.monotonic_ns()
            threading.Thread(target=first.end, args=(number,), daemon=True).start()
            begun = until_begun(second, held)
            wait_until(lambda: any(at > died for at in ticks(second)), "a cron to start again", 90)
    last = max(at for at in (*ticks(first), *ticks(second)) if at <= died)
    return (begun - died) / 1e9, (min(at for at in ticks(second) if at > died) - last) / 1e9


def ticks(process: Process) -> list[int]:
    """When the cron began there."""
    return [at for (key, _), at in {**process.began}.items() if key == TICK]


def step_down(server: MongoServer, node: int) -> None:
    with server.client(node) as client, contextlib.suppress(PyMongoError):
        client.admin.command("replSetStepDown", 10, secondaryCatchUpPeriodSecs=5, force=True)


def node(server: MongoServer, strike: Callable[[MongoServer, int], None]) -> float:
    """The longest time from before it is asked for to its handler, in s."""
    with Client(server.uri) as client:
        client.drop_database(DATABASE)
    desk = Desk(server.uri)
    with serving(server.uri) as process:
        until_begun(process, desk.enqueue("first"))
        primary = server.primary()
        assert primary is not None
        strikes = threading.Timer(2, strike, (server, primary))
        strikes.start()
        ends, asked = time.monotonic() + NODE_S, list[tuple[str, int]]()
        while time.monotonic() < ends:
            asked.append(desk.enqueue(f"d{len(asked)}"))
            time.sleep(0.05)
        strikes.join()
        return max(until_begun(process, each) - each[1] for each in asked) / 1e9


def killed_node(server: MongoServer, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        before = server.primary()
        found.append(node(server, MongoServer.kill))
        assert before is not None
        server.restart(before)
    return found


def spread(taken: list[float]) -> list[float]:
    return [round(each, 1) for each in (min(taken), median(taken), max(taken))]


ROWS: Final = ("space", "killed", "stopped", "node", "step down")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=sized(100_000, 50))
    parser.add_argument("--rounds", type=int, default=sized(3, 1))
    parser.add_argument("--only", nargs="*", choices=ROWS, default=sized(ROWS, ("space",)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as", dest="uri", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.uri:
        application(told.uri)[0].run()
        return
    found: dict[str, Any] = {}
    with mongo() as server, Client(server.uri) as client:
        if "space" in told.only:
            found |= space(client, server.uri, told.records)
        for row, number in (("killed", SIGKILL), ("stopped", SIGTERM)):
            if row in told.only:
                runs, crons = zip(*(ended(client, server.uri, number) for _ in range(told.rounds)), strict=True)
                found |= {f"{row}, s": spread([*runs]), f"{row}, between two starts of a cron, s": spread([*crons])}
    if {"node", "step down"} & {*told.only}:
        with MongoServer(nodes=3) as server:
            if "node" in told.only:
                found["node, s"] = spread(killed_node(server, told.rounds))
            if "step down" in told.only:
                found["step down, s"] = spread([node(server, step_down) for _ in range(told.rounds)])
    for name, figure in found.items():
        print(f"{name:<44}{figure if isinstance(figure, list) else round(figure, 1)}")
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        told.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
