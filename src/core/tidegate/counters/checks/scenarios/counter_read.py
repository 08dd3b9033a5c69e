"""Two owners increment one counter and then read it; their history must be linearizable.

A crashed owner's increment may take effect at any time, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from tidegate.counters.checks.scenarios.counter import COUNTERS, KEY
from tidegate.counters.counter import Counted, counter_of, new_counter
from tidegate.counters.increments import increment
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, NotApplied, Note, Program
from tidegate.model.operations import find_one
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.linearizability import BEGAN, ENDED, HISTORY, Began, Ended, Linearizable, recording
from tidegate.sim.world.world import world_with

INCREMENT: Final = "increment"
READ: Final = "read"
OWNERS: Final = ("t", "u")

LINEAR: Final = "the history is linearizable"

FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)


def counts(state: Hashable, what: object) -> tuple[Hashable, object]:
    """The sequential specification: a number that is incremented or read."""
    assert isinstance(state, int)
    return (state + 1, None) if what == INCREMENT else (state, state)


async def read() -> int:
    while True:
        try:
            found = await find_one(COUNTERS, Eq(ID, KEY))
        except (Ambiguous, NotApplied):
            continue
        assert found is not None, "a counter is never deleted"
        return counter_of(found).count


async def increments(token: str) -> bool:
    """Whether it is known to be counted; if not, the operation never ends."""
    await Note(BEGAN, INCREMENT)
    if await increment(COUNTERS, KEY, token) != Counted():
        return False
    await Note(ENDED, None)
    return True


async def own(token: str) -> None:
    if await increments(token):
        await Note(BEGAN, READ)
        await Note(ENDED, await read())


def overlap(state: State) -> bool:
    """Whether both begin before either ends."""
    begun = state.read(HISTORY)[:2]
    return len(begun) == len(OWNERS) and all(isinstance(each, Began) for each in begun)


def is_read(count: int) -> Callable[[State], bool]:
    return lambda state: any(isinstance(each, Ended) and each.reply == count for each in state.read(HISTORY))


def counter_read(
    program: Callable[[str], Program[None]] = own,
    *,
    summary: str = "two owners increment and read: it is as if one thing had happened after the other",
    budget: int = 1,
    faults: Faults = FAULTS,
) -> Scenario:
    means = recording()
    return Scenario(
        name="counter",
        summary=summary,
        world=world_with({COUNTERS: (new_counter(KEY),)}),
        actors=(*(Process(name, factory(program, name), faults, means) for name in OWNERS), Network(means)),
        budget=budget,
        always={LINEAR: Linearizable(0, counts)},
        sometimes={
            "increments overlap": overlap,
            "one reads its own increment alone": is_read(1),
            "one reads both": is_read(2),
        },
    )


SCENARIOS: Final = (
    Shipped(
        "counter.read", counter_read, thorough=partial(counter_read, budget=2), large=partial(counter_read, budget=5)
    ),
)
