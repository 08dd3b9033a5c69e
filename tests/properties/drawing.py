from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis.strategies import SearchStrategy


def must_draw(drawn: SearchStrategy[Any], is_the_case: Callable[[Any], bool]) -> None:
    """A value of probability 1/1000 is missed once in 20,000 runs."""
    assert is_the_case(find(drawn, is_the_case, settings=settings(max_examples=10_000, phases=[Phase.generate])))
