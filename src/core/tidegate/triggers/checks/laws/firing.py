"""The laws of `tidegate.triggers.firing` as predicates over plans, runs, claims and purges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tidegate.model.documents import Document
from tidegate.model.instants import Instant
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.firing import (
    Busy,
    Changed,
    Claimed,
    Claims,
    Exhausted,
    Fired,
    Firing,
    GivenUp,
    Held,
    Ignored,
    Plan,
    Purge,
    RunClaim,
    Settled,
    TriggerRun,
)
from tidegate.triggers.trigger import Occurrence, Trigger


def no_occurrence_fires_twice(firings: Iterable[Firing]) -> bool:
    """Law FI1, over the firings of all runs ever made, each once."""
    fired = [(each.trigger_id, occurrence.id) for each in firings for occurrence in each.occurrences]
    return len(fired) == len(set(fired))


def dropped_when_done(
    plan: Plan,
    triggers: Collection[Trigger],
    occurrences: Collection[Occurrence],
    runs: Collection[TriggerRun],
    now: Instant,
) -> bool:
    """Law FI2."""
    done = {(run.firing.trigger_id, each.id) for run in runs if run.state.settled for each in run.firing.occurrences}
    used = {(run.firing.trigger_id, each.id) for run in runs for each in run.firing.occurrences}
    return all(
        (trigger.id, each.id) in done
        or (
            (trigger.id, each.id) not in used
            and _is_too_old(trigger, each, [other for other in occurrences if (trigger.id, other.id) not in used], now)
        )
        for each in occurrences
        if each.id in plan.dropped
        for trigger in triggers
        if each.condition_id in trigger.condition_ids
    )


def held_claims_are_kept(before: TriggerRun | None, by: str, now: Instant, answer: RunClaim) -> bool:
    """Law FI3, of claims."""
    if before is None:
        return isinstance(answer, Claimed) and answer.run.attempt == 1
    if isinstance(before.state, Held) and before.state.until - now > 0:
        return answer == (Claimed(before) if before.state.by == by else Busy(before.state.until))
    return not isinstance(answer, Claimed) or answer.run.attempt == before.attempt + 1


def only_its_own_attempt_fails(before: TriggerRun, attempt: int, answer: Changed | Ignored) -> bool:
    """Law FI3: an attempt that fails late does not end the next one."""
    return isinstance(answer, Changed) is (isinstance(before.state, Held) and before.attempt == attempt)


def what_is_settled_stays(before: TriggerRun, after: TriggerRun) -> bool:
    """Law FI4."""
    changed = after.version == before.version + 1 and not isinstance(before.state, Fired)
    reopened = isinstance(before.state, GivenUp) and not isinstance(after.state, (GivenUp, Fired))
    return after == before or (changed and not reopened and after.firing == before.firing)


def a_run_is_complete(trigger: Trigger, firing: Firing) -> bool:
    """Law FI5; any other run holds one occurrence."""
    conditions = {each.condition_id for each in firing.occurrences}
    if not trigger.joins:
        return len(firing.occurrences) == 1 and conditions <= set(trigger.condition_ids)
    last = firing.occurrences[-1].seen
    return conditions == set(trigger.condition_ids) and all(
        0 <= last - each.seen <= trigger.within for each in firing.occurrences
    )


def when_it_is_planned_does_not_matter(often: Collection[Firing], once: Collection[Firing]) -> bool:
    """Law FI6: planning after each occurrence or after all fires the same."""
    return {each.id: each for each in often} == {each.id: each for each in once}


def order_does_not_matter(plan: Plan, shuffled: Plan) -> bool:
    """Law FI7."""
    return plan == shuffled


def attempts_are_bounded(claims: Claims, before: TriggerRun | None, answer: RunClaim | Changed | Ignored) -> bool:
    """Law FI8; no other run is given up."""
    if isinstance(answer, (Busy, Settled, Ignored)) or answer.run == before:
        return True
    given_up = isinstance(answer.run.state, GivenUp)
    none_left = before is not None and before.attempt >= claims.attempts_max
    if isinstance(answer.run.state, Fired):
        return not isinstance(answer, Exhausted)
    return given_up is none_left and (given_up or not isinstance(answer, Exhausted))


def a_purge_leaves_what_is_needed(
    events: Mapping[str, Instant], runs: Collection[TriggerRun], waiting: Collection[Occurrence], gone: Purge
) -> bool:
    """Law FI9."""
    still = {each.id for each in waiting}
    left = [run for run in runs if run.id not in gone.runs]
    numbers = {run.firing.trigger_id: run.firing.number for run in sorted(runs, key=lambda run: run.firing.number)}
    needed = [run for run in runs if not run.state.settled or any(each.id in still for each in run.firing.occurrences)]
    last = {trigger: number for trigger, number in numbers.items() if number}
    needed_events = {*_events(waiting), *(event for run in needed for event in _events(run.firing.occurrences))}
    return (
        all(run in left for run in needed)
        and all(any((run.firing.trigger_id, run.firing.number) == each for run in left) for each in last.items())
        and needed_events.isdisjoint(gone.events)
        and events.keys() >= set(gone.events)
    )


def what_is_set_aside_carries_nothing(before: TriggerRun, after: TriggerRun) -> bool:
    """Law FI10."""
    contexts = [each.context for each in after.firing.occurrences]
    carried = [getattr(each, name, None) for each in contexts for name in ("payload", "arguments", "result")]
    of = [[each.id for each in run.firing.occurrences] for run in (before, after)]
    return after.state.settled and before.id == after.id and of[0] == of[1] and set(carried) <= {None, Document()}


def _is_too_old(trigger: Trigger, one: Occurrence, others: Sequence[Occurrence], now: Instant) -> bool:
    """Return whether an occurrence can complete no set, present or future."""
    latest = max([now.at, *[each.seen.at for each in others if each.condition_id in trigger.condition_ids]])
    if not trigger.joins or latest - one.seen.at <= trigger.within:
        return False
    ends = [each.seen for each in others if 0 <= each.seen - one.seen <= trigger.within]
    sets = [{each.condition_id for each in others if 0 <= end - each.seen <= trigger.within} for end in ends]
    return not any(each >= set(trigger.condition_ids) for each in sets)


def _events(occurrences: Iterable[Occurrence]) -> set[str]:
    return {each.context.event_id for each in occurrences if isinstance(each.context, EventContext)}
