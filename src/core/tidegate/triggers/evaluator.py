"""The programs of triggers: keep what has happened, and let fire what is due, once, whoever looks.

The decisions are `tidegate.triggers.trigger`, `tidegate.retries.schedule` and `tidegate.triggers.firing`. Several
processes may evaluate at the same time, over views of different ages, and each may die anywhere.

    notice      what happened is kept as an occurrence of each condition that holds of it, of several in a transaction; beside
                what is written in a transaction of the caller's (`notice_beside`)
    evaluate    a pass: look at the crons; the store's time, THEN occurrences, THEN runs; plan; drop what nobody waits for
                any more; claim runs, register the invocation of each under the run's id, and record that: a hundred at a time
    purge       forget runs that have been over for long enough, a page at a time

Each other document is written by itself: an insert under an id that is made of what it is, or a compare-and-set on a version.
So a write that matches nothing, or has no answer, is read back and may be asked for again, for what it was to do is seen on
the document: a claim shows whose it is. Writes of several documents go in one request; where the store refuses one of them, or does
not say what became of all, each is asked for by itself, so that none keeps the others (TE7).

However many instants are due of a cron, one write moves its cell past them, and one closes those that have fired; what nobody
waits for goes a thousand at a time, and a hundred runs take eight requests. A pass whose time is over stops there, between two hundreds, and what is left is for the next one.

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
    TE11 A purge forgets a run only once it has been over for as long as runs are kept, where nothing waits that it is of, and
         it is not the last one of a trigger of all conditions.
    TE12 At rest all conditions that hold of what is reported have noticed it, or none has; all, where it is said to be kept.

Known not to work
    - Where somebody dies as what several conditions hold of is about to be committed, the store ends that after its time (MongoDB
      after 60 s): who reports the same again until then is told that it is not kept, if its attempts are over before.
    - A pass reads all that waits, and all runs of triggers of all conditions, so it takes as long as they are many.
    - A run that the store refuses to record, since all its occurrences together are larger than a document may be, is
      given up at once. One that is recorded, and leaves no room for the reason of its failure, is named by each pass.
    - A claim that expires before its hundred is through, for the store is slow, is taken by the next pass, and its invocation is
      registered under the same id.
    - What a run that cannot be read has used up waits until somebody has mended it, or deleted it.
    - Whoever purges runs while another evaluator still holds a view from before lets it fire again: keep runs for longer
      than a process may stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.admission import Call, Rule
from tidegate.invocations.jobs import Job
from tidegate.model.documents import (
    ID,
    AnyOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    In,
    OlderThan,
    Value,
    cursor,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    Indexes,
    StoreTime,
    check_collection,
    delete_many,
    find_all,
    find_one,
    insert_one,
)
from tidegate.model.programs import find_every, insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.retries.backoff import Policy, check_delay
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.resending import Done, NotDone
from tidegate.retries.schedule import NextAfter
from tidegate.transactions.transacting import in_transaction
from tidegate.triggers._cron_cells import Cells, CronCells
from tidegate.triggers._documents import Skipped, by_ids, readable, skipped_for, write_all
from tidegate.triggers._starting import RunStarter, change_of
from tidegate.triggers.conditions import Condition, OnCron
from tidegate.triggers.contexts import Context
from tidegate.triggers.definitions import definition_of, spared
from tidegate.triggers.firing import HISTORY, Claims, Plan, TriggerRun, plan
from tidegate.triggers.trigger import Occurrence, Trigger, conditions_of, noticed
from tidegate.triggers.trigger_documents import (
    AT,
    FAILED,
    HELD,
    NUMBER,
    OF,
    STATE,
    TRIGGER,
    call_of,
    loaded_occurrence,
    loaded_run,
    stored_occurrence,
)

__all__ = ["ATTEMPTS", "Evaluator", "MakeJob", "Noted", "Skipped", "TriggerPass", "plain_call", "plain_job"]

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


_ALL_OF: Final = Field[tuple[str, ...]](OF.name)
_OLDEST: Final = (Ascending(AT),)
"""Runs that are over, those first that are so for the longest."""


@final
@attrs.frozen
class TriggerPass:
    """What a pass came to.

    Attributes:
        is_whole: Each question had an answer, and there was time for all; if not, what is left is for the next pass.
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
        keep: For how long a run is kept once it is over, in microseconds.
        batch: How many runs a purge looks at, at a time.
        attempts: How often each write is tried; None for any number.
        pauses: How long it waits in between.
        failed: Is given each run that could not be started, as it was claimed, and why, BEFORE that is written; None for nobody.
        cron_cells: The cells of its crons.
        starter: Makes runs happen.
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
    keep: Duration = HISTORY.age
    batch: int = FOUND_MAX
    attempts: int | None = ATTEMPTS
    pauses: Pauses = PAUSES
    failed: Callable[[TriggerRun, tuple[str, ...]], None] | None = attrs.field(default=None, repr=False)
    cron_cells: CronCells = attrs.field(init=False, repr=False, eq=False)
    starter: RunStarter = attrs.field(init=False, repr=False, eq=False)

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
        check_delay(self.keep, "how long runs are kept, in microseconds", 0)
        check_int(self.batch, "a number of runs", 1, FOUND_MAX)
        check_attempts(self.attempts, self.pauses)
        if self.failed is not None:
            check_callable(self.failed, "what is given each run that could not be started")
        object.__setattr__(self, "cron_cells", CronCells(self.crons, self.next_after, self.cells))
        starter = RunStarter(
            triggers=self.triggers,
            make_job=self.make_job,
            make_call=self.make_call,
            rules=self.rules,
            runs=self.runs,
            invocations=self.invocations,
            places=self.places,
            calls=self.calls,
            claims=self.claims,
            attempts=self.attempts,
            pauses=self.pauses,
            failed=self.failed,
        )
        object.__setattr__(self, "starter", starter)

    @property
    def indexes(self) -> Indexes:
        """What a pass needs: of runs it reads those that are not settled, those of what waits, and those of some triggers.

        And a purge: those that have been over for the longest, and the last one of a trigger.
        """
        by_trigger = Index((Ascending(TRIGGER), Descending(NUMBER)))
        return {
            self.runs: (Index((Ascending(STATE),)), Index((Ascending(OF),)), by_trigger, Index(_OLDEST, Exists(AT)))
        }

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Each condition that a trigger waits for, once."""
        return conditions_of(self.triggers)

    @property
    def crons(self) -> tuple[OnCron, ...]:
        """Those of them that are crons."""
        return tuple(each for each in self.conditions if isinstance(each, OnCron))

    # --- notice ---

    async def notice(self, context: Context, by: str) -> Noted:
        """Keep what has happened, for all conditions that hold of it, or for none.

        Args:
            context: What has happened.
            by: The id of this report; no other has it, or has had.

        Raises:
            Refused: The store said no, definitely: what happened is too large for a document, for one.
        """
        check_name(by, "a report")
        unknown: tuple[tuple[str, str], ...] = ()
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                found = noticed(self.conditions, context, await StoreTime())
                unknown = found.unknown
                is_kept = await _keep(self, found.occurrences, by)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            return Noted(is_kept=is_kept, unknown=unknown)
        return Noted(is_kept=False, unknown=unknown)

    async def notice_beside(self, context: Context) -> Noted:
        """The same in a transaction of the caller's: nothing is asked again, for that is up to whoever runs the transaction.

        Raises:
            Failure: Whatever happens.
        """
        found = noticed(self.conditions, context, await StoreTime())
        await _add_missing(self, found.occurrences)
        return Noted(is_kept=True, unknown=found.unknown)

    # --- evaluate ---

    async def evaluate(self, by: str, until: Instant | None = None) -> TriggerPass:
        """One pass. What it does not reach, because there is no answer or others are faster, is left to the next one.

        Args:
            by: The id of this pass; no other has it.
            until: When its time is over, by the store's clock: of what there is to fire it begins no more then, but for the
                first runs. None for never.

        Raises:
            Refused: The store said no, definitely, to the questions that all depends on.
        """
        check_name(by, "a pass")
        check_type(until, (Instant, NoneType), "an instant")
        skipped: tuple[Skipped, ...] = ()
        # What is said of one must not keep the others: a refusal, a document that cannot be read.
        try:
            skipped += await self.cron_cells.look()
            made, cells, unreadable = await self._planned()
            skipped += unreadable
            skipped += (await write_all(tuple([(run.id, change_of(self.runs, run)) for run in made.given_up])))[1]
            skipped += await self._drop(made.dropped, cells)
            for number, some in enumerate(self.starter.together(made.firings)):
                if number and until is not None and await StoreTime() - until >= 0:
                    return TriggerPass(is_whole=False, skipped=skipped)
                try:
                    skipped += await self.starter.start(some, by)
                except (Refused, Misuse):
                    skipped += await self.starter.start_apart(some, by)
        except (Ambiguous, NotApplied, NotDurable):
            return TriggerPass(is_whole=False, skipped=skipped)
        return TriggerPass(is_whole=True, skipped=skipped)

    async def _planned(self) -> tuple[Plan, Cells, tuple[Skipped, ...]]:
        # In this order (`firing`): what is seen after the time was read is not taken for too old, and of an occurrence
        # that was read its runs are read later, those made meanwhile included.
        now = await StoreTime()
        found = await find_every(self.occurrences)
        occurrences, unread = readable(loaded_occurrence, found)
        cells, _ = await self.cron_cells.read()  # whoever looked has named those that cannot be read
        occurrences += self.cron_cells.ticks(cells)
        of = tuple([each.id for each in occurrences])
        stored = await find_every(self.runs, self._wanted(of[:FOUND_MAX]))
        for start in range(FOUND_MAX, len(of), FOUND_MAX):
            more = await find_every(self.runs, In(OF, of[start : start + FOUND_MAX]))
            stored += more
        runs, spoiled = readable(loaded_run, stored)
        # What a run has used up that cannot be read must not fire again.
        used = _used(spoiled, stored)
        # What others wait for is read last: whoever has declared it since was there before what it waits for was noticed.
        known = frozenset([each.id for each in self.triggers])
        definitions = await find_every(self.definitions)
        read, unknown = readable(definition_of, definitions)
        others = tuple([each for each in read if each.id not in known])
        made = plan(self.triggers, _unused(occurrences, used), runs, now)
        return spared(made, others, occurrences), cells, (*unread, *spoiled, *unknown)

    def _wanted(self, of: tuple[str, ...]) -> Filter:
        """The runs that a plan is made from."""
        joins = tuple(trigger.id for trigger in self.triggers if trigger.joins)
        return AnyOf((In(STATE, (HELD, FAILED)), In(OF, of), In(TRIGGER, joins)))

    # --- drop, purge ---

    async def _drop(self, dropped: tuple[str, ...], cells: Cells) -> tuple[Skipped, ...]:
        """Forget occurrences, and close instants of crons; where a cell has moved since the plan, the next pass does."""
        _, skipped = await write_all(self.cron_cells.closing(frozenset(dropped), cells))
        instants = frozenset([each.id for each in self.cron_cells.ticks(cells)])
        keys = tuple([each for each in dropped if each not in instants])
        for start in range(0, len(keys), FOUND_MAX):
            some = keys[start : start + FOUND_MAX]
            try:
                await delete_many(self.occurrences, In(ID, some))
            except Refused as trouble:
                skipped += tuple([skipped_for(key, trouble) for key in some])
        return skipped

    async def purge(self, until: Instant | None = None) -> bool:
        """Forget runs that have been over for as long as they are kept, the longest first.

        Args:
            until: When its time is over, by the store's clock: it begins no more pages then, but for the first. None for never.

        Returns:
            Whether it came to the end; if not, there is more, or nobody answered: go on at the next purge.

        Raises:
            Refused: The store refuses for good.
        """
        check_type(until, (Instant, NoneType), "an instant")
        after: tuple[Value, ...] = ()
        try:
            while True:
                found = await find_all(
                    self.runs,
                    Exists(AT),
                    OlderThan(AT, self.keep),
                    limit=self.batch,
                    after=after,
                    fields=(AT, NUMBER, OF, TRIGGER),
                    sort=_OLDEST,
                )
                await _forget(self, found)
                if len(found) < self.batch:
                    return True
                if until is not None and await StoreTime() - until >= 0:
                    return False
                after = cursor(found[-1], _OLDEST)
        except (Ambiguous, NotApplied, NotDurable):
            return False


# --- what it is made of -------------------------------------------------------------------------------------------------


async def _keep(evaluator: Evaluator, occurrences: tuple[Occurrence, ...], by: str) -> bool:
    """Insert the occurrences of one happening, all of them or none, several in a transaction of that name.

    Returns:
        Whether they are known to be there.
    """
    if len(occurrences) < 2:
        for each in occurrences:
            await insert_new(evaluator.occurrences, stored_occurrence(each))
        return True
    pauses = evaluator.pauses
    policy = Policy(
        backoff=pauses.delays,
        attempts_max=evaluator.attempts,
        elapsed_max=pauses.elapsed_max,
        jitter_ppm=pauses.jitter_ppm,
    )
    sent = await in_transaction(by, lambda: _add_missing(evaluator, occurrences), policy)
    if isinstance(sent, NotDone) and isinstance(sent.failure, Refused):
        raise sent.failure.fresh()
    return isinstance(sent, Done)


async def _add_missing(evaluator: Evaluator, occurrences: tuple[Occurrence, ...]) -> None:
    """Insert those that are not there: in a transaction, which a duplicate key would end."""
    found = await by_ids(evaluator.occurrences, tuple([each.id for each in occurrences]), ())
    there = frozenset([needed(each, ID) for each in found])
    for each in occurrences:
        if each.id not in there:
            await insert_one(evaluator.occurrences, stored_occurrence(each))


async def _forget(evaluator: Evaluator, found: tuple[Document, ...]) -> None:
    """Of runs that are over for long enough those that are needed no more: what has changed since it was read is over since then."""
    runs, _ = readable(_numbered, found)
    waiting = await _waiting(evaluator, tuple(dict.fromkeys([each for *_, of in runs for each in of])))
    last = await _last(evaluator, tuple(dict.fromkeys([trigger for _, trigger, number, _ in runs if number])))
    going = tuple([key for key, _, _, of in runs if key not in last and waiting.isdisjoint(of)])
    if going:
        await delete_many(evaluator.runs, In(ID, going), OlderThan(AT, evaluator.keep))


def _numbered(doc: Document) -> tuple[str, str, int, tuple[str, ...]]:
    """The id of a run, its trigger, its number, and the ids of the occurrences that it is of."""
    of = needed(doc, _ALL_OF)
    check_tuple(of, str, "an occurrence")
    return needed(doc, ID), needed(doc, TRIGGER), needed(doc, NUMBER), of


async def _waiting(evaluator: Evaluator, of: tuple[str, ...]) -> frozenset[str]:
    """Those of these occurrences that are still there, and all pending instants of crons."""
    stored = await by_ids(evaluator.occurrences, of, ())
    pending = await evaluator.cron_cells.pending()
    return frozenset([*[needed(each, ID) for each in stored], *[each.id for each in pending]])


async def _last(evaluator: Evaluator, triggers: tuple[str, ...]) -> frozenset[str]:
    """The runs of these triggers that have the highest numbers."""
    found: tuple[str, ...] = ()
    for trigger in triggers:
        run = await find_one(evaluator.runs, Eq(TRIGGER, trigger), fields=(NUMBER,), sort=(Descending(NUMBER),))
        found = found if run is None else (*found, needed(run, ID))
    return frozenset(found)


def _unused(occurrences: tuple[Occurrence, ...], used: frozenset[object]) -> tuple[Occurrence, ...]:
    return tuple(each for each in occurrences if each.id not in used)


def _used(spoiled: Collection[Skipped], runs: Collection[Document]) -> frozenset[object]:
    """What runs that cannot be read have used up, as far as they say."""
    keys = {each.key for each in spoiled}
    held = (run.held(OF) for run in runs if run.held(ID) in keys)
    return frozenset(each for of in held if isinstance(of, tuple) for each in of)
