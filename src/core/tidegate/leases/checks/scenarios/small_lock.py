"""The array-push lock at its smallest: the protocol that is compared with TLC, state by state.

Each of N processes makes A attempts. It pushes its token into one document, polls up to P times
until its token is first, enters, adds one to a counter, leaves, and pulls its token. F faults may
strike: a crash before any effect, or the lost reply of a push or a poll. The benchmark has a TLA+
model with the same number of distinct states.

This lock does not clear stale claims. A crashed holder blocks it for ever, but it excludes:

Laws
    SL1  at most one process is inside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.model.documents import ID, AddToSet, Document, Eq, Field, Pull, Push, Put
from tidegate.model.effects import Ambiguous, Effect, Program
from tidegate.model.operations import FindOne, FindOneAndUpdate, find_one, find_one_and_update
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.world import document, world_with

LOCKS: Final = "locks"
COUNTERS: Final = "counters"
MONITORS: Final = "monitors"
HOLDERS: Final = Field[tuple[int, ...]]("holders")
COUNT: Final = Field[int]("count")
INSIDE: Final = Field[tuple[int, ...]]("inside")
EXCLUDES: Final = "at most one is inside"
LOCK: Final = Eq(ID, "lock")
COUNTER: Final = Eq(ID, "counter")
MONITOR: Final = Eq(ID, "monitor")


async def contend(me: int, attempts: int, polls: int) -> None:
    """Push a token; poll until it is first; enter, add one to the counter, leave; pull it."""
    for attempt in range(attempts):
        token = me * 10 + attempt
        try:
            lock = await find_one_and_update(LOCKS, LOCK, Push(HOLDERS, token))
            polled = 0
            while not is_first(token, lock) and polled < polls:
                lock = await find_one(LOCKS, LOCK)
                polled += 1
            won = is_first(token, lock)
        except Ambiguous:
            won = False
        if won:
            await count(me)
        await find_one_and_update(LOCKS, LOCK, Pull(HOLDERS, token))


async def count(me: int) -> None:
    await find_one_and_update(MONITORS, MONITOR, AddToSet(INSIDE, me))
    counter = await find_one(COUNTERS, COUNTER)
    reached = counter[COUNT] if counter else 0
    await find_one_and_update(COUNTERS, COUNTER, Put(COUNT, reached + 1))
    await find_one_and_update(MONITORS, MONITOR, Pull(INSIDE, me))


def is_first(token: int, lock: Document | None) -> bool:
    return lock is not None and lock[HOLDERS][0] == token


def at_most_one_is_inside(state: State) -> bool:
    """Law SL1."""
    monitor = state.read(document(MONITORS, "monitor"))
    return monitor is not None and len(monitor[INSIDE]) <= 1


def counted(state: State) -> int:
    counter = state.read(document(COUNTERS, "counter"))
    return 0 if counter is None else counter[COUNT]


def one_waits(state: State) -> bool:
    lock, monitor = state.read(document(LOCKS, "lock")), state.read(document(MONITORS, "monitor"))
    return lock is not None and monitor is not None and bool(monitor[INSIDE]) and len(lock[HOLDERS]) > 1


def is_push_or_poll(effect: Effect[object]) -> bool:
    match effect:
        case FindOne(collection) | FindOneAndUpdate(collection, _, (Push(),)):
            return collection == LOCKS
        case _:
            return False


def small_lock(
    processes: int,
    attempts: int,
    polls: int,
    faults: int,
    *,
    made: Callable[[int, int, int], Program[None]] = contend,
    summary: str = "the array-push lock without stale clearing excludes, state by state as TLC has it",
) -> Scenario:
    """The scope (N, A, P, F)."""
    world = world_with(
        {
            LOCKS: (Document.of({"_id": "lock", "holders": ()}),),
            COUNTERS: (Document.of({"_id": "counter", "count": 0}),),
            MONITORS: (Document.of({"_id": "monitor", "inside": ()}),),
        }
    )
    strikes = Faults({Fault.CRASH_BEFORE: all_effects, Fault.LOST_REPLY: is_push_or_poll})
    return Scenario(
        name=f"small_lock({processes},{attempts},{polls},{faults})",
        summary=summary,
        world=world,
        actors=tuple(Process(f"p{me}", factory(made, me, attempts, polls), strikes) for me in range(processes)),
        budget=faults,
        always={EXCLUDES: at_most_one_is_inside},
        sometimes={
            "each attempt is counted": lambda state: counted(state) == processes * attempts,
            **({"one is inside while another waits": one_waits} if processes > 1 else {}),
        },
    )


SCENARIOS: Final = (
    Shipped(
        "small_lock",
        partial(small_lock, 3, 3, 2, 1),
        thorough=partial(small_lock, 3, 4, 2, 2),
        large=partial(small_lock, 4, 4, 4, 3),
    ),
)
