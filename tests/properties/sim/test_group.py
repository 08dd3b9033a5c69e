from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from tidegate.consumer.fanout import Start
from tidegate.consumer.protocol.commands import (
    METADATA_REFUSED,
    Assigned,
    Command,
    Commit,
    Event,
    Fetch,
    Handle,
    Lost,
    Records,
    Release,
    Revoked,
    Work,
    event_for,
)
from tidegate.model.effects import Call, Effect, Refused
from tidegate.model.errors import Misuse, UnknownEffect
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.scenario import ActorStep, Scenario, State
from tidegate.sim.servers.group import (
    GROUP,
    NO_GENERATION,
    REBALANCES,
    Coordinator,
    Group,
    Recreation,
    broker,
    committed,
    dead,
    processed,
)
from tidegate.sim.servers.reducers import Crash, Machine, ReducerProcess, Restart
from tidegate.sim.world.faults import Fault, no_effects
from tidegate.sim.world.world import Meaning, Outcomes, Plain, World, inbox

COORDINATOR = Coordinator("t", lambda consumer, number: f"{consumer}.{number}")
BROKER = broker(3)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def steps(world: World) -> dict[str, ActorStep]:
    return {str(step.label): step for step in COORDINATOR.steps(world)}


def inboxes(world: World) -> dict[str, tuple[object, ...]]:
    lanes = (f"{consumer}.{number}" for consumer in "abc" for number in range(2))
    return {lane: events for lane in lanes if (events := world.read(inbox(lane)))}


def begun(*members: str, rebalances: int = 1) -> World:
    return COORDINATOR.assign(Plain().write(REBALANCES, rebalances), Group(0, members, ("", "")))


def test_partitions_are_dealt_out_to_the_members_in_turn() -> None:
    world = begun("a", "b")
    assert world.read(GROUP) == Group(1, ("a", "b"), ("b", "a"))
    assert inboxes(world) == {"b.0": (Assigned(P0, 1, 0),), "a.1": (Assigned(P1, 1, 0),)}


def test_a_rebalance_revokes_all_and_assigns_when_all_are_released() -> None:
    steady = begun("a", "b").write(inbox("b.0"), ()).write(inbox("a.1"), ()).write(committed(0), 2)
    begins = steps(steady)["begins a rebalance"]
    assert not begins.must
    assert inboxes(begins.world) == {"b.0": (Revoked(P0),), "a.1": (Revoked(P1),)}
    assert (begins.fault, begins.world.read(REBALANCES)) == (Fault.REBALANCE, 0)
    assert steps(begins.world) == {}
    released = begins.world
    for partition, owner in ((P0, "b.0"), (P1, "a.1")):
        ((released, _),) = BROKER(Release(partition), released, owner)
    assigns = steps(released)["assigns generation 2"]
    assert assigns.must
    assert assigns.world.read(GROUP) == Group(2, ("a", "b"), ("a", "b"))
    assert inboxes(assigns.world)["a.0"] == (Assigned(P0, 2, 2),)


def test_what_was_taken_from_somebody_is_not_released_by_them() -> None:
    """Law GR2: an evicted owner's release does not count for the new owner."""
    asked = steps(begun("b", rebalances=2))["begins a rebalance"].world
    group = Group(2, ("a", "c"), ("a", "c"), rebalancing=True, away=("b",))
    ((late, _),) = BROKER(Release(P0), asked.write(GROUP, group), "b.0")
    ((one, _),) = BROKER(Release(P1), late, "c.1")
    assert "assigns generation 3" not in steps(one)
    ((both, _),) = BROKER(Release(P0), one, "a.0")
    assert "assigns generation 3" in steps(both)


def test_a_cooperative_rebalance_is_fair_at_once() -> None:
    cooperative = attrs.evolve(COORDINATOR, cooperative=True)
    alone = Group(1, ("a",), ("a",) * 4, since=(1,) * 4, away=("b",))
    (joins,) = (step for step in cooperative.steps(Plain().write(GROUP, alone)) if "takes b in" in str(step.label))
    assert joins.world.read(GROUP).target == ("a", "a", "b", "b")


def test_the_dead_are_evicted_and_not_waited_for() -> None:
    evicts = steps(begun("a", "b").write(dead("b"), value=True))["evicts b"]
    group = evicts.world.read(GROUP)
    assert (group.members, group.rebalancing) == (("a",), True)
    assert inboxes(evicts.world)["a.1"][-1] == Revoked(P1)
    assert inboxes(evicts.world)["b.0"] == (Assigned(P0, 1, 0),)
    ((released, _),) = BROKER(Release(P1), evicts.world, "a.1")
    assert steps(released)["assigns generation 2"].world.read(GROUP).owners == ("a", "a")


def test_a_death_during_a_rebalance_does_not_revoke_twice() -> None:
    rebalancing = steps(begun("a", "b"))["begins a rebalance"].world.write(dead("b"), value=True)
    before = inboxes(rebalancing)
    assert inboxes(steps(rebalancing)["evicts b"].world) == before


def test_a_dead_member_that_is_still_thought_alive_is_assigned_and_receives_nothing() -> None:
    world = COORDINATOR.assign(Plain().write(dead("b"), value=True), Group(0, ("a", "b"), ("", "")))
    assert world.read(GROUP).owners == ("b", "a")
    assert set(inboxes(world)) == {"a.1"}


def test_without_members_nobody_owns_anything() -> None:
    alone = steps(begun("a").write(dead("a"), value=True))["evicts a"].world
    assert steps(alone)["assigns generation 2"].world.read(GROUP) == Group(2, (), ("", ""))


def test_a_commit_of_an_old_generation_is_refused() -> None:
    world = Plain().write(GROUP, Group(2)).write(committed(0), 2)
    assert list(BROKER(Commit(P0, 1, 3), world, "x")) == [(world, Refused("illegal generation"))]
    ((lower, reply),) = BROKER(Commit(P0, 2, 1), world, "x")
    assert (lower.read(committed(0)), reply) == (1, None)


def test_a_commit_without_a_generation_is_taken_while_there_are_no_members() -> None:
    """As Kafka does; with members, and for old generations, it is refused."""
    without = Commit(P0, NO_GENERATION, 1)
    world = Plain().write(GROUP, Group(2, ("a",), ("a",))).write(committed(0), 2)
    assert list(BROKER(without, world, "x")) == [(world, Refused("illegal generation"))]
    empty = world.write(GROUP, Group(2, (), ("",)))
    ((lower, reply),) = BROKER(without, empty, "x")
    assert (lower.read(committed(0)), reply) == (1, None)
    assert list(BROKER(Commit(P0, 2, 1), empty, "x")) == [(empty, Refused("illegal generation"))]


def test_a_fetch_waits_until_there_are_records() -> None:
    world = Plain()
    assert list(BROKER(Fetch(P0, 1, 1), world, "x")) == [(world, (1, 2))]
    assert list(BROKER(Fetch(P0, 1, 3), world, "x")) == []


def test_a_record_counts_as_processed_once_however_often_it_is() -> None:
    world: World = Plain()
    for offset in (2, 0, 2):
        ((world, _),) = BROKER(Work(P1, 1, Start(0, (0,), 1), (offset,)), world, "x")
    assert world.read(processed(1)) == (0, 2)


def test_a_log_that_is_made_anew_has_other_records() -> None:
    """Law GR5: work on the old log does not count."""
    knows, recreation = broker(1, knows=True), Recreation((0,))
    ((world, came),) = knows(Fetch(P0, 1, 0), begun("a").write(committed(0), 1), "a")
    assert came == Records((0,), again=(0,))  # for who was handed nothing keeps nothing
    assert not [*recreation.steps(world)]
    [anew] = recreation.steps(world.write(GROUP, Group(1, (), ("", ""))))
    ((world, _),) = knows(Work(P0, 1, Handle((0,)), (0,)), anew.world, "a")
    assert (world.read(committed(0)), world.read(processed(0))) == (0, ())
    for generation, again in ((2, ()), (3, (0,))):
        ((world, came),) = knows(Fetch(P0, generation, 0), world, "a")
        assert came == Records((0,), again=again, is_anew=not again)
    ((world, _),) = knows(Work(P0, 2, Handle((0,)), (0,)), world, "a")
    assert world.read(processed(0)) == (0,)


def test_what_is_not_a_wish_of_a_partition_has_no_meaning() -> None:
    with pytest.raises(UnknownEffect):
        list(BROKER(Call("user"), Plain(), "x"))
    assert attrs.evolve(Group(), generation=1) == Group(1)


# --- all behaviour of a group -------------------------------------------------------------------------------------------

MEMBERS: Final = ("a", "b")


@attrs.frozen
class Holds:
    """The generation of a lane's partition; -1 for none."""

    generation: int = -1


def holding(state: Holds, event: Event) -> Step[Holds, Command]:
    match event:
        case Assigned(partition, generation):
            return Step(Holds(generation), (Commit(partition, generation, generation),))
        case Revoked(partition):
            return Step(Holds(), (Release(partition),))
        case Lost():
            return Step(Holds())
        case _:
            return Step(state)


def grouped(*, cooperative: bool = False, means: Meaning = BROKER, budget: int = 1, crash: bool = False) -> Scenario:
    numbers = range(3 if cooperative else 2)
    coordinator = Coordinator("t", lambda member, number: f"{member}.{number}", cooperative, evicts=True)
    lanes = {
        member: tuple(
            ReducerProcess(
                f"{member}.{number}", Holds(), holding, event_for, meaning=means, split=no_effects, at_once=is_release
            )
            for number in numbers
        )
        for member in MEMBERS
    }
    world = coordinator.assign(
        Plain().write(REBALANCES, 1), Group(0, MEMBERS, ("",) * len(numbers), target=("",) * len(numbers))
    )
    assert isinstance(world, Plain)
    crashes = (Crash("a", lanes["a"], dead("a")),) if crash else ()
    return Scenario(
        name="group",
        summary="",
        world=world,
        actors=(*(each for own in lanes.values() for each in own), coordinator, *crashes),
        budget=budget,
        always={"only one holds it": holds_alone, "who holds it is its owner, or was put out": holder_is_owner},
        step={
            "generations grow": lambda before, then: before.read(GROUP).generation <= then.read(GROUP).generation,
            "only an owner commits": commits_are_the_owner_s,
            "who keeps it receives nothing": keepers_are_left_alone if cooperative else lambda *_: True,
        },
        eventually={"all is owned by who is there": all_is_owned},
    )


def test_a_member_that_starts_again_is_a_new_one() -> None:
    whole = grouped(crash=True, budget=2)
    lanes = tuple(each for each in whole.actors if isinstance(each, ReducerProcess) and each.name[0] == "a")
    (coordinator,) = (each for each in whole.actors if isinstance(each, Coordinator))
    coordinator = attrs.evolve(coordinator, evicts=False)
    others = tuple(each for each in whole.actors if not isinstance(each, Coordinator))

    def is_member(state: State) -> bool:
        return state.read(GROUP).members == MEMBERS or state.read(dead("a"))

    def again(**prepared: Any) -> Scenario:
        restart = Restart("again", lanes, dead("a"), **prepared)
        laws = {**whole.eventually, "who lives is a member": is_member}
        return attrs.evolve(whole, actors=(*others, coordinator, restart), eventually=laws)

    report = explore(again(prepared=coordinator.rejoins("a")))
    assert report.verdict is Verdict.COMPLETE
    assert {Fault.CRASH_BEFORE, Fault.RESTART} <= report.faults.keys()
    with pytest.raises(Misuse, match="again starts a again, which is a member of a group"):
        again()


def numbers(state: State) -> range:
    return range(len(state.read(GROUP).owners))


def is_release(effect: Effect[object]) -> bool:
    return isinstance(effect, Release)


def held(state: State, member: str, number: int) -> int:
    machine = state.status(f"{member}.{number}")
    return machine.state.generation if isinstance(machine, Machine) and isinstance(machine.state, Holds) else -1


def holds_alone(state: State) -> bool:
    """Law GR2, except for members not yet notified of their eviction."""
    return all(
        sum(held(state, member, number) >= 0 and not is_out(state, member, number) for member in MEMBERS) <= 1
        for number in numbers(state)
    )


def is_out(state: State, member: str, number: int) -> bool:
    return any(isinstance(event, Lost) for event in state.read(inbox(f"{member}.{number}")))


def holder_is_owner(state: State) -> bool:
    owners = state.read(GROUP).owners
    return all(
        held(state, member, number) < 0 or owners[number] == member or is_out(state, member, number)
        for member in MEMBERS
        for number in numbers(state)
    )


def commits_are_the_owner_s(before: State, then: State) -> bool:
    """Law GR3: the position is the committing generation, so it names the committer."""
    group = before.read(GROUP)
    return all(
        then.read(committed(number)) in (before.read(committed(number)), group.generation_of(number))
        and (then.read(committed(number)) == before.read(committed(number)) or group.owners[number] != "")
        for number in numbers(before)
    )


def keepers_are_left_alone(before: State, then: State) -> bool:
    """Law GR4: notifications only assign, revoke or take."""
    old, new = before.read(GROUP), then.read(GROUP)
    return all(
        len(then.read(inbox(f"{member}.{number}"))) <= len(before.read(inbox(f"{member}.{number}")))
        or old.owners[number] != new.owners[number]
        or (number, f"{member}.{number}") in old.released
        or new.target[number : number + 1] not in {(), (member,)}
        for member in MEMBERS
        for number in numbers(before)
    )


def all_is_owned(state: State) -> bool:
    group = state.read(GROUP)
    alive = [member for member in MEMBERS if not state.read(dead(member))]
    counts = [group.owners.count(member) for member in alive]
    return set(group.members) == set(alive) and sum(counts) == len(group.owners) and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
def test_a_group_keeps_its_laws_whoever_stalls_or_dies(cooperative: bool, crash: bool) -> None:
    """Laws GR1 to GR4, over all rebalances, evictions and deaths; evicted members return."""
    kinds = {Fault.REBALANCE, Fault.EVICTED} | ({Fault.CRASH_BEFORE} if crash else set())
    report = explore(grouped(cooperative=cooperative, crash=crash))
    assert (report.verdict, report.law, report.reason) == (Verdict.COMPLETE, None, "")
    assert set(report.faults) == kinds


@pytest.mark.parametrize("kind", [Fault.REBALANCE, Fault.EVICTED])
def test_each_fault_of_a_group_is_the_only_way_to_break_a_law(kind: Fault) -> None:
    def still(state: State) -> bool:
        if kind is Fault.REBALANCE:
            return state.read(GROUP).generation == 1
        return all(sum(held(state, member, number) >= 0 for member in MEMBERS) <= 1 for number in numbers(state))

    scenario = attrs.evolve(grouped(budget=1), always={"the law": still})
    others = set(Fault) - {kind} - ({Fault.EVICTED} if kind is Fault.REBALANCE else set())
    assert explore(scenario.choosing(others)).verdict is Verdict.COMPLETE
    assert explore(scenario.choosing([kind])).law == "the law"


def takes_any_commit(effect: Effect[object], world: World, who: str) -> Outcomes:
    """Planted bug: no fence."""
    match effect:
        case Commit(TopicPartition(_, number), _, position):
            yield world.write(committed(number), position), None
        case _:
            yield from BROKER(effect, world, who)


def test_a_broker_without_a_fence_is_found_out() -> None:
    """Law GR3."""
    assert explore(grouped(means=takes_any_commit)).law == "only an owner commits"


def test_metadata_that_is_too_long_is_refused() -> None:
    """The position is refused too, as in Kafka."""
    world = Plain().write(GROUP, Group(1))
    for text, reply in (("x" * 3, None), ("x" * 4, METADATA_REFUSED)):
        ((after, answer),) = broker(3, metadata_max=3)(Commit(P0, 1, 2, text), world, "x")
        assert (answer, after.read(committed(0))) == (reply, 0 if reply else 2)
