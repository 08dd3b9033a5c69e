"""Faults: the caller's reply and the state of the world; budgets, lives, late requests, clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import attrs
import pytest
from tests.properties.plain_search import Found, agree, plain_search

from tidegate.model.documents import (
    ID,
    Add,
    AllOf,
    AnyOf,
    Document,
    Eq,
    Exists,
    Field,
    Not,
    OlderThan,
    Push,
    Put,
    PutServerTime,
)
from tidegate.model.effects import Ambiguous, Call, Effect, Failure, NotApplied, Note, Now, Program, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, PPM, SECOND, Instant
from tidegate.model.operations import (
    BulkUpdate,
    DeleteMany,
    StoreTime,
    UpdateMany,
    UpdateOne,
    bulk_update,
    delete_many,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.sim.program.automaton import Asking, Crashed, Failed, ProgramAutomaton, Returned
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.replay import Reproduced, replay
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Clock, Scenario, State, Trouble
from tidegate.sim.servers.actors import QUIET, Network, Process, Ticks, factory, when_quiet
from tidegate.sim.servers.failover import Failover, recalling
from tidegate.sim.trace.trace import StepKind
from tidegate.sim.world.faults import FAULTS, Fault, Faults, all_effects, no_effects
from tidegate.sim.world.world import (
    CLOCK,
    FLIGHT,
    MOVES,
    Many,
    Meaning,
    Outcomes,
    Plain,
    World,
    calling,
    contents,
    document,
    life,
    notes,
    perform,
    wakes,
    world_with,
)

N = Field[int]("n")
AT = Field[Instant]("at")
LIVES = Field[tuple[int, ...]]("lives")
ROW = Eq(ID, "x")
ADD = find_one_and_update("rows", ROW, Add(N, 1))


def scenario(
    *births: Callable[[int], Program[object]],
    faults: Faults,
    budget: int = 1,
    clock: Clock | None = None,
    meaning: Meaning = perform,
) -> Scenario:
    programs = (Process(f"p{number}", birth, faults, meaning) for number, birth in enumerate(births))
    return Scenario(
        name="faults",
        summary="",
        world=world_with({"rows": (Document.of({"_id": "x", "n": 0, "lives": ()}),)}),
        actors=(*programs, Network(meaning)),
        budget=budget,
        clock=clock,
    )


def checked(scenario: Scenario) -> Found:
    agree(scenario)
    return plain_search(scenario)


def number(world: World) -> int:
    row = world.read(document("rows", "x"))
    assert row is not None
    return row[N]


def ends(found: Found) -> set[tuple[str, int, int]]:
    return {
        (str(here.status("p0")), number(here.world), len(here.read(FLIGHT)))
        for here in found.states.values()
        if not isinstance(here.status("p0"), Asking)
    }


async def adds(_: int) -> object:
    try:
        row = await ADD
    except Failure as failure:
        return str(failure)
    return row[N] if row else None


DONE = ("finished: 1", 1, 0)

TABLE: Mapping[tuple[Fault, ...], set[tuple[str, int, int]]] = {
    (): {DONE},
    (Fault.UNSENT,): {DONE, ('finished: "NotApplied(not sent)"', 0, 0)},
    (Fault.DROPPED,): {DONE, ('finished: "Ambiguous(no reply)"', 0, 0)},
    (Fault.LOST_REPLY,): {DONE, ('finished: "Ambiguous(no reply)"', 1, 0)},
    (Fault.LATE,): {DONE, ('finished: "Ambiguous(no reply)"', 0, 1), ('finished: "Ambiguous(no reply)"', 1, 0)},
    (Fault.CRASH_BEFORE,): {DONE, ("crashed", 0, 0)},
    (Fault.CRASH_AFTER,): {DONE, ("crashed", 1, 0)},
    (Fault.RESTART,): {DONE},
    (Fault.NOT_DURABLE,): {DONE, ('finished: "NotDurable(no majority has confirmed it)"', 1, 0)},
    (Fault.ROLLED_BACK,): {DONE},
    (Fault.DUPLICATE,): {DONE, ("finished: 1", 1, 1), ("finished: 1", 2, 0)},
    (Fault.CANCELLED,): {DONE, ("cancelled", 0, 0), ("cancelled", 1, 0)},
    (Fault.CANCELLED, Fault.LATE): {
        DONE,
        ("cancelled", 0, 0),
        ("cancelled", 1, 0),
        ("cancelled", 0, 1),
        ('finished: "Ambiguous(no reply)"', 0, 1),
        ('finished: "Ambiguous(no reply)"', 1, 0),
    },
    (Fault.STALE_READ, Fault.STALL, Fault.CLOCK_FORWARD, Fault.CLOCK_BACK, Fault.SKEW): {DONE},
    (Fault.HISTORY_LOST, Fault.REBALANCE, Fault.COMMIT_REFUSED, Fault.DEAD_LETTER_FAILED): {DONE},
    (Fault.EVICTED, Fault.GAVE_UP, Fault.FAILED, Fault.SINK_FAILED, Fault.NEVER_RETURNS): {DONE},
}


@pytest.mark.parametrize("kinds", TABLE, ids=lambda kinds: "+".join(kinds) or "none")
def test_each_fault_does_what_the_table_says_and_nothing_else(kinds: tuple[Fault, ...]) -> None:
    faults = Faults.of(*kinds)
    assert ends(checked(scenario(adds, faults=faults))) == TABLE[kinds]
    assert ends(checked(scenario(adds, faults=faults, budget=0))) == {DONE}


async def asks_no_user() -> None:
    await Now()
    await Note("at", 1)
    await Sleep(SECOND)
    await StoreTime()


def test_what_no_code_of_the_users_answers_always_returns() -> None:
    process = Process("p", factory(asks_no_user), Faults.of(Fault.NEVER_RETURNS))
    asking = Scenario(
        name="s", summary="", world=Plain(), actors=(process,), budget=1, clock=Clock(SECOND, moves=1),
        eventually={"it ends": lambda state: state.status("p") == Returned(None)},
    )  # fmt: skip
    assert explore(asking).verdict is Verdict.COMPLETE


@pytest.mark.parametrize("kind", [Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE])
def test_a_fault_strikes_only_what_it_may_strike(kind: Fault) -> None:
    found = checked(scenario(adds, faults=Faults({kind: no_effects})))
    assert ends(found) == {DONE}
    assert found.faults == {}


@pytest.mark.parametrize("budget", [0, 1, 2, 3])
def test_no_more_faults_strike_than_the_budget_has(budget: int) -> None:
    async def adds_three_times(_: int) -> object:
        troubles = 0
        for _again in range(3):
            try:
                await ADD
            except Failure:
                troubles += 1
        return troubles

    found = checked(scenario(adds_three_times, faults=Faults.of(Fault.UNSENT, Fault.DROPPED), budget=budget))
    returned = {here.status("p0") for here in found.states.values() if isinstance(here.status("p0"), Returned)}
    assert returned == {Returned(troubles) for troubles in range(budget + 1)}
    assert {here.read(FAULTS) for here in found.states.values()} == set(range(budget + 1))


def test_each_outcome_of_an_effect_may_lose_its_reply() -> None:
    def either(effect: Effect[object], world: World, who: str) -> Outcomes:
        yield from perform(effect, world, who)
        yield world, None

    found = checked(scenario(adds, faults=Faults.of(Fault.LOST_REPLY), meaning=either))
    assert ends(found) == {
        DONE, ("finished: null", 0, 0), ('finished: "Ambiguous(no reply)"', 0, 0), ('finished: "Ambiguous(no reply)"', 1, 0),
    }  # fmt: skip
    assert found.faults == {Fault.LOST_REPLY: 2}


def test_an_effect_that_must_wait_can_still_be_lost() -> None:
    def never(effect: Effect[object], world: World, who: str) -> Outcomes:
        del effect, world, who
        return iter(())

    every = Faults.of(Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.CRASH_BEFORE)
    found = checked(scenario(adds, faults=every, meaning=never))
    assert found.faults == {Fault.UNSENT: 1, Fault.DROPPED: 1, Fault.CRASH_BEFORE: 1}


async def asks_nobody(_: int) -> object:
    await Note("at", 1)
    await Sleep(SECOND)
    return (await Now()).clock


def test_what_asks_nobody_meets_no_trouble_of_the_network() -> None:
    network = Faults.of(Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, on=all_effects)
    found = checked(scenario(asks_nobody, faults=network, clock=Clock(SECOND, moves=1)))
    assert found.faults == {}


# --- crashes and lives --------------------------------------------------------------------------------------------------


async def signs(life: int) -> object:
    await update_one("rows", ROW, Push(LIVES, life))
    return life


def lives(found: Found) -> set[tuple[int, ...]]:
    rows = (here.read(document("rows", "x")) for here in found.states.values())
    return {row[LIVES] for row in rows if row is not None}


def test_a_restart_is_a_new_life() -> None:
    crashes = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.RESTART)
    found = checked(scenario(signs, faults=Faults.of(*crashes), budget=4))
    assert lives(found) == {(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)}
    assert lives(checked(scenario(signs, faults=Faults.of(*crashes), budget=1))) == {(), (0,)}


DEATHS: Final = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CANCELLED)


def mortal(*names: str, comes_back: bool, budget: int = 2) -> Scenario:
    faults = Faults.of(*DEATHS, *(() if comes_back else (Fault.RESTART,)))
    processes = tuple(Process(name, signs, faults, comes_back=comes_back) for name in names)
    return attrs.evolve(scenario(faults=faults, budget=budget), actors=processes)


def test_who_comes_back_lives_as_often_as_it_dies() -> None:
    back, may = checked(mortal("p0", comes_back=True)), checked(mortal("p0", comes_back=False, budget=4))
    assert lives(back) == {(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)}
    assert lives(back) <= lives(may)
    assert Fault.RESTART not in back.faults
    assert max(here.read(life("p0")) for here in back.states.values()) == 2


def is_done(state: State) -> bool:
    return all(isinstance(state.status(name), Returned) for name in ("p0", "p1"))


@pytest.mark.parametrize("symmetric", [(), (("p0", "p1"),)])
def test_what_comes_in_the_end_comes_where_the_dead_come_back(symmetric: tuple[tuple[str, ...], ...]) -> None:
    """If a restart is only a fault, a run in which the dead stay dead is reported."""
    back, may = (
        attrs.evolve(mortal("p0", "p1", comes_back=each), eventually={"both are done": is_done}, symmetric=symmetric)
        for each in (True, False)
    )
    agree(attrs.evolve(back, symmetric=()))
    assert explore(back).verdict is Verdict.COMPLETE
    assert explore(may).law == "both are done"


def test_a_restart_is_one_also_where_it_must_come() -> None:
    twice = attrs.evolve(
        mortal("p0", comes_back=True), always={"it lives once": lambda state: state.read(life("p0")) == 0}
    )
    trace = explore(twice).trace
    assert trace is not None
    assert [(step.kind, step.fault) for step in trace.steps][-1] == (StepKind.RESTART, "")
    assert isinstance(replay(trace, twice), Reproduced)


def test_a_restart_must_come_or_may_come() -> None:
    with pytest.raises(Misuse, match="comes back, and may be restarted"):
        Process("p", signs, Faults.of(Fault.RESTART), comes_back=True)


async def sleeps_first(_: int) -> object:
    await Sleep(SECOND)
    return "awake"


def test_the_dead_neither_sleep_nor_say_anything() -> None:
    async def notes_and_sleeps(_: int) -> object:
        await Note("at", 1)
        await Sleep(SECOND)
        return None

    every = Faults.of(Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.RESTART)
    found = checked(scenario(notes_and_sleeps, faults=every, budget=2, clock=Clock(SECOND, moves=1)))
    dead = [here for here in found.states.values() if here.status("p0") == Crashed()]
    assert len(dead) > 1
    assert all(here.read(notes("p0")) == () and here.read(wakes("p0")) is None for here in dead)


def test_a_note_dies_with_its_process_also_where_it_stood_before() -> None:
    """Also if it returns to a place where it stood before its first note."""

    async def notes_now_and_then(_: int) -> object:
        while True:
            await find_one("rows", ROW)
            await find_one("rows", Eq(ID, "y"))
            await Note("holds", value=True)

    silent = attrs.evolve(
        scenario(notes_now_and_then, faults=Faults.of(Fault.CRASH_BEFORE)),
        always={"the dead say nothing": lambda state: state.status("p0") != Crashed() or state.read(notes("p0")) == ()},
    )
    first, again = explore(silent), explore(silent)
    assert first.verdict is Verdict.COMPLETE
    assert (first.states, first.transitions) == (again.states, again.transitions)
    agree(silent)


async def refused(_: int) -> object:
    await Call("ask")
    return None


def test_whoever_has_failed_or_finished_moves_no_more() -> None:
    every = Faults.of(*Fault)
    failing = scenario(refused, faults=every, meaning=calling({"ask": (Refused("no"),)}))
    found = checked(failing)
    process = failing.actors[0]
    for here in found.states.values():
        if isinstance(here.status("p0"), Failed):
            assert {step.fault for step in process.steps(here.world)} <= {Fault.CRASH_AFTER}


def test_who_has_failed_may_crash_too_and_start_again() -> None:
    async def signs_and_asks(life: int) -> object:
        await update_one("rows", ROW, Push(LIVES, life))
        await Call("ask")
        return None

    faults = Faults.of(Fault.CRASH_AFTER, Fault.RESTART)
    meaning = calling({"ask": (Refused("no"),)})
    assert (0, 1) in lives(checked(scenario(signs_and_asks, faults=faults, budget=2, meaning=meaning)))


# --- late requests ------------------------------------------------------------------------------------------------------


def test_a_late_request_arrives_at_any_later_point() -> None:
    async def sends_and_goes_on(_: int) -> object:
        try:
            await ADD
        except Ambiguous:
            for name in ("a", "b", "c"):
                await Note(name, 1)
        return None

    found = checked(scenario(sends_and_goes_on, faults=Faults.of(Fault.LATE)))
    seen = Counter(
        (len(here.read(notes("p0"))), number(here.world)) for here in found.states.values() if here.read(FAULTS) == 0
    )
    assert set(seen) == {(said, arrived) for said in range(4) for arrived in range(2)}


async def adds_or_skips(_: int) -> object:
    with suppress(NotApplied):
        await find_one("rows", ROW)
        await find_one("rows", ROW)
    return await update_one("rows", ROW, Add(N, 1))


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_a_crash_under_way_takes_two_faults_wherever_it_is_met_first(budget: int) -> None:
    """A step that takes twice from a budget is not cached under "is any left"."""
    faults = Faults.of(Fault.CRASH_BEFORE, Fault.RESTART, Fault.LATE, Fault.UNSENT)
    checked(scenario(adds_or_skips, faults=faults, budget=budget))
    checked(scenario(adds, adds_or_skips, faults=faults, budget=budget))


@pytest.mark.parametrize("crash", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_late_request_outlives_its_sender(crash: Fault) -> None:
    late = Faults.of(Fault.LATE, crash, Fault.RESTART)
    assert (0, 1) in lives(checked(scenario(signs_anyway, faults=late, budget=3)))
    assert (1, 0) in lives(checked(scenario(signs_anyway, faults=late, budget=3)))


async def signs_anyway(life: int) -> object:
    try:
        return await signs(life)
    except Ambiguous:
        return None


V = Field[object]("n")


@pytest.mark.parametrize("values", [(1, 2), (1, True), (1, 1)], ids=["different", "equal", "the same"])
def test_late_requests_overtake_each_other(values: tuple[object, object]) -> None:
    async def puts_both(_: int) -> object:
        for value in values:
            with suppress(Ambiguous):
                await update_one("rows", ROW, Put(V, value))
        return None

    found = checked(scenario(puts_both, faults=Faults.of(Fault.LATE), budget=2))
    left = [
        row.held(V)
        for here in found.states.values()
        if here.read(FAULTS) == 0 and not here.read(FLIGHT) and (row := here.read(document("rows", "x"))) is not None
    ]
    assert {(type(value), value) for value in left} >= {(type(value), value) for value in values}
    under_way = [here.world for here in found.states.values() if len(here.read(FLIGHT)) == 2]
    assert len(under_way) == 1
    assert len(list(Network().steps(under_way[0]))) == len({(type(value), value) for value in values})


# --- many documents -----------------------------------------------------------------------------------------------------


MANY: Final[tuple[Many, ...]] = (
    update_many("rows", Exists(ID), Add(N, 1)),
    bulk_update(*(update_one("rows", Eq(ID, key), Add(N, 1)) for key in "xyz")),
    delete_many("rows", Exists(ID)),
)


INSERTED: Final = insert_many("rows", *(Document.of({"_id": key, "n": 1}) for key in "xyz"))


def test_an_insert_of_many_may_end_after_any_of_them() -> None:
    made = Scenario(
        name="many",
        summary="",
        world=world_with({}),
        actors=(Process("p0", factory(writes_many, INSERTED), Faults.of(Fault.PARTLY_DONE, Fault.LATE)), Network()),
        budget=1,
    )
    there = {
        "".join(sorted(str(doc[ID]) for doc in contents(here, "rows")))
        for here in checked(made).states.values()
        if isinstance(here.status("p0"), Returned)
    }
    assert there == {"", "x", "y", "z", "xy", "xz", "yz", "xyz"}


async def writes_many(effect: Many | UpdateOne) -> str:
    try:
        return str(await effect)
    except Ambiguous:
        return "?"


def of_many(effect: Many, fault: Fault) -> set[tuple[str, int, str]]:
    rows = tuple(Document.of({"_id": key, "n": 0}) for key in "xyz")
    made = Scenario(
        name="many",
        summary="",
        world=world_with({"rows": rows}),
        actors=(Process("p0", factory(writes_many, effect), Faults.of(fault)), Network()),
        budget=1,
    )
    return {
        (
            str(here.status("p0")).removeprefix("finished: "),
            len(here.read(FLIGHT)),
            "".join(str(doc[ID]) for doc in contents(here, "rows") if doc[N] == 0),
        )
        for here in checked(made).states.values()
        if isinstance(here.status("p0"), Returned)
    }


@pytest.mark.parametrize("effect", MANY, ids=str)
def test_a_write_of_many_may_end_after_any_of_them(effect: Many) -> None:
    some = {"x", "y", "z", "xy", "xz", "yz"}
    assert of_many(effect, Fault.PARTLY_DONE) == {('"3"', 0, ""), *(('"?"', 0, left) for left in some)}


@pytest.mark.parametrize(
    ("count", "partly"),
    [(6, 2**6 - 2), (7, 2**7 - 2), (24, 2**7 - 2), pytest.param(1_200, 2**7 - 2, marks=pytest.mark.long)],
)
def test_of_a_write_of_very_many_the_last_ones_are_done_apart(count: int, partly: int) -> None:
    """All others are written together or not at all; all subsets would be too many."""
    rows = tuple(Document.of({"_id": f"{number:04}", "n": 0}) for number in range(count))
    seen = set[tuple[object, ...]]()

    def sees(state: State) -> bool:
        if state.status("p0") == Returned("?"):
            seen.add(tuple(doc[N] for doc in contents(state, "rows")))
        return True

    def made(size: int) -> Scenario:
        world = world_with({"rows": rows[:size]})
        actors = (Process("p0", factory(writes_many, MANY[0]), Faults.of(Fault.PARTLY_DONE)),)
        return Scenario("many", "", world, actors, budget=1, always={"seen": sees})

    assert explore(made(count), Exploration(depth_max=1)).faults[Fault.PARTLY_DONE] == partly
    assert len(seen) == partly


@pytest.mark.parametrize("effect", MANY, ids=str)
def test_a_late_write_of_many_is_seen_in_parts(effect: Many) -> None:
    late = {*((left, 1) for left in ("xyz", "xy", "xz", "yz", "x", "y", "z")), ("", 0)}
    late |= set() if isinstance(effect, BulkUpdate) else {("", 1)}
    assert of_many(effect, Fault.LATE) == {('"3"', 0, ""), *(('"?"', flying, left) for left, flying in late)}


def test_a_document_that_matches_no_longer_is_left_alone_by_what_arrives_late() -> None:
    made = Scenario(
        name="many",
        summary="",
        world=world_with({"rows": tuple(Document.of({"_id": key, "n": 0}) for key in "xy")}),
        actors=(
            Process("p0", factory(writes_many, update_many("rows", Eq(N, 0), Add(N, 1))), Faults.of(Fault.LATE)),
            Process("p1", factory(writes_many, update_one("rows", Eq(ID, "y"), Put(N, 5)))),
            Network(),
        ),
        budget=1,
    )
    rows = {tuple(doc[N] for doc in contents(here, "rows")) for here in checked(made).states.values()}
    assert rows == {(0, 0), (0, 1), (1, 0), (1, 1), (0, 5), (1, 5)}


async def counts() -> tuple[int, int]:
    found = await find_all("rows", Exists(ID), limit=9)
    return len(found), sum(doc[N] for doc in found)


@pytest.mark.parametrize(
    ("effect", "seen"),
    [
        (MANY[0], {(3, 0), (3, 1), (3, 2), (3, 3)}),
        (MANY[1], {(3, 0), (3, 1), (3, 2), (3, 3)}),
        (MANY[2], {(3, 0), (2, 0), (1, 0), (0, 0)}),
        (insert_many("rows", *(Document.of({"_id": key, "n": 1}) for key in "uvw")), {(3, 0), (4, 1), (5, 2), (6, 3)}),
    ],
    ids=str,
)
def test_others_look_in_between_the_documents_of_a_write(effect: Many, seen: set[tuple[int, int]]) -> None:
    writer = Process("p0", factory(writes_many, effect), Faults.of(Fault.CRASH_BEFORE))
    rows = world_with({"rows": tuple(Document.of({"_id": key, "n": 0}) for key in "xyz")})
    made = Scenario(name="many", summary="", world=rows, actors=(writer, Process("p1", factory(counts))), budget=1)
    ended = {
        (here.status("p0"), looked.value)
        for here in checked(made).states.values()
        if isinstance(looked := here.status("p1"), Returned) and not isinstance(here.status("p0"), Asking)
    }
    ends_with_the_last = not isinstance(effect, (UpdateMany, DeleteMany))
    assert len(seen - {each for status, each in ended if status == Crashed()}) == ends_with_the_last
    assert {each for status, each in ended if status == Returned("3")} == seen


def test_a_write_of_many_meets_what_begins_to_match_meanwhile_or_does_not() -> None:
    """A bulk write is one scan, no snapshot; no document is written twice."""

    async def comes() -> None:
        if await find_one("rows", AllOf((ROW, Eq(N, 1)))):
            await insert_one("rows", Document.of({"_id": "z", "n": 0}))

    made = Scenario(
        name="many",
        summary="",
        world=world_with({"rows": tuple(Document.of({"_id": key, "n": 0}) for key in "xy")}),
        actors=(
            Process("p0", factory(writes_many, update_many("rows", Exists(ID), Add(N, 1)))),
            Process("p1", factory(comes)),
        ),
    )
    ended = {
        (here.status("p0"), tuple(doc[N] for doc in contents(here, "rows")))
        for here in checked(made).states.values()
        if not isinstance(here.status("p0"), Asking) and not isinstance(here.status("p1"), Asking)
    }
    assert ended == {(Returned("2"), (1, 1)), (Returned("2"), (1, 1, 0)), (Returned("3"), (1, 1, 1))}


OPEN: Final = AllOf((Eq(ID, "new"), Eq(N, 1)))


async def upserts(tries: int) -> str:
    for _ in range(tries):
        try:
            await upsert_one("rows", OPEN, Put(AT, None))
        except Ambiguous:
            continue
        except Refused:
            return "refused"
        return "done"
    return "?"


async def inserts() -> str:
    with suppress(Refused):
        await insert_one("rows", Document.of({"_id": "new", "n": 1}))
    return "done"


async def sees_and_upserts() -> str:
    return await upserts(1) if await find_one("rows", OPEN) else "none"


@pytest.mark.parametrize(
    ("process", "other", "said"),
    [
        (Process("p0", factory(upserts, 1)), Process("p1", factory(inserts)), {"done", "refused"}),
        (Process("p0", factory(upserts, 1)), Process("p1", factory(upserts, 1)), {"done", "refused"}),
        (Process("p0", factory(upserts, 2), Faults.of(Fault.LATE)), Network(), {"done", "refused"}),
        (Process("p0", factory(sees_and_upserts)), Process("p1", factory(inserts)), {"none", "done"}),
    ],
    ids=["an insert", "an upsert", "one's own, late", "after it was seen"],
)
def test_an_upsert_that_asks_for_more_than_an_id_looks_and_inserts_later(
    process: Process, other: Process | Network, said: set[str]
) -> None:
    made = Scenario(name="upsert", summary="", world=world_with({"rows": ()}), actors=(process, other), budget=1)
    status = [here.status("p0") for here in checked(made).states.values()]
    assert {each.value for each in status if isinstance(each, Returned)} == said


@pytest.mark.parametrize("faults", [(), (Fault.NOT_DURABLE,)])
def test_who_is_refused_waits_for_a_majority_as_who_is_not(faults: tuple[Fault, ...]) -> None:
    lost = Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)
    made = Scenario(
        name="refused",
        summary="",
        world=world_with({"rows": ()}),
        actors=(
            Process("p0", factory(inserts), lost, raises=True),
            Process("p1", factory(inserts), Faults.of(*faults), raises=True),
            Failover(),
        ),
        budget=3,
    )
    states = checked(made).states.values()
    assert bool(faults) == any(here.status("p1") == Returned("done") and not contents(here, "rows") for here in states)


# --- time ---------------------------------------------------------------------------------------------------------------


def test_the_clock_moves_a_bounded_number_of_times() -> None:
    found = checked(scenario(sleeps_first, faults=Faults(), clock=Clock(SECOND, moves=3)))
    seen = {(here.read(CLOCK).at, here.read(MOVES)) for here in found.states.values()}
    assert seen == {(SECOND * gone, 3 - gone) for gone in range(4)}
    assert list(Ticks(SECOND).steps(Plain())) == []


def test_a_sleep_is_over_when_its_time_has_come_and_never_before() -> None:
    found = checked(
        scenario(
            sleeps_first,
            faults=Faults.of(Fault.CRASH_BEFORE, Fault.RESTART),
            budget=2,
            clock=Clock(SECOND // 2, moves=3),
        )
    )
    awake = [here for here in found.states.values() if isinstance(here.status("p0"), Returned)]
    assert {here.read(CLOCK).at for here in awake} == {SECOND, 3 * SECOND // 2}
    reborn = [here.read(wakes("p0")) for here in found.states.values() if here.read(FAULTS) == 0]
    assert {wake.at for wake in reborn if wake} >= {SECOND, 3 * SECOND // 2, 2 * SECOND}


@pytest.mark.parametrize(
    ("clock", "sleep", "is_seen"),
    [
        (None, Sleep(MINUTE), False),
        (Clock(SECOND, moves=2), Sleep(SECOND - 1), False),
        (Clock(SECOND, moves=2), Sleep(SECOND), True),
        (Clock(SECOND, moves=2), Sleep(2 * SECOND, PPM // 2), True),
        (Clock(SECOND, moves=2), Sleep(2 * SECOND, PPM // 2 + 1), False),
    ],
    ids=str,
)
def test_a_sleep_that_no_clock_can_tell_is_no_step(clock: Clock | None, sleep: Sleep, *, is_seen: bool) -> None:
    """Shorter than a quantum after jitter, or in stopped time: any process may be slow anyway."""

    async def signs_twice(_: int) -> object:
        await update_one("rows", ROW, Push(LIVES, 1))
        await sleep
        await sleep
        await update_one("rows", ROW, Push(LIVES, 2))
        return None

    found = checked(scenario(signs_twice, faults=Faults.of(Fault.CRASH_BEFORE), budget=1, clock=clock))
    asked = {here.status("p0") for here in found.states.values()}
    assert (Asking(sleep) in asked) is is_seen
    assert lives(found) == {(), (1,), (1, 2)}


@pytest.mark.parametrize("last", [(), (Note("done", 1),)], ids=["nothing", "a note"])
@pytest.mark.parametrize("kind", [Fault.CRASH_BEFORE, Fault.CANCELLED])
def test_a_process_may_die_in_a_sleep_that_no_clock_can_tell(kind: Fault, last: tuple[Note, ...]) -> None:
    async def signs_and_sleeps(life: int) -> object:
        await update_one("rows", ROW, Push(LIVES, life))
        for effect in (Sleep(SECOND), Sleep(MINUTE), *last):
            await effect
        return None

    faults = Faults.of(kind, Fault.RESTART, on=lambda effect: effect == Sleep(SECOND))
    found = checked(scenario(signs_and_sleeps, faults=faults, budget=2))
    assert (0, 1) in lives(found)


def test_a_sleep_that_is_jittered_ends_no_sooner_than_it_may() -> None:
    async def sleeps(_: int) -> object:
        await Sleep(2 * SECOND, PPM // 2)
        return None

    found = checked(scenario(sleeps, faults=Faults(), clock=Clock(SECOND, moves=3)))
    awake = [here for here in found.states.values() if isinstance(here.status("p0"), Returned)]
    assert {here.read(CLOCK).at for here in awake} == {SECOND, 2 * SECOND, 3 * SECOND}


OLD = OlderThan(AT, 3 * SECOND)


@pytest.mark.parametrize(
    "effect",
    [
        find_one("rows", OLD),
        find_one_and_update("rows", AllOf((ROW, OLD)), PutServerTime(AT)),
        update_one("rows", AnyOf((Eq(ID, "y"), AllOf((OLD,)))), PutServerTime(AT)),
        delete_one("rows", Not(OLD)),
    ],
    ids=str,
)
def test_an_age_beyond_the_horizon_is_misuse(effect: Effect[object]) -> None:
    """All ages beyond the horizon are equal, so a comparison there would be wrong."""

    async def asks(_: int) -> object:
        await effect
        return None

    stamped = world_with({"rows": (Document.of({"_id": "x", "at": Instant(0)}),)})
    near = attrs.evolve(scenario(asks, faults=Faults(), clock=Clock(SECOND, horizon=2 * SECOND)), world=stamped)
    with pytest.raises(
        Misuse, match=r"p0 compares an age with 3 s, and the horizon is 2 s at .*asks, where it is about"
    ):
        explore(near)
    assert explore(attrs.evolve(near, clock=Clock(SECOND, horizon=3 * SECOND))).verdict is Verdict.COMPLETE


def test_a_program_that_is_the_same_in_every_life() -> None:
    async def program(first: int, *, second: int) -> int:
        return first + second

    automaton = ProgramAutomaton(factory(program, 1, second=2))
    assert automaton.status(automaton.start(0)) == automaton.status(automaton.start(7)) == Returned(3)


def test_trouble_reads_as_it_is() -> None:
    assert str(Trouble("could not be sent")) == "could not be sent"


# --- quiet --------------------------------------------------------------------------------------------------------------


def tidied(faults: Faults = Faults(), *, comes_back: bool = False) -> Scenario:
    async def looks() -> object:
        await QUIET
        row = await find_one("rows", ROW)
        return row[N] if row else None

    working = tuple(
        Process(name, lambda life: adds(life), faults, comes_back=comes_back)  # noqa: PLW0108  a program of its own
        for name in ("p0", "p1")
    )
    looking = Process("looks", factory(looks), meaning=when_quiet(working))
    return attrs.evolve(scenario(faults=faults), actors=(*working, Network(), looking))


def seen_at_the_end(found: Found) -> set[object]:
    return {status.value for here in found.states.values() if isinstance(status := here.status("looks"), Returned)}


@pytest.mark.parametrize(
    ("faults", "comes_back", "seen"),
    [
        (Faults(), False, {2}),
        (Faults.of(Fault.LATE), False, {2}),
        (Faults.of(Fault.CRASH_BEFORE), False, {1, 2}),
        (Faults.of(Fault.CRASH_BEFORE), True, {2}),
        (Faults.of(Fault.CRASH_AFTER), True, {2, 3}),
    ],
)
def test_who_waits_for_quiet_sees_what_everybody_has_done(faults: Faults, comes_back: bool, seen: set[object]) -> None:
    assert seen_at_the_end(checked(tidied(faults, comes_back=comes_back))) == seen


def test_a_network_without_a_meaning_has_that_of_the_processes() -> None:
    late, (one, other) = Faults.of(Fault.LATE), (recalling(perform), recalling(perform))

    def made(*meanings: Meaning, network: Network = Network()) -> Scenario:  # noqa: B008  it is immutable
        processes = [Process(f"p{at}", factory(nothing), late, each) for at, each in enumerate(meanings)]
        return Scenario("s", "", Plain(), (*processes, network))

    for meanings in ((one,), (one, when_quiet((), one))):
        network = made(*meanings).actors[-1]
        assert isinstance(network, Network) and network.meaning is one  # noqa: PT018
    for meanings in ((one, other), (one, perform)):
        with pytest.raises(Misuse, match="by another meaning"):
            made(*meanings)
        assert made(*meanings, network=Network(perform)).actors[-1].meaning is perform  # type: ignore[attr-defined]


async def nothing() -> None:
    pass
