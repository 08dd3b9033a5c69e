"""Two candidates lead in turn: elections, handovers, stalls and fencing.

Time may pass at any point, also beyond a lease. Any fault of the network may hit any request, and
leaders crash.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.leases.checks import laws
from tidegate.leases.election import Candidate
from tidegate.leases.leader import BELIEVES, FENCE, Leader, Piece, Served, fenced, lease_of, new_lease
from tidegate.leases.lease import Lease, Terms
from tidegate.model.documents import Document
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.sim.program.automaton import Birth, Crashed, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.clocks import HOST, Host, ahead
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import CLOCK, document, notes, world_with

LEASES: Final = "leases"
RESOURCES: Final = "resources"
KEY: Final = "planner"

ONE: Final = "at most one believes that it leads"
TOKENS: Final = "tokens grow"
FENCED: Final = "nothing is written under an older epoch"
RELEASED: Final = "whoever says so holds nothing"

TERMS: Final = Terms(ttl=2 * SECOND, heartbeat=SECOND, margin=0)
"""One renewal per TTL, and no margin for slow clocks: the fewest possible moves of the clock."""
FAULTS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)

EVERY: Final = Faults.of(
    *FAULTS.kinds, Fault.CRASH_AFTER, Fault.NOT_DURABLE, Fault.LATE, Fault.DUPLICATE, Fault.CANCELLED
)
"""All faults of a candidate and its requests; clocks and stalls have scenarios of their own."""


def lease(state: State) -> Lease | None:
    return lease_of(state.read(document(LEASES, KEY)))


def believes(state: State, name: str, host: Host) -> bool:
    said = state.read(notes(name))
    until = dict(said).get(BELIEVES)
    own = host.shows(state.read(CLOCK).at, state.read(ahead(name)) or 0)
    return isinstance(until, Instant) and until - own > 0


def one_leads(names: tuple[str, ...], host: Host = HOST) -> Law:
    return lambda state: laws.election.one_leads([name for name in names if believes(state, name, host)])


def tokens_grow(before: State, after: State) -> bool:
    changed = lease(after)
    if changed is None:  # a lease is never deleted
        return lease(before) is None
    return laws.lease.tokens_grow(lease(before), changed)


def fence(state: State) -> int:
    resource = state.read(document(RESOURCES, KEY))
    assert resource is not None
    return resource[FENCE]


def admits_no_older(before: State, after: State) -> bool:
    return laws.lease.admits_no_older((fence(before), fence(after)))


def is_released(name: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(name):
            case Returned(Served(_, True)):
                held = lease(state)
                return held is None or held.holder != name
            case _:
                return True

    return holds


async def writes(epoch: int) -> bool:
    return await fenced(RESOURCES, KEY, epoch) > 0


def candidate(made: type[Leader], name: str, terms: Terms, piece: Piece, pieces: int) -> Birth:
    return lambda life: made(LEASES, KEY, Candidate(name, f"{name}.{life}", terms), piece, pieces).run()


def election(
    made: type[Leader] = Leader,
    *,
    piece: Piece = writes,
    summary: str = "two candidates lead in turn, stall, crash and hand over: one leads, and what is older is fenced",
    candidates: int = 2,
    pieces: int = 1,
    quantum: Duration = 2 * SECOND,
    moves: int = 1,
    budget: int = 1,
    terms: Terms = TERMS,
    faults: Faults = FAULTS,
    host: Host = HOST,
) -> Scenario:
    """Some candidates compete for one lease, each for a number of pieces of work.

    A clock that is set back may let two believe that they lead, so that scenario checks only the
    fencing.
    """
    names = ("a", "b", "c")[:candidates]
    return Scenario(
        name="leader",
        summary=summary,
        world=world_with({LEASES: (new_lease(KEY),), RESOURCES: (Document.of({"_id": KEY, "fence": 0}),)}),
        actors=(
            *(Process(name, candidate(made, name, terms, piece, pieces), faults, host=host) for name in names),
            Network(),
        ),
        budget=budget,
        clock=Clock(quantum=quantum, moves=moves),
        always={
            **({} if faults.allows(Fault.CLOCK_BACK) else {ONE: one_leads(names, host)}),
            RELEASED: tuple(map(is_released, names)),
        },
        step={TOKENS: tokens_grow, FENCED: admits_no_older},
        sometimes={
            "it is handed over": lambda state: all(isinstance(state.status(name), Returned) for name in names),
            "it is taken from one that crashed": lambda state: (
                isinstance(state.status("a"), Crashed) and isinstance(state.status("b"), Returned) and fence(state) == 2
            ),
        },
    )


CLOCKS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.SKEW, Fault.CLOCK_FORWARD)
SET_BACK: Final = Faults.of(Fault.CRASH_BEFORE, Fault.CLOCK_BACK)
STALLS: Final = Faults.of(Fault.CRASH_BEFORE, Fault.STALL)
STALLING: Final = Host(stall=2 * SECOND)
"""A machine that may stall for a whole lease."""
WRONG: Final = Host(skew=SECOND, jump=2 * SECOND)
"""A machine whose clock is a second ahead or behind, or is set by a whole lease."""
SLOW: Final = Host(drift=-100_000)
"""A machine whose clock loses a tenth: it shows 1.8 s when a lease of 2 s is over."""
WITH_MARGIN: Final = Terms(ttl=2 * SECOND, heartbeat=SECOND, margin=SECOND // 4)
"""A margin above the loss of such clocks during a lease."""

SCENARIOS: Final = (
    Shipped(
        "leader",
        partial(election, faults=EVERY),
        thorough=partial(election, quantum=SECOND, moves=2, faults=EVERY),
        large=partial(election, candidates=3, quantum=SECOND, moves=8, budget=4),
    ),
    Shipped(
        "leader.clocks",
        partial(
            election,
            summary="the same where clocks of machines are ahead, behind, or set forward: one leads all the same",
            faults=CLOCKS,
            host=WRONG,
        ),
        thorough=partial(election, budget=2, faults=CLOCKS, host=WRONG),
        large=partial(election, candidates=3, quantum=SECOND, moves=8, budget=4, faults=CLOCKS, host=WRONG),
    ),
    Shipped(
        "leader.set_back",
        partial(
            election,
            summary="the same where a machine's clock is set back: two may believe that they lead, and the older one is fenced",
            faults=SET_BACK,
            host=WRONG,
        ),
        thorough=partial(election, quantum=SECOND, moves=2, budget=2, faults=SET_BACK, host=WRONG),
        large=partial(election, candidates=3, quantum=SECOND, moves=8, budget=4, faults=SET_BACK, host=WRONG),
    ),
    Shipped(
        "leader.drift",
        partial(
            election,
            summary="the same where machines' clocks are slow: a margin makes up for it, and one leads",
            terms=WITH_MARGIN,
            host=SLOW,
        ),
        thorough=partial(election, terms=WITH_MARGIN, host=SLOW, quantum=SECOND, moves=2),
        large=partial(election, candidates=3, terms=WITH_MARGIN, host=SLOW, quantum=SECOND, moves=8, budget=4),
    ),
    Shipped(
        "leader.stalls",
        partial(
            election,
            summary="the same where time passes only while a machine stalls, for a whole lease",
            moves=0,
            budget=2,
            faults=STALLS,
            host=STALLING,
        ),
        thorough=partial(election, moves=0, budget=3, faults=STALLS, host=STALLING),
        large=partial(election, candidates=3, pieces=2, moves=0, budget=6, faults=STALLS, host=STALLING),
    ),
)
