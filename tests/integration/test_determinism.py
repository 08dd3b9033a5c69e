from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tidegate.__main__ import main
from tidegate.catalogue import shipped
from tidegate.exit_codes import ExitCode
from tidegate.model.effects import Note
from tidegate.sim import Process, Returned, Scenario, Verdict, explore, factory, world_with
from tidegate.sim.world.world import Plain
from tidegate_adapters.exploring.second_process import second_process

MINE: Final = """
import random
import time
from datetime import datetime, timezone
from tidegate.model.effects import Note
from tidegate.sim import factory, Process, Scenario, world_with

SEEN = []


def scenario_of(program):
    actors = tuple(Process(name, factory(program)) for name in ("p", "q"))
    return Scenario(name=program.__name__, summary="", world=world_with({}), actors=actors)


async def looks_at_a_clock():
    await Note("begun", 1)
    await Note("at", stamp())


def stamp():
    return time.time_ns()


async def looks_at_a_date():
    await Note("at", datetime.now(timezone.utc).isoformat())


async def draws_a_number():
    await Note("begun", 1)
    await Note("draws", random.random())


async def goes_through_a_set():
    for name in {"one", "two", "three", "four", "five"}:
        await Note(name, 1)


async def keeps_a_global():
    SEEN.append(1)
    await Note("seen", len(SEEN))


async def returns_what_it_draws():
    await Note("begun", 1)
    return random.random()


ORDER = tuple({"one", "two", "three", "four", "five"})


async def goes_by_its_module():
    for name in ORDER:
        await Note(name, 1)


async def is_right():
    for name in sorted({"one", "two", "three"}):
        await Note(name, 1)


clock = scenario_of(looks_at_a_clock)
date = lambda: scenario_of(looks_at_a_date)
number = lambda: scenario_of(draws_a_number)
order = lambda: scenario_of(goes_through_a_set)
shared = lambda: scenario_of(keeps_a_global)
result = lambda: scenario_of(returns_what_it_draws)
module = lambda: scenario_of(goes_by_its_module)
right = lambda: scenario_of(is_right)
print("this module prints")
"""

FOUND: Final = {
    "clock": ("clock", "note at: ", "looks_at_a_clock"),
    "date": ("clock", "note at: ", "looks_at_a_date"),
    "number": ("random", "note draws: 0.", "draws_a_number"),
    "order": ("order", "note ", "goes_through_a_set"),
    "shared": ("global", "note seen: ", "keeps_a_global"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_what_a_program_depends_on_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    targets = [f"mine.py:{name}" for name in (*FOUND, "result", "right")]

    code = main(["check-determinism", *targets, "transition", "partition", "--runs", "3", "--json"])

    scenarios = {
        each["name"].removeprefix("mine.py:"): each for each in json.loads(capsys.readouterr().out)["scenarios"]
    }
    assert code == ExitCode.DIVERGED
    assert [name for name, each in scenarios.items() if each["ok"]] == ["right", "transition", "partition"]
    for name, (cause, what, function) in FOUND.items():
        difference = scenarios[name]["difference"]
        assert difference["cause"] == cause
        assert what in difference["first"]
        assert difference["first"] != difference["second"] or difference["is_torn"]
        assert difference["process"] in {"p", "q"}
        file, said = difference["src"].split(" ")
        assert (file.partition(":")[0], said) == ("mine.py", function)
        assert "await Note" in MINE.splitlines()[int(file.partition(":")[2]) - 1]
    assert scenarios["result"]["difference"]["first"].startswith("finished: 0.")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", [*FOUND, "result", "module"])
def test_an_exploration_refuses_it_as_well(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if only module-level code depends on a hash."""
    code = main(["explore", f"mine.py:{name}", "--no-store"])

    assert code == ExitCode.DIVERGED
    assert "why: it depends on" in capsys.readouterr().err.replace("  ", " ").replace("why:  ", "why: ")


@pytest.mark.usefixtures("here")
def test_an_exploration_of_what_is_right_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explore", "mine.py:right", "--no-store"])

    assert code == ExitCode.OK
    assert "second process" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "seed",
    [pytest.param("0", marks=pytest.mark.long), "1", pytest.param("2", marks=pytest.mark.long), "random"],
)
def test_a_verdict_does_not_depend_on_the_hash_seed(seed: str) -> None:
    """`-c` sends its program by value. The second process ends with this one, without a warning."""
    script = (
        MINE
        + """
import subprocess
from tidegate.sim import explore
for scenario in (order(), right()):
    try:
        print(explore(scenario).verdict)
    except Exception as error:
        print(type(error).__name__)
from tidegate_adapters.exploring.second_process import second_process
print(*[child.process.pid for child in second_process().children.values()])
"""
    )
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)

    _, *verdicts, children = done.stdout.splitlines()
    assert verdicts == ["Nondeterministic", "complete"]
    assert done.stderr == ""
    assert not any(is_alive(int(child)) for child in children.split())


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def sorts_a_set() -> None:
    for name in sorted({"one", "two", "three"}):
        await Note(name, 1)


def test_a_second_process_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set may need several second processes."""
    monkeypatch.setattr("tidegate_adapters.exploring.second_process.SEEDS", ("1", "2"))
    actors = (Process("p", factory(sorts_a_set)),)
    scenarios = (shipped("counter"), Scenario("set", "", world_with({}), actors, always={"L": lambda _: True}))
    for _ in range(2):
        assert [explore(each).uncovered for each in scenarios] == [(), ()]
        for child in second_process().children.values():
            assert child.process is not None
            child.process.kill()
            child.process.wait()


def test_a_second_process_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    explore(shipped("counter"))
    for child in second_process().children.values():
        assert child.process is not None
        child.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("tidegate_adapters.exploring.second_process.ANSWER_S", 0.01)
    report = explore(shipped("counter"))
    second_process().close()  # closes the unused children of other seeds too
    assert any("the second process has ended" in line for line in report.uncovered)


def test_without_cloudpickle_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested function can be sent only by value."""
    monkeypatch.setattr("tidegate_adapters.exploring.second_process.cloudpickle", None)
    monkeypatch.setattr("tidegate_adapters.exploring.second_process._PICKLER", pickle.Pickler)

    async def local() -> None:
        await Note("said", 1)

    actors = (Process("p", factory(local)),)
    report = explore(Scenario(name="local", summary="", world=world_with({}), actors=actors))
    (line,) = [line for line in report.uncovered if "second process" in line]
    assert line.endswith(
        "pip install 'tidegate[cli]', which brings cloudpickle; or move it to a module that can be imported"
    )


@pytest.mark.usefixtures("here")
def test_a_difference_is_shown_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check-determinism", "mine.py:clock", "--runs", "2"])

    printed = capsys.readouterr().out
    assert code == ExitCode.DIVERGED
    assert "DIFFERS  mine.py:clock: " in printed
    assert "likely: a clock (time, time_ns)" in printed
    assert "help:   pass it as an argument, or ask for it with an effect" in printed


LIMIT = 3


async def counts_to_a_limit() -> int:
    done = 0
    while done < LIMIT:
        await Note("done", done)
        done += 1
    return done


def test_what_a_test_has_patched_in_this_process_is_no_nondeterminism(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hash seeds agree, and the second process gets this process's objects."""
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 7)
    scenario = Scenario(
        name="patched",
        summary="",
        world=Plain(),
        actors=(Process("p", factory(counts_to_a_limit)),),
        always={"L": lambda _: True},
        sometimes={"seven": lambda state: state.status("p") == Returned(7)},
    )
    report = explore(scenario)
    assert (report.verdict, report.goals) == (Verdict.COMPLETE, {"seven": True})


def test_where_no_second_process_can_start_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    second_process().close()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    report = explore(shipped("counter"))
    second_process().close()
    assert report.verdict is Verdict.COMPLETE
    assert any("the second process has ended" in line for line in report.uncovered)
