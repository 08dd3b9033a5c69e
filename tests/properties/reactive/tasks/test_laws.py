"""Each decision about a task record keeps the laws RE1 to RE15, and each law is broken by a planted bug."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from tests.properties.reactive.tasks.made import (
    Decisions,
)
from tests.properties.reactive.tasks.planted import (
    after_any_wait,
    all_of_them,
    at_once,
    by_id_alone,
    computed_or_not,
    counted_at_the_end,
    each_failure_begins_one,
    for_ever_later,
    forgetful_claim,
    guarded_by_id,
    kept_when_it_left,
    lost_without_a_trace,
    never_asking,
    never_giving_up,
    never_leaving,
    not_counted_if_dirty,
    not_while_processed,
    one_later,
    over_any_wait,
    remembering,
    rounded_down,
    same_token,
    same_version,
    the_first_ones,
    to_the_microsecond,
    unchecked,
    whatever_is_written,
    when_it_was_deferred,
    whenever,
    whoever_owns,
    with_other,
    with_the_error,
    with_the_old_snapshot,
    without_a_beginning,
    without_a_trace,
    zeroed,
)

from tidegate.reactive import tasks
from tidegate.reactive.laws import tasks as laws
from tidegate.reactive.strategies.tasks import Situation, situations
from tidegate.reactive.task_records import PROCESSED, Ended, TaskRecord, TaskStatus
from tidegate.reactive.tasks import (
    Failed,
    InsertRecord,
    Leave,
    Succeeded,
    UpdateRecord,
)


def answer(ask: Decisions, kind: str, given: Situation) -> laws.TaskVerdict:
    """What the decision of this kind says."""
    common = {"rules": given.rules, "now": given.now}
    match kind:
        case "plan":
            return ask.plan(given.record, given.seen, **common, new_id="r3")
        case "claim":
            return ask.claim(given.record, worker="w3", lapsed=given.lapsed, **common)
        case "begin":
            return ask.begin(given.record, given.claim, given.seen, **common)
        case "renew":
            return ask.renew(given.record, given.claim, **common)
        case "finalise":
            return ask.finalise(given.record, given.claim, given.outcome, **common)
        case _:
            return ask.reset(given.record, now=given.now)


TAKE_A_RECORD: Final = ("claim", "reset")
OF_A_CLAIM: Final = ("begin", "renew", "finalise")
KINDS: Final = ("plan", *TAKE_A_RECORD, *OF_A_CLAIM)
BUSY: Final = tuple(status for status in TaskStatus if status in PROCESSED)
"""In an order: a set has another one in each process."""


def ended(kind: str, given: Situation, verdict: laws.TaskVerdict) -> Ended | None:
    """How the run ended of which the verdict has written the end."""
    match kind, given.outcome:
        case "finalise", Succeeded():
            return Ended.SUCCEEDED
        case "finalise", Failed():
            return Ended.FAILED
        case "begin", _ if isinstance(verdict, UpdateRecord):
            return Ended.SKIPPED
        case "claim", _ if given.record is not None and given.record.owner is not None:
            return Ended.LOST
        case _:
            return None


def effort(ask: Decisions) -> settings:
    """A specimen is searched for as long as its profile says."""
    return settings(max_examples=200) if ask == Decisions() else settings()


Law: TypeAlias = Callable[[str, Situation, Any], bool]


def check(law: Law, *kinds: str) -> Callable[[Decisions], None]:
    """A check that the law holds of what is answered to all questions of these kinds, or of any."""

    def checked(ask: Decisions) -> None:
        held = (*BUSY, *BUSY, *TaskStatus) if set(kinds) & set(OF_A_CLAIM) else tuple(TaskStatus)

        @effort(ask)
        @given(st.sampled_from(kinds or KINDS), situations(held))
        def holds(kind: str, given: Situation) -> None:
            if given.record is not None or kind not in TAKE_A_RECORD:
                assert law(kind, given, answer(ask, kind, given))

        holds()

    return checked


def of_record(law: Callable[[TaskRecord, Situation, Any], bool]) -> Law:
    return lambda _, given, verdict: given.record is None or law(given.record, given, verdict)


# --- the laws, one decision at a time ---------------------------------------------------------------------------------

LAWS: Final[dict[str, Callable[[Decisions], None]]] = {
    "RE1": check(lambda _, s, v: laws.no_change_is_lost(s.record, s.seen, v), "plan"),
    "RE1 begin": check(lambda _, s, v: laws.forgets_what_cannot_be_computed(s.seen, v), "begin"),
    "RE2 claim": check(of_record(lambda r, _, v: laws.claims_the_latest(r, v)), "claim"),
    "RE2 begin": check(lambda _, s, v: laws.begins_with_what_is_there(s.seen, v), "begin"),
    "RE3": check(of_record(lambda r, _, v: laws.runs_again_after_a_change(r, v)), "finalise"),
    "RE4": check(lambda _, s, v: laws.stale_runs_change_nothing(s.record, s.claim, v), *OF_A_CLAIM),
    "RE5": check(lambda _, s, v: laws.counts_attempts_at_claim(s.record, v)),
    "RE5 end": check(of_record(lambda r, s, v: laws.counts_the_end(r, s.outcome, v)), "finalise"),
    "RE6": check(lambda _, s, v: laws.what_comes_back_is_another(s.record, v)),
    "RE7": check(lambda _, s, v: laws.is_guarded(s.record, v)),
    "RE8": check(of_record(lambda r, s, v: laws.takes_what_is_due(r, s.now, v)), "claim"),
    "RE9": check(lambda _, s, v: laws.completes_what_left(s.seen, v), "begin"),
    "RE10": check(lambda _, s, v: laws.is_due_as_debounced(s.record, s.rules, s.now, v), "plan"),
    "RE10 end": check(of_record(lambda r, s, v: laws.runs_again_as_debounced(r, s.rules, s.outcome, v)), "finalise"),
    "RE11": check(of_record(lambda r, s, v: laws.follows_the_policy(r, s.outcome, v)), "finalise"),
    "RE11 lapsed": check(of_record(lambda r, s, v: laws.asks_the_policy(r, s.lapsed, v)), "claim"),
    "RE12": check(lambda _, s, v: laws.keeps_the_streak(s.record, s.now, v)),
    "RE12 failure": check(
        lambda k, s, v: laws.a_failure_is_in_the_streak(s.record, ended(k, s, v), v), "finalise", "claim"
    ),
    "RE12 success": check(lambda _, s, v: laws.a_success_ends_the_streak(s.outcome, v), "finalise"),
    "RE13": check(lambda k, s, v: laws.remembers_the_last_runs(s.record, s.rules, ended(k, s, v), v)),
    "RE14": check(lambda _, s, v: laws.is_kept_in_milliseconds(s.now, v)),
}


@pytest.mark.parametrize("law", LAWS)
def test_decisions_keep_the_law(law: str) -> None:
    """Laws RE1 to RE14, of any record that may be, as the header of `tidegate.reactive.tasks` states them."""
    LAWS[law](Decisions())


def of_planned(decide: Callable[..., InsertRecord | UpdateRecord]) -> Callable[[Situation], bool]:
    """Whether law RE15 holds of what is decided on what a planner would write."""

    def holds(given: Situation) -> bool:
        planned = tasks.plan(given.record, given.seen, rules=given.rules, now=given.now, new_id="new")
        if isinstance(planned, Leave):
            return True
        after = decide(planned, worker="w", rules=given.rules, now=given.now)
        return laws.claims_as_if_planned_before(planned, given.now, given.rules, after)

    return holds


@settings(max_examples=200)
@given(situations(tuple(TaskStatus)))
def test_what_is_claimed_with_a_look_is_as_if_it_had_been_planned_before(given: Situation) -> None:
    """Law RE15."""
    assert of_planned(tasks.claim_planned)(given)


def never(planned: InsertRecord | UpdateRecord, **_: Any) -> InsertRecord | UpdateRecord:
    return planned


def due_or_not(planned: InsertRecord | UpdateRecord, **rest: Any) -> InsertRecord | UpdateRecord:
    later = rest["now"] if planned.record.next_run_at is None else planned.record.next_run_at
    return tasks.claim_planned(planned, **{**rest, "now": later})


def in_two_versions(planned: InsertRecord | UpdateRecord, **rest: Any) -> InsertRecord | UpdateRecord:
    after = tasks.claim_planned(planned, **rest)
    return after if after == planned else with_other(after, version=after.record.version + 1)


@pytest.mark.parametrize("wrong", [never, due_or_not, in_two_versions])
def test_a_wrong_claim_of_what_is_planned_breaks_its_law(wrong: Callable[..., InsertRecord | UpdateRecord]) -> None:
    how = settings(max_examples=2_000, phases=[Phase.generate])
    _ = find(situations(tuple(TaskStatus)), lambda given: not of_planned(wrong)(given), settings=how)


# --- specimens, one decision at a time --------------------------------------------------------------------------------


PLANTED: Final[tuple[tuple[str, Decisions], ...]] = (
    ("RE1", Decisions(plan=not_while_processed)),
    ("RE1", Decisions(plan=with_the_old_snapshot)),
    ("RE1", Decisions(plan=computed_or_not)),
    ("RE1 begin", Decisions(begin=remembering)),
    ("RE2 claim", Decisions(claim=forgetful_claim)),
    ("RE2 begin", Decisions(begin=unchecked)),
    ("RE3", Decisions(finalise=whatever_is_written)),
    ("RE4", Decisions(finalise=partial(by_id_alone, tasks.finalise))),
    ("RE4", Decisions(renew=partial(by_id_alone, tasks.renew))),
    ("RE4", Decisions(finalise=partial(whoever_owns, tasks.finalise))),
    ("RE4", Decisions(begin=partial(whoever_owns, tasks.begin))),
    ("RE5", Decisions(claim=counted_at_the_end)),
    ("RE5 end", Decisions(finalise=zeroed)),
    ("RE5 end", Decisions(finalise=not_counted_if_dirty)),
    ("RE6", Decisions(claim=same_version)),
    ("RE6", Decisions(claim=same_token)),
    ("RE7", Decisions(reset=guarded_by_id)),
    ("RE8", Decisions(claim=whenever)),
    ("RE8", Decisions(claim=one_later)),
    ("RE1", Decisions(plan=never_leaving)),
    ("RE1", Decisions(plan=without_a_trace)),
    ("RE9", Decisions(begin=unchecked)),
    ("RE9", Decisions(begin=kept_when_it_left)),
    ("RE10", Decisions(plan=for_ever_later)),
    ("RE10", Decisions(plan=over_any_wait)),
    ("RE10", Decisions(plan=after_any_wait)),
    ("RE10 end", Decisions(finalise=at_once)),
    ("RE10 end", Decisions(finalise=when_it_was_deferred)),
    ("RE11", Decisions(finalise=at_once)),
    ("RE11", Decisions(finalise=never_giving_up)),
    ("RE11 lapsed", Decisions(claim=never_asking)),
    ("RE12", Decisions(finalise=each_failure_begins_one)),
    ("RE12 failure", Decisions(finalise=without_a_beginning)),
    ("RE12 failure", Decisions(claim=lost_without_a_trace)),
    ("RE12 success", Decisions(finalise=with_the_error)),
    ("RE13", Decisions(finalise=all_of_them)),
    ("RE13", Decisions(finalise=the_first_ones)),
    ("RE14", Decisions(reset=to_the_microsecond)),
    ("RE14", Decisions(plan=rounded_down)),
)


@pytest.mark.parametrize(("law", "planted"), PLANTED)
def test_a_planted_bug_breaks_the_law(law: str, planted: Decisions) -> None:
    """Each law is broken by a small faulty variant of a decision, most of them mongodash's."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)
