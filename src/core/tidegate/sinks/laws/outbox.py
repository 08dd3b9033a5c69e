"""Laws of `tidegate.sinks.outbox`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.model.instants import Instant
from tidegate.sinks.circuit_breaker import CircuitBreaker, CircuitState, Closed, HalfOpen, Open
from tidegate.sinks.outbox import Deliver, OutboxCommand, OutboxState, OutboxStep

__all__ = [
    "counts_in_a_row", "ignores_other_eras", "ignores_what_nobody_asked", "is_probed_by_one", "is_woken",
    "settled_was_answered", "waits_while_open",
]  # fmt: skip


def settled_was_answered(given: Iterable[int], outbox: OutboxState, answered: Collection[int]) -> bool:
    """Law CU1: what is neither waiting nor under way was answered for.

    Args:
        given: All payloads.
        outbox: The state of the outbox.
        answered: Those that the sink has answered for.
    """
    left = {*outbox.waiting, *(number for number, _ in outbox.under_way)}
    return all(number in left or number in answered for number in given)


def is_woken(breaker: CircuitBreaker, outbox: OutboxState, now: Instant) -> bool:
    """Law CU2: where a payload waits, one of this era is under way, or a timer is set, and not beyond a cooldown."""
    if not outbox.waiting:
        return True
    if isinstance(outbox.circuit, Closed):
        return any(era == outbox.circuit.era for _, era in outbox.under_way)
    return outbox.is_timed and outbox.circuit.until - now <= breaker.cooldown


def is_probed_by_one(outbox: OutboxState, most: int) -> bool:
    """Law CU3: at most `most` attempts of the newest era are under way; one while half open, none while open."""
    newest = sum(era == outbox.circuit.era for _, era in outbox.under_way)
    if isinstance(outbox.circuit, Closed):
        return newest <= most
    return newest <= (1 if isinstance(outbox.circuit, HalfOpen) else 0)


def waits_while_open(before: OutboxState, begun: Iterable[OutboxCommand], now: Instant) -> bool:
    """Law CU3: while the circuit is open, and its cooldown is not over, nothing is tried."""
    if not isinstance(before.circuit, Open) or before.circuit.until - now <= 0:
        return True
    return not any(isinstance(command, Deliver) for command in begun)


def counts_in_a_row(breaker: CircuitBreaker, before: OutboxState, after: OutboxState) -> bool:
    """Law CB1: a closed circuit counts what is unanswered in a row, and opens at the threshold, not before."""
    if not isinstance(before.circuit, Closed):
        return True
    left = {*after.waiting, *(number for number, _ in after.under_way)}
    newest = {number for number, era in before.under_way if era == before.circuit.era}
    row = before.circuit.unanswered
    if newest - left:  # one was answered
        return after.circuit == Closed(before.circuit.era)
    if row + 1 >= breaker.threshold:
        return isinstance(after.circuit, Open) or after.circuit == before.circuit
    return after.circuit in (before.circuit, Closed(before.circuit.era, row + 1))


def ignores_other_eras(before: OutboxState, after: OutboxState, now: Instant) -> bool:
    """Law CB4: the end of an attempt of another era does not change the circuit; a probe may be due."""
    others = {each for each in before.under_way if each[1] != before.circuit.era}
    if others <= {*after.under_way} or _is_same(before.circuit, after.circuit, now):
        return True
    is_due = not isinstance(before.circuit, Closed) and before.circuit.until - now <= 0
    return is_due and isinstance(after.circuit, HalfOpen)


def _is_same(one: CircuitState, other: CircuitState, now: Instant) -> bool:
    """Whether two circuits are equal, as far as it matters: of a cooldown that is over, it does not matter since when."""
    if isinstance(one, Closed) or isinstance(other, Closed):
        return one == other
    are_over = one.until - now <= 0 and other.until - now <= 0
    return type(one) is type(other) and one.era == other.era and (are_over or one.until == other.until)


def ignores_what_nobody_asked(before: OutboxState, step: OutboxStep) -> bool:
    """Law CU4: the state stays, and there are no commands."""
    return step.state == before and not step.commands
