"""A call becomes an invocation if the rule of its task admits it: a place is reserved, then the invocation is made.

What is decided is in `tidegate.invocations.admission`; this is what is asked of the store, and in which order. The places of a set of
calls that exclude each other are one document with a version, as for running (`tidegate.invocations.picker`).

    1  store the call under the id made for it
    2  read the places, THEN the call and the record of whoever holds one
    3  take the place, if the places are still as they were read
    4  make the record, as registered; also that of another one who has the place and has not come to make it

Laws
    IR1  At most one invocation of one set is registered at any time.
    IR2  Whoever says that it has registered an invocation has: it has a record.
    IR3  Whoever says that another one answers the call tells of one that has a record.

Where we differ from pynenc, see `tidegate.invocations.admission`: it looks for one that is registered, and then registers its own, so
two that look at once are both registered.

Known not to work
    - A registrar that gives up may have a place without a record: whoever comes next makes the record, and it is run.
    - The call of one whose place was lost to another stays behind; whoever deletes old calls deletes it.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.admission import (
    Admitted,
    AlreadyAdmitted,
    Ask,
    Call,
    Differs,
    Found,
    Purpose,
    Registration,
    Reservation,
    Reuse,
    Rule,
    decide_registration,
    reservation_id,
)
from tidegate.invocations.invocation import REGISTERED
from tidegate.invocations.picker import ATTEMPTS, PLACES, VERSION, kept, places_of
from tidegate.invocations.transition import viewed
from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused, is_duplicate
from tidegate.model.operations import StoreTime, check_collection, find_one, insert_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type

TASK: Final = Field[str]("task")
NAMES: Final = Field[tuple[str, ...]]("names")
VALUES: Final = Field[tuple[str, ...]]("values")

AllKnown: TypeAlias = tuple[tuple[str, Found], ...]


@final
@attrs.frozen
class Registered:
    """It has a record, which was made as registered."""

    invocation: str

    def __str__(self) -> str:
        return f"registered {self.invocation!r}"


@final
@attrs.frozen
class Answered:
    """Another one is registered for the same, and answers the call."""

    invocation: str
    differing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"answered by {self.invocation!r}"


@final
@attrs.frozen
class NotRegistered:
    """The calls differ, and must not; or others were faster each time, or nobody answered."""

    reason: str


RegistrationOutcome: TypeAlias = Registered | Answered | NotRegistered


@attrs.frozen(kw_only=True)
class Registrar:
    """One command: a call becomes an invocation.

    Attributes:
        key: The id made for it, used for nothing else.
        call: The call.
        rule: The rule of its task for registration.
        must_agree: Whether a call with other arguments is an error.
        request: An id used for this command only.
        records, places, calls: The collections.
        attempts: How often to try before giving up.
    """

    key: str
    call: Call
    rule: Rule
    request: str
    must_agree: bool = False
    records: str = "invocations"
    places: str = "places"
    calls: str = "calls"
    attempts: int = ATTEMPTS

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.call, Call, "a call")
        check_type(self.rule, Rule, "a rule")
        check_name(self.request, "a request")
        check_type(self.must_agree, bool, "whether calls must agree")
        check_int(self.attempts, "a number of attempts", 1)
        check_collection(self.records)
        check_collection(self.places)
        check_collection(self.calls)

    async def run(self) -> RegistrationOutcome:
        """The program."""
        places = reservation_id(Purpose.REGISTRATION, self.rule, self.call)
        attempt = 0
        while attempt < self.attempts:
            attempt += 1
            try:
                await self._stored()
                verdict = await self._admitted(places)
                if isinstance(verdict, AlreadyAdmitted):
                    await self._made(self.key)
                    return Registered(self.key)
                if isinstance(verdict, Reuse):
                    if not verdict.is_made:
                        await self._made(verdict.invocation)
                    return Answered(verdict.invocation, verdict.differing)
                if isinstance(verdict, Differs):
                    return NotRegistered(str(verdict))
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return NotRegistered(f"no place after {attempt} attempts")

    async def _stored(self) -> None:
        """The call, under the id; it is harmless if it was stored before."""
        names, values = tuple(name for name, _ in self.call.arguments), tuple(text for _, text in self.call.arguments)
        stored = Document.of({"_id": self.key, "task": self.call.task, "names": names, "values": values})
        await self._inserted(self.calls, stored)

    async def _admitted(self, places: str | None) -> Registration:
        """Decide, and take the place if it is there; `Admitted` says that it was not to be had: look again."""
        if places is None:
            return AlreadyAdmitted()
        found = await find_one(self.places, Eq(ID, places))
        reservation = places_of(found)
        verdict = self._decided(reservation, ())
        if isinstance(verdict, Ask):
            known = await self._known(verdict)
            verdict = self._decided(reservation, known)
        if isinstance(verdict, Admitted) and await self._taken(places, found, verdict.reservation):
            return AlreadyAdmitted()
        return verdict

    async def _known(self, asked: Ask) -> AllKnown:
        """The calls and the records of those who have a place, read AFTER the places."""
        known: AllKnown = ()
        for key in asked.invocations:
            stored = await find_one(self.calls, Eq(ID, key))
            record = await find_one(self.records, Eq(ID, key))
            if stored is not None:
                names, values = needed(stored, NAMES), needed(stored, VALUES)
                pairs = tuple(zip(names, values, strict=True))
                known = (*known, (key, Found(Call(needed(stored, TASK), pairs), viewed(record))))
        return known

    def _decided(self, reservation: Reservation, known: AllKnown) -> Registration:
        return decide_registration(reservation, self.key, self.call, dict(known), must_agree=self.must_agree)

    async def _taken(self, places: str, found: Document | None, wanted: Reservation) -> bool:
        """Write the places, if they are as they were read."""
        if found is None:
            return await self._inserted(self.places, Document.of({"_id": places, "version": 1, "places": kept(wanted)}))
        version = needed(found, VERSION)
        where = AllOf((Eq(ID, places), Eq(VERSION, version)))
        return await update_one(self.places, where, Put(VERSION, version + 1), Put(PLACES, kept(wanted))) > 0

    async def _made(self, key: str) -> None:
        """The record, as registered; it is harmless if it was made before."""
        now = await StoreTime()
        change = Document.of({"version": 1, "request": f"{self.request}.{key}", "status": REGISTERED})
        record = {
            "_id": key,
            "status": REGISTERED,
            "owner": None,
            "version": 1,
            "changed_at": now,
            "history": (change,),
        }
        await self._inserted(self.records, Document.of(record))

    async def _inserted(self, collection: str, doc: Document) -> bool:
        """Insert it; False if there is one of that id."""
        try:
            await insert_one(collection, doc)
        except Refused as refused:
            if not is_duplicate(refused):
                raise
            return False
        return True
