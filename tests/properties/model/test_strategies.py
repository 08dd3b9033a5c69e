from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy
from tests.properties.model.terms import A, doc

from tidegate import strategies
from tidegate.model.documents import (
    Document,
    Field,
    Value,
    equal,
    exactly,
    show,
)
from tidegate.model.instants import (
    Instant,
    instant,
    moment,
)

T = TypeVar("T")


def drawn(strategy: SearchStrategy[T], examples: int) -> list[T]:
    found: list[T] = []

    @settings(max_examples=examples)
    @given(strategy)
    def draw(example: T) -> None:
        found.append(example)

    draw()
    return found


def apart(before: Value, after: Value) -> Iterator[tuple[Value, Value]]:
    if (
        isinstance(before, Document)
        and isinstance(after, Document)
        and dict(before.items).keys() == dict(after.items).keys()
    ):
        yield before, after
        for key, value in before.items:
            yield from apart(value, dict(after.items)[key])
    elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        yield before, after
        for one, other in zip(before, after, strict=True):
            yield from apart(one, other)
    else:
        yield before, after


def names(value: Value) -> dict[str, object]:
    return {key: exactly(held) for key, held in value.items if held is not None} if isinstance(value, Document) else {}


NEAR: Mapping[str, Callable[[Any, Any], bool]] = {
    "the same": lambda one, other: exactly(one) == exactly(other) and len(names(one)) > 1,
    "equal in another type": lambda one, other: type(one) is int and type(other) is float and one == other,
    "equal though not the same": lambda one, other: len(names(one)) > 1 and equal(one, other) and one != other,
    "true and 1": lambda one, other: {str(one), str(other)} == {"True", "1"} and one == other,
    "false and 0": lambda one, other: {str(one), str(other)} == {"False", "0"} and one == other,
    "0.0 and -0.0": lambda one, other: {str(one), str(other)} == {"0.0", "-0.0"},
    "NaN": lambda one, other: type(one) is type(other) is float and math.isnan(one) and math.isnan(other),
    "null and missing": lambda one, other: (
        names(one) == names(other) and len(names(one)) > 0 and len(one.items) != len(other.items)
    ),
    "another order of keys": lambda one, other: (
        names(one) == names(other) and len(names(one)) > 1 and len(one.items) == len(other.items) and one != other
    ),
    "another order of elements": lambda one, other: (
        type(one) is type(other) is tuple and one != other and sorted(show(one)) == sorted(show(other))
    ),
    "the next number": lambda one, other: (
        type(one) is int and type(other) is float and one != other and float(one) == other
    ),
    "a string and its bytes": lambda one, other: type(one) is str and type(other) is bytes and one.encode() == other,
}


def test_pairs_are_often_nearly_equal() -> None:
    """In some thousand pairs, whatever other modules are loaded."""
    places = [place for pair in drawn(strategies.pairs(), 1_000) for place in apart(*pair)]

    assert [name for name, is_near in NEAR.items() if not any(is_near(*place) for place in places)] == []


@given(strategies.document_pairs())
def test_pairs_of_documents_are_documents(pair: tuple[Document, Document]) -> None:
    assert all(type(each) is Document for each in pair)


@given(strategies.instants())
def test_instants_are_dates_that_a_document_holds(at: Instant) -> None:
    assert doc(a=at).get(A) == instant(moment(at)) == at


@given(strategies.documents(strategies.field_names()), strategies.keys())
def test_documents_have_the_keys_that_were_asked_for(document: Document, key: str) -> None:
    for name, _ in document.items:
        assert document.has(Field[Any](name))
    assert Document(((key, 1),)).items == ((key, 1),)
