"""When does what keeps changing come to be looked at?

Changes come in bursts, and each one alone would start a run. So a run waits until nothing has changed for a while (a
trailing debounce), but not for ever: under changes that never cease, whoever only waits for quiet never runs. Then a
maximum, counted from the first change that is waiting, ends the wait.

    due(first, last) = min(last + quiet, first + wait_max)

Laws
    RE21 It is not due before it was quiet, unless the maximum is reached.
    RE22 It is due within the maximum after the first change that waits, however many follow.
    RE23 A later change never makes it due earlier, nor does a later first one.

The maximum is ten times the quiet unless it is set.

Known not to work: under ceaseless changes one run begins for each maximum, whatever it costs.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration, Instant, micros, seconds
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import LONGEST

PATIENCE: Final = 10
"""How many times the quiet a change waits at most, unless `wait_max` is set."""


def _patience(debounce: Debounce) -> Duration:
    return PATIENCE * debounce.quiet if type(debounce.quiet) is int else 0


@final
@attrs.frozen
class Debounce:
    """How long changes wait for each other. Invariants: 0 <= quiet <= wait_max; quiet <= LONGEST; wait_max <= PATIENCE * LONGEST.

    Attributes:
        quiet: How long nothing may change before a run, in microseconds, or a timedelta.
        wait_max: How long the first change waits at most, likewise; `PATIENCE` times the quiet unless it is set.
    """

    quiet: Duration = attrs.field(default=SECOND, converter=micros)
    wait_max: Duration = attrs.field(default=attrs.Factory(_patience, takes_self=True), converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.quiet, "a time of quiet in microseconds", 0, LONGEST)
        check_int(self.wait_max, "a maximum wait in microseconds", 0, PATIENCE * LONGEST)
        if self.wait_max < self.quiet:
            raise Misuse(
                f"a maximum wait of {seconds(self.wait_max)} ends before a quiet of {seconds(self.quiet)}",
                why="then no change would ever wait for another",
                todo="set quiet to how long one change waits for the next, and wait_max to how late a run may be",
            )

    def __str__(self) -> str:
        return f"{seconds(self.quiet)} of quiet, or after {seconds(self.wait_max)}"


def due(debounce: Debounce, first: Instant, last: Instant) -> Instant:
    """When the changes that are waiting are due.

    Args:
        debounce: How long they wait for each other.
        first: When the first of them was seen.
        last: When the last of them was seen, on the same clock.

    Returns:
        The instant, on that clock.

    Raises:
        Misuse: The clocks differ.
    """
    check_type(debounce, Debounce, "a debounce")
    check_type(first, Instant, "the time of a change")
    check_type(last, Instant, "the time of a change")
    return first + min(last - first + debounce.quiet, debounce.wait_max)
