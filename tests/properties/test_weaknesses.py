"""The register of weaknesses is whole, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tidegate.catalogue import CATALOGUE

TESTS: Final = Path(__file__).parents[1]
REGISTER: Final = (TESTS.parent / "docs" / "weaknesses.md").read_text(encoding="utf-8")
NUMBERS: Final = {
    "Drakkar": [*range(1, 9), 10, 11, 12, *range(14, 17), *range(18, 22), 23, 24, 26, 27, 28, *range(30, 36)],
    "pynenc": [1, *range(3, 14), 15, 16, 18, 19, *range(21, 26), 27, 28, 29, *range(31, 35)],
    "mongodash": [*range(1, 5), 6, 7, 8, 10, 11, *range(13, 17), 18, 19, *range(21, 25), *range(1, 7)],
}
"""Which numbers our notes on each system give; what is not a weakness of the system has been given none. Those of mongodash's operation come last."""
SECTIONS: Final = {
    name: re.findall(r"^\| ([WO]?\d+) \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
    for name, section in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", REGISTER, re.MULTILINE | re.DOTALL)
}


def test_no_weakness_is_missing_in_the_register() -> None:
    """Each number once, in order."""
    assert {name: [int(number.lstrip("WO")) for number, _ in rows] for name, rows in SECTIONS.items()} == NUMBERS


@pytest.mark.parametrize("system", NUMBERS)
def test_each_weakness_has_a_name_that_is_there_or_a_reason(system: str) -> None:
    """A specimen, a scenario, a test; or a sentence that begins with No."""
    for number, answer in SECTIONS[system]:
        names = re.findall(r"`([^`]+)`", answer)
        assert names or re.fullmatch(r"No: .+\.", answer), f"{system} {number} has no answer"
        for name in names:
            assert name in CATALOGUE or is_test(name), f"{system} {number}: there is no {name}"


def test_each_fault_of_mongodash_is_attempted_on_a_real_server() -> None:
    """Whatever else answers it."""
    for number, answer in SECTIONS["mongodash"]:
        assert number.startswith("O") or re.search(r"`integration/\w+\.py::", answer), number


def is_test(name: str) -> bool:
    """Is it `file::function`, below the tests?"""
    file, _, function = name.partition("::")
    path = TESTS / file
    return path.is_file() and f"def {function}(" in path.read_text(encoding="utf-8")


def test_what_is_not_there_is_no_test() -> None:
    """Neither is a file alone."""
    assert is_test("properties/test_weaknesses.py::test_what_is_not_there_is_no_test")
    assert not is_test("properties/test_weaknesses.py::test_nothing")
    assert not is_test("properties/test_weaknesses.py")
    assert not is_test("partition.nothing")
