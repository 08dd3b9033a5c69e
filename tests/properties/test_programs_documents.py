"""Programs on documents, apart from their scenarios: what they refuse, and the steps that are used alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs
import pytest

from tidegate.counters.counter import Counted, new_counter
from tidegate.counters.increments import increment, sweep
from tidegate.invocations.admission import Call, Control, Place, Purpose, Reservation, Rule, reservation_id
from tidegate.invocations.picker import HeldBack, NotPickedUp, PickedUp, Picker, kept, places_of
from tidegate.invocations.recoverer import item_of
from tidegate.invocations.registration import Answered, NotRegistered, Registered, Registrar
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Outdated, history, viewed
from tidegate.leases.leader import FENCE, Served, fenced, lease_of, new_lease
from tidegate.leases.lease import Lease
from tidegate.model.documents import Document, Field, Put, Value
from tidegate.model.effects import Effect, Program, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import InsertOne
from tidegate.model.reading import needed, one_of
from tidegate.payloads.replacement import Swapped, Unsettled, seen_of
from tidegate.reactive.snapshot import Digest
from tidegate.reactive.task_documents import loaded, stored
from tidegate.reactive.task_records import Ended, RunEnd, TaskRecord, TaskStatus
from tidegate.retries.schedule import Cell, Missed, Schedule
from tidegate.services.members import announce, beat, begin, everybody, leave, member_of, membership_of
from tidegate.services.membership import Member
from tidegate.services.service_runner import gate_of, new_gate
from tidegate.sim.actors import Process
from tidegate.sim.automaton import Returned
from tidegate.sim.report import explore
from tidegate.sim.scenario import Scenario
from tidegate.sim.world import CLOCK, Plain, document, perform, world_with
from tidegate.triggers.conditions import CronContext, StatusContext
from tidegate.triggers.firing import Firing, GivenUp, Held
from tidegate.triggers.firing import Run as TriggerRun
from tidegate.triggers.trigger import Occurrence
from tidegate.triggers.trigger_documents import (
    loaded_cell,
    loaded_occurrence,
    loaded_run,
    stored_cell,
    stored_occurrence,
    stored_run,
)

MEMBERS = "members"


def done(world: Plain, *effects: Effect[object]) -> Plain:
    """The world after the effects, done one after the other."""
    for effect in effects:
        ((after, _),) = perform(effect, world, "a")
        assert isinstance(after, Plain)
        world = after
    return world


def joined() -> Plain:
    return done(world_with({}), announce(MEMBERS, "a"), begin(MEMBERS, "a"))


def test_a_join_that_is_done_again_changes_nothing() -> None:
    """Law MP1: also when time has passed; a record without instants is no member yet."""
    record = joined().read(document(MEMBERS, "a"))
    assert record is not None
    zero = Instant(0)
    assert member_of(record) == Member(id="a", name="a", life=1, runner=None, created=zero, joined=zero, seen=zero)
    later = done(joined().write(CLOCK, Instant(5_000)), announce(MEMBERS, "a"), begin(MEMBERS, "a"))
    assert later.read(document(MEMBERS, "a")) == record
    announced = done(world_with({}), announce(MEMBERS, "a")).read(document(MEMBERS, "a"))
    assert announced is not None
    assert membership_of((announced,), 1).members == ()


def test_who_has_left_is_not_a_member_again() -> None:
    """Law MP2: neither a beat nor another join brings it back."""
    left = done(joined(), leave(MEMBERS, "a"))
    for effect in (beat(MEMBERS, "a"), begin(MEMBERS, "a"), announce(MEMBERS, "a")):
        assert done(left.write(CLOCK, Instant(5_000)), effect).read(document(MEMBERS, "a")) == left.read(
            document(MEMBERS, "a")
        )
    ((_, records),) = perform(everybody(MEMBERS), left, "a")
    assert records == (left.read(document(MEMBERS, "a")),)


def test_a_lease_is_what_its_record_says() -> None:
    """A record at version 0, or none, was never taken."""
    assert lease_of(None) is lease_of(new_lease("x")) is None
    record = Document.of({"_id": "x", "token": 1, "version": 2, "holder": None, "request": "r", "ttl": 9})
    assert lease_of(record) == Lease(1, 2, None, "r", 9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: lease_of(Document.of({"_id": "x", "version": 1})),
        lambda: new_lease(""),
        lambda: fenced("c", "x", 0),
        lambda: member_of(Document.of({"_id": "x", "created": Instant(0)})),
        lambda: announce(MEMBERS, ""),
        lambda: gate_of(Document.of({"_id": "x"})),
        lambda: new_gate(""),
        lambda: places_of(Document.of({"_id": "x"})),
        lambda: item_of(Document.of({"_id": "x", "status": "running", "owner": "a", "version": 1}), set()),
    ],
)
def test_what_is_no_record_is_misuse(wrong: Callable[[], object]) -> None:
    """Each in a message of its own."""
    with pytest.raises(Misuse):
        wrong()


TIME = Instant(0)
TASK = TaskRecord(
    id="r",
    version=2,
    status=TaskStatus.FAILED,
    snapshot=Digest("0" * 64),
    next_run_at=None,
    due_at=TIME,
    changed_at=TIME,
    waiting_since=None,
    created_at=TIME,
    history=(RunEnd(1, Ended.FAILED, TIME, 5, "no"),),
    last_success=RunEnd(1, Ended.SUCCEEDED, TIME, 5),
)
CRON = Occurrence("c", CronContext(Schedule("* * * * *", Missed.EACH, 5), TIME), TIME)
STATUS = Occurrence("c", StatusContext("t", "i", 3, "failed"), TIME)
MOVED = {
    "_id": "x",
    "status": "running",
    "owner": "a",
    "version": 1,
    "changed_at": TIME,
    "history": ({"version": 1, "request": "r", "status": "running"},),
}

READ: Mapping[str, tuple[Callable[[Document], object], Document]] = {
    "places": (places_of, Document.of({"_id": "p", "version": 1, "places": ({"invocation": "x", "version": 1},)})),
    "gate": (gate_of, Document.of({"_id": "x", "token": 1, "run": "r", "runner": "a", "started": TIME})),
    "lease": (
        lease_of,
        Document.of({"_id": "x", "token": 1, "version": 2, "holder": "a", "request": "r", "ttl": 9, "stamp": TIME}),
    ),
    "member": (
        member_of,
        Document.of(dict.fromkeys(("created", "joined", "seen"), TIME) | {"_id": "x", "departed": False}),
    ),
    "chunk": (lambda doc: seen_of((doc,)), Document.of({"_id": "0" * 64, "put": "a"})),
    "invocation": (lambda doc: item_of(doc, set()), Document.of(MOVED)),
    "status": (viewed, Document.of(MOVED)),
    "history": (history, Document.of(MOVED)),
    "task": (loaded, stored(TASK, "bill", "x")),
    "cron": (loaded_occurrence, stored_occurrence(CRON)),
    "occurrence": (loaded_occurrence, stored_occurrence(STATUS)),
    "cell": (loaded_cell, stored_cell("c", Cell(TIME, 2, (TIME,)))),
    "held": (loaded_run, stored_run(TriggerRun(Firing("t", (STATUS,)), Held("a", TIME)))),
    "given up": (loaded_run, stored_run(TriggerRun(Firing("t", (STATUS,)), GivenUp(("no",), TIME)))),
}
WRONG: tuple[Value, ...] = (None, True, -7, 1.5, "", "no", b"", (7,), ("no",), (Document(),), Document())


def spoiled(value: Value) -> Iterator[Value]:
    """The value with one thing wrong: it, a field of it that is not there, or a part."""
    yield from WRONG
    if isinstance(value, Document):
        for name, part in value.items:
            yield value.without(Field[object](name))
            yield from (value.put(Field[object](name), wrong) for wrong in spoiled(part))
    elif isinstance(value, tuple) and value:
        yield from ((wrong, *value[1:]) for wrong in spoiled(value[0]))


@pytest.mark.parametrize("name", READ)
def test_a_record_that_another_has_spoiled_is_read_or_misuse(name: str) -> None:
    """Whatever stands in a field, or is missing: no error but tidegate's own comes back, and some of it does."""
    read, good = READ[name]
    _ = read(good)
    refused = 0  # of some that are no documents, too
    for bad in spoiled(good):
        try:
            _ = read(bad)  # type: ignore[arg-type]
        except Misuse:
            refused += 1
    assert refused > len(WRONG)  # which are no records, but for the last


def test_what_a_record_lacks_is_told_with_its_id() -> None:
    """And which names there are, where one is unknown."""
    with pytest.raises(Misuse, match=r"(?s)a record has no 'fence'.*the record 'x'"):
        needed(Document.of({"_id": "x"}), FENCE)
    with pytest.raises(Misuse, match="'lost' is none of pending, processing"):
        one_of(TaskStatus, "lost")


def test_a_fenced_write_under_an_older_epoch_changes_nothing() -> None:
    """Whoever is older replies 0; the same epoch may write again."""
    world = done(world_with({"c": (Document.of({"_id": "x", "fence": 0}),)}), fenced("c", "x", 2))
    replies = [next(perform(fenced("c", "x", epoch), world, "a"))[1] for epoch in (1, 2, 3)]
    assert replies == [0, 1, 1]
    with pytest.raises(Misuse, match="two updates of one field"):
        _ = fenced("c", "x", 1, Put(FENCE, 7))


def one(program: Callable[[], Program[object]], contents: Mapping[str, tuple[Document, ...]]) -> object:
    """Where the program stands in the end, when nothing goes wrong."""
    process = Process("a", lambda _: program())
    scenario = Scenario("one", "one program alone", world_with(contents), (process,))
    assert explore(scenario).ok
    return process.behaviour.nodes[-1].status


def test_an_increment_and_a_sweep_are_functions_too() -> None:
    """What is not there is not counted: an increment says so, a sweep has nothing to do."""
    there = {"c": (new_counter("x"),)}
    assert one(lambda: increment("c", "x", "t"), there) == Returned(Counted())
    assert one(lambda: sweep("c", "x"), there) == one(lambda: sweep("c", "x"), {}) == Returned(None)
    with pytest.raises(Misuse, match="there is no counter 'x'"):
        one(lambda: increment("c", "x", "t"), {})


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


def registered(call: Call, *, status: str, version: int = 1) -> Mapping[str, tuple[Document, ...]]:
    """The store after `y` was registered for the call `t(a=1, b=2)`, and whatever became of it."""
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


BY_A = Rule(Control.KEYS, ("a",))


def test_a_call_is_registered_or_answered_or_differs() -> None:
    """One that is registered for the same answers it, also where it is still to be made; one that has gone on does not.
    Where calls must agree, other arguments are an error. Where the rule is off nothing needs a place.
    """
    call = Call("t", (("a", "1"), ("b", "3")))
    registrar = Registrar(key="x", call=call, rule=BY_A, request="r")
    there = registered(call, status="registered")
    assert one(registrar.run, {}) == Returned(Registered("x"))
    assert one(registrar.run, there) == Returned(Answered("y", ("b",)))
    assert one(registrar.run, registered(call, status="registered", version=0)) == Returned(Answered("y", ("b",)))
    assert one(registrar.run, registered(call, status="pending", version=2)) == Returned(Registered("x"))
    assert one(attrs.evolve(registrar, rule=Rule(Control.DISABLED)).run, there) == Returned(Registered("x"))
    found = one(attrs.evolve(registrar, must_agree=True).run, there)
    assert isinstance(found, Returned)
    assert isinstance(found.value, NotRegistered)
    assert one(attrs.evolve(registrar, attempts=1).run, {**there, "calls": ()}) == Returned(
        NotRegistered("no place after 1 attempts")
    )


def test_a_refusal_of_the_store_is_passed_on() -> None:
    """One that has nothing to do with ids ends the program."""
    program = Registrar(key="x", call=Call("t", ()), rule=BY_A, request="r").run()
    assert isinstance(program.send(None), InsertOne)
    with pytest.raises(Refused, match="not authorised"):
        program.throw(Refused("not authorised"))


def test_places_are_kept_as_they_are() -> None:
    """What is stored of a reservation is the reservation."""
    reservation = Reservation((Place("x", 1), Place("y", 0)))
    assert places_of(Document.of({"_id": "p", "version": 3, "places": kept(reservation)})) == reservation
    assert places_of(None) == Reservation()


def test_outcomes_read_as_sentences() -> None:
    """One line each, for people."""
    was = StatusRecord("running", "a", 3)
    lines = (
        PickedUp(2),
        HeldBack("rerouted"),
        Registered("x"),
        Answered("y"),
        Served(1, is_released=False),
        Swapped(4),
        Unsettled(8),
        Outdated(was, None),
    )
    assert [str(each) for each in lines] == [
        "picked up at version 2",
        "held back: rerouted",
        "registered 'x'",
        "answered by 'y'",
        "served: 1 pieces, perhaps not released",
        "swapped in at version 4",
        "unsettled after 8 attempts",
        "outdated: expected 'running' of 'a' at version 3, actual nothing",
    ]
