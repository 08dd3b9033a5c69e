"""Decides how a failed commit affects the partition and the worker.

The adapter classifies the failure by one of five causes:

    the generation is over    the group has moved on: the next owner has the partition, and it is
                              given up
    it is forbidden           no commit of this worker can succeed: it stops with an error
    the text is too large     the broker refuses the metadata: the same position is committed with
                              less
    there is no partition     its topic was deleted. A partition being given back is released
                              without a commit, and does not delay the group. Otherwise the commit
                              is retried, because a restarted broker may not know its topics yet
    anything else             it may have been applied, or may be yet: the commit is retried after a
                              delay

Laws
    CA1  Each cause has an answer, which is a failure; the worker ends for a forbidden commit only.
    CA2  Only a commit known to have failed is refused. An unknown result stays ambiguous.
    CA3  `METADATA_REFUSED` is the answer for a too large text only, whatever the broker's message.
    CA4  Without such a partition, a commit is refused at once if the partition is being given back,
         and only then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Final, final

import attrs

from tidegate.consumer.protocol.commands import METADATA_REFUSED
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
    """The effect of a failed commit.

    Attributes:
        reply: The reply to the commit, for `tidegate.consumer.protocol.commands.event_for`.
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
    """The effect of a failed commit.

    Args:
        failure: The cause.
        said: The message of the broker or the client.
        is_given_back: Whether the partition drains, to be given back.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(failure, CommitFailure, "why a commit has failed")
    check_type(said, str, "what was said of it")
    why = f"{failure.value}: {said}"
    if failure is CommitFailure.GONE and is_given_back:
        return CommitVerdict(Refused(why))
    return _REPLY[failure](why)
