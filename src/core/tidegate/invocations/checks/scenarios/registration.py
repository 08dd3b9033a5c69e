"""Two calls of one task that may be registered once at a time, and a runner that starts what is registered.

Callers crash, and all of their requests may meet the faults of the network. In a second scenario one is registered before
another calls.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.admission import Call, Control, Place, Purpose, Reservation, Rule, reservation_id
from tidegate.invocations.limits.registration import Registered, Registrar, Reused
from tidegate.invocations.limits.slot_documents import kept
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import new_record, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Transition
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.instants import Instant
from tidegate.model.operations import find_one
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, world_with

RECORDS: Final = "invocations"
PLACES: Final = "places"
CALLS: Final = "calls"
KEYS: Final = ("x", "y", "z")
TASK: Final = "report"
RULE: Final = Rule(Control.TASK)

AT_MOST: Final = "no more are registered than may be"
REGISTERED: Final = "who says so has registered it"
ANSWERED: Final = "who says so is answered by one that is there"
CLEAN: Final = "who is answered leaves nothing behind"

FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)


async def start() -> bool:
    """The first invocation is picked up, if it is registered by now."""
    found = await find_one(RECORDS, Eq(ID, KEYS[0]))
    if found is None:
        return False
    await Transition(RECORDS, INVOCATION, KEYS[0], status.PENDING, "runner", "start").run()
    return True


def known(state: State, key: str) -> StatusRecord | None:
    return viewed(state.read(document(RECORDS, key)))


def gives_true_answers(key: str, kind: type[Registered | Reused]) -> Law:
    def holds(state: State) -> bool:
        match state.status(f"caller {key}"):
            case Returned(Registered() | Reused() as answer) if isinstance(answer, kind):
                return known(state, answer.invocation) is not None
            case _:
                return True

    return holds


def no_more_are_registered(state: State) -> bool:
    records = (known(state, key) for key in KEYS)
    return laws.admission.no_more_are_registered([each for each in records if each is not None])


def born_as(registrar: Registrar) -> Birth:
    return lambda _: registrar.run()


def registration(
    made: type[Registrar] = Registrar,
    *,
    summary: str = "two calls of a task that may be registered once: one is, and answers the other, or both do in turn",
    callers: int = 2,
    is_used: bool = False,
    budget: int = 1,
    faults: Faults = FAULTS,
) -> Scenario:
    """The scenario.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        callers: How many call.
        is_used: The document of places is there from the beginning.
        budget: How many faults may strike.
        faults: Which.
    """
    keys, call = KEYS[:callers], Call(TASK, ())
    places = reservation_id(Purpose.REGISTRATION, RULE, call)
    used = (Document.of({"_id": places, "version": 1, "places": ()}),) if is_used else ()
    registrars = {key: made(key=key, call=call, rule=RULE, request=f"call {key}") for key in keys}
    return Scenario(
        name="registration",
        summary=summary,
        world=world_with({PLACES: used}),
        actors=(
            *(Process(f"caller {key}", born_as(each), faults) for key, each in registrars.items()),
            Process("runner", lambda _: start()),
            Network(),
        ),
        budget=budget,
        always={
            AT_MOST: no_more_are_registered,
            REGISTERED: tuple(gives_true_answers(key, Registered) for key in keys),
            ANSWERED: tuple(gives_true_answers(key, Reused) for key in keys),
        },
        sometimes={
            "one answers for the other": lambda state: any(
                state.status(f"caller {key}") == Returned(Reused(other))
                for key in keys
                for other in keys
                if key != other
            ),
            "both are registered, one after the other": lambda state: all(
                known(state, key) is not None for key in keys
            ),
        },
    )


def answered(
    made: type[Registrar] = Registrar,
    *,
    summary: str = "one is registered, and another calls: it is answered and leaves nothing behind, or comes in its turn",
    budget: int = 1,
) -> Scenario:
    """The scenario of one that was there before.

    Args:
        made: As of `registration`.
        summary: One line for people.
        budget: How many faults may strike.
    """
    there, key = KEYS[:2]
    caller, call = f"caller {key}", Call(TASK, ())
    registrar = made(key=key, call=call, rule=RULE, request=caller)
    places = reservation_id(Purpose.REGISTRATION, RULE, call)
    contents = {
        RECORDS: (new_record(there, StatusRecord(status.REGISTERED, None, 1), "made", Instant(0)),),
        PLACES: (Document.of({"_id": places, "version": 1, "places": kept(Reservation((Place(there, 0),)))}),),
        CALLS: (Document.of({"_id": there, "task": TASK, "names": (), "values": ()}),),
    }

    def is_clean(state: State) -> bool:
        match state.status(caller):
            case Returned(Reused(by)):
                left = tuple(key for each in (RECORDS, CALLS) if state.read(document(each, key)) is not None)
                return laws.admission.leaves_nothing_behind(key, by, left)
            case _:
                return True

    return Scenario(
        name="registration",
        summary=summary,
        world=world_with(contents),
        actors=(Process(caller, born_as(registrar), FAULTS), Process("runner", lambda _: start()), Network()),
        budget=budget,
        always={
            AT_MOST: no_more_are_registered,
            REGISTERED: gives_true_answers(key, Registered),
            ANSWERED: gives_true_answers(key, Reused),
            CLEAN: is_clean,
        },
        sometimes={
            "it is answered": lambda state: state.status(caller) == Returned(Reused(there)),
            "it comes in its turn": lambda state: known(state, key) is not None,
        },
    )


SCENARIOS: Final = (
    Shipped(
        "registration",
        registration,
        thorough=partial(registration, budget=2, is_used=True),
        large=partial(registration, callers=3, budget=4),
    ),
    Shipped("registration.answered", answered, thorough=partial(answered, budget=2), large=partial(answered, budget=4)),
)
