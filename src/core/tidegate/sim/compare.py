"""Two runs beside each other: how far they take the same decisions, and what each does first that the other does not."""

from __future__ import annotations

from typing import final

import attrs

from tidegate.sim.trace import TraceStep


@final
@attrs.frozen
class RunDifference:
    """Where two runs part.

    Attributes:
        alike: How many steps are the same in both from the beginning on, in what is decided and what it changes.
        left: The first step of the one that differs; None where it has ended.
        right: The first of the other; None where it has ended. If both have, the runs are the same.
    """

    alike: int
    left: TraceStep | None
    right: TraceStep | None


def compared(left: tuple[TraceStep, ...], right: tuple[TraceStep, ...]) -> RunDifference:
    """Where two runs of one beginning part."""
    pairs = zip(map(decision, left), map(decision, right), strict=False)
    same = next((number for number, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(left), len(right)))
    return RunDifference(same, *(steps[same] if same < len(steps) else None for steps in (left, right)))


def decision(step: TraceStep) -> tuple[object, ...]:
    return step.process, step.event, step.fault, step.patch
