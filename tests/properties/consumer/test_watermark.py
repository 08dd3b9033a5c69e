from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import pairwise, product

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.consumer import watermark
from tidegate.consumer.laws import watermark as laws
from tidegate.consumer.strategies.watermark import SPOTS, ledgers, positions, told, work
from tidegate.consumer.watermark import (
    OFFSET_MAX,
    PAGE,
    TOLD_MAX,
    Abandoned,
    Blocked,
    DuplicateBudget,
    Explanation,
    Ledger,
    Run,
    Unblocked,
    Work,
    done_offsets,
    open_offsets,
    resumed,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Instant


@attrs.frozen
class Tracker:
    """What a consumer does with a ledger, and asks of it: the real functions, but for one that is planted."""

    resumed: Callable[[int, Iterable[Run]], Ledger] = watermark.resumed
    delivered: Callable[[Ledger, Collection[int]], Ledger] = watermark.delivered
    completed: Callable[[Ledger, Collection[int]], Ledger] = watermark.completed
    acknowledged: Callable[[Ledger, int], Ledger] = watermark.acknowledged
    committable: Callable[[Ledger], int | None] = watermark.committable
    pending: Callable[[Ledger], int] = watermark.pending
    tracked: Callable[[Ledger], int] = watermark.tracked
    span: Callable[[Ledger], int] = watermark.span
    head: Callable[[Ledger], int | None] = watermark.head
    highest: Callable[[Ledger], int | None] = watermark.highest
    fresh: Callable[[Ledger, Collection[int]], Collection[int]] = watermark.fresh
    explain: Callable[[Ledger, dict[int, Work], Instant], Explanation] = watermark.explain
    duplicate_budget: Callable[[Ledger, Ledger, Collection[int]], DuplicateBudget] = watermark.duplicate_budget
    equal: Callable[[Ledger, Ledger], bool] = operator.eq
    hashed: Callable[[Ledger], int] = hash


@attrs.frozen
class Case:
    """A ledger, and what may happen to it next."""

    ledger: Ledger
    offsets: tuple[int, ...]
    position: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ledger = draw(ledgers())
    known = (*open_offsets(ledger), *done_offsets(ledger))
    stock = [*known, *draw(st.lists(SPOTS, min_size=0 if known else 1, max_size=3))]
    return Case(ledger, tuple(draw(st.lists(st.sampled_from(stock), max_size=9))), draw(positions(stock)))


def tracked(*offsets: int, completed: Iterable[int] = ()) -> Ledger:
    return watermark.completed(watermark.delivered(Ledger(), offsets), completed)


@attrs.frozen
class Twin:
    """The ledger as sets."""

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
        head = min(self.opened, default=self.frontier)
        return max((offset + 1 for offset in self.done if offset < head), default=None)

    def contents(self) -> laws.Contents:
        return self.floor, self.frontier, tuple(sorted(self.opened)), tuple(sorted(self.done))


# --- the laws -----------------------------------------------------------------------------------------------------------


def effort(tracker: Tracker) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return (
        settings()
        if tracker == Tracker()
        else settings(phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)
    )


def check_w1(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    def commits_pass_nothing_open(case: Case) -> None:
        assert laws.passes_nothing_open(case.ledger, tracker.committable(case.ledger))

    commits_pass_nothing_open()


def check_w2(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    @example(Case(tracked(5, 9, PAGE, completed=(5, 9)), (), 0))
    def commits_go_as_far_as_they_may(case: Case) -> None:
        assert laws.is_the_highest(case.ledger, tracker.committable(case.ledger))

    commits_go_as_far_as_they_may()


def check_w3(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    def the_floor_rises(case: Case) -> None:
        for after in (
            tracker.delivered(case.ledger, case.offsets),
            tracker.completed(case.ledger, case.offsets),
            tracker.acknowledged(case.ledger, case.position),
        ):
            assert laws.floor_rises(case.ledger, after)

    the_floor_rises()


def check_w4(tracker: Tracker) -> None:
    @effort(tracker)
    @given(st.lists(SPOTS, min_size=1, max_size=9, unique=True), st.data())
    def order_and_batches_do_not_matter(offsets: list[int], data: st.DataObject) -> None:
        work = [(offset, kind) for offset in offsets for kind in ("delivered", "completed")]
        left = data.draw(st.permutations(work))
        done = data.draw(st.frozensets(st.sampled_from(offsets)))
        whole = tracker.completed(tracker.delivered(Ledger(), offsets), [*done])
        pieces = Ledger()
        while left:
            size = data.draw(st.integers(1, 3))
            batch, left = left[:size], left[size:]
            fetched = [offset for offset, kind in batch if kind == "delivered" or (offset, "delivered") in left]
            left = [(offset, kind) for offset, kind in left if kind == "completed" or offset not in fetched]
            pieces = tracker.delivered(pieces, fetched)
            pieces = tracker.completed(
                pieces, [offset for offset, kind in batch if kind == "completed" and offset in done]
            )

        assert laws.order_does_not_matter(whole, pieces)

    order_and_batches_do_not_matter()


def check_w5(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    @example(Case(tracked(9, completed=(9,)), (5,), 0))
    def delivering_opens_the_new(case: Case) -> None:
        assert laws.delivering_opens_the_new(case.ledger, case.offsets, tracker.delivered(case.ledger, case.offsets))

    delivering_opens_the_new()


def check_w6(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    @example(Case(tracked(3, 5, 9), (3, 9), 0))
    def completing_finishes_the_open(case: Case) -> None:
        assert laws.completing_finishes_the_open(
            case.ledger, case.offsets, tracker.completed(case.ledger, case.offsets)
        )

    completing_finishes_the_open()


def check_w7(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    def acknowledging_keeps_the_rest(case: Case) -> None:
        after = tracker.acknowledged(case.ledger, case.position)
        assert laws.acknowledging_keeps_the_rest(case.ledger, case.position, after)

    acknowledging_keeps_the_rest()


def check_w8(tracker: Tracker) -> None:
    @effort(tracker)
    @given(ledgers(), ledgers())
    @example(tracked(*(page * PAGE for page in (4, 6, 7, 5, 20))), Ledger())
    @example(resumed(5, [(6, 8)]), tracked(6, 7, completed=(6, 7)))
    def equality_is_of_contents(ledger: Ledger, other: Ledger) -> None:
        done = done_offsets(ledger)
        again = resumed(ledger.floor, [(offset, offset + 1) for offset in done if offset >= ledger.frontier])
        seen = [offset for offset in (*open_offsets(ledger), *done) if offset < ledger.frontier]
        for offset in reversed(seen):
            again = tracker.delivered(again, (offset,))
        again = tracker.completed(again, done)
        if max(seen, default=ledger.floor - 1) != ledger.frontier - 1:  # what was seen last is below the floor, or told
            again = ledger
        for one, two in ((ledger, again), (ledger, other)):
            assert laws.equality_is_of_contents(
                one, two, equal=tracker.equal(one, two), hashes=(tracker.hashed(one), tracker.hashed(two))
            )

    equality_is_of_contents()


def check_w9(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    @example(Case(tracked(5, PAGE, PAGE + 1, completed=(5, PAGE)), (), 0))
    @example(Case(watermark.delivered(resumed(5, [(9, 10)]), (5,)), (), 0))
    def readings_are_true(case: Case) -> None:
        ledger = watermark.acknowledged(case.ledger, case.position)
        assert laws.readings_are_true(
            ledger,
            pending=tracker.pending(ledger),
            tracked=tracker.tracked(ledger),
            span=tracker.span(ledger),
            head=tracker.head(ledger),
            highest=tracker.highest(ledger),
        )

    readings_are_true()


def check_w10(tracker: Tracker) -> None:
    wide = watermark.delivered(Ledger(), range(0, 16 * PAGE, 500))

    @effort(tracker)
    @given(cases(), st.integers(0, 17 * PAGE))
    def a_step_copies_one_path(case: Case, offset: int) -> None:
        for ledger, at in ((wide, offset), *((case.ledger, at) for at in case.offsets)):
            assert laws.copies_one_path(ledger, tracker.delivered(ledger, (at,)))
            assert laws.copies_one_path(ledger, tracker.completed(ledger, (at,)))
            prefix = watermark.completed(ledger, [each for each in open_offsets(ledger) if each < at])
            assert laws.copies_one_path(prefix, tracker.acknowledged(prefix, at))

    a_step_copies_one_path()


def check_w11(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    @example(Case(resumed(5, [(6, 8)]), (5,), 0))
    @example(Case(resumed(5, [(5, 6)]), (5,), 0))
    @example(Case(watermark.delivered(resumed(5, [(5, 7), (PAGE, PAGE + 1)]), (5, 6)), (), 0))
    def no_position_passes_the_frontier(case: Case) -> None:
        after = tracker.delivered(case.ledger, case.offsets)
        for ledger in (case.ledger, after):
            assert laws.stays_behind_the_frontier(ledger, tracker.committable(ledger))

        assert laws.frontier_follows(case.ledger, case.offsets, after)

    no_position_passes_the_frontier()


def check_w12(tracker: Tracker) -> None:
    @effort(tracker)
    @given(st.sampled_from((0, 5, PAGE, OFFSET_MAX - PAGE)), st.data())
    def what_was_told_is_kept(position: int, data: st.DataObject) -> None:
        runs = data.draw(told(position))
        ledger = tracker.resumed(position, runs)

        assert laws.keeps_what_it_was_told(position, runs, ledger, tracker.committable(ledger))

        edges = [position, *(offset for run in runs for offset in (*run, run[1] - 1) if offset <= OFFSET_MAX)]
        offsets = data.draw(st.lists(st.sampled_from(edges), max_size=9))

        assert laws.works_on_nothing_told(
            runs, offsets, tracker.fresh(ledger, offsets), tracker.delivered(ledger, offsets)
        )

    what_was_told_is_kept()


NOW = Instant(50)


def check_w13(tracker: Tracker) -> None:
    @effort(tracker)
    @given(ledgers(), st.data())
    @example(tracked(3, 5, 6, 9, completed=(5, 6)), None)
    @example(tracked(3, 5, completed=(5,)), None)
    @example(tracked(4), None)
    def what_is_explained_happens(ledger: Ledger, data: st.DataObject | None) -> None:
        works = {3: Work("running", Instant(20), 2)} if data is None else data.draw(work(ledger))
        explanation = tracker.explain(ledger, works, NOW)

        assert laws.explains_what_happens(ledger, works, NOW, explanation)

        if isinstance(explanation, (Blocked, Abandoned)):
            after = watermark.completed(ledger, (explanation.offset,))

            assert (watermark.low_watermark(ledger), watermark.low_watermark(after)) == (
                explanation.position,
                explanation.after,
            )

    what_is_explained_happens()


def check_w14(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases(), st.booleans(), st.data())
    @example(Case(tracked(3, 4, 5, 6, completed=(4,)), (5, 6), 0), True, None)
    def replays_are_counted(case: Case, of_itself: bool, data: st.DataObject | None) -> None:
        stop = OFFSET_MAX + 1 if data is None else data.draw(st.sampled_from((0, case.position, OFFSET_MAX + 1)))
        heir = watermark.heir(case.ledger, stop) if of_itself or data is None else data.draw(ledgers())
        later = watermark.completed(watermark.delivered(case.ledger, case.offsets), case.offsets[::2])
        begun = case.offsets[1::2]

        assert laws.counts_what_would_be_replayed(later, heir, begun, tracker.duplicate_budget(later, heir, begun))

    replays_are_counted()


LAWS: dict[str, Callable[[Tracker], None]] = {
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
    "W13": check_w13,
    "W14": check_w14,
}


@pytest.mark.parametrize("law", LAWS)
def test_the_ledger_keeps_the_law(law: str) -> None:
    """Laws W1 to W14, as the header of `tidegate.consumer.watermark` states them."""
    LAWS[law](Tracker())


# --- specimens ----------------------------------------------------------------------------------------------------------


def made(before: Ledger, floor: int, opened: Iterable[int], done: Iterable[int]) -> Ledger:
    """A ledger of this content, whatever the invariants say."""
    found, finished = tuple(opened), tuple(done)
    ledger = watermark.completed(watermark.delivered(Ledger(), (*found, *finished)), finished)
    object.__setattr__(ledger, "floor", floor)
    object.__setattr__(ledger, "frontier", max([before.frontier, floor, *(offset + 1 for offset in found)]))
    return ledger


def highest_done(ledger: Ledger) -> int | None:
    return max(done_offsets(ledger)) + 1 if done_offsets(ledger) else None


def the_offset_itself(ledger: Ledger) -> int | None:
    position = watermark.committable(ledger)
    return None if position is None else position - 1


def contiguous_in_number(ledger: Ledger) -> int | None:
    position = min((*open_offsets(ledger), *done_offsets(ledger)), default=0)
    first = position
    while position in done_offsets(ledger):
        position += 1
    return position if position > first else None


def page_of_the_head_only(ledger: Ledger) -> int | None:
    position, head = watermark.committable(ledger), watermark.head(ledger)
    return None if position is None or (head is not None and (position - 1) // PAGE < head // PAGE) else position


def whatever_it_is_told(ledger: Ledger, position: int) -> Ledger:
    """Drakkar's acknowledge: unconditional, pending ones forgotten too."""
    return made(ledger, position, *([at for at in of(ledger) if at >= position] for of in (open_offsets, done_offsets)))


def backwards(ledger: Ledger, position: int) -> Ledger:
    return made(
        ledger, min(position, watermark.committable(ledger) or position), open_offsets(ledger), done_offsets(ledger)
    )


def up_to_the_head(ledger: Ledger, position: int) -> Ledger:
    floor = max(ledger.floor, min((position, *open_offsets(ledger))))
    return made(ledger, floor, open_offsets(ledger), [at for at in done_offsets(ledger) if at >= floor])


def forgets_beyond_the_head(ledger: Ledger, position: int) -> Ledger:
    return made(ledger, watermark.acknowledged(ledger, position).floor, open_offsets(ledger), ())


def keeps_what_is_below(ledger: Ledger, position: int) -> Ledger:
    return made(ledger, watermark.acknowledged(ledger, position).floor, open_offsets(ledger), done_offsets(ledger))


def without_floor(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """Drakkar's register: 3 delivered again after 10 was committed is tracked, and makes it commit 4."""
    known = {*open_offsets(ledger), *done_offsets(ledger)}
    return made(ledger, ledger.floor, ({*offsets} - known) | {*open_offsets(ledger)}, done_offsets(ledger))


def opens_again(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    opened = {*open_offsets(ledger), *(offset for offset in offsets if offset >= ledger.floor)}
    return made(ledger, ledger.floor, opened, {*done_offsets(ledger)} - opened)


def takes_late_ones_for_done(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """The done prefix is dropped as soon as it is contiguous."""
    return watermark.delivered(ledger, [at for at in offsets if at >= (watermark.committable(ledger) or 0)])


def with_an_empty_page(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """A tree whose shape tells more than its contents."""
    after = watermark.delivered(ledger, offsets)
    if len(after.pages) != 3:
        return after
    count, last = watermark.tracked(after), OFFSET_MAX // PAGE + 1
    padded = Ledger(after.floor)
    object.__setattr__(padded, "frontier", after.frontier)
    object.__setattr__(padded, "pages", (last, watermark.pending(after), count, after.pages, (last, 0, 0)))
    return padded


def as_a_run(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """A batch is taken for the run from its lowest to its highest offset."""
    inside = [at for at in open_offsets(ledger) if offsets and min(offsets) <= at <= max(offsets)]
    return watermark.completed(ledger, inside)


def trusts_the_unknown(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    done = {*offsets, *done_offsets(ledger)}
    return made(ledger, ledger.floor, {*open_offsets(ledger)} - done, done)


def built_anew(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    after = watermark.completed(ledger, offsets)
    return made(ledger, after.floor, open_offsets(after), done_offsets(after))


def distance(ledger: Ledger) -> int:
    head, highest = watermark.head(ledger), watermark.highest(ledger)
    return 0 if head is None or highest is None else highest - head + 1


def head_or_all(ledger: Ledger) -> int | None:
    """Confluent's Parallel Consumer, told what is done ahead and having seen nothing: the position passes the unseen."""
    head = watermark.head(ledger)
    return max((offset + 1 for offset in done_offsets(ledger) if head is None or offset < head), default=None)


def frontier_of_the_open(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """What was told is not noticed when it is delivered."""
    after = watermark.delivered(ledger, offsets)
    object.__setattr__(after, "frontier", max([ledger.frontier, *(offset + 1 for offset in open_offsets(after))]))
    return after


def seen_at_once(position: int, runs: Iterable[Run]) -> Ledger:
    """What was told is delivered and completed as soon as the partition is assigned."""
    offsets = [offset for run in runs for offset in range(*run)]
    return watermark.completed(watermark.delivered(Ledger(position), offsets), offsets)


def ends_included(position: int, runs: Iterable[Run]) -> Ledger:
    return watermark.resumed(position, [(start, min(stop + 1, OFFSET_MAX + 1)) for start, stop in runs])


def all_not_done_here(ledger: Ledger, offsets: Collection[int]) -> Collection[int]:
    """What was told is worked on again."""
    return [offset for offset in offsets if offset >= ledger.floor and offset not in open_offsets(ledger)]


def with_told(ledger: Ledger) -> int:
    """What was told and not seen is held up too."""
    head = watermark.head(ledger)
    return 0 if head is None else sum(offset >= head for offset in (*open_offsets(ledger), *done_offsets(ledger)))


def up_to_the_next_open(ledger: Ledger, works: dict[int, Work], now: Instant) -> Explanation:
    told_of = watermark.explain(ledger, works, now)
    following = open_offsets(ledger)[1:]
    return told_of if isinstance(told_of, Unblocked) or not following else attrs.evolve(told_of, after=following[0])


def freed_in_numbers(ledger: Ledger, works: dict[int, Work], now: Instant) -> Explanation:
    told_of = watermark.explain(ledger, works, now)
    return told_of if isinstance(told_of, Unblocked) else attrs.evolve(told_of, freed=told_of.after - told_of.position)


def silent_about_the_abandoned(ledger: Ledger, works: dict[int, Work], now: Instant) -> Explanation:
    known = {offset: works.get(offset, Work("queued", now)) for offset in open_offsets(ledger)}
    return watermark.explain(ledger, known, now)


def all_that_is_done(ledger: Ledger, heir: Ledger, begun: Collection[int]) -> DuplicateBudget:
    """As if nothing was told."""
    return watermark.duplicate_budget(ledger, Ledger(heir.floor), begun)


def whatever_is_open(ledger: Ledger, heir: Ledger, _: Collection[int]) -> DuplicateBudget:
    return watermark.duplicate_budget(ledger, heir, open_offsets(ledger))


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("W1", Tracker(committable=highest_done)),
        ("W2", Tracker(committable=the_offset_itself)),
        ("W2", Tracker(committable=contiguous_in_number)),
        ("W2", Tracker(committable=page_of_the_head_only)),
        ("W3", Tracker(acknowledged=whatever_it_is_told)),
        ("W3", Tracker(acknowledged=backwards)),
        ("W3", Tracker(acknowledged=keeps_what_is_below)),
        ("W3", Tracker(delivered=without_floor)),
        ("W4", Tracker(delivered=takes_late_ones_for_done)),
        ("W4", Tracker(completed=as_a_run)),
        ("W5", Tracker(delivered=without_floor)),
        ("W5", Tracker(delivered=opens_again)),
        ("W5", Tracker(delivered=takes_late_ones_for_done)),
        ("W6", Tracker(completed=trusts_the_unknown)),
        ("W6", Tracker(completed=as_a_run)),
        ("W7", Tracker(acknowledged=up_to_the_head)),
        ("W7", Tracker(acknowledged=forgets_beyond_the_head)),
        ("W8", Tracker(delivered=with_an_empty_page)),
        ("W8", Tracker(equal=operator.is_)),
        ("W8", Tracker(hashed=id)),
        ("W9", Tracker(span=distance)),
        ("W9", Tracker(pending=watermark.tracked)),
        ("W9", Tracker(tracked=watermark.span)),
        ("W9", Tracker(head=lambda ledger: min(open_offsets(ledger), default=ledger.floor))),
        ("W9", Tracker(highest=lambda ledger: max((*open_offsets(ledger), *done_offsets(ledger)), default=None))),
        ("W9", Tracker(span=with_told)),
        ("W10", Tracker(completed=built_anew)),
        ("W11", Tracker(committable=head_or_all)),
        ("W11", Tracker(delivered=frontier_of_the_open)),
        ("W12", Tracker(resumed=seen_at_once)),
        ("W12", Tracker(resumed=ends_included)),
        ("W12", Tracker(committable=head_or_all)),
        ("W12", Tracker(fresh=all_not_done_here)),
        ("W12", Tracker(delivered=opens_again)),
        ("W13", Tracker(explain=up_to_the_next_open)),
        ("W13", Tracker(explain=freed_in_numbers)),
        ("W13", Tracker(explain=silent_about_the_abandoned)),
        ("W14", Tracker(duplicate_budget=all_that_is_done)),
        ("W14", Tracker(duplicate_budget=whatever_is_open)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Tracker) -> None:
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
def test_a_ledger_and_its_twin_of_sets_say_the_same(
    floor: int, known: frozenset[int], events: list[tuple[str, tuple[int, ...] | int | None]]
) -> None:
    """Agreement with a dumb twin over whole histories, of partitions of which nothing or something was told."""
    known = frozenset(offset for offset in known if offset >= floor)
    ledger, twin = resumed(floor, [(offset, offset + 1) for offset in sorted(known)]), Twin(floor, done=known)
    for event, argument in events:
        ledger, twin = happened(event, argument, ledger, twin)

        assert twin.contents() == laws.contents(ledger)
        assert twin.committable() == watermark.committable(ledger)


def happened(event: str, argument: tuple[int, ...] | int | None, ledger: Ledger, twin: Twin) -> tuple[Ledger, Twin]:
    if isinstance(argument, tuple):
        if event == "delivered":
            return watermark.delivered(ledger, argument), twin.delivered(argument)
        return watermark.completed(ledger, argument), twin.completed(argument)
    position = twin.committable() if argument is None else argument
    if position is None:
        return ledger, twin
    return watermark.acknowledged(ledger, position), twin.acknowledged(position)


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
    ledger, twin = Ledger(), Twin(0).delivered(offsets)
    for offset in disorder:
        ledger = watermark.delivered(ledger, (offset,))

    assert watermark.delivered(Ledger(), offsets) == ledger

    for start in range(0, 150, size):
        batch = disorder[start : start + size]
        ledger, twin = happened("completed", tuple(batch), ledger, twin)
        ledger, twin = happened("committed", None, ledger, twin)

        assert twin.contents() == laws.contents(ledger)
        assert laws.readings_are_true(
            ledger,
            pending=watermark.pending(ledger),
            tracked=watermark.tracked(ledger),
            span=watermark.span(ledger),
            head=watermark.head(ledger),
            highest=watermark.highest(ledger),
        )


@pytest.mark.parametrize("floor", [0, 5, 6, PAGE, PAGE + 1])
def test_every_event_has_an_answer_in_every_state(floor: int) -> None:
    """Totality: each of three offsets, of two pages, absent, told, open or done, meets every event there is for them."""
    stock = (5, PAGE - 1, PAGE)
    batches = [
        tuple(at for at, there in zip(stock, picks, strict=True) if there) for picks in product((0, 1), repeat=3)
    ]
    for states in product(("absent", "told", "open", "done"), repeat=3):
        known = [at for at, state in zip(stock, states, strict=True) if state == "told" and at >= floor]
        there = [at for at, state in zip(stock, states, strict=True) if state in {"open", "done"} and at >= floor]
        done = [at for at, state in zip(stock, states, strict=True) if state == "done"]
        ledger = resumed(floor, [(at, at + 1) for at in known])
        ledger = watermark.completed(watermark.delivered(ledger, there), done)
        twin = Twin(floor, done=frozenset(known)).delivered(there).completed(done)
        events: list[tuple[str, tuple[int, ...] | int]] = [
            *product(("delivered", "completed"), batches),
            *product(("acknowledged",), (0, *stock, 6, PAGE + 1, OFFSET_MAX + 1)),
        ]
        for event, argument in events:
            after, expected = happened(event, argument, ledger, twin)

            assert expected.contents() == laws.contents(after)
            assert expected.committable() == watermark.committable(after)


@settings(max_examples=50)
@given(cases())
def test_what_is_fresh_is_what_delivering_opens(case: Case) -> None:
    """The offsets to work on are those that are open after the delivery and were not tracked before."""
    after = watermark.delivered(case.ledger, case.offsets)
    opened = {*open_offsets(after)} - {*open_offsets(case.ledger)}

    assert tuple(sorted(opened)) == watermark.fresh(case.ledger, case.offsets)


@settings(max_examples=50)
@given(cases())
def test_what_changes_nothing_answers_the_very_same_ledger(case: Case) -> None:
    """A caller may tell by identity that nothing has changed."""
    delivered = watermark.delivered(case.ledger, case.offsets)
    completed = watermark.completed(case.ledger, case.offsets)

    assert delivered is watermark.delivered(delivered, case.offsets)
    assert completed is watermark.completed(completed, case.offsets)
    assert case.ledger is watermark.acknowledged(case.ledger, case.ledger.floor)


@settings(max_examples=50)
@given(ledgers())
def test_runs_are_those_of_the_done_offsets(ledger: Ledger) -> None:
    """They are in order, apart from each other, and hold the done offsets and no others."""
    runs = tuple(watermark.done_runs(ledger))

    assert done_offsets(ledger) == tuple(offset for run in runs for offset in range(*run))
    assert all(stop < start for (_, stop), (start, _) in pairwise(runs))


@pytest.mark.parametrize(
    "runs", [((0, 1),), ((0, 3 * PAGE),), ((5, PAGE), (PAGE + 1, PAGE + 2)), ((PAGE - 1, PAGE + 1),)]
)
def test_a_run_goes_on_over_the_edges_of_pages(runs: tuple[Run, ...]) -> None:
    """What is told as one run is one, wherever it begins and ends."""
    assert tuple(watermark.done_runs(resumed(0, runs))) == runs


@settings(max_examples=50)
@given(ledgers(), SPOTS)
def test_an_heir_knows_what_is_done_from_the_low_watermark_on(ledger: Ledger, stop: int) -> None:
    """It begins at the low watermark, has seen nothing, and knows what is done below the offset that word ends at."""
    position = watermark.low_watermark(ledger)
    done = [offset for offset in done_offsets(ledger) if offset >= position]

    assert watermark.heir(ledger) == resumed(position, [(offset, offset + 1) for offset in done])
    assert watermark.heir(ledger, stop) == resumed(position, [(offset, offset + 1) for offset in done if offset < stop])


@settings(max_examples=50)
@given(ledgers())
def test_the_low_watermark_is_the_committable_position_or_the_floor(ledger: Ledger) -> None:
    """It is a position in either case, and everything tracked below it is done."""
    position = watermark.low_watermark(ledger)

    assert position == (watermark.committable(ledger) or ledger.floor)
    assert all(position <= offset for offset in open_offsets(ledger))


# --- what was told, and what is explained -------------------------------------------------------------------------------


def test_what_was_told_counts_when_it_is_seen() -> None:
    """Word was left of 12, 13 and 15 beyond 10: nothing may be committed until what comes before them is known and done."""
    ledger = resumed(10, [(12, 14), (15, 16)])
    seen = watermark.delivered(ledger, (10, 11, 12))

    assert repr(ledger) == "Ledger(floor 10; done 12-13 15; seen below 10)"
    assert watermark.committable(ledger) is None
    assert watermark.fresh(ledger, (10, 11, 12)) == (10, 11)
    assert (watermark.head(seen), watermark.highest(seen), watermark.span(seen), watermark.tracked(seen)) == (
        10,
        12,
        3,
        5,
    )
    assert watermark.committable(watermark.completed(seen, (10, 11))) == 13


def test_what_was_told_and_no_longer_exists_holds_nothing_up() -> None:
    """Word was left of 12, which compaction has removed since: 11 and 14 are delivered next to each other."""
    ledger = watermark.delivered(resumed(10, [(12, 13)]), (10, 11, 14))

    assert watermark.committable(watermark.completed(ledger, (10, 11))) == 13
    assert Ledger(15) == watermark.acknowledged(watermark.completed(ledger, (10, 11, 14)), 15)


def test_the_blocking_offset_is_explained() -> None:
    """4 waits for 10 s in its second attempt, and holds up 5 to 7 as well; nobody works on 8, and 9 and 11 follow it."""
    ledger = tracked(3, 4, 5, 6, 7, 8, 9, 11, completed=(3, 5, 6, 7, 9, 11))
    works = {4: Work("running", Instant(5_000_000), 2)}
    now = Instant(15_000_000)
    later = watermark.completed(ledger, (4,))
    done = watermark.completed(later, (8,))

    assert Blocked(4, works[4], 10_000_000, 4, 8, 4) == watermark.explain(ledger, works, now)
    assert [str(watermark.explain(each, works, now)) for each in (ledger, later, done)] == [
        "4 waits for 4, running for 10 s, attempt 2; then 8, which settles 4",
        "8 waits for 8, which nobody works on; then 12, which settles 3",
        "nothing is open, 12 may be committed",
    ]
    assert str(watermark.explain(ledger, {4: Work("queued", now)}, now)).startswith("4 waits for 4, queued for 0 s; ")


def test_a_clock_that_went_back_makes_no_negative_age() -> None:
    """Work that began after now is of no age."""
    explanation = watermark.explain(tracked(3), {3: Work("running", Instant(9))}, Instant(5))

    assert isinstance(explanation, Blocked)
    assert explanation.age == 0


def test_the_budget_is_what_the_next_owner_would_do_again() -> None:
    """Of 3 to 9, 4, 6 and 7 are done and 5 is running; 3 was committed, with word of 4. So 6, 7 and 5 would come again."""
    before = tracked(3, 4, 5, 6, 7, 8, 9, completed=(4,))
    now = watermark.completed(before, (6, 7))
    budget = watermark.duplicate_budget(now, watermark.heir(before), (5,))

    assert budget == DuplicateBudget(finished=2, begun=1)
    assert str(budget) == "3 records would be replayed: 2 done, 1 under way"
    assert watermark.duplicate_budget(now, watermark.heir(now)).records == 0


# --- vectors of the described tracker -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "ledger"),
    [
        (102, tracked(100, 101, 102, 103, completed=(100, 101, 103))),
        (104, watermark.completed(tracked(100, 101, 102, 103, completed=(100, 101, 103)), (102,))),
        (102, tracked(100, 101, 102, 103, completed=(100, 103, 101))),
        (102, tracked(103, 100, 102, 101, completed=(100, 101))),
        (None, tracked(completed=(999,))),
        (None, Ledger()),
        (16, tracked(10, 12, 15, completed=(10, 12, 15))),
        (2**63, tracked(2**63 - 1, completed=(2**63 - 1,))),
    ],
)
def test_the_committable_position_is_that_of_the_described_tracker(expected: int | None, ledger: Ledger) -> None:
    """Drakkar's offset tracker, the edge cases that its tests check."""
    assert expected == watermark.committable(ledger)


def test_an_offset_delivered_twice_is_tracked_once() -> None:
    """Drakkar's offset tracker: 100 twice is one entry."""
    assert tracked(100) == tracked(100, 100) == watermark.delivered(tracked(100), (100,))


def test_acknowledging_forgets_what_is_below_only() -> None:
    """Drakkar's offset tracker: of 100 to 103 with 100 and 101 done, 102 and 103 remain, and 102 was committed."""
    ledger = watermark.acknowledged(tracked(100, 101, 102, 103, completed=(100, 101)), 102)

    assert laws.contents(ledger) == (102, 104, (102, 103), ())


def test_two_cycles_leave_nothing_but_the_floor() -> None:
    """Drakkar's offset tracker: 0 to 2, then 3 to 5, acknowledged as 3 and 6."""
    ledger = watermark.acknowledged(tracked(0, 1, 2, completed=(0, 1, 2)), 3)
    ledger = watermark.completed(watermark.delivered(ledger, (3, 4, 5)), (3, 4, 5))

    assert Ledger(6) == watermark.acknowledged(ledger, 6)


def test_a_new_ledger_on_the_old_floor_is_clear() -> None:
    """Drakkar's offset tracker: cleared with one completed and two pending, nothing is pending nor committable."""
    ledger = Ledger(tracked(7, 8, 9, completed=(7,)).floor)

    assert (watermark.committable(ledger), watermark.pending(ledger)) == (None, 0)


def test_what_comes_again_below_the_floor_is_not_committed_again() -> None:
    """Where we differ: Drakkar's tracker commits 4 when 3 comes again after 10 was committed."""
    ledger = watermark.acknowledged(tracked(*range(10), completed=range(10)), 10)

    assert ledger is watermark.completed(watermark.delivered(ledger, (3,)), (3,))


def test_a_lower_offset_that_comes_late_holds_the_commit_back() -> None:
    """Where we differ: with 100 done and 50 delivered after it, neither 101 nor its acknowledgement passes 50."""
    late = watermark.delivered(tracked(100, completed=(100,)), (50,))

    assert watermark.committable(late) is None
    assert late is watermark.acknowledged(late, 101)
    assert watermark.committable(watermark.completed(late, (50,))) == 101


def test_a_ledger_is_one_line_that_a_person_can_read() -> None:
    """The one-line form names the floor, and runs of what is open and done."""
    ledger = watermark.acknowledged(tracked(3, 4, 5, 6, 9, 12, completed=(3, 5, 6, 12)), 4)

    assert repr(ledger) == "Ledger(floor 4; open 4 9; done 5-6 12)"
    assert repr(Ledger()) == "Ledger(floor 0)"


# --- misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [watermark.delivered, watermark.completed, watermark.fresh])
@pytest.mark.parametrize("bad", [-1, 2**63, True, False, 1.0, "1", None, (1,)])
def test_what_is_no_offset_is_refused(act: Callable[[Ledger, Iterable[int]], object], bad: int) -> None:
    """An offset is a whole number from 0 to 2**63 - 1, alone and in a batch."""
    for batch in ((bad,), (1, bad, 2), [3, bad]):
        with pytest.raises(Misuse, match="is no offset"):
            act(Ledger(), batch)


@pytest.mark.parametrize("bad", [-1, 2**63 + 1, True, 1.0, "1", None])
def test_what_is_no_position_is_refused(bad: int) -> None:
    """A position is a whole number from 0 to 2**63, one past the highest offset."""
    with pytest.raises(Misuse, match="is no offset"):
        watermark.acknowledged(Ledger(), bad)
    with pytest.raises(Misuse, match="is no offset"):
        Ledger(bad)


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
def test_what_is_no_word_of_a_former_owner_is_refused(bad: Iterable[Run]) -> None:
    """Runs are pairs of ints, not empty, in order, and from the position on."""
    with pytest.raises(Misuse, match="is no"):
        resumed(2, bad)


def test_a_ledger_is_told_of_so_many_offsets_and_no_more() -> None:
    """What claims that two thousand million offsets are done is refused before it takes the memory for that."""
    with pytest.raises(Misuse, match="too much is told"):
        resumed(0, [(1, 2), (5, TOLD_MAX + 5)])
    with pytest.raises(Misuse, match="is no offset"):
        resumed(-1, [])


@pytest.mark.parametrize("bad", [None, 5, "ledger", (0, 0, ())])
def test_what_is_no_ledger_is_refused(bad: Ledger) -> None:
    """By whatever takes one."""
    asked: list[Callable[[], object]] = [
        *(
            partial(ask, bad)
            for ask in (watermark.committable, watermark.low_watermark, watermark.head, watermark.span)
        ),
        *(partial(ask, bad) for ask in (watermark.highest, watermark.pending, watermark.tracked, watermark.heir)),
        *(partial(ask, bad) for ask in (open_offsets, done_offsets, watermark.done_runs)),
        *(partial(act, bad, (1,)) for act in (watermark.delivered, watermark.completed, watermark.fresh)),
        partial(watermark.acknowledged, bad, 1),
        partial(watermark.explain, bad, {}, NOW),
        partial(watermark.duplicate_budget, bad, Ledger()),
        partial(watermark.duplicate_budget, Ledger(), bad),
    ]
    for ask in asked:
        with pytest.raises(Misuse, match="is no ledger"):
            ask()


def test_what_explains_nothing_is_refused() -> None:
    """Work has a state, a time and a number of attempts, and is timed on one clock."""
    ledger, bad = tracked(3), Work("running", Instant(0, WALL))
    for works, now in (({3: bad}, NOW), ({3: "running"}, NOW), (None, NOW), ([3], NOW), ({}, 5)):
        with pytest.raises(Misuse):
            watermark.explain(ledger, works, now)  # type: ignore[arg-type]
    made: list[Callable[[], Work]] = [
        lambda: Work("", NOW),
        lambda: Work("running", NOW, -1),
        lambda: Work("running", NOW, True),
        lambda: Work("running", 5),  # type: ignore[arg-type]
        lambda: Work(None, NOW),  # type: ignore[arg-type]
    ]
    for make in made:
        with pytest.raises(Misuse):
            make()


@pytest.mark.parametrize("bad", [5, None, "12"])
def test_what_is_no_batch_is_refused(bad: Iterable[int]) -> None:
    """A batch is a collection of ints; any iterable of them will do, be it empty or read only once."""
    with pytest.raises(Misuse, match="is no"):
        watermark.delivered(Ledger(), bad)

    assert tracked(3, 4) == watermark.delivered(Ledger(), iter((3, 4)))
    assert Ledger() == watermark.delivered(Ledger(), ())
