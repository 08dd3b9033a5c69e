"""What clients ask of a broker, and what may be answered: the part of Kafka's protocol that groups and transactions need.

A request is answered with a value, or with an error code: a class of `aiokafka.errors`, which a client turns into what it
does next. What names partitions is answered a partition at a time. `CODES` has, for each request, the codes that its handler
in aiokafka 0.14 tells apart, one that it does not know, and those that Kafka 4.1 gives besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka import errors

Code: TypeAlias = Any
"""An error that a broker answers, a class of aiokafka's, which ships no types; `errors.NoError` for none."""

BEGINNING: Final = -2
END: Final = -1
NOWHERE: Final = 0
"""To begin nowhere, but to fail: what aiokafka calls the strategy "none"."""


class FencedInstanceIdError(errors.UnknownError):  # type: ignore[misc]  # it has no types
    """Another member has the name, for which aiokafka 0.14 has no class: it takes it for what it does not know."""

    errno = 82

    def __repr__(self) -> str:
        return repr(errors.UnknownError())


class Partition(NamedTuple):
    """A partition of a topic; equal to aiokafka's, and to any pair of the two."""

    topic: str
    partition: int


class Position(NamedTuple):
    """What a group has committed."""

    offset: int
    metadata: str


class JoinGroup(NamedTuple):
    """Take part in the next generation."""

    group: str
    member_id: str
    instance: str | None
    topics: tuple[str, ...]
    session_s: float
    rebalance_s: float
    client_id: str


class Joined(NamedTuple):
    """A member of a generation; the leader learns who else is, and what they subscribe to."""

    generation: int
    member_id: str
    leader: str
    members: Mapping[str, tuple[str, ...]]


class SyncGroup(NamedTuple):
    """Learn what is assigned; the leader says so for all."""

    group: str
    generation: int
    member_id: str
    assignments: Mapping[str, tuple[Partition, ...]]
    instance: str | None = None


class Heartbeat(NamedTuple):
    """Stay a member; perhaps by name."""

    group: str
    generation: int
    member_id: str
    instance: str | None = None


class LeaveGroup(NamedTuple):
    """Be a member no more."""

    group: str
    member_id: str


class OffsetCommit(NamedTuple):
    """Commit positions."""

    group: str
    generation: int
    member_id: str
    offsets: Mapping[Partition, Position]


class OffsetFetch(NamedTuple):
    """Learn what is committed."""

    group: str
    partitions: tuple[Partition, ...]


class Written(NamedTuple):
    """What a record has beside its key."""

    value: bytes | None = b"x"
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Fetch(NamedTuple):
    """Read records from these offsets on, perhaps those of committed transactions alone; wait so long for the first."""

    positions: Mapping[Partition, int]
    wait_s: float
    is_committed: bool = False


class Read(NamedTuple):
    """What was read: the offsets and keys of records, what else they have, and where the next read begins."""

    offsets: tuple[int, ...]
    keys: tuple[bytes | None, ...]
    written: tuple[Written, ...]
    stop: int


class ListOffsets(NamedTuple):
    """Learn where logs begin or end; perhaps where what is open of transactions begins."""

    partitions: Mapping[Partition, int]
    is_committed: bool = False


class FindCoordinator(NamedTuple):
    """Learn who coordinates a group, or a transactional id."""

    key: str
    is_transactional: bool = False


class Metadata(NamedTuple):
    """Learn which partitions there are."""


class ProducerEpoch(NamedTuple):
    """A producer, and the epoch of its transactional id."""

    id: int
    epoch: int


class InitProducerId(NamedTuple):
    """Be a producer: the only one of a transactional id, or one without."""

    transactional_id: str | None
    timeout_s: float


class AddPartitionsToTxn(NamedTuple):
    """Say what is written to; the first of these begins a transaction."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: tuple[Partition, ...]


class AddOffsetsToTxn(NamedTuple):
    """Say that positions of a group are committed along."""

    transactional_id: str
    producer: ProducerEpoch
    group: str


class TxnOffsetCommit(NamedTuple):
    """Commit positions as part of the transaction; version 0 says nothing of a member of the group."""

    transactional_id: str
    producer: ProducerEpoch
    group: str
    offsets: Mapping[Partition, Position]


class EndTxn(NamedTuple):
    """Commit, or abort."""

    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool


class Batch(NamedTuple):
    """Records that are written together, of the producer that numbers them."""

    producer: ProducerEpoch
    sequence: int
    is_transactional: bool
    records: tuple[tuple[bytes | None, Written], ...]


class Produce(NamedTuple):
    """Write records."""

    transactional_id: str | None
    batches: Mapping[Partition, Batch]


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | Fetch
    | ListOffsets
    | FindCoordinator
    | Metadata
    | InitProducerId
    | AddPartitionsToTxn
    | AddOffsetsToTxn
    | TxnOffsetCommit
    | EndTxn
    | Produce
)

_COORDINATOR: Final = (errors.GroupCoordinatorNotAvailableError, errors.NotCoordinatorForGroupError)
_STRANGE: Final = (errors.UnknownError,)
_OF_TRANSACTIONS: Final = (
    *_COORDINATOR,
    errors.GroupLoadInProgressError,
    errors.ConcurrentTransactions,
    errors.InvalidProducerEpoch,
    errors.TransactionalIdAuthorizationFailed,
)
CODES: Final[Mapping[type[Request], tuple[Code, ...]]] = {
    JoinGroup: (
        errors.GroupLoadInProgressError,
        errors.UnknownMemberIdError,
        *_COORDINATOR,
        errors.InconsistentGroupProtocolError,
        errors.InvalidSessionTimeoutError,
        errors.InvalidGroupIdError,
        errors.GroupAuthorizationFailedError,
        errors.RebalanceInProgressError,
        *_STRANGE,
    ),
    SyncGroup: (
        errors.RebalanceInProgressError,
        errors.UnknownMemberIdError,
        errors.IllegalGenerationError,
        *_COORDINATOR,
        errors.GroupAuthorizationFailedError,
        *_STRANGE,
    ),
    Heartbeat: (
        errors.RebalanceInProgressError,
        errors.UnknownMemberIdError,
        errors.IllegalGenerationError,
        *_COORDINATOR,
        errors.GroupAuthorizationFailedError,
        *_STRANGE,
    ),
    LeaveGroup: (errors.UnknownMemberIdError, *_COORDINATOR, *_STRANGE),
    OffsetCommit: (
        errors.GroupAuthorizationFailedError,
        errors.TopicAuthorizationFailedError,
        errors.OffsetMetadataTooLargeError,
        errors.InvalidCommitOffsetSizeError,
        errors.GroupLoadInProgressError,
        *_COORDINATOR,
        errors.RequestTimedOutError,
        errors.UnknownMemberIdError,
        errors.IllegalGenerationError,
        errors.RebalanceInProgressError,
        errors.UnknownTopicOrPartitionError,
        *_STRANGE,
    ),
    OffsetFetch: (
        errors.GroupLoadInProgressError,
        errors.NotCoordinatorForGroupError,
        errors.UnknownTopicOrPartitionError,
        errors.GroupAuthorizationFailedError,
        *_STRANGE,
    ),
    Fetch: (
        errors.NotLeaderForPartitionError,
        errors.UnknownTopicOrPartitionError,
        errors.OffsetOutOfRangeError,
        errors.TopicAuthorizationFailedError,
        *_STRANGE,
    ),
    ListOffsets: (
        errors.NotLeaderForPartitionError,
        errors.UnknownTopicOrPartitionError,
        errors.TopicAuthorizationFailedError,
        *_STRANGE,
    ),
    FindCoordinator: (
        errors.GroupCoordinatorNotAvailableError,
        errors.GroupAuthorizationFailedError,
        *_STRANGE,
    ),
    Metadata: (),
    InitProducerId: (*_OF_TRANSACTIONS, errors.InvalidTransactionTimeout, *_STRANGE),
    AddPartitionsToTxn: (
        *_OF_TRANSACTIONS,
        errors.UnknownTopicOrPartitionError,
        errors.InvalidProducerIdMapping,
        errors.InvalidTxnState,
        errors.TopicAuthorizationFailedError,
        *_STRANGE,
    ),
    AddOffsetsToTxn: (*_OF_TRANSACTIONS, errors.InvalidTxnState, errors.GroupAuthorizationFailedError, *_STRANGE),
    TxnOffsetCommit: (
        *_COORDINATOR,
        errors.RequestTimedOutError,
        errors.GroupLoadInProgressError,
        errors.UnknownTopicOrPartitionError,
        errors.InvalidProducerEpoch,
        errors.TransactionalIdAuthorizationFailed,
        errors.GroupAuthorizationFailedError,
        errors.OffsetMetadataTooLargeError,
        *_STRANGE,
    ),
    EndTxn: (*_OF_TRANSACTIONS, errors.InvalidTxnState, *_STRANGE),
    Produce: (
        errors.NotLeaderForPartitionError,
        errors.UnknownTopicOrPartitionError,
        errors.NotEnoughReplicasError,
        errors.DuplicateSequenceNumber,
        errors.OutOfOrderSequenceNumber,
        errors.InvalidProducerEpoch,
        errors.InvalidTxnState,
        errors.TopicAuthorizationFailedError,
        *_STRANGE,
    ),
}

OF_PRODUCERS: Final = (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, Produce)
"""What only producers ask."""

OF_ONE: Final = (
    errors.TopicAuthorizationFailedError,
    errors.OffsetMetadataTooLargeError,
    errors.InvalidCommitOffsetSizeError,
    errors.UnknownTopicOrPartitionError,
    *_STRANGE,
)
"""What a commit is answered for one partition, while others are taken."""


def refusal(request: Request, code: Code) -> object:
    """What is answered when all that is asked for is refused with that code."""
    match request:
        case (
            OffsetCommit(offsets=partitions) | TxnOffsetCommit(offsets=partitions) | OffsetFetch(partitions=partitions)
        ):
            return dict.fromkeys(partitions, code)
        case Fetch(partitions) | ListOffsets(partitions) | Produce(batches=partitions):
            return dict.fromkeys(partitions, code)
        case AddPartitionsToTxn(partitions=partitions):
            return dict.fromkeys(partitions, code)
        case _:
            return code
