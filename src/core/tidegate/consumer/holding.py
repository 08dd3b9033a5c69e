"""Is the partition held on its own account, and is it fetched from?

This is the last stage of a partition (`tidegate.consumer.partition`). It looks at what the partition holds up
(`tidegate.consumer.backpressure`), and the partition asks for the next records where it is free and waits for none (its law P6).
Where the whole span of the tracker is below the limit, nothing is counted.
"""

from __future__ import annotations

from typing import final

import attrs

from tidegate.consumer.backpressure import Free, PartitionHold, PartitionLimits, PartitionPressure, decide_partition
from tidegate.consumer.watermark import OffsetTracker, pending, span
from tidegate.model.instants import Duration
from tidegate.model.sealed import sealed


@final
@sealed
class Holding:
    """What the partition holds up, and whether it is held for that.

    Attributes:
        hold: Whether it is held on its own account.
        fetching: The position of the fetch in flight.
        size: How many bytes the undone records take, as last measured.
        age: How long ago the oldest undone one came, likewise.
    """

    hold: PartitionHold = Free()
    fetching: int | None = None
    size: int = 0
    age: Duration = 0

    def at(self, fetching: int | None) -> Holding:
        """With the fetch in flight at this position."""
        return Holding(self.hold, fetching, self.size, self.age)

    def decided(self, limits: PartitionLimits, tracker: OffsetTracker, metadata: int) -> Holding:
        """Held or free, now that this is undone, and its metadata takes so many units."""
        hold: PartitionHold
        if type(self.hold) is Free and self._is_far(limits, tracker, metadata):
            return self
        if not pending(tracker):  # where nothing is undone, nothing is held up
            hold = decide_partition(limits, self.hold, PartitionPressure())
        else:
            pressure = PartitionPressure(span=span(tracker), size=self.size, age=self.age, metadata=metadata)
            hold = decide_partition(limits, self.hold, pressure)
        return self if hold == self.hold else attrs.evolve(self, hold=hold)

    def _is_far(self, limits: PartitionLimits, tracker: OffsetTracker, metadata: int) -> bool:
        """Whether nothing can have reached its limit."""
        return (
            (limits.span is None or tracker.frontier - tracker.floor < limits.span.high)
            and (limits.size is None or self.size < limits.size.high)
            and (limits.age is None or self.age < limits.age.high)
            and (limits.metadata is None or metadata < limits.metadata.high)
        )
