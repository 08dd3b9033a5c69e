"""Production loads no simulator, and each extra is enough for its modules."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

OF_TESTS: Final = re.compile(r"tidegate\.(sim|(\w+\.)*(laws|scenarios|specimens|strategies))(\.|$)")
"""The modules of the core for exploration and its subjects."""
SHOWS: Final = "import sys; import {}; print(*sys.modules)"

IMPORT: Final = "from importlib import import_module\nfor name in {!r}:\n    import_module(name)\n"
ADAPTERS: Final = Path(__file__).parents[2] / "src" / "adapters" / "tidegate_adapters"
CLI: Final = [f"tidegate_adapters.cli.{file.stem}" for file in sorted((ADAPTERS / "cli").glob("[!_]*.py"))]
PROMISED: Final[Mapping[str, str]] = {
    "": IMPORT.format(["tidegate.catalogue", "tidegate_adapters.embedded.store", "tidegate_adapters.observe.recorder"]),
    "mongo": IMPORT.format(
        [f"tidegate_adapters.{each}" for each in ("mongo", "black_pipe", "payloads", "reactive")],
    ),
    "kafka": IMPORT.format(["tidegate_adapters.kafka.worker"]),
    "worker": IMPORT.format(["tidegate_adapters.shell.application", "tidegate_adapters.kafka.run"]),
    "reactive": IMPORT.format(["tidegate_adapters.shell.application", "tidegate_adapters.reactive.command_line"]),
    "orchestrator": IMPORT.format(
        ["tidegate_adapters.shell.application", "tidegate_adapters.orchestrator.command_line"]
    ),
    "cli": IMPORT.format(CLI),
    "yaml": "import yaml",
    "zstd": IMPORT.format(["tidegate_adapters.kit.payloads"]),
    "tracing": IMPORT.format(["tidegate_adapters.observe.tracing"]),
    "metrics": IMPORT.format(["tidegate_adapters.kafka.metrics"]),
    "hypothesis": IMPORT.format(["tidegate.strategies"]),
    "pytest": IMPORT.format(["tidegate_adapters.testing.pytest_plugin", "tidegate_adapters.testing.sim_fixture"]),
    "dask": (
        "from tidegate.sim.runs.exploration import Exploration\n"
        "from tidegate_adapters.exploring.parallel import Order, in_processes, spread\n"
        "Order('transition', Exploration()).sampler()\n"
    ),
}
"""A program for each extra of `pyproject.toml`; "" is an install without extras."""
REFUSES: Final = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
"""
"""Makes the imports of some packages fail, as if they were not installed."""


@pytest.mark.parametrize("module", ["driver", "mongo", "kafka", "reactive"])
def test_what_runs_in_production_loads_no_simulator(module: str) -> None:
    """The simulator and its subjects are over a hundred modules: most of the import time."""
    shows = SHOWS.format(f"tidegate_adapters.{module}")
    loaded = subprocess.run([sys.executable, "-c", shows], capture_output=True, text=True, check=True).stdout.split()

    assert f"tidegate_adapters.{module}" in loaded
    assert [name for name in loaded if OF_TESTS.match(name)] == []


def test_the_pattern_knows_a_simulator() -> None:
    shows = SHOWS.format("tidegate_adapters.embedded.store")
    loaded = subprocess.run([sys.executable, "-c", shows], capture_output=True, text=True, check=True).stdout.split()

    assert any(map(OF_TESTS.match, loaded))
    assert OF_TESTS.match("tidegate.leases.checks.scenarios.lease")
    assert OF_TESTS.match("tidegate.laws")
    assert not OF_TESTS.match("tidegate.model.documents")


@pytest.mark.parametrize(
    ("loads", "no"),
    [
        ("import tidegate_adapters.orchestrator", r"tidegate\.consumer"),
        ("import tidegate_adapters.reactive", r"tidegate\.consumer"),
        ("import tidegate.sim", r"tidegate\.(consumer|reactive)"),
        (
            "from tidegate.catalogue import CATALOGUE; CATALOGUE['leader']",
            r"tidegate\.(?!leases)\w+\.(scenarios|specimens)",
        ),
    ],
)
def test_a_subject_loads_no_other(loads: str, no: str) -> None:
    """Classes take two thirds of the import time, and a subject has about a hundred."""
    shows = f"import sys; {loads}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", shows], capture_output=True, text=True, check=True).stdout.split()

    assert [name for name in loaded if re.match(no, name)] == []


def extras() -> dict[str, set[str]]:
    project = tomllib.loads((ADAPTERS.parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    named = {
        extra: {re.split(r"\W", each)[0] for each in every} for extra, every in project["optional-dependencies"].items()
    }
    return {"": set(), **named}


@pytest.mark.parametrize("extra", PROMISED)
def test_an_extra_is_all_that_its_modules_need(extra: str) -> None:
    """Packages of other extras are missing. Transitive dependencies do not count."""
    others = sorted(set().union(*extras().values()) - extras()[extra])
    program = REFUSES.format(others) + PROMISED[extra]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_extra_promises_something() -> None:
    """Also tests that the refused packages really fail to import."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSES.format(["click"]) + PROMISED["cli"]], capture_output=True, text=True, check=False
    )

    configuring = REFUSES.format(["cattrs"]) + IMPORT.format(["tidegate_adapters.shell.application"])
    told = subprocess.run([sys.executable, "-c", configuring], capture_output=True, text=True, check=False).stderr

    assert "pip install 'tidegate[worker]', or 'tidegate[reactive]', or 'tidegate[orchestrator]'" in told
    assert set(PROMISED) == extras().keys()
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'click'"
