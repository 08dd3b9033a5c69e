"""A storm over reactive tasks on a real replica set. Processes, leaders among them, are killed or
stop beyond a lease, the stream's history is lost, and a new version runs beside the old one.

Each final state is handled, and no record stays open. Handlers of a document do not overlap, except
that of a stopped process: it ends once it resumes, and its successor waits for the lease. Tokens
grow. One task fails often within limited attempts; an operator retries what it gives up.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
import uuid
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs
from pymongo import AsyncMongoClient
from pymongo.errors import DuplicateKeyError
from tests.integration.reactive_member import ATTEMPTS_MAX, LEASE, application
from tests.integration.servers import MongoServer
from tests.integration.servers.processes import wait_until
from tests.integration.storming import Processes
from tests.length import REACTIVE_STORM

from tidegate.reactive.record.record_queries import Query
from tidegate.reactive.record.task_records import TaskStatus
from tidegate_adapters.base.cancellation import ended
from tidegate_adapters.reactive.admin import Office

MEMBER: Final = Path(__file__).with_name("reactive_member.py")
PATIENCE_S: Final = 60.0
STILL_S: Final = LEASE.total_seconds() + 4
STRUCK: Final = 3
"""Handlers a process runs at least when it stops; one may end just before."""
GOES_ON_S: Final = 1.0
CLAIMED_S: Final = 1.0
TASKS: Final = ("first", "second", "limited")
Key = tuple[str, str]


class Work(NamedTuple):
    """A run of a handler; it "ended", "failed", or its process was "killed" then, in ns."""

    began: int
    ended: int
    token: int
    value: int
    how: str
    name: str

    @property
    def is_done(self) -> bool:
        return self.how == "ended"


class Application(Processes):
    def __init__(self, folder: Path, uri: str, database: str) -> None:
        super().__init__(MEMBER, folder, uri, database)
        self.uri, self.database = uri, database
        self.retried = Counter[str]()

    def work(self) -> dict[Key, list[Work]]:
        found: dict[Key, list[Work]] = defaultdict(list)
        for log in self.folder.glob("*.log"):
            begun: dict[tuple[str, str, str], tuple[int, int]] = {}
            for line in log.read_text().splitlines():
                word, task, key, *numbers = line.split()
                if word == "began":
                    value, token, began = numbers
                    begun[task, key, token] = int(began), int(value)
                else:
                    token, ended = numbers
                    began_at, said = begun.pop((task, key, token))
                    found[task, key].append(Work(began_at, int(ended), int(token), said, word, log.stem))
            for (task, key, token), (began_at, said) in begun.items():
                found[task, key].append(
                    Work(began_at, self.killed.get(log.stem, time.monotonic_ns()), int(token), said, "killed", log.stem)
                )
        return {key: sorted(works) for key, works in found.items()}


async def write(database: Any, number: int, values: itertools.count[int]) -> None:
    chance = random.Random(number)
    for _ in range(REACTIVE_STORM.changes // REACTIVE_STORM.writers):
        key = f"d{chance.randrange(REACTIVE_STORM.documents)}"
        if chance.random() < 0.01:
            await database.docs.delete_one({"_id": key})
        else:
            with suppress(DuplicateKeyError):  # two made it at one time
                await database.docs.update_one({"_id": key}, {"$set": {"n": next(values)}}, upsert=True)
        await asyncio.sleep(chance.expovariate(REACTIVE_STORM.rate / REACTIVE_STORM.writers))


async def strike(app: Application, database: Any, server: MongoServer, chance: random.Random) -> list[str]:
    told = list[str]()
    for number in range(REACTIVE_STORM.strikes):
        await asyncio.sleep(chance.uniform(0.3, REACTIVE_STORM.pause_s))
        app.check()
        version = 1 if number < REACTIVE_STORM.strikes // 2 else 2
        name = chance.choice(sorted(app.processes))
        if number % 3 == 1:
            name = await leading(app, database)
            told.append("the leader:")
        if number % 5 == 4:
            await app.stand_still(name, STILL_S)
            told.append(f"{name} stood still")
        else:
            await app.kill(name)
            told.append(f"killed {name}, started {app.start(version, 'limited')} of version {version}")
        if number == REACTIVE_STORM.strikes // 3:
            while not await lost(database):  # the leader, or any other
                with server.fail("getMore", times=1, errorCode=286):
                    await asyncio.sleep(0.3)
            told.append("the history is lost")
    return told


async def stand_still_in_calm(app: Application, database: Any, values: itertools.count[int]) -> None:
    for name in sorted(app.processes)[: REACTIVE_STORM.stills]:
        limit = time.monotonic() + PATIENCE_S
        while app.under_way(name) < STRUCK:
            assert time.monotonic() < limit, f"{name} does nothing"
            for number in range(20):
                await database.docs.update_one({"_id": f"d{number}"}, {"$set": {"n": next(values)}}, upsert=True)
        await app.stand_still(name, STILL_S)


async def operate(app: Application, database: Any) -> None:
    member = application(app.uri, app.database, "operator", str(app.folder / "operator"), 2, is_limited=True)
    meant = Query(tasks=("limited",), statuses=frozenset({TaskStatus.FAILED}))
    async with member.connected() as sites:
        office = Office(each.at(sites[app.database]) for each in member.declared.values())
        while True:
            await asyncio.sleep(0.7)
            found = await database.docs_tasks.find({"task": "limited", "status": "failed"}).to_list()
            assert all(each["attempts"] >= ATTEMPTS_MAX for each in found), found
            app.retried.update(each["document"] for each in found)
            if found:
                _ = await office.retry(attrs.evolve(meant, documents=tuple(each["document"] for each in found)))


async def lost(database: Any) -> bool:
    stream = await database.tidegate_streams.find_one({"_id": "reactive"})
    return bool(stream and stream["history"])


async def leader(app: Application, database: Any) -> str | None:
    lease = await database.tidegate_leases.find_one({"_id": "reactive"}) or {}
    pids = {str(pid): name for name, pid in app.processes.items()}
    return next((pids[part] for part in str(lease.get("holder", "")).split(":") if part in pids), None)


async def leading(app: Application, database: Any) -> str:
    limit = time.monotonic() + PATIENCE_S
    while (name := await leader(app, database)) is None:
        assert time.monotonic() < limit, "nobody leads"
        await asyncio.sleep(0.1)
    return name


async def calm(app: Application, database: Any, tasks: tuple[str, ...]) -> dict[str, int]:
    limit, most = time.monotonic() + PATIENCE_S, -math.inf
    while True:
        app.check()
        said = {doc["_id"]: doc["n"] async for doc in database.docs.find()}
        there = Counter[str]()
        undone = list[Any]()
        async for record in database.docs_tasks.find():
            if record["status"] != "completed":
                undone.append(record)
            elif record.get("snapshot", {}).get("n") == said.get(record["document"]):
                there[record["task"]] += 1
        if not undone and all(there[task] >= len(said) for task in tasks):
            return said
        if (done := there.total() - len(undone)) > most:
            limit, most = time.monotonic() + PATIENCE_S, done
        assert time.monotonic() < limit, f"{there} of {len(said)}, undone: {len(undone)}: {undone[:3]}"
        await asyncio.sleep(0.5)


def stood_still(app: Application, before: Work, after: Work) -> bool:
    """Whether a stopped process explains the overlap: it ended on resuming, after the lease."""
    return after.began - before.began > (LEASE.total_seconds() - CLAIMED_S) * 1e9 and any(
        before.name == name and before.began <= to and since <= before.ended <= to + GOES_ON_S * 1e9
        for name, since, to in app.stood
    )


def wrong(app: Application, found: dict[Key, list[Work]], said: dict[str, int], tasks: tuple[str, ...]) -> list[str]:
    lines = list[str]()
    for task, (key, value) in itertools.product(tasks, said.items()):
        if not any(work.is_done and work.value == value for work in found.get((task, key), ())):
            lines.append(f"{key} says {value}, and {task} never handled that")
    for at, works in found.items():
        for before, after in itertools.pairwise(works):
            if before.ended > after.began and not stood_still(app, before, after):
                lines.append(f"{at}: two at one time: {before}, {after}")
            if before.token >= after.token:
                lines.append(f"{at}: no higher token: {before}, {after}")
    for (task, key), works in found.items():
        failed = Counter(work.value for work in works if work.how == "failed")
        lost = Counter(work.value for work in works if work.how == "killed")
        for value, times in failed.items() if task == "limited" else ():
            if times > ATTEMPTS_MAX * (1 + app.retried[key]) + lost[value]:
                lines.append(
                    f"{key}: {times} attempts for {value}, and it was retried {app.retried[key]} times: {works}"
                )
    return lines


async def weathered(app: Application, server: MongoServer) -> tuple[dict[str, int], list[str]]:
    client = AsyncMongoClient[dict[str, Any]](server.uri)
    try:
        database = client[app.database]
        for _ in range(REACTIVE_STORM.processes):
            app.start(1, "limited")
        operating = asyncio.create_task(operate(app, database))
        values = itertools.count(1)
        writing = [asyncio.create_task(write(database, each, values)) for each in range(REACTIVE_STORM.writers)]
        strikes = await strike(app, database, server, random.Random(20_261_124))
        await asyncio.gather(*writing)
        for name in sorted(app.processes):  # no old version is left
            await app.end(name)
            app.start(2, "limited")
        _ = await calm(app, database, TASKS)
        await stand_still_in_calm(app, database, values)
        said = await calm(app, database, TASKS)
        _ = await ended({operating}, PATIENCE_S)
        if operating.done() and not operating.cancelled():
            operating.result()
        for name in sorted(app.processes):
            await app.end(name)
        return said, strikes
    finally:
        await client.close()


def test_what_documents_say_is_handled_in_a_storm(disposable_mongod: MongoServer, tmp_path: Path) -> None:
    app = Application(tmp_path, disposable_mongod.uri, f"storm-{uuid.uuid4().hex[:8]}")
    try:
        said, strikes = asyncio.run(weathered(app, disposable_mongod))
    finally:
        app.close()
    found = app.work()
    lines = wrong(app, found, said, TASKS)
    assert not lines, "\n".join([*strikes, f"{len(lines)} wrong", *lines[:5]])
    assert app.retried, "nothing was given up"
    runs = sum(map(len, found.values()))
    killed = sum(not work.is_done for works in found.values() for work in works)
    again = app.retried.total()
    outlived = sum(
        before.ended > after.began for works in found.values() for before, after in itertools.pairwise(works)
    )
    assert outlived or not REACTIVE_STORM.stills, "no process stood still at its work"
    print(
        f"{len(said)} documents, {runs} runs, {killed} failed or killed, {again} given up, {outlived} outlived; {len(strikes)} strikes"
    )


async def deployed(app: Application, server: MongoServer, documents: int) -> None:
    client = AsyncMongoClient[dict[str, Any]](server.uri)
    try:
        database = client[app.database]
        await database.docs.insert_many([{"_id": f"d{each}", "n": each} for each in range(documents)])
        old = app.start(1)
        await calm(app, database, ("first",))
        new = app.start(2)
        await asyncio.sleep(1)  # the old version leads, without the other task
        await database.docs.update_one({"_id": "d0"}, {"$set": {"n": documents}})
        await calm(app, database, ("first",))
        assert not await database.docs_tasks.count_documents({"task": "second"})
        await app.end(old)
        await calm(app, database, ("first", "second"))
        back = app.start(1)
        await app.end(new)
        await database.docs.update_one({"_id": "d1"}, {"$set": {"n": documents + 1}})
        await handled(app, ("first", "d1"), documents + 1)
        await app.end(back)
    finally:
        await client.close()


async def handled(app: Application, key: Key, value: int) -> None:
    def is_done() -> bool:
        return any(work.is_done and work.value == value for work in app.work().get(key, ()))

    await asyncio.to_thread(wait_until, is_done, f"the run of {key} for {value}", PATIENCE_S)


def test_a_new_version_does_again_once_what_its_policy_says(disposable_mongod: MongoServer, tmp_path: Path) -> None:
    documents = 60
    app = Application(tmp_path, disposable_mongod.uri, f"deploy-{uuid.uuid4().hex[:8]}")
    try:
        asyncio.run(deployed(app, disposable_mongod, documents))
    finally:
        app.close()
    done = Counter((key, work.value) for key, works in app.work().items() for work in works if work.is_done)
    said = {f"d{each}": each for each in range(documents)}
    expected = Counter({(("first", key), value): 2 for key, value in said.items()})  # by each version
    expected[("first", "d0"), 0] = 1  # it had changed before the new one began to lead
    expected[("first", "d0"), documents] = 2
    expected[("first", "d1"), documents + 1] = 1
    expected.update({(("second", key), documents if key == "d0" else value): 1 for key, value in said.items()})
    assert done == expected
