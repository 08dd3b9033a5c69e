from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.consumer.partition_helpers import TP, after

from tidegate.consumer.checks.strategies import partition as drawn
from tidegate.consumer.checks.strategies.commands import events as drawn_events
from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.fanout import (
    Start,
    UserRequest,
    WindowDelivered,
)
from tidegate.consumer.flow.drain import Stage
from tidegate.consumer.offsets.watermark import OffsetTracker, completed, delivered
from tidegate.consumer.partition.in_flight_records import Handling
from tidegate.consumer.partition.partition import (
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    Phase,
    Unassigned,
)
from tidegate.consumer.partition.ready_queue import Queue
from tidegate.consumer.protocol import commands
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.reducer import Step


def work(request: UserRequest) -> commands.Work:
    return commands.Work(TP, 3, request, (5,))


NUMBERS: Final = ("running_max", "window_max", "batch_max", "metadata_max", "replay_max")
KINDS: Final = ("hooks", "fanout", "ordering", "failure_policy", "limits", "drain")
WRONG: Final[tuple[object, ...]] = (1.5, "1", None, (), -1, 2**70, True, b"", object())


@pytest.mark.parametrize(
    "bad",
    [
        *({name: value} for name in NUMBERS for value in (True, 1.0, "1", None, -1)),
        {"window_max": 0},
        {"replay_max": 0},
        {"batch_max": 0},
        *({name: value} for name in KINDS for value in (1, "1", None)),
        *({"failure_policy": policy} for policy in (FailurePolicy.BLOCK_KEY, FailurePolicy.DIVERT_KEY)),
    ],
)
def test_a_processor_is_checked_at_construction(bad: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        PartitionRules(**bad)  # type: ignore[arg-type]

    assert PartitionRules(running_max=0, window_max=1, metadata_max=0, replay_max=1).running_max == 0


GOOD: Final[Mapping[Callable[..., commands.Event], tuple[object, ...]]] = {
    commands.Assigned: (TP, 1, 0, "", 0),
    commands.Revoked: (TP, ()),
    commands.Lost: (TP,),
    commands.Fetched: (TP, 1, (0,), (b"k",)),
    commands.WorkReported: (TP, 1, WindowDelivered(0)),
    commands.WorkFailed: (TP, 1, Start(0, (0,), 1)),
    commands.Committed: (TP, 1, 0),
    commands.CommitRefused: (TP, 1, 0),
    commands.MetadataRefused: (TP, 1, 0),
    commands.CommitUnknown: (TP, 1, 0),
    commands.DrainTimerFired: (TP, 1, Stage.WAITING),
    commands.RetryTimerFired: (TP, 1, Start(0, (0,), 2)),
    commands.Measured: (TP, 1, 0, 0),
    commands.SlotFreed: (TP,),
}


def test_an_event_with_wrong_parts_is_misuse_or_harmless() -> None:
    rules = PartitionRules(2, ordering=Ordering.BY_OFFSET)
    assert {*get_args(commands.Event)} == GOOD.keys()
    for kind, good in GOOD.items():
        for place in range(len(good)):
            for wrong in (*WRONG, ("x",), (True,), (-1,), (2**70,), (0, 1)):
                event = kind(*good[:place], wrong, *good[place + 1 :])
                for state in (Unassigned(), after(rules, commands.Assigned(TP, 1, 0), commands.Fetched(TP, 1, (0,)))):
                    with suppress(Misuse):
                        assert isinstance(rules.step(state, event), Step)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PartitionRules().step(Unassigned(), "assigned"),  # type: ignore[arg-type]
        lambda: PartitionRules().step(None, commands.Lost(TP)),  # type: ignore[arg-type]
        lambda: PartitionRules().step(Unassigned(), commands.Fetched(TP, 1, (0, 1), (b"k",))),
        lambda: PartitionRules().step(Unassigned(), commands.Fetched(TP, 1, (0,), ("k",))),  # type: ignore[arg-type]
        lambda: PartitionRules().step(Unassigned(), commands.Revoked(TP, ((),))),  # type: ignore[arg-type]
        lambda: PartitionRules().step(Unassigned(), commands.WorkReported(TP, 1, commands.RecordsHandled((-1,)))),
        lambda: PartitionRules().step(Unassigned(), commands.WorkReported(TP, 1, commands.RecordsHandled((1,), (1,)))),
        lambda: PartitionRules().step(
            Unassigned(), commands.WorkReported(TP, 1, commands.RecordsHandled((1,), attempt=0))
        ),
        lambda: PartitionRules().step(Unassigned(), commands.WorkReported(TP, 1, commands.RecordsParked((1,), -1))),
        lambda: PartitionRules().step(Unassigned(), commands.WorkReported(TP, 1, commands.RecordsParked((-1,), 1))),
        lambda: PartitionRules().step(Unassigned(), commands.WorkFailed(TP, 1, commands.Handle((1.5,)))),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_a_state_or_an_event_is_misuse(make: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        make()


def test_records_without_their_keys_have_no_order() -> None:
    """Law P8: in an ordered mode, records without keys are misuse."""
    rules = PartitionRules(2, ordering=Ordering.BY_KEY)
    state = after(rules, commands.Assigned(TP, 1, 0))

    with pytest.raises(Misuse, match="without their keys"):
        rules.step(state, commands.Fetched(TP, 1, (0, 1)))
    assert isinstance(rules.step(state, commands.Fetched(TP, 1, ())), Step)


@given(drawn.rules().flatmap(lambda rules: st.tuples(st.just(rules), drawn.states(rules))), drawn_events())
def test_a_state_that_is_drawn_has_an_answer_to_an_event_that_is_drawn(
    at: tuple[PartitionRules, PartitionState], event: commands.Event
) -> None:
    rules, state = at
    step = rules.step(state, event)

    assert hash(step) == hash(rules.step(state, event))
    assert str(state)
    assert str(event)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (commands.Revoked(TP), "revoked t-0"),
        (commands.Lost(TP), "lost t-0"),
        (commands.Assigned(TP, 3, 5), "assigned t-0 from 5 (generation 3)"),
        (commands.Fetched(TP, 3, (5, 7)), "fetched t-0 [5, 7] (generation 3)"),
        (commands.WorkReported(TP, 3, WindowDelivered(1)), "t-0 reports WindowDelivered(window=1) (generation 3)"),
        (
            commands.WorkReported(TP, 3, commands.RecordsHandled((2, 1), (3,))),
            "t-0 reports handled 1-2, failed 3 (generation 3)",
        ),
        (
            commands.WorkReported(TP, 3, commands.RecordsParked((2, 1), SECOND, 2)),
            "t-0 reports parked 1-2 for 1 s (attempt 2) (generation 3)",
        ),
        (
            commands.WorkReported(TP, 3, commands.RecordsHandled(attempt=2)),
            "t-0 reports nothing (attempt 2) (generation 3)",
        ),
        (commands.WorkFailed(TP, 3, commands.Handle((1, 2), 2)), "t-0 raised at handle 1-2 (attempt 2) (generation 3)"),
        (commands.Batch((commands.Revoked(TP), commands.Lost(TP))), "revoked t-0; lost t-0"),
        (commands.WorkFailed(TP, 3, Start(0, (1,), 2)), "t-0 raised at start 0/1 (attempt 2) (generation 3)"),
        (commands.Committed(TP, 3, 5), "committed t-0 @5 (generation 3)"),
        (commands.CommitRefused(TP, 3, 5), "refused to commit t-0 @5 (generation 3)"),
        (commands.MetadataRefused(TP, 3, 5), "refused the metadata of t-0 @5 (generation 3)"),
        (commands.CommitUnknown(TP, 3, 5), "no answer to the commit of t-0 @5 (generation 3)"),
        (
            commands.DrainTimerFired(TP, 3, Stage.WAITING),
            "time to drain t-0 is over, work may end by itself (generation 3)",
        ),
        (commands.RetryTimerFired(TP, 3, None), "time to commit again of t-0 (generation 3)"),
        (commands.Measured(TP, 3, 5, SECOND), "t-0 holds 5 bytes for 1 s (generation 3)"),
        (commands.SlotFreed(TP), "room for another handler of t-0"),
        (commands.Commit(TP, 3, 5, "tg1"), "commit t-0 @5 and 3 characters of metadata (generation 3)"),
        (Unassigned(), "unassigned"),
        (Owned(TP, 3, Phase.FLOWING, OffsetTracker(5), Queue(5), Handling()), "flowing (generation 3), floor 5"),
        (
            Owned(
                TP,
                3,
                Phase.DRAINING,
                completed(delivered(OffsetTracker(5), (5, 7, 8)), (5,)),
                Queue(8, waiting=1),
                Handling(),
                failed=(7,),
                commits=Commits(committing=6),
            ),
            "draining (generation 3), floor 5, queued [8], in work [7], failed [7], done [5], committing 6",
        ),
    ],
)
def test_everything_has_a_form_of_one_line(value: object, text: str) -> None:
    assert str(value) == text


def test_keys_are_not_shown() -> None:
    rules = PartitionRules(1, ordering=Ordering.BY_KEY)
    event = commands.Fetched(TP, 1, (0,), (b"secret",))
    state = after(rules, commands.Assigned(TP, 1, 0), event)

    assert "secret" not in f"{event} {event!r} {state} {state!r}"
