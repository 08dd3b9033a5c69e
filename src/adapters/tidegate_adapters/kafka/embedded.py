"""An in-memory log for a worker without a broker: `tidegate worker run TARGET --embedded
records.jsonl`.

One member owns all partitions, each call succeeds, and no data outlives the process; the simulator
covers faults. The log keeps what the worker sends. Each line of the file is a JSON record, whose
offset is its place in its partition:

    {"topic": "orders", "partition": 0, "key": "ann", "value": "5 apples",
     "headers": [["trace", "7f"]]}

Only `topic` is required. A key, value or header value is text (as UTF-8), `{"base64": "/9j/4A=="}`,
or null.

A run ends once all is committed, or at a standstill: no user code runs, and no retry starts within
the longest delay of the rules and of `Later`.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, ParamSpec, Protocol, TypeVar, cast, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration
from tidegate.model.records import Record, Send, TopicPartition
from tidegate.retries.backoff import delay_after
from tidegate_adapters.kafka.client import (
    Client,
    Connect,
    Produce,
    Producer,
    Received,
    Transact,
    TransactionalProducer,
    ours,
    theirs,
)
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.runtime.handlers import Called, pattern_of, unread_and_sends
from tidegate_adapters.runtime.later import Later

P = ParamSpec("P")
T = TypeVar("T")
_FIELDS: Final = ("topic", "partition", "key", "value", "headers")
_AT_ONCE: Final = 500
_LOOKS_S: Final = 0.02
_MORE: Final = SECOND


def records_of(file: Path) -> tuple[Record, ...]:
    """The records of a file of JSON lines, with offset 0; a log assigns offsets.

    Raises:
        Misuse: The file cannot be read, or a line is not a record.
    """
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"cannot read {file}", why=str(error)) from None
    return tuple(_records(lines, str(file)))


def _records(lines: Iterable[str], file: str) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield record_of(json.loads(line))
            except Misuse as error:
                error.where = f"{file}:{number}"
                raise
            except (ValueError, RecursionError) as error:
                why = getattr(error, "msg", "")  # of JSON; other messages show the record's content
                raise Misuse("it is no JSON, or no base 64", where=f"{file}:{number}", why=why) from None


def record_of(line: object) -> Record:
    """A record from the fields of a JSON line, with offset 0."""
    if not isinstance(line, dict):
        raise Misuse(f"a record is an object, and no {type(line).__name__}", todo=f"its fields: {', '.join(_FIELDS)}")
    fields = cast("dict[str, object]", line)
    for name in fields:
        if name not in _FIELDS:
            near = "".join(f"did you mean {each}?" for each in get_close_matches(name, _FIELDS, n=1))
            raise Misuse(f"a record has no field {name!r}", todo=near or f"its fields: {', '.join(_FIELDS)}")
    return Record(
        cast("str", fields.get("topic")),
        cast("int", fields.get("partition", 0)),
        0,
        _bytes(fields.get("key")),
        _bytes(fields.get("value")),
        tuple(map(_header, _list(fields.get("headers", [])))),
    )


def _list(given: object) -> list[object]:
    if not isinstance(given, list):
        raise Misuse("headers are a list", todo='write [["name", "value"]]')
    return cast("list[object]", given)


def _header(given: object) -> tuple[str, bytes | None]:
    match given:
        case [str(name), value]:
            return name, _bytes(value)
        case _:
            raise Misuse("a header is a pair of a name and a value", todo='write ["name", "value"]')


def _bytes(given: object) -> bytes | None:
    match given:
        case None:
            return None
        case str():
            return given.encode()
        case {"base64": str(text), **others} if not others:
            return b64decode(text, validate=True)
        case _:
            raise Misuse(
                f"a key or a value is text, and no {type(given).__name__}",
                todo='write JSON as text, with \\" for each ", and bytes as {"base64": "/9j/4A=="}',
            )


# --- the log --------------------------------------------------------------------------------------


@final
@attrs.frozen
class _Delivered:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: None = None
    timestamp_type: None = None


class _Committed(NamedTuple):
    offset: int
    metadata: str


class Consuming(Protocol):
    """The interface of `Worker`, which itself imports this module."""

    @property
    def settings(self) -> WorkerSettings: ...

    @property
    def handle(self) -> Called: ...

    def configured(self, settings: WorkerSettings, handle: Called | None = None) -> Consuming: ...

    async def run(self, connect: Connect, produce: Produce, transact: Transact) -> None: ...

    def stop(self) -> None: ...


class _Listener(Protocol):
    async def on_partitions_assigned(self, assigned: Collection[object]) -> None: ...


@final
class EmbeddedLog(Client):
    """A log with one consumer: `await worker.run(log.connect, log.produce, log.transact)`.

    Attributes:
        ends: One past the last offsets.
        sent: The records that the worker sent, in order.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.sent: Final[list[Send]] = []
        self._records: dict[TopicPartition, list[Record]] = {}
        for record in records:
            before = self._records.setdefault(record.of, [])
            before.append(attrs.evolve(record, offset=len(before)))
        self.positions: Final = dict.fromkeys(self._records, 0)
        self._metadata: dict[TopicPartition, str] = {}
        self.ends: Final = {partition: len(each) for partition, each in self._records.items()}
        self._next = dict(self.positions)
        self._paused: set[TopicPartition] = set()
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._rebalance: asyncio.Task[None] | None = None

    def connect(self, bootstrap: str, group: str, options: Mapping[str, object]) -> Client:  # noqa: ARG002  there is no broker
        return self

    def produce(self, bootstrap: str, options: Mapping[str, object]) -> Producer:  # noqa: ARG002  there is no broker
        return _Sent(self.sent)

    def transact(self, bootstrap: str, options: Mapping[str, object], name: str) -> TransactionalProducer:  # noqa: ARG002  there is no broker
        return _Transacting(self)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        if self._rebalance is not None:
            self._rebalance.cancel()

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None, listener: object) -> None:
        told, wanted = cast("_Listener", listener), pattern or pattern_of(topics)
        mine = frozenset(each for each in self._records if re.match(wanted, each.topic))

        async def assign() -> None:
            await told.on_partitions_assigned([*map(theirs, mine)])
            self._assigned = mine

        self._rebalance = asyncio.create_task(assign())

    def assignment(self) -> Collection[TopicPartition]:
        return self._assigned

    def paused(self) -> Collection[TopicPartition]:
        return frozenset(self._paused)

    def pause(self, *partitions: object) -> None:
        self._paused |= set(map(ours, partitions))

    def resume(self, *partitions: object) -> None:
        self._paused -= set(map(ours, partitions))

    def seek(self, partition: object, offset: int) -> None:
        self._next[ours(partition)] = offset

    async def position(self, partition: object) -> int:
        return self._next[ours(partition)]

    async def getmany(
        self, *partitions: object, timeout_ms: int, max_records: int | None = None
    ) -> Mapping[TopicPartition, Sequence[Received]]:
        wanted = (set(map(ours, partitions)) or set(self._assigned)) & self._assigned - self._paused
        found: dict[TopicPartition, Sequence[Received]] = {}
        for partition in sorted(wanted):
            at = self._next[partition]
            if some := self._records[partition][at : at + (max_records or _AT_ONCE)]:
                self._next[partition] += len(some)
                found[partition] = [
                    _Delivered(each.topic, each.partition, each.offset, each.key, each.value, each.headers)
                    for each in some
                ]
        await asyncio.sleep(0 if found else timeout_ms / 1000)
        return found

    async def commit(self, offsets: Mapping[object, object]) -> None:
        for partition, (position, text) in cast("Mapping[object, tuple[int, str]]", offsets).items():
            self.positions[ours(partition)], self._metadata[ours(partition)] = position, text

    async def committed(self, partition: object) -> int | None:
        return self.positions[ours(partition)]

    async def fetch_committed_offsets(self, partitions: Sequence[object]) -> Mapping[object, _Committed]:
        """Positions with their metadata, as aiokafka's coordinator has them."""
        return {each: _Committed(self.positions[ours(each)], self._metadata.get(ours(each), "")) for each in partitions}

    def assign(self, partitions: Sequence[object]) -> None:
        self._assigned = frozenset(map(ours, partitions))

    def partitions(self) -> Collection[TopicPartition]:
        """All partitions of the log."""
        return self._records.keys()

    async def offsets_for_times(self, timestamps_ms: Mapping[object, int]) -> Mapping[object, None]:
        return dict.fromkeys(timestamps_ms)  # unused: each has a committed position

    def highwater(self, partition: object) -> int:
        return self.ends[ours(partition)]

    async def beginning_offsets(self, partitions: Sequence[object]) -> Mapping[object, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Sequence[object]) -> Mapping[object, int]:
        return {each: self.ends[ours(each)] for each in partitions}


@final
@attrs.frozen
class _Sent(Producer):
    sent: list[Send]

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send(self, record: Send) -> Awaitable[object]:
        self.sent.append(record)
        return asyncio.sleep(0)


@final
class _Transacting(TransactionalProducer):
    """Applies sends and positions at the commit, which never fails."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._sent: list[Send] = []
        self._positions: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def begin(self) -> None:
        self._sent, self._positions = [], {}

    async def send(self, record: Send) -> Awaitable[object]:
        self._sent.append(record)
        return asyncio.sleep(0)

    async def send_position(self, group: str, partition: TopicPartition, position: int, metadata: str) -> None:  # noqa: ARG002  one group, in memory
        self._positions[partition] = position

    async def commit(self) -> None:
        self._log.sent.extend(self._sent)
        self._log.positions.update(self._positions)


# --- a run ----------------------------------------------------------------------------------------


@final
@attrs.frozen
class Outcome:
    """The result of an embedded run.

    Attributes:
        handled: The number of records whose handler returned.
        failed: The number of exceptions from user code.
        ends: One past the last offsets.
        sent: Handlers' replies and dead letters, in order.
    """

    handled: int
    failed: int
    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    sent: tuple[Send, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.positions == self.ends


@final
class EmbeddedRun:
    """A run of a worker on a log, until all is committed, it is stuck, or `stop` of its `worker` is
    called.

    Raises:
        Misuse: The worker does not consume a topic of the log.
    """

    def __init__(self, worker: Consuming, log: EmbeddedLog) -> None:
        wanted = worker.settings.pattern
        for topic in sorted({each.topic for each in log.ends if not re.match(wanted, each.topic)}):
            raise Misuse(f"records of {topic!r}, which the worker does not consume", where="an embedded log")
        self.worker: Final = worker.configured(worker.settings, self._handled(worker.handle))
        self._log, self._running, self._began, self._failed, self._done = log, 0, 0, 0, 0
        self._parked: Duration = 0

    async def run(self) -> Outcome:
        run = asyncio.create_task(self.worker.run(self._log.connect, self._log.produce, self._log.transact))
        moved, since = self._moves(), monotonic()
        while not run.done() and self._log.positions != self._log.ends and monotonic() < since + self._patience_s:
            await asyncio.wait([run], timeout=_LOOKS_S)
            if self._running or self._moves() != moved:
                moved, since = self._moves(), monotonic()
        self.worker.stop()
        await run
        return Outcome(self._done, self._failed, dict(self._log.positions), self._log.ends, tuple(self._log.sent))

    @property
    def _patience_s(self) -> float:
        rules = self.worker.settings.consumer.partition
        longest = max(self._parked, delay_after(rules.backoff, rules.fanout.retries_max + 1))
        return (longest + _MORE) / SECOND

    def _moves(self) -> tuple[int, int]:
        return self._began, sum(self._log.positions.values())

    def _handled(self, handle: Called) -> Called:
        async def checked(given: Record | tuple[Record, ...]) -> object:
            aside, sends = unread_and_sends(await handle(given))  # a wrong reply fails the handler
            return (*aside, *sends) or None

        counted = self._counted(checked)

        async def handled(given: Record | tuple[Record, ...]) -> object:
            reply = await counted(given)
            self._done += 1 if isinstance(given, Record) else len(given)
            return reply

        return handled

    def _counted(self, code: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        async def counted(*args: P.args, **kwargs: P.kwargs) -> T:
            self._began += 1
            self._running += 1
            try:
                return await code(*args, **kwargs)
            except Later as later:
                self._parked = max(self._parked, later.delay)
                raise
            except BaseException as error:
                self._failed += not (isinstance(error, asyncio.CancelledError) and _is_interrupted())
                raise
            finally:
                self._running -= 1

        return counted


def _is_interrupted() -> bool:
    me = asyncio.current_task()
    return me is not None and me.cancelling() > 0
