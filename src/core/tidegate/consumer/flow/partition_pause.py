"""The last stage of a partition: whether it is held by its own limits, and whether a fetch is in
flight.

It compares the partition's backlog with its limits (`tidegate.consumer.flow.backpressure`). The
partition fetches if it is free and no fetch is in flight (P6). While the whole span of the tracker
is below the limit, it counts no records.
"""

from __future__ import annotations

from typing import final

import attrs

from tidegate.consumer.flow.backpressure import (
    Free,
    PartitionHold,
    PartitionLimits,
    PartitionPressure,
    decide_partition,
)
from tidegate.consumer.offsets.watermark import OffsetTracker, pending, span
from tidegate.model.instants import Duration
from tidegate.model.sealed import sealed


@final
@sealed
class Holding:
    """The backlog of the partition, and whether it is held for it.

    Attributes:
        hold: Whether it is held by its own limits.
        fetching: The position of the fetch in flight.
        size: The bytes of the undone records, as last measured.
        age: The time since the oldest undone one arrived, as last measured.
    """

    hold: PartitionHold = Free()
    fetching: int | None = None
    size: int = 0
    age: Duration = 0

    def at(self, fetching: int | None) -> Holding:
        """Set the position of the fetch in flight."""
        return Holding(self.hold, fetching, self.size, self.age)

    def decided(self, limits: PartitionLimits, tracker: OffsetTracker, metadata: int) -> Holding:
        """Decide the hold for this tracker and this many units of metadata."""
        hold: PartitionHold
        if type(self.hold) is Free and self._is_far(limits, tracker, metadata):
            return self
        if not pending(tracker):  # without undone records there is no backlog
            hold = decide_partition(limits, self.hold, PartitionPressure())
        else:
            pressure = PartitionPressure(span=span(tracker), size=self.size, age=self.age, metadata=metadata)
            hold = decide_partition(limits, self.hold, pressure)
        return self if hold == self.hold else attrs.evolve(self, hold=hold)

    def _is_far(self, limits: PartitionLimits, tracker: OffsetTracker, metadata: int) -> bool:
        """Whether no signal can have reached its limit."""
        return (
            (limits.span is None or tracker.frontier - tracker.floor < limits.span.high)
            and (limits.size is None or self.size < limits.size.high)
            and (limits.age is None or self.age < limits.age.high)
            and (limits.metadata is None or metadata < limits.metadata.high)
        )
