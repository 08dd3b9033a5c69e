"""The third stage of a partition with plain handlers: which handlers run, and which records
deviate.

A record whose first attempt runs has no entry here: it was taken (`tidegate.consumer.partition.ready_queue`), is
open in the tracker, and is not a deviation. Records deviate if they run at a later attempt, wait
for one, or were interrupted. They also deviate if they are answered for, failed for good, or were
left to the next owner. A step costs the size of its event plus the number of deviations.

    runs -- handled --> done, and removed
     |  ^ .
   failed   ' - READY <- BACKING_OFF: retried while attempts are left; or parked, at the same
            attempt
     |
     '--> failed for good: ANSWERED_FOR or FAILED, by the failure policy
    in a drain: LEFT

Laws
    HA1  A report about a record that does not run at that attempt changes nothing.
    HA2  The counts of running, ready, backing-off and answered-for records are exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum, unique
from operator import attrgetter, itemgetter
from typing import Final, final

import attrs

from tidegate.consumer.flow.backpressure import Load
from tidegate.consumer.offsets.watermark import OffsetTracker, is_open
from tidegate.consumer.partition.pending_requests import Asked
from tidegate.consumer.partition.ready_queue import Order
from tidegate.consumer.protocol.commands import Handle
from tidegate.model.instants import Duration
from tidegate.model.sealed import sealed


@final
@unique
class RecordPhase(StrEnum):
    """The state of a record that deviates."""

    RUNNING = "running"
    """At a later attempt, or interrupted."""
    READY = "ready"
    """It waits for an executor for its next attempt."""
    BACKING_OFF = "backing off"
    ANSWERED_FOR = "answered for"
    """It has failed, and user code must answer for it."""
    FAILED = "failed"
    """Its failure is unanswered."""
    LEFT = "left"
    """The next owner handles it again."""


@final
@attrs.frozen
class Deviation:
    """A record that is not simply in its first attempt.

    Attributes:
        phase: Its state.
        attempt: The running, next or last attempt.
        is_interrupted: Whether its handler was interrupted.
        delay: The delay if it was parked, in microseconds; None for that of the back-off.
    """

    offset: int
    phase: RecordPhase
    attempt: int = 1
    is_interrupted: bool = False
    delay: Duration | None = None


@final
@sealed
class Handling:
    """The records in work.

    Attributes:
        running: The number of running handlers.
        deviations: The deviating records, in order of offsets.
        ready: The records that wait for an executor, in order.
        backing_off: The number of records that back off.
        answering: The number of records that user code answers for.
    """

    running: int = 0
    deviations: tuple[Deviation, ...] = ()
    ready: tuple[int, ...] = ()
    backing_off: int = 0
    answering: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether no user code is running."""
        return not self.running and not self.answering

    @property
    def load(self) -> Load:
        """The records with work under way."""
        return Load(running=self.running + len(self.ready) + self.backing_off, delivering=self.answering)

    @property
    def records(self) -> int:
        """The number of records with work under way."""
        return self.running + (len(self.ready) + self.backing_off + self.answering if self.deviations else 0)

    def of(self, offset: int) -> Deviation | None:
        """The entry of a record."""
        at = bisect_left(self.deviations, offset, key=_OFFSET)
        return self.deviations[at] if at < len(self.deviations) and self.deviations[at].offset == offset else None

    def those(self, phase: RecordPhase) -> tuple[Deviation, ...]:
        """The entries in this phase."""
        return tuple([each for each in self.deviations if each.phase is phase])

    def running_of(
        self, order: Order, tracker: OffsetTracker, offsets: tuple[int, ...], attempt: int
    ) -> tuple[int, ...]:
        """Those of the records that run at this attempt, each once."""
        return tuple([each for each in dict.fromkeys(offsets) if self._runs(order, tracker, each, attempt)])

    def _runs(self, order: Order, tracker: OffsetTracker, offset: int, attempt: int) -> bool:
        known = self.of(offset) if self.deviations else None
        if known is not None:
            return known.phase is RecordPhase.RUNNING and known.attempt == attempt
        return attempt == 1 and is_open(tracker, offset) and order.is_taken(offset)

    def ended_of(self, order: Order, tracker: OffsetTracker, offsets: tuple[int, ...], attempt: int) -> tuple[int, ...]:
        """As `running_of`, but it may include records that are done already; so it checks only
        deviations.
        """
        if not offsets or attempt != 1 or not order.all_taken(offsets):
            return self.running_of(order, tracker, offsets, attempt)
        if not self.deviations:
            return offsets
        others = {each.offset for each in self._near(offsets) if not _runs_first(each)}
        return tuple([each for each in offsets if each not in others]) if others else offsets

    def _near(self, offsets: Collection[int]) -> tuple[Deviation, ...]:
        """The entries from the lowest of these offsets to the highest."""
        if not offsets:
            return ()
        first = bisect_left(self.deviations, min(offsets), key=_OFFSET)
        return self.deviations[first : bisect_right(self.deviations, max(offsets), first, key=_OFFSET)]

    def changed(
        self, changes: Mapping[int, Deviation | None], *, running: int = 0, ready: Iterable[int] | None = None
    ) -> Handling:
        """Replace these entries; `running` more handlers run."""
        before, start, after = self.deviations, 0, list[Deviation]()
        backing_off, answering = self.backing_off, self.answering
        for offset, entry in sorted(changes.items(), key=_FIRST):
            at = bisect_left(before, offset, start, key=_OFFSET)
            is_known = at < len(before) and before[at].offset == offset
            was, now = before[at].phase if is_known else None, None if entry is None else entry.phase
            backing_off += (now is RecordPhase.BACKING_OFF) - (was is RecordPhase.BACKING_OFF)
            answering += (now is RecordPhase.ANSWERED_FOR) - (was is RecordPhase.ANSWERED_FOR)
            after += before[start:at] if entry is None else (*before[start:at], entry)
            start = at + is_known
        queue = self.ready if ready is None else tuple(ready)
        return Handling(self.running + running, (*after, *before[start:]), queue, backing_off, answering)

    def begun(self, count: int) -> Handling:
        """Start this many first attempts."""
        return Handling(self.running + count, self.deviations, self.ready, self.backing_off, self.answering)

    def ended(self, count: int, offsets: Collection[int]) -> Handling:
        """Remove these records, which ran."""
        if not self.deviations:
            return self.begun(-count)
        known = {each.offset: None for each in self._near(offsets)}
        return self.changed({offset: None for offset in offsets if offset in known}, running=-count)

    def started(self, most: int) -> tuple[Handling, tuple[Deviation, ...]]:
        """Start at most `most` ready records; returns them too."""
        now = [self._known(offset) for offset in self.ready[:most]]
        begun = tuple([Deviation(each.offset, RecordPhase.RUNNING, each.attempt) for each in now])
        return self.changed({each.offset: each for each in begun}, running=len(begun), ready=self.ready[most:]), begun

    def failed(self, failures: Mapping[int, tuple[RecordPhase, int]]) -> Handling:
        """These ran and failed: their next phase and attempt."""
        entries = {offset: Deviation(offset, phase, attempt) for offset, (phase, attempt) in failures.items()}
        return self.changed(entries, running=-len(entries))

    def parked(self, offsets: Collection[int], attempt: int, delay: Duration) -> Handling:
        """These ran, and wait to be called again at the same attempt."""
        waits = {each: Deviation(each, RecordPhase.BACKING_OFF, attempt, delay=delay) for each in offsets}
        return self.changed(waits, running=-len(waits))

    def rested(self, offset: int) -> Handling:
        """The back-off of this record is over."""
        now = Deviation(offset, RecordPhase.READY, self._known(offset).attempt)
        return self.changed({offset: now}, ready=(*self.ready, offset))

    def not_ready(self) -> Handling:
        """Leave the ready records to the next owner."""
        if not self.ready:
            return self
        return self.changed({each: Deviation(each, RecordPhase.LEFT) for each in self.ready}, ready=())

    def without_retries(self) -> Handling:
        """Leave the backing-off records to the next owner."""
        waits = [each.offset for each in self.those(RecordPhase.BACKING_OFF)]
        return self.changed({each: Deviation(each, RecordPhase.LEFT) for each in waits}) if waits else self

    def ending(self, interrupted: Collection[Asked], abandoned: Collection[Asked]) -> Handling:
        """Mark the first as interrupted, and leave the others to the next owner."""
        entries: dict[int, Deviation | None] = {}
        for each in interrupted:
            request, (offset,) = each.work.request, each.work.offsets
            phase, attempt = RecordPhase.ANSWERED_FOR, 1
            if isinstance(request, Handle):
                phase, attempt = RecordPhase.RUNNING, request.attempt
            entries[offset] = Deviation(offset, phase, attempt, is_interrupted=True)
        for each in abandoned:
            entries[each.work.offsets[0]] = Deviation(each.work.offsets[0], RecordPhase.LEFT)
        return self.changed(entries, running=-sum(isinstance(each.work.request, Handle) for each in abandoned))

    def _known(self, offset: int) -> Deviation:
        known = self.of(offset)
        assert known is not None, "what is not at its first attempt has an entry"
        return known


def _runs_first(each: Deviation) -> bool:
    return each.phase is RecordPhase.RUNNING and each.attempt == 1


_OFFSET: Final = attrgetter("offset")
_FIRST: Final = itemgetter(0)
