from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

import pytest
from tests.integration.command_lines import said_here
from tests.integration.interruptible import INTERRUPTIBLE, impatient

import tidegate
from tidegate.__main__ import main
from tidegate.catalogue import CATALOGUE
from tidegate.exit_codes import ExitCode
from tidegate.invocations.record.diagrams import mermaid
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.sim.search.search import Progress
from tidegate.sim.trace.rendering import render
from tidegate.sim.trace.trace_json import decoded
from tidegate_adapters.cli.progress import foretelling, sparse
from tidegate_adapters.exploring.targets import select
from tidegate_adapters.shell.terminal import Terminal

QUICK: Final = "array_push_lock.lost_reply"
QUICKER: Final = "transition.version_not_raised"
STALL: Final = "array_push_lock.stall.2"

MINE: Final = """
import gc
import sys
import time
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.operations import find_one, find_one_and_update, update_one
from tidegate.sim.servers.actors import factory, Process
from tidegate.sim.scenario import Scenario
from tidegate.sim.world.world import document, world_with

print("this module prints")
COUNT = Field("count")
C = Eq(ID, "c")


async def careless():
    found = await find_one("counters", C)
    await find_one_and_update("counters", C, Put(COUNT, found[COUNT] + 1))


async def endless():
    while True:
        found = await find_one("counters", C)
        await update_one("counters", C, Put(COUNT, found[COUNT] + 1))


def count(state):
    return state.read(document("counters", "c"))[COUNT]


def counter(name="counter", program=careless, processes=2, **laws):
    world = world_with({"counters": (Document.of({"_id": "c", "count": 0}),)})
    actors = tuple(Process(f"p{number}", factory(program), ) for number in range(processes))
    laws = laws or {"eventually": {"all count": lambda state: count(state) == processes}}
    return Scenario(name=name, summary="", world=world, actors=actors, **laws)


def lost():
    return counter()


def alone():
    return counter(processes=1)


def pessimist():
    return counter(processes=1, eventually={"all count": lambda state: True}, expect="all count")


def other():
    laws = {"none counts": lambda state: count(state) == 0, "all count": lambda state: True}
    return counter(always=laws, expect="all count")


def uncollected():
    return counter(always={"the collector sleeps": lambda state: not gc.isenabled()})


def never():
    return counter(processes=1, sometimes={"it counts to nine": lambda state: count(state) == 9})


def tell(state):
    if count(state) == 3:
        print("searching", flush=True)
    return True


def stuck(state):
    if count(state) == 3:
        print("searching", flush=True)
        for _ in range(600):  # a signal that comes just before a sleep is handled after it
            time.sleep(0.1)
    return True


def forever():
    return counter("forever", endless, 1, always={"it counts": tell})


def hangs():
    return counter("hangs", endless, 1, always={"it counts": stuck})


READY = counter("ready")
HOSTILE = [counter(name) for name in ("../../up", "/etc/passwd", "two: \\x1b[31mred\\nok", "", "é" * 300, "CON")]
"""


OURS: Final = ("NO_COLOR", "FORCE_COLOR", "TIDEGATE_SEED")


def environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(cwd: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment(more), capture_output=True, encoding="utf-8", timeout=120, check=False
    )


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def answer(done: Done | subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s", "", text)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.fixture
def here(mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    for name in OURS:
        monkeypatch.delenv(name, raising=False)

    def run_here(*arguments: str, **more: str) -> Done:
        with monkeypatch.context() as patched:
            for name, value in more.items():
                patched.setenv(name, value)
            code = main(arguments)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run_here


# --- help -----------------------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from tidegate.__main__ import main; main(['--help']); main(['explore', '--help'])\n"
        "heavy = ('pymongo', 'aiokafka', 'tidegate.sim', 'attr', 'asyncio')\n"
        "sys.exit(', '.join(name for name in heavy if name in sys.modules) or None)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


COMMANDS: Final = (
    "explore",
    "replay",
    "shrink",
    "trace",
    "trace show",
    "trace convert",
    "trace diff",
    "trace extract",
    "check-determinism",
    "list",
    "diagram",
    "doctor",
    "completion",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_two_examples_and_its_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "-h"]) == ExitCode.OK

    printed = capsys.readouterr().out

    examples, codes = printed.split("Examples:")[1].split("Options:")[0].split("Exit codes:")
    assert examples.count(f"tidegate {command}") == 2
    assert all(f"\n    {code} " in codes for code in ("0", "2"))


def test_a_decision_is_explored_by_its_name() -> None:
    names = ("watermark", "backpressure", "decide_atomic_service_claim", "decide_status_transition", "diff_snapshots")
    designs = [target.scenario.name for target in select(names)]
    assert designs == ["partition", "group", "atomic_service", "transition", "reactive_task"]


def test_the_version_is_one_line(here: Callable[..., Done]) -> None:
    done = here("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"tidegate {tidegate.__version__}\n", "")


def test_the_console_script_and_the_module_are_one() -> None:
    (script,) = entry_points(group="console_scripts", name="tidegate")

    assert script.load() is main


def test_a_file_beside_the_target_does_not_hide_the_standard_library(tmp_path: Path) -> None:
    """Files beside the target are importable unless a standard module has the same name."""
    (tmp_path / "colorsys.py").write_text("raise SystemExit('not meant')")
    (tmp_path / "near.py").write_text("from tidegate.leases.checks.scenarios.small_lock import small_lock")
    (tmp_path / "mine.py").write_text("import colorsys\nfrom near import small_lock\nscenario = small_lock(2, 1, 1, 0)")
    code = "from tidegate.__main__ import main; raise SystemExit(main(['explore', 'folder/mine.py:scenario']))"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "folder").symlink_to(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.count("not meant")) == (ExitCode.OK, 0), done.stderr


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['click'] = None; from tidegate.__main__ import main; sys.exit(main(['list']))"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: needs extra: pip install 'tidegate[cli]'\n"


# --- explore --------------------------------------------------------------------------------------------------------


def test_a_scenario_is_reported_on_one_line_and_its_counterexample_is_stored(
    tmp_path: Path, here: Callable[..., Done]
) -> None:
    done = here("explore", QUICK, QUICKER)

    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert re.fullmatch(
        r"ok +array_push_lock\.lost_reply +expected violated +violated +\d+ states +\d+ transitions +depth +3 +"
        r"\d+\.\d s +1 law +faults: lost_reply 8 \(at most 1 a run\) +broken in 3 steps: a claim stands at most once +"
        r"absolute time, 1 moves of 200 ms",
        lines[0],
    )
    assert lines[1].startswith(f"ok       {QUICKER}")
    assert lines[-1].startswith("2 scenarios, 2 as expected, ")
    store = tmp_path / ".tidegate" / "failures"
    names = {f"{name}.{form}" for name in (QUICK, QUICKER) for form in ("txt", "json", "html")}
    assert {path.name for path in store.iterdir()} == names | {".gitignore"}
    assert (store / ".gitignore").read_text() == "*\n"
    trace = decoded(json.loads((store / f"{QUICK}.json").read_text()))
    assert (store / f"{QUICK}.txt").read_text().startswith(render(trace))
    assert f"  .tidegate/failures/{QUICK}" in lines


def test_continuous_integration_reads_what_was_found(mine: Path, here: Callable[..., Done]) -> None:
    done = here("explore", QUICKER, "mine.py:lost", "mine.py:alone", "mine.py:forever", "--max-states", "40",
                "--no-store", "--junit-xml", "found.xml")  # fmt: skip
    suite = ET.parse(mine / "found.xml").getroot()  # noqa: S314  our own

    assert done.returncode == 1
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["4", "1", "1"]
    assert [[each.tag for each in case] for case in suite] == [[], ["failure"], [], ["error"]]
    failure, error = suite[1][0], suite[3][0]
    assert (failure.get("message"), "<- all count: broken here" in str(failure.text)) == (
        "broken in 4 steps: all count",
        True,
    )
    assert "40 states" in str(error.get("message"))


def test_a_directory_of_the_users_gets_no_gitignore(mine: Path, here: Callable[..., Done]) -> None:
    """`--out .` must not hide a repository from git."""
    before = set(files(mine))

    done = here("explore", QUICKER, "--out", ".")

    assert done.returncode == 0
    assert set(files(mine)) - before == {f"{QUICKER}.{form}" for form in ("txt", "json", "html")}


def test_nothing_is_written_where_nothing_is_stored_or_found(mine: Path, here: Callable[..., Done]) -> None:
    before = files(mine)

    codes = here("explore", QUICKER, "--no-store").returncode, here("explore", "mine.py:alone").returncode

    assert codes == (0, 0)
    assert files(mine) == before


def test_a_violation_that_nobody_expected_is_reported_in_full(here: Callable[..., Done]) -> None:
    done = here("explore", "mine.py:lost")

    assert done.returncode == 1
    assert done.stdout.startswith("NOT MET  counter  expected clean     violated")
    assert "counter: breaks the law: all count\n4 steps" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("replay one: tidegate "))
    pasted = here(*shlex.split(line)[3:])
    assert (pasted.returncode, pasted.stdout.splitlines()[-1]) == (0, "reproduced 4 steps")


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("mine.py:alone", 0, "ok       counter  expected clean     complete"),
        ("mine:alone", 0, "ok       counter  expected clean     complete"),
        ("mine.py:READY", 1, "NOT MET  ready  expected clean     violated"),
        ("mine.py:pessimist", 1, "expected to be broken: all count"),
        ("mine.py:other", 1, "none counts, expected: all count"),
        ("mine.py:uncollected", 0, "complete"),
    ],
)
def test_the_exit_code_tells_whether_expectations_are_met(
    here: Callable[..., Done], target: str, code: int, said: str
) -> None:
    done = here("explore", target, "--no-store")

    assert (done.returncode, done.stderr) == (code, "this module prints\n")
    assert said in done.stdout


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        (("--max-states", "50"), "50 states were seen"),
        (("--max-depth", "3"), "3 steps were taken from the beginning"),
        (("--max-memory", "30kB"), "the states take 30,000 bytes"),
        (("--timeout", "1ms"), "the time-out of 0.001 s is over; no random run went on from there"),
        (("--runs", "2", "--seed", "1"), "2 random runs are not all that can happen"),
    ],
)
def test_what_is_cut_short_is_inconclusive(here: Callable[..., Done], bound: tuple[str, ...], why: str) -> None:
    done = here("explore", "array_push_lock", "--no-store", *bound)

    assert done.returncode == 6
    assert re.search(rf"UNSURE +array_push_lock .* inconclusive .* {why}", done.stdout)
    assert "1 scenario, 0 as expected, 1 unsure" in done.stdout
    is_sampled = "--runs" in bound
    assert is_sampled != bool(
        re.search(r"warning: array_push_lock: [\d,]+ states from depth \d+ on were not", done.stderr)
    )


def test_only_the_faults_that_are_chosen_strike(here: Callable[..., Done]) -> None:
    for chosen, struck in (("none", []), ("late,unsent", ["late"]), ("crash_before", [])):
        done = here("explore", "array_push_lock.late", "--json", "--no-store", "--faults", chosen)
        assert list(json.loads(done.stdout)["scenarios"][0]["faults"]) == struck
        stranger = "fault crash_before strikes no process here, and it was asked for; the scenario has: "
        assert (stranger in done.stderr) == (chosen == "crash_before")
    refused = here("explore", QUICK, "--faults", "late,nothing")
    assert refused.returncode == ExitCode.USAGE
    assert "'nothing' is not a kind of fault; docs/faults.md tells of each: crash_before, " in refused.stderr


@pytest.mark.parametrize("how", [(), ("--runs", "20", "--seed", "1"), ("--runs", "20", "--seed", "1", "--jobs", "2")])
def test_a_run_has_no_more_faults_than_asked_for_and_is_replayed_so(here: Callable[..., Done], how: list[str]) -> None:
    """The stored file contains the limit, so a replay needs no option."""
    asked = ("explore", "partition.queue_survives", "--json", "--max-faults")
    budgets, struck = [], 0
    for faults_max in ("9", "1"):
        done = here(*asked, faults_max, *how)
        (found,) = json.loads(done.stdout)["scenarios"]
        assert (done.returncode, found["law"]) == (0, "nothing is left to start once it is revoked")
        budgets.append(found["budget"])
        struck += sum(found["faults"].values())
        for written in filter(None, (found["counterexample"]["trace"], found["counterexample"]["shrunk"])):
            assert here("replay", written["trace"] if isinstance(written, dict) else written).returncode == 0
    assert budgets == [2, 1]
    assert struck


def test_a_goal_that_is_never_reached_is_a_warning_and_on_demand_a_failure(here: Callable[..., Done]) -> None:
    """Otherwise a run that proves nothing would appear to prove everything."""
    printed = here("explore", "mine.py:never", "--no-store")
    required = here("explore", "mine.py:never", "--no-store", "--require-sometimes")

    assert printed.returncode == 0
    assert "warning: counter: goal never reached: it counts to nine" in printed.stderr
    assert required.returncode == 6
    assert re.search(r"UNSURE +counter .* inconclusive .* goal never reached: it counts to nine", required.stdout)


def test_an_expectation_that_is_not_met_weighs_more_than_one_that_is_unknown(here: Callable[..., Done]) -> None:
    done = here("explore", "mine.py:never", "mine.py:lost", QUICKER, "--no-store", "--require-sometimes")

    assert done.returncode == 1
    assert "3 scenarios, 1 as expected, 1 not, 1 unsure" in done.stdout


def test_json_is_one_object_with_all_that_a_script_needs(mine: Path) -> None:
    done = run(mine, "explore", QUICK, "mine.py:lost", "--json")

    found = answer(done)
    assert (done.returncode, done.stderr) == (1, "this module prints\n")
    assert (found["schema"], found["seed"], found["ok"]) == ("tidegate/report@1", None, False)
    first, second = found["scenarios"]
    assert first["counterexample"]["trace"] == f".tidegate/failures/{QUICK}.json"
    assert [step["i"] for step in first["counterexample"]["steps"]] == [1, 2, 3]
    del first["counterexample"]
    assert first.pop("seconds") >= 0
    assert first == {
        "name": QUICK,
        "kind": "specimen",
        "expect": "violated",
        "verdict": "violated",
        "law": "a claim stands at most once",
        "states": 33,
        "expected_states": None,
        "transitions": 42,
        "depth": 3,
        "unmerged": 0,
        "unmerged_at": [],
        "faults": {"lost_reply": 8},
        "budget": 1,
        "cut_short": 0,
        "goals": {},
        "stopped_because": "a law is broken",
        "time": "absolute time, 1 moves of 200 ms",
        "policy": "",
        "reductions": [],
        "uncovered": [],
        "violation": "safety",
        "why": "",
        "loop": 0,
        "ok": True,
    }
    assert (second["name"], second["expect"], second["verdict"], second["ok"]) == (
        "counter",
        "clean",
        "violated",
        False,
    )


def test_no_target_means_all_that_ship_and_k_picks_from_them(here: Callable[..., Done]) -> None:
    expression = "version_not_raised"

    done = here("explore", "-k", expression, "--json", "--no-store")

    assert [each["name"] for each in answer(done)["scenarios"]] == [name for name in CATALOGUE if expression in name]


def test_what_ships_has_scopes_and_kinds(mine: Path, here: Callable[..., Done]) -> None:
    larger = here("explore", "array_push_lock", "--scope", "large", "--runs", "1", "--json")
    specimens = here("explore", "-k", "owner_not_checked", "--only", "specimens", "--json", "--no-store")
    designs = here("explore", "-k", "owner_not_checked", "--only", "designs")
    none = here("explore", "transition.version_not_raised@large")

    assert [each["name"] for each in answer(larger)["scenarios"]] == ["array_push_lock@large"]
    assert [each["kind"] for each in answer(specimens)["scenarios"]] == ["specimen"]
    assert (designs.returncode, none.returncode) == (5, 2)
    assert "transition.version_not_raised has no large scope" in none.stderr
    assert not (mine / ".tidegate").exists()


def test_a_target_that_is_named_twice_is_explored_once(here: Callable[..., Done]) -> None:
    done = here("explore", QUICKER, QUICK, QUICKER, "--json", "--no-store")

    assert [each["name"] for each in answer(done)["scenarios"]] == [QUICKER, QUICK]


def test_random_runs_can_be_had_again_by_their_seed(mine: Path, here: Callable[..., Done]) -> None:
    sampled = ("explore", STALL, "--runs", "2000", "--out")
    drawn = here(*sampled, "drawn")
    seed = drawn.stdout.splitlines()[0].removeprefix("seed ")

    given = here(*sampled, "given", "--seed", seed)
    found = answer(here(*sampled, "environment", "--json", TIDEGATE_SEED=seed))

    assert (drawn.returncode, given.returncode, found["seed"]) == (0, 0, seed)
    traces = [(mine / out / f"{STALL}.json").read_bytes() for out in ("drawn", "given", "environment")]
    assert traces[0] == traces[1] == traces[2]
    assert f"\nreplay one: tidegate replay drawn/{STALL}.shrunk.json\n" in drawn.stdout
    alone = decoded(json.loads(traces[0])).seed or ""
    again = here("explore", STALL, "--runs", "1", "--seed", alone, "--out", "alone")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, f"seed {alone}")
    assert (mine / "alone" / f"{STALL}.json").read_bytes() == traces[0]
    assert here("replay", f"alone/{STALL}.json").returncode == 0


def test_the_report_and_the_traces_are_the_same_in_every_run(
    tmp_path: Path, here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, str, str, dict[str, bytes]]] = []
    for hash_seed in ("0", "1", "random"):
        directory = tmp_path / hash_seed
        directory.mkdir()
        monkeypatch.chdir(directory)
        explored = ("explore", QUICK, QUICKER)
        done = here(*explored) if hash_seed == "random" else run(directory, *explored, PYTHONHASHSEED=hash_seed)
        found.append((done.returncode, without_seconds(done.stdout), done.stderr, files(directory)))

    assert found[0] == found[1] == found[2]
    assert found[0][0] == 0


def test_files_are_safe_whatever_a_scenario_is_called(mine: Path, here: Callable[..., Done]) -> None:
    done = run(mine, "explore", "mine.py:HOSTILE", "--out", "out", PYTHONIOENCODING="ascii")

    traces = sorted((mine / "out").glob("*.json"))
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "two: \\x1b[31mred\\nok" in done.stdout.splitlines()[2]
    assert len(traces) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9-]+-[0-9a-f]{8}\.json", path.name) for path in traces)
    assert {path.name for path in mine.iterdir()} == {"mine.py", "out"}
    for path in traces[:2]:
        assert here("replay", str(path)).returncode == 0


def test_a_file_is_there_whole_or_not_at_all(mine: Path, here: Callable[..., Done]) -> None:
    blocked = mine / "out" / f"{QUICKER}.json"
    blocked.mkdir(parents=True)

    done = here("explore", QUICKER, "--out", "out")

    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write to out")
    assert {path.name for path in blocked.parent.iterdir()} <= {f"{QUICKER}.json", f"{QUICKER}.txt"}


# --- replay ---------------------------------------------------------------------------------------------------------


def test_a_stored_trace_is_reproduced(tmp_path: Path, here: Callable[..., Done]) -> None:
    assert here("explore", QUICK).returncode == 0
    stored = Path(".tidegate", "failures", QUICK)
    trace = decoded(json.loads((tmp_path / f"{stored}.json").read_text()))

    pasted = run(tmp_path, "replay", f"{stored}.json")

    assert (pasted.returncode, pasted.stderr, pasted.stdout) == (0, "", f"{render(trace)}\nreproduced 3 steps\n")
    assert here("replay", f"{stored}.html") == (0, pasted.stdout, "")
    for form in ("json", "html"):
        assert answer(here("replay", f"{stored}.{form}", "--json")) == {
            "schema": "tidegate/replay@1",
            "scenario": QUICK,
            "law": "a claim stands at most once",
            "seed": None,
            "verdict": "reproduced",
            "steps": 3,
            "ok": True,
        }


def test_a_program_that_has_changed_is_caught_at_the_first_step_that_differs(
    mine: Path, here: Callable[..., Done], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4, the step, and the steps that were enabled instead."""
    assert said_here(("explore", "mine.py:lost", "--out", "out"), mine, capsys).code == 1
    (trace,) = (mine / "out").glob("*.json")
    (mine / "mine.py").write_text(MINE.replace("found[COUNT] + 1", "found[COUNT] + 2"))

    printed = said_here(("replay", str(trace)), mine, capsys)
    found = said_here(("replay", str(trace), "--json"), mine, capsys)

    assert (printed.code, printed.out) == (4, "")
    assert "error: the replay diverged at step 1: p0: find counters" in printed.err
    told = json.loads(found.out)
    assert (found.code, told["verdict"], told["step"]) == (4, "diverged", 1)
    recorded = json.loads(trace.read_text())
    recorded["steps"][2]["event"] = "sleep 1 s"
    trace.write_text(json.dumps(recorded))
    (mine / "mine.py").write_text(MINE)
    impossible = here("replay", str(trace))
    assert impossible.returncode == 4
    assert "error: the replay diverged at step 3: p0 cannot: sleep 1 s" in impossible.stderr
    assert "\n    enabled instead:\n    p0: find and update counters" in impossible.stderr


def test_a_trace_leads_to_no_code_outside_of_the_current_directory(
    mine: Path, here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace may come from anywhere."""
    assert here("explore", "mine.py:lost", "--out", "out").returncode == 1
    (trace,) = (mine / "out").glob("*.json")
    elsewhere = mine / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for name in ("../mine.py:lost", "os:abort", "posix:abort", "../mine.py::test_lost", "/mine.py::test_lost#2"):
        found = json.loads(trace.read_text())
        found["meta"]["scenario"] = name
        (elsewhere / "trace.json").write_text(json.dumps(found))

        done = here("replay", "trace.json")

        assert (done.returncode, done.stdout) == (2, ""), name
        assert "this module prints" not in done.stderr
        assert f"error: the trace names a scenario that does not lie beneath this directory: {name}" in done.stderr
    assert here("replay", "trace.json", "../mine.py:lost").returncode == 0


# --- list, diagram --------------------------------------------------------------------------------------------------


def test_the_list_has_every_scenario_that_ships(here: Callable[..., Done]) -> None:
    printed, found = here("list"), answer(here("list", "--json"))

    assert [line.split()[0] for line in printed.stdout.splitlines()] == list(CATALOGUE)
    assert (found["schema"], found["ok"]) == ("tidegate/list@1", True)
    for row, (name, each) in zip(found["scenarios"], CATALOGUE.items(), strict=True):
        scenario = each.scenario()
        expect = "clean" if scenario.expect is None else "violated"
        assert row == {
            "name": name,
            "kind": scenario.kind,
            "expect": expect,
            "law": scenario.expect,
            "scopes": list(each.scopes),
            "summary": scenario.summary,
            "of": getattr(each, "of", None),
            "source": getattr(each, "source", None),
        }


def test_what_stands_in_a_file_is_listed_and_explored(tmp_path: Path, here: Callable[..., Done]) -> None:
    own = "def one() -> Scenario:\n    return counter(processes=1)\n"
    own += "def some() -> list[Scenario]:\n    return [counter('a', processes=1), counter('b')]\n"
    own += "def text() -> str:\n    raise AssertionError\n"
    (tmp_path / "own.py").write_text(f"{MINE}\n{own}\nALONE = counter(processes=1)\n")
    listed = here("list", "own.py")

    names = ["own.py:one", "own.py:some[a]", "own.py:some[b]", "own.py:ALONE"]
    assert [line.split()[0] for line in listed.stdout.splitlines()][-4:] == names
    assert "own.py:lost, own.py:alone" in listed.stderr
    assert "own.py:text" not in listed.stderr
    rows = answer(here("list", "own.py", QUICK, "--json"))["scenarios"]
    assert [row["name"] for row in rows][-5:] == [*names, QUICK]
    done = here("explore", *names[:2], "--no-store")
    assert (done.returncode, done.stdout.count("\nok")) == (0, 1)
    assert here("explore", "own.py:some", "--no-store").returncode == 1


def test_the_diagram_is_drawn_from_the_table(here: Callable[..., Done]) -> None:
    printed, found = here("diagram", "invocation"), answer(here("diagram", "invocation", "--json"))

    assert printed.stdout == mermaid(INVOCATION)
    assert found["mermaid"] == mermaid(INVOCATION)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(tmp_path: Path, shell: str) -> None:
    script = run(tmp_path, "completion", shell).stdout
    variables = {"_TIDEGATE_COMPLETE": f"{shell}_complete", "COMP_WORDS": "tidegate expl", "COMP_CWORD": "1"}
    if shell == "fish":
        variables["COMP_CWORD"] = "expl"

    assert f"_TIDEGATE_COMPLETE={shell}_complete" in script
    assert "\\x" not in script
    assert "explore" in run(tmp_path, **variables).stdout


def test_the_doctor_tells_what_is_here_and_shows_no_secret(here: Callable[..., Done]) -> None:
    nothing = {"TIDEGATE_MONGODB_URI": "", "TIDEGATE_KAFKA_BOOTSTRAP": ""}
    well, ill = (
        here("doctor", **nothing),
        here("doctor", "--json", **nothing | {"TIDEGATE_MONGODB_URI": "ann:hunter2@x"}),
    )

    assert well.returncode == 0
    assert re.search(rf"^ok +tidegate +{re.escape(tidegate.__version__)}$", well.stdout, re.MULTILINE)
    assert re.search(r"^ok +mongo: pymongo +\d", well.stdout, re.MULTILINE)
    assert "mongodb               not asked: TIDEGATE_MONGODB_URI is not set" in well.stdout
    found = {each["what"]: each["ok"] for each in json.loads(ill.stdout)["checks"]}
    assert (ill.returncode, found["mongodb"], found["kafka"]) == (1, False, None)
    assert "hunter2" not in ill.stdout + ill.stderr


def test_a_reader_who_leaves_is_not_an_error(tmp_path: Path) -> None:
    """`tidegate list | head -1` prints no traceback."""
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate", "list"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        said = listing.stderr.read()

    assert (listing.returncode, said) == (ExitCode.BROKEN_PIPE, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ("explore", QUICKER, "--no-store"),
        ("diagram", "invocation", "--json"),
        pytest.param(("list",), marks=pytest.mark.long),
        pytest.param(("list", "--json"), marks=pytest.mark.long),
    ],
)
def test_a_full_disk_behind_stdout_is_one_clear_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tidegate", *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (
        ExitCode.USAGE,
        "error: cannot write the answer\n  why: No space left on device\n",
    )


# --- colour, width, progress ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "variables", "is_coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_terminals_unless_somebody_says_otherwise(
    here: Callable[..., Done], option: tuple[str, ...], variables: dict[str, str], is_coloured: bool
) -> None:
    good = here("explore", QUICKER, "--no-store", *option, **variables)
    bad = here("explore", "nothing", *option, **variables)

    assert ("\x1b[32m" in good.stdout, "\x1b[31m" in bad.stderr) == (is_coloured, is_coloured)


def test_nothing_is_wrapped_in_a_pipe(here: Callable[..., Done]) -> None:
    """Logs and grep need whole lines, however narrow the terminal was."""
    done = here("explore", QUICKER, "--no-store", COLUMNS="20")

    assert len(done.stdout.splitlines()[0]) > 200


def test_a_terminal_sees_a_live_line_and_a_pipe_a_plain_result(tmp_path: Path, here: Callable[..., Done]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate", "explore", STALL, "--no-store"],
        cwd=tmp_path,
        env=environment({"TERM": "xterm", "COLUMNS": "100"}),
        stdout=subprocess.PIPE,
        stderr=theirs,
        encoding="utf-8",
    ) as exploring:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # Linux raises it if the other end is closed
            pass
        assert exploring.stdout is not None
        result = exploring.stdout.read()
    os.close(ours)

    assert exploring.returncode == 0
    assert re.search(rb"\rarray_push_lock\.stall\.2  [0-9,]+ states", seen)
    assert without_seconds(result) == without_seconds(here("explore", STALL, "--no-store").stdout)


def test_a_log_sees_a_line_in_fifteen_seconds() -> None:
    times = iter([0.0, 5.0, 14.9, 15.0, 29.9, 31.0])
    err = StringIO()

    show = sparse("name", Terminal(StringIO(), err, {}), clock=lambda: next(times))
    for states in range(5):
        show(Progress(states=states, transitions=1000, depth=3, waiting=4))

    assert err.getvalue() == (
        "name  2 states  1,000 transitions  depth 3  4 waiting  15 s\n"
        "name  4 states  1,000 transitions  depth 3  4 waiting  31 s\n"
    )


def test_a_search_that_cannot_end_is_reported_before_most_of_it_is_done(here: Callable[..., Done]) -> None:
    done = here("explore", "array_push_lock", "--max-states", "6000", "--no-store")

    assert done.returncode == ExitCode.INCONCLUSIVE
    said, left, *_ = done.stderr.splitlines()
    assert re.fullmatch(
        r"warning: array_push_lock: about [\d,]+ states are expected, and the search ends after 6,000: raise --max-states,"
        r" allow fewer --faults, or sample with --runs",
        said,
    )
    assert re.search(r"on were not looked beyond; about [\d,]+ states were expected in all$", left)


def test_what_grows_without_end_is_named_while_the_search_runs() -> None:
    shown: list[Progress] = []
    err = StringIO()

    show = foretelling(shown.append, "name", Terminal(StringIO(), err, {}), 1_000)
    for growing in ((), ("p: the local `n` grows", "the notes of p grow"), ("p: the local `n` grows",)):
        show(Progress(states=200, transitions=300, depth=128, waiting=4, growing=growing))

    assert len(shown) == 3
    assert err.getvalue() == "warning: name: p: the local `n` grows\nwarning: name: the notes of p grow\n"


# --- signals --------------------------------------------------------------------------------------------------------


TARGETS: Final = ("explore", QUICKER, "mine.py:forever", QUICK)


def signalled(
    cwd: Path, numbers: tuple[signal.Signals, ...], *arguments: str, command: tuple[str, ...] = INTERRUPTIBLE
) -> tuple[int, str, str]:
    with subprocess.Popen(
        [*command, *arguments],
        cwd=cwd,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as exploring:
        assert exploring.stderr is not None
        while "searching" not in (line := exploring.stderr.readline()):
            assert line, "it ended before it was under way"
        for place, number in enumerate(numbers):
            time.sleep(0.5 if place else 0)  # the first must be handled before the second arrives
            exploring.send_signal(number)
        out, err = exploring.communicate(timeout=50)
    return exploring.returncode, out, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_search_and_what_was_found_is_shown(mine: Path, number: signal.Signals, code: int) -> None:
    ended, out, _ = signalled(mine, (number,), *TARGETS)

    assert ended == code
    assert re.search(r"UNSURE +forever .* interrupted; no random run went on from there\n", out)
    assert "3 scenarios, 1 as expected, 1 unsure, 1 not explored" in out
    assert (mine / ".tidegate" / "failures" / f"{QUICKER}.json").exists()


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_the_search_and_the_json_is_whole(mine: Path, number: signal.Signals, code: int) -> None:
    ended, found, _ = signalled(mine, (number,), *TARGETS, "--json")

    assert ended == code
    assert (json.loads(found)["ok"], [each["verdict"] for each in json.loads(found)["scenarios"]]) == (
        False,
        ["violated", "inconclusive"],
    )
    assert (mine / ".tidegate" / "failures" / f"{QUICKER}.json").exists()


@pytest.mark.parametrize(
    ("number", "code", "grace_s"),
    [
        pytest.param(signal.SIGINT, 130, 0.5, marks=pytest.mark.long),
        (signal.SIGTERM, 143, 0.5),
        pytest.param(signal.SIGTERM, 143, None, marks=pytest.mark.long),
    ],
)
def test_what_does_not_ask_for_signals_is_ended_soon(
    mine: Path, number: signal.Signals, code: int, grace_s: float | None
) -> None:
    """A law that takes a minute represents any code that does not check for signals."""
    command = INTERRUPTIBLE if grace_s is None else impatient(grace_s)
    ended, out, err = signalled(mine, (number,), "explore", QUICKER, "mine.py:hangs", "--no-store", command=command)

    assert (ended, "Traceback" in err) == (code, False)
    assert f"error: not at an end {grace_s or 5} s after the signal" in err
    assert "2 scenarios, 1 as expected, 1 not explored" in out


def test_a_second_interrupt_stops_at_once(mine: Path) -> None:
    ended, out, err = signalled(mine, (signal.SIGINT, signal.SIGINT), "explore", "mine.py:hangs", "--json")

    assert (ended, err) == (130, "error: interrupted\n")
    assert (json.loads(out)["ok"], json.loads(out)["error"]["what"]) == (False, "interrupted")
