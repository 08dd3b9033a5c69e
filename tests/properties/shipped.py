"""Every shipped scenario, explored at most once in a test run, whichever tests ask for it."""

from __future__ import annotations

from functools import cache

from tidegate import catalogue
from tidegate.catalogue import shipped
from tidegate.sim.report import Report, explore

NAMES = tuple(catalogue.CATALOGUE)
DESIGNS = tuple(each.name for each in catalogue.DESIGNS)
SPECIMENS = tuple(each.name for each in catalogue.SPECIMENS)


@cache
def report_on(name: str) -> Report:
    """What exploring it exhaustively answers."""
    return explore(shipped(name))
