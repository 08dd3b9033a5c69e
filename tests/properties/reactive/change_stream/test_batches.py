from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.reactive.checks.laws import change_stream as laws
from tidegate.reactive.checks.strategies.change_stream import changes
from tidegate.reactive.planning.change_stream import (
    DocumentChange,
    HandleChanged,
    HandleDeleted,
)
from tidegate.reactive.planning.change_stream._batches import collected, free, passes

A1, A3, B1 = DocumentChange("a", 1), DocumentChange("a", 3, is_gone=True), DocumentChange("b", 1)


@given(st.lists(changes(), max_size=6).map(tuple), st.lists(changes(), max_size=6).map(tuple))
def test_changes_are_collected_one_after_the_other_or_at_once(
    before: tuple[DocumentChange, ...], more: tuple[DocumentChange, ...]
) -> None:
    """Law CS3, for all kinds of ids. Collecting a change twice has no effect."""
    assert collected(collected((), before), more) == collected((), (*before, *more))
    assert collected(collected((), before), ()) == collected((), before)
    assert laws.asks_for_each_once((*before, *more), passes(1, 0, collected(before, more)))


def test_a_document_that_changes_again_is_the_newest() -> None:
    gone = DocumentChange("a", 1, is_gone=True)
    assert collected((), (A1, B1, gone)) == (B1, gone)


def test_the_first_pass_of_a_collection_is_free() -> None:
    asked = passes(1, 0, (A1, A3, B1))
    assert free(asked) == (HandleDeleted(1, 0, "a", (3,)), HandleChanged(1, 0, "b", (1,)))
    assert free(()) == ()
