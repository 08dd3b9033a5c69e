"""How many of a set may begin now: what `tidegate.invocations.rates` decides, kept in one document, read and written.

    {_id: "<the set>", version, free_at, free_us, line_at, asked_at, written_at, admitted}

    1  read the meter, THEN the time of the store, and decide
    2  write it, if it is still as it was read; where that matches nothing, others were faster, so begin again

Whose clock. The store's alone. A process that reads its own would admit a burst more for each jump of it, and two that differ by half a
minute would each have the other wait so long, or nobody. The time was read before the write, and whoever stands still in between
admits later than it says. So the write has two times, that which was read and its own (`$currentDate`): by what they differ the
bucket was fuller than it says, and whoever reads it next adds that.

A meter that is spent goes (`tidegate.invocations.purging`), and the next one of its set begins with the first version again. So it is
written only if it was last written when it was: one that was made meanwhile was written later.

A request without a reply is asked again as a new one. If it was done, its places go to nobody: less is let through than might be,
and never more. Who gets no answer begins nothing, and what it asked for stays due.

Laws
    MT1  Of one set GC1 holds, of the instants at which meters are written, whatever becomes of processes, requests and replies, and
         however long anybody stands still.
    MT2  What is told to be admitted was counted.
    MT3  Without a fault, and where nobody else asks, it is three requests; for a set that has no meter yet, one more.

Known not to work
    - What is admitted begins with the next request of its process: who stands still before that begins late, and what others
      were admitted meanwhile comes on top.
    - All who ask for one set write one document: some hundred times a second, with as many admitted each time as a request takes.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.rates import Admission, Meter, Rate, decide_rate
from tidegate.invocations.record_documents import VERSION
from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Field, Put, PutServerTime
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, check_collection, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on

FREE_AT: Final = Field[Instant]("free_at")
FREE_US: Final = Field[int]("free_us")
"""The microseconds of `free_at`, of which a document keeps whole milliseconds."""
LINE_AT: Final = Field[Instant]("line_at")
ASKED_AT: Final = Field[Instant]("asked_at")
WRITTEN_AT: Final = Field[Instant]("written_at")
ADMITTED: Final = Field[int]("admitted")
"""How many ever were."""


@final
@attrs.frozen
class NotMetered:
    """Nobody knows: nothing may begin."""

    reason: str


MeteringOutcome: TypeAlias = Admission | NotMetered


def new_meter(key: str, now: Instant) -> Document:
    """The document of a set of which nothing was admitted."""
    check_name(key, "a set of invocations")
    at = _whole(now)
    return Document.of({
        "_id": key, "version": 1, "free_at": at, "free_us": 0, "line_at": at, "asked_at": at, "written_at": at, "admitted": 0,
    })  # fmt: skip


def meter_of(record: Document) -> Meter:
    """What is kept, as it was when it was written.

    Raises:
        Misuse: It is not a meter.
    """
    stood = max(needed(record, WRITTEN_AT) - needed(record, ASKED_AT), 0)
    return Meter(needed(record, FREE_AT) + needed(record, FREE_US) + stood, needed(record, LINE_AT))


def _whole(at: Instant) -> Instant:
    """The first whole millisecond that is not before it."""
    check_type(at, Instant, "an instant")
    return at + -at.at % MILLISECOND


@final
@attrs.frozen(kw_only=True)
class Metering:
    """One question: how many of these may begin?

    Attributes:
        key: The set that they are of.
        rate: Its rate.
        wanted: How many there are.
        behind: How many stand in line behind those, and are not to begin now.
        meters: The collection.
        attempts: How often it asks before it gives up; None for any number.
        pauses: How long it waits in between.
    """

    key: str
    rate: Rate
    wanted: int
    behind: int = 0
    meters: str = "meters"
    attempts: int | None = 4
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "a set of invocations")
        check_type(self.rate, Rate, "a rate")
        check_int(self.wanted, "a number of invocations", 0, FOUND_MAX)
        check_int(self.behind, "a number of invocations in line", 0 if self.wanted else 1, FOUND_MAX)
        check_collection(self.meters)
        check_attempts(self.attempts, self.pauses)

    async def run(self) -> MeteringOutcome:
        """The program.

        Returns:
            How many may begin, and when the others are to come, in whole milliseconds; or that nobody knows.

        Raises:
            Refused: The store refuses for good.
            Misuse: The document is not a meter.
        """
        since = await begins(self.pauses)
        attempt = 0
        while await goes_on(self.pauses, self.attempts, attempt, since):
            attempt += 1
            try:
                found = await find_one(self.meters, Eq(ID, self.key))
                now = await StoreTime()
                if found is None:
                    found = new_meter(self.key, now)
                    if not await insert_new(self.meters, found):
                        continue
                admission = decide_rate(self.rate, meter_of(found), now, self.wanted, self.behind)
                if await self._write(found, now, admission):
                    return attrs.evolve(admission, dues=tuple(map(_whole, admission.dues)))
            except (Ambiguous, NotApplied, NotDurable):
                continue
        return NotMetered(f"no answer in {attempt} attempts")

    async def _write(self, found: Document, now: Instant, admission: Admission) -> bool:
        """Keep what was decided, if the meter is still as it was read; False if it is not."""
        version, meter = needed(found, VERSION), admission.meter
        free_us = meter.free_at.at % MILLISECOND
        return await update_one(
            self.meters,
            AllOf((Eq(ID, self.key), Eq(VERSION, version), Eq(WRITTEN_AT, needed(found, WRITTEN_AT)))),
            Put(VERSION, version + 1),
            Put(FREE_AT, meter.free_at + -free_us),
            Put(FREE_US, free_us),
            Put(LINE_AT, _whole(meter.line_at)),
            Put(ASKED_AT, now),
            PutServerTime(WRITTEN_AT),
            Add(ADMITTED, admission.admitted),
        ) > 0  # fmt: skip
