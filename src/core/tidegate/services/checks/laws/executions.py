"""The laws of `tidegate.services.executions` as predicates over the gate and the history."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.model.instants import Duration, Instant
from tidegate.services.atomic_service import AtomicServiceRun
from tidegate.services.executions import (
    Admitted,
    Enough,
    Execution,
    ExecutionStatus,
    Gate,
    GateVerdict,
    NoMargin,
    NotInTheGate,
    Released,
)


def the_living_are_not_replaced(gate: Gate, admission: GateVerdict, live: Collection[str]) -> bool:
    """Law EX1."""
    if gate.active is None or gate.active.runner_id not in live or not isinstance(admission, Admitted):
        return True
    return admission.gate == gate


def tokens_grow(gate: Gate, admission: GateVerdict) -> bool:
    """Law EX2."""
    return not isinstance(admission, Admitted) or admission.gate == gate or admission.gate.token > gate.token


def the_gone_block_nobody(gate: Gate, admission: GateVerdict, live: Collection[str]) -> bool:
    """Law EX3; an empty gate does not block either."""
    return isinstance(admission, Admitted) or (gate.active is not None and gate.active.runner_id in live)


def who_leaves_is_recorded(gate: Gate, admission: GateVerdict) -> bool:
    """Law EX4."""
    if gate.active is None or not isinstance(admission, Admitted) or admission.gate == gate:
        return True
    return [(each.id, each.status) for each in admission.reaped] == [(gate.active.id, ExecutionStatus.ABANDONED)]


def the_first_end_counts(before: Execution | None, after: Execution | None) -> bool:
    """Law EX5."""
    return before is None or before.end is None or after == before


def exactly_the_gone_are_reaped(
    executions: Collection[Execution], live: Collection[str], changed: Collection[Execution], again: Collection[object]
) -> bool:
    """Law EX6."""
    gone = {each.id for each in executions if each.status is ExecutionStatus.RUNNING and each.runner_id not in live}
    ended = all(each.status is ExecutionStatus.ABANDONED and each.end is not None for each in changed)
    return ended and {each.id for each in changed} == gone and not again


def work_has_its_margin(run: AtomicServiceRun, least: Duration, now: Instant, verdict: Enough | NoMargin) -> bool:
    """Law EX7; nor is work done after the window."""
    left = run.window.end - now
    return isinstance(verdict, Enough) is (0 < left >= least) and verdict.left == left


def is_the_range(
    executions: Collection[Execution], since: Instant, until: Instant, limit: int, found: Sequence[Execution]
) -> bool:
    """Law EX8."""
    overlap = [each for each in executions if each.start.at <= until.at and (each.end or until).at >= since.at]
    running = [each for each in executions if each.end is None and each.start.at <= until.at]
    newest = sorted({*overlap, *running}, key=lambda each: (-each.start.at, each.id))
    return list(found) == newest[: max(0, limit)]


def only_the_run_in_the_gate_leaves(gate: Gate, run_id: str, token: int, answer: Released | NotInTheGate) -> bool:
    """Law EX9; the gate keeps its token."""
    inside = gate.active is not None and gate.active.id == run_id and gate.token == token
    return answer.gate == (Gate(gate.token) if inside else gate) and isinstance(answer, Released) is inside
