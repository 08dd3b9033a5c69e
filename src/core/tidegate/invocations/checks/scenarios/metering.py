"""Two runners ask how many of a set may begin while time passes; no more begin than the rate
allows.

In a second scenario the empty meter is removed meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks import laws
from tidegate.invocations.limits.rate_limit import Admission, Rate
from tidegate.invocations.limits.rate_limiting import ADMITTED, WRITTEN_AT, Metering, new_meter
from tidegate.invocations.record.record_documents import VERSION
from tidegate.invocations.upkeep.pruning import Purging
from tidegate.model.documents import ID, Document
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.clocks import HOST, Host
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import document, journal, journaled, world_with

FITS: Final = "no more begin in a time than may"
COUNTED: Final = "what is told to be admitted was counted"

METERS, SET = "meters", "send"
NAMES: Final = ("one", "two")
RATE: Final = Rate(2, 200 * MILLISECOND)
QUANTUM: Final[Duration] = 100 * MILLISECOND
FAULTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE,
    Fault.NOT_DURABLE,
)  # fmt: skip

SWEPT_FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE)


async def asks(metering: Metering, times: int) -> int:
    """How many may begin, of repeated requests for as many."""
    told = 0
    for _ in range(times):
        answer = await metering.run()
        if isinstance(answer, Admission):
            told += answer.admitted
    return told


def asking(metering: Metering, times: int) -> Birth:
    return lambda _: asks(metering, times)


def written(doc: Document) -> Document:
    """The time of each version, and the number admitted by then."""
    return Document(((ID.name, SET), (WRITTEN_AT.name, doc[WRITTEN_AT]), (ADMITTED.name, doc[ADMITTED])))


def admitted(state: State) -> tuple[tuple[Instant, int], ...]:
    """The times of admissions."""
    found: tuple[tuple[Instant, int], ...] = ()
    before = 0
    for each in state.read(journal(METERS, SET)):
        number = each[ADMITTED]
        found = (*found, (each[WRITTEN_AT], number - before if number else 0))  # one that is new begins with none
        before = number
    return found


def told(state: State) -> int:
    numbers = (state.status(name) for name in NAMES)
    return sum(each.value for each in numbers if isinstance(each, Returned) and isinstance(each.value, int))


def counted(state: State) -> int:
    return sum(number for _, number in admitted(state))


def metering(
    made: type[Metering] = Metering,
    *,
    summary: str = "two runners ask how many may begin, while time passes: no more do than the rate lets through",
    wanted: int = 2,
    times: int = 1,
    moves: int = 2,
    budget: int = 1,
    faults: Faults = FAULTS,
    host: Host = HOST,
    sweep: type[Purging] | None = None,
) -> Scenario:
    """The scenario.

    Args:
        made: The program, perhaps with a planted bug.
        summary: One line for people.
        wanted: The number in each request.
        times: The number of requests.
        moves: How often the clock of the store may move.
        budget: How many faults may strike.
        faults: Those that may strike.
        host: How wrong the machines' clocks may be.
        sweep: The program that removes empty meters, if any.
    """
    command = made(key=SET, rate=RATE, wanted=wanted, meters=METERS, attempts=2, pauses=Pauses(Fixed(0)))
    meaning = journaled(METERS, SET, written)
    purging = (sweep or Purging)(meter_age=QUANTUM, meters=METERS)
    # An earlier one: a new meter reaches that version again.
    meter = new_meter(SET, Instant(0)).put(VERSION, 2 if sweep else 1)
    return Scenario(
        name="metering",
        summary=summary,
        world=world_with({METERS: (meter,)}),
        actors=(
            *(Process(each, asking(command, times), faults, meaning, host=host) for each in NAMES),
            *((Process("sweeper", lambda _: purging.sweep_meters(), faults, meaning),) if sweep else ()),
            Network(meaning),
        ),
        budget=budget,
        clock=Clock(quantum=QUANTUM, moves=moves),
        always={
            FITS: lambda state: laws.rates.fits(RATE, admitted(state)),
            COUNTED: lambda state: laws.rates.is_counted(told(state), counted(state)),
        },
        sometimes={
            "both begin some": lambda state: told(state) > RATE.at_most,
            "one is refused": lambda state: any(state.status(name) == Returned(0) for name in NAMES),
            **({"it goes": lambda state: state.read(document(METERS, SET)) is None} if sweep else {}),
        },
    )


SWEPT: Final = partial(
    metering,
    sweep=Purging,
    summary="a meter that says nothing goes while two runners ask: no more begin than the rate lets through",
)


SCENARIOS: Final = (
    Shipped(
        "metering", metering, thorough=partial(metering, budget=2), large=partial(metering, budget=3, times=2, moves=3)
    ),
    Shipped(
        "metering.swept",
        partial(SWEPT, faults=SWEPT_FAULTS),
        thorough=SWEPT,
        large=partial(SWEPT, budget=2, times=2, moves=3),
    ),
)
