"""Handlers for changed documents of MongoDB: each change is handled, and each result counts once.

    from tidegate_adapters.reactive import Change, Reactive

    app = Reactive("mongodb://localhost/?replicaSet=rs0", database="shop")

    @app.task(collection="orders", watch=["total"])
    async def invoice(change: Change) -> None:
        print(change.id, change.values["total"])

    app.run()

Start reading at `app` and `changes` for the API, `planner` for planning, `workers` for execution,
and `office` for operator commands.
"""

from tidegate.reactive.planning.evolution import OnNewVersion
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp, DeleteWhen
from tidegate.reactive.record.snapshot import Computed
from tidegate.retries.backoff import Policy
from tidegate_adapters.reactive.app import Reactive
from tidegate_adapters.reactive.changes import Change, ClaimLost, SyncChange
from tidegate_adapters.runtime.later import Later

__all__ = [
    "Change", "ClaimLost", "CleanUp", "Computed", "Debounce", "DeleteWhen", "Later", "OnNewVersion", "Policy", "Reactive",
    "SyncChange",
]  # fmt: skip
