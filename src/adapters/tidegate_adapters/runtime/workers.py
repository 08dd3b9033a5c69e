"""The workers of a process: they execute the commands of `tidegate.work.worker`.

Async handlers run in the event loop, plain functions in threads, so they do not block results. A
handler is called only if the state still allows it. Reactive tasks and invocations execute the
other commands with their own programs. Times are of the loop's monotonic clock. Log lines about a
run have its fields and omit the handler's arguments.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from logging import Logger
from typing import Final, TypeAlias, cast

from tidegate.model.effects import Refused
from tidegate.model.instants import SECOND, ClockName, Duration, Instant
from tidegate.work.events import StopRequested, TimerFired, WorkAnnounced, WorkerEvent, work_event_for
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import Interrupt, Run, StartHandlers, StartTimer, WorkerCommand, WorkerRules
from tidegate.work.worker import Worker
from tidegate_adapters.base.cancellation import CLOSE_S
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.base.threads import DaemonThreads
from tidegate_adapters.runtime.reducers import Call, CallEach, Ended, InterruptEach, Job, Observer, Runtime, as_failure

WorkerObserver: TypeAlias = Observer[WorkerEvent, WorkerState, WorkerCommand]

INTERRUPTED: Final = Refused("interrupted")
"""The runtime's reply for interrupted code (law RT5)."""
_LOOP: Final = ClockName("loop")


class HandlerWorkers(ABC):
    """Runs handlers in the event loop in which it is made.

    `observers` are called with each event, the state after it, and its commands.
    """

    def __init__(self, rules: WorkerRules, log: Logger, observers: Iterable[WorkerObserver] = ()) -> None:
        self._rules, self._log, self._loop = rules, log, asyncio.get_running_loop()
        self._threads = DaemonThreads("tidegate-handler")
        self._timer: asyncio.TimerHandle | None = None
        self._runtime: Runtime[WorkerState, WorkerEvent, WorkerCommand] = Runtime(
            Worker(rules), WorkerState(), self._begin, self._event_for, observers=observers, fields=self._fields
        )

    @abstractmethod
    def _request(self, command: WorkerCommand) -> Call | None:
        """The call for a command that reactive tasks and invocations execute differently."""

    @abstractmethod
    def _handle(self, run: Run) -> Awaitable[object]: ...

    @abstractmethod
    def _answer(self, run: Run, ended: Ended) -> object: ...

    @abstractmethod
    def _named(self, run: Run) -> str: ...

    @abstractmethod
    def _fields(self, command: object, given: object) -> Mapping[str, object]:
        """The log fields for a command or one of its runs."""

    def _closing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def state(self) -> WorkerState:
        return self._runtime.state

    @property
    def left_s(self) -> float:
        """The seconds left to write results, assuming a stop now at the latest."""
        now = self._now()
        return max((self.state.stop_at or now) + self._rules.leave - now, 0) / SECOND

    async def run(self) -> None:
        """Work until `stop`, a cancellation, or an exit of user code; then finish and write
        results.

        Raises:
            CancelledError, SystemExit, KeyboardInterrupt: Re-raised after the rest.
        """
        owed: BaseException | None = None
        self._runtime.tell(TimerFired(self._now()))
        try:
            while not self.state.is_stopped:
                try:
                    await self._runtime.until(lambda state: state.is_stopped)
                except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
                    owed = owed or error
                    self.stop()
        finally:
            self._closing()
            await self._runtime.close(min(max(self.left_s / 2, CLOSE_S), 1.0))
            self._closed()
        if owed is not None:
            raise owed

    def _closed(self) -> None:
        self._threads.close()

    def stop(self) -> None:
        """Take no more work; `run` returns when handlers end. A second call skips the wait."""
        self._runtime.tell(StopRequested(self._now()))

    def _announce(self, queue: str, after: Duration) -> None:
        now = self._now()
        self._runtime.tell(WorkAnnounced(now, queue, now + after if after else None))

    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    def _begin(self, command: WorkerCommand) -> Job | None:
        match command:
            case StartHandlers(runs):
                return CallEach(self._handle, runs)
            case Interrupt(runs, why):
                for run in runs:
                    text = "interrupted the handler of %s: %s"
                    self._log.warning(text, self._named(run)[:-1], why.value, extra=self._fields(command, run))
                ended = frozenset(runs)
                return InterruptEach(lambda of, given: isinstance(of, StartHandlers) and given in ended)
            case StartTimer(duration):  # replaces the previous timer
                if self._timer is not None:
                    self._timer.cancel()
                fired = lambda: self._runtime.tell(TimerFired(self._now()))  # noqa: E731
                self._timer = self._loop.call_later(duration / SECOND, fired)
                return None
            case _:
                return self._request(command)

    def _event_for(self, command: WorkerCommand, reply: object) -> WorkerEvent | None:
        if isinstance(command, StartHandlers) and isinstance(reply, tuple):
            ended = cast("tuple[Ended, ...]", reply)
            reply = tuple((each.given, self._answer(cast("Run", each.given), each)) for each in ended)
        elif isinstance(reply, Exception):
            self._log.error("%s has failed: %s", command, redacted(str(reply)), extra=self._fields(command, None))
        return work_event_for(command, as_failure(reply), self._now())
