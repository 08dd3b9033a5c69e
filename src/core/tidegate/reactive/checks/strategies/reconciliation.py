"""Strategies: progress, tasks to reconcile, and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import Value
from tidegate.model.instants import Instant
from tidegate.reactive.planning.reconciliation import (
    BatchPlanned,
    Checkpoint,
    CleanedUp,
    PassFailed,
    PassOutcome,
    Progress,
    ReconciliationRun,
    Sweeps,
    TaskTrigger,
)

COLLECTIONS: Final = ("orders", "users")
_TRIGGERS: Final[tuple[Value, ...]] = (1, 1.0, "status = 'new'")
_IDS = st.one_of(st.integers(0, 9), st.sampled_from((None, "a", 1.0)))


def triggers(collection: str) -> SearchStrategy[frozenset[TaskTrigger]]:
    """Up to three tasks of a collection with one trigger; some triggers differ only by a type."""
    names = st.lists(st.sampled_from("abc"), unique=True)
    return st.tuples(names, st.sampled_from(_TRIGGERS)).map(
        lambda drawn: frozenset(TaskTrigger(f"{collection}.{name}", drawn[1]) for name in drawn[0])
    )


def deployments() -> SearchStrategy[Mapping[str, frozenset[TaskTrigger]]]:
    """The tasks of both collections."""
    return st.fixed_dictionaries({each: triggers(each) for each in COLLECTIONS})


@st.composite
def checkpoints(draw: DrawFn, collection: str) -> Checkpoint:
    """Checkpoints of a scan for some tasks."""
    return Checkpoint(collection, draw(triggers(collection)), draw(_IDS))


@st.composite
def progresses(draw: DrawFn) -> Progress:
    """Progress: flags of some tasks, and checkpoints of some collections, of these or other tasks."""
    known = [draw(st.one_of(st.none(), checkpoints(each))) for each in COLLECTIONS]
    flags = frozenset[TaskTrigger]().union(*(draw(triggers(each)) for each in COLLECTIONS))
    return Progress(draw(st.integers(0, 2)), flags, tuple(each for each in known if each is not None))


def outcomes() -> SearchStrategy[PassOutcome]:
    """The outcome of a batch, or of the end of a scan."""
    ids = st.lists(_IDS, min_size=1, max_size=3).map(tuple)
    return st.one_of(ids.map(BatchPlanned), st.just(CleanedUp()), st.just(PassFailed()))


def runs() -> SearchStrategy[ReconciliationRun]:
    """Runs in the first epochs and histories."""
    return st.builds(ReconciliationRun, st.integers(1, 3), st.integers(0, 2))


def sweeps() -> SearchStrategy[Sweeps]:
    """States of sweeps: never, at some time, and whether one runs."""
    last = st.one_of(st.none(), st.integers(0, 200).map(Instant))
    return st.builds(Sweeps, last, st.one_of(st.none(), st.integers(1, 3)))
