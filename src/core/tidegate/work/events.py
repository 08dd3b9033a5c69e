"""The events of a worker process: replies to its commands, and other events."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import Instant
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.work.vocabulary import (
    CapacityGranted,
    Dues,
    Ended,
    Heartbeat,
    HeartbeatReply,
    Interrupt,
    InterruptReason,
    Leave,
    Poll,
    PollGroup,
    PollResult,
    Renewal,
    RenewLeases,
    Result,
    Resume,
    ReturnUntracked,
    Run,
    StartHandlers,
    StartTimer,
    WriteReply,
    WriteResults,
)  # fmt: skip

_R = TypeVar("_R")
_ASKED: Final = (InterruptReason.CANCEL, InterruptReason.KILL, InterruptReason.LOST)


@final
@attrs.frozen
class TimerFired:
    """The timer has fired; also the first event."""

    at: Instant


@final
@attrs.frozen
class PollCompleted:
    """A poll has ended, or the claim of a planner instead of one."""

    at: Instant
    command: Poll | CapacityGranted
    result: PollResult = attrs.field(factory=PollResult)


@final
@attrs.frozen
class GroupPolled:
    """The poll of a group has ended.

    `dues` are the queues with due work, and after how long, in microseconds; empty after a failure.
    """

    at: Instant
    command: PollGroup
    dues: Dues = ()


@final
@attrs.frozen
class HandlersEnded:
    """Handlers have ended, each with its answer, or with `NO_ANSWER`."""

    at: Instant
    ended: Ended


@final
@attrs.frozen
class ResultsWritten:
    """A request to write results has ended."""

    at: Instant
    command: WriteResults
    reply: WriteReply = attrs.field(factory=WriteReply)


@final
@attrs.frozen
class ResultsRefused:
    """The store refuses these results, or one of them."""

    at: Instant
    command: WriteResults


@final
@attrs.frozen
class LeasesRenewed:
    """The results of renewals, in the order of the runs."""

    at: Instant
    command: RenewLeases
    renewals: tuple[Renewal, ...]


@final
@attrs.frozen
class UntrackedReturned:
    """The number of untracked claims given back; 0 also without a reply."""

    at: Instant
    command: ReturnUntracked
    number: int = 0


@final
@attrs.frozen
class HeartbeatAcked:
    """A heartbeat has ended; `is_alive` is None if unknown."""

    at: Instant
    command: Heartbeat
    is_alive: bool | None
    reply: HeartbeatReply = attrs.field(factory=HeartbeatReply)


@final
@attrs.frozen
class Left:
    """The membership has ended, or its end is unknown."""

    at: Instant


@final
@attrs.frozen
class WorkAnnounced:
    """Work of a queue is due, at that time; None for now."""

    at: Instant
    queue: str
    due: Instant | None = None


@final
@attrs.frozen
class CapacityRequested:
    """A planner in this process asks how many records of a queue it may claim while it plans them.

    `CapacityGranted` replies once. Then the planner sends `PollCompleted`, even if it claimed none.
    `request` is a unique id, `most` the number of planned records.
    """

    at: Instant
    queue: str
    most: int
    request: str


@final
@attrs.frozen
class QueuesPaused:
    """These queues, and no others, are paused from now on."""

    at: Instant
    queues: frozenset[str]


@final
@attrs.frozen
class QueueThrottled:
    """A queue is not polled until then; the latest of several times counts."""

    at: Instant
    queue: str
    until: Instant


@final
@attrs.frozen
class RunSuspended:
    """A handler waits for other runs, and needs no slot meanwhile."""

    at: Instant
    run: Run


@final
@attrs.frozen
class ResumeRequested:
    """A suspended handler has finished waiting and needs a slot."""

    at: Instant
    run: Run


@final
@attrs.frozen
class StopRequested:
    """The worker must stop; a second request ends its handlers' time at once."""

    at: Instant


WorkerEvent: TypeAlias = (
    TimerFired | PollCompleted | GroupPolled | HandlersEnded | ResultsWritten | ResultsRefused | LeasesRenewed | UntrackedReturned
    | HeartbeatAcked | Left | WorkAnnounced | CapacityRequested | QueuesPaused | QueueThrottled | RunSuspended | ResumeRequested
    | StopRequested
)  # fmt: skip


def work_event_for(command: Effect[object], reply: object, at: Instant) -> WorkerEvent | None:
    """Return the event for the reply to a command; None for a command without a reply.

    Args:
        command: The command.
        reply: The reply, or a Failure; for `StartHandlers` the ended runs, each with its answer.
        at: The machine's monotonic clock, read AFTER the reply.
    """
    check_type(at, Instant, "the time")

    def known(failed: _R) -> _R:
        return failed if isinstance(reply, Failure) else cast("_R", reply)

    event: WorkerEvent
    match command:
        case Poll():
            event = PollCompleted(at, command, known(PollResult(has_failed=True, is_uncertain=True)))
        case PollGroup():
            event = GroupPolled(at, command, known(()))
        case StartHandlers():
            event = HandlersEnded(at, cast("Ended", reply))
        case WriteResults() if isinstance(reply, Refused):
            event = ResultsRefused(at, command)
        case WriteResults(_, results):
            event = ResultsWritten(at, command, known(WriteReply(results)))
        case RenewLeases(_, runs):
            event = LeasesRenewed(at, command, known((Renewal.UNKNOWN,) * len(runs)))
        case ReturnUntracked():
            event = UntrackedReturned(at, command, known(0))
        case Heartbeat() if isinstance(reply, Failure):
            event = HeartbeatAcked(at, command, None)
        case Heartbeat():
            told = HeartbeatReply() if reply is None else cast("HeartbeatReply", reply)
            event = HeartbeatAcked(at, command, reply is not None, told)
        case Leave():
            event = Left(at)
        case StartTimer():
            event = TimerFired(at)
        case Interrupt() | Resume() | CapacityGranted():
            return None
        case _:
            raise Misuse(f"{typed(command)} is not a command of a worker")
    check_event(event)
    return event


_CHECKS: Final[Mapping[type, Mapping[str, tuple[type | tuple[type, ...], str]]]] = {
    TimerFired: {},
    PollCompleted: {"command": ((Poll, CapacityGranted), "a poll"), "result": (PollResult, "the result of a poll")},
    GroupPolled: {"command": (PollGroup, "the poll of a group"), "dues": (tuple, "what is due")},
    HandlersEnded: {"ended": (tuple, "how handlers have ended")},
    ResultsWritten: {"command": (WriteResults, "a request to write results"), "reply": (WriteReply, "its reply")},
    ResultsRefused: {"command": (WriteResults, "a request to write results")},
    LeasesRenewed: {"command": (RenewLeases, "a renewal"), "renewals": (tuple, "what became of renewals")},
    UntrackedReturned: {"command": (ReturnUntracked, "a request to give back"), "number": (int, "a number of claims")},
    HeartbeatAcked: {
        "command": (Heartbeat, "a heartbeat"),
        "is_alive": ((bool, NoneType), "whether a member is alive"),
        "reply": (HeartbeatReply, "the reply to a heartbeat"),
    },
    Left: {},
    WorkAnnounced: {"queue": (str, "a queue"), "due": ((Instant, NoneType), "the time at which something is due")},
    CapacityRequested: {"queue": (str, "a queue"), "most": (int, "a number of records"), "request": (str, "a request")},
    QueuesPaused: {"queues": (frozenset, "the queues that are paused")},
    QueueThrottled: {"queue": (str, "a queue"), "until": (Instant, "the time until which it is throttled")},
    RunSuspended: {"run": (Run, "a run")},
    ResumeRequested: {"run": (Run, "a run")},
    StopRequested: {},
}
"""The type of each field of each event, and its name in messages."""


def check_event(event: object) -> None:
    check_type(event, tuple(_CHECKS), "an event of a worker")
    check_type(getattr(event, "at", None), Instant, "the time")
    for name, (kinds, what) in _CHECKS[type(event)].items():
        check_type(getattr(event, name), kinds, what)
    match event:
        case PollCompleted(_, _, result):
            check_tuple(result.runs, Run, "a run")
        case GroupPolled(_, _, dues):
            _check_pairs(dues, "a queue, and after how long something of it is due")
            for name, after in dues:
                check_name(name, "a queue")
                check_int(after, "a time in microseconds", 0)
        case HandlersEnded(_, ended):
            _check_pairs(ended, "a run and its answer")
            check_tuple(tuple(run for run, _ in ended), Run, "a run")
        case ResultsWritten(_, _, reply):
            check_tuple(reply.left, Result, "a result")
            check_tuple(reply.lost, Result, "a result")
        case LeasesRenewed(_, command, renewals):
            check_tuple(renewals, Renewal, "what became of a renewal")
            check_int(len(renewals), "the number of renewals", len(command.runs), len(command.runs))
        case HeartbeatAcked(_, _, _, reply):
            check_type(reply.untracked, tuple, "the other claims of a process")
            _check_pairs(reply.asked, "a run and what was asked of it")
            for run, why in reply.asked:
                check_type(run, Run, "a run")
                if why not in _ASKED:
                    raise Misuse(f"{typed(why)} is nothing that is asked of a run")
        case CapacityRequested(_, _, most):
            check_int(most, "a number of records", 1)
        case _:
            pass


def _check_pairs(pairs: tuple[tuple[object, ...], ...], what: str) -> None:
    check_tuple(pairs, tuple, what)
    for each in pairs:
        if len(each) != 2:
            check_int(len(each), "the length of a pair", 2, 2)
