"""Look at every document of a collection once, and remember how far that is (`tidegate.reactive.reconciliation`).

The record of the stream holds what is known, {_id, epoch, history, reconciled, checkpoint, ...}, beside its position
(`tidegate.reactive.change_stream`). Each write asks for the epoch and the history of the run, so that one that is over
matches nothing, writes nothing and ends; a batch that was looked at and not written down is looked at again.

Laws
    RJ1  What is reconciled was looked at: each document since it says what it says, unless a change reports it.

Ids are of any type; the order of a scan is that of all types (`model.documents.in_order`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put, Remove, Update, Value
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Program, Refused, Sleep
from tidegate.model.instants import SECOND, Duration
from tidegate.model.operations import FOUND_MAX, check_collection, find_all, find_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.reactive import reconciliation
from tidegate.reactive.plan_queries import PlanPage
from tidegate.reactive.reconciliation import (
    BatchPlanned,
    Checkpoint,
    CleanedUp,
    PassFailed,
    PassOutcome,
    Progress,
    ReconciliationRun,
    RunSuperseded,
    Scan,
    ScanAgain,
    TaskTrigger,
    scans,
)

__all__ = ["CHECKPOINT", "EPOCH", "FORGOTTEN", "HISTORY", "RECONCILED", "Reconciler"]

EPOCH: Final = Field[int]("epoch")
HISTORY: Final = Field[int]("history")
RECONCILED: Final = Field[bool]("reconciled")
CHECKPOINT: Final = Field[Value]("checkpoint")
_KEY: Final = Field[Value](ID.name)

FORGOTTEN: Final[tuple[Update, ...]] = (Put(RECONCILED, value=False), Remove(CHECKPOINT))
"""What the next history begins with, in the write that removes the position."""


@final
class _Follows(Enum):
    """What follows a batch."""

    NEXT = "the next one"
    AGAIN = "the same one, after a pause"
    NOTHING = "nothing: the run is over, or is another's"


@final
@attrs.frozen
class Reconciler:
    """Whoever reconciles one task over one collection.

    Invariants: the id is not empty; 1 <= batch <= FOUND_MAX; 0 <= pause.

    Attributes:
        stream: The id of the record.
        streams: The collection of the record.
        collection: Of the documents.
        task: The task and what triggers it.
        look: Looks at these documents, and answers those whose look is not known to be written.
        sweep: Looks at what is left of documents that are gone, and answers likewise.
        batch: How many documents are looked at before that is written down.
        pause: How long what failed waits before it is tried again, in microseconds.
        changed: Asks, of the documents after an id, which have to be looked at (`ReactiveTask.find_changed`), so that no
            others travel; None where each is looked at.
    """

    stream: str
    streams: str
    collection: str
    task: TaskTrigger
    look: Callable[[tuple[Value, ...]], Program[tuple[Value, ...]]] = attrs.field(eq=id)
    sweep: Callable[[], Program[tuple[Value, ...]]] = attrs.field(eq=id)
    batch: int = 100
    pause: Duration = SECOND
    changed: Callable[[tuple[Value, ...], int], Program[PlanPage]] | None = attrs.field(default=None, eq=id)

    def __attrs_post_init__(self) -> None:
        check_name(self.stream, "a stream")
        check_collection(self.streams)
        check_collection(self.collection)
        check_type(self.task, TaskTrigger, "a task and its trigger")
        check_callable(self.look, "what looks at documents")
        check_callable(self.sweep, "what looks at what is left")
        check_int(self.batch, "a number of documents", 1, FOUND_MAX)
        check_int(self.pause, "a duration in microseconds", 0)
        if self.changed is not None:
            check_callable(self.changed, "what asks which documents to look at")

    async def run(self, run: ReconciliationRun) -> None:
        """Reconcile until everything is, or the epoch or the history of the run is over; what fails is tried again."""
        while True:
            try:
                follows = await self._batch(run)
            except (Ambiguous, NotApplied, NotDurable):
                follows = _Follows.AGAIN
            if follows is _Follows.NOTHING:
                return
            if follows is _Follows.AGAIN:
                await Sleep(self.pause)

    async def _batch(self, run: ReconciliationRun) -> _Follows:
        """Reconcile the next batch: what follows it?"""
        record = await find_one(self.streams, Eq(ID, self.stream))
        if record is None or needed(record, EPOCH) != run.epoch:
            return _Follows.NOTHING
        progress = self._progress(record)
        left = scans(progress, {self.collection: frozenset({self.task})})
        if not left:
            return _Follows.NOTHING
        outcome = await self._scanned(left[0])
        verdict = reconciliation.reconcile(run, progress, left[0], outcome)
        if isinstance(verdict, ScanAgain):
            return _Follows.AGAIN
        if isinstance(verdict, RunSuperseded):
            return _Follows.NOTHING
        written = await update_one(self.streams, self._of(run), *self._stored(verdict.progress))
        return _Follows.NEXT if written else _Follows.NOTHING

    async def _scanned(self, scan: Scan) -> PassOutcome:
        """Look at the next batch, or, where there is none, at what is left of documents that are gone."""
        after = () if scan.after is None else (scan.after.last_id,)
        page = await self._changed(after)
        if page is not None:
            if page.after:
                left = await self.look(page.ids) if page.ids else ()
                return PassFailed() if left else BatchPlanned(page.after)
            return PassFailed() if await self.sweep() else CleanedUp()
        found = await find_all(self.collection, limit=self.batch, after=after)
        ids = tuple(needed(doc, _KEY) for doc in found)
        left = await (self.look(ids) if ids else self.sweep())
        if left:
            return PassFailed()
        return BatchPlanned(ids) if ids else CleanedUp()

    async def _changed(self, after: tuple[Value, ...]) -> PlanPage | None:
        """What of the next documents has to be looked at; None where nobody can say, so that each is."""
        if self.changed is None:
            return None
        try:
            return await self.changed(after, self.batch)
        except Refused:  # an expression fails on one of them: of the others it is known when they are looked at
            return None

    def _progress(self, record: Document) -> Progress:
        done = frozenset({self.task.task}) if record.get(RECONCILED) else frozenset[str]()
        last = record.get(CHECKPOINT)
        here = (Checkpoint(self.collection, frozenset({self.task}), last),) if record.has(CHECKPOINT) else ()
        return Progress(needed(record, HISTORY), done, here)

    def _of(self, run: ReconciliationRun) -> AllOf:
        return AllOf((Eq(ID, self.stream), Eq(EPOCH, run.epoch), Eq(HISTORY, run.history)))

    def _stored(self, progress: Progress) -> tuple[Update, ...]:
        here = progress.checkpoint(self.collection)
        done = Put(RECONCILED, self.task.task in progress.reconciled)
        return (done, Remove(CHECKPOINT) if here is None else Put(CHECKPOINT, here.last_id))
