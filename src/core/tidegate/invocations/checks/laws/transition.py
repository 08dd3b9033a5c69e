"""Laws of `tidegate.invocations.record.transition`, over a record's full history and the callers'
answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import final

import attrs

from tidegate.invocations.record.status import Accepted, StatusRecord, StatusTable, decide_transition
from tidegate.invocations.record.transition import Granted, TransitionOutcome, Unknown


@final
@attrs.frozen
class Version:
    """One version of a record, as a perfect observer sees it: status, request and owner."""

    record: StatusRecord
    request: str
    runner: str | None


@final
@attrs.frozen
class Answered:
    """The answer to a caller's request."""

    request: str
    answer: TransitionOutcome


def versions_are_consecutive(history: Sequence[Version]) -> bool:
    """Law TR1: each version is the one before plus one."""
    return all(after.record.version == before.record.version + 1 for before, after in pairwise(history))


def changes_are_legal(table: StatusTable, history: Sequence[Version]) -> bool:
    """Law TR2: each change is an edge of the table, by its owner where one is required."""
    return all(
        decide_transition(table, before.record, after.record.status, after.runner)
        == Accepted(after.record.status, after.record.owner, before.record.version + 1)
        for before, after in pairwise(history)
    )


def requests_count_once(history: Sequence[Version]) -> bool:
    """Law TR3: a request makes at most one version."""
    requests = [version.request for version in history]
    return len(set(requests)) == len(requests)


def answers_are_true(history: Sequence[Version], answered: Iterable[Answered]) -> bool:
    """Law TR4: granted if and only if the version was made by this very request."""
    made = {version.request: version.record.version for version in history}
    return all(
        isinstance(each.answer, Unknown)
        or made.get(each.request) == (each.answer.version if isinstance(each.answer, Granted) else None)
        for each in answered
    )


def versions_are_recorded(history: Sequence[Version]) -> bool:
    """Law TR6: each version is in the record's history under its request from the start."""
    return all(version.request for version in history)


def nothing_is_unknown(answered: Iterable[Answered]) -> bool:
    """Law TR5, while the history holds all versions and attempts suffice for the faults."""
    return not any(isinstance(each.answer, Unknown) for each in answered)


def requests_make_what_they_are_for(made: Iterable[tuple[str, str]]) -> bool:
    """Law TR7: for each request that made a version, its requested status and the one it made."""
    return all(asked == status for asked, status in made)
