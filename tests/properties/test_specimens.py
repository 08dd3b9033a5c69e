"""Each bug in the catalogue is found and documented; each law and fault has one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from os import environ
from pathlib import Path
from typing import Final

import pytest
from tests import length
from tests.properties.shipped import DESIGNS, LARGE, OF_DESIGNS, OF_SAMPLE, SPECIMENS, apart, report_on

from tidegate import catalogue
from tidegate.catalogue import shipped
from tidegate.consumer.checks.scenarios.partition import Client
from tidegate.sim.runs.registry import Scope, scoped
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.group import GROUP, REBALANCES, Recreation
from tidegate.sim.servers.log import Compaction, Hole
from tidegate.sim.trace.rendering import render
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.linearizability import Linearizable

GOLDEN: Final = Path(__file__).parent / "golden" / "specimens"


def family(name: str) -> str:
    """Designs of one family share their laws."""
    first = name.partition(".")[0]
    return {"group": "partition"}.get(first, first)


def laws_of(name: str) -> set[str]:
    scenario = shipped(name)
    return {f"{family(name)}: {law}" for law in (*scenario.always, *scenario.step, *scenario.eventually)}


@pytest.mark.parametrize("name", apart(SPECIMENS))
def test_the_counterexample_of_a_specimen_is_the_one_on_record(name: str) -> None:
    """Golden transcripts; TIDEGATE_GOLDEN=write rewrites them. Commit only intended changes."""
    trace = report_on(name).trace
    assert trace is not None
    golden, story = GOLDEN / f"{name}.txt", render(trace)
    if environ.get("TIDEGATE_GOLDEN") == "write":
        golden.write_text(story, encoding="utf-8")
    assert story == golden.read_text(encoding="utf-8")


def test_every_transcript_is_of_a_specimen() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(SPECIMENS)


ROOT: Final = Path(__file__).parents[2]
FINDINGS: Final = re.compile(r"^    tidegate explore (\S+) +(\d+) steps", re.MULTILINE)


@OF_SAMPLE
def test_the_findings_are_as_documented() -> None:
    documented = FINDINGS.findall((ROOT / "docs" / "findings.md").read_text(encoding="utf-8"))
    assert len(documented) == 10
    said = {name: steps for name, steps in documented if name not in LARGE}
    found = {name: report_on(name).trace for name in said}
    assert {name: str(trace and len(trace.steps)) for name, trace in found.items()} == said


CLAIMS: Final = {
    "a transition": r"(\d+) runners with up to (\d+) fault of (\d+) kinds \(up to (\d+) of (\d+) in `make thorough`\)",
    "a partition": r"\| (\d+) consumers with up to (\d+) rebalance and (\d+) faults, .* \((\d+) rebalances in `make thorough`\);",
    "its hooks": r"answered for, up to (\d+) rebalance and (\d+) fault \((\d+) faults in `make thorough`\);",
    "a group": r"; (\d+) consumers with up to (\d+) rebalance and (no) fault, .* \((\d+) fault in `make thorough`\);",
}


def bounds(name: str) -> tuple[int, int, int]:
    scenario = shipped(name)
    return len(scenario.world.read(GROUP).members), scenario.world.read(REBALANCES), scenario.budget


@OF_DESIGNS
def test_the_bounds_in_the_guarantees_are_those_explored() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    said = {what: re.findall(claim, text) for what, claim in CLAIMS.items()}
    processes = [actor for actor in shipped("transition").actors if isinstance(actor, Process)]
    may_strike = {kind for process in processes for kind in process.faults.kinds}
    budgets = [shipped(scoped("transition", scope)).budget for scope in (Scope.DEFAULT, Scope.THOROUGH)]
    consumers, rebalances, faults = bounds("partition")
    assert bounds("partition@thorough") == (consumers, 2, faults)
    assert bounds("partition.hooks@thorough")[:2] == bounds("partition.hooks")[:2] == bounds("group")[:2]
    assert bounds("group@thorough")[:2] == bounds("group")[:2]
    explored = {
        "a transition": (len(processes), budgets[0], len(report_on("transition").faults), budgets[1], len(may_strike)),
        "a partition": (consumers, rebalances, faults, 2),
        "its hooks": (*bounds("partition.hooks")[1:], bounds("partition.hooks@thorough")[2]),
        "a group": (*bounds("group"), bounds("group@thorough")[2]),
    }
    assert said == {what: [tuple(str(each or "no") for each in numbers)] for what, numbers in explored.items()}


def both(name: str) -> tuple[str, str]:
    (call,) = re.findall(rf"^{name}: Final = (_either\(.*?\))$", inspect.getsource(length), re.MULTILINE | re.DOTALL)
    sizes = eval(call, {**vars(length), "_either": lambda *of: of})  # noqa: S307  ours
    brief, full = [of if isinstance(of, int) else of[0] for of in sizes]
    return f"{brief:,}", f"{full:,}"


def test_the_guarantees_say_how_much_runs() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    for name, says in {
        "RACING_TRANSITIONS": r"%s racing transitions on a real replica set \(%s in `make thorough`\)",
        "MONGO_RUNS": r"\(%s runs by seed of each of nine workloads; %s in `make thorough`\)",
        "KAFKA_RUNS": r"\(%s runs by seed of each kind; %s in `make thorough`\)",
        "STORM": r"; %s records on a real broker [^(]* \(%s in `make thorough`",
        "REACTIVE_RUNS": r"watched document .* \(%s runs by seed of each kind of fault; %s in `make thorough`\)",
        "ORCHESTRATOR_RUNS": r"invocation that .* \(%s runs by seed of each kind of fault; %s in `make thorough`\)",
        "ORCHESTRATOR_STORM": r"; %s invocations on a real replica set [^(]* \(%s in `make thorough`",
    }.items():
        assert re.search(says % both(name), text), name


FAULTS_PAGE: Final = ROOT / "docs" / "faults.md"
STRIKES: Final = "| Scenario | What struck |\n|---|---|\n"


def struck_in(name: str) -> frozenset[Fault]:
    if name not in LARGE:
        return frozenset(report_on(name).faults)
    row = f"| `{name}` | "
    (said,) = [line for line in FAULTS_PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(row)]
    return frozenset(map(Fault, re.findall(r"`(\w+)`", said.removeprefix(row))))


def kinds_of(faults: Iterable[Fault]) -> str:
    struck = set(faults)
    return ", ".join(f"`{kind}`" for kind in Fault if kind in struck) or "nothing"


@OF_DESIGNS
def test_the_page_on_faults_says_which_strike_where() -> None:
    """TIDEGATE_GOLDEN=write rewrites the table; commit only intended changes."""
    rows = [f"| `{name}` | {kinds_of(struck_in(name))} |" for name in DESIGNS]
    before, table, found = FAULTS_PAGE.read_text(encoding="utf-8").partition(STRIKES)
    if environ.get("TIDEGATE_GOLDEN") == "write":
        found = "".join(f"{row}\n" for row in rows)
        FAULTS_PAGE.write_text(before + table + found, encoding="utf-8")
    assert found.splitlines() == rows


PROMISES: Final = re.compile(r"^(\| `(\w+)` \| [^|]+ \|) ([^|]*)\|$", re.MULTILINE)


@OF_DESIGNS
def test_the_guarantees_name_the_faults_of_each_design() -> None:
    """By the first word of a scenario's name. TIDEGATE_GOLDEN=write rewrites it."""
    page = ROOT / "docs" / "guarantees.md"
    text = page.read_text(encoding="utf-8")
    struck = {name: struck_in(name) for name in DESIGNS}

    def row(found: re.Match[str]) -> str:
        alike = {name: kinds for name, kinds in struck.items() if name.partition(".")[0] == found[2]}
        spared = [f"`{name}`" for name, kinds in alike.items() if not kinds]
        kinds = kinds_of(kind for kinds in alike.values() for kind in kinds)
        but = f"; nothing in {', '.join(spared)}" if 0 < len(spared) < len(alike) else ""
        return f"{found[1]} {kinds}{but} |"

    written = PROMISES.sub(row, text)
    if environ.get("TIDEGATE_GOLDEN") == "write":
        page.write_text(text := written, encoding="utf-8")
    assert text == written
    assert [found[2] for found in PROMISES.finditer(text)] == list(
        dict.fromkeys(name.partition(".")[0] for name in DESIGNS)
    )


def test_each_law_of_a_design_is_broken_by_a_specimen() -> None:
    """Counter: Laws CP1, CP2, CP3 and CP4.
    Leaders: Laws LP1, LP2, LP3 and LP4.
    Atomic service: Laws AP1, AP2, AP3, AP4, AP5, AP6, AP7, AP8, AP9 and AP10.
    Transfers: Laws TN1, TN2, TN3, TF1, TF2, TF3 and TF4.
    Recovery: Laws RP1, RP2 and RP3.
    Payloads: Laws UP1, UP2, UP3, UP4 and UP5.
    Admission: Laws IP1, IP2 and IP3.
    Registration: Laws IR1, IR2 and IR3.
    """
    named = {law for name in DESIGNS for law in laws_of(name)}
    broken = {f"{family(each.of)}: {each.law}" for each in catalogue.SPECIMENS}
    assert named <= broken


@OF_DESIGNS
def test_each_fault_strikes_in_a_design_that_ships() -> None:
    struck = {fault for name in DESIGNS for fault in struck_in(name)}
    assert struck == set(Fault)


def parts_of(scenario: Scenario) -> Iterator[str]:
    cells = {name[0] for name in scenario.world.cells}
    logs = [value for name, (_, value) in scenario.world.cells.items() if name[0] == "log" and isinstance(value, tuple)]
    yield from (part for part, is_used in (
        ("symmetry", scenario.symmetric),
        ("a linearizable history", any(isinstance(law, Linearizable) for law in scenario.always.values())),
        ("a unique index", "unique" in cells),
        ("drift", any(isinstance(actor, Process) and actor.host.drift for actor in scenario.actors)),
        ("a log", logs),
        ("a hole in a log", any(isinstance(entry, Hole) for entries in logs for entry in entries)),
        ("compaction", any(isinstance(actor, Compaction) for actor in scenario.actors)),
        ("a log that is made anew", any(isinstance(actor, Recreation) for actor in scenario.actors)),
        ("pause and resume", any(isinstance(actor, Client) for actor in scenario.actors)),
    ) if is_used)  # fmt: skip


def test_each_part_of_the_world_is_used_by_a_design_that_ships() -> None:
    scenarios = [shipped(name) for name in DESIGNS]
    assert {part for scenario in scenarios for part in parts_of(scenario)} == {
        "symmetry", "a linearizable history", "a unique index", "drift", "a log", "a hole in a log", "compaction",
        "a log that is made anew", "pause and resume",
    }  # fmt: skip
    assert [scenario.name for scenario in scenarios if not scenario.sometimes] == []
