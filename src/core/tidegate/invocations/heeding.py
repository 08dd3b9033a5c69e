"""What was asked of the invocations that a process runs, and which of them are its own no more: one look, with each beat.

An operator asks for what only the runner can do (`tidegate.invocations.asking`): to end a handler. Whoever else takes an invocation away
(recovery, or a cancellation that overrides the owner) makes a version of it, so who runs it sees that its own has passed.

Laws
    HD1  What is lost is at another version than the run began at, or gone; it never is that run's again.
    HD2  What was asked is told as long as the record is at that version (`tidegate.invocations.asking.order`).
"""

from __future__ import annotations

from typing import Final

from tidegate.invocations.asking import Command, order
from tidegate.invocations.dispatch import InterruptReason, Run
from tidegate.invocations.record_documents import ASKED, ASKED_OF, VERSION
from tidegate.model.documents import ID, In
from tidegate.model.operations import FOUND_MAX, check_collection, find_all
from tidegate.model.reading import needed
from tidegate.model.values import check_tuple

__all__ = ["heed"]

_ASKED: Final = {Command.CANCEL: InterruptReason.CANCEL, Command.KILL: InterruptReason.KILL}


async def heed(records: str, runs: tuple[Run, ...]) -> tuple[tuple[Run, InterruptReason], ...]:
    """What was asked of these runs: a program.

    Args:
        records: The collection of the invocations.
        runs: The runs.

    Returns:
        Those of which something was asked, or that are lost, each with that.

    Raises:
        Failure: Nobody answers, or the store refuses.
    """
    check_collection(records)
    check_tuple(runs, Run, "a run")
    told: tuple[tuple[Run, InterruptReason], ...] = ()
    for start in range(0, len(runs), FOUND_MAX):
        some = runs[start : start + FOUND_MAX]
        found = await find_all(
            records, In(ID, tuple(run.key for run in some)), limit=len(some), fields=(VERSION, ASKED, ASKED_OF)
        )
        known = {record[ID]: record for record in found}
        for run in some:
            record = known.get(run.key)
            if record is None or needed(record, VERSION) != run.version:
                told = (*told, (run, InterruptReason.LOST))
            elif (asked := order(record)) is not None:
                told = (*told, (run, _ASKED[asked]))
    return told
