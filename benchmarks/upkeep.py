"""What reactive tasks take of a real MongoDB, and how long it takes until another goes on.

    python -m benchmarks.upkeep [--documents N] [--rounds N] [--only ROW ...] [--json FILE]

    space      N documents (100,000) of half a kilobyte are handled once, by one process: what their records take, what the oplog
               grew by, and the process's memory at its largest
    run        a process is killed in the midst of a handler: until that begins elsewhere (a lease of `LEASE`)
    leader     it was the one that leads: until a document that changes then is handled
    stopped    the one that leads is stopped: likewise
    inside     a process is killed after `Change.complete(session)` and before the commit, so that its transaction holds the record of
               one document, which changes then: the longest time from a write to its handler, of other documents that are written ten
               times a second; and until its own run begins elsewhere. `outside` is the same in the midst of a handler without a
               transaction. Each for a process that leads, and for one that does not, with a lease of `LEASE` and of the default
    node       the primary of three nodes is killed, which elect another after a second: the longest time from a write to its
               handler, of documents that are written twenty times a second

A time is told as the least, the median and the most of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from statistics import median
from typing import IO, Any, Final, cast

from benchmarks.smoke import mongo, sized
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.servers import MongoServer
from tests.integration.servers.processes import wait_until

from tidegate_adapters.reactive import Change, Later, Reactive
from tidegate_adapters.reactive.declared import LEASE as DEFAULT

ROWS: Final = ("space", "killed", "deaths", "node")
DATABASE: Final = "upkeep"
LEASE: Final = timedelta(seconds=5)
NODE_S: Final = 15.0
HOLDS: Final = ("benchmarks.upkeep", "--holds")
HELD_S: Final = 75.0
"""For longer than most servers keep a transaction that nobody ends."""
DEAD_S: Final = 25.0
"""For longer than the lease of a leader."""


async def application(uri: str, lease: timedelta, *, holds: bool) -> None:
    """Tells when a handler begins; one of a document that says so never ends, "inside" its transaction or not.

    Args:
        uri: Of the replica set.
        lease: That of a run.
        holds: Whether this process takes such documents; otherwise it leaves them to another one.
    """
    mongo = AsyncMongoClient[dict[str, Any]](uri)
    app = Reactive(mongo, database=DATABASE, concurrency=50)

    @app.task(collection="docs", watch=["at", "stays"], debounce=timedelta(0), lease=lease)
    async def handle(change: Change) -> None:
        stays = change.values.get("stays")
        if stays and not holds:
            raise Later(timedelta(milliseconds=200))
        if stays != "inside":
            print(json.dumps([change.id, change.values["at"], time.monotonic_ns()]), flush=True)
        if stays == "inside":
            async with mongo.start_session() as session, await session.start_transaction():
                await change.complete(session)
                print(json.dumps([change.id, change.values["at"], time.monotonic_ns()]), flush=True)
                await asyncio.sleep(3_600)
        if stays:
            await asyncio.sleep(3_600)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop)
    await app.serve()


class Process:
    """One of the application's.

    Args:
        uri: Of the replica set.
        module: Whose application.
        options: Its other arguments.

    Attributes:
        began: When a handler began, in ns, by the id and what the document said.
    """

    def __init__(self, uri: str, module: str = "benchmarks.upkeep", options: Sequence[str] = ()) -> None:
        argv = [sys.executable, "-m", module, "--as", uri, *options]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.began: dict[tuple[Any, int], int] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in cast("IO[str]", self._process.stdout):
            key, said, at = json.loads(line)
            self.began[key, said] = at

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._process.send_signal(number)
        self._process.wait()

    def memory_mb(self) -> float:
        """The most that it has had until now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1_000


@contextmanager
def served(uri: str, module: str = "benchmarks.upkeep", *options: str) -> Iterator[Process]:
    process = Process(uri, module, options)
    try:
        yield process
    finally:
        process.end()


def write(client: MongoClient[dict[str, Any]], key: str, **fields: object) -> tuple[str, int]:
    """What handlers will be told of it: the id, and when it was written, in ns."""
    at = time.monotonic_ns()
    client[DATABASE].docs.update_one({"_id": key}, {"$set": {"at": at, **fields}}, upsert=True)
    return key, at


def until_begun(process: Process, written: tuple[str, int]) -> int:
    wait_until(lambda: written in process.began, f"the handler of {written}", 90)
    return process.began[written]


def space(client: MongoClient[dict[str, Any]], uri: str, count: int) -> dict[str, float]:
    client.drop_database(DATABASE)
    for begin in range(0, count, 10_000):
        numbers = range(begin, min(begin + 10_000, count))
        client[DATABASE].docs.insert_many([{"_id": n, "at": 0, "text": "x" * 400} for n in numbers])
    before = client["local"].command("collStats", "oplog.rs")["size"]
    with served(uri) as process:
        records = client[DATABASE].docs_tasks
        wait_until(lambda: records.count_documents({"status": "completed"}) == count, "all to be handled", 600)
        memory = process.memory_mb()
    oplog = client["local"].command("collStats", "oplog.rs")["size"] - before
    client.admin.command("fsync")
    stats = client[DATABASE].command("collStats", records.name)
    return {
        "records, bytes each": stats["avgObjSize"],
        "records, MB on disk": stats["storageSize"] / 1e6,
        "indexes, MB": stats["totalIndexSize"] / 1e6,
        "oplog, bytes a document": oplog / count,
        "process, MB at most": memory,
    }


def killed(client: MongoClient[dict[str, Any]], uri: str) -> tuple[float, float, float]:
    """A run that was killed, a change after the leader was killed, and one after it was stopped: in s."""
    client.drop_database(DATABASE)
    with served(uri, *HOLDS) as first:
        until_begun(first, write(client, "first"))  # it leads
        held = write(client, "held", stays=True)
        until_begun(first, held)
        with served(uri, *HOLDS) as second:
            time.sleep(15)  # the second one looks as rarely as it ever does
            first.end()
            died = time.monotonic_ns()
            changed = write(client, "changed")
            run, leader = until_begun(second, held), until_begun(second, changed)
            with served(uri, *HOLDS) as third:
                time.sleep(5)
                write(client, "held", stays=False)
                stops = time.monotonic_ns()
                threading.Thread(target=second.end, args=(signal.SIGTERM,), daemon=True).start()
                time.sleep(0.1)
                stopped = until_begun(third, write(client, "later"))
    return (run - died) / 1e9, (leader - died) / 1e9, (stopped - stops) / 1e9


def dead(
    client: MongoClient[dict[str, Any]], uri: str, stays: object, lease: timedelta, *, leads: bool
) -> tuple[float, float]:
    """A process is killed: the longest time from a write to its handler, of other documents, and until its run begins elsewhere: in s."""
    client.drop_database(DATABASE)
    waits: tuple[str, ...] = ("benchmarks.upkeep", f"--lease={lease.total_seconds()}")
    holds = (*waits, "--holds")
    with served(uri, *(holds if leads else waits)) as first:
        until_begun(first, write(client, "first"))  # it leads
        with served(uri, *(waits if leads else holds)) as second:
            dies, lives = (first, second) if leads else (second, first)
            held = write(client, "held", stays=stays)
            until_begun(dies, held)
            time.sleep(1)
            dies.end()
            died, written = time.monotonic(), list[tuple[str, int]]()
            again = write(client, "held", stays=False)
            while time.monotonic() - died < (HELD_S if stays == "inside" else DEAD_S):
                written.append(write(client, f"d{len(written)}"))
                time.sleep(0.1)
            late = max(until_begun(lives, each) - each[1] for each in written) / 1e9
            return late, until_begun(lives, again) / 1e9 - died


def node(server: MongoServer) -> float:
    """The longest time from a write to its handler, in s."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        client.drop_database(DATABASE)
        with served(server.uri) as process:
            until_begun(process, write(client, "first"))
            primary = server.primary()
            assert primary is not None
            strikes = threading.Timer(2, server.kill, (primary,))
            strikes.start()
            ends, written = time.monotonic() + NODE_S, list[tuple[str, int]]()
            while time.monotonic() < ends:
                written.append(write(client, f"d{len(written)}"))
                time.sleep(0.05)
            took = max(until_begun(process, each) - each[1] for each in written) / 1e9
        server.restart(primary)
    return took


def spread(taken: Sequence[float]) -> list[float]:
    """The least, the median and the most."""
    return [round(each, 1) for each in (min(taken), median(taken), max(taken))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=sized(100_000, 50))
    parser.add_argument("--rounds", type=int, default=sized(5, 1))
    parser.add_argument("--only", nargs="*", choices=ROWS, default=sized(ROWS, ("space",)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as", dest="uri", help=argparse.SUPPRESS)
    parser.add_argument("--lease", type=float, default=LEASE.total_seconds(), help=argparse.SUPPRESS)
    parser.add_argument("--holds", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.uri:
        asyncio.run(application(told.uri, timedelta(seconds=told.lease), holds=told.holds))
        return
    found: dict[str, Any] = {}
    with mongo() as server, MongoClient[dict[str, Any]](server.uri) as client:
        if "space" in told.only:
            found |= space(client, server.uri, told.documents)
        if "killed" in told.only:
            times = zip(*(killed(client, server.uri) for _ in range(told.rounds)), strict=True)
            found |= {
                f"{name}, s": spread(taken) for name, taken in zip(("run", "leader", "stopped"), times, strict=True)
            }
        if "deaths" in told.only:
            for lease, where, who in product((LEASE, DEFAULT), ("inside", "outside"), ("leads", "follows")):
                stays = "inside" if where == "inside" else True
                rounds = [dead(client, server.uri, stays, lease, leads=who == "leads") for _ in range(told.rounds)]
                others, own = zip(*rounds, strict=True)
                name = f"{where}, {who}, lease {lease.total_seconds():.0f} s"
                found |= {f"{name}, others, s": spread(others), f"{name}, its own, s": spread(own)}
                print(name, found[f"{name}, others, s"], found[f"{name}, its own, s"], file=sys.stderr, flush=True)
    if "node" in told.only:
        with MongoServer(nodes=3) as server:
            found["node, s"] = spread([node(server) for _ in range(told.rounds)])
    for name, figure in found.items():
        print(f"{name:<44}{figure if isinstance(figure, list) else round(figure, 1)}")
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        told.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
