"""Three ways to settle records in bulk wrongly. Each differs from `tidegate.invocations.settling` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.invocations.record_documents import changes, unchanged
from tidegate.invocations.scenarios.settling import SettlingProgram, settling
from tidegate.invocations.settling import RecordMove, Settling
from tidegate.invocations.status import Accepted, decide_transition
from tidegate.invocations.transition import GaveUp, Granted, Outdated, TransitionOutcome, Unknown
from tidegate.model.effects import Ambiguous, NotApplied
from tidegate.model.operations import bulk_update, update_one
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS", "not_looked", "not_yet_is_never", "total_is_for_each"]

TRUTH: Final = "every answer is the truth"


def accepted(command: Settling) -> tuple[tuple[RecordMove, Accepted], ...]:
    """What was decided of each; in the scenario nothing is denied."""
    decided = (
        (move, decide_transition(command.table, move.expected, move.target, command.runner)) for move in command.moves
    )
    return tuple((move, verdict) for move, verdict in decided if isinstance(verdict, Accepted))


async def total_of(command: Settling) -> int | None:
    """How many have matched in one bulk; None without a reply."""
    updates = (
        update_one(
            command.collection, unchanged(move.key, move.expected), *changes(command.table, verdict, move.request)
        )
        for move, verdict in accepted(command)
    )
    try:
        return await bulk_update(*updates)
    except (Ambiguous, NotApplied):
        return None


async def total_is_for_each(command: Settling) -> tuple[TransitionOutcome, ...]:
    """The total is taken for what became of each: so many of them, the first ones."""
    matched = await total_of(command)
    if matched is None:
        return await command.run()
    return tuple(
        Granted(verdict.record) if number < matched else Outdated(move.expected, None)
        for number, (move, verdict) in enumerate(accepted(command))
    )


async def not_looked(command: Settling) -> tuple[TransitionOutcome, ...]:
    """No reply is taken for nothing done, and nobody looks."""
    if await total_of(command) is None:
        return tuple(GaveUp(1, move.expected, None) for move in command.moves)
    return await command.run()


async def not_yet_is_never(command: Settling) -> tuple[TransitionOutcome, ...]:
    """What a look does not show is taken for what never will be: it is under way, and arrives."""
    answers = await attrs.evolve(command, attempts=1).run()
    return tuple(GaveUp(1, None, None) if isinstance(answer, Unknown) else answer for answer in answers)


def planted(run: SettlingProgram, name: str, source: str) -> Specimen:
    """The scenario of the program, with the bug in its place; what it says of itself is the summary."""
    make = partial(settling, run, summary=(run.__doc__ or "").partition("\n")[0])
    return Specimen(f"transition.bulk.{name}", make, TRUTH, source, of="transition.bulk")


SPECIMENS: Final = (
    planted(
        total_is_for_each,
        "total_is_for_each",
        "MongoDB before 8.0 answers a bulk with totals, and whoever has a list and a number counts them off.",
    ),
    planted(
        not_looked, "not_looked", "The resilience article: a time-out says nothing about whether the write was done."
    ),
    planted(not_yet_is_never, "not_yet_is_never", "Planted: one look, as if a request that is late were none."),
)
