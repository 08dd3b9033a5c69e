"""The places of a set of mutually exclusive calls or invocations: one versioned document.

    {_id: "<the set>", version, places: [{invocation, version}, ...]}

Taking a place is a compare-and-set on the version and the places as read. Both are needed: an empty
document is deleted (`tidegate.invocations.upkeep.pruning`), and its successor begins at version 1.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.invocations.limits.admission import Place, Reservation
from tidegate.invocations.record.record_documents import VERSION
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Filter, Put
from tidegate.model.operations import update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_tuple, check_type

PLACES: Final = Field[tuple[Document, ...]]("places")
_INVOCATION_ID: Final = Field[str]("invocation")


@final
@attrs.frozen
class HasPlace:
    """It has a place, taken now or before."""

    def __str__(self) -> str:
        return "has a place"


@final
@attrs.frozen
class LookAgain:
    """No decision: the data was outdated or incomplete. Read again."""

    def __str__(self) -> str:
        return "look again"


def places_of(record: Document | None) -> Reservation:
    """Read the places; none without a document.

    Raises:
        Misuse: It is not a document of places.
    """
    if record is None:
        return Reservation()
    held = needed(record, PLACES)
    check_tuple(held, Document, "a place")
    return Reservation(tuple(Place(needed(each, _INVOCATION_ID), needed(each, VERSION)) for each in held))


def kept(reservation: Reservation) -> tuple[Document, ...]:
    """The stored form.

    Raises:
        Misuse: It is not a reservation.
    """
    check_type(reservation, Reservation, "a reservation")
    return tuple(Document.of({"invocation": each.invocation, "version": each.version}) for each in reservation.places)


def as_read(found: Document) -> Filter:
    """The filter that matches the document only as it was read.

    Raises:
        Misuse: It is not a document of places.
    """
    return AllOf((Eq(ID, needed(found, ID)), Eq(VERSION, needed(found, VERSION)), Eq(PLACES, needed(found, PLACES))))


async def take_places(collection: str, places: str, found: Document | None, wanted: Reservation) -> bool:
    """Write the places if they are still as read; otherwise False."""
    if found is None:
        return await insert_new(collection, Document.of({"_id": places, "version": 1, "places": kept(wanted)}))
    after = needed(found, VERSION) + 1
    return await update_one(collection, as_read(found), Put(VERSION, after), Put(PLACES, kept(wanted))) > 0
