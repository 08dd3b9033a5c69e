"""The array-push lock under the conditions where it is correct: no stalls and no losses.

`tidegate.invocations.checks.specimens.array_push_lock` shows its faults, so no fault strikes here. A
crash,
a cancellation, or a request that is unsent, not done, unconfirmed or late leaves a claim. A lost
reply or a duplicate request leaves a claim twice. The record runs under one runner, several of
whose
processes want to end it: one says retry, the others finish it.

If each write has its claim in the filter, no stall overwrites a write: in
`array_push_lock.guarded`, processes count in the locked record by a read and a write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.invocations.checks import laws
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.array_push_lock import (
    HOLDS,
    INVOCATION_ID,
    STALE,
    STATUS,
    TRANSITION_LOCK,
    ArrayPushLock,
    ClaimedRecord,
    LockedOutcome,
    claimed,
)
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.model.documents import Document, Eq, Field, Push, Put
from tidegate.model.effects import Now, Sleep
from tidegate.model.instants import MILLISECOND, SECOND, Duration
from tidegate.model.operations import UpdateOne, find_one, update_one
from tidegate.retries.idempotent import PASSING
from tidegate.sim.program.automaton import Cancelled, Crashed, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Law, Scenario, State, StepLaw
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.world.clocks import HOST, Host
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, notes, world_with

RECORDS: Final = "invocations"
KEY: Final = "x"
TARGETS: Final = {"a": status.RETRY, "b": status.SUCCESS, "c": status.FAILED}

ALONE: Final = "at most one holds the lock"
FINAL: Final = "a finished record is not overwritten"
ONCE: Final = "a claim stands at most once"
NONE_LEFT: Final = "at rest no claim remains"
COUNTED: Final = "what was written under the lock is not overwritten"
COUNT: Final = Field[int]("count")

NO_STALL: Final = Clock(quantum=200 * MILLISECOND, moves=4)
"""Long enough for every backoff, and far from the stale threshold."""


STOOD: Final = 6 * SECOND
"""For how long a waiter stalls: beyond the stale threshold."""

NO_FAULTS: Final = Faults()
HERE: Final = Eq(INVOCATION_ID, KEY)
RUNNING: Final = Document.of(
    {
        "_id": KEY,
        "invocation_id": KEY,
        "status": status.RUNNING,
        "status_runner_id": "runner",
        "transition_lock": (),
    }
)


def record(state: State) -> Document:
    found = state.read(document(RECORDS, KEY))
    assert found is not None
    return found


def claims(state: State) -> tuple[str, ...]:
    return record(state)[TRANSITION_LOCK]


def at_most_one_holds(state: State, names: Iterable[str]) -> bool:
    return laws.array_push_lock.at_most_one_holds(who for who in names if (HOLDS, True) in state.read(notes(who)))


def array_push_lock(
    summary: str = "the array-push lock is right while nobody stalls and nothing is lost",
    *,
    runners: int = 2,
    clock: Clock = NO_STALL,
    faults: Faults = NO_FAULTS,
    host: Host = HOST,
) -> Scenario:
    """A scenario of the lock.

    Args:
        summary: One line for people.
        runners: How many processes want the lock.
        clock: How time passes.
        faults: What may strike, once.
        host: How wrong the clock of a machine may be.
    """
    names = tuple(TARGETS)[:runners]
    programs = {who: ArrayPushLock(RECORDS, INVOCATION, KEY, TARGETS[who], "runner", who, attempts=2) for who in names}
    always: dict[str, Law | tuple[Law, ...]] = {
        ALONE: lambda state: at_most_one_holds(state, names),
        ONCE: lambda state: laws.array_push_lock.claims_stand_once(claims(state)),
    }
    step: dict[str, StepLaw] = {
        FINAL: lambda before, after: laws.array_push_lock.finished_stays(
            INVOCATION, record(before)[STATUS], record(after)[STATUS]
        )
    }
    eventually: dict[str, Law] = {NONE_LEFT: lambda state: not claims(state)}

    return Scenario(
        name="array_push_lock",
        summary=summary,
        world=world_with({RECORDS: (RUNNING,)}),
        actors=(
            *(Process(who, factory(program.run), faults, host=host) for who, program in programs.items()),
            Network(),
        ),
        budget=1 if faults.kinds else 0,
        clock=clock,
        always=always,
        step=step,
        eventually=eventually,
        sometimes={"one of them finishes it": lambda state: record(state)[STATUS] == status.SUCCESS},
    )


async def holds_for_a_moment() -> Duration | None:
    """A holder that does no more than to take the lock and to leave it; how long that took, or None if it was not first."""
    since = await Now()
    claim = claimed("a-0", since)
    await update_one(RECORDS, HERE, Push(TRANSITION_LOCK, claim))
    found = await find_one(RECORDS, HERE)
    if found is None or found[TRANSITION_LOCK][:1] != (claim,):
        return None
    await update_one(RECORDS, HERE, Put(TRANSITION_LOCK, ()))
    return await Now() - since


async def comes_later(program: ArrayPushLock) -> LockedOutcome:
    await Sleep(STOOD)
    return await program.run()


def waiter() -> Scenario:
    """The scenario in which only a waiter stalls, once: b, before it reads its clock, which no holder does.

    While b stands, a may hold the lock; that is not judged unless a was quick. c comes after that.
    """
    stalls = Faults.of(Fault.STALL, on=lambda effect: isinstance(effect, Now))
    b, c = (ArrayPushLock(RECORDS, INVOCATION, KEY, TARGETS[who], "runner", who, attempts=2) for who in ("b", "c"))

    def holds(state: State) -> bool:
        match state.status("a"):
            case Returned(int() as took) if took < STALE:
                return at_most_one_holds(state, ("b", "c"))
            case _:
                return True

    return Scenario(
        name="array_push_lock.waiter",
        summary="a waiter stalls, and holders are quick: two hold the lock",
        world=world_with({RECORDS: (RUNNING,)}),
        actors=(
            Process("a", factory(holds_for_a_moment)),
            Process("b", factory(b.run), stalls, host=Host(stall=STOOD)),
            Process("c", factory(comes_later, c)),
            Network(),
        ),
        budget=1,
        clock=attrs.evolve(NO_STALL, moves=1),
        always={ALONE: holds},
    )


STRIKES: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.CANCELLED)
"""Not a request that is late, or comes twice: a claim that comes back guards nothing."""

Writes: TypeAlias = Callable[[ClaimedRecord, str, int], UpdateOne]
"""The write of a count under a claim."""


def under_the_claim(lock: ClaimedRecord, claim: str, counted: int) -> UpdateOne:
    return lock.guarded(claim, Put(COUNT, counted))


async def counts(lock: ClaimedRecord, write: Writes) -> bool | None:
    """Whether one more was counted, by a read and a write under the lock; None where nobody knows."""

    async def work(claim: str) -> bool | None:
        is_counted: bool | None = None
        try:
            found = await find_one(RECORDS, HERE)
            is_counted = found is not None and await write(lock, claim, found[COUNT] + 1) > 0
        except PASSING:
            pass  # and it is left all the same
        await lock.release(claim)
        return is_counted

    taken = await lock.take(work)
    return taken if isinstance(taken, bool) else None


def guarded(
    write: Writes = under_the_claim,
    *,
    summary: str = "who writes with its claim in the filter overwrites nothing, whoever stalls",
    runners: int = 2,
    moves: int = 3,
) -> Scenario:
    """Processes that count in the record that they lock, and stall wherever they like.

    Args:
        write: How each writes under its claim.
        summary: One line for people.
        runners: How many they are.
        moves: How often time passes.
    """
    names = ("a", "b", "c")[:runners]
    programs = {who: partial(counts, ClaimedRecord(RECORDS, KEY, who, attempts=2), write) for who in names}

    def counted(state: State) -> bool:
        known = sum(state.status(who) == Returned(value=True) for who in names)
        return laws.array_push_lock.none_is_overwritten(record(state)[COUNT], known)

    return Scenario(
        name="array_push_lock.guarded",
        summary=summary,
        world=world_with({RECORDS: (RUNNING.put(COUNT, 0),)}),
        actors=(*(Process(who, factory(programs[who]), STRIKES) for who in names), Network()),
        budget=1,
        clock=Clock(quantum=3 * SECOND, moves=moves),
        always={COUNTED: counted},
        eventually={
            NONE_LEFT: lambda state: (
                not claims(state) or any(isinstance(state.status(who), (Crashed, Cancelled)) for who in names)
            )
        },
        sometimes={
            "all count": lambda state: record(state)[COUNT] == runners,
            "one has lost the lock": lambda state: Returned(value=False) in map(state.status, names),
        },
    )


SCENARIOS: Final = (
    Shipped(
        "array_push_lock",
        array_push_lock,
        thorough=partial(array_push_lock, runners=3),
        large=partial(array_push_lock, runners=3, clock=attrs.evolve(NO_STALL, moves=12)),
    ),
    Shipped(
        "array_push_lock.guarded",
        guarded,
        thorough=partial(guarded, moves=4),
        large=partial(guarded, runners=3, moves=6),
    ),
)
