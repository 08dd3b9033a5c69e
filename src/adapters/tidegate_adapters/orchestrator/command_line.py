"""`tidegate orchestrator status`, `list`, `show`, `retry`, `cancel`, `kill`, `hold`, `release`, `pause`, `resume`: the database of an
app is asked, or told to do something.

What is asked needs the app's code, for that says where its database is, and none of its processes: those hear of it with their next
beat.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar, cast, final

from tidegate.exit_codes import ExitCode
from tidegate.invocations.asking import Asked, Command
from tidegate.invocations.invocation_queries import InvocationQuery, InvocationRow
from tidegate.invocations.record_documents import RESULT, RESULT_PAYLOAD
from tidegate.invocations.worker import Held
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.record_counts import RecordCount
from tidegate.services.executions import Execution
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.failures import NothingSelectedError, as_of_the_server
from tidegate_adapters.ids import readable
from tidegate_adapters.orchestrator.app import Orchestrator
from tidegate_adapters.orchestrator.standing import BACKLOG_MAX, Backlog, Process, Standing, executions_of
from tidegate_adapters.orchestrator.words import MEANT, as_json, asked_words
from tidegate_adapters.printable import one_line, redacted
from tidegate_adapters.running import ORCHESTRATOR, Told, made
from tidegate_adapters.targets import attribute
from tidegate_adapters.times import length, time_of, when

__all__ = ["Meant", "ask", "list_invocations", "pause", "resume", "show", "status"]

T = TypeVar("T")

_ERROR_MAX: Final = 120
"""How many characters of an error stand in a line."""


@final
class Meant(NamedTuple):
    """Which invocations are meant, as the command line has it.

    Attributes:
        ids: With one of these ids; empty for any.
        tasks: Of these tasks; empty for all.
        queues: In one of these queues; empty for all.
        statuses: In one of these; empty for any.
        tenant: On behalf of this one.
        parent: Called by this invocation.
        root: Called, by whatever way, on behalf of this invocation.
        error: With this in the last error.
        made_from: Made then or later: a time, or how long ago.
        made_before: Made earlier, likewise.
    """

    ids: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    tenant: str | None = None
    parent: str | None = None
    root: str | None = None
    error: str | None = None
    made_from: str | None = None
    made_before: str | None = None

    def query(self, now: Instant, command: Command | None = None) -> InvocationQuery:
        """The same as a query.

        Args:
            now: The time, which times are told from.
            command: What is asked of them, if anything.

        Raises:
            Misuse: A time is none.
        """

        def time(text: str | None) -> Instant | None:
            return None if text is None else time_of(text, now)

        named = frozenset(self.statuses)
        by_default = MEANT[command] if command and not self.ids else frozenset[str]()
        return InvocationQuery(
            ids=self.ids, tasks=self.tasks, queues=self.queues, statuses=named or by_default, tenant=self.tenant or None,
            parent=self.parent or None, root=self.root or None, error=self.error or None,
            made_from=time(self.made_from), made_before=time(self.made_before),
        )  # fmt: skip


# --- asking it ----------------------------------------------------------------------------------------------------------


def _answered(told: Told, ask: Callable[[Orchestrator], Awaitable[T]]) -> T:
    """What the database of an app answers.

    Raises:
        Misuse: There is no such app, it has no tasks, or its store is within its process.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: The server does not answer, or refuses.
    """

    async def answered() -> T:
        found, _ = await made(told, *attribute(told.target), (ORCHESTRATOR,))
        app = cast("Orchestrator", found)
        if not app.declared:
            raise Misuse(f"{told.target} has no tasks", todo="decorate a function with @app.task()")
        if app.is_embedded:
            raise Misuse(
                f"{told.target} keeps its invocations in its own process",
                why="its store is embedded: what stands there is there only while it runs",
                todo="run it on a MongoDB",
            )
        with as_of_the_server():
            try:
                return await ask(app)
            finally:
                await app.close()

    return asyncio.run(answered())


def status(told: Told, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Which processes there are, what waits in the queues, what has become of the invocations of each task, and what is paused.

    Args:
        told: Which app.
        terminal: Where it is shown.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def asked(app: Orchestrator) -> tuple[Standing, tuple[RecordCount, ...]]:
        return await app.standing(), await app.counts()

    found, counts = _answered(told, asked)
    tasks = {name: [each for each in counts if each.task == name] for name in sorted({each.task for each in counts})}
    if is_json:
        terminal.answer(
            {
                "schema": ORCHESTRATOR.schema,
                "processes": [*map(_process_json, found.processes)],
                "queues": [
                    {**_backlog_json(each), "paused": each.queue in found.held.queues} for each in found.backlogs
                ],
                "tasks": [
                    {"task": name, "counts": {each.status or _UNREADABLE: each.count for each in some}}
                    for name, some in tasks.items()
                ],
                **_held_json(found.held),
                "ok": True,
            }
        )
        return ExitCode.OK
    for each in found.processes:
        terminal.say(one_line(f"process {each.member.id}: {each}"))
    if not found.processes:
        terminal.say("no process runs it")
    for queue in found.backlogs:
        number = f"{queue.waiting:,}{' or more' if queue.waiting == BACKLOG_MAX else ''}"
        oldest = f", the oldest due for {length(queue.lag)}" if queue.waiting else ""
        terminal.say(one_line(f"queue {queue.queue}: {number} waiting{oldest}"))
    for name, some in tasks.items():
        numbers = ", ".join(f"{each.count:,} {each.status or _UNREADABLE}" for each in some)
        terminal.say(one_line(f"task {name}: {numbers}"))
    terminal.say(_held_words(found.held))
    return ExitCode.OK


_UNREADABLE: Final = "unreadable"


def list_invocations(told: Told, meant: Meant, limit: int, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Invocations, the newest first, one a line.

    Args:
        told: Which app.
        meant: Which invocations.
        limit: How many at most.
        terminal: Where they are shown.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def asked(app: Orchestrator) -> tuple[tuple[InvocationRow, ...], bool]:
        page = await app.listed(meant.query(await app.now()), limit=limit)
        return page.rows, bool(page.after)

    rows, is_more = _answered(told, asked)
    if is_json:
        terminal.answer(
            {"schema": ORCHESTRATOR.schema, "invocations": [*map(_row_json, rows)], "more": is_more, "ok": True}
        )
        return ExitCode.OK
    terminal.table([*map(_columns, rows)])
    if is_more:
        terminal.tell(f"and more: narrow it down, or set --limit above {limit}")
    return ExitCode.OK


def show(told: Told, key: str, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """One invocation, with all that it holds.

    Args:
        told: Which app.
        key: The id of the invocation.
        terminal: Where it is shown.
        is_json: Answer with one JSON object.

    Raises:
        NothingSelectedError: There is none.
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """
    row = _answered(told, lambda app: app.show(key))
    if row is None:
        raise NothingSelectedError(
            f"there is no invocation {key}", todo="tidegate orchestrator list tells which there are"
        )
    found = _whole_json(row)
    if is_json:
        terminal.answer({"schema": ORCHESTRATOR.schema, "invocation": found, "ok": True})
        return ExitCode.OK
    lines = {name: value for name, value in found.items() if name != "history" and value not in (None, {})}
    width = max(map(len, lines))
    for name, value in lines.items():
        text = value if isinstance(value, str) else json.dumps(value)
        terminal.say(f"{name:<{width}}  {one_line(text)}")
    for each in row.versions:
        at, by = "" if each.at is None else f" at {when(each.at)}", f" by {each.by}" if each.by else ""
        terminal.say(one_line(f"version {each.version}: {each.status}{at}{by}"))
    return ExitCode.OK


def executions(
    told: Told, span: tuple[str, str | None], process: str | None, limit: int, terminal: Terminal, *, is_json: bool
) -> ExitCode:
    """Which processes had the turn in a span of time, the newest first, one a line.

    Args:
        told: Which app.
        span: Where it begins, and where it ends; None for now.
        process: Whose turns; None for everybody's.
        limit: How many at most.
        terminal: Where they are shown.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """
    since, until = span

    async def asked(app: Orchestrator) -> tuple[Execution, ...]:
        now = await app.now()
        times = time_of(since, now), now if until is None else time_of(until, now)
        return await app.asked(executions_of(app.collections, *times, limit + 1, process))

    found = _answered(told, asked)
    if is_json:
        rows = [*map(_execution_json, found[:limit])]
        terminal.answer({"schema": ORCHESTRATOR.schema, "executions": rows, "more": len(found) > limit, "ok": True})
        return ExitCode.OK
    terminal.table([*map(_execution_row, found[:limit])])
    if len(found) > limit:
        terminal.tell(f"and more: narrow it down, or set --limit above {limit}")
    return ExitCode.OK


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


def ask(told: Told, command: Command, meant: Meant, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Cancel, kill, hold, release or repeat invocations.

    Args:
        told: Which app.
        command: What.
        meant: Which invocations.
        terminal: Where it is shown what became of them.
        is_json: Answer with one JSON object.

    Returns:
        NOTHING_SELECTED where there are none; NOT_MET where the server does not answer any more; INCONCLUSIVE where it cannot be
        done for some that are named by their ids, some of these are not there, some cannot be read, or nobody knows.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """

    async def asked(app: Orchestrator) -> Asked:
        return await app.ask(command, meant.query(await app.now(), command))

    found = _answered(told, asked)
    some = found.done + found.told + found.left + found.unknown + found.unreadable
    absent = max(len({*meant.ids}) - some, 0) if found.is_complete else 0
    code = _code(found, is_named=bool(meant.ids), absent=absent)
    if is_json:
        terminal.answer({
            "schema": ORCHESTRATOR.schema, "done": found.done, "told": found.told, "left": found.left, "unknown": found.unknown,
            "unreadable": found.unreadable, "absent": absent, "complete": found.is_complete, "ok": code is ExitCode.OK,
        })  # fmt: skip
    else:
        terminal.say(asked_words(command, found, absent))
    return code


def _code(found: Asked, *, is_named: bool, absent: int) -> ExitCode:
    """By what became of those that were named by their ids, or else of those for which it can be done."""
    if not found.is_complete:
        return ExitCode.NOT_MET
    if (is_named and found.left) or found.unknown or found.unreadable:
        return ExitCode.INCONCLUSIVE
    if not (found.done or found.told):
        return ExitCode.NOTHING_SELECTED
    return ExitCode.INCONCLUSIVE if absent else ExitCode.OK


def pause(
    told: Told, tasks: tuple[str, ...], queues: tuple[str, ...], terminal: Terminal, *, is_json: bool
) -> ExitCode:
    """Have no process take anything more of these tasks, or from these queues.

    Args:
        told: Which app.
        tasks: The names of the tasks.
        queues: The names of the queues.
        terminal: Where it is shown what is paused then.
        is_json: Answer with one JSON object.

    Raises:
        Misuse, CodeRaisedError, ServerFailedError: As `_answered` does.
    """
    return _said(told, lambda app: app.pause(tasks=tasks, queues=queues), terminal, is_json=is_json)


def resume(
    told: Told, tasks: tuple[str, ...], queues: tuple[str, ...], terminal: Terminal, *, is_json: bool
) -> ExitCode:
    """Have processes take of these again; otherwise as `pause`."""
    return _said(told, lambda app: app.resume(tasks=tasks, queues=queues), terminal, is_json=is_json)


def _said(told: Told, say: Callable[[Orchestrator], Awaitable[Held]], terminal: Terminal, *, is_json: bool) -> ExitCode:
    held = _answered(told, say)
    if is_json:
        terminal.answer({"schema": ORCHESTRATOR.schema, **_held_json(held), "ok": True})
    else:
        terminal.say(_held_words(held))
    return ExitCode.OK


# --- in words, and as JSON ----------------------------------------------------------------------------------------------


def _held_words(held: Held) -> str:
    names = (*(f"task {each}" for each in sorted(held.tasks)), *(f"queue {each}" for each in sorted(held.queues)))
    return f"paused: {one_line(', '.join(names)) or 'none'}"


def _held_json(held: Held) -> Mapping[str, object]:
    return {"paused": {"tasks": sorted(held.tasks), "queues": sorted(held.queues)}}


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
    error = "" if row.error is None else one_line(redacted(f"{row.error.type}: {row.error.message}"))
    error = error if len(error) <= _ERROR_MAX else f"{error[:_ERROR_MAX]}..."
    at = row.due or row.changed_at
    tries = f"{row.tries} {'run' if row.tries == 1 else 'runs'}"
    status = "held" if row.is_held else record.status
    return (one_line(job.task), one_line(str(row.key)), status, "" if at is None else when(at), tries, error)
