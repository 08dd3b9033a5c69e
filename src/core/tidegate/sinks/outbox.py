"""Payloads wait for one sink. Which one is tried now, so that a sink that is away is not asked by all of them?

Many tasks of a worker deliver to one sink at once, and each attempt takes its time. The circuit of the sink
(`tidegate.sinks.circuit_breaker`) is asked before each attempt and learns its outcome, while others are under way. This is
that part of a worker, as a reducer:

    waiting -- the circuit admits one --> under way, with the era -- answered --> settled
       ^                                       '-------- not answered -------.
       '---------------------------------------------------------------------'

Where the circuit is open nothing is given up: payloads wait, and a timer says when to try again. What was not answered may
have arrived; it is tried again, so delivery is at least once. What a sink refuses is settled here, for it is there: what
becomes of the payload then is a matter of `tidegate.sinks.delivery`.

Laws (CU: whoever takes payloads to a sink is its courier)
    CU1  A payload is settled when the sink has answered for it, and not before.
    CU2  What waits is woken: whenever a payload waits, one is under way, or a timer is set, within a cooldown.
    CU3  At most `most` attempts of the newest era are under way; while the circuit is not closed, one probe at most.
    CU4  The end of an attempt that nobody made, or that has ended already, changes nothing.

Known not to work
    An attempt that never ends keeps its payload. Whoever carries it out bounds its time, and says then that it was not
    answered; until then others go on, once the circuit has opened.
    The circuit is that of one process. Each worker finds out for itself that a sink is away.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.model.effects import Effect
from tidegate.model.instants import Instant
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type
from tidegate.sinks.circuit_breaker import (
    AttemptOutcome,
    CircuitBreaker,
    CircuitState,
    Closed,
    HoldBack,
    admit,
    recorded,
)

__all__ = [
    "AttemptEnded", "Deliver", "OutboxCommand", "OutboxEvent", "OutboxRules", "OutboxState",
    "OutboxStep", "StartTimer", "Submitted", "TimerFired",
]  # fmt: skip

# --- commands and events --------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Deliver(Effect[object]):
    """Try to deliver a payload; its end is `AttemptEnded`, with the same era."""

    number: int
    era: int

    def __str__(self) -> str:
        return f"deliver payload {self.number} (era {self.era})"


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[Instant]):
    """Send `TimerFired` when that time has come."""

    until: Instant

    def __str__(self) -> str:
        return f"wake at {self.until}"


OutboxCommand: TypeAlias = Deliver | StartTimer


@final
@attrs.frozen
class Submitted:
    """Payloads are to be delivered, each with a number of its own."""

    numbers: tuple[int, ...]
    now: Instant

    def __str__(self) -> str:
        return f"{len(self.numbers)} payloads submitted"


@final
@attrs.frozen
class AttemptEnded:
    """An attempt has ended."""

    number: int
    era: int
    outcome: AttemptOutcome
    now: Instant

    def __str__(self) -> str:
        return f"payload {self.number}: {self.outcome.value} (era {self.era})"


@final
@attrs.frozen
class TimerFired:
    """The time to wait is over."""

    now: Instant

    def __str__(self) -> str:
        return "the timer fired"


OutboxEvent: TypeAlias = Submitted | AttemptEnded | TimerFired


# --- the machine --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class OutboxState:
    """What is to be delivered to a sink.

    Attributes:
        circuit: The state of the circuit of the sink.
        waiting: The payloads that wait, in order.
        under_way: Those that are tried, each with the era under which it was admitted.
        is_timed: Whether a timer is set.
    """

    circuit: CircuitState = Closed()
    waiting: tuple[int, ...] = ()
    under_way: tuple[tuple[int, int], ...] = ()
    is_timed: bool = False

    def __str__(self) -> str:
        return f"{self.circuit}, {len(self.waiting)} wait, {len(self.under_way)} under way"


OutboxStep: TypeAlias = Step[OutboxState, OutboxCommand]


@final
@attrs.frozen
class OutboxRules:
    """How payloads of one sink are delivered.

    Invariant: 1 <= most.

    Attributes:
        breaker: When the circuit opens, and for how long.
        most: How many are tried at once.
    """

    breaker: CircuitBreaker = CircuitBreaker()
    most: int = 4

    def __attrs_post_init__(self) -> None:
        check_type(self.breaker, CircuitBreaker, "a breaker")
        check_int(self.most, "a number of attempts", 1)

    def step(self, state: OutboxState, event: OutboxEvent) -> OutboxStep:
        """What is tried now.

        Args:
            state: The state before.
            event: What happened, with the time.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: An argument is of another type, or the clocks differ.
        """
        check_type(state, OutboxState, "the state of an outbox")
        _check_event(event)
        match event:
            case Submitted(numbers, now):
                return self._tried(attrs.evolve(state, waiting=(*state.waiting, *numbers)), now)
            case TimerFired(now):
                return self._tried(attrs.evolve(state, is_timed=False), now)
            case AttemptEnded(number, era, _, now):
                if (number, era) not in state.under_way:
                    return Step(state)
                return self._tried(self._ended(state, event), now)
            case _:
                assert_never(event)

    def _ended(self, state: OutboxState, event: AttemptEnded) -> OutboxState:
        """The circuit learns the outcome; what was not answered waits again, behind the others."""
        left = tuple(each for each in state.under_way if each != (event.number, event.era))
        is_answered = event.outcome is AttemptOutcome.ANSWERED
        waiting = state.waiting if is_answered else (*state.waiting, event.number)
        circuit = recorded(self.breaker, state.circuit, event.era, event.outcome, event.now)
        return attrs.evolve(state, circuit=circuit, waiting=waiting, under_way=left)

    def _tried(self, state: OutboxState, now: Instant) -> OutboxStep:
        """With as many under way as the circuit admits, and a timer where it holds one back."""
        commands: list[OutboxCommand] = []
        while state.waiting and self._busy(state) < self.most:
            verdict = admit(self.breaker, state.circuit, now)
            if isinstance(verdict, HoldBack):
                if not state.is_timed:
                    commands.append(StartTimer(verdict.until))
                    state = attrs.evolve(state, is_timed=True)
                break
            number, *rest = state.waiting
            begun = (*state.under_way, (number, verdict.era))
            state = attrs.evolve(state, circuit=verdict.circuit, waiting=tuple(rest), under_way=begun)
            commands.append(Deliver(number, verdict.era))
        return Step(state, tuple(commands))

    def _busy(self, state: OutboxState) -> int:
        """How many attempts of this era are under way; of what was asked before, nobody knows when it ends."""
        return sum(era == state.circuit.era for _, era in state.under_way)


_EVENTS: Final = get_args(OutboxEvent)


def _check_event(event: OutboxEvent) -> None:
    """Raise Misuse unless this is an event with fields of the right types."""
    check_type(event, _EVENTS, "an event of an outbox")
    check_type(event.now, Instant, "the time")
    match event:
        case Submitted(numbers):
            check_type(numbers, tuple, "a tuple of numbers of payloads")
            for number in numbers:
                check_int(number, "the number of a payload", 0)
        case AttemptEnded(number, era, outcome):
            check_int(number, "the number of a payload", 0)
            check_int(era, "the era of a circuit", 0)
            check_type(outcome, AttemptOutcome, "an outcome")
        case TimerFired():
            pass
        case _:
            assert_never(event)
