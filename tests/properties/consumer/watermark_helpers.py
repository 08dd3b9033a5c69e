from __future__ import annotations

from collections.abc import Iterable

import attrs
from hypothesis import strategies as st

from tidegate.consumer.checks.strategies.watermark import SPOTS, positions, trackers
from tidegate.consumer.offsets import watermark
from tidegate.consumer.offsets.watermark import OffsetTracker, done_offsets, open_offsets


@attrs.frozen
class Case:
    tracker: OffsetTracker
    offsets: tuple[int, ...]
    position: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    tracker = draw(trackers())
    known = (*open_offsets(tracker), *done_offsets(tracker))
    stock = [*known, *draw(st.lists(SPOTS, min_size=0 if known else 1, max_size=3))]
    return Case(tracker, tuple(draw(st.lists(st.sampled_from(stock), max_size=9))), draw(positions(stock)))


def tracked(*offsets: int, completed: Iterable[int] = ()) -> OffsetTracker:
    return watermark.completed(watermark.delivered(OffsetTracker(0), offsets), completed)
