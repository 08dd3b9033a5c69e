"""Scripts of calls of Kafka's clients, for a real broker with aiokafka or for the simulated ones.

Each member has an account of its results and another of its listener, because their relative order
is often open. Committed positions come last. A difference of two accounts shows a mistake of the
simulation. Polls continue until no record arrives: Kafka does not define the size of fetches.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias, final

import aiokafka
import attrs
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.errors import KafkaConnectionError
from tests.integration.servers.kafka import _create_topic as create_topic_in_loop

from tidegate.sim.servers.log import CONTROL
from tidegate_adapters.kafka.client import log_ranges, ours
from tidegate_adapters.kafka.static_membership import Seat, is_taken, seat_of
from tidegate_adapters.testing.kafka import (
    CODES,
    Network,
    Outcome,
    SimulatedBroker,
    SimulatedConsumer,
    SimulatedProducer,
)
from tidegate_adapters.testing.kafka import requests as simulated

Account: TypeAlias = Mapping[str, tuple[str, ...]]
PARTITIONS = 4
QUIET_S, LIMIT_S = 0.8, 20.0
OPTIONS: Mapping[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 4_000,
    "heartbeat_interval_ms": 200,
}


@attrs.frozen
class Step:
    member: str = "a"


@final
@attrs.frozen
class Start(Step):
    """A consumer starts and subscribes.

    Attributes:
        raises: What its listener raises: at "revoked" or "assigned", what, and how often.
        sleeps: Seconds that its listener takes for the first non-empty revocation.
    """

    options: Mapping[str, Any] = attrs.field(factory=dict)
    raises: tuple[str, type[BaseException], int] | None = None
    sleeps: float = 0.0
    commits: int | None = None


@final
@attrs.frozen
class Stop(Step):
    pass


@final
@attrs.frozen
class Kill(Step):
    """It disappears without leaving the group."""


@final
@attrs.frozen
class Settle(Step):
    """Wait until every member has this generation and is idle."""


@final
@attrs.frozen
class Wait(Step):
    seconds: float = 1.0


@final
@attrs.frozen
class Produce(Step):
    """Records: plain, in a transaction with its marker, or with a header name that is not UTF-8."""

    partition: int = 0
    count: int = 3
    kind: str = "plain"


@final
@attrs.frozen
class DeleteBelow(Step):
    partition: int = 0
    offset: int = 0


@final
@attrs.frozen
class Grow(Step):
    partitions: int = PARTITIONS + 1


@final
@attrs.frozen
class Remove(Step):
    pass


@final
@attrs.frozen
class Create(Step):
    pass


@final
@attrs.frozen
class Poll(Step):
    partitions: tuple[int, ...] = ()


@final
@attrs.frozen
class Commit(Step):
    partition: int = 0
    offset: int = 1
    metadata: str = ""
    way: str = "await"


@final
@attrs.frozen
class Outcomes(Step):
    pass


@final
@attrs.frozen
class Begin(Step):
    name: str = "x"
    options: Mapping[str, Any] = attrs.field(factory=dict)
    way: str = "await"


@final
@attrs.frozen
class Transact(Step):
    """Begin, send, position, commit, abort, stop or kill; optionally in its own task."""

    call: str = "begin"
    partition: int = 0
    offset: int = 1
    metadata: str = ""
    way: str = "await"


@final
@attrs.frozen
class Call(Step):
    """A call of the client by name, such as `end_offsets`; or `log_ends`."""

    call: str = "committed"
    partition: int = 0


@final
@attrs.frozen
class Ask(Step):
    """Ask the coordinator whether another process has the static name of this member."""


@final
@attrs.frozen
class Seek(Step):
    partition: int = 0
    offset: int = 0


@final
@attrs.frozen
class Strike(Step):
    """The next requests of that kind fail: with an error code, "unsent" or "lost reply"."""

    request: str = "OffsetCommit"
    outcome: str = "unsent"
    times: int = 1


@final
@attrs.frozen
class Heal(Step):
    pass


Script: TypeAlias = tuple[Step, ...]


class Kafka(Protocol):
    topic: str
    group: str
    struck: dict[tuple[str, str], tuple[str, int]]

    def consumer(self, member: str, options: Mapping[str, Any]) -> Any: ...
    def producer(self, member: str, name: str, options: Mapping[str, Any]) -> Any: ...
    async def kill_producer(self, producer: Any) -> None: ...
    def is_settled(self, consumer: Any) -> bool: ...
    async def kill(self, consumer: Any) -> None: ...
    async def produce(self, step: Produce) -> None: ...
    async def delete_below(self, step: DeleteBelow) -> None: ...
    async def grow(self, partitions: int) -> None: ...
    async def remove(self) -> None: ...
    async def create(self) -> None: ...
    async def committed(self) -> Mapping[int, tuple[int, str]]: ...


# --- playing ------------------------------------------------------------------------------------------------------------


class _Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    def __init__(self, start: Start, played: _Play) -> None:
        self._start, self._played, self._left = start, played, start.raises[2] if start.raises else 0
        self._slept = False

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._played.hear(self._start.member, f"revoked {_numbers(revoked)}")
        if revoked and not self._slept:
            self._slept = True
            await asyncio.sleep(self._start.sleeps)
        if self._start.commits is not None and revoked:
            told = await self._played.saw(self._commit(revoked, self._start.commits))
            self._played.hear(self._start.member, f"commit as revoked: {told}")
        self._raise("revoked")

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._played.hear(self._start.member, f"assigned {_numbers(assigned)}")
        self._raise("assigned")

    async def _commit(self, partitions: Collection[Any], offset: int) -> None:
        consumer = self._played.consumers[self._start.member]
        await consumer.commit(dict.fromkeys(partitions, (offset, "")))

    def _raise(self, when: str) -> None:
        if self._left and self._start.raises is not None and self._start.raises[0] == when:
            self._left -= 1
            raise self._start.raises[1]


@final
class _Play:
    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.consumers: dict[str, Any] = {}
        self.producers: dict[str, Any] = {}
        self.opened: list[Any] = []
        self.account: dict[str, list[str]] = {}
        self.later: dict[str, list[tuple[str, asyncio.Task[Any]]]] = {}
        self._changes = 0
        self._seats: dict[str, Seat] = {}

    def tell(self, member: str, what: str) -> None:
        self._changes += 1
        self.account.setdefault(member, []).append(what)

    def hear(self, member: str, what: str) -> None:
        self.tell(f"{member}'s listener", what)
        heard = self.account[f"{member}'s listener"]
        if heard[-4:-2] == heard[-2:] and len(heard) > 3:
            del heard[-2:]

    async def saw(self, call: Any, *, is_explained: bool = False) -> str:
        task = asyncio.ensure_future(call)
        try:
            async with asyncio.timeout(LIMIT_S):
                return str(await task)
        except TimeoutError:
            return "no answer"
        except asyncio.CancelledError:
            return "CancelledError"
        except Exception as error:  # noqa: BLE001  any exception is a result
            because = "" if error.__cause__ is None else f" for {type(error.__cause__).__name__}"
            return f"{type(error).__name__}{because if is_explained else ''}"

    def partition(self, number: int) -> Any:
        return aiokafka.TopicPartition(self.kafka.topic, number)

    async def step(self, step: Step) -> None:
        consumer: Any = self.consumers.get(step.member)
        match step:
            case Start(member, options):
                consumer = self.consumers[member] = self.kafka.consumer(member, {**OPTIONS, **options})
                self.tell(member, f"start: {await self.saw(consumer.start())}")
                consumer.subscribe([self.kafka.topic], listener=_Listener(step, self))
            case Stop(member):
                self.tell(member, f"stop: {await self.saw(consumer.stop())}")
                del self.consumers[member]
            case Kill(member):
                await self.kafka.kill(consumer)
                del self.consumers[member]
            case Settle():
                await self.settle()
            case Wait(_, seconds):
                await asyncio.sleep(seconds)
            case Produce():
                await self.kafka.produce(step)
            case DeleteBelow():
                await self.kafka.delete_below(step)
            case Grow(_, partitions):
                await self.kafka.grow(partitions)
            case Remove():
                await self.kafka.remove()
            case Create():
                await self.kafka.create()
            case Poll(member, partitions):
                self.tell(member, f"polled {await self.polled(consumer, partitions)}")
            case Commit():
                await self.commit(step)
            case Outcomes(member):
                for name, each in self.later.pop(member, []):
                    self.tell(member, f"{name}: {await self.saw(each, is_explained=name != 'commit of offsets')}")
            case Begin(member, name, options, way):
                producer = self.producers[member] = self.kafka.producer(member, name, options)
                self.opened.append(producer)
                await self.asked(member, "start", producer.start(), way)
            case Transact(member, call):
                await self.asked(member, call, self.transacted(step), step.way)
            case Call(member, call, number):
                self.tell(member, f"{call} {number}: {await self.called(consumer, call, number)}")
            case Ask(member):
                self.tell(member, f"its name is taken: {await self.saw(self.taken(member))}")
            case Seek(member, number, offset):
                consumer.seek(self.partition(number), offset)
            case Strike(member, request, outcome, times):
                self.kafka.struck[member, request] = (outcome, times)
            case Heal(member):
                for key in [key for key in self.kafka.struck if key[0] == member]:
                    del self.kafka.struck[key]
            case _:
                raise AssertionError(step)

    async def taken(self, member: str) -> bool:
        consumer = self.consumers[member]
        now = seat_of(consumer, self.kafka.group, "i")
        assert now is not None
        seat = self._seats[member] = now if now.member_id else self._seats[member]
        return await is_taken(consumer, seat)

    async def commit(self, step: Commit) -> None:
        consumer = self.consumers[step.member]
        task = asyncio.ensure_future(consumer.commit({self.partition(step.partition): (step.offset, step.metadata)}))
        if step.way == "later":
            self.later.setdefault(step.member, []).append(("commit of offsets", task))
            return
        if step.way == "cancel":
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
        self.tell(step.member, f"commit {step.partition}@{step.offset}: {await self.saw(task)}")
        if step.way == "cancel":
            await asyncio.sleep(QUIET_S)

    async def asked(self, member: str, name: str, call: Any, way: str) -> None:
        task = asyncio.ensure_future(call)
        if way == "later":
            self.later.setdefault(member, []).append((name, task))
        else:
            self.tell(member, f"{name}: {await self.saw(task, is_explained=True)}")

    async def transacted(self, step: Transact) -> object:
        producer, partition = self.producers[step.member], self.partition(step.partition)
        match step.call:
            case "send":
                return (await producer.send_and_wait(partition.topic, b"x", partition=step.partition)).offset
            case "position":
                offsets = {partition: (step.offset, step.metadata)}
                return await producer.send_offsets_to_transaction(offsets, self.kafka.group)
            case "kill":
                await self.kafka.kill_producer(producer)
                return None
            case "stop":
                return await producer.stop()
            case _:
                return await getattr(producer, f"{step.call}_transaction")()

    async def called(self, consumer: Any, call: str, number: int) -> str:
        partition = self.partition(number)
        match call:
            case "committed" | "position":
                return await self.saw(getattr(consumer, call)(partition))
            case "log_ends":
                return await self.saw(log_end(consumer, ours(partition)))
            case "end_offsets" | "beginning_offsets":

                async def listed() -> int:
                    return int((await getattr(consumer, call)([partition]))[partition])

                return await self.saw(listed())
            case "paused":
                return str(partition in consumer.paused())
            case _:

                async def told() -> None:
                    getattr(consumer, call)(partition)

                return await self.saw(told())

    async def polled(self, consumer: Any, partitions: tuple[int, ...]) -> str:
        named = [self.partition(number) for number in partitions]
        found: dict[int, list[int]] = {}
        raised: dict[str, None] = {}
        loop = asyncio.get_running_loop()
        last = loop.time()
        while loop.time() - last < QUIET_S:
            began = loop.time()
            try:
                async with asyncio.timeout(LIMIT_S):
                    polled = await consumer.getmany(*named, timeout_ms=100)
            except TimeoutError:
                raised["no answer"] = None
                break
            except asyncio.CancelledError:
                raised["CancelledError"] = None
                break
            except Exception as error:  # noqa: BLE001  any exception is a result
                if type(error).__name__ not in raised:
                    raised[type(error).__name__] = None
                    last = loop.time()  # records may follow
                await asyncio.sleep(0.05)
                continue
            if loop.time() - began > QUIET_S:
                last = loop.time()  # the group was rebalancing
            for partition, records in polled.items():
                if records:
                    found.setdefault(partition.partition, []).extend(each.offset for each in records)
                    last = loop.time()
        told = "; ".join(f"{number}: {found[number]}" for number in sorted(found))
        return f"{told} {sorted(raised)}"

    async def settle(self) -> None:
        loop = asyncio.get_running_loop()
        began = quiet = loop.time()
        seen = -1
        while loop.time() - quiet < QUIET_S and loop.time() - began < LIMIT_S:
            is_settled = all(self.kafka.is_settled(each) for each in self.consumers.values())
            if not is_settled or seen != self._changes:
                seen, quiet = self._changes, loop.time()
            await asyncio.sleep(0.05)


async def log_end(consumer: Any, partition: Any) -> int:
    """The end of a log for readers of all records, as the worker queries it."""
    return (await log_ranges(consumer, (partition,)))[partition].end


async def play(script: Script, kafka: Kafka) -> Account:
    played = _Play(kafka)
    for step in script:
        await played.step(step)
    committed = await kafka.committed()
    played.account["committed"] = [f"{number}: {committed[number]}" for number in sorted(committed)]
    account = {member: tuple(told) for member, told in played.account.items()}
    kafka.struck.clear()
    for each in played.opened:
        await kafka.kill_producer(each)
    for consumer in played.consumers.values():
        await played.saw(consumer.stop())
    return account


def _numbers(partitions: Collection[Any]) -> list[int]:
    return sorted(each.partition for each in partitions)


# --- the simulated one --------------------------------------------------------------------------------------------------


@final
class SimulatedKafka:
    topic, group = "t", "g"

    def __init__(self, random: Any) -> None:
        self.struck: dict[tuple[str, str], tuple[str, int]] = {}
        self.broker = SimulatedBroker({"t": PARTITIONS})
        self.network = Network(self.broker, random, strike=self._strike)

    def _strike(self, client: str, request: simulated.Request) -> Outcome | simulated.Code | None:
        name = _taken(self.struck, client, type(request).__name__)
        if name is None:
            return None
        if name in {each.value for each in Outcome}:
            return Outcome(name)
        return next(code for code in CODES[type(request)] if code.__name__ == name)

    def consumer(self, member: str, options: Mapping[str, Any]) -> SimulatedConsumer:
        return SimulatedConsumer(self.network, client_id=member, **{"group_id": "g", **options})

    def producer(self, member: str, name: str, options: Mapping[str, Any]) -> SimulatedProducer:
        return SimulatedProducer(self.network, client_id=member, transactional_id=name, **options)

    async def kill_producer(self, producer: SimulatedProducer) -> None:
        producer.kill()

    def is_settled(self, consumer: SimulatedConsumer) -> bool:
        return consumer._coordinator is not None and consumer._coordinator.is_settled  # noqa: SLF001  as for the real one

    async def kill(self, consumer: SimulatedConsumer) -> None:
        consumer.kill()

    async def produce(self, step: Produce) -> None:
        self.broker.append("t", step.partition, *[None] * step.count, poison=step.kind == "poison")
        if step.kind == "transaction":
            self.broker.append("t", step.partition, CONTROL)

    async def delete_below(self, step: DeleteBelow) -> None:
        self.broker.delete_below("t", step.partition, step.offset)

    async def grow(self, partitions: int) -> None:
        self.broker.grow("t", partitions)

    async def remove(self) -> None:
        self.broker.delete("t")

    async def create(self) -> None:
        self.broker.grow("t", PARTITIONS)

    async def committed(self) -> Mapping[int, tuple[int, str]]:
        return {partition.partition: (at.offset, at.metadata) for partition, at in self.broker.committed("g").items()}


def _taken(struck: dict[tuple[str, str], tuple[str, int]], member: str, request: str) -> str | None:
    outcome, times = struck.get((member, request), ("", 0))
    if not times:
        return None
    struck[member, request] = (outcome, times - 1)
    return outcome


# --- the real one -------------------------------------------------------------------------------------------------------

REQUESTS = {
    "JoinGroupRequest": "JoinGroup",
    "SyncGroupRequest": "SyncGroup",
    "HeartbeatRequest": "Heartbeat",
    "LeaveGroupRequest": "LeaveGroup",
    "OffsetCommitRequest": "OffsetCommit",
    "OffsetFetchRequest": "OffsetFetch",
    "FetchRequest": "Fetch",
    "OffsetRequest": "ListOffsets",
    "FindCoordinatorRequest": "FindCoordinator",
    "InitProducerIdRequest": "InitProducerId",
    "AddPartitionsToTxnRequest": "AddPartitionsToTxn",
    "AddOffsetsToTxnRequest": "AddOffsetsToTxn",
    "TxnOffsetCommitRequest": "TxnOffsetCommit",
    "EndTxnRequest": "EndTxn",
    "ProduceRequest": "Produce",
}


@final
class RealKafka:
    """A real broker. Failing requests never reach it, or their replies are dropped."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.struck: dict[tuple[str, str], tuple[str, int]] = {}

    def consumer(self, member: str, options: Mapping[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id=member,
            **{**options, "group_id": self.group + options.get("group_id", "")},
        )
        self._strikes(consumer._client, member)  # noqa: SLF001  faults are chosen where requests are sent
        return consumer

    def producer(self, member: str, name: str, options: Mapping[str, Any]) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, client_id=member, transactional_id=f"{self.topic}-{name}", **options
        )
        self._strikes(producer.client, member)
        return producer

    async def kill_producer(self, producer: Any) -> None:
        producer._closed = True  # noqa: SLF001  no request on the way out
        if (task := producer._sender.sender_task) is not None:  # noqa: SLF001
            task.cancel()
            await asyncio.wait({task})
        await producer.client.close()

    def _strikes(self, client: Any, member: str) -> None:
        send = client.send

        async def sent(node: int, request: Any, **more: Any) -> Any:
            outcome = _taken(self.struck, member, REQUESTS.get(type(request).__name__, ""))
            if outcome is None:
                return await send(node, request, **more)
            if outcome == "lost reply":
                await send(node, request, **more)
            if outcome in {"lost reply", "unsent"}:
                raise KafkaConnectionError("broken by the test")
            await asyncio.sleep(0.002)
            return _refused(request, next(each for each in _codes() if each.__name__ == outcome).errno)

        client.send = sent

    def is_settled(self, consumer: Any) -> bool:
        coordinator = consumer._coordinator  # noqa: SLF001
        return (
            coordinator.generation > 0
            and not coordinator._rejoin_needed_fut.done()  # noqa: SLF001
            and not consumer._subscription.reassignment_in_progress  # noqa: SLF001
        )

    async def kill(self, consumer: Any) -> None:
        coordinator = consumer._coordinator  # noqa: SLF001
        tasks = (coordinator._coordination_task, coordinator._heartbeat_task, coordinator._commit_refresh_task)  # noqa: SLF001
        for task in tasks:
            if task is not None:
                task.cancel()
        coordinator.generation = -1  # no request on the way out
        with contextlib.suppress(BaseException):
            await consumer.stop()
        await consumer._fetcher.close()  # noqa: SLF001
        await consumer._client.close()  # noqa: SLF001

    async def produce(self, step: Produce) -> None:
        if step.kind != "transaction":
            async with self._producer() as producer:
                await self._send(producer, step)
            return
        id_ = f"{self.topic}-{step.partition}"
        async with self._producer(transactional_id=id_) as producer, producer.transaction():
            await self._send(producer, step)
        async with self._producer(transactional_id=id_) as producer, producer.transaction():
            pass  # it starts once the marker of the one before is written, after its commit

    async def _send(self, producer: Any, step: Produce) -> None:
        for _ in range(step.count):
            headers = [(_NotUtf8("x"), b"v")] if step.kind == "poison" else []
            with _in_python() if headers else contextlib.nullcontext():
                await producer.send_and_wait(self.topic, b"x", partition=step.partition, headers=headers)

    @asynccontextmanager
    async def _producer(self, **options: str) -> AsyncIterator[Any]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    async def delete_below(self, step: DeleteBelow) -> None:
        async with self._admin() as admin:
            partition = aiokafka.TopicPartition(self.topic, step.partition)
            await admin.delete_records({partition: RecordsToDelete(before_offset=step.offset)})

    async def grow(self, partitions: int) -> None:
        async with self._admin() as admin:
            await admin.create_partitions({self.topic: NewPartitions(partitions)})

    async def remove(self) -> None:
        async with self._admin() as admin:
            await admin.delete_topics([self.topic])
            while self.topic in await admin.list_topics():  # noqa: ASYNC110  the broker's state
                await asyncio.sleep(0.01)

    async def committed(self) -> Mapping[int, tuple[int, str]]:
        async with self._admin() as admin:
            found = await admin.list_consumer_group_offsets(self.group)
        return {partition.partition: (at.offset, at.metadata) for partition, at in found.items() if at.offset >= 0}

    async def create(self) -> None:
        await create_topic_in_loop(self.bootstrap, self.topic, PARTITIONS)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()


class _NotUtf8(str):
    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


@contextlib.contextmanager
def _in_python() -> Any:
    """Build batches in Python: aiokafka's compiled builder refuses such a name."""
    from aiokafka.producer import message_accumulator, producer
    from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as Builder

    with pytest.MonkeyPatch.context() as patch:
        for module in (message_accumulator, producer):
            patch.setattr(module, "DefaultRecordBatchBuilder", Builder)
        yield


def _codes() -> Counter[Any]:
    return Counter(code for codes in CODES.values() for code in codes)


def _refused(request: Any, code: int) -> Any:
    topics = []
    for name in ("_topics", "_partitions"):
        for topic, partitions in getattr(request, name, None) or ():
            topics.append((topic, [_refused_partition(request, each, code) for each in partitions]))
    return SimpleNamespace(
        error_code=code, topics=topics, errors=topics, API_VERSION=2, member_id="", coordinator_id=-1
    )


def _refused_partition(request: Any, partition: Any, code: int) -> tuple[Any, ...]:
    number = partition if isinstance(partition, int) else partition[0]
    match type(request).__name__:
        case "OffsetFetchRequest":
            return number, -1, "", code
        case "OffsetCommitRequest" | "AddPartitionsToTxnRequest" | "TxnOffsetCommitRequest":
            return number, code
        case _:
            return number, code, -1, -1
