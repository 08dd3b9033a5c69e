"""`tidegate trace`: shows, converts, compares or extracts a stored trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse
from tidegate.sim.runs.exports.dot import happens_before
from tidegate.sim.runs.exports.itf import itf
from tidegate.sim.runs.exports.mermaid import mermaid
from tidegate.sim.runs.exports.perfetto import perfetto
from tidegate.sim.runs.exports.text import text
from tidegate.sim.trace.compare import RunDifference, compared
from tidegate.sim.trace.rendering import number_of, step_lines
from tidegate.sim.trace.trace import Trace, TraceStep
from tidegate.sim.trace.trace_json import encoded
from tidegate_adapters.exploring.counterexamples import read, save
from tidegate_adapters.page.assembly import page
from tidegate_adapters.shell.terminal import Terminal

_EVENT_MAX: Final = 72
_Export: TypeAlias = Callable[[Trace], str]


def _as_json(form: Callable[[Trace], Mapping[str, object]]) -> _Export:
    return lambda trace: json.dumps(form(trace), indent=1, allow_nan=False) + "\n"


_EXPORTS: Final[dict[str, _Export]] = {
    "text": text,
    "json": _as_json(encoded),
    "mermaid": mermaid,
    "perfetto": _as_json(perfetto),
    "itf": _as_json(itf),
    "dot": happens_before,
    "html": lambda trace: page(trace, "trace.json"),
}


def show(path: Path, form: str, out: Path | None, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Write a trace in another form, to a file or to stdout."""
    trace = read(path)
    is_looked_at = form == "text" and out is None and terminal.out.isatty()  # a pipe or file gets whole lines
    written = text(trace, _EVENT_MAX) if is_looked_at else _EXPORTS[form](trace)
    if out is not None:
        save(out, written)
    if is_json:
        answer = {"text": written} if out is None else {"out": str(out)}
        terminal.answer({"schema": "tidegate/trace-export@1", "format": form, **answer, "ok": True})
    elif out is None:
        terminal.say(written.rstrip("\n"))
    else:
        terminal.say(f"written: {out}")
    return ExitCode.OK


def diff(path: Path, other: Path | None, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Print where two traces diverge, or one and its nearest passing run."""
    left = read(path)
    if other is not None:
        right = read(other)
    elif left.passing is not None:
        right = attrs.evolve(left, steps=left.passing.steps, law="")
    else:
        raise Misuse(f"{path} has no passing run beside it", todo="name another trace to compare it to")
    if left.initial != right.initial:
        raise Misuse("the two runs do not begin alike", where=f"{path}, {other}", todo="compare runs of one scenario")
    found = compared(left.steps, right.steps)
    names = str(path), "the nearest passing run" if other is None else str(other)
    if is_json:
        terminal.answer({"schema": "tidegate/trace-diff@1", **_difference_json(found), "ok": True})
        return ExitCode.OK
    if found.left is None and found.right is None:
        terminal.say(f"the same {number_of(found.alike, 'step')}")
        return ExitCode.OK
    terminal.say(f"the same {number_of(found.alike, 'step')}, then")
    for name, trace in zip(names, (left, right), strict=True):
        rest = list(enumerate(trace.steps, 1))[found.alike :]
        terminal.say(f"{name}: {len(rest)} more")
        for number, step in rest:
            for line in step_lines(number, step, max(len(mover.name) for mover in trace.movers)):
                terminal.say(line)
        terminal.say(f"        breaks the law: {trace.law}" if trace.law else "        no law is broken")
    return ExitCode.OK


def _difference_json(found: RunDifference) -> dict[str, object]:
    def shown(step: TraceStep | None) -> object:
        return None if step is None else {"process": step.process, "event": step.event, "fault": step.fault}

    return {"alike": found.alike, "left": shown(found.left), "right": shown(found.right)}


def extract(path: Path, out: Path | None, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Extract the trace of a page, or of a compressed file; never overwrites a file."""
    target = path.with_suffix(".json") if out is None else out
    if out is None and target.exists():
        raise Misuse(f"{target} is there already", todo="choose another file with -o")
    return show(path, "json", target, terminal, is_json=is_json)
