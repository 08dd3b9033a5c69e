from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.__main__ import main
from tidegate.exit_codes import ExitCode
from tidegate.sim.trace.trace_json import decoded

NAME = "transition.owner_not_checked"
Said = Callable[..., tuple[ExitCode, str, str]]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[ExitCode, str, str]:
        code = ExitCode(main(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def traced(path: str) -> Any:
    return decoded(json.loads(Path(path).read_text()))


def test_what_random_runs_find_is_stored_and_then_shrunk(said: Said) -> None:
    code, out, _ = said("explore", NAME, "--runs", "500", "--seed", "1", "--json")
    (scenario,) = json.loads(out)["scenarios"]
    found = scenario["counterexample"]
    assert code is ExitCode.OK
    long, short = traced(found["trace"]), traced(found["shrunk"]["trace"])
    assert (len(long.steps), len(short.steps)) == (found["shrunk"]["before"], found["shrunk"]["steps"])
    assert len(short.steps) <= len(long.steps) == len(found["steps"])
    assert (short.policy, [step.event for step in short.original]) == ("shrunk", [step.event for step in long.steps])
    assert said("replay", found["shrunk"]["trace"])[0] is ExitCode.OK
    assert {path.name for path in Path(".tidegate/failures").glob("*")} == {
        ".gitignore", *(f"{NAME}{which}.{ending}" for which in ("", ".shrunk") for ending in ("json", "txt", "html"))
    }  # fmt: skip


def test_whoever_wants_it_long_gets_it_long(said: Said) -> None:
    _, out, _ = said("explore", NAME, "--runs", "500", "--seed", "1", "--no-shrink", "--no-store")
    assert "broken in" in out
    assert "shrunk" not in out
    code, _, err = said("explore", NAME, "--no-shrink")
    assert code is ExitCode.USAGE
    assert "--no-shrink does not fit" in err


def test_a_stored_trace_is_shrunk(said: Said) -> None:
    said("explore", NAME, "--runs", "500", "--seed", "1", "--no-shrink")
    code, out, _ = said("shrink", f".tidegate/failures/{NAME}.json")
    assert code is ExitCode.OK
    assert "11 steps" in out
    assert "no shorter run exists with these processes and kinds of fault" in out
    assert len(traced(f".tidegate/failures/{NAME}.shrunk.json").steps) == 11
    code, out, _ = said("shrink", f".tidegate/failures/{NAME}.shrunk.json", NAME, "--no-store", "--json")
    answer = json.loads(out)
    assert (code, answer["before"], answer["steps"], answer["minimal"], answer["trace"]) == (
        ExitCode.OK,
        11,
        11,
        True,
        None,
    )


def test_what_cannot_be_shrunk_ends_with_the_code_of_its_reason(said: Said) -> None:
    said("explore", NAME, "--runs", "500", "--seed", "1", "--no-shrink")
    path = Path(f".tidegate/failures/{NAME}.json")
    code, _, err = said("shrink", str(path), "transition.version_not_raised")
    assert (code, "the replay diverged at step" in err) == (ExitCode.DIVERGED, True)
    assert said("shrink", "nothing.json")[0] is ExitCode.USAGE
    trace = json.loads(path.read_text())
    trace["verdict"] = {"law": "", "kind": "none", "step": 0}
    path.write_text(json.dumps(trace))
    code, _, err = said("shrink", str(path))
    assert (code, "breaks no law" in err) == (ExitCode.USAGE, True)
