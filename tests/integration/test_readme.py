"""Every sample of the README, the reference and the page on laws runs and prints its text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent
from typing import Final

import pytest
from pymongo import MongoClient
from tests.integration.command_lines import said_here

from tidegate.catalogue import CATALOGUE

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text("utf-8")
REFERENCE: Final = (ROOT / "docs" / "reference.md").read_text("utf-8")
PAGES_RUN: Final = REFERENCE + (ROOT / "docs" / "laws.md").read_text("utf-8")
FILES: Final = dict(re.findall(r"<!-- file: (.*?) -->\n```python\n(.*?)```", README, re.DOTALL))
FIX: Final = re.findall(r"```python\n(async def use.*?)```", README, re.DOTALL)
STORY: Final = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
PYTHON: Final = re.findall(r"```python\n(.*?)```", PAGES_RUN, re.DOTALL)
TEXTS: Final = re.findall(r"```text\n(.*?)```", PAGES_RUN, re.DOTALL)
IN_PYTEST: Final = re.findall(r"Pasted behind the .*\n\n((?:    .*\n|\n)+)", REFERENCE)
COMMANDS: Final = re.findall(r"<!-- output of: (.*?) -->\n```text\n(.*?)```", REFERENCE, re.DOTALL)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *command], check=False, capture_output=True, text=True, cwd=cwd, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_shown(shown: str, printed: str) -> bool:
    """Whether the lines were printed in this order, perhaps shortened or in other column widths."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    return all(any(line.startswith(" ".join(each.split())) for line in lines) for each in shown.splitlines())


def test_the_coupon_is_used_twice_until_it_is_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "coupon.py").write_text(FILES["coupon.py"])
    broken = said_here(("explore", "coupon.py:scenario"), tmp_path, capsys)
    mended = re.sub(r"async def use.*?(?=\n\n\ndef)", FIX[0].strip(), FILES["coupon.py"], flags=re.DOTALL)
    (tmp_path / "mended.py").write_text(mended)  # the second process of this one has loaded the first
    fixed = said_here(("explore", "mended.py:scenario"), tmp_path, capsys)

    assert (broken.code, is_shown(STORY[0], broken.out)) == (1, True), broken
    assert (fixed.code, "complete" in fixed.out) == (0, True)


def test_the_worker_handles_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.py").write_text(FILES["orders.py"])
    (tmp_path / "records.jsonl").write_text('{"topic": "orders", "value": "apples"}\n')
    said = said_here(("worker", "run", "orders.py:worker", "--embedded", "records.jsonl"), tmp_path, capsys)

    assert (said.code, "1 handled" in said.out) == (0, True), said


PLACE: Final = """
import asyncio, mails

async def main():
    await mails.send_receipt.enqueue(0)
    await mails.place_order(7)

asyncio.run(main())
"""


def test_tasks_and_reactive_tasks_run(mongodb: str, database: str, tmp_path: Path) -> None:
    for name in ("mails.py", "invoices.py"):
        code = FILES[name].replace("mongodb://localhost/?replicaSet=rs0", mongodb)
        (tmp_path / name).write_text(
            re.sub('"(shop|jobs)"', repr(database), code).replace(".shop.", f'["{database}"].')
        )
    (tmp_path / "place.py").write_text(PLACE)
    with MongoClient[dict[str, object]](mongodb) as client:
        client[database].orders.insert_one({"_id": 1, "total": 5})
    run("place.py", cwd=tmp_path)
    for command, shown in (("orchestrator", "receipt for 7\n"), ("reactive", "1 5\n")):
        target = {"orchestrator": "mails.py:app", "reactive": "invoices.py:app"}[command]
        arguments = [sys.executable, "-m", "tidegate", command, "run", target]
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            assert shown in iter(process.stdout.readline, "")
            process.terminate()
            assert process.wait(60) == 143


@pytest.mark.parametrize("sample", PYTHON)
def test_a_python_sample_runs_and_prints_what_is_shown(sample: str, tmp_path: Path) -> None:
    printed = run("-c", sample, cwd=tmp_path)

    assert not printed or printed.rstrip() in map(str.rstrip, TEXTS)


def test_the_sample_for_pytest_passes_where_it_is_said_to_stand(tmp_path: Path) -> None:
    before = FILES["coupon.py"]
    passes = tmp_path / "test_coupon.py"
    passes.write_text(before + dedent(*IN_PYTEST))
    fails = tmp_path / "test_careless.py"
    fails.write_text(f"{before}\ndef test_it(sim):\n    sim.explore(scenario)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(passes), str(fails)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)

    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "FAILED test_careless.py" in done.stdout


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_command_prints_what_is_shown(
    command: str, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_here(command.split()[1:], tmp_path, capsys)

    assert said.code == 0
    assert is_shown(shown, said.out), said


def test_the_pages_have_samples() -> None:
    assert FILES.keys() == {"coupon.py", "orders.py", "mails.py", "invoices.py"}
    assert [len(each) for each in (FIX, STORY, PYTHON, IN_PYTEST, COMMANDS)] == [1, 1, 4, 1, 1]


PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {"", *(re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for name, heading in re.findall(r"\]\(([\w./-]+\.md)?(?:#([\w-]+))?\)", page.read_text("utf-8")):
        assert heading in headings(page.parent / name if name else page), (name, heading)


def test_every_page_is_reached_from_the_readme() -> None:
    assert {*re.findall(r"docs/([\w-]+\.md)", README)} == {page.name for page in PAGES[1:]}


NAMES: Final = re.compile(r"`(tidegate(?:_adapters)?\.[\w.]+|[\w/]+\.py::\w+)`")
SPANS: Final = {
    f"tidegate.{name}"
    for name in (
        "at", "error", "index", "key", "letter", "offset", "output", "purge", "recover", "sink", "timestamp", "topic",
    )
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    for name in {*NAMES.findall(page.read_text("utf-8"))} - SPANS:
        file, _, test = name.removeprefix("tests/").partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text("utf-8") if test else resolve_name(name), name


def test_each_weakness_is_answered_by_what_is_there() -> None:
    page = (ROOT / "docs" / "weaknesses.md").read_text("utf-8")
    answers = re.findall(r"^\| [WO]?\d+ \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    named = [re.findall(r"`([^`]+)`", each) for each in answers]

    assert len(answers) > 80
    assert [each for each, names in zip(answers, named, strict=True) if not names and not each.startswith("No: ")] == []
    assert {name for names in named for name in names if "::" not in name} <= {*CATALOGUE}
