"""Four ways to keep a rate wrongly, each in one place of `tidegate.invocations.metering`."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.metering import (
    ASKED_AT,
    METERING_PARTS,
    WRITTEN_AT,
    Metering,
    MeteringParts,
    meter_of,
    write_meter,
)
from tidegate.invocations.rates import Admission, Meter
from tidegate.invocations.record_documents import VERSION
from tidegate.invocations.scenarios.metering import COUNTED, FAULTS, FITS, metering
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, NotApplied, Now
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import find_one
from tidegate.sim.clocks import HOST, Host
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def whatever_it_is(asked: Metering, found: Document, now: Instant, admission: Admission) -> bool:
    """What was decided is written over what others have written meanwhile."""
    actual = await find_one(asked.meters, Eq(ID, asked.key))
    return actual is not None and await write_meter(asked, found.put(VERSION, actual[VERSION]), now, admission)


async def fails_open(asked: Metering, found: Document, now: Instant, admission: Admission) -> bool:
    """Where the meter does not answer, all may begin."""
    try:
        return await write_meter(asked, found, now, admission)
    except (Ambiguous, NotApplied):
        return True


async def own_clock() -> Instant:
    """Each process decides by its own clock."""
    return Instant((await Now()).at)


def as_if_at_once(record: Document) -> Meter:
    """Who stood still between its look and its write has admitted when it looked."""
    return meter_of(record.put(WRITTEN_AT, record[ASKED_AT]))


def planted(
    name: str,
    wrong: object,
    parts: MeteringParts,
    law: str,
    *,
    source: str,
    budget: int = 1,
    faults: Faults = FAULTS,
    host: Host = HOST,
) -> Specimen:
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(
        f"metering.{name}",
        partial(metering, parts, summary=summary, budget=budget, faults=faults, host=host),
        law,
        source,
        of="metering",
        alone=True,
    )


SPECIMENS: Final = (
    planted(
        "unguarded",
        whatever_it_is,
        attrs.evolve(METERING_PARTS, write=whatever_it_is),
        FITS,
        source="Planted: so does a limiter that reads a counter, and then sets it.",
        budget=0,
    ),
    planted(
        "fails_open",
        fails_open,
        attrs.evolve(METERING_PARTS, write=fails_open),
        COUNTED,
        source="Limiters of requests on the web let all through where their store is away.",
        faults=Faults.of(Fault.DROPPED),
    ),
    planted(
        "own_clock",
        own_clock,
        attrs.evolve(METERING_PARTS, clock=own_clock),
        FITS,
        source="pynenc-mongo decides by the clock of whoever asks.",
        faults=Faults.of(Fault.SKEW),
        host=Host(skew=SECOND),
    ),
    planted(
        "as_if_at_once",
        as_if_at_once,
        attrs.evolve(METERING_PARTS, reads=as_if_at_once),
        FITS,
        source="The first draft of this module.",
        budget=0,
    ),
)
