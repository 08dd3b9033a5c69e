from __future__ import annotations

import asyncio
import json
import socket
import time
from datetime import timedelta
from typing import Any, Final
from urllib.error import URLError

import attrs
import pytest
from prometheus_client import CollectorRegistry
from tests.integration.mongo_loop import in_loop
from tests.integration.test_monitor import free_port, got
from tests.integration.test_orchestrator_app import AT_ONCE, QUICK, STORES, Office, office_of, served, until
from tests.integration.test_orchestrator_triggers import TURNS
from tests.properties.on_documents import run

from tidegate.invocations.queue.completion import Cancelled, End, Failed, GivenBack, RunError, Succeeded
from tidegate.invocations.queue.fetching import Taken, Taker
from tidegate.invocations.worker.worker import Held
from tidegate.model.documents import Document
from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, ClockName, Instant
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.sim.world.world import world_with
from tidegate.triggers.leader_duties import DutyFailedError, Turn
from tidegate.work.events import ResultsWritten
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Result, Run, WriteReply, WriteResults
from tidegate_adapters.orchestrator import Orchestrator, Unfinished
from tidegate_adapters.orchestrator.monitor import of_health
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.stats import NOTHING, Tallies
from tidegate_adapters.orchestrator.status import BACKLOG_MAX, Backlog, backlogs_of

SOON: Final = timedelta(milliseconds=400)


def app_of(office: Office, registry: CollectorRegistry | None = None, **settings: Any) -> Orchestrator:
    told = OrchestratorSettings(**{"database": office.name, **QUICK, **settings})
    return Orchestrator(office.store, settings=told, metrics=registry)


def shown(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"tidegate_orchestrator_{name}", labels)


# --- metrics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_registry_shows_what_has_happened_and_what_is(mongodb: str, database: str, store: str) -> None:
    registry = CollectorRegistry()

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = app_of(office, registry, concurrency=1, stalled_after=SOON, services=TURNS)
            go_on, calls = asyncio.Event(), list[int]()

            @app.task(retries=1, backoff=AT_ONCE)
            async def flaky() -> None:
                calls.append(1)
                if len(calls) == 1:
                    raise ValueError("not yet")

            @app.task()
            async def stuck() -> None:
                await go_on.wait()

            @app.task()
            async def parent() -> None:
                await (await stuck.enqueue()).result()

            async with served(app):
                await (await flaky.enqueue()).result()
                first = await stuck.enqueue()
                await until(lambda: shown(registry, "active_runs", task="stuck") == 1, "it runs")
                await first.cancel()
                await until(
                    lambda: shown(registry, "ended_runs_total", task="stuck", outcome="cancelled") == 1, "cancelled"
                )
                above = await parent.enqueue()
                await until(lambda: shown(registry, "waiting_runs", task="parent") == 1, "it waits for its child")
                await until(lambda: shown(registry, "active_runs", task="stuck") == 1, "its child runs")
                late = await flaky.enqueue()
                await until(lambda: shown(registry, "due_invocations", queue="default") == 1, "one is due")
                await until(lambda: (shown(registry, "lag_seconds", queue="default") or 0) > 0, "since a while")
                go_on.set()
                await asyncio.gather(above.result(), late.result())
                ended = [
                    ("flaky", "succeeded", 2), ("flaky", "failed", 1), ("stuck", "cancelled", 1), ("stuck", "succeeded", 1),
                    ("stuck", "given_back", 0), ("parent", "succeeded", 1),
                ]  # fmt: skip
                await until(
                    lambda: all(
                        shown(registry, "ended_runs_total", task=task, outcome=outcome) == number
                        for task, outcome, number in ended
                    ),
                    "each end is counted, which a result may be ahead of",
                )
                for task, begun, retried in (("flaky", 3, 1), ("stuck", 2, 0), ("parent", 1, 0)):
                    assert shown(registry, "begun_runs_total", task=task) == begun
                    assert shown(registry, "retried_runs_total", task=task) == retried
                    assert shown(registry, "handler_seconds_count", task=task) == begun
                    assert shown(registry, "handler_seconds_bucket", task=task, le="+Inf") == begun
                    assert shown(registry, "active_runs", task=task) == shown(registry, "waiting_runs", task=task) == 0
                    assert shown(registry, "unwritten_runs", task=task) == 0
                assert shown(registry, "interruptions_total", task="stuck", reason="cancel") == 1
                assert shown(registry, "slots") == 1
                assert shown(registry, "beat_age_seconds") is not None
                await until(lambda: shown(registry, "turns_total", outcome="completed"), "it has had its turn")

    in_loop(run())

    assert list(registry.collect()) == []  # another app may use the port now


def test_a_turn_that_fails_is_counted_and_told_each_time_it_begins_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry, turns = CollectorRegistry(), list[int]()
    goes_well = 3

    async def work(turn: Turn, run: AtomicServiceRun, token: int) -> bool:
        del turn, run
        turns.append(token)
        if len(turns) == goes_well:
            return True
        raise DutyFailedError("notice: Refused(not authorised)")

    async def run() -> None:
        async with office_of("embedded", "", "jobs") as office:
            app = app_of(office, registry, services=TURNS)

            @app.task()
            async def idle() -> None: ...

            async with served(app):
                await until(lambda: len(turns) > goes_well, "turns fail, go well, and fail again")
                await until(lambda: said() == 2, "which is told")
                assert (shown(registry, "turns_total", outcome="abandoned") or 0) >= goes_well

    def said() -> int:
        return len([each for each in caplog.records if "not authorised" in each.getMessage()])

    monkeypatch.setattr(Turn, "work", work)
    in_loop(run())


def test_an_end_counts_once_it_is_written() -> None:
    came: tuple[End, ...] = (Succeeded(), Failed(RunError("E")), Cancelled(), GivenBack())
    tallies, now = Tallies(), Instant(0, ClockName("loop"))
    results = tuple(Result(Run("send", str(number), 1), 1, end) for number, end in enumerate(came))

    def follow(written: tuple[Result, ...], reply: WriteReply) -> None:
        tallies.follow(ResultsWritten(now, WriteResults("q", written), reply), WorkerState(), ())

    follow(results, WriteReply(results[1:]))
    assert tallies.ended == {("send", "succeeded"): 1}

    follow(results[:1], WriteReply(lost=results[:1]))
    assert tallies.ended == {("send", "succeeded"): 1, ("send", "lost"): 1}
    del tallies.ended["send", "lost"]

    follow(results[1:], WriteReply())
    assert tallies.ended == {("send", each): 1 for each in ("succeeded", "failed", "cancelled", "given_back")}


@pytest.mark.parametrize("waiting", [0, 3, BACKLOG_MAX, BACKLOG_MAX + 1])
def test_of_more_than_are_counted_the_oldest_is_found_all_the_same(waiting: int) -> None:
    names, now = Collections("jobs"), Instant(10_000 * SECOND)
    due = [now + -number * SECOND for number in range(waiting)]
    docs = [Document.of({"_id": f"{number:05}", "queue": "mine", "due": at}) for number, at in enumerate(due)]
    others = [
        Document.of({"_id": "0", "queue": "other", "due": now}),
        Document.of({"_id": "1", "queue": "mine", "due": now + SECOND}),
    ]
    found, _ = run(backlogs_of(names, ("mine",), now), world_with({names.invocations: (*others, *docs)}))
    assert found == (Backlog("mine", min(waiting, BACKLOG_MAX), max(waiting - 1, 0) * SECOND),)


# --- health -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_slots_that_handlers_do_not_give_back_are_not_healthy_while_something_is_due(
    mongodb: str, database: str, store: str
) -> None:
    port = free_port()

    async def asked(path: str = "/health") -> tuple[int, Any]:
        status, _, text = await asyncio.to_thread(got, port, path)
        return status, json.loads(text) if path == "/health" else text

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = app_of(office, concurrency=1, metrics_port=port, stalled_after=SOON)
            go_on = asyncio.Event()

            @app.task()
            async def stuck() -> None:
                await go_on.wait()

            async with served(app):
                first = await stuck.enqueue()
                with pytest.raises(Unfinished):
                    await first.result(timeout=2 * SOON)
                await until(is_calm, "nothing waits")  # the count of due invocations is cached

                second = await stuck.enqueue()
                await until(stands, "it is not healthy")
                (wrong,) = await stands()
                assert wrong.endswith(", and 1 are due")
                status, told = await asked()
                assert status == 503
                assert [(each["queue"], each["due"]) for each in told["queues"]] == [("default", 1)]

                go_on.set()
                await asyncio.gather(first.result(), second.result())
                await until(lambda: is_answered(200), "it is healthy again")
                assert 'begun_runs_total{task="stuck"} 2.0' in (await asked("/metrics"))[1]

    async def stands() -> list[str]:
        """Whatever the heartbeats say, which a slow machine delays."""
        return [each for each in (await asked())[1]["wrong"] if each.startswith("nothing has moved for ")]

    async def is_calm() -> bool:
        return not await stands()

    async def is_answered(status: int) -> bool:
        return (await asked())[0] == status

    in_loop(run())


def test_an_app_whose_looks_are_refused_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats succeed, but its user may not write invocations."""

    async def refused(*_: object) -> Taken:
        raise Refused("not authorised")

    monkeypatch.setattr(Taker, "take", refused)

    async def run() -> None:
        async with office_of("embedded", "", "") as office:
            port = free_port()
            app = app_of(office, metrics_port=port, stalled_after=SOON)

            @app.task()
            async def send() -> None: ...

            async def stands() -> bool:
                try:
                    _, _, text = await asyncio.to_thread(got, port, "/health")
                except URLError:  # before the first refresh
                    return False
                return any("nothing has moved" in each for each in json.loads(text)["wrong"])

            async with served(app):
                _ = await send.enqueue()
                await until(stands, "it is not healthy")

    in_loop(run())


def test_an_app_whose_loop_is_held_up_is_not_healthy() -> None:
    port = free_port()

    def after_a_while() -> tuple[int, str, str]:
        time.sleep(2 * SOON.total_seconds())
        return got(port, "/health")

    async def run() -> tuple[int, str, str]:
        async with office_of("embedded", "", "") as office:
            app = app_of(office, metrics_port=port, stalled_after=SOON)
            answers: list[asyncio.Future[tuple[int, str, str]]] = []

            @app.task()
            async def blocks() -> None:
                answers.append(asyncio.get_running_loop().run_in_executor(None, after_a_while))
                time.sleep(4 * SOON.total_seconds())  # noqa: ASYNC251  the fault

            async with served(app):
                await (await blocks.enqueue()).result()
            return await answers[0]

    status, _, text = in_loop(run())

    assert status == 503
    assert "no beat was confirmed" in json.loads(text)["wrong"][0]


def test_what_nobody_is_to_take_is_not_waited_for() -> None:
    seen = NOTHING._replace(backlogs=(Backlog("bulk", 2, 5 * SECOND),), moved_s=9.0)
    paused, stopping = Held(queues=frozenset({"bulk"})), Instant(0, ClockName("loop"))

    assert of_health(seen, 10 * SECOND).status == 200
    assert of_health(seen, 9 * SECOND).status == 503
    assert of_health(seen._replace(held=paused), 9 * SECOND).status == 200
    assert of_health(seen._replace(state=attrs.evolve(seen.state, stop_at=stopping)), 9 * SECOND).status == 200


def test_a_port_that_is_taken_is_told() -> None:
    async def run() -> None:
        async with office_of("embedded", "", "") as office:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                app = app_of(office, metrics_port=port)

                @app.task()
                async def nothing() -> None: ...

                with pytest.raises(Misuse, match=f"nothing can listen on port {port}"):
                    await app.serve()

    in_loop(run())
