from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import PPM, SECOND, WALL, Duration, Instant
from tidegate.retries import failures
from tidegate.retries.backoff import Fixed, GiveUpReason, Policy, Retry, decide
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
    failed,
)
from tidegate.retries.laws import failures as laws
from tidegate.retries.strategies import failures as drawn
from tidegate.retries.strategies.backoff import policies

START = Instant(0, WALL)


class DecideFailure(Protocol):
    """What?"""

    def __call__(
        self, policy: Policy, operation: Operation, tried: Tried, now: Instant, draw_ppm: int, /
    ) -> FailureVerdict: ...


@attrs.frozen
class Retrier:
    """What a caller asks: the real functions, but for one that is planted."""

    failed: Callable[[Failure, Instant, Tried | None], Tried] = failures.failed
    decide_failure: DecideFailure = failures.decide_failure
    decide_duplicate: Callable[[str, str | None], Duplicate] = failures.decide_duplicate


REAL = Retrier()


def effort(retrier: Retrier) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if retrier == REAL else settings(phases=(Phase.explicit, Phase.generate))


def history(retrier: Retrier, failures: Sequence[Failure], since: Instant) -> Tried:
    so_far: Tried | None = None
    for failure in failures:
        so_far = retrier.failed(failure, since, so_far)
    assert so_far is not None
    return so_far


HISTORIES = st.lists(drawn.failures(), min_size=1, max_size=4)
OPERATIONS = st.sampled_from(Operation)
GENEROUS = Policy(backoff=Fixed(1), attempts_max=9)

# --- the laws -----------------------------------------------------------------------------------------------------------


def check_fa1(retrier: Retrier) -> None:
    @effort(retrier)
    @given(OPERATIONS, HISTORIES)
    @example(Operation.INSERT, [Refused(DUPLICATE_KEY)])
    def refusals_are_final(operation: Operation, failures: list[Failure]) -> None:
        tried = history(REAL, failures, START)
        verdict = retrier.decide_failure(GENEROUS, operation, tried, START, 0)
        assert laws.a_refusal_is_final(failures[-1], verdict)

    refusals_are_final()


def check_fa2(retrier: Retrier) -> None:
    @effort(retrier)
    @given(OPERATIONS, HISTORIES)
    @example(Operation.BLIND, [Ambiguous(), NotApplied()])
    def nothing_counts_twice(operation: Operation, failures: list[Failure]) -> None:
        tried = history(retrier, failures, START)
        verdict = retrier.decide_failure(GENEROUS, operation, tried, START, 0)
        assert laws.counts_once(operation, failures, verdict)

    nothing_counts_twice()


def check_fa3(retrier: Retrier) -> None:
    @effort(retrier)
    @given(HISTORIES)
    @example([Ambiguous(), Refused()])
    def knowledge_grows(failures: list[Failure]) -> None:
        assert laws.knows_no_less(failures, history(retrier, failures, START).known)

    knowledge_grows()


def check_fa4(retrier: Retrier) -> None:
    @effort(retrier)
    @given(st.sampled_from(("mine", "another's")), st.sampled_from(("mine", "another's", None)))
    def duplicates_are_known(request: str, made_by: str | None) -> None:
        assert laws.knows_its_own(request, made_by, retrier.decide_duplicate(request, made_by))

    duplicates_are_known()


def check_fa5(retrier: Retrier) -> None:
    @effort(retrier)
    @given(policies(), OPERATIONS, drawn.tried(), st.integers(0, 40))
    @example(ARTICLE, Operation.RECOGNISED, failed(Ambiguous(), START, failed(Ambiguous(), START)), 0)
    def failures_have_a_class(policy: Policy, operation: Operation, tried: Tried, elapsed: Duration) -> None:
        verdict = retrier.decide_failure(policy, operation, tried, tried.since + elapsed, 0)
        assert laws.is_of_its_class(tried, verdict)

    failures_have_a_class()


LAWS: dict[str, Callable[[Retrier], None]] = {
    "FA1": check_fa1,
    "FA2": check_fa2,
    "FA3": check_fa3,
    "FA4": check_fa4,
    "FA5": check_fa5,
}


@pytest.mark.parametrize("law", LAWS)
def test_retries_keep_the_law(law: str) -> None:
    """Laws FA1 to FA5, as the header of `tidegate.retries.failures` states them."""
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def anything_again(policy: Policy, operation: Operation, tried: Tried, now: Instant, draw: int) -> FailureVerdict:
    """The article's "always retry": whatever the exception, again, up to the maximum."""
    when = decide(policy, tried.attempts, tried.since, now, draw)
    return SendAgain(when) if isinstance(when, Retry) else failures.decide_failure(policy, operation, tried, now, draw)


def once_more_blindly(policy: Policy, operation: Operation, tried: Tried, now: Instant, draw: int) -> FailureVerdict:
    """The article's "retry network errors once", which may overcount."""
    known = operation if operation is Operation.READ else Operation.RECOGNISED
    return failures.decide_failure(policy, known, tried, now, draw)


def exhausted_is_refused(policy: Policy, operation: Operation, tried: Tried, now: Instant, draw: int) -> FailureVerdict:
    """Ambiguity becomes refusal: the caller of an insert that was done learns that it was not."""
    verdict = failures.decide_failure(policy, operation, tried, now, draw)
    return attrs.evolve(verdict, reason=NotRetryable.REFUSED) if isinstance(verdict, PassOn) else verdict


def the_last_word(failure: Failure, since: Instant, before: Tried | None) -> Tried:
    """What the last failure says is taken for what is known of all."""
    return attrs.evolve(failures.failed(failure, since, before), known=failures.failed(failure, since).known)


def any_is_own(request: str, made_by: str | None) -> Duplicate:
    """A duplicate key is taken for success, whoever was first."""
    return failures.decide_duplicate(request, request if made_by else None)


def none_is_own(_: str, made_by: str | None) -> Duplicate:
    """As in pynenc, the retry of an insert that was done learns that it was not."""
    return Duplicate.GONE if made_by is None else Duplicate.ANOTHERS


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("FA1", Retrier(decide_failure=anything_again)),
        ("FA2", Retrier(decide_failure=anything_again)),
        ("FA2", Retrier(decide_failure=once_more_blindly)),
        ("FA2", Retrier(failed=the_last_word)),
        ("FA3", Retrier(failed=the_last_word)),
        ("FA4", Retrier(decide_duplicate=any_is_own)),
        ("FA4", Retrier(decide_duplicate=none_is_own)),
        ("FA5", Retrier(decide_failure=exhausted_is_refused)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Retrier) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- a server that fails ------------------------------------------------------------------------------------------------


class Weather:
    """What becomes of one attempt."""

    FINE, LOST_BEFORE, NEVER_SENT, LOST_AFTER, NO_MAJORITY, FORBIDDEN = range(6)


@attrs.define
class Server:
    """One document with a counter; it knows a request that it has counted, unless the operation is blind."""

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


def client(retrier: Retrier, operation: Operation, weathers: Sequence[int]) -> tuple[Server, PassOn | None]:
    """Do it as the article says; the answer is None for success."""
    server, tried = Server(), None
    sends = True
    for weather in weathers:
        try:
            server.send(operation, weather) if sends else server.confirm(weather)
        except (Refused, NotApplied, Ambiguous, NotDurable) as failure:
            tried = retrier.failed(failure.fresh(), START, tried)
            match retrier.decide_failure(ARTICLE, operation, tried, START, 0):
                case SendAgain():
                    sends = True
                case AssertAgain():
                    sends = False
                case ReadBack():
                    assert retrier.decide_duplicate("mine", "mine" if server.count else None) is Duplicate.OWN
                    return server, None
                case PassOn() as verdict:
                    return server, verdict
        else:
            return server, None
    raise AssertionError("the article makes two attempts")


def check_the_article(retrier: Retrier) -> None:
    """What is counted, and what the caller learns, after any two attempts in any weather."""

    @effort(retrier)
    @given(
        st.sampled_from((Operation.RECOGNISED, Operation.INSERT, Operation.BLIND)), st.tuples(*[st.integers(0, 5)] * 2)
    )
    @example(Operation.INSERT, (Weather.LOST_AFTER, Weather.FINE))
    @example(Operation.BLIND, (Weather.LOST_AFTER, Weather.FINE))
    @example(Operation.RECOGNISED, (Weather.LOST_AFTER, Weather.FORBIDDEN))
    def the_truth_is_reported(operation: Operation, weathers: tuple[int, int]) -> None:
        server, answer = client(retrier, operation, (*weathers, Weather.FINE))
        assert server.count <= 1
        assert server.asked <= (1 if weathers[0] == Weather.FORBIDDEN else 2)
        if answer is None:
            assert server.count == 1
        elif answer.known is not Knowledge.PERHAPS_DONE:
            assert server.count == (1 if answer.known is Knowledge.DONE else 0)

    the_truth_is_reported()


def test_after_two_attempts_in_any_weather_the_caller_knows_the_truth() -> None:
    """Laws FA1, FA2, FA3 and FA4 together: nothing counts twice, a refusal costs one attempt, and no answer is false."""
    check_the_article(REAL)


@pytest.mark.parametrize(
    "planted",
    [
        Retrier(decide_failure=anything_again),
        Retrier(decide_failure=once_more_blindly),
        Retrier(failed=the_last_word),
        Retrier(decide_duplicate=none_is_own),
    ],
)
def test_the_bad_strategies_of_the_article_do_not_tell_the_truth(planted: Retrier) -> None:
    """Always retry, retry without recognition, forgetting the first attempt, and one's own duplicate as a conflict."""
    with pytest.raises(AssertionError):
        check_the_article(planted)


def test_without_a_draw_the_delay_is_whole() -> None:
    """Whoever has no random number at hand gets the policy's own delay."""
    policy = Policy(backoff=Fixed(9 * SECOND), jitter_ppm=PPM)

    verdict = failures.decide_failure(policy, Operation.READ, failed(Ambiguous(), START), START)
    assert verdict == SendAgain(Retry(START + 9 * SECOND, 9 * SECOND))


# --- facts --------------------------------------------------------------------------------------------------------------


def test_every_operation_has_a_step_whatever_is_known() -> None:
    """Totality: each operation x knowledge has an answer; only what would count twice is stopped."""
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
    """Davis 2016: a network error once, a command error never; what comes again after that lasts, and is passed on."""
    once = failed(failure, START)
    twice = failed(failure, START + 1, once)

    assert [first, second] == [
        shown(failures.decide_failure(ARTICLE, operation, tried, START)) for tried in (once, twice)
    ]
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
    """No server after 30 s is lasting at the first attempt: the driver has retried all that time."""
    tried = failed(NotApplied("no server"), START)
    verdict = failures.decide_failure(ARTICLE, Operation.RECOGNISED, tried, START + 30 * SECOND)

    assert verdict == PassOn(GiveUpReason.ELAPSED, 1, Knowledge.NOT_DONE)
    assert isinstance(failures.decide_failure(ARTICLE, Operation.RECOGNISED, tried, START + 12 * SECOND), SendAgain)


def test_a_failure_of_a_kind_that_is_not_known_is_ambiguous() -> None:
    """Totality: whoever adds a kind of failure says nothing of the effect."""

    class Odd(Failure):
        pass

    tried = failed(Odd("?"), START)

    assert tried.known is Knowledge.PERHAPS_DONE
    assert isinstance(failures.decide_failure(ARTICLE, Operation.BLIND, tried, START), PassOn)


def test_a_verdict_says_so_in_one_line() -> None:
    """With its class, and what is known of the effect."""
    lost = failed(Refused("not authorised"), START, failed(Ambiguous("no reply"), START))

    verdict = failures.decide_failure(ARTICLE, Operation.RECOGNISED, lost, START)
    assert str(verdict) == "pass on: definite, it was refused (perhaps done, attempts: 2)"


def test_every_reason_has_a_class() -> None:
    """Totality: what is refused is definite, what might count twice ambiguous, and a limit that is met lasting."""
    classes = [PassOn(reason, 1, Knowledge.NOT_DONE).error_class for reason in (*NotRetryable, *GiveUpReason)]
    assert classes == [ErrorClass.DEFINITE, ErrorClass.AMBIGUOUS, *[ErrorClass.LASTING] * len(GiveUpReason)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: failed("no", START),  # type: ignore[arg-type]
        lambda: failed(Refused(), None),  # type: ignore[arg-type]
        lambda: failed(Refused(), START, 1),  # type: ignore[arg-type]
        lambda: failures.decide_failure(ARTICLE, "read", failed(Refused(), START), START),  # type: ignore[arg-type]
        lambda: failures.decide_failure(ARTICLE, Operation.READ, Refused(), START),  # type: ignore[arg-type]
        lambda: failures.decide_duplicate("", "another's"),
        lambda: failures.decide_duplicate("mine", ""),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    """A bad configuration is an error at construction, a bad argument one at the call; neither is a crash."""
    with pytest.raises(Misuse):
        wrong()
