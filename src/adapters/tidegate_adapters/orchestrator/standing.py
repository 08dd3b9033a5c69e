"""How an orchestrator stands, for operators: its processes, and what waits in its queues.

Both are short looks at what is indexed, however many invocations have ended: what waits is counted up to `BACKLOG_MAX`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, final

import attrs

from tidegate.invocations.dispatch import Held
from tidegate.invocations.record_documents import DUE, QUEUE
from tidegate.model.documents import ID, AllOf, Ascending, Eq, Lt
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, find_all, find_one
from tidegate.services.members import everybody, membership_of
from tidegate.services.membership import Alive, Departed, Member, Replaced, liveness
from tidegate_adapters.orchestrator.names import Collections

__all__ = ["BACKLOG_MAX", "Backlog", "Process", "Standing", "backlogs_of", "standing_of"]

BACKLOG_MAX: Final = FOUND_MAX
"""How many that wait in a queue are counted."""


@final
class Process(NamedTuple):
    """A process that runs invocations.

    Attributes:
        member: As what it has joined.
        is_alive: It is not silent for too long.
        silent: For how long it has been silent, in microseconds.
    """

    member: Member
    is_alive: bool
    silent: Duration


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


async def standing_of(collections: Collections, queues: Collection[str], dead_after: Duration, held: Held) -> Standing:
    """How an orchestrator stands: a program.

    Args:
        collections: Its collections.
        queues: Its queues.
        dead_after: After how much silence a process is presumed dead, in microseconds.
        held: What is paused.

    Raises:
        Failure: Nobody answers.
    """
    known = membership_of(await everybody(collections.members), dead_after)
    now = await StoreTime()
    there = tuple((each, liveness(known, each.id, now)) for each in known.members)
    return Standing(
        now,
        tuple(
            Process(each, isinstance(found, Alive), max(now - each.seen, 0))
            for each, found in there
            if not isinstance(found, (Departed, Replaced))
        ),
        await backlogs_of(collections, queues, now),
        held,
    )


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
        oldest = await find_one(collections.invocations, where, fields=(DUE,), sort=(Ascending(DUE),))
        waiting = (
            () if oldest is None else await find_all(collections.invocations, where, limit=BACKLOG_MAX, fields=(ID,))
        )
        found = (*found, Backlog(queue, len(waiting), 0 if oldest is None else now - oldest[DUE]))
    return found
