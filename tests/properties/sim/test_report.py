from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random  # noqa: TID251  seeded
from typing import cast

import attrs
import pytest

import tidegate
from tidegate.leases.checks.scenarios.small_lock import small_lock
from tidegate.model.effects import Call, Note, Program, Sleep
from tidegate.model.errors import InternalError, Misuse
from tidegate.model.instants import SECOND
from tidegate.model.operations import StoreTime
from tidegate.sim.program.automaton import Asking, Returned
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import NO_ERROR, ActorStep, Clock, Kind, Label, Scenario, State
from tidegate.sim.search.search import PLAIN, Progress
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Cell, Plain, World, calling, notes, world_with
from tidegate.testing import assert_no_counterexample


async def says() -> str:
    await Note("at", 1)
    await Call("ask")
    return "done"


def scenario(**changes: object) -> Scenario:
    process = Process("p", factory(says), Faults.of(Fault.LOST_REPLY), calling({"ask": (1,)}), raises=True)
    return Scenario(**{"name": "s", "summary": "", "world": Plain(), "actors": (process,), "budget": 1, **changes})  # type: ignore[arg-type]


SILENT = {"it says nothing": lambda state: state.read(notes("p")) == ()}
DONE = {"it is done": lambda state: state.status("p") == Returned("done")}
NEVER = {"it flies": lambda _: False}
REST = {"it rests": lambda _: True}
TIRELESS = Clock(SECOND, moves=0)


async def sleeps() -> None:
    await Sleep(SECOND)


REASONS: dict[str, tuple[Callable[[], Report], Verdict, str]] = {
    "all was seen": (lambda: explore(scenario(sometimes=DONE, eventually=REST)), Verdict.COMPLETE, ""),
    "a law is broken": (lambda: explore(scenario(always=SILENT)), Verdict.VIOLATED, ""),
    "a law is broken before a bound is reached": (
        lambda: explore(scenario(always=SILENT), proceed=lambda progress: progress.depth < 2),
        Verdict.VIOLATED,
        "",
    ),
    "a bound on states": (
        lambda: explore(scenario(), Exploration(states_max=2)),
        Verdict.INCONCLUSIVE,
        "2 states were seen",
    ),
    "a bound of the caller": (
        lambda: explore(scenario(), proceed=lambda _: False),
        Verdict.INCONCLUSIVE,
        "the caller's bound was reached",
    ),
    "a goal that was missed": (
        lambda: explore(scenario(sometimes={**DONE, **NEVER}, always=REST), Exploration(require_sometimes=True)),
        Verdict.INCONCLUSIVE,
        "goal never reached: it flies",
    ),
    "nothing came to rest": (
        lambda: explore(scenario(actors=(Process("p", factory(sleeps)),), clock=TIRELESS, eventually=REST)),
        Verdict.INCONCLUSIVE,
        "nothing comes to rest, so the laws about rest say nothing",
    ),
    "random runs": (
        lambda: explore(scenario(), Exploration(runs=3), seeding=Random),
        Verdict.INCONCLUSIVE,
        "3 random runs are not all that can happen",
    ),
    "a random run that breaks a law": (
        lambda: explore(scenario(always=SILENT), Exploration(runs=3), seeding=Random),
        Verdict.VIOLATED,
        "",
    ),
}


@pytest.mark.parametrize("why", REASONS)
def test_a_verdict_says_why(why: str) -> None:
    make, verdict, reason = REASONS[why]
    report = make()
    assert (report.verdict, report.reason) == (verdict, reason)
    assert (report.trace is not None) == (report.law is not None) == (verdict is Verdict.VIOLATED)


EXPECTATIONS: dict[str, tuple[dict[str, object], bool]] = {
    "clean and clean": ({}, True),
    "clean and violated": ({"always": SILENT}, False),
    "clean and a goal missed": ({"sometimes": NEVER}, True),
    "violated and violated": ({"always": SILENT, "expect": "it says nothing"}, True),
    "violated and clean": ({"always": REST, "expect": "it rests"}, False),
    "violated and another law": ({"always": {**SILENT, **REST}, "expect": "it rests"}, False),
}


@pytest.mark.parametrize("what", EXPECTATIONS)
def test_an_expectation_is_met_by_its_own_law_only(what: str) -> None:
    changes, met = EXPECTATIONS[what]
    assert explore(scenario(**changes)).ok is met


def test_a_report_as_json_has_the_keys_of_the_command_line() -> None:
    found = explore(
        scenario(sometimes=DONE, always=REST, step={"still": lambda *_: True}, eventually={"rest": lambda _: True})
    )
    assert json.loads(json.dumps(found.to_json())) == {
        "name": "s",
        "kind": "design",
        "expect": "clean",
        "verdict": "complete",
        "law": None,
        "states": found.states,
        "transitions": found.transitions,
        "depth": 2,
        "unmerged": 0,
        "unmerged_at": [],
        "faults": {"lost_reply": 1},
        "budget": 1,
        "cut_short": 0,
        "goals": {"it is done": True},
        "stopped_because": "every state was seen",
        "time": "time stands",
        "policy": "",
        "reductions": [],
        "uncovered": ["no step touches what the law is about: still"],
        "expected_states": None,
        "violation": "none",
        "why": "",
        "loop": 0,
    }
    assert found.laws == 3
    broken = explore(scenario(always=SILENT, expect="it says nothing", kind=Kind.SPECIMEN)).to_json()
    assert (broken["kind"], broken["expect"], broken["verdict"], broken["law"]) == (
        "specimen", "violated", "violated", "it says nothing",
    )  # fmt: skip


def test_a_counterexample_names_what_it_is_of() -> None:
    report = explore(scenario(always=SILENT))
    assert report.trace is not None
    assert (report.trace.scenario, report.trace.law, report.trace.version, report.trace.time, report.trace.seed) == (
        "s", "it says nothing", tidegate.__version__, "time stands", None,
    )  # fmt: skip
    walked = explore(scenario(always=SILENT), Exploration(runs=3, seed="a"), seeding=Random)
    assert walked.trace is not None
    assert walked.trace.seed == walked.seed
    assert str(walked.seed).startswith("a.")


def test_the_caller_receives_the_progress() -> None:
    received: list[Progress] = []

    def proceed(progress: Progress) -> bool:
        received.append(progress)
        return True

    report = explore(small_lock(2, 2, 1, 1), Exploration(reductions=PLAIN), proceed=proceed)
    assert [progress.depth for progress in received] == list(range(1, report.depth + 2))
    assert received == sorted(received, key=lambda progress: (progress.states, progress.transitions))
    assert (received[-1].states, received[-1].transitions, received[-1].waiting) == (
        report.states,
        report.transitions,
        0,
    )


async def raises() -> None:
    await Call("ask")
    raise KeyError("x")


def test_the_law_that_no_program_raises_can_be_expected_to_break_by_nobody() -> None:
    report = explore(scenario(actors=(Process("p", factory(raises), meaning=calling({"ask": (1,)})),)))
    assert (report.verdict, report.law, report.ok) == (Verdict.VIOLATED, NO_ERROR, False)
    assert attrs.evolve(report, expect=NO_ERROR).ok


def test_a_report_says_how_many_faults_a_run_may_have() -> None:
    found = scenario()
    assert [explore(each).budget for each in (found, found.choosing(Fault), found.choosing(()))] == [1, 1, 0]
    bounded = [assert_no_counterexample(found, faults_max=faults_max) for faults_max in (None, 9, 1, 0)]
    assert [report.budget for report in bounded] == [1, 1, 1, 0]
    assert [bool(report.faults) for report in bounded] == [True, True, True, False]


def noting() -> Scenario:
    async def program() -> None:
        await Note("a", 1)

    return Scenario(name="noting", summary="", world=Plain(), actors=(Process("p", factory(program)),))


@pytest.mark.parametrize("error", [StopIteration(), KeyError("x")])
def test_an_error_of_a_law_is_raised_as_it_is(error: Exception) -> None:
    def fails(_: object) -> bool:
        raise error

    with pytest.raises(type(error)) as raised:
        explore(attrs.evolve(noting(), always={"L": fails}))
    assert "in the law 'L'" in raised.value.__notes__


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, BaseException])
def test_what_is_no_exception_ends_no_search(error: type[BaseException]) -> None:
    """Misuse in a law, a finding in a program; a user can still interrupt both."""

    def fails(_: object) -> bool:
        raise error

    async def program() -> None:
        raise error

    with pytest.raises(Misuse, match=f"the law 'L' raised {error.__name__}") as raised:
        explore(attrs.evolve(noting(), always={"L": fails}))
    assert "test_report.py" in raised.value.where
    report = explore(attrs.evolve(noting(), actors=(Process("p", factory(program)),)))
    assert report.law == NO_ERROR
    error = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        explore(attrs.evolve(noting(), actors=(Process("p", factory(program)),)))


def test_a_law_that_asks_where_nobody_stands_is_misuse() -> None:
    with pytest.raises(Misuse, match='asks where "q" stands') as raised:
        explore(attrs.evolve(noting(), always={"L": lambda state: state.status("q") is None}))
    assert "test_report.py" in raised.value.where
    assert raised.value.todo == "the processes are: p"


def test_an_error_of_the_simulator_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sim.search.search.Search.expand", None)
    with pytest.raises(InternalError, match="tidegate itself failed: TypeError") as raised:
        explore(noting())
    assert "tidegate/sim/search/search.py" in raised.value.where


@attrs.frozen(eq=False)
class Mover:
    found: object
    name: str = "mover"
    place: None = None
    blind: bool = False

    def steps(self, _: World, /) -> Iterator[ActorStep]:
        return self.found  # type: ignore[return-value]


@pytest.mark.parametrize("found", [None, 1, ("moves",), (ActorStep(Label("moves"), Plain()),)])
def test_an_actor_or_a_meaning_with_a_world_of_its_own_is_misuse(found: object) -> None:
    with pytest.raises(Misuse, match="the actor mover has a step "):
        explore(attrs.evolve(noting(), actors=(Mover(found),)))
    outcomes = ((Plain(), None),) if isinstance(found, tuple) else found
    process = Process("p", factory(asks_thrice), meaning=lambda *_: outcomes)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="a meaning has an outcome "):
        explore(attrs.evolve(noting(), actors=(process,)))


@attrs.frozen(eq=False)
class Says(Mover):
    def steps(self, world: World, /) -> Iterator[ActorStep]:
        label, fault = cast("tuple[Label, Fault | None]", self.found)
        moved = Cell(("moved",), 0)
        if not world.read(moved):
            yield ActorStep(label, world.write(moved, 1), fault=fault)


@pytest.mark.parametrize("found", [("moves", None), (Label("moves"), "unsent by name"), (None, Fault.LATE)])
def test_an_actor_whose_steps_have_no_label_or_no_kind_of_fault_is_misuse(found: object) -> None:
    with pytest.raises(
        Misuse, match=r"the actor mover has a step .*(?s:.*)its label is a Label, and its fault a Fault or None"
    ):
        explore(attrs.evolve(noting(), actors=(Says(found),), budget=1))


async def asks_wrongly() -> None:
    await Call("ask")
    await Call("ask")
    await Sleep(-1)


async def holds_an_instant() -> object:
    await Call("ask")
    kept = await StoreTime()
    await Call("ask")
    return kept - kept


async def asks_thrice() -> None:
    for _ in range(3):
        await Call("ask")
    await Call("beyond")


def raises_beyond(state: State) -> bool:
    if state.status("q") == Asking(Call("beyond")):
        raise ValueError("this law knows nothing of that")
    return True


@pytest.mark.parametrize("beyond", [asks_wrongly, holds_an_instant, asks_thrice])
def test_what_is_wrong_beyond_a_counterexample_does_not_hide_it(beyond: Callable[[], Program[object]]) -> None:
    """The search for a passing run visits states that the first search never reached."""
    other = Process("q", factory(beyond), meaning=calling({"ask": (1,)}))
    actors = (*scenario().actors, other)
    clock = Clock(SECOND, moves=1, horizon=SECOND)
    laws = {**SILENT, "a law that raises": raises_beyond}
    report = explore(scenario(actors=actors, always=laws, world=world_with({}), clock=clock))
    assert report.verdict is Verdict.VIOLATED
    assert report.trace is not None
    assert report.trace.passing is None
