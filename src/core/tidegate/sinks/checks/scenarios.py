"""A worker delivers through the outbox to a sink that sometimes does not answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.model.effects import Ambiguous, Effect, Refused
from tidegate.model.instants import SECOND, Instant
from tidegate.retries.backoff import Fixed, Policy
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Clock, Scenario, State
from tidegate.sim.servers.reducers import Machine, ReducerProcess
from tidegate.sim.world.faults import Fault, Faults, no_effects
from tidegate.sim.world.world import CLOCK, Cell, Outcomes, Plain, World, inbox
from tidegate.sinks.checks import laws
from tidegate.sinks.circuit_breaker import CircuitBreaker, Closed, HalfOpen, Open
from tidegate.sinks.delivery import Action, DeliveryRules, Held, Reason, Sending
from tidegate.sinks.outbox import (
    AttemptEnded,
    Deliver,
    HandBack,
    OutboxCommand,
    OutboxEvent,
    OutboxRules,
    OutboxState,
    StartTimer,
    Submitted,
    TimerFired,
    Withdrawn,
)

WORKER: Final = "worker"
TAKEN: Final = Cell[tuple[int, ...]](("sink", "has taken"), ())
HANDED_BACK: Final = Cell[tuple[int, ...]](("worker", "has back"), ())
GIVEN_UP: Final = Cell[tuple[int, ...]](("worker", "has given up"), ())
"""Those of them that the sink has not refused."""

SETTLED: Final = "nothing is settled that the sink has not taken, and that was not handed back or withdrawn"
WAKES: Final = "what waits is tried again within a cooldown"
ONE: Final = "one probe at most is under way"
SHUT: Final = "nothing is tried while the circuit is open"
IN_A_ROW: Final = "the circuit opens at the threshold, and not before"
OTHER_ERAS: Final = "an attempt from before does not change the circuit"
WITHDRAWN: Final = "what nobody waits for is not tried again"
EARLY: Final = "what has failed is tried again after its back-off, and not before"
ALL: Final = "at rest the sink has taken every payload, or it was handed back or withdrawn"

_UNSTAMPED: Final = Instant(0)
"""Events carry it until the simulator stamps them on arrival."""


def is_delivery(effect: Effect[object]) -> bool:
    return isinstance(effect, Deliver)


def is_handing_back(effect: Effect[object]) -> bool:
    return isinstance(effect, HandBack)


def means(refused: int | None, effect: Effect[object], world: World, who: str) -> Outcomes:  # noqa: ARG001  there is one worker
    if isinstance(effect, Deliver):
        taken = {each for each in effect.numbers if each != refused}
        replies = tuple(Refused("too large") if each == refused else None for each in effect.numbers)
        yield world.write(TAKEN, tuple(sorted({*world.read(TAKEN)} | taken))), replies
    elif isinstance(effect, HandBack):
        if isinstance(effect.payload, Held) and effect.payload.reason is Reason.LASTING:
            world = world.write(GIVEN_UP, (*world.read(GIVEN_UP), effect.number))
        yield world.write(HANDED_BACK, (*world.read(HANDED_BACK), effect.number)), None
    elif isinstance(effect, StartTimer) and world.read(CLOCK) - effect.until >= 0:
        yield world, None


def event_for(command: Effect[object], reply: object) -> OutboxEvent | None:
    match command:
        case Deliver(numbers, era):
            failures = reply if isinstance(reply, tuple) else (Ambiguous(),) * len(numbers)
            return AttemptEnded(numbers, era, failures, _UNSTAMPED)
        case HandBack():
            return None
        case _:
            return TimerFired(_UNSTAMPED)


def stamped(event: OutboxEvent, now: Instant) -> OutboxEvent:
    return attrs.evolve(event, now=now)


def outbox(
    made: type[OutboxRules] = OutboxRules,
    *,
    summary: str = "a sink does not answer: its circuit opens, one probe at a time asks for it, and nothing is given up",
    threshold: int = 2,
    most: int = 2,
    batch: int = 1,
    payloads: int = 3,
    refused: int | None = None,
    withdrawn: int | None = None,
    attempts: int | None = None,
    budget: int = 3,
) -> Scenario:
    """A worker with payloads for one sink.

    The sink refuses the payload `refused`; `withdrawn` is withdrawn at some point. A payload is
    handed back after `attempts` (None: never). `budget` attempts are unanswered; one of them may
    never end.
    """
    breaker, again = (
        CircuitBreaker(threshold=threshold, cooldown=SECOND),
        Policy(backoff=Fixed(SECOND), attempts_max=attempts),
    )
    delivery = DeliveryRules(sending=again, refused=Action.HOLD, lasting=Action.HOLD, dead_lettering=None)
    rules = made(breaker=breaker, delivery=delivery, most=most, batch=batch)
    submitted, gone = tuple(range(payloads)), () if withdrawn is None else (withdrawn,)
    faults = Faults.of(Fault.DROPPED, Fault.LOST_REPLY, Fault.NEVER_RETURNS, on=is_delivery)
    worker = ReducerProcess(
        WORKER, OutboxState(), partial(made.step, rules), event_for, faults, partial(means, refused), split=no_effects,
        at_once=is_handing_back, stamp=stamped,
    )  # fmt: skip
    calls = (Submitted(submitted, _UNSTAMPED), *(Withdrawn((each,), _UNSTAMPED) for each in gone))
    world = Plain().write(inbox(WORKER), calls)
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
            SETTLED: partial(of_outbox, lambda state, outbox: is_settled(state, outbox, submitted, gone)),
            WAKES: partial(
                of_outbox, lambda state, outbox: laws.outbox.is_woken(breaker, SECOND, outbox, state.read(CLOCK))
            ),
            ONE: partial(of_outbox, lambda _, outbox: laws.outbox.is_probed_by_one(outbox, rules.most)),
        },
        step={
            SHUT: waits_while_open,
            IN_A_ROW: partial(counts_in_a_row, breaker),
            OTHER_ERAS: ignores_other_eras,
            WITHDRAWN: lambda before, after: laws.outbox.ignores_withdrawn(outbox_of(before), begun(before, after)),
            EARLY: lambda before, after: laws.outbox.waits_for_its_time(
                outbox_of(before), begun(before, after), before.read(CLOCK)
            ),
        },
        eventually={ALL: partial(is_all_ended, payloads=payloads, withdrawn=gone)},
        sometimes={
            "the circuit opens": partial(of_outbox, lambda _, outbox: isinstance(outbox.circuit, Open)),
            "a probe fails": partial(
                of_outbox, lambda _, outbox: isinstance(outbox.circuit, Open) and outbox.circuit.era > 1
            ),
            "a probe is replaced": partial(of_outbox, lambda _, outbox: is_replaced(outbox)),
            "it closes again, and all is delivered": partial(of_outbox, lambda _, outbox: is_closed_again(outbox)),
            **({} if refused is None else {"a payload is handed back": lambda state: bool(state.read(HANDED_BACK))}),
            **(
                {}
                if withdrawn is None
                else {"one is withdrawn under way": partial(of_outbox, lambda _, outbox: bool(outbox.withdrawn))}
            ),
        },
    )


def handed_back(
    made: type[OutboxRules] = OutboxRules,
    *,
    summary: str = "one payload is refused, one withdrawn, others fail too often: each is handed back or forgotten, and not tried again",
    threshold: int = 2,
    most: int = 2,
    payloads: int = 3,
    budget: int = 3,
) -> Scenario:
    """The same with a refused payload, a withdrawn one, and exhausted attempts."""
    return outbox(
        made, summary=summary, threshold=threshold, most=most, batch=2, payloads=payloads, refused=1, withdrawn=2, attempts=2,
        budget=budget,
    )  # fmt: skip


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


def is_settled(state: State, outbox: OutboxState, submitted: tuple[int, ...], withdrawn: tuple[int, ...]) -> bool:
    if any(isinstance(each, Submitted) for each in state.read(inbox(WORKER))):
        return True  # they have not arrived yet
    taken, back = state.read(TAKEN), state.read(HANDED_BACK)
    gone = () if state.read(inbox(WORKER)) else withdrawn
    return laws.outbox.settled_was_answered(submitted, outbox, taken, back, gone)


def begun(before: State, after: State) -> list[OutboxCommand]:
    """The commands of a step, except timers."""
    known = machine_of(before).commands
    tried = [each for each in machine_of(after).commands if isinstance(each, Deliver) and each not in known]
    back = after.read(HANDED_BACK)[len(before.read(HANDED_BACK)) :]
    return [*tried, *(HandBack(number, Sending()) for number in back)]


def waits_while_open(before: State, after: State) -> bool:
    return laws.outbox.waits_while_open(outbox_of(before), begun(before, after), before.read(CLOCK))


def counts_in_a_row(breaker: CircuitBreaker, before: State, after: State) -> bool:
    given_up = after.read(GIVEN_UP)
    return laws.outbox.counts_in_a_row(breaker, outbox_of(before), outbox_of(after), given_up)


def ignores_other_eras(before: State, after: State) -> bool:
    return laws.outbox.ignores_other_eras(outbox_of(before), outbox_of(after), before.read(CLOCK))


def is_all_ended(state: State, *, payloads: int, withdrawn: tuple[int, ...]) -> bool:
    """Ignores the payloads of an attempt that never ends."""
    stuck = {number for each in machine_of(state).stuck if isinstance(each, Deliver) for number in each.numbers}
    return {*state.read(TAKEN), *state.read(HANDED_BACK), *withdrawn, *stuck} == set(range(payloads))


# --- goals --------------------------------------------------------------------------------------------------------------


def is_replaced(outbox: OutboxState) -> bool:
    """Whether a probe was replaced before it ended."""
    probes = sum(each.era > 1 for each in outbox.under_way)
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
    Shipped(
        "outbox.handed_back",
        partial(handed_back, payloads=3),
        thorough=partial(handed_back, payloads=4),
        large=partial(handed_back, threshold=3, most=4, payloads=8, budget=5),
    ),
)
