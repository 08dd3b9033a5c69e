"""One consumer of a group and its partitions: what to commit, what to work on next, and how to stop.

The packages, lowest first, with their modules in reading order:
    offsets     watermark (which offset may be committed), explanation (which record blocks it), kept
    flow        backpressure (when to pause fetching), drain, offset_reset (where a partition
                begins), partition_pause
    fanout      when a record, and when a window, is settled
    protocol    commands (the commands and events of a partition), batching
    committing  commit_metadata (offsets done beyond the position), commits, commit_pacing,
                commit_answers
    partition   ready_queue, in_flight_records, pending_requests, in_flight_windows,
                partition_settings, partition_state, partition (from assignment to release)
    worker      consumer (all partitions), transactions (exactly once), leaked_handlers, worker
                (stops on request), health
    checks      laws, scenarios, specimens, strategies

A worker has a consumer, and a consumer has partitions; each passes events down to the next. The
group, which assigns partitions, is the broker's; `tidegate.sim.servers.group` simulates it.
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.consumer.committing.commit_metadata import decoded, encoded
    from tidegate.consumer.fanout import Fanout
    from tidegate.consumer.flow.backpressure import Gate, PartitionLimits, Thresholds
    from tidegate.consumer.offsets.explanation import explain, lag
    from tidegate.consumer.offsets.watermark import OffsetTracker, acknowledged, committable, completed, delivered
    from tidegate.consumer.partition.partition import FailurePolicy, Ordering, Owned, PartitionRules, PartitionState
    from tidegate.consumer.protocol.commands import Assigned, Commit, Fetch, Fetched, Handle, Lost, Revoked, Work
    from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
    from tidegate.consumer.worker.health import Health
    from tidegate.consumer.worker.worker import StopRequested, WorkerRules, WorkerState
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Assigned", "Commit", "ConsumerRules", "ConsumerState", "FailurePolicy", "Fanout", "Fetch", "Fetched", "Gate",
    "Handle", "Health", "Lost", "OffsetTracker", "Ordering", "Owned", "PartitionLimits", "PartitionRules",
    "PartitionState", "Revoked", "StopRequested", "Thresholds", "Work", "WorkerRules", "WorkerState",
    "acknowledged", "committable", "completed", "decoded", "delivered", "encoded", "explain", "lag",
]  # fmt: skip
