"""Whole consumers in a group, with executors and a gate: what they do besides what their partitions do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, final

import attrs

from tidegate.consumer.backpressure import Thresholds
from tidegate.consumer.commands import Fetch
from tidegate.consumer.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.kept import Kept, is_kept
from tidegate.consumer.partition import Owned, PartitionRules, PartitionState
from tidegate.consumer.scenarios import partition_states as states
from tidegate.consumer.scenarios.partition import LOST_REPLIES, consumed, in_scopes, reducer
from tidegate.consumer.watermark import done_offsets
from tidegate.model.effects import Effect
from tidegate.sim.group import Recreation, broker
from tidegate.sim.log import Entries, Pause, Resume, made_anew, paused, perform_on_log
from tidegate.sim.reducers import Machine
from tidegate.sim.scenario import ActorStep, Label, Scenario, State
from tidegate.sim.world import Meaning, Outcomes, World, place

__all__ = ["SCENARIOS", "Client", "group"]


def group(
    made: type[ConsumerRules] = ConsumerRules,
    *,
    summary: str = "two whole consumers with executors and a gate: the same, and the load is bounded",
    records: int = 2,
    rebalances: int = 1,
    budget: int = 1,
    pauses: bool = False,
    evicts: bool = False,
    recreates: bool = False,
) -> Scenario:
    """Two consumers of two partitions, a reducer each, with two executors and a gate.

    Args:
        made: The reducer, which plans what to poll, too; or a faulty variant of it.
        summary: One line for people.
        records: How many records a partition has.
        rebalances: How often the group may rebalance.
        budget: How many faults may strike: crashes, and lost replies of commits.
        pauses: Whether a client of each pauses and resumes partitions, as the plan for a poll says, before it polls; then
            records come one by one.
        evicts: Whether a member may be put out while it goes on working, and come back; then others work on the same records.
        recreates: Whether the log of a partition may be made anew while nobody has it.
    """
    given_up = records if evicts else 0  # what a member is at when it is put out never ends here
    consumer = made(
        executors=1 + given_up,
        thresholds=Thresholds(high=2 + given_up, low=1 + given_up),
        partition=PartitionRules(metadata_max=0),
    )
    plan = consumer.polling
    entries: Entries = (None,) * records if pauses else ()
    means = _polled_as_planned(plan, broker(None, most=1)) if pauses else _gated(plan, broker(records, knows=evicts))
    whole = {name: (reducer(name, ConsumerState(), consumer.step, means, LOST_REPLIES),) for name in states.CONSUMERS}
    scenario = consumed(
        "group",
        summary,
        whole,
        lambda name, _: name,
        records=records,
        rebalances=rebalances,
        budget=budget,
        entries=entries,
        evicts=evicts,
    )
    return attrs.evolve(
        scenario,
        actors=(
            *scenario.actors,
            *((Client(plan, name) for name in states.CONSUMERS) if pauses else ()),
            *((Recreation(states.NUMBERS[:1]),) if recreates else ()),
        ),
        always={
            **scenario.always,
            **({} if evicts else {states.OWNER: tuple(map(states.is_handled_by_owner, states.CONSUMERS))}),
            states.BOUNDED: tuple(states.is_bounded(name, consumer.executors) for name in states.CONSUMERS),
            states.LOAD: tuple(states.is_loaded_less(name, consumer, records) for name in states.CONSUMERS),
        },
        sometimes={
            **(scenario.sometimes if rebalances else {}),
            **(
                {}
                if evicts
                else {"the gate closes": lambda state: any(states.is_closed(state, name) for name in states.CONSUMERS)}
            ),
            **(states.pauses_and_resumes(plan) if pauses else {}),
            **({"a record counts as done that was done before its partition was lost": counts_again} if evicts else {}),
            **({"a log is made anew of which something is kept": keeps_of_another} if recreates else {}),
        },
    )


def _with_kept(state: State) -> Iterator[tuple[Kept, PartitionState]]:
    """What consumers keep, and how the partition is."""
    for machine in map(state.status, states.CONSUMERS):
        if isinstance(machine, Machine) and isinstance(machine.state, ConsumerState):
            yield from ((each, machine.state[each.partition]) for each in machine.state.kept)


def counts_again(state: State) -> bool:
    return any(
        isinstance(part, Owned) and any(is_kept(kept, each) for each in done_offsets(part.tracker))
        for kept, part in _with_kept(state)
    )


def keeps_of_another(state: State) -> bool:
    return any(state.read(made_anew(kept.partition.partition)) for kept, _ in _with_kept(state))


def _gated(polling: states.Polling, means: Meaning) -> Meaning:
    """Records come only for partitions that the consumer polls."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if (
            isinstance(effect, Fetch)
            and effect.partition not in states.planned(polling, world.read(place(who)), ()).poll
        ):
            return
        yield from means(effect, world, who)

    return meaning


def _polled_as_planned(polling: states.Polling, means: Meaning) -> Meaning:
    """Records come when all is paused and resumed that is to be, of partitions that are not paused."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Fetch):
            now = states.planned(polling, world.read(place(who)), world.read(paused(who)))
            if now.pause or now.resume or effect.partition not in now.poll:
                return
        yield from means(effect, world, who)

    return meaning


@final
@attrs.frozen(eq=False)
class Client:
    """What polls for a consumer: it pauses and resumes partitions first, one after the other.

    Attributes:
        polling: How the plan is made.
        of: For whom it polls.
    """

    polling: states.Polling
    of: str
    name: str = attrs.field(init=False)
    place: None = attrs.field(init=False, default=None)
    blind: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.of}'s client")

    def steps(self, world: World) -> Iterator[ActorStep]:
        now = states.planned(self.polling, world.read(place(self.of)), world.read(paused(self.of)))
        asked: tuple[Pause | Resume, ...] = (
            *(Pause(each) for each in now.pause),
            *(Resume(each) for each in now.resume),
        )
        for effect in asked[:1]:
            for after, _ in perform_on_log(effect, world, self.of):
                yield ActorStep(Label(effect), after)


SCENARIOS: Final = (
    in_scopes("group", group, ((2, 1, 0), (2, 1, 1), (4, 3, 3))),
    in_scopes(
        "group.pauses",
        partial(group, pauses=True),
        ((3, 0, 0), (3, 0, 1), (4, 2, 2)),
        summary="the same where a client pauses what the gate holds, and resumes it: all records come in the end",
    ),
    in_scopes(
        "group.evicted",
        partial(group, evicts=True),
        ((1, 1, 1), (2, 1, 1), (3, 2, 2)),
        summary="a member is put out while it works, and is back: what it has done is committed, and not done again",
    ),
    in_scopes(
        "group.recreated",
        partial(group, evicts=True, recreates=True),
        ((1, 0, 1), (2, 1, 1), (3, 2, 2)),
        summary="the same, and a topic is made anew meanwhile: what was done of its records counts for nothing",
    ),
)
