"""Strategies for executions, gates, and decisions on them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import Instant
from tidegate.services.checks.strategies.atomic_service import runs
from tidegate.services.executions import (
    AlreadyEnded,
    Ended,
    Enough,
    Execution,
    ExecutionStatus,
    Gate,
    GateVerdict,
    NoMargin,
    NotInTheGate,
    Released,
    admit,
    ended,
    margin,
    released,
)

_NAMES: Final = ("x", "y", "z")
_RUNNERS: Final = ("r0", "r1", "r2")
_TIMES: Final = st.integers(0, 20)
_LENGTHS: Final = st.integers(0, 9)


@st.composite
def executions(draw: DrawFn, ids: SearchStrategy[str] = st.sampled_from(_NAMES)) -> Execution:  # noqa: B008  immutable
    """A row of one of three runners: running, ended or blocked."""
    status, start = draw(st.sampled_from(ExecutionStatus)), Instant(draw(_TIMES))
    lengths = {ExecutionStatus.RUNNING: st.none(), ExecutionStatus.BLOCKED: st.just(0)}
    length = draw(lengths.get(status, _LENGTHS))
    return Execution(
        id=draw(ids),
        runner_id=draw(st.sampled_from(_RUNNERS)),
        start=start,
        status=status,
        end=None if length is None else start + length,
        reason=draw(st.sampled_from(("", "because"))),
    )


def histories() -> SearchStrategy[tuple[Execution, ...]]:
    numbers = st.integers(0, 99).map(str)
    return st.lists(executions(numbers), max_size=8, unique_by=lambda each: each.id).map(tuple)


def gates() -> SearchStrategy[Gate]:
    active = executions().filter(lambda each: each.end is None)
    return st.one_of(st.builds(Gate, st.integers(0, 9)), st.builds(Gate, st.integers(1, 9), active))


@st.composite
def admissions(draw: DrawFn) -> GateVerdict:
    return admit(draw(gates()), draw(runs()), live=draw(st.sets(st.sampled_from(_RUNNERS))), now=Instant(draw(_TIMES)))


@st.composite
def margins(draw: DrawFn) -> Enough | NoMargin:
    return margin(draw(runs()), draw(_LENGTHS), Instant(draw(st.integers(-60, 120))))


@st.composite
def endings(draw: DrawFn) -> Ended | AlreadyEnded:
    run = draw(runs())
    row = draw(st.none() | executions(st.just(run.run_id)))
    return ended(
        row,
        run,
        draw(st.sampled_from((ExecutionStatus.COMPLETED, ExecutionStatus.ABANDONED))),
        now=Instant(draw(_TIMES)),
    )


@st.composite
def releases(draw: DrawFn) -> Released | NotInTheGate:
    gate = draw(gates())
    inside = _NAMES[0] if gate.active is None else gate.active.id
    return released(gate, draw(st.sampled_from((inside, *_NAMES))), draw(st.sampled_from((max(1, gate.token), 10))))
