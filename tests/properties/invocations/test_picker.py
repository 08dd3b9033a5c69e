"""Picking up without races; the scenario `admission` explores the rest."""

from __future__ import annotations

import attrs
from tests.properties.on_documents import one

from tidegate.invocations.limits.admission import Call, Control, Rule
from tidegate.invocations.limits.slot_acquisition import HeldBack, NotPickedUp, PickedUp, Picker
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.sim.program.automaton import Returned


def test_what_nothing_excludes_needs_no_place() -> None:
    free = Picker(key="x", call=Call("t", ()), rule=Rule(Control.DISABLED), runner="a", request="r")
    there = {"_id": "x", "status": "registered", "owner": None, "version": 1, "history": ()}
    assert one(free.run, {"invocations": (Document.of(there),)}) == Returned(PickedUp(2))
    assert one(free.run, {}) == Returned(NotPickedUp("there is no such invocation"))
    running = Document.of({**there, "status": "running", "owner": "b"})
    limited = attrs.evolve(free, rule=Rule(Control.TASK))
    found = one(limited.run, {"invocations": (running,)})
    assert isinstance(found, Returned)
    assert isinstance(found.value, NotPickedUp)


def test_what_has_moved_since_it_was_found_is_left_alone() -> None:
    """Its due time may have changed: run 3033 of the orchestrator ran a retry before its time."""
    there = {"_id": "x", "status": "retry", "owner": None, "version": 7, "history": ()}
    found = StatusRecord("retry", None, 4)
    picker = Picker(
        key="x",
        call=Call("t", ()),
        rule=Rule(Control.DISABLED),
        runner="a",
        request="r",
        limited_by="s",
        expected=found,
    )
    records = {"invocations": (Document.of(there),)}
    assert one(picker.run, records) == Returned(NotPickedUp("it has moved since it was found"))
    again = attrs.evolve(picker, expected=StatusRecord("retry", None, 7))
    assert one(again.run, records) == Returned(PickedUp(8))


def test_outcomes_read_as_sentences() -> None:
    assert [str(PickedUp(2)), str(HeldBack("rerouted", 2))] == ["picked up at version 2", "held back: rerouted"]
