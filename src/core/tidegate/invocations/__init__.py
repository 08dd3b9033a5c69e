"""Invocations of tasks: their statuses and owners, admission to run, and recovery of stuck ones.

The packages, lowest first, with their modules in reading order:
    record  status (the table of statuses decides a transition), invocation (that of pynenc),
            diagrams, record_documents, jobs, transition (read, decide, one compare-and-set),
            array_push_lock
    limits  admission (which calls exclude each other), slot_documents, slots, slot_acquisition,
            rate_limit, rate_limiting, registration
    queue   enqueueing, fetching (claims of due invocations), bulk_transition, completion, results
    admin   invocation_queries, commands (of operators)
    upkeep  recovery (what is stuck), recoverer, pruning
    worker  worker (invocations on `tidegate.work`), heartbeat
    checks  laws, scenarios, specimens, strategies
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.invocations.admin.commands import Asking, Command
    from tidegate.invocations.limits.admission import Call, Rule, decide_registration, decide_running
    from tidegate.invocations.limits.rate_limit import Rate, decide_rate
    from tidegate.invocations.limits.registration import Registrar
    from tidegate.invocations.limits.slot_acquisition import Picker
    from tidegate.invocations.queue.completion import Ending, Failed, Succeeded
    from tidegate.invocations.queue.enqueueing import Enqueue, NewInvocation
    from tidegate.invocations.queue.fetching import Taker
    from tidegate.invocations.queue.results import Waiting
    from tidegate.invocations.record.array_push_lock import ArrayPushLock
    from tidegate.invocations.record.invocation import INVOCATION
    from tidegate.invocations.record.jobs import Job
    from tidegate.invocations.record.status import (
        Accepted,
        StatusDefinition,
        StatusRecord,
        StatusTable,
        decide_transition,
    )
    from tidegate.invocations.record.transition import Granted, Transition, transition
    from tidegate.invocations.upkeep.pruning import Purging
    from tidegate.invocations.upkeep.recoverer import Recoverer
    from tidegate.invocations.upkeep.recovery import decide_recovery
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "INVOCATION", "Accepted", "ArrayPushLock", "Asking", "Call", "Command", "Ending", "Enqueue", "Failed",
    "Granted", "Job", "NewInvocation", "Picker", "Purging", "Rate", "Recoverer", "Registrar", "Rule",
    "StatusDefinition", "StatusRecord", "StatusTable", "Succeeded", "Taker", "Transition", "Waiting",
    "decide_rate", "decide_recovery", "decide_registration", "decide_running", "decide_transition", "transition",
]  # fmt: skip
