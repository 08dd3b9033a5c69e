"""Six ways to write the end of a run wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.ending import ALLOWED, AVAILABLE, DELAY, NOTICED, RESULTS, TRUE, ending
from tidegate.invocations.checks.specimens.settling import NOT_LOOKED
from tidegate.invocations.queue.completion import Ending
from tidegate.model.documents import ID, Eq, Remove
from tidegate.model.operations import update_one
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

BEGINS: Final = "        now: Instant | None = None\n"
STORED_FIRST: Final = """        for run in self.runs:
            if isinstance(run.end, Succeeded):
                try:
                    await update_one(self.records, Eq(ID, run.key), Put(RESULT, run.end.result))
                except (Ambiguous, NotApplied):
                    pass
"""
DUE_LATER: Final = "Put(DUE, _kept(verdict.at))"
ALSO: Final = "move.request, *move.also)"
"""The transcript on record of ending.not_looked has the statuses alone."""

SPECIMENS: Final = (
    specimen(
        "ending.result_before", RESULTS,
        "The result is stored before the status is moved, by the id alone: one that was taken over has it, too.",
        "pynenc 0.4.0 stores a result, then sets the status; so does Celery's backend, which knows no owner.",
        partial(
            variant, Ending, (BEGINS, STORED_FIRST + BEGINS), ("(Put(RESULT, result),)", "()"),
            ID=ID, Eq=Eq, update_one=update_one),
        make=partial(ending, budget=0), of="ending", alone=True),
    specimen(
        "ending.not_looked", TRUE,
        "An end whose reply is lost is taken for one that was not written.",
        "The resilience article: a time-out says nothing about whether the write was done.",
        lambda: variant(Ending, Settling=NOT_LOOKED((ALSO, "move.request)"))), make=ending, of="ending"),
    specimen(
        "ending.due_is_removed", AVAILABLE,
        "A run is to be tried again, and its place in the queue is left for a second write.",
        "pynenc 0.4.0 sets `retry`, then routes the invocation: a crash in between leaves one that nobody runs (W22).",
        partial(variant, Ending, (DUE_LATER, "Remove(DUE)"), Remove=Remove), make=partial(ending, budget=0), of="ending"),
    specimen(
        "ending.tries_from_zero", ALLOWED,
        "Tries are counted from the second one on, so there is one more than is allowed.",
        "Planted: is `retries=3` three tries, or four? Three: the first one counts.",
        partial(variant, Ending, ("decide(policy, run.tries,", "decide(policy, max(1, run.tries - 1),")),
        make=partial(ending, budget=0), of="ending"),
    specimen(
        "ending.notice_of_the_old", NOTICED,
        "The notice for triggers names the version that was decided on.",
        "Planted: off by one.",
        partial(variant, Ending, ("run.record.version + 1", "run.record.version")),
        make=partial(ending, budget=0), of="ending"),
    specimen(
        "ending.due_at_once", DELAY,
        "What has failed is tried again at once.",
        "pynenc 0.4.0 routes what is to be retried back at once, without a delay.",
        partial(variant, Ending, (DUE_LATER, "Put(DUE, now)")), make=partial(ending, budget=0), of="ending"),
)  # fmt: skip
