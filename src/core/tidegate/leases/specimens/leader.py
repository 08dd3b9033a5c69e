"""Ways to lead wrongly. Each differs from `tidegate.leases.leader`, or from its candidate, in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.leases.election import Candidate, Following, Look, Request, Step, Swap
from tidegate.leases.leader import FENCE, Leader, Served, lease_of
from tidegate.leases.lease import Lease
from tidegate.leases.scenarios.leader import (
    FAULTS,
    FENCED,
    ONE,
    RELEASED,
    SLOW,
    TERMS,
    TOKENS,
    WRONG,
    election,
    one_leads,
)
from tidegate.model.documents import ID, Eq, Filter, Put
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Now
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import UpdateOne, delete_one, find_one, update_one
from tidegate.sim.clocks import HOST, Host
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen


@attrs.frozen
class ExpiryNotJudged(Leader):
    """The take asks for the version that was read, and not whether it has stood for its TTL."""

    def _unchanged(self, swap: Swap) -> Filter:
        return super()._unchanged(attrs.evolve(swap, stood=0))


@attrs.frozen
class VersionNotInFilter(Leader):
    """Takes and renewals ask for the id alone: of two that read the same record, both win."""

    def _unchanged(self, swap: Swap) -> Filter:  # noqa: ARG002  that is the bug
        return Eq(ID, self.key)


@attrs.frozen
class ReleasesWhoever(Leader):
    """The release asks for the id alone, and wipes out whoever holds it by now."""

    def _unchanged(self, swap: Swap) -> Filter:
        return Eq(ID, self.key) if swap.lease.holder is None else super()._unchanged(swap)


@attrs.frozen
class ReleaseDeletes(Leader):
    """The release deletes the record: the next one begins with token 1 again, and nothing is fenced."""

    async def _answered(self, request: Request) -> Lease | Failure | None:
        if isinstance(request, Look) or request.lease.holder is not None:
            return await super()._answered(request)
        await delete_one(self.collection, self._unchanged(request))
        return request.lease


@attrs.frozen
class NotFenced(Leader):
    """The work names its epoch, and nothing refuses an older one: who stalls after it has asked writes all the same."""

    def _piece(self, epoch: int) -> UpdateOne:
        return update_one(self.resource, Eq(ID, self.key), Put(FENCE, epoch))


@attrs.frozen
class NoReplyIsNo(Leader):
    """No reply is taken for a no: a release that got lost passes for one that others were faster than."""

    async def _answered(self, request: Request) -> Lease | Failure | None:
        try:
            return await self._sent(request)
        except (Ambiguous, NotApplied, NotDurable):
            return None


@attrs.frozen
class KnownByItsName(Leader):
    """A holder is known by a configured name: of two that have the same, either takes the other's lease for its own."""

    async def run(self) -> Served:
        named = attrs.evolve(self.candidate, life="planner")
        return await Leader(self.collection, self.key, named, self.resource, self.pieces).run()


@attrs.frozen
class JudgedByItsOwnClock(Leader):
    """Whether a lease has expired is judged by the clock of whoever asks: one that is ahead takes a healthy lease."""

    async def _sent(self, request: Request) -> Lease | None:
        if isinstance(request, Look) or not request.stood:
            return await super()._sent(request)
        found = await find_one(self.collection, Eq(ID, self.key))
        held = lease_of(found)
        now = await Now()
        if held is None or held.stamp is None or now.at - held.stamp.at < request.stood:
            return None
        return await super()._sent(attrs.evolve(request, stood=0))


def set_back() -> Scenario:
    """A machine measures its lease by a clock that is set back, and leads on while another does."""
    made = election(faults=Faults.of(Fault.CLOCK_BACK), host=WRONG)
    summary = (set_back.__doc__ or "").partition("\n")[0]
    return attrs.evolve(made, summary=summary, always={ONE: one_leads(("a", "b"))}, step={})


@attrs.frozen
class CountsFromTheAnswer(Candidate):
    """The tenure counts from when the take was answered; the store counts from when it was done."""

    def _told(self, state: Following, request: Request, lease: Lease | None, sent: Instant, at: Instant) -> Step:
        late = attrs.evolve(state, claim=None) if isinstance(request, Swap) else state
        return super()._told(late, request, lease, at if isinstance(request, Swap) else sent, at)


def planted(
    name: str,
    law: str,
    source: str,
    *,
    leader: type[Leader] = Leader,
    who: type[Candidate] = Candidate,
    quantum: Duration = 2 * SECOND,
    faults: Faults = FAULTS,
    host: Host = HOST,
) -> Specimen:
    """The scenario of the candidates, with the bug in its place."""
    bug = who if leader is Leader else leader
    make = partial(
        election, leader, who, summary=(bug.__doc__ or "").partition("\n")[0], quantum=quantum, faults=faults, host=host
    )
    return Specimen(f"leader.{name}", make, law, source, of="leader")


SPECIMENS: Final = (
    planted(
        "expiry_not_judged",
        ONE,
        "Planted: a compare-and-set on the version alone, as if a version that stands were one that has expired.",
        leader=ExpiryNotJudged,
    ),
    planted(
        "version_not_in_filter",
        TOKENS,
        "mongodash's lock is renewed by its id, so one holder may extend another's lease.",
        leader=VersionNotInFilter,
    ),
    planted(
        "releases_whoever",
        TOKENS,
        "pynenc-mongo clears the whole array when it releases, whoever holds the lock by then.",
        leader=ReleasesWhoever,
    ),
    planted(
        "release_deletes",
        TOKENS,
        "mongodash removes its lock when it releases it.",
        leader=ReleaseDeletes,
    ),
    planted(
        "not_fenced",
        FENCED,
        "mongodash's planner writes tokens and plans without an epoch (Kleppmann 2016 has the general case).",
        leader=NotFenced,
    ),
    planted(
        "no_reply_is_no",
        RELEASED,
        "The resilience article: a time-out says nothing about whether the write was done.",
        leader=NoReplyIsNo,
    ),
    planted(
        "known_by_its_name",
        ONE,
        "mongodash knows instances by their configured ids: of two equal ones, both lead.",
        leader=KnownByItsName,
        quantum=SECOND,
    ),
    planted(
        "judged_by_its_own_clock",
        ONE,
        "mongodash compares the expiry with the clock of whoever asks: an instance that is 20 s ahead steals the lease.",
        leader=JudgedByItsOwnClock,
        faults=Faults.of(Fault.SKEW),
        host=Host(skew=2 * SECOND),
    ),
    Specimen(
        "leader.clock_set_back",
        set_back,
        ONE,
        "Nothing is planted: a wall clock is no measure of a lease (Kleppmann 2016). A monotonic clock is not set.",
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
        who=CountsFromTheAnswer,
    ),
)
