"""A task: callable as its function, or enqueued for later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, final, overload
from uuid import uuid4

import attrs

from tidegate.invocations.record.jobs import Job
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Duration, Instant, instant
from tidegate.model.values import check_name, check_type
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.declared import Declared
from tidegate_adapters.orchestrator.handles import CURRENT, Handle

log: Final = logging.getLogger("tidegate_adapters.orchestrator")
_LAST: Final = instant(datetime.max.replace(tzinfo=UTC)).at // MILLISECOND * MILLISECOND
"""The last instant that Python, and so its MongoDB driver, reads as a date."""
P = ParamSpec("P")
R = TypeVar("R")


@final
class Task(Generic[P, R]):
    """A task: call it as a function, or enqueue it for a process of the app."""

    def __init__(self, app: Client, declared: Declared) -> None:
        self._app, self.declared = app, declared
        self.__name__, self.__doc__ = declared.name, declared.handler.__doc__
        self.__wrapped__ = declared.handler

    @property
    def app(self) -> Client:
        """Its app; in a handler, the app that calls the handler."""
        return self._app.in_place

    def of(self, app: Client) -> Task[P, R]:
        if app.declared.get(self.declared.name) is not self.declared:
            raise Misuse(
                f"{app!r} has another task {self.declared.name!r}, or none", todo="make it by app.configured(...)"
            )
        return Task(app, self.declared)

    def __repr__(self) -> str:
        return f"<task {self.declared.name}>"

    if not TYPE_CHECKING:  # type checkers report missing names

        def __getattr__(self, name: str) -> object:
            todo = f": write await {self!r}.enqueue(...), or enqueue_sync(...)" if name in _ELSEWHERE else ""
            raise AttributeError(f"a task has no {name}{todo}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
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
        """Enqueue a call for any process that serves the task.

        Args:
            *args: Arguments of the function.
            **kwargs: Arguments of the function.
            session: A user's session, whose transaction includes the write.
            key: The id of the invocation, which makes enqueueing idempotent; default: a fresh one.
                Tasks with `unique` accept neither session nor key.
            delay: The delay before the earliest start.
            due: The earliest start, instead of a delay.
            priority: From -100 to 100, highest first; default: that of the task.
            queue: Its queue; default: that of the task.
            tenant: The customer or user; tenants of a queue take turns.

        Raises:
            Misuse: The arguments do not fit the function, or an option is invalid.
            OperationFailure: With a session: retry the transaction, as `with_transaction` does.
            TidegateError: No answer: it may exist; enqueue again with the same key.
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
        """Enqueue many calls, a thousand per request; options apply to all, as for `enqueue`.

        `calls` holds a tuple of arguments for each call, `keys` an id for each.

        Raises:
            Misuse: As for `enqueue`, before any write; or the numbers of keys and calls differ.
            TidegateError: No answer for some: enqueue again with the same keys.
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
        """`enqueue` for sync code; Misuse in an event loop, which it would block."""
        job = self._job(args, kwargs, priority=priority, queue=queue, tenant=tenant)
        return self.app.enqueue_job_sync(
            self.declared, job, key=self._key(key, session), due=_due(delay, due), session=session
        )

    def _key(self, key: str | None, session: object) -> str:
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
        kept, current = self.declared.kept(args, kwargs), CURRENT.get(None)
        return Job(
            task=self.declared.name, arguments=kept.arguments, limited_by=kept.limited_by, rated_by=kept.rated_by,
            queue=self.declared.queue if queue is None else queue,
            priority=self.declared.priority if priority is None else priority,
            tenant=tenant, trace=self.app.traceparent(), deadline=self.declared.timeout,
            parent=None if current is None else current.run.id, root=None if current is None else current.root,
        )  # fmt: skip


_ELSEWHERE: Final = frozenset({"apply_async", "delay", "enqueue_async", "kiq", "send", "submit"})
"""The methods that enqueue in other libraries."""


class TaskDecorator(Protocol):
    """Makes a task of a function."""

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


def _arguments(call: object) -> tuple[object, ...]:
    """The arguments of one call; a str or dict is a likely mistake."""
    check_type(call, (tuple, list), "the arguments of a call", "pass each call's in a tuple: [(to, text), ...]")
    return tuple(cast("tuple[object, ...]", call))


def _due(delay: timedelta | None, due: datetime | None) -> Instant | Duration:
    """The earliest start, rounded up to a millisecond, the finest stored time."""
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
