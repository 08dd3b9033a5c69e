"""What holds for every test: the collector of cycles is patient, Hypothesis draws alike, and tiers are selected.

Searches make millions of small values and hardly a cycle, and the collector looks through all that is young after every
seven hundred of them: the tests take a tenth longer, a plain search a third.
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
"""What pytest-xdist puts behind the id of a test that is in a group."""

# Hypothesis also draws the constants of whatever modules of ours are imported by then: a derandomised test draws otherwise in each
# process, by the tests that ran there before it, and with each constant that is written anywhere. There is no setting for that.
HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]  # noqa: SLF001

settings.register_profile(
    "tidegate",
    max_examples=int(environ.get("TIDEGATE_EXAMPLES", "200" if AT_LENGTH else "30")),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# As many as a bug that shows in one of three thousand is missed in once in ten million times; what is found ends the search.
settings.register_profile(
    "planted",
    settings.get_profile("tidegate"),
    max_examples=50_000,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile("tidegate")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is in `LONG`, and leave out what is marked so, what needs a browser that is not there, and other parts."""
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
    """The collector looks through what a module makes, and not each time through all tests: that took a second or two."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if chromium() is None:
        terminalreporter.write_line(f"The page tests were left out, because {HOW_TO}.")


def pytest_unconfigure() -> None:
    """The collector need not look through all that is left, several times, before the process ends: that took ten seconds."""
    gc.freeze()
