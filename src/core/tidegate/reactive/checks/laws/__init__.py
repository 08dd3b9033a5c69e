"""The laws of `tidegate.reactive` as predicates, one module a subject."""

from tidegate.reactive.checks.laws import (
    change_stream,
    debounce,
    deployments,
    desk,
    evolution,
    orphans,
    plan_queries,
    reactive_task,
    reconciliation,
    snapshot,
    sweeper,
    tasks,
)

__all__ = [
    "change_stream", "debounce", "deployments", "desk", "evolution", "orphans", "plan_queries", "reactive_task", "reconciliation", "snapshot",
    "sweeper", "tasks",
]  # fmt: skip
