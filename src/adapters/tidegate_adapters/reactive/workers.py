"""The pool of a process: it carries out what `tidegate.reactive.pool` commands, and decides nothing.

    Take, Renew, End    the programs of the task, on its database; GiveBack likewise
    Glance              a program for all tasks of a collection
    Handle              the handlers, async ones in the event loop, plain functions in threads, which hold up no end; each if the
                        pool still says so at its call
    Interrupt           their cancellation
    StartPoolTimer      one timer

Times are those of the loop's monotonic clock. Lines of the log that are about a run have its task, document (its id, cut short), attempt
and token as fields, and nothing of what is in the document.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias, cast, final
from weakref import WeakValueDictionary

from tidegate.model.effects import Refused
from tidegate.model.instants import SECOND, ClockName, Duration, Instant
from tidegate.reactive import completion
from tidegate.reactive.completion import HandlerAnswer, answered
from tidegate.reactive.fetching import Run, dues
from tidegate.reactive.pool import (
    Announced,
    End,
    EndsWritten,
    GiveBack,
    GivenBack,
    Glance,
    Granted,
    Handle,
    Interrupt,
    PoolCommand,
    PoolEvent,
    PoolRules,
    PoolState,
    PoolStopRequested,
    PoolTimerFired,
    Renew,
    RoomAsked,
    RunsTaken,
    StartPoolTimer,
    Take,
    TasksPaused,
    TaskThrottled,
    pool_event_for,
)
from tidegate.reactive.tasks import Claim
from tidegate_adapters.cancelling import CLOSE_S
from tidegate_adapters.daemon_threads import DaemonThreads
from tidegate_adapters.handlers import threaded
from tidegate_adapters.later import Later
from tidegate_adapters.printable import redacted
from tidegate_adapters.reactive.changes import Change, SyncChange, named
from tidegate_adapters.reactive.declared import Declared
from tidegate_adapters.runtime import Call, CallEach, Ended, InterruptEach, Job, Observer, Runtime, as_failure

__all__ = ["Pool", "PoolObserver"]

PoolObserver: TypeAlias = Observer[PoolEvent, PoolState, PoolCommand]

log: Final = logging.getLogger("tidegate_adapters.reactive")

_LOOP: Final = ClockName("loop")
_INTERRUPTED: Final = Refused("interrupted")
"""What the runtime says of code that was interrupted (law RT5)."""


@final
class Pool:
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
        self, declared: Sequence[Declared], rules: PoolRules, worker: str, observers: Iterable[PoolObserver] = ()
    ) -> None:
        self._worker, self._rules, self._loop = worker, rules, asyncio.get_running_loop()
        self._threads = DaemonThreads("tidegate-handler")
        self._declared: Final = {each.name: each for each in declared}
        self._handlers: Final = {each.name: self._handler(each) for each in declared}
        self._timer: asyncio.TimerHandle | None = None
        self._changes: Final = WeakValueDictionary[tuple[str, int], Change | SyncChange]()
        """What handlers that run were given, by the record's id and the token."""
        self._asking: Final[dict[str, asyncio.Future[int]]] = {}
        self._is_closed = False
        self._runtime: Runtime[PoolState, PoolEvent, PoolCommand] = Runtime(
            rules, PoolState(), self._begin, self._event_for, observers=observers, fields=_fields
        )

    @property
    def state(self) -> PoolState:
        """Where it stands."""
        return self._runtime.state

    @property
    def left_s(self) -> float:
        """How many seconds are left to write down what handlers have come to, if it is to stop at the latest now."""
        now = self._now()
        return max((self.state.stop_at or now) + self._rules.leave - now, 0) / SECOND

    async def run(self) -> None:
        """Work until `stop`, a cancellation, or an exit of user code; then let handlers end, and write down their ends.

        Raises:
            CancelledError, SystemExit, KeyboardInterrupt: As it came, after the rest.
        """
        owed: BaseException | None = None
        self._runtime.tell(PoolTimerFired(self._now()))
        try:
            while not self.state.is_stopped:
                try:
                    await self._runtime.until(lambda state: state.is_stopped)
                except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                    owed = owed or error
                    self.stop()
        finally:
            await self._close()
        if owed is not None:
            raise owed

    def stop(self) -> None:
        """Take nothing more, and let `run` return when what runs has ended; called once more, wait for no handler."""
        self._runtime.tell(PoolStopRequested(self._now()))

    def announce(self, task: str, after: Duration = 0) -> None:
        """Something of a task is due, now or after a time.

        Args:
            task: The name of the task.
            after: When, in microseconds from now.
        """
        now = self._now()
        self._runtime.tell(Announced(now, task, now + after if after else None))

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
            self._runtime.tell(RoomAsked(self._now(), task, most, request))
            return await answer
        finally:
            _ = self._asking.pop(request, None)  # or one that is cancelled stays there

    def took(self, task: str, request: str, runs: tuple[Run, ...], *, is_unheard: bool = False) -> None:
        """A pass that has asked for room has ended: these runs have begun; more may be claimed where not all was heard."""
        self._runtime.tell(RunsTaken(self._now(), Granted(task, request), runs, is_unheard=is_unheard))

    def pause(self, tasks: frozenset[str]) -> None:
        """From now on these tasks are looked at by nobody in this process, and all others are."""
        if tasks != self.state.paused:
            self._runtime.tell(TasksPaused(self._now(), tasks))

    def throttle(self, task: str, length: Duration) -> None:
        """Take no more of a task for so long, in microseconds."""
        now = self._now()
        self._runtime.tell(TaskThrottled(now, task, now + length))

    # --- commands and events ---

    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    def _begin(self, command: PoolCommand) -> Job | None:
        """What to do for a command."""
        if isinstance(command, StartPoolTimer):
            self._start_timer(command.duration)
            return None
        if isinstance(command, Granted):
            self._answer_room(command.request, command.most)
            return None
        if isinstance(command, Glance):
            one = self._declared[command.tasks[0]]
            return Call(lambda: one.site.run(dues(one.task.records, command.tasks, command.within)))
        task, run = self._declared[command.task].task, self._declared[command.task].site.run
        match command:
            case Take(_, most, factor):
                return Call(lambda: run(task.fetcher.take(self._worker, most, factor)))
            case Handle(_, runs):
                return CallEach(self._handlers[command.task], runs)
            case Renew(_, runs):
                claims = tuple((each.key, each.claim) for each in runs)
                return Call(lambda: run(task.completer.renew_all(claims, self._completing(runs))))
            case End(_, ended):
                return Call(lambda: run(task.completer.end(ended)))
            case GiveBack(_, hands):
                return Call(lambda: run(task.fetcher.give_back(self._worker, hands)))
            case Interrupt(name, runs, why):
                for each in runs:
                    log.warning(
                        "interrupted the handler of %s: %s",
                        _named(name, each)[:-1],
                        why.value,
                        extra=_fields(command, each),
                    )
                return InterruptEach(lambda of, given: isinstance(of, Handle) and of.task == name and given in runs)

    def _event_for(self, command: PoolCommand, reply: object) -> PoolEvent | None:
        """What became of it, as an event."""
        if isinstance(command, Handle) and isinstance(reply, tuple):
            reply = tuple((each.given, self._answer(command, each)) for each in cast("tuple[Ended, ...]", reply))
        elif isinstance(reply, Exception):
            log.error("%s has failed: %s", command, redacted(str(reply)), extra=_fields(command, None))
        event = pool_event_for(command, as_failure(reply), self._now())
        if isinstance(event, GivenBack) and event.number:
            told = "gave back %d of %s, which nobody had said were claimed"
            log.warning(told, event.number, event.command.task, extra=_fields(command, None))
        if isinstance(event, EndsWritten) and event.left:
            told = "nobody knows whether the ends of %d runs of %s are written: they are asked for again"
            log.warning(told, len(event.left), event.command.task, extra=_fields(command, None))
        return event

    def _answer(self, command: Handle, ended: Ended) -> HandlerAnswer:
        """What a handler has come to."""
        if ended.reply == _INTERRUPTED:
            return _INTERRUPTED.reason
        answer = _answer_of(ended.reply)
        if isinstance(answer, str):
            error = ended.reply if isinstance(ended.reply, BaseException) else None
            where = _fields(command, ended.given)
            log.error(
                "the handler of %s has failed: %s",
                _named(command.task, ended.given),
                answer,
                exc_info=error,
                extra=where,
            )
        elif log.isEnabledFor(logging.DEBUG):
            took = f"{ended.seconds:.3f} s"
            log.debug(
                "the handler of %s has returned after %s",
                _named(command.task, ended.given),
                took,
                extra=_fields(command, ended.given),
            )
        return answer

    def _completing(self, runs: tuple[Run, ...]) -> tuple[Claim, ...]:
        """The claims of those runs whose handlers have asked to complete them in a transaction that is open."""
        changes = ((each.claim, self._changes.get((each.claim.id, each.claim.token))) for each in runs)
        return tuple(claim for claim, change in changes if change is not None and change.is_completing)

    def _start_timer(self, duration: Duration) -> None:
        """In the place of the one before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(duration / SECOND, lambda: self._runtime.tell(PoolTimerFired(self._now())))

    def _answer_room(self, request: str, most: int) -> None:
        answer = self._asking.get(request)
        if answer is not None and not answer.done():  # else it was cancelled
            answer.set_result(most)

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
            change = self._changes[run.claim.id, run.claim.token] = make(declared.task, run, site, self.throttle)
            return called((run, change))

        return begun

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._runtime.close(min(max(self.left_s / 2, CLOSE_S), 1.0))
        self._is_closed = True
        for request in tuple(self._asking):
            self._answer_room(request, 0)
        self._threads.close()


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


def _named(task: str, run: object) -> str:
    """A run in a line of the log."""
    assert isinstance(run, Run), "handlers are called with runs"
    return f"{task}, document {named(run.key)}, attempt {run.claim.attempts},"


def _fields(command: object, given: object) -> Mapping[str, object]:
    """The fields of a line of the log."""
    found: dict[str, object] = {"task": getattr(command, "task", None)}
    if isinstance(given, Run):
        found |= {"document": named(given.key), "attempt": given.claim.attempts, "claim": given.claim.token}
    return found
