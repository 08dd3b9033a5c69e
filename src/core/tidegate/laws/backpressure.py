"""The laws of `tidegate.backpressure` as predicates over decisions and plans."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.backpressure import Gate, Hold, P, Plan, Thresholds, Verdict


def carried_out(todo: Plan[P], held: Collection[P]) -> frozenset[P]:
    """What is held once the plan is carried out."""
    return (frozenset(held) | frozenset(todo.hold)) - frozenset(todo.release)


def does_not_flap(thresholds: Thresholds, gate: Gate, load: int, verdict: Verdict) -> bool:
    """Law B1: the gate closes only at or above high, and opens only at or below low."""
    if verdict.gate is gate:
        return True
    return load >= thresholds.high if isinstance(verdict, Hold) else load <= thresholds.low


def bounds_the_load(thresholds: Thresholds, load: int, assigned: Collection[P], held: Collection[P]) -> bool:
    """Law B2: at or above high, what is held once the plan is carried out is all that is assigned."""
    return load < thresholds.high or frozenset(assigned) <= frozenset(held)


def stays_below(thresholds: Thresholds, fetch_max: int, load: int) -> bool:
    """Law B2, as the consumer sees it: the load stays below high plus what one poll may bring."""
    return load < thresholds.high + fetch_max


def outlives_no_reason(thresholds: Thresholds, load: int, assigned: Collection[P], held: Collection[P]) -> bool:
    """Law B3: at or below low, nothing assigned is held once the plan is carried out."""
    return load > thresholds.low or frozenset(assigned).isdisjoint(held)


def leaves_nothing_to_do(again: Plan[P]) -> bool:
    """Law B4: the plan that is made after a plan was carried out is empty."""
    return again == Plan()


def speaks_of_what_is_amiss(todo: Plan[P], assigned: Collection[P], held: Collection[P]) -> bool:
    """Law B5: only assigned partitions, only those that are not as they should be, each once and in order."""
    flowing = frozenset(assigned) - frozenset(held)
    return (
        flowing.issuperset(todo.hold)
        and (frozenset(assigned) & frozenset(held)).issuperset(todo.release)
        and all(list(each) == sorted(set(each)) for each in (todo.hold, todo.release))
    )


def tells_of_the_change(gate: Gate, verdict: Verdict) -> bool:
    """Law B6: the verdict says that something changed exactly if the gate did."""
    return verdict.changed == (verdict.gate is not gate)
