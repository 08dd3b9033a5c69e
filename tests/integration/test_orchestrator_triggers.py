"""Triggers and exclusive duties, on a real MongoDB and on the embedded store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import attrs
import pytest
from tests.integration.mongo_loop import in_loop
from tests.integration.test_orchestrator_app import STORES, office_of, served, until

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, duration
from tidegate.retries.schedule import Missed
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate_adapters.orchestrator import (
    MaxRunning,
    Orchestrator,
    When,
    on_cron,
    on_event,
    on_exception,
    on_result,
    on_status,
)
from tidegate_adapters.orchestrator.services import PURGE, RECOVERY
from tidegate_adapters.orchestrator.turns import ServiceRules

TURNS: Final = ServiceRules(
    processes=2,
    interval=timedelta(seconds=2),
    spread=timedelta(milliseconds=100),
    check_every=timedelta(milliseconds=50),
    round_every=timedelta(milliseconds=50),
)

SHOP: Final = """
from tidegate_adapters.orchestrator import on_event


def is_large(payload):
    return payload["euros"] > 100


def order(what):
    return what.payload


def show():
    trigger = on_event("paid", where=is_large).calls_with(order).of("ship")
    print(trigger.id, trigger.conditions, flush=True)


if __name__ == "__main__":
    show()
"""


def started(when: When) -> Any:
    return when.of("t")


# --- triggers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_task_starts_when_what_it_waits_for_has_happened(mongodb: str, database: str, store: str) -> None:
    seen: list[object] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(services=TURNS)

            @app.task()
            async def divide(one: int, other: int) -> float:
                return one / other

            of_result = on_result(divide, where={"one": 6})

            @app.task(triggers=[of_result.calls_with(lambda what: {"said": f"{what.arguments} = {what.result}"})])
            async def tell(said: str) -> None:
                seen.append(said)

            of_error = on_exception(divide, ArithmeticError)  # a base class of the exception

            @app.task(
                triggers=[of_error.calls_with(lambda what: {"error": what.error, "number": what.arguments["one"]})]
            )
            async def warn(error: str, number: int) -> None:
                seen.append((error, number))

            @app.task(triggers=[(on_event("paid") & on_event("packed")).calls_with(order=7)])
            async def ship(order: int) -> None:
                seen.append(order)

            async with served(app):
                _ = await divide.enqueue(6, 2)
                _ = await divide.enqueue(6, 0)
                _ = await divide.enqueue(5, 2)
                await app.emit("paid", {"by": "card"})
                await until(lambda: len(seen) >= 2, "a result and an exception are heard of")
                await asyncio.sleep(0.3)
                assert 7 not in seen
                await app.emit("packed")
                await until(lambda: len(seen) >= 3, "two events have met")

                async def is_over() -> bool:
                    told = [each for each in await office.records() if "notice" in each]
                    return not told and not await office.records("orchestrator_occurrences")

                await until(is_over, "nothing is kept of what has been heard of")
                await asyncio.sleep(0.3)

            assert sorted(map(str, seen)) == sorted(["{'one': 6, 'other': 2} = 3.0", "('ZeroDivisionError', 6)", "7"])

    in_loop(run())


def test_a_run_is_heard_of_as_it_begins(mongodb: str, database: str) -> None:
    seen: list[tuple[str, bool]] = []

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app, goes_on = office.app(services=TURNS), asyncio.Event()

            @app.task(retries=1, backoff=timedelta(milliseconds=1))
            async def work(number: int) -> None:
                await goes_on.wait()
                raise OSError(number)

            @app.task(triggers=[on_status(work, "running").calls_with(lambda what: {"status": what.status})])
            async def tell(status: str) -> None:
                seen.append((status, goes_on.is_set()))
                goes_on.set()

            async with served(app):
                _ = await work.enqueue(1)
                await until(lambda: len(seen) >= 2, "two runs are heard of")
                await asyncio.sleep(0.3)
            assert seen == [("running", False), ("running", True)]

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_triggers_are_given_what_is_large(mongodb: str, database: str, store: str) -> None:
    seen: list[tuple[str, int]] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(services=TURNS, inline_bytes=1024)

            @app.task()
            async def export(text: str) -> str:
                return text * 2

            @app.task(triggers=[on_result(export).calls_with(lambda w: {"what": w.result, "of": w.arguments["text"]})])
            async def after(what: str, of: str) -> None:
                seen.append(("given", len(what) + len(of)))

            long = on_result(export, where=lambda w: len(w["text"]) > 4000, result=lambda text: len(text) > 4000)

            @app.task(triggers=[long])
            async def judged() -> None:
                seen.append(("judged", 0))

            async with served(app):
                _ = await export.enqueue("x" * 5000)
                _ = await export.enqueue("x")
                await until(lambda: len(seen) >= 3, "triggers have fired")
            assert sorted(seen) == [("given", 3), ("given", 15_000), ("judged", 0)]

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_all_that_wait_for_an_event_hear_of_it(mongodb: str, database: str, store: str) -> None:
    seen: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            app = office.app(services=TURNS)

            @app.task(triggers=[on_event("paid"), on_event("paid", where={"by": "card"})])
            async def count() -> None:
                seen.append("count")

            @app.task(triggers=[on_event("paid", where=lambda what: what["by"] != "cash")])
            async def check() -> None:
                seen.append("check")

            emits = [app.emit("paid", {"by": "card"}, event="e") for _ in range(2)]
            _ = await asyncio.gather(*emits)
            assert len(await office.records("orchestrator_occurrences")) == 3
            async with served(app):

                async def is_over() -> bool:
                    return not await office.records("orchestrator_occurrences")

                await until(lambda: len(seen) == 3, "each has heard of it")
                await until(is_over, "nothing waits")
                await app.emit("paid", {"by": "card"}, event="e")
                await until(is_over, "nothing waits again")
                await asyncio.sleep(0.3)
            assert sorted(seen) == ["check", "count", "count"]

    in_loop(run())


def test_an_event_commits_with_what_its_caller_writes_or_not_at_all(mongodb: str, database: str) -> None:
    seen: list[str] = []

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app, client = office.app(services=TURNS), office.client
            assert client is not None

            @app.task(triggers=[on_event("paid").calls_with(lambda what: {"order": what.payload["order"]})])
            async def ship(order: str) -> None:
                seen.append(order)

            async with client.start_session() as session:
                await session.start_transaction()
                await app.emit("paid", {"order": "never"}, session=session)
                await session.abort_transaction()
                for order in ("a", "b", "a"):
                    async with await session.start_transaction():
                        _ = await client[database].orders.insert_one({"order": order}, session=session)
                        await app.emit("paid", {"order": order}, event=order, session=session)
            assert await client[database].orders.count_documents({}) == 3
            assert len(await office.records("orchestrator_occurrences")) == 2
            async with served(app):
                await until(lambda: len(seen) >= 2, "events that were committed are heard of")
            assert sorted(seen) == ["a", "b"]

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_a_cron_fires_once_an_instant_whoever_looks(mongodb: str, database: str, store: str) -> None:
    seen: list[str] = []

    async def run() -> None:
        async with office_of(store, mongodb, database) as office:
            apps = []
            for _ in range(2):
                app = office.app(services=TURNS)

                @app.task(triggers=[on_cron("* * * * * *", missed=Missed.EACH).calls_with(name="one")], name="one")
                async def one(name: str) -> None:
                    seen.append(name)

                @app.task(triggers=[on_cron("* * * * * *", missed=Missed.EACH).calls_with(name="two")], name="two")
                async def two(name: str) -> None:
                    seen.append(name)

                apps.append(app)
            async with served(apps[0]), served(apps[1]):
                await until(lambda: len(seen) >= 6, "three seconds have passed")
            runs = await office.records("orchestrator_runs")
            instants = [(each["trigger"], each["occurrences"][0]["context"]["due"]) for each in runs]
            assert len(set(instants)) == len(instants)
            dues = sorted({due for _, due in instants})
            assert [later - earlier for earlier, later in pairwise(dues)] == [timedelta(seconds=1)] * (len(dues) - 1)
            records = await office.records()
            assert len(records) == len(runs)
            turns = await office.records("orchestrator_executions")
            assert {each["status"] for each in turns} <= {"completed", "abandoned", "blocked"}
            done = sorted((each["start"], each["end"]) for each in turns if each["status"] == "completed")
            assert done
            assert all(one[1] <= other[0] for one, other in pairwise(done))

    in_loop(run())


# --- services -----------------------------------------------------------------------------------------------------------


def test_a_work_of_the_users_is_done_by_one_process_at_a_time(mongodb: str, database: str) -> None:
    inside: list[str] = []
    tokens: list[int] = []
    wrong: list[str] = []  # an exception there is only logged

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:

            def made(name: str) -> Orchestrator:
                app = office.app(services=TURNS)

                @app.task(name=f"of {name}")
                async def nothing() -> None: ...

                @app.service()
                async def counts(turn: AtomicServiceRun, token: int) -> None:
                    if turn.window.length > TURNS.service.interval:
                        wrong.append(f"a window of {turn.window}")
                    inside.append(name)
                    tokens.append(token)
                    await asyncio.sleep(0.02)
                    if inside[-1] != name:
                        wrong.append(f"{inside[-1]} is at work beside {name}")
                    raise ValueError if len(tokens) % 2 else asyncio.CancelledError

                return app

            async with served(made("a")), served(made("b")):
                await until(lambda: {*inside} == {"a", "b"} and len(inside) > 5, "both have had their turn")
            assert not wrong
            assert tokens == sorted(tokens)
            assert len({*tokens}) >= 2

    in_loop(run())


def test_that_there_are_too_many_processes_for_turns_is_said(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Processes beyond the number of windows never get a turn, which no other sign shows."""
    few = ServiceRules(
        processes=1,
        interval=timedelta(seconds=1),
        spread=timedelta(milliseconds=600),
        check_every=timedelta(milliseconds=50),
    )

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            apps = office.app(services=few), office.app(services=few)
            for app in apps:

                @app.task()
                async def nothing() -> None: ...

            async with served(apps[0]), served(apps[1]):
                await until(lambda: "too many processes: none has a turn" in caplog.text, "it is said")

    in_loop(run())


def test_work_of_the_users_that_ignores_cancellation_is_left_behind(mongodb: str, database: str) -> None:
    is_at_work, let_go = asyncio.Event(), asyncio.Event()
    ignored: list[int] = []

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(services=TURNS)

            @app.task()
            async def nothing() -> None: ...

            @app.service()
            async def holds(_: AtomicServiceRun, token: int) -> None:
                is_at_work.set()
                while not let_go.is_set():
                    try:
                        await let_go.wait()
                    except asyncio.CancelledError:
                        ignored.append(token)

            serving = asyncio.create_task(app.serve())
            await is_at_work.wait()
            app.stop()
            await serving
            assert len(ignored) == 2, "it is asked once more"
            let_go.set()

    in_loop(run())


def test_who_dies_in_its_turn_keeps_triggers_still_until_some_beats_are_missing(mongodb: str, database: str) -> None:
    seen: list[str] = []

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(services=TURNS, beat_every=timedelta(milliseconds=100))
            assert app.settings.absent_after == 600 * MILLISECOND < duration(app.settings.dead_after)

            @app.task(triggers=[on_event("paid")])
            async def ship() -> None:
                seen.append("shipped")

            assert office.client is not None
            found = office.client[office.name]
            now = datetime.now(UTC)
            gone = {"_id": "gone", "created": now, "joined": now, "seen": now, "left": None}
            await found["orchestrator_members"].insert_one(gone)
            await found["orchestrator_gates"].insert_one(
                {"_id": "turn", "token": 3, "run": "gone.1", "runner": "gone", "started": now}
            )
            async with served(app):
                await app.emit("paid")
                await until(lambda: bool(seen), "it is shipped")

    in_loop(run())


def test_what_is_stuck_is_recovered_by_a_task_that_is_started_by_a_cron(mongodb: str, database: str) -> None:
    """Also a stuck recovery task, of which no other may run, by a process of another queue."""
    seen: list[str] = []

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            rules = attrs.evolve(TURNS, recover="* * * * * *")
            app = office.app(services=rules, dead_after=timedelta(milliseconds=500), queues=("bulk",))

            @app.task(queue="bulk")
            async def work(name: str) -> None:
                seen.append(name)

            async with served(app):
                handle = await work.enqueue("first")
                await handle.result()
                assert office.client is not None
                records = office.client[office.name]["orchestrator_invocations"]
                await until(
                    lambda: records.find_one({"task": RECOVERY, "status": "success"}), "it has recovered, of nothing"
                )
                # As if a process had died that ran both, a job and the recovery itself.
                gone = {"$set": {"status": "running", "owner": "gone"}, "$inc": {"version": 1}, "$unset": {"due": 1}}
                await records.update_one({"_id": handle.id}, gone)
                await records.update_one({"task": RECOVERY, "status": "success"}, gone)
                await until(lambda: seen.count("first") == 2, "the job is run again")

    in_loop(run())


def test_a_recovery_of_the_users_is_run_in_the_place_of_ours(mongodb: str, database: str) -> None:
    seen: list[int] = []

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(services=TURNS)

            @app.task(name=RECOVERY, triggers=[on_cron("* * * * * *")], max_running=MaxRunning())
            async def recover() -> None:
                seen.append(1)

            async with served(app):
                await until(lambda: seen, "it was run")
            assert [each["task"] for each in await office.records() if each["task"] not in {RECOVERY, PURGE}] == []

    in_loop(run())


# --- misuse ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: on_cron("61 * * * *"), "Bad minute"),
        (lambda: on_cron("0 0 * * *", zone="Europe/Atlantis"), "no time zone"),
        (lambda: on_status("t", "registered"), "nobody tells"),
        (lambda: started(on_event("a") & on_event("a")), "twice"),
        (lambda: (on_event("a") & on_event("b")) | on_event("c"), "joined by & and by"),
        (lambda: on_event("a").within(timedelta(1)), "waits for nothing else"),
        (lambda: (on_event("a") & on_event("b")).within(5), "within must be a timedelta, got int 5"),  # type: ignore[arg-type]
        (lambda: on_cron("* * * * *", late=5), "late must be a timedelta, got int 5"),  # type: ignore[arg-type]
        (lambda: on_event("a").calls_with(lambda _: {}, n=1), "leave one of them out"),
        (lambda: on_event("a").calls_with(n=1) & on_event("b"), "on the whole"),
        (lambda: on_result(7), "no task"),  # type: ignore[arg-type]
        (lambda: on_event("a") & 7, "join what"),  # type: ignore[operator]
        (lambda: ServiceRules(processes=60, interval=timedelta(minutes=1), spread=timedelta(seconds=1)), "60 processes cannot share"),
        (lambda: ServiceRules(processes=5, spread=timedelta(minutes=1), interval=timedelta(minutes=5)), "5 processes cannot share"),
        (lambda: ServiceRules(check_every=timedelta(seconds=30)), "ask more often"),
        *(
            (partial(cast("Any", ServiceRules), **{what: 5}), f"{what} must be a timedelta, got int 5")
            for what in (
                "interval", "spread", "stabilisation", "check_every", "margin", "round_every", "pending_max",
            )
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_as_it_is_declared(wrong: Any, said: str) -> None:
    """What, why, and what to do (W11, W12, W18)."""
    with pytest.raises(Misuse, match=said):
        wrong()


def test_what_cannot_be_started_is_said(mongodb: str, database: str, caplog: pytest.LogCaptureFixture) -> None:
    """The code for its arguments raised; once the reason was only in a document."""

    def wrong(_: object) -> dict[str, object]:
        raise LookupError("password=hunter2")

    async def run() -> None:
        async with office_of("mongod", mongodb, database) as office:
            app = office.app(services=TURNS)

            @app.task(triggers=[on_event("paid").calls_with(wrong)])
            async def ship() -> None: ...

            async with served(app):
                await app.emit("paid")
                await until(lambda: "a trigger could not start ship, try 1: " in caplog.text, "it is said")
            assert "hunter2" not in caplog.text

    in_loop(run())


def test_a_function_is_the_same_however_its_file_is_run(tmp_path: Path) -> None:
    """By another name a trigger would miss events of another process."""
    (tmp_path / "shop.py").write_text(SHOP)
    ways = (
        ("shop.py",),
        ("-c", "import shop; shop.show()"),
        ("-c", "from tidegate_adapters.exploring.targets import attribute; attribute('shop.py:show')[0]()"),
    )
    said = {
        subprocess.run([sys.executable, *way], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for way in ways
    }

    assert len(said) == 1
    assert len(said.pop()) > 64


def test_triggers_that_differ_are_two() -> None:
    """W18: by arguments, or by the policy for missed instants of a cron."""
    every = on_cron("*/5 * * * *")
    late = on_cron("*/5 * * * *", late=timedelta(minutes=1))

    made = [
        started(each)
        for each in (every, every.calls_with(n=1), every.calls_with(n=2), late, on_cron("*/5 * * * *", zone="UTC"))
    ]

    assert len({each.id for each in made}) == len(made)
    assert len({each.condition_ids for each in made}) == 3
