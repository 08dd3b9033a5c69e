"""Read the invocations in a process's name, with each heartbeat: orders, lost runs and untracked
ones.

An operator orders a runner to end a handler (`tidegate.invocations.admin.commands`). Other writers that
take an invocation away (recovery, or a cancellation that overrides the owner) make a new version,
by which the runner detects the loss.

An invocation in the process's name that it does not track was taken by a request whose reply was
lost: the store refused the read that follows. Recovery ignores it because the process lives. So the
process gives it back once it has seen it twice (`tidegate.work.worker`, law WK13).

Laws
    HD1  A lost run's record has another version, or is gone; it is never that run's again.
    HD2  An order is reported as long as the record is at that version
         (`tidegate.invocations.admin.commands.order`).
    HD3  Only an untracked invocation of the previous heartbeat, at that version, is given back;
         never a run.
    HD4  Each invocation in the name is tracked by its process, untracked, or given back.
"""

from __future__ import annotations

from typing import Final

from tidegate.invocations.admin.commands import Command, order
from tidegate.invocations.queue.completion import Ending, GivenBack, RunEnd
from tidegate.invocations.record.invocation import INVOCATION, PENDING
from tidegate.invocations.record.record_documents import (
    ASKED,
    ASKED_OF,
    LIMITED_BY,
    OWNER,
    STATUS,
    TRIES,
    VERSION,
    VIEW,
    viewed,
)
from tidegate.invocations.worker.worker import UntrackedRun
from tidegate.model.documents import ID, Document, Eq, In
from tidegate.model.effects import Refused
from tidegate.model.operations import FOUND_MAX, UPDATES_MAX, check_collection, find_all
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_tuple
from tidegate.work.vocabulary import HeartbeatReply, InterruptReason, Run

_ASKED: Final = {Command.CANCEL: InterruptReason.CANCEL, Command.KILL: InterruptReason.KILL}
_OWNED: Final = tuple(sorted(each.status for each in INVOCATION.definitions if each.requires_owner))
_FIELDS: Final = (*VIEW, TRIES, LIMITED_BY, ASKED, ASKED_OF)
_ATTEMPTS: Final = 2


async def heed(
    records: str, owner: str, runs: tuple[Run, ...], untracked: tuple[UntrackedRun, ...] = ()
) -> HeartbeatReply:
    """Read the invocations in the name of a process. It needs the index of `Recoverer.indexes`.

    Args:
        records: The collection of the invocations.
        owner: The name.
        runs: The runs of that process.
        untracked: The untracked ones of the previous heartbeat: given back if unchanged.

    Returns:
        The orders for the runs, or that they are lost; and the other invocations in that name.

    Raises:
        Failure: The store does not answer, or refuses.
    """
    check_collection(records)
    check_name(owner, "a runner")
    check_tuple(runs, Run, "a run")
    check_tuple(untracked, UntrackedRun, "an invocation in the name of a process")
    in_name = await _in_name(records, owner)
    others = _others(in_name, runs)
    await _give_back(records, tuple(each for each in others if each in untracked))
    return HeartbeatReply(_told(in_name, runs), tuple(each for each in others if each not in untracked))


async def _in_name(records: str, owner: str) -> tuple[Document, ...]:
    found: tuple[Document, ...] = ()
    while True:
        after = () if not found else (found[-1][ID],)
        page = await find_all(
            records, In(STATUS, _OWNED), Eq(OWNER, owner), limit=FOUND_MAX, after=after, fields=_FIELDS
        )
        found = (*found, *page)
        if len(page) < FOUND_MAX:
            return found


def _told(found: tuple[Document, ...], runs: tuple[Run, ...]) -> tuple[tuple[Run, InterruptReason], ...]:
    """The orders for the runs."""
    known = {record[ID]: record for record in found}
    told: tuple[tuple[Run, InterruptReason], ...] = ()
    for run in runs:
        record = known.get(run.id)
        if record is None or needed(record, VERSION) != run.token:
            told = (*told, (run, InterruptReason.LOST))
        elif (asked := order(record)) is not None:
            told = (*told, (run, _ASKED[asked]))
    return told


def _others(found: tuple[Document, ...], runs: tuple[Run, ...]) -> tuple[UntrackedRun, ...]:
    hands = {(run.id, run.token) for run in runs}
    records = ((each, viewed(each)) for each in found)
    return tuple(
        UntrackedRun(each[ID], record, each.get(TRIES) or 0, each.get(LIMITED_BY))
        for each, record in records
        if record is not None and (each[ID], record.version) not in hands
    )


async def _give_back(records: str, untracked: tuple[UntrackedRun, ...]) -> None:
    """They never began, so that was no try. After a failure the next heartbeat retries."""
    for start in range(0, len(untracked), UPDATES_MAX):
        ends = tuple(
            RunEnd(
                key=each.key,
                record=each.record,
                end=GivenBack(counts=each.record.status == PENDING),  # whose tries were not raised yet
                tries=max(each.tries, 1),
                limited_by=each.limited_by,
            )
            for each in untracked[start : start + UPDATES_MAX]
        )
        try:
            await Ending(runs=ends, records=records, attempts=_ATTEMPTS).run()
        except Refused:
            continue
