"""Fetching from a queue on a real MongoDB, by many runners and by its index."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent

from tidegate.invocations.queue.enqueueing import Enqueue, NewInvocation
from tidegate.invocations.queue.fetching import Takeable, Taken, Taker
from tidegate.invocations.record.jobs import Job
from tidegate.model.instants import MINUTE
from tidegate.retries import contention
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.runtime.driver import choosing, documents, local, run

Client = MongoClient[dict[str, Any]]
TASKS: Final = (Takeable("send"), Takeable("bill"))


class Asked(CommandListener):
    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in {"find", "update", "insert", "findAndModify", "aggregate"}:
            self.commands.append(dict(event.command))

    def succeeded(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def client(mongodb: str, asked: Asked) -> Iterator[Client]:
    with Client(mongodb, event_listeners=[asked]) as made:
        yield made


def taker(runner: str, *queues: str) -> Taker:
    return Taker(runner=runner, queues=queues or ("default",), tasks=TASKS)


def opened(client: Client, database: str) -> Mongo:
    return Mongo(client, database, indexes=taker("r").indexes)


def enqueued(store: Mongo, wanted: list[NewInvocation]) -> None:
    for start in range(0, len(wanted), 1_000):
        some = tuple(wanted[start : start + 1_000])
        run(Enqueue(wanted=some, request="made").run(), choosing(documents(store), local()))


def took(store: Mongo, by: Taker, most: int, factor: int = 1, turn: str | None = None) -> Taken:
    return run(by.take(most, factor, turn), choosing(documents(store), local()))


def test_of_many_runners_each_run_is_one_runners(client: Client, database: str, asked: Asked) -> None:
    """Laws TA1 and TA2: at most 1.5 commands a claim when there is a choice."""
    store, how_many, most = opened(client, database), 2_000, 10
    enqueued(store, [NewInvocation(f"{number:05}", Job(task="send")) for number in range(how_many)])
    asked.commands.clear()

    def works(number: int) -> list[str]:
        mine, keys, factor = taker(f"runner {number}"), list[str](), 1
        while (found := took(store, mine, most, factor)).is_more or found.runs or found.lost:
            keys += [each.key for each in found.runs]
            factor = contention.widened(factor, len(found.runs), found.lost)
        return keys

    with ThreadPoolExecutor(8) as pool:
        told = [key for keys in pool.map(works, range(8)) for key in keys]
    assert sorted(told) == [f"{number:05}" for number in range(how_many)]
    records = [*client[database].invocations.find()]
    assert {(each["status"], each["version"], each["tries"], "due" in each) for each in records} == {
        ("running", 2, 1, False)
    }
    assert len(asked.commands) <= 1.5 * how_many


def explained(client: Client, database: str, command: dict[str, Any]) -> tuple[set[str], int, int]:
    wanted = {key: held for key, held in command.items() if key in {"find", "filter", "sort", "limit", "projection"}}
    plan = client[database].command("explain", wanted, verbosity="executionStats")
    stats = plan["executionStats"]
    return stages(plan["queryPlanner"]["winningPlan"]), stats["totalKeysExamined"], stats["totalDocsExamined"]


def stages(plan: Any) -> set[str]:
    if isinstance(plan, dict):
        own = {plan["stage"]} if "stage" in plan else set()
        return own.union(*map(stages, plan.values()))
    return set[str]().union(*map(stages, plan)) if isinstance(plan, list) else set()


def filled(client: Client, database: str, ended: int) -> Mongo:
    store = opened(client, database)
    now = datetime.now(UTC)
    client[database].invocations.insert_many(
        [
            {
                "_id": f"ended {number}",
                "status": "success",
                "owner": None,
                "version": 3,
                "changed_at": now,
                "created_at": now,
            }
            | {"task": "send", "queue": "default", "priority": number % 3, "arguments": {}, "tries": 1, "history": []}
            for number in range(ended)
        ]
    )
    enqueued(
        store,
        [
            NewInvocation(f"{when} {number}", Job(task="send", priority=number % 5, queue=queue, tenant=tenant), due)
            for when, due in (("now", 0), ("later", 60 * MINUTE))
            for queue in ("default", "mail")
            for tenant in ("ann", "bob", None)
            for number in [hash_of(queue, tenant, each) for each in range(500)]
        ],
    )
    return store


def hash_of(queue: str, tenant: str | None, number: int) -> int:
    return number + 1_000 * ["ann", "bob", None].index(tenant) + 10_000 * (queue == "mail")


def test_a_look_reads_what_it_takes_however_many_wait_or_have_ended(
    client: Client, database: str, asked: Asked
) -> None:
    store = filled(client, database, 20_000)
    by = taker("r", "default", "mail")
    asked.commands.clear()
    turn: str | None = None
    for _ in range(5):
        found = took(store, by, 20, 1, turn)
        turn = found.turn
        assert len(found.runs) == 20
    finds = [each for each in asked.commands if "find" in each]
    assert len(finds) == 5 or len(finds) == 6  # one more after the last tenant
    for find in finds:
        used, keys, docs = explained(client, database, find)
        assert "SORT" not in used
        assert docs <= 25
        assert keys <= 60


def test_who_finds_nothing_is_told_by_an_index_when_the_next_is_due(
    client: Client, database: str, asked: Asked
) -> None:
    """Law TA7: by the store's time, with clocks two minutes apart."""
    store = filled(client, database, 1_000)
    client[database].invocations.delete_many({"due": {"$lt": datetime.now(UTC) + timedelta(minutes=1)}})
    asked.commands.clear()
    found = took(store, taker("r", "default", "mail"), 20)

    assert found.due_in is not None
    assert 55 * MINUTE < found.due_in <= 60 * MINUTE
    for find in [each for each in asked.commands if "find" in each]:
        used, keys, docs = explained(client, database, find)
        assert "SORT" not in used
        assert docs <= 1
        assert keys <= 60
