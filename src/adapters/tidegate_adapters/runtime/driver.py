"""The one loop that runs a program against the real world, sync and async.

A program is a coroutine of effects (`tidegate.model.effects`); a handler carries one effect out and answers it. The driver
takes effects to the handler and answers to the program, and decides nothing:

    the handler answers or raises a Failure    a fresh copy of it is raised into the program
    the handler answers anything else          it is sent into the program
    the handler raises anything else           the program is closed, and it is raised again
    the program returns                        that is the result
    the program raises                         it is raised to the caller, a Failure that was not caught included

So a cancellation, Ctrl-C or an error in user code is never swallowed, whatever the program catches. Where its `finally`
blocks would like to ask for more on the way out, nobody answers: what was asked last may have been done or not, and
that is for the next life to find out, as after a crash.

A transaction that a run has begun, and has heard of no end of, is aborted when the run ends, however it ends.

Of each run, the first attempt that fails is logged at the level debug, later ones as warnings, each with how long the program
waited before it went on, and a run that has given up as an error: one of which an attempt has failed, and that ends with that or
says so by its result (`tidegate.retries.pauses.Attempted`), whatever it has looked up or cleared away since. One that returns
the failure has not, for whoever asked decides what comes of it. What is refused is an answer, and is not logged. A line names
the program, the kind of effect and what the handler said of it, and shows no values.

An effect that a program makes and never awaits is a warning, once for each program, before it begins: nothing would be sent.

Handlers are chosen by the type of the effect:

    handle = choosing(documents(Embedded()), local({"send": send_mail}))
    answer = run(transition("jobs", INVOCATION, "job-1", PENDING, runner="r1", request=request), handle)

A store alone is enough for a program that calls no user code: `run(program, Mongo(client, "shop"))`.
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
from tidegate.reactive.plan_queries import FindChanged, FindOrphaned
from tidegate.retries.pauses import Attempted

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Handle: TypeAlias = Callable[[Effect[object]], object]
AsyncHandle: TypeAlias = Callable[[Effect[object]], Awaitable[object]]

Handlers: TypeAlias = Mapping[type[Effect[Any]], Callable[[Any], R]]
"""Type of effect -> what carries such an effect out. R is `object`, or `Awaitable[object]` in an event loop."""


class Store(Protocol[R_co]):
    """A store that carries out operations on documents: `Mongo`, `AsyncMongo`, `Embedded`."""

    is_store: ClassVar[bool]

    def __call__(self, effect: Any, /) -> R_co: ...


_NO_CALLS: Final[Mapping[str, Any]] = MappingProxyType({})
CLOSINGS_MAX: Final = 100
ABORT_SECONDS: Final = 1.0
"""How long a run in an event loop waits to have a transaction ended that it leaves open."""

_LOG: Final = logging.getLogger(__name__)
_STORED: Final = (*get_args(Operation), FindChanged, FindOrphaned, CountRecords, StoreTime)
_VALUES: Final = frozenset((*_STORED, Now, Sleep))
"""Effects that take nothing but values when they are made."""


def run(program: Program[T], handle: Handle | Handlers[object] | Store[object]) -> T:
    """Run a program to its end.

    Args:
        program: A program that has not begun.
        handle: Carries one effect out and answers it. A store (`Mongo`, `Embedded`), a table of handlers, and a handle of `choosing`
            are completed by `local()`: the clock, sleep and notes.

    Returns:
        What the program returns.

    Raises:
        UnknownEffect: The program awaits something that is not an effect, or that the handler does not know.
        Misuse: The handler is one of an event loop.
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
            with suppress(Exception):  # the store ends it in its time
                handle(AbortTransaction(transaction))
    attempts.end(asked[0])
    return asked[0]


async def run_async(
    program: Program[T], handle: AsyncHandle | Handlers[Awaitable[object]] | Store[Awaitable[object]]
) -> T:
    """Run a program to its end in an event loop.

    Args:
        program: A program that has not begun.
        handle: Carries one effect out and answers it. A store (`AsyncMongo`), a table of handlers, and a handle of `choosing` are
            completed by `local_async()`: the clock, sleep and notes.

    Returns:
        What the program returns.

    Raises:
        UnknownEffect: The program awaits something that is not an effect, or that the handler does not know.
        Misuse: The handler is none of an event loop.
        Failure: The program did not catch it.
        CancelledError: The task was cancelled. What the program asked last may have been done.
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
    """Log the effects that the program never awaits, unless a run of it was checked before."""
    code = getattr(program, "cr_code", None)
    if code is None or code in _CHECKED:
        return
    _CHECKED.add(code)
    with suppress(Exception):  # what reads programs must not end a run
        for each in forgotten(program):
            _LOG.warning("%s: %s; write `await %s(...)`", code.co_name, each, each.call)


_CHECKED: Final[set[CodeType]] = set()
"""Programs that were checked for effects that are never awaited."""
_OF_TRANSACTIONS: Final = frozenset({InTransaction, CommitTransaction, AbortTransaction})


@final
class _Begun(dict[str, Transaction]):
    """The transactions that a run has begun, and may have left open, by their sessions."""

    def sent(self, asked: Effect[object]) -> None:
        """Before it is carried out: nobody knows how far that comes."""
        if type(asked) is InTransaction:
            self[asked.transaction.session] = asked.transaction

    def answered(self, asked: Effect[object], reply: object) -> None:
        is_over = type(asked) is AbortTransaction or (type(asked) is CommitTransaction and isinstance(reply, bool))
        if is_over:
            self.pop(asked.transaction.session, None)  # type: ignore[attr-defined]


@final
class _Attempts:
    """Those of one run that have failed, and the log of them."""

    __slots__ = ("_failed", "_is_last", "_program", "is_pending")

    def __init__(self, program: Program[Any]) -> None:
        self._program: Final[str] = getattr(program, "__name__", type(program).__name__)
        self._failed = 0
        self._is_last = False  # nothing has succeeded since
        self.is_pending = False  # the same, or it has not waited since

    def note(self, asked: Effect[object], reply: object) -> None:
        """Logs what has failed on the way, and how long it waited before it went on."""
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
        """Logs that a run has given up: not where it returns the failure, or was stopped, as by a cancellation."""
        if self._failed and not isinstance(result, Failure) and (self._is_last or _is_given_up(result)):
            _LOG.error("%s: given up; %d attempts have failed", self._program, self._failed)


def _is_given_up(result: object) -> bool:
    """Also where one of several is."""
    if isinstance(result, tuple):
        return any(map(_is_given_up, result))
    return isinstance(result, Attempted) and result.is_given_up


_ALWAYS: Final = frozenset({Now, Note, Sleep})
"""What succeeds whether an attempt does or not."""


def _unwanted(coroutine: CoroutineType[Any, Any, Any]) -> NoReturn:
    """What was to be done is not done by it."""
    coroutine.close()
    raise Misuse("a handler of an event loop in a thread", todo="use run_async, or a handler that is not async")


def _resumed(program: Program[T], reply: object) -> Effect[object] | tuple[T]:
    """Send the program a reply (None to begin), and take what it asks for next; or its result, if it has returned."""
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
    """End the program where it stands, also where it catches that and asks for more; what it raises is dropped."""
    for _ in range(CLOSINGS_MAX):
        try:
            program.close()
        except Exception:  # noqa: BLE001, S112  the caller must get what is being raised already
            continue
        return


# --- handlers -----------------------------------------------------------------------------------------------------------


def choosing(*handlers: Handlers[R]) -> Callable[[Effect[object]], R]:
    """A handle that chooses by the type of the effect; of two handlers of one type, the later one.

    Raises:
        UnknownEffect: An effect is asked for that none of them knows.
    """
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
        handle = handle.args[0]  # or a pause, which comes only after a failure, would end a run whose write may be done
    if isinstance(handle, Mapping):
        return choosing(own(), handle)
    return choosing(own(), documents(handle)) if getattr(handle, "is_store", False) else handle


def documents(store: Callable[[Any], R]) -> Handlers[R]:
    """Every operation on documents, alone or in a transaction, what planners ask, and the question for the time, carried out by
    one store.
    """
    return dict.fromkeys((*_STORED, InTransaction, CommitTransaction, AbortTransaction), store)


def local(calls: Mapping[str, Callable[..., object]] = _NO_CALLS) -> Handlers[object]:
    """What needs no server: the clock of this machine, real sleep, user code; notes are ignored.

    Args:
        calls: User code by name. It answers an immutable value, and a Failure that it raises is raised into the program;
            any other error is raised to whoever runs the program, unless the program asks for it (`Call.catches`).
    """

    def sleep(effect: Sleep) -> None:
        time.sleep(_length(effect))

    def call(effect: Call) -> object:
        code = _registered(calls, effect)
        with _caught(effect):
            return _answered(effect, code(*effect.arguments))

    return {Now: _now, Note: _ignore, Sleep: sleep, Call: call}


def local_async(calls: Mapping[str, Callable[..., Awaitable[object]]] = _NO_CALLS) -> Handlers[Awaitable[object]]:
    """The same for an event loop, where user code is async.

    Args:
        calls: User code by name, as for `local`.
    """

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
    """In seconds."""
    return effect.lasting(randint(0, PPM)) / SECOND  # noqa: S311  it scatters, and keeps no secret


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
    """An error of user code as a Failure, where the program asks for that: so the simulator has it, too (`Fault.FAILED`)."""
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
