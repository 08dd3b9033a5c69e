"""Records of payloads, marks, and chunks as they are read."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.history import Change
from tidegate.payloads.payload_records import Mark, PayloadRecord, StoredChunk
from tidegate.payloads.strategies.chunking import chunks, manifests

__all__ = ["marks", "records", "stored_chunks"]


def marks() -> SearchStrategy[Mark]:
    """Announcements of attempts."""
    digests = chunks().map(lambda chunk: chunk.digest)
    return st.builds(Mark, st.sampled_from(("ann@0", "bob@1")), st.lists(digests, max_size=3).map(tuple))


def stored_chunks() -> SearchStrategy[StoredChunk]:
    """Chunks as a collector sees them."""
    return st.builds(StoredChunk, chunks().map(lambda chunk: chunk.digest), st.sampled_from(("ann@0", "bob@1")))


@st.composite
def records(draw: DrawFn) -> PayloadRecord:
    """Records with a manifest, marks and a history."""
    version = draw(st.integers(0, 5))
    remembered = range(max(version - draw(st.integers(0, 5)), 0), version)
    history = tuple(
        Change(made + 1, draw(st.sampled_from(("ann@0", "bob@1"))), draw(st.sampled_from(("swapped", "undone"))))
        for made in remembered
    )
    return PayloadRecord(version, draw(manifests()), tuple(draw(st.lists(marks(), max_size=2))), history)
