"""The statuses of an invocation, one asynchronous call of a task: pynenc's table, as data.

An invocation is registered, picked up (pending) by a runner that owns it from then on, runs, and ends. Ownership lasts
exactly as long as it is pending, running or paused. What takes an invocation away from a runner that is presumed dead
overrides its ownership (`pending_recovery`, `running_recovery`) and leads back to the queue through `rerouted`.

Known not to work
    - A pynenc runner beside ours does not know our edges: it denies what they lead to, and changes nothing.
"""

from __future__ import annotations

from typing import Final

from tidegate.invocations.status import Added, StatusDefinition, StatusTable

__all__ = [
    "CONCURRENCY_CONTROLLED", "CONCURRENCY_CONTROLLED_FINAL", "FAILED", "INVOCATION", "KILLED", "PAUSED", "PENDING",
    "PENDING_RECOVERY", "REGISTERED", "REROUTED", "RETRY", "RUNNING", "RUNNING_RECOVERY", "SUCCESS",
]  # fmt: skip

REGISTERED: Final = "registered"
CONCURRENCY_CONTROLLED: Final = "concurrency_controlled"
REROUTED: Final = "rerouted"
PENDING: Final = "pending"
PENDING_RECOVERY: Final = "pending_recovery"
RUNNING: Final = "running"
RUNNING_RECOVERY: Final = "running_recovery"
PAUSED: Final = "paused"
KILLED: Final = "killed"
RETRY: Final = "retry"
SUCCESS: Final = "success"
FAILED: Final = "failed"
CONCURRENCY_CONTROLLED_FINAL: Final = "concurrency_controlled_final"

INVOCATION: Final = StatusTable(
    initial={REGISTERED},
    definitions=(
        StatusDefinition(
            REGISTERED,
            {PENDING, CONCURRENCY_CONTROLLED, CONCURRENCY_CONTROLLED_FINAL},
            available=True,
            releases_owner=True,
        ),
        StatusDefinition(CONCURRENCY_CONTROLLED, {REROUTED}, releases_owner=True),
        StatusDefinition(
            REROUTED,
            {PENDING, CONCURRENCY_CONTROLLED, CONCURRENCY_CONTROLLED_FINAL},
            available=True,
            releases_owner=True,
            added=(Added(CONCURRENCY_CONTROLLED_FINAL, "refused when it should run again, with rerouting off"),),
        ),
        StatusDefinition(
            PENDING, {RUNNING, KILLED, REROUTED, PENDING_RECOVERY}, acquires_owner=True, requires_owner=True
        ),
        StatusDefinition(PENDING_RECOVERY, {REROUTED}, releases_owner=True, overrides_owner=True),
        StatusDefinition(RUNNING, {PAUSED, KILLED, RETRY, SUCCESS, FAILED, RUNNING_RECOVERY}, requires_owner=True),
        StatusDefinition(RUNNING_RECOVERY, {REROUTED}, releases_owner=True, overrides_owner=True),
        StatusDefinition(
            PAUSED,
            {RUNNING, KILLED, RUNNING_RECOVERY},
            requires_owner=True,
            added=(Added(RUNNING_RECOVERY, "its owner may die while it waits, and nobody else leaves paused"),),
        ),
        StatusDefinition(KILLED, {REROUTED}, releases_owner=True),
        StatusDefinition(
            RETRY,
            {PENDING, CONCURRENCY_CONTROLLED, CONCURRENCY_CONTROLLED_FINAL},
            available=True,
            releases_owner=True,
            added=(
                Added(CONCURRENCY_CONTROLLED, "refused when it should be tried again"),
                Added(CONCURRENCY_CONTROLLED_FINAL, "refused when it should be tried again, with rerouting off"),
            ),
        ),
        StatusDefinition(SUCCESS, final=True, releases_owner=True),
        StatusDefinition(FAILED, final=True, releases_owner=True),
        StatusDefinition(CONCURRENCY_CONTROLLED_FINAL, final=True, releases_owner=True),
    ),
)
