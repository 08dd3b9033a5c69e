"""The end of a run gets no reply: its live worker sends it again, so it is written although no
lease has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.model.documents import Remove
from tidegate.model.effects import Call, Effect, Program
from tidegate.model.operations import UpdateOne
from tidegate.reactive.checks import laws
from tidegate.reactive.checks.scenarios.reactive_task import BOTH, HANDLED, KEY, reactive_task, record
from tidegate.reactive.record.task_documents import OWNER
from tidegate.reactive.task.completion import HandlerAnswer
from tidegate.reactive.task.fetching import Run
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.program.automaton import Asking
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.world.faults import Fault, Faults

WRITTEN: Final = "what its worker has run is in its name no more"
ONCE: Final = "who has run once is not called again"

Ended: TypeAlias = tuple[tuple[Run, HandlerAnswer], ...]
Settle: TypeAlias = Callable[[ReactiveTask, str, Ended], Program[None]]


def is_end(effect: Effect[object]) -> bool:
    """Whether it takes a record from its worker."""
    return isinstance(effect, UpdateOne) and Remove(OWNER) in effect.updates


async def settled(task: ReactiveTask, name: str, ended: Ended) -> None:
    """Write these ends; those without a reply are sent again, as a worker does (law WK19)."""
    del name
    while ended:
        verdicts = await task.completer.end(ended)
        ended = tuple(each for each, verdict in zip(ended, verdicts, strict=True) if verdict is None)


async def working(settle: Settle, task: ReactiveTask, name: str) -> None:
    """A worker that sends ends twice, and then those without a reply."""
    while True:
        await Call("something is due", (name,))
        runs, _ = await task.fetcher.take(name, len(BOTH))
        for run in runs:
            await task.handle(run.key, run.claim)
        await settle(attrs.evolve(task, attempts=2), name, tuple((run, None) for run in runs))


def idle(state: State, workers: tuple[str, ...]) -> Iterator[str]:
    """The names of workers that wait for due records."""
    for each in workers:
        match state.status(each):
            case Asking(Call("something is due", (str() as name,))):
                yield name
            case _:
                pass


def unconfirmed(
    made: Settle = settled,
    *,
    summary: str = "nobody confirms the end of a run: its worker asks for it again, and its handler is not called again",
    keys: tuple[str, ...] = (KEY,),
    workers: int = 2,
    budget: int = 2,
) -> Scenario:
    """The scenario of an end without a reply.

    Args:
        made: The worker's program for ends, perhaps with a planted bug.
        summary: One line for people.
        keys: The ids of documents.
        workers: The number of workers.
        budget: How often the write of an end, or its reply, may be lost or late.
    """
    all_of = reactive_task(
        works=partial(working, made),
        summary=summary,
        edits=(),
        keys=keys,
        workers=workers,
        budget=budget,
        moves=0,
        faults=Faults.of(Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, on=is_end),
    )
    names = tuple(f"worker {number}" for number in range(1, workers + 1))

    def is_written(state: State) -> bool:
        return all(laws.reactive_task.nothing_is_astray(record(state, key), idle(state, names)) for key in keys)

    def is_run_once(state: State) -> bool:
        return all(laws.reactive_task.attempts_are_bounded(times, 1) for _, times in state.read(HANDLED))

    return attrs.evolve(
        all_of,
        name="reactive_task.unconfirmed",
        always={**all_of.always, ONCE: is_run_once},
        eventually={**all_of.eventually, WRITTEN: is_written},
    )


SCENARIOS: Final = (
    Shipped(
        "reactive_task.unconfirmed",
        unconfirmed,
        thorough=partial(unconfirmed, budget=4),
        large=partial(unconfirmed, keys=BOTH, budget=4),
    ),
)
