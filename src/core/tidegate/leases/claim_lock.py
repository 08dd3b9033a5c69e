"""Who holds a lock that is an array of claims, and which claim may be pulled?

Whoever wants the lock pushes a claim of its own and holds the lock once its claim is the first; it pulls the claim when it
is done (`tidegate.invocations.array_push_lock` is such a protocol). A claim whose owner has crashed blocks all behind it, so
one that was first for a whole threshold, before the eyes of one observer and by its clock alone, may be pulled: only that
claim, by its value. Nothing else was judged, so nothing else is cleared.

Laws
    LK1  No claim is called stale but the first, and only after it was first for the whole threshold.
    LK2  The lock is held by whoever has the first claim, and by nobody else.

Known not to work
    - There are no fencing tokens (`tidegate.leases.lease` has them): a holder that stalls acts late.
    - A claim that was pushed by a late request, after its owner left, is first until somebody judges it. Who holds the lock
      writes with `Contains(claims, mine)` in the filter, so that whoever lost the claim changes nothing; a second copy of
      the push that arrives late defeats even that. `tidegate.invocations.transition` needs no lock.
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
    """One's own claim is the first. Write with `Contains(claims, mine)` in the filter, then pull it."""

    def __str__(self) -> str:
        return "holding"


@final
@attrs.frozen
class Waiting:
    """One's own claim stands behind this one, which is not stale for another `left` microseconds of one's own clock."""

    behind: str
    left: Duration

    def __str__(self) -> str:
        return f"waiting behind {self.behind!r}, not stale for another {seconds(self.left)}"


@final
@attrs.frozen
class Stale:
    """The first claim was first for the whole threshold: pull it, by its value, and nothing else."""

    claim: str

    def __str__(self) -> str:
        return f"stale: pull {self.claim!r}"


@final
@attrs.frozen
class Absent:
    """One's own claim is not there: it has not arrived, or somebody pulled it. The lock is not held."""

    def __str__(self) -> str:
        return "absent"


LockView: TypeAlias = Holding | Waiting | Stale | Absent


def lock_view(
    claims: tuple[str, ...], mine: str, *, observation: Observation | None, now: Instant, threshold: Duration
) -> LockView:
    """The state of the lock for whoever pushed `mine`.

    Args:
        claims: The array as it was read, oldest first.
        mine: One's own claim.
        observation: What one has seen of its first claim, this look included: `observe(before, claims[0], now)`.
        now: One's own monotonic clock, read AFTER the look.
        threshold: For how long a claim may be first, in microseconds.

    Returns:
        `Holding`, `Waiting`, `Stale` or `Absent`.

    Raises:
        Misuse: An argument is of the wrong type, or now was read on another clock than the observation.
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
