"""Exactly once from topic to topic: how do the position and what handlers answer with come about together, or not at all?

In one transaction of Kafka's (KIP-98). A reader with `read_committed` sees neither before it is committed; a producer that
begins under a transactional id fences whoever had it, and ends the transaction that was open under it. Each partition that
is consumed has an id of its own, of the group and the partition, so whoever comes to own the partition fences its former
owner, whatever that one still does. The owner's life of a partition is two programs:

    take_over        fence -> read the position                               BEFORE anything is handled
    commit_together  begin -> send the answers -> send the position -> commit     one at a time, as commits are (P2)

Work is done out of order, and a commit has a position, with what is done beyond it as metadata. So answers wait until a
commit covers their record, by its position or by its metadata, and go into that very transaction (`answers_due`); what the metadata
has no room for waits on. Who takes over begins with what was committed, and handles the rest: what was handled and not
committed is handled again, and its answers were never seen.

A transaction that fails in any way, or of whose end nothing is heard, is not tried again as it is: a request of it may still
be under way, and land in the next one (KIP-890). The program fences itself instead, which ends what is open, waits for what
is being committed, and makes requests of before void. Then the position tells: that of the transaction, which was committed;
the one before, so it was not, and its answers wait for the next one; or another, so somebody else owns the partition.

Who is fenced has lost the partition (`FENCED`), for as long as the group does not say that it is still theirs: then they take it
over anew. The fence is the broker's, so it needs no word of the group's generation. aiokafka 0.14 could not send that
(TxnOffsetCommit v0; KIP-447 came with v3), and asks for committed positions without waiting for those of open transactions
(OffsetFetch below v7), which is why the position is read after the fence, and never before.

Laws
    EO1 A reader of what is committed sees the answers of a record at most once.
    EO2 The position and the answers appear together: where no transaction is being committed, such a reader sees the answers of
        all records that the position or its metadata covers, and of no others.
    EO3 Who is fenced writes nothing more: no transaction is open under an older epoch than the newest.
    EO4 Nothing is covered that was not handled; and the committed position never falls.
    EO5 At rest, with a member alive, each record is covered.

Known not to work
    - What handlers do beside answering is done at least once.
    - A reader without `read_committed` sees answers of transactions that were never committed.
    - Members of a group are to agree on it: one that commits positions without transactions is fenced by nothing.
    - An answer that the broker never takes holds up its partition: it was handled, and nobody is left to judge it.
    - A window of several records has answers in common, and metadata may cover a part of it: only records by themselves.
    - aiokafka 0.14 sends answers although the broker has refused to add their topic to the transaction. Where the right to write is
      taken away and given back just between the two, while the transaction before is being committed, a broker takes them for
      a part of that one (KIP-890), and they are seen twice: three of 3,000 runs by seed in which it was refused at random.
    - A fence costs the broker a producer id for each partition that was ever consumed, until that expires (a week by default).

Things that do not work
    A transactional id for each member: the next owner has another one, so nobody fences a member that goes on.
    To abort, and to go on with the same producer: what was sent late, before the abort, is taken for a part of the next transaction.
    To send an answer when its handler has ended: by the next commit its record may be one that the metadata has no room for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from tidegate.consumer._offsets import batch_of, check_numbers
from tidegate.consumer.commands import METADATA_REFUSED, Commit
from tidegate.consumer.commit_metadata import decoded
from tidegate.consumer.watermark import OFFSET_MAX, done_runs
from tidegate.model.documents import show
from tidegate.model.effects import Effect, Failure, NotApplied, Refused, Sleep
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.model.values import check_name, check_type

FENCED: Final = Refused("another producer has taken over")
"""What is answered to whoever sends under an epoch that is over; a driver answers with this very value."""
_ASK_AGAIN: Final = SECOND


# --- values and effects -----------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Tenure:
    """What the owner of a partition knows of it.

    Attributes:
        epoch: Of its producer.
        position: What is committed.
        metadata: What is committed along with it; None where nothing is, and the position is where it begins.
    """

    epoch: int
    position: int
    metadata: str | None = ""

    def __str__(self) -> str:
        return f"{self.position}{' with metadata' if self.metadata else ''} (epoch {self.epoch})"


@final
@attrs.frozen
class Together:
    """What has come of a transaction.

    Attributes:
        reply: To the commit: None where it was committed.
        tenure: What its owner knows by then.
    """

    reply: Failure | None
    tenure: Tenure

    def __str__(self) -> str:
        return f"{'committed' if self.reply is None else self.reply}: {self.tenure}"


@attrs.frozen
class _OfEpoch:
    """What is asked under an epoch of the producer of a partition."""

    partition: TopicPartition
    epoch: int


@final
@attrs.frozen(cache_hash=True)
class Fence(Effect[int]):
    """Begin a new epoch of the partition's producer: what is open of older ones is aborted, what is being committed is waited
    for, and nothing more of them is taken. It replies the epoch.
    """

    partition: TopicPartition

    def __str__(self) -> str:
        return f"fence {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class ReadPosition(Effect["tuple[int, str | None]"]):
    """Read the position that the group has committed, and its metadata; where it begins, and None, where nothing is committed
    and another owner may find another beginning.
    """

    partition: TopicPartition

    def __str__(self) -> str:
        return f"read the position of {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class BeginTransaction(_OfEpoch, Effect[None]):
    """Begin a transaction; it waits while the one before is being committed."""

    def __str__(self) -> str:
        return f"begin a transaction of {self.partition} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class SendAnswers(_OfEpoch, Effect[None]):
    """Send what the handlers of these records have answered with, as part of the transaction."""

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


# --- decisions and programs -------------------------------------------------------------------------------------------


def transactional_id(group: str, partition: TopicPartition) -> str:
    """Under which id the owner of a partition produces: the same for all members of a group, and for nothing else.

    Neither a topic nor a number has a colon in it, so no two groups with other names share one.
    """
    check_name(group, "a group")
    check_type(partition, TopicPartition, "a partition")
    return f"{group}:{partition.topic}:{partition.partition}"


def answers_due(commit: Commit, answered: Iterable[int]) -> tuple[int, ...]:
    """The records whose answers go into the transaction of a commit: those that it covers.

    Args:
        commit: Its position covers what is below, its metadata what that says.
        answered: The records whose answers have not been committed yet.

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
    """Become the one who writes for a partition, and learn where it begins.

    Args:
        partition: Which one. The group is to have assigned it.

    Raises:
        Failure: Nothing has been lost; it may be tried again for as long as the partition is assigned.
    """
    epoch = await Fence(partition)
    position, metadata = await ReadPosition(partition)
    return Tenure(epoch, position, metadata)


async def commit_together(commit: Commit, answers: tuple[int, ...], tenure: Tenure) -> Together:
    """Commit a position in one transaction with the answers of these records.

    Args:
        commit: The position and its metadata.
        answers: What is `answers_due`.
        tenure: What the owner knows; no other transaction of it is under way.

    Returns:
        What the commit is answered, for `tidegate.consumer.commands.event_for`, and what its owner knows then. Where it is
        not None, the answers wait for the next commit, or for the next owner to have them made anew.
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
    """Find out what has become of a transaction that has failed, by ending it.

    Args:
        commit: What it was to commit.
        before: What was known before it.
        why: How it has failed.
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
