"""What an orchestrator costs on a real MongoDB, beside the same by hand and beside others, all in one run, as ratios.

    python -m benchmarks.orchestrator [--waiting N] [--seconds S] [--kept N] [--rounds N] [--only ROW ...] [--json FILE]

    claims     1, 2, 4 and 8 workers, each a process, take of one queue of N invocations (100,000) for S seconds (2) and end none:
               how many a second, with how many commands each, what each takes of the processor, in a worker and in the server,
               and how many cores are busy meanwhile
    kept       so many (1,000,000) that have ended are kept: claims of one worker, a look that finds nothing, and a pass that
               recovers 1,000 whose process has died, beside the same with none; what the plans of their finds read
    ends       an app with a handler that does nothing, in 1 process and in 4: invocations a second, and what each takes
    latency    from before `enqueue` in one process to the handler in another: idle, ten a second; and at half of what the two can
               do, which is seen beforehand, with twenty enqueues at a time
    stale      taskiq-mongodb deletes a message by its id alone: of 10 whose first holder stood still beyond the time-out, and
               acknowledges once others hold them, which then die, so many are left

Contenders take turns; a figure is the median of its rounds, and a quotient that of each round: how many times as fast ours is, and
how many times less it takes of the processor, which is told apart for where others use the machine, too. Queues are filled with copies of
an invocation that the contender has enqueued, or of one that has ended, by its own hand.

    bare       claims: `find_one_and_update` with a sort, an invocation at a time, on our records with our indexes. Ends: the
               commands that cannot be avoided, for a hundred at a time: a find of what is due, a bulk that takes them, a bulk that
               ends them. It renews nothing, counts no try, keeps no history
    again      ends: all that each of our processes has sent for as many, each command as it was, once more to the same queue:
               what cannot be avoided of what it does do: history, tries, owners and versions included
    taskiq     taskiq-mongodb 0.1.0 with taskiq 0.12.6, the last that it can be imported with: its broker's `listen`
    pynenc     pynenc 0.3.1 with pynenc-mongo 0.3.0: what its runners take by, and its runner whose workers never sleep. With
               pynenc 0.4.0, which is tried first, its broker cannot be made. Its queue has 10,000, for it takes some hundreds
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, NamedTuple, TypeAlias, cast, final
from uuid import uuid4

import bson
from benchmarks.environments import Environment
from benchmarks.orchestrator.contenders.tally import Counted, say, window
from benchmarks.smoke import mongo, sized
from pymongo import AsyncMongoClient, MongoClient, UpdateOne
from pymongo.collection import Collection
from pymongo.monitoring import CommandListener, CommandStartedEvent
from pymongo.write_concern import WriteConcern

from tidegate.invocations.queue.fetching import Takeable, Taker
from tidegate.invocations.record.jobs import DEFAULT_QUEUE
from tidegate.invocations.upkeep.recoverer import Recoverer
from tidegate.model.instants import MINUTE
from tidegate.services.members import join
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.orchestrator import Orchestrator, Task
from tidegate_adapters.runtime.driver import choosing, documents, local, run

Client: TypeAlias = MongoClient[dict[str, Any]]
Figures: TypeAlias = Iterator[tuple[str, float]]

DATABASE: Final = "bench"
RECORDS: Final = "orchestrator_invocations"
MEMBERS: Final = "orchestrator_members"
SCRIPTS: Final = Path(__file__).parent / "contenders"
BATCH: Final = 100
STUCK: Final = 1_000
TAKE_S: Final = sized(2.0, 0.1)
SERVE_S: Final = 4.0
ENDS: Final = 20_000
PROCESSES: Final = (1, 4)
WORKERS: Final = sized((1, 2, 4, 8), (1,))
IDLE: Final = 10.0
LATENCIES: Final = 200
FLOOD: Final = 2_000
AT_ONCE: Final = 20
DUE: Final = {"queue": DEFAULT_QUEUE, "due": {"$exists": True}}
URGENT: Final = [("tenant", -1), ("priority", -1), ("due", 1)]


# --- contenders, each in a process of its own ---------------------------------------------------------------------------


def app_of(uri: str, database: str = DATABASE) -> tuple[Orchestrator, Task[[int], None]]:
    app = Orchestrator(uri, database)

    @app.task()
    async def work(at: int) -> None:
        if at:
            print(time.monotonic_ns() - at, flush=True)

    return app, work


def taker_of(runner: str) -> Taker:
    return Taker(runner=runner, queues=(DEFAULT_QUEUE,), tasks=(Takeable("work"),), records=RECORDS)


def enqueues(uri: str, database: str, _seconds: float) -> None:
    """One, and the indexes."""
    _, work = app_of(uri, database)
    _ = work.enqueue_sync(0)


def takes(uri: str, database: str, seconds: float) -> None:
    counted, taken = Counted(), 0
    with Client(uri, event_listeners=[counted]) as client:
        handle, taker = choosing(documents(Mongo(client, database)), local()), taker_of(uuid4().hex)
        factor = 1
        until = window(seconds)
        while time.monotonic() < until:
            found = run(taker.take(BATCH, factor), handle)
            taken += len(found.runs)
            if not found.runs and not found.lost:
                break
            factor = min(2 * factor, 8) if found.lost else 1
        say(taken, counted.number)


def takes_bare(uri: str, database: str, seconds: float) -> None:
    counted, taken = Counted(), 0
    with Client(uri, event_listeners=[counted]) as client:
        records, me = client[database].get_collection(RECORDS, write_concern=WriteConcern("majority")), uuid4().hex
        begun = {"$set": {"status": "running", "owner": me}, "$unset": {"due": 1}, "$inc": {"version": 1}}
        until = window(seconds)
        while time.monotonic() < until and records.find_one_and_update(DUE, begun, sort=URGENT) is not None:
            taken += 1
        say(taken, counted.number)


def serves(uri: str, database: str, _seconds: float) -> None:
    app, _ = app_of(uri, database)
    app.run()


def serves_bare(uri: str, database: str, _seconds: float) -> None:
    with Client(uri) as client:
        records, me = client[database].get_collection(RECORDS, write_concern=WriteConcern("majority")), uuid4().hex
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


@final
class Sent(CommandListener):
    """Keeps the commands that are sent, without what belongs to the session that sent them."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("find", "aggregate", "update", "insert", "delete", "findAndModify"):
            told = {name: value for name, value in event.command.items() if name[0] != "$" and name not in OF_SESSIONS}
            self.commands.append(bson.decode(bson.encode(told)))

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


OF_SESSIONS: Final = ("lsid", "txnNumber", "maxTimeMS", "maxAwaitTimeMS")


def serves_told(uri: str, database: str, _seconds: float) -> None:
    """The app, and then what it has sent."""

    async def serve() -> None:
        sent = Sent()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[sent]) as client:
            app, _ = app_of(cast("Any", client), database)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop)
            await app.serve()
        kept = Path(tempfile.gettempdir()) / f"tidegate-{database}.{os.getpid()}.commands"
        _ = kept.write_bytes(b"".join(map(bson.encode, sent.commands)))

    asyncio.run(serve())


def serves_again(uri: str, database: str, _seconds: float) -> None:
    """All that a process of the app has sent, one after the other, by the bare driver; streams are left out."""
    commands = bson.decode_all(commands_of(database).read_bytes())
    some = [each for each in commands if "$changeStream" not in str(each.get("pipeline", ""))]
    with Client(uri) as client:
        _ = window(0)
        for each in some:
            _ = client[database].command(each)
        say(len(some), len(some))


def commands_of(database: str) -> Path:
    """Those of a process that nobody else sends again."""
    for path in Path(tempfile.gettempdir()).glob(f"tidegate-{database}.*.commands"):
        with suppress(FileNotFoundError):  # another one has it
            return path.rename(path.with_suffix(".again"))
    raise SystemExit("there is nothing to be sent again")


KINDS: Final[dict[str, Callable[[str, str, float], None]]] = {
    "enqueue": enqueues, "takes": takes, "serves": serves,
    "told": serves_told, "again": serves_again,
    "bare enqueue": enqueues, "bare takes": takes_bare, "bare serves": serves_bare,
}  # fmt: skip


class Spent(NamedTuple):
    """What contenders and the server have taken of the processor, in µs."""

    theirs: float
    server: float


class Claims(NamedTuple):
    """What one turn has come to: claims a second, commands a claim, what each takes of the processor, and how many cores are busy."""

    a_second: float
    commands: float
    worker_us: float
    server_us: float
    cores: float


class Ends(NamedTuple):
    """Likewise of ends."""

    a_second: float
    worker_us: float
    server_us: float


@final
class Contender(NamedTuple):
    """Who is measured.

    Attributes:
        name: What it is called in the table.
        script: Which of those beside this one; none for a kind of this one.
        queue: Of an invocation, the collections that it is in, by how their names end, and what is another one in each.
        done: Where those are that have ended, likewise.
        waiting: How many its queue has at most.
        environment: Where it runs.
    """

    name: str
    script: str
    queue: tuple[tuple[str, str], ...] = ((RECORDS, "_id"),)
    done: str = RECORDS
    waiting: int = 1_000_000
    environment: Environment = Environment("tidegate")

    def argv(self, kind: str, uri: str, database: str, number: float = TAKE_S) -> list[str]:
        """Of a process of it; the number is of seconds, or of workers, where a script serves."""
        if self.script:
            script = str(SCRIPTS / f"{self.script}.py")
            return [str(self.environment.interpreter), script, kind, uri, database, f"{number:g}"]
        who = kind if self is OURS else f"{self.name} {kind}"
        return [sys.executable, "-m", "benchmarks.orchestrator", "--as", who, uri, database, f"{number:g}"]

    def is_there(self, uri: str) -> bool:
        """Whether it can be run; if not, it is told why."""
        if (why := self.environment.made()) is None:
            argv = self.argv("enqueue", uri, DATABASE)
            if not (tried := subprocess.run(argv, capture_output=True, text=True, check=False)).returncode:
                return True
            why = tried.stderr.strip().splitlines()[-1]
        print(f"  {self.environment.name} is left out: {why}", flush=True)
        return False


_PYNENC: Final = (
    ("broker_message_queue", "invocation_id"),
    ("orchestrator_invocations", "invocation_id"),
    ("state_backend_invocations", "invocation_id"),
)


def pynenc(version: str) -> Contender:
    environment = Environment(f"pynenc-{version}", (f"pynenc=={version}", "pynenc-mongo==0.3.0"), "python3.12")
    return Contender("pynenc", "pynenc_", _PYNENC, waiting=10_000, environment=environment)


OURS: Final = Contender("tidegate", "")
BARE: Final = Contender("bare", "")
TASKIQ: Final = Contender(
    "taskiq", "taskiq_", (("taskiq_messages", ""),),
    environment=Environment("taskiq-mongodb", ("taskiq-mongodb==0.1.0", "taskiq==0.12.6")),
)  # fmt: skip
PYNENC: Final = (pynenc("0.4.0"), pynenc("0.3.1"))


# --- who asks them ------------------------------------------------------------------------------------------------------


@contextmanager
def contenders(
    some: Contender, kind: str, uri: str, number: int, *, database: str = DATABASE, told: float = TAKE_S
) -> Iterator[list[subprocess.Popen[str]]]:
    """So many processes of it."""
    argv, errors = some.argv(kind, uri, database, told), subprocess.DEVNULL if some.script else None
    running = [
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        for _ in range(number)
    ]
    try:
        yield running
    finally:
        for each in running:
            each.terminate()
        for each in running:
            try:
                _ = each.communicate(timeout=10)
            except subprocess.TimeoutExpired:  # pynenc's workers may outlive it
                os.killpg(each.pid, signal.SIGKILL)
                _ = each.communicate()


def filled(client: Client, uri: str, some: Contender, count: int, database: str = DATABASE) -> None:
    """So many that are due."""
    client.drop_database(database)
    _ = subprocess.run(some.argv("enqueue", uri, database), check=True)
    copied(client, some, min(count, some.waiting), database)


def copied(client: Client, some: Contender, count: int, database: str) -> None:
    """So many besides the first one in its queue."""
    keys = [uuid4().hex for _ in range(count - 1)]
    for ends, key in some.queue:
        (name,) = (each for each in client[database].list_collection_names() if each.endswith(ends))
        doc = cast("dict[str, Any]", client[database][name].find_one({}, sort=[("due", -1)]))
        inserted(client[database][name], doc, key, keys)


def inserted(records: Collection[dict[str, Any]], doc: dict[str, Any], key: str, keys: list[str]) -> None:
    """Copies of it with these keys, wherever it says its own, each a little older than the next."""
    times = {name: value for name, value in doc.items() if isinstance(value, datetime)}
    same = {name: value for name, value in doc.items() if name != "_id"}
    own = str(doc.get(key))
    told = json.dumps({name: value for name, value in same.items() if isinstance(value, list) and own in str(value)})
    for start in range(0, len(keys), 10_000):
        some = []
        for at, each in enumerate(keys[start : start + 10_000], start):
            before = timedelta(milliseconds=len(keys) - at)
            older = {name: value - before for name, value in times.items()}
            some.append(same | older | ({key: each, **json.loads(told.replace(own, each))} if key else {}))
        _ = records.insert_many(some, ordered=False)


def busy() -> tuple[int, int]:
    """Jiffies that any core was busy, and all."""
    told = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return sum(told) - told[3] - told[4], sum(told)


def spent(client: Client, running: list[subprocess.Popen[str]]) -> Spent:
    """Of the processor, in µs, until now: by these and all that they have started, and by the server."""
    sessions, ticks = {each.pid for each in running}, 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            ticks += (int(fields[11]) + int(fields[12])) * (int(fields[3]) in sessions)
    server = client.admin.command("serverStatus")["extra_info"]
    return Spent(ticks / os.sysconf("SC_CLK_TCK") * 1e6, server["user_time_us"] + server["system_time_us"])


def claims(
    client: Client, uri: str, some: Contender, workers: int, *, seconds: float, database: str = DATABASE
) -> Claims:
    """One turn of a contender."""
    with contenders(some, "takes", uri, workers, database=database, told=seconds) as running:
        for each in running:
            assert cast("Any", each.stdout).readline() == "ready\n"
        began, cores, cost = time.monotonic(), busy(), spent(client, running)
        for each in running:
            cast("Any", each.stdin).write("\n")
            cast("Any", each.stdin).flush()
        told = [json.loads(cast("Any", each.stdout).readline()) for each in running]
        after, cost_after = busy(), spent(client, running)
    taken = sum(each for each, _, _ in told)
    took = max(ended for _, _, ended in told) - began
    return Claims(
        a_second=taken / took,
        commands=sum(commands for _, commands, _ in told) / taken,
        worker_us=(cost_after.theirs - cost.theirs) / taken,
        server_us=(cost_after.server - cost.server) / taken,
        cores=(after[0] - cores[0]) / (after[1] - cores[1]) * (os.cpu_count() or 1),
    )


def ends(client: Client, uri: str, some: Contender, processes: int, count: int) -> Ends:
    """One turn of a contender."""
    filled(client, uri, some, count)
    (name,) = (each for each in client[DATABASE].list_collection_names() if each.endswith(some.done))
    most = min(count, some.waiting) * 19 // 20

    def done() -> tuple[int, float, Spent]:
        return client[DATABASE][name].count_documents({"status": "success"}), time.monotonic(), spent(client, running)

    number, told = (1, processes) if some.script else (processes, 1)
    with contenders(some, "serves", uri, number, told=told) as running:
        while (first := done())[0] < 20:
            time.sleep(0.1)
        last = first
        while last[0] < most and last[1] - first[1] < SERVE_S:
            time.sleep(0.2)
            last = done()
    ended = last[0] - first[0]
    return Ends(
        ended / (last[1] - first[1]),
        (last[2].theirs - first[2].theirs) / ended,
        (last[2].server - first[2].server) / ended,
    )


def again(client: Client, uri: str, processes: int, count: int) -> Ends:
    """What all commands of our processes take that end so many, where as many bare drivers send them once more to the same queue."""
    database = f"again_{uuid4().hex[:8]}"
    filled(client, uri, OURS, count, database)
    records = client[database][RECORDS]
    there = records.find().to_list()
    try:
        with contenders(OURS, "told", uri, processes, database=database):
            while records.count_documents({"status": "success"}) < count * 19 // 20:
                time.sleep(0.2)
        _ = records.delete_many({})
        for start in range(0, len(there), 10_000):
            _ = records.insert_many(there[start : start + 10_000])
        with contenders(OURS, "again", uri, processes, database=database) as running:
            for each in running:
                assert cast("Any", each.stdout).readline() == "ready\n"
            began, cost = time.monotonic(), spent(client, running)
            for each in running:
                cast("Any", each.stdin).write("\n")
                cast("Any", each.stdin).flush()
            for each in running:
                _ = cast("Any", each.stdout).readline()
            took, after = time.monotonic() - began, spent(client, running)
        ended = records.count_documents({"status": "success"})
    finally:
        client.drop_database(database)
        for path in Path(tempfile.gettempdir()).glob(f"tidegate-{database}.*"):
            path.unlink()
    return Ends(ended / took, (after.theirs - cost.theirs) / ended, (after.server - cost.server) / ended)


def latency(client: Client, uri: str, a_second: float, count: int) -> tuple[float, float, float]:
    """p50 and p99 in ms, where so many are enqueued a second; and how many a second were run."""
    client.drop_database(DATABASE)
    with contenders(OURS, "serves", uri, 1) as (process,):

        async def ask() -> tuple[list[int], float]:
            (app, work), gate, out = app_of(uri), asyncio.Semaphore(AT_ONCE), cast("Any", process.stdout)

            async def enqueue() -> None:
                async with gate:
                    _ = await work.enqueue(time.monotonic_ns())

            def told(some: int) -> list[int]:
                return [int(out.readline()) for _ in range(some)]

            await asyncio.gather(enqueue(), asyncio.to_thread(told, 1))  # it waited for the process
            began, found, asked = time.monotonic(), asyncio.create_task(asyncio.to_thread(told, count)), list[Any]()
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / a_second - time.monotonic()))
                asked.append(asyncio.create_task(enqueue()))
            latencies = await found
            spent = time.monotonic() - began
            await asyncio.gather(*asked)
            await app.close()
            return latencies, count / spent

        found, rate = asyncio.run(ask())
    cuts = quantiles(found, n=100)
    return cuts[49] / 1e6, cuts[98] / 1e6, rate


# --- what is kept -------------------------------------------------------------------------------------------------------


@final
class Finds(CommandListener):
    """Keeps the finds that are sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            whole = dict(event.command)
            self.sent.append(
                {name: whole[name] for name in ("find", "filter", "sort", "projection", "limit") if name in whole}
            )

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


def kept(uri: str, client: Client, database: str, count: int) -> None:
    """So many that have ended, each as one that was run."""
    client.drop_database(database)
    _ = subprocess.run(OURS.argv("enqueue", uri, database), check=True)
    with contenders(OURS, "serves", uri, 1, database=database):
        while (doc := client[database][RECORDS].find_one({"status": "success"})) is None:
            time.sleep(0.1)
    inserted(client[database][RECORDS], doc, "_id", [uuid4().hex for _ in range(count - 1)])


class Kept(NamedTuple):
    """What one database takes: claims a second, a look that finds nothing, and a pass of recovery, in ms."""

    claims: float
    look_ms: float
    recovery_ms: float


def with_kept(uri: str, client: Client, database: str, waiting: int) -> Kept:
    """One turn; what has ended stays, and all else is made anew."""
    records = client[database][RECORDS]
    _ = records.delete_many({"status": {"$ne": "success"}})
    _ = subprocess.run(OURS.argv("enqueue", uri, database), check=True)
    doc = cast("dict[str, Any]", records.find_one({"due": {"$exists": True}}))
    inserted(records, doc, "_id", [uuid4().hex for _ in range(waiting - 1)])
    a_second = claims(client, uri, OURS, 1, seconds=TAKE_S, database=database).a_second
    _ = records.delete_many({"status": {"$ne": "success"}})
    handle = choosing(documents(Mongo(client, database)), local())
    looks = [timed(lambda: run(taker_of("looks").take(BATCH), handle)) for _ in range(100)]
    dead = {
        **doc,
        "status": "running",
        "owner": "gone",
        "version": 2,
        "changed_at": doc["changed_at"] - timedelta(hours=1),
    }
    del dead["due"]
    inserted(records, dead, "_id", [uuid4().hex for _ in range(STUCK)])
    me = f"recovers-{uuid4().hex}"
    _ = run(join(MEMBERS, me, 10 * MINUTE), handle)
    passed = timed(
        lambda: run(Recoverer(me=me, dead_after=10 * MINUTE, records=RECORDS, members=MEMBERS).run(), handle)
    )
    assert records.count_documents({"status": "rerouted"}) == STUCK
    return Kept(a_second, median(looks), passed)


def timed(what: Callable[[], object]) -> float:
    """In ms."""
    began = time.perf_counter()
    _ = what()
    return (time.perf_counter() - began) * 1e3


def plans(uri: str, database: str) -> dict[str, float]:
    """What the finds of a look and of a pass of recovery read, where nothing is due and nothing is stuck."""
    finds, found = Finds(), dict[str, float]()
    with Client(uri, event_listeners=[finds]) as client:
        _ = client[database][RECORDS].delete_many({"status": {"$ne": "success"}})
        handle = choosing(documents(Mongo(client, database)), local())
        _ = run(join(MEMBERS, "explains", 10 * MINUTE), handle)
        asked: dict[str, Callable[[], object]] = {
            "look": lambda: run(taker_of("explains").take(BATCH), handle),
            "recovery": lambda: run(
                Recoverer(me="explains", dead_after=10 * MINUTE, records=RECORDS, members=MEMBERS).run(), handle
            ),
        }
        for name, ask in asked.items():
            finds.sent.clear()
            _ = ask()
            for command in [each for each in finds.sent if each["find"] == RECORDS]:
                told = client[database].command({"explain": command, "verbosity": "executionStats"})
                keys = " then ".join(scans(told["queryPlanner"]["winningPlan"]))
                stats = told["executionStats"]
                found[f"{name}, keys read by {keys}"] = stats["totalKeysExamined"]
                found[f"{name}, documents read by {keys}"] = stats["totalDocsExamined"]
    return found


def scans(plan: dict[str, Any]) -> list[str]:
    """The indexes that a plan reads."""
    own = [plan["indexName"]] if "indexName" in plan else ["every record"] if plan.get("stage") == "COLLSCAN" else []
    inner = [plan[name] for name in ("inputStage", "queryPlan") if name in plan] + list(plan.get("inputStages", []))
    return own + [name for each in inner for name in scans(each)]


# --- rows ---------------------------------------------------------------------------------------------------------------


@final
class Bench:
    """One run: the server, and what it was told."""

    def __init__(self, uri: str, client: Client, told: argparse.Namespace) -> None:
        self.uri, self.client, self.told = uri, client, told
        self.turns = range(told.rounds)
        self.others = [BARE, *self._theirs()]

    def _theirs(self) -> Iterator[Contender]:
        if TASKIQ.is_there(self.uri):
            yield TASKIQ
        if (one := next((each for each in PYNENC if each.is_there(self.uri)), None)) is not None:
            yield one

    def claims(self) -> Figures:
        alone: dict[str, float] = {}
        for workers in WORKERS:
            turns: list[dict[str, Claims]] = []
            for _ in self.turns:
                turns.append({})
                for some in (OURS, *self.others):
                    filled(self.client, self.uri, some, self.told.waiting)
                    turns[-1][some.name] = claims(self.client, self.uri, some, workers, seconds=self.told.seconds)
            for name in turns[0]:
                row = f"{name}, {workers} workers"
                for field in Claims._fields:
                    yield f"{row}, claims, {field}", median(getattr(turn[name], field) for turn in turns)
                a_second = median(turn[name].a_second for turn in turns)
                yield f"{row}, claims, x one worker", a_second / alone.setdefault(name, a_second)
            yield from beside(f"claims, {workers} workers", turns)

    def kept(self) -> Figures:
        empty, full = f"{DATABASE}_empty", f"{DATABASE}_full"
        kept(self.uri, self.client, empty, 1)
        kept(self.uri, self.client, full, self.told.kept)
        pairs = [
            tuple(with_kept(self.uri, self.client, each, self.told.waiting // 2) for each in (empty, full))
            for _ in self.turns
        ]
        for at, name in enumerate(("claims a second", "look that finds nothing, ms", f"recovery of {STUCK:,}, ms")):
            yield f"none kept, {name}", median(none[at] for none, _ in pairs)
            yield f"{self.told.kept:,} kept, {name}", median(some[at] for _, some in pairs)
            yield f"{self.told.kept:,} kept, x none, {name}", median(some[at] / none[at] for none, some in pairs)
        for database, number in ((empty, 1), (full, self.told.kept)):
            for name, figure in plans(self.uri, database).items():
                yield f"{number:,} kept, {name}", figure
            self.client.drop_database(database)

    def ends(self) -> Figures:
        serving = [each for each in (OURS, *self.others) if each is not TASKIQ]
        for processes in PROCESSES:
            turns = [
                {each.name: ends(self.client, self.uri, each, processes, ENDS) for each in serving} for _ in self.turns
            ]
            for name in turns[0]:
                for field in Ends._fields:
                    row = f"{name}, {processes} processes, ends, {field}"
                    yield row, median(getattr(turn[name], field) for turn in turns)
            yield from beside(f"ends, {processes} processes", turns)
            for turn in turns:
                turn["again"] = again(self.client, self.uri, processes, ENDS)
            for field in Ends._fields:
                yield (
                    f"again, {processes} processes, ends, {field}",
                    median(getattr(turn["again"], field) for turn in turns),
                )
            those = [{who: turn[who] for who in (OURS.name, "again")} for turn in turns]
            yield from beside(f"ends, {processes} processes", those)

    def latency(self) -> Figures:
        full = median(latency(self.client, self.uri, math.inf, FLOOD)[2] for _ in self.turns)
        yield "enqueued and run a second, both by one process", full
        for name, a_second, count in (("idle", IDLE, LATENCIES), ("at half load", full / 2, FLOOD)):
            some = [latency(self.client, self.uri, a_second, count) for _ in self.turns]
            yield f"latency {name}, p50 ms", median(p50 for p50, _, _ in some)
            yield f"latency {name}, p99 ms", median(p99 for _, p99, _ in some)

    def stale(self) -> Figures:
        if TASKIQ in self.others:
            argv = TASKIQ.argv("stale", self.uri, DATABASE)
            told = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
            left, held = json.loads(told.stdout)[:2]
            yield f"taskiq, left of {held} whose second holder died", left


def beside(row: str, turns: Sequence[Mapping[str, Claims | Ends]]) -> Figures:
    """How many times as fast we are as each other one, and how many times less it takes of the processor."""
    for name in [each for each in turns[0] if each != OURS.name]:
        yield f"{row}, x {name}", median(turn[OURS.name].a_second / turn[name].a_second for turn in turns)
        costs = [{who: turn[who].worker_us + turn[who].server_us for who in (OURS.name, name)} for turn in turns]
        yield f"{row}, x {name}, by the processor", median(each[name] / each[OURS.name] for each in costs)


ROWS: Final = ("claims", "kept", "ends", "latency", "stale")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _ = parser.add_argument("--waiting", type=int, default=sized(100_000, 200))
    _ = parser.add_argument("--kept", type=int, default=sized(1_000_000, 200))
    _ = parser.add_argument("--seconds", type=float, default=TAKE_S, help="of claims; longer on a busy machine")
    _ = parser.add_argument("--rounds", type=int, default=sized(3, 1))
    _ = parser.add_argument("--only", nargs="*", choices=ROWS, default=sized(ROWS, ("claims",)))
    _ = parser.add_argument("--json", type=Path)
    _ = parser.add_argument("--as", dest="contender", nargs=4, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.contender:
        kind, uri, database, number = told.contender
        KINDS[kind](uri, database, float(number))
        return
    found: dict[str, float] = {}
    with mongo() as server, Client(server.uri) as client:
        bench = Bench(server.uri, client, told)
        for row in told.only:
            rows: Figures = getattr(bench, row)()
            for name, figure in rows:
                found[name] = figure
                print(f"{name:<70}{figure:12,.2f}", flush=True)
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        _ = told.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
