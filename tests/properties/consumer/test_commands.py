"""What becomes of a command: its event; and what is refused."""

from __future__ import annotations

from typing import Final

import pytest
from tests.properties.consumer.partition_helpers import TP

from tidegate.consumer.commands import (
    ANSWERS,
    METADATA_REFUSED,
    Command,
    Commit,
    CommitRefused,
    CommitsUnanswered,
    Committed,
    CommitUnknown,
    DrainTimerFired,
    Event,
    Fetch,
    Fetched,
    Handle,
    Interrupt,
    MetadataRefused,
    RecordsHandled,
    RecordsParked,
    Release,
    Request,
    RetryTimerFired,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkFailed,
    WorkReported,
    WorkUnanswered,
    event_for,
)
from tidegate.consumer.drain import Stage
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Judge,
    RecordsDelivered,
    Report,
    Start,
    Tally,
    TaskReplaced,
    Tasks,
    TasksReported,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
)
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, Cancel, Effect, NotApplied, NotDurable, Now, Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import find_one

FAILURES: Final = (Refused("no"), NotApplied("no"), Ambiguous("no"), NotDurable("no"))


def work(request: Request) -> Work:
    return Work(TP, 3, request, (5,))


TASKS: Final = Tasks(((5,),))
ASK: Final = (
    Arrange(0, (5,)),
    Start(0, (0,), 1),
    Judge(0, (0,), 1),
    DeliverTasks(0, (0,), 1),
    DeliverRecords(0, (5,)),
    DeliverWindow(0, Tally(0, 0, 0, 0)),
    Handle((5,), 2),
)
REPLIES: Final = (
    WindowArranged(0, TASKS),
    ArrangeFailed(0),
    TasksReported(0, (0,), 1, Report.FAILED),
    TaskReplaced(0, 0, 1, TASKS),
    RecordsDelivered(0, (5,)),
    WindowDelivered(0),
    RecordsHandled((5,), (7,)),
    RecordsParked((5,), 1),
)


@pytest.mark.parametrize(
    ("command", "reply", "event"),
    [
        (Fetch(TP, 3, 5), (5, 7), Fetched(TP, 3, (5, 7))),
        (Fetch(TP, 3, 5), (), Fetched(TP, 3, ())),
        *((Fetch(TP, 3, 5), failure, Fetched(TP, 3, ())) for failure in FAILURES),
        *(
            (work(request), failure, WorkFailed(TP, 3, request))
            for request in ASK
            for failure in (*FAILURES, ValueError("user"))
        ),
        *((work(request), KeyboardInterrupt(), WorkFailed(TP, 3, request)) for request in ASK),
        *((work(request), reply, WorkReported(TP, 3, reply, request)) for request in ASK for reply in REPLIES),
        (work(ASK[0]), TASKS, WorkReported(TP, 3, WindowArranged(0, TASKS), ASK[0])),
        (work(ASK[1]), None, WorkReported(TP, 3, TasksReported(0, (0,), 1, Report.SUCCEEDED), ASK[1])),
        *(
            (work(request), report, WorkReported(TP, 3, TasksReported(0, (0,), 1, report), request))
            for report, kind in ANSWERS.items()
            for request in ASK
            if type(request) is kind
        ),
        (work(ASK[3]), None, WorkReported(TP, 3, TasksReported(0, (0,), 1, Report.DELIVERED), ASK[3])),
        (work(ASK[4]), None, WorkReported(TP, 3, RecordsDelivered(0, (5,)), ASK[4])),
        (work(ASK[5]), None, WorkReported(TP, 3, WindowDelivered(0), ASK[5])),
        (work(ASK[6]), None, WorkReported(TP, 3, RecordsHandled((5,), (), 2), ASK[6])),
        (Commit(TP, 3, 5), None, Committed(TP, 3, 5)),
        (Commit(TP, 3, 5), Refused("no"), CommitRefused(TP, 3, 5)),
        (Commit(TP, 3, 5, "tg"), METADATA_REFUSED, MetadataRefused(TP, 3, 5)),
        *((Commit(TP, 3, 5), failure, CommitUnknown(TP, 3, 5)) for failure in FAILURES[1:]),
        *(
            (StartDrainTimer(TP, 3, Stage.WAITING, 5), reply, DrainTimerFired(TP, 3, Stage.WAITING))
            for reply in (None, *FAILURES)
        ),
        *(
            (StartRetryTimer(TP, 3, start, 5), reply, RetryTimerFired(TP, 3, start))
            for start in (None, Start(0, (0,), 2), Handle((0,), 2))
            for reply in (None, *FAILURES)
        ),
        *(
            (told, reply, None)
            for told in (WorkUnanswered(TP, 3, ASK[6]), CommitsUnanswered(TP, 3, 5, 4))
            for reply in (None, *FAILURES)
        ),
        *((Release(TP), reply, None) for reply in (None, *FAILURES)),
        *((kind(work(ASK[1])), reply, None) for kind in (Cancel, Interrupt) for reply in (None, *FAILURES)),
    ],
)
def test_every_reply_to_every_command_is_one_event(command: Command, reply: object, event: Event | None) -> None:
    """The only channel from commands back to the reducer: each kind of command with each kind of reply."""
    assert event_for(command, reply) == event


def test_a_commit_is_answered_by_nothing_or_a_failure() -> None:
    """Whatever else the handler of a commit answers is its bug, and not taken for a success."""
    with pytest.raises(Misuse, match="was answered by an int"):
        event_for(Commit(TP, 3, 5), 5)


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        (ASK[0], None),
        (ASK[2], None),
        *((request, 5) for request in ASK),
        *((request, report) for report, kind in ANSWERS.items() for request in ASK if type(request) is not kind),
        *((request, WindowOpened((5,))) for request in ASK),
    ],
)
def test_a_wrong_answer_is_refused(asked: Request, reply: object) -> None:
    """Else the partition would wait for ever for the right one: a judgement that says "succeeded", say."""
    with pytest.raises(Misuse, match="is not an answer to"):
        event_for(work(asked), reply)


@pytest.mark.parametrize("effect", [Now(), find_one("c", Eq(ID, "x"))])
def test_what_is_not_a_command_of_a_partition_has_no_event(effect: Effect[object]) -> None:
    """Only commands have events."""
    with pytest.raises(Misuse, match="command of a partition"):
        event_for(effect, None)
