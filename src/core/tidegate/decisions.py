"""The decisions that a service embeds; `from tidegate import ...` has them, too.

Each is a pure function of values. A value never changes: keep what a function returns.

    question                                        functions
    Up to which offset may be committed?            track_delivered, track_completed,
        offset_to_commit, track_committed
    Pause, resume, or go on fetching?               decide_backpressure, plan_backpressure
    May this process run the service now?           decide_atomic_service_claim
    May this record enter that status?              decide_status_transition
    Has a watched field changed?                    take_snapshot, diff_snapshots
"""

from tidegate.consumer.flow.backpressure import Gate, Thresholds
from tidegate.consumer.flow.backpressure import decide as decide_backpressure
from tidegate.consumer.flow.backpressure import plan as plan_backpressure
from tidegate.consumer.offsets.watermark import OffsetTracker
from tidegate.consumer.offsets.watermark import acknowledged as track_committed
from tidegate.consumer.offsets.watermark import committable as offset_to_commit
from tidegate.consumer.offsets.watermark import completed as track_completed
from tidegate.consumer.offsets.watermark import delivered as track_delivered
from tidegate.invocations.record.status import Accepted, StatusDefinition, StatusRecord, StatusTable
from tidegate.invocations.record.status import decide_transition as decide_status_transition
from tidegate.model.documents import Document
from tidegate.reactive.record.snapshot import Changed, Projection
from tidegate.reactive.record.snapshot import changed as diff_snapshots
from tidegate.reactive.record.snapshot import snapshot as take_snapshot
from tidegate.services.atomic_service import Assigned, AtomicService, Runner, decide_atomic_service_claim

__all__ = [
    "Accepted", "Assigned", "AtomicService", "Changed", "Document", "Gate", "OffsetTracker", "Projection", "Runner", "StatusDefinition", "StatusRecord",
    "StatusTable", "Thresholds", "decide_atomic_service_claim", "decide_backpressure", "decide_status_transition",
    "diff_snapshots", "offset_to_commit", "plan_backpressure", "take_snapshot", "track_committed", "track_completed",
    "track_delivered",
]  # fmt: skip
