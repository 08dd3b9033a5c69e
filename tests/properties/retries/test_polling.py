from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, STORE, WALL, Duration, Instant
from tidegate.retries import polling
from tidegate.retries.backoff import LONGEST
from tidegate.retries.laws import polling as laws
from tidegate.retries.polling import Ask, AskReason, NoSource, Pace, PollingBounds, Turn, Wait
from tidegate.retries.strategies import polling as drawn
from tidegate.retries.strategies.backoff import draws

START = Instant(0, WALL)
SMALL = PollingBounds(least=2, most=9, jitter=3)


class TakeTurn(Protocol):
    """What a worker asks."""

    def __call__(
        self, bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw_ppm: int, /
    ) -> Turn[str]: ...


@attrs.frozen
class Poller:
    """What workers ask: the real functions, but for one that is planted.

    `answered` is what becomes of a pace when a look has found nothing: (as it is now, as it was kept at the turn).
    """

    turn: TakeTurn = polling.turn
    woken: Callable[[PollingBounds, Pace, Instant], Pace] = polling.woken
    answered: Callable[[Pace, Pace], Pace] = lambda now, _: now


REAL = Poller()


@attrs.frozen
class Case:
    """What is known when a worker has nothing to do."""

    bounds: PollingBounds
    paces: tuple[tuple[str, Pace], ...]
    now: Instant = START
    draw: int = 0

    def done(self, poller: Poller) -> Turn[str]:
        return poller.turn(self.bounds, dict(self.paces), self.now, self.draw)


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


def effort(poller: Poller) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if poller == REAL else settings(phases=(Phase.explicit, Phase.generate))


# --- the laws -----------------------------------------------------------------------------------------------------------


def check_po1(poller: Poller) -> None:
    @effort(poller)
    @given(CASES, drawn.paces())
    @example(case(0, draw=PPM), Pace(START, 9))
    def paces_stay_within(each: Case, pace: Pace) -> None:
        done = each.done(poller)
        assert laws.stays_within(each.bounds, poller.woken(each.bounds, pace, each.now), each.now)
        if isinstance(done, Ask):
            assert laws.stays_within(each.bounds, done.pace, each.now)

    paces_stay_within()


def check_po2(poller: Poller) -> None:
    @effort(poller)
    @given(st.one_of(st.just(SMALL), drawn.bounds()), st.lists(draws(), min_size=1, max_size=8))
    @example(SMALL, [0, 0, 0, 0])
    def gaps_double(bounds: PollingBounds, jitters: list[int]) -> None:
        now, pace, gaps = START, polling.fresh(bounds, START), list[Duration]()
        for draw in jitters:
            done = poller.turn(bounds, {"a": pace}, now, draw)
            assert isinstance(done, Ask)
            gaps.append(done.pace.due - now)
            now, pace = done.pace.due, done.pace
        assert laws.gaps_double(bounds, gaps)

    gaps_double()


def check_po3(poller: Poller) -> None:
    @effort(poller)
    @given(drawn.bounds(), drawn.paces(), st.integers(-20, 40).map(lambda at: Instant(at, WALL)))
    @example(SMALL, Pace(START + -5, 9), START)
    @example(SMALL, Pace(START + 5, 9), START)
    def announcements_are_due(bounds: PollingBounds, pace: Pace, now: Instant) -> None:
        assert laws.makes_it_due(pace, poller.woken(bounds, pace, now), now)

    announcements_are_due()


@attrs.frozen
class Announced:
    """Something is put into the source; whoever waits learns of it."""

    source: str


@attrs.frozen
class Turned:
    """A worker that has nothing to do takes its turn; the source reads what it has at this instant."""

    worker: int


@attrs.frozen
class Answered:
    """The answer to the worker arrives."""

    worker: int


@attrs.frozen
class Passed:
    """Time passes."""

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
    """Some workers of one process, the sources that they share, and what those hold."""

    poller: Poller
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
                done = self.poller.turn(SMALL, self.paces, self.now, 0)
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
                    self.paces[source] = self.poller.answered(self.paces[source], kept)
            case _:
                pass  # a worker that is busy takes no turn, and one that asked nothing receives nothing

    def wake(self, source: str) -> None:
        self.paces[source] = self.poller.woken(SMALL, self.paces[source], self.now)


def check_po3_over_time(poller: Poller) -> None:
    """Any interleaving of announcements, turns and late answers of three workers."""

    @effort(poller)
    @given(st.lists(EVENTS, max_size=30))
    @example([Turned(0), Announced("a"), Answered(0)])
    def announcements_stay_due(events: list[Event]) -> None:
        process = Process(poller)
        for event in events:
            process.take(event)
            for source, pace in process.paces.items():
                announced = process.unasked.get(source, START)
                assert laws.stays_due(announced, source not in process.unasked, pace)

    announcements_stay_due()


def check_po4(poller: Poller) -> None:
    @effort(poller)
    @given(CASES)
    @example(case(-1, -2))
    @example(case(1))
    def the_longest_due_is_asked(each: Case) -> None:
        assert laws.asks_who_is_due_longest(each.bounds, dict(each.paces), each.now, each.done(poller))

    the_longest_due_is_asked()


def check_po5(poller: Poller) -> None:
    @effort(poller)
    @given(CASES)
    @example(case(2, 1))
    @example(case())
    def waits_end(each: Case) -> None:
        assert laws.waits_for_the_first(each.bounds, dict(each.paces), each.now, each.done(poller))

    waits_end()


def check_po6(poller: Poller) -> None:
    @effort(poller)
    @given(CASES)
    @example(case(-50))
    def turns_are_one_workers(each: Case) -> None:
        assert laws.is_taken(each.now, each.done(poller))

    turns_are_one_workers()


def check_po7(poller: Poller) -> None:
    @effort(poller)
    @given(CASES)
    @example(case(12, 14))
    @example(case(13))
    def clocks_may_be_set_back(each: Case) -> None:
        assert laws.bears_a_clock_set_back(each.bounds, dict(each.paces), each.now, each.done(poller))

    clocks_may_be_set_back()


LAWS: dict[str, Callable[[Poller], None]] = {
    "PO1": check_po1,
    "PO2": check_po2,
    "PO3": check_po3,
    "PO3 over time": check_po3_over_time,
    "PO4": check_po4,
    "PO5": check_po5,
    "PO6": check_po6,
    "PO7": check_po7,
}


@pytest.mark.parametrize("law", LAWS)
def test_polling_keeps_the_law(law: str) -> None:
    """Laws PO1 to PO7, as the header of `tidegate.retries.polling` states them."""
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def repaced(
    change: Callable[[PollingBounds, Pace, Pace, Instant], Pace],
) -> Callable[[PollingBounds, Mapping[str, Pace], Instant, int], Turn[str]]:
    """A turn that keeps another pace: made of the bounds, the pace before and after, and now."""

    def turn(bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw: int) -> Turn[str]:
        done = polling.turn(bounds, paces, now, draw)
        if isinstance(done, Ask):
            return attrs.evolve(done, pace=change(bounds, paces[done.source], done.pace, now))
        return done

    return turn


def uncapped(_: PollingBounds, before: Pace, __: Pace, now: Instant) -> Pace:
    return Pace(now + before.interval, min(2 * before.interval, LONGEST))


def doubled_first(bounds: PollingBounds, before: Pace, after: Pace, now: Instant) -> Pace:
    """The interval doubles before the gap is made of it, so the first is twice the least."""
    return attrs.evolve(after, due=now + min(2 * before.interval, bounds.most))


def in_equal_steps(bounds: PollingBounds, before: Pace, after: Pace, _: Instant) -> Pace:
    return attrs.evolve(after, interval=min(before.interval + bounds.least, bounds.most))


def from_when_it_was_due(_: PollingBounds, before: Pace, after: Pace, now: Instant) -> Pace:
    """The next look is one interval after the one that was missed, so who was late asks again and again."""
    return attrs.evolve(after, due=before.due + (after.due - now))


def waits_for_its_clock(bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw: int) -> Turn[str]:
    """As in mongodash: whatever the clock says is waited for."""
    first = min(paces.values(), key=lambda pace: pace.due.at, default=None)
    if first is not None and first.due - now > 0:
        return Wait(first.due, first.due - now)
    return polling.turn(bounds, paces, now, draw)


def in_order_of_name(bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw: int) -> Turn[str]:
    """The first source that is due is asked, so a busy one starves those behind it."""
    for source in sorted(paces):
        done = polling.turn(bounds, {source: paces[source]}, now, draw)
        if isinstance(done, Ask):
            return done
    return polling.turn(bounds, paces, now, draw)


def a_little_early(bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw: int) -> Turn[str]:
    """Rounded to what a clock can show."""
    return polling.turn(bounds, paces, now + 1, draw)


def for_the_last(bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw: int) -> Turn[str]:
    done = polling.turn(bounds, paces, now, draw)
    last = max((pace.due - now for pace in paces.values()), default=0)
    return Wait(now + last, last) if isinstance(done, Wait) else done


def a_while(bounds: PollingBounds, paces: Mapping[str, Pace], now: Instant, draw: int) -> Turn[str]:
    """Sleep as long as is ever slept."""
    done = polling.turn(bounds, paces, now, draw)
    return Wait(now + bounds.longest, bounds.longest) if isinstance(done, Wait) else done


def only_faster(bounds: PollingBounds, pace: Pace, _: Instant) -> Pace:
    """The interval falls back, but the look that is planned stays where it is."""
    return attrs.evolve(pace, interval=bounds.least)


def due_now(bounds: PollingBounds, _: Pace, now: Instant) -> Pace:
    """As in mongodash: a source that is overdue goes behind those that are due less long."""
    return Pace(now, bounds.least)


def not_faster(_: PollingBounds, pace: Pace, now: Instant) -> Pace:
    return Pace(now, 2 * pace.interval if pace.interval < LONGEST // 2 else pace.interval)


def kept_after_the_answer(_: Pace, kept: Pace) -> Pace:
    """The pace is written when the answer is there, over what was announced meanwhile."""
    return kept


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("PO1", Poller(turn=repaced(uncapped))),
        ("PO1", Poller(woken=not_faster)),
        ("PO2", Poller(turn=repaced(uncapped))),
        ("PO2", Poller(turn=repaced(doubled_first))),
        ("PO2", Poller(turn=repaced(in_equal_steps))),
        ("PO3", Poller(woken=only_faster)),
        ("PO3", Poller(woken=due_now)),
        ("PO3 over time", Poller(woken=only_faster)),
        ("PO3 over time", Poller(answered=kept_after_the_answer)),
        ("PO4", Poller(turn=in_order_of_name)),
        ("PO4", Poller(turn=a_little_early)),
        ("PO5", Poller(turn=for_the_last)),
        ("PO5", Poller(turn=a_while)),
        ("PO6", Poller(turn=repaced(from_when_it_was_due))),
        ("PO7", Poller(turn=waits_for_its_clock)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Poller) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts --------------------------------------------------------------------------------------------------------------


def test_an_idle_worker_looks_ever_more_rarely() -> None:
    """The gaps of mongodash, in milliseconds: 200, 400, ... 6400, 10000, 10000, plus 0 to 100."""
    bounds, now = PollingBounds(), START
    pace, gaps = polling.fresh(bounds, now), list[int]()
    for draw in (0, 0, 0, 0, 0, 0, 0, PPM // 2, PPM):
        done = polling.turn(bounds, {"tasks": pace}, now, draw)
        assert isinstance(done, Ask)
        gaps.append((done.pace.due - now) // MILLISECOND)
        now, pace = done.pace.due, done.pace

    assert gaps == [200, 400, 800, 1600, 3200, 6400, 10_000, 10_050, 10_100]


def test_what_is_found_is_followed_by_the_next_look() -> None:
    """A source that had something is due at once and from the least interval on; its neighbour keeps its pace."""
    found = polling.woken(SMALL, Pace(START + 7, 9), START + 1)

    assert found == Pace(START + 1, 2)
    assert polling.turn(SMALL, {"a": found, "b": Pace(START + 2, 9)}, START + 1) == Ask(
        "a", Pace(START + 3, 4), AskReason.DUE
    )


def test_a_busy_source_does_not_starve_another() -> None:
    """Something is found in `a` at every turn, and still `b`, due at 3, is asked as soon as it is due longer than `a`."""
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
    """Ask, wait or nothing, in one line each; a bound that was narrowed since takes hold at the next turn."""
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
    """Metamorphic: reversed, the same wait is answered, or a source that is due just as long."""
    done, other = each.done(REAL), attrs.evolve(each, paces=each.paces[::-1]).done(REAL)
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
    """A bad configuration is an error at construction, a bad argument one at the call; neither is a crash."""
    with pytest.raises(Misuse):
        wrong()
