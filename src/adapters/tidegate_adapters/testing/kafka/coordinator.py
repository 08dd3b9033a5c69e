"""A simulated consumer's group membership, after `GroupCoordinator` of aiokafka 0.14.

One task joins the group on request, and awaits the user's listener between generations. Behaviour
that users meet:
    The task only logs an exception of the listener. A CancelledError or other BaseException ends
        the task: the member never rejoins, and every poll raises that error.
    Each rebalance revokes all partitions; aiokafka has no cooperative one. Heartbeats continue
        while the listener runs, but the broker waits at most `rebalance_timeout_ms`, by default the
        session timeout.
    A commit is built under the lock it waits for, so a retry carries the generation of that moment.
        A cancelled commit is sent all the same.
    UnknownMember and IllegalGeneration reset the generation; commits until the next join carry
        none.
    The next poll raises an error that the client cannot handle; if it ended the heartbeat, every
        poll raises it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import cycle
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast, final

from aiokafka import errors

from tidegate.sim.servers.group import NO_GENERATION
from tidegate_adapters.kafka.static_membership import NamedHeartbeat
from tidegate_adapters.testing.kafka.connection import Connection
from tidegate_adapters.testing.kafka.requests import (
    Code,
    FindCoordinator,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    Partition,
    Position,
    Request,
    SyncGroup,
)
from tidegate_adapters.testing.kafka.subscription import Assignment, Subscription

log: Final = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

_NOT_THERE: Final = (errors.GroupCoordinatorNotAvailableError, errors.NotCoordinatorForGroupError)
_NOT_OURS: Final = (errors.UnknownMemberIdError, errors.IllegalGenerationError)


class Member(NamedTuple):
    """A consumer's group settings; times in seconds."""

    group: str
    client_id: str
    instance: str | None
    session_s: float
    rebalance_s: float
    heartbeat_s: float
    poll_s: float
    backoff_s: float


@final
class _Link:
    """The connection to the coordinator; `dead` is done once that is unknown."""

    def __init__(self, connections: tuple[Connection, Connection], member: Member) -> None:
        self._connection, self._metadata = connections
        self._member, self._loop = member, asyncio.get_running_loop()
        self._is_known, self._lock = False, asyncio.Lock()
        self.dead = self._loop.create_future()

    async def send(self, request: Request) -> object:
        if not self._is_known:
            raise errors.GroupCoordinatorNotAvailableError
        try:
            return await self._connection.send(request)
        except errors.KafkaError:
            self.lose()
            raise

    def lose(self) -> None:
        if self._is_known:
            self._is_known = False
            self.dead.set_result(None)

    async def find(self, closing: asyncio.Future[None]) -> None:
        if self._is_known:
            return
        async with self._lock:
            while not self._is_known and not closing.done():
                try:
                    code: Any = await self._metadata.send(FindCoordinator(self._member.group))
                    _check(code, self._member.group)
                except errors.KafkaError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(self._member.backoff_s)
                else:
                    self._is_known, self.dead = True, self._loop.create_future()

    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        reply = await self.send(OffsetFetch(self._member.group, tuple(partitions)))
        found: dict[Partition, Position] = {}
        for partition, answer in cast("Mapping[Partition, Position | Code]", reply).items():
            if isinstance(answer, Position):
                found[partition] = answer
            elif answer is errors.NotCoordinatorForGroupError:
                self.lose()
                raise answer
            elif answer is errors.GroupLoadInProgressError:
                raise answer
            elif answer is errors.GroupAuthorizationFailedError:
                raise answer(self._member.group)
            elif answer is not errors.UnknownTopicOrPartitionError:
                raise errors.KafkaError(repr(answer()))
        return found


@final
class Coordinator:
    """Keeps a consumer in its group; `generation` is -1 without a membership."""

    def __init__(
        self,
        connections: tuple[Connection, Connection],
        partitions: Callable[[], Collection[Partition]],
        subscription: Subscription,
        member: Member,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = _Link(connections, member)
        self._partitions, self._subscription, self._member = partitions, subscription, member
        self.generation, self.member_id = NO_GENERATION, ""
        self._rejoin = self._loop.create_future()
        self._closing = self._loop.create_future()
        self._commit_lock = asyncio.Lock()
        self._is_prepared = False
        self._heartbeat: asyncio.Task[None] | None = None
        self._refresh: asyncio.Task[None] | None = None
        self._counted: Mapping[str, int] | None = None
        """Partition counts of the group's topics, known to a leader only."""
        self._error: Exception | None = None
        self._told: asyncio.Future[None] | None = None
        self.waiters: set[asyncio.Future[bool]] = set()
        self._coordination_task = self._loop.create_task(self._run(), name=f"coordination of {member.client_id}")

    @property
    def is_settled(self) -> bool:
        return self.generation != NO_GENERATION and not self._rejoin.done() and not self._subscription.is_reassigning

    def check_errors(self) -> None:
        if self._coordination_task.done():
            self._coordination_task.result()
        if self._told is not None:
            self._told.set_result(None)
            self._told = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def close(self) -> None:
        self._closing.set_result(None)
        if not self._coordination_task.done():
            await self._coordination_task
        await self._stop_heartbeat()
        await _stopped(self._refresh)
        await self._leave()

    def abandon(self) -> None:
        for task in (self._coordination_task, self._heartbeat, self._refresh):
            if task is not None:
                task.cancel()

    # --- the task -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._coordinate()
        except Exception as error:
            log.exception("coordination of %s ends", self._member.client_id)
            failure = errors.KafkaError(f"Unexpected error during coordination {error!r}")
            self._fail(failure)
            raise failure from error

    async def _coordinate(self) -> None:
        assignment: Assignment | None = None
        while not self._closing.done():
            if self._subscription.topics is None:
                await self._first_of(self._subscription.subscribed)
                continue
            try:
                await self._link.find(self._closing)
                if self._subscription.assignment is None or self._rejoin.done():
                    joined = await self._joined(assignment)
                    if joined is None:
                        continue
                    assignment = joined
            except errors.KafkaError as error:
                await self._tell(error)
                continue
            await self._first_of(self._link.dead, self._rejoin, self._heartbeat, self._refresh)
            for task in (self._heartbeat, self._refresh):
                if task is not None and task.done() and (failure := task.exception()) is not None:
                    await self._tell(cast("Exception", failure))

    async def _first_of(self, *futures: asyncio.Future[None] | None) -> None:
        there = {self._closing, *(each for each in futures if each is not None)}
        await asyncio.wait(there, return_when=asyncio.FIRST_COMPLETED)

    def _fail(self, error: Exception) -> None:
        self._subscription.fail(error)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(copy.copy(error))

    async def _tell(self, error: Exception) -> None:
        """Pause until the user has received the error."""
        error = copy.copy(error)
        self._fail(error)
        self._error, self._told = error, self._loop.create_future()
        await self._first_of(self._told)

    async def _joined(self, before: Assignment | None) -> Assignment | None:
        if not self._is_prepared:
            self._subscription.is_reassigning, self._counted = True, None
            await self._heard(self._revoked(before))
            self._is_prepared = True
        await self._stop_heartbeat()
        if before is not None and self._subscription.idle_s >= self._member.poll_s:
            await asyncio.sleep(self._member.backoff_s)
            return None
        partitions = await self._join()
        if partitions is None:
            await asyncio.sleep(self._member.backoff_s)
            return None
        assignment = self._subscription.assign(partitions)
        await _stopped(self._refresh)
        self._refresh = self._loop.create_task(self._refreshing(assignment), name="refresh")
        await self._heard(self._assigned(assignment))
        self._is_prepared = False
        self._heartbeat = self._loop.create_task(self._beating(), name="heartbeat")
        return assignment

    async def _revoked(self, before: Assignment | None) -> None:
        if (listener := self._subscription.listener) is not None:
            await listener.on_partitions_revoked(before.partitions.keys() if before is not None else ())

    async def _assigned(self, assignment: Assignment) -> None:
        if (listener := self._subscription.listener) is not None:
            await listener.on_partitions_assigned(assignment.partitions.keys())

    async def _heard(self, call: Awaitable[None]) -> None:
        try:
            await call
        except Exception:
            log.exception("the listener of %s failed", self._member.client_id)

    # --- requests -------------------------------------------------------------------------------------------------------

    async def ensure_coordinator_known(self) -> None:
        """Has aiokafka's name: `static_membership` calls this and the next method."""
        await self._link.find(self._closing)

    async def _send_req(self, request: NamedHeartbeat) -> SimpleNamespace:
        seat = request.seat
        code: Any = await self._link.send(Heartbeat(seat.group, seat.generation, seat.member_id, seat.name))
        return SimpleNamespace(error_code=code.errno)

    def _reset(self) -> None:
        self.generation, self.member_id = NO_GENERATION, ""
        self.request_rejoin()

    def request_rejoin(self) -> None:
        """Has aiokafka's name: `tidegate_adapters.kafka.client` calls it."""
        if not self._rejoin.done():
            self._rejoin.set_result(None)

    def _count(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: sum(each.topic == topic for each in self._partitions()) for topic in topics}

    def hear_of_partitions(self) -> None:
        """Rejoin if this member leads and a topic of the group has grown."""
        if self._counted is not None and self._counted != (now := self._count(self._counted)):
            self._counted = now
            self.request_rejoin()

    def _heed(self, code: Code) -> bool:
        if code in _NOT_THERE:
            self._link.lose()
        elif code in _NOT_OURS:
            self._reset()
        elif code is errors.RebalanceInProgressError:
            self.request_rejoin()
        else:
            return False
        return True

    async def _join(self) -> tuple[Partition, ...] | None:
        reply: Any = await self._sent_join()
        if isinstance(reply, Joined):
            self.member_id, self.generation = reply.member_id, reply.generation
            return await self._sync(reply)
        if reply is None or reply is errors.GroupLoadInProgressError:
            await asyncio.sleep(self._member.backoff_s if reply is not None else 0)
        elif reply is errors.UnknownMemberIdError:
            self._reset()
        elif reply in _NOT_THERE:
            self._link.lose()
        elif reply in (
            errors.InconsistentGroupProtocolError, errors.InvalidSessionTimeoutError, errors.InvalidGroupIdError,
            errors.GroupAuthorizationFailedError,
        ):  # fmt: skip
            _check(reply, self._member.group)
        else:
            raise errors.KafkaError(repr(reply()))
        return None

    async def _sent_join(self) -> object:
        while True:
            member, topics = self._member, self._subscription.topics
            assert topics is not None
            request = JoinGroup(
                member.group, self.member_id, member.instance, topics, member.session_s, member.rebalance_s, member.client_id
            )  # fmt: skip
            try:
                reply = await self._link.send(request)
            except errors.KafkaError:
                return None
            match reply:
                case (errors.MemberIdRequired, str() as member_id):
                    self.member_id = member_id
                case _:
                    return reply

    async def _sync(self, joined: Joined) -> tuple[Partition, ...] | None:
        assignments: Mapping[str, tuple[Partition, ...]] = {}
        if joined.leader == joined.member_id:
            topics = {topic for each in joined.members.values() for topic in each}
            known = [each for each in self._partitions() if each.topic in topics]
            assignments = _round_robin(joined.members, known)
            self._counted = self._count(topics)
        self._rejoin = self._loop.create_future()
        generation, member_id = self.generation, self.member_id
        try:
            reply: Any = await self._link.send(
                SyncGroup(self._member.group, generation, member_id, assignments, self._member.instance)
            )
        except errors.KafkaError:
            self.request_rejoin()
            return None
        if isinstance(reply, tuple):
            self.generation, self.member_id = generation, member_id
            return reply
        self.request_rejoin()
        if self._heed(reply):
            return None
        if reply is errors.GroupAuthorizationFailedError:
            raise errors.GroupAuthorizationFailedError(self._member.group)
        raise errors.KafkaError(repr(reply()))

    async def _leave(self) -> None:
        if self.generation > 0 and self._member.instance is None:
            try:
                await self._link.send(LeaveGroup(self._member.group, self.member_id))
            except errors.KafkaError as error:
                log.warning("leaving %s failed: %s", self._member.group, error)
        self._reset()

    # --- heartbeats -----------------------------------------------------------------------------------------------------

    async def _stop_heartbeat(self) -> None:
        await _stopped(self._heartbeat)
        self._heartbeat = None

    async def _beating(self) -> None:
        heard, delay_s = self._loop.time(), self._member.heartbeat_s
        while self.member_id:
            try:
                await asyncio.sleep(delay_s)
                await self._link.find(self._closing)
                began = self._loop.time()
                is_heard = await self._beat()
            except asyncio.CancelledError:
                return
            now = self._loop.time()
            if is_heard:
                heard, delay_s = now, max(0.0, self._member.heartbeat_s - now + began)
            else:
                delay_s = self._member.backoff_s
            if now - heard > self._member.session_s:
                self._link.lose()
            idle_s = self._subscription.idle_s
            if idle_s < self._member.poll_s:
                delay_s = min(delay_s, self._member.poll_s - idle_s)
            else:
                await self._leave()

    async def _beat(self) -> bool:
        try:
            code: Any = await self._link.send(Heartbeat(self._member.group, self.generation, self.member_id))
        except errors.KafkaError:
            return False
        if code is errors.NoError:
            return True
        if self._heed(code):
            return code is errors.RebalanceInProgressError
        if code is errors.GroupAuthorizationFailedError:
            raise errors.GroupAuthorizationFailedError(self._member.group)
        raise errors.KafkaError(f"Unexpected exception in heartbeat task: {code()!r}")

    # --- positions ------------------------------------------------------------------------------------------------------

    async def commit_offsets(self, assignment: object, offsets: Mapping[Partition, Position]) -> None:
        """Retries retriable errors without end."""
        while True:
            await self._link.find(self._closing)
            try:
                async with self._commit_lock:
                    await asyncio.shield(self._do_commit_offsets(assignment, offsets))
            except (*_NOT_OURS, errors.RebalanceInProgressError) as error:
                raise errors.CommitFailedError("the group has rebalanced") from error
            except errors.KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(self._member.backoff_s)
            else:
                return

    async def _do_commit_offsets(self, _assignment: object, offsets: Mapping[Partition, Position]) -> None:
        """Has aiokafka's name: `tidegate_adapters.kafka.client` wraps it."""
        request = OffsetCommit(self._member.group, self.generation, self.member_id, offsets)
        codes = cast("Mapping[Partition, Code]", await self._link.send(request))
        failed: list[errors.KafkaError] = []
        unauthorized = set[str]()
        for partition, code in codes.items():
            if code is errors.NoError:
                continue
            if code is errors.TopicAuthorizationFailedError:
                unauthorized.add(partition.topic)
                continue
            if code is errors.RequestTimedOutError:
                self._link.lose()
            self._heed(code)
            failed.append(code())
        if failed:
            raise failed[0]
        if unauthorized:
            raise errors.TopicAuthorizationFailedError(unauthorized)

    async def fetch_committed_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, Position]:
        """Retries retriable errors without end."""
        while True:
            await self._link.find(self._closing)
            try:
                return await self._link.committed(partitions)
            except errors.KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(self._member.backoff_s)

    async def _refreshing(self, assignment: Assignment) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while assignment.is_active:
                await assignment.asked.wait()
                assignment.asked.clear()
                wanted = [partition for partition, state in assignment.partitions.items() if state.asked]
                try:
                    found = await self._link.committed(wanted)
                except errors.KafkaError as error:
                    if not error.retriable:
                        raise
                    assignment.asked.set()
                    await asyncio.sleep(self._member.backoff_s)
                    continue
                for partition in wanted:
                    asked, assignment.partitions[partition].asked = assignment.partitions[partition].asked, []
                    for each in asked:
                        if not each.done():
                            each.set_result(found.get(partition))


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        await task


def _check(code: Code, group: str) -> None:
    if code is errors.GroupAuthorizationFailedError:
        raise code(group)
    if code is not errors.NoError:
        raise code()


def _round_robin(
    members: Mapping[str, tuple[str, ...]], partitions: Collection[Partition]
) -> Mapping[str, tuple[Partition, ...]]:
    assigned: dict[str, list[Partition]] = {member: [] for member in members}
    turns = cycle(sorted(members))
    for partition in sorted(partitions):
        member = next(each for each in turns if partition.topic in members[each])
        assigned[member].append(partition)
    return {member: tuple(each) for member, each in assigned.items()}
