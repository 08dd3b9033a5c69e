"""What runs in production loads no simulator."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import pytest

OF_TESTS: Final = re.compile(r"tidegate\.(sim|(\w+\.)*(laws|scenarios|specimens|strategies))(\.|$)")
"""The modules of the core that explore, or that are explored."""
SHOWS: Final = "import sys; import {}; print(*sys.modules)"


@pytest.mark.parametrize("module", ["driver", "mongo", "kafka"])
def test_what_runs_in_production_loads_no_simulator(module: str) -> None:
    """The simulator is forty modules, and what it explores some hundred more: they took most of the time of an import."""
    shows = SHOWS.format(f"tidegate_adapters.{module}")
    loaded = subprocess.run([sys.executable, "-c", shows], capture_output=True, text=True, check=True).stdout.split()

    assert f"tidegate_adapters.{module}" in loaded
    assert [name for name in loaded if OF_TESTS.match(name)] == []


def test_the_pattern_knows_a_simulator() -> None:
    """The embedded store is the simulated world."""
    shows = SHOWS.format("tidegate_adapters.embedded")
    loaded = subprocess.run([sys.executable, "-c", shows], capture_output=True, text=True, check=True).stdout.split()

    assert any(map(OF_TESTS.match, loaded))
    assert OF_TESTS.match("tidegate.leases.scenarios.lease")
    assert OF_TESTS.match("tidegate.laws")
    assert not OF_TESTS.match("tidegate.model.documents")
