"""`tidegate check-determinism`: does a program decide the same whenever and wherever it runs?

Each scenario runs twice here and four times in fresh processes, two of them with the same
PYTHONHASHSEED; the first difference is shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from random import Random
from typing import Final

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import TidegateError
from tidegate.sim.runs.determinism import (
    Cause,
    Difference,
    Runs,
    difference,
    from_plain,
    judged,
    scheduled_runs,
    to_plain,
)
from tidegate.sim.trace.rendering import number_of
from tidegate_adapters.base.errors import CodeRaisedError, NothingSelectedError, origin, raised
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.exploring.targets import Target, one
from tidegate_adapters.shell.terminal import Terminal

_STEPS_MAX: Final = 100
_SEED: Final = "determinism"
_HASH_SEEDS: Final = ("0", "0", "1", "2")
_FRESH: Final = "import sys; from tidegate_adapters.cli.determinism import print_runs; print_runs(*sys.argv[1:])"


def check_all(targets: Sequence[Target], runs: int, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Check programs along `runs` schedules each."""
    if not targets:
        raise NothingSelectedError("no scenario is selected", todo="tidegate list shows what ships")
    found = _checked(targets, runs)
    if is_json:
        checks = [{"name": name, "runs": runs, **_as_json(each)} for name, each in found.items()]
        ok = all(each is None for each in found.values())
        terminal.answer({"schema": "tidegate/determinism@1", "scenarios": checks, "ok": ok})
    else:
        for name, each in found.items():
            for line in (
                (f"ok       {name}: the same along {runs} schedules, in every process",)
                if each is None
                else _lines(name, *each)
            ):
                terminal.say(one_line(line))
    return ExitCode.DIVERGED if any(found.values()) else ExitCode.OK


def _checked(targets: Sequence[Target], runs: int) -> dict[str, tuple[Difference, Cause] | None]:
    """Differences between executions of each target, and their likely causes."""
    children = [_begun(targets, runs, hash_seed) for hash_seed in _HASH_SEEDS]
    try:
        here, again = ([_here_executed(target, runs) for target in targets] for _ in range(2))
        first, same, *others = (_ended(targets, child) for child in children)
    finally:
        for child in children:
            child.kill()
            child.communicate()
    found = {}
    for number, target in enumerate(targets):
        reseeded = (difference(first[number], other[number]) for other in others)
        found[target.identity] = judged(
            difference(here[number], again[number]),
            difference(first[number], same[number]),
            next((each for each in reseeded if each is not None), None),
        )
    return found


def _here_executed(target: Target, runs: int) -> Runs:
    try:
        return scheduled_runs(target.scenario, seed=_SEED, runs=runs, steps_max=_STEPS_MAX, seeding=Random)
    except TidegateError as error:
        error.where = error.where or ", ".join(filter(None, (target.identity, origin(error))))
        raise
    except (Exception, SystemExit) as error:
        raise raised(error, f"{target.identity} raised an error outside of its programs") from error


def _begun(targets: Sequence[Target], runs: int, hash_seed: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _FRESH, str(runs), *(target.identity for target in targets)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)  # noqa: S603  our own code


def _ended(targets: Sequence[Target], child: subprocess.Popen[str]) -> list[Runs]:
    out, err = child.communicate()
    if child.returncode:
        last = err.strip().rpartition("\n")[2]
        names = ", ".join(target.identity for target in targets)
        raise CodeRaisedError(f"{names} cannot be executed in a process of its own", why=last)
    return [from_plain(each) for each in json.loads(out.rpartition("\n")[2])]  # after a module's own output


def print_runs(runs: str, *identities: str) -> None:
    """In the fresh process: the last line of stdout is the result."""
    found = [_here_executed(one(identity), int(runs)) for identity in identities]
    sys.stdout.write("\n" + json.dumps(list(map(to_plain, found))))


def _lines(name: str, found: Difference, cause: Cause) -> tuple[str, ...]:
    named = f" ({', '.join(found.names)})" if found.names and cause in {Cause.CLOCK, Cause.RANDOM} else ""
    return (
        f"DIFFERS  {name}: {found.process or 'a process'} after {number_of(found.step, 'step')} of schedule {found.run}",
        *((f"  {found.first}",) if found.is_torn else (f"  once:   {found.first}", f"  then:   {found.second}")),
        *((f"  where:  {found.src}",) if found.src else ()),
        f"  likely: {cause.value}{named}",
        "  help:   pass it as an argument, or ask for it with an effect",
    )


def _as_json(found: tuple[Difference, Cause] | None) -> dict[str, object]:
    if found is None:
        return {"difference": None, "ok": True}
    what, cause = found
    answer = {**attrs.asdict(what), "names": list(what.names), "cause": cause.name.lower(), "likely": cause.value}
    return {"difference": answer, "ok": False}
