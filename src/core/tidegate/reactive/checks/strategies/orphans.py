"""When records go, and what is decided of them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.instants import SECOND
from tidegate.reactive.checks.strategies.tasks import guards
from tidegate.reactive.record.orphans import CleanUp, DeleteWhen, KeepRecord, RemoveRecord, SweepVerdict, WhyKept


def clean_ups() -> SearchStrategy[CleanUp]:
    """When records go: never, or after up to two seconds."""
    return st.builds(CleanUp, delete_when=st.sampled_from(DeleteWhen), keep_for=st.integers(0, 2 * SECOND))


def clean_up_verdicts() -> SearchStrategy[SweepVerdict]:
    """What may be decided of a record."""
    return st.one_of(guards().map(RemoveRecord), st.sampled_from(WhyKept).map(KeepRecord))
