from __future__ import annotations

import attrs
import pytest
from tests.properties.reactive.tasks.made import (
    KEEPING,
    T,
    at,
    begun,
    doc,
    failed,
    first,
    left,
    over,
    seen,
    taken,
)

from tidegate.model.documents import Document, Field
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, WALL, Instant
from tidegate.reactive.checks.laws import tasks as laws
from tidegate.reactive.record import tasks
from tidegate.reactive.record.snapshot import Digest, NotComputed, digest
from tidegate.reactive.record.task_records import Ended, TaskStatus
from tidegate.reactive.record.tasks import (
    Adopt,
    CannotRun,
    Deferred,
    Failed,
    GiveUp,
    Go,
    Gone,
    HandlerOutcome,
    Lapsed,
    Leave,
    Matching,
    NotMatching,
    Succeeded,
    TaskRules,
    TryAgain,
    UpdateRecord,
    Wait,
    Why,
    WhyNot,
)


def test_a_burst_is_one_run_with_the_last_value() -> None:
    """mongodash, 3: an insert and two updates within 500 ms make one run with the last value."""
    record = seen(seen(first(a=1), at(200), a=2), at(400), a=3)

    assert tasks.claim(record, worker="w1", rules=T, now=at(899)) == Wait(WhyNot.NOT_DUE, at(900))
    held, claim = taken(record, at(900))
    assert claim.snapshot == doc(a=3)
    assert over(held, claim, Succeeded(), at(950)).status is TaskStatus.COMPLETED


def test_ceaseless_changes_are_run_at_the_maximum() -> None:
    """mongodash: updates every 250 ms under a debounce of 600 ms made no run in 5 s."""
    record = first(a=0)
    for turn in range(1, 20):
        record = seen(record, at(250 * turn), a=turn)

    assert record.next_run_at == at(2_000)


def test_it_fails_twice_then_succeeds() -> None:
    """mongodash, 4: three runs, completed, three attempts; errors stay in the history."""
    record, now = first(a=1), at(500)
    ends: tuple[HandlerOutcome, ...] = (failed(1_000), failed(2_000), Succeeded())
    for turn, outcome in enumerate(ends, start=1):
        record, claim = taken(record, now)
        assert (claim.attempts, claim.failing_since) == (turn, None if turn == 1 else at(500))
        record = over(record, claim, outcome, now)
        now = record.next_run_at or now

    assert (record.status, record.attempts, record.last_error, record.first_error_at) == (
        TaskStatus.COMPLETED,
        3,
        None,
        None,
    )
    assert [run.ended for run in record.history] == [Ended.FAILED, Ended.FAILED, Ended.SUCCEEDED]
    assert record.last_success == record.history[-1]


def test_it_is_given_up_when_the_policy_says() -> None:
    """mongodash, 5: failed after three attempts, with the message; nothing is due."""
    record, now = first(a=1), at(500)
    for retry in (600, 700, None):
        record, claim = taken(record, now)
        record = over(record, claim, failed(retry), now)
        now += 100 * MILLISECOND

    assert (record.status, record.attempts, record.last_error) == (TaskStatus.FAILED, 3, "it broke")
    assert tasks.claim(record, worker="w1", rules=T, now=at(10**6)) == Leave(WhyNot.FINISHED)


def test_a_change_while_it_is_processed_runs_again() -> None:
    """mongodash, 2: success makes it pending, due a debounce later; the lease is untouched."""
    held, claim = taken(first(a=1), at(500))
    dirty = seen(held, at(600), a=2)

    assert (dirty.status, dirty.next_run_at, dirty.owner) == (TaskStatus.PROCESSING_DIRTY, held.next_run_at, "w1")
    again = over(dirty, claim, Succeeded(), at(700))
    assert (again.status, again.next_run_at, again.attempts) == (TaskStatus.PENDING, at(1_100), 0)
    assert taken(again, at(1_100))[1].snapshot == doc(a=2)


def test_a_change_and_its_opposite_run_again() -> None:
    held, claim = taken(first(a=1), at(500))
    back = seen(seen(held, at(600), a=2), at(650), a=1)

    assert back.status is TaskStatus.PROCESSING_DIRTY
    assert over(back, claim, Succeeded(), at(700)).status is TaskStatus.PENDING


def test_a_stalled_worker_changes_nothing() -> None:
    """mongodash: A stalls, B completes, a change makes it pending, and A's success loses it."""
    held, stalled = taken(first(a=1), at(500))
    other, claim = taken(held, at(60_500), worker="w2", lapsed=TryAgain(at(0)))
    for record in (other, seen(over(other, claim, Succeeded(), at(60_600)), at(60_700), a=2)):
        assert tasks.finalise(record, stalled, Succeeded(), rules=T, now=at(60_800)) == Leave(WhyNot.ANOTHER_CLAIM)
        assert tasks.renew(record, stalled, rules=T, now=at(60_800)) == Leave(WhyNot.ANOTHER_CLAIM)


def test_a_worker_that_took_it_twice_holds_it_once() -> None:
    """A-B-A of owners: a worker's first run is not its second."""
    held, stalled = taken(first(a=1), at(500))
    other, claim = taken(held, at(60_500), lapsed=TryAgain(at(0)))

    assert tasks.finalise(other, stalled, Succeeded(), rules=T, now=at(60_600)) == Leave(WhyNot.ANOTHER_CLAIM)
    assert over(other, claim, Succeeded(), at(60_600)).status is TaskStatus.COMPLETED


def test_a_run_ends_once() -> None:
    """mongodash, 28: completing twice is harmless; a later renewal does not make it due again."""
    held, claim = taken(first(a=1), at(500))
    completed = over(held, claim, Succeeded(), at(600))
    other = attrs.evolve(completed, id="r2")

    assert tasks.finalise(completed, claim, failed(700), rules=T, now=at(700)) == Leave(WhyNot.ENDED)
    assert tasks.renew(completed, claim, rules=T, now=at(700)) == Leave(WhyNot.ENDED)
    assert tasks.renew(other, claim, rules=T, now=at(700)) == Leave(WhyNot.ANOTHER_RECORD)
    assert tasks.renew(None, claim, rules=T, now=at(700)) == Leave(WhyNot.NO_RECORD)


def test_a_lease_is_renewed_until_it_is_taken_over() -> None:
    """mongodash, 6 and 7: the lease only moves forward; after its end another run begins."""
    held, claim = taken(first(a=1), at(500))
    renewed = tasks.renew(held, claim, rules=T, now=at(40_500))

    assert isinstance(renewed, UpdateRecord)
    assert renewed.record.next_run_at == at(100_500)
    late = tasks.renew(renewed.record, claim, rules=T, now=at(200_000))
    earlier = tasks.renew(renewed.record, claim, rules=T, now=at(600))
    assert isinstance(late, UpdateRecord)
    assert isinstance(earlier, UpdateRecord)
    assert (late.record.next_run_at, earlier.record.next_run_at) == (at(260_000), at(100_500))
    assert tasks.claim(held, worker="w2", rules=T, now=at(60_499)) == Wait(WhyNot.HELD, at(60_500))
    assert tasks.claim(held, worker="w2", rules=T, now=at(60_500)) == Lapsed(1, at(60_500))


def test_a_run_that_never_comes_back_is_a_failure() -> None:
    """mongodash: a handler that kills its process ran forever, with 5 attempts of at most 2."""
    record, now = taken(first(a=1), at(500))[0], at(60_500)
    record, claim = taken(record, now, worker="w2", lapsed=TryAgain(at(0)))

    assert (claim.attempts, claim.failing_since, claim.token) == (2, now, 2)
    gone = tasks.claim(record, worker="w3", rules=T, now=at(200_000), lapsed=GiveUp())
    assert isinstance(gone, UpdateRecord)
    assert (gone.why, gone.record.status, gone.record.attempts) == (Why.GIVEN_UP, TaskStatus.FAILED, 2)
    assert gone.record.last_error == "its lease ran out"
    assert [run.ended for run in gone.record.history] == [Ended.LOST, Ended.LOST]


def test_what_has_changed_is_taken_over_without_asking() -> None:
    dirty = seen(taken(first(a=1), at(500))[0], at(600), a=2)

    assert taken(dirty, at(60_500))[1].snapshot == doc(a=2)


def test_what_no_longer_matches_completes_without_its_handler() -> None:
    """mongodash, 8 and 10: no extra run, nor one for a document that left before it was due."""
    completed = over(*taken(first(a=1), at(500)), Succeeded(), at(600))
    for record in (first(a=1), completed, over(*taken(first(a=1), at(500)), failed(None), at(600))):
        gone = left(record, at(700))
        held, claim = taken(gone, at(1_200))
        skipped = begun(held, claim, NotMatching())

        assert (gone.status, gone.next_run_at, gone.snapshot) == (TaskStatus.PENDING, at(1_200), None)
        assert isinstance(skipped, UpdateRecord)
        assert (skipped.record.status, skipped.record.snapshot) == (TaskStatus.COMPLETED, None)
        assert skipped.record.history[-1].ended is Ended.SKIPPED
        again = tasks.plan(skipped.record, Gone(), rules=T, now=at(1_300), new_id="r2")
        assert again == Leave(WhyNot.UNCHANGED)
    assert tasks.plan(None, Gone(), rules=T, now=at(200), new_id="r2") == Leave(WhyNot.NOT_MATCHING)


def test_what_leaves_while_it_is_processed_is_looked_at_again() -> None:
    held, claim = taken(first(a=1), at(500))
    processed = left(held, at(600))
    ends: tuple[HandlerOutcome, ...] = (Succeeded(), failed(900), failed(None), Deferred(at(900)))

    assert (processed.status, processed.snapshot) == (TaskStatus.PROCESSING_DIRTY, None)
    for outcome in ends:
        assert over(processed, claim, outcome, at(700)).status is TaskStatus.PENDING


def test_what_comes_back_is_seen_for_the_first_time() -> None:
    """In mongodash a leaving document loses its record, so equal values run again."""
    held, claim = taken(left(first(a=1), at(100)), at(600))
    skipped = begun(held, claim, NotMatching())

    assert isinstance(skipped, UpdateRecord)
    back = seen(skipped.record, at(700), a=1)
    assert (back.status, back.next_run_at) == (TaskStatus.PENDING, at(1_200))
    for record in (left(first(a=1), at(100)), left(taken(first(a=1), at(500))[0], at(600))):
        assert seen(record, at(700), a=1).status in (TaskStatus.PENDING, TaskStatus.PROCESSING_DIRTY)


def test_a_look_at_what_is_processed_makes_a_version() -> None:
    """A run that saw the document earlier must not start with data that is gone."""
    held, claim = taken(first(a=1), at(500))
    stale = begun(held, claim, Matching(doc(a=2)))
    looked = tasks.plan(held, Matching(doc(a=1)), rules=T, now=at(600), new_id="r2")

    assert isinstance(stale, Adopt)
    assert isinstance(looked, UpdateRecord)
    assert looked.why is Why.LOOKED_AT
    assert laws.carried_out(stale, laws.carried_out(looked, held)) == looked.record


def test_a_handler_begins_with_what_is_there() -> None:
    """mongodash, 12: it runs with the current values, or not if they cannot be computed."""
    held, claim = taken(first(a=1), at(500))

    assert begun(held, claim, Matching(doc(a=1.0))) == Go(claim)
    adopted = begun(held, claim, Matching(doc(a=2)))
    assert isinstance(adopted, Adopt)
    assert (adopted.claim.snapshot, adopted.write.record.status) == (doc(a=2), TaskStatus.PROCESSING)
    broken = NotComputed("total", "its function raised KeyError")
    cannot = begun(held, claim, broken)
    assert isinstance(cannot, CannotRun)
    assert (cannot.why, cannot.write.record.snapshot) == (broken, None)
    gave_up = over(cannot.write.record, claim, failed(None), at(700))
    assert seen(gave_up, at(800), a=1).status is TaskStatus.PENDING
    assert tasks.plan(held, broken, rules=T, now=at(600), new_id="r2") == Leave(WhyNot.NOT_COMPUTED)


def test_what_a_handler_begins_with_need_not_run_again() -> None:
    held, claim = taken(first(a=1), at(500))
    adopted = begun(seen(held, at(550), a=2), claim, Matching(doc(a=2)))

    assert isinstance(adopted, Adopt)
    assert (adopted.claim.attempts, adopted.write.record.waiting_since) == (1, None)
    assert over(adopted.write.record, adopted.claim, Succeeded(), at(700)).status is TaskStatus.COMPLETED


def test_a_deferral_is_not_an_attempt() -> None:
    """mongodash, 26: pending, due at the requested time; earlier failures still count."""
    held, claim = taken(first(a=1), at(500))
    deferred = over(held, claim, Deferred(at(1_500)), at(600))

    assert (deferred.status, deferred.attempts, deferred.next_run_at) == (TaskStatus.PENDING, 0, at(1_500))
    assert deferred.history == ()
    held, claim = taken(over(*taken(first(a=1), at(500)), failed(800), at(600)), at(800))
    assert over(held, claim, Deferred(at(1_500)), at(900)).attempts == 1


def test_a_change_ends_a_failing_streak_unless_it_is_asked_to_keep_it() -> None:
    """mongodash, 23: without a reset the first error stays; here attempts and delay stay too."""
    record = over(*taken(first(a=1), at(500)), failed(9_000), at(600))

    fresh, kept = seen(record, at(700), a=2), seen(record, at(700), KEEPING, a=2)
    assert (fresh.attempts, fresh.first_error_at, fresh.last_error, fresh.next_run_at) == (0, None, None, at(1_200))
    assert (kept.attempts, kept.first_error_at, kept.last_error, kept.next_run_at) == (
        1,
        at(600),
        "it broke",
        at(9_000),
    )
    assert (fresh.due_at, kept.due_at) == (at(1_200), at(1_200))


def test_a_handler_that_changes_its_own_document_is_given_up_when_it_stops() -> None:
    """mongodash: 8 edits of its own document made 11 runs with 3 attempts; here 9."""
    record, now, runs = first(KEEPING, a=0), at(500), 0
    while record.status is TaskStatus.PENDING:
        held, claim = taken(record, now, KEEPING)
        runs += 1
        dirty = seen(held, now + MILLISECOND, KEEPING, a=runs) if runs <= 8 else held
        now += 10_000 * MILLISECOND
        retry = TryAgain(now) if claim.attempts < 3 else GiveUp()
        record = over(dirty, claim, Failed("it broke", retry), now, KEEPING)

        assert record.attempts == runs
        assert record.status is TaskStatus.FAILED or claim.attempts >= 3 or record.next_run_at == now
        now = record.next_run_at or now

    assert (record.status, runs) == (TaskStatus.FAILED, 9)


def test_a_lost_run_is_a_failure_also_where_something_has_changed() -> None:
    """Where changes do not reset, its streak begins; where they do, the change has ended it."""
    for rules, streak in ((KEEPING, (2, at(60_500), "its lease ran out")), (T, (1, None, None))):
        dirty = seen(taken(first(rules, a=1), at(500), rules)[0], at(600), rules, a=2)
        again, _ = taken(dirty, at(60_500), rules)

        assert (again.attempts, again.first_error_at, again.last_error) == streak


def test_a_success_ends_a_streak_that_changes_keep() -> None:
    held, claim = taken(
        over(*taken(first(KEEPING, a=1), at(500), KEEPING), failed(800), at(600), KEEPING), at(800), KEEPING
    )
    dirty = seen(held, at(850), KEEPING, a=2)

    assert over(dirty, claim, Succeeded(), at(900), KEEPING).attempts == 0
    completed = over(held, claim, Succeeded(), at(900), KEEPING)
    assert completed.attempts == 2
    assert seen(completed, at(1_000), KEEPING, a=2).attempts == 0


def test_what_failed_and_has_changed_is_tried_again_no_earlier() -> None:
    """Without reset a retry delay holds; with reset only the debounce counts."""
    for rules, when in ((T, at(1_050)), (KEEPING, at(9_000))):
        held, claim = taken(first(rules, a=1), at(500), rules)
        assert over(seen(held, at(550), rules, a=2), claim, failed(9_000), at(600), rules).next_run_at == when
        assert over(seen(held, at(550), rules, a=2), claim, Deferred(at(9_000)), at(600), rules).next_run_at == at(
            1_050
        )
    held, claim = taken(first(KEEPING, a=1), at(500), KEEPING)
    assert over(seen(held, at(550), KEEPING, a=2), claim, failed(None), at(600), KEEPING).next_run_at == at(1_050)


@pytest.mark.parametrize("rules", [T, KEEPING])
@pytest.mark.parametrize("is_failing", [False, True])
def test_new_data_does_not_wait_for_a_deferral(rules: TaskRules, *, is_failing: bool) -> None:
    """Law RE10: only the debounce delays it, also in a failing streak whose retry has run."""
    record, now = first(rules, a=1), at(500)
    if is_failing:
        record, now = over(*taken(record, now, rules), failed(800), at(600), rules), at(800)
    deferred = over(*taken(record, now, rules), Deferred(at(3_600_000)), now, rules)

    assert deferred.next_run_at == at(3_600_000)
    assert seen(deferred, at(1_000), rules, a=2).next_run_at == at(1_500)


def test_a_reset_counts_anew() -> None:
    """mongodash, 41. It keeps `dueAt`, an old change's time; here only while a change waits."""
    held, claim = taken(first(a=1), at(500))
    gave_up = over(held, claim, failed(None), at(600))

    for record, status, due_then in (
        (gave_up, TaskStatus.PENDING, at(700)),
        (held, TaskStatus.PROCESSING_DIRTY, held.next_run_at),
    ):
        verdict = tasks.reset(record, now=at(700))
        assert isinstance(verdict, UpdateRecord)
        after = verdict.record
        assert (after.status, after.next_run_at, after.attempts) == (status, due_then, 0)
        assert (after.due_at, after.last_error) == (at(700), record.last_error)
        assert after.first_error_at is None
        late = tasks.reset(after, now=at(900))
        assert isinstance(late, UpdateRecord)
        assert late.record.due_at == at(700)
    reset = tasks.reset(held, now=at(700))
    assert isinstance(reset, UpdateRecord)
    again = over(reset.record, claim, failed(9_000), at(800))
    assert (again.status, again.attempts, again.next_run_at, again.last_error) == (
        TaskStatus.PENDING,
        0,
        at(1_200),
        None,
    )


def test_the_history_is_as_long_as_it_is_configured_to_be() -> None:
    """mongodash, 29: of ten runs the last five, three, or none; the last success is separate."""
    for history_max in (5, 3, 0):
        rules = attrs.evolve(T, history_max=history_max)
        record, now = first(rules, a=1), at(500)
        for turn in range(10):
            record = over(*taken(record, now, rules), Succeeded() if turn == 2 else failed(0), now, rules)
            record = seen(record, now, rules, a=turn + 2)
            now = record.next_run_at or now

        assert [run.token for run in record.history] == list(range(11 - history_max, 11))
        assert record.last_success is not None
        assert record.last_success.token == 3


def test_ten_records_are_claimed_once_each() -> None:
    """mongodash, 1: ten due records; five workers read all of them before any writes."""
    store = {n: attrs.evolve(first(a=n), id=f"r{n}") for n in range(10)}
    verdicts = [
        (n, tasks.claim(record, worker=f"w{turn}", rules=T, now=at(500)))
        for turn in range(5)
        for n, record in store.items()
    ]
    won: list[int] = []
    for n, verdict in verdicts:
        before = store[n]
        after = laws.carried_out(verdict, before)
        assert after is not None
        won += [n] if after is not before else []
        store[n] = after

    assert sorted(won) == list(range(10))
    assert {record.status for record in store.values()} == {TaskStatus.PROCESSING}


def test_a_large_snapshot_is_kept_as_its_digest() -> None:
    small = attrs.evolve(T, snapshot_bytes_max=10)
    record = first(small, a="x" * 100)

    assert record.snapshot == digest(doc(a="x" * 100))
    assert isinstance(taken(record, at(500), small)[1].snapshot, Digest)
    assert seen(record, at(100), small, a="x" * 100) is record
    assert seen(record, at(100), small, a="y" * 100).version == 2


@pytest.mark.parametrize(
    ("error", "kept"),
    [("", "unknown error"), ("$x", "$x"), ("\ud800", "?"), ("x" * 9_999, "x" * 1_000), ("é\0", "é\0")],
)
def test_no_error_keeps_its_record_from_being_written(error: str, kept: str) -> None:
    """mongodash: "$x" vanishes, and "$" makes the write fail; here the text is stored."""
    record = over(*taken(first(a=1), at(500)), Failed(error, GiveUp()), at(600))

    assert record.last_error == record.history[-1].error == kept
    assert Document.of({"error": record.last_error}).has(Field[str]("error"))
    assert kept not in repr(record).replace("unknown error", "") or not kept


def test_two_clocks_are_never_compared() -> None:
    record = first(a=1)
    held, claim = taken(record, at(500))
    wall = Instant(10**9, WALL)
    for ask in (
        lambda: tasks.plan(record, Matching(doc(a=2)), rules=T, now=wall, new_id="r2"),
        lambda: tasks.claim(record, worker="w1", rules=T, now=wall),
        lambda: tasks.begin(held, claim, Matching(doc(a=2)), rules=T, now=wall),
        lambda: tasks.renew(held, claim, rules=T, now=wall),
        lambda: tasks.finalise(held, claim, Succeeded(), rules=T, now=wall),
        lambda: tasks.finalise(held, claim, Deferred(wall), rules=T, now=at(600)),
        lambda: tasks.reset(record, now=wall),
    ):
        with pytest.raises(Misuse):
            ask()


def test_only_what_is_processed_is_under_a_claim() -> None:
    held, claim = taken(first(a=1), at(500))

    assert tasks.claim_of(held) == claim
    with pytest.raises(Misuse):
        tasks.claim_of(first(a=1))
