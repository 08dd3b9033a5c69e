"""Events of a partition."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.consumer.checks.strategies import drain, fanout
from tidegate.consumer.fanout import Arrange, DeliverRecords, DeliverTasks, DeliverWindow, Judge, Start, UserRequest
from tidegate.consumer.flow.drain import Stage
from tidegate.consumer.protocol.commands import (
    Assigned,
    CommitRefused,
    Committed,
    CommitUnknown,
    DrainTimerFired,
    Event,
    Fetched,
    Key,
    Lost,
    Measured,
    MetadataRefused,
    RetryTimerFired,
    Revoked,
    SlotFreed,
    WorkFailed,
    WorkReported,
)
from tidegate.model.records import TopicPartition


def events(topic: str = "topic", partition: int = 0) -> SearchStrategy[Event]:
    """Events of a partition, in any order: of this generation and of others, of offsets that were seen or never.

    Args:
        topic: Its topic.
        partition: Its number.
    """
    where, generation = st.just(TopicPartition(topic, partition)), st.integers(0, 3)
    position, some = st.integers(0, 9), st.lists(st.integers(0, 9), max_size=5).map(tuple)
    answers = (Committed, CommitRefused, CommitUnknown, MetadataRefused)
    return st.one_of(
        st.builds(Assigned, where, generation, position),
        some.flatmap(lambda offsets: st.builds(Fetched, where, generation, st.just(offsets), _keys(len(offsets)))),
        st.builds(WorkReported, where, generation, fanout.events()),
        st.builds(WorkFailed, where, generation, _requests()),
        *(st.builds(kind, where, generation, position) for kind in answers),
        st.builds(DrainTimerFired, where, generation, st.sampled_from(Stage)),
        st.builds(RetryTimerFired, where, generation, st.none() | _starts()),
        st.builds(Measured, where, generation, position, position),
        st.builds(Revoked, where, drain.in_flight()),
        *(st.builds(kind, where) for kind in (Lost, SlotFreed)),
    )


def _starts() -> SearchStrategy[Start]:
    return st.builds(Start, st.integers(0, 2), st.lists(st.integers(0, 9), max_size=3).map(tuple), st.integers(1, 2))


def _requests() -> SearchStrategy[UserRequest]:
    window, some = st.integers(0, 2), st.lists(st.integers(0, 9), max_size=3).map(tuple)
    return st.one_of(
        st.builds(Arrange, window, some),
        *(st.builds(kind, window, some, st.integers(1, 2)) for kind in (Start, Judge, DeliverTasks)),
        st.builds(DeliverRecords, window, some, some),
        st.builds(DeliverWindow, window, fanout.tallies()),
    )


def _keys(count: int) -> SearchStrategy[tuple[Key, ...]]:
    key = st.sampled_from((None, b"", b"k", b"l"))
    return st.one_of(st.just(()), st.lists(key, min_size=count, max_size=count).map(tuple))
