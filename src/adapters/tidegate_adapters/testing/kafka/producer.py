"""Connects aiokafka's own `AIOKafkaProducer` to the simulated broker.

Its transaction state, retries and failures are its own. This module translates requests and
answers. The client refreshes metadata like aiokafka's. It has one broker, which it always reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, cast, final

from aiokafka import AIOKafkaProducer, errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.protocol import coordination, produce, transaction
from aiokafka.record import MemoryRecords

from tidegate_adapters.testing.kafka.connection import Network
from tidegate_adapters.testing.kafka.requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Batch,
    Code,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    Metadata,
    Partition,
    Position,
    Produce,
    ProducerEpoch,
    Request,
    TxnOffsetCommit,
    Written,
)

_NODE: Final = 1
_MS: Final = 1_000
_OF_A_TRANSACTION: Final = 1
"""aiokafka's coordinator type for transactions."""
_NONE: Final = -1
"""A missing offset, time or producer id."""


@final
class SimulatedProducer(AIOKafkaProducer):  # type: ignore[misc]  # it has no types
    """A producer on the running event loop; faults are chosen by its client id."""

    def __init__(self, network: Network, *, client_id: str, **options: Any) -> None:
        super().__init__(client_id=client_id, **options)
        made: Any = self.client  # type: ignore[has-type]
        self.client = self._sender.client = _Client(network, made)
        self._metadata = self._message_accumulator._cluster = self.client.cluster  # noqa: SLF001  where it looks for leaders

    def kill(self) -> None:
        """Stop like a killed process, without a message to the broker."""
        self._closed = True
        self.client.abandon()
        for task in (self._sender.sender_task, self.client._sync_task):  # noqa: SLF001  all that it runs
            if task is not None:
                task.cancel()


@final
class _Client(AIOKafkaClient):  # type: ignore[misc]  # it has no types
    """A client that sends requests to the simulated broker."""

    def __init__(self, network: Network, made: Any) -> None:
        super().__init__(
            client_id=made._client_id,  # noqa: SLF001  likewise
            metadata_max_age_ms=made._metadata_max_age_ms,  # noqa: SLF001
            request_timeout_ms=made._request_timeout_ms,  # noqa: SLF001
            retry_backoff_ms=round(made._retry_backoff * _MS),  # noqa: SLF001
        )
        self._asking = network.connect(made._client_id)  # noqa: SLF001
        self._of = {
            ConnectionGroup.DEFAULT: network.connect(made._client_id),  # noqa: SLF001
            ConnectionGroup.COORDINATION: network.connect(made._client_id),  # noqa: SLF001
        }

    async def bootstrap(self) -> None:
        if not await self._metadata_update(self.cluster, ()):
            raise errors.KafkaConnectionError("Unable to bootstrap")
        self._sync_task = asyncio.get_running_loop().create_task(self._md_synchronizer())

    async def close(self) -> None:
        await super().close()
        for each in (self._asking, *self._of.values()):
            each.close()

    def abandon(self) -> None:
        for each in (self._asking, *self._of.values()):
            each.abandon()

    async def ready(self, _node: int, *, group: object = None) -> bool:  # noqa: ARG002  there is one broker
        return True

    async def send(self, _node: int, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        return _answered(request, await self._of[group].send(_asked(request)))

    async def _metadata_update(self, cluster: Any, _topics: object) -> bool:
        try:
            partitions = cast("tuple[Partition, ...]", await self._asking.send(Metadata()))
        except errors.KafkaError:
            cluster.failed_update(None)
            return False
        topics: dict[str, list[tuple[int, int, int, list[int], list[int]]]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append((0, number, _NODE, [_NODE], [_NODE]))
        cluster.update_metadata(
            SimpleNamespace(
                API_VERSION=1,
                brokers=[(_NODE, "simulated", 9_092, None)],
                controller_id=_NODE,
                topics=[(0, topic, False, numbers) for topic, numbers in topics.items()],
            )
        )
        return True


def _asked(request: Any) -> Request:
    it = SimpleNamespace(**{name.removeprefix("_"): value for name, value in vars(request).items()})
    match request:
        case coordination.FindCoordinatorRequest():
            return FindCoordinator(it.coordinator_key, it.coordinator_type == _OF_A_TRANSACTION)
        case transaction.InitProducerIdRequest():
            return InitProducerId(it.transactional_id, it.transaction_timeout_ms / _MS)
        case produce.ProduceRequest():
            batches = {Partition(topic, number): _batch(data) for topic, each in it.topics for number, data in each}
            return Produce(it.transactional_id, batches)
        case _:
            return _of_a_transaction(request, it)


def _of_a_transaction(request: Any, it: Any) -> Request:
    id_, producer = it.transactional_id, ProducerEpoch(it.producer_id, it.producer_epoch)
    match request:
        case transaction.AddPartitionsToTxnRequest():
            added = tuple(Partition(topic, number) for topic, numbers in it.topics for number in numbers)
            return AddPartitionsToTxn(id_, producer, added)
        case transaction.AddOffsetsToTxnRequest():
            return AddOffsetsToTxn(id_, producer, it.group_id)
        case transaction.TxnOffsetCommitRequest():
            offsets = {
                Partition(topic, number): Position(offset, metadata)
                for topic, each in it.topics
                for number, offset, metadata in each
            }
            return TxnOffsetCommit(id_, producer, it.group_id, offsets)
        case transaction.EndTxnRequest():
            return EndTxn(id_, producer, bool(it.transaction_result))
        case _:
            raise AssertionError(request)


def _batch(data: Any) -> Batch:
    batch = MemoryRecords(bytes(data)).next_batch()
    producer = ProducerEpoch(batch.producer_id, batch.producer_epoch)
    records = tuple((each.key, Written(each.value, tuple(each.headers))) for each in batch)
    return Batch(producer, batch.base_sequence, bool(batch.is_transactional), records)


def _answered(request: Any, answer: Any) -> Any:
    match request:
        case coordination.FindCoordinatorRequest():
            return SimpleNamespace(error_code=answer.errno, coordinator_id=_NODE)
        case transaction.InitProducerIdRequest():
            producer = answer if isinstance(answer, ProducerEpoch) else ProducerEpoch(_NONE, _NONE)
            code = errors.NoError if isinstance(answer, ProducerEpoch) else answer
            return SimpleNamespace(error_code=code.errno, producer_id=producer.id, producer_epoch=producer.epoch)
        case produce.ProduceRequest():
            return SimpleNamespace(API_VERSION=2, topics=_by_topic(answer, _written))
        case transaction.AddOffsetsToTxnRequest() | transaction.EndTxnRequest():
            return SimpleNamespace(error_code=answer.errno)
        case _:
            return SimpleNamespace(errors=_by_topic(answer, lambda code: (code.errno,)))


def _written(answer: int | Code) -> tuple[int, int, int]:
    if isinstance(answer, int):
        return errors.NoError.errno, answer, _NONE
    return answer.errno, _NONE, _NONE


def _by_topic(answers: Mapping[Partition, Any], told: Any) -> list[tuple[str, list[tuple[int, ...]]]]:
    topics: dict[str, list[tuple[int, ...]]] = {}
    for (topic, number), answer in answers.items():
        topics.setdefault(topic, []).append((number, *told(answer)))
    return [*topics.items()]
