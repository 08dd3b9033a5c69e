"""For each fault there is a tiny world where only that fault breaks a law.

Processes allow every fault everywhere, with a budget of one, or two if the fault needs an earlier
one. Without the fault the world is clean and completely explored; with it the law breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs
import pytest

from tidegate.model.documents import ID, Add, Document, Eq, Exists, Field, OlderThan, Put, PutServerTime
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Note,
    Now,
    Program,
    Refused,
)
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import find_all, find_one, find_one_and_update, insert_one, update_many, update_one
from tidegate.model.reducer import Step
from tidegate.model.transactions import CommitTransaction, InTransaction, Transaction
from tidegate.reactive.planning.change_stream import Broken, From, Read
from tidegate.sim.program.automaton import Asking, Cancelled, Crashed, Failed, Returned
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Actor, Scenario, State, StepLaw
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.failover import Failover, recalling
from tidegate.sim.servers.reducers import Machine, ReducerProcess
from tidegate.sim.servers.streams import HISTORY_LOST, Forgetful, Stream
from tidegate.sim.world.cells import EARLIER
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import (
    UNCONFIRMED,
    Meaning,
    Outcomes,
    World,
    calling,
    document,
    inbox,
    notes,
    perform,
    world_with,
)

N = Field[int]("n")
AT = Field[Instant]("at")
ROW = Eq(ID, "x")
ADD = find_one_and_update("rows", ROW, Add(N, 1))
EVERY = Faults.of(*Fault)
HOST = Host(skew=10 * SECOND, jump=SECOND, stall=60 * SECOND)
BEGUN = Document.of({"_id": "x", "n": 0, "at": Instant(0)})
WORK = calling({"work": ("done",)})
STREAM = Stream("s", ("rows",))

Is = Callable[[State], bool]


def tiny(
    *births: Callable[[int], Program[object]],
    never: Is = lambda _: False,
    never_at_rest: Is = lambda _: False,
    never_between: Callable[[State, State], bool] = lambda *_: False,
    meaning: Meaning = perform,
    others: tuple[Actor, ...] = (),
    after: Fault | None = None,
) -> Scenario:
    """`after` is a fault that must come before the tested one."""
    processes = (Process(f"p{number}", birth, EVERY, meaning, HOST) for number, birth in enumerate(births))

    def between(before: State, then: State) -> bool:
        return not never_between(before, then)

    step: StepLaw = between
    return Scenario(
        name="tiny",
        summary="",
        world=STREAM.begun(world_with({"rows": (BEGUN,)}), epoch=1),
        actors=(*processes, Network(meaning), *others),
        budget=2 if after else 1,
        budgets=dict.fromkeys(set(Fault) - {after}, 1),
        always={"never": lambda state: not never(state)},
        eventually={"never at rest": lambda state: not never_at_rest(state)},
        step={"never between": step},
    )


# --- effects of faults --------------------------------------------------------------------------------------------------


async def adds(_: int) -> object:
    return (await ADD) is not None


async def adds_twice(_: int) -> object:
    return (await adds(0), await adds(0))


async def adds_to_both(_: int) -> object:
    await insert_one("rows", Document.of({"_id": "y", "n": 0}))
    return await update_many("rows", Exists(ID), Add(N, 1))


async def signs(life: int) -> object:
    return await find_one_and_update("rows", ROW, Put(N, life))


async def reads_the_clock(_: int) -> object:
    first = await Now()
    second = await Now()
    return (first.at, second.at)


async def calls(_: int) -> object:
    return await Call("work")


async def reads_its_own(_: int) -> object:
    row = await ADD
    found = await find_one("rows", ROW)
    return (row and row[N], found and found[N])


async def reads_the_stream(_: int) -> object:
    return await Read(1, From(0))


async def holds(_: int) -> None:
    await update_one("rows", ROW, PutServerTime(AT))
    await Note("holds", value=True)
    await find_one("rows", ROW)
    await Note("holds", value=False)


async def takes_over(_: int) -> None:
    found = await find_one("rows", OlderThan(AT, 30 * SECOND))
    await Note("holds", value=found is not None)


def waits(*kinds: Fault) -> ReducerProcess:
    def step(_: str, event: object) -> Step[str, Call]:
        return Step("waiting", (Call("timer"),)) if event == "go" else Step("late")

    return ReducerProcess("r", "new", step, lambda *_: "over", Faults.of(*kinds), is_timer=lambda _: True)


def begun(scenario: Scenario) -> Scenario:
    return attrs.evolve(scenario, world=scenario.world.write(inbox("r"), ("go",)))


# --- visible effects ----------------------------------------------------------------------------------------------------


def count(state: State) -> int:
    row = state.read(document("rows", "x"))
    assert row is not None
    return row[N]


def is_partly_done(state: State) -> bool:
    other = state.read(document("rows", "y"))
    return other is not None and other[N] != count(state) and failed_with(state, Ambiguous)


def failed_with(state: State, kind: type[Failure] = Failure, reason: str = "") -> bool:
    standing = state.status("p0")
    return isinstance(standing, Failed) and isinstance(standing.failure, kind) and reason in standing.failure.reason


def result(state: State) -> Any:
    standing = state.status("p0")
    return standing.value if isinstance(standing, Returned) else None


def crashed_with(number: int) -> Is:
    return lambda state: state.status("p0") == Crashed() and count(state) == number


def refused(reason: str) -> Is:
    return lambda state: failed_with(state, Refused, reason)


def both_hold(state: State) -> bool:
    return all(("holds", True) in state.read(notes(process)) for process in ("p0", "p1"))


def clock_shows(wrong: Callable[[int, int], bool]) -> Is:
    return lambda state: result(state) is not None and wrong(*result(state))


def is_late(state: State) -> bool:
    machine = state.status("r")
    return isinstance(machine, Machine) and machine.state == "late"


ONLY: Mapping[Fault, Scenario] = {
    Fault.CRASH_BEFORE: tiny(adds_twice, never=crashed_with(1)),
    Fault.CRASH_AFTER: tiny(adds, never=crashed_with(1)),
    Fault.RESTART: tiny(signs, never=lambda state: count(state) == 1, after=Fault.CRASH_BEFORE),
    Fault.UNSENT: tiny(adds, never=lambda state: failed_with(state, NotApplied)),
    Fault.DROPPED: tiny(adds, never_at_rest=lambda state: failed_with(state, Ambiguous) and count(state) == 0),
    Fault.LOST_REPLY: tiny(
        adds,
        never_between=lambda before, then: (
            failed_with(then, Ambiguous) and not failed_with(before) and count(then) > count(before)
        ),
    ),
    Fault.LATE: tiny(
        adds, never_between=lambda before, then: failed_with(before, Ambiguous) and count(then) > count(before)
    ),
    Fault.PARTLY_DONE: tiny(adds_to_both, never_at_rest=is_partly_done),
    Fault.DUPLICATE: tiny(adds, never=lambda state: count(state) == 2),
    Fault.NOT_DURABLE: tiny(adds, never=lambda state: failed_with(state, NotDurable)),
    Fault.ROLLED_BACK: tiny(
        adds,
        never_between=lambda before, then: count(then) < count(before),
        others=(Failover(),),
        after=Fault.NOT_DURABLE,
    ),
    Fault.STALL: tiny(holds, takes_over, never=both_hold),
    Fault.CANCELLED: tiny(adds, never=lambda state: state.status("p0") == Cancelled()),
    Fault.CLOCK_FORWARD: tiny(reads_the_clock, never=clock_shows(lambda first, second: second - first == HOST.jump)),
    Fault.CLOCK_BACK: tiny(reads_the_clock, never=clock_shows(lambda first, second: second < first)),
    Fault.SKEW: tiny(reads_the_clock, never=clock_shows(lambda first, _: abs(first) == HOST.skew)),
    Fault.STALE_READ: tiny(reads_its_own, never=lambda state: result(state) == (1, 0), meaning=recalling(perform)),
    Fault.HISTORY_LOST: tiny(
        reads_the_stream,
        adds,
        never=lambda state: result(state) == Broken(HISTORY_LOST),
        meaning=STREAM.meaning(),
        others=(Forgetful(),),
    ),
    Fault.FAILED: tiny(calls, never=refused("user code raised"), meaning=WORK),
    Fault.NEVER_RETURNS: tiny(calls, never_at_rest=lambda state: isinstance(state.status("p0"), Asking), meaning=WORK),
    Fault.SINK_FAILED: tiny(calls, never=refused("the sink refused"), meaning=WORK),
    Fault.DEAD_LETTER_FAILED: tiny(calls, never=refused("dead letters"), meaning=WORK),
    Fault.COMMIT_REFUSED: tiny(calls, never=refused("the group has moved on"), meaning=WORK),
    Fault.GAVE_UP: begun(tiny(others=(waits(Fault.GAVE_UP),), never=is_late)),
}
GROUPS = {Fault.REBALANCE, Fault.EVICTED}
"""`sim.test_group` covers these."""


@pytest.mark.parametrize("kind", ONLY)
def test_each_fault_is_the_only_way_to_break_a_law(kind: Fault) -> None:
    scenario = ONLY[kind]
    without = explore(scenario.choosing(set(Fault) - {kind}))
    assert (without.verdict, without.reason) == (Verdict.COMPLETE, "")
    first = {each for each in (Fault.CRASH_BEFORE, Fault.NOT_DURABLE) if scenario.budget == 2}
    report = explore(scenario.choosing({kind} | first))
    assert report.verdict is Verdict.VIOLATED
    assert report.trace is not None
    assert kind in {step.fault for step in report.trace.steps}


def test_there_is_a_world_for_every_fault() -> None:
    assert {*ONLY, *GROUPS} == set(Fault)


# --- rollbacks of a failover --------------------------------------------------------------------------------------------


async def adds_to(row: str) -> object:
    try:
        await update_one("rows", Eq(ID, row), Add(N, 1))
    except Failure as failure:
        return type(failure)
    return "confirmed"


def failing_over(meaning: Meaning = perform) -> Scenario:
    faults = Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)
    rows = (Document.of({"_id": "x", "n": 0}), Document.of({"_id": "y", "n": 0}))
    writers = (("w1", "x"), ("w2", "x"), ("w3", "y"))
    return Scenario(
        name="failing over",
        summary="",
        world=world_with({"rows": rows}),
        actors=(*(Process(name, factory(adds_to, row), faults, meaning) for name, row in writers), Failover()),
        budget=4,
        always={"what is confirmed stays": stays},
        step={"nothing comes back": lambda before, then: sum_of(then) <= sum_of(before) + 1},
        sometimes={"two writes are taken back at once": lambda state: sum_of(state) == 0 and len(unsure(state)) == 2},
    )


NO_LAWS: dict[str, Any] = {"always": {}, "step": {}, "sometimes": {}}


def value_of(state: State, key: str) -> int:
    row = state.read(document("rows", key))
    return 0 if row is None else row[N]


def sum_of(state: State) -> int:
    return value_of(state, "x") + value_of(state, "y")


def confirmed_of(state: State, row: str) -> int:
    writers = {"x": ("w1", "w2"), "y": ("w3",)}[row]
    return sum(state.status(name) == Returned("confirmed") for name in writers)


def unsure(state: State) -> list[str]:
    return [name for name in ("w1", "w2", "w3") if state.status(name) == Returned(NotDurable)]


def stays(state: State) -> bool:
    rows = {key: state.read(document("rows", key)) for key in "xy"}
    return all(row is not None and row[N] >= confirmed_of(state, key) for key, row in rows.items())


def confirms_nothing(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Planted bug: a majority write leaves earlier ones unconfirmed."""
    for after, reply in perform(effect, world, who):
        yield after.write(UNCONFIRMED, world.read(UNCONFIRMED)), reply


def test_only_the_newest_writes_are_taken_back_and_never_a_confirmed_one() -> None:
    """Laws FO1 and FO2, over all interleavings of three writers."""
    report = explore(failing_over())
    assert report.verdict is Verdict.COMPLETE
    assert report.faults.keys() == {Fault.NOT_DURABLE, Fault.ROLLED_BACK}
    assert explore(failing_over(confirms_nothing)).law == "what is confirmed stays"


async def puts(*numbers: int) -> object:
    try:
        for number in numbers:
            await update_one("rows", Eq(ID, "x"), Put(N, number))
    except NotDurable:
        return NotDurable
    return "confirmed"


def test_a_write_that_changes_nothing_is_not_taken_back() -> None:
    """A server's log has no entry for it; its writer still waits for a majority."""
    writer = Process("w1", factory(puts, 0), Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK))
    report = explore(attrs.evolve(failing_over(), actors=(writer, Failover()), **NO_LAWS))
    assert report.faults.keys() == {Fault.NOT_DURABLE}


async def adds_once_there_is_x() -> object:
    found = await find_one("rows", Eq(ID, "x"))
    return await adds_to("y") if found is not None and found[N] else None


def test_what_is_taken_back_takes_with_it_what_could_not_be_alone() -> None:
    """Law FO2: the later write depends on the earlier one."""
    writers = (
        Process("w1", factory(adds_to, "x"), Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)),
        Process("w2", factory(adds_once_there_is_x), Faults.of(Fault.NOT_DURABLE)),
        Process("w3", factory(looks_up)),
    )
    laws = NO_LAWS | {
        "step": {
            "y goes with x": lambda before, then: sum_of(then) == 0 or value_of(then, "x") >= value_of(before, "x")
        },
        "sometimes": {"both are gone": lambda state: unsure(state) == ["w1", "w2"] and sum_of(state) == 0},
    }
    report = explore(attrs.evolve(failing_over(), actors=(*writers, Failover()), **laws))
    assert (report.verdict, dict(report.goals)) == (Verdict.COMPLETE, {"both are gone": True})


def test_what_the_network_delivers_is_taken_back_with_what_was_before_it() -> None:
    """It confirms nothing, because no process waits for its majority."""
    writers = (
        Process("w1", factory(adds_to, "x"), Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK)),
        Process("w2", factory(adds_to, "x"), Faults.of(Fault.LATE)),
    )
    laws = NO_LAWS | {"step": {"one at most is taken back": lambda before, then: sum_of(then) >= sum_of(before) - 1}}
    report = explore(attrs.evolve(failing_over(), actors=(*writers, Failover(), Network()), **laws))
    assert report.law == "one at most is taken back"


# --- stale reads --------------------------------------------------------------------------------------------------------


async def counts_up() -> None:
    for _ in range(2):
        await update_one("rows", Eq(ID, "x"), Add(N, 1))


async def looks_up() -> int | None:
    found = await find_one("rows", Eq(ID, "x"))
    return None if found is None else found[N]


def behind(meaning: Meaning) -> Scenario:
    stale = Faults.of(Fault.STALE_READ)
    return Scenario(
        name="behind",
        summary="",
        world=world_with({"rows": (Document.of({"_id": "x", "n": 0}),)}),
        actors=(
            Process("writer", factory(counts_up), meaning=meaning),
            Process("reader", factory(looks_up), stale, meaning),
        ),
        budget=1,
        always={"what is read was there": was_there},
        sometimes={
            "an old version is read": lambda state: state.status("reader") == Returned(1) and sum_of(state) == 2
        },
    )


def was_there(state: State) -> bool:
    standing = state.status("reader")
    return not isinstance(standing, Returned) or standing.value in range(sum_of(state) + 1)


def recalling_too_far(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Planted bug: the time before the first version counts as a version."""
    for after, reply in recalling(perform)(effect, world, who):
        none: Any = (((document("rows", "x"), None),),)
        yield (after.write(EARLIER, none) if after.read(EARLIER) else after), reply


def test_a_stale_read_answers_nothing_that_was_never_there() -> None:
    """Law FO3: an old version did exist."""
    report = explore(behind(recalling(perform)))
    assert report.verdict is Verdict.COMPLETE
    assert report.faults.keys() == {Fault.STALE_READ}
    assert explore(behind(recalling_too_far)).law == "what is read was there"


_TX: Final = Transaction("t", 1)


async def writes_in_turn(*writes: tuple[str, int]) -> None:
    for key, number in writes:
        await update_one("rows", Eq(ID, key), Put(N, number))


async def writes_at_once() -> None:
    for key in "xy":
        await InTransaction(_TX, update_one("rows", Eq(ID, key), Put(N, 1)), begins=key == "x")
    await CommitTransaction(_TX)


@pytest.mark.parametrize(
    ("writes", "seen"),
    [
        (partial(writes_in_turn, ("y", 1), ("x", 1), ("x", 2)), {(0, 0), (1, 1), (2, 1)}),
        (partial(writes_in_turn, ("x", 1), ("y", 1)), {(0, 0), (1, 0), (1, 1)}),
        (writes_at_once, {(0, 0), (1, 1)}),
    ],
)
def test_a_stale_find_of_several_shows_the_store_at_one_time(writes: Callable[[], Any], seen: set[object]) -> None:
    """Law FO3: a replica has a prefix of the writes, and a commit is one write."""

    async def writes_and_looks() -> object:
        await writes()
        return tuple(row[N] for row in await find_all("rows", limit=2))

    found = set[object]()

    def sees(state: State) -> bool:
        if isinstance(status := state.status("reader"), Returned):
            found.add(status.value)
        return True

    reader = Process("reader", factory(writes_and_looks), Faults.of(Fault.STALE_READ), recalling(perform))
    world = world_with({"rows": tuple(Document.of({"_id": key, "n": 0}) for key in "xy")})
    explore(attrs.evolve(behind(perform), world=world, actors=(reader,), always={"sees": sees}, sometimes={}))
    assert found == seen


async def puts_one_twice_and_looks() -> object:
    await puts(1, 1)
    return await looks_up()


def test_a_write_that_changes_nothing_leaves_the_version_before_the_last_one() -> None:
    actor = Process("reader", factory(puts_one_twice_and_looks), Faults.of(Fault.STALE_READ), recalling(perform))
    goal: Mapping[str, Is] = {"the first version is read": lambda state: state.status("reader") == Returned(0)}
    assert explore(attrs.evolve(behind(perform), actors=(actor,), sometimes=goal)).goals == {
        "the first version is read": True
    }
