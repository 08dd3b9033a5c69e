"""Eleven ways to get exactly once wrong, three of them in Kafka."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.consumer.checks.scenarios.transactions import (
    ALL,
    EARLY,
    EPOCH,
    FENCE,
    HANDLED,
    NEVER_FALLS,
    ONCE,
    OPEN,
    RIGHT,
    TOGETHER,
    kafka,
    transactions,
)
from tidegate.consumer.checks.specimens.partition import COMMITS_THE_HIGHEST
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.worker import transactions as programs
from tidegate.consumer.worker.transactions import BeginTransaction, CommitTransaction, Fence
from tidegate.model.effects import Effect
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.world import Meaning, Outcomes, World

# --- Kafka --------------------------------------------------------------------------------------------------------------


def fences_nobody(records: int) -> Meaning:
    """Each member produces under an id of its own, so that nobody is fenced."""
    right = kafka(records)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Fence):
            yield world, world.read(EPOCH)
        else:
            yield from right(effect, world, who)

    return meaning


def takes_from_anybody(records: int) -> Meaning:
    """The broker does not look at epochs."""
    right = kafka(records)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, BeginTransaction) and effect.epoch < world.read(EPOCH):
            for after, reply in right(attrs.evolve(effect, epoch=world.read(EPOCH)), world, who):
                begun = after.read(OPEN)
                assert begun is not None
                yield after.write(OPEN, attrs.evolve(begun, epoch=effect.epoch)), reply
        else:
            yield from right(effect, world, who)

    return meaning


def aborts_by_beginning(records: int) -> Meaning:
    """What is open under the same epoch is aborted by what begins next."""
    right = kafka(records)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        now = world.read(OPEN)
        if isinstance(effect, BeginTransaction) and now is not None and not now.is_committing:
            world = world.write(OPEN, None)
        yield from right(effect, world, who)

    return meaning


# --- programs ---------------------------------------------------------------------------------------------------------

IN_TURN: Final = attrs.evolve(RIGHT, running_max=1)
"""One record after the other."""


def in_partition(made: type[PartitionRules], *, summary: str) -> Scenario:
    """The scenario without metadata, with a bug in the partition."""
    return transactions(rules=made(**attrs.asdict(EARLY, recurse=False)), summary=summary, budget=0)


def is_decision(effect: Effect[object]) -> bool:
    return isinstance(effect, CommitTransaction)


TAKES: Final = """    epoch = await Fence(partition)
    position, metadata = await ReadPosition(partition)
"""
READS_FIRST: Final = """    position, metadata = await ReadPosition(partition)
    epoch = await Fence(partition)
"""
RESOLVES: Final = (
    "await take_over(commit.partition)",
    "Tenure(await Fence(commit.partition), *await ReadPosition(commit.partition))",
)
"""A member that resolves a transaction still fences first: the bug is in how a life begins."""
SENDS: Final = "        await SendPosition(partition, epoch,"
ALONE: Final = f"""        if answers:
            await CommitTransaction(partition, epoch)
            await BeginTransaction(partition, epoch)
{SENDS}"""
ABORTS: Final = f"""    except Failure as failure:
        return Together(FENCED if failure == FENCED else NotApplied("aborted"), tenure)
    try:
{SENDS}"""
FAILED: Final = "        why = failure.reason\n"
RESOLVED: Final = "        return await resolved(commit, tenure, failure.reason)\n"
AGAIN: Final = '        return Together(NotApplied("tried again"), tenure)\n'
BLINDLY: Final = """        try:
            return Together(NotApplied("tried again"), attrs.evolve(tenure, epoch=await Fence(partition)))
        except Failure:
            return Together(FENCED, tenure)
"""

SPECIMENS: Final = (
    specimen(
        "transactions.fences_nobody", ONCE,
        "Each member produces under an id of its own, so that nobody is fenced.",
        "Kafka before KIP-447: with random transactional ids a member that is put out and goes on is fenced by nobody.",
        lambda: programs,
        make=partial(transactions, means=fences_nobody, records=1), of="transactions", alone=True),
    specimen(
        "transactions.takes_from_anybody", FENCE,
        "The broker does not look at epochs.",
        "Planted: without epochs (KIP-98) a fence would be a wish.",
        lambda: programs,
        make=partial(transactions, means=takes_from_anybody, records=1), of="transactions", alone=True),
    specimen(
        "transactions.reads_before_it_fences", ONCE,
        "The position is read first, while its former owner may still commit another one.",
        "aiokafka's own example of a transactional consumer: the position is read as the partition is assigned (OffsetFetch"
        " below v7), whatever is being committed.",
        partial(variant, programs, (TAKES, READS_FIRST), RESOLVES),
        make=partial(transactions, records=1), of="transactions"),
    specimen(
        "transactions.commits_the_position_alone", TOGETHER,
        "The position is committed in a transaction of its own, behind that of the answers.",
        "Planted: so does whoever sends answers in transactions, and commits by the consumer.",
        partial(variant, programs, (SENDS, ALONE)),
        make=partial(transactions, records=1, budget=0), of="transactions"),
    specimen(
        "transactions.goes_on", ONCE,
        "What has failed, or may have, is tried again by the same producer.",
        "Planted: a commit without an answer that is sent again with the same answers has them twice.",
        partial(variant, programs, (FAILED, AGAIN)),
        make=partial(transactions, means=aborts_by_beginning, records=1), of="transactions"),
    specimen(
        "transactions.aborts_and_goes_on", ONCE,
        "Where the answers could not be sent, the transaction is aborted, and the next one is begun by the same producer.",
        "KIP-890: what was sent late under an epoch that goes on is taken for a part of the next transaction.",
        partial(variant, programs, (SENDS, ABORTS), (FAILED, RESOLVED)),
        make=partial(transactions, means=aborts_by_beginning, records=1), of="transactions"),
    specimen(
        "transactions.settles_blindly", NEVER_FALLS,
        "Who has fenced itself goes on without a look at what is committed.",
        "Planted: a producer that is made anew after an error fences its successor, and commits what it believed before.",
        partial(variant, programs, (FAILED, BLINDLY)),
        make=partial(
            transactions, rules=IN_TURN, kinds={Fault.UNSENT: is_decision}, budget=2,
            budgets={Fault.EVICTED: 1, Fault.UNSENT: 1, Fault.CRASH_BEFORE: 0},
        ),
        of="transactions", alone=True),
    specimen(
        "transactions.due_below_the_position", TOGETHER,
        "What the metadata covers is committed without its answers.",
        "Planted: what is done out of order is known to be done, and its answers are still to be sent when the worker dies.",
        partial(variant, programs, ("if beyond and commit.metadata:", "if False:")),
        make=partial(transactions, budget=0), of="transactions"),
    specimen(
        "transactions.all_that_wait", TOGETHER,
        "All answers go into the next transaction, whether or not it covers their records.",
        "Planted: a producer that flushes with each commit sends answers of records that will be handled again.",
        partial(variant, programs, ("return tuple(found)", "return tuple(offsets)")),
        make=partial(transactions, rules=attrs.evolve(EARLY, running_max=3), records=3, budget=0),
        of="transactions.no_metadata"),
    specimen(
        "transactions.commits_the_highest", HANDLED,
        "The highest finished offset is committed, whatever is unfinished before it.",
        "Planted: a transaction makes a wrong position no better.",
        COMMITS_THE_HIGHEST, make=in_partition, of="transactions.no_metadata", alone=True),
    specimen(
        "transactions.gives_up", ALL,
        "Who is fenced gives up, though the partition is its own.",
        "Planted: a fence that was under way for long, from a member that is gone, fences whoever owns the partition by now.",
        lambda: programs,
        make=partial(transactions, takes_over_again=False, records=1), of="transactions"),
)  # fmt: skip
