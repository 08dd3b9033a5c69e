"""What an orchestrator costs on a real MongoDB, beside the same by hand.

    python -m benchmarks.orchestrator [--invocations N] [--kept N] [--rounds N] [--json FILE]

    claims     workers, each a process, take N invocations (10,000) of one queue and end none: how many a second 1, 2, 4 and 8
               take, and with how many commands each. Beside it, `find_one_and_update` with a sort, an invocation at a time, on
               the same records with the same indexes; and 1 worker with so many (100,000) kept that have ended
    ends       an app with a handler that does nothing, in 1 process and in 4: invocations a second, from the first twentieth
               to the last. Beside it the commands that cannot be avoided, for a hundred at a time: a find of what is due, a bulk
               that takes them, a bulk that ends them. It renews nothing, counts no try, keeps no history
    latency    from before `enqueue` in one process to the handler in another: idle, ten a second; and at half of the rate
               that one process enqueues, waited for one by one

Contenders take turns; a figure is the median of its rounds, and a quotient that of each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, TypeAlias, cast, final
from uuid import uuid4

from pymongo import MongoClient, UpdateOne
from pymongo.monitoring import CommandListener
from pymongo.write_concern import WriteConcern
from tests.integration.servers import MongoServer

from tidegate.invocations.jobs import DEFAULT_QUEUE
from tidegate.invocations.taking import Takeable, Taker
from tidegate_adapters.driver import choosing, documents, local, run
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.orchestrator import Orchestrator, Task

Client: TypeAlias = MongoClient[dict[str, Any]]

DATABASE: Final = "bench"
RECORDS: Final = "orchestrator_invocations"
BATCH: Final = 100
WORKERS: Final = (1, 2, 4, 8)
IDLE_S: Final = 0.1
LATENCIES: Final = 200
DUE: Final = {"queue": DEFAULT_QUEUE, "due": {"$exists": True}}
URGENT: Final = [("tenant", -1), ("priority", -1), ("due", 1)]


@final
class Counted(CommandListener):
    """Counts commands."""

    def __init__(self) -> None:
        self.number = 0

    def started(self, event: object) -> None:
        del event
        self.number += 1

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


# --- contenders, each in a process of its own ---------------------------------------------------------------------------


def app_of(uri: str) -> tuple[Orchestrator, Task[[int], None]]:
    app = Orchestrator(uri, DATABASE)

    @app.task()
    async def work(at: int) -> None:
        if at:
            print(time.monotonic_ns() - at, flush=True)

    return app, work


def started() -> None:
    """Tell that this process is ready, and wait for all others to be."""
    print("ready", flush=True)
    _ = sys.stdin.readline()


def takes(uri: str) -> None:
    counted, taken = Counted(), 0
    with Client(uri, event_listeners=[counted]) as client:
        handle = choosing(documents(Mongo(client, DATABASE)), local())
        taker = Taker(runner=uuid4().hex, queues=(DEFAULT_QUEUE,), tasks=(Takeable("work"),), records=RECORDS)
        factor = 1
        started()
        while True:
            found = run(taker.take(BATCH, factor), handle)
            taken += len(found.runs)
            if not found.runs and not found.lost:
                break
            factor = min(2 * factor, 8) if found.lost else 1
    print(json.dumps([taken, counted.number]), flush=True)


def takes_bare(uri: str) -> None:
    counted, taken = Counted(), 0
    with Client(uri, event_listeners=[counted]) as client:
        records, me = client[DATABASE].get_collection(RECORDS, write_concern=WriteConcern("majority")), uuid4().hex
        begun = {"$set": {"status": "running", "owner": me}, "$unset": {"due": 1}, "$inc": {"version": 1}}
        started()
        while records.find_one_and_update(DUE, begun, sort=URGENT) is not None:
            taken += 1
    print(json.dumps([taken, counted.number]), flush=True)


def serves(uri: str) -> None:
    app, _ = app_of(uri)
    app.run()


def serves_bare(uri: str) -> None:
    with Client(uri) as client:
        records, me = client[DATABASE].get_collection(RECORDS, write_concern=WriteConcern("majority")), uuid4().hex
        begun = {"$set": {"status": "running", "owner": me}, "$unset": {"due": 1}, "$inc": {"version": 1}}
        ended = {"$set": {"status": "success", "owner": None, "changed_at": datetime.now(UTC)}, "$inc": {"version": 1}}
        while True:
            keys = [each["_id"] for each in records.find(DUE, {"_id": 1}, sort=URGENT, limit=BATCH)]
            if not keys:
                time.sleep(0.1)
                continue
            took = [UpdateOne({"_id": key, "due": {"$exists": True}}, begun) for key in keys]
            _ = records.bulk_write(took, ordered=False)
            _ = records.bulk_write([UpdateOne({"_id": key, "owner": me}, ended) for key in keys], ordered=False)


KINDS: Final[dict[str, Callable[[str], None]]] = {
    "takes": takes, "takes_bare": takes_bare, "serves": serves, "serves_bare": serves_bare,
}  # fmt: skip


# --- who asks them ------------------------------------------------------------------------------------------------------


@contextmanager
def contenders(kind: str, uri: str, number: int) -> Iterator[list[subprocess.Popen[str]]]:
    argv = [sys.executable, "-m", "benchmarks.orchestrator", "--as", kind, uri]
    some = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(number)]
    try:
        yield some
    finally:
        for each in some:
            each.terminate()
            _ = each.communicate()


def filled(client: Client, uri: str, count: int, kept: int = 0) -> None:
    """So many that are due, and so many that have ended."""
    client.drop_database(DATABASE)

    async def fill() -> None:
        app, work = app_of(uri)
        for number, is_kept in ((kept, True), (count, False)):
            for start in range(0, number, 10_000):
                _ = await work.enqueue_many([(0,)] * min(10_000, number - start))
            if is_kept and number:
                ended = {"$set": {"status": "success"}, "$unset": {"due": 1}}
                _ = client[DATABASE][RECORDS].update_many({}, ended)
        await app.close()

    asyncio.run(fill())


def claims(client: Client, uri: str, kind: str, workers: int, count: int, *, kept: int = 0) -> tuple[float, float]:
    """Claims a second, and commands a claim."""
    filled(client, uri, count, kept)
    with contenders(kind, uri, workers) as some:
        for each in some:
            assert cast("Any", each.stdout).readline() == "ready\n"
        began = time.monotonic()
        for each in some:
            cast("Any", each.stdin).write("\n")
            cast("Any", each.stdin).flush()
        told = [json.loads(cast("Any", each.stdout).readline()) for each in some]
        took = time.monotonic() - began
    assert sum(taken for taken, _ in told) == count
    return count / took, sum(commands for _, commands in told) / count


def ends(client: Client, uri: str, kind: str, processes: int, count: int) -> float:
    """Invocations a second."""
    filled(client, uri, count)
    least, most = count // 20, count - count // 20

    def done_at(some: int) -> tuple[int, float]:
        while (done := client[DATABASE][RECORDS].count_documents({"status": "success", "tenant": None})) < some:
            time.sleep(0.01)
        return done, time.monotonic()

    with contenders(kind, uri, processes):
        (first, began), (last, ended) = done_at(least), done_at(most)
    return (last - first) / (ended - began)


def latency(client: Client, uri: str, every: float) -> tuple[float, float, float]:
    """p50 and p99 in ms, at one each so many seconds; and what an `enqueue` takes, in seconds."""
    filled(client, uri, 0)
    with contenders("serves", uri, 1) as (process,):

        async def ask() -> tuple[list[int], float]:
            app, work = app_of(uri)
            out, found, spent = cast("Any", process.stdout), list[int](), 0.0
            for number in range(LATENCIES + 1):
                await asyncio.sleep(every)
                began = time.monotonic_ns()
                _ = await work.enqueue(began)
                spent += (time.monotonic_ns() - began) / 1e9
                told = int(await asyncio.to_thread(out.readline))
                if number:  # the first one waited for the process
                    found.append(told)
            await app.close()
            return found, spent / LATENCIES

        found, spent = asyncio.run(ask())
    cuts = quantiles(found, n=100)
    return cuts[49] / 1e6, cuts[98] / 1e6, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _ = parser.add_argument("--invocations", type=int, default=10_000)
    _ = parser.add_argument("--kept", type=int, default=100_000)
    _ = parser.add_argument("--rounds", type=int, default=3)
    _ = parser.add_argument("--json", type=Path)
    _ = parser.add_argument("--as", dest="contender", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.contender:
        kind, uri = told.contender
        KINDS[kind](uri)
        return
    found: dict[str, float] = {}
    turns, count = range(told.rounds), told.invocations
    with MongoServer() as server, Client(server.uri) as client:
        uri = server.uri
        for workers in WORKERS:
            both = [[claims(client, uri, kind, workers, count) for kind in ("takes", "takes_bare")] for _ in turns]
            for name, at in (("claims", 0), ("bare claims", 1)):
                found[f"{name}, {workers} workers, a second"] = median(each[at][0] for each in both)
                found[f"{name}, {workers} workers, commands each"] = median(each[at][1] for each in both)
            found[f"claims, {workers} workers, x bare"] = median(ours[0] / bare[0] for ours, bare in both)
        pairs = [(claims(client, uri, "takes", 1, count)[0], claims(client, uri, "takes", 1, count, kept=told.kept)[0]) for _ in turns]  # fmt: skip
        found[f"claims, {told.kept} kept, x none"] = median(kept / none for none, kept in pairs)
        for processes in (1, 4):
            rates = [[ends(client, uri, kind, processes, count) for kind in ("serves", "serves_bare")] for _ in turns]
            for name, at in (("ends", 0), ("bare ends", 1)):
                found[f"{name}, {processes} processes, a second"] = median(each[at] for each in rates)
            found[f"ends, {processes} processes, x bare"] = median(ours / bare for ours, bare in rates)
        idle = [latency(client, uri, IDLE_S) for _ in turns]
        half = [latency(client, uri, median(spent for *_, spent in idle)) for _ in turns]
        for name, some in (("idle", idle), ("half load", half)):
            found[f"latency {name}, p50 ms"] = median(p50 for p50, _, _ in some)
            found[f"latency {name}, p99 ms"] = median(p99 for _, p99, _ in some)
    for name, figure in found.items():
        print(f"{name:<42}{figure:12.3f}")
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        _ = told.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
