"""Each decision about a task record keeps laws RE1 to RE15, and a planted bug breaks each law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import Law, bug, planted

from tidegate.reactive.checks.laws import tasks as laws
from tidegate.reactive.checks.strategies.tasks import Situation, situations
from tidegate.reactive.record import tasks
from tidegate.reactive.record.task_records import PROCESSED, Ended, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import Failed, Leave, Succeeded, UpdateRecord, planning, running


def answer(kind: str, given: Situation) -> laws.TaskVerdict:
    record: Any = given.record
    common: Any = {"rules": given.rules, "now": given.now}
    match kind:
        case "plan":
            return tasks.plan(record, given.seen, **common, new_id="r3")
        case "claim":
            return tasks.claim(record, worker="w3", lapsed=given.lapsed, **common)
        case "begin":
            return tasks.begin(record, given.claim, given.seen, **common)
        case "renew":
            return tasks.renew(record, given.claim, **common)
        case "finalise":
            return tasks.finalise(record, given.claim, given.outcome, **common)
        case _:
            return tasks.reset(record, now=given.now)


TAKE_A_RECORD: Final = ("claim", "reset")
OF_A_CLAIM: Final = ("begin", "renew", "finalise")
KINDS: Final = ("plan", *TAKE_A_RECORD, *OF_A_CLAIM)
BUSY: Final = tuple(status for status in TaskStatus if status in PROCESSED)
"""A tuple: the order of a set differs between processes."""


def ended(kind: str, given: Situation, verdict: laws.TaskVerdict) -> Ended | None:
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


Judge: TypeAlias = Callable[[str, Situation, Any], bool]


def keeps(name: str, law: Judge, *kinds: str) -> Law:
    held = (*BUSY, *BUSY, *TaskStatus) if set(kinds) & set(OF_A_CLAIM) else tuple(TaskStatus)

    @settings(max_examples=200)
    @given(st.sampled_from(kinds or KINDS), situations(held))
    def holds(kind: str, given: Situation) -> None:
        if given.record is not None or kind not in TAKE_A_RECORD:
            assert law(kind, given, answer(kind, given))

    holds.__name__ = name
    return holds


def of_record(law: Callable[[TaskRecord, Situation, Any], bool]) -> Judge:
    return lambda _, given, verdict: given.record is None or law(given.record, given, verdict)


# --- the laws, one decision at a time ---------------------------------------------------------------------------------

RE1 = keeps("RE1", lambda _, s, v: laws.no_change_is_lost(s.record, s.seen, v), "plan")
RE1_BEGIN = keeps("RE1 begin", lambda _, s, v: laws.forgets_what_cannot_be_computed(s.seen, v), "begin")
RE2_CLAIM = keeps("RE2 claim", of_record(lambda r, _, v: laws.claims_the_latest(r, v)), "claim")
RE2_BEGIN = keeps("RE2 begin", lambda _, s, v: laws.begins_with_what_is_there(s.seen, v), "begin")
RE3 = keeps("RE3", of_record(lambda r, _, v: laws.runs_again_after_a_change(r, v)), "finalise")
RE4 = keeps("RE4", lambda _, s, v: laws.stale_runs_change_nothing(s.record, s.claim, v), *OF_A_CLAIM)
RE5 = keeps("RE5", lambda _, s, v: laws.counts_attempts_at_claim(s.record, v))
RE5_END = keeps("RE5 end", of_record(lambda r, s, v: laws.counts_the_end(r, s.outcome, v)), "finalise")
RE6 = keeps("RE6", lambda _, s, v: laws.what_comes_back_is_another(s.record, v))
RE7 = keeps("RE7", lambda _, s, v: laws.is_guarded(s.record, v))
RE8 = keeps("RE8", of_record(lambda r, s, v: laws.takes_what_is_due(r, s.now, v)), "claim")
RE9 = keeps("RE9", lambda _, s, v: laws.completes_what_left(s.seen, v), "begin")
RE10 = keeps("RE10", lambda _, s, v: laws.is_due_as_debounced(s.record, s.rules, s.now, v), "plan")
RE10_END = keeps(
    "RE10 end", of_record(lambda r, s, v: laws.runs_again_as_debounced(r, s.rules, s.outcome, v)), "finalise"
)
RE11 = keeps("RE11", of_record(lambda r, s, v: laws.follows_the_policy(r, s.outcome, v)), "finalise")
RE11_LAPSED = keeps("RE11 lapsed", of_record(lambda r, s, v: laws.asks_the_policy(r, s.lapsed, v)), "claim")
RE12 = keeps("RE12", lambda _, s, v: laws.keeps_the_streak(s.record, s.now, v))
RE12_FAILURE = keeps(
    "RE12 failure", lambda k, s, v: laws.a_failure_is_in_the_streak(s.record, ended(k, s, v), v), "finalise", "claim"
)
RE12_SUCCESS = keeps("RE12 success", lambda _, s, v: laws.a_success_ends_the_streak(s.outcome, v), "finalise")
RE13 = keeps("RE13", lambda k, s, v: laws.remembers_the_last_runs(s.record, s.rules, ended(k, s, v), v))
RE14 = keeps("RE14", lambda _, s, v: laws.is_kept_in_milliseconds(s.now, v))
LAWS: Final = (
    RE1, RE1_BEGIN, RE2_CLAIM, RE2_BEGIN, RE3, RE4, RE5, RE5_END, RE6, RE7, RE8, RE9, RE10, RE10_END, RE11, RE11_LAPSED, RE12, RE12_FAILURE, RE12_SUCCESS, RE13, RE14,
)  # fmt: skip


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_decisions_keep_the_law(law: Law) -> None:
    """Laws RE1 to RE14, stated in the header of `tidegate.reactive.record.tasks`."""
    law()


@settings(max_examples=200)
@given(situations(tuple(TaskStatus)))
def test_what_is_claimed_with_a_look_is_as_if_it_had_been_planned_before(given: Situation) -> None:
    """Law RE15."""
    planned = tasks.plan(given.record, given.seen, rules=given.rules, now=given.now, new_id="new")
    if not isinstance(planned, Leave):
        after = tasks.claim_planned(planned, worker="w", rules=given.rules, now=given.now)
        assert laws.claims_as_if_planned_before(planned, given.now, given.rules, after)


# --- planted bugs, most of them mongodash's ---------------------------------------------------------------------------

COMPUTED: Final = "    if isinstance(seen, NotComputed):\n"
FIRST: Final = "first = now if record.waiting_since is None else record.waiting_since"
LAST_RUNS: Final = "history[max(len(history) - rules.history_max, 0) :]"
DIRTY: Final = "    if record.status is TaskStatus.PROCESSING_DIRTY:  # the change has not been run with yet\n"
RETRIED: Final = "        case Failed(_, TryAgain(at)) if held.attempts:"

PLANNED: Final = (
    bug("not while processed", (COMPUTED, f"    if record is not None and record.status in PROCESSED:\n        return Leave(WhyNot.UNCHANGED)\n{COMPUTED}"), RE1),
    bug("with the old snapshot", ("snapshot=None if snapshot is None", "snapshot=record.snapshot if record.snapshot is not None else None if snapshot is None"), RE1),
    bug("what cannot be computed is empty", ("return Leave(WhyNot.NOT_COMPUTED)", "seen = Matching(Document())"), RE1),
    # mongodash: leaving the filter writes nothing.
    bug("never leaving", (COMPUTED, f"    if not isinstance(seen, (Matching, NotComputed)):\n        return Leave(WhyNot.NOT_MATCHING)\n{COMPUTED}"), RE1),
    # A look at an unchanged record writes nothing, even while the record is processed.
    bug("without a trace", ("if record.status in PROCESSED:", "if False:"), RE1),
    bug("guarded by id", ("UpdateRecord(record.guard, after, Why.RESET)", "UpdateRecord(attrs.evolve(record.guard, version=1, owner=None, token=0), after, Why.RESET)"), RE7),
    # mongodash: each change restarts the wait, without a maximum, and always brings a retry
    # forward.
    bug("for ever later", (FIRST, "first = now"), RE10),
    bug("over any wait", ("resets = rules.resets_on_change or", "resets = True or"), RE10),
    # Our bug: a change waits for any earlier due time, deferrals included.
    bug(
        "after any wait",
        ("resets or record.retry_at is None", "resets or record.status is not TaskStatus.PENDING"), ("later(record.retry_at, when)", "later(record.next_run_at, when)"),
        RE10,
    ),
    bug(
        "to the microsecond",
        ("else rounded_down(now),\n        changed_at=rounded_down(now)", "else rounded_down(now),\n        changed_at=now"),
        RE14,
    ),
    bug("due a second early", ("due_at=when,\n        changed_at=rounded_down(now)", "due_at=when + -1_000_000,\n        changed_at=rounded_down(now)"), RE14),
)  # fmt: skip
RUN: Final = (
    # A failed computation keeps the old snapshot.
    bug("remembering", ("version=held.version + 1, snapshot=None", "version=held.version + 1, snapshot=claim.snapshot"), RE1_BEGIN),
    bug("the run does not get the snapshot", ("why), claim_of(after))", "why), attrs.evolve(claim_of(after), snapshot=None))"), RE2_CLAIM),
    # mongodash: the handler runs with the claimed data, without a further check.
    bug("unchecked", ("    match seen:", "    return Go(claim)\n    match seen:"), RE2_BEGIN, RE9),
    bug("whatever is written", ("if held.status is TaskStatus.PROCESSING_DIRTY", "if False"), RE3),
    # mongodash: only the id is compared, so a worker that claimed twice holds both claims (A-B-A).
    bug("neither token nor owner", ("record.token != claim.token", "False"), ("record if record.owner == claim.owner else Leave(WhyNot.ANOTHER_CLAIM)", "record"), RE4),
    bug("whoever owns", ("record.token != claim.token", "False"), RE4),
    bug("whichever record", ("record.id != claim.id", "False"), RE4),
    bug("whichever owner", ("record if record.owner == claim.owner else Leave(WhyNot.ANOTHER_CLAIM)", "record"), RE4),
    # A handler that kills its process then runs forever.
    bug("a claim counts nothing", ("attempts=record.attempts + 1", "attempts=record.attempts"), RE5),
    # mongodash: a deferral zeroes the attempts, and so does a change during a run.
    bug("zeroed", ("attempts=max(held.attempts - 1, 0)", "attempts=0"), RE5_END),
    bug("not counted if dirty", ("0 if isinstance(outcome, Succeeded) else again.attempts", "0"), RE5_END),
    bug("same version", ("version=on.version + 1", "version=on.version"), RE6),
    bug("same token", ("token=record.token + 1", "token=max(record.token, 1)"), RE6),
    bug("whenever", ("now - record.next_run_at < 0", "False"), RE8),
    bug("one later", ("now - record.next_run_at < 0", "now - record.next_run_at <= 0"), RE8),
    # A document that comes back is taken for one that has run.
    bug("kept when it left", ("attrs.evolve(over, snapshot=None, ", "attrs.evolve(over, "), RE9),
    bug("at once", ("next_run_at=rounded_up(at), retry_at=until", "next_run_at=over.finalised_at, retry_at=until"), RE10_END, RE11),
    # Our bug: the deferral applied to older data.
    bug("when it was deferred", (RETRIED, f"        case Deferred(until):\n            return _pending(over, until)\n{RETRIED}"), RE10_END),
    bug("never giving up", ("attrs.evolve(over, status=TaskStatus.FAILED), Why.GIVEN_UP", "_pending(over, now), Why.RETRIED"), RE11),
    bug("never asking", ("    match lapsed:", "    match TryAgain(now):"), RE11_LAPSED),  # mongodash: a lost run runs again, without a limit
    # A policy with a maximum duration then never gives up.
    bug("each failure begins one", ("rounded_down(now) if record.first_error_at is None else record.first_error_at", "rounded_down(now)"), RE12),
    bug("without a beginning", ("first_error_at=_failing_since(record, now), ", ""), RE12_FAILURE),
    # An expired lease is no failure if the document has also changed.
    bug("lost without a trace", (DIRTY, f"{DIRTY}        failing = attrs.evolve(failing, first_error_at=record.first_error_at, last_error=record.last_error)\n"), RE12_FAILURE),
    bug("with the error", ("first_error_at=None, last_error=None", "first_error_at=None"), RE12_SUCCESS),
    bug("all of them", (LAST_RUNS, "history"), RE13),
    bug("the first ones", (LAST_RUNS, "history[: rules.history_max]"), RE13),
    bug("a look claims nothing", ("if verdict.record.owner is not None", "if True"), test_what_is_claimed_with_a_look_is_as_if_it_had_been_planned_before),
    bug(
        "a look claims what is not due",
        ("claim(verdict.record, worker=worker, rules=rules, now=now)", "claim(verdict.record, worker=worker, rules=rules, now=verdict.record.next_run_at or now)"),
        test_what_is_claimed_with_a_look_is_as_if_it_had_been_planned_before,
    ),
    bug(
        "a look claims in two versions",
        ("version=verdict.record.version)", "version=verdict.record.version + 1)"),
        test_what_is_claimed_with_a_look_is_as_if_it_had_been_planned_before,
    ),
)  # fmt: skip

test_a_planted_bug_of_a_look_is_found = planted(planning, *PLANNED)
test_a_planted_bug_of_a_run_is_found = planted(running, *RUN)
