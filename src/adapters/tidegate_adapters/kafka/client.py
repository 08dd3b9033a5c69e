"""Typed wrappers around aiokafka, which ships no types. Only this module touches private parts of
its client, where there is no public call; without such a part, functions return None or do nothing.

Other modules use public classes: `decoding` the record parsers, `static_membership` the protocol,
`raw_batches` the record batches.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, final, get_args, get_origin, get_type_hints

import attrs

from tidegate.consumer.committing.commit_answers import CommitFailure
from tidegate.consumer.flow.offset_reset import LogRange
from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import MissingExtra, Misuse, shown
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.records import BROKER, PRODUCER, Record, Send, TopicPartition
from tidegate.model.values import check_int, check_type
from tidegate_adapters.base.decorators import meant
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.kafka.settings import ClientOptions
from tidegate_adapters.runtime.handlers import undecoded

try:
    import aiokafka
    import aiokafka.helpers
    from aiokafka import errors
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetcher import READ_UNCOMMITTED
    from aiokafka.partitioner import DefaultPartitioner
    from aiokafka.protocol.fetch import FetchRequest

    from tidegate_adapters.kafka.raw_batches import batch_of
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.kafka", "kafka", missing) from missing


class Received(Protocol):
    """A record of aiokafka."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def timestamp_type(self) -> int | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


_Rebalanced: TypeAlias = Callable[[Collection[TopicPartition]], Awaitable[None]]
"""The client waits for it during a rebalance."""


class _OffsetAndTime(Protocol):
    @property
    def offset(self) -> int: ...


class Client(Protocol):
    """aiokafka's consumer."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None, listener: object) -> None: ...
    def assignment(self) -> Collection[TopicPartition]: ...
    def paused(self) -> Collection[TopicPartition]: ...
    def pause(self, *partitions: object) -> None: ...
    def resume(self, *partitions: object) -> None: ...
    def seek(self, partition: object, offset: int) -> None: ...
    async def getmany(
        self, *partitions: object, timeout_ms: int, max_records: int | None = None
    ) -> Mapping[TopicPartition, Sequence[Received]]: ...
    async def commit(self, offsets: Mapping[object, object]) -> None: ...
    async def committed(self, partition: object) -> int | None: ...
    async def beginning_offsets(self, partitions: Sequence[object]) -> Mapping[object, int]: ...
    async def end_offsets(self, partitions: Sequence[object]) -> Mapping[object, int]: ...
    async def offsets_for_times(
        self, timestamps_ms: Mapping[object, int]
    ) -> Mapping[object, _OffsetAndTime | None]: ...


Connect: TypeAlias = Callable[[str, str, Mapping[str, object]], Client]
"""Makes a client of `host:port`, the group and more options, within a running event loop."""


class Producer(Protocol):
    """A producer of records."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def send(self, record: Send) -> Awaitable[object]:
        """Queue the record; the result resolves once every in-sync replica has it."""
        ...


class TransactionalProducer(Producer, Protocol):
    """`start` fences the former owner of its transactional id."""

    async def begin(self) -> None: ...
    async def send_position(self, group: str, partition: TopicPartition, position: int, metadata: str) -> None: ...
    async def commit(self) -> None: ...


Transact: TypeAlias = Callable[[str, Mapping[str, object], str], TransactionalProducer]
"""Makes a producer of `host:port`, the consumer's options and a transactional id."""

Produce: TypeAlias = Callable[[str, Mapping[str, object]], Producer]
"""Makes a producer of `host:port` and the consumer's options."""

_NOT_OPTIONS: Final = {"topics", "loop", "api_version", "bootstrap_servers", "group_id", "enable_auto_commit"}
"""Options that the worker sets itself, or that aiokafka has dropped."""
_ANY_SIZE: Final = 2**31 - 1
"""The brokers decide the size limit."""
WRITES: Final = {"acks": "all", "enable_idempotence": True, "max_request_size": _ANY_SIZE}
"""Each producer writes once per session, to all in-sync replicas."""
_ADDRESS: Final = re.compile(r"([^\s:/\[\]]+|\[[^\s\[\]]+\])(:[0-9]{1,5})?")
_OF_TLS: Final = {
    "ssl_cafile": "cafile",
    "ssl_certfile": "certfile",
    "ssl_keyfile": "keyfile",
    "ssl_password": "password",
}
_PARAMETERS: Final = inspect.signature(aiokafka.AIOKafkaConsumer).parameters
_OF_BOTH: Final = (inspect.signature(aiokafka.AIOKafkaProducer).parameters.keys() & _PARAMETERS.keys()) - _NOT_OPTIONS
"""The options that consumer and producer share."""
HEARTBEAT_MS: Final[int] = _PARAMETERS["heartbeat_interval_ms"].default
"""aiokafka's default."""
SESSION_MS: Final[int] = _PARAMETERS["session_timeout_ms"].default
"""aiokafka's default."""
_OPTIONS: Final = (_PARAMETERS.keys() - _NOT_OPTIONS) | _OF_TLS.keys()
_KINDS: Final[Mapping[str, Any]] = get_type_hints(ClientOptions)


class _OffsetAndMetadata(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def metadata(self) -> str: ...


Committed: TypeAlias = tuple[int, str]
"""A position and its commit metadata."""


class _Coordinator(Protocol):
    async def fetch_committed_offsets(self, partitions: Sequence[object]) -> Mapping[object, _OffsetAndMetadata]: ...


async def brokers(bootstrap: str) -> int:
    asked = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await asked.bootstrap()
        return len(asked.cluster.brokers())
    finally:
        await asked.close()


def client(bootstrap: str, group: str, options: Mapping[str, object]) -> Client:
    """A consumer that neither commits nor resets a position by itself.

    Raises:
        Misuse: The client rejects an address or an option.
    """
    for each in bootstrap.split(","):
        if not _ADDRESS.fullmatch(each.strip()):
            raise Misuse(
                f"{each!r} is no address of a broker", why="it is host:port", todo="name several with commas between"
            )
    kept = _with_tls(options) | {"auto_offset_reset": "none", "enable_auto_commit": False}
    try:
        return cast("Client", aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **kept))
    except ValueError as error:
        raise Misuse("the client does not take its options", why=redacted(str(error))) from None


def producer(bootstrap: str, options: Mapping[str, object]) -> Producer:
    """Sends each record once per session, to all in-sync replicas; ignores options of the consumer
    only.
    """
    kept = {name: value for name, value in _with_tls(options).items() if name in _OF_BOTH}
    return Producing(aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **WRITES, **kept))


def transactional_producer(bootstrap: str, options: Mapping[str, object], name: str) -> TransactionalProducer:
    """The same with a transactional id."""
    kept = {name: value for name, value in _with_tls(options).items() if name in _OF_BOTH}
    made = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **WRITES, **kept, transactional_id=name)
    return Producing(made, is_transactional=True)


@final
class Producing(TransactionalProducer):
    """Sends by aiokafka's producer, which must have the options `WRITES`."""

    def __init__(self, producer: Any, *, is_transactional: bool = False) -> None:
        self._producer, self._is_transactional = producer, is_transactional

    async def start(self) -> None:
        await self._producer.start()

    async def stop(self) -> None:
        await self._producer.stop()

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def send_position(self, group: str, partition: TopicPartition, position: int, metadata: str) -> None:
        await self._producer.send_offsets_to_transaction({theirs(partition): (position, metadata)}, group)

    async def commit(self) -> None:
        await self._producer.commit_transaction()

    async def send(self, record: Send) -> Awaitable[object]:
        topic, partition = record.topic, record.partition
        known = sorted(await self._producer.partitions_for(topic))
        if partition is not None and partition not in known:
            raise Misuse(f"{topic} has no partition {partition}", todo=f"it has {len(known)}, counted from 0")
        has_something = record.key is not None or record.value is not None
        if has_something and undecoded(record) is None:  # `send` refuses others
            return cast(
                "Awaitable[object]",
                await self._producer.send(topic, record.value, record.key, partition, headers=list(record.headers)),
            )
        where = DefaultPartitioner()(record.key, known, known) if partition is None else partition
        batch = batch_of(record, is_transactional=self._is_transactional)
        return cast("Awaitable[object]", await self._producer.send_batch(batch, topic, partition=where))


def _with_tls(options: Mapping[str, object]) -> dict[str, object]:
    files = {_OF_TLS[name]: value for name, value in options.items() if name in _OF_TLS}
    others = {name: value for name, value in options.items() if name not in _OF_TLS}
    if "ssl_context" in others or not str(others.get("security_protocol", "")).endswith("SSL"):
        if files:
            raise Misuse(
                "files for TLS, and nothing to use them",
                why="security_protocol has no TLS, or an ssl_context is given as well",
                todo="set security_protocol to SSL or SASL_SSL, and leave ssl_context out",
            )
        return others
    try:
        return {**others, "ssl_context": aiokafka.helpers.create_ssl_context(**files)}
    except OSError as error:  # includes ssl.SSLError
        raise Misuse(
            "the files for TLS cannot be used",
            why=redacted(str(error)),
            todo="check ssl_cafile, ssl_certfile, ssl_keyfile and ssl_password",
        ) from None


def check_options(options: Mapping[str, object], others: Iterable[str] = ()) -> None:
    """Raise Misuse for an unknown option or a value of the wrong type, which aiokafka often
    accepts.
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            why = "the worker says that itself" if name in _NOT_OPTIONS else "neither it nor aiokafka's consumer has it"
            raise Misuse(
                f"{name} is not an option of a worker", why=why, todo=meant(name, others) or meant(name, _OPTIONS)
            )
        kind = _KINDS.get(name)
        if value is None or kind is None:
            continue
        if kind is int:
            check_int(value, name, 0)
        elif get_origin(kind) is Literal:
            if value not in get_args(kind):
                raise Misuse(f"{shown(value)} cannot be {name}", todo=f"choose one of {', '.join(get_args(kind))}")
        elif not isinstance(value, kind):
            check_type(value, kind, name)


async def start(consumer: Client) -> None:
    """Start the client and require that it knows a broker.

    A starting broker may report none. aiokafka accepts that, and fails for good when it searches
    the coordinator.
    """
    await consumer.start()
    cluster = getattr(getattr(consumer, "_client", None), "cluster", None)
    known = getattr(cluster, "brokers", None)
    if known is not None and not known():
        raise errors.KafkaConnectionError("a broker has answered, and knows of none")


def has_begun(consumer: Client) -> bool:
    return getattr(consumer, "_fetcher", None) is not None


async def committed(consumer: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
    """The group's committed positions, with their metadata, for both of which aiokafka has no
    public call.

    Without metadata records are repeated, which is safe.
    """
    coordinator = cast("_Coordinator | None", getattr(consumer, "_coordinator", None))
    if not hasattr(coordinator, "fetch_committed_offsets"):
        alone = {each: await consumer.committed(theirs(each)) for each in partitions}
        return {each: (position, "") for each, position in alone.items() if position is not None}
    assert coordinator is not None
    found = await coordinator.fetch_committed_offsets([*map(theirs, partitions)])
    known = {ours(each): (at.offset, at.metadata or "") for each, at in found.items()}
    return {each: known[each] for each in partitions if known.get(each, (-1, ""))[0] >= 0}


NO_GENERATION: Final = -1
"""The generation of a client that has not joined yet, or was removed."""
_COMMITTING: Final[ContextVar[int | None]] = ContextVar("_COMMITTING", default=None)
"""The generation of the current commit; the client sends in a task of its own, which inherits
it.
"""


def generation_of(consumer: Client) -> int | None:
    """The client's generation; `NO_GENERATION` for none, None if unknown."""
    found = getattr(getattr(consumer, "_coordinator", None), "generation", None)
    return found if isinstance(found, int) else None


def member_id_of(consumer: Client) -> str | None:
    found = getattr(getattr(consumer, "_coordinator", None), "member_id", None)
    return found if isinstance(found, str) else None


def join_no_more(consumer: Client) -> None:
    """Keep a failed client from rejoining."""
    task = getattr(getattr(consumer, "_coordinator", None), "_coordination_task", None)
    if isinstance(task, asyncio.Future):
        task.cancel()


async def ask_coordinator(consumer: Client, request: object) -> int | None:
    """The error code of the coordinator's reply; None without a reply, 0 if the request is not
    supported.
    """
    coordinator: Any = getattr(consumer, "_coordinator", None)
    if not hasattr(coordinator, "_send_req"):
        return 0
    try:
        await coordinator.ensure_coordinator_known()
        return int((await coordinator._send_req(request)).error_code)  # noqa: SLF001
    except NotImplementedError:
        return 0
    except errors.KafkaError as error:
        return None if error.retriable else 0


class _NotOfAllError(errors.KafkaError):  # type: ignore[misc]  # untyped
    """A request for several partitions failed, for an unknown one of them."""


class _NotNowError(errors.KafkaError):  # type: ignore[misc]  # untyped
    """Hides a retriable error from the client, which would resend."""


_OF_ALL: Final = (
    errors.GroupLoadInProgressError,
    errors.GroupCoordinatorNotAvailableError,
    errors.NotCoordinatorForGroupError,
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    errors.RequestTimedOutError,
    errors.KafkaTimeoutError,
    errors.KafkaConnectionError,
)
"""Errors that always concern all partitions of a request."""


async def commit(consumer: Client, positions: Mapping[TopicPartition, tuple[int, str]], generation: int | None) -> None:
    """Commit under this generation, or not at all.

    aiokafka puts its current generation into a request, also when it resends. A group without
    members accepts a request without a generation from any client, which moves the position back.

    aiokafka resends a retriable commit ten times a second, for ever and silently; this function
    raises instead. For several partitions aiokafka raises the error of one, without saying which.

    Args:
        consumer: The client.
        positions: The position and metadata of each partition; all records below are done.
        generation: The value of `generation_of` at the assignment; `NO_GENERATION` is refused.

    Raises:
        NOT_OF_ALL: Some of several failed: send them one by one.
        errors.KafkaError: The commit failed, or its outcome is unknown.
    """
    coordinator = getattr(consumer, "_coordinator", None)
    send = getattr(coordinator, "_do_commit_offsets", None)
    if send is not None and not hasattr(send, "is_guarded"):

        async def sent(assignment: object, offsets: Mapping[object, object]) -> None:
            wanted = _COMMITTING.get()
            if wanted is not None and (wanted == NO_GENERATION or wanted != generation_of(consumer)):
                raise errors.CommitFailedError("the generation that it belongs to is over")
            try:
                await send(assignment, offsets)
            except errors.KafkaError as error:
                if len(offsets) > 1 and not isinstance(error, _OF_ALL):
                    raise _NotOfAllError from error
                if error.retriable:
                    raise _NotNowError from error
                raise

        sent.is_guarded = True  # type: ignore[attr-defined]
        coordinator._do_commit_offsets = sent  # type: ignore[union-attr]  # noqa: SLF001  builds the request
    token = _COMMITTING.set(generation)
    try:
        await consumer.commit({theirs(partition): position for partition, position in positions.items()})
    except _NotNowError as error:
        raise error.__cause__ or error from None
    except errors.IllegalStateError as error:  # unassigned partitions
        raise (_NotOfAllError() if len(positions) > 1 else error) from error
    finally:
        _COMMITTING.reset(token)


async def end(consumer: Client, partition: TopicPartition) -> int:
    return (await consumer.end_offsets([theirs(partition)]))[theirs(partition)]


async def ends(consumer: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The log ends of several, by one request to each broker; all or none."""
    found = await consumer.end_offsets([*map(theirs, partitions)])
    return {each: found[theirs(each)] for each in partitions}


async def log_ranges(consumer: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogRange]:
    """The offset ranges of several logs, by two requests to each broker; all or none.

    For a `read_committed` reader the public call ends a log at the first open transaction, before
    valid positions. So aiokafka's fetcher asks as a reader of all records; another client may have
    `log_ends`.
    """
    asked = [*map(theirs, partitions)]
    starts = await consumer.beginning_offsets(asked)
    ends_ = await _log_ends(consumer, asked)
    return {each: LogRange(starts[theirs(each)], max(starts[theirs(each)], ends_[theirs(each)])) for each in partitions}


async def _log_ends(consumer: Client, asked: Sequence[object]) -> Mapping[object, int]:
    own = getattr(consumer, "log_ends", None)
    if own is not None:
        return cast("Mapping[object, int]", await own(asked))
    fetcher = getattr(consumer, "_fetcher", None)
    if getattr(fetcher, "_isolation_level", READ_UNCOMMITTED) == READ_UNCOMMITTED:
        return await consumer.end_offsets(asked)
    of_all: Any = copy(fetcher)
    of_all._isolation_level = READ_UNCOMMITTED  # noqa: SLF001  part of the request
    patience_ms = consumer._request_timeout_ms  # type: ignore[attr-defined]  # noqa: SLF001  as `end_offsets` does
    return cast("Mapping[object, int]", await of_all.end_offsets(asked, patience_ms))


async def fetched_raw(
    consumer: Client, partition: TopicPartition, position: int
) -> tuple[bytes, object, object] | None:
    """The broker's record batches at a position, aborted transactions, and the isolation level;
    None if unsupported.
    """
    fetcher, client = getattr(consumer, "_fetcher", None), getattr(consumer, "_client", None)
    if fetcher is None or client is None:
        return None
    place, size = theirs(partition), fetcher._max_partition_fetch_bytes  # noqa: SLF001  no public way
    isolation = fetcher._isolation_level  # noqa: SLF001  as above
    node = client.cluster.leader_for_partition(place)
    if client.cluster.broker_metadata(node) is None:
        raise errors.LeaderNotAvailableError(place)
    asked = [(partition.topic, [(partition.partition, position, size)])]
    answer = await client.send(node, FetchRequest(0, 0, size, isolation, asked))
    [(_, [(_, code, _, *rest)])] = answer.topics
    if (kind := errors.for_code(code)) is not errors.NoError:
        raise kind(place)
    aborted = rest[2] if answer.API_VERSION >= 11 else rest[-2]  # present since batches have headers
    return rest[-1], aborted, isolation


def out_of_range(error: BaseException) -> dict[TopicPartition, int]:
    told = error.args[0] if isinstance(error, OUT_OF_RANGE) and error.args else None
    return {ours(each): position for each, position in told.items()} if isinstance(told, Mapping) else {}


def position_seen(consumer: Client, partition: TopicPartition) -> int | None:
    """The offset that the client reads next, past control markers and records of aborted
    transactions.
    """
    with suppress(AssertionError, AttributeError, KeyError):  # as in `end_seen`
        return cast("int", consumer._subscription.subscription.assignment.state_value(theirs(partition)).position)  # type: ignore[attr-defined]  # noqa: SLF001
    return None


def end_seen(consumer: Client, partition: TopicPartition) -> int | None:
    """The log end that the client last saw; callable from any thread."""
    seen = getattr(consumer, "highwater", None)
    with suppress(AssertionError, AttributeError, KeyError):  # revoked meanwhile
        found = None if seen is None else seen(theirs(partition))
        return found if isinstance(found, int) else None
    return None


async def offset_at(consumer: Client, partition: TopicPartition, time: datetime) -> int:
    """The first record that is not older, or the end of the log."""
    asked = {theirs(partition): round(time.timestamp() * 1_000)}
    found = (await consumer.offsets_for_times(asked)).get(theirs(partition))
    return await end(consumer, partition) if found is None else found.offset


def absent(consumer: Client, topics: Sequence[str]) -> frozenset[str]:
    """The topics that the cluster lacks, by the client's last metadata."""
    seen = getattr(consumer, "partitions_for_topic", None)
    return frozenset(each for each in topics if seen is not None and not seen(each))


def watch(consumer: Client, look: Callable[[], None]) -> None:
    cluster = getattr(getattr(consumer, "_client", None), "cluster", None)
    listen = getattr(cluster, "add_listener", None)
    if listen is not None:
        listen(lambda _: look())


def refresh(consumer: Client) -> None:
    with suppress(AttributeError):
        consumer._client.force_metadata_update()  # type: ignore[attr-defined]  # noqa: SLF001


def rejoin(consumer: Client) -> None:
    with suppress(AttributeError):
        consumer._coordinator.request_rejoin()  # type: ignore[attr-defined]  # noqa: SLF001


class _Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def __init__(self, on_revoked: _Rebalanced, on_assigned: _Rebalanced) -> None:
        self._on_revoked, self._on_assigned = on_revoked, on_assigned

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._on_revoked(sorted(map(ours, revoked)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._on_assigned(sorted(map(ours, assigned)))


def listener(on_revoked: _Rebalanced, on_assigned: _Rebalanced) -> object:
    """Passes partitions in order, unlike aiokafka's sets."""
    return _Listener(on_revoked, on_assigned)


_KEPT: Final = 4_096


@lru_cache(_KEPT)
def ours(partition: object) -> TopicPartition:
    theirs_ = cast("TopicPartition", partition)
    return TopicPartition(theirs_.topic, theirs_.partition)


@lru_cache(_KEPT)
def theirs(partition: TopicPartition) -> object:
    return aiokafka.TopicPartition(partition.topic, partition.partition)


def record_of(received: Received) -> Record:
    """A record of aiokafka as a value; a timestamp of -1 means none."""
    key, value, headers = received.key, received.value, received.headers
    if headers or not (key is None or type(key) is bytes) or not (value is None or type(value) is bytes):
        instant = _instant(received.timestamp, received.timestamp_type)
        return Record(received.topic, received.partition, received.offset, key, value, tuple(headers), instant)
    return _plain_record(received)


_SET: Final = {
    kind: {each.name: getattr(kind, each.name).__set__ for each in attrs.fields(kind)} for kind in (Record, Instant)
}
_TOPIC, _PARTITION, _OFFSET, _KEY, _VALUE, _HEADERS, _TIMESTAMP = _SET[Record].values()
_AT, _CLOCK = _SET[Instant].values()


def _plain_record(received: Received) -> Record:
    """Without the checks, which take twice as long as the construction, a fifth of the worker's
    time; aiokafka has parsed it.
    """
    made = object.__new__(Record)
    _TOPIC(made, received.topic)
    _PARTITION(made, received.partition)
    _OFFSET(made, received.offset)
    _KEY(made, received.key)
    _VALUE(made, received.value)
    _HEADERS(made, ())
    _TIMESTAMP(made, _instant(received.timestamp, received.timestamp_type))
    return made


@lru_cache
def _instant(at: int | None, kind: int | None) -> Instant | None:
    """Cached, because fast records often share a millisecond."""
    if at is None or at < 0:
        return None
    made = object.__new__(Instant)
    _AT(made, at * MILLISECOND)
    _CLOCK(made, BROKER if kind == _LOG_APPEND_TIME else PRODUCER)
    return made


_LOG_APPEND_TIME = 1


_FAILURES: Final = {
    errors.UnknownTopicOrPartitionError: CommitFailure.GONE,
    errors.GroupAuthorizationFailedError: CommitFailure.FORBIDDEN,
    errors.TopicAuthorizationFailedError: CommitFailure.FORBIDDEN,
    errors.CommitFailedError: CommitFailure.FENCED,
    errors.IllegalStateError: CommitFailure.FENCED,
    errors.OffsetMetadataTooLargeError: CommitFailure.TOO_LARGE,
    errors.InvalidCommitOffsetSizeError: CommitFailure.TOO_LARGE,
}
"""The definite commit errors; any other leaves the outcome unknown."""


def commit_failure(error: BaseException) -> CommitFailure:
    found = (failure for kind, failure in _FAILURES.items() if isinstance(error, kind))
    return next(found, CommitFailure.UNKNOWN)


GONE = errors.UnknownTopicOrPartitionError
KAFKA_ERROR = errors.KafkaError
CONNECTION_ERROR = errors.KafkaConnectionError
NOT_ASSIGNED = errors.IllegalStateError
NOT_OF_ALL = _NotOfAllError
OUT_OF_RANGE = errors.OffsetOutOfRangeError
TIMED_OUT = errors.KafkaTimeoutError
WRONG_SESSION = errors.InvalidSessionTimeoutError
PRODUCER_CLOSED = errors.ProducerClosed


_FENCED: Final = (errors.ProducerFenced, errors.InvalidProducerEpoch)
_FORBIDDEN: Final = (errors.TransactionalIdAuthorizationFailed,)


def transaction_failure(error: BaseException) -> CommitFailure:
    """The fatal error of aiokafka's sender is wrapped in another one."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, _FENCED):
            return CommitFailure.FENCED
        if isinstance(at, _FORBIDDEN):
            return CommitFailure.FORBIDDEN
        if (found := commit_failure(at)) in (CommitFailure.TOO_LARGE, CommitFailure.FORBIDDEN):
            return found
        at = at.__cause__
    return CommitFailure.UNKNOWN


_OF_THE_PRODUCER: Final = (
    errors.OutOfOrderSequenceNumber,
    errors.DuplicateSequenceNumber,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
    errors.UnknownProducerId,
)
"""Errors caused by the producer's sequence number or id, not by the record."""


def send_failure(error: Exception) -> Failure:
    """A refusal, or a record that the client cannot encode, is never retried; nor is a missing
    topic, which aiokafka would retry.
    """
    is_answer = isinstance(error, errors.BrokerResponseError) and not isinstance(error, _OF_THE_PRODUCER)
    is_unanswered = isinstance(error, (errors.KafkaError, OSError, TimeoutError)) and not is_answer
    is_refused = isinstance(error, GONE) or not (is_unanswered or getattr(error, "retriable", False))
    failure: Failure = Refused(str(error)) if is_refused else Ambiguous(type(error).__name__)
    failure.__cause__ = error
    return failure
