from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from itertools import product

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate import watermark
from tidegate.errors import Misuse
from tidegate.laws import watermark as laws
from tidegate.watermark import OFFSET_MAX, Ledger, done_offsets, open_offsets

PAGE = 1024

OFFSETS = st.one_of(
    st.integers(0, 12),
    st.integers(PAGE - 3, PAGE + 3),
    st.integers(0, 9).map(lambda page: page * PAGE),
    st.integers(2**40, 2**40 + 3 * PAGE),
    st.integers(OFFSET_MAX - 3, OFFSET_MAX),
)


@attrs.frozen
class Tracker:
    """What a consumer does with a ledger, and asks of it: the real functions, but for one that is planted."""

    delivered: Callable[[Ledger, Collection[int]], Ledger] = watermark.delivered
    completed: Callable[[Ledger, Collection[int]], Ledger] = watermark.completed
    acknowledged: Callable[[Ledger, int], Ledger] = watermark.acknowledged
    committable: Callable[[Ledger], int | None] = watermark.committable
    pending: Callable[[Ledger], int] = watermark.pending
    tracked: Callable[[Ledger], int] = watermark.tracked
    span: Callable[[Ledger], int] = watermark.span
    head: Callable[[Ledger], int | None] = watermark.head
    highest: Callable[[Ledger], int | None] = watermark.highest
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
    stock = draw(st.lists(OFFSETS, min_size=1, max_size=9, unique=True))
    some = st.lists(st.sampled_from(stock), max_size=9).map(tuple)
    positions = st.one_of(st.sampled_from([0, OFFSET_MAX + 1, *stock]), st.sampled_from(stock).map(lambda at: at + 1))
    floor = draw(st.one_of(st.just(0), positions))
    ledger = watermark.completed(watermark.delivered(Ledger(floor), draw(some) + draw(some)), draw(some))
    return Case(ledger, draw(some), draw(positions))


def tracked(*offsets: int, completed: Iterable[int] = ()) -> Ledger:
    return watermark.completed(watermark.delivered(Ledger(), offsets), completed)


@attrs.frozen
class Twin:
    """The ledger as sets."""

    floor: int
    opened: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()

    def delivered(self, offsets: Iterable[int]) -> Twin:
        new = {offset for offset in offsets if offset >= self.floor} - self.opened - self.done
        return attrs.evolve(self, opened=self.opened | new)

    def completed(self, offsets: Iterable[int]) -> Twin:
        finished = self.opened & {*offsets}
        return attrs.evolve(self, opened=self.opened - finished, done=self.done | finished)

    def acknowledged(self, position: int) -> Twin:
        floor = max(self.floor, min(position, self.committable() or self.floor))
        return attrs.evolve(self, floor=floor, done=frozenset(offset for offset in self.done if offset >= floor))

    def committable(self) -> int | None:
        head = min(self.opened, default=OFFSET_MAX + 1)
        return max((offset + 1 for offset in self.done if offset < head), default=None)

    def contents(self) -> laws.Contents:
        return self.floor, tuple(sorted(self.opened)), tuple(sorted(self.done))


# --- the laws -----------------------------------------------------------------------------------------------------------


def effort(tracker: Tracker) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if tracker == Tracker() else settings(phases=(Phase.explicit, Phase.generate))


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
    @given(st.lists(OFFSETS, min_size=1, max_size=9, unique=True), st.data())
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
    @given(cases(), cases())
    @example(Case(tracked(*(page * PAGE for page in (4, 6, 7, 5, 20))), (), 0), Case(Ledger(), (), 0))
    def equality_is_of_contents(case: Case, other: Case) -> None:
        again = Ledger(case.ledger.floor)
        for offset in reversed((*open_offsets(case.ledger), *done_offsets(case.ledger))):
            again = tracker.delivered(again, (offset,))
        again = tracker.completed(again, done_offsets(case.ledger))
        for one, two in ((case.ledger, again), (case.ledger, other.ledger)):
            assert laws.equality_is_of_contents(
                one, two, equal=tracker.equal(one, two), hashes=(tracker.hashed(one), tracker.hashed(two))
            )

    equality_is_of_contents()


def check_w9(tracker: Tracker) -> None:
    @effort(tracker)
    @given(cases())
    @example(Case(tracked(5, PAGE, PAGE + 1, completed=(5, PAGE)), (), 0))
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
            prefix = watermark.completed(ledger, [open_ for open_ in open_offsets(ledger) if open_ < at])
            assert laws.copies_one_path(prefix, tracker.acknowledged(prefix, at))

    a_step_copies_one_path()


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
}


@pytest.mark.parametrize("law", LAWS)
def test_the_ledger_keeps_the_law(law: str) -> None:
    """Laws W1 to W10, as the header of `tidegate.watermark` states them."""
    LAWS[law](Tracker())


# --- specimens ----------------------------------------------------------------------------------------------------------


def made(floor: int, opened: Iterable[int], done: Iterable[int]) -> Ledger:
    """A ledger of this content, whatever the invariants say."""
    finished = tuple(done)
    ledger = watermark.completed(watermark.delivered(Ledger(), (*opened, *finished)), finished)
    object.__setattr__(ledger, "floor", floor)
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
    return made(position, *([at for at in of(ledger) if at >= position] for of in (open_offsets, done_offsets)))


def backwards(ledger: Ledger, position: int) -> Ledger:
    return made(min(position, watermark.committable(ledger) or position), open_offsets(ledger), done_offsets(ledger))


def up_to_the_head(ledger: Ledger, position: int) -> Ledger:
    floor = max(ledger.floor, min((position, *open_offsets(ledger))))
    return made(floor, open_offsets(ledger), [at for at in done_offsets(ledger) if at >= floor])


def forgets_beyond_the_head(ledger: Ledger, position: int) -> Ledger:
    return made(watermark.acknowledged(ledger, position).floor, open_offsets(ledger), ())


def keeps_what_is_below(ledger: Ledger, position: int) -> Ledger:
    return made(watermark.acknowledged(ledger, position).floor, open_offsets(ledger), done_offsets(ledger))


def without_floor(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """Drakkar's register: 3 delivered again after 10 was committed is tracked, and makes it commit 4."""
    known = {*open_offsets(ledger), *done_offsets(ledger)}
    return made(ledger.floor, ({*offsets} - known) | {*open_offsets(ledger)}, done_offsets(ledger))


def opens_again(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    opened = {*open_offsets(ledger), *(offset for offset in offsets if offset >= ledger.floor)}
    return made(ledger.floor, opened, {*done_offsets(ledger)} - opened)


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
    object.__setattr__(padded, "pages", (last, watermark.pending(after), count, after.pages, (last, 0, 0)))
    return padded


def as_a_run(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    """A batch is taken for the run from its lowest to its highest offset."""
    inside = [at for at in open_offsets(ledger) if offsets and min(offsets) <= at <= max(offsets)]
    return watermark.completed(ledger, inside)


def trusts_the_unknown(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    done = {*offsets, *done_offsets(ledger)}
    return made(ledger.floor, {*open_offsets(ledger)} - done, done)


def built_anew(ledger: Ledger, offsets: Collection[int]) -> Ledger:
    after = watermark.completed(ledger, offsets)
    return made(after.floor, open_offsets(after), done_offsets(after))


def distance(ledger: Ledger) -> int:
    head, highest = watermark.head(ledger), watermark.highest(ledger)
    return 0 if head is None or highest is None else highest - head + 1


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
        ("W9", Tracker(highest=lambda ledger: max(open_offsets(ledger), default=None))),
        ("W10", Tracker(completed=built_anew)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Tracker) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- agreement ----------------------------------------------------------------------------------------------------------

EVENTS = st.one_of(
    st.tuples(st.sampled_from(("delivered", "completed")), st.lists(OFFSETS, max_size=6).map(tuple)),
    st.tuples(st.just("acknowledged"), OFFSETS),
    st.tuples(st.just("committed"), st.none()),
)


@given(st.sampled_from((0, 3, PAGE)), st.lists(EVENTS, max_size=12))
def test_a_ledger_and_its_twin_of_sets_say_the_same(
    floor: int, events: list[tuple[str, tuple[int, ...] | int | None]]
) -> None:
    """Agreement with a dumb twin over whole histories."""
    ledger, twin = Ledger(floor), Twin(floor)
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
    """Totality: each of three offsets, of two pages, absent, open or done, meets every event there is for them."""
    stock = (5, PAGE - 1, PAGE)
    batches = [
        tuple(at for at, there in zip(stock, picks, strict=True) if there) for picks in product((0, 1), repeat=3)
    ]
    for states in product(("absent", "open", "done"), repeat=3):
        there = [at for at, state in zip(stock, states, strict=True) if state != "absent" and at >= floor]
        done = [at for at, state in zip(stock, states, strict=True) if state == "done"]
        ledger = watermark.completed(watermark.delivered(Ledger(floor), there), done)
        twin = Twin(floor).delivered(there).completed(done)
        events: list[tuple[str, tuple[int, ...] | int]] = [
            *product(("delivered", "completed"), batches),
            *product(("acknowledged",), (0, *stock, 6, PAGE + 1, OFFSET_MAX + 1)),
        ]
        for event, argument in events:
            after, expected = happened(event, argument, ledger, twin)

            assert expected.contents() == laws.contents(after)
            assert expected.committable() == watermark.committable(after)


@given(cases())
def test_what_is_fresh_is_what_delivering_opens(case: Case) -> None:
    """The offsets to work on are those that are open after the delivery and were not tracked before."""
    after = watermark.delivered(case.ledger, case.offsets)
    opened = {*open_offsets(after)} - {*open_offsets(case.ledger)}

    assert tuple(sorted(opened)) == watermark.fresh(case.ledger, case.offsets)


@given(cases())
def test_what_changes_nothing_answers_the_very_same_ledger(case: Case) -> None:
    """A caller may tell by identity that nothing has changed."""
    delivered = watermark.delivered(case.ledger, case.offsets)
    completed = watermark.completed(case.ledger, case.offsets)

    assert delivered is watermark.delivered(delivered, case.offsets)
    assert completed is watermark.completed(completed, case.offsets)
    assert case.ledger is watermark.acknowledged(case.ledger, case.ledger.floor)


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

    assert laws.contents(ledger) == (102, (102, 103), ())


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


@pytest.mark.parametrize("bad", [5, None, "12"])
def test_what_is_no_batch_is_refused(bad: Iterable[int]) -> None:
    """A batch is a collection of ints; any iterable of them will do, be it empty or read only once."""
    with pytest.raises(Misuse, match="is no"):
        watermark.delivered(Ledger(), bad)

    assert tracked(3, 4) == watermark.delivered(Ledger(), iter((3, 4)))
    assert Ledger() == watermark.delivered(Ledger(), ())
