"""Periodically look at every record of some tasks that may lack a document (`record.orphans`).

The leader sweeps a day after the last sweep: `reconciliation.decide_sweep` decides by the store's
clock and the stream's record, and `reconciliation.swept` computes what to store at the end:

    sweeps: {last, epoch}

    turn             sweep if it is time, and return when to check again
    run              one turn after the other while the epoch lasts
    remove_orphans   query the store, page by page, for records without a document; look at them

A write carries the epoch, and takes effect only if nothing else was written meanwhile. A write that
matches nothing is another leader's turn, or its own with a lost reply; the next turn finds out. A
sweep that failed or was interrupted starts again; a second sweep does no harm.

Laws
    SW1  When a sweep is stored as ended, each record that was an orphan at its begin had its look.
    SW2  The stored sweeps are of one leader after the other: their epoch never goes back.
    SW3  No sweep begins within an interval after a successful one, under any leader.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put, Value
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Sleep
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import StoreTime, check_collection, find_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.planning.reconciler import EPOCH
from tidegate.reactive.planning.reconciliation import (
    BeginSweep,
    SkipSweep,
    SweepLater,
    Sweeps,
    WhyNoSweep,
    decide_sweep,
    swept,
)
from tidegate.reactive.record.orphans import DAY
from tidegate.reactive.task.plan_queries import LOOKED_AT_MAX
from tidegate.reactive.task.reactive_task import ReactiveTask

SWEEPS: Final = Field[Document]("sweeps")
_LAST: Final = Field[Instant]("last")


def sweeps_of(record: Document) -> Sweeps:
    """The sweeps in the record of a stream.

    Raises:
        Misuse: The document is no such record.
    """
    check_type(record, Document, "the record of a stream")
    known = record.get(SWEEPS)
    return Sweeps() if known is None else Sweeps(known.get(_LAST), known.get(EPOCH))


def stored_sweeps(sweeps: Sweeps) -> Put[Document]:
    """The updates that store them."""
    check_type(sweeps, Sweeps, "what is known of sweeps")
    fields = ((_LAST.name, sweeps.last), (EPOCH.name, sweeps.epoch))
    return Put(SWEEPS, Document(tuple((name, value) for name, value in fields if value is not None)))


async def remove_orphans(task: ReactiveTask, batch: int = LOOKED_AT_MAX) -> tuple[Value, ...]:
    """Look at each record of a task whose document is gone or no longer matches, by the policy.

    Args:
        task: The task.
        batch: About how many records one query covers; 1 <= batch <= LOOKED_AT_MAX.

    Returns:
        The ids of the documents whose write is uncertain.

    Raises:
        Failure: No reply, or the store refuses; some were looked at.
    """
    left: tuple[Value, ...] = ()
    after: tuple[Value, ...] = ()
    while True:
        page = await task.find_orphaned(after, batch)
        if page.ids:
            left = (*left, *await task.clean_up(page.ids))
        if not page.after:
            return left
        after = page.after


@final
@attrs.frozen
class Sweeper:
    """Sweeps for some tasks.

    Invariants: the id is not empty; 0 <= interval; 1 <= batch <= LOOKED_AT_MAX; 0 <= pause.

    Attributes:
        stream: The id of the record.
        streams: The collection of the record.
        tasks: The tasks.
        interval: From the end of one sweep to the next, in microseconds.
        batch: About how many records one query covers.
        pause: The wait after a failure, in microseconds.
    """

    stream: str
    streams: str
    tasks: tuple[ReactiveTask, ...]
    interval: Duration = DAY
    batch: int = LOOKED_AT_MAX
    pause: Duration = SECOND

    def __attrs_post_init__(self) -> None:
        check_name(self.stream, "a stream")
        check_collection(self.streams)
        check_tuple(self.tasks, ReactiveTask, "a task")
        check_int(self.interval, "an interval in microseconds", 0)
        check_int(self.batch, "a number of records", 1, LOOKED_AT_MAX)
        check_int(self.pause, "a duration in microseconds", 0)

    async def run(self, epoch: int) -> None:
        """Sweep periodically, AFTER taking the record over, until another epoch takes it over.

        Args:
            epoch: The epoch of this leader; no other process sweeps under it.

        Raises:
            Refused: The store refuses for good.
        """
        while True:
            wait = await self.turn(epoch)
            if wait is None:
                return
            await Sleep(wait)

    async def turn(self, epoch: int) -> Duration | None:
        """Sweep if it is time.

        Args:
            epoch: As for `run`.

        Returns:
            Microseconds until the next check; None if another epoch has taken over.

        Raises:
            Refused: The store refuses for good.
        """
        check_int(epoch, "an epoch", 1)
        try:
            return await self._turn(epoch)
        except (Ambiguous, NotApplied, NotDurable):
            return self.pause

    async def _turn(self, epoch: int) -> Duration | None:
        record = await find_one(self.streams, Eq(ID, self.stream))
        if record is None or needed(record, EPOCH) != epoch:
            return None
        now = await StoreTime()
        known, begun = record.get(SWEEPS), sweeps_of(record)
        verdict = decide_sweep(begun, epoch, now, self.interval)
        if isinstance(verdict, SweepLater):
            return verdict.until - now
        if verdict == SkipSweep(WhyNoSweep.FENCED):
            return None
        if isinstance(verdict, BeginSweep):  # otherwise an earlier turn of this leader has begun it
            if not await self._stored(epoch, known, verdict.sweeps):
                return self.pause
            known, begun = stored_sweeps(verdict.sweeps).value, verdict.sweeps
        is_done = True
        for task in self.tasks:
            is_done = not await remove_orphans(task, self.batch) and is_done
        ended = swept(begun, epoch, await StoreTime(), is_done=is_done)
        assert isinstance(ended, Sweeps), "it runs under this epoch"
        is_stored = await self._stored(epoch, known, ended)
        return self.interval if is_done and is_stored else self.pause

    async def _stored(self, epoch: int, known: Document | None, sweeps: Sweeps) -> bool:
        """Store it under this epoch, if the known state is unchanged."""
        still = AllOf((Eq(ID, self.stream), Eq(EPOCH, epoch), Eq(SWEEPS, known)))
        return await update_one(self.streams, still, stored_sweeps(sweeps)) > 0
