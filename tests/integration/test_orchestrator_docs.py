from __future__ import annotations

import json
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from signal import SIGTERM
from subprocess import PIPE, Popen
from typing import Any, Final

import pytest
from pymongo import MongoClient

from tidegate.model.documents import Descending
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import Orchestrator, Task

PATIENCE_S: Final = 30.0
PAGE: Final = (Path(__file__).parents[2] / "docs" / "orchestrator.md").read_text(encoding="utf-8")
SAMPLES: Final[list[str]] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)


def sample(number: int, uri: str, database: str) -> str:
    code = SAMPLES[number].replace("mongodb://localhost/?replicaSet=rs0", uri)
    return re.sub('"(shop|jobs)"', repr(database), code).replace("client.shop.", f"client[{database!r}].")


def test_ten_lines_are_an_application(mongodb: str, database: str, tmp_path: Path) -> None:
    for name, number in (("mails.py", 0), ("ask.py", 1)):
        _ = (tmp_path / name).write_text(sample(number, mongodb, database), encoding="utf-8")
    with Popen([sys.executable, "mails.py"], stdout=PIPE, text=True, cwd=tmp_path) as process:
        asked = subprocess.run(
            [sys.executable, "ask.py"], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=PATIENCE_S
        )
        process.send_signal(SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)

    assert (asked.stdout, said, process.returncode) == ("5\n", "to ada@example.org: hello\n", 0)


@pytest.mark.parametrize(
    ("number", "said"),
    [(2, "confirmed 7\n"), (3, "14\n"), (4, ""), (5, "")],
    ids=["a transaction", "no server", "testing", "triggers"],
)
def test_the_samples_of_the_page_do_what_it_says(mongodb: str, database: str, number: int, said: str) -> None:
    if number == 2:
        with MongoClient[dict[str, Any]](mongodb) as client:
            _ = client[database].create_collection("orders")
    code = sample(number, mongodb, database)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)

    assert done.stdout == said


@pytest.mark.parametrize(
    ("heading", "function", "others"),
    [("| `@app.task(...)`", Orchestrator.task, {"self"}), ("| `enqueue(..., )`", Task.enqueue, {"self", "args", "kwargs"})],
    ids=["task", "enqueue"],
)  # fmt: skip
def test_the_page_names_the_options_that_there_are(heading: str, function: Any, others: set[str]) -> None:
    rows = PAGE.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}

    assert named == {*signature(function).parameters} - {"_wrong", "_unknown"} - others


def test_the_page_names_the_indexes_that_are_made() -> None:
    (listed,) = re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)
    indexes = Orchestrator(Embedded(), "jobs").indexes["orchestrator_invocations"]

    assert [json.loads(line)["key"] for line in listed.splitlines()] == [
        {each.field.name: -1 if isinstance(each, Descending) else 1 for each in index.keys} for index in indexes
    ]
