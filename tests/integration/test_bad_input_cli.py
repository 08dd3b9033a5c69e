from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from tests.integration.command_lines import said_here
from tests.length import APART_STEP

from tidegate.__main__ import main

BROKEN: Final = """
import itertools
from tidegate.model.documents import ID, Document, Eq, Field
from tidegate.model.operations import find_one
from tidegate.sim.servers.actors import factory, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.scenario import Scenario
from tidegate.sim.world.world import world_with

print("a module that prints")
numbers = itertools.count()


class NoEffect:
    def __await__(self):
        yield 42


async def look(key="c"):
    await find_one("counters", Eq(ID, key))


async def awaits_no_effect():
    await NoEffect()


async def needs(argument):
    await look()


async def moody():
    await look(f"c{next(numbers)}")


def scenario(program=look, name="broken", **more):
    world = world_with({"counters": (Document.of({"_id": "c", "count": 0}),)})
    actors = (Process("p", factory(program), Faults.of(Fault.LOST_REPLY)),)
    return Scenario(name=name, summary="", world=world, actors=actors, budget=1, **more)


def no_effect():
    return scenario(awaits_no_effect)


def nondeterministic():
    return scenario(moody)


def bad_law():
    return scenario(always={"a law": lambda state: 1 // 0 == 1})


def bad_goal():
    return scenario(sometimes={"a goal": lambda state: state.status("nobody")})


def leaves():
    return scenario(always={"a law": lambda state: exit(0)})


def needy():
    return scenario(needs)


def raises():
    raise RuntimeError("mongodb://admin:hunter2@host/?password=hunter3 is down")


def two_of_a_name():
    return scenario(expect="no law of it")


def takes(argument):
    return scenario()


async def later():
    return scenario()


EMPTY = []
NUMBER = 5
MIXED = [scenario(), 5]
TWINS = [scenario(), scenario()]
TWO = [scenario(name="one"), scenario(name="two")]
"""

META: Final = {"scenario": "transition", "version": "0.1.0", "law": "", "time": "time stands", "seed": None}
TRACE: Final[dict[str, Any]] = {
    "schema": "tidegate/trace@1",
    "meta": META,
    "processes": ["a"],
    "initial": {},
    "steps": [{"i": 1, "process": "a", "what": "looks", "fault": "", "patch": []}],
}

FILES: Final[dict[str, str | bytes]] = {
    "broken.py": BROKEN,
    "syntax.py": "def broken(:\n",
    "imports.py": "import a_module_that_is_not_there\n",
    "raises.py": "\n\nraise KeyError('token=hunter2')\n",
    "leaves.py": "import sys\nsys.exit(0)\n",
    "binary.py": b"\x00\xff\xfe",
    "relative.py": "from . import broken\n",
    "empty.json": "",
    "binary.json": b"\x89PNG\r\n\x1a\n\x00\xff",
    "damaged.json": json.dumps(TRACE)[:-9],
    "deep.json": "[" * 100_000,
    "number.json": "1" * 10_000,
    "other.json": '{"schema": "tidegate/report@1"}',
    "list.json": "[]",
    "future.json": json.dumps({**TRACE, "schema": "tidegate/trace@2"}),
    "no-steps.json": json.dumps({**TRACE, "steps": None}),
    "wrong-patch.json": json.dumps({**TRACE, "steps": [{**TRACE["steps"][0], "patch": [{"op": "copy", "path": "/"}]}]}),
    "nan.json": json.dumps({**TRACE, "initial": {"x": float("nan")}}),
    "unknown.json": json.dumps({**TRACE, "meta": {**META, "scenario": "no_such_scenario"}}),
    "moved.json": json.dumps({**TRACE, "meta": {**META, "scenario": "not_there.py:x"}}),
    "unfit.json": json.dumps(TRACE),
    "no-trace.html": "<!DOCTYPE html><p>hello</p>",
    "damaged.html": '<!DOCTYPE html><script type="application/json" id="trace">{"schema": </script>',
    "a file": "",
}
HUGE: Final = 65 * 1024 * 1024

BAD: Final[tuple[tuple[tuple[str, ...], int, str], ...]] = (
    # Usage.
    (("explode",), 2, "No such command 'explode'"),
    (("explore", "--states-max", "7"), 2, "No such option '--states-max'"),
    (("explore", "--nope"), 2, "No such option '--nope'"),
    (("explore", "--runs", "0"), 2, "Invalid value for '--runs'"),
    (("explore", "--runs", "many"), 2, "Invalid value for '--runs'"),
    (("explore", "--runs", "1000001"), 2, "Invalid value for '--runs'"),
    (("explore", "--runs", "1", "--seed", "x"), 2, "'x' is not a seed"),
    (("explore", "--runs", "1", "--seed", ""), 2, "'' is not a seed"),
    (("explore", "--seed", "7"), 2, "--seed does not fit"),
    (("explore", "--max-steps", "7"), 2, "--max-steps does not fit"),
    (("explore", "--runs", "1", "--max-states", "7"), 2, "--max-states does not fit"),
    (("explore", "--max-memory", "2 potatoes"), 2, "is not a size"),
    (("explore", "--max-states", "-1"), 2, "Invalid value for '--max-states'"),
    (("explore", "--timeout", "0s"), 2, "'0s' is not a time"),
    (("explore", "--timeout", "-5s"), 2, "'-5s' is not a time"),
    (("explore", "--timeout", "nan"), 2, "'nan' is not a time"),
    (("explore", "--timeout", "5 days"), 2, "'5 days' is not a time"),
    (("explore", "--out", "x", "--no-store"), 2, "--out does not fit"),
    (("explore", "--color", "blue"), 2, "Invalid value for '--color'"),
    (("replay",), 2, "Missing argument 'TRACE'"),
    (("replay", "unfit.json", "transition", "more"), 2, "unexpected extra argument"),
    (("diagram",), 2, "Missing argument"),
    (("diagram", "nothing"), 2, "'nothing' is not 'invocation'"),
    (("trace", "convert", "unfit.json"), 2, "Choose from: text, json"),
    (("explore", "--faults", "crash_befor"), 2, "did you mean crash_before?"),
    (("list", "more"), 2, "there is no scenario 'more'"),
    (("list", "syntax.py"), 2, "where: syntax.py:1"),
    (("explore", "./broken.py::no_effect"), 2, "named with one colon: path.py:attr"),
    (("explore", "nothing.py::test_it"), 2, "there is no file nothing.py"),
    # Where counterexamples are written.
    (("explore", "array_push_lock.lost_reply", "--out", "a file"), 2, "cannot write to a file"),
    (("explore", "array_push_lock.lost_reply", "--out", "a file/below"), 2, "cannot write to a file/below"),
    (("explore", "array_push_lock.lost_reply", "--out", "/proc/nothing"), 2, "cannot write to /proc/nothing"),
    (("explore", "array_push_lock.lost_reply", "--out", "x" * 300), 2, "why: File name too long"),
    (("explore", "array_push_lock.lost_reply", "--dot", "."), 2, "cannot write ."),
    (
        ("explore", "array_push_lock.lost_reply", "--no-store", "--junit-xml", "no/such/file"),
        2,
        "cannot write no/such/file",
    ),
    (("trace", "show", "unfit.json", "-o", "/"), 2, "why: Is a directory"),
    # Targets.
    (("explore", ""), 2, "there is no scenario ''"),
    (("explore", "transitoin"), 2, "did you mean transition?"),
    (("explore", "array_push_lock.lost_reply", "transitoin"), 2, "there is no scenario 'transitoin'"),
    (("explore", "-k", "nothing has this"), 5, "no scenario has 'nothing has this' in its name"),
    (("explore", "broken.py"), 2, "which scenario of it?"),
    (("explore", "broken.py"), 2, "name it: broken.py:scenario, broken.py:no_effect"),
    (("explore", "nothing.py"), 2, "there is no file nothing.py"),
    (("explore", "nothing.py:x"), 2, "there is no file nothing.py"),
    (("explore", "nothing:x"), 2, "No module named 'nothing'"),
    (("explore", "broken.py:nothing"), 2, "found there: scenario, no_effect"),
    (("explore", "broken:nothing"), 2, "found there: scenario, no_effect"),
    (("explore", "broken.py:NUMBER"), 2, "broken.py:NUMBER is not a Scenario: int"),
    (("explore", "broken.py:EMPTY"), 2, "broken.py:EMPTY is empty"),
    (("explore", "broken.py:MIXED"), 2, "broken.py:MIXED is not a Scenario: int"),
    (("explore", "broken.py:TWINS"), 2, "have one name: broken, broken"),
    (("explore", "broken.py:TWO[three]"), 2, "there are: broken.py:TWO[one], broken.py:TWO[two]"),
    (("explore", "broken.py:takes"), 2, "broken.py:takes takes arguments"),
    (("explore", "broken.py:later"), 2, "broken.py:later makes no Scenario: coroutine"),
    (("explore", "broken.py:two_of_a_name"), 2, "which is not a law of it"),
    (("explore", "broken.py:raises"), 3, "RuntimeError: mongodb://***@host/?password=*** is down"),
    (("explore", "syntax.py:x"), 2, "where: syntax.py:1"),
    (("explore", "imports.py:x"), 2, "No module named 'a_module_that_is_not_there'"),
    (("explore", "raises.py:x"), 2, "where: raises.py:3"),
    (("explore", "leaves.py:x"), 2, "SystemExit: 0"),
    (("explore", "binary.py:x"), 2, "cannot load binary.py"),
    (("explore", "relative.py:x"), 2, "attempted relative import"),
    # Errors that appear during exploration.
    (("explore", "broken.py:no_effect"), 2, "a program awaited an int, which is not an effect"),
    (("explore", "broken.py:nondeterministic"), 4, "with the same replies a program was first about to"),
    (("explore", "broken.py:bad_law"), 3, "why: ZeroDivisionError"),
    (("explore", "--no-store", "broken.py:bad_law"), 3, "in the law 'a law'"),
    (("explore", "broken.py:bad_goal"), 2, 'a law asks where "nobody" stands, which is no process'),
    (("explore", "broken.py:leaves"), 2, "the law 'a law' raised SystemExit: 0"),
    (("explore", "broken.py:needy"), 3, "why: TypeError: needs() missing 1 required positional argument"),
    # Traces.
    (("replay", "nothing.json"), 2, "there is no file nothing.json"),
    (("replay", "."), 2, ". is not a file"),
    (("replay", "/dev/zero"), 2, "/dev/zero is not a file"),
    (("replay", "empty.json"), 2, "this is not a trace, or a damaged one"),
    (("replay", "binary.json"), 2, "this is not a trace, or a damaged one"),
    (("replay", "damaged.json"), 2, "this is not a trace, or a damaged one"),
    (("replay", "deep.json"), 2, "this is not a trace, or a damaged one"),
    (("replay", "number.json"), 2, "this is not a trace, or a damaged one"),
    (("replay", "huge.json"), 2, "huge.json is larger than 64 MiB"),
    (("replay", "other.json"), 2, "this is not a trace"),
    (("replay", "list.json"), 2, "this is not a trace"),
    (("replay", "future.json"), 2, "a trace of version 'tidegate/trace@2'"),
    (("replay", "no-steps.json"), 2, "a trace is damaged"),
    (("replay", "wrong-patch.json"), 2, "operation of a patch"),
    (("replay", "nan.json"), 2, "plain JSON"),
    (("replay", "no-trace.html"), 2, "this is not a trace"),
    (("replay", "damaged.html"), 2, "this is not a trace, or a damaged one"),
    (("replay", "unknown.json"), 2, "there is no scenario 'no_such_scenario'"),
    (("replay", "moved.json"), 2, "there is no file not_there.py"),
    (("replay", "unfit.json"), 4, "the replay diverged at step 0"),
    (("replay", "unfit.json", "transitoin"), 2, "there is no scenario 'transitoin'"),
    (("replay", "unfit.json", "broken.py:TWO"), 2, "choose one: broken.py:TWO[one], broken.py:TWO[two]"),
    (("replay", "unfit.json", "broken.py:TWO[one]"), 4, "the replay diverged at step 0"),
    (("replay", "unfit.json", "broken.py:no_effect"), 2, "which is not an effect"),
    (("replay", "unfit.json", "broken.py:needy"), 3, "why: TypeError: needs() missing 1 required positional argument"),
)


APART: Final = BAD[::APART_STEP]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of bad input, shared by all rows because none may write there."""
    directory = tmp_path_factory.mktemp("bad")
    for name, content in FILES.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with (directory / "huge.json").open("wb") as huge:
        huge.truncate(HUGE)
    return directory


def run(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TIDEGATE_SEED")}
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments],
        cwd=here,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def found_in(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.mark.usefixtures("set_aside")
@pytest.mark.parametrize(("arguments", "code", "said"), BAD, ids=[" ".join(row[0]) for row in BAD])
def test_bad_input_is_one_clear_error(
    here: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    *,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = found_in(here)
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    plain_code = main(arguments)
    plain = capsys.readouterr()
    if (arguments, code, said) in APART:
        done = run(here, *arguments, "--json")
        json_code, as_json = done.returncode, capsys.readouterr()._replace(out=done.stdout, err=done.stderr)
    else:
        json_code, as_json = main([*arguments, "--json"]), capsys.readouterr()

    assert (json_code, plain_code) == (code, code), plain.err
    assert plain.out == ""
    assert said in plain.err
    answer = json.loads(as_json.out)
    assert answer["ok"] is False
    assert answer["schema"].startswith("tidegate/")
    assert any(said in f"{name}: {text}" for name, text in answer["error"].items())
    everything = plain.err + as_json.err + as_json.out
    assert "\nerror: " in f"\n{as_json.err}"
    assert "Traceback" not in everything
    assert "hunter" not in everything
    assert found_in(here) == before


@pytest.mark.parametrize("arguments", [(), ("explore", "--debug", "broken.py:bad_law")], ids=["bare", "debug"])
def test_what_tells_more_than_an_error_tells_it_on_stderr(here: Path, arguments: tuple[str, ...]) -> None:
    shown = run(here, *arguments)

    assert (shown.returncode, shown.stdout) == ((3, "") if arguments else (2, ""))
    traced, helped = "Traceback (most recent call last)" in shown.stderr, "Usage: tidegate" in shown.stderr
    assert (traced, helped) == (bool(arguments), not arguments)


def test_a_failure_in_the_middle_keeps_what_was_found(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("explore", "transition.version_not_raised", "broken.py:bad_law", "--no-store")

    plain, as_json = (said_here((*arguments, *option), here, capsys) for option in ((), ("--json",)))

    found = json.loads(as_json.out)
    assert (plain.code, as_json.code) == (3, 3)
    assert plain.out.startswith("ok       transition.version_not_raised")
    assert "2 scenarios, 1 as expected, 1 not explored" in plain.out
    assert "error: scenario broken raised an error" in plain.err
    assert [each["name"] for each in found["scenarios"]] == ["transition.version_not_raised"]
    assert (found["ok"], found["error"]["why"]) == (False, "ZeroDivisionError: integer division or modulo by zero")
