"""A trace as a table of one line per step, for a terminal, a log, an issue or `grep`.

Columns: number, time, process, event, fault, change. Events are cut only on request; changes come
last, in full. No text in a trace can start a line of its own.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import one_line
from tidegate.model.instants import seconds
from tidegate.sim.trace.rendering import is_routine, patch_line
from tidegate.sim.trace.trace import Trace, TraceStep

_TITLES: Final = ("#", "t", "process", "event", "fault", "change")


def text(trace: Trace, event_max: int | None = None) -> str:
    """The trace as a table.

    Args:
        trace: The run.
        event_max: The maximum length of an event; None for no limit.
    """
    rows = [_TITLES, *(_cells(number, step, event_max) for number, step in enumerate(trace.steps, 1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES) - 1)]
    lines = [
        f"{one_line(trace.scenario)}: {f'breaks the law: {one_line(trace.law)}' if trace.law else 'no law is broken'}"
    ]
    for number, *row, change in rows:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(row, widths[1:], strict=True))
        lines.append(f"{number:>{widths[0]}}  {padded}  {change}".rstrip())
    return "\n".join(lines) + "\n"


def _cells(number: int, step: TraceStep, event_max: int | None) -> tuple[str, ...]:
    return (
        str(number),
        "" if step.at is None else seconds(step.at),
        one_line(step.process),
        one_line(step.event) if event_max is None else cut(one_line(step.event), event_max),
        one_line(step.fault),
        patch_line(tuple(change for change in step.patch if not is_routine(change))),
    )


def cut(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[: length - 3]}..."
