"""Laws of `tidegate.reactive.admin.commands` and `tidegate.reactive.admin.pausing`, over records, what was done to them, and what was answered."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.model.documents import Document, Field
from tidegate.reactive.admin.commands import Retried
from tidegate.reactive.record.task_documents import NEXT_RUN_AT

_OWNER = Field[str]("owner")


def reset_is_what_is_said(resets: int, answered: Retried, meant: int) -> bool:
    """Law DK1: each record that is meant is reset once at most, and counted once.

    Args:
        resets: How many writes of the request have made a version of a record.
        answered: What was answered.
        meant: How many records there were to reset.
    """
    counted = answered.reset + answered.changed + answered.unknown + answered.unreadable
    return answered.reset <= resets <= answered.reset + answered.unknown and counted == meant


def what_was_reset_runs(answered: Retried, ran: int) -> bool:
    """Law DK2: at rest, what was reset has run since.

    Args:
        answered: What was answered.
        ran: How many records were handled since they were reset.
    """
    return ran >= answered.reset


def a_reset_takes_nothing(before: Document, after: Document) -> bool:
    """Law DK3: who processes a record keeps it, and its lease.

    Args:
        before: The record.
        after: The record after it was reset.
    """
    kept = (before.held(_OWNER), before.held(NEXT_RUN_AT)) == (after.held(_OWNER), after.held(NEXT_RUN_AT))
    return not before.has(_OWNER) or kept


def what_is_said_stays(said: Collection[tuple[str, bool]], paused: Collection[str]) -> bool:
    """Law PS1: what was answered of a task is so.

    Args:
        said: Tasks, and whether it was last answered that they are paused.
        paused: What is paused.
    """
    return all((task in paused) is is_paused for task, is_paused in said)
