"""Finds the scenario that a test explores with the fixture `sim`, by running the test up to there.

`tests/test_takeover.py::test_it[5]` is its first exploration; a final `#2` means the second.
Pytest's output is captured; errors are reported if there is no such scenario.
"""

from __future__ import annotations

import re
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Final, final

import attrs

from tidegate.model.errors import MissingExtra, Misuse
from tidegate.sim.scenario import Scenario

TEST: Final = re.compile(r"(?P<file>.+?\.py)::(?P<test>.+?)(?:#(?P<number>[1-9][0-9]{0,5}))?", re.DOTALL)
SOUGHT: Final = "tidegate_sought"
_SAID_MAX: Final = 5


@final
@attrs.define
class Sought:
    """The index of the requested exploration, from 0, and then its scenario."""

    place: int
    scenario: Scenario | None = None


def scenario_in(identity: str) -> Scenario:
    """The scenario that the test explores.

    Raises:
        Misuse: The test does not exist, or makes no such exploration.
    """
    match = TEST.fullmatch(identity)
    assert match is not None, "who calls has looked"
    try:
        import pytest  # noqa: PLC0415  rarely needed
    except ImportError as error:
        raise MissingExtra("a scenario in a test", "pytest", error) from error

    class Seeking:
        def pytest_configure(self, config: pytest.Config) -> None:
            config.pluginmanager.register(sought, SOUGHT)

    sought = Sought(int(match["number"] or 1) - 1)
    alone = ["-n0"] if find_spec("xdist") else []  # pytest-xdist would run it in another process
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        test = f"{Path(match['file']).resolve()}::{match['test']}"
        code = pytest.main(["-p", "no:cacheprovider", *alone, test], plugins=[Seeking()])
    if code is pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if sought.scenario is None:
        said = [line for line in out.getvalue().splitlines() if line.startswith(("E  ", "ERROR", "FAILED"))]
        raise Misuse(
            f"the test {identity} explores no such scenario with the fixture sim",
            why="\n    ".join(said[:_SAID_MAX]),
            todo="a scenario of a module is named with one colon: path.py:attr",
        )
    return sought.scenario
