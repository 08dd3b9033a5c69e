"""Reports and traces are the same under every hash seed, and counts on every Python.

Interpreters, from the path and pyenv, see only the core and attrs; missing ones are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from tests.length import HASH_SEEDS

CORE: Final = Path(__file__).parents[2] / "src" / "core"
VERSIONS: Final = ("3.11", "3.12", "3.13")
pytestmark = pytest.mark.xdist_group("pythons")
PROGRAM: Final = """
import json, sys
from random import Random
from tidegate.catalogue import shipped
from tidegate.consumer.checks.scenarios.partition import partition
from tidegate.leases.checks.scenarios.small_lock import small_lock
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.report import explore
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace_json import encoded

explored = [
    explore(small_lock(2, 2, 2, 2)),
    explore(shipped("array_push_lock.stall.2")),
    explore(shipped("transition.only_the_last_request_id")),
    explore(partition(records=1, rebalances=1, budget=2)),
    explore(shipped("transition.request_id_ignored"), Exploration(runs=500, steps_max=200), seeding=Random),
]


def plain(trace):
    # all but what says which Python it was recorded with
    return trace and {name: part for name, part in encoded(trace).items() if name != "meta"}


json.dump(
    [
        {
            "report": report.to_json(),
            "unmerged": report.unmerged,
            "seed": report.seed,
            "trace": plain(report.trace),
            "story": report.trace and render(report.trace),
        }
        for report in explored
    ],
    sys.stdout,
)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    for name in ("attr", "attrs"):
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        (folder / name).symlink_to(Path(found.origin).parent, target_is_directory=True)
    return folder


@cache
def explored(python: str, packages: Path, seed: str) -> str:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join((str(CORE), str(packages))),
        "PYTHONHASHSEED": seed,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [python, "-s", "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def candidates(version: str) -> Iterator[str]:
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        yield sys.executable
    if (named := shutil.which(f"python{version}")) is not None:
        yield named
    roots = (os.environ.get("PYENV_ROOT"), "~/.pyenv")
    for root in (Path(root).expanduser() for root in roots if root):
        yield from (str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python")))


@cache
def interpreter(version: str) -> str | None:
    """A name on the path may be a shim that leads nowhere."""
    asks = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates(version):
        said = subprocess.run([candidate, "-c", asks], capture_output=True, text=True, check=False, timeout=60)
        if said.returncode == 0 and said.stdout.strip() == version:
            return candidate
    return None


def test_runs_under_different_hash_seeds_give_the_same_reports_and_traces(packages: Path) -> None:
    runs = {explored(sys.executable, packages, str(seed)) for seed in range(HASH_SEEDS)}
    assert len(runs) == 1
    (run,) = runs
    verdicts = [found["report"]["verdict"] for found in json.loads(run)]
    assert verdicts == ["complete", "violated", "violated", "complete", "violated"]


@pytest.mark.parametrize(
    "version", [*(pytest.param(each, marks=pytest.mark.long) for each in ("3.11", "3.12")), "3.13"]
)
def test_every_python_counts_the_same(version: str, packages: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on the path or under pyenv")
    expected: list[dict[str, Any]] = json.loads(explored(sys.executable, packages, "0"))
    assert json.loads(explored(python, packages, "1")) == expected
