"""Programs that read the status of an orchestrator for operators.

They run short indexed queries and count a backlog only up to `BACKLOG_MAX`. Counts by task and
status are the exception and read all records (`tidegate.model.record_counts`). Each program
restarts if a request gets no answer (`tidegate.retries.idempotent`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

import attrs

from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import DUE, QUEUE
from tidegate.invocations.worker.worker import Held
from tidegate.model.documents import ID, AllOf, AnyOf, Ascending, Descending, Eq, Exists, Field, Ge, In, Le, Lt
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, find_all, find_one
from tidegate.model.record_counts import TASKS_MAX, CountRecords, RecordCount
from tidegate.retries.idempotent import repeated
from tidegate.retries.schedule import ScheduleCell
from tidegate.services.atomic_service import AtomicService, Window, decide_atomic_service_claim
from tidegate.services.executions import Execution, Gate, in_range
from tidegate.services.members import everybody, membership_of
from tidegate.services.membership import Alive, Departed, Member, Membership, Orphaned, Replaced, liveness, runners
from tidegate.services.service_runner import execution_of, gate_of
from tidegate.triggers.firing import TriggerRun
from tidegate.triggers.trigger_documents import FAILED, HELD, STATE, loaded_cell, loaded_run
from tidegate_adapters.base.times import length, when
from tidegate_adapters.orchestrator.names import Collections

BACKLOG_MAX: Final = FOUND_MAX


@final
class Process(NamedTuple):
    """A worker process.

    Attributes:
        silent: The time since its last heartbeat, in microseconds.
        taken_over_at: When its runs move unless it returns; None if it misses no heartbeats.
        turn: Its current or next turn; None if it has none.
    """

    member: Member
    is_alive: bool
    silent: Duration
    taken_over_at: Instant | None = None
    turn: Window | None = None

    @property
    def is_well(self) -> bool:
        return self.is_alive and self.taken_over_at is None

    def __str__(self) -> str:
        if self.is_well:
            return f"beat {length(self.silent)} ago"
        since = f"silent for {length(self.silent)}"
        if not self.is_alive or self.taken_over_at is None:
            return f"{since}: presumed dead, and what it ran is taken over"
        return f"{since}: what it runs is taken over at {when(self.taken_over_at)}, unless it is heard of again"


@final
class Backlog(NamedTuple):
    """The due invocations of a queue.

    Attributes:
        waiting: Their number, up to `BACKLOG_MAX`.
        lag: How long the oldest has been due, in microseconds.
    """

    queue: str
    waiting: int
    lag: Duration


@final
@attrs.frozen
class Standing:
    """The status of an orchestrator at a store time, without departed processes."""

    at: Instant
    processes: tuple[Process, ...]
    backlogs: tuple[Backlog, ...]
    held: Held


@repeated
async def standing_of(
    collections: Collections,
    queues: Collection[str],
    lengths: tuple[Duration, Duration],
    service: AtomicService,
    held: Held,
) -> Standing:
    """Read the status of an orchestrator.

    `lengths` are the silences of missed heartbeats and of presumed death, in microseconds.
    """
    known = membership_of(await everybody(collections.members), lengths[1])
    now = await StoreTime()
    there = tuple(
        each._replace(turn=_turn(service, known, each.member.id, now)) for each in processes_of(known, lengths, now)
    )
    return Standing(now, there, await backlogs_of(collections, queues, now), held)


def processes_of(known: Membership, lengths: tuple[Duration, Duration], now: Instant) -> Iterator[Process]:
    absent_after, dead_after = lengths
    for each in known.members:
        found, silent = liveness(known, each.id, now), max(now - each.seen, 0)
        if not isinstance(found, (Departed, Orphaned, Replaced)):
            at = each.seen + dead_after if silent > absent_after else None
            yield Process(each, isinstance(found, Alive), silent, at)


def _turn(service: AtomicService, known: Membership, who: str, now: Instant) -> Window | None:
    """The turn of a process in this cycle; if that is over, the expected one in the next."""
    sharing = runners(known, service.cycle_start(now))
    found = decide_atomic_service_claim(service=service, runner_id=who, runners=sharing, now=now, run_id="look").window
    if found is None or now - found.end < 0:
        return found
    return Window(found.start + service.interval, found.end + service.interval)


async def backlogs_of(collections: Collections, queues: Collection[str], now: Instant) -> tuple[Backlog, ...]:
    found: tuple[Backlog, ...] = ()
    for queue in queues:
        where = AllOf((Eq(QUEUE, queue), Lt(DUE, now + MILLISECOND)))
        waiting = await find_all(collections.invocations, where, limit=BACKLOG_MAX, fields=(DUE,))
        lags = tuple(now - each[DUE] for each in waiting)
        if len(waiting) == BACKLOG_MAX:  # the oldest may be another: read all keys
            oldest = await find_one(collections.invocations, where, fields=(DUE,), sort=(Ascending(DUE),))
            lags = (*lags, *(() if oldest is None else (now - oldest[DUE],)))
        found = (*found, Backlog(queue, len(waiting), max(lags, default=0)))
    return found


@repeated
async def counts_of(collections: Collections, tasks: Sequence[str]) -> tuple[RecordCount, ...]:
    found: tuple[RecordCount, ...] = ()
    for start in range(0, len(tasks), TASKS_MAX):
        some = tuple(tasks[start : start + TASKS_MAX])
        found += await CountRecords(collections.invocations, some, _STATUSES, DUE)
    return found


_STATUSES: Final = tuple(each.status for each in INVOCATION.definitions)


# --- turns ----------------------------------------------------------------------------------------


@final
class Turns(NamedTuple):
    """The current turn with its token, and past ones, newest first."""

    gate: Gate | None
    past: tuple[Execution, ...]


@repeated
async def turns_of(collections: Collections, key: str, limit: int) -> Turns:
    gate = await find_one(collections.gates, Eq(ID, key))
    rows = await find_all(collections.executions, Exists(ID), limit=limit, sort=(Descending(_START),))
    return Turns(None if gate is None else gate_of(gate), tuple(map(execution_of, rows)))


@repeated
async def executions_of(
    collections: Collections, since: Instant, until: Instant, limit: int, runner_id: str | None = None
) -> tuple[Execution, ...]:
    """The turns that overlap a span of time with both ends included, newest first."""
    by = () if runner_id is None else (Eq(_BY, runner_id),)
    asked = (Le(_START, until), AnyOf((Eq(_END, None), Ge(_END, since))), *by)
    rows = await find_all(collections.executions, *asked, limit=limit, sort=(Descending(_START),))
    return in_range(tuple(map(execution_of, rows)), since, until, limit=limit)


_START: Final = Field[Instant]("start")
_END: Final = Field[Instant | None]("end")
_BY: Final = Field[str]("runner")


# --- triggers -------------------------------------------------------------------------------------


@final
class Triggered(NamedTuple):
    """The progress of crons by condition id, and open trigger runs."""

    cells: Mapping[str, ScheduleCell]
    open: tuple[TriggerRun, ...]


@repeated
async def triggered(collections: Collections, crons: Sequence[str], limit: int) -> Triggered:
    some = tuple(crons[:FOUND_MAX])
    cells = await find_all(collections.crons, In(ID, some), limit=len(some)) if some else ()
    runs = await find_all(collections.runs, In(STATE, (HELD, FAILED)), limit=limit)
    return Triggered({each[ID]: loaded_cell(each) for each in cells}, tuple(map(loaded_run, runs)))
