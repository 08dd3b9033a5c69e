"""The array-push lock as it is in the wild, where it is right: while nobody stalls and nothing is lost.

What is wrong with it otherwise: `tidegate.invocations.specimens.array_push_lock`. A record is running under one runner,
several of whose processes want to end it: one says retry, the others finish it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations import invocation as status
from tidegate.invocations import laws
from tidegate.invocations.array_push_lock import HOLDS, STATUS, TRANSITION_LOCK, ArrayPushLock
from tidegate.invocations.invocation import INVOCATION
from tidegate.model.documents import Document
from tidegate.model.instants import MILLISECOND
from tidegate.sim.actors import Network, Process, factory
from tidegate.sim.faults import Faults
from tidegate.sim.scenario import Clock, Law, Scenario, State, StepLaw
from tidegate.sim.shipping import Shipped
from tidegate.sim.world import document, notes, world_with

__all__ = ["ALONE", "FINAL", "NONE_LEFT", "NO_STALL", "ONCE", "SCENARIOS", "array_push_lock"]

RECORDS: Final = "invocations"
KEY: Final = "x"
TARGETS: Final = {"a": status.RETRY, "b": status.SUCCESS, "c": status.FAILED}

ALONE: Final = "at most one holds the lock"
FINAL: Final = "a finished record is not overwritten"
ONCE: Final = "a claim stands at most once"
NONE_LEFT: Final = "at rest no claim remains"

NO_STALL: Final = Clock(quantum=200 * MILLISECOND, moves=4)
"""Long enough for every backoff, and far from the stale threshold."""


NO_FAULTS: Final = Faults()


def record(state: State) -> Document:
    found = state.read(document(RECORDS, KEY))
    assert found is not None
    return found


def claims(state: State) -> tuple[str, ...]:
    return record(state)[TRANSITION_LOCK]


def array_push_lock(
    summary: str = "the array-push lock is right while nobody stalls and nothing is lost",
    *,
    runners: int = 2,
    clock: Clock = NO_STALL,
    faults: Faults = NO_FAULTS,
) -> Scenario:
    """A scenario of the lock.

    Args:
        summary: One line for people.
        runners: How many processes want the lock.
        clock: How time passes.
        faults: What may strike, once.
    """
    names = tuple(TARGETS)[:runners]
    first = Document.of(
        {
            "_id": KEY,
            "invocation_id": KEY,
            "status": status.RUNNING,
            "status_runner_id": "runner",
            "transition_lock": (),
        }
    )
    programs = {who: ArrayPushLock(RECORDS, INVOCATION, KEY, TARGETS[who], "runner", who, attempts=2) for who in names}
    always: dict[str, Law | tuple[Law, ...]] = {
        ALONE: lambda state: laws.array_push_lock.at_most_one_holds(
            who for who in names if (HOLDS, True) in state.read(notes(who))
        ),
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
        world=world_with({RECORDS: (first,)}),
        actors=(*(Process(who, factory(program.run), faults) for who, program in programs.items()), Network()),
        budget=1 if faults.kinds else 0,
        clock=clock,
        always=always,
        step=step,
        eventually=eventually,
        sometimes={"one of them finishes it": lambda state: record(state)[STATUS] == status.SUCCESS},
    )


SCENARIOS: Final = (
    Shipped(
        "array_push_lock",
        array_push_lock,
        thorough=partial(array_push_lock, runners=3),
        large=partial(array_push_lock, runners=3, clock=attrs.evolve(NO_STALL, moves=12)),
    ),
)
