"""Reserve places for many invocations at once, queue those that get none, and wake them.

`tidegate.invocations.limits.admission` decides for one invocation at a time. This module handles a batch,
each with its record as found due. Each set has one document
(`tidegate.invocations.limits.slot_documents`):

    place    Read the documents, and THEN the holders' records of full sets. Write the changes in
             one bulk, each document if it still is as it was read. If fewer match, or without a
             reply, read again: the document shows who has a place by then.
    wait     Put off the refused in one bulk. Their status and version stay.
    look     THEN read the holders' records once more: a holder that freed its place in between
             saw no waiter.
    wake     After freeing places, make as many waiters due: higher priority first, then longest
             due. Each returns to its old position in the queue.

A lost wake-up costs only time. A waiter is due in any case after `held_back`, and later after as
long as it has waited so far, up to `LONGEST`, so that ten thousand waiters do not poll all the
time. Up to half is added to each delay, different per invocation, to scatter them.

Laws
    PL1  At most `at_most` invocations of one set run at any time, if each begins from the record
         that its place was granted for.
    PL2  An invocation that has no place and is not refused is unchanged.
    PL3  At rest, if requests were answered, no invocation sleeps while there is a place.
    PL4  A waiting invocation is due at some time.

Known not to work
    - A process that dies between the end of a run and its wake-up leaves waiters asleep, for as
      long as `held_back`.
    - There is no queue: a place goes to the first request, and a woken waiter may be refused again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, islice
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.admission import (
    Admitted,
    AlreadyAdmitted,
    Ask,
    NoFreePlace,
    NotAvailable,
    Place,
    Purpose,
    Reservation,
    decide_running,
    is_held,
)
from tidegate.invocations.limits.slot_documents import PLACES, as_read, kept, places_of
from tidegate.invocations.record.record_documents import (
    DUE,
    LATER,
    LIMITED_BY,
    PRIORITY,
    VERSION,
    VIEW,
    WAITS,
    unchanged,
    viewed,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Filter,
    In,
    Put,
    Remove,
    Sort,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.instants import MILLISECOND, MINUTE, PPM, SECOND, Duration, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    StoreTime,
    UpdateOne,
    bulk_update,
    check_collection,
    find_all,
    insert_many,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.attempt_delays import Pauses, begins, check_attempts, goes_on
from tidegate.retries.backoff import Exponential, draw_of

LONGEST: Final[Duration] = 5 * MINUTE
"""The longest delay until a waiter is due in any case, before up to half is added."""
SOON: Final = Pauses(Exponential(5 * MILLISECOND, cap=SECOND))
"""The delays between two reads of contended places; others change them soon."""
_ATTEMPTS: Final = 4
_ORDER: Final[Sort] = (Ascending(LIMITED_BY), Descending(PRIORITY), Ascending(WAITS))
_SLEEPS: Final[tuple[Filter, ...]] = (Exists(DUE), Exists(WAITS))
WAITING: Final = Index(_ORDER, AllOf(_SLEEPS))
"""The index by which waiters are found."""
_UNSURE: Final = (Ambiguous, NotApplied, NotDurable)


@final
@attrs.frozen
class Wish:
    """A request for a place. Invariants: its key and its set are not empty; 1 <= at_most.

    Attributes:
        key: The id of the invocation.
        record: Its record as found: it begins only from this one.
        limited_by: Its set.
        at_most: The concurrency limit of the set.
        since: When it became due or began to wait for a place; None for now.
    """

    key: str
    record: StatusRecord
    limited_by: str
    at_most: int = 1
    since: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.record, StatusRecord, "a record")
        check_name(self.limited_by, "a set of invocations")
        check_int(self.at_most, "a number of places", 1)
        check_type(self.since, (Instant, NoneType), "an instant")


Freed: TypeAlias = tuple[tuple[str, int], ...]
"""Sets, and the number of free places of each."""
Holders: TypeAlias = tuple[tuple[str, tuple[Place, ...]], ...]
"""Sets, and the held places of each."""
_Wishes: TypeAlias = tuple[Wish, ...]
_Known: TypeAlias = tuple[tuple[str, StatusRecord | None], ...]


@final
@attrs.frozen
class Placed:
    """The result of a batch. A wish in neither tuple has an unknown outcome and is unchanged.

    Attributes:
        has: The invocations that have a place.
        refused: The refused invocations.
        by: The places that certainly are held, of the sets of the refused.
    """

    has: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    by: Holders = ()


# --- decisions --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class _Decided:
    """The decision on a set. `has` holds once it is written; `asks` are records to read first."""

    name: str
    before: Reservation
    reservation: Reservation
    has: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    by: tuple[Place, ...] = ()
    asks: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        return self.reservation != self.before


def _decide(wishes: _Wishes, found: tuple[Document, ...], known: _Known) -> tuple[_Decided, ...]:
    """Decide wish by wish, each on the places that the previous one leaves."""
    docs, records = {doc[ID]: doc for doc in found}, dict(known)
    sets: dict[str, list[Wish]] = {}
    for wish in wishes:
        sets.setdefault(wish.limited_by, []).append(wish)
    return tuple(_of_set(name, some, places_of(docs.get(name)), records) for name, some in sets.items())


def _of_set(name: str, wishes: list[Wish], before: Reservation, records: dict[str, StatusRecord | None]) -> _Decided:
    decided = _Decided(name, before, before)
    about = {key: records[key] for key in (place.invocation for place in before.places) if key in records}
    about |= {each.key: each.record for each in wishes}
    for wish in wishes:
        verdict = decide_running(decided.reservation, wish.key, wish.record, about, at_most=wish.at_most, reroute=True)
        match verdict:
            case Admitted(wanted):
                decided = attrs.evolve(decided, reservation=wanted, has=(*decided.has, wish.key))
            case Ask(invocations):
                return attrs.evolve(decided, asks=invocations)
            case NoFreePlace(by):
                decided = attrs.evolve(decided, refused=(*decided.refused, wish.key), by=by)
            case AlreadyAdmitted():
                decided = attrs.evolve(decided, has=(*decided.has, wish.key))
            case NotAvailable():
                pass
    return decided


def _freed(by: Holders, known: _Known) -> Freed:
    """How many places are no longer held, by their holders' records, read AFTER the places."""
    records = dict(known)
    free = {
        name: sum(
            place.invocation in records and not is_held(Purpose.RUNNING, place, records[place.invocation])
            for place in places
        )
        for name, places in by
    }
    return tuple((name, number) for name, number in free.items() if number)


def _due(wish: Wish, held_back: Duration, now: Instant) -> Instant:
    """When a waiter is due in any case: later the longer it waits, and scattered by its key."""
    waited = 0 if wish.since is None else min(max(now - wish.since, 0), LONGEST)
    longest = max(held_back, waited)
    after = longest + longest * draw_of(wish.key) // PPM // 2
    return now + -(-after // MILLISECOND) * MILLISECOND


# --- the programs -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Placing:
    """Requests for places, each of another invocation.

    Attributes:
        wishes: The requests.
        records, places: The collections.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.
    """

    wishes: tuple[Wish, ...]
    records: str = "invocations"
    places: str = "places"
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = SOON

    def __attrs_post_init__(self) -> None:
        check_tuple(self.wishes, Wish, "a wish for a place")
        check_int(len(self.wishes), "a number of wishes", 0, FOUND_MAX)
        check_collection(self.records)
        check_collection(self.places)
        check_attempts(self.attempts, self.pauses)

    async def place(self) -> Placed:
        """Reserve places.

        Raises:
            Refused: The store refuses for good.
        """
        left, placed = self.wishes, Placed()
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                sets = tuple(dict.fromkeys(wish.limited_by for wish in left))
                found = await find_all(self.places, In(ID, sets), limit=len(sets))
                decided = _decide(left, found, ())
                asks = tuple(dict.fromkeys(key for each in decided for key in each.asks))
                if asks:
                    decided = _decide(left, found, await _records(self.records, asks))
                placed = _with(placed, (each for each in decided if not each.is_changed))
                decided = tuple(each for each in decided if each.is_changed)
                left = tuple(wish for wish in left if any(wish.limited_by == each.name for each in decided))
                if await _write(self.places, found, decided) == len(decided):
                    return _with(placed, decided)
            except _UNSURE:
                continue
        return placed

    async def wait(self, held_back: Duration) -> None:
        """Put off all wishes, which were refused, until a wake-up.

        Args:
            held_back: The first delay until they are due in any case, in microseconds.

        Raises:
            Refused: The store refuses for good.
        """
        if not self.wishes:
            return
        try:
            now = await StoreTime()
            await bulk_update(*(_waits(self.records, wish, _due(wish, held_back, now), now) for wish in self.wishes))
        except _UNSURE:
            pass  # it is due as before, or waits

    async def look(self, by: Holders) -> None:
        """Wake as many waiters as places were freed since they were read.

        Args:
            by: The held places as read (`Placed.by`).

        Raises:
            Refused: The store refuses for good.
        """
        keys = tuple(dict.fromkeys(place.invocation for _, places in by for place in places))
        since = await begins(self.pauses)
        attempt = 0
        while keys:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                return
            attempt += 1
            try:
                freed = _freed(by, await _records(self.records, keys))
            except _UNSURE:
                continue
            await wake(self.records, freed, self.attempts, self.pauses)
            return


def _waits(records: str, wish: Wish, due: Instant, now: Instant) -> UpdateOne:
    where = AllOf((unchanged(wish.key, wish.record), Exists(DUE)))
    return update_one(records, where, Put(DUE, due), Put(LATER, due), Put(WAITS, wish.since or now))


def _with(placed: Placed, decided: Iterable[_Decided]) -> Placed:
    """Add sets whose documents need no more changes."""
    for each in decided:
        by = ((each.name, each.by),) if each.refused else ()
        placed = Placed((*placed.has, *each.has), (*placed.refused, *each.refused), (*placed.by, *by))
    return placed


async def _records(records: str, keys: tuple[str, ...]) -> _Known:
    """The records by key; None for a missing one."""
    known: _Known = ()
    for start in range(0, len(keys), FOUND_MAX):
        some = keys[start : start + FOUND_MAX]
        found = await find_all(records, In(ID, some), limit=len(some), fields=VIEW)
        known = (*known, *dict.fromkeys(some, None).items(), *((doc[ID], viewed(doc)) for doc in found))
    return known


async def _write(places: str, found: tuple[Document, ...], decided: tuple[_Decided, ...]) -> int:
    """Write each set's places if they are as read; return the number written."""
    written = 0
    before = tuple((doc[ID], doc) for doc in found)
    new = tuple(each for each in decided if each.name not in dict(before))
    if new:
        docs = (Document.of({"_id": each.name, "version": 1, "places": kept(each.reservation)}) for each in new)
        written += await insert_many(places, *docs)
    updates = tuple(_places_are(places, each, dict(before)[each.name]) for each in decided if each not in new)
    if updates:
        written += await bulk_update(*updates)
    return written


def _places_are(places: str, decided: _Decided, before: Document) -> UpdateOne:
    after = needed(before, VERSION) + 1
    return update_one(places, as_read(before), Put(VERSION, after), Put(PLACES, kept(decided.reservation)))


async def wake(records: str, freed: Freed, attempts: int | None = _ATTEMPTS, pauses: Pauses = SOON) -> bool:
    """Make as many waiters due as there are free places.

    Args:
        records: The collection of the invocations.
        freed: The number of free places of each set.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.

    Returns:
        Whether a waiter is due now.

    Raises:
        Refused: The store refuses for good.
    """
    is_due = False
    left = tuple((name, number) for name, number in freed if number)
    most = min(2 * sum(number for _, number in left) + _MORE, FOUND_MAX)
    since = await begins(pauses)
    attempt = 0
    while left:
        if not await goes_on(pauses, attempts, attempt, since):
            break
        attempt += 1
        where = AllOf((In(LIMITED_BY, tuple(name for name, _ in left)), *_SLEEPS))
        try:
            found = await find_all(records, where, limit=most, fields=(LIMITED_BY, PRIORITY, WAITS), sort=_ORDER)
            some = _first(found, left)
            is_due = is_due or bool(some)
            if some and await bulk_update(*(_woken(records, doc) for doc in some)) < len(some):
                attempt = 0  # others have woken the same, and got on
                continue
        except _UNSURE:
            continue
        if len(found) < most:
            break
        left = _behind(needed(found[-1], LIMITED_BY), left, some)
        attempt = 0
    return is_due


_MORE: Final = 10


def _first(found: tuple[Document, ...], freed: Freed) -> tuple[Document, ...]:
    most = dict(freed)
    sets = groupby(found, key=lambda doc: needed(doc, LIMITED_BY))
    return tuple(doc for name, docs in sets for doc in islice(docs, most[name]))


def _behind(last: str, freed: Freed, some: tuple[Document, ...]) -> Freed:
    """The free places left after a read that ended within the set `last` and woke `some`."""
    woken = sum(doc[LIMITED_BY] == last for doc in some)
    left = ((name, number - woken if name == last else number) for name, number in freed if name >= last)
    return tuple((name, number) for name, number in left if number)


def _woken(records: str, doc: Document) -> UpdateOne:
    """It is due as before, and so stays ahead of later ones."""
    due = Put(DUE, needed(doc, WAITS))
    return update_one(records, AllOf((Eq(ID, doc[ID]), *_SLEEPS)), due, Remove(LATER), Remove(WAITS))
