"""Nine ways to get a status transition wrong. Each differs from `tidegate.invocations.transition` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final, final

import attrs

from tidegate.invocations.invocation import FAILED, SUCCESS
from tidegate.invocations.record_documents import HISTORY, OWNER, STATUS, VERSION, VIEW, viewed
from tidegate.invocations.scenarios.transition import WAITS, TransitionProgram, pauses, transition
from tidegate.invocations.status import Accepted, Denied, StatusRecord, decide_transition
from tidegate.invocations.transition import (
    PARTS,
    GaveUp,
    Granted,
    Transition,
    TransitionOutcome,
    TransitionParts,
    Unknown,
)
from tidegate.model.documents import ID, AllOf, Document, Eq, Push, Put, Update
from tidegate.model.effects import Ambiguous, NotApplied, Program
from tidegate.model.history import NotYet, RequestOutcome
from tidegate.model.operations import find_one, find_one_and_update, update_one
from tidegate.retries.backoff import Fixed
from tidegate.retries.pauses import Pauses
from tidegate.sim.shipping import Specimen

__all__ = [
    "HISTORY_IN_A_SECOND_WRITE", "NOT_READ_AGAIN", "NO_VERSION_IN_FILTER", "ONLY_THE_LAST_REQUEST_ID",
    "OWNER_NOT_CHECKED", "REQUEST_ID_IGNORED", "SPECIMENS", "VERSION_NOT_COMPARED", "VERSION_NOT_RAISED", "MadeOf",
    "ambiguous_is_refused",
]  # fmt: skip

TRUTH: Final = "every answer is the truth"
CONSECUTIVE: Final = "versions are consecutive"
RECORDED: Final = "versions are recorded"
LEGAL: Final = "changes are legal"
ONCE: Final = "requests count once"
KNOWN: Final = "nothing is unknown"


async def no_version_in_filter(command: Transition, expected: StatusRecord | None, verdict: Accepted) -> bool:
    """The write asks for status and owner only. They can be the same again later: the record went round in between."""
    assert expected is not None
    where = AllOf((Eq(ID, command.key), Eq(STATUS, expected.status), Eq(OWNER, expected.owner)))
    return await find_one_and_update(command.collection, where, *PARTS.changes(command, verdict)) is not None


def version_not_raised(command: Transition, verdict: Accepted) -> tuple[Update, ...]:
    """The version is in the filter, and never grows: it tells nothing."""
    kept = Put(VERSION, verdict.version - 1)
    return (kept, *(change for change in PARTS.changes(command, verdict) if change.field != VERSION))


def request_id_ignored(command: Transition, record: Document | None, sent: int) -> RequestOutcome:
    """A retry does not look for its own request id: after a lost reply it learns that its own success is illegal."""
    del command, record, sent
    return NotYet()


def only_the_last_request_id(command: Transition, verdict: Accepted) -> tuple[Update, ...]:
    """The record keeps the request id of its last version only: once others have written, a success looks lost."""
    changes = PARTS.changes(command, verdict)
    return tuple(attrs.evolve(change, last=1) if isinstance(change, Push) else change for change in changes)


def found_in_the_last(command: Transition, record: Document | None, sent: int) -> RequestOutcome:
    """And so a retry looks there only."""
    last = record[HISTORY][-1] if record else None
    return PARTS.outcome(command, record, sent) if last and last[VERSION] == sent + 1 else NotYet()


async def not_read_again(command: Transition, expected: StatusRecord | None, verdict: Accepted) -> bool:
    """A conflict is answered by writing again what was decided on the old record, whatever it is by now."""
    assert expected is not None
    changes = PARTS.changes(command, verdict)
    first = AllOf((Eq(ID, command.key), Eq(VERSION, expected.version)))
    if await find_one_and_update(command.collection, first, *changes) is not None:
        return True
    return await find_one_and_update(command.collection, Eq(ID, command.key), *changes) is not None


def owner_not_checked(command: Transition, actual: StatusRecord | None) -> Accepted | Denied:
    """Whoever asks passes for the owner."""
    owner = command.runner if actual is None or command.runner is None else actual.owner or command.runner
    return decide_transition(command.table, actual, command.target, owner)


async def ambiguous_is_refused(command: Transition) -> TransitionOutcome:
    """No reply is taken for a no."""
    try:
        record = await find_one(command.collection, Eq(ID, command.key), fields=VIEW)
    except (Ambiguous, NotApplied):
        return GaveUp(1, None, None)
    verdict = PARTS.decide(command, viewed(record))
    if not isinstance(verdict, Accepted):
        return verdict
    try:
        applied = await PARTS.write(command, viewed(record), verdict)
    except (Ambiguous, NotApplied):
        applied = False
    return Granted(verdict.record) if applied else GaveUp(1, viewed(record), None)


async def giving_up_is_failure(command: Transition) -> TransitionOutcome:
    """Who could not write that user code has succeeded writes that it has failed."""
    if command.target != SUCCESS:
        return await command.run()
    answer = await attrs.evolve(command, attempts=1).run()
    if isinstance(answer, (GaveUp, Unknown)):
        return await attrs.evolve(command, target=FAILED).run()
    return answer


async def tries_again_at_once(command: Transition) -> TransitionOutcome:
    """Attempts follow each other at once, so those who contend meet each time, and a store that is down is hammered."""
    return await attrs.evolve(command, pauses=Pauses(Fixed(0))).run()


async def history_in_a_second_write(command: Transition, expected: StatusRecord | None, verdict: Accepted) -> bool:
    """The history is pushed after the write that it tells of: who looks in between does not find itself."""
    assert expected is not None
    changes = PARTS.changes(command, verdict)
    where = AllOf(
        (
            Eq(ID, command.key),
            Eq(STATUS, expected.status),
            Eq(OWNER, expected.owner),
            Eq(VERSION, expected.version),
        )
    )
    if await find_one_and_update(command.collection, where, *changes[:-1]) is None:
        return False
    await update_one(command.collection, Eq(ID, command.key), changes[-1])
    return True


@final
@attrs.frozen
class MadeOf:
    """The program with other parts; a frozen value, for a closure is not one to the simulator."""

    parts: TransitionParts

    def __call__(self, command: Transition) -> Program[TransitionOutcome]:
        return attrs.evolve(command, parts=self.parts).run()


def planted(
    name: str,
    wrong: object,
    run: TransitionProgram,
    law: str,
    source: str,
    *,
    runners: tuple[str, str] = ("runner", "runner"),
    knows: bool = False,
    alone: bool = False,
) -> Specimen:
    """The scenario of the program, with the bug in its place; what the wrong part says of itself is the summary."""
    make = partial(transition, run, summary=(wrong.__doc__ or "").partition("\n")[0], runners=runners, knows=knows)
    of = "transition.known" if knows else "transition"
    return Specimen(f"{of}.{name}", make, law, source, of=of, alone=alone)


VERSION_NOT_COMPARED: Final = attrs.evolve(PARTS, write=no_version_in_filter)
NO_VERSION_IN_FILTER: Final = MadeOf(VERSION_NOT_COMPARED)
VERSION_NOT_RAISED: Final = MadeOf(attrs.evolve(PARTS, changes=version_not_raised))
REQUEST_ID_IGNORED: Final = MadeOf(attrs.evolve(PARTS, outcome=request_id_ignored))
ONLY_THE_LAST_REQUEST_ID: Final = MadeOf(
    attrs.evolve(PARTS, changes=only_the_last_request_id, outcome=found_in_the_last)
)
NOT_READ_AGAIN: Final = MadeOf(attrs.evolve(PARTS, write=not_read_again))
OWNER_NOT_CHECKED: Final = MadeOf(attrs.evolve(PARTS, decide=owner_not_checked))
HISTORY_IN_A_SECOND_WRITE: Final = MadeOf(attrs.evolve(PARTS, write=history_in_a_second_write))

SPECIMENS: Final = (
    planted(
        "no_version_in_filter",
        no_version_in_filter,
        NO_VERSION_IN_FILTER,
        CONSECUTIVE,
        "The ABA problem: pynenc-mongo compares the status it has read, and a record can come round to it again.",
    ),
    planted(
        "version_not_raised",
        version_not_raised,
        VERSION_NOT_RAISED,
        CONSECUTIVE,
        "Planted: a version that tells nothing.",
    ),
    planted(
        "request_id_ignored",
        request_id_ignored,
        REQUEST_ID_IGNORED,
        TRUTH,
        "The resilience article: who tries again after a lost reply must recognise a success of its own.",
    ),
    planted(
        "request_id_ignored",
        request_id_ignored,
        REQUEST_ID_IGNORED,
        TRUTH,
        "The same by who knows the record: what has moved on since was moved by itself.",
        knows=True,
        alone=True,
    ),
    planted(
        "only_the_last_request_id",
        only_the_last_request_id,
        ONLY_THE_LAST_REQUEST_ID,
        TRUTH,
        "Planted: what the record remembers is too short for a retry that comes after another's write.",
    ),
    planted(
        "not_read_again",
        not_read_again,
        NOT_READ_AGAIN,
        CONSECUTIVE,
        "pynenc-mongo writes by id alone once it believes that it holds the lock, whatever the record is by then.",
    ),
    planted(
        "owner_not_checked",
        owner_not_checked,
        OWNER_NOT_CHECKED,
        LEGAL,
        "Planted: two runners, and either passes for the owner of what the other one claimed.",
        runners=("one", "two"),
    ),
    planted(
        "giving_up_is_failure",
        giving_up_is_failure,
        giving_up_is_failure,
        "requests make what they are for",
        "pynenc: a race while success is written falls into the branch of all errors, and the run is marked as failed.",
    ),
    planted(
        "ambiguous_is_refused",
        ambiguous_is_refused,
        ambiguous_is_refused,
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "history_in_a_second_write",
        history_in_a_second_write,
        HISTORY_IN_A_SECOND_WRITE,
        RECORDED,
        "pynenc-mongo keeps the history in a collection of its own, written after the status.",
    ),
    planted(
        "history_in_a_second_write.twice",
        history_in_a_second_write,
        HISTORY_IN_A_SECOND_WRITE,
        ONCE,
        "The same: of two versions without a history nobody can tell which request made them.",
        alone=True,
    ),
    planted(
        "version_not_raised.unknown",
        version_not_raised,
        VERSION_NOT_RAISED,
        KNOWN,
        "The same: a record whose version tells nothing cannot answer for a request without a reply.",
        alone=True,
    ),
    Specimen(
        "transition.tries_again_at_once",
        partial(pauses, tries_again_at_once, summary=(tries_again_at_once.__doc__ or "").partition("\n")[0]),
        WAITS,
        "Our own first programs, and any loop around a compare-and-set; Brooker 2015 counts what it costs.",
        of="transition.pauses",
    ),
)
