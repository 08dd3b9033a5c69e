"""The wheel: two typed packages and nothing else; the core works from it alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from email import message_from_string
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from tidegate import __version__

ROOT: Final = Path(__file__).parents[2]
NEEDED: Final = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")
DIST_INFO: Final = f"tidegate-{__version__}.dist-info"
SUFFIXES: Final = {
    "tidegate": {".py", ".typed"},
    "tidegate_adapters": {".py", ".typed", ".js", ".css", ".html"},
}
EXTRAS: Final = {
    "mongo",
    "kafka",
    "cli",
    "hypothesis",
    "pytest",
    "dask",
    "worker",
    "reactive",
    "orchestrator",
    "yaml",
    "metrics",
    "tracing",
    "zstd",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in NEEDED:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(tree)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def unzipped(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unzipped")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(unzipped: Path) -> Message:
    return message_from_string((unzipped / DIST_INFO / "METADATA").read_text("utf-8"))


def contents(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_the_top_level_is_the_two_packages(wheel: Path, unzipped: Path) -> None:
    assert {each.name for each in unzipped.iterdir()} == {"tidegate", "tidegate_adapters", DIST_INFO}
    assert wheel.name == f"tidegate-{__version__}-py3-none-any.whl"


@pytest.mark.parametrize(("package", "root"), [("tidegate", "core"), ("tidegate_adapters", "adapters")])
def test_every_module_is_in_it_and_nothing_else(unzipped: Path, package: str, root: str) -> None:
    source = {name for name in contents(ROOT / "src" / root / package) if "__pycache__" not in name}

    assert contents(unzipped / package) == source
    assert "py.typed" in source
    assert {Path(name).suffix for name in source} == SUFFIXES[package]


def test_the_licence_and_the_command_are_in_it(unzipped: Path) -> None:
    """The core has the command, because it must report missing adapters."""
    files = contents(unzipped / DIST_INFO)
    commands = (unzipped / DIST_INFO / "entry_points.txt").read_text("utf-8")

    assert "licenses/LICENSE" in files
    assert commands.split("\n")[:2] == ["[console_scripts]", "tidegate = tidegate.__main__:main"]


def test_attrs_is_all_it_depends_on(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    extras = {extra: [each for each in required if each.endswith(f"extra == '{extra}'")] for extra in EXTRAS}
    base = [each for each in required if "extra ==" not in each]

    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS
    assert [each.partition(">")[0] for each in base] == ["attrs"]
    assert all(extras.values())
    assert len(required) == 1 + sum(map(len, extras.values()))
    assert (metadata["Name"], metadata["Version"]) == ("tidegate", __version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")


@pytest.fixture(scope="module")
def alone(unzipped: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("attrs")
    for name in ("attr", "attrs"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent, target_is_directory=True)
    return f"import sys; sys.path[:0] = {[str(unzipped), str(folder)]!r}\n"


def python(program: str) -> subprocess.CompletedProcess[str]:
    isolated = [sys.executable, "-I", "-S", "-B", "-W", "error", "-c", program]
    return subprocess.run(isolated, capture_output=True, text=True, check=False, timeout=120)


def test_from_the_wheel_alone_a_scenario_is_explored(alone: str, unzipped: Path) -> None:
    program = (
        "import tidegate.catalogue as catalogue\n"
        "from tidegate.sim.runs.report import explore\n"
        "print(catalogue.__file__)\n"
        "for name in ('array_push_lock.lost_reply', 'recovery.no_patience', 'array_push_lock'):\n"
        "    report = explore(catalogue.shipped(name))\n"
        "    print(name, report.verdict, report.ok, len(report.unmerged))\n"
    )
    done = python(alone + program)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        str(unzipped / "tidegate" / "catalogue.py"),
        "array_push_lock.lost_reply violated True 0",
        "recovery.no_patience violated True 0",
        "array_push_lock complete True 0",
    ]


def test_from_the_wheel_alone_the_command_says_what_to_install(alone: str) -> None:
    done = python(f"{alone}import runpy; runpy.run_module('tidegate', run_name='__main__')")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: needs extra: pip install 'tidegate[cli]'\n"


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("tidegate_adapters.mongo", "connect", "mongo"),
        ("tidegate_adapters.kafka", "Worker", "kafka"),
        ("tidegate.strategies", "documents", "hypothesis"),
    ],
)
def test_from_the_wheel_alone_a_module_says_which_extra_it_needs(
    alone: str, module: str, name: str, extra: str
) -> None:
    done = python(
        f"{alone}from tidegate.model.errors import MissingExtra\n"
        f"try:\n    from {module} import {name}\nexcept MissingExtra as missing:\n    print(missing.what, missing.todo, sep='|')"
    )

    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.strip() == f"{module} needs an extra|pip install 'tidegate[{extra}]'"
