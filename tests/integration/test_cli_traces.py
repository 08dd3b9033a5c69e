from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import itf_py
import pydot
import pytest

from tidegate.__main__ import main
from tidegate.catalogue import shipped
from tidegate.exit_codes import ExitCode
from tidegate.sim.runs.report import explore
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate_adapters.page.assembly import page

NAME: Final = "array_push_lock.lost_reply"
OTHER: Final = "transition.not_read_again"


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for name, file in ((NAME, "run.json"), (OTHER, "other.json")):
        trace = explore(shipped(name)).trace
        assert trace is not None
        (folder / file).write_text(json.dumps(encoded(trace)))
        if file == "run.json":
            (folder / "run.html").write_text(page(trace, file))
    return folder


@pytest.fixture
def here(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for file in stored.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        code = main(arguments)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run


def answer(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- replay -------------------------------------------------------------------------------------------------------------


def test_a_replay_stops_after_a_step_and_shows_the_state(here: Run) -> None:
    done = here("replay", "run.json", "--until", "2")
    assert done.returncode == ExitCode.OK
    *_, last = done.stdout.splitlines()
    assert last == "reproduced 2 steps"
    assert '/documents/invocations/x/transition_lock = ["a-0:0.000000"]' in done.stdout
    found = answer(here("replay", "run.json", "--until", "2", "--json"))
    assert (found["steps"], found["state"]["documents"]["invocations"]["x"]["status"]) == (2, "running")


def test_a_trace_that_does_not_say_where_its_scenario_is_needs_a_target(here: Run) -> None:
    """A trace that pytest recorded has only a name, and a file may have moved."""
    trace = json.loads(Path("run.json").read_text())
    for name, said in (
        ("coupons", "among those that ship, and the trace names it"),
        ("gone.py:two", "there is no file gone.py, and the trace names a scenario in it"),
    ):
        trace["meta"]["scenario"] = name
        Path("named.json").write_text(json.dumps(trace))
        done = here("replay", "named.json")
        assert done.returncode == ExitCode.USAGE
        assert said in done.stderr
        assert (
            "name it: tidegate replay TRACE path.py:attr" in done.stderr
            or "tidegate replay TRACE TARGET" in done.stderr
        )
        assert here("replay", "named.json", NAME).returncode == ExitCode.OK


def test_there_is_no_step_beyond_the_last(here: Run) -> None:
    done = here("replay", "run.json", "--until", "9")
    assert done.returncode == ExitCode.USAGE
    assert "there is no step 9" in done.stderr
    assert "the trace has 3 steps" in done.stderr


def test_a_replay_goes_on_and_finds_what_lies_beyond(here: Run) -> None:
    found = answer(here("replay", "run.json", "--until", "1", "--continue", "--json"))
    assert (found["verdict"], found["steps"], found["ok"]) == ("violated", 1, False)
    whole = decoded(found["counterexample"])
    recorded = decoded(json.loads(Path("run.json").read_text()))
    assert whole.steps[0] == recorded.steps[0]
    assert (len(whole.steps), whole.law, whole.policy) == (len(recorded.steps), recorded.law, "replayed")
    assert here("replay", "run.json", "--until", "1", "--continue").returncode == ExitCode.NOT_MET


def test_where_a_replay_diverges_it_can_go_on_from_the_step_before(here: Run) -> None:
    """A repaired program diverges from the trace of the faulty one; its own run breaks no law."""
    done = here("replay", "other.json", "transition")
    assert done.returncode == ExitCode.DIVERGED
    assert "recorded: r1: find status, owner, version of invocations" in done.stderr
    found = answer(here("replay", "other.json", "transition", "--json"))
    assert (found["verdict"], found["step"]) == ("diverged", 1)
    assert found["recorded"].startswith("r1: find status, owner, version of invocations")
    on = here("replay", "other.json", "transition", "--continue", "--max-states", "300")
    assert on.returncode == ExitCode.INCONCLUSIVE
    assert "warning: diverged at step 1" in on.stderr
    assert "stopped because: 300 states were seen" in on.stdout


def test_steps_are_shown_one_by_one_with_all_that_they_change(here: Run) -> None:
    done = here("replay", "run.json", "--step")
    assert done.returncode == ExitCode.OK
    lines = done.stdout.splitlines()
    assert [line[:4].strip() for line in lines if line[:4].strip().isdigit()] == ["1", "2", "3"]
    assert sum(line.startswith("      ") for line in lines) >= 5


def test_on_a_terminal_the_reader_says_when(here: Run) -> None:
    assert here("replay", "run.json").returncode == ExitCode.OK
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "tidegate", "replay", "run.json", "--step"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        os.write(master, b"n\np\n\nq\n")
        printed = b""
        while True:
            try:
                more = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            printed += more
        assert process.wait(timeout=60) == ExitCode.OK
    os.close(master)
    shown = [line[:4].strip() for line in printed.decode().splitlines() if line[:4].strip().isdigit()]
    assert shown == ["1", "2", "1", "2"]


@pytest.mark.parametrize(
    "options", [("--max-states", "5"), ("--timeout", "5s"), ("--step", "--json"), ("--step", "--continue")]
)
def test_options_that_do_not_fit_are_refused(here: Run, options: tuple[str, ...]) -> None:
    done = here("replay", "run.json", *options)
    assert done.returncode == ExitCode.USAGE
    assert "does not fit" in done.stderr


# --- other forms --------------------------------------------------------------------------------------------------------


def test_a_trace_is_shown_as_a_table_or_in_another_form(here: Run) -> None:
    table = here("trace", "show", "run.json").stdout.splitlines()
    assert len(table) == 2 + 3
    assert here("trace", "show", "run.html").stdout.splitlines() == table
    forms = {form: here("trace", "show", "run.json", "--format", form).stdout for form in ("mermaid", "dot", "html")}
    assert forms["mermaid"].startswith("sequenceDiagram\n")
    assert pydot.graph_from_dot_data(forms["dot"])
    assert forms["html"].startswith("<!DOCTYPE html>")
    assert itf_py.trace_from_json(answer(here("trace", "show", "run.json", "--format", "itf"))).states
    assert answer(here("trace", "show", "run.json", "--format", "perfetto"))["traceEvents"]
    assert decoded(answer(here("trace", "show", "run.json", "--format", "json"))).law


def test_a_compressed_trace_is_replayed_and_its_bytes_are_always_the_same(here: Run) -> None:
    for file in ("a.json.gz", "b.json.gz"):
        assert here("trace", "convert", "run.json", "--format", "json", "-o", file).returncode == ExitCode.OK
    assert Path("a.json.gz").read_bytes() == Path("b.json.gz").read_bytes()
    assert len(Path("a.json.gz").read_bytes()) * 3 < len(Path("run.json").read_bytes())
    assert here("replay", "a.json.gz").returncode == ExitCode.OK


DAMAGES: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "cut": (lambda: gzip.compress(b"x" * 100)[:-9], "it ends before its end"),
    "no archive": (lambda: b"\x1f\x8b nothing", "damaged"),
    "a bomb": (lambda: gzip.compress(b"\0" * (65 << 20)), "is larger than 64 MiB"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_hostile_compressed_file_is_one_clear_error(here: Run, damage: str) -> None:
    """A small file may unpack to any number of zeros, so unpacking has a limit."""
    data, why = DAMAGES[damage]
    Path("bad.json.gz").write_bytes(data())
    done = here("replay", "bad.json.gz")
    assert done.returncode == ExitCode.USAGE
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_form_must_be_named_and_a_file_can_be_written(here: Run) -> None:
    assert here("trace", "convert", "run.json").returncode == ExitCode.USAGE
    found = answer(here("trace", "convert", "run.json", "--format", "mermaid", "-o", "run.mmd", "--json"))
    assert (found["out"], found["ok"]) == ("run.mmd", True)
    assert Path("run.mmd").read_text().startswith("sequenceDiagram")
    done = here("trace", "convert", "run.json", "--format", "text", "-o", "no/such/folder.txt")
    assert done.returncode == ExitCode.USAGE
    assert "cannot write" in done.stderr


def test_one_step_is_one_step(here: Run) -> None:
    said = here("replay", "run.json", "--until", "1").stdout

    assert ("reproduced 1 step\n" in said, ": 1 steps" in said) == (True, False)


def test_two_runs_are_compared(here: Run) -> None:
    found = answer(here("trace", "diff", "run.json", "--json"))
    trace = decoded(json.loads(Path("run.json").read_text()))
    assert trace.passing is not None
    assert found["alike"] == trace.passing.differs_at - 1
    printed = here("trace", "diff", "run.json").stdout
    assert "the nearest passing run" in printed
    assert printed.rstrip().endswith("no law is broken")
    assert here("trace", "diff", "run.json", "run.html").stdout == "the same 3 steps\n"
    assert here("trace", "diff", "run.json", "other.json").returncode == ExitCode.USAGE


def test_a_trace_is_taken_out_of_a_page(here: Run) -> None:
    assert here("trace", "extract", "run.html").returncode == ExitCode.USAGE
    assert here("trace", "extract", "run.html", "-o", "again.json").returncode == ExitCode.OK
    assert json.loads(Path("again.json").read_text()) == json.loads(Path("run.json").read_text())


def test_the_states_of_one_scenario_are_drawn(here: Run) -> None:
    assert here("explore", NAME, "--no-store", "-q", "--dot", "states.dot").returncode == ExitCode.OK
    assert Path("states.dot").read_text().startswith(f'digraph "{NAME}"')
    assert here("explore", NAME, OTHER, "--no-store", "-q", "--dot", "x.dot").returncode == ExitCode.USAGE
    assert not Path("x.dot").exists()
