"""The programs of triggers: keep what has happened, and let fire what is due, once, whoever looks.

The decisions are `tidegate.triggers.trigger`, `tidegate.retries.schedule` and `tidegate.triggers.firing`. Several
processes may evaluate at the same time, over views of different ages, and each may die anywhere.

    notice      what happened is kept as an occurrence of each condition that holds of it; beside what is written in a
                transaction of the caller's (`notice_beside`)
    evaluate    a pass: look at the crons; the store's time, THEN occurrences, THEN runs; plan; claim each run, register
                its invocation under the run's id, and record that; drop what nobody waits for any more
    purge       forget runs that are over

Each write is of one document: an insert under an id that is made of what it is, or a compare-and-set on a version. So a
write that matches nothing, or has no answer, is read back and may be asked for again, for what it was to do is seen on the
document: a claim shows whose it is.

A run becomes an invocation as every call does (`tidegate.invocations.registration`), by the rule of its task for
registration: it is picked up and recovered like others, and where the rule says so it is answered by one that is
registered already.

Laws, over what is stored:
    TE1  No occurrence has two invocations of one trigger.
    TE2  Each occurrence waits, or has fired, or was given up, for each trigger of its condition; at rest none waits.
    TE3  While the claim of a run lasts, no other pass claims it.
    TE4  An instant of a cron is noticed at most once, and at rest none before the last look was missed out.
    TE5  The runs of a trigger of all conditions are numbered without a gap.
    TE6  A run that says that it has fired has its invocation, of the same occurrences, or one answered for it that was
         registered for the same by the rule of its task.
    TE7  A pass does what there is to do, however much there is and whatever becomes of the rest; what it can do nothing
         for (a document that cannot be read, what the store refuses, a cron whose port fails) it names, with the reason,
         or gives up, on record.
    TE8  Whoever reports what happened learns of each condition that could not be decided.
    TE9  What a trigger waits for that this process does not know, but another version of the application, stays as it is.
    TE10 What is reported in a transaction is kept exactly if what else was written in it is.

Known not to work
    - A pass reads all that waits, and all runs of triggers of all conditions, so it takes as long as they are many.
    - A run that the store refuses to record, since all its occurrences together are larger than a document may be, is
      given up at once. One that is recorded, and leaves no room for the reason of its failure, is named by each pass.
    - What a run that cannot be read has used up waits until somebody has mended it, or deleted it.
    - Whoever purges runs while another evaluator still holds a view from before lets it fire again: keep runs for longer
      than a process may stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.invocations.admission import Call, Rule
from tidegate.invocations.jobs import Job
from tidegate.invocations.registration import NotRegistered, Registrar
from tidegate.model.documents import (
    ID,
    AllOf,
    AnyOf,
    Ascending,
    Document,
    Eq,
    Field,
    Filter,
    In,
    Put,
    Remove,
    Update,
    Value,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Program, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    Indexes,
    StoreTime,
    check_collection,
    delete_one,
    find_one,
    insert_one,
    update_one,
)
from tidegate.model.programs import find_every, insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_name, check_tuple, check_type
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.schedule import (
    Broken,
    Due,
    FirstSeen,
    Look,
    Never,
    NextAfter,
    Schedule,
    ScheduleCell,
    TooLate,
    closed,
    look,
)
from tidegate.services.retention import Retention
from tidegate.triggers.conditions import Condition, OnCron, condition_id
from tidegate.triggers.contexts import Context
from tidegate.triggers.definitions import Definition, definition_of, spared
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
    set_aside,
)
from tidegate.triggers.noticing import whole
from tidegate.triggers.trigger import (
    NotProvided,
    Occurrence,
    Static,
    Trigger,
    conditions_of,
    noticed,
    provided,
    ticks,
)
from tidegate.triggers.trigger_documents import (
    FAILED,
    HELD,
    OF,
    STATE,
    TRIGGER,
    VERSION,
    call_of,
    loaded_cell,
    loaded_occurrence,
    loaded_run,
    origin_of,
    stored_cell,
    stored_occurrence,
    stored_progress,
    stored_run,
)

__all__ = [
    "ATTEMPTS",
    "PARTS",
    "Evaluator",
    "EvaluatorParts",
    "MakeJob",
    "Noted",
    "Skipped",
    "TriggerPass",
    "plain_call",
    "plain_job",
]

T = TypeVar("T")

ATTEMPTS: Final = 8
"""How often a write is tried before it is left to the next pass."""

MakeJob: TypeAlias = Callable[[str, Document], Job]
"""What a call becomes, given the task and the arguments that a provider made: where it waits, and how they are written. It may
raise, where they are none of the task's: then the run has failed, with the reason."""


def plain_job(task: str, arguments: Document) -> Job:
    """The call in the default queue, its arguments in plain JSON.

    Raises:
        Misuse: An argument is of the wrong type, or the task is not named.
    """
    return Job(task=task, arguments=Document(call_of(task, arguments).arguments))


def plain_call(job: Job) -> Call:
    """The call that a job was made of: calls agree where the texts of their arguments do.

    Raises:
        Misuse: It is not a job.
    """
    check_type(job, Job, "a job")
    return Call(job.task, tuple((name, str(text)) for name, text in job.arguments.items))


_CHANGING: Final = ("by", "until", "reasons", "at")
"""The fields of a run that not every state has."""


@final
@attrs.frozen
class Skipped:
    """What a pass could do nothing for.

    Attributes:
        key: The id of a document, of the condition of a cron, or of a run.
        reason: Why, in one line.
    """

    key: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r} was skipped: {self.reason}"


@final
@attrs.frozen
class TriggerPass:
    """What a pass came to.

    Attributes:
        is_whole: Each question had an answer; if not, what is left is for the next pass.
        skipped: What it could do nothing for; the next pass will not either, unless somebody mends it.
    """

    is_whole: bool
    skipped: tuple[Skipped, ...] = ()


@final
@attrs.frozen
class Noted:
    """What came of what was reported.

    Attributes:
        is_kept: It is known to be kept. If not, notice it again: that changes nothing.
        unknown: The ids of conditions that could not be decided, and why: a filter of the user's raised, for one.
    """

    is_kept: bool
    unknown: tuple[tuple[str, str], ...] = ()


@final
@attrs.frozen(kw_only=True)
class Evaluator:
    """Whoever evaluates triggers.

    Attributes:
        triggers: All that are registered, as they were read.
        next_after: Answers the next instant of a cron.
        make_job: What a call becomes.
        make_call: What calls of a task with a rule are compared by.
        rules: Tasks, and the rule of each for registration; others have none.
        occurrences, cells, runs, definitions, invocations, places, calls: The collections.
        claims: How runs are claimed.
        keep: How long and how many runs are kept.
        attempts: How often each write is tried; None for any number.
        pauses: How long it waits in between.
        parts: What it is made of; faulty variants have others.
    """

    triggers: tuple[Trigger, ...]
    next_after: NextAfter = attrs.field(eq=id)
    make_job: MakeJob = attrs.field(default=plain_job, eq=id)
    make_call: Callable[[Job], Call] = attrs.field(default=plain_call, eq=id)
    rules: tuple[tuple[str, Rule], ...] = ()
    occurrences: str = "occurrences"
    cells: str = "crons"
    runs: str = "runs"
    definitions: str = "triggers"
    invocations: str = "invocations"
    places: str = "places"
    calls: str = "calls"
    claims: Claims = attrs.field(factory=Claims)
    keep: Retention = HISTORY
    attempts: int | None = ATTEMPTS
    pauses: Pauses = PAUSES
    parts: EvaluatorParts = attrs.field(factory=lambda: PARTS, repr=False)

    def __attrs_post_init__(self) -> None:
        check_tuple(self.triggers, Trigger, "a trigger")
        _ = conditions_of(self.triggers)
        check_callable(self.next_after, "a port that answers the next instant")
        check_callable(self.make_job, "what a call becomes")
        check_callable(self.make_call, "what calls are compared by")
        check_tuple(self.rules, tuple, "a task and its rule")
        for pair in self.rules:
            if len(pair) != 2:
                raise Misuse("a rule is not of one task", todo="pairs of a task's name and its Rule")
            check_name(pair[0], "a task")
            check_type(pair[1], Rule, "a rule")
        if len({task for task, _ in self.rules}) != len(self.rules):
            raise Misuse("a task has two rules", todo="give it one")
        for name in (
            self.occurrences,
            self.cells,
            self.runs,
            self.definitions,
            self.invocations,
            self.places,
            self.calls,
        ):
            check_collection(name)
        check_type(self.claims, Claims, "how runs are claimed")
        check_type(self.keep, Retention, "how long runs are kept")
        check_attempts(self.attempts, self.pauses)
        check_type(self.parts, EvaluatorParts, "the parts of an evaluator")

    @property
    def indexes(self) -> Indexes:
        """What a pass needs: of runs it reads those that are not settled, those of what waits, and those of some triggers."""
        return {self.runs: tuple(Index((Ascending(field),)) for field in (STATE, OF, TRIGGER))}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Each condition that a trigger waits for, once."""
        return conditions_of(self.triggers)

    @property
    def crons(self) -> tuple[OnCron, ...]:
        """Those of them that are crons."""
        return tuple(each for each in self.conditions if isinstance(each, OnCron))

    # --- notice ---

    async def notice(self, context: Context) -> Noted:
        """Keep what has happened, for each condition that holds of it.

        Raises:
            Refused: The store said no, definitely: what happened is too large for a document, for one.
        """
        unknown: tuple[tuple[str, str], ...] = ()
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                seen = await StoreTime()
                found = noticed(self.conditions, context, seen)
                unknown = found.unknown
                for each in found.occurrences:
                    await insert_new(self.occurrences, stored_occurrence(each))
            except (Ambiguous, NotApplied, NotDurable):
                continue
            return Noted(is_kept=True, unknown=unknown)
        return Noted(is_kept=False, unknown=unknown)

    async def notice_beside(self, context: Context) -> Noted:
        """The same in a transaction of the caller's: what is there is looked for first, since a duplicate key would end it, and nothing is
        asked again, for that is up to whoever runs the transaction.

        Raises:
            Failure: Whatever happens.
        """
        found = noticed(self.conditions, context, await StoreTime())
        for each in found.occurrences:
            doc = stored_occurrence(each)
            if await find_one(self.occurrences, Eq(ID, doc[ID]), fields=(ID,)) is None:
                await insert_one(self.occurrences, doc)
        return Noted(is_kept=True, unknown=found.unknown)

    # --- evaluate ---

    async def evaluate(self, by: str) -> TriggerPass:
        """One pass. What it does not reach, because there is no answer or others are faster, is left to the next one.

        Args:
            by: The id of this pass; no other has it.

        Raises:
            Refused: The store said no, definitely, to the questions that all depends on.
        """
        check_name(by, "a pass")
        skipped: tuple[Skipped, ...] = ()
        # What is said of one must not keep the others: a refusal, a document that cannot be read.
        try:
            for cron in self.crons:
                try:
                    skipped += await self._look(cron)
                except (Refused, Misuse) as trouble:
                    skipped += (_skipped(condition_id(cron), trouble),)
            made, unreadable = await self._planned()
            skipped += unreadable
            for run in made.given_up:
                try:
                    await _changed(self, run)
                except Refused as trouble:
                    skipped += (_skipped(run.id, trouble),)
            for each in made.firings:
                try:
                    await self._fire(each, by)
                except (Refused, Misuse) as trouble:
                    skipped += (_skipped(each.id, trouble),)
            for dropped in made.dropped:
                try:
                    await self._drop(dropped)
                except Refused as trouble:
                    skipped += (_skipped(dropped, trouble),)
        except (Ambiguous, NotApplied, NotDurable):
            return TriggerPass(is_whole=False, skipped=skipped)
        return TriggerPass(is_whole=True, skipped=skipped)

    async def _look(self, cron: OnCron) -> tuple[Skipped, ...]:
        """Move the cell of a cron on, as long as something is due."""
        name = condition_id(cron)
        while True:
            now = await StoreTime()
            found = await find_one(self.cells, Eq(ID, name))
            cell = None if found is None else loaded_cell(found)
            match self.parts.look(cron.schedule, self.next_after, cell, now):
                case FirstSeen(first):
                    await insert_new(self.cells, stored_cell(name, first))
                    return ()
                case Due(_, after) | TooLate(_, after):
                    written = await self._moved(name, after)
                    if not written:
                        return ()  # somebody else looks
                case Broken(reason):
                    return (Skipped(name, reason),)
                case Never():
                    return (Skipped(name, f"the cron {cron.schedule} names no instant any more"),)
                case _:
                    return ()

    async def _moved(self, name: str, after: ScheduleCell) -> bool:
        doc = stored_cell(name, after)
        puts = tuple(Put(Field[object](key), value) for key, value in doc.without(ID).items)
        return await update_one(self.cells, self.parts.at_version(name, after.version - 1), *puts) > 0

    async def _planned(self) -> tuple[Plan, tuple[Skipped, ...]]:
        # In this order (`firing`): what is seen after the time was read is not taken for too old, and of an occurrence
        # that was read its runs are read later, those made meanwhile included.
        now = await StoreTime()
        found = await find_every(self.occurrences)
        occurrences, unread = _readable(loaded_occurrence, found)
        for cron in self.crons:
            cell = await find_one(self.cells, Eq(ID, condition_id(cron)))
            if cell is not None:
                occurrences += _ticks(cron, cell)
        of = tuple([each.id for each in occurrences])
        stored = await find_every(self.runs, self._wanted(of[:FOUND_MAX]))
        for start in range(FOUND_MAX, len(of), FOUND_MAX):
            more = await find_every(self.runs, In(OF, of[start : start + FOUND_MAX]))
            stored += more
        runs, spoiled = _readable(loaded_run, stored)
        # What a run has used up that cannot be read must not fire again.
        used = _used(spoiled, stored)
        # What others wait for is read last: whoever has declared it since was there before what it waits for was noticed.
        known = frozenset([each.id for each in self.triggers])
        definitions = await find_every(self.definitions)
        read, unknown = _readable(definition_of, definitions)
        others = tuple([each for each in read if each.id not in known])
        made = self.parts.plan(self.triggers, _unused(occurrences, used), runs, now)
        return self.parts.spare(made, others, occurrences), (*unread, *spoiled, *unknown)

    def _wanted(self, of: tuple[str, ...]) -> Filter:
        """The runs that a plan is made from."""
        joins = tuple(trigger.id for trigger in self.triggers if trigger.joins)
        return AnyOf((In(STATE, (HELD, FAILED)), In(OF, of), In(TRIGGER, joins)))

    # --- fire ---

    async def _fire(self, wanted: Firing, by: str) -> None:
        """Make one run happen: claim it, register its invocation, say so."""
        run = await self._claimed(wanted, by)
        if run is None:
            return
        trigger = next(each for each in self.triggers if each.id == run.firing.trigger_id)
        contexts: tuple[Context, ...] = ()
        try:
            for each in run.firing.occurrences:
                contexts = (
                    *contexts,
                    each.context if isinstance(trigger.provider, Static) else await whole(each.context),
                )
        except Refused as refused:
            await self.parts.settle(self, run, (f"what was uploaded cannot be read: {refused.reason}",))
            return
        answer = provided(trigger.provider, contexts)
        job = answer if isinstance(answer, NotProvided) else _job(self.make_job, trigger.task, answer.arguments)
        if isinstance(job, NotProvided):
            await self.parts.settle(self, run, job.reasons)
            return
        # First the invocation: after a crash in between, the next claim of the run registers the same one again.
        reasons: tuple[str, ...] = ()
        try:
            is_there = await self.parts.invoke(self, run, job)
            if not is_there:
                return  # nobody knows: its claim expires
        except Refused as refused:
            reasons = (refused.reason,)
        await self.parts.settle(self, run, reasons)

    async def _claimed(self, wanted: Firing, by: str) -> TriggerRun | None:
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
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
                if verdict.run == run or await self._written(verdict.run, run, now):
                    return verdict.run
            except (Ambiguous, NotApplied, NotDurable):
                continue  # a claim of ours is known by its pass
        return None

    async def _written(self, run: TriggerRun, before: TriggerRun | None, now: Instant) -> bool:
        return await (self.parts.record(self, run, now) if before is None else _changed(self, run))

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
            cells, _ = _readable(loaded_cell, (found,))
            for cell in cells:
                after = closed(cell, _instants(cron, cell, occurrence_id))
                if after != cell:
                    await self._moved(name, after)

    async def purge(self) -> None:
        """Forget runs that are over, as `keep` says."""
        try:
            now = await StoreTime()
            found = await find_every(self.occurrences)
            waiting, _ = _readable(loaded_occurrence, found)
            stored = await find_every(self.runs)
            runs, _ = _readable(loaded_run, stored)
            what = purge({}, runs, waiting, now=now, keep_runs=self.keep)
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


async def _record(evaluator: Evaluator, run: TriggerRun, now: Instant) -> bool:
    try:
        return await insert_new(evaluator.runs, stored_run(run))
    except Refused as refused:
        reason = refused.reason
    await insert_new(evaluator.runs, stored_run(set_aside(run, reason, now)))
    return False


def _job(make_job: MakeJob, task: str, arguments: Document) -> Job | NotProvided:
    try:
        return make_job(task, arguments)
    except Misuse as misuse:
        return NotProvided((misuse.what,))
    except Exception as error:  # noqa: BLE001  the user's types must not stop the triggers of others
        return NotProvided((f"what makes the call of {task!r} raised {type(error).__name__}",))


async def _invoke(evaluator: Evaluator, run: TriggerRun, job: Job) -> bool:
    registrar = Registrar(
        key=run.id,
        call=evaluator.make_call(job),
        rule=dict(evaluator.rules).get(job.task, Rule()),
        request=run.id,
        job=job,
        origin=origin_of(run.firing),
        records=evaluator.invocations,
        places=evaluator.places,
        calls=evaluator.calls,
        attempts=evaluator.attempts,
        pauses=evaluator.pauses,
    )
    outcome = await registrar.run()
    return not isinstance(outcome, NotRegistered)


async def _settle(evaluator: Evaluator, claimed: TriggerRun, reasons: tuple[str, ...]) -> None:
    since = await begins(evaluator.pauses)
    attempt = 0
    while True:
        if not await goes_on(evaluator.pauses, evaluator.attempts, attempt, since):
            break
        attempt += 1
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
        spare: Leaves alone what triggers wait for that this process does not know.
        claim: Whether a pass may make a run happen.
        at_version: Finds a document if it is still at that version.
        record: Inserts the record of a run, or sets aside one that is refused; False where it is not there as it was given.
        invoke: Registers the invocation of a run, under its id; False where nobody knows whether it is.
        settle: Writes what became of a run that was claimed: it has fired, or there are reasons why not.
    """

    look: Callable[[Schedule, NextAfter, ScheduleCell | None, Instant], Look] = look
    plan: Callable[[tuple[Trigger, ...], tuple[Occurrence, ...], tuple[TriggerRun, ...], Instant], Plan] = plan
    spare: Callable[[Plan, tuple[Definition, ...], tuple[Occurrence, ...]], Plan] = spared
    claim: Callable[[Firing, TriggerRun | None, Claims, str, Instant], RunClaim] = _claim
    at_version: Callable[[str, int], Filter] = _at_version
    record: Callable[[Evaluator, TriggerRun, Instant], Program[bool]] = _record
    invoke: Callable[[Evaluator, TriggerRun, Job], Program[bool]] = _invoke
    settle: Callable[[Evaluator, TriggerRun, tuple[str, ...]], Program[None]] = _settle


PARTS: Final[EvaluatorParts] = EvaluatorParts()


# --- writes -------------------------------------------------------------------------------------------------------------


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


# --- what cannot be read --------------------------------------------------------------------------------------------------


def _readable(load: Callable[[Document], T], found: Collection[Document]) -> tuple[tuple[T, ...], tuple[Skipped, ...]]:
    """What the documents hold, as far as they can be read, and those that cannot."""
    read: list[T] = []
    skipped: list[Skipped] = []
    for doc in found:
        try:
            read.append(load(doc))
        except Misuse as misuse:
            skipped.append(_skipped(needed(doc, Field[Value](ID.name)), misuse))
    return tuple(read), tuple(skipped)


def _ticks(cron: OnCron, cell: Document) -> tuple[Occurrence, ...]:
    """Its pending instants; whoever looked at the cron has named a cell that cannot be read."""
    cells, _ = _readable(loaded_cell, (cell,))
    return tuple(each for known in cells for each in ticks(cron, known))


def _unused(occurrences: tuple[Occurrence, ...], used: frozenset[object]) -> tuple[Occurrence, ...]:
    return tuple(each for each in occurrences if each.id not in used)


def _used(spoiled: Collection[Skipped], runs: Collection[Document]) -> frozenset[object]:
    """What runs that cannot be read have used up, as far as they say."""
    keys = {each.key for each in spoiled}
    held = (run.held(OF) for run in runs if run.held(ID) in keys)
    return frozenset(each for of in held if isinstance(of, tuple) for each in of)


def _skipped(key: Value, trouble: Refused | Misuse) -> Skipped:
    return Skipped(key, trouble.what if isinstance(trouble, Misuse) else trouble.reason)
