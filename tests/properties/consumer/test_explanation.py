from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.consumer.watermark_helpers import Case, cases, tracked
from tests.properties.lawbook import bug, planted

from tidegate.consumer.checks.laws import explanation as laws
from tidegate.consumer.checks.strategies.explanation import work
from tidegate.consumer.checks.strategies.watermark import trackers
from tidegate.consumer.offsets import explanation, watermark
from tidegate.consumer.offsets.explanation import (
    Abandoned,
    Blocked,
    DuplicateBudget,
    WorkStatus,
)
from tidegate.consumer.offsets.watermark import OFFSET_MAX, OffsetTracker
from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Instant

NOW = Instant(50)


# --- the laws -----------------------------------------------------------------------------------------------------------


@given(trackers(), st.data())
@example(tracked(3, 5, 6, 9, completed=(5, 6)), None)
@example(tracked(3, 5, completed=(5,)), None)
@example(tracked(4), None)
def test_w13_what_is_explained_happens(tracker: OffsetTracker, data: st.DataObject | None) -> None:
    works = {3: WorkStatus("running", Instant(20), 2)} if data is None else data.draw(work(tracker))
    said = explanation.explain(tracker, works, NOW)

    assert laws.explains_what_happens(tracker, works, NOW, said)

    if isinstance(said, (Blocked, Abandoned)):
        after = watermark.completed(tracker, (said.offset,))

        assert (watermark.low_watermark(tracker), watermark.low_watermark(after)) == (
            said.position,
            said.after,
        )


@given(cases(), st.booleans(), st.data())
@example(Case(tracked(3, 4, 5, 6, completed=(4,)), (5, 6), 0), True, None)
def test_w14_replays_are_counted(case: Case, of_itself: bool, data: st.DataObject | None) -> None:
    stop = OFFSET_MAX + 1 if data is None else data.draw(st.sampled_from((0, case.position, OFFSET_MAX + 1)))
    successor = watermark.successor(case.tracker, stop) if of_itself or data is None else data.draw(trackers())
    later = watermark.completed(watermark.delivered(case.tracker, case.offsets), case.offsets[::2])
    begun = case.offsets[1::2]

    assert laws.counts_what_would_be_replayed(
        later, successor, begun, explanation.duplicate_budget(later, successor, begun)
    )


# --- planted bugs -------------------------------------------------------------------------------------------------------

AFTER = "low_watermark(completed(tracker, (first,)))"

test_a_planted_bug_is_found = planted(
    explanation,
    bug(
        "up to the next open", (AFTER, f"oldest_open(completed(tracker, (first,))) or {AFTER}"),
        test_w13_what_is_explained_happens,
    ),
    bug(
        "freed in numbers",
        ("tracked_from(tracker.pages, position) - tracked_from(tracker.pages, after)", "after - position"),
        test_w13_what_is_explained_happens,
    ),
    bug(
        "silent about the abandoned", ("work.get(first)", 'work.get(first, WorkStatus("queued", now))'),
        test_w13_what_is_explained_happens,
    ),
    # It ignores restored offsets.
    bug(
        "all that is done", ("OFFSET_MAX + 1) & ~bits_at(successor.pages, page)[1]", "OFFSET_MAX + 1)"),
        test_w14_replays_are_counted,
    ),
    bug("whatever is open", ("[0] & bits &", "[0] &"), test_w14_replays_are_counted),
)  # fmt: skip


# --- examples -----------------------------------------------------------------------------------------------------------


def test_the_blocking_offset_is_explained() -> None:
    tracker = tracked(3, 4, 5, 6, 7, 8, 9, 11, completed=(3, 5, 6, 7, 9, 11))
    works = {4: WorkStatus("running", Instant(5_000_000), 2)}
    now = Instant(15_000_000)
    later = watermark.completed(tracker, (4,))
    done = watermark.completed(later, (8,))

    assert Blocked(4, works[4], 10_000_000, 4, 8, 4) == explanation.explain(tracker, works, now)
    assert [str(explanation.explain(each, works, now)) for each in (tracker, later, done)] == [
        "4 waits for 4, running for 10 s, attempt 2; then 8, which settles 4",
        "8 waits for 8, which nobody works on; then 12, which settles 3",
        "nothing is open, 12 may be committed",
    ]
    assert str(explanation.explain(tracker, {4: WorkStatus("queued", now)}, now)).startswith(
        "4 waits for 4, queued for 0 s; "
    )


def test_a_clock_that_went_back_makes_no_negative_age() -> None:
    said = explanation.explain(tracked(3), {3: WorkStatus("running", Instant(9))}, Instant(5))

    assert isinstance(said, Blocked)
    assert said.age == 0


def test_the_budget_is_what_the_next_owner_would_do_again() -> None:
    """Of 3 to 9, 4, 6 and 7 are done; 3 was committed, with metadata for 4."""
    before = tracked(3, 4, 5, 6, 7, 8, 9, completed=(4,))
    now = watermark.completed(before, (6, 7))
    budget = explanation.duplicate_budget(now, watermark.successor(before), (5,))

    assert budget == DuplicateBudget(finished=2, begun=1)
    assert str(budget) == "3 records would be replayed: 2 done, 1 under way"
    assert explanation.duplicate_budget(now, watermark.successor(now)).records == 0


# --- misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [None, 5, "tracker", (0, 0, ())])
def test_what_is_not_a_tracker_is_refused(bad: OffsetTracker) -> None:
    asked: list[Callable[[], object]] = [
        partial(explanation.explain, bad, {}, NOW),
        partial(explanation.duplicate_budget, bad, OffsetTracker(0)),
        partial(explanation.duplicate_budget, OffsetTracker(0), bad),
    ]
    for ask in asked:
        with pytest.raises(Misuse, match="is not a tracker"):
            ask()


def test_what_explains_nothing_is_refused() -> None:
    tracker, bad = tracked(3), WorkStatus("running", Instant(0, WALL))
    for works, now in (({3: bad}, NOW), ({3: "running"}, NOW), (None, NOW), ([3], NOW), ({}, 5)):
        with pytest.raises(Misuse):
            explanation.explain(tracker, works, now)  # type: ignore[arg-type]
    made: list[Callable[[], WorkStatus]] = [
        lambda: WorkStatus("", NOW),
        lambda: WorkStatus("running", NOW, -1),
        lambda: WorkStatus("running", NOW, True),
        lambda: WorkStatus("running", 5),  # type: ignore[arg-type]
        lambda: WorkStatus(None, NOW),  # type: ignore[arg-type]
    ]
    for make in made:
        with pytest.raises(Misuse):
            make()


def test_the_lag_is_what_lies_between_the_commit_and_the_end() -> None:
    begun = watermark.completed(watermark.delivered(OffsetTracker(3), (3, 4, 5)), (3, 4))

    assert explanation.lag(begun, 10) == 7
    assert explanation.lag(watermark.acknowledged(begun, 5), 10) == 5
    assert explanation.lag(OffsetTracker(0), 10) is None
    assert explanation.lag(watermark.delivered(OffsetTracker(0), (1_000, 1_001)), 1_010) == 10
    assert explanation.lag(begun, 4) == 1
    with pytest.raises(Misuse):
        explanation.lag(begun, -1)


def test_nobody_is_behind_for_what_no_client_hands_out() -> None:
    """Once all delivered records are committed, the read position of the log counts."""
    delivered = watermark.delivered(OffsetTracker(3), (3, 4))
    done = watermark.completed(delivered, (3, 4))

    assert explanation.lag(watermark.acknowledged(done, 5), 7, 7) == 0
    assert explanation.lag(watermark.acknowledged(done, 5), 7, 6) == 1
    assert explanation.lag(watermark.acknowledged(done, 5), 7, 4) == 2
    assert explanation.lag(done, 7, 7) == 4
    assert explanation.lag(watermark.acknowledged(watermark.completed(delivered, (3,)), 4), 7, 7) == 3
    assert explanation.lag(OffsetTracker(3), 7, 7) == 0
    assert explanation.lag(OffsetTracker(0), 7, 7) == 0
    with pytest.raises(Misuse):
        explanation.lag(done, 7, -1)
