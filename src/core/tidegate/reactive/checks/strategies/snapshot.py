"""Strategies: watched values of documents, and stored snapshots."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.checks.strategies.documents import document_pairs, documents, field_names
from tidegate.model.documents import Document, Field, Value, equal
from tidegate.model.patches import difference
from tidegate.reactive.record.snapshot import (
    Changed,
    Computed,
    Differs,
    Digest,
    Kept,
    Projection,
    SnapshotVerdict,
    Unchanged,
    digest,
)

_A, _B = Field[Value]("a"), Field[Value]("b")


# --- what is watched ----------------------------------------------------------------------------------------------------


def _has_b(document: Document) -> Value:
    return document.has(_B)


def _a_or_none(document: Document) -> Value:
    held = document.get(_A)
    return "none" if held is None else held


def _is_alike(document: Document) -> Value:
    return document.has(_A) == document.has(_B) and equal(document.held(_A), document.held(_B))


def _raises(document: Document) -> Value:
    return document[Field[Value](f"not in {document.items[:0]}")]


COMPUTED: Final = (
    Computed(_has_b, {"$ne": [{"$type": "$b"}, "missing"]}),
    Computed(_a_or_none, {"$ifNull": ["$a", "none"]}),
    Computed(_is_alike, {"$eq": ["$a", "$b"]}, version=2),
)
"""Computed values with a MongoDB expression that equals the function."""
FAILING: Final = Computed(_raises)


@st.composite
def projections(draw: DrawFn) -> Projection:
    """Watched values; mostly paths found in `documents()`, sometimes the whole document."""
    paths: list[str] = []
    for names in draw(st.lists(st.lists(field_names(), min_size=1, max_size=3), max_size=4)):
        path = ".".join(names)
        if not any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in paths):
            paths.append(path)
    return Projection(tuple(paths))


@st.composite
def computed_projections(draw: DrawFn) -> Projection:
    """Watched values, sometimes computed ones."""
    plain = draw(projections())
    computed = draw(st.lists(st.sampled_from(COMPUTED), max_size=2))
    places = [f"{where}.{index}x" for index, where in enumerate(draw(st.permutations(("x", "y", "z"))))]
    return Projection(
        tuple(path for path in plain.paths if path[0] not in "xyz"), tuple(zip(places, computed, strict=False))
    )


# --- what is kept, and what has changed ---------------------------------------------------------------------------------


def digests() -> SearchStrategy[Digest]:
    """Digests of documents."""
    return documents().map(digest)


def kept() -> SearchStrategy[Kept]:
    """Stored snapshots."""
    return st.one_of(documents(), digests())


@st.composite
def verdicts(draw: DrawFn) -> SnapshotVerdict:
    """Results of a comparison."""
    before, after = draw(document_pairs())
    patch = difference(before, after)
    return draw(st.sampled_from((Unchanged(), Differs(), Changed(patch) if patch else Unchanged())))
