"""Payloads share a sink. The outbox picks one to try, so not all probe a sink that is down."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.effects import Ambiguous, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.retries.backoff import Fixed, Policy
from tidegate.sinks import outbox as outboxes
from tidegate.sinks.checks.laws import outbox as laws
from tidegate.sinks.circuit_breaker import AttemptOutcome, CircuitBreaker, Closed, Open
from tidegate.sinks.delivery import Action, DeliveryRules, Held, Reason, Sending
from tidegate.sinks.outbox import (
    AttemptEnded,
    Deliver,
    HandBack,
    OutboxEvent,
    OutboxRules,
    OutboxState,
    StartTimer,
    Submitted,
    TimerFired,
    Withdrawn,
)

LONGEST: Final = 5 * SECOND
TWICE: Final = DeliveryRules(
    sending=Policy(backoff=Fixed(LONGEST), attempts_max=2),
    refused=Action.HOLD,
    lasting=Action.HOLD,
    dead_lettering=None,
)
RIGHT = OutboxRules(breaker=CircuitBreaker(threshold=2, cooldown=10 * SECOND), delivery=TWICE, most=2, batch=2)
SUBMITTED = tuple(range(7))


def at(seconds: int) -> Instant:
    return Instant(seconds * SECOND, WALL)


FAILURES: Final = st.sampled_from([None, Refused("too large"), Ambiguous("no reply")])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 7), FAILURES, FAILURES), max_size=40))
def test_payloads_are_held_back_and_woken(course: list[tuple[int, int, Failure | None, Failure | None]]) -> None:
    """Laws CU1 to CU3, CU5 and CU6, and CB1 and CB4, for any course of events."""
    now, timers = at(0), list[Instant]()
    taken, handed_back, withdrawn = set[int](), list[int](), set[int]()
    outbox = RIGHT.step(OutboxState(), Submitted(SUBMITTED, now)).state
    for wait, which, *failures in course:
        now += wait * SECOND
        event: OutboxEvent
        if due := [each for each in timers if each - now <= 0]:
            event = TimerFired(now)
            timers.remove(due[0])
        elif which == 7:
            event = Withdrawn((wait % 7,), now)
            withdrawn.add(wait % 7)
        elif outbox.under_way:
            attempt = outbox.under_way[which % len(outbox.under_way)]
            event = AttemptEnded(attempt.numbers, attempt.era, tuple(failures[: len(attempt.numbers)]), now)
            taken |= {number for number, each in zip(attempt.numbers, failures, strict=False) if each is None}
        else:
            continue
        before, done = outbox, RIGHT.step(outbox, event)
        outbox = done.state
        timers += [each.until for each in done.commands if isinstance(each, StartTimer)]
        new = {each.number: each.payload for each in done.commands if isinstance(each, HandBack)}
        handed_back += new
        given_up = [number for number, each in new.items() if each == Held(Reason.LASTING, each.then)]  # type: ignore[union-attr]

        assert laws.settled_was_answered(SUBMITTED, outbox, taken, handed_back, withdrawn)
        assert laws.is_woken(RIGHT.breaker, LONGEST, outbox, now)
        assert laws.is_probed_by_one(outbox, RIGHT.most)
        assert laws.waits_while_open(before, done.commands, now)
        assert laws.counts_in_a_row(RIGHT.breaker, before, outbox, given_up)
        assert laws.ignores_other_eras(before, outbox, now)
        assert laws.ignores_withdrawn(before, done.commands)
        assert laws.waits_for_its_time(before, done.commands, now)
        assert outbox.wakes_at is None or outbox.wakes_at in timers
        assert all(len(each.numbers) <= RIGHT.batch for each in outbox.under_way)


UNASKED: Final = OutboxState(
    Open(2, at(10)), waiting=(7,), under_way=(Deliver((8,), 0), Deliver((9, 10), 1)), wakes_at=at(10)
)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=2), st.integers(0, 3), FAILURES)
def test_what_nobody_asked_for_changes_nothing(numbers: list[int], era: int, failure: Failure | None) -> None:
    """Law CU4."""
    event = AttemptEnded(tuple(numbers), era, (failure,) * len(numbers), at(1))
    assert laws.ignores_what_nobody_asked(UNASKED, RIGHT.step(UNASKED, event))


# Shipped specimens break the other laws.
test_a_planted_bug_is_found = planted(
    outboxes,
    bug(
        "whatever ends was under way", ("if attempt in state.under_way else", "if True else"),
        ("left = [*state.under_way]", "left = [*state.under_way, attempt]"),
        test_what_nobody_asked_for_changes_nothing,
    ),
    bug(
        "what ends makes room, whoever made it",
        ("in state.under_way else Step(state)", "in state.under_way else Step(state, (Deliver((7,), 2),))"),
        test_what_nobody_asked_for_changes_nothing,
    ),
)  # fmt: skip


def test_a_refusal_is_an_answer_and_so_is_one_of_many() -> None:
    """A sink that answers for one payload is up: the others wait."""
    outbox = RIGHT.step(OutboxState(), Submitted((3, 4), at(0))).state
    done = RIGHT.step(outbox, AttemptEnded((3, 4), 0, (Refused("too large"), Ambiguous("no reply")), at(1)))
    back, timer = done.commands
    assert isinstance(back, HandBack)
    assert (back.number, type(back.payload), timer) == (3, Held, StartTimer(at(6)))
    assert (done.state.circuit, done.state.waiting) == (Closed(), (4,))


def test_what_is_not_due_does_not_hold_up_others() -> None:
    outbox = OutboxState(waiting=(1, 2), failed=((1, Sending(None, at(5))),))
    done = RIGHT.step(outbox, Submitted((3,), at(0)))
    assert done.commands == (Deliver((2, 3), 0), StartTimer(at(5)))


def test_values_say_what_they_are() -> None:
    values = (
        Deliver((1,), 2), HandBack(1, Sending()), StartTimer(at(3)), Submitted((1, 2), at(0)), Withdrawn((1, 2), at(0)),
        TimerFired(at(0)), OutboxState(waiting=(1,)), AttemptEnded((1,), 2, (None,), at(0)), AttemptEnded((1,), 2, (Ambiguous(),), at(0)),
    )  # fmt: skip
    assert [*map(str, values)] == [
        "deliver payload 1 (era 2)",
        "hand back payload 1",
        f"wake at {at(3)}",
        "2 payloads submitted",
        "payloads 1, 2 withdrawn",
        "the timer fired",
        "Closed(era=0, unanswered=0), 1 wait, 0 under way",
        f"payload 1: {AttemptOutcome.ANSWERED.value} (era 2)",
        f"payload 1: {AttemptOutcome.UNANSWERED.value} (era 2)",
    ]
    with pytest.raises(Misuse, match="a number of attempts"):
        OutboxRules(most=0)
    with pytest.raises(Misuse, match="a number of payloads"):
        OutboxRules(batch=0)


@pytest.mark.parametrize(
    "event",
    [
        None,
        Submitted([1], at(0)),  # type: ignore[arg-type]
        Submitted((-1,), at(0)),
        Submitted((True,), at(0)),
        Submitted((1,), 0),  # type: ignore[arg-type]
        Withdrawn((-1,), at(0)),
        AttemptEnded((-1,), 0, (None,), at(0)),
        AttemptEnded((0,), True, (None,), at(0)),
        AttemptEnded((0,), 0, ("no reply",), at(0)),  # type: ignore[arg-type]
        AttemptEnded((0, 1), 0, (None,), at(0)),
        AttemptEnded((0,), 0, (None,), at(0), -1),
        TimerFired(None),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_an_event_is_refused(event: OutboxEvent) -> None:
    with pytest.raises(Misuse):
        RIGHT.step(OutboxState(), event)
