"""Laws of `tidegate.invocations.upkeep.pruning`, over records as they were and as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.invocations.limits.admission import Purpose, Reservation, is_held
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import NOTICE, STATUS
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document


def what_goes_is_over(before: Document, after: Document | None) -> bool:
    """Law PG1: what goes had ended, and triggers had heard of it.

    Args:
        before: A record.
        after: The same record a step later; None where it is gone.
    """
    return after is not None or (INVOCATION[before[STATUS]].final and not before.get(NOTICE))


def what_is_gone_stays_so(before: Document | None, after: Document | None, *, was_there: bool) -> bool:
    """Law PG2: what was removed is not made again.

    Args:
        before: The record; None where there is none.
        after: The same a step later.
        was_there: Whether there was one before that.
    """
    return not was_there or before is not None or after is None


def nothing_is_left(records: Collection[Document], calls: Collection[Document]) -> bool:
    """Law PG3: at rest, nothing is left of what was to go.

    Args:
        records: Those of what ended long enough ago.
        calls: Theirs.
    """
    return not records and not calls


def no_named_upload_goes(named: Collection[str], uploads: Collection[str]) -> bool:
    """Law PG4: each upload that an invocation refers to is there.

    Args:
        named: Those that invocations refer to.
        uploads: Those that are there.
    """
    return {*named} <= {*uploads}


def nobody_loses_a_place(
    purpose: Purpose, before: Reservation, after: Reservation, records: Mapping[str, StatusRecord | None]
) -> bool:
    """Law PG5: a place that is held stays.

    Args:
        purpose: What the places are for.
        before: Those of a set.
        after: The same a step later.
        records: Those of who has the places; None for one that is missing.
    """
    lost = (place for place in before.places if place not in after.places)
    return not any(is_held(purpose, place, records.get(place.invocation)) for place in lost)


def no_empty_set_is_left(places: Collection[Reservation]) -> bool:
    """Law PG6: at rest, after a sweep, somebody is in each set that has a document.

    Args:
        places: Those of all documents.
    """
    return all(each.places for each in places)
