"""The laws of `tidegate.retries.attempt_delays` as predicates over attempts and pauses."""

from __future__ import annotations

from tidegate.model.effects import Sleep
from tidegate.model.instants import Duration
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import delay_after


def is_after_its_pause(pauses: Pauses, attempts: int, elapsed: Duration) -> bool:
    """Law PA1; `elapsed` counts from the last known sign of an attempt to the next one."""
    return elapsed >= Sleep(delay_after(pauses.delays, attempts), pauses.jitter_ppm).least


def is_of(pauses: Pauses, attempts: int, sleep: Sleep) -> bool:
    """Law PA2."""
    return (sleep.duration, sleep.jitter_ppm) == (delay_after(pauses.delays, attempts), pauses.jitter_ppm)


def goes_on_as_long_as_it_may(
    pauses: Pauses, attempts: int | None, made: int, elapsed: Duration, *, follows: bool
) -> bool:
    """Law PA3; `follows` is whether another attempt does."""
    is_left = attempts is None or made < attempts
    in_time = pauses.elapsed_max is None or elapsed + pauses.after(made).duration <= pauses.elapsed_max
    return follows == (is_left and in_time)
