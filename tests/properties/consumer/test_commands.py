from __future__ import annotations

from typing import Final

import pytest
from tests.properties.consumer.partition_helpers import TP

from tidegate.consumer import fanout
from tidegate.consumer.flow.drain import Stage
from tidegate.consumer.protocol import commands
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, Cancel, Effect, NotApplied, NotDurable, Now, Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import find_one

FAILURES: Final = (Refused("no"), NotApplied("no"), Ambiguous("no"), NotDurable("no"))


def work(request: commands.Request) -> commands.Work:
    return commands.Work(TP, 3, request, (5,))


TASKS: Final = fanout.Tasks(((5,),))
ASK: Final = (
    fanout.Arrange(0, (5,)),
    fanout.Start(0, (0,), 1),
    fanout.Judge(0, (0,), 1),
    fanout.DeliverTasks(0, (0,), 1),
    fanout.DeliverRecords(0, (5,)),
    fanout.DeliverWindow(0, fanout.Tally(0, 0, 0, 0)),
    commands.Handle((5,), 2),
)
REPLIES: Final = (
    fanout.WindowArranged(0, TASKS),
    fanout.ArrangeFailed(0),
    fanout.TasksReported(0, (0,), 1, fanout.Report.FAILED),
    fanout.TaskReplaced(0, 0, 1, TASKS),
    fanout.RecordsDelivered(0, (5,)),
    fanout.WindowDelivered(0),
    commands.RecordsHandled((5,), (7,)),
    commands.RecordsParked((5,), 1),
)


@pytest.mark.parametrize(
    ("command", "reply", "event"),
    [
        (commands.Fetch(TP, 3, 5), (5, 7), commands.Fetched(TP, 3, (5, 7))),
        (commands.Fetch(TP, 3, 5), (), commands.Fetched(TP, 3, ())),
        *((commands.Fetch(TP, 3, 5), failure, commands.Fetched(TP, 3, ())) for failure in FAILURES),
        *(
            (work(request), failure, commands.WorkFailed(TP, 3, request))
            for request in ASK
            for failure in (*FAILURES, ValueError("user"))
        ),
        *((work(request), KeyboardInterrupt(), commands.WorkFailed(TP, 3, request)) for request in ASK),
        *((work(request), reply, commands.WorkReported(TP, 3, reply, request)) for request in ASK for reply in REPLIES),
        (work(ASK[0]), TASKS, commands.WorkReported(TP, 3, fanout.WindowArranged(0, TASKS), ASK[0])),
        (
            work(ASK[1]),
            None,
            commands.WorkReported(TP, 3, fanout.TasksReported(0, (0,), 1, fanout.Report.SUCCEEDED), ASK[1]),
        ),
        *(
            (work(request), report, commands.WorkReported(TP, 3, fanout.TasksReported(0, (0,), 1, report), request))
            for report, kind in commands.ANSWERS.items()
            for request in ASK
            if type(request) is kind
        ),
        (
            work(ASK[3]),
            None,
            commands.WorkReported(TP, 3, fanout.TasksReported(0, (0,), 1, fanout.Report.DELIVERED), ASK[3]),
        ),
        (work(ASK[4]), None, commands.WorkReported(TP, 3, fanout.RecordsDelivered(0, (5,)), ASK[4])),
        (work(ASK[5]), None, commands.WorkReported(TP, 3, fanout.WindowDelivered(0), ASK[5])),
        (work(ASK[6]), None, commands.WorkReported(TP, 3, commands.RecordsHandled((5,), (), 2), ASK[6])),
        (commands.Commit(TP, 3, 5), None, commands.Committed(TP, 3, 5)),
        (commands.Commit(TP, 3, 5), Refused("no"), commands.CommitRefused(TP, 3, 5)),
        (commands.Commit(TP, 3, 5, "tg"), commands.METADATA_REFUSED, commands.MetadataRefused(TP, 3, 5)),
        *((commands.Commit(TP, 3, 5), failure, commands.CommitUnknown(TP, 3, 5)) for failure in FAILURES[1:]),
        *(
            (commands.StartDrainTimer(TP, 3, Stage.WAITING, 5), reply, commands.DrainTimerFired(TP, 3, Stage.WAITING))
            for reply in (None, *FAILURES)
        ),
        *(
            (commands.StartRetryTimer(TP, 3, start, 5), reply, commands.RetryTimerFired(TP, 3, start))
            for start in (None, fanout.Start(0, (0,), 2), commands.Handle((0,), 2))
            for reply in (None, *FAILURES)
        ),
        *(
            (told, reply, None)
            for told in (commands.WorkUnanswered(TP, 3, ASK[6]), commands.CommitsUnanswered(TP, 3, 5, 4))
            for reply in (None, *FAILURES)
        ),
        *((commands.Release(TP), reply, None) for reply in (None, *FAILURES)),
        *((kind(work(ASK[1])), reply, None) for kind in (Cancel, commands.Interrupt) for reply in (None, *FAILURES)),
    ],
)
def test_every_reply_to_every_command_is_one_event(
    command: commands.Command, reply: object, event: commands.Event | None
) -> None:
    """The only channel from commands to the reducer."""
    assert commands.event_for(command, reply) == event


def test_a_commit_is_answered_by_nothing_or_a_failure() -> None:
    with pytest.raises(Misuse, match="was answered by an int"):
        commands.event_for(commands.Commit(TP, 3, 5), 5)


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        (ASK[0], None),
        (ASK[2], None),
        *((request, 5) for request in ASK),
        *(
            (request, report)
            for report, kind in commands.ANSWERS.items()
            for request in ASK
            if type(request) is not kind
        ),
        *((request, fanout.WindowOpened((5,))) for request in ASK),
    ],
)
def test_a_wrong_answer_is_refused(asked: commands.Request, reply: object) -> None:
    """Otherwise the partition would wait for ever."""
    with pytest.raises(Misuse, match="is not an answer to"):
        commands.event_for(work(asked), reply)


@pytest.mark.parametrize("effect", [Now(), find_one("c", Eq(ID, "x"))])
def test_what_is_not_a_command_of_a_partition_has_no_event(effect: Effect[object]) -> None:
    with pytest.raises(Misuse, match="command of a partition"):
        commands.event_for(effect, None)
