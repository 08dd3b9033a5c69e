"""What it costs to learn which documents a planner has to look at, on a real MongoDB.

    python -m benchmarks.planning [--documents N] [--rounds N] [--json FILE]

N documents (100,000) of half a kilobyte have their records, and one in a hundred has changed since.

    asks     the store is asked, page by page, as the reconciler of an app does: only ids travel
    bare     pymongo that sends the same aggregations
    joined   pymongo: one aggregation over all documents that joins, compares and projects ids, without pages
    reads    every document and every record is read and compared here

What travels is the length of the replies in BSON. Contenders take turns; a figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import bson
from benchmarks.smoke import mongo, sized
from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandSucceededEvent
from pymongo.read_concern import ReadConcern

from tidegate.model.documents import ID, Document, Eq, Field, Value
from tidegate.model.operations import find_one
from tidegate.reactive.planning.reconciler import Reconciler, ScannedTask
from tidegate.reactive.planning.reconciliation import ReconciliationRun, TaskTrigger
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.task.plan_queries import LOOKED_AT_MAX, FindChanged, must_look
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.mongo.bson import CODEC, loaded
from tidegate_adapters.mongo.planning import pipeline
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.runtime.driver import choosing, documents, local, run

TASK: Final = ReactiveTask(name="bill", source="orders", watched=Projection(("status", "place.city")))
KEY: Final = Field[Value](ID.name)
PADDING: Final = "x" * 400
CHANGED: Final = 100
"""One in so many."""


class Travelled(CommandListener):
    """How many bytes the server's answers have."""

    def __init__(self) -> None:
        self.bytes = 0

    def started(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...
    def succeeded(self, event: CommandSucceededEvent) -> None:
        self.bytes += len(bson.encode(event.reply))


def filled(client: MongoClient[dict[str, Any]], count: int) -> None:
    """The documents, their records, and the indexes that a task asks for."""
    database = client["bench"]
    Mongo(client, "bench", indexes=TASK.indexes)(find_one(TASK.records, Eq(ID, "none")))  # makes them
    for begin in range(0, count, 10_000):
        numbers = range(begin, min(begin + 10_000, count))
        database[TASK.source].insert_many(
            [{"_id": n, "status": "open", "place": {"city": f"c{n % 7}"}, "text": PADDING} for n in numbers]
        )
        database[TASK.records].insert_many(
            [
                {
                    "_id": f"bill#{n}",
                    "task": "bill",
                    "document": n,
                    "status": "completed",
                    "snapshot": {"place": {"city": f"c{n % 7}"}, "status": "paid" if n % CHANGED == 0 else "open"},
                }
                for n in numbers
            ]
        )


def query(limit: int, *after: Value) -> FindChanged:
    return FindChanged(TASK.source, TASK.records, TASK.name, TASK.watched, None, limit, after)


def asks(client: MongoClient[dict[str, Any]]) -> int:
    """Page by page, and how far that is written down."""
    client["bench"]["streams"].replace_one({"_id": "bench"}, {"_id": "bench", "epoch": 1, "history": 0}, upsert=True)
    found: list[Value] = []

    async def look(_: str, ids: tuple[Value, ...], __: frozenset[str]) -> tuple[Value, ...]:
        found.extend(ids)
        return ()

    async def sweep(_: str, __: frozenset[str]) -> tuple[Value, ...]:
        return ()

    scanned = (ScannedTask(TASK.source, TaskTrigger(TASK.name, None), TASK.find_changed),)
    reconciler = Reconciler("bench", "streams", scanned, look, sweep, PlannerRules().batch)
    run(reconciler.run(ReconciliationRun(1, 0)), choosing(documents(Mongo(client, "bench")), local()))
    return len(found)


def no_filter(_: object) -> dict[str, Any]:
    return {}


def bare(client: MongoClient[dict[str, Any]]) -> int:
    """The same aggregations, of the largest pages."""
    database, found = client["bench"], 0
    after: tuple[Value, ...] = ()
    while True:
        command = {"pipeline": pipeline(query(LOOKED_AT_MAX, *after), no_filter), "cursor": {}}
        reply = database.command({"aggregate": TASK.source, **command, "readConcern": ReadConcern("snapshot").document})
        if not reply["cursor"]["firstBatch"]:
            return found
        (page,) = reply["cursor"]["firstBatch"]
        found, after = found + len(page["ids"]), (page["after"],)


def joined(client: MongoClient[dict[str, Any]]) -> int:
    """One aggregation, without pages, limits and a last id."""
    differs = {"$ne": [{"$first": "$records.snapshot"}, "$seen"]}
    stages: list[dict[str, Any]] = [
        {"$replaceWith": {"_id": "$_id", "seen": {"place": {"city": "$place.city"}, "status": "$status"}}},
        {
            "$lookup": {
                "from": TASK.records,
                "localField": "_id",
                "foreignField": "document",
                "as": "records",
                "pipeline": [{"$match": {"task": "bill"}}, {"$project": {"snapshot": 1}}],
            }
        },
        {"$match": {"$expr": differs}},
        {"$project": {"_id": 1}},
    ]
    return len(client["bench"][TASK.source].aggregate(stages).to_list())


def reads(client: MongoClient[dict[str, Any]]) -> int:
    """Everything travels."""
    database = client.get_database("bench", codec_options=CODEC)
    records: dict[Value, Document] = {}
    for each in database[TASK.records].find({"task": "bill"}):
        records[each["document"]] = loaded(each, "records")
    found = 0
    for each in database[TASK.source].find():
        doc = loaded(each, "orders")
        found += must_look(query(1), doc, (records[doc[KEY]],))
    return found


CONTENDERS: Final[dict[str, Callable[[MongoClient[dict[str, Any]]], int]]] = {
    "asks": asks,
    "bare": bare,
    "joined": joined,
    "reads": reads,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=sized(1_000_000, 200))
    parser.add_argument("--rounds", type=int, default=sized(3, 1))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    travelled = Travelled()
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    sizes: dict[str, int] = {}
    with mongo(cache_gb=1.0) as server:
        with MongoClient[dict[str, Any]](server.uri) as client:
            print(f"{args.documents:,} documents are written", file=sys.stderr, flush=True)
            filled(client, args.documents)
        with (
            MongoClient[dict[str, Any]](server.uri) as client,
            MongoClient[dict[str, Any]](server.uri, event_listeners=[travelled]) as told,
        ):
            expected = -(-args.documents // CHANGED)
            for name, contender in CONTENDERS.items():
                before = travelled.bytes
                if (found := contender(told)) != expected:
                    raise SystemExit(f"{name} finds {found} of {expected}")
                sizes[name] = travelled.bytes - before
                print(f"{name} finds them", file=sys.stderr, flush=True)
            for _ in range(args.rounds):
                for name, contender in CONTENDERS.items():
                    began = time.perf_counter()
                    contender(client)
                    seconds[name].append(time.perf_counter() - began)
                    print(f"{name} took {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
    rows = {name: {"seconds": median(taken), "bytes": sizes[name]} for name, taken in seconds.items()}
    print(f"{args.documents:,} documents, {expected:,} changed")
    for name, row in rows.items():
        ratio = row["seconds"] / rows["joined"]["seconds"]
        print(f"{name:8} {row['seconds']:8.2f} s  {ratio:5.2f} x joined  {row['bytes']:>13,} bytes travel")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(
            json.dumps({"documents": args.documents, "changed": expected, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
