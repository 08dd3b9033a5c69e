"""An invocation is picked up if the rule of its task admits it: a place is reserved, then the invocation is pending.

What is decided is in `tidegate.invocations.admission`; this is what is asked of the store, and in which order. The places of a set of
invocations that exclude each other are one document with a version, and whoever takes one changes it by compare-and-set.

    1  read the record, THEN the places, THEN the records of those who hold one, as far as the decision asks for them
    2  take a place, if the places are still as they were read
    3  move the invocation to pending, from the very record that the place was taken for
    4  or, refused: move it on, to where the rule says

Laws
    IP1  At most so many invocations of one set are pending, running or paused at any time.
    IP2  Whoever says that it has picked an invocation up has: it is pending, or was, at that version.
    IP3  Whoever says that it was refused has moved it on.

Where we differ from pynenc, see `tidegate.invocations.admission`: it looks for others and then sets its own status, so two that look at
once both run.

Known not to work
    - A picker that gives up may have a place without being pending: the next one who looks finds that it is not held.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.admission import (
    Admitted,
    AlreadyAdmitted,
    Ask,
    Call,
    Place,
    Purpose,
    Refused,
    Reservation,
    Rule,
    Running,
    decide_running,
    reservation_id,
)
from tidegate.invocations.invocation import INVOCATION, PENDING
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Granted, Transition, viewed
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, is_duplicate
from tidegate.model.effects import Refused as StoreRefused
from tidegate.model.operations import check_collection, find_one, insert_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type

ATTEMPTS: Final = 8

PLACES: Final = Field[tuple[Document, ...]]("places")
VERSION: Final = Field[int]("version")
INVOCATION_ID: Final = Field[str]("invocation")


def places_of(record: Document | None) -> Reservation:
    """The places that a document holds; none where there is none.

    Raises:
        Misuse: It is no document of places.
    """
    if record is None:
        return Reservation()
    held = needed(record, PLACES)
    check_tuple(held, Document, "a place")
    return Reservation(tuple(Place(needed(each, INVOCATION_ID), needed(each, VERSION)) for each in held))


def kept(reservation: Reservation) -> tuple[Document, ...]:
    """What is stored of it.

    Raises:
        Misuse: It is no reservation.
    """
    check_type(reservation, Reservation, "a reservation")
    return tuple(Document.of({"invocation": each.invocation, "version": each.version}) for each in reservation.places)


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
    """Others have the places; it was moved to that status."""

    status: str

    def __str__(self) -> str:
        return f"held back: {self.status}"


@final
@attrs.frozen
class NotPickedUp:
    """It is not available, or others were faster, or nobody answered."""

    reason: str


PickOutcome: TypeAlias = PickedUp | HeldBack | NotPickedUp


@attrs.frozen(kw_only=True)
class Picker:
    """One command: `runner` picks an invocation up.

    Attributes:
        key: The invocation.
        call: What it calls.
        rule: The rule of its task for running.
        runner: Who picks it up.
        request: An id used for this command only.
        at_most: How many of the set may run at once.
        reroute: Whether it goes back to the queue if it is refused; else it ends.
        records, places: The collections.
        attempts: How often to try before giving up.
    """

    key: str
    call: Call
    rule: Rule
    runner: str
    request: str
    at_most: int = 1
    reroute: bool = False
    records: str = "invocations"
    places: str = "places"
    attempts: int = ATTEMPTS

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.call, Call, "a call")
        check_type(self.rule, Rule, "a rule")
        check_name(self.runner, "a runner")
        check_name(self.request, "a request")
        check_int(self.at_most, "a number of places", 1)
        check_type(self.reroute, bool, "whether it is rerouted")
        check_int(self.attempts, "a number of attempts", 1)
        check_collection(self.records)
        check_collection(self.places)

    async def run(self) -> PickOutcome:
        """The program."""
        places = reservation_id(Purpose.RUNNING, self.rule, self.call)
        attempt = 0
        while attempt < self.attempts:
            attempt += 1
            try:
                record = await self._record(self.key)
                if record is None:
                    return NotPickedUp("there is no such invocation")
                if places is None:
                    return await self._pending(record)
                verdict = await self._admitted(places, record)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            if isinstance(verdict, AlreadyAdmitted):
                return await self._pending(record)
            if isinstance(verdict, Refused):
                return await self._held_back(record, verdict)
            if not isinstance(verdict, (Admitted, Ask)):
                return NotPickedUp(str(verdict))
        return NotPickedUp(f"no place after {attempt} attempts")

    async def _record(self, key: str) -> StatusRecord | None:
        found = await find_one(self.records, Eq(ID, key))
        return viewed(found)

    async def _admitted(self, places: str, record: StatusRecord) -> Running:
        """Decide, and take a place if there is one; `Admitted` says that it was not to be had: look again."""
        found = await find_one(self.places, Eq(ID, places))
        reservation = places_of(found)
        verdict = self._decided(reservation, record, ())
        if isinstance(verdict, Ask):
            known = await self._known(verdict)
            verdict = self._decided(reservation, record, known)
        if isinstance(verdict, Admitted) and await self._taken(places, found, verdict.reservation):
            return AlreadyAdmitted()
        return verdict

    async def _known(self, asked: Ask) -> tuple[tuple[str, StatusRecord | None], ...]:
        """The records of those who have a place, read AFTER the places."""
        known: tuple[tuple[str, StatusRecord | None], ...] = ()
        for key in asked.invocations:
            record = await self._record(key)
            known = (*known, (key, record))
        return known

    def _decided(
        self, reservation: Reservation, record: StatusRecord, known: tuple[tuple[str, StatusRecord | None], ...]
    ) -> Running:
        return decide_running(reservation, self.key, record, dict(known), at_most=self.at_most, reroute=self.reroute)

    async def _taken(self, places: str, found: Document | None, wanted: Reservation) -> bool:
        """Write the places, if they are as they were read."""
        if found is None:
            try:
                await insert_one(self.places, Document.of({"_id": places, "version": 1, "places": kept(wanted)}))
            except StoreRefused as refused:
                if not is_duplicate(refused):
                    raise
                return False
            return True
        version = needed(found, VERSION)
        where = AllOf((Eq(ID, places), Eq(VERSION, version)))
        return await update_one(self.places, where, Put(VERSION, version + 1), Put(PLACES, kept(wanted))) > 0

    async def _pending(self, record: StatusRecord) -> PickOutcome:
        answer = await self._moved(record, PENDING, self.runner)
        return PickedUp(answer.version) if isinstance(answer, Granted) else NotPickedUp(str(answer))

    async def _held_back(self, record: StatusRecord, refused: Refused) -> PickOutcome:
        answer = await self._moved(record, refused.target, None)
        return HeldBack(refused.target) if isinstance(answer, Granted) else NotPickedUp(str(answer))

    async def _moved(self, record: StatusRecord, target: str, runner: str | None) -> object:
        request = f"{self.request}.{record.version}.{target}"
        return await Transition(
            self.records, INVOCATION, self.key, target, runner, request, self.attempts, expected=record
        ).run()
