"""An in-process Kafka broker: logs, groups, committed offsets and transactions.

Offsets have gaps at holes, such as transaction markers. The broker executes a request at one
instant, and answers fetches and joins once there is a result.

Known not to work: several brokers, offset expiry, automatic compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, assert_never, final

from aiokafka import errors

from tidegate.sim.servers.log import LogEntry
from tidegate_adapters.testing.kafka.logs import Log
from tidegate_adapters.testing.kafka.membership import BrokerClock, Membership, Reply
from tidegate_adapters.testing.kafka.positions import Positions
from tidegate_adapters.testing.kafka.requests import (
    BEGINNING,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Batch,
    Code,
    EndTxn,
    Fetch,
    FindCoordinator,
    Heartbeat,
    InitProducerId,
    JoinGroup,
    LeaveGroup,
    ListOffsets,
    Metadata,
    OffsetCommit,
    OffsetFetch,
    Partition,
    Position,
    Produce,
    ProducerEpoch,
    Read,
    Request,
    SyncGroup,
    TxnOffsetCommit,
)
from tidegate_adapters.testing.kafka.transactions import Part, TransactionCoordinator

_METADATA_MAX: Final = 4_096
_FETCHED_MAX: Final = 500

Decided: TypeAlias = Callable[[str, Mapping[Partition, tuple[int, ...]], Mapping[Partition, Position]], None]
"""Called at a commit before it is visible, with the id, the written offsets and the positions."""


@final
class SimulatedBroker:
    """A broker on the running event loop, with partition counts by topic.

    Args:
        fetched_max: Most records per partition and fetch.
        metadata_max: Longest commit metadata, in UTF-16 units.
        mark_s: Draws the delay of a transaction's next marker, in seconds.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        fetched_max: int = _FETCHED_MAX,
        metadata_max: int = _METADATA_MAX,
        mark_s: Callable[[], float] = lambda: 0.001,
    ) -> None:
        self.clock = BrokerClock()
        self._fetched_max, self._metadata_max = fetched_max, metadata_max
        self.logs = {Partition(topic, number): Log() for topic, count in topics.items() for number in range(count)}
        self.groups: dict[str, Membership] = {}
        self.positions = Positions()
        self.decided: Decided = lambda _id, _offsets, _positions: None
        self._transactions = TransactionCoordinator(self.clock, self._decide, self._mark, mark_s)
        self._waiting: dict[Partition, list[Callable[[], None]]] = {}

    def append(self, topic: str, partition: int, *entries: LogEntry, poison: bool = False) -> None:
        """Append records, given by key, or holes; aiokafka cannot decode poison records."""
        name = Partition(topic, partition)
        self._put(name, self.logs[name].with_entries(*entries, poison=poison))

    def _put(self, partition: Partition, log: Log) -> None:
        self.logs[partition] = log
        for wake in self._waiting.pop(partition, ()):
            wake()

    def grow(self, topic: str, partitions: int) -> None:
        """Create the topic or grow it to this number of partitions."""
        for number in range(partitions):
            self.logs.setdefault(Partition(topic, number), Log())

    def delete(self, topic: str) -> None:
        """Delete a topic and its committed offsets; a new one of this name starts at offset 0."""
        for partition in [each for each in self.logs if each.topic == topic]:
            del self.logs[partition]
            self.positions.forget(partition)
            for wake in self._waiting.pop(partition, ()):
                wake()

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        name = Partition(topic, partition)
        self.logs[name] = self.logs[name].without(offset)

    def delete_from(self, topic: str, partition: int, offset: int) -> None:
        """No transaction may have records there."""
        name = Partition(topic, partition)
        self.logs[name] = self.logs[name].up_to(offset)

    def committed(self, group: str) -> Mapping[Partition, Position]:
        return self.positions.committed(group)

    def group(self, name: str) -> Membership:
        if name not in self.groups:
            self.groups[name] = Membership(self.clock)
        return self.groups[name]

    def handle(self, request: Request, reply: Reply) -> None:
        match request:
            case JoinGroup(group):
                self.group(group).join(request, reply)
            case SyncGroup(group):
                self.group(group).sync(request, reply)
            case Heartbeat(group):
                reply(self.group(group).heartbeat(request))
            case LeaveGroup(group):
                reply(self.group(group).leave(request))
            case OffsetCommit():
                reply(self._commit(request))
            case OffsetFetch(group, partitions):
                there = self.committed(group)
                reply({each: there[each] for each in partitions if each in there})
            case Fetch():
                self._fetch(request, reply)
            case ListOffsets(partitions, is_committed):
                reply({each: self._listed(each, at, is_committed=is_committed) for each, at in partitions.items()})
            case FindCoordinator():
                reply(errors.NoError)
            case Metadata():
                reply(tuple(self.logs))
            case InitProducerId():
                reply(self._transactions.begin(request))
            case AddPartitionsToTxn():
                reply(self._add_partitions(request))
            case AddOffsetsToTxn(transactional_id, producer, group):
                reply(self._transactions.add(transactional_id, producer, group))
            case TxnOffsetCommit():
                reply(self._commit_later(request))
            case EndTxn():
                reply(self._transactions.end(request))
            case Produce(transactional_id, batches):
                reply({each: self._write(transactional_id, each, batch) for each, batch in batches.items()})
            case _:
                assert_never(request)

    def _commit(self, request: OffsetCommit) -> Mapping[Partition, Code]:
        codes = self._judged(request, self.group(request.group).judged_commit(request))
        self.positions.take(request._replace(offsets=_taken(request, codes)))
        return codes

    def _judged(self, request: OffsetCommit | TxnOffsetCommit, code: Code) -> Mapping[Partition, Code]:
        def judged(partition: Partition, position: Position) -> Code:
            if partition not in self.logs:
                return errors.UnknownTopicOrPartitionError
            is_long = len(position.metadata.encode("utf-16-le")) // 2 > self._metadata_max
            return errors.OffsetMetadataTooLargeError if code is errors.NoError and is_long else code

        return {partition: judged(partition, position) for partition, position in request.offsets.items()}

    def _listed(self, partition: Partition, at: int, *, is_committed: bool) -> int | Code:
        log = self.logs.get(partition)
        if log is None:
            return errors.UnknownTopicOrPartitionError
        if at == BEGINNING:
            return log.start
        return log.stable if is_committed else log.end

    # --- transactions ---------------------------------------------------------------------------------------------------

    def _add_partitions(self, request: AddPartitionsToTxn) -> Mapping[Partition, Code]:
        """Adds all partitions or none."""
        if all(each in self.logs for each in request.partitions):
            code = self._transactions.add(request.transactional_id, request.producer, *request.partitions)
            return dict.fromkeys(request.partitions, code)
        no, others = errors.UnknownTopicOrPartitionError, errors.OperationNotAttempted
        return {each: others if each in self.logs else no for each in request.partitions}

    def _write(self, transactional_id: str | None, partition: Partition, batch: Batch) -> int | Code:
        log = self.logs.get(partition)
        if log is None:
            return errors.UnknownTopicOrPartitionError
        if batch.is_transactional and batch.producer.id not in log.open:
            code = self._transactions.verified(transactional_id, batch.producer, partition)
            if code is not errors.NoError:
                return errors.NotEnoughReplicasError if code is errors.ConcurrentTransactions else code
        found = log.judged(batch)
        if found is not errors.NoError:
            return found
        self._put(partition, log.with_batch(batch))
        return log.end

    def _commit_later(self, request: TxnOffsetCommit) -> Mapping[Partition, Code]:
        code = self._transactions.verified(request.transactional_id, request.producer, request.group)
        codes = self._judged(request, code)
        self.positions.keep(request._replace(offsets=_taken(request, codes)))
        return codes

    def _decide(self, transactional_id: str, producer: ProducerEpoch, parts: tuple[Part, ...], is_commit: bool) -> None:
        if not is_commit:
            return
        logs = {each: self.logs[each] for each in parts if isinstance(each, Partition) and each in self.logs}
        pending = [self.positions.pending(each, producer.id) for each in parts if isinstance(each, str)]
        self.decided(
            transactional_id,
            {partition: log.open.get(producer.id, ()) for partition, log in logs.items()},
            {partition: position for each in pending for partition, position in each.items()},
        )

    def _mark(self, producer: ProducerEpoch, part: Part, is_commit: bool) -> None:
        if isinstance(part, str):
            self.positions.end(part, producer.id, is_commit=is_commit)
        elif part in self.logs:
            self._put(part, self.logs[part].with_mark(producer, is_commit=is_commit))

    # --- fetches --------------------------------------------------------------------------------------------------------

    def _fetch(self, request: Fetch, reply: Reply) -> None:
        found = self._found(request)
        if found:
            reply(found)
            return

        def answer() -> None:
            found = self._found(request)
            if not found and timer.when() > self.clock.time():
                self._wait(request, answer)
                return
            timer.cancel()
            for partition in request.positions:
                if answer in self._waiting.get(partition, ()):
                    self._waiting[partition].remove(answer)
            reply(found)

        timer = self.clock.call_later(request.wait_s, answer)
        self._wait(request, answer)

    def _wait(self, request: Fetch, answer: Callable[[], None]) -> None:
        for partition in request.positions:
            waiting = self._waiting.setdefault(partition, [])
            if answer not in waiting:
                waiting.append(answer)

    def _found(self, request: Fetch) -> Mapping[Partition, Read | Code]:
        answers = ((each, self._read(each, at, request)) for each, at in request.positions.items())
        return {partition: answer for partition, answer in answers if answer is not None}

    def _read(self, partition: Partition, offset: int, request: Fetch) -> Read | Code | None:
        log = self.logs.get(partition)
        if log is None:
            return errors.UnknownTopicOrPartitionError
        return log.read(offset, self._fetched_max, is_committed=request.is_committed)


def _taken(request: OffsetCommit | TxnOffsetCommit, codes: Mapping[Partition, Code]) -> Mapping[Partition, Position]:
    return {each: position for each, position in request.offsets.items() if codes[each] is errors.NoError}
