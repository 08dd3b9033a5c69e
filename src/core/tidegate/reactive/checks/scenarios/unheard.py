"""A worker misses the reply to a claim, or a claim arrives late: it finds the record under its name
and returns it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import attrs

from tidegate.model.effects import Ambiguous, Call, NotApplied
from tidegate.reactive.checks import laws
from tidegate.reactive.checks.scenarios.reactive_task import BOTH, KEY, PARTLY, is_write, reactive_task, record
from tidegate.reactive.task.fetching import Idle, Run
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.program.automaton import Asking
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.world.faults import Fault, Faults

FOUND: Final = "what its worker does not know of is in its name no more"
LOST: Final = Faults.of(Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, on=is_write)


async def working(task: ReactiveTask, name: str) -> None:
    """A worker that misses the reply to its first claim. Afterwards it checks the records under its
    name, as others do after a missed reply.
    """
    is_told, is_astray = False, False
    while True:
        if not await Call("something is due, or in its name", (name, is_astray)):
            await looked_through(task, name, ())
            continue
        runs, others = await task.fetcher.take(name, len(BOTH))
        is_astray = is_astray or Idle.UNHEARD in others or not is_told
        if not is_told:
            is_told = True
            continue
        await looked_through(task, name, runs)
        for run in runs:
            await task.handle(run.key, run.claim)
        await task.completer.end(tuple((run, None) for run in runs))


async def looked_through(task: ReactiveTask, name: str, hands: tuple[Run, ...]) -> None:
    try:
        await task.fetcher.give_back(name, hands)
    except (Ambiguous, NotApplied):
        return  # it looks again


def idle(state: State, workers: tuple[str, ...]) -> Iterator[str]:
    """The names of workers that wait for due records."""
    for each in workers:
        match state.status(each):
            case Asking(Call("something is due, or in its name", (str() as name, _))):
                yield name
            case _:
                pass


def unheard(
    made: type[ReactiveTask] = ReactiveTask,
    *,
    summary: str = "a worker does not hear what it has claimed, or its claim arrives late: it finds that in its name, and gives it back",
    keys: tuple[str, ...] = (KEY,),
    workers: int = 1,
    budget: int = 0,
    moves: int = 0,
    faults: Faults = LOST,
) -> Scenario:
    """The scenario of a missed reply.

    Args:
        made: The programs, perhaps with a planted bug.
        summary: One line for people.
        keys: The ids of documents.
        workers: The number of workers.
        budget: How many faults may strike.
        moves: How often the time of a lease may pass.
        faults: Those that may strike.
    """
    all_of = reactive_task(
        made,
        works=working,
        summary=summary,
        edits=(),
        keys=keys,
        workers=workers,
        budget=budget,
        moves=moves,
        faults=faults,
    )
    names = tuple(f"worker {number}" for number in range(1, workers + 1))

    def is_found(state: State) -> bool:
        return all(laws.reactive_task.nothing_is_astray(record(state, key), idle(state, names)) for key in keys)

    return attrs.evolve(
        all_of,
        name="reactive_task.unheard",
        eventually={**all_of.eventually, FOUND: is_found},
        sometimes={**all_of.sometimes, "one is given back": lambda state: is_given_back(state, keys)},
    )


def is_given_back(state: State, keys: tuple[str, ...]) -> bool:
    """Whether a record was claimed again although no lease has ended."""
    found = (record(state, key) for key in keys)
    return any(each is not None and each.token > 1 for each in found)


SCENARIOS: Final = (
    Shipped(
        "reactive_task.unheard",
        partial(unheard, workers=2, budget=1),
        thorough=partial(unheard, workers=2, budget=2),
        large=partial(unheard, keys=BOTH, workers=2, budget=2, moves=2, faults=PARTLY),
    ),
)
