"""Laws of `tidegate.sinks.outbox`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidegate.model.instants import Duration, Instant
from tidegate.sinks.circuit_breaker import CircuitBreaker, CircuitState, Closed, HalfOpen, Open
from tidegate.sinks.outbox import Deliver, HandBack, OutboxCommand, OutboxState, OutboxStep


def open_numbers(outbox: OutboxState) -> frozenset[int]:
    return frozenset(outbox.waiting).union(*(each.numbers for each in outbox.under_way))


def settled_was_answered(
    given: Iterable[int],
    outbox: OutboxState,
    taken: Collection[int],
    handed_back: Sequence[int],
    withdrawn: Collection[int],
) -> bool:
    """Law CU1: a payload neither waiting nor under way was taken, handed back once, or
    withdrawn.
    """
    left, ended = open_numbers(outbox), {*taken, *handed_back, *withdrawn}
    return len({*handed_back}) == len(handed_back) and all(number in left or number in ended for number in given)


def is_woken(breaker: CircuitBreaker, longest: Duration, outbox: OutboxState, now: Instant) -> bool:
    """Law CU2; the bound is a cooldown or `longest`, the longest back-off."""
    if not outbox.waiting:
        return True
    if isinstance(outbox.circuit, Closed) and any(each.era == outbox.circuit.era for each in outbox.under_way):
        return True
    return outbox.wakes_at is not None and outbox.wakes_at - now <= max(breaker.cooldown, longest)


def is_probed_by_one(outbox: OutboxState, most: int) -> bool:
    """Law CU3: at most `most` attempts of the newest era; one while half open, none while open."""
    newest = sum(each.era == outbox.circuit.era for each in outbox.under_way)
    if isinstance(outbox.circuit, Closed):
        return newest <= most
    return newest <= (1 if isinstance(outbox.circuit, HalfOpen) else 0)


def waits_while_open(before: OutboxState, begun: Iterable[OutboxCommand], now: Instant) -> bool:
    """Law CU3: no attempt while the circuit is open and its cooldown lasts."""
    if not isinstance(before.circuit, Open) or before.circuit.until - now <= 0:
        return True
    return not any(isinstance(command, Deliver) for command in begun)


def counts_in_a_row(
    breaker: CircuitBreaker, before: OutboxState, after: OutboxState, given_up: Collection[int] = ()
) -> bool:
    """Law CB1, for a step of the outbox; `given_up` payloads were handed back without a refusal."""
    if not isinstance(before.circuit, Closed):
        return True
    ended = [each for each in before.under_way if each.era == before.circuit.era and each not in after.under_way]
    known = [{*each.numbers} - {*before.withdrawn} for each in ended]
    if not all(known):
        return True  # its outcome is unknown
    row, left = before.circuit.unanswered, {*after.waiting, *given_up}
    if any(not each <= left for each in known):  # one was taken or refused
        return after.circuit == Closed(before.circuit.era)
    if row + 1 >= breaker.threshold:
        return isinstance(after.circuit, Open) or after.circuit == before.circuit
    return after.circuit in (before.circuit, Closed(before.circuit.era, row + 1))


def ignores_other_eras(before: OutboxState, after: OutboxState, now: Instant) -> bool:
    """Law CB4: the end of an attempt of another era leaves the circuit; a probe may be due."""
    others = {each for each in before.under_way if each.era != before.circuit.era}
    if others <= {*after.under_way} or _is_same(before.circuit, after.circuit, now):
        return True
    is_due = not isinstance(before.circuit, Closed) and before.circuit.until - now <= 0
    return is_due and isinstance(after.circuit, HalfOpen)


def _is_same(one: CircuitState, other: CircuitState, now: Instant) -> bool:
    """Once a cooldown is over, its begin does not matter."""
    if isinstance(one, Closed) or isinstance(other, Closed):
        return one == other
    are_over = one.until - now <= 0 and other.until - now <= 0
    return type(one) is type(other) and one.era == other.era and (are_over or one.until == other.until)


def ignores_what_nobody_asked(before: OutboxState, step: OutboxStep) -> bool:
    """Law CU4: the state is unchanged, and there are no commands."""
    return step.state == before and not step.commands


def ignores_withdrawn(before: OutboxState, commands: Iterable[OutboxCommand]) -> bool:
    """Law CU5."""
    asked = {number for each in commands for number in _numbers(each)}
    return not asked & {*before.withdrawn}


def _numbers(command: OutboxCommand) -> tuple[int, ...]:
    match command:
        case Deliver(numbers):
            return numbers
        case HandBack(number):
            return (number,)
        case _:
            return ()


def waits_for_its_time(before: OutboxState, commands: Iterable[OutboxCommand], now: Instant) -> bool:
    """Law CU6."""
    early = {number for number, each in before.failed if each.not_before is not None and each.not_before - now > 0}
    tried = {number for each in commands if isinstance(each, Deliver) for number in each.numbers}
    return not tried & early
