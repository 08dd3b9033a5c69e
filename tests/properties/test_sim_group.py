"""The consumer group as cells and one actor: generations, releases, evictions, fences."""

from __future__ import annotations

import attrs
import pytest

from tidegate.effects import Now, Refused
from tidegate.fanout import Start
from tidegate.sim.group import GROUP, REBALANCES, Coordinator, Group, broker, committed, dead, processed
from tidegate.sim.scenario import Step
from tidegate.sim.world import Plain, World, inbox
from tidegate.wishes import Assigned, Commit, Fetch, Release, Revoked, TopicPartition, Work

COORDINATOR = Coordinator("t", lambda consumer, number: f"{consumer}.{number}")
BROKER = broker(3)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def steps(world: World) -> dict[str, Step]:
    return {str(step.label): step for step in COORDINATOR.steps(world)}


def told(world: World) -> dict[str, tuple[object, ...]]:
    lanes = (f"{consumer}.{number}" for consumer in "abc" for number in range(2))
    return {lane: events for lane in lanes if (events := world.read(inbox(lane)))}


def begun(*members: str, rebalances: int = 1) -> World:
    return COORDINATOR.assign(Plain().write(REBALANCES, rebalances), Group(0, members, ("", "")))


def test_partitions_are_dealt_out_to_the_members_in_turn() -> None:
    """Each generation begins with another one, and every owner is told from where to go on."""
    world = begun("a", "b")
    assert world.read(GROUP) == Group(1, ("a", "b"), ("b", "a"))
    assert told(world) == {"b.0": (Assigned(P0, 1, 0),), "a.1": (Assigned(P1, 1, 0),)}


def test_a_rebalance_revokes_all_and_assigns_when_all_are_released() -> None:
    """No partition has two owners; a rebalance need not happen, assigning what was released must."""
    steady = begun("a", "b").write(inbox("b.0"), ()).write(inbox("a.1"), ()).write(committed(0), 2)
    begins = steps(steady)["begins a rebalance"]
    assert not begins.must
    assert told(begins.world) == {"b.0": (Revoked(P0),), "a.1": (Revoked(P1),)}
    assert begins.world.read(REBALANCES) == 0
    assert steps(begins.world) == {}
    released = begins.world
    for partition in (P0, P1):
        ((released, _),) = BROKER(Release(partition), released, "x")
    assigns = steps(released)["assigns generation 2"]
    assert assigns.must
    assert assigns.world.read(GROUP) == Group(2, ("a", "b"), ("a", "b"))
    assert told(assigns.world)["a.0"] == (Assigned(P0, 2, 2),)


def test_the_dead_are_evicted_and_not_waited_for() -> None:
    """They are told nothing; who lives gets what they had."""
    evicts = steps(begun("a", "b").write(dead("b"), value=True))["evicts b"]
    group = evicts.world.read(GROUP)
    assert (group.members, group.rebalancing) == (("a",), True)
    assert told(evicts.world)["a.1"][-1] == Revoked(P1)
    assert told(evicts.world)["b.0"] == (Assigned(P0, 1, 0),)
    ((released, _),) = BROKER(Release(P1), evicts.world, "a.1")
    assert steps(released)["assigns generation 2"].world.read(GROUP).owners == ("a", "a")


def test_a_death_during_a_rebalance_does_not_revoke_twice() -> None:
    """The rebalance that goes on is the one."""
    rebalancing = steps(begun("a", "b"))["begins a rebalance"].world.write(dead("b"), value=True)
    before = told(rebalancing)
    assert told(steps(rebalancing)["evicts b"].world) == before


def test_a_dead_member_that_is_still_thought_alive_is_assigned_and_told_nothing() -> None:
    """It will be evicted; until then nobody works on its partitions."""
    world = COORDINATOR.assign(Plain().write(dead("b"), value=True), Group(0, ("a", "b"), ("", "")))
    assert world.read(GROUP).owners == ("b", "a")
    assert set(told(world)) == {"a.1"}


def test_without_members_nobody_owns_anything() -> None:
    """The last one has died."""
    alone = steps(begun("a").write(dead("a"), value=True))["evicts a"].world
    assert steps(alone)["assigns generation 2"].world.read(GROUP) == Group(2, (), ("", ""))


def test_a_commit_of_an_old_generation_is_refused() -> None:
    """It is fenced; the position stays. One of this generation is taken as it comes, even a lower one."""
    world = Plain().write(GROUP, Group(2)).write(committed(0), 2)
    assert list(BROKER(Commit(P0, 1, 3), world, "x")) == [(world, Refused("illegal generation"))]
    ((lower, reply),) = BROKER(Commit(P0, 2, 1), world, "x")
    assert (lower.read(committed(0)), reply) == (1, None)


def test_a_fetch_waits_until_there_are_records() -> None:
    """Nothing comes beyond the end of the log."""
    world = Plain()
    assert list(BROKER(Fetch(P0, 1, 1), world, "x")) == [(world, (1, 2))]
    assert list(BROKER(Fetch(P0, 1, 3), world, "x")) == []


def test_a_record_counts_as_processed_once_however_often_it_is() -> None:
    """At least once is what is promised."""
    world: World = Plain()
    for offset in (2, 0, 2):
        ((world, _),) = BROKER(Work(P1, 1, Start(0, (0,), 1), (offset,)), world, "x")
    assert world.read(processed(1)) == (0, 2)


def test_what_is_no_wish_of_a_partition_has_no_meaning() -> None:
    """It is an error of the scenario."""
    with pytest.raises(AssertionError):
        list(BROKER(Now(), Plain(), "x"))
    assert attrs.evolve(Group(), generation=1) == Group(1)
