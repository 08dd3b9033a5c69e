"""The table of runtimes. Importing it loads none of them."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple, final


@final
class Runtime(NamedTuple):
    """A runtime.

    Attributes:
        name: The name of its class.
        module: The module of that class.
        section: Names its command group and its settings.
        commands: The module with its command functions (`tidegate_adapters.shell.application`).
        examples: Two targets for help texts, by module and by path.
        kinds: The runtimes of its applications, where they are others.
    """

    name: str
    module: str
    section: str
    commands: str
    examples: tuple[str, str]
    kinds: tuple[Runtime, ...] = ()

    @property
    def schema(self) -> str:
        return f"tidegate/{self.section}@1"

    def has(self, value: object) -> bool:
        """Is the value an application of this runtime? Never before its module is loaded."""
        module = sys.modules.get(self.module)
        return module is not None and isinstance(value, getattr(module, self.name))

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


WORKER: Final = Runtime(
    "Worker", "tidegate_adapters.kafka", "worker", "tidegate_adapters.kafka.run", ("shop.orders:worker", "orders.py:worker")
)  # fmt: skip
REACTIVE: Final = Runtime(
    "Reactive", "tidegate_adapters.reactive", "reactive", "tidegate_adapters.reactive.command_line", ("shop.tasks:app", "tasks.py:app")
)  # fmt: skip
ORCHESTRATOR: Final = Runtime(
    "Orchestrator", "tidegate_adapters.orchestrator", "orchestrator", "tidegate_adapters.orchestrator.command_line",
    ("shop.jobs:app", "jobs.py:app"),
)  # fmt: skip
PIPELINE: Final = Runtime(
    "Pipeline", "tidegate_adapters.pipeline", "pipeline", "tidegate_adapters.pipeline.run", ("shop.search:app", "search.py:app")
)  # fmt: skip
RUNTIMES: Final = {each.section: each for each in (WORKER, REACTIVE, ORCHESTRATOR, PIPELINE)}
"""Those with applications of their own."""
DEAD_LETTERS: Final = Runtime(
    "", "", "dead-letters", "tidegate_adapters.pipeline.replay", ("shop.search:app", "orders.py:worker"),
    (WORKER, PIPELINE),
)  # fmt: skip
"""Commands about a worker or a pipeline."""
