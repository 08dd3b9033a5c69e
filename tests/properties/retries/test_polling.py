from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, STORE, WALL, Duration, Instant
from tidegate.retries import polling
from tidegate.retries.backoff import LONGEST
from tidegate.retries.checks.laws import polling as laws
from tidegate.retries.checks.strategies import polling as drawn
from tidegate.retries.checks.strategies.backoff import draws
from tidegate.retries.polling import Ask, AskReason, NoSource, Pace, PollingBounds, Turn

START = Instant(0, WALL)
SMALL = PollingBounds(least=2, most=9, jitter=3)


@attrs.frozen
class Case:
    bounds: PollingBounds
    paces: tuple[tuple[str, Pace], ...]
    now: Instant = START
    draw: int = 0

    def done(self) -> Turn[str]:
        return polling.turn(self.bounds, dict(self.paces), self.now, self.draw)


CASES = st.builds(
    Case,
    st.one_of(st.just(SMALL), drawn.bounds()),
    st.lists(st.tuples(st.sampled_from("abc"), drawn.paces()), max_size=3, unique_by=lambda each: each[0]).map(tuple),
    st.integers(-9, 30).map(lambda at: Instant(at, WALL)),
    draws(),
)


def case(*dues: int, bounds: PollingBounds = SMALL, now: int = 0, draw: int = 0) -> Case:
    paces = tuple((name, Pace(Instant(due, WALL), bounds.least)) for name, due in zip("abc", dues, strict=False))
    return Case(bounds, paces, Instant(now, WALL), draw)


# --- the laws -----------------------------------------------------------------------------------------------------------


@given(CASES, drawn.paces())
@example(case(0, draw=PPM), Pace(START, 9))
def test_po1_paces_stay_within(each: Case, pace: Pace) -> None:
    done = each.done()
    assert laws.stays_within(each.bounds, polling.woken(each.bounds, pace, each.now), each.now)
    if isinstance(done, Ask):
        assert laws.stays_within(each.bounds, done.pace, each.now)


@given(st.one_of(st.just(SMALL), drawn.bounds()), st.lists(draws(), min_size=1, max_size=8))
@example(SMALL, [0, 0, 0, 0])
def test_po2_gaps_double(bounds: PollingBounds, jitters: list[int]) -> None:
    now, pace, gaps = START, polling.fresh(bounds, START), list[Duration]()
    for draw in jitters:
        done = polling.turn(bounds, {"a": pace}, now, draw)
        assert isinstance(done, Ask)
        gaps.append(done.pace.due - now)
        now, pace = done.pace.due, done.pace
    assert laws.gaps_double(bounds, gaps)


@given(drawn.bounds(), drawn.paces(), st.integers(-20, 40).map(lambda at: Instant(at, WALL)))
@example(SMALL, Pace(START + -5, 9), START)
@example(SMALL, Pace(START + 5, 9), START)
def test_po3_announcements_are_due(bounds: PollingBounds, pace: Pace, now: Instant) -> None:
    assert laws.makes_it_due(pace, polling.woken(bounds, pace, now), now)


@attrs.frozen
class Announced:
    source: str


@attrs.frozen
class Turned:
    worker: int


@attrs.frozen
class Answered:
    worker: int


@attrs.frozen
class Passed:
    by: Duration


Event = Announced | Turned | Answered | Passed
EVENTS = st.one_of(
    st.builds(Announced, st.sampled_from("ab")),
    st.builds(Turned, st.integers(0, 2)),
    st.builds(Answered, st.integers(0, 2)),
    st.builds(Passed, st.integers(1, 6)),
)


@attrs.define
class Process:
    now: Instant = START
    paces: dict[str, Pace] = attrs.field(factory=lambda: {name: polling.fresh(SMALL, START) for name in "ab"})
    held: dict[str, int] = attrs.field(factory=lambda: {"a": 0, "b": 0})
    asked: dict[int, tuple[str, Pace, bool]] = attrs.field(factory=dict)
    unasked: dict[str, Instant] = attrs.field(factory=dict)

    def take(self, event: Event) -> None:
        match event:
            case Passed(by):
                self.now += by
            case Announced(source):
                self.held[source] += 1
                self.wake(source)
                self.unasked.setdefault(source, self.now)
            case Turned(worker) if worker not in self.asked:
                done = polling.turn(SMALL, self.paces, self.now, 0)
                if isinstance(done, Ask):
                    self.paces[done.source] = done.pace
                    self.asked[worker] = (done.source, done.pace, self.held[done.source] > 0)
                    self.unasked.pop(done.source, None)
            case Answered(worker) if worker in self.asked:
                source, kept, found = self.asked.pop(worker)
                if found:
                    self.held[source] = max(0, self.held[source] - 1)
                    self.wake(source)
                else:
                    self.paces[source] = self.answered(self.paces[source], kept)
            case _:
                pass  # a busy worker takes no turn, and one without a question gets no answer

    @staticmethod
    def answered(now: Pace, kept: Pace) -> Pace:
        del kept
        return now

    def wake(self, source: str) -> None:
        self.paces[source] = polling.woken(SMALL, self.paces[source], self.now)


@given(st.lists(EVENTS, max_size=30))
@example([Turned(0), Announced("a"), Answered(0)])
def test_po3_announcements_stay_due(events: list[Event]) -> None:
    process = Process()
    for event in events:
        process.take(event)
        for source, pace in process.paces.items():
            announced = process.unasked.get(source, START)
            assert laws.stays_due(announced, source not in process.unasked, pace)


@given(CASES)
@example(case(-1, -2))
@example(case(1))
def test_po4_the_longest_due_is_asked(each: Case) -> None:
    assert laws.asks_who_is_due_longest(each.bounds, dict(each.paces), each.now, each.done())


@given(CASES)
@example(case(2, 1))
@example(case())
def test_po5_waits_end(each: Case) -> None:
    assert laws.waits_for_the_first(each.bounds, dict(each.paces), each.now, each.done())


@given(CASES)
@example(case(-50))
def test_po6_turns_are_one_workers(each: Case) -> None:
    assert laws.is_taken(each.now, each.done())


@given(CASES)
@example(case(12, 14))
@example(case(13))
def test_po7_clocks_may_be_set_back(each: Case) -> None:
    assert laws.bears_a_clock_set_back(each.bounds, dict(each.paces), each.now, each.done())


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    polling,
    bug(
        "no bounds",
        ("interval = min(max(pace.interval, bounds.least), bounds.most)", "interval = pace.interval"),
        ("Pace(due, min(2 * interval, bounds.most))", "Pace(due, 2 * interval)"),
        test_po1_paces_stay_within, test_po2_gaps_double,
    ),
    # The interval doubles before the gap is computed, so the first is twice the minimum.
    bug("doubled first", ("now + (interval +", "now + (min(2 * interval, bounds.most) +"), test_po2_gaps_double),
    bug("in equal steps", ("min(2 * interval,", "min(interval + bounds.least,"), test_po2_gaps_double),
    # The next poll follows the missed one by an interval, so a late worker polls repeatedly.
    bug("from when it was due", ("now + (interval +", "pace.due + (interval +"), test_po6_turns_are_one_workers),
    # As in mongodash: any wait that the clock shows is accepted.
    bug("it waits for its clock", ("0 if wait > bounds.longest else wait", "wait"), test_po7_clocks_may_be_set_back),
    # The first due source is polled, so a busy one starves those behind it.
    bug(
        "in order of name",
        ("key=itemgetter(1)", "key=lambda each: (each[1] > 0, each[1] if each[1] > 0 else each[0])"),
        test_po4_the_longest_due_is_asked,
    ),
    # Rounded to the resolution of a clock.
    bug("a little early", ("if wait > 0:", "if wait > 1:"), test_po4_the_longest_due_is_asked),
    bug(
        "it waits for the last", ("Wait(now + wait, wait)", "Wait(now + max(waits.values()), max(waits.values()))"),
        test_po5_waits_end,
    ),
    bug(
        "it sleeps as long as is ever slept", ("Wait(now + wait, wait)", "Wait(now + bounds.longest, bounds.longest)"),
        test_po5_waits_end,
    ),
    # The interval resets, but the planned poll stays.
    bug(
        "only faster", ("pace.due if pace.due - now < 0 else now", "pace.due"),
        test_po3_announcements_are_due, test_po3_announcements_stay_due,
    ),
    # As in mongodash: an overdue source goes behind sources that are less overdue.
    bug("due now", ("pace.due if pace.due - now < 0 else now", "now"), test_po3_announcements_are_due),
    bug(
        "not faster", ("pace.due - now < 0 else now, bounds.least", "pace.due - now < 0 else now, 2 * pace.interval"),
        test_po1_paces_stay_within,
    ),
)  # fmt: skip


def test_a_planted_pace_that_is_kept_after_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "answered", staticmethod(lambda _, kept: kept))
    with pytest.raises(AssertionError):
        test_po3_announcements_stay_due()


# --- facts --------------------------------------------------------------------------------------------------------------


def test_an_idle_worker_looks_ever_more_rarely() -> None:
    """The gaps of mongodash in ms: 200, 400, ... 6400, 10000, 10000, plus 0 to 100."""
    bounds, now = PollingBounds(), START
    pace, gaps = polling.fresh(bounds, now), list[int]()
    for draw in (0, 0, 0, 0, 0, 0, 0, PPM // 2, PPM):
        done = polling.turn(bounds, {"tasks": pace}, now, draw)
        assert isinstance(done, Ask)
        gaps.append((done.pace.due - now) // MILLISECOND)
        now, pace = done.pace.due, done.pace

    assert gaps == [200, 400, 800, 1600, 3200, 6400, 10_000, 10_050, 10_100]


def test_what_is_found_is_followed_by_the_next_look() -> None:
    found = polling.woken(SMALL, Pace(START + 7, 9), START + 1)

    assert found == Pace(START + 1, 2)
    assert polling.turn(SMALL, {"a": found, "b": Pace(START + 2, 9)}, START + 1) == Ask(
        "a", Pace(START + 3, 4), AskReason.DUE
    )


def test_a_busy_source_does_not_starve_another() -> None:
    """`a` is never empty; `b`, due at 3, is polled once it is overdue longer than `a`."""
    paces = {"a": polling.fresh(SMALL, START), "b": Pace(START + 3, 2)}
    asked = list[str]()
    for at in range(6):
        done = polling.turn(SMALL, paces, START + at)
        assert isinstance(done, Ask)
        asked.append(done.source)
        paces[done.source] = done.pace
        paces["a"] = polling.woken(SMALL, paces["a"], START + at)

    assert asked == ["a", "a", "a", "a", "a", "b"]


def test_verdicts_say_why() -> None:
    wide = Pace(START, 500)
    plain = polling.turn(PollingBounds(jitter=LONGEST), {"tasks": wide}, START)

    assert plain == Ask("tasks", Pace(START + 200 * MILLISECOND, 400 * MILLISECOND), AskReason.DUE)
    assert str(polling.turn(SMALL, {"tasks": wide}, START)) == "ask tasks: it is due"
    assert polling.turn(SMALL, {"tasks": wide}, START) == Ask("tasks", Pace(START + 9, 9), AskReason.DUE)
    assert polling.turn(SMALL, {"tasks": wide}, START + -13) == Ask(
        "tasks", Pace(START + -4, 9), AskReason.CLOCK_SET_BACK
    )
    assert str(polling.turn(SMALL, {"tasks": wide}, START + -12)) == "wait 12 us, until 0 s@wall"
    assert str(polling.turn(SMALL, {}, START)) == "no source"
    assert polling.turn(SMALL, {}, START) == NoSource()


@given(CASES)
def test_the_order_of_sources_matters_only_among_equals(each: Case) -> None:
    done, other = each.done(), attrs.evolve(each, paces=each.paces[::-1]).done()
    dues = {source: pace.due for source, pace in each.paces}

    if isinstance(done, Ask) and isinstance(other, Ask) and done.why is other.why is AskReason.DUE:
        assert dues[done.source] == dues[other.source]
    else:
        assert type(done) is type(other)


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: PollingBounds(least=0),
        lambda: PollingBounds(least=3, most=2),
        lambda: PollingBounds(jitter=-1),
        lambda: PollingBounds(most=LONGEST + 1),
        lambda: PollingBounds(least=True),
        lambda: PollingBounds(least=0.2),  # type: ignore[arg-type]
        lambda: PollingBounds(jitter=None),  # type: ignore[arg-type]
        lambda: polling.fresh(None, START),  # type: ignore[arg-type]
        lambda: polling.fresh(SMALL, None),  # type: ignore[arg-type]
        lambda: polling.turn("fast", {}, START),  # type: ignore[arg-type]
        lambda: polling.turn(SMALL, [Pace(START, 1)], START),  # type: ignore[arg-type]
        lambda: polling.turn(SMALL, {"a": START}, START),  # type: ignore[dict-item]
        lambda: polling.turn(SMALL, {}, 0),  # type: ignore[arg-type]
        lambda: polling.turn(SMALL, {}, START, PPM + 1),
        lambda: polling.turn(SMALL, {}, START, -1),
        lambda: polling.turn(SMALL, {"a": Pace(Instant(0, STORE), 1)}, START),
        lambda: polling.woken(None, Pace(START, 1), START),  # type: ignore[arg-type]
        lambda: polling.woken(SMALL, None, START),  # type: ignore[arg-type]
        lambda: polling.woken(SMALL, Pace(START, 1), 0),  # type: ignore[arg-type]
        lambda: polling.woken(SMALL, Pace(START, 1), Instant(0, STORE)),
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
