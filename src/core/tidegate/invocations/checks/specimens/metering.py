"""Eight ways to keep a rate wrongly: bugs of the program, or of what removes meters."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.metering import COUNTED, FITS, QUANTUM, metering
from tidegate.invocations.limits.rate_limiting import Metering
from tidegate.invocations.upkeep.pruning import Purging
from tidegate.model.effects import Now
from tidegate.model.instants import SECOND
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Fault, Faults


def swept(made: type[Purging], *, summary: str) -> Scenario:
    return metering(sweep=made, summary=summary, budget=0)


BEGINS: Final = "        version, meter = needed(found, VERSION), admission.meter\n"
AS_IT_IS: Final = """        actual = await find_one(self.meters, Eq(ID, self.key))
        if actual is None:
            return False
        found = found.put(VERSION, actual[VERSION]).put(WRITTEN_AT, actual[WRITTEN_AT])
"""
WRITTEN_BY_NOW: Final = """        actual = await find_one(self.meters, Eq(ID, self.key), fields=(WRITTEN_AT,))
        if actual is None:
            return False
        found = found.put(WRITTEN_AT, actual[WRITTEN_AT])
"""
WRITES: Final = "        return await update_one("
TRIES: Final = """        try:
            return await update_one("""
WRITTEN: Final = ") > 0  # fmt: skip\n"
OR_OPEN: Final = """) > 0
        except (Ambiguous, NotApplied):
            return True
"""

SPECIMENS: Final = (
    specimen(
        "metering.unguarded", FITS,
        "What was decided is written over what others have written meanwhile.",
        "Planted: so does a limiter that reads a counter, and then sets it.",
        partial(variant, Metering, (BEGINS, AS_IT_IS + BEGINS)), make=partial(metering, budget=0), of="metering", alone=True),
    specimen(
        "metering.fails_open", COUNTED,
        "Where the meter does not answer, all may begin.",
        "Limiters of requests on the web let all through where their store is away.",
        partial(variant, Metering, (WRITES, TRIES), (WRITTEN, OR_OPEN)),
        make=partial(metering, faults=Faults.of(Fault.DROPPED)), of="metering", alone=True),
    specimen(
        "metering.own_clock", FITS,
        "Each process decides by its own clock.",
        "pynenc-mongo decides by the clock of whoever asks.",
        partial(variant, Metering, ("await StoreTime()", "Instant((await Now()).at)"), Now=Now),
        make=partial(metering, faults=Faults.of(Fault.SKEW), host=Host(skew=SECOND)), of="metering", alone=True),
    specimen(
        "metering.as_if_at_once", FITS,
        "Who stood still between its look and its write has admitted when it looked.",
        "The first draft of this module.",
        partial(variant, Metering, ("max(needed(record, WRITTEN_AT) - needed(record, ASKED_AT), 0)", "0")),
        make=partial(metering, budget=0), of="metering", alone=True),
    specimen(
        "metering.swept.by_version_alone", FITS,
        "A meter that was removed and made anew has a version again that somebody has read of the one before.",
        "The ABA problem: ours would have been, for versions began with 1 again.",
        partial(variant, Metering, (BEGINS, WRITTEN_BY_NOW + BEGINS)),
        make=partial(metering, budget=0, sweep=Purging), of="metering.swept", alone=True),
    specimen(
        "metering.swept.clears_what_was_read", FITS,
        "A meter that said nothing is deleted, whoever has asked it since.",
        "Planted: who looks whether it is spent, and then deletes it, races with everybody who asks.",
        partial(variant, Purging, ("In(ID, keys), unwritten)", "In(ID, keys))")),
        make=swept, of="metering.swept", alone=True),
    specimen(
        "metering.swept.clears_what_is_old", FITS,
        "Who stands still after it has read finds old again what was asked meanwhile.",
        "Our own first draft: the store judged the age again, and not whether it is what was read.",
        partial(variant, Purging, ("In(ID, keys), unwritten)", "In(ID, keys), OlderThan(WRITTEN_AT, QUANTUM))"), QUANTUM=QUANTUM),
        make=swept, of="metering.swept", alone=True),
    specimen(
        "metering.swept.is_old", FITS,
        "A meter goes once nobody has asked it for so long, as by a TTL index, though its bucket is not empty.",
        "Planted: limiters keep a key in Redis for as long as a window, which is not as long as their bucket is full.",
        partial(variant, Purging, ("return is_spent(meter_of(doc), now)", "return True")),
        make=swept, of="metering.swept", alone=True),
)  # fmt: skip
