"""Triggers start tasks when their conditions hold. The modules decide what fires and fire it once.

In reading order:
    contexts           what happened
    conditions         whether a condition holds of what happened
    trigger            which task starts, with which arguments, and what is registered
    firing             what fires, which pass may fire it, and what may be deleted
    trigger_documents  occurrences, cron cells and runs as documents, and back
    definitions        which triggers exist in any version of the application
    outbox_relay       reads the outbox in invocation records
    evaluator          the programs: notice, evaluate, purge
    leader_duties      what the elected process does during its service window
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.triggers.conditions import (
        Composite,
        Condition,
        OnCron,
        OnEvent,
        OnException,
        OnResult,
        OnStatus,
        holds,
    )
    from tidegate.triggers.contexts import Context, EventContext
    from tidegate.triggers.evaluator import Evaluator
    from tidegate.triggers.firing import TriggerRun
    from tidegate.triggers.leader_duties import Turn
    from tidegate.triggers.outbox_relay import Noticer
    from tidegate.triggers.trigger import Occurrence, Provider, Trigger
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Composite", "Condition", "Context", "Evaluator", "EventContext", "Noticer", "Occurrence", "OnCron",
    "OnEvent", "OnException", "OnResult", "OnStatus", "Provider", "Trigger", "TriggerRun", "Turn", "holds",
]  # fmt: skip
