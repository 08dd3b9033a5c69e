from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import pairwise, product

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.properties.consumer.watermark_helpers import Case, cases, tracked

from tidegate.consumer import watermark
from tidegate.consumer._pages import PAGE
from tidegate.consumer.laws import watermark as laws
from tidegate.consumer.strategies.watermark import SPOTS, known_done, trackers
from tidegate.consumer.watermark import (
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
class Functions:
    """What a consumer does with a tracker, and asks of it: the real functions, but for one that is planted."""

    restored: Callable[[int, Iterable[Run]], OffsetTracker] = watermark.restored
    delivered: Callable[[OffsetTracker, Collection[int]], OffsetTracker] = watermark.delivered
    completed: Callable[[OffsetTracker, Collection[int]], OffsetTracker] = watermark.completed
    acknowledged: Callable[[OffsetTracker, int], OffsetTracker] = watermark.acknowledged
    committable: Callable[[OffsetTracker], int | None] = watermark.committable
    pending: Callable[[OffsetTracker], int] = watermark.pending
    tracked: Callable[[OffsetTracker], int] = watermark.tracked
    span: Callable[[OffsetTracker], int] = watermark.span
    oldest_open: Callable[[OffsetTracker], int | None] = watermark.oldest_open
    highest: Callable[[OffsetTracker], int | None] = watermark.highest
    undelivered: Callable[[OffsetTracker, Collection[int]], Collection[int]] = watermark.undelivered
    equal: Callable[[OffsetTracker, OffsetTracker], bool] = operator.eq
    hashed: Callable[[OffsetTracker], int] = hash


@attrs.frozen
class Twin:
    """The tracker as sets."""

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


def effort(under_test: Functions) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return (
        settings()
        if under_test == Functions()
        else settings(phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)
    )


def check_w1(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    def commits_pass_nothing_open(case: Case) -> None:
        assert laws.passes_nothing_open(case.tracker, under_test.committable(case.tracker))

    commits_pass_nothing_open()


def check_w2(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    @example(Case(tracked(5, 9, PAGE, completed=(5, 9)), (), 0))
    def commits_go_as_far_as_they_may(case: Case) -> None:
        assert laws.is_the_highest(case.tracker, under_test.committable(case.tracker))

    commits_go_as_far_as_they_may()


def check_w3(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    def the_floor_rises(case: Case) -> None:
        for after in (
            under_test.delivered(case.tracker, case.offsets),
            under_test.completed(case.tracker, case.offsets),
            under_test.acknowledged(case.tracker, case.position),
        ):
            assert laws.floor_rises(case.tracker, after)

    the_floor_rises()


def check_w4(under_test: Functions) -> None:
    @effort(under_test)
    @given(st.lists(SPOTS, min_size=1, max_size=9, unique=True), st.data())
    def order_and_batches_do_not_matter(offsets: list[int], data: st.DataObject) -> None:
        work = [(offset, kind) for offset in offsets for kind in ("delivered", "completed")]
        left = data.draw(st.permutations(work))
        done = data.draw(st.frozensets(st.sampled_from(offsets)))
        whole = under_test.completed(under_test.delivered(OffsetTracker(0), offsets), [*done])
        pieces = OffsetTracker(0)
        while left:
            size = data.draw(st.integers(1, 3))
            batch, left = left[:size], left[size:]
            fetched = [offset for offset, kind in batch if kind == "delivered" or (offset, "delivered") in left]
            left = [(offset, kind) for offset, kind in left if kind == "completed" or offset not in fetched]
            pieces = under_test.delivered(pieces, fetched)
            pieces = under_test.completed(
                pieces, [offset for offset, kind in batch if kind == "completed" and offset in done]
            )

        assert laws.order_does_not_matter(whole, pieces)

    order_and_batches_do_not_matter()


def check_w5(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    @example(Case(tracked(9, completed=(9,)), (5,), 0))
    def delivering_opens_the_new(case: Case) -> None:
        assert laws.delivering_opens_the_new(
            case.tracker, case.offsets, under_test.delivered(case.tracker, case.offsets)
        )

    delivering_opens_the_new()


def check_w6(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    @example(Case(tracked(3, 5, 9), (3, 9), 0))
    def completing_finishes_the_open(case: Case) -> None:
        assert laws.completing_finishes_the_open(
            case.tracker, case.offsets, under_test.completed(case.tracker, case.offsets)
        )

    completing_finishes_the_open()


def check_w7(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    def acknowledging_keeps_the_rest(case: Case) -> None:
        after = under_test.acknowledged(case.tracker, case.position)
        assert laws.acknowledging_keeps_the_rest(case.tracker, case.position, after)

    acknowledging_keeps_the_rest()


def check_w8(under_test: Functions) -> None:
    @effort(under_test)
    @given(trackers(), trackers())
    @example(tracked(*(page * PAGE for page in (4, 6, 7, 5, 20))), OffsetTracker(0))
    @example(restored(5, [(6, 8)]), tracked(6, 7, completed=(6, 7)))
    def equality_is_of_contents(tracker: OffsetTracker, other: OffsetTracker) -> None:
        done = done_offsets(tracker)
        again = restored(tracker.floor, [(offset, offset + 1) for offset in done if offset >= tracker.frontier])
        seen = [offset for offset in (*open_offsets(tracker), *done) if offset < tracker.frontier]
        for offset in reversed(seen):
            again = under_test.delivered(again, (offset,))
        again = under_test.completed(again, done)
        if (
            max(seen, default=tracker.floor - 1) != tracker.frontier - 1
        ):  # what was seen last is below the floor, or was restored
            again = tracker
        for one, two in ((tracker, again), (tracker, other)):
            assert laws.equality_is_of_contents(
                one, two, equal=under_test.equal(one, two), hashes=(under_test.hashed(one), under_test.hashed(two))
            )

    equality_is_of_contents()


def check_w9(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    @example(Case(tracked(5, PAGE, PAGE + 1, completed=(5, PAGE)), (), 0))
    @example(Case(watermark.delivered(restored(5, [(9, 10)]), (5,)), (), 0))
    def readings_are_true(case: Case) -> None:
        tracker = watermark.acknowledged(case.tracker, case.position)
        assert laws.readings_are_true(
            tracker,
            pending=under_test.pending(tracker),
            tracked=under_test.tracked(tracker),
            span=under_test.span(tracker),
            oldest_open=under_test.oldest_open(tracker),
            highest=under_test.highest(tracker),
        )

    readings_are_true()


def check_w10(under_test: Functions) -> None:
    wide = watermark.delivered(OffsetTracker(0), range(0, 16 * PAGE, 500))

    @effort(under_test)
    @given(cases(), st.integers(0, 17 * PAGE))
    def a_step_copies_one_path(case: Case, offset: int) -> None:
        for tracker, at in ((wide, offset), *((case.tracker, at) for at in case.offsets)):
            assert laws.copies_one_path(tracker, under_test.delivered(tracker, (at,)))
            assert laws.copies_one_path(tracker, under_test.completed(tracker, (at,)))
            prefix = watermark.completed(tracker, [each for each in open_offsets(tracker) if each < at])
            assert laws.copies_one_path(prefix, under_test.acknowledged(prefix, at))

    a_step_copies_one_path()


def check_w11(under_test: Functions) -> None:
    @effort(under_test)
    @given(cases())
    @example(Case(restored(5, [(6, 8)]), (5,), 0))
    @example(Case(restored(5, [(5, 6)]), (5,), 0))
    @example(Case(watermark.delivered(restored(5, [(5, 7), (PAGE, PAGE + 1)]), (5, 6)), (), 0))
    def no_position_passes_the_frontier(case: Case) -> None:
        after = under_test.delivered(case.tracker, case.offsets)
        for tracker in (case.tracker, after):
            assert laws.stays_behind_the_frontier(tracker, under_test.committable(tracker))

        assert laws.frontier_follows(case.tracker, case.offsets, after)

    no_position_passes_the_frontier()


def check_w12(under_test: Functions) -> None:
    @effort(under_test)
    @given(st.sampled_from((0, 5, PAGE, OFFSET_MAX - PAGE)), st.data())
    def what_is_known_is_kept(position: int, data: st.DataObject) -> None:
        runs = data.draw(known_done(position))
        tracker = under_test.restored(position, runs)

        assert laws.keeps_what_is_known(position, runs, tracker, under_test.committable(tracker))

        edges = [position, *(offset for run in runs for offset in (*run, run[1] - 1) if offset <= OFFSET_MAX)]
        offsets = data.draw(st.lists(st.sampled_from(edges), max_size=9))

        assert laws.works_on_nothing_known(
            runs, offsets, under_test.undelivered(tracker, offsets), under_test.delivered(tracker, offsets)
        )

    what_is_known_is_kept()


LAWS: dict[str, Callable[[Functions], None]] = {
    "W1": check_w1,
    "W2": check_w2,
    "W3": check_w3,
    "W4": check_w4,
    "W5": check_w5,
    "W6": check_w6,
    "W7": check_w7,
    "W8": check_w8,
    "W9": check_w9,
    "W10": check_w10,
    "W11": check_w11,
    "W12": check_w12,
}


@pytest.mark.parametrize("law", LAWS)
def test_the_tracker_keeps_the_law(law: str) -> None:
    """Laws W1 to W12, as the header of `tidegate.consumer.watermark` states them."""
    LAWS[law](Functions())


# --- specimens ----------------------------------------------------------------------------------------------------------


def made(before: OffsetTracker, floor: int, opened: Iterable[int], done: Iterable[int]) -> OffsetTracker:
    """A tracker of this content, whatever the invariants say."""
    found, finished = tuple(opened), tuple(done)
    tracker = watermark.completed(watermark.delivered(OffsetTracker(0), (*found, *finished)), finished)
    object.__setattr__(tracker, "floor", floor)
    object.__setattr__(tracker, "frontier", max([before.frontier, floor, *(offset + 1 for offset in found)]))
    return tracker


def highest_done(tracker: OffsetTracker) -> int | None:
    return max(done_offsets(tracker)) + 1 if done_offsets(tracker) else None


def the_offset_itself(tracker: OffsetTracker) -> int | None:
    position = watermark.committable(tracker)
    return None if position is None else position - 1


def contiguous_in_number(tracker: OffsetTracker) -> int | None:
    position = min((*open_offsets(tracker), *done_offsets(tracker)), default=0)
    first = position
    while position in done_offsets(tracker):
        position += 1
    return position if position > first else None


def page_of_the_head_only(tracker: OffsetTracker) -> int | None:
    position, oldest_open = watermark.committable(tracker), watermark.oldest_open(tracker)
    return (
        None
        if position is None or (oldest_open is not None and (position - 1) // PAGE < oldest_open // PAGE)
        else position
    )


def unconditional(tracker: OffsetTracker, position: int) -> OffsetTracker:
    """Drakkar's acknowledge: unconditional, pending ones forgotten too."""
    return made(
        tracker, position, *([at for at in of(tracker) if at >= position] for of in (open_offsets, done_offsets))
    )


def backwards(tracker: OffsetTracker, position: int) -> OffsetTracker:
    return made(
        tracker, min(position, watermark.committable(tracker) or position), open_offsets(tracker), done_offsets(tracker)
    )


def up_to_the_head(tracker: OffsetTracker, position: int) -> OffsetTracker:
    floor = max(tracker.floor, min((position, *open_offsets(tracker))))
    return made(tracker, floor, open_offsets(tracker), [at for at in done_offsets(tracker) if at >= floor])


def forgets_beyond_the_head(tracker: OffsetTracker, position: int) -> OffsetTracker:
    return made(tracker, watermark.acknowledged(tracker, position).floor, open_offsets(tracker), ())


def keeps_what_is_below(tracker: OffsetTracker, position: int) -> OffsetTracker:
    return made(tracker, watermark.acknowledged(tracker, position).floor, open_offsets(tracker), done_offsets(tracker))


def without_floor(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    """Drakkar's register: 3 delivered again after 10 was committed is tracked, and makes it commit 4."""
    known = {*open_offsets(tracker), *done_offsets(tracker)}
    return made(tracker, tracker.floor, ({*offsets} - known) | {*open_offsets(tracker)}, done_offsets(tracker))


def opens_again(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    opened = {*open_offsets(tracker), *(offset for offset in offsets if offset >= tracker.floor)}
    return made(tracker, tracker.floor, opened, {*done_offsets(tracker)} - opened)


def takes_late_ones_for_done(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    """The done prefix is dropped as soon as it is contiguous."""
    return watermark.delivered(tracker, [at for at in offsets if at >= (watermark.committable(tracker) or 0)])


def with_an_empty_page(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    """A tree whose shape tells more than its contents."""
    after = watermark.delivered(tracker, offsets)
    if len(after.pages) != 3:
        return after
    count, last = watermark.tracked(after), OFFSET_MAX // PAGE + 1
    padded = OffsetTracker(after.floor)
    object.__setattr__(padded, "frontier", after.frontier)
    object.__setattr__(padded, "pages", (last, watermark.pending(after), count, after.pages, (last, 0, 0)))
    return padded


def as_a_run(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    """A batch is taken for the run from its lowest to its highest offset."""
    inside = [at for at in open_offsets(tracker) if offsets and min(offsets) <= at <= max(offsets)]
    return watermark.completed(tracker, inside)


def trusts_the_unknown(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    done = {*offsets, *done_offsets(tracker)}
    return made(tracker, tracker.floor, {*open_offsets(tracker)} - done, done)


def built_anew(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    after = watermark.completed(tracker, offsets)
    return made(tracker, after.floor, open_offsets(after), done_offsets(after))


def distance(tracker: OffsetTracker) -> int:
    oldest_open, highest = watermark.oldest_open(tracker), watermark.highest(tracker)
    return 0 if oldest_open is None or highest is None else highest - oldest_open + 1


def head_or_all(tracker: OffsetTracker) -> int | None:
    """Confluent's Parallel Consumer, restored with what is done ahead and having seen nothing: the position passes the unseen."""
    oldest_open = watermark.oldest_open(tracker)
    return max(
        (offset + 1 for offset in done_offsets(tracker) if oldest_open is None or offset < oldest_open), default=None
    )


def frontier_of_the_open(tracker: OffsetTracker, offsets: Collection[int]) -> OffsetTracker:
    """What was restored is not noticed when it is delivered."""
    after = watermark.delivered(tracker, offsets)
    object.__setattr__(after, "frontier", max([tracker.frontier, *(offset + 1 for offset in open_offsets(after))]))
    return after


def seen_at_once(position: int, runs: Iterable[Run]) -> OffsetTracker:
    """What was restored is delivered and completed as soon as the partition is assigned."""
    offsets = [offset for run in runs for offset in range(*run)]
    return watermark.completed(watermark.delivered(OffsetTracker(position), offsets), offsets)


def ends_included(position: int, runs: Iterable[Run]) -> OffsetTracker:
    return watermark.restored(position, [(start, min(stop + 1, OFFSET_MAX + 1)) for start, stop in runs])


def all_not_done_here(tracker: OffsetTracker, offsets: Collection[int]) -> Collection[int]:
    """What was restored is worked on again."""
    return [offset for offset in offsets if offset >= tracker.floor and offset not in open_offsets(tracker)]


def with_restored(tracker: OffsetTracker) -> int:
    """What was restored and not seen is held up too."""
    oldest_open = watermark.oldest_open(tracker)
    return (
        0
        if oldest_open is None
        else sum(offset >= oldest_open for offset in (*open_offsets(tracker), *done_offsets(tracker)))
    )


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("W1", Functions(committable=highest_done)),
        ("W2", Functions(committable=the_offset_itself)),
        ("W2", Functions(committable=contiguous_in_number)),
        ("W2", Functions(committable=page_of_the_head_only)),
        ("W3", Functions(acknowledged=unconditional)),
        ("W3", Functions(acknowledged=backwards)),
        ("W3", Functions(acknowledged=keeps_what_is_below)),
        ("W3", Functions(delivered=without_floor)),
        ("W4", Functions(delivered=takes_late_ones_for_done)),
        ("W4", Functions(completed=as_a_run)),
        ("W5", Functions(delivered=without_floor)),
        ("W5", Functions(delivered=opens_again)),
        ("W5", Functions(delivered=takes_late_ones_for_done)),
        ("W6", Functions(completed=trusts_the_unknown)),
        ("W6", Functions(completed=as_a_run)),
        ("W7", Functions(acknowledged=up_to_the_head)),
        ("W7", Functions(acknowledged=forgets_beyond_the_head)),
        ("W8", Functions(delivered=with_an_empty_page)),
        ("W8", Functions(equal=operator.is_)),
        ("W8", Functions(hashed=id)),
        ("W9", Functions(span=distance)),
        ("W9", Functions(pending=watermark.tracked)),
        ("W9", Functions(tracked=watermark.span)),
        ("W9", Functions(oldest_open=lambda tracker: min(open_offsets(tracker), default=tracker.floor))),
        ("W9", Functions(highest=lambda tracker: max((*open_offsets(tracker), *done_offsets(tracker)), default=None))),
        ("W9", Functions(span=with_restored)),
        ("W10", Functions(completed=built_anew)),
        ("W11", Functions(committable=head_or_all)),
        ("W11", Functions(delivered=frontier_of_the_open)),
        ("W12", Functions(restored=seen_at_once)),
        ("W12", Functions(restored=ends_included)),
        ("W12", Functions(committable=head_or_all)),
        ("W12", Functions(undelivered=all_not_done_here)),
        ("W12", Functions(delivered=opens_again)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Functions) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


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
    """Agreement with a dumb twin over whole histories, of partitions restored with nothing or with something."""
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
    """Agreement with a dumb twin on a window that comes and is completed in disorder, and is acknowledged as it goes."""
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
    """Totality: each of three offsets, of two pages, absent, restored, open or done, meets every event there is for them."""
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
    """The offsets to work on are those that are open after the delivery and were not tracked before."""
    after = watermark.delivered(case.tracker, case.offsets)
    opened = {*open_offsets(after)} - {*open_offsets(case.tracker)}

    assert tuple(sorted(opened)) == watermark.undelivered(case.tracker, case.offsets)


@settings(max_examples=50)
@given(cases())
def test_what_changes_nothing_answers_the_very_same_tracker(case: Case) -> None:
    """A caller may tell by identity that nothing has changed."""
    delivered = watermark.delivered(case.tracker, case.offsets)
    completed = watermark.completed(case.tracker, case.offsets)

    assert delivered is watermark.delivered(delivered, case.offsets)
    assert completed is watermark.completed(completed, case.offsets)
    assert case.tracker is watermark.acknowledged(case.tracker, case.tracker.floor)


@settings(max_examples=50)
@given(trackers())
def test_runs_are_those_of_the_done_offsets(tracker: OffsetTracker) -> None:
    """They are in order, apart from each other, and hold the done offsets and no others."""
    runs = tuple(watermark.done_runs(tracker))

    assert done_offsets(tracker) == tuple(offset for run in runs for offset in range(*run))
    assert all(stop < start for (_, stop), (start, _) in pairwise(runs))


@pytest.mark.parametrize(
    "runs", [((0, 1),), ((0, 3 * PAGE),), ((5, PAGE), (PAGE + 1, PAGE + 2)), ((PAGE - 1, PAGE + 1),)]
)
def test_a_run_goes_on_over_the_edges_of_pages(runs: tuple[Run, ...]) -> None:
    """What is given as one run is one, wherever it begins and ends."""
    assert tuple(watermark.done_runs(restored(0, runs))) == runs


@settings(max_examples=50)
@given(trackers(), SPOTS)
def test_an_heir_knows_what_is_done_from_the_low_watermark_on(tracker: OffsetTracker, stop: int) -> None:
    """It begins at the low watermark, has seen nothing, and knows what is done below the offset that word ends at."""
    position = watermark.low_watermark(tracker)
    done = [offset for offset in done_offsets(tracker) if offset >= position]

    assert watermark.successor(tracker) == restored(position, [(offset, offset + 1) for offset in done])
    assert watermark.successor(tracker, stop) == restored(
        position, [(offset, offset + 1) for offset in done if offset < stop]
    )


@settings(max_examples=50)
@given(trackers())
def test_the_low_watermark_is_the_committable_position_or_the_floor(tracker: OffsetTracker) -> None:
    """It is a position in either case, and everything tracked below it is done."""
    position = watermark.low_watermark(tracker)

    assert position == (watermark.committable(tracker) or tracker.floor)
    assert all(position <= offset for offset in open_offsets(tracker))


# --- what was restored --------------------------------------------------------------------------------------------------


def test_what_was_restored_counts_when_it_is_seen() -> None:
    """The metadata named 12, 13 and 15 beyond 10: nothing may be committed until what comes before them is known and done."""
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
    """The metadata named 12, which compaction has removed since: 11 and 14 are delivered next to each other."""
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
    """Drakkar's offset under_test, the edge cases that its tests check."""
    assert expected == watermark.committable(tracker)


def test_an_offset_delivered_twice_is_tracked_once() -> None:
    """Drakkar's offset under_test: 100 twice is one entry."""
    assert tracked(100) == tracked(100, 100) == watermark.delivered(tracked(100), (100,))


def test_acknowledging_forgets_what_is_below_only() -> None:
    """Drakkar's offset under_test: of 100 to 103 with 100 and 101 done, 102 and 103 remain, and 102 was committed."""
    tracker = watermark.acknowledged(tracked(100, 101, 102, 103, completed=(100, 101)), 102)

    assert laws.contents(tracker) == (102, 104, (102, 103), ())


def test_two_cycles_leave_nothing_but_the_floor() -> None:
    """Drakkar's offset under_test: 0 to 2, then 3 to 5, acknowledged as 3 and 6."""
    tracker = watermark.acknowledged(tracked(0, 1, 2, completed=(0, 1, 2)), 3)
    tracker = watermark.completed(watermark.delivered(tracker, (3, 4, 5)), (3, 4, 5))

    assert OffsetTracker(6) == watermark.acknowledged(tracker, 6)


def test_a_new_tracker_on_the_old_floor_is_clear() -> None:
    """Drakkar's offset under_test: cleared with one completed and two pending, nothing is pending nor committable."""
    tracker = OffsetTracker(tracked(7, 8, 9, completed=(7,)).floor)

    assert (watermark.committable(tracker), watermark.pending(tracker)) == (None, 0)


def test_what_comes_again_below_the_floor_is_not_committed_again() -> None:
    """Where we differ: Drakkar's under_test commits 4 when 3 comes again after 10 was committed."""
    tracker = watermark.acknowledged(tracked(*range(10), completed=range(10)), 10)

    assert tracker is watermark.completed(watermark.delivered(tracker, (3,)), (3,))


def test_a_lower_offset_that_comes_late_holds_the_commit_back() -> None:
    """Where we differ: with 100 done and 50 delivered after it, neither 101 nor its acknowledgement passes 50."""
    late = watermark.delivered(tracked(100, completed=(100,)), (50,))

    assert watermark.committable(late) is None
    assert late is watermark.acknowledged(late, 101)
    assert watermark.committable(watermark.completed(late, (50,))) == 101


def test_a_tracker_is_one_line_that_a_person_can_read() -> None:
    """The one-line form names the floor, and runs of what is open and done."""
    tracker = watermark.acknowledged(tracked(3, 4, 5, 6, 9, 12, completed=(3, 5, 6, 12)), 4)

    assert repr(tracker) == "OffsetTracker(floor 4; open 4 9; done 5-6 12)"
    assert repr(OffsetTracker(0)) == "OffsetTracker(floor 0)"


# --- misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [watermark.delivered, watermark.completed, watermark.undelivered])
@pytest.mark.parametrize("bad", [-1, 2**63, True, False, 1.0, "1", None, (1,)])
def test_what_is_not_an_offset_is_refused(act: Callable[[OffsetTracker, Iterable[int]], object], bad: int) -> None:
    """An offset is a whole number from 0 to 2**63 - 1, alone and in a batch."""
    for batch in ((bad,), (1, bad, 2), [3, bad]):
        with pytest.raises(Misuse, match="is not an offset"):
            act(OffsetTracker(0), batch)


@pytest.mark.parametrize("bad", [-1, -1001, 2**63 + 1, True, 1.0, "1", None])
def test_what_is_not_a_position_is_refused(bad: int) -> None:
    """A position is a whole number from 0 to 2**63, one past the highest offset."""
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
    """Runs are pairs of ints, not empty, in order, and from the position on."""
    with pytest.raises(Misuse, match=r"is no|must be"):
        restored(2, bad)


def test_a_tracker_is_restored_with_a_bounded_number_of_offsets() -> None:
    """What claims that two thousand million offsets are done is refused before it takes the memory for that."""
    with pytest.raises(Misuse, match="too much is known to be done"):
        restored(0, [(1, 2), (5, KNOWN_DONE_MAX + 5)])
    with pytest.raises(Misuse, match="is not an offset"):
        restored(-1, [])


@pytest.mark.parametrize("bad", [None, 5, "tracker", (0, 0, ())])
def test_what_is_not_a_tracker_is_refused(bad: OffsetTracker) -> None:
    """By whatever takes one."""
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
    """A batch is a collection of ints; any iterable of them will do, even if it is empty or can be read only once."""
    with pytest.raises(Misuse, match=r"is no|must be"):
        watermark.delivered(OffsetTracker(0), bad)

    assert tracked(3, 4) == watermark.delivered(OffsetTracker(0), iter((3, 4)))
    assert OffsetTracker(0) == watermark.delivered(OffsetTracker(0), ())
