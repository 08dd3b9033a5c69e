"""What follows from a commit that has failed: a table, total over the causes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

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
from tidegate.consumer.commit_answers import CommitFailure, CommitVerdict, verdict
from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition

COMMIT: Final = Commit(TopicPartition("t", 0), 1, 7)
SAID: Final = st.text()


Verdict: TypeAlias = Callable[[CommitFailure, str, bool], CommitVerdict]
EVENTS: Final = {
    CommitFailure.FENCED: CommitRefused,
    CommitFailure.FORBIDDEN: CommitRefused,
    CommitFailure.TOO_LARGE: MetadataRefused,
    CommitFailure.GONE: CommitUnknown,
    CommitFailure.UNKNOWN: CommitUnknown,
}


def decided(failure: CommitFailure, said: str, is_given_back: bool) -> CommitVerdict:
    return verdict(failure, said, is_given_back=is_given_back)


def follows(failure: CommitFailure, said: str, decide: Verdict, *, is_given_back: bool) -> Event | None:
    return event_for(COMMIT, decide(failure, said, is_given_back).reply)


def ends_for_what_is_forbidden_only(failure: CommitFailure, said: str, decide: Verdict = decided) -> bool:
    """Law CA1."""
    return all(decide(failure, said, each).ends == (failure is CommitFailure.FORBIDDEN) for each in (True, False))


def refuses_only_what_is_known(failure: CommitFailure, said: str, decide: Verdict = decided) -> bool:
    """Law CA2."""
    is_refused = isinstance(follows(failure, said, decide, is_given_back=False), CommitRefused)
    return is_refused == (failure in (CommitFailure.FENCED, CommitFailure.FORBIDDEN))


def writes_less_only_for_a_text_too_large(failure: CommitFailure, said: str, decide: Verdict = decided) -> bool:
    """Law CA3: or a generation that is over would commit for ever."""
    return all(
        isinstance(follows(failure, said, decide, is_given_back=each), MetadataRefused)
        == (failure is CommitFailure.TOO_LARGE)
        for each in (True, False)
    )


def waits_for_no_partition_that_is_gone(failure: CommitFailure, said: str, decide: Verdict = decided) -> bool:
    """Law CA4: or the group waits for a drain that commits to a deleted topic until its time is over."""
    kept, given_back = (follows(failure, said, decide, is_given_back=each) for each in (False, True))
    if failure is CommitFailure.GONE:
        return isinstance(kept, CommitUnknown) and isinstance(given_back, CommitRefused)
    return type(kept) is type(given_back)


LAWS: Final = (
    ends_for_what_is_forbidden_only,
    refuses_only_what_is_known,
    writes_less_only_for_a_text_too_large,
    waits_for_no_partition_that_is_gone,
)


@given(st.sampled_from(CommitFailure), SAID)
@example(CommitFailure.FENCED, METADATA_REFUSED.reason)
def test_each_cause_has_its_answer(failure: CommitFailure, said: str) -> None:
    """Laws CA1 to CA4, whatever the broker has said."""
    assert isinstance(follows(failure, said, decided, is_given_back=False), EVENTS[failure])
    assert all(law(failure, said) for law in LAWS)


def planted(cause: CommitFailure, reply: Failure, *, ends: bool = False) -> Verdict:
    """The table with another row for this cause."""
    return lambda failure, said, back: CommitVerdict(reply, ends) if failure is cause else decided(failure, said, back)


WRONG: Final[dict[str, tuple[Callable[..., bool], CommitFailure, str, Verdict]]] = {
    "what is forbidden is tried for ever": (
        LAWS[0], CommitFailure.FORBIDDEN, "", planted(CommitFailure.FORBIDDEN, Refused("forbidden")),
    ),
    "no answer ends the worker": (
        LAWS[0], CommitFailure.UNKNOWN, "", planted(CommitFailure.UNKNOWN, Ambiguous("nothing"), ends=True),
    ),
    "no answer gives the partition up": (
        LAWS[1], CommitFailure.UNKNOWN, "", planted(CommitFailure.UNKNOWN, Refused("nothing")),
    ),
    "the broker's word is taken for ours": (
        LAWS[2],
        CommitFailure.FENCED,
        METADATA_REFUSED.reason,
        lambda failure, said, back: (
            CommitVerdict(METADATA_REFUSED) if said == METADATA_REFUSED.reason else decided(failure, said, back)
        ),
    ),
    "a deleted topic is committed until time is over": (
        LAWS[3], CommitFailure.GONE, "", planted(CommitFailure.GONE, Ambiguous("gone")),
    ),
    "a broker that has just started loses its partitions": (
        LAWS[3], CommitFailure.GONE, "", planted(CommitFailure.GONE, Refused("gone")),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("law", "failure", "said", "wrong"), WRONG.values(), ids=list(WRONG))
def test_each_law_is_broken_by_a_planted_bug(
    law: Callable[..., bool], failure: CommitFailure, said: str, wrong: Verdict
) -> None:
    """Laws CA1 to CA4."""
    assert law(failure, said)
    assert not law(failure, said, wrong)


def test_bad_input_is_refused() -> None:
    with pytest.raises(Misuse, match="why a commit has failed"):
        verdict("fenced", "", is_given_back=True)  # type: ignore[arg-type]
