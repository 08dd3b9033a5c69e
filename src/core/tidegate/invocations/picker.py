"""An invocation is picked up if the rule of its task admits it: a place is reserved, then the invocation is pending.

What is decided is in `tidegate.invocations.admission`; this is what is asked of the store, and in which order. Whoever
takes a place changes the document of them (`tidegate.invocations.place_documents`).

    1  read the record, THEN the places, THEN the records of those who hold one, as far as the decision asks for them
    2  take a place, if the places are still as they were read
       (where that matches nothing, or has no answer, they are read again, and show whether one has a place already)
    3  move the invocation to pending, from the very record that the place was taken for
    4  or, refused: move it on, to where the rule says

Laws
    IP1  At most `at_most` invocations of one set are pending, running or paused at any time.
    IP2  Where an invocation is said to be picked up, it is pending, or was, at that version.
    IP3  Where an invocation is said to be held back, it was moved on.

Known not to work
    - A picker that gives up may have a place without being pending: the next one who looks finds that it is not held.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.admission import (
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
from tidegate.invocations.invocation import INVOCATION, PENDING
from tidegate.invocations.place_documents import HasPlace, LookAgain, places_of, take_places
from tidegate.invocations.record_documents import VIEW, viewed
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Granted, Transition, TransitionOutcome
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.operations import check_collection, find_one
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on

ATTEMPTS: Final = 8


@final
@attrs.frozen
class PickedUp:
    """It is pending, by that runner, since that version."""

    version: int

    def __str__(self) -> str:
        return f"picked up at version {self.version}"


@final
@attrs.frozen
class HeldBack:
    """Others have the places; it was moved to that status, which made that version."""

    status: str
    version: int

    def __str__(self) -> str:
        return f"held back: {self.status}"


@final
@attrs.frozen
class NotPickedUp:
    """It is not available, or others were faster, or nobody answered."""

    reason: str


PickOutcome: TypeAlias = PickedUp | HeldBack | NotPickedUp


RunningAdmission: TypeAlias = HasPlace | LookAgain | NoFreePlace | NotAvailable
"""What has become of the wish for a place: `RunningVerdict`, once it is carried out."""

Known: TypeAlias = tuple[tuple[str, StatusRecord | None], ...]
"""Invocations and their records; a tuple of pairs, for a program holds immutable values only."""


@final
@attrs.frozen(kw_only=True)
class Picker:
    """One command: `runner` picks an invocation up.

    Attributes:
        key: The invocation.
        call: What it calls.
        rule: The rule of its task for running.
        limited_by: The set that it is of, where that is known already; None for what the rule says of the call.
        expected: The record as it was found to be due: one that has moved since may be due later. None for any.
        runner: Who picks it up.
        request: An id used for this command only.
        at_most: How many of the set may run at once.
        reroute: Whether it goes back to the queue if it is refused; else it ends.
        records, places: The collections.
        attempts: How often to try before giving up; None for any number.
        pauses: How long it waits in between.
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
        """Read the records of those who have a place, AFTER the places."""
        known: Known = ()
        for key in invocations:
            record = await self._record(key)
            known = (*known, (key, record))
        return known

    async def _move(self, record: StatusRecord, target: str, runner: str | None) -> TransitionOutcome:
        """Move the invocation from the very record that was decided on."""
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
