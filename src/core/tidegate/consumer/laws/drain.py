"""The laws of `tidegate.consumer.drain` as predicates over fates, and over how a revocation went."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, assert_never

from tidegate.consumer.drain import Action, Budget, DrainDecision, InFlight, Stage
from tidegate.model.instants import Duration

_SEVERITY: Final = {Action.WAIT: 0, Action.CANCEL: 1, Action.ABANDON: 2}


def each_has_one_fate(in_flight: Collection[InFlight], fates: Sequence[DrainDecision]) -> bool:
    """Law DR1: each record in flight has exactly one fate, in order of offsets."""
    return [fate.offset for fate in fates] == sorted(record.offset for record in in_flight)


def leaves_time_to_commit(budget: Budget, fate: DrainDecision) -> bool:
    """Law DR2: nothing is awaited beyond wait + cancel."""
    return fate.until <= budget.wait + budget.cancel


def releases_in_time(budget: Budget, commit_began: Duration, released: Duration) -> bool:
    """Law DR2: the last commit had its time, and the partition was released within `total`.

    Args:
        budget: How long the revocation might take.
        commit_began: When, since the revocation, nothing was awaited any more but the last commit.
        released: When, since the revocation, the partition was released.
    """
    return commit_began + budget.commit <= budget.total and released <= budget.total


def lets_end_what_ends_in_time(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> bool:
    """Law DR3: what is known to end in time is neither cancelled nor abandoned."""
    end = _known_end(elapsed, record)
    return end is None or end > _in_time(budget, record) or fate.action is Action.WAIT


def grows_no_milder(before: DrainDecision, after: DrainDecision) -> bool:
    """Law DR4: a later fate of a record is no milder, and neither a wait nor a cancellation is prolonged."""
    if before.action is after.action:
        return before.action is Action.ABANDON or after.until <= before.until
    return _SEVERITY[before.action] < _SEVERITY[after.action]


def waits_for_nothing_in_vain(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> bool:
    """Law DR5: what is waited for may end in time, for all that is known; what is awaited has time to end."""
    if fate.action is Action.ABANDON:
        return True
    end = _known_end(elapsed, record)
    might = fate.action is Action.CANCEL or end is None or end <= _in_time(budget, record)
    return might and elapsed < fate.until


def lets_clean_up(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> bool:
    """Law DR6: what can be interrupted is by `wait`, and has until wait + cancel; what cannot is not asked to stop."""
    match fate.action:
        case Action.WAIT:
            return not record.stoppable or fate.until <= budget.wait
        case Action.CANCEL:
            return record.stoppable and fate.until >= budget.wait + budget.cancel
        case Action.ABANDON:
            return not record.stoppable or elapsed >= budget.wait + budget.cancel
        case _:
            assert_never(fate.action)


def stands_where_the_budget_says(budget: Budget, elapsed: Duration, stage: Stage, left: Duration) -> bool:
    """Law DR7: the stages last wait, cancel and commit, and what is left leads to the end of the one that it is."""
    begin = 0
    for each, length in zip(Stage, (budget.wait, budget.cancel, budget.commit), strict=False):
        if begin <= elapsed < begin + length:
            return stage is each and elapsed + left == begin + length
        begin += length
    return stage is Stage.OVER and left == 0


def _in_time(budget: Budget, record: InFlight) -> Duration:
    return budget.wait if record.stoppable else budget.wait + budget.cancel


def _known_end(elapsed: Duration, record: InFlight) -> Duration | None:
    """When it ends, since the revocation; None where nothing is known, or the estimate was outlived."""
    if record.expected is None or record.expected <= record.age:
        return None
    return elapsed - record.age + record.expected
