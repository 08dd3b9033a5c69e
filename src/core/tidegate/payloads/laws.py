"""The laws of `tidegate.payloads.chunking` as predicates: over a plan, a join, or what a store holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256

from tidegate.model.documents import Document
from tidegate.payloads.chunking import (
    Corrupt,
    Joined,
    Manifest,
    Missing,
    PayloadRecord,
    Plan,
    Size,
    TooLarge,
    TooLong,
)


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


def makes_no_more_than_told(manifest: Manifest, limit: int, made: Sequence[int]) -> bool:
    """Law CH4: a join makes no more bytes than the manifest tells, and none if that is more than the limit.

    Args:
        manifest: What it joined.
        limit: What it was allowed.
        made: How many bytes it made of each reference whose chunks it stored otherwise.
    """
    told = [reference.length for reference in manifest.references]
    if sum(told) > limit:
        return not made
    return all(length <= most + 1 for length, most in zip(made, told, strict=False))


def each_is_named_by_its_content(planned: Plan) -> bool:
    """Law CH5: a chunk is named by its content, and a plan has each that its manifest refers to, once."""
    digests = tuple(chunk.digest for chunk in planned.chunks)
    return digests == tuple(sha256(chunk.data).hexdigest() for chunk in planned.chunks) == planned.manifest.chunks


def changes_by_swaps_and_undos(
    before: PayloadRecord, after: PayloadRecord, manifest: Manifest | None, decided: int | None
) -> bool:
    """Law CH6: a record's manifest is one that was swapped in, at the version after the one that its writer had read.

    Args:
        before: The record.
        after: What a write made of it.
        manifest: What that write was to let in; None for any other write.
        decided: The version that it was decided on; None for a write that makes none.
    """
    if after.version == before.version:
        return after.manifest == before.manifest
    return (
        after.version == before.version + 1
        and before.version == decided
        and (after.manifest == (before.manifest if manifest is None else manifest))
    )


def refers_to_what_is_there(records: Collection[PayloadRecord], there: Collection[str]) -> bool:
    """Law CH7: no manifest refers to a chunk that is not there."""
    return all({*record.manifest.chunks} <= {*there} for record in records)


def only_the_reachable_is_left(records: Collection[PayloadRecord], there: Collection[str]) -> bool:
    """Law CH8: at rest, after undo and collection, only what a manifest refers to is left."""
    return {*there} == {digest for record in records for digest in record.manifest.chunks}
