"""Failures, schedules and policies, and what was tried.

They aim at edges: delays of nothing, caps that equal the first delay, attempts at and far beyond every limit.
"""

from __future__ import annotations

from typing import Final, final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.instants import MINUTE, PPM, WALL, Duration, Instant
from tidegate.retries.retry import (
    DAY,
    FACTOR_LEAST,
    LONGEST,
    Cron,
    Exponential,
    Fixed,
    Linear,
    Policy,
    Schedule,
    Series,
    Tried,
    delay_after,
    failed,
)


@final
@attrs.frozen
class EachPeriod:
    """A port of a cron that is due at each multiple of a period, until it is never due again."""

    period: Duration
    end: int | None = None

    def __call__(self, _: str, after: Instant, /) -> Instant | None:
        due = (after.at // self.period + 1) * self.period
        return None if self.end is not None and due > self.end else Instant(due, after.clock)


_DELAYS: Final = st.one_of(st.integers(0, 20), st.integers(0, LONGEST))
_MAXIMA: Final = st.one_of(st.none(), st.integers(1, 12))
_SINCE: Final = st.one_of(st.integers(0, 30), st.integers(-LONGEST, 2 * LONGEST)).map(lambda at: Instant(at, WALL))
_DRAWS: Final = st.one_of(st.sampled_from((0, 1, PPM // 2, PPM - 1, PPM)), st.integers(0, PPM))
_FACTORS: Final = st.one_of(st.sampled_from((FACTOR_LEAST, 3 * PPM // 2, 2 * PPM)), st.integers(FACTOR_LEAST, 10**9))
_FAILURES: Final[SearchStrategy[Failure]] = st.one_of(
    st.builds(Refused, st.sampled_from(("not authorised", DUPLICATE_KEY))),
    st.builds(NotApplied, st.just("not the primary")),
    st.builds(Ambiguous, st.just("no reply")),
    st.builds(NotDurable, st.just("no majority has confirmed it")),
)
_FIXED: Final = st.builds(Fixed, _DELAYS)
_SERIES: Final = st.lists(_DELAYS, min_size=1, max_size=4).map(tuple).map(Series)
_LINEAR: Final = st.tuples(_DELAYS, _DELAYS).map(lambda both: Linear(min(both), max(both)))
_EXPONENTIAL: Final = st.tuples(_DELAYS, _DELAYS, _FACTORS).map(
    lambda drawn: Exponential(max(1, min(drawn[:2])), max(1, *drawn[:2]), drawn[2])
)
_CRONS: Final = st.builds(
    Cron,
    st.just("* * * * *"),
    st.builds(
        EachPeriod,
        st.one_of(st.integers(1, 20), st.sampled_from((MINUTE, DAY))),
        st.one_of(st.none(), st.integers(0, LONGEST)),
    ),
)


def failures() -> SearchStrategy[Failure]:
    """The four kinds; of refusals, those of a duplicate key too."""
    return _FAILURES


def delays() -> SearchStrategy[Duration]:
    """Delays that a schedule may have, in microseconds."""
    return _DELAYS


def draws() -> SearchStrategy[int]:
    """Random numbers in parts per million, as an argument of a decision."""
    return _DRAWS


def attempts() -> SearchStrategy[int]:
    """Numbers of attempts that were made: a few, many, and more than anybody makes."""
    return st.one_of(st.integers(1, 12), st.integers(1, 5_000), st.sampled_from((10**9, 2**63, 10**30)))


def clock_times() -> SearchStrategy[Instant]:
    """Instants of the clock that asks, within some centuries around 1970."""
    return _SINCE


def exponential() -> SearchStrategy[Exponential]:
    """Exponential schedules, from the slowest growth to leaps."""
    return _EXPONENTIAL


def growing() -> SearchStrategy[Fixed | Linear | Exponential]:
    """Schedules whose delays never fall."""
    return st.one_of(_FIXED, _LINEAR, _EXPONENTIAL)


def delaying() -> SearchStrategy[Fixed | Linear | Exponential | Series]:
    """Schedules that have delays: all but crons."""
    return st.one_of(_FIXED, _LINEAR, _EXPONENTIAL, _SERIES)


def crons() -> SearchStrategy[Cron]:
    """Crons that are due regularly, some until a day."""
    return _CRONS


def schedules() -> SearchStrategy[Schedule]:
    """Schedules of every kind."""
    return st.one_of(_FIXED, _LINEAR, _EXPONENTIAL, _SERIES, _CRONS)


@st.composite
def policies(draw: DrawFn, schedule: SearchStrategy[Schedule] | None = None) -> Policy:
    """Policies with each of the limits, both, or none where that is allowed.

    Args:
        draw: What Hypothesis hands in.
        schedule: Their schedules; of every kind unless told.
    """
    rhythm = draw(schedules() if schedule is None else schedule)
    attempts_max = draw(_MAXIMA)
    elapsed_max = draw(st.one_of(st.none(), _DELAYS))
    if isinstance(rhythm, Cron):
        return Policy(schedule=rhythm, attempts_max=attempts_max, elapsed_max=elapsed_max)
    if attempts_max is None and delay_after(rhythm, 10**9) == 0:
        attempts_max = 12
    if elapsed_max is not None and attempts_max != 1:
        elapsed_max = max(delay_after(rhythm, 1), elapsed_max)
    return Policy(schedule=rhythm, attempts_max=attempts_max, elapsed_max=elapsed_max, jitter_ppm=draw(_DRAWS))


@st.composite
def tried(draw: DrawFn) -> Tried:
    """What was tried: up to four attempts, each of which failed."""
    since = draw(_SINCE)
    so_far = failed(draw(_FAILURES), since)
    for failure in draw(st.lists(_FAILURES, max_size=3)):
        so_far = failed(failure, since, so_far)
    return so_far
