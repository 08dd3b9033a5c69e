"""The asyncio runtime that carries out the commands of reducers (`tidegate.model.reducer`).

A reducer decides and never waits; the runtime executes. Two functions connect them:

    begin(command)              the job for a command: user code (`Call`, `CallEach`), a timer
                                (`After`), the end of other commands (`Interrupt`,
                                `InterruptEach`, `Withdraw`), or None
    event_for(command, reply)   the event that reports the result

    runtime = Runtime(rules, state, begin, event_for)
    runtime.tell(Submitted((1, 2, 3), now()))
    await runtime.until(lambda state: not state.waiting and not state.under_way)
    await runtime.close()

Everything that ends in one turn of the event loop is stepped together; `merge` may combine those
events first. A reply is the result or exception of user code. Code runs on long-lived runner tasks,
so a call that does not wait costs no task. A runner with a changed context variable is not reused.

Laws (RT), with `tests/integration/test_runtime.py`
    RT1  Each call of code and each timer is reported once, when it ends. Withdrawn ones are not
         reported.
    RT2  Any exception of user code is its reply, `CancelledError` and other `BaseException`s
         included. After SystemExit and KeyboardInterrupt, `until` also raises them once, so pending
         work can still be finished.
    RT3  If `event_for` or the reducer rejects a reply, its error is logged and reported instead; so
         is an error of `begin`. If the reducer rejects that too, the runtime has failed, and
         `until` raises the error.
    RT4  Every command of every step begins, in order, whatever observers, logs or callbacks raise.
         A failing observer is logged and counted, and removed after `observer_failures_max`
         failures in a row.
    RT5  Interrupted code is reported when it ends, with its own reply if it has one, else as
         `Refused("interrupted")`. Code that waits for a runner ends at once.
    RT6  Events are stepped in the order in which they were reported; calls of code, in the order in
         which they ended.
    RT7  After `close`, no event is reported, no timer fires and no runner is left, except for code
         that resists cancellation.
    RT8  Code begins in the order and with the concurrency that the reducer requests.
    RT9  The continuation of a call (`CallEach.then`) ends before the call is reported; its
         exception is the reply.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, assert_never, final, get_args

import attrs

from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.reducer import Reducer, Step
from tidegate.model.values import check_type
from tidegate_adapters.base.safe_log import Lines
from tidegate_adapters.runtime.loop_watch import watched

log: Final = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
_say: Final = Lines(log)
S = TypeVar("S")
E = TypeVar("E")
C = TypeVar("C")

_BURST: Final = 256
"""A runner yields to the loop after this many calls that did not wait."""
_PATIENCE_S: Final = 1.0

# --- jobs -----------------------------------------------------------------------------------------


@final
@attrs.frozen
class Call:
    """Call user code; the reply is its result or exception."""

    code: Callable[[], Awaitable[object]]


@final
@attrs.frozen
class CallEach:
    """Call user code with each value; a reply is the tuple of the `Ended` calls of one turn.

    Attributes:
        make: Builds the argument when a call begins; its exception is the reply (RT2).
        then: Called with the argument and any result but None; its result replaces the reply (RT9).
    """

    code: Callable[[Any], Awaitable[object]]
    given: Sequence[object]
    then: Callable[[Any, Any], Awaitable[object]] | None = None
    make: Callable[[Any], object] | None = None


@final
@attrs.frozen
class After:
    """Start a timer; the reply is None."""

    seconds: float


@final
@attrs.frozen
class Interrupt:
    """Cancel the code of this command and report its end (RT5)."""

    command: object


@final
@attrs.frozen
class InterruptEach:
    """Cancel the `CallEach` calls whose command and argument match (RT5)."""

    is_wanted: Callable[[Any, Any], bool]


@final
@attrs.frozen
class Withdraw:
    """Cancel the code or timer of this command without a report."""

    command: object


Job: TypeAlias = Call | CallEach | After | Interrupt | InterruptEach | Withdraw
_JOBS: Final = get_args(Job)


@final
class Ended(NamedTuple):
    """A finished call of `CallEach`.

    `given` is the raw value if `CallEach.make` was not called or failed. Calls that run back to
    back share a clock reading, so the duration includes the overhead between them.
    """

    given: object
    reply: object
    seconds: float = 0.0


@final
class Working(NamedTuple):
    """An unfinished call; `began_s` is on the loop's clock."""

    command: object
    given: object
    began_s: float


class RunsOn(asyncio.CancelledError):
    """Raised by code that is cancelled again while it waits for a thread, which continues."""


_NEW: Final = tuple.__new__
"""Builds `Ended` in half the time."""


def as_failure(reply: object) -> object:
    """Convert exceptions other than a `Failure` to `Ambiguous`: user code may have had any
    effect.
    """
    is_unknown = isinstance(reply, BaseException) and not isinstance(reply, Failure)
    return Ambiguous(type(reply).__name__) if is_unknown else reply


Observer: TypeAlias = Callable[[E, S, Sequence[C]], object]
"""Called with each event, the state after it, and its commands."""


# --- the runtime ----------------------------------------------------------------------------------


@final
class _Work(Generic[C]):
    __slots__ = ("code", "command", "ended", "is_each", "is_withdrawn", "left", "make", "then", "timer")

    def __init__(
        self,
        command: C,
        code: Callable[[Any], Awaitable[object]] | None,
        left: int,
        then: Callable[[Any, Any], Awaitable[object]] | None = None,
        make: Callable[[Any], object] | None = None,
        *,
        is_each: bool,
    ) -> None:
        self.command, self.code, self.left, self.is_each = command, code, left, is_each
        self.then, self.make = then, make
        self.ended: list[Ended] = []  # in this turn
        self.is_withdrawn = False
        self.timer: asyncio.TimerHandle | None = None


@final
class _Runner(Generic[C]):
    __slots__ = ("began_s", "cancels", "given", "is_coming", "task", "work")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.work: _Work[C] | None = None
        self.given: object = None
        self.began_s = 0.0
        self.cancels = 0  # by the runtime, during this call
        self.is_coming = False  # woken, but not yet running

    def cancel(self) -> None:
        self.cancels += 1
        self.task.cancel()


@final
class _Runners(Generic[C]):
    """The runner tasks and the queue of calls that wait for one.

    Args:
        clock: Times each call, in seconds.
        ended: Called at the end of a call with its work, argument, reply and duration in seconds.
        raised: Converts an exception of a call to its reply.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        ended: Callable[[_Work[C], object, object, float], None],
        raised: Callable[[_Runner[C], BaseException], object],
    ) -> None:
        self.context, self.is_closed = contextvars.copy_context(), False
        self._loop, self._clock, self._ended, self._raised = loop, clock, ended, raised
        self._queue: deque[tuple[_Work[C], object]] = deque()
        self._idle: deque[tuple[_Runner[C], asyncio.Future[None]]] = deque()
        self._coming = 0  # the number of such runners
        self._all: dict[_Runner[C], None] = {}

    def __iter__(self) -> Iterator[_Runner[C]]:
        return iter([*self._all])  # a copy, for other threads

    def working(self) -> list[Working]:
        return [Working(each.work.command, each.given, each.began_s) for each in self if each.work is not None]

    def enqueue(self, work: _Work[C], given: Iterable[object]) -> None:
        self._queue.extend([(work, each) for each in given])
        if not self._coming or not work.is_each:  # a single call probably waits: it holds up no calls behind it
            self._call_in()

    def interrupt(self, is_wanted: Callable[[_Work[C], object], bool]) -> None:
        waiting = [each for each in self._queue if is_wanted(*each)]
        if waiting:
            self._queue = deque(each for each in self._queue if not is_wanted(*each))
        for work, given in waiting:
            self._ended(work, given, Refused("interrupted"), 0.0)
        for runner in self._all:
            if runner.work is not None and is_wanted(runner.work, runner.given):
                runner.cancel()

    def _call_in(self) -> None:
        """Wake or create up to two runners if the queue is longer than the number on the way.

        Each runner repeats this: ten turns start a thousand; code that does not wait uses two.
        """
        for _ in range(min(2, len(self._queue) - self._coming)):
            runner = self._woken() or self._made()
            runner.is_coming = True
            self._coming += 1

    def _woken(self) -> _Runner[C] | None:
        while self._idle:
            runner, idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return runner
        return None

    def _made(self) -> _Runner[C]:
        runner = _Runner[C]()
        runner.task = self._loop.create_task(self._run(runner), context=self.context.copy())
        runner.task.add_done_callback(partial(self._retired, runner))
        self._all[runner] = None
        return runner

    def _came(self, runner: _Runner[C]) -> None:
        self._coming -= runner.is_coming
        runner.is_coming = False

    def _retired(self, runner: _Runner[C], task: asyncio.Task[None]) -> None:
        del self._all[runner]
        self._came(runner)
        if not task.cancelled():
            task.exception()  # already reported as a reply
        if not self.is_closed:
            self._call_in()

    async def _run(self, runner: _Runner[C]) -> None:
        if not hasattr(runner, "task"):
            await asyncio.sleep(0)  # an eager task starts inside `_made`: let the current turn end first
        self._came(runner)
        context, clock = self.context, self._clock
        calls, now_s = 0, clock()
        while not self.is_closed:
            if not self._queue:
                idle = self._loop.create_future()
                self._idle.append((runner, idle))
                await idle
                self._came(runner)
                calls, now_s = 0, clock()
                continue
            work, given = self._queue.popleft()
            if not calls and len(self._queue) > self._coming:
                self._call_in()
            calls += 1
            runner.work, runner.given, runner.began_s = work, given, now_s
            assert work.code is not None
            try:
                if work.make is not None:
                    runner.given = given = work.make(given)
                reply = await work.code(given)
                if reply is not None and work.then is not None:
                    reply = await work.then(given, reply)
            except BaseException as error:  # noqa: BLE001  any error is the reply (RT2)
                reply = self._raised(runner, error)
            began_s, now_s = now_s, clock()
            runner.work = runner.given = None
            self._ended(work, given, reply, now_s - began_s)
            is_odd = runner.cancels or runner.task.cancelling() or contextvars.copy_context() != context
            if isinstance(reply, GeneratorExit) or (is_odd and not self._is_as_new(runner)):
                return
            if calls % _BURST == 0:
                await asyncio.sleep(0)
                now_s = clock()

    def _is_as_new(self, runner: _Runner[C]) -> bool:
        """Is the runner free of leftovers: cancellations and changed context variables?"""
        for _ in range(runner.cancels):
            runner.task.uncancel()
        runner.cancels = 0
        return not runner.task.cancelling() and contextvars.copy_context() == self.context


@final
class _Observing:
    def __init__(self, observer: Callable[..., object]) -> None:
        self.observer, self.failures = observer, 0


class Runtime(Generic[S, E, C]):
    """Runs a reducer in the running event loop.

    Args:
        rules: The reducer.
        state: Its initial state.
        begin: The job for a command. Commands are hashable; equal ones are ended together.
        event_for: The event for a command and its reply, or None.
        merge: Combines the events of one turn; the reducer must treat both forms alike. All events
            exist by then, so the reducer may see one of a command that it withdraws in that turn.
        observers: Called after each step.
        fields: The log fields (`extra`) for a command and its argument.
        observer_failures_max: Removes an observer after this many failures in a row.
    """

    def __init__(
        self,
        rules: Reducer[S, E, C],
        state: S,
        begin: Callable[[C], Job | None],
        event_for: Callable[[C, object], E | None],
        *,
        merge: Callable[[Sequence[E]], Iterable[E]] | None = None,
        observers: Iterable[Observer[E, S, C]] = (),
        fields: Callable[[Any, object], Mapping[str, object]] | None = None,
        observer_failures_max: int | None = None,
    ) -> None:
        self.state = state
        self.observer_failures = 0
        self._rules, self._begin, self._event_for, self._merge = rules, begin, event_for, merge
        self._observers = list(map(_Observing, observers))
        self._fields, self._observer_failures_max = fields, observer_failures_max
        self._loop = loop = asyncio.get_running_loop()
        is_asyncios = getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time
        clock = monotonic if is_asyncios else loop.time  # the same, in half the time: each call is timed
        self._runners = _Runners[C](loop, clock, self._end, self._raised)
        self._unwatch = watched(loop, self._called_for) if is_asyncios else lambda: None
        self._told: list[E | _Work[C]] = []  # in this turn: events, and work with ended calls
        self._is_due = self._is_closed = False
        self._works: dict[object, list[_Work[C]]] = {}
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._exits: list[BaseException] = []
        self._failure: Exception | None = None

    # --- public ---

    def tell(self, event: E) -> None:
        """Add an event to those of this turn."""
        self._told.append(event)
        self._come()

    async def until(self, is_reached: Callable[[S], bool]) -> S:
        """Wait for a state; events already reported are stepped before the check.

        Raises:
            SystemExit, KeyboardInterrupt: From user code; the caller may wait again (RT2).
            Exception: The reducer failed, and the runtime does nothing more (RT3).
            Misuse: The runtime is closed.
        """
        await self._over(lambda: bool(self._exits) or (not self._told and is_reached(self.state)))
        if self._exits:
            raise self._exits.pop(0)
        if self._failure is not None:
            raise self._failure
        if not is_reached(self.state):
            raise Misuse("the runtime is closed", why="nothing more will happen", todo="wait before you close it")
        return self.state

    async def stepped(self) -> S:
        """Return the state after every reported event is stepped."""
        await self._over(lambda: not self._told)
        return self.state

    async def _over(self, is_over: Callable[[], bool]) -> None:
        while not (self._is_closed or self._failure is not None or is_over()):
            waiter = (is_over, self._loop.create_future())
            self._waiters.append(waiter)
            try:
                await waiter[1]
            finally:
                self._waiters.remove(waiter)

    def working(self) -> list[Working]:
        """The unfinished calls, including those that resist cancellation."""
        return self._runners.working()

    async def close(self, patience_s: float = _PATIENCE_S) -> None:
        """Cancel all work; log and abandon code that resists for twice `patience_s`."""
        self._is_closed = self._runners.is_closed = True
        self._unwatch()
        self._wake()
        self._drop_all()
        for _ in range(2):  # one may be lost (`tidegate_adapters.base.cancellation`)
            for runner in self._runners:
                runner.cancel()
            if tasks := {runner.task for runner in self._runners}:
                await asyncio.wait(tasks, timeout=patience_s)
        for each in self.working():
            self._say_of(each.command, each.given, logging.WARNING, "%s will not be cancelled, and is left behind")

    # --- turns ---

    def _come(self) -> None:
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._loop.call_soon(self._turn, context=self._runners.context)

    def _turn(self) -> None:
        self._is_due = False
        told, self._told = self._told, []
        if self._is_closed or self._failure is not None:
            return
        try:
            if self._merge is not None and len(told) > 1:
                self._step_merged(self._merge, told)
            else:
                for each in told:
                    if (found := self._as_event(each)) is not None:
                        self._step(*found)
        except Exception as failure:  # noqa: BLE001  of the reducer; `until` raises it
            self._failure = failure
            _say(logging.CRITICAL, "the reducer has failed, and nothing more is done", error=failure)
            self._drop_all()
        self._wake()

    def _wake(self) -> None:
        """Wake waiters whose condition holds or raises; it raises again in `until`."""
        for is_over, waiter in self._waiters:
            try:
                is_due = self._is_closed or self._failure is not None or is_over()
            except Exception:  # noqa: BLE001
                is_due = True
            if is_due and not waiter.done():
                waiter.set_result(None)

    def _as_event(self, told: E | _Work[C]) -> tuple[C | None, E] | None:
        if not isinstance(told, _Work):
            return None, told
        ended, told.ended = told.ended, []
        if told.is_withdrawn:
            return None
        if not told.left:
            self._forget(told)
        event = self._answered(told.command, tuple(ended) if told.is_each else ended[0].reply)
        return None if event is None else (told.command, event)

    def _answered(self, command: C, reply: object) -> E | None:
        """Law RT3."""
        try:
            return self._event_for(command, reply)
        except Exception as error:  # noqa: BLE001  of the reply or its conversion
            self._say_of(command, None, logging.ERROR, "no answer to %s", error)
            return self._event_for(command, error)

    def _step_merged(self, merge: Callable[[Sequence[E]], Iterable[E]], told: list[E | _Work[C]]) -> None:
        """Step the merged events; if anything raises, step the originals one by one."""
        found = [pair for each in told if (pair := self._as_event(each)) is not None]
        steps: list[tuple[E, Step[S, C]]] = []
        state = self.state
        try:
            for event in merge([event for _, event in found]):
                steps.append((event, self._rules.step(state, event)))
                state = steps[-1][1].state
        except Exception as error:  # noqa: BLE001  single steps find the cause
            _say(logging.DEBUG, "stepping one by one", error=error)
            for pair in found:
                self._step(*pair)
            return
        for event, step in steps:
            self._follow(event, step)

    def _step(self, command: C | None, event: E) -> None:
        """Law RT3."""
        try:
            step = self._rules.step(self.state, event)
        except Exception as error:
            if command is None:
                raise
            self._say_of(command, None, logging.ERROR, "no answer to %s", error)
            instead = self._event_for(command, error)
            if instead is None:
                return
            event, step = instead, self._rules.step(self.state, instead)
        self._follow(event, step)

    def _follow(self, event: E, step: Step[S, C]) -> None:
        self.state = step.state
        for observing in self._observers:
            self._observe(observing, event, step)
        for command in step.commands:
            self._carry_out(command)

    def _observe(self, observing: _Observing, event: E, step: Step[S, C]) -> None:
        """Law RT4."""
        try:
            observing.observer(event, step.state, step.commands)
            observing.failures = 0
        except BaseException as error:  # noqa: BLE001  no command is lost
            self.observer_failures += 1
            observing.failures += 1
            self._note(error)
            _say(logging.ERROR, "an observer failed: %s", observing.observer, error=error)
            if observing.failures == self._observer_failures_max:
                self._observers = [each for each in self._observers if each is not observing]
                _say(logging.ERROR, "it is not called again: %s", observing.observer)

    # --- commands ---

    def _carry_out(self, command: C) -> None:
        try:
            job = self._begin(command)
            if job is not None:
                check_type(job, _JOBS, "what to do for a command")
        except BaseException as error:  # noqa: BLE001  user code
            self._note(error)
            work = _Work(command, None, 1, is_each=False)
            self._works.setdefault(command, []).append(work)
            self._end(work, None, error)
            return
        match job:
            case None:
                pass
            case Call(code):
                self._enqueue(_Work(command, lambda _: code(), 1, is_each=False), (None,))
            case CallEach(code_of_each, given, then, make):
                self._enqueue(_Work(command, code_of_each, len(given), then, make, is_each=True), given)
            case After(seconds):
                work = _Work(command, None, 1, is_each=False)
                self._works.setdefault(command, []).append(work)
                work.timer = self._loop.call_later(max(seconds, 0), self._end, work, None, None)
            case Interrupt(other):
                self._runners.interrupt(lambda work, _: work.command == other)
            case InterruptEach(is_wanted):
                self._runners.interrupt(lambda work, given: work.is_each and is_wanted(work.command, given))
            case Withdraw(other):
                for work in tuple(self._works.get(other, ())):
                    self._withdraw(work)
            case _:
                assert_never(job)

    def _withdraw(self, work: _Work[C]) -> None:
        work.is_withdrawn = True
        self._forget(work)
        if work.timer is not None:
            work.timer.cancel()
        self._runners.interrupt(lambda each, _: each is work)

    def _forget(self, work: _Work[C]) -> None:
        left = [each for each in self._works.pop(work.command, ()) if each is not work]
        if left:
            self._works[work.command] = left

    def _drop_all(self) -> None:
        for work in [each for some in self._works.values() for each in some]:
            self._withdraw(work)

    def _end(self, work: _Work[C], given: object, reply: object, seconds: float = 0.0) -> None:
        work.left -= 1
        if not work.ended:
            self._told.append(work)
            self._come()
        work.ended.append(_NEW(Ended, (given, reply, seconds)))

    def _enqueue(self, work: _Work[C], given: Iterable[object]) -> None:
        if not work.left:  # without calls, it has ended
            self._told.append(work)
            self._come()
            return
        self._works.setdefault(work.command, []).append(work)
        self._runners.enqueue(work, given)

    def _raised(self, runner: _Runner[C], error: BaseException) -> object:
        self._note(error)
        if isinstance(error, RunsOn) and runner.work is not None:
            self._say_of(
                runner.work.command, runner.given, logging.WARNING, "%s runs on in a thread, and is left behind"
            )
        return Refused("interrupted") if isinstance(error, asyncio.CancelledError) and runner.cancels else error

    # --- errors ---

    def _called_for(self, task: asyncio.Task[Any]) -> str:
        """Describe the call of this task; used by another thread."""
        for runner in self._runners:
            if runner.task is task and runner.work is not None and self._fields is not None:
                fields = self._fields(runner.work.command, runner.given)
                return ", ".join(f"{name} {value}" for name, value in fields.items())
        return ""

    def _note(self, error: BaseException) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._exits.append(error)

    def _say_of(
        self, command: object, given: object, level: int, text: str, error: BaseException | None = None
    ) -> None:
        """Log a line about a command with its fields; a given call also appears in the text."""
        fields: Mapping[str, object] | None = None
        with suppress(BaseException):
            fields = None if self._fields is None else self._fields(command, given)
        about = ", ".join(f"{name} {value}" for name, value in (fields or {}).items()) if given is not None else ""
        _say(level, f"{text}: %s" if about else text, command, *([about] if about else []), error=error, extra=fields)
