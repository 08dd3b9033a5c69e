"""Laws of `tidegate.invocations.admin.commands`, over records, what became of runs, and what was answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.invocations.admin.commands import NEVER, Asked, Command
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.record_documents import DUE, HELD, STATUS, viewed
from tidegate.model.documents import Document


def each_is_counted_once(answered: Asked, meant: int, as_asked: int) -> bool:
    """Law AK1: each that is meant is counted once, and what is said to be done is.

    Args:
        answered: What was answered, to its end.
        meant: How many there were.
        as_asked: How many are, or were, as was asked for.
    """
    counted = answered.done + answered.told + answered.left + answered.unknown + answered.unreadable
    return counted == meant and answered.done <= as_asked


def what_has_ended_stays(statuses: Sequence[str]) -> bool:
    """Law AK2: nothing comes after an end.

    Args:
        statuses: Those of an invocation, in their order.
    """
    return not any(INVOCATION[status].final for status in statuses[:-1])


def what_was_told_is_obeyed(record: Document) -> bool:
    """Law AK2: at rest, what a runner was asked to cancel is over.

    Args:
        record: That of an invocation that a runner was asked to cancel.
    """
    return INVOCATION[record[STATUS]].final


def a_kill_is_of_one_run(kills: int, killed: int) -> bool:
    """Law AK3: no more runs are killed than was asked for.

    Args:
        kills: How often a kill was asked for.
        killed: How many runs were killed.
    """
    return killed <= kills


def held_is_not_due(record: Document) -> bool:
    """Law AK4: what is held waits, and is due at no time.

    Args:
        record: That of an invocation.
    """
    return not record.has(HELD) or (record.get(DUE) == NEVER and INVOCATION[record[STATUS]].available)


def released_is_due_again(record: Document) -> bool:
    """Law AK4: at rest, what was released last is not held.

    Args:
        record: That of an invocation that was released.
    """
    return not record.has(HELD) and record.get(DUE) != NEVER


def one_copy_at_most(copies: Collection[Document], before: Document, after: Document) -> bool:
    """Law AK5: there is one copy at most of what has ended, and that is as it was.

    Args:
        copies: Those that repeat it.
        before: The record, when it had ended.
        after: The record since.
    """
    return len(copies) <= 1 and viewed(before) == viewed(after)


def what_is_possible_is_done(possible: Collection[Command], asked: Mapping[Command, Asked]) -> bool:
    """Law AK6: what is possible, and nothing else, is done or told.

    Args:
        possible: What is said to be.
        asked: What each command was answered, of the same invocation as it was.
    """
    return {*possible} == {command for command, answered in asked.items() if answered.done + answered.told}
