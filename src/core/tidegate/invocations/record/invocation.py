"""The statuses of an invocation, one asynchronous call of a task: pynenc's table, as data.

An invocation is registered, picked up (pending) by a runner that then owns it, runs, and ends. It
is owned exactly while it is pending, running or paused. Recovery from a runner that is presumed
dead
overrides the ownership (`pending_recovery`, `running_recovery`) and returns it to the queue through
`rerouted`.

`Added` marks our edges beside pynenc's, with reasons. A runner may take an available invocation to
`running` in one write, so running acquires its owner as pending does. A runner that shuts down
gives its runs back in one write. `cancelled` ends whatever is not final, whoever owns it.

Known not to work
    - A pynenc runner beside ours lacks our edges: it denies such moves, and changes nothing.
"""

from __future__ import annotations

from typing import Final

from tidegate.invocations.record.status import Added, StatusDefinition, StatusTable

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
CANCELLED: Final = "cancelled"
CONCURRENCY_CONTROLLED_FINAL: Final = "concurrency_controlled_final"

_BEGINS: Final = Added(RUNNING, "a runner that begins at once takes it and begins in one write")
_CANCELLED: Final = Added(
    CANCELLED, "nobody wants it any more; its owner, if it has one, finds that its version has passed"
)
_GIVEN_BACK: Final = Added(REROUTED, "its owner shuts down, and gives it back in one write")

INVOCATION: Final = StatusTable(
    initial={REGISTERED},
    definitions=(
        StatusDefinition(
            REGISTERED,
            {PENDING, CONCURRENCY_CONTROLLED, CONCURRENCY_CONTROLLED_FINAL, RUNNING, CANCELLED},
            available=True,
            releases_owner=True,
            added=(_BEGINS, _CANCELLED),
        ),
        StatusDefinition(CONCURRENCY_CONTROLLED, {REROUTED, CANCELLED}, releases_owner=True, added=(_CANCELLED,)),
        StatusDefinition(
            REROUTED,
            {PENDING, CONCURRENCY_CONTROLLED, CONCURRENCY_CONTROLLED_FINAL, RUNNING, CANCELLED},
            available=True,
            releases_owner=True,
            added=(
                Added(CONCURRENCY_CONTROLLED_FINAL, "refused when it should run again, with rerouting off"),
                _BEGINS,
                _CANCELLED,
            ),
        ),
        StatusDefinition(
            PENDING,
            {RUNNING, KILLED, REROUTED, PENDING_RECOVERY, CANCELLED},
            acquires_owner=True,
            requires_owner=True,
            added=(_CANCELLED,),
        ),
        StatusDefinition(
            PENDING_RECOVERY, {REROUTED, CANCELLED}, releases_owner=True, overrides_owner=True, added=(_CANCELLED,)
        ),
        StatusDefinition(
            RUNNING,
            {PAUSED, KILLED, RETRY, SUCCESS, FAILED, RUNNING_RECOVERY, REROUTED, CANCELLED},
            acquires_owner=True,
            requires_owner=True,
            added=(_GIVEN_BACK, _CANCELLED),
        ),
        StatusDefinition(
            RUNNING_RECOVERY, {REROUTED, CANCELLED}, releases_owner=True, overrides_owner=True, added=(_CANCELLED,)
        ),
        StatusDefinition(
            PAUSED,
            {RUNNING, KILLED, RUNNING_RECOVERY, REROUTED, CANCELLED},
            requires_owner=True,
            added=(
                Added(RUNNING_RECOVERY, "its owner may die while it waits, and nobody else leaves paused"),
                _GIVEN_BACK,
                _CANCELLED,
            ),
        ),
        StatusDefinition(KILLED, {REROUTED, CANCELLED}, releases_owner=True, added=(_CANCELLED,)),
        StatusDefinition(
            RETRY,
            {PENDING, CONCURRENCY_CONTROLLED, CONCURRENCY_CONTROLLED_FINAL, RUNNING, CANCELLED},
            available=True,
            releases_owner=True,
            added=(
                Added(CONCURRENCY_CONTROLLED, "refused when it should be tried again"),
                Added(CONCURRENCY_CONTROLLED_FINAL, "refused when it should be tried again, with rerouting off"),
                _BEGINS,
                _CANCELLED,
            ),
        ),
        StatusDefinition(SUCCESS, final=True, releases_owner=True),
        StatusDefinition(FAILED, final=True, releases_owner=True),
        StatusDefinition(CONCURRENCY_CONTROLLED_FINAL, final=True, releases_owner=True),
        StatusDefinition(CANCELLED, final=True, releases_owner=True, overrides_owner=True),
    ),
)
