"""Nine ways to lead a change stream wrong. Each differs from `tidegate.reactive.change_stream` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeGuard

import attrs

from tidegate.model.documents import ID, Document, Eq, exactly
from tidegate.model.instants import SECOND
from tidegate.model.operations import update_one
from tidegate.model.reducer import Step
from tidegate.reactive.change_stream import (
    ChangeStreamConsumer,
    CommandDone,
    CommandFailed,
    Consuming,
    Elected,
    HandleChanged,
    HandleDeleted,
    Received,
    Reconcile,
    Save,
    StreamEvent,
    StreamState,
    StreamStep,
)
from tidegate.reactive.reconciler import HISTORY, PROGRESS, progress_of
from tidegate.reactive.reconciliation import Progress
from tidegate.reactive.scenarios.change_stream import (
    BOTH,
    DELETE,
    LATER,
    LOOKED,
    LOST_DURING_A_PASS,
    PASSED,
    PASSES_FAIL,
    PROMISE,
    SAME_ID,
    USERS,
    change_stream,
    total,
)
from tidegate.reactive.stream_records import stored_position
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def is_awaited(state: StreamState, event: StreamEvent) -> TypeGuard[Consuming]:
    """Tell whether the event answers something that this state has asked for."""
    return isinstance(state, Consuming) and getattr(event, "command", None) in state.awaited


def failed_pass_is_done(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """A pass that has failed passes for done, and the position is saved over it."""
    if isinstance(event, CommandFailed) and isinstance(event.command, (HandleChanged, HandleDeleted)):
        return consumer.step(state, CommandDone(event.command))
    return consumer.step(state, event)


async def saved_by_any_epoch(streams: str, stream: str, command: Save) -> None:
    """Whoever has led stores its position."""
    await update_one(streams, Eq(ID, stream), *stored_position(command.position))


def batch_by_id(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """A batch knows its documents by their id alone, so of two collections with one id the first is dropped."""
    if is_awaited(state, event) and isinstance(event, Received):
        last = {exactly(change.id): change for change in (*state.changes, *event.page.changes)}
        page = attrs.evolve(event.page, changes=tuple(last.values()))
        return consumer.step(attrs.evolve(state, changes=()), attrs.evolve(event, page=page))
    return consumer.step(state, event)


def saves_the_newest(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """When a batch is done the newest position is saved, over what was collected meanwhile."""
    if is_awaited(state, event) and isinstance(event, CommandDone) and state.flushing and state.read:
        state = attrs.evolve(state, flushing=attrs.evolve(state.flushing, position=state.read))
    return consumer.step(state, event)


def flushes_overlap(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """The next batch is flushed while one is under way, and its position is saved when it is done."""
    if is_awaited(state, event) and isinstance(event, Received) and (state.changes or event.page.changes):
        state = attrs.evolve(state, flushing=None)
    return consumer.step(state, event)


def reconciles_first(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """Reconciliation begins at once, before any position is stored."""
    step = consumer.step(state, event)
    if isinstance(event, Elected) and isinstance(step.state, Consuming) and step.commands:
        begun = Reconcile(event.epoch, event.history)
        return Step(attrs.evolve(step.state, must_reconcile=False), (begun, *step.commands))
    return step


def deletes_unseen(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """What was deleted cannot be matched by the filter of a stream, so nobody learns of it."""
    if isinstance(event, Received):
        seen = tuple(change for change in event.page.changes if not change.is_gone)
        event = attrs.evolve(event, page=attrs.evolve(event.page, changes=seen))
    return consumer.step(state, event)


def checkpoint_survives(record: Document) -> Progress:
    """When the history is lost, the checkpoint of an interrupted reconciliation survives."""
    before = record.get(PROGRESS)
    known = progress_of(record) if before is None else progress_of(record.put(HISTORY, before[HISTORY]))
    return Progress(record[HISTORY], progress_of(record).reconciled, known.checkpoints)


def keeps_what_is_under_way(consumer: ChangeStreamConsumer, state: StreamState, event: StreamEvent) -> StreamStep:
    """When the history is lost a pass stays under way, although no stream reports what changes meanwhile."""
    step = consumer.step(state, event)
    if is_awaited(state, event) and isinstance(step.state, Consuming) and step.state.is_lost > state.is_lost:
        kept = frozenset(command for command in state.awaited if isinstance(command, (HandleChanged, HandleDeleted)))
        return Step(attrs.evolve(step.state, awaited=step.state.awaited | kept), step.commands)
    return step


def planted(name: str, make: partial[Scenario], law: str, source: str, of: str = "change_stream") -> Specimen:
    """The scenario of the reducer, with the bug in its place."""
    summary = (make.args[0].__doc__ or "").partition("\n")[0]
    return Specimen(f"change_stream.{name}", partial(make, summary=summary), law, source, of)


SPECIMENS: Final = (
    planted(
        "failed_pass_is_done",
        partial(change_stream, failed_pass_is_done, kinds=PASSES_FAIL, is_new=False),
        PROMISE,
        "mongodash 2.3.1 saves the token although planning a collection has failed, and drops the events of the batch.",
        of="change_stream.passes_fail",
    ),
    planted(
        "batch_by_id",
        partial(
            change_stream,
            batch_by_id,
            edits=(total(2), total(2, "x", USERS)),
            docs=SAME_ID,
            size=2,
            budget=0,
            is_new=False,
        ),
        PROMISE,
        "mongodash 2.3.1 keys its batch by _id: of orders/1 and users/1 in one window the first is dropped.",
        of="change_stream.same_id",
    ),
    planted(
        "saves_the_newest",
        partial(
            change_stream, saves_the_newest, edits=(total(2), total(3)), size=2, wait=SECOND, budget=0, is_new=False
        ),
        PROMISE,
        "Planted: what was collected while a batch was under way is before the newest position.",
        of="change_stream.crashes",
    ),
    planted(
        "flushes_overlap",
        partial(
            change_stream,
            flushes_overlap,
            edits=(total(2), total(2, "y")),
            docs=BOTH,
            size=2,
            wait=SECOND,
            budget=0,
            is_new=False,
        ),
        PROMISE,
        "mongodash 2.3.1: a later flush may save a later token while an earlier one is unfinished.",
        of="change_stream.crashes",
    ),
    planted(
        "reconciles_first",
        partial(change_stream, reconciles_first, budget=0),
        PROMISE,
        "mongodash 2.3.1 saves no token before its first reconciliation: after a crash nothing reports what changed.",
    ),
    Specimen(
        "change_stream.saved_by_any_epoch",
        partial(
            change_stream,
            summary="A position is stored whoever leads by then: that of an earlier leader covers what the later one has not looked at.",
            save=saved_by_any_epoch,
            handovers=1,
            budget=0,
        ),
        PROMISE,
        "mongodash 2.3.1 fences no write of a token: a leader that has lost its lock saves on.",
        "change_stream",
    ),
    Specimen(
        "change_stream.checkpoint_survives",
        partial(
            change_stream,
            summary=checkpoint_survives.__doc__ or "",
            edits=(total(2),),
            docs=BOTH,
            budget=1,
            forgetful=True,
            known=checkpoint_survives,
            only=PASSED,
        ),
        PASSED,
        "mongodash 2.3.1 keeps the checkpoints of an interrupted reconciliation when the history of its stream is lost.",
        "change_stream.history_lost",
    ),
    planted(
        "keeps_what_is_under_way",
        partial(LOST_DURING_A_PASS, keeps_what_is_under_way, only=LATER),
        LATER,
        "Planted: the leader would run with what it saw before (`reactive_task.followed`), and nobody would look again.",
        of="change_stream.lost_during_a_pass",
    ),
    planted(
        "deletes_unseen",
        partial(change_stream, deletes_unseen, edits=(DELETE,), budget=0, is_new=False, only=LOOKED),
        LOOKED,
        "mongodash 2.3.1 matches its filter in the stream, and a deletion has no document to be matched.",
        of="change_stream.deleted",
    ),
)
