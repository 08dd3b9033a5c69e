"""Payloads wait for one sink. Which one is tried now, so that a sink that is away is not asked by all of them?"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.sinks import outbox as outboxes
from tidegate.sinks.circuit_breaker import AttemptOutcome, CircuitBreaker, Closed, Open
from tidegate.sinks.laws import outbox as laws
from tidegate.sinks.outbox import (
    AttemptEnded,
    Deliver,
    OutboxEvent,
    OutboxRules,
    OutboxState,
    StartTimer,
    Submitted,
    TimerFired,
)

RIGHT = OutboxRules(CircuitBreaker(threshold=2, cooldown=10 * SECOND), most=2)
SUBMITTED = tuple(range(5))


def at(seconds: int) -> Instant:
    return Instant(seconds * SECOND, WALL)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.sampled_from(AttemptOutcome)), max_size=30))
def test_payloads_are_held_back_and_woken(course: list[tuple[int, int, AttemptOutcome]]) -> None:
    """Laws CU1, CU2 and CU3, and CB1 and CB4 in company, for any course of attempts, timers and time."""
    now, answered, timer = at(0), set[int](), None
    outbox = RIGHT.step(OutboxState(), Submitted(SUBMITTED, now)).state
    for wait, which, outcome in course:
        now += wait * SECOND
        event: OutboxEvent
        if timer is not None and timer - now <= 0:
            event, timer = TimerFired(now), None
        elif outbox.under_way:
            number, era = outbox.under_way[which % len(outbox.under_way)]
            event = AttemptEnded(number, era, outcome, now)
            answered |= {number} if outcome is AttemptOutcome.ANSWERED else set()
        else:
            continue
        before, done = outbox, RIGHT.step(outbox, event)
        outbox = done.state
        for command in done.commands:
            timer = command.until if isinstance(command, StartTimer) else timer

        assert laws.settled_was_answered(SUBMITTED, outbox, answered)
        assert laws.is_woken(RIGHT.breaker, outbox, now)
        assert laws.is_probed_by_one(outbox, RIGHT.most)
        assert laws.waits_while_open(before, done.commands, now)
        assert laws.ignores_other_eras(before, outbox, now)
        assert outbox.is_timed is (timer is not None)


UNASKED: Final = OutboxState(Open(2, at(10)), waiting=(7,), under_way=((8, 0), (9, 1)), is_timed=True)


@given(st.integers(0, 5), st.integers(0, 3), st.sampled_from(AttemptOutcome))
def test_what_nobody_asked_for_changes_nothing(number: int, era: int, outcome: AttemptOutcome) -> None:
    """Law CU4."""
    assert laws.ignores_what_nobody_asked(UNASKED, RIGHT.step(UNASKED, AttemptEnded(number, era, outcome, at(1))))


# The other laws are broken by specimens that ship.
test_a_planted_bug_is_found = planted(
    outboxes,
    bug("whatever ends was under way", ("if (number, era) not in state.under_way:", "if False:"), test_what_nobody_asked_for_changes_nothing),
    bug(
        "what ends makes room, whoever made it",
        ("under_way:\n                    return Step(state)", "under_way:\n                    return Step(state, (Deliver(7, 2),))"),
        test_what_nobody_asked_for_changes_nothing,
    ),
)  # fmt: skip


def test_an_attempt_that_was_not_made_is_made_again() -> None:
    """It says nothing of the sink."""
    outbox = RIGHT.step(OutboxState(), Submitted((3,), at(0))).state
    done = RIGHT.step(outbox, AttemptEnded(3, 0, AttemptOutcome.NOT_TRIED, at(1)))
    assert (done.state, done.commands) == (outbox, (Deliver(3, 0),))
    assert done.state.circuit == Closed()


def test_values_say_what_they_are() -> None:
    """One line each, and what is not a value is refused."""
    assert [
        *map(
            str,
            (Deliver(1, 2), StartTimer(at(3)), Submitted((1, 2), at(0)), TimerFired(at(0)), OutboxState(waiting=(1,))),
        )
    ] == [
        "deliver payload 1 (era 2)",
        f"wake at {at(3)}",
        "2 payloads submitted",
        "the timer fired",
        "Closed(era=0, unanswered=0), 1 wait, 0 under way",
    ]
    assert str(AttemptEnded(1, 2, AttemptOutcome.ANSWERED, at(0))) == "payload 1: the sink took or refused it (era 2)"
    with pytest.raises(Misuse, match="a number of attempts"):
        OutboxRules(most=0)


@pytest.mark.parametrize(
    "event",
    [
        None,
        Submitted([1], at(0)),  # type: ignore[arg-type]
        Submitted((-1,), at(0)),
        Submitted((True,), at(0)),
        Submitted((1,), 0),  # type: ignore[arg-type]
        AttemptEnded(-1, 0, AttemptOutcome.ANSWERED, at(0)),
        AttemptEnded(0, True, AttemptOutcome.ANSWERED, at(0)),
        AttemptEnded(0, 0, "answered", at(0)),  # type: ignore[arg-type]
        TimerFired(None),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_an_event_is_refused(event: OutboxEvent) -> None:
    """Each field is looked at by `step`."""
    with pytest.raises(Misuse):
        RIGHT.step(OutboxState(), event)
