"""The operator page of an app (`tidegate_adapters.page.live`).

It shows tasks, runs of this process, records, and the leader and planning progress of each
database. The detail view of a document has its record as a time line. Operators retry records, and
pause and resume tasks.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from tidegate.model.documents import Value
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MINUTE, SECOND, Duration, Instant
from tidegate.reactive.admin.commands import Tally, TaskCounts
from tidegate.reactive.admin.pausing import PausedTask
from tidegate.reactive.record.record_queries import Order, Query, RecordRow
from tidegate.reactive.record.task_records import Ended, TaskRecord, TaskStatus
from tidegate.reactive.record.timeline import Moment as StoryMoment
from tidegate.reactive.record.timeline import What, story
from tidegate.reactive.task.worker import runs_of
from tidegate.work.state import WorkerState
from tidegate_adapters.base.cache import Sparing
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.base.times import ago, length, when
from tidegate_adapters.mongo.ids import exact, meant, readable
from tidegate_adapters.page.live import Action, Cell, Choice, Filter, Moment, Row, Shown, Story, Table, check_filters
from tidegate_adapters.reactive.admin import Leadership, Office
from tidegate_adapters.reactive.messages import numbers_of, retried
from tidegate_adapters.reactive.planner import Standing
from tidegate_adapters.reactive.stats import Glance

_SHOWN: Final = 100
_LOOKS: Final = 2
"""The most requests of one search by error text."""
_OLD_S: Final = 3.0
"""The page shows the age of older data."""
_LATE: Final[Duration] = MINUTE
_TONES: Final[Mapping[TaskStatus, str]] = {
    TaskStatus.PENDING: "",
    TaskStatus.PROCESSING: "odd",
    TaskStatus.PROCESSING_DIRTY: "odd",
    TaskStatus.COMPLETED: "good",
    TaskStatus.FAILED: "bad",
}
_FILTERS: Final = ("task", "status", "id", "error")
_ORDERS: Final = {"": Order.CHANGED, "changed": Order.CHANGED, "next_run": Order.NEXT_RUN}


@final
class Page:
    """Builds the page; `name` is that of this process, `glance` returns a snapshot."""

    def __init__(self, office: Office, name: str, glance: Callable[[], Glance]) -> None:
        self._office, self._name, self._glance = office, name, glance
        self._sparing = Sparing()

    # --- views ---

    async def shown(self, filters: Mapping[str, str]) -> Shown:
        """The page under these filters; an invalid one raises Misuse."""
        order = _ORDERS.get(filters.get("order", ""), Order.CHANGED)
        meant_of = _narrowing(filters)
        query = _query(meant_of)
        now = await self._office.now()
        tallies, _ = await self._sparing.ask("counts", lambda: self._office.tallies(Query()))
        paused = await self._office.paused()
        leaders = await self._office.leaderships()
        pages, age_s = await self._sparing.ask(
            (query, order), lambda: self._office.listed(query, order=order, limit=_SHOWN, looks=_LOOKS)
        )
        rows = [row for page in pages for row in page.rows]
        verdict, is_well = _verdict(tallies, leaders)
        seen = self._glance()
        return Shown(
            f"Reactive tasks of {', '.join(self._office.databases)}",
            verdict,
            is_well,
            (
                ("This process", self._name),
                ("Runs here", str(seen.pool)),
                ("The store's time", when(now)),
            ),
            self._filters(),
            (
                _tasks(tallies, paused, seen.pool, now),
                _running(seen.pool),
                _records(rows, meant_of, now, _noted(len(rows), age_s, is_more=any(page.after for page in pages))),
                _planners(leaders, seen.standings, now),
            ),
        )

    def _filters(self) -> tuple[Filter, ...]:
        tasks = tuple(Choice(name, name) for name in self._office.tasks)
        statuses = tuple(Choice(each.value, each.value) for each in TaskStatus)
        return (
            Filter("task", "any task", tasks),
            Filter("status", "any status", statuses),
            Filter("order", "last changed first", (Choice("next_run", "due first"),)),
            Filter("id", "id of a document"),
            Filter("error", "text of an error"),
        )

    async def story(self, key: str) -> Story:
        """The detail view of a document; one without a record raises Misuse."""
        task, document = _of(key)
        found = await self._office.find(task, document)
        if found is None:
            raise Misuse(f"nothing is known of {readable(document)} here", why="its record is gone, or was never made")
        title = f"{task}: {readable(document)}"
        if found.record is None:
            return Story(title, (), (Moment("", "it cannot be read", redacted(found.trouble or ""), "bad"),))
        now = await self._office.now()
        record = found.record
        facts = (
            ("Status", record.status.value),
            ("Attempts", str(record.attempts)),
            ("Versions", str(record.version)),
            *((("Owner", record.owner),) if record.owner else ()),
            *((("Last error", redacted(record.last_error)),) if record.last_error else ()),
        )
        return Story(title, facts, tuple(_moment(each, now) for each in story(record)), (_retry(key),))

    # --- actions ---

    async def act(self, action: str, given: Mapping[str, str]) -> str:
        """Perform an action and describe the result. Misuse if it is invalid, or if no filter
        limits a bulk action.
        """
        match action:
            case "pause":
                await self._office.pause((given.get("task", ""),))
                return f"{given['task']} is paused: what runs goes on, and nothing more begins"
            case "resume":
                await self._office.resume((given.get("task", ""),))
                return f"{given['task']} goes on"
            case "retry":
                task, document = _of(given.get("key", ""))
                query = Query(tasks=(task,), documents=(document,))
            case "retry all":
                where = _narrowing(given)
                if not where:
                    raise Misuse("an action on all records", todo="narrow them down")
                query = _query(where)
            case _:
                raise Misuse(f"there is no action {shown(action)}", todo="there are: pause, resume, retry, retry all")
        said = retried(await self._office.retry(query))
        self._sparing.forget()
        return said


def _narrowing(filters: Mapping[str, str]) -> dict[str, str]:
    """The filters that select records; the sort order does not."""
    return {name: text for name, text in filters.items() if text and name != "order"}


def _query(filters: Mapping[str, str]) -> Query:
    check_filters(filters, _FILTERS)
    status = filters.get("status")
    if status and status not in {each.value for each in TaskStatus}:
        raise Misuse(f"there is no status {shown(status)}", todo=f"there are: {', '.join(s.value for s in TaskStatus)}")
    return Query(
        tasks=(filters["task"],) if filters.get("task") else (),
        statuses=frozenset((TaskStatus(status),)) if status else frozenset(),
        documents=meant(filters["id"]) if filters.get("id") else (),
        error=filters.get("error") or None,
    )


def _key(task: str, document: Value) -> str:
    return json.dumps([task, exact(document)])


def _of(key: str) -> tuple[str, Value]:
    try:
        match json.loads(key):
            case [str(task), str(document)]:
                (value, *_) = (*meant(document)[-1:],)
                return task, value
            case _:
                pass
    except (ValueError, RecursionError):
        pass
    raise Misuse("there is no such row")


# --- tables ---------------------------------------------------------------------------------------


def _verdict(tallies: Sequence[Tally], leaders: Sequence[Leadership]) -> tuple[str, bool]:
    alone = [each.database for each in leaders if each.left <= 0]
    failed = sum(numbers_of(each)["failed"] for tally in tallies for each in tally.tasks)
    undone = sum(
        numbers_of(each)[s] for t in tallies for each in t.tasks for s in ("pending", "processing", "processing_dirty")
    )
    said = [f"nobody leads in {', '.join(alone)}"] if alone else []
    said += [f"{failed:,} failed"] if failed else []
    said.append(f"{undone:,} to be handled" if undone else "nothing is to be handled")
    return ", ".join(said), not alone and not failed


def _tasks(tallies: Sequence[Tally], paused: Sequence[PausedTask], pool: WorkerState, now: Instant) -> Table:
    since = {each.task: each.since for each in paused}
    here = Counter(each.run.task for each in pool.running)
    rows = tuple(_task(each, tally.at, since, here, now) for tally in tallies for each in tally.tasks)
    columns = ("task", "lag", *(each.value for each in TaskStatus), "unreadable", "runs here", "")
    return Table("tasks", "Tasks", columns, rows, "there are none")


def _task(counts: TaskCounts, at: Instant, since: Mapping[str, Instant], here: Mapping[str, int], now: Instant) -> Row:
    name, lag, numbers = counts.task, counts.lag(at), numbers_of(counts)
    is_paused = name in since
    tones = {"failed": "bad", "unreadable": "bad"}
    actions = [Action("resume" if is_paused else "pause", "Resume" if is_paused else "Pause", {"task": name}, key="p")]
    if numbers["failed"]:
        asks = f"Retry {numbers['failed']:,} failed of {name}?"
        actions.append(Action("retry all", "Retry failed", {"task": name, "status": "failed"}, key="r", asks=asks))
    return Row(
        f"task {name}",
        (
            Cell(name),
            Cell(
                length(lag),
                "odd" if lag > _LATE else "soft",
                "" if counts.oldest is None else f"due at {when(counts.oldest)}",
            ),
            *(Cell(f"{number:,}", (tones.get(what, "") if number else "soft")) for what, number in numbers.items()),
            Cell(str(here.get(name, 0)), "" if here.get(name) else "soft"),
            Cell(f"paused {ago(since[name], now)}", "odd", when(since[name])) if is_paused else Cell(""),
        ),
        tuple(actions),
    )


def _running(pool: WorkerState) -> Table:
    now, shown = asyncio.get_running_loop().time(), pool.running[:_SHOWN]
    rows = tuple(
        Row(
            f"running {_key(each.run.task, run.key)}",
            (
                Cell(readable(run.key)),
                Cell(each.run.task),
                Cell(str(run.record.attempts)),
                Cell("" if each.started_at is None else length(max(round(now * SECOND) - each.started_at.at, 0))),
                Cell(each.why.value if each.why else "runs", "bad" if each.why else "odd"),
            ),
            story=_key(each.run.task, run.key),
        )
        for each, run in zip(shown, runs_of(tuple(each.run for each in shown)), strict=True)
    )
    note = f"{len(pool.running):,} handlers" + (f", the first {_SHOWN} of them" if len(pool.running) > _SHOWN else "")
    columns = ("document", "task", "attempt", "for", "")
    return Table("running", "Running in this process", columns, rows, "nothing runs here", note=note)


def _noted(count: int, age_s: float, *, is_more: bool) -> str:
    more = " and more: narrow them down" if is_more else ""
    return f"{count:,}{more}" + (f", as they stood {age_s:.0f} s ago" if age_s > _OLD_S else "")


def _records(rows: Sequence[RecordRow], given: Mapping[str, str], now: Instant, note: str) -> Table:
    columns = ("document", "task", "status", "when", "attempts", "why")
    everything = Action("retry all", "Retry all that match", given, asks=f"Retry all records with {_named(given)}?")
    table = tuple(_record(each, now) for each in rows)
    return Table("records", "Records", columns, table, "there are none", (everything,) if given and rows else (), note)


def _named(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in given.items())


def _record(row: RecordRow, now: Instant) -> Row:
    key, record = _key(row.task, row.document), row.record
    place = (Cell(readable(row.document)), Cell(row.task))
    if record is None:
        trouble = redacted(row.trouble or "")
        return Row(
            key,
            (*place, Cell("unreadable", "bad"), Cell(""), Cell(""), Cell(trouble, "bad")),
            (_retry(key),),
            story=key,
        )
    at, words = _when(record, now)
    why = record.last_error or ""
    owner = f"by {record.owner}" if record.owner else ""
    cells = (
        Cell(record.status.value, _TONES[record.status]),
        Cell(words, "soft", when(at)),
        Cell(str(record.attempts)),
        Cell(redacted(why) or owner, "bad" if why else "soft"),
    )
    return Row(key, (*place, *cells), (_retry(key),), story=key)


def _when(record: TaskRecord, now: Instant) -> tuple[Instant, str]:
    """The most relevant time of a record, and its label."""
    at = record.next_run_at
    if at is None:
        ended = record.finalised_at or record.changed_at
        return ended, f"ended {ago(ended, now)}"
    if record.owner is not None:
        return at, f"its lease ends {ago(at, now)}" if at - now > 0 else f"its lease ended {ago(at, now)}"
    return at, f"due {ago(at, now)}"


def _retry(key: str) -> Action:
    return Action("retry", "Retry", {"key": key}, key="r")


def _planners(leaders: Sequence[Leadership], standings: Mapping[str, Standing], now: Instant) -> Table:
    columns = (
        "database",
        "leader",
        "epoch",
        "lease",
        "history",
        "changes looked at until",
        "waiting here",
        "trouble here",
    )
    rows = tuple(_planner(each, standings.get(each.database, Standing()), now) for each in leaders)
    return Table("planners", "Planners", columns, rows, "there are none")


def _unplanned(leader: Leadership) -> str:
    return f"who leads does not know {', '.join(leader.unplanned)}" if leader.unplanned else ""


def _passed_over(standing: Standing) -> str:
    many = standing.not_computed
    return f"{many} looks came to nothing, the last: {standing.not_computed_last}" if many else ""


def _planner(leader: Leadership, standing: Standing, now: Instant) -> Row:
    reached = standing.reached or leader.reached
    is_led = leader.holder is not None and leader.left > 0
    who = f"{leader.holder}{' (this process)' if standing.leads else ''}" if leader.holder else "nobody"
    lease = (
        f"{length(leader.left)} left"
        if leader.left > 0
        else f"ended {length(-leader.left)} ago"
        if leader.holder
        else ""
    )
    return Row(
        f"planner {leader.database}",
        (
            Cell(leader.database),
            Cell(who, "good" if is_led else "bad"),
            Cell(str(leader.epoch)),
            Cell(lease, "" if is_led else "bad"),
            Cell("" if leader.history is None else str(leader.history)),
            Cell("" if reached is None else ago(reached, now), "soft", "" if reached is None else when(reached)),
            Cell(str(standing.collected + standing.under_way) if standing.leads else "", "soft"),
            Cell(redacted(standing.error or _unplanned(leader) or _passed_over(standing)), "bad"),
        ),
    )


# --- details --------------------------------------------------------------------------------------

_STORY_TONES: Final[Mapping[What, str]] = {
    What.FAILING: "bad", What.CLAIMED: "odd", What.LEASE_ENDS: "odd", What.DUE: "odd", What.BEGAN: "soft", What.SEEN: "soft",
}  # fmt: skip
_END_TONES: Final[Mapping[str, str]] = {
    Ended.SUCCEEDED.value: "good", Ended.SKIPPED.value: "soft", Ended.FAILED.value: "bad", Ended.LOST.value: "bad",
}  # fmt: skip


def _moment(each: StoryMoment, now: Instant) -> Moment:
    token = "" if each.token is None else f", token {each.token}"
    took = "" if each.duration is None else f" after {length(each.duration)}"
    detail = f": {each.detail}" if each.detail else ""
    tone = _END_TONES.get(each.detail, "") if each.what is What.ENDED else _STORY_TONES.get(each.what, "")
    words = f"{each.what.value}{took}{detail}{token}"
    return Moment(f"{when(each.at)}, {ago(each.at, now)}", words, redacted(each.error or ""), tone)
