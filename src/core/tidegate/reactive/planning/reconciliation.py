"""Decide which documents need a look although no change reports them.

A change stream misses changes before its position, or lost with its history. So every document of
a collection is scanned once for a task that is new, has another trigger
(`tidegate.reactive.planning.evolution`), or lost changes. The scan runs by ascending id, in batches. The
stream (`tidegate.reactive.planning.change_stream`) reports changes behind the scan. Together they leave no
gap if the position was stored BEFORE the scan began.

One stored value, `Progress`, holds all state, so a crash loses only the batch in flight:

    scans      the collections still to scan: for which tasks, and from which id
    reconcile  the write after a batch passed or failed, or after the last one and its orphans

    every batch that passed           a checkpoint: so far, for these tasks with these triggers
    no batch left, orphans removed    remove the checkpoint and flag the tasks, in one write
    a failure                         nothing; retry

A scan serves the tasks without a flag. A flag counts for exactly the trigger it was set for. A
checkpoint counts for exactly its tasks and triggers: another task or trigger has not seen the
documents before it. All of it belongs to one numbered history and counts for nothing in the next
one (`in_history`), so lost changes need no clean-up.

A run begins when a leader begins, which is also when a trigger may have changed, and when the
stream's history was lost. It ends when nothing is left to scan, or its epoch or history is over. It
is not periodic. The sweep is: it checks whether each record still has a document
(`tidegate.reactive.record.orphans`).

    decide_sweep   is a sweep due, by the store's clock and the last stored time
    swept          the write at its end

Caller's duties
    - Plan a batch for its scan's tasks by passes that read documents after the run began.
    - Check the epoch and history of the run in the write itself. Write a sweep's cell under its
      epoch, by compare-and-set.
    - The scan of a collection reads the ids above its checkpoint's in ascending order, without
      gaps.

Laws
    RL1  A scan resumes from a checkpoint of the very same tasks and triggers, and otherwise from
         the start.
    RL2  A task is flagged only when, for it, each document that its collection had when the scan
         began had a pass in this history, or is gone.
    RL3  A checkpoint passes no document whose pass has not succeeded, and a failure writes nothing.
    RL4  Flags are set and the checkpoint is removed in one write, and only where all of the scan
         has succeeded.
    RL5  A run writes nothing once its history is over; the scans of others stay as they are.
    RL6  Whenever it is interrupted, the next run does the rest, and does not repeat what is before
         a checkpoint.
    RL7  A task whose progress was forgotten, and all progress of another history, is scanned again
         from the start.
    RL8  A sweep begins an interval after the last one ended, and at once where none has or it ended
         in the future.
    RL9  One sweep runs under an epoch, and no epoch's writes undo those of a later one; a sweep
         that failed is due again.
    RL10 What counts for a leader that follows changes for some tasks alone (`of_tasks`) is no flag,
         and no checkpoint, of another task: changes for that one are not followed meanwhile.

Rejected designs
    Flag a task before orphans are removed. A document deleted without a listener then keeps its
    record until the next sweep.
    Count the interval from the start of the last sweep. A sweep longer than that never ends.

Known limits
    - The sweep of a stalled leader may overlap its successor's. Guards make the removals harmless.
    - An unreadable document stops the scan; documents after it are not reconciled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.documents import Value, checked, exactly, show
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.values import check_int, check_name, check_tuple, check_type, check_types
from tidegate.reactive.record.orphans import DAY


def _history(history: object) -> None:
    check_int(history, "the number of a history", 0, INT64_MAX)


# --- what is stored ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class TaskTrigger:
    """A task and its trigger.

    Attributes:
        task: Its unique name.
        trigger: The filter and the watched values, as in `evolution.Definition`; compared exactly.
    """

    task: str
    trigger: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        checked(self.trigger, "trigger")


@final
@attrs.frozen
class Checkpoint:
    """The documents of a collection up to this id had their pass for exactly these tasks."""

    collection: str
    triggers: frozenset[TaskTrigger]
    last_id: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        check_name(self.collection, "a collection")
        _check_triggers(self.triggers)
        checked(self.last_id, "the id of a document")

    def __str__(self) -> str:
        return f"{self.collection} up to {show(self.last_id)}"


@final
@attrs.frozen
class Progress:
    """The stored progress. Invariant: at most one checkpoint for each collection.

    Attributes:
        history: The number of its history, which is also that of the stream's stored position.
        reconciled: The reconciled tasks, with their triggers.
        checkpoints: Those of collections whose scan has begun.
    """

    history: int = 0
    reconciled: frozenset[TaskTrigger] = frozenset()
    checkpoints: tuple[Checkpoint, ...] = ()

    def __attrs_post_init__(self) -> None:
        _history(self.history)
        _check_triggers(self.reconciled)
        check_tuple(self.checkpoints, Checkpoint, "a checkpoint")
        if len({each.collection for each in self.checkpoints}) != len(self.checkpoints):
            raise Misuse("a collection has two checkpoints", why="it is scanned once at a time")

    def checkpoint(self, collection: str) -> Checkpoint | None:
        """The checkpoint of this collection, if any."""
        return next((each for each in self.checkpoints if each.collection == collection), None)


def _check_triggers(triggers: frozenset[TaskTrigger]) -> None:
    check_type(triggers, frozenset, "a set of triggers")
    check_types(triggers, TaskTrigger, "a trigger")
    if len({each.task for each in triggers}) != len(triggers):
        raise Misuse("a task has two triggers", why="no two tasks have the same name")


# --- scans ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Scan:
    """Plan each document of the collection for these tasks.

    Attributes:
        collection: The collection.
        triggers: The tasks that are not reconciled. Invariant: not empty.
        after: The id before the remaining documents; None for all.
    """

    collection: str
    triggers: frozenset[TaskTrigger]
    after: Checkpoint | None = None

    def __str__(self) -> str:
        tasks = ", ".join(sorted(each.task for each in self.triggers))
        since = "from the start" if self.after is None else f"after {show(self.after.last_id)}"
        return f"scan {self.collection} for {tasks} {since}"


@final
@attrs.frozen
class BatchPlanned:
    """The passes over these documents, which follow the checkpoint by ascending id, succeeded.
    Invariant: not empty.
    """

    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        check_type(self.ids, tuple, "a tuple of ids")
        for id_ in self.ids:
            checked(id_, "the id of a document")
        if not self.ids:
            raise Misuse("no document was planned", todo="where none is left, remove orphans and say CleanedUp()")


@final
@attrs.frozen
class CleanedUp:
    """No document was left, and THEN the orphans of the scan's tasks were removed."""


@final
@attrs.frozen
class PassFailed:
    """Reading, planning or removing failed, at least in part."""


PassOutcome: TypeAlias = BatchPlanned | CleanedUp | PassFailed
_OUTCOMES: Final = (BatchPlanned, CleanedUp, PassFailed)


@final
@attrs.frozen
class WriteProgress:
    """Store this, if the record has this epoch and history; then call `scans` for the rest."""

    epoch: int
    progress: Progress


@final
@attrs.frozen
class ScanAgain:
    """Write nothing, and repeat the scan after a pause."""

    scan: Scan


@final
@attrs.frozen
class RunSuperseded:
    """Write nothing: the run is over, because the record has another history or its scan is done."""


ScanVerdict: TypeAlias = WriteProgress | ScanAgain | RunSuperseded


@final
@attrs.frozen
class ReconciliationRun:
    """A requested reconciliation (`change_stream.Reconcile`)."""

    epoch: int
    history: int

    def __attrs_post_init__(self) -> None:
        check_int(self.epoch, "an epoch", 1, INT64_MAX)
        _history(self.history)


def scans(progress: Progress, triggers: Mapping[str, frozenset[TaskTrigger]]) -> tuple[Scan, ...]:
    """Return the remaining scans.

    Args:
        progress: The stored progress.
        triggers: The deployed tasks, by collection.

    Returns:
        One scan for each collection with a task that is not reconciled, by name.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(progress, Progress, "progress")
    check_type(triggers, Mapping, "tasks by collection")
    left: list[Scan] = []
    for collection, each in triggers.items():
        check_name(collection, "a collection")
        _check_triggers(each)
        unflagged = each - progress.reconciled
        if unflagged:
            known = progress.checkpoint(collection)
            counts = known is not None and known.triggers == unflagged
            left.append(Scan(collection, unflagged, known if counts else None))
    return tuple(sorted(left, key=lambda scan: scan.collection))


def reconcile(run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """Decide the write after a part of a scan.

    Args:
        run: The run that scans.
        progress: The stored progress, read BEFORE the scan was requested.
        scan: The scan, one of `scans`.
        outcome: The result of its next batch, or of its end.

    Returns:
        `WriteProgress`, `ScanAgain`, or `RunSuperseded`.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(run, ReconciliationRun, "a run")
    check_type(progress, Progress, "progress")
    check_type(scan, Scan, "a scan")
    check_type(outcome, _OUTCOMES, "what came of a scan")
    # It is over, or another run has flagged its tasks.
    if progress.history != run.history or scan.triggers & progress.reconciled:
        return RunSuperseded()
    others = _others(progress, scan.collection)
    match outcome:
        case PassFailed():
            return ScanAgain(scan)
        case BatchPlanned(ids):
            here = Checkpoint(scan.collection, scan.triggers, ids[-1])
            return WriteProgress(run.epoch, attrs.evolve(progress, checkpoints=(*others, here)))
        case CleanedUp():
            flags = _without(progress.reconciled, {each.task for each in scan.triggers}) | scan.triggers
            return WriteProgress(run.epoch, attrs.evolve(progress, reconciled=flags, checkpoints=others))
        case _:
            assert_never(outcome)


def in_history(progress: Progress, history: int) -> Progress:
    """The progress as it counts in a history: all of it in its own, nothing in another.

    Args:
        progress: The stored progress.
        history: The number of the history.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(progress, Progress, "progress")
    _history(history)
    return progress if progress.history == history else Progress(history)


def forgotten_task(progress: Progress, collection: str, task: str) -> Progress:
    """The progress without the flag of this task and the checkpoint of its collection
    (`evolution.Reconcile`).

    Args:
        progress: The stored progress.
        collection: The collection of the task's documents.
        task: Its name.

    Returns:
        The new value, for one write.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(progress, Progress, "progress")
    check_name(collection, "a collection")
    check_name(task, "a task")
    return Progress(progress.history, _without(progress.reconciled, {task}), _others(progress, collection))


def of_tasks(progress: Progress, names: frozenset[str]) -> Progress:
    """The progress that still counts when a leader follows changes for these tasks only, and moves
    the position for all.

    Args:
        progress: The stored progress.
        names: The names of the tasks.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(progress, Progress, "progress")
    check_type(names, frozenset, "a set of names")
    for name in names:
        check_name(name, "a task")
    checkpoints = tuple(each for each in progress.checkpoints if all(of.task in names for of in each.triggers))
    flags = frozenset(each for each in progress.reconciled if each.task in names)
    return Progress(progress.history, flags, checkpoints)


def _without(triggers: frozenset[TaskTrigger], names: Collection[str]) -> frozenset[TaskTrigger]:
    return frozenset(each for each in triggers if each.task not in names)


def _others(progress: Progress, collection: str) -> tuple[Checkpoint, ...]:
    return tuple(each for each in progress.checkpoints if each.collection != collection)


# --- the sweep --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Sweeps:
    """The stored state of sweeps for orphans.

    Attributes:
        last: The end of the last successful sweep, by the store's clock; None without one.
        epoch: The epoch of a sweep that runs, or ran without writing its end; None without one.
    """

    last: Instant | None = None
    epoch: int | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.last, (Instant, NoneType), "the time of a sweep")
        if self.epoch is not None:
            check_int(self.epoch, "an epoch", 1, INT64_MAX)


@final
@attrs.frozen
class BeginSweep:
    """Store this if nothing else was stored meanwhile, and then sweep."""

    sweeps: Sweeps


@final
@attrs.frozen
class SweepLater:
    """The next sweep is due at this time."""

    until: Instant


class WhyNoSweep(Enum):
    """Why no sweep begins."""

    RUNNING = "a sweep of this epoch runs"
    FENCED = "a later epoch has swept, or sweeps"
    ENDED = "no sweep of this epoch runs"


@final
@attrs.frozen
class SkipSweep:
    """Do nothing, and write nothing."""

    why: WhyNoSweep

    def __str__(self) -> str:
        return f"leave: {self.why.value}"


def decide_sweep(
    sweeps: Sweeps, epoch: int, now: Instant, interval: Duration = DAY
) -> BeginSweep | SweepLater | SkipSweep:
    """Decide whether the leader sweeps.

    Args:
        sweeps: The stored state.
        epoch: The leader's.
        now: The store's time.
        interval: From the end of one sweep to the next, in microseconds.

    Returns:
        `BeginSweep` with the write BEFORE it begins, or why not.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    check_type(sweeps, Sweeps, "what is stored of sweeps")
    check_int(epoch, "an epoch", 1, INT64_MAX)
    check_type(now, Instant, "the time")
    check_int(interval, "an interval in microseconds", 0)
    if sweeps.epoch is not None and sweeps.epoch >= epoch:
        return SkipSweep(WhyNoSweep.RUNNING if sweeps.epoch == epoch else WhyNoSweep.FENCED)
    if sweeps.last is not None and 0 <= now - sweeps.last < interval:
        return SweepLater(sweeps.last + interval)
    return BeginSweep(attrs.evolve(sweeps, epoch=epoch))


def swept(sweeps: Sweeps, epoch: int, now: Instant, *, is_done: bool) -> Sweeps | SkipSweep:
    """Compute the write at the end of a sweep, a compare-and-set.

    Args:
        sweeps: The stored state.
        epoch: The epoch of the sweep.
        now: The store's time.
        is_done: Whether all of it succeeded; if not, it is due again.

    Returns:
        The new state, or why nothing is written.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(sweeps, Sweeps, "what is stored of sweeps")
    check_int(epoch, "an epoch", 1, INT64_MAX)
    check_type(now, Instant, "the time")
    check_type(is_done, bool, "whether all of it succeeded")
    if sweeps.epoch != epoch:
        return SkipSweep(WhyNoSweep.FENCED if sweeps.epoch is not None and sweeps.epoch > epoch else WhyNoSweep.ENDED)
    return Sweeps(now if is_done else sweeps.last)
