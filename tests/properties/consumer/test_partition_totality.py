from __future__ import annotations

from collections import deque
from functools import cache
from typing import Final

import attrs
from tests.properties.consumer.partition_helpers import TP, Machine, failed, right, succeeded
from tests.properties.consumer.partition_plain import plain

from tidegate.consumer.checks.laws import partition as laws
from tidegate.consumer.flow.drain import Budget, Stage
from tidegate.consumer.offsets.watermark import open_offsets
from tidegate.consumer.partition import partition
from tidegate.consumer.protocol import commands
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step

OTHER: Final = TopicPartition("t", 1)
FEW: Final = plain(room=2, span_max=3, drain=Budget(3, cancel=1, commit=1))
FAILURES_MAX: Final = 1
OFFSETS: Final = ((), (0,), (1, 0), (0, 0, 2), (1,), (2, 1))


def events(generation: int) -> list[commands.Event]:
    named: list[commands.Event] = [commands.DrainTimerFired(TP, generation, stage) for stage in Stage]
    named.append(commands.RetryTimerFired(TP, generation, None))
    named += [commands.Assigned(TP, generation, committed) for committed in range(2)]
    named += [commands.Fetched(TP, generation, offsets) for offsets in OFFSETS]
    named += [kind(generation, window) for kind in (succeeded, failed) for window in range(2)]
    kinds = (commands.Committed, commands.CommitRefused, commands.CommitUnknown, commands.MetadataRefused)
    return [*named, *(kind(TP, generation, position) for kind in kinds for position in range(1, 4))]


UNNAMED: Final[list[commands.Event]] = [commands.Revoked(TP), commands.Lost(TP), commands.SlotFreed(TP)]


def failures(state: partition.PartitionState) -> int:
    return state.commits.failures if isinstance(state, partition.Owned) else 0


@cache
def reachable() -> dict[partition.PartitionState, dict[commands.Event, partition.PartitionStep]]:
    """The failed commits in a row are few."""
    found: dict[partition.PartitionState, dict[commands.Event, partition.PartitionStep]] = {}
    left: deque[partition.PartitionState] = deque([partition.Unassigned()])
    while left:
        state = left.popleft()
        if state not in found:
            found[state] = {event: FEW.step(state, event) for event in (*UNNAMED, *events(1), *events(2))}
            left += [step.state for step in found[state].values() if failures(step.state) <= FAILURES_MAX]
    return found


def test_every_state_has_an_answer_to_every_event() -> None:
    owned = [state for state in reachable() if isinstance(state, partition.Owned)]

    assert {state.phase for state in owned} == set(partition.Phase)
    assert {state.revocation.stage for state in owned} == {Stage.WAITING, Stage.CANCELLING, Stage.COMMITTING}
    assert all(isinstance(step, Step) for answers in reachable().values() for step in answers.values())


def test_an_older_generation_changes_nothing() -> None:
    """Law P3, in every state: no command, either."""
    for state, answers in reachable().items():
        if isinstance(state, partition.Owned) and state.generation == 2:
            assert all(laws.changes_nothing(state, answers[event]) for event in events(1))


def changed_by_another(machine: Machine) -> list[tuple[partition.PartitionState, commands.Event]]:
    step = machine(FEW)
    foreign = [attrs.evolve(event, partition=OTHER) for event in (*UNNAMED, *events(1), *events(2))]
    owned = [state for state in reachable() if isinstance(state, partition.Owned)]
    return [
        (state, event) for state in owned for event in foreign if not laws.changes_nothing(state, step(state, event))
    ]


def test_another_partition_changes_nothing() -> None:
    """Law P3, in every state: a report, a revocation or a loss."""
    assert not changed_by_another(right)


def test_a_partition_that_takes_what_is_of_another_is_caught() -> None:
    """Law P3. Planted bug: it ignores the event's partition."""
    assert changed_by_another(lambda rules: lambda state, event: rules.step(state, attrs.evolve(event, partition=TP)))


def test_an_assignment_is_accepted_once() -> None:
    """Law P3. A second one of the same generation is old."""
    for state, answers in reachable().items():
        if isinstance(state, partition.Owned):
            assert all(
                answers[commands.Assigned(TP, state.generation, committed)] == Step(state) for committed in range(2)
            )


def test_an_answer_to_a_commit_that_is_not_in_flight_changes_nothing() -> None:
    """Law P3, in every state, also for a higher position, which no command had."""
    kinds = (commands.Committed, commands.CommitRefused, commands.CommitUnknown, commands.MetadataRefused)
    for state, answers in reachable().items():
        if isinstance(state, partition.Owned):
            others = [position for position in range(1, 4) if position != state.committing]
            assert all(answers[kind(TP, state.generation, at)] == Step(state) for kind in kinds for at in others)


def test_records_that_nobody_has_fetched_change_nothing() -> None:
    """Law P3, in every state without a fetch in flight."""
    for state, answers in reachable().items():
        if isinstance(state, partition.Owned) and state.fetching is None:
            assert all(answers[commands.Fetched(TP, state.generation, offsets)] == Step(state) for offsets in OFFSETS)


def test_what_is_not_owned_is_not_worked_on() -> None:
    """Law P5: a revocation is released at once, other events are ignored."""
    for event, step in reachable()[partition.Unassigned()].items():
        if isinstance(event, commands.Revoked):
            assert step == Step(partition.Unassigned(), (commands.Release(TP),))
        elif not isinstance(event, commands.Assigned):
            assert step == Step(partition.Unassigned())


def test_nothing_is_left_to_do_after_a_step() -> None:
    assert all(answers[commands.SlotFreed(TP)] == Step(state) for state, answers in reachable().items())


def test_no_commit_is_asked_for_beyond_what_is_open() -> None:
    """Law P1, in every step; a late lower record holds the commit back from then on."""
    for answers in reachable().values():
        for step in answers.values():
            opened = open_offsets(step.state.tracker) if isinstance(step.state, partition.Owned) else ()
            commanded = [command.position for command in step.commands if isinstance(command, commands.Commit)]
            assert all(laws.passes_nothing_unfinished(position, opened) for position in commanded)


def test_every_state_keeps_its_bounds() -> None:
    """Laws P4, P5 and P6."""
    for state in reachable():
        if isinstance(state, partition.Owned):
            assert state.running == len(state.asked) <= FEW.running_max
            assert state.phase is partition.Phase.FLOWING or (state.fetching, state.queued) == (None, ())


def test_a_release_is_asked_for_exactly_where_a_revocation_ends() -> None:
    """Law P5, in every state and step: at the end of the drain, or when not owned; never twice."""
    for state, answers in reachable().items():
        for event, step in answers.items():
            was_draining = isinstance(state, partition.Owned) and state.phase is partition.Phase.DRAINING
            is_draining = isinstance(step.state, partition.Owned) and step.state.phase is partition.Phase.DRAINING
            asked = isinstance(event, commands.Revoked) and not was_draining
            released = sum(isinstance(command, commands.Release) for command in step.commands)
            assert was_draining + asked == is_draining + released, (state, event)


def test_a_revocation_that_is_asked_for_twice_is_released_once() -> None:
    """Law P5. The second one already arrives during the drain."""
    draining = [
        state for state in reachable() if isinstance(state, partition.Owned) and state.phase is partition.Phase.DRAINING
    ]

    assert draining
    assert all(laws.changes_nothing(state, FEW.step(state, commands.Revoked(TP))) for state in draining)
