"""What follows from a commit that has failed: a table, total over the causes."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.consumer.commands import (
    METADATA_REFUSED,
    Commit,
    CommitRefused,
    CommitUnknown,
    Event,
    MetadataRefused,
    event_for,
)
from tidegate.consumer.commit_answers import CommitFailure, verdict
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition

COMMIT: Final = Commit(TopicPartition("t", 0), 1, 7)
SAID: Final = st.text()


def follows(failure: CommitFailure, said: str) -> Event | None:
    return event_for(COMMIT, verdict(failure, said).reply)


@pytest.mark.parametrize("failure", CommitFailure)
def test_each_cause_has_an_event(failure: CommitFailure) -> None:
    """Law CA1: what follows for the partition."""
    expected = {
        CommitFailure.FENCED: CommitRefused,
        CommitFailure.FORBIDDEN: CommitRefused,
        CommitFailure.TOO_LARGE: MetadataRefused,
        CommitFailure.UNKNOWN: CommitUnknown,
    }

    assert type(follows(failure, "said")) is expected[failure]


@given(st.sampled_from(CommitFailure), SAID)
def test_a_worker_ends_for_what_is_forbidden_only(failure: CommitFailure, said: str) -> None:
    """Law CA1."""
    assert verdict(failure, said).ends == (failure is CommitFailure.FORBIDDEN)


@given(SAID)
def test_what_nobody_knows_stays_unknown(said: str) -> None:
    """Law CA2."""
    assert isinstance(follows(CommitFailure.UNKNOWN, said), CommitUnknown)


@given(st.sampled_from([CommitFailure.FENCED, CommitFailure.FORBIDDEN]), SAID)
@example(CommitFailure.FENCED, METADATA_REFUSED.reason)
def test_no_word_of_the_broker_passes_for_a_text_that_is_too_large(failure: CommitFailure, said: str) -> None:
    """Law CA3: or a generation that is over would commit for ever."""
    assert isinstance(follows(failure, said), CommitRefused)


def test_bad_input_is_refused() -> None:
    with pytest.raises(Misuse, match="why a commit has failed"):
        verdict("fenced", "")  # type: ignore[arg-type]
