"""An outbox: chooses which waiting payloads of one sink to try now, as a reducer.

Many tasks of a worker deliver to one sink. The circuit (`tidegate.sinks.circuit_breaker`) decides
before each attempt, which takes several payloads; `tidegate.sinks.delivery` decides the result of a
failed one.

                                            .-- delivered --> settled
    waiting -- the circuit admits --> under way -- failed for good --> handed back
       ^                                    '-- failed: again, later ---.
       '----------------------------------------------------------------'

An unanswered payload may have arrived and is tried again: delivery is at least once. A payload is
withdrawn when its partition is revoked.

Laws (CU for courier)
    CU1  A payload ends once: settled (the sink has it), handed back (`delivery` gives up), or
         withdrawn.
    CU2  While a payload waits, an attempt is under way or a timer is set, within a cooldown or its
         back-off.
    CU3  At most `most` attempts of the newest era are under way; at most one probe while not
         closed.
    CU4  The end of an unknown attempt, or of one that has ended already, changes nothing.
    CU5  A withdrawn payload is neither tried again nor handed back.
    CU6  A failed payload is not tried again before its time (`delivery.Sending.not_before`).

Known not to work
    - An attempt that never ends keeps its payloads, so its executor must bound its time.
    - The circuit belongs to one process: each worker detects for itself that a sink is down.
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
    """Try to deliver these payloads; `AttemptEnded` reports it with the same numbers and era."""

    numbers: tuple[int, ...]
    era: int

    def __str__(self) -> str:
        return f"deliver {_some(self.numbers)} (era {self.era})"


@final
@attrs.frozen(cache_hash=True)
class HandBack(Effect[object]):
    """Report the final state of a payload to its submitter."""

    number: int
    payload: Payload

    def __str__(self) -> str:
        return f"hand back payload {self.number}"


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[Instant]):
    """Send `TimerFired` at that time."""

    until: Instant

    def __str__(self) -> str:
        return f"wake at {self.until}"


OutboxCommand: TypeAlias = Deliver | HandBack | StartTimer


@final
@attrs.frozen
class Submitted:
    """Payloads to deliver, with distinct numbers."""

    numbers: tuple[int, ...]
    now: Instant

    def __str__(self) -> str:
        return f"{len(self.numbers)} payloads submitted"


@final
@attrs.frozen
class Withdrawn:
    """Their submitter no longer waits for these payloads."""

    numbers: tuple[int, ...]
    now: Instant

    def __str__(self) -> str:
        return f"{_some(self.numbers)} withdrawn"


@final
@attrs.frozen
class AttemptEnded:
    """An attempt has ended, with a failure or None for each payload.

    Invariants: as many failures as numbers; 0 <= draw_ppm <= PPM.
    """

    numbers: tuple[int, ...]
    era: int
    failures: tuple[Failure | None, ...]
    now: Instant
    draw_ppm: int = 0

    @property
    def outcome(self) -> AttemptOutcome:
        """A sink that answered for one payload has answered."""
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
    """The state of the payloads of a sink.

    Attributes:
        failed: Failed payloads, waiting or under way, with their failures and next time.
        withdrawn: Payloads under way that were withdrawn.
        wakes_at: The time of the next timer, if set.
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
    """The settings of an outbox: at most `most` concurrent attempts of at most `batch` payloads.

    Invariants: 1 <= most, batch.
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
        """The next state and commands after an event."""
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
        """Record the outcome in the circuit; payloads to retry go to the end of the queue."""
        left = [*state.under_way]
        left.remove(attempt)
        circuit = recorded(self.breaker, state.circuit, event.era, event.outcome, event.now)
        state = attrs.evolve(state, circuit=circuit, under_way=tuple(left))
        commands: list[OutboxCommand] = []
        if state.failed or state.withdrawn or any(event.failures):
            state, commands = self._follow_failures(state, event)
        return self._try_due(state, event.now, commands)

    def _follow_failures(self, state: OutboxState, event: AttemptEnded) -> tuple[OutboxState, list[OutboxCommand]]:
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
        """Start the attempts that the circuit admits, or set a timer."""
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
        """The attempts of this era; when earlier ones end is unknown."""
        return sum(each.era == state.circuit.era for each in state.under_way)


def _due(state: OutboxState, now: Instant) -> tuple[tuple[int, ...], list[Instant]]:
    """The waiting payloads that are due, and when the others are."""
    if not state.failed:
        return state.waiting, []
    times = {number: each.not_before for number, each in state.failed}
    later = {number: at for number in state.waiting if (at := times.get(number)) is not None and at - now > 0}
    return tuple(each for each in state.waiting if each not in later), [*later.values()]


def _without(state: OutboxState, numbers: tuple[int, ...]) -> OutboxState:
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
