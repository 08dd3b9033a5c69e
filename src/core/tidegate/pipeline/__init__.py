"""From records through tasks to sinks: what follows each request of a partition.

In reading order: `effects` (hooks, outputs, rules, and the effects of programs), `programs` (one
for each request), `tasks` and `identity` (ids of tasks, keys of outputs).

Records come and are committed as `tidegate.consumer` says; windows, tasks and retries are those
of
`tidegate.consumer.fanout`; a sink is tried as `tidegate.sinks.outbox` says.
"""

from typing import TYPE_CHECKING

from tidegate._lazy import lazy

if TYPE_CHECKING:
    from tidegate.pipeline.effects import Hook, OnFailure, Output, PipelineRules, TaskSpec
    from tidegate.pipeline.identity import output_key, stable_id
    from tidegate.pipeline.programs import events_for, program_for
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Hook", "OnFailure", "Output", "PipelineRules", "TaskSpec", "events_for", "output_key", "program_for",
    "stable_id",
]  # fmt: skip
