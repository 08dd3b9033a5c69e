"""The pages on operation name all commands, settings and metrics."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from prometheus_client import Metric

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli.command_line import parsed
from tidegate_adapters.cli.orchestrator import orchestrator
from tidegate_adapters.cli.reactive import reactive
from tidegate_adapters.orchestrator import metrics as orchestrator_metrics
from tidegate_adapters.orchestrator import monitor as orchestrator_monitor
from tidegate_adapters.orchestrator import stats as orchestrator_tallies
from tidegate_adapters.orchestrator.status import BACKLOG_MAX, Backlog
from tidegate_adapters.reactive import metrics as reactive_metrics
from tidegate_adapters.reactive.monitor import of_health
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.reactive.stats import NOTHING
from tidegate_adapters.shell.configuration import configured
from tidegate_adapters.shell.terminal import Terminal

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "operating.md").read_text("utf-8")
TASKS: Final = (DOCS / "orchestrator.md").read_text("utf-8")
COMMANDS: Final = re.findall(r"^    (tidegate .*)$", PAGE + TASKS, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_one(command: str) -> None:
    name, *arguments = shlex.split(command)

    assert name == "tidegate"
    assert callable(parsed(arguments, Terminal(sys.stdout, sys.stderr, {})))


@pytest.mark.parametrize("group", [reactive, orchestrator], ids=["reactive", "orchestrator"])
def test_every_command_is_shown(group: click.Group) -> None:
    assert {shlex.split(each)[2] for each in COMMANDS if f" {group.name} " in each} == set(group.commands)


def test_each_setting_is_what_it_is_by_default() -> None:
    rows = {each.path: each.value for each in configured(ReactiveSettings(database="shop")).rows}
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]*\|$", PAGE, re.MULTILINE))

    assert told
    assert told == {name: rows[name] for name in told}


@pytest.mark.parametrize(
    ("page", "prefix", "of"),
    [
        (PAGE, "tidegate_reactive_", reactive_metrics.families),
        (TASKS, "tidegate_orchestrator_", orchestrator_metrics.families),
    ],
    ids=["reactive", "orchestrator"],
)
def test_each_metric_is_one_and_all_are_there(page: str, prefix: str, of: Callable[[], Iterator[Metric]]) -> None:
    told = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|([^|]+)\|", page, re.MULTILINE)
    families = {each.name: each for each in of()}

    assert {f"{prefix}{name}": kind for name, kind, _ in told} == {name: each.type for name, each in families.items()}
    for name, _, labels in told:
        assert re.findall(r"\w+", labels) == list(getattr(families[f"{prefix}{name}"], "_labelnames", ()))


def test_each_exit_code_is_one() -> None:
    told = {int(code) for codes in re.findall(r"^\| ([0-9, ]+) \| ", PAGE, re.MULTILINE) for code in codes.split(",")}

    assert told <= set(ExitCode)
    assert {ExitCode.NOTHING_SELECTED, ExitCode.INCONCLUSIVE} <= told


def test_health_has_the_fields_that_are_shown() -> None:
    shown = json.loads(re.findall(r'^    (\{"healthy".*)$', PAGE, re.MULTILINE)[0])
    answered = json.loads(of_health(NOTHING, 0.4, {"shop": 1.2}, 300_000_000).content)

    assert shown.keys() == answered.keys()
    assert shown["databases"][0].keys() == answered["databases"][0].keys()


def test_health_of_an_orchestrator_has_the_fields_that_are_shown() -> None:
    (shown,) = map(json.loads, re.findall(r'^    (\{"healthy".*)$', TASKS, re.MULTILINE))
    seen = orchestrator_tallies.NOTHING._replace(
        backlogs=(Backlog("default", 3, 301_400_000),), beaten_s=1.2, moved_s=312.5
    )

    assert json.loads(orchestrator_monitor.of_health(seen, 300_000_000).content) == shown
    assert f"counted up to {BACKLOG_MAX:,}" in TASKS
