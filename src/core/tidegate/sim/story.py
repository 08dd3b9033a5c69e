"""A trace as text for people: a line a step, and below it what changed.

Nothing in a trace can forge a line of its story: whatever it says stands on its own line, and is printable.
"""

from __future__ import annotations

from typing import assert_never

from tidegate.documents import one_line, show
from tidegate.patches import Added, Patch, Removed, Replaced
from tidegate.sim.trace import Trace


def story(trace: Trace) -> str:
    """The trace for people: a line a step, and below it what changed."""
    width = max((len(mover.name) for mover in trace.movers), default=0)
    lines = [
        f"{one_line(trace.scenario)}: "
        + (f"breaks the law: {one_line(trace.law)}" if trace.law else "no law is broken")
    ]
    lines += [f"{len(trace.steps)} steps, {one_line(trace.time + (f', seed {trace.seed}' if trace.seed else ''))}"]
    for number, step in enumerate(trace.steps, 1):
        fault = f"  [{one_line(step.fault)}]" if step.fault else ""
        lines.append(f"{number:>4}  {one_line(step.process):<{width}}  {one_line(step.event)}{fault}")
        if seen := told(tuple(change for change in step.patch if not is_routine(change))):
            lines.append(f"{'':>4}  {'':<{width}}    {seen}")
    if trace.law:
        lines.append(f"{'':>4}  {'':<{width}}  <- {one_line(trace.law)}: broken here")
    return "\n".join(lines) + "\n"


def is_routine(change: Added | Removed | Replaced) -> bool:
    """Where a process stands next is told by its next step; only how it ends is news."""
    if change.path.startswith("/budget"):
        return True
    return (
        change.path.startswith("/processes/")
        and not isinstance(change, Removed)
        and isinstance(change.value, str)
        and change.value.startswith("about to")
    )


def told(patch: Patch) -> str:
    """The patch on one line."""
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
