"""The programs of a reactive task: look at documents, take what is due, run the handler, remove what is of no use.

The decisions are `tidegate.reactive.tasks` and `tidegate.reactive.orphans`; this is the way to carry them out, so that they
are right whatever becomes of requests and replies, whoever else is at work and however long one of them stands still; for one
document or for a thousand, whose requests are the same in number.

    plan_pass   the records, THEN their documents, the store's time; write what each look means
    plan_and_take   the same, which claims what it makes due; THEN looks again, unless a later pass is certain to
    take        records that are due; claim them, THEN look at their documents: their handlers are to run
    end         write how runs have ended
    complete    the same of one that has succeeded, in a transaction of its handler's
    renew       the leases of runs go on
    give_back   what is in the name of a worker, and not in its hands
    clean_up    the records, THEN their documents; remove those of no use, and plan what was seen of others
    work        for ever: take one, call its handler, end it, and look ever more rarely while nothing is due

Each write is one compare-and-set on all that the decision was taken on, and the writes of several records are one request. It
answers a total: where all have matched, each was written. Where fewer have, or nobody answers, the records are read again and
decided anew: a claim that went through shows its owner and its token, an end that went through is no longer held, and a look
that was written finds nothing changed. So nothing needs to be known of a lost reply, nor of which part of a request was done.

A claim that arrives when its worker asks no more is in the name of one that does not know of it. Whoever has not heard of all that
it has asked for says so (`Idle.UNHEARD`), and looks through what is in its name as long as such a claim may last, between its looks
for what is due: it reads before it writes, so what it sends fits no run that has begun since, however late it arrives. An end that
nobody confirms is not given back, for the handler has been called: who lives asks for it again, until somebody tells what became of
it.

`complete` writes in a transaction, which holds the record until it ends. If its process dies, the server ends it after 60 s, and until
then any other write of that record waits at the server. So a write of a record that is processed has a time limit (`within`). When a
request of several runs out of time, each is sent alone, and what is held is left to a later look, claim, renewal or end (`Idle.HELD`).
A transaction holds only the record of a run, so all other records are written first, in a request of their own that never waits.
A renewal that waits for the transaction of its own handler is not a lost lease (`Why.COMPLETING`): nobody else can claim the record.

Laws, over the records, the documents, what was handled and where the workers stand:
    RT1  No change is lost: at rest, what a document says was handled, or its run was given up.
    RT2  At most one worker runs under a claim.
    RT3  A worker that runs under a claim whose lease lasts finds its record as it claimed it: the result of an outdated
         run changes nothing.
    RT4  At rest, a document that was deleted has no record.
    RT5  What a document says is handled at most as often as the policy allows attempts, whatever becomes of workers.
    RT6  A record that is finished is not due, and one that is due is not finished: nothing that ends makes work.
    RT7  While the lease of a claim lasts, by the store's clock, nobody else claims its record.
    RT8  At rest, nothing is in the name of a worker that lives but what is in its hands.
    RT9  A write of a record that a transaction holds has a time limit, unless it is in that transaction.

Known not to work
    - A worker that stands still beyond its lease runs beside the one that has taken over, until it learns so at its end.
    - A record's first insert that arrives after the record was inserted, finished and removed brings it back: the
      document is gone, so it is completed without the handler, and removed again.
    - A record into which somebody else has written what cannot be read is `Unreadable`, and so is whatever is taken with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from types import NoneType
from typing import Final, NoReturn, TypeAlias, final

import attrs

from tidegate.model.documents import (
    FILTERS,
    ID,
    AllOf,
    AnyOf,
    Ascending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Gt,
    HasOther,
    In,
    Lt,
    Not,
    OlderThan,
    Put,
    Sort,
    Value,
    exactly,
    matches,
    parts_of,
    show,
)
from tidegate.model.documents.bson import ZERO_TIMESTAMP
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Failure,
    NotApplied,
    NotDurable,
    Now,
    Program,
    Sleep,
    Unreadable,
    is_too_late,
)
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import MILLISECOND, Duration, Instant, micros
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    Indexes,
    StoreTime,
    UpdateOne,
    bulk_update,
    check_collection,
    delete_many,
    delete_one,
    find_all,
    find_one,
    insert_many,
    update_one,
)
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type
from tidegate.reactive import orphans, tasks
from tidegate.reactive.orphans import RemoveRecord, Source
from tidegate.reactive.plan_queries import FindChanged, FindOrphaned, PlanPage
from tidegate.reactive.snapshot import NotComputed, Projection, snapshot
from tidegate.reactive.task_documents import (
    DECIDED_ON,
    DOCUMENT,
    NEXT_RUN_AT,
    OWNER,
    TASK,
    changes,
    guarded,
    loaded,
    record_id,
    set_aside,
    stored,
)
from tidegate.reactive.task_records import TaskRecord
from tidegate.reactive.tasks import (
    CannotRun,
    Claim,
    Claimed,
    Deferred,
    Failed,
    Go,
    Gone,
    HandlerOutcome,
    InsertRecord,
    Lapsed,
    Leave,
    Matching,
    NextAttempt,
    NotMatching,
    PlanVerdict,
    Seen,
    Succeeded,
    UpdateRecord,
    Why,
    WhyNot,
    claim_of,
)
from tidegate.retries import backoff, spread
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.polling import Ask, PollingBounds, Wait, fresh, turn, woken

__all__ = [
    "BEHIND", "HandlerAnswer", "Idle", "Later", "Planned", "Ran", "ReactiveTask", "Run", "SetAside", "Worked", "answered", "dues", "send_updates",
]  # fmt: skip


_KEY: Final = Field[Value](ID.name)

BEHIND: Final = 20 * MILLISECOND
"""By the time that decisions are taken with, it may be so much earlier than it is, so that none of them asks for it anew. A lease is
counted from then, so it may end so much sooner: whoever holds one gives it up before (`PooledTask.lease`)."""
_LIMIT_PART: Final = 24
"""This part of a lease is the time limit of a write that a transaction may hold up;"""
_LIMIT_LEAST: Final = 50 * MILLISECOND
_LIMIT_MOST: Final = 250 * MILLISECOND
"""within these bounds, so that a renewal that runs out of time is sent again long before its lease ends."""
_BULK_LIMITS: Final = 4
"""How many times as long several writes in one request may take."""
_HELD_MAX: Final = 8
"""After so many that are held, the others of a request are left as well: each has taken the whole of its time."""
_ATTEMPTS: Final = 8
"""How often a look, a claim or an end is tried before it is left to the next pass, or to the end of the lease."""


# --- answers ----------------------------------------------------------------------------------------------------------


class Idle(Enum):
    """Why no handler was called."""

    NOTHING_DUE = "nothing is due"
    NOT_CLAIMED = "another was faster, or nobody answered"
    HELD = "a transaction holds its record, and it cannot be claimed now"
    UNHEARD = "nobody has told what became of its claim: it may be in this worker's name, or come to be"
    GIVEN_UP = "the lease of its last run has ended, and the policy gave up"
    SKIPPED = "its document is gone, or no longer matches"
    STALE = "the claim was lost before the handler began"


@final
@attrs.frozen
class Ran:
    """A handler was called.

    Attributes:
        claim: Under this claim.
        end: Why its end was written, or why it was not; None where nobody knows: ask again, or the next claim will find out.
    """

    claim: Claim
    end: Why | WhyNot | None

    def __str__(self) -> str:
        return f"{self.claim}: {'nobody knows' if self.end is None else self.end.value}"


@final
@attrs.frozen
class SetAside:
    """What was due is no record. One that has failed stands in its place now, and says why, so nothing waits behind it."""

    record: Value = attrs.field(eq=exactly)
    why: str

    def __str__(self) -> str:
        return f"set {show(self.record)} aside: {self.why}"


Worked: TypeAlias = Idle | Ran | SetAside


@final
@attrs.frozen
class Later:
    """What a handler answers to be called again after this time, in microseconds or a timedelta: no failure, and no attempt.

    Invariant: 0 <= after <= LONGEST (`tidegate.retries.backoff`): a store keeps no time that is too far away.
    """

    after: Duration = attrs.field(converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.after, "a time in microseconds", 0, backoff.LONGEST)


HandlerAnswer: TypeAlias = str | Later | None
"""What came of a handler: the text of a failure, a request to be called later, or a success."""


def answered(reply: object) -> HandlerAnswer:
    """What a handler has returned, as its answer: nothing else than these two is taken for a success, or for anything."""
    if reply is None or isinstance(reply, Later):
        return reply
    return f"the handler answered {typed(reply)}: None is a success; raise Later(...) to be called again"


@final
@attrs.frozen
class Run:
    """A run that has begun: the handler of this document is to be called under this claim.

    Attributes:
        key: The document's id.
        record: Its record, as it was written for the run.
        claim: What the handler is called under.
        trouble: Why it has nothing to be called with, so that this is its answer; None where it has.
    """

    key: Value = attrs.field(eq=exactly)
    record: TaskRecord = attrs.field(repr=False)
    claim: Claim
    trouble: str | None = None

    def __str__(self) -> str:
        return str(self.claim)


async def dues(records: str, tasks: tuple[str, ...], within: Duration) -> tuple[tuple[str, Duration], ...]:
    """Of which of these tasks is something due, or will be? One request for all of them, whatever they have that is not due.

    Args:
        records: The collection of their records.
        tasks: Their names.
        within: In how long it is due at most, in microseconds.

    Returns:
        Each of which something is due, and in how long the first of that is: 0 for now. Where more is due than a request finds,
        it is of those that are due longest.

    Raises:
        Failure: Nobody answers, or the store refuses.
    """
    check_tuple(tasks, str, "the name of a task")
    check_int(within, "a time in microseconds", 0)
    now = await StoreTime(BEHIND)
    mine = Eq(TASK, tasks[0]) if len(tasks) == 1 else In(TASK, tasks)
    due = AllOf((mine, Lt(NEXT_RUN_AT, now + -(-within // MILLISECOND) * MILLISECOND)))
    found = await find_all(records, due, limit=FOUND_MAX, fields=(TASK, NEXT_RUN_AT), sort=_LONGEST_DUE)
    # What is due by a time that may be behind is so a moment ago; what is not yet, a moment sooner. A list of times is matched, too.
    times = ((each.held(TASK), each.held(NEXT_RUN_AT)) for each in reversed(found))
    firsts = {task: max(due - now, 0) for task, due in times if isinstance(due, Instant)}
    return tuple((name, firsts[name]) for name in tasks if name in firsts)


@final
@attrs.frozen
class Planned:
    """What has come of a pass that claims.

    Attributes:
        left: The ids whose look is not known to be written: `plan_pass` looks at them again.
        held: The ids whose look cannot be written now, for a transaction holds their records: a later pass looks at them again.
        runs: The runs that have begun.
        due: In how long the first of what it has planned and not claimed is due, in microseconds; None where there is none.
        is_unheard: Nobody has told what became of some claim (`Idle.UNHEARD`).
    """

    left: tuple[Value, ...] = attrs.field(eq=exactly)
    runs: tuple[Run, ...] = ()
    due: Duration | None = None
    is_unheard: bool = False
    held: tuple[Value, ...] = attrs.field(default=(), eq=exactly)


async def send_updates(updates: tuple[UpdateOne, ...]) -> int:
    """Send updates, one or more, all within a time limit or all without: how many of them have matched?"""
    if len(updates) == 1:
        return await updates[0]
    within = updates[0].within
    return await bulk_update(*updates, within=None if within is None else _BULK_LIMITS * within)


_LONGEST_DUE: Final = (Ascending(NEXT_RUN_AT),)


async def _is_not_known() -> bool:
    return False


async def _store_time() -> Instant:
    return await StoreTime(BEHIND)


# --- the task ---------------------------------------------------------------------------------------------------------


def _records_of(task: ReactiveTask) -> str:
    return f"{task.source}_tasks"


@final
@attrs.frozen(kw_only=True)
class ReactiveTask:
    """A task that follows the documents of a collection. Invariants: the name is not empty; 1 <= attempts.

    Attributes:
        name: Of the task, and of its handler (`Call`), which is given the document's id, and the claim.
        source: The collection of the documents.
        records: The collection of the task records; `<source>_tasks` unless it is set.
        watched: What is watched of a document.
        where: Which documents it is for; None for all. It asks for no age, for that changes by itself.
        rules: How it is run.
        policy: When a run that failed is tried again.
        cleaning: When records go.
        attempts: How often each write is tried; None for any number.
        pauses: How long it waits in between.
        polling: How often `work` looks for what is due.
        followed: Whether what has changed since a pass began to look is looked at after this, for sure: by whoever leads now, in
            another pass (`change_stream.is_followed`). Asked AFTER the claims of that pass are written.
        noted: Is given what each look has seen, what is written for it, and the time of the look; None where nobody asks.
    """

    name: str
    source: str
    records: str = attrs.field(default=attrs.Factory(_records_of, takes_self=True))
    watched: Projection = attrs.field(factory=Projection)
    where: Filter | None = None
    rules: tasks.TaskRules = attrs.field(factory=tasks.TaskRules)
    policy: backoff.Policy = attrs.field(factory=backoff.Policy)
    cleaning: orphans.CleanUp = attrs.field(factory=orphans.CleanUp)
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    followed: Callable[[], Program[bool]] = attrs.field(default=_is_not_known, repr=False)
    noted: Callable[[Seen, PlanVerdict, Instant], None] | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a task")
        check_collection(self.source)
        check_collection(self.records)
        check_type(self.watched, Projection, "what is watched")
        check_type(self.where, (*FILTERS, NoneType), "a filter")
        check_type(self.rules, tasks.TaskRules, "how a task is run")
        check_type(self.policy, backoff.Policy, "a policy")
        check_type(self.cleaning, orphans.CleanUp, "when records go")
        check_attempts(self.attempts, self.pauses)
        check_type(self.polling, PollingBounds, "the bounds of an interval")
        check_callable(self.followed, "what tells whether a later pass is certain")
        if self.noted is not None:
            check_callable(self.noted, "what is given each look")

    @property
    def fields(self) -> Fields | None:
        """What a look reads of a document, so that nothing else travels; None for all of it."""
        asked = () if self.where is None else tuple(parts_of(self.where))
        if not self.watched.paths or self.watched.computed or any(isinstance(part, HasOther) for part in asked):
            return None
        names = {way[0].name for way, _ in self.watched.ways}
        names.update(part.field.name for part in asked if not isinstance(part, (AllOf, AnyOf, Not, HasOther)))
        return tuple(Field(name) for name in sorted(names))

    @property
    def indexes(self) -> Indexes:
        """What a look for what is due needs: it reads the records that it takes, however many are due or finished; and what
        `find_changed` needs to find the record of a document.
        """
        due = Index((Ascending(TASK), *_LONGEST_DUE), Exists(NEXT_RUN_AT))
        return {self.records: (due, Index((Ascending(TASK), Ascending(DOCUMENT))))}

    @property
    def due(self) -> Filter:
        """What is due, as the store judges."""
        return AllOf((Eq(TASK, self.name), OlderThan(NEXT_RUN_AT, 0)))

    @property
    def within(self) -> Duration:
        """The time limit of a write of a record that a transaction may hold."""
        return min(max(self.rules.lease // _LIMIT_PART, _LIMIT_LEAST), _LIMIT_MOST)

    async def find_changed(self, after: tuple[Value, ...], limit: int) -> PlanPage:
        """Ask which documents `plan_pass` has to look at.

        Args:
            after: Up to where they were asked about (`PlanPage.after`); empty for none.
            limit: About how many documents at most; 1 <= limit <= LOOKED_AT_MAX.

        Returns:
            The ids, and up to where they are; nothing where all were asked about.

        Raises:
            Misuse: A computed value has no expression.
            Failure: Nobody answers, or the store refuses: an expression fails on a document.
        """
        return await FindChanged(self.source, self.records, self.name, self.watched, self.where, limit, after)

    async def find_orphaned(self, after: tuple[Value, ...], limit: int) -> PlanPage:
        """Ask which documents `clean_up` has to look at: those that are gone, or have left where records go then.

        Args:
            after: As for `find_changed`; it is about records, though.
            limit: About how many records at most.

        Returns:
            The ids of the documents, and up to where they are.

        Raises:
            Failure: Nobody answers, or the store refuses.
        """
        leaves = self.cleaning.delete_when is orphans.DeleteWhen.SOURCE_GONE_OR_LEFT
        where = self.where if leaves else None
        return await FindOrphaned(self.records, self.source, self.name, where, limit, after)

    async def plan_pass(self, keys: tuple[Value, ...], request: str) -> tuple[Value, ...]:
        """Look at these documents, and write down what is to be done.

        Args:
            keys: Their ids, of any type that MongoDB takes for one.
            request: An id of this pass that no other has; new records are named after it.

        Returns:
            The ids whose look is not known to be written: none if the pass has succeeded.
        """
        check_name(request, "a pass")
        return await self._looked(keys, request)

    async def plan_and_take(self, keys: tuple[Value, ...], request: str, worker: str, most: int) -> Planned:
        """Look at these documents once, and claim some of what is due in the write that says so; THEN look at those again, unless
        another pass will, whatever has changed since (`followed`).

        Args:
            keys: The ids of the documents, of any type.
            request: An id of this pass, as for `plan_pass`.
            worker: Who works, as for `take`; it takes nothing else of this task meanwhile.
            most: How many runs at most; 1 <= most <= FOUND_MAX.

        Returns:
            What has begun, and what is left to `plan_pass` and to `take`.
        """
        check_name(request, "a pass")
        check_name(worker, "a worker")
        check_int(most, "a number of records", 1, FOUND_MAX)
        once = self._once(keys)
        try:
            writes, now = await self._decided(once[:FOUND_MAX], request)
        except (Ambiguous, NotApplied, NotDurable):
            return Planned(once)
        asked: tuple[_Write, ...] = ()
        claims: tuple[_Known, ...] = ()
        dues: tuple[Duration, ...] = ()
        for key, before, verdict in writes:
            assert now is not None, "it has looked"
            assert not isinstance(verdict, RemoveRecord), "a pass removes nothing"
            write = verdict
            if len(claims) < most:
                write = tasks.claim_planned(verdict, worker=worker, rules=self.rules, now=now)
            if write is not verdict:
                claims = (*claims, (key, write.record))
            elif write.record.owner is None:
                dues = (*dues, _due_at(write.record) - now)
            asked = (*asked, (key, before, write))
        marks = await self._written(asked)
        late = tuple(key for (key, _, _), mark in zip(asked, marks, strict=True) if mark is _Sent.HELD)
        unsure = tuple(key for (key, _, _), mark in zip(asked, marks, strict=True) if mark is _Sent.OPEN)
        held = tuple(each for each in claims if not _is_in(each[0], unsure))
        found = await self._held_of(tuple(each for each in claims if _is_in(each[0], unsure))) or ()
        left = tuple(key for key in unsure if not _is_in(key, tuple(of for of, _ in found)))
        is_unheard = len(held) + len(found) < len(claims)
        runs: tuple[Run, ...] = ()
        if held and await self.followed():
            runs = tuple(Run(key, record, claim_of(record)) for key, record in held if record.snapshot is not None)
            held = tuple(each for each in held if each[1].snapshot is None)  # what its document has left is completed
        begun, idle = await self._begun((*held, *found))
        is_unheard = is_unheard or Idle.UNHEARD in idle
        return Planned((*left, *once[FOUND_MAX:]), (*runs, *begun), min(dues, default=None), is_unheard, late)

    async def clean_up(self, keys: tuple[Value, ...]) -> tuple[Value, ...]:
        """Look at the records of these documents: remove what is of no use, and write down what else is to be done.

        Args:
            keys: The ids of the documents, of any type.

        Returns:
            The ids whose look is not known to be written: none if the pass has succeeded.
        """
        return await self._looked(keys, None)

    async def work(self, worker: str) -> NoReturn:
        """Run what is due, for ever: one record after the other, and where nothing is due, look ever more rarely.

        Where another was faster, or nobody answers, the next look waits as if nothing had been found.

        Args:
            worker: Who works, as for `take`. It also chooses the jitter: workers have intervals of their own.

        Raises:
            Refused: The store refuses for good.
        """
        check_name(worker, "a worker")
        draw = backoff.draw_of(worker)
        pace = fresh(self.polling, await Now())
        while True:
            now = await Now()
            match turn(self.polling, {self.name: pace}, now, draw):
                case Ask(_, pace):
                    worked = await self.work_one(worker)
                    if worked not in (Idle.NOTHING_DUE, Idle.NOT_CLAIMED, Idle.HELD, Idle.UNHEARD):
                        pace = woken(self.polling, pace, now)
                case Wait(_, duration):
                    await Sleep(duration)
                case _:
                    raise AssertionError("there is a source")

    async def work_one(self, worker: str) -> Worked:
        """Take a record that is due, and run its handler.

        Args:
            worker: Who works, as for `take`.
        """
        (worked,) = await self.work_some(worker, 1)
        return worked

    async def work_some(self, worker: str, most: int) -> tuple[Worked, ...]:
        """Take records that are due, run their handlers, one after the other, and write down how they ended.

        Args:
            worker: Who works, as for `take`.
            most: How many at most.

        Returns:
            What became of each; where nothing is due, that.
        """
        runs, others = await self.take(worker, most)
        ended: tuple[tuple[Run, HandlerAnswer], ...] = ()
        for run in runs:
            answer: HandlerAnswer = run.trouble
            if answer is None:
                try:
                    answer = answered(await self.handle(run.key, run.claim))
                except Failure as failure:
                    answer = failure.reason or str(failure)
            ended = (*ended, (run, answer))
        ends = await self.end(ended)
        return (*(Ran(run.claim, end) for run, end in zip(runs, ends, strict=True)), *others)

    async def handle(self, key: Value, claim: Claim) -> object:
        """Call the handler of a document under a claim.

        Args:
            key: The document's id.
            claim: The run.

        Returns:
            What the handler has returned (`answered`).

        Raises:
            Failure: It fails.
        """
        return await Call(self.name, (key, claim), catches=True)

    async def take(
        self, worker: str, most: int, factor: int = 1
    ) -> tuple[tuple[Run, ...], tuple[Idle | SetAside, ...]]:
        """Claim records that are due, and look at their documents: their handlers are to run now.

        Args:
            worker: Who works; another name for each process and each of its lives.
            most: How many at most; 1 <= most <= FOUND_MAX.
            factor: Among how many times as many they are drawn (`tidegate.retries.spread`), where others look, too.

        Returns:
            The runs that have begun, and why others have not.
        """
        check_name(worker, "a worker")
        check_int(most, "a number of records", 1, FOUND_MAX)
        check_int(factor, "a factor", 1, spread.FACTOR_MAX)
        try:
            due = await self._due(worker, most, factor)
            if not due:
                return (), (Idle.NOTHING_DUE if due is None else Idle.NOT_CLAIMED,)
            aside: tuple[Idle | SetAside, ...] = ()
            known: tuple[_Known, ...] = ()
            for each in due:
                read = self._read(each)
                if isinstance(read, TaskRecord):
                    known = (*known, (each[DOCUMENT], read))
                elif await self._set_aside(each, read):
                    aside = (*aside, SetAside(each[ID], read))
                else:
                    aside = (*aside, Idle.NOT_CLAIMED)
        except (Ambiguous, NotApplied, NotDurable):
            return (), (Idle.NOT_CLAIMED,)
        claimed, others = await self._claimed(known, worker)
        begun, idle = await self._begun(claimed)
        return begun, (*aside, *others, *idle)

    async def end(self, ended: tuple[tuple[Run, HandlerAnswer], ...]) -> tuple[Why | WhyNot | None, ...]:
        """Write down how runs have ended.

        Args:
            ended: The runs, each with what came of its handler (`answered`).

        Returns:
            Of each run why its end was written, or why it was not; None where nobody knows: ask again, or the next claim will find
            out.
        """
        runs = tuple((run.key, run.claim, run.record, answer) for run, answer in ended)
        return await self._settled(runs, renews=False)

    async def complete(self, run: Run) -> Why | WhyNot:
        """Write down that a run has succeeded, in the transaction that its handler's own writes are in: of what fails nobody asks
        again here, for the transaction is over then.

        Args:
            run: The run.

        Returns:
            Why its end was written, or why it was not: then the transaction is to be aborted.

        Raises:
            Failure: Nobody answers, or the store refuses.
        """
        while True:
            found = await find_one(self.records, self._by_id(run.key))
            record = None if found is None else loaded(found)
            verdict = self._finalise(record, run.claim, Succeeded(), await _store_time())
            if isinstance(verdict, Leave):
                return verdict.why
            assert record is not None, "an end is of a record"
            still = self._unchanged(run.key, verdict)
            if await update_one(self.records, still, *changes(record, verdict.record, self.rules.history_max)):
                return verdict.why  # else it was renewed meanwhile, or is another's

    async def renew(self, key: Value, claim: Claim) -> Why | WhyNot | None:
        """Let the lease of a run go on, while its handler runs.

        Args:
            key: The document's id.
            claim: The run.

        Returns:
            `Why.RENEWED`; or why not, and then the handler had better stop; None where nobody knows.
        """
        (renewed,) = await self.renew_all(((key, claim),))
        return renewed

    async def renew_all(
        self, runs: tuple[tuple[Value, Claim], ...], completing: tuple[Claim, ...] = ()
    ) -> tuple[Why | WhyNot | None, ...]:
        """Let the leases of runs go on, as `renew` does; to be renewed twice does no harm.

        Args:
            runs: The id of the document of each, and the run.
            completing: Those of the runs whose handlers have asked to complete them in a transaction that is open. Where such a
                record cannot be written, that transaction holds it, and so nobody else claims it: `Why.COMPLETING`.
        """
        settling = tuple((key, claim, None, None) for key, claim in runs)
        verdicts = await self._settled(tuple(each for each in settling if each[1] not in completing), renews=True)
        others, renewed = iter(verdicts), tuple[Why | WhyNot | None, ...]()
        for each in settling:  # these alone, or they would hold up the others
            if each[1] in completing:
                (verdict,) = await self._settled((each,), renews=True, if_held=Why.COMPLETING)
            else:
                verdict = next(others)
            renewed = (*renewed, verdict)
        return renewed

    async def give_back(self, worker: str, hands: tuple[Run, ...]) -> int:
        """Give back what is in the name of a worker, and not in its hands: what it has claimed and was not told of. It was no attempt.

        Args:
            worker: Who works, as for `take`. None of its looks for this task is under way, and none begins before this has ended.
            hands: What it runs of this task, and what it has run whose end is to be written.

        Returns:
            How many were given back; they are due.

        Raises:
            Failure: Nobody answers, or the store refuses.
        """
        check_name(worker, "a worker")
        check_tuple(hands, Run, "a run")
        known = frozenset(_claim_of(run.record) for run in hands)
        now = await _store_time()
        last = now + -(-self.rules.lease // MILLISECOND) * MILLISECOND + 2 * BEHIND
        in_name = (Eq(TASK, self.name), Gt(NEXT_RUN_AT, now), Lt(NEXT_RUN_AT, last), Eq(OWNER, worker))
        # Those whose leases end first, for what is in its hands is renewed.
        found = await find_all(self.records, AllOf(in_name), limit=FOUND_MAX, fields=DECIDED_ON, sort=_LONGEST_DUE)
        records = tuple(
            (each[DOCUMENT], record) for each in found if isinstance(record := self._read(each), TaskRecord)
        )
        strays = tuple((key, record) for key, record in records if _claim_of(record) not in known)
        ends = tuple(
            (key, record, self._finalise(record, claim_of(record), Deferred(now), now)) for key, record in strays
        )
        matched, _ = await self._matched(
            tuple((key, record, end) for key, record, end in ends if isinstance(end, UpdateRecord))
        )
        return matched

    # --- plan, clean up ---

    async def _looked(self, keys: tuple[Value, ...], request: str | None) -> tuple[Value, ...]:
        """Look at these documents, to plan (under the id of a pass) or to clean up; those that are left."""
        once = self._once(keys)
        unwritten: tuple[Value, ...] = ()
        held: tuple[Value, ...] = ()
        for start in range(0, len(once), FOUND_MAX):
            left = once[start : start + FOUND_MAX]
            since = await begins(self.pauses)
            attempt = 0
            while True:
                if not await goes_on(self.pauses, self.attempts, attempt, since):
                    break
                attempt += 1
                try:
                    left, late = await self._look(left, request)
                    held = (*held, *late)
                except (Ambiguous, NotApplied, NotDurable):
                    continue  # the next look finds what became of it
                if not left:
                    break
            unwritten = (*unwritten, *left)
        return (*unwritten, *held)

    def _once(self, keys: tuple[Value, ...]) -> tuple[Value, ...]:
        """Each of these documents once."""
        check_type(keys, tuple, "a tuple of ids")
        return tuple({record_id(self.name, key): key for key in keys}.values())

    async def _look(self, keys: tuple[Value, ...], request: str | None) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """One look at each; those whose look is not known to be written, and those that are held."""
        writes, _ = await self._decided(keys, request)
        marks = await self._written(writes)
        left = tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is _Sent.OPEN)
        return left, tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is _Sent.HELD)

    async def _decided(self, keys: tuple[Value, ...], request: str | None) -> tuple[tuple[_Write, ...], Instant | None]:
        """What is to be written after one look at each, the record BEFORE the document, and when that was."""
        known = tuple(zip(keys, await self._records(keys), strict=True))
        if request is None:
            known = tuple((key, record) for key, record in known if record is not None)
            if not known:
                return (), None
        documents = await self._documents(tuple(key for key, _ in known))
        now = await _store_time()
        writes: tuple[_Write, ...] = ()
        for (key, record), document in zip(known, documents, strict=True):
            seen = self._seen(document)
            verdict: RemoveRecord | PlanVerdict
            if request is not None:
                verdict = self._plan(record, seen, now, record_id(request, key))
            else:
                assert record is not None, "those without one were left out"
                verdict = self._clean_up(record, seen, now)
            if not isinstance(verdict, Leave):
                writes = (*writes, (key, record, verdict))
        return writes, now

    def _plan(self, record: TaskRecord | None, seen: Seen, now: Instant, new_id: str) -> PlanVerdict:
        """What a look means."""
        verdict = tasks.plan(record, seen, rules=self.rules, now=now, new_id=new_id)
        if self.noted is not None:
            self.noted(seen, verdict, now)
        return verdict

    def _clean_up(self, record: TaskRecord, seen: Seen, now: Instant) -> RemoveRecord | PlanVerdict:
        """What the look of a sweep means: the record goes, or what is planned."""
        verdict = orphans.clean_up(record, _SOURCES[type(seen)], self.cleaning, now)
        return verdict if isinstance(verdict, RemoveRecord) else self._plan(record, seen, now, record.id)

    # --- claim ---

    async def _due(self, worker: str, most: int, factor: int) -> tuple[Document, ...] | None:
        """What is due longest, or what is drawn of it and not taken since: of more, nothing but ids is found. None for nothing."""
        where = self.due
        among = min(factor * most, FOUND_MAX)
        if among == most:
            return await _found(self.records, where, most, _LONGEST_DUE) or None
        found = await find_all(self.records, where, limit=among, fields=(NEXT_RUN_AT,), sort=_LONGEST_DUE)
        if not found:
            return None
        ids = tuple(str(each[ID]) for each in found)
        some = spread.drawn(ids, most, f"{worker} {await Now()}")
        which = In(ID, tuple(found[at][ID] for at in some))
        return await _found(self.records, AllOf((which, where)), len(some), _LONGEST_DUE)

    async def _claimed(self, due: tuple[_Known, ...], worker: str) -> tuple[tuple[_Known, ...], tuple[Idle, ...]]:
        """The records that are under a claim of this worker's now, and why others are not."""
        if not due:
            return (), ()
        missed, unheard = (Idle.NOT_CLAIMED,) * len(due), (Idle.UNHEARD,) * len(due)
        late: tuple[Value, ...] = ()
        try:
            now = await _store_time()
        except (Ambiguous, NotApplied):
            return (), missed
        writes: tuple[_Update, ...] = ()
        for key, record in due:
            at = _as_found(record, now)
            verdict = tasks.claim(record, worker=worker, rules=self.rules, now=at)
            if isinstance(verdict, Lapsed):
                lapsed = _retried(self, verdict.attempts, verdict.failing_since, at)
                verdict = tasks.claim(record, worker=worker, rules=self.rules, now=at, lapsed=lapsed)
            if isinstance(verdict, (Claimed, UpdateRecord)):
                writes = (*writes, (key, record, verdict.write if isinstance(verdict, Claimed) else verdict))
        claims = tuple((key, write.record) for key, _, write in writes if write.record.owner is not None)
        given_up = (Idle.GIVEN_UP,) * (len(writes) - len(claims))
        others = missed[len(writes) :]
        try:
            matched, marks = await self._matched(writes)
            if matched == len(writes):
                return claims, (*others, *given_up)
            late = tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is _Sent.HELD)
            if late:
                given_up = missed[: len(given_up)]
            elif not matched:
                return (), (*others, *given_up, *missed[: len(claims)])
        except NotApplied:
            return (), missed
        except (Ambiguous, NotDurable):
            given_up, missed = missed[: len(given_up)], unheard
        mine = await self._held_of(claims)
        if mine is None:
            return (), (*others, *given_up, *unheard[: len(claims)])
        held = sum(_is_in(key, late) and not any(key == own for own, _ in mine) for key, _ in claims)
        return mine, (*others, *given_up, *(Idle.HELD,) * held, *missed[: len(claims) - len(mine) - held])

    async def _held_of(self, claims: tuple[_Known, ...]) -> tuple[_Known, ...] | None:
        """Those of these claims that were written, as the records are now; None where nobody answers."""
        if not claims:
            return ()
        try:
            found = await self._records(tuple(key for key, _ in claims))
        except (Ambiguous, NotApplied):
            return None
        mine: tuple[_Known, ...] = ()
        for (key, claimed), read in zip(claims, found, strict=True):
            # Nobody else writes this owner and this token.
            if read is not None and _claim_of(read) == _claim_of(claimed):
                mine = (*mine, (key, read))
        return mine

    # --- begin ---

    async def _begun(self, claimed: tuple[_Known, ...]) -> tuple[tuple[Run, ...], tuple[Idle, ...]]:
        """Look at the documents, now that the records are claimed: the runs that begin, and why others do not."""
        if not claimed:
            return (), ()
        begun: tuple[Run, ...] = ()
        idle: tuple[Idle, ...] = ()
        # The record that was written for the claim, and its time, are as good as fresh ones; after any trouble they are asked for.
        left: tuple[_Claimed, ...] = tuple((key, claim_of(record), record) for key, record in claimed)
        known: tuple[TaskRecord | None, ...]
        ending: tuple[Value, ...] = ()  # requests of ours to end these may still arrive, while a handler would run
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            keys = tuple(key for key, _, _ in left)
            try:
                known = tuple(record for _, _, record in left) if attempt == 1 else await self._records(keys)
                documents = await self._documents(keys)
                now = _claimed_at(claimed[0]) if attempt == 1 else await _store_time()
                looks = tuple(
                    self._beginning(key, claim, record, document, now)
                    for (key, claim, _), record, document in zip(left, known, documents, strict=True)
                )
                going = tuple(each for each in looks if isinstance(each, Run))
                begun = (*begun, *(run for run in going if not _is_in(run.key, ending)))
                # What may still be ended does not run.
                held = sum(_is_in(run.key, ending) for run in going)
                idle = (*idle, *(Idle.STALE,) * sum(each is None for each in looks), *(Idle.UNHEARD,) * held)
                writes = tuple(each for each in looks if isinstance(each, _Beginning))
                left = tuple((each.key, each.claim, each.before) for each in writes)
                ending = (*ending, *(each.key for each in writes if each.run is None))
                matched, marks = await self._matched(tuple((each.key, each.before, each.write) for each in writes))
                if matched == len(writes):
                    begun = (*begun, *(each.run for each in writes if each.run is not None))
                    return begun, (*idle, *(Idle.SKIPPED for each in writes if each.run is None))
                if _Sent.HELD not in marks:
                    ending = ()  # what has not matched has moved on, and no request of ours fits it any more
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return begun, (*idle, *(Idle.UNHEARD,) * len(left))

    def _beginning(
        self, key: Value, claim: Claim, record: TaskRecord | None, document: _Read, now: Instant
    ) -> Run | _Beginning | None:
        """What a look at a claimed record comes to: a run, one once this is written, or none."""
        verdict = tasks.begin(record, claim, self._seen(document), rules=self.rules, now=now)
        if isinstance(verdict, Leave):
            return None
        assert record is not None, "a run is of a record"
        match verdict:
            case Go():
                return Run(key, record, claim_of(record))
            case UpdateRecord():
                return _Beginning(key, claim, record, verdict, None)
            case _:
                after = verdict.write.record
                trouble = str(verdict.why) if isinstance(verdict, CannotRun) else None
                return _Beginning(key, claim, record, verdict.write, Run(key, after, claim_of(after), trouble))

    # --- renew, finalise ---

    async def _settled(
        self, runs: tuple[_Settling, ...], *, renews: bool, if_held: Why | None = None
    ) -> tuple[Why | WhyNot | None, ...]:
        """Renew runs, or write down how they have ended: of each why, or why not, or None where nobody knows.

        Args:
            runs: The runs.
            renews: Which of the two.
            if_held: What is said of those whose records are held; they are not tried again here.
        """
        settled: tuple[Why | WhyNot | None, ...] = (None,) * len(runs)
        left = tuple(range(len(runs)))
        known: tuple[TaskRecord | None, ...] = () if renews else tuple(record for _, _, record, _ in runs)
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                if attempt > 1 or renews:
                    known = await self._records(tuple(runs[at][0] for at in left))
                now = await _store_time()
                verdicts = tuple(
                    self._end_of(runs[at], record, now, renews=renews) for at, record in zip(left, known, strict=True)
                )
                decided = tuple(zip(left, known, verdicts, strict=True))
                for at, _, verdict in decided:
                    if isinstance(verdict, Leave):
                        settled = (*settled[:at], verdict.why, *settled[at + 1 :])
                writes = tuple(
                    (runs[at][0], record, verdict)
                    for at, record, verdict in decided
                    if record is not None and isinstance(verdict, UpdateRecord)
                )
                left = tuple(at for at, _, verdict in decided if isinstance(verdict, UpdateRecord))
                matched, marks = await self._matched(writes)
                if matched == len(writes):
                    for at, _, verdict in decided:
                        settled = (*settled[:at], verdict.why, *settled[at + 1 :])
                    left = ()
                elif _Sent.HELD in marks:
                    for at, mark in zip(left, marks, strict=True):
                        if mark is _Sent.HELD:
                            settled = (*settled[:at], if_held, *settled[at + 1 :])
                    left = tuple(at for at, mark in zip(left, marks, strict=True) if mark is not _Sent.HELD)
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return settled

    def _end_of(self, run: _Settling, record: TaskRecord | None, now: Instant, *, renews: bool) -> UpdateRecord | Leave:
        _, claim, _, answer = run
        if renews:
            return tasks.renew(record, claim, rules=self.rules, now=now)
        return self._finalise(record, claim, self._outcome(claim, answer, now), now)

    def _outcome(self, claim: Claim, answer: HandlerAnswer, now: Instant) -> HandlerOutcome:
        match answer:
            case None:
                return Succeeded()
            case Later(after):
                return Deferred(now + after)
            case _:
                since = now if claim.failing_since is None else claim.failing_since
                return Failed(
                    answer,
                    _retried(self, max(claim.attempts, 1), since, now, backoff.draw_of(f"{claim.id} {claim.token}")),
                )

    def _finalise(
        self, record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, now: Instant
    ) -> UpdateRecord | Leave:
        """What ends a run."""
        return tasks.finalise(record, claim, outcome, rules=self.rules, now=now)

    # --- what is read and written ---

    def _by_id(self, key: Value) -> Filter:
        """What the record of a document is found by."""
        return Eq(ID, record_id(self.name, key))

    def _unchanged(self, key: Value, write: UpdateRecord | RemoveRecord) -> Filter:
        """What a write is guarded by: the record is still what this was decided on."""
        return guarded(record_id(self.name, key), write.on)

    async def _insert(self, new: tuple[tuple[Value, TaskRecord], ...]) -> bool:
        """Insert the first records of documents: was there none of any?"""
        docs = tuple(stored(record, self.name, key) for key, record in new)
        if len(docs) == 1:
            return await insert_new(self.records, docs[0])
        return await insert_many(self.records, *docs) == len(docs)

    async def _read_documents(self, keys: tuple[Value, ...]) -> tuple[_Read, ...]:
        """The documents of these ids, in their order."""
        where = _any_of(tuple(Eq(_KEY, key) for key in keys))
        found = await _found(self.source, where, len(keys), fields=self.fields)
        return _in_order(self.name, keys, found, lambda doc: record_id(self.name, needed(doc, _KEY)))

    def _seen(self, document: _Read) -> Seen:
        if document is None:
            return Gone()
        if isinstance(document, NotComputed):
            return document
        if document.held(ID) == ZERO_TIMESTAMP:
            return NotComputed(ID.name, "of a timestamp of 0 no record can be inserted")
        if self.where is not None and not matches(self.where, document, _no_clock):
            return NotMatching()
        taken = snapshot(document, self.watched)
        return taken if isinstance(taken, NotComputed) else Matching(taken)

    async def _records(
        self, keys: tuple[Value, ...], fields: Fields | None = DECIDED_ON
    ) -> tuple[TaskRecord | None, ...]:
        """The records of these documents, in their order, without their histories; one that cannot be read is set aside, and has
        failed then.
        """
        where = _any_of(tuple(self._by_id(key) for key in keys))
        found = _in_order(self.name, keys, await _found(self.records, where, len(keys), fields=fields), _record_id)
        read = tuple(None if each is None else self._read(each) for each in found)
        if fields is not None and any(isinstance(record, str) for record in read):
            return await self._records(keys, None)  # what is kept of one is all that it held
        for key, doc, record in zip(keys, found, read, strict=True):
            if doc is not None and isinstance(record, str):
                await self._set_aside(doc, record, Put(TASK, self.name), Put(DOCUMENT, key))
        if any(isinstance(record, str) for record in read):
            return await self._records(keys)
        return tuple(record for record in read if not isinstance(record, str))

    async def _documents(self, keys: tuple[Value, ...]) -> tuple[_Read, ...]:
        """The documents of these ids, in their order. One that is unreadable makes the reply so, and is found by halves."""
        try:
            return await self._read_documents(keys)
        except Unreadable as failure:
            if len(keys) == 1:
                return (NotComputed("what is watched", failure.reason),)
        half = len(keys) // 2
        return (*await self._documents(keys[:half]), *await self._documents(keys[half:]))

    def _read(self, found: Document) -> TaskRecord | str:
        """The record that was found, or why it is none."""
        try:
            record = loaded(found)
            is_mine = matches(self._by_id(needed(found, DOCUMENT)), found, _no_clock)
        except Misuse as unreadable:
            return unreadable.what
        return record if is_mine and found.held(TASK) == self.name else "its id is not that of its task and document"

    async def _set_aside(self, found: Document, why: str, *names: Put[str] | Put[Value]) -> bool:
        now = await _store_time()
        still, updates = set_aside(found, why, now)
        return await update_one(self.records, still, *updates, *names) > 0

    async def _written(self, writes: tuple[_Write, ...]) -> tuple[_Sent, ...]:
        """Write them, those of a kind in one request: what became of each? After the first trouble, no more are known to be written."""
        new = tuple((key, write.record) for key, _, write in writes if isinstance(write, InsertRecord))
        gone = tuple(self._unchanged(key, write) for key, _, write in writes if isinstance(write, RemoveRecord))
        updates = tuple(
            (key, before, write)
            for key, before, write in writes
            if before is not None and isinstance(write, UpdateRecord)
        )
        done: tuple[type[object], ...] = ()
        marks = (_Sent.OPEN,) * len(updates)
        try:
            if new and await self._insert(new):
                done = (InsertRecord,)
            if gone and await _removed(self.records, gone) == len(gone):
                done = (*done, RemoveRecord)
            _, marks = await self._matched(updates)
        except (Ambiguous, NotApplied, NotDurable):
            pass
        of_updates = iter(marks)
        return tuple(
            next(of_updates) if isinstance(write, UpdateRecord) else _Sent.DONE if type(write) in done else _Sent.OPEN
            for _, _, write in writes
        )

    async def _matched(self, updates: tuple[_Update, ...]) -> tuple[int, tuple[_Sent, ...]]:
        """Send these: how many were what they were decided on, and what became of each?

        Those of runs are sent apart, for a transaction may hold them up: within a time limit, and where that runs out, one after
        the other.
        """
        asked = tuple(
            update_one(
                self.records,
                self._unchanged(key, write),
                *changes(before, write.record, self.rules.history_max),
                within=None if before.owner is None else self.within,
            )
            for key, before, write in updates
        )
        free = tuple(each for each in asked if each.within is None)
        of_runs = tuple(each for each in asked if each.within is not None)
        matched = await send_updates(free) if free else 0
        is_done = matched == len(free)
        more, late = await self._sent_in_time(of_runs) if of_runs else (0, ())
        marks = {
            **dict.fromkeys(free, _Sent.DONE if is_done else _Sent.OPEN),
            **dict.fromkeys(of_runs, _Sent.DONE if more == len(of_runs) else _Sent.OPEN),
            **dict.fromkeys(late, _Sent.HELD),
        }
        return matched + more, tuple(marks[each] for each in asked)

    async def _sent_in_time(self, of_runs: tuple[UpdateOne, ...]) -> tuple[int, tuple[UpdateOne, ...]]:
        """Send these within their limit: how many have matched, as far as that is known, and which are held."""
        matched, late = await self._tried(of_runs)
        if not late or len(of_runs) == 1:
            return matched, late
        late = ()
        for each in of_runs:
            if len(late) < _HELD_MAX:
                more, held = await self._tried((each,))
                matched, late = matched + more, (*late, *held)
            else:
                late = (*late, each)
        return matched, late

    async def _tried(self, updates: tuple[UpdateOne, ...]) -> tuple[int, tuple[UpdateOne, ...]]:
        """How many have matched; or all of them as late, where the limit runs out."""
        try:
            return await send_updates(updates), ()
        except Ambiguous as failure:
            if not is_too_late(failure):
                raise
        return 0, updates


_SOURCES: Final[Mapping[type[Seen], Source]] = {
    Matching: Source.MATCHING,
    NotMatching: Source.NOT_MATCHING,
    Gone: Source.GONE,
    NotComputed: Source.UNKNOWN,
}


async def _removed(records: str, which: tuple[Filter, ...]) -> int:
    """How many were removed, each if it is still what was decided on: so many in a request as a server takes in its stride."""
    total = 0
    for start in range(0, len(which), _REMOVED_MAX):
        some = which[start : start + _REMOVED_MAX]
        total += await (delete_one(records, some[0]) if len(some) == 1 else delete_many(records, AnyOf(some)))
    return total


_REMOVED_MAX: Final = 200


@final
@unique
class _Sent(Enum):
    """What became of a write."""

    DONE = "it is written"
    OPEN = "it is not known to be written"
    HELD = "a transaction holds the record, and it cannot be written now"


_Read: TypeAlias = Document | NotComputed | None
"""What there is of a document: why it cannot be read, where it cannot."""
_Known: TypeAlias = tuple[Value, TaskRecord]
_Claimed: TypeAlias = tuple[Value, Claim, TaskRecord]
_Update: TypeAlias = tuple[Value, TaskRecord, UpdateRecord]
_Write: TypeAlias = tuple[Value, TaskRecord | None, InsertRecord | UpdateRecord | RemoveRecord]
_Settling: TypeAlias = tuple[Value, Claim, TaskRecord | None, HandlerAnswer]


@final
@attrs.frozen
class _Beginning:
    """A run that begins once this is written; none for one that is over then."""

    key: Value = attrs.field(eq=exactly)
    claim: Claim
    before: TaskRecord
    write: UpdateRecord
    run: Run | None


async def _found(
    collection: str, where: Filter, most: int, sort: Sort = (), fields: Fields | None = None
) -> tuple[Document, ...]:
    if most == 1:
        one = await find_one(collection, where, fields=fields, sort=sort)
        return () if one is None else (one,)
    return await find_all(collection, where, limit=most, fields=fields, sort=sort)


def _in_order(
    task: str, keys: tuple[Value, ...], found: tuple[Document, ...], of: Callable[[Document], Value]
) -> tuple[Document | None, ...]:
    """What was found of each of these documents.

    Args:
        task: The name of the task.
        keys: The ids of the documents.
        found: What was found, in any order.
        of: The id of the record of the document that it is of, or that it is the record of.
    """
    if len(keys) == 1:
        return found or (None,)
    docs = {of(doc): doc for doc in found}
    return tuple(docs.get(record_id(task, key)) for key in keys)


def _any_of(filters: tuple[Filter, ...]) -> Filter:
    """Whatever matches one of them."""
    if len(filters) == 1:
        return filters[0]
    equal = tuple(each for each in filters if isinstance(each, Eq))
    is_one_field = len(equal) == len(filters) and len({each.field for each in equal}) == 1
    return In(equal[0].field, tuple(each.value for each in equal)) if is_one_field else AnyOf(filters)


def _record_id(record: Document) -> Value:
    return needed(record, _KEY)  # whatever else it holds: it may be none


def _is_in(key: Value, keys: tuple[Value, ...]) -> bool:
    return any(exactly(key) == exactly(each) for each in keys)


def _claim_of(record: TaskRecord) -> tuple[str, str | None, int]:
    """What tells one claim from all others."""
    return record.id, record.owner, record.token


def _due_at(record: TaskRecord) -> Instant:
    assert record.next_run_at is not None, "what is pending is due"
    return record.next_run_at


def _as_found(record: TaskRecord, now: Instant) -> Instant:
    """The time by which a record is claimed that the store has found to be due: it is then, though one that is behind says later."""
    due = record.next_run_at
    return due if due is not None and 0 < due - now <= BEHIND else now


def _claimed_at(known: _Known) -> Instant:
    at = known[1].claimed_at
    assert at is not None, "it is claimed"
    return at


def _retried(task: ReactiveTask, attempts: int, since: Instant, now: Instant, draw: int = 0) -> NextAttempt:
    verdict = backoff.decide(task.policy, attempts, since, now, draw)
    return tasks.TryAgain(verdict.at) if isinstance(verdict, backoff.Retry) else tasks.GiveUp()


def _no_clock() -> Instant:
    raise Misuse(
        "a filter of a reactive task asks how old something is", why="no change reports when that becomes true"
    )
