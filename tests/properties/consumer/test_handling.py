"""Running records, and records in another state."""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.offsets.watermark import OffsetTracker, completed, delivered, is_open
from tidegate.consumer.partition.in_flight_records import Deviation, Handling, RecordPhase
from tidegate.consumer.partition.ready_queue import Queue

RECORDS: Final = 6
TRACKER: Final = completed(delivered(OffsetTracker(0), range(RECORDS + 2)), (1,))
ORDER: Final = Queue(RECORDS, waiting=2)
HANDLINGS: Final = st.dictionaries(
    st.sampled_from((0, 2, 3, 4, 5)), st.tuples(st.sampled_from(RecordPhase), st.integers(1, 2))
).map(
    lambda phases: Handling(
        RECORDS - 1 - sum(phase is not RecordPhase.RUNNING for phase, _ in phases.values())
    ).changed(
        {offset: Deviation(offset, phase, attempt) for offset, (phase, attempt) in phases.items()},
        ready=[offset for offset, (phase, _) in phases.items() if phase is RecordPhase.READY],
    )
)


def runs(work: Handling, offset: int) -> int | None:
    if offset >= RECORDS or offset == 1:
        return None
    known = next((each for each in work.deviations if each.offset == offset), Deviation(offset, RecordPhase.RUNNING))
    return known.attempt if known.phase is RecordPhase.RUNNING else None


@given(HANDLINGS, st.lists(st.integers(0, RECORDS + 2), max_size=9).map(tuple), st.integers(1, 2))
def test_what_does_not_run_is_not_reported(work: Handling, offsets: tuple[int, ...], attempt: int) -> None:
    """Law HA1. A question about ended records may include done ones."""
    named = work.running_of(ORDER, TRACKER, offsets, attempt)

    assert [*named] == [offset for offset in dict.fromkeys(offsets) if runs(work, offset) == attempt]
    ended = work.ended_of(ORDER, TRACKER, offsets, attempt)
    assert {*named} == {offset for offset in ended if is_open(TRACKER, offset)}


@given(HANDLINGS, st.data())
def test_it_counts_what_it_has(work: Handling, data: st.DataObject) -> None:
    """Law HA2."""
    counts_right(work)
    able = [offset for offset in range(RECORDS) if runs(work, offset) is not None]
    some = tuple(data.draw(st.lists(st.sampled_from(able), unique=True))) if able else ()
    attempt = {offset: runs(work, offset) or 1 for offset in some}
    counts_right(work.ended(len(some), some), {*some})
    for phase in (RecordPhase.BACKING_OFF, RecordPhase.ANSWERED_FOR, RecordPhase.FAILED, RecordPhase.LEFT):
        counts_right(work.failed({offset: (phase, attempt[offset]) for offset in some}))
    started, begun = work.started(2)
    counts_right(started)
    assert [each.offset for each in begun] == [*work.ready[:2]]
    for each in work.those(RecordPhase.BACKING_OFF):
        counts_right(work.rested(each.offset))


def counts_right(work: Handling, done: frozenset[int] | set[int] = frozenset()) -> None:
    phases = Counter(each.phase for each in work.deviations)
    running = sum(runs(work, offset) is not None for offset in {*range(RECORDS)} - done)
    ready, backing_off = phases[RecordPhase.READY], phases[RecordPhase.BACKING_OFF]
    assert (work.running, len(work.ready), work.backing_off) == (running, ready, backing_off), "HA2"
    assert work.answering == phases[RecordPhase.ANSWERED_FOR], "HA2"
    assert work.records == work.load.records == running + ready + backing_off + work.answering
    assert work.is_idle is (not running and not work.answering)
    assert [each.offset for each in work.deviations] == sorted(each.offset for each in work.deviations)


def test_a_count_that_is_not_kept_is_caught() -> None:
    """Law HA2. Planted bug: an answered failure counts as running."""
    work = Handling(RECORDS - 1).failed({0: (RecordPhase.ANSWERED_FOR, 1)})
    with pytest.raises(AssertionError, match="HA2"):
        counts_right(attrs.evolve(work, running=work.running + 1))


def test_another_attempt_that_is_believed_is_caught() -> None:
    """Law HA1. Planted bug: a report of the first attempt counts for the second."""
    work = Handling(RECORDS - 1).changed({0: Deviation(0, RecordPhase.RUNNING, 2)})
    assert (work.running_of(ORDER, TRACKER, (0,), 1), work.running_of(ORDER, TRACKER, (0,), 2)) == ((), (0,))
