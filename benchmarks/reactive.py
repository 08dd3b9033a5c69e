"""What an application of reactive tasks costs on a real MongoDB, beside a change stream written by hand.

    python -m benchmarks.reactive [--documents N] [--backlog N] [--rounds N] [--json FILE]

    tidegate   an app with one task, a handler that does nothing, and a debounce of 0, in one process
    bare       pymongo: a change stream, whose reader hands ids to as many tasks as the app has handlers at a time; each claims
               the document's record (find_one_and_update, upsert), does nothing, and writes that it is done (update_one).
               It keeps no position, compares nothing, renews nothing, and loses what is under way when it is killed.

    rate       N documents (10,000) are changed in bulk: how many a second, from the first change to the last handler
    latency    documents are changed one by one, at half of the rate of the slower one: from before the write to the handler
    backlog    so many records (100,000) are due: how many a second 1, 2, 4 and 8 processes of the app handle, from the first
               twentieth to the last, while one of them looks at every document; and the memory of the largest
    working    a tenth of that, and handlers that wait for 200 ms: one process has room for 250 a second

Contenders take turns, each in a process of its own; a figure is the median of its rounds, and a quotient that of each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import IO, Any, Final, Self, TypeAlias, cast

from benchmarks.smoke import mongo, sized
from pymongo import AsyncMongoClient, MongoClient, UpdateOne

from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.tasks import TaskRules
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.runtime.driver import choosing, documents, local, run

DATABASE: Final = "bench"
AT_A_TIME: Final = 50
LATENCIES: Final = sized(2_000, 20)
WATCHED: Final = ["at"]
WORK_S: Final = 0.2


# --- contenders, each in a process of its own ---------------------------------------------------------------------------


class Told:
    """What a contender tells: that it is ready, and how long after each write its handler was called."""

    def __init__(self, first: int, then: int) -> None:
        self.latencies: list[int] = []
        self._left, self._then, self._turn = first, then, asyncio.Event()

    def handled(self, written: int) -> None:
        self.latencies.append(time.monotonic_ns() - written)
        self._left -= 1
        if not self._left:
            self._turn.set()

    async def ready(self) -> None:
        """What is there at first is handled."""
        if self._left:
            await self._turn.wait()
        self.latencies, self._left = [], self._then
        self._turn.clear()
        print("ready", flush=True)

    async def end(self) -> None:
        """And so is what comes after that."""
        await self._turn.wait()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"ended": time.monotonic_ns(), "latencies": self.latencies, "kb": memory}), flush=True)


async def tidegate(uri: str, documents: int, expected: int, work_s: float = 0.0) -> None:
    told = Told(documents, expected)
    app = Reactive(uri, database=DATABASE, concurrency=AT_A_TIME)

    @app.task(collection="docs", watch=WATCHED, debounce=timedelta(0))
    async def handle(change: Change) -> None:
        if work_s:
            await asyncio.sleep(work_s)
        told.handled(change.values["at"])

    serving = asyncio.create_task(app.serve())
    await told.ready()
    await told.end()
    app.stop()
    await serving


async def bare(uri: str, _: int, expected: int) -> None:
    told = Told(0, expected)
    client = AsyncMongoClient[dict[str, Any]](uri)
    database = client[DATABASE]
    ids = asyncio.Queue[Any]()

    async def work(number: int) -> None:
        while True:
            key, written = await ids.get()
            owner = f"worker-{number}"
            claim = {"$set": {"state": "running", "owner": owner}, "$inc": {"token": 1}}
            await database.claims.find_one_and_update({"_id": key}, claim, upsert=True)
            told.handled(written)
            await database.claims.update_one({"_id": key, "owner": owner}, {"$set": {"state": "done"}})

    async def read() -> None:
        async for event in stream:
            await ids.put((event["documentKey"]["_id"], event["updateDescription"]["updatedFields"]["at"]))

    stream = await database.docs.watch([{"$project": {"documentKey": 1, "updateDescription.updatedFields.at": 1}}])
    tasks = [asyncio.create_task(work(number)) for number in range(AT_A_TIME)]
    tasks.append(asyncio.create_task(read()))
    await told.ready()
    await told.end()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


Contending: TypeAlias = Callable[[str, int, int], Coroutine[Any, Any, None]]
KINDS: Final[dict[str, Contending]] = {"tidegate": tidegate, "bare": bare}
CONTENDERS: Final = KINDS | {"working": partial(tidegate, work_s=WORK_S)}


# --- who asks them ------------------------------------------------------------------------------------------------------


class Contender:
    """A contender in a process of its own.

    Args:
        kind: Which.
        uri: Of the replica set.
        documents: How many there are already, which it may handle before it is ready.
        expected: How many changes it handles.
    """

    def __init__(self, kind: str, uri: str, documents: int, expected: int) -> None:
        argv = [sys.executable, "-m", "benchmarks.reactive", "--as", kind, uri, str(documents), str(expected)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self._out = cast("IO[str]", self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.terminate()
        self._process.wait()
        self._out.close()

    def ready(self) -> None:
        assert self._out.readline() == "ready\n", "the contender has ended"

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._out.readline())
        return found

    def memory_kb(self) -> int:
        """The most that it has had until now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

    def terminate(self) -> None:
        self._process.terminate()


def filled(client: MongoClient[dict[str, Any]], count: int) -> None:
    """Documents that the app does not know; whoever claims by hand has their records already, as the app has its own once it is ready."""
    client.drop_database(DATABASE)
    for begin in range(0, count, 10_000):
        numbers = range(begin, min(begin + 10_000, count))
        client[DATABASE].docs.insert_many([{"_id": n, "at": 0, "text": "x" * 400} for n in numbers])
        client[DATABASE].claims.insert_many(
            [{"_id": n, "state": "done", "owner": "nobody", "token": 0} for n in numbers]
        )


def rate(client: MongoClient[dict[str, Any]], uri: str, kind: str, count: int) -> float:
    """Documents a second."""
    filled(client, count)
    with Contender(kind, uri, count, count) as contender:
        contender.ready()
        began = time.monotonic_ns()
        for begin in range(0, count, 1_000):
            changes = [UpdateOne({"_id": n}, {"$set": {"at": began}}) for n in range(begin, min(begin + 1_000, count))]
            client[DATABASE].docs.bulk_write(changes, ordered=False)
        took: float = (contender.told()["ended"] - began) / 1e9
        return count / took


def latency(client: MongoClient[dict[str, Any]], uri: str, kind: str, a_second: float) -> tuple[float, float]:
    """p50 and p99, in ms, at that rate."""
    filled(client, LATENCIES)
    with Contender(kind, uri, LATENCIES, LATENCIES) as contender:
        contender.ready()
        began = time.monotonic()
        for number in range(LATENCIES):
            time.sleep(max(began + number / a_second - time.monotonic(), 0))
            client[DATABASE].docs.update_one({"_id": number}, {"$set": {"at": time.monotonic_ns()}})
        cuts = quantiles(contender.told()["latencies"], n=100)
    return cuts[49] / 1e6, cuts[98] / 1e6


def backlog(client: MongoClient[dict[str, Any]], uri: str, kind: str, processes: int, count: int) -> tuple[float, int]:
    """Records a second, and the memory of the largest process in kB."""
    filled(client, count)
    task = ReactiveTask(
        name="handle", source="docs", watched=Projection(tuple(WATCHED)), rules=TaskRules(debounce=Debounce(0))
    )
    handle = choosing(documents(Mongo(client, DATABASE, indexes=task.indexes)), local())
    for begin in range(0, count, 1_000):
        assert not run(task.plan_pass(tuple(range(begin, min(begin + 1_000, count))), f"fill-{begin}"), handle)
    records = client[DATABASE][task.records]
    is_left = {"task": task.name, "next_run_at": {"$exists": True}}

    with ExitStack() as stack:
        contenders = [stack.enter_context(Contender(kind, uri, count + 1, 1)) for _ in range(processes)]
        while records.find_one(is_left):  # by its index: no load beside them
            time.sleep(0.2)
        memory = max(each.memory_kb() for each in contenders)
        for each in contenders:
            each.terminate()
    ended = sorted(each["history"][-1]["at"] for each in records.find({}, {"history": {"$slice": -1}}))
    began, until = count // 20, count - count // 20
    return (until - began) / (ended[until] - ended[began]).total_seconds(), memory


class Found(dict[str, float]):
    """The figures; each is shown as soon as it is there."""

    def __setitem__(self, name: str, figure: float) -> None:
        super().__setitem__(name, figure)
        print(f"{name:<38}{figure:10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=sized(10_000, 50))
    parser.add_argument("--backlog", type=int, default=sized(100_000, 300))
    parser.add_argument("--rounds", type=int, default=sized(3, 1))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as", dest="contender", nargs=4, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.contender:
        kind, uri, documents_, expected = told.contender
        asyncio.run(CONTENDERS[kind](uri, int(documents_), int(expected)))
        return
    found = Found()
    with mongo() as server, MongoClient[dict[str, Any]](server.uri) as client:
        rates = [{kind: rate(client, server.uri, kind, told.documents) for kind in KINDS} for _ in range(told.rounds)]
        for kind in KINDS:
            found[f"{kind}, a second"] = median(each[kind] for each in rates)
        found["rate, x bare"] = median(each["tidegate"] / each["bare"] for each in rates)
        half = min(found[f"{kind}, a second"] for kind in KINDS) / 2
        found["latency at, a second"] = half
        for kind in KINDS:
            p50, p99 = zip(*(latency(client, server.uri, kind, half) for _ in range(told.rounds)), strict=True)
            found[f"{kind}, p50 ms"], found[f"{kind}, p99 ms"] = median(p50), median(p99)
        rows = (("tidegate", "backlog", told.backlog), ("working", "working", told.backlog // 10))
        for kind, name, count in rows[: sized(2, 1)]:
            for processes in sized((1, 2, 4, 8), (1,)):
                turns = [backlog(client, server.uri, kind, processes, count) for _ in range(told.rounds)]
                found[f"{name}, {processes} processes, a second"] = median(a_second for a_second, _ in turns)
                found[f"{name}, {processes} processes, MB"] = max(memory for _, memory in turns) / 1_000
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        told.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
