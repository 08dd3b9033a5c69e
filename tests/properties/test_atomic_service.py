from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.atomic_service import (
    PPM,
    Assigned,
    AtomicService,
    AtomicServiceClaim,
    AtomicServiceRun,
    LateStart,
    NoStableRunners,
    NotAssignedSlot,
    Runner,
    ScheduledRunnerInGrace,
    SlotWindowInvalid,
    Verdict,
    Window,
    decide_atomic_service_claim,
)
from tidegate.errors import Misuse
from tidegate.instants import MILLISECOND, MINUTE, SECOND, STORE, WALL, Duration, Instant
from tidegate.laws import atomic_service as laws

EPOCH = Instant(0)
LONG_AGO = Instant(-10_000 * MINUTE)


class Decide(Protocol):
    """The decision, or a faulty variant of it."""

    def __call__(
        self, *, service: AtomicService, runner_id: str, runners: tuple[Runner, ...], now: Instant, run_id: str
    ) -> AtomicServiceClaim: ...


@attrs.frozen
class View:
    """What all runners know, and the time."""

    service: AtomicService
    runners: tuple[Runner, ...]
    now: Instant

    def claims(self, decide: Decide, now: Instant | None = None) -> list[AtomicServiceClaim]:
        return [self.claim(decide, runner.id, now) for runner in self.runners]

    def claim(self, decide: Decide, runner_id: str, now: Instant | None = None) -> AtomicServiceClaim:
        return decide(
            service=self.service, runner_id=runner_id, runners=self.runners, now=now or self.now, run_id="run"
        )

    def cycle(self) -> list[Instant]:
        """Each instant of the cycle that now is in."""
        start = self.now + -(self.now.at % self.service.interval)
        return [start + elapsed for elapsed in range(self.service.interval)]

    def later(self, by: Duration) -> View:
        return View(
            self.service, tuple(Runner(runner.id, runner.created + by) for runner in self.runners), self.now + by
        )


def listed(*ids: str) -> tuple[Runner, ...]:
    return tuple(Runner(each, LONG_AGO) for each in ids)


def crowd(count: int) -> tuple[Runner, ...]:
    return listed(*(f"r{place}" for place in range(count)))


@st.composite
def services(draw: st.DrawFn, intervals: st.SearchStrategy[int], *, grace: bool = False) -> AtomicService:
    interval = draw(intervals)
    fractions = st.sampled_from([0, 1, PPM // 3, PPM // 2, PPM - 1, PPM])
    return AtomicService(
        interval=interval,
        spread=draw(st.sampled_from([0, 1, interval // 5, interval // 3]).filter(lambda spread: spread < interval)),
        stabilisation=draw(st.integers(0, 2 * interval)) if grace else 0,
        start_fraction_ppm=draw(fractions),
    )


@st.composite
def small_views(draw: st.DrawFn, *, grace: bool = False) -> View:
    """So small that each instant of a cycle can be asked."""
    service = draw(services(st.integers(1, 24), grace=grace))
    now = Instant(draw(st.integers(-60, 60)))
    created = [now + -draw(st.integers(-5, 50)) for _ in range(draw(st.integers(1, 5)))]
    return View(service, tuple(Runner(f"r{place}", each) for place, each in enumerate(created)), now)


@st.composite
def large_views(draw: st.DrawFn) -> View:
    """Real lengths, and instants close to the edges of slots."""
    service = draw(services(st.sampled_from([MINUTE, 5 * MINUTE, 7 * SECOND])))
    count = draw(st.integers(1, 40))
    edge = draw(st.integers(0, count)) * service.interval // count
    cycle = draw(st.integers(-2, 6_000_000)) * service.interval
    return View(service, crowd(count), Instant(cycle + edge + draw(st.integers(-2, 2))))


views = st.one_of(small_views(), small_views(grace=True), large_views())

UNGUARDED = AtomicService(interval=5 * MINUTE, spread=0, start_fraction_ppm=PPM)
IN_2027 = 1_800_000_000 * SECOND
THIRTEEN = View(UNGUARDED, crowd(13), Instant(IN_2027 + 3 * UNGUARDED.interval // 13))
SEVENTEEN = View(UNGUARDED, crowd(17), Instant(IN_2027))


# --- the laws, each as a property of an implementation ----------------------------------------------------------------


def check_a1(decide: Decide) -> None:
    @given(views)
    @example(THIRTEEN)
    def holds(view: View) -> None:
        assert laws.one_runner_is_cleared(view.claims(decide))

    holds()


def check_a1_of_clocks_that_differ(decide: Decide) -> None:
    @given(small_views())
    @example(View(AtomicService(interval=12, spread=4, start_fraction_ppm=PPM), crowd(2), EPOCH))
    def holds(view: View) -> None:
        margin = view.service.spread
        instants = [*view.cycle(), *(view.cycle()[-1] + late for late in range(1, margin + 1))]
        claims = [view.claims(decide, now) for now in instants]

        assert all(
            laws.one_runner_is_cleared(earlier + later)
            for first, earlier in enumerate(claims)
            for later in claims[first : first + margin + 1]
        )

    holds()


def check_a2(decide: Decide) -> None:
    @given(views)
    @example(SEVENTEEN)
    def holds(view: View) -> None:
        windows = [claim.window for claim in view.claims(decide) if claim.window is not None]

        assert not windows or laws.gaps_are_the_margin(windows, view.service)

    holds()


def check_a3(decide: Decide) -> None:
    @given(small_views())
    def holds(view: View) -> None:
        count = len(view.runners)
        claims = [claim for now in view.cycle() for claim in view.claims(decide, now)]
        expected = view.runners if count == 1 or view.service.interval // count > view.service.spread else ()

        assert laws.every_runner_is_cleared(claims, expected)

    holds()


def check_a4(decide: Decide) -> None:
    @given(views, st.integers(-3, 3))
    @example(View(AtomicService(interval=10, spread=0), crowd(1), Instant(-3)), 1)
    def holds(view: View, cycles: int) -> None:
        by = cycles * view.service.interval

        assert all(
            laws.moved_by_whole_cycles(claim, later, by)
            for claim, later in zip(view.claims(decide), view.later(by).claims(decide), strict=True)
        )

    holds()


def check_a5(decide: Decide) -> None:
    @given(views)
    @example(View(AtomicService(interval=10, spread=0), crowd(3), Instant(3)))
    def holds(view: View) -> None:
        assert all(map(laws.the_assigned_is_cleared, view.claims(decide)))

    holds()


def check_a6(decide: Decide) -> None:
    @given(small_views(grace=True))
    @example(View(AtomicService(interval=10, spread=0, stabilisation=5), (Runner("a", EPOCH),), Instant(1)))
    def holds(view: View) -> None:
        claims = view.claims(decide)

        assert all(laws.newcomers_are_spared(claim, view.service, view.runners, view.now) for claim in claims)

    holds()


def check_a7(decide: Decide) -> None:
    @given(views)
    @example(View(attrs.evolve(UNGUARDED, start_fraction_ppm=PPM // 2), crowd(1), EPOCH + (150 * SECOND + 1)))
    def holds(view: View) -> None:
        assert all(laws.no_start_is_late(claim, view.service, view.now) for claim in view.claims(decide))

    holds()


def test_at_most_one_runner_is_cleared_at_an_instant() -> None:
    """Law A1, for one clock. pynenc: exactly one runner processes the services at any given time."""
    check_a1(decide_atomic_service_claim)


def test_at_most_one_runner_is_cleared_when_clocks_differ_by_the_margin() -> None:
    """Law A1, for clocks: the margin is a guard time."""
    check_a1_of_clocks_that_differ(decide_atomic_service_claim)


def test_windows_follow_each_other_with_the_margin_between_them() -> None:
    """Law A2: no window overlaps another, and no instant is lost beyond the margin."""
    check_a2(decide_atomic_service_claim)


def test_every_runner_has_its_turn_in_each_cycle() -> None:
    """Law A3, by asking at each instant of small cycles; and nobody has one where a slot is all margin."""
    check_a3(decide_atomic_service_claim)


def test_a_whole_cycle_later_all_is_the_same() -> None:
    """Law A4, before the epoch too."""
    check_a4(decide_atomic_service_claim)


@given(small_views(), st.integers(-3, 3))
def test_without_grace_creations_do_not_matter(view: View, cycles: int) -> None:
    """Law A4 without grace: creations may stay where they are."""
    by = cycles * view.service.interval
    claims = view.claims(decide_atomic_service_claim)
    later = view.claims(decide_atomic_service_claim, view.now + by)

    assert all(laws.moved_by_whole_cycles(claim, other, by) for claim, other in zip(claims, later, strict=True))


def test_the_cleared_runner_is_the_assigned_one() -> None:
    """Law A5: the index told agrees with the windows, at the edges of slots too."""
    check_a5(decide_atomic_service_claim)


def test_the_slot_of_a_newcomer_stays_empty() -> None:
    """Law A6. pynenc: keep new runners in membership while temporarily non-runnable."""
    check_a6(decide_atomic_service_claim)


def test_no_start_is_late() -> None:
    """Law A7. pynenc: abort starts that consume too much of the assigned slot."""
    check_a7(decide_atomic_service_claim)


# --- a dumb twin, and what goes wrong with it -------------------------------------------------------------------------


class Twin:
    """The same decision from fractions and a search, and its parts to be broken one by one."""

    def cycle_start(self, now: Instant, service: AtomicService) -> Instant:
        return Instant(math.floor(Fraction(now.at, service.interval)) * service.interval, now.clock)

    def edges(self, count: int, service: AtomicService) -> list[int]:
        return [math.floor(place * Fraction(service.interval, count)) for place in range(count + 1)]

    def window(self, place: int, count: int, service: AtomicService, start: Instant) -> Window:
        margin = service.spread if count > 1 else 0
        edges = self.edges(count, service)
        return Window(start + edges[place], start + (edges[place + 1] - margin))

    def assigned(self, elapsed: Duration, count: int, service: AtomicService) -> int:
        edges = self.edges(count, service)
        return next(place for place in range(count) if edges[place] <= elapsed < edges[place + 1])

    def holds(self, window: Window, now: Instant) -> bool:
        return window.start.at <= now.at < window.end.at

    def in_grace(self, runner: Runner, service: AtomicService, now: Instant, count: int) -> bool:
        return count > 0 and service.stabilisation > 0 and now.at < runner.created.at + service.stabilisation

    def late(self, window: Window, service: AtomicService, now: Instant) -> bool:
        guarded = 0 < service.start_fraction_ppm < PPM
        return guarded and self.gone(window, now) > Fraction(service.start_fraction_ppm, PPM)

    def gone(self, window: Window, now: Instant) -> Fraction:
        return Fraction(now.at - window.start.at, window.end.at - window.start.at)

    def __call__(
        self, *, service: AtomicService, runner_id: str, runners: tuple[Runner, ...], now: Instant, run_id: str
    ) -> AtomicServiceClaim:
        count = len(runners)
        start = self.cycle_start(now, service)
        ids = [runner.id for runner in runners]
        place = ids.index(runner_id) if runner_id in ids else None
        scheduled = runners[self.assigned(now - start, count, service)] if count else None
        slots = zip(self.edges(count, service), self.edges(count, service)[1:], strict=False) if count else ()
        invalid = count > 1 and min(end - begin for begin, end in slots) <= service.spread
        window = None if place is None or invalid else self.window(place, count, service, start)
        verdict: Verdict
        if scheduled is None:
            verdict = NoStableRunners()
        elif place is None:
            verdict = NotAssignedSlot()
        elif window is None:
            verdict = SlotWindowInvalid(service.interval // count, service.spread)
        elif self.in_grace(scheduled, service, now, count):
            verdict = ScheduledRunnerInGrace(scheduled.created + service.stabilisation)
        elif count > 1 and not self.holds(window, now):
            verdict = NotAssignedSlot()
        elif self.late(window, service, now):
            verdict = LateStart(math.ceil(self.gone(window, now) * PPM), service.start_fraction_ppm)
        else:
            verdict = Assigned(AtomicServiceRun(runner_id, run_id, start, window, now))
        assigned = None if scheduled is None else scheduled.id
        owner_now = window is not None and assigned == runner_id and now.at >= window.start.at
        return AtomicServiceClaim(
            runner_id=runner_id,
            verdict=verdict,
            cycle_start=start,
            runners=count,
            assigned=assigned,
            position=place,
            window=window,
            owner_now=owner_now,
        )


class FloatEdges(Twin):
    """pynenc's windows: start and end each from its own floating-point sum, rounded to microseconds."""

    def window(self, place: int, count: int, service: AtomicService, start: Instant) -> Window:
        slot, margin = service.interval / SECOND / count, (service.spread if count > 1 else 0) / SECOND
        begin = start.at / SECOND + place * slot
        end = start.at / SECOND + place * slot + slot - margin
        return Window(Instant(round(begin * SECOND)), Instant(round(end * SECOND)))


class EndIncluded(Twin):
    """The last instant of a window is in it, and the first of the next."""

    def holds(self, window: Window, now: Instant) -> bool:
        return window.start.at <= now.at <= window.end.at


class HalfAMargin(Twin):
    """The margin is shared by the two slots that it lies between, and taken off once."""

    def window(self, place: int, count: int, service: AtomicService, start: Instant) -> Window:
        return super().window(place, count, attrs.evolve(service, spread=service.spread // 2), start)


class StartExcluded(Twin):
    """A window of one microsecond has no instant."""

    def holds(self, window: Window, now: Instant) -> bool:
        return window.start.at < now.at < window.end.at


class CycleRoundedToZero(Twin):
    """Division that cuts instead of flooring: around the epoch two cycles are one."""

    def cycle_start(self, now: Instant, service: AtomicService) -> Instant:
        return Instant(int(now.at / service.interval) * service.interval, now.clock)

    def assigned(self, elapsed: Duration, count: int, service: AtomicService) -> int:
        return super().assigned(elapsed % service.interval, count, service)


class AssignedByDivision(Twin):
    """pynenc's index, floor(t / (I / N)): another one than the windows' where an edge was rounded down."""

    def assigned(self, elapsed: Duration, count: int, service: AtomicService) -> int:
        return elapsed * count // service.interval


class GraceForSeveralOnly(Twin):
    """A single runner needs no margin, so it needs no grace either."""

    def in_grace(self, runner: Runner, service: AtomicService, now: Instant, count: int) -> bool:
        return count > 1 and super().in_grace(runner, service, now, count)


class LateRoundedDown(Twin):
    """The fraction is rounded down before it is compared."""

    def late(self, window: Window, service: AtomicService, now: Instant) -> bool:
        return 0 < service.start_fraction_ppm < math.floor(self.gone(window, now) * PPM)


@pytest.mark.parametrize(
    ("check", "bug"),
    [
        (check_a1, FloatEdges()),
        (check_a1, EndIncluded()),
        (check_a1_of_clocks_that_differ, HalfAMargin()),
        (check_a2, FloatEdges()),
        (check_a2, HalfAMargin()),
        (check_a3, StartExcluded()),
        (check_a4, CycleRoundedToZero()),
        (check_a5, AssignedByDivision()),
        (check_a6, GraceForSeveralOnly()),
        (check_a7, LateRoundedDown()),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_a_planted_bug_breaks_the_law(check: Callable[[Decide], None], bug: Twin) -> None:
    """Each law has a specimen that breaks it, so the law says something."""
    with pytest.raises(AssertionError):
        check(bug)


@given(views, st.integers(0, 40))
def test_the_decision_agrees_with_a_dumb_twin(view: View, place: int) -> None:
    """Fractions and a search give the same claim, for runners and for a stranger."""
    caller = f"r{place}"

    assert view.claim(Twin(), caller) == view.claim(decide_atomic_service_claim, caller)


def test_the_decision_is_total_over_a_small_world() -> None:
    """Every interval to 6 us, margin, number of runners, instant of three cycles and caller has its claim."""
    twin, asked = Twin(), 0
    for interval in range(1, 7):
        for spread in range(interval):
            service = AtomicService(interval=interval, spread=spread, stabilisation=1, start_fraction_ppm=PPM // 3)
            for count in range(5):
                for now in range(-interval, 2 * interval):
                    runners = tuple(Runner(f"r{place}", Instant(place)) for place in range(count))
                    view = View(service, runners, Instant(now))
                    for caller in ("r0", "r1", "z"):
                        asked += 1
                        assert view.claim(twin, caller) == view.claim(decide_atomic_service_claim, caller)

    assert asked == sum(3 * interval * 3 * interval * 5 for interval in range(1, 7))


def test_the_float_windows_of_pynenc_overlap_and_leave_gaps() -> None:
    """In doubles, at the instants where it was seen, two runners of 13 are cleared and none of 17; ours clears one."""
    cycle = 1_800_000_000.0

    def cleared(count: int, now: float) -> list[int]:
        slot = 300 / count
        return [p for p in range(count) if cycle + p * slot <= now < cycle + p * slot + slot]

    overlap, gap = cycle + 7 * 300 / 13, cycle + 300 / 17 + 300 / 17

    assert cleared(13, overlap) == [6, 7]
    assert cleared(17, gap) == []
    for count, moment in ((13, overlap), (17, gap)):
        for now in range(math.floor(moment * SECOND) - 1, math.ceil(moment * SECOND) + 2):
            view = View(UNGUARDED, crowd(count), Instant(now))
            assert len(laws.cleared(view.claims(decide_atomic_service_claim))) == 1


# --- the vectors ------------------------------------------------------------------------------------------------------

AB = listed("a", "b")
ABC = listed("a", "b", "c")
YOUNG = (Runner("a", EPOCH), Runner("b", EPOCH + 140 * SECOND))
DEFAULT = AtomicService()
GRACE = AtomicService(stabilisation=MINUTE)
ANY_TIME = AtomicService(start_fraction_ppm=PPM)


@attrs.frozen
class Vector:
    """A question, and what is to be answered; windows in seconds."""

    caller: str
    runners: tuple[Runner, ...]
    service: AtomicService
    now_ms: int
    kind: type[Verdict]
    assigned: str | None = None
    window: tuple[int, int] | None = None
    owner_now: bool = False
    gone_ppm: int | None = None


@pytest.mark.parametrize(
    "vector",
    [
        Vector("a", (), DEFAULT, 10_000, NoStableRunners, None, None, False, None),
        Vector("a", listed("a"), DEFAULT, 1_000_000, Assigned, "a", (900, 1200), True, None),
        Vector("a", listed("a"), DEFAULT, 1_051_000, LateStart, "a", (900, 1200), True, 503_334),
        Vector("a", listed("a"), ANY_TIME, 250_000, Assigned, "a", (0, 300), True, None),
        Vector("z", AB, DEFAULT, 10_000, NotAssignedSlot, "a", None, False, None),
        Vector("a", AB, DEFAULT, 45_000, Assigned, "a", (0, 90), True, None),
        Vector("a", AB, DEFAULT, 60_000, LateStart, "a", (0, 90), True, 666_667),
        Vector("a", AB, DEFAULT, 90_000, NotAssignedSlot, "a", (0, 90), True, None),
        Vector("b", AB, DEFAULT, 149_999, NotAssignedSlot, "a", (150, 240), False, None),
        Vector("b", AB, DEFAULT, 150_000, Assigned, "b", (150, 240), True, None),
        Vector("c", ABC, DEFAULT, 221_000, LateStart, "c", (200, 240), True, 525_000),
        Vector("r0", crowd(5), DEFAULT, 10_000, SlotWindowInvalid, "r0", None, False, None),
        Vector("r3", crowd(5), DEFAULT, 10_000, SlotWindowInvalid, "r0", None, False, None),
        Vector("a", YOUNG, GRACE, 160_000, ScheduledRunnerInGrace, "b", (0, 90), False, None),
        Vector("b", YOUNG, GRACE, 200_000, LateStart, "b", (150, 240), True, 555_556),
        Vector("b", AB, DEFAULT, -60_000, NotAssignedSlot, "b", (-150, -60), True, None),
    ],
)
def test_the_described_vectors_hold(vector: Vector) -> None:
    """What pynenc answered when it ran at its defaults: interval 300 s, margin 60 s, start fraction 0.5."""
    now = Instant(vector.now_ms * MILLISECOND)
    claim = View(vector.service, vector.runners, now).claim(decide_atomic_service_claim, vector.caller)

    assert type(claim.verdict) is vector.kind
    assert claim.assigned == vector.assigned
    assert claim.window == (vector.window and Window(*(Instant(second * SECOND) for second in vector.window)))
    assert claim.owner_now == vector.owner_now
    assert getattr(claim.verdict, "gone_ppm", None) == vector.gone_ppm
    assert claim.runners == len(vector.runners)
    assert claim.position == next((p for p, runner in enumerate(vector.runners) if runner.id == vector.caller), None)


def test_an_invalid_window_comes_before_grace() -> None:
    """Of five runners at the defaults none has a window, so it does not matter that the assigned one is new (pynenc)."""
    runners = tuple(Runner(f"r{place}", EPOCH) for place in range(5))
    view = View(GRACE, runners, EPOCH + 10 * SECOND)

    assert {claim.verdict for claim in view.claims(decide_atomic_service_claim)} == {SlotWindowInvalid(MINUTE, MINUTE)}


@pytest.mark.parametrize(
    ("count", "windows"),
    [
        (1, [(0, 300)]),
        (2, [(0, 90), (150, 240)]),
        (3, [(0, 40), (100, 140), (200, 240)]),
        (4, [(0, 15), (75, 90), (150, 165), (225, 240)]),
        (5, []),
        (6, []),
    ],
)
def test_the_cleared_seconds_of_the_defaults(count: int, windows: list[tuple[int, int]]) -> None:
    """With 1 to 6 runners, each is cleared in the first half of its window, its middle included (pynenc's table)."""
    view = View(DEFAULT, crowd(count), EPOCH)
    at_the_start = view.claims(decide_atomic_service_claim)

    assert [claim.window for claim in at_the_start if claim.window] == [
        Window(Instant(start * SECOND), Instant(end * SECOND)) for start, end in windows
    ]
    for place, (start, end) in enumerate(windows):
        middle = (start + end) * SECOND // 2
        for at, is_cleared in (
            (start * SECOND, True),
            (middle, True),
            (middle + 1, False),
            (start * SECOND - 1, False),
        ):
            claim = view.claim(decide_atomic_service_claim, f"r{place}", Instant(at))
            assert isinstance(claim.verdict, Assigned) is is_cleared
    if not windows:
        seconds = [EPOCH + second * SECOND for second in range(300)]
        assert not any(laws.cleared(view.claims(decide_atomic_service_claim, now)) for now in seconds)


def asked(caller: str, runners: tuple[Runner, ...], service: AtomicService, second: int) -> AtomicServiceClaim:
    return View(service, runners, EPOCH + second * SECOND).claim(decide_atomic_service_claim, caller)


def test_a_single_runner_is_cleared_at_the_start() -> None:
    """One runner, t = 0, no margin: it runs, and the run is told in full (pynenc, case 11)."""
    claim = asked("a", listed("a"), AtomicService(spread=0), 0)

    window = Window(EPOCH, EPOCH + 5 * MINUTE)
    assert claim.verdict == Assigned(AtomicServiceRun("a", "run", EPOCH, window, EPOCH))


def test_a_late_start_tells_how_late() -> None:
    """Interval 60 s, t = 45 s: late by three quarters; with a fraction of 1 it runs (pynenc, case 12)."""
    service = AtomicService(interval=MINUTE, spread=0)
    late = asked("a", listed("a"), service, 45)

    assert late.verdict == LateStart(750_000, 500_000)
    assert "75.00%" in str(late)
    assert isinstance(asked("a", listed("a"), attrs.evolve(service, start_fraction_ppm=PPM), 45).verdict, Assigned)


@pytest.mark.parametrize(
    ("age", "stabilisation", "in_grace"),
    [(30, 60, True), (59, 60, True), (60, 60, False), (120, 60, False), (1, 0, False)],
)
def test_grace_is_for_a_single_runner_too(age: int, stabilisation: int, in_grace: bool) -> None:
    """By the age of the assigned runner; an age of exactly the stabilisation passes (pynenc, case 13)."""
    service = AtomicService(stabilisation=stabilisation * SECOND, start_fraction_ppm=PPM)
    claim = asked("a", (Runner("a", EPOCH + (130 - age) * SECOND),), service, 130)

    assert isinstance(claim.verdict, ScheduledRunnerInGrace if in_grace else Assigned)


def test_an_invalid_window_tells_the_count_and_the_margin() -> None:
    """Three runners, 180 s, margin 120 s (pynenc, case 14)."""
    claim = asked("a", ABC, AtomicService(interval=3 * MINUTE, spread=2 * MINUTE), 0)

    assert claim.verdict == SlotWindowInvalid(MINUTE, 2 * MINUTE)
    assert "3 runners" in str(claim)
    assert "120 s" in str(claim)


def test_three_runners_take_turns() -> None:
    """360 s, margin 60 s (pynenc, case 15)."""
    service = AtomicService(interval=6 * MINUTE)

    assert isinstance(asked("a", ABC, service, 0).verdict, Assigned)
    assert isinstance(asked("b", ABC, service, 150).verdict, Assigned)
    assert isinstance(asked("c", ABC, service, 250).verdict, Assigned)
    assert asked("a", ABC, service, 150).verdict == NotAssignedSlot()


def test_nobody_is_told_that_there_is_nobody() -> None:
    """An empty list (pynenc, case 16)."""
    assert asked("a", (), DEFAULT, 0).verdict == NoStableRunners()


def test_grace_is_told_to_every_caller() -> None:
    """Two runners, the assigned one in grace: both hear of it, and who it is (pynenc, case 17)."""
    claims = [asked(caller, YOUNG, GRACE, 160) for caller in ("a", "b")]

    assert {(claim.verdict, claim.assigned) for claim in claims} == {
        (ScheduledRunnerInGrace(EPOCH + 200 * SECOND), "b")
    }


def test_a_runner_that_joins_takes_the_rest_of_the_cycle() -> None:
    """A is cleared alone, then b joins and owns the second half: the gate must hold (pynenc, case 23, its pure part)."""
    service = AtomicService(interval=MINUTE, spread=0)

    assert isinstance(asked("a", listed("a"), service, 0).verdict, Assigned)
    assert asked("a", AB, service, 30).verdict == NotAssignedSlot()
    assert isinstance(asked("b", AB, service, 30).verdict, Assigned)


def test_ten_slots_of_four_runners_have_a_winner_each() -> None:
    """Whoever's slot it is, and nobody else (pynenc, case 24, its pure part)."""
    service = AtomicService(interval=4 * MINUTE, spread=0)
    winners = [
        laws.cleared(View(service, crowd(4), EPOCH + slot * MINUTE).claims(decide_atomic_service_claim))
        for slot in range(10)
    ]

    assert winners == [{f"r{slot % 4}"} for slot in range(10)]


def test_a_latecomer_does_not_take_the_slot_of_the_first() -> None:
    """The third runner joins late, t = 2 (pynenc, case 25)."""
    claim = asked("c", ABC, DEFAULT, 2)

    assert claim.verdict == NotAssignedSlot()
    assert claim.assigned == "a"


def test_slots_that_exceed_the_margin_by_less_than_a_microsecond_are_invalid() -> None:
    """Ours: 10 us for 3 runners with a margin of 3 us would leave windows of 0, 0 and 1 us."""
    claims = View(AtomicService(interval=10, spread=3), crowd(3), EPOCH).claims(decide_atomic_service_claim)

    assert {claim.verdict for claim in claims} == {SlotWindowInvalid(3, 3)}


@given(st.integers(1, PPM - 1), st.integers(1, 10**9), st.data())
def test_the_fraction_told_is_above_the_limit_exactly_when_late(limit: int, interval: int, data: st.DataObject) -> None:
    """A late fraction is rounded up, so the number told agrees with the exact comparison."""
    service = AtomicService(interval=interval, spread=0, start_fraction_ppm=limit)
    elapsed = data.draw(st.integers(0, interval - 1) | st.just(min(interval - 1, limit * interval // PPM + 1)))
    verdict = View(service, crowd(1), Instant(elapsed)).claim(decide_atomic_service_claim, "r0").verdict

    assert isinstance(verdict, LateStart) is (elapsed * PPM > limit * interval)
    assert not isinstance(verdict, LateStart) or limit < verdict.gone_ppm <= PPM


# --- bad input, and texts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"interval": 0},
        {"interval": -1},
        {"interval": True},
        {"interval": 300.0},
        {"spread": -1},
        {"interval": MINUTE, "spread": MINUTE},
        {"stabilisation": -1},
        {"start_fraction_ppm": -1},
        {"start_fraction_ppm": PPM + 1},
        {"start_fraction_ppm": 0.5},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, int]) -> None:
    """At construction, with tidegate's own error."""
    with pytest.raises(Misuse):
        AtomicService(**settings)


@pytest.mark.parametrize("name", ["", None, 7, b"a"])
def test_a_name_is_a_string_that_is_not_empty(name: str) -> None:
    """A runner's, the caller's and the run's."""
    with pytest.raises(Misuse):
        Runner(name, EPOCH)
    with pytest.raises(Misuse):
        View(DEFAULT, AB, EPOCH).claim(decide_atomic_service_claim, name)
    with pytest.raises(Misuse):
        decide_atomic_service_claim(service=DEFAULT, runner_id="a", runners=AB, now=EPOCH, run_id=name)


def test_two_clocks_are_not_compared() -> None:
    """Law T2 of instants: a runner that was created on another clock has no age."""
    with pytest.raises(Misuse, match="compare"):
        View(GRACE, (Runner("a", Instant(0, WALL)),), Instant(0, STORE)).claim(decide_atomic_service_claim, "a")


def test_a_window_ends_after_it_starts() -> None:
    """The invariant of a window."""
    with pytest.raises(Misuse, match="no time"):
        Window(EPOCH, EPOCH)


@pytest.mark.parametrize(
    ("caller", "runners", "service", "second", "text"),
    [
        ("a", (), DEFAULT, 0, "'a' no_stable_runners: there are none (not one of 0 runners)"),
        (
            "a",
            AB,
            DEFAULT,
            0,
            "'a' assigned: run 'run' (position 0 of 2 runners, window 0 s@store to 90 s@store, turn of 'a')",
        ),
        ("z\n", AB, DEFAULT, 0, "'z\\n' not_assigned_slot: it is not its turn (not one of 2 runners, turn of 'a')"),
        (
            "r1",
            crowd(5),
            DEFAULT,
            0,
            "'r1' slot_window_invalid: a slot of 60 s has no room for a margin of 60 s (position 1 of 5 runners, turn of 'r0')",
        ),
        (
            "a",
            YOUNG,
            GRACE,
            160,
            "'a' scheduled_runner_in_grace: the slot stays empty until 200 s@store (position 0 of 2 runners, window 0 s@store to 90 s@store, turn of 'b')",
        ),
        (
            "a",
            listed("a"),
            DEFAULT,
            151,
            "'a' late_start: 50.3334% of the window is gone, and 50.00% may be (position 0 of 1 runners, window 0 s@store to 300 s@store, turn of 'a')",
        ),
    ],
)
def test_a_claim_reads_as_one_line(
    caller: str, runners: tuple[Runner, ...], service: AtomicService, second: int, text: str
) -> None:
    """What a person can paste into an issue, whatever the ids hold."""
    assert str(asked(caller, runners, service, second)) == text
