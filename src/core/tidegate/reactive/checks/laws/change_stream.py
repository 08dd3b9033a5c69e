"""The laws of `tidegate.reactive.planning.change_stream`.

Changes are numbered in the order of their stream, and positions, passes and reads are counts of
changes: position 5 is after the first five, and a pass of 5 saw the effect of five.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from tidegate.model.documents import exactly
from tidegate.model.reducer import Step
from tidegate.reactive.planning.change_stream import (
    Again,
    Answer,
    ChangeStreamConsumer,
    CommandDone,
    CommandFailed,
    Consuming,
    DocumentChange,
    Fenced,
    Flush,
    HandleChanged,
    HandleDeleted,
    Located,
    Pass,
    PassLeft,
    Position,
    Read,
    Received,
    Reconcile,
    Save,
    SaveIdle,
    StartTimer,
    StreamEvent,
    StreamFailed,
    StreamState,
    StreamStep,
    TimerFired,
)

Looks: TypeAlias = Collection[int]
"""The changes of a document that were looked at."""


def is_not_lost(happened: int, passed: int, stored: int | None, *, is_scanned: bool) -> bool:
    """Law CS1: a change had a later pass, is after the stored position, or will be reconciled."""
    return happened < passed or (stored is not None and happened >= stored) or is_scanned


def has_had_its_pass(happened: int, passed: int) -> bool:
    """Law CS2: at rest, each change had a pass after it."""
    return happened < passed


def asks_for_each_once(changes: tuple[DocumentChange, ...], asked: tuple[Pass, ...]) -> bool:
    """Law CS3: a batch requests each document once, by collection, as of its last change, in one
    pass each.
    """
    names = [(type(each), each.collection) for each in asked]
    ids = [(each.collection, exactly(id_), isinstance(each, HandleDeleted)) for each in asked for id_ in each.ids]
    last = {(each.collection, exactly(each.id)): each.is_gone for each in changes}
    return len(set(names)) == len(names) and sorted(map(repr, ids)) == sorted(
        repr((collection, id_, is_gone)) for (collection, id_), is_gone in last.items()
    )


def cleans_up_first(state: StreamState) -> bool:
    """Law CS3: deletions of a collection come first: no pass is requested before them."""
    if not isinstance(state, Consuming) or state.flushing is None:
        return True
    waiting = {each.collection for each in state.flushing.left if isinstance(each, HandleDeleted)}
    return not any(isinstance(command, HandleChanged) and command.collection in waiting for command in state.awaited)


def flushes_in_time(consumer: ChangeStreamConsumer, before: StreamState, event: StreamEvent, step: StreamStep) -> bool:
    """Law CS4: a batch is flushed when full, timed out or at a stop, and one at a time."""
    after = step.state
    if not isinstance(after, Consuming):
        return True
    is_time = after.is_due or not consumer.wait or after.is_stopping or len(after.changes) >= consumer.size
    if after.changes and after.flushing is None and is_time:
        return False
    known = _flushed(before)
    begun = after.flushing is not None and (known is None or not set(after.flushing.left) <= set(known))
    if not begun or not isinstance(before, Consuming):
        return not begun
    is_over = isinstance(event, TimerFired) and event.command.then == Flush(before.epoch, before.batch)
    received = len(event.page.changes) if isinstance(event, Received) else 0
    is_full = len(before.changes) + received >= consumer.size
    # the one before ends with this step, or there was none
    is_alone = known is None or (isinstance(event, (CommandDone, PassLeft)) and known == (event.command,))
    is_again = before.is_left_due or (isinstance(event, TimerFired) and isinstance(event.command.then, Again))
    return is_alone and (is_over or is_full or is_again or before.is_due or not consumer.wait or after.is_stopping)


def starts_its_time_once(consumer: ChangeStreamConsumer, before: StreamState, step: StreamStep) -> bool:
    """Law CS4: the time of a batch counts from its first change."""
    after = step.state
    if not isinstance(after, Consuming):
        return True
    begins = any(isinstance(command, StartTimer) and isinstance(command.then, Flush) for command in step.commands)
    runs = after.is_due or any(
        isinstance(command, StartTimer) and command.then == Flush(after.epoch, after.batch) for command in after.awaited
    )
    is_first = not isinstance(before, Consuming) or not before.changes
    return (is_first or not begins) and (runs or not after.changes or not consumer.wait or after.is_stopping)


def may_be_saved(happened: int, passed: int, saved: int, *, is_scanned: bool) -> bool:
    """Law CS5: no change before a position to be saved waits for its pass."""
    return is_not_lost(happened, passed, saved, is_scanned=is_scanned)


def one_save_is_under_way(state: StreamState) -> bool:
    """Law CS5: one save is under way or waits for its retry."""
    if not isinstance(state, Consuming):
        return True
    return (
        sum(isinstance(command.then if isinstance(command, StartTimer) else command, Save) for command in state.awaited)
        <= 1
    )


def awaits_something(state: StreamState) -> bool:
    """Law CS6: a leader always awaits something."""
    return not isinstance(state, Consuming) or bool(state.awaited)


def tries_again(before: StreamState, event: StreamEvent, step: StreamStep) -> bool:
    """Law CS6: a failed or partial request is sent again after a pause, except at the stop."""
    if isinstance(event, PassLeft) and _is_awaited(before, event) and isinstance(step.state, Consuming):
        state = step.state
        asked = any(isinstance(each, StartTimer) and isinstance(each.then, Again) for each in state.awaited)
        return asked or state.is_left_due or not state.left
    if not isinstance(event, CommandFailed) or not isinstance(before, Consuming) or event.command not in before.awaited:
        return True
    is_later = any(isinstance(command, StartTimer) and command.then == event.command for command in step.commands)
    return before.is_stopping or is_later


def is_silent_when_over(step: StreamStep) -> bool:
    """Law CS7: a follower emits no command, and a leader only under its own epoch."""
    if not isinstance(step.state, Consuming):
        return step.commands == ()
    epochs = {(command.then if isinstance(command, StartTimer) else command).epoch for command in step.commands}
    return epochs <= {step.state.epoch}


def ignores_what_is_not_awaited(before: StreamState, event: StreamEvent, step: StreamStep) -> bool:
    """Law CS7: a reply that is not awaited changes nothing."""
    if not isinstance(
        event, (Located, Received, StreamFailed, CommandDone, CommandFailed, PassLeft, Fenced, TimerFired)
    ):
        return True
    return _is_awaited(before, event) or step == Step(before)


def reconciles_in_time(
    before: StreamState, event: StreamEvent, step: StreamStep, asked: tuple[Reconcile, ...], stored: tuple[int, bool]
) -> bool:
    """Law CS8: reconciliation is requested once in a history, after its position was stored and the
    stream was read.

    Args:
        before: The state before.
        event: The event.
        step: The step.
        asked: The earlier requests of this consumer.
        stored: The stored history, and whether a position is stored, while its epoch lasts.
    """
    commands = [command for command in step.commands if isinstance(command, Reconcile)]
    is_ready = isinstance(before, Consuming) and isinstance(event, Received)
    return all(is_ready and command not in asked and stored == (command.history, True) for command in commands)


def keeps_the_position(
    consumer: ChangeStreamConsumer, before: StreamState, event: StreamEvent, step: StreamStep
) -> bool:
    """Law CS9: without changes the position is still saved within `idle`."""
    after = step.state
    if not isinstance(after, Consuming) or after.is_pending or after.is_lost:
        return True
    if isinstance(event, TimerFired) and isinstance(event.command.then, SaveIdle) and _is_awaited(before, event):
        return after.safe == after.read
    waits = any(
        isinstance(command, StartTimer) and command == StartTimer(SaveIdle(after.epoch), consumer.idle)
        for command in after.awaited
    )
    return after.read == after.safe or waits


def rests_between_saves(
    consumer: ChangeStreamConsumer, before: StreamState, event: StreamEvent, step: StreamStep
) -> bool:
    """Law CS10: `rest` lies between a successful save and the next one, except at the stop."""
    after = step.state
    if not isinstance(after, Consuming) or after.is_stopping or not consumer.rest:
        return True
    saves = [command for command in step.commands if isinstance(command, Save)]
    match event:
        case CommandDone(Save() as command) if _is_awaited(before, event):
            return not saves and StartTimer(command, consumer.rest) in step.commands
        case _:
            waits = [each for each in after.awaited if isinstance(each, StartTimer) and isinstance(each.then, Save)]
            return not (saves and waits)


def reads_no_further(step: StreamStep) -> bool:
    """Law CS11: no page is requested while a batch is under way."""
    is_under_way = isinstance(step.state, Consuming) and step.state.flushing is not None
    return not is_under_way or not any(isinstance(command, Read) for command in step.commands)


def asked_up_to(state: StreamState) -> Position | None:
    """The position up to which all is in a batch that began, or needs none; None if unknown."""
    if not isinstance(state, Consuming):
        return None
    return state.safe if state.flushing is None else state.flushing.position


def is_looked_at_later(happened: int, asked: int, stored: int | None, *, is_scanned: bool) -> bool:
    """Law CS12: a change since a running pass began is in no batch yet, and is reported again or
    scanned.

    Args:
        happened: The number of the change.
        asked: The position up to which the leader has begun batches (`asked_up_to`); 0 without one.
        stored: The stored position, if any.
        is_scanned: Whether reconciliation will look at it.
    """
    return is_scanned or (stored is not None and happened >= max(asked, stored))


# --- as it runs, with its leader and its passes -------------------------------------------------------------------------


def each_change_is_looked_at(said: int, seen: Looks) -> bool:
    """Law CS2: with a leader, at rest, the document's current values were looked at."""
    return said in seen


def a_position_is_a_promise(before: Iterable[tuple[int, Looks]], *, is_reconciled: bool) -> bool:
    """Law CS1: each change before the stored position had a later look, or will be reconciled.

    Args:
        before: Of each earlier change its number among the changes of its document, and the last
            look
            at that document.
        is_reconciled: Whether reconciliation has looked at everything in this history.
    """
    return not is_reconciled or all(any(each >= number for each in seen) for number, seen in before)


def what_is_reconciled_was_looked_at(said: int, seen: Looks, *, is_reconciled: bool, is_reported: bool) -> bool:
    """Law RJ1: a document that reconciliation has passed, and no change reports, was looked at.

    Args:
        said: The document's values.
        seen: The values of its last look.
        is_reconciled: Whether everything was looked at in this history.
        is_reported: Whether a change after the stored position reports it.
    """
    return not is_reconciled or is_reported or said in seen


def _flushed(state: StreamState) -> tuple[Pass, ...] | None:
    flushing = state.flushing if isinstance(state, Consuming) else None
    return None if flushing is None else flushing.left


def _is_awaited(state: StreamState, event: Answer) -> bool:
    return isinstance(state, Consuming) and event.command in state.awaited
