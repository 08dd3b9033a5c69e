"""Slots for many invocations; `taking.limited` and `taking.waking` explore the interleavings."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
from tests.properties.on_documents import run

from tidegate.invocations.limits.admission import Place, Reservation
from tidegate.invocations.limits.slot_documents import kept
from tidegate.invocations.limits.slots import LONGEST, Freed, Placed, Placing, Wish, wake
from tidegate.invocations.record.invocation import RUNNING, SUCCESS
from tidegate.invocations.record.jobs import Job, new_invocation
from tidegate.invocations.record.record_documents import DUE, STATUS, VERSION, WAITS
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import ID, Document
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import FindAll, InsertMany
from tidegate.sim.world.world import CLOCK, World, contents, document, world_with

NOW: Final = Instant(1_000 * SECOND)
FIRST: Final = StatusRecord("registered", None, 1)


def sleeping(key: str, limited_by: str, since: int, priority: int = 0) -> Document:
    job = Job(task="send", limited_by=limited_by, priority=priority)
    made = new_invocation(key, job, "made", Instant(0), NOW + MINUTE)
    return made.put(WAITS, Instant(since * SECOND))


def store(*records: Document) -> World:
    return world_with({"invocations": records, "places": ()}).write(CLOCK, NOW)


def woken(world: World, freed: Freed) -> set[str]:
    _, after = run(wake("invocations", freed), world)
    was = {doc[ID]: doc[WAITS] for doc in contents(world, "invocations")}
    return {doc[ID] for doc in contents(after, "invocations") if not doc.has(WAITS) and doc[DUE] == was[doc[ID]]}


def test_as_many_are_woken_as_places_are_free() -> None:
    some = (
        sleeping("a", "x", 3), sleeping("b", "x", 1), sleeping("c", "x", 2), sleeping("urgent", "x", 9, priority=1),
        sleeping("d", "y", 1), sleeping("e", "z", 1),
    )  # fmt: skip
    world = store(*some)

    assert woken(world, (("x", 2), ("y", 5))) == {"urgent", "b", "d"}
    assert woken(world, ()) == woken(world, (("nobody", 1),)) == set()


def test_where_more_wait_than_one_look_finds_the_sets_behind_are_woken_too() -> None:
    many = tuple(sleeping(f"{name}{at}", name, at) for name in "xyz" for at in range(30))

    assert woken(store(*many), (("x", 1), ("y", 1), ("z", 1))) == {"x0", "y0", "z0"}


def test_where_a_look_ends_within_a_set_the_rest_of_it_is_woken_too() -> None:
    """Law PL3."""
    many = tuple(sleeping(f"{name}{at}", name, at) for name, number in (("x", 20), ("y", 8)) for at in range(number))

    assert woken(store(*many), (("x", 1), ("y", 5))) == {"x0", "y0", "y1", "y2", "y3", "y4"}
    assert woken(store(*many), (("x", 1), ("y", 9))) == {"x0", *(f"y{at}" for at in range(8))}
    assert woken(store(*many), (("x", 30), ("y", 1))) == {*(f"x{at}" for at in range(20)), "y0"}
    longer = tuple(sleeping(f"y{at}", "y", at) for at in range(60))
    assert len(woken(store(*many[:20], *longer), (("x", 1), ("y", 40)))) == 41


@pytest.mark.parametrize(
    ("since", "least", "most"),
    [(None, 5 * SECOND, 8 * SECOND), (900, 100 * SECOND, 150 * SECOND), (0, LONGEST, LONGEST * 3 // 2)],
    ids=["new", "a while", "long"],
)
def test_who_waits_long_is_looked_at_more_rarely(since: int | None, least: int, most: int) -> None:
    """Law PL4: the poll interval grows, and the time of the first wait is kept."""
    began = None if since is None else Instant(since * SECOND)
    job = Job(task="send", limited_by="x")
    world = store(new_invocation("a", job, "made", Instant(0), NOW))
    _, after = run(Placing(wishes=(Wish("a", FIRST, "x", since=began),)).wait(5 * SECOND), world)
    record = after.read(document("invocations", "a"))

    assert record is not None
    assert least <= record[DUE] - NOW <= most
    assert record[WAITS] == (NOW if began is None else began)


def test_who_has_freed_a_place_meanwhile_is_seen() -> None:
    by = (("x", tuple(Place(key, 1) for key in ("runs", "ended", "gone"))), ("y", (Place("runs", 1),)))
    ended = new_invocation("ended", Job(task="send"), "made", Instant(0)).put(STATUS, SUCCESS).put(VERSION, 3)
    runs = new_invocation("runs", Job(task="send"), "made", Instant(0)).put(STATUS, RUNNING).put(VERSION, 2)
    some = tuple(sleeping(f"{name}{at}", name, at) for name in "xy" for at in range(3))
    _, after = run(Placing(wishes=()).look(by), store(ended, runs, *some))

    assert [doc[ID] for doc in contents(after, "invocations") if doc.has(WAITS)] == ["x2", "y0", "y1", "y2"]


def test_who_has_no_place_is_as_it_was() -> None:
    """Law PL2: the next poll finds it."""
    world = store(new_invocation("a", Job(task="send", limited_by="x"), "made", Instant(0), NOW))
    for failure in (NotApplied("away"), Ambiguous("away")):
        placing = Placing(wishes=(Wish("a", FIRST, "x"),))
        for kind in (FindAll, InsertMany):
            found, after = run(placing.place(), world, fails=partial(failing, kind, failure))
            assert (found, contents(after, "invocations")) == (Placed(), contents(world, "invocations"))
            assert contents(after, "places") == ()


def test_who_is_refused_is_refused_once() -> None:
    runs, a, b = (
        new_invocation(key, Job(task="send", limited_by="x"), "made", Instant(0), NOW) for key in ("runs", "a", "b")
    )
    world = store(runs.put(STATUS, RUNNING).put(VERSION, 2), a, b)
    full = Document.of({"_id": "x", "version": 1, "places": kept(Reservation((Place("runs", 1),)))})
    away = [Ambiguous("no reply")]
    placing = Placing(wishes=(Wish("a", FIRST, "x"), Wish("b", FIRST, "y")))

    def once(effect: Effect[object]) -> Failure | None:
        return away.pop() if away and isinstance(effect, InsertMany) else None

    placed, _ = run(placing.place(), world.write(document("places", "x"), full), fails=once)
    assert not away
    assert placed == Placed(has=("b",), refused=("a",), by=(("x", (Place("runs", 1),)),))


def test_an_old_wish_leaves_the_later_place_of_its_invocation() -> None:
    """Law AD8: another runner that found it since is about to begin with that slot."""
    record = new_invocation("a", Job(task="send", limited_by="x"), "made", Instant(0), NOW).put(VERSION, 3)
    _, world = run(Placing(wishes=(Wish("a", StatusRecord("retry", None, 3), "x"),)).place(), store(record))

    assert run(Placing(wishes=(Wish("a", FIRST, "x"),)).place(), world) == (Placed(), world)


def failing(kind: type[Effect[object]], failure: Failure, effect: Effect[object]) -> Failure | None:
    return failure if isinstance(effect, kind) else None


def test_who_wants_nothing_asks_for_nothing() -> None:
    world = store()
    assert run(Placing(wishes=()).place(), world) == (Placed(), world)
    assert run(Placing(wishes=()).wait(SECOND), world) == run(Placing(wishes=()).look(()), world) == (None, world)


def test_a_wish_is_of_an_invocation_and_of_a_set() -> None:
    for wrong in (("", FIRST, "x"), ("a", FIRST, ""), ("a", FIRST, "x", 0)):
        with pytest.raises(Misuse):
            Wish(*wrong)
