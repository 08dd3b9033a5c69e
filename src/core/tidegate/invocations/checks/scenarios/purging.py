"""What has ended is purged while the same call is registered anew: it is gone for good, and the new one is not kept out.

Of two that have ended, one was registered under control and still has its place, and triggers have yet to hear of the other. In
a second scenario, the set in which nobody is goes while others register in it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.admission import Call, Control, Place, Purpose, Reservation, Rule, reservation_id
from tidegate.invocations.limits.registration import PLACES_ID, Registered, Registrar
from tidegate.invocations.limits.slot_documents import kept, places_of
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.record_documents import NOTICE, STATUS, VERSION, new_record, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.upkeep.pruning import Purged, Purging
from tidegate.model.documents import ID, Document, Eq, Put
from tidegate.model.instants import Instant
from tidegate.model.operations import update_one
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, perform, world_with

OVER: Final = "what goes is over"
STAYS: Final = "what is gone stays so"
LEFT: Final = "nothing is left of what was to go"
ADMITTED: Final = "who calls is not kept out by what is gone"
KEPT: Final = "nobody loses a place"

RECORDS, PLACES, CALLS = "invocations", "places", "calls"
OLD, UNHEARD, NEW = "old", "unheard", "new"
RULE: Final = Rule(Control.TASK)
CALL: Final = Call("report", ())
SET: Final = reservation_id(Purpose.REGISTRATION, RULE, CALL) or ""
LOST: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)
FEW: Final = Faults.of(Fault.CRASH_BEFORE, Fault.LOST_REPLY)


def ended(key: str, *more: tuple[str, tuple[int, ...]]) -> Document:
    return new_record(key, StatusRecord(status.SUCCESS, None, 3), "made", Instant(0), more=Document(more))


def call_of(key: str) -> Document:
    return Document.of({"_id": key, "task": CALL.task, "names": (), "values": (), PLACES_ID.name: SET})


def registrar_of(key: str, made: type[Registrar] = Registrar) -> Registrar:
    return made(
        key=key, call=CALL, rule=RULE, request=f"again {key}", attempts=6, pauses=Pauses(Fixed(0)),
        records=RECORDS, places=PLACES, calls=CALLS,
    )  # fmt: skip


def purging(
    made: type[Purging] = Purging,
    *,
    summary: str = "what has ended is purged while the same call is registered anew: it never comes back, and keeps nobody out",
    budget: int = 1,
) -> Scenario:
    """The scenario, for our programs or faulty variants of them.

    Args:
        made: The programs; faulty variants of them, perhaps.
        summary: One line for people.
        budget: How many faults may strike.
    """
    wanted = made(success_age=0, other_age=None, records=RECORDS, places=PLACES, calls=CALLS)
    place = kept(Reservation((Place(OLD, 0),)))
    registrar = registrar_of(NEW)
    world = world_with(
        {
            RECORDS: (ended(OLD), ended(UNHEARD, (NOTICE.name, (3,)))),
            PLACES: (Document.of({"_id": SET, "version": 1, "places": place}),),
            CALLS: (call_of(OLD),),
        }
    )

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


FIRST, SECOND, THIRD = "first", "second", "third"


async def comes_and_goes(one: Registrar, other: Registrar) -> None:
    """The first one is taken by a runner once it is registered; then the second one registers."""
    if isinstance(await one.run(), Registered):
        await update_one(RECORDS, Eq(ID, one.key), Put(STATUS, status.PENDING), Put(VERSION, 2))
        await other.run()


def swept(
    made: type[Purging] = Purging,
    *,
    registrar: type[Registrar] = Registrar,
    summary: str = "a set in which nobody is goes while others register in it: none of them loses its place",
    budget: int = 1,
    faults: Faults = LOST,
) -> Scenario:
    """The scenario of places.

    Args:
        made: The sweep; a faulty variant of it, perhaps.
        registrar: The program that registers; a faulty variant of it, perhaps.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Which.
    """
    wanted = made(records=RECORDS, places=PLACES, calls=CALLS)
    one, two, three = (registrar_of(key, registrar) for key in (FIRST, SECOND, THIRD))
    # As it is left by one that was registered, and went.
    left = Document.of({"_id": SET, "version": 2, "places": ()})

    def records(state: State) -> dict[str, StatusRecord | None]:
        return {key: viewed(state.read(document(RECORDS, key))) for key in (FIRST, SECOND, THIRD)}

    def is_kept(before: State, after: State) -> bool:
        was, now = (places_of(each.read(document(PLACES, SET))) for each in (before, after))
        return laws.purging.nobody_loses_a_place(Purpose.REGISTRATION, was, now, records(before))

    return Scenario(
        name="purging.swept",
        summary=summary,
        world=world_with({RECORDS: (), PLACES: (left,), CALLS: ()}),
        actors=(
            Process("sweeper", lambda _: wanted.sweep_places(), faults, perform),
            Process("one", lambda _: one.run(), faults, perform),
            Process("two", lambda _: comes_and_goes(two, three), faults, perform),
            Network(perform),
        ),
        budget=budget,
        step={KEPT: is_kept},
        sometimes={
            "it goes": lambda state: state.read(document(PLACES, SET)) is None,
            "two register": lambda state: state.read(document(RECORDS, THIRD)) is not None,
        },
    )


SCENARIOS: Final = (
    Shipped("purging", purging, thorough=partial(purging, budget=2), large=partial(purging, budget=4)),
    Shipped("purging.swept", partial(swept, faults=FEW), thorough=swept, large=partial(swept, budget=3)),
)
