"""Delete ended invocations after their retention time, with their calls and unreferenced uploads.

    purge            invocations that ended long enough ago, oldest end first, page by page
    sweep_payloads   uploads that no invocation has referred to for long enough
    sweep_places     documents of places without a holder
    sweep_meters     spent rate meters that were idle for long enough

Results are kept for callers, and errors for diagnosis. A record with notices stays until triggers
have processed them. An ended invocation may still have a registration place: a registrar that finds
it there without a record would create it. It may also have a running place, which remains for ever
if
no other invocation of its key comes. So for each page

    1  read the calls, THEN the places of registration and running; remove the ended invocations
       from them, if they are still as read. Without a match or a reply, the invocations of the page
       with a call or a limit stay until the next pass
    2  delete the calls, THEN the invocations. A registrar reads them in the opposite order, so it
       never finds a call whose invocation was deleted

An empty document of places excludes no invocation, and a spent meter admits the same as none
(`tidegate.invocations.limits.rate_limit`, GC5). A caller that finds none proceeds as if it were there. The
store
deletes each only if the condition still holds: the places are empty, and the meter was written no
later than those read. A concurrent writer then finds none, or a new one. A new one has other places
or a later time, so the delete does not match it.

An upload is made before it is referred to: arguments before the invocation is created, results
before the end is written. Each has a unique name, so a new upload never meets a marked one. An
unreferenced upload is marked with the time, and deleted once the mark is old enough. A repetition
(`tidegate.invocations.admin.commands`) refers to the arguments of its original.

Laws
    PG1  No invocation is deleted that has not ended, ended too recently, or has notices that
         triggers have not processed.
    PG2  A deleted invocation never comes back and never runs again.
    PG3  At rest, after a purge, no invocation remains that ended long enough ago, and no call
         without its invocation.
    PG4  No upload is deleted that an invocation refers to.
    PG5  No held place is lost; and while meters are deleted, rates hold (MT1).
    PG6  At rest, after a sweep, no empty document of places remains, and no spent meter idle for
         so long.

Known not to work
    - A registrar that stalls for longer than an age, between its read and its write, creates an
      invocation again.
    - An invocation deleted by an earlier version of tidegate keeps its running place until another
      one of its key comes.
    - If invocations are kept for ever, so are their running places, one document per key.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.limits.rate_limit import is_spent
from tidegate.invocations.limits.rate_limiting import WRITTEN_AT, meter_of
from tidegate.invocations.limits.registration import PLACES_ID
from tidegate.invocations.limits.slot_documents import PLACES, as_read, kept, places_of
from tidegate.invocations.record.invocation import INVOCATION, SUCCESS
from tidegate.invocations.record.record_documents import (
    CHANGED_AT,
    LIMITED_BY,
    NOTICE,
    PAYLOAD,
    RESULT_PAYLOAD,
    STATUS,
    VERSION,
)
from tidegate.model.documents import (
    ID,
    AllOf,
    AnyOf,
    Ascending,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    In,
    Le,
    Not,
    OlderThan,
    Put,
    PutServerTime,
    Remove,
    Value,
    cursor,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, Duration, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    Indexes,
    StoreTime,
    UpdateOne,
    bulk_update,
    check_collection,
    delete_many,
    find_all,
    update_many,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import DAY, check_delay

UNNAMED_SINCE: Final = Field[Instant]("unnamed_since")
_KEY: Final = Field[Value](ID.name)
_EMPTY: Final = Eq(PLACES, ())
_BY_VERSION: Final = (Ascending(VERSION),)
_IDLE: Final = (Ascending(WRITTEN_AT),)
"""Meters, longest idle first."""
_IS_FINAL: Final = In(STATUS, tuple(sorted(each.status for each in INVOCATION.definitions if each.final)))
_IS_HEARD: Final = AnyOf((Not(Exists(NOTICE)), Eq(NOTICE, ())))


@final
@attrs.frozen
class Purged:
    """The result of a pass.

    Attributes:
        removed: The number known to be deleted; deletes without a reply are not counted.
        is_done: The pass is complete. If not, there is more or no reply: continue at the next pass.
    """

    removed: int
    is_done: bool


def _is_over(status: str, age: Duration) -> Filter:
    return AllOf((Eq(STATUS, status), OlderThan(CHANGED_AT, age), _IS_HEARD))


def _is_spent(doc: Document, now: Instant) -> bool:
    try:
        return is_spent(meter_of(doc), now)
    except Misuse:
        return False  # unreadable: keep it


async def _is_past(until: Instant | None) -> bool:
    return until is not None and await StoreTime() - until >= 0


# --- the programs -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Purging:
    """Retention times. Invariants: 0 <= each age; 1 <= batch <= FOUND_MAX.

    Attributes:
        success_age: The retention of succeeded invocations, in microseconds; None for ever.
        other_age: The same for failed, cancelled and not admitted ones.
        payload_age: The retention of unreferenced uploads, in microseconds.
        meter_age: The retention of idle meters, in microseconds.
        records, places, calls, payloads, meters: The collections.
        batch: The page size.
    """

    success_age: Duration | None = DAY
    other_age: Duration | None = 7 * DAY
    payload_age: Duration = DAY
    meter_age: Duration = 60 * MINUTE
    records: str = "invocations"
    places: str = "places"
    calls: str = "calls"
    payloads: str = "payloads"
    meters: str = "meters"
    batch: int = FOUND_MAX

    def __attrs_post_init__(self) -> None:
        for age in (self.success_age, self.other_age, self.payload_age, self.meter_age):
            if age is not None:
                check_delay(age, "an age in microseconds", 0)
        for collection in (self.records, self.places, self.calls, self.payloads, self.meters):
            check_collection(collection)
        check_int(self.batch, "a number of invocations", 1, FOUND_MAX)

    @property
    def indexes(self) -> Indexes:
        """The indexes that limit the reads of a pass to deletable documents."""
        return {
            self.records: (
                Index((Ascending(STATUS), Ascending(CHANGED_AT))),
                Index((Ascending(PAYLOAD),), Exists(PAYLOAD)),
                Index((Ascending(RESULT_PAYLOAD),), Exists(RESULT_PAYLOAD)),
            ),
            self.places: (Index(_BY_VERSION, _EMPTY),),
            self.meters: (Index(_IDLE),),
        }

    # --- invocations ---

    async def purge(self, until: Instant | None = None) -> Purged:
        """Make one pass over ended invocations.

        Args:
            until: The end of its time, by the store's clock: then it begins no more pages, except
                the
                first of each status. None for no end.

        Raises:
            Refused: The store refuses for good.
        """
        check_type(until, (Instant, NoneType), "an instant")
        removed = 0
        is_done = True
        for definition in INVOCATION.definitions:
            age = self.success_age if definition.status == SUCCESS else self.other_age
            if not definition.final or age is None:
                continue
            while True:
                try:
                    found = await find_all(
                        self.records,
                        _is_over(definition.status, age),
                        limit=self.batch,
                        fields=(CHANGED_AT, LIMITED_BY),
                        sort=(Ascending(CHANGED_AT),),
                    )
                    gone = await self._gone(found) if found else 0
                    removed += gone
                    if len(found) < self.batch or not gone or await _is_past(until):
                        is_done = is_done and len(found) < self.batch and gone == len(found)
                        break
                except (Ambiguous, NotApplied, NotDurable):
                    return Purged(removed, is_done=False)
        return Purged(removed, is_done)

    async def _gone(self, page: tuple[Document, ...]) -> int:
        """Delete a page; return how many were deleted."""
        ended = tuple(needed(each, ID) for each in page)
        limited = tuple((needed(each, ID), at) for each in page if (at := each.get(LIMITED_BY)) is not None)
        found = await find_all(self.calls, In(ID, ended), limit=len(ended), fields=(PLACES_ID,))
        calls = tuple(needed(each, ID) for each in found)
        registered = tuple(at for each in found if (at := each.get(PLACES_ID)) is not None)
        places = tuple(dict.fromkeys((*registered, *(at for _, at in limited))))
        if places and not await self._vacated(places, ended):
            bound = frozenset((*calls, *(key for key, _ in limited)))
            going = tuple(key for key in ended if key not in bound)
            return await self._remove(going, ()) if going else 0
        return await self._remove(ended, calls)

    async def _remove(self, going: tuple[str, ...], calls: tuple[str, ...]) -> int:
        """Delete the calls, THEN the invocations; count the latter."""
        if calls:
            await delete_many(self.calls, In(ID, calls))
        return await delete_many(self.records, In(ID, going), _IS_FINAL)

    async def _vacated(self, places: tuple[str, ...], ended: tuple[str, ...]) -> bool:
        """Remove the ended from these places; return whether all places are free of them."""
        for start in range(0, len(places), FOUND_MAX):
            some = places[start : start + FOUND_MAX]
            found = await find_all(self.places, In(ID, some), limit=len(some))
            updates = tuple(update for each in found if (update := self._without(each, ended)) is not None)
            if updates and await bulk_update(*updates) < len(updates):
                return False
        return True

    def _without(self, found: Document, ended: tuple[str, ...]) -> UpdateOne | None:
        reservation = places_of(found)
        left = tuple(each for each in reservation.places if each.invocation not in ended)
        if len(left) == len(reservation.places):
            return None
        vacant = Put(PLACES, kept(attrs.evolve(reservation, places=left)))
        return update_one(self.places, as_read(found), vacant, Put(VERSION, needed(found, VERSION) + 1))

    # --- payloads ---

    async def sweep_payloads(self) -> Purged:
        """Make one pass over the records of uploads; `tidegate.payloads.uploads` sweeps their
        chunks.

        Raises:
            Refused: The store refuses for good.
        """
        removed = 0
        after: tuple[Value, ...] = ()
        while True:
            try:
                found = await find_all(self.payloads, Exists(ID), limit=self.batch, after=after, fields=())
                if found:
                    removed += await self._swept(tuple(needed(each, ID) for each in found))
            except (Ambiguous, NotApplied, NotDurable):
                return Purged(removed, is_done=False)
            if len(found) < self.batch:
                return Purged(removed, is_done=True)
            after = (needed(found[-1], _KEY),)

    async def _swept(self, uploads: tuple[str, ...]) -> int:
        """Mark the unreferenced uploads of a page, and delete those marked long ago."""
        named = await self._named(PAYLOAD, uploads) | await self._named(RESULT_PAYLOAD, uploads)
        used = tuple(each for each in uploads if each in named)
        unnamed = tuple(each for each in uploads if each not in named)
        if used:
            await update_many(self.payloads, AllOf((In(ID, used), Exists(UNNAMED_SINCE))), Remove(UNNAMED_SINCE))
        if not unnamed:
            return 0
        await update_many(
            self.payloads, AllOf((In(ID, unnamed), Not(Exists(UNNAMED_SINCE)))), PutServerTime(UNNAMED_SINCE)
        )
        return await delete_many(self.payloads, In(ID, unnamed), OlderThan(UNNAMED_SINCE, self.payload_age))

    async def _named(self, field: Field[str], uploads: tuple[str, ...]) -> frozenset[str]:
        """The uploads that an invocation refers to in this field."""
        named = frozenset[str]()
        after: tuple[Value, ...] = ()
        while True:
            found = await find_all(self.records, In(field, uploads), limit=FOUND_MAX, after=after, fields=(field,))
            named = named.union(needed(each, field) for each in found)
            if len(found) < FOUND_MAX:
                return named
            after = (needed(found[-1], _KEY),)

    # --- places and meters ---

    async def sweep_places(self, until: Instant | None = None) -> Purged:
        """Make one pass over empty documents of places.

        Args:
            until: As in `purge`.

        Raises:
            Refused: The store refuses for good.
        """
        check_type(until, (Instant, NoneType), "an instant")
        removed = 0
        while True:
            try:
                found = await find_all(self.places, _EMPTY, limit=self.batch, fields=(VERSION,), sort=_BY_VERSION)
                keys = tuple(needed(each, ID) for each in found)
                removed += await delete_many(self.places, In(ID, keys), _EMPTY) if keys else 0
                if (is_done := len(found) < self.batch) or await _is_past(until):
                    return Purged(removed, is_done)
            except (Ambiguous, NotApplied, NotDurable):
                return Purged(removed, is_done=False)

    async def sweep_meters(self, until: Instant | None = None) -> Purged:
        """Make one pass over idle meters.

        Args:
            until: As in `purge`.

        Raises:
            Refused: The store refuses for good.
        """
        check_type(until, (Instant, NoneType), "an instant")
        removed = 0
        after: tuple[Value, ...] = ()
        idle = OlderThan(WRITTEN_AT, self.meter_age)
        while True:
            try:
                found = await find_all(self.meters, idle, limit=self.batch, after=after, sort=_IDLE)
                now = await StoreTime()
                keys = tuple(needed(each, ID) for each in found if _is_spent(each, now))
                # What has been written since was written later than all of these, however long this one stands still.
                unwritten = Le(WRITTEN_AT, needed(found[-1], WRITTEN_AT)) if found else idle
                removed += await delete_many(self.meters, In(ID, keys), unwritten) if keys else 0
                if (is_done := len(found) < self.batch) or await _is_past(until):
                    return Purged(removed, is_done)
            except (Ambiguous, NotApplied, NotDurable):
                return Purged(removed, is_done=False)
            after = cursor(found[-1], _IDLE)
