"""The orchestrator as an application uses it, on a real MongoDB and on the embedded store."""

# ruff: noqa: SLF001  tests set the state that a heartbeat finds

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, final

import attrs
import pytest
from pymongo import AsyncMongoClient, MongoClient, ReadPreference
from tests.integration import orchestrator_children as children
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer

from tidegate.invocations.admin.commands import Command
from tidegate.invocations.admin.invocation_queries import InvocationQuery
from tidegate.invocations.queue.completion import RunError
from tidegate.invocations.worker.worker import Held
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, WALL, Instant, moment
from tidegate.model.operations import delete_one, find_all
from tidegate.retries.polling import PollingBounds
from tidegate.work.vocabulary import Heartbeat, HeartbeatReply, Run
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.kit.payloads import AsyncPayloads, PayloadUnsettled
from tidegate_adapters.mongo import connect_async
from tidegate_adapters.mongo.bson import natural
from tidegate_adapters.mongo.clients import close_shared
from tidegate_adapters.orchestrator import (
    Handle,
    InvocationAbsent,
    InvocationCancelled,
    InvocationFailed,
    Later,
    MaxRunning,
    Orchestrator,
    Rate,
    Task,
    Unfinished,
    on_event,
    on_exception,
)
from tidegate_adapters.orchestrator.children import ChildCall, Children, _called
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.turns import ServiceRules
from tidegate_adapters.orchestrator.workers import Workers
from tidegate_adapters.runtime import driver
from tidegate_adapters.testing.app import OnEmbedded

Raw: TypeAlias = dict[str, Any]
STORES: Final = ("mongod", "embedded")
PATIENCE_S: Final = 60.0
AT_ONCE: Final = timedelta(0)
QUICKLY: Final = timedelta(milliseconds=100)
QUICK: Final[Raw] = {
    "polling": PollingBounds(least=20 * MILLISECOND, most=100 * MILLISECOND, jitter=0),
    "beat_every": timedelta(milliseconds=50),
    "paused_every": timedelta(milliseconds=50),
    "result_every": timedelta(milliseconds=20),
    "services": ServiceRules(recover="0 0 1 1 *", purge="0 0 1 1 *"),
}


@attrs.frozen
class Mail:
    to: str
    at: datetime | None = None


@final
class Office:
    def __init__(self, client: AsyncMongoClient[Raw] | None, database: str) -> None:
        self.client, self.name = client, database
        self.store: Any = Embedded() if client is None else client

    def app(self, **settings: Any) -> Orchestrator:
        told = OrchestratorSettings(**{"database": self.name, **QUICK, **settings})
        return Orchestrator(self.store, settings=told)

    async def records(self, collection: str = "orchestrator_invocations") -> list[Raw]:
        if self.client is not None:
            return await self.client[self.name][collection].find().sort("_id").to_list()
        found = self.store(find_all(collection, limit=1000))
        return [natural(each) for each in found]


@asynccontextmanager
async def office_of(kind: str, uri: str, database: str) -> AsyncGenerator[Office, None]:
    if kind == "embedded":
        yield Office(None, "embedded")
        return
    client = await connect_async(uri)
    try:
        yield Office(client, database)
    finally:
        await client.close()


async def until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < end, what
        await asyncio.sleep(0.005)


@asynccontextmanager
async def served(app: Orchestrator) -> AsyncGenerator[asyncio.Task[None], None]:
    serving = asyncio.create_task(app.serve())
    try:
        yield serving
    finally:
        app.stop()
        await serving


# --- enqueue, take, handle, end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("store", STORES)
def test_what_is_enqueued_is_called_and_its_result_comes_back(
    mongodb: str, database: str, store: str, *, is_async: bool
) -> None:
    seen: list[Any] = []
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            def work(mail: Mail, copies: int = 1) -> list[Mail]:
                seen.append((mail, copies, threading.current_thread() is threading.main_thread()))
                return [mail] * copies

            async def work_async(mail: Mail, copies: int = 1) -> list[Mail]:
                return work(mail, copies)

            send = app.task(name="send")(work_async if is_async else work)
            first = await send.enqueue(Mail("a", at), copies=2)
            assert first.is_new
            async with served(app):
                assert await first.result() == [Mail("a", at)] * 2
                assert await (await send.enqueue(Mail("b"))) == [Mail("b")]
            (one, _) = sorted(await office.records(), key=lambda each: each["created_at"])
            assert (one["_id"], one["status"], one["tries"], one["task"]) == (first.id, "success", 1, "send")
            assert "due" not in one
            (member,) = await office.records("orchestrator_members")
            assert member["left"] is not None

    in_loop(run())
    assert seen == [(Mail("a", at), 2, is_async), (Mail("b"), 1, is_async)]


@pytest.mark.parametrize("store", STORES)
def test_a_run_that_failed_is_tried_again_as_often_as_that_is_allowed(
    mongodb: str, database: str, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task(retries=2, backoff=AT_ONCE)
            async def flaky(name: str, good: int) -> int:
                tries.append(name)
                if tries.count(name) < good:
                    raise ValueError(f"not yet, password=hunter2 of {name}")
                return tries.count(name)

            @app.task(retries=2, backoff=AT_ONCE, retry_for=OSError)
            async def picky() -> None:
                tries.append("picky")
                raise ValueError("no reason to try again")

            async with served(app):
                assert await (await flaky.enqueue("third", 3)).result() == 3
                with pytest.raises(InvocationFailed) as failed:
                    await (await flaky.enqueue("never", 9)).result()
                with pytest.raises(InvocationFailed, match="no reason"):
                    await (await picky.enqueue()).result()
            assert failed.value.kind == "ValueError"
            assert "hunter2" not in str(failed.value)
            assert "flaky" in failed.value.traceback
            found = {each["_id"]: (each["status"], each["tries"]) for each in await office.records()}
            assert sorted(found.values()) == [("failed", 1), ("failed", 3), ("success", 3)]

    in_loop(run())
    assert (tries.count("third"), tries.count("never"), tries.count("picky")) == (3, 3, 1)
    said = [(each.levelname, each.getMessage()) for each in caplog.records if "has failed" in each.getMessage()]
    assert Counter(level for level, _ in said) == {"WARNING": 4, "ERROR": 2}
    first = re.compile("the handler of picky, invocation [0-9a-f]{32}, attempt 1, has failed: ValueError: no reason")
    assert sum(first.match(what) is not None for _, what in said) == 1
    assert {"attempt 1,", "attempt 2,", "attempt 3,"} == {what[what.index("attempt") :][:10] for _, what in said}
    assert all("called again in 0 s" in what for level, what in said if level == "WARNING")
    assert "hunter2" not in "".join(what for _, what in said)


@pytest.mark.parametrize("store", STORES)
def test_who_asks_again_under_a_key_gets_the_invocation_that_is_there(mongodb: str, database: str, store: str) -> None:
    calls: list[int] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task()
            async def pay(amount: int) -> int:
                calls.append(amount)
                return amount

            first = await pay.enqueue(7, key="order-1")
            again = await pay.enqueue(9, key="order-1")
            assert (first.is_new, again.is_new, again.id) == (True, False, "order-1")
            async with served(app):
                assert await again.result() == await first.result() == 7

    in_loop(run())
    assert calls == [7]


@pytest.mark.parametrize("store", STORES)
def test_an_invocation_of_another_task_answers_nobody(mongodb: str, database: str, store: str) -> None:
    """It once did, and the requested task never ran."""

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()
            send = app.task(name="send")(good)

            @app.task()
            async def pay(amount: int) -> int:
                return amount

            _ = await send.enqueue(Mail("a"), key="order-1")
            with pytest.raises(Misuse, match="another task has this id"):
                _ = await pay.enqueue(7, key="order-1")
            await app.close()

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_who_waits_for_others_gives_its_slot_away(mongodb: str, database: str, store: str) -> None:
    """One slot and three levels of waiting: with a slot for each that waits, none would end."""

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(concurrency=1)

            @app.task()
            async def tree(depth: int) -> int:
                if depth == 0:
                    return 1
                below = [await tree.enqueue(depth - 1) for _ in range(2)]
                return sum(await asyncio.gather(*(each.result() for each in below)))

            async with served(app):
                assert await (await tree.enqueue(3)).result() == 8
            found = {each["_id"]: each for each in await office.records()}
            assert len(found) == 15
            (root,) = [each for each in found.values() if "parent" not in each]
            assert {each["root"] for each in found.values() if "parent" in each} == {root["_id"]}

    in_loop(run())


@pytest.mark.parametrize("is_told", [True, False], ids=["result", "wait_for"])
def test_who_has_waited_for_so_long_goes_on_when_it_has_a_slot_and_gives_it_away_again(*, is_told: bool) -> None:
    """Laws WK1 and WK12: the wait ends while another run has the only slot."""

    async def run() -> None:
        app, at_work = Office(None, "embedded").app(concurrency=1), asyncio.Event()

        @app.task()
        async def child(number: int) -> int:
            return number

        @app.task(priority=1)
        async def long() -> None:
            at_work.set()
            await asyncio.sleep(0.3)
            at_work.clear()

        @app.task()
        async def parent() -> int:
            first = await child.enqueue(1, delay=timedelta(days=1))
            _ = await long.enqueue()
            with pytest.raises(TimeoutError):
                await (first.result(QUICKLY) if is_told else asyncio.wait_for(first.result(), QUICKLY.total_seconds()))
            assert not at_work.is_set()
            return await (await child.enqueue(2)).result()

        async with served(app):
            assert await (await parent.enqueue()).result(timedelta(seconds=PATIENCE_S)) == 2

    in_loop(run())


def test_a_task_of_a_handler_that_begins_to_wait_gives_away_the_slot_that_another_wants() -> None:
    """Law WK12: the first wait loses the only slot; the second begins with it free."""

    async def run() -> None:
        app = Office(None, "embedded").app(concurrency=1)

        @app.task()
        async def child() -> int:
            return 1

        @app.task()
        async def long() -> None:
            await asyncio.sleep(0.4)

        @app.task()
        async def parent() -> int:
            async def later() -> int:
                await asyncio.sleep(0.2)
                return await (await child.enqueue()).result()

            first = await child.enqueue(priority=50)
            _ = await long.enqueue(priority=40)
            return sum(await asyncio.gather(first.result(), later()))

        async with served(app):
            assert await (await parent.enqueue()).result(timedelta(seconds=PATIENCE_S)) == 2

    in_loop(run())


@pytest.mark.parametrize("how", ["cancel", "limit", "stop"])
def test_who_waits_is_interrupted_while_no_slot_is_free(how: str) -> None:
    """Law WK12: a handler that ignores cancellation has the only slot meanwhile."""

    async def run() -> None:
        office, ends, at_work = Office(None, "embedded"), asyncio.Event(), asyncio.Event()
        app = office.app(concurrency=1, drain=timedelta(0))

        @app.task()
        async def long() -> None:
            at_work.set()
            while not ends.is_set():
                with suppress(asyncio.CancelledError):
                    await ends.wait()

        @app.task(timeout=timedelta(seconds=0.1) if how == "limit" else None)
        async def parent() -> None:
            await (await long.enqueue()).result()

        async def ended() -> bool:
            return await handle.status() in ({"rerouted"} if how == "stop" else {"cancelled", "failed"})

        async with served(app):
            handle = await parent.enqueue()
            await at_work.wait()
            if how == "cancel":
                assert await handle.cancel()
            elif how == "stop":
                app.stop()
            await until(ended, f"it has ended by {how}")
            ends.set()

    in_loop(run())


def test_what_nobody_waits_for_any_more_is_looked_for_no_more_and_who_waits_hears_that_the_app_is_closed() -> None:
    async def run() -> None:
        app = Office(None, "embedded").app()

        @app.task()
        async def later() -> None: ...

        async with served(app):
            handles = [await later.enqueue(delay=timedelta(days=1)) for _ in range(2)]
            results = await app.results()
            waiting = asyncio.create_task(handles[0].result())
            with pytest.raises(Unfinished):
                await handles[1].result(QUICKLY)
            assert [*results._waiting] == [handles[0].id]
        with pytest.raises(TidegateError, match="the app was closed"):
            await waiting

    in_loop(run())


def test_a_task_that_a_handler_has_left_behind_waits_without_a_slot() -> None:
    """It inherits the run, which ends before its result is there, or before it waits."""

    async def run() -> None:
        app, left, ended = Office(None, "embedded").app(), list[asyncio.Task[int]](), asyncio.Event()

        @app.task()
        async def child() -> int:
            await ended.wait()
            return 7

        @app.task()
        async def parent() -> None:
            async def later(handle: Handle[int]) -> int:
                await ended.wait()
                return await handle.result()

            handle = await child.enqueue()
            left[:] = [asyncio.create_task(handle.result()), asyncio.create_task(later(handle))]
            await asyncio.sleep(0)

        async with served(app):
            await (await parent.enqueue()).result()
            ended.set()
            assert await asyncio.wait_for(asyncio.gather(*left), PATIENCE_S) == [7, 7]

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_what_is_delayed_waits_and_the_urgent_comes_first(mongodb: str, database: str, store: str) -> None:
    order: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(concurrency=1)

            @app.task()
            async def note(name: str) -> float:
                order.append(name)
                return time.monotonic()

            began = time.monotonic()
            later = await note.enqueue("later", priority=-9, delay=timedelta(milliseconds=400))
            low = await note.enqueue("low", priority=-5)
            high = await note.enqueue("high", priority=5)
            async with served(app):
                await asyncio.gather(low.result(), high.result())
                assert await later.result() - began > 0.3
            assert order.index("high") < order.index("low")

    in_loop(run())
    assert order == ["high", "low", "later"]


@pytest.mark.parametrize("store", STORES)
def test_a_process_leaves_alone_what_it_does_not_know(mongodb: str, database: str, store: str) -> None:
    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            old, new = office.app(), office.app()

            @old.task()
            async def known() -> int:
                return 1

            @new.task(name="known")
            async def known_to_new() -> int:
                return 2

            @new.task()
            async def unknown() -> int:
                return 3

            handle = await unknown.enqueue()
            async with served(old):
                assert await (await known.enqueue()).result() == 1
                with pytest.raises(Unfinished):
                    await handle.result(timedelta(milliseconds=300))
            async with served(new):
                assert await handle.result() == 3
            await old.close()

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_a_handler_that_takes_too_long_is_interrupted_and_has_failed(mongodb: str, database: str, store: str) -> None:
    tries = Counter[str]()

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task(timeout=timedelta(milliseconds=50))
            async def slow() -> None:
                await asyncio.sleep(60)

            @app.task(timeout=timedelta(milliseconds=50))
            async def returns() -> None:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)

            @app.task(timeout=timedelta(milliseconds=50), retries=1, backoff=AT_ONCE, retry_for=ValueError)
            async def picky() -> None:
                tries["picky"] += 1
                await asyncio.sleep(60)

            @app.task(timeout=timedelta(milliseconds=50), retries=1, backoff=AT_ONCE, retry_for=OSError)
            async def again() -> None:
                tries["again"] += 1
                await asyncio.sleep(60)

            async with served(app):
                for task in (slow, returns, picky, again):
                    with pytest.raises(InvocationFailed, match="longer than 50 ms") as failed:
                        await (await task.enqueue()).result()
                    assert failed.value.kind == "TimeoutError"

    in_loop(run())
    assert tries == {"picky": 1, "again": 2}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("store", STORES)
def test_a_handler_that_is_called_too_early_is_called_again_later(
    mongodb: str, database: str, store: str, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    called: list[float] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            def work() -> int:
                called.append(time.monotonic())
                if len(called) < 3:
                    raise Later(timedelta(milliseconds=100))
                return len(called)

            async def work_async() -> int:
                return work()

            early = app.task(name="early")(work_async if is_async else work)
            async with served(app):
                assert await (await early.enqueue()).result() == 3
            (record,) = await office.records()
            assert (record["tries"], record["status"]) == (1, "success")
            assert "error" not in record

    in_loop(run())
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(called))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_configured_app_is_another_one_and_its_handlers_enqueue_there(mongodb: str, database: str) -> None:
    """A task belongs to its declaring app, unless its handler runs in a configured copy."""
    app = Orchestrator(mongodb, settings=OrchestratorSettings(database=database, **QUICK))
    seen: list[str] = []

    @app.task()
    async def then() -> None:
        seen.append("then")

    @app.task()
    def first() -> None:
        _ = then.enqueue_sync()
        seen.append("first")

    async def run() -> None:
        told = attrs.evolve(app.settings, prefix="other_")
        other = app.configured(told)
        assert (app.settings.prefix, other.settings) == ("orchestrator_", told)
        async with served(other):
            _ = await first.enqueue()  # not served by any process
            _ = await first.of(other).enqueue()
            await until(lambda: sorted(seen) == ["first", "then"], "the handler has enqueued where it is called")
        client = await connect_async(mongodb)
        found = [
            await client[database][f"{each}_invocations"].count_documents({}) for each in ("orchestrator", "other")
        ]
        await client.close()
        await app.close()
        assert found[0] == 1

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_what_runs_when_the_time_to_stop_is_over_is_given_back_and_run_elsewhere(
    mongodb: str, database: str, store: str
) -> None:
    begun: list[int] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:

            def app_of(number: int) -> tuple[Orchestrator, Any]:
                app = office.app(drain=timedelta(milliseconds=10))

                @app.task()
                async def stay() -> int:
                    begun.append(number)
                    await asyncio.sleep(60 if number == 1 else 0)
                    return number

                return app, stay

            (first, stay), (second, _) = app_of(1), app_of(2)
            handle = await stay.enqueue()
            (before,) = await office.records()
            async with served(first):
                await until(lambda: begun == [1], "it has begun")
            (record,) = await office.records()
            assert record["due"] == before["due"]
            assert (record["status"], record["tries"], record["owner"]) == ("rerouted", 0, None)
            async with served(second):
                assert await handle.result() == 2

    in_loop(run())


def test_large_arguments_and_results_are_kept_beside_their_records(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "x" * 300_000

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(inline_bytes=100_000, warn_bytes=500_000)

            @app.task()
            async def twice(text: str) -> str:
                return text * 2

            async with served(app):
                assert await (await twice.enqueue(text)).result() == text * 2
            (record,) = await office.records()
            assert len(str(record)) < 2_000
            assert record["payload"]
            assert record["result_payload"] == f"{record['_id']}@2"
            said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
            assert [each for each in said if "more than" in each] == [
                f"{record['_id']}@2 has more than 500000 bytes: keep so much elsewhere, and pass where it is"
            ]

    in_loop(run())


def test_where_nobody_answers_about_what_is_large_it_is_asked_again(
    mongodb: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it takes: once the run failed although its handler had not."""
    unanswered = Counter[str]()

    def at_first(name: str) -> None:
        asks = getattr(AsyncPayloads, name)

        async def asked(payloads: AsyncPayloads, key: str, *rest: Any) -> Any:
            unanswered[name] += 1
            if unanswered[name] in {2, 3} if name == "put" else unanswered[name] < 3:
                raise PayloadUnsettled("nobody answers")
            return await asks(payloads, key, *rest)

        monkeypatch.setattr(AsyncPayloads, name, asked)

    at_first("put")
    at_first("get")

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(inline_bytes=2_000)

            @app.task()
            async def twice(text: str) -> str:
                return text * 2

            async with served(app):
                assert await (await twice.enqueue("x" * 3_000)).result() == "x" * 6_000

    in_loop(run())
    assert (unanswered["put"], unanswered["get"]) == (4, 4)


def test_who_waits_for_so_long_does_so_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock steps back repeatedly, which would extend the wait for ever."""
    app = Orchestrator(Embedded(), database="jobs")

    @app.task()
    def never() -> None: ...

    handle = never.enqueue_sync()
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000 * 10**9)
    with pytest.raises(Unfinished):
        handle.result_sync(timedelta(milliseconds=50))


def test_who_gives_no_time_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the clock: after it stepped back, the call kept polling."""
    hours = itertools.count()
    monkeypatch.setattr(driver, "_now", lambda _: Instant(-60 * MINUTE * next(hours), WALL))
    app = Orchestrator(Embedded(), database="jobs")

    @app.task()
    async def quick() -> int:
        return 7

    async def main() -> None:
        async with served(app):
            late, handle = await quick.enqueue(delay=timedelta(days=1)), await quick.enqueue()
            waits = asyncio.create_task(late.result())
            assert await asyncio.wait_for(handle.result(), 20) == 7
            assert await handle.result(timedelta(0)) == 7
            with pytest.raises(Unfinished):
                await late.result(timedelta(0))
            waits.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["async", "sync", "rolled back"])
def test_who_asks_again_under_an_id_with_large_arguments_changes_nothing(mongodb: str, database: str, how: str) -> None:
    """Also in a transaction that aborts, of a plain client's session."""

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(inline_bytes=1024)
            by_uri = Orchestrator(mongodb, settings=app.settings)

            @app.task(name="charge")
            async def charge(who: str, text: str) -> str:
                return f"{who} {len(text)}"

            @by_uri.task(name="charge")
            def charge_again(who: str, text: str) -> str:
                raise AssertionError(who, text)

            def rolls_back() -> None:
                with MongoClient[Raw](mongodb) as client, client.start_session() as session:
                    session.start_transaction()
                    assert not charge.enqueue_sync("bob", "z" * 90_000, key="order", session=session).is_new
                    session.abort_transaction()

            handle = await charge.enqueue("ann", "x" * 70_000, key="order")
            if how == "async":
                assert not (await charge.enqueue("bob", "z" * 90_000, key="order")).is_new
            elif how == "sync":
                sync = partial(charge_again.enqueue_sync, "bob", "z" * 90_000, key="order")
                assert not (await asyncio.to_thread(sync)).is_new
            else:
                await asyncio.to_thread(rolls_back)
            async with served(app):
                assert await handle.result() == "ann 70000"

    in_loop(run())
    close_shared()


@pytest.mark.parametrize("commits", [True, False])
def test_what_is_enqueued_in_a_transaction_is_there_if_that_commits(
    mongodb: str, database: str, *, commits: bool
) -> None:
    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            client = office.client
            assert client is not None
            app = office.app()

            @app.task()
            async def ship(order: int) -> int:
                return order

            _ = await client[database]["orders"].insert_one({"_id": 0})
            async with client.start_session() as session, await session.start_transaction():
                _ = await client[database]["orders"].insert_one({"_id": 1}, session=session)
                handle = await ship.enqueue(1, session=session)
                again = await ship.enqueue(2, session=session, key=handle.id)
                assert again.id == handle.id
                if not commits:
                    await session.abort_transaction()
            async with served(app):
                if commits:
                    assert await handle.result() == 1
                else:
                    with pytest.raises(InvocationAbsent):
                        await handle.result()
            assert len(await office.records()) == int(commits)
            assert await client[database]["orders"].count_documents({}) == 1 + commits

    in_loop(run())


def test_a_session_of_other_servers_is_refused(mongodb: str, database: str, disposable_mongod: MongoServer) -> None:
    """Its invocation would land where no process reads it. The transaction ends."""

    async def run() -> None:
        async with (
            office_of("mongod", mongodb, database) as office,
            office_of("mongod", disposable_mongod.uri, database) as other,
        ):
            assert other.client is not None
            app = office.app()
            send = app.task()(good)
            _ = await send.enqueue(Mail("a"))
            async with other.client.start_session() as session:
                for ask in (
                    lambda session: send.enqueue(Mail("b"), session=session),
                    lambda session: app.emit("paid", session=session),
                ):
                    with pytest.raises(Misuse, match="other servers"):
                        await session.with_transaction(ask)

            def plain() -> None:
                with MongoClient[Raw](disposable_mongod.uri) as client, client.start_session() as session:
                    _ = session.with_transaction(lambda session: send.enqueue_sync(Mail("c"), session=session))

            with pytest.raises(Misuse, match="other servers"):
                await asyncio.to_thread(plain)
            assert await other.records() == []
            await app.close()

    in_loop(run())


def test_a_session_without_a_transaction_is_refused(mongodb: str, database: str) -> None:
    """The invocation would exist at once, whatever becomes of the writes beside it."""

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            assert office.client is not None
            app = office.app()
            send = app.task()(good)
            async with office.client.start_session() as session:
                with pytest.raises(Misuse, match="no transaction of it"):
                    _ = await send.enqueue(Mail("a"), session=session)
                with pytest.raises(Misuse, match="no transaction of it"):
                    await app.emit("paid", session=session)
            with MongoClient[Raw](mongodb) as client, client.start_session() as plain:
                with pytest.raises(Misuse, match="where a session of an AsyncMongoClient belongs"):
                    _ = await send.enqueue(Mail("a"), session=plain)
                with pytest.raises(Misuse, match="no transaction of it"):
                    _ = await asyncio.to_thread(send.enqueue_sync, Mail("a"), session=plain)
            assert not await office.records()
            reads_elsewhere = AsyncMongoClient[Raw](mongodb, readPreference="secondaryPreferred")
            async with reads_elsewhere, reads_elsewhere.start_session() as session:
                send = Orchestrator(reads_elsewhere, database).task()(good)
                async with await session.start_transaction():
                    with pytest.raises(Misuse, match="does its transaction read from secondaries"):
                        _ = await send.enqueue(Mail("a"), session=session)
                async with await session.start_transaction(read_preference=ReadPreference.PRIMARY):
                    _ = await send.enqueue(Mail("a"), session=session)
            assert len(await office.records()) == 1

    in_loop(run())


def test_an_invocation_with_a_long_id_has_large_arguments_and_results(mongodb: str, database: str) -> None:
    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(inline_bytes=1024)

            @app.task()
            async def twice(text: str) -> str:
                return 2 * text

            async with served(app):
                handles = [await twice.enqueue("x" * 2_000, key=each * 2_000) for each in ("k", "\N{SNOWMAN}")]
                assert [len(await each.result()) for each in handles] == [4_000, 4_000]

    in_loop(run())


def test_a_transaction_that_meets_another_is_begun_anew_by_the_driver(mongodb: str, database: str) -> None:
    found: list[Handle[None]] = []
    tried = 0

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            client = office.client
            assert client is not None
            send = office.app().task()(good)
            _ = await send.enqueue(Mail("a"))
            async with client.start_session() as first, client.start_session() as second:
                _ = await first.start_transaction()
                _ = await send.enqueue(Mail("a"), key="a", session=first)

                async def enqueue(session: Any) -> None:
                    nonlocal tried
                    tried += 1
                    if tried == 2:
                        await first.commit_transaction()
                    found.append(await send.enqueue(Mail("b"), key="a", session=session))

                await second.with_transaction(enqueue)
            assert (tried, len(found), found[0].is_new) == (2, 1, False)
            assert len(await office.records()) == 2

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_what_is_cancelled_ends_and_what_is_killed_is_run_again(mongodb: str, database: str, store: str) -> None:
    runs: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task()
            async def stay(name: str) -> int:
                runs.append(name)
                await asyncio.sleep(60 if runs.count(name) == 1 else 0)
                return runs.count(name)

            waiting = await stay.enqueue("waits", delay=timedelta(hours=1))
            assert await waiting.status() == "registered"
            assert await waiting.cancel()
            assert await waiting.status() == "cancelled"
            async with served(app):
                running, killed = await stay.enqueue("runs"), await stay.enqueue("killed")
                await until(lambda: len(runs) == 2, "both run")
                assert await running.cancel()
                asked = await app.ask(Command.KILL, InvocationQuery(ids=(killed.id,)))
                assert asked.told == 1
                for each in (waiting, running):
                    with pytest.raises(InvocationCancelled):
                        await each.result()
                assert await killed.result() == 2
                assert not await killed.cancel()

    in_loop(run())


def test_what_ends_while_a_beat_says_that_it_is_lost_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        office, ends, lost = Office(None, "embedded"), asyncio.Event(), asyncio.Event()
        app, beats = office.app(), Workers._beat

        async def slow(self: Workers, command: Heartbeat) -> HeartbeatReply | None:
            heeded = await beats(self, command)
            if heeded is not None and heeded.asked and not lost.is_set():
                lost.set()
                ends.set()
                await until(lambda: not self.state.running, "it has ended before the beat is told")
            return heeded

        monkeypatch.setattr(Workers, "_beat", slow)

        @app.task()
        async def stays() -> None:
            await ends.wait()

        @app.task()
        async def adds(one: int) -> int:
            return one + 1

        async with served(app):
            handle = await stays.enqueue()
            await until(lambda: app._workers is not None and app._workers.state.running, "it runs")
            office.store(delete_one(app.collections.invocations, Eq(ID, handle.id)))
            await lost.wait()
            assert await (await adds.enqueue(1)).result(timeout=timedelta(seconds=5)) == 2

    in_loop(run())


def test_the_beats_of_children_go_on_after_one_that_nobody_has_answered() -> None:
    """New processes join the next heartbeat, and ended ones leave it."""

    async def run() -> None:
        office = Office(None, "embedded")
        app, fails = office.app(beat_every=timedelta(seconds=5)), [True]

        @app.task()
        async def nothing() -> None: ...

        async with served(app):
            await until(lambda: app._workers is not None and app._workers.member, "it has joined")
            workers: Any = app._workers
            there = await app._opened()

            async def store(effect: Any) -> object:
                return Ambiguous("cut") if fails[0] else await there.site.store(effect)

            owner = workers.member
            workers._post = attrs.evolve(workers._post, site=attrs.evolve(there.site, store=store))
            for living in (((1, 7),), ()):
                workers._children = SimpleNamespace(there=living, close=lambda: None)
                for fails[0] in (True, False):
                    await workers._beat_for_children(owner)
                members = await office.records(app.collections.members)
                (child,) = [each for each in members if each["_id"] == f"{owner}/1.7"]
                assert (child["left"] is None) == bool(living)

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_many_are_enqueued_at_once(mongodb: str, database: str, store: str) -> None:
    size = 1_500 if store == "mongod" else 100

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task()
            async def add(one: int, other: int = 1) -> int:
                return one + other

            assert await add.enqueue_many([]) == []
            handles = await add.enqueue_many([(number,) for number in range(size)], priority=3)
            more = await add.enqueue_many([(7, 7), (8,)], keys=["a", "b"])
            again = await add.enqueue_many([(1,)], keys=["a"])
            assert ([each.is_new for each in more], again[0].is_new) == ([True, True], False)
            with pytest.raises(Misuse, match="the argument one of add must be an int, got str"):
                _ = await add.enqueue_many([(1,), ("x",)])
            for call in ("ab", {"one": 1, "other": 2}):
                with pytest.raises(Misuse, match="the arguments of a call must be a tuple or a list"):
                    _ = await add.enqueue_many([call])  # type: ignore[list-item]
            with pytest.raises(Misuse, match="a str is no keys"):
                _ = await add.enqueue_many([(1,), (2,)], keys="ab")
            with pytest.raises(Misuse, match="two invocations of one id"):
                _ = await add.enqueue_many([(1,)] * 1_002, keys=[*(f"new {n}" for n in range(1_001)), "new 1000"])
            with pytest.raises(Misuse, match="an invocation"):
                _ = await add.enqueue_many([(1,)] * 1_001, keys=[*(f"new {n}" for n in range(1_000)), ""])
            assert not [each for each in await office.records() if str(each["_id"]).startswith("new")]
            async with served(app):
                assert sum(await asyncio.gather(*(each.result() for each in handles))) == sum(range(size)) + size
                assert [await each.result() for each in (*more, *again)] == [14, 9, 14]

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_what_is_paused_is_taken_by_nobody_until_it_is_resumed(mongodb: str, database: str, store: str) -> None:
    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(queues=("default", "slow"))

            @app.task()
            async def one() -> int:
                return 1

            @app.task(queue="slow")
            async def two() -> int:
                return 2

            with pytest.raises(Misuse, match="str is not a collection"):
                _ = await app.pause(queues="slow")
            with pytest.raises(Misuse, match="there is no task 'three'"):
                _ = await app.pause(tasks=["three"])
            with pytest.raises(Misuse, match=r"(?s)there is no queue 'slwo'.*there are: .*slow"):
                _ = await app.pause(queues=["slwo"])
            assert await app.pause(tasks=["one"], queues=["slow"]) == Held(frozenset({"slow"}), frozenset({"one"}))
            async with served(app):
                first, second, third = await one.enqueue(), await two.enqueue(), await two.enqueue(queue="default")
                assert await third.result() == 2
                assert [await each.status() for each in (first, second)] == ["registered", "registered"]
                assert await app.resume(tasks=["one"]) == Held(frozenset({"slow"}))
                assert await first.result() == 1
                assert await second.status() == "registered"
                assert await app.resume(queues=["slow"]) == await app.held() == Held()
                assert await second.result() == 2

    in_loop(run())


# --- plain functions ----------------------------------------------------------------------------------------------------


def test_code_that_is_not_async_enqueues_and_waits(mongodb: str, database: str) -> None:
    app = Orchestrator(
        mongodb, settings=OrchestratorSettings(database=database, concurrency=1, inline_bytes=10_000, **QUICK)
    )

    @app.task()
    def tree(depth: int, text: str) -> int:
        if depth == 0:
            return len(text)
        below = [tree.enqueue_sync(depth - 1, text) for _ in range(2)]
        return sum(each.result_sync() for each in below)

    handle = tree.enqueue_sync(2, "x" * 20_000)
    with pytest.raises(Unfinished):
        _ = handle.result_sync(AT_ONCE)

    async def run() -> None:
        async with served(app):
            assert await asyncio.to_thread(handle.result_sync) == 80_000

    in_loop(run())
    assert handle.result_sync() == 80_000
    close_shared()


def test_a_plain_function_holds_up_no_event_loop() -> None:
    app = Orchestrator(Embedded(), "jobs")
    send = app.task()(good)

    async def run() -> None:
        with pytest.raises(Misuse, match="a plain function in an event loop"):
            _ = send.enqueue_sync(Mail("a"))

    asyncio.run(run())
    assert send.enqueue_sync(Mail("a")).is_new


@pytest.mark.parametrize("commits", [True, False])
def test_plain_code_enqueues_in_its_own_transaction(mongodb: str, database: str, *, commits: bool) -> None:
    app = Orchestrator(mongodb, database)
    send = app.task()(good)
    app.sync.run(nothing())
    with MongoClient[Raw](mongodb) as client:
        _ = client[database]["orders"].insert_one({"_id": 0})
        _ = client[database].create_collection("orchestrator_invocations", check_exists=False)
        with client.start_session() as session, session.start_transaction():
            _ = client[database]["orders"].insert_one({"_id": 1}, session=session)
            _ = send.enqueue_sync(Mail("a"), session=session)
            if not commits:
                session.abort_transaction()
        found = [client[database][each].count_documents({}) for each in ("orders", "orchestrator_invocations")]
    assert found == [1 + commits, int(commits)]
    close_shared()


async def nothing() -> None: ...


def test_what_a_child_enqueues_has_a_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Orchestrator] = []
    closes = Orchestrator.close

    async def close(app: Orchestrator) -> None:
        closed.append(app)
        await closes(app)

    async def shown(key: str) -> Any:
        try:
            return await children.app.show(key)
        finally:
            await children.app.close()

    monkeypatch.setattr(Orchestrator, "close", close)
    run = Run(children.asks.declared.name, "parent", 1)
    call = ChildCall(
        "tests.integration.orchestrator_children", "asks", {"one": "1"}, run, "root", 1, children.app.settings
    )

    key = json.loads(str(_called(call, {})))

    assert [each.made_from for each in closed] == [children.app]
    row = asyncio.run(shown(key))
    assert (row.job.parent, row.job.root) == ("parent", "root")


def test_handlers_in_processes_of_their_own(tmp_path: Path) -> None:
    """A child runs calls in turn. One that dies fails alone, and its own children end."""
    told = OrchestratorSettings(database="jobs", name="pod-0", **QUICK)
    app = children.app.configured(told)
    add, fails, waits = children.add.of(app), children.fails.of(app), children.waits.of(app)
    dies, stays = children.dies.of(app), children.stays.of(app)

    async def run() -> None:
        async with served(app):
            (total, child), (_, same) = [await (await add.enqueue(1, 2)).result() for _ in range(2)]
            assert (total, child) == (3, same)
            assert child != os.getpid()
            for number in (SIGTERM, SIGINT):  # as when a terminal or a service stops all its processes
                os.kill(child, number)
            assert await (await add.enqueue(1, 2)).result() == (3, child)
            await asyncio.sleep(0.3)
            parent, worker = [each.member for each in (await app.standing()).processes]
            assert (parent.name, worker.name, worker.runner) == ("pod-0", "pod-0/1", parent.id)
            assert worker.id == f"{parent.id}/1.{child}"
            with pytest.raises(InvocationFailed, match=r"ValueError: no, password=\*\*\*") as failed:
                await (await fails.enqueue("no, password=hunter2")).result()
            assert "in fails" in failed.value.traceback
            assert await (await waits.enqueue(str(tmp_path / "there"))).result() == "done"
            with pytest.raises(InvocationFailed, match="has ended with 7"):
                await (await dies.enqueue()).result()
            assert (await (await add.enqueue(1, 2)).result())[0] == 3  # the child started before the next one's limit
            with pytest.raises(InvocationFailed, match="longer than 1 s"):
                await (await stays.enqueue(str(tmp_path / "left"))).result()
            left = int((tmp_path / "left").read_text())
            await until(lambda: not lives(left), "what it has started has ended")

    asyncio.run(run())


def lives(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(process, 0)
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_child_is_not_told_to_call_what_another_process_may_run_by_now() -> None:
    async def run() -> None:
        checks: list[Exception | None] = [Refused("interrupted"), None]

        def check() -> None:
            if (error := checks.pop(0)) is not None:
                raise error

        there, module, of = Children(check), children.__name__, (Run("task", "i", 1), "root", 1, children.app.settings)
        try:
            dies, adds = ChildCall(module, "dies", {}, *of), ChildCall(module, "add", {"one": "1", "other": "2"}, *of)
            with pytest.raises(Refused, match="interrupted"):
                _ = await there.call(dies, children.dies.declared)
            answer = await there.call(adds, children.add.declared)
            assert isinstance(answer, str)
            assert json.loads(answer) == [3, there.there[0][1]]
        finally:
            there.close()

    asyncio.run(run())


def test_a_child_is_killed_while_it_begins_and_another_one_comes_where_an_idle_one_has_died() -> None:
    async def run() -> None:
        there, module, of = (
            Children(lambda: None),
            children.__name__,
            (Run("task", "i", 1), "root", 1, children.app.settings),
        )
        try:
            stays = ChildCall(module, "stays", {}, *of)
            for wait_s in (0.0, 0.002):
                asked = asyncio.create_task(there.call(stays, children.stays.declared))
                await asyncio.sleep(wait_s)
                asked.cancel()
                async with asyncio.timeout(PATIENCE_S / 2):
                    await asyncio.wait({asked})
            adds = ChildCall(module, "add", {"one": "1", "other": "2"}, *of)
            assert isinstance(await there.call(adds, children.add.declared), str)
            (living,) = [pid for _, pid in there.there]
            os.kill(living, SIGKILL)
            await until(lambda: not there.there, "it has ended")
            there._idle[0]._process.is_alive = lambda: True  # type: ignore[method-assign]  # it has not when it is asked
            assert isinstance(await there.call(adds, children.add.declared), str)
        finally:
            there.close()

    asyncio.run(run())


LEAVES: Final = """
import asyncio
from tests.integration import orchestrator_children as children

async def begun():
    serving = asyncio.create_task(children.app.serve())
    _ = await (await children.add.enqueue(1, 2)).result()
    return serving

if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    left = loop.run_until_complete(begun())
"""


def test_a_process_that_ends_in_the_midst_of_all_waits_for_no_child() -> None:
    """Children ignore signals, and multiprocessing waits at exit for those it signals."""
    done = subprocess.run([sys.executable, "-c", LEAVES], check=False, timeout=PATIENCE_S, capture_output=True)

    assert done.returncode == 0, done.stderr


# --- several processes --------------------------------------------------------------------------------------------------


def test_whoever_has_nothing_to_do_hears_of_what_others_enqueue(mongodb: str, database: str) -> None:
    """Polling alone would take an hour."""
    rarely = PollingBounds(least=3_600 * SECOND, most=3_600 * SECOND, jitter=0)

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app, caller = office.app(polling=rarely), office.app()
            for each in (app, caller):
                _ = each.task()(good)
            heard = caller.declared["good"]
            async with served(app):
                for _ in range(3):
                    handle: Handle[None] = await Task(caller, heard).enqueue(Mail("a"))
                    await handle.result()
                    await asyncio.sleep(0.2)
            await caller.close()

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_no_more_run_at_a_time_than_may(mongodb: str, database: str, store: str) -> None:
    active: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:

            def app_of() -> tuple[Orchestrator, Any]:
                app = office.app()

                @app.task(max_running=MaxRunning.per(lambda name: name, at_most=2))
                async def work(name: str, number: int) -> int:
                    active[name] += 1
                    most[name] = max(most[name], active[name])
                    await asyncio.sleep(0.01)
                    active[name] -= 1
                    return number

                return app, work

            (first, work), (second, _) = app_of(), app_of()
            async with served(first), served(second):
                handles = [await work.enqueue(name, number) for name in "ab" for number in range(4)]
                assert sorted(await asyncio.gather(*(each.result() for each in handles))) == sorted([*range(4)] * 2)

    in_loop(run())
    assert all(1 <= each <= 2 for each in most.values())


@pytest.mark.parametrize("store", STORES)
def test_tenants_take_turns(mongodb: str, database: str, store: str) -> None:
    order: list[str] = []

    async def turns() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(concurrency=1)

            @app.task()
            async def work(whose: str) -> None:
                order.append(whose)
                await asyncio.sleep(0.15)  # a fetch takes several short ones

            handles = [await work.enqueue("large", tenant="large") for _ in range(6)]
            handles += [await work.enqueue("small", tenant="small") for _ in range(2)]
            async with served(app):
                _ = await asyncio.gather(*(each.result() for each in handles))

    in_loop(turns())
    assert "small" in order[:2]
    assert order.index("small", order.index("small") + 1) < 5


TURNS: Final = ServiceRules(
    processes=2, interval=timedelta(seconds=2), spread=timedelta(milliseconds=100), check_every=timedelta(milliseconds=100), round_every=timedelta(milliseconds=100),
    margin=timedelta(milliseconds=1), recover="* * * * * *",
)  # fmt: skip
PROCESS: Final = """
import asyncio, logging, sys
from datetime import timedelta
from tidegate_adapters.orchestrator import Orchestrator
from tidegate_adapters.orchestrator.settings import OrchestratorSettings

logging.basicConfig(level=logging.INFO)
app = Orchestrator(
    sys.argv[1],
    settings=OrchestratorSettings(database=sys.argv[2], drain=timedelta(microseconds=int(sys.argv[3])), beat_every=timedelta(milliseconds=50), dead_after=timedelta(seconds=1)),
)

@app.task()
async def stay(seconds: float) -> str:
    print("begun", flush=True)
    await asyncio.sleep(seconds)
    return "ended"

app.run()
print("left", flush=True)
"""


def test_who_is_to_stop_before_it_could_begin_ends(mongod: MongoServer, database: str) -> None:
    async def run() -> None:
        async with office_of("mongod", f"{mongod.uri}&appName={database}", database) as office:
            app = office.app()

            @app.task()
            async def stay() -> None: ...

            with mongod.fail("find", appName=database, blockConnection=True, blockTimeMS=3_000):
                serving = asyncio.create_task(app.serve())
                await asyncio.sleep(0.3)
                app.stop()
                async with asyncio.timeout(2):
                    await serving

    in_loop(run())


def test_where_nobody_answers_it_is_gone_when_its_time_is_over(disposable_mongod: MongoServer, database: str) -> None:
    """Including ends of runs that cannot be written, background tasks and the connection."""
    told = OrchestratorSettings(
        **{"database": database, **QUICK, "drain": timedelta(seconds=0.5), "leave": timedelta(seconds=2)}
    )
    app, stopped_at = Orchestrator(disposable_mongod.uri, settings=told), list[float]()

    @app.task()
    async def stay() -> None:
        disposable_mongod.signal(0, SIGSTOP)
        stopped_at.append(time.monotonic())
        app.stop()
        await asyncio.sleep(0.2)

    async def run() -> None:
        _ = await stay.enqueue()
        await app.serve()

    try:
        in_loop(run())
        took_s = time.monotonic() - stopped_at[0]
    finally:
        disposable_mongod.signal(0, SIGCONT)
    assert took_s < (told.drain + told.leave).total_seconds() + 0.5


def process(uri: str, database: str, drain: int) -> Popen[str]:
    return Popen([sys.executable, "-c", PROCESS, uri, database, str(drain)], stdout=PIPE, stderr=PIPE, text=True)


@pytest.mark.parametrize("drain", [10 * SECOND, 0])
def test_a_process_that_is_asked_to_end_lets_handlers_end_or_gives_them_back(
    mongodb: str, database: str, drain: int
) -> None:
    app = Orchestrator(mongodb, database)

    @app.task()
    async def stay(seconds: float) -> str:
        return str(seconds)

    handle = stay.enqueue_sync(0.5)
    with process(mongodb, database, drain) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        running.send_signal(SIGTERM)
        left, told = running.communicate(timeout=30)
    assert (left, running.returncode) == ("left\n", 0), told
    with MongoClient[Raw](mongodb) as client:
        found = client[database]["orchestrator_invocations"].find_one({"_id": handle.id})
        members = [*client[database]["orchestrator_members"].find()]
    assert found is not None
    assert found["status"] == ("success" if drain else "rerouted")
    assert [each["left"] is not None for each in members] == [True]
    close_shared()


def test_what_a_process_was_at_that_was_killed_is_run_by_another(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidegate_adapters.orchestrator")
    told: Raw = {**QUICK, "dead_after": timedelta(seconds=1), "services": TURNS}
    settings = OrchestratorSettings(database=database, **told)
    app = Orchestrator(mongodb, settings=settings)

    @app.task()
    async def stay(seconds: float) -> str:
        return f"not {seconds} s"

    handle = stay.enqueue_sync(60.0)
    with process(mongodb, database, 0) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        running.kill()
        _ = running.communicate()

    async def run() -> None:
        async with served(app):
            assert await handle.result(timedelta(seconds=30)) == "not 60.0 s"

    in_loop(run())
    said = [each.getMessage() for each in caplog.records if each.levelname == "INFO"]
    assert len([each for each in said if each.startswith("recovered 1 invocations of ")]) == 1
    close_shared()


KILLER: Final = """
    import os, sys
    from datetime import timedelta
    from tests.integration.test_orchestrator_app import QUICK, TURNS, Orchestrator, OrchestratorSettings
    told = {**QUICK, "dead_after": timedelta(seconds=1), "services": TURNS, "deaths_max": 2, "concurrency": 1}
    app = Orchestrator(sys.argv[1], settings=OrchestratorSettings(database=sys.argv[2], **told))

    @app.task(retries=5)
    async def deadly() -> None:
        os._exit(9)

    @app.task()
    async def harmless() -> None:
        app.stop()

    app.run()
"""


@pytest.mark.long
def test_a_handler_that_kills_its_process_is_given_up(mongodb: str, database: str) -> None:
    app = Orchestrator(mongodb, database)

    @app.task()
    async def deadly() -> None: ...

    @app.task()
    async def harmless() -> None: ...

    async def run() -> None:
        handle, code = await deadly.enqueue(), textwrap.dedent(KILLER)

        async def lived() -> int:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, mongodb, database)
            async with asyncio.timeout(PATIENCE_S):
                return await process.wait()

        assert [await lived(), await lived()] == [9, 9]
        third = asyncio.create_task(lived())
        with pytest.raises(InvocationFailed, match="ProcessDied: 2 times whoever ran it died"):
            await handle.result(timedelta(seconds=PATIENCE_S))
        _ = await harmless.enqueue()
        assert await third == 0
        await app.close()

    in_loop(run())


STANDING_STILL: Final = """
    import sys
    from datetime import timedelta
    from tests.integration.storming import standing_still_at
    from tests.integration.test_orchestrator_app import QUICK, TURNS, Orchestrator, OrchestratorSettings
    from tidegate.work.vocabulary import StartHandlers

    told = {**QUICK, "dead_after": timedelta(seconds=1), "services": TURNS}
    observers = [standing_still_at(StartHandlers)]
    app = Orchestrator(sys.argv[1], settings=OrchestratorSettings(database=sys.argv[2], **told), observers=observers)

    @app.task(name="works")
    KIND works() -> None:
        print("too late", flush=True)

    @app.task()
    async def ends() -> None:
        print("ends", flush=True)
        app.stop()

    app.run()
"""


@pytest.mark.parametrize("kind", ["async def", pytest.param("def", marks=pytest.mark.long)])
def test_who_stood_still_does_not_call_what_another_has_run_meanwhile(mongodb: str, database: str, kind: str) -> None:
    told: Raw = {**QUICK, "dead_after": timedelta(seconds=1), "services": TURNS}
    app = Orchestrator(mongodb, settings=OrchestratorSettings(database=database, **told))

    @app.task()
    async def works() -> str:
        return "in time"

    other = Orchestrator(mongodb, database)

    @other.task()
    async def ends() -> None: ...

    async def run() -> None:
        handle, code = await works.enqueue(), textwrap.dedent(STANDING_STILL).replace("KIND", kind)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, mongodb, database, stdout=PIPE)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await handle.status() != "running":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                async with served(app):
                    assert await handle.result() == "in time"
                process.send_signal(SIGCONT)
                _ = await ends.enqueue()
                said, _ = await process.communicate()
                assert said == b"ends\n"
        finally:
            if process.returncode is None:
                process.kill()
        await other.close()

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_an_error_of_any_text_is_kept_and_holds_up_nobody(
    mongodb: str, database: str, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A file name that is not UTF-8 fits in no document, nor does the end of the run with it."""
    caplog.set_level(logging.CRITICAL, "tidegate_adapters")  # nor in what pytest-xdist sends of a captured log

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app()

            @app.task()
            async def fails(name: bytes) -> str:
                raise FileNotFoundError(os.fsdecode(name))

            @app.task()
            async def succeeds() -> str:
                return "done"

            async with served(app):
                failing, other = await fails.enqueue(b"caf\xe9"), await succeeds.enqueue()
                with pytest.raises(InvocationFailed, match=r"FileNotFoundError: caf\\udce9"):
                    _ = await failing.result(timedelta(seconds=20))
                assert await other.result(timedelta(seconds=20)) == "done"

    in_loop(run())


def test_an_end_that_can_be_no_document_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = RunError.document

    def document(error: RunError) -> Document:
        if error.type == "ValueError":
            raise Misuse("it can be none")
        return real(error)

    monkeypatch.setattr(RunError, "document", document)

    async def run() -> None:
        async with office_of("embedded", "", "") as office:
            app = office.app()

            @app.task()
            async def takes(text: str) -> int:
                return int(text)

            async with served(app):
                bad, other = await takes.enqueue_many([("x",), ("7",)])
                with pytest.raises(InvocationFailed, match="the store refuses to keep what it has come to"):
                    _ = await bad.result(timedelta(seconds=20))
                assert await other.result(timedelta(seconds=20)) == 7

    in_loop(run())


# --- misuse -----------------------------------------------------------------------------------------------------------


def unknown_annotation(mail: Undefined) -> None:  # type: ignore[name-defined]  # noqa: F821
    del mail


async def good(mail: Mail) -> None:
    del mail


async def anything() -> None: ...


async def one(number: int) -> int:
    return number


EVENT: Final = on_event("a")
WRONG: Final[dict[str, tuple[Callable[[Orchestrator], object], str]]] = {
    "no handler": (lambda app: app.task()(7), "a handler must be callable, got int 7"),  # type: ignore[call-overload]
    "no such type": (lambda app: app.task()(unknown_annotation), "names Undefined"),
    "a name of an option": (lambda app: app.task(name="x")(lambda key: key), "a parameter is called key"),
    "any number of arguments": (lambda app: app.task(name="x")(lambda *given: given), "any number of arguments"),
    "two of a name": (lambda app: (app.task()(good), app.task()(good)), "there are two tasks 'good'"),
    "a limit of a thread": (
        lambda app: app.task(name="x", timeout=timedelta(1))(lambda: 1),
        "a thread cannot be interrupted",
    ),
    "a time-out of another kind": (lambda app: app.task(timeout=5)(good), "timeout must be a timedelta, got int 5"),  # type: ignore[arg-type]
    "a rate of another kind": (lambda _: Rate(1, per=5), "per must be a timedelta, got int 5"),  # type: ignore[arg-type]
    "a drain of another kind": (lambda _: Orchestrator(Embedded(), "x", drain=5), "drain must be a timedelta"),  # type: ignore[arg-type]
    "a limit of ages": (lambda app: app.task(timeout=timedelta.max)(good), "is too long"),
    "a priority": (lambda app: app.task(priority=101)(good), "priority must be an integer from -100 to 100, got 101"),
    "retries": (lambda app: app.task(retries=-1)(good), "retries must be an integer from 0 on, got -1"),
    "an error": (lambda app: app.task(retry_for="OSError")(good), "is no class of errors"),  # type: ignore[arg-type]
    "how many run": (lambda app: app.task(max_running=2)(good), "max_running must be a MaxRunning, got int 2"),  # type: ignore[arg-type]
    "a key": (lambda _: MaxRunning.per("to"), "key must be callable, got str"),  # type: ignore[arg-type]
    "a key of what is not there": (
        lambda app: app.task(max_running=MaxRunning.per(lambda to: to))(good),
        "the key of its max_running wants to",
    ),
    "a process for what nobody finds": (
        lambda app: app.task(processes=True, name="x")(lambda: 1),
        "that has no name in its module",
    ),
    "triggers that are one": (lambda app: app.task(triggers=EVENT)(one), "triggers must be an Iterable, got When"),  # type: ignore[arg-type]
    "triggers that are none": (lambda app: app.task(triggers=7)(one), "triggers must be an Iterable, got int 7"),  # type: ignore[arg-type]
    "a trigger twice": (lambda app: app.task(triggers=[EVENT, EVENT])(anything), "is declared twice"),
    "a condition twice": (lambda app: app.task(triggers=[EVENT & EVENT])(anything), "a condition comes twice"),
    "no time": (lambda app: app.task(triggers=[(EVENT & on_event("b")).within(AT_ONCE)])(anything), "is too short"),
    "a trigger without arguments": (lambda app: app.task(triggers=[EVENT])(one), "a trigger calls one with what"),
    "a trigger with others": (
        lambda app: app.task(triggers=[EVENT.calls_with(two=2)])(anything),
        "what it cannot be called with",
    ),
    "a trigger with one of another type": (
        lambda app: app.task(triggers=[EVENT.calls_with(mail=2)])(good),
        "the argument mail of good cannot be read",
    ),
    "filters of one name": (
        lambda app: (
            app.task(name="high", triggers=[on_event("paid", where=lambda paid: paid["sum"] > 7)])(anything),
            app.task(name="low", triggers=[on_event("paid", where=lambda paid: paid["sum"] <= 7)])(anything),
        ),
        "their filters are different functions",
    ),
    "an error of a trigger": (
        lambda _: on_exception("x", OSError()),  # type: ignore[arg-type]
        "a type of errors must be a string or a type, got OSError",
    ),
    "a service without parentheses": (lambda app: app.service(anything), r"write @app.service\(\)"),  # type: ignore[arg-type]
    "a service that holds the loop up": (lambda app: app.service()(len), "the service 'len' is a plain function"),  # type: ignore[arg-type]
    "a service that is none": (lambda app: app.service("x")(7), "a handler must be callable, got int 7"),  # type: ignore[arg-type]
    "a cron of a setting": (lambda _: ServiceRules(purge="61 * * * *"), "is no cron expression"),
    "settings": (
        lambda _: Orchestrator("mongodb://h", settings={}),  # type: ignore[arg-type]
        "settings must be an OrchestratorSettings, got dict",
    ),
    "an observer": (lambda _: Orchestrator(Embedded(), "x", observers=[7]), "an observer must be callable, got int 7"),  # type: ignore[list-item]
    "no observers": (lambda _: Orchestrator(Embedded(), "x", observers=7), "observers must be an Iterable, got int 7"),  # type: ignore[arg-type]
    "an observer whom nobody awaits": (
        lambda _: Orchestrator(Embedded(), "x", observers=[good]),  # type: ignore[list-item]
        "good is an async function",
    ),
    "a store": (lambda _: Orchestrator(7, "x"), "an int is no store"),
    "no database": (lambda _: Orchestrator(Embedded()), "an app needs a database"),
    "the database of a server": (
        lambda _: Orchestrator(Embedded(), "local"),
        "local is a database of the server's own",
    ),
    "a lambda without a name": (lambda app: app.task()(lambda: 1), "a lambda has no name for its task"),
    "a name that cannot be encoded": (lambda app: app.task(name="a\ud800")(one), "half of a surrogate pair"),
    "what nobody can tell how to call": (lambda app: app.task()(int), "nobody can tell what int is called with"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_at_once(name: str) -> None:
    wrong, message = WRONG[name]
    with pytest.raises(Misuse, match=message):
        wrong(Orchestrator(Embedded(), "jobs"))


def test_who_calls_with_something_else_hears_of_it() -> None:
    app = Orchestrator(Embedded(), "jobs")
    send = app.task()(good)

    async def run() -> None:
        with pytest.raises(Misuse, match="the argument mail of good must be a Mail, got str"):
            _ = await send.enqueue("hunter2")
        with pytest.raises(Misuse, match="missing a required argument"):
            _ = await send.enqueue()
        with pytest.raises(Misuse, match="leave one of them out"):
            _ = await send.enqueue(Mail("a"), delay=AT_ONCE, due=datetime.now(UTC))
        with pytest.raises(Misuse, match="delay must be a timedelta, got int 5"):
            _ = await send.enqueue(Mail("a"), delay=5)  # type: ignore[arg-type]
        await app.close()

    asyncio.run(run())


def test_what_is_due_between_two_milliseconds_is_due_with_the_second() -> None:
    """The clock of a process has microseconds, a document milliseconds."""
    app = Orchestrator(Embedded(), "jobs")
    send = app.task()(good)
    due = datetime(2100, 1, 1, 0, 0, 0, 123_001, UTC)

    async def run() -> None:
        for told in ({"due": due}, {"delay": timedelta(microseconds=1_001)}):
            handle = await send.enqueue(Mail("a"), **told)
            row = await app.show(handle.id)
            assert row is not None
            assert row.due is not None
            if "due" in told:
                assert moment(row.due) == due.replace(microsecond=124_000)
        await app.close()

    asyncio.run(run())


def test_an_app_is_used_in_one_event_loop_after_another_and_in_several_at_once(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Scripts and tests share an app and close nothing; a second loop once broke calls."""
    app = Orchestrator(mongodb, database=database)
    send = app.task()(good)

    async def several(count: int) -> None:
        for _ in range(count):
            _ = await asyncio.gather(*(send.enqueue(Mail("a")) for _ in range(3)))

    async def closing() -> int:
        there = sum(each.count for each in await app.counts())
        await app.close()
        return there

    for _ in range(2):
        asyncio.run(several(1))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(asyncio.run, several(20)) for _ in range(2)]:
            done.result()
    assert asyncio.run(closing()) == 2 * 3 + 2 * 20 * 3
    assert not caplog.records


# --- in tests of one's own ----------------------------------------------------------------------------------------------------


def test_an_app_is_tested_on_fresh_stores_and_is_as_it_was(on_embedded: OnEmbedded) -> None:
    app = Orchestrator("mongodb://nowhere:1/?replicaSet=rs", database="jobs")

    @app.task()
    async def square(number: int) -> int:
        if number < 0:
            await asyncio.Event().wait()
        return number * number

    async def body(store: Embedded) -> int:
        assert not store.contents("orchestrator_invocations")
        with pytest.raises(Misuse, match="connected already"):
            async with app.testing():
                pass
        found: int = await (await square.enqueue(3)).result()
        return found

    async def fails(_store: Embedded) -> None:
        _ = await square.enqueue(-1)
        raise ZeroDivisionError

    told = app.settings
    assert [on_embedded(app, body) for _ in range(2)] == [9, 9]
    with pytest.raises(ZeroDivisionError):
        on_embedded(app, fails)
    assert on_embedded(app, body) == 9
    assert app.settings is told
    assert app.workers is None


def test_an_app_is_served_again(mongodb: str, database: str) -> None:
    app = Orchestrator(mongodb, database=database)

    @app.task()
    async def square(number: int) -> int:
        return number * number

    async def run() -> int:
        async with served(app):
            found: int = await (await square.enqueue(3)).result()
        return found

    assert [asyncio.run(run()) for _ in range(2)] == [9, 9]
