"""Which records have a handler running, and which of them are out of the ordinary?

This is the third stage of a partition where each record has a handler and no more. A record whose first attempt runs has no
entry here: it is one that was taken (`tidegate.consumer.order`), is open in the tracker, and is none of those that have an
entry. Only what deviates has one: what runs at a later attempt, waits for one, was interrupted, is answered for, has failed
for good, or was left to the next owner. So a step costs what it is told, and what there is of the deviating.

    runs -- handled --> done, and gone from here
     |  ^ .
   failed   ' - READY <- BACKING_OFF: tried again, as often as it may be; or as it was parked, at the same attempt
     |
     '--> has failed for good, and the partition says what follows: ANSWERED_FOR, or FAILED
    in a drain: LEFT

Laws
    HA1  Of what is reported, what does not run at that attempt changes nothing.
    HA2  What runs, is ready, backs off and is answered for is counted as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum, unique
from operator import attrgetter, itemgetter
from typing import Final, final

import attrs

from tidegate.consumer.backpressure import Load
from tidegate.consumer.commands import Handle
from tidegate.consumer.order import Order
from tidegate.consumer.outstanding import Asked
from tidegate.consumer.watermark import OffsetTracker, is_open
from tidegate.model.instants import Duration
from tidegate.model.sealed import sealed


@final
@unique
class RecordPhase(StrEnum):
    """How a record that deviates is doing."""

    RUNNING = "running"
    """At a later attempt, or it was interrupted."""
    READY = "ready"
    """It is to be tried again, and waits for an executor."""
    BACKING_OFF = "backing off"
    ANSWERED_FOR = "answered for"
    """It has failed, and user code is asked to answer for it."""
    FAILED = "failed"
    """Its failure stands."""
    LEFT = "left"
    """Nothing is expected of it: the next owner does it again."""


@final
@attrs.frozen
class Deviation:
    """A record that is out of the ordinary.

    Attributes:
        offset: Which one.
        phase: How it is doing.
        attempt: Which attempt at it runs, is to come, or was the last.
        is_interrupted: Whether its handler was asked to end.
        delay: How long it waits where it was parked; None where the back-off says so.
    """

    offset: int
    phase: RecordPhase
    attempt: int = 1
    is_interrupted: bool = False
    delay: Duration | None = None


@final
@sealed
class Handling:
    """What is in work.

    Attributes:
        running: How many handlers run.
        deviations: What is out of the ordinary, in order of offsets.
        ready: What waits for an executor, in order.
        backing_off: How many back off.
        answering: How many are answered for.
    """

    running: int = 0
    deviations: tuple[Deviation, ...] = ()
    ready: tuple[int, ...] = ()
    backing_off: int = 0
    answering: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether user code is asked for nothing."""
        return not self.running and not self.answering

    @property
    def load(self) -> Load:
        """The records that something is under way for."""
        return Load(running=self.running + len(self.ready) + self.backing_off, delivering=self.answering)

    @property
    def records(self) -> int:
        """How many those are."""
        return self.running + (len(self.ready) + self.backing_off + self.answering if self.deviations else 0)

    def of(self, offset: int) -> Deviation | None:
        """The entry of a record."""
        at = bisect_left(self.deviations, offset, key=_OFFSET)
        return self.deviations[at] if at < len(self.deviations) and self.deviations[at].offset == offset else None

    def those(self, phase: RecordPhase) -> tuple[Deviation, ...]:
        """The entries of the records that are doing so."""
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
        """The same, where it does not matter if what is done already is named as well: only what deviates is looked at."""
        if not offsets or attempt != 1 or not order.all_taken(offsets):
            return self.running_of(order, tracker, offsets, attempt)
        if not self.deviations:
            return offsets
        others = {each.offset for each in self._near(offsets) if not _runs_first(each)}
        return tuple([each for each in offsets if each not in others]) if others else offsets

    def _near(self, offsets: Collection[int]) -> tuple[Deviation, ...]:
        """The entries from the lowest of these to the highest."""
        if not offsets:
            return ()
        first = bisect_left(self.deviations, min(offsets), key=_OFFSET)
        return self.deviations[first : bisect_right(self.deviations, max(offsets), first, key=_OFFSET)]

    def changed(
        self, changes: Mapping[int, Deviation | None], *, running: int = 0, ready: Iterable[int] | None = None
    ) -> Handling:
        """With these entries in the place of theirs, and so many more handlers running."""
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
        """With so many first attempts running, too."""
        return Handling(self.running + count, self.deviations, self.ready, self.backing_off, self.answering)

    def ended(self, count: int, offsets: Collection[int]) -> Handling:
        """Without these, so many, which ran."""
        if not self.deviations:
            return self.begun(-count)
        known = {each.offset: None for each in self._near(offsets)}
        return self.changed({offset: None for offset in offsets if offset in known}, running=-count)

    def started(self, most: int) -> tuple[Handling, tuple[Deviation, ...]]:
        """What is ready runs, at most so many; which."""
        now = [self._known(offset) for offset in self.ready[:most]]
        begun = tuple([Deviation(each.offset, RecordPhase.RUNNING, each.attempt) for each in now])
        return self.changed({each.offset: each for each in begun}, running=len(begun), ready=self.ready[most:]), begun

    def failed(self, failures: Mapping[int, tuple[RecordPhase, int]]) -> Handling:
        """These ran and have failed: what becomes of them, and which attempt is next."""
        entries = {offset: Deviation(offset, phase, attempt) for offset, (phase, attempt) in failures.items()}
        return self.changed(entries, running=-len(entries))

    def parked(self, offsets: Collection[int], attempt: int, delay: Duration) -> Handling:
        """These ran, and wait to be called again at the same attempt."""
        waits = {each: Deviation(each, RecordPhase.BACKING_OFF, attempt, delay=delay) for each in offsets}
        return self.changed(waits, running=-len(waits))

    def rested(self, offset: int) -> Handling:
        """What backed off is ready."""
        now = Deviation(offset, RecordPhase.READY, self._known(offset).attempt)
        return self.changed({offset: now}, ready=(*self.ready, offset))

    def not_ready(self) -> Handling:
        """Without what waits for an executor, which is left to the next owner."""
        if not self.ready:
            return self
        return self.changed({each: Deviation(each, RecordPhase.LEFT) for each in self.ready}, ready=())

    def without_retries(self) -> Handling:
        """Without what backs off, which is left to the next owner."""
        waits = [each.offset for each in self.those(RecordPhase.BACKING_OFF)]
        return self.changed({each: Deviation(each, RecordPhase.LEFT) for each in waits}) if waits else self

    def ending(self, interrupted: Collection[Asked], abandoned: Collection[Asked]) -> Handling:
        """With the first asked to end, and nothing expected of the others any more."""
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
    """Whether its first attempt runs."""
    return each.phase is RecordPhase.RUNNING and each.attempt == 1


_OFFSET: Final = attrgetter("offset")
_FIRST: Final = itemgetter(0)
