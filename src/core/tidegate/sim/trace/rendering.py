"""A trace as text: a line for each step, and its changes below.

A trace cannot forge a line of its story: each of its texts stays on one line and is printable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tidegate.model.documents import Document, Value, one_line, show
from tidegate.model.patches import Added, Patch, Removed, Replaced
from tidegate.sim.trace.trace import Breach, Trace, TraceStep


def render(trace: Trace) -> str:
    width = max((len(mover.name) for mover in trace.movers), default=0)
    lines = [
        f"{one_line(trace.scenario)}: "
        + (f"breaks the law: {one_line(trace.law)}" if trace.law else "no law is broken")
    ]
    lines += [
        f"{number_of(len(trace.steps), 'step')}, {one_line(trace.time + (f', seed {trace.seed}' if trace.seed else ''))}"
    ]
    lines += [line for number, step in enumerate(trace.steps, 1) for line in step_lines(number, step, width)]
    if trace.law and not trace.steps:  # no step: the first state breaks the law
        lines += [f"{'':>4}  {one_line(each)}" for each in state_lines(trace.initial)]
    if trace.law:
        lines.append(
            f"{'':>4}  {'':<{width}}  <- {one_line(trace.law)}: broken here{_raised_after(trace)}{_for_ever(trace)}"
        )
    return "\n".join(lines) + "\n"


def number_of(number: int, what: str) -> str:
    """The number with its noun, which takes an s in the plural."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _raised_after(trace: Trace) -> str:
    """The line that the program had reached before its error; a broken law has none."""
    src = trace.steps[-1].src if trace.breach is Breach.ERROR and trace.steps else ""
    return f", after {one_line(src)}" if src else ""


def _for_ever(trace: Trace) -> str:
    why = f"; {one_line(trace.why)}" if trace.why else ""
    first = len(trace.steps) - trace.loop + 1
    return f"{why}, steps {first} to {len(trace.steps)} again and again" if trace.loop else why


def step_lines(number: int, step: TraceStep, width: int) -> list[str]:
    fault = f"  [{one_line(step.fault)}]" if step.fault else ""
    lines = [f"{number:>4}  {one_line(step.process):<{width}}  {one_line(step.event)}{fault}"]
    if seen := patch_line(tuple(change for change in step.patch if not is_routine(change))):
        lines.append(f"{'':>4}  {'':<{width}}    {seen}")
    return lines


def state_lines(state: Document) -> list[str]:
    return [f"{one_line(path)} = {show(value)}" for path, value in _leaves("", state)]


def _leaves(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    if not isinstance(value, Document) or not value.items:
        yield path, value
        return
    for key, item in value.items:
        yield from _leaves(f"{path}/{key.replace('~', '~0').replace('/', '~1')}", item)


def is_routine(change: Added | Removed | Replaced) -> bool:
    """The next step of a process shows its status, and only its end is news."""
    if change.path.startswith("/budget"):
        return True
    return (
        change.path.startswith("/processes/")
        and not isinstance(change, Removed)
        and isinstance(change.value, str)
        and change.value.startswith("about to")
    )


def patch_line(patch: Patch) -> str:
    return "; ".join(map(sentence, patch))


def sentence(change: Added | Removed | Replaced) -> str:
    match change:
        case Added(path, value):
            return f"+ {one_line(path)}: {show(value)}"
        case Removed(path):
            return f"- {one_line(path)}"
        case Replaced(path, value):
            return f"{one_line(path)} := {show(value)}"
        case _:
            assert_never(change)
