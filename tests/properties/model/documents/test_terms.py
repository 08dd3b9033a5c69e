"""Filters, updates, documents and functions of them, made of what they cannot be made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

import attrs
import pytest
from tests.properties.model.terms import A, doc, nest, unread

from tidegate.model import documents
from tidegate.model.documents import (
    DEPTH_MAX,
    Add,
    AllOf,
    AnyOf,
    Document,
    Exists,
    Field,
    Foreign,
    Ge,
    Gt,
    Le,
    Lt,
    Ne,
    NotIn,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    equal,
    exactly,
    show,
    updated,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    WALL,
    Instant,
    moment,
)
from tidegate.model.strategies.bson import regex
from tidegate.model.values import field_names


def test_terms_are_refused_at_construction() -> None:
    """A filter of no parts, a push that keeps nothing, a pull that MongoDB would read as a condition."""
    refused: tuple[Callable[[], object], ...] = (
        lambda: AllOf(()),
        lambda: AnyOf(()),
        lambda: Push(A, 1, last=0),
        lambda: Push(A, 1, last=-1),
        lambda: Push(A, 1, last=True),
        lambda: Pull(A, (1,)),
        lambda: Pull(A, doc(a=1)),
        lambda: Pull(A, regex("a")),
        lambda: Lt(A, 2**63),
        lambda: Lt(A, True),
        lambda: Gt(A, None),
        lambda: Ge(A, (1,)),
        lambda: Le(A, b"a"),
        lambda: Ne(A, regex("a")),
        lambda: NotIn(A, (regex("a"),)),
        lambda: Add(A, 2**63),
        lambda: Add(A, True),
        lambda: Field[int]("\ud800"),
        lambda: Put(Field[Instant]("a"), Instant(0, WALL)),
        lambda: updated(doc(), (Put(A, 1), Remove(A)), unread),
        lambda: moment(Instant(10**40)),
    )
    for construct in refused:
        with pytest.raises(Misuse):
            construct()


@attrs.frozen
class Plain:
    """A value without a text of its own."""

    held: object


WRONG: Final[Any] = documents
"""The module, for what the type checkers refuse."""


@pytest.mark.parametrize("junk", [None, True, 1j, object(), "$x", [1], {"a": 1}, int, math.nan, Instant(0)])
def test_what_is_not_a_term_a_document_or_a_field_is_refused(junk: Any) -> None:
    """A wrong type is misuse where it is handed in, and does not show as an error somewhere inside."""
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
        lambda: WRONG.AnyOf((Exists(A), junk)),
        lambda: WRONG.Add(junk, 1),
        lambda: WRONG.Pull(junk, 1),
        lambda: WRONG.Remove(junk),
        lambda: WRONG.PutServerTime(junk),
        lambda: WRONG.Push(A, 1, junk or 0),
        lambda: WRONG.matches(junk, doc(), unread),
        lambda: WRONG.matches(Exists(A), junk, unread),
        lambda: WRONG.matches(Exists(A), doc(), 5),
        lambda: WRONG.matches(OlderThan(A, 1), doc(a=Instant(0)), lambda: 5),
        lambda: WRONG.updated(junk, (), unread),
        lambda: WRONG.updated(doc(), junk, unread),
        lambda: WRONG.updated(doc(), (junk,), unread),
        lambda: WRONG.updated(doc(), (), 5),
        lambda: WRONG.updated(doc(), (PutServerTime(A),), lambda: 5),
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
    """Python prints no int of five thousand digits, so no message may try to."""
    endless = 10**5_000
    for construct in (
        lambda: doc(a=endless),
        lambda: Document.of({"a": {endless: 1}} if endless else {}),
        lambda: Document(((cast("str", endless), 1),)),
        lambda: Lt(A, endless),
        lambda: Push(A, 1, endless),
        lambda: Foreign(cast("str", endless), b""),
        lambda: Field[int](cast("str", endless)),
    ):
        with pytest.raises(Misuse) as raised:
            construct()
        assert "000000" not in str(raised.value)
    assert show((endless,)) == "a tuple"
    assert show(Exists(A)) == "has a"
    assert show(Plain(True)) == "Plain(held=true)"
    assert field_names(Field) == ("name",)


def test_endless_nesting_is_refused() -> None:
    """Deeper than the interpreter goes; what a document can hold is far below."""
    deep = nest(100_000)

    asked: tuple[Callable[[], object], ...] = (
        lambda: equal(deep, nest(100_000)),
        lambda: exactly(deep),
        lambda: doc(a=deep),
    )
    for ask in asked:
        with pytest.raises(Misuse, match="nested"):
            ask()
    assert show(deep) == "a tuple"
    assert equal(nest(90), nest(90))
    documents.checked(nest(DEPTH_MAX - 2), "a", 2)
    with pytest.raises(Misuse, match="nested deeper"):
        documents.checked(nest(DEPTH_MAX - 1), "a", 2)
