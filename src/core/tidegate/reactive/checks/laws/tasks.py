"""The laws of `tidegate.reactive.record.tasks`, over decisions, and over a journal of looks and
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import equal
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.reactive.record.debounce import due
from tidegate.reactive.record.snapshot import Kept, NotComputed, Unchanged, changed
from tidegate.reactive.record.task_records import PROCESSED, Ended, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import (
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
    HandlerOutcome,
    InsertRecord,
    Lapsed,
    Leave,
    Matching,
    PlanVerdict,
    Seen,
    Succeeded,
    TaskRules,
    TryAgain,
    UpdateRecord,
    Wait,
    Why,
    claim,
)

TaskVerdict: TypeAlias = PlanVerdict | ClaimVerdict | BeginVerdict
"""The verdict of any decision."""

_END_A_STREAK: Final = frozenset({Why.SUCCEEDED, Why.LEFT, Why.RESET, Why.CHANGED, Why.LATEST, Why.RUNS_AGAIN})
_BEGIN_A_STREAK: Final = frozenset({Why.RETRIED, Why.GIVEN_UP, Why.TAKEN_OVER, Why.RUNS_AGAIN})


def write_of(verdict: TaskVerdict) -> InsertRecord | UpdateRecord | None:
    """The record that the verdict writes, if any."""
    match verdict:
        case InsertRecord() | UpdateRecord():
            return verdict
        case Claimed(write, _) | Adopt(write, _) | CannotRun(write, _):
            return write
        case _:
            return None


def carried_out(verdict: TaskVerdict, current: TaskRecord | None) -> TaskRecord | None:
    """The record after the store applied the verdict: in one step, and only if unchanged."""
    match write_of(verdict):
        case InsertRecord(record, _) if current is None:
            return record
        case UpdateRecord(on, record, _) if current is not None and current.guard == on:
            return record
        case _:
            return current


# --- single decisions -------------------------------------------------------------------------------------------------


def no_change_is_lost(before: TaskRecord | None, seen: Seen, verdict: PlanVerdict) -> bool:
    """Law RE1: a seen change is due, now or after the run, with the seen values."""
    write = write_of(verdict)
    if isinstance(seen, NotComputed):
        return write is None
    if before is None:
        return isinstance(write, InsertRecord) == isinstance(seen, Matching)
    if _differs(before.snapshot, seen):
        is_due = write is not None and write.record.status in (TaskStatus.PENDING, TaskStatus.PROCESSING_DIRTY)
        return is_due and write is not None and not _differs(write.record.snapshot, seen)
    return (write is not None) == (before.status in PROCESSED)


def forgets_what_cannot_be_computed(seen: Seen, verdict: BeginVerdict) -> bool:
    """Law RE1, of a run that cannot begin: any value that can be computed later is a change."""
    if not isinstance(seen, NotComputed) or isinstance(verdict, Leave):
        return True
    return isinstance(verdict, CannotRun) and verdict.write.record.snapshot is None


def claims_the_latest(before: TaskRecord, verdict: ClaimVerdict) -> bool:
    """Law RE2, of a claim: it runs with the last seen values."""
    return not isinstance(verdict, Claimed) or _same_snapshot(verdict.claim.snapshot, before.snapshot)


def begins_with_what_is_there(seen: Seen, verdict: BeginVerdict) -> bool:
    """Law RE2, of a begin: the handler runs with the document's current, known values."""
    if isinstance(verdict, (Go, Adopt)):
        return isinstance(seen, Matching) and not _differs(verdict.claim.snapshot, seen)
    return isinstance(verdict, Leave) or not isinstance(seen, Matching)


def runs_again_after_a_change(before: TaskRecord, verdict: UpdateRecord | Leave) -> bool:
    """Law RE3: the end of a run whose record is dirty leaves it pending, with the last seen values."""
    if before.status is not TaskStatus.PROCESSING_DIRTY or isinstance(verdict, Leave):
        return True
    return verdict.record.status is TaskStatus.PENDING and _same_snapshot(verdict.record.snapshot, before.snapshot)


def stale_runs_change_nothing(before: TaskRecord | None, claim: Claim, verdict: BeginVerdict) -> bool:
    """Law RE4: only the claim that holds the record gets another verdict than `Leave`."""
    return isinstance(verdict, Leave) == (before is None or not _holds(claim, before))


def counts_attempts_at_claim(before: TaskRecord | None, verdict: TaskVerdict) -> bool:
    """Law RE5: a claim counts one attempt, which stays counted unless the run is deferred."""
    write = write_of(verdict)
    if write is None or before is None:
        return write is None or write.record.attempts == 0
    attempts = write.record.attempts
    match write.why:
        case Why.DUE | Why.TAKEN_OVER:
            return attempts == before.attempts + 1
        case Why.DEFERRED:
            return attempts == max(before.attempts - 1, 0)
        case Why.CHANGED | Why.RESET | Why.LEFT:
            return attempts in (0, before.attempts)
        case Why.RUNS_AGAIN:
            return attempts <= before.attempts
        case Why.LATEST:
            return attempts in (1, before.attempts) and attempts > 0
        case _:
            return attempts == before.attempts


def counts_the_end(before: TaskRecord, outcome: HandlerOutcome, verdict: UpdateRecord | Leave) -> bool:
    """Law RE5, of the end of a run: a failure counts, a deferral does not, a success resets the
    count.
    """
    if isinstance(verdict, Leave):
        return True
    match outcome:
        case Failed():
            return verdict.record.attempts == before.attempts
        case Deferred():
            return verdict.record.attempts == max(before.attempts - 1, 0)
        case _:
            return verdict.record.attempts == (before.attempts if verdict.why is Why.SUCCEEDED else 0)


def what_comes_back_is_another(before: TaskRecord | None, verdict: TaskVerdict) -> bool:
    """Law RE6: a write makes one version, a claim makes one token, and a record keeps its id."""
    write = write_of(verdict)
    if write is None:
        return True
    after = write.record
    if before is None:
        return (after.version, after.token) == (1, 0)
    tokens = int(isinstance(verdict, Claimed))
    return (after.id, after.version, after.token) == (before.id, before.version + 1, before.token + tokens)


def is_guarded(before: TaskRecord | None, verdict: TaskVerdict) -> bool:
    """Law RE7: a write is guarded by the id, version, owner and token that its decision read."""
    write = write_of(verdict)
    if write is None or before is None:
        return write is None or isinstance(write, InsertRecord)
    known = (before.id, before.version, before.owner, before.token)
    return isinstance(write, UpdateRecord) and known == (write.on.id, write.on.version, write.on.owner, write.on.token)


def takes_what_is_due(before: TaskRecord, now: Instant, verdict: ClaimVerdict) -> bool:
    """Law RE8: a record is taken if and only if it is due, not held and not finished."""
    is_due = before.next_run_at is not None and now - before.next_run_at >= 0
    return is_due == (not isinstance(verdict, (Wait, Leave)))


def claims_as_if_planned_before(
    planned: InsertRecord | UpdateRecord, now: Instant, rules: TaskRules, after: InsertRecord | UpdateRecord
) -> bool:
    """Law RE15: a due record that no run holds becomes what a claim would make of it, one version
    earlier; others stay.

    Args:
        planned: The planner's write.
        now: Its time.
        rules: How the task runs.
        after: The write in its place.
    """
    due_at, record = planned.record.next_run_at, after.record
    if planned.record.owner is not None or due_at is None or now - due_at < 0:
        return after == planned
    if record.owner is None:
        return False
    claimed = claim(planned.record, worker=record.owner, rules=rules, now=now)
    as_claimed = attrs.evolve(record, version=record.version + 1)
    return isinstance(claimed, Claimed) and claimed.write.record == as_claimed and after.why is planned.why


def completes_what_left(seen: Seen, verdict: BeginVerdict) -> bool:
    """Law RE9: a record that does not match when its handler would run is completed, without a
    snapshot.
    """
    if isinstance(seen, (Matching, NotComputed)) or isinstance(verdict, Leave):
        return True
    write = write_of(verdict)
    return isinstance(verdict, UpdateRecord) and write is not None and _is_forgotten(write.record)


def is_due_as_debounced(before: TaskRecord | None, rules: TaskRules, now: Instant, verdict: PlanVerdict) -> bool:
    """Law RE10: a change is due by its debounce; if it does not reset, no earlier than a retry."""
    write = write_of(verdict)
    if write is None or write.why is Why.LOOKED_AT:
        return True
    after, waiting = write.record, None if before is None else before.waiting_since
    when = _rounded_up(due(rules.debounce, now if waiting is None else waiting, now))
    if before is None or before.next_run_at is None:
        return after.next_run_at == after.due_at == when
    if before.status in PROCESSED:
        return (after.next_run_at, after.due_at) == (before.next_run_at, when)
    held_back = when if rules.resets_on_change or before.retry_at is None else before.retry_at
    return after.due_at == when and after.next_run_at == _latest(when, held_back)


def runs_again_as_debounced(
    before: TaskRecord, rules: TaskRules, outcome: HandlerOutcome, verdict: UpdateRecord | Leave
) -> bool:
    """Law RE10, of the end of a run: a change during it is due by its debounce, or at a later
    retry.
    """
    if isinstance(verdict, Leave) or verdict.why is not Why.RUNS_AGAIN:
        return True
    assert before.waiting_since is not None
    when = _rounded_up(due(rules.debounce, before.waiting_since, before.changed_at))
    retry_at = None
    if before.attempts and isinstance(outcome, Failed) and isinstance(outcome.retry, TryAgain):
        retry_at = _rounded_up(outcome.retry.at)
        when = _latest(when, retry_at)
    return (verdict.record.next_run_at, verdict.record.retry_at) == (when, retry_at)


def follows_the_policy(before: TaskRecord, outcome: HandlerOutcome, verdict: UpdateRecord | Leave) -> bool:
    """Law RE11: a failure is retried when the policy says; if the policy gives up, the record has
    failed.
    """
    if isinstance(verdict, Leave) or before.status is TaskStatus.PROCESSING_DIRTY:
        return True
    after = verdict.record
    match outcome:
        case Failed(_, TryAgain(at)):
            is_waiting = after.next_run_at == after.retry_at == _rounded_up(at)
            return is_waiting and after.status is TaskStatus.PENDING
        case Deferred(at):
            return (after.status, after.next_run_at, after.retry_at) == (TaskStatus.PENDING, _rounded_up(at), None)
        case Failed():
            return verdict.record.status is TaskStatus.FAILED
        case _:
            return verdict.record.status is TaskStatus.COMPLETED


def asks_the_policy(before: TaskRecord, lapsed: TryAgain | GiveUp | None, verdict: ClaimVerdict) -> bool:
    """Law RE11, of an expired lease: the policy decides on another run, unless something changed."""
    if before.status is not TaskStatus.PROCESSING or isinstance(verdict, Wait):
        return not isinstance(verdict, Lapsed)
    if lapsed is None:
        return isinstance(verdict, Lapsed)
    if isinstance(lapsed, GiveUp):
        return isinstance(verdict, UpdateRecord) and verdict.record.status is TaskStatus.FAILED
    return isinstance(verdict, Claimed)


def keeps_the_streak(before: TaskRecord | None, now: Instant, verdict: TaskVerdict) -> bool:
    """Law RE12: a streak begins with its first failure and ends only by the events that end it."""
    write = write_of(verdict)
    if write is None:
        return True
    was = None if before is None else before.first_error_at
    is_now = write.record.first_error_at
    if is_now is None:
        return was is None or write.why in _END_A_STREAK
    if was is None:
        return write.why in _BEGIN_A_STREAK and is_now == _rounded_down(now)
    return is_now == was


def a_failure_is_in_the_streak(before: TaskRecord | None, ended: Ended | None, verdict: TaskVerdict) -> bool:
    """Law RE12, of a failure: the streak has begun, unless a change or a reset ended it during the
    run.
    """
    write = write_of(verdict)
    if write is None or before is None or before.attempts == 0 or ended not in (Ended.FAILED, Ended.LOST):
        return True
    return write.record.first_error_at is not None and write.record.last_error is not None


def a_success_ends_the_streak(outcome: HandlerOutcome, verdict: UpdateRecord | Leave) -> bool:
    """Law RE12, of a success: no failure is left, and the count starts again."""
    if isinstance(verdict, Leave) or not isinstance(outcome, Succeeded):
        return True
    after = verdict.record
    is_over = after.first_error_at is None and after.last_error is None
    return is_over and (after.status is TaskStatus.COMPLETED or after.attempts == 0)


def remembers_the_last_runs(
    before: TaskRecord | None, rules: TaskRules, ended: Ended | None, verdict: TaskVerdict
) -> bool:
    """Law RE13: the history is the one before plus the end of this run, if any, up to its maximum."""
    write = write_of(verdict)
    if write is None:
        return True
    known = () if before is None else before.history
    if ended is None:
        return write.record.history == known
    added = write.record.history[-1:]
    if any((run.token, run.ended) != (None if before is None else before.token, ended) for run in added):
        return False
    every = (*known, *added)
    return write.record.history == every[len(every) - min(len(every), rules.history_max) :]


def is_kept_in_milliseconds(now: Instant, verdict: TaskVerdict) -> bool:
    """Law RE14: instants are whole milliseconds; past ones are rounded down, and nothing is due
    early.

    If the first change has waited too long when another comes, both are due since then.
    """
    write = write_of(verdict)
    if write is None:
        return True
    after = write.record
    times = (after.next_run_at, after.due_at, after.changed_at, after.waiting_since, after.claimed_at)
    more = (after.first_error_at, after.finalised_at, *(run.at for run in after.history))
    is_whole = all(at is None or at.at % MILLISECOND == 0 for at in (*times, *more))
    if not is_whole or write.why not in (Why.FIRST_SEEN, Why.CHANGED):
        return is_whole
    is_early = after.waiting_since == after.changed_at and after.due_at - now < 0
    return after.changed_at == _rounded_down(now) and not is_early


# --- a journal --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Noticed:
    """A planner, or a run that began, has written these watched values."""

    snapshot: Kept


@final
@attrs.frozen
class Began:
    """A handler was started under this token, with these values."""

    token: int
    snapshot: Kept


@final
@attrs.frozen
class Completed:
    """The success of the run under this token was written."""

    token: int


@final
@attrs.frozen
class Left:
    """It was written that the document does not match."""


_Journal: TypeAlias = Sequence[Noticed | Began | Completed | Left]


def every_change_was_run(journal: _Journal) -> bool:
    """Law RE6: at rest, a run that began after the last change, with its values, has succeeded.

    RE1 and RE3 imply this; it also holds if old values return.
    """
    news = [(place, event) for place, event in enumerate(journal) if isinstance(event, (Noticed, Left))]
    place, last = news[-1] if news else (0, Left())
    if isinstance(last, Left):
        return True
    succeeded = {event.token for event in journal if isinstance(event, Completed)}
    since = [event for event in journal[place:] if isinstance(event, Began) and event.token in succeeded]
    return any(_same_snapshot(event.snapshot, last.snapshot) for event in since)


def ran_with_the_latest(journal: _Journal, there: Kept | None) -> bool:
    """Law RE1: at rest, the last successful run began with the current values, if they match."""
    succeeded = {event.token for event in journal if isinstance(event, Completed)}
    began = [event for event in journal if isinstance(event, Began) and event.token in succeeded]
    return there is None or (bool(began) and _same_snapshot(began[-1].snapshot, there))


# --- helpers ----------------------------------------------------------------------------------------------------------


def _holds(claim: Claim, record: TaskRecord) -> bool:
    """Whether the record is processed under this claim."""
    known = (record.id, record.owner, record.token)
    return record.status in PROCESSED and (claim.id, claim.owner, claim.token) == known


def _differs(known: Kept | None, seen: Seen) -> bool:
    return changed(known, seen.snapshot) != Unchanged() if isinstance(seen, Matching) else known is not None


def _is_forgotten(record: TaskRecord) -> bool:
    return record.status is TaskStatus.COMPLETED and record.snapshot is None


def _same_snapshot(one: Kept | None, other: Kept | None) -> bool:
    return type(one) is type(other) and (one == other or equal(one, other))


def _latest(one: Instant, other: Instant) -> Instant:
    return max(one, other, key=lambda each: each.at)


def _rounded_down(at: Instant) -> Instant:
    return Instant(at.at - at.at % MILLISECOND, at.clock)


def _rounded_up(at: Instant) -> Instant:
    return Instant(at.at + -at.at % MILLISECOND, at.clock)
