"""The operator page of an orchestrator (`tidegate_adapters.page.live`).

It shows processes, queues, tasks, invocations, triggers, service turns and leases. The detail view
of an invocation has its history and call tree. Operators retry, cancel, kill, hold and release
invocations, and pause and resume tasks and queues.

Laws, with `tests/integration/test_orchestrator_page.py`
    OP1  An action applies to a named item or to filter matches, never to everything. An unknown
         filter is refused.
    OP2  An invocation offers exactly the actions that its current state allows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from tidegate.invocations.admin.commands import Command, order, possible
from tidegate.invocations.admin.invocation_queries import InvocationPage, InvocationQuery, InvocationRow
from tidegate.invocations.record.invocation import CANCELLED, FAILED, INVOCATION, REGISTERED, RETRY, RUNNING, SUCCESS
from tidegate.invocations.record.record_documents import RESULT, RESULT_PAYLOAD, VersionMade
from tidegate.invocations.worker.worker import Held
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, MINUTE, Instant
from tidegate.model.record_counts import RecordCount
from tidegate.services.atomic_service import Window
from tidegate.services.executions import ExecutionStatus
from tidegate.triggers.conditions import Condition, OnCron, OnEvent, OnException, OnResult, OnStatus, condition_id
from tidegate.triggers.firing import Held as HeldRun
from tidegate.triggers.trigger import Trigger
from tidegate_adapters.base.cache import Sparing
from tidegate_adapters.base.crons import next_after
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.base.times import ago, length, time_of, when
from tidegate_adapters.mongo.ids import readable
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.messages import MEANT, as_json, asked_words
from tidegate_adapters.orchestrator.services import KEY
from tidegate_adapters.orchestrator.status import (
    BACKLOG_MAX,
    Backlog,
    Process,
    Standing,
    Triggered,
    Turns,
    triggered,
    turns_of,
)
from tidegate_adapters.page.live import (
    Action,
    Cell,
    Choice,
    Filter,
    Lane,
    Lanes,
    Moment,
    Row,
    Shown,
    Span,
    Story,
    Table,
    check_filters,
    packed,
)

_SHOWN: Final = 100
_RUNNING: Final = 200
_FAMILY: Final = 200
_PAST: Final = 10
_LOOKS: Final = 2
"""The most requests of one search by error text."""
_OLD_S: Final = 3.0
"""The page shows the age of older data."""
_ROWS: Final = 10
_NEXT: Final = 3
_LATE: Final = MINUTE
_TONES: Final = {SUCCESS: "good", FAILED: "bad", CANCELLED: "soft", RUNNING: "odd", RETRY: "odd"}
_COLUMNS: Final = (REGISTERED, RUNNING, RETRY, SUCCESS, FAILED, CANCELLED)
"""The statuses with a column; the last column sums the others."""
_SINCE: Final = (("5m", "made in the last 5 min"), ("1h", "made in the last hour"), ("1d", "made in the last day"))
_FILTERS: Final = ("task", "status", "queue", "since", "id", "tenant", "error")
COMMANDS: Final[Mapping[str, Command]] = {
    "retry": Command.REPEAT, "cancel": Command.CANCEL, "kill": Command.KILL, "hold": Command.HOLD, "release": Command.RELEASE
}  # fmt: skip


@final
class Page:
    """Builds the page; `name` is that of this process."""

    def __init__(self, app: Client, name: str) -> None:
        self._app, self._name = app, name
        self._sparing = Sparing()
        self._waits = tuple((task, each.of(task)) for task, some in app.triggers.items() for each in some)

    # --- views ---

    async def shown(self, filters: Mapping[str, str]) -> Shown:
        """The page under these filters; an invalid one raises Misuse."""
        app, now = self._app, await self._app.now()
        key = tuple(sorted(filters.items()))
        query = _query(filters, now)
        standing, _ = await self._sparing.ask("standing", app.standing)
        counts, _ = await self._sparing.ask("counts", app.counts)
        running, _ = await self._sparing.ask("running", lambda: self._listed(_RUNS, _RUNNING))
        found, age_s = await self._sparing.ask(key, lambda: self._listed(query, _SHOWN))
        turns, _ = await self._sparing.ask("turns", lambda: app.asked(turns_of(app.collections, KEY, _PAST)))
        crons = [condition_id(each) for _, made in self._waits for each in made.conditions if isinstance(each, OnCron)]
        come, _ = await self._sparing.ask("triggers", lambda: app.asked(triggered(app.collections, crons, _PAST)))
        verdict, is_well = _verdict(standing, counts)
        meant = {name: text for name, text in filters.items() if text}
        return Shown(
            f"Orchestrator of {app.settings.database}", verdict, is_well,
            (("This process", self._name), ("Runs", f"{len(running.rows):,}"), ("The store's time", when(now))),
            self._filters(),
            (
                _processes(standing, running.rows, now),
                _queues(standing),
                _tasks(counts, tuple(app.declared), standing.held, now),
                _invocations(found, meant, now, age_s),
                _triggers(self._waits, come, now),
                _turns(turns, now),
                _leases(turns, come, running.rows, standing, now),
            ),
        )  # fmt: skip

    async def _listed(self, query: InvocationQuery, limit: int) -> InvocationPage:
        return await self._app.listed(query, limit=limit, looks=_LOOKS, is_timed=True)

    def _filters(self) -> tuple[Filter, ...]:
        def choices(names: Sequence[str]) -> tuple[Choice, ...]:
            return tuple(Choice(name, name) for name in names)

        return (
            Filter("task", "any task", choices([*self._app.declared])),
            Filter("status", "any status", choices([each.status for each in INVOCATION.definitions])),
            Filter("queue", "any queue", choices(self._app.queues)),
            Filter("since", "made at any time", tuple(Choice(*each) for each in _SINCE)),
            Filter("id", "id of an invocation"),
            Filter("tenant", "tenant"),
            Filter("error", "text of an error"),
        )

    async def story(self, key: str) -> Story:
        """The detail view of an invocation; a missing one raises Misuse."""
        row = await self._app.show(key) if key else None
        if row is None:
            raise Misuse(f"there is no invocation {shown(key)}", why="it was removed, or was never made")
        if row.record is None or row.job is None:
            return Story(key, (), (Moment("", "it cannot be read", redacted(row.trouble or ""), "bad"),))
        now = await self._app.now()
        root = row.job.root or key
        page, _ = await self._sparing.ask(("family", root), lambda: self._listed(InvocationQuery(root=root), _FAMILY))
        family = [each for each in page.rows if each.key != key]
        if root != key and (first := await self._app.show(root)) is not None:
            family.append(first)
        lanes = _family(row, family, now, is_more=bool(page.after)) if family else None
        moments = (*_moments(row, now), *_to_come(row, now))
        return Story(f"{row.job.task}: {key}", _facts(row, now), moments, actions(row), lanes)

    # --- actions ---

    async def act(self, action: str, given: Mapping[str, str]) -> str:
        """Perform an action and describe the result; an invalid one raises Misuse."""
        name, _, of = action.partition(" ")
        said = ""
        if name in {"pause", "resume"} and of in {"task", "queue"}:
            said = await self._held(name, of, given.get(of, ""))
        elif name in COMMANDS and of in {"", "all"}:
            command, where = COMMANDS[name], {key: text for key, text in given.items() if text}
            if not where:
                raise Misuse("an action on all invocations", todo="narrow them down")
            query = _query(where, await self._app.now(), command)
            said = asked_words(command, await self._app.ask(command, query))
        else:
            raise Misuse(
                f"there is no action {shown(action)}",
                todo=f"there are: pause and resume, of a task or a queue, and {', '.join(COMMANDS)}, of one or all",
            )
        self._sparing.forget()
        return said

    async def _held(self, name: str, of: str, which: str) -> str:
        if not which:
            raise Misuse(f"no {of} is named")
        act = self._app.pause if name == "pause" else self._app.resume
        _ = await (act(tasks=(which,)) if of == "task" else act(queues=(which,)))
        return f"{of} {which} " + (
            "is paused: what runs goes on, and nothing more begins" if name == "pause" else "goes on"
        )


_RUNS: Final = InvocationQuery(statuses=MEANT[Command.KILL])


def _query(filters: Mapping[str, str], now: Instant, command: Command | None = None) -> InvocationQuery:
    check_filters(filters, _FILTERS)

    def those(name: str) -> tuple[str, ...]:
        return (filters[name],) if filters.get(name) else ()

    by_default = MEANT[command] if command and not those("id") else frozenset[str]()
    since = filters.get("since")
    return InvocationQuery(
        ids=those("id"), tasks=those("task"), queues=those("queue"), statuses=frozenset(those("status")) or by_default,
        tenant=filters.get("tenant") or None, error=filters.get("error") or None, made_from=time_of(since, now) if since else None,
    )  # fmt: skip


def _key(row: InvocationRow) -> str:
    return row.key if isinstance(row.key, str) else readable(row.key)


def _ms(at: Instant) -> int:
    return at.at // MILLISECOND


# --- tables ---------------------------------------------------------------------------------------


def _verdict(standing: Standing, counts: Sequence[RecordCount]) -> tuple[str, bool]:
    alive = sum(each.is_alive for each in standing.processes)
    dead, silent = len(standing.processes) - alive, alive - sum(each.is_well for each in standing.processes)
    failed = sum(each.count for each in counts if each.status == FAILED)
    waiting = sum(each.waiting for each in standing.backlogs)
    said = [f"{alive:,} {'process runs' if alive == 1 else 'processes run'} it" if alive else "no process runs it"]
    said += [f"{silent:,} silent"] if silent else []
    said += [f"{dead:,} presumed dead"] if dead else []
    said += [f"{failed:,} failed"] if failed else []
    said.append(f"{waiting:,} due" if waiting else "nothing is due")
    return ", ".join(said), bool(alive) and not silent and not dead and not failed


def _processes(standing: Standing, running: Sequence[InvocationRow], now: Instant) -> Table:
    runs = Counter(row.record.owner for row in running if row.record is not None)
    rows = tuple(_process(each, runs[each.member.id], now) for each in standing.processes)
    return Table(
        "processes", "Processes", ("process", "", "beat", "runs", "turn", "joined", "life", "of"), rows, "none runs it"
    )


def _process(each: Process, runs: int, now: Instant) -> Row:
    member = each.member
    return Row(
        f"process {member.id}",
        (
            Cell(member.id),
            Cell(*_life(each)),
            Cell(f"{length(each.silent)} ago", "" if each.is_well else _life(each)[1], when(member.seen)),
            Cell(f"{runs:,}", "" if runs else "soft"),
            Cell(*_next_turn(each.turn, now)),
            Cell(ago(member.joined, now), "soft", when(member.joined)),
            Cell(str(member.life) if member.name == member.id else f"{member.life} of {member.name}", "soft"),
            Cell(member.runner or "", "soft"),
        ),
    )


def _life(each: Process) -> tuple[str, str, str]:
    if not each.is_alive:
        return "presumed dead", "bad", str(each)
    return ("alive", "good", "") if each.is_well else ("silent", "odd", str(each))


def _next_turn(turn: Window | None, now: Instant) -> tuple[str, str, str]:
    if turn is None:
        return "never", "soft", "it has joined in this cycle, or there are too many processes"
    has_it = now - turn.start >= 0
    return (
        "now" if has_it else ago(turn.start, now),
        "good" if has_it else "soft",
        f"{when(turn.start)}, for {length(turn.length)}",
    )


def _queues(standing: Standing) -> Table:
    rows = tuple(_queue(each, is_paused=each.queue in standing.held.queues) for each in standing.backlogs)
    return Table("queues", "Queues", ("queue", "due", "lag", ""), rows, "there are none")


def _queue(each: Backlog, *, is_paused: bool) -> Row:
    more = " or more" if each.waiting == BACKLOG_MAX else ""
    return Row(
        f"queue {each.queue}",
        (
            Cell(each.queue),
            Cell(f"{each.waiting:,}{more}", "" if each.waiting else "soft"),
            Cell(length(max(each.lag, 0)), "odd" if each.lag > _LATE else "soft"),
            Cell("paused", "odd") if is_paused else Cell(""),
        ),
        (_pausing("queue", each.queue, is_paused=is_paused),),
    )


def _pausing(of: str, name: str, *, is_paused: bool) -> Action:
    what = "resume" if is_paused else "pause"
    return Action(f"{what} {of}", what.capitalize(), {of: name}, key="p")


def _tasks(counts: Sequence[RecordCount], names: Sequence[str], held: Held, now: Instant) -> Table:
    of = {name: [each for each in counts if each.task == name] for name in names}
    rows = tuple(_task(name, of[name], name in held.tasks, now) for name in names)
    return Table("tasks", "Tasks", ("task", *_COLUMNS, "others", "due", ""), rows, "there are none")


def _task(name: str, counts: Sequence[RecordCount], is_paused: bool, now: Instant) -> Row:
    numbers = Counter({each.status or "unreadable": each.count for each in counts})
    others = {status: count for status, count in numbers.items() if status not in _COLUMNS}
    dues = [each.oldest for each in counts if each.oldest is not None]
    oldest = min(dues, key=lambda each: each.at, default=None)
    actions = [_pausing("task", name, is_paused=is_paused)]
    if numbers[FAILED]:
        given = {"task": name, "status": FAILED}
        asks = f"Run {numbers[FAILED]:,} failed of {name} again?"
        actions.append(Action("retry all", "Retry failed", given, key="r", asks=asks))
    return Row(
        f"task {name}",
        (
            Cell(name),
            *(Cell(f"{numbers[each]:,}", _TONES.get(each, "") if numbers[each] else "soft") for each in _COLUMNS),
            Cell(
                f"{sum(others.values()):,}",
                "odd" if others else "soft",
                ", ".join(f"{n:,} {s}" for s, n in others.items()),
            ),
            Cell("" if oldest is None else ago(oldest, now), "soft", "" if oldest is None else when(oldest)),
            Cell("paused", "odd") if is_paused else Cell(""),
        ),
        tuple(actions),
    )


def _invocations(page: InvocationPage, meant: Mapping[str, str], now: Instant, age_s: float) -> Table:
    more = " and more: narrow them down" if page.after else ""
    note = f"{len(page.rows):,}{more}" + (f", as they stood {age_s:.0f} s ago" if age_s > _OLD_S else "")
    rows = tuple(_invocation(each, now) for each in page.rows)
    named = ", ".join(f"{name} {text}" for name, text in meant.items())
    everything = (
        Action("retry all", "Retry all that match", meant, asks=f"Run all that failed again, with {named}?"),
        Action("cancel all", "Cancel all that match", meant, asks=f"Cancel all that have not ended, with {named}?"),
    )
    columns = ("invocation", "task", "status", "when", "runs", "why")
    return Table(
        "invocations", "Invocations", columns, rows, "there are none", everything if meant and rows else (), note, _ran(page.rows, now)
    )  # fmt: skip


def _invocation(row: InvocationRow, now: Instant) -> Row:
    record, job, key = row.record, row.job, _key(row)
    if record is None or job is None:
        trouble = redacted(row.trouble or "")
        return Row(
            key, (Cell(key), Cell(""), Cell("unreadable", "bad"), Cell(""), Cell(""), Cell(trouble, "bad")), story=key
        )
    at, words = _when(row, now)
    why = "" if row.error is None or record.status == SUCCESS else f"{row.error.type}: {row.error.message}"
    who = f"by {record.owner}" if record.owner else ""
    return Row(
        key,
        (
            Cell(key),
            Cell(job.task, more=f"in queue {job.queue}"),
            Cell("held" if row.is_held else record.status, _TONES.get(record.status, "")),
            Cell(words, "soft", when(at)),
            Cell(str(row.tries), "" if row.tries else "soft"),
            Cell(redacted(why) or who, "bad" if why else "soft"),
        ),
        actions(row),
        story=key,
    )


def _when(row: InvocationRow, now: Instant) -> tuple[Instant, str]:
    """The most relevant time of an invocation, and its label."""
    at = row.changed_at or row.created_at or now
    if row.record is not None and INVOCATION[row.record.status].final:
        return at, f"ended {ago(at, now)}"
    if row.due is not None:
        return row.due, f"due {ago(row.due, now)}"
    return at, f"since {length(max(now - at, 0))}"


def actions(row: InvocationRow) -> tuple[Action, ...]:
    """Law OP2."""
    if row.record is None:
        return ()
    status, given, found = row.record.status, {"id": _key(row)}, list[Action]()
    can = possible(status, is_held=row.is_held)
    if Command.REPEAT in can:
        label = "Retry now" if status == RETRY else "Retry" if status == FAILED else "Run again"
        found.append(Action("retry", label, given, key="r"))
    for name in ("hold", "release"):
        if COMMANDS[name] in can:
            found.append(Action(name, name.capitalize(), given, key="h"))
    if Command.CANCEL in can:
        asks = f"Cancel {_key(row)}, which runs?" if Command.KILL in can else ""
        found.append(Action("cancel", "Cancel", given, key="c", asks=asks))
    if Command.KILL in can:
        found.append(
            Action("kill", "Kill", given, key="x", asks=f"End this run of {_key(row)}, so that another one begins?")
        )
    return tuple(found)


# --- triggers, turns and leases -------------------------------------------------------------------


def _triggers(waits: Sequence[tuple[str, Trigger]], come: Triggered, now: Instant) -> Table:
    rows = tuple(_trigger(task, each, come, now) for task, each in waits)
    columns = ("task", "starts", "next", "then", "looked at", "troubles")
    return Table("triggers", "Triggers", columns, rows, "no task starts by itself")


def _trigger(task: str, trigger: Trigger, come: Triggered, now: Instant) -> Row:
    crons = [each for each in trigger.conditions if isinstance(each, OnCron)]
    instants = sorted(
        (at for each in crons for at in _instants(each.schedule.expression, now)), key=lambda each: each.at
    )
    cells = [come.cells[key] for each in crons if (key := condition_id(each)) in come.cells]
    looked = max((each.last for each in cells), key=lambda each: each.at, default=None)
    stuck = [each for each in come.open if each.firing.trigger_id == trigger.id and not isinstance(each.state, HeldRun)]
    sign = " and " if trigger.joins else " or "
    return Row(
        f"trigger {trigger.id}",
        (
            Cell(task),
            Cell(sign.join(map(_words, trigger.conditions))),
            Cell(ago(instants[0], now) if instants else "", "", when(instants[0]) if instants else ""),
            Cell(", ".join(when(each) for each in instants[1:_NEXT]), "soft"),
            Cell("" if looked is None else ago(looked, now), "soft", "" if looked is None else when(looked)),
            Cell(f"{len(stuck):,} could not be started" if stuck else "", "bad"),
        ),
    )


def _instants(expression: str, now: Instant) -> Iterator[Instant]:
    at: Instant | None = now
    for _ in range(_NEXT):
        at = None if at is None else next_after(expression, at)
        if at is not None:
            yield at


def _words(condition: Condition) -> str:
    match condition:
        case OnCron(schedule):
            return f"at {schedule.expression}"
        case OnStatus(task, statuses):
            return f"when {task} is {' or '.join(sorted(statuses))}"
        case OnResult(task):
            return f"when {task} has succeeded"
        case OnException(task, errors):
            return f"when {task} has failed" + (f" by {' or '.join(sorted(errors))}" if errors else "")
        case OnEvent(code):
            return f"when {code} is emitted"
        case _:
            return f" {condition.logic.value} ".join(map(_words, condition.conditions))


_TURN_TONES: Final = {
    ExecutionStatus.COMPLETED: "good",
    ExecutionStatus.RUNNING: "odd",
    ExecutionStatus.ABANDONED: "bad",
}


def _turns(turns: Turns, now: Instant) -> Table:
    rows = tuple(
        Row(
            f"turn {each.id}",
            (
                Cell(each.runner_id),
                Cell(each.status.value, _TURN_TONES.get(each.status, "soft")),
                Cell(ago(each.start, now), "", when(each.start)),
                Cell("" if each.end is None else length(each.end - each.start)),
                Cell(redacted(each.reason), "soft"),
            ),
        )
        for each in turns.past
    )
    note = "" if turns.gate is None else f"token {turns.gate.token:,}"
    return Table(
        "turns", "Turns", ("process", "", "began", "took", "why"), rows, "nobody has had one so far", note=note
    )


def _leases(turns: Turns, come: Triggered, running: Sequence[InvocationRow], standing: Standing, now: Instant) -> Table:
    lost = {each.member.id: each for each in standing.processes if not each.is_well}

    def lease(what: str, holder: str, token: int, at: Instant | None, story: str = "") -> Row:
        cells = (
            Cell(what),
            Cell(holder),
            Cell(f"{token:,}"),
            Cell("" if at is None else ago(at, now), "soft", "" if at is None else when(at)),
            Cell(f"its holder is {lost[holder]}", _life(lost[holder])[1]) if holder in lost else Cell(""),
        )
        return Row(f"lease {what}", cells, story=story)

    rows: list[Row] = []
    if turns.gate is not None and turns.gate.active is not None:
        rows.append(lease("the turn", turns.gate.active.runner_id, turns.gate.token, turns.gate.active.start))
    rows += [
        lease(f"the start of {each.id}", each.state.by, each.version, each.state.until)
        for each in come.open
        if isinstance(each.state, HeldRun)
    ]
    for row in running[:_SHOWN]:
        if row.record is not None:
            key = _key(row)
            rows.append(lease(key, row.record.owner or "", row.record.version, row.changed_at, key))
    note = "what is written under a token that is not the last one is refused"
    columns = ("what", "holder", "token", "since", "")
    return Table("leases", "Leases", columns, tuple(rows), "nothing is held", note=note)


# --- time lines -----------------------------------------------------------------------------------


def _spans(row: InvocationRow, now: Instant) -> Iterator[tuple[str, Span]]:
    made = [each for each in row.versions if each.at is not None]
    for at, each in enumerate(made):
        assert each.at is not None
        after = made[at + 1] if at + 1 < len(made) else None
        if after is None and INVOCATION[each.status].final:
            return
        end = now if after is None or after.at is None else after.at
        by = each.by if each.status == RUNNING else ""
        ended = after.status if after is not None else ""
        tone = _TONES.get(ended, "") if each.status == RUNNING else "soft"
        words = f"{_key(row)}: {each.status} for {length(max(end - each.at, 0))}" + (f", then {ended}" if ended else "")
        yield by, Span(_ms(each.at), max(_ms(end), _ms(each.at)), words, tone or "odd", _key(row))


def _ran(rows: Sequence[InvocationRow], now: Instant) -> Lanes | None:
    by: dict[str, list[Span]] = {}
    for row in rows:
        for who, span in _spans(row, now):
            if who:
                by.setdefault(who, []).append(span)
    if not by:
        return None
    begin = min(each.begin for spans in by.values() for each in spans)
    lanes = tuple(
        Lane(f"{who} {number}", "" if number else who, spans)
        for who, some in sorted(by.items())
        for number, spans in enumerate(packed(some, _ROWS))
    )
    return Lanes("What ran when, by process", begin, _ms(now), (_since(begin, now), "now"), lanes)


def _since(begin: int, now: Instant) -> str:
    return f"{length(max(now.at - begin * MILLISECOND, 0))} ago"


def _family(row: InvocationRow, others: Sequence[InvocationRow], now: Instant, *, is_more: bool) -> Lanes:
    there = {_key(each): each for each in (row, *others)}
    below: dict[str, list[str]] = {}
    tops: list[str] = []
    for key, each in sorted(there.items(), key=lambda pair: _made(pair[1])):
        parent = each.job.parent if each.job is not None else None
        (below.setdefault(parent, []) if parent in there and parent != key else tops).append(key)
    ordered: list[tuple[int, str]] = []
    left = [(0, key) for key in reversed(tops)]
    while left:
        depth, key = left.pop()
        ordered.append((depth, key))
        left += [(depth + 1, each) for each in reversed(below.pop(key, []))]
    lanes = tuple(_relative(there[key], depth, now, is_here=there[key] is row) for depth, key in ordered)
    spans = [span for lane in lanes for span in lane.spans]
    begin = min((span.begin for span in spans), default=_ms(now))
    end = max((span.end for span in spans), default=_ms(now))
    label = "Who has called whom, and what ran when" + (f": the newest {_FAMILY}" if is_more else "")
    ends = _since(begin, now), "now" if end >= _ms(now) else _since(end, now)
    return Lanes(label, begin, end, ends, lanes)


def _made(row: InvocationRow) -> tuple[int, str]:
    return (0 if row.created_at is None else row.created_at.at, _key(row))


def _relative(row: InvocationRow, depth: int, now: Instant, *, is_here: bool) -> Lane:
    key, status = _key(row), "unreadable" if row.record is None else row.record.status
    label = key if row.job is None else f"{row.job.task} {key}"
    spans = tuple(span for _, span in _spans(row, now))
    return Lane(key, label, spans, depth, status, _TONES.get(status, ""), "" if is_here else key, is_here)


# --- details --------------------------------------------------------------------------------------


def _facts(row: InvocationRow, now: Instant) -> tuple[tuple[str, str], ...]:
    record, job, document = row.record, row.job, row.document
    assert record is not None, "it can be read"
    assert job is not None, "it can be read"
    result = None if document is None or not document.has(RESULT) else document[RESULT]
    asked = None if document is None else order(document)
    uploaded = None if document is None else document.held(RESULT_PAYLOAD)
    found = (
        ("Status", "held" if row.is_held else record.status),
        ("Queue", job.queue if not job.priority else f"{job.queue}, priority {job.priority}"),
        ("Runs", str(row.tries)),
        ("Token", f"{record.version}" + (f", held by {record.owner}" if record.owner else "")),
        ("Made", "" if row.created_at is None else f"{when(row.created_at)}, {ago(row.created_at, now)}"),
        ("Asked", f"to be ended: {asked.value}" if asked is not None else ""),
        ("Tenant", job.tenant or ""),
        ("Called by", job.parent or ""),
        ("No longer than", length(job.deadline) if job.deadline else ""),
        ("Limited by", job.limited_by or ""),
        ("Trace", job.trace or ""),
        (
            "Arguments",
            f"uploaded as {job.payload}" if job.payload else _text({n: as_json(v) for n, v in job.arguments.items}),
        ),
        ("Result", f"uploaded as {uploaded}" if uploaded else "" if result is None else _text(as_json(result))),
    )
    return tuple((name, redacted(text)) for name, text in found if text)


def _text(found: Any) -> str:
    text = json.dumps(found, ensure_ascii=False)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


_TEXT_MAX: Final = 2_000


def _moments(row: InvocationRow, now: Instant) -> Iterator[Moment]:
    before: VersionMade | None = None
    for each in row.versions:
        at = "" if each.at is None else f"{when(each.at)}, {ago(each.at, now)}"
        took = ""
        if before is not None and before.status == RUNNING and before.at is not None and each.at is not None:
            took = f" after {length(max(each.at - before.at, 0))}"
        by = f", by {each.by}, token {each.version}" if each.by and before is not None else ""
        is_last_error = row.error is not None and each.status in {FAILED, RETRY} and each is row.versions[-1]
        more = (
            redacted(row.error.traceback or f"{row.error.type}: {row.error.message}")
            if is_last_error and row.error
            else ""
        )
        yield Moment(at, f"{each.status}{took}{by}", more, _TONES.get(each.status, "" if before else "soft"))
        before = each


def _to_come(row: InvocationRow, now: Instant) -> Iterator[Moment]:
    if row.due is not None:
        yield Moment(f"{when(row.due)}, {ago(row.due, now)}", "due", "", "odd")
