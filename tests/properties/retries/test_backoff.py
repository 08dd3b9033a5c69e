from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, PPM, SECOND, STORE, WALL, Duration, Instant
from tidegate.retries import backoff
from tidegate.retries.backoff import (
    DAY,
    LONGEST,
    Backoff,
    Cron,
    Exponential,
    Fixed,
    GiveUp,
    GiveUpReason,
    Linear,
    Policy,
    Retry,
    RetryVerdict,
    Series,
    delay_after,
)
from tidegate.retries.checks.laws import backoff as laws
from tidegate.retries.checks.strategies import backoff as drawn
from tidegate.retries.checks.strategies.backoff import EachPeriod
from tidegate.retries.failures import ARTICLE

Delaying = Fixed | Linear | Exponential | Series
HOUR = 60 * MINUTE
START = Instant(0, WALL)


@attrs.frozen
class Case:
    policy: Policy
    attempts: int
    since: Instant
    now: Instant
    draw: int

    @property
    def whole(self) -> Duration | None:
        if not isinstance(self.policy.backoff, Cron):
            return delay_after(self.policy.backoff, self.attempts)
        due = self.policy.backoff.next_after(self.policy.backoff.expression, self.now)
        return None if due is None else due - self.now


@st.composite
def cases(draw: st.DrawFn, schedules: st.SearchStrategy[Backoff] | None = None) -> Case:
    policy, since = draw(drawn.policies(schedules)), draw(drawn.clock_times())
    near = st.integers(-5, 40) if policy.elapsed_max is None else st.integers(-5, policy.elapsed_max + 5)
    counts = drawn.attempts() if policy.attempts_max is None else st.integers(1, policy.attempts_max + 1)
    return Case(policy, draw(counts), since, since + draw(st.one_of(near, drawn.delays())), draw(drawn.draws()))


def verdict_of(case: Case) -> RetryVerdict:
    return backoff.decide(case.policy, case.attempts, case.since, case.now, case.draw)


GROWING = st.lists(drawn.attempts(), min_size=2, max_size=2).map(sorted)


@given(cases())
@example(Case(Policy(backoff=Fixed(1), attempts_max=3), 3, START, START, 0))
def test_bo1_attempts_have_a_maximum(case: Case) -> None:
    assert laws.attempts_are_bounded(case.policy, case.attempts, verdict_of(case))


@given(cases())
@example(Case(Policy(backoff=Linear(HOUR), attempts_max=None, elapsed_max=2 * HOUR), 2, START, START + HOUR, 0))
def test_bo2_time_has_a_maximum(case: Case) -> None:
    assert laws.time_is_bounded(case.policy, case.since, verdict_of(case))


@given(drawn.delaying(), st.one_of(st.integers(1, 12), st.integers(1, 300)))
@example(Exponential(1, LONGEST, 1_500_000), 3)
@example(Exponential(1, LONGEST), 53)
def test_bo3_delays_are_the_formulas(schedule: Delaying, attempts: int) -> None:
    assert laws.follows_the_formula(schedule, attempts, backoff.delay_after(schedule, attempts))


@given(drawn.growing(), GROWING)
@example(Exponential(1, 2**40), [40, 70])
def test_bo3_delays_grow(schedule: Fixed | Linear | Exponential, attempts: list[int]) -> None:
    earlier, later = (backoff.delay_after(schedule, each) for each in attempts)
    assert laws.grows_up_to_its_cap(schedule, earlier, later)


@given(cases(drawn.delaying()))
@example(Case(Policy(backoff=Fixed(9), jitter_ppm=PPM), 1, START, START, PPM))
def test_bo4_jitter_takes_its_part(case: Case) -> None:
    verdict = verdict_of(case)
    if isinstance(verdict, Retry):
        assert case.whole is not None
        assert laws.takes_no_more_than_its_part(case.policy, case.whole, verdict.after)


@given(cases())
@example(Case(Policy(backoff=Cron("* * * * *", EachPeriod(MINUTE))), 1, START, START + MINUTE, 0))
def test_bo5_the_next_attempt_is_named(case: Case) -> None:
    assert laws.is_next(case.policy, case.now, verdict_of(case))


@given(cases())
@example(Case(Policy(backoff=Fixed(5), attempts_max=None, elapsed_max=9), 1, START, START + 4, 0))
@example(Case(Policy(backoff=Fixed(5), attempts_max=3), 2, START, START, 0))
def test_bo6_it_gives_up_for_a_reason(case: Case) -> None:
    verdict = verdict_of(case)
    elapsed = case.now - case.since
    assert laws.gives_up_for_a_reason(case.policy, case.attempts, elapsed, case.whole, verdict)


@given(cases(drawn.delaying()), drawn.delays())
def test_bo7_time_has_no_origin(case: Case, by: Duration) -> None:
    moved = attrs.evolve(case, since=case.since + by, now=case.now + by)
    assert laws.moved_in_time(verdict_of(case), verdict_of(moved), by)


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    backoff,
    # The maximum counts retries, not attempts.
    bug(
        "one more", ("attempts >= policy.attempts_max:", "attempts > policy.attempts_max:"),
        test_bo1_attempts_have_a_maximum,
    ),
    bug(
        "one less", ("attempts >= policy.attempts_max:", "attempts + 1 >= policy.attempts_max:"),
        test_bo6_it_gives_up_for_a_reason,
    ),
    # mongodash compares the elapsed time at the failure, so the delay may exceed the maximum.
    bug("it looks when it fails", ("elapsed + delay >", "elapsed >"), test_bo2_time_has_a_maximum),
    # pynenc stops when the elapsed time equals the maximum, not only above it.
    bug("it ends at the bound", ("elapsed + delay >", "elapsed + delay >="), test_bo6_it_gives_up_for_a_reason),
    # The jitter is added, so delays exceed their cap.
    bug(
        "jitter on top",
        (
            "jittered(delay_after(policy.backoff, attempts), policy.jitter_ppm, draw_ppm)",
            "delay_after(policy.backoff, attempts) * (PPM**2 + policy.jitter_ppm * draw_ppm) // PPM**2",
        ),
        test_bo4_jitter_takes_its_part,
    ),
    bug("counted from the first", ("Retry(now + delay,", "Retry(since + delay,"), test_bo5_the_next_attempt_is_named),
    # The first instant at or after now: a cron that has just failed is due at once.
    bug(
        "due now", ("_next_due(policy.backoff, now)", "_next_due(policy.backoff, now + -1)"),
        test_bo5_the_next_attempt_is_named,
    ),
    bug(
        "in whole seconds", ("Retry(now + delay,", "Retry(now + (delay + -(now + delay).at % SECOND),"),
        test_bo7_time_has_no_origin,
    ),
    # The first delay is factor ** 1.
    bug("one step ahead", ("steps = attempts - 1", "steps = attempts"), test_bo3_delays_are_the_formulas),
    # A factor of 1.5 is computed as 1 + 0.5 + ..., with rounding each time.
    bug(
        "in floats", ("import math\n", "import math\nfrom functools import reduce\n"),
        (
            "first * factor_ppm**steps // PPM**steps",
            "reduce(lambda delay, _: delay * factor_ppm // PPM, range(steps), first)",
        ),
        test_bo3_delays_are_the_formulas,
    ),
    # Machine arithmetic: after 64 doublings nothing is left.
    bug(
        "in 64 bits",
        (
            "cap if steps > enough else min(cap, first * factor_ppm**steps // PPM**steps)",
            "min(cap, first << min(steps, 64) & 2**64 - 1)",
        ),
        test_bo3_delays_are_the_formulas, test_bo3_delays_grow,
    ),
    # mongodash without a maximum.
    bug(
        "no cap", ("min(cap, interval * attempts)", "interval * attempts"),
        test_bo3_delays_are_the_formulas, test_bo3_delays_grow,
    ),
)  # fmt: skip


# --- vectors from other systems -----------------------------------------------------------------------------------------


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
    """The vectors of mongodash's tests, and its default of 10 s."""
    assert expected == [delay_after(schedule, attempts) // SECOND for attempts in range(1, len(expected) + 1)]


def test_a_cron_is_due_at_the_next_noon() -> None:
    """mongodash: "Cron noon" names the next noon. The port here ends after a last one."""
    noons = EachPeriod(DAY, end=2 * DAY)
    policy = Policy(backoff=Cron("0 12 * * *", noons), attempts_max=None)

    assert backoff.decide(policy, 1, START, START + HOUR) == Retry(START + DAY, 23 * HOUR)
    assert backoff.decide(policy, 10**9, START, START + DAY) == Retry(START + 2 * DAY, DAY)
    assert backoff.decide(policy, 3, START, START + 2 * DAY) == GiveUp(GiveUpReason.NEVER_DUE, 3)


def test_three_attempts_are_two_retries() -> None:
    """As in mongodash and pynenc: of a maximum of 3, n = 2 retries and n = 3 stops."""
    pynenc = Policy(backoff=Exponential(100 * MILLISECOND, 60 * SECOND), attempts_max=3, elapsed_max=300 * SECOND)

    assert backoff.decide(pynenc, 1, START, START) == Retry(START + 100 * MILLISECOND, 100 * MILLISECOND)
    assert backoff.decide(pynenc, 2, START, START) == Retry(START + 200 * MILLISECOND, 200 * MILLISECOND)
    assert backoff.decide(pynenc, 3, START, START) == GiveUp(GiveUpReason.ATTEMPTS, 3)


def test_five_attempts_are_made_by_default() -> None:
    """Default of mongodash: 10 s, 20 s, 40 s and 80 s, and none after the fifth failure."""
    delays = [backoff.decide(Policy(), attempts, START, START) for attempts in range(1, 6)]

    assert delays == [
        *(Retry(START + 10 * n * SECOND, 10 * n * SECOND) for n in (1, 2, 4, 8)),
        GiveUp(GiveUpReason.ATTEMPTS, 5),
    ]


def test_after_an_hour_it_stops() -> None:
    """mongodash: of an hour, 30 minutes retries and 61 stops; ours stops exactly at the bound."""
    policy = Policy(backoff=Fixed(MINUTE), attempts_max=None, elapsed_max=HOUR)

    assert isinstance(backoff.decide(policy, 30, START, START + 30 * MINUTE), Retry)
    assert backoff.decide(policy, 59, START, START + 59 * MINUTE) == Retry(START + HOUR, MINUTE)
    assert backoff.decide(policy, 59, START, START + (59 * MINUTE + 1)) == GiveUp(GiveUpReason.ELAPSED, 59)
    assert backoff.decide(policy, 61, START, START + 61 * MINUTE) == GiveUp(GiveUpReason.ELAPSED, 61)


def test_without_a_maximum_it_never_gives_up() -> None:
    """As `retry_indefinitely` in pynenc and -1 in mongodash."""
    policy = Policy(backoff=Exponential(), attempts_max=None)

    assert backoff.decide(policy, 10**9, START, START + 999 * DAY) == Retry(START + 1000 * DAY, DAY)


def test_mongodb_backs_off_with_full_jitter() -> None:
    """The drivers: jitter * min(10 s, 0.1 s * 2^n) if overloaded, 5 ms * 1.5^n in transactions."""
    overloaded = Policy(backoff=Exponential(200 * MILLISECOND, 10 * SECOND), attempts_max=3, jitter_ppm=PPM)
    transaction = Exponential(5 * MILLISECOND, 500 * MILLISECOND, 1_500_000)

    assert backoff.decide(overloaded, 1, START, START, PPM // 4) == Retry(START + 150 * MILLISECOND, 150 * MILLISECOND)
    assert backoff.decide(overloaded, 2, START, START, PPM) == Retry(START, 0)
    assert [delay_after(transaction, n) for n in (1, 2, 3, 4, 13)] == [5_000, 7_500, 11_250, 16_875, 500_000]


def test_without_a_draw_the_delay_is_whole() -> None:
    policy = Policy(backoff=Fixed(9 * SECOND), jitter_ppm=PPM)
    whole = Retry(START + 9 * SECOND, 9 * SECOND)

    assert backoff.decide(policy, 1, START, START) == whole


@pytest.mark.parametrize("attempts", [1074, 1025, 2000, 10**9, 10**30])
@pytest.mark.parametrize(
    "schedule",
    [Fixed(1), Linear(1), Exponential(1, LONGEST), Exponential(1, LONGEST, backoff.FACTOR_LEAST), Series((1, 2))],
)
def test_any_number_of_attempts_is_answered_at_once(attempts: int, schedule: Delaying) -> None:
    """2.0 ** 1100 overflows and 2 ** (10**9) takes minutes; neither is computed."""
    assert 0 < delay_after(schedule, attempts) <= LONGEST


@given(drawn.crons(), drawn.clock_times())
def test_a_cron_comes_round_at_each_of_its_times(cron: Cron, now: Instant) -> None:
    policy = Policy(backoff=cron, attempts_max=None)
    for attempts in range(1, 4):
        verdict, due = backoff.decide(policy, attempts, now, now), cron.next_after(cron.expression, now)

        assert verdict == (GiveUp(GiveUpReason.NEVER_DUE, attempts) if due is None else Retry(due, due - now))
        now = now if due is None else due


@given(drawn.exponential(), st.integers(1, 200))
def test_a_power_is_exact_where_it_is_below_the_cap(schedule: Exponential, attempts: int) -> None:
    """Agrees with fractions, also just below and at the cap, where a float logarithm decides."""
    exact = min(Fraction(schedule.cap), schedule.first * Fraction(schedule.factor_ppm, PPM) ** (attempts - 1))

    assert exact.__floor__() == delay_after(schedule, attempts)


def test_verdicts_say_so_in_one_line() -> None:
    assert [str(backoff.decide(ARTICLE, attempts, START, START)) for attempts in (1, 2)] == [
        "retry: after 0 s, at 0 s@wall",
        "give up: no more attempts are allowed, after 2",
    ]


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [-1, True, 1.5, None, "1", LONGEST + 1, 10**400])
def test_what_is_not_a_delay_is_refused(delay: int) -> None:
    for build in (Fixed, Linear, Exponential, lambda each: Series((each,)), lambda each: Linear(0, each)):
        with pytest.raises(Misuse):
            build(delay)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Exponential(0),
        lambda: Exponential(2, 1),
        lambda: Exponential(1, 2, backoff.FACTOR_LEAST - 1),
        lambda: Linear(2, 1),
        lambda: Series(()),
        lambda: Series([1]),  # type: ignore[arg-type]
        lambda: Cron("", EachPeriod(1)),
        lambda: Cron("* * * * *", None),  # type: ignore[arg-type]
        lambda: Policy(backoff=5),  # type: ignore[arg-type]
        lambda: Policy(attempts_max=0),
        lambda: Policy(attempts_max=-1),
        lambda: Policy(attempts_max=1, elapsed_max=-1),
        lambda: Policy(elapsed_max=LONGEST + 1),
        lambda: Policy(jitter_ppm=PPM + 1),
        lambda: Policy(jitter_ppm=-1),
        lambda: Policy(backoff=Cron("* * * * *", EachPeriod(1)), jitter_ppm=1),
        lambda: Policy(backoff=Fixed(2), elapsed_max=1),
        lambda: Policy(backoff=Fixed(0), attempts_max=None),
        lambda: Policy(backoff=Series((5, 0)), attempts_max=None),
        lambda: backoff.decide(None, 1, START, START),  # type: ignore[arg-type]
        lambda: backoff.decide(ARTICLE, 0, START, START),
        lambda: backoff.decide(Policy(backoff=Cron("* * * * *", EachPeriod(1))), 0, START, START),
        lambda: backoff.decide(ARTICLE, 1, 0, START),  # type: ignore[arg-type]
        lambda: backoff.decide(ARTICLE, 1, START, 0),  # type: ignore[arg-type]
        lambda: backoff.decide(ARTICLE, 1, START, Instant(0, STORE)),
        lambda: backoff.decide(ARTICLE, 1, START, START, PPM + 1),
        lambda: backoff.decide(ARTICLE, 1, START, START, 10**5000),
        lambda: backoff.decide(ARTICLE, 1, START, START, 0.5),  # type: ignore[arg-type]
        lambda: delay_after(Cron("* * * * *", EachPeriod(1)), 1),  # type: ignore[arg-type]
        lambda: delay_after(Fixed(1), 0),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


@pytest.mark.parametrize("answer", [START, START + -1, Instant(9, STORE), 5, "noon"])
def test_a_cron_port_that_breaks_its_contract_ends_it(answer: Instant) -> None:
    """The instant must be later and on the same clock; otherwise it would be due forever."""
    policy = Policy(backoff=Cron("* * * * *", lambda _, after: answer if after == START else None))

    assert backoff.decide(policy, 1, START, START) == GiveUp(GiveUpReason.BROKEN_PORT, 1)


def test_a_cron_port_that_raises_ends_it() -> None:
    """A bad expression must not lose the failure that is being recorded."""
    policy = Policy(backoff=Cron("61 * * * *", lambda *_: Instant(1 // 0)))

    assert backoff.decide(policy, 2, START, START) == GiveUp(GiveUpReason.BROKEN_PORT, 2)


def test_values_are_hashable_and_hold_no_address() -> None:
    every: tuple[Backoff, ...] = (Fixed(1), Linear(1), Exponential(1), Series((1,)), Cron("@daily", EachPeriod(DAY)))

    assert len({Policy(backoff=schedule) for schedule in every}) == len(every)
    assert not any("0x" in repr(Policy(backoff=schedule)) for schedule in every)
