"""The laws of `tidegate.triggers.evaluator`, over what is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.model.instants import Duration, Instant
from tidegate.triggers.firing import Fired, Firing, GivenUp, Held, TriggerRun


def no_occurrence_is_invoked_twice(invocations: Iterable[tuple[str, Collection[str]]]) -> bool:
    """Law TE1, over the trigger and the occurrences of each invocation."""
    fired = [(trigger, occurrence) for trigger, of in invocations for occurrence in of]
    return len(set(fired)) == len(fired)


def nothing_is_dropped_unfired(
    noticed: Iterable[str], waiting: Collection[str], runs: Iterable[TriggerRun], invoked: Collection[str]
) -> bool:
    """Law TE2: each occurrence waits, has fired or was given up.

    Args:
        noticed: The ids of all occurrences ever stored.
        waiting: The ids of those stored now.
        runs: All stored runs.
        invoked: The occurrences with an invocation, or with a run that was given up and then
            deleted.
    """
    settled = {each.id for run in runs if run.state.settled for each in run.firing.occurrences}
    return all(each in waiting or each in settled or each in invoked for each in noticed)


def nothing_waits(waiting: Collection[str]) -> bool:
    """Law TE2, at rest."""
    return not waiting


def a_claim_is_not_taken(before: TriggerRun, after: TriggerRun, now: Instant) -> bool:
    """Law TE3, for one step."""
    if not isinstance(before.state, Held) or not isinstance(after.state, Held) or before.state.until - now <= 0:
        return True
    return before.state.by == after.state.by


def instants_are_invoked_once(invoked: Iterable[Instant], due: Collection[Instant]) -> bool:
    """Law TE4: exactly the due instants of a cron have an invocation, each one."""
    return sorted(each.at for each in invoked) == sorted(each.at for each in due)


def instants_are_due(invoked: Iterable[Instant], due: Collection[Instant]) -> bool:
    """Law TE4: each invocation of a cron has an instant of its own."""
    times = [each.at for each in invoked]
    return len(set(times)) == len(times) and set(times) <= {each.at for each in due}


def runs_are_numbered(firings: Iterable[Firing]) -> bool:
    """Law TE5."""
    numbers = sorted(each.number for each in firings)
    return numbers == list(range(1, len(numbers) + 1))


def what_fired_is_invoked(run: TriggerRun, of: Collection[str] | None) -> bool:
    """Law TE6; `of` are the occurrences of the invocation under its id, None without one."""
    if not isinstance(run.state, Fired):
        return True
    return of is not None and set(of) == {each.id for each in run.firing.occurrences}


def others_find_what_they_wait_for(occurrence_stays: bool, run_stays: bool) -> bool:
    """Law TE9."""
    return occurrence_stays and run_stays


def is_kept_with_the_rest(*, is_kept: bool, is_written: bool) -> bool:
    """Law TE10."""
    return is_kept == is_written


def what_is_forgotten_is_over(
    gone: TriggerRun, others: Iterable[TriggerRun], waiting: Collection[str], keep: Duration, now: Instant
) -> bool:
    """Law TE11, for a deleted run and all remaining ones."""
    firing = gone.firing
    is_last = firing.number and all(
        each.firing.number < firing.number for each in others if each.firing.trigger_id == firing.trigger_id
    )
    is_old = isinstance(gone.state, (Fired, GivenUp)) and now - gone.state.at >= keep
    return is_old and not is_last and not any(each.id in waiting for each in firing.occurrences)


def all_have_noticed_or_none(noticed: int, conditions: int, *, is_kept: bool) -> bool:
    """Law TE12, over how many conditions have noticed the report, and hold of it."""
    return noticed == conditions or (noticed == 0 and not is_kept)
