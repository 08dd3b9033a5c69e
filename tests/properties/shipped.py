"""Explores each shipped scenario at most once per test run.

All tests of a scenario run in one of three processes. The designs take 60 s of CPU, the specimens
as long, and the sample a third of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from tests.length import STATES_MAX

from tidegate import catalogue
from tidegate.catalogue import shipped
from tidegate.sim.runs.report import Report, explore

NAMES = tuple(catalogue.CATALOGUE)
DESIGNS = tuple(each.name for each in catalogue.DESIGNS)
SPECIMENS = tuple(each.name for each in catalogue.SPECIMENS)
FAMILIES: Final = tuple({name.partition(".")[0]: name for name in SPECIMENS}.values())
_RARE: Final = (
    "array_push_lock.waiter",
    "partition.dead_letter_is_optional",
    "partition.failure_is_done",
    "partition.queue_survives",
    "shutdown.waits_for_the_group",
    "transactions.takes_from_anybody",
    "transfer.not_durable_is_done",
)
COUNTS: Final[Mapping[str, list[object]]] = json.loads(
    (Path(__file__).parent / "state_counts.json").read_text(encoding="utf-8")
)
"""Change an entry only if you know why it differs."""
LARGE: Final = frozenset(
    name
    for name in NAMES
    if "." in name and name not in _RARE and isinstance(states := COUNTS[name][1], int) and states > STATES_MAX
)
"""Scopes that `make test` does not explore. It does explore the design of each protocol."""
SAMPLE: Final = tuple(name for name in dict.fromkeys((*SPECIMENS[::4], *FAMILIES, *_RARE)) if name not in LARGE)
"""A third of the specimens, with every kind of step, fault and breach; for tests of traces."""
OF_DESIGNS: Final = pytest.mark.xdist_group("designs")
OF_SAMPLE: Final = pytest.mark.xdist_group("sample of specimens")
_OF_OTHERS: Final = pytest.mark.xdist_group("other specimens")


def apart(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, id=name, marks=_marks_of(name)) for name in names]


def _marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [_group_of(name), *([pytest.mark.long] if name in LARGE else [])]


def _group_of(name: str) -> pytest.MarkDecorator:
    return OF_SAMPLE if name in SAMPLE else _OF_OTHERS if name in SPECIMENS else OF_DESIGNS


@cache
def report_on(name: str) -> Report:
    return explore(shipped(name))
