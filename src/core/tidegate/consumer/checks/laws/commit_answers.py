"""The laws of `tidegate.consumer.committing.commit_answers` as predicates over the cause of a failed commit
and its verdict.
"""

from __future__ import annotations

from tidegate.consumer.committing.commit_answers import CommitFailure, CommitVerdict
from tidegate.consumer.protocol.commands import Commit, CommitRefused, CommitUnknown, Event, MetadataRefused, event_for
from tidegate.model.records import TopicPartition

_COMMIT = Commit(TopicPartition("t", 0), 1, 7)


def _event(found: CommitVerdict) -> Event | None:
    return event_for(_COMMIT, found.reply)


def ends_for_what_is_forbidden(failure: CommitFailure, found: CommitVerdict) -> bool:
    """Law CA1."""
    return found.ends == (failure is CommitFailure.FORBIDDEN) and _event(found) is not None


def refuses_what_is_known(failure: CommitFailure, found: CommitVerdict) -> bool:
    """Law CA2.

    Args:
        failure: The cause.
        found: The verdict for a partition that is kept.
    """
    return isinstance(_event(found), CommitRefused) == (failure in (CommitFailure.FENCED, CommitFailure.FORBIDDEN))


def writes_less_for_a_text_too_large(failure: CommitFailure, found: CommitVerdict) -> bool:
    """Law CA3. Otherwise a generation that is over would commit for ever."""
    return isinstance(_event(found), MetadataRefused) == (failure is CommitFailure.TOO_LARGE)


def waits_for_no_partition_that_is_gone(failure: CommitFailure, kept: CommitVerdict, given_back: CommitVerdict) -> bool:
    """Law CA4. Otherwise the group waits until the time to drain is over for a commit to a deleted
    topic.

    Args:
        failure: The cause.
        kept: The verdict for a partition that is kept.
        given_back: The verdict for a partition being given back.
    """
    if failure is CommitFailure.GONE:
        return isinstance(_event(kept), CommitUnknown) and isinstance(_event(given_back), CommitRefused)
    return type(_event(kept)) is type(_event(given_back))
