"""The laws of `tidegate.consumer.commit_answers` as predicates over why a commit has failed, and what follows."""

from __future__ import annotations

from tidegate.consumer.commands import Commit, CommitRefused, CommitUnknown, Event, MetadataRefused, event_for
from tidegate.consumer.commit_answers import CommitFailure, CommitVerdict
from tidegate.model.records import TopicPartition

_COMMIT = Commit(TopicPartition("t", 0), 1, 7)


def _event(found: CommitVerdict) -> Event | None:
    return event_for(_COMMIT, found.reply)


def ends_for_what_is_forbidden(failure: CommitFailure, found: CommitVerdict) -> bool:
    """Law CA1: the worker ends for what is forbidden, and for nothing else; and each cause has an answer."""
    return found.ends == (failure is CommitFailure.FORBIDDEN) and _event(found) is not None


def refuses_what_is_known(failure: CommitFailure, found: CommitVerdict) -> bool:
    """Law CA2: of a partition that is kept, a commit is refused only where nobody will ever take it.

    Args:
        failure: Why it has failed.
        found: What follows where the partition is kept.
    """
    return isinstance(_event(found), CommitRefused) == (failure in (CommitFailure.FENCED, CommitFailure.FORBIDDEN))


def writes_less_for_a_text_too_large(failure: CommitFailure, found: CommitVerdict) -> bool:
    """Law CA3: or a generation that is over would commit for ever."""
    return isinstance(_event(found), MetadataRefused) == (failure is CommitFailure.TOO_LARGE)


def waits_for_no_partition_that_is_gone(failure: CommitFailure, kept: CommitVerdict, given_back: CommitVerdict) -> bool:
    """Law CA4: or the group waits for a drain that commits to a deleted topic until its time is over.

    Args:
        failure: Why the commit has failed.
        kept: What follows where the partition is kept.
        given_back: What follows where it is given back.
    """
    if failure is CommitFailure.GONE:
        return isinstance(_event(kept), CommitUnknown) and isinstance(_event(given_back), CommitRefused)
    return type(_event(kept)) is type(_event(given_back))
