"""The laws of `tidegate.leases.lease`, over a change of the record, a verdict, or beliefs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from tidegate.leases.lease import (
    Busy,
    Lapsed,
    Lease,
    Mark,
    Mine,
    Observation,
    Renew,
    Rest,
    Take,
    Tenure,
    Terms,
)
from tidegate.model.instants import Duration, Instant


def _is_held(lease: Lease | None) -> bool:
    return lease is not None and lease.holder is not None


def _is_take(before: Lease | None, after: Lease) -> bool:
    return before is None or (after.token, after.request) != (before.token, before.request)


def tokens_grow(before: Lease | None, after: Lease) -> bool:
    """Law LE1."""
    token, version = (0, 0) if before is None else (before.token, before.version)
    return after == before or (
        after.version == version + 1
        and (after.token == token + 1 if _is_take(before, after) else after.token == token)
        and (_is_held(after) or not _is_take(before, after))
    )


def was_free(before: Lease | None, after: Lease, stood: Duration, lock_delay: Duration) -> bool:
    """Law LE2.

    Args:
        before: The record.
        after: The record after a change.
        stood: How old the version was, by a perfect observer whose clock runs as the judge's does.
        lock_delay: The lock delay of the taker.
    """
    return not _is_take(before, after) or before is None or not _is_held(before) or stood >= before.ttl + lock_delay


def what_is_free_can_be_taken(
    lease: Lease | None, request: str, stood: Duration, lock_delay: Duration, verdict: Take | Mine | Busy
) -> bool:
    """Law LE3."""
    if lease is not None and lease.holder is not None and (lease.request == request or stood < lease.ttl + lock_delay):
        return True
    return isinstance(verdict, Take)


def only_the_holder_changes_it(before: Lease | None, after: Lease, request: str) -> bool:
    """Law LE4."""
    if after == before or _is_take(before, after):
        return True
    return _is_held(before) and before is not None and before.request == request == after.request


def there_is_no_way_back(terms: Terms, tenure: Tenure, now: Instant, verdict: Rest | Renew | Lapsed) -> bool:
    """Law LE5."""
    return isinstance(verdict, Lapsed) or now - tenure.since < tenure.lease.ttl - terms.margin


def one_believes(believers: Collection[str]) -> bool:
    """Law LE6."""
    return len(believers) <= 1


def began_when_first_seen(looks: Sequence[tuple[Mark | None, Instant]], observation: Observation | None) -> bool:
    """Law LE7, for reads in order by a clock that does not go back."""
    mark, since = looks[-1]
    for seen, at in reversed(looks):
        if seen != mark:
            break
        since = at
    return observation == (None if mark is None else Observation(mark, since))


def admits_no_older(admitted: Sequence[int]) -> bool:
    """Law LE8: admitted tokens never fall."""
    return all(earlier <= later for earlier, later in pairwise(admitted))


def success_is_recognised(lease: Lease | None, request: str, verdict: Take | Mine | Busy) -> bool:
    """Law LE9: a request gets `Mine` exactly if it holds the lease."""
    mine = lease is not None and lease.holder is not None and lease.request == request
    return isinstance(verdict, Mine) == mine
