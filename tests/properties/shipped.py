"""Every shipped scenario, explored at most once in a test run.

All tests of a scenario run in one of three processes: the designs take 60 s of CPU, the specimens as long, the sample of them a third.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from tests.length import SLOW_SPECIMENS

from tidegate import catalogue
from tidegate.catalogue import shipped
from tidegate.sim.report import Report, explore

NAMES = tuple(catalogue.CATALOGUE)
DESIGNS = tuple(each.name for each in catalogue.DESIGNS)
SPECIMENS = tuple(each.name for each in catalogue.SPECIMENS)
FAMILIES: Final = tuple({name.partition(".")[0]: name for name in SPECIMENS}.values())
"""A specimen of each protocol."""
_RARE: Final = (
    "array_push_lock.waiter",
    "partition.failure_is_done",
    "partition.queue_survives",
    "transactions.takes_from_anybody",
    "transfer.not_durable_is_done",
)
SAMPLE: Final = tuple(dict.fromkeys((*SPECIMENS[::4], *FAMILIES, *_RARE)))
"""A third of the specimens, some of each protocol: tests of traces take these. They have each kind of step, fault and breach."""
OF_DESIGNS: Final = pytest.mark.xdist_group("designs")
OF_SAMPLE: Final = pytest.mark.xdist_group("sample of specimens")
_OF_OTHERS: Final = pytest.mark.xdist_group("other specimens")


def apart(names: Iterable[str]) -> list[ParameterSet]:
    """The names as parameters, each in the group of its scenario."""
    return [pytest.param(name, id=name, marks=_marks_of(name)) for name in names]


def _marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [_group_of(name), *([pytest.mark.long] if name in SLOW_SPECIMENS else [])]


def _group_of(name: str) -> pytest.MarkDecorator:
    return OF_SAMPLE if name in SAMPLE else _OF_OTHERS if name in SPECIMENS else OF_DESIGNS


@cache
def report_on(name: str) -> Report:
    """What exploring it exhaustively answers."""
    return explore(shipped(name))
