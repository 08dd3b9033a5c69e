"""Fetching, request by request; the scenarios `taking` explore every interleaving and fault."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted
from tests.properties.on_documents import run
from tests.properties.shipped import OF_DESIGNS, report_on

from tidegate.invocations.checks.laws import taking as laws
from tidegate.invocations.limits.rate_limit import Admission, Meter, Rate
from tidegate.invocations.limits.rate_limiting import ADMITTED
from tidegate.invocations.queue import fetching as taking
from tidegate.invocations.queue.fetching import Takeable, Taken, Taker, next_turn
from tidegate.invocations.record.invocation import RUNNING
from tidegate.invocations.record.jobs import Job, new_invocation
from tidegate.invocations.record.record_documents import DUE, LATER, NOTICE, STATUS, TRIES
from tidegate.model.documents import Document, Field
from tidegate.model.effects import Effect, Now
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import BulkUpdate, FindAll, FindOne, InsertMany, InsertOne, StoreTime, UpdateOne
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.world import CLOCK, World, contents, document, perform, world_with

NOW: Final = Instant(100 * SECOND)
TAKER: Final = Taker(runner="r", queues=("default", "mail"), tasks=(Takeable("send"), Takeable("bill")))


def waiting(key: str, due: int = 0, **job: object) -> Document:
    return new_invocation(key, Job(**{"task": "send", **job}), "made", Instant(0), NOW + due * SECOND)  # type: ignore[arg-type]


def store(*records: Document) -> World:
    return world_with({"invocations": records, "places": (), "meters": ()}).write(CLOCK, NOW)


def taken(
    world: World, most: int = 10, factor: int = 1, turn: str | None = None, taker: Taker = TAKER
) -> tuple[Taken, World, list[type[Effect[object]]]]:
    asked: list[type[Effect[object]]] = []

    def means(effect: Effect[object], at: World, who: str) -> object:
        if not isinstance(effect, Now):
            asked.append(type(effect))
        return perform(effect, at, who)

    answer, after = run(taker.take(most, factor, turn), world, means=means)  # type: ignore[arg-type]
    return answer, after, asked


def keys(found: Taken) -> list[str]:
    return [each.key for each in found.runs]


# --- one poll ---------------------------------------------------------------------------------------------------------


def test_what_is_due_is_taken_in_one_find_and_one_bulk() -> None:
    """Law TA6; the record has the status, the owner and the number of tries."""
    found, world, asked = taken(store(*(waiting(f"{number:02}") for number in range(30))), most=20)

    assert asked == [FindAll, BulkUpdate]
    assert keys(found) == [f"{number:02}" for number in range(20)]
    assert (found.lost, found.is_more) == (0, True)
    run = found.runs[0]
    record = world.read(document("invocations", run.key))
    assert record is not None
    assert (record[STATUS], record.has(DUE), record[TRIES]) == (RUNNING, False, 1)
    assert (run.tries, run.job, run.record.owner, run.record.version) == (1, Job(task="send"), "r", 2)


def test_where_it_chooses_among_more_it_reads_what_it_has_taken() -> None:
    """Law TA6: a find with a projection, a bulk, and a find of the fetched ones."""
    found, _, asked = taken(store(*(waiting(f"{number:02}") for number in range(30))), most=5, factor=4)

    assert asked == [FindAll, BulkUpdate, FindAll]
    assert len(found.runs) == 5
    assert all(run.tries == 1 and run.document.has(TRIES) for run in found.runs)
    assert all(run.due == waiting(run.key).get(DUE) is not None for run in found.runs)


def test_who_finds_nothing_is_told_when_the_next_is_due() -> None:
    """Law TA7: of its own queues and tasks alone."""
    later = (
        waiting("a", due=60), waiting("b", due=90), waiting("other", due=1, queue="other"), waiting("new", due=1, task="new"),
    )  # fmt: skip
    found, _, asked = taken(store(*later))

    assert found == Taken(due_in=MINUTE)
    assert asked == [FindAll, FindOne, StoreTime]
    assert taken(store())[0] == Taken()


def test_what_a_runner_does_not_know_stays_for_newer_ones() -> None:
    found, _, _ = taken(
        store(waiting("a", task="new"), waiting("b", queue="other"), waiting("c", due=1), waiting("d", queue="mail"))
    )

    assert keys(found) == ["d"]


def test_what_is_no_record_is_taken_out_of_the_queue() -> None:
    spoiled = waiting("a").put(Field[str](TRIES.name), "often")
    found, world, asked = taken(store(spoiled, waiting("b")))

    assert (keys(found), found.unreadable) == (["b"], ("a",))
    assert asked == [FindAll, UpdateOne, BulkUpdate]
    record = world.read(document("invocations", "a"))
    assert record is not None
    assert not record.has(DUE)


def test_who_gets_no_place_is_due_again_later() -> None:
    """Laws TA5 and TA8: two of a set of three may run, the third runs once a slot is free."""
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send", at_most=2, held_back=SECOND),))
    found, world, asked = taken(store(*(waiting(key, limited_by="set") for key in "abc")), taker=taker)

    assert (keys(found), found.held_back) == (["a", "b"], 1)
    assert [(each[STATUS], each.get(DUE)) for each in contents(world, "invocations")] == [
        (RUNNING, None), (RUNNING, None), ("registered", each_due(world, "c")),
    ]  # fmt: skip
    assert SECOND <= each_due(world, "c") - NOW <= 2 * SECOND
    assert asked == [FindAll, FindAll, InsertMany, BulkUpdate, StoreTime, BulkUpdate, FindAll]


def each_due(world: World, key: str) -> Instant:
    record = world.read(document("invocations", key))
    assert record is not None
    return record[DUE]


def test_places_of_many_sets_are_taken_together() -> None:
    """Law TA8: twenty sets like one, and again with all their slots taken."""
    some = tuple(waiting(f"{number}-{at}", limited_by=f"set-{number}") for number in range(20) for at in range(2))
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send", at_most=2),))
    found, world, asked = taken(store(*some), most=40, taker=taker)
    gone = tuple(each.put(STATUS, "success") for each in contents(world, "invocations"))
    more = tuple(waiting(f"{number}-x", limited_by=f"set-{number}") for number in range(20))
    later = world_with({"invocations": (*gone, *more), "places": contents(world, "places")}).write(CLOCK, NOW)
    again, _, then = taken(later, most=40, taker=taker)

    assert (len(found.runs), asked) == (40, [FindAll, FindAll, InsertMany, BulkUpdate])
    assert (len(again.runs), then) == (20, [FindAll, FindAll, FindAll, BulkUpdate, BulkUpdate])


def test_who_is_over_its_rate_is_due_later_and_nothing_else_of_it_changes() -> None:
    """Law TA9: one of three may begin in a second."""
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send", rate=Rate(1, SECOND)),))
    world = store(*(waiting(key, rated_by="set") for key in "abc"), waiting("d"))
    found, after, asked = taken(world, taker=taker)

    assert (keys(found), found.postponed, found.lost, found.due_in) == (["a", "d"], 2, 0, SECOND)
    before = dict(world.read(document("invocations", "b")).items)  # type: ignore[union-attr]
    then = after.read(document("invocations", "b"))
    assert then is not None
    assert dict(then.items) == {**before, DUE.name: NOW + SECOND, LATER.name: NOW + SECOND}
    assert [(each[STATUS], each.get(DUE)) for each in contents(after, "invocations")] == [
        (RUNNING, None), ("registered", NOW + SECOND), ("registered", NOW + 2 * SECOND), (RUNNING, None),
    ]  # fmt: skip
    assert asked == [FindAll, FindOne, StoreTime, InsertOne, UpdateOne, BulkUpdate, BulkUpdate]


def test_many_who_wait_hold_up_nobody() -> None:
    """Law TA10."""
    taker = Taker(
        runner="r", queues=("default",), tasks=(Takeable("send", held_back=SECOND), Takeable("bill", held_back=None))
    )
    world = store(
        *(waiting(f"send-{at:03}", -9, limited_by="send") for at in range(200)),
        *(waiting(f"bill-{at}", -8, task="bill", limited_by="bill") for at in range(20)),
        *(waiting(f"free-{at}", -7) for at in range(20)),
    )
    first, world, _ = taken(world, most=2, taker=taker)
    assert (keys(first), first.held_back) == (["send-000"], 1)
    second, world, asked = taken(world, most=2, taker=taker)
    assert (keys(second), second.held_back, second.lost, second.is_more) == ([], 198, 0, True)
    assert asked == [FindAll, FindAll, FindAll, FindAll, StoreTime, BulkUpdate, FindAll]
    third, world, _ = taken(world, most=2, taker=taker)
    assert (keys(third), third.held_back) == (["bill-0"], 1)
    fourth, world, _ = taken(world, most=2, taker=taker)
    assert (keys(fourth), fourth.held_back) == ([], 18)
    assert sum(each[STATUS] == "concurrency_controlled_final" for each in contents(world, "invocations")) == 19
    assert keys(taken(world, most=2, taker=taker)[0]) == ["free-0", "free-1"]


def test_who_may_be_more_is_not_put_off_with_those_who_may_not() -> None:
    """Law TA10: the limit is that of the invocation's own task; one that has a slot begins."""
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send"), Takeable("bill", at_most=2)))
    world = store(
        *(waiting(f"send-{at}", -9, limited_by="set") for at in range(5)),
        *(waiting(f"bill-{at}", -8, task="bill", limited_by="set") for at in range(5)),
    )
    _, world, _ = taken(world, most=1, taker=taker)
    second, world, _ = taken(world, most=1, taker=taker)
    third, _, _ = taken(world, most=1, taker=taker)

    assert (second.held_back, keys(third)) == (4, ["bill-0"])


def test_many_who_are_over_their_rate_hold_up_nobody() -> None:
    """Law TA10: they queue behind the examined ones and spend nothing of the rate."""
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send", rate=Rate(1, SECOND)), Takeable("bill")))
    world = store(
        *(waiting(f"send-{at:03}", -9, rated_by="set") for at in range(200)), waiting("free", -8, task="bill")
    )
    first, world, asked = taken(world, most=3, taker=taker)
    assert (keys(first), first.postponed) == (["send-000"], 199)
    assert asked == [
        FindAll, FindOne, StoreTime, InsertOne, UpdateOne, BulkUpdate, BulkUpdate, FindAll, FindOne, StoreTime, UpdateOne, BulkUpdate,
    ]  # fmt: skip
    dues = sorted(each_due(world, f"send-{at:03}") - NOW for at in range(1, 200))
    assert dues == [at * SECOND for at in range(1, 200)]
    meter = world.read(document("meters", "set"))
    assert meter is not None
    assert meter[ADMITTED] == 1
    assert keys(taken(world, most=3, taker=taker)[0]) == ["free"]


def test_what_is_of_many_rates_is_told_apart() -> None:
    metered: list[int] = []

    class AdmitsAll:
        def __init__(self, *, wanted: int, **_: object) -> None:
            self.wanted = wanted

        async def run(self) -> Admission:
            metered.append(self.wanted)
            return Admission(NOW, self.wanted, (), Meter(NOW, NOW))

    tasks = (Takeable("send", rate=Rate(1, SECOND)),)
    taker = variant(Taker, Metering=AdmitsAll)(runner="r", queues=("default",), tasks=tasks)
    found, _, _ = taken(
        store(*(waiting(f"{at:03}", rated_by=f"customer-{at % 3}") for at in range(10))), most=10, taker=taker
    )
    assert (len(found.runs), found.postponed) == (10, 0)
    assert sorted(metered) == [3, 3, 4]


def test_a_run_that_triggers_hear_of_leaves_its_version() -> None:
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send", is_heard=True), Takeable("bill")))
    found, world, _ = taken(store(waiting("a"), waiting("b", task="bill")), taker=taker)

    assert [each.get(NOTICE) for each in contents(world, "invocations")] == [(found.runs[0].record.version,), None]


def test_who_gets_no_place_ends_where_it_is_not_to_wait() -> None:
    """Law TA5, with `held_back=None`."""
    taker = Taker(runner="r", queues=("default",), tasks=(Takeable("send", held_back=None),))
    found, world, _ = taken(store(*(waiting(key, limited_by="set") for key in "ab")), taker=taker)

    assert (keys(found), found.held_back) == (["a"], 1)
    assert [each[STATUS] for each in contents(world, "invocations")] == [RUNNING, "concurrency_controlled_final"]


# --- order and turns --------------------------------------------------------------------------------------------------

DUE_ONES: Final = st.lists(st.tuples(st.integers(-1, 1), st.integers(-3, 0)), min_size=1, max_size=8)


@given(DUE_ONES, st.integers(1, 4))
def test_of_one_tenant_the_more_urgent_is_first(waits: list[tuple[int, int]], most: int) -> None:
    """Law TA3."""
    known = {f"{number:02}": each for number, each in enumerate(waits)}
    found, _, _ = taken(store(*(waiting(key, due, priority=urgent) for key, (urgent, due) in known.items())), most)
    first = keys(found)

    assert laws.is_in_order([known[key] for key in first], [each for key, each in known.items() if key not in first])


@settings(max_examples=8)
@given(st.integers(1, 4), st.integers(2, 4), st.sampled_from((1, 2)), st.booleans())
def test_tenants_take_turns(others: int, most: int, factor: int, with_nobodys: bool) -> None:
    """Law TA4: each tenant has more than it gets in all these fetches."""
    tenants: tuple[str | None, ...] = (*(f"t{number}" for number in range(others)), *([None] if with_nobodys else []))
    world = store(*(waiting(f"{whose}-{number:03}", tenant=whose) for whose in tenants for number in range(most * 12)))
    turn: str | None = None
    turns: list[frozenset[str | None]] = []
    for _ in range(8):
        found, world, _ = taken(world, most, factor, turn)
        turn = found.turn
        turns.append(frozenset(run.job.tenant for run in found.runs))

    assert all(len(each) == 1 for each in turns) or factor > 1
    assert laws.turns_go_round(frozenset(tenants), turns)


test_a_planted_bug_is_found = planted(
    taking,
    bug("what stands first is taken", ("fields=fields, sort=URGENT)", "fields=fields)"), test_of_one_tenant_the_more_urgent_is_first),
    bug("each turn begins with the first tenant", ("turn=next_turn(tenants, limit)", "turn=None"), test_tenants_take_turns),
)  # fmt: skip


def test_the_next_turn_begins_behind_who_had_all_of_this_one() -> None:
    assert next_turn(("c", "c", "c"), 3) == "c"
    assert next_turn(("c", "b", "b"), 3) == "c"
    assert next_turn(("c", "b"), 3) is None
    assert next_turn(("b", None), 2) is None
    assert next_turn((), 3) is None


@pytest.mark.parametrize(
    "wrong",
    [{"queues": ()}, {"tasks": ()}, {"queues": ("a", "a")}, {"runner": ""}],
    ids=["no queue", "no task", "twice", "nobody"],
)
def test_who_takes_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        Taker(**{"runner": "r", "queues": ("default",), "tasks": (Takeable("send"),), **wrong})  # type: ignore[arg-type]


@OF_DESIGNS
@pytest.mark.parametrize("name", ["taking", "taking.spread", "taking.limited", "taking.waking", "taking.crowded"])
def test_it_is_explored_completely(name: str) -> None:
    """Laws TA1, TA2, TA5, PL1 and PL3 with one fault; specimens break each."""
    report = report_on(name)

    assert report.ok
    assert all(report.goals.values())
