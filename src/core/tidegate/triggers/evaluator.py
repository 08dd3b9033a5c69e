"""The programs of triggers: store what happened, fire what is due once, and delete old runs.

Several processes may evaluate at the same time, over views of different ages, and each may die
anywhere.

    notice      stores an occurrence for each condition that holds of what happened; several in one
                transaction, or in the caller's transaction (`notice_beside`)
    evaluate    a pass: move the crons; read the store's time, THEN occurrences, THEN runs; plan;
                drop occurrences that no trigger waits for; claim runs, register the invocation of
                each under the run's id, and record that, a hundred at a time
    purge       deletes runs that have been over for long enough, a page at a time

Each document is written by an insert under a derived id, or a compare-and-set on a version. A write
that matched nothing or got no reply is read back and may be retried, because the document shows
whether it happened. Many documents go in one request. If the store refuses one or leaves some
unknown, the pass retries each by itself (TE7). A pass whose time is over stops between two
hundreds.

A run becomes an ordinary call (`tidegate.invocations.limits.registration`) and follows the registration
rule of its task, which may answer it with an invocation that is already registered.

Laws, over what is stored:
    TE1  No occurrence has two invocations of one trigger.
    TE2  For each trigger of its condition, an occurrence waits, has fired or was given up; at rest
         none waits.
    TE3  While the claim of a run lasts, no other pass claims it.
    TE4  An instant of a cron is noticed at most once, and at rest none before the last evaluation
         is missing.
    TE5  The runs of a trigger of all conditions are numbered without a gap.
    TE6  A fired run has an invocation of the same occurrences, or its task's rule answered it with
         one registered for the same call.
    TE7  A pass does all its work, however much there is and whatever fails. It reports, with the
         reason, what it cannot process (an unreadable document, a refusal by the store, a failing
         cron port), or gives it up on record.
    TE8  The reporter learns of each condition that could not be decided.
    TE9  What a trigger of another application version waits for stays as it is.
    TE10 A report in a transaction is kept exactly if the other writes of the transaction are.
    TE11 A purge deletes a run only if it has been over for the retention time, none of its
         occurrences waits, and it is not the last run of a trigger of all conditions.
    TE12 At rest all conditions that hold of a report have noticed it, or none has; if it was
         reported as kept, all have.

Known not to work
    - If a process dies just before it commits a report for several conditions, the store aborts
      that transaction only after its timeout (MongoDB: 60 s). A repeated report until then may use
      up its attempts and is reported as not kept.
    - A pass reads all waiting occurrences, and all runs of triggers of all conditions.
    - If the record of a run exceeds the size of a document, the run is given up at once. A recorded
      run without space for its failure reason is reported by each pass.
    - If the store is slow, a claim may expire before its hundred is done. The next pass registers
      its invocation under the same id.
    - Occurrences used by an unreadable run wait until someone repairs or deletes the run.
    - If a purge deletes runs that another evaluator's older view still needs, that evaluator fires
      them again. Keep runs longer than a process may stall.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.admission import Call, Rule
from tidegate.invocations.record.jobs import Job
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
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.backoff import Policy, check_delay
from tidegate.retries.retrying import Done, NotDone
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
"""Makes the job of a task and the provider's arguments. If it raises, the run fails with the
reason.
"""


def plain_job(task: str, arguments: Document) -> Job:
    """Return a job in the default queue, its arguments in plain JSON."""
    return Job(task=task, arguments=Document(call_of(task, arguments).arguments))


def plain_call(job: Job) -> Call:
    """Return the call of a job. Calls are the same if the texts of their arguments are."""
    check_type(job, Job, "a job")
    return Call(job.task, tuple((name, str(text)) for name, text in job.arguments.items))


_ALL_OF: Final = Field[tuple[str, ...]](OF.name)
_OLDEST: Final = (Ascending(AT),)


@final
@attrs.frozen
class TriggerPass:
    """The result of a pass.

    Attributes:
        is_whole: Every request had a reply and there was time for all; if not, the next pass
            continues.
        skipped: What no pass can process until someone repairs it.
    """

    is_whole: bool
    skipped: tuple[Skipped, ...] = ()


@final
@attrs.frozen
class Noted:
    """The result of a report. If not `is_kept`, notice it again, which is idempotent.

    `unknown` are the ids of undecided conditions, and why.
    """

    is_kept: bool
    unknown: tuple[tuple[str, str], ...] = ()


@final
@attrs.frozen(kw_only=True)
class Evaluator:
    """Evaluates triggers.

    Attributes:
        next_after: Returns the next instant of a cron.
        make_call: Returns the call by which a task's rule compares jobs.
        rules: Tasks with their registration rules; other tasks have none.
        claims: Expiry and attempts of claims.
        keep: How long a finished run is kept, in microseconds.
        batch: How many runs a purge reads at a time.
        attempts: How often each write is tried; None for no limit.
        pauses: The delays between attempts.
        failed: Called with each run that could not start and why, BEFORE that is written, or None.
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
        """The indexes that a pass and a purge need."""
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
        return tuple(each for each in self.conditions if isinstance(each, OnCron))

    # --- notice ---

    async def notice(self, context: Context, by: str) -> Noted:
        """Store what happened, for all conditions that hold of it, or for none (TE12).

        Args:
            context: What happened.
            by: The id of this report; unique for ever.

        Raises:
            Refused: The store refused, for example because the context exceeds a document.
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
        """Notice in the caller's transaction, without retries; the caller repeats the
        transaction.
        """
        found = noticed(self.conditions, context, await StoreTime())
        await _add_missing(self, found.occurrences)
        return Noted(is_kept=True, unknown=found.unknown)

    # --- evaluate ---

    async def evaluate(self, by: str, until: Instant | None = None) -> TriggerPass:
        """Run one pass; the next one continues what it does not reach.

        Args:
            by: The id of this pass; unique.
            until: By the store's clock, when it starts no more runs, except the first group. None
                for never.

        Raises:
            Refused: The store refused a read that the whole pass depends on.
        """
        check_name(by, "a pass")
        check_type(until, (Instant, NoneType), "an instant")
        skipped: tuple[Skipped, ...] = ()
        # A refusal or an unreadable document must not block the others (TE7).
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
        # Order (`firing`): an occurrence seen after the time was read is not too old. Runs are read
        # after occurrences, so that runs made in between are included.
        now = await StoreTime()
        found = await find_every(self.occurrences)
        occurrences, unread = readable(loaded_occurrence, found)
        cells, _ = await self.cron_cells.read()  # `look` has reported unreadable cells
        occurrences += self.cron_cells.ticks(cells)
        of = tuple([each.id for each in occurrences])
        stored = await find_every(self.runs, self._wanted(of[:FOUND_MAX]))
        for start in range(FOUND_MAX, len(of), FOUND_MAX):
            more = await find_every(self.runs, In(OF, of[start : start + FOUND_MAX]))
            stored += more
        runs, spoiled = readable(loaded_run, stored)
        # Occurrences of an unreadable run must not fire again.
        used = _used(spoiled, stored)
        # Definitions last: a trigger is declared before its occurrences are noticed, so this read
        # includes every trigger that waits for one of those above.
        known = frozenset([each.id for each in self.triggers])
        definitions = await find_every(self.definitions)
        read, unknown = readable(definition_of, definitions)
        others = tuple([each for each in read if each.id not in known])
        made = plan(self.triggers, _unused(occurrences, used), runs, now)
        return spared(made, others, occurrences), cells, (*unread, *spoiled, *unknown)

    def _wanted(self, of: tuple[str, ...]) -> Filter:
        joins = tuple(trigger.id for trigger in self.triggers if trigger.joins)
        return AnyOf((In(STATE, (HELD, FAILED)), In(OF, of), In(TRIGGER, joins)))

    # --- drop, purge ---

    async def _drop(self, dropped: tuple[str, ...], cells: Cells) -> tuple[Skipped, ...]:
        """Delete occurrences and close instants of crons. The next pass handles moved cells."""
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
        """Delete runs that have been over for the retention time, oldest first.

        Args:
            until: By the store's clock, when it starts no more pages, except the first. None for
                never.

        Returns:
            Whether it reached the end; if not, the next purge continues.
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


# --- what it is made of ---------------------------------------------------------------------------


async def _keep(evaluator: Evaluator, occurrences: tuple[Occurrence, ...], by: str) -> bool:
    """Insert the occurrences of one context, all or none; several in a transaction named `by`."""
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
    """Insert the missing ones only, because a duplicate key would abort the transaction."""
    found = await by_ids(evaluator.occurrences, tuple([each.id for each in occurrences]), ())
    there = frozenset([needed(each, ID) for each in found])
    for each in occurrences:
        if each.id not in there:
            await insert_one(evaluator.occurrences, stored_occurrence(each))


async def _forget(evaluator: Evaluator, found: tuple[Document, ...]) -> None:
    """Delete old runs that are not needed. The condition on AT spares those changed since."""
    runs, _ = readable(_numbered, found)
    waiting = await _waiting(evaluator, tuple(dict.fromkeys([each for *_, of in runs for each in of])))
    last = await _last(evaluator, tuple(dict.fromkeys([trigger for _, trigger, number, _ in runs if number])))
    going = tuple([key for key, _, _, of in runs if key not in last and waiting.isdisjoint(of)])
    if going:
        await delete_many(evaluator.runs, In(ID, going), OlderThan(AT, evaluator.keep))


def _numbered(doc: Document) -> tuple[str, str, int, tuple[str, ...]]:
    of = needed(doc, _ALL_OF)
    check_tuple(of, str, "an occurrence")
    return needed(doc, ID), needed(doc, TRIGGER), needed(doc, NUMBER), of


async def _waiting(evaluator: Evaluator, of: tuple[str, ...]) -> frozenset[str]:
    stored = await by_ids(evaluator.occurrences, of, ())
    pending = await evaluator.cron_cells.pending()
    return frozenset([*[needed(each, ID) for each in stored], *[each.id for each in pending]])


async def _last(evaluator: Evaluator, triggers: tuple[str, ...]) -> frozenset[str]:
    found: tuple[str, ...] = ()
    for trigger in triggers:
        run = await find_one(evaluator.runs, Eq(TRIGGER, trigger), fields=(NUMBER,), sort=(Descending(NUMBER),))
        found = found if run is None else (*found, needed(run, ID))
    return frozenset(found)


def _unused(occurrences: tuple[Occurrence, ...], used: frozenset[object]) -> tuple[Occurrence, ...]:
    return tuple(each for each in occurrences if each.id not in used)


def _used(spoiled: Collection[Skipped], runs: Collection[Document]) -> frozenset[object]:
    """Return the occurrences that unreadable runs have used, as far as they can be read."""
    keys = {each.key for each in spoiled}
    held = (run.held(OF) for run in runs if run.held(ID) in keys)
    return frozenset(each for of in held if isinstance(of, tuple) for each in of)
