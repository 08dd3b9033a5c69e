"""The tables of docs/lineage.md: line by line what a source says, and where that is here."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TABLES: Final = re.split(
    r"^## Line by line: ", (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8"), flags=re.MULTILINE
)[1:]


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def is_there(name: str) -> bool:
    """Whether a name of ours means something: a module, what is in it, or a test."""
    file, _, test = name.partition("::")
    if file.endswith(".py"):
        return (ROOT / file).is_file() and (not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"))
    module, rest = name, list[str]()
    while not is_module(module):
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
    found: object = import_module(module)
    for each in rest:
        found = getattr(found, each, None)
    return found is not None


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.splitlines()[0])
def test_each_line_of_what_we_learned_from_says_where_it_is(table: str) -> None:
    """All rows are there, in order, and what each names is; and one that has nothing to name says what there is not."""
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", table, re.MULTILINE)
    missing, silent = list[str](), list[str]()
    for number, _, here in rows:
        names = [each for each in re.findall(r"`([^`]+)`", here) if re.match(r"tidegate|tests/", each)]
        missing += [each for each in names if not is_there(each)]
        if not names and not re.match(r"Not |Said in |pymongo, as it is|The same test|Law |`attempts=None`", here):
            silent.append(number)

    assert [int(number) for number, _, _ in rows] == [*range(1, len(rows) + 1)]
    assert len(rows) > 30
    assert missing == []
    assert silent == []


@pytest.mark.parametrize(
    "name", ["tidegate.nothing", "tidegate.retries.pauses.nothing", "tests/none.py", "tests/length.py::test_nothing"]
)
def test_a_name_that_means_nothing_is_found(name: str) -> None:
    assert not is_there(name)
