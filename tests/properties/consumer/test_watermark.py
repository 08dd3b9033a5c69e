from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import pairwise, product

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.consumer.watermark_helpers import Case, cases, tracked
from tests.properties.lawbook import bug, planted

from tidegate.consumer.checks.laws import watermark as laws
from tidegate.consumer.checks.strategies.watermark import SPOTS, known_done, trackers
from tidegate.consumer.offsets import watermark
from tidegate.consumer.offsets._pages import PAGE
from tidegate.consumer.offsets.watermark import (
    KNOWN_DONE_MAX,
    OFFSET_MAX,
    OffsetTracker,
    Run,
    done_offsets,
    open_offsets,
    restored,
)
from tidegate.model.errors import Misuse


@attrs.frozen
class Twin:
    floor: int
    opened: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    frontier: int = attrs.field(default=attrs.Factory(lambda self: self.floor, takes_self=True))

    def delivered(self, offsets: Iterable[int]) -> Twin:
        seen = {offset for offset in offsets if offset >= self.floor}
        frontier = max([self.frontier, *(offset + 1 for offset in seen)])
        return attrs.evolve(self, opened=self.opened | (seen - self.done), frontier=frontier)

    def completed(self, offsets: Iterable[int]) -> Twin:
        finished = self.opened & {*offsets}
        return attrs.evolve(self, opened=self.opened - finished, done=self.done | finished)

    def acknowledged(self, position: int) -> Twin:
        floor = max(self.floor, min(position, self.committable() or self.floor))
        return attrs.evolve(self, floor=floor, done=frozenset(offset for offset in self.done if offset >= floor))

    def committable(self) -> int | None:
        oldest_open = min(self.opened, default=self.frontier)
        return max((offset + 1 for offset in self.done if offset < oldest_open), default=None)

    def contents(self) -> laws.Contents:
        return self.floor, self.frontier, tuple(sorted(self.opened)), tuple(sorted(self.done))


# --- the laws -----------------------------------------------------------------------------------------------------------


@given(cases())
def test_w1_commits_pass_nothing_open(case: Case) -> None:
    assert laws.passes_nothing_open(case.tracker, watermark.committable(case.tracker))


@given(cases())
@example(Case(tracked(5, 9, PAGE, completed=(5, 9)), (), 0))
def test_w2_commits_go_as_far_as_they_may(case: Case) -> None:
    assert laws.is_the_highest(case.tracker, watermark.committable(case.tracker))


@given(cases())
def test_w3_the_floor_rises(case: Case) -> None:
    for after in (
        watermark.delivered(case.tracker, case.offsets),
        watermark.completed(case.tracker, case.offsets),
        watermark.acknowledged(case.tracker, case.position),
    ):
        assert laws.floor_rises(case.tracker, after)


@given(st.lists(SPOTS, min_size=1, max_size=9, unique=True), st.data())
def test_w4_order_and_batches_do_not_matter(offsets: list[int], data: st.DataObject) -> None:
    work = [(offset, kind) for offset in offsets for kind in ("delivered", "completed")]
    left = data.draw(st.permutations(work))
    done = data.draw(st.frozensets(st.sampled_from(offsets)))
    whole = watermark.completed(watermark.delivered(OffsetTracker(0), offsets), [*done])
    pieces = OffsetTracker(0)
    while left:
        size = data.draw(st.integers(1, 3))
        batch, left = left[:size], left[size:]
        fetched = [offset for offset, kind in batch if kind == "delivered" or (offset, "delivered") in left]
        left = [(offset, kind) for offset, kind in left if kind == "completed" or offset not in fetched]
        pieces = watermark.delivered(pieces, fetched)
        pieces = watermark.completed(
            pieces, [offset for offset, kind in batch if kind == "completed" and offset in done]
        )

    assert laws.order_does_not_matter(whole, pieces)


@given(cases())
@example(Case(tracked(9, completed=(9,)), (5,), 0))
def test_w5_delivering_opens_the_new(case: Case) -> None:
    assert laws.delivering_opens_the_new(case.tracker, case.offsets, watermark.delivered(case.tracker, case.offsets))


@given(cases())
@example(Case(tracked(3, 5, 9), (3, 9), 0))
def test_w6_completing_finishes_the_open(case: Case) -> None:
    assert laws.completing_finishes_the_open(
        case.tracker, case.offsets, watermark.completed(case.tracker, case.offsets)
    )


@given(cases())
def test_w7_acknowledging_keeps_the_rest(case: Case) -> None:
    after = watermark.acknowledged(case.tracker, case.position)
    assert laws.acknowledging_keeps_the_rest(case.tracker, case.position, after)


@given(trackers(), trackers())
@example(tracked(*(page * PAGE for page in (4, 6, 7, 5, 20))), OffsetTracker(0))
@example(restored(5, [(6, 8)]), tracked(6, 7, completed=(6, 7)))
def test_w8_equality_is_of_contents(tracker: OffsetTracker, other: OffsetTracker) -> None:
    done = done_offsets(tracker)
    again = restored(tracker.floor, [(offset, offset + 1) for offset in done if offset >= tracker.frontier])
    seen = [offset for offset in (*open_offsets(tracker), *done) if offset < tracker.frontier]
    for offset in reversed(seen):
        again = watermark.delivered(again, (offset,))
    again = watermark.completed(again, done)
    if (
        max(seen, default=tracker.floor - 1) != tracker.frontier - 1
    ):  # the last one seen is below the floor, or was restored
        again = tracker
    for one, two in ((tracker, again), (tracker, other)):
        assert laws.equality_is_of_contents(one, two, equal=one == two, hashes=(hash(one), hash(two)))


@given(cases())
@example(Case(tracked(5, PAGE, PAGE + 1, completed=(5, PAGE)), (), 0))
@example(Case(watermark.delivered(restored(5, [(9, 10)]), (5,)), (), 0))
def test_w9_readings_are_true(case: Case) -> None:
    tracker = watermark.acknowledged(case.tracker, case.position)
    assert laws.readings_are_true(
        tracker,
        pending=watermark.pending(tracker),
        tracked=watermark.tracked(tracker),
        span=watermark.span(tracker),
        oldest_open=watermark.oldest_open(tracker),
        highest=watermark.highest(tracker),
    )


WIDE = watermark.delivered(OffsetTracker(0), range(0, 16 * PAGE, 500))


@given(cases(), st.integers(0, 17 * PAGE))
def test_w10_a_step_copies_one_path(case: Case, offset: int) -> None:
    for tracker, at in ((WIDE, offset), *((case.tracker, at) for at in case.offsets)):
        assert laws.copies_one_path(tracker, watermark.delivered(tracker, (at,)))
        assert laws.copies_one_path(tracker, watermark.completed(tracker, (at,)))
        prefix = watermark.completed(tracker, [each for each in open_offsets(tracker) if each < at])
        assert laws.copies_one_path(prefix, watermark.acknowledged(prefix, at))


@given(cases())
@example(Case(restored(5, [(6, 8)]), (5,), 0))
@example(Case(restored(5, [(5, 6)]), (5,), 0))
@example(Case(watermark.delivered(restored(5, [(5, 7), (PAGE, PAGE + 1)]), (5, 6)), (), 0))
def test_w11_no_position_passes_the_frontier(case: Case) -> None:
    after = watermark.delivered(case.tracker, case.offsets)
    for tracker in (case.tracker, after):
        assert laws.stays_behind_the_frontier(tracker, watermark.committable(tracker))

    assert laws.frontier_follows(case.tracker, case.offsets, after)


@given(st.sampled_from((0, 5, PAGE, OFFSET_MAX - PAGE)), st.data())
def test_w12_what_is_known_is_kept(position: int, data: st.DataObject) -> None:
    runs = data.draw(known_done(position))
    tracker = watermark.restored(position, runs)

    assert laws.keeps_what_is_known(position, runs, tracker, watermark.committable(tracker))

    edges = [position, *(offset for run in runs for offset in (*run, run[1] - 1) if offset <= OFFSET_MAX)]
    offsets = data.draw(st.lists(st.sampled_from(edges), max_size=9))

    assert laws.works_on_nothing_known(
        runs, offsets, watermark.undelivered(tracker, offsets), watermark.delivered(tracker, offsets)
    )


# --- planted bugs -------------------------------------------------------------------------------------------------------

RIGHT = watermark.delivered


def with_an_empty_page(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    after = RIGHT(tracker, offsets)
    if len(after.pages) != 3:
        return after
    count, last = watermark.tracked(after), OFFSET_MAX // PAGE + 1
    padded = OffsetTracker(after.floor)
    object.__setattr__(padded, "frontier", after.frontier)
    object.__setattr__(padded, "pages", (last, watermark.pending(after), count, after.pages, (last, 0, 0)))
    return padded


test_a_planted_bug_is_found = planted(
    watermark,
    bug("a position passes the head", ("done &= (opened & -opened) - 1", "pass"), test_w1_commits_pass_nothing_open),
    bug(
        "a position is the offset itself", ("+ done.bit_length()", "+ done.bit_length() - 1"),
        test_w2_commits_go_as_far_as_they_may,
    ),
    bug(
        "a gap in the numbering holds up what is behind it",
        ("    if done:\n", "    done &= ~(done + (done & -done))  # the lowest run of them\n    if done:\n"),
        test_w2_commits_go_as_far_as_they_may,
    ),
    bug(
        "only the page of the head is looked at", ("elif behind:", "elif behind and not opened:"),
        test_w2_commits_go_as_far_as_they_may,
    ),
    # Drakkar's acknowledge: unconditional, with pending offsets dropped, too.
    bug(
        "whatever is acknowledged is the floor",
        ("if not pages or ready is None or position <= tracker.floor:", "if not pages:"),
        ("floor = min(position, ready)", "floor = position"),
        test_w3_the_floor_rises,
    ),
    bug(
        "the floor goes backwards", ("ready is None or position <= tracker.floor", "ready is None"),
        test_w3_the_floor_rises,
    ),
    bug("what is below the floor is kept", ("from_on(pages, floor)[0]", "pages"), test_w3_the_floor_rises),
    # Drakkar's register: 3, delivered again after 10 was committed, is tracked and makes it commit
    # 4.
    bug(
        "what is below the floor is opened",
        (
            "last = 0\n    for page, bits in paged(offsets, tracker.floor)",
            "last = 0\n    for page, bits in paged(offsets, 0)",
        ),
        test_w3_the_floor_rises, test_w5_delivering_opens_the_new,
    ),
    bug(
        "the done prefix is dropped as soon as it is contiguous",
        (
            "last = 0\n    for page, bits in paged(offsets, tracker.floor)",
            "last = 0\n    for page, bits in paged(offsets, committable(tracker) or 0)",
        ),
        test_w4_order_and_batches_do_not_matter, test_w5_delivering_opens_the_new,
    ),
    bug(
        "a batch is taken for the run from its lowest to its highest offset",
        ("ended(pages, page, bits)", "ended(pages, page, (1 << bits.bit_length()) - (bits & -bits))"),
        test_w4_order_and_batches_do_not_matter, test_w6_completing_finishes_the_open,
    ),
    bug(
        "what is done is opened again",
        ("grown = known | bits\n", "grown, opened, done = known | bits, opened | bits, done & ~bits\n"),
        ("elif grown != known:", "else:"),
        test_w5_delivering_opens_the_new, test_w12_what_is_known_is_kept,
    ),
    bug(
        "what was not delivered is completed",
        (
            "    pages = tracker.pages\n    for page",
            "    tracker = delivered(tracker, offsets)\n    pages = tracker.pages\n    for page",
        ),
        test_w6_completing_finishes_the_open,
    ),
    bug(
        "the floor follows up to the head", ("ready = committable(tracker)", "ready = oldest_open(tracker)"),
        test_w7_acknowledging_keeps_the_rest,
    ),
    bug(
        "what is done beyond the head is forgotten",
        ("from_on(pages, floor)[0]", "delivered(OffsetTracker(floor), open_offsets(tracker)).pages"),
        test_w7_acknowledging_keeps_the_rest,
    ),
    bug("a page is empty", test_w8_equality_is_of_contents, delivered=with_an_empty_page),
    bug(
        "only itself is equal",
        ("    def __repr__", "    def __eq__(self, other):\n        return self is other\n\n    def __repr__"),
        test_w8_equality_is_of_contents,
    ),
    bug(
        "a hash is of the object",
        ("@final\n@sealed\n", "@(lambda kind: setattr(kind, '__hash__', lambda self: id(self)) or kind)\n@sealed\n"),
        test_w8_equality_is_of_contents,
    ),
    bug(
        "a span is a distance",
        ("beyond + ((opened | done) & -(opened & -opened)).bit_count()", "tracker.frontier - oldest_open(tracker)"),
        test_w9_readings_are_true,
    ),
    bug("all is pending", ("return count_open(", "return count_tracked("), test_w9_readings_are_true),
    bug(
        "a span is all", ("count_tracked(tracker.pages) if tracker.pages else 0", "span(tracker)"),
        test_w9_readings_are_true,
    ),
    bug(
        "where nothing is open the floor is",
        ("not pages[1]:\n        return None", "not pages[1]:\n        return tracker.floor"),
        test_w9_readings_are_true,
    ),
    bug(
        "the highest is one of those that are tracked",
        (
            "tracker.frontier - 1 if tracker.frontier > tracker.floor else None",
            "highest_in(tracker.pages) if tracker.pages else None",
        ),
        test_w9_readings_are_true,
    ),
    bug(
        "what was restored and not seen is held up, too",
        ("0 if highest_in(pages) < tracker.frontier else -tracked_from(pages, tracker.frontier)", "0"),
        test_w9_readings_are_true,
    ),
    bug(
        "all is built anew",
        (
            "ended(pages, page, bits)\n",
            "ended(pages, page, bits)\n    old, pages = pages, ()\n    for each in leaves(old):\n        pages = inserted(pages, each)\n",
        ),
        test_w10_a_step_copies_one_path,
    ),
    # Confluent's Parallel Consumer, restored with done offsets ahead and no delivery yet.
    bug(
        "a position passes what was not seen", ("if position <= tracker.frontier:", "if position:"),
        test_w11_no_position_passes_the_frontier, test_w12_what_is_known_is_kept,
    ),
    bug(
        "what was restored is not noticed when it is delivered",
        ("+ bits.bit_length()", "+ (bits & ~done).bit_length()"),
        test_w11_no_position_passes_the_frontier,
    ),
    bug(
        "what was restored counts as seen",
        ("OffsetTracker(position, position, inserted", "OffsetTracker(position, after, inserted"),
        test_w12_what_is_known_is_kept,
    ),
    bug(
        "the ends of runs are included",
        (
            "count, after = count + stop - start, stop\n",
            "count, after, stop = count + stop - start, stop, min(stop + 1, OFFSET_MAX + 1)\n",
        ),
        test_w12_what_is_known_is_kept,
    ),
    bug(
        "what was restored is worked on again", ("bits & ~(opened | done)", "bits & ~opened"),
        test_w12_what_is_known_is_kept,
    ),
)  # fmt: skip


# --- agreement ----------------------------------------------------------------------------------------------------------

EVENTS = st.one_of(
    st.tuples(st.sampled_from(("delivered", "completed")), st.lists(SPOTS, max_size=6).map(tuple)),
    st.tuples(st.just("acknowledged"), SPOTS),
    st.tuples(st.just("committed"), st.none()),
)


@given(st.sampled_from((0, 3, PAGE)), st.frozensets(SPOTS, max_size=4), st.lists(EVENTS, max_size=12))
def test_a_tracker_and_its_twin_of_sets_say_the_same(
    floor: int, known: frozenset[int], events: list[tuple[str, tuple[int, ...] | int | None]]
) -> None:
    known = frozenset(offset for offset in known if offset >= floor)
    tracker, twin = restored(floor, [(offset, offset + 1) for offset in sorted(known)]), Twin(floor, done=known)
    for event, argument in events:
        tracker, twin = happened(event, argument, tracker, twin)

        assert twin.contents() == laws.contents(tracker)
        assert twin.committable() == watermark.committable(tracker)


def happened(
    event: str, argument: tuple[int, ...] | int | None, tracker: OffsetTracker, twin: Twin
) -> tuple[OffsetTracker, Twin]:
    if isinstance(argument, tuple):
        if event == "delivered":
            return watermark.delivered(tracker, argument), twin.delivered(argument)
        return watermark.completed(tracker, argument), twin.completed(argument)
    position = twin.committable() if argument is None else argument
    if position is None:
        return tracker, twin
    return watermark.acknowledged(tracker, position), twin.acknowledged(position)


@settings(max_examples=30)
@given(
    first=st.integers(0, OFFSET_MAX - 10**6),
    gap=st.sampled_from((1, 3, 700)),
    stride=st.sampled_from((1, 7, 101, 149)),
    size=st.sampled_from((10, 50)),
)
def test_a_window_over_many_pages_drains_as_its_twin_does(first: int, gap: int, stride: int, size: int) -> None:
    offsets = [first + gap * at + at * at % gap for at in range(150)]
    disorder = [offsets[at * stride % 150] for at in range(150)]
    tracker, twin = OffsetTracker(0), Twin(0).delivered(offsets)
    for offset in disorder:
        tracker = watermark.delivered(tracker, (offset,))

    assert watermark.delivered(OffsetTracker(0), offsets) == tracker

    for start in range(0, 150, size):
        batch = disorder[start : start + size]
        tracker, twin = happened("completed", tuple(batch), tracker, twin)
        tracker, twin = happened("committed", None, tracker, twin)

        assert twin.contents() == laws.contents(tracker)
        assert laws.readings_are_true(
            tracker,
            pending=watermark.pending(tracker),
            tracked=watermark.tracked(tracker),
            span=watermark.span(tracker),
            oldest_open=watermark.oldest_open(tracker),
            highest=watermark.highest(tracker),
        )


@pytest.mark.parametrize("floor", [0, 5, 6, PAGE, PAGE + 1])
def test_every_event_has_an_answer_in_every_state(floor: int) -> None:
    stock = (5, PAGE - 1, PAGE)
    batches = [
        tuple(at for at, there in zip(stock, picks, strict=True) if there) for picks in product((0, 1), repeat=3)
    ]
    for states in product(("absent", "restored", "open", "done"), repeat=3):
        known = [at for at, state in zip(stock, states, strict=True) if state == "restored" and at >= floor]
        there = [at for at, state in zip(stock, states, strict=True) if state in {"open", "done"} and at >= floor]
        done = [at for at, state in zip(stock, states, strict=True) if state == "done"]
        tracker = restored(floor, [(at, at + 1) for at in known])
        tracker = watermark.completed(watermark.delivered(tracker, there), done)
        twin = Twin(floor, done=frozenset(known)).delivered(there).completed(done)
        events: list[tuple[str, tuple[int, ...] | int]] = [
            *product(("delivered", "completed"), batches),
            *product(("acknowledged",), (0, *stock, 6, PAGE + 1, OFFSET_MAX + 1)),
        ]
        for event, argument in events:
            after, expected = happened(event, argument, tracker, twin)

            assert expected.contents() == laws.contents(after)
            assert expected.committable() == watermark.committable(after)


@settings(max_examples=50)
@given(cases())
def test_what_is_fresh_is_what_delivering_opens(case: Case) -> None:
    after = watermark.delivered(case.tracker, case.offsets)
    opened = {*open_offsets(after)} - {*open_offsets(case.tracker)}

    assert tuple(sorted(opened)) == watermark.undelivered(case.tracker, case.offsets)


@settings(max_examples=50)
@given(cases())
def test_what_changes_nothing_answers_the_very_same_tracker(case: Case) -> None:
    """A caller may compare by identity."""
    delivered = watermark.delivered(case.tracker, case.offsets)
    completed = watermark.completed(case.tracker, case.offsets)

    assert delivered is watermark.delivered(delivered, case.offsets)
    assert completed is watermark.completed(completed, case.offsets)
    assert case.tracker is watermark.acknowledged(case.tracker, case.tracker.floor)


@settings(max_examples=50)
@given(trackers())
def test_runs_are_those_of_the_done_offsets(tracker: OffsetTracker) -> None:
    runs = tuple(watermark.done_runs(tracker))

    assert done_offsets(tracker) == tuple(offset for run in runs for offset in range(*run))
    assert all(stop < start for (_, stop), (start, _) in pairwise(runs))


@pytest.mark.parametrize(
    "runs", [((0, 1),), ((0, 3 * PAGE),), ((5, PAGE), (PAGE + 1, PAGE + 2)), ((PAGE - 1, PAGE + 1),)]
)
def test_a_run_goes_on_over_the_edges_of_pages(runs: tuple[Run, ...]) -> None:
    assert tuple(watermark.done_runs(restored(0, runs))) == runs


@settings(max_examples=50)
@given(trackers(), SPOTS)
def test_an_heir_knows_what_is_done_from_the_low_watermark_on(tracker: OffsetTracker, stop: int) -> None:
    position = watermark.low_watermark(tracker)
    done = [offset for offset in done_offsets(tracker) if offset >= position]

    assert watermark.successor(tracker) == restored(position, [(offset, offset + 1) for offset in done])
    assert watermark.successor(tracker, stop) == restored(
        position, [(offset, offset + 1) for offset in done if offset < stop]
    )


@settings(max_examples=50)
@given(trackers())
def test_the_low_watermark_is_the_committable_position_or_the_floor(tracker: OffsetTracker) -> None:
    position = watermark.low_watermark(tracker)

    assert position == (watermark.committable(tracker) or tracker.floor)
    assert all(position <= offset for offset in open_offsets(tracker))


# --- restored offsets ---------------------------------------------------------------------------------------------------


def test_what_was_restored_counts_when_it_is_seen() -> None:
    """The metadata named 12, 13 and 15 beyond 10."""
    tracker = restored(10, [(12, 14), (15, 16)])
    seen = watermark.delivered(tracker, (10, 11, 12))

    assert repr(tracker) == "OffsetTracker(floor 10; done 12-13 15; seen below 10)"
    assert watermark.committable(tracker) is None
    assert watermark.undelivered(tracker, (10, 11, 12)) == (10, 11)
    assert (watermark.oldest_open(seen), watermark.highest(seen), watermark.span(seen), watermark.tracked(seen)) == (
        10,
        12,
        3,
        5,
    )
    assert watermark.committable(watermark.completed(seen, (10, 11))) == 13


def test_what_was_restored_and_no_longer_exists_holds_nothing_up() -> None:
    """The metadata named 12, since removed by compaction."""
    tracker = watermark.delivered(restored(10, [(12, 13)]), (10, 11, 14))

    assert watermark.committable(watermark.completed(tracker, (10, 11))) == 13
    assert OffsetTracker(15) == watermark.acknowledged(watermark.completed(tracker, (10, 11, 14)), 15)


# --- vectors of the described tracker --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "tracker"),
    [
        (102, tracked(100, 101, 102, 103, completed=(100, 101, 103))),
        (104, watermark.completed(tracked(100, 101, 102, 103, completed=(100, 101, 103)), (102,))),
        (102, tracked(100, 101, 102, 103, completed=(100, 103, 101))),
        (102, tracked(103, 100, 102, 101, completed=(100, 101))),
        (None, tracked(completed=(999,))),
        (None, OffsetTracker(0)),
        (16, tracked(10, 12, 15, completed=(10, 12, 15))),
        (2**63, tracked(2**63 - 1, completed=(2**63 - 1,))),
    ],
)
def test_the_committable_position_is_that_of_the_described_tracker(
    expected: int | None, tracker: OffsetTracker
) -> None:
    """The edge cases of Drakkar's own tests."""
    assert expected == watermark.committable(tracker)


def test_an_offset_delivered_twice_is_tracked_once() -> None:
    """Drakkar's offset tracker."""
    assert tracked(100) == tracked(100, 100) == watermark.delivered(tracked(100), (100,))


def test_acknowledging_forgets_what_is_below_only() -> None:
    """Drakkar's offset tracker."""
    tracker = watermark.acknowledged(tracked(100, 101, 102, 103, completed=(100, 101)), 102)

    assert laws.contents(tracker) == (102, 104, (102, 103), ())


def test_two_cycles_leave_nothing_but_the_floor() -> None:
    """Drakkar's offset tracker."""
    tracker = watermark.acknowledged(tracked(0, 1, 2, completed=(0, 1, 2)), 3)
    tracker = watermark.completed(watermark.delivered(tracker, (3, 4, 5)), (3, 4, 5))

    assert OffsetTracker(6) == watermark.acknowledged(tracker, 6)


def test_a_new_tracker_on_the_old_floor_is_clear() -> None:
    """Drakkar's offset tracker."""
    tracker = OffsetTracker(tracked(7, 8, 9, completed=(7,)).floor)

    assert (watermark.committable(tracker), watermark.pending(tracker)) == (None, 0)


def test_what_comes_again_below_the_floor_is_not_committed_again() -> None:
    """Drakkar's tracker commits 4 when 3 comes again after 10 was committed."""
    tracker = watermark.acknowledged(tracked(*range(10), completed=range(10)), 10)

    assert tracker is watermark.completed(watermark.delivered(tracker, (3,)), (3,))


def test_a_lower_offset_that_comes_late_holds_the_commit_back() -> None:
    """Drakkar differs."""
    late = watermark.delivered(tracked(100, completed=(100,)), (50,))

    assert watermark.committable(late) is None
    assert late is watermark.acknowledged(late, 101)
    assert watermark.committable(watermark.completed(late, (50,))) == 101


def test_a_tracker_is_one_line_that_a_person_can_read() -> None:
    tracker = watermark.acknowledged(tracked(3, 4, 5, 6, 9, 12, completed=(3, 5, 6, 12)), 4)

    assert repr(tracker) == "OffsetTracker(floor 4; open 4 9; done 5-6 12)"
    assert repr(OffsetTracker(0)) == "OffsetTracker(floor 0)"


# --- misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [watermark.delivered, watermark.completed, watermark.undelivered])
@pytest.mark.parametrize("bad", [-1, 2**63, True, False, 1.0, "1", None, (1,)])
def test_what_is_not_an_offset_is_refused(act: Callable[[OffsetTracker, Iterable[int]], object], bad: int) -> None:
    for batch in ((bad,), (1, bad, 2), [3, bad]):
        with pytest.raises(Misuse, match="is not an offset"):
            act(OffsetTracker(0), batch)


@pytest.mark.parametrize("bad", [-1, -1001, 2**63 + 1, True, 1.0, "1", None])
def test_what_is_not_a_position_is_refused(bad: int) -> None:
    with pytest.raises(Misuse, match="is not an offset"):
        watermark.acknowledged(OffsetTracker(0), bad)
    with pytest.raises(Misuse, match="is not a position"):
        OffsetTracker(bad)


@pytest.mark.parametrize(
    "bad",
    [
        5,
        None,
        "12",
        [5],
        [(3,)],
        [(3, 3)],
        [(4, 3)],
        [(1, 2)],
        [(3, 5), (4, 6)],
        [(3.0, 4)],
        [(3, True)],
        [(3, 2**63 + 1)],
    ],
)
def test_what_is_not_a_word_of_a_former_owner_is_refused(bad: Iterable[Run]) -> None:
    with pytest.raises(Misuse, match=r"is no|must be"):
        restored(2, bad)


def test_a_tracker_is_restored_with_a_bounded_number_of_offsets() -> None:
    """It allocates no memory for a huge claim."""
    with pytest.raises(Misuse, match="too much is known to be done"):
        restored(0, [(1, 2), (5, KNOWN_DONE_MAX + 5)])
    with pytest.raises(Misuse, match="is not an offset"):
        restored(-1, [])


@pytest.mark.parametrize("bad", [None, 5, "tracker", (0, 0, ())])
def test_what_is_not_a_tracker_is_refused(bad: OffsetTracker) -> None:
    asked: list[Callable[[], object]] = [
        *(
            partial(ask, bad)
            for ask in (watermark.committable, watermark.low_watermark, watermark.oldest_open, watermark.span)
        ),
        *(partial(ask, bad) for ask in (watermark.highest, watermark.pending, watermark.tracked, watermark.successor)),
        *(partial(ask, bad) for ask in (open_offsets, done_offsets, watermark.done_runs)),
        *(partial(act, bad, (1,)) for act in (watermark.delivered, watermark.completed, watermark.undelivered)),
        partial(watermark.acknowledged, bad, 1),
    ]
    for ask in asked:
        with pytest.raises(Misuse, match="is not a tracker"):
            ask()


@pytest.mark.parametrize("bad", [5, None, "12"])
def test_what_is_not_a_batch_is_refused(bad: Iterable[int]) -> None:
    with pytest.raises(Misuse, match=r"is no|must be"):
        watermark.delivered(OffsetTracker(0), bad)

    assert tracked(3, 4) == watermark.delivered(OffsetTracker(0), iter((3, 4)))
    assert OffsetTracker(0) == watermark.delivered(OffsetTracker(0), ())
