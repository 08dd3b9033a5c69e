"""Answers the requests of a window for a handler of batches.

A handler of batches gets the records of a window together, and succeeds or fails as a whole. In
`tidegate.consumer.fanout` that is a window of one task, retried while attempts are left:

    request             answer
    arrange a window    one task, for all of its records
    run that task       call the handler: the task has succeeded, or failed
    judge its failure   retry; the partition bounds the attempts (`fanout.Rules.retries_max`)
    deliver             None: a handler's answers were sent before its task ended

Laws
    BT1  A window is one task, of all its records in their order: no record is handled alone or left
         out.
    BT2  A failed task is retried; it is neither skipped nor replaced.
    BT3  Every request has an answer that fits it (`tidegate.consumer.protocol.commands.event_for`).
    BT4  A call counts as a whole: one that returned has handled all of its records; one that raised
         has failed once and handled none; one that was interrupted did neither.
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
    """Call the handler with all records of the request, at this attempt; return or raise as it
    does.
    """

    attempt: int


@final
@attrs.frozen
class Nothing:
    """Reply None: there is no work."""


BatchAnswer: TypeAlias = Tasks | Report | RunBatch | Nothing
"""The answer to a request of a window; for a RunBatch, the handler's result."""


@final
@unique
class CallEnd(Enum):
    """The end of a handler call."""

    RETURNED = "it has returned"
    RAISED = "it has raised"
    INTERRUPTED = "it was interrupted"


@final
class Counted(NamedTuple):
    """The number of handled records, and of failed calls."""

    handled: int = 0
    failures: int = 0


def batch_answer(request: UserRequest) -> BatchAnswer:
    """The answer to a request of a window.

    Raises:
        Misuse: It is not a request of a window.
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
    """The counts of one handler call.

    Args:
        records: The number of its records.
        end: How it has ended.

    Raises:
        Misuse: An argument has a wrong type, or the number is negative.
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
