"""Every shipped scenario, explored at most once in a test run, whichever tests ask for it."""

from __future__ import annotations

from functools import cache

from tidegate.scenarios.catalogue import CATALOGUE
from tidegate.sim.report import Report, explore
from tidegate.sim.scenario import Kind

NAMES = tuple(CATALOGUE)
KINDS = {name: make().kind for name, make in CATALOGUE.items()}
EXPECTED = {name: make().expect for name, make in CATALOGUE.items()}
SPECIMENS = tuple(name for name in NAMES if KINDS[name] is Kind.SPECIMEN)
VIOLATED = tuple(name for name in NAMES if EXPECTED[name] is not None)


@cache
def report_on(name: str) -> Report:
    """What exploring it exhaustively answers."""
    return explore(CATALOGUE[name]())
