"""The benchmarks run. People judge the times they report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.servers import MongoServer

ROOT = Path(__file__).parents[2]
BENCH = re.findall(
    r"^\t\$\(BIN\)/python -m (\S+)", (ROOT / "Makefile").read_text().partition("\nbench:")[2], re.MULTILINE
)
NAMES = {name for name in BENCH if name.startswith("benchmarks.")}
ON_KAFKA = {"benchmarks.half_open", "benchmarks.worker"}
ON_MONGODB = {
    *("benchmarks.mongo", "benchmarks.planning", "benchmarks.reactive", "benchmarks.upkeep"),
    *("benchmarks.orchestrator", "benchmarks.orchestrator.upkeep"),
}
ROOMS = re.findall(r"^\| `\w+` \| .*\?.*\|$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize("name", sorted(NAMES - ON_MONGODB - ON_KAFKA))
def test_a_benchmark_of_the_core_runs(name: str) -> None:
    assert run("-m", name, TIDEGATE_SMOKE="1").stdout


@pytest.mark.parametrize("name", sorted(ON_MONGODB))
def test_a_benchmark_on_mongodb_runs(name: str, mongod: MongoServer) -> None:
    assert name in NAMES
    assert run("-m", name, TIDEGATE_SMOKE="1", TIDEGATE_MONGODB_URI=mongod.uri).stdout


@pytest.mark.parametrize("name", sorted(ON_KAFKA))
def test_a_benchmark_on_kafka_runs(name: str, kafka: str) -> None:
    assert name in NAMES
    assert run("-m", name, TIDEGATE_SMOKE="1", TIDEGATE_KAFKA_BOOTSTRAP=kafka).stdout


def test_rows_are_shown_as_a_table_and_as_json(tmp_path: Path) -> None:
    report = tmp_path / "new" / "decisions.json"
    names = ("drain: plan", "debounce", "batches of 500")
    done = run(
        *("-m", "benchmarks.decisions", "--seconds", "0.01", "--json", str(report)),
        *(argument for name in names for argument in ("-k", name)),
    )
    written = json.loads(report.read_text())
    drain, debounce = written["decisions"]
    at_once, one_by_one = written["hot_path"]["rows"]

    assert re.search(r"^drain: plan +records +100 .* 10k .* n\^", done.stdout, re.MULTILINE)
    assert re.search(r"^debounce: due(  +[\d.,kM]+){3}$", done.stdout, re.MULTILINE)
    assert f"No more than {written['hot_path']['most_us']} us a record" in done.stdout
    assert done.stderr.splitlines()[0] == "1/4 drain: plan"
    assert written["processors"] >= 1
    assert [point["size"] for point in drain["points"]] == [100, 10_000]
    assert (drain["module"], debounce["exponent"], debounce["size_of"]) == ("drain", None, "")
    assert all(point["us"] > 0 < point["bytes"] for row in (drain, debounce) for point in row["points"])
    assert (at_once["batch"], at_once["one_by_one"], one_by_one["one_by_one"]) == (500, False, True)
    assert at_once["holds"] is (at_once["us"] <= written["hot_path"]["most_us"])
    assert all(at_once["parts"][part] > 0 for part in ("watermark", "partition", "consumer"))


def test_every_decision_of_the_readme_is_measured() -> None:
    printed = run(
        "-c",
        "import json; from benchmarks.cases import TABLES; "
        "print(json.dumps([case.module for table in TABLES for case in table.cases]))",
    )
    listed = [name for row in ROOMS for name in re.findall(r"`(\w+)`", row.split("|")[3])]

    assert len(ROOMS) == 13
    assert {*json.loads(printed.stdout)} == {*listed}


@pytest.mark.long
def test_a_search_visits_at_most_a_twentieth_of_what_enumeration_visits() -> None:
    """Enumeration takes one run after another, so it visits a state once for each path to it."""
    names = ("recovery.held_back", "reactive_task.renewed", "change_stream.same_id")
    rows = [line.split() for line in run("-m", "benchmarks.enumeration", *names).stdout.splitlines()[1:]]

    assert {row[0] for row in rows} == set(names)
    assert all(row[2].endswith("+") and float(row[3].rstrip("%")) <= 5 for row in rows)


@pytest.mark.long
def test_what_looking_twice_costs_is_measured() -> None:
    names = ("recovery.held_back", "triggers.all_conditions")
    rows = [line.split() for line in run("-m", "benchmarks.checks", *names).stdout.splitlines()[1:]]

    assert [row[0] for row in rows] == ["recovery.held_back", "triggers.all_conditions", "all"]
    assert all(float(row[-3]) > 0 < float(row[-2]) for row in rows)


def test_the_core_of_a_worker_is_measured_by_itself() -> None:
    said = run("-m", "benchmarks.consumer", "--records", "100", "windows of 1,000").stdout

    assert re.search(r"^  windows of 1,000 +[\d.]+ us +[\d.]+ us +\d+ +\d+$", said, re.MULTILINE)


def test_what_is_done_beyond_a_stuck_head_takes_at_most_twice_its_bit_set() -> None:
    """The bound covers the worker's whole state; a bit set needs one bit per offset."""
    said = run("-m", "benchmarks.consumer", "--records", "2000", "memory").stdout
    beyond = re.search(r"^  10\d,\d{3} offsets beyond a stuck head: [\d.]+ MB, ([\d.]+) bits each$", said, re.MULTILINE)

    assert re.search(r"^  10,000 in work: \d+\.\d bytes a record", said, re.MULTILINE)
    assert beyond is not None
    assert float(beyond[1]) <= 2
