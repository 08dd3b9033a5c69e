"""Records of a topic."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.checks.strategies.documents import LAST
from tidegate.model.errors import INT64_MAX
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.records import BROKER, PRODUCER, Record


def records(topic: str = "topic", partition: int = 0) -> SearchStrategy[Record]:
    """Records of one partition: with and without key, value, headers and time."""
    offsets = st.one_of(st.integers(0, 20), st.integers(0, INT64_MAX))
    blob = st.one_of(
        st.none(), st.sampled_from((b"", b"\0", b"{}", b"\xff\xfe", b'{"$ne": null}')), st.binary(max_size=9)
    )
    stamps = st.builds(
        Instant,
        st.integers(0, LAST.at // MILLISECOND).map(lambda at: at * MILLISECOND),
        st.sampled_from((PRODUCER, BROKER)),
    )
    headers = st.lists(st.tuples(st.sampled_from(("trace", "attempt", "")), blob), max_size=3).map(tuple)
    return st.builds(
        Record, st.just(topic), st.just(partition), offsets, blob, blob, headers, st.one_of(st.none(), stamps)
    )
