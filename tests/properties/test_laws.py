from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import tidegate

CORE: Final = Path(tidegate.__file__).parent
NUMBERED: Final = re.compile(r"^    (?P<law>[A-Z]{1,3}[0-9]+) +\S", re.MULTILINE)
"""A law in the header of a module: `    W1  The committable position passes no open offset.`"""
CITED: Final = re.compile(r"\bLaws? (?:[A-Z]{1,3}[0-9]+(?:, | and |, and | to )?)+|\"[A-Z]{1,3}[0-9]+\"")
"""`Law W1` or `Laws P1, P2 and P4` in a docstring, or a quoted number in a table of tests."""


def cited(text: str) -> set[str]:
    return {law for citation in CITED.findall(text) for law in re.findall(r"[A-Z]{1,3}[0-9]+", citation)}


def test_every_numbered_law_is_judged() -> None:
    """Law numbers are unique, and a predicate of `tidegate.laws` or a test cites each."""
    headers = (file.read_text("utf-8").split('"""')[1:2] for file in CORE.rglob("*.py"))
    numbers = Counter(law for header in headers for law in NUMBERED.findall("".join(header)))
    predicates = (file for file in CORE.rglob("*.py") if "laws" in file.relative_to(CORE).with_suffix("").parts)
    tests = (file for file in Path(__file__).parents[1].rglob("*.py") if file != Path(__file__))
    known = {law for file in (*predicates, *tests) for law in cited(file.read_text("utf-8"))}

    assert {law for law, count in numbers.items() if count > 1} == set()
    assert numbers.keys() - known == set()
    assert {"W1", "W10", "TR6", "AL4", "P6", "D2", "T1"} <= numbers.keys()  # otherwise nothing was checked
    assert cited("Laws P1, P2 and P4, also Law TR3: so. A law of S1 is none.") == {"P1", "P2", "P4", "TR3"}
