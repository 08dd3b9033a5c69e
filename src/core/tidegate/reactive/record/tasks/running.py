"""The decisions of a worker about a record: claim it, begin its run, renew its lease, finalise it."""

from __future__ import annotations

from types import NoneType
from typing import assert_never

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.values import check_name, check_type
from tidegate.reactive.record.debounce import due
from tidegate.reactive.record.snapshot import NotComputed, remembered
from tidegate.reactive.record.task_records import PROCESSED, Ended, Guard, RunEnd, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks._common import counted_anew, is_same, later, rounded_down, rounded_up
from tidegate.reactive.record.tasks.vocabulary import (
    Adopt,
    BeginVerdict,
    CannotRun,
    Claim,
    Claimed,
    ClaimVerdict,
    Deferred,
    Failed,
    GiveUp,
    Go,
    Gone,
    HandlerOutcome,
    InsertRecord,
    Lapsed,
    Leave,
    Matching,
    NextAttempt,
    NotMatching,
    Seen,
    Succeeded,
    TaskRules,
    TryAgain,
    UpdateRecord,
    Wait,
    Why,
    WhyNot,
)

# --- claim, begin, renew ----------------------------------------------------------------------------------------------


def claim(
    record: TaskRecord, *, worker: str, rules: TaskRules, now: Instant, lapsed: NextAttempt | None = None
) -> ClaimVerdict:
    """Decide whether a worker may run a record now.

    Args:
        record: The record as read.
        worker: The worker; its name differs for each process that may run at a time.
        rules: How the task runs.
        now: The store's time.
        lapsed: The policy's verdict on the run whose lease has ended, if the verdict was `Lapsed`.
            Its
            retry time does not matter: the lease was the wait.

    Returns:
        `Claimed` with the write and the run; `Lapsed` if the policy must be asked; `UpdateRecord`
        if it
        gives up; `Wait` for a record that is not due or held; `Leave` for a finished one.

    Raises:
        Misuse: An argument has a wrong type or is empty, or the clocks differ.
    """
    check_type(record, TaskRecord, "a record")
    check_type(rules, TaskRules, "the rules of a task")
    check_type(now, Instant, "the time")
    check_type(lapsed, (TryAgain, GiveUp, NoneType), "what the policy says")
    check_name(worker, "a worker")
    if record.next_run_at is None:
        return Leave(WhyNot.FINISHED)
    if now - record.next_run_at < 0:
        return Wait(WhyNot.NOT_DUE if record.owner is None else WhyNot.HELD, record.next_run_at)
    if record.owner is None:
        return _claimed(record.guard, record, worker=worker, rules=rules, now=now, why=Why.DUE)
    failing = _failing(_ended(record, _run(record, Ended.LOST, now), rules), now, Ended.LOST.value)
    if record.status is TaskStatus.PROCESSING_DIRTY:  # the change has not been run with yet
        return _claimed(record.guard, failing, worker=worker, rules=rules, now=now, why=Why.TAKEN_OVER)
    match lapsed:
        case None:
            return Lapsed(record.attempts, _failing_since(record, now))
        case GiveUp():
            return UpdateRecord(record.guard, attrs.evolve(failing, status=TaskStatus.FAILED), Why.GIVEN_UP)
        case TryAgain():
            return _claimed(record.guard, failing, worker=worker, rules=rules, now=now, why=Why.TAKEN_OVER)
        case _:
            assert_never(lapsed)


def _claimed(on: Guard, record: TaskRecord, *, worker: str, rules: TaskRules, now: Instant, why: Why) -> Claimed:
    after = attrs.evolve(
        record,
        version=on.version + 1,
        status=TaskStatus.PROCESSING,
        next_run_at=rounded_up(now + rules.lease),
        waiting_since=None,
        retry_at=None,
        attempts=record.attempts + 1,
        token=record.token + 1,
        owner=worker,
        claimed_at=rounded_down(now),
    )
    return Claimed(UpdateRecord(on, after, why), claim_of(after))


def claim_planned(
    verdict: InsertRecord | UpdateRecord, *, worker: str, rules: TaskRules, now: Instant
) -> InsertRecord | UpdateRecord:
    """A planner's write that also claims the due record for a worker beside it, as one version.

    Args:
        verdict: The write after a look at a document.
        worker: Its future owner, as for `claim`.
        rules: How the task runs.
        now: The store's time of the look.

    Returns:
        The verdict, with the record under a claim if `claim` would grant one after the write and no
        run
        held it.

    Raises:
        Misuse: An argument has a wrong type or is empty, or the clocks differ.
    """
    check_type(verdict, (InsertRecord, UpdateRecord), "what a planner writes")
    if verdict.record.owner is not None:
        return verdict
    claimed = claim(verdict.record, worker=worker, rules=rules, now=now)
    if not isinstance(claimed, Claimed):
        return verdict
    return attrs.evolve(verdict, record=attrs.evolve(claimed.write.record, version=verdict.record.version))


def claim_of(record: TaskRecord) -> Claim:
    """The claim under which a record is processed.

    Raises:
        Misuse: It is not a record, or not processed.
    """
    check_type(record, TaskRecord, "a record")
    if record.owner is None:
        raise Misuse(f"{record.status.value}, so under no claim", todo="ask for the claim of what is processed")
    return Claim(record.id, record.owner, record.token, record.snapshot, record.attempts, record.first_error_at)


def begin(record: TaskRecord | None, claim: Claim, seen: Seen, *, rules: TaskRules, now: Instant) -> BeginVerdict:
    """Decide whether the handler runs under a claim, now that its document was read.

    Args:
        record: The record, read BEFORE the document and AFTER the claim; the one written for the
            claim
            will do. None if there is none.
        claim: The run.
        seen: The document as read.
        rules: How the task runs.
        now: The store's time.

    Returns:
        `Go`; `Adopt` with the write and the run for newer values than claimed; `UpdateRecord`,
        which
        completes a record that no longer matches; `CannotRun` if a watched value cannot be
        computed;
        `Leave` for a stale claim.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    check_type(seen, (Matching, NotMatching, Gone, NotComputed), "what was seen")
    held = _held(record, claim, rules, now)
    if isinstance(held, Leave):
        return held
    match seen:
        case NotComputed():
            forgotten = attrs.evolve(held, version=held.version + 1, snapshot=None)
            return CannotRun(UpdateRecord(held.guard, forgotten, Why.NOT_COMPUTED), seen)
        case NotMatching() | Gone():
            over = _without_streak(_ended(held, _run(held, Ended.SKIPPED, now), rules))
            left = attrs.evolve(over, snapshot=None, changed_at=rounded_down(now), waiting_since=None)
            return UpdateRecord(held.guard, left, Why.LEFT)
        case Matching(snapshot):
            is_known = is_same(held.snapshot, snapshot)
            if is_known and held.status is TaskStatus.PROCESSING:
                return Go(claim_of(held))
            resets = rules.resets_on_change and not is_known
            after = attrs.evolve(
                counted_anew(held) if resets else held,
                version=held.version + 1,
                status=TaskStatus.PROCESSING,
                snapshot=remembered(snapshot, rules.snapshot_bytes_max),
                changed_at=held.changed_at if is_known else rounded_down(now),
                waiting_since=None,
                attempts=1 if resets else max(held.attempts, 1),
            )
            return Adopt(UpdateRecord(held.guard, after, Why.LATEST), claim_of(after))
        case _:
            assert_never(seen)


def renew(record: TaskRecord | None, claim: Claim, *, rules: TaskRules, now: Instant) -> UpdateRecord | Leave:
    """Decide whether a run may go on.

    Args:
        record: The record as read; None if there is none.
        claim: The run.
        rules: How the task runs.
        now: The store's time.

    Returns:
        `UpdateRecord` with a lease from now on, never a shorter one; `Leave` for a stale claim,
        whose
        handler should stop. An expired lease that no worker has taken over is renewed too.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    held = _held(record, claim, rules, now)
    if isinstance(held, Leave):
        return held
    lease = rounded_up(now + rules.lease)
    until = lease if held.next_run_at is None else later(held.next_run_at, lease)
    return UpdateRecord(held.guard, attrs.evolve(held, version=held.version + 1, next_run_at=until), Why.RENEWED)


def finalise(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, *, rules: TaskRules, now: Instant
) -> UpdateRecord | Leave:
    """Decide what the end of a run writes.

    Args:
        record: The record as read; None if there is none.
        claim: The run.
        outcome: How it ended.
        rules: How the task runs.
        now: The store's time.

    Returns:
        `UpdateRecord`, or `Leave` for a stale claim, also one that was finalised before.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    check_type(outcome, (Succeeded, Failed, Deferred), "the end of a run")
    held = _held(record, claim, rules, now)
    if isinstance(held, Leave):
        return held
    over = _over(held, outcome, rules, now)
    # A change during the run comes first: the end then completes nothing and fails nothing (RE3).
    if held.status is TaskStatus.PROCESSING_DIRTY:
        again = _pending_again(held, over, outcome, rules)
        counted = 0 if isinstance(outcome, Succeeded) else again.attempts  # a success ends the streak
        return UpdateRecord(held.guard, attrs.evolve(again, attempts=counted), Why.RUNS_AGAIN)
    match outcome:
        case Succeeded():
            return UpdateRecord(held.guard, over, Why.SUCCEEDED)
        case Deferred(until):
            return UpdateRecord(held.guard, _pending(over, until), Why.DEFERRED)
        case Failed(_, TryAgain(at)):
            return UpdateRecord(held.guard, _pending(over, at, retry_at=at), Why.RETRIED)
        case Failed():
            return UpdateRecord(held.guard, attrs.evolve(over, status=TaskStatus.FAILED), Why.GIVEN_UP)
        case _:
            assert_never(outcome)


def _over(held: TaskRecord, outcome: HandlerOutcome, rules: TaskRules, now: Instant) -> TaskRecord:
    """The record after its run, with the outcome's effect on attempts; completed unless the caller
    changes that.
    """
    match outcome:
        case Succeeded():
            run = _run(held, Ended.SUCCEEDED, now)
            return attrs.evolve(_without_streak(_ended(held, run, rules)), last_success=run)
        case Failed(error):
            return _failing(_ended(held, _run(held, Ended.FAILED, now, error), rules), now, error)
        case Deferred():
            over = _ended(held, _run(held, Ended.SKIPPED, now), rules)
            return attrs.evolve(over, attempts=max(held.attempts - 1, 0), history=held.history)
        case _:
            assert_never(outcome)


def _pending_again(held: TaskRecord, over: TaskRecord, outcome: HandlerOutcome, rules: TaskRules) -> TaskRecord:
    """The record after a change during its run. A deferral was about the old values."""
    first = held.changed_at if held.waiting_since is None else held.waiting_since
    when = rounded_up(due(rules.debounce, first, held.changed_at))
    match outcome:
        case Failed(_, TryAgain(at)) if held.attempts:  # without, it was reset while it ran
            return _pending(over, later(when, rounded_up(at)), retry_at=at)
        case _:
            return _pending(over, when)


def _held(record: TaskRecord | None, claim: Claim, rules: TaskRules, now: Instant) -> TaskRecord | Leave:
    """The record if the claim holds it, or why it does not."""
    check_type(record, (TaskRecord, NoneType), "a record")
    check_type(claim, Claim, "a claim")
    check_type(rules, TaskRules, "the rules of a task")
    check_type(now, Instant, "the time")
    if record is None:
        return Leave(WhyNot.NO_RECORD)
    if record.id != claim.id:
        return Leave(WhyNot.ANOTHER_RECORD)
    if record.token != claim.token:
        return Leave(WhyNot.ANOTHER_CLAIM)
    if record.status not in PROCESSED:
        return Leave(WhyNot.ENDED)
    return record if record.owner == claim.owner else Leave(WhyNot.ANOTHER_CLAIM)


def _ended(record: TaskRecord, run: RunEnd, rules: TaskRules) -> TaskRecord:
    """The record after a run: completed, next version, whatever the end."""
    history = (*record.history, run)
    return attrs.evolve(
        record,
        version=record.version + 1,
        status=TaskStatus.COMPLETED,
        next_run_at=None,
        owner=None,
        finalised_at=run.at,
        history=history[max(len(history) - rules.history_max, 0) :],
    )


def _run(record: TaskRecord, ended: Ended, now: Instant, error: str | None = None) -> RunEnd:
    began = now if record.claimed_at is None else record.claimed_at
    return RunEnd(record.token, ended, rounded_down(now), max(now - began, 0), error)


def _pending(over: TaskRecord, at: Instant, *, retry_at: Instant | None = None) -> TaskRecord:
    until = None if retry_at is None else rounded_up(retry_at)
    return attrs.evolve(over, status=TaskStatus.PENDING, next_run_at=rounded_up(at), retry_at=until)


def _failing(record: TaskRecord, now: Instant, error: str) -> TaskRecord:
    """The record with one more failure in its streak; a change or reset during the run has ended
    the streak (no attempts).
    """
    if not record.attempts:
        return record
    return attrs.evolve(record, first_error_at=_failing_since(record, now), last_error=error)


def _failing_since(record: TaskRecord, now: Instant) -> Instant:
    return rounded_down(now) if record.first_error_at is None else record.first_error_at


def _without_streak(record: TaskRecord) -> TaskRecord:
    if record.first_error_at is None and record.last_error is None:
        return record
    return attrs.evolve(record, first_error_at=None, last_error=None)
