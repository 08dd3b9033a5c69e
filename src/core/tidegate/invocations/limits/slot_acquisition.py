"""Pick an invocation up if its task's rule admits it: reserve a place, then make it pending.

`tidegate.invocations.limits.admission` decides; this module reads and writes. Taking a place changes the
document of places (`tidegate.invocations.limits.slot_documents`).

    1  read the record, THEN the places, THEN the holders' records that the decision needs
    2  take a place, if the places are still as read
       (after a miss or without a reply, read again: the document shows whether it was taken)
    3  move the invocation to pending, from the record that the place was taken for
    4  or, if refused, move it on as the rule says

Laws
    IP1  At most `at_most` invocations of one set are pending, running or paused at any time.
    IP2  An invocation that is answered as picked up is pending, or was, at that version.
    IP3  An invocation that is answered as held back was moved on.

Known not to work
    - A picker that gives up may leave a place although it is not pending: the next reader finds
      that the place is not held.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.admission import (
    Admitted,
    AlreadyAdmitted,
    Ask,
    Call,
    NoFreePlace,
    NotAvailable,
    Purpose,
    Reservation,
    Rule,
    RunningVerdict,
    decide_running,
    reservation_id,
)
from tidegate.invocations.limits.slot_documents import HasPlace, LookAgain, places_of, take_places
from tidegate.invocations.record.invocation import INVOCATION, PENDING
from tidegate.invocations.record.record_documents import VIEW, viewed
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, Transition, TransitionOutcome
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.operations import check_collection, find_one
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on

ATTEMPTS: Final = 8


@final
@attrs.frozen
class PickedUp:
    """It is pending, owned by that runner, since that version."""

    version: int

    def __str__(self) -> str:
        return f"picked up at version {self.version}"


@final
@attrs.frozen
class HeldBack:
    """Others hold the places; it was moved to that status at that version."""

    status: str
    version: int

    def __str__(self) -> str:
        return f"held back: {self.status}"


@final
@attrs.frozen
class NotPickedUp:
    """It is not available, or others were faster, or the store did not answer."""

    reason: str


PickOutcome: TypeAlias = PickedUp | HeldBack | NotPickedUp


RunningAdmission: TypeAlias = HasPlace | LookAgain | NoFreePlace | NotAvailable
"""`RunningVerdict` after it has been carried out."""

Known: TypeAlias = tuple[tuple[str, StatusRecord | None], ...]
"""Invocations and their records, in pairs: a program holds only immutable values."""


@final
@attrs.frozen(kw_only=True)
class Picker:
    """One command: `runner` picks an invocation up.

    Attributes:
        key: The invocation.
        call: Its call.
        rule: The running rule of its task.
        limited_by: Its set, if known; None to derive it from the rule and the call.
        expected: The record as found due; a later one may be due later. None for any.
        runner: The new owner.
        request: An id used for this command only.
        at_most: How many of the set may run at once.
        reroute: If refused it returns to the queue; otherwise it ends.
        records, places: The collections.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.
    """

    key: str
    call: Call
    rule: Rule
    runner: str
    request: str
    limited_by: str | None = None
    expected: StatusRecord | None = None
    at_most: int = 1
    reroute: bool = False
    records: str = "invocations"
    places: str = "places"
    attempts: int | None = ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.call, Call, "a call")
        check_type(self.rule, Rule, "a rule")
        check_name(self.runner, "a runner")
        check_name(self.request, "a request")
        if self.limited_by is not None:
            check_name(self.limited_by, "a set of invocations")
        check_type(self.expected, (StatusRecord, NoneType), "a record")
        check_int(self.at_most, "a number of places", 1)
        check_type(self.reroute, bool, "reroute")
        check_attempts(self.attempts, self.pauses)
        check_collection(self.records)
        check_collection(self.places)

    async def run(self) -> PickOutcome:
        """The program."""
        places = self.limited_by or reservation_id(Purpose.RUNNING, self.rule, self.call)
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                record = await self._record(self.key)
                if record is None:
                    return NotPickedUp("there is no such invocation")
                if self.expected is not None and record != self.expected:
                    return NotPickedUp("it has moved since it was found")
                if places is None:
                    return await self._pending(record)
                admission = await self._admit(places, record)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            match admission:
                case HasPlace():
                    return await self._pending(record)
                case NoFreePlace(_, target):
                    answer = await self._move(record, target, None)
                    return HeldBack(target, answer.version) if isinstance(answer, Granted) else NotPickedUp(str(answer))
                case NotAvailable():
                    return NotPickedUp(str(admission))
                case LookAgain():
                    pass
        return NotPickedUp(f"no place after {attempt} attempts")

    async def _pending(self, record: StatusRecord) -> PickOutcome:
        answer = await self._move(record, PENDING, self.runner)
        return PickedUp(answer.version) if isinstance(answer, Granted) else NotPickedUp(str(answer))

    async def _record(self, key: str) -> StatusRecord | None:
        return viewed(await find_one(self.records, Eq(ID, key), fields=VIEW))

    async def _admit(self, places: str, record: StatusRecord) -> RunningAdmission:
        """Decide, and take a place if there is one."""
        found = await find_one(self.places, Eq(ID, places))
        reservation = places_of(found)
        verdict = self._decide(reservation, record, ())
        if isinstance(verdict, Ask):
            known = await self._look(verdict.invocations)
            verdict = self._decide(reservation, record, known)
        match verdict:
            case Admitted(wanted):
                is_taken = await take_places(self.places, places, found, wanted)
                return HasPlace() if is_taken else LookAgain()  # others were faster
            case AlreadyAdmitted():
                return HasPlace()
            case Ask():
                return LookAgain()  # not all of those who have a place were found
            case NoFreePlace() | NotAvailable():
                return verdict

    def _decide(self, reservation: Reservation, record: StatusRecord, known: Known) -> RunningVerdict:
        return decide_running(reservation, self.key, record, dict(known), at_most=self.at_most, reroute=self.reroute)

    async def _look(self, invocations: tuple[str, ...]) -> Known:
        """Read the holders' records, AFTER the places."""
        known: Known = ()
        for key in invocations:
            record = await self._record(key)
            known = (*known, (key, record))
        return known

    async def _move(self, record: StatusRecord, target: str, runner: str | None) -> TransitionOutcome:
        return await Transition(
            self.records,
            INVOCATION,
            self.key,
            target,
            runner,
            f"{self.request}.{record.version}.{target}",
            self.attempts,
            expected=record,
            pauses=self.pauses,
        ).run()
