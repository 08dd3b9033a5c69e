"""Registration without races; the scenario `registration` explores the rest."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from tests.properties.on_documents import one, run

from tidegate.invocations.limits.admission import Call, Control, Place, Purpose, Reservation, Rule, reservation_id
from tidegate.invocations.limits.registration import NotRegistered, Registered, Registrar, Reused
from tidegate.invocations.limits.slot_documents import kept
from tidegate.invocations.record.record_documents import DUE
from tidegate.model.documents import Document
from tidegate.model.effects import Effect, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import FindOne, InsertOne, StoreTime
from tidegate.sim.program.automaton import Returned
from tidegate.sim.world.world import world_with

BY_A = Rule(Control.KEYS, ("a",))


def registered(call: Call, *, status: str, version: int = 1) -> Mapping[str, tuple[Document, ...]]:
    y = Registrar(key="y", call=Call("t", (("a", "1"), ("b", "2"))), rule=BY_A, request="first")
    places = reservation_id(Purpose.REGISTRATION, BY_A, call)
    record = {"_id": "y", "status": status, "owner": None, "version": version, "history": ()}
    stored = {"_id": "y", "task": "t", "names": ("a", "b"), "values": ("1", "2")}
    held = Document.of({"_id": places, "version": 1, "places": kept(Reservation((Place(y.key, 0),)))})
    return {
        "places": (held,),
        "calls": (Document.of(stored),),
        "invocations": (Document.of(record),) if version else (),
    }


def test_a_call_is_registered_or_answered_or_differs() -> None:
    """Also before its record exists."""
    call = Call("t", (("a", "1"), ("b", "3")))
    registrar = Registrar(key="x", call=call, rule=BY_A, request="r")
    there = registered(call, status="registered")
    assert one(registrar.run, {}) == Returned(Registered("x"))
    assert one(registrar.run, there) == Returned(Reused("y", ("b",)))
    assert one(registrar.run, registered(call, status="registered", version=0)) == Returned(Reused("y", ("b",)))
    assert one(registrar.run, registered(call, status="pending", version=2)) == Returned(Registered("x"))
    assert one(attrs.evolve(registrar, rule=Rule(Control.DISABLED)).run, there) == Returned(Registered("x"))
    found = one(attrs.evolve(registrar, must_agree=True).run, there)
    assert isinstance(found, Returned)
    assert isinstance(found.value, NotRegistered)
    assert found.value.differing == ("b",)
    assert one(attrs.evolve(registrar, attempts=1).run, {**there, "calls": ()}) == Returned(
        NotRegistered("no place after 1 attempts")
    )


def test_who_is_answered_by_another_leaves_nothing_behind() -> None:
    asked: list[Effect[object]] = []

    def noting(effect: Effect[object]) -> None:
        asked.append(effect)

    call = Call("t", (("a", "1"), ("b", "2")))
    registrar = Registrar(key="x", call=call, rule=BY_A, request="r")
    outcome, _ = run(registrar.run(), world_with(registered(call, status="registered")), noting)
    assert outcome == Reused("y")
    assert {type(each) for each in asked} == {FindOne}


def test_a_time_from_now_is_counted_from_the_time_of_the_store() -> None:
    program = Registrar(key="x", call=Call("t", ()), rule=BY_A, request="r", due=5_000).run()
    assert isinstance(program.send(None), StoreTime)
    assert isinstance(program.send(Instant(1_000_000)), FindOne)
    asked = program.send(None)
    assert isinstance(asked, InsertOne)
    assert asked.doc.get(DUE) == Instant(1_005_000)
    with pytest.raises(Misuse, match="a time in microseconds"):
        _ = Registrar(key="x", call=Call("t", ()), rule=BY_A, request="r", due=-1)


def test_a_refusal_of_the_store_is_passed_on() -> None:
    program = Registrar(key="x", call=Call("t", ()), rule=BY_A, request="r").run()
    assert isinstance(program.send(None), FindOne)
    assert isinstance(program.send(None), InsertOne)
    with pytest.raises(Refused, match="not authorised"):
        program.throw(Refused("not authorised"))


def test_outcomes_read_as_sentences() -> None:
    assert [str(Registered("x")), str(Reused("y"))] == ["registered 'x'", "answered by 'y'"]
