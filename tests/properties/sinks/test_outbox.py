"""Payloads wait for one sink. Which one is tried now, so that a sink that is away is not asked by all of them?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.sinks.circuit_breaker import AttemptOutcome, CircuitBreaker, Closed, Open
from tidegate.sinks.laws import outbox as laws
from tidegate.sinks.outbox import Deliver, Given, Heard, OutboxEvent, OutboxRules, OutboxState, Wake, Woken

RIGHT = OutboxRules(CircuitBreaker(threshold=2, cooldown=10 * SECOND), most=2)
GIVEN = tuple(range(5))


def at(seconds: int) -> Instant:
    return Instant(seconds * SECOND, WALL)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.sampled_from(AttemptOutcome)), max_size=30))
def test_payloads_are_held_back_and_woken(course: list[tuple[int, int, AttemptOutcome]]) -> None:
    """Laws CU1, CU2 and CU3, and CB1 and CB4 in company, for any course of attempts, alarms and time."""
    now, answered, alarm = at(0), set[int](), None
    post = RIGHT.step(OutboxState(), Given(GIVEN, now)).state
    for wait, which, outcome in course:
        now += wait * SECOND
        event: OutboxEvent
        if alarm is not None and alarm - now <= 0:
            event, alarm = Woken(now), None
        elif post.under_way:
            number, era = post.under_way[which % len(post.under_way)]
            event = Heard(number, era, outcome, now)
            answered |= {number} if outcome is AttemptOutcome.ANSWERED else set()
        else:
            continue
        before, done = post, RIGHT.step(post, event)
        post = done.state
        for command in done.commands:
            alarm = command.until if isinstance(command, Wake) else alarm

        assert laws.settled_was_answered(GIVEN, post, answered)
        assert laws.is_woken(RIGHT.breaker, post, now)
        assert laws.is_probed_by_one(post, RIGHT.most)
        assert laws.waits_while_open(before, done.commands, now)
        assert laws.is_deaf_to_other_eras(before, post, now)
        assert post.is_alarmed is (alarm is not None)


@given(st.integers(0, 5), st.integers(0, 3), st.sampled_from(AttemptOutcome))
def test_what_nobody_asked_for_changes_nothing(number: int, era: int, outcome: AttemptOutcome) -> None:
    """Law CU4."""
    post = OutboxState(Open(2, at(10)), waiting=(7,), under_way=((8, 0), (9, 1)), is_alarmed=True)
    assert laws.is_deaf_to_what_nobody_asked(post, RIGHT.step(post, Heard(number, era, outcome, at(1))))


def test_an_attempt_that_was_not_made_is_made_again() -> None:
    """It says nothing of the sink."""
    post = RIGHT.step(OutboxState(), Given((3,), at(0))).state
    done = RIGHT.step(post, Heard(3, 0, AttemptOutcome.NOT_TRIED, at(1)))
    assert (done.state, done.commands) == (post, (Deliver(3, 0),))
    assert done.state.circuit == Closed()


def test_values_say_what_they_are() -> None:
    """One line each, and what is no value is refused."""
    assert [*map(str, (Deliver(1, 2), Wake(at(3)), Given((1, 2), at(0)), Woken(at(0)), OutboxState(waiting=(1,))))] == [
        "deliver payload 1 (era 2)",
        f"wake it at {at(3)}",
        "given 2 payloads",
        "woken",
        "Closed(era=0, unanswered=0), 1 wait, 0 under way",
    ]
    assert str(Heard(1, 2, AttemptOutcome.ANSWERED, at(0))) == "payload 1: the sink took or refused it (era 2)"
    with pytest.raises(Misuse, match="a number of attempts"):
        OutboxRules(most=0)
