"""A pipeline from Kafka through tasks to sinks.

    from tidegate_adapters.pipeline import Output, Pipeline, Result, Task

Read in this order: `values` (tasks and results), `app` (hooks and settings), `hook_calls` (how the
programs of `tidegate.pipeline` are carried out).
"""

from __future__ import annotations

from tidegate.pipeline.effects import OnFailure
from tidegate.pipeline.identity import stable_id
from tidegate.sinks.delivery import Action
from tidegate_adapters.pipeline.app import Pipeline
from tidegate_adapters.pipeline.cache import Cache
from tidegate_adapters.pipeline.executors import Subprocess
from tidegate_adapters.pipeline.values import RETRY, SKIP, FailedOutput, RecordResult, Result, Task, WindowResult
from tidegate_adapters.sinks.outputs import Delete, Insert, Output, Statement, Update, Upsert

__all__ = [
    "RETRY", "SKIP", "Action", "Cache", "Delete", "FailedOutput", "Insert", "OnFailure", "Output", "Pipeline", "RecordResult", "Result",
    "Statement", "Subprocess", "Task", "Update", "Upsert", "WindowResult", "stable_id",
]  # fmt: skip
