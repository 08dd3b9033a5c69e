"""Two invocations of one task that exclude each other, and a worker for each.

A worker picks its invocation up if the rule admits it, runs it, and says how it went. Workers crash, and all of their
requests may meet the faults of the network.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.admission import Call, Control, Purpose, Rule, reservation_id
from tidegate.invocations.limits.slot_acquisition import HeldBack, PickedUp, Picker, PickOutcome
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import HISTORY, STATUS, VERSION, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Transition
from tidegate.model.documents import Document
from tidegate.model.instants import Instant
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, world_with

RECORDS: Final = "invocations"
PLACES: Final = "places"
KEYS: Final = ("x", "y", "z")
TASK: Final = "report"
RULE: Final = Rule(Control.TASK)

AT_MOST: Final = "no more run than may"
PICKED: Final = "who says so has picked it up"
HELD_BACK: Final = "who says so was held back"

FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)


async def work(picker: Picker) -> PickOutcome:
    """Pick the invocation up, run it, and say how it went."""
    outcome = await picker.run()
    if isinstance(outcome, PickedUp):
        for target in (status.RUNNING, status.SUCCESS):
            request = f"{picker.request}.{target}"
            await Transition(RECORDS, INVOCATION, picker.key, target, picker.runner, request).run()
    return outcome


def record(state: State, key: str) -> Document:
    found = state.read(document(RECORDS, key))
    assert found is not None
    return found


def known(state: State, key: str) -> StatusRecord:
    seen = viewed(record(state, key))
    assert seen is not None
    return seen


def made(state: State, key: str) -> dict[int, str]:
    """Which status each version brought, as the record remembers."""
    return {change[VERSION]: change[STATUS] for change in record(state, key)[HISTORY]}


def says_the_truth(key: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(f"worker {key}"):
            case Returned(PickedUp(version)):
                return made(state, key).get(version) == status.PENDING
            case _:
                return True

    return holds


def was_held_back(key: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(f"worker {key}"):
            case Returned(HeldBack(target)):
                return target in made(state, key).values()
            case _:
                return True

    return holds


def born_as(picker: Picker) -> Birth:
    return lambda _: work(picker)


def admission(
    made: type[Picker] = Picker,
    *,
    summary: str = "two invocations of a task that may run once at a time: one is picked up, the other one afterwards or never",
    invocations: int = 2,
    at_most: int = 1,
    is_used: bool = False,
    budget: int = 1,
    faults: Faults = FAULTS,
) -> Scenario:
    """The scenario.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        invocations: How many there are, with a worker each.
        at_most: How many may run at once.
        is_used: The document of places is there from the beginning.
        budget: How many faults may strike.
        faults: Which.
    """
    keys = KEYS[:invocations]
    change = {"version": 1, "request": "made", "status": status.REGISTERED}
    first = {"status": status.REGISTERED, "owner": None, "version": 1, "changed_at": Instant(0), "history": (change,)}
    call = Call(TASK, ())
    places = reservation_id(Purpose.RUNNING, RULE, call)
    used = (Document.of({"_id": places, "version": 1, "places": ()}),) if is_used else ()
    pickers = {
        key: made(key=key, call=call, rule=RULE, runner=f"worker {key}", request=f"pick {key}", at_most=at_most)
        for key in keys
    }
    return Scenario(
        name="admission",
        summary=summary,
        world=world_with({RECORDS: tuple(Document.of({"_id": key, **first}) for key in keys), PLACES: used}),
        actors=(*(Process(f"worker {key}", born_as(each), faults) for key, each in pickers.items()), Network()),
        budget=budget,
        always={
            AT_MOST: lambda state: laws.admission.no_more_run([known(state, key) for key in keys], at_most),
            PICKED: tuple(map(says_the_truth, keys)),
            HELD_BACK: tuple(map(was_held_back, keys)),
        },
        sometimes={
            "all are picked up, one after the other": lambda state: all(
                isinstance(state.status(f"worker {key}"), Returned) and known(state, key).status == status.SUCCESS
                for key in keys
            ),
            "one is held back": lambda state: any(
                known(state, key).status == status.CONCURRENCY_CONTROLLED_FINAL for key in keys
            ),
        },
    )


SCENARIOS: Final = (
    Shipped(
        "admission",
        admission,
        thorough=partial(admission, budget=2, is_used=True),
        large=partial(admission, invocations=3, at_most=2, budget=4),
    ),
)
