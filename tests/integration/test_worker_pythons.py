"""The worker runs on every Python, with eager tasks too; its dependencies are pure Python here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from tests.integration.test_pythons import VERSIONS, interpreter

NEEDED: Final = ("attr", "attrs", "aiokafka", "async_timeout", "packaging", "typing_extensions")
SOURCES: Final = Path(__file__).parents[2] / "src"
PROGRAM: Final = """
import asyncio, json, sys
from tidegate.model.records import Record
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun
from tidegate_adapters.kafka.worker import Worker

handled = []

async def handle(record):
    await asyncio.sleep(0)
    handled.append((record.partition, record.offset))
    if record.offset == 7 and handled.count((record.partition, 7)) == 1:
        raise ValueError("once")

def at_once(record):
    handled.append((record.partition, record.offset))

async def main(handler):
    if sys.argv[1] == "eager":
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    log = EmbeddedLog(Record("orders", n % 2, 0, None, b"x") for n in range(600))
    found = await EmbeddedRun(Worker(["orders"], handler, bootstrap="b:1", group="g", retries=1), log).run()
    return [found.is_whole, found.handled, found.failed, sorted(found.positions.values())]

print(json.dumps([asyncio.run(main(handle)), asyncio.run(main(at_once)), len(handled), len({*handled})]))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    for name in NEEDED:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            skipped = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(origin.parent, folder / name, ignore=skipped)
        else:
            shutil.copy(origin, folder)
    return folder


@pytest.mark.parametrize(
    ("version", "way"),
    [
        pytest.param(version, way, marks=pytest.mark.long if version == "3.12" else ())
        for version in VERSIONS
        for way in ("plain", "eager")
        if (version, way) != ("3.11", "eager")
    ],
)
def test_a_worker_runs(packages: Path, version: str, way: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    paths = os.pathsep.join(map(str, (SOURCES / "core", SOURCES / "adapters", packages)))
    ran = subprocess.run(
        [python, "-c", PROGRAM, way], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[True, 600, 2, [300, 300]], [True, 600, 0, [300, 300]], 1_202, 600]
