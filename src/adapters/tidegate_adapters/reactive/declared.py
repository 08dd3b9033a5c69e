"""The options of a task, checked at declaration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import FILTERS, Filter, OlderThan, filter_of, parts_of
from tidegate.model.errors import Misuse, TidegateError, shown, typed
from tidegate.model.instants import MILLISECOND, Duration
from tidegate.model.operations import check_collection
from tidegate.model.values import check_int, check_type
from tidegate.reactive.planning.evolution import EvolutionPolicy, OnNewVersion
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.tasks import TaskRules
from tidegate.reactive.task.fetching import BEHIND
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.backoff import Backoff, Policy
from tidegate.retries.polling import PollingBounds
from tidegate.work.vocabulary import Queue
from tidegate_adapters.base.decorators import (
    check_called_with_one,
    check_database,
    check_task_name,
    check_unit,
    is_async_handler,
    length_of,
    place_of,
    policy_of,
    timeout_of,
)
from tidegate_adapters.reactive.changes import Change, SyncChange
from tidegate_adapters.runtime.database import Site

UserHandler: TypeAlias = Callable[[Change], Awaitable[None]] | Callable[[SyncChange], None]
"""An async handler gets a `Change`; a plain one a `SyncChange`. It returns None or raises
`Later`.
"""
Watch: TypeAlias = Sequence[str] | Mapping[str, object] | None
"""Field paths; or a mapping of paths to 1 or `snapshot.Computed`; None for the whole document."""
Where: TypeAlias = Filter | Mapping[str, object] | None
"""A filter, also in MongoDB's syntax; None for all documents."""

LEASE: Final = timedelta(minutes=1)
HISTORY: Final = TaskRules().history_max
CLEAN_UP: Final = CleanUp()
_LEASE_LEAST: Final[Duration] = 100 * MILLISECOND


@final
@attrs.frozen
class Declared:
    """A task and its handler.

    Attributes:
        is_async: Plain functions run in threads.
        evolution: The meaning of changes of its definition.
        timeout: In microseconds; None for no limit.
        database: None for that of the app.
    """

    task: ReactiveTask
    handler: UserHandler = attrs.field(eq=id)
    is_async: bool
    evolution: EvolutionPolicy
    version: int
    timeout: Duration | None
    database: str | None = None
    _site: Site | None = None

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def site(self) -> Site:
        if self._site is None:
            raise Misuse(f"the task {self.name!r} is nowhere yet", why="its app has not connected")
        return self._site

    def at(self, site: Site) -> Declared:
        return attrs.evolve(self, site=site)

    def queue(self, polling: PollingBounds) -> Queue:
        group = f"{self.site.name}.{self.task.records}"
        return Queue(name=self.name, lease=self.task.rules.lease - BEHIND, polling=polling, group=group)


def declared(
    handler: UserHandler,
    *,
    collection: str,
    watch: Watch = None,
    where: Where = None,
    debounce: timedelta | Debounce = timedelta(seconds=1),
    retries: int | Policy | None = None,
    backoff: Backoff | timedelta | None = None,
    resets_on_change: bool = True,
    lease: timedelta = LEASE,
    timeout: timedelta | None = None,
    version: int = 1,
    on_new_version: OnNewVersion = OnNewVersion.NOTHING,
    reconciles: bool = True,
    history: int = HISTORY,
    cleanup: CleanUp = CLEAN_UP,
    database: str | None = None,
    name: str | None = None,
) -> Declared:
    """The task of a handler with these options, which it checks; see `Reactive.task`."""
    found = name if name is not None else getattr(handler, "__name__", "")
    is_async = is_async_handler(handler, found, "decorate a function of one change")
    check_called_with_one(handler, found, "one change", "change")
    try:
        check_task_name(found)
        check_type(on_new_version, OnNewVersion, "on_new_version")
        check_type(cleanup, CleanUp, "cleanup", "pass CleanUp(delete_when=..., keep_for=timedelta(...))")
        check_unit(cleanup, "cleanup")
        check_int(version, "version", 1)
        if database is not None:
            check_database(database)
        check_collection(collection)
        rules = TaskRules(
            debounce=_debounce(debounce), lease=length_of(lease, "lease", _LEASE_LEAST), resets_on_change=resets_on_change,
            history_max=history,
        )  # fmt: skip
        task = ReactiveTask(
            name=found, source=collection, watched=_watched(watch), where=_filter(where), rules=rules,
            policy=policy_of(retries, backoff), cleaning=cleanup,
        )  # fmt: skip
        _ = task.indexes
        return Declared(
            task, handler, is_async, EvolutionPolicy(on_new_version=on_new_version, reconciles=reconciles), version,
            timeout_of(timeout, is_async=is_async), database,
        )  # fmt: skip
    except TidegateError as error:
        error.where = ", ".join(filter(None, (f"the task {found!r}", place_of(handler), error.where)))
        raise


def _debounce(debounce: object) -> Debounce:
    if not isinstance(debounce, Debounce):
        return Debounce(length_of(debounce, "debounce", 0))
    check_unit(debounce, "debounce")
    return debounce


def _watched(watch: object) -> Projection:
    match watch:
        case None:
            return Projection()
        case str():
            raise Misuse(f"watch={shown(watch)} is one text", todo=f"write watch=[{shown(watch)}]")
        case Mapping():
            return Projection.of(watch)
        case Sequence():
            return Projection(tuple(watch))
        case _:
            raise Misuse(f"{typed(watch)} is nothing to watch", todo='write watch=["total", "address.city"]')


def _filter(where: Where) -> Filter | None:
    found = filter_of(where) if isinstance(where, Mapping) else where
    if found is None:
        return None
    check_type(found, FILTERS, "a filter", 'write where={"status": "paid"}')
    if any(isinstance(part, OlderThan) for part in parts_of(found)):
        raise Misuse(
            "where= asks how old something is",
            why="no change reports when that becomes true",
            todo="let the handler raise Later until it is",
        )
    return found
