"""What MongoDB is given for a value is read back as that value, through BSON and pymongo's own codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import bson
import pytest
from hypothesis import example, given

from tidegate import strategies
from tidegate.model.documents import Document, exactly
from tidegate.model.instants import Instant
from tidegate_adapters.bson_values import CODEC, loaded, stored

Load: TypeAlias = Callable[[dict[str, Any]], Document]


def through_bson(doc: Document) -> dict[str, Any]:
    return bson.decode(bson.encode(stored(doc)), CODEC)


def check_d1(load: Load) -> None:
    @given(strategies.documents())
    @example(Document.of({"n": 1.0, "b": True, "m": 2**40, "z": -0.0, "t": (None, b"\0")}))
    @example(Document.of({"at": Instant(-1_000), "b": {"y": 1, "a": 2}}))
    def law(doc: Document) -> None:
        assert exactly(load(through_bson(doc))) == exactly(doc)

    law()


def test_a_document_comes_back_as_it_was() -> None:
    """Law D1: the same types all the way down, the order of the keys included."""
    check_d1(lambda stored: loaded(stored, "c"))


def by_key(stored: dict[str, Any]) -> Document:
    """Keys in the order of the alphabet."""
    return Document(tuple(sorted(loaded(stored, "c").items, key=lambda item: item[0])))


def whole(stored: dict[str, Any]) -> Document:
    """Whole floats as integers."""
    items = loaded(stored, "c").items
    return Document(tuple((key, int(item) if isinstance(item, float) and item == 1.0 else item) for key, item in items))


@pytest.mark.parametrize("load", [by_key, whole])
def test_a_planted_bug_breaks_d1(load: Load) -> None:
    with pytest.raises(AssertionError):
        check_d1(load)
