"""Updates: law D3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.properties.model.terms import A, B, C, at_ten, doc, unread

from tidegate import strategies
from tidegate.model.documents import (
    Add,
    AddToSet,
    Document,
    Field,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    exactly,
    updated,
)
from tidegate.model.effects import (
    Refused,
)
from tidegate.model.instants import (
    MILLISECOND,
    Instant,
)

Updated: TypeAlias = Callable[[Document, tuple[Update, ...], Callable[[], Instant]], Document]


@pytest.mark.parametrize(
    ("update", "before", "after"),
    [
        (Put(A, 1), doc(), doc(a=1)),
        (Put(A, 1), doc(a=2, b=3), doc(a=1, b=3)),
        (Put(A, None), doc(), doc(a=None)),
        (Add(A, 2), doc(a=1), doc(a=3)),
        (Add(A, -2), doc(), doc(a=-2)),
        (Add(A, 1), doc(a=0.5), doc(a=1.5)),
        (Push(A, 3), doc(a=(1, 2)), doc(a=(1, 2, 3))),
        (Push(A, (3,)), doc(a=(1,)), doc(a=(1, (3,)))),
        (Push(A, 1), doc(), doc(a=(1,))),
        (Push(A, 3, last=2), doc(a=(1, 2)), doc(a=(2, 3))),
        (Push(A, 3, last=5), doc(a=(1, 2)), doc(a=(1, 2, 3))),
        (Pull(A, 1), doc(a=(1, 2, 1.0, True)), doc(a=(2, True))),
        (Pull(A, 1), doc(a=((1,), 2)), doc(a=((1,), 2))),
        (Pull(A, 1), doc(b=1), doc(b=1)),
        (AddToSet(A, 1), doc(a=(2,)), doc(a=(2, 1))),
        (AddToSet(A, 1), doc(a=(2, 1.0)), doc(a=(2, 1.0))),
        (AddToSet(A, 1), doc(), doc(a=(1,))),
        (Remove(A), doc(a=1, b=2), doc(b=2)),
        (Remove(A), doc(b=2), doc(b=2)),
        (PutServerTime(A), doc(), doc(a=Instant(10 * MILLISECOND))),
    ],
)
def test_an_update_does_what_mongodb_does(update: Update, before: Document, after: Document) -> None:
    """A real MongoDB agrees in the integration tests."""
    clock = at_ten if isinstance(update, PutServerTime) else unread

    assert exactly(updated(before, (update,), clock)) == exactly(after)


@pytest.mark.parametrize(
    ("update", "before"),
    [
        (Add(A, 1), doc(a="1")),
        (Add(A, 1), doc(a=None)),
        (Add(A, 1), doc(a=True)),
        (Add(A, 1), doc(a=2**63 - 1)),
        (Add(A, -1), doc(a=-(2**63))),
        (Push(A, 1), doc(a=1)),
        (Push(A, 1), doc(a=None)),
        (Pull(A, 1), doc(a=1)),
        (AddToSet(A, 1), doc(a=doc())),
    ],
)
def test_a_field_of_another_type_refuses(update: Update, before: Document) -> None:
    """As in MongoDB."""
    with pytest.raises(Refused, match=r"^Refused.a (is no|would not)"):
        updated(before, (update,), unread)


def test_new_fields_are_appended_by_name() -> None:
    """As in MongoDB."""
    updates = (Put(C, 3), Put(A, 1), PutServerTime(B), Put(Field[Any]("z"), 0))

    assert updated(doc(z=9), updates, at_ten).items == (
        ("z", 0),
        ("a", 1),
        ("b", Instant(10 * MILLISECOND)),
        ("c", 3),
    )


def updates() -> SearchStrategy[tuple[Update, ...]]:
    def of(field: Field[Any]) -> SearchStrategy[Update]:
        return st.one_of(
            strategies.values().map(lambda value: Put(field, value)),
            st.integers(-3, 3).map(lambda amount: Add(field, amount)),
            strategies.values().map(lambda value: Push(field, value, 2)),
            strategies.scalars().map(lambda value: Pull(field, value)),
            strategies.values().map(lambda value: AddToSet(field, value)),
            st.sampled_from((Remove(field), PutServerTime(field))),
        )

    return st.tuples(*map(of, (A, B, C))).flatmap(lambda all_three: st.permutations(all_three).map(tuple))


def check_d3(updated: Updated) -> None:
    @given(strategies.documents(st.sampled_from(("a", "b", "c"))), updates())
    @example(doc(b=1), (Put(A, 1), Push(B, 1)))
    @example(doc(), (Put(C, 1), Put(A, 1)))
    def law(document: Document, updates: tuple[Update, ...]) -> None:
        was = document.items
        try:
            after = updated(document, updates, at_ten)
        except Refused:
            after = None
        assert exactly(document.items) == exactly(was)
        assert after is None or exactly(after) == exactly(updated(document, updates[::-1], at_ten))

    law()


def test_an_update_that_is_refused_changes_nothing() -> None:
    """Law D3; the order of the updates makes no difference."""
    check_d3(updated)


def one_by_one(document: Document, updates: tuple[Update, ...], now: Callable[[], Instant]) -> Document:
    """Planted bug: it applies each update alone, so those before the refused one stay."""
    for update in updates:
        object.__setattr__(document, "items", updated(document, (update,), now).items)
    return document


def unsorted(document: Document, updates: tuple[Update, ...], now: Callable[[], Instant]) -> Document:
    for update in updates:
        document = updated(document, (update,), now)
    return document


@pytest.mark.parametrize("planted", [one_by_one, unsorted])
def test_a_planted_bug_breaks_d3(planted: Updated) -> None:
    with pytest.raises(AssertionError):
        check_d3(planted)
