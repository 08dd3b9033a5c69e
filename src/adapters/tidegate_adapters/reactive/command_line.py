"""The commands of `tidegate reactive` for operators.

They need the app's code, which names its tasks and databases, and no running process.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tidegate.exit_codes import ExitCode
from tidegate.model.documents import Value
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant, seconds
from tidegate.reactive.admin.commands import Retried, Tally, TaskCounts
from tidegate.reactive.admin.mongodash_records import Imported, ImportedBefore, StillWritten
from tidegate.reactive.record.record_queries import Order, Query, RecordRow
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate_adapters.base.redaction import one_line, redacted
from tidegate_adapters.base.times import time_of, when
from tidegate_adapters.mongo.ids import exact, meant, readable
from tidegate_adapters.reactive.admin import Leadership, Office
from tidegate_adapters.reactive.app import Reactive
from tidegate_adapters.reactive.messages import numbers_of, retried
from tidegate_adapters.shell.application import Answer, listing, shortened

# --- commands -------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(app: Reactive, target: str) -> AsyncGenerator[Office, None]:
    """Open the databases of an app that has tasks and no embedded store; Misuse for others."""
    if not app.declared:
        raise Misuse(f"{target} has no tasks", todo="decorate a function with @app.task(collection=...)")
    async with app.connected(indexes=False) as sites:
        placed = [each.at(sites[each.database or app.settings.database]) for each in app.declared.values()]
        if any(each.site.client is None for each in placed):
            raise Misuse(
                f"{target} keeps its documents in its own process",
                why="its store is embedded: what stands there is there only while it runs",
                todo="look at its page (page_port)",
            )
        yield Office(placed, app.settings.application)


async def _query(office: Office, filters: Mapping[str, Any]) -> Query:
    given = {name: filters[name] for name in ("due_from", "due_before") if filters[name]}
    now = await office.now() if given else Instant(0)
    times = {name: time_of(text, now) for name, text in given.items()}
    return Query(
        tasks=tuple(dict.fromkeys(filters["tasks"])),
        statuses=frozenset(TaskStatus(each) for each in filters["statuses"]),
        documents=tuple(value for text in filters["ids"] for value in meant(text)),
        error=filters["error"] or None,
        due_from=times.get("due_from"),
        due_before=times.get("due_before"),
    )


async def status(office: Office) -> Answer:
    leaders, tallies = await office.leaderships(), await office.tallies(Query())
    paused = {each.task for each in await office.paused()}
    tasks = [
        {**_counts_json(each, tally.at), "paused": each.task in paused} for tally in tallies for each in tally.tasks
    ]
    lines = (one_line(f"{leader.database}: {led(leader)}") for leader in leaders)
    return Answer({"databases": [*map(_leader_json, leaders)], "tasks": tasks}, (*lines, *_counted(tallies, paused)))


def led(leader: Leadership) -> str:
    reached = "" if leader.reached is None else f"; all changes until {when(leader.reached)} had their look"
    if leader.unplanned:
        reached += f"; nobody plans {', '.join(leader.unplanned)}, which who leads does not know"
    if leader.holder is None:
        return f"nobody leads{reached}"
    left = f"for {seconds(leader.left)} more" if leader.left > 0 else f"its lease ran out {seconds(-leader.left)} ago"
    return f"{leader.holder} leads under epoch {leader.epoch}, {left}{reached}"


async def count(office: Office, **filters: Any) -> Answer:
    tallies = await office.tallies(await _query(office, filters))
    tasks = [_counts_json(each, tally.at) for tally in tallies for each in tally.tasks]
    return Answer({"tasks": tasks}, _counted(tallies, set()))


async def list_records(office: Office, *, order: str, limit: int, **filters: Any) -> Answer:
    pages = await office.listed(await _query(office, filters), order=Order[order.upper()], limit=limit)
    rows, is_more = [row for page in pages for row in page.rows], any(page.after for page in pages)
    return listing("records", rows, _row_json, _columns, limit=limit, is_more=is_more)


async def retry(office: Office, **filters: Any) -> Answer:
    """Retry records.

    Returns:
        NOTHING_SELECTED if none match; NOT_MET if the server stops answering; INCONCLUSIVE if some
            changed concurrently, are unreadable or unknown.
    """
    found = await office.retry(await _query(office, filters))
    left = {"changed": found.changed, "unknown": found.unknown, "unreadable": found.unreadable}
    data = {"reset": found.reset, **left, "complete": found.is_complete}
    return Answer(data, (retried(found),), code=_code(found))


def _code(found: Retried) -> ExitCode:
    if not found.is_complete:
        return ExitCode.NOT_MET
    if found.changed or found.unknown or found.unreadable:
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK if found.reset else ExitCode.NOTHING_SELECTED


async def pause(office: Office, *, tasks: tuple[str, ...]) -> Answer:
    await office.pause(tasks)
    return await _paused(office)


async def resume(office: Office, *, tasks: tuple[str, ...]) -> Answer:
    await office.resume(tasks)
    return await _paused(office)


async def _paused(office: Office) -> Answer:
    since = {each.task: when(each.since) for each in await office.paused()}
    return Answer({"paused": since}, (f"paused: {one_line(', '.join(since)) or 'none'}",))


async def take_over(
    office: Office, *, task: str, theirs: str, named: str | None, quiet_s: float, is_dry: bool
) -> Answer:
    """Import the records of a task from mongodash, once.

    Returns:
        NOT_MET if mongodash still writes; NOTHING_SELECTED if it left none; INCONCLUSIVE if some
            are no records.
    """
    found = await office.take_over(task, theirs, named=named, quiet=timedelta(seconds=quiet_s), is_dry=is_dry)
    code, said, more = _taken(found)
    return Answer({**more, "dry_run": is_dry}, (said,), map(one_line, more.get("reasons", ())), code)


def _taken(found: Imported | ImportedBefore | StillWritten) -> tuple[ExitCode, str, Mapping[str, Any]]:
    match found:
        case Imported(taken, there, unreadable, reasons, is_dry):
            would = "would be taken" if is_dry else "taken"
            said = f"{taken:,} {would} over, {there:,} were here before, {unreadable:,} cannot be read"
            data = {"taken": taken, "there": there, "unreadable": unreadable, "reasons": [*map(redacted, reasons)]}
            if unreadable:
                return ExitCode.INCONCLUSIVE, said, data
            return (ExitCode.OK if taken or there else ExitCode.NOTHING_SELECTED), said, data
        case ImportedBefore(at):
            return ExitCode.OK, f"taken over before, at {when(at)}", {"taken": 0, "before": when(at)}
        case StillWritten():
            said = f"nothing is taken over: {found.value}; stop all instances of mongodash, and ask again"
            return ExitCode.NOT_MET, said, {"taken": 0, "refused": found.value}


# --- output ---------------------------------------------------------------------------------------


def _counted(tallies: Sequence[Tally], paused: set[str]) -> Iterator[str]:
    head = ("task", *(status.value for status in TaskStatus), "unreadable", "lag", "")
    rows = [head]
    for tally in tallies:
        for each in tally.tasks:
            numbers = [f"{number:,}" for number in numbers_of(each).values()]
            rows.append(
                (one_line(each.task), *numbers, seconds(each.lag(tally.at)), "paused" if each.task in paused else "")
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = (f"{text:>{width}}" for text, width in zip(rest[:-1], widths[1:-1], strict=True))
        yield f"{first:<{widths[0]}}  {'  '.join(cells)}  {rest[-1]}".rstrip()


def _counts_json(counts: TaskCounts, now: Instant) -> Mapping[str, object]:
    oldest = None if counts.oldest is None else when(counts.oldest)
    lag_s = counts.lag(now) / SECOND
    return {"task": counts.task, "records": numbers_of(counts), "oldest_due": oldest, "lag_s": lag_s}


def _leader_json(leader: Leadership) -> Mapping[str, object]:
    return {
        "database": leader.database,
        "leader": leader.holder,
        "epoch": leader.epoch,
        "lease_left_s": leader.left / SECOND,
        "history": leader.history,
        "reached": None if leader.reached is None else when(leader.reached),
        "unplanned": [*leader.unplanned],
    }


def _row_json(row: RecordRow) -> Mapping[str, object]:
    return {"task": row.task, "document": _json(row.document), **_record_json(row.record), "trouble": row.trouble}


def _json(value: Value) -> Any:
    return json.loads(exact(value))


def _record_json(record: TaskRecord | None) -> Mapping[str, object]:
    if record is None:
        return {"status": None}
    times = {
        "next_run_at": record.next_run_at,
        "due_at": record.due_at,
        "changed_at": record.changed_at,
        "finalised_at": record.finalised_at,
    }
    return {
        "status": record.status.value,
        **{name: None if at is None else when(at) for name, at in times.items()},
        "attempts": record.attempts,
        "owner": record.owner,
        "last_error": None if record.last_error is None else redacted(record.last_error),
    }


def _columns(row: RecordRow) -> tuple[str, ...]:
    record = row.record
    if record is None:
        return (one_line(row.task), one_line(readable(row.document)), "unreadable", "", "", one_line(row.trouble or ""))
    at = record.next_run_at or record.finalised_at or record.changed_at
    error = shortened(record.last_error or "")
    attempts = f"{record.attempts} attempt{'' if record.attempts == 1 else 's'}"
    return (one_line(row.task), one_line(readable(row.document)), record.status.value, when(at), attempts, error)
