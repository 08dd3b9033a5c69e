from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.plain_search import agree, plain_search

from tidegate.model.documents import ID, Document, Eq, Field, OlderThan, PutServerTime
from tidegate.model.effects import Note, Now, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Instant
from tidegate.model.operations import find_one, find_one_and_update
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import Clock, Scenario, State
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.clocks import DRIFT_MAX, Host, ahead, readings
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import CLOCK, Plain, perform, world_with

AT = Field[Instant]("at")
ROW = Eq(ID, "x")
SETS = Faults.of(Fault.SKEW, Fault.CLOCK_FORWARD, Fault.CLOCK_BACK, Fault.STALL)
INSTANTS = st.integers(-(10**15), 10**15).map(lambda ms: Instant(ms * 1_000))
DURATIONS = st.integers(-MINUTE, MINUTE)


async def looks() -> object:
    first = await Now()
    await Sleep(2 * SECOND)
    return (first.at, (await Now()).at)


def scenario(host: Host, *others: Host, faults: Faults = SETS, budget: int = 0, moves: int = 2) -> Scenario:
    hosts = (host, *others)
    processes = (Process(f"p{number}", factory(looks), faults, host=each) for number, each in enumerate(hosts))
    return Scenario(
        name="clocks",
        summary="",
        world=world_with({}),
        actors=tuple(processes),
        budget=budget,
        clock=Clock(SECOND, moves=moves),
    )


def seen(scenario: Scenario, *names: str) -> set[tuple[Any, ...]]:
    agree(scenario)
    found = plain_search(scenario).states.values()
    ends = [[here.status(name) for name in names or ("p0",)] for here in found]
    return {
        tuple(end.value for end in each if isinstance(end, Returned))
        for each in ends
        if all(isinstance(end, Returned) for end in each)
    }


@given(INSTANTS)
def test_without_faults_and_drift_a_machine_shows_the_time_of_the_store(at: Instant) -> None:
    """Law CL1."""
    world = Plain().write(CLOCK, at)
    ((same, reply),) = perform(Now(), world, "p")
    assert readings(Host("h", skew=SECOND), "h", world)[1] == reply == Instant(at.at, WALL)
    assert same == world


@given(INSTANTS, DURATIONS, st.integers(-DRIFT_MAX, DRIFT_MAX))
def test_a_clock_that_is_ahead_shows_all_later_by_that_much(at: Instant, by: int, drift: int) -> None:
    """Law CL3."""
    world = Plain().write(CLOCK, at)
    host = Host("h", drift=drift)
    _, right = readings(host, "h", world)
    after, moved = readings(host, "h", world.write(ahead("h", "h"), by))
    assert moved - right == by
    assert after.read(CLOCK) == at


@given(st.integers(0, 10**15), st.integers(-DRIFT_MAX, DRIFT_MAX))
def test_a_sleep_takes_as_long_as_it_asks_for_by_the_clock_of_the_sleeper(duration: int, drift: int) -> None:
    """Law CL2, to the microsecond of rounding."""
    lasts = Host(drift=drift).lasts(duration)
    assert abs(lasts + lasts * drift // 1_000_000 - duration) <= 2
    assert Host().lasts(duration) == duration


@pytest.mark.parametrize(
    ("host", "budget", "shown"),
    [
        (Host(), 3, {(0, 2)}),
        (Host(skew=10 * SECOND), 1, {(0, 2), (10, 12), (-10, -8)}),
        (Host(jump=60 * SECOND), 1, {(0, 2), (60, 62), (-60, -58), (0, 62), (0, -58)}),
        (Host(drift=DRIFT_MAX), 0, {(0, 2.2)}),
        (Host(drift=-DRIFT_MAX), 0, {(0, 2.7)}),
    ],
    ids=["right", "skewed", "set", "fast", "slow"],
)
def test_what_a_machine_sees_of_time(host: Host, budget: int, shown: set[tuple[float, float]]) -> None:
    found = {pair for (pair,) in seen(scenario(host, budget=budget, moves=2 + (host.drift < 0)))}
    assert {(first / SECOND, second / SECOND) for first, second in found} == shown


def test_processes_on_one_machine_share_its_clock() -> None:
    skewed = Host("machine", skew=10 * SECOND)
    together = {tuple(first for first, _ in pair) for pair in seen(scenario(skewed, skewed, budget=2), "p0", "p1")}
    apart = Host(skew=10 * SECOND)
    alone = {tuple(first for first, _ in pair) for pair in seen(scenario(apart, apart, budget=2), "p0", "p1")}
    assert all(first == 0 or abs(first - second) < 10 * SECOND for first, second in together)
    assert any(abs(first - second) >= 18 * SECOND for first, second in alone)


def test_two_clocks_of_one_machine_are_refused() -> None:
    """After reading the unskewed one, the skewed one would be wrong."""
    with pytest.raises(
        Misuse, match=r"(?s)two hosts are called 'machine' and differ: .*skew=0.*skew=10000000.*share one clock"
    ):
        scenario(Host("machine"), Host("machine", skew=10 * SECOND), budget=1)
    scenario(Host("machine"), Host("other", skew=10 * SECOND), Host(), Host(drift=1), budget=1)


async def claims() -> object:
    await find_one_and_update("rows", ROW, PutServerTime(AT))
    await Sleep(SECOND)
    is_old = (await find_one("rows", OlderThan(AT, 2 * SECOND))) is not None
    await Note("old", is_old)
    return is_old


@pytest.mark.parametrize("drift", [0, 500, -500])
def test_sleeps_of_machines_that_drift_keep_time_relative(drift: int) -> None:
    row = Document.of({"_id": "x", "at": Instant(0)})
    processes = (Process(name, factory(claims), host=Host(drift=drift)) for name in ("a", "b"))
    report = explore(
        Scenario(
            name="relative",
            summary="",
            world=world_with({"rows": (row,)}),
            actors=tuple(processes),
            clock=Clock(SECOND, horizon=2 * SECOND),
            sometimes={"it is old": lambda state: state.status("a") == Returned(value=True)},
        )
    )
    assert (report.verdict, report.time) == (Verdict.COMPLETE, "relative time, quantum 1 s")


def test_whoever_reads_a_skewed_clock_makes_time_absolute() -> None:
    report = explore(in_relative_time(scenario(Host(skew=SECOND), budget=1)))
    assert report.time.startswith("absolute time, 2 moves of 1 s, for p0 uses an instant as a number, ")


def in_relative_time(scenario: Scenario) -> Scenario:
    return attrs.evolve(scenario, clock=Clock(SECOND, horizon=SECOND, moves=2))


def test_a_stall_is_free_where_time_passes_by_itself() -> None:
    with pytest.raises(Misuse, match="p0 may stall by a fault, and time passes by itself"):
        explore(in_relative_time(scenario(Host(stall=SECOND), budget=1)))


@pytest.mark.parametrize(
    "wrong", [{"skew": -1}, {"jump": -1}, {"stall": 1.5}, {"drift": DRIFT_MAX + 1}, {"drift": -DRIFT_MAX - 1}]
)
def test_a_host_is_checked_where_it_is_made(wrong: dict[str, int]) -> None:
    with pytest.raises(Misuse, match="must be an integer from"):
        Host(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", ["machine", "p1", ""])
def test_a_named_machine_and_a_process_of_that_name_have_two_clocks(machine: str) -> None:
    one = scenario(Host(machine, skew=SECOND), Host(skew=SECOND), faults=Faults.of(Fault.SKEW), budget=2, moves=0)

    def is_apart(state: State) -> bool:
        return (state.read(ahead("p0", machine)) or 0) > 0 > (state.read(ahead("p1")) or 0)

    assert explore(attrs.evolve(one, always={"never apart": lambda state: not is_apart(state)})).law == "never apart"
