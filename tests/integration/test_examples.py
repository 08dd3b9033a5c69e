from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest
from tests.integration.command_lines import said_here

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | environment
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=cwd, env=env, timeout=120, check=False
    )


def test_a_decision_is_embedded(tmp_path: Path) -> None:
    done = run(str(EXAMPLES / "embed_a_decision.py"), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "finished 40: commit 43" in done.stdout
    assert "finished 46: nothing to commit yet" in done.stdout


def test_a_program_of_ones_own_is_explored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = str(EXAMPLES / "explore_your_own.py")
    done = run(script, cwd=tmp_path)
    careless = said_here(("explore", f"{script}:careless"), tmp_path, capsys)
    careful = said_here(("explore", f"{script}:careful"), tmp_path, capsys)

    assert (done.returncode, done.stderr) == (0, "")
    assert "careless: violated" in done.stdout
    assert "careful: complete" in done.stdout
    assert (careless.code, careful.code) == (1, 0)


def test_a_law_and_a_strategy_are_used_in_a_test_of_ones_own(tmp_path: Path) -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_with_laws.py"), cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_jobs_are_claimed_and_records_consumed_on_ones_own_servers(
    mongodb: str, database: str, kafka: str, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    done = run(
        str(EXAMPLES / "jobs.py"),
        database,
        make_topic(2),
        cwd=tmp_path,
        TIDEGATE_MONGODB_URI=mongodb,
        TIDEGATE_KAFKA_BOOTSTRAP=kafka,
    )

    assert done.returncode == 0, done.stderr
    assert "20 jobs, each done once" in done.stdout


def test_invoices_follow_orders_on_ones_own_server(mongodb: str, database: str, tmp_path: Path) -> None:
    done = run(str(EXAMPLES / "invoices.py"), cwd=tmp_path, TIDEGATE_MONGODB_URI=mongodb, DATABASE=database)

    assert done.returncode == 0, done.stderr
    assert "20 invoices, 20 of them right, of 60 changes in " in done.stdout


def test_orders_are_confirmed_if_they_are_placed_on_ones_own_server(
    mongodb: str, database: str, tmp_path: Path
) -> None:
    done = run(str(EXAMPLES / "orders.py"), cwd=tmp_path, TIDEGATE_MONGODB_URI=mongodb, DATABASE=database)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "20 of 20 orders confirmed, 0 that are none, 1 tried again\n"


def test_the_doctor_asks_the_servers(
    mongodb: str, kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"TIDEGATE_MONGODB_URI": mongodb, "TIDEGATE_KAFKA_BOOTSTRAP": kafka}
    done = said_here(("doctor",), tmp_path, capsys, **servers)

    assert done.code == 0, done.out
    assert re.search(r"^ok +mongodb +MongoDB \d+\.\d+\.\d+, replica set$", done.out, re.MULTILINE), done.out
    assert re.search(r"^ok +kafka +1 broker$", done.out, re.MULTILINE), done.out
    assert kafka not in done.out


@pytest.mark.parametrize("example", ["jobs.py", "invoices.py", "orders.py"])
def test_missing_servers_are_named(
    example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_MONGODB_URI", "")
    monkeypatch.setenv("TIDEGATE_KAFKA_BOOTSTRAP", "")
    monkeypatch.setattr(sys, "argv", [example])
    with pytest.raises(SystemExit) as ended:
        run_path(str(EXAMPLES / example), run_name="__main__")

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "TIDEGATE_MONGODB_URI" in said
    assert "Traceback" not in said
