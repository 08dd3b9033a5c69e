"""Records of payloads, and damaged bytes of a chunk."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.history import Change
from tidegate.payloads.upload_records import Content, UploadRecord


def uploads() -> SearchStrategy[str]:
    return st.sampled_from(("ann", "bob", "eve"))


def contents() -> SearchStrategy[Content]:
    """Contents that records may name; the chunks need not exist."""
    return st.builds(
        Content, uploads(), st.integers(0, 3), st.integers(0, 99), st.just("0" * 64), st.sampled_from(("none", "zlib"))
    )


@st.composite
def records(draw: DrawFn) -> UploadRecord:
    """Records with a content, announcements and a history."""
    version = draw(st.integers(0, 5))
    remembered = range(max(version - draw(st.integers(0, 5)), 0), version)
    history = tuple(
        Change(made + 1, draw(uploads()), draw(st.sampled_from(("switched", "undone")))) for made in remembered
    )
    pending = tuple(draw(st.lists(uploads(), max_size=2, unique=True)))
    return UploadRecord(version, draw(st.none() | contents()), pending, history)


def torn(data: bytes) -> SearchStrategy[bytes]:
    """Damaged bytes: cut, longer, changed in a place, or others."""
    places = st.integers(0, len(data))
    more = st.binary(max_size=8)
    return st.one_of(
        places.map(lambda at: data[:at]),
        more.map(lambda tail: data + tail),
        st.tuples(places, st.integers(1, 255)).map(
            lambda change: bytes(byte ^ change[1] if at == change[0] else byte for at, byte in enumerate(data))
        ),
        more,
    )
