"""A circuit breaker: keeps workers from trying a sink that does not answer.

While a circuit is open, payloads wait and do not use up their attempts. There is one circuit per
sink (Nygard 2007, "Release It!", ch. 5), consulted before EACH attempt:

    Closed -- `threshold` unanswered in a row --> Open -- cooldown over, next request --> HalfOpen
       ^                                           ^------ the probe is unanswered ------ |
       '---------------------- the probe is answered ------------------------------------'

A refusal is an answer. Each trip, probe and closing begins a new era, and outcomes of earlier eras
do not count.

Laws
    CB1  A circuit opens when `threshold` attempts of one era in a row are unanswered, not before.
    CB2  While it is not closed, it admits only probes, at most one in a cooldown.
    CB3  It always admits an attempt within a cooldown, whatever the outcomes and the clock.
    CB4  The outcome of an earlier delivery, or of a replaced probe, changes nothing.
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
    """Opens after `threshold` unanswered attempts in a row, for `cooldown` microseconds.

    Invariants: 1 <= threshold; 0 < cooldown <= a century.
    """

    threshold: int = 5
    cooldown: Duration = attrs.field(default=30 * SECOND, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.threshold, "a number of attempts", 1)
        check_delay(self.cooldown, "a cooldown in microseconds", 1)


@final
@attrs.frozen
class Closed:
    """Admits everything and counts the latest unanswered attempts."""

    era: int = 0
    unanswered: int = 0


@final
@attrs.frozen
class Open:
    """Admits no attempt until then; the next attempt is a probe."""

    era: int
    until: Instant


@final
@attrs.frozen
class HalfOpen:
    """A probe is under way. Without an outcome until then, another replaces it."""

    era: int
    until: Instant


CircuitState: TypeAlias = Closed | Open | HalfOpen
_STATES: Final = get_args(CircuitState)


@final
@attrs.frozen
class Admit:
    """Store the circuit BEFORE the attempt, and record the outcome under this era."""

    circuit: Closed | HalfOpen

    @property
    def era(self) -> int:
        return self.circuit.era


@final
@attrs.frozen
class HoldBack:
    """Make no attempt until then: the circuit is open, or its probe is under way."""

    until: Instant

    def __str__(self) -> str:
        return f"hold back until {self.until}"


class AttemptOutcome(Enum):
    """The result of an attempt for the circuit."""

    ANSWERED = "the sink took or refused it"
    UNANSWERED = "the sink did not answer"
    NOT_TRIED = "it was not tried after all"


def attempt_outcome(failure: Failure | None) -> AttemptOutcome:
    """Derive the outcome from a failure; None for success."""
    check_type(failure, (Failure, NoneType), "a failure")
    return AttemptOutcome.ANSWERED if failure is None or isinstance(failure, Refused) else AttemptOutcome.UNANSWERED


def admit(breaker: CircuitBreaker, circuit: CircuitState, now: Instant) -> Admit | HoldBack:
    """Whether a sink may be tried now."""
    check_type(breaker, CircuitBreaker, "a breaker")
    check_type(circuit, _STATES, "a circuit")
    check_type(now, Instant, "the time")
    if isinstance(circuit, Closed):
        return Admit(circuit)
    # A wait longer than a cooldown means that the clock was set back (CB3).
    if 0 < circuit.until - now <= breaker.cooldown:
        return HoldBack(circuit.until)
    return Admit(HalfOpen(circuit.era + 1, now + breaker.cooldown))


def recorded(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> CircuitState:
    """The circuit after the outcome of an attempt admitted under `era`."""
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
            return circuit  # no admission has this era
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
