from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from itertools import accumulate, takewhile
from typing import Any, get_args

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.drawing import must_draw
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, PPM, SECOND, STORE, WALL, Duration, Instant, instant
from tidegate.services import atomic_service
from tidegate.services.atomic_service import (
    Alone,
    Assigned,
    AtomicService,
    AtomicServiceClaim,
    AtomicServiceRun,
    Claiming,
    ClaimVerdict,
    Concern,
    Crowded,
    LateStart,
    MissedByPolls,
    NoStableRunners,
    NotAssignedSlot,
    NoWindows,
    Runner,
    ScheduledRunnerInGrace,
    Shared,
    ShortWindow,
    SlotWindowInvalid,
    StartUp,
    Tolerance,
    Window,
    check_start_up,
    decide_atomic_service_claim,
    tolerance,
)
from tidegate.services.checks.laws import atomic_service as laws
from tidegate.services.checks.strategies.atomic_service import atomic_services, claimings, claims, start_ups

EPOCH = Instant(0)
LONG_AGO = Instant(-10_000 * MINUTE)


@attrs.frozen
class View:
    service: AtomicService
    runners: tuple[Runner, ...]
    now: Instant

    def claims(self, now: Instant | None = None) -> list[AtomicServiceClaim]:
        return [self.claim(runner.id, now) for runner in self.runners]

    def claim(self, runner_id: str, now: Instant | None = None, twin: Twin | None = None) -> AtomicServiceClaim:
        decide = twin or decide_atomic_service_claim
        return decide(
            service=self.service, runner_id=runner_id, runners=self.runners, now=now or self.now, run_id="run"
        )

    def cycle(self) -> list[Instant]:
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
def small_views(draw: st.DrawFn, *, grace: bool = False) -> View:
    service = draw(atomic_services(st.integers(1, 24), grace=grace))
    now = Instant(draw(st.integers(-60, 60)))
    created = [now + -draw(st.integers(-5, 50)) for _ in range(draw(st.integers(1, 5)))]
    return View(service, tuple(Runner(f"r{place}", each) for place, each in enumerate(created)), now)


@st.composite
def large_views(draw: st.DrawFn) -> View:
    service = draw(atomic_services(st.sampled_from([MINUTE, 5 * MINUTE, 7 * SECOND])))
    count = draw(st.integers(1, 40))
    edge = draw(st.integers(0, count)) * service.interval // count
    cycle = draw(st.integers(-2, 6_000_000)) * service.interval
    return View(service, crowd(count), Instant(cycle + edge + draw(st.integers(-2, 2))))


views = st.one_of(small_views(), small_views(grace=True), large_views())


def tiny(*, interval: int, spread: int, stabilisation: int = 0, **told: int) -> AtomicService:
    """Microseconds, which the plain constructor would refuse as a mistake."""
    cycle, margin, grace = (timedelta(microseconds=each) for each in (interval, spread, stabilisation))
    return AtomicService(interval=cycle, spread=margin, stabilisation=grace, **told)


UNGUARDED = AtomicService(interval=5 * MINUTE, spread=0, start_fraction_ppm=PPM)
IN_2027 = 1_800_000_000 * SECOND
THIRTEEN = View(UNGUARDED, crowd(13), Instant(IN_2027 + 3 * UNGUARDED.interval // 13))
SEVENTEEN = View(UNGUARDED, crowd(17), Instant(IN_2027))


# --- the laws, each as a property of an implementation ----------------------------------------------------------------


@given(views)
@example(THIRTEEN)
def test_at_most_one_runner_is_cleared_at_an_instant(view: View) -> None:
    """Law A1, one clock. pynenc: one runner at a time processes the services."""
    assert laws.one_runner_is_cleared(view.claims())


@given(small_views())
@example(View(tiny(interval=12, spread=4, start_fraction_ppm=PPM), crowd(2), EPOCH))
def test_at_most_one_runner_is_cleared_when_clocks_differ_by_the_margin(view: View) -> None:
    """Law A1, several clocks: the margin is a guard time."""
    margin = view.service.spread
    instants = [*view.cycle(), *(view.cycle()[-1] + late for late in range(1, margin + 1))]
    claims = [view.claims(now) for now in instants]

    assert all(
        laws.one_runner_is_cleared(earlier + later)
        for first, earlier in enumerate(claims)
        for later in claims[first : first + margin + 1]
    )


@given(views)
@example(SEVENTEEN)
def test_windows_follow_each_other_with_the_margin_between_them(view: View) -> None:
    """Law A2."""
    windows = [claim.window for claim in view.claims() if claim.window is not None]

    assert not windows or laws.gaps_are_the_margin(windows, view.service)


@given(small_views())
def test_every_runner_has_its_turn_in_each_cycle(view: View) -> None:
    """Law A3, at each instant of small cycles; no turns if a slot is all margin."""
    count = len(view.runners)
    claims = [claim for now in view.cycle() for claim in view.claims(now)]
    expected = view.runners if count == 1 or view.service.interval // count > view.service.spread else ()

    assert laws.every_runner_is_cleared(claims, expected)


@given(views, st.integers(-3, 3))
@example(View(tiny(interval=10, spread=0), crowd(1), Instant(-3)), 1)
def test_a_whole_cycle_later_all_is_the_same(view: View, cycles: int) -> None:
    """Law A4."""
    by = cycles * view.service.interval

    assert all(
        laws.moved_by_whole_cycles(claim, later, by)
        for claim, later in zip(view.claims(), view.later(by).claims(), strict=True)
    )


@given(views)
@example(View(tiny(interval=10, spread=0), crowd(3), Instant(3)))
def test_the_cleared_runner_is_the_assigned_one(view: View) -> None:
    """Law A5."""
    assert all(map(laws.the_assigned_is_cleared, view.claims()))


@given(small_views(grace=True))
@example(View(tiny(interval=10, spread=0, stabilisation=5), (Runner("a", EPOCH),), Instant(1)))
def test_the_slot_of_a_newcomer_stays_empty(view: View) -> None:
    """Law A6. pynenc: new runners are members but do not run yet."""
    claims = view.claims()

    assert all(laws.newcomers_are_spared(claim, view.service, view.runners, view.now) for claim in claims)


@given(views)
@example(View(attrs.evolve(UNGUARDED, start_fraction_ppm=PPM // 2), crowd(1), EPOCH + (150 * SECOND + 1)))
def test_no_start_is_late(view: View) -> None:
    """Law A7. pynenc: refuse starts that use too much of the slot."""
    assert all(laws.no_start_is_late(claim, view.service, view.now) for claim in view.claims())


@given(views)
@example(View(tiny(interval=12, spread=4), crowd(3), EPOCH))
def test_the_tolerance_names_how_many_runners_have_windows(view: View) -> None:
    """Law A8."""
    assert all(map(laws.refused_beyond_what_it_bears, view.claims()))


@given(small_views())
@example(View(tiny(interval=20, spread=4), crowd(2), EPOCH))
@example(View(tiny(interval=20, spread=4, start_fraction_ppm=0), crowd(3), EPOCH))
def test_the_tolerance_names_the_difference_of_clocks(view: View) -> None:
    """Law A9, for all pairs of instants of two cycles; the number is the largest."""
    instants = [*view.cycle(), *(now + view.service.interval for now in view.cycle())]
    claims = [view.claims(now) for now in instants]

    assert laws.tolerates_just_that(claims, claims[0][0].tolerance)


Claims = list[AtomicServiceClaim]


@settings(max_examples=40)
@given(atomic_services(st.integers(1, 20)), claimings(), st.lists(st.integers(1, 12), min_size=20, max_size=20))
@example(tiny(interval=40, spread=4), Claiming(check_interval=5, loop_sleep=0, run_margin_min=0), [1])
@example(tiny(interval=30, spread=0), Claiming(check_interval=9, loop_sleep=2, run_margin_min=0), [1])
@example(tiny(interval=12, spread=0), Claiming(check_interval=3, loop_sleep=0, run_margin_min=5), [1])
@example(tiny(interval=1, spread=0), Claiming(check_interval=1, loop_sleep=1, run_margin_min=0), [1])
def test_start_up_knows_for_how_many_runners_polls_suffice(
    service: AtomicService, claiming: Claiming, gaps: list[int]
) -> None:
    """Law A10, at any phase of the polls; one more runner misses at some phase."""
    polled_max = check_start_up(service, claiming, 1).polled_max
    irregular = [min(gap, claiming.period) for gap in gaps] + [claiming.period] * service.interval
    regular = [claiming.period] * service.interval
    for count in {1, polled_max, polled_max + 1} - {0}:
        view = View(service, crowd(count), EPOCH)
        cycle = [view.claims(now) for now in view.cycle()]
        reached = [
            [
                laws.a_poll_leads_to_a_run([claims[place] for claims in polled(cycle, phase, apart)], claiming)
                for place in range(count)
                for phase in range(min(claiming.period, service.interval + 1))
            ]
            for apart in (irregular, regular)
        ]

        assert all(map(all, reached)) if count <= polled_max else not all(reached[1])


def polled(cycle: list[Claims], phase: int, gaps: list[int]) -> list[Claims]:
    return [cycle[at] for at in takewhile(lambda at: at < len(cycle), accumulate(gaps, initial=phase))]


@given(small_views(), st.integers(-3, 3))
def test_without_grace_creations_do_not_matter(view: View, cycles: int) -> None:
    """Law A4."""
    by = cycles * view.service.interval
    claims = view.claims()
    later = view.claims(view.now + by)

    assert all(laws.moved_by_whole_cycles(claim, other, by) for claim, other in zip(claims, later, strict=True))


# --- a naive twin, and planted faults of it ---------------------------------------------------------------------------


class Twin:
    """A naive decision with fractions and a search, in parts that can be broken."""

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

    def runners_max(self, service: AtomicService) -> int:
        too_many = bisect_left(
            range(2, service.interval + 2), x=True, key=lambda count: service.interval // count <= service.spread
        )
        return 1 + too_many

    def clock_difference(self, count: int, service: AtomicService) -> Duration:
        edges = self.edges(count, service)
        windows = [self.window(place, count, service, EPOCH) for place in range(count)]
        ends = [window.start + self.last_start(window, service) for window in windows]
        return min(edge - end.at for edge, end in zip(edges[1:], ends, strict=True)) - 1

    def last_start(self, window: Window, service: AtomicService) -> Duration:
        if not 0 < service.start_fraction_ppm < PPM:
            return window.length - 1
        return math.floor(window.length * Fraction(service.start_fraction_ppm, PPM))

    def tolerance(self, count: int, service: AtomicService) -> Tolerance:
        most = self.runners_max(service)
        if count <= 1:
            return Alone(most)
        return Crowded(most) if count > most else Shared(self.clock_difference(count, service), most)

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
        verdict: ClaimVerdict
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
            tolerance=self.tolerance(count, service),
        )


# --- planted bugs -----------------------------------------------------------------------------------------------------

OF_FLOATS = """
    slot = service.interval / SECOND / count
    begin = cycle_start.at / SECOND + position * slot
    end = cycle_start.at / SECOND + position * slot + slot - service.spread / SECOND
    return Window(Instant(round(begin * SECOND)), Instant(round(end * SECOND)))
"""

test_a_planted_bug_is_found = planted(
    atomic_service,
    # pynenc: each edge is its own float sum, rounded to microseconds.
    bug(
        "windows of floats", ("    return Window(\n", f"{OF_FLOATS}    return Window(\n"),
        test_at_most_one_runner_is_cleared_at_an_instant, test_windows_follow_each_other_with_the_margin_between_them,
        test_the_tolerance_names_the_difference_of_clocks,
    ),
    bug(
        "the end is included", ("now - window.start < window.length:", "now - window.start <= window.length:"),
        test_at_most_one_runner_is_cleared_at_an_instant,
    ),
    # The margin is shared by both slots beside it, and subtracted once.
    bug(
        "half a margin", ("count) - service.spread)", "count) - service.spread // 2)"),
        test_at_most_one_runner_is_cleared_when_clocks_differ_by_the_margin,
        test_windows_follow_each_other_with_the_margin_between_them,
    ),
    bug(
        "the start is excluded", ("not 0 <= now - window.start", "not 0 < now - window.start"),
        test_every_runner_has_its_turn_in_each_cycle,
    ),
    # Two cycles around the epoch become one.
    bug(
        "a cycle is rounded to zero",
        ("now + -(now.at % self.interval)", "Instant(int(now.at / self.interval) * self.interval, now.clock)"),
        test_a_whole_cycle_later_all_is_the_same,
    ),
    # pynenc: its index differs from its windows at an edge that was rounded down.
    bug(
        "assigned by division", ("((elapsed + 1) * count - 1) // interval", "elapsed * count // interval"),
        test_the_cleared_runner_is_the_assigned_one,
    ),
    bug(
        "grace for several only", ("elif service.stabilisation and", "elif count > 1 and service.stabilisation and"),
        test_the_slot_of_a_newcomer_stays_empty,
    ),
    bug(
        "late is rounded down", ("-((window.start - now) * PPM //", "((now - window.start) * PPM //"),
        test_no_start_is_late,
    ),
    # The last slot gets its own margin.
    bug(
        "one runner too few",
        ("_most_runners(service, 1)\n    if runners <= 1", "_most_runners(service, 1) - 1\n    if runners <= 1"),
        test_the_tolerance_names_how_many_runners_have_windows,
    ),
    # The late guard separates runners by more than the margin, unreported.
    bug(
        "the difference is the margin",
        ("Shared(slot - 1 - _last_start(service, slot - service.spread)", "Shared(service.spread"),
        test_the_tolerance_names_the_difference_of_clocks,
    ),
    # The difference that clears two is reported as tolerated.
    bug(
        "the difference is one too large", ("Shared(slot - 1 -", "Shared(slot -"),
        test_the_tolerance_names_the_difference_of_clocks,
    ),
    # pynenc compares the poll gap with the window, not with its clearing part.
    bug(
        "polls by the whole window",
        (
            "return max(on_time, -((claiming.period - 1) * -PPM // limit)) if 0 < limit < PPM else on_time",
            "return on_time",
        ),
        test_start_up_knows_for_how_many_runners_polls_suffice,
    ),
    bug(
        "polls without the margin", ("period - 1 + max(1, claiming.run_margin_min)", "period"),
        test_start_up_knows_for_how_many_runners_polls_suffice,
    ),
    bug(
        "polls without the sleep", ("on_time = claiming.period", "on_time = claiming.check_interval"),
        ("-((claiming.period", "-((claiming.check_interval"),
        test_start_up_knows_for_how_many_runners_polls_suffice,
    ),
    bug(
        "one polled too few",
        (
            "_most_runners(service, _window_needed(service, claiming))",
            "max(0, _most_runners(service, _window_needed(service, claiming)) - 1)",
        ),
        test_start_up_knows_for_how_many_runners_polls_suffice,
    ),
)  # fmt: skip


@given(views, st.integers(0, 40))
def test_the_decision_agrees_with_a_dumb_twin(view: View, place: int) -> None:
    caller = f"r{place}"

    assert view.claim(caller, twin=Twin()) == view.claim(caller)


def test_the_decision_is_total_over_a_small_world() -> None:
    twin, asked = Twin(), 0
    for interval in range(1, 7):
        for spread in range(interval):
            service = tiny(interval=interval, spread=spread, stabilisation=1, start_fraction_ppm=PPM // 3)
            for count in range(5):
                for now in range(-interval, 2 * interval):
                    runners = tuple(Runner(f"r{place}", Instant(place)) for place in range(count))
                    view = View(service, runners, Instant(now))
                    for caller in ("r0", "r1", "z"):
                        asked += 1
                        assert view.claim(caller, twin=twin) == view.claim(caller)

    assert asked == sum(3 * interval * 3 * interval * 5 for interval in range(1, 7))


def test_the_float_windows_of_pynenc_overlap_and_leave_gaps() -> None:
    """Of pynenc's 13 runners two are cleared, of 17 none; ours clears one."""
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
            assert len(laws.cleared(view.claims())) == 1


# --- the vectors ------------------------------------------------------------------------------------------------------

AB = listed("a", "b")
ABC = listed("a", "b", "c")
YOUNG = (Runner("a", EPOCH), Runner("b", EPOCH + 140 * SECOND))
DEFAULT = AtomicService()
GRACE = AtomicService(stabilisation=MINUTE)
ANY_TIME = AtomicService(start_fraction_ppm=PPM)


@attrs.frozen
class Vector:
    caller: str
    runners: tuple[Runner, ...]
    service: AtomicService
    now_ms: int
    kind: type[ClaimVerdict]
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
    """Answers of pynenc at its defaults: 300 s, margin 60 s, start fraction 0.5."""
    now = Instant(vector.now_ms * MILLISECOND)
    claim = View(vector.service, vector.runners, now).claim(vector.caller)

    assert type(claim.verdict) is vector.kind
    assert claim.assigned == vector.assigned
    assert claim.window == (vector.window and Window(*(Instant(second * SECOND) for second in vector.window)))
    assert claim.owner_now == vector.owner_now
    assert getattr(claim.verdict, "gone_ppm", None) == vector.gone_ppm
    assert claim.runners == len(vector.runners)
    assert claim.position == next((p for p, runner in enumerate(vector.runners) if runner.id == vector.caller), None)


def test_an_invalid_window_comes_before_grace() -> None:
    """No window of five runners at the defaults is valid, so grace is irrelevant (pynenc)."""
    runners = tuple(Runner(f"r{place}", EPOCH) for place in range(5))
    view = View(GRACE, runners, EPOCH + 10 * SECOND)

    assert {claim.verdict for claim in view.claims()} == {SlotWindowInvalid(MINUTE, MINUTE)}


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
    """Table of pynenc: 1 to 6 runners are cleared in the first half of their window."""
    view = View(DEFAULT, crowd(count), EPOCH)
    at_the_start = view.claims()

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
            claim = view.claim(f"r{place}", Instant(at))
            assert isinstance(claim.verdict, Assigned) is is_cleared
    if not windows:
        seconds = [EPOCH + second * SECOND for second in range(300)]
        assert not any(laws.cleared(view.claims(now)) for now in seconds)


def asked(caller: str, runners: tuple[Runner, ...], service: AtomicService, second: int) -> AtomicServiceClaim:
    return View(service, runners, EPOCH + second * SECOND).claim(caller)


def test_lengths_and_points_of_time_are_taken_as_python_has_them() -> None:
    now = datetime(2026, 11, 23, 8, tzinfo=timezone(timedelta(hours=1)))
    told, service = Runner("a", now), AtomicService(interval=timedelta(minutes=5), spread=timedelta(seconds=60))
    assert service == AtomicService(interval=5 * MINUTE, spread=MINUTE)
    assert Claiming(check_interval=timedelta(seconds=30)) == Claiming()
    assert told == Runner("a", instant(now))
    found = decide_atomic_service_claim(service=service, runner_id="a", runners=(told,), now=now, run_id="r")
    assert found == decide_atomic_service_claim(
        service=service, runner_id="a", runners=(told,), now=instant(now), run_id="r"
    )
    with pytest.raises(Misuse, match="has no time zone"):
        Runner("a", datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_single_runner_is_cleared_at_the_start() -> None:
    """pynenc, case 11."""
    claim = asked("a", listed("a"), AtomicService(spread=0), 0)

    window = Window(EPOCH, EPOCH + 5 * MINUTE)
    assert claim.verdict == Assigned(AtomicServiceRun("a", "run", EPOCH, window, EPOCH))


def test_a_late_start_tells_how_late() -> None:
    """pynenc, case 12: 60 s, t = 45 s; with a fraction of 1 it runs."""
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
    """pynenc, case 13: an age equal to the stabilisation passes."""
    service = AtomicService(stabilisation=stabilisation * SECOND, start_fraction_ppm=PPM)
    claim = asked("a", (Runner("a", EPOCH + (130 - age) * SECOND),), service, 130)

    assert isinstance(claim.verdict, ScheduledRunnerInGrace if in_grace else Assigned)


def test_an_invalid_window_tells_the_count_and_the_margin() -> None:
    """pynenc, case 14."""
    claim = asked("a", ABC, AtomicService(interval=3 * MINUTE, spread=2 * MINUTE), 0)

    assert claim.verdict == SlotWindowInvalid(MINUTE, 2 * MINUTE)
    assert "3 runners" in str(claim)
    assert "120 s" in str(claim)


def test_three_runners_take_turns() -> None:
    """pynenc, case 15."""
    service = AtomicService(interval=6 * MINUTE)

    assert isinstance(asked("a", ABC, service, 0).verdict, Assigned)
    assert isinstance(asked("b", ABC, service, 150).verdict, Assigned)
    assert isinstance(asked("c", ABC, service, 250).verdict, Assigned)
    assert asked("a", ABC, service, 150).verdict == NotAssignedSlot()


def test_that_there_is_nobody_is_reported_to_nobody() -> None:
    """pynenc, case 16."""
    assert asked("a", (), DEFAULT, 0).verdict == NoStableRunners()


def test_grace_is_reported_to_every_caller() -> None:
    """pynenc, case 17."""
    claims = [asked(caller, YOUNG, GRACE, 160) for caller in ("a", "b")]

    assert {(claim.verdict, claim.assigned) for claim in claims} == {
        (ScheduledRunnerInGrace(EPOCH + 200 * SECOND), "b")
    }


def test_a_runner_that_joins_takes_the_rest_of_the_cycle() -> None:
    """pynenc, case 23: a is cleared alone, then b owns the second half; the gate must hold."""
    service = AtomicService(interval=MINUTE, spread=0)

    assert isinstance(asked("a", listed("a"), service, 0).verdict, Assigned)
    assert asked("a", AB, service, 30).verdict == NotAssignedSlot()
    assert isinstance(asked("b", AB, service, 30).verdict, Assigned)


@pytest.mark.parametrize(("now", "start"), [(0, 0), (299, 0), (300, 300), (-1, -300)])
def test_a_cycle_begins_at_a_multiple_of_the_interval(now: int, start: int) -> None:
    at = Instant(now * SECOND, WALL)
    assert AtomicService().cycle_start(at) == Instant(start * SECOND, WALL)
    assert asked("a", AB, AtomicService(), now).cycle_start == Instant(start * SECOND)


def test_ten_slots_of_four_runners_have_a_winner_each() -> None:
    """pynenc, case 24, its pure part."""
    service = AtomicService(interval=4 * MINUTE, spread=0)
    winners = [laws.cleared(View(service, crowd(4), EPOCH + slot * MINUTE).claims()) for slot in range(10)]

    assert winners == [{f"r{slot % 4}"} for slot in range(10)]


def test_a_latecomer_does_not_take_the_slot_of_the_first() -> None:
    """pynenc, case 25."""
    claim = asked("c", ABC, DEFAULT, 2)

    assert claim.verdict == NotAssignedSlot()
    assert claim.assigned == "a"


def test_slots_that_exceed_the_margin_by_less_than_a_microsecond_are_invalid() -> None:
    """Ours: 10 us for 3 runners, margin 3 us, would give windows of 0, 0 and 1 us."""
    claims = View(tiny(interval=10, spread=3), crowd(3), EPOCH).claims()

    assert {claim.verdict for claim in claims} == {SlotWindowInvalid(3, 3)}


@given(st.integers(1, PPM - 1), st.integers(1, 10**9), st.data())
def test_the_fraction_reported_is_above_the_limit_exactly_when_late(
    limit: int, interval: int, data: st.DataObject
) -> None:
    """It is rounded up to agree with the exact comparison."""
    service = tiny(interval=interval, spread=0, start_fraction_ppm=limit)
    elapsed = data.draw(st.integers(0, interval - 1) | st.just(min(interval - 1, limit * interval // PPM + 1)))
    verdict = View(service, crowd(1), Instant(elapsed)).claim("r0").verdict

    assert isinstance(verdict, LateStart) is (elapsed * PPM > limit * interval)
    assert not isinstance(verdict, LateStart) or limit < verdict.gone_ppm <= PPM


def test_two_lists_clear_two_runners() -> None:
    """Known limit (pynenc too): a sees {a, c}, b sees {b, c}; both are cleared at t = 10."""
    assert isinstance(asked("a", listed("a", "c"), DEFAULT, 10).verdict, Assigned)
    assert isinstance(asked("b", listed("b", "c"), DEFAULT, 10).verdict, Assigned)


# --- tolerances of a configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "service", "expected"),
    [
        (0, DEFAULT, Alone(4)),
        (1, DEFAULT, Alone(4)),
        (2, DEFAULT, Shared(105 * SECOND - 1, 4)),
        (3, DEFAULT, Shared(80 * SECOND - 1, 4)),
        (4, DEFAULT, Shared(67_500 * MILLISECOND - 1, 4)),
        (5, DEFAULT, Crowded(4)),
        (4, ANY_TIME, Shared(MINUTE, 4)),
        (2, UNGUARDED, Shared(0, 5 * MINUTE)),
        (2, tiny(interval=10, spread=9), Crowded(1)),
    ],
)
def test_the_tolerance_of_the_defaults(count: int, service: AtomicService, expected: Tolerance) -> None:
    """Of pynenc: the least differences that clear two: 105, 80, 67.5 s."""
    assert tolerance(service, count) == expected


@pytest.mark.parametrize(
    ("service", "runners", "expected"),
    [
        (DEFAULT, 1, StartUp(4, 2, ())),
        (DEFAULT, 2, StartUp(4, 2, ())),
        (DEFAULT, 3, StartUp(4, 2, (MissedByPolls(20 * SECOND + 1, 30_100 * MILLISECOND),))),
        (DEFAULT, 4, StartUp(4, 2, (MissedByPolls(7_500 * MILLISECOND + 1, 30_100 * MILLISECOND),))),
        (DEFAULT, 5, StartUp(4, 2, (NoWindows(5, 4),))),
        (AtomicService(interval=2 * MINUTE), 2, StartUp(1, 1, (NoWindows(2, 1),))),
        (
            AtomicService(interval=4 * SECOND, spread=0, start_fraction_ppm=0),
            1,
            StartUp(
                4 * SECOND,
                0,
                (ShortWindow(4 * SECOND), MissedByPolls(3_950 * MILLISECOND + 1, 30_100 * MILLISECOND)),
            ),
        ),
        (tiny(interval=20, spread=0), 2, StartUp(20, 0, (ShortWindow(10), MissedByPolls(0, 30_100_000)))),
    ],
)
def test_start_up_tells_what_will_not_work(service: AtomicService, runners: int, expected: StartUp) -> None:
    """pynenc: it judges the window of two runners, and accepts four that miss their 7.5 s."""
    assert check_start_up(service, Claiming(), runners) == expected


@pytest.mark.parametrize(
    ("concern", "text"),
    [
        (NoWindows(5, 4), "5 runners have no windows; 4 would: make the interval longer"),
        (ShortWindow(4 * SECOND), "a window of 4 s is below 5 s"),
        (
            MissedByPolls(7_500 * MILLISECOND, 30 * SECOND),
            "7.5 s of a window lead to a run, and a runner asks every 30 s",
        ),
    ],
)
def test_a_concern_says_what_to_do(concern: Concern, text: str) -> None:
    assert str(concern) == text


def test_a_cycle_of_any_length_is_judged_at_once() -> None:
    service = AtomicService(interval=10**30, spread=0)

    assert check_start_up(service, Claiming(), 10**9).runners_max == 10**30
    assert isinstance(tolerance(service, 10**29), Shared)


@pytest.mark.parametrize("case", [*get_args(ClaimVerdict), *get_args(Tolerance), *get_args(Concern)])
def test_every_case_is_drawn(case: type) -> None:
    def has_the_case(drawn: AtomicServiceClaim | StartUp) -> bool:
        parts = drawn.concerns if isinstance(drawn, StartUp) else (drawn.verdict, drawn.tolerance)
        return case in map(type, parts)

    wanted: st.SearchStrategy[AtomicServiceClaim | StartUp] = start_ups() if case in get_args(Concern) else claims()
    must_draw(wanted, has_the_case)


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
        {"interval": 0, "spread": 0},
        {"interval": 300, "spread": 60},
        {"interval": 86_400, "spread": 0},
        {"spread": 10},
        {"stabilisation": 60},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(Misuse):
        AtomicService(**settings)


@pytest.mark.parametrize("name", ["", None, 7, b"a"])
def test_a_name_is_a_string_that_is_not_empty(name: str) -> None:
    with pytest.raises(Misuse):
        Runner(name, EPOCH)
    with pytest.raises(Misuse):
        View(DEFAULT, AB, EPOCH).claim(name)
    with pytest.raises(Misuse):
        decide_atomic_service_claim(service=DEFAULT, runner_id="a", runners=AB, now=EPOCH, run_id=name)


@pytest.mark.parametrize(
    "settings",
    [
        {"check_interval": 0},
        {"check_interval": True},
        {"loop_sleep": -1},
        {"run_margin_min": -1},
        {"run_margin_min": 0.05},
    ],
)
def test_a_way_of_asking_that_means_nothing_is_refused(settings: dict[str, int]) -> None:
    """pynenc: refuses a check interval of 0 at start-up."""
    with pytest.raises(Misuse):
        Claiming(**settings)


NONSENSE: list[Any] = [None, True, -1, 1.5, "x", b"x", [], {}, object(), DEFAULT, EPOCH, (None,), Runner]


@pytest.mark.parametrize("wrong", NONSENSE, ids=lambda wrong: type(wrong).__name__)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    good: dict[str, Any] = {"service": DEFAULT, "runner_id": "a", "runners": AB, "now": EPOCH, "run_id": "run"}
    calls: list[Callable[[], object]] = [
        *(
            lambda name=name: decide_atomic_service_claim(**{**good, name: wrong})
            for name in good
            if not isinstance(wrong, type(good[name])) or wrong == (None,)
        ),
        lambda: tolerance(wrong, 1) if wrong != DEFAULT else tolerance(DEFAULT, -1),
        lambda: tolerance(DEFAULT, wrong),
        lambda: check_start_up(DEFAULT, wrong, 1),
        lambda: check_start_up(DEFAULT, Claiming(), wrong),
        lambda: Runner("a", wrong) if wrong != EPOCH else Runner("", wrong),
    ]
    for call in calls:
        with pytest.raises(Misuse):
            call()


def test_two_clocks_are_not_compared() -> None:
    """Law T2 of instants."""
    with pytest.raises(Misuse, match="compare"):
        View(GRACE, (Runner("a", Instant(0, WALL)),), Instant(0, STORE)).claim("a")


@pytest.mark.parametrize(
    ("caller", "runners", "service", "second", "text"),
    [
        ("a", (), DEFAULT, 0, "'a' no_stable_runners: there are none (not one of 0 runners; at most 4 runners)"),
        (
            "a",
            AB,
            DEFAULT,
            0,
            "'a' assigned: run 'run' (position 0 of 2 runners, window 0 s@store to 90 s@store, turn of 'a'; at most 4 runners, clocks within 104.999999 s)",
        ),
        (
            "z\n",
            AB,
            DEFAULT,
            0,
            "'z\\n' not_assigned_slot: it is not its turn (not one of 2 runners, turn of 'a'; at most 4 runners, clocks within 104.999999 s)",
        ),
        (
            "r1",
            crowd(5),
            DEFAULT,
            0,
            "'r1' slot_window_invalid: a slot of 60 s has no room for a margin of 60 s (position 1 of 5 runners, turn of 'r0'; at most 4 runners would have windows)",
        ),
        (
            "a",
            YOUNG,
            GRACE,
            160,
            "'a' scheduled_runner_in_grace: the slot stays empty until 200 s@store (position 0 of 2 runners, window 0 s@store to 90 s@store, turn of 'b'; at most 4 runners, clocks within 104.999999 s)",
        ),
        (
            "a",
            listed("a"),
            DEFAULT,
            151,
            "'a' late_start: 50.3334% of the window is gone, and 50.00% may be (position 0 of 1 runners, window 0 s@store to 300 s@store, turn of 'a'; at most 4 runners)",
        ),
    ],
)
def test_a_claim_reads_as_one_line(
    caller: str, runners: tuple[Runner, ...], service: AtomicService, second: int, text: str
) -> None:
    assert str(asked(caller, runners, service, second)) == text
