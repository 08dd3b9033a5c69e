"""Calls user handlers: routes by topic, decodes, limits time, and runs plain functions in threads.

The result is one async function of a record, or of the records of a batch, for
`tidegate_adapters.kafka.member`. It returns records to send and undecodable records, for which no
handler was called (`unread_and_sends`). A single async handler without options is used as it is. A
topic that begins with `^` is a pattern for whole names, as in librdkafka.

A thread cannot be interrupted. An interrupted call therefore waits for its thread and counts as
running. A second interrupt abandons the thread, which does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from enum import Enum, unique
from functools import cache
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from typing import Any, Final, Protocol, TypeAlias, cast, final

import attrs

from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import SECOND, Duration, seconds
from tidegate.model.records import Record, Send
from tidegate.model.values import check_callable
from tidegate_adapters.base.cancellation import check_awaited_failure
from tidegate_adapters.base.decorators import check_called_with_one
from tidegate_adapters.base.threads import DaemonThreads, Threads
from tidegate_adapters.runtime.reducers import RunsOn

TOPIC: Final = "{topic}"
"""Stands for a record's topic in the dead-letter topic."""
UserHandler: TypeAlias = Callable[[Any], object]
"""Called with a record, a decoded value, or a list of them; returns None or one or more `Send`s."""
Handlers: TypeAlias = UserHandler | Mapping[str, UserHandler]
Decode: TypeAlias = Callable[[Record], object]
"""Converts a record for its handler; async or not."""
Called: TypeAlias = Callable[[Any], Awaitable[object]]
Then: TypeAlias = Callable[[Any, Any], Awaitable[object]]


class Around(Protocol):
    """Wraps each call of a handler and its continuation."""

    def __call__(self, call: Called, then: Then | None = None, /) -> Called: ...


@final
@unique
class Undecodable(Enum):
    """The policy for a record on which `decode` raises, or with a header name that is not UTF-8.

    RAW passes the bytes of such a name as `os.fsdecode` does:
    `name.encode(errors="surrogateescape")`.
    """

    FAIL = "it has failed, and what follows is as for a handler that raises"
    SKIP = "it is logged, and counts as done"
    RAW = "its handler gets the record as it came"
    DEAD_LETTER = "it goes to the dead-letter topic, and counts as done"


@final
@attrs.frozen
class Unread:
    """A record to skip or dead-letter, with the error of `decode`."""

    record: Record
    error: BaseException


def undecoded(record: Record | Send) -> UnicodeDecodeError | None:
    """The error of the first header name that is not UTF-8."""
    for name, _ in record.headers:
        try:
            _ = name.encode()
        except UnicodeEncodeError:
            try:
                _ = name.encode(errors="surrogateescape").decode()
            except UnicodeDecodeError as error:
                return error
    return None


def unread(record: Record, error: BaseException, undecodable: Undecodable) -> Unread | None:
    """Apply the policy to an undecodable record; None if the handler gets it raw.

    Raises `error` for `Undecodable.FAIL`.
    """
    match undecodable:
        case Undecodable.FAIL:
            raise error
        case Undecodable.RAW:
            return None
        case Undecodable.SKIP | Undecodable.DEAD_LETTER:
            return Unread(record, error)


def unread_and_sends(reply: object) -> tuple[tuple[Unread, ...], tuple[Send, ...]]:
    """Split a handler's reply into undecodable records and sends; Misuse for other values."""
    if reply is None:
        return (), ()
    unread: list[Unread] = []
    sends: list[Send] = []
    for each in cast("Iterable[object]", reply) if isinstance(reply, Iterable) else (reply,):
        match each:
            case Send():
                sends.append(each)
            case Unread():
                unread.append(each)
            case _:
                raise Misuse(
                    f"a handler has returned {typed(each)}",
                    why="what it returns is sent before its record counts as done",
                    todo="return None, a Send, or an iterable of them",
                )
    return tuple(unread), tuple(sends)


def is_pattern(topic: str) -> bool:
    return topic.startswith("^")


def pattern_of(topics: Sequence[str], dead_letter: str | None = None) -> str:
    """A regular expression for exactly the whole names of these topics and patterns.

    It excludes their dead-letter topic, which their consumer must not read.
    """
    names = "(?:" + "|".join(_expression(each) for each in topics) + ")"
    but = "" if dead_letter is None else f"(?!{letters_of(dead_letter, names)}$)"
    try:
        _ = re.compile(but + names)
    except re.error as error:
        raise Misuse(
            f"{', '.join(topics)} and dead letters",
            why=f"they are to be one pattern, and {error}",
            todo="leave its groups unnamed: (?:...)",
        ) from None
    return f"^{but}{names}$"


def letters_of(dead_letter: str, names: str) -> str:
    """A regular expression for the dead-letter topics of topics that match `names`."""
    return names.join(map(re.escape, dead_letter.split(TOPIC)))


def _expression(topic: str) -> str:
    if not is_pattern(topic):
        return re.escape(topic)
    try:
        return re.compile(topic.removeprefix("^").removesuffix("$")).pattern
    except re.error as error:
        raise Misuse(f"{topic!r} is no pattern of topics", why=str(error), todo="it is a regular expression") from None


@final
@attrs.frozen
class _Around:
    threads: Callable[[], Threads]
    decode: Decode | None
    undecodable: Undecodable
    timeout: Duration | None
    is_batch: bool


def called(
    handlers: Handlers,
    topics: Sequence[str],
    *,
    threads: int,
    decode: Decode | None = None,
    undecodable: Undecodable = Undecodable.FAIL,
    timeout: Duration | None = None,
    is_batch: bool = False,
) -> Called:
    """Combine the handlers into one async function of a record, or of the records of a batch.

    A name wins over patterns, the first pattern over others. `threads` limits concurrent plain
    functions, `timeout` a call in microseconds. With `is_batch`, handlers get lists of records of
    one partition.

    Raises:
        Misuse: A topic has no handler, a handler is invalid, or a plain function has a time limit.
    """
    pool = cache(lambda: DaemonThreads("tidegate-handler", threads))
    around = _Around(pool, decode, undecodable, timeout, is_batch)
    if not isinstance(handlers, Mapping):
        return _call(handlers, around)
    for topic in topics:
        if topic not in handlers:
            raise Misuse(f"nothing handles {topic!r}", todo=f"there are handlers of: {', '.join(handlers)}")
    if idle := [topic for topic in handlers if topic not in topics]:
        raise Misuse(
            f"a handler of {', '.join(map(repr, idle))}, which is not consumed",
            todo="add it to the topics, or take the handler out",
        )
    calls = {topic: _call(handlers[topic], around) for topic in sorted(topics, key=is_pattern)}
    if len(calls) == 1:
        return calls.popitem()[1]

    @cache
    def call_of(topic: str) -> Called:
        return next(call for name, call in calls.items() if re.fullmatch(_expression(name), topic))

    async def routed(given: Record | tuple[Record, ...]) -> object:
        topic = given.topic if isinstance(given, Record) else given[0].topic
        return await call_of(topic)(given)

    return routed


def _call(handler: UserHandler, around: _Around) -> Called:
    check_callable(handler, "a handler of records", "pass a function of one record")
    what, word = ("the list of a batch", "records") if around.is_batch else ("one record", "record")
    check_called_with_one(handler, _named(handler), what, word)
    if isasyncgenfunction(handler):
        raise Misuse(f"{_named(handler)} is an async generator", todo="return what is to be sent, in a list")
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
    if around.timeout is not None and not is_async:
        raise Misuse(
            f"{_named(handler)} is a plain function, and has a time limit",
            why="a thread cannot be interrupted: its record would be tried again while it runs",
            todo="make it an async def, or leave timeout out",
        )
    call: Callable[[Any], Awaitable[object]] = handler if is_async else threaded(handler, around.threads)  # type: ignore[assignment]
    if around.is_batch:
        call = _batched(call, around)
    elif around.decode is not None:
        call = _decoded(call, around)
    if around.timeout is not None:
        call = _limited(call, around.timeout)
    return call


def threaded(handler: UserHandler, threads: Callable[[], Threads]) -> Callable[[Any], Awaitable[object]]:
    """Wrap a plain function as an async one that runs in a thread; an interrupt waits for it."""

    async def in_thread(given: object) -> object:
        run: Future[object] = threads().submit(copy_context().run, _whole, handler, given)
        reply = asyncio.wrap_future(run)
        try:
            found = await asyncio.shield(reply)
        except asyncio.CancelledError:
            if not run.cancel():
                await _ended(reply)
            raise
        return await found if isawaitable(found) else found

    return in_thread


async def _ended(reply: asyncio.Future[object]) -> None:
    """Wait for an uninterruptible thread; RunsOn if interrupted again."""
    with suppress(Exception):
        try:
            await asyncio.shield(reply)
        except asyncio.CancelledError:
            if reply.done():
                raise
            raise RunsOn from None


def _whole(handler: UserHandler, given: object) -> object:
    """Call a handler and exhaust a generator in this thread.

    StopIteration becomes RuntimeError, as in a coroutine: futures reject StopIteration.
    """
    try:
        found = handler(given)
    except StopIteration as error:
        raise RuntimeError(f"{_named(handler)} raised StopIteration") from error
    return tuple(cast("Iterator[object]", found)) if isinstance(found, Iterator) else found


def _decoded(call: Callable[[Any], Awaitable[object]], around: _Around) -> Callable[[Any], Awaitable[object]]:
    async def decoded(record: Record) -> object:
        given = await _read(record, around)
        return given if isinstance(given, Unread) else await call(given.value)

    return decoded


def _batched(call: Callable[[Any], Awaitable[object]], around: _Around) -> Callable[[Any], Awaitable[object]]:
    async def batched(records: tuple[Record, ...]) -> object:
        found = [await _read(record, around) for record in records]
        given = [each.value for each in found if isinstance(each, _Given)]
        _, sends = unread_and_sends(await call(given) if given else None)
        return (*(each for each in found if isinstance(each, Unread)), *sends) or None

    return batched


@final
@attrs.frozen
class _Given:
    value: object


async def _read(record: Record, around: _Around) -> _Given | Unread:
    if (error := undecoded(record)) is not None:
        return unread(record, error, around.undecodable) or _Given(record)
    if around.decode is None:
        return _Given(record)
    try:
        given = around.decode(record)
        return _Given(await given if isawaitable(given) else given)
    except BaseException as raised:  # noqa: BLE001  user code
        check_awaited_failure(raised)
        return unread(record, raised, around.undecodable) or _Given(record)


def _limited(call: Callable[[Any], Awaitable[object]], timeout: Duration) -> Callable[[Any], Awaitable[object]]:
    async def limited(given: object) -> object:
        limit = asyncio.timeout(timeout / SECOND)
        reply, why = None, None
        try:
            async with limit:
                reply = await call(given)
        except TimeoutError as error:
            if not limit.expired():
                raise
            why = error
        if limit.expired():  # a result after cancellation does not count
            raise TimeoutError(f"it took longer than timeout, {seconds(timeout)}") from why
        return reply

    return limited


def _named(handler: object) -> str:
    return getattr(handler, "__qualname__", type(handler).__name__)
