"""Scan the collections of some tasks once, and store the progress.

`tidegate.reactive.planning.reconciliation` decides; these programs carry it out.

The record of the stream holds it in one field, beside its position
(`tidegate.reactive.planning.change_stream`):

    progress: {history, reconciled: [{task, trigger}, ...],
               checkpoints: [{collection, triggers: [{task, trigger}, ...], after}, ...]}

One write replaces the whole field; progress of another history than the record's counts for
nothing. Names of tasks and collections are values, not field names, so they may hold dots and
dollars. Each write checks the epoch and history of the run; an outdated run matches nothing, writes
nothing and ends. A batch whose write is missing is scanned again.

Tasks of a collection that are not reconciled share a scan. Where the store can find the documents
that differ for each task, it returns only the ids that some task needs. Where few differ, each
request covers ever more documents.

Laws
    RJ1  What is reconciled was looked at: each document since it says what it says, unless a change
         reports it.
    RJ2  What is known of a task that is none of these stays as it is.

Known limits
    - A document whose record a transaction holds (`reactive_task`) delays its scan until then.
    - A late write reverts what was stored since under its epoch; the next leader repeats some
      looks.

Ids are of any type; a scan uses the order of all types (`model.documents.in_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put, Value
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Program, Refused, Sleep
from tidegate.model.instants import SECOND, Duration
from tidegate.model.operations import FOUND_MAX, check_collection, find_all, find_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.reactive.planning import reconciliation
from tidegate.reactive.planning.reconciliation import (
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
    in_history,
    scans,
)
from tidegate.reactive.task.plan_queries import LOOKED_AT_MAX, PlanPage, first_of, together

EPOCH: Final = Field[int]("epoch")
HISTORY: Final = Field[int]("history")
PROGRESS: Final = Field[Document]("progress")
_RECONCILED: Final = Field[tuple[Document, ...]]("reconciled")
_CHECKPOINTS: Final = Field[tuple[Document, ...]]("checkpoints")
_COLLECTION: Final = Field[str]("collection")
_TRIGGERS: Final = Field[tuple[Document, ...]]("triggers")
_AFTER: Final = Field[Value]("after")
_TASK: Final = Field[str]("task")
_TRIGGER: Final = Field[Value]("trigger")
_KEY: Final = Field[Value](ID.name)

Names: TypeAlias = frozenset[str]
Look: TypeAlias = Callable[[str, tuple[Value, ...], Names], Program[tuple[Value, ...]]]
"""Looks at documents of a collection for these tasks; returns those whose write is uncertain."""
Sweep: TypeAlias = Callable[[str, Names], Program[tuple[Value, ...]]]
"""Looks at the records of deleted documents of a collection, for these tasks; returns likewise."""
FindNext: TypeAlias = Callable[[tuple[Value, ...], int], Program[PlanPage]]
"""Returns, of the next documents after an id, those to look at (`ReactiveTask.find_changed`)."""


# --- what is stored ---------------------------------------------------------------------------------------------------


def progress_of(record: Document) -> Progress:
    """The progress in the record of the stream, as far as it counts in its history.

    Raises:
        Misuse: The document is no such record.
    """
    check_type(record, Document, "the record of a stream")
    history, known = needed(record, HISTORY), record.get(PROGRESS)
    if known is None:
        return Progress(history)
    checkpoints = tuple(
        Checkpoint(needed(each, _COLLECTION), _triggers(needed(each, _TRIGGERS)), needed(each, _AFTER))
        for each in needed(known, _CHECKPOINTS)
    )
    return in_history(Progress(needed(known, HISTORY), _triggers(needed(known, _RECONCILED)), checkpoints), history)


def stored_progress(progress: Progress) -> Put[Document]:
    """The updates that store the progress."""
    check_type(progress, Progress, "progress")
    checkpoints = tuple(
        Document(
            ((_COLLECTION.name, each.collection), (_TRIGGERS.name, _listed(each.triggers)), (_AFTER.name, each.last_id))
        )
        for each in progress.checkpoints
    )
    fields = (
        (HISTORY.name, progress.history), (_RECONCILED.name, _listed(progress.reconciled)), (_CHECKPOINTS.name, checkpoints),
    )  # fmt: skip
    return Put(PROGRESS, Document(fields))


def _triggers(listed: tuple[Document, ...]) -> frozenset[TaskTrigger]:
    return frozenset(TaskTrigger(needed(each, _TASK), needed(each, _TRIGGER)) for each in listed)


def _listed(triggers: frozenset[TaskTrigger]) -> tuple[Document, ...]:
    ordered = sorted(triggers, key=lambda each: each.task)
    return tuple(Document(((_TASK.name, each.task), (_TRIGGER.name, each.trigger))) for each in ordered)


# --- the program ------------------------------------------------------------------------------------------------------


@final
class _Follows(Enum):
    """The next step after a batch."""

    NEXT = "the next one"
    AGAIN = "the same one, after a pause"
    NOTHING = "nothing: the run is over, or is another's"


@final
@attrs.frozen
class ScannedTask:
    """A task that is reconciled.

    Attributes:
        collection: The collection of its documents.
        trigger: Its unique name, and its trigger.
        find_next: Finds the documents to look at, so that no others are read; None if the store
            cannot
            tell: then all tasks of the scan look at each document.
    """

    collection: str
    trigger: TaskTrigger
    find_next: FindNext | None = None

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_type(self.trigger, TaskTrigger, "a task and its trigger")
        if self.find_next is not None:
            check_callable(self.find_next, "what asks which documents to look at")


@final
@attrs.frozen
class Reconciler:
    """Reconciles tasks over their collections.

    Invariants: the id is not empty; task names are unique; 1 <= batch <= FOUND_MAX; 0 <= pause.

    Attributes:
        stream: The id of the record.
        streams: The collection of the record.
        tasks: The tasks.
        look: Looks at documents.
        sweep: Looks at the records of deleted documents.
        batch: How many documents are looked at between two writes of progress, at most.
        pause: The wait after a failure, in microseconds.
    """

    stream: str
    streams: str
    tasks: tuple[ScannedTask, ...]
    look: Look = attrs.field(eq=id)
    sweep: Sweep = attrs.field(eq=id)
    batch: int = 100
    pause: Duration = SECOND

    def __attrs_post_init__(self) -> None:
        check_name(self.stream, "a stream")
        check_collection(self.streams)
        check_tuple(self.tasks, ScannedTask, "a task")
        _ = Progress(reconciled=frozenset(each.trigger for each in self.tasks))
        check_callable(self.look, "what looks at documents")
        check_callable(self.sweep, "what looks at what is left")
        check_int(self.batch, "a number of documents", 1, FOUND_MAX)
        check_int(self.pause, "a duration in microseconds", 0)

    async def run(self, run: ReconciliationRun) -> None:
        """Reconcile until all is done, or the epoch or history of the run ends; retry failures."""
        limit = self.batch
        while True:
            try:
                follows, limit = await self._batch(run, limit)
            except (Ambiguous, NotApplied, NotDurable):
                follows, limit = _Follows.AGAIN, self.batch
            if follows is _Follows.NOTHING:
                return
            if follows is _Follows.AGAIN:
                await Sleep(self.pause)

    async def _batch(self, run: ReconciliationRun, limit: int) -> tuple[_Follows, int]:
        """Reconcile the next batch; return the next step, and the size of the next request."""
        record = await find_one(self.streams, Eq(ID, self.stream))
        if record is None or needed(record, EPOCH) != run.epoch:
            return _Follows.NOTHING, limit
        progress = progress_of(record)
        left = scans(progress, self._by_collection())
        if not left:
            return _Follows.NOTHING, limit
        outcome, limit = await self._scanned(left[0], limit)
        verdict = reconciliation.reconcile(run, progress, left[0], outcome)
        if isinstance(verdict, ScanAgain):
            return _Follows.AGAIN, limit
        if isinstance(verdict, RunSuperseded):
            return _Follows.NOTHING, limit
        of_run = AllOf((Eq(ID, self.stream), Eq(EPOCH, run.epoch), Eq(HISTORY, run.history)))
        written = await update_one(self.streams, of_run, stored_progress(verdict.progress))
        return (_Follows.NEXT if written else _Follows.NOTHING), limit

    async def _scanned(self, scan: Scan, limit: int) -> tuple[PassOutcome, int]:
        """Look at the next batch; without one, at the records of deleted documents."""
        names = frozenset(each.task for each in scan.triggers)
        after = () if scan.after is None else (scan.after.last_id,)
        page, limit = await self._next(scan.collection, names, after, limit)
        if page.after:
            left = await self.look(scan.collection, page.ids, names) if page.ids else ()
            return (PassFailed() if left else BatchPlanned(page.after)), limit
        return (PassFailed() if await self.sweep(scan.collection, names) else CleanedUp()), limit

    async def _next(self, collection: str, names: Names, after: tuple[Value, ...], limit: int) -> tuple[PlanPage, int]:
        """The next documents to look at (all, if the store cannot tell), and the size of the next
        request.
        """
        asks = tuple(each.find_next for each in self.tasks if each.trigger.task in names)
        if None not in asks:
            pages: tuple[PlanPage, ...] = ()
            try:
                for find_next in asks:
                    assert find_next is not None, "none is"
                    pages = (*pages, await find_next(after, limit))
                page = together(pages)
                first = first_of(page, self.batch)
                return first, self.batch if first != page else self._wider(page, limit)
            except Refused:  # an expression fails on one of them: of the others it is known when they are looked at
                pass
        found = await find_all(collection, limit=self.batch, after=after)
        ids = tuple(needed(doc, _KEY) for doc in found)
        return PlanPage(ids, ids[-1:]), self.batch

    def _wider(self, page: PlanPage, limit: int) -> int:
        """The size of the next request: double if few of a page need a look."""
        return min(2 * limit, LOOKED_AT_MAX) if 2 * len(page.ids) <= self.batch else limit

    def _by_collection(self) -> Mapping[str, frozenset[TaskTrigger]]:
        return {
            source: frozenset(each.trigger for each in self.tasks if each.collection == source)
            for source in {each.collection for each in self.tasks}
        }
