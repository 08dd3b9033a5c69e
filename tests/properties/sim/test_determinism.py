"""Executions of equal schedules are compared step by step, and differences explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from time import time_ns  # noqa: TID251  a program that looks at a clock, which is what is to be found
from typing import Final

import attrs
import pytest

from tidegate.catalogue import shipped
from tidegate.consumer.checks.scenarios.partition import partition
from tidegate.model.effects import Call, Effect, Note
from tidegate.model.errors import Nondeterministic
from tidegate.sim.runs import determinism
from tidegate.sim.runs.determinism import (
    Cause,
    Difference,
    Runs,
    Stand,
    difference,
    from_plain,
    judged,
    scheduled_runs,
    to_plain,
)
from tidegate.sim.scenario import Clock, Scenario
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.world import Outcomes, Plain, World


@attrs.define
class Turns:
    at: int

    def randrange(self, stop: int) -> int:
        self.at += 1
        return self.at * 7 % stop

    def getrandbits(self, bits: int) -> int:
        return self.randrange(1 << bits)

    def random(self) -> float:
        return self.randrange(100) / 100


def turns(seed: str) -> Turns:
    return Turns(len(seed) + int(seed.partition(".")[2]))


def two(program: object) -> Scenario:
    assert callable(program)
    return Scenario(
        name="two",
        summary="",
        world=Plain(),
        actors=tuple(Process(name, factory(program), meaning=answers) for name in "pq"),
    )


def answers(effect: Effect[object], world: World, who: str) -> Outcomes:  # noqa: ARG001  a meaning
    yield world, 1
    if isinstance(effect, Call):
        yield world, 2


def runs_of(scenario: Scenario) -> Runs:
    return scheduled_runs(scenario, seed="s", runs=4, steps_max=20, seeding=turns)


@pytest.mark.parametrize("make", [partition, lambda: shipped("transition"), lambda: shipped("array_push_lock")])
def test_what_ships_is_executed_alike(make: object) -> None:
    assert callable(make)
    one, other = runs_of(make()), runs_of(make())
    assert difference(one, other) is None
    assert judged(None, None, None) is None
    assert from_plain(json.loads(json.dumps(to_plain(one)))) == one
    assert max(map(len, one)) > 5


def test_a_program_that_ends_early_ends_its_schedule() -> None:
    async def once() -> int:
        await Note("said", 1)
        return 5

    (run, *_) = runs_of(two(once))
    assert [stand.what for stand in run[-1]] == ["finished: 5", "finished: 5"]
    assert len(run) == 3


NUMBERS: Final[Iterator[int]] = count()


async def counts() -> None:
    await Note("begun", 1)
    await Note("number", next(NUMBERS))


def test_a_global_differs_when_the_same_process_runs_again() -> None:
    scenario = two(counts)
    found = difference(runs_of(scenario), runs_of(scenario))
    assert found is not None
    assert found.first != found.second
    assert found.src.endswith(" counts")
    assert judged(found, None, None) == (found, Cause.GLOBAL)
    assert judged(found, None, found) == (found, Cause.GLOBAL)
    assert judged(None, None, found) == (found, Cause.ORDER)


async def looks() -> None:
    await Note("begun", 1)
    await asks()


async def asks() -> None:
    await Note("at", stamp())


def stamp() -> int:
    return time_ns()


def test_a_clock_is_named_where_a_function_that_is_called_names_it() -> None:
    found = difference(runs_of(two(looks)), runs_of(two(looks)))
    assert found is not None
    assert found.names == ("time_ns",)
    assert found.src.endswith(" asks")
    assert judged(None, found, None) == (found, Cause.CLOCK)


def a_difference(*names: str, is_torn: bool = False) -> Difference:
    return Difference(0, 1, "p", "once", "then", "m.py:1 f", names, is_torn=is_torn)


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (a_difference("time"), Cause.CLOCK),
        (a_difference("random"), Cause.RANDOM),
        (a_difference("random", "time"), Cause.CHANGES),
        (a_difference(), Cause.CHANGES),
        (a_difference(is_torn=True), Cause.GLOBAL),
        (a_difference("now", is_torn=True), Cause.CLOCK),
        (a_difference("random", "time", is_torn=True), Cause.CHANGES),
    ],
)
def test_what_changes_from_process_to_process_is_explained_by_names(found: Difference, cause: Cause) -> None:
    assert judged(found, found, found) == (found, cause)


async def forks() -> None:
    answer = await Call("ask")
    await Note("received", answer)
    await Note("number", next(NUMBERS))
    await Call("again")
    await Note("then", 1)


def test_a_program_that_is_torn_within_one_execution_is_found() -> None:
    runs = scheduled_runs(two(forks), seed="s", runs=30, steps_max=20, seeding=turns)
    torn = [stand for run in runs for look in run for stand in look if stand.is_torn]
    assert torn
    assert {stand.process for stand in torn} <= {"p", "q"}
    found = difference(runs, runs)
    assert found is not None
    assert found.is_torn
    assert "with the same replies" in found.first


def test_executions_of_other_lengths_differ_where_the_shorter_ends() -> None:
    stand = (Stand("p", "a"),)
    found = difference(((stand, stand),), ((stand,),))
    assert found == Difference(0, 1, "", "1 step", "0 steps", "", ())
    assert difference(((stand, stand),), ((stand, stand),)) is None


def test_time_is_part_of_a_schedule() -> None:
    async def once() -> None:
        await Note("said", 1)

    scenario = attrs.evolve(two(once), clock=Clock(quantum=1_000, horizon=3_000))
    assert difference(runs_of(scenario), runs_of(scenario)) is None


def test_a_schedule_is_as_long_as_it_may_be() -> None:
    runs = scheduled_runs(shipped("transition"), seed="s", runs=2, steps_max=2, seeding=turns)
    assert [len(run) for run in runs] == [3, 3]


@pytest.mark.parametrize("where", ["ways", "look", "nowhere"])
def test_whoever_is_torn_is_reported_wherever_it_shows(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    async def once() -> None:
        await Note("said", 1)

    error = Nondeterministic("with the same replies a program was another")
    calls = iter([False, True, True] if where != "nowhere" else [False, True])

    def tears(*_: object) -> object:
        if next(calls, False):
            raise error
        return found(*_)  # type: ignore[arg-type]

    if where == "look":
        found = determinism.look
        monkeypatch.setattr(determinism, "look", tears)
    else:
        found = determinism.ways  # type: ignore[assignment,attr-defined]
        monkeypatch.setattr(determinism, "ways", tears)
    runs = scheduled_runs(two(once), seed="s", runs=1, steps_max=9, seeding=turns)
    assert runs[0][-1] == (Stand("", error.what, is_torn=True),)


def test_a_search_that_begins_again_looks_at_programs_that_have_moved_on() -> None:
    async def says_much() -> None:
        for turn in range(40):
            await Note(f"turn {turn}", turn)

    runs = scheduled_runs(two(says_much), seed="s", runs=2, steps_max=100, seeding=turns)
    assert all(stand.src for stand in runs[0][0])
    assert len(runs[0]) == 81
    process = Process("p", factory(says_much))
    node = process.behaviour.start(0)
    stand = determinism.stand_at(process, node)
    process.behaviour.nodes[node].parked.clear()
    assert determinism.stand_at(process, node) == stand
    process.behaviour.nodes[node].parked.clear()
    assert determinism.stand_at(process, node) == stand
