"""Ten ways to get a status transition wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.transition import WAITS, pauses, transition
from tidegate.invocations.record.invocation import FAILED, SUCCESS
from tidegate.invocations.record.record_documents import HISTORY, changes
from tidegate.invocations.record.transition import Transition
from tidegate.model.documents import AllOf
from tidegate.model.history import NotYet
from tidegate.model.operations import find_one_and_update
from tidegate.retries.backoff import Fixed
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

TRUTH: Final = "every answer is the truth"
CONSECUTIVE: Final = "versions are consecutive"
RECORDED: Final = "versions are recorded"
LEGAL: Final = "changes are legal"
ONCE: Final = "requests count once"
KNOWN: Final = "nothing is unknown"

WRITTEN: Final = "        return await update_one(self.collection, unchanged(self.key, expected), *made) > 0\n"
WITHOUT_VERSION: Final = """        same = AllOf((Eq(KEY, self.key), Eq(STATUS, expected.status), Eq(OWNER, expected.owner)))
        return await find_one_and_update(self.collection, same, *made) is not None
"""
BY_ID_ALONE: Final = """        same = AllOf((Eq(KEY, self.key), Eq(VERSION, expected.version)))
        if await find_one_and_update(self.collection, same, *made) is not None:
            return True
        return await find_one_and_update(self.collection, Eq(KEY, self.key), *made) is not None
"""
IN_TWO_WRITES: Final = """        if await find_one_and_update(self.collection, unchanged(self.key, expected), *made[:-1]) is None:
            return False
        await update_one(self.collection, Eq(KEY, self.key), made[-1])
        return True
"""
STATUS_BECOMES: Final = "        _STATUS_BECOMES(verdict.status),\n"
VERSION_BECOMES: Final = "        Put(VERSION, verdict.version),\n"
KEEPS_VERSION: Final = "        Put(VERSION, verdict.version - 1),\n"
NO_RECORD: Final = "        if record is None:\n"
NOT_THE_LAST: Final = """        if record is not None and record[HISTORY][-1][VERSION] != sent + 1:
            return NotYet()
"""
BEGINS: Final = '        """The program."""\n'
FAILS_INSTEAD: Final = """        if self.target == SUCCESS and self.attempts != 1:
            answer = await attrs.evolve(self, attempts=1).run()
            return await attrs.evolve(self, target=FAILED).run() if isinstance(answer, (GaveUp, Unknown)) else answer
"""


def bug(
    *replacements: tuple[str, str], change: tuple[tuple[str, str], ...] = (), **names: object
) -> Callable[[], type[Transition]]:
    """The program with a bug in it, or in what its write changes."""

    def made() -> type[Transition]:
        changed = {"changes": variant(changes, *change)} if change else {}
        return variant(Transition, *replacements, **changed, **names)

    return made


NO_VERSION_IN_FILTER: Final = bug((WRITTEN, WITHOUT_VERSION), AllOf=AllOf, find_one_and_update=find_one_and_update)
VERSION_NOT_RAISED: Final = bug(change=((STATUS_BECOMES, KEEPS_VERSION + STATUS_BECOMES), (VERSION_BECOMES, "")))
REQUEST_ID_IGNORED: Final = bug(("self._outcome(record, sent.version - 1)", "NotYet()"), NotYet=NotYet)
ONLY_THE_LAST_REQUEST_ID: Final = bug(
    (NO_RECORD, NOT_THE_LAST + NO_RECORD),
    change=(("last=HISTORY_MAX", "last=1"),),
    HISTORY=HISTORY,
    NotYet=NotYet,
)
NOT_READ_AGAIN: Final = bug((WRITTEN, BY_ID_ALONE), AllOf=AllOf, find_one_and_update=find_one_and_update)
OWNER_NOT_CHECKED: Final = bug(
    ("self.target, self.runner)", "self.target, self.runner and ((actual and actual.owner) or self.runner))")
)
GIVING_UP_IS_FAILURE: Final = bug((BEGINS, BEGINS + FAILS_INSTEAD), SUCCESS=SUCCESS, FAILED=FAILED)
AMBIGUOUS_IS_REFUSED: Final = bug(
    ("while True:", "while not attempt:"),
    ("sent = verdict", "sent = None"),
    ("GaveUp(made, expected, actual)", "GaveUp(made, expected, None)"),
)
HISTORY_IN_A_SECOND_WRITE: Final = bug((WRITTEN, IN_TWO_WRITES), find_one_and_update=find_one_and_update)
AT_ONCE: Final = bug(("goes_on(self.pauses,", "goes_on(Pauses(Fixed(0)),"), Fixed=Fixed)

SPECIMENS: Final = (
    specimen(
        "transition.no_version_in_filter", CONSECUTIVE,
        "The write asks for status and owner only. They can be the same again later: the record went round in between.",
        "The ABA problem: pynenc-mongo compares the status it has read, and a record can come round to it again.",
        NO_VERSION_IN_FILTER, make=transition, of="transition"),
    specimen(
        "transition.version_not_raised", CONSECUTIVE,
        "The version is in the filter, and never grows: it tells nothing.",
        "Planted: a version that tells nothing.",
        VERSION_NOT_RAISED, make=transition, of="transition"),
    specimen(
        "transition.request_id_ignored", TRUTH,
        "A retry does not look for its own request id: after a lost reply it learns that its own success is illegal.",
        "The resilience article: who tries again after a lost reply must recognise a success of its own.",
        REQUEST_ID_IGNORED, make=transition, of="transition"),
    specimen(
        "transition.known.request_id_ignored", TRUTH,
        "A retry does not look for its own request id: after a lost reply it learns that its own success is illegal.",
        "The same by who knows the record: what has moved on since was moved by itself.",
        REQUEST_ID_IGNORED, make=partial(transition, knows=True), of="transition.known", alone=True),
    specimen(
        "transition.only_the_last_request_id", TRUTH,
        "The record keeps the request id of its last version only: once others have written, a success looks lost.",
        "Planted: what the record remembers is too short for a retry that comes after another's write.",
        ONLY_THE_LAST_REQUEST_ID, make=transition, of="transition"),
    specimen(
        "transition.not_read_again", CONSECUTIVE,
        "A conflict is answered by writing again what was decided on the old record, whatever it is by now.",
        "pynenc-mongo writes by id alone once it believes that it holds the lock, whatever the record is by then.",
        NOT_READ_AGAIN, make=transition, of="transition"),
    specimen(
        "transition.owner_not_checked", LEGAL,
        "Whoever asks passes for the owner.",
        "Planted: two runners, and either passes for the owner of what the other one claimed.",
        OWNER_NOT_CHECKED, make=partial(transition, runners=("one", "two")), of="transition"),
    specimen(
        "transition.giving_up_is_failure", "requests make what they are for",
        "Who could not write that user code has succeeded writes that it has failed.",
        "pynenc: a race while success is written falls into the branch of all errors, and the run is marked as failed.",
        GIVING_UP_IS_FAILURE, make=transition, of="transition"),
    specimen(
        "transition.ambiguous_is_refused", TRUTH,
        "No reply is taken for a no.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        AMBIGUOUS_IS_REFUSED, make=transition, of="transition"),
    specimen(
        "transition.history_in_a_second_write", RECORDED,
        "The history is pushed after the write that it tells of: who looks in between does not find itself.",
        "pynenc-mongo keeps the history in a collection of its own, written after the status.",
        HISTORY_IN_A_SECOND_WRITE, make=transition, of="transition"),
    specimen(
        "transition.history_in_a_second_write.twice", ONCE,
        "The history is pushed after the write that it tells of: who looks in between does not find itself.",
        "The same: of two versions without a history nobody can tell which request made them.",
        HISTORY_IN_A_SECOND_WRITE, make=transition, of="transition", alone=True),
    specimen(
        "transition.version_not_raised.unknown", KNOWN,
        "The version is in the filter, and never grows: it tells nothing.",
        "The same: a record whose version tells nothing cannot answer for a request without a reply.",
        VERSION_NOT_RAISED, make=transition, of="transition", alone=True),
    specimen(
        "transition.tries_again_at_once", WAITS,
        "Attempts follow each other at once, so those who contend meet each time, and a store that is down is hammered.",
        "Our own first programs, and any loop around a compare-and-set; Brooker 2015 counts what it costs.",
        AT_ONCE, make=pauses, of="transition.pauses"),
)  # fmt: skip
