"""Laws of `tidegate.invocations.upkeep.pruning`, over records before and after a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.invocations.limits.admission import Purpose, Reservation, is_held
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import NOTICE, STATUS
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document


def what_goes_is_over(before: Document, after: Document | None) -> bool:
    """Law PG1: a removed record had ended, and triggers had read its end.

    Args:
        before: A record.
        after: The record a step later; None if removed.
    """
    return after is not None or (INVOCATION[before[STATUS]].final and not before.get(NOTICE))


def what_is_gone_stays_so(before: Document | None, after: Document | None, *, was_there: bool) -> bool:
    """Law PG2: a removed record is not made again.

    Args:
        before: The record; None if there is none.
        after: The record a step later.
        was_there: Whether there was one before.
    """
    return not was_there or before is not None or after is None


def nothing_is_left(records: Collection[Document], calls: Collection[Document]) -> bool:
    """Law PG3: at rest, nothing is left of the records to remove.

    Args:
        records: Those that ended long enough ago.
        calls: Their calls.
    """
    return not records and not calls


def no_named_upload_goes(named: Collection[str], uploads: Collection[str]) -> bool:
    """Law PG4: each referenced upload exists.

    Args:
        named: The uploads that invocations reference.
        uploads: The existing ones.
    """
    return {*named} <= {*uploads}


def nobody_loses_a_place(
    purpose: Purpose, before: Reservation, after: Reservation, records: Mapping[str, StatusRecord | None]
) -> bool:
    """Law PG5: a held slot stays.

    Args:
        purpose: The purpose of the slots.
        before: Those of a set.
        after: Those a step later.
        records: The records of their holders; None for a missing one.
    """
    lost = (place for place in before.places if place not in after.places)
    return not any(is_held(purpose, place, records.get(place.invocation)) for place in lost)


def no_empty_set_is_left(places: Collection[Reservation]) -> bool:
    """Law PG6: at rest, after a sweep, no slot document is empty.

    Args:
        places: The slots of all documents.
    """
    return all(each.places for each in places)
