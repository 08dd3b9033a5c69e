"""Strategies for the claims of a lock."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def claims() -> SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from("abc"), max_size=5).map(tuple)
