from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, PPM, SECOND, STORE, WALL, Duration, Instant
from tidegate.retries import retry
from tidegate.retries.laws import retry as laws
from tidegate.retries.retry import (
    ARTICLE,
    DAY,
    LONGEST,
    STEPS,
    AssertAgain,
    Cron,
    Duplicate,
    ErrorClass,
    Exponential,
    FailureVerdict,
    Fixed,
    GiveUp,
    Knowledge,
    Linear,
    Operation,
    PassOn,
    Policy,
    ReadBack,
    Reason,
    Retry,
    RetryVerdict,
    Schedule,
    SendAgain,
    Series,
    Tried,
    delay_after,
    failed,
)
from tidegate.retries.strategies import retry as drawn
from tidegate.retries.strategies.retry import EachPeriod

Delaying = Fixed | Linear | Exponential | Series
HOUR = 60 * MINUTE
START = Instant(0, WALL)


class Decide(Protocol):
    """When?"""

    def __call__(
        self, policy: Policy, attempts: int, since: Instant, now: Instant, draw_ppm: int, /
    ) -> RetryVerdict: ...


class DecideFailure(Protocol):
    """What?"""

    def __call__(
        self, policy: Policy, operation: Operation, tried: Tried, now: Instant, draw_ppm: int, /
    ) -> FailureVerdict: ...


@attrs.frozen
class Retrier:
    """What a caller asks: the real functions, but for one that is planted."""

    decide: Decide = retry.decide
    delay_after: Callable[[Delaying, int], Duration] = retry.delay_after
    failed: Callable[[Failure, Instant, Tried | None], Tried] = retry.failed
    decide_failure: DecideFailure = retry.decide_failure
    decide_duplicate: Callable[[str, str | None], Duplicate] = retry.decide_duplicate


REAL = Retrier()


@attrs.frozen
class Case:
    """What is known when a caller asks when."""

    policy: Policy
    attempts: int
    since: Instant
    now: Instant
    draw: int

    @property
    def whole(self) -> Duration | None:
        """The delay without jitter; None for a cron that is never due."""
        if not isinstance(self.policy.schedule, Cron):
            return delay_after(self.policy.schedule, self.attempts)
        due = self.policy.schedule.next_after(self.policy.schedule.expression, self.now)
        return None if due is None else due - self.now


@st.composite
def cases(draw: st.DrawFn, schedules: st.SearchStrategy[Schedule] | None = None) -> Case:
    policy, since = draw(drawn.policies(schedules)), draw(drawn.clock_times())
    near = st.integers(-5, 40) if policy.elapsed_max is None else st.integers(-5, policy.elapsed_max + 5)
    counts = drawn.attempts() if policy.attempts_max is None else st.integers(1, policy.attempts_max + 1)
    return Case(policy, draw(counts), since, since + draw(st.one_of(near, drawn.delays())), draw(drawn.draws()))


def effort(retrier: Retrier) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if retrier == REAL else settings(phases=(Phase.explicit, Phase.generate))


def verdict_of(retrier: Retrier, case: Case) -> RetryVerdict:
    return retrier.decide(case.policy, case.attempts, case.since, case.now, case.draw)


def history(retrier: Retrier, failures: Sequence[Failure], since: Instant) -> Tried:
    so_far: Tried | None = None
    for failure in failures:
        so_far = retrier.failed(failure, since, so_far)
    assert so_far is not None
    return so_far


HISTORIES = st.lists(drawn.failures(), min_size=1, max_size=4)
OPERATIONS = st.sampled_from(Operation)
GENEROUS = Policy(schedule=Fixed(1), attempts_max=9)
GROWING = st.lists(drawn.attempts(), min_size=2, max_size=2).map(sorted)

# --- the laws -----------------------------------------------------------------------------------------------------------


def check_r1(retrier: Retrier) -> None:
    @effort(retrier)
    @given(OPERATIONS, HISTORIES)
    @example(Operation.INSERT, [Refused(DUPLICATE_KEY)])
    def refusals_are_final(operation: Operation, failures: list[Failure]) -> None:
        tried = history(REAL, failures, START)
        verdict = retrier.decide_failure(GENEROUS, operation, tried, START, 0)
        assert laws.a_refusal_is_final(failures[-1], verdict)

    refusals_are_final()


def check_r2(retrier: Retrier) -> None:
    @effort(retrier)
    @given(OPERATIONS, HISTORIES)
    @example(Operation.BLIND, [Ambiguous(), NotApplied()])
    def nothing_counts_twice(operation: Operation, failures: list[Failure]) -> None:
        tried = history(retrier, failures, START)
        verdict = retrier.decide_failure(GENEROUS, operation, tried, START, 0)
        assert laws.counts_once(operation, failures, verdict)

    nothing_counts_twice()


def check_r3(retrier: Retrier) -> None:
    @effort(retrier)
    @given(HISTORIES)
    @example([Ambiguous(), Refused()])
    def knowledge_grows(failures: list[Failure]) -> None:
        assert laws.knows_no_less(failures, history(retrier, failures, START).known)

    knowledge_grows()


def check_r4(retrier: Retrier) -> None:
    @effort(retrier)
    @given(cases())
    @example(Case(Policy(schedule=Fixed(1), attempts_max=3), 3, START, START, 0))
    def attempts_have_a_maximum(case: Case) -> None:
        assert laws.attempts_are_bounded(case.policy, case.attempts, verdict_of(retrier, case))

    attempts_have_a_maximum()


def check_r5(retrier: Retrier) -> None:
    @effort(retrier)
    @given(cases())
    @example(Case(Policy(schedule=Linear(HOUR), attempts_max=None, elapsed_max=2 * HOUR), 2, START, START + HOUR, 0))
    def time_has_a_maximum(case: Case) -> None:
        assert laws.time_is_bounded(case.policy, case.since, verdict_of(retrier, case))

    time_has_a_maximum()


def check_r6(retrier: Retrier) -> None:
    @effort(retrier)
    @given(drawn.delaying(), st.one_of(st.integers(1, 12), st.integers(1, 300)))
    @example(Exponential(1, LONGEST, 1_500_000), 3)
    @example(Exponential(1, LONGEST), 53)
    def delays_are_the_formulas(schedule: Delaying, attempts: int) -> None:
        assert laws.follows_the_formula(schedule, attempts, retrier.delay_after(schedule, attempts))

    delays_are_the_formulas()


def check_r6_growth(retrier: Retrier) -> None:
    @effort(retrier)
    @given(drawn.growing(), GROWING)
    @example(Exponential(1, 2**40), [40, 70])
    def delays_grow(schedule: Fixed | Linear | Exponential, attempts: list[int]) -> None:
        earlier, later = (retrier.delay_after(schedule, each) for each in attempts)
        assert laws.grows_up_to_its_cap(schedule, earlier, later)

    delays_grow()


def check_r7(retrier: Retrier) -> None:
    @effort(retrier)
    @given(cases(drawn.delaying()))
    @example(Case(Policy(schedule=Fixed(9), jitter_ppm=PPM), 1, START, START, PPM))
    def jitter_takes_its_part(case: Case) -> None:
        verdict = verdict_of(retrier, case)
        if isinstance(verdict, Retry):
            assert case.whole is not None
            assert laws.takes_no_more_than_its_part(case.policy, case.whole, verdict.after)

    jitter_takes_its_part()


def check_r8(retrier: Retrier) -> None:
    @effort(retrier)
    @given(cases())
    @example(Case(Policy(schedule=Cron("* * * * *", EachPeriod(MINUTE))), 1, START, START + MINUTE, 0))
    def the_next_attempt_is_named(case: Case) -> None:
        assert laws.is_next(case.policy, case.now, verdict_of(retrier, case))

    the_next_attempt_is_named()


def check_r9(retrier: Retrier) -> None:
    @effort(retrier)
    @given(cases())
    @example(Case(Policy(schedule=Fixed(5), attempts_max=None, elapsed_max=9), 1, START, START + 4, 0))
    @example(Case(Policy(schedule=Fixed(5), attempts_max=3), 2, START, START, 0))
    def it_gives_up_for_a_reason(case: Case) -> None:
        verdict = verdict_of(retrier, case)
        elapsed = case.now - case.since
        assert laws.gives_up_for_a_reason(case.policy, case.attempts, elapsed, case.whole, verdict)

    it_gives_up_for_a_reason()


def check_r10(retrier: Retrier) -> None:
    @effort(retrier)
    @given(st.sampled_from(("mine", "another's")), st.sampled_from(("mine", "another's", None)))
    def duplicates_are_known(request: str, made_by: str | None) -> None:
        assert laws.knows_its_own(request, made_by, retrier.decide_duplicate(request, made_by))

    duplicates_are_known()


def check_r11(retrier: Retrier) -> None:
    @effort(retrier)
    @given(cases(drawn.delaying()), drawn.delays())
    def time_has_no_origin(case: Case, by: Duration) -> None:
        moved = attrs.evolve(case, since=case.since + by, now=case.now + by)
        assert laws.moved_in_time(verdict_of(retrier, case), verdict_of(retrier, moved), by)

    time_has_no_origin()


def check_r12(retrier: Retrier) -> None:
    @effort(retrier)
    @given(drawn.policies(), OPERATIONS, drawn.tried(), st.integers(0, 40))
    @example(ARTICLE, Operation.RECOGNISED, failed(Ambiguous(), START, failed(Ambiguous(), START)), 0)
    def failures_have_a_class(policy: Policy, operation: Operation, tried: Tried, elapsed: Duration) -> None:
        verdict = retrier.decide_failure(policy, operation, tried, tried.since + elapsed, 0)
        assert laws.is_of_its_class(tried, verdict)

    failures_have_a_class()


LAWS: dict[str, Callable[[Retrier], None]] = {
    "R1": check_r1,
    "R2": check_r2,
    "R3": check_r3,
    "R4": check_r4,
    "R5": check_r5,
    "R6": check_r6,
    "R6 at any number": check_r6_growth,
    "R7": check_r7,
    "R8": check_r8,
    "R9": check_r9,
    "R10": check_r10,
    "R11": check_r11,
    "R12": check_r12,
}


@pytest.mark.parametrize("law", LAWS)
def test_retries_keep_the_law(law: str) -> None:
    """Laws R1 to R12, as the header of `tidegate.retries.retry` states them."""
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def anything_again(policy: Policy, operation: Operation, tried: Tried, now: Instant, draw: int) -> FailureVerdict:
    """The article's "always retry": whatever the exception, again, up to the maximum."""
    when = retry.decide(policy, tried.attempts, tried.since, now, draw)
    return SendAgain(when) if isinstance(when, Retry) else retry.decide_failure(policy, operation, tried, now, draw)


def once_more_blindly(policy: Policy, operation: Operation, tried: Tried, now: Instant, draw: int) -> FailureVerdict:
    """The article's "retry network errors once", which may overcount."""
    known = operation if operation is Operation.READ else Operation.RECOGNISED
    return retry.decide_failure(policy, known, tried, now, draw)


def exhausted_is_refused(policy: Policy, operation: Operation, tried: Tried, now: Instant, draw: int) -> FailureVerdict:
    """Ambiguity becomes refusal: the caller of an insert that was done is told that it was not."""
    verdict = retry.decide_failure(policy, operation, tried, now, draw)
    return attrs.evolve(verdict, reason=Reason.REFUSED) if isinstance(verdict, PassOn) else verdict


def the_last_word(failure: Failure, since: Instant, before: Tried | None) -> Tried:
    """What the last failure says is taken for what is known of all."""
    return attrs.evolve(retry.failed(failure, since, before), known=retry.failed(failure, since).known)


def one_more(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    """A maximum of retries is taken for one of attempts."""
    more = None if policy.attempts_max is None else policy.attempts_max + 1
    return retry.decide(attrs.evolve(policy, attempts_max=more), attempts, since, now, draw)


def one_less(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    return retry.decide(policy, attempts + 1, since, now, draw)


def looks_when_it_fails(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    """mongodash: the elapsed time is compared when an attempt fails, and the delay may lead beyond the maximum."""
    if policy.elapsed_max is not None and now - since > policy.elapsed_max:
        return GiveUp(Reason.ELAPSED, attempts)
    return retry.decide(attrs.evolve(policy, elapsed_max=None, attempts_max=9), min(attempts, 8), since, now, draw)


def ends_at_the_bound(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    """pynenc: stop when the elapsed time is the maximum, not only when it is above."""
    verdict = retry.decide(policy, attempts, since, now, draw)
    late = isinstance(verdict, Retry) and policy.elapsed_max is not None and verdict.at - since >= policy.elapsed_max
    return GiveUp(Reason.ELAPSED, attempts) if late else verdict


def jitter_on_top(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    """The jitter is added, so delays pass their cap."""
    verdict = retry.decide(policy, attempts, since, now, 0)
    if isinstance(verdict, GiveUp):
        return verdict
    after = verdict.after + verdict.after * policy.jitter_ppm * draw // PPM**2
    return Retry(now + after, after)


def counted_from_the_first(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    """The delay is added to when the first attempt began."""
    verdict = retry.decide(policy, attempts, since, now, draw)
    return attrs.evolve(verdict, at=since + verdict.after) if isinstance(verdict, Retry) else verdict


def due_now(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    """The first instant at or after now: a cron that has just failed is due at once."""
    return retry.decide(policy, attempts, since + -1, now + -1, draw)


def in_whole_seconds(policy: Policy, attempts: int, since: Instant, now: Instant, draw: int) -> RetryVerdict:
    verdict = retry.decide(policy, attempts, since, now, draw)
    return attrs.evolve(verdict, at=verdict.at + -verdict.at.at % SECOND) if isinstance(verdict, Retry) else verdict


def one_step_ahead(schedule: Delaying, attempts: int) -> Duration:
    """The first delay is factor ** 1, or two intervals."""
    return retry.delay_after(schedule, attempts + 1)


def in_floats(schedule: Delaying, attempts: int) -> Duration:
    """A factor of 1.5 is worked out as 1 + 0.5 + ..., and rounded each time."""
    if not isinstance(schedule, Exponential):
        return retry.delay_after(schedule, attempts)
    delay = schedule.first
    for _ in range(min(attempts - 1, 500)):
        delay = min(schedule.cap, delay * schedule.factor_ppm // PPM)
    return delay


def in_64_bits(schedule: Delaying, attempts: int) -> Duration:
    """`first << n`, as a machine does it: after 64 doublings nothing is left."""
    if not isinstance(schedule, Exponential):
        return retry.delay_after(schedule, attempts)
    return min(schedule.cap, schedule.first << min(attempts - 1, 64) & 2**64 - 1)


def uncapped(schedule: Delaying, attempts: int) -> Duration:
    """mongodash, where no maximum is named."""
    if isinstance(schedule, Linear):
        return schedule.interval * attempts
    return retry.delay_after(schedule, attempts)


def any_is_own(request: str, made_by: str | None) -> Duplicate:
    """A duplicate key is taken for success, whoever was first."""
    return retry.decide_duplicate(request, request if made_by else None)


def none_is_own(_: str, made_by: str | None) -> Duplicate:
    """As in pynenc, the retry of an insert that was done is told that it was not."""
    return Duplicate.GONE if made_by is None else Duplicate.ANOTHERS


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("R1", Retrier(decide_failure=anything_again)),
        ("R2", Retrier(decide_failure=anything_again)),
        ("R2", Retrier(decide_failure=once_more_blindly)),
        ("R2", Retrier(failed=the_last_word)),
        ("R3", Retrier(failed=the_last_word)),
        ("R4", Retrier(decide=one_more)),
        ("R5", Retrier(decide=looks_when_it_fails)),
        ("R6", Retrier(delay_after=one_step_ahead)),
        ("R6", Retrier(delay_after=in_floats)),
        ("R6", Retrier(delay_after=in_64_bits)),
        ("R6", Retrier(delay_after=uncapped)),
        ("R6 at any number", Retrier(delay_after=in_64_bits)),
        ("R6 at any number", Retrier(delay_after=uncapped)),
        ("R7", Retrier(decide=jitter_on_top)),
        ("R8", Retrier(decide=counted_from_the_first)),
        ("R8", Retrier(decide=due_now)),
        ("R9", Retrier(decide=one_less)),
        ("R9", Retrier(decide=ends_at_the_bound)),
        ("R10", Retrier(decide_duplicate=any_is_own)),
        ("R10", Retrier(decide_duplicate=none_is_own)),
        ("R11", Retrier(decide=in_whole_seconds)),
        ("R12", Retrier(decide_failure=exhausted_is_refused)),
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
    """What is counted, and what the caller is told, after any two attempts in any weather."""

    @effort(retrier)
    @given(
        st.sampled_from((Operation.RECOGNISED, Operation.INSERT, Operation.BLIND)), st.tuples(*[st.integers(0, 5)] * 2)
    )
    @example(Operation.INSERT, (Weather.LOST_AFTER, Weather.FINE))
    @example(Operation.BLIND, (Weather.LOST_AFTER, Weather.FINE))
    @example(Operation.RECOGNISED, (Weather.LOST_AFTER, Weather.FORBIDDEN))
    def the_truth_is_told(operation: Operation, weathers: tuple[int, int]) -> None:
        server, answer = client(retrier, operation, (*weathers, Weather.FINE))
        assert server.count <= 1
        assert server.asked <= (1 if weathers[0] == Weather.FORBIDDEN else 2)
        if answer is None:
            assert server.count == 1
        elif answer.known is not Knowledge.PERHAPS_DONE:
            assert server.count == (1 if answer.known is Knowledge.DONE else 0)

    the_truth_is_told()


def test_after_two_attempts_in_any_weather_the_caller_knows_the_truth() -> None:
    """Laws R1, R2, R3 and R10 together: nothing counts twice, a refusal costs one attempt, and no answer is false."""
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


# --- vectors of the systems that this is learnt from --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Exponential(SECOND, 10 * SECOND), [1, 2, 4, 8, 10, 10]),
        (Linear(MINUTE), [60, 120, 180]),
        (Series((SECOND, 10 * SECOND, MINUTE)), [1, 10, 60, 60]),
        (Fixed(5 * SECOND), [5, 5]),
        (Exponential(), [10, 20, 40, 80]),
    ],
)
def test_delays_are_those_of_mongodash(schedule: Delaying, expected: list[int]) -> None:
    """The vectors that its tests check, and its default of 10 s."""
    assert expected == [delay_after(schedule, attempts) // SECOND for attempts in range(1, len(expected) + 1)]


def test_a_cron_is_due_at_the_next_noon() -> None:
    """mongodash: "Cron noon" names the next noon, here by a port that knows noons, and never again after a last one."""
    noons = EachPeriod(DAY, end=2 * DAY)
    policy = Policy(schedule=Cron("0 12 * * *", noons), attempts_max=None)

    assert retry.decide(policy, 1, START, START + HOUR) == Retry(START + DAY, 23 * HOUR)
    assert retry.decide(policy, 10**9, START, START + DAY) == Retry(START + 2 * DAY, DAY)
    assert retry.decide(policy, 3, START, START + 2 * DAY) == GiveUp(Reason.NEVER_DUE, 3)


def test_three_attempts_are_two_retries() -> None:
    """As in mongodash and pynenc: with a maximum of 3, n = 2 goes on and n = 3 stops; sleeps of 0.1 s and 0.2 s."""
    pynenc = Policy(schedule=Exponential(100 * MILLISECOND, 60 * SECOND), attempts_max=3, elapsed_max=300 * SECOND)

    assert retry.decide(pynenc, 1, START, START) == Retry(START + 100 * MILLISECOND, 100 * MILLISECOND)
    assert retry.decide(pynenc, 2, START, START) == Retry(START + 200 * MILLISECOND, 200 * MILLISECOND)
    assert retry.decide(pynenc, 3, START, START) == GiveUp(Reason.ATTEMPTS, 3)


def test_five_attempts_are_made_unless_told() -> None:
    """The default of mongodash: 10 s, 20 s, 40 s and 80 s after failures, and no more after the fifth."""
    delays = [retry.decide(Policy(), attempts, START, START) for attempts in range(1, 6)]

    assert delays == [
        *(Retry(START + 10 * n * SECOND, 10 * n * SECOND) for n in (1, 2, 4, 8)),
        GiveUp(Reason.ATTEMPTS, 5),
    ]


def test_after_an_hour_it_stops() -> None:
    """mongodash: a maximum duration of an hour goes on after 30 minutes and stops after 61; ours at the bound exactly."""
    policy = Policy(schedule=Fixed(MINUTE), attempts_max=None, elapsed_max=HOUR)

    assert isinstance(retry.decide(policy, 30, START, START + 30 * MINUTE), Retry)
    assert retry.decide(policy, 59, START, START + 59 * MINUTE) == Retry(START + HOUR, MINUTE)
    assert retry.decide(policy, 59, START, START + (59 * MINUTE + 1)) == GiveUp(Reason.ELAPSED, 59)
    assert retry.decide(policy, 61, START, START + 61 * MINUTE) == GiveUp(Reason.ELAPSED, 61)


def test_without_a_maximum_it_never_gives_up() -> None:
    """As with `retry_indefinitely` of pynenc and -1 of mongodash, no number of attempts ends it."""
    policy = Policy(schedule=Exponential(), attempts_max=None)

    assert retry.decide(policy, 10**9, START, START + 999 * DAY) == Retry(START + 1000 * DAY, DAY)


def test_mongodb_backs_off_with_full_jitter() -> None:
    """The drivers' back-off of an overloaded server, jitter * min(10 s, 0.1 s * 2^n), and of a transaction, 5 ms * 1.5^n."""
    overloaded = Policy(schedule=Exponential(200 * MILLISECOND, 10 * SECOND), attempts_max=3, jitter_ppm=PPM)
    transaction = Exponential(5 * MILLISECOND, 500 * MILLISECOND, 1_500_000)

    assert retry.decide(overloaded, 1, START, START, PPM // 4) == Retry(START + 150 * MILLISECOND, 150 * MILLISECOND)
    assert retry.decide(overloaded, 2, START, START, PPM) == Retry(START, 0)
    assert [delay_after(transaction, n) for n in (1, 2, 3, 4, 13)] == [5_000, 7_500, 11_250, 16_875, 500_000]


def test_without_a_draw_the_delay_is_whole() -> None:
    """Whoever has no random number at hand gets the schedule's own delay."""
    policy = Policy(schedule=Fixed(9 * SECOND), jitter_ppm=PPM)
    whole = Retry(START + 9 * SECOND, 9 * SECOND)

    assert retry.decide(policy, 1, START, START) == whole
    assert retry.decide_failure(policy, Operation.READ, failed(Ambiguous(), START), START) == SendAgain(whole)


@pytest.mark.parametrize("attempts", [1074, 1025, 2000, 10**9, 10**30])
@pytest.mark.parametrize(
    "schedule",
    [Fixed(1), Linear(1), Exponential(1, LONGEST), Exponential(1, LONGEST, retry.FACTOR_LEAST), Series((1, 2))],
)
def test_any_number_of_attempts_is_answered_at_once(attempts: int, schedule: Delaying) -> None:
    """2.0 ** 1100 overflows and 2 ** (10**9) takes minutes; neither is worked out."""
    assert 0 < delay_after(schedule, attempts) <= LONGEST


@given(drawn.crons(), drawn.clock_times())
def test_a_cron_comes_round_at_each_of_its_times(cron: Cron, now: Instant) -> None:
    """Agreement with a walk: asked again at each instant that it named, it names the next one, and then none."""
    policy = Policy(schedule=cron, attempts_max=None)
    for attempts in range(1, 4):
        verdict, due = retry.decide(policy, attempts, now, now), cron.next_after(cron.expression, now)

        assert verdict == (GiveUp(Reason.NEVER_DUE, attempts) if due is None else Retry(due, due - now))
        now = now if due is None else due


@given(drawn.exponential(), st.integers(1, 200))
def test_a_power_is_exact_where_it_is_below_the_cap(schedule: Exponential, attempts: int) -> None:
    """Agreement with fractions, also just below and at the cap, where a float logarithm decides what is worked out."""
    exact = min(Fraction(schedule.cap), schedule.first * Fraction(schedule.factor_ppm, PPM) ** (attempts - 1))

    assert exact.__floor__() == delay_after(schedule, attempts)


# --- facts --------------------------------------------------------------------------------------------------------------


def test_every_operation_has_a_step_whatever_is_known() -> None:
    """Totality: each operation x knowledge has an answer; only what would count twice is stopped."""
    assert set(STEPS) == set(Operation)
    assert all(set(steps) == set(Knowledge) for steps in STEPS.values())
    stopped = [
        (operation, known) for operation in STEPS for known in Knowledge if STEPS[operation][known] is retry.Remedy.STOP
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

    assert [first, second] == [shown(retry.decide_failure(ARTICLE, operation, tried, START)) for tried in (once, twice)]
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
    verdict = retry.decide_failure(ARTICLE, Operation.RECOGNISED, tried, START + 30 * SECOND)

    assert verdict == PassOn(Reason.ELAPSED, 1, Knowledge.NOT_DONE)
    assert isinstance(retry.decide_failure(ARTICLE, Operation.RECOGNISED, tried, START + 12 * SECOND), SendAgain)


def test_a_failure_of_a_kind_that_is_not_known_is_ambiguous() -> None:
    """Totality: whoever adds a kind of failure says nothing of the effect."""

    class Odd(Failure):
        pass

    tried = failed(Odd("?"), START)

    assert tried.known is Knowledge.PERHAPS_DONE
    assert isinstance(retry.decide_failure(ARTICLE, Operation.BLIND, tried, START), PassOn)


def test_what_may_be_known_says_so() -> None:
    """Verdicts are told to people in one line."""
    lost = failed(Refused("not authorised"), START, failed(Ambiguous("no reply"), START))

    assert [
        str(retry.decide(ARTICLE, 1, START, START)),
        str(retry.decide(ARTICLE, 2, START, START)),
        str(retry.decide_failure(ARTICLE, Operation.RECOGNISED, lost, START)),
    ] == [
        "retry: after 0 s, at 0 s@wall",
        "give up: no more attempts are allowed, after 2",
        "pass on: definite, it was refused (perhaps done, attempts: 2)",
    ]
    assert {each: retry.CLASS[each] for each in Reason} == dict(retry.CLASS)
    assert set(retry.CLASS.values()) == set(ErrorClass)


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [-1, True, 1.5, None, "1", LONGEST + 1, 10**400])
def test_what_is_no_delay_is_refused(delay: int) -> None:
    """Whole microseconds from 0 to a century; negative, NaN-like and endless delays end here."""
    for build in (Fixed, Linear, Exponential, lambda each: Series((each,)), lambda each: Linear(0, each)):
        with pytest.raises(Misuse):
            build(delay)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Exponential(0),
        lambda: Exponential(2, 1),
        lambda: Exponential(1, 2, retry.FACTOR_LEAST - 1),
        lambda: Linear(2, 1),
        lambda: Series(()),
        lambda: Series([1]),  # type: ignore[arg-type]
        lambda: Cron("", EachPeriod(1)),
        lambda: Cron("* * * * *", None),  # type: ignore[arg-type]
        lambda: Policy(schedule=5),  # type: ignore[arg-type]
        lambda: Policy(attempts_max=0),
        lambda: Policy(attempts_max=-1),
        lambda: Policy(attempts_max=1, elapsed_max=-1),
        lambda: Policy(elapsed_max=LONGEST + 1),
        lambda: Policy(jitter_ppm=PPM + 1),
        lambda: Policy(jitter_ppm=-1),
        lambda: Policy(schedule=Cron("* * * * *", EachPeriod(1)), jitter_ppm=1),
        lambda: Policy(schedule=Fixed(2), elapsed_max=1),
        lambda: Policy(schedule=Fixed(0), attempts_max=None),
        lambda: Policy(schedule=Series((5, 0)), attempts_max=None),
        lambda: Tried(Ambiguous(), 1, START, Knowledge.NOT_DONE),
        lambda: Tried("no", 1, START, Knowledge.DONE),  # type: ignore[arg-type]
        lambda: Tried(Refused(), 0, START, Knowledge.DONE),
        lambda: Tried(Refused(), 1, 0, Knowledge.DONE),  # type: ignore[arg-type]
        lambda: Tried(Refused(), 1, START, 0),  # type: ignore[arg-type]
        lambda: failed("no", START),  # type: ignore[arg-type]
        lambda: failed(Refused(), None),  # type: ignore[arg-type]
        lambda: failed(Refused(), START, 1),  # type: ignore[arg-type]
        lambda: retry.decide(None, 1, START, START),  # type: ignore[arg-type]
        lambda: retry.decide(ARTICLE, 0, START, START),
        lambda: retry.decide(Policy(schedule=Cron("* * * * *", EachPeriod(1))), 0, START, START),
        lambda: retry.decide(ARTICLE, 1, 0, START),  # type: ignore[arg-type]
        lambda: retry.decide(ARTICLE, 1, START, 0),  # type: ignore[arg-type]
        lambda: retry.decide(ARTICLE, 1, START, Instant(0, STORE)),
        lambda: retry.decide(ARTICLE, 1, START, START, PPM + 1),
        lambda: retry.decide(ARTICLE, 1, START, START, 10**5000),
        lambda: retry.decide(ARTICLE, 1, START, START, 0.5),  # type: ignore[arg-type]
        lambda: retry.decide_failure(ARTICLE, "read", failed(Refused(), START), START),  # type: ignore[arg-type]
        lambda: retry.decide_failure(ARTICLE, Operation.READ, Refused(), START),  # type: ignore[arg-type]
        lambda: delay_after(Cron("* * * * *", EachPeriod(1)), 1),  # type: ignore[arg-type]
        lambda: delay_after(Fixed(1), 0),
        lambda: retry.decide_duplicate("", "another's"),
        lambda: retry.decide_duplicate("mine", ""),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    """A bad configuration is an error at construction, a bad argument one at the call; neither is a crash."""
    with pytest.raises(Misuse):
        wrong()


@pytest.mark.parametrize("answer", [START, START + -1, Instant(9, STORE), 5, "noon"])
def test_a_cron_port_that_breaks_its_contract_ends_it(answer: Instant) -> None:
    """It names an instant after the given one, on the same clock; else the same instant would be due for ever."""
    policy = Policy(schedule=Cron("* * * * *", lambda _, after: answer if after == START else None))

    assert retry.decide(policy, 1, START, START) == GiveUp(Reason.BROKEN_PORT, 1)


def test_a_cron_port_that_raises_ends_it() -> None:
    """The failure that is being noted must not be lost because an expression is bad."""
    policy = Policy(schedule=Cron("61 * * * *", lambda *_: Instant(1 // 0)))

    assert retry.decide(policy, 2, START, START) == GiveUp(Reason.BROKEN_PORT, 2)


def test_values_are_hashable_and_hold_no_address() -> None:
    """Policies may be keys, and what is printed is the same in each process."""
    every: tuple[Schedule, ...] = (Fixed(1), Linear(1), Exponential(1), Series((1,)), Cron("@daily", EachPeriod(DAY)))

    assert len({Policy(schedule=schedule) for schedule in every}) == len(every)
    assert not any("0x" in repr(Policy(schedule=schedule)) for schedule in every)
