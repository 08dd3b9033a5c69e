"""The members of a consumer group, as its coordinator keeps them: Kafka's classic protocol.

    EMPTY ──join──> PREPARING ──all joined, or timeout──> COMPLETING ──leader assigns──> STABLE
                        ^                                    |                            |
                        └──── a member joins, leaves or times out ────────────────────────┘

`tidegate.sim.servers.group` does not model single joins: there a rebalance waits for releases and ends.
This module covers clients' actions in between (commits, silence, rejoining). It follows Kafka 4.1's
`ClassicGroup` and `GroupMetadataManager`; tests compare it with a real broker.

Behaviour that clients may not expect:
    Any member of this generation may commit any partition, even while members join.
    A commit without a generation is accepted while the group is empty.
    While COMPLETING, a commit gets RebalanceInProgress.
    A member that does not rejoin in time is dropped without notice, even if its heartbeats arrive.
    A follower that rejoins a stable group gets the same generation; a leader that does starts a
        rebalance.
    A static member that rejoins without an id replaces the member of its name, without a rebalance.
        The replaced one gets FencedInstanceId if it sends its name, and otherwise UnknownMemberId.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from enum import Enum, unique
from functools import partial
from typing import TypeAlias, final

import attrs
from aiokafka import errors

from tidegate.sim.servers.group import NO_GENERATION
from tidegate_adapters.testing.kafka.requests import (
    Code,
    FencedInstanceIdError,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    Partition,
    SyncGroup,
)

Reply: TypeAlias = Callable[[object], None]


@final
@unique
class GroupPhase(Enum):
    """The state of a group."""

    EMPTY = "empty"
    PREPARING = "preparing a rebalance"
    COMPLETING = "completing a rebalance"
    STABLE = "stable"


@final
class BrokerClock:
    """A broker's timers; their own context lets them fire while a client is stopped."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.time = loop.time
        self.call_later = partial(loop.call_later, context=copy_context())


@final
@attrs.define(eq=False)
class _Member:
    id: str
    instance: str | None
    topics: tuple[str, ...]
    session_s: float
    rebalance_s: float
    seen: float
    join: Reply | None = None
    sync: Reply | None = None
    assignment: tuple[Partition, ...] = ()
    timer: asyncio.TimerHandle | None = None


@final
class Membership:
    """The members, the generation and the assignments."""

    def __init__(self, clock: BrokerClock) -> None:
        self._clock = clock
        self.phase = GroupPhase.EMPTY
        self.generation = 0
        self.members: dict[str, _Member] = {}
        self.leader = ""
        self.late: list[str] = []
        """Members dropped for not rejoining in time."""
        self._pending: dict[str, asyncio.TimerHandle] = {}
        """Ids given to members that have not joined yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0

    # --- requests -------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroup, reply: Reply) -> None:
        """Answered when the generation begins."""
        if not request.member_id:
            self._join_anew(request, reply)
            return
        if request.member_id in self._pending:
            self._pending.pop(request.member_id).cancel()
            self._add(request, request.member_id, reply)
            return
        if self._is_fenced(request.instance, request.member_id):
            reply(FencedInstanceIdError)
            return
        member = self.members.get(request.member_id)
        if member is None:
            reply(errors.UnknownMemberIdError)
            return
        is_same = member.topics == request.topics
        if is_same and (
            self.phase is GroupPhase.COMPLETING or (self.phase is GroupPhase.STABLE and member.id != self.leader)
        ):
            self._touch(member)
            reply(self._joined(member))
            return
        self._wait_for_the_others(member, request, reply)

    def sync(self, request: SyncGroup, reply: Reply) -> None:
        """Answered when the leader has assigned the partitions."""
        if self._is_fenced(request.instance, request.member_id):
            reply(FencedInstanceIdError)
            return
        if (code := self._judged(request.member_id, request.generation)) is not errors.NoError:
            reply(code)
            return
        member = self.members[request.member_id]
        self._touch(member)
        if self.phase is GroupPhase.PREPARING:
            reply(errors.RebalanceInProgressError)
        elif self.phase is GroupPhase.STABLE:
            reply(member.assignment)
        else:
            member.sync = reply
            if member.id == self.leader:
                self._assign(request.assignments)

    def heartbeat(self, request: Heartbeat) -> Code:
        if self._is_fenced(request.instance, request.member_id):
            return FencedInstanceIdError
        code = self._judged(request.member_id, request.generation)
        if code is errors.NoError:
            self._touch(self.members[request.member_id])
            if self.phase is GroupPhase.PREPARING:
                return errors.RebalanceInProgressError
        return code

    def leave(self, request: LeaveGroup) -> Code:
        if request.member_id not in self.members:
            return errors.UnknownMemberIdError
        self._remove(self.members[request.member_id])
        return errors.NoError

    def judged_commit(self, request: OffsetCommit) -> Code:
        if request.generation == NO_GENERATION and self.phase is GroupPhase.EMPTY:
            return errors.NoError
        if request.generation == NO_GENERATION and not request.member_id:
            return errors.UnknownMemberIdError
        code = self._judged(request.member_id, request.generation)
        if code is errors.NoError:
            self._touch(self.members[request.member_id])
            if self.phase is GroupPhase.COMPLETING:
                return errors.RebalanceInProgressError
        return code

    def rebalance(self) -> None:
        if self.phase is GroupPhase.STABLE:
            self._prepare()

    def put_out(self, member_id: str) -> None:
        """Drop a member, as after a session timeout."""
        if member_id in self.members:
            self._remove(self.members[member_id])

    # --- a generation ---------------------------------------------------------------------------------------------------

    def _judged(self, member_id: str, generation: int) -> Code:
        if member_id not in self.members:
            return errors.UnknownMemberIdError
        return errors.NoError if generation == self.generation else errors.IllegalGenerationError

    def _holder(self, instance: str | None) -> _Member | None:
        if instance is None:
            return None
        return next((member for member in self.members.values() if member.instance == instance), None)

    def _is_fenced(self, instance: str | None, member_id: str) -> bool:
        holder = self._holder(instance)
        return holder is not None and holder.id != member_id

    def _join_anew(self, request: JoinGroup, reply: Reply) -> None:
        self._count += 1
        member_id = f"{request.instance or request.client_id}-{self._count:06}"
        if request.instance is None:
            self._pending[member_id] = self._clock.call_later(request.session_s, self._forget, member_id)
            reply((errors.MemberIdRequired, member_id))
        elif (holder := self._holder(request.instance)) is None:
            self._add(request, member_id, reply)
        else:
            self._replace(holder, member_id, request, reply)

    def _replace(self, holder: _Member, member_id: str, request: JoinGroup, reply: Reply) -> None:
        self._answer(holder, FencedInstanceIdError)
        leader = self.leader
        self.members = {(member_id if key == holder.id else key): each for key, each in self.members.items()}
        if self.leader == holder.id:
            self.leader = member_id
        holder.id = member_id
        self._touch(holder)
        if self.phase is GroupPhase.STABLE and holder.topics == request.topics:
            reply(Joined(self.generation, member_id, leader, {}))  # without the leader's member list
        else:
            self._wait_for_the_others(holder, request, reply)

    def _forget(self, member_id: str) -> None:
        self._pending.pop(member_id, None)
        self._complete_if_all_joined()

    def _add(self, request: JoinGroup, member_id: str, reply: Reply) -> None:
        now = self._clock.time()
        member = _Member(
            member_id, request.instance, request.topics, request.session_s, request.rebalance_s, now, join=reply
        )
        self.members[member_id] = member
        self.leader = self.leader or member_id
        member.timer = self._clock.call_later(member.session_s, self._look, member)
        self._prepare()

    def _wait_for_the_others(self, member: _Member, request: JoinGroup, reply: Reply) -> None:
        member.topics, member.join = request.topics, reply
        member.session_s, member.rebalance_s = request.session_s, request.rebalance_s
        self._touch(member)
        self._prepare()

    def _prepare(self) -> None:
        if self.phase is GroupPhase.PREPARING:
            self._complete_if_all_joined()
            return
        if self.phase is GroupPhase.COMPLETING:
            for member in self.members.values():
                if member.sync is not None:
                    member.sync(errors.RebalanceInProgressError)
                    member.sync = None
        is_first = self.phase is GroupPhase.EMPTY
        self.phase = GroupPhase.PREPARING
        self._set_timer(0 if is_first else self._patience_s(), self._begin_generation)
        if not is_first:
            self._complete_if_all_joined()

    def _patience_s(self) -> float:
        return max((member.rebalance_s for member in self.members.values()), default=0.0)

    def _set_timer(self, delay_s: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay_s, then)

    def _complete_if_all_joined(self) -> None:
        if self.phase is not GroupPhase.PREPARING or self._pending:
            return
        if all(member.join is not None for member in self.members.values()):
            self._begin_generation()

    def _begin_generation(self) -> None:
        """Drop members that have not rejoined, except static ones."""
        for member in tuple(self.members.values()):
            if member.join is None and member.instance is None:
                self.late.append(member.id)
                self._drop(member)
        joined = [member for member in self.members.values() if member.join is not None]
        if self.members and not joined:
            self._set_timer(self._patience_s(), self._begin_generation)
            return
        self.generation += 1
        if self._timer is not None:
            self._timer.cancel()
        if not self.members:
            self.phase = GroupPhase.EMPTY
            return
        if self.leader not in {member.id for member in joined}:
            self.leader = joined[0].id
        self.phase = GroupPhase.COMPLETING
        for member in joined:
            reply, member.join = member.join, None
            self._touch(member)
            assert reply is not None
            reply(self._joined(member))
        self._set_timer(self._patience_s(), self._expire_syncs)

    def _joined(self, member: _Member) -> Joined:
        members = {each.id: each.topics for each in self.members.values()} if member.id == self.leader else {}
        return Joined(self.generation, member.id, self.leader, members)

    def _assign(self, assignments: Mapping[str, tuple[Partition, ...]]) -> None:
        self.phase = GroupPhase.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.id, ())
            if member.sync is not None:
                reply, member.sync = member.sync, None
                reply(member.assignment)

    def _expire_syncs(self) -> None:
        if self.phase is GroupPhase.COMPLETING:
            for member in tuple(self.members.values()):
                if member.sync is None:
                    self._drop(member)
            self._after_a_loss()

    # --- members come and go --------------------------------------------------------------------------------------------

    def _touch(self, member: _Member) -> None:
        member.seen = self._clock.time()

    def _look(self, member: _Member) -> None:
        """Check the session timeout; a member that awaits an answer counts as alive."""
        now = self._clock.time()
        waits = member.join is not None or member.sync is not None
        due = (now if waits else member.seen) + member.session_s
        if due > now:
            member.timer = self._clock.call_later(due - now, self._look, member)
        else:
            self._remove(member)

    def _answer(self, member: _Member, code: Code) -> None:
        for reply in (member.join, member.sync):
            if reply is not None:
                reply(code)
        member.join = member.sync = None

    def _drop(self, member: _Member) -> None:
        del self.members[member.id]
        if member.timer is not None:
            member.timer.cancel()
        self._answer(member, errors.UnknownMemberIdError)
        if self.leader == member.id:
            self.leader = next(iter(self.members), "")

    def _remove(self, member: _Member) -> None:
        self._drop(member)
        self._after_a_loss()

    def _after_a_loss(self) -> None:
        if self.phase in (GroupPhase.STABLE, GroupPhase.COMPLETING):
            self._prepare()
        else:
            self._complete_if_all_joined()
