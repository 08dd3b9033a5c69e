from __future__ import annotations

import pickle

import pytest

from tidegate.model.documents import frozen
from tidegate.model.errors import NUMBER_MAX, Misuse, TidegateError, shown
from tidegate.model.instants import (
    Instant,
)
from tidegate.model.operations import check_collection
from tidegate.model.values import check_int, check_name

HUGE = 10**5_000
"""Python refuses to print it."""


def nested(depth: int) -> object:
    value: object = ()
    for _ in range(depth):
        value = (value,)
    return value


class Rude:
    def __repr__(self) -> str:
        raise OSError


@pytest.mark.parametrize("value", [HUGE, -HUGE, (HUGE,), nested(5_000), Rude(), b"x" * 10**6], ids=range(6))
def test_whatever_is_wrong_the_message_can_be_printed(value: object) -> None:
    assert len(shown(value)) <= 120 + len("...")

    with pytest.raises(Misuse, match="the name of a runner must be"):
        check_name(value, "a runner")
    with pytest.raises(Misuse, match="a size must be"):
        check_int(value, "a size", 0)
    with pytest.raises(Misuse, match="name of a collection"):
        check_collection(value)


def test_a_short_value_is_shown_whole() -> None:
    assert shown((1, "a")) == "(1, 'a')"
    assert shown(HUGE) == "an int"


def test_the_name_of_a_place_is_cut() -> None:
    """Users choose the keys in it."""
    with pytest.raises(Misuse, match="an object cannot stand in a document") as caught:
        frozen({"a" * 1_000: {"b" * 10**6: [object()]}}, "a document")

    assert str(caught.value).endswith(f"\n  where: a document.{'a' * 489}...")


@pytest.mark.parametrize(("number", "fits"), [(-1, False), (0, True), (5, True), (6, False), (True, False)])
def test_a_number_lies_between_its_bounds(number: object, fits: bool) -> None:
    """A bool is not a number."""
    if fits:
        check_int(number, "a size", 0, 5)
        return
    with pytest.raises(Misuse, match="a size must be") as caught:
        check_int(number, "a size", 0, 5)

    assert "from 0 to 5" in caught.value.what


@pytest.mark.parametrize("at", [HUGE, -HUGE, NUMBER_MAX + 1, -NUMBER_MAX - 1], ids=range(4))
def test_no_clock_shows_what_cannot_be_printed(at: int) -> None:
    with pytest.raises(Misuse, match="instant"):
        Instant(at)
    with pytest.raises(Misuse, match="instant"):
        _ = Instant(0) + at
    assert str(Instant(NUMBER_MAX)).endswith("s@store")


def test_an_error_says_what_where_why_and_what_to_do() -> None:
    """It is a ValueError and can be pickled."""
    error = Misuse("low > high", where="gate", why="it could never open", todo="swap them")

    assert str(error) == "low > high\n  where: gate\n  why: it could never open\n  help: swap them"
    assert str(TidegateError("bad")) == "bad"
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  our own
