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

from collections.abc import Callable
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
from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Program
from tidegate.model.operations import check_collection, find_one
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on

__all__ = [
    "ATTEMPTS", "PARTS", "HeldBack", "Known", "NotPickedUp", "PickOutcome", "PickedUp", "Picker", "PickerParts",
    "RunningAdmission",
]  # fmt: skip

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
        parts: What it is made of; faulty variants have others.
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
    parts: PickerParts = attrs.field(factory=lambda: PARTS, repr=False)

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
        check_type(self.parts, PickerParts, "the parts of a picker")

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
                record = await _record(self, self.key)
                if record is None:
                    return NotPickedUp("there is no such invocation")
                if self.expected is not None and record != self.expected:
                    return NotPickedUp("it has moved since it was found")
                if places is None:
                    return await self._pending(record)
                admission = await self.parts.admit(self, places, record)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            match admission:
                case HasPlace():
                    return await self._pending(record)
                case NoFreePlace(_, target):
                    answer = await self.parts.move(self, record, target, None)
                    return HeldBack(target, answer.version) if isinstance(answer, Granted) else NotPickedUp(str(answer))
                case NotAvailable():
                    return NotPickedUp(str(admission))
                case LookAgain():
                    pass
        return NotPickedUp(f"no place after {attempt} attempts")

    async def _pending(self, record: StatusRecord) -> PickOutcome:
        answer = await self.parts.move(self, record, PENDING, self.runner)
        return PickedUp(answer.version) if isinstance(answer, Granted) else NotPickedUp(str(answer))


# --- what it is made of -------------------------------------------------------------------------------------------------


async def _record(picker: Picker, key: str) -> StatusRecord | None:
    return viewed(await find_one(picker.records, Eq(ID, key), fields=VIEW))


def _decide(picker: Picker, reservation: Reservation, record: StatusRecord, known: Known) -> RunningVerdict:
    return decide_running(reservation, picker.key, record, dict(known), at_most=picker.at_most, reroute=picker.reroute)


async def _admit(picker: Picker, places: str, record: StatusRecord) -> RunningAdmission:
    found = await find_one(picker.places, Eq(ID, places))
    reservation = places_of(found)
    verdict = _decide(picker, reservation, record, ())
    if isinstance(verdict, Ask):
        known = await picker.parts.look(picker, verdict.invocations)
        verdict = _decide(picker, reservation, record, known)
    match verdict:
        case Admitted(wanted):
            is_taken = await picker.parts.take(picker.places, places, found, wanted)
            return HasPlace() if is_taken else LookAgain()  # others were faster
        case AlreadyAdmitted():
            return HasPlace()
        case Ask():
            return LookAgain()  # not all of those who have a place were found
        case NoFreePlace() | NotAvailable():
            return verdict


async def _look(picker: Picker, invocations: tuple[str, ...]) -> Known:
    known: Known = ()
    for key in invocations:
        record = await _record(picker, key)
        known = (*known, (key, record))
    return known


async def _move(picker: Picker, record: StatusRecord, target: str, runner: str | None) -> TransitionOutcome:
    request = f"{picker.request}.{record.version}.{target}"
    return await Transition(
        picker.records,
        INVOCATION,
        picker.key,
        target,
        runner,
        request,
        picker.attempts,
        expected=record,
        pauses=picker.pauses,
    ).run()


@final
@attrs.frozen
class PickerParts:
    """What a picker is made of.

    Attributes:
        admit: Decides, and takes a place if there is one.
        look: Reads the records of those who have a place, AFTER the places.
        take: Writes the places, if they are still as they were read; False if they are not.
        move: Moves the invocation from the very record that was decided on.
    """

    admit: Callable[[Picker, str, StatusRecord], Program[RunningAdmission]] = _admit
    look: Callable[[Picker, tuple[str, ...]], Program[Known]] = _look
    take: Callable[[str, str, Document | None, Reservation], Program[bool]] = take_places
    move: Callable[[Picker, StatusRecord, str, str | None], Program[TransitionOutcome]] = _move


PARTS: Final[PickerParts] = PickerParts()
