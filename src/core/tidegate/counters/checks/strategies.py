"""Counters, and the knowledge of their owners."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.counters.counter import Counter, Increment, Sweep, decide_sweep

_TOKENS = ("t", "u", "v", "$w", "1", "token t")


def tokens() -> SearchStrategy[str]:
    """Few tokens, so that they collide, some with the form of another field."""
    return st.sampled_from(_TOKENS)


@st.composite
def counters(draw: DrawFn) -> Counter:
    """Counters of up to five tokens, pending and counted, of this round and earlier ones."""
    in_round = draw(st.integers(1, 4))
    names = draw(st.lists(tokens(), max_size=5, unique=True))
    noted = st.sampled_from([*range(1, in_round + 1), *range(-in_round, 0)])
    return Counter(draw(st.integers(0, 9)), in_round, tuple((name, draw(noted)) for name in names))


def sweeps() -> SearchStrategy[Sweep]:
    return counters().map(decide_sweep)


@st.composite
def increments(draw: DrawFn) -> Increment:
    asked = draw(st.none() | st.integers(1, 5))
    return Increment(draw(tokens()), asked, asked is not None and draw(st.booleans()))
