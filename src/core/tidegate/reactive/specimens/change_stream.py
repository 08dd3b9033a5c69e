"""Seven ways to lead a change stream wrong. Each differs from `tidegate.reactive.change_stream` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import Put, exactly
from tidegate.model.reducer import Step
from tidegate.reactive.change_stream import (
    Change,
    ChangeStreamConsumer,
    Consuming,
    Done,
    Elected,
    Flushing,
    Following,
    HandleDeleted,
    Plan,
    Position,
    Reconcile,
    Request,
    StreamEvent,
    StreamStep,
)
from tidegate.reactive.reconciler import RECONCILED
from tidegate.reactive.scenarios.change_stream import (
    BOTH,
    DELETE,
    LOOKED,
    PASSED,
    PASSES_FAIL,
    PROMISE,
    SAME_ID,
    USERS,
    change_stream,
    total,
)
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen


@attrs.frozen(kw_only=True)
class FailedPassIsDone(ChangeStreamConsumer):
    """A pass that has failed passes for done, and the position is saved over it."""

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        if isinstance(command, (Plan, HandleDeleted)):
            return self._answered(state, Done(command))
        return super()._failed(state, command)


@attrs.frozen(kw_only=True)
class BatchById(ChangeStreamConsumer):
    """A batch knows its documents by their id alone, so of two collections with one id the first is dropped."""

    def _collected(self, before: tuple[Change, ...], more: tuple[Change, ...]) -> tuple[Change, ...]:
        last = {exactly(change.id): change for change in super()._collected(before, more)}
        return tuple(last.values())


@attrs.frozen(kw_only=True)
class SavesTheNewest(ChangeStreamConsumer):
    """When a batch is done the newest position is saved, over what was collected meanwhile."""

    def _safe(self, _: Consuming, flushing: Flushing) -> Position | None:  # noqa: ARG002  that is the bug
        return _.read


@attrs.frozen(kw_only=True)
class FlushesOverlap(ChangeStreamConsumer):
    """The next batch is flushed while one is under way, and its position is saved when it is done."""

    def _flushed(self, state: Consuming) -> Consuming:
        if state.changes and state.flushing is not None:
            state = attrs.evolve(state, flushing=None)
        return super()._flushed(state)


@attrs.frozen(kw_only=True)
class ReconcilesFirst(ChangeStreamConsumer):
    """Reconciliation begins at once, before any position is stored."""

    def _following(self, state: Following, event: StreamEvent) -> StreamStep:
        done = super()._following(state, event)
        if not isinstance(done.state, Consuming) or not isinstance(event, Elected):
            return done
        begun = Reconcile(event.epoch, event.history)
        return Step(attrs.evolve(done.state, must_reconcile=False), (begun, *done.commands))


@attrs.frozen(kw_only=True)
class DeletesUnseen(ChangeStreamConsumer):
    """What was deleted cannot be matched by the filter of a stream, so nobody is told of it."""

    def _collected(self, before: tuple[Change, ...], more: tuple[Change, ...]) -> tuple[Change, ...]:
        return super()._collected(before, tuple(change for change in more if not change.is_gone))


def planted(name: str, make: partial[Scenario], law: str, source: str, of: str = "change_stream") -> Specimen:
    """The scenario of the reducer, with the bug in its place."""
    summary = (make.args[0].__doc__ or "").partition("\n")[0]
    return Specimen(f"change_stream.{name}", partial(make, summary=summary), law, source, of)


SPECIMENS: Final = (
    planted(
        "failed_pass_is_done",
        partial(change_stream, FailedPassIsDone, kinds=PASSES_FAIL, is_new=False),
        PROMISE,
        "mongodash 2.3.1 saves the token although planning a collection has failed, and drops the events of the batch.",
        of="change_stream.passes_fail",
    ),
    planted(
        "batch_by_id",
        partial(
            change_stream,
            BatchById,
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
        partial(change_stream, SavesTheNewest, edits=(total(2), total(3)), budget=0, is_new=False),
        PROMISE,
        "Planted: what was collected while a batch was under way is before the newest position.",
        of="change_stream.crashes",
    ),
    planted(
        "flushes_overlap",
        partial(change_stream, FlushesOverlap, edits=(total(2), total(2, "y")), docs=BOTH, budget=0, is_new=False),
        PROMISE,
        "mongodash 2.3.1: a later flush may save a later token while an earlier one is unfinished.",
        of="change_stream.crashes",
    ),
    planted(
        "reconciles_first",
        partial(change_stream, ReconcilesFirst, budget=0),
        PROMISE,
        "mongodash 2.3.1 saves no token before its first reconciliation: a crash then, and nobody tells what changed.",
    ),
    planted(
        "checkpoint_survives",
        partial(
            change_stream,
            ChangeStreamConsumer,
            edits=(total(2),),
            docs=BOTH,
            budget=1,
            forgetful=True,
            forgotten=(Put(RECONCILED, value=False),),
            only=PASSED,
        ),
        PASSED,
        "mongodash 2.3.1 keeps the checkpoints of an interrupted reconciliation when the history of its stream is lost.",
        of="change_stream.history_lost",
    ),
    planted(
        "deletes_unseen",
        partial(change_stream, DeletesUnseen, edits=(DELETE,), budget=0, is_new=False, only=LOOKED),
        LOOKED,
        "mongodash 2.3.1 matches its filter in the stream, and a deletion has no document to be matched.",
        of="change_stream.deleted",
    ),
)
