"""Payloads, what is planned for them, and what may become of it."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import Document
from tidegate.model.strategies.documents import keys
from tidegate.payloads.chunking import Chunk, Codec, Kind, Manifest, Reference

__all__ = ["chunks", "manifests", "payloads", "references", "torn"]

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_BYTES = st.binary(max_size=8)


def payloads() -> SearchStrategy[Document]:
    """Texts and bytes under up to four keys, some of them long, and long ones that repeat themselves."""
    short = _TEXTS | _BYTES
    long = st.tuples(short, st.integers(20, 150)).map(lambda drawn: drawn[0] * drawn[1])
    return st.dictionaries(keys(), short | long, max_size=4).map(lambda items: Document(tuple(items.items())))


def chunks() -> SearchStrategy[Chunk]:
    """Chunks of a few bytes."""
    return st.builds(Chunk, st.sampled_from((b"", b"x", b"y")) | _BYTES)


def references(kind: SearchStrategy[Kind]) -> SearchStrategy[Reference]:
    """References as a manifest may have them; what they say need not be true.

    Args:
        kind: What they refer to.
    """
    digests = chunks().map(lambda chunk: chunk.digest)
    return st.builds(
        Reference,
        kind,
        st.sampled_from(Codec),
        st.integers(0, 99),
        digests,
        st.lists(digests, min_size=1, max_size=3).map(tuple),
    )


@st.composite
def manifests(draw: DrawFn) -> Manifest:
    """Manifests of parts and of wholes."""
    if draw(st.booleans()):
        return Manifest(whole=draw(references(st.just(Kind.PAYLOAD))))
    part = references(st.sampled_from((Kind.TEXT, Kind.BYTES)))
    return Manifest(tuple(draw(st.dictionaries(keys(), _TEXTS | _BYTES | part, max_size=4)).items()))


def torn(data: bytes) -> SearchStrategy[bytes]:
    """What may become of bytes: cut, longer, changed in a place, or others.

    Args:
        data: The bytes.
    """
    places = st.integers(0, len(data))
    return st.one_of(
        places.map(lambda at: data[:at]),
        _BYTES.map(lambda more: data + more),
        st.tuples(places, st.integers(1, 255)).map(
            lambda change: bytes(byte ^ change[1] if at == change[0] else byte for at, byte in enumerate(data))
        ),
        _BYTES,
    )
