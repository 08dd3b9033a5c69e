from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar, final

import attrs
import pytest
from tests.integration.browser import Tab
from tests.integration.page_requests import answered
from tests.integration.test_live_page import CONTRASTS, PICTURES, TOKEN, Open, in_browser, says, until
from tests.integration.test_monitor import free_port
from tests.integration.test_orchestrator_app import QUICK, STORES, TURNS
from tests.integration.test_orchestrator_app import until as until_so

from tidegate.invocations.admin.commands import NEVER as NEVER_DUE
from tidegate.invocations.admin.commands import Asking
from tidegate.invocations.admin.invocation_queries import InvocationQuery, InvocationRow, row
from tidegate.invocations.record.invocation import INVOCATION, RETRY
from tidegate.invocations.record.jobs import Job, job_fields
from tidegate.invocations.record.record_documents import HELD, new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import update_one
from tidegate.model.programs import insert_new
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import Handle, Orchestrator, on_cron, on_event, on_result
from tidegate_adapters.orchestrator.page import COMMANDS, actions
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.page.live import Action, Span, packed
from tidegate_adapters.runtime.driver import choosing, documents, local, run

T = TypeVar("T")
Raw = dict[str, Any]
NEVER: Final = "0 0 1 1 *"
HOSTILE: Final = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@final
class Jobs:
    def __init__(self, store: Any, database: str, **settings: Any) -> None:
        self.port, self.token = free_port(), settings.get("page_token", "")
        told = OrchestratorSettings(
            database=database,
            page_port=self.port,
            queues=("default", "slow"),
            **{**QUICK, "services": attrs.evolve(TURNS, recover=NEVER), **settings},
        )
        self.app = Orchestrator(store, settings=told)
        self.loop = asyncio.new_event_loop()
        self.fixed, self.go = threading.Event(), asyncio.Event()
        self._declare()

    def _declare(self) -> None:
        @self.app.task(triggers=[on_cron("0 4 * * *").calls_with(to="all")])
        async def send(to: str) -> str:
            if not self.fixed.is_set():
                raise RuntimeError(f"no server for {to}, password=hunter2")
            return to

        @self.app.task(queue="slow", triggers=[on_event("shipped"), on_result("bill")])
        async def stuck(_: str = "") -> None:
            await self.go.wait()

        @self.app.task()
        async def add(numbers: list[int]) -> int:
            if len(numbers) == 1:
                return numbers[0]
            parts = [
                await add.enqueue(some, key=f"add-{'-'.join(map(str, some))}") for some in (numbers[:1], numbers[1:])
            ]
            return sum([await each.result() for each in parts])

        self.send, self.stuck, self.add = send, stuck, add

    def do(self, asked: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asked, self.loop).result(20)

    def enqueue(self, asked: Coroutine[Any, Any, Handle[Any]]) -> str:
        return self.do(asked).id

    def wait(self, key: str, status: str) -> None:
        self.do(until_so(lambda: self._is(key, status), f"{key} is {status}"))

    async def _is(self, key: str, status: str) -> bool:
        row = await self.app.show(key)
        return row is not None and row.record is not None and row.record.status == status

    # --- as scripts ask ---

    def got(self, path: str, sent: object = None, token: str | None = None) -> tuple[int, Raw]:
        return answered(self.port, path, sent, self.token if token is None else token)

    def act(self, action: str, **given: str) -> str:
        status, told = self.got("/act", {"action": action, "given": given})
        assert status == 200, told
        return str(told["done"])

    def rows(self, table: str, query: str = "") -> dict[str, list[str]]:
        tables = {each["name"]: each for each in self.got(f"/state?{query}")[1]["tables"]}
        cells = [[cell["text"] for cell in row["cells"]] for row in tables[table]["rows"]]
        return {each[0]: each[1:] for each in cells}


@contextmanager
def served(jobs: Jobs) -> Iterator[Jobs]:
    thread = threading.Thread(target=jobs.loop.run_until_complete, args=(jobs.app.serve(),))
    thread.start()
    try:
        jobs.do(until_so(lambda: jobs.app.workers is not None and jobs.app.workers.member, "it is a member"))
        yield jobs
    finally:
        jobs.loop.call_soon_threadsafe(jobs.go.set)
        jobs.loop.call_soon_threadsafe(jobs.app.stop)
        thread.join()
        jobs.loop.close()


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with served(Jobs(Embedded(), "jobs")) as found:
        yield found


def on(store: str, uri: str, database: str, **settings: Any) -> Jobs:
    return Jobs(uri, database, **settings) if store == "mongod" else Jobs(Embedded(), "embedded", **settings)


# --- over HTTP ----------------------------------------------------------------------------------------------------------


def test_a_process_that_misses_beats_is_shown_and_logged(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    members = jobs.app.collections.members

    async def writes(who: str, at: Instant) -> None:
        if await update_one(members, Eq(ID, who), Put(Field[Instant]("seen"), at)):
            return  # it never disappears
        times = dict.fromkeys(("created", "joined", "seen"), at)
        await insert_new(members, Document.of({"_id": who, "left": None, **times}))

    def seen(who: str, ago: int) -> None:
        jobs.do(jobs.app.asked(writes(who, jobs.do(jobs.app.now()) + -ago * SECOND)))

    async def is_logged(words: str) -> bool:
        return words in caplog.text

    caplog.set_level("INFO")
    seen("late", 30)
    seen("dead", 600)
    jobs.do(until_so(partial(is_logged, "process late is silent for 3"), "it is said that one is late"))
    rows = jobs.rows("processes")
    assert (rows["late"][0], rows["dead"][0]) == ("silent", "presumed dead")
    late, dead = (
        next(each for each in jobs.do(jobs.app.standing()).processes if each.member.id == who)
        for who in ("late", "dead")
    )
    assert re.search(r"silent for 3\d.*: what it runs is taken over at \S+Z, unless it is heard of again", str(late))
    assert str(dead).endswith("presumed dead, and what it ran is taken over")
    assert late.taken_over_at == late.member.seen + 60 * SECOND
    assert "process dead" not in caplog.text
    seen("late", 0)
    jobs.do(until_so(partial(is_logged, "process late is heard of again"), "it is said that it is back"))


@pytest.mark.parametrize("store", STORES)
def test_it_tells_what_there_is(mongodb: str, database: str, store: str) -> None:
    with served(on(store, mongodb, database, page_token=TOKEN)) as jobs:
        _ = jobs.enqueue(jobs.send.enqueue("ann", key="mail-ann"))
        _ = jobs.enqueue(jobs.stuck.enqueue(key="long"))
        _ = jobs.enqueue(jobs.add.enqueue([1, 2, 3], key="sum"))
        _ = jobs.enqueue(jobs.send.enqueue("bea", key="mail-bea", delay=timedelta(hours=1)))
        for key, status in (("mail-ann", "failed"), ("long", "running"), ("sum", "success")):
            jobs.wait(key, status)
        me = jobs.do(_member(jobs))

        assert jobs.got("/state", token="guess" * 4)[0] == 401
        assert list(jobs.rows("processes")) == [me]
        assert jobs.rows("processes")[me][0] == "alive"
        assert re.fullmatch("now|never|in [0-9.]+ m?s", jobs.rows("processes")[me][3])
        assert jobs.rows("queues")["default"][0] == "0"
        send = jobs.rows("tasks")["send"]
        assert send[:6] == ["1", "0", "0", "0", "1", "0"]
        assert jobs.rows("tasks")["add"][3] == "5"
        assert set(jobs.rows("invocations", "task=send")) == {"mail-ann", "mail-bea"}
        assert jobs.rows("invocations", "status=failed")["mail-ann"][-1].startswith("RuntimeError: no server for ann")
        assert "hunter2" not in json.dumps(jobs.got("/state")[1])
        starts = jobs.rows("triggers")
        assert starts["send"][0] == "at 0 4 * * *"
        assert " in " in f" {starts['send'][1]}"
        assert starts["send"][2].count("T04:00:00.000Z") == 2
        leases = jobs.rows("leases")
        assert leases["long"][:2] == [me, "2"]
        jobs.do(until_so(lambda: _turn(jobs), "somebody has had the turn"))
        assert jobs.rows("turns")[me][0] == "completed"


async def _member(jobs: Jobs) -> str:
    assert jobs.app.workers is not None
    return jobs.app.workers.member or ""


async def _turn(jobs: Jobs) -> bool:
    found = await asyncio.to_thread(jobs.rows, "turns")
    return bool(found)


@pytest.mark.parametrize("store", STORES)
def test_a_story_has_times_and_relatives(mongodb: str, database: str, store: str) -> None:
    with served(on(store, mongodb, database)) as jobs:
        _ = jobs.enqueue(jobs.add.enqueue([1, 2, 3], key="sum"))
        jobs.wait("sum", "success")
        me = jobs.do(_member(jobs))
        status, story = jobs.got("/story?key=add-2-3")

        assert (status, story["title"]) == (200, "add: add-2-3")
        assert dict(story["facts"])["Called by"] == "sum"
        assert dict(story["facts"])["Arguments"] == '{"numbers": [2, 3]}'
        assert dict(story["facts"])["Result"] == "5"
        words = [each["what"] for each in story["moments"]]
        assert words[:2] == ["registered", f"running, by {me}, token 2"]
        assert words[-1].startswith("success after ")
        times = [each["at"].partition(",")[0] for each in story["moments"]]
        assert times == sorted(times)
        lanes = story["lanes"]["lanes"]
        assert [(each["depth"], each["key"]) for each in lanes] == [
            (0, "sum"), (1, "add-1"), (1, "add-2-3"), (2, "add-2"), (2, "add-3")
        ]  # fmt: skip
        assert [each["is_here"] for each in lanes] == [False, False, True, False, False]
        begin, end = story["lanes"]["begin"], story["lanes"]["end"]
        for each in lanes:
            spans = each["spans"]
            assert [begin <= span["begin"] <= span["end"] <= end for span in spans] == [True] * len(spans)
            assert [span["tone"] for span in spans][-1] == "good"
        ran = next(each for each in jobs.got("/state")[1]["tables"] if each["name"] == "invocations")["lanes"]
        assert ran["lanes"][0]["label"] == me
        assert {span["story"] for lane in ran["lanes"] for span in lane["spans"]} == {each["key"] for each in lanes}


def test_what_is_asked_is_done(jobs: Jobs) -> None:
    _ = jobs.enqueue(jobs.send.enqueue("ann", key="ann"))
    jobs.wait("ann", "failed")
    jobs.fixed.set()
    assert jobs.act("retry", id="ann") == "1 to run again"
    jobs.wait("ann~2", "success")
    assert jobs.act("hold", id="ann").startswith("0 held, 1 for which it cannot be done")

    assert jobs.act("pause queue", queue="slow") == "queue slow is paused: what runs goes on, and nothing more begins"
    assert jobs.rows("queues")["slow"][-1] == "paused"
    jobs.do(until_so(lambda: _is_held(jobs), "it has heard of it"))
    _ = jobs.enqueue(jobs.stuck.enqueue(key="one"))
    _ = jobs.enqueue(jobs.stuck.enqueue(key="two"))
    assert jobs.act("hold", id="one") == "1 held"
    assert jobs.rows("invocations", "id=one")["one"][1] == "held"
    assert jobs.act("resume queue", queue="slow") == "queue slow goes on"
    jobs.wait("two", "running")
    assert jobs.act("release", id="one") == "1 released"
    jobs.wait("one", "running")
    assert "1 that run are asked to end" in jobs.act("cancel", id="one")
    jobs.wait("one", "cancelled")
    assert "asked to end" in jobs.act("kill", id="two")
    jobs.do(until_so(lambda: _runs(jobs, "two", 4), "another run"))
    assert "asked to end" in jobs.act("cancel all", task="stuck", since="5m")
    jobs.wait("two", "cancelled")
    assert jobs.act("pause task", task="send").startswith("task send is paused")
    assert jobs.rows("tasks")["send"][-1] == "paused"
    assert jobs.act("resume task", task="send") == "task send goes on"


async def _is_held(jobs: Jobs) -> bool:
    assert jobs.app.workers is not None
    return "slow" in jobs.app.workers.held.queues


async def _runs(jobs: Jobs, key: str, version: int) -> bool:
    row = await jobs.app.show(key)
    return row is not None and row.record is not None and row.record.version == version


WRONG: Final[Mapping[str, tuple[str, object, str]]] = {
    "no status": ("/state?status=lost", None, "lost"),
    "no time": ("/state?since=yesterday", None, "no time"),
    "nobody": ("/story?key=nobody", None, "there is no invocation"),
    "no key": ("/story", None, "there is no invocation"),
    "no filter": ("/state?tenent=acme", None, "there is no filter 'tenent'"),
    "no action": ("/act", {"action": "purge", "given": {"id": "a"}}, "there is no action"),
    "no action of a process": ("/act", {"action": "pause process", "given": {"process": "a"}}, "there is no action"),
    "all of them": ("/act", {"action": "retry all", "given": {}}, "narrow them down"),
    "all by nothing": ("/act", {"action": "cancel", "given": {"task": ""}}, "narrow them down"),
    "no task": ("/act", {"action": "pause task", "given": {"task": "sing"}}, "there is no task"),
    "no name": ("/act", {"action": "resume queue", "given": {}}, "no queue is named"),
}


def test_what_cannot_be_is_refused(jobs: Jobs) -> None:
    for what, (path, sent, why) in WRONG.items():
        status, told = jobs.got(path, sent)
        assert (what, status) == (what, 400)
        assert why in told["error"], what


def test_a_record_that_cannot_be_read_is_a_row_that_says_so() -> None:
    store = Embedded()
    jobs = Jobs(store, "jobs")
    with served(jobs):
        _ = jobs.enqueue(jobs.send.enqueue("ann", key="ann"))
        jobs.wait("ann", "failed")
        jobs.do(jobs.app.asked(_spoil(jobs.app.collections.invocations)))
        assert jobs.rows("invocations")["ann"][1] == "unreadable"
        story = jobs.got("/story?key=ann")[1]
        assert [each["what"] for each in story["moments"]] == ["it cannot be read"]


async def _spoil(collection: str) -> None:
    await update_one(collection, Eq(ID, "ann"), Put(Field[Any]("version"), "seven"))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"page_host": "0.0.0.0"}, "without a token"),  # noqa: S104  refused
        ({"page_token": "short"}, "at least 16 characters"),
        ({"page_token": 7}, "page_token must be"),
        ({"page_port": 65_536}, "page_port must be"),
        ({"page_host": ""}, "an address"),
        *(
            ({what: 5}, f"{what} must be a timedelta, got int 5")
            for what in (
                "drain",
                "leave",
                "beat_every",
                "dead_after",
                "paused_every",
                "result_every",
                "keep_finished",
                "keep_failed",
                "stalled_after",
            )
        ),
    ],
)
def test_a_page_is_nowhere_where_it_must_not_be(wrong: Raw, what: str) -> None:
    with pytest.raises(Misuse, match=what):
        _ = OrchestratorSettings(database="jobs", **wrong)


def test_bars_do_not_cover_each_other() -> None:
    spans = tuple(Span(begin, begin + long, "") for begin, long in ((0, 10), (5, 3), (8, 1), (10, 5), (0, 2)))
    rows = packed(spans, 9)
    assert sorted((each for some in rows for each in some), key=str) == sorted(spans, key=str)
    for some in rows:
        assert all(one.end <= other.begin for one, other in pairwise(some))
    assert len(rows) == 2
    assert packed(spans, 1) == (rows[0],)
    assert packed((), 3) == ()


# --- in a browser -------------------------------------------------------------------------------------------------------


def row_of(key: str) -> str:
    return f"tr[data-key={json.dumps(key)}]"


def focus(tab: Tab, key: str) -> None:
    until(tab, f"document.querySelector({json.dumps(row_of(key))})")
    tab.run(f"document.querySelector({json.dumps(row_of(key))}).focus()")


@in_browser
def test_a_person_finds_what_failed_and_has_it_run_again(jobs: Jobs, open_page: Open) -> None:
    _ = jobs.enqueue(jobs.send.enqueue("ann", key="ann"))
    _ = jobs.enqueue(jobs.stuck.enqueue(key="long"))
    jobs.wait("ann", "failed")
    jobs.wait("long", "running")
    tab = open_page(jobs.port)
    until(tab, says("#verdict", "1 failed"))
    assert tab.texts("section h2 .name") == [
        "Processes", "Queues", "Tasks", "Invocations", "Triggers", "Turns", "Leases"
    ]  # fmt: skip
    tab.press("/", "Tab")
    assert tab.run("document.activeElement.ariaLabel") == "any status"
    tab.run(
        "document.activeElement.value = 'failed', document.activeElement.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    until(tab, f"document.querySelectorAll({json.dumps('[aria-labelledby=table-invocations] tbody tr')}).length === 1")
    assert tab.run("location.hash") == "#status=failed"

    focus(tab, "ann")
    tab.press("Enter")
    until(tab, says("#told", "RuntimeError"))
    assert tab.texts(".story .what")[0] == "registered"
    assert "hunter2" not in tab.visible()
    jobs.fixed.set()
    tab.press("r")
    until(tab, says("#message", "1 to run again"))
    jobs.wait("ann~2", "success")

    tab.run("setAddress('status', 'running')")
    focus(tab, "long")
    tab.press("c")
    until(tab, says("#question", "Cancel long, which runs?"))
    tab.press("Enter")
    jobs.wait("long", "cancelled")
    until(tab, "document.querySelectorAll('[aria-labelledby=table-invocations] tbody tr').length === 0")


@in_browser
def test_a_person_follows_who_has_called_whom(jobs: Jobs, open_page: Open) -> None:
    _ = jobs.enqueue(jobs.add.enqueue([1, 2, 3], key="sum"))
    jobs.wait("sum", "success")
    tab = open_page(jobs.port, hash="#story=sum")
    until(tab, "document.querySelectorAll('#beside li').length === 5")
    assert tab.texts("#beside li[aria-current] .lane-name span:first-child") == ["add sum"]
    assert tab.run("[...document.querySelectorAll('#beside .bar.good')].every(bar => bar.offsetWidth > 0)") is True
    widths = tab.run(
        "[...document.querySelectorAll('#beside .lane-name')].map(each => parseFloat(getComputedStyle(each).paddingLeft))"
    )
    assert isinstance(widths, list)
    assert widths[0] < widths[1] == widths[2] < widths[3] == widths[4]

    tab.run("document.querySelector('#beside [data-lane=add-3]').focus()")
    tab.press("Enter")
    until(tab, says("#heading", "add: add-3"))
    assert tab.run("location.hash") == "#story=add-3"
    tab.run("document.querySelector('[aria-labelledby=table-invocations] .bar').click()")
    until(tab, "location.hash !== '#story=add-3'")


@in_browser
@pytest.mark.parametrize("key", ["queue slow", pytest.param("task stuck", marks=pytest.mark.long)])
def test_a_person_pauses_and_resumes(jobs: Jobs, open_page: Open, key: str) -> None:
    tab = open_page(jobs.port)
    focus(tab, key)
    tab.press("p")
    until(tab, says("#message", f"{key} is paused"))
    until(tab, says(row_of(key), "Resume"))
    jobs.do(until_so(lambda: _any_held(jobs), "it has heard of it"))
    _ = jobs.enqueue(jobs.stuck.enqueue(key="one"))
    until(tab, says(row_of("one"), "registered"))
    tab.press("p")
    until(tab, says("#message", f"{key} goes on"))
    jobs.wait("one", "running")
    until(tab, says(row_of("one"), "running"))


async def _any_held(jobs: Jobs) -> bool:
    assert jobs.app.workers is not None
    held = jobs.app.workers.held
    return bool(held.queues or held.tasks)


@in_browser
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_it_is_read_in_the_light_and_in_the_dark(jobs: Jobs, open_page: Open, dark: bool) -> None:
    """Contrast by WCAG 2.2, 1.4.3."""
    _ = jobs.enqueue(jobs.send.enqueue(HOSTILE, key=HOSTILE))
    _ = jobs.enqueue(jobs.stuck.enqueue(key="long"))
    _ = jobs.enqueue(jobs.add.enqueue([1, 2, 3], key="sum"))
    for key, status in ((HOSTILE, "failed"), ("long", "running"), ("sum", "success")):
        jobs.wait(key, status)
    tab = open_page(jobs.port, dark=dark, hash="#story=sum")
    until(tab, "document.querySelectorAll('#beside li').length === 5")
    tab.picture(PICTURES / f"orchestrator-{'dark' if dark else 'light'}.png")
    contrasts = tab.run(CONTRASTS)
    focus(tab, HOSTILE)
    tab.press("Enter")
    until(tab, says("#told", "</script>"))

    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.querySelectorAll('script').length") == 1
    found = [*_pairs(contrasts), *_pairs(tab.run(CONTRASTS))]
    assert len(found) > 100
    assert [each for each in found if each[1] < 4.5] == []


def _pairs(found: object) -> list[Any]:
    assert isinstance(found, list)
    return found


# --- the documentation --------------------------------------------------------------------------------------------------

DOCUMENTED: Final = (Path(__file__).parents[2] / "docs" / "orchestrator.md").read_text(encoding="utf-8")


def test_the_documentation_names_what_there_is(jobs: Jobs) -> None:
    section = DOCUMENTED.partition("## The page\n")[2].partition("\n## ")[0]
    shown = jobs.got("/state")[1]
    rows = section.partition("|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [each["title"] for each in shown["tables"]]
    named = set(re.findall(r"`([a-z ]+)`", "".join(row.split(" | ", 2)[2] for row in rows)))
    assert named == {
        *COMMANDS,
        "retry all",
        "cancel all",
        *(f"{act} {of}" for act in ("pause", "resume") for of in ("task", "queue")),
    }
    (filters,) = re.findall(r"The filters are (.+?); ", section)
    assert re.findall(r"`([a-z]+)`", filters) == [each["name"] for each in shown["filters"]]

    _ = jobs.enqueue(jobs.send.enqueue("ann", key="mail-7"))
    jobs.wait("mail-7", "failed")
    gets = re.findall(r"`GET (/[^`]+)`", section)
    assert [jobs.got(path)[0] for path in gets] == [200, 200]
    (sent,) = re.findall(r"`POST /act` of `(\{.+?\}\})`", section)
    assert jobs.got("/act", json.loads(sent))[1]["done"] == "1 to run again"


# --- offered actions ----------------------------------------------------------------------------------------------------

Offers = Callable[[InvocationRow], tuple[Action, ...]]
CASES: Final = tuple(
    (each, is_held) for each in INVOCATION.definitions for is_held in ((False, True) if each.available else (False,))
)


def check_what_is_offered(offers: Offers) -> None:
    """Law OP2, in each status, against the store."""
    for definition, is_held in CASES:
        first = StatusRecord(definition.status, "me" if definition.requires_owner else None, 3)
        due = (NEVER_DUE if is_held else Instant(0)) if definition.available else None
        more = job_fields(Job(task="send"))
        record = new_record(
            "a", first, "r.a", Instant(0), due=due, more=more.put(HELD, Instant(0)) if is_held else more
        )
        offered = {action.name for action in offers(row(record))}
        done = set()
        for name, command in COMMANDS.items():
            store = Embedded({"c": (record,)})
            asked = run(
                Asking(request="x", records="c").ask(command, InvocationQuery(ids=("a",))),
                choosing(documents(store), local()),
            )
            done |= {name} if asked.done + asked.told else set()
        assert offered == done, (definition.status, is_held)


def test_what_is_offered_can_be_done_and_nothing_else() -> None:
    check_what_is_offered(actions)


def without(name: str) -> Offers:
    return lambda row: tuple(each for each in actions(row) if each.name != name)


def retried_while_held(row: InvocationRow) -> tuple[Action, ...]:
    """Planted: as it was, a held retry was offered "now", which then did nothing."""
    waits = row.record is not None and row.record.status == RETRY and row.is_held
    return (*actions(row), *((Action("retry", "Retry now"),) if waits else ()))


@pytest.mark.parametrize("wrong", [retried_while_held, *map(without, COMMANDS)], ids=["held", *COMMANDS])
def test_law_op2_notices(wrong: Offers) -> None:
    with pytest.raises(AssertionError):
        check_what_is_offered(wrong)


def test_nothing_is_done_to_all(jobs: Jobs) -> None:
    """Law OP1: no filter, an empty one, and an id alone."""
    for name in (*COMMANDS, *(f"{name} all" for name in COMMANDS)):
        for given in ({}, {"id": ""}, {"task": "", "status": "", "error": ""}):
            status, told = jobs.got("/act", {"action": name, "given": given})
            assert (status, "narrow them down" in told["error"]) == (400, True)
    for key in ("one", "two"):
        _ = jobs.enqueue(jobs.send.enqueue(key, key=key, delay=timedelta(hours=1)))
    for wrong in ({"tenent": "acme"}, {"tenent": "acme", "task": "send"}, {"order": "due"}):  # matches everything
        for name in (*COMMANDS, *(f"{name} all" for name in COMMANDS)):
            status, told = jobs.got("/act", {"action": name, "given": wrong})
            assert (status, "there are: task, status, queue," in told["error"]) == (400, True)
    assert jobs.rows("invocations", "status=registered").keys() == {"one", "two"}
    assert jobs.act("cancel", id="one") == "1 cancelled"
    assert jobs.rows("invocations", "status=registered").keys() == {"two"}
    assert jobs.act("cancel all", task="send") == "1 cancelled"
