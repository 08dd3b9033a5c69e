"""Which answer to a commit means what, for the partition and for the worker?

A commit that fails has one of five causes, and whoever speaks with the broker says which:

    the generation is over    the group has moved on: the partition is given up, for the next owner has it
    it is forbidden           nothing of this worker will ever be committed: it stops, and says so
    the text is too large     the broker does not take the metadata: the same position is committed with less
    there is no partition     its topic was deleted: whoever gives it back goes without a commit, and does not hold up the group
                              until its time is over. Who keeps it tries again, for a broker that has just started may not
                              know its topics yet
    anything else             it may have been taken, or may be yet: the commit is sent again after a while

Laws
    CA1  Each cause has an answer, which is a failure; the worker ends for what is forbidden, and for nothing else.
    CA2  Only what is known not to be committed is refused. What nobody knows stays ambiguous.
    CA3  `METADATA_REFUSED` is answered for a text that is too large, and for nothing else, whatever the broker has said.
    CA4  Whoever gives a partition back that is not there is refused at once; whoever keeps it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Final, final

import attrs

from tidegate.consumer.commands import METADATA_REFUSED
from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.values import check_type


@final
@unique
class CommitFailure(Enum):
    """Why a commit has failed."""

    FENCED = "the generation is over"
    FORBIDDEN = "it is forbidden"
    TOO_LARGE = "its metadata is too large"
    GONE = "there is no such partition"
    UNKNOWN = "nobody knows what became of it"


@final
@attrs.frozen
class CommitVerdict:
    """What follows.

    Attributes:
        reply: What the commit is answered, for `tidegate.consumer.commands.event_for`.
        ends: Whether the worker ends with it.
    """

    reply: Failure
    ends: bool = False


_REPLY: Final[Mapping[CommitFailure, Callable[[str], CommitVerdict]]] = {
    CommitFailure.FENCED: lambda said: CommitVerdict(Refused(said)),
    CommitFailure.FORBIDDEN: lambda said: CommitVerdict(Refused(said), ends=True),
    CommitFailure.TOO_LARGE: lambda _: CommitVerdict(METADATA_REFUSED),
    CommitFailure.GONE: lambda said: CommitVerdict(Ambiguous(said)),
    CommitFailure.UNKNOWN: lambda said: CommitVerdict(Ambiguous(said)),
}


def verdict(failure: CommitFailure, said: str, *, is_given_back: bool) -> CommitVerdict:
    """What follows from a commit that has failed.

    Args:
        failure: Why.
        said: What the broker or the client called it.
        is_given_back: Whether the partition is drained, to be given back.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(failure, CommitFailure, "why a commit has failed")
    check_type(said, str, "what was said of it")
    why = f"{failure.value}: {said}"
    if failure is CommitFailure.GONE and is_given_back:
        return CommitVerdict(Refused(why))
    return _REPLY[failure](why)
