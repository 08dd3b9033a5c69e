"""Which documents have to be looked at although no change tells of them?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Duration, Instant
from tidegate.reactive import reconciliation
from tidegate.reactive.laws import reconciliation as laws
from tidegate.reactive.orphans import DAY
from tidegate.reactive.reconciliation import (
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
    WhyNoSweep,
    WriteProgress,
    decide_sweep,
    forgotten_task,
    in_history,
    of_tasks,
    reconcile,
    scans,
    swept,
)
from tidegate.reactive.strategies.reconciliation import COLLECTIONS, deployments, outcomes, progresses, runs, sweeps

Tasks: TypeAlias = Mapping[str, frozenset[TaskTrigger]]
Scans: TypeAlias = Callable[[Progress, Tasks], tuple[Scan, ...]]
Reconciling: TypeAlias = Callable[[ReconciliationRun, Progress, Scan, PassOutcome], ScanVerdict]

A, B = TaskTrigger("orders.a", 1), TaskTrigger("orders.b", 1)
BOTH: Final = {"orders": frozenset({A, B})}
HALF: Final = Checkpoint("orders", frozenset({A, B}), 24)
RUN: Final = ReconciliationRun(1, 0)


@attrs.frozen
class Parts:
    """The functions, of which one may be planted."""

    scans: Scans = scans
    reconcile: Reconciling = reconcile
    in_history: Callable[[Progress, int], Progress] = in_history
    forgotten_task: Callable[[Progress, str, str], Progress] = forgotten_task
    of_tasks: Callable[[Progress, frozenset[str]], Progress] = of_tasks
    decide_sweep: Callable[[Sweeps, int, Instant, Duration], BeginSweep | SweepLater | SkipSweep] = decide_sweep
    swept: Callable[[Sweeps, int, Instant, bool], Sweeps | SkipSweep] = lambda cell, epoch, now, is_done: swept(
        cell, epoch, now, is_done=is_done
    )


OURS: Final = Parts()


def check_scans(parts: Parts) -> None:
    @given(progresses(), deployments())
    @example(Progress(checkpoints=(HALF,)), {"orders": frozenset({A})})
    @example(Progress(checkpoints=(HALF,)), {"orders": frozenset({A, TaskTrigger("orders.b", 2)})})
    @example(Progress(reconciled=frozenset({A}), checkpoints=(HALF,)), BOTH)
    @example(Progress(reconciled=frozenset({TaskTrigger("orders.a", 2)})), BOTH)
    def law(progress: Progress, tasks: Tasks) -> None:
        found = parts.scans(progress, tasks)
        assert laws.scans_what_is_not_reconciled(progress, tasks, found), "RL6"
        assert all(laws.goes_on_from_its_own_checkpoint(progress, scan) for scan in found), "RL1"

    law()


def check_writes(parts: Parts) -> None:
    @given(runs(), progresses(), deployments(), outcomes())
    @example(RUN, Progress(checkpoints=(HALF,)), BOTH, PassFailed())
    @example(RUN, Progress(checkpoints=(HALF,)), BOTH, CleanedUp())
    @example(RUN, Progress(1), BOTH, BatchPlanned((1,)))
    def law(run: ReconciliationRun, progress: Progress, tasks: Tasks, outcome: PassOutcome) -> None:
        for scan in scans(progress, tasks):
            verdict = parts.reconcile(run, progress, scan, outcome)
            assert laws.passes_no_failure(progress, scan, outcome, verdict), "RL3"
            assert laws.flags_in_one_write(progress, scan, outcome, verdict), "RL4"
            assert laws.leaves_others_alone(run, progress, scan, verdict), "RL5"

    law()


def check_interrupted(parts: Parts) -> None:
    """A scan of a collection, in which batches fail and the process crashes, over documents that come and go."""

    @given(st.sets(st.integers(0, 20)), st.integers(1, 4), st.lists(st.sampled_from("..xc+-"), max_size=12))
    @example({1, 2, 3, 4, 5, 6}, 2, [".", "x", "c"])
    @example({1, 2, 3, 4, 5, 6}, 2, [".", "c", "-"])
    def law(there: set[int], size: int, faults: list[str]) -> None:
        stored, first, gone, passed = Progress(), frozenset(there), set[int](), set[int]()
        kept: list[tuple[int, ...]] = []
        for fault in [*faults, *"." * 40]:
            if fault in "+-":
                change = {7, 11} if fault == "+" else {2, 3} & there
                there = there | change if fault == "+" else there - change
                gone = gone - change if fault == "+" else gone | change
                continue
            scan = next(iter(parts.scans(stored, BOTH)), None)
            if scan is None:
                break
            since = -1 if scan.after is None else int(str(scan.after.last_id))
            batch = tuple(sorted(each for each in there if each > since)[:size])
            outcome: PassOutcome = PassFailed() if fault == "x" else BatchPlanned(batch) if batch else CleanedUp()
            verdict = parts.reconcile(RUN, stored, scan, outcome)
            if fault == "c":
                continue  # it crashes after the passes and before the write
            if isinstance(outcome, BatchPlanned):
                passed |= set(batch)
                assert all(laws.goes_on_after_an_interruption(each, batch) for each in kept), "RL6"
                kept.append(batch)
            if isinstance(verdict, WriteProgress):
                stored = verdict.progress
        assert stored.reconciled == {A, B}, "RL6"
        assert laws.all_was_looked_at(first, passed, gone), "RL2"

    law()


def check_forgetting(parts: Parts) -> None:
    @given(progresses(), st.sampled_from(COLLECTIONS), st.sampled_from("abc"), st.integers(0, 2))
    @example(Progress(0, frozenset({A}), (HALF,)), "orders", "a", 1)
    def law(progress: Progress, collection: str, name: str, history: int) -> None:
        task = f"{collection}.{name}"
        assert laws.counts_in_its_history(progress, history, parts.in_history(progress, history)), "RL7"
        after = parts.forgotten_task(progress, collection, task)
        assert laws.task_is_forgotten(progress, after, collection, task), "RL7"
        assert laws.only_of_these(progress, {task}, parts.of_tasks(progress, frozenset({task}))), "RL10"

    law()


def check_sweeps(parts: Parts) -> None:
    @given(sweeps(), st.integers(1, 3), st.integers(0, 200).map(Instant), st.integers(0, 50), st.booleans())
    @example(Sweeps(), 1, Instant(0), 50, True)
    @example(Sweeps(Instant(99)), 1, Instant(0), 50, True)
    @example(Sweeps(Instant(0)), 1, Instant(50), 50, True)
    @example(Sweeps(Instant(0), 2), 1, Instant(99), 50, True)
    @example(Sweeps(Instant(0), 1), 1, Instant(99), 50, False)
    def law(cell: Sweeps, epoch: int, now: Instant, interval: int, is_done: bool) -> None:
        verdict = parts.decide_sweep(cell, epoch, now, interval)
        assert laws.is_due(cell, now, interval, verdict), "RL8"
        assert laws.one_sweep_runs(cell, epoch, verdict), "RL9"
        after = parts.swept(cell, epoch, now, is_done)
        assert laws.ends_its_own_sweep(cell, epoch, now, after, is_done=is_done), "RL9"

    law()


LAWS: Final[dict[str, Callable[[Parts], None]]] = {
    "RL1": check_scans,
    "RL2": check_interrupted,
    "RL3 to RL5": check_writes,
    "RL7 and RL10": check_forgetting,
    "RL8 and RL9": check_sweeps,
}


@pytest.mark.parametrize("law", LAWS)
def test_reconciliation_keeps_the_law(law: str) -> None:
    """Laws RL1 to RL10; RL6 with RL1 and RL2. With a stream, leaders and histories: see `test_change_stream`."""
    LAWS[law](OURS)


# --- specimens --------------------------------------------------------------------------------------------------------


def by_name(progress: Progress, tasks: Tasks) -> tuple[Scan, ...]:
    """mongodash: the tasks of a checkpoint are compared by name, and not by what triggers them."""
    renamed = tuple(
        attrs.evolve(known, triggers=scan.triggers)
        for known in progress.checkpoints
        for scan in scans(progress, tasks)
        if scan.collection == known.collection
        and {each.task for each in scan.triggers} == {each.task for each in known.triggers}
    )
    return scans(attrs.evolve(progress, checkpoints=renamed), tasks)


def whatever_the_tasks(progress: Progress, tasks: Tasks) -> tuple[Scan, ...]:
    """The checkpoint of another set of tasks counts."""
    renamed = tuple(
        attrs.evolve(known, triggers=scan.triggers)
        for known in progress.checkpoints
        for scan in scans(progress, tasks)
        if scan.collection == known.collection
    )
    return scans(attrs.evolve(progress, checkpoints=renamed), tasks)


def from_the_start(progress: Progress, tasks: Tasks) -> tuple[Scan, ...]:
    """Checkpoints do not count."""
    return tuple(attrs.evolve(scan, after=None) for scan in scans(progress, tasks))


def for_all_tasks(_: Progress, tasks: Tasks) -> tuple[Scan, ...]:
    """Flags do not count."""
    return scans(Progress(), tasks)


def flags_whatever_happened(
    run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome
) -> ScanVerdict:
    """mongodash: "finished" is reported, whatever happened."""
    return reconcile(run, progress, scan, CleanedUp() if isinstance(outcome, PassFailed) else outcome)


def passes_failures(run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """A batch that failed has a checkpoint."""
    return reconcile(run, progress, scan, BatchPlanned((9,)) if isinstance(outcome, PassFailed) else outcome)


def flags_at_the_last_batch(
    run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome
) -> ScanVerdict:
    """The first batch that is planned ends the scan."""
    return reconcile(run, progress, scan, CleanedUp() if isinstance(outcome, BatchPlanned) else outcome)


def keeps_its_checkpoint(run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """The checkpoint is left for a second write."""
    verdict = reconcile(run, progress, scan, outcome)
    if isinstance(verdict, WriteProgress) and isinstance(outcome, CleanedUp):
        return attrs.evolve(verdict, progress=attrs.evolve(verdict.progress, checkpoints=progress.checkpoints))
    return verdict


def whatever_the_history(run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """A run goes on after its history was lost."""
    return reconcile(ReconciliationRun(run.epoch, progress.history), progress, scan, outcome)


def drops_the_others(run: ReconciliationRun, progress: Progress, scan: Scan, outcome: PassOutcome) -> ScanVerdict:
    """There is one checkpoint, of whatever collection."""
    verdict = reconcile(run, progress, scan, outcome)
    if not isinstance(verdict, WriteProgress):
        return verdict
    own = verdict.progress.checkpoint(scan.collection)
    return WriteProgress(verdict.epoch, attrs.evolve(verdict.progress, checkpoints=() if own is None else (own,)))


def with_checkpoints(progress: Progress, history: int) -> Progress:
    """mongodash: lost history leaves the checkpoints."""
    return attrs.evolve(in_history(progress, history), checkpoints=progress.checkpoints)


def flags_by_name(progress: Progress, tasks: Tasks) -> tuple[Scan, ...]:
    """A flag counts whatever triggers its task."""
    names = {each.task for each in progress.reconciled}
    flags = frozenset(each for several in tasks.values() for each in several if each.task in names)
    return scans(attrs.evolve(progress, reconciled=flags), tasks)


def only_flags(progress: Progress, names: frozenset[str]) -> Progress:
    """A scan for more tasks than these goes on where it was, though nobody has looked at changes for all of them."""
    return attrs.evolve(of_tasks(progress, names), checkpoints=progress.checkpoints)


def only_the_flag(progress: Progress, _: str, task: str) -> Progress:
    """The flag is cleared, and the scan goes on where an earlier one was."""
    return attrs.evolve(progress, reconciled=frozenset(each for each in progress.reconciled if each.task != task))


def after_the_first(cell: Sweeps, epoch: int, now: Instant, interval: Duration) -> BeginSweep | SweepLater | SkipSweep:
    """mongodash: without a last time, the next one is an interval from now, for ever."""
    return SweepLater(now + interval) if cell.last is None else decide_sweep(cell, epoch, now, interval)


def believes_the_future(
    cell: Sweeps, epoch: int, now: Instant, interval: Duration
) -> BeginSweep | SweepLater | SkipSweep:
    """A last time in the future puts the next one off."""
    if cell.last is not None and now - cell.last < 0:
        return SweepLater(cell.last + interval)
    return decide_sweep(cell, epoch, now, interval)


def twice(cell: Sweeps, epoch: int, now: Instant, interval: Duration) -> BeginSweep | SweepLater | SkipSweep:
    """A sweep begins although one runs."""
    return decide_sweep(Sweeps(cell.last), epoch, now, interval)


def whoever_sweeps(cell: Sweeps, _: int, now: Instant, is_done: bool) -> Sweeps | SkipSweep:
    """The end of one sweep is that of another."""
    return Sweeps(now if is_done else cell.last)


def done_or_not(cell: Sweeps, epoch: int, now: Instant, _: bool) -> Sweeps | SkipSweep:
    """mongodash: errors of a sweep are swallowed."""
    return swept(cell, epoch, now, is_done=True)


@pytest.mark.parametrize(
    ("check", "law", "planted"),
    [
        (check_scans, "RL1", Parts(scans=by_name)),
        (check_scans, "RL1", Parts(scans=whatever_the_tasks)),
        (check_scans, "RL1", Parts(scans=from_the_start)),
        (check_interrupted, "RL6", Parts(scans=from_the_start)),
        (check_scans, "RL6", Parts(scans=for_all_tasks)),
        (check_scans, "RL6", Parts(scans=flags_by_name)),
        (check_interrupted, "RL2", Parts(reconcile=flags_whatever_happened)),
        (check_interrupted, "RL2", Parts(reconcile=passes_failures)),
        (check_interrupted, "RL2", Parts(reconcile=flags_at_the_last_batch)),
        (check_writes, "RL3", Parts(reconcile=flags_whatever_happened)),
        (check_writes, "RL3", Parts(reconcile=passes_failures)),
        (check_writes, "RL4", Parts(reconcile=keeps_its_checkpoint)),
        (check_writes, "RL5", Parts(reconcile=whatever_the_history)),
        (check_writes, "RL5", Parts(reconcile=drops_the_others)),
        (check_forgetting, "RL7", Parts(in_history=with_checkpoints)),
        (check_forgetting, "RL7", Parts(forgotten_task=only_the_flag)),
        (check_forgetting, "RL10", Parts(of_tasks=only_flags)),
        (check_sweeps, "RL8", Parts(decide_sweep=after_the_first)),
        (check_sweeps, "RL8", Parts(decide_sweep=believes_the_future)),
        (check_sweeps, "RL9", Parts(decide_sweep=twice)),
        (check_sweeps, "RL9", Parts(swept=whoever_sweeps)),
        (check_sweeps, "RL9", Parts(swept=done_or_not)),
    ],
)
def test_a_planted_bug_breaks_the_law(check: Callable[[Parts], None], law: str, planted: Parts) -> None:
    """Each law is broken by a small faulty variant."""
    with pytest.raises(AssertionError, match=law):
        check(planted)


# --- what it does, one by one -------------------------------------------------------------------------------------------


def test_a_scan_goes_on_behind_its_checkpoint() -> None:
    """mongodash, 34: checkpoint 24 with the same names, 25 and on; with other names, all of them."""
    assert scans(Progress(checkpoints=(HALF,)), BOTH) == (Scan("orders", frozenset({A, B}), HALF),)
    others = {"orders": frozenset({A, B, TaskTrigger("orders.c", 1)})}
    assert scans(Progress(checkpoints=(HALF,)), others) == (Scan("orders", others["orders"]),)
    assert scans(Progress(reconciled=frozenset({A, B})), BOTH) == ()


def test_a_trigger_that_changed_begins_from_the_start() -> None:
    """1 and 1.0 may mean another filter."""
    changed = {"orders": frozenset({A, TaskTrigger("orders.b", 1.0)})}
    assert scans(Progress(checkpoints=(HALF,)), changed) == (Scan("orders", changed["orders"]),)


def test_a_scan_ends_with_flags_and_without_a_checkpoint() -> None:
    """mongodash, 33 and 34: the flag is true afterwards, and the checkpoint is removed; in one write."""
    progress = Progress(checkpoints=(HALF,))
    (scan,) = scans(progress, BOTH)

    assert reconcile(RUN, progress, scan, BatchPlanned((25, 26))) == WriteProgress(
        1, Progress(checkpoints=(Checkpoint("orders", frozenset({A, B}), 26),))
    )
    assert reconcile(RUN, progress, scan, CleanedUp()) == WriteProgress(1, Progress(reconciled=frozenset({A, B})))
    assert reconcile(RUN, progress, scan, PassFailed()) == ScanAgain(scan)


def test_a_run_ends_with_its_history() -> None:
    """And where its tasks are reconciled by now: another run was there."""
    (scan,) = scans(Progress(), BOTH)
    assert reconcile(RUN, Progress(1), scan, CleanedUp()) == RunSuperseded()
    assert reconcile(RUN, Progress(reconciled=frozenset({A})), scan, CleanedUp()) == RunSuperseded()


def test_a_null_id_is_an_id() -> None:
    """The scan goes on behind it, and does not begin again."""
    (scan,) = scans(Progress(), BOTH)
    write = reconcile(RUN, Progress(), scan, BatchPlanned((None,)))
    assert isinstance(write, WriteProgress)
    assert scans(write.progress, BOTH)[0].after is not None


def test_scans_come_by_name() -> None:
    """One after the other, whatever the order of the tasks; a collection without tasks has none."""
    tasks = {"users": frozenset({TaskTrigger("u", 1)}), "none": frozenset[TaskTrigger](), **BOTH}
    assert [scan.collection for scan in scans(Progress(), tasks)] == ["orders", "users"]


def test_a_sweep_begins_a_day_after_the_last_one() -> None:
    """mongodash: 24 h; and at once where none has ended."""
    last = Instant(0)
    assert decide_sweep(Sweeps(last), 1, last + (DAY - 1)) == SweepLater(last + DAY)
    assert decide_sweep(Sweeps(last), 1, last + DAY) == BeginSweep(Sweeps(last, 1))
    assert decide_sweep(Sweeps(), 1, last) == BeginSweep(Sweeps(None, 1))


def test_the_epoch_is_the_lock_of_a_sweep() -> None:
    """The next leader takes over what an earlier one has left, and that one's end is not written."""
    cell, now = Sweeps(Instant(0), 2), Instant(9)
    assert decide_sweep(cell, 2, now, 5) == SkipSweep(WhyNoSweep.RUNNING)
    assert decide_sweep(cell, 1, now, 5) == SkipSweep(WhyNoSweep.FENCED)
    assert decide_sweep(cell, 3, now, 5) == BeginSweep(Sweeps(Instant(0), 3))
    assert swept(cell, 2, now, is_done=True) == Sweeps(now)
    assert swept(cell, 2, now, is_done=False) == Sweeps(Instant(0))
    assert swept(cell, 1, now, is_done=True) == SkipSweep(WhyNoSweep.FENCED)
    assert swept(cell, 3, now, is_done=True) == SkipSweep(WhyNoSweep.ENDED)
    assert swept(Sweeps(), 3, now, is_done=True) == SkipSweep(WhyNoSweep.ENDED)


def test_what_is_decided_prints_on_one_line() -> None:
    """For logs."""
    assert str(Scan("orders", frozenset({A, B}))) == "scan orders for orders.a, orders.b from the start"
    assert str(Scan("orders", frozenset({A, B}), HALF)) == "scan orders for orders.a, orders.b after 24"
    assert str(HALF) == "orders up to 24"
    assert str(SkipSweep(WhyNoSweep.RUNNING)) == "leave: a sweep of this epoch runs"


MODULE: Final[Any] = reconciliation
"""The same, for what the type checkers refuse."""


@pytest.mark.parametrize(
    "construct",
    [
        lambda: MODULE.TaskTrigger("", 1),
        lambda: MODULE.TaskTrigger("a", [1]),
        lambda: MODULE.Checkpoint("orders", {A}, 1),
        lambda: MODULE.Checkpoint("orders", frozenset({1}), 1),
        lambda: MODULE.Checkpoint("orders", frozenset({A, TaskTrigger("orders.a", 2)}), 1),
        lambda: MODULE.Checkpoint("orders", frozenset({A}), object()),
        lambda: MODULE.Progress(-1),
        lambda: MODULE.Progress(0, {A}),
        lambda: MODULE.Progress(0, frozenset({A, TaskTrigger("orders.a", 2)})),
        lambda: MODULE.Progress(0, frozenset({1})),
        lambda: MODULE.Progress(0, frozenset(), (HALF, HALF)),
        lambda: MODULE.Progress(0, frozenset(), [HALF]),
        lambda: MODULE.BatchPlanned(()),
        lambda: MODULE.BatchPlanned([1]),
        lambda: MODULE.BatchPlanned((object(),)),
        lambda: MODULE.ReconciliationRun(0, 0),
        lambda: MODULE.scans(None, BOTH),
        lambda: MODULE.scans(Progress(), [A]),
        lambda: MODULE.scans(Progress(), {"orders": {A}}),
        lambda: MODULE.reconcile(None, Progress(), Scan("orders", frozenset({A})), PassFailed()),
        lambda: MODULE.reconcile(RUN, Progress(), Scan("orders", frozenset({A})), None),
        lambda: MODULE.in_history(None, 1),
        lambda: MODULE.of_tasks(None, ()),
        lambda: MODULE.of_tasks(Progress(), 1),
        lambda: MODULE.in_history(Progress(), -1),
        lambda: MODULE.forgotten_task(Progress(), "orders", None),
        lambda: MODULE.Sweeps(0),
        lambda: MODULE.Sweeps(None, 0),
        lambda: decide_sweep(Sweeps(), 0, Instant(0)),
        lambda: decide_sweep(Sweeps(), 1, Instant(0), -1),
        lambda: decide_sweep(Sweeps(Instant(0)), 1, Instant(0, WALL)),
        lambda: MODULE.swept(Sweeps(), 1, Instant(0), is_done=1),
    ],
)
def test_what_means_nothing_is_refused(construct: Callable[[], object]) -> None:
    """Two triggers of a task, a checkpoint of another scan, other types, and two clocks."""
    with pytest.raises(Misuse):
        _ = construct()
