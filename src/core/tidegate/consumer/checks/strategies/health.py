"""What looks at a worker show, one after the other."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.consumer.worker.health import Cause, Sight
from tidegate.model.instants import Instant
from tidegate.model.records import TopicPartition

_PARTITIONS: Final = (TopicPartition("orders", 0), TopicPartition("orders", 1))


def _sight(partition: TopicPartition) -> SearchStrategy[Sight]:
    """Few places, so that a partition often stands."""
    position = st.sampled_from([5, 5, 5, 6, None])
    causes = st.lists(st.sampled_from(Cause), unique=True, max_size=2).map(tuple)
    return st.builds(
        Sight, st.just(partition), st.sampled_from([1, 1, 1, 2]), position, st.sampled_from([True, True, False]), causes
    )


@st.composite
def sights(draw: DrawFn) -> tuple[Sight, ...]:
    """What a look shows of two partitions, of one or of none."""
    return tuple(draw(_sight(each)) for each in _PARTITIONS if draw(st.sampled_from([True, True, True, False])))


@st.composite
def looks(draw: DrawFn) -> list[tuple[Instant, tuple[Sight, ...]]]:
    """Up to six looks, in order, some of them at the same time."""
    times = sorted(draw(st.lists(st.integers(0, 20), min_size=1, max_size=6)))
    return [(Instant(at), draw(sights())) for at in times]
