"""Laws of `tidegate.reactive.admin.commands` and `.pausing`, over records, commands and results."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.model.documents import Document, Field
from tidegate.reactive.admin.commands import Retried
from tidegate.reactive.record.task_documents import NEXT_RUN_AT

_OWNER = Field[str]("owner")


def reset_is_what_is_said(resets: int, answered: Retried, meant: int) -> bool:
    """Law DK1: each selected record is reset at most once, and counted once.

    Args:
        resets: How many writes of the command made a version of a record.
        answered: The result.
        meant: How many records were selected.
    """
    counted = answered.reset + answered.changed + answered.unknown + answered.unreadable
    return answered.reset <= resets <= answered.reset + answered.unknown and counted == meant


def what_was_reset_runs(answered: Retried, ran: int) -> bool:
    """Law DK2: at rest, a reset record has run since.

    Args:
        answered: The result.
        ran: How many records were handled since their reset.
    """
    return ran >= answered.reset


def a_reset_takes_nothing(before: Document, after: Document) -> bool:
    """Law DK3: a worker that processes a record keeps it, and its lease.

    Args:
        before: The record.
        after: The record after the reset.
    """
    kept = (before.held(_OWNER), before.held(NEXT_RUN_AT)) == (after.held(_OWNER), after.held(NEXT_RUN_AT))
    return not before.has(_OWNER) or kept


def what_is_said_stays(said: Collection[tuple[str, bool]], paused: Collection[str]) -> bool:
    """Law PS1: the last result about a task is true.

    Args:
        said: Tasks, and whether the last result was that they are paused.
        paused: The paused tasks.
    """
    return all((task in paused) is is_paused for task, is_paused in said)
