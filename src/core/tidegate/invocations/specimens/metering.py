"""Eight ways to keep a rate wrongly, each in one place of `tidegate.invocations.metering`, or of what removes meters."""

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
from tidegate.invocations.purging import PURGING_PARTS, PurgingParts
from tidegate.invocations.rates import Admission, Meter
from tidegate.invocations.record_documents import VERSION
from tidegate.invocations.scenarios.metering import COUNTED, FAULTS, FITS, QUANTUM, metering
from tidegate.model.documents import ID, Document, Eq, Filter, In, OlderThan
from tidegate.model.effects import Ambiguous, NotApplied, Now
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import delete_many, find_one
from tidegate.sim.clocks import HOST, Host
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def whatever_it_is(asked: Metering, found: Document, now: Instant, admission: Admission) -> bool:
    """What was decided is written over what others have written meanwhile."""
    actual = await find_one(asked.meters, Eq(ID, asked.key))
    if actual is None:
        return False
    as_it_is = found.put(VERSION, actual[VERSION]).put(WRITTEN_AT, actual[WRITTEN_AT])
    return await write_meter(asked, as_it_is, now, admission)


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


async def by_version_alone(asked: Metering, found: Document, now: Instant, admission: Admission) -> bool:
    """A meter that was removed and made anew has a version again that somebody has read of the one before."""
    actual = await find_one(asked.meters, Eq(ID, asked.key), fields=(WRITTEN_AT,))
    return actual is not None and await write_meter(asked, found.put(WRITTEN_AT, actual[WRITTEN_AT]), now, admission)


async def clears_what_was_read(collection: str, keys: tuple[str, ...], _: Filter) -> int:
    """A meter that said nothing is deleted, whoever has asked it since."""
    return await delete_many(collection, In(ID, keys))


async def clears_what_is_old(collection: str, keys: tuple[str, ...], _: Filter) -> int:
    """Who stands still after it has read finds old again what was asked meanwhile."""
    return await delete_many(collection, In(ID, keys), OlderThan(WRITTEN_AT, QUANTUM))


def is_old(_: Document, __: Instant) -> bool:
    """A meter goes once nobody has asked it for so long, as by a TTL index, though its bucket is not empty."""
    return True


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
    sweep: PurgingParts | None = None,
) -> Specimen:
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(
        f"metering.{name}",
        partial(metering, parts, summary=summary, budget=budget, faults=faults, host=host, sweep=sweep),
        law,
        source,
        of="metering.swept" if sweep else "metering",
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
    planted(
        "swept.by_version_alone",
        by_version_alone,
        attrs.evolve(METERING_PARTS, write=by_version_alone),
        FITS,
        source="The ABA problem: ours would have been, for versions began with 1 again.",
        budget=0,
        sweep=PURGING_PARTS,
    ),
    planted(
        "swept.clears_what_was_read",
        clears_what_was_read,
        METERING_PARTS,
        FITS,
        source="Planted: who looks whether it is spent, and then deletes it, races with everybody who asks.",
        budget=0,
        sweep=attrs.evolve(PURGING_PARTS, clear=clears_what_was_read),
    ),
    planted(
        "swept.clears_what_is_old",
        clears_what_is_old,
        METERING_PARTS,
        FITS,
        source="Our own first draft: the store judged the age again, and not whether it is what was read.",
        budget=0,
        sweep=attrs.evolve(PURGING_PARTS, clear=clears_what_is_old),
    ),
    planted(
        "swept.is_old",
        is_old,
        METERING_PARTS,
        FITS,
        source="Planted: limiters keep a key in Redis for as long as a window, which is not as long as their bucket is full.",
        budget=0,
        sweep=attrs.evolve(PURGING_PARTS, is_spent=is_old),
    ),
)
