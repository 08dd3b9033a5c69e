"""How an orchestrator stands, for operators: its processes, and what waits in its queues; what its tasks have come to; who has had the
turn; and what triggers wait for.

Those are short looks at what is indexed, however many invocations have ended, and what waits is counted up to `BACKLOG_MAX`; but for
the counts by task and status, which read all that is kept (`tidegate.model.record_counts`). Each is taken anew where a request has no
answer (`tidegate.retries.repeating`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

import attrs

from tidegate.invocations.invocation import INVOCATION
from tidegate.invocations.record_documents import DUE, QUEUE
from tidegate.invocations.worker import Held
from tidegate.model.documents import ID, AllOf, AnyOf, Ascending, Descending, Eq, Exists, Field, Ge, In, Le, Lt
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, find_all, find_one
from tidegate.model.record_counts import TASKS_MAX, CountRecords, RecordCount
from tidegate.retries.repeating import repeated
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
"""How many that wait in a queue are counted."""


@final
class Process(NamedTuple):
    """A process that runs invocations.

    Attributes:
        member: As what it has joined.
        is_alive: It is not silent for too long.
        silent: For how long it has been silent, in microseconds.
        taken_over_at: When what it runs is taken over, unless it is heard of again; None while it misses no beats.
        turn: When it has the turn next, or has it now; None where it never has.
    """

    member: Member
    is_alive: bool
    silent: Duration
    taken_over_at: Instant | None = None
    turn: Window | None = None

    @property
    def is_well(self) -> bool:
        """It is alive, and misses no beats."""
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
    """What is due in a queue, and nobody runs.

    Attributes:
        queue: The queue.
        waiting: How many there are, up to `BACKLOG_MAX`.
        lag: How long the oldest of them has been due, in microseconds; 0 where there is none.
    """

    queue: str
    waiting: int
    lag: Duration


@final
@attrs.frozen
class Standing:
    """How an orchestrator stands.

    Attributes:
        at: When, by the store's clock.
        processes: Those that have not left.
        backlogs: What waits, by queue.
        held: What is paused.
    """

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
    """How an orchestrator stands: a program.

    Args:
        collections: Its collections.
        queues: Its queues.
        lengths: After how much silence a process has missed some beats, and after how much it is presumed dead, in microseconds.
        service: How they share the turns.
        held: What is paused.

    Raises:
        Failure: Nobody answers.
    """
    known = membership_of(await everybody(collections.members), lengths[1])
    now = await StoreTime()
    there = tuple(
        each._replace(turn=_turn(service, known, each.member.id, now)) for each in processes_of(known, lengths, now)
    )
    return Standing(now, there, await backlogs_of(collections, queues, now), held)


def processes_of(known: Membership, lengths: tuple[Duration, Duration], now: Instant) -> Iterator[Process]:
    """Those that have not left, without their turns.

    Args:
        known: Everybody.
        lengths: As above.
        now: The time, by the store's clock.
    """
    absent_after, dead_after = lengths
    for each in known.members:
        found, silent = liveness(known, each.id, now), max(now - each.seen, 0)
        if not isinstance(found, (Departed, Orphaned, Replaced)):
            at = each.seen + dead_after if silent > absent_after else None
            yield Process(each, isinstance(found, Alive), silent, at)


def _turn(service: AtomicService, known: Membership, who: str, now: Instant) -> Window | None:
    """When a process has the turn next: in this cycle, or if that is over, as it would have it in the next one."""
    sharing = runners(known, service.cycle_start(now))
    found = decide_atomic_service_claim(service=service, runner_id=who, runners=sharing, now=now, run_id="look").window
    if found is None or now - found.end < 0:
        return found
    return Window(found.start + service.interval, found.end + service.interval)


async def backlogs_of(collections: Collections, queues: Collection[str], now: Instant) -> tuple[Backlog, ...]:
    """What waits in each queue: a program.

    Args:
        collections: Where.
        queues: Of which.
        now: The time, by the store's clock.

    Raises:
        Failure: Nobody answers.
    """
    found: tuple[Backlog, ...] = ()
    for queue in queues:
        where = AllOf((Eq(QUEUE, queue), Lt(DUE, now + MILLISECOND)))
        waiting = await find_all(collections.invocations, where, limit=BACKLOG_MAX, fields=(DUE,))
        lags = tuple(now - each[DUE] for each in waiting)
        if len(waiting) == BACKLOG_MAX:  # the oldest may be another one: all keys of the queue are read
            oldest = await find_one(collections.invocations, where, fields=(DUE,), sort=(Ascending(DUE),))
            lags = (*lags, *(() if oldest is None else (now - oldest[DUE],)))
        found = (*found, Backlog(queue, len(waiting), max(lags, default=0)))
    return found


@repeated
async def counts_of(collections: Collections, tasks: Sequence[str]) -> tuple[RecordCount, ...]:
    """How many invocations of each task have which status, and since when the oldest of them is due: a program.

    Raises:
        Failure: Nobody answers.
    """
    found: tuple[RecordCount, ...] = ()
    for start in range(0, len(tasks), TASKS_MAX):
        some = tuple(tasks[start : start + TASKS_MAX])
        found += await CountRecords(collections.invocations, some, _STATUSES, DUE)
    return found


_STATUSES: Final = tuple(each.status for each in INVOCATION.definitions)


# --- turns --------------------------------------------------------------------------------------------------------------


@final
class Turns(NamedTuple):
    """Who does what one process at a time does.

    Attributes:
        gate: Who is at it, and under which token; None where nobody ever was.
        past: What became of past turns, the latest first.
    """

    gate: Gate | None
    past: tuple[Execution, ...]


@repeated
async def turns_of(collections: Collections, key: str, limit: int) -> Turns:
    """Who has had the turn: a program.

    Args:
        collections: Where.
        key: The id of the gate.
        limit: How many past turns at most.

    Raises:
        Failure: Nobody answers.
    """
    gate = await find_one(collections.gates, Eq(ID, key))
    rows = await find_all(collections.executions, Exists(ID), limit=limit, sort=(Descending(_START),))
    return Turns(None if gate is None else gate_of(gate), tuple(map(execution_of, rows)))


@repeated
async def executions_of(
    collections: Collections, since: Instant, until: Instant, limit: int, runner_id: str | None = None
) -> tuple[Execution, ...]:
    """Which turns overlap a span of time, the newest first: a program.

    Args:
        collections: Where.
        since: Where the span begins.
        until: Where it ends, included.
        limit: How many at most.
        runner_id: Whose; None for everybody's.

    Raises:
        Failure: Nobody answers.
    """
    by = () if runner_id is None else (Eq(_BY, runner_id),)
    asked = (Le(_START, until), AnyOf((Eq(_END, None), Ge(_END, since))), *by)
    rows = await find_all(collections.executions, *asked, limit=limit, sort=(Descending(_START),))
    return in_range(tuple(map(execution_of, rows)), since, until, limit=limit)


_START: Final = Field[Instant]("start")
_END: Final = Field[Instant | None]("end")
_BY: Final = Field[str]("runner")


# --- triggers -----------------------------------------------------------------------------------------------------------


@final
class Triggered(NamedTuple):
    """How far triggers have come.

    Attributes:
        cells: How far each cron was looked at, by the id of its condition.
        open: What is being started, or has failed to be.
    """

    cells: Mapping[str, ScheduleCell]
    open: tuple[TriggerRun, ...]


@repeated
async def triggered(collections: Collections, crons: Sequence[str], limit: int) -> Triggered:
    """How far triggers have come: a program.

    Args:
        collections: Where.
        crons: The ids of the conditions that are crons.
        limit: How many are told that are being started, at most.

    Raises:
        Failure: Nobody answers.
    """
    some = tuple(crons[:FOUND_MAX])
    cells = await find_all(collections.crons, In(ID, some), limit=len(some)) if some else ()
    runs = await find_all(collections.runs, In(STATE, (HELD, FAILED)), limit=limit)
    return Triggered({each[ID]: loaded_cell(each) for each in cells}, tuple(map(loaded_run, runs)))
