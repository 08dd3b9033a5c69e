"""The laws of `tidegate.reactive.planning.reconciliation`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from tidegate.model.instants import Duration, Instant
from tidegate.reactive.planning.reconciliation import (
    BatchPlanned,
    BeginSweep,
    Checkpoint,
    CleanedUp,
    PassFailed,
    PassOutcome,
    Progress,
    ReconciliationRun,
    RunSuperseded,
    Scan,
    ScanAgain,
    ScanVerdict,
    SkipSweep,
    SweepLater,
    Sweeps,
    TaskTrigger,
    WriteProgress,
)


def goes_on_from_its_own_checkpoint(progress: Progress, scan: Scan) -> bool:
    """Law RL1: a scan resumes from a checkpoint of the very same tasks and triggers, otherwise from
    the start.
    """
    own = [each for each in progress.checkpoints if _is_of(each, scan)]
    return scan.after == (own[0] if own else None)


def scans_what_is_not_reconciled(
    progress: Progress, triggers: Mapping[str, frozenset[TaskTrigger]], scans: tuple[Scan, ...]
) -> bool:
    """Law RL6: exactly the tasks without a flag for their trigger are scanned, by collection."""
    left = {(name, each) for name, several in triggers.items() for each in several}
    asked = [(scan.collection, each) for scan in scans for each in scan.triggers]
    expected = {(name, each) for name, each in left if each not in progress.reconciled}
    return len(asked) == len(expected) and set(asked) == expected


def all_was_looked_at(there_before: Collection[object], passed: Collection[object], gone: Collection[object]) -> bool:
    """Law RL2: a task is flagged when each document from the begin of its scan had its pass, or is
    gone.
    """
    return set(there_before) <= set(passed) | set(gone)


def passes_no_failure(progress: Progress, scan: Scan, outcome: PassOutcome, verdict: ScanVerdict) -> bool:
    """Law RL3: a checkpoint is the last planned document; a failure writes nothing."""
    match outcome, verdict:
        case _, RunSuperseded():
            return True
        case BatchPlanned(ids), WriteProgress(_, after):
            own = Checkpoint(scan.collection, scan.triggers, ids[-1])
            return after.checkpoint(scan.collection) == own and after.reconciled == progress.reconciled
        case PassFailed(), ScanAgain(again):
            return again == scan
        case CleanedUp(), WriteProgress():
            return True
        case _:
            return False


def flags_in_one_write(progress: Progress, scan: Scan, outcome: PassOutcome, verdict: ScanVerdict) -> bool:
    """Law RL4: flags are set exactly if all succeeded, and the same write removes the checkpoint."""
    if not isinstance(verdict, WriteProgress):
        return True
    flagged = verdict.progress.reconciled - progress.reconciled
    if not isinstance(outcome, CleanedUp):
        return not flagged
    return flagged == scan.triggers and verdict.progress.checkpoint(scan.collection) is None


def leaves_others_alone(run: ReconciliationRun, progress: Progress, scan: Scan, verdict: ScanVerdict) -> bool:
    """Law RL5: nothing is written for another history; other scans stay as they are, under the
    run's epoch.
    """
    if not isinstance(verdict, WriteProgress):
        return True
    kept = [each for each in progress.checkpoints if each.collection != scan.collection]
    after = verdict.progress
    others = [each for each in after.checkpoints if each.collection != scan.collection]
    is_its_own = (verdict.epoch, progress.history, after.history) == (run.epoch, run.history, run.history)
    names = {each.task for each in scan.triggers}
    flags = {each for each in progress.reconciled if each.task not in names}
    return is_its_own and kept == others and flags <= after.reconciled


def goes_on_after_an_interruption(done_before: Collection[object], done_after: Collection[object]) -> bool:
    """Law RL6: documents before a checkpoint are not repeated."""
    return not set(done_before) & set(done_after)


def counts_in_its_history(stored: Progress, history: int, counted: Progress) -> bool:
    """Law RL7: in another history nothing is reconciled, and no scan resumes."""
    return counted == (stored if stored.history == history else Progress(history))


def task_is_forgotten(before: Progress, after: Progress, collection: str, task: str) -> bool:
    """Law RL7: a forgotten task is scanned from the start; others keep their flags and checkpoints."""
    others = tuple(each for each in before.checkpoints if each.collection != collection)
    kept = frozenset(each for each in before.reconciled if each.task != task)
    return after == Progress(before.history, kept, others)


def keeps_other_tasks(before: Progress, after: Progress, own: Collection[str]) -> bool:
    """Law RJ2: reconciling these tasks removes no flag of another one, in one history."""
    others = {each for each in before.reconciled if each.task not in own}
    return before.history != after.history or others <= after.reconciled


def only_of_these(before: Progress, names: Collection[str], after: Progress) -> bool:
    """Law RL10: exactly the progress of these tasks alone is left."""
    flags = frozenset(each for each in before.reconciled if each.task in names)
    checkpoints = [each for each in before.checkpoints if {of.task for of in each.triggers} <= {*names}]
    return (after.history, after.reconciled, [*after.checkpoints]) == (before.history, flags, checkpoints)


def is_due(sweeps: Sweeps, now: Instant, interval: Duration, verdict: BeginSweep | SweepLater | SkipSweep) -> bool:
    """Law RL8: a sweep begins an interval after the last end, and at once without one or with one
    in the future.
    """
    last = sweeps.last
    is_time = last is None or now - last >= interval or now - last < 0
    match verdict:
        case BeginSweep():
            return is_time
        case SweepLater(until):
            return not is_time and last is not None and until - last == interval
        case SkipSweep():
            return True
        case _:
            assert_never(verdict)


def one_sweep_runs(before: Sweeps, epoch: int, verdict: BeginSweep | SweepLater | SkipSweep) -> bool:
    """Law RL9: one sweep runs under an epoch, and none begins while one of a later epoch runs."""
    is_held = before.epoch is not None and before.epoch >= epoch
    is_begun = isinstance(verdict, BeginSweep) and verdict.sweeps == Sweeps(before.last, epoch)
    return isinstance(verdict, SkipSweep) if is_held else is_begun or isinstance(verdict, SweepLater)


def ends_its_own_sweep(before: Sweeps, epoch: int, now: Instant, after: Sweeps | SkipSweep, *, is_done: bool) -> bool:
    """Law RL9: only the sweeping epoch writes the end; a failed sweep is due again."""
    if before.epoch != epoch:
        return isinstance(after, SkipSweep)
    return after == Sweeps(now if is_done else before.last)


def _is_of(checkpoint: Checkpoint, scan: Scan) -> bool:
    return (checkpoint.collection, checkpoint.triggers) == (scan.collection, scan.triggers)
