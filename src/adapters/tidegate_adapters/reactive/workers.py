"""The workers of reactive tasks, which execute the commands of `tidegate.work.worker`.

Log lines about a run have its task, shortened document id, attempt and token, and no values.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, cast, final
from weakref import WeakValueDictionary

from tidegate.model.instants import Duration
from tidegate.reactive.record.tasks import Claim
from tidegate.reactive.task import completion, fetching, worker
from tidegate.reactive.task.completion import HandlerAnswer, answered
from tidegate.work.events import (
    CapacityRequested,
    PollCompleted,
    QueuesPaused,
    QueueThrottled,
    ResultsRefused,
    ResultsWritten,
    UntrackedReturned,
    WorkerEvent,
)
from tidegate.work.vocabulary import (
    CapacityGranted,
    NoAnswer,
    Poll,
    PollGroup,
    PollResult,
    Renewal,
    RenewLeases,
    ReturnUntracked,
    Run,
    WorkerCommand,
    WorkerRules,
    WriteReply,
    WriteResults,
)
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.reactive.changes import Change, SyncChange, named
from tidegate_adapters.reactive.declared import Declared
from tidegate_adapters.runtime.handlers import threaded
from tidegate_adapters.runtime.later import Later
from tidegate_adapters.runtime.reducers import Call, Ended
from tidegate_adapters.runtime.workers import INTERRUPTED, HandlerWorkers, WorkerObserver

log: Final = logging.getLogger("tidegate_adapters.reactive")


@final
class Pool(HandlerWorkers):
    """Runs due records of these tasks in the event loop in which it is made.

    Args:
        declared: The tasks, each with its database.
        worker: A unique name for this process and life.
    """

    def __init__(
        self, declared: Sequence[Declared], rules: WorkerRules, worker: str, observers: Iterable[WorkerObserver] = ()
    ) -> None:
        super().__init__(rules, log, observers)
        self._worker = worker
        self._declared: Final = {each.name: each for each in declared}
        self._handlers: Final = {each.name: self._handler(each) for each in declared}
        self._changes: Final = WeakValueDictionary[Run, Change | SyncChange]()
        self._asking: Final[dict[str, asyncio.Future[int]]] = {}
        self._is_closed = False

    def announce(self, task: str, after: Duration = 0) -> None:
        self._announce(task, after)

    async def room(self, task: str, most: int, request: str) -> int:
        """The caller must call `took` afterwards in any case, with the same unique `request`."""
        if self._is_closed:
            return 0
        answer: asyncio.Future[int] = self._loop.create_future()
        self._asking[request] = answer
        try:
            self._runtime.tell(CapacityRequested(self._now(), task, most, request))
            return await answer
        finally:
            _ = self._asking.pop(request, None)  # or one that is cancelled stays there

    def took(self, task: str, request: str, runs: tuple[fetching.Run, ...], *, is_unheard: bool = False) -> None:
        result = PollResult(self._runs(task, runs), is_uncertain=is_unheard)
        self._runtime.tell(PollCompleted(self._now(), CapacityGranted(task, request), result))

    def pause(self, tasks: frozenset[str]) -> None:
        if tasks != self.state.paused:
            self._runtime.tell(QueuesPaused(self._now(), tasks))

    def throttle(self, task: str, length: Duration) -> None:
        now = self._now()
        self._runtime.tell(QueueThrottled(now, task, now + length))

    # --- commands and events ---

    def _request(self, command: WorkerCommand) -> Call | None:
        match command:
            case Poll():
                return Call(lambda: self._poll(command))
            case PollGroup(_, names, within):
                one = self._declared[names[0]]
                return Call(lambda: one.site.run(fetching.dues(one.task.records, names, within)))
            case RenewLeases():
                return Call(lambda: self._renew(command))
            case WriteResults():
                return Call(lambda: self._write(command))
            case ReturnUntracked(name, tracked):
                task, run = self._declared[name].task, self._declared[name].site.run
                return Call(lambda: run(task.fetcher.give_back(self._worker, worker.runs_of(tracked))))
            case CapacityGranted(_, request, most):
                self._answer_room(request, most)
                return None
            case _:
                return None

    async def _poll(self, command: Poll) -> PollResult:
        task, run = self._declared[command.queue].task, self._declared[command.queue].site.run
        reply = await run(task.fetcher.take(self._worker, command.most, command.factor))
        return worker.poll_result(command.queue, self._declared[command.queue].timeout, command.most, reply)

    async def _renew(self, command: RenewLeases) -> tuple[Renewal, ...]:
        task, run = self._declared[command.queue].task, self._declared[command.queue].site.run
        claims = tuple((each.key, each.claim) for each in worker.runs_of(command.runs))
        return worker.renewals(await run(task.completer.renew_all(claims, self._completing(command.runs))))

    async def _write(self, command: WriteResults) -> WriteReply:
        task, run = self._declared[command.queue].task, self._declared[command.queue].site.run
        return worker.write_reply(command.results, await run(task.completer.end(worker.ends(command.results))))

    def _runs(self, task: str, runs: tuple[fetching.Run, ...]) -> tuple[Run, ...]:
        timeout = self._declared[task].timeout
        return tuple(worker.run_of(task, each, timeout) for each in runs)

    def _event_for(self, command: WorkerCommand, reply: object) -> WorkerEvent | None:
        event = super()._event_for(command, reply)
        if isinstance(event, UntrackedReturned) and event.number:
            told = "gave back %d of %s, which nobody had said were claimed"
            log.warning(told, event.number, event.command.queue, extra=self._fields(command, None))
        if isinstance(event, ResultsWritten | ResultsRefused):
            left = event.reply.left if isinstance(event, ResultsWritten) else event.command.results
            if left:
                told = "nobody knows whether the ends of %d runs of %s are written: they are asked for again"
                log.warning(told, len(left), event.command.queue, extra=self._fields(command, None))
        return event

    def _answer(self, run: Run, ended: Ended) -> HandlerAnswer | NoAnswer:
        if ended.reply == INTERRUPTED:
            return INTERRUPTED.reason
        answer = _answer_of(ended.reply)
        where = self._fields(None, run)
        if isinstance(answer, str):
            error = ended.reply if isinstance(ended.reply, BaseException) else None
            log.error("the handler of %s has failed: %s", self._named(run), answer, exc_info=error, extra=where)
        elif log.isEnabledFor(logging.DEBUG):
            took = f"{ended.seconds:.3f} s"
            log.debug("the handler of %s has returned after %s", self._named(run), took, extra=where)
        return answer

    def _completing(self, runs: tuple[Run, ...]) -> tuple[Claim, ...]:
        """The claims whose handlers have called `complete` in a transaction that is still open."""
        changes = ((each, self._changes.get(each)) for each in runs)
        some = tuple(run for run, change in changes if change is not None and change.is_completing)
        return tuple(each.claim for each in worker.runs_of(some))

    def _answer_room(self, request: str, most: int) -> None:
        answer = self._asking.get(request)
        if answer is not None and not answer.done():  # else it was cancelled
            answer.set_result(most)

    def _handle(self, run: Run) -> Awaitable[object]:
        return self._handlers[run.task](run)

    def _handler(self, declared: Declared) -> Callable[[Run], Awaitable[object]]:
        make = Change if declared.is_async else SyncChange
        handler, site = cast("Callable[[Any], Any]", declared.handler), declared.site

        def call(given: tuple[Run, Any]) -> Any:
            run, change = given
            if self.state.may_call(run, self._now()):
                return handler(change)
            if declared.is_async:
                return _at_once()
            raise Later(timedelta())

        called = call if declared.is_async else threaded(call, lambda: self._threads)

        def begun(run: Run) -> Awaitable[object]:
            (given,) = worker.runs_of((run,))
            change = self._changes[run] = make(declared.task, given, site, self.throttle)
            return called((run, change))

        return begun

    def _closed(self) -> None:
        self._is_closed = True
        for request in tuple(self._asking):
            self._answer_room(request, 0)
        super()._closed()

    def _named(self, run: Run) -> str:
        (given,) = worker.runs_of((run,))
        return f"{run.task}, document {named(given.key)}, attempt {given.claim.attempts},"

    def _fields(self, command: object, given: object) -> Mapping[str, object]:
        if not isinstance(given, Run):
            return {"task": getattr(command, "queue", None)}
        (run,) = worker.runs_of((given,))
        return {"task": given.task, "document": named(run.key), "attempt": run.claim.attempts, "claim": given.token}


async def _at_once() -> None:
    """Stands for the result of an async handler that is not called."""
    raise Later(timedelta())


def _answer_of(reply: object) -> HandlerAnswer:
    if isinstance(reply, BaseException) and not isinstance(reply, Later):
        return _failure(reply)
    if isinstance(reply, Later) and reply.__traceback__ is not None:  # raised, not returned
        return completion.Later(reply.delay)
    return answered(reply)


def _failure(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the user's own __str__
        text = ""
    return redacted(f"{type(error).__name__}: {text}" if text else type(error).__name__)
