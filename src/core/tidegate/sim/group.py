"""The consumer group that shares a log, as cells and one actor.

A rebalance is eager or cooperative (KIP-429). The eager one revokes every partition, and assigns all anew when the living
members have released what they had. The cooperative one revokes only what moves, and assigns that when it is released;
for what stays there is no event, and work on it goes on.

A commit is fenced: it is refused unless it is of the generation in which the partition came to its present owner, and to
a member that was put out nothing belongs. A commit without a generation (`NO_GENERATION`) is what a consumer outside of any
group makes: the broker takes it while the group has no members, whoever sends it (seen with Kafka 4.1: the position of a
group that had left fell from 100 to 6). aiokafka sends one after its member was put out, until it has joined again; whoever
carries out the commands of a consumer must make it hear `Lost` instead. Faults of a group:

    REBALANCE        it begins although nobody came or left. That is what groups do, so it spends nothing of what all faults
                     may together: a budget of its own (`REBALANCES`) says how often, and the scenario's, if it bounds the kind
    EVICTED          a member that stands beyond its session is put out: it goes on working until it gets the event (`Lost`),
                     and joins again then
    COMMIT_REFUSED   the broker refuses a commit for a reason of its own

A topic may be deleted while nobody has a partition of it, and made anew with other records; then nothing is committed, and what its
records were handled counts for nothing (`Recreation`). Whoever has one is told, and joins again. A consumer knows the records again
that it was handed, where the meaning says so (`broker`).

A dead member is put out, too; that is not a fault of the group, for its death was one. One that starts again is a new member
(`Coordinator.rejoins`).

Laws
    GR1  Generations grow.
    GR2  No partition comes to another member before its owner has released it, is dead or was put out.
    GR3  A commit is taken in the generation in which the partition came to its owner only, from whoever knows that; without
         a generation, from anybody while there are no members.
    GR4  In a cooperative rebalance, whoever keeps a partition gets no event.
    GR5  Of a log that was made anew nothing is committed, and no record of it is known again until it was handed over once.

Known not to work: static members; offsets that expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.commands import (
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
from tidegate.consumer.fanout import DeliverRecords, Start
from tidegate.model.effects import Effect, Refused
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_callable, check_int, check_name
from tidegate.sim.faults import REBALANCES, Fault, bound, spent
from tidegate.sim.log import Append, Pause, Resume, fetched, log, made_anew, paused, perform_on_log
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.trace import StepKind
from tidegate.sim.world import Cell, Meaning, Outcomes, World, inbox, perform, unpaused

__all__ = [
    "GROUP", "NO_GENERATION", "REBALANCES", "STEP_KINDS", "Coordinator", "Group", "Recreation", "broker", "committed", "dead", "end",
    "processed", "tell",
]  # fmt: skip


STEP_KINDS: Final[tuple[tuple[StepKind, tuple[type[Effect[object]], ...]], ...]] = (
    (StepKind.CALL, (Work,)),
    (StepKind.FETCH, (Fetch,)),
    (StepKind.COMMIT, (Commit,)),
)
"""What kind of step in a trace the commands of a consumer are."""

NO_GENERATION: Final = -1
"""Kafka's word for none."""


@final
@attrs.frozen
class Group:
    """The consumer group.

    Attributes:
        generation: Grows with every assignment.
        members: Who is alive, as far as the group knows.
        owners: Who owns each partition; "" for nobody.
        rebalancing: Is it waiting for releases?
        released: Which partitions were released since then, and by which process.
        since: In which generation each partition came to its owner; empty where all came in this one.
        target: Who is to own each partition after a cooperative rebalance.
        away: Who was put out and has not got the event.
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
        """The one in which the partition came to its owner."""
        return self.since[number] if self.since else self.generation

    def takes(self, number: int, generation: int) -> bool:
        """May the partition be committed under that generation?"""
        if generation == NO_GENERATION:
            return not self.members
        if self.owners and not self.owners[number]:
            return False
        return generation == self.generation_of(number)


GROUP: Final = Cell[Group](("group",), Group())


def committed(partition: int) -> Cell[int]:
    """The group's position."""
    return Cell(("committed", str(partition)), 0)


def _metadata(partition: int) -> Cell[str]:
    """What was committed along with the position."""
    return Cell(("metadata", str(partition)), "")


def end(partition: int) -> Cell[int]:
    """One past the last offset of a log that never grows (`broker` with a number of records)."""
    return Cell(("end", str(partition)), 0)


_Offsets: TypeAlias = tuple[int, ...]


def processed(partition: int) -> Cell[_Offsets]:
    """The offsets that user code has finished, at least once."""
    return Cell(("processed", str(partition)), ())


def dead(consumer: str) -> Cell[bool]:
    return Cell(("dead", consumer), empty=False)


def _handed(consumer: str, partition: int) -> Cell[_Handed]:
    """The records of later lives of the log that the consumer was handed; what it was handed besides is of the first one."""
    return Cell(("handed", consumer, str(partition)), ())


_Handed: TypeAlias = tuple[tuple[int, int, int], ...]
"""Generation, offset and life of each."""
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
    """What the commands of a partition mean.

    Args:
        records: How many records each log has; None for logs that are cells (`tidegate.sim.log`), which grow.
        metadata_max: How long the metadata of a commit may be.
        most: How many records a fetch answers at most.
        knows: Whether a consumer knows records again that it was handed, also where logs of so many records are made anew
            (`Recreation`).
        otherwise: What all other effects mean.
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
                yield world, None  # it may come true all the same, or fail
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
    """Where the consumer was handed these, and which of them it was handed before."""
    now, handed = world.read(made_anew(number)), _handed(who, number)
    again = _of_now(world, who, number, offsets)
    records = Records(offsets, again=again, is_anew=again != offsets)
    if not now:
        return world, records
    more = {*world.read(handed), *((generation, each, now) for each in offsets)}
    return world.write(handed, tuple(sorted(more))), records


def _of_now(world: World, who: str, number: int, offsets: _Offsets, generation: int | None = None) -> _Offsets:
    """Which of these are of this life of the log as the consumer was handed them, in that generation, or the last time."""
    handed, now = world.read(_handed(who, number)), world.read(made_anew(number))
    lives = {at: of for since, at, of in handed if generation in (None, since)}
    return tuple([each for each in offsets if lives.get(each, 0) == now])


@final
@attrs.frozen(eq=False)
class Recreation:
    """Deletes the log of a partition that nobody has, and makes it anew with as many other records.

    Attributes:
        numbers: Of which partitions.
        most: How often it does that with each.
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
    """Begins rebalances as far as their budget goes, puts members out, assigns when all that moves is released.

    Attributes:
        topic: Whose partitions they are.
        lane: Which process gets the events of a consumer's partition.
        cooperative: Are its rebalances cooperative?
        evicts: May it put out members that are alive?
        at_end: Does a partition begin at the end of its log where nothing is committed, which -1 stands for?
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
        """What a member that starts again is to do: `Restart(..., prepared=coordinator.rejoins("a"))`.

        It is a new member. The group puts out the one that it was, whose partitions are free then.
        """

        def joined(world: World) -> World:
            group = world.read(GROUP)
            rest = tuple(other for other in group.members if other != member)
            owners = tuple("" if owner == member else owner for owner in group.owners)
            left = attrs.evolve(group, members=rest, owners=owners)
            return self.revoke(world, _joined(left, member))

        return joined

    def moving(self, group: Group) -> tuple[int, ...]:
        """The partitions that a living member has to release."""
        owners = enumerate(group.owners)
        if not self.cooperative:
            return tuple(number for number, owner in owners if owner in group.members)
        return tuple(number for number, owner in owners if owner in group.members and owner != group.target[number])

    def is_released(self, group: Group, number: int) -> bool:
        """By its owner: somebody who was put out may release what came to another one meanwhile."""
        return (number, self.lane(group.owners[number], number)) in group.released

    def puts_out(self, world: World, group: Group, member: str) -> World:
        """The member owns nothing any more, and will get the event."""
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
                if owner == group.owners[number] and not self.is_released(group, number)  # what was let go comes anew
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
    """The world with one rebalance less to come; None if none is left, or none may be."""
    after = world.taken(REBALANCES)
    return None if after is None else after.taken(bound(Fault.REBALANCE))


def _joined(group: Group, member: str) -> Group:
    away = tuple(other for other in group.away if other != member)
    return attrs.evolve(group, members=tuple(sorted((*group.members, member))), away=away)


def _balanced(group: Group) -> tuple[str, ...]:
    """Who is to own each partition: whoever has it keeps it, as far as that is fair.

    Where it is fair already, one partition moves, or two change places: somebody wanted a rebalance.
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
    """The target, where those that nobody alive is to own go to who has fewest."""
    if not group.members:
        return ("",) * len(group.owners)
    owners = tuple(owner if owner in group.members else "" for owner in group.target)
    for number, owner in enumerate(owners):
        if not owner:
            owners = (*owners[:number], _by_load(group.members, owners)[0], *owners[number + 1 :])
    return owners


def _by_load(members: tuple[str, ...], owners: tuple[str, ...]) -> list[str]:
    """Who has fewest first."""
    return sorted(members, key=lambda member: (owners.count(member), member))


def _given(owners: tuple[str, ...], members: tuple[str, ...]) -> tuple[str, ...]:
    """The last partition of who has most goes to who has fewest; the first one of that comes back if they had as many."""
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
