"""Requests of Kafka's protocol for groups and transactions, and their answers.

An answer is a value or an error code, a class of `aiokafka.errors`; requests that name partitions
get one for each. `CODES` has the codes of each request: those that its handler in aiokafka 0.14
distinguishes, one unknown to it, and further ones of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka import errors

Code: TypeAlias = Any
"""An error code; aiokafka's classes are untyped."""

BEGINNING: Final = -2
END: Final = -1
NOWHERE: Final = 0
"""Fail instead of resetting the offset: aiokafka's strategy "none"."""


class FencedInstanceIdError(errors.UnknownError):  # type: ignore[misc]  # it has no types
    """Another member has the name; aiokafka 0.14 treats this code as unknown."""

    errno = 82

    def __repr__(self) -> str:
        return repr(errors.UnknownError())


class Partition(NamedTuple):
    """A topic's partition; equal to aiokafka's type, and to a plain pair."""

    topic: str
    partition: int


class Position(NamedTuple):
    """A committed position."""

    offset: int
    metadata: str


class JoinGroup(NamedTuple):
    """Join the next generation."""

    group: str
    member_id: str
    instance: str | None
    topics: tuple[str, ...]
    session_s: float
    rebalance_s: float
    client_id: str


class Joined(NamedTuple):
    """A member of a generation; only the leader receives the members and their topics."""

    generation: int
    member_id: str
    leader: str
    members: Mapping[str, tuple[str, ...]]


class SyncGroup(NamedTuple):
    """Receive the assignment; the leader sends everyone's."""

    group: str
    generation: int
    member_id: str
    assignments: Mapping[str, tuple[Partition, ...]]
    instance: str | None = None


class Heartbeat(NamedTuple):
    """Keep the session alive."""

    group: str
    generation: int
    member_id: str
    instance: str | None = None


class LeaveGroup(NamedTuple):
    """Leave the group."""

    group: str
    member_id: str


class OffsetCommit(NamedTuple):
    """Commit positions."""

    group: str
    generation: int
    member_id: str
    offsets: Mapping[Partition, Position]


class OffsetFetch(NamedTuple):
    """Read committed positions."""

    group: str
    partitions: tuple[Partition, ...]


class Written(NamedTuple):
    """A record's value and headers."""

    value: bytes | None = b"x"
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Fetch(NamedTuple):
    """Read records from these offsets, or committed ones only; wait `wait_s` for the first."""

    positions: Mapping[Partition, int]
    wait_s: float
    is_committed: bool = False


class Read(NamedTuple):
    """The records read, and the position of the next read."""

    offsets: tuple[int, ...]
    keys: tuple[bytes | None, ...]
    written: tuple[Written, ...]
    stop: int


class ListOffsets(NamedTuple):
    """Find the starts or ends of logs; with `is_committed`, the last stable offset."""

    partitions: Mapping[Partition, int]
    is_committed: bool = False


class FindCoordinator(NamedTuple):
    """Find the coordinator of a group or a transactional id."""

    key: str
    is_transactional: bool = False


class Metadata(NamedTuple):
    """List the partitions."""


class ProducerEpoch(NamedTuple):
    """A producer id and the epoch of its transactional id."""

    id: int
    epoch: int


class InitProducerId(NamedTuple):
    """Register a producer, with or without a transactional id."""

    transactional_id: str | None
    timeout_s: float


class AddPartitionsToTxn(NamedTuple):
    """Name the partitions to write; the first begins a transaction."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: tuple[Partition, ...]


class AddOffsetsToTxn(NamedTuple):
    """Announce that positions of a group are committed too."""

    transactional_id: str
    producer: ProducerEpoch
    group: str


class TxnOffsetCommit(NamedTuple):
    """Commit positions in the transaction; version 0 names no group member."""

    transactional_id: str
    producer: ProducerEpoch
    group: str
    offsets: Mapping[Partition, Position]


class EndTxn(NamedTuple):
    """Commit or abort."""

    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool


class Batch(NamedTuple):
    """Records of one producer, written together."""

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
OF_ONE: Final = (
    errors.TopicAuthorizationFailedError,
    errors.OffsetMetadataTooLargeError,
    errors.InvalidCommitOffsetSizeError,
    errors.UnknownTopicOrPartitionError,
    *_STRANGE,
)
"""Codes that a commit can get for one partition while others succeed."""


def refusal(request: Request, code: Code) -> object:
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
