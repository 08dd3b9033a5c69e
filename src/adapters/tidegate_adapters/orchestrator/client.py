"""An app as a client: it connects, queries and controls invocations, enqueues them and emits events. It need not be served for that.

Of a task without `unique` many become invocations in one request, in a transaction of the user's, too
(`tidegate.invocations.enqueueing`). Of one with it each is asked for by itself (`tidegate.invocations.registration`): one that waits
already answers.
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

from tidegate.invocations.asking import Asked, Asking, Command
from tidegate.invocations.enqueueing import OF_ANOTHER_TASK, Enqueue, NewInvocation, arguments_name
from tidegate.invocations.invocation_queries import InvocationPage, InvocationQuery, InvocationRow
from tidegate.invocations.jobs import Job
from tidegate.invocations.purging import Purging
from tidegate.invocations.recoverer import Recoverer
from tidegate.invocations.registration import NotRegistered, Registered, Registrar, RegistrationOutcome, Reused
from tidegate.invocations.taking import Takeable, Taker
from tidegate.invocations.worker import Held
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
from tidegate.triggers.noticing import Noticer
from tidegate_adapters.base.crons import next_after
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.mongo.errors import retold
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.handles import SERVED, ArgumentsDiffer, Handle, Results
from tidegate_adapters.orchestrator.holding import Holding
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.services import OWN_QUEUE, PURGE, RECOVERY, Services, Work
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.standing import Standing, counts_of, standing_of
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
    """The program that removes invocations which ended long enough ago."""

    def age(kept: timedelta | None) -> Duration | None:
        return None if kept is None else duration(kept)

    return Purging(
        success_age=age(told.keep_finished), other_age=age(told.keep_failed), records=names.invocations, places=names.places,
        calls=names.calls, payloads=names.payloads, meters=names.meters,
    )  # fmt: skip


@final
class Connection:
    """What an app has while it is connected in an event loop."""

    def __init__(self, stack: AsyncExitStack, site: Site, app: Operations) -> None:
        self.stack, self.site = stack, site
        self.uploads = Uploads(site, app.collections, app.settings.inline_bytes, app.settings.warn_bytes)
        self.results = Results(site, app.collections.invocations, duration(app.settings.result_every))


class Operations(App[OrchestratorSettings, Declared]):
    """An app that queries and controls its invocations, tasks, queues and processes.

    It connects at the first request, once in each event loop.
    """

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
        """Where its parts are."""
        return Collections(self.settings.prefix)

    @property
    def indexes(self) -> Indexes:
        """The indexes that its collections need; they are made when something is first asked of them."""
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
        """Where it has connected, in this event loop; it connects if need be."""
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
        """What was connected in event loops that have ended went with them."""
        for loop in (*self._opening,):
            if loop.is_closed():
                self._open.pop(loop, None)
                self._opening.pop(loop, None)

    async def close(self) -> None:
        """Disconnect, in this event loop; a client of yours stays open."""
        if (there := self._open.pop(asyncio.get_running_loop(), None)) is not None:
            await there.results.close()
            await there.stack.aclose()

    # --- asking ---

    async def ask(self, command: Command, query: InvocationQuery) -> Asked:
        """Cancel, kill, hold, release or repeat invocations (`tidegate.invocations.asking`).

        Args:
            command: What.
            query: Of which.

        Returns:
            What became of them; of what runs its runner is told, which obeys with its next beat.
        """
        return await self.asked(self.asking().ask(command, query))

    def asking(self) -> Asking:
        """A command of an operator, to be asked once."""
        return Asking(request=uuid4().hex, records=self.collections.invocations)

    async def show(self, key: str) -> InvocationRow | None:
        """An invocation with all that its record holds; None where there is none."""
        return await self.asked(self.asking().show(key))

    async def now(self) -> Instant:
        """The time, by the store's clock."""
        return await (await self._opened()).site.now()

    async def asked(self, program: Program[T]) -> T:
        """What a program on its database comes to.

        Raises:
            Failure: Nobody answers.
        """
        return await (await self._opened()).site.run(program)

    async def listed(
        self, query: InvocationQuery, *, limit: int = 50, looks: int | None = None, is_timed: bool = False
    ) -> InvocationPage:
        """Invocations, the newest first (`tidegate.invocations.asking`).

        Args:
            query: Which.
            limit: How many at most.
            looks: In how many requests at most; None for as many as it takes.
            is_timed: With their histories.

        Returns:
            Those, and whether there are more.
        """
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
        """How many invocations of each of its tasks have which status."""
        return await self.asked(counts_of(self.collections, tuple(self._declared)))

    async def standing(self) -> Standing:
        """Its processes, what waits in the queues that it takes from and in those of its tasks, and what is paused."""
        there, told = await self._opened(), self.settings
        held = await self._holding(there).held()
        return await there.site.run(
            standing_of(self.collections, self.queues, told.silences, told.services.service, held)
        )

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that its settings name, those in which its tasks wait otherwise, and that of the app's own services."""
        theirs = (each.queue for each in self._declared.values())
        return (*dict.fromkeys((*self.settings.queues, *theirs, OWN_QUEUE)),)

    @property
    def _mine(self) -> tuple[str, ...]:
        """The queues that it takes from."""
        return (*dict.fromkeys((*self.settings.queues, OWN_QUEUE)),)

    async def pause(self, *, tasks: Collection[str] = (), queues: Collection[str] = ()) -> Held:
        """Have no process take anything more of these tasks, or from these queues; what runs goes on.

        Returns:
            What is paused then.

        Raises:
            Misuse: There is no such task, or a queue that no task of the app is in and nobody takes from.
            Failure: Nobody answers: it is paused, or is not, or will be.
        """
        self._check_known(tasks, queues)
        for name in queues:
            if name not in self.queues:
                raise Misuse(f"there is no queue {shown(name)}", todo=f"there are: {', '.join(self.queues)}")
        return await self._holding(await self._opened()).pause(tasks, queues)

    async def resume(self, *, tasks: Collection[str] = (), queues: Collection[str] = ()) -> Held:
        """Have processes take of these again; otherwise as `pause`."""
        self._check_known(tasks, queues)
        return await self._holding(await self._opened()).resume(tasks, queues)

    async def held(self) -> Held:
        """What is paused.

        Raises:
            Failure: Nobody answers.
        """
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
        """Waits for invocations, in this event loop."""
        return (await self._opened()).results

    async def uploaded(self, name: str) -> str:
        """The text that was uploaded under a name."""
        return await (await self._opened()).uploads.text(name)


class Client(Operations):
    """An app that enqueues invocations and emits events.

    Attributes:
        made_from: The app of which it is `configured`.
    """

    def __init__(self, store: AppStore, settings: OrchestratorSettings, observers: object) -> None:
        super().__init__(store, settings, observers)
        self._spans: Spans | None = None
        self._triggers: dict[str, tuple[When, ...]] = {}
        self._works: dict[str, Work] = {}
        self._announce: Callable[[Duration], None] | None = None
        """Wakes the workers of this process for something that is due in so many microseconds; None while it is not served."""
        self._sync: SyncStore | None = None
        self.made_from: Client | None = None

    @property
    def in_place(self) -> Client:
        """The app that is served here and was made from this one by `configured`; this one where there is none."""
        served = each = cast("Client | None", SERVED.get())
        while each is not None and each is not self:
            each = each.made_from
        return self if served is None or each is None else served

    @property
    def triggers(self) -> Mapping[str, tuple[When, ...]]:
        """What starts its tasks, by task."""
        return MappingProxyType(self._triggers)

    async def enqueue_jobs(
        self,
        declared: Declared,
        jobs: Sequence[tuple[str, Job]],
        *,
        due: Instant | Duration = 0,
        session: object = None,
    ) -> list[Handle[Any]]:
        """Make invocations (`Task.enqueue`).

        Args:
            declared: The task.
            jobs: What is to be done, each under the id of its invocation.
            due: From when on they may be called: an instant, or a time from now in microseconds.
            session: One of the user's; None for none.
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
        """An app with the same tasks that is told something else."""
        raise NotImplementedError

    def traceparent(self) -> str | None:
        """What names the current span, of an app that has a provider of spans."""
        return None if self._spans is None else self._spans.current()

    async def _within(self, session: object, program: Program[T]) -> T:
        """Run a program in the transaction of a session of the user's."""
        within = AsyncMongo(cast("Any", session).client, self.settings.database, session=cast("Any", session))
        try:
            found = await run_async(program, choosing(documents(within), local_async()))
        except Failure as failure:
            raise retold(failure) from failure
        check_same_server(session, self._client)  # by now it has connected; what this raises ends the transaction
        return found

    @property
    def _client(self) -> object | None:
        """The client that it is connected by, or would be."""
        if self._open:
            return next(iter(self._open.values())).site.client
        return self._store if isinstance(self._store, AsyncMongoClient) else None

    def enqueue_job_sync(
        self, declared: Declared, job: Job, *, key: str, due: Instant | Duration = 0, session: object = None
    ) -> Handle[Any]:
        """The same for code that is not async."""
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
        """Its database, for code that is not async."""
        if self._sync is None:
            self._sync = SyncStore(self.settings, self._store, self.indexes)
        return self._sync

    def other_loop(self) -> asyncio.AbstractEventLoop | None:
        """An event loop in which it is connected, for who is in another thread; None where it is connected in none.

        Raises:
            Misuse: Whoever asks is in an event loop, which a plain function would hold up.
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
        """Say that something has happened, to the triggers of this app that wait for it (`on_event`).

        All of them hear of it; or all or none, where this raises.

        Args:
            code: Of which kind it is.
            payload: What it carries.
            event: Its id: one that is emitted again is the same. None for one made up.
            session: One of yours, in whose transaction this is written: it commits with your writes, or not at all.

        Raises:
            Misuse: An argument is of the wrong type.
            OperationFailure: With a session: its transaction is over, and may begin anew, as `with_transaction` does.
            TidegateError: Nobody answered: emit it again, under the same id.
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
        """What a call becomes that a trigger makes."""
        made = self._declared[task]
        kept = made.kept((), made.values(arguments))
        _ = made.call(kept.arguments)  # what cannot be compared is no call
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
        """The program that makes invocations of jobs, each under its id, and tells what became of each.

        Args:
            declared: The task.
            jobs: What is to be done.
            payloads: The names that the arguments of each were uploaded under.
            due: From when on they may be called.
            session: One of the user's, in whose transaction it is run; None for none.
        """
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
        """What whoever enqueues gets.

        Raises:
            ArgumentsDiffer: One that waits has other arguments.
            TidegateError: Nobody answered.
        """
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
    """The same, where its arguments were uploaded under this name."""
    return job if payload is None else attrs.evolve(job, arguments=Document(), payload=payload)
