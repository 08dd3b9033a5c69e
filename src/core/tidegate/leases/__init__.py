"""Leases, locks and leader election.

In reading order:
    lease       a lease with a fencing token, as decisions on one record
    claim_lock  a lock that is an array of claims: the holder, and stale claims
    election    a candidate for leadership, as a reducer on a lease
    leader      the program that executes a candidate's commands on a document store
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.leases.claim_lock import lock_view
    from tidegate.leases.election import Candidate
    from tidegate.leases.leader import Leader, fenced, new_lease
    from tidegate.leases.lease import (
        Lease,
        LeaseStatus,
        Terms,
        decide_fence,
        decide_release,
        decide_take,
        next_action,
        status_of,
    )
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Candidate", "Leader", "Lease", "LeaseStatus", "Terms", "decide_fence", "decide_release", "decide_take",
    "fenced", "lock_view", "new_lease", "next_action", "status_of",
]  # fmt: skip
