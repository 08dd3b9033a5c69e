"""Retention, request by request; the scenario `purging` explores interleavings and faults."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final, cast

import attrs
import pytest
from tests.properties.invocations.test_settling import DROPPED, UNSENT, Store, Way, answered, lost_reply
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.admission import Place, Reservation
from tidegate.invocations.limits.rate_limiting import FREE_AT, LINE_AT, WRITTEN_AT, new_meter
from tidegate.invocations.limits.registration import PLACES_ID
from tidegate.invocations.limits.slot_documents import kept, places_of
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import PAYLOAD, RESULT_PAYLOAD, VERSION, new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.upkeep.pruning import Purged, Purging
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import FOUND_MAX, DeleteMany, FindAll, delete_one
from tidegate.sim.world.world import CLOCK, contents, document, world_with

RECORDS, PLACES, CALLS, PAYLOADS = "invocations", "places", "calls", "payloads"
AGE: Final = 10 * SECOND
NOW: Final = Instant(60 * SECOND)


def ended(key: str, *, ago: int, which: str = status.SUCCESS, **more: Any) -> Document:
    owner = "r" if INVOCATION[which].requires_owner else None
    fields = Document(tuple(more.items()))
    return new_record(key, StatusRecord(which, owner, 3), "made", NOW + -ago, more=fields)


def stored(*records: Document, **others: tuple[Document, ...]) -> Store:
    world = world_with({RECORDS: records, **others})
    return Store(cast("Any", world.write(CLOCK, NOW)))


def purging(**more: Any) -> Purging:
    return attrs.evolve(Purging(success_age=AGE, other_age=2 * AGE, payload_age=AGE), **more)


def purged(store: Store, *ways: Way, until: Instant | None = None, **more: Any) -> Purged:
    store.asked.clear()
    return cast("Purged", store.run(cast("Any", purging(**more).purge(until)), *ways))


def swept(store: Store, *ways: Way) -> Purged:
    store.asked.clear()
    return cast("Purged", store.run(cast("Any", purging().sweep_payloads()), *ways))


def keys(store: Store, collection: str = RECORDS) -> list[str]:
    return sorted(each[ID] for each in contents(store.world, collection))


def test_what_ended_long_ago_goes_and_nothing_else() -> None:
    """Law PG1."""
    store = stored(
        *(ended(f"{which} late", ago=AGE - SECOND, which=which) for which in ("success", "failed", "cancelled")),
        *(ended(f"{which} early", ago=3 * AGE, which=which) for which in ("success", "failed", "cancelled")),
        ended("failed between", ago=AGE + SECOND, which=status.FAILED),
        ended("running", ago=3 * AGE, which=status.RUNNING),
        ended("unheard", ago=3 * AGE, notice=(3,)),
        ended("heard", ago=3 * AGE, notice=()),
    )
    assert purged(store) == Purged(4, is_done=True)
    assert keys(store) == [
        "cancelled late", "failed between", "failed late", "running", "success late", "unheard",
    ]  # fmt: skip
    assert purged(store, success_age=None, other_age=None) == Purged(0, is_done=True)


def test_the_longest_ended_go_first_page_by_page() -> None:
    """Law PG3."""
    store = stored(
        *(ended(f"{ago}", ago=ago * AGE) for ago in range(2, 9)), ended("f", ago=3 * AGE, which=status.FAILED)
    )
    assert purged(store, batch=2, until=NOW) == Purged(3, is_done=False)
    assert keys(store) == ["2", "3", "4", "5", "6"]
    assert purged(store, batch=2, until=NOW + 1) == Purged(5, is_done=True)
    assert [type(each) for each in store.asked].count(DeleteMany) == 3


CALL: Final = Document.of({"_id": "a", PLACES_ID.name: "set"})
HELD: Final = Document.of({"_id": "set", "version": 5, "places": kept(Reservation((Place("a", 0), Place("b", 0))))})


def test_who_goes_is_out_of_its_places_first() -> None:
    """Law PG2: other holders keep their slots; the call document goes, too."""
    store = stored(ended("a", ago=2 * AGE), calls=(CALL,), places=(HELD,))

    assert purged(store) == Purged(1, is_done=True)
    (left,) = contents(store.world, PLACES)
    assert places_of(left) == Reservation((Place("b", 0),))
    assert keys(store, RECORDS) == keys(store, CALLS) == []
    kinds = [type(each).__name__ for each in store.asked if not isinstance(each, FindAll)]
    assert kinds == ["BulkUpdate", "DeleteMany", "DeleteMany"]


def test_where_the_places_have_changed_those_of_the_page_stay_and_the_others_go() -> None:
    """Law PG2: slots never name a removed invocation."""

    def others_were_faster(store: Store, effect: Any) -> object:
        places = document(PLACES, "set")
        store.world = cast("Any", store.world.write(places, Document.of({**dict(HELD.items), "version": 6})))
        return store.do(effect)

    store = stored(ended("a", ago=2 * AGE), ended("free", ago=2 * AGE), calls=(CALL,), places=(HELD,))
    assert purged(store, answered, answered, answered, others_were_faster) == Purged(1, is_done=False)
    assert (keys(store), keys(store, CALLS)) == (["a"], ["a"])
    assert purged(store) == Purged(1, is_done=True)


@pytest.mark.parametrize("way", [DROPPED, UNSENT, lost_reply], ids=["lost", "not sent", "reply lost"])
@pytest.mark.parametrize("at", range(4))
def test_a_pass_without_an_answer_is_gone_on_with_by_the_next_one(way: Way, at: int) -> None:
    """Law PG3."""
    store = stored(ended("a", ago=2 * AGE), calls=(CALL,), places=(HELD,))
    first = purged(store, *(answered,) * at, way)
    assert not first.is_done
    assert purged(store).is_done
    assert laws.purging.nothing_is_left(contents(store.world, RECORDS), contents(store.world, CALLS))


def upload(key: str) -> Document:
    return Document.of({"_id": key, "version": 1})


def test_an_upload_goes_once_nothing_has_referred_to_it_for_long() -> None:
    """Law PG4: removal depends on the mark."""
    uses = (
        ended("a", ago=0, **{PAYLOAD.name: "arguments"}),
        ended("b", ago=0, **{RESULT_PAYLOAD.name: "b@2"}),
        ended("c", ago=0, **{PAYLOAD.name: "again"}),
    )
    store = stored(*uses[:2], payloads=tuple(map(upload, ("arguments", "b@2", "again", "b@1"))))

    def at(seconds: int) -> None:
        store.world = cast("Any", store.world.write(CLOCK, Instant(seconds * SECOND)))

    assert swept(store) == Purged(0, is_done=True)
    at(69)
    assert swept(store) == Purged(0, is_done=True)
    store.world = cast("Any", stored(*uses, payloads=contents(store.world, PAYLOADS)).world)
    at(70)
    assert swept(store) == Purged(1, is_done=True)
    assert keys(store, PAYLOADS) == ["again", "arguments", "b@2"]
    store.do(delete_one(RECORDS, Eq(ID, "c")))
    assert swept(store) == Purged(0, is_done=True)  # its time restarts
    assert laws.purging.no_named_upload_goes(["arguments", "b@2"], keys(store, PAYLOADS))
    assert swept(store, DROPPED) == Purged(0, is_done=False)


def test_who_has_run_is_out_of_the_places_that_it_ran_in() -> None:
    """Law PG5: running holders stay; the next sweep removes an empty set (PG6)."""
    both = kept(Reservation((Place("a", 2), Place("b", 2))))
    sets = tuple(
        Document.of({"_id": key, "version": 5, "places": some}) for key, some in (("one", both[:1]), ("two", both))
    )
    store = stored(
        ended("a", ago=2 * AGE, limited_by="two"), ended("c", ago=2 * AGE, limited_by="none"),
        ended("d", ago=2 * AGE), places=sets,
    )  # fmt: skip
    assert purged(store) == Purged(3, is_done=True)
    assert [places_of(each).places for each in contents(store.world, PLACES)] == [(Place("a", 2),), (Place("b", 2),)]
    store = stored(ended("a", ago=2 * AGE, limited_by="one"), places=sets)
    assert purged(store) == Purged(1, is_done=True)
    assert cleared(store, "places") == Purged(1, is_done=True)
    assert keys(store, PLACES) == ["two"]
    assert laws.purging.no_empty_set_is_left([places_of(each) for each in contents(store.world, PLACES)])


def test_where_the_places_that_it_ran_in_have_changed_it_stays_until_the_next_pass() -> None:
    """Law PG6: no later pass would remove it from the slots."""

    def others_were_faster(store: Store, effect: Any) -> object:
        store.world = cast("Any", store.world.write(document(PLACES, "set"), HELD.put(VERSION, 6)))
        return store.do(effect)

    store = stored(ended("a", ago=2 * AGE, limited_by="set"), ended("free", ago=2 * AGE), places=(HELD,))
    assert purged(store, answered, answered, answered, others_were_faster) == Purged(1, is_done=False)
    assert keys(store) == ["a"]
    assert purged(store) == Purged(1, is_done=True)


def test_places_of_more_sets_than_are_found_at_a_time_are_left() -> None:
    """Law PG6: one page of ended invocations may be of twice as many sets."""
    names = [f"{number:04}" for number in range(FOUND_MAX // 2 + 1)]
    records = [ended(name, ago=2 * AGE, limited_by=f"r{name}") for name in names]
    calls = tuple(Document.of({"_id": name, PLACES_ID.name: f"c{name}"}) for name in names)
    last = Document.of({"_id": f"r{names[-1]}", "version": 1, "places": kept(Reservation((Place(names[-1], 1),)))})
    store = stored(*records, calls=calls, places=(last,))
    assert purged(store) == Purged(len(names), is_done=True)
    assert cleared(store, "places") == Purged(1, is_done=True)


def cleared(store: Store, which: str, *ways: Way, until: Instant | None = None, **more: Any) -> Purged:
    sweeping = purging(**more)
    program = sweeping.sweep_places(until) if which == "places" else sweeping.sweep_meters(until)
    store.asked.clear()
    return cast("Purged", store.run(cast("Any", program), *ways))


def meter(key: str, *, written: int, free: int = 0, line: int = 0) -> Document:
    made = new_meter(key, Instant(written * SECOND))
    return made.put(FREE_AT, Instant(free * SECOND)).put(LINE_AT, Instant(line * SECOND))


def test_a_meter_goes_once_it_says_nothing_and_nobody_has_asked_for_long() -> None:
    """Law PG6: a recent, non-empty or queued meter stays; so does an invalid one."""
    none = Document.of({"_id": "none", WRITTEN_AT.name: Instant(0)})
    meters = (
        none, meter("spent", written=1), meter("spent, too", written=50), meter("late", written=51),
        meter("full", written=2, free=61), meter("awaited", written=3, line=61),
    )  # fmt: skip
    for batch in (1, 2, FOUND_MAX):
        store = stored(meters=meters)
        assert cleared(store, "meters", meter_age=AGE, batch=batch) == Purged(2, is_done=True)
        assert keys(store, "meters") == ["awaited", "full", "late", "none"]
    store = stored(meters=meters)
    assert cleared(store, "meters", meter_age=AGE, batch=2, until=NOW) == Purged(1, is_done=False)
    store = stored(places=tuple(Document.of({"_id": which, "version": 1, "places": ()}) for which in "abc"))
    assert cleared(store, "places", batch=2, until=NOW) == Purged(2, is_done=False)
    assert cleared(store, "places", batch=2, until=NOW) == Purged(1, is_done=True)


@pytest.mark.parametrize(("which", "requests"), [("places", 2), ("meters", 3)])
def test_a_sweep_without_an_answer_is_gone_on_with_by_the_next_one(which: str, requests: int) -> None:
    """Law PG6."""
    for at, way in product(range(requests), (DROPPED, UNSENT, lost_reply)):
        empty = Document.of({"_id": "set", "version": 3, "places": ()})
        store = stored(places=(empty,), meters=(meter("spent", written=0),))
        assert cleared(store, which, *(answered,) * at, way, meter_age=AGE) == Purged(0, is_done=False)
        assert cleared(store, which, meter_age=AGE).is_done
        assert keys(store, which) == []


@pytest.mark.parametrize(
    "make",
    [lambda: purging(success_age=-1), lambda: purging(batch=0), lambda: purging(records="")],
    ids=["age", "batch", "collection"],
)
def test_what_cannot_be_kept_so_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        make()


@OF_DESIGNS
def test_every_fault_strikes_where_it_is_explored() -> None:
    """Laws PG1, PG2 and PG3."""
    report = report_on("purging")

    assert report.ok
    assert {"late", "lost_reply", "dropped", "crash_before"} <= {*report.faults}
