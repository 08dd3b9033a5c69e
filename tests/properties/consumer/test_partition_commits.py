from __future__ import annotations

from tests.properties.consumer.partition_helpers import (
    TP,
    after,
    course,
    handle,
    succeeded,
)

from tidegate.consumer.partition.partition import (
    Owned,
    PartitionRules,
)
from tidegate.consumer.protocol.commands import (
    Assigned,
    Commit,
    CommitsUnanswered,
    Committed,
    CommitUnknown,
    Fetch,
    Fetched,
    Lost,
    MetadataRefused,
    Release,
    RetryTimerFired,
    Revoked,
    StartRetryTimer,
)
from tidegate.model.effects import Cancel
from tidegate.model.instants import SECOND


def test_metadata_that_is_refused_is_written_in_other_letters_and_then_not_at_all() -> None:
    rules = PartitionRules(2, replay_max=1)
    state = after(rules, Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2)), succeeded(1, 1))
    texts: list[str] = []
    for event in (MetadataRefused(TP, 1, 0), MetadataRefused(TP, 1, 0), succeeded(1, 2), succeeded(1, 0)):
        step = rules.step(state, event)
        assert isinstance(step.state, Owned)
        state = step.state
        texts += [command.metadata for command in step.commands if isinstance(command, Commit)]

    assert [text.isascii() for text in texts] == [True, True]
    assert texts[0]
    assert texts[1:] == [""]
    assert (state.commits.alphabet, state.commits.unrecorded) == (None, 0)


def test_a_commit_that_is_not_answered_is_made_again_with_its_metadata() -> None:
    rules = PartitionRules(2, replay_max=1)
    times_up = RetryTimerFired(TP, 1, None)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 1), CommitUnknown(TP, 1, 0), times_up)
    first, waits, again = course(rules, *happened)[2:]

    assert first == again
    assert waits == (StartRetryTimer(TP, 1, None, SECOND // 10),)
    assert isinstance(first[0], Commit)
    assert first[0].metadata


def test_commits_without_an_answer_are_ever_further_apart() -> None:
    """Law P12: up to the longest delay; an answer resets it."""
    rules = PartitionRules(2, replay_max=1)
    unanswered = (CommitUnknown(TP, 1, 0), RetryTimerFired(TP, 1, None))
    begun = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 1))
    commands = course(rules, *begun, *unanswered * 6, Committed(TP, 1, 0), succeeded(1, 0), CommitUnknown(TP, 1, 2))

    waits = [each.duration for step in commands for each in step if isinstance(each, StartRetryTimer)]
    assert waits == [100_000, 200_000, 400_000, 800_000, SECOND, SECOND, 100_000]


def test_a_commit_without_metadata_that_is_refused_for_it_backs_off() -> None:
    """Law P12. Once it was sent again at once, some hundred times a second."""
    rules = PartitionRules(2, metadata_max=0)
    begun = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 0))
    refused, again = course(rules, *begun, MetadataRefused(TP, 1, 1), RetryTimerFired(TP, 1, None))[3:]

    assert refused == (StartRetryTimer(TP, 1, None, SECOND // 10),)
    assert again == (Commit(TP, 1, 1),)


def test_a_commit_that_backs_off_is_made_before_the_partition_is_released() -> None:
    """Laws P5 and P12; later records are committed with it."""
    rules = PartitionRules(2, metadata_max=0)
    happened = (
        *(Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 0), CommitUnknown(TP, 1, 1), Revoked(TP)),
        *(succeeded(1, 1), RetryTimerFired(TP, 1, None), Committed(TP, 1, 2)),
    )
    commands = course(rules, *happened)

    assert commands[5:7] == [(), (Commit(TP, 1, 2),)]
    assert commands[7][-1] == Release(TP)


def test_a_timer_of_what_is_lost_is_cancelled() -> None:
    rules = PartitionRules(2, metadata_max=0)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), succeeded(1, 0), CommitUnknown(TP, 1, 1), Lost(TP))

    assert Cancel(StartRetryTimer(TP, 1, None, SECOND // 10)) in course(rules, *happened)[-1]


def test_what_the_former_owner_has_reported_is_not_done_again() -> None:
    rules = PartitionRules(9, replay_max=1)
    (commit,) = course(rules, Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2)), succeeded(1, 1))[-1]
    assert isinstance(commit, Commit)
    commanded = course(rules, Assigned(TP, 2, 0, commit.metadata, 3), Fetched(TP, 2, (0, 1, 2)))

    assert commanded[-1] == (Fetch(TP, 2, 3), handle(2, 0, 2))


def test_commits_that_have_no_answer_for_long_are_told_to_people() -> None:
    rules = PartitionRules(2, metadata_max=0)
    unanswered = (CommitUnknown(TP, 1, 1), RetryTimerFired(TP, 1, None))
    begun = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 0))
    commands = course(rules, *begun, *unanswered * 9, Committed(TP, 1, 1), succeeded(1, 1), CommitUnknown(TP, 1, 2))

    told = [each for step in commands for each in step if isinstance(each, CommitsUnanswered)]
    assert told == [CommitsUnanswered(TP, 1, 1, 4), CommitsUnanswered(TP, 1, 1, 8)]
