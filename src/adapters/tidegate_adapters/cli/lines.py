"""The results of an exploration as lines, and the next commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import attrs

from tidegate.sim.runs.report import Report, Verdict
from tidegate.sim.trace.rendering import number_of, render
from tidegate.sim.trace.trace import Trace
from tidegate_adapters.base.redaction import one_line
from tidegate_adapters.cli.shrinking import Smaller
from tidegate_adapters.exploring.counterexamples import replay_line
from tidegate_adapters.shell.terminal import Span, Styled

_STORY_LINES_MAX: Final = 80


@final
@attrs.frozen(eq=False)
class Result:
    """A report, its duration, and the files of its counterexample."""

    report: Report
    seconds: float
    saved: Path | None
    smaller: Smaller | None = None

    @property
    def is_met(self) -> bool:
        return self.report.ok

    @property
    def is_open(self) -> bool:
        return self.report.verdict is Verdict.INCONCLUSIVE


def summed_up(result: Result, width: int) -> tuple[Span, ...]:
    """The line of a scenario; more lines give the broken law, why a verdict is unknown, unmerged
    states, and bounds of time.
    """
    report = result.report
    expected = "clean" if report.expect is None else "violated"
    laws = f"{report.laws} law{'' if report.laws == 1 else 's'}"
    faults = ", ".join(f"{kind} {count:,}" for kind, count in report.faults.items()) or "none"
    budget = f" (at most {report.budget} a run)" if report.budget else ""
    more = [
        detail for detail in (broken(result), report.why, report.reason, _unmerged(report), _bounded(report)) if detail
    ]
    columns = (
        f"{one_line(report.scenario):<{width}}",
        f"expected {expected:<8}",
        f"{report.verdict:<12}",
        f"{report.states:>9,} states",
        f"{report.transitions:>9,} transitions",
        f"depth {report.depth:>3,}",
        f"{result.seconds:>6.1f} s",
        f"{laws:<7}",
        f"faults: {faults}{budget}",
    )
    return (_mark(result), "  ".join((*columns, *map(one_line, more))))


def _mark(result: Result) -> Styled:
    if result.is_met:
        return Styled("ok       ", "green")
    return Styled("UNSURE   ", "yellow") if result.is_open else Styled("NOT MET  ", "red")


def broken(result: Result) -> str:
    report = result.report
    if report.trace is None:
        return "" if report.expect is None or result.is_open else f"expected to be broken: {report.expect}"
    other = "" if report.expect in (None, report.law) else f", expected: {report.expect}"
    seed = f", seed {report.seed}, {report.policy}" if report.seed else ""
    return f"broken in {number_of(len(report.trace.steps), 'step')}{seed}: {report.law}{other}"


def _unmerged(report: Report) -> str:
    return f"{len(report.unmerged)} unmerged" if report.unmerged else ""


def _bounded(report: Report) -> str:
    """Relative time bounds nothing."""
    return report.time if report.time.startswith("absolute") else ""


def shrunk_line(result: Result) -> str:
    return "" if result.smaller is None else f"         {result.smaller.shrunk}"


def stories(result: Result) -> tuple[str, ...]:
    """Unexpected counterexamples, in full unless long; as found, then shrunk."""
    if result.report.trace is None or result.is_met:
        return ()
    found = _story(result.report.trace)
    return found if result.smaller is None else (*found, *_story(result.smaller.trace), str(result.smaller.shrunk))


def _story(trace: Trace) -> tuple[str, ...]:
    lines = render(trace).splitlines()
    left = len(lines) - _STORY_LINES_MAX
    return ("", *lines[:_STORY_LINES_MAX], *([f"... and {left} more lines"] if left > 0 else []))


def written(results: Sequence[Result]) -> tuple[str, ...]:
    saved = [path for result in results for path in (result.saved, result.smaller and result.smaller.saved) if path]
    if not saved:
        return ()
    one = next(
        result.smaller.saved if result.smaller and result.smaller.saved else result.saved
        for result in results
        if result.saved
    )
    many = [f"  {one_line(str(path.with_suffix('')))}" for path in saved]
    return ("", "counterexamples, each as .txt, .json and .html:", *many, f"replay one: {one_line(replay_line(one))}")


def ended(results: Sequence[Result], selected: int) -> str:
    met = sum(result.is_met for result in results)
    unsure = sum(result.is_open and not result.is_met for result in results)
    parts = [f"{selected} scenario{'' if selected == 1 else 's'}", f"{met} as expected"]
    parts += [f"{count} {what}" for count, what in ((len(results) - met - unsure, "not"), (unsure, "unsure")) if count]
    parts += [f"{selected - len(results)} not explored"] if len(results) < selected else []
    return f"{', '.join(parts)}, {sum(result.seconds for result in results):.1f} s"
