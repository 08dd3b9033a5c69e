"""What follows an attempt to write a dead letter?

Whoever writes one answers for a record that nobody could handle: it counts as done once every replica in sync has the letter,
and not before. So there is no number of failures after which it is given up; it ends when it is written, or when the partition
of the record goes, and then the next owner begins anew.

    attempt     what follows
    written     the record is done
    failed      after a while it is written again: 0.1 s, doubled, up to 30 s

Laws
    LW1  Only what is written is settled: whatever has failed is written again, however often it has failed.
    LW2  The longer it fails, the longer it waits, and never longer than `LONGEST`; it never tries again at once.
    LW3  Each failure counts once.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.instants import SECOND, Duration
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Exponential, delay_after

LONGEST: Final[Duration] = 30 * SECOND
"""The longest that it waits."""
_BACKOFF: Final = Exponential(SECOND // 10, cap=LONGEST)


@final
@unique
class Attempt(Enum):
    """What became of an attempt."""

    WRITTEN = "every replica in sync has it"
    FAILED = "it was refused, or nobody knows"


@final
@attrs.frozen
class Settled:
    """The letter is written; its record is done."""


@final
@attrs.frozen
class WriteAgain:
    """Write it again.

    Attributes:
        delay: After this time, in microseconds.
        failures: How often it has failed in a row.
    """

    delay: Duration
    failures: int


WriteVerdict: TypeAlias = Settled | WriteAgain


def after_attempt(attempt: Attempt, failures: int) -> WriteVerdict:
    """What follows.

    Args:
        attempt: What became of it.
        failures: How often it had failed before.

    Raises:
        Misuse: An argument is of another type, or the number negative.
    """
    check_type(attempt, Attempt, "what became of an attempt")
    check_int(failures, "a number of failures", 0)
    match attempt:
        case Attempt.WRITTEN:
            return Settled()
        case Attempt.FAILED:
            return WriteAgain(delay_after(_BACKOFF, failures + 1), failures + 1)
