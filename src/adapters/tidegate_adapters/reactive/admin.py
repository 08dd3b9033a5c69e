"""Operator commands for an app, over all its databases (`tidegate.reactive.admin.commands`).

The name of a task determines its database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from itertools import count
from typing import Final, final

import attrs

from tidegate.leases.leader import lease_of
from tidegate.model.documents import ID, Eq, Value
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, find_one
from tidegate.model.reading import needed
from tidegate.reactive.admin.commands import Desk, Retried, Tally
from tidegate.reactive.admin.mongodash_records import Imported, ImportedBefore, MongodashImport, StillWritten
from tidegate.reactive.admin.pausing import PausedTask
from tidegate.reactive.planning.deployments import unplanned
from tidegate.reactive.planning.reconciler import HISTORY
from tidegate.reactive.planning.stream_records import position_of
from tidegate.reactive.record.record_queries import Order, Query, RecordPage, RecordRow
from tidegate.retries.idempotent import repeated
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.reactive.declared import Declared
from tidegate_adapters.reactive.names import KEY, LEASES, STREAMS
from tidegate_adapters.runtime.database import Site

QUIET: Final = timedelta(seconds=15)
"""How long mongodash must have written nothing: it polls at least every ten seconds."""


@final
@attrs.frozen
class Leadership:
    """The leadership of a database.

    Attributes:
        epoch: 0 before the first leader.
        left: The rest of the lease in microseconds; at most 0 if renewal is late.
        history: The number of the stream's history; None before the first.
        reached: All changes before this cluster time are planned; None if unknown.
        unplanned: Tasks of the app that the last leader does not know.
    """

    database: str
    holder: str | None = None
    epoch: int = 0
    left: Duration = 0
    history: int | None = None
    reached: Instant | None = None
    unplanned: tuple[str, ...] = ()


@final
class Office:
    """Queries and controls the databases of an app."""

    def __init__(self, declared: Iterable[Declared], application: str = KEY) -> None:
        self._key = application
        there: dict[str, tuple[Site, list[Declared]]] = {}
        for each in declared:
            there.setdefault(each.site.name, (each.site, []))[1].append(each)
        self._desks = [(site, Desk(tasks=tuple(each.task for each in some))) for site, some in there.values()]

    @property
    def databases(self) -> tuple[str, ...]:
        return tuple(site.name for site, _ in self._desks)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(task.name for _, desk in self._desks for task in desk.tasks)

    async def now(self) -> Instant:
        return await self._desks[0][0].now()

    async def leaderships(self) -> tuple[Leadership, ...]:
        asked = [(site, tuple(sorted(_names(desk)))) for site, desk in self._desks]
        return tuple([await site.run(_leadership(site.name, self._key, names)) for site, names in asked])

    async def tallies(self, query: Query, databases: Collection[str] | None = None) -> tuple[Tally, ...]:
        asked = [each for each in self._asked(query) if databases is None or each[0].name in databases]
        return tuple([await site.run(desk.count(part)) for site, desk, part in asked])

    async def listed(
        self, query: Query, *, order: Order, limit: int, looks: int | None = None
    ) -> tuple[RecordPage, ...]:
        """See `Desk.list_records`; `limit` is per database, `looks` the most requests."""
        pages = []
        for site, desk, part in self._asked(query):
            page = RecordPage(())
            for look in count(1):
                most = min(limit - len(page.rows), FOUND_MAX)
                more = await site.run(desk.list_records(part, order=order, limit=most, after=page.after))
                page = RecordPage((*page.rows, *more.rows), more.after)
                if not page.after or len(page.rows) == limit or look == looks:
                    break
            pages.append(page)
        return tuple(pages)

    async def find(self, task: str, document: Value) -> RecordRow | None:
        ((site, desk, _),) = self._asked(Query(tasks=(task,)))
        return await site.run(desk.find(task, document))

    async def retry(self, query: Query) -> Retried:
        retried = Retried()
        for site, desk, part in self._asked(query):
            retried += await site.run(desk.retry(part))
        return retried

    async def pause(self, names: Sequence[str]) -> None:
        for site, desk, part in self._asked(Query(tasks=tuple(names))):
            await site.run(desk.pause(*part.tasks))

    async def resume(self, names: Sequence[str]) -> None:
        for site, desk, part in self._asked(Query(tasks=tuple(names))):
            await site.run(desk.resume(*part.tasks))

    async def paused(self) -> tuple[PausedTask, ...]:
        found = [({each.name for each in desk.tasks}, await site.run(desk.paused())) for site, desk in self._desks]
        return tuple(each for names, some in found for each in some if each.task in names)

    async def take_over(
        self, task: str, theirs: str, *, named: str | None = None, quiet: timedelta = QUIET, is_dry: bool = False
    ) -> Imported | ImportedBefore | StillWritten:
        """Import the records of a task from mongodash (`MongodashImport.take_over`).

        `theirs` is their collection, `named` the task's name there; it must have been unchanged for
        `quiet`.
        """
        ((site, desk, _),) = self._asked(Query(tasks=(task,)))
        ours = next(each for each in desk.tasks if each.name == task)
        program = MongodashImport(task=ours, theirs=theirs, named=named or task, quiet=length_of(quiet, "quiet", 0))
        return await site.run(program.take_over(is_dry=is_dry))

    def _asked(self, query: Query) -> list[tuple[Site, Desk, Query]]:
        """Split a query by database, restricted to its tasks."""
        for name in query.tasks:
            if name not in self.tasks:
                raise Misuse(f"there is no task {shown(name)}", todo=f"there are: {', '.join(self.tasks)}")
        if not query.tasks:
            return [(site, desk, query) for site, desk in self._desks]
        parts = [
            (site, desk, tuple(name for name in query.tasks if name in _names(desk))) for site, desk in self._desks
        ]
        return [(site, desk, attrs.evolve(query, tasks=names)) for site, desk, names in parts if names]


def _names(desk: Desk) -> set[str]:
    return {task.name for task in desk.tasks}


@repeated
async def _leadership(database: str, key: str, names: tuple[str, ...]) -> Leadership:
    lease = lease_of(await find_one(LEASES, Eq(ID, key)))
    stream = await find_one(STREAMS, Eq(ID, key))
    now = await StoreTime()
    position = None if stream is None else position_of(stream)
    found = Leadership(
        database,
        history=None if stream is None else needed(stream, HISTORY),
        reached=None if position is None else ChangeStream.reached(position),
        unplanned=unplanned(stream, names),
    )
    if lease is None or lease.holder is None or lease.stamp is None:
        return attrs.evolve(found, epoch=0 if lease is None else lease.token)
    return attrs.evolve(found, holder=lease.holder, epoch=lease.token, left=lease.stamp + lease.ttl - now)
