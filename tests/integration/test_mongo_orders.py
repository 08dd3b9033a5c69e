"""Sorted finds use indexes on a real MongoDB. `test_mongo_agreement` tests the order itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent
from tests.integration.mongo_loop import in_loop

from tidegate.invocations.record.record_documents import STATUS
from tidegate.invocations.upkeep.recoverer import ITEMS_MAX, OPEN, Recoverer
from tidegate.invocations.worker.heartbeat import heed
from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Ge,
    In,
    OlderThan,
    Put,
    Sort,
    cursor,
    sort_key,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, Instant
from tidegate.model.operations import Index, find_all, find_one, find_one_and_update, insert_one
from tidegate.reactive.task.fetching import dues
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.embedded.store import Embedded, process_clock
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, connect_async
from tidegate_adapters.mongo.bson import stored
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.runtime.driver import choosing, documents, local, run

STATE: Final = Field[str]("state")
PRIORITY: Final = Field[Any]("priority")
DUE_AT: Final = Field[Instant]("due_at")
OWNER: Final = Field[str | None]("owner")
URGENT: Final[Sort] = (Descending(PRIORITY), Ascending(DUE_AT))
INDEXES: Final = {"jobs": (Index((Ascending(STATE), *URGENT)), Index((Ascending(OWNER),), Exists(OWNER)))}
EACH: Final = 2_000


class Asked(CommandListener):
    def __init__(self) -> None:
        self.finds: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in {"find", "findAndModify"}:
            self.finds.append(dict(event.command))

    def succeeded(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...


ASKED: Final = Asked()


@pytest.fixture
def client(mongodb: str) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongodb, event_listeners=[ASKED]) as made:
        yield made


def filled(client: MongoClient[dict[str, Any]], database: str) -> Mongo:
    now, chance = process_clock(), Random(3)
    store = Mongo(client, database, indexes=INDEXES)
    assert store(find_one("jobs", Eq(ID, "none"))) is None
    jobs = [
        Document.of(
            {"_id": number, "state": "free", "priority": number % 3 or None, "due_at": now + (EACH - number) * SECOND}
        )
        for number in range(2 * EACH)
    ]
    client[database].jobs.insert_many([stored(job) for job in chance.sample(jobs, len(jobs))])
    return store


def explained(client: MongoClient[dict[str, Any]], database: str) -> tuple[set[str], int]:
    asked = ASKED.finds[-1]
    wanted = {"find", "filter", "sort", "limit", "projection", "findAndModify", "query", "update", "fields", "new"}
    command = {key: held for key, held in asked.items() if key in wanted}
    plan = client[database].command("explain", command, verbosity="executionStats")
    return stages(plan["queryPlanner"]["winningPlan"]), plan["executionStats"]["totalKeysExamined"]


def stages(plan: Any) -> set[str]:
    if isinstance(plan, dict):
        own = {plan["stage"]} if "stage" in plan else set()
        return own.union(*map(stages, plan.values()))
    return set[str]().union(*map(stages, plan)) if isinstance(plan, list) else set()


def test_the_first_that_is_due_is_found_by_its_index(client: MongoClient[dict[str, Any]], database: str) -> None:
    store = filled(client, database)
    free = AllOf((Eq(STATE, "free"), OlderThan(DUE_AT, 0)))
    found = store(find_one("jobs", free, sort=URGENT))
    assert isinstance(found, Document)
    assert found[PRIORITY] == 2
    used, keys = explained(client, database)
    assert "SORT" not in used
    assert keys < 10
    taken = store(find_one_and_update("jobs", free, Put(STATE, "taken"), sort=URGENT))
    assert isinstance(taken, Document)
    assert taken[ID] == found[ID]
    used, keys = explained(client, database)
    assert "SORT" not in used
    assert keys < 10


@pytest.mark.parametrize("where", [Eq(STATE, "free"), AllOf((Eq(STATE, "free"), Ge(DUE_AT, Instant(0))))], ids=str)
def test_a_page_reads_no_further_than_it_is_long(
    client: MongoClient[dict[str, Any]], database: str, where: Any
) -> None:
    store = filled(client, database)
    fields: Fields = (PRIORITY, DUE_AT)
    everything = run(paged(where, 1_000, fields), choosing(documents(store), local()))
    assert [*map(at_urgent, everything)] == sorted(map(at_urgent, everything))
    assert len({doc[ID] for doc in everything}) == len(everything) == 2 * EACH
    for place in (0, 10, EACH, 2 * EACH - 100):
        page = store(
            find_all("jobs", where, limit=10, sort=URGENT, after=cursor(everything[place], URGENT), fields=fields)
        )
        assert page == everything[place + 1 : place + 11]
        used, keys = explained(client, database)
        assert "SORT" not in used
        assert keys < 40


def at_urgent(doc: Document) -> tuple[object, ...]:
    return sort_key(doc, URGENT)


async def paged(where: Any, limit: int, fields: Fields) -> tuple[Document, ...]:
    found: tuple[Document, ...] = ()
    after: Any = ()
    while page := await find_all("jobs", where, limit=limit, sort=URGENT, after=after, fields=fields):
        found, after = (*found, *page), cursor(page[-1], URGENT)
    return found


def test_who_takes_the_first_takes_it_alone(mongodb: str, database: str) -> None:
    with connect(mongodb) as client, ThreadPoolExecutor(8) as pool:
        store = Mongo(client, database, indexes=INDEXES)
        for number in Random(5).sample(range(120), 120):
            job = {"_id": number, "state": "free", "priority": number % 4, "due_at": Instant(number * MILLISECOND)}
            assert store(insert_one("jobs", Document.of(job))) is None

        def work(who: str) -> list[Document]:
            taken: list[Document] = []
            while True:
                job = store(find_one_and_update("jobs", Eq(STATE, "free"), Put(STATE, who), sort=URGENT))
                if job is None:
                    return taken
                assert isinstance(job, Document)
                taken.append(job)

        each = [*pool.map(work, map(str, range(8)))]
    assert sorted(job[ID] for taken in each for job in taken) == [*range(120)]
    for taken in each:
        assert [*map(at_urgent, taken)] == sorted(map(at_urgent, taken))


def test_indexes_are_made_once_by_whoever_comes_first(mongodb: str, database: str) -> None:
    with MongoClient[dict[str, Any]](mongodb) as client, ThreadPoolExecutor(8) as pool:
        stores = [Mongo(client, database, {"jobs": ((OWNER,),)}, INDEXES) for _ in range(4)]
        assert {*pool.map(lambda n: stores[n % 4](find_one("jobs", Eq(ID, n))), range(16))} == {None}
        made = client[database].jobs.index_information()
        assert [*made] == ["_id_", "owner_1", "state_1_priority_-1_due_at_1__id_1", "owner_1__id_1"]
        assert made["owner_1__id_1"]["partialFilterExpression"] == {"owner": {"$exists": True}}

        async def looped() -> object:
            async with await connect_async(mongodb) as looping:
                return await AsyncMongo(looping, database, indexes=INDEXES)(find_one("jobs", Eq(ID, 1)))

        assert in_loop(looped()) is None
        assert client[database].jobs.index_information() == made
        with pytest.raises(Misuse):
            Mongo(client, database, indexes={"jobs": (OWNER,)})  # type: ignore[dict-item]


def test_a_reactive_task_finds_what_is_due_by_its_index(client: MongoClient[dict[str, Any]], database: str) -> None:
    task, now = ReactiveTask(name="bill", source="orders"), process_clock()
    store = Mongo(client, database, indexes=task.indexes)
    store(find_one(task.records, Eq(ID, "none")))
    records: list[dict[str, Any]] = [{"_id": f"bill/{n}", "task": "bill"} for n in range(3_000)]
    for n in range(0, 3_000, 10):
        records[n]["next_run_at"] = stored(now + (n - 1_500) * SECOND)
    client[database][task.records].insert_many(records)
    found = store(find_one(task.records, task.fetcher.due, sort=(Ascending(Field("next_run_at")),)))
    assert isinstance(found, Document)
    assert found[ID] == "bill/0"
    used, keys = explained(client, database)
    assert "SORT" not in used
    assert keys < 5


def test_a_pass_of_recovery_reads_what_is_not_finished_and_no_more(
    client: MongoClient[dict[str, Any]], database: str
) -> None:
    recoverer = Recoverer(me="r", dead_after=MINUTE)
    store = Mongo(client, database, indexes=recoverer.indexes)
    client[database].invocations.insert_many(
        [{"_id": f"{n:04}", "status": OPEN[n % len(OPEN)] if n % 5 == 0 else "success"} for n in range(EACH)]
    )
    after: tuple[str, ...] = ()
    for _ in range(2):
        found = store(find_all("invocations", In(STATUS, OPEN), limit=ITEMS_MAX, after=after))
        assert isinstance(found, tuple)
        assert len(found) == ITEMS_MAX
        used, keys = explained(client, database)
        assert "SORT" not in used
        assert keys <= ITEMS_MAX + len(OPEN)
        after = (found[-1][Field[str]("_id")],)


def test_a_process_reads_what_is_in_its_name_and_nothing_of_others(
    client: MongoClient[dict[str, Any]], database: str
) -> None:
    """Each heartbeat uses an index that an app makes."""
    app = Orchestrator(Embedded(), "jobs")
    names, handle = app.collections, choosing(documents(Mongo(client, database, indexes=app.indexes)), local())
    client[database][names.invocations].insert_many(
        [
            {"_id": f"{n:04}", "status": ("running", "pending")[n // 100 % 2], "owner": f"w{n % 100}", "version": 2}
            for n in range(EACH)
        ]
    )
    found = run(heed(names.invocations, "w7", ()), handle)
    assert len(found.untracked) == EACH // 100
    used, keys = explained(client, database)
    assert "COLLSCAN" not in used
    assert keys <= EACH // 100 + 2 * len(OPEN)


def test_a_glance_reads_what_is_due_of_all_its_tasks_and_nothing_else(
    client: MongoClient[dict[str, Any]], database: str
) -> None:
    """By the partial index that `take` uses too."""
    now, tasks = process_clock(), ("bill", "ship", "tell")
    made = ReactiveTask(name="bill", source="orders").indexes
    handle = choosing(documents(Mongo(client, database, indexes=made)), local())
    ((records, _),) = made.items()
    due = {number: now + (60 + number) * SECOND for number in range(0, EACH, 2)} | {
        0: now + -SECOND,
        2: now + -2 * SECOND,
    }
    each = ({"document": number, **({"next_run_at": due[number]} if number in due else {})} for number in range(EACH))
    docs = [Document.of({"_id": f"{task}{of['document']}", "task": task, **of}) for of in each for task in tasks]
    client[database][records].insert_many([stored(doc) for doc in docs])
    found = run(dues(records, tasks, SECOND), handle)
    assert found == tuple((task, 0) for task in tasks)
    used, keys = explained(client, database)
    assert not used & {"COLLSCAN", "SORT"}
    assert keys <= len(tasks) * (2 + 2)
