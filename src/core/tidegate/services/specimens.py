"""Ways to share a service wrongly. Each differs from `tidegate.services.service_runner` in one place.

The first one is described so, and followed to the letter: see there.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.leases.leader import FENCE
from tidegate.model.documents import ID, Document, Eq, Filter, Put
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Now
from tidegate.model.instants import Instant
from tidegate.model.operations import UpdateOne, update_one
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.services.executions import Execution, Gate
from tidegate.services.members import SEEN, beat, everybody, membership_of
from tidegate.services.scenarios import (
    ALL_FAULTS,
    FENCED,
    LEAVES,
    LIVING,
    OVER,
    REPLACED,
    TOKENS,
    TOLD,
    WRONG,
    atomic_service,
)
from tidegate.services.service_runner import RUN, RUNNER, ServiceRunner
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.shipping import Specimen


@attrs.frozen(kw_only=True)
class MembersBeforeGate(ServiceRunner):
    """Who is alive is read before the gate: whoever joins and enters in between passes for gone."""

    async def _living(self, live: tuple[str, ...]) -> tuple[str, ...]:
        return live


@attrs.frozen(kw_only=True)
class NobodyReaps(ServiceRunner):
    """Whoever stands in the gate counts as alive, so a runner that is killed at work stops all services."""

    def _live(self, records: tuple[Document, ...], now: Instant) -> tuple[str, ...]:  # noqa: ARG002
        return tuple(member.id for member in membership_of(records, self.dead_after).members)


@attrs.frozen(kw_only=True)
class NotFenced(ServiceRunner):
    """The work names no token: a run that was reaped while it was only slow writes over the next one."""

    def _piece(self, run: AtomicServiceRun, token: int) -> UpdateOne:
        return update_one(self.work, Eq(ID, self.key), Put(FENCE, token), Put(RUN, run.run_id))


@attrs.frozen(kw_only=True)
class GateNotCompared(ServiceRunner):
    """The gate is written by its id alone: of two that read it empty, both enter."""

    def _unchanged(self, gate: Gate) -> Filter:  # noqa: ARG002  that is the bug
        return Eq(ID, self.key)


@attrs.frozen(kw_only=True)
class EmptiesTheGate(ServiceRunner):
    """A run that ends empties the gate, whoever stands there by now."""

    async def _left(self, row: Execution, token: int) -> None:  # noqa: ARG002  that is the bug
        await update_one(self.gates, Eq(ID, self.key), Put(RUN, None), Put(RUNNER, None))


@attrs.frozen(kw_only=True)
class LeavesBeforeItTells(ServiceRunner):
    """The gate is left first, then the history is told: a crash in between, and nobody ever hears of the run."""

    async def _insisted(self, row: Execution, token: int) -> None:
        await self._left(row, token)
        await super()._insisted(row, token)


@attrs.frozen(kw_only=True)
class DoesNotInsist(ServiceRunner):
    """A run that gets no answer when it leaves the gate takes that for a yes."""

    async def _left(self, row: Execution, token: int) -> None:
        try:
            await super()._left(row, token)
        except (Ambiguous, NotApplied, NotDurable):
            return


@attrs.frozen(kw_only=True)
class ToldWithoutAnAnswer(ServiceRunner):
    """A row that nobody answered for passes for told."""

    async def _told(self, row: Execution) -> bool:
        await super()._told(row)
        return True


@attrs.frozen(kw_only=True)
class JudgesByItsOwnClock(ServiceRunner):
    """Who is alive is judged by the clock of the runner's own machine."""

    async def _living(self, live: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002
        beaten = await beat(self.members, self.me)
        records = await everybody(self.members)
        now = await Now()
        return () if beaten is None else self._live(records, Instant(now.at, beaten[SEEN].clock))


def planted(name: str, bug: type[ServiceRunner], law: str, source: str, *, alone: bool = False) -> Specimen:
    """The scenario of the runners, with the bug in its place."""
    make = partial(atomic_service, bug, faults=ALL_FAULTS, summary=(bug.__doc__ or "").partition("\n")[0])
    return Specimen(f"atomic_service.{name}", make, law, source, of="atomic_service", alone=alone)


SPECIMENS: Final = (
    planted(
        "members_before_gate",
        MembersBeforeGate,
        REPLACED,
        "pynenc's documents list the runners, then reap, then claim; found by the simulator in our description of it.",
    ),
    planted(
        "nobody_reaps",
        NobodyReaps,
        LIVING,
        "pynenc's shipped code has no reaper: the active row of a killed runner blocks every later claim.",
    ),
    planted(
        "not_fenced",
        NotFenced,
        FENCED,
        "pynenc's gate has no token, so a run that outlives its slot, or was reaped, goes on firing triggers.",
    ),
    planted(
        "gate_not_compared",
        GateNotCompared,
        TOKENS,
        "Planted: a check and a write that are two operations.",
    ),
    planted(
        "empties_the_gate",
        EmptiesTheGate,
        LEAVES,
        "Planted, after the array-push lock of pynenc-mongo, whose release erases whoever holds it by then.",
    ),
    planted(
        "leaves_before_it_tells",
        LeavesBeforeItTells,
        LEAVES,
        "pynenc writes the gate and the row of a run in two steps, and a crash between them leaves no row to be seen.",
    ),
    planted(
        "does_not_insist",
        DoesNotInsist,
        OVER,
        "Planted: whoever is alive and does not insist on leaving blocks itself and all others.",
    ),
    planted(
        "told_without_an_answer",
        ToldWithoutAnAnswer,
        TOLD,
        "pynenc-mongo takes any error of its driver for an answer.",
    ),
    Specimen(
        "atomic_service.judges_by_its_own_clock",
        partial(
            atomic_service,
            JudgesByItsOwnClock,
            summary=JudgesByItsOwnClock.__doc__ or "",
            moves=1,
            faults=Faults.of(Fault.SKEW),
            host=WRONG,
        ),
        REPLACED,
        "pynenc compares heartbeats with the clock of whoever asks: one that is ahead takes the living for dead.",
        of="atomic_service.skew",
    ),
)
