"""What is a batch to the windows of a partition?

A handler of batches gets the records of a window together, and answers for all of them. To `tidegate.consumer.fanout`, where a
window has tasks, that is a window of one task, which is tried again as often as it may be:

    what is asked       what is answered
    arrange a window    one task, for all of its records
    run that task       what the handler comes to: the task has succeeded, or failed
    judge its failure   try it again; whoever bounds that is the partition (`fanout.Rules.retries_max`)
    deliver             there is nothing to deliver: what a handler answers with was sent before its task has ended

Laws
    BT1  A window is one task, of all its records, in their order: no record is handled alone, or left out.
    BT2  What has failed is tried again; nothing is skipped, and nothing else is put in its place.
    BT3  Every request has an answer that the window takes for one (`tidegate.consumer.commands.event_for`).
    BT4  It counts as a whole: a call that returned has handled all of its records, and none has failed; a call that raised has
         failed once, and handled none; a call that was interrupted did neither.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple, TypeAlias, assert_never, final

import attrs

from tidegate.consumer.fanout import (
    Arrange,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Judge,
    Report,
    Start,
    Tasks,
    UserRequest,
)
from tidegate.model.values import check_int, check_type


@final
@attrs.frozen
class RunBatch:
    """Call the handler with all records that the request is about, at this attempt; return, or raise, as it does."""

    attempt: int


@final
@attrs.frozen
class Nothing:
    """Reply None: there is nothing to do."""


BatchAnswer: TypeAlias = Tasks | Report | RunBatch | Nothing
"""What a window is answered; a RunBatch, by what the handler comes to."""


@final
@unique
class CallEnd(Enum):
    """How a call of a handler has ended."""

    RETURNED = "it has returned"
    RAISED = "it has raised"
    INTERRUPTED = "it was interrupted"


@final
class Counted(NamedTuple):
    """What counts: so many records are handled, so many calls have failed."""

    handled: int = 0
    failures: int = 0


def batch_answer(request: UserRequest) -> BatchAnswer:
    """What a window is answered that asks for this.

    Args:
        request: What is asked.

    Raises:
        Misuse: It is no request of a window.
    """
    check_type(request, (Arrange, Start, Judge, DeliverTasks, DeliverRecords, DeliverWindow), "a request of a window")
    match request:
        case Arrange(_, offsets):
            return Tasks((offsets,))
        case Start(attempt=attempt):
            return RunBatch(attempt)
        case Judge():
            return Report.RETRIED
        case DeliverTasks() | DeliverRecords() | DeliverWindow():
            return Nothing()
        case _:
            assert_never(request)


def counted(records: int, end: CallEnd) -> Counted:
    """What a call with so many records counts for.

    Args:
        records: How many it was given.
        end: How it has ended.

    Raises:
        Misuse: An argument is of another type, or the number negative.
    """
    check_int(records, "a number of records", 0)
    check_type(end, CallEnd, "how a call has ended")
    match end:
        case CallEnd.RETURNED:
            return Counted(handled=records)
        case CallEnd.RAISED:
            return Counted(failures=1)
        case CallEnd.INTERRUPTED:
            return Counted()
