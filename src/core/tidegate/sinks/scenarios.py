"""A worker delivers to a sink that does not answer now and then, through the circuit of `tidegate.sinks.outbox`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.model.effects import Effect
from tidegate.model.instants import SECOND, Instant
from tidegate.sim.faults import Fault, Faults, no_effects
from tidegate.sim.reducers import Machine, ReducerProcess
from tidegate.sim.scenario import Clock, Scenario, State
from tidegate.sim.shipping import Shipped
from tidegate.sim.world import CLOCK, Cell, Outcomes, Plain, World, inbox
from tidegate.sinks import laws
from tidegate.sinks.circuit_breaker import AttemptOutcome, CircuitBreaker, Closed, HalfOpen, Open
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

__all__ = ["ALL", "IN_A_ROW", "ONE", "OTHER_ERAS", "SCENARIOS", "SETTLED", "SHUT", "WAKES", "outbox"]

WORKER: Final = "worker"
TAKEN: Final = Cell[tuple[int, ...]](("sink", "has taken"), ())

SETTLED: Final = "nothing is settled that the sink has not taken"
WAKES: Final = "what waits is tried again within a cooldown"
ONE: Final = "one probe at most is under way"
SHUT: Final = "nothing is tried while the circuit is open"
IN_A_ROW: Final = "the circuit opens at the threshold, and not before"
OTHER_ERAS: Final = "an attempt from before does not change the circuit"
ALL: Final = "at rest the sink has taken every payload"

_UNSTAMPED: Final = Instant(0)
"""In events until they are received: the simulator stamps them."""


def is_delivery(effect: Effect[object]) -> bool:
    return isinstance(effect, Deliver)


def means(effect: Effect[object], world: World, who: str) -> Outcomes:  # noqa: ARG001  there is one worker
    if isinstance(effect, Deliver):
        yield world.write(TAKEN, tuple(sorted({*world.read(TAKEN), effect.number}))), None
    elif isinstance(effect, StartTimer) and world.read(CLOCK) - effect.until >= 0:
        yield world, None


def event_for(command: Effect[object], reply: object) -> OutboxEvent:
    if isinstance(command, Deliver):
        return AttemptEnded(
            command.number,
            command.era,
            AttemptOutcome.ANSWERED if reply is None else AttemptOutcome.UNANSWERED,
            _UNSTAMPED,
        )
    return TimerFired(_UNSTAMPED)


def stamped(event: OutboxEvent, now: Instant) -> OutboxEvent:
    return attrs.evolve(event, now=now)


def outbox(
    made: type[OutboxRules] = OutboxRules,
    *,
    summary: str = "a sink does not answer: its circuit opens, one probe at a time asks for it, and nothing is given up",
    threshold: int = 2,
    most: int = 2,
    payloads: int = 3,
    budget: int = 3,
) -> Scenario:
    """A worker with payloads for one sink.

    Args:
        made: How it delivers, or a faulty variant of that.
        summary: One line for people.
        threshold: After how many attempts without an answer the circuit opens.
        most: How many are tried at once.
        payloads: How many.
        budget: How many attempts are not answered; one of them may never end.
    """
    rules = made(CircuitBreaker(threshold=threshold, cooldown=SECOND), most=most)
    submitted, breaker = tuple(range(payloads)), rules.breaker
    faults = Faults.of(Fault.DROPPED, Fault.LOST_REPLY, Fault.NEVER_RETURNS, on=is_delivery)
    worker = ReducerProcess(
        WORKER, OutboxState(), partial(made.step, rules), event_for, faults, means, split=no_effects, stamp=stamped
    )
    world = Plain().write(inbox(WORKER), (Submitted(submitted, _UNSTAMPED),))
    assert isinstance(world, Plain)
    return Scenario(
        name="outbox",
        summary=summary,
        world=world,
        actors=(worker,),
        budget=budget,
        budgets={Fault.NEVER_RETURNS: 1},
        clock=Clock(breaker.cooldown, horizon=0),
        always={
            SETTLED: partial(of_outbox, lambda state, outbox: is_settled(state, outbox, submitted)),
            WAKES: partial(of_outbox, lambda state, outbox: laws.outbox.is_woken(breaker, outbox, state.read(CLOCK))),
            ONE: partial(of_outbox, lambda _, outbox: laws.outbox.is_probed_by_one(outbox, rules.most)),
        },
        step={
            SHUT: waits_while_open,
            IN_A_ROW: lambda before, after: counts_in_a_row(breaker, before, after),
            OTHER_ERAS: ignores_other_eras,
        },
        eventually={ALL: partial(is_all_taken, payloads=payloads)},
        sometimes={
            "the circuit opens": partial(of_outbox, lambda _, outbox: isinstance(outbox.circuit, Open)),
            "a probe fails": partial(
                of_outbox, lambda _, outbox: isinstance(outbox.circuit, Open) and outbox.circuit.era > 1
            ),
            "a probe is replaced": partial(of_outbox, lambda _, outbox: is_replaced(outbox)),
            "it closes again, and all is delivered": partial(of_outbox, lambda _, outbox: is_closed_again(outbox)),
        },
    )


# --- laws ---------------------------------------------------------------------------------------------------------------


def machine_of(state: State) -> Machine:
    machine = state.status(WORKER)
    assert isinstance(machine, Machine), "nothing crashes here"
    return machine


def outbox_of(state: State) -> OutboxState:
    outbox = machine_of(state).state
    assert isinstance(outbox, OutboxState)
    return outbox


def of_outbox(law: Callable[[State, OutboxState], bool], state: State) -> bool:
    return law(state, outbox_of(state))


def is_settled(state: State, outbox: OutboxState, submitted: tuple[int, ...]) -> bool:
    if state.read(inbox(WORKER)):
        return True  # they have not arrived yet
    taken = state.read(TAKEN)
    return laws.outbox.settled_was_answered(submitted, outbox, taken)


def waits_while_open(before: State, after: State) -> bool:
    known, now = (
        [command for command in machine_of(state).commands if isinstance(command, Deliver)] for state in (before, after)
    )
    begun = [command for command in now if command not in known]
    return laws.outbox.waits_while_open(outbox_of(before), begun, before.read(CLOCK))


def counts_in_a_row(breaker: CircuitBreaker, before: State, after: State) -> bool:
    return laws.outbox.counts_in_a_row(breaker, outbox_of(before), outbox_of(after))


def ignores_other_eras(before: State, after: State) -> bool:
    return laws.outbox.ignores_other_eras(outbox_of(before), outbox_of(after), before.read(CLOCK))


def is_all_taken(state: State, *, payloads: int) -> bool:
    """But for what is tried by an attempt that never ends."""
    stuck = {command.number for command in machine_of(state).stuck if isinstance(command, Deliver)}
    return {*state.read(TAKEN), *stuck} == set(range(payloads))


# --- goals --------------------------------------------------------------------------------------------------------------


def is_replaced(outbox: OutboxState) -> bool:
    """A probe has not ended, and there is another."""
    probes = sum(era > 1 for _, era in outbox.under_way)
    return isinstance(outbox.circuit, HalfOpen) and probes > 1


def is_closed_again(outbox: OutboxState) -> bool:
    return outbox.circuit.era > 0 and isinstance(outbox.circuit, Closed) and not (outbox.waiting or outbox.under_way)


SCENARIOS: Final = (
    Shipped(
        "outbox",
        outbox,
        thorough=partial(outbox, payloads=4),
        large=partial(outbox, threshold=3, most=4, payloads=8, budget=5),
    ),
)
