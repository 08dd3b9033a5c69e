"""A consumer on a simulated broker that behaves like aiokafka's `AIOKafkaConsumer`.

It has the calls of `tidegate_adapters.kafka.client.Client`, and those that find and set positions.
Options have aiokafka's names and defaults, but it never commits automatically, and by default never
refreshes metadata. Calls raise aiokafka's errors, such as IllegalStateError for a partition that is
not assigned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast, final

from aiokafka import errors

from tidegate.model.errors import Misuse
from tidegate_adapters.kafka.decoding import Found
from tidegate_adapters.testing.kafka.connection import Network
from tidegate_adapters.testing.kafka.coordinator import Coordinator, Member
from tidegate_adapters.testing.kafka.fetcher import Fetcher, SimulatedRecord, listed
from tidegate_adapters.testing.kafka.requests import BEGINNING, END, NOWHERE, Metadata, Partition, Position
from tidegate_adapters.testing.kafka.subscription import Assignment, PartitionPosition, Subscription

_STRATEGIES: Final = {"earliest": BEGINNING, "latest": END, "none": NOWHERE}
_MS: Final = 1_000


@final
class SimulatedConsumer:
    """A group member on the running event loop, with aiokafka's options.

    Faults are chosen by `client_id`, the prefix of its member ids. `rebalance_timeout_ms` is the
    session timeout by default. `metadata_max_age_ms` None means no refresh (aiokafka: five
    minutes). `enable_auto_commit` must be False.
    """

    def __init__(
        self,
        network: Network,
        *,
        group_id: str,
        client_id: str = "aiokafka",
        group_instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int | None = None,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int | None = None,
        request_timeout_ms: int = 40_000,
        max_poll_records: int | None = None,
        isolation_level: str = "read_uncommitted",
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
    ) -> None:
        if enable_auto_commit:
            raise Misuse("the simulated consumer commits nothing by itself", todo="pass enable_auto_commit=False")
        self._network = network
        self._member = Member(
            group=group_id,
            client_id=client_id,
            instance=group_instance_id,
            session_s=session_timeout_ms / _MS,
            rebalance_s=(session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms) / _MS,
            heartbeat_s=heartbeat_interval_ms / _MS,
            poll_s=max_poll_interval_ms / _MS,
            backoff_s=retry_backoff_ms / _MS,
        )
        self._reset = _STRATEGIES.get(auto_offset_reset.lower(), NOWHERE)
        self._is_committed = isolation_level == "read_committed"
        self._patience_s, self._max_poll_records = request_timeout_ms / _MS, max_poll_records
        self._connections = network.connect(client_id), network.connect(client_id)
        self._metadata = network.connect(client_id)
        self._age_s = None if metadata_max_age_ms is None else metadata_max_age_ms / _MS
        self._known: Collection[Partition] = ()
        self._is_asking = False
        self._listeners: list[Callable[[object], None]] = []
        self._client = SimpleNamespace(
            cluster=SimpleNamespace(add_listener=self._listeners.append), force_metadata_update=self._ask
        )
        """Names of aiokafka that `tidegate_adapters.kafka.client` uses."""
        self._refresh: asyncio.TimerHandle | None = None
        self._subscription = Subscription()
        self._coordinator: Coordinator | None = None
        self._fetcher: Fetcher | None = None
        self._is_closed = False

    async def start(self) -> None:
        _, data = self._connections
        try:
            self._hear(cast("tuple[Partition, ...]", await self._metadata.send(Metadata())))
        except errors.KafkaError as error:
            raise errors.KafkaConnectionError("Unable to bootstrap") from error
        logs = self._network.broker.logs
        self._coordinator = Coordinator(self._connections, lambda: self._known, self._subscription, self._member)
        self._fetcher = Fetcher(
            data,
            self._subscription,
            self._coordinator,
            reset=self._reset,
            backoff_s=self._member.backoff_s,
            is_committed=self._is_committed,
            known=lambda: self._known,
            refresh=self._ask,
            poison=lambda partition: logs[partition].poison if partition in logs else frozenset(),
        )
        self._subscription.changed = self._fetcher.go_on
        if self._subscription.topics is not None:
            await self._subscription.assigned()

    def _hear(self, partitions: Collection[Partition]) -> None:
        self._known = partitions
        if self._age_s is not None:
            self._refresh = asyncio.get_running_loop().call_later(self._age_s, self._ask)

    def _ask(self) -> None:
        if not self._is_asking and not self._is_closed:
            self._is_asking = True
            self._forget()
            self._metadata.send(Metadata()).add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[object]) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        is_known = not answer.cancelled() and answer.exception() is None
        self._hear(cast("tuple[Partition, ...]", answer.result()) if is_known else self._known)
        if self._coordinator is not None and self._fetcher is not None:
            self._coordinator.hear_of_partitions()
            self._fetcher.go_on()
        for each in self._listeners if is_known else ():
            each(self)

    def _forget(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def stop(self) -> None:
        """Leave the group after the coordinator's current work, the listener included."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forget()
        if self._coordinator is not None:
            await self._coordinator.close()
        if self._fetcher is not None:
            self._fetcher.close()
        for each in self._connections:
            each.close()

    def kill(self) -> None:
        """Stop like a killed process, without a message to the broker."""
        self._is_closed = True
        self._forget()
        for each in self._connections:
            each.abandon()
        if self._coordinator is not None:
            self._coordinator.abandon()
        if self._fetcher is not None:
            self._fetcher.close()

    def subscribe(self, topics: Collection[str], *, listener: Any = None) -> None:
        if self._subscription.topics is not None:
            raise Misuse("the simulated consumer subscribes once")
        self._subscription.subscribe(topics, listener)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {each.partition for each in self._known if each.topic == topic} or None

    def assignment(self) -> Collection[Partition]:
        assignment = self._subscription.assignment
        return () if assignment is None else assignment.partitions.keys()

    def paused(self) -> Collection[Partition]:
        assignment = self._subscription.assignment
        there = {} if assignment is None else assignment.partitions
        return {partition: None for partition, state in there.items() if state.is_paused}.keys()

    def pause(self, *partitions: Any) -> None:
        """Buffered records of these partitions are dropped."""
        for partition in partitions:
            self._assigned(partition).is_paused = True

    def resume(self, *partitions: Any) -> None:
        for partition in partitions:
            self._assigned(partition).is_paused = False
        if partitions and self._fetcher is not None:
            self._fetcher.go_on()

    async def getmany(
        self, *partitions: Any, timeout_ms: int = 0, max_records: int | None = None
    ) -> Mapping[Partition, list[SimulatedRecord]]:
        """Raises a permanent error once, but UnicodeDecodeError at each poll."""
        if self._is_closed:
            raise errors.ConsumerStoppedError
        coordinator, fetcher = self._started()
        coordinator.check_errors()
        self._subscription.begin_poll()
        most = max_records or self._max_poll_records
        found = await fetcher.records(partitions, timeout_ms / _MS, most)
        self._subscription.end_poll()
        return found

    async def commit(self, offsets: Mapping[Any, Any]) -> None:
        """CommitFailedError means a lost membership or a rebalance."""
        if not offsets:
            raise ValueError(offsets)
        if self._subscription.topics is None:
            raise errors.IllegalStateError("Not subscribed to any topics")
        for partition in offsets:
            self._assigned(partition)
        positions = {
            Partition(*each): Position(at, "") if isinstance(at, int) else Position(*at) for each, at in offsets.items()
        }
        coordinator, _ = self._started()
        await coordinator.commit_offsets(self._subscription.assignment, positions)

    async def committed(self, partition: Any) -> int | None:
        coordinator, _ = self._started()
        found = (await coordinator.fetch_committed_offsets([Partition(*partition)])).get(partition)
        return None if found is None or found.offset < 0 else found.offset

    async def beginning_offsets(self, partitions: Collection[Any]) -> Mapping[Any, int]:
        return await self._listed(partitions, BEGINNING)

    async def end_offsets(self, partitions: Collection[Any]) -> Mapping[Any, int]:
        return await self._listed(partitions, END)

    async def log_ends(self, partitions: Collection[Any]) -> Mapping[Any, int]:
        """`end_offsets` with uncommitted records; aiokafka's client has no such call."""
        return await self._listed(partitions, END, is_committed=False)

    async def position(self, partition: Any) -> int:
        state = self._assigned(partition)
        try:
            await asyncio.wait_for(state.known.wait(), self._patience_s)
        except TimeoutError as error:
            raise errors.KafkaTimeoutError from error
        assert state.offset is not None
        return state.offset

    async def read_raw(self, partition: Any, position: int) -> Found | None:
        """The counterpart of `tidegate_adapters.kafka.decoding.read`; aiokafka has no such call."""
        _, fetcher = self._started()
        return await fetcher.read_raw(Partition(partition.topic, partition.partition), position)

    def seek(self, partition: Any, offset: int) -> None:
        self._assigned(partition).begin_at(offset)
        _, fetcher = self._started()
        fetcher.forget(Partition(*partition))

    def _assigned(self, partition: Any) -> PartitionPosition:
        assignment: Assignment | None = self._subscription.assignment
        if assignment is None or partition not in assignment.partitions:
            raise errors.IllegalStateError(f"Partition {partition} is not assigned")
        return assignment.partitions[partition]

    def _started(self) -> tuple[Coordinator, Fetcher]:
        assert self._coordinator is not None, "it was not started"
        assert self._fetcher is not None
        return self._coordinator, self._fetcher

    async def _listed(
        self, partitions: Collection[Any], at: int, *, is_committed: bool | None = None
    ) -> Mapping[Any, int]:
        wanted = dict.fromkeys((Partition(*each) for each in partitions), at)
        is_committed = self._is_committed if is_committed is None else is_committed
        ask = partial(listed, self._connections[1], wanted, is_committed=is_committed)
        try:
            async with asyncio.timeout(self._patience_s):
                while True:
                    try:
                        return await ask()
                    except errors.KafkaError as error:
                        if not error.retriable:
                            raise
                    await asyncio.sleep(self._member.backoff_s)
        except TimeoutError as error:
            raise errors.KafkaTimeoutError(f"Failed to get offsets in {self._patience_s} s") from error
