"""The reaction to a failed commit: a table over all causes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.consumer.checks.laws import commit_answers as laws
from tidegate.consumer.checks.specimens.partition import NO_ANSWER_GIVES_UP
from tidegate.consumer.committing.commit_answers import CommitFailure, CommitVerdict, verdict
from tidegate.consumer.protocol import commands
from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition

COMMIT: Final = commands.Commit(TopicPartition("t", 0), 1, 7)

Verdict: TypeAlias = Callable[[CommitFailure, str, bool], CommitVerdict]
Law: TypeAlias = Callable[[CommitFailure, str, Verdict], bool]
EVENTS: Final = {
    CommitFailure.FENCED: commands.CommitRefused,
    CommitFailure.FORBIDDEN: commands.CommitRefused,
    CommitFailure.TOO_LARGE: commands.MetadataRefused,
    CommitFailure.GONE: commands.CommitUnknown,
    CommitFailure.UNKNOWN: commands.CommitUnknown,
}


def decided(failure: CommitFailure, said: str, is_given_back: bool) -> CommitVerdict:
    return verdict(failure, said, is_given_back=is_given_back)


LAWS: Final[dict[str, Law]] = {
    "CA1": lambda why, said, decide: all(
        laws.ends_for_what_is_forbidden(why, decide(why, said, back)) for back in (True, False)
    ),
    "CA2": lambda why, said, decide: laws.refuses_what_is_known(why, decide(why, said, False)),
    "CA3": lambda why, said, decide: all(
        laws.writes_less_for_a_text_too_large(why, decide(why, said, back)) for back in (True, False)
    ),
    "CA4": lambda why, said, decide: laws.waits_for_no_partition_that_is_gone(
        why, decide(why, said, False), decide(why, said, True)
    ),
}


@pytest.mark.parametrize("law", LAWS)
@given(failure=st.sampled_from(CommitFailure), said=st.text())
@example(failure=CommitFailure.FENCED, said=commands.METADATA_REFUSED.reason)
def test_each_cause_has_its_answer(law: str, failure: CommitFailure, said: str) -> None:
    """Laws CA1 to CA4, for any message of the broker."""
    assert isinstance(commands.event_for(COMMIT, decided(failure, said, False).reply), EVENTS[failure])
    assert LAWS[law](failure, said, decided)


# --- specimens ----------------------------------------------------------------------------------------------------------


def planted(cause: CommitFailure, reply: Failure, *, ends: bool = False) -> Verdict:
    return lambda failure, said, back: CommitVerdict(reply, ends) if failure is cause else decided(failure, said, back)


SPECIMENS: Final[dict[str, tuple[str, CommitFailure, str, Verdict]]] = {
    "what is forbidden is tried for ever": (
        "CA1", CommitFailure.FORBIDDEN, "", planted(CommitFailure.FORBIDDEN, Refused("forbidden")),
    ),
    "no answer ends the worker": (
        "CA1", CommitFailure.UNKNOWN, "", planted(CommitFailure.UNKNOWN, Ambiguous("nothing"), ends=True),
    ),
    "no answer gives the partition up": (
        "CA2", CommitFailure.UNKNOWN, "", lambda failure, said, back: NO_ANSWER_GIVES_UP()(failure, said, is_given_back=back),
    ),
    "a generation that is over is tried again": (
        "CA2", CommitFailure.FENCED, "", planted(CommitFailure.FENCED, Ambiguous("fenced")),
    ),
    "a text too large is committed again and again": (
        "CA3", CommitFailure.TOO_LARGE, "", planted(CommitFailure.TOO_LARGE, Ambiguous("too large")),
    ),
    "the broker's word is taken for ours": (
        "CA3",
        CommitFailure.FENCED,
        commands.METADATA_REFUSED.reason,
        lambda failure, said, back: (
            CommitVerdict(commands.METADATA_REFUSED) if said == commands.METADATA_REFUSED.reason else decided(failure, said, back)
        ),
    ),
    "a deleted topic is committed until time is over": (
        "CA4", CommitFailure.GONE, "", planted(CommitFailure.GONE, Ambiguous("gone")),
    ),
    "a broker that has just started loses its partitions": (
        "CA4", CommitFailure.GONE, "", planted(CommitFailure.GONE, Refused("gone")),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("law", "failure", "said", "wrong"), SPECIMENS.values(), ids=list(SPECIMENS))
def test_a_planted_bug_breaks_the_law(law: str, failure: CommitFailure, said: str, wrong: Verdict) -> None:
    """Laws CA1 to CA4. The first bug of CA2 ships, and breaks a law of the partition, too."""
    assert LAWS[law](failure, said, decided)
    assert not LAWS[law](failure, said, wrong)


def test_bad_input_is_refused() -> None:
    with pytest.raises(Misuse, match="why a commit has failed"):
        verdict("fenced", "", is_given_back=True)  # type: ignore[arg-type]
