"""Decides which runner may start. Runners divide a cycle of time into slots, so that one runs at a
time.

All runners know the time and the same ordered list of runners, so they agree without a message. The
view of a cycle is the list of the runners alive when it began. A new runner waits for the next
cycle; the slot of one that leaves or dies stays empty until then.

The cycle has as many slots as runners. The runner at position p may start in the window that begins
with slot p and ends one margin before the next slot. This is time-division multiple access over a
membership service (Kopetz and Grünsteidl 1994, "TTP: a protocol for fault-tolerant real-time
systems"); the margin is its guard time.

    I = interval, M = spread, N = runners, t = now - cycle start (cycles are counted from the epoch)
    edge(p)   = floor(p * I / N)
    slot(p)   = [edge(p), edge(p + 1))                  the p that holds t is assigned
    window(p) = [edge(p), edge(p + 1) - M)              [0, I) for a single runner, without a margin

All values are whole microseconds. Floating-point edges make two windows overlap (13 runners, 300 s,
no margin) or leave instants between two windows (17 runners). edge(p) <= t holds exactly if p * I /
N < t + 1, so the assigned p is the largest such p, ((t + 1) * N - 1) // I. (t * N // I would be
wrong at an edge that was rounded down.)

The checks, in order:

    1  no runners                                            NoStableRunners
    2  the caller is not among them                          NotAssignedSlot
    3  N > 1, and the shortest slot is not above the margin  SlotWindowInvalid
    4  the assigned runner is younger than stabilisation     ScheduledRunnerInGrace, for any caller
    5  now is outside the caller's window                    NotAssignedSlot
    6  more than start_fraction of the window is gone        LateStart
    7  otherwise                                             Assigned

`tolerance` and `check_start_up` compute limits from the shortest slot s = I // N:

    windows     while s > M                          for up to I // (M + 1) runners
    clocks      s - 1 - (the last start in a window) may lie between two clocks: M without late
        guard
    polls       from one poll to the next, the window has an instant that starts a run with time to
        work

Laws
    A1  At any instant at most one runner of a view is cleared, even if clocks differ by up to the
        margin.
    A2  Windows of one view follow each other with a gap of exactly the margin, across cycles too.
    A3  Without grace, each runner of a view is cleared at some instant of its cycle, if the
        shortest slot is above the margin. The view is that of the start (M7), so no join, leave or
        death costs a turn.
    A4  Moving now and all creations by whole cycles moves the claim and changes nothing else.
    A5  A cleared runner is the assigned one.
    A6  No runner is cleared in the slot of a runner younger than the stabilisation.
    A7  No runner is cleared after more than the start fraction of the window, compared exactly.
    A8  A view is refused for its windows exactly if it has more runners than the tolerance allows.
    A9  No two runners are cleared while clocks differ by at most the tolerance; with one
        microsecond more, two can be.
    A10 If asked at least once a period, each of up to `polled_max` runners is cleared in each cycle
        with its margin left; with one runner more, one can be missed.

Known not to work
    - Runners with different views may be cleared together. Lists read at the exact start of a cycle
      can differ. So a run also needs a write that only one of them can make, and a fencing token if
      work may outlive its window (both in `executions`).
    - Using the current list instead of the one at the start: a runner whose slot moved behind now
      loses its turn, in every cycle if a runner joins in the second half of each.
    - The decision limits neither how long work takes nor how often it runs.
    - Dead runners count until the cycle after they are found dead, so a restart can stop all
      services for that long. If no runner was alive at the start of a cycle, none is cleared in it.
    - The late guard is a fraction of the window, not of the slot: half of a slot of 100 s would be
      beyond its window of 40 s.
    - Of two runners with one id, only the first counts.
    - Cycles are counted from the epoch, so a scenario with this decision needs absolute instants.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, PPM, SECOND, Duration, Instant, as_instant, micros, seconds
from tidegate.model.values import check_int, check_name, check_type, check_types

_AWARE: Final = "pass a datetime with a time zone"

# --- values ---------------------------------------------------------------------------------------


def _length(given: Duration | timedelta, what: str, least: Duration = MILLISECOND) -> Duration:
    """Convert to microseconds. A small positive number was meant in another unit."""
    if type(given) is int and 0 < given < least:
        raise Misuse(
            f"{what}={given} is {seconds(given)}",
            why="a number counts microseconds",
            todo=f"write timedelta(seconds={given})",
        )
    if type(given) is not int:
        check_type(given, timedelta, what)
    return micros(given)


def _interval(given: Duration | timedelta) -> Duration:
    return _length(given, "interval", 100 * MILLISECOND)


def _spread(given: Duration | timedelta) -> Duration:
    return _length(given, "spread")


def _stabilisation(given: Duration | timedelta) -> Duration:
    return _length(given, "stabilisation")


@final
@attrs.frozen(kw_only=True)
class AtomicService:
    """How runners share the time, in microseconds or as timedeltas.

    Invariants: 0 < interval; 0 <= spread < interval; 0 <= stabilisation; 0 <= start_fraction_ppm <=
    PPM. A number that can only be meant in seconds is refused: an interval below 100 ms, another
    time below 1 ms.

    Attributes:
        interval: One cycle.
        spread: The margin at the end of each slot.
        stabilisation: How long the slot of a new runner stays empty; 0 for not at all.
        start_fraction_ppm: How much of its window may be gone when a run starts; 0 or PPM for any.
    """

    interval: Duration = attrs.field(default=5 * MINUTE, converter=_interval)
    spread: Duration = attrs.field(default=MINUTE, converter=_spread)
    stabilisation: Duration = attrs.field(default=0, converter=_stabilisation)
    start_fraction_ppm: int = PPM // 2

    def __attrs_post_init__(self) -> None:
        check_int(self.interval, "an interval in microseconds", 1)
        check_int(self.spread, "a spread in microseconds", 0)
        check_int(self.stabilisation, "a stabilisation in microseconds", 0)
        check_int(self.start_fraction_ppm, "a fraction in parts per million", 0, PPM)
        if self.spread >= self.interval:
            raise Misuse(
                f"the spread, {seconds(self.spread)}, is not below the interval, {seconds(self.interval)}",
                why="no window would be left in any slot",
            )

    def cycle_start(self, now: Instant | datetime) -> Instant:
        now = as_instant(now)
        check_type(now, Instant, "now", _AWARE)
        return now + -(now.at % self.interval)


@final
@attrs.frozen
class Runner:
    """A runner that may be cleared, first seen at `created`. Invariant: the id is not empty."""

    id: str
    created: Instant = attrs.field(converter=as_instant)

    def __attrs_post_init__(self) -> None:
        check_name(self.id, "a runner")
        check_type(self.created, Instant, "created", _AWARE)


@final
@attrs.frozen
class Window:
    """From start, included, to end, excluded; start < end, on one clock."""

    start: Instant
    end: Instant

    @property
    def length(self) -> Duration:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.start} to {self.end}"


@final
@attrs.frozen
class AtomicServiceRun:
    """A run of the service, identified by runner and run id, and the window it was cleared for."""

    runner_id: str
    run_id: str
    cycle_start: Instant
    window: Window
    started: Instant


@final
@attrs.frozen
class Assigned:
    """The caller may start this run now."""

    run: AtomicServiceRun

    def __str__(self) -> str:
        return f"assigned: run {self.run.run_id!r}"


@final
@attrs.frozen
class NoStableRunners:
    """There are no runners."""

    def __str__(self) -> str:
        return "no_stable_runners: there are none"


@final
@attrs.frozen
class NotAssignedSlot:
    """It is another runner's turn or the margin, or the caller is not in the list."""

    def __str__(self) -> str:
        return "not_assigned_slot: it is not its turn"


@final
@attrs.frozen
class SlotWindowInvalid:
    """The margin takes up the shortest slot, so no runner has a window."""

    slot: Duration
    margin: Duration

    def __str__(self) -> str:
        return f"slot_window_invalid: a slot of {seconds(self.slot)} has no room for a margin of {seconds(self.margin)}"


@final
@attrs.frozen
class ScheduledRunnerInGrace:
    """The assigned runner is new; its slot stays empty until then."""

    until: Instant

    def __str__(self) -> str:
        return f"scheduled_runner_in_grace: the slot stays empty until {self.until}"


@final
@attrs.frozen
class LateStart:
    """Too much of the window is gone. `gone_ppm` is rounded up, so above the limit."""

    gone_ppm: int
    limit_ppm: int

    def __str__(self) -> str:
        return f"late_start: {_percent(self.gone_ppm)} of the window is gone, and {_percent(self.limit_ppm)} may be"


ClaimVerdict: TypeAlias = (
    Assigned | NoStableRunners | NotAssignedSlot | SlotWindowInvalid | ScheduledRunnerInGrace | LateStart
)


@final
@attrs.frozen
class Alone:
    """At most one runner, so clock differences do not matter."""

    runners_max: int

    def __str__(self) -> str:
        return f"at most {self.runners_max} runners"


@final
@attrs.frozen
class Shared:
    """Several runners, cleared one at a time up to this clock difference, in microseconds."""

    clock_difference: Duration
    runners_max: int

    def __str__(self) -> str:
        return f"at most {self.runners_max} runners, clocks within {seconds(self.clock_difference)}"


@final
@attrs.frozen
class Crowded:
    """More runners than have windows, so none is ever cleared."""

    runners_max: int

    def __str__(self) -> str:
        return f"at most {self.runners_max} runners would have windows"


Tolerance: TypeAlias = Alone | Shared | Crowded


@final
@attrs.frozen(kw_only=True)
class AtomicServiceClaim:
    """The decision for one runner and its position in the cycle; `str` gives the message.

    Invariant: position < runners.

    Attributes:
        verdict: Whether it may start, or why not.
        runners: How many runners share the cycle.
        assigned: The runner whose slot it is, margin included; None without runners.
        position: The caller's position among the runners, from 0; None if it is not in the list.
        window: When the caller may start in this cycle; None if it never may.
        owner_now: The slot is the caller's and has a window. True in the margin after the window
            too.
    """

    runner_id: str
    verdict: ClaimVerdict
    cycle_start: Instant
    runners: int
    assigned: str | None
    position: int | None
    window: Window | None
    owner_now: bool
    tolerance: Tolerance

    def __str__(self) -> str:
        place = "not one" if self.position is None else f"position {self.position}"
        window = "" if self.window is None else f", window {self.window}"
        turn = "" if self.assigned is None else f", turn of {self.assigned!r}"
        return f"{self.runner_id!r} {self.verdict} ({place} of {self.runners} runners{window}{turn}; {self.tolerance})"


# --- the decision ---------------------------------------------------------------------------------


def decide_atomic_service_claim(
    *, service: AtomicService, runner_id: str, runners: tuple[Runner, ...], now: Instant | datetime, run_id: str
) -> AtomicServiceClaim:
    """Decide whether `runner_id` may run the service now.

    Args:
        service: How runners share the time; the same for all.
        runner_id: The caller.
        runners: The runners alive when the cycle began, in the agreed order (creation, then id):
            `tidegate.services.membership.runners`. Neither sorted nor filtered here.
        now: The time on the clock that judges for all, ideally the store's; an instant or aware
            datetime.
        run_id: The id of the run if it is cleared; unique, made by the caller.

    Returns:
        The claim; `claim.verdict` is `Assigned(run)` if the caller may start.

    Raises:
        Misuse: There is a stabilisation and the assigned runner was created on another clock than
            `now`.
    """
    check_type(service, AtomicService, "an atomic service")
    check_name(runner_id, "a runner")
    check_name(run_id, "a run")
    check_type(runners, tuple, "a tuple of runners")
    check_types(runners, Runner, "a runner")
    now = as_instant(now)
    check_type(now, Instant, "now", _AWARE)
    interval, count = service.interval, len(runners)
    cycle_start = service.cycle_start(now)
    position = next((place for place, runner in enumerate(runners) if runner.id == runner_id), None)
    scheduled = runners[_assigned_slot(now - cycle_start, interval, count)] if runners else None
    window = None if position is None else _window_of(position, count, service, cycle_start)

    # The order of the header: an earlier reason hides a later one.
    verdict: ClaimVerdict
    if scheduled is None:
        verdict = NoStableRunners()
    elif position is None:
        verdict = NotAssignedSlot()
    elif window is None:
        verdict = SlotWindowInvalid(interval // count, service.spread)
    elif service.stabilisation and now - scheduled.created < service.stabilisation:
        verdict = ScheduledRunnerInGrace(scheduled.created + service.stabilisation)
    elif not 0 <= now - window.start < window.length:
        verdict = NotAssignedSlot()
    elif 0 < service.start_fraction_ppm < (gone_ppm := _gone_ppm(window, now)):
        verdict = LateStart(gone_ppm, service.start_fraction_ppm)
    else:
        verdict = Assigned(AtomicServiceRun(runner_id, run_id, cycle_start, window, now))

    assigned = None if scheduled is None else scheduled.id
    return AtomicServiceClaim(
        runner_id=runner_id,
        verdict=verdict,
        cycle_start=cycle_start,
        runners=count,
        assigned=assigned,
        position=position,
        window=window,
        owner_now=window is not None and assigned == runner_id,
        tolerance=tolerance(service, count),
    )


# --- what a configuration bears -------------------------------------------------------------------


def tolerance(service: AtomicService, runners: int) -> Tolerance:
    """Return the most runners that have windows, and the clock difference at which no two are
    cleared.
    """
    check_type(service, AtomicService, "an atomic service")
    check_int(runners, "a number of runners", 0)
    runners_max = _most_runners(service, 1)
    if runners <= 1:
        return Alone(runners_max)
    if runners > runners_max:
        return Crowded(runners_max)
    slot = service.interval // runners
    return Shared(slot - 1 - _last_start(service, slot - service.spread), runners_max)


@final
@attrs.frozen(kw_only=True)
class Claiming:
    """How often a runner polls, and how much time a run needs, in microseconds.

    Invariants: 0 < check_interval; 0 <= loop_sleep; 0 <= run_margin_min.

    Attributes:
        check_interval: The least time between two claims of a runner.
        loop_sleep: The sleep of its loop: a claim may be that late.
        run_margin_min: The least time left of a window when a run has begun.
    """

    check_interval: Duration = attrs.field(default=30 * SECOND, converter=micros)
    loop_sleep: Duration = attrs.field(default=100 * MILLISECOND, converter=micros)
    run_margin_min: Duration = attrs.field(default=50 * MILLISECOND, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.check_interval, "a check interval in microseconds", 1)
        check_int(self.loop_sleep, "a sleep in microseconds", 0)
        check_int(self.run_margin_min, "a margin in microseconds", 0)

    @property
    def period(self) -> Duration:
        """The longest time between two claims of a runner that does not stall."""
        return self.check_interval + self.loop_sleep


WINDOW_MIN: Final = 5 * SECOND
"""A shorter window causes a start-up concern: stalls and clock differences are of that size."""


@final
@attrs.frozen
class NoWindows:
    """More runners than have windows."""

    runners: int
    runners_max: int

    def __str__(self) -> str:
        return f"{self.runners} runners have no windows; {self.runners_max} would: make the interval longer"


@final
@attrs.frozen
class ShortWindow:
    """The shortest window is below WINDOW_MIN."""

    window: Duration

    def __str__(self) -> str:
        return f"a window of {seconds(self.window)} is below {seconds(WINDOW_MIN)}"


@final
@attrs.frozen
class MissedByPolls:
    """A runner may poll before and after the useful part of its window, and never within."""

    useful: Duration
    period: Duration

    def __str__(self) -> str:
        return f"{seconds(self.useful)} of a window lead to a run, and a runner asks every {seconds(self.period)}"


Concern: TypeAlias = NoWindows | ShortWindow | MissedByPolls


@final
@attrs.frozen
class StartUp:
    """The limits of a configuration.

    Attributes:
        runners_max: How many runners have windows.
        polled_max: How many runners are sure of a run in each cycle; 0 if not even one is.
        concerns: The problems for the given number of runners.
    """

    runners_max: int
    polled_max: int
    concerns: tuple[Concern, ...]


def check_start_up(service: AtomicService, claiming: Claiming, runners: int) -> StartUp:
    """Check a configuration before this number of runners start.

    Count the runners left behind by a restart until they are found dead.
    """
    check_type(service, AtomicService, "an atomic service")
    check_type(claiming, Claiming, "how a runner claims")
    check_int(runners, "a number of runners", 1)
    runners_max = _most_runners(service, 1)
    concerns: tuple[Concern, ...] = ()
    if runners > runners_max:
        concerns = (NoWindows(runners, runners_max),)
    else:
        window = service.interval // runners - (service.spread if runners > 1 else 0)
        useful = max(0, 1 + min(_last_start(service, window), window - max(1, claiming.run_margin_min)))
        if window < WINDOW_MIN:
            concerns += (ShortWindow(window),)
        if useful < claiming.period:
            concerns += (MissedByPolls(useful, claiming.period),)
    return StartUp(runners_max, _most_runners(service, _window_needed(service, claiming)), concerns)


def _most_runners(service: AtomicService, window: Duration) -> int:
    several = service.interval // (window + service.spread)
    return several if several > 1 else int(service.interval >= window)


def _window_needed(service: AtomicService, claiming: Claiming) -> Duration:
    """Return the shortest window whose useful part spans the time between two claims."""
    on_time = claiming.period - 1 + max(1, claiming.run_margin_min)
    limit = service.start_fraction_ppm
    # The least window w with limit * w // PPM >= period - 1: rounds up, as the floor of the
    # negative.
    return max(on_time, -((claiming.period - 1) * -PPM // limit)) if 0 < limit < PPM else on_time


def _last_start(service: AtomicService, window: Duration) -> Duration:
    limit = service.start_fraction_ppm
    return limit * window // PPM if 0 < limit < PPM else window - 1


# --- slots ----------------------------------------------------------------------------------------


def _edge(place: int, interval: Duration, count: int) -> Duration:
    """Return where slot `place` begins, in microseconds after the cycle's start."""
    return place * interval // count


def _assigned_slot(elapsed: Duration, interval: Duration, count: int) -> int:
    """Return the slot p with edge(p) <= elapsed < edge(p + 1), for 0 <= elapsed < interval."""
    return ((elapsed + 1) * count - 1) // interval


def _window_of(position: int, count: int, service: AtomicService, cycle_start: Instant) -> Window | None:
    """Return when the runner at `position` may start; None if the margin takes up a slot."""
    if count == 1:
        return Window(cycle_start, cycle_start + service.interval)
    if service.interval // count <= service.spread:
        return None
    return Window(
        cycle_start + _edge(position, service.interval, count),
        cycle_start + (_edge(position + 1, service.interval, count) - service.spread),
    )


def _gone_ppm(window: Window, now: Instant) -> int:
    """Return the gone part of the window, rounded up: the floor of the negative."""
    return -((window.start - now) * PPM // window.length)


def _percent(ppm: int) -> str:
    """Format as `75.00%`, or with four digits if two would round."""
    return f"{ppm // 10_000}.{f'{ppm % 10_000:04d}'.removesuffix('00')}%"
