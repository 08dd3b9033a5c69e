"""Exactly once from topic to topic: the position and the handlers' answers are committed together,
or not at all.

Both go into one Kafka transaction (KIP-98). A `read_committed` reader sees neither before the
commit. Each consumed partition has its own transactional id, made of group and partition. A
producer that starts under it fences its predecessor and ends the transaction left open. So a new
owner fences the former one. The owner runs two programs:

    take_over        fence -> read the position                               BEFORE any handling
    commit_together  begin -> send the answers -> send the position -> commit     one at a time, as
                     commits are (P2)

Work finishes out of order, and the metadata of a commit lists records done beyond its position. An
answer waits for a commit that covers its record, by position or metadata (`answers_due`). A new
owner starts at the committed state and handles the rest; answers to repeated records were never
visible.

A transaction that fails or gets no reply is not retried as it is. One of its requests may still
arrive in the next transaction (KIP-890). The program fences itself instead. That aborts an open
transaction, waits for a commit under way, and voids all earlier requests. Then it reads the
position:

    the new position          the transaction was committed
    the position before it    it was not; its answers wait for the next transaction
    any other                 another owner has the partition

A fenced owner (`FENCED`) has lost the partition. If the group says otherwise, it takes the
partition over again. The broker does the fencing, so no generation is needed. aiokafka 0.14 could
not send one (TxnOffsetCommit v0; KIP-447 came with v3). It also reads committed positions without
waiting for open transactions (OffsetFetch below v7). So the program reads the position after the
fence, never before.

Laws
    EO1 A reader of committed data sees the answers of a record at most once.
    EO2 Position and answers appear together: while no transaction is being committed, such a reader
        sees the answers of exactly the records that the position or its metadata covers.
    EO3 A fenced owner writes no more: no transaction is open under an epoch older than the newest.
    EO4 Only handled records are covered, and the committed position never falls.
    EO5 At rest, with a member alive, each record is covered.

Known not to work
    - Side effects of handlers other than their answers happen at least once.
    - A reader without `read_committed` sees answers of transactions that were never committed.
    - All members of a group must use transactions; one that commits positions without them is not
      fenced.
    - An answer that the broker never accepts holds up its partition: its record was handled, and no
      failure policy applies any more.
    - Windows of several records are not supported: they share answers, and metadata may cover only
      a part of them.
    - aiokafka 0.14 sends answers although the broker refused to add their topic to the transaction.
      If the write permission is revoked and granted again between the two, while the previous
      transaction is being committed, the broker counts them to that one (KIP-890). They then appear
      twice: 3 of 3,000 seeded runs with random refusals.
    - Each partition ever consumed costs the broker a producer id until it expires (a week by
      default).

Things that do not work
    A transactional id per member: the next owner has another id, so it does not fence the former
    one.
    To abort and go on with the same producer: an answer sent late, before the abort, lands in the
    next transaction.
    To send an answer when its handler ends: the next commit may have no room for its record in the
    metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from tidegate.consumer.committing.commit_metadata import decoded
from tidegate.consumer.offsets._offsets import batch_of, check_numbers
from tidegate.consumer.offsets.watermark import OFFSET_MAX, done_runs
from tidegate.consumer.protocol.commands import METADATA_REFUSED, Commit
from tidegate.model.documents import show
from tidegate.model.effects import Effect, Failure, NotApplied, Refused, Sleep
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_name, check_type

FENCED: Final = Refused("another producer has taken over")
"""The reply to a request under an old epoch; a driver replies with this very value."""
_ASK_AGAIN: Final = SECOND


# --- values and effects ---------------------------------------------------------------------------


@final
@attrs.frozen
class Tenure:
    """What the owner of a partition knows about it.

    Attributes:
        epoch: Of its producer.
        position: The committed position.
        metadata: The committed metadata; None where no position is committed, and `position` is
            where the partition begins.
    """

    epoch: int
    position: int
    metadata: str | None = ""

    def __str__(self) -> str:
        return f"{self.position}{' with metadata' if self.metadata else ''} (epoch {self.epoch})"


@final
@attrs.frozen
class Together:
    """The result of a transaction.

    Attributes:
        reply: The reply to the commit; None if it was committed.
        tenure: What the owner knows afterwards.
    """

    reply: Failure | None
    tenure: Tenure

    def __str__(self) -> str:
        return f"{'committed' if self.reply is None else self.reply}: {self.tenure}"


@attrs.frozen
class _OfEpoch:
    """A request under an epoch of the partition's producer."""

    partition: TopicPartition
    epoch: int


@final
@attrs.frozen(cache_hash=True)
class Fence(Effect[int]):
    """Begin a new epoch of the partition's producer; the reply is the epoch.

    The broker aborts open transactions of older epochs, waits for those being committed, and
    rejects their later requests.
    """

    partition: TopicPartition

    def __str__(self) -> str:
        return f"fence {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class ReadPosition(Effect["tuple[int, str | None]"]):
    """Read the group's committed position and its metadata.

    Where no position is committed and another owner might begin elsewhere, the reply is the
    beginning and None.
    """

    partition: TopicPartition

    def __str__(self) -> str:
        return f"read the position of {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class BeginTransaction(_OfEpoch, Effect[None]):
    """Begin a transaction; it waits while the previous one is being committed."""

    def __str__(self) -> str:
        return f"begin a transaction of {self.partition} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class SendAnswers(_OfEpoch, Effect[None]):
    """Send the handlers' answers of these records as part of the transaction."""

    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"send answers of {self.partition} {show(self.offsets)} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class SendPosition(_OfEpoch, Effect[None]):
    """Send the position and its metadata, as part of the transaction."""

    position: int
    metadata: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.metadata)} characters of metadata" if self.metadata else ""
        return f"send position {self.position} of {self.partition}{more} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class CommitTransaction(_OfEpoch, Effect[None]):
    """Commit the transaction."""

    def __str__(self) -> str:
        return f"commit the transaction of {self.partition} (epoch {self.epoch})"


# --- decisions and programs -----------------------------------------------------------------------


def transactional_id(group: str, partition: TopicPartition) -> str:
    """The transactional id under which the owner of a partition produces, the same for all members
    of a group.

    Neither a topic nor a number contains a colon, so two groups never share an id.
    """
    check_name(group, "a group")
    check_type(partition, TopicPartition, "a partition")
    return f"{group}:{partition.topic}:{partition.partition}"


def answers_due(commit: Commit, answered: Iterable[int]) -> tuple[int, ...]:
    """The records that a commit covers, whose answers go into its transaction.

    Args:
        commit: It covers all records below its position, and those that its metadata lists.
        answered: The records with answers that are not committed yet.

    Returns:
        Their offsets, in order.
    """
    check_type(commit, Commit, "a commit")
    offsets = batch_of(answered)
    check_numbers(offsets, "offsets of records", OFFSET_MAX)
    found: list[int] = []
    beyond: list[int] = []
    for offset in sorted(offsets):
        (found if offset < commit.position else beyond).append(offset)
    if beyond and commit.metadata:
        read = decoded(commit.metadata, position=commit.position, end=OFFSET_MAX + 1)
        runs = done_runs(read.tracker)
        start, stop = next(runs, (0, 0))
        for offset in beyond:
            while stop <= offset and stop:
                start, stop = next(runs, (0, 0))
            if start <= offset < stop:
                found.append(offset)
    return tuple(found)


async def take_over(partition: TopicPartition) -> Tenure:
    """Fence the former owner of a partition, and read where to begin.

    Args:
        partition: The group must have assigned it.

    Raises:
        Failure: No data is lost; retry as long as the partition is assigned.
    """
    epoch = await Fence(partition)
    position, metadata = await ReadPosition(partition)
    return Tenure(epoch, position, metadata)


async def commit_together(commit: Commit, answers: tuple[int, ...], tenure: Tenure) -> Together:
    """Commit a position and the answers of these records in one transaction.

    Args:
        commit: The position and its metadata.
        answers: The records of `answers_due`.
        tenure: What the owner knows; no other transaction of it is open.

    Returns:
        The reply for `tidegate.consumer.protocol.commands.event_for`, and what the owner knows then. Unless
        the reply is None, the answers wait for the next commit, or the next owner produces them
        again.
    """
    partition, epoch = commit.partition, tenure.epoch
    try:
        await BeginTransaction(partition, epoch)
        if answers:
            await SendAnswers(partition, epoch, answers)
        await SendPosition(partition, epoch, commit.position, commit.metadata)
        await CommitTransaction(partition, epoch)
    except Failure as failure:
        if failure == FENCED:
            return Together(FENCED, tenure)
        why = failure.reason
    else:
        return Together(None, Tenure(epoch, commit.position, commit.metadata))
    return await resolved(commit, tenure, why)


async def resolved(commit: Commit, before: Tenure, why: str) -> Together:
    """Find out whether a failed transaction was committed, by ending it.

    Args:
        commit: What the transaction committed.
        before: What the owner knew before it.
        why: The reason of its failure.
    """
    after = None
    while after is None:
        try:
            after = await take_over(commit.partition)
        except Failure as failure:
            if failure == FENCED:
                return Together(FENCED, before)
            await Sleep(_ASK_AGAIN)
    there = (after.position, after.metadata)
    if there == (commit.position, commit.metadata):
        return Together(None, after)
    if there != (before.position, before.metadata):
        return Together(FENCED, after)
    return Together(METADATA_REFUSED if why == METADATA_REFUSED.reason else NotApplied(why), after)
