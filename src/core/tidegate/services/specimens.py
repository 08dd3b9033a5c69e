"""Ways to share a service wrongly. Each differs from `tidegate.services.service_runner` in one place.

The first one is described so, and followed to the letter: see there.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.leases.leader import FENCE
from tidegate.model.documents import ID, Document, Eq, Filter, Put
from tidegate.model.effects import Ambiguous, Effect, NotApplied, NotDurable, Now
from tidegate.model.instants import Instant
from tidegate.model.operations import update_one
from tidegate.services.atomic_service import AtomicService, AtomicServiceRun, Runner
from tidegate.services.executions import Execution, Gate
from tidegate.services.members import SEEN, beat, everybody, membership_of
from tidegate.services.membership import Membership, runners
from tidegate.services.scenarios import (
    ALL_FAULTS,
    DEAD,
    EMPTY,
    FENCED,
    KEY,
    LEAVES,
    LIVING,
    OVER,
    RECORDED,
    REPLACED,
    TOKENS,
    TURN,
    WORK,
    WRONG,
    atomic_service,
    ghost,
    newcomer,
    writes,
)
from tidegate.services.service_runner import PARTS, RUN, RUNNER, ServiceRunner, ServiceRunnerParts, Work
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def members_before_gate(runner: ServiceRunner, live: tuple[str, ...]) -> tuple[str, ...] | None:
    """Who is alive is read before the gate: whoever joins and enters in between passes for gone."""
    del runner
    return live


def nobody_reaps(known: Membership, now: Instant) -> tuple[str, ...]:
    """Whoever stands in the gate counts as alive, so a runner that is killed at work stops all services."""
    del now
    return tuple(member.id for member in known.members)


def view_of_the_moment(known: Membership, service: AtomicService, now: Instant) -> tuple[Runner, ...]:
    """The cycle is shared by whoever is there just now: who joins moves the slots under those who wait for theirs."""
    del service
    return runners(known, now)


async def not_fenced(run: AtomicServiceRun, token: int) -> bool:
    """The work names no token: a run that was reaped while it was only slow writes over the next one."""
    return await update_one(WORK, Eq(ID, KEY), Put(FENCE, token), Put(RUN, run.run_id)) > 0


def gate_not_compared(key: str, gate: Gate) -> Filter:
    """The gate is written by its id alone: of two that read it empty, both enter."""
    del gate
    return Eq(ID, key)


async def empties_the_gate(runner: ServiceRunner, row: Execution, token: int) -> None:
    """A run that ends empties the gate, whoever stands there by now."""
    del row, token
    await update_one(runner.gates, Eq(ID, runner.key), Put(RUN, None), Put(RUNNER, None))


async def leaves_before_it_records(runner: ServiceRunner, row: Execution, token: int) -> None:
    """The gate is left first, then the history is written: a crash in between, and nobody ever learns of the run."""
    await PARTS.leave(runner, row, token)
    await PARTS.insist(runner, row, token)


async def does_not_insist(runner: ServiceRunner, row: Execution, token: int) -> None:
    """A run that gets no answer when it leaves the gate takes that for a yes."""
    try:
        await PARTS.leave(runner, row, token)
    except (Ambiguous, NotApplied, NotDurable):
        return


async def recorded_without_an_answer(runner: ServiceRunner, row: Execution) -> bool:
    """A row that nobody answered for is taken for recorded."""
    await PARTS.record(runner, row)
    return True


async def judges_by_its_own_clock(runner: ServiceRunner, live: tuple[str, ...]) -> tuple[str, ...] | None:
    """Who is alive is judged by the clock of the runner's own machine."""
    del live
    beaten = await PARTS.beat(runner)
    records = await everybody(runner.members)
    now = await Now()
    known = membership_of(records, runner.dead_after)
    return None if beaten is None else PARTS.living(known, Instant(now.at, beaten[SEEN].clock))


def comes_back(runner: ServiceRunner) -> Effect[Document | None]:
    """Who was silent for so long that it is presumed dead beats again, and is alive."""
    return beat(runner.members, runner.me)


async def reaps_in_its_turn_alone(runner: ServiceRunner, live: tuple[str, ...], now: Instant) -> None:
    """Who is gone stands in the gate until somebody is cleared, and whoever is not leaves it there."""
    del runner, live, now


def planted(
    name: str, wrong: object, parts: ServiceRunnerParts, law: str, source: str, *, work: Work = writes
) -> Specimen:
    """The scenario of the runners, with the bug in its place."""
    make = partial(
        atomic_service, parts, work=work, faults=ALL_FAULTS, summary=(wrong.__doc__ or "").partition("\n")[0]
    )
    return Specimen(f"atomic_service.{name}", make, law, source, of="atomic_service")


SPECIMENS: Final = (
    planted(
        "members_before_gate",
        members_before_gate,
        attrs.evolve(PARTS, look=members_before_gate),
        REPLACED,
        "pynenc's documents list the runners, then reap, then claim; found by the simulator in our description of it.",
    ),
    planted(
        "nobody_reaps",
        nobody_reaps,
        attrs.evolve(PARTS, living=nobody_reaps),
        LIVING,
        "pynenc's shipped code has no reaper: the active row of a killed runner blocks every later claim.",
    ),
    Specimen(
        "atomic_service.view_of_the_moment",
        partial(
            newcomer,
            attrs.evolve(PARTS, view=view_of_the_moment),
            summary=(view_of_the_moment.__doc__ or "").partition("\n")[0],
        ),
        TURN,
        "pynenc lists the runners anew at each claim, so a turn is lost to whoever joins, leaves or dies within the cycle.",
        of="atomic_service.newcomer",
    ),
    planted(
        "not_fenced",
        not_fenced,
        PARTS,
        FENCED,
        "pynenc's gate has no token, so a run that outlives its slot, or was reaped, goes on firing triggers.",
        work=not_fenced,
    ),
    planted(
        "gate_not_compared",
        gate_not_compared,
        attrs.evolve(PARTS, unchanged=gate_not_compared),
        TOKENS,
        "Planted: a check and a write that are two operations.",
    ),
    planted(
        "empties_the_gate",
        empties_the_gate,
        attrs.evolve(PARTS, leave=empties_the_gate),
        LEAVES,
        "Planted, after the array-push lock of pynenc-mongo, whose release erases whoever holds it by then.",
    ),
    planted(
        "leaves_before_it_records",
        leaves_before_it_records,
        attrs.evolve(PARTS, insist=leaves_before_it_records),
        LEAVES,
        "pynenc writes the gate and the row of a run in two steps, and a crash between them leaves no row to be seen.",
    ),
    planted(
        "does_not_insist",
        does_not_insist,
        attrs.evolve(PARTS, leave=does_not_insist),
        OVER,
        "Planted: whoever is alive and does not insist on leaving blocks itself and all others.",
    ),
    planted(
        "recorded_without_an_answer",
        recorded_without_an_answer,
        attrs.evolve(PARTS, record=recorded_without_an_answer),
        RECORDED,
        "pynenc-mongo takes any error of its driver for an answer.",
    ),
    planted(
        "comes_back",
        comes_back,
        attrs.evolve(PARTS, beat=comes_back),
        DEAD,
        "Our own first draft, and pynenc: a heartbeat that comes late makes a runner alive whose work was given to others.",
    ),
    Specimen(
        "atomic_service.reaps_in_its_turn_alone",
        partial(
            ghost,
            attrs.evolve(PARTS, reap=reaps_in_its_turn_alone),
            summary=(reaps_in_its_turn_alone.__doc__ or "").partition("\n")[0],
        ),
        EMPTY,
        "Our own first draft: where the living have no turn for long, the row of a dead runner stands for running as long.",
        of="atomic_service.ghost",
    ),
    Specimen(
        "atomic_service.judges_by_its_own_clock",
        partial(
            atomic_service,
            attrs.evolve(PARTS, look=judges_by_its_own_clock),
            summary=judges_by_its_own_clock.__doc__ or "",
            moves=1,
            faults=Faults.of(Fault.SKEW),
            host=WRONG,
        ),
        REPLACED,
        "pynenc compares heartbeats with the clock of whoever asks: one that is ahead takes the living for dead.",
        of="atomic_service.skew",
    ),
)
