"""Ten ways to get a shutdown wrong. Each differs from `tidegate.consumer.shutdown`, or from the partition in it, in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.consumer.commands import Assigned, DrainTimerFired, Release
from tidegate.consumer.commands import Command as PartitionWish
from tidegate.consumer.group import ConsumerRules
from tidegate.consumer.partition import Owned, PartitionRules, Phase
from tidegate.consumer.scenarios.partition_laws import ALL, FINISHED, NEVER_FALLS
from tidegate.consumer.scenarios.shutdown import ANEW, BEGINS, BEHIND, GONE, RELEASED, SAVED, SINKS, shutdown
from tidegate.consumer.shutdown import Leave, ShutdownCommand, ShutdownEvent, ShutdownStep, Stoppable, TimedOut, Worker
from tidegate.consumer.shutdown import ShutdownPhase as Progress
from tidegate.consumer.watermark import OffsetTracker, committable, completed
from tidegate.model._evolving import evolve
from tidegate.model.effects import Cancel
from tidegate.model.instants import Duration
from tidegate.model.reducer import Step
from tidegate.sim.shipping import Specimen

# --- in the partition ---------------------------------------------------------------------------------------------------


@attrs.frozen
class CommitsBeforeDraining(PartitionRules):
    """What is finished when it is asked to stop is committed; then it drains."""

    def _to_commit(self, part: Owned) -> int | None:
        return None if part.phase is Phase.DRAINING else super()._to_commit(part)


@attrs.frozen
class CommitsOnceMore(PartitionRules):
    """The last commit does not wait for the one before: the lower one may land last."""

    def _to_commit(self, part: Owned) -> int | None:
        position = committable(part.tracker)
        if part.phase is not Phase.DRAINING or position is None:
            return super()._to_commit(part)
        return None if position <= (part.committing or 0) else position


@attrs.frozen
class ForgetsToCancel(PartitionRules):
    """When its time is over, nobody waits any more for what runs; it goes on."""

    def _fated(self, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[PartitionWish, ...]]:
        after, asked = super()._fated(part, elapsed)
        return after, tuple(command for command in asked if not isinstance(command, Cancel))


@attrs.frozen
class CountsWhatIsCancelled(PartitionRules):
    """What is cancelled when the time is over has ended, so it is done."""

    def _fated(self, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[PartitionWish, ...]]:
        after, asked = super()._fated(part, elapsed)
        ended = {offset for each in part.asked if each not in after.asked for offset in each.work.offsets}
        ended -= {offset for each in after.asked for offset in each.work.offsets}
        return evolve(after, tracker=completed(after.tracker, sorted(ended))), asked


@attrs.frozen
class BeginsAtTheEnd(PartitionRules):
    """Where nothing was committed, the next owner begins at the end of the log."""

    def _begun(self, event: Assigned) -> Owned:
        begun = super()._begun(event)
        return begun if event.committed else evolve(begun, tracker=OffsetTracker(event.end))


# --- in the order -------------------------------------------------------------------------------------------------------


@attrs.frozen
class LeavesFirst(Stoppable):
    """It leaves the group at once, and lets end what is in work afterwards."""

    def _settled(self, state: Worker, asked: tuple[ShutdownCommand, ...]) -> ShutdownStep:
        if state.phase is not Progress.DRAINING:
            return Step(state, asked)
        return Step(evolve(state, phase=Progress.LEAVING), (*asked, Leave(), self._wait))


@attrs.frozen
class WaitsForAllWork(Stoppable):
    """It waits until all that runs has ended, however long that takes."""

    def step(self, state: Worker, event: ShutdownEvent) -> ShutdownStep:
        return Step(state) if isinstance(event, DrainTimerFired) else super().step(state, event)


@attrs.frozen
class WaitsForTheGroup(Stoppable):
    """It waits until the group has answered to its leaving, however long that takes."""

    def step(self, state: Worker, event: ShutdownEvent) -> ShutdownStep:
        return Step(state) if isinstance(event, TimedOut) else super().step(state, event)


@attrs.frozen
class TakesWhatComes(Stoppable):
    """What the group assigns is taken as long as it is a member."""

    def step(self, state: Worker, event: ShutdownEvent) -> ShutdownStep:
        if isinstance(event, Assigned):
            return self._settled(*self._heard(state, event))
        return super().step(state, event)


@attrs.frozen
class DrainsForItself(Stoppable):
    """A partition that drains because somebody asked it to stop is not released: it leaves soon."""

    def _settled(self, state: Worker, asked: tuple[ShutdownCommand, ...]) -> ShutdownStep:
        done = super()._settled(state, asked)
        if state.phase is Progress.WORKING:
            return done
        return Step(done.state, tuple(command for command in done.commands if not isinstance(command, Release)))


def partly(bug: type[PartitionRules]) -> Stoppable:
    return Stoppable(ConsumerRules(executors=2, each=bug(**attrs.asdict(SINKS, recurse=False))))


def wholly(bug: type[Stoppable]) -> Stoppable:
    return bug(ConsumerRules(executors=2, each=SINKS))


def planted(
    name: str,
    bug: type[PartitionRules | Stoppable],
    law: str,
    source: str,
    *,
    records: int = 2,
    rebalances: int = 0,
    budget: int = 0,
    signals: int = 1,
    alone: bool = False,
) -> Specimen:
    """The scenario with the bug in its place."""
    made = wholly(bug) if issubclass(bug, Stoppable) else partly(bug)
    make = partial(
        shutdown,
        made,
        summary=(bug.__doc__ or "").partition("\n")[0],
        records=records,
        rebalances=rebalances,
        budget=budget,
        signals=signals,
    )
    of = "shutdown.rebalance" if rebalances else "shutdown"
    return Specimen(f"shutdown.{name}", make, law, source, of, alone)


SPECIMENS: Final = (
    planted(
        "commits_before_draining",
        CommitsBeforeDraining,
        SAVED,
        "Drakkar 0.11.1 commits on a shutdown only if all was drained in time; what had ended before is done again.",
    ),
    planted(
        "commits_once_more",
        CommitsOnceMore,
        NEVER_FALLS,
        "Kafka: the last commit of a consumer that closes may overtake one that was sent without waiting.",
    ),
    planted(
        "forgets_to_cancel",
        ForgetsToCancel,
        BEHIND,
        "Drakkar 0.11.1 cancels the loop of a partition, and what it had begun ends after the sinks were closed.",
    ),
    planted(
        "counts_what_is_cancelled",
        CountsWhatIsCancelled,
        FINISHED,
        "Drakkar 0.11.1: what ends when its sinks are closed is delivered to nobody, counted and committed.",
    ),
    planted(
        "begins_at_the_end",
        BeginsAtTheEnd,
        ANEW,
        "Kafka: with auto.offset.reset=latest, what was not committed before the first owner left is never seen.",
    ),
    planted(
        "leaves_first",
        LeavesFirst,
        BEHIND,
        "Planted: the next owner begins at once, beside the work that is still in flight.",
    ),
    planted(
        "waits_for_all_work",
        WaitsForAllWork,
        ALL,
        "zio-kafka waited for commits that could not come: whoever waits without an end is killed, and the rest with it.",
        budget=1,
        alone=True,
    ),
    planted(
        "waits_for_the_group",
        WaitsForTheGroup,
        GONE,
        "Planted: so does whoever awaits the client's own stop, with a broker that does not answer.",
        records=1,
        budget=1,
    ),
    planted(
        "takes_what_comes",
        TakesWhatComes,
        BEGINS,
        "Planted: a client deals partitions to its members as long as they are members, whatever these are about to do.",
        records=1,
        rebalances=2,
        alone=True,
    ),
    planted(
        "drains_for_itself",
        DrainsForItself,
        RELEASED,
        "Planted: a revocation that comes while a worker drains waits for a release that the shutdown has used up.",
        records=1,
        rebalances=1,
    ),
)
