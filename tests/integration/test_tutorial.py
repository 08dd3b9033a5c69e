from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.command_lines import said_here
from tests.integration.servers import MongoServer

DOCS = Path(__file__).parents[2] / "docs"
PARTS = re.compile(
    r"<!-- file: (?P<file>\S+) -->\n```(?:python|toml|json)\n(?P<code>.*?)```|```console\n\$ (?P<command>.*?)\n(?P<shown>.*?)```",
    re.DOTALL,
)


@pytest.mark.parametrize(
    ("page", "asked"), [("tutorial", 6), ("recording", 3), ("time", 3), ("runtime", 3), ("worker", 8), ("leases", 3)]
)
def test_whoever_types_it_along_sees_what_it_shows(
    page: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    type_along(page, asked, tmp_path, capsys)


@pytest.mark.parametrize(("page", "asked"), [pytest.param("resilience", 2, marks=pytest.mark.long), ("mongodb", 3)])
def test_whoever_types_along_what_needs_a_mongodb_sees_what_it_shows(
    page: str,
    asked: int,
    tmp_path: Path,
    *,
    mongod: MongoServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MONGODB_URI", mongod.uri)
    type_along(page, asked, tmp_path, capsys)


def type_along(page: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, commands = (DOCS / f"{page}.md").read_text(), 0
    for part in PARTS.finditer(text):
        if part["file"]:
            file = tmp_path / part["file"]
            before = file.read_text() + "\n\n" if file.exists() else ""
            file.write_text(before + part["code"])
            continue
        printed = iter(lines(run(shlex.split(part["command"]), tmp_path, capsys)))
        commands += 1
        for line in lines(part["shown"]):
            assert any(each.startswith(line) for each in printed), f"{part['command']} does not print: {line}"
    assert commands == text.count("\n$ ") == asked


def lines(text: str) -> list[str]:
    return [" ".join(line.removeprefix("E ").strip("=").split()) for line in text.splitlines()]


def run(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = command
    if program == "tidegate":
        said = said_here(arguments, folder, capsys)
        return said.out + said.err
    called = [sys.executable, *(() if program == "python" else ("-m", program)), *arguments]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "TIDEGATE_"))}
    done = subprocess.run(called, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr
