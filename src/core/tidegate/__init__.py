"""tidegate: the coordination of services on Kafka and MongoDB as values that can be model-checked.

The packages, lowest first; the docstring of each lists its modules in reading order:

    model        values, documents, effects, programs and reducers: the vocabulary
    retries      back-off, safe repetition, polling, schedules
    transactions  several documents changed together, once or not at all
    counters     a counter kept in two steps, and its sweep
    payloads     large payloads in chunks
    leases       leases with fencing tokens, leader election, a small lock
    work         a process that runs handlers: polling, slots, leases or heartbeats
    services     membership of runners, atomic services, executions, retention
    invocations  statuses of invocations, transitions, admission, recovery
    triggers     conditions, and the invocations that they start
    reactive     tasks on change streams: snapshots, debouncing, reconciliation
    consumer     a partition of a log and a consumer of a group
    sinks        delivery, circuit breakers, outbox, dead letters
    sim          the simulator

`tidegate.catalogue` has every scenario and specimen, `tidegate.laws` the laws,
`tidegate.exit_codes` the exit codes of the command. For tests: `tidegate.testing`,
`tidegate.strategies` and `tidegate.conformance`. `tidegate_adapters` does all I/O. The decisions
that a service embeds (`tidegate.decisions`) can be imported from here; they load on first use.
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy
from tidegate._version import __version__

if TYPE_CHECKING:
    from tidegate.decisions import (
        Accepted,
        Assigned,
        AtomicService,
        Changed,
        Document,
        Gate,
        OffsetTracker,
        Projection,
        Runner,
        StatusDefinition,
        StatusRecord,
        StatusTable,
        Thresholds,
        decide_atomic_service_claim,
        decide_backpressure,
        decide_status_transition,
        diff_snapshots,
        offset_to_commit,
        plan_backpressure,
        take_snapshot,
        track_committed,
        track_completed,
        track_delivered,
    )
    from tidegate.exit_codes import ExitCode
    from tidegate.model.errors import Misuse, TidegateError
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Accepted", "Assigned", "AtomicService", "Changed", "Document", "ExitCode", "Gate", "Misuse", "OffsetTracker", "Projection",
    "Runner", "StatusDefinition", "StatusRecord", "StatusTable", "Thresholds", "TidegateError", "__version__", "decide_atomic_service_claim",
    "decide_backpressure", "decide_status_transition", "diff_snapshots", "offset_to_commit", "plan_backpressure",
    "take_snapshot", "track_committed", "track_completed", "track_delivered",
]  # fmt: skip
