"""How runs end, request by request; the scenario `ending` explores every interleaving."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.invocations.test_settling import DROPPED, Store, answered
from tests.properties.on_documents import run
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.scenarios import settling as records
from tidegate.invocations.checks.scenarios.transition import RECORDS
from tidegate.invocations.queue.completion import (
    MESSAGE_MAX,
    TRACEBACK_MAX,
    Cancelled,
    End,
    Ending,
    EndingOutcome,
    Failed,
    GivenBack,
    RunEnd,
    RunError,
    Succeeded,
    error_of,
    move_of,
    upload_name,
)
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job, new_invocation
from tidegate.invocations.record.record_documents import DUE, ERROR, TRIES, WAITS, changes, new_record
from tidegate.invocations.record.status import Accepted, StatusRecord, decide_transition
from tidegate.invocations.record.transition import GaveUp, Granted, Outdated
from tidegate.model.documents import ID, Document, Eq, checked, has_lone_surrogate
from tidegate.model.effects import Effect, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, STORE, Instant
from tidegate.model.operations import BulkUpdate, FindAll, StoreTime, find_one, update_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Cron, Fixed, Policy, delay_after
from tidegate.retries.checks.strategies.backoff import policies
from tidegate.sim.world.world import contents, perform, world_with

NOW: Final = Instant(7 * SECOND, STORE)
RUNNING: Final = StatusRecord(status.RUNNING, "r", 2)
ERROR_OF: Final = RunError("ValueError", "no", "line 1", ("Exception",))
ENDS: Final = st.one_of(
    st.builds(Succeeded, st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3))),
    st.builds(Succeeded, upload=st.just("x@2")),
    st.builds(Failed, st.just(ERROR_OF), st.none() | policies()),
    st.builds(GivenBack, st.none() | st.just(NOW), st.booleans()),
    st.builds(GivenBack, counts=st.booleans(), delay=st.integers(0, SECOND)),
    st.just(Cancelled()),
)


def run_end(end: End, **more: Any) -> RunEnd:
    return RunEnd(key="x", record=RUNNING, end=end, **more)


def after(run: RunEnd, now: Instant | None = NOW) -> Document:
    world = world_with({"records": (new_record("x", RUNNING, "taken", Instant(0), more=Document((("tries", 1),))),)})
    move = move_of(run, now)
    verdict = decide_transition(INVOCATION, RUNNING, move.target, "r")
    assert isinstance(verdict, Accepted)
    ((world_after, _),) = perform(
        update_one("records", Eq(ID, "x"), *changes(INVOCATION, verdict, move.request, *move.also)), world, "r"
    )
    (found,) = contents(world_after, "records")
    return found


@given(ENDS, st.integers(1, 9), st.booleans())
def test_each_end_is_a_legal_write_that_leaves_a_record_as_the_laws_have_it(
    end: End, tries: int, listened: bool
) -> None:
    """Laws EN1, EN2, EN3 and EN4."""
    found = after(run_end(end, tries=tries, is_listened=listened))
    granted = [end.result if end.upload is None else end.upload] if isinstance(end, Succeeded) else []

    assert laws.ending.result_is_of_the_granted(found, granted)
    assert laws.ending.available_is_due(found)
    assert laws.ending.versions_are_noticed(found, [3] if listened else [])
    if isinstance(end, Failed):
        assert laws.ending.as_often_as_allowed(found, tries, 0 if end.policy is None else end.policy.attempts_max)
        assert error_of(found.get(ERROR) or Document()) == ERROR_OF
    if isinstance(end, GivenBack):
        assert found[TRIES] == (1 if end.counts else tries - 1)


@given(st.none() | st.just(NOW), st.booleans())
def test_what_was_no_try_stands_where_it_stood(due: Instant | None, counts: bool) -> None:
    before = Instant(2 * SECOND, STORE)
    found = after(run_end(GivenBack(due, counts=counts), due=before))

    assert found.get(DUE) == (due or (Instant(0, STORE) if counts else before))


@given(st.integers(0, 5 * SECOND))
def test_what_is_given_back_with_a_delay_is_due_after_that(delay: int) -> None:
    """Law EN5, by the store's clock."""
    due = after(run_end(GivenBack(delay=delay), due=Instant(2 * SECOND, STORE)))[DUE]

    assert laws.ending.a_try_is_due_after_the_delay(due, NOW, delay, delay + MILLISECOND)


def test_a_delay_counts_from_when_the_end_is_written() -> None:
    store = stored("a")
    (answer,) = store.run(ending(of_key("a", GivenBack(delay=SECOND))).run()).answers

    assert isinstance(answer, Granted)
    found = cast("Document", store.do(find_one(RECORDS, Eq(ID, "a"))))
    now = cast("Instant", store.do(StoreTime()))
    assert found[DUE] - now <= SECOND


@given(policies(), st.integers(1, 9))
def test_a_try_is_due_after_the_delay_of_its_policy(policy: Policy, tries: int) -> None:
    """Law EN5, with and without jitter."""
    run = run_end(Failed(ERROR_OF, policy), tries=tries)
    found = after(run)
    due = found.get(DUE)

    assert found == after(run)
    if due is not None and not isinstance(policy.backoff, Cron):
        delay = delay_after(policy.backoff, tries)
        least = delay - delay * policy.jitter_ppm // 1_000_000
        assert laws.ending.a_try_is_due_after_the_delay(due, NOW, least, delay + MILLISECOND)


def test_the_maximum_duration_counts_from_the_first_failure() -> None:
    """Law EN3."""
    policy = Policy(backoff=Fixed(SECOND), attempts_max=None, elapsed_max=5 * SECOND)

    def target(since: Instant | None) -> str:
        return move_of(run_end(Failed(ERROR_OF, policy), tries=9, failing_since=since), NOW).target

    assert target(None) == target(Instant(3 * SECOND)) == status.RETRY
    assert target(Instant(2 * SECOND)) == status.FAILED  # not below the second that it waits


def ending(*runs: RunEnd, attempts: int = 3) -> Ending:
    return Ending(runs=runs, records=RECORDS, attempts=attempts, pauses=Pauses(Fixed(0)))


def stored(*keys: str) -> Store:
    return Store(world_with({RECORDS: tuple(map(records.record, keys))}))


def of_key(key: str, end: End) -> RunEnd:
    return RunEnd(key=key, record=records.RUNNING, end=end)


def test_ends_of_many_are_one_request_and_the_time_is_asked_for_where_it_matters() -> None:
    """Law EN5."""
    store = stored("a", "b", "c")
    assert store.run(ending(of_key("a", Succeeded(1)), of_key("b", Failed(ERROR_OF))).run()) == EndingOutcome((
        Granted(StatusRecord(status.SUCCESS, None, 4)),
        Granted(StatusRecord(status.FAILED, None, 4)),
    ))  # fmt: skip
    assert store.kinds == [BulkUpdate]
    store.asked.clear()
    store.run(ending(of_key("c", Failed(ERROR_OF, Policy()))).run())
    assert store.kinds == [StoreTime, BulkUpdate]


def test_without_the_time_nothing_is_sent() -> None:
    store = stored("a")
    run = of_key("a", Failed(ERROR_OF, Policy()))

    assert store.run(ending(run, attempts=2).run(), DROPPED, DROPPED) == EndingOutcome(
        (GaveUp(2, records.RUNNING, None),)
    )
    assert store.kinds == [StoreTime] * 2
    (answer,) = store.run(ending(run).run(), DROPPED, answered, answered).answers
    assert answer == Granted(StatusRecord(status.RETRY, None, 4))


def test_who_was_taken_over_changes_nothing() -> None:
    """Law EN1, even with the right id."""
    store = stored("a")
    store.run(ending(of_key("a", GivenBack())).run())
    (late,) = store.run(ending(of_key("a", Succeeded("late"))).run()).answers

    assert isinstance(late, Outdated)
    found = cast("Document", store.do(find_one(RECORDS, Eq(ID, "a"))))
    assert laws.ending.result_is_of_the_granted(found, ())


def test_what_is_kept_of_an_error_is_bounded() -> None:
    long = RunError("E", "m" * (MESSAGE_MAX + 1), "first" + "t" * TRACEBACK_MAX + "last")
    kept = error_of(long.document())

    assert (len(kept.message), len(kept.traceback)) == (MESSAGE_MAX, TRACEBACK_MAX)
    assert kept.message.startswith("mm")
    assert kept.traceback.endswith("last")
    fits = RunError("E", "m" * MESSAGE_MAX, "t" * TRACEBACK_MAX)
    assert error_of(fits.document()) == fits
    assert "secret" not in repr(Failed(RunError("E", "secret", "secret"))) + repr(Succeeded("secret"))


@given(st.text(st.characters(categories=("Cs", "L")), min_size=1))
def test_what_is_kept_of_an_error_is_a_document_whatever_it_says(text: str) -> None:
    """File names that are not UTF-8 have lone surrogates; a failed write would repeat for ever."""
    for error in (RunError("E", text), RunError("E", "", text), RunError(text), RunError("E", above=(text,))):
        checked(error.document(), "an error")
        assert error_of(error.document()) == error or has_lone_surrogate(text)


def test_no_two_runs_upload_under_one_name() -> None:
    assert upload_name("x", 2) != upload_name("x", 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Succeeded(1, upload="x@2"),
        lambda: RunEnd(key="x", record=StatusRecord(status.RETRY, None, 2), end=Cancelled()),
        lambda: ending(of_key("a", Cancelled()), of_key("a", Cancelled())),
        lambda: ending(of_key("a", Cancelled()), RunEnd(key="b", record=RUNNING, end=Cancelled())),
        ending,
        lambda: move_of(run_end(Failed(ERROR_OF, Policy())), None),
    ],
    ids=["two results", "no owner", "one invocation twice", "two owners", "no run", "no time"],
)
def test_what_is_no_end_is_refused(make: Any) -> None:
    with pytest.raises(Misuse):
        make()


@OF_DESIGNS
def test_every_fault_strikes_where_it_is_explored() -> None:
    """Laws EN1 to EN5."""
    report = report_on("ending")

    assert report.ok
    assert {"partly_done", "late", "lost_reply", "dropped", "crash_after"} <= {*report.faults}


def test_whoever_waits_for_a_place_is_woken_after_the_ends_are_in() -> None:
    """Law EN6. Without a reply, the ends are still written."""
    owned = StatusRecord(status.RUNNING, "r", 2)
    sleeps = new_invocation("b", Job(task="send", limited_by="set"), "made", Instant(0)).put(WAITS, Instant(0))
    runs = new_record("a", owned, "made", Instant(0), more=Document.of({"limited_by": "set"}))
    world = world_with({RECORDS: (runs, sleeps)})
    ending = Ending(runs=(RunEnd(key="a", record=owned, end=Succeeded(), limited_by="set"),), records=RECORDS)
    asked: list[type[Effect[object]]] = []

    def noted(effect: Effect[object]) -> None:
        asked.append(type(effect))

    ended, after = run(ending.run(), world, fails=noted)
    unwoken, _ = run(ending.run(), world, fails=lambda each: Refused("no") if isinstance(each, FindAll) else None)

    assert asked == [BulkUpdate, FindAll, BulkUpdate]
    assert isinstance(ended.answers[0], Granted)
    assert (ended.is_more, unwoken) == (True, EndingOutcome(ended.answers))
    assert [each.has(WAITS) for each in contents(after, RECORDS)] == [False, False]
