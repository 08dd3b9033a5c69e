"""Ways to recover wrongly. Each differs from `tidegate.invocations.recoverer` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.invocation import (
    CONCURRENCY_CONTROLLED,
    INVOCATION,
    PENDING,
    PENDING_RECOVERY,
    RUNNING_RECOVERY,
)
from tidegate.invocations.record_documents import DEATHS, STATUS
from tidegate.invocations.recoverer import ITEMS_MAX, OPEN, PARTS, Looked, Recoverer
from tidegate.invocations.recovery import Item, Move, Patience, Trouble, plan_recovery
from tidegate.invocations.scenarios.recovery import COUNTED, DONE, HISTORY, SPARED, recovery, together
from tidegate.invocations.specimens.transition import VERSION_NOT_COMPARED
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import GaveUp, Transition, TransitionOutcome
from tidegate.model.documents import Add, In, Value
from tidegate.model.instants import Instant
from tidegate.model.operations import find_all
from tidegate.services.members import SEEN, beat, everybody
from tidegate.services.membership import Membership
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


_DIED: Final = (Add(DEATHS, 1),)


def moving(recoverer: Recoverer, key: str, expected: StatusRecord, target: str) -> Transition:
    """The transition of whatever is there by now."""
    request = f"{recoverer.me}.{key}.{expected.version}"
    also = _DIED if target == RUNNING_RECOVERY else ()
    return Transition(recoverer.records, INVOCATION, key, target, None, request, recoverer.attempts, also=also)


async def unguarded(recoverer: Recoverer, key: str, expected: StatusRecord, target: str) -> TransitionOutcome:
    """A step moves whatever is there by now: what another has recovered, and a living worker claimed, is taken again."""
    return await moving(recoverer, key, expected, target).run()


async def version_not_compared(
    recoverer: Recoverer, key: str, expected: StatusRecord, target: str
) -> TransitionOutcome:
    """A step is written over status and owner alone, and these can come round to what they were."""
    move = moving(recoverer, key, expected, target)
    return await attrs.evolve(move, expected=expected, parts=VERSION_NOT_COMPARED).run()


async def counts_nobody(recoverer: Recoverer, key: str, expected: StatusRecord, target: str) -> TransitionOutcome:
    """A run is taken from who is gone, and nobody counts it: what kills its process is run again without end."""
    return await attrs.evolve(moving(recoverer, key, expected, target), expected=expected, also=()).run()


async def counts_each_step(recoverer: Recoverer, key: str, expected: StatusRecord, target: str) -> TransitionOutcome:
    """Each step is counted: what has died twice is given up as if it had four times."""
    return await attrs.evolve(moving(recoverer, key, expected, target), expected=expected, also=_DIED).run()


async def members_first(recoverer: Recoverer, after: tuple[Value, ...]) -> Looked:
    """The members are read first: who beats and claims in between is taken for dead."""
    beaten = await beat(recoverer.members, recoverer.me)
    assert beaten is not None
    members = await everybody(recoverer.members)
    found = await find_all(recoverer.records, In(STATUS, OPEN), limit=ITEMS_MAX, after=after)
    return recoverer.planned(found, members, beaten[SEEN])


def only_what_is_owned(
    items: tuple[Item, ...], membership: Membership, now: Instant, patience: Patience
) -> tuple[Move, ...]:
    """Pending and running are looked at, and nothing else: what was held back by one who died is never run."""
    steps = plan_recovery(items, membership, now, patience)
    return tuple(step for step in steps if step.expected.owner is not None)


def half_of_the_way(
    items: tuple[Item, ...], membership: Membership, now: Instant, patience: Patience
) -> tuple[Move, ...]:
    """The way from the recovery status on is left to a second round, that never looks at what was left there."""
    steps = plan_recovery(items, membership, now, patience)
    return tuple(step for step in steps if step.trouble is not Trouble.LEFT_HALFWAY)


async def first_half(recoverer: Recoverer, key: str, expected: StatusRecord, target: str) -> TransitionOutcome:
    if expected.owner is None:
        return GaveUp(0, expected, None)
    return await PARTS.move(recoverer, key, expected, target)


def no_patience(items: tuple[Item, ...], membership: Membership, now: Instant, patience: Patience) -> tuple[Move, ...]:
    """What is pending is taken at once, though a process takes time to start."""
    hasty = (
        Move(item.key, item.record, PENDING_RECOVERY, Trouble.PENDING_TOO_LONG)
        for item in items
        if item.record.status == PENDING
    )
    return tuple(hasty) or plan_recovery(items, membership, now, patience)


def planted(
    name: str,
    wrong: object,
    make: partial[Scenario],
    law: str,
    source: str,
    *,
    of: str = "recovery",
    alone: bool = False,
) -> Specimen:
    """The scenario of the program, with the bug in its place."""
    summary = (wrong.__doc__ or "").partition("\n")[0]
    return Specimen(f"recovery.{name}", partial(make, summary=summary), law, source, of, alone)


SPECIMENS: Final = (
    planted(
        "unguarded",
        unguarded,
        partial(together, attrs.evolve(PARTS, move=unguarded)),
        SPARED,
        "pynenc sets all items to their recovery status and then all of them on, without guards per item.",
        of="recovery.together",
    ),
    planted(
        "version_not_compared",
        version_not_compared,
        partial(together, attrs.evolve(PARTS, move=version_not_compared)),
        HISTORY,
        "The ABA problem: status and owner are what they were, and the record went round in between.",
        of="recovery.together",
        alone=True,
    ),
    planted(
        "counts_nobody",
        counts_nobody,
        partial(recovery, attrs.evolve(PARTS, move=counts_nobody), budget=0),
        COUNTED,
        "pynenc, and tidegate at first: an invocation that kills its runner was recovered as often as it did.",
    ),
    planted(
        "counts_each_step",
        counts_each_step,
        partial(recovery, attrs.evolve(PARTS, move=counts_each_step), budget=0),
        COUNTED,
        "Planted: a death has two steps, and is one.",
    ),
    planted(
        "members_first",
        members_first,
        partial(together, attrs.evolve(PARTS, look=members_first)),
        SPARED,
        "Planted, after what the simulator found in the flow of the atomic service: who is alive is to be read last.",
        of="recovery.together",
    ),
    planted(
        "only_what_is_owned",
        only_what_is_owned,
        partial(recovery, attrs.evolve(PARTS, plan=only_what_is_owned), begins=CONCURRENCY_CONTROLLED),
        DONE,
        "pynenc recovers pending and running alone: what is left in concurrency_controlled stays there.",
        of="recovery.held_back",
    ),
    planted(
        "half_of_the_way",
        half_of_the_way,
        partial(recovery, attrs.evolve(PARTS, plan=half_of_the_way, move=first_half), moves=2, budget=0),
        DONE,
        "pynenc: one item that has moved in between stops the pass, and those before it stay in pending_recovery.",
    ),
    planted(
        "no_patience",
        no_patience,
        partial(recovery, attrs.evolve(PARTS, plan=no_patience), budget=0),
        SPARED,
        "pynenc takes what has been pending for 5 s, and a process that starts more slowly loses what it was to run.",
    ),
)
