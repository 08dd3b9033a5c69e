"""The loop that runs a program against the real world, sync and async.

A program is a coroutine of effects (`tidegate.model.effects`). A handler performs one effect and
answers it. The driver passes effects to the handler and answers to the program:

    the handler answers or raises a Failure    a fresh copy is raised into the program
    the handler answers anything else          it is sent into the program
    the handler raises anything else           the driver closes the program and re-raises
    the program returns                        that is the result
    the program raises                         the caller gets it, an uncaught Failure included

So no program can swallow a cancellation, Ctrl-C or an error in user code. Effects of its `finally`
blocks get no answer on the way out. The last effect may have happened; the next process must find
out, as after a crash. At its end, a run aborts its transactions that may still be open.

Logging: the first failed attempt is debug, later ones are warnings, each with the delay before the
next. A run that gives up is an error: its last attempt failed, or its result says so
(`tidegate.retries.attempt_delays.Attempted`), despite later reads or cleanup. A returned failure is for the
caller to judge. Refusals are answers and are not logged. Lines name the program, the kind of effect
and the handler's message, and show no values.

An effect that a program creates and never awaits is logged once per program.

The type of an effect selects its handler:

    handle = choosing(documents(Embedded()), local({"send": send_mail}))
    program = transition("jobs", INVOCATION, "job-1", PENDING, runner="r1", request=request)
    answer = run(program, handle)

A program that calls no user code needs only a store: `run(program, Mongo(client, "shop"))`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from random import randint
from types import CodeType, CoroutineType, MappingProxyType
from typing import Any, ClassVar, Final, NoReturn, Protocol, TypeAlias, TypeVar, final, get_args

from tidegate.model.effects import Call, Effect, Failure, Note, Now, Program, Refused, Sleep, checked_effect
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.immutable import must_be_value
from tidegate.model.instants import PPM, SECOND, WALL, Instant
from tidegate.model.operations import Operation, StoreTime
from tidegate.model.record_counts import CountRecords
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.model.unawaited import forgotten
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate.retries.attempt_delays import Attempted

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Handle: TypeAlias = Callable[[Effect[object]], object]
AsyncHandle: TypeAlias = Callable[[Effect[object]], Awaitable[object]]

Handlers: TypeAlias = Mapping[type[Effect[Any]], Callable[[Any], R]]
"""Effect type -> its handler. R is `object`, or `Awaitable[object]` in an event loop."""


class Store(Protocol[R_co]):
    """A store that performs document operations: `Mongo`, `AsyncMongo`, `Embedded`."""

    is_store: ClassVar[bool]

    def __call__(self, effect: Any, /) -> R_co: ...


_NO_CALLS: Final[Mapping[str, Any]] = MappingProxyType({})
CLOSINGS_MAX: Final = 100
ABORT_SECONDS: Final = 1.0
"""How long an async run waits for the abort of an open transaction."""

_LOG: Final = logging.getLogger(__name__)
_STORED: Final = (*get_args(Operation), FindChanged, FindOrphaned, CountRecords, StoreTime)
_VALUES: Final = frozenset((*_STORED, Now, Sleep))
"""Effects that check their values at construction."""


def run(program: Program[T], handle: Handle | Handlers[object] | Store[object]) -> T:
    """Run a program to its end.

    Args:
        program: A program that has not begun.
        handle: Performs and answers one effect. `local()` (clock, sleep, notes) completes a store,
            a table of handlers, and a handle of `choosing`.

    Raises:
        UnknownEffect: The program awaits something that is no effect, or that no handler knows.
        Misuse: The handler is async.
        Failure: The program did not catch it.
    """
    _warn_of_forgotten(program)
    handle = _completed(handle, local)
    attempts, begun = _Attempts(program), _Begun()
    try:
        asked = _resumed(program, None)
        while not isinstance(asked, tuple):
            if type(asked) in _OF_TRANSACTIONS:
                begun.sent(asked)
            try:
                reply = handle(asked)
            except Failure as failure:
                reply = failure
            if type(reply) is CoroutineType:
                _unwanted(reply)
            if type(asked) in _OF_TRANSACTIONS:
                begun.answered(asked, reply)
            if attempts.is_pending or isinstance(reply, Failure):
                attempts.note(asked, reply)
            asked = _resumed(program, reply)
    except BaseException as error:
        _close(program)
        if isinstance(error, Failure):
            attempts.end(None)
        raise
    finally:
        for transaction in tuple(begun.values()):
            with suppress(Exception):  # the store's timeout ends it
                handle(AbortTransaction(transaction))
    attempts.end(asked[0])
    return asked[0]


async def run_async(
    program: Program[T], handle: AsyncHandle | Handlers[Awaitable[object]] | Store[Awaitable[object]]
) -> T:
    """As `run`, in an event loop with async handlers and `local_async()`.

    Raises:
        CancelledError: The task was cancelled. The last effect may have happened.
    """
    _warn_of_forgotten(program)
    handle = _completed(handle, local_async)
    attempts, begun = _Attempts(program), _Begun()
    try:
        asked = _resumed(program, None)
        while not isinstance(asked, tuple):
            if type(asked) in _OF_TRANSACTIONS:
                begun.sent(asked)
            try:
                answer = handle(asked)
                if not isinstance(answer, Awaitable):
                    raise Misuse("a handler of a thread in an event loop", todo="use run, or a handler that is async")
                reply = await answer
            except Failure as failure:
                reply = failure
            if type(asked) in _OF_TRANSACTIONS:
                begun.answered(asked, reply)
            if attempts.is_pending or isinstance(reply, Failure):
                attempts.note(asked, reply)
            asked = _resumed(program, reply)
    except BaseException as error:
        _close(program)
        if isinstance(error, Failure):
            attempts.end(None)
        raise
    finally:
        for transaction in tuple(begun.values()):
            with suppress(Exception):
                async with asyncio.timeout(ABORT_SECONDS):
                    await handle(AbortTransaction(transaction))
    attempts.end(asked[0])
    return asked[0]


def _warn_of_forgotten(program: Program[T]) -> None:
    code = getattr(program, "cr_code", None)
    if code is None or code in _CHECKED:
        return
    _CHECKED.add(code)
    with suppress(Exception):  # this check must not end a run
        for each in forgotten(program):
            _LOG.warning("%s: %s; write `await %s(...)`", code.co_name, each, each.call)


_CHECKED: Final[set[CodeType]] = set()
_OF_TRANSACTIONS: Final = frozenset({InTransaction, CommitTransaction, AbortTransaction})


@final
class _Begun(dict[str, Transaction]):
    """The transactions that a run may have left open, by session."""

    def sent(self, asked: Effect[object]) -> None:
        """Record it BEFORE the handler runs, whose outcome is unknown."""
        if type(asked) is InTransaction:
            self[asked.transaction.session] = asked.transaction

    def answered(self, asked: Effect[object], reply: object) -> None:
        is_over = type(asked) is AbortTransaction or (type(asked) is CommitTransaction and isinstance(reply, bool))
        if is_over:
            self.pop(asked.transaction.session, None)  # type: ignore[attr-defined]


@final
class _Attempts:
    __slots__ = ("_failed", "_is_last", "_program", "is_pending")

    def __init__(self, program: Program[Any]) -> None:
        self._program: Final[str] = getattr(program, "__name__", type(program).__name__)
        self._failed = 0
        self._is_last = False  # without a later success
        self.is_pending = False  # the same, or without a later wait

    def note(self, asked: Effect[object], reply: object) -> None:
        if isinstance(reply, Failure):
            if not isinstance(reply, Refused):
                self.is_pending = self._is_last = True
                self._failed += 1
                what = self._program, type(asked).__name__, self._failed, reply
                _LOG.log(self._level, "%s: %s has failed (%d): %s", *what)
        elif isinstance(asked, Sleep):
            _LOG.log(self._level, "%s: goes on after a %s", self._program, asked)
            self.is_pending = self._is_last
        else:
            self._is_last = self._is_last and type(asked) in _ALWAYS

    @property
    def _level(self) -> int:
        return logging.DEBUG if self._failed == 1 else logging.WARNING

    def end(self, result: object) -> None:
        """Log that a run has given up, unless it returns the failure or was stopped."""
        if self._failed and not isinstance(result, Failure) and (self._is_last or _is_given_up(result)):
            _LOG.error("%s: given up; %d attempts have failed", self._program, self._failed)


def _is_given_up(result: object) -> bool:
    if isinstance(result, tuple):
        return any(map(_is_given_up, result))
    return isinstance(result, Attempted) and result.is_given_up


_ALWAYS: Final = frozenset({Now, Note, Sleep})
"""Effects that succeed whether or not an attempt does."""


def _unwanted(coroutine: CoroutineType[Any, Any, Any]) -> NoReturn:
    coroutine.close()
    raise Misuse("a handler of an event loop in a thread", todo="use run_async, or a handler that is not async")


def _resumed(program: Program[T], reply: object) -> Effect[object] | tuple[T]:
    """Send a reply (None to begin); return the next effect, or the result in a 1-tuple."""
    try:
        asked = program.throw(reply.fresh()) if isinstance(reply, Failure) else program.send(reply)
    except StopIteration as stop:
        return (stop.value,)
    if type(asked) in _VALUES:
        return asked
    effect = checked_effect(asked)
    must_be_value(effect, f"what a program asked for ({type(effect).__name__})")
    return effect


def _close(program: Program[T]) -> None:
    """Close the program, even if it catches that and awaits more; drop what it raises."""
    for _ in range(CLOSINGS_MAX):
        try:
            program.close()
        except Exception:  # noqa: BLE001, S112  the caller must get the first error
            continue
        return


# --- handlers -------------------------------------------------------------------------------------


def choosing(*handlers: Handlers[R]) -> Callable[[Effect[object]], R]:
    """Combine handler tables into one handle; for one effect type, the last table wins."""
    return partial(_chosen, {kind: each for table in handlers for kind, each in table.items()})


def _chosen(handlers: Handlers[R], effect: Effect[object]) -> R:
    if type(effect) not in handlers:
        raise UnknownEffect(
            f"no handler knows {type(effect).__name__}",
            todo=f"give one to choosing(); there are: {', '.join(sorted(kind.__name__ for kind in handlers))}",
        )
    return handlers[type(effect)](effect)


def _completed(
    handle: Callable[[Effect[object]], R] | Handlers[R] | Store[R], own: Callable[[], Handlers[R]]
) -> Callable[[Effect[object]], R]:
    if isinstance(handle, partial) and handle.func is _chosen and not handle.args[0].keys() >= _ALWAYS:
        handle = handle.args[0]  # else a pause after a failed write would end the run
    if isinstance(handle, Mapping):
        return choosing(own(), handle)
    return choosing(own(), documents(handle)) if getattr(handle, "is_store", False) else handle


def documents(store: Callable[[Any], R]) -> Handlers[R]:
    """Let one store handle document operations, transactions, planner queries and the time."""
    return dict.fromkeys((*_STORED, InTransaction, CommitTransaction, AbortTransaction), store)


def local(calls: Mapping[str, Callable[..., object]] = _NO_CALLS) -> Handlers[object]:
    """Handlers that need no server: local clock, real sleep, user code; notes are ignored.

    `calls` holds user code by name, which returns immutable values. The driver raises its Failures
    into the program, and other errors to the caller of `run`, unless `Call.catches`.
    """

    def sleep(effect: Sleep) -> None:
        time.sleep(_length(effect))

    def call(effect: Call) -> object:
        code = _registered(calls, effect)
        with _caught(effect):
            return _answered(effect, code(*effect.arguments))

    return {Now: _now, Note: _ignore, Sleep: sleep, Call: call}


def local_async(calls: Mapping[str, Callable[..., Awaitable[object]]] = _NO_CALLS) -> Handlers[Awaitable[object]]:
    """The async form of `local`."""

    async def read(effect: Now) -> Instant:
        return _now(effect)

    async def mark(effect: Note) -> None:
        _ignore(effect)

    async def sleep(effect: Sleep) -> None:
        await asyncio.sleep(_length(effect))

    async def call(effect: Call) -> object:
        code = _registered(calls, effect)
        with _caught(effect):
            return _answered(effect, await code(*effect.arguments))

    return {Now: read, Note: mark, Sleep: sleep, Call: call}


def _now(_: Now) -> Instant:
    return Instant(time.time_ns() // 1_000, WALL)


def _length(effect: Sleep) -> float:
    return effect.lasting(randint(0, PPM)) / SECOND  # noqa: S311  jitter, no secret


def _ignore(_: Note) -> None:
    pass


def _registered(calls: Mapping[str, Callable[..., R]], effect: Call) -> Callable[..., R]:
    if effect.name not in calls:
        raise UnknownEffect(
            f"no user code is registered as {effect.name!r}",
            todo=f"pass it in `calls`; there are: {', '.join(sorted(calls)) or 'none'}",
        )
    return calls[effect.name]


@contextmanager
def _caught(effect: Call) -> Generator[None, None, None]:
    """Convert an error to a Failure if `Call.catches`, so the simulator can raise it
    (`Fault.FAILED`).
    """
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        if not effect.catches:
            raise
        raise Refused("".join(traceback.format_exception_only(error)).strip()) from error


def _answered(effect: Call, reply: object) -> object:
    must_be_value(reply, f"what {effect.name} answered")
    return reply
