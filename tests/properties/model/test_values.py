from __future__ import annotations

import pytest

from tidegate.model.errors import Misuse
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type, check_types


def test_what_is_of_the_kind_passes() -> None:
    """An instance of one of the kinds, a collection of such, a function."""
    check_type(1, (int, str), "a number")
    check_types((1, "a"), (int, str), "a number")
    check_types((), int, "a number")
    check_tuple((1, "a"), (int, str), "a number")
    check_callable(len, "a function")


def test_what_is_not_is_misuse_and_not_shown() -> None:
    """The type is named, and the value is not: it may be secret."""
    with pytest.raises(Misuse, match="a str is not a number") as caught:
        check_type("hunter2", int, "a number")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Misuse, match="a str is not a function"):
        check_callable("hunter2", "a function")


@pytest.mark.parametrize("values", [1, None, "ab", b"ab", ("a", None)])
def test_a_collection_is_neither_text_nor_mixed(values: object) -> None:
    """Text is a collection of texts to Python; here it would be a mistake."""
    with pytest.raises(Misuse):
        check_types(values, str, "a name")
    with pytest.raises(Misuse):
        check_tuple(values, str, "a name")


def test_a_list_is_not_a_tuple() -> None:
    """A value that holds it could change."""
    with pytest.raises(Misuse, match="a list is not a tuple, each of it a name"):
        check_tuple(["a"], str, "a name")


def test_names_and_numbers_are_checked_in_one_place() -> None:
    """A name is a string that is not empty; a number is an integer, no bool, and large enough."""
    check_name("a", "a runner")
    check_int(0, "an offset", 0)
    for name in ("", None, 1, b"a"):
        with pytest.raises(Misuse, match="cannot name a runner"):
            check_name(name, "a runner")
    for number in (-1, True, 1.0, "1", None):
        with pytest.raises(Misuse, match="cannot be an offset"):
            check_int(number, "an offset", 0)
