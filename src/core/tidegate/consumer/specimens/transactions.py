"""Eleven ways to get exactly once wrong. Each differs from `tidegate.consumer.transactions`, or from Kafka, in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.consumer.commands import Commit
from tidegate.consumer.partition import PARTS
from tidegate.consumer.scenarios.transactions import (
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
from tidegate.consumer.specimens.partition import commits_the_highest
from tidegate.consumer.transactions import (
    FENCED,
    BeginTransaction,
    CommitTransaction,
    Fence,
    ReadPosition,
    SendAnswers,
    SendPosition,
    Tenure,
    Together,
    commit_together,
    resolved,
)
from tidegate.model.effects import Effect, Failure, NotApplied
from tidegate.model.records import TopicPartition
from tidegate.sim.faults import Fault
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen
from tidegate.sim.world import Meaning, Outcomes, World

__all__ = ["SPECIMENS"]

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


# --- programs -----------------------------------------------------------------------------------------------------------


async def reads_before_it_fences(partition: TopicPartition) -> Tenure:
    """The position is read first, while its former owner may still commit another one."""
    position, metadata = await ReadPosition(partition)
    return Tenure(await Fence(partition), position, metadata)


async def commits_the_position_alone(commit: Commit, answers: tuple[int, ...], tenure: Tenure) -> Together:
    """The position is committed in a transaction of its own, behind that of the answers."""
    partition, epoch = commit.partition, tenure.epoch
    if answers:
        await BeginTransaction(partition, epoch)
        await SendAnswers(partition, epoch, answers)
        await CommitTransaction(partition, epoch)
    return await commit_together(commit, (), tenure)


async def goes_on(commit: Commit, answers: tuple[int, ...], tenure: Tenure) -> Together:
    """What has failed, or may have, is tried again by the same producer."""
    partition, epoch = commit.partition, tenure.epoch
    try:
        await BeginTransaction(partition, epoch)
        if answers:
            await SendAnswers(partition, epoch, answers)
        await SendPosition(partition, epoch, commit.position, commit.metadata)
        await CommitTransaction(partition, epoch)
    except Failure as failure:
        return Together(FENCED if failure == FENCED else NotApplied("tried again"), tenure)
    return Together(None, Tenure(epoch, commit.position, commit.metadata))


async def aborts_and_goes_on(commit: Commit, answers: tuple[int, ...], tenure: Tenure) -> Together:
    """Where the answers could not be sent, the transaction is aborted, and the next one is begun by the same producer."""
    partition, epoch = commit.partition, tenure.epoch
    try:
        await BeginTransaction(partition, epoch)
        if answers:
            await SendAnswers(partition, epoch, answers)
    except Failure as failure:
        return Together(FENCED if failure == FENCED else NotApplied("aborted"), tenure)
    try:
        await SendPosition(partition, epoch, commit.position, commit.metadata)
        await CommitTransaction(partition, epoch)
    except Failure as failure:
        return Together(FENCED, tenure) if failure == FENCED else await resolved(commit, tenure, failure.reason)
    return Together(None, Tenure(epoch, commit.position, commit.metadata))


async def settles_blindly(commit: Commit, answers: tuple[int, ...], tenure: Tenure) -> Together:
    """Who has fenced itself goes on without a look at what is committed."""
    tried = await goes_on(commit, answers, tenure)
    if tried.reply is None or tried.reply == FENCED:
        return tried
    try:
        return Together(tried.reply, attrs.evolve(tenure, epoch=await Fence(commit.partition)))
    except Failure:
        return Together(FENCED, tenure)


# --- decisions ----------------------------------------------------------------------------------------------------------


def due_below_the_position(commit: Commit, answered: tuple[int, ...]) -> tuple[int, ...]:
    """What the metadata covers is committed without its answers."""
    return tuple(offset for offset in answered if offset < commit.position)


def all_that_wait(_: Commit, answered: tuple[int, ...]) -> tuple[int, ...]:
    """All answers go into the next transaction, whether or not it covers their records."""
    return answered


IN_TURN: Final = attrs.evolve(RIGHT, running_max=1)
"""One record after the other."""


def is_decision(effect: Effect[object]) -> bool:
    return isinstance(effect, CommitTransaction)


def planted(
    name: str,
    bug: object,
    make: partial[Scenario],
    law: str,
    source: str,
    *,
    of: str = "transactions",
    alone: bool = False,
) -> Specimen:
    """The scenario with the bug in its place, of which its docstring is the summary, unless it has one."""
    made = make if bug is None else partial(make, summary=(bug.__doc__ or "").partition("\n")[0])
    return Specimen(f"transactions.{name}", made, law, source, of, alone)


SPECIMENS: Final = (
    planted(
        "fences_nobody",
        fences_nobody,
        partial(transactions, means=fences_nobody, records=1),
        ONCE,
        "Kafka before KIP-447: with random transactional ids a member that is put out and goes on is fenced by nobody.",
        alone=True,
    ),
    planted(
        "takes_from_anybody",
        takes_from_anybody,
        partial(transactions, means=takes_from_anybody, records=1),
        FENCE,
        "Planted: without epochs (KIP-98) a fence would be a wish.",
        alone=True,
    ),
    planted(
        "reads_before_it_fences",
        reads_before_it_fences,
        partial(transactions, takes=reads_before_it_fences, records=1),
        ONCE,
        "aiokafka's own example of a transactional consumer: the position is read as the partition is assigned (OffsetFetch"
        " below v7), whatever is being committed.",
    ),
    planted(
        "commits_the_position_alone",
        commits_the_position_alone,
        partial(transactions, commits=commits_the_position_alone, records=1, budget=0),
        TOGETHER,
        "Planted: so does whoever sends answers in transactions, and commits by the consumer.",
    ),
    planted(
        "goes_on",
        goes_on,
        partial(transactions, means=aborts_by_beginning, commits=goes_on, records=1),
        ONCE,
        "Planted: a commit without an answer that is sent again with the same answers has them twice.",
    ),
    planted(
        "aborts_and_goes_on",
        aborts_and_goes_on,
        partial(transactions, means=aborts_by_beginning, commits=aborts_and_goes_on, records=1),
        ONCE,
        "KIP-890: what was sent late under an epoch that goes on is taken for a part of the next transaction.",
    ),
    planted(
        "settles_blindly",
        settles_blindly,
        partial(
            transactions,
            IN_TURN,
            commits=settles_blindly,
            kinds={Fault.UNSENT: is_decision},
            budget=2,
            budgets={Fault.EVICTED: 1, Fault.UNSENT: 1, Fault.CRASH_BEFORE: 0},
        ),
        NEVER_FALLS,
        "Planted: a producer that is made anew after an error fences its successor, and commits what it believed before.",
        alone=True,
    ),
    planted(
        "due_below_the_position",
        due_below_the_position,
        partial(transactions, answers=due_below_the_position, budget=0),
        TOGETHER,
        "Planted: what is done out of order is known to be done, and its answers are still to be sent when the worker dies.",
    ),
    planted(
        "all_that_wait",
        all_that_wait,
        partial(transactions, attrs.evolve(EARLY, running_max=3), answers=all_that_wait, records=3, budget=0),
        TOGETHER,
        "Planted: a producer that flushes with each commit sends answers of records that will be handled again.",
        of="transactions.no_metadata",
    ),
    planted(
        "commits_the_highest",
        commits_the_highest,
        partial(
            transactions,
            attrs.evolve(EARLY, parts=attrs.evolve(PARTS, position_to_commit=commits_the_highest)),
            budget=0,
        ),
        HANDLED,
        "Planted: a transaction makes a wrong position no better.",
        of="transactions.no_metadata",
        alone=True,
    ),
    planted(
        "gives_up",
        None,
        partial(
            transactions,
            takes_over_again=False,
            records=1,
            summary="Who is fenced gives up, though the partition is its own.",
        ),
        ALL,
        "Planted: a fence that was under way for long, from a member that is gone, fences whoever owns the partition by now.",
    ),
)
