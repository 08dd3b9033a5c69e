"""What operators ask of an app, and have it do: the desks of all its databases (`tidegate.reactive.desk`) behind one counter.

A task is in one database, and its name says in which; what is asked of all tasks is asked of each database.
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
from tidegate.reactive.deployments import unplanned
from tidegate.reactive.desk import Desk, Retried, Tally
from tidegate.reactive.mongodash_records import Imported, ImportedBefore, MongodashImport, StillWritten
from tidegate.reactive.pausing import PausedTask
from tidegate.reactive.reconciler import HISTORY
from tidegate.reactive.record_queries import Order, Query, RecordPage, RecordRow
from tidegate.reactive.stream_records import position_of
from tidegate.retries.repeating import repeated
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.reactive.declared import Declared
from tidegate_adapters.reactive.sites import KEY, LEASES, STREAMS
from tidegate_adapters.runtime.database import Site

QUIET: Final = timedelta(seconds=15)
"""For how long nothing may have changed of what mongodash has left: it looks every ten seconds at least."""


@final
@attrs.frozen
class Leadership:
    """Who plans the tasks of a database.

    Attributes:
        database: The database.
        holder: Who leads; None where nobody does.
        epoch: Under which; 0 where nobody ever has.
        left: How long, if the lease is not renewed, in microseconds; 0 or less where it should have been renewed by now.
        history: The number of the history of the stream; None before the first.
        reached: Up to when all changes had their look, by the cluster's clock; None where that is not known.
        unplanned: The tasks of the app that nobody plans, for who has led last does not know them.
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
    """Asks the databases of an app.

    Args:
        declared: Its tasks, each where it is.
        application: Its name.
    """

    def __init__(self, declared: Iterable[Declared], application: str = KEY) -> None:
        self._key = application
        there: dict[str, tuple[Site, list[Declared]]] = {}
        for each in declared:
            there.setdefault(each.site.name, (each.site, []))[1].append(each)
        self._desks = [(site, Desk(tasks=tuple(each.task for each in some))) for site, some in there.values()]

    @property
    def databases(self) -> tuple[str, ...]:
        """Where the tasks are."""
        return tuple(site.name for site, _ in self._desks)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for _, desk in self._desks for task in desk.tasks)

    async def now(self) -> Instant:
        """The time, by the store's clock."""
        return await self._desks[0][0].now()

    async def leaderships(self) -> tuple[Leadership, ...]:
        """Who plans in each database, as it is written there."""
        asked = [(site, tuple(sorted(_names(desk)))) for site, desk in self._desks]
        return tuple([await site.run(_leadership(site.name, self._key, names)) for site, names in asked])

    async def tallies(self, query: Query, databases: Collection[str] | None = None) -> tuple[Tally, ...]:
        """How many records stand where, for each database (`Desk.count`), or for these."""
        asked = [each for each in self._asked(query) if databases is None or each[0].name in databases]
        return tuple([await site.run(desk.count(part)) for site, desk, part in asked])

    async def listed(
        self, query: Query, *, order: Order, limit: int, looks: int | None = None
    ) -> tuple[RecordPage, ...]:
        """Records, for each database so many at most (`Desk.list_records`).

        Args:
            query: Which.
            order: In which order.
            limit: How many at most.
            looks: In how many requests at most; None for as many as it takes.
        """
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
        """The record of a document, with all that it holds (`Desk.find`)."""
        ((site, desk, _),) = self._asked(Query(tasks=(task,)))
        return await site.run(desk.find(task, document))

    async def retry(self, query: Query) -> Retried:
        """Have records run again (`Desk.retry`)."""
        retried = Retried()
        for site, desk, part in self._asked(query):
            retried += await site.run(desk.retry(part))
        return retried

    async def pause(self, names: Sequence[str]) -> None:
        """Have no handler of these tasks begin, in any process (`Desk.pause`)."""
        for site, desk, part in self._asked(Query(tasks=tuple(names))):
            await site.run(desk.pause(*part.tasks))

    async def resume(self, names: Sequence[str]) -> None:
        """Have handlers of these tasks begin again (`Desk.resume`)."""
        for site, desk, part in self._asked(Query(tasks=tuple(names))):
            await site.run(desk.resume(*part.tasks))

    async def paused(self) -> tuple[PausedTask, ...]:
        """Which tasks of the app are paused."""
        found = [({each.name for each in desk.tasks}, await site.run(desk.paused())) for site, desk in self._desks]
        return tuple(each for names, some in found for each in some if each.task in names)

    async def take_over(
        self, task: str, theirs: str, *, named: str | None = None, quiet: timedelta = QUIET, is_dry: bool = False
    ) -> Imported | ImportedBefore | StillWritten:
        """Take the records over that mongodash has left of a task (`MongodashImport.take_over`).

        Args:
            task: The name of the task here.
            theirs: Their collection, in the same database.
            named: The name of the task there; None for the same.
            quiet: For how long nothing may have changed there.
            is_dry: Look, and write nothing.
        """
        ((site, desk, _),) = self._asked(Query(tasks=(task,)))
        ours = next(each for each in desk.tasks if each.name == task)
        program = MongodashImport(task=ours, theirs=theirs, named=named or task, quiet=length_of(quiet, "quiet", 0))
        return await site.run(program.take_over(is_dry=is_dry))

    def _asked(self, query: Query) -> list[tuple[Site, Desk, Query]]:
        """What each database is asked: it knows no tasks but its own.

        Raises:
            Misuse: There is no such task.
        """
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
    """Who plans these tasks there, as the lease and the record of the stream say."""
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
