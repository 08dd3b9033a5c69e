"""What holds for every test: the collector of cycles is patient, Hypothesis draws alike, and a run without a browser says so.

Searches make millions of small values and hardly a cycle, and the collector looks through all that is young after every
seven hundred of them: the tests take a tenth longer, a plain search a third.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from os import environ

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants
from tests.integration.browser import HOW_TO
from tests.length import AT_LENGTH, LONG

gc.set_threshold(100_000, 20, 100)

# Hypothesis also draws the constants of whatever modules of ours are imported by then: a derandomised test draws otherwise in each
# process, by the tests that ran there before it, and with each constant that is written anywhere. There is no setting for that.
HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]  # noqa: SLF001

settings.register_profile(
    "tidegate",
    max_examples=int(environ.get("TIDEGATE_EXAMPLES", "50")),
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
    """Mark what is in `LONG`; `make test` leaves out what is marked so, and pytest counts it as deselected."""
    for each in items:
        if each.nodeid.endswith(LONG):
            each.add_marker("long")
    if not AT_LENGTH:
        config.hook.pytest_deselected(items=[each for each in items if each.get_closest_marker("long")])
        items[:] = [each for each in items if not each.get_closest_marker("long")]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Below all else, for skipped tests are a letter among thousands."""
    yield
    skipped = [each for each in terminalreporter.stats.get("skipped", ()) if HOW_TO in str(each.longrepr)]
    if skipped:
        terminalreporter.section("the page was not tested in a browser", yellow=True)
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: the page {HOW_TO}.")


def pytest_unconfigure() -> None:
    """The collector need not look through all that is left, several times, before the process ends: that took ten seconds."""
    gc.freeze()
