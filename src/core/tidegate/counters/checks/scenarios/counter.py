"""Two owners increment one counter during a sweep, with every network fault and crash; three more
sweeps follow at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Final, TypeAlias

from tidegate.counters import increments
from tidegate.counters.checks import laws
from tidegate.counters.counter import Counted, Counter, Full, counter_of, new_counter
from tidegate.model.documents import Document
from tidegate.model.effects import Program
from tidegate.model.operations import FindOne, UpdateOne
from tidegate.sim.program.automaton import Asking, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import QUIET, Network, Process, factory, when_quiet
from tidegate.sim.servers.failover import Failover
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.observing import observed, seen
from tidegate.sim.world.world import Cell, document, perform, world_with

COUNTERS: Final = "counters"
KEY: Final = "visits"

ONCE: Final = "each increment is counted once"
STAYS: Final = "what is noted stays until it is counted"
TRUTH: Final = "an increment that is answered Counted is counted"
NOTHING_LEFT: Final = "at rest nothing is left but the count"

FAULTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE, Fault.CANCELLED
)
FAILOVERS: Final = Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK, Fault.LOST_REPLY)
NO_FAULTS: Final = Faults()
SWEEP_FAULTS: Final = Faults.of(
    *(Fault.UNSENT, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE, Fault.NOT_DURABLE, Fault.ROLLED_BACK),
    on=lambda effect: isinstance(effect, (FindOne, UpdateOne)),
)

Tally: TypeAlias = tuple[tuple[str, int], ...]
TALLY: Final[Cell[Tally]] = seen("counted", ())
"""How often each increment was counted. A token is its owner's name; a slash may follow."""


def tallied(tally: Tally, before: Document | None, after: Document | None) -> Tally:
    """A token is counted when its round becomes negative, or when it disappears while pending."""
    if before is None or after is None:
        return tally
    was, now = counter_of(before), counter_of(after)
    times = dict(tally)
    for token, noted in was.tokens:
        if noted > 0 and (now.noted(token) or 0) <= 0:
            owner = token.partition("/")[0]
            times[owner] = times.get(owner, 0) + 1
    return tuple(sorted(times.items()))


def counter(state: State) -> Counter:
    found = state.read(document(COUNTERS, KEY))
    assert found is not None
    return counter_of(found)


def counted(state: State) -> Mapping[str, int]:
    tally = state.read(TALLY)
    return dict(tally)


def is_counted_once(state: State) -> bool:
    return laws.each_counts_once(counter(state), counted(state))


def stays_until_counted(before: State, after: State) -> bool:
    return laws.only_counting_takes_away(counter(before), counter(after))


def answer_is_true(owner: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(owner):
            case Returned(Counted()):
                return owner in counted(state)
            case Returned(Full()):
                return owner not in counted(state)
            case _:
                return True

    return holds


def is_only_the_count_left(state: State) -> bool:
    record = state.read(document(COUNTERS, KEY))
    return record is not None and laws.only_the_count_is_left(record, KEY, len(state.read(TALLY)))


def is_swept(tokens: tuple[str, ...]) -> Law:
    """Whether a sweep has counted for a crashed owner."""
    return lambda state: any(
        token in counted(state) and not isinstance(state.status(token), (Asking, Returned)) for token in tokens
    )


Sweeps: TypeAlias = Callable[[ModuleType], Program[None]]


async def one(made: ModuleType) -> None:
    await made.sweep(COUNTERS, KEY)


async def all_of_them(made: ModuleType) -> None:
    await made.sweep_all(COUNTERS)


async def resent(made: ModuleType) -> None:
    """With each request resent as often as faults may occur."""
    await made.sweep(COUNTERS, KEY, attempts=3)


async def clean(made: ModuleType, early: int, sweeps: Sweeps = one) -> None:
    """Sweep at any time, and three times at rest."""
    for _ in range(early):
        await sweeps(made)
    await QUIET
    for _ in range(3):
        await sweeps(made)


def counting(
    made: ModuleType = increments,
    *,
    summary: str = "two owners and a sweep: each increment is counted once, whatever the network does",
    owners: int = 2,
    early: int = 2,
    sweeps: Sweeps = one,
    budget: int = 1,
    faults: Faults = FAULTS,
    sweep_faults: Faults = NO_FAULTS,
) -> Scenario:
    means = observed(COUNTERS, KEY, TALLY, tallied, perform)
    tokens = ("t", "u", "v")[:owners]
    failing = (Failover(),) if faults.allows(Fault.ROLLED_BACK) else ()
    working = tuple(Process(token, factory(made.increment, COUNTERS, KEY, token), faults, means) for token in tokens)
    return Scenario(
        name="counter",
        summary=summary,
        world=world_with({COUNTERS: (new_counter(KEY),)}),
        actors=(
            *working,
            Process("sweep", factory(clean, made, early, sweeps), sweep_faults, when_quiet(working, means)),
            Network(means),
            *failing,
        ),
        budget=budget,
        always={ONCE: is_counted_once, TRUTH: tuple(map(answer_is_true, tokens))},
        step={} if faults.allows(Fault.ROLLED_BACK) else {STAYS: stays_until_counted},
        eventually={NOTHING_LEFT: is_only_the_count_left},
        sometimes={
            "all are counted": lambda state: counter(state).count == owners,
            **({"a sweep counts for an owner": is_swept(tokens)} if faults.allows(Fault.CRASH_BEFORE) else {}),
        },
    )


_FOUND: Final = partial(
    counting,
    sweeps=all_of_them,
    summary="a sweep asks the store in which counters something is left, and goes over no others",
)
_FAILOVER: Final = partial(
    counting, faults=FAILOVERS, summary="the same where a failover takes back what no majority has confirmed"
)
_RESENT: Final = partial(
    counting,
    sweeps=resent,
    faults=FAILOVERS,
    sweep_faults=SWEEP_FAULTS,
    summary="the same where each request of a sweep is sent again until it is answered",
)

SCENARIOS: Final = (
    Shipped("counter", counting, thorough=partial(counting, budget=2), large=partial(counting, owners=3, budget=4)),
    Shipped("counter.found", _FOUND, thorough=partial(_FOUND, budget=2), large=partial(_FOUND, owners=3, budget=4)),
    Shipped(
        "counter.failover",
        partial(_FAILOVER, budget=2),
        thorough=partial(_FAILOVER, budget=3),
        large=partial(_FAILOVER, owners=3, budget=4),
    ),
    Shipped("counter.resent", _RESENT, thorough=partial(_RESENT, budget=2), large=partial(_RESENT, owners=3, budget=2)),
)
