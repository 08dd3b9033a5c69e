"""Services that run on one of several runners at a time: membership, slots, and the history of
runs.

In reading order:
    membership        which members are alive, and in which order
    atomic_service    which runner may start: slots of a cycle, from the list of living runners
    retention         which rows of a history to delete
    executions        the gate behind the slots, the history beside it, and the margin of a run
    members           membership on a document store: how a process joins, beats and leaves
    service_runner    the program of a runner, made of all of these
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.services.atomic_service import Assigned, AtomicService, Runner, Window, decide_atomic_service_claim
    from tidegate.services.executions import Execution, Gate
    from tidegate.services.members import beat, join, leave
    from tidegate.services.membership import Liveness, Member, Membership, runners
    from tidegate.services.retention import Retention, surplus
    from tidegate.services.service_runner import ServiceRunner
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Assigned", "AtomicService", "Execution", "Gate", "Liveness", "Member", "Membership", "Retention", "Runner",
    "ServiceRunner", "Window", "beat", "decide_atomic_service_claim", "join", "leave", "runners", "surplus",
]  # fmt: skip
