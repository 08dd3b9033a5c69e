"""What became of runs, and gates with and without one."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.executions import Execution, Gate, Status
from tidegate.instants import Instant

_NAMES: Final = ("x", "y", "z")
_RUNNERS: Final = ("r0", "r1", "r2")


@st.composite
def executions(draw: DrawFn, ids: SearchStrategy[str] = st.sampled_from(_NAMES)) -> Execution:  # noqa: B008  immutable
    """One row of a history: under way, over, or never begun, of one of three runners.

    Args:
        draw: Hypothesis's.
        ids: The ids of runs.
    """
    status, start = draw(st.sampled_from(Status)), Instant(draw(st.integers(0, 20)))
    lengths = {Status.RUNNING: st.none(), Status.BLOCKED: st.just(0)}
    length = draw(lengths.get(status, st.integers(0, 9)))
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
