"""Every sample of the README, and of the page on laws, runs and prints what is said that it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LAWS = (ROOT / "docs" / "laws.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README + LAWS, re.DOTALL)
TEXTS = re.findall(r"```text\n(.*?)```", README + LAWS, re.DOTALL)
IN_PYTEST = re.findall(r"Pasted behind the sample above.*\n\n((?:    .*\n|\n)+)", README)
COMMANDS = re.findall(r"<!-- output of: (.*?) -->\n```text\n(.*?)```", README, re.DOTALL)


def run(*command: str, cwd: Path) -> str:
    return subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True, cwd=cwd).stdout


@pytest.mark.parametrize("sample", PYTHON)
def test_a_python_sample_runs_and_prints_what_is_shown(sample: str, tmp_path: Path) -> None:
    """A sample runs as it stands; what it prints stands there, too."""
    printed = run("-c", sample, cwd=tmp_path)

    assert not printed or printed.rstrip() in map(str.rstrip, TEXTS)


def test_the_sample_for_pytest_passes_where_it_is_said_to_stand(tmp_path: Path) -> None:
    """Behind the sample of a scenario; and the scenario of that sample fails the test."""
    before = next(sample for sample in PYTHON if 'name="coupon"' in sample)
    passes = tmp_path / "test_coupon.py"
    passes.write_text(before + dedent(*IN_PYTEST))
    fails = tmp_path / "test_careless.py"
    fails.write_text(f"{before}\ndef test_it(sim):\n    sim.explore(scenario)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(passes), str(fails)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)

    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "FAILED test_careless.py" in done.stdout


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_command_prints_what_is_shown(command: str, shown: str, tmp_path: Path) -> None:
    """Each line shown is the beginning of a line printed, in this order; widths of columns may differ."""
    _, *arguments = command.split()
    printed = [" ".join(line.split()) for line in run("-m", "tidegate", *arguments, cwd=tmp_path).splitlines()]

    for line in shown.splitlines():
        words = " ".join(line.split())
        assert any(each.startswith(words) for each in printed), f"{words!r} is not in:\n" + "\n".join(printed)


def test_the_story_of_the_lock_is_the_one_that_is_found(tmp_path: Path) -> None:
    """The transcript in the README is what the command writes today."""
    run("-m", "tidegate", "explore", "array_push_lock.stall.2", "--out", str(tmp_path), cwd=tmp_path)

    found = (tmp_path / "array_push_lock.stall.2.txt").read_text()
    assert any(found.startswith(shown) for shown in TEXTS), found


def test_the_readme_has_samples() -> None:
    """The patterns above find what they are meant to find."""
    assert len(PYTHON) == 4
    assert len(IN_PYTEST) == 1
    assert len(COMMANDS) == 1
    assert len(TEXTS) == 5


PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def headings(page: Path) -> set[str]:
    """As links name them; the empty one is the top."""
    found = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {"", *(re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for name, heading in re.findall(r"\]\(([\w./-]+\.md)?(?:#([\w-]+))?\)", page.read_text("utf-8")):
        assert heading in headings(page.parent / name if name else page), (name, heading)


def test_every_page_is_reached_from_the_readme() -> None:
    assert {*re.findall(r"docs/([\w-]+\.md)", README)} == {page.name for page in PAGES[1:]}
