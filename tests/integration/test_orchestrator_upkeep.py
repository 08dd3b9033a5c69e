"""Retention uses indexes and pages, on a real MongoDB with thousands of documents."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Lock
from time import sleep
from typing import Any, Final, TypeAlias, TypeVar

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent
from tests.integration.test_mongo_orders import stages

from tidegate.invocations.limits.admission import Place, Reservation
from tidegate.invocations.limits.rate_limiting import FREE_AT, new_meter
from tidegate.invocations.limits.slot_documents import kept, places_of
from tidegate.invocations.limits.slots import Placing, Wish
from tidegate.invocations.record.invocation import SUCCESS
from tidegate.invocations.record.jobs import Job, new_invocation
from tidegate.invocations.record.record_documents import CHANGED_AT, STATUS, VERSION, viewed
from tidegate.invocations.upkeep.pruning import Purged, Purging
from tidegate.model.documents import ID, Document, Eq, Put, PutServerTime, Update
from tidegate.model.effects import Program
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import StoreTime, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.triggers.conditions import OnEvent, condition_id
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.firing import Fired, Firing, GivenUp, Held, TriggerRun
from tidegate.triggers.trigger import Occurrence, Trigger
from tidegate.triggers.trigger_documents import stored_occurrence, stored_run
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.mongo.bson import stored
from tidegate_adapters.runtime.driver import choosing, documents, local
from tidegate_adapters.runtime.driver import run as run_by

Raw: TypeAlias = dict[str, Any]
T = TypeVar("T")
HOUR: Final = 60 * MINUTE
A: Final = OnEvent("a")
B: Final = OnEvent("b")
ON_A: Final = Trigger(task="t", conditions=(A,))
ON_BOTH: Final = Trigger(task="t", conditions=(A, B), within=HOUR)


class Commands(CommandListener):
    def __init__(self) -> None:
        self.asked: list[Raw] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.asked.append({**event.command})

    def succeeded(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...


COMMANDS: Final = Commands()


@pytest.fixture
def client(mongodb: str) -> Iterator[MongoClient[Raw]]:
    with MongoClient[Raw](mongodb, event_listeners=[COMMANDS]) as made:
        yield made


def run(program: Program[T], store: Mongo) -> T:
    return run_by(program, choosing(documents(store), local()))


async def time() -> Instant:
    return await StoreTime()


def asked(store: Mongo, program: Program[object]) -> list[Raw]:
    COMMANDS.asked.clear()
    run(program, store)
    return [each for each in COMMANDS.asked if {"find", "delete"} & each.keys()]


def examined(client: MongoClient[Raw], database: str, command: Raw) -> int:
    """Keys and documents examined at most; no sort and no collection scan."""
    kept = {"find", "filter", "sort", "limit", "projection", "delete", "deletes"}
    plan = client[database].command(
        "explain", {key: command[key] for key in command if key in kept}, verbosity="executionStats"
    )
    assert not {"SORT", "COLLSCAN"} & stages(plan["queryPlanner"]["winningPlan"]), command
    return max(int(plan["executionStats"][each]) for each in ("totalKeysExamined", "totalDocsExamined"))


# --- runs of triggers ---------------------------------------------------------------------------------------------------


def occurrence(number: int, seen: Instant, condition: OnEvent = A) -> Occurrence:
    return Occurrence(condition_id(condition), EventContext(condition.code, str(number)), seen)


def test_runs_that_are_over_for_long_go_by_an_index(client: MongoClient[Raw], database: str) -> None:
    """Law TE11: a waiting invocation keeps its run, and the last run of a set stays."""
    evaluator = Evaluator(triggers=(ON_A, ON_BOTH), next_after=lambda _, after: after, keep=HOUR, batch=1_000)
    store = Mongo(client, database, indexes=evaluator.indexes)
    now = run(time(), store)
    old, late = now + -2 * HOUR, now + -HOUR // 2
    times = {**dict.fromkeys(range(3_000), old), **dict.fromkeys(range(3_000, 8_000), late)}
    of_one = [
        TriggerRun(Firing(ON_A.id, (occurrence(number, at),)), (Fired(at), GivenUp(("no",), at))[number % 2])
        for number, at in times.items()
    ]
    under_way = TriggerRun(Firing(ON_A.id, (occurrence(-1, old),)), Held("p", old))
    of_sets = [
        TriggerRun(Firing(ON_BOTH.id, (occurrence(-10 - number, old), occurrence(number, old, B)), number), Fired(old))
        for number in range(1, 101)
    ]
    assert run(evaluator.purge(), store) is True  # creates the indexes
    client[database].runs.insert_many([stored(stored_run(each)) for each in (*of_one, under_way, *of_sets)])
    waits = occurrence(7, old)
    client[database].occurrences.insert_many(
        [stored(stored_occurrence(each)) for each in (waits, occurrence(9_000, late))]
    )

    commands = asked(store, evaluator.purge())
    left = {each["_id"] for each in client[database].runs.find({}, {})}
    stay = {each.id for each in of_one[3_000:]} | {of_one[7].id, under_way.id, of_sets[-1].id}
    assert left == stay
    assert (
        len(commands) <= 4 * 5
    )  # a page's requests: itself, one or two for waiting ones, the trigger's last, the delete
    assert run(evaluator.purge(), store) is True
    assert {each["_id"] for each in client[database].runs.find({}, {})} == stay

    for command in commands:
        if command.get("find") == "runs":
            assert examined(client, database, command) <= 10, command


def test_a_purge_of_runs_ends_when_its_time_is_over(client: MongoClient[Raw], database: str) -> None:
    evaluator = Evaluator(triggers=(ON_A,), next_after=lambda _, after: after, keep=HOUR, batch=10)
    store = Mongo(client, database, indexes=evaluator.indexes)
    old = run(time(), store) + -2 * HOUR
    runs = [TriggerRun(Firing(ON_A.id, (occurrence(number, old),)), Fired(old)) for number in range(25)]
    client[database].runs.insert_many([stored(stored_run(each)) for each in runs])
    for left in (15, 5):
        assert run(evaluator.purge(old + SECOND), store) is False
        assert client[database].runs.count_documents({}) == left
    assert run(evaluator.purge(old + SECOND), store) is True
    assert client[database].runs.count_documents({}) == 0


# --- places and meters ----------------------------------------------------------------------------------------------------


def meter(key: str, written: Instant, free: Instant) -> Raw:
    made: Raw = stored(new_meter(key, written).put(FREE_AT, free))
    return made


def test_what_says_nothing_goes_by_an_index(client: MongoClient[Raw], database: str) -> None:
    """Law PG6: a page takes a find, the time and a delete."""
    purging = Purging(meter_age=HOUR, batch=1_000)
    store = Mongo(client, database, indexes=purging.indexes)
    now = run(time(), store)
    old, late = now + -2 * HOUR, now + -HOUR // 2
    assert run(purging.sweep_meters(), store) == run(purging.sweep_places(), store) == Purged(0, is_done=True)
    held = kept(Reservation((Place("a", 3),)))
    client[database].meters.insert_many(
        [meter(f"spent {number}", old, old) for number in range(2_500)]
        + [meter(f"full {number}", old, now + HOUR) for number in range(10)]
        + [meter(f"late {number}", late, late) for number in range(3_000)]
    )
    client[database].places.insert_many(
        [{"_id": f"empty {number}", "version": 2 + number % 3, "places": []} for number in range(2_500)]
        + [stored(Document.of({"_id": f"held {number}", "version": 2, "places": held})) for number in range(3_000)]
    )
    for name, sweep, stay in (("meters", purging.sweep_meters, 3_010), ("places", purging.sweep_places, 3_000)):
        commands = asked(store, sweep())
        assert client[database][name].count_documents({}) == stay
        assert len(commands) <= 6, "three pages, of a find and a delete"
        for command in commands:
            if "find" in command:
                assert examined(client, database, command) <= 20, command


def test_nobody_loses_a_place_while_sets_go(client: MongoClient[Raw], database: str) -> None:
    """Law PG5. At times both wait for the removal: on a busy machine one could keep the place."""
    purging = Purging(success_age=0, batch=10)
    store = Mongo(client, database, indexes=purging.indexes)
    each, is_over, gone, inside = 100, Event(), list[int](), Lock()

    def rest() -> None:
        while run(one("places", "set"), store) is not None:
            sleep(0.01)

    both = Barrier(2, rest, timeout=60)

    def takes(who: str) -> int:
        has = 0
        for number in range(each):
            key = f"{who}-{number}"
            doc = new_invocation(key, Job(task="t", limited_by="set"), "made", run(time(), store))
            run(insert_new("invocations", doc), store)
            record = viewed(doc)
            assert record is not None
            placed = Placing(wishes=(Wish(key, record, "set"),), attempts=None).place()
            while key not in run(placed, store).has:
                placed = Placing(wishes=(Wish(key, record, "set"),), attempts=None).place()
            assert inside.acquire(blocking=False), "two have the only place"
            found = run(one("places", "set"), store)
            assert found is not None
            assert key in [place.invocation for place in places_of(found).places]
            inside.release()
            over = (Put(STATUS, SUCCESS), Put(VERSION, record.version + 1), PutServerTime(CHANGED_AT))
            run(changed(key, over), store)
            has += 1
            if has % 20 == 0:
                both.wait()
        return has

    def sweeps() -> None:
        while not is_over.is_set():
            run(purging.purge(), store)
            gone.append(run(purging.sweep_places(), store).removed)

    with ThreadPoolExecutor() as pool:
        sweeper = pool.submit(sweeps)
        try:
            assert [taker.result() for taker in [pool.submit(takes, who) for who in "ab"]] == [each, each]
        finally:
            is_over.set()
        sweeper.result()
    assert sum(gone) >= each // 20


async def one(collection: str, key: str) -> Document | None:
    return await find_one(collection, Eq(ID, key))


async def changed(key: str, updates: tuple[Update, ...]) -> int:
    return await update_one("invocations", Eq(ID, key), *updates)
