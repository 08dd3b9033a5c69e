"""Three ways to settle records in bulk wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.settling import settling
from tidegate.invocations.queue.bulk_transition import Settling
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

TRUTH: Final = "every answer is the truth"

NO_REPLY: Final = """            except (Ambiguous, NotDurable):
                pass
            except NotApplied:
                continue
"""
GIVES_UP: Final = """            except (Ambiguous, NotDurable, NotApplied):
                return self._in_order(answers, ((move, GaveUp(1, move.expected, None)) for move, _ in left))
"""
GOES_ON: Final = """            except (Ambiguous, NotDurable, NotApplied):
                pass
"""
IS_SENT: Final = "            sent = True\n"
ASKS_RIGHTLY: Final = """            if matched is None:
                return await rightly(self)
"""
OF_EACH: Final = "((move, Granted(verdict.record)) for move, verdict in left)"
COUNTED_OFF: Final = """(
                    (move, Granted(verdict.record) if number < matched else Outdated(move.expected, None))
                    for number, (move, verdict) in enumerate(left)
                )"""

TOTAL_IS_FOR_EACH: Final = partial(
    variant, Settling, (NO_REPLY, GOES_ON), (IS_SENT, ASKS_RIGHTLY), ("if matched == len(left):", "if True:"),
    (OF_EACH, COUNTED_OFF), rightly=Settling.run)  # fmt: skip
NOT_LOOKED: Final = partial(variant, Settling, (NO_REPLY, GIVES_UP))

SPECIMENS: Final = (
    specimen(
        "transition.bulk.total_is_for_each", TRUTH,
        "The total is taken for what became of each: so many of them, the first ones.",
        "MongoDB before 8.0 answers a bulk with totals, and whoever has a list and a number counts them off.",
        TOTAL_IS_FOR_EACH, make=settling, of="transition.bulk"),
    specimen(
        "transition.bulk.not_looked", TRUTH,
        "No reply is taken for nothing done, and nobody looks.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        NOT_LOOKED, make=settling, of="transition.bulk"),
    specimen(
        "transition.bulk.not_yet_is_never", TRUTH,
        "What a look does not show is taken for what never will be: it is under way, and arrives.",
        "Planted: one look, as if a request that is late were none.",
        partial(
            variant, Settling, ("goes_on(self.pauses, self.attempts,", "goes_on(self.pauses, 1,"),
            ('Unknown(attempts, "no reply to the last attempt")', "GaveUp(1, None, None)")),
        make=settling, of="transition.bulk"),
)  # fmt: skip
