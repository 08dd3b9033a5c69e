"""What has ended is kept for a while, and then goes: the invocation, its call, and the uploads that nothing refers to any more.

    purge            invocations that ended long enough ago, the longest first, a page at a time
    sweep_payloads   uploads that no invocation names, and none has named for long enough
    sweep_places     sets of those who exclude each other in which nobody is
    sweep_meters     meters of rates that say nothing any more, and that nobody has asked for long enough

A result is kept for whoever waits for it, an error for whoever looks into it; what triggers have not heard of stays until they
have. An invocation that was registered under control may still stand in the places of those who exclude each other, and whoever
finds it there without a record takes it for one that is yet to be made, and makes it. One that has run still stands in those of
who run, and nobody would ever take it out where no other of its key comes. So of each page

    1  read the calls, THEN the places that they were registered for, and in which they ran; take those who go out of them, if
       the places are still as they were read; where that matches nothing, or has no answer, those of the page stay until the next pass
    2  remove the calls, THEN the invocations: a registrar reads them the other way round, so it never finds a call whose
       invocation was removed

A set in which nobody is excludes nobody, and a meter that is spent lets through what one does of which nothing was admitted
(`tidegate.invocations.rates`, GC5): whoever finds none goes on as if it were there. Each is deleted only if that is still so of it
when it goes, which the store judges: the places are empty, the meter was written no later than those that were read. Whoever has read it before, and
writes after, finds none, or one that was made meanwhile: that has other places, or was written later, so nothing matches.

An upload is made before it is referred to: of arguments before the invocation is made, of results before its end is written,
each under a name that no other has, so that none is put where one stands that is marked. One
that nothing refers to is marked with the time, and goes once it has been marked for long enough. What is repeated
(`tidegate.invocations.asking`) refers to the arguments of what it repeats.

Laws
    PG1  Nothing goes that has not ended, that ended too lately, or that triggers have yet to hear of.
    PG2  What is gone never comes back, and never runs again.
    PG3  At rest, after a purge, nothing is left that ended long enough ago; no call without its invocation, either.
    PG4  No upload goes that an invocation refers to.
    PG5  Nobody loses a place that is held; and while meters go, rates hold (MT1).
    PG6  At rest, after a sweep, no set is left in which nobody is, and no meter that was spent and let alone for so long.

Known not to work
    - A registrar that stands still for longer than an age, between its look and its write, makes an invocation anew.
    - Who had a place, and was removed by a version before this one, stays in it until another one of its key comes.
    - Where invocations are kept for ever, so are the places in which they ran, one document for each key.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.invocations.invocation import INVOCATION, SUCCESS
from tidegate.invocations.metering import WRITTEN_AT, meter_of
from tidegate.invocations.place_documents import PLACES, as_read, kept, places_of
from tidegate.invocations.rates import is_spent
from tidegate.invocations.record_documents import (
    CHANGED_AT,
    LIMITED_BY,
    NOTICE,
    PAYLOAD,
    RESULT_PAYLOAD,
    STATUS,
    VERSION,
)
from tidegate.invocations.registration import PLACES_ID
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
"""Meters, those first that nobody has asked for the longest."""
_IS_FINAL: Final = In(STATUS, tuple(sorted(each.status for each in INVOCATION.definitions if each.final)))
_IS_HEARD: Final = AnyOf((Not(Exists(NOTICE)), Eq(NOTICE, ())))


@final
@attrs.frozen
class Purged:
    """What a pass has removed.

    Attributes:
        removed: How many, as far as it is known: what was done without a reply is not counted.
        is_done: It came to the end; if not, there is more, or nobody answered: go on at the next pass.
    """

    removed: int
    is_done: bool


def _is_over(status: str, age: Duration) -> Filter:
    return AllOf((Eq(STATUS, status), OlderThan(CHANGED_AT, age), _IS_HEARD))


def _is_spent(doc: Document, now: Instant) -> bool:
    try:
        return is_spent(meter_of(doc), now)
    except Misuse:
        return False  # nobody knows


async def _is_past(until: Instant | None) -> bool:
    return until is not None and await StoreTime() - until >= 0


# --- the programs -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Purging:
    """How long what has ended is kept. Invariants: 0 <= each age; 1 <= batch <= FOUND_MAX.

    Attributes:
        success_age: For how long after its end an invocation that has succeeded is kept, in microseconds; None for ever.
        other_age: Likewise one that has failed, was cancelled, or was not admitted.
        payload_age: For how long an upload that nothing refers to is kept.
        meter_age: For how long a meter is kept that nobody asks.
        records, places, calls, payloads, meters: The collections.
        batch: How many are removed at a time.
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
        """What a pass needs: it reads what goes, however many others there are."""
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
        """The program: one pass over what has ended.

        Args:
            until: When its time is over, by the store's clock: it begins no more pages then, but for the first of each status. None for
                never.

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
        """Remove these; how many went."""
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
        """Remove the calls, THEN the invocations; how many of these there were."""
        if calls:
            await delete_many(self.calls, In(ID, calls))
        return await delete_many(self.records, In(ID, going), _IS_FINAL)

    async def _vacated(self, places: tuple[str, ...], ended: tuple[str, ...]) -> bool:
        """Take those who have ended out of these places; whether they are out of all of them."""
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
        """The program: one pass over the records of uploads; their chunks go by a sweep of `tidegate.payloads.uploads`.

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
        """Mark those of a page that nothing refers to, and remove those that have been marked for long; how many went."""
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
        """Those of these that an invocation names in that field."""
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
        """The program: one pass over sets in which nobody is.

        Args:
            until: As of `purge`.

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
        """The program: one pass over meters that nobody has asked for long enough.

        Args:
            until: As of `purge`.

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
