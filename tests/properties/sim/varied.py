"""A module for tests of variants: a table of functions, a value, and a class that uses both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class Answer(NamedTuple):
    number: int


class Asked:
    def answer(self, how: str, number: int) -> Answer:
        return Answer(TABLE[how](number))


def asked_twice(number: int) -> int:
    return Asked().answer("add", number).number * double(1)


def double(number: int) -> int:
    return number * TWO


def add(number: int) -> int:
    return number + 1


TWO: Final = 2
TABLE: Final[Mapping[str, Callable[[int], int]]] = {"add": add}
