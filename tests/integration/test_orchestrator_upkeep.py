"""What nobody needs any more goes by indexes, a page at a time, however much stays: on a real MongoDB with thousands of documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, TypeVar

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent
from tests.integration.test_mongo_orders import stages

from tidegate.model.effects import Program
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import StoreTime
from tidegate.triggers.conditions import OnEvent, condition_id
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.firing import Fired, Firing, GivenUp, Held, TriggerRun
from tidegate.triggers.trigger import Occurrence, Trigger
from tidegate.triggers.trigger_documents import stored_occurrence, stored_run
from tidegate_adapters.bson_values import stored
from tidegate_adapters.driver import choosing, documents, local
from tidegate_adapters.driver import run as run_by
from tidegate_adapters.mongo import Mongo

Raw: TypeAlias = dict[str, Any]
T = TypeVar("T")
HOUR: Final = 60 * MINUTE
A: Final = OnEvent("a")
B: Final = OnEvent("b")
ON_A: Final = Trigger(task="t", conditions=(A,))
ON_BOTH: Final = Trigger(task="t", conditions=(A, B), within=HOUR)


class Commands(CommandListener):
    """What was asked for."""

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
    """What a program asks for: its finds and deletes."""
    COMMANDS.asked.clear()
    run(program, store)
    return [each for each in COMMANDS.asked if {"find", "delete"} & each.keys()]


def examined(client: MongoClient[Raw], database: str, command: Raw) -> int:
    """How many keys and documents the server looks at for it, at most; it sorts none, and walks through no collection."""
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
    """Law TE11: of thousands, beside thousands that stay; what waits keeps its run, and the last one of a set stays."""
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
    assert run(evaluator.purge(), store) is True  # the indexes are made
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
    )  # of each page: itself, what waits in a request or two, the last of a trigger, and what goes
    assert run(evaluator.purge(), store) is True
    assert {each["_id"] for each in client[database].runs.find({}, {})} == stay

    for command in commands:
        if command.get("find") == "runs":
            assert examined(client, database, command) <= 10, command


def test_a_purge_of_runs_ends_when_its_time_is_over(client: MongoClient[Raw], database: str) -> None:
    """After the first page in any case, and the next one goes on."""
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
