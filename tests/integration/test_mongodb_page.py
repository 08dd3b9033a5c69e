"""docs/mongodb.md agrees with the code; `test_tutorial` types its examples."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

from tidegate.retries.failures import STEPS, Knowledge, Operation
from tidegate_adapters.kit.resilience import Rules
from tidegate_adapters.mongo import CHECK_SECONDS, REPLY_MS

PAGE: Final = (Path(__file__).parents[2] / "docs" / "mongodb.md").read_text(encoding="utf-8")


def rows(after: str) -> list[list[str]]:
    table = PAGE.partition(after)[2].partition("\n\n|")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_table_of_what_may_be_sent_again_is_that_of_the_decision() -> None:
    assert rows("<!-- table of: tidegate.retries.failures.STEPS -->") == [
        [each.value, *(STEPS[each][known].value for known in Knowledge)] for each in Operation
    ]


def test_the_deadlines_are_those_that_are_set() -> None:
    said = {what: how_long for what, how_long, _ in rows("## Deadlines")}

    assert said["a reply"] == said["a connection of the pool"] == f"{REPLY_MS // 1_000} s"
    assert said["`connect` itself"] == f"{CHECK_SECONDS:g} s"
    assert (
        said["an attempt of the kit; a call of it"]
        == f"{Rules().attempt.seconds} s; {(Rules().deadline or timedelta()).seconds} s"
    )
    assert f"each call is given {REPLY_MS // 1_000} s more than" in PAGE
