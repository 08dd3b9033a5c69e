"""Twelve ways to get a shutdown wrong. Each differs from `tidegate.consumer.worker`, or from the partition in it, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs

from tidegate.consumer.commands import Assigned, Command, DrainTimerFired, Release
from tidegate.consumer.commits import Commits
from tidegate.consumer.consumer import ConsumerRules
from tidegate.consumer.partition import PARTS, Owned, PartitionParts, PartitionRules, Phase
from tidegate.consumer.scenarios.partition_states import ALL, FINISHED, NEVER_FALLS
from tidegate.consumer.scenarios.shutdown import (
    ANEW,
    BEGINS,
    BEHIND,
    FENCED,
    GONE,
    RELEASED,
    SAVED,
    SINKS,
    ShutdownStepping,
    shutdown,
)
from tidegate.consumer.watermark import OffsetTracker, committable, completed
from tidegate.consumer.worker import (
    Leave,
    LeaveTimerFired,
    NameTaken,
    ShutdownEvent,
    ShutdownPhase,
    ShutdownStep,
    StartLeaveTimer,
    StopRequested,
    WorkerRules,
    WorkerState,
    merged,
)
from tidegate.model.effects import Cancel
from tidegate.model.instants import Duration
from tidegate.model.reducer import Step
from tidegate.sim.reducers import Merge
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

# --- in the partition ---------------------------------------------------------------------------------------------------


def commits_before_draining(
    rules: PartitionRules, phase: Phase, tracker: OffsetTracker, commits: Commits
) -> int | None:
    """What is finished when it is asked to stop is committed; then it drains."""
    return None if phase is Phase.DRAINING else PARTS.position_to_commit(rules, phase, tracker, commits)


def commits_once_more(rules: PartitionRules, phase: Phase, tracker: OffsetTracker, commits: Commits) -> int | None:
    """The last commit does not wait for the one before: the lower one may land last."""
    position = committable(tracker)
    if phase is not Phase.DRAINING or position is None:
        return PARTS.position_to_commit(rules, phase, tracker, commits)
    return None if position <= (commits.committing or 0) else position


def forgets_to_cancel(rules: PartitionRules, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[Command, ...]]:
    """When its time is over, nobody waits any more for what runs; it goes on."""
    after, commands = PARTS.fated(rules, part, elapsed)
    return after, tuple(command for command in commands if not isinstance(command, Cancel))


def counts_what_is_cancelled(
    rules: PartitionRules, part: Owned, elapsed: Duration
) -> tuple[Owned, tuple[Command, ...]]:
    """What is cancelled when the time is over has ended, so it is done."""
    after, commands = PARTS.fated(rules, part, elapsed)
    ended = {offset for each in part.asked if each not in after.asked for offset in each.work.offsets}
    ended -= {offset for each in after.asked for offset in each.work.offsets}
    return attrs.evolve(after, tracker=completed(after.tracker, sorted(ended))), commands


def begins_at_the_end(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """Where nothing was committed, the next owner begins at the end of the log."""
    if isinstance(event, Assigned) and not event.committed:
        event = attrs.evolve(event, committed=event.end)
    return rules.step(state, event)


# --- in the order -------------------------------------------------------------------------------------------------------


def leaves_first(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """It leaves the group at once, and lets end what is in work afterwards."""
    done = rules.step(state, event)
    if done.state.phase is not ShutdownPhase.DRAINING:
        return done
    leaving = attrs.evolve(done.state, phase=ShutdownPhase.LEAVING)
    return Step(leaving, (*done.commands, Leave(), StartLeaveTimer(rules.leave)))


def waits_for_all_work(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """It waits until all that runs has ended, however long that takes."""
    return Step(state) if isinstance(event, DrainTimerFired) else rules.step(state, event)


def waits_for_the_group(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """It waits until the group has answered to its leaving, however long that takes."""
    return Step(state) if isinstance(event, LeaveTimerFired) else rules.step(state, event)


def takes_what_comes(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """What the group assigns is taken as long as it is a member."""
    if not isinstance(event, Assigned):
        return rules.step(state, event)
    done = rules.step(attrs.evolve(state, phase=ShutdownPhase.WORKING), event)
    return Step(attrs.evolve(done.state, phase=state.phase), done.commands)


def drains_for_itself(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """A partition that drains because somebody asked it to stop is not released: it leaves soon."""
    done = rules.step(state, event)
    if done.state.phase is ShutdownPhase.WORKING:
        return done
    return Step(done.state, tuple(command for command in done.commands if not isinstance(command, Release)))


def drains_as_if_asked(rules: WorkerRules, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
    """Whose name was taken ends as if somebody had asked it to: it goes on with what is another's, and commits it."""
    return rules.step(state, StopRequested() if isinstance(event, NameTaken) else event)


def tells_the_first_of_a_turn(events: Sequence[ShutdownEvent]) -> list[ShutdownEvent]:
    """Of the events that come in one turn only the first is told."""
    return merged(events[:1])


def planted(
    name: str,
    bug: object,
    law: str,
    source: str,
    *,
    parts: PartitionParts = PARTS,
    step: ShutdownStepping = WorkerRules.step,
    records: int = 2,
    rebalances: int = 0,
    budget: int = 0,
    signals: int = 1,
    alone: bool = False,
    merge: Merge | None = None,
    namesake: bool = False,
) -> Specimen:
    """The scenario with the bug in its place."""
    make = partial(
        shutdown,
        WorkerRules(ConsumerRules(executors=2, partition=attrs.evolve(SINKS, parts=parts))),
        step=step,
        summary=(bug.__doc__ or "").partition("\n")[0],
        records=records,
        rebalances=rebalances,
        budget=budget,
        signals=signals,
        merge=merge,
        namesake=namesake,
    )
    has = {".namesake": namesake, ".turns": merge, ".rebalance": rebalances}
    of = next((which for which, is_there in has.items() if is_there), "")
    return Specimen(f"shutdown.{name}", make, law, source, f"shutdown{of}", alone)


SPECIMENS: Final = (
    planted(
        "commits_before_draining",
        commits_before_draining,
        SAVED,
        "Drakkar 0.11.1 commits on a shutdown only if all was drained in time; what had ended before is done again.",
        parts=attrs.evolve(PARTS, position_to_commit=commits_before_draining),
    ),
    planted(
        "commits_once_more",
        commits_once_more,
        NEVER_FALLS,
        "Kafka: the last commit of a consumer that closes may overtake one that was sent without waiting.",
        parts=attrs.evolve(PARTS, position_to_commit=commits_once_more),
    ),
    planted(
        "forgets_to_cancel",
        forgets_to_cancel,
        BEHIND,
        "Drakkar 0.11.1 cancels the loop of a partition, and what it had begun ends after the sinks were closed.",
        parts=attrs.evolve(PARTS, fated=forgets_to_cancel),
    ),
    planted(
        "counts_what_is_cancelled",
        counts_what_is_cancelled,
        FINISHED,
        "Drakkar 0.11.1: what ends when its sinks are closed is delivered to nobody, counted and committed.",
        parts=attrs.evolve(PARTS, fated=counts_what_is_cancelled),
    ),
    planted(
        "begins_at_the_end",
        begins_at_the_end,
        ANEW,
        "Kafka: with auto.offset.reset=latest, what was not committed before the first owner left is never seen.",
        step=begins_at_the_end,
    ),
    planted(
        "leaves_first",
        leaves_first,
        BEHIND,
        "Planted: the next owner begins at once, beside the work that is still in flight.",
        step=leaves_first,
    ),
    planted(
        "waits_for_all_work",
        waits_for_all_work,
        ALL,
        "zio-kafka waited for commits that could not come: whoever waits without an end is killed, and the rest with it.",
        step=waits_for_all_work,
        budget=1,
        alone=True,
    ),
    planted(
        "waits_for_the_group",
        waits_for_the_group,
        GONE,
        "Planted: so does whoever awaits the client's own stop, with a broker that does not answer.",
        step=waits_for_the_group,
        records=1,
        budget=1,
    ),
    planted(
        "takes_what_comes",
        takes_what_comes,
        BEGINS,
        "Planted: a client deals partitions to its members as long as they are members, whatever these are about to do.",
        step=takes_what_comes,
        records=1,
        rebalances=2,
        alone=True,
    ),
    planted(
        "drains_for_itself",
        drains_for_itself,
        RELEASED,
        "Planted: a revocation that comes while a worker drains waits for a release that the shutdown has used up.",
        step=drains_for_itself,
        records=1,
        rebalances=1,
    ),
    planted(
        "tells_the_first_of_a_turn",
        tells_the_first_of_a_turn,
        GONE,
        "Planted: whoever gathers events for a turn keeps one place for them.",
        merge=tells_the_first_of_a_turn,
    ),
    planted(
        "drains_as_if_asked",
        drains_as_if_asked,
        FENCED,
        "Planted: a client that takes FENCED_INSTANCE_ID for a lost session works on beside the one that has its partitions.",
        step=drains_as_if_asked,
        records=1,
        signals=0,
        namesake=True,
    ),
)
