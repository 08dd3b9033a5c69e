"""Picking an invocation up where nothing races; the rest is explored in the scenario `admission`."""

from __future__ import annotations

import attrs
import pytest
from tests.properties.on_documents import is_read_or_misuse, one

from tidegate.invocations.admission import Call, Control, Place, Reservation, Rule
from tidegate.invocations.picker import HeldBack, NotPickedUp, PickedUp, Picker, kept, places_of
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.sim.automaton import Returned


def test_what_nothing_excludes_needs_no_place() -> None:
    """Where the rule is off the invocation is picked up at once; one that is not there, or not available, is not."""
    free = Picker(key="x", call=Call("t", ()), rule=Rule(Control.DISABLED), runner="a", request="r")
    there = {"_id": "x", "status": "registered", "owner": None, "version": 1, "history": ()}
    assert one(free.run, {"invocations": (Document.of(there),)}) == Returned(PickedUp(2))
    assert one(free.run, {}) == Returned(NotPickedUp("there is no such invocation"))
    running = Document.of({**there, "status": "running", "owner": "b"})
    limited = attrs.evolve(free, rule=Rule(Control.TASK))
    found = one(limited.run, {"invocations": (running,)})
    assert isinstance(found, Returned)
    assert isinstance(found.value, NotPickedUp)


def test_places_are_kept_as_they_are() -> None:
    """What is stored of a reservation is the reservation."""
    reservation = Reservation((Place("x", 1), Place("y", 0)))
    assert places_of(Document.of({"_id": "p", "version": 3, "places": kept(reservation)})) == reservation
    assert places_of(None) == Reservation()


def test_what_is_not_a_document_of_places_is_read_or_misuse() -> None:
    """Whatever stands in a field, or is missing."""
    with pytest.raises(Misuse):
        places_of(Document.of({"_id": "x"}))
    held = ({"invocation": "x", "version": 1},)
    assert is_read_or_misuse(places_of, Document.of({"_id": "p", "version": 1, "places": held}))


def test_outcomes_read_as_sentences() -> None:
    """One line each, for people."""
    assert [str(PickedUp(2)), str(HeldBack("rerouted"))] == ["picked up at version 2", "held back: rerouted"]
