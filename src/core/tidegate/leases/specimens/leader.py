"""Ways to lead wrongly. Each differs from `tidegate.leases.leader`, or from its candidate, in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.leases.election import (
    Answered,
    Candidate,
    ElectionEvent,
    ElectionState,
    ElectionStep,
    Flight,
    Following,
    Look,
    Request,
    Swap,
)
from tidegate.leases.leader import FENCE, LeaderParts, Piece, ask, lease_of, unchanged
from tidegate.leases.lease import Lease
from tidegate.leases.scenarios.leader import (
    FAULTS,
    FENCED,
    KEY,
    ONE,
    RELEASED,
    RESOURCES,
    RIGHT,
    SLOW,
    TERMS,
    TOKENS,
    WRONG,
    election,
    one_leads,
    writes,
)
from tidegate.model.documents import ID, Eq, Filter, Put
from tidegate.model.effects import Failure, Now
from tidegate.model.instants import SECOND, Duration
from tidegate.model.operations import delete_one, find_one, update_one
from tidegate.sim.clocks import HOST, Host
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def expiry_not_judged(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """The take asks for the version that was read, and not whether it has stood for its TTL."""
    return await ask(collection, key, request if isinstance(request, Look) else attrs.evolve(request, stood=0))


async def version_not_in_filter(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """Takes and renewals ask for the id alone: of two that read the same record, both win."""
    return await ask(collection, key, request, by_id)


def by_id(key: str, _: Swap) -> Filter:
    return Eq(ID, key)


async def releases_whoever(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """The release asks for the id alone, and wipes out whoever holds it by now."""
    return await ask(collection, key, request, by_id if is_release(request) else unchanged)


def is_release(request: Request) -> bool:
    return isinstance(request, Swap) and request.lease.holder is None


async def release_deletes(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """The release deletes the record: the next one begins with token 1 again, and nothing is fenced."""
    if isinstance(request, Look) or not is_release(request):
        return await ask(collection, key, request)
    await delete_one(collection, unchanged(key, request))
    return request.lease


async def not_fenced(epoch: int) -> bool:
    """The work names its epoch, and nothing refuses an older one: who stalls after it has asked writes all the same."""
    return await update_one(RESOURCES, Eq(ID, KEY), Put(FENCE, epoch)) > 0


async def no_reply_is_no(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """No reply is taken for a no: a release that got lost passes for one that others were faster than."""
    answer = await ask(collection, key, request)
    return None if isinstance(answer, Failure) else answer


def known_by_its_name(candidate: Candidate, state: ElectionState, event: ElectionEvent) -> ElectionStep:
    """A holder is known by a configured name: of two that have the same, either takes the other's lease for its own."""
    return attrs.evolve(candidate, life="planner").step(state, event)


async def judged_by_its_own_clock(collection: str, key: str, request: Request) -> Lease | Failure | None:
    """Whether a lease has expired is judged by the clock of whoever asks: one that is ahead takes a healthy lease."""
    if isinstance(request, Look) or not request.stood:
        return await ask(collection, key, request)
    found = await find_one(collection, Eq(ID, key))
    held = lease_of(found)
    now = await Now()
    if held is None or held.stamp is None or now.at - held.stamp.at < request.stood:
        return None
    return await ask(collection, key, attrs.evolve(request, stood=0))


def set_back() -> Scenario:
    """A machine measures its lease by a clock that is set back, and leads on while another does."""
    made = election(faults=Faults.of(Fault.CLOCK_BACK), host=WRONG)
    summary = (set_back.__doc__ or "").partition("\n")[0]
    return attrs.evolve(made, summary=summary, always={ONE: one_leads(("a", "b"))}, step={})


def counts_from_the_answer(candidate: Candidate, state: ElectionState, event: ElectionEvent) -> ElectionStep:
    """The tenure counts from when the take was answered; the store counts from when it was done."""
    if isinstance(state, Following) and isinstance(event, Answered) and isinstance(event.request, Swap):
        state = attrs.evolve(state, claim=None, flight=Flight(event.request, event.at))
    return candidate.step(state, event)


def planted(
    name: str,
    law: str,
    source: str,
    *,
    bug: object,
    parts: LeaderParts = RIGHT,
    piece: Piece = writes,
    quantum: Duration = 2 * SECOND,
    faults: Faults = FAULTS,
    host: Host = HOST,
) -> Specimen:
    """The scenario of the candidates, with the bug in its place."""
    summary = (bug.__doc__ or "").partition("\n")[0]
    make = partial(election, parts, piece=piece, summary=summary, quantum=quantum, faults=faults, host=host)
    return Specimen(f"leader.{name}", make, law, source, of="leader")


SPECIMENS: Final = (
    planted(
        "expiry_not_judged",
        ONE,
        "Planted: a compare-and-set on the version alone, as if a version that stands were one that has expired.",
        bug=expiry_not_judged,
        parts=attrs.evolve(RIGHT, ask=expiry_not_judged),
    ),
    planted(
        "version_not_in_filter",
        TOKENS,
        "mongodash's lock is renewed by its id, so one holder may extend another's lease.",
        bug=version_not_in_filter,
        parts=attrs.evolve(RIGHT, ask=version_not_in_filter),
    ),
    planted(
        "releases_whoever",
        TOKENS,
        "pynenc-mongo clears the whole array when it releases, whoever holds the lock by then.",
        bug=releases_whoever,
        parts=attrs.evolve(RIGHT, ask=releases_whoever),
    ),
    planted(
        "release_deletes",
        TOKENS,
        "mongodash removes its lock when it releases it.",
        bug=release_deletes,
        parts=attrs.evolve(RIGHT, ask=release_deletes),
    ),
    planted(
        "not_fenced",
        FENCED,
        "mongodash's planner writes tokens and plans without an epoch (Kleppmann 2016 has the general case).",
        bug=not_fenced,
        piece=not_fenced,
    ),
    planted(
        "no_reply_is_no",
        RELEASED,
        "The resilience article: a time-out says nothing about whether the write was done.",
        bug=no_reply_is_no,
        parts=attrs.evolve(RIGHT, ask=no_reply_is_no),
    ),
    planted(
        "known_by_its_name",
        ONE,
        "mongodash knows instances by their configured ids: of two equal ones, both lead.",
        bug=known_by_its_name,
        parts=attrs.evolve(RIGHT, step=known_by_its_name),
        quantum=SECOND,
    ),
    planted(
        "judged_by_its_own_clock",
        ONE,
        "mongodash compares the expiry with the clock of whoever asks: an instance that is 20 s ahead steals the lease.",
        bug=judged_by_its_own_clock,
        parts=attrs.evolve(RIGHT, ask=judged_by_its_own_clock),
        faults=Faults.of(Fault.SKEW),
        host=Host(skew=2 * SECOND),
    ),
    Specimen(
        "leader.clock_set_back",
        set_back,
        ONE,
        "Nothing is planted: a wall clock is not a measure of a lease (Kleppmann 2016). A monotonic clock is not set.",
        of="leader",
    ),
    Specimen(
        "leader.no_margin",
        partial(
            election, summary="A lease on a clock that is slow, without a margin.", terms=TERMS, host=SLOW, budget=0
        ),
        ONE,
        "Nothing is planted: Gray and Cheriton shorten a lease by what clocks may drift in it.",
        of="leader.drift",
    ),
    planted(
        "counts_from_the_answer",
        ONE,
        "Gray and Cheriton count a lease from before it was asked for; the reply may have taken any time.",
        bug=counts_from_the_answer,
        parts=attrs.evolve(RIGHT, step=counts_from_the_answer),
    ),
)
