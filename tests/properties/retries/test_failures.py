from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import PPM, SECOND, WALL, Duration, Instant
from tidegate.retries import failures as module
from tidegate.retries.backoff import Fixed, GiveUpReason, Policy, Retry
from tidegate.retries.checks.laws import failures as laws
from tidegate.retries.checks.strategies import failures as drawn
from tidegate.retries.checks.strategies.backoff import policies
from tidegate.retries.failures import (
    ARTICLE,
    STEPS,
    AssertAgain,
    Duplicate,
    ErrorClass,
    FailureVerdict,
    Knowledge,
    NotRetryable,
    Operation,
    PassOn,
    ReadBack,
    Remedy,
    SendAgain,
    Tried,
    decide_duplicate,
    decide_failure,
    failed,
)

START = Instant(0, WALL)


def history(met: Sequence[Failure], since: Instant) -> Tried:
    so_far: Tried | None = None
    for failure in met:
        so_far = failed(failure, since, so_far)
    assert so_far is not None
    return so_far


HISTORIES = st.lists(drawn.failures(), min_size=1, max_size=4)
OPERATIONS = st.sampled_from(Operation)
GENEROUS = Policy(backoff=Fixed(1), attempts_max=9)

# --- the laws -----------------------------------------------------------------------------------------------------------


@given(OPERATIONS, HISTORIES)
@example(Operation.INSERT, [Refused(DUPLICATE_KEY)])
def test_fa1_refusals_are_final(operation: Operation, failures: list[Failure]) -> None:
    tried = history(failures, START)
    verdict = decide_failure(GENEROUS, operation, tried, START, 0)
    assert laws.a_refusal_is_final(failures[-1], verdict)


@given(OPERATIONS, HISTORIES)
@example(Operation.BLIND, [Ambiguous(), NotApplied()])
def test_fa2_nothing_counts_twice(operation: Operation, failures: list[Failure]) -> None:
    tried = history(failures, START)
    verdict = decide_failure(GENEROUS, operation, tried, START, 0)
    assert laws.counts_once(operation, failures, verdict)


@given(HISTORIES)
@example([Ambiguous(), Refused()])
def test_fa3_knowledge_grows(failures: list[Failure]) -> None:
    assert laws.knows_no_less(failures, history(failures, START).known)


@given(st.sampled_from(("mine", "another's")), st.sampled_from(("mine", "another's", None)))
def test_fa4_duplicates_are_known(request: str, made_by: str | None) -> None:
    assert laws.knows_its_own(request, made_by, decide_duplicate(request, made_by))


@given(policies(), OPERATIONS, drawn.tried(), st.integers(0, 40))
@example(ARTICLE, Operation.RECOGNISED, failed(Ambiguous(), START, failed(Ambiguous(), START)), 0)
def test_fa5_failures_have_a_class(policy: Policy, operation: Operation, tried: Tried, elapsed: Duration) -> None:
    verdict = decide_failure(policy, operation, tried, tried.since + elapsed, 0)
    assert laws.is_of_its_class(tried, verdict)


# --- a server that fails ------------------------------------------------------------------------------------------------


class Weather:
    FINE, LOST_BEFORE, NEVER_SENT, LOST_AFTER, NO_MAJORITY, FORBIDDEN = range(6)


@attrs.define
class Server:
    count: int = 0
    asked: int = 0

    def send(self, operation: Operation, weather: int) -> None:
        self.asked += 1
        if weather == Weather.FORBIDDEN:
            raise Refused("not authorised")
        if weather == Weather.NEVER_SENT:
            raise NotApplied("not the primary")
        if weather == Weather.LOST_BEFORE:
            raise Ambiguous("no reply")
        duplicate = operation is Operation.INSERT and self.count > 0
        if not duplicate:
            self.count += 1 if operation is Operation.BLIND or not self.count else 0
        if weather == Weather.LOST_AFTER:
            raise Ambiguous("no reply")
        if weather == Weather.NO_MAJORITY:
            raise NotDurable("no majority has confirmed it")
        if duplicate:
            raise Refused(DUPLICATE_KEY)

    def confirm(self, weather: int) -> None:
        self.asked += 1
        if weather != Weather.FINE:
            raise Ambiguous("no reply to the assertion")


def client(operation: Operation, weathers: Sequence[int]) -> tuple[Server, PassOn | None]:
    server, tried = Server(), None
    sends = True
    for weather in weathers:
        try:
            server.send(operation, weather) if sends else server.confirm(weather)
        except (Refused, NotApplied, Ambiguous, NotDurable) as failure:
            tried = failed(failure.fresh(), START, tried)
            match decide_failure(ARTICLE, operation, tried, START, 0):
                case SendAgain():
                    sends = True
                case AssertAgain():
                    sends = False
                case ReadBack():
                    assert decide_duplicate("mine", "mine" if server.count else None) is Duplicate.OWN
                    return server, None
                case PassOn() as verdict:
                    return server, verdict
        else:
            return server, None
    raise AssertionError("the article makes two attempts")


@given(st.sampled_from((Operation.RECOGNISED, Operation.INSERT, Operation.BLIND)), st.tuples(*[st.integers(0, 5)] * 2))
@example(Operation.INSERT, (Weather.LOST_AFTER, Weather.FINE))
@example(Operation.BLIND, (Weather.LOST_AFTER, Weather.FINE))
@example(Operation.RECOGNISED, (Weather.LOST_AFTER, Weather.FORBIDDEN))
def test_after_two_attempts_in_any_weather_the_caller_knows_the_truth(
    operation: Operation, weathers: tuple[int, int]
) -> None:
    server, answer = client(operation, (*weathers, Weather.FINE))
    assert server.count <= 1
    assert server.asked <= (1 if weathers[0] == Weather.FORBIDDEN else 2)
    if answer is None:
        assert server.count == 1
    elif answer.known is not Knowledge.PERHAPS_DONE:
        assert server.count == (1 if answer.known is Knowledge.DONE else 0)


def test_without_a_draw_the_delay_is_whole() -> None:
    policy = Policy(backoff=Fixed(9 * SECOND), jitter_ppm=PPM)

    verdict = decide_failure(policy, Operation.READ, failed(Ambiguous(), START), START)
    assert verdict == SendAgain(Retry(START + 9 * SECOND, 9 * SECOND))


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    module,
    # The article's "always retry": on any exception, up to the maximum.
    bug(
        "anything again",
        (
            "    if isinstance(tried.failure, Refused):\n",
            ("    when = decide(policy, tried.attempts, tried.since, now, draw_ppm)\n    if not isinstance(when, GiveUp):\n"
            "        return SendAgain(when)\n    if isinstance(tried.failure, Refused):\n"),
        ),
        test_fa1_refusals_are_final, test_fa2_nothing_counts_twice,
        test_after_two_attempts_in_any_weather_the_caller_knows_the_truth,
    ),
    # The article's "retry network errors once", which may overcount.
    bug(
        "once more blindly",
        ("STEPS[operation][", "STEPS[operation if operation is Operation.READ else Operation.RECOGNISED]["),
        test_fa2_nothing_counts_twice, test_after_two_attempts_in_any_weather_the_caller_knows_the_truth,
    ),
    # The last failure is taken for the knowledge of all attempts.
    bug(
        "the last word", ("max(before.known, _known_of(failure))", "_known_of(failure)"),
        test_fa2_nothing_counts_twice, test_fa3_knowledge_grows,
        test_after_two_attempts_in_any_weather_the_caller_knows_the_truth,
    ),
    # A duplicate key counts as success, whoever was first.
    bug(
        "any is own", ("if made_by == request else Duplicate.ANOTHERS", "if made_by else Duplicate.ANOTHERS"),
        test_fa4_duplicates_are_known,
    ),
    # As in pynenc: the retry of a completed insert reports that it was not done.
    bug(
        "none is own", ("Duplicate.OWN if made_by == request else Duplicate.ANOTHERS", "Duplicate.ANOTHERS"),
        test_fa4_duplicates_are_known, test_after_two_attempts_in_any_weather_the_caller_knows_the_truth,
    ),
    # Ambiguity becomes refusal: the caller of a completed insert learns that it was not done.
    bug("given up is refused", ("PassOn(when.reason,", "PassOn(NotRetryable.REFUSED,"), test_fa5_failures_have_a_class),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------


def test_every_operation_has_a_step_whatever_is_known() -> None:
    """Totality. Only a retry that would count twice is stopped."""
    assert set(STEPS) == set(Operation)
    assert all(set(steps) == set(Knowledge) for steps in STEPS.values())
    stopped = [
        (operation, known) for operation in STEPS for known in Knowledge if STEPS[operation][known] is Remedy.STOP
    ]

    assert stopped == [(Operation.BLIND, Knowledge.PERHAPS_DONE)]


@pytest.mark.parametrize(
    ("failure", "operation", "first", "second"),
    [
        (Refused("not authorised"), Operation.RECOGNISED, "definite", "definite"),
        (NotApplied("no primary"), Operation.BLIND, "again", "lasting"),
        (Ambiguous("no reply"), Operation.READ, "again", "lasting"),
        (Ambiguous("no reply"), Operation.RECOGNISED, "again", "lasting"),
        (Ambiguous("no reply"), Operation.BLIND, "ambiguous", "ambiguous"),
        (NotDurable("no majority"), Operation.BLIND, "assert", "lasting"),
        (NotDurable("no majority"), Operation.READ, "again", "lasting"),
        (Refused(DUPLICATE_KEY), Operation.INSERT, "read back", "read back"),
        (Refused(DUPLICATE_KEY), Operation.RECOGNISED, "definite", "definite"),
    ],
)
def test_the_four_failures_have_three_classes(failure: Failure, operation: Operation, first: str, second: str) -> None:
    """Davis 2016: retry a network error once, a command error never; a repeated one is lasting."""
    once = failed(failure, START)
    twice = failed(failure, START + 1, once)

    assert [first, second] == [shown(decide_failure(ARTICLE, operation, tried, START)) for tried in (once, twice)]
    assert twice.since == START


def shown(verdict: FailureVerdict) -> str:
    match verdict:
        case SendAgain():
            return "again"
        case AssertAgain():
            return "assert"
        case ReadBack():
            return "read back"
        case PassOn():
            return verdict.error_class.value


def test_a_driver_that_has_looked_for_a_primary_for_30_s_is_not_asked_again() -> None:
    """No server after 30 s is lasting at once: the driver has retried all that time."""
    tried = failed(NotApplied("no server"), START)
    verdict = decide_failure(ARTICLE, Operation.RECOGNISED, tried, START + 30 * SECOND)

    assert verdict == PassOn(GiveUpReason.ELAPSED, 1, Knowledge.NOT_DONE)
    assert isinstance(decide_failure(ARTICLE, Operation.RECOGNISED, tried, START + 12 * SECOND), SendAgain)


def test_a_failure_of_a_kind_that_is_not_known_is_ambiguous() -> None:
    class Odd(Failure):
        pass

    tried = failed(Odd("?"), START)

    assert tried.known is Knowledge.PERHAPS_DONE
    assert isinstance(decide_failure(ARTICLE, Operation.BLIND, tried, START), PassOn)


def test_a_verdict_says_so_in_one_line() -> None:
    lost = failed(Refused("not authorised"), START, failed(Ambiguous("no reply"), START))

    verdict = decide_failure(ARTICLE, Operation.RECOGNISED, lost, START)
    assert str(verdict) == "pass on: definite, it was refused (perhaps done, attempts: 2)"


def test_every_reason_has_a_class() -> None:
    """Totality: refusals are definite, possible double counts ambiguous, reached limits lasting."""
    classes = [PassOn(reason, 1, Knowledge.NOT_DONE).error_class for reason in (*NotRetryable, *GiveUpReason)]
    assert classes == [ErrorClass.DEFINITE, ErrorClass.AMBIGUOUS, *[ErrorClass.LASTING] * len(GiveUpReason)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: failed("no", START),  # type: ignore[arg-type]
        lambda: failed(Refused(), None),  # type: ignore[arg-type]
        lambda: failed(Refused(), START, 1),  # type: ignore[arg-type]
        lambda: decide_failure(ARTICLE, "read", failed(Refused(), START), START),  # type: ignore[arg-type]
        lambda: decide_failure(ARTICLE, Operation.READ, Refused(), START),  # type: ignore[arg-type]
        lambda: decide_duplicate("", "another's"),
        lambda: decide_duplicate("mine", ""),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
