"""A lock that is an array of claims: decides who holds it, and which claim may be pulled.

A process pushes a claim of its own, holds the lock while its claim is first, and pulls it when done
(`tidegate.invocations.record.array_push_lock` is such a protocol). A claim whose owner has crashed blocks
all behind it. So any process may pull a claim that it has seen first for a whole threshold, by its
own clock: only that claim, by value.

Laws
    LK1  Only the first claim is called stale, and only after it was first for the whole threshold.
    LK2  The owner of the first claim holds the lock, and no other process.

Known not to work
    - There are no fencing tokens (`tidegate.leases.lease` has them): a holder that stalls acts
      late.
    - A late claim, pushed after its owner left, stays first until an observer judges it. A holder
      writes with `Contains(claims, mine)` in the filter, so that its write fails once its claim is
      gone; a late second copy of the push defeats even that. `tidegate.invocations.record.transition`
      needs no lock.
"""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from tidegate.leases.lease import Observation
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.retries.backoff import check_delay


@final
@attrs.frozen
class Holding:
    """The caller's claim is first. Write with `Contains(claims, mine)`, then pull it."""

    def __str__(self) -> str:
        return "holding"


@final
@attrs.frozen
class Waiting:
    """The caller's claim is behind this one, not stale for `left` microseconds more."""

    behind: str
    left: Duration

    def __str__(self) -> str:
        return f"waiting behind {self.behind!r}, not stale for another {seconds(self.left)}"


@final
@attrs.frozen
class Stale:
    """The first claim was first for the whole threshold: pull it by value, and no other."""

    claim: str

    def __str__(self) -> str:
        return f"stale: pull {self.claim!r}"


@final
@attrs.frozen
class Absent:
    """The caller's claim is not there: it has not arrived, or was pulled. The lock is not held."""

    def __str__(self) -> str:
        return "absent"


LockView: TypeAlias = Holding | Waiting | Stale | Absent


def lock_view(
    claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
) -> LockView:
    """Return the state of the lock for the owner of `mine`.

    Args:
        claims: The array as read, oldest first.
        mine: The caller's claim.
        observation: The caller's observation, this read included: `observe(before, claims[0],
            now)`.
        now: The caller's monotonic clock, read AFTER the array.
        threshold: How long a claim may be first, in microseconds.
    """
    check_tuple(claims, str, "a claim")
    check_name(mine, "a claim")
    check_type(observation, (Observation, type(None)), "an observation")
    check_type(now, Instant, "the time")
    check_delay(threshold, "a threshold in microseconds", 1)
    if mine not in claims:
        return Absent()
    first = claims[0]
    if first == mine:
        return Holding()
    stood = now - observation.since if observation is not None and observation.mark == first else 0
    left = threshold - max(stood, 0)
    return Waiting(first, left) if left > 0 else Stale(first)
