"""Payloads wait for one sink. Which are tried now, so that a sink that is away is not asked by all of them?

Many tasks of a worker deliver to one sink at once, and each attempt takes its time. The circuit of the sink
(`tidegate.sinks.circuit_breaker`) is asked before each attempt and learns its outcome, while others are under way. An attempt
takes several payloads, for a sink that takes them in bulk. What follows the failure of a payload, `tidegate.sinks.delivery`
says. This is that part of a worker, as a reducer:

                                            .-- delivered --> settled
    waiting -- the circuit admits --> under way -- not delivered, and not to be tried again --> handed back
       ^                                    '-- failed: again, later ---.
       '----------------------------------------------------------------'

While the circuit is open payloads wait, and a timer says when to try again. What was not answered may have arrived; it is
tried again, so delivery is at least once. A payload that nobody waits for any more is withdrawn: its partition was given back.

Laws (CU: whoever takes payloads to a sink is its courier)
    CU1  A payload is settled when the sink has taken it, handed back when `delivery` gives it up, and withdrawn when
         somebody says so: one of these, once.
    CU2  What waits is woken: whenever a payload waits, one is under way, or a timer is set, within a cooldown or its back-off.
    CU3  At most `most` attempts of the newest era are under way; while the circuit is not closed, one probe at most.
    CU4  The end of an attempt that nobody made, or that has ended already, changes nothing.
    CU5  What was withdrawn is not tried again, and not handed back.
    CU6  What has failed is not tried again before its time (`delivery.Sending.not_before`).

Known not to work
    An attempt that never ends keeps its payloads. Whoever carries it out bounds its time, and says then that it was not
    answered; until then others go on, once the circuit has opened.
    The circuit is that of one process. Each worker finds out for itself that a sink is away.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.model.effects import Effect, Failure
from tidegate.model.instants import PPM, Instant
from tidegate.model.reducer import Step
from tidegate.model.sealed import sealed
from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.sinks import delivery
from tidegate.sinks.circuit_breaker import (
    AttemptOutcome,
    CircuitBreaker,
    CircuitState,
    Closed,
    HoldBack,
    admit,
    attempt_outcome,
    recorded,
)
from tidegate.sinks.delivery import Action, DeliveryRules, Failed, Payload, Sending

# --- commands and events --------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Deliver(Effect[object]):
    """Try to deliver these payloads; its end is `AttemptEnded`, with the same numbers and era."""

    numbers: tuple[int, ...]
    era: int

    def __str__(self) -> str:
        return f"deliver {_some(self.numbers)} (era {self.era})"


@final
@attrs.frozen(cache_hash=True)
class HandBack(Effect[object]):
    """A payload is not tried again: say to whoever submitted it what has become of it."""

    number: int
    payload: Payload

    def __str__(self) -> str:
        return f"hand back payload {self.number}"


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[Instant]):
    """Send `TimerFired` when that time has come."""

    until: Instant

    def __str__(self) -> str:
        return f"wake at {self.until}"


OutboxCommand: TypeAlias = Deliver | HandBack | StartTimer


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
class Withdrawn:
    """Nobody waits for these payloads any more."""

    numbers: tuple[int, ...]
    now: Instant

    def __str__(self) -> str:
        return f"{_some(self.numbers)} withdrawn"


@final
@attrs.frozen
class AttemptEnded:
    """An attempt has ended. Invariants: as many failures as numbers; 0 <= draw_ppm <= PPM.

    Attributes:
        numbers: The payloads that were tried.
        era: The era under which it was admitted.
        failures: How each of them failed; None for what the sink has taken.
        now: The time.
        draw_ppm: A random number for the jitter of the policy.
    """

    numbers: tuple[int, ...]
    era: int
    failures: tuple[Failure | None, ...]
    now: Instant
    draw_ppm: int = 0

    @property
    def outcome(self) -> AttemptOutcome:
        """What it says of the sink, which has answered if it did so for one of them."""
        outcomes = {attempt_outcome(each) for each in {*self.failures}}
        return AttemptOutcome.ANSWERED if AttemptOutcome.ANSWERED in outcomes else AttemptOutcome.UNANSWERED

    def __str__(self) -> str:
        return f"{_some(self.numbers)}: {self.outcome.value} (era {self.era})"


@final
@attrs.frozen
class TimerFired:
    """The time to wait is over."""

    now: Instant

    def __str__(self) -> str:
        return "the timer fired"


OutboxEvent: TypeAlias = Submitted | Withdrawn | AttemptEnded | TimerFired


def _some(numbers: tuple[int, ...]) -> str:
    return f"payload{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


# --- the machine --------------------------------------------------------------------------------------------------------


@final
@sealed
class OutboxState:
    """What is to be delivered to a sink.

    Attributes:
        circuit: The state of the circuit of the sink.
        waiting: The payloads that wait, in order.
        under_way: The attempts.
        failed: Those of either that have failed, each with its failures, and the time before which it is not tried.
        withdrawn: Those under way that nobody waits for.
        wakes_at: When the next timer fires, if one is set.
    """

    circuit: CircuitState = Closed()
    waiting: tuple[int, ...] = ()
    under_way: tuple[Deliver, ...] = ()
    failed: tuple[tuple[int, Sending], ...] = ()
    withdrawn: tuple[int, ...] = ()
    wakes_at: Instant | None = None

    def __str__(self) -> str:
        return f"{self.circuit}, {len(self.waiting)} wait, {len(self.under_way)} under way"


OutboxStep: TypeAlias = Step[OutboxState, OutboxCommand]


@final
@attrs.frozen(kw_only=True)
class OutboxRules:
    """How payloads of one sink are delivered.

    Invariants: 1 <= most, batch.

    Attributes:
        breaker: When the circuit opens, and for how long.
        delivery: What follows the failure of a payload.
        most: How many attempts are made at once.
        batch: How many payloads an attempt takes at most.
    """

    breaker: CircuitBreaker = CircuitBreaker()
    delivery: DeliveryRules = DeliveryRules()
    most: int = 4
    batch: int = 500

    def __attrs_post_init__(self) -> None:
        check_type(self.breaker, CircuitBreaker, "a breaker")
        check_type(self.delivery, DeliveryRules, "rules of a delivery")
        check_int(self.most, "a number of attempts", 1)
        check_int(self.batch, "a number of payloads", 1)

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
                return self._try_due(attrs.evolve(state, waiting=(*state.waiting, *numbers)), now)
            case Withdrawn(numbers):
                return Step(_without(state, numbers))
            case TimerFired(now):
                return self._try_due(attrs.evolve(state, wakes_at=None), now)
            case AttemptEnded(numbers, era):
                attempt = Deliver(numbers, era)
                return self._end(state, attempt, event) if attempt in state.under_way else Step(state)
            case _:
                assert_never(event)

    def _end(self, state: OutboxState, attempt: Deliver, event: AttemptEnded) -> OutboxStep:
        """The circuit learns the outcome; what is to be tried again waits, behind the others."""
        left = [*state.under_way]
        left.remove(attempt)
        circuit = recorded(self.breaker, state.circuit, event.era, event.outcome, event.now)
        state = attrs.evolve(state, circuit=circuit, under_way=tuple(left))
        commands: list[OutboxCommand] = []
        if state.failed or state.withdrawn or any(event.failures):
            state, commands = self._follow_failures(state, event)
        return self._try_due(state, event.now, commands)

    def _follow_failures(self, state: OutboxState, event: AttemptEnded) -> tuple[OutboxState, list[OutboxCommand]]:
        """What becomes of each payload of an attempt, where one has failed, now or before, or was withdrawn."""
        waiting, failed, withdrawn = [*state.waiting], dict(state.failed), {*state.withdrawn}
        commands: list[OutboxCommand] = []
        for number, failure in zip(event.numbers, event.failures, strict=True):
            before = failed.pop(number, Sending())
            if number in withdrawn or failure is None:
                withdrawn.discard(number)
                continue
            happened = Failed(before.attempt, failure, Action.RETRY, event.now, event.draw_ppm)
            after = delivery.step(self.delivery, before, happened)
            if isinstance(after, Sending):
                waiting.append(number)
                failed[number] = after
            else:
                commands.append(HandBack(number, after))
        state = attrs.evolve(
            state, waiting=tuple(waiting), failed=tuple(failed.items()), withdrawn=tuple(sorted(withdrawn))
        )
        return state, commands

    def _try_due(self, state: OutboxState, now: Instant, commands: list[OutboxCommand] | None = None) -> OutboxStep:
        """With as many attempts under way as the circuit admits, and a timer where it holds payloads back, or their back-off."""
        commands = [] if commands is None else commands
        wakes: list[Instant] = []
        while state.waiting and self._busy(state) < self.most:
            due, later = _due(state, now)
            wakes = later
            if not due:
                break
            verdict = admit(self.breaker, state.circuit, now)
            if isinstance(verdict, HoldBack):
                wakes = [verdict.until]
                break
            attempt = Deliver(due[: self.batch], verdict.era)
            begun = {*attempt.numbers}
            state = attrs.evolve(
                state, circuit=verdict.circuit, under_way=(*state.under_way, attempt),
                waiting=() if len(begun) == len(state.waiting) else tuple(each for each in state.waiting if each not in begun),
            )  # fmt: skip
            commands.append(attempt)
        if wakes and state.waiting:
            earliest = min(wakes, key=lambda each: each - now)
            if state.wakes_at is None or earliest - state.wakes_at < 0:
                commands.append(StartTimer(earliest))
                state = attrs.evolve(state, wakes_at=earliest)
        return Step(state, tuple(commands))

    def _busy(self, state: OutboxState) -> int:
        """How many attempts of this era are under way; of what was asked before, nobody knows when it ends."""
        return sum(each.era == state.circuit.era for each in state.under_way)


def _due(state: OutboxState, now: Instant) -> tuple[tuple[int, ...], list[Instant]]:
    """The waiting payloads that may be tried now, and when the others may be."""
    if not state.failed:
        return state.waiting, []
    times = {number: each.not_before for number, each in state.failed}
    later = {number: at for number in state.waiting if (at := times.get(number)) is not None and at - now > 0}
    return tuple(each for each in state.waiting if each not in later), [*later.values()]


def _without(state: OutboxState, numbers: tuple[int, ...]) -> OutboxState:
    """Without payloads that nobody waits for; of what is under way it is noted."""
    gone = {*numbers}
    under_way = {number for each in state.under_way for number in each.numbers}
    return attrs.evolve(
        state,
        waiting=tuple(each for each in state.waiting if each not in gone),
        failed=tuple(each for each in state.failed if each[0] not in gone),
        withdrawn=tuple(sorted({*state.withdrawn} | gone & under_way)),
    )


_EVENTS: Final = get_args(OutboxEvent)


def _check_event(event: OutboxEvent) -> None:
    """Raise Misuse unless this is an event with fields of the right types."""
    check_type(event, _EVENTS, "an event of an outbox")
    check_type(event.now, Instant, "the time")
    match event:
        case Submitted(numbers) | Withdrawn(numbers):
            _check_numbers(numbers)
        case AttemptEnded(numbers, era, failures, _, draw_ppm):
            _check_numbers(numbers)
            check_int(era, "the era of a circuit", 0)
            check_tuple(failures, (Failure, type(None)), "failures")
            check_int(len(failures), "a number of failures", len(numbers), len(numbers))
            check_int(draw_ppm, "a draw in parts per million", 0, PPM)
        case TimerFired():
            pass
        case _:
            assert_never(event)


def _check_numbers(numbers: tuple[int, ...]) -> None:
    check_type(numbers, tuple, "a tuple of numbers of payloads")
    for number in numbers:
        check_int(number, "the number of a payload", 0)
