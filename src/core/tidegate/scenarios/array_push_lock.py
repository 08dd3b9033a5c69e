"""The array-push lock as it is in the wild: clean while nobody stalls, and what is wrong with it otherwise.

A record is running under one runner, several of whose processes want to end it: one says retry, the others finish it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tidegate import invocation as status
from tidegate import laws
from tidegate.documents import Document, Push
from tidegate.effects import Effect
from tidegate.instants import MILLISECOND, SECOND
from tidegate.invocation import INVOCATION
from tidegate.operations import UpdateOne
from tidegate.programs.array_push_lock import HOLDS, STATUS, TRANSITION_LOCK, ArrayPushLock
from tidegate.sim.actors import Network, Process, born
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Clock, Law, Scenario, State, StepLaw
from tidegate.sim.world import document, notes, seeded

RECORDS: Final = "invocations"
KEY: Final = "x"
TARGETS: Final = {"a": status.RETRY, "b": status.SUCCESS, "c": status.FAILED}

ALONE: Final = "at most one holds the lock"
FINAL: Final = "a finished record is not overwritten"
ONCE: Final = "a claim stands at most once"
NONE_LEFT: Final = "at rest no claim remains"

STALLS: Final = Clock(quantum=3 * SECOND, moves=3)
"""Beyond the stale threshold in two moves; the third one lets the other try again."""
NO_STALL: Final = Clock(quantum=200 * MILLISECOND, moves=4)
"""Long enough for every backoff, and far from the stale threshold."""


NO_FAULTS: Final = Faults()


def record(state: State) -> Document:
    found = state.read(document(RECORDS, KEY))
    assert found is not None
    return found


def claims(state: State) -> tuple[str, ...]:
    return record(state)[TRANSITION_LOCK]


def is_pushing(effect: Effect[object]) -> bool:
    return isinstance(effect, UpdateOne) and isinstance(effect.updates[0], Push)


def array_push_lock(
    name: str,
    summary: str,
    *,
    runners: int = 2,
    clock: Clock = NO_STALL,
    faults: Faults = NO_FAULTS,
    expect: str | None = None,
) -> Scenario:
    """A scenario of the lock.

    Args:
        name: Its name.
        summary: One line for people.
        runners: How many processes want the lock.
        clock: How time passes.
        faults: What may strike, once.
        expect: The law that it breaks: then no other law is judged, for one break hides the next.
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

    def judged(law: str) -> bool:
        return expect in (None, law)

    return Scenario(
        name=name,
        summary=summary,
        world=seeded({RECORDS: (first,)}),
        actors=(*(Process(who, born(program.run), faults) for who, program in programs.items()), Network()),
        budget=1 if faults.kinds else 0,
        clock=clock,
        always={law: holds for law, holds in always.items() if judged(law)},
        step={law: holds for law, holds in step.items() if judged(law)},
        eventually={law: holds for law, holds in eventually.items() if judged(law)},
        sometimes={} if expect else {"one of them finishes it": lambda state: record(state)[STATUS] == status.SUCCESS},
        expect=expect,
    )


SCENARIOS: Final[Mapping[str, Callable[[], Scenario]]] = {
    str(made.args[0]): made
    for made in (
        partial(
            array_push_lock, "array_push_lock", "the array-push lock is right while nobody stalls and nothing is lost"
        ),
        partial(
            array_push_lock,
            "array_push_lock.stall.2",
            "a holder stalls beyond the threshold: two hold the lock",
            clock=STALLS,
            expect=ALONE,
        ),
        partial(
            array_push_lock,
            "array_push_lock.stall.3",
            "the same with three runners",
            runners=3,
            clock=STALLS,
            expect=ALONE,
        ),
        partial(
            array_push_lock,
            "array_push_lock.overwrite.2",
            "a holder that stalled overwrites a finished record",
            clock=STALLS,
            expect=FINAL,
        ),
        partial(
            array_push_lock,
            "array_push_lock.overwrite.3",
            "the same with three runners",
            runners=3,
            clock=STALLS,
            expect=FINAL,
        ),
        partial(
            array_push_lock,
            "array_push_lock.lost_reply",
            "the reply to a push is lost: the claim stands twice",
            faults=Faults.of(Fault.LOST_REPLY, on=is_pushing),
            expect=ONCE,
        ),
        partial(
            array_push_lock,
            "array_push_lock.late",
            "a push arrives late: its claim stays",
            faults=Faults.of(Fault.LATE, on=is_pushing),
            expect=NONE_LEFT,
        ),
    )
}
"""The clean one, and one for each thing that is wrong."""
