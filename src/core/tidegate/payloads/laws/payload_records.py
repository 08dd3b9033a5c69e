"""The laws of `tidegate.payloads.payload_records` as predicates over a record, and what a store holds."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.payloads.chunking import Manifest
from tidegate.payloads.payload_records import PayloadRecord

__all__ = ["changes_by_swaps_and_undos", "only_the_reachable_is_left", "refers_to_what_is_there"]


def changes_by_swaps_and_undos(
    before: PayloadRecord, after: PayloadRecord, manifest: Manifest | None, decided: int | None
) -> bool:
    """Law PR1: a record's manifest is one that was swapped in, at the version after the one that its writer had read.

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
    """Law PR2: no manifest refers to a chunk that is not there."""
    return all({*record.manifest.chunks} <= {*there} for record in records)


def only_the_reachable_is_left(records: Collection[PayloadRecord], there: Collection[str]) -> bool:
    """Law PR3: at rest, after undo and collection, only what a manifest refers to is left."""
    return {*there} == {digest for record in records for digest in record.manifest.chunks}
