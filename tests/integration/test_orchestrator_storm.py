"""A storm over an orchestrator on a real replica set: processes are killed, or stop beyond their
heartbeats and resume. Clocks differ by up to half a minute (`orchestrator_member`), two versions
run, and primaries step down.

Every invocation ends. A successful one has one result, that of its last run. An instant of the cron
is one invocation. No limit is exceeded. Exclusive duties run on one process at a time, under
growing tokens.

A process presumed dead learns that with its next heartbeat. So a run, or a turn, counts until its
process may be presumed dead by its confirmed heartbeats.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from tests.integration.orchestrator_member import AT_MOST, DEAD_AFTER, Log, application
from tests.integration.servers import MongoServer
from tests.integration.storming import Processes
from tests.integration.test_mongo_failover import stepped_down
from tests.length import ORCHESTRATOR_STORM as STORM

from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND
from tidegate.retries.schedule import Missed, Schedule
from tidegate.triggers.conditions import OnCron, condition_id
from tidegate_adapters.orchestrator.services import PURGE, RECOVERY

MEMBER: Final = Path(__file__).with_name("orchestrator_member.py")
PATIENCE_S: Final = 120.0
STEP_DOWN_S: Final = 20.0
STILL_S: Final = DEAD_AFTER / SECOND + 1.0
AT_WORK_S: Final = 20.0
APART_S: Final = (0.0, 30.0, -30.0)
FINAL: Final = ("success", "failed")
EACH_SECOND: Final = OnCron(Schedule("* * * * * *", Missed.EACH))
ENDLESS: Final = ("tick", RECOVERY, PURGE)
Raw = dict[str, Any]


class Span(NamedTuple):
    """When a living process did something, in ns, and whether it ended well or was cut off."""

    began: int
    ended: int
    process: str
    number: int
    is_done: bool = True
    is_cut: bool = False


class Facts(NamedTuple):
    runs: dict[tuple[str, str], list[Span]]
    limited: dict[str, list[Span]]
    turns: list[Span]


class Line(NamedTuple):
    word: str
    more: tuple[str, ...]
    at: int


def facts(app: Processes) -> Facts:
    found = Facts(defaultdict(list), defaultdict(list), [])
    apart = time.time_ns() - time.monotonic_ns()
    for path in sorted(app.folder.glob("*.log")):
        lines = [Line(word, (*more,), int(at)) for word, *more, at in map(str.split, path.read_text().splitlines())]
        beats = [(int(each.more[0]), each.at) for each in lines if each.word == "alive"]
        last = app.killed.get(path.stem, time.monotonic_ns())
        ends = {each.more: each for each in lines if each.word in ("ended", "failed", "turned")}
        for word, more, at in lines:
            if word not in ("began", "turn"):
                continue
            key = more[1:3] if word == "began" else more
            end = ends.get(key, Line("failed", key, last))
            number = int(more[2] if word == "began" else more[0])
            since = at if word == "began" else int(more[2]) * 1_000 - apart
            until = min(end.at, alive_until(beats, since))
            span = Span(at, until, path.stem, number, end.word != "failed", key not in ends)
            if word == "turn":
                found.turns.append(span)
                continue
            task, id_, _, limit = more
            found.runs[task, id_].append(span)
            if task == "limited":
                found.limited[limit].append(span)
    return found


def alive_until(beats: Iterable[tuple[int, int]], since: int) -> int:
    """Until when no process may presume it dead, by its confirmed heartbeats."""
    until = since
    for sent, answered in beats:
        if answered > since and answered > until:
            break
        until = sent + DEAD_AFTER * 1_000
    return until


# --- judges -----------------------------------------------------------------------------------------------------------


def wrong(found: Facts, records: list[Raw], keys: set[str], pending: Iterable[datetime] = ()) -> Iterator[str]:
    """Instants of the cron may be `pending`: a process died in its turn."""
    there = {each["_id"]: each for each in records}
    yield from (f"{key} is lost" for key in keys - there.keys())
    for record in records:
        if record["task"] not in (RECOVERY, PURGE):
            yield from wrong_record(record, found.runs.get((record["task"], record["_id"]), []))
    for limit, runs in found.limited.items():
        yield from (f"{limit}: {each}" for each in too_many(runs, AT_MOST))
    turns = sorted(each for each in found.turns if each.ended > each.began)
    yield from (f"turns: {each}" for each in too_many(turns, 1))
    yield from (f"an older turn after {one}: {other}" for one, other in pairwise(turns) if one.number > other.number)
    fired = instants(records)
    for one, other in pairwise(sorted([*fired, *({*pending} - {*fired})])):
        if other - one != timedelta(seconds=1):
            yield f"the cron fired at {one}, and then at {other}"


def instants(records: list[Raw]) -> list[datetime]:
    told = [json.loads(each["arguments"]["instant"]) for each in records if each["task"] == "tick"]
    return sorted(map(datetime.fromisoformat, told))


def wrong_record(record: Raw, runs: list[Span]) -> Iterator[str]:
    key, runs = record["_id"], sorted(runs)
    yield from (f"{key}: {each}" for each in too_many(runs, 1))
    for one, other in pairwise(runs):
        if one.number >= other.number:
            yield f"{key}: version {other.number} runs after {one.number}"
    if record["status"] not in FINAL:
        if record["task"] not in ENDLESS:
            yield f"{key} has not ended: {record}"
        return
    if sum(each["status"] in FINAL for each in record["history"]) != 1:
        yield f"{key} has ended twice: {record['history']}"
    if record["status"] == "success":
        version = record["version"] - 1
        if json.loads(record["result"]) != f"{key} {version}":
            yield f"{key} has the result {record['result']} at version {version}"
        if [each.is_done for each in runs if each.number == version] != [True]:
            yield f"{key} has a result of no run: {runs}"
    elif record["tries"] <= 3:
        yield f"{key} has failed after {record['tries']} tries: {record['error']}"


def too_many(spans: Iterable[Span], most: int) -> Iterator[str]:
    going: list[Span] = []
    for each in sorted(spans):
        going = [other for other in going if other.ended > each.began]
        if each.ended > each.began:
            going.append(each)
        if len(going) > most:
            yield f"{len(going)} at one time: {going}"


# --- the storm --------------------------------------------------------------------------------------------------------


class Storm:
    def __init__(self, app: Processes, server: MongoServer, database: Any) -> None:
        self.app, self.server, self.database = app, server, database
        self.chance = random.Random(20_261_124)
        self.keys: set[str] = set()
        self.versions: dict[str, int] = {}
        self.told: list[str] = []
        uri, name, log = server.uri, database.name, Log(str(app.folder / "nobody.log"))
        self.client, self.tasks = application(uri, name, log, self.chance, 2)

    def start(self, version: int) -> str:
        ahead = APART_S[len(self.versions) % len(APART_S)]
        name = self.app.start(version, ahead)
        self.versions[name] = version
        return name

    async def enqueue(self) -> None:
        most = STORM.invocations // STORM.strikes // len(self.tasks)
        for task, each in self.tasks.items():
            numbers = range(len(self.keys), len(self.keys) + most)
            keys = [f"{task}-{number}" for number in numbers]
            calls = [(f"of-{number % 3}",) if task == "limited" else () for number in numbers]
            while True:
                with suppress(TidegateError):
                    await each.enqueue_many(calls, keys=keys)
                    break
            self.keys |= {*keys}

    async def strike(self) -> None:
        for number in range(STORM.strikes):
            await asyncio.sleep(self.chance.uniform(0.2, STORM.pause_s))
            await self.enqueue()
            self.app.check()
            if number % 3 == 1:
                name = self.chance.choice(sorted(self.app.processes))
                await self.app.stand_still(name, STILL_S)
                self.told.append(f"{name} stood still")
            else:
                self.told.append(f"killed {await self.kill()}, started {self.start(1 + number % 2)}")

    async def kill(self) -> str:
        limit = time.monotonic() + AT_WORK_S
        while True:
            name = self.chance.choice(sorted(self.app.processes))
            if await self.app.kill_at_work(name):
                return name
            if time.monotonic() > limit:
                await self.app.kill(name)
                return name
            await asyncio.sleep(0.005)

    async def step_down(self) -> None:
        while STORM.nodes > 1:
            await asyncio.sleep(STEP_DOWN_S)
            await asyncio.to_thread(stepped_down, self.server)
            self.told.append("the primary stepped down")

    async def calm(self) -> None:
        later = {
            "task": {"$in": ENDLESS},
            "created_at": {"$gte": datetime.now(UTC)},
        }  # on the store's clock
        limit, left, most = time.monotonic() + PATIENCE_S, [Raw()], 0
        while left:
            self.app.check()
            with suppress(PyMongoError):
                left = await self.records.find({"status": {"$nin": FINAL}, "$nor": [later]}).to_list(3)
                ended = await self.records.count_documents({"status": {"$in": FINAL}, "task": {"$nin": ENDLESS}})
                if ended > most:
                    limit, most = time.monotonic() + PATIENCE_S, ended
            assert time.monotonic() < limit, "\n".join([*self.told, f"not ended: {left}"])
            await asyncio.sleep(0.3)

    @property
    def records(self) -> Any:
        return self.database.orchestrator_invocations

    async def pass_over(self) -> None:
        for number in range(STORM.processes):
            self.start(1 + number % 2)
        stepping = asyncio.create_task(self.step_down())
        try:
            await self.strike()
            if 2 not in {self.versions[name] for name in self.app.processes}:
                self.start(2)
            await self.calm()
        finally:
            stepping.cancel()
            await asyncio.wait({stepping})
        for name in sorted(self.app.processes):
            await self.app.end(name)


async def weathered(app: Processes, server: MongoServer, database: str) -> tuple[Storm, list[Raw], list[datetime]]:
    async with AsyncMongoClient[Raw](server.uri, tz_aware=True) as client:
        storm = Storm(app, server, client[database])
        try:
            await storm.pass_over()
        finally:
            await storm.client.close()
        cell = await storm.database.orchestrator_crons.find_one({"_id": condition_id(EACH_SECOND)})
        assert cell is not None
        return storm, await storm.records.find().to_list(), cell["pending"]


def test_every_invocation_ends_once_in_a_storm(tmp_path: Path) -> None:
    database = f"storm-{uuid.uuid4().hex[:8]}"
    with MongoServer(nodes=STORM.nodes) as server:
        app = Processes(MEMBER, tmp_path, server.uri, database)
        try:
            storm, records, pending = asyncio.run(weathered(app, server, database))
        finally:
            app.close()
    found = facts(app)

    lines = [*wrong(found, records, storm.keys, pending)]
    about = [app.story(word.rstrip(":")) for word, *_ in map(str.split, lines[:1])]
    assert not lines, "\n".join([*storm.told, f"{len(lines)} wrong", *lines[:5], *about])
    old = {name for name, version in storm.versions.items() if version == 1}
    assert not [run for (task, _), runs in found.runs.items() for run in runs if task == "novel" and run.process in old]
    statuses = Counter((each["task"], each["status"]) for each in records)
    runs = [run for each in found.runs.values() for run in each]
    cut = sum(each.is_cut for each in runs)
    print(f"{dict(statuses)}, {len(runs)} runs, {cut} cut off, {len(found.turns)} rounds; {len(storm.told)} strikes")
    assert cut, "no kill has struck a run: nothing was recovered"
    assert len(found.turns) > STORM.strikes // 2
    assert len(instants(records)) > STORM.strikes * 0.2
    assert sum("stood still" in each for each in storm.told) == len(range(1, STORM.strikes, 3))
    assert any("stepped down" in each for each in storm.told) == (STORM.nodes > 1)


# --- the test ---------------------------------------------------------------------------------------------------------

KEY: Final = "single-0"
RECORD: Final[Raw] = {
    "_id": KEY, "task": "single", "status": "success", "version": 4, "tries": 1, "result": f'"{KEY} 3"', "error": None,
    "history": [{"status": "pending"}, {"status": "running"}, {"status": "success"}],
}  # fmt: skip
RUN: Final = Span(10, 20, "a", 3)
TICKS: Final[list[Raw]] = [
    RECORD | {"_id": f"tick-{at}", "task": "tick", "status": "running", "arguments": {"instant": f'"2026-11-24T00:00:0{at}+00:00"'}} for at in range(3)
]  # fmt: skip


def judged(
    *,
    records: tuple[Raw, ...] = (RECORD,), runs: tuple[Span, ...] = (RUN,), limited: tuple[Span, ...] = (), turns: tuple[Span, ...] = (),
    pending: tuple[datetime, ...] = (),
) -> list[str]:  # fmt: skip
    return [*wrong(Facts({("single", KEY): [*runs]}, {"of": [*limited]}, [*turns]), [*records], {KEY}, pending)]


def test_what_is_as_it_should_be_is_not_wrong() -> None:
    failed = RECORD | {"status": "failed", "tries": 4, "history": [{"status": "failed"}]}
    turns = (Span(1, 2, "a", 1), Span(2, 3, "b", 1), Span(3, 4, "a", 2))
    assert not judged(records=(RECORD, *TICKS), limited=(RUN, RUN), turns=turns)
    assert not judged(records=(RECORD, *TICKS[::2]), pending=tuple(instants(TICKS[1:2])))
    assert not judged(records=(failed,), runs=(Span(1, 2, "a", 1, is_done=False), Span(2, 3, "b", 2, is_done=False)))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (judged(records=()), "is lost"),
        (judged(runs=(RUN, Span(15, 25, "b", 4))), "2 at one time"),
        (judged(runs=(RUN, Span(30, 40, "b", 3))), "version 3 runs after 3"),
        (judged(records=(RECORD | {"status": "running"},)), "has not ended"),
        (judged(records=(RECORD | {"history": 2 * RECORD["history"]},)), "has ended twice"),
        (judged(records=(RECORD | {"result": f'"{KEY} 2"'},)), "has the result"),
        (judged(runs=()), "a result of no run"),
        (judged(runs=(Span(10, 20, "a", 3, is_done=False),)), "a result of no run"),
        (judged(records=(RECORD | {"status": "failed", "tries": 3},)), "has failed after 3 tries"),
        (judged(limited=3 * (RUN,)), "of: 3 at one time"),
        (judged(turns=(RUN, Span(15, 25, "b", 3))), "turns: 2 at one time"),
        (judged(turns=(RUN, Span(30, 40, "b", 2))), "an older turn"),
        (judged(records=(RECORD, *TICKS[::2])), "the cron fired at"),
        (judged(records=(RECORD, *TICKS[::2]), pending=tuple(instants(TICKS[2:]))), "the cron fired at"),
        (judged(records=(RECORD, *TICKS, TICKS[0] | {"_id": "another"})), "the cron fired at"),
    ],
)
def test_what_must_not_be_is_told(found: list[str], says: str) -> None:
    assert any(says in each for each in found)
