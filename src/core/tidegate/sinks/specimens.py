"""Seven ways to get a circuit wrong. Each differs from `tidegate.sinks.outbox`, or from its circuit, in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model._evolving import evolve
from tidegate.model.instants import Instant
from tidegate.model.reducer import Step
from tidegate.sim.shipping import Specimen
from tidegate.sinks.circuit_breaker import Admit, AttemptOutcome, CircuitState, Closed, HalfOpen, HoldBack, Open
from tidegate.sinks.outbox import OutboxEvent, OutboxRules, OutboxState, OutboxStep, Wake, Woken
from tidegate.sinks.scenarios import ALL, DEAF, IN_A_ROW, ONE, RIGHT, SETTLED, SHUT, WAKES, outbox


@attrs.frozen
class TwoProbes(OutboxRules):
    """While a probe is under way, another one is admitted."""

    def _admit(self, circuit: CircuitState, now: Instant) -> Admit | HoldBack:
        return Admit(circuit) if isinstance(circuit, HalfOpen) else super()._admit(circuit, now)


@attrs.frozen
class ClosedByAnySuccess(OutboxRules):
    """Whatever succeeds closes the circuit, also what was begun before it opened."""

    def _told(self, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant) -> CircuitState:
        is_late = isinstance(circuit, Open) and outcome is AttemptOutcome.ANSWERED
        return Closed(circuit.era + 1) if is_late else super()._told(circuit, era, outcome, now)


@attrs.frozen
class DecidedByAnybody(OutboxRules):
    """A probe is decided by whatever is heard next."""

    def _told(self, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant) -> CircuitState:
        return super()._told(circuit, circuit.era if isinstance(circuit, HalfOpen) else era, outcome, now)


@attrs.frozen
class CountsForEver(OutboxRules):
    """A success does not make it begin to count anew."""

    def _told(self, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant) -> CircuitState:
        if isinstance(circuit, Closed) and era == circuit.era and outcome is AttemptOutcome.ANSWERED:
            return circuit
        return super()._told(circuit, era, outcome, now)


@attrs.frozen
class GivesUp(OutboxRules):
    """What comes while the circuit is open is not held back, but given up."""

    def _tried(self, state: OutboxState, now: Instant) -> OutboxStep:
        after = super()._tried(state, now)
        return Step(evolve(after.state, waiting=()), after.commands) if isinstance(after.state.circuit, Open) else after


@attrs.frozen
class WaitsForTheProbe(OutboxRules):
    """While a probe is under way nobody sets an alarm: it will be heard of."""

    def _tried(self, state: OutboxState, now: Instant) -> OutboxStep:
        after = super()._tried(state, now)
        if not isinstance(after.state.circuit, HalfOpen):
            return after
        asleep = tuple(command for command in after.commands if not isinstance(command, Wake))
        return Step(evolve(after.state, is_alarmed=False), asleep)


@attrs.frozen
class OversleepsTheAlarm(OutboxRules):
    """Whoever is woken does not look what waits."""

    def step(self, state: OutboxState, event: OutboxEvent) -> OutboxStep:
        return Step(state) if isinstance(event, Woken) else super().step(state, event)


def planted(name: str, bug: type[OutboxRules], law: str, source: str, *, alone: bool = False) -> Specimen:
    """The scenario with the bug in its place."""
    make = partial(outbox, bug(RIGHT.breaker, RIGHT.most), summary=(bug.__doc__ or "").partition("\n")[0])
    return Specimen(f"outbox.{name}", make, law, source, "outbox", alone)


SPECIMENS: Final = (
    planted(
        "two_probes",
        TwoProbes,
        ONE,
        "Planted: where a circuit only asks whether its cooldown is over, all who wait try a sink that just comes back.",
    ),
    planted(
        "closed_by_any_success",
        ClosedByAnySuccess,
        SHUT,
        "Planted: a slow success of before the outage closes the circuit while the sink is away.",
    ),
    planted(
        "decided_by_anybody",
        DecidedByAnybody,
        DEAF,
        "Drakkar 0.11.1: what is heard of deliveries that began before the trip flips its half-open breaker.",
    ),
    planted(
        "counts_for_ever",
        CountsForEver,
        IN_A_ROW,
        "Planted: a sink that fails now and then is taken for one that is away.",
    ),
    planted(
        "gives_up",
        GivesUp,
        SETTLED,
        "Drakkar 0.11.1: while its breaker is open all payloads go to the dead letters, in an outage of half a minute all.",
        alone=True,
    ),
    planted(
        "waits_for_the_probe",
        WaitsForTheProbe,
        WAKES,
        "Drakkar 0.11.1 waits for ever for a probe that does not come back.",
    ),
    planted(
        "oversleeps_the_alarm",
        OversleepsTheAlarm,
        ALL,
        "Planted: with nothing under way nobody looks at what waits, unless something new comes.",
        alone=True,
    ),
)
