"""Register a call if its task's rule admits it: reserve a place, then create the invocation.

`tidegate.invocations.limits.admission` decides; this module reads and writes. The places of mutually
exclusive calls are one versioned document, as for running
(`tidegate.invocations.limits.slot_documents`).

    1  Read the places, THEN the record and THEN the call of each holder. If another invocation
       answers the call, stop.
    2  Store the call under its new id: {_id, task, names, values, places, origin, job, due}; the
       last four are optional.
    3  Take the place, if the places are still as read. After a miss or without a reply, read again:
       the document shows whether the place was taken.
    4  Create the record, as registered. Also create that of another holder without a record.

Laws
    IR1  At most one invocation of one set is registered at any time.
    IR2  An invocation that is answered as registered has a record.
    IR3  An invocation that is answered as reused has a record.
    IR4  A call that is answered by an earlier invocation leaves no documents behind.

Known not to work
    - A registrar that gives up may leave a place without a record: the next one creates the record,
      and it runs.
    - If another takes the place between 1 and 3, the stored call remains.
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
    Differs,
    Found,
    Purpose,
    RegistrationVerdict,
    Reservation,
    Reuse,
    Rule,
    decide_registration,
    reservation_id,
)
from tidegate.invocations.limits.slot_documents import HasPlace, LookAgain, places_of, take_places
from tidegate.invocations.record.jobs import Job, job_fields, job_of, new_invocation
from tidegate.invocations.record.record_documents import DUE, viewed
from tidegate.model.documents import ID, Document, Eq, Field
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import StoreTime, check_collection, find_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on

_ATTEMPTS: Final = 8
ORIGIN: Final = Field[Document]("origin")
PLACES_ID: Final = Field[str]("places")
_TASK: Final = Field[str]("task")
_NAMES: Final = Field[tuple[str, ...]]("names")
_VALUES: Final = Field[tuple[str, ...]]("values")
_JOB: Final = Field[Document]("job")

_Known: TypeAlias = tuple[tuple[str, Found], ...]


@final
@attrs.frozen
class Registered:
    """It has a record, which was created as registered."""

    invocation: str

    def __str__(self) -> str:
        return f"registered {self.invocation!r}"


@final
@attrs.frozen
class Reused:
    """Another invocation of the set answers the call."""

    invocation: str
    differing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"answered by {self.invocation!r}"


@final
@attrs.frozen
class NotRegistered:
    """The calls differ against the rule, or others were faster each time, or the store did not
    answer.

    Attributes:
        reason: The reason.
        differing: The names of the arguments that differ against the rule; otherwise empty.
    """

    reason: str
    differing: tuple[str, ...] = ()


RegistrationOutcome: TypeAlias = Registered | Reused | NotRegistered


RegistrationAdmission: TypeAlias = HasPlace | LookAgain | Reuse | Differs
"""`RegistrationVerdict` after it has been carried out."""


@final
@attrs.frozen(kw_only=True)
class Registrar:
    """One command: register a call.

    Attributes:
        key: A new id, used only for it.
        call: The call.
        rule: The registration rule of its task.
        must_agree: A call with other arguments is an error.
        request: An id used for this command only.
        job: The work; None for the call's, in the default queue.
        due: When a runner may take it: an instant of the store's clock, or a delay in microseconds;
            None for as soon as it is registered.
        origin: The caller's note, stored with the call; no decision uses it.
        records, places, calls: The collections.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.
    """

    key: str
    call: Call
    rule: Rule
    request: str
    must_agree: bool = False
    job: Job | None = None
    due: Instant | Duration | None = None
    origin: Document = attrs.field(default=Document())
    records: str = "invocations"
    places: str = "places"
    calls: str = "calls"
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.call, Call, "a call")
        check_type(self.rule, Rule, "a rule")
        check_name(self.request, "a request")
        check_type(self.must_agree, bool, "must_agree")
        check_type(self.job, (Job, NoneType), "a job")
        check_type(self.due, (Instant, int, NoneType), "an instant, a time in microseconds,")
        if isinstance(self.due, int):
            check_int(self.due, "a time in microseconds", 0)
        check_type(self.origin, Document, "where a call comes from")
        check_attempts(self.attempts, self.pauses)
        check_collection(self.records)
        check_collection(self.places)
        check_collection(self.calls)

    @property
    def is_free(self) -> bool:
        """Whether the rule excludes no calls."""
        return self._places is None

    @property
    def _places(self) -> str | None:
        return reservation_id(Purpose.REGISTRATION, self.rule, self.call)

    async def run(self) -> RegistrationOutcome:
        """The program."""
        places = self._places
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                if isinstance(self.due, int):
                    return await attrs.evolve(self, due=await StoreTime() + self.due).run()
                admission = await self._admit(places)
                match admission:
                    case HasPlace():
                        await self._make(self.key)
                        return Registered(self.key)
                    case Reuse(invocation, is_made, differing):
                        if not is_made:
                            await self._make(invocation)
                        return Reused(invocation, differing)
                    case Differs(_, differing):
                        return NotRegistered(str(admission), differing)
                    case LookAgain():
                        pass
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return NotRegistered(f"no place after {attempt} attempts")

    @property
    def stored_call(self) -> Document:
        names, values = tuple(name for name, _ in self.call.arguments), tuple(text for _, text in self.call.arguments)
        stored = Document.of({"_id": self.key, "task": self.call.task, "names": names, "values": values})
        if self._places is not None:
            stored = stored.put(PLACES_ID, self._places)
        if self.origin.items:
            stored = stored.put(ORIGIN, self.origin)
        if self.job is not None:
            stored = stored.put(_JOB, job_fields(self.job))
        return stored.put(DUE, self.due) if isinstance(self.due, Instant) else stored

    async def _admit(self, places: str | None) -> RegistrationAdmission:
        """Decide and take the place. A call without a document of places is admitted."""
        if places is None:
            await insert_new(self.calls, self.stored_call)  # it is harmless if it was stored before
            return HasPlace()
        found = await find_one(self.places, Eq(ID, places))
        reservation = places_of(found)
        verdict = self._decide(reservation, ())
        if isinstance(verdict, Ask):
            known = await self._known(verdict)
            verdict = self._decide(reservation, known)
        match verdict:
            case Admitted(wanted):
                await insert_new(self.calls, self.stored_call)
                is_taken = await take_places(self.places, places, found, wanted)
                return HasPlace() if is_taken else LookAgain()  # others were faster
            case AlreadyAdmitted():
                return HasPlace()
            case Ask():
                return LookAgain()  # a holder's call was not found
            case Reuse() | Differs():
                return verdict

    def _decide(self, reservation: Reservation, known: _Known) -> RegistrationVerdict:
        return decide_registration(reservation, self.key, self.call, dict(known), must_agree=self.must_agree)

    async def _known(self, asked: Ask) -> _Known:
        """The calls and records of the holders, read AFTER the places."""
        known: _Known = ()
        for key in asked.invocations:
            record = await find_one(self.records, Eq(ID, key))
            stored = await find_one(self.calls, Eq(ID, key))  # it is removed before the record (`purging`)
            if stored is not None:
                known = (*known, (key, Found(_call_of(stored), viewed(record))))
        return known

    async def _make(self, key: str) -> None:
        """Create the record, as registered; creating it twice is harmless."""
        call, job = self.call, self.job
        due = self.due if isinstance(self.due, Instant) else None
        if key != self.key:  # another holder has no record yet
            stored = await find_one(self.calls, Eq(ID, key))
            if stored is None:
                raise NotApplied("its call is not there any more")
            call, due, kept = _call_of(stored), stored.get(DUE), stored.get(_JOB)
            job = None if kept is None else job_of(kept)
        now = await StoreTime()
        wanted = job or Job(task=call.task, arguments=Document(call.arguments))
        await insert_new(self.records, new_invocation(key, wanted, f"{self.request}.{key}", now, due))


def _call_of(stored: Document) -> Call:
    names, values = needed(stored, _NAMES), needed(stored, _VALUES)
    return Call(needed(stored, _TASK), tuple(zip(names, values, strict=True)))
