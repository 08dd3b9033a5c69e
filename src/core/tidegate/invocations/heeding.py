"""What a process is told of the invocations in its name: one look, with each beat.

An operator asks for what only the runner can do (`tidegate.invocations.asking`): to end a handler. Whoever else takes an invocation away
(recovery, or a cancellation that overrides the owner) makes a version of it, so who runs it sees that its own has passed.

And what is in its name and not in its hands was taken by a request whose answer it never saw: the store has refused the look that
was to tell. Nobody else looks after what a living process has, so it gives that back, when it has seen it twice
(`tidegate.work.worker`, law WK13).

Laws
    HD1  What is lost is at another version than the run began at, or gone; it never is that run's again.
    HD2  What was asked is told as long as the record is at that version (`tidegate.invocations.asking.order`).
    HD3  What is given back is a stray of the look before, at that version; none of the runs is.
    HD4  What is in that name is in the hands of its process, or a stray, or given back.
"""

from __future__ import annotations

from typing import Final

from tidegate.invocations.asking import Command, order
from tidegate.invocations.ending import Ending, GivenBack, RunEnd
from tidegate.invocations.invocation import INVOCATION, PENDING
from tidegate.invocations.record_documents import (
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
from tidegate.invocations.worker import UntrackedRun
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
    """What there is in the name of a process: a program. It needs the index of `Recoverer.indexes`.

    Args:
        records: The collection of the invocations.
        owner: The name.
        runs: What runs in that process.
        untracked: What it knows to be in its name and not in its hands: that is given back, if it is as it was.

    Returns:
        What was asked of the runs, or that they are lost; and what else is in that name.

    Raises:
        Failure: Nobody answers, or the store refuses.
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
    """What is in that name, a page after the other."""
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
    """What was asked of the runs, by what is in their owner's name."""
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
    """What is in that name, and none of the runs."""
    hands = {(run.id, run.token) for run in runs}
    records = ((each, viewed(each)) for each in found)
    return tuple(
        UntrackedRun(each[ID], record, each.get(TRIES) or 0, each.get(LIMITED_BY))
        for each, record in records
        if record is not None and (each[ID], record.version) not in hands
    )


async def _give_back(records: str, untracked: tuple[UntrackedRun, ...]) -> None:
    """They were begun by nobody, so that was no try. Where the store does not have them back, the next beat finds them again."""
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
