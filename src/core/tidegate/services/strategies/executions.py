"""What became of runs, gates with and without one, and what is decided on them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import Instant
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
from tidegate.services.strategies.atomic_service import runs

_NAMES: Final = ("x", "y", "z")
_RUNNERS: Final = ("r0", "r1", "r2")
_TIMES: Final = st.integers(0, 20)
_LENGTHS: Final = st.integers(0, 9)


@st.composite
def executions(draw: DrawFn, ids: SearchStrategy[str] = st.sampled_from(_NAMES)) -> Execution:  # noqa: B008  immutable
    """One row of a history: under way, over, or never begun, of one of three runners.

    Args:
        draw: Hypothesis's.
        ids: The ids of runs.
    """
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
    """Rows of different runs."""
    numbers = st.integers(0, 99).map(str)
    return st.lists(executions(numbers), max_size=8, unique_by=lambda each: each.id).map(tuple)


def gates() -> SearchStrategy[Gate]:
    """Empty or taken, under some token."""
    active = executions().filter(lambda each: each.end is None)
    return st.one_of(st.builds(Gate, st.integers(0, 9)), st.builds(Gate, st.integers(1, 9), active))


@st.composite
def admissions(draw: DrawFn) -> GateVerdict:
    """What becomes of a run that was cleared: let in, perhaps in place of one whose runner is gone, or blocked."""
    return admit(draw(gates()), draw(runs()), live=draw(st.sets(st.sampled_from(_RUNNERS))), now=Instant(draw(_TIMES)))


@st.composite
def margins(draw: DrawFn) -> Enough | NoMargin:
    """Whether there is time left to work."""
    return margin(draw(runs()), draw(_LENGTHS), Instant(draw(st.integers(-60, 120))))


@st.composite
def endings(draw: DrawFn) -> Ended | AlreadyEnded:
    """What becomes of the row of a run, or of none, when its work is over."""
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
    """What becomes of the gate when a run leaves it, or has left it before."""
    gate = draw(gates())
    inside = _NAMES[0] if gate.active is None else gate.active.id
    return released(gate, draw(st.sampled_from((inside, *_NAMES))), draw(st.sampled_from((max(1, gate.token), 10))))
