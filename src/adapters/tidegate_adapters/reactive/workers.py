"""The workers of reactive tasks: what `tidegate.work.worker` commands is carried out by the programs of the task, on its database.

    Poll, RenewLeases, WriteResults, ReturnUntracked   `Fetcher.take`, `Completer.renew_all`, `Completer.end`, `Fetcher.give_back`
    PollGroup                                          a program for all tasks of a collection
    CapacityGranted                                    what the planner of this process waits for

Lines of the log that are about a run have its task, document (its id, cut short), attempt and token as fields, and nothing of what
is in the document.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, cast, final
from weakref import WeakValueDictionary

from tidegate.model.instants import Duration
from tidegate.reactive import completion, fetching, worker
from tidegate.reactive.completion import HandlerAnswer, answered
from tidegate.reactive.tasks import Claim
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
    """Handles what is due of these tasks in the event loop in which it is made.

    Args:
        declared: The tasks, each where it is.
        rules: How the process works; of the same tasks.
        worker: Its name; another one for each process and each of its lives.
        observers: Called with each event, the state after it, and the commands that follow.

    Raises:
        Misuse: A task has not been placed in a database.
    """

    def __init__(
        self, declared: Sequence[Declared], rules: WorkerRules, worker: str, observers: Iterable[WorkerObserver] = ()
    ) -> None:
        super().__init__(rules, log, observers)
        self._worker = worker
        self._declared: Final = {each.name: each for each in declared}
        self._handlers: Final = {each.name: self._handler(each) for each in declared}
        self._changes: Final = WeakValueDictionary[Run, Change | SyncChange]()
        """What handlers that run were given."""
        self._asking: Final[dict[str, asyncio.Future[int]]] = {}
        self._is_closed = False

    def announce(self, task: str, after: Duration = 0) -> None:
        """Something of a task is due, now or after a time.

        Args:
            task: The name of the task.
            after: When, in microseconds from now.
        """
        self._announce(task, after)

    async def room(self, task: str, most: int, request: str) -> int:
        """How many runs of a task a pass may claim as it plans them; `took` is to follow, whatever becomes of it.

        Args:
            task: The name of the task.
            most: How many documents the pass looks at.
            request: An id of the pass that no other has.
        """
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
        """A pass that has asked for room has ended: these runs have begun; more may be claimed where not all was heard."""
        result = PollResult(self._runs(task, runs), is_uncertain=is_unheard)
        self._runtime.tell(PollCompleted(self._now(), CapacityGranted(task, request), result))

    def pause(self, tasks: frozenset[str]) -> None:
        """From now on these tasks are looked at by nobody in this process, and all others are."""
        if tasks != self.state.paused:
            self._runtime.tell(QueuesPaused(self._now(), tasks))

    def throttle(self, task: str, length: Duration) -> None:
        """Take no more of a task for so long, in microseconds."""
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
        """What a handler has come to."""
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
        """The claims of those runs whose handlers have asked to complete them in a transaction that is open."""
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
        """The user's handler as an async function of a run."""
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
    """What an async handler comes to that is not called."""
    raise Later(timedelta())


def _answer_of(reply: object) -> HandlerAnswer:
    """What a handler has come to that has returned or raised this."""
    if isinstance(reply, BaseException) and not isinstance(reply, Later):
        return _failure(reply)
    if isinstance(reply, Later) and reply.__traceback__ is not None:  # it was raised, and not returned
        return completion.Later(reply.delay)
    return answered(reply)


def _failure(error: BaseException) -> str:
    """The text of what a handler has raised, without what looks like a secret."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the user's own __str__
        text = ""
    return redacted(f"{type(error).__name__}: {text}" if text else type(error).__name__)
