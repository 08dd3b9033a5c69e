"""What a transition costs beside the driver's own commands, on a real MongoDB.

    python -m benchmarks.mongo [--seconds S] [--rounds N] [--only NAME ...] [--json FILE]

    knows      a transition by who moved the record last: one update, guarded by status, owner and version
    reads      a transition by who has to look first: the projected record, then the same update
    raw ...    pymongo that sends the same commands: same filter, update, projection and concerns
    alike ...  the same, of a client like ours: with the listener and the deadlines of `connect`, without which no outcome is
               the truth, and no wait has an end
    empty      a program that asks for that update, and does nothing else: what it costs to run one at all
    bump       pymongo: a bare find_one_and_update that increments a number
    lock       the array-push lock of pynenc's MongoDB plug-in, five commands
    settles    records that are known are settled in bulk, a hundred at a time, and all match
    looks      the same where one of them has moved on, so that all are read back

    raw bulk   pymongo that settles as many in bulk

Of the last three a step is one record. Each turn lasts a while with so many threads, or tasks, each on a record of its own with 16 entries of history; contenders
take turns, and a figure is the median of its rounds. CPU is of this process alone, the server is another one.

Then what a record takes, and how `knows` grows with records and workers, who walk through all of them. Last, the embedded
store, which needs no server: the CPU of a write in a store of one document and of 100,000, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import count, cycle, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias

from benchmarks.smoke import mongo, sized
from pymongo import AsyncMongoClient, MongoClient, WriteConcern
from pymongo import UpdateOne as RawUpdate
from pymongo.read_concern import ReadConcern

from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record.array_push_lock import ArrayPushLock
from tidegate.invocations.record.record_documents import changes, unchanged
from tidegate.invocations.record.status import Accepted, StatusDefinition, StatusRecord, StatusTable
from tidegate.invocations.record.transition import Granted, Outdated, Transition, TransitionOutcome
from tidegate.model.documents import ID, Add, Document, Eq, Field, Put
from tidegate.model.effects import Program
from tidegate.model.history import HISTORY_MAX
from tidegate.model.operations import UpdateOne, delete_one, insert_one, update_one, upsert_one
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import AsyncMongo, Mongo, condition, connect, connect_async
from tidegate_adapters.mongo import changes as translated
from tidegate_adapters.runtime.driver import Handle, choosing, documents, local, local_async, run, run_async

DATABASE: Final = "bench"
RECORDS: Final = "records"
NUMBER: Final = Field[int]("n")
TABLE: Final = StatusTable(
    frozenset({"free"}),
    (
        StatusDefinition("free", frozenset({"held"})),
        StatusDefinition("held", frozenset({"free"}), acquires_owner=True, requires_owner=True),
    ),
)
RECORDED: Final = ("knows", "raw knows", "alike knows", "empty", "reads", "raw reads", "alike reads")
"""Those that have a record."""
IN_BULK: Final = ("settles", "looks", "raw bulk")
CONTENDERS: Final = (*RECORDED, "bump", "lock", *IN_BULK)
BATCH: Final = 100
"""How many records are settled in one bulk."""
Step: TypeAlias = Callable[[], object]
AsyncStep: TypeAlias = Callable[[], Awaitable[object]]


class Figure(NamedTuple):
    """What a turn came to.

    Attributes:
        rate: Steps a second, of all together.
        cpu_us: Of the client, a step, in microseconds.
    """

    rate: float
    cpu_us: float


def record(key: str) -> dict[str, Any]:
    """A document with as much history as there is."""
    history = [{"version": n, "request": f"{key}.{n}", "status": "free"} for n in range(1, HISTORY_MAX + 1)]
    fields = {"status": "free", "owner": None, "version": HISTORY_MAX, "changed_at": datetime.now(UTC)}
    return {"_id": key, **fields, "history": history}


# --- the contenders: what a step of one thread, or task, is -------------------------------------------------------------


class Known:
    """The record as its only writer knows it."""

    def __init__(self, key: str, collection: str = RECORDS) -> None:
        self.key, self.collection, self.at = key, collection, StatusRecord("free", None, HISTORY_MAX)

    @property
    def next(self) -> tuple[str, str | None]:
        return ("held", "r") if self.at.status == "free" else ("free", None)

    def command(self, *, knows: bool) -> Program[TransitionOutcome]:
        request = f"{self.key}.{self.at.version + 1}"
        expected = self.at if knows else None
        return Transition(self.collection, TABLE, self.key, self.next[0], "r", request, expected=expected).run()

    def moved(self, answer: object) -> None:
        assert isinstance(answer, Granted), answer
        self.at = answer.record

    def update(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What pymongo sends for the same."""
        (status, owner), at = self.next, self.at
        version = at.version + 1
        entry = {"version": version, "request": f"{self.key}.{version}", "status": status}
        where: dict[str, object] = {"_id": {"$eq": self.key}, "status": {"$eq": at.status}}
        where |= {"owner": {"$eq": at.owner}, "version": {"$eq": at.version}}
        return {"$and": [{name: value} for name, value in where.items()]}, {
            "$set": {"status": status, "owner": owner, "version": version},
            "$currentDate": {"changed_at": {"$type": "date"}, f"at{version % HISTORY_MAX}": {"$type": "date"}},
            "$unset": {"due": ""},
            "$push": {"history": {"$each": [entry], "$slice": -HISTORY_MAX}},
        }

    def asked(self) -> UpdateOne:
        """What the program asks for the same."""
        (status, owner), at = self.next, self.at
        accepted = Accepted(status, owner, at.version + 1)
        moves = changes(TABLE, accepted, f"{self.key}.{accepted.version}")
        return update_one(self.collection, unchanged(self.key, at), *moves)

    def wrote(self, matched: object) -> None:
        assert matched == 1
        self.at = StatusRecord(*self.next, self.at.version + 1)


class Batch:
    """Records as their only writer knows them; of one it may know what was before."""

    def __init__(self, key: str, *, is_outdated: bool) -> None:
        self.each = [Known(f"{key}.{number}") for number in range(BATCH)]
        self.outdated = self.each[-1] if is_outdated else None
        if self.outdated is not None:
            self.outdated.at = StatusRecord("held", "r", HISTORY_MAX - 1)

    def command(self) -> Program[tuple[TransitionOutcome, ...]]:
        moves = (RecordMove(one.key, one.at, one.next[0], f"settled {one.at.version + 1}") for one in self.each)
        return Settling(RECORDS, TABLE, tuple(moves), "r").run()

    def updates(self) -> list[RawUpdate]:
        """What pymongo sends for the same."""
        return [RawUpdate(*one.update()) for one in self.each]

    def wrote(self, matched: int) -> None:
        assert matched == BATCH
        for one in self.each:
            one.wrote(1)

    def moved(self, answers: tuple[TransitionOutcome, ...]) -> None:
        for one, answer in zip(self.each, answers, strict=True):
            if one is self.outdated:
                assert isinstance(answer, Outdated), answer
            else:
                one.moved(answer)


VIEW: Final = {"_id": 1, "status": 1, "owner": 1, "version": 1}
BUMPED: Final = {"$inc": {"n": 1}}


async def asking(known: Known) -> int:
    """A program that does nothing else."""
    return await known.asked()


def check_alike() -> None:
    """The ratios mean nothing where pymongo is told another command than the program asks for."""
    known = Known("r")
    asked = known.asked()
    assert known.update() == (condition(asked.where), translated(asked.updates)), known.update()


def steps(client: MongoClient[Any], bare: MongoClient[Any], key: str) -> dict[str, Step]:
    """Those of one thread."""
    handle, held, alike = choosing(documents(Mongo(client, DATABASE)), local()), raw(bare), raw(client)
    known = {name: Known(f"{key}.{name}") for name in RECORDED}
    locked = lock(f"{key}.lock")
    batches = {name: Batch(f"{key}.{name}", is_outdated=name == "looks") for name in IN_BULK}

    def know(name: str, held: Any) -> None:
        known[name].wrote(held.update_one(*known[name].update()).matched_count)

    def look(name: str, held: Any) -> None:
        found = held.find_one({"_id": {"$eq": known[name].key}}, VIEW)
        assert found is not None
        assert found["version"] == known[name].at.version
        know(name, held)

    def move(name: str) -> None:
        known[name].moved(run(known[name].command(knows=name == "knows"), handle))

    def settle(name: str) -> None:
        batches[name].moved(run(batches[name].command(), handle))

    return {
        "knows": partial(move, "knows"),
        "raw knows": partial(know, "raw knows", held),
        "alike knows": partial(know, "alike knows", alike),
        "empty": lambda: known["empty"].wrote(run(asking(known["empty"]), handle)),
        "reads": partial(move, "reads"),
        "raw reads": partial(look, "raw reads", held),
        "alike reads": partial(look, "alike reads", alike),
        "bump": lambda: held.find_one_and_update({"_id": f"{key}.bump"}, BUMPED),
        "lock": lambda: run(next(locked), handle),
        "settles": partial(settle, "settles"),
        "looks": partial(settle, "looks"),
        "raw bulk": lambda: batches["raw bulk"].wrote(
            held.bulk_write(batches["raw bulk"].updates(), ordered=False).matched_count
        ),
    }


def steps_async(client: AsyncMongoClient[Any], bare: AsyncMongoClient[Any], key: str) -> dict[str, AsyncStep]:
    """Those of one task."""
    handle, held, alike = choosing(documents(AsyncMongo(client, DATABASE)), local_async()), raw(bare), raw(client)
    known = {name: Known(f"{key}.{name}") for name in RECORDED}
    locked = lock(f"{key}.lock")
    batches = {name: Batch(f"{key}.{name}", is_outdated=name == "looks") for name in IN_BULK}

    async def know(name: str, held: Any) -> None:
        known[name].wrote((await held.update_one(*known[name].update())).matched_count)

    async def look(name: str, held: Any) -> None:
        found = await held.find_one({"_id": {"$eq": known[name].key}}, VIEW)
        assert found["version"] == known[name].at.version
        await know(name, held)

    async def move(name: str) -> None:
        known[name].moved(await run_async(known[name].command(knows=name == "knows"), handle))

    async def settle(name: str) -> None:
        batches[name].moved(await run_async(batches[name].command(), handle))

    async def empty() -> None:
        known["empty"].wrote(await run_async(asking(known["empty"]), handle))

    async def bulk() -> None:
        answer = await held.bulk_write(batches["raw bulk"].updates(), ordered=False)
        batches["raw bulk"].wrote(answer.matched_count)

    return {
        "knows": partial(move, "knows"),
        "raw knows": partial(know, "raw knows", held),
        "alike knows": partial(know, "alike knows", alike),
        "empty": empty,
        "reads": partial(move, "reads"),
        "raw reads": partial(look, "raw reads", held),
        "alike reads": partial(look, "alike reads", alike),
        "bump": lambda: held.find_one_and_update({"_id": f"{key}.bump"}, BUMPED),
        "lock": lambda: run_async(next(locked), handle),
        "settles": partial(settle, "settles"),
        "looks": partial(settle, "looks"),
        "raw bulk": bulk,
    }


def raw(client: Any) -> Any:
    """The collection, with the concerns that tidegate uses."""
    return client.get_database(
        DATABASE, write_concern=WriteConcern("majority", j=True), read_concern=ReadConcern("majority")
    )[RECORDS]


def lock(key: str) -> Iterator[Program[object]]:
    """One program after the other, to and fro."""
    for number in count():
        target = ("held", "free")[number % 2]
        yield ArrayPushLock(RECORDS, TABLE, key, target, "r", f"{key}.{number}").run()


# --- turns --------------------------------------------------------------------------------------------------------------


def turn(workers: Sequence[Step], seconds: float) -> Figure:
    """What threads come to, one a step."""

    def work(step: Step) -> int:
        done, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            step()
            done += 1
        return done

    began, cpu = time.perf_counter(), time.process_time()
    if len(workers) == 1:
        done = work(workers[0])
    else:
        with ThreadPoolExecutor(len(workers)) as pool:
            done = sum(pool.map(work, workers))
    return Figure(done / (time.perf_counter() - began), (time.process_time() - cpu) / done * 1e6)


async def turn_async(workers: Sequence[AsyncStep], seconds: float) -> Figure:
    """The same for tasks."""

    async def work(step: AsyncStep) -> int:
        done, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            await step()
            done += 1
        return done

    began, cpu = time.perf_counter(), time.process_time()
    done = sum(await asyncio.gather(*map(work, workers)))
    return Figure(done / (time.perf_counter() - began), (time.process_time() - cpu) / done * 1e6)


Ask: TypeAlias = tuple[str, int, float, int, Sequence[str]]
"""The server, how many threads or tasks, seconds of a turn, rounds, and the contenders."""


def in_threads(ask: Ask) -> Iterator[tuple[str, Figure]]:
    uri, how_many, seconds, rounds, only = ask
    with connect(uri) as client, MongoClient[Any](uri) as bare:
        each = [steps(client, bare, f"thread {n} of {how_many}") for n in range(how_many)]
        for name in (*only,) * (rounds + 1):
            yield name, of_each(name, turn([worker[name] for worker in each], seconds))


async def in_tasks(ask: Ask) -> list[tuple[str, Figure]]:
    uri, how_many, seconds, rounds, only = ask
    async with await connect_async(uri) as client, AsyncMongoClient[Any](uri) as bare:
        each = [steps_async(client, bare, f"task {n} of {how_many}") for n in range(how_many)]
        return [
            (name, of_each(name, await turn_async([worker[name] for worker in each], seconds)))
            for name in (*only,) * (rounds + 1)
        ]


def of_each(name: str, figure: Figure) -> Figure:
    """The figure for one record."""
    count = BATCH if name in IN_BULK else 1
    return Figure(figure.rate * count, figure.cpu_us / count)


def medians(turns: Iterable[tuple[str, Figure]]) -> dict[str, Figure]:
    """Of each contender; its first turn warms up."""
    of: dict[str, list[Figure]] = {}
    for name, figure in turns:
        of.setdefault(name, []).append(figure)
    return {name: Figure(*(median(column) for column in zip(*each[1:], strict=True))) for name, each in of.items()}


def fill(uri: str, prefix: str, how_many: int) -> None:
    """The records of so many threads, or tasks."""
    with connect(uri) as client:
        held = client[DATABASE][RECORDS]
        held.create_index("invocation_id")
        for n in range(how_many):
            key = f"{prefix} {n} of {how_many}"
            held.insert_many([*(record(f"{key}.{name}") for name in RECORDED), {"_id": f"{key}.bump", "n": 0}])
            held.insert_many(record(f"{key}.{name}.{number}") for name in IN_BULK for number in range(BATCH))
            locked: dict[str, object] = {"status": "free", "status_runner_id": None, "transition_lock": []}
            held.insert_one({"_id": f"{key}.lock", "invocation_id": f"{key}.lock", **locked})


# --- growth -------------------------------------------------------------------------------------------------------------

GROWN: Final = "grown"
SIZES: Final = sized((1_000, 10_000, 100_000), (100,))
WORKERS: Final = (1, 2, 4, 8)
WALKED: Final = 1_000
"""How many records a worker moves in turn, scattered over all."""


class Grown(NamedTuple):
    """What so many records come to.

    Attributes:
        bytes_each: Of a record: as it is, on disk, where it is compressed, and of the index of the ids.
        rates: Transitions a second, by the number of workers.
    """

    bytes_each: dict[str, float]
    rates: dict[int, float]


def growth(uri: str, seconds: float, entries: int) -> Iterator[tuple[int, Grown]]:
    """The same collection as it grows, by the number of its records, each with so many entries of history."""
    with connect(uri) as client, MongoClient[Any](uri) as bare:
        held, known = bare[DATABASE][f"{GROWN} {entries}"], dict[int, Known]()
        for fewer, records in pairwise((0, *SIZES)):
            each = ({**(made := record(f"r{n}")), "history": made["history"][-entries:]} for n in range(fewer, records))
            while batch := list(islice(each, 1_000)):
                held.insert_many(batch)
            bare.admin.command("fsync")  # so that the files are as large as they get
            told = bare[DATABASE].command("collStats", held.name)
            sizes = {"as it is": told["size"], "on disk": told["storageSize"], "of the index": told["totalIndexSize"]}
            handle = choosing(documents(Mongo(client, DATABASE)), local())
            apart = max(1, records // (WORKERS[-1] * WALKED))
            scattered = [known.setdefault(n, Known(f"r{n}", held.name)) for n in range(0, records, apart)]
            rates = {}
            for workers in WORKERS:
                walks = [cycle(scattered[n::workers]) for n in range(workers)]
                rates[workers] = turn([partial(walked, walk, handle) for walk in walks], seconds).rate
            yield records, Grown({what: size / records for what, size in sizes.items()}, rates)


def walked(walk: Iterator[Known], handle: Handle) -> None:
    """The next record is moved, by who knows it."""
    known = next(walk)
    known.moved(run(known.command(knows=True), handle))


def show_growth(uri: str, seconds: float) -> dict[str, dict[int, Grown]]:
    """A line a number of records."""
    rows: dict[str, dict[int, Grown]] = {}
    for name, entries in (("new", 1), ("old", HISTORY_MAX)):
        print(f"records, {entries:>2} versions in each: bytes of one{'transitions a second of 1, 2, 4, 8 workers':>50}")
        for records, grown in growth(uri, seconds, entries):
            rows.setdefault(name, {})[records] = grown
            said = ", ".join(f"{what} {size:,.0f}" for what, size in grown.bytes_each.items())
            print(f"  {records:>9,}  {said:50}{''.join(f'{rate:>9,.0f}' for rate in grown.rates.values())}", flush=True)
    return rows


# --- the embedded store -------------------------------------------------------------------------------------------------

MANY: Final = sized(100_000, 100)


def embedded(records: int) -> tuple[Embedded, float]:
    """A store of so many records, and the bytes that each takes."""
    tracemalloc.start()
    store = Embedded({RECORDS: tuple(Document.of({"_id": f"r{n}", "n": n}) for n in range(records))})
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return store, taken / records


def write(store: Embedded, how: str, number: int) -> None:
    match how:
        case "update":
            store(update_one(RECORDS, Eq(ID, "r0"), Add(NUMBER, 1)))
        case "upsert":
            store(upsert_one(RECORDS, Eq(ID, "upserted"), Put(NUMBER, number)))
        case _:
            store(insert_one(RECORDS, Document.of({"_id": "new", "n": number})))
            store(delete_one(RECORDS, Eq(ID, "new")))


def embedded_us(store: Embedded, how: str, writes: int = sized(1_000, 10), rounds: int = sized(7, 1)) -> float:
    """The median of rounds, in microseconds of CPU a write."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for number in range(writes):
            write(store, how, number)
        found.append((time.process_time() - began) / writes * 1e6)
    return median(found)


def show_embedded() -> dict[str, dict[str, float]]:
    """A line a kind of write."""
    (one, _), (many, each) = embedded(1), embedded(MANY)
    print(f"embedded store, {each:,.0f} bytes a record{'one':>12}{f'{MANY:,}':>10}")
    rows = {}
    for how in ("update", "upsert", "insert and delete"):
        rows[how] = row = {"one_us": embedded_us(one, how), "many_us": embedded_us(many, how)}
        print(f"  {how:36}{row['one_us']:>9.0f} us{row['many_us']:>7.0f} us {row['many_us'] / row['one_us']:.2f} x")
    return rows


BESIDE: Final = {
    "knows": ("raw knows", "alike knows", "empty", "bump", "lock"),
    "empty": ("alike knows",),
    "alike knows": ("raw knows",),
    "reads": ("raw reads", "alike reads", "lock"),
    "alike reads": ("raw reads",),
    "settles": ("knows", "raw bulk"),
    "looks": ("knows", "raw bulk"),
    "raw bulk": ("raw knows",),
}


def show(figures: dict[str, Figure]) -> None:
    """A line a contender, beside others."""
    for name, figure in figures.items():
        others = [other for other in BESIDE.get(name, ()) if other in figures]
        ratios = "".join(f"{figure.rate / figures[other].rate:6.2f} x {other}" for other in others)
        more = [
            f"{figure.cpu_us - figures[of].cpu_us:4.0f} us more than {kind}"
            for kind in ("raw", "alike")
            if (of := f"{kind} {name}") in figures
        ]
        print(f"  {name:12}{figure.rate:>10,.0f}{figure.cpu_us:>9.0f}{ratios}  {', '.join(more)}", flush=True)


def main() -> None:
    """A table a number of threads or tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=sized(2.0, 0.01), help="of a turn")
    parser.add_argument("--rounds", type=int, default=sized(3, 1))
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, help="these contenders, and nothing else")
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    found: dict[str, dict[str, Figure]] = {}
    check_alike()
    with mongo() as server:
        for prefix, how_many in sized(
            (("thread", 1), ("thread", 8), ("task", 1), ("task", 32)), (("thread", 1), ("task", 2))
        ):
            fill(server.uri, prefix, how_many)
            ask = (server.uri, how_many, told.seconds, told.rounds, told.only or CONTENDERS)
            name = f"{how_many} {prefix}{'s' if how_many > 1 else ''}"
            figures = found[name] = medians(in_threads(ask) if prefix == "thread" else asyncio.run(in_tasks(ask)))
            print(f"{name:14}{'a second':>10}{'CPU us':>9}")
            show(figures)
        grown = {} if told.only else show_growth(server.uri, told.seconds)
    rows = {} if told.only else show_embedded()
    if told.json is not None:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        told.json.write_text(json.dumps({**found, "growth": grown, "embedded": rows}, indent=1))


if __name__ == "__main__":
    main()
