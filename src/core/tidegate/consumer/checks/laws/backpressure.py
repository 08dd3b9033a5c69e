"""The laws of `tidegate.consumer.flow.backpressure` as predicates over decisions and plans."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.consumer.flow.backpressure import (
    Gate,
    GateVerdict,
    Hold,
    Load,
    P,
    PartitionHold,
    PartitionLimits,
    PartitionPressure,
    Plan,
    Signal,
    Thresholds,
)


def carried_out(todo: Plan[P], held: Collection[P]) -> frozenset[P]:
    """The partitions that are held once the plan is applied."""
    return (frozenset(held) | frozenset(todo.pause)) - frozenset(todo.resume)


def does_not_flap(thresholds: Thresholds, gate: Gate, load: int, verdict: GateVerdict) -> bool:
    """Law B1, over one verdict."""
    if verdict.gate is gate:
        return True
    return load >= thresholds.high if isinstance(verdict, Hold) else load <= thresholds.low


def crosses_from_high_to_low(thresholds: Thresholds, history: Iterable[tuple[int, Gate]]) -> bool:
    """Law B1, over a history of loads, each with the gate after it."""
    gate = Gate.OPEN
    for load, now in history:
        if not (load >= thresholds.high if now is Gate.CLOSED else load <= thresholds.low) and now is not gate:
            return False
        gate = now
    return True


def bounds_the_load(thresholds: Thresholds, load: int, assigned: Collection[P], held: Collection[P]) -> bool:
    """Law B2: at or above `high`, all assigned partitions are held once the plan is applied."""
    return load < thresholds.high or frozenset(assigned) <= frozenset(held)


def stays_below(thresholds: Thresholds, fetch_max: int, load: int) -> bool:
    """Law B2, for the consumer: the load stays below `high` plus the records of one poll."""
    return load < thresholds.high + fetch_max


def polls_nothing_at_high(thresholds: Thresholds, load: int, todo: Plan[P]) -> bool:
    """Law B2: at or above `high` no partition is polled."""
    return load < thresholds.high or not todo.poll


def outlives_no_reason(
    thresholds: Thresholds, load: int, wanted: Collection[P], todo: Plan[P], paused: Collection[P]
) -> bool:
    """Law B3. `wanted` are the assigned partitions that are not held; `paused` those paused once
    the plan is applied.
    """
    return load > thresholds.low or (frozenset(wanted) == frozenset(todo.poll) and frozenset(wanted).isdisjoint(paused))


def leaves_nothing_to_do(again: Plan[P]) -> bool:
    """Law B4. `again` is the plan made after another one was applied."""
    return not again.pause and not again.resume


def reports_what_is_wrong(todo: Plan[P], assigned: Collection[P], paused: Collection[P]) -> bool:
    """Law B5."""
    flowing = frozenset(assigned) - frozenset(paused)
    return (
        flowing.issuperset(todo.pause)
        and (frozenset(assigned) & frozenset(paused)).issuperset(todo.resume)
        and frozenset(assigned).issuperset(todo.poll)
        and all(list(each) == sorted(set(each)) for each in (todo.pause, todo.resume, todo.poll))
    )


def tells_of_the_change(gate: Gate, verdict: GateVerdict) -> bool:
    """Law B6."""
    return verdict.changed == (verdict.gate is not gate)


def holds_for_its_signals(
    limits: PartitionLimits, before: PartitionHold, pressure: PartitionPressure, after: PartitionHold
) -> bool:
    """Law B7."""
    signals = (
        (Signal.SPAN, limits.span, pressure.span),
        (Signal.SIZE, limits.size, pressure.size),
        (Signal.AGE, limits.age, pressure.age),
        (Signal.METADATA, limits.metadata, pressure.metadata),
    )
    return after.by == tuple(
        signal
        for signal, bound, now in signals
        if bound is not None and (now >= bound.high or (now > bound.low and signal in before.by))
    )


def leaves_the_others_alone(todo: Plan[P], alone: Plan[P], assigned: Collection[P], held: Collection[P]) -> bool:
    """Law B8. `alone` is the plan made as if no partition were held."""
    stopped = frozenset(assigned) & frozenset(held)
    return (todo.poll, todo.resume) == (
        tuple(each for each in alone.poll if each not in stopped),
        tuple(each for each in alone.resume if each not in stopped),
    )


def throws_nothing_away(todo: Plan[P]) -> bool:
    """Law B9, for a client with selective polling."""
    return not todo.poll or not todo.pause


def flows_exactly(todo: Plan[P], assigned: Collection[P], paused: Collection[P]) -> bool:
    """Law B2, without selective polling: exactly the polled partitions are not paused."""
    return frozenset(assigned) - frozenset(paused) == frozenset(todo.poll)


def counts_each_record_once(load: Load, unsettled: int) -> bool:
    """Law B10. `unsettled` counts the records delivered and not settled."""
    return load.records == unsettled


def flows_again(todo: Plan[P], assigned: Collection[P], paused: Collection[P]) -> bool:
    """Law B11. `paused` are the partitions paused once the plan is applied."""
    return frozenset(todo.poll) == frozenset(assigned) and frozenset(assigned).isdisjoint(paused)
