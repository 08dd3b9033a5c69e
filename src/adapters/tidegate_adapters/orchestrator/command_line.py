"""The commands of `tidegate orchestrator` for operators.

They need the app's code, which names its database, and no running process. Processes see changes at
their next heartbeat.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tidegate.exit_codes import ExitCode
from tidegate.invocations.admin.commands import Asked, Command
from tidegate.invocations.admin.invocation_queries import InvocationQuery, InvocationRow
from tidegate.invocations.record.record_documents import RESULT, RESULT_PAYLOAD
from tidegate.invocations.worker.worker import Held
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.services.executions import Execution
from tidegate_adapters.base.errors import NothingSelectedError
from tidegate_adapters.base.redaction import one_line, redacted
from tidegate_adapters.base.times import length, time_of, when
from tidegate_adapters.mongo.ids import readable
from tidegate_adapters.orchestrator.app import Orchestrator
from tidegate_adapters.orchestrator.messages import MEANT, as_json, asked_words
from tidegate_adapters.orchestrator.status import BACKLOG_MAX, Backlog, Process, executions_of
from tidegate_adapters.shell.application import Answer, listing, shortened

# --- commands -------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(app: Orchestrator, target: str) -> AsyncGenerator[Orchestrator, None]:
    """Open an app that has tasks and no embedded store; Misuse for others."""
    if not app.declared:
        raise Misuse(f"{target} has no tasks", todo="decorate a function with @app.task()")
    if app.is_embedded:
        raise Misuse(
            f"{target} keeps its invocations in its own process",
            why="its store is embedded: what stands there is there only while it runs",
            todo="run it on a MongoDB",
        )
    try:
        yield app
    finally:
        await app.close()


def _query(filters: Mapping[str, Any], now: Instant, command: Command | None = None) -> InvocationQuery:
    by_default = MEANT[command] if command and not filters["ids"] else frozenset[str]()
    texts = {name: filters[name] or None for name in ("tenant", "parent", "root", "error")}
    times = {name: time_of(filters[name], now) for name in ("made_from", "made_before") if filters[name] is not None}
    return InvocationQuery(
        ids=filters["ids"], tasks=filters["tasks"], queues=filters["queues"],
        statuses=frozenset(filters["statuses"]) or by_default,
        made_from=times.get("made_from"), made_before=times.get("made_before"), **texts,
    )  # fmt: skip


async def status(app: Orchestrator) -> Answer:
    found, counts = await app.standing(), await app.counts()
    tasks = {
        name: {each.status or "unreadable": each.count for each in counts if each.task == name}
        for name in sorted({each.task for each in counts})
    }
    lines = [f"process {each.member.id}: {each}" for each in found.processes] or ["no process runs it"]
    for queue in found.backlogs:
        number = f"{queue.waiting:,}{' or more' if queue.waiting == BACKLOG_MAX else ''}"
        oldest = f", the oldest due for {length(queue.lag)}" if queue.waiting else ""
        lines.append(f"queue {queue.queue}: {number} waiting{oldest}")
    for name, numbers in tasks.items():
        lines.append(f"task {name}: {', '.join(f'{count:,} {each}' for each, count in numbers.items())}")
    paused = _paused(found.held)
    return Answer(
        {
            "processes": [*map(_process_json, found.processes)],
            "queues": [{**_backlog_json(each), "paused": each.queue in found.held.queues} for each in found.backlogs],
            "tasks": [{"task": name, "counts": numbers} for name, numbers in tasks.items()],
            **paused.data,
        },
        (*map(one_line, lines), *paused.lines),
    )


async def list_invocations(app: Orchestrator, *, limit: int, **filters: Any) -> Answer:
    page = await app.listed(_query(filters, await app.now()), limit=limit)
    return listing("invocations", page.rows, _row_json, _columns, limit=limit, is_more=bool(page.after))


async def show(app: Orchestrator, *, key: str) -> Answer:
    row = await app.show(key)
    if row is None:
        raise NothingSelectedError(
            f"there is no invocation {key}", todo="tidegate orchestrator list tells which there are"
        )
    found = _whole_json(row)
    lines = {name: value for name, value in found.items() if name != "history" and value not in (None, {})}
    width = max(map(len, lines))
    told = [
        f"{name:<{width}}  {one_line(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in lines.items()
    ]
    for each in row.versions:
        at, by = "" if each.at is None else f" at {when(each.at)}", f" by {each.by}" if each.by else ""
        told.append(one_line(f"version {each.version}: {each.status}{at}{by}"))
    return Answer({"invocation": found}, told)


async def executions(app: Orchestrator, *, since: str, until: str | None, process: str | None, limit: int) -> Answer:
    now = await app.now()
    span = time_of(since, now), now if until is None else time_of(until, now)
    found = await app.asked(executions_of(app.collections, *span, limit + 1, process))
    rows, is_more = found[:limit], len(found) > limit
    return listing("executions", rows, _execution_json, _execution_row, limit=limit, is_more=is_more)


def _execution_row(each: Execution) -> tuple[str, ...]:
    took = "" if each.end is None else length(each.end - each.start)
    return when(each.start), each.runner_id, each.status.value, took, one_line(each.reason)


def _execution_json(each: Execution) -> Mapping[str, object]:
    return {
        "id": each.id,
        "process": each.runner_id,
        "status": each.status.value,
        "began": when(each.start),
        "ended": None if each.end is None else when(each.end),
        "took_s": None if each.end is None else (each.end - each.start) / SECOND,
        "reason": one_line(each.reason),
    }


async def ask(app: Orchestrator, *, command: str, **filters: Any) -> Answer:
    """Cancel, kill, hold, release or repeat invocations.

    Returns:
        NOTHING_SELECTED if none match; NOT_MET if the server stops answering; INCONCLUSIVE if some
            named ids refuse the command, or some are absent, unreadable or unknown.
    """
    asked, ids = Command[command], filters["ids"]
    found = await app.ask(asked, _query(filters, await app.now(), asked))
    some = found.done + found.told + found.left + found.unknown + found.unreadable
    absent = max(len({*ids}) - some, 0) if found.is_complete else 0
    return Answer(
        {
            "done": found.done, "told": found.told, "left": found.left, "unknown": found.unknown,
            "unreadable": found.unreadable, "absent": absent, "complete": found.is_complete,
        },
        (asked_words(asked, found, absent),),
        code=_code(found, is_named=bool(ids), absent=absent),
    )  # fmt: skip


def _code(found: Asked, *, is_named: bool, absent: int) -> ExitCode:
    if not found.is_complete:
        return ExitCode.NOT_MET
    if (is_named and found.left) or found.unknown or found.unreadable:
        return ExitCode.INCONCLUSIVE
    if not (found.done or found.told):
        return ExitCode.NOTHING_SELECTED
    return ExitCode.INCONCLUSIVE if absent else ExitCode.OK


async def pause(app: Orchestrator, *, tasks: tuple[str, ...], queues: tuple[str, ...]) -> Answer:
    return _paused(await app.pause(tasks=tasks, queues=queues))


async def resume(app: Orchestrator, *, tasks: tuple[str, ...], queues: tuple[str, ...]) -> Answer:
    return _paused(await app.resume(tasks=tasks, queues=queues))


# --- output ---------------------------------------------------------------------------------------


def _paused(held: Held) -> Answer:
    tasks, queues = sorted(held.tasks), sorted(held.queues)
    names = (*(f"task {each}" for each in tasks), *(f"queue {each}" for each in queues))
    return Answer({"paused": {"tasks": tasks, "queues": queues}}, (f"paused: {one_line(', '.join(names)) or 'none'}",))


def _process_json(each: Process) -> Mapping[str, object]:
    member = each.member
    return {
        "id": member.id,
        "name": member.name,
        "life": member.life,
        "joined": when(member.joined),
        "silent_s": each.silent / SECOND,
        "alive": each.is_alive,
        "taken_over_at": None if each.taken_over_at is None else when(each.taken_over_at),
    }


def _backlog_json(each: Backlog) -> Mapping[str, object]:
    return {
        "queue": each.queue,
        "waiting": each.waiting,
        "more": each.waiting == BACKLOG_MAX,
        "lag_s": each.lag / SECOND,
    }


def _row_json(row: InvocationRow) -> Mapping[str, object]:
    record, job, error = row.record, row.job, row.error
    times = {"created_at": row.created_at, "changed_at": row.changed_at, "due": row.due}
    return {
        "id": row.key if isinstance(row.key, str) else as_json(row.key),
        "task": job and job.task,
        "queue": job and job.queue,
        "status": record and record.status,
        "owner": record and record.owner,
        "version": record and record.version,
        "tries": row.tries,
        "priority": job and job.priority,
        "tenant": job and job.tenant,
        "parent": job and job.parent,
        "root": job and job.root,
        **{name: None if at is None else when(at) for name, at in times.items()},
        "held": row.is_held,
        "asked": row.asked,
        "error": error and {"type": error.type, "message": redacted(error.message)},
        "trouble": row.trouble,
    }


def _whole_json(row: InvocationRow) -> Mapping[str, object]:
    document = row.document or Document()
    found = dict(_row_json(row))
    if row.error is not None:
        found["traceback"] = redacted(row.error.traceback)
    return {
        **found,
        "arguments": {} if row.job is None else {name: as_json(value) for name, value in row.job.arguments.items},
        "arguments_at": row.job and row.job.payload,
        "result": as_json(document[RESULT]) if document.has(RESULT) else None,
        "result_at": document.held(RESULT_PAYLOAD),
        "history": [
            {
                "version": each.version,
                "status": each.status,
                "at": None if each.at is None else when(each.at),
                "by": each.by or None,
            }
            for each in row.versions
        ],
    }


def _columns(row: InvocationRow) -> tuple[str, ...]:
    record, job = row.record, row.job
    if record is None or job is None:
        return ("", one_line(readable(row.key)), "unreadable", "", "", one_line(row.trouble or ""))
    error = "" if row.error is None else shortened(f"{row.error.type}: {row.error.message}")
    at = row.due or row.changed_at
    tries = f"{row.tries} {'run' if row.tries == 1 else 'runs'}"
    status = "held" if row.is_held else record.status
    return (one_line(job.task), one_line(str(row.key)), status, "" if at is None else when(at), tries, error)
