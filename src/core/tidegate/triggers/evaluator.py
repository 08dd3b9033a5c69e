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
waits for goes a thousand at a time. A hundred runs take a find, the time and an insert to be claimed, an insert, the time and
an insert for their calls and invocations, and the time and a bulk to say that they have fired: eight requests. A call whose task
has a rule is registered by itself, and counts as ten; what was uploaded is read for one run at a time. That is as much as a claim
lasts for, many times over. A pass whose time is over stops there, between two hundreds, and what is left is for the next one.

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
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.invocations.admission import Call, Rule
from tidegate.invocations.enqueueing import Enqueue, NewInvocation
from tidegate.invocations.jobs import Job
from tidegate.invocations.registration import NotRegistered, Registrar
from tidegate.model.documents import (
    ID,
    AllOf,
    AnyOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    In,
    OlderThan,
    Put,
    Remove,
    Update,
    Value,
    cursor,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, check_failure
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    UPDATES_MAX,
    Index,
    Indexes,
    StoreTime,
    UpdateOne,
    bulk_update,
    check_collection,
    delete_many,
    find_all,
    find_one,
    insert_many,
    insert_one,
    update_one,
)
from tidegate.model.programs import find_every, insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.retries.backoff import Policy, check_delay
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.resending import Done, NotDone
from tidegate.retries.schedule import (
    Broken,
    Due,
    FirstSeen,
    Never,
    NextAfter,
    ScheduleCell,
    TooLate,
    closed,
    look,
)
from tidegate.transactions.transacting import in_transaction
from tidegate.triggers.conditions import Condition, OnCron, condition_id
from tidegate.triggers.contexts import Context
from tidegate.triggers.definitions import definition_of, spared
from tidegate.triggers.firing import (
    HISTORY,
    Changed,
    Claimed,
    Claims,
    Exhausted,
    Firing,
    Ignored,
    Plan,
    TriggerRun,
    claim,
    failed,
    fired,
    plan,
    set_aside,
)
from tidegate.triggers.noticing import is_whole, whole
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
    AT,
    FAILED,
    HELD,
    NUMBER,
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
    "Asked",
    "Ended",
    "Evaluator",
    "Invoked",
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

TOGETHER: Final = 100
"""How many runs are claimed, invoked and settled together, those that count as one."""
_RULED: Final = 10
"""As how many one counts whose task has a rule, for it takes five requests of its own or more."""

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


_Cells: TypeAlias = tuple[tuple[str, ScheduleCell], ...]
"""Cells of crons, by the ids of their conditions."""

Invoked: TypeAlias = tuple[tuple[str, tuple[str, ...] | None], ...]
"""Of each run, by its id, the reasons for which its invocation was refused; none where it is there, None where nobody knows."""

Asked: TypeAlias = tuple[tuple[TriggerRun, Registrar], ...]
"""Runs that are claimed, and what registers the invocation of each."""

Ended: TypeAlias = tuple[tuple[TriggerRun, tuple[str, ...]], ...]
"""Runs as they were claimed, and why each has failed; without a reason it has fired."""

_Write: TypeAlias = tuple[str, UpdateOne]
"""An update, and the id of its document."""

_ALL_OF: Final = Field[tuple[str, ...]](OF.name)
_OLDEST: Final = (Ascending(AT),)
"""Runs that are over, those first that are so for the longest."""

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
        is_whole: Each question had an answer, and there was time for all; if not, what is left is for the next pass.
        skipped: What it could do nothing for; the next pass will not either, unless somebody mends it.
    """

    is_whole: bool
    skipped: tuple[Skipped, ...] = ()


@final
@attrs.frozen
class _ClaimedRuns:
    """What this pass holds, what is to be looked at again, and what could not be claimed."""

    held: tuple[TriggerRun, ...]
    left: tuple[Firing, ...]
    skipped: tuple[Skipped, ...]


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
            skipped += await self._look()
            made, cells, unreadable = await self._planned()
            skipped += unreadable
            skipped += (await _all(tuple([(run.id, _change(self, run)) for run in made.given_up])))[1]
            skipped += await self._drop(made.dropped, cells)
            for number, some in enumerate(self._together(made.firings)):
                if number and until is not None and await StoreTime() - until >= 0:
                    return TriggerPass(is_whole=False, skipped=skipped)
                try:
                    skipped += await self._fire(some, by)
                except (Refused, Misuse):
                    skipped += await self._fire_apart(some, by)
        except (Ambiguous, NotApplied, NotDurable):
            return TriggerPass(is_whole=False, skipped=skipped)
        return TriggerPass(is_whole=True, skipped=skipped)

    async def _look(self) -> tuple[Skipped, ...]:
        """Move the cells of crons past all that is due."""
        if not self.crons:
            return ()
        now = await StoreTime()
        cells, skipped = await self._cells()
        spoiled = frozenset([each.key for each in skipped])
        moved: tuple[_Write, ...] = ()
        for cron in self.crons:
            name = condition_id(cron)
            if name in spoiled:
                continue
            before = dict(cells).get(name)
            try:
                after, reason = self._looked(cron, before, now)
                if before is None and after is not None:
                    await insert_new(self.cells, stored_cell(name, after))
            except (Refused, Misuse) as trouble:
                skipped += (_skipped(name, trouble),)
                continue
            if before is not None and after is not None and after != before:
                moved = (*moved, (name, self._move(name, before, after)))
            if reason is not None:
                skipped += (Skipped(name, reason),)
        _, refused = await _all(moved)
        return (*skipped, *refused)

    def _looked(
        self, cron: OnCron, before: ScheduleCell | None, now: Instant
    ) -> tuple[ScheduleCell | None, str | None]:
        """What becomes of its cell once all was looked at that is due by now; and why nothing more will be, if so."""
        cell = before
        while True:
            match look(cron.schedule, self.next_after, cell, now):
                case FirstSeen(first):
                    return first, None
                case Due(_, after) | TooLate(_, after):
                    cell = after
                case Broken(reason):
                    return cell, reason
                case Never():
                    return cell, f"the cron {cron.schedule} names no instant any more"
                case _:
                    return cell, None

    def _move(self, name: str, before: ScheduleCell, after: ScheduleCell) -> UpdateOne:
        """The write of a cell, in one version, however many looks it is of."""
        doc = stored_cell(name, attrs.evolve(after, version=before.version + 1))
        puts = tuple(Put(Field[object](key), value) for key, value in doc.without(ID).items)
        return update_one(self.cells, _at_version(name, before.version), *puts)

    async def _cells(self) -> tuple[_Cells, tuple[Skipped, ...]]:
        """Those of the crons, and what cannot be read."""
        found = await _by_ids(self.cells, tuple([condition_id(cron) for cron in self.crons]))
        return _readable(lambda doc: (needed(doc, Field[str](ID.name)), loaded_cell(doc)), found)

    async def _planned(self) -> tuple[Plan, _Cells, tuple[Skipped, ...]]:
        # In this order (`firing`): what is seen after the time was read is not taken for too old, and of an occurrence
        # that was read its runs are read later, those made meanwhile included.
        now = await StoreTime()
        found = await find_every(self.occurrences)
        occurrences, unread = _readable(loaded_occurrence, found)
        cells, _ = await self._cells()  # whoever looked has named those that cannot be read
        occurrences += self._ticks(cells)
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
        made = plan(self.triggers, _unused(occurrences, used), runs, now)
        return spared(made, others, occurrences), cells, (*unread, *spoiled, *unknown)

    async def pending(self) -> tuple[Occurrence, ...]:
        """The program: the instants of crons that wait."""
        cells, _ = await self._cells()
        return self._ticks(cells)

    def _ticks(self, cells: _Cells) -> tuple[Occurrence, ...]:
        """The pending instants of crons."""
        there = dict(cells)
        names = [(cron, condition_id(cron)) for cron in self.crons]
        return tuple(each for cron, name in names if name in there for each in ticks(cron, there[name]))

    def _wanted(self, of: tuple[str, ...]) -> Filter:
        """The runs that a plan is made from."""
        joins = tuple(trigger.id for trigger in self.triggers if trigger.joins)
        return AnyOf((In(STATE, (HELD, FAILED)), In(OF, of), In(TRIGGER, joins)))

    # --- fire ---

    def _together(self, firings: tuple[Firing, ...]) -> tuple[tuple[Firing, ...], ...]:
        """What is fired together, in its order."""
        triggers = {each.id: each for each in self.triggers}
        ruled = {task for task, _ in self.rules}
        made: list[list[Firing]] = []
        load = TOGETHER
        for each in firings:
            trigger = triggers[each.trigger_id]
            is_read = not isinstance(trigger.provider, Static) and not all(
                is_whole(of.context) for of in each.occurrences
            )
            more = TOGETHER if is_read else _RULED if trigger.task in ruled else 1
            if load + more > TOGETHER:
                made.append([])
                load = 0
            made[-1].append(each)
            load += more
        return tuple(map(tuple, made))

    async def _fire(self, wanted: tuple[Firing, ...], by: str) -> tuple[Skipped, ...]:
        """Make runs happen: claim them, register their invocations, say so; what it could do nothing for."""
        held, skipped = await self._claimed(wanted, by)
        asked: Asked = ()
        ended: Ended = ()
        for run in held:
            try:
                found = await self._prepared(run)
            except (Refused, Misuse) as trouble:
                skipped += (_skipped(run.id, trouble),)
                continue
            if isinstance(found, Registrar):
                asked = (*asked, (run, found))
            else:
                ended = (*ended, (run, found))
        # First the invocations: after a crash in between, the next claim of a run registers the same one again.
        answers = await _invoke(self, asked) if asked else ()
        ended = (*ended, *_known(asked, answers))
        for run, reasons in ended:
            if reasons and self.failed is not None:
                self.failed(run, reasons)
        return (*skipped, *(await _settle(self, ended) if ended else ()))

    async def _fire_apart(self, wanted: tuple[Firing, ...], by: str) -> tuple[Skipped, ...]:
        """The same where one of them has spoiled it, one by one; what was claimed is known by its pass."""
        skipped: tuple[Skipped, ...] = ()
        for each in wanted:
            try:
                skipped += await self._fire((each,), by)
            except (Refused, Misuse) as trouble:
                skipped += (_skipped(each.id, trouble),)
        return skipped

    async def _prepared(self, run: TriggerRun) -> Registrar | tuple[str, ...]:
        """What registers the invocation of a run, or why there is none."""
        trigger = next(each for each in self.triggers if each.id == run.firing.trigger_id)
        contexts: tuple[Context, ...] = ()
        try:
            for each in run.firing.occurrences:
                contexts = (
                    *contexts,
                    each.context if isinstance(trigger.provider, Static) else await whole(each.context),
                )
        except Refused as refused:
            return (f"what was uploaded cannot be read: {refused.reason}",)
        answer = provided(trigger.provider, contexts)
        made = answer if isinstance(answer, NotProvided) else _made(self, trigger.task, answer.arguments)
        if isinstance(made, NotProvided):
            return made.reasons
        job, call = made
        return Registrar(
            key=run.id,
            call=call,
            rule=dict(self.rules).get(job.task, Rule()),
            request=run.id,
            job=job,
            origin=origin_of(run.firing),
            records=self.invocations,
            places=self.places,
            calls=self.calls,
            attempts=self.attempts,
            pauses=self.pauses,
        )

    async def _claimed(self, wanted: tuple[Firing, ...], by: str) -> tuple[tuple[TriggerRun, ...], tuple[Skipped, ...]]:
        """Those that are this pass's to make happen, and what could not be claimed; what is others', or over, is left."""
        held: tuple[TriggerRun, ...] = ()
        skipped: tuple[Skipped, ...] = ()
        left = wanted
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not left or not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                claimed = await self._claim(left, by)
            except (Ambiguous, NotApplied, NotDurable):
                continue  # a claim of ours is known by its pass
            held, left, skipped = (*held, *claimed.held), claimed.left, (*skipped, *claimed.skipped)
        return held, skipped

    async def _claim(self, wanted: tuple[Firing, ...], by: str) -> _ClaimedRuns:
        found = await _by_ids(self.runs, tuple([each.id for each in wanted]))
        now = await StoreTime()
        read, skipped = _readable(loaded_run, found)
        mine, new, changed = self._judged(wanted, read, skipped, by, now)
        recorded, refused = await _record(self, new, now) if new else ((), ())
        matched, also = await _all(tuple([(run.id, _change(self, run)) for run in changed]))
        written = (*(run for run in new if run.id in recorded), *(changed if matched == len(changed) else ()))
        skipped = (*skipped, *refused, *also)
        over = {run.id for run in written}.union(each.key for each in skipped)
        asked = {run.id for run in (*new, *changed)} - over
        held = (*mine, *(run for run in written if not run.state.settled))
        return _ClaimedRuns(held, tuple(each for each in wanted if each.id in asked), skipped)

    def _judged(
        self,
        wanted: tuple[Firing, ...],
        read: tuple[TriggerRun, ...],
        spoiled: tuple[Skipped, ...],
        by: str,
        now: Instant,
    ) -> tuple[tuple[TriggerRun, ...], ...]:
        """The runs that this pass holds already; what is to be inserted; and what is to be written, claimed or given up."""
        known = {run.id: run for run in read}
        unread = {each.key for each in spoiled}
        verdicts = [
            claim(each, known.get(each.id), self.claims, by=by, now=now) for each in wanted if each.id not in unread
        ]
        runs = [each.run for each in verdicts if isinstance(each, (Claimed, Exhausted))]
        return (
            tuple(run for run in runs if run == known.get(run.id)),
            tuple(run for run in runs if run.id not in known),
            tuple(run for run in runs if run.id in known and run != known[run.id]),
        )

    # --- drop, purge ---

    async def _drop(self, dropped: tuple[str, ...], cells: _Cells) -> tuple[Skipped, ...]:
        """Forget occurrences, and close instants of crons; where a cell has moved since the plan, the next pass does."""
        _, skipped = await _all(self._closing(frozenset(dropped), cells))
        instants = frozenset([each.id for each in self._ticks(cells)])
        keys = tuple([each for each in dropped if each not in instants])
        for start in range(0, len(keys), FOUND_MAX):
            some = keys[start : start + FOUND_MAX]
            try:
                await delete_many(self.occurrences, In(ID, some))
            except Refused as trouble:
                skipped += tuple([_skipped(key, trouble) for key in some])
        return skipped

    def _closing(self, dropped: frozenset[str], cells: _Cells) -> tuple[_Write, ...]:
        """The writes of cells that have such instants."""
        found: list[_Write] = []
        for name, cell in cells:
            after = closed(cell, [each.seen for each in self._ticks(((name, cell),)) if each.id in dropped])
            if after != cell:
                found.append((name, self._move(name, cell, after)))
        return tuple(found)

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
    found = await _by_ids(evaluator.occurrences, tuple([each.id for each in occurrences]), ())
    there = frozenset([needed(each, ID) for each in found])
    for each in occurrences:
        if each.id not in there:
            await insert_one(evaluator.occurrences, stored_occurrence(each))


def _at_version(key: str, version: int) -> Filter:
    """Find a document if it is still at that version."""
    return AllOf((Eq(ID, key), Eq(VERSION, version)))


async def _record(
    evaluator: Evaluator, runs: tuple[TriggerRun, ...], now: Instant
) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """Insert the records of runs, and set aside those that are refused.

    Returns:
        The ids of those that are there as they were given, as far as that is known, and those that could not even be set aside.
    """
    if len(runs) > 1:
        try:
            inserted = await insert_many(evaluator.runs, *map(stored_run, runs))
        except Refused:
            pass
        else:  # where others are faster with some, the next look tells with which
            return (tuple([run.id for run in runs]) if inserted == len(runs) else ()), ()
    recorded: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    for run in runs:
        try:
            if await _recorded(evaluator, run, now):
                recorded = (*recorded, run.id)
        except Refused as trouble:
            skipped = (*skipped, _skipped(run.id, trouble))
    return recorded, skipped


async def _recorded(evaluator: Evaluator, run: TriggerRun, now: Instant) -> bool:
    try:
        return await insert_new(evaluator.runs, stored_run(run))
    except Refused as refused:
        reason = refused.reason
    await insert_new(evaluator.runs, stored_run(set_aside(run, reason, now)))
    return False


async def _forget(evaluator: Evaluator, found: tuple[Document, ...]) -> None:
    """Of runs that are over for long enough those that are needed no more: what has changed since it was read is over since then."""
    runs, _ = _readable(_numbered, found)
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
    stored = await _by_ids(evaluator.occurrences, of, ())
    pending = await evaluator.pending()
    return frozenset([*[needed(each, ID) for each in stored], *[each.id for each in pending]])


async def _last(evaluator: Evaluator, triggers: tuple[str, ...]) -> frozenset[str]:
    """The runs of these triggers that have the highest numbers."""
    found: tuple[str, ...] = ()
    for trigger in triggers:
        run = await find_one(evaluator.runs, Eq(TRIGGER, trigger), fields=(NUMBER,), sort=(Descending(NUMBER),))
        found = found if run is None else (*found, needed(run, ID))
    return frozenset(found)


def _made(evaluator: Evaluator, task: str, arguments: Document) -> tuple[Job, Call] | NotProvided:
    try:
        job = evaluator.make_job(task, arguments)
        return job, evaluator.make_call(job)
    except Misuse as misuse:
        return NotProvided((misuse.what,))
    except BaseException as error:  # noqa: BLE001  the user's types must not stop the triggers of others
        check_failure(error)
        return NotProvided((f"what makes the call of {task!r} raised {type(error).__name__}",))


async def _invoke(evaluator: Evaluator, asked: Asked) -> Invoked:
    """Register the invocations of runs, each under the id of its run, and say which are there."""
    free = tuple([registrar for _, registrar in asked if registrar.is_free])
    answers = await _registered(evaluator, free) if len(free) > 1 else ()
    for _, registrar in asked:
        if registrar.key in dict(answers):
            continue
        reasons: tuple[str, ...] | None
        try:
            reasons = None if isinstance(await registrar.run(), NotRegistered) else ()
        except Refused as refused:
            reasons = (refused.reason,)
        answers = (*answers, (registrar.key, reasons))
    return answers


async def _registered(evaluator: Evaluator, free: tuple[Registrar, ...]) -> Invoked:
    """Of each, whether it is there; of none where one is refused, for each by itself tells which."""
    wanted = tuple([NewInvocation(each.key, each.job) for each in free if each.job is not None])
    command = Enqueue(
        wanted=wanted,
        request=free[0].request,
        records=evaluator.invocations,
        attempts=evaluator.attempts,
        pauses=evaluator.pauses,
    )
    since = await begins(evaluator.pauses)
    attempt = 0
    while True:
        if not await goes_on(evaluator.pauses, evaluator.attempts, attempt, since):
            break
        attempt += 1
        try:
            await insert_many(evaluator.calls, *[each.stored_call for each in free])
            outcomes = await command.run()
        except Refused:
            return ()
        except (Ambiguous, NotApplied, NotDurable):
            continue
        pairs = zip(free, outcomes, strict=True)
        return tuple((each.key, None if isinstance(outcome, NotRegistered) else ()) for each, outcome in pairs)
    return tuple((each.key, None) for each in free)


def _known(asked: Asked, answers: Invoked) -> Ended:
    """Those of whose invocations it is known what became of them; of the others the claims expire."""
    became = dict(answers)
    return tuple((run, reasons) for run, _ in asked if (reasons := became[run.id]) is not None)


async def _settle(evaluator: Evaluator, ended: Ended) -> tuple[Skipped, ...]:
    """Write what became of runs that were claimed; what cannot be written."""
    skipped: tuple[Skipped, ...] = ()
    since = await begins(evaluator.pauses)
    attempt = 0
    while True:
        if not await goes_on(evaluator.pauses, evaluator.attempts, attempt, since):
            break
        attempt += 1
        try:
            is_done, skipped = await _settled(evaluator, ended, is_known=attempt == 1)
        except (Ambiguous, NotApplied, NotDurable):
            continue
        if is_done:
            break
    return skipped


async def _settled(evaluator: Evaluator, ended: Ended, *, is_known: bool) -> tuple[bool, tuple[Skipped, ...]]:
    """Write it, to the runs as they were claimed, or as they are; whether each is written, and what cannot be."""
    runs, skipped = tuple([run for run, _ in ended]), tuple[Skipped, ...]()
    if not is_known:
        found = await _by_ids(evaluator.runs, tuple([run.id for run in runs]))
        runs, skipped = _readable(loaded_run, found)
    now = await StoreTime()
    changed = _changed(runs, ended, evaluator.claims, now)
    matched, refused = await _all(tuple([(run.id, _change(evaluator, run)) for run in changed]))
    return matched + len(refused) == len(changed), (*skipped, *refused)


def _changed(runs: tuple[TriggerRun, ...], ended: Ended, claims: Claims, now: Instant) -> tuple[TriggerRun, ...]:
    """What is to be written: not those that were settled before, or whose attempt is another one's by now."""
    came = {claimed.id: (claimed.attempt, reasons) for claimed, reasons in ended}

    def became(run: TriggerRun) -> Changed | Ignored:
        attempt, reasons = came[run.id]
        return failed(run, attempt, reasons, claims, now) if reasons else fired(run, now)

    return tuple(verdict.run for run in runs if isinstance(verdict := became(run), Changed))


# --- writes -------------------------------------------------------------------------------------------------------------


def _change(evaluator: Evaluator, run: TriggerRun) -> UpdateOne:
    """The write of a run that was read one version before, if it still is at that version."""
    return update_one(evaluator.runs, _at_version(run.id, run.version - 1), *_changes(run))


def _changes(run: TriggerRun) -> tuple[Update, ...]:
    """What a write of a run changes: a field that its state does not have is removed."""
    fields = dict(stored_progress(run))
    puts = tuple(Put(Field[object](key), value) for key, value in fields.items())
    return (*puts, *(Remove(Field[object](key)) for key in _CHANGING if key not in fields))


async def _all(writes: tuple[_Write, ...]) -> tuple[int, tuple[Skipped, ...]]:
    """Carry out all of them; where that fails, each by itself, so that it is known which of them is refused.

    Returns:
        How many matched, and what was refused.
    """
    matched = 0
    skipped: tuple[Skipped, ...] = ()
    for start in range(0, len(writes), UPDATES_MAX):
        some = writes[start : start + UPDATES_MAX]
        if len(some) > 1:
            try:
                matched += await bulk_update(*[write for _, write in some])
            except (Refused, Ambiguous):
                pass
            else:
                continue
        for key, write in some:
            try:
                matched += await write
            except Refused as trouble:
                skipped = (*skipped, _skipped(key, trouble))
    return matched, skipped


async def _by_ids(collection: str, keys: tuple[str, ...], fields: Fields | None = None) -> tuple[Document, ...]:
    """The documents of these ids that are there, with these fields; None for all."""
    found: tuple[Document, ...] = ()
    for start in range(0, len(keys), FOUND_MAX):
        some = keys[start : start + FOUND_MAX]
        page = await find_all(collection, In(ID, some), limit=len(some), fields=fields)
        found = (*found, *page)
    return found


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


def _unused(occurrences: tuple[Occurrence, ...], used: frozenset[object]) -> tuple[Occurrence, ...]:
    return tuple(each for each in occurrences if each.id not in used)


def _used(spoiled: Collection[Skipped], runs: Collection[Document]) -> frozenset[object]:
    """What runs that cannot be read have used up, as far as they say."""
    keys = {each.key for each in spoiled}
    held = (run.held(OF) for run in runs if run.held(ID) in keys)
    return frozenset(each for of in held if isinstance(of, tuple) for each in of)


def _skipped(key: Value, trouble: Refused | Misuse) -> Skipped:
    return Skipped(key, trouble.what if isinstance(trouble, Misuse) else trouble.reason)
