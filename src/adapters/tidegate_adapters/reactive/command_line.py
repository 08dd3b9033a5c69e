"""`tidegate reactive status`, `list`, `count`, `retry`, `pause`, `resume`: the databases of an app are asked, or told to do something.

What is asked needs the app's code, for that says which tasks there are and where, and none of its processes: it is answered
by what stands in the databases.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar, cast, final

from tidegate.exit_codes import ExitCode
from tidegate.model.documents import Value
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant, seconds
from tidegate.reactive.desk import Retried, Tally, TaskCounts
from tidegate.reactive.mongodash_records import Imported, ImportedBefore, StillWritten
from tidegate.reactive.record_queries import Order, Query, RecordRow
from tidegate.reactive.task_records import TaskRecord, TaskStatus
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.failures import as_of_the_server
from tidegate_adapters.ids import exact, meant, readable
from tidegate_adapters.printable import one_line, redacted
from tidegate_adapters.reactive.app import Reactive
from tidegate_adapters.reactive.office import Leadership, Office
from tidegate_adapters.reactive.words import numbers_of, retried
from tidegate_adapters.running import REACTIVE, Told, made
from tidegate_adapters.targets import attribute
from tidegate_adapters.times import time_of, when

__all__ = ["Asked", "Left", "count", "list_records", "pause", "resume", "retry", "status", "take_over"]

T = TypeVar("T")

_ERROR_MAX: Final = 120
"""How many characters of an error stand in a line."""


@final
class Asked(NamedTuple):
    """Which records are meant, as the command line has it.

    Attributes:
        tasks: Of these tasks; empty for all.
        statuses: In one of these; empty for any.
        ids: Of documents with one of these ids, plain or as Extended JSON; empty for all.
        error: With this in the text of the last failure.
        due_from: Due then or later: a time, or how long ago.
        due_before: Due earlier, likewise.
    """

    tasks: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    error: str | None = None
    due_from: str | None = None
    due_before: str | None = None

    async def query(self, office: Office) -> Query:
        """The same for desks.

        Raises:
            Misuse: An id, or a time, is none.
        """
        now = await office.now() if self.due_from or self.due_before else None

        def time(text: str | None) -> Instant | None:
            return None if text is None or now is None else time_of(text, now)

        return Query(
            tasks=tuple(dict.fromkeys(self.tasks)),
            statuses=frozenset(TaskStatus(each) for each in self.statuses),
            documents=tuple(value for text in self.ids for value in meant(text)),
            error=self.error or None,
            due_from=time(self.due_from),
            due_before=time(self.due_before),
        )


@final
class Left(NamedTuple):
    """What mongodash has left of a task.

    Attributes:
        task: The name of the task here.
        theirs: Their collection.
        named: The name of the task there; None for the same.
        quiet_s: For how many seconds nothing may have changed there.
        is_dry: Look, and write nothing.
    """

    task: str
    theirs: str
    named: str | None
    quiet_s: float
    is_dry: bool


# --- asking it ----------------------------------------------------------------------------------------------------------


def _answered(told: Told, ask: Callable[[Office], Awaitable[T]]) -> T:
    """What the databases of an app answer.

    Raises:
        Misuse: There is no such app, it has no tasks, or its store is within its process.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: The server does not answer, or refuses.
    """

    async def answered() -> T:
        found, _ = await made(told, *attribute(told.target), (REACTIVE,))
        app = cast("Reactive", found)
        if not app.declared:
            raise Misuse(f"{told.target} has no tasks", todo="decorate a function with @app.task(collection=...)")
        with as_of_the_server():
            async with app.connected(indexes=False) as sites:
                placed = [each.at(sites[each.database or app.settings.database]) for each in app.declared.values()]
                if any(each.site.client is None for each in placed):
                    raise Misuse(
                        f"{told.target} keeps its documents in its own process",
                        why="its store is embedded: what stands there is there only while it runs",
                        todo="look at its page (page_port)",
                    )
                return await ask(Office(placed, app.settings.application))

    return asyncio.run(answered())


def status(told: Told, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Who leads in each database, and how each task stands.

    Args:
        told: Which app.
        terminal: Where it is shown.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def ask(office: Office) -> tuple[Sequence[Leadership], Sequence[Tally], set[str]]:
        return (
            await office.leaderships(),
            await office.tallies(Query()),
            {each.task for each in await office.paused()},
        )

    leaders, tallies, paused = _answered(told, ask)
    if is_json:
        tasks = [
            {**_counts_json(each, tally.at), "paused": each.task in paused} for tally in tallies for each in tally.tasks
        ]
        terminal.answer(
            {"schema": REACTIVE.schema, "databases": [*map(_leader_json, leaders)], "tasks": tasks, "ok": True}
        )
        return ExitCode.OK
    for leader in leaders:
        terminal.say(one_line(f"{leader.database}: {led(leader)}"))
    _tell_counts(tallies, paused, terminal)
    return ExitCode.OK


def led(leader: Leadership) -> str:
    """Who leads, in words."""
    reached = "" if leader.reached is None else f"; all changes until {when(leader.reached)} had their look"
    if leader.unplanned:
        reached += f"; nobody plans {', '.join(leader.unplanned)}, which who leads does not know"
    if leader.holder is None:
        return f"nobody leads{reached}"
    left = f"for {seconds(leader.left)} more" if leader.left > 0 else f"its lease ran out {seconds(-leader.left)} ago"
    return f"{leader.holder} leads under epoch {leader.epoch}, {left}{reached}"


def count(told: Told, asked: Asked, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """How many records stand where, task by task, and since when the oldest is due.

    Args:
        told: Which app.
        asked: Which records.
        terminal: Where it is shown.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def ask(office: Office) -> Sequence[Tally]:
        return await office.tallies(await asked.query(office))

    tallies = _answered(told, ask)
    if is_json:
        tasks = [_counts_json(each, tally.at) for tally in tallies for each in tally.tasks]
        terminal.answer({"schema": REACTIVE.schema, "tasks": tasks, "ok": True})
    else:
        _tell_counts(tallies, set(), terminal)
    return ExitCode.OK


def list_records(told: Told, asked: Asked, order: str, limit: int, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Records, one a line.

    Args:
        told: Which app.
        asked: Which records.
        order: `next_run`, or `changed`.
        limit: How many at most, of each database.
        terminal: Where they are shown.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def ask(office: Office) -> tuple[Sequence[RecordRow], bool]:
        pages = await office.listed(await asked.query(office), order=Order[order.upper()], limit=limit)
        return [row for page in pages for row in page.rows], any(page.after for page in pages)

    rows, is_more = _answered(told, ask)
    if is_json:
        terminal.answer({"schema": REACTIVE.schema, "records": [*map(_row_json, rows)], "more": is_more, "ok": True})
        return ExitCode.OK
    terminal.table([_columns(row) for row in rows])
    if is_more:
        terminal.tell(f"and more: narrow it down, or set --limit above {limit}")
    return ExitCode.OK


def retry(told: Told, asked: Asked, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Have records run again.

    Args:
        told: Which app.
        asked: Which records.
        terminal: Where it is shown what became of them.
        is_json: Answer with one JSON object.

    Returns:
        NOTHING_SELECTED where there are none; NOT_MET where the server does not answer any more; INCONCLUSIVE where some were
        changed by others, cannot be read, or nobody knows.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def ask(office: Office) -> Retried:
        return await office.retry(await asked.query(office))

    found = _answered(told, ask)
    left = {"changed": found.changed, "unknown": found.unknown, "unreadable": found.unreadable}
    code = _code(found)
    if is_json:
        answer = {"schema": REACTIVE.schema, "reset": found.reset, **left, "complete": found.is_complete}
        terminal.answer({**answer, "ok": code is ExitCode.OK})
    else:
        terminal.say(retried(found))
    return code


def _code(found: Retried) -> ExitCode:
    if not found.is_complete:
        return ExitCode.NOT_MET
    if found.changed or found.unknown or found.unreadable:
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK if found.reset else ExitCode.NOTHING_SELECTED


def pause(told: Told, tasks: tuple[str, ...], terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Have no handler of these tasks begin, in any process.

    Args:
        told: Which app.
        tasks: The names of the tasks.
        terminal: Where it is shown what is paused then.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """
    return _said(told, lambda office: office.pause(tasks), terminal, is_json=is_json)


def resume(told: Told, tasks: tuple[str, ...], terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Have handlers of these tasks begin again; otherwise as `pause`."""
    return _said(told, lambda office: office.resume(tasks), terminal, is_json=is_json)


def _said(told: Told, say: Callable[[Office], Awaitable[None]], terminal: Terminal, *, is_json: bool) -> ExitCode:
    async def ask(office: Office) -> Mapping[str, Instant]:
        await say(office)
        return {each.task: each.since for each in await office.paused()}

    paused = _answered(told, ask)
    if is_json:
        since = {name: when(at) for name, at in paused.items()}
        terminal.answer({"schema": REACTIVE.schema, "paused": since, "ok": True})
    else:
        terminal.say(f"paused: {one_line(', '.join(paused)) or 'none'}")
    return ExitCode.OK


def take_over(told: Told, left: Left, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Take the records over that mongodash has left of a task, once.

    Args:
        told: Which app.
        left: Which records, and how.
        terminal: Where it is shown what became of them.
        is_json: Answer with one JSON object.

    Returns:
        NOT_MET where mongodash still writes there; NOTHING_SELECTED where there is nothing of it; INCONCLUSIVE where some are
        no records.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """
    task, theirs, named, quiet = left.task, left.theirs, left.named, timedelta(seconds=left.quiet_s)
    found = _answered(told, lambda office: office.take_over(task, theirs, named=named, quiet=quiet, is_dry=left.is_dry))
    code, said, more = _taken(found)
    if is_json:
        terminal.answer({"schema": REACTIVE.schema, **more, "dry_run": left.is_dry, "ok": code is ExitCode.OK})
        return code
    terminal.say(said)
    for each in more.get("reasons", ()):
        terminal.tell(one_line(each))
    return code


def _taken(found: Imported | ImportedBefore | StillWritten) -> tuple[ExitCode, str, Mapping[str, Any]]:
    """What became of the records of mongodash: as a code, in words, and as data."""
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


# --- in words, and as JSON ----------------------------------------------------------------------------------------------


def _tell_counts(tallies: Sequence[Tally], paused: set[str], terminal: Terminal) -> None:
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
        terminal.say(f"{first:<{widths[0]}}  {'  '.join(cells)}  {rest[-1]}".rstrip())


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
    """A value as Extended JSON, to stand in other JSON."""
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
    error = one_line(redacted(record.last_error or ""))
    error = error if len(error) <= _ERROR_MAX else f"{error[:_ERROR_MAX]}..."
    attempts = f"{record.attempts} attempt{'' if record.attempts == 1 else 's'}"
    return (one_line(row.task), one_line(readable(row.document)), record.status.value, when(at), attempts, error)
