"""Faulty variants of the service runner. The first follows the described flow to the letter."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.leases.leader import FENCE
from tidegate.model.documents import ID, Eq, Put
from tidegate.model.effects import Now
from tidegate.model.operations import update_one
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.services.checks import scenarios
from tidegate.services.checks.scenarios import ALL_FAULTS, KEY, WORK, WRONG, atomic_service, ghost, newcomer
from tidegate.services.service_runner import RUN, ServiceRunner
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.faults import Fault, Faults


async def not_fenced(run: AtomicServiceRun, token: int) -> bool:
    return await update_one(WORK, Eq(ID, KEY), Put(FENCE, token), Put(RUN, run.run_id)) > 0


def bug(name: str, law: str, says: str, source: str, *replacements: tuple[str, str]) -> Specimen:
    vary = partial(variant, ServiceRunner, *replacements)
    return specimen(name, law, says, source, vary, make=partial(atomic_service, faults=ALL_FAULTS), of="atomic_service")


LEAVES: Final = "        await update_one(self.gates, inside, Put(RUN, None), Put(RUNNER, None))\n"

SPECIMENS: Final = (
    bug("atomic_service.members_before_gate", scenarios.REPLACED,
        "Who is alive is read before the gate: whoever joins and enters in between passes for gone.",
        "pynenc's documents list the runners, then reap, then claim; found by the simulator in our description of it.",
        ("run_id:\n                    looked = await self._look()", "run_id:\n                    looked = live"),
        ("return\n            looked = await self._look()", "return\n            looked = live")),
    bug("atomic_service.nobody_reaps", scenarios.LIVING,
        "Whoever stands in the gate counts as alive, so a runner that is killed at work stops all services.",
        "pynenc's shipped code has no reaper: the active row of a killed runner blocks every later claim.",
        ("member in known.members if isinstance(liveness(known, member.id, now), Alive)", "member in known.members")),
    specimen(
        "atomic_service.view_of_the_moment", scenarios.TURN,
        "The cycle is shared by whoever is there just now: who joins moves the slots under those who wait for theirs.",
        "pynenc lists the runners anew at each claim, so a turn is lost to whoever joins, leaves or dies within the cycle.",
        partial(variant, ServiceRunner, ("self.service.cycle_start(now)", "now")),
        make=newcomer, of="atomic_service.newcomer"),
    specimen(
        "atomic_service.not_fenced", scenarios.FENCED,
        "The work names no token: a run that was reaped while it was only slow writes over the next one.",
        "pynenc's gate has no token, so a run that outlives its slot, or was reaped, goes on firing triggers.",
        lambda: ServiceRunner,
        make=partial(atomic_service, work=not_fenced, faults=ALL_FAULTS), of="atomic_service"),
    bug("atomic_service.gate_not_compared", scenarios.TOKENS,
        "The gate is written by its id alone: of two that read it empty, both enter.",
        "Planted: a check and a write that are two operations.",
        ("AllOf((Eq(ID, key), Eq(_TOKEN, gate.token), Eq(RUN, active)))", "Eq(ID, key)")),
    bug("atomic_service.empties_the_gate", scenarios.LEAVES,
        "A run that ends empties the gate, whoever stands there by now.",
        "Planted, after the array-push lock of pynenc-mongo, whose release erases whoever holds it by then.",
        ("update_one(self.gates, inside,", "update_one(self.gates, Eq(ID, self.key),")),
    bug("atomic_service.leaves_before_it_records", scenarios.LEAVES,
        "The gate is left first, then the history is written: a crash in between, and nobody ever learns of the run.",
        "pynenc writes the gate and the row of a run in two steps, and a crash between them leaves no row to be seen.",
        ("await self._insist(row, token)", "await self._leave(row, token)\n            await self._insist(row, token)")),
    bug("atomic_service.does_not_insist", scenarios.OVER,
        "A run that gets no answer when it leaves the gate takes that for a yes.",
        "Planted: whoever is alive and does not insist on leaving blocks itself and all others.",
        (LEAVES, f"        try:\n    {LEAVES}        except (Ambiguous, NotApplied, NotDurable):\n            return\n")),
    bug("atomic_service.recorded_without_an_answer", scenarios.RECORDED,
        "A row that nobody answered for is taken for recorded.",
        "pynenc-mongo takes any error of its driver for an answer.",
        ("_end(self, row)\n        except (Ambiguous, NotApplied, NotDurable):\n            return False",
         "_end(self, row)\n        except (Ambiguous, NotApplied, NotDurable):\n            return True")),
    bug("atomic_service.comes_back", scenarios.DEAD,
        "Who was silent for so long that it is presumed dead beats again, and is alive.",
        "Our own first draft, and pynenc: a heartbeat that comes late makes a runner alive whose work was given to others.",
        ("beat(self.members, self.me, self.dead_after)", "beat(self.members, self.me)")),
    specimen(
        "atomic_service.reaps_in_its_turn_alone", scenarios.EMPTY,
        "Who is gone stands in the gate until somebody is cleared, and whoever is not leaves it there.",
        "Our own first draft: where the living have no turn for long, the row of a dead runner stands for running as long.",
        partial(variant, ServiceRunner, ("            await self._reap(_living(known, now), now)\n", "")),
        make=ghost, of="atomic_service.ghost"),
    specimen(
        "atomic_service.judges_by_its_own_clock", scenarios.REPLACED,
        "Who is alive is judged by the clock of the runner's own machine.",
        "pynenc compares heartbeats with the clock of whoever asks: one that is ahead takes the living for dead.",
        partial(
            variant, ServiceRunner,
            ("return _living(membership_of(records, self.dead_after), beaten[SEEN])",
             "now = await Now()\n        return _living(membership_of(records, self.dead_after), Instant(now.at, beaten[SEEN].clock))"),
            Now=Now),
        make=partial(atomic_service, moves=1, faults=Faults.of(Fault.SKEW), host=WRONG), of="atomic_service.skew"),
)  # fmt: skip
