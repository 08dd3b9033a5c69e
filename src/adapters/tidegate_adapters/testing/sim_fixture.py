"""The fixture `sim` of the pytest plug-in: explores, stores a counterexample, prints its replay
command.

Options override the profile, which overrides the test's mark.

A counterexample of random runs is stored as found, then shrunk. Missing coverage, such as an
unreached goal, is a warning; `-W error` makes it fail the test.

A trace file names its scenario by the pytest id, with `#2` for a test's second exploration, so that
a replay and `tidegate replay` find it (`tidegate_adapters.exploring.scenario_in_test`). Under
Hypothesis each test case resets the counter and removes the previous output.
"""

from __future__ import annotations

import random
import shlex
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final, assert_never, final

import attrs
import pytest

from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.values import check_type
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.policies import Policy, policies
from tidegate.sim.runs.replay import Diverged, Reproduced, replay
from tidegate.sim.runs.report import Report, Verdict, explore
from tidegate.sim.runs.shrink import shrink
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.search import STATES_MAX
from tidegate.sim.trace.rendering import number_of, render
from tidegate.sim.trace.trace import Trace
from tidegate.sim.world.faults import Fault
from tidegate.testing import unexpected
from tidegate_adapters.base.errors import origin
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.exploring.counterexamples import Store, named_apart, read
from tidegate_adapters.exploring.scenario_in_test import SOUGHT, Sought

PCT_DEPTH: Final = 3
SHRINK_S: Final = 1.0
"""Longest time spent on shrinking."""
SETTINGS: Final[Mapping[str, str]] = {
    "runs": "--tidegate-runs",
    "seed": "--tidegate-seed",
    "faults": "--tidegate-faults",
    "policy": "--tidegate-policy",
    "states_max": "--tidegate-max-states",
    "faults_max": "--tidegate-max-faults",
}


def settings(item: pytest.Item, profile: Mapping[str, object]) -> Exploration:
    found: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers("tidegate"))):
        if mark.args:
            raise pytest.UsageError(f"{item.nodeid}: the mark tidegate takes names: {', '.join(SETTINGS)}")
        found |= mark.kwargs
    found |= profile
    for name, option_name in SETTINGS.items():
        option = item.config.getoption(option_name)
        if option is not None and name != "seed":  # the session's seed is hashed first
            found[name] = option
    unknown = [name for name in found if name not in SETTINGS]
    if unknown:
        raise pytest.UsageError(
            f"{item.nodeid}: tidegate knows no {', '.join(unknown)}; it knows {', '.join(SETTINGS)}"
        )
    return Exploration(
        runs=whole(found, "runs", 0),
        seed=None if found.get("seed") is None else str(found["seed"]),
        faults=kinds(found.get("faults", "all")),
        policies=policies_named(found.get("policy", "portfolio")),
        states_max=whole(found, "states_max", STATES_MAX),
        faults_max=whole(found, "faults_max", 0) if "faults_max" in found else None,
    )


def policies_named(named: object) -> tuple[Policy, ...]:
    try:
        return policies(str(named), PCT_DEPTH)
    except Misuse as error:
        raise pytest.UsageError(f"tidegate: {error.what}; {error.todo}") from error


def kinds(named: object) -> tuple[Fault, ...] | None:
    if named == "all":
        return None
    names = [] if named == "none" else str(named).split(",")
    unknown = [name for name in names if name not in set(Fault)]
    if unknown:
        there = ", ".join(Fault)
        raise pytest.UsageError(f"tidegate: there is no fault {', '.join(map(repr, unknown))}; there are: {there}")
    return tuple(map(Fault, names))


def whole(found: Mapping[str, object], name: str, default: int) -> int:
    value = found.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise pytest.UsageError(f"tidegate: {name} is a number from 0 on, and not {value!r}")
    return value


@final
class Sim:
    """The fixture; without a seed in `how`, the session's seed decides."""

    def __init__(self, item: pytest.Item, how: Exploration, seed: str) -> None:
        self.item, self.how, self.seed = item, how, seed
        self.places = 0  # number of explorations
        self.test_case: object = None  # of Hypothesis
        item.user_properties.append(("tidegate_seed", how.seed or seed))

    def explore(self, scenario: Scenario) -> Report:
        """Explore the scenario, or replay the given file if it was recorded here.

        Returns:
            The report, if it meets the scenario's expectation; inconclusive after random runs.

        Raises:
            AssertionError: The exploration found something else.
            Misuse: The scenario, or a program in it, breaks a contract.
        """
        __tracebackhide__ = True
        check_type(scenario, Scenario, "a scenario", "call it, if it is a function that makes one")
        self.begin_anew_with_each_test_case()
        identity = f"{self.item.nodeid}#{self.places + 1}" if self.places else self.item.nodeid
        sought = self.item.config.pluginmanager.get_plugin(SOUGHT)
        if isinstance(sought, Sought) and sought.place == self.places:
            sought.scenario = scenario
            pytest.skip("the scenario is found")
        if (trace := self.recorded(scenario, identity)) is not None:
            self.replay(trace, scenario)
        how = attrs.evolve(self.how, seed=self.how.seed or self.digest(self.places))
        self.places += 1
        try:
            report = explore(scenario, how, seeding=random.Random)
        except TidegateError as error:  # its message suffices, without our frames
            error.where = error.where or origin(error)
            raise error.with_traceback(None) from None
        self.item.ihook.pytest_tidegate_report(item=self.item, report=report)
        sampled_clean = how.runs and scenario.expect is None and report.verdict is Verdict.INCONCLUSIVE
        if not report.ok and not sampled_clean:
            if sought is None:
                self.store(report, scenario.bounded(how.faults, how.faults_max), identity)
            with suppress(pytest.PytestWarning):  # with -W error; the failure is more important
                self.warn(report)
            raise AssertionError(unexpected(report))
        self.warn(report)
        return report

    def warn(self, report: Report) -> None:
        for missing in report.uncovered:
            self.item.warn(pytest.PytestWarning(f"tidegate: {one_line(report.scenario)}: {one_line(missing)}"))

    def begin_anew_with_each_test_case(self) -> None:
        """Start each Hypothesis test case afresh: equal scenarios get equal seeds."""
        control = sys.modules.get("hypothesis.control")
        test_case = control.current_build_context() if control and control.currently_in_test_context() else None
        if test_case is self.test_case:
            return
        self.test_case, self.places = test_case, 0
        mine = ("tidegate_trace", "tidegate_counterexample")
        self.item.user_properties[:] = [each for each in self.item.user_properties if each[0] not in mine]
        sections = self.item._report_sections  # noqa: SLF001  add_report_section has no inverse
        sections[:] = [each for each in sections if each[1].split()[0] != "tidegate"]

    def digest(self, place: int) -> str:
        """The exploration's seed, equal on all machines and Python versions."""
        text = f"{self.seed}\0{self.item.nodeid}\0{place}"
        return str(int(sha256(text.encode(errors="surrogatepass")).hexdigest()[:15], 16))

    def store(self, report: Report, scenario: Scenario, identity: str) -> None:
        if report.trace is None:
            return
        self.show(report.trace, identity)
        if report.is_shortest or self.item.config.getoption("--tidegate-no-shrink"):
            return
        began = monotonic()
        small, shrunk = shrink(report.trace, scenario, keep=lambda _: monotonic() - began < SHRINK_S)
        self.show(small, identity, "shrunk", f"{shrunk}\n")

    def show(self, trace: Trace, identity: str, what: str = "", said: str = "") -> None:
        path = self.save(trace, identity, what)
        page = near(self.item.config, path.with_suffix(".html"))
        told = f"{render(trace)}{said}page      {one_line(page)}\nreplay    {self.replay_line(path)}\n"
        self.item.add_report_section("call", " ".join(["tidegate", *what.split()]), told)
        self.item.user_properties.append(("tidegate_trace", str(path)))
        self.item.ihook.pytest_tidegate_counterexample(item=self.item, trace=trace, path=path)

    def save(self, trace: Trace, identity: str, what: str) -> Path:
        config = self.item.config
        directory = Path(config.getoption("--tidegate-artifacts") or str(config.getini("tidegate_artifacts")))
        store = Store(directory if directory.is_absolute() else config.rootpath / directory)
        name = named_apart(trace.scenario, identity)
        named = attrs.evolve(trace, scenario=identity)
        return store.keep(f"{name}.{what}" if what else name, named, self.replay_line)

    def replay_line(self, path: Path) -> str:
        return f"pytest {shlex.quote(self.item.nodeid)} --tidegate-replay={shlex.quote(near(self.item.config, path))}"

    def recorded(self, scenario: Scenario, identity: str) -> Trace | None:
        file = self.item.config.getoption("--tidegate-replay")
        trace = None if file is None else read(Path(str(file)))
        if trace is None or trace.scenario in (identity, scenario.name):
            return trace
        if trace.scenario == self.item.nodeid or trace.scenario.startswith(
            f"{self.item.nodeid}#"
        ):  # another exploration of this test
            return None
        said = f"{file} was recorded in {trace.scenario!r}: {scenario.name!r} is explored, and nothing is replayed"
        warnings.warn(pytest.PytestWarning(said), stacklevel=3)
        return None

    def replay(self, trace: Trace, scenario: Scenario) -> None:
        __tracebackhide__ = True
        match replay(trace, scenario):
            case Reproduced(steps):
                self.item.add_report_section("call", "tidegate", render(trace))
                raise AssertionError(
                    f"reproduced {number_of(steps, 'step')}: {scenario.name} breaks the law: {trace.law}"
                )
            case Diverged(step, reason, enabled, was):
                lines = [f"the replay diverged at step {step}: {reason}", *([f"  recorded: {was}"] if was else [])]
                lines += ["  enabled instead:", *(f"    {each}" for each in enabled)] if enabled else []
                file = shlex.quote(str(self.item.config.getoption("--tidegate-replay")))
                lines += [
                    f"  help: the scenario has changed since; explore from there: tidegate replay {file} --continue"
                ]
                raise AssertionError("\n".join(lines))
            case _ as never:
                assert_never(never)


def near(config: pytest.Config, path: Path) -> str:
    return str(path.relative_to(config.rootpath) if path.is_relative_to(config.rootpath) else path)
