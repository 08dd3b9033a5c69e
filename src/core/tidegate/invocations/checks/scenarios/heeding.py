"""A runner misses the reply to a claim, for example because the store refuses it; its heartbeats
find the run under its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, cast

import attrs

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.scenarios.taking import (
    KEYS,
    LIMITED_FAULTS,
    ONCE,
    RUNNERS,
    TASK,
    count,
    made,
    scene,
    take,
    told,
)
from tidegate.invocations.checks.scenarios.transition import RECORDS
from tidegate.invocations.queue.fetching import TakenRun, Taker
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.jobs import Job
from tidegate.invocations.worker import heartbeat
from tidegate.invocations.worker.worker import UntrackedRun
from tidegate.model.effects import Ambiguous, NotApplied, Program
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.world.faults import Faults
from tidegate.work.vocabulary import HeartbeatReply, Run

FOUND: Final = "what its runner does not know of is in its name no more"
KEPT: Final = "what is in the hands of its runner stays there"

Heed = Callable[[str, str, tuple[Run, ...], tuple[UntrackedRun, ...]], Program[HeartbeatReply]]


async def take_and_beat(taker: Taker, heed: Heed, looks: tuple[bool, ...], beats: int) -> tuple[TakenRun, ...]:
    """The runs of a runner that misses some replies; between fetches it sends heartbeats until so
    many are answered.
    """
    runs: tuple[TakenRun, ...] = ()
    for is_heard in looks:
        taken = await taker.take(1)
        runs = (*runs, *taken.runs) if is_heard else runs
    mine = tuple(Run(TASK.name, each.key, each.record.version) for each in runs)
    untracked: tuple[UntrackedRun, ...] = ()
    answered = 0
    while answered < beats:
        try:
            reply = await heed(taker.records, taker.runner, mine, untracked)
        except (Ambiguous, NotApplied):
            continue
        untracked = cast("tuple[UntrackedRun, ...]", reply.untracked)
        answered += 1
    return runs


def is_found(keys: tuple[str, ...], state: State) -> bool:
    """Law TA2, for a runner that may learn late."""
    runner = RUNNERS[0]
    if not isinstance(state.status(runner), Returned):
        return True
    return laws.taking.is_known(told(state, runner), owned(state, runner, keys))


def is_kept(keys: tuple[str, ...], state: State) -> bool:
    """Only its runner removes it here, so it is unchanged."""
    return {*told(state, RUNNERS[0])} <= {*owned(state, RUNNERS[0], keys)}


def owned(state: State, runner: str, keys: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The runs under a runner's name now."""
    records = {key: made(state, key)[-1].record for key in keys}
    return tuple((key, record.version) for key, record in records.items() if record.owner == runner)


def unheard(
    heed: Heed = heartbeat.heed,
    *,
    summary: str = "a runner does not hear what it has taken: its beats find that in its name, and another runs it",
    looks: tuple[bool, ...] = (True, False),
    beats: int = 3,
    budget: int = 1,
    faults: Faults = LIMITED_FAULTS,
) -> Scenario:
    """The scenario of a missed reply.

    Args:
        heed: The program of a heartbeat.
        summary: One line for people.
        looks: For each fetch of the runner whether it gets the reply.
        beats: How many are answered: two for a found run, and two more for each failed return.
        budget: How many faults may strike.
        faults: Those that may strike.
    """
    keys = KEYS[:2]
    takers = [Taker(runner=each, queues=("default",), tasks=(TASK,), records=RECORDS, attempts=2) for each in RUNNERS]
    programs: dict[str, Callable[[], Program[object]]] = {
        RUNNERS[0]: partial(take_and_beat, takers[0], heed, looks, beats),
        RUNNERS[1]: partial(take, takers[1], 1, 2, 1),
    }
    both = scene(dict.fromkeys(keys, Job(task=TASK.name)), programs, faults)
    return attrs.evolve(
        both,
        name="taking.unheard",
        summary=summary,
        budget=budget,
        always={
            ONCE: both.always[ONCE],
            FOUND: partial(is_found, keys),
            KEPT: partial(is_kept, keys),
        },
        sometimes={
            "one is given back": lambda state: any(
                each.record.status == status.REROUTED for key in keys for each in made(state, key)
            ),
            "both run": lambda state: count(state, status.RUNNING, keys) == len(keys),
        },
    )


SCENARIOS: Final = (
    Shipped(
        "taking.unheard",
        unheard,
        thorough=partial(unheard, beats=4, budget=2),
        large=partial(unheard, beats=7, budget=4, looks=(True, False, False)),
    ),
)
