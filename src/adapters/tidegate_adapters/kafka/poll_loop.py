"""The poll loop of a member.

The state machine requests records (`Fetch`), and its rules' `polling` chooses partitions. The
client counts delivered records as read, so the loop seeks back to those of a partition that is not
yet known.

The client never resets a position: if the broker refuses one, `tidegate.consumer.flow.offset_reset` decides
where to resume.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, final

from tidegate.consumer.flow.backpressure import Plan
from tidegate.consumer.flow.offset_reset import GoesOn, LogRange, goes_on
from tidegate.consumer.offsets.watermark import open_offsets
from tidegate.consumer.partition.partition import Ordering, Owned
from tidegate.consumer.protocol.commands import Fetched, Lost, Measured
from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate_adapters.base.log_fields import named, placed, say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.assignment import Assignment
from tidegate_adapters.kafka.client import Client, Received, ours, theirs
from tidegate_adapters.kafka.decoding import is_undecodable, read
from tidegate_adapters.kafka.handler_calls import Calls
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.lifecycle import Lifecycle, as_ours
from tidegate_adapters.kafka.member_status import MemberStatus
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.start_positions import Beginnings
from tidegate_adapters.kafka.static_membership import OwnName

_POLL_MS: Final = 100
_POLL_S: Final = _POLL_MS / 1_000
_PARSED_AT_ONCE: Final = 5_000
"""Records, parsed in some hundredths of a second; a megabyte of each partition may outlast a
session.

The backpressure gate is asked in between (AS2): the client fetches on while it is emptied.
"""


@final
class PollLoop:
    """The poll loop of one member."""

    def __init__(  # noqa: PLR0917
        self,
        client: Client,
        settings: WorkerSettings,
        life: Lifecycle,
        name: OwnName,
        assignment: Assignment,
        records: Records,
        beginnings: Beginnings,
        status: MemberStatus,
        user_code: Calls,
    ) -> None:
        self._client, self._life, self._name, self._assignment = client, life, name, assignment
        self._records, self._beginnings, self._status, self._user_code = records, beginnings, status, user_code
        self._rules = settings.rules.consumer
        self._needs_keys = self._rules.partition.ordering is Ordering.BY_KEY
        self._most = None if "max_poll_records" in settings.options else _PARSED_AT_ONCE
        self._loop = asyncio.get_running_loop()
        self._may_poll: asyncio.Event | None = None

    async def run(self) -> None:
        """Poll until the member stops.

        Raises:
            TidegateError: The client has failed for good.
        """
        while self._life.is_working:
            await asyncio.sleep(0)  # lets other tasks run
            self._records.turned()
            try:
                await self._poll()
            except asyncio.CancelledError:
                # A client whose own task was cancelled raises it at each call, and never rejoins.
                me = asyncio.current_task()
                if self._life.is_called_off or me is None or me.cancelling():
                    raise
                raise TidegateError("the Kafka client has ended", why="its task was cancelled") from None
            except ports.OUT_OF_RANGE as error:
                for partition, position in ports.out_of_range(error).items():
                    await self._go_on(partition, position)
            except ports.KAFKA_ERROR as error:
                if not error.retriable:
                    if (seat := self._name.seat()) is not None:
                        ports.join_no_more(self._client)
                        if await self._name.is_taken(seat):
                            return
                    raise as_ours(error) from error
                say(logging.WARNING, "poll failed: %s", named(error))
                await asyncio.sleep(_POLL_S)

    def wake(self, state: ConsumerState) -> None:
        if self._may_poll is not None and self._plan(state).poll:
            self._may_poll.set()

    def _plan(self, state: ConsumerState) -> Plan[TopicPartition]:
        return self._rules.polling(state, tuple(map(ours, self._client.paused())))

    async def _poll(self) -> None:
        """If no partition may be polled, wait for one, then pause those still held."""
        state = await self._life.stepped()
        self._status.polls(state)
        self._measure(state)
        plan = self._plan(state)
        if not plan.poll:
            self._may_poll = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._may_poll.wait()
            self._may_poll = None
            plan = self._plan(self._life.state)
        if plan.pause or plan.resume:
            assigned = set(map(ours, self._client.assignment()))
            self._client.pause(*(theirs(each) for each in plan.pause if each in assigned))
            self._client.resume(*(theirs(each) for each in plan.resume if each in assigned))
        asked = plan.poll or tuple(map(ours, self._client.paused()))
        lives = dict(self._assignment.generations)
        try:
            fetched = await self._client.getmany(
                *map(theirs, asked), timeout_ms=_POLL_MS if plan.poll else 0, max_records=self._most
            )
        except (UnicodeDecodeError, ports.KAFKA_ERROR) as error:
            if not is_undecodable(error):
                raise
            await self._read_on(plan.poll, lives, error)
            return
        for partition, received in fetched.items():  # only owned partitions: the client checks on delivery
            self._deliver(ours(partition), received)

    def _measure(self, state: ConsumerState) -> None:
        now, rules = self._loop.time(), self._rules.partition
        is_bounded = rules.limits.size is not None or rules.limits.age is not None
        kept = {each.partition for each in state.kept}
        for part in state.partitions if is_bounded or not rules.is_plain or kept else ():
            if not rules.is_plain or part.partition in kept:  # otherwise done() forgets them
                self._records.keep(part.partition, part.generation, set(open_offsets(part.tracker)))
            if is_bounded:
                records = self._records.of(part.partition, part.generation)
                size = sum(len(each.received.key or b"") + len(each.received.value or b"") for each in records)
                oldest = min((each.came_s for each in records), default=now)
                self._life.tell(Measured(part.partition, part.generation, size, round((now - oldest) * SECOND)))

    def _deliver(self, partition: TopicPartition, received: Sequence[Received]) -> None:
        """Seek back for a partition that is not known yet."""
        state, generation = self._life.state, self._assignment.generations.get(partition)
        part = state[partition]
        if generation is None:
            return
        if not isinstance(part, Owned) or part.generation != generation:
            self._client.seek(theirs(partition), received[0].offset)
            return
        self._assignment.positions[partition] = received[-1].offset + 1
        self._records.came(partition, generation, received, self._loop.time())
        keys = tuple([each.key for each in received]) if self._needs_keys else ()
        again, is_anew = self._records.compared(partition, received) if state.kept else ((), False)
        offsets = tuple([each.offset for each in received])
        self._life.tell(Fetched(partition, generation, offsets, keys, again, is_anew))

    # --- undecodable records, refused positions ---------------------------------------------------

    async def _read_on(
        self, polled: Sequence[TopicPartition], lives: Mapping[TopicPartition, int], error: Exception
    ) -> None:
        """Deliver undecodable records of one partition; read the others again, unless their
        generation changed.
        """
        self._user_code.beware()
        assignment, positions = self._assignment, self._assignment.positions
        for partition in polled:
            if assignment.generations.get(partition) == lives.get(partition):
                with suppress(ports.NOT_ASSIGNED):
                    assignment.seek(partition, positions[partition])
        for partition in polled:
            log = await self._beginnings.log(partition)
            is_left = not log.removed(positions[partition])
            found = await read(self._client, partition, positions[partition]) if is_left else None
            if assignment.generations != lives or partition not in self._plan(self._life.state).poll:
                return  # the next poll retries
            if not is_left:
                self._skip_removed(partition, positions[partition], log)
                return  # the undecodable record may be removed, too
            if found is not None:
                self._deliver(partition, found.records)
                assignment.seek(partition, found.stop)
                return
        raise TidegateError("the Kafka client cannot decode a record", why=named(error)) from error

    async def _go_on(self, partition: TopicPartition, position: int) -> None:
        """Resume from a position that the broker refused."""
        generations, positions = self._assignment.generations, self._assignment.positions
        generation = generations.get(partition)
        try:
            log = await self._beginnings.log(partition)
            if generations.get(partition) != generation or position < positions.get(partition, position + 1):
                return  # revoked, or moved meanwhile
            match goes_on(position, log):
                case GoesOn.AT_THE_START:
                    self._skip_removed(partition, position, log)
                case GoesOn.AGAIN:
                    await self._cut(partition, log)
                case GoesOn.WHERE_IT_IS:
                    pass
        except (ports.KAFKA_ERROR, TimeoutError) as error:  # the client will raise again
            say(logging.WARNING, "the log of %s was not found: %s", partition, named(error), extra=placed(partition))
            await asyncio.sleep(_POLL_S)

    def _skip_removed(self, partition: TopicPartition, position: int, log: LogRange) -> None:
        self._assignment.seek(partition, log.start)
        self._beginnings.removed(partition, position, log)

    async def _cut(self, partition: TopicPartition, log: LogRange) -> None:
        """The log has lost its end, so records read from it no longer exist."""
        generations = self._assignment.generations
        generation = generations.get(partition)
        cut = await self._beginnings.cut(partition, log)
        if generations.get(partition) != generation:
            return
        what = "the log of %s was read up to @%s and has lost its end: it goes on @%s"
        position = self._assignment.positions[partition]
        say(logging.WARNING, what, partition, position, cut.goes_on, extra=placed(partition, cut.goes_on))
        self._life.tell(Lost(partition))
        self._assignment.begin((partition,))
