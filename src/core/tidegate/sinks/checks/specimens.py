"""Eleven faulty variants of an outbox and its circuit."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant
from tidegate.sinks.checks.scenarios import (
    ALL,
    EARLY,
    IN_A_ROW,
    ONE,
    OTHER_ERAS,
    SETTLED,
    SHUT,
    WAKES,
    WITHDRAWN,
    handed_back,
    outbox,
)  # fmt: skip
from tidegate.sinks.circuit_breaker import HalfOpen, Open, admit, recorded
from tidegate.sinks.outbox import OutboxRules

OTHER_ERA: Final = "    if era != circuit.era:\n"
ANY_SUCCESS: Final = """    if isinstance(circuit, Open) and outcome is AttemptOutcome.ANSWERED:
        return Closed(circuit.era + 1)
"""
ANSWERS: Final = "        return Step(state, tuple(commands))\n"
GIVES_UP: Final = """        if isinstance(state.circuit, Open):
            state = attrs.evolve(state, waiting=())
"""
SLEEPS: Final = """        if isinstance(state.circuit, HalfOpen):
            state = attrs.evolve(state, wakes_at=None)
            commands = [each for each in commands if not isinstance(each, StartTimer)]
"""

SPECIMENS: Final = (
    specimen(
        "outbox.two_probes", ONE,
        "While a probe is under way, another one is admitted.",
        "Planted: where a circuit only asks whether its cooldown is over, all who wait try a sink that just comes back.",
        lambda: variant(OutboxRules, admit=variant(admit, ("if isinstance(circuit, Closed):", "if isinstance(circuit, (Closed, HalfOpen)):"))),
        make=outbox, of="outbox"),
    specimen(
        "outbox.closed_by_any_success", SHUT,
        "Whatever succeeds closes the circuit, also what was begun before it opened.",
        "Planted: a slow success of before the outage closes the circuit while the sink is away.",
        lambda: variant(OutboxRules, recorded=variant(recorded, (OTHER_ERA, ANY_SUCCESS + OTHER_ERA))),
        make=outbox, of="outbox", alone=True),
    specimen(
        "outbox.decided_by_anybody", OTHER_ERAS,
        "A probe is decided by whatever attempt ends next.",
        "Drakkar 0.11.1: the outcome of a delivery that began before the trip flips its half-open breaker.",
        lambda: variant(
            OutboxRules,
            recorded=variant(recorded, (OTHER_ERA, "    if era != circuit.era and not isinstance(circuit, HalfOpen):\n"))),
        make=outbox, of="outbox"),
    specimen(
        "outbox.counts_for_ever", IN_A_ROW,
        "A success does not make it begin to count anew.",
        "Planted: a sink that fails now and then is taken for one that is away.",
        lambda: variant(OutboxRules, recorded=variant(recorded, ("return Closed(circuit.era)", "return circuit"))),
        make=outbox, of="outbox"),
    specimen(
        "outbox.gives_up", SETTLED,
        "What comes while the circuit is open is not held back, but given up.",
        "Drakkar 0.11.1: while its breaker is open all payloads go to the dead letters, in an outage of half a minute all.",
        partial(variant, OutboxRules, (ANSWERS, GIVES_UP + ANSWERS), Open=Open),
        make=outbox, of="outbox", alone=True),
    specimen(
        "outbox.waits_for_the_probe", WAKES,
        "While a probe is under way nobody sets a timer: the probe will end.",
        "Drakkar 0.11.1 waits for ever for a probe that does not come back.",
        partial(variant, OutboxRules, (ANSWERS, SLEEPS + ANSWERS), HalfOpen=HalfOpen),
        make=outbox, of="outbox"),
    specimen(
        "outbox.oversleeps_the_alarm", ALL,
        "When the timer fires, nobody looks what waits.",
        "Planted: with nothing under way nobody looks at what waits, unless something new comes.",
        partial(variant, OutboxRules, ("self._try_due(attrs.evolve(state, wakes_at=None), now)", "Step(state)")),
        make=outbox, of="outbox", alone=True),
    specimen(
        "outbox.tries_at_once", EARLY,
        "A payload that has failed is tried again at once.",
        "Drakkar 0.11.1 delivers again without a pause, so that an outage of a second uses up all attempts (W22).",
        partial(variant, OutboxRules, ("is not None and at - now > 0}", "is not None and at - now < 0}")),
        make=outbox, of="outbox"),
    specimen(
        "outbox.tries_what_is_withdrawn", WITHDRAWN,
        "A payload that nobody waits for is tried again where it fails.",
        "Planted: the former owner of a partition goes on to write, after the next one has begun.",
        partial(variant, OutboxRules, ("if number in withdrawn or failure is None:", "if failure is None:")),
        make=handed_back, of="outbox.handed_back"),
    specimen(
        "outbox.gives_up_in_silence", SETTLED,
        "A payload that is given up is handed back to nobody.",
        "Planted: whoever waits for it waits for ever, and the offset of its record with it.",
        partial(variant, OutboxRules, ("commands.append(HandBack(number, after))", "pass")),
        make=handed_back, of="outbox.handed_back", alone=True),
    specimen(
        "outbox.tries_what_is_refused", SETTLED,
        "A payload that is handed back is tried again all the same.",
        "Planted: it is dead-lettered and delivered, or dead-lettered twice.",
        partial(variant, OutboxRules, ("commands.append(HandBack(number, after))", "commands.append(HandBack(number, after))\n                waiting.append(number)")),
        make=handed_back, of="outbox.handed_back", alone=True),
)  # fmt: skip
