"""What a consumer asks of a broker, and what may be answered: the part of Kafka's protocol that a group needs.

A request is answered with a value, or with an error code: a class of `aiokafka.errors`, which a client turns into what it
does next. Commits and fetches are answered a partition at a time. `CODES` has, for each request, the codes that its handler
in aiokafka 0.14 tells apart, one that it does not know, and those that Kafka 4.1 gives besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka import errors

__all__ = [
    "BEGINNING", "CODES", "END", "NOWHERE", "OF_ONE", "Code", "Fetch", "FindCoordinator", "Heartbeat", "JoinGroup", "Joined",
    "LeaveGroup", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "Partition", "Position", "Read", "Request",
    "SyncGroup", "refusal",
]  # fmt: skip

Code: TypeAlias = Any
"""An error that a broker answers, a class of aiokafka's, which ships no types; `errors.NoError` for none."""

BEGINNING: Final = -2
END: Final = -1
NOWHERE: Final = 0
"""To begin nowhere, but to fail: what aiokafka calls the strategy "none"."""


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


class Heartbeat(NamedTuple):
    """Stay a member."""

    group: str
    generation: int
    member_id: str


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


class Fetch(NamedTuple):
    """Read records from these offsets on; wait so long for the first."""

    positions: Mapping[Partition, int]
    wait_s: float


class Read(NamedTuple):
    """What was read: the offsets and keys of records, and where the next read begins."""

    offsets: tuple[int, ...]
    keys: tuple[bytes | None, ...]
    stop: int


class ListOffsets(NamedTuple):
    """Learn where logs begin or end."""

    partitions: Mapping[Partition, int]


class FindCoordinator(NamedTuple):
    """Learn who coordinates the group."""

    group: str


class Metadata(NamedTuple):
    """Learn which partitions there are."""


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
)

_COORDINATOR: Final = (errors.GroupCoordinatorNotAvailableError, errors.NotCoordinatorForGroupError)
_STRANGE: Final = (errors.UnknownError,)
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
}

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
        case OffsetCommit(offsets=partitions) | OffsetFetch(partitions=partitions):
            return dict.fromkeys(partitions, code)
        case Fetch(partitions) | ListOffsets(partitions):
            return dict.fromkeys(partitions, code)
        case _:
            return code
