"""Ways to recover wrongly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.recovery import COUNTED, DONE, HISTORY, SPARED, recovery, together
from tidegate.invocations.checks.specimens.transition import NO_VERSION_IN_FILTER
from tidegate.invocations.record.invocation import CONCURRENCY_CONTROLLED
from tidegate.invocations.upkeep.recoverer import Recoverer
from tidegate.invocations.upkeep.recovery import plan_recovery
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant


def bug(
    *replacements: tuple[str, str], plan: tuple[str, str] | None = None, **names: object
) -> Callable[[], type[Recoverer]]:
    """The program with a bug in it, or in what it plans by."""

    def made() -> type[Recoverer]:
        planned = {} if plan is None else {"plan_recovery": variant(plan_recovery, plan)}
        return variant(Recoverer, *replacements, **planned, **names)

    return made


FOUND: Final = "        found = await find_all(self.records, In(STATUS, OPEN), *of, limit=ITEMS_MAX, after=after)\n"
MEMBERS: Final = "        members = await everybody(self.members)\n"
DIED: Final = "(Add(DEATHS, 1),) if target == RUNNING_RECOVERY else ()"
WAY_ON: Final = "version = await self._move(step.key, StatusRecord(step.target, None, version), REROUTED)"

SPECIMENS: Final = (
    specimen(
        "recovery.unguarded", SPARED,
        "A step moves whatever is there by now: what another has recovered, and a living worker claimed, is taken again.",
        "pynenc sets all items to their recovery status and then all of them on, without guards per item.",
        bug(("expected=expected", "expected=None")), make=together, of="recovery.together"),
    specimen(
        "recovery.version_not_compared", HISTORY,
        "A step is written over status and owner alone, and these can come round to what they were.",
        "The ABA problem: status and owner are what they were, and the record went round in between.",
        lambda: variant(Recoverer, Transition=NO_VERSION_IN_FILTER()), make=together, of="recovery.together", alone=True),
    specimen(
        "recovery.counts_nobody", COUNTED,
        "A run is taken from who is gone, and nobody counts it: what kills its process is run again without end.",
        "pynenc, and tidegate at first: an invocation that kills its runner was recovered as often as it did.",
        bug((DIED, "()")), make=partial(recovery, budget=0), of="recovery"),
    specimen(
        "recovery.counts_each_step", COUNTED,
        "Each step is counted: what has died twice is given up as if it had four times.",
        "Planted: a death has two steps, and is one.",
        bug((DIED, "(Add(DEATHS, 1),)")), make=partial(recovery, budget=0), of="recovery"),
    specimen(
        "recovery.members_first", SPARED,
        "The members are read first: who beats and claims in between is taken for dead.",
        "Planted, after what the simulator found in the flow of the atomic service: who is alive is to be read last.",
        bug((FOUND, ""), (MEMBERS, MEMBERS + FOUND)), make=together, of="recovery.together"),
    specimen(
        "recovery.only_what_is_owned", DONE,
        "Pending and running are looked at, and nothing else: what was held back by one who died is never run.",
        "pynenc recovers pending and running alone: what is left in concurrency_controlled stays there.",
        bug(plan=("(verdict, Move)", "(verdict, Move) and verdict.expected.owner is not None")),
        make=partial(recovery, begins=CONCURRENCY_CONTROLLED), of="recovery.held_back"),
    specimen(
        "recovery.half_of_the_way", DONE,
        "The way from the recovery status on is left to a second round, that never looks at what was left there.",
        "pynenc: one item that has moved in between stops the pass, and those before it stay in pending_recovery.",
        bug((WAY_ON, "version = 0"), plan=("(verdict, Move)", "(verdict, Move) and verdict.trouble is not Trouble.LEFT_HALFWAY")),
        make=partial(recovery, moves=2, budget=0), of="recovery"),
    specimen(
        "recovery.no_patience", SPARED,
        "What is pending is taken at once, though a process takes time to start.",
        "pynenc takes what has been pending for 5 s, and a process that starts more slowly loses what it was to run.",
        bug(plan=("if now - due >= 0:", "if True:")), make=partial(recovery, budget=0), of="recovery"),
)  # fmt: skip
