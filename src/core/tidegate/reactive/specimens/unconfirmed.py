"""Two ways to leave an end that nobody confirms. Each differs from `scenarios.unconfirmed.settled` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.reactive_task import ReactiveTask
from tidegate.reactive.scenarios.unconfirmed import ONCE, WRITTEN, Ended, unconfirmed
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def leaves_it_to_the_lease(task: ReactiveTask, name: str, ended: Ended) -> None:
    """What nobody confirms, the next claim is to find out."""
    del name
    await task.end(ended)


async def gives_it_back(task: ReactiveTask, name: str, ended: Ended) -> None:
    """What is in its name still is given back, as if nobody had been called."""
    if None in await task.end(ended):
        await task.give_back(name, ())


SPECIMENS: Final = (
    Specimen(
        "reactive_task.unconfirmed.leaves_it_to_the_lease",
        partial(
            unconfirmed,
            leaves_it_to_the_lease,
            summary="An end that nobody confirms is left: its record is in the name of a worker that has nothing to do.",
            workers=1,
        ),
        WRITTEN,
        "So did ours: an end that was refused once waited out its lease, counted as one that was lost, and its handler was called again.",
        "reactive_task.unconfirmed",
    ),
    Specimen(
        "reactive_task.unconfirmed.gives_it_back",
        partial(
            unconfirmed,
            gives_it_back,
            summary="A worker gives back what it has run, for nobody confirms its end: it is run again, and that is no attempt.",
            workers=1,
        ),
        ONCE,
        "Planted: what gives back claims that were not heard of would do so for ends, at the first glance.",
        "reactive_task.unconfirmed",
    ),
)
