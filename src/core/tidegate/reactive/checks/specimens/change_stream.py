"""Nine ways to lead a change stream wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.model.instants import SECOND
from tidegate.reactive.checks.scenarios.change_stream import (
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
    Saving,
    change_stream,
    total,
)
from tidegate.reactive.planning.change_stream import ChangeStreamConsumer
from tidegate.reactive.planning.change_stream._batches import collected
from tidegate.reactive.planning.reconciler import Reconciler
from tidegate.reactive.planning.stream_records import save
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant


def saving(made: Saving, *, summary: str) -> Scenario:
    """Of a position."""
    return change_stream(summary=summary, save=made, handovers=1, budget=0)


def reconciling(made: type[Reconciler], *, summary: str) -> Scenario:
    """Of a program that reconciles."""
    return change_stream(
        summary=summary, reconciles=made, edits=(total(2),), docs=BOTH, budget=1, forgetful=True, only=PASSED
    )


FAILED: Final = "    def _failed(self, state: Consuming, command: Request) -> StreamStep:\n"
DONE: Final = """        if isinstance(command, (HandleChanged, HandleDeleted)):
            return self._onward(_done(state, command))
"""
PASSES: Final = "frozenset(each for each in state.awaited if isinstance(each, (HandleChanged, HandleDeleted)))"
IN_HISTORY: Final = (
    "in_history(Progress(needed(known, HISTORY), _triggers(needed(known, _RECONCILED)), checkpoints), history)"
)

SPECIMENS: Final = (
    specimen(
        "change_stream.failed_pass_is_done", PROMISE,
        "A pass that has failed passes for done, and the position is saved over it.",
        "mongodash 2.3.1 saves the token although planning a collection has failed, and drops the events of the batch.",
        partial(variant, ChangeStreamConsumer, (FAILED, FAILED + DONE)),
        make=partial(change_stream, kinds=PASSES_FAIL, is_new=False), of="change_stream.passes_fail"),
    specimen(
        "change_stream.batch_by_id", PROMISE,
        "A batch knows its documents by their id alone, so of two collections with one id the first is dropped.",
        "mongodash 2.3.1 keys its batch by _id: of orders/1 and users/1 in one window the first is dropped.",
        lambda: variant(ChangeStreamConsumer, collected=variant(collected, ("(change.collection, exactly(change.id))", "exactly(change.id)"))),
        make=partial(
            change_stream, edits=(total(2), total(2, "x", USERS)), docs=SAME_ID, size=2, budget=0, is_new=False),
        of="change_stream.same_id"),
    specimen(
        "change_stream.saves_the_newest", PROMISE,
        "When a batch is done the newest position is saved, over what was collected meanwhile.",
        "Planted: what was collected while a batch was under way is before the newest position.",
        partial(variant, ChangeStreamConsumer, ("if state.left else flushing.position", "if state.left else state.read")),
        make=partial(change_stream, edits=(total(2), total(3)), size=2, wait=SECOND, budget=0, is_new=False),
        of="change_stream.crashes"),
    specimen(
        "change_stream.flushes_overlap", PROMISE,
        "The next batch is flushed while one is under way, and its position is saved when it is done.",
        "mongodash 2.3.1: a later flush may save a later token while an earlier one is unfinished.",
        partial(variant, ChangeStreamConsumer, ("must_reconcile=False)", "must_reconcile=False, flushing=None if changes else state.flushing)")),
        make=partial(
            change_stream, edits=(total(2), total(2, "y")), docs=BOTH, size=2, wait=SECOND, budget=0, is_new=False),
        of="change_stream.crashes"),
    specimen(
        "change_stream.reconciles_first", PROMISE,
        "Reconciliation begins at once, before any position is stored.",
        "mongodash 2.3.1 saves no token before its first reconciliation: after a crash nothing reports what changed.",
        partial(
            variant, ChangeStreamConsumer,
            ("position, position, position)", "position, position, position, must_reconcile=False), Reconcile(epoch, history)")),
        make=partial(change_stream, budget=0), of="change_stream"),
    specimen(
        "change_stream.saved_by_any_epoch", PROMISE,
        "A position is stored whoever leads by then: that of an earlier leader covers what the later one has not looked at.",
        "mongodash 2.3.1 fences no write of a token: a leader that has lost its lock saves on.",
        partial(variant, save, ("AllOf((Eq(ID, stream), Eq(EPOCH, command.epoch), Eq(HISTORY, command.history)))", "Eq(ID, stream)")),
        make=saving, of="change_stream"),
    specimen(
        "change_stream.checkpoint_survives", PASSED,
        "When the history is lost, the checkpoint of an interrupted reconciliation survives.",
        "mongodash 2.3.1 keeps the checkpoints of an interrupted reconciliation when the history of its stream is lost.",
        partial(variant, Reconciler, (IN_HISTORY, f"attrs.evolve({IN_HISTORY}, checkpoints=checkpoints)")),
        make=reconciling, of="change_stream.history_lost"),
    specimen(
        "change_stream.keeps_what_is_under_way", LATER,
        "When the history is lost a pass stays under way, although no stream reports what changes meanwhile.",
        "Planted: the leader would run with what it saw before (`reactive_task.followed`), and nobody would look again.",
        partial(variant, ChangeStreamConsumer, ("is_lost=True)", f"is_lost=True, awaited={PASSES})")),
        make=partial(LOST_DURING_A_PASS, only=LATER), of="change_stream.lost_during_a_pass"),
    specimen(
        "change_stream.deletes_unseen", LOOKED,
        "What was deleted cannot be matched by the filter of a stream, so nobody learns of it.",
        "mongodash 2.3.1 matches its filter in the stream, and a deletion has no document to be matched.",
        partial(variant, ChangeStreamConsumer, ("state.changes, page.changes)", "state.changes, tuple(each for each in page.changes if not each.is_gone))")),
        make=partial(change_stream, edits=(DELETE,), budget=0, is_new=False, only=LOOKED), of="change_stream.deleted"),
)  # fmt: skip
