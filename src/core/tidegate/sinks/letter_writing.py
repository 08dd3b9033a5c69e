"""The result of an attempt to write a dead letter.

Its record is done once every in-sync replica has the letter. So there is no maximum number of
failures: a revoked partition ends the attempts, and its next owner starts over. The delay is 0.1 s,
doubled, up to 30 s.

Laws
    LW1  Only a written letter is settled: a failed write is repeated, however often it has failed.
    LW2  The delay grows with the failures, never exceeds `LONGEST`, and is never 0.
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
_BACKOFF: Final = Exponential(SECOND // 10, cap=LONGEST)


@final
@unique
class Attempt(Enum):
    """The result of an attempt."""

    WRITTEN = "every replica in sync has it"
    FAILED = "it was refused, or nobody knows"


@final
@attrs.frozen
class Settled:
    """The letter is written; its record is done."""


@final
@attrs.frozen
class WriteAgain:
    """Write it again after `delay` microseconds, after that many `failures` in a row."""

    delay: Duration
    failures: int


WriteVerdict: TypeAlias = Settled | WriteAgain


def after_attempt(attempt: Attempt, failures: int) -> WriteVerdict:
    """What follows an attempt, after `failures` earlier ones."""
    check_type(attempt, Attempt, "what became of an attempt")
    check_int(failures, "a number of failures", 0)
    match attempt:
        case Attempt.WRITTEN:
            return Settled()
        case Attempt.FAILED:
            return WriteAgain(delay_after(_BACKOFF, failures + 1), failures + 1)
