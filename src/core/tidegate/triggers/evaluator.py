"""The programs of triggers: keep what has happened, and let fire what is due, once, whoever looks.

The decisions are `tidegate.triggers.trigger`, `tidegate.retries.schedule` and `tidegate.triggers.firing`. Several
processes may evaluate at the same time, over views of different ages, and each may die anywhere.

    notice      what happened is kept as an occurrence of each condition that holds of it
    evaluate    a pass: look at the crons; the store's time, THEN occurrences, THEN runs; plan; claim each run, insert
                its invocation under the run's id, and record that; drop what nobody waits for any more
    purge       forget runs that are over

Each write is of one document: an insert under an id that is made of what it is, or a compare-and-set on a version. So a
write without an answer may be asked for again, and what it was to do is seen on the document: a claim shows whose it is.

Laws, over what is stored:
    TE1  No occurrence has two invocations of one trigger.
    TE2  Each occurrence waits, or has fired, or was given up, for each trigger of its condition; at rest none waits.
    TE3  While the claim of a run lasts, no other pass claims it.
    TE4  An instant of a cron is noticed at most once, and at rest none before the last look was missed out.
    TE5  The runs of a trigger of all conditions are numbered without a gap.
    TE6  A run that says that it has fired has its invocation, of the same occurrences.

Known not to work
    - A pass reads at most FOUND_MAX occurrences and runs; what is beyond waits for a later pass.
    - Whoever purges runs while another evaluator still holds a view from before lets it fire again: keep runs for longer
      than a process may stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, final

import attrs

from tidegate.model.documents import ID, AllOf, AnyOf, Document, Eq, Field, Filter, In, Put, Remove, Update
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, NotApplied, NotDurable, Program, Refused
from tidegate.model.instants import Instant
from tidegate.model.operations import (
    FOUND_MAX,
    StoreTime,
    check_collection,
    delete_one,
    find_all,
    find_one,
    insert_one,
    update_one,
)
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.retries.schedule import Due, FirstSeen, Look, NextAfter, Schedule, ScheduleCell, TooLate, closed, look
from tidegate.services.retention import Retention
from tidegate.triggers.conditions import Condition, OnCron, condition_id
from tidegate.triggers.contexts import Context
from tidegate.triggers.firing import (
    HISTORY,
    Busy,
    Claims,
    Exhausted,
    Firing,
    Ignored,
    Plan,
    RunClaim,
    Settled,
    TriggerRun,
    claim,
    failed,
    fired,
    plan,
    purge,
)
from tidegate.triggers.trigger import NotProvided, Occurrence, Trigger, noticed, provided, ticks
from tidegate.triggers.trigger_documents import (
    FAILED,
    HELD,
    OF,
    STATE,
    TRIGGER,
    VERSION,
    loaded_cell,
    loaded_occurrence,
    loaded_run,
    stored_cell,
    stored_occurrence,
    stored_progress,
    stored_run,
)

__all__ = ["ATTEMPTS", "PARTS", "Evaluator", "EvaluatorParts"]

ATTEMPTS: Final = 8
"""How often a write is tried before it is left to the next pass."""

_CHANGING: Final = ("by", "until", "reasons", "at")
"""The fields of a run that not every state has."""


@final
@attrs.frozen(kw_only=True)
class Evaluator:
    """Whoever evaluates triggers.

    Attributes:
        triggers: All that are registered, as they were read.
        next_after: Answers the next instant of a cron.
        occurrences, cells, runs, invocations: The collections.
        claims: How runs are claimed.
        keep: How long and how many runs are kept.
        attempts: How often each write is tried.
        parts: What it is made of; faulty variants have others.
    """

    triggers: tuple[Trigger, ...]
    next_after: NextAfter = attrs.field(eq=id)
    occurrences: str = "occurrences"
    cells: str = "crons"
    runs: str = "runs"
    invocations: str = "invocations"
    claims: Claims = attrs.field(factory=Claims)
    keep: Retention = HISTORY
    attempts: int = ATTEMPTS
    parts: EvaluatorParts = attrs.field(factory=lambda: PARTS, repr=False)

    def __attrs_post_init__(self) -> None:
        check_tuple(self.triggers, Trigger, "a trigger")
        check_callable(self.next_after, "a port that answers the next instant")
        for name in (self.occurrences, self.cells, self.runs, self.invocations):
            check_collection(name)
        check_type(self.claims, Claims, "how runs are claimed")
        check_type(self.keep, Retention, "how long runs are kept")
        check_int(self.attempts, "a number of attempts", 1)
        check_type(self.parts, EvaluatorParts, "the parts of an evaluator")

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Each condition that a trigger waits for, once."""
        return tuple({condition_id(each): each for trigger in self.triggers for each in trigger.conditions}.values())

    @property
    def crons(self) -> tuple[OnCron, ...]:
        """Those of them that are crons."""
        return tuple(each for each in self.conditions if isinstance(each, OnCron))

    # --- notice ---

    async def notice(self, context: Context) -> bool:
        """Keep what has happened, for each condition that holds of it.

        Returns:
            Whether it is known to be kept. If not, notice it again: that changes nothing.
        """
        for _ in range(self.attempts):
            try:
                seen = await StoreTime()
                for each in noticed(self.conditions, context, seen).occurrences:
                    await _inserted(self.occurrences, stored_occurrence(each))
            except (Ambiguous, NotApplied, NotDurable):
                continue
            return True
        return False

    # --- evaluate ---

    async def evaluate(self, by: str) -> None:
        """One pass. What it does not reach, because there is no answer or others are faster, is left to the next one.

        Args:
            by: The id of this pass; no other has it.

        Raises:
            Refused: The store said no, definitely, for another reason than a taken id.
        """
        check_name(by, "a pass")
        try:
            for cron in self.crons:
                await self._look(cron)
            made = await self._planned()
            for run in made.given_up:
                await _changed(self, run)
            for each in made.firings:
                await self._fire(each, by)
            for dropped in made.dropped:
                await self._drop(dropped)
        except (Ambiguous, NotApplied, NotDurable):
            return

    async def _look(self, cron: OnCron) -> None:
        """Move the cell of a cron on, as long as something is due."""
        name = condition_id(cron)
        while True:
            now = await StoreTime()
            found = await find_one(self.cells, Eq(ID, name))
            cell = None if found is None else loaded_cell(found)
            match self.parts.look(cron.schedule, self.next_after, cell, now):
                case FirstSeen(first):
                    await _inserted(self.cells, stored_cell(name, first))
                    return
                case Due(_, after) | TooLate(_, after):
                    written = await self._moved(name, after)
                    if not written:
                        return  # somebody else looks
                case _:
                    return

    async def _moved(self, name: str, after: ScheduleCell) -> bool:
        doc = stored_cell(name, after)
        puts = tuple(Put(Field[object](key), value) for key, value in doc.without(ID).items)
        return await update_one(self.cells, self.parts.at_version(name, after.version - 1), *puts) > 0

    async def _planned(self) -> Plan:
        # In this order (`firing`): what is seen after the time was read is not taken for too old, and of an occurrence
        # that was read its runs are read later, those made meanwhile included.
        now = await StoreTime()
        found = await find_all(self.occurrences, limit=FOUND_MAX)
        occurrences = tuple([loaded_occurrence(each) for each in found])
        for cron in self.crons:
            cell = await find_one(self.cells, Eq(ID, condition_id(cron)))
            if cell is not None:
                occurrences += ticks(cron, loaded_cell(cell))
        runs = await find_all(self.runs, self._wanted(occurrences), limit=FOUND_MAX)
        return self.parts.plan(self.triggers, occurrences, tuple([loaded_run(each) for each in runs]), now)

    def _wanted(self, occurrences: Collection[Occurrence]) -> Filter:
        """The runs that a plan is made from."""
        joins = tuple(trigger.id for trigger in self.triggers if trigger.joins)
        of = tuple(each.id for each in occurrences)
        return AnyOf((In(STATE, (HELD, FAILED)), In(OF, of), In(TRIGGER, joins)))

    # --- fire ---

    async def _fire(self, wanted: Firing, by: str) -> None:
        """Make one run happen: claim it, insert its invocation, say so."""
        run = await self._claimed(wanted, by)
        if run is None:
            return
        trigger = next(each for each in self.triggers if each.id == run.firing.trigger_id)
        answer = provided(trigger.provider, tuple(each.context for each in run.firing.occurrences))
        if isinstance(answer, NotProvided):
            await self.parts.settle(self, run, answer.reasons)
            return
        # First the invocation: after a crash in between, the next claim of the run inserts the same one again.
        await self.parts.invoke(self, run, trigger, answer.arguments)
        await self.parts.settle(self, run, ())

    async def _claimed(self, wanted: Firing, by: str) -> TriggerRun | None:
        for _ in range(self.attempts):
            try:
                found = await find_one(self.runs, Eq(ID, wanted.id))
                now = await StoreTime()
                run = None if found is None else loaded_run(found)
                verdict = self.parts.claim(wanted, run, self.claims, by, now)
                if isinstance(verdict, (Busy, Settled)):
                    return None
                if isinstance(verdict, Exhausted):
                    await _changed(self, verdict.run)
                    return None
                if verdict.run == run or await self._written(verdict.run, run):
                    return verdict.run
            except (Ambiguous, NotApplied, NotDurable):
                continue  # a claim of ours is known by its pass
        return None

    async def _written(self, run: TriggerRun, before: TriggerRun | None) -> bool:
        return await (_inserted(self.runs, stored_run(run)) if before is None else _changed(self, run))

    # --- drop, purge ---

    async def _drop(self, occurrence_id: str) -> None:
        """Forget an occurrence; if it is an instant of a cron, close it."""
        if await delete_one(self.occurrences, Eq(ID, occurrence_id)):
            return
        for cron in self.crons:
            name = condition_id(cron)
            found = await find_one(self.cells, Eq(ID, name))
            if found is None:
                continue
            cell = loaded_cell(found)
            after = closed(cell, _instants(cron, cell, occurrence_id))
            if after != cell:
                await self._moved(name, after)

    async def purge(self) -> None:
        """Forget runs that are over, as `keep` says."""
        try:
            now = await StoreTime()
            waiting = await find_all(self.occurrences, limit=FOUND_MAX)
            found = await find_all(self.runs, limit=FOUND_MAX)
            runs = tuple([loaded_run(each) for each in found])
            what = purge({}, runs, [loaded_occurrence(each) for each in waiting], now=now, keep_runs=self.keep)
            for run in runs:
                if run.id in what.runs:
                    await delete_one(self.runs, self.parts.at_version(run.id, run.version))
        except (Ambiguous, NotApplied, NotDurable):
            return


# --- what it is made of -------------------------------------------------------------------------------------------------


def _claim(wanted: Firing, run: TriggerRun | None, claims: Claims, by: str, now: Instant) -> RunClaim:
    return claim(wanted, run, claims, by=by, now=now)


def _at_version(key: str, version: int) -> Filter:
    return AllOf((Eq(ID, key), Eq(VERSION, version)))


async def _invoke(evaluator: Evaluator, run: TriggerRun, trigger: Trigger, arguments: Document) -> None:
    parent = (("parent", run.firing.parent),) if run.firing.parent is not None else ()
    of = tuple(each.id for each in run.firing.occurrences)
    fields = (("_id", run.id), ("task", trigger.task), ("trigger", trigger.id), ("of", of), ("arguments", arguments))
    await _inserted(evaluator.invocations, Document((*fields, *parent)))


async def _settle(evaluator: Evaluator, claimed: TriggerRun, reasons: tuple[str, ...]) -> None:
    for _ in range(evaluator.attempts):
        found = await find_one(evaluator.runs, Eq(ID, claimed.id))
        if found is None:
            return
        now = await StoreTime()
        run = loaded_run(found)
        verdict = failed(run, claimed.attempt, reasons, evaluator.claims, now) if reasons else fired(run, now)
        if isinstance(verdict, Ignored) or await _changed(evaluator, verdict.run):
            return


@final
@attrs.frozen
class EvaluatorParts:
    """What an evaluator is made of.

    Attributes:
        look: What is due of a cron.
        plan: What fires, and what may be dropped.
        claim: Whether a pass may make a run happen.
        at_version: Finds a document if it is still at that version.
        invoke: Inserts the invocation of a run, under its id; if it is there, fine.
        settle: Writes what became of a run that was claimed: it has fired, or there are reasons why not.
    """

    look: Callable[[Schedule, NextAfter, ScheduleCell | None, Instant], Look] = look
    plan: Callable[[tuple[Trigger, ...], tuple[Occurrence, ...], tuple[TriggerRun, ...], Instant], Plan] = plan
    claim: Callable[[Firing, TriggerRun | None, Claims, str, Instant], RunClaim] = _claim
    at_version: Callable[[str, int], Filter] = _at_version
    invoke: Callable[[Evaluator, TriggerRun, Trigger, Document], Program[None]] = _invoke
    settle: Callable[[Evaluator, TriggerRun, tuple[str, ...]], Program[None]] = _settle


PARTS: Final[EvaluatorParts] = EvaluatorParts()


# --- writes -------------------------------------------------------------------------------------------------------------


async def _inserted(collection: str, doc: Document) -> bool:
    """Insert it; False if it is there already."""
    try:
        await insert_one(collection, doc)
    except Refused as refused:
        if refused.reason != DUPLICATE_KEY:
            raise
        return False
    return True


async def _changed(evaluator: Evaluator, run: TriggerRun) -> bool:
    """Write a run that was read one version before, if it still is at that version."""
    where = evaluator.parts.at_version(run.id, run.version - 1)
    return await update_one(evaluator.runs, where, *_changes(run)) > 0


def _changes(run: TriggerRun) -> tuple[Update, ...]:
    """What a write of a run changes: a field that its state does not have is removed."""
    fields = dict(stored_progress(run))
    puts = tuple(Put(Field[object](key), value) for key, value in fields.items())
    return (*puts, *(Remove(Field[object](key)) for key in _CHANGING if key not in fields))


def _instants(cron: OnCron, cell: ScheduleCell, occurrence_id: str) -> tuple[Instant, ...]:
    """The pending instant that has this id, if it is one of this cron."""
    return tuple(each.seen for each in ticks(cron, cell) if each.id == occurrence_id)
