"""An invocation, two workers, and a process that recovers stuck invocations.

A worker waits until the invocation is available, claims it, runs it and reports the end. The first
may crash anywhere, and stall until it is presumed dead; the second runs what is recovered. Waiters
are woken when there is work, so that vain polls cost no states.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.scenarios.transition import KEY, RECORDS, history, seen
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import CHANGED_AT, DEATHS, STATUS, TIMES, new_record, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, Transition
from tidegate.invocations.upkeep.recoverer import Recoverer, item_of
from tidegate.invocations.upkeep.recovery import Finished, InHand, Patience, Queued, decide_recovery
from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Call, Effect, NotApplied
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import FindOneAndUpdate, UpdateOne
from tidegate.services.members import beat, membership_of
from tidegate.services.membership import Alive, Membership, liveness
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import (
    CLOCK,
    Meaning,
    Outcomes,
    World,
    contents,
    document,
    journal,
    journaled,
    perform,
    world_with,
)

MEMBERS: Final = "members"
WORKERS: Final = ("a", "b")
STUCK: Final = "something is stuck"
READY: Final = "it is available"

SPARED: Final = "nothing is taken from the living"
HISTORY: Final = "each version is made once, and legally"
DONE: Final = "at rest it is done, or not stuck yet"
COUNTED: Final = "each run that is taken from its owner is counted once"

DEAD_AFTER: Final[Duration] = SECOND
PATIENCE: Final = Patience(pending_max=2 * SECOND, passing_max=SECOND)
CRASHES: Final = Faults.of(Fault.CRASH_BEFORE)
NETWORK: Final = Faults.of(
    Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, on=lambda effect: not isinstance(effect, Call)
)


async def work(name: str, times: int) -> None:
    """Run the invocation whenever it is available, a number of times."""
    for run in range(times):
        await Call(READY)
        try:
            await beat(MEMBERS, name)
        except (Ambiguous, NotApplied):
            continue
        command = f"{name}:{name}.{run}"
        claimed = await Transition(RECORDS, INVOCATION, KEY, status.PENDING, name, f"{command}.pending").run()
        if not isinstance(claimed, Granted):
            continue
        running = await Transition(RECORDS, INVOCATION, KEY, status.RUNNING, name, f"{command}.running").run()
        if not isinstance(running, Granted):
            continue
        await Transition(RECORDS, INVOCATION, KEY, status.SUCCESS, name, f"{command}.success").run()


async def recover(recoverer: Recoverer) -> None:
    """A pass whenever something is stuck."""
    while True:
        await Call(STUCK)
        await recoverer.run()


def record(state: World | State) -> Document:
    found = state.read(document(RECORDS, KEY))
    assert found is not None
    return found


def is_available(world: World | State) -> bool:
    return INVOCATION[record(world)[STATUS]].available


def membership(world: World | State) -> Membership:
    return membership_of(contents(world, MEMBERS), DEAD_AFTER)


def is_done_or_in_hand(state: State) -> bool:
    """Nobody waits for anything: then the invocation is finished, or time has to pass before anybody can know.

    Or it is in the queue, and the last worker has gone home.
    """
    verdict = decide_recovery(item_of(record(state)), membership(state), state.read(CLOCK), PATIENCE)
    has_gone = isinstance(state.status(WORKERS[-1]), Returned)
    return isinstance(verdict, (Finished, InHand)) or (has_gone and isinstance(verdict, Queued))


def woken(recoverer: Recoverer, otherwise: Meaning) -> Meaning:
    """Whoever waits is woken when there is something to do, as far as it can know."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if effect == Call(READY):
            if is_available(world):
                yield world, None
        elif effect == Call(STUCK):
            records, members = contents(world, RECORDS), contents(world, MEMBERS)
            if recoverer.planned(records, members, world.read(CLOCK)).steps:
                yield world, None
        else:
            yield from otherwise(effect, world, who)

    return meaning


def spares_the_living(before: State, after: State) -> bool:
    """Law RC2, over what is done instead of what is decided."""
    was, now = record(before), record(after)
    known = viewed(was)
    if known is None or known.owner is None or now[STATUS] not in (status.PENDING_RECOVERY, status.RUNNING_RECOVERY):
        return True
    if known.status == now[STATUS]:
        return True
    at = before.read(CLOCK)
    if known.status == status.PENDING and at - was[CHANGED_AT] >= PATIENCE.pending_max:
        return True
    return not isinstance(liveness(membership(before), known.owner, at), Alive)


def is_history_right(state: State) -> bool:
    versions = history(state)
    return (
        laws.transition.versions_are_consecutive(versions)
        and laws.transition.changes_are_legal(INVOCATION, versions)
        and laws.transition.requests_count_once(versions)
    )


def are_deaths_counted(state: State) -> bool:
    """Law RP5."""
    statuses = tuple(each.record.status for each in history(state))
    return laws.recovery.deaths_are_counted(statuses, record(state).get(DEATHS) or 0)


def worker(name: str, times: int) -> Birth:
    return lambda _: work(name, times)


def recovering(recoverer: Recoverer) -> Birth:
    return lambda _: recover(recoverer)


def living(name: str) -> Document:
    zero = Instant(0)
    return Document.of({"_id": name, "left": None, "created": zero, "joined": zero, "seen": zero})


def recovery(
    made: type[Recoverer] = Recoverer,
    *,
    summary: str = "a worker crashes or stalls at work: what it had is recovered, run again, and never taken from the living",
    times: int = 3,
    moves: int = 1,
    budget: int = 1,
    attempts: int = 1,
    workers: int = 2,
    recoverers: int = 1,
    begins: str = status.REGISTERED,
    network: Faults = NETWORK,
) -> Scenario:
    """The scenario.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        times: How often the second worker is there.
        moves: How often the clock may move, by a second.
        budget: How many faults may strike.
        attempts: How often the recovering process asks for each step.
        workers: How many there are; the last one does not crash.
        recoverers: How many look after it.
        begins: The status that it begins in.
        network: Which faults may strike its requests.
    """
    zero = Instant(0)
    due = zero if INVOCATION[begins].available else None
    first = new_record(KEY, StatusRecord(begins, None, 1), "made", zero, due=due)
    names = ("recovery", "another")[:recoverers]
    programs = [made(me=me, dead_after=DEAD_AFTER, patience=PATIENCE, attempts=attempts) for me in names]
    means = woken(programs[0], journaled(RECORDS, KEY, seen, _untimed))
    world = world_with({RECORDS: (first,), MEMBERS: tuple(map(living, (*WORKERS, *names)))})
    return Scenario(
        name="recovery",
        summary=summary,
        world=world.write(journal(RECORDS, KEY), (seen(first),)),
        actors=(
            *(Process(name, worker(name, 1), CRASHES, means) for name in WORKERS[: workers - 1]),
            Process(WORKERS[-1], worker(WORKERS[-1], times), meaning=means),
            *(Process(each.me, recovering(each), network, means) for each in programs),
            Network(means),
        ),
        budget=budget,
        clock=Clock(quantum=SECOND, moves=moves),
        always={HISTORY: is_history_right, COUNTED: are_deaths_counted},
        step={SPARED: spares_the_living},
        eventually={DONE: is_done_or_in_hand},
        sometimes={
            "it is recovered and done": lambda state: (
                record(state)[STATUS] == status.SUCCESS and len(history(state)) > 4
            )
        },
    )


together = partial(
    recovery, summary="two recover what a worker that stalls has", workers=1, times=2, recoverers=2, budget=0
)


def _untimed(effect: Effect[object], world: World, who: str) -> Outcomes:
    """What an effect means, without the times of versions: nobody here reads them, and each would be a state of its own."""
    match effect:
        case FindOneAndUpdate() | UpdateOne():
            updates = tuple(each for each in effect.updates if each.field not in TIMES)
            yield from perform(attrs.evolve(effect, updates=updates), world, who)
        case _:
            yield from perform(effect, world, who)


SCENARIOS: Final = (
    Shipped(
        "recovery",
        recovery,
        thorough=partial(recovery, moves=2),
        large=partial(recovery, budget=4, moves=6, times=5, attempts=2, recoverers=2),
    ),
    Shipped(
        "recovery.held_back",
        partial(
            recovery,
            summary="whoever held it back has died: it is moved on, and run",
            begins=status.CONCURRENCY_CONTROLLED,
        ),
        thorough=partial(recovery, begins=status.CONCURRENCY_CONTROLLED, moves=2, budget=2),
        large=partial(
            recovery, begins=status.CONCURRENCY_CONTROLLED, budget=4, moves=6, times=5, attempts=2, recoverers=2
        ),
    ),
    Shipped(
        "recovery.together",
        partial(together, budget=1),
        thorough=partial(together, moves=2, budget=1),
        large=partial(together, budget=4, moves=6, times=5, attempts=2),
    ),
)
