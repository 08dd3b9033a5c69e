"""Strategies for settings of a shared service, runners, claims, and the runs they clear."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import MINUTE, PPM, SECOND, Instant
from tidegate.services.atomic_service import (
    Assigned,
    AtomicService,
    AtomicServiceClaim,
    AtomicServiceRun,
    Claiming,
    Runner,
    StartUp,
    Window,
    check_start_up,
    decide_atomic_service_claim,
)

_EPOCH: Final = Instant(0)
_RUN_IDS: Final = st.sampled_from(("x", "y", "z"))
_LENGTHS: Final = st.one_of(st.integers(1, 24), st.sampled_from((7 * SECOND, MINUTE, 5 * MINUTE)))


@st.composite
def atomic_services(draw: DrawFn, intervals: SearchStrategy[int] = _LENGTHS, *, grace: bool = False) -> AtomicService:
    """Settings with and without a margin and a late guard, so that slots are uneven or too short.

    With `grace` new runners may have to wait.
    """
    interval = draw(intervals)
    margins = st.sampled_from((0, 1, interval // 5, interval // 3)).filter(lambda spread: spread < interval)
    return AtomicService(
        interval=timedelta(microseconds=interval),
        spread=timedelta(microseconds=draw(margins)),
        stabilisation=timedelta(microseconds=draw(st.integers(0, 2 * interval)) if grace else 0),
        start_fraction_ppm=draw(st.sampled_from((0, 1, PPM // 3, PPM // 2, PPM - 1, PPM))),
    )


def runners(around: Instant = _EPOCH, count_max: int = 5) -> SearchStrategy[tuple[Runner, ...]]:
    ages = st.lists(st.integers(-5, 50), max_size=count_max)
    return ages.map(lambda drawn: tuple(Runner(f"r{place}", around + -age) for place, age in enumerate(drawn)))


def claimings() -> SearchStrategy[Claiming]:
    """Poll settings: some microseconds, to fit short cycles, and the defaults."""
    short = st.builds(
        Claiming, check_interval=st.integers(1, 9), loop_sleep=st.integers(0, 3), run_margin_min=st.integers(0, 5)
    )
    return st.one_of(short, st.just(Claiming()))


@st.composite
def start_ups(draw: DrawFn) -> StartUp:
    return check_start_up(draw(atomic_services()), draw(claimings()), draw(st.integers(1, 6)))


@st.composite
def windows(draw: DrawFn) -> Window:
    start = Instant(draw(st.integers(-60, 60)))
    return Window(start, start + draw(st.integers(1, 60)))


@st.composite
def runs(draw: DrawFn, run_ids: SearchStrategy[str] = _RUN_IDS) -> AtomicServiceRun:
    runner, window = draw(st.sampled_from(("r0", "r1", "r2"))), draw(windows())
    return AtomicServiceRun(runner, draw(run_ids), window.start, window, window.start)


@st.composite
def claims(draw: DrawFn) -> AtomicServiceClaim:
    """The decision for one of some runners, or for a stranger; about half are cleared."""
    service = draw(atomic_services(st.integers(1, 24), grace=True))
    now = Instant(draw(st.integers(-60, 60)))
    them = draw(runners(now))
    asks = [
        decide_atomic_service_claim(service=service, runner_id=each, runners=them, now=now, run_id="run")
        for each in (*(runner.id for runner in them), "stranger")
    ]
    cleared = [ask for ask in asks if isinstance(ask.verdict, Assigned)]
    return draw(st.sampled_from(cleared or asks) | st.sampled_from(asks))
