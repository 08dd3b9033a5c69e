"""Payloads wait for one sink. Which one is tried now, so that a sink that is away is not asked by all of them?

Many tasks of a worker deliver to one sink at once, and each attempt takes its time: the circuit of the sink
(`tidegate.sinks.circuit_breaker`) is asked before each, and told after each, while others are under way. This is that part of a worker,
as a reducer:

    waiting -- the circuit admits one --> under way, with the era -- answered --> settled
       ^                                       '-------- not answered -------.
       '---------------------------------------------------------------------'

Where the circuit is open nothing is given up: payloads wait, and an alarm wakes whoever waits. What was not answered may
have arrived; it is tried again, so delivery is at least once. What a sink refuses is settled here, for it is there: what
becomes of the payload then is a matter of `tidegate.sinks.delivery`.

Laws
    CU1  A payload is settled when the sink has answered for it, and not before.
    CU2  What waits is woken: whenever a payload waits, one is under way, or an alarm is set, within a cooldown.
    CU3  At most `most` attempts of the newest era are under way; while the circuit is not closed, one probe at most.
    CU4  What is heard of an attempt that nobody made, or that was heard of, changes nothing.

Known not to work
    An attempt of which nothing is ever heard keeps its payload. Whoever carries it out bounds its time, and tells that it
    was not answered; until then others go on, once the circuit has opened.
    The circuit is that of one process. Each worker finds out for itself that a sink is away.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.model._evolving import evolve
from tidegate.model.effects import Effect
from tidegate.model.instants import Instant
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.sinks.circuit_breaker import (
    CIRCUITS,
    Admit,
    AttemptOutcome,
    CircuitBreaker,
    CircuitState,
    Closed,
    HoldBack,
    admit,
    recorded,
)

# --- commands and events --------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Deliver(Effect[object]):
    """Try to deliver a payload, and tell what came of it, with the era. Invariants: 0 <= number, era."""

    number: int
    era: int

    def __attrs_post_init__(self) -> None:
        check_int(self.number, "the number of a payload", 0)
        check_int(self.era, "the era of a circuit", 0)

    def __str__(self) -> str:
        return f"deliver payload {self.number} (era {self.era})"


@final
@attrs.frozen(cache_hash=True)
class Wake(Effect[Instant]):
    """Say when that time has come."""

    until: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.until, Instant, "the time until which to wait")

    def __str__(self) -> str:
        return f"wake it at {self.until}"


OutboxCommand: TypeAlias = Deliver | Wake


@final
@attrs.frozen
class Given:
    """Payloads are to be delivered, each with a number of its own."""

    numbers: tuple[int, ...]
    now: Instant

    def __attrs_post_init__(self) -> None:
        check_tuple(self.numbers, int, "the number of a payload")
        for number in self.numbers:
            check_int(number, "the number of a payload", 0)
        check_type(self.now, Instant, "the time")

    def __str__(self) -> str:
        return f"given {len(self.numbers)} payloads"


@final
@attrs.frozen
class Heard:
    """What came of an attempt."""

    number: int
    era: int
    outcome: AttemptOutcome
    now: Instant

    def __attrs_post_init__(self) -> None:
        check_int(self.number, "the number of a payload", 0)
        check_int(self.era, "the era of a circuit", 0)
        check_type(self.outcome, AttemptOutcome, "an outcome")
        check_type(self.now, Instant, "the time")

    def __str__(self) -> str:
        return f"payload {self.number}: {self.outcome.value} (era {self.era})"


@final
@attrs.frozen
class Woken:
    """The time to wait is over."""

    now: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.now, Instant, "the time")

    def __str__(self) -> str:
        return "woken"


OutboxEvent: TypeAlias = Given | Heard | Woken


# --- the machine --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class OutboxState:
    """What is to be delivered to a sink.

    Attributes:
        circuit: Of the sink.
        waiting: The payloads that wait, in order.
        under_way: Those that are tried, each with the era under which it was admitted.
        is_alarmed: Whether somebody will wake it.
    """

    circuit: CircuitState = Closed()
    waiting: tuple[int, ...] = ()
    under_way: tuple[tuple[int, int], ...] = ()
    is_alarmed: bool = False

    def __attrs_post_init__(self) -> None:
        check_type(self.circuit, CIRCUITS, "a circuit")
        check_tuple(self.waiting, int, "the number of a payload")
        check_tuple(self.under_way, tuple, "the number of a payload and an era")
        for pair in self.under_way:
            check_int(len(pair), "a number of parts: a payload and its era", 2, 2)
        for number in (*self.waiting, *(part for pair in self.under_way for part in pair)):
            check_int(number, "the number of a payload or of an era", 0)
        check_type(self.is_alarmed, bool, "whether somebody will wake it")

    def __str__(self) -> str:
        return f"{self.circuit}, {len(self.waiting)} wait, {len(self.under_way)} under way"


OutboxStep: TypeAlias = Step[OutboxState, OutboxCommand]


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
        check_type(state, OutboxState, "what is to be delivered")
        check_type(event, _EVENTS, "an event of a sink")
        match event:
            case Given(numbers, now):
                return self._tried(evolve(state, waiting=(*state.waiting, *numbers)), now)
            case Woken(now):
                return self._tried(evolve(state, is_alarmed=False), now)
            case Heard(number, era, outcome, now):
                if (number, era) not in state.under_way:
                    return Step(state)
                return self._tried(self._heard(state, number, era, outcome, now), now)
            case _:
                assert_never(event)

    def _heard(self, state: OutboxState, number: int, era: int, outcome: AttemptOutcome, now: Instant) -> OutboxState:
        """The circuit is told; what was not answered waits again, behind the others."""
        left = tuple(each for each in state.under_way if each != (number, era))
        waiting = state.waiting if outcome is AttemptOutcome.ANSWERED else (*state.waiting, number)
        return evolve(state, circuit=self._told(state.circuit, era, outcome, now), waiting=waiting, under_way=left)

    def _told(self, circuit: CircuitState, era: int, outcome: AttemptOutcome, now: Instant) -> CircuitState:
        return recorded(self.breaker, circuit, era, outcome, now)

    def _admit(self, circuit: CircuitState, now: Instant) -> Admit | HoldBack:
        return admit(self.breaker, circuit, now)

    def _tried(self, state: OutboxState, now: Instant) -> OutboxStep:
        """With as many under way as the circuit admits, and an alarm where it holds one back."""
        commands: list[OutboxCommand] = []
        while state.waiting and self._busy(state) < self.most:
            verdict = self._admit(state.circuit, now)
            if isinstance(verdict, HoldBack):
                if not state.is_alarmed:
                    commands.append(Wake(verdict.until))
                    state = evolve(state, is_alarmed=True)
                break
            number, *rest = state.waiting
            begun = (*state.under_way, (number, verdict.era))
            state = evolve(state, circuit=verdict.circuit, waiting=tuple(rest), under_way=begun)
            commands.append(Deliver(number, verdict.era))
        return Step(state, tuple(commands))

    def _busy(self, state: OutboxState) -> int:
        """How many attempts of this era are under way; of what was asked before, nobody knows when it ends."""
        return sum(era == state.circuit.era for _, era in state.under_way)


_EVENTS: Final = get_args(OutboxEvent)
