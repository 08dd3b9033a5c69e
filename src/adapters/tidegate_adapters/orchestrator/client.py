"""An app as a client, without being served.

Tasks without `unique` enqueue in bulk, also in a user's transaction
(`tidegate.invocations.queue.enqueueing`). Tasks with it register each call separately
(`tidegate.invocations.limits.registration`): a waiting invocation may answer it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, final
from uuid import uuid4

import attrs
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from tidegate.invocations.admin.commands import Asked, Asking, Command
from tidegate.invocations.admin.invocation_queries import InvocationPage, InvocationQuery, InvocationRow
from tidegate.invocations.limits.registration import NotRegistered, Registered, Registrar, RegistrationOutcome, Reused
from tidegate.invocations.queue.enqueueing import OF_ANOTHER_TASK, Enqueue, NewInvocation, arguments_name
from tidegate.invocations.queue.fetching import Takeable, Taker
from tidegate.invocations.record.jobs import Job
from tidegate.invocations.upkeep.pruning import Purging
from tidegate.invocations.upkeep.recoverer import Recoverer
from tidegate.invocations.worker.worker import Held
from tidegate.model.documents import Document
from tidegate.model.effects import Failure, Program
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate.model.instants import Duration, Instant, duration
from tidegate.model.operations import FOUND_MAX, INSERTS_MAX, Index, Indexes
from tidegate.model.record_counts import RecordCount
from tidegate.model.values import check_types
from tidegate.services.service_runner import ServiceOutcome
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.outbox_relay import Noticer
from tidegate_adapters.base.crons import next_after
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.mongo.errors import retold
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.handles import SERVED, ArgumentsDiffer, Handle, Results
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.pause import Holding
from tidegate_adapters.orchestrator.services import OWN_QUEUE, PURGE, RECOVERY, Services, Work
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.status import Standing, counts_of, standing_of
from tidegate_adapters.orchestrator.sync_store import SyncStore
from tidegate_adapters.orchestrator.triggers import When
from tidegate_adapters.orchestrator.uploads import Uploads
from tidegate_adapters.runtime.connection import AppStore, check_same_server, check_session, connected_sites
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.driver import choosing, documents, local_async, run_async
from tidegate_adapters.shell.app import App

if TYPE_CHECKING:
    from tidegate_adapters.orchestrator.spans import Spans

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

T = TypeVar("T")


def purging_of(told: OrchestratorSettings, names: Collections) -> Purging:
    def age(kept: timedelta | None) -> Duration | None:
        return None if kept is None else duration(kept)

    return Purging(
        success_age=age(told.keep_finished), other_age=age(told.keep_failed), records=names.invocations, places=names.places,
        calls=names.calls, payloads=names.payloads, meters=names.meters,
    )  # fmt: skip


@final
class Connection:
    """The open resources of an app in one event loop."""

    def __init__(self, stack: AsyncExitStack, site: Site, app: Operations) -> None:
        self.stack, self.site = stack, site
        self.uploads = Uploads(site, app.collections, app.settings.inline_bytes, app.settings.warn_bytes)
        self.results = Results(site, app.collections.invocations, duration(app.settings.result_every))


class Operations(App[OrchestratorSettings, Declared]):
    """Queries and control of an app; it connects at the first request, once per event loop."""

    _TASK = "@app.task()"
    _FOUND = "invocations are"
    _ANOTHER = "an app serves one event loop at a time"
    _LOG = log

    def __init__(self, store: AppStore, settings: OrchestratorSettings, observers: object) -> None:
        super().__init__(store, settings, observers)
        self._open: dict[asyncio.AbstractEventLoop, Connection] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    @property
    def collections(self) -> Collections:
        return Collections(self.settings.prefix)

    @property
    def indexes(self) -> Indexes:
        """The indexes of its collections; the first request creates them."""
        names = self.collections
        made: dict[str, tuple[Index, ...]] = {}
        for each in (
            Taker(runner="any", queues=self.settings.queues, tasks=(Takeable("any"),), records=names.invocations),
            Noticer(conditions=(), records=names.invocations),
            Evaluator(triggers=(), next_after=next_after, runs=names.runs),
            Recoverer(
                me="any",
                dead_after=duration(self.settings.dead_after),
                records=names.invocations,
                members=names.members,
            ),
            self.asking(),
            purging_of(self.settings, names),
        ):
            for name, indexes in each.indexes.items():
                made[name] = (*made.get(name, ()), *(one for one in indexes if one not in made.get(name, ())))
        return made

    async def _opened(self) -> Connection:
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            async with self._opening.setdefault(loop, asyncio.Lock()):
                if loop not in self._open:
                    self._forget_closed()
                    stack, database = AsyncExitStack(), self.settings.database
                    sites = await stack.enter_async_context(connected_sites(self.store, {database: self.indexes}))
                    self._open[loop] = Connection(stack, sites[database], self)
        return self._open[loop]

    def _forget_closed(self) -> None:
        for loop in (*self._opening,):
            if loop.is_closed():
                self._open.pop(loop, None)
                self._opening.pop(loop, None)

    async def close(self) -> None:
        """Disconnect in this event loop; a client passed by the user stays open."""
        if (there := self._open.pop(asyncio.get_running_loop(), None)) is not None:
            await there.results.close()
            await there.stack.aclose()

    # --- queries and commands ---

    async def ask(self, command: Command, query: InvocationQuery) -> Asked:
        """Cancel, kill, hold, release or repeat invocations (`tidegate.invocations.admin.commands`).

        The owner of a running invocation obeys at its next heartbeat.
        """
        return await self.asked(self.asking().ask(command, query))

    def asking(self) -> Asking:
        return Asking(request=uuid4().hex, records=self.collections.invocations)

    async def show(self, key: str) -> InvocationRow | None:
        return await self.asked(self.asking().show(key))

    async def now(self) -> Instant:
        return await (await self._opened()).site.now()

    async def asked(self, program: Program[T]) -> T:
        return await (await self._opened()).site.run(program)

    async def listed(
        self, query: InvocationQuery, *, limit: int = 50, looks: int | None = None, is_timed: bool = False
    ) -> InvocationPage:
        """List invocations, newest first; `looks` limits requests, `is_timed` adds histories."""
        page = InvocationPage(())
        for look in count(1):
            most = min(limit - len(page.rows), FOUND_MAX)
            asking = self.asking().list_rows(query, limit=most, after=page.after, is_timed=is_timed)
            more = await self.asked(asking)
            page = InvocationPage((*page.rows, *more.rows), more.after)
            if not page.after or len(page.rows) == limit or look == looks:
                break
        return page

    async def counts(self) -> tuple[RecordCount, ...]:
        return await self.asked(counts_of(self.collections, tuple(self._declared)))

    async def standing(self) -> Standing:
        there, told = await self._opened(), self.settings
        held = await self._holding(there).held()
        return await there.site.run(
            standing_of(self.collections, self.queues, told.silences, told.services.service, held)
        )

    @property
    def queues(self) -> tuple[str, ...]:
        theirs = (each.queue for each in self._declared.values())
        return (*dict.fromkeys((*self.settings.queues, *theirs, OWN_QUEUE)),)

    @property
    def _mine(self) -> tuple[str, ...]:
        return (*dict.fromkeys((*self.settings.queues, OWN_QUEUE)),)

    async def pause(self, *, tasks: Collection[str] = (), queues: Collection[str] = ()) -> Held:
        """Stop all processes from starting runs of these tasks or queues; current runs continue.

        Returns:
            All current pauses.

        Raises:
            Misuse: The app knows no such task or queue.
            Failure: No answer: the pause is in effect, is not, or will be.
        """
        self._check_known(tasks, queues)
        for name in queues:
            if name not in self.queues:
                raise Misuse(f"there is no queue {shown(name)}", todo=f"there are: {', '.join(self.queues)}")
        return await self._holding(await self._opened()).pause(tasks, queues)

    async def resume(self, *, tasks: Collection[str] = (), queues: Collection[str] = ()) -> Held:
        self._check_known(tasks, queues)
        return await self._holding(await self._opened()).resume(tasks, queues)

    async def held(self) -> Held:
        return await self._holding(await self._opened()).held()

    def _holding(self, there: Connection) -> Holding:
        return Holding(there.site, self.collections.control)

    def _check_known(self, tasks: Collection[str], queues: Collection[str]) -> None:
        check_types(tasks, str, "the name of a task")
        check_types(queues, str, "the name of a queue")
        for name in tasks:
            if name not in {*self._declared, RECOVERY, PURGE}:
                raise Misuse(f"there is no task {shown(name)}", todo=f"there are: {', '.join(self._declared)}")

    async def results(self) -> Results:
        return (await self._opened()).results

    async def uploaded(self, name: str) -> str:
        return await (await self._opened()).uploads.text(name)


class Client(Operations):
    """An app that enqueues and emits; `made_from` is the original of a `configured` one."""

    def __init__(self, store: AppStore, settings: OrchestratorSettings, observers: object) -> None:
        super().__init__(store, settings, observers)
        self._spans: Spans | None = None
        self._triggers: dict[str, tuple[When, ...]] = {}
        self._works: dict[str, Work] = {}
        self._announce: Callable[[Duration], None] | None = None
        """Wakes the local workers for work due in this many microseconds; None while not served."""
        self._sync: SyncStore | None = None
        self.made_from: Client | None = None

    @property
    def in_place(self) -> Client:
        """The served app that `configured` made from this one, or this one."""
        served = each = cast("Client | None", SERVED.get())
        while each is not None and each is not self:
            each = each.made_from
        return self if served is None or each is None else served

    @property
    def triggers(self) -> Mapping[str, tuple[When, ...]]:
        return MappingProxyType(self._triggers)

    async def enqueue_jobs(
        self,
        declared: Declared,
        jobs: Sequence[tuple[str, Job]],
        *,
        due: Instant | Duration = 0,
        session: object = None,
    ) -> list[Handle[Any]]:
        """Create an invocation for each pair of id and job (`Task.enqueue`).

        `due` is the earliest start: an instant, or microseconds from now.
        """
        if session is not None:
            check_session(session, AsyncClientSession)
        there = await self._opened()
        handles: list[Handle[Any]] = []
        for start in range(0, len(jobs), INSERTS_MAX):
            some = jobs[start : start + INSERTS_MAX]
            names = [arguments_name(key, uuid4().hex) for key, _ in some]
            payloads = [
                await there.uploads.kept_arguments(name, job.arguments)
                for name, (_, job) in zip(names, some, strict=True)
            ]
            program = self._enqueued(declared, some, payloads, due, session)
            answers = await (there.site.run(program) if session is None else self._within(session, program))
            if self._announce is not None and session is None:
                self._announce(due if isinstance(due, int) else 0)
            handles += [self._handle_of(declared, each) for each in answers]
        return handles

    def configured(self, settings: OrchestratorSettings) -> Client:
        raise NotImplementedError

    def traceparent(self) -> str | None:
        return None if self._spans is None else self._spans.current()

    async def _within(self, session: object, program: Program[T]) -> T:
        within = AsyncMongo(cast("Any", session).client, self.settings.database, session=cast("Any", session))
        try:
            found = await run_async(program, choosing(documents(within), local_async()))
        except Failure as failure:
            raise retold(failure) from failure
        check_same_server(session, self._client)  # now connected; an error ends the transaction
        return found

    @property
    def _client(self) -> object | None:
        if self._open:
            return next(iter(self._open.values())).site.client
        return self._store if isinstance(self._store, AsyncMongoClient) else None

    def enqueue_job_sync(
        self, declared: Declared, job: Job, *, key: str, due: Instant | Duration = 0, session: object = None
    ) -> Handle[Any]:
        if session is None and (loop := self.other_loop()) is not None:
            making = self.enqueue_jobs(declared, [(key, job)], due=due)
            return asyncio.run_coroutine_threadsafe(making, loop).result()[0]
        if session is not None:
            check_session(session, ClientSession)
        payload = self.sync.kept_arguments(arguments_name(key, uuid4().hex), job.arguments, session)
        (answer,) = self.sync.run(self._enqueued(declared, [(key, job)], [payload], due, session), session)
        if session is not None:
            check_same_server(session, self._client)
        return self._handle_of(declared, answer)

    @property
    def sync(self) -> SyncStore:
        if self._sync is None:
            self._sync = SyncStore(self.settings, self._store, self.indexes)
        return self._sync

    def other_loop(self) -> asyncio.AbstractEventLoop | None:
        """A running event loop in which it is connected, for another thread.

        Misuse if the caller is in an event loop, which a plain function would block.
        """
        try:
            _ = asyncio.get_running_loop()
        except RuntimeError:
            return next((loop for loop in (*self._open,) if loop.is_running()), None)
        raise Misuse(
            "a plain function in an event loop",
            why="it would hold up everything else until the database answers",
            todo="await enqueue() or result(), or call it in a thread",
        )

    async def emit(
        self,
        code: str,
        payload: Mapping[str, object] | None = None,
        *,
        event: str | None = None,
        session: object = None,
    ) -> None:
        """Report an event to the triggers that wait for it (`on_event`).

        If this raises, either all of them received it or none did.

        Args:
            code: The kind of event.
            payload: Its data.
            event: Its id, for idempotent retries; default: a fresh one.
            session: A user's session, whose transaction includes the write.

        Raises:
            Misuse: An argument has the wrong type.
            OperationFailure: With a session: retry its transaction.
            TidegateError: No answer: emit it again with the same id.
        """
        if session is not None:
            check_session(session, AsyncClientSession)
        if self.in_place is not self:
            await self.in_place.emit(code, payload, event=event, session=session)
            return
        context = EventContext(code, uuid4().hex if event is None else event, Document.of(payload or {}))
        services = self._services(await self._opened())
        noted = await (services.emit(context) if session is None else self._within(session, services.emitted(context)))
        for which, why in noted.unknown:
            log.warning("condition %s cannot tell: %s", which[:8], why)
        if not noted.is_kept:
            raise TidegateError(
                f"the event {code} is not kept", why="nobody answered", todo="emit it again, with the same event="
            )

    def _services(
        self,
        there: Connection,
        owner: Callable[[], str | None] = lambda: None,
        told: Callable[[ServiceOutcome], object] = lambda _: None,
    ) -> Services:
        return Services(
            there.site, self.collections, self.settings.services, self._triggers,
            make_job=self._triggered, make_call=lambda job: self._declared[job.task].call(job.arguments),
            registration={name: each.unique.rule for name, each in self._declared.items() if each.unique is not None},
            works=self._works, silences=self.settings.silences,
            owner=owner, told=told, uploaded=there.uploads.text,
        )  # fmt: skip

    def _triggered(self, task: str, arguments: Document) -> Job:
        made = self._declared[task]
        kept = made.kept((), made.values(arguments))
        _ = made.call(kept.arguments)  # checks that the call can be compared
        return Job(
            task=task, arguments=kept.arguments, limited_by=kept.limited_by, rated_by=kept.rated_by, queue=made.queue,
            priority=made.priority, deadline=made.timeout,
        )  # fmt: skip

    async def _enqueued(
        self,
        declared: Declared,
        jobs: Sequence[tuple[str, Job]],
        payloads: Sequence[str | None],
        due: Instant | Duration,
        session: object,
    ) -> tuple[RegistrationOutcome, ...]:
        names = self.collections
        made = [(key, job, _with_payload(job, payload)) for (key, job), payload in zip(jobs, payloads, strict=True)]
        if declared.unique is None:
            wanted = tuple(NewInvocation(key, kept, due) for key, _, kept in made)
            command = Enqueue(
                wanted=wanted, request=uuid4().hex, looks_first=session is not None, records=names.invocations
            )
            return await command.run()
        answers: tuple[RegistrationOutcome, ...] = ()
        for key, job, kept in made:
            registrar = Registrar(
                key=key, call=declared.call(job.arguments), rule=declared.unique.rule, must_agree=declared.unique.must_agree,
                request=key, job=kept, due=due, records=names.invocations, places=names.places, calls=names.calls,
            )  # fmt: skip
            answers = (*answers, await registrar.run())
        return answers

    def _handle_of(self, declared: Declared, answer: RegistrationOutcome) -> Handle[Any]:
        match answer:
            case Registered(key):
                return Handle(key, True, (), declared.result, self)
            case Reused(key, differing):
                log.debug("a call of %s is answered by %s, which is there", declared.name, key)
                return Handle(key, False, differing, declared.result, self)
            case NotRegistered(reason) if answer == OF_ANOTHER_TASK:
                raise Misuse(
                    f"{declared.name} is not enqueued",
                    why=reason,
                    todo="give it another key=, such as one that begins with the name of the task",
                )
            case NotRegistered(reason, differing) if differing:
                raise ArgumentsDiffer(declared.name, reason, differing)
            case NotRegistered(reason):
                todo = "try again" + ("" if declared.unique is not None else ", with the same key=")
                raise TidegateError(f"{declared.name} is not enqueued", why=reason, todo=todo)


def _with_payload(job: Job, payload: str | None) -> Job:
    return job if payload is None else attrs.evolve(job, arguments=Document(), payload=payload)
