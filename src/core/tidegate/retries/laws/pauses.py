"""The laws of `tidegate.retries.pauses` as predicates over attempts and pauses."""

from __future__ import annotations

from tidegate.model.effects import Sleep
from tidegate.model.instants import Duration
from tidegate.retries.backoff import delay_after
from tidegate.retries.pauses import Pauses


def is_after_its_pause(pauses: Pauses, attempts: int, elapsed: Duration) -> bool:
    """Law PA1: the next attempt does not come before the delay after that many is over, but for its jitter.

    Args:
        pauses: The rules.
        attempts: How many were made.
        elapsed: The time from the last that is known of them to the next one, in microseconds.
    """
    return elapsed >= Sleep(delay_after(pauses.delays, attempts), pauses.jitter_ppm).least


def is_of(pauses: Pauses, attempts: int, sleep: Sleep) -> bool:
    """Law PA2: the pause is the delay after that many attempts, less the jitter at most."""
    return (sleep.duration, sleep.jitter_ppm) == (delay_after(pauses.delays, attempts), pauses.jitter_ppm)


def goes_on_as_long_as_it_may(
    pauses: Pauses, attempts: int | None, made: int, elapsed: Duration, *, follows: bool
) -> bool:
    """Law PA3: another attempt follows if its whole delay fits, and none is left over; and no other.

    Args:
        pauses: The rules.
        attempts: How many there may be.
        made: How many were made.
        elapsed: The time from the first of them to now, in microseconds.
        follows: Whether another one does.
    """
    is_left = attempts is None or made < attempts
    in_time = pauses.elapsed_max is None or elapsed + pauses.after(made).duration <= pauses.elapsed_max
    return follows == (is_left and in_time)
