"""Is a sink there? A circuit breaker keeps one that is away from being asked by everybody.

It also keeps payloads from using up their attempts on it (`tidegate.sinks.delivery`): while a circuit is open they wait, and
are not dead-lettered. One circuit a sink (Nygard 2007, "Release It!", ch. 5), asked before EACH attempt:

    Closed -- `threshold` attempts in a row unanswered --> Open -- cooldown over, and somebody asks --> HalfOpen
       ^                                                    ^------- the one probe is not answered -------- |
       '------------------------------ the one probe is answered ------------------------------------------'

A refusal is an answer: the sink is there. Each admission bears the era of the circuit, and each trip, probe and closing
begins a new one, so the outcome of a delivery that began before counts for nothing.

Laws
    CB1  A circuit opens when `threshold` attempts of one era in a row are unanswered, and not before.
    CB2  While it is not closed, one probe at most is under way in a cooldown, and nothing else is admitted.
    CB3  No circuit stays shut: after any outcomes, something is admitted within a cooldown, whatever the clock does.
    CB4  The outcome of a delivery from before, or of a probe that was replaced, changes nothing.
"""

from __future__ import annotations

from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.model.effects import Failure, Refused
from tidegate.model.instants import SECOND, Duration, Instant, micros
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import check_delay


@final
@attrs.frozen(kw_only=True)
class CircuitBreaker:
    """When a circuit opens, and for how long. Invariants: 1 <= threshold; 0 < cooldown <= a century.

    Attributes:
        threshold: How many attempts in a row are unanswered when it opens.
        cooldown: How long nothing is tried then, in microseconds.
    """

    threshold: int = 5
    cooldown: Duration = attrs.field(default=30 * SECOND, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.threshold, "a number of attempts", 1)
        check_delay(self.cooldown, "a cooldown in microseconds", 1)


@final
@attrs.frozen
class Closed:
    """Everything is admitted. So many attempts in a row were not answered."""

    era: int = 0
    unanswered: int = 0


@final
@attrs.frozen
class Open:
    """Nothing is admitted until then; the next one after that is a probe."""

    era: int
    until: Instant


@final
@attrs.frozen
class HalfOpen:
    """A probe is under way. If it has no outcome until then, it is replaced by another."""

    era: int
    until: Instant


CircuitState: TypeAlias = Closed | Open | HalfOpen
_STATES: Final = get_args(CircuitState)


@final
@attrs.frozen
class Admit:
    """Try it, and record the outcome under this era. The circuit is to be kept BEFORE it is tried."""

    circuit: Closed | HalfOpen

    @property
    def era(self) -> int:
        return self.circuit.era


@final
@attrs.frozen
class HoldBack:
    """Do not try it until then: the circuit is open, or its probe is under way."""

    until: Instant

    def __str__(self) -> str:
        return f"hold back until {self.until}"


class AttemptOutcome(Enum):
    """What came of an attempt, as far as the sink is concerned."""

    ANSWERED = "the sink took or refused it"
    UNANSWERED = "the sink did not answer"
    NOT_TRIED = "it was not tried after all"


def attempt_outcome(failure: Failure | None) -> AttemptOutcome:
    """What a reply says of the sink; None for success."""
    check_type(failure, (Failure, NoneType), "a failure")
    return AttemptOutcome.ANSWERED if failure is None or isinstance(failure, Refused) else AttemptOutcome.UNANSWERED


def admit(breaker: CircuitBreaker, circuit: CircuitState, now: Instant) -> Admit | HoldBack:
    """Whether a sink may be tried now.

    Args:
        breaker: When its circuit opens, and for how long.
        circuit: Its state.
        now: The time, on the same clock as before.

    Returns:
        `Admit` with the state after that, or `HoldBack` with the time until which to wait.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    check_type(breaker, CircuitBreaker, "a breaker")
    check_type(circuit, _STATES, "a circuit")
    check_type(now, Instant, "the time")
    if isinstance(circuit, Closed):
        return Admit(circuit)
    # A wait that is longer than a cooldown cannot be: the clock was set back, and nobody is to wait for it (CB3).
    if 0 < circuit.until - now <= breaker.cooldown:
        return HoldBack(circuit.until)
    return Admit(HalfOpen(circuit.era + 1, now + breaker.cooldown))


def recorded(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> CircuitState:
    """The state of a circuit after the outcome of an attempt.

    Args:
        breaker: When its circuit opens, and for how long.
        circuit: Its state.
        era: The era under which the attempt was admitted.
        outcome: What came of it.
        now: The time.

    Returns:
        The state after it; the same for an attempt of another era (CB4).

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(breaker, CircuitBreaker, "a breaker")
    check_type(circuit, _STATES, "a circuit")
    check_int(era, "the era of a circuit", 0)
    check_type(outcome, AttemptOutcome, "an outcome")
    check_type(now, Instant, "the time")
    if era != circuit.era:
        return circuit
    match circuit:
        case Closed():
            return _closed(breaker, circuit, outcome, now)
        case Open():
            return circuit  # nothing is admitted under this era
        case HalfOpen():
            return _half_open(breaker, circuit, outcome, now)
        case _:
            assert_never(circuit)


def _closed(breaker: CircuitBreaker, circuit: Closed, outcome: AttemptOutcome, now: Instant) -> CircuitState:
    match outcome:
        case AttemptOutcome.ANSWERED:
            return Closed(circuit.era)
        case AttemptOutcome.UNANSWERED if circuit.unanswered + 1 >= breaker.threshold:
            return Open(circuit.era + 1, now + breaker.cooldown)
        case AttemptOutcome.UNANSWERED:
            return Closed(circuit.era, circuit.unanswered + 1)
        case AttemptOutcome.NOT_TRIED:
            return circuit
        case _:
            assert_never(outcome)


def _half_open(breaker: CircuitBreaker, circuit: HalfOpen, outcome: AttemptOutcome, now: Instant) -> CircuitState:
    match outcome:
        case AttemptOutcome.ANSWERED:
            return Closed(circuit.era + 1)
        case AttemptOutcome.UNANSWERED:
            return Open(circuit.era + 1, now + breaker.cooldown)
        case AttemptOutcome.NOT_TRIED:
            return Open(circuit.era + 1, now)  # the next one may be the probe, at once
        case _:
            assert_never(outcome)
