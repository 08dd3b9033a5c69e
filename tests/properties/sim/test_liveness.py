"""Livelocks are found; a rest that breaks a law is reported with the waiting processes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from random import Random  # noqa: TID251  seeded

import attrs
import pytest
from tests.length import LIVELOCKS
from tests.properties.plain_search import agree, explored, plain_search
from tests.properties.sim.test_search import random_scenario

from tidegate.model.documents import ID, Document, Eq, Field, OlderThan, Put, PutServerTime
from tidegate.model.effects import Call, Effect, Note, Program, Sleep
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import StoreTime, find_one, find_one_and_update, update_one
from tidegate.model.transactions import CommitTransaction, InTransaction, Transaction
from tidegate.sim.program.automaton import Birth, Crashed, Returned
from tidegate.sim.runs.exploration import EXHAUSTIVE, Exploration
from tidegate.sim.runs.replay import Reproduced, explored_on, replay, replaying
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.runs.sample import Plan, portfolio
from tidegate.sim.scenario import Clock, Law, Scenario, State
from tidegate.sim.search import liveness
from tidegate.sim.search.search import Explored, Search, go_on
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace import Breach
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.packing import Packed
from tidegate.sim.world.world import Outcomes, World, calling, contents, document, perform, world_with
from tidegate.testing import unexpected

OWNER = Field[str]("owner")


def must_lead(search: Search, before: Packed, after: Packed) -> set[str]:
    return {
        stepper.name for stepper in search.steppers for step, to in stepper.steps(before) if to == after and step.must
    }


def is_fair_loop(found: Explored) -> bool:
    """Law LV2."""
    broken = found.broken
    assert broken is not None
    way = broken.path[-1 - broken.loop :]
    movers = [must_lead(found.search, before, after) for before, after in pairwise(way)]
    goes = set(broken.why.removeprefix("goes round for ever: ").partition(";")[0].split(", "))
    return way[0] == way[-1] and all(movers) and goes <= set().union(*movers)


def test_a_livelock_is_found_exactly_where_there_is_one() -> None:
    """Laws LV1 and LV2."""
    found = {True: 0, False: 0}
    for seed in range(LIVELOCKS):
        random = Random(f"live {seed}")
        scenario = attrs.evolve(random_scenario(random), always={}, step={})
        plain = plain_search(scenario)
        if plain.broken:
            continue
        real = explored(scenario)
        laws = plain.livelocked(scenario)
        assert (real.broken is not None) == bool(laws)
        found[bool(laws)] += 1
        if real.broken is not None:
            assert (real.broken.breach, real.broken.law in laws) == (Breach.LIVELOCK, True)
            assert real.broken.loop
            assert is_fair_loop(real)
    assert min(found.values()) > LIVELOCKS // 20


async def polite(me: str, other: str) -> str:
    while True:
        await update_one("locks", Eq(ID, me), Put(OWNER, me))
        theirs = await find_one("locks", Eq(ID, other))
        await update_one("locks", Eq(ID, me), Put(OWNER, ""))
        if theirs is None or theirs[OWNER] == "":
            return "first"


async def waits(me: str, other: str) -> str:
    await find_one_and_update("locks", Eq(ID, me), Put(OWNER, me))
    await Call("lock", (other,))
    return "both"


def until_free(effect: Effect[object], world: World, who: str) -> Outcomes:
    match effect:
        case Call("lock", (str() as name,)):
            held = world.read(document("locks", name))
            if held is not None and held[OWNER] == "":
                yield world, None
        case _:
            yield from perform(effect, world, who)


def scenario(program: Callable[[str, str], object], **changes: object) -> Scenario:
    pairs = (("a", "b"), ("b", "a"))
    locks = tuple(Document.of({"_id": name, "owner": ""}) for name in "ab")
    made: dict[str, object] = {
        "name": "locks",
        "summary": "",
        "world": world_with({"locks": locks}),
        "actors": tuple(Process(me, factory(program, me, other), meaning=until_free) for me, other in pairs),  # type: ignore[arg-type]
        "eventually": {"both are served": lambda state: all(is_served(state, name) for name in "ab")},
        **changes,
    }
    return Scenario(**made)  # type: ignore[arg-type]


def is_served(state: State, name: str) -> bool:
    return isinstance(state.status(name), Returned)


def test_two_that_wait_for_each_other_are_a_deadlock_and_are_named() -> None:
    """Law LV3."""
    report = explore(scenario(waits))
    assert (report.verdict, report.law, report.breach) == (Verdict.VIOLATED, "both are served", Breach.DEADLOCK)
    assert "a, about to" in report.why
    assert "b, about to" in report.why
    assert report.to_json()["violation"] == "deadlock"
    assert report.trace is not None
    assert report.trace.why == report.why
    assert render(report.trace).endswith(f"  <- both are served: broken here; {report.why}\n")


def test_a_deadlock_that_a_random_run_meets_is_named_too() -> None:
    """Law LV3, from the start or from a frontier."""
    alone = explore(scenario(waits), Exploration(runs=200), seeding=Random)
    onward = portfolio(Plan("0", steps_max=100), 200, seeding=Random)
    beyond = explore(scenario(waits), Exploration(depth_max=1), onward=onward)
    for report in (alone, beyond):
        assert (report.law, report.breach) == ("both are served", Breach.DEADLOCK)
        assert report.why.startswith("waits for ever: ")


async def once(me: str, other: str) -> str:  # noqa: ARG001
    await find_one("locks", Eq(ID, me))
    return "done"


def test_a_rest_at_which_nobody_waits_is_not_a_deadlock() -> None:
    report = explore(scenario(once, eventually={"a holds it": lambda state: lock_of(state, "a") == "a"}))
    assert (report.breach, report.why, report.loop) == (Breach.LIVENESS, "", 0)


def lock_of(state: State, name: str) -> str:
    held = state.read(document("locks", name))
    return held[OWNER] if held else ""


async def spins(me: str, other: str) -> str:
    while True:
        theirs = await find_one("locks", Eq(ID, other))
        if theirs is not None and theirs[OWNER] == other:
            return me


def test_two_that_look_for_ever_are_a_livelock_and_its_loop_is_reported() -> None:
    """Law LV1."""
    report = explore(scenario(spins))
    assert (report.verdict, report.law, report.breach) == (Verdict.VIOLATED, "both are served", Breach.LIVELOCK)
    assert (report.why, report.loop) == ("goes round for ever: a, b", 1), "what they look at is the same for ever"
    assert unexpected(report).endswith("; goes round for ever: a, b"), "a test says so, too"
    assert report.trace is not None
    assert len(report.trace.steps) == 1
    assert render(report.trace).endswith("broken here; goes round for ever: a, b, steps 1 to 1 again and again\n")
    assert isinstance(replay(report.trace, scenario(spins)), Reproduced)


@pytest.mark.parametrize("picks", [(True, False), (False, True)])
def test_of_two_livelocks_the_one_that_is_entered_sooner_is_reported(picks: tuple[bool, bool]) -> None:
    async def program() -> None:
        if await Call("pick"):
            for number in range(6):
                await Note("number", number)
        while True:
            await Note("spins", 1)
            await Note("spins", 2)

    process = Process("p", factory(program), Faults(), calling({"pick": picks}))
    never = Scenario(
        name="s", summary="", world=world_with({}), actors=(process,), eventually={"never": lambda _: False}
    )
    trace = explore(never).trace
    assert trace is not None
    assert (len(trace.steps), trace.loop) == (4, 2)


def test_a_cycle_that_can_be_left_is_not_a_livelock() -> None:
    """Two polite processes may cycle but need not: strong fairness is assumed."""
    assert explore(scenario(polite)).verdict is Verdict.COMPLETE


def test_a_cycle_in_which_the_law_holds_is_not_a_livelock() -> None:
    """A deliberate poller is judged by what holds all the way round."""
    free = {"both are free": lambda state: lock_of(state, "a") == lock_of(state, "b") == ""}
    assert explore(scenario(spins, eventually=free)).breach is Breach.NONE


def test_faults_do_not_come_to_the_rescue() -> None:
    """A crash would end the cycle, but need not happen."""
    crashes = Faults.of(Fault.CRASH_BEFORE)
    pairs = (("a", "b"), ("b", "a"))
    actors = tuple(Process(me, factory(spins, me, other), crashes) for me, other in pairs)
    over = {"all is over": lambda state: all(isinstance(state.status(name), (Returned, Crashed)) for name in "ab")}
    report = explore(scenario(spins, actors=actors, budget=2, eventually=over))
    assert (report.breach, report.faults[Fault.CRASH_BEFORE] > 0) == (Breach.LIVELOCK, True)


async def polls(me: str, other: str) -> str:
    while True:
        theirs = await find_one("locks", Eq(ID, other))
        if theirs is not None and theirs[OWNER] == other:
            return me
        await Sleep(SECOND)


@pytest.mark.parametrize(
    "clock", [Clock(SECOND, horizon=2 * SECOND), Clock(SECOND, moves=3)], ids=["relative", "absolute"]
)
def test_time_goes_on_in_a_livelock_and_time_cut_short_is_none(clock: Clock) -> None:
    """In relative time the cycle includes the clock; in absolute time its last move ends it."""
    report = explore(scenario(polls, clock=clock))
    if clock.moves:
        assert (report.verdict, report.breach) == (Verdict.INCONCLUSIVE, Breach.NONE)
    else:
        assert (report.breach, report.why) == (Breach.LIVELOCK, "goes round for ever: a, b, clock")


async def waits_until_it_is_stale() -> None:
    while await find_one("c", OlderThan(Field[Instant]("at"), 60 * SECOND)) is None:
        pass


async def waits_for_half_past() -> None:
    while (await StoreTime()).at // (10 * SECOND) % 60 != 30:
        pass


async def writes_the_time_for_ever() -> None:
    while await find_one("c", Eq(ID, "x")) is not None:
        await update_one("c", Eq(ID, "x"), PutServerTime(Field[Instant]("at")))


def waiting_for(program: Birth, moves: int) -> Scenario:
    return Scenario(
        name="stale",
        summary="",
        world=world_with({"c": (Document.of({"_id": "x", "at": Instant(0)}),)}),
        actors=(Process("p", program),),
        clock=Clock(10 * SECOND, moves=moves),
        eventually={"it ends": lambda state: isinstance(state.status("p"), Returned)},
    )


@pytest.mark.parametrize(
    ("program", "moves", "cut_short", "resting"),
    [(waits_until_it_is_stale, 4, 1, 0), (waits_until_it_is_stale, 8, 0, 1), (waits_for_half_past, 3, 1, 0)],
)
def test_what_more_time_would_end_is_no_livelock(
    program: Callable[[], Program[None]], moves: int, cut_short: int, resting: int
) -> None:
    found = agree(waiting_for(factory(program), moves))
    assert (found.broken, found.cut_short, found.resting) == (None, cut_short, resting)


@pytest.mark.parametrize("moves", [1, 4])
def test_a_cycle_that_writes_the_time_is_a_livelock(moves: int) -> None:
    found = agree(waiting_for(factory(writes_the_time_for_ever), moves))
    assert found.broken is not None
    assert found.broken.breach is Breach.LIVELOCK


@pytest.mark.parametrize("may_end", [True, False])
def test_a_cycle_that_is_not_entered_later_is_misjudged(may_end: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: one answer for all cycles."""
    monkeypatch.setattr(sys.modules["tidegate.sim.search.search"], "may_end_later", lambda *_: may_end)
    with pytest.raises(AssertionError):
        agree(waiting_for(factory(writes_the_time_for_ever if may_end else waits_until_it_is_stale), 4))


BUGS: dict[str, tuple[str, Callable[..., object]]] = {
    "nobody looks for what never rests": ("restless", lambda *_: []),
    "what can be left is taken for a cycle": ("cycles", lambda _, among: [among] if among else []),
    "a loop leaves somebody out": ("loop", lambda graph, cycle, start: liveness.loop(graph, cycle, start)[:1]),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, instead = BUGS[bug]
    monkeypatch.setattr(sys.modules["tidegate.sim.search.search"], name, instead)
    with pytest.raises((AssertionError, KeyError)):
        test_a_livelock_is_found_exactly_where_there_is_one()


async def sleeps_and_marks(sleeps: int) -> None:
    for _ in range(sleeps):
        await Sleep(SECOND)
    await update_one("c", Eq(ID, "x"), Put(Field[int]("v"), 1))


async def only_sleeps() -> None:
    while True:
        await Sleep(SECOND)


def marking(program: Birth) -> Scenario:
    return Scenario(
        name="marking",
        summary="",
        world=world_with({"c": (Document.of({"_id": "x", "v": 0}),)}),
        actors=(Process("p", program),),
        always={"unmarked": lambda state: contents(state, "c")[0].held(Field("v")) == 0},
    )


@pytest.mark.parametrize("sleeps", [1, 101, 1_000])
def test_what_comes_after_many_sleeps_is_explored(sleeps: int) -> None:
    """No clock measures them, so they are no steps."""
    assert explore(marking(factory(sleeps_and_marks, sleeps))).law == "unmarked"


def test_more_sleeps_than_are_followed_make_a_verdict_inconclusive() -> None:
    """The rest is unknown; a program that only sleeps stays asleep."""
    report = explore(marking(factory(sleeps_and_marks, 1_001)))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "p: more than 1,000 sleeps in a row" in report.reason
    assert "sleeps_and_marks" in report.reason
    assert explore(marking(factory(only_sleeps))).verdict is Verdict.COMPLETE


async def writes() -> str:
    await update_one("locks", Eq(ID, "a"), Put(OWNER, "me"))
    return "done"


@pytest.mark.parametrize("how", [EXHAUSTIVE, Exploration(runs=50, seed="1")], ids=["whole", "random runs"])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CANCELLED])
def test_a_law_about_rest_that_a_dead_process_breaks_says_what_a_restart_means(fault: Fault, how: Exploration) -> None:
    def told(*faults: Fault, law: Law, comes_back: bool = False) -> str:
        actors = (
            Process("p", factory(writes), Faults.of(*faults), comes_back=comes_back),
            Process("q", factory(writes)),
        )
        report = explore(
            scenario(polite, actors=actors, budget=2, eventually={"all is well": law}), how, seeding=Random
        )
        assert report.trace is None or report.trace.why == report.why
        return report.why

    def is_done(state: State) -> bool:
        return isinstance(state.status("p"), Returned)

    dead = re.fullmatch(
        rf"p {'died' if fault is Fault.CRASH_BEFORE else 'was cancelled'} at step (\d) and never restarted: Fault.RESTART allows a "
        r"restart and does not promise one; if a supervisor restarts it, write Process\(..., comes_back=True\) in place of the fault",
        told(fault, Fault.RESTART, law=is_done),
    )
    assert dead is not None
    assert how.runs or dead[1] == "1"
    assert told(fault, law=is_done).endswith(
        "nothing restarts it; if a supervisor restarts it, write Process(..., comes_back=True)"
    )
    assert told(fault, law=is_done, comes_back=True) == ""  # no law is broken
    assert told(Fault.RESTART, law=lambda _: False) == ""  # it is alive


@pytest.mark.parametrize("comes_back", [False, True])
def test_an_open_transaction_that_nobody_ends_is_named(*, comes_back: bool) -> None:
    """A restart of its owner would not end it, so none is advised."""

    async def dies(life: int) -> None:
        if not life:
            await InTransaction(Transaction("t", 1), update_one("locks", Eq(ID, "a"), Put(OWNER, "me")), begins=True)
            await CommitTransaction(Transaction("t", 1))

    one = Process("p", dies, Faults.of(Fault.CRASH_BEFORE), comes_back=comes_back)
    other = Process("q", factory(writes))

    def is_done(state: State) -> bool:
        return isinstance(state.status("q"), Returned)

    stuck = scenario(polite, actors=(one, other), eventually={"q is done": is_done})
    assert explore(stuck).why.endswith(
        "; an open transaction of p holds what it has written, and nobody ends it: let an Expiry((p, ...)) be among the actors"
    )
    assert explore(attrs.evolve(stuck, actors=(one, other, Expiry((one, other))))).verdict is Verdict.COMPLETE


def test_who_has_died_in_a_replay_is_named_by_the_step_of_the_whole_run() -> None:
    one = scenario(
        polite,
        actors=(Process("p", factory(writes), Faults.of(Fault.CRASH_BEFORE)),),
        eventually={"it is done": lambda state: isinstance(state.status("p"), Returned)},
    )
    trace = explore(one).trace
    assert trace is not None
    for steps in (trace.steps, trace.steps[:-1]):
        part = attrs.evolve(trace, steps=steps)
        found = replaying(part, one, lambda search, part=part: explored_on(part, search, 100, go_on))  # type: ignore[misc]
        assert found.trace is not None
        assert found.trace.why.startswith("p died at step 1 ")


def test_a_livelock_beside_a_dead_process_says_what_a_restart_means() -> None:
    async def looks() -> None:
        while (found := await find_one("locks", Eq(ID, "a"))) is None or found[OWNER] == "":
            pass

    actors = (Process("p", factory(writes), Faults.of(Fault.CRASH_BEFORE, Fault.RESTART)), Process("q", factory(looks)))
    law = {"q is done": lambda state: isinstance(state.status("q"), Returned)}
    report = explore(scenario(polite, actors=actors, budget=2, eventually=law))
    assert report.breach is Breach.LIVELOCK
    assert report.why.startswith("goes round for ever: q; p died at step 1 and never restarted: Fault.RESTART allows")
