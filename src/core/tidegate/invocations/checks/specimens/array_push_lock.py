"""What is wrong with the array-push lock, followed to the letter.

These are specimens of a kind: in all but the last nothing is planted. The program is the one that ships for those who must interoperate
(`tidegate.invocations.record.array_push_lock`), its description is followed step by step, and it is wrong wherever somebody
stalls or a reply is lost. Each scenario judges the one law that it breaks, for one break hides the next.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.checks.scenarios.array_push_lock import (
    ALONE,
    COUNTED,
    FINAL,
    NO_STALL,
    NONE_LEFT,
    ONCE,
    array_push_lock,
    guarded,
    under_the_claim,
    waiter,
)
from tidegate.model.documents import Push
from tidegate.model.effects import Effect
from tidegate.model.instants import SECOND
from tidegate.model.operations import UpdateOne
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.scenario import Clock
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Fault, Faults

STALLS: Final = Clock(quantum=3 * SECOND, moves=3)
"""Beyond the stale threshold in two moves; the third one lets the other try again, where there is no third runner."""


def is_pushing(effect: Effect[object]) -> bool:
    return isinstance(effect, UpdateOne) and isinstance(effect.updates[0], Push)


def wrong(
    name: str,
    summary: str,
    law: str,
    source: str,
    *,
    runners: int = 2,
    stalls: bool = False,
    loses: Fault | None = None,
) -> Specimen:
    """One thing that is wrong, where a holder stalls or crashes, a clock is wrong, or a push meets a fault."""
    make = partial(array_push_lock, summary, runners=runners)
    if stalls:
        make = partial(make, clock=STALLS if runners == 2 else attrs.evolve(STALLS, moves=2))
    if loses is Fault.SKEW:
        make = partial(make, faults=Faults.of(loses), host=Host(skew=6 * SECOND))
    elif loses is Fault.CRASH_BEFORE:
        make = partial(make, faults=Faults.of(loses))
    elif loses is not None:
        make = partial(make, faults=Faults.of(loses, on=is_pushing), clock=attrs.evolve(NO_STALL, moves=1))
    return Specimen(f"array_push_lock.{name}", make, law, source, of="array_push_lock", alone=True)


STALE: Final = (
    "pynenc-mongo clears claims that are older than five seconds by its own count, so a slow holder loses its lock."
)
NOT_FENCED: Final = (
    "pynenc-mongo writes the new status without the claim in the filter, so nobody stops whoever has lost the lock."
)

SPECIMENS: Final = (
    wrong("stall.2", "a holder stalls beyond the threshold: two hold the lock", ALONE, STALE, stalls=True),
    wrong("stall.3", "the same with three runners", ALONE, STALE, runners=3, stalls=True),
    Specimen(
        "array_push_lock.waiter",
        waiter,
        ALONE,
        "pynenc-mongo judges by the array as it was read before, and clears it as it is by then.",
        of="array_push_lock",
    ),
    wrong("overwrite.2", "a holder that stalled overwrites a finished record", FINAL, NOT_FENCED, stalls=True),
    wrong("overwrite.3", "the same with three runners", FINAL, NOT_FENCED, runners=3, stalls=True),
    wrong(
        "lost_reply",
        "the reply to a push is lost: the claim stands twice",
        ONCE,
        "pynenc-mongo leaves it to the driver to try again, and a push that is done twice stands twice.",
        loses=Fault.LOST_REPLY,
    ),
    wrong(
        "late",
        "a push arrives late: its claim stays",
        NONE_LEFT,
        "pynenc-mongo pulls its claim when it gives up; a push that arrives after the pull belongs to nobody.",
        loses=Fault.LATE,
    ),
    wrong(
        "skewed",
        "a clock is six seconds wrong, and nobody stalls: two hold the lock",
        ALONE,
        "pynenc-mongo compares the clocks of two machines: whose is ahead finds every claim of the others stale at once.",
        loses=Fault.SKEW,
    ),
    wrong(
        "dead_holder",
        "a holder crashes: its claim stays, and the other gives up long before it is stale",
        NONE_LEFT,
        "pynenc-mongo gives up after 0.3 s, and a claim counts for five: all transitions in between raise.",
        loses=Fault.CRASH_BEFORE,
    ),
    specimen(
        "array_push_lock.unguarded",
        COUNTED,
        "A count is written by the id alone, as the protocol has it.",
        NOT_FENCED,
        partial(variant, under_the_claim, ("lock.guarded(claim, ", "update_one(lock.collection, HERE, ")),
        make=guarded,
        of="array_push_lock.guarded",
    ),
)
