"""Decisions with a bug in each, most of them mongodash's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from tests.properties.reactive.tasks.made import at, doc

from tidegate.model.instants import MILLISECOND, Instant
from tidegate.reactive import tasks
from tidegate.reactive.snapshot import NotComputed
from tidegate.reactive.task_records import PROCESSED, Guard, TaskRecord, TaskStatus
from tidegate.reactive.tasks import (
    Adopt,
    BeginVerdict,
    CannotRun,
    Claim,
    Claimed,
    ClaimVerdict,
    Deferred,
    Failed,
    Go,
    HandlerOutcome,
    InsertRecord,
    Leave,
    Matching,
    NextAttempt,
    PlanVerdict,
    Seen,
    TaskRules,
    TryAgain,
    UpdateRecord,
    Why,
    WhyNot,
)


def rewritten(verdict: Any, change: Callable[[TaskRecord], TaskRecord]) -> Any:
    """The verdict, writing something else."""
    match verdict:
        case InsertRecord() | UpdateRecord():
            return attrs.evolve(verdict, record=change(verdict.record))
        case Claimed() | Adopt() | CannotRun():
            return attrs.evolve(verdict, write=rewritten(verdict.write, change))
        case _:
            return verdict


def with_other(verdict: Any, **fields: Any) -> Any:
    return rewritten(verdict, lambda record: attrs.evolve(record, **fields))


def not_while_processed(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """A change is not looked at while the record is processed."""
    if record is not None and record.status in PROCESSED:
        return Leave(WhyNot.UNCHANGED)
    return tasks.plan(record, seen, **rest)


def with_the_old_snapshot(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """The record is due, and what was seen is not kept."""
    verdict = tasks.plan(record, seen, **rest)
    return verdict if record is None or record.snapshot is None else with_other(verdict, snapshot=record.snapshot)


def computed_or_not(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """What cannot be computed is taken for an empty snapshot."""
    return tasks.plan(record, Matching(doc()) if isinstance(seen, NotComputed) else seen, **rest)


def never_leaving(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """mongodash: leaving the filter writes nothing."""
    is_there = isinstance(seen, (Matching, NotComputed))
    return tasks.plan(record, seen, **rest) if is_there else Leave(WhyNot.NOT_MATCHING)


def without_a_trace(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """A look that finds nothing changed writes nothing, also while the record is processed."""
    verdict = tasks.plan(record, seen, **rest)
    return Leave(WhyNot.UNCHANGED) if isinstance(verdict, UpdateRecord) and verdict.why is Why.LOOKED_AT else verdict


def completed_at_sight(record: TaskRecord | None, seen: Seen, **rest: Any) -> Any:
    """What is pending and no longer matches is completed by the look itself."""
    verdict = tasks.plan(record, seen, **rest)
    is_over = (
        isinstance(verdict, UpdateRecord) and verdict.why is Why.LEFT and verdict.record.status is TaskStatus.PENDING
    )
    return with_other(verdict, status=TaskStatus.COMPLETED, next_run_at=None) if is_over else verdict


def for_ever_later(
    record: TaskRecord | None, seen: Seen, *, rules: TaskRules, now: Instant, new_id: str
) -> PlanVerdict:
    """mongodash: each change starts the wait again, without a maximum."""
    again = None if record is None else attrs.evolve(record, waiting_since=now if record.waiting_since else None)
    whole = Instant(now.at - now.at % MILLISECOND)
    record = again if again is None or again.waiting_since is None else attrs.evolve(again, waiting_since=whole)
    return tasks.plan(record, seen, rules=rules, now=now, new_id=new_id)


def over_any_wait(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """mongodash: a change brings a retry forward in every case."""
    rest["rules"] = attrs.evolve(rest["rules"], resets_on_change=True)
    return tasks.plan(record, seen, **rest)


def after_any_wait(record: TaskRecord | None, seen: Seen, **rest: Any) -> PlanVerdict:
    """Ours: a change is held back until whatever was due before it, a deferral included."""
    if record is not None and record.status is TaskStatus.PENDING:
        record = attrs.evolve(record, retry_at=record.next_run_at)
    return tasks.plan(record, seen, **rest)


def by_id_alone(decision: Callable[..., Any], record: TaskRecord | None, claim: Claim, *args: Any, **rest: Any) -> Any:
    """mongodash: neither owner nor token are looked at, only whether it is processed."""
    if record is not None and record.owner is not None:
        claim = Claim(record.id, record.owner, record.token, None, 1, None)
    return decision(record, claim, *args, **rest)


def whoever_owns(decision: Callable[..., Any], record: TaskRecord | None, claim: Claim, *args: Any, **rest: Any) -> Any:
    """The owner is looked at, and not the token: a worker that took it twice holds it under both claims (A-B-A)."""
    if record is not None and record.owner == claim.owner:
        claim = attrs.evolve(claim, id=record.id, token=record.token)
    return decision(record, claim, *args, **rest)


def unchecked(record: TaskRecord | None, claim: Claim, seen: Seen, **rest: Any) -> BeginVerdict:
    """mongodash: the handler runs with what was claimed, before anybody looks."""
    del seen
    held = tasks.renew(record, claim, **rest)
    return held if isinstance(held, Leave) else Go(claim)


def remembering(record: TaskRecord | None, claim: Claim, seen: Seen, **rest: Any) -> Any:
    """What cannot be computed leaves the snapshot as it was."""
    verdict = tasks.begin(record, claim, seen, **rest)
    return with_other(verdict, snapshot=claim.snapshot) if isinstance(verdict, CannotRun) else verdict


def whatever_is_written(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any
) -> UpdateRecord | Leave:
    """A change while it was processed is not looked at."""
    if record is not None and record.status is TaskStatus.PROCESSING_DIRTY:
        clean = attrs.evolve(record, status=TaskStatus.PROCESSING)
        return tasks.finalise(clean, claim, outcome, **rest)
    return tasks.finalise(record, claim, outcome, **rest)


def counted_at_the_end(record: TaskRecord, **rest: Any) -> Any:
    """A claim counts nothing, so a handler that kills its process runs for ever."""
    return with_other(tasks.claim(record, **rest), attempts=record.attempts)


def zeroed(record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any) -> UpdateRecord | Leave:
    """mongodash: a deferral zeroes the attempts."""
    verdict = tasks.finalise(record, claim, outcome, **rest)
    return with_other(verdict, attempts=0) if isinstance(outcome, Deferred) else verdict


def not_counted_if_dirty(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any
) -> UpdateRecord | Leave:
    """mongodash: what has changed while it was processed has its attempts zeroed, also where changes are not to do so."""
    verdict = tasks.finalise(record, claim, outcome, **rest)
    is_again = isinstance(verdict, UpdateRecord) and verdict.why is Why.RUNS_AGAIN
    return with_other(verdict, attempts=0) if is_again else verdict


def same_version(record: TaskRecord, **rest: Any) -> Any:
    """A claim makes no version."""
    return with_other(tasks.claim(record, **rest), version=record.version)


def same_token(record: TaskRecord, **rest: Any) -> ClaimVerdict:
    """What was lost is taken over under the same token."""
    verdict = tasks.claim(record, **rest)
    return with_other(verdict, token=record.token) if record.token else verdict


def forgetful_claim(record: TaskRecord, **rest: Any) -> ClaimVerdict:
    """The run does not get the snapshot."""
    verdict = tasks.claim(record, **rest)
    return (
        attrs.evolve(verdict, claim=attrs.evolve(verdict.claim, snapshot=None))
        if isinstance(verdict, Claimed)
        else verdict
    )


def whenever(record: TaskRecord, *, now: Instant, **rest: Any) -> ClaimVerdict:
    """mongodash: what is finished has no time, so a time that a late renewal wrote makes it due; here none is needed."""
    del now
    return tasks.claim(record, now=at(10**6), **rest)


def one_later(record: TaskRecord, *, now: Instant, **rest: Any) -> ClaimVerdict:
    """What is due at this instant is not due yet."""
    return tasks.claim(record, now=now + -1, **rest)


def never_asking(record: TaskRecord, *, lapsed: NextAttempt | None, **rest: Any) -> ClaimVerdict:
    """mongodash: what was lost runs again, however often."""
    del lapsed
    return tasks.claim(record, lapsed=TryAgain(at(0)), **rest)


def guarded_by_id(record: TaskRecord, **rest: Any) -> UpdateRecord:
    """mongodash: a write is guarded by the id alone."""
    return attrs.evolve(tasks.reset(record, **rest), on=Guard(record.id, 1, None, 0))


def kept_when_it_left(record: TaskRecord | None, claim: Claim, seen: Seen, **rest: Any) -> Any:
    """What left is completed, and what it was is remembered: what comes back is taken for what was run."""
    verdict = tasks.begin(record, claim, seen, **rest)
    if isinstance(verdict, UpdateRecord) and record is not None and record.snapshot is not None:
        return with_other(verdict, snapshot=record.snapshot)
    return verdict


def at_once(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, *, now: Instant, **rest: Any
) -> UpdateRecord | Leave:
    """What the policy says is not looked at."""
    verdict = tasks.finalise(record, claim, outcome, now=now, **rest)
    is_pending = isinstance(verdict, UpdateRecord) and verdict.record.status is TaskStatus.PENDING
    return with_other(verdict, next_run_at=Instant(now.at - now.at % MILLISECOND)) if is_pending else verdict


def when_it_was_deferred(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any
) -> UpdateRecord | Leave:
    """Ours: what has changed while it was processed waits for a deferral that was asked for what was there before."""
    verdict = tasks.finalise(record, claim, outcome, **rest)
    if not isinstance(outcome, Deferred):
        return verdict
    until = Instant(outcome.until.at - outcome.until.at % MILLISECOND)
    return with_other(verdict, next_run_at=until) if verdict.why is Why.RUNS_AGAIN else verdict


def never_giving_up(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any
) -> UpdateRecord | Leave:
    """A failure is tried again, whatever the policy says."""
    if isinstance(outcome, Failed):
        outcome = attrs.evolve(outcome, retry=TryAgain(at(1)))
    return tasks.finalise(record, claim, outcome, **rest)


def each_failure_begins_one(record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any) -> Any:
    """A streak that begins anew with each failure never comes to its maximum duration."""
    fresh = None if record is None else attrs.evolve(record, first_error_at=None)
    return tasks.finalise(fresh, claim, outcome, **rest)


def without_a_beginning(record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any) -> Any:
    """Nobody knows since when it has failed, so a policy with a maximum duration never gives up."""
    verdict = tasks.finalise(record, claim, outcome, **rest)
    return with_other(verdict, first_error_at=None if record is None else record.first_error_at)


def lost_without_a_trace(record: TaskRecord, **rest: Any) -> Any:
    """A lease that ran out is not a failure where something has changed as well."""
    verdict = tasks.claim(record, **rest)
    if record.status is not TaskStatus.PROCESSING_DIRTY:
        return verdict
    return with_other(verdict, first_error_at=record.first_error_at, last_error=record.last_error)


def with_the_error(record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any) -> Any:
    """A success leaves the last error."""
    verdict = tasks.finalise(record, claim, outcome, **rest)
    return verdict if record is None else with_other(verdict, last_error=record.last_error)


def all_of_them(record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any) -> UpdateRecord | Leave:
    """The history grows without end."""
    rest["rules"] = attrs.evolve(rest["rules"], history_max=99)
    return tasks.finalise(record, claim, outcome, **rest)


def the_first_ones(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, **rest: Any
) -> UpdateRecord | Leave:
    """A full history takes nothing more."""
    full = record is not None and len(record.history) >= rest["rules"].history_max
    verdict = tasks.finalise(record, claim, outcome, **rest)
    return with_other(verdict, history=record.history) if full and record is not None else verdict


def to_the_microsecond(record: TaskRecord, *, now: Instant) -> Any:
    """Times are written as they were read."""
    return with_other(tasks.reset(record, now=now), changed_at=now)


def rounded_down(record: TaskRecord | None, seen: Seen, **rest: Any) -> Any:
    """Part of a millisecond of quiet is lost."""

    def early(record: TaskRecord) -> TaskRecord:
        return attrs.evolve(record, due_at=record.due_at + -MILLISECOND)

    return rewritten(tasks.plan(record, seen, **rest), early)
