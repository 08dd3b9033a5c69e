"""Mistakes that newcomers made on purpose: the message shows what is wrong and what to write.

The ids are row numbers of that list. Python itself answers 2 and 3 (a missing argument), 36 (a
coroutine not awaited), 43 (a mutable default) and 72 (a dropped value). Comments name the tests of
mistakes that need a server or a process of their own.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

import attrs
import pymongo
import pytest
from bson import Timestamp

from tidegate import sim
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.offsets.watermark import OffsetTracker, completed
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.errors import Misuse
from tidegate.model.operations import find_one, update_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Exponential, Fixed, Linear, Policy, Series
from tidegate.services.atomic_service import AtomicService, Runner
from tidegate.services.retention import Retention
from tidegate.sim import Process, Scenario, factory, world_with
from tidegate.sinks.circuit_breaker import CircuitBreaker
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.exploring import targets
from tidegate_adapters.kafka.worker import Later, OnFailure, Worker
from tidegate_adapters.kit.leases import lease
from tidegate_adapters.kit.payloads import AsyncPayloads, Payloads
from tidegate_adapters.kit.resilience import Rules
from tidegate_adapters.mongo import Mongo, connect
from tidegate_adapters.orchestrator import Orchestrator, Rate, on_cron, on_event
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.turns import ServiceRules
from tidegate_adapters.reactive import CleanUp, Debounce, Reactive
from tidegate_adapters.reactive.admin import Office
from tidegate_adapters.reactive.changes import Change, SyncChange
from tidegate_adapters.shell.configuration import configured, from_arguments, from_environment
from tidegate_adapters.testing.event_loop import stall

Row = tuple[str, Callable[[], object], str]
"""Row number, mistake, and the expected message with alternatives separated by bars."""

FIVE: Final = timedelta(seconds=5)
ONE: Final = Eq[Any](ID, 1)

# --- worker, reactive and orchestrator ----------------------------------------------------------------------------------


async def handle(record: object) -> None: ...


async def handle_nothing() -> None: ...


async def handle_text(record: object) -> Any:
    return f"{record}"


async def task(x: int) -> None: ...


def untyped(xs: Any) -> None: ...


def worker(topics: Any = ("orders",), handler: Any = handle, **told: Any) -> Worker:
    return Worker(topics, handler, **{"bootstrap": "b:1", "group": "g", **told})


def app() -> Any:
    return Orchestrator(Embedded(), "jobs")


def reactive() -> Any:
    return Reactive("mongodb://localhost", database="shop")


def called(use: Callable[[Any], Awaitable[object]], handler: Any = task) -> Callable[[], object]:
    async def run() -> object:
        office = app()
        try:
            return await use(office.task()(handler))
        finally:
            await office.close()

    return lambda: asyncio.run(run())


def result_in(timeout: Any) -> Callable[[], object]:
    async def use(of: Any) -> object:
        return await (await of.enqueue(1)).result(timeout=timeout)

    return called(use)


def taken_over(quiet: Any) -> Callable[[], object]:
    place: Any = SimpleNamespace(name="shop")
    shop = reactive()
    shop.task("orders")(handle)
    office = Office(each.at(place) for each in shop.declared.values())
    return lambda: asyncio.run(office.take_over("handle", "theirs", quiet=quiet))


def throttled(kind: Any, length: Any) -> Callable[[], object]:
    return lambda: kind.throttle(Mock(), length)


def swept(older_than: Any) -> Callable[[], object]:
    return lambda: Payloads(pymongo.MongoClient(connect=False), "shop").sweep(older_than)


def swept_async(older_than: Any) -> Callable[[], object]:
    async def run() -> object:
        return await AsyncPayloads(pymongo.AsyncMongoClient(connect=False), "shop").sweep(older_than)

    return lambda: asyncio.run(run())


def leased(**told: Any) -> Callable[[], object]:
    def run() -> None:
        with (
            pymongo.MongoClient[Any]("mongodb://localhost:1", connect=False) as client,
            lease(Mongo(client, "shop"), "x", **told),
        ):
            pass

    return run


async def enqueue_plainly(of: Any) -> object:
    return of.enqueue_sync(1)


async def serve_twice() -> None:
    office = app()
    office.task()(task)
    async with office.testing():
        await office.serve()


async def return_text() -> None:
    async with worker(handler=handle_text).testing() as given:
        outcome = await given({"topic": "orders", "value": "x"})
        raise Misuse(f"{outcome.handled} handled, {outcome.failed} failed")


def two_tasks() -> None:
    office = app()
    office.task()(task)
    office.task()(task)


APPS: Final[tuple[Row, ...]] = (
    ("1", lambda: worker("orders"), "topics must be a list of names, got 'orders' | help: write ['orders']"),
    ("4", lambda: worker(handler=5), "a handler of records must be callable, got int 5 | help: pass a function of one record"),
    ("5", lambda: worker(handler=handle_nothing), "cannot be called with one record | help: write async def handle_nothing(record)"),
    ("6", lambda: asyncio.run(return_text()), "0 handled, 1 failed"),
    ("7", lambda: worker(retries="3"), "a number of retries must be an integer from 0 on, got '3' | help: write 3"),
    ("8", lambda: worker(timeout=30), "timeout must be a timedelta, got int 30 | help: write timedelta(seconds=30)"),
    ("9", lambda: worker(handler_timeout=FIVE), "handler_timeout is not an option | help: did you mean timeout?"),
    ("10", lambda: Later(5), "delay must be a timedelta, got int 5 | help: write timedelta(seconds=5)"),  # type: ignore[arg-type]
    ("11", lambda: worker(executors=5), "executors is not an option of a worker | help: did you mean concurrency?"),
    ("12", lambda: worker(on_failure="skip"), "on_failure must be an OnFailure, got str | help: write OnFailure.SKIP"),
    ("13", lambda: worker(on_failure=OnFailure.DEAD_LETTER), "no topic for them | help: pass dead_letter="),
    ("14", lambda: targets.attribute("nosuch:app"), "cannot load nosuch | why: ModuleNotFoundError"),
    ("15", lambda: targets.attribute("a1.py"), "'a1.py' names nothing | help: write path.py:attr or module:attr"),
    ("16", lambda: configured(worker().settings, from_arguments(["concurency=5"])), "no setting concurency | help: did you mean concurrency?"),
    ("17", lambda: from_environment({"TIDEGATE_WORKR__GROUP": "g"}, "worker"), "no setting workr | help: did you mean worker?"),
    # 18: tests/integration/test_configuration.py::test_a_file_that_cannot_be_used_says_why
    # 19: tests/integration/test_kafka_topics.py::test_a_topic_that_is_not_there_is_consumed_once_it_is
    # 20, down: tests/integration/test_shell.py::test_what_cannot_be_says_why
    ("20", lambda: worker(bootstrap="kafka://x"), "'kafka://x' is not the address of a broker"),
    ("21", lambda: reactive().task(handle), 'a task without a collection | help: write @app.task("orders"), with parentheses'),
    ("22", lambda: app().task(task), "a task without options | help: write @app.task(), with parentheses"),
    ("23", lambda: reactive().task("orders", watch="total")(handle), "watch='total' is one text | help: write watch=['total']"),
    ("24", lambda: app().task(backoff=10)(task), "backoff must be a timedelta, got int 10 | help: write timedelta(seconds=10)"),
    ("24 delay", called(lambda of: of.enqueue(1, delay=5)), "delay must be a timedelta, got int 5 | help: write timedelta(seconds=5)"),
    ("25", result_in(5), "timeout must be a timedelta, got int 5 | help: write timedelta(seconds=5)"),
    ("25 drain", lambda: Orchestrator(Embedded(), "x", drain=5), "drain must be a timedelta, got int 5"),  # type: ignore[arg-type]
    ("26", lambda: reactive().task("orders", filter={}), "filter is not an option of app.task | help: did you mean where?"),
    ("26 retry", lambda: app().task(retry=3), "retry is not an option of app.task | help: did you mean retries?"),
    ("26 app", lambda: Orchestrator(Embedded(), "x", colour=3), "colour is not an option of Orchestrator | help: there are: concurrency"),  # type: ignore[arg-type]
    ("27", two_tasks, "there are two tasks 'task' | help: pass another name="),
    # 28: tests/integration/test_mongo_errors.py::test_a_server_that_does_not_answer_is_named
    # 29: tests/integration/test_mongo_errors.py::test_a_mongod_that_is_not_a_replica_set_is_named
    # 30: tests/integration/test_mongo_errors.py::test_a_replica_set_of_another_name_is_named
    ("31", lambda: Orchestrator("localhost:27017", "x"), "uri must begin with mongodb:// | help: write mongodb://host:port/"),
    ("32", lambda: connect("http://x"), "http://x cannot be used | help: write mongodb:// | percent-encoded"),
    ("33", called(lambda of: of.enqueue(n for n in [1]), untyped), "the argument xs of untyped must be a value of JSON, got generator | help: pass"),
    ("34", called(lambda of: of.enqueue("seven")), "the argument x of task must be an int, got str | help: pass what the annotation says"),
    ("35", lambda: app().task()(lambda x: x), "a lambda has no name for its task | help: pass name="),
    ("37", called(lambda of: of.enqueue()), "missing a required argument: 'x' | help: it is task(x: int)"),
    ("38", lambda: on_cron("every 5 minutes"), "'every 5 minutes' has 3 fields | a cron expression has five"),
    ("39", lambda: app().task()(task).delay(1), "a task has no delay: write await <task task>.enqueue(...)"),
    ("40", called(enqueue_plainly), "a plain function in an event loop | help: await enqueue()"),
    ("41", lambda: app().task(timeout=FIVE)(untyped), "a thread cannot be interrupted | help: make it an async def, pass processes=True"),
    ("42", lambda: asyncio.run(serve_twice()), "is served already | help: serve another one"),
    # 44: tests/integration/test_loop_watch.py::test_a_handler_that_holds_up_the_loop_is_named
    ("45", lambda: OrchestratorSettings(database="x", dead_after=timedelta(seconds=1)), "dead_after=0:00:01 is too short | help: make it longer than beat_every=0:00:05"),
    ("46", lambda: OrchestratorSettings(database="x", page_port=1, page_host="0.0.0.0"), "without a token | help: set page_token"),  # noqa: S104
    # 47: tests/integration/test_shell.py::test_what_cannot_be_says_why
    ("48", lambda: on_cron("* * * * *", zone="Europe/Brlin"), "no time zone 'Europe/Brlin' | help: name one as"),
    ("48 retry_for", lambda: app().task(retry_for="ValueError")(task), "'ValueError', which is no class of errors | help: write retry_for="),
    ("48 triggers", lambda: app().task(triggers=on_cron("* * * * *"))(untyped), "triggers must be an Iterable, got When | help: write triggers=["),
    ("48 database", lambda: Orchestrator(Embedded()), 'an app needs a database | help: write Orchestrator(uri, database="jobs")'),
)  # fmt: skip

WORSE: Final = {"5": 5, "naive": datetime(2026, 1, 1), "negative": timedelta(seconds=-5)}  # noqa: DTZ001
SAID: Final = {
    "5": "{what} must be a timedelta, got int 5 | help: write timedelta(seconds=5)",
    "naive": "{what} must be a timedelta, got datetime | help: write timedelta(seconds=...)",
    "negative": "{what}=-0:00:05 is too short | why: the least is {least} | help: write timedelta({written}) or longer",
}
LENGTHS: Final[tuple[tuple[str, str, Callable[[Any], Callable[[], object]]], ...]] = (
    ("stall", "length", lambda wrong: lambda: stall(wrong)),
    ("take_over", "quiet", taken_over),
    ("throttle", "length", lambda wrong: throttled(Change, wrong)),
    ("throttle sync", "length", lambda wrong: throttled(SyncChange, wrong)),
    ("result", "timeout", result_in),
    ("sweep", "older_than", swept),
    ("sweep async", "older_than", swept_async),
    ("delay", "delay", lambda wrong: called(lambda of: of.enqueue(1, delay=wrong))),
    ("late", "late", lambda wrong: lambda: on_cron("* * * * *", late=wrong)),
    ("within", "within", lambda wrong: lambda: (on_event("a") & on_event("b")).within(wrong)),
    ("rate", "per", lambda wrong: lambda: Rate(1, per=wrong)),
    ("lease", "patience", lambda wrong: leased(patience=wrong)),
    ("kit", "attempt", lambda wrong: lambda: Rules(attempt=wrong)),
)
POSITIVE: Final = {"within", "per", "patience", "attempt"}


def lengths() -> Iterator[Row]:
    for place, what, use in LENGTHS:
        least, written = ("1 us", "microseconds=1") if what in POSITIVE else ("0 s", "0")
        for name, wrong in WORSE.items():
            yield f"{place} {name}", use(wrong), SAID[name].format(what=what, least=least, written=written)


MICROSECONDS: Final = "| why: a number counts microseconds | help: write timedelta(seconds=30)"
TIMES: Final[tuple[Row, ...]] = (
    *lengths(),
    ("due 5", called(lambda of: of.enqueue(1, due=5)), "due must be a datetime, got int 5 | help: write datetime.now(UTC) +"),
    ("due naive", called(lambda of: of.enqueue(1, due=WORSE["naive"])), "due=2026-01-01 00:00:00 has no time zone | help: write datetime(..., tzinfo=UTC)"),
    ("start 5", lambda: worker(start_time=5), "start_time must be a datetime, got int 5 | help: write datetime(..., tzinfo=UTC)"),
    ("start naive", lambda: worker(start_time=WORSE["naive"]), "start_time=2026-01-01 00:00:00 has no time zone | help: write"),
    ("no loop", lambda: stall(FIVE), "cannot stall no loop | help: call it in a run"),
    ("worker backoff", lambda: worker(backoff=Fixed(30)), f"backoff.interval is 30 us {MICROSECONDS}"),
    ("worker drain", lambda: worker(consumer=ConsumerRules(partition=PartitionRules(drain=Budget(30)))), f"consumer.partition.drain.total is 30 us {MICROSECONDS}"),
    ("series", lambda: app().task(backoff=Series((0, 30)))(task), f"backoff.intervals is 30 us {MICROSECONDS}"),
    ("policy", lambda: app().task(retries=Policy(backoff=Exponential(30)))(task), f"retries.backoff.first is 30 us {MICROSECONDS}"),
    ("keep", lambda: ServiceRules(keep=Retention(age=30)), f"keep.age is 30 us {MICROSECONDS}"),
    ("debounce", lambda: reactive().task("orders", debounce=Debounce(30))(handle), f"debounce.quiet is 30 us {MICROSECONDS}"),
    ("cleanup", lambda: reactive().task("orders", cleanup=CleanUp(keep_for=30))(handle), f"cleanup.keep_for is 30 us {MICROSECONDS}"),
    ("types are resolved", lambda: app().task(backoff=attrs.resolve_types(Linear, include_extras=True)(30))(task), f"backoff.interval is 30 us {MICROSECONDS}"),
    ("terms", leased(terms=Terms(ttl=30, heartbeat=10, margin=1)), f"terms.ttl is 30 us {MICROSECONDS}"),
    ("pauses", leased(pauses=Pauses(Fixed(30))), f"pauses.delays.interval is 30 us {MICROSECONDS}"),
    ("breaker", lambda: Rules(breaker=CircuitBreaker(cooldown=30)), f"breaker.cooldown is 30 us {MICROSECONDS}"),
    ("interval", lambda: AtomicService(interval=30, spread=0), f"interval=30 is 30 us {MICROSECONDS}"),
    ("spread", lambda: AtomicService(spread=30), f"spread=30 is 30 us {MICROSECONDS}"),
    ("stabilisation", lambda: AtomicService(stabilisation=30), f"stabilisation=30 is 30 us {MICROSECONDS}"),
    ("interval naive", lambda: AtomicService(interval=WORSE["naive"]), "interval must be a timedelta, got datetime"),  # type: ignore[arg-type]
    ("created 5", lambda: Runner("a", 5), "created must be an Instant, got int 5 | help: pass a datetime with a time zone"),  # type: ignore[arg-type]
)  # fmt: skip


# --- programs and scenarios ---------------------------------------------------------------------------------------------


async def finds() -> None:
    await find_one("jobs", ONE)


async def forgets() -> None:
    find_one("jobs", ONE)  # type: ignore[unused-awaitable]


async def forgets_one() -> None:
    find_one("jobs", ONE)  # type: ignore[unused-awaitable]
    await find_one("jobs", ONE)


async def names_a_field() -> None:
    found: Any = await find_one("jobs", ONE)
    found["u"]


async def raw_filter() -> None:
    where: Any = {"_id": 1}
    await find_one("jobs", where)


async def raw_update() -> None:
    update: Any = {"$set": {"u": 1}}
    await update_one("jobs", ONE, update)


async def sleeps() -> None:
    await asyncio.sleep(1)


async def reads_a_clock() -> None:
    if time.time() > 0:
        await find_one("jobs", ONE)


async def draws() -> None:
    if random.random() < 0.5:
        await find_one("jobs", ONE)
    await find_one("jobs", ONE)


async def asks_pymongo() -> None:
    with pymongo.MongoClient[Any]("mongodb://localhost:1", serverSelectionTimeoutMS=1) as client:
        client.d.jobs.find_one()


def plain() -> Any:
    return 5


def scenario(program: Any = finds, laws: Any = None, actors: Any = None, **told: Any) -> Scenario:
    world = world_with({"jobs": (Document.of({"_id": 1, "u": None}),)})
    return Scenario(
        name="s", summary="s", **{"world": world, **told}, actors=actors or (Process("a", factory(program)),),
        always={"holds": lambda _: True} if laws is None else laws,
    )  # fmt: skip


def explored(*args: Any, **told: Any) -> Callable[[], object]:
    def run() -> None:
        report = sim.explore(scenario(*args, **told))
        first = "" if report.trace is None else str(report.trace.initial)
        raise Misuse(f"{first} {report.uncovered}")

    return run


def coroutine(use: Callable[[Any], object]) -> Callable[[], object]:
    def run() -> object:
        made = finds()
        try:
            return use(made)
        finally:
            made.close()

    return run


SIMULATED: Final[tuple[Row, ...]] = (
    ("49", explored(forgets), "find_one(...) makes an effect that is never awaited | help: write `await find_one(...)`"),
    ("50", explored(forgets_one), "find_one(...) makes an effect that is never awaited | help: write `await find_one(...)`"),
    ("51", explored(names_a_field), 'a field must be a Field, got str | help: name it with the type of what it holds, as in Field[int]("count")'),
    ("52", explored(raw_filter), "a filter must be one of Eq, | got dict | help: write a term, such as Eq(ID, ...)"),
    ("53", explored(raw_update), "an update must be one of Put, | got dict | help: write Put(field, value) for $set"),
    ("54", explored(sleeps), "no running event loop: a program awaits effects and nothing of asyncio: write await Sleep(...)"),
    ("55", explored(reads_a_clock), "uses time.time | read the time with an effect"),
    ("56", explored(draws), "random.random | help: keep it in a local of an immutable kind, pass it as an argument, or ask for it with an effect"),
    ("57", explored(asks_pymongo), "a program asks the database by effects: write await find_one(...), and nothing of pymongo"),
    ("58", explored(plain), "an int is no program | help: write Process('a', factory(program | with an `async def` as the program"),
    ("59", explored(actors=(Process("a", finds),)), "takes 0 positional arguments but 1 was given | help: write Process('a', factory(program"),  # type: ignore[arg-type]
    ("60", coroutine(partial(Process, "a")), 'must be callable, got coroutine | help: write Process("a", factory(program'),
    ("60 in factory", coroutine(factory), 'must be callable, got coroutine | help: write factory(program, "argument")'),
    ("61", explored(laws={"holds": lambda state: state.status("bob") is None}), '"bob" stands, which is no process | help: the processes are: a'),
    ("62", explored(laws={"holds": lambda state: not sim.contents(state, "jbos")}), "the collection 'jbos', which no state has | did you mean 'jobs'?"),
    ("63", explored(laws={"holds": lambda _: None}), "the law 'holds' answered None | help: write a plain `def` that returns True or False"),
    ("63 none", explored(laws={}), "no law is stated, so none can be broken"),
    ("63 list", explored(laws=[print]), 'must be a Mapping, got list | help: write {"what holds": lambda state: ...}'),
    ("63 world", explored(world={}), 'the world must be made by world_with, got dict | help: write world_with({"rows"'),
    ("63 faults", lambda: Process("a", factory(finds), ["crash"]), "must be a Faults, got list | help: write Faults.of("),  # type: ignore[arg-type]
    ("64", lambda: scenario(actors=(Process("a", factory(finds)),) * 2), "two actors have one name: ['a', 'a'] | help: rename one"),
    # 65: tests/properties/sim/test_growth.py::test_what_grows_is_named
    # 66: tests/properties/sim/test_liveness.py::test_a_law_about_rest_that_a_dead_process_breaks_says_what_a_restart_means
    ("67", lambda: sim.explore(finds), "must be a Scenario, got function | a program becomes one by Scenario("),  # type: ignore[arg-type]
    # 68: tests/integration/test_pytest_plugin.py::test_a_mark_that_says_what_there_is_not_is_refused
    # 69: tests/integration/test_testing.py::test_a_deadlock_says_who_waits_where
    ("70", lambda: OffsetTracker(None), "None is not a position | help: pass the position at which the consumer begins: OffsetTracker(0)"),  # type: ignore[arg-type]
    ("70 confluent", lambda: OffsetTracker(-1001), "-1001 is not a position | help: pass the position at which the consumer begins"),
    ("71", lambda: completed(OffsetTracker(40), 40), "40 is not a batch | help: pass a tuple"),  # type: ignore[arg-type]
    ("73", lambda: Runner("a", datetime(2026, 1, 1)), "has no time zone | attach its tzinfo"),  # noqa: DTZ001
    ("74", lambda: Document.of({"_id": 1, "d": Timestamp(1, 1)}), "a Timestamp cannot stand in a document | where: d | a type that only BSON has is a Foreign"),
)  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), [pytest.param(*row[1:], id=row[0]) for row in (*APPS, *TIMES, *SIMULATED)])
def test_a_mistake_is_answered_by_what_to_do(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011  of one row Python says it: there is no such attribute
        wrong()

    said = str(refused.value)
    at = 0
    for part in words.split(" | "):
        at = said.find(part, at)
        assert at >= 0, f"{part!r} is not in {said!r}"


def test_the_tests_that_the_table_names_are_there() -> None:
    named = re.findall(r"    # [\w, ]+: (tests/\S+)::(\w+)\n", Path(__file__).read_text("utf-8"))
    assert len(named) == 12
    assert [
        test for file, test in named if f"def {test}(" not in (Path(__file__).parents[2] / file).read_text("utf-8")
    ] == []
