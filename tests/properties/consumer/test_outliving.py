"""Abandoned user code counts until it ends, and nothing else counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.partition.partition_state import Owned, Unassigned
from tidegate.consumer.protocol import commands
from tidegate.consumer.worker.leaked_handlers import AllOutliving, given_up, handlers_of, records_of, without_ended
from tidegate.model.effects import Cancel
from tidegate.model.records import TopicPartition

TP: Final = TopicPartition("t", 0)
Course: TypeAlias = tuple[AllOutliving, list[commands.Event]]
Step: TypeAlias = Callable[[AllOutliving, commands.Event], AllOutliving]


def owned() -> Owned:
    state = PartitionRules().step(Unassigned(), commands.Assigned(TP, 1, 0)).state
    assert isinstance(state, Owned)
    return state


OWNED: Final = owned()


@st.composite
def courses(draw: st.DrawFn) -> Course:
    offsets = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True).map(lambda found: tuple(sorted(found)))
    generations, attempts = st.integers(1, 2), st.integers(1, 2)
    taken: set[tuple[int, int, int]] = set()
    works: list[commands.Work] = []
    for generation, attempt, some in draw(st.lists(st.tuples(generations, attempts, offsets), min_size=1, max_size=4)):
        mine = tuple(each for each in some if (generation, attempt, each) not in taken)
        taken |= {(generation, attempt, each) for each in mine}
        if mine:
            works.append(commands.Work(TP, generation, commands.Handle(mine, attempt), mine))
    reported = st.builds(
        lambda generation, attempt, some, half: commands.WorkReported(
            TP, generation, commands.RecordsHandled(some[:half], some[half:], attempt)
        ),
        *(generations, attempts, offsets, st.integers(0, 5)),
    )
    parked = st.builds(
        lambda generation, attempt, some: commands.WorkReported(
            TP, generation, commands.RecordsParked(some, 1, attempt)
        ),
        *(generations, attempts, offsets),
    )
    failed = st.builds(
        lambda generation, attempt, some: commands.WorkFailed(TP, generation, commands.Handle(some, attempt)),
        *(generations, attempts, offsets),
    )
    return given_up((), OWNED, [Cancel(each) for each in works]), draw(st.lists(reported | parked | failed, max_size=8))


def told(event: commands.Event) -> set[tuple[int, int, int]]:
    if isinstance(event, commands.WorkFailed) and isinstance(event.request, commands.Handle):
        return {(event.generation, event.request.attempt, offset) for offset in event.request.offsets}
    assert isinstance(event, commands.WorkReported)
    if isinstance(event.what, commands.RecordsParked):
        return {(event.generation, event.what.attempt, offset) for offset in event.what.offsets}
    assert isinstance(event.what, commands.RecordsHandled)
    return {(event.generation, event.what.attempt, offset) for offset in (*event.what.done, *event.what.failed)}


def running(outliving: AllOutliving) -> set[tuple[int, int, int]]:
    return {
        (each.work.generation, each.work.request.attempt, offset)
        for each in outliving
        if isinstance(each.work.request, commands.Handle)
        for offset in each.work.request.offsets
    }


def counts_what_has_not_ended(course: Course, step: Step = without_ended) -> bool:
    """Law OL1."""
    state, left = course[0], running(course[0])
    for event in course[1]:
        state, left = step(state, event), left - told(event)
        records = len({(generation, offset) for generation, _, offset in left})
        if (running(state), handlers_of(state), records_of(state)) != (left, len(left), records):
            return False
    return True


def takes_only_its_own(course: Course, step: Step = without_ended) -> bool:
    """Law OL2."""
    state = course[0]
    for event in course[1]:
        before, state = state, step(state, event)
        if state != before and running(before).isdisjoint(told(event)):
            return False
    return True


@given(courses())
def test_what_has_not_ended_counts(course: Course) -> None:
    """Laws OL1 and OL2."""
    assert counts_what_has_not_ended(course)
    assert takes_only_its_own(course)


HERE: Final = commands.Work(TP, 1, commands.Handle((3, 4), 2), (3, 4))
WRONG: Final[dict[str, tuple[Callable[..., bool], Step]]] = {
    "all of a batch ends with one of it": (
        counts_what_has_not_ended,
        lambda state, event: () if without_ended(state, event) != state else state,
    ),
    "nothing ever ends": (counts_what_has_not_ended, lambda state, _: state),
    "any generation's will do": (
        takes_only_its_own,
        lambda state, event: without_ended(
            state, commands.WorkReported(TP, 1, event.what) if isinstance(event, commands.WorkReported) else event
        ),
    ),
}


@pytest.mark.parametrize(("law", "wrong"), WRONG.values(), ids=list(WRONG))
def test_each_law_is_broken_by_a_planted_bug(law: Callable[..., bool], wrong: Step) -> None:
    """Laws OL1 and OL2: a bug counts too little, too much, or for others."""
    state = given_up((), OWNED, [Cancel(HERE)])
    events: list[commands.Event] = [
        commands.WorkReported(TP, 2, commands.RecordsHandled((3,), (), 2)),
        commands.WorkReported(TP, 1, commands.RecordsHandled((3,), (), 2)),
    ]

    assert law((state, events))
    assert not law((state, events), wrong)
