"""Whose turn is it? Runners share a cycle of time, one slot each, so that a service runs on one of them at a time.

Every runner knows the same list of runners in the same order, and the time. That is enough to agree without a message.
The list of a cycle, its view, is that of the runners that were alive when the cycle began; who joins later waits for the
next one, and the slot of who leaves or dies stays empty until then. A list that changed within a cycle would move the
slots under those who wait for theirs.

The cycle is cut into as many slots as there are runners, and the runner at position p may start in the window that
begins with slot p and ends one margin before the next. This is time-division multiple access over a membership service
(Kopetz and Grünsteidl 1994, "TTP: a protocol for fault-tolerant real-time systems"); the margin is its guard time.

    I = interval, M = spread, N = runners, t = now - cycle start (cycles are counted from the epoch)
    edge(p)   = floor(p * I / N)
    slot(p)   = [edge(p), edge(p + 1))                  the p that holds t is assigned
    window(p) = [edge(p), edge(p + 1) - M)              [0, I) for a single runner, who needs no margin

All in whole microseconds: with floating-point edges (13 runners, 300 s, no margin) two windows overlap, and with 17 there
are instants between two windows. The assigned p is computed from the same edges: edge(p) <= t holds exactly if
p * I / N < t + 1, so it is the largest such p, ((t + 1) * N - 1) // I. (t * N // I would be another one at an edge that
was rounded down.)

The checks, in their order:

    1  no runners                                            NoStableRunners
    2  the caller is not among them                          NotAssignedSlot
    3  N > 1, and the shortest slot is not above the margin  SlotWindowInvalid
    4  the assigned runner is younger than stabilisation     ScheduledRunnerInGrace, whoever asks
    5  now is outside the caller's window                    NotAssignedSlot
    6  more than start_fraction of the window is gone        LateStart
    7  otherwise                                             Assigned

What a configuration bears is known beforehand (`tolerance`, `check_start_up`), from the shortest slot s = I // N:

    windows     while s > M                                         that is for up to I // (M + 1) runners
    clocks      s - 1 - the last instant of its window that clears  may lie between two clocks: M without a late guard
    polls       the instants of its window that clear it, with time left to work, reach from one poll to the next

Laws
    A1  Of one view, at most one runner is cleared at an instant, also when clocks differ by no more than the margin.
    A2  Windows of one view follow each other with a gap of exactly the margin, from cycle to cycle too.
    A3  Without grace, every runner of a view is cleared at some instant of its cycle, if the shortest slot is above the
        margin. As the view is that of the start (M7), whoever joins, leaves or dies meanwhile costs nobody a turn.
    A4  Moving now and all creations by whole cycles moves the claim and changes nothing else.
    A5  Who is cleared is the assigned runner.
    A6  Nobody is cleared in the slot of a runner that is younger than the stabilisation.
    A7  Nobody is cleared after more than the start fraction of the window, compared exactly.
    A8  A view is refused for its windows exactly if it has more runners than the tolerance names.
    A9  Nor are two cleared while clocks differ by no more than the tolerance names; a microsecond more, and two can be.
    A10 Asked at least once a period, each of up to `polled_max` runners is cleared in each cycle with its margin left;
        of one more, one can be missed.

Known not to work
    - Runners with different views may be cleared together: the decision knows one view. Lists that are read at the very
      instant at which a cycle begins can differ. A write that only one of them can make is still needed, and a fencing
      token where work may outlive its window (both in `executions`).
    - Lists of the moment, in the place of that of the start: a runner whose slot has moved back behind now loses its
      turn, and loses it in every cycle if somebody joins in the second half of each.
    - Nothing is said about how long the work takes, nor that it happens once a cycle: alone, a runner is cleared at each
      poll in its part of the cycle.
    - Runners that are gone count until the cycle after they are found dead, so a restart can stop all services for that
      long. Where nobody was alive at the start of a cycle, nobody is cleared in it.
    - The late guard is a part of the window, not of the slot: of three runners with the defaults one is late after 20 s,
      half of its window of 40 s. Half of its slot of 100 s would be beyond the window, and no guard at all.
    - Two runners of one id are taken for the first of them.
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

# --- values -----------------------------------------------------------------------------------------------------------


def _length(given: Duration | timedelta, what: str, least: Duration = MILLISECOND) -> Duration:
    """A length of time in microseconds. A number below the least is refused, for it was meant in another unit; 0 is not."""
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
    """How runners share the time.

    Invariants: 0 < interval; 0 <= spread < interval; 0 <= stabilisation; 0 <= start_fraction_ppm <= PPM.

    Pass lengths of time as timedeltas; the attributes are microseconds. A number counts microseconds, too, and is refused
    where it can only be meant in seconds: an interval below 100 ms, and another length below a millisecond.

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
        """When the cycle began that holds the instant; cycles are counted from the epoch, the same for all."""
        now = as_instant(now)
        check_type(now, Instant, "now", _AWARE)
        return now + -(now.at % self.interval)


@final
@attrs.frozen
class Runner:
    """A runner that may be cleared, and when it was first seen: an instant, or a datetime with a time zone. Invariant: the id is not empty."""

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
    """One run of the service, named by runner and run id, and the window it was cleared for."""

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
    """It is not the caller's turn, or it is the margin after it, or the caller is not among the runners."""

    def __str__(self) -> str:
        return "not_assigned_slot: it is not its turn"


@final
@attrs.frozen
class SlotWindowInvalid:
    """The margin takes up the shortest slot, so nobody has a window."""

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
    """Too much of the window is gone. Both in parts per million; `gone_ppm` is rounded up, so above the limit."""

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
    """One runner, or none: whatever clocks show, there are no two to be cleared.

    Attributes:
        runners_max: How many runners would still have windows.
    """

    runners_max: int

    def __str__(self) -> str:
        return f"at most {self.runners_max} runners"


@final
@attrs.frozen
class Shared:
    """Several runners.

    Attributes:
        clock_difference: No two runners are cleared while clocks differ by no more than this.
        runners_max: How many runners would still have windows.
    """

    clock_difference: Duration
    runners_max: int

    def __str__(self) -> str:
        return f"at most {self.runners_max} runners, clocks within {seconds(self.clock_difference)}"


@final
@attrs.frozen
class Crowded:
    """More runners than have windows, so nobody is ever cleared.

    Attributes:
        runners_max: How many would have windows.
    """

    runners_max: int

    def __str__(self) -> str:
        return f"at most {self.runners_max} runners would have windows"


Tolerance: TypeAlias = Alone | Shared | Crowded


@final
@attrs.frozen(kw_only=True)
class AtomicServiceClaim:
    """What was decided for one runner, and where it stands in the cycle; its text is the message.

    Invariant: position < runners.

    Attributes:
        runner_id: Who asked.
        verdict: Whether it may start, or why not.
        cycle_start: When the current cycle began.
        runners: How many share it.
        assigned: Whose slot it is, margin included; None where there are no runners.
        position: The caller's place among the runners, from 0; None if it is not among them.
        window: When the caller may start in this cycle; None if it never may.
        owner_now: The slot is the caller's, and it has a window. True in the margin after the window too.
        tolerance: How many runners, and which difference of clocks, the configuration bears.
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


# --- the decision -----------------------------------------------------------------------------------------------------


def decide_atomic_service_claim(
    *, service: AtomicService, runner_id: str, runners: tuple[Runner, ...], now: Instant | datetime, run_id: str
) -> AtomicServiceClaim:
    """Whether `runner_id` may run the service now.

    Args:
        service: How runners share the time; the same for all.
        runner_id: Who asks.
        runners: Who may run it in this cycle, in the order that all agree on (by creation, then id): those that were
            alive when it began (`tidegate.services.membership.runners`). Neither sorted nor filtered here.
        now: The time, on the clock that judges for all; ideally the store's. An instant, or a datetime with a time zone.
        run_id: The identity of the run, should it be cleared; unique, made by the caller.

    Returns:
        The claim; `claim.verdict` is `Assigned(run)` if it may.

    Raises:
        Misuse: An id is empty or no string, an argument is of the wrong type, or there is a stabilisation, and the
            assigned runner was created on another clock than `now` was read on.
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

    # The order is that of the header: an earlier reason hides a later one.
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


# --- what a configuration bears ---------------------------------------------------------------------------------------


def tolerance(service: AtomicService, runners: int) -> Tolerance:
    """How many runners a configuration bears, and by how much their clocks may differ.

    Args:
        service: How runners share the time.
        runners: How many there are.

    Returns:
        The largest number of runners that have windows, and for several runners the largest difference of clocks, in
        microseconds, at which no two of them are cleared.

    Raises:
        Misuse: The number is negative or no integer, or an argument is of the wrong type.
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
    """How often a runner asks, and how much time a run needs.

    Invariants: 0 < check_interval; 0 <= loop_sleep; 0 <= run_margin_min.

    Attributes:
        check_interval: The least time between two claims of a runner, in microseconds.
        loop_sleep: How long its loop sleeps, in microseconds, so that a claim may be that much late.
        run_margin_min: The least time of its window that has to be left when a run has begun, in microseconds.
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
"""A shorter window is a concern at start-up: stalls and differences of clocks are of that size."""


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
    """A runner may ask before and after the instants of its window that lead to a run, and never between."""

    useful: Duration
    period: Duration

    def __str__(self) -> str:
        return f"{seconds(self.useful)} of a window lead to a run, and a runner asks every {seconds(self.period)}"


Concern: TypeAlias = NoWindows | ShortWindow | MissedByPolls


@final
@attrs.frozen
class StartUp:
    """What a configuration is good for.

    Attributes:
        runners_max: How many runners have windows.
        polled_max: How many are sure of a run in each cycle; 0 if not even a single one is.
        concerns: What is wrong for the number of runners that was asked about; empty if nothing is.
    """

    runners_max: int
    polled_max: int
    concerns: tuple[Concern, ...]


def check_start_up(service: AtomicService, claiming: Claiming, runners: int) -> StartUp:
    """What to warn of before this number of runners start.

    What means nothing at all (an interval of 0, a spread as long as the interval) is refused when the settings are made.

    Args:
        service: How runners share the time.
        claiming: How often each asks.
        runners: How many there will be; count those that a restart leaves behind, until they are found dead.

    Returns:
        For how many runners the configuration works, and the concerns, if there are any.

    Raises:
        Misuse: The number is below 1 or no integer, or an argument is of the wrong type.
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
    """The largest number of runners whose shortest window has this length; 0 where a cycle is shorter."""
    several = service.interval // (window + service.spread)
    return several if several > 1 else int(service.interval >= window)


def _window_needed(service: AtomicService, claiming: Claiming) -> Duration:
    """The least length of a window in which the instants that lead to a run reach from one claim to the next."""
    on_time = claiming.period - 1 + max(1, claiming.run_margin_min)
    limit = service.start_fraction_ppm
    # The least window w with limit * w // PPM >= period - 1: a division that rounds up, as the floor of its negative.
    return max(on_time, -((claiming.period - 1) * -PPM // limit)) if 0 < limit < PPM else on_time


def _last_start(service: AtomicService, window: Duration) -> Duration:
    """How far into a window of this length a runner is still cleared."""
    limit = service.start_fraction_ppm
    return limit * window // PPM if 0 < limit < PPM else window - 1


# --- slots ------------------------------------------------------------------------------------------------------------


def _edge(place: int, interval: Duration, count: int) -> Duration:
    """Where slot `place` begins, in microseconds after the cycle's start."""
    return place * interval // count


def _assigned_slot(elapsed: Duration, interval: Duration, count: int) -> int:
    """The slot that holds the instant: edge(p) <= elapsed < edge(p + 1), for 0 <= elapsed < interval."""
    return ((elapsed + 1) * count - 1) // interval


def _window_of(position: int, count: int, service: AtomicService, cycle_start: Instant) -> Window | None:
    """When the runner at `position` may start in this cycle; None where the margin takes up the shortest slot."""
    if count == 1:
        return Window(cycle_start, cycle_start + service.interval)
    if service.interval // count <= service.spread:
        return None
    return Window(
        cycle_start + _edge(position, service.interval, count),
        cycle_start + (_edge(position + 1, service.interval, count) - service.spread),
    )


def _gone_ppm(window: Window, now: Instant) -> int:
    """The part of the window before `now`, in parts per million, rounded up: by the floor of its negative."""
    return -((window.start - now) * PPM // window.length)


def _percent(ppm: int) -> str:
    """`75.00%`, or with four digits where two would round."""
    return f"{ppm // 10_000}.{f'{ppm % 10_000:04d}'.removesuffix('00')}%"
