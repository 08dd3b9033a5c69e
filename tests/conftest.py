"""Garbage collection, reproducible Hypothesis runs, and test tiers.

Searches create millions of small values and hardly any cycles: the default collector costs the
tests a tenth of their time, a plain search a third.
"""

from __future__ import annotations

import gc
import re
from os import environ
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants
from tests.integration.browser import HOW_TO, chromium
from tests.length import AT_LENGTH, LONG, PART, part_of

gc.set_threshold(100_000, 20, 100)
_OF_GROUP: Final = re.compile(r"@[\w ]+$")
# Hypothesis also draws constants from the project modules imported so far. A derandomised test
# would then depend on the tests that ran before it in its process, and on every constant in the
# code. No setting turns this off.
HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]  # noqa: SLF001

settings.register_profile(
    "tidegate",
    max_examples=int(environ.get("TIDEGATE_EXAMPLES", "200" if AT_LENGTH else "30")),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# This number of examples misses a bug that shows in one of 3,000 once in ten million times; a
# finding ends the search.
settings.register_profile(
    "planted",
    settings.get_profile("tidegate"),
    max_examples=50_000,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile("tidegate")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for each in items:
        if _OF_GROUP.sub("", each.nodeid).endswith(LONG):
            each.add_marker("long")
    kept = [each for each in items if _is_run(each)]
    config.hook.pytest_deselected(items=[each for each in items if not _is_run(each)])
    items[:] = kept


def _is_run(item: pytest.Item) -> bool:
    needs_browser = "browser" in getattr(item, "fixturenames", ())
    return not (
        (item.get_closest_marker("long") and not AT_LENGTH)
        or (needs_browser and chromium() is None)
        or (PART and part_of(item.nodeid) != PART)
    )


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Freeze what the modules create, so that collections do not scan all tests (1 to 2 s)."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if chromium() is None:
        terminalreporter.write_line(f"The page tests were left out, because {HOW_TO}.")


def pytest_unconfigure() -> None:
    """Freeze what is left: collecting it several times at exit took 10 s."""
    gc.freeze()
