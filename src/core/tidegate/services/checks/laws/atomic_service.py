"""The laws of `tidegate.services.atomic_service` as predicates over claims of one view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import attrs

from tidegate.model.instants import PPM, Duration, Instant
from tidegate.services.atomic_service import (
    Assigned,
    AtomicService,
    AtomicServiceClaim,
    Claiming,
    ClaimVerdict,
    Runner,
    ScheduledRunnerInGrace,
    Shared,
    SlotWindowInvalid,
    Tolerance,
    Window,
)


def cleared(claims: Iterable[AtomicServiceClaim]) -> frozenset[str]:
    return frozenset(claim.runner_id for claim in claims if isinstance(claim.verdict, Assigned))


def one_runner_is_cleared(claims: Iterable[AtomicServiceClaim]) -> bool:
    """Law A1. The instants of the claims may differ by up to the margin, as clocks do."""
    return len(cleared(claims)) <= 1


def gaps_are_the_margin(windows: Sequence[Window], service: AtomicService) -> bool:
    """Law A2, for the windows of a cycle in order and the first of the next.

    A single window has no margin, and no gap to itself.
    """
    margin = service.spread if len(windows) > 1 else 0
    starts = [*(window.start for window in windows[1:]), windows[0].start + service.interval]
    return all(start - window.end == margin for window, start in zip(windows, starts, strict=True))


def every_runner_is_cleared(claims: Iterable[AtomicServiceClaim], runners: Iterable[Runner]) -> bool:
    """Law A3, over the claims of all runners at all instants of a cycle, with windows for all."""
    return cleared(claims) == frozenset(runner.id for runner in runners)


def moved_by_whole_cycles(claim: AtomicServiceClaim, later: AtomicServiceClaim, by: Duration) -> bool:
    """Law A4."""
    return later == _moved(claim, by)


def the_assigned_is_cleared(claim: AtomicServiceClaim) -> bool:
    """Law A5."""
    return not cleared([claim]) or (claim.owner_now and claim.assigned == claim.runner_id)


def newcomers_are_spared(
    claim: AtomicServiceClaim, service: AtomicService, runners: Iterable[Runner], now: Instant
) -> bool:
    """Law A6."""
    young = {runner.id for runner in runners if service.stabilisation and now - runner.created < service.stabilisation}
    return not cleared([claim]) or claim.assigned not in young


def no_start_is_late(claim: AtomicServiceClaim, service: AtomicService, now: Instant) -> bool:
    """Law A7."""
    limit = service.start_fraction_ppm
    if not cleared([claim]) or claim.window is None or not 0 < limit < PPM:
        return True
    return (now - claim.window.start) * PPM <= limit * claim.window.length


def refused_beyond_what_it_bears(claim: AtomicServiceClaim) -> bool:
    """Law A8."""
    beyond = claim.position is not None and claim.runners > claim.tolerance.runners_max
    return isinstance(claim.verdict, SlotWindowInvalid) is beyond


def tolerates_just_that(instants: Sequence[Iterable[AtomicServiceClaim]], tolerance: Tolerance) -> bool:
    """Law A9, over the claims of all runners at each microsecond of two cycles, without grace."""
    starts = [(at, runner) for at, claims in enumerate(instants) for runner in cleared(claims)]
    apart = [later - earlier for (earlier, one), (later, other) in pairwise(starts) if one != other]
    if not isinstance(tolerance, Shared):
        return not apart
    return min(apart) == tolerance.clock_difference + 1


def a_poll_leads_to_a_run(claims: Iterable[AtomicServiceClaim], claiming: Claiming) -> bool:
    """Law A10, over the claims of one of up to `polled_max` runners, a period apart at most."""
    runs = [claim.verdict.run for claim in claims if isinstance(claim.verdict, Assigned)]
    return any(run.window.end - run.started >= claiming.run_margin_min for run in runs)


def _moved(claim: AtomicServiceClaim, by: Duration) -> AtomicServiceClaim:
    return attrs.evolve(
        claim,
        verdict=_moved_verdict(claim.verdict, by),
        cycle_start=claim.cycle_start + by,
        window=None if claim.window is None else _moved_window(claim.window, by),
    )


def _moved_verdict(verdict: ClaimVerdict, by: Duration) -> ClaimVerdict:
    match verdict:
        case Assigned(run):
            return Assigned(
                attrs.evolve(
                    run,
                    cycle_start=run.cycle_start + by,
                    window=_moved_window(run.window, by),
                    started=run.started + by,
                )
            )
        case ScheduledRunnerInGrace(until):
            return ScheduledRunnerInGrace(until + by)
        case _:
            return verdict


def _moved_window(window: Window, by: Duration) -> Window:
    return Window(window.start + by, window.end + by)
