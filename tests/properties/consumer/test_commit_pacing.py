"""When commits are sent, in which batches, and when a transaction's result arrives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise
from typing import Final, NamedTuple, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.committing import commit_pacing
from tidegate.consumer.committing.commit_pacing import Pace, Requests, asked, due, held_back
from tidegate.consumer.protocol.commands import Commit
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.records import TopicPartition

GAP: Final = 10

Course: TypeAlias = "list[tuple[int, Commit | bool]]"


class Sent(NamedTuple):
    at: int
    hurries: bool
    requests: Requests


def played(course: Course) -> list[Sent]:
    pace, now, wait, hurries = Pace(), 0, None, False
    found: list[Sent] = []

    def look() -> None:
        nonlocal pace, wait
        turn = due(pace, Instant(now), GAP, hurries=hurries)
        pace, wait = turn.pace, turn.wait
        found.extend([Sent(now, hurries, turn.requests)] if turn.requests else [])

    for after, event in [*course, (10 * GAP, True)]:
        then = now + after
        while wait is not None and now + wait <= then:
            now += wait
            look()
        wait, now = None if wait is None else wait - (then - now), then
        if isinstance(event, bool):
            hurries = event
        else:
            pace = asked(pace, event)
        look()
    return found


def asked_at(course: Course) -> list[tuple[int, Commit]]:
    at, found = 0, []
    for after, event in course:
        at += after
        found.extend([] if isinstance(event, bool) else [(at, event)])
    return found


def each_is_sent_once(course: Course, sent: list[Sent]) -> bool:
    """Law PC1."""
    commits = [each for one in sent for request in one.requests for each in request]
    wanted = [each for _, each in asked_at(course)]
    by_life = {(each.partition, each.generation) for each in wanted}
    return len(commits) == len(wanted) and all(
        [each for each in commits if (each.partition, each.generation) == life]
        == [each for each in wanted if (each.partition, each.generation) == life]
        for life in by_life
    )


def hurries_of(course: Course) -> list[tuple[int, int]]:
    at, began, found = 0, None, list[tuple[int, int]]()
    for after, event in [*course, (10 * GAP, False)]:
        at += after
        if event is True and began is None:
            began = at
        elif event is False and began is not None:
            found.append((began, at))
            began = None
    return found


def none_waits_for_longer(course: Course, sent: list[Sent]) -> bool:
    """Law PC2."""
    left, hurries = asked_at(course), hurries_of(course)
    before: int | None = None
    for at, _, requests in sent:
        for each in chain(*requests):
            since = next((when for when, commit in left if commit == each), at)
            rest = since if before is None else max(since, before + GAP)
            if at > min([rest, *(max(since, began) for began, ended in hurries if since < ended or since == began)]):
                return False
            left = [one for one in left if one != (since, each)]
        before = at
    return True


def nothing_is_sent_within_a_gap(_: Course, sent: list[Sent]) -> bool:
    """Law PC3."""
    return all(later.hurries or later.at >= before.at + GAP for before, later in pairwise(sent))


def a_request_is_of_one_generation(_: Course, sent: list[Sent]) -> bool:
    """Law PC4."""
    requests = [request for one in sent for request in one.requests]
    return all(
        len({each.generation for each in request}) == 1 and len({each.partition for each in request}) == len(request)
        for request in requests
    )


LAWS: Final = {
    "PC1": each_is_sent_once,
    "PC2": none_waits_for_longer,
    "PC3": nothing_is_sent_within_a_gap,
    "PC4": a_request_is_of_one_generation,
}


def commit(partition: int, generation: int, position: int) -> Commit:
    return Commit(TopicPartition("t", partition), generation, position)


COMMITS: Final = st.builds(commit, st.integers(0, 2), st.integers(1, 2), st.integers(0, 3))
COURSES: Final = st.lists(st.tuples(st.integers(0, GAP + 2), COMMITS | st.booleans()), max_size=12)
A, B, LATER, NEXT = commit(0, 1, 5), commit(1, 1, 6), commit(0, 1, 7), commit(1, 2, 6)
SPECIAL: Final[list[Course]] = [
    [(0, A), (0, B), (0, LATER), (0, NEXT)],
    [(0, A), (1, B), (1, LATER), (30, NEXT)],
    [(0, A), (1, B), (1, True), (0, LATER), (0, False), (1, B)],
    [(0, A), (1, LATER), (1, LATER)],
]


@given(COURSES)
@example(SPECIAL[0])
@example(SPECIAL[1])
@example(SPECIAL[2])
@example(SPECIAL[3])
def test_commits_wait_for_one_another_and_not_for_long(course: Course) -> None:
    """Laws PC1 to PC4."""
    sent = played(course)
    for name, law in LAWS.items():
        assert law(course, sent), f"{name}: {sent}"


NOW = "Turn(Pace(sent=now), _together(pace.waiting))"

test_a_planted_bug_is_found = planted(
    commit_pacing,
    bug(
        "the first only", (NOW, "Turn(Pace(sent=now), _together(pace.waiting)[:1])"),
        test_commits_wait_for_one_another_and_not_for_long, says="PC1",
    ),
    bug(
        "twice", (NOW, "Turn(Pace(pace.waiting if pace.sent is None else (), now), _together(pace.waiting))"),
        test_commits_wait_for_one_another_and_not_for_long, says="PC1",
    ),
    bug(
        "twice as long", ("held_back(pace.sent, now, gap,", "held_back(pace.sent, now, 2 * gap,"),
        test_commits_wait_for_one_another_and_not_for_long, says="PC2",
    ),
    bug(
        "never hurried", ("gap, hurries=hurries)", "gap, hurries=False)"),
        test_commits_wait_for_one_another_and_not_for_long, says="PC2",
    ),
    bug(
        "always hurried", ("gap, hurries=hurries)", "gap, hurries=True)"),
        test_commits_wait_for_one_another_and_not_for_long, says="PC3",
    ),
    bug(
        "all in one", ("tuple(map(tuple, requests.values()))", "(waiting,)"),
        test_commits_wait_for_one_another_and_not_for_long, says="PC4",
    ),
)  # fmt: skip


# --- transactions -------------------------------------------------------------------------------------------------------


def heard(committed: int, looks: list[tuple[int, bool]]) -> tuple[int, bool, list[int]]:
    """When the result arrives, whether there was a hurry then, and when there was one before."""
    now, hurries, hurried = committed, False, list[int]()
    for after, begins in [*looks, (10 * GAP, False)]:
        then = now + after
        while (wait := held_back(Instant(committed), Instant(now), GAP, hurries=hurries)) and now + wait <= then:
            now += wait
        if not wait:
            break
        now, hurries = then, begins
        hurried.extend([now] if hurries else [])
    return now, hurries, hurried


def hears_after_the_gap(committed: int, at: int, hurries: bool, _: list[int]) -> bool:
    """Law PC5."""
    return hurries or at >= committed + GAP


def hears_in_time(committed: int, at: int, _: bool, hurried: list[int]) -> bool:
    """Law PC6."""
    return at <= min([committed + GAP, *hurried])


OF_TRANSACTIONS: Final = {"PC5": hears_after_the_gap, "PC6": hears_in_time}
LOOKS: Final = st.lists(st.tuples(st.integers(0, GAP + 2), st.booleans()), max_size=4)


@given(st.integers(0, 50), LOOKS)
@example(7, [])
@example(7, [(3, True)])
@example(7, [(3, False), (3, False)])
def test_a_partition_hears_of_its_transaction_after_a_while(committed: int, looks: list[tuple[int, bool]]) -> None:
    """Laws PC5 and PC6, also while others give partitions back."""
    found = heard(committed, looks)
    for name, law in OF_TRANSACTIONS.items():
        assert law(committed, *found), f"{name}: {found}"


test_a_planted_bug_of_transactions_is_found = planted(
    commit_pacing,
    bug(
        "heard of at once", ("0 if hurries else min(max(gap - (now - before), 0), gap)", "0"),
        test_a_partition_hears_of_its_transaction_after_a_while, says="PC5",
    ),
    bug(
        "half of the gap", ("max(gap - (now", "max(gap // 2 - (now"),
        test_a_partition_hears_of_its_transaction_after_a_while, says="PC5",
    ),
    bug(
        "counted from each look", ("gap - (now - before)", "gap"),
        test_a_partition_hears_of_its_transaction_after_a_while, says="PC6",
    ),
    bug(
        "never in a hurry", ("0 if hurries else ", ""),
        test_a_partition_hears_of_its_transaction_after_a_while, says="PC6",
    ),
)  # fmt: skip


@given(st.integers(-20, 20))
def test_a_clock_that_went_back_holds_nothing_back_for_longer(since: int) -> None:
    """Law PC6, for a single run."""
    assert 0 <= held_back(Instant(50), Instant(50 + since), GAP, hurries=False) <= GAP


@pytest.mark.parametrize(
    "call",
    [
        lambda: asked(Pace(), "t-0@5"),  # type: ignore[arg-type]
        lambda: asked(A, A),  # type: ignore[arg-type]
        lambda: due(Pace(), Instant(0), -1, hurries=False),
        lambda: due(Pace(), 0, GAP, hurries=False),  # type: ignore[arg-type]
        lambda: due(Pace(), Instant(0), GAP, hurries=1),  # type: ignore[arg-type]
        lambda: due(A, Instant(0), GAP, hurries=True),  # type: ignore[arg-type]
        lambda: held_back(0, Instant(0), GAP, hurries=True),  # type: ignore[arg-type]
        lambda: held_back(Instant(0), 0, GAP, hurries=True),  # type: ignore[arg-type]
        lambda: held_back(Instant(0), Instant(0), -1, hurries=True),
        lambda: held_back(Instant(0), Instant(0), GAP, hurries=1),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_an_error(call: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        call()
