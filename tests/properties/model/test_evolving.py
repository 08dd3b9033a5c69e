"""A state evolves as `attrs.evolve` has it, and its constructor is not asked again."""

from __future__ import annotations

from typing import final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model._evolving import evolve
from tidegate.model.errors import Misuse
from tidegate.model.values import check_int


@final
@attrs.frozen
class Checked:
    """Invariant: 0 <= number."""

    number: int
    name: str = "x"

    def __attrs_post_init__(self) -> None:
        check_int(self.number, "a number", 0)


@given(st.integers(0), st.text(), st.integers(0), st.text())
def test_it_is_what_attrs_makes(number: int, name: str, other: int, another: str) -> None:
    """All fields, some, and none: equal values, and the one before is as it was."""
    value = Checked(number, name)

    for changes in ({}, {"number": other}, {"name": another}, {"number": other, "name": another}):
        assert evolve(value, **changes) == attrs.evolve(value, **changes)
    assert value == Checked(number, name)


def test_the_invariants_are_the_callers_to_keep() -> None:
    """That is what it is for: the constructor would look at all fields again."""
    assert evolve(Checked(1), number=-1).number == -1
    with pytest.raises(Misuse):
        attrs.evolve(Checked(1), number=-1)


def test_what_is_made_is_frozen_and_hashes_as_its_equal() -> None:
    """It is a value like any other."""
    made = evolve(Checked(1), number=2)

    assert hash(made) == hash(Checked(2))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.number = 3  # type: ignore[misc]
