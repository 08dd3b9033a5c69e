from __future__ import annotations

from enum import StrEnum
from typing import Any

from hypothesis.strategies import SearchStrategy

from tidegate import strategies
from tidegate.model.checks.strategies.bson import ODD_DECIMALS
from tidegate.model.documents import (
    Document,
    Field,
    Value,
)
from tidegate.model.instants import (
    MILLISECOND,
    Instant,
)

NAN, INFINITY = ODD_DECIMALS[0], ODD_DECIMALS[3]
A, B, C = Field[Any]("a"), Field[Any]("b"), Field[Any]("c")


def doc(**items: object) -> Document:
    return Document.of(items)


def at_ten() -> Instant:
    return Instant(10 * MILLISECOND)


def unread() -> Instant:
    raise AssertionError("the clock was read")


def nest(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = (value,)
    return value


def fields() -> SearchStrategy[Field[Any]]:
    return strategies.field_names().map(Field[Any])


class Colour(StrEnum):
    RED = "red"
