"""The pytest plug-in: fixtures, a mark and options, and replay commands for failures.

    @pytest.mark.tidegate(runs=500)
    def test_takeover(sim: Sim) -> None:
        sim.explore(takeover())

    def test_worker(seeded: Seeded) -> None:  # asyncio code on the loop of `testing.event_loop`
        seeded.run(main)

    def test_square(on_embedded: OnEmbedded) -> None:  # your app on a fresh in-memory store
        on_embedded(app, test)  # awaits test(store)

    def test_bank(black_pipe: MakePipe) -> None:  # a real MongoDB behind `testing.black_pipe`
        pipe = black_pipe(uri, Rule("update", Action.CUT_REPLY, times=1))

This module has only pytest's hooks; the first test with `sim` imports the rest.

The session's seed is random unless `--tidegate-seed` or TIDEGATE_SEED sets it. The header shows it,
and pytest-xdist's workers receive it. An exploration's seed is a digest of it, the test's id and
the exploration's place in the test, so changes of other tests do not affect it.
"""

from __future__ import annotations

import os
import secrets
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import pytest

from tidegate_adapters.base.redaction import one_line

if TYPE_CHECKING:
    from tidegate.sim.runs.report import Report
    from tidegate.sim.trace.trace import Trace
    from tidegate_adapters.testing.app import OnEmbedded
    from tidegate_adapters.testing.black_pipe import BlackPipe, MakePipe, Rule
    from tidegate_adapters.testing.seeded import Seeded
    from tidegate_adapters.testing.sim_fixture import Sim

_SEED: Final = pytest.StashKey[str]()
_MARK: Final = (
    "tidegate(runs, seed, faults, policy, states_max, faults_max): how the fixture `sim` explores in this test"
)
_FOUND: Final = "tidegate_counterexample"
"""Test property: a counterexample's law and page, for JUnit XML and the summary."""
_REPORT: Final = "tidegate_report"
"""Test property: an exploration's report line, for JUnit XML and pytest-xdist."""


class Hooks:
    """Hooks for other plug-ins."""

    @pytest.hookspec()
    def pytest_tidegate_report(self, item: pytest.Item, report: object) -> None:
        """Called after an exploration, with a `tidegate.sim.Report`."""

    @pytest.hookspec()
    def pytest_tidegate_counterexample(self, item: pytest.Item, trace: object, path: Path) -> None:
        """Called when a `tidegate.sim.Trace` is stored; after random runs also if shrunk."""


class _Worker(Protocol):
    workerinput: dict[str, str]
    config: pytest.Config


class _Distributing:
    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: _Worker) -> None:
        node.workerinput["tidegate_seed"] = node.config.stash[_SEED]


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tidegate", "tidegate: how the fixture `sim` explores")
    group.addoption("--tidegate-runs", type=int, metavar="N", help="Make N random runs, not an exhaustive search.")
    group.addoption("--tidegate-seed", metavar="S", help="Of the random runs; also TIDEGATE_SEED.")
    group.addoption(
        "--tidegate-loop-seed",
        type=int,
        metavar="S",
        help="Make one run on the deterministic event loop, with this seed.",
    )
    group.addoption("--tidegate-policy", metavar="NAME", help="How random runs choose: random, pct, swarm, portfolio.")
    group.addoption(
        "--tidegate-faults", metavar="KINDS", help="Which faults may strike: none, all, or some, with commas."
    )
    group.addoption(
        "--tidegate-max-faults", type=int, metavar="N", help="A run may have N faults, where the scenario allows more."
    )
    group.addoption("--tidegate-max-states", type=int, metavar="N", help="Stop an exhaustive search after N states.")
    group.addoption("--tidegate-replay", metavar="FILE", help="Replay this counterexample in its scenario.")
    group.addoption("--tidegate-no-shrink", action="store_true", help="Leave a sampled counterexample as it was found.")
    group.addoption("--tidegate-profile", metavar="NAME", help="Settings from [tool.tidegate.profiles.NAME].")
    group.addoption("--tidegate-artifacts", metavar="DIR", help="Where counterexamples go.")
    group.addoption("--tidegate-stats", action="store_true", help="List every exploration at the end.")
    parser.addini("tidegate_profile", "The profile where --tidegate-profile names none.", default="")
    parser.addini("tidegate_artifacts", "Where counterexamples go.", default=".tidegate/failures")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARK)
    config.pluginmanager.register(_Distributing(), "tidegate_distributing")
    sent = cast("dict[str, str]", getattr(config, "workerinput", {}))
    given = config.getoption("--tidegate-seed") or os.environ.get("TIDEGATE_SEED")
    config.stash[_SEED] = sent.get("tidegate_seed") or given or str(secrets.randbelow(2**32))
    _profile(config)  # an unknown name is an error before any test runs


def _profile(config: pytest.Config) -> dict[str, object]:
    name = _profile_name(config)
    if not name:
        return {}
    file = config.rootpath / "pyproject.toml"
    try:
        found: object = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"tidegate: cannot read {file}: {error}") from error
    tables = {"tool": "[tool]", "tidegate": "[tool.tidegate]", "profiles": "[tool.tidegate.profiles]"}
    for key, table in tables.items():
        found = _table(_table(found, file.name).get(key, {}), f"{table} in {file.name}")
    profiles = cast("dict[str, object]", found)
    if name not in profiles:
        there = ", ".join(profiles) or "none"
        raise pytest.UsageError(f"tidegate: there is no profile {name!r} in {file.name}; there are: {there}")
    return _table(profiles[name], f"the profile {name!r} in {file.name}")


def _table(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise pytest.UsageError(f"tidegate: {what} is a table, and not {value!r}")
    return cast("dict[str, object]", value)


def _profile_name(config: pytest.Config) -> str:
    return str(config.getoption("--tidegate-profile") or config.getini("tidegate_profile"))


def pytest_report_header(config: pytest.Config) -> str:
    return f"tidegate: profile {_profile_name(config) or 'default'}, seed {config.stash[_SEED]}"


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Sim:
    """Explores scenarios by mark, profile and options; a counterexample fails the test."""
    from tidegate_adapters.testing.sim_fixture import Sim, settings  # noqa: PLC0415  other tests need no import

    item = cast("pytest.Item", request.node)
    return Sim(item, settings(item, _profile(request.config)), request.config.stash[_SEED])


@pytest.fixture
def on_embedded() -> OnEmbedded:
    """Awaits an async function of a test within `app.testing()`, with its store."""
    from tidegate_adapters.testing.app import on_embedded  # noqa: PLC0415  other tests need no import

    return on_embedded


@pytest.fixture
def seeded(request: pytest.FixtureRequest) -> Seeded:
    """Runs asyncio code on the deterministic event loop with many seeds."""
    from tidegate_adapters.testing.seeded import RUNS, Seeded, seeds  # noqa: PLC0415  other tests need no import
    from tidegate_adapters.testing.sim_fixture import settings  # noqa: PLC0415  likewise

    item, only = cast("pytest.Item", request.node), request.config.getoption("--tidegate-loop-seed")
    how = settings(item, _profile(request.config))
    session = how.seed or request.config.stash[_SEED]
    return Seeded(
        item.nodeid,
        seeds(f"{session}\0{item.nodeid}") if only is None else repeat(only),
        1 if only is not None else how.runs or RUNS,
    )


@pytest.fixture
def black_pipe() -> Iterator[MakePipe]:
    """Starts fault-injecting proxies for a MongoDB: `black_pipe(uri, Rule(...))`."""
    from tidegate_adapters.testing.black_pipe import BlackPipe  # noqa: PLC0415  needs an extra

    with ExitStack() as pipes:

        def make(uri: str, *rules: Rule, port: int = 0, seed: int = 0) -> BlackPipe:
            return pipes.enter_context(BlackPipe(uri, *rules, port=port, seed=seed))

        yield make


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Show only the user's frames of user errors and misuse."""
    failed = call.excinfo
    if failed is None or item.config.getoption("fulltrace") or "tidegate.model.errors" not in sys.modules:
        return
    from tidegate.model.errors import InternalError, TidegateError  # noqa: PLC0415  it is there
    from tidegate_adapters.base.errors import is_of_tidegate, is_the_users_file, users_frames  # noqa: PLC0415  likewise

    files = [str(each.frame.code.raw.co_filename) for each in failed.traceback]
    is_told = isinstance(failed.value, TidegateError) and not isinstance(failed.value, InternalError)
    if any(map(is_of_tidegate, files)) and (is_told or is_the_users_file(files[-1])):
        failed.traceback = type(failed.traceback)(users_frames(failed.tb) or failed.tb)


def pytest_tidegate_report(item: pytest.Item, report: Report) -> None:
    item.user_properties.append((_REPORT, _report_line(report)))


def pytest_tidegate_counterexample(item: pytest.Item, trace: Trace, path: Path) -> None:
    from tidegate_adapters.testing.sim_fixture import near  # noqa: PLC0415  already imported

    shrunk = ", shrunk" if trace.original is not None else ""
    page = near(item.config, path.with_suffix(".html"))
    item.user_properties.append(
        (_FOUND, one_line(f"{trace.scenario} breaks the law: {trace.law}{shrunk}; page: {page}"))
    )


def _report_line(report: Report) -> str:
    name, reason = one_line(report.scenario), f" ({one_line(report.reason)})" if report.reason else ""
    return f"{report.verdict.value}: {name}, {report.states:,} states, {report.transitions:,} transitions{reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    explorations = _said(terminalreporter, _REPORT)
    if not explorations:
        return
    verdicts = Counter(text.partition(":")[0] for _, text in explorations)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    terminalreporter.section("tidegate", sep="-")
    terminalreporter.write_line(f"{len(explorations)} explorations: {counts}; seed {config.stash[_SEED]}")
    for test, text in _said(terminalreporter, _FOUND):
        terminalreporter.write_line(f"{test}: {text}")
    for test, text in explorations if config.getoption("--tidegate-stats") else ():
        terminalreporter.write_line(f"{test}: {text}")


def _said(terminalreporter: pytest.TerminalReporter, what: str) -> list[tuple[str, str]]:
    reports = (each for some in terminalreporter.stats.values() for each in some if isinstance(each, pytest.TestReport))
    return [
        (report.nodeid, str(text))
        for report in reports
        if report.when == "call"
        for name, text in report.user_properties
        if name == what
    ]
