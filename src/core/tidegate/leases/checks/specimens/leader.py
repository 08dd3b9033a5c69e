"""Faulty variants of the leader."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.leases.checks.scenarios.leader import (
    FENCED,
    KEY,
    ONE,
    RELEASED,
    RESOURCES,
    SLOW,
    TERMS,
    TOKENS,
    WRONG,
    election,
    one_leads,
)
from tidegate.leases.election import Answered, Flight
from tidegate.leases.leader import FENCE, Leader
from tidegate.model.documents import ID, Eq, Put
from tidegate.model.instants import SECOND
from tidegate.model.operations import delete_one, update_one
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Fault, Faults


async def not_fenced(epoch: int) -> bool:
    return await update_one(RESOURCES, Eq(ID, KEY), Put(FENCE, epoch)) > 0


def set_back(made: type[Leader], *, summary: str) -> Scenario:
    """Two candidates judge by themselves whether they lead, and their clocks are set back."""
    scenario = election(made, summary=summary, faults=Faults.of(Fault.CLOCK_BACK), host=WRONG)
    return attrs.evolve(scenario, always={ONE: one_leads(("a", "b"))}, step={})


def bug(name: str, law: str, says: str, source: str, *replacements: tuple[str, str], **names: object) -> Specimen:
    return specimen(
        name, law, says, source, partial(variant, Leader, *replacements, **names), make=election, of="leader"
    )


ASKS: Final = "where = _unchanged(key, request)\n"
DELETES: Final = """where = _unchanged(key, request)
        if request.lease.holder is None:
            await delete_one(collection, where)
            return request.lease
"""
JUDGES: Final = """if request.stood:
            held = lease_of(await find_one(collection, Eq(ID, key)))
            now = await Now()
            if held is None or held.stamp is None or now.at - held.stamp.at < request.stood:
                return None
        where = _unchanged(key, attrs.evolve(request, stood=0))
"""
STEPS: Final = "            step = self.candidate.step(state, event)\n"
COUNTS: Final = """            if isinstance(state, Following) and isinstance(event, Answered) and isinstance(event.request, Swap):
                state = attrs.evolve(state, claim=None, flight=Flight(event.request, event.at))
"""

SPECIMENS: Final = (
    bug("leader.expiry_not_judged", ONE,
        "The take asks for the version that was read, and not whether it has stood for its TTL.",
        "Planted: a compare-and-set on the version alone, as if a version that stands were one that has expired.",
        ("AllOf((*parts, OlderThan(_STAMP, swap.stood)) if swap.stood else parts)", "AllOf(parts)")),
    bug("leader.version_not_in_filter", TOKENS,
        "Takes and renewals ask for the id alone: of two that read the same record, both win.",
        "mongodash's lock is renewed by its id, so one holder may extend another's lease.",
        (ASKS, "where = Eq(ID, key)\n")),
    bug("leader.releases_whoever", TOKENS,
        "The release asks for the id alone, and wipes out whoever holds it by now.",
        "pynenc-mongo clears the whole array when it releases, whoever holds the lock by then.",
        (ASKS, "where = Eq(ID, key) if request.lease.holder is None else _unchanged(key, request)\n")),
    bug("leader.release_deletes", TOKENS,
        "The release deletes the record: the next one begins with token 1 again, and nothing is fenced.",
        "mongodash removes its lock when it releases it.",
        (ASKS, DELETES), delete_one=delete_one),
    specimen(
        "leader.not_fenced", FENCED,
        "The work names its epoch, and nothing refuses an older one: who stalls after it has asked writes all the same.",
        "mongodash's planner writes tokens and plans without an epoch (Kleppmann 2016 has the general case).",
        lambda: Leader, make=partial(election, piece=not_fenced), of="leader"),
    bug("leader.no_reply_is_no", RELEASED,
        "No reply is taken for a no: a release that got lost passes for one that others were faster than.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        ("except (Ambiguous, NotApplied, NotDurable) as failure:\n        return failure.fresh()",
         "except (Ambiguous, NotApplied, NotDurable):\n        return None")),
    specimen(
        "leader.known_by_its_name", ONE,
        "A holder is known by a configured name: of two that have the same, either takes the other's lease for its own.",
        "mongodash knows instances by their configured ids: of two equal ones, both lead.",
        partial(variant, Leader, (STEPS, STEPS.replace("self.candidate", 'attrs.evolve(self.candidate, life="planner")'))),
        make=partial(election, quantum=SECOND), of="leader"),
    specimen(
        "leader.judged_by_its_own_clock", ONE,
        "Whether a lease has expired is judged by the clock of whoever asks: one that is ahead takes a healthy lease.",
        "mongodash compares the expiry with the clock of whoever asks: an instance that is 20 s ahead steals the lease.",
        partial(variant, Leader, (ASKS, JUDGES)),
        make=partial(election, faults=Faults.of(Fault.SKEW), host=Host(skew=2 * SECOND)), of="leader"),
    specimen(
        "leader.clock_set_back", ONE,
        "A machine measures its lease by a clock that is set back, and leads on while another does.",
        "Nothing is planted: a wall clock is not a measure of a lease (Kleppmann 2016). A monotonic clock is not set.",
        lambda: Leader, make=set_back, of="leader"),
    specimen(
        "leader.no_margin", ONE,
        "A lease on a clock that is slow, without a margin.",
        "Nothing is planted: Gray and Cheriton shorten a lease by what clocks may drift in it.",
        lambda: Leader, make=partial(election, terms=TERMS, host=SLOW, budget=0), of="leader.drift"),
    bug("leader.counts_from_the_answer", ONE,
        "The tenure counts from when the take was answered; the store counts from when it was done.",
        "Gray and Cheriton count a lease from before it was asked for; the reply may have taken any time.",
        (STEPS, COUNTS + STEPS),
        Answered=Answered, Flight=Flight),
)  # fmt: skip
