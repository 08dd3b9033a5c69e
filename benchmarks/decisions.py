"""What each decision of the core costs, and the hot path: `python -m benchmarks.decisions [-k NAME] [--json FILE]`.

A row is a decision in one situation (`benchmarks/cases`), at a typical and at an extreme size where a size matters: how
often it can be made in a second, how many bytes its inputs take, and how its time grows between the two sizes, as the
exponent of a power law: n^0 is flat, n^1 in proportion. Bytes are counted object by object: to trace the allocations
tells the same, and it takes several times as long to build inputs then.

Processor time is measured, for decisions wait for nothing. Rounds of both sizes alternate, and the best of each counts,
which is what the machine can do when nothing else disturbs it. About 0.05 us of each call are the lambda that makes it.
The collector of garbage runs as it does, but is spared the inputs, which are as good as static. Progress goes to stderr.
The hot path is explained in `benchmarks/hot_path.py`.
"""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import getclosurevars
from itertools import repeat
from pathlib import Path
from time import process_time
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Final

import attrs
from benchmarks import hot_path
from benchmarks.cases import TABLES
from benchmarks.cases.table import Case
from benchmarks.smoke import sized

ROUNDS: Final = sized(5, 1)
SECONDS: Final = sized(0.25, 0.000_1)
TICK: Final = 1e-9
"""No call takes no time, whatever a coarse clock says of the first one."""

Call = Callable[[], object]

CODE: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""What takes no bytes of its own, however often it is called."""


# --- what a row tells ---------------------------------------------------------------------------------------------------


@attrs.frozen
class Point:
    """What a decision costs at a size."""

    size: int
    us: float
    calls_per_second: float
    bytes: int

    def __str__(self) -> str:
        size = short(self.size) if self.size else ""
        return f"{size:>7}{short(self.calls_per_second):>9}{micro(self.us):>12}{short(self.bytes):>9}"


@attrs.frozen
class Row:
    """What a decision costs: at each size, and by which power of the size it grows; None where no size matters."""

    table: str
    module: str
    decision: str
    size_of: str
    points: tuple[Point, ...]
    exponent: float | None

    def __str__(self) -> str:
        grows = "" if self.exponent is None else power(self.exponent)
        points = "".join(map(str, self.points)).ljust(len(str(self.points[0])) * 2)
        return f"{f'{self.module}: {self.decision}':49}{self.size_of:10}{points}  {grows}".rstrip()


HEAD: Final = (
    f"{'':59}{'typical':^37}{'extreme':^37}\n"
    f"{'decision':49}{'size of':10}" + f"{'size':>7}{'calls/s':>9}{'us a call':>12}{'bytes':>9}" * 2 + "  grows"
)


def short(number: float) -> str:
    """A number for people, with k, M or G for its thousands."""
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= unit:
            return f"{number / unit:.1f}".removesuffix(".0") + letter
    return f"{number:.3g}"


def micro(us: float) -> str:
    return f"{us:,.2f}" if us < 100 else f"{us:,.0f}"


def power(exponent: float) -> str:
    return f"n^{exponent:.1f}" if exponent >= 0.05 else "n^0"


# --- measuring ----------------------------------------------------------------------------------------------------------


def measured(title: str, case: Case, seconds: float) -> Row:
    """The row of a case, after its answer was looked at, at each size."""
    sizes = case.sizes.at[: sized(len(case.sizes.at), 1)]
    made = [built(case, size) for size in sizes]
    times = best_of([call for call, _ in made], seconds)
    points = tuple(
        Point(size, time * 1e6, 1 / time, held) for size, time, (_, held) in zip(sizes, times, made, strict=True)
    )
    return Row(title, case.module, case.what, case.sizes.of, points, exponent(points))


def built(case: Case, size: int) -> tuple[Call, int]:
    """The call, and how many bytes its inputs take."""
    call, is_right = case.make(size)
    answer = call()
    if not is_right(answer):
        raise AssertionError(f"{case} answers {answer!r:.300} at {size:,}, so that its time means nothing")
    return call, bytes_of(call)


def bytes_of(call: Call) -> int:
    """How many bytes all objects take that the call names, and those that they hold, each once."""
    named = getclosurevars(call)
    waiting: list[object] = [*named.nonlocals.values(), *named.globals.values()]
    counted: set[int] = set()
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) not in counted and not isinstance(one, CODE):
            counted.add(id(one))
            total += sys.getsizeof(one)
            waiting += gc.get_referents(one)
    return total


def best_of(calls: Sequence[Call], seconds: float) -> list[float]:
    """How many seconds each call takes: the best of rounds in turn, which take that many seconds for each call."""
    gc.collect()
    gc.freeze()
    best, spent = [timed(call, 1) for call in calls], [0.0] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            if spent[at] < seconds:
                count = max(1, int(seconds / ROUNDS / best[at]))
                took = timed(call, count)
                best[at], spent[at] = min(best[at], took), spent[at] + took * count
    gc.unfreeze()
    return best


def timed(call: Call, count: int) -> float:
    start = process_time()
    for _ in repeat(None, count):
        call()
    return max(process_time() - start, TICK) / count


def exponent(points: Sequence[Point]) -> float | None:
    if len(points) == 1:
        return None
    first, last = points[0], points[-1]
    return math.log(last.us / first.us) / math.log(last.size / first.size)


# --- the command --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write them as JSON if asked to."""
    parser = ArgumentParser(prog="python -m benchmarks.decisions", description="What each decision costs.")
    parser.add_argument("-k", metavar="NAME", action="append", help="only rows whose name contains it; may be repeated")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each size of a row (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there too")
    asked = parser.parse_args(arguments)
    names: list[str] = asked.k or [""]
    tables = {table.title: [case for case in table.cases if is_named(case, names)] for table in TABLES}
    courses = [course for course in hot_path.COURSES if is_named(course, names)]
    progress = Progress(sum(map(len, tables.values())) + len(courses))
    rows: list[Row] = []
    for title, cases in tables.items():
        if cases:
            print(f"{title}\n{HEAD}")
        for case in cases:
            with progress(case):
                rows.append(measured(title, case, asked.seconds))
            print(rows[-1], flush=True)
        if cases:
            print()
    hot: list[hot_path.Shares] = []
    for course in courses:
        with progress(course):
            hot.append(hot_path.measured(course, asked.seconds, best_of))
    if hot:
        print(hot_path.table(hot))
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(as_json(rows, hot), indent=1) + "\n")


def is_named(row: object, names: Sequence[str]) -> bool:
    return any(name in str(row) for name in names)


class Progress:
    """Says on stderr which row is being measured; on a terminal only as long as it is."""

    def __init__(self, rows: int) -> None:
        self.rows, self.at = rows, 0
        self.end = "\r\x1b[K" if sys.stderr.isatty() else "\n"

    @contextmanager
    def __call__(self, row: object) -> Iterator[None]:
        self.at += 1
        sys.stderr.write(f"{self.at}/{self.rows} {row}")
        sys.stderr.flush()
        yield
        sys.stderr.write(self.end)
        sys.stderr.flush()


def as_json(rows: Sequence[Row], hot: Sequence[hot_path.Shares]) -> dict[str, object]:
    """The results and what they were measured on. There is no date: whoever keeps the file knows it."""
    return {
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "decisions": [attrs.asdict(row) for row in rows],
        "hot_path": hot_path.as_json(hot),
    }


if __name__ == "__main__":
    main()
