"""How work on the open offsets of a tracker may be doing."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tidegate.consumer.offsets.explanation import WorkStatus
from tidegate.consumer.offsets.watermark import OffsetTracker, open_offsets
from tidegate.model.instants import STORE, ClockName, Instant


@st.composite
def work(draw: DrawFn, tracker: OffsetTracker, clock: ClockName = STORE) -> dict[int, WorkStatus]:
    """How the open offsets of the tracker may be doing, timed on the clock; now and then nobody works on one."""
    states = st.sampled_from(("queued", "running", "delivering", "backing off"))
    works = st.builds(WorkStatus, states, st.integers(0, 99).map(lambda at: Instant(at, clock)), st.integers(0, 3))
    opened = open_offsets(tracker)
    return draw(st.dictionaries(st.sampled_from(opened), works)) if opened else {}
