"""Tasks that follow documents, on a real MongoDB: a handler for every changed document, once, whatever happens.

    from tidegate_adapters.reactive import Change, Reactive

    app = Reactive("mongodb://localhost/?replicaSet=rs0", database="shop")

    @app.task(collection="orders", watch=["total"])
    async def invoice(change: Change) -> None:
        print(change.id, change.values["total"])

    app.run()

Modules, in reading order
    settings    what an app is told that is not code
    sites       a database, and what carries out what is asked of it
    changes     what a handler is given
    declared    what the decorator is told of a task, checked
    planner     who leads, follows the changes, and writes down which handlers are to run
    workers     the pool: takes what is due, calls the handlers, writes down what they came to
    office      what operators ask of all its databases, and have them do
    ids, words  ids, times and counts as people write and read them
    page        what operators see, and do, while it is served
    tallies, metrics, monitor   what has happened, for Prometheus, and how it is
    app         the app, from without
    running, command_line   `tidegate reactive ...`
"""

from tidegate.reactive.debounce import Debounce
from tidegate.reactive.evolution import OnNewVersion
from tidegate.reactive.orphans import CleanUp, DeleteWhen
from tidegate.reactive.snapshot import Computed
from tidegate.retries.backoff import Policy
from tidegate_adapters.reactive.app import Reactive
from tidegate_adapters.reactive.changes import Change, ClaimLost, SyncChange
from tidegate_adapters.runtime.later import Later

__all__ = [
    "Change", "ClaimLost", "CleanUp", "Computed", "Debounce", "DeleteWhen", "Later", "OnNewVersion", "Policy", "Reactive",
    "SyncChange",
]  # fmt: skip
