"""The laws of `tidegate.consumer.flow.drain` as predicates over decisions and the course of a
revocation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, assert_never

from tidegate.consumer.flow.drain import Action, Budget, DrainDecision, InFlight, Stage
from tidegate.model.instants import Duration

_SEVERITY: Final = {Action.WAIT: 0, Action.CANCEL: 1, Action.ABANDON: 2}


def each_has_one_fate(in_flight: Collection[InFlight], fates: Sequence[DrainDecision]) -> bool:
    """Law DR1."""
    return [fate.offset for fate in fates] == sorted(record.offset for record in in_flight)


def leaves_time_to_commit(budget: Budget, fate: DrainDecision) -> bool:
    """Law DR2, over one decision."""
    return fate.until <= budget.wait + budget.cancel


def releases_in_time(budget: Budget, commit_began: Duration, released: Duration) -> bool:
    """Law DR2, over a revocation: the last commit had its time, and the release was within `total`.

    Args:
        budget: The budget of the revocation.
        commit_began: The time from the revocation until only the last commit was awaited.
        released: The time from the revocation until the release.
    """
    return commit_began + budget.commit <= budget.total and released <= budget.total


def lets_end_what_ends_in_time(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> bool:
    """Law DR3."""
    end = _known_end(elapsed, record)
    return end is None or end > _in_time(budget, record) or fate.action is Action.WAIT


def grows_no_milder(before: DrainDecision, after: DrainDecision) -> bool:
    """Law DR4, over two decisions for one record."""
    if before.action is after.action:
        return before.action is Action.ABANDON or after.until <= before.until
    return _SEVERITY[before.action] < _SEVERITY[after.action]


def waits_for_nothing_in_vain(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> bool:
    """Law DR5."""
    if fate.action is Action.ABANDON:
        return True
    end = _known_end(elapsed, record)
    might = fate.action is Action.CANCEL or end is None or end <= _in_time(budget, record)
    return might and elapsed < fate.until


def lets_clean_up(budget: Budget, elapsed: Duration, record: InFlight, fate: DrainDecision) -> bool:
    """Law DR6."""
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
    """Law DR7."""
    begin = 0
    for each, length in zip(Stage, (budget.wait, budget.cancel, budget.commit), strict=False):
        if begin <= elapsed < begin + length:
            return stage is each and elapsed + left == begin + length
        begin += length
    return stage is Stage.OVER and left == 0


def _in_time(budget: Budget, record: InFlight) -> Duration:
    return budget.wait if record.stoppable else budget.wait + budget.cancel


def _known_end(elapsed: Duration, record: InFlight) -> Duration | None:
    """The end since the revocation; None if it is unknown, or the estimate was outlived."""
    if record.expected is None or record.expected <= record.age:
        return None
    return elapsed - record.age + record.expected
