"""The laws of `tidegate.payloads.upload_records` as predicates over records and the contents of a
store.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegate.payloads.upload_records import Damaged, UploadRecord, chunk_id


def changes_by_switches(before: UploadRecord, after: UploadRecord, decided: int | None) -> bool:
    """Law UR1, for one write; `decided` is the version of its decision, None for a write that makes
    none.
    """
    if after.version == before.version:
        return after.content == before.content
    if after.version != before.version + 1 or before.version != decided:
        return False
    new = after.content
    return new == before.content or new is None or not new.chunks or new.upload in before.pending


def refers_to_what_is_there(records: Collection[UploadRecord], there: Collection[str]) -> bool:
    """Law UR2."""
    return _referred_to(records) <= {*there}


def only_what_is_referred_to_is_left(records: Collection[UploadRecord], there: Collection[str]) -> bool:
    """Law UR3."""
    return _referred_to(records) == {*there}


def is_what_was_inserted(data: bytes, found: bytes | Damaged) -> bool:
    """Law UR4."""
    return isinstance(found, Damaged) or found == data


def _referred_to(records: Collection[UploadRecord]) -> set[str]:
    contents = (record.content for record in records if record.content is not None)
    return {chunk_id(content.upload, number) for content in contents for number in range(content.chunks)}
