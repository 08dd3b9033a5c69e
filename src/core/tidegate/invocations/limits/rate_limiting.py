"""Apply a rate limit (`tidegate.invocations.limits.rate_limit`) to a set: read, decide, write one document.

    {_id: "<the set>", version, free_at, free_us, line_at, asked_at, written_at, admitted}

    1  read the meter, THEN the store's time, and decide
    2  write it, if it is still as read. After a miss another process was faster: begin again

Only the store's clock counts. With local clocks, each jump would admit one more burst, and two
clocks half a minute apart would delay one process by that, or none. The time is read before the
write, so a process that stalls in between admits later than that time. So the write holds two
times, the one read and its own (`$currentDate`). The bucket was fuller by their difference, and the
next reader adds it.

A spent meter is deleted (`tidegate.invocations.upkeep.pruning`), and its successor begins at version 1.
So the write also checks the last write time: a successor has a later one.

A request without a reply is repeated as a new one. If it was done, its admissions are lost: fewer
begin than might, never more. Without any reply no run begins, and the invocations stay due.

Laws
    MT1  For each set GC1 holds, by the instants at which meters are written, despite failures of
         processes, requests and replies, and despite stalls.
    MT2  Every reported admission was counted.
    MT3  Without a fault or a competitor it costs three requests, and one more for a new meter.

Known not to work
    - An admitted run begins with the next request of its process. If that stalls, it begins late,
      on top of those admitted meanwhile.
    - All requests for one set write one document: some hundred times a second. Each may admit as
      many as a request takes.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.rate_limit import Admission, Meter, Rate, decide_rate
from tidegate.invocations.record.record_documents import VERSION
from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Field, Put, PutServerTime
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, check_collection, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on

FREE_AT: Final = Field[Instant]("free_at")
FREE_US: Final = Field[int]("free_us")
"""The microseconds of `free_at`; documents keep only milliseconds."""
LINE_AT: Final = Field[Instant]("line_at")
ASKED_AT: Final = Field[Instant]("asked_at")
WRITTEN_AT: Final = Field[Instant]("written_at")
ADMITTED: Final = Field[int]("admitted")
"""The total number admitted."""


@final
@attrs.frozen
class NotMetered:
    """No reply: no run may begin."""

    reason: str


MeteringOutcome: TypeAlias = Admission | NotMetered


def new_meter(key: str, now: Instant) -> Document:
    """The document of a new meter."""
    check_name(key, "a set of invocations")
    at = _whole(now)
    return Document.of({
        "_id": key, "version": 1, "free_at": at, "free_us": 0, "line_at": at, "asked_at": at, "written_at": at, "admitted": 0,
    })  # fmt: skip


def meter_of(record: Document) -> Meter:
    """The state as written.

    Raises:
        Misuse: It is not a meter.
    """
    stood = max(needed(record, WRITTEN_AT) - needed(record, ASKED_AT), 0)
    return Meter(needed(record, FREE_AT) + needed(record, FREE_US) + stood, needed(record, LINE_AT))


def _whole(at: Instant) -> Instant:
    """Round up to a millisecond."""
    check_type(at, Instant, "an instant")
    return at + -at.at % MILLISECOND


@final
@attrs.frozen(kw_only=True)
class Metering:
    """One command: admit some of a set.

    Attributes:
        key: The set.
        rate: Its rate.
        wanted: How many would begin.
        behind: How many more only line up behind those.
        meters: The collection.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.
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
        """Admit and count.

        Returns:
            How many may begin, and the return times of the others, in whole milliseconds; or
            `NotMetered`.

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
        """Write the new state; False if the meter is no longer as read."""
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
