"""Signals at the start, forks, other Pythons, self-editing handlers, operators; real MongoDB."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from signal import SIGCONT, SIGTERM
from subprocess import PIPE, Popen
from typing import Any, Final

import pytest
from pymongo import MongoClient
from pymongo.collation import Collation
from tests.integration.mongo_loop import in_loop
from tests.integration.servers.processes import wait_until
from tests.integration.test_mongodash_faults import all_are, in_shop
from tests.integration.test_pythons import VERSIONS, interpreter
from tests.integration.test_reactive_app import AT_ONCE, PATIENCE_S, QUICK, Raw, Shop, served, until

from tidegate.model.errors import Misuse, TidegateError
from tidegate.reactive.admin.pausing import Pausing
from tidegate.reactive.record.record_queries import Query
from tidegate_adapters.reactive import Change, Later, Reactive
from tidegate_adapters.reactive.admin import Office
from tidegate_adapters.reactive.names import STREAMS
from tidegate_adapters.reactive.planner import PlannerRules

APP: Final = """
    import logging, os, sys
    from datetime import timedelta
    from tidegate.model.instants import MILLISECOND
    from tidegate.retries.polling import PollingBounds
    from tidegate_adapters.reactive import Reactive
    from tidegate_adapters.reactive.settings import ReactiveSettings

    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    polling = PollingBounds(least=20 * MILLISECOND, most=100 * MILLISECOND, jitter=0)
    app = Reactive(sys.argv[1], settings=ReactiveSettings(database=sys.argv[2], polling=polling))

    @app.task("orders", debounce=timedelta(0))
    async def invoice(change):
        os.write(1, f"handled {change.id} {os.getpid()}\\n".encode())
"""
RUN: Final = textwrap.dedent(APP) + "\napp.run()\n"


# --- processes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["SIGTERM or Ctrl-C lets it drain", "is connected", " leads in "])
def test_a_signal_at_the_start_ends_it_in_order(mongodb: str, database: str, line: str) -> None:
    with Popen([sys.executable, "-c", RUN, mongodb, database], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        for said in process.stdout:
            if line in said:
                process.send_signal(SIGTERM)
                break
        assert process.wait(PATIENCE_S) == 0
    with MongoClient[Raw](mongodb) as client:
        lease = client[database]["tidegate_leases"].find_one() or {}
    assert lease.get("holder") is None


def test_children_of_a_fork_are_processes_like_others(mongodb: str, database: str) -> None:
    code = textwrap.dedent(APP) + textwrap.dedent("""
        children = []
        for _ in range(2):
            if not (child := os.fork()):
                app.run()
                os._exit(0)
            children.append(child)
        os.write(1, f"forked {children[0]} {children[1]}\\n".encode())  # at once, or what a child writes comes in between
        print("ended", *(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children), flush=True)
    """)
    with (
        MongoClient[Raw](mongodb) as client,
        Popen([sys.executable, "-c", code, mongodb, database], stdout=PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        _ = client[database]["orders"].insert_many([{"_id": key} for key in range(200)])
        children, handled = list[int](), list[tuple[int, int]]()
        for said in process.stdout:
            match said.split():
                case ["forked", *pids]:
                    children = [*map(int, pids)]
                case ["handled", key, pid]:
                    handled.append((int(key), int(pid)))
                case _:
                    pass
            if len(handled) == 200 and children:
                break
        for child in children:
            os.kill(child, SIGTERM)
        rest = process.stdout.read()
    assert sorted(key for key, _ in handled) == [*range(200)]
    assert "handled" not in rest
    assert "ended 0 0" in rest


STANDING_STILL: Final = """
    from tests.integration.storming import standing_still_at
    from tidegate.work.vocabulary import StartHandlers

    settings = ReactiveSettings(database=sys.argv[2], polling=polling)
    app = Reactive(sys.argv[1], settings=settings, observers=[standing_still_at(StartHandlers)])
"""
LEASED: Final = """
    @app.task("orders", debounce=timedelta(0), lease=timedelta(seconds=1))
    KIND leased(change):
        os.write(1, f"called {change.id}\\n".encode())

    app.run()
"""


@pytest.mark.parametrize("kind", ["async def", pytest.param("def", marks=pytest.mark.long)])
def test_who_stood_still_does_not_call_what_another_has_handled_meanwhile(
    mongodb: str, database: str, kind: str
) -> None:
    before, after = textwrap.dedent(APP), textwrap.dedent(LEASED).replace("KIND", kind)
    code = before[: before.index("@app.task")] + textwrap.dedent(STANDING_STILL) + after
    other = before[: before.index("@app.task")] + after
    with MongoClient[Raw](mongodb) as client, ExitStack() as stack:
        orders, records = client[database]["orders"], client[database]["orders_tasks"]

        def started(code: str) -> Popen[str]:
            process = stack.enter_context(
                Popen([sys.executable, "-c", code, mongodb, database], stdout=PIPE, text=True)
            )
            stack.callback(process.kill)
            return process

        def called(process: Popen[str]) -> str:
            assert process.stdout is not None
            return next(said for said in process.stdout if "called" in said)

        first = started(code)
        _ = orders.insert_one({"_id": 1})
        wait_until(lambda: records.find_one({"status": "processing"}) is not None, "the first has taken it", PATIENCE_S)
        second = started(other)
        assert called(second) == "called 1\n"
        second.send_signal(SIGTERM)
        assert second.wait(PATIENCE_S) == 0
        first.send_signal(SIGCONT)
        _ = orders.insert_one({"_id": 2})
        assert called(first) == "called 2\n"


PURE: Final = ("attr", "attrs", "pymongo", "bson", "gridfs", "dns")
SOURCES: Final = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_an_app_runs_on_other_pythons(mongodb: str, database: str, tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    for name in PURE:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        _ = shutil.copytree(
            Path(spec.origin).parent, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    paths = os.pathsep.join(map(str, (SOURCES / "core", SOURCES / "adapters", tmp_path)))
    with MongoClient[Raw](mongodb) as client:
        _ = client[database]["orders"].insert_many([{"_id": key} for key in range(20)])
    command, env = [python, "-c", RUN, mongodb, database], {"PYTHONPATH": paths, "PATH": os.environ["PATH"]}
    with Popen(command, stdout=PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        handled = set[int]()
        for said in process.stdout:
            if said.startswith("handled"):
                handled.add(int(said.split()[1]))
            if len(handled) == 20:
                process.send_signal(SIGTERM)
                break
        _ = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0
    assert handled == {*range(20)}


# --- handlers and operators ----------------------------------------------------------------------------------------------------


def test_a_handler_that_edits_what_it_watches_is_called_again(mongodb: str, database: str) -> None:
    """The remedy: watch other fields, or write only a change."""

    async def work(shop: Shop) -> None:
        app, runs = shop.app(), list[tuple[int, int]]()

        @app.task("orders", watch=["n"], debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            runs.append((change.values["n"], change.attempt))
            await shop.put(1, "n", min(change.values["n"] + 1, 5))
            await shop.put(1, "note", len(runs))

        async with served(app):
            await shop.insert({"_id": 1, "n": 0})
            await until(lambda: len(runs) == 6, "it runs for each edit")
            await until(lambda: all_are(shop, "completed"), "and not for what makes no difference")
        assert runs == [(number, 1) for number in range(6)]

    in_shop(mongodb, database, work)


def test_what_changes_while_its_task_is_paused_is_handled_once_as_it_is_then(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, runs = shop.app(), list[int]()

        @app.task("orders", watch=["n"], debounce=AT_ONCE)
        async def invoice(change: Change) -> None:
            runs.append(change.values["n"])

        async with served(app), app.connected() as sites:
            site = sites[shop.name]
            await site.run(Pausing().pause("invoice"))
            await until(lambda: app.pool is not None and "invoice" in app.pool.state.paused, "it is paused")
            await shop.insert({"_id": 1, "n": 0})
            for number in range(1, 5):
                await shop.put(1, "n", number)
            await until(lambda: remembers(shop, 4), "all changes had their look")
            assert runs == []
            await site.run(Pausing().resume("invoice"))
            await until(lambda: runs == [4], "it is handled")
            await until(lambda: all_are(shop, "completed"), "once")

    in_shop(mongodb, database, work)


async def remembers(shop: Shop, number: int) -> bool:
    return [each["snapshot"]["n"] for each in await shop.records()] == [number]


def test_who_runs_what_is_running_again_has_it_run_after_that(mongodb: str, database: str) -> None:
    async def work(shop: Shop) -> None:
        app, may_end = shop.app(), asyncio.Event()
        begun = running = most = 0

        @app.task("orders", debounce=AT_ONCE)
        async def invoice(_: Change) -> None:
            nonlocal begun, running, most
            begun, running = begun + 1, running + 1
            most = max(most, running)
            await may_end.wait()
            running -= 1

        async with served(app), app.connected() as sites:
            office = Office([each.at(sites[shop.name]) for each in app.declared.values()])
            # A reconciliation would write beside the retries, which would then report a change.
            await until(lambda: "invoice" in app.planners[0].standing.reconciled, "every document was looked at")
            await shop.insert({"_id": 1})
            await until(lambda: running, "it runs")
            for _ in range(3):
                assert (await office.retry(Query(tasks=("invoice",)))).reset == 1
            may_end.set()
            await until(lambda: begun == 2, "it runs again")
            await until(lambda: all_are(shop, "completed"), "and ends")
        assert (begun, most) == (2, 1)

    in_shop(mongodb, database, work)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"viewOn": "others", "pipeline": []}, "which is a view"),
        ({"timeseries": {"timeField": "at"}}, "which is a time-series collection"),
        ({"capped": True, "size": 100_000}, "which is capped"),
    ],
    ids=["view", "timeseries", "capped"],
)
def test_what_cannot_be_followed_is_said_at_once(mongodb: str, database: str, made: Raw, said: str) -> None:
    """Views and time series report no changes; capped collections cannot be read."""

    async def work(shop: Shop) -> None:
        assert shop.client is not None
        _ = await shop.client[shop.name].create_collection("orders", **made)
        app = shop.app()

        @app.task("orders")
        async def invoice(_: Change) -> None: ...

        with pytest.raises(Misuse, match=said):
            await app.serve()

    in_shop(mongodb, database, work)


MIXED: Final = ("a", "B", "c", "D", "e", "F", "Äpfel", "zebra", "Zoo", "10", "9", "100", "k1", "K2", "k3", "K4")
"""Ids that a collation orders differently, or treats as equal, by case or numeric order."""


@pytest.mark.parametrize(
    "made",
    [
        {"collation": Collation("en", strength=2)},
        {"collation": Collation("en", numericOrdering=True)},
        {"collation": Collation("de", strength=1, alternate="shifted")},
        {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
        {"validator": {"n": {"$type": "int"}}},
        {"changeStreamPreAndPostImages": {"enabled": True}},
        {"storageEngine": {"wiredTiger": {"configString": "block_compressor=zlib"}}},
        {},
    ],
    ids=["case", "numbers", "letters", "clustered", "validator", "images", "compressed", "time to live"],
)
def test_a_collection_with_any_option_is_followed(
    mongodb: str, database: str, made: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(shop: Shop) -> None:
        assert shop.client is not None
        there = shop.client[shop.name]
        orders = await there.create_collection("orders", **made)
        if not made:
            await orders.create_index("at", expireAfterSeconds=3600)
        seen: list[tuple[str, str]] = []

        def app() -> Reactive:
            made = shop.app(planner=PlannerRules(terms=QUICK["planner"].terms, batch=5))

            @made.task("orders", watch=["n", "word"], debounce=AT_ONCE)
            async def invoice(change: Change) -> None:
                found = await orders.find_one({"_id": change.id}, collation=Collation("simple"))
                assert found is not None
                seen.append((change.id, found["word"]))

            return made

        def told(**words: str) -> Callable[[], bool]:
            return lambda: {(each, word) for each, word in seen if each in words} >= set(words.items())

        await shop.insert(*({"_id": each, "n": 1, "word": "one"} for each in MIXED))
        async with served(app()):
            await until(told(**dict.fromkeys(MIXED, "one")), f"all were handled that were there, not {seen}")
            await shop.insert({"_id": "late", "n": 1, "word": "one"})
            await orders.update_one({"_id": "a"}, {"$set": {"word": "ONE"}}, collation=Collation("simple"))
            await until(told(late="one", a="ONE"), "what changed was handled")
        await there[STREAMS].delete_many({})  # as if the oplog had forgotten the position
        await orders.update_one({"_id": "B"}, {"$set": {"word": "ONE"}}, collation=Collation("simple"))
        await shop.insert({"_id": "Later", "n": 1, "word": "one"})
        async with served(app()):
            await until(told(Later="one", B="ONE"), "what had changed meanwhile was handled")
        assert ("by reading all of them" in caplog.text) is ("collation" in made)

    in_shop(mongodb, database, work)


def test_a_database_that_is_there_in_other_case_is_said_at_once(mongodb: str, database: str) -> None:
    """MongoDB creates no second one, so waiting does not help."""
    with MongoClient[Raw](mongodb) as client:
        _ = client[database]["orders"].insert_one({"_id": 1})
    app = Reactive(mongodb, database=database.upper())

    @app.task("orders")
    async def invoice(_: Change) -> None: ...

    with pytest.raises(TidegateError, match="in other case"):
        in_loop(app.serve())


def test_run_is_for_the_main_thread_and_for_no_loop() -> None:
    """Signals reach the main thread alone, and `run` creates a loop."""
    app = Reactive("mongodb://localhost", database="shop")

    async def in_a_loop() -> None:
        app.run()

    with pytest.raises(Misuse, match=r"await serve\(\) instead"):
        in_loop(in_a_loop())
    with ThreadPoolExecutor() as threads, pytest.raises(Misuse, match="main thread"):
        threads.submit(app.run).result()


def test_later_is_within_a_century(mongodb: str, database: str) -> None:
    """Beyond the range of dates the end of the run could never be written."""

    async def work(shop: Shop) -> None:
        app = shop.app()

        @app.task("orders", debounce=AT_ONCE, retries=0)
        async def invoice(_: Change) -> None:
            raise Later(timedelta(days=40_000))

        async with served(app):
            await shop.insert({"_id": 1})
            await until(lambda: refuses(shop, "the most is a century"), "it has failed, and says why")

    in_shop(mongodb, database, work)


async def refuses(shop: Shop, words: str) -> bool:
    return [each["status"] for each in await shop.records() if words in (each.get("last_error") or "")] == ["failed"]


def test_a_module_that_is_imported_twice_is_two_apps_or_a_clear_error(tmp_path: Path) -> None:
    _ = (tmp_path / "shared.py").write_text(
        'from tidegate_adapters.reactive import Reactive\napp = Reactive("mongodb://h/?replicaSet=r", "shop")\n'
    )
    _ = (tmp_path / "tasks.py").write_text(
        "from shared import app\n@app.task('orders')\nasync def invoice(change): ...\n"
    )
    code = """
        import importlib.util, json, tasks
        try:
            spec = importlib.util.spec_from_file_location("again", tasks.__file__)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except Exception as error:
            print(json.dumps(str(error)))
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    error: Any = json.loads(said.stdout)
    assert error.startswith("there are two tasks 'invoice'")
    assert "pass another name=" in error
