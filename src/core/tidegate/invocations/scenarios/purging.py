"""What has ended is purged while the same call is registered anew: it is gone for good, and the new one is not kept out.

Of two that have ended, one was registered under control and still has its place, and triggers have yet to hear of the other.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations import invocation as status
from tidegate.invocations import laws
from tidegate.invocations.admission import Call, Control, Place, Purpose, Reservation, Rule, reservation_id
from tidegate.invocations.place_documents import kept
from tidegate.invocations.purging import PURGING_PARTS, Purged, Purging, PurgingParts
from tidegate.invocations.record_documents import NOTICE, new_record
from tidegate.invocations.registration import PLACES_ID, Registered, Registrar
from tidegate.invocations.status import StatusRecord
from tidegate.model.documents import Document
from tidegate.model.instants import Instant
from tidegate.retries.backoff import Fixed
from tidegate.retries.pauses import Pauses
from tidegate.sim.actors import Network, Process
from tidegate.sim.automaton import Returned
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.shipping import Shipped
from tidegate.sim.world import document, perform, world_with

__all__ = ["ADMITTED", "LEFT", "OVER", "SCENARIOS", "STAYS", "purging"]

OVER: Final = "what goes is over"
STAYS: Final = "what is gone stays so"
LEFT: Final = "nothing is left of what was to go"
ADMITTED: Final = "who calls is not kept out by what is gone"

RECORDS, PLACES, CALLS = "invocations", "places", "calls"
OLD, UNHEARD, NEW = "old", "unheard", "new"
RULE: Final = Rule(Control.TASK)
CALL: Final = Call("report", ())
SET: Final = reservation_id(Purpose.REGISTRATION, RULE, CALL) or ""
LOST: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)


def ended(key: str, *more: tuple[str, tuple[int, ...]]) -> Document:
    return new_record(key, StatusRecord(status.SUCCESS, None, 3), "made", Instant(0), more=Document(more))


def call_of(key: str) -> Document:
    return Document.of({"_id": key, "task": CALL.task, "names": (), "values": (), PLACES_ID.name: SET})


def purging(
    parts: PurgingParts = PURGING_PARTS,
    *,
    summary: str = "what has ended is purged while the same call is registered anew: it never comes back, and keeps nobody out",
    budget: int = 1,
) -> Scenario:
    """The scenario, for our programs or faulty variants of them.

    Args:
        parts: What the programs are made of.
        summary: One line for people.
        budget: How many faults may strike.
    """
    wanted = Purging(success_age=0, other_age=None, records=RECORDS, places=PLACES, calls=CALLS, parts=parts)
    place = kept(Reservation((Place(OLD, 0),)))
    world = world_with(
        {
            RECORDS: (ended(OLD), ended(UNHEARD, (NOTICE.name, (3,)))),
            PLACES: (Document.of({"_id": SET, "version": 1, "places": place}),),
            CALLS: (call_of(OLD),),
        }
    )
    registrar = Registrar(
        key=NEW, call=CALL, rule=RULE, request="again", attempts=6, pauses=Pauses(Fixed(0)),
        records=RECORDS, places=PLACES, calls=CALLS,
    )  # fmt: skip

    def goes_when_over(before: State, after: State) -> bool:
        pairs = ((before.read(document(RECORDS, key)), after.read(document(RECORDS, key))) for key in (OLD, UNHEARD))
        return all(one is None or laws.purging.what_goes_is_over(one, other) for one, other in pairs)

    def stays_gone(before: State, after: State) -> bool:
        one, other = before.read(document(RECORDS, OLD)), after.read(document(RECORDS, OLD))
        return laws.purging.what_is_gone_stays_so(one, other, was_there=True)

    def is_purged(state: State) -> bool:
        if state.status("purger") != Returned(Purged(1, is_done=True)):
            return True
        there = [state.read(document(collection, OLD)) for collection in (RECORDS, CALLS)]
        return laws.purging.nothing_is_left(*([] if each is None else [each] for each in there))

    def is_admitted(state: State) -> bool:
        match state.status("caller"):
            case Returned(answer):
                return answer == Registered(NEW)
            case _:
                return True

    return Scenario(
        name="purging",
        summary=summary,
        world=world,
        actors=(
            Process("purger", lambda _: wanted.purge(), LOST, perform),
            Process("caller", lambda _: registrar.run(), LOST, perform),
            Network(perform),
        ),
        budget=budget,
        always={ADMITTED: is_admitted},
        step={OVER: goes_when_over, STAYS: stays_gone},
        eventually={LEFT: is_purged},
        sometimes={
            "one goes, and one comes": lambda state: (
                state.read(document(RECORDS, OLD)) is None and state.read(document(RECORDS, NEW)) is not None
            )
        },
    )


SCENARIOS: Final = (Shipped("purging", purging, thorough=partial(purging, budget=2), large=partial(purging, budget=4)),)
