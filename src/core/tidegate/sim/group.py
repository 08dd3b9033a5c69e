"""A partitioned log and the consumer group that shares it, as cells and one actor.

The group is eager: at a rebalance every partition is revoked, and assigned anew when all living members have released
what they had. A commit is fenced by the generation: it is refused when the group has moved on. A dead member is evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, final

import attrs

from tidegate.effects import Effect, Refused
from tidegate.fanout import DeliverMessages, Start
from tidegate.sim.scenario import Label, Step
from tidegate.sim.world import BUDGET, Cell, Meaning, Outcomes, World, inbox
from tidegate.wishes import Assigned, Commit, Fetch, Interrupt, Release, Revoked, TopicPartition, Work

REBALANCES: Final = Cell[int]((BUDGET, "rebalances"), 0)


@final
@attrs.frozen
class Group:
    """The consumer group.

    Attributes:
        generation: Grows with every assignment.
        members: Who is alive, as far as the group knows.
        owners: Who owns each partition.
        rebalancing: Is it waiting for releases?
        released: Which partitions were released since then.
    """

    generation: int = 0
    members: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    rebalancing: bool = False
    released: tuple[int, ...] = ()


GROUP: Final = Cell[Group](("group",), Group())


def committed(partition: int) -> Cell[int]:
    """The group's position."""
    return Cell(("committed", str(partition)), 0)


def metadata(partition: int) -> Cell[str]:
    """What was committed along with the position."""
    return Cell(("metadata", str(partition)), "")


def end(partition: int) -> Cell[int]:
    """One past the last offset of the log."""
    return Cell(("end", str(partition)), 0)


Offsets: TypeAlias = tuple[int, ...]


def processed(partition: int) -> Cell[Offsets]:
    """The offsets that user code has finished, at least once."""
    return Cell(("processed", str(partition)), ())


def dead(consumer: str) -> Cell[bool]:
    return Cell(("dead", consumer), empty=False)


def broker(records: int) -> Meaning:
    """What the wishes of a partition mean, over logs of so many records each."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Fetch(_, _, position):
                if position < records:
                    yield world, tuple(range(position, records))
            case Work(TopicPartition(_, number), _, Start() | DeliverMessages(), offsets):
                done = processed(number)
                yield world.write(done, tuple(sorted({*world.read(done), *offsets}))), None
            case Work():
                yield world, None
            case Interrupt():
                yield world, None  # it may come true all the same, or fail
            case Commit(TopicPartition(_, number), generation, position, text):
                if world.read(GROUP).generation != generation:
                    yield world, Refused("illegal generation")
                else:
                    yield world.write(committed(number), position).write(metadata(number), text), None
            case Release(TopicPartition(_, number)):
                group = world.read(GROUP)
                released = tuple(sorted({*group.released, number}))
                yield world.write(GROUP, attrs.evolve(group, released=released)), None
            case _:
                raise AssertionError(effect, who)

    return meaning


@final
@attrs.frozen(eq=False)
class Coordinator:
    """Begins rebalances as far as their budget goes, evicts the dead, assigns when all have released.

    Attributes:
        topic: Whose partitions they are.
        lane: Which process hears of a consumer's partition.
    """

    topic: str
    lane: Callable[[str, int], str]
    name: str = "coordinator"
    place: Cell[object] = GROUP  # type: ignore[assignment]
    blind: bool = False

    def steps(self, world: World) -> Iterator[Step]:
        group = world.read(GROUP)
        owned = {number for number, owner in enumerate(group.owners) if owner in group.members}
        if group.rebalancing and owned <= set(group.released):
            yield Step(Label(f"assigns generation {group.generation + 1}"), self.assign(world, group))
        for member in group.members:
            if world.read(dead(member)):
                rest = tuple(other for other in group.members if other != member)
                yield Step(Label(f"evicts {member}"), self.revoke(world, attrs.evolve(group, members=rest)))
        if not group.rebalancing and (spent := world.taken(REBALANCES)):
            yield Step(Label("begins a rebalance"), self.revoke(spent, group), must=False)

    def revoke(self, world: World, group: Group) -> World:
        if group.rebalancing:
            return world.write(GROUP, group)
        for number, owner in enumerate(group.owners):
            if owner in group.members and not world.read(dead(owner)):
                world = tell(world, self.lane(owner, number), Revoked(TopicPartition(self.topic, number)))
        return world.write(GROUP, attrs.evolve(group, rebalancing=True, released=()))

    def assign(self, world: World, group: Group) -> World:
        generation, count = group.generation + 1, len(group.members)
        owners = tuple(
            group.members[(number + generation) % count] if count else "" for number in range(len(group.owners))
        )
        for number, owner in enumerate(owners):
            if owner and not world.read(dead(owner)):
                position, text = world.read(committed(number)), world.read(metadata(number))
                topic_partition = TopicPartition(self.topic, number)
                told = Assigned(topic_partition, generation, position, text, world.read(end(number)))
                world = tell(world, self.lane(owner, number), told)
        return world.write(GROUP, Group(generation, group.members, owners))


def tell(world: World, who: str, event: object) -> World:
    return world.write(inbox(who), (*world.read(inbox(who)), event))
