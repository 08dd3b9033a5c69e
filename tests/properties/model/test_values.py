from __future__ import annotations

import pytest

from tidegate.model.errors import Misuse
from tidegate.model.values import all_of_kind, callable_one, of_kind, tuple_of_kind


def test_what_is_of_the_kind_passes() -> None:
    """An instance of one of the kinds, a collection of such, a function."""
    of_kind(1, (int, str), "a number")
    all_of_kind((1, "a"), (int, str), "a number")
    all_of_kind((), int, "a number")
    tuple_of_kind((1, "a"), (int, str), "a number")
    callable_one(len, "a function")


def test_what_is_not_is_misuse_and_not_shown() -> None:
    """The type is named, and the value is not: it may be secret."""
    with pytest.raises(Misuse, match="a str is not a number") as caught:
        of_kind("hunter2", int, "a number")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Misuse, match="a str is not a function"):
        callable_one("hunter2", "a function")


@pytest.mark.parametrize("values", [1, None, "ab", b"ab", ("a", None)])
def test_a_collection_is_neither_text_nor_mixed(values: object) -> None:
    """Text is a collection of texts to Python; here it would be a mistake."""
    with pytest.raises(Misuse):
        all_of_kind(values, str, "a name")
    with pytest.raises(Misuse):
        tuple_of_kind(values, str, "a name")


def test_a_list_is_no_tuple() -> None:
    """A value that holds it could change."""
    with pytest.raises(Misuse, match="a list is not a tuple, each of it a name"):
        tuple_of_kind(["a"], str, "a name")
