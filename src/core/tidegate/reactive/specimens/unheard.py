"""Two ways to look after what is in the name of a worker wrongly. Each differs from `ReactiveTask.give_back` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.reactive_task import ReactiveTask, Run
from tidegate.reactive.scenarios.reactive_task import HELD
from tidegate.reactive.scenarios.unheard import FOUND, unheard
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def looks_for_what_is_due_alone(task: ReactiveTask, name: str, hands: tuple[Run, ...]) -> int:
    """What it was not told of waits for the end of its lease."""
    del task, name, hands
    return 0


async def whatever_is_in_its_name(task: ReactiveTask, name: str, hands: tuple[Run, ...]) -> int:
    """All that is in its name is given back, as where a process begins anew."""
    del hands
    return await task.give_back(name, ())


SPECIMENS: Final = (
    Specimen(
        "reactive_task.unheard.looks_for_what_is_due_alone",
        partial(
            unheard,
            looks_for_what_is_due_alone,
            summary="What a worker has claimed and was not told of stays in its name for as long as its lease lasts.",
        ),
        FOUND,
        "So did ours: a claim that arrived when its worker had given up asking waited out its lease, beside a worker with nothing to do.",
        "reactive_task.unheard",
    ),
    Specimen(
        "reactive_task.unheard.whatever_is_in_its_name",
        partial(
            unheard,
            whatever_is_in_its_name,
            summary="A worker that looks through its name gives back what it is about to run.",
        ),
        HELD,
        "Planted: workers that give back all that is theirs when they begin, under a name that they had before.",
        "reactive_task.unheard",
    ),
)
