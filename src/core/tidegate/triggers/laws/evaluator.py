"""Laws of `tidegate.triggers.evaluator`, over what is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.model.instants import Duration, Instant
from tidegate.triggers.firing import Fired, Firing, GivenUp, Held, TriggerRun


def no_occurrence_is_invoked_twice(invocations: Iterable[tuple[str, Collection[str]]]) -> bool:
    """Law TE1: no occurrence has two invocations of one trigger.

    Args:
        invocations: Of each, its trigger, and the occurrences that it is of.
    """
    fired = [(trigger, occurrence) for trigger, of in invocations for occurrence in of]
    return len(set(fired)) == len(fired)


def nothing_is_dropped_unfired(
    noticed: Iterable[str], waiting: Collection[str], runs: Iterable[TriggerRun], invoked: Collection[str]
) -> bool:
    """Law TE2: each occurrence waits, or has fired, or was given up.

    Args:
        noticed: The ids of all occurrences that there ever were.
        waiting: Of those that are stored.
        runs: All that are stored.
        invoked: The ids of occurrences that have an invocation, or had a run that was given up, and is forgotten.
    """
    settled = {each.id for run in runs if run.state.settled for each in run.firing.occurrences}
    return all(each in waiting or each in settled or each in invoked for each in noticed)


def nothing_waits(waiting: Collection[str]) -> bool:
    """Law TE2: at rest no occurrence waits."""
    return not waiting


def a_claim_is_not_taken(before: TriggerRun, after: TriggerRun, now: Instant) -> bool:
    """Law TE3: while the claim of a run lasts, no other pass claims it.

    Args:
        before: The run.
        after: The run one step later.
        now: The time, by the store's clock.
    """
    if not isinstance(before.state, Held) or not isinstance(after.state, Held) or before.state.until - now <= 0:
        return True
    return before.state.by == after.state.by


def instants_are_invoked_once(invoked: Iterable[Instant], due: Collection[Instant]) -> bool:
    """Law TE4: each instant of a cron that was due has one invocation, and nothing else has."""
    return sorted(each.at for each in invoked) == sorted(each.at for each in due)


def instants_are_due(invoked: Iterable[Instant], due: Collection[Instant]) -> bool:
    """Law TE4: what is invoked of a cron is one of its instants, and none is invoked twice."""
    times = [each.at for each in invoked]
    return len(set(times)) == len(times) and set(times) <= {each.at for each in due}


def runs_are_numbered(firings: Iterable[Firing]) -> bool:
    """Law TE5: the runs of a trigger of all conditions are numbered without a gap."""
    numbers = sorted(each.number for each in firings)
    return numbers == list(range(1, len(numbers) + 1))


def what_fired_is_invoked(run: TriggerRun, of: Collection[str] | None) -> bool:
    """Law TE6: a run that says that it has fired has its invocation, of the same occurrences.

    Args:
        run: The run.
        of: The occurrences that the invocation under its id is of; None where there is none.
    """
    if not isinstance(run.state, Fired):
        return True
    return of is not None and set(of) == {each.id for each in run.firing.occurrences}


def others_find_what_they_wait_for(occurrence_stays: bool, run_stays: bool) -> bool:
    """Law TE9: what a trigger waits for that a process does not know stays as it is.

    Args:
        occurrence_stays: Whether an occurrence that it waits for is there as it was.
        run_stays: Whether a run of it is.
    """
    return occurrence_stays and run_stays


def is_kept_with_the_rest(*, is_kept: bool, is_written: bool) -> bool:
    """Law TE10: what is reported in a transaction is kept exactly if what else was written in it is."""
    return is_kept == is_written


def what_is_forgotten_is_over(
    gone: TriggerRun, others: Iterable[TriggerRun], waiting: Collection[str], keep: Duration, now: Instant
) -> bool:
    """Law TE11: what is forgotten has been over for as long as it is kept, and nothing needs it.

    Args:
        gone: A run that is there no more.
        others: All that still are.
        waiting: The ids of occurrences that wait.
        keep: For how long runs are kept once they are over, in microseconds.
        now: The time, by the store's clock.
    """
    firing = gone.firing
    is_last = firing.number and all(
        each.firing.number < firing.number for each in others if each.firing.trigger_id == firing.trigger_id
    )
    is_old = isinstance(gone.state, (Fired, GivenUp)) and now - gone.state.at >= keep
    return is_old and not is_last and not any(each.id in waiting for each in firing.occurrences)


def all_have_noticed_or_none(noticed: int, conditions: int, *, is_kept: bool) -> bool:
    """Law TE12: at rest all conditions that hold of what is reported have noticed it, or none has; all, where it is said to be kept.

    Args:
        noticed: How many have noticed it.
        conditions: How many hold of it.
        is_kept: Whether somebody was told that it is kept.
    """
    return noticed == conditions or (noticed == 0 and not is_kept)
