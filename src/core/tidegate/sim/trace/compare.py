"""Compares two runs: how many decisions they share, and the first step of each that differs."""

from __future__ import annotations

from typing import final

import attrs

from tidegate.sim.trace.trace import TraceStep


@final
@attrs.frozen
class RunDifference:
    """The point where two runs diverge.

    Attributes:
        alike: The number of initial steps with the same decisions and changes.
        left: The first different step of one run; None if it has ended.
        right: That of the other run; None if it has ended. If both are None, the runs are equal.
    """

    alike: int
    left: TraceStep | None
    right: TraceStep | None


def compared(left: tuple[TraceStep, ...], right: tuple[TraceStep, ...]) -> RunDifference:
    pairs = zip(map(decision, left), map(decision, right), strict=False)
    same = next((number for number, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(left), len(right)))
    return RunDifference(same, *(steps[same] if same < len(steps) else None for steps in (left, right)))


def decision(step: TraceStep) -> tuple[object, ...]:
    return step.process, step.event, step.fault, step.patch
