"""The laws of `tidegate.consumer.backpressure` as predicates over decisions and plans."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.consumer.backpressure import (
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
    """What is held once the plan is carried out."""
    return (frozenset(held) | frozenset(todo.pause)) - frozenset(todo.resume)


def does_not_flap(thresholds: Thresholds, gate: Gate, load: int, verdict: GateVerdict) -> bool:
    """Law B1: the gate closes only at or above high, and opens only at or below low."""
    if verdict.gate is gate:
        return True
    return load >= thresholds.high if isinstance(verdict, Hold) else load <= thresholds.low


def crosses_from_high_to_low(thresholds: Thresholds, history: Iterable[tuple[int, Gate]]) -> bool:
    """Law B1, over a history of loads and of where the gate stood then: it crosses the whole distance each time."""
    gate = Gate.OPEN
    for load, now in history:
        if not (load >= thresholds.high if now is Gate.CLOSED else load <= thresholds.low) and now is not gate:
            return False
        gate = now
    return True


def bounds_the_load(thresholds: Thresholds, load: int, assigned: Collection[P], held: Collection[P]) -> bool:
    """Law B2: at or above high, what is held once the plan is carried out is all that is assigned."""
    return load < thresholds.high or frozenset(assigned) <= frozenset(held)


def stays_below(thresholds: Thresholds, fetch_max: int, load: int) -> bool:
    """Law B2, as the consumer sees it: the load stays below high plus what one poll may bring."""
    return load < thresholds.high + fetch_max


def polls_nothing_at_high(thresholds: Thresholds, load: int, todo: Plan[P]) -> bool:
    """Law B2: at or above high, nothing is polled."""
    return load < thresholds.high or not todo.poll


def outlives_no_reason(
    thresholds: Thresholds, load: int, wanted: Collection[P], todo: Plan[P], paused: Collection[P]
) -> bool:
    """Law B3: at or below low, what is assigned and not held is polled, and not paused once the plan is carried out."""
    return load > thresholds.low or (frozenset(wanted) == frozenset(todo.poll) and frozenset(wanted).isdisjoint(paused))


def leaves_nothing_to_do(again: Plan[P]) -> bool:
    """Law B4: the plan that is made after a plan was carried out pauses and resumes nothing."""
    return not again.pause and not again.resume


def reports_what_is_wrong(todo: Plan[P], assigned: Collection[P], paused: Collection[P]) -> bool:
    """Law B5: only assigned partitions, only those that are not as they should be, each once and in order."""
    flowing = frozenset(assigned) - frozenset(paused)
    return (
        flowing.issuperset(todo.pause)
        and (frozenset(assigned) & frozenset(paused)).issuperset(todo.resume)
        and frozenset(assigned).issuperset(todo.poll)
        and all(list(each) == sorted(set(each)) for each in (todo.pause, todo.resume, todo.poll))
    )


def tells_of_the_change(gate: Gate, verdict: GateVerdict) -> bool:
    """Law B6: the verdict says that something changed exactly if the gate did."""
    return verdict.changed == (verdict.gate is not gate)


def holds_for_its_signals(
    limits: PartitionLimits, before: PartitionHold, pressure: PartitionPressure, after: PartitionHold
) -> bool:
    """Law B7: held for exactly the signals at or above their high, and those above their low that held it before."""
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
    """Law B8: what is held is not polled; of the others, as much is polled and resumed as if it were not there."""
    stopped = frozenset(assigned) & frozenset(held)
    return (todo.poll, todo.resume) == (
        tuple(each for each in alone.poll if each not in stopped),
        tuple(each for each in alone.resume if each not in stopped),
    )


def throws_nothing_away(todo: Plan[P]) -> bool:
    """Law B9: of a client that polls selectively, nothing is paused while anything is polled."""
    return not todo.poll or not todo.pause


def flows_exactly(todo: Plan[P], assigned: Collection[P], paused: Collection[P]) -> bool:
    """Law B2, of a client that cannot poll selectively: once the plan is carried out, what is not polled is paused."""
    return frozenset(assigned) - frozenset(paused) == frozenset(todo.poll)


def counts_each_record_once(load: Load, unsettled: int) -> bool:
    """Law B10: the load is the number of records that were delivered and are not settled, wherever they are."""
    return load.records == unsettled


def flows_again(todo: Plan[P], assigned: Collection[P], paused: Collection[P]) -> bool:
    """Law B11: all that is assigned is polled, and none of it is paused once the plan is carried out."""
    return frozenset(todo.poll) == frozenset(assigned) and frozenset(assigned).isdisjoint(paused)
