from __future__ import annotations

from typing import Any, Final

import pytest

from tidegate.model.effects import Ambiguous, Effect, NotApplied, Now, Refused
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.reactive.planning import change_stream
from tidegate.reactive.planning.change_stream import (
    After,
    Broken,
    ChangeStreamConsumer,
    CommandDone,
    CommandFailed,
    Consuming,
    Fenced,
    Following,
    HandleChanged,
    Locate,
    Located,
    Page,
    PassLeft,
    Read,
    Received,
    Reconcile,
    ResetHistory,
    Save,
    StartTimer,
    Stopped,
    StreamFailed,
    TimerFired,
    event_for,
)

START: Final = After("t0")
CONSUMER: Final = ChangeStreamConsumer()


def test_an_event_says_what_became_of_a_command() -> None:
    save, plan, read, locate = Save(1, 0, START), HandleChanged(1, 0, "a", (1,)), Read(1, START), Locate(1)
    page = Page((), START)

    assert event_for(save, Refused("fenced")) == Fenced(save)
    assert event_for(ResetHistory(1, 1), Refused("fenced")) == Fenced(ResetHistory(1, 1))
    assert event_for(plan, Refused("no")) == event_for(plan, Ambiguous("?")) == CommandFailed(plan)
    assert event_for(plan, (1,)) == PassLeft(plan, (1,))
    assert event_for(save, None) == CommandDone(save)
    assert event_for(read, page) == Received(read, page)
    assert event_for(read, Broken(286)) == StreamFailed(read, 286)
    assert event_for(read, NotApplied("no connection")) == StreamFailed(read, None)
    assert event_for(locate, START) == Located(locate, START)
    assert event_for(locate, Ambiguous("?")) == CommandFailed(locate)
    assert event_for(StartTimer(plan, 1), None) == TimerFired(StartTimer(plan, 1))
    assert event_for(Reconcile(1, 0), None) is None


@pytest.mark.parametrize(
    ("command", "reply"), [(Read(1, START), None), (Locate(1), None), (Save(1, 0, START), "done"), (Now(), None)]
)
def test_what_is_not_an_answer_is_refused(command: Effect[object], reply: object) -> None:
    with pytest.raises(Misuse):
        _ = event_for(command, reply)


READ: Final = Read(1, START)
WRONG: Final[Any] = change_stream


@pytest.mark.parametrize(
    "event",
    [
        None,
        Locate(1),
        WRONG.Elected(0, 0, START),
        WRONG.Elected(1, -1, START),
        WRONG.Elected(1, 0, "t0"),
        WRONG.LeadershipLost(True),
        WRONG.Located(READ, START),
        WRONG.Located(Locate(1), "t0"),
        WRONG.Received(Locate(1), Page((), START)),
        WRONG.Received(READ, ((), START)),
        WRONG.StreamFailed(Locate(1), None),
        WRONG.StreamFailed(READ, "286"),
        WRONG.StreamFailed(READ, INT64_MAX + 1),
        WRONG.CommandDone(READ),
        WRONG.CommandFailed(READ),
        WRONG.PassLeft(READ, (1,)),
        WRONG.PassLeft(HandleChanged(1, 0, "a", (1,)), ()),
        WRONG.PassLeft(HandleChanged(1, 0, "a", (1,)), (2,)),
        WRONG.Fenced(Locate(1)),
        WRONG.TimerFired(Locate(1)),
    ],
)
def test_what_is_not_an_event_is_refused(event: Any) -> None:
    for state in (Following(), Consuming(1), Stopped()):
        with pytest.raises(Misuse):
            CONSUMER.step(state, event)
