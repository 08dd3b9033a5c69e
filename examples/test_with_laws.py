"""Use a law and a strategy of tidegate in a test of your own: here, of somebody else's offset tracker.

Run it with pytest; it needs `pip install 'tidegate[hypothesis]' pytest`.
"""

from __future__ import annotations

from hypothesis import given, settings

from tidegate import laws
from tidegate.strategies import deliveries


class YourTracker:
    """Stands for the tracker in your service. It is right; make it wrong, and the law will tell."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.highest = -1

    def deliver(self, offset: int) -> None:
        if offset > self.highest:
            self.open.add(offset)
            self.highest = offset

    def complete(self, offset: int) -> None:
        self.open.discard(offset)

    def committable(self) -> int:
        return min(self.open) if self.open else self.highest + 1


@settings(max_examples=50, deadline=None)
@given(deliveries())
def test_your_tracker_never_commits_unfinished_work(batches: tuple[tuple[int, ...], ...]) -> None:
    """Law P1: every record below the committed position was processed."""
    tracker, delivered, processed = YourTracker(), set[int](), set[int]()
    for batch in batches:
        for offset in batch:
            tracker.deliver(offset)
            delivered.add(offset)
        for offset in batch[::2]:
            tracker.complete(offset)
            processed.add(offset)
        assert laws.partition.committed_is_finished(tracker.committable(), delivered, processed)
