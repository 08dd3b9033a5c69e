"""The consumer group that shares a log, as cells and one actor.

A rebalance is eager or cooperative (KIP-429). An eager rebalance revokes every partition and
assigns all of them after the living members have released theirs. A cooperative rebalance revokes
and reassigns only the partitions that move; work on the others continues without an event.

The broker fences commits: a commit needs the generation in which the partition got its present
owner, and an evicted member has no partitions. A commit without a generation (`NO_GENERATION`)
comes from outside any group. The broker accepts it while the group has no members (seen with Kafka
4.1: the position of an empty group fell from 100 to 6). aiokafka sends such a commit between
eviction and rejoin; an adapter must deliver `Lost` instead. Faults of a group:

    REBALANCE        A rebalance without a change of membership. That is normal, so it has its own
                     budget (`REBALANCES`) outside the total; the scenario may also bound the kind.
    EVICTED          The group evicts a member that stalls too long. It works on until it gets
                     `Lost`, then rejoins.
    COMMIT_REFUSED   The broker refuses a commit for a reason of its own.

A partition without an owner may be deleted and recreated with other records (`Recreation`). Its
position and handled records are then reset. With `broker(knows=True)`, a consumer recognizes
records it received before.

The group also evicts dead members, which is not a fault of its own. A restarted member is a new one
(`Coordinator.rejoins`).

Laws
    GR1  Generations grow.
    GR2  No partition moves to another member before its owner has released it, died or been
         evicted.
    GR3  A commit is accepted only in the generation in which the partition got its owner, from any
         sender that knows it; without a generation, from any sender while there are no members.
    GR4  In a cooperative rebalance, a member gets no event for a partition it keeps.
    GR5  A recreated log has no committed position, and a record of it is recognized only after it
         was delivered once.

Known not to work: static members; offsets that expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.fanout import DeliverRecords, Start
from tidegate.consumer.protocol.commands import (
    METADATA_REFUSED,
    Assigned,
    Commit,
    CommitsUnanswered,
    Fetch,
    Handle,
    Interrupt,
    Lost,
    Records,
    Release,
    Revoked,
    StartRetryTimer,
    Work,
    WorkUnanswered,
)
from tidegate.model.effects import Effect, Refused
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_callable, check_int, check_name
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.servers.log import Append, Pause, Resume, fetched, log, made_anew, paused, perform_on_log
from tidegate.sim.trace.trace import StepKind
from tidegate.sim.world.faults import REBALANCES, Fault, bound, spent
from tidegate.sim.world.world import Cell, Meaning, Outcomes, World, inbox, perform, unpaused

__all__ = [
    "GROUP", "NO_GENERATION", "REBALANCES", "STEP_KINDS", "Coordinator", "Group", "Recreation", "broker", "committed", "dead", "end",
    "processed", "tell",
]  # fmt: skip


STEP_KINDS: Final[tuple[tuple[StepKind, tuple[type[Effect[object]], ...]], ...]] = (
    (StepKind.CALL, (Work,)),
    (StepKind.FETCH, (Fetch,)),
    (StepKind.COMMIT, (Commit,)),
)
NO_GENERATION: Final = -1


@final
@attrs.frozen
class Group:
    """The consumer group.

    Attributes:
        generation: Grows with every assignment.
        owners: The owner of each partition; "" for none.
        rebalancing: The group is waiting for releases.
        released: The partitions released since then, each with the releasing process.
        since: For each partition, the generation of its owner's assignment; empty if all are this
            one.
        target: The planned owner of each partition in a cooperative rebalance.
        away: Evicted members that have not received the event.
    """

    generation: int = 0
    members: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    rebalancing: bool = False
    released: tuple[tuple[int, str], ...] = ()
    since: tuple[int, ...] = ()
    target: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    def generation_of(self, number: int) -> int:
        return self.since[number] if self.since else self.generation

    def takes(self, number: int, generation: int) -> bool:  # GR3
        if generation == NO_GENERATION:
            return not self.members
        if self.owners and not self.owners[number]:
            return False
        return generation == self.generation_of(number)


GROUP: Final = Cell[Group](("group",), Group())


def committed(partition: int) -> Cell[int]:
    return Cell(("committed", str(partition)), 0)


def _metadata(partition: int) -> Cell[str]:
    return Cell(("metadata", str(partition)), "")


def end(partition: int) -> Cell[int]:
    return Cell(("end", str(partition)), 0)


_Offsets: TypeAlias = tuple[int, ...]


def processed(partition: int) -> Cell[_Offsets]:
    return Cell(("processed", str(partition)), ())


def dead(consumer: str) -> Cell[bool]:
    return Cell(("dead", consumer), empty=False)


def _handed(consumer: str, partition: int) -> Cell[_Handed]:
    """The records of recreated logs that the consumer received. All others belong to the first
    log.
    """
    return Cell(("handed", consumer, str(partition)), ())


_Handed: TypeAlias = tuple[tuple[int, int, int], ...]
_METADATA_MAX: Final = 4_096
_RECORDS_MAX: Final = 500


def broker(
    records: int | None = None,
    *,
    metadata_max: int = _METADATA_MAX,
    most: int = _RECORDS_MAX,
    knows: bool = False,
    otherwise: Meaning = perform,
) -> Meaning:
    """The meaning of a partition's commands.

    Args:
        records: The number of records in each log; None for growing logs in cells
            (`tidegate.sim.servers.log`).
        metadata_max: The maximum length of a commit's metadata.
        most: The maximum number of records in a fetch.
        knows: A consumer recognizes records that it received before, also in recreated logs of
            fixed length (`Recreation`).
        otherwise: The meaning of all other effects.
    """
    check_int(records or 0, "a number of records", 0)
    check_int(metadata_max, "the length of metadata", 0)
    check_int(most, "a number of records that a fetch answers at most", 1)
    check_callable(otherwise, "a meaning")

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Fetch(TopicPartition(_, number), generation, position) if records is not None:
                if position < records:
                    offsets = tuple(range(position, min(records, position + most)))
                    yield _known(world, who, number, generation, offsets) if knows else (world, offsets)
            case Fetch(TopicPartition(_, number), _, position):
                found = fetched(world.read(log(number)), position, most)
                if found is not None and number not in world.read(paused(who)):
                    yield world, found
            case Work(TopicPartition(_, number), generation, Handle() | Start() | DeliverRecords(), offsets):
                done = processed(number)
                counts = _of_now(world, who, number, offsets, generation) if knows else offsets
                yield world.write(done, tuple(sorted({*world.read(done), *counts}))), None
            case Work():
                yield world, None
            case StartRetryTimer() | WorkUnanswered() | CommitsUnanswered():
                yield world, None
            case Interrupt():
                yield world, None  # the call may still complete, or fail
            case Commit(TopicPartition(_, number), generation, position, text):
                if not world.read(GROUP).takes(number, generation):
                    yield world, Refused("illegal generation")
                elif len(text) > metadata_max:
                    yield world, METADATA_REFUSED.fresh()
                else:
                    yield world.write(committed(number), position).write(_metadata(number), text), None
            case Release(TopicPartition(_, number)):
                group = world.read(GROUP)
                released = tuple(sorted({*group.released, (number, who)}))
                yield world.write(GROUP, attrs.evolve(group, released=released)), None
            case Append() | Pause() | Resume():
                yield from perform_on_log(effect, world, who)
            case _:
                yield from otherwise(effect, world, who)

    return meaning


def _known(world: World, who: str, number: int, generation: int, offsets: _Offsets) -> tuple[World, Records]:
    now, handed = world.read(made_anew(number)), _handed(who, number)
    again = _of_now(world, who, number, offsets)
    records = Records(offsets, again=again, is_anew=again != offsets)
    if not now:
        return world, records
    more = {*world.read(handed), *((generation, each, now) for each in offsets)}
    return world.write(handed, tuple(sorted(more))), records


def _of_now(world: World, who: str, number: int, offsets: _Offsets, generation: int | None = None) -> _Offsets:
    """The offsets that belong to the current log by what the consumer received: in that generation,
    or most recently.
    """
    handed, now = world.read(_handed(who, number)), world.read(made_anew(number))
    lives = {at: of for since, at, of in handed if generation in (None, since)}
    return tuple([each for each in offsets if lives.get(each, 0) == now])


@final
@attrs.frozen(eq=False)
class Recreation:
    """Deletes the log of a partition without an owner and recreates it with as many other records.

    Attributes:
        most: The maximum number of recreations of each.
    """

    numbers: tuple[int, ...]
    most: int = 1
    name: str = "recreation"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        for number in self.numbers:
            lives = world.read(made_anew(number)) + 1
            if lives <= self.most and not world.read(GROUP).owners[number]:
                anew = world.write(made_anew(number), lives).write(committed(number), 0).write(processed(number), ())
                anew = anew.write(_metadata(number), "")
                yield ActorStep(Label(f"makes the log of {number} anew"), anew, must=False)


@final
@attrs.frozen(eq=False)
class Coordinator:
    """Begins rebalances within budget, evicts members, and assigns after all releases.

    Attributes:
        lane: Maps a member and a partition to the process that gets the events.
        evicts: It may evict living members.
        at_end: A partition without a committed position (-1) begins at the end of its log.
    """

    topic: str
    lane: Callable[[str, int], str]
    cooperative: bool = False
    evicts: bool = False
    at_end: bool = False
    name: str = "coordinator"
    place: Cell[object] = GROUP  # type: ignore[assignment]
    blind: bool = False

    def __attrs_post_init__(self) -> None:
        check_name(self.topic, "a topic")
        check_callable(
            self.lane, "what says which process has a partition", 'write lambda member, number: f"{member}.{number}"'
        )

    @property
    def makes(self) -> tuple[Fault, ...]:
        return (Fault.EVICTED,) if self.evicts else ()

    def steps(self, world: World) -> Iterator[ActorStep]:
        group = world.read(GROUP)
        if group.rebalancing and all(self.is_released(group, number) for number in self.moving(group)):
            yield ActorStep(Label(f"assigns generation {group.generation + 1}"), self.assign(world, group))
        for member in group.members:
            rest = attrs.evolve(group, members=tuple(other for other in group.members if other != member))
            if world.read(dead(member)):
                yield ActorStep(Label(f"evicts {member}"), self.revoke(world, rest))
            elif self.evicts and (after := spent(world, Fault.EVICTED)):
                label = Label(f"evicts {member}, who goes on working")
                yield ActorStep(label, self.puts_out(after, rest, member), must=False, fault=Fault.EVICTED)
        for member in group.away if not group.rebalancing else ():
            if not world.read(dead(member)) and self.has_learned_of_its_loss(world, member):
                yield ActorStep(Label(f"takes {member} in again"), self.revoke(world, _joined(group, member)))
        if not group.rebalancing and (after := _begun(world)):
            yield ActorStep(Label("begins a rebalance"), self.revoke(after, group), must=False, fault=Fault.REBALANCE)

    def rejoins(self, member: str) -> Callable[[World], World]:
        """The preparation of a restarting member: `Restart(...,
        prepared=coordinator.rejoins("a"))`.

        The group evicts the old member, and its partitions become free.
        """

        def joined(world: World) -> World:
            group = world.read(GROUP)
            rest = tuple(other for other in group.members if other != member)
            owners = tuple("" if owner == member else owner for owner in group.owners)
            left = attrs.evolve(group, members=rest, owners=owners)
            return self.revoke(world, _joined(left, member))

        return joined

    def moving(self, group: Group) -> tuple[int, ...]:
        owners = enumerate(group.owners)
        if not self.cooperative:
            return tuple(number for number, owner in owners if owner in group.members)
        return tuple(number for number, owner in owners if owner in group.members and owner != group.target[number])

    def is_released(self, group: Group, number: int) -> bool:  # GR2
        """A release by an evicted former owner does not count."""
        return (number, self.lane(group.owners[number], number)) in group.released

    def puts_out(self, world: World, group: Group, member: str) -> World:
        for number, owner in enumerate(group.owners):
            if owner == member:
                world = tell(world, self.lane(member, number), Lost(TopicPartition(self.topic, number)))
        owners = tuple("" if owner == member else owner for owner in group.owners)
        return self.revoke(world, attrs.evolve(group, owners=owners, away=(*group.away, member)))

    def has_learned_of_its_loss(self, world: World, member: str) -> bool:
        events = [
            event
            for number in range(len(world.read(GROUP).owners))
            for event in world.read(inbox(self.lane(member, number)))
        ]
        return not any(isinstance(event, Lost) for event in events)

    def revoke(self, world: World, group: Group) -> World:
        if group.rebalancing:
            return world.write(GROUP, group)
        after = attrs.evolve(group, rebalancing=True, released=(), target=_balanced(group) if self.cooperative else ())
        for number in self.moving(after):
            if not world.read(dead(owner := group.owners[number])):
                world = tell(world, self.lane(owner, number), Revoked(TopicPartition(self.topic, number)))
        return world.write(GROUP, after)

    def assign(self, world: World, group: Group) -> World:
        generation, count = group.generation + 1, len(group.members)
        if self.cooperative:
            owners = _completed(group)
            since = tuple(
                group.generation_of(number)
                if owner == group.owners[number] and not self.is_released(group, number)  # released counts as new
                else generation
                for number, owner in enumerate(owners)
            )
        else:
            numbers = range(len(group.owners))
            owners = tuple(group.members[(number + generation) % count] if count else "" for number in numbers)
            since = ()
        for number, owner in enumerate(owners):
            is_new = not since or since[number] == generation
            if owner and is_new and not world.read(dead(owner)):
                position, text = world.read(committed(number)), world.read(_metadata(number))
                last = world.read(end(number)) or len(world.read(log(number)))
                begins = self.at_end and position < 0
                at = (last, None, last) if begins else (position, text, last)
                assigned = Assigned(TopicPartition(self.topic, number), generation, *at)
                world = tell(unpaused(world, self.lane(owner, number), number), self.lane(owner, number), assigned)
        return world.write(GROUP, Group(generation, group.members, owners, since=since, away=group.away))


def _begun(world: World) -> World | None:
    after = world.taken(REBALANCES)
    return None if after is None else after.taken(bound(Fault.REBALANCE))


def _joined(group: Group, member: str) -> Group:
    away = tuple(other for other in group.away if other != member)
    return attrs.evolve(group, members=tuple(sorted((*group.members, member))), away=away)


def _balanced(group: Group) -> tuple[str, ...]:
    """The planned owner of each partition: owners keep theirs as far as that is fair.

    If the assignment is already fair, one partition moves or two swap: a rebalance was requested.
    """
    if not group.members:
        return ("",) * len(group.owners)
    owners = _completed(attrs.evolve(group, target=group.owners))
    while not _is_fair(group.members, owners):
        owners = _given(owners, group.members)
    return _given(owners, group.members) if owners == group.owners else owners


def _is_fair(members: tuple[str, ...], owners: tuple[str, ...]) -> bool:
    loads = [owners.count(member) for member in members]
    return max(loads) - min(loads) <= 1


def _completed(group: Group) -> tuple[str, ...]:
    if not group.members:
        return ("",) * len(group.owners)
    owners = tuple(owner if owner in group.members else "" for owner in group.target)
    for number, owner in enumerate(owners):
        if not owner:
            owners = (*owners[:number], _by_load(group.members, owners)[0], *owners[number + 1 :])
    return owners


def _by_load(members: tuple[str, ...], owners: tuple[str, ...]) -> list[str]:
    return sorted(members, key=lambda member: (owners.count(member), member))


def _given(owners: tuple[str, ...], members: tuple[str, ...]) -> tuple[str, ...]:
    """Move the last partition of the most loaded member to the least loaded one. If both have
    equally many, the first partition of the latter moves back.
    """
    by_load = _by_load(members, owners)
    least, most = by_load[0], by_load[-1]
    if most == least:
        return owners
    last = max(number for number, owner in enumerate(owners) if owner == most)
    after = [least if number == last else owner for number, owner in enumerate(owners)]
    if owners.count(most) == owners.count(least):
        after[owners.index(least)] = most
    return tuple(after)


def tell(world: World, who: str, event: object) -> World:
    return world.write(inbox(who), (*world.read(inbox(who)), event))
