from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.reducer import Step
from tidegate.reactive.checks.laws import change_stream as laws
from tidegate.reactive.checks.strategies.change_stream import consumers, events
from tidegate.reactive.planning.change_stream import (
    CANNOT_RESUME,
    After,
    Again,
    ChangeStreamConsumer,
    CommandDone,
    CommandFailed,
    Consuming,
    DocumentChange,
    Elected,
    Fenced,
    Flush,
    Following,
    From,
    HandleChanged,
    HandleDeleted,
    LeadershipLost,
    Locate,
    Located,
    Page,
    PassLeft,
    Position,
    Read,
    Received,
    Reconcile,
    ResetHistory,
    Save,
    SaveIdle,
    StartTimer,
    Stopped,
    StopRequested,
    StreamEvent,
    StreamFailed,
    StreamState,
    StreamStep,
    TimerFired,
)

CONSUMER: Final = ChangeStreamConsumer(size=3, wait=500 * MILLISECOND)
START: Final = After("t0")


def follow(
    *events: StreamEvent, consumer: ChangeStreamConsumer = CONSUMER, start: Position | None = START
) -> StreamStep:
    step = consumer.step(Following(), Elected(5, 2, start))
    for event in events:
        assert isinstance(step.state, Consuming)
        step = consumer.step(step.state, event)
    return step


def received(*changes: DocumentChange, after: Position = START, up_to: str = "t1") -> Received:
    return Received(Read(5, after), Page(changes, After(up_to)))


A1, A2, B1 = DocumentChange("a", 1), DocumentChange("a", 2), DocumentChange("b", 1)
GONE: Final = DocumentChange("a", 1, is_gone=True)


def test_a_first_leader_stores_a_position_before_it_reads_and_reads_before_it_reconciles() -> None:
    """Law CS8. mongodash, 36: an insert during the start is neither lost nor reported twice."""
    here, first = From("now"), Read(5, From("now"))
    save = Save(5, 2, here)

    assert follow(start=None).commands == (Locate(5),)
    assert follow(Located(Locate(5), here), start=None).commands == (save,)
    assert follow(Located(Locate(5), here), CommandDone(save), start=None).commands == (StartTimer(save, SECOND), first)
    read = follow(Located(Locate(5), here), CommandDone(save), Received(first, Page((), After("t1"))), start=None)
    assert read.commands[0] == Reconcile(5, 2)
    assert Read(5, After("t1")) in read.commands


def test_whoever_finds_a_position_reads_on_from_there() -> None:
    assert follow().commands == (Read(5, START),)
    assert follow(received()).commands == (Reconcile(5, 2), Read(5, After("t1")), StartTimer(SaveIdle(5), 10 * SECOND))


def test_a_batch_waits_for_its_time_or_until_it_is_full() -> None:
    """Law CS4. mongodash: 500 ms, or 1,000 documents."""
    timer = StartTimer(Flush(5, 0), 500 * MILLISECOND)
    one = received(A1)

    assert timer in follow(one).commands
    later = follow(one, received(A2, A1, after=After("t1"), up_to="t2"))
    assert later.commands == (Read(5, After("t2")),)
    due = follow(one, TimerFired(timer))
    assert due.commands == (HandleChanged(5, 0, "a", (1,)),)
    full = follow(received(A1, A2, B1))
    assert full.commands[1:3] == (HandleChanged(5, 0, "a", (1, 2)), HandleChanged(5, 0, "b", (1,)))


def test_a_change_waits_for_others_only_while_a_batch_is_under_way() -> None:
    """Law CS4 without `wait`: the first change after a rest is processed at once."""
    at_once = ChangeStreamConsumer()
    one, more = received(A1), received(A2, B1, after=After("t1"), up_to="t2")
    look, read = HandleChanged(5, 0, "a", (1,)), Read(5, After("t1"))

    begun = follow(one, consumer=at_once)
    assert look in begun.commands
    assert read not in begun.commands
    assert read in follow(one, CommandDone(look), consumer=at_once).commands
    assert follow(one, CommandDone(look), more, consumer=at_once).commands == (
        HandleChanged(5, 1, "a", (2,)),
        HandleChanged(5, 1, "b", (1,)),
    )


def test_what_was_deleted_is_cleaned_up_before_its_collection_is_planned() -> None:
    """Law CS3. Another collection does not wait."""
    full = received(GONE, A2, B1)
    clean, plan, other = HandleDeleted(5, 0, "a", (1,)), HandleChanged(5, 0, "a", (2,)), HandleChanged(5, 0, "b", (1,))

    assert follow(full).commands[1:3] == (clean, other)
    assert follow(full, CommandDone(clean)).commands == (plan,)
    assert follow(full, CommandDone(clean), CommandDone(plan)).commands == ()
    assert follow(full, CommandDone(clean), CommandDone(plan), CommandDone(other)).commands == (
        Save(5, 2, After("t1")),
        Read(5, After("t1")),
    )


def test_what_failed_is_tried_again_after_a_pause_and_nothing_is_saved_meanwhile() -> None:
    """Law CS6. mongodash: one of three inserts fails; none is planned, and the token is saved."""
    full, plan, other = received(A1, A2, B1), HandleChanged(5, 0, "a", (1, 2)), HandleChanged(5, 0, "b", (1,))
    again = StartTimer(plan, SECOND)

    assert follow(full, CommandFailed(plan)).commands == (again,)
    assert follow(full, CommandFailed(plan), CommandDone(other)).commands == ()
    assert follow(full, CommandFailed(plan), CommandDone(other), TimerFired(again)).commands == (plan,)
    assert follow(full, CommandFailed(plan), CommandDone(other), TimerFired(again), CommandDone(plan)).commands == (
        Save(5, 2, After("t1")),
        Read(5, After("t1")),
    )


def test_what_a_pass_leaves_out_is_looked_at_again_and_holds_up_nothing_else() -> None:
    """Laws CS5 and CS6. It joins a later batch with its last change."""
    plan, other, again = HandleChanged(5, 0, "a", (1, 2)), HandleChanged(5, 1, "b", (1,)), StartTimer(Again(5), SECOND)
    left = (received(A1, A2), TimerFired(StartTimer(Flush(5, 0), 500 * MILLISECOND)), PassLeft(plan, (1,)))
    assert follow(*left).commands == (again,)

    more = (received(A1, B1, after=After("t1"), up_to="t2"), TimerFired(StartTimer(Flush(5, 1), 500 * MILLISECOND)))
    assert follow(*left, *more).commands == (other,)
    done = (*left, *more, CommandDone(other))
    assert follow(*done).commands == ()
    retry = HandleChanged(5, 2, "a", (1,))
    assert follow(*done, TimerFired(again)).commands == (retry,)
    assert follow(*done, TimerFired(again), CommandDone(retry)).commands == (Save(5, 2, After("t2")),)
    assert follow(*done, TimerFired(again), PassLeft(retry, (1,))).commands == (again,)
    assert follow(*done, StopRequested()).commands == (retry,)
    assert follow(*done, StopRequested(), PassLeft(retry, (1,))) == Step(Stopped())


def test_it_reads_no_further_until_a_batch_has_succeeded() -> None:
    """Law CS11. A page in flight when the batch began is collected for the next one."""
    timer, look = StartTimer(Flush(5, 0), 500 * MILLISECOND), HandleChanged(5, 0, "a", (1,))
    more = received(A2, after=After("t1"), up_to="t2")
    step = follow(received(A1), TimerFired(timer), more, CommandFailed(look))

    assert isinstance(step.state, Consuming)
    assert step.state.changes == (A2,)
    assert not any(isinstance(command, Read) for command in step.state.awaited)


def test_a_stream_that_broke_is_read_again_from_where_it_was() -> None:
    read = Read(5, After("t1"))
    again = StartTimer(read, SECOND)
    broken = follow(received(A1), StreamFailed(read, 43))

    assert broken.commands == (again,)
    assert isinstance(broken.state, Consuming)
    assert broken.state.changes == (A1,)
    assert follow(received(A1), StreamFailed(read, 43), TimerFired(again)).commands == (read,)


@pytest.mark.parametrize("code", sorted(CANNOT_RESUME))
def test_a_history_that_is_lost_is_forgotten_before_the_next_begins(code: int) -> None:
    """Law CS8. mongodash, 35, with code 280; a server whose oplog has moved on sends 286."""
    forget = ResetHistory(5, 3)
    lost = (received(A1), StreamFailed(Read(5, After("t1")), code))

    assert follow(*lost).commands == (forget,)
    assert follow(*lost, CommandFailed(forget)).commands == (StartTimer(forget, SECOND),)
    begun = (*lost, CommandDone(forget), Located(Locate(5), From("now")))
    assert follow(*begun).commands == (Save(5, 3, From("now")),)
    read = (*begun, CommandDone(Save(5, 3, From("now"))), Received(Read(5, From("now")), Page((), From("now"))))
    assert follow(*read).commands == (Reconcile(5, 3), Read(5, From("now")))


def test_whoever_is_to_stop_flushes_what_it_has_and_saves_where_it_was() -> None:
    stopping = follow(received(A1), StopRequested())

    assert stopping.commands == (HandleChanged(5, 0, "a", (1,)),)
    assert follow(received(A1), StopRequested(), CommandDone(HandleChanged(5, 0, "a", (1,)))).commands == (
        Save(5, 2, After("t1")),
    )
    saved = follow(
        received(A1), StopRequested(), CommandDone(HandleChanged(5, 0, "a", (1,))), CommandDone(Save(5, 2, After("t1")))
    )
    assert saved == Step(Stopped())
    assert follow(StopRequested()) == Step(Stopped())
    assert follow(StopRequested(), start=None) == Step(Stopped())
    assert follow(received(A1), StopRequested(), CommandFailed(HandleChanged(5, 0, "a", (1,)))) == Step(Stopped())
    assert follow(received(), StopRequested()).commands == (Save(5, 2, After("t1")),)


def test_what_waited_to_be_tried_again_is_tried_at_the_stop() -> None:
    plan = HandleChanged(5, 0, "a", (1, 2))
    assert follow(received(A1, A2, B1), CommandFailed(plan), StopRequested()).commands == (plan,)


def test_whoever_does_not_lead_does_nothing() -> None:
    """Law CS7, also where an epoch's end arrives before its start."""
    assert follow(received(A1), LeadershipLost(5)) == Step(Following(5))
    assert follow(received(A1), LeadershipLost(4)).commands == ()
    assert follow(received(), StopRequested(), Fenced(Save(5, 2, After("t1")))) == Step(Following(5))
    assert CONSUMER.step(Following(), LeadershipLost(5)) == Step(Following(5))
    assert CONSUMER.step(Following(5), Elected(5, 0, None)) == Step(Following(5))
    assert CONSUMER.step(Following(5), LeadershipLost(4)) == Step(Following(5))
    assert CONSUMER.step(Following(5), received()) == Step(Following(5))
    assert CONSUMER.step(Following(5), StopRequested()) == Step(Stopped())
    assert CONSUMER.step(Stopped(), Elected(5, 0, None)) == Step(Stopped())


def test_a_later_epoch_begins_anew() -> None:
    state = follow(received(A1)).state
    assert CONSUMER.step(state, Elected(6, 2, START)) == CONSUMER.step(Following(), Elected(6, 2, START))
    assert CONSUMER.step(state, Elected(5, 2, START)) == Step(state)


def test_an_idle_position_is_saved_only_where_nothing_waits() -> None:
    """Law CS9. mongodash: at a heartbeat of 10 s with an empty batch."""
    keep, flush = StartTimer(SaveIdle(5), 10 * SECOND), StartTimer(Flush(5, 0), 500 * MILLISECOND)
    more = received(A1, after=After("t1"), up_to="t2")

    assert follow(received(), TimerFired(keep)).commands == (Save(5, 2, After("t1")),)
    assert follow(received(), more, TimerFired(keep)).commands == ()
    assert follow(received(), more, TimerFired(flush), TimerFired(keep)).commands == ()


def test_a_pass_that_nobody_knows_of_changes_nothing() -> None:
    plan = HandleChanged(5, 0, "a", (1,))
    state = Consuming(5, 2, START, START, START, awaited=frozenset({plan}))
    step = CONSUMER.step(state, CommandDone(plan))

    assert isinstance(step.state, Consuming)
    assert (step.state.safe, step.state.saved) == (START, START)


@given(consumers(), st.lists(events(), max_size=30))
def test_every_event_has_an_answer_in_every_state(consumer: ChangeStreamConsumer, schedule: list[StreamEvent]) -> None:
    """Laws CS6 and CS7, also for unexpected events."""
    state: StreamState = Following()
    for event in schedule:
        step = consumer.step(state, event)
        assert laws.ignores_what_is_not_awaited(state, event, step)
        assert laws.is_silent_when_over(step)
        assert laws.awaits_something(step.state)
        state = step.state


def test_states_say_what_they_are() -> None:
    printed = [str(each) for each in (Following(3), follow().state, follow(start=None).state, Stopped())]
    assert printed == [
        "following, epoch 3 is over",
        'consuming in epoch 5: read after "t0", 0 collected',
        "consuming in epoch 5: does not know where, 0 collected",
        "stopped",
    ]
    assert str(follow(received(A1), StreamFailed(Read(5, After("t1")), 286)).state) == (
        "consuming in epoch 5: has lost its history, 0 collected"
    )


@pytest.mark.parametrize("broken", [{"size": 0}, {"size": True}, {"wait": -1}, {"idle": None}, {"pause": 0}])
def test_rules_that_mean_nothing_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        ChangeStreamConsumer(**broken)


def test_what_is_not_a_state_is_refused() -> None:
    with pytest.raises(Misuse):
        CONSUMER.step(None, StopRequested())  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        Following(-1)
