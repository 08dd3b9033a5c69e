from __future__ import annotations

from datetime import timedelta
from enum import Enum, StrEnum
from types import NoneType
from typing import Any

import pytest

from tidegate.model.errors import Misuse
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type, check_types

End = Enum("End", ["STOP", "SKIP"])
Says = StrEnum("Says", ["STOP", "SKIP"])


def test_what_is_of_the_kind_passes() -> None:
    check_type(1, (int, str), "a number")
    check_types((1, "a"), (int, str), "a number")
    check_types((), int, "a number")
    check_tuple((1, "a"), (int, str), "a number")
    check_callable(len, "a function")


def test_what_is_not_is_misuse_and_not_shown() -> None:
    """It may be secret."""
    with pytest.raises(Misuse, match="a number must be") as caught:
        check_type("hunter2", int, "a number")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Misuse, match="a function must be callable, got str"):
        check_callable("hunter2", "a function")


@pytest.mark.parametrize(
    ("value", "kinds", "says"),
    [
        (5, str, "it must be a string, got int 5"),
        ("x", (int, NoneType), "it must be an integer or None, got str"),
        (4111_1111_1111, bytes, "it must be bytes, got int"),
        (5, timedelta, "it must be a timedelta, got int 5\n  help: write timedelta(seconds=5)"),
        (10**5000, timedelta, "it must be a timedelta, got int\n  help: write timedelta(seconds=...)"),
        (True, timedelta, "it must be a timedelta, got bool True\n  help: write timedelta(seconds=...)"),
        ("stop", End, "it must be an End, got str\n  help: write End.STOP"),
        ("halt", End, "it must be an End, got str\n  help: write one of End.STOP, End.SKIP"),
        ("stop", Says, "it must be a Says, got str\n  help: write Says.STOP"),
        ([], tuple, "it must be a tuple, got list\n  help: write tuple(...) of it"),
        ((), (int, str, float, bytes), "it must be one of int, str, float, bytes, got tuple"),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_wrong_type_is_answered_by_what_to_write(value: object, kinds: Any, says: str) -> None:
    """A number is shown if it is too short for a secret."""
    with pytest.raises(Misuse) as caught:
        check_type(value, kinds, "it")
    assert str(caught.value) == says


@pytest.mark.parametrize("values", [1, None, "ab", b"ab", ("a", None)])
def test_a_collection_is_neither_text_nor_mixed(values: object) -> None:
    with pytest.raises(Misuse):
        check_types(values, str, "a name")
    with pytest.raises(Misuse):
        check_tuple(values, str, "a name")


def test_a_list_is_not_a_tuple() -> None:
    with pytest.raises(Misuse, match="list is not a tuple"):
        check_tuple(["a"], str, "a name")


def test_names_and_numbers_are_checked_in_one_place() -> None:
    check_name("a", "a runner")
    check_int(0, "an offset", 0)
    for name in ("", None, 1, b"a"):
        with pytest.raises(Misuse, match="the name of a runner must be"):
            check_name(name, "a runner")
    for number in (-1, True, 1.0, "1", None):
        with pytest.raises(Misuse, match="an offset must be"):
            check_int(number, "an offset", 0)
