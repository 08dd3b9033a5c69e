"""A task, as whoever enqueues it has it: the function, and what is to be done when it is called later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, final, overload
from uuid import uuid4

import attrs

from tidegate.invocations.jobs import Job
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Duration, Instant, instant
from tidegate.model.values import check_name, check_type
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.handles import CURRENT, Handle

log: Final = logging.getLogger("tidegate_adapters.orchestrator")
_LAST: Final = instant(datetime.max.replace(tzinfo=UTC)).at // MILLISECOND * MILLISECOND
"""The last one that Python, and so its driver of MongoDB, reads as a date."""
P = ParamSpec("P")
R = TypeVar("R")


@final
class Task(Generic[P, R]):
    """A task: call it as the function that it is, or have a process of the app call it."""

    def __init__(self, app: Client, declared: Declared) -> None:
        self._app, self.declared = app, declared
        self.__name__, self.__doc__ = declared.name, declared.handler.__doc__
        self.__wrapped__ = declared.handler

    @property
    def app(self) -> Client:
        """The app that it is of; in its handlers, that which calls them."""
        return self._app.in_place

    def of(self, app: Client) -> Task[P, R]:
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
