"""A process that runs handlers: polling, slots, claims, results and shutdown.

In reading order:
    worker      the reducer, and its laws
    vocabulary  rules, runs, and commands
    events      replies to commands, and other events
    state       the state
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.work.events import HandlersEnded, PollCompleted, StopRequested, TimerFired
    from tidegate.work.state import WorkerState
    from tidegate.work.vocabulary import ByLease, ByLife, Queue, Result, ResultRules, Run, WorkerRules
    from tidegate.work.worker import Worker
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "ByLease", "ByLife", "HandlersEnded", "PollCompleted", "Queue", "Result", "ResultRules", "Run",
    "StopRequested", "TimerFired", "Worker", "WorkerRules", "WorkerState",
]  # fmt: skip
