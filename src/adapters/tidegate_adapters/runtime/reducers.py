"""The one runtime that carries out the commands of reducers (`tidegate.model.reducer`), on asyncio; it knows no server.

A reducer decides and never waits; the runtime does what it decides and decides nothing. It is told how by two functions:

    begin(command)              what to do: call user code (`Call`, `CallEach`), wait (`After`), end what other commands have
                                begun (`Interrupt`, `InterruptEach`, `Withdraw`), or nothing more (None)
    event_for(command, reply)   the event that says what became of it; rooms of tidegate have one of this name

    runtime = Runtime(rules, state, begin, event_for)
    runtime.tell(Submitted((1, 2, 3), now()))
    await runtime.until(lambda state: not state.waiting and not state.under_way)
    await runtime.close()

All that came to an end in one turn of the event loop is handed over at once: `step` is folded over it, or over what `merge`
makes of it where a reducer has events for several. A reply is what user code returned or the exception that it raised. Code
runs on runners, tasks that live long, so a call of code that does not wait costs no task; a runner in which code has changed
a context variable is not used again.

Laws (RT), with `tests/integration/test_runtime.py`
    RT1  Each call of code, and each timer, is told once: when it has ended. What was withdrawn is not told.
    RT2  Whatever code raises is its reply, `CancelledError` and other `BaseException`s included. After SystemExit and
         KeyboardInterrupt, which are replies as well, `until` raises them once: what is owed can still be done then.
    RT3  A reply of which `event_for` or the reducer makes nothing is told as the error that they raised; so is what `begin`
         raised. It is logged. If the reducer does not take that either, the runtime has failed, and `until` says so.
    RT4  Every command of every step is begun, in order, whatever observers, logs or callbacks raise. Observers that raise are
         logged and counted, and switched off after `observer_failures_max` times in a row.
    RT5  Interrupted code is told when it ends, with its own reply if it has one, and as `Refused("interrupted")` otherwise;
         code that waits for a runner has ended at once.
    RT6  Events are stepped in the order in which they were told; of several calls of code, in that in which they ended.
    RT7  After `close` nothing is told, no timer fires and no runner is left, but for code that will not be cancelled.
    RT8  Code begins in the order in which it was asked for, and as much at once as was asked for: how much that is, the
         reducer decides.
    RT9  What a call ends with (`CallEach.then`) has ended before the call is told, and what that raises is its reply.
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
"""A log that raises loses no command."""

S = TypeVar("S")
E = TypeVar("E")
C = TypeVar("C")

_BURST: Final = 256
"""After so many calls that did not wait, a runner lets others go."""
_PATIENCE_S: Final = 1.0
"""How long `close` waits for code that was cancelled."""


# --- what there is to do ------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Call:
    """Call the user's code; the reply is what it returned or raised."""

    code: Callable[[], Awaitable[object]]


@final
@attrs.frozen
class CallEach:
    """Call the user's code with each of these; the replies are tuples of `Ended`, for those that ended in one turn.

    Attributes:
        code: The user's.
        given: What it is called with, or made of.
        make: What makes what it is called with of one of those, when its turn has come; None where they are that. What it
            raises is the reply (RT2).
        then: What a call ends with that has returned anything but None, given what it was called with and what it has
            returned; then its reply is that of the call (RT9). None for nothing.
    """

    code: Callable[[Any], Awaitable[object]]
    given: Sequence[object]
    then: Callable[[Any, Any], Awaitable[object]] | None = None
    make: Callable[[Any], object] | None = None


@final
@attrs.frozen
class After:
    """Wait for so many seconds; the reply is None."""

    seconds: float


@final
@attrs.frozen
class Interrupt:
    """Cancel the code of this command; that it has ended is told (RT5)."""

    command: object


@final
@attrs.frozen
class InterruptEach:
    """Cancel the calls of `CallEach` for which this holds, given the command and what the code was given (RT5)."""

    is_wanted: Callable[[Any, Any], bool]


@final
@attrs.frozen
class Withdraw:
    """Cancel the code or the timer of this command; nothing more is told of it."""

    command: object


Job: TypeAlias = Call | CallEach | After | Interrupt | InterruptEach | Withdraw
_JOBS: Final = get_args(Job)


@final
class Ended(NamedTuple):
    """A call of `CallEach` that has ended: what the code was given, what it returned or raised, and how long it took.

    Where that was never made (`CallEach.make`), for it was interrupted before or could not be, it is what it is made of.
    Where calls follow one another without waiting, one clock is read between two: what is around a call counts as well.
    """

    given: object
    reply: object
    seconds: float = 0.0


@final
class Working(NamedTuple):
    """A call that has begun and has not ended: of which command, with what, since when on the loop's clock, in seconds."""

    command: object
    given: object
    began_s: float


class RunsOn(asyncio.CancelledError):
    """Raised by code that is cancelled once more while it waits for what cannot be, such as a thread: that goes on without it."""


_NEW: Final = tuple.__new__
"""Makes what ended of each call in half the time."""


def as_failure(reply: object) -> object:
    """The reply, where it is no exception, or one that programs know; any other exception as `Ambiguous`, with its type.

    Rooms of tidegate know failures (`tidegate.model.effects`), and user code may raise anything: then nobody knows what it has
    done.
    """
    is_unknown = isinstance(reply, BaseException) and not isinstance(reply, Failure)
    return Ambiguous(type(reply).__name__) if is_unknown else reply


Observer: TypeAlias = Callable[[E, S, Sequence[C]], object]
"""Called with each event, the state after it, and the commands that follow."""


# --- the runtime --------------------------------------------------------------------------------------------------------


@final
class _Work(Generic[C]):
    """A command whose code has not ended everywhere, or whose timer runs."""

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
    """A task that calls code, one call after the other, and what it is at."""

    __slots__ = ("began_s", "cancels", "given", "is_coming", "task", "work")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.work: _Work[C] | None = None
        self.given: object = None
        self.began_s = 0.0
        self.cancels = 0  # by the runtime, since it is at this
        self.is_coming = False  # was it called in, and has not come yet?

    def cancel(self) -> None:
        """End what it is at."""
        self.cancels += 1
        self.task.cancel()


@final
class _Runners(Generic[C]):
    """The tasks that call code, and the calls that wait for one of them.

    Args:
        loop: Where they run.
        clock: Each call is timed by it.
        ended: Is told that a call has ended: of which work, with what, its reply, and how many seconds it took.
        raised: Makes the reply of what a call in a runner has raised.

    Attributes:
        context: As it was when this was made.
        is_closed: No runner begins a call any more.
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
        self._coming = 0  # how many runners are
        self._all: dict[_Runner[C], None] = {}

    def __iter__(self) -> Iterator[_Runner[C]]:
        return iter([*self._all])  # also in another thread

    def working(self) -> list[Working]:
        """The calls that have begun and not ended."""
        return [Working(each.work.command, each.given, each.began_s) for each in self if each.work is not None]

    def enqueue(self, work: _Work[C], given: Iterable[object]) -> None:
        """Call its code with each of these, as soon as there are runners."""
        self._queue.extend([(work, each) for each in given])
        if not self._coming:
            self._call_in()

    def interrupt(self, is_wanted: Callable[[_Work[C], object], bool]) -> None:
        """End the calls for which this holds."""
        waiting = [each for each in self._queue if is_wanted(*each)]
        if waiting:
            self._queue = deque(each for each in self._queue if not is_wanted(*each))
        for work, given in waiting:
            self._ended(work, given, Refused("interrupted"), 0.0)
        for runner in self._all:
            if runner.work is not None and is_wanted(runner.work, runner.given):
                runner.cancel()

    def _call_in(self) -> None:
        """Wake two runners, or make them, where there is more to do than those take who are on their way.

        Each does so again, so a thousand are there in ten turns, and two if code does not wait.
        """
        for _ in range(min(2, len(self._queue) - self._coming)):
            runner = self._woken() or self._made()
            runner.is_coming = True
            self._coming += 1

    def _woken(self) -> _Runner[C] | None:
        """A runner that was idle, if there is one."""
        while self._idle:
            runner, idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return runner
        return None

    def _made(self) -> _Runner[C]:
        """A new one."""
        runner = _Runner[C]()
        runner.task = self._loop.create_task(self._run(runner), context=self.context.copy())
        runner.task.add_done_callback(partial(self._retired, runner))
        self._all[runner] = None
        return runner

    def _came(self, runner: _Runner[C]) -> None:
        """It is on its way no more."""
        self._coming -= runner.is_coming
        runner.is_coming = False

    def _retired(self, runner: _Runner[C], task: asyncio.Task[None]) -> None:
        """A runner has ended, for whatever reason."""
        del self._all[runner]
        self._came(runner)
        if not task.cancelled():
            task.exception()  # it was told as a reply
        if not self.is_closed:
            self._call_in()

    async def _run(self, runner: _Runner[C]) -> None:
        """Call what waits, as long as the runner is as good as new."""
        if not hasattr(runner, "task"):
            await asyncio.sleep(0)  # tasks start eagerly here: it was not yet called in, and steps are being followed
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
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the reply (RT2)
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
        """Tell whether nothing is left in a runner of what it called: no cancellation, no context variable."""
        for _ in range(runner.cancels):
            runner.task.uncancel()
        runner.cancels = 0
        return not runner.task.cancelling() and contextvars.copy_context() == self.context


@final
class _Observing:
    """An observer, and how often in a row it has failed."""

    def __init__(self, observer: Callable[..., object]) -> None:
        self.observer, self.failures = observer, 0


class Runtime(Generic[S, E, C]):
    """Runs a reducer in the event loop in which it is made.

    Args:
        rules: The reducer.
        state: Where it begins.
        begin: What to do for a command; commands are hashable, and equal ones are ended together.
        event_for: The event that says what became of a command, given the reply; None if nothing follows.
        merge: What makes fewer events of those of one turn; the reducer must take either for the same. All of them have been
            made by then, so that it may hear of what it withdraws in that very turn.
        observers: Called after each step.
        fields: What a line of the log has as fields (`extra`) that is about a command, and about what its code was given.
        observer_failures_max: After so many failures in a row an observer is no longer called; None for never.

    Attributes:
        state: Of the reducer, now.
        observer_failures: How often observers have raised.
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
        self._told: list[E | _Work[C]] = []  # in this turn: events, and work of which something has ended
        self._is_due = self._is_closed = False
        self._works: dict[object, list[_Work[C]]] = {}
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._exits: list[BaseException] = []
        self._failure: Exception | None = None

    # --- from outside ---

    def tell(self, event: E) -> None:
        """Hand over an event, with all that ends in this turn of the event loop."""
        self._told.append(event)
        self._come()

    async def until(self, is_reached: Callable[[S], bool]) -> S:
        """Wait for a state; what has been told by then is stepped before any is looked at.

        Args:
            is_reached: Tells whether the state is the one.

        Returns:
            The state.

        Raises:
            SystemExit, KeyboardInterrupt: User code has raised it; whoever catches it may go on waiting (RT2).
            Exception: The reducer has raised it, so that nothing more will happen (RT3).
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
        """Wait until all that was told is stepped.

        Returns:
            The state then.
        """
        await self._over(lambda: not self._told)
        return self.state

    async def _over(self, is_over: Callable[[], bool]) -> None:
        """Wait until this is so, or nothing more will happen."""
        while not (self._is_closed or self._failure is not None or is_over()):
            waiter = (is_over, self._loop.create_future())
            self._waiters.append(waiter)
            try:
                await waiter[1]
            finally:
                self._waiters.remove(waiter)

    def working(self) -> list[Working]:
        """The calls of code that have begun and not ended, those included that will not be cancelled."""
        return self._runners.working()

    async def close(self, patience_s: float = _PATIENCE_S) -> None:
        """Cancel whatever is left; code that will not be cancelled is logged, and left behind.

        Args:
            patience_s: How long to wait for it, twice, in seconds.
        """
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
        """See to it that what was told is stepped soon."""
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._loop.call_soon(self._turn, context=self._runners.context)

    def _turn(self) -> None:
        """Step all that was told, and begin what follows."""
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
        except Exception as failure:  # noqa: BLE001  the reducer's; whoever waits gets it
            self._failure = failure
            _say(logging.CRITICAL, "the reducer has failed, and nothing more is done", error=failure)
            self._drop_all()
        self._wake()

    def _wake(self) -> None:
        """Wake whoever waits for this state, and whoever cannot tell: it then raises what its function does."""
        for is_over, waiter in self._waiters:
            try:
                is_due = self._is_closed or self._failure is not None or is_over()
            except Exception:  # noqa: BLE001
                is_due = True
            if is_due and not waiter.done():
                waiter.set_result(None)

    def _as_event(self, told: E | _Work[C]) -> tuple[C | None, E] | None:
        """What was told as an event, and of which command it tells."""
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
        """The event for a reply, or for the error that is made of it (RT3)."""
        try:
            return self._event_for(command, reply)
        except Exception as error:  # noqa: BLE001  of the user's answer, or of what looks at it
            self._say_of(command, None, logging.ERROR, "no answer to %s", error)
            return self._event_for(command, error)

    def _step_merged(self, merge: Callable[[Sequence[E]], Iterable[E]], told: list[E | _Work[C]]) -> None:
        """Step what `merge` makes of the events; if anything raises, step them one by one."""
        found = [pair for each in told if (pair := self._as_event(each)) is not None]
        steps: list[tuple[E, Step[S, C]]] = []
        state = self.state
        try:
            for event in merge([event for _, event in found]):
                steps.append((event, self._rules.step(state, event)))
                state = steps[-1][1].state
        except Exception as error:  # noqa: BLE001  one by one it shows whose fault it is
            _say(logging.DEBUG, "stepping one by one", error=error)
            for pair in found:
                self._step(*pair)
            return
        for event, step in steps:
            self._follow(event, step)

    def _step(self, command: C | None, event: E) -> None:
        """Step; an answer that the reducer does not take is told as the error that it raised (RT3)."""
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
        """Tell an observer; what it raises is its own affair (RT4)."""
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
        except BaseException as error:  # noqa: BLE001  of the user's, or of what asks it
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
        """A call of code, or a timer, has ended, after so long."""
        work.left -= 1
        if not work.ended:
            self._told.append(work)
            self._come()
        work.ended.append(_NEW(Ended, (given, reply, seconds)))

    def _enqueue(self, work: _Work[C], given: Iterable[object]) -> None:
        if not work.left:  # of nothing, all has ended
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

    # --- what goes wrong ---

    def _called_for(self, task: asyncio.Task[Any]) -> str:
        """What the code was called for that runs in this task, in words; asked from another thread."""
        for runner in self._runners:
            if runner.task is task and runner.work is not None and self._fields is not None:
                fields = self._fields(runner.work.command, runner.given)
                return ", ".join(f"{name} {value}" for name, value in fields.items())
        return ""

    def _note(self, error: BaseException) -> None:
        """Whoever waits gets what is to end the process."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._exits.append(error)

    def _say_of(
        self, command: object, given: object, level: int, text: str, error: BaseException | None = None
    ) -> None:
        """The same of a command, with the fields that are known of it; in its text, too, where it says which call it was."""
        fields: Mapping[str, object] | None = None
        with suppress(BaseException):
            fields = None if self._fields is None else self._fields(command, given)
        about = ", ".join(f"{name} {value}" for name, value in (fields or {}).items()) if given is not None else ""
        _say(level, f"{text}: %s" if about else text, command, *([about] if about else []), error=error, extra=fields)
