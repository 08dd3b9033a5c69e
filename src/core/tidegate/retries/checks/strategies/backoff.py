"""Back-offs and policies with edges: zero delays, caps at the first delay, attempts beyond
limits.
"""

from __future__ import annotations

from typing import Final, final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import MINUTE, PPM, WALL, Duration, Instant
from tidegate.retries.backoff import (
    DAY,
    FACTOR_LEAST,
    LONGEST,
    Backoff,
    Cron,
    Exponential,
    Fixed,
    Linear,
    Policy,
    Series,
    delay_after,
)


@final
@attrs.frozen
class EachPeriod:
    """A cron port that is due at each multiple of a period, optionally until `end`."""

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


def delays() -> SearchStrategy[Duration]:
    return _DELAYS


def draws() -> SearchStrategy[int]:
    return _DRAWS


def attempts() -> SearchStrategy[int]:
    """Numbers of attempts made: few, many, and absurdly many."""
    return st.one_of(st.integers(1, 12), st.integers(1, 5_000), st.sampled_from((10**9, 2**63, 10**30)))


def clock_times() -> SearchStrategy[Instant]:
    return _SINCE


def exponential() -> SearchStrategy[Exponential]:
    """Exponential back-offs, from the slowest growth to leaps."""
    return _EXPONENTIAL


def growing() -> SearchStrategy[Fixed | Linear | Exponential]:
    """Back-offs whose delays never fall."""
    return st.one_of(_FIXED, _LINEAR, _EXPONENTIAL)


def delaying() -> SearchStrategy[Fixed | Linear | Exponential | Series]:
    """Back-offs with delays of their own: all but crons."""
    return st.one_of(_FIXED, _LINEAR, _EXPONENTIAL, _SERIES)


def crons() -> SearchStrategy[Cron]:
    return _CRONS


def backoffs() -> SearchStrategy[Backoff]:
    return st.one_of(_FIXED, _LINEAR, _EXPONENTIAL, _SERIES, _CRONS)


@st.composite
def policies(draw: DrawFn, backoff: SearchStrategy[Backoff] | None = None) -> Policy:
    """Policies with each of the limits, both, or none if permitted."""
    delays_ = draw(backoffs() if backoff is None else backoff)
    attempts_max = draw(_MAXIMA)
    elapsed_max = draw(st.one_of(st.none(), _DELAYS))
    if isinstance(delays_, Cron):
        return Policy(backoff=delays_, attempts_max=attempts_max, elapsed_max=elapsed_max)
    if attempts_max is None and delay_after(delays_, 10**9) == 0:
        attempts_max = 12
    if elapsed_max is not None and attempts_max != 1:
        elapsed_max = max(delay_after(delays_, 1), elapsed_max)
    return Policy(backoff=delays_, attempts_max=attempts_max, elapsed_max=elapsed_max, jitter_ppm=draw(_DRAWS))
