"""Definitions of tasks, and what their changes mean."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.reactive.planning.evolution import (
    Action,
    Definition,
    EvolutionPolicy,
    ForgetReconciled,
    OnNewVersion,
    Remember,
    Reprocess,
)
from tidegate.reactive.record.task_records import TaskStatus

_TRIGGERS = ("status = 'new'", 1, 1.0, True, None)


def definitions() -> SearchStrategy[Definition]:
    """Definitions of a few triggers and versions, some of which differ by a type alone."""
    return st.builds(Definition, st.sampled_from(_TRIGGERS), st.integers(0, 3))


def evolution_policies() -> SearchStrategy[EvolutionPolicy]:
    """Every policy."""
    return st.builds(EvolutionPolicy, on_new_version=st.sampled_from(OnNewVersion), reconciles=st.booleans())


def actions() -> SearchStrategy[Action]:
    """Every kind of action."""
    return st.one_of(
        st.builds(Reprocess, st.frozensets(st.sampled_from(TaskStatus))),
        st.just(ForgetReconciled()),
        definitions().map(Remember),
    )
