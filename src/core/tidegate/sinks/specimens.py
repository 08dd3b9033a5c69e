"""Seven ways to get a circuit wrong. Each differs from `tidegate.sinks.outbox`, or from its circuit, in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.model.instants import Instant
from tidegate.model.reducer import Step
from tidegate.sim.shipping import Specimen
from tidegate.sinks.circuit_breaker import (
    Admit,
    AttemptOutcome,
    CircuitBreaker,
    CircuitState,
    Closed,
    HalfOpen,
    HoldBack,
    Open,
    admit,
    recorded,
)
from tidegate.sinks.outbox import (
    CircuitParts,
    OutboxEvent,
    OutboxRules,
    OutboxState,
    OutboxStep,
    StartTimer,
    TimerFired,
)
from tidegate.sinks.scenarios import ALL, IN_A_ROW, ONE, OTHER_ERAS, RIGHT, SETTLED, SHUT, WAKES, outbox

__all__ = ["SPECIMENS"]

# --- what is asked of the circuit ---------------------------------------------------------------------------------------


def two_probes(breaker: CircuitBreaker, circuit: CircuitState, now: Instant) -> Admit | HoldBack:
    """While a probe is under way, another one is admitted."""
    return Admit(circuit) if isinstance(circuit, HalfOpen) else admit(breaker, circuit, now)


def closed_by_any_success(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> CircuitState:
    """Whatever succeeds closes the circuit, also what was begun before it opened."""
    is_late = isinstance(circuit, Open) and outcome is AttemptOutcome.ANSWERED
    return Closed(circuit.era + 1) if is_late else recorded(breaker, circuit, era, outcome, now)


def decided_by_anybody(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> CircuitState:
    """A probe is decided by whatever attempt ends next."""
    return recorded(breaker, circuit, circuit.era if isinstance(circuit, HalfOpen) else era, outcome, now)


def counts_for_ever(
    breaker: CircuitBreaker, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant
) -> CircuitState:
    """A success does not make it begin to count anew."""
    if isinstance(circuit, Closed) and era == circuit.era and outcome is AttemptOutcome.ANSWERED:
        return circuit
    return recorded(breaker, circuit, era, outcome, now)


# --- what is done about an event ----------------------------------------------------------------------------------------


def gives_up(rules: OutboxRules, state: OutboxState, event: OutboxEvent) -> OutboxStep:
    """What comes while the circuit is open is not held back, but given up."""
    after = rules.step(state, event)
    return (
        Step(attrs.evolve(after.state, waiting=()), after.commands) if isinstance(after.state.circuit, Open) else after
    )


def waits_for_the_probe(rules: OutboxRules, state: OutboxState, event: OutboxEvent) -> OutboxStep:
    """While a probe is under way nobody sets a timer: the probe will end."""
    after = rules.step(state, event)
    if not isinstance(after.state.circuit, HalfOpen):
        return after
    asleep = tuple(command for command in after.commands if not isinstance(command, StartTimer))
    return Step(attrs.evolve(after.state, is_timed=False), asleep)


def oversleeps_the_alarm(rules: OutboxRules, state: OutboxState, event: OutboxEvent) -> OutboxStep:
    """When the timer fires, nobody looks what waits."""
    return Step(state) if isinstance(event, TimerFired) else rules.step(state, event)


def planted(
    name: str,
    bug: object,
    law: str,
    source: str,
    *,
    parts: CircuitParts | None = None,
    step: Callable[[OutboxRules, OutboxState, OutboxEvent], OutboxStep] = OutboxRules.step,
    alone: bool = False,
) -> Specimen:
    """The scenario with the bug in its place."""
    rules = attrs.evolve(RIGHT, parts=parts or RIGHT.parts)
    make = partial(outbox, rules, step, summary=(bug.__doc__ or "").partition("\n")[0])
    return Specimen(f"outbox.{name}", make, law, source, "outbox", alone)


SPECIMENS: Final = (
    planted(
        "two_probes",
        two_probes,
        ONE,
        "Planted: where a circuit only asks whether its cooldown is over, all who wait try a sink that just comes back.",
        parts=CircuitParts(admit=two_probes),
    ),
    planted(
        "closed_by_any_success",
        closed_by_any_success,
        SHUT,
        "Planted: a slow success of before the outage closes the circuit while the sink is away.",
        parts=CircuitParts(recorded=closed_by_any_success),
    ),
    planted(
        "decided_by_anybody",
        decided_by_anybody,
        OTHER_ERAS,
        "Drakkar 0.11.1: the outcome of a delivery that began before the trip flips its half-open breaker.",
        parts=CircuitParts(recorded=decided_by_anybody),
    ),
    planted(
        "counts_for_ever",
        counts_for_ever,
        IN_A_ROW,
        "Planted: a sink that fails now and then is taken for one that is away.",
        parts=CircuitParts(recorded=counts_for_ever),
    ),
    planted(
        "gives_up",
        gives_up,
        SETTLED,
        "Drakkar 0.11.1: while its breaker is open all payloads go to the dead letters, in an outage of half a minute all.",
        alone=True,
        step=gives_up,
    ),
    planted(
        "waits_for_the_probe",
        waits_for_the_probe,
        WAKES,
        "Drakkar 0.11.1 waits for ever for a probe that does not come back.",
        step=waits_for_the_probe,
    ),
    planted(
        "oversleeps_the_alarm",
        oversleeps_the_alarm,
        ALL,
        "Planted: with nothing under way nobody looks at what waits, unless something new comes.",
        alone=True,
        step=oversleeps_the_alarm,
    ),
)
