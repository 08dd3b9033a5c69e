"""`tidegate reactive` as a process: signals, exit codes and output, on a real MongoDB."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, final
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import MongoClient
from tests.integration.command_lines import Asking, Running

from tidegate.exit_codes import ExitCode
from tidegate.model.documents import Value
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.tasks import TaskRules
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.runtime import driver
from tidegate_adapters.runtime.driver import choosing, documents, local

APP: Final = """
import asyncio
import os
from datetime import timedelta
from pathlib import Path

from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.reactive import Reactive
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate.retries.polling import PollingBounds

QUICK = PollingBounds(least=20_000, most=200_000, jitter=0)
app = Reactive(
    os.environ["URI"], settings=ReactiveSettings(database=os.environ["DATABASE"], uri=os.environ["URI"], polling=QUICK)
)


@app.task(collection="orders", debounce=timedelta(0), retries=0)
async def bill(change):
    print("begun", change.id, flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    if change.values.get("fails") and not Path("fixed").exists():
        raise RuntimeError("password=hunter2 is wrong")
    print("done", change.id, flush=True)


@app.task(collection="orders", debounce=timedelta(0), where={"mail": True})
async def mail(change):
    pass


empty = Reactive(os.environ["URI"], database="shop")
embedded = Reactive(Embedded(), database="shop")


@embedded.task(collection="orders")
async def hold(change):
    pass


def by_function():
    return app


async def by_coroutine():
    await asyncio.sleep(0)
    return app


def raises():
    raise RuntimeError("no database")


def takes(one):
    return app


number = 5
"""

Run = Callable[..., Running]


@pytest.fixture
def run(mongodb: str, database: str, tmp_path: Path) -> Iterator[Run]:
    started: list[Running] = []

    def running(target: str = "app", *options: str) -> Running:
        (tmp_path / "app.py").write_text(APP)
        started.append(Running("reactive", tmp_path, target, *options, URI=mongodb, DATABASE=database))
        return started[-1]

    yield running
    for each in started:
        each.process.kill()
        each.process.communicate()


@final
class Orders:
    def __init__(self, client: MongoClient[dict[str, Any]], database: str) -> None:
        self.documents, self.records = client[database]["orders"], client[database]["orders_tasks"]
        self.handle = choosing(documents(Mongo(client, database)), local())

    def insert(self, *keys: Value, **more: object) -> None:
        self.documents.insert_many([{"_id": each, **more} for each in keys])
        bill = ReactiveTask(name="bill", source="orders", rules=TaskRules(debounce=Debounce(0)))
        assert driver.run(bill.plan_pass(keys, uuid4().hex), self.handle) == ()

    def statuses(self, task: str = "bill") -> list[str]:
        return sorted(each["status"] for each in self.records.find({"task": task}))

    def until(self, statuses: list[str], task: str = "bill") -> None:
        limit = time.monotonic() + 60
        while (found := self.statuses(task)) != statuses:
            assert time.monotonic() < limit, found
            time.sleep(0.05)

    def until_there(self, key: object) -> None:
        limit = time.monotonic() + 60
        while self.records.find_one({"document": key}) is None:
            assert time.monotonic() < limit
            time.sleep(0.05)


@pytest.fixture
def orders(mongodb: str, database: str) -> Iterator[Orders]:
    with MongoClient[dict[str, Any]](mongodb) as client:
        yield Orders(client, database)


@pytest.fixture
def asking(
    mongodb: str, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Asking:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("URI", mongodb)
    monkeypatch.setenv("DATABASE", database)
    return Asking("reactive", capsys)


# --- run ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "number"),
    [
        pytest.param("app", signal.SIGTERM, marks=pytest.mark.long),
        ("by_function", signal.SIGINT),
        ("by_coroutine", signal.SIGTERM),
    ],
)
def test_a_signal_lets_handlers_end(
    run: Run, orders: Orders, tmp_path: Path, target: str, number: signal.Signals
) -> None:
    orders.insert("a", "b", "c")
    running = run(target, "--json")
    running.until("begun", 3)
    running.asked(number, f"{number.name}: draining")
    (tmp_path / "go").touch()

    assert running.code() == 128 + number == ExitCode(128 + number)
    assert running.log.read_text().count("done") == 3
    assert running.process.stdout is not None
    answer = json.loads(running.process.stdout.read())
    assert orders.statuses() == ["completed"] * 3
    assert answer == {"schema": "tidegate/reactive@1", "ended_by": number.name, "ok": True}


def test_a_second_signal_waits_for_nothing(run: Run, orders: Orders) -> None:
    orders.insert("a")
    running = run()
    running.until("begun")
    running.asked(signal.SIGTERM, "SIGTERM: draining")
    running.asked(signal.SIGINT, "SIGINT: waiting for nothing")

    assert running.code() == ExitCode.TERMINATED
    assert orders.statuses() == ["pending"]


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_module_that_runs_its_app_as_it_is_loaded_is_refused(asking: Asking, tmp_path: Path, command: str) -> None:
    """A query would have run the app; the first signal ended it and the command restarted it."""
    (tmp_path / "runs.py").write_text(APP + "\n\napp.run()\n")

    done = asking.main("reactive", command, "runs.py:app")

    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "run() as its module is loaded" in done.err
    assert 'if __name__ == "__main__"' in done.err


# --- settings -----------------------------------------------------------------------------------------------------------


def test_what_it_is_told_comes_from_arguments_environment_file_and_code_in_this_order(
    asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text("[worker]\ngroup = 'g'\n[reactive]\nconcurrency = 7\npolling.most = '3 s'")

    def rows(*command: str) -> dict[str, tuple[str, str]]:
        done = asking.main(*command, "app.py:app", "--json")
        assert done.code == ExitCode.OK, done.err
        answer = json.loads(done.out)
        assert (answer["schema"], answer["ok"]) == ("tidegate/config@1", True)
        return {each["path"]: (each["value"], each["origin"]) for each in answer["settings"]}

    show = ("config", "show")
    assert rows(*show)["concurrency"] == ("10", "default")
    assert rows(*show, "--config", "own.toml")["concurrency"] == ("7", "file own.toml")
    for name, value in (
        ("REACTIVE__CONCURRENCY", "8"),
        ("REACTIVE__PAGE_TOKEN", "hunter2" * 3),
        ("WORKER__GROUP", "g"),
        ("CONFIG", "own.toml"),
    ):
        monkeypatch.setenv(f"TIDEGATE_{name}", value)
    told = rows(*show)
    assert told["concurrency"] == ("8", "environment TIDEGATE_REACTIVE__CONCURRENCY")
    assert told["polling.most"] == ("3 s", "file own.toml")
    assert told["uri"] == ("***", "code")
    assert told["page_token"] == ("***", "environment TIDEGATE_REACTIVE__PAGE_TOKEN")
    dry = rows("reactive", "run", "--dry-run", "--set", "concurrency=9")
    assert dry == {**told, "concurrency": ("9", "argument concurrency")}


# --- queries and commands -----------------------------------------------------------------------------------------------


FIRST, SECOND = ObjectId("65a5f0b4c3d2e1f0a9b8c7d6"), ObjectId("65a5f0b4c3d2e1f0a9b8c7d7")


def ids(answer: dict[str, Any]) -> list[object]:
    return [each["document"] for each in answer["records"]]


def test_records_are_listed_counted_and_retried(run: Run, orders: Orders, asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    running = run()
    orders.documents.insert_many(
        [{"_id": 7, "fails": 1}, {"_id": "7", "fails": 1}, {"_id": FIRST}, {"_id": SECOND, "fails": 1}]
    )
    running.until("done")
    running.until("attempt 1, has failed", 3)
    orders.until(["completed", "failed", "failed", "failed"])
    running.asked(signal.SIGTERM, "SIGTERM: draining")
    assert running.code() == ExitCode.TERMINATED

    failed = asking.told("list", "--status", "failed", "--task", "bill")
    assert sorted(map(str, ids(failed))) == sorted(map(str, [7, "7", {"$oid": str(SECOND)}]))
    assert failed["more"] is False
    (one,) = asking.told("list", "--id", f'{{"$oid": "{SECOND}"}}')["records"]
    assert (one["task"], one["status"], one["attempts"], one["next_run_at"]) == ("bill", "failed", 1, None)
    assert one["last_error"] == "RuntimeError: password=*** is wrong"
    assert ids(asking.told("list", "--id", str(FIRST))) == [{"$oid": str(FIRST)}]
    assert sorted(map(str, ids(asking.told("list", "--id", "7")))) == ["7", "7"]
    assert ids(asking.told("list", "--id", '"7"')) == ["7"]
    assert len(ids(asking.told("list", "--error", "PASSWORD", "--limit", "2"))) == 2
    assert asking.told("list", "--limit", "2")["more"] is True
    assert ids(asking.told("list", "--due-before", "0s")) == []

    (bill, mail) = asking.told("count")["tasks"]
    assert (bill["task"], bill["records"]["failed"], bill["records"]["completed"], bill["lag_s"]) == ("bill", 3, 1, 0)
    assert (mail["task"], sum(mail["records"].values())) == ("mail", 0)
    lines = [line.split() for line in asking.said("list", "--status", "failed", "--id", '"7"').out.splitlines()]
    assert [line[:3] for line in lines] == [["bill", '"7"', "failed"]]
    assert asking.said("count").out.splitlines()[1].split() == ["bill", "0", "0", "0", "1", "3", "0", "0", "s"]

    assert (
        asking.told("retry", "--id", str(SECOND), "--status", "completed", code=ExitCode.NOTHING_SELECTED)["reset"] == 0
    )
    (tmp_path / "fixed").touch()
    assert asking.told("retry", "--status", "failed", "--id", "7")["reset"] == 2
    assert asking.told("count", "--status", "pending")["tasks"][0]["records"]["pending"] == 2
    running = run()
    orders.until(["completed", "completed", "completed", "failed"])
    assert asking.said("retry", "--error", "is wrong").out == "1 to run again\n"
    orders.until(["completed"] * 4)


def test_a_task_that_is_paused_begins_no_handler_until_it_is_resumed(
    run: Run, orders: Orders, asking: Asking, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    assert list(asking.told("pause", "bill")["paused"]) == ["bill"]
    running = run("app", "--set", "paused_every=50 ms")
    orders.documents.insert_one({"_id": "a", "mail": True})
    orders.until(["completed"], task="mail")
    assert orders.statuses() == ["pending"]
    assert "begun" not in running.log.read_text()
    status = asking.told("status")
    assert [(each["task"], each["paused"]) for each in status["tasks"]] == [("bill", True), ("mail", False)]
    assert "paused" in asking.said("status").out

    assert asking.said("resume", "bill").out == "paused: none\n"
    orders.until(["completed"])


def test_the_leader_is_told(run: Run, orders: Orders, asking: Asking) -> None:
    (nobody,) = asking.told("status")["databases"]
    assert (nobody["leader"], nobody["epoch"], nobody["reached"]) == (None, 0, None)
    assert "nobody leads" in asking.said("status").out

    running = run()
    orders.documents.insert_one({"_id": "a"})
    orders.until_there("a")
    (led,) = asking.told("status")["databases"]
    assert str(running.process.pid) in led["leader"]
    assert (led["epoch"], led["history"]) == (1, 0)
    assert led["lease_left_s"] > 0
    assert led["reached"] is not None
    assert "leads under epoch 1, for" in asking.said("status").out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("status",), ExitCode.OK),
        (("count",), ExitCode.OK),
        (("list",), ExitCode.OK),
        (("retry", "--all"), ExitCode.NOTHING_SELECTED),
        (("resume", "bill"), ExitCode.OK),
        (("import", "bill", "--from", "old", "--quiet", "10ms"), ExitCode.NOTHING_SELECTED),
        pytest.param(("import", "bill", "--from", "old"), ExitCode.NOTHING_SELECTED, marks=pytest.mark.long),
    ],
)
def test_who_asks_makes_nothing(
    mongodb: str, database: str, asking: Asking, options: tuple[str, ...], code: ExitCode
) -> None:
    """The database may be a typing error, and the user may only have read access."""
    assert asking.said(*options).code == code

    with MongoClient[dict[str, Any]](mongodb) as client:
        assert database not in client.list_database_names()


# --- from mongodash -----------------------------------------------------------------------------------------------------


def left_by_mongodash(key: str, status: str, **more: object) -> dict[str, object]:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    due = {"nextRunAt": at if status == "pending" else None, "dueAt": at, "createdAt": at, "updatedAt": at}
    observed = {"lastObservedValues": {"_id": key, "total": 1}}
    return {"task": "makeBill", "sourceDocId": key, "status": status, "attempts": 1, **due, **observed, **more}


def test_what_mongodash_has_left_is_taken_over_once(run: Run, orders: Orders, asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    theirs = orders.records.database["old"]
    theirs.insert_many([left_by_mongodash("a", "completed"), left_by_mongodash("b", "pending"), {"task": "makeBill"}])
    orders.documents.insert_many([{"_id": "a", "total": 1}, {"_id": "b", "total": 1}])
    how = ("bill", "--from", "old", "--named", "makeBill", "--quiet", "10ms")

    assert asking.told("import", *how[:3], *how[5:], code=ExitCode.NOTHING_SELECTED)["taken"] == 0  # of a task bill
    dry = asking.told("import", *how, "--dry-run", code=ExitCode.INCONCLUSIVE)
    assert (dry["taken"], dry["unreadable"], dry["dry_run"], orders.statuses()) == (2, 1, True, [])
    theirs.delete_one({"sourceDocId": None})
    assert asking.said("import", *how).out == "2 taken over, 0 were here before, 0 cannot be read\n"
    assert asking.said("import", *how).out.startswith("taken over before, at 20")

    running = run()
    orders.until(["completed", "completed"])
    assert running.log.read_text().count("begun") == 1
    assert "begun b" in running.log.read_text()
    assert theirs.count_documents({}) == 2


def test_what_mongodash_still_writes_to_is_not_taken_over(orders: Orders, asking: Asking) -> None:
    """Its leader or a worker lives."""
    database = orders.records.database
    database["old"].insert_one(left_by_mongodash("a", "completed"))
    lock = {"expiresAt": datetime.now(UTC) + timedelta(minutes=1), "instanceId": "x"}
    database["_mongodash_globals"].insert_one({"_id": "_mongodash_planner_meta", "lock": lock})
    how = ("bill", "--from", "old", "--named", "makeBill", "--quiet", "10ms")

    refused = asking.told("import", *how, code=ExitCode.NOT_MET)
    assert refused["refused"] == "the lease of a leader lasts"
    assert orders.statuses() == []
    database["_mongodash_globals"].drop()
    assert asking.told("import", *how[:3], "--quiet", "10ms", code=ExitCode.NOTHING_SELECTED)["taken"] == 0
    same = asking.said("import", "bill", "--from", "orders_tasks")
    assert same.code == ExitCode.USAGE
    assert "records of mongodash's and of ours in orders_tasks" in same.err
