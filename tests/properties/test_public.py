"""What users import is there, and listed."""

from __future__ import annotations

import importlib

import pytest

import tidegate
from tidegate import ExitCode


@pytest.mark.parametrize("name", ["tidegate", "tidegate.sim", "tidegate.laws"])
def test_every_listed_name_is_there_and_in_order(name: str) -> None:
    """`__all__` is the public surface: complete, sorted, without doubles."""
    module = importlib.import_module(name)
    listed: list[str] = module.__all__

    assert listed == sorted(set(listed))
    assert all(hasattr(module, each) for each in listed)


def test_exit_codes_are_those_of_the_field() -> None:
    """0 met, 1 not met, 2 usage, 3 outside the model, 4 diverged, 5 nothing selected, 6 inconclusive, then signals."""
    assert [code.value for code in ExitCode][:7] == [0, 1, 2, 3, 4, 5, 6]
    assert tidegate.__version__.count(".") == 2
