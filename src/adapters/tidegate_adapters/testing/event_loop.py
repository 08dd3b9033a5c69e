"""An asyncio event loop for tests, with virtual time and a seeded order of ready tasks.

    async def main(random: Random) -> None: ...
    run(main, seed=7)

Real asyncio code runs on it with an in-memory network. A test searches seeds for a race, then
repeats the seed that found it; the pytest fixture `seeded` does both.

    L1  The same seed gives the same run: order of steps, instants, order of sets of tasks and
        futures, and draws from `random`, whose state is restored at the end.
    L2  Time moves only when no callback is ready, to the earliest timer; or when a test calls
        `stall`.
    L3  Any task that is ready in a turn may run first. Plain callbacks keep their order of
        registration, which asyncio documents and code relies on. Timers of one instant have no
        order.
    L4  A run with no ready callback and no timer ends at once and names where each task waits
        (`Deadlock`). A run longer than `TURNS_MAX` turns ends too (`Endless`).
    L5  An error that only the loop's exception handler receives fails the run (`Unhandled`): a
        callback raised, or a task's exception was never retrieved.
    L6  The loop refuses outside input: sockets, processes, pipes, signals and callbacks from
        threads. It calls executor functions itself, in no time.
    L7  `time.monotonic`, `time.time` and their `_ns` forms show the loop's time to its own thread;
        a run begins at `EPOCH_S` of `time.time`.

Not controlled: other clocks, functions imported by name (`from time import monotonic`), random
numbers from outside `random`, and the order of sets of other objects.

Alternatives considered: async-solipsism (no seeded order), looptime and aiotools' virtual clock
(time alone), simloop (needs Python 3.12), seedloop (four commits old), trio's autojump clock (not
asyncio). This loop uses the public `AbstractEventLoop`, and private parts only of `Handle`. After
the schedulers of trio's tests and of FoundationDB's simulation (Zhou et al., SIGMOD 2021).
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import random
import sys
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple, cast, final

from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND
from tidegate_adapters.base.decorators import length_of

TURNS_MAX: Final = 1_000_000
"""A run of more loop turns counts as endless."""
EPOCH_S: Final = 1_700_000_000
"""Start of each run by the wall clock, in seconds since 1970."""

_YOUNG_MAX: Final = 20_000
"""New objects that a run may keep before the garbage collector runs early."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@final
class Deadlock(TidegateError):  # noqa: N818  it says what happened
    """No callback is ready and no timer runs."""


@final
class Endless(TidegateError):  # noqa: N818  it says what happened
    """The run is longer than `TURNS_MAX` turns."""


@final
class Unhandled(TidegateError):  # noqa: N818  it says what happened
    """An error reached only the loop's exception handler."""


def run(main: Callable[[Random], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run a coroutine on its own loop, then cancel the tasks it leaves behind.

    Args:
        main: Called with a generator of the same seed, for the test's own draws.
        seed: Decides the order of tasks.

    Raises:
        Deadlock: L4.
        Endless: L4.
        Unhandled: L5.
    """
    loop = _SeededLoop(seed)  # type: ignore[abstract]  # missing methods are refused, below
    drawn = random.getstate()
    random.seed(seed)
    try:
        with _clocks_of(loop), _garbage_at_the_end():
            try:
                result = loop.run_until_complete(main(Random(f"{seed} of main")))  # noqa: S311  it draws workloads
            except BaseException:
                with suppress(Deadlock, Endless):
                    loop.end()
                raise
            loop.end()
    finally:
        random.setstate(drawn)
    loop.check()
    return cast("T", result)


@contextmanager
def _clocks_of(loop: _SeededLoop) -> Generator[None, None, None]:
    """Show this thread the loop's time (L7); other threads see the real clocks."""
    mine, began = threading.get_ident(), {"monotonic": 0, "time": EPOCH_S}
    kept = {f"{name}{unit}": getattr(time, f"{name}{unit}") for name in began for unit in ("", "_ns")}

    def showing(name: str, begun: int, unit: float) -> Callable[[], float]:
        before, get_ident = kept[name], threading.get_ident

        def shown() -> Any:
            if get_ident() != mine:
                return before()
            return begun + loop.now if unit == 1 else begun * unit + round(loop.now * unit)

        return shown

    for name, begun in began.items():
        setattr(time, name, showing(name, begun, 1))
        setattr(time, f"{name}_ns", showing(f"{name}_ns", begun, 10**9))
    try:
        yield
    finally:
        for name, clock in kept.items():
            setattr(time, name, clock)


@contextmanager
def _garbage_at_the_end() -> Generator[None, None, None]:
    """Collect cycles once at the end of the block, earlier only if there are many."""
    kept, *others = gc.get_threshold()
    if kept:
        gc.set_threshold(max(kept, _YOUNG_MAX), *others)
    try:
        yield
    finally:
        gc.set_threshold(kept, *others)
        if kept and gc.isenabled():
            gc.collect(0)


def stall(length: timedelta) -> None:
    """Advance the time, of at least 0, while no task runs, as during a long computation."""
    lasts, loop = length_of(length, "length", 0), asyncio._get_running_loop()  # noqa: SLF001  the public one raises where there is none
    if not isinstance(loop, _SeededLoop):
        raise Misuse(f"cannot stall {'no loop' if loop is None else type(loop).__name__}", todo="call it in a run")
    loop.now += lasts / SECOND


class _Future(asyncio.Future[Any]):
    """A future with a hash drawn by the loop."""

    _place: int | None = None

    def __hash__(self) -> int:
        if self._place is None:  # few are ever in a set
            self._place = cast("_SeededLoop", self.get_loop()).random.getrandbits(60)
        return self._place


class _Task(asyncio.Task[Any]):
    """A task with a hash drawn by the loop."""

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: _SeededLoop, name: str | None, **more: Any) -> None:
        self._place = loop.random.getrandbits(60)
        super().__init__(coro, loop=loop, name=name or f"task {next(loop.numbers)}", **more)

    def __hash__(self) -> int:
        return self._place


class _Handle(asyncio.Handle):
    """One constructor call where asyncio's has three: handles dominate the loop's cost."""

    __slots__ = ()
    _repr = _source_traceback = None  # there is no debug mode

    def __init__(self, callback: Any, args: Any, loop: _SeededLoop, context: Context | None) -> None:
        self._callback, self._args, self._loop, self._cancelled = callback, args, loop, False
        self._context = copy_context() if context is None else context

    def cancel(self) -> None:
        self._cancelled, self._callback, self._args = True, None, ()


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(self, when: float, callback: Any, args: Any, loop: _SeededLoop, context: Context | None) -> None:
        self._when, self._callback, self._args, self._loop, self._cancelled = when, callback, args, loop, False
        self._context = copy_context() if context is None else context

    def cancel(self) -> None:
        self._cancelled, self._callback, self._args = True, None, ()


class _SeededLoop(asyncio.AbstractEventLoop):
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  it draws schedules
        self.now = 0.0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []  # a heap
        self.numbers = count(1)  # for stable task names, and to order timers
        self._thread: int | None = None  # the running thread
        self._is_stopping = self._is_closed = self._is_in_executor = False
        self._factory: Any = None
        self._handler: Any = None
        self._unhandled: list[dict[str, Any]] = []
        self._generators: list[weakref.ref[AsyncGenerator[Any, Any]]] = []

    # --- turns ---

    def _next_turn(self) -> list[asyncio.Handle]:
        timers, ready = self._timers, self._ready
        if not ready or (timers and timers[0][0] <= self.now):
            self._add_due()
        self._ready = []
        return ready if len(ready) == 1 else self._in_order(ready)

    def _add_due(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and timers[0][-1]._cancelled:  # noqa: SLF001  for each turn, a call less
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Deadlock(
                    f"nothing is ready and no timer runs, {self.now:g} s after the start",
                    where="; ".join(sorted(map(_standing, asyncio.all_tasks(self)))),
                    todo="look for who should have woken one of these",
                )
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            ready.append(heapq.heappop(timers)[-1])

    def _in_order(self, handles: list[asyncio.Handle]) -> list[asyncio.Handle]:
        """Tasks' steps in random order; plain callbacks keep theirs (L3)."""
        plain = [each for each in handles if not isinstance(getattr(each._callback, "__self__", None), asyncio.Task)]  # type: ignore[attr-defined]  # noqa: SLF001
        if len(plain) == len(handles):
            return handles
        draw, order = self.random.random, handles
        for last in range(len(order) - 1, 0, -1):  # like `shuffle`, in half the time
            drawn = int(draw() * (last + 1))
            order[last], order[drawn] = order[drawn], order[last]
        if plain:
            kept, are_plain = iter(plain), {*map(id, plain)}
            order = [next(kept) if id(each) in are_plain else each for each in order]
        return order

    def run_forever(self) -> None:
        if self._thread is not None or self._is_closed:
            raise Misuse("the loop runs already, or is closed", why="each run has a loop of its own")
        self._thread = threading.get_ident()

        def dropped(generator: AsyncGenerator[Any, Any]) -> None:
            self.call_soon(self.create_task, generator.aclose())

        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=lambda each: self._generators.append(weakref.ref(each)),
            finalizer=dropped,
        )
        asyncio._set_running_loop(self)  # noqa: SLF001  asyncio keeps it for loops
        try:
            for _ in range(TURNS_MAX):
                turn = self._next_turn()
                for number, handle in enumerate(turn):
                    if handle._cancelled:  # noqa: SLF001
                        continue
                    try:
                        handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # noqa: SLF001  the loop's part of it
                    except (SystemExit, KeyboardInterrupt):
                        self._ready[:0] = turn[number + 1 :]
                        raise
                    except BaseException as error:  # noqa: BLE001  goes to the exception handler
                        context = {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
                        self.call_exception_handler(context)
                if self._is_stopping:
                    return
            raise Endless(
                f"the run has not ended after {TURNS_MAX:,} turns, {self.now:g} s after the start",
                where="; ".join(sorted(map(_standing, asyncio.all_tasks(self)))),
                todo="look for a task that waits in a circle",
            )
        finally:
            self._is_stopping, self._thread = False, None
            asyncio._set_running_loop(None)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._ended)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._ended)
        return task.result()

    def _ended(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled() or not isinstance(future.exception(), SystemExit | KeyboardInterrupt):
            self.stop()  # as in asyncio: those two have left the loop already

    def stop(self) -> None:
        self._is_stopping = True

    def is_running(self) -> bool:
        return self._thread is not None

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def end(self) -> None:
        try:
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            if left:
                self.run_until_complete(asyncio.wait(left))
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.close()

    def check(self) -> None:
        for context in self._unhandled:
            raise Unhandled(
                str(context.get("message")),
                where=str(context.get("task") or context.get("future") or context.get("handle") or ""),
                why=repr(context.get("exception")),
            ) from context.get("exception")

    async def shutdown_asyncgens(self) -> None:
        for each in self._generators:
            if (generator := each()) is not None:
                await generator.aclose()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  asyncio's
        ...

    # --- callbacks, timers and tasks ---

    def time(self) -> float:
        return self.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")  # asyncio's text, which code matches
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._is_in_executor or self._thread not in {None, threading.get_ident()}:
            raise Misuse(
                "a thread calls back into a loop that is deterministic",
                why="nobody can tell when it does",
                todo="have the test stand in for what runs in threads",
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        handle = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self.random.random(), next(self.numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, **more: Any) -> asyncio.Task[Any]:
        if self._factory is None:
            return _Task(coro, self, name, **more)
        return cast("asyncio.Task[Any]", self._factory(self, coro, name=name, **more))

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def run_in_executor(self, _executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def called() -> None:
            if future.cancelled():
                return
            self._is_in_executor = True
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  goes to the future
                future.set_exception(error)
            finally:
                self._is_in_executor = False

        self.call_soon(called)
        return future

    # --- what goes wrong ---

    def set_exception_handler(self, handler: Any) -> None:
        self._handler = handler

    def get_exception_handler(self) -> Any:
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self._unhandled.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None: ...


def _standing(task: asyncio.Task[Any]) -> str:
    """The calls in which a task waits, outermost first."""
    calls, coroutine = [], cast("Any", task.get_coro())
    while frame := getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None):
        calls.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return f"{task.get_name()} waits at {' > '.join(calls)}"


def _refusing(name: str) -> Any:
    def refused(*_args: object, **_more: object) -> None:
        raise Misuse(
            f"{name} is refused on a loop that is deterministic",
            why="nothing comes from outside, so that a seed says all",
            todo="have the test stand in for it, in memory",
        )

    return refused


for _name in vars(asyncio.AbstractEventLoop):
    if _name[0] != "_" and _name not in vars(_SeededLoop):
        setattr(_SeededLoop, _name, _refusing(_name))
