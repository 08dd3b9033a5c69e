"""Tasks that follow documents: they run when a watched field changes, and no change is lost.

The packages, lowest first, with their modules in reading order:
    record    snapshot (has a watched field changed?), debounce, task_records, tasks (planned,
              claimed, run, finished), orphans, task_documents, record_queries, timeline
    task      plan_queries, fetching, completion, reactive_task (the programs of a task), worker
              (reactive tasks on `tidegate.work`)
    planning  change_stream (changes and the resume token), stream_records, reconciliation,
              reconciler, garbage_collection, evolution, deployments
    admin     pausing, commands (commands of operators), mongodash_records (their import)
    checks    laws, scenarios, specimens, strategies
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.reactive.admin.commands import Desk
    from tidegate.reactive.admin.pausing import Pausing
    from tidegate.reactive.planning.change_stream import ChangeStreamConsumer
    from tidegate.reactive.planning.deployments import Deployment
    from tidegate.reactive.planning.evolution import EvolutionPolicy, OnNewVersion
    from tidegate.reactive.planning.garbage_collection import Sweeper
    from tidegate.reactive.planning.reconciler import Reconciler
    from tidegate.reactive.record.debounce import Debounce, due
    from tidegate.reactive.record.orphans import CleanUp, DeleteWhen
    from tidegate.reactive.record.snapshot import Changed, Computed, Projection, changed, snapshot
    from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
    from tidegate.reactive.record.tasks import Failed, Succeeded, TaskRules, claim, finalise, plan
    from tidegate.reactive.task.reactive_task import ReactiveTask
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "ChangeStreamConsumer", "Changed", "CleanUp", "Computed", "Debounce", "DeleteWhen", "Deployment", "Desk",
    "EvolutionPolicy", "Failed", "OnNewVersion", "Pausing", "Projection", "ReactiveTask", "Reconciler",
    "Succeeded", "Sweeper", "TaskRecord", "TaskRules", "TaskStatus", "changed", "claim", "due", "finalise",
    "plan", "snapshot",
]  # fmt: skip
