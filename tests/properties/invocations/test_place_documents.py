from __future__ import annotations

import pytest
from tests.properties.on_documents import is_read_or_misuse

from tidegate.invocations.limits.admission import Place, Reservation
from tidegate.invocations.limits.slot_documents import kept, places_of
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse


def test_places_are_kept_as_they_are() -> None:
    reservation = Reservation((Place("x", 1), Place("y", 0)))
    assert places_of(Document.of({"_id": "p", "version": 3, "places": kept(reservation)})) == reservation
    assert places_of(None) == Reservation()


def test_what_is_not_a_document_of_places_is_read_or_misuse() -> None:
    with pytest.raises(Misuse):
        places_of(Document.of({"_id": "x"}))
    held = ({"invocation": "x", "version": 1},)
    assert is_read_or_misuse(places_of, Document.of({"_id": "p", "version": 1, "places": held}))
