from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote

import pytest
from pymongo import MongoClient
from tests.integration.browser import Tab
from tests.integration.interruptible import INTERRUPTIBLE
from tests.integration.page_requests import answered
from tests.integration.servers.mongod import MongoServer
from tests.integration.test_live_page import CONTRASTS, PICTURES, TOKEN, Open, in_browser, says, until

HOSTILE: Final = "<img src=x onerror=alert(1)>"
APP: Final = """
import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from tidegate_adapters.reactive import Later, Reactive

app = Reactive(os.environ["URI"], database=os.environ["DATABASE"])


@app.task(collection="orders", debounce=timedelta(0), retries=0)
async def bill(change):
    how = change.values.get("how")
    if how == "hang":
        while not Path("go").exists():
            await asyncio.sleep(0.01)
    if how == "block":
        time.sleep(2.5)
    if how == "fail" and not Path("fixed").exists():
        raise RuntimeError("</script><script>alert(2)</script> password=hunter2")


@app.task(collection="mails", debounce=timedelta(0), name="<img src=x onerror=alert(1)>")
async def hostile(change):
    if not Path("go").exists():
        raise Later(timedelta(seconds=600))
"""


@final
class Served:
    def __init__(self, folder: Path, uri: str, database: str, *settings: str) -> None:
        self.log = folder / "log"
        (folder / "app.py").write_text(APP)
        told = [part for each in ("page_port=0", "metrics_port=0", *settings) for part in ("--set", each)]
        env = {**os.environ, "URI": uri, "DATABASE": database}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                (*INTERRUPTIBLE, "reactive", "run", "app.py:app", *told), cwd=folder, env=env, stdout=log, stderr=log
            )

    def found(self, pattern: str) -> str:
        limit = time.monotonic() + 60
        while not (found := re.search(pattern, self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.05)
        return found[1]

    @property
    def page(self) -> int:
        return int(self.found(r"the page is at http://127\.0\.0\.1:(\d+)/"))

    def got(self, path: str) -> tuple[int, str]:
        port = self.found(r"/metrics at http://127\.0\.0\.1:(\d+)")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def metric(self, name: str) -> float | None:
        text = self.got("/metrics")[1]
        found = re.search(rf"^tidegate_reactive_{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return None if found is None else float(found[1])


Serve = Callable[..., Served]


@pytest.fixture
def serve(mongodb: str, database: str, tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def served(*settings: str, uri: str = mongodb) -> Served:
        folder = tmp_path if not started else tmp_path / str(len(started))
        folder.mkdir(exist_ok=True)
        started.append(Served(folder, uri, database, *settings))
        return started[-1]

    yield served
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def shop(mongodb: str, database: str) -> Iterator[Any]:
    with MongoClient[dict[str, Any]](mongodb) as client:
        yield client[database]


def eventually(is_so: Callable[[], object]) -> None:
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit, is_so
        time.sleep(0.1)


def is_shown(served: Served, name: str, value: float) -> bool:
    return served.metric(name) == value


def bills(shop: Any) -> dict[Any, str]:
    return {each["document"]: each["status"] for each in shop.orders_tasks.find({"task": "bill"})}


# --- metrics and health -------------------------------------------------------------------------------------------------


def test_prometheus_is_told_what_has_happened_and_what_is(serve: Serve, shop: Any) -> None:
    shop.orders.insert_many([{"_id": "a"}, {"_id": "b", "how": "fail"}, {"_id": "secret-id", "how": "hang"}])
    shop.mails.insert_one({"_id": 1})
    served = serve("stalled_after=1500 ms")  # it polls three times meanwhile

    for name, value in (
        ('handled_runs_total{outcome="succeeded",task="bill"}', 1),
        ('handled_runs_total{outcome="failed",task="bill"}', 1),
        (f'handled_runs_total{{outcome="later",task="{HOSTILE}"}}', 1),
        ('running_handlers{task="bill"}', 1),
        ('unwritten_runs{task="bill"}', 0),
        ('retried_runs_total{task="bill"}', 0),
        ('interruptions_total{reason="too_long",task="bill"}', 0),
        ('paused{task="bill"}', 0),
        ('handler_seconds_count{task="bill"}', 2),
        ('records{status="failed",task="bill"}', 1),
        ('records{status="processing",task="bill"}', 1),
        (f'records{{status="pending",task="{HOSTILE}"}}', 1),
        (f'leads{{database="{shop.name}"}}', 1),
        (f'epoch{{database="{shop.name}"}}', 1),
    ):
        eventually(partial(is_shown, served, name, value))
    eventually(lambda: (served.metric('lag_seconds{task="bill"}') or 0) > 1)
    lag = served.metric(f'planner_lag_seconds{{database="{shop.name}"}}')
    assert lag is not None
    assert 0 <= lag < 60
    text = served.got("/metrics")[1]
    assert "secret-id" not in text
    assert "hunter2" not in text
    shop.orders_tasks.delete_many({"status": "failed"})
    eventually(partial(is_shown, served, 'records{status="failed",task="bill"}', 0))


def test_health_tells_who_leads_and_that_the_pool_moves(serve: Serve, shop: Any) -> None:
    served = serve("stalled_after=1500 ms", "polling.most=500 ms")
    eventually(lambda: json.loads(served.got("/health")[1])["databases"][0]["leader"])
    status, text = served.got("/health")
    assert (status, json.loads(text)["healthy"]) == (200, True)

    shop.orders.insert_one({"_id": "a", "how": "block"})
    eventually(lambda: json.loads(served.got("/health")[1])["silent_s"] >= 1.5)
    assert served.got("/health")[0] == 503
    eventually(lambda: served.got("/health")[0] == 200)


def test_health_does_not_tell_of_a_pool_that_waits_on_purpose(serve: Serve, shop: Any) -> None:
    """All slots are taken and no lease needs a renewal yet."""
    served = serve("stalled_after=1500 ms", "concurrency=1")
    shop.orders.insert_one({"_id": "a", "how": "hang"})
    eventually(lambda: bills(shop).get("a") == "processing")
    time.sleep(2.5)
    status, text = served.got("/health")
    assert (status, json.loads(text)["silent_s"]) == (200, 0.0)


def test_health_tells_that_nobody_leads(serve: Serve, disposable_mongod: MongoServer) -> None:
    served = serve("stalled_after=3 s", uri=disposable_mongod.uri)
    eventually(lambda: json.loads(served.got("/health")[1])["databases"][0]["leads"])
    disposable_mongod.kill()

    eventually(lambda: served.got("/health")[0] == 503)
    (told,) = json.loads(served.got("/health")[1])["databases"]
    assert told["led_s"] >= 3
    assert served.process.poll() is None


# --- the page -----------------------------------------------------------------------------------------------------------


def cells(tab: Tab, key: str) -> list[str]:
    found = tab.run(
        f"[...document.querySelector({json.dumps(f'tr[data-key={json.dumps(key)}]')}).cells].map(each => each.textContent)"
    )
    assert isinstance(found, list)
    return found


@in_browser
def test_operators_see_what_runs_waits_and_fails_and_have_it_run_again(
    serve: Serve, shop: Any, open_page: Open, tmp_path: Path
) -> None:
    shop.orders.insert_many([{"_id": "a"}, {"_id": "b", "how": "fail"}, {"_id": "c", "how": "hang"}])
    tab = open_page(serve().page, hash="#status=failed")
    until(tab, says("section[aria-labelledby=table-records] tbody", "RuntimeError"))
    until(tab, says("#verdict", "1 failed, 1 to be handled"))

    assert cells(tab, "task bill")[2:8] == ["0", "1", "0", "1", "1", "0"]
    until(tab, says("section[aria-labelledby=table-running] tbody", "c"))
    assert "leads" not in cells(tab, f"planner {shop.name}")[1]
    assert "(this process)" in cells(tab, f"planner {shop.name}")[1]

    tab.run("rows().find(row => row.closest('[aria-labelledby=table-running]')).focus()")
    tab.press("Enter")
    until(tab, says("#told", "claimed"))
    tab.run("rows().find(row => row.item.actions.some(each => each.name === 'retry')).focus()")
    tab.press("Enter")
    until(tab, says("#told", "a run ended"))
    story = tab.texts(".story .what")
    assert story[0] == "first seen"
    assert any("a run ended" in each and "failed" in each for each in story)
    assert "hunter2" not in tab.visible()

    (tmp_path / "fixed").touch()
    tab.run("rows().find(row => row.item.actions.some(each => each.name === 'retry')).focus()")
    tab.press("r")
    eventually(lambda: bills(shop)["b"] == "completed")
    until(tab, says("#verdict", "1 to be handled"))
    until(tab, "document.body.classList.contains('clean')")


@in_browser
def test_operators_pause_and_resume_a_task(serve: Serve, shop: Any, open_page: Open) -> None:
    tab = open_page(serve("paused_every=50 ms").page)
    until(tab, says("tbody", "bill"))
    tab.run("document.querySelector('tr[data-key=\"task bill\"]').focus()")
    tab.press("p")
    until(tab, says("#message", "bill is paused"))
    until(tab, says("tr[data-key='task bill']", "Resume"))
    assert "paused" in cells(tab, "task bill")[-2]
    assert [each["task"] for each in shop.tidegate_reactive.find_one()["paused"]] == ["bill"]

    shop.orders.insert_one({"_id": "a"})
    until(tab, says("section[aria-labelledby=table-records] tbody", "pending"))
    tab.press("p")
    until(tab, says("#message", "bill goes on"))
    eventually(lambda: bills(shop) == {"a": "completed"})


@in_browser
def test_the_page_of_a_process_that_follows_shows_who_leads_until_it_leads_itself(
    serve: Serve, shop: Any, open_page: Open
) -> None:
    short = (
        "planner.terms.ttl=3 s",
        "planner.terms.heartbeat=500 ms",
        "planner.terms.margin=500 ms",
        "stalled_after=1500 ms",
    )
    first, leads = serve(*short), f'leads{{database="{shop.name}"}}'
    eventually(partial(is_shown, first, leads, 1))
    second = serve(*short)
    tab = open_page(second.page)
    planner = f"tr[data-key='planner {shop.name}']"
    until(tab, says(planner, str(first.process.pid)))
    assert "(this process)" not in cells(tab, f"planner {shop.name}")[1]
    assert cells(tab, f"planner {shop.name}")[2] == "1"
    assert second.metric(leads) == 0
    assert second.metric('records{status="failed",task="bill"}') is None

    first.process.kill()
    until(tab, says(planner, f"{second.process.pid}"))
    until(tab, says(planner, "(this process)"))
    assert cells(tab, f"planner {shop.name}")[2] == "2"
    eventually(partial(is_shown, second, 'records{status="failed",task="bill"}', 0))


@in_browser
def test_many_are_run_again_by_a_filter_after_a_question(
    serve: Serve, shop: Any, open_page: Open, tmp_path: Path
) -> None:
    shop.orders.insert_many([{"_id": each, "how": "fail"} for each in range(5)])
    tab = open_page(serve().page)
    until(tab, says("#verdict", "5 failed"))
    assert tab.texts("section[aria-labelledby=table-records] h2 button") == []
    (tmp_path / "fixed").touch()
    tab.run("setAddress('status', 'failed')")
    until(tab, says("section[aria-labelledby=table-records] h2", "Retry all that match"))
    tab.click("section[aria-labelledby=table-records] h2 button")
    until(tab, says("#question", "Retry all records with status failed?"))
    tab.click("#sure button[value=yes]")
    eventually(lambda: set(bills(shop).values()) == {"completed"})


@in_browser
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_tasks_ids_and_errors_say_stays_text(serve: Serve, shop: Any, open_page: Open, dark: bool) -> None:
    shop.orders.insert_many([{"_id": HOSTILE, "how": "fail"}, {"_id": {"a": HOSTILE}}])
    shop.mails.insert_one({"_id": "x"})
    tab = open_page(serve().page, dark=dark)
    until(tab, says("section[aria-labelledby=table-records] tbody", "</script>"))
    until(tab, f"rows().filter(row => row.textContent.includes({json.dumps(HOSTILE)})).length >= 4")
    tab.run("open(rows().find(row => row.item.story && row.textContent.includes('failed')).item.story)")
    until(tab, says("#told", "</script>"))

    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.querySelectorAll('script').length") == 1
    contrasts = tab.run(CONTRASTS)
    assert isinstance(contrasts, list)
    assert [each for each in contrasts if each[1] < 4.5] == []
    tab.picture(PICTURES / f"reactive-{'dark' if dark else 'light'}.png")


def test_what_is_asked_of_the_page_and_cannot_be_is_told(serve: Serve, shop: Any) -> None:
    served = serve(f"page_token={TOKEN}")
    port = served.page

    assert answered(port, "/state", token=TOKEN[:-1])[0] == 401
    status, told = answered(port, "/state", token=TOKEN)
    assert (status, told["schema"], told["title"]) == (200, "tidegate/live@1", f"Reactive tasks of {shop.name}")
    for path, content, why in (
        ("/state?task=bil", None, "there is no task 'bil'"),
        ("/state?status=done", None, "there is no status 'done'"),
        ('/state?id={"', None, "is no Extended JSON"),
        ("/story?key=x", None, "there is no such row"),
        ("/story?key=" + quote('["bill", "\\"zz\\""]'), None, "nothing is known of zz here"),
        ("/act", {"action": "drop", "given": {}}, "there is no action 'drop'"),
        ("/act", {"action": "pause", "given": {"task": "bil"}}, "there is no task 'bil'"),
        ("/act", {"action": "pause", "given": {}}, "there is no task ''"),
        ("/state?tsk=bill", None, "there is no filter 'tsk'"),
        ("/act", {"action": "retry all", "given": {}}, "narrow them down"),
        ("/act", {"action": "retry all", "given": {"task": ""}}, "narrow them down"),
        ("/act", {"action": "retry all", "given": {"order": "next_run"}}, "narrow them down"),
        ("/act", {"action": "retry all", "given": {"tsk": "bill"}}, "there are: task, status, id, error"),
        ("/act", {"action": "retry all", "given": {"tsk": "bill", "status": "failed"}}, "there is no filter 'tsk'"),
        ("/act", {"action": "retry", "given": {"key": "[1]"}}, "there is no such row"),
    ):
        status, told = answered(port, path, content, TOKEN)
        assert (status, why in told["error"]) == (400, True), told
    assert TOKEN not in served.log.read_text()
