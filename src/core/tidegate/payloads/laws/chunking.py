"""The laws of `tidegate.payloads.chunking` as predicates over a plan, or a join."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from tidegate.model.documents import Document
from tidegate.payloads.chunking import Corrupt, Joined, Manifest, Missing, Plan, Size, TooLarge, TooLong

__all__ = [
    "each_is_named_by_its_content", "fits", "gives_it_back", "makes_no_more_than_the_manifest_says",
    "never_another_payload",
]  # fmt: skip


def gives_it_back(payload: Document, joined: Joined | Missing | Corrupt | TooLong) -> bool:
    """Law CH1: joining what was planned gives the payload, keys in their order."""
    return joined == Joined(payload)


def fits(payload: Document, size: Size, threshold: int, attempt: str, planned: Plan | TooLarge) -> bool:
    """Law CH2: no manifest and no chunk is larger than the threshold, and nothing is chunked that fits without.

    Where the verdict is `TooLarge`, it is of a manifest that is.
    """
    if isinstance(planned, TooLarge):
        return planned.size > threshold
    documents = [planned.manifest.document(), *(chunk.document(attempt) for chunk in planned.chunks)]
    inline = Document((("parts", payload),))
    return all(size(document) <= threshold for document in documents) and (
        size(inline) > threshold or (planned.chunks, planned.manifest.references) == ((), ())
    )


def never_another_payload(payload: Document, joined: Joined | Missing | Corrupt | TooLong) -> bool:
    """Law CH3: of any chunks whatever, a join gives the payload or says what is wrong."""
    return not isinstance(joined, Joined) or joined == Joined(payload)


def makes_no_more_than_the_manifest_says(manifest: Manifest, limit: int, made: Sequence[int]) -> bool:
    """Law CH4: a join makes no more bytes than the manifest says, and none if that is more than the limit.

    Args:
        manifest: What it joined.
        limit: What it was allowed.
        made: How many bytes it made of each reference whose chunks it stored otherwise.
    """
    stated = [reference.length for reference in manifest.references]
    if sum(stated) > limit:
        return not made
    return all(length <= most + 1 for length, most in zip(made, stated, strict=False))


def each_is_named_by_its_content(planned: Plan) -> bool:
    """Law CH5: a chunk is named by its content, and a plan has each that its manifest refers to, once."""
    digests = tuple(chunk.digest for chunk in planned.chunks)
    return digests == tuple(sha256(chunk.data).hexdigest() for chunk in planned.chunks) == planned.manifest.chunks
