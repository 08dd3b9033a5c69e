"""Twelve ways to get a shutdown wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.consumer.checks.scenarios.partition_states import ALL, FINISHED, NEVER_FALLS
from tidegate.consumer.checks.scenarios.shutdown import (
    ANEW,
    BEGINS,
    BEHIND,
    FENCED,
    GONE,
    RELEASED,
    SAVED,
    shutdown,
    working,
)
from tidegate.consumer.checks.specimens.partition import faulty
from tidegate.consumer.offsets.watermark import committable, completed
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.consumer.worker.worker import WorkerRules, merged
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.reducers import Merge
from tidegate.sim.trace.variants import variant


def in_partition(*replacements: tuple[str, str], **names: object) -> WorkerRules:
    """The rules of a worker with a bug in its partitions."""
    partition = faulty(*replacements, **names)
    consumer = variant(ConsumerRules, PartitionRules=partition)
    return working(variant(WorkerRules, ConsumerRules=consumer), consumer, partition)


def in_worker(*replacements: tuple[str, str]) -> WorkerRules:
    """The rules of a worker with a bug in itself."""
    return working(variant(WorkerRules, *replacements))


ASKED: Final = partial(shutdown, rebalances=0, budget=0, signals=1)
"""It is asked to stop, once, and nothing else goes wrong."""


def merging(merge: Merge, *, summary: str) -> Scenario:
    """Where events of a turn are merged like this."""
    return ASKED(merge=merge, summary=summary)


POSITION: Final = "            if position is not None:\n"
LAST: Final = f"""            last = committable(tracker)
            if phase is Phase.DRAINING and last is not None:
                position = None if last <= (commits.committing or 0) else last
{POSITION}"""
ENDS: Final = "        return part, (*interrupts,"
COUNTS: Final = f"""        ended = sorted({{offset for each in abandoned for offset in each.work.offsets}})
        part = attrs.evolve(part, tracker=completed(part.tracker, ended))
{ENDS}"""
FOLLOWED: Final = "            case _:\n                return self._followed(state, (event,))\n"
AT_THE_END: Final = f"""            case Assigned(committed=0, end=end):
                return self._followed(state, (attrs.evolve(event, committed=end),))
{FOLLOWED}"""
WAITS: Final = """or state.consumer.partitions:
            return Step(state, asked)
"""
LEAVES: Final = """:
            return Step(state, asked)
        if state.consumer.partitions:
            return Step(attrs.evolve(state, phase=ShutdownPhase.LEAVING), (*asked, Leave(), self._wait))
"""
TAKEN: Final = "            case NameTaken() if"
STOPPED: Final = f"""            case NameTaken():
                return self._asked(state, ())
{TAKEN}"""
SETTLED: Final = '        """Leave when nothing is owned any more."""\n'
UNRELEASED: Final = """        if state.phase is not ShutdownPhase.WORKING:
            asked = tuple(each for each in asked if not isinstance(each, commands.Release))
"""

SPECIMENS: Final = (
    specimen(
        "shutdown.commits_before_draining", SAVED,
        "What is finished when it is asked to stop is committed; then it drains.",
        "Drakkar 0.11.1 commits on a shutdown only if all was drained in time; what had ended before is done again.",
        partial(in_partition, ("if not commits.backs_off:", "if not commits.backs_off and phase is not Phase.DRAINING:")),
        make=ASKED, of="shutdown"),
    specimen(
        "shutdown.commits_once_more", NEVER_FALLS,
        "The last commit does not wait for the one before: the lower one may land last.",
        "Kafka: the last commit of a consumer that closes may overtake one that was sent without waiting.",
        partial(in_partition, (POSITION, LAST), committable=committable),
        make=ASKED, of="shutdown"),
    specimen(
        "shutdown.forgets_to_cancel", BEHIND,
        "When its time is over, nobody waits any more for what runs; it goes on.",
        "Drakkar 0.11.1 cancels the loop of a partition, and what it had begun ends after the sinks were closed.",
        partial(in_partition, ("(*interrupts, *cancels)", "(*interrupts,)")),
        make=ASKED, of="shutdown"),
    specimen(
        "shutdown.counts_what_is_cancelled", FINISHED,
        "What is cancelled when the time is over has ended, so it is done.",
        "Drakkar 0.11.1: what ends when its sinks are closed is delivered to nobody, counted and committed.",
        partial(in_partition, (ENDS, COUNTS), completed=completed),
        make=ASKED, of="shutdown"),
    specimen(
        "shutdown.begins_at_the_end", ANEW,
        "Where nothing was committed, the next owner begins at the end of the log.",
        "Kafka: with auto.offset.reset=latest, what was not committed before the first owner left is never seen.",
        partial(in_worker, (FOLLOWED, AT_THE_END)),
        make=ASKED, of="shutdown"),
    specimen(
        "shutdown.leaves_first", BEHIND,
        "It leaves the group at once, and lets end what is in work afterwards.",
        "Planted: the next owner begins at once, beside the work that is still in flight.",
        partial(in_worker, (WAITS, LEAVES)),
        make=ASKED, of="shutdown"),
    specimen(
        "shutdown.waits_for_all_work", ALL,
        "It waits until all that runs has ended, however long that takes.",
        "zio-kafka waited for commits that could not come: whoever waits without an end is killed, and the rest with it.",
        partial(in_partition, ("if part.phase is Phase.DRAINING and during is part.revocation.stage:", "if False:")),
        make=partial(ASKED, budget=1), of="shutdown", alone=True),
    specimen(
        "shutdown.waits_for_the_group", GONE,
        "It waits until the group has answered to its leaving, however long that takes.",
        "Planted: so does whoever awaits the client's own stop, with a broker that does not answer.",
        partial(in_worker, ("case LeaveTimerFired() if state.phase is ShutdownPhase.LEAVING:", "case LeaveTimerFired() if False:")),
        make=partial(ASKED, records=1, budget=1), of="shutdown"),
    specimen(
        "shutdown.takes_what_comes", BEGINS,
        "What the group assigns is taken as long as it is a member.",
        "Planted: a client deals partitions to its members as long as they are members, whatever these are about to do.",
        partial(in_worker, ("if state.phase is not ShutdownPhase.WORKING:", "if False:")),
        make=partial(ASKED, records=1, rebalances=2), of="shutdown.rebalance", alone=True),
    specimen(
        "shutdown.drains_for_itself", RELEASED,
        "A partition that drains because somebody asked it to stop is not released: it leaves soon.",
        "Planted: a revocation that comes while a worker drains waits for a release that the shutdown has used up.",
        partial(in_worker, (SETTLED, UNRELEASED)),
        make=partial(ASKED, records=1, rebalances=1), of="shutdown.rebalance"),
    specimen(
        "shutdown.tells_the_first_of_a_turn", GONE,
        "Of the events that come in one turn only the first is told.",
        "Planted: whoever gathers events for a turn keeps one place for them.",
        partial(variant, merged, ("    for event in events:\n        match event:", "    for event in events[:1]:\n        match event:")),
        make=merging, of="shutdown.turns"),
    specimen(
        "shutdown.drains_as_if_asked", FENCED,
        "Whose name was taken ends as if somebody had asked it to: it goes on with what is another's, and commits it.",
        "Planted: a client that takes FENCED_INSTANCE_ID for a lost session works on beside the one that has its partitions.",
        partial(in_worker, (TAKEN, STOPPED)),
        make=partial(ASKED, records=1, signals=0, namesake=True), of="shutdown.namesake"),
)  # fmt: skip
