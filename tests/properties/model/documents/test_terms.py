from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

import attrs
import pytest
from tests.properties.model.terms import A, doc, nest, unread

from tidegate.model import documents
from tidegate.model.checks.strategies.bson import regex
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    WALL,
    Instant,
    moment,
)
from tidegate.model.values import field_names


def test_terms_are_refused_at_construction() -> None:
    """For example, MongoDB would read some pulls as a condition."""
    refused: tuple[Callable[[], object], ...] = (
        lambda: documents.AllOf(()),
        lambda: documents.AnyOf(()),
        lambda: documents.Push(A, 1, last=0),
        lambda: documents.Push(A, 1, last=-1),
        lambda: documents.Push(A, 1, last=True),
        lambda: documents.Pull(A, (1,)),
        lambda: documents.Pull(A, doc(a=1)),
        lambda: documents.Pull(A, regex("a")),
        lambda: documents.Lt(A, 2**63),
        lambda: documents.Lt(A, True),
        lambda: documents.Gt(A, None),
        lambda: documents.Ge(A, (1,)),
        lambda: documents.Le(A, b"a"),
        lambda: documents.Ne(A, regex("a")),
        lambda: documents.NotIn(A, (regex("a"),)),
        lambda: documents.Add(A, 2**63),
        lambda: documents.Add(A, True),
        lambda: documents.Field[int]("\ud800"),
        lambda: documents.Put(documents.Field[Instant]("a"), Instant(0, WALL)),
        lambda: documents.updated(doc(), (documents.Put(A, 1), documents.Remove(A)), unread),
        lambda: moment(Instant(10**40)),
    )
    for construct in refused:
        with pytest.raises(Misuse):
            construct()


@attrs.frozen
class Plain:
    held: object


WRONG: Final[Any] = documents


@pytest.mark.parametrize("junk", [None, True, 1j, object(), "$x", [1], {"a": 1}, int, math.nan, Instant(0)])
def test_what_is_not_a_term_a_document_or_a_field_is_refused(junk: Any) -> None:
    wrong: tuple[Callable[[], object], ...] = (
        lambda: WRONG.Eq(junk, 1),
        lambda: WRONG.Lt(junk, 1),
        lambda: WRONG.Ne(junk, 1),
        lambda: WRONG.Le(junk, 1),
        lambda: WRONG.Gt(junk, 1),
        lambda: WRONG.Ge(junk, 1),
        lambda: WRONG.NotIn(junk, (1,)),
        lambda: WRONG.Not(junk),
        lambda: WRONG.parts_of(junk).__next__(),
        lambda: WRONG.In(junk, (1,)),
        lambda: WRONG.In(A, junk),
        lambda: WRONG.Exists(junk),
        lambda: WRONG.OlderThan(junk, 1),
        lambda: WRONG.OlderThan(A, junk),
        lambda: WRONG.AllOf(junk),
        lambda: WRONG.AnyOf((documents.Exists(A), junk)),
        lambda: WRONG.Add(junk, 1),
        lambda: WRONG.Pull(junk, 1),
        lambda: WRONG.Remove(junk),
        lambda: WRONG.PutServerTime(junk),
        lambda: WRONG.Push(A, 1, junk or 0),
        lambda: WRONG.matches(junk, doc(), unread),
        lambda: WRONG.matches(documents.Exists(A), junk, unread),
        lambda: WRONG.matches(documents.Exists(A), doc(), 5),
        lambda: WRONG.matches(documents.OlderThan(A, 1), doc(a=Instant(0)), lambda: 5),
        lambda: WRONG.updated(junk, (), unread),
        lambda: WRONG.updated(doc(), junk, unread),
        lambda: WRONG.updated(doc(), (junk,), unread),
        lambda: WRONG.updated(doc(), (), 5),
        lambda: WRONG.updated(doc(), (documents.PutServerTime(A),), lambda: 5),
        lambda: WRONG.Document(junk),
        lambda: WRONG.Document((junk,)),
        lambda: WRONG.Document(((junk, 1),) if junk != "$x" else 1),
        lambda: WRONG.Document.of(junk if not isinstance(junk, dict) else 1),
        lambda: doc(a=1).get(junk),
        lambda: doc(a=1).has(junk),
        lambda: doc(a=1).put(junk, 1),
        lambda: doc(a=1).without(junk),
        lambda: doc(a=1)[junk],
        lambda: WRONG.frozen(1, 5),
        lambda: WRONG.checked(1, 5),
        lambda: WRONG.checked(1, "a", 0),
        lambda: field_names(5),  # type: ignore[arg-type]
        lambda: WRONG.one_line(5),
        lambda: WRONG.has_lone_surrogate(5),
    )
    for construct in wrong:
        with pytest.raises(Misuse):
            construct()


def test_numbers_without_end_are_refused_and_shown_by_type() -> None:
    """Python does not print an int of five thousand digits, so no message may try to."""
    endless = 10**5_000
    for construct in (
        lambda: doc(a=endless),
        lambda: documents.Document.of({"a": {endless: 1}} if endless else {}),
        lambda: documents.Document(((cast("str", endless), 1),)),
        lambda: documents.Lt(A, endless),
        lambda: documents.Push(A, 1, endless),
        lambda: documents.Foreign(cast("str", endless), b""),
        lambda: documents.Field[int](cast("str", endless)),
    ):
        with pytest.raises(Misuse) as raised:
            construct()
        assert "000000" not in str(raised.value)
    assert documents.show((endless,)) == "a tuple"
    assert documents.show(documents.Exists(A)) == "has a"
    assert documents.show(Plain(True)) == "Plain(held=true)"
    assert field_names(documents.Field) == ("name",)


def test_endless_nesting_is_refused() -> None:
    deep = nest(100_000)

    asked: tuple[Callable[[], object], ...] = (
        lambda: documents.equal(deep, nest(100_000)),
        lambda: documents.exactly(deep),
        lambda: doc(a=deep),
    )
    for ask in asked:
        with pytest.raises(Misuse, match="nested"):
            ask()
    assert documents.show(deep) == "a tuple"
    assert documents.equal(nest(90), nest(90))
    documents.checked(nest(documents.DEPTH_MAX - 2), "a", 2)
    with pytest.raises(Misuse, match="nested deeper"):
        documents.checked(nest(documents.DEPTH_MAX - 1), "a", 2)
