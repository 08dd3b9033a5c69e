"""Laws of `tidegate.invocations.admin.commands`, over records, ends of runs, and results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.invocations.admin.commands import NEVER, Asked, Command
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import DUE, HELD, STATUS, viewed
from tidegate.model.documents import Document


def each_is_counted_once(answered: Asked, meant: int, as_asked: int) -> bool:
    """Law AK1: each selected invocation is counted once, and each reported change was made.

    Args:
        answered: The result of the whole command.
        meant: How many were selected.
        as_asked: How many are, or were, in the requested state.
    """
    counted = answered.done + answered.told + answered.left + answered.unknown + answered.unreadable
    return counted == meant and answered.done <= as_asked


def what_has_ended_stays(statuses: Sequence[str]) -> bool:
    """Law AK2: an end is the last status.

    Args:
        statuses: Those of an invocation, in order.
    """
    return not any(INVOCATION[status].final for status in statuses[:-1])


def what_was_told_is_obeyed(record: Document) -> bool:
    """Law AK2: at rest, an invocation that a runner was told to cancel has ended.

    Args:
        record: Its record.
    """
    return INVOCATION[record[STATUS]].final


def a_kill_is_of_one_run(kills: int, killed: int) -> bool:
    """Law AK3: no more runs are killed than requested.

    Args:
        kills: The number of requests.
        killed: The number of killed runs.
    """
    return killed <= kills


def held_is_not_due(record: Document) -> bool:
    """Law AK4: a held invocation waits and has no due time.

    Args:
        record: The record of an invocation.
    """
    return not record.has(HELD) or (record.get(DUE) == NEVER and INVOCATION[record[STATUS]].available)


def released_is_due_again(record: Document) -> bool:
    """Law AK4: at rest, an invocation that was released last is not held.

    Args:
        record: The record of a released invocation.
    """
    return not record.has(HELD) and record.get(DUE) != NEVER


def one_copy_at_most(copies: Collection[Document], before: Document, after: Document) -> bool:
    """Law AK5: an ended invocation has at most one copy, and is unchanged.

    Args:
        copies: Its copies.
        before: The record at its end.
        after: The record since.
    """
    return len(copies) <= 1 and viewed(before) == viewed(after)


def what_is_possible_is_done(possible: Collection[Command], asked: Mapping[Command, Asked]) -> bool:
    """Law AK6: exactly the possible commands are carried out or reported.

    Args:
        possible: The commands reported as possible.
        asked: The result of each command for the same unchanged invocation.
    """
    return {*possible} == {command for command, answered in asked.items() if answered.done + answered.told}
