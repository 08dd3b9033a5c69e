from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.effects import Ambiguous, NotApplied, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, STORE, WALL, Instant
from tidegate.sinks import circuit_breaker as circuits
from tidegate.sinks import delivery
from tidegate.sinks.checks.laws import circuit_breaker as laws
from tidegate.sinks.checks.strategies import circuit_breaker as drawn
from tidegate.sinks.circuit_breaker import (
    Admit,
    AttemptOutcome,
    CircuitBreaker,
    CircuitState,
    Closed,
    HalfOpen,
    HoldBack,
    Open,
)
from tidegate.sinks.delivery import (
    Acknowledged,
    Action,
    DeadLettering,
    Delivered,
    DeliveryRules,
    Failed,
    Payload,
    Sending,
)

START = Instant(0, WALL)


# --- the laws ---------------------------------------------------------------------------------------------------------

INSTANTS = st.integers(0, 80).map(lambda at: Instant(at, WALL))
OUTCOMES = (drawn.breakers(), drawn.circuits(), st.integers(0, 5), st.sampled_from(AttemptOutcome), INSTANTS)
FIVE = CircuitBreaker(threshold=5, cooldown=30)


@given(*OUTCOMES)
@example(FIVE, Closed(0, 4), 0, AttemptOutcome.UNANSWERED, START)
@example(FIVE, Closed(0, 3), 0, AttemptOutcome.UNANSWERED, START)
@example(FIVE, Closed(0, 3), 0, AttemptOutcome.ANSWERED, START)
def test_cb1_it_opens_at_the_threshold(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> None:
    after = circuits.recorded(breaker, circuit, era, outcome, now)
    assert laws.opens_at_the_threshold(breaker, circuit, era, outcome, after)


@attrs.frozen
class Asked:
    after: int


@attrs.frozen
class Ended:
    which: int
    outcome: AttemptOutcome


RUNS = st.lists(
    st.one_of(
        st.builds(Asked, st.integers(0, 6)), st.builds(Ended, st.integers(0, 9), st.sampled_from(AttemptOutcome))
    ),
    max_size=40,
)
BAD = Ended(0, AttemptOutcome.UNANSWERED)


@given(drawn.breakers(), RUNS)
@example(CircuitBreaker(threshold=1, cooldown=5), [Asked(0), BAD, Asked(1)])
@example(CircuitBreaker(threshold=1, cooldown=5), [Asked(0), BAD, Asked(4)])
@example(CircuitBreaker(threshold=1, cooldown=5), [Asked(0), BAD, Asked(5), Asked(4), Asked(1)])
@example(CircuitBreaker(threshold=1, cooldown=5), [Asked(0), BAD, Asked(6), Asked(1), Asked(1)])
def test_cb2_probes_come_one_by_one(breaker: CircuitBreaker, run: list[Asked | Ended]) -> None:
    circuit: CircuitState = Closed()
    now, eras, tripped = START, list[int](), list[Instant]()
    probes, settled = list[tuple[int, Instant]](), set[int]()
    for event in run:
        if isinstance(event, Asked):
            now += event.after
            verdict = circuits.admit(breaker, circuit, now)
            if isinstance(verdict, Admit):
                circuit = verdict.circuit
                eras.append(verdict.era)
                assert all(laws.waits_out_the_cooldown(breaker, trip, now) for trip in tripped)
                if isinstance(circuit, HalfOpen):
                    probes.append((verdict.era, now))
        elif event.which < len(eras):
            era = eras[-1 - event.which]
            after = circuits.recorded(breaker, circuit, era, event.outcome, now)
            if after != circuit:
                settled.add(era)
                tripped = [now] if isinstance(after, Open) and event.outcome is AttemptOutcome.UNANSWERED else []
            circuit = after
        assert laws.probes_one_by_one(breaker, probes, settled)


@given(drawn.breakers(), drawn.circuits(), INSTANTS)
@example(FIVE, HalfOpen(1, START), START + 1)
@example(FIVE, Open(1, START + 99), START)
def test_cb3_no_circuit_stays_shut(breaker: CircuitBreaker, circuit: CircuitState, now: Instant) -> None:
    verdict = circuits.admit(breaker, circuit, now)
    until = None if isinstance(verdict, Admit) else verdict.until
    assert laws.does_not_stay_shut(breaker, now, until)


@given(*OUTCOMES)
@example(FIVE, HalfOpen(2, START), 0, AttemptOutcome.UNANSWERED, START)
@example(FIVE, HalfOpen(2, START), 1, AttemptOutcome.ANSWERED, START)
@example(FIVE, HalfOpen(2, START), 2, AttemptOutcome.ANSWERED, START)
def test_cb4_other_eras_say_nothing(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> None:
    verdict = circuits.admit(breaker, circuit, now)
    assert laws.ignores_other_eras(circuit, era, circuits.recorded(breaker, circuit, era, outcome, now))
    assert isinstance(verdict, HoldBack) or laws.has_its_own_era(circuit, verdict)


# --- planted bugs -----------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    circuits,
    bug(
        "failures need not be in a row", ("return Closed(circuit.era)\n", "return circuit\n"),
        test_cb1_it_opens_at_the_threshold,
    ),
    bug(
        "one too late", ("circuit.unanswered + 1 >= breaker", "circuit.unanswered >= breaker"),
        test_cb1_it_opens_at_the_threshold,
    ),
    bug(
        "no cooldown", ("if 0 < circuit.until - now <=", "if breaker.cooldown < circuit.until - now <="),
        test_cb2_probes_come_one_by_one,
    ),
    bug(
        "half open is open to all", ("if isinstance(circuit, Closed):", "if isinstance(circuit, (Closed, HalfOpen)):"),
        test_cb2_probes_come_one_by_one, test_cb4_other_eras_say_nothing,
    ),
    # Drakkar: a probe without a reply keeps the slot forever.
    bug(
        "it waits for its probe",
        ("if 0 < circuit.until - now <=", "if isinstance(circuit, HalfOpen) or 0 < circuit.until - now <="),
        test_cb3_no_circuit_stays_shut,
    ),
    # A clock set back by an hour keeps it open for an hour.
    bug(
        "it waits for its clock", ("circuit.until - now <= breaker.cooldown:", "circuit.until - now:"),
        test_cb3_no_circuit_stays_shut,
    ),
    # Drakkar: an attempt from before the trip decides the probe.
    bug("any era", ("if era != circuit.era:", "if False:"), test_cb4_other_eras_say_nothing),
)  # fmt: skip


# --- facts ------------------------------------------------------------------------------------------------------------


def test_a_circuit_opens_after_five_probes_after_30_s_and_closes() -> None:
    """Drakkar's defaults; a success resets the count, and a refusal is a reply too."""
    breaker, circuit, now = CircuitBreaker(), circuits.Closed(), START
    seen: list[CircuitState] = [circuit]
    for failure in [Ambiguous()] * 3 + [Refused("no")] + [Ambiguous()] * 5:
        state = seen[-1]
        seen.append(circuits.recorded(breaker, state, 0, circuits.attempt_outcome(failure), now))
    opened = seen[-1]
    held = circuits.admit(breaker, opened, START + 29 * SECOND)
    probe = circuits.admit(breaker, opened, START + 30 * SECOND)
    assert isinstance(probe, Admit)

    assert [state.unanswered for state in seen if isinstance(state, Closed)] == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert opened == Open(1, START + 30 * SECOND)
    assert held == HoldBack(START + 30 * SECOND)
    assert str(held) == "hold back until 30 s@wall"
    assert probe == Admit(HalfOpen(2, START + 60 * SECOND))
    assert circuits.recorded(breaker, probe.circuit, 2, circuits.attempt_outcome(None), now) == Closed(3)
    assert circuits.recorded(breaker, probe.circuit, 2, circuits.attempt_outcome(NotApplied()), now) == Open(
        3, START + 30 * SECOND
    )
    assert circuits.recorded(breaker, probe.circuit, 2, AttemptOutcome.NOT_TRIED, now + 9) == Open(3, START + 9)
    assert circuits.recorded(breaker, opened, 1, AttemptOutcome.ANSWERED, now) == opened
    assert circuits.recorded(breaker, seen[0], 0, AttemptOutcome.NOT_TRIED, now) == seen[0]


def outage(breaker: CircuitBreaker, payloads: int, away: int) -> tuple[int, int]:
    circuit: CircuitState = Closed()
    states: list[Payload] = [Sending()] * payloads
    for second in range(away + 120):
        now = START + second * SECOND
        for index, state in enumerate(states):
            if not isinstance(state, Sending) or (state.not_before and state.not_before - now > 0):
                continue
            verdict = circuits.admit(breaker, circuit, now)
            if isinstance(verdict, Admit):
                failure = Ambiguous("no reply") if second < away else None
                circuit = circuits.recorded(
                    breaker, verdict.circuit, verdict.era, circuits.attempt_outcome(failure), now
                )
                event = Failed(state.attempt, failure, Action.RETRY, now) if failure else Acknowledged()
                states[index] = delivery.step(DeliveryRules(), state, event)
    return states.count(Delivered()), sum(isinstance(state, DeadLettering) for state in states)


def test_an_outage_does_not_empty_the_topic_into_the_dead_letters() -> None:
    """Without a breaker all are dead-lettered; Drakkar's diverts all while it is open."""
    assert outage(CircuitBreaker(), 100, 120) == (99, 1)
    assert outage(CircuitBreaker(threshold=10**9), 100, 120) == (0, 100)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CircuitBreaker(threshold=0),
        lambda: CircuitBreaker(cooldown=0),
        lambda: CircuitBreaker(cooldown=1.5),  # type: ignore[arg-type]
        lambda: circuits.admit(None, Closed(), START),  # type: ignore[arg-type]
        lambda: circuits.admit(FIVE, "closed", START),  # type: ignore[arg-type]
        lambda: circuits.admit(FIVE, Closed(), 0),  # type: ignore[arg-type]
        lambda: circuits.admit(FIVE, Open(0, START), Instant(0, STORE)),
        lambda: circuits.recorded(None, Closed(), 0, AttemptOutcome.ANSWERED, START),  # type: ignore[arg-type]
        lambda: circuits.recorded(FIVE, None, 0, AttemptOutcome.ANSWERED, START),  # type: ignore[arg-type]
        lambda: circuits.recorded(FIVE, Closed(), -1, AttemptOutcome.ANSWERED, START),
        lambda: circuits.recorded(FIVE, Closed(), 0, True, START),  # type: ignore[arg-type]
        lambda: circuits.recorded(FIVE, Closed(), 0, AttemptOutcome.ANSWERED, 0),  # type: ignore[arg-type]
        lambda: circuits.attempt_outcome("no reply"),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()
