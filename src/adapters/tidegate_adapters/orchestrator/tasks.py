"""A task, as whoever enqueues it has it: what is to be done, and how it becomes an invocation.

Of a task without `unique` many become invocations in one request, in a transaction of the user's, too
(`tidegate.invocations.enqueueing`). Of one with it each is asked for by itself (`tidegate.invocations.registration`): one that waits
already answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, final, overload
from uuid import uuid4

import attrs

from tidegate.invocations.enqueueing import OF_ANOTHER_TASK, Enqueue, NewInvocation
from tidegate.invocations.jobs import Job
from tidegate.invocations.registration import NotRegistered, Registered, Registrar, RegistrationOutcome, Reused
from tidegate.model.documents import Document
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND, Duration, Instant, instant
from tidegate.model.values import check_name, check_type
from tidegate_adapters.declaring import length_of
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.handles import CURRENT, ArgumentsDiffer, Handle, HandleApp
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.settings import OrchestratorSettings

__all__ = ["Task", "TaskApp", "TaskDecorator", "enqueued", "handle_of"]

log: Final = logging.getLogger("tidegate_adapters.orchestrator")
_LAST: Final = instant(datetime.max.replace(tzinfo=UTC)).at // MILLISECOND * MILLISECOND
"""The last one that Python, and so its driver of MongoDB, reads as a date."""
P = ParamSpec("P")
R = TypeVar("R")


class TaskApp(HandleApp, Protocol):
    """The app of a task (`tidegate_adapters.orchestrator.app`)."""

    @property
    def settings(self) -> OrchestratorSettings:
        """What it was told that is not code."""

    @property
    def declared(self) -> Mapping[str, Declared]:
        """Its tasks, by name."""

    @property
    def in_place(self) -> TaskApp:
        """The app that is served here and was made from this one by `configured`; this one where there is none."""

    def configured(self, settings: OrchestratorSettings) -> TaskApp:
        """An app with the same tasks that is told something else."""

    def traceparent(self) -> str | None:
        """What names the current span to whoever runs what is enqueued in it."""

    async def enqueue_jobs(
        self,
        declared: Declared,
        jobs: Sequence[tuple[str, Job]],
        *,
        due: Instant | Duration = 0,
        session: object = None,
    ) -> list[Handle[Any]]:
        """Make invocations."""

    def enqueue_job_sync(
        self, declared: Declared, job: Job, *, key: str, due: Instant | Duration = 0, session: object = None
    ) -> Handle[Any]:
        """The same for code that is not async."""

    async def close(self) -> None:
        """Disconnect."""


@final
class Task(Generic[P, R]):
    """A task: call it as the function that it is, or have a process of the app call it."""

    def __init__(self, app: TaskApp, declared: Declared) -> None:
        self._app, self.declared = app, declared
        self.__name__, self.__doc__ = declared.name, declared.handler.__doc__
        self.__wrapped__ = declared.handler

    @property
    def app(self) -> TaskApp:
        """The app that it is of; in its handlers, that which calls them."""
        return self._app.in_place

    def of(self, app: TaskApp) -> Task[P, R]:
        """The same task of another app, which was made by `app.configured`.

        Raises:
            Misuse: That has no such task.
        """
        if app.declared.get(self.declared.name) is not self.declared:
            raise Misuse(
                f"{app!r} has another task {self.declared.name!r}, or none", todo="make it by app.configured(...)"
            )
        return Task(app, self.declared)

    def __repr__(self) -> str:
        return f"<task {self.declared.name}>"

    if not TYPE_CHECKING:  # a type checker finds what is not there by itself

        def __getattr__(self, name: str) -> object:
            todo = f": write await {self!r}.enqueue(...), or enqueue_sync(...)" if name in _ELSEWHERE else ""
            raise AttributeError(f"a task has no {name}{todo}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function here and now."""
        return self.declared.handler(*args, **kwargs)

    async def enqueue(
        self,
        *args: Any,
        session: object = None,
        key: str | None = None,
        delay: timedelta | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        **kwargs: Any,
    ) -> Handle[R]:
        """Have it called with these arguments, by any process that serves the task.

        Args:
            *args: Those of the function.
            **kwargs: Likewise.
            session: One of yours, in whose transaction this is written: it commits with your writes, or not at all.
            key: The id of the invocation; who asks twice under an id gets the one that is there. None for one made up. Of a
                task with `unique` neither a session nor a key is taken.
            delay: How long it is not called yet.
            due: Until when it is not called yet, in its place.
            priority: From -100 to 100, the highest first; that of the task unless it is set.
            queue: Where it waits; that of the task unless it is set.
            tenant: On whose behalf: those of one queue take turns.

        Returns:
            The invocation.

        Raises:
            Misuse: The function cannot be called with these, or an option is wrong.
            OperationFailure: With a session: its transaction is over, and may begin anew, as `with_transaction` does.
            TidegateError: Nobody answered: it may be there, as who asks again under its key finds out.
        """
        job = self._job(args, kwargs, priority=priority, queue=queue, tenant=tenant)
        (handle,) = await self.app.enqueue_jobs(
            self.declared, [(self._key(key, session), job)], due=_due(delay, due), session=session
        )
        return handle

    async def enqueue_many(
        self,
        calls: Iterable[tuple[Any, ...]],
        *,
        keys: Sequence[str] | None = None,
        session: object = None,
        delay: timedelta | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
    ) -> list[Handle[R]]:
        """Have it called with each of these, a thousand in a request.

        Args:
            calls: The arguments of each call, as a tuple.
            keys: The ids of the invocations; None for such that are made up.
            session: As for `enqueue`, and so are the others; each holds of all of them.
            delay: Likewise.
            due: Likewise.
            priority: Likewise.
            queue: Likewise.
            tenant: Likewise.

        Raises:
            Misuse: As `enqueue` does, before anything is written; or there are as many keys as calls.
            TidegateError: Nobody answered of some: as who asks again under their keys finds out.
        """
        if isinstance(keys, str):
            raise Misuse("a str is no keys", todo="pass a list of them, one for each call")
        jobs = [self._job(_arguments(each), {}, priority=priority, queue=queue, tenant=tenant) for each in calls]
        ids = [self._key(each, session) for each in ([None] * len(jobs) if keys is None else keys)]
        if len(ids) != len(jobs):
            raise Misuse(f"{len(ids)} keys for {len(jobs)} calls", todo="name one for each")
        for each in ids:
            check_name(each, "an invocation")
        if len({*ids}) < len(ids):
            raise Misuse("two invocations of one id", todo="give each its own, or leave one out")
        made = [*zip(ids, jobs, strict=True)]
        return await self.app.enqueue_jobs(self.declared, made, due=_due(delay, due), session=session)

    def enqueue_sync(
        self,
        *args: Any,
        session: object = None,
        key: str | None = None,
        delay: timedelta | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        **kwargs: Any,
    ) -> Handle[R]:
        """As `enqueue`, for code that is not async: a plain handler, a script, another framework.

        Raises:
            Misuse: As there; or it is called in an event loop, which it would hold up.
        """
        job = self._job(args, kwargs, priority=priority, queue=queue, tenant=tenant)
        return self.app.enqueue_job_sync(
            self.declared, job, key=self._key(key, session), due=_due(delay, due), session=session
        )

    def _key(self, key: str | None, session: object) -> str:
        """The id of an invocation."""
        if self.declared.unique is not None and (session is not None or key is not None):
            what = "key=" if session is None else "session="
            raise Misuse(
                f"{what} for {self.declared.name}, of which one waits at a time",
                why="who else waits is asked of other documents, in more than one step, and answers under an id of its own",
                todo=f"leave {what} out, or unique= of the task" + (" and use key=" if session is not None else ""),
            )
        return uuid4().hex if key is None else key

    def _job(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        priority: int | None,
        queue: str | None,
        tenant: str | None,
    ) -> Job:
        """What is to be done."""
        kept, current = self.declared.kept(args, kwargs), CURRENT.get(None)
        return Job(
            task=self.declared.name, arguments=kept.arguments, limited_by=kept.limited_by, rated_by=kept.rated_by,
            queue=self.declared.queue if queue is None else queue,
            priority=self.declared.priority if priority is None else priority,
            tenant=tenant, trace=self.app.traceparent(), deadline=self.declared.timeout,
            parent=None if current is None else current.run.id, root=None if current is None else current.root,
        )  # fmt: skip


_ELSEWHERE: Final = frozenset({"apply_async", "delay", "enqueue_async", "kiq", "send", "submit"})
"""What calls a task later in other libraries."""


class TaskDecorator(Protocol):
    """Makes a task of a function."""

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


def _arguments(call: object) -> tuple[object, ...]:
    """Those of one of many calls: a text or a dict has parts, too, and they are no arguments."""
    check_type(call, (tuple, list), "the arguments of a call", "pass each call's in a tuple: [(to, text), ...]")
    return tuple(cast("tuple[object, ...]", call))


def _due(delay: timedelta | None, due: datetime | None) -> Instant | Duration:
    """From when on it may be called: a point in time, or a time from now; the next millisecond, for no finer ones are kept."""
    if due is None:
        return 0 if delay is None else _whole(length_of(delay, "delay", 0))
    if delay is not None:
        raise Misuse("delay= and due=", todo="leave one of them out")
    check_type(
        due, datetime, "due", "write datetime.now(UTC) + timedelta(seconds=...), or delay=timedelta(seconds=...)"
    )
    if due.tzinfo is None:
        raise Misuse(f"due={due} has no time zone", todo="write datetime(..., tzinfo=UTC)")
    found = instant(due)
    return attrs.evolve(found, at=min(_whole(found.at), _LAST))


def _whole(at: Duration) -> Duration:
    return -(-at // MILLISECOND) * MILLISECOND


# --- how it becomes an invocation -------------------------------------------------------------------------------------


def _with_payload(job: Job, payload: str | None) -> Job:
    """The same, where its arguments were uploaded under this name."""
    return job if payload is None else attrs.evolve(job, arguments=Document(), payload=payload)


async def enqueued(
    declared: Declared,
    jobs: Sequence[tuple[str, Job]],
    payloads: Sequence[str | None],
    *,
    due: Instant | Duration,
    looks_first: bool,
    names: Collections,
) -> tuple[RegistrationOutcome, ...]:
    """The program that makes invocations of jobs, each under its id.

    Args:
        declared: The task.
        jobs: What is to be done.
        payloads: The names that the arguments of each were uploaded under.
        due: From when on they may be called.
        looks_first: It is run in a transaction of the user's.
        names: The collections.

    Returns:
        What became of each.
    """
    made = [(key, job, _with_payload(job, payload)) for (key, job), payload in zip(jobs, payloads, strict=True)]
    if declared.unique is None:
        wanted = tuple(NewInvocation(key, kept, due) for key, _, kept in made)
        command = Enqueue(wanted=wanted, request=uuid4().hex, looks_first=looks_first, records=names.invocations)
        return await command.run()
    answers: tuple[RegistrationOutcome, ...] = ()
    for key, job, kept in made:
        registrar = Registrar(
            key=key, call=declared.call(job.arguments), rule=declared.unique.rule, must_agree=declared.unique.must_agree,
            request=key, job=kept, due=due, records=names.invocations, places=names.places, calls=names.calls,
        )  # fmt: skip
        answers = (*answers, await registrar.run())
    return answers


def handle_of(app: HandleApp, declared: Declared, answer: RegistrationOutcome) -> Handle[Any]:
    """What whoever enqueues gets.

    Raises:
        ArgumentsDiffer: One that waits has other arguments.
        TidegateError: Nobody answered.
    """
    match answer:
        case Registered(key):
            return Handle(key, True, (), declared.result, app)
        case Reused(key, differing):
            log.debug("a call of %s is answered by %s, which is there", declared.name, key)
            return Handle(key, False, differing, declared.result, app)
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
