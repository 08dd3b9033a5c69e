"""Every shipped scenario meets its expectation, and its laws can be broken."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

import attrs
import pytest
from tests.length import LONG_COUNTEREXAMPLES, THOROUGH_SCOPES
from tests.properties.plain_search import plain_search
from tests.properties.shipped import COUNTS, DESIGNS, LARGE, NAMES, OF_DESIGNS, apart, report_on

from tidegate import catalogue
from tidegate.catalogue import shipped
from tidegate.consumer.checks.scenarios import partition_states
from tidegate.invocations.checks.scenarios import array_push_lock, transition
from tidegate.invocations.record.transition import Granted
from tidegate.model.errors import Misuse
from tidegate.sim.runs.registry import Scope
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.scenario import Kind, Law
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.group import REBALANCES
from tidegate.sim.servers.reducers import Crash, ReducerProcess
from tidegate.sim.world.faults import Fault

THOROUGH: Final = tuple(name for name in COUNTS if name.endswith(f"@{Scope.THOROUGH}"))


def counted(report: Report) -> list[object]:
    return [report.verdict.value, report.states, report.transitions, report.depth]


@pytest.mark.parametrize("name", apart(NAMES))
def test_every_shipped_scenario_meets_its_expectation(name: str) -> None:
    """Complete, or broken in the expected law; as many states as recorded; nothing unmerged."""
    report = report_on(name)
    assert report.scenario == name
    assert counted(report) == COUNTS[name]
    assert report.ok, report
    assert report.unmerged == ()
    assert all(report.goals.values()) or report.verdict is Verdict.VIOLATED


if THOROUGH_SCOPES:  # takes minutes

    @pytest.mark.parametrize("name", THOROUGH)
    def test_every_thorough_scope_has_as_many_states_as_on_record(name: str) -> None:
        report = explore(shipped(name))
        assert counted(report) == COUNTS[name]
        assert report.ok, report


def test_every_scope_that_ships_is_on_record() -> None:
    scopes = {f"{each.name}@{scope}" for each in catalogue.DESIGNS for scope in each.scopes if scope is Scope.THOROUGH}
    assert COUNTS.keys() == {*NAMES, *scopes}


def test_a_scenario_that_does_not_ship_is_misuse() -> None:
    with pytest.raises(Misuse, match="there is no scenario 'nothing'") as raised:
        shipped("nothing")
    assert all(name in raised.value.todo for name in NAMES)
    assert shipped("small_lock").name == "small_lock"


def test_every_module_with_scenarios_or_specimens_is_in_the_catalogue() -> None:
    core = Path(catalogue.__file__).parents[1]
    files = (
        file for kind in ("scenarios", "specimens") for each in ("", "/*") for file in core.glob(f"*/*/{kind}{each}.py")
    )
    modules = [import_module(".".join(file.relative_to(core).with_suffix("").parts)) for file in files]
    ships = [each for module in modules for kind in ("SCENARIOS", "SPECIMENS") for each in getattr(module, kind, ())]
    assert sorted(each.name for each in ships) == sorted(NAMES)


def test_a_scenario_has_scopes() -> None:
    assert shipped("transition@thorough").name == "transition@thorough"
    assert shipped("transition@default").name == "transition"
    assert shipped("transition@thorough").budget > shipped("transition").budget
    with pytest.raises(Misuse, match="there is no scope 'huge'"):
        shipped("transition@huge")
    with pytest.raises(Misuse, match="not_read_again has no thorough scope") as raised:
        shipped("transition.not_read_again@thorough")
    assert raised.value.todo == "it has: default"


def test_every_specimen_says_what_it_is_of_and_where_it_was_seen() -> None:
    for each in catalogue.SPECIMENS:
        scenario = each.scenario()
        assert (scenario.kind, scenario.expect, scenario.name) == (Kind.SPECIMEN, each.law, each.name)
        assert each.of in DESIGNS
        assert each.law in laws_of(each.of)
        assert each.source.endswith(".")
        assert scenario.summary == each.summary != ""
    assert all((each.scenario().kind, each.scenario().expect) == (Kind.DESIGN, None) for each in catalogue.DESIGNS)


def test_every_scope_can_be_made() -> None:
    """`make thorough` explores the larger scopes; this test only builds them."""
    for each in catalogue.DESIGNS:
        for scope in each.scopes:
            assert each.scenario(scope).name == (each.name if scope is Scope.DEFAULT else f"{each.name}@{scope}")


# --- expectations -------------------------------------------------------------------------------------------------------

WRONG: Mapping[str, tuple[str, int]] = {
    "array_push_lock.stall.2": (array_push_lock.ALONE, 16),
    "array_push_lock.stall.3": (array_push_lock.ALONE, 16),
    "array_push_lock.overwrite.2": (array_push_lock.FINAL, 20),
    "array_push_lock.overwrite.3": (array_push_lock.FINAL, 20),
    "array_push_lock.waiter": (array_push_lock.ALONE, 21),
    "array_push_lock.lost_reply": (array_push_lock.ONCE, 3),
    "array_push_lock.late": (array_push_lock.NONE_LEFT, 18),
    "array_push_lock.skewed": (array_push_lock.ALONE, 14),
    "array_push_lock.dead_holder": (array_push_lock.NONE_LEFT, 15),
}


@pytest.mark.parametrize("name", apart(WRONG))
def test_what_is_wrong_with_the_array_push_lock(name: str) -> None:
    """Two or three runners with a stalled holder break mutual exclusion and overwrite a finished
    record. With a stalled waiter and quick holders they still break mutual exclusion. A lost push
    reply doubles a claim, and a late request leaves one over. With a wrong clock no process need
    stall; a holder that dies leaves its claim.
    """
    law, steps = WRONG[name]
    report = report_on(name)
    assert (report.law, report.trace and len(report.trace.steps)) == (law, steps)
    scenario = shipped(name)
    assert len([actor for actor in scenario.actors if isinstance(actor, Process)]) == (
        3 if name.endswith(("3", "waiter")) else 2
    )


DEEP = ("array_push_lock.stall.2", "array_push_lock.overwrite.2")
SHORT = (
    *(DEEP if LONG_COUNTEREXAMPLES else ()),
    "array_push_lock.lost_reply",
    "transition.version_not_raised",
    "transition.request_id_ignored",
    "transition.only_the_last_request_id",
    "transition.not_read_again",
    "transition.ambiguous_is_refused",
    "transition.history_in_a_second_write",
    "partition.commits_the_highest",
    "partition.two_commits_in_flight",
    "partition.revokes_without_drain",
)


@pytest.mark.parametrize("name", apart(SHORT))
def test_the_counterexample_is_a_shortest_one(name: str) -> None:
    """The naive search breaks no law in fewer steps; smaller scopes cover long ones."""
    report = report_on(name)
    assert report.trace is not None
    steps = len(report.trace.steps)
    assert plain_search(shipped(name), depth_max=steps).broken[str(report.law)] == steps
    assert not plain_search(shipped(name), depth_max=steps - 2).broken


@OF_DESIGNS
def test_transition_is_right_under_every_fault() -> None:
    report, scenario = report_on("transition"), shipped("transition")
    assert report.verdict is Verdict.COMPLETE
    assert set(report.faults) == {
        Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE
    }  # fmt: skip
    assert (scenario.budget, shipped("transition@thorough").budget) == (1, 2)
    assert [actor.name for actor in scenario.actors] == ["r1", "r2", "recovery", "network"]
    assert set(scenario.always) == {
        "every answer is the truth", "versions are consecutive", "versions are recorded", "changes are legal",
        "requests count once", "nothing is unknown", "requests make what they are for",
    }  # fmt: skip
    assert report.goals == {"it succeeds": True, "it is recovered and run again": True}


@OF_DESIGNS
def test_the_partition_is_right_under_rebalances_and_faults() -> None:
    report, scenario = report_on("partition"), shipped("partition")
    assert report.verdict is Verdict.COMPLETE
    assert set(report.faults) == {Fault.CRASH_BEFORE, Fault.LOST_REPLY, Fault.REBALANCE}
    assert (scenario.budget, scenario.world.read(REBALANCES)) == (2, 1)
    assert (shipped("partition@thorough").budget, shipped("partition@thorough").world.read(REBALANCES)) == (2, 2)
    assert sum(isinstance(actor, ReducerProcess) for actor in scenario.actors) == 4
    assert sum(isinstance(actor, Crash) for actor in scenario.actors) == 2
    assert set(scenario.eventually) == {partition_states.ALL}
    names = [name for name in DESIGNS if name.startswith(("partition", "group")) and name not in LARGE]
    struck = {fault for name in names for fault in report_on(name).faults}
    assert struck == {
        Fault.CRASH_BEFORE, Fault.LOST_REPLY, Fault.DROPPED, Fault.GAVE_UP, Fault.FAILED, Fault.NEVER_RETURNS,
        Fault.COMMIT_REFUSED, Fault.SINK_FAILED, Fault.DEAD_LETTER_FAILED, Fault.REBALANCE, Fault.EVICTED,
    }  # fmt: skip
    assert report_on("group").goals == {"a partition moves": True, "the gate closes": True}


def is_answered(*, granted: bool) -> Law:
    return lambda state: any(
        isinstance(each.answer, Granted) is granted
        for name in ("r1", "r2", "recovery")
        for each in transition.answers(state, name)
    )


def test_some_answers_are_grants_and_some_are_not() -> None:
    """The law that every answer is the truth needs both kinds, and no fault for either."""
    goals = {"granted": is_answered(granted=True), "not granted": is_answered(granted=False)}
    assert explore(attrs.evolve(transition.transition(budget=0), sometimes=goals)).ok


# --- each law can be broken ---------------------------------------------------------------------------------------------


def laws_of(name: str) -> set[str]:
    scenario = shipped(name)
    return {*scenario.always, *scenario.step, *scenario.eventually}


@pytest.mark.parametrize("name", apart(DESIGNS))
def test_each_law_of_a_design_is_broken_by_something(name: str) -> None:
    """By a specimen of its family, not by a design. Consumers have the laws of partitions too."""
    families = {name.partition(".")[0]} | ({"partition"} if name.partition(".")[0] == "group" else set())
    assert laws_of(name) <= {each.law for each in catalogue.SPECIMENS if each.of.partition(".")[0] in families}
    assert report_on(name).verdict is Verdict.COMPLETE
