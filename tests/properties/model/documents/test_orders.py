"""Orders and cursors: laws SB1 and SB2; a test on a server compares them with MongoDB's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.model.terms import doc

from tidegate.model.checks.strategies.documents import values
from tidegate.model.checks.strategies.operations import sorts
from tidegate.model.documents import (
    ID,
    Ascending,
    Descending,
    Document,
    Eq,
    Field,
    Foreign,
    Not,
    Sort,
    Value,
    cursor,
    fields_of,
    in_order,
    sort_key,
    sort_key_of,
    total,
)
from tidegate.model.errors import Misuse
from tidegate.model.operations import Index, check_indexes, find_all, find_one

A: Final = Field[Any]("a")
B: Final = Field[Any]("b")
Key: TypeAlias = Callable[[Document, Sort], Any]
SOME: Final = st.lists(st.dictionaries(st.sampled_from("abc"), values(), max_size=3), max_size=5).map(
    lambda each: tuple(Document((("_id", number), *held.items())) for number, held in enumerate(each))
)


def check_sb1(key: Key) -> None:
    @given(SOME, sorts())
    @example((doc(_id=0, a=1), doc(_id=1, a=1.0)), (Descending(A),))
    def law(docs: tuple[Document, ...], sort: Sort) -> None:
        for one in docs:
            for other in docs:
                assert (key(one, sort) < key(other, sort)) + (key(other, sort) < key(one, sort)) == (one != other)

    law()


def test_of_two_documents_one_comes_first() -> None:
    """Law SB1."""
    check_sb1(sort_key)


def test_documents_that_are_alike_would_have_no_order() -> None:
    with pytest.raises(AssertionError):
        check_sb1(lambda doc, sort: sort_key(doc, sort)[: len(sort)])


Begin: TypeAlias = Callable[[tuple[Value, ...], Sort], Any]


def paged(docs: tuple[Document, ...], sort: Sort, begin: Begin) -> list[Document]:
    found: list[Document] = []
    after: Any = None
    while later := [each for each in docs if after is None or sort_key(each, sort) > after]:
        found.append(min(later, key=lambda each: sort_key(each, sort)))
        after = begin(cursor(found[-1], sort), sort)
    return found


def check_sb2(begin: Begin) -> None:
    @given(SOME, sorts())
    @example((doc(_id=0), doc(_id=1, a=None), doc(_id=2, a=())), (Ascending(A),))
    @example((doc(_id=0, a=(1, 5)), doc(_id=1, a=3)), (Descending(A),))
    def law(docs: tuple[Document, ...], sort: Sort) -> None:
        assert paged(docs, sort, begin) == sorted(docs, key=lambda each: sort_key(each, sort))

    law()


def test_pages_come_to_the_whole() -> None:
    """Law SB2."""
    check_sb2(sort_key_of)


def test_a_page_that_begins_behind_all_that_are_alike_leaves_some_out() -> None:
    with pytest.raises(AssertionError):
        check_sb2(lambda held, sort: sort_key_of((*held[:-1], Foreign("maxKey", b"")), sort))


LEAST_FIRST: Final[tuple[Value, ...]] = (
    *((), None, (None, 1), math.nan, -math.inf, 0, (7, 1), 2, "", "b", doc(), ((),), True, (True,)),
)
NUMBER: Final = Field[int](ID.name)


def test_values_of_all_types_have_one_order() -> None:
    docs = [Document((("_id", n), ("a", held))) for n, held in enumerate(LEAST_FIRST)]
    rising = sorted([*docs[5:], *docs[:5]], key=lambda each: sort_key(each, (Ascending(A),)))
    assert [each[NUMBER] for each in rising] == [*range(len(docs))]
    assert sort_key(docs[1], (Ascending(A),)) == sort_key(docs[1].without(A), (Ascending(A),))
    falling = sorted(docs, key=lambda each: sort_key(each, (Descending(A), Descending(ID))))
    # (None, 1) is at 1 now, and (7, 1) at 7; the others have not moved
    assert [each[NUMBER] for each in falling] == [13, 12, 11, 10, 9, 8, 6, 7, 2, 5, 4, 3, 1, 0]


def test_a_cursor_is_what_a_document_holds() -> None:
    assert total((Ascending(A),)) == (Ascending(A), Ascending(ID))
    assert total((Descending(A), Descending(ID))) == (Descending(A), Descending(ID))
    assert fields_of((Ascending(A), Descending(B))) == (A, B, ID)
    assert cursor(doc(_id=7, b=(2, 1)), (Ascending(A), Descending(B))) == (None, (2, 1), 7)
    assert sort_key_of(("x",), ()) == (in_order("x"),)


@pytest.mark.parametrize(
    ("sort", "said"),
    [
        ((Ascending(A), Descending(A)), "by a field twice: 'a, a'"),
        ((Ascending(ID), Ascending(A)), "behind the id"),
        ([Ascending(A)], "not a tuple"),
        ((A,), "a term of a sort"),
        (Ascending(A), "not a tuple"),
    ],
)
def test_a_sort_names_each_field_once_and_the_id_last(sort: Any, said: str) -> None:
    for take in (
        lambda: total(sort),
        lambda: find_one("c", Eq(A, 1), sort=sort),
        lambda: find_all("c", limit=1, sort=sort),
        lambda: Index(sort),
    ):
        with pytest.raises(Misuse, match=said):
            take()


def test_a_cursor_is_one_of_the_sort() -> None:
    sort = (Descending(A),)
    assert find_all("c", limit=1, sort=sort, after=(1, "x"), fields=(A,)).after == (1, "x")
    others: list[tuple[Value, ...]] = [("x",), (1, 2, "x")]
    for after in others:
        with pytest.raises(Misuse, match=f"{len(after)} values to begin after, in an order by a, _id"):
            _ = find_all("c", limit=1, sort=sort, after=after)
        with pytest.raises(Misuse, match="a cursor of"):
            sort_key_of(after, sort)
    with pytest.raises(Misuse, match="a field that is not found"):
        _ = find_all("c", limit=1, sort=sort, fields=(B,))


def test_an_index_is_of_a_sort_and_a_filter_that_mongodb_takes() -> None:
    check_indexes({"c": (Index((Ascending(A),), Eq(B, 1)),)})
    with pytest.raises(Misuse, match="an index by nothing"):
        Index(())
    with pytest.raises(Misuse, match="a partial index where not"):
        Index((Ascending(A),), Not(Eq(B, 1)))
    wrong: list[Any] = [[], {"c": (A,)}, {"$c": ()}]
    for bad in wrong:
        with pytest.raises(Misuse):
            check_indexes(bad)
