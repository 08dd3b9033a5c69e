"""Carry out the decisions of a reactive task: plan, claim, run and clean up.

`tidegate.reactive.record.tasks` and `tidegate.reactive.record.orphans` decide; these programs send the requests.
They stay correct when replies are lost, other processes work concurrently, or one process stalls.
The number of requests does not depend on the number of documents.

    plan_pass   read the records, THEN their documents and the store's time; write the verdicts
    plan_and_take   the same, and claim records it makes due; THEN look again, unless a later pass
                    is certain to
    clean_up    read the records, THEN their documents; remove useless records and plan the others
    fetcher.take        claim due records, THEN read their documents: their handlers will run
    fetcher.give_back   return records that a worker owns but does not run
    completer.end       write the ends of runs
    completer.complete  write the end of one successful run in its handler's transaction
    completer.renew     extend the leases of runs
    work        loop: take one, call its handler, end it; poll ever more rarely while nothing is due

Each write is one compare-and-set on everything its decision read. It returns a total
(`_record_store`). If fewer records match, or no reply arrives, the program reads and decides again.
A claim that succeeded shows its owner and token; an ended run is no longer held; a written look
finds no change. So programs need not know about lost replies or partial requests.

Laws, over the records, the documents, what was handled and the state of the workers:
    RT1  No change is lost: at rest, what a document says was handled, or its run was given up.
    RT2  At most one worker runs under a claim.
    RT3  A worker that runs under a claim whose lease lasts finds its record as it claimed it: the
         result of an outdated run changes nothing.
    RT4  At rest, a document that was deleted has no record.
    RT5  Each state of a document is handled at most as often as the policy allows attempts,
         whatever workers do.
    RT6  A finished record is not due, and a due record is not finished: no end makes work.
    RT7  While the lease of a claim lasts, by the store's clock, no other worker claims its record.
    RT8  At rest, a live worker owns only the records that it runs.
    RT9  A write of a record that a transaction holds has a time limit, unless it is in that
         transaction.

Known limits
    - A worker that stalls beyond its lease runs beside its successor, and learns so at its end.
    - A record's first insert may arrive after the record was inserted, finished and removed. It
      restores the record; the document is gone, so it completes without the handler and is removed.
    - A record with unreadable content is `Unreadable`, and so are all records taken with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Final, NoReturn, TypeAlias, final

import attrs

from tidegate.model.documents import FILTERS, Ascending, Exists, Filter, Value, exactly
from tidegate.model.effects import Ambiguous, Call, Failure, NotApplied, NotDurable, Now, Program, Sleep
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, Index, Indexes, check_collection
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.reactive.record import orphans, tasks
from tidegate.reactive.record._record_store import DocumentReader, RecordStore, RecordWrite, Sent, is_in
from tidegate.reactive.record.orphans import RemoveRecord, Source
from tidegate.reactive.record.snapshot import NotComputed, Projection
from tidegate.reactive.record.task_documents import DOCUMENT, NEXT_RUN_AT, TASK, record_id
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.reactive.record.tasks import (
    Claim,
    Gone,
    Leave,
    Matching,
    NotMatching,
    PlanVerdict,
    Seen,
    Why,
    WhyNot,
    claim_of,
)
from tidegate.reactive.task.completion import Completer, HandlerAnswer, answered
from tidegate.reactive.task.fetching import Fetcher, Idle, KnownRecord, Run, SetAside
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned, PlanPage
from tidegate.retries import backoff
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.polling import Ask, PollingBounds, Wait, fresh, turn, woken

_LIMIT_PART: Final = 24
"""Lease divided by this limits a write that a transaction may block."""
_LIMIT_LEAST: Final = 50 * MILLISECOND
_LIMIT_MOST: Final = 250 * MILLISECOND
"""Bounds of that limit: a renewal that times out is sent again long before its lease ends."""
_ATTEMPTS: Final = 8
"""Tries of a look, a claim or an end; then the next pass or the end of the lease resolves it."""


# --- answers ----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Ran:
    """A handler was called.

    Attributes:
        claim: The claim it ran under.
        end: Why its end was written or not; None if unknown: retry, or the next claim finds out.
    """

    claim: Claim
    end: Why | WhyNot | None

    def __str__(self) -> str:
        return f"{self.claim}: {'nobody knows' if self.end is None else self.end.value}"


Worked: TypeAlias = Idle | Ran | SetAside


@final
@attrs.frozen
class Planned:
    """The result of a pass that claims.

    Attributes:
        left: Ids whose look may be unwritten: `plan_pass` looks at them again.
        held: Ids whose records a transaction holds: a later pass looks at them again.
        runs: The runs that have begun.
        due: Microseconds until the first planned, unclaimed record is due; None if there is none.
        is_unheard: The outcome of some claim is unknown (`Idle.UNHEARD`).
    """

    left: tuple[Value, ...] = attrs.field(eq=exactly)
    runs: tuple[Run, ...] = ()
    due: Duration | None = None
    is_unheard: bool = False
    held: tuple[Value, ...] = attrs.field(default=(), eq=exactly)


async def _is_not_known() -> bool:
    return False


# --- the task ---------------------------------------------------------------------------------------------------------


def _records_of(task: ReactiveTask) -> str:
    return f"{task.source}_tasks"


@final
@attrs.frozen(kw_only=True)
class ReactiveTask:
    """A task that follows the documents of a collection. Invariants: the name is not empty; 1 <= attempts.

    Attributes:
        name: Names the task and its handler (`Call`), which takes the document's id and the claim.
        source: The collection of the documents.
        records: The collection of the task records; `<source>_tasks` unless it is set.
        watched: The watched values of a document.
        where: Filter of its documents; None for all. It must not depend on age, which changes alone.
        rules: How it runs.
        policy: When a failed run is retried.
        cleaning: When records are removed.
        attempts: Tries of each write; None for any number.
        pauses: The waits between tries.
        polling: How often `work` polls for due records.
        followed: Whether the current leader is certain to look, in a later pass, at all changes
            since this pass began (`change_stream.is_followed`). Called AFTER its claims are written.
        noted: Receives each look, its verdict and its time; None for no observer.
        store, reader: Its records, and the documents that it follows.
        fetcher: Claims due records.
        completer: Writes the ends of runs, and renews leases.
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
    store: RecordStore = attrs.field(init=False, repr=False, eq=False)
    reader: DocumentReader = attrs.field(init=False, repr=False, eq=False)
    fetcher: Fetcher = attrs.field(init=False, repr=False, eq=False)
    completer: Completer = attrs.field(init=False, repr=False, eq=False)

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
        store = RecordStore(self.name, self.records, self.rules.history_max, self.within)
        reader = DocumentReader(self.name, self.source, self.watched, self.where)
        bounds = self.rules, self.policy, self.attempts, self.pauses
        object.__setattr__(self, "store", store)
        object.__setattr__(self, "reader", reader)
        object.__setattr__(self, "fetcher", Fetcher(store, reader, *bounds))
        object.__setattr__(self, "completer", Completer(store, *bounds))

    @property
    def indexes(self) -> Indexes:
        """The indexes of two queries.

        The first lets a fetch read only the records that it takes. With the second `find_changed`
        finds the record of a document.
        """
        due = Index((Ascending(TASK), Ascending(NEXT_RUN_AT)), Exists(NEXT_RUN_AT))
        return {self.records: (due, Index((Ascending(TASK), Ascending(DOCUMENT))))}

    @property
    def within(self) -> Duration:
        """The time limit of a write of a record that a transaction may hold."""
        return min(max(self.rules.lease // _LIMIT_PART, _LIMIT_LEAST), _LIMIT_MOST)

    async def find_changed(self, after: tuple[Value, ...], limit: int) -> PlanPage:
        """Find the documents that `plan_pass` must look at.

        Args:
            after: The end of the previous page (`PlanPage.after`); empty for the first page.
            limit: About how many documents at most; 1 <= limit <= LOOKED_AT_MAX.

        Returns:
            The ids and the end of the page; empty after the last page.

        Raises:
            Misuse: A computed value has no expression.
            Failure: No reply, or the store refuses: an expression fails on a document.
        """
        return await FindChanged(self.source, self.records, self.name, self.watched, self.where, limit, after)

    async def find_orphaned(self, after: tuple[Value, ...], limit: int) -> PlanPage:
        """Find the documents that `clean_up` must look at.

        They are gone, or no longer match and the clean-up removes such records.

        Args:
            after: As for `find_changed`, over records.
            limit: About how many records at most.

        Returns:
            The ids of the documents, and the end of the page.

        Raises:
            Failure: No reply, or the store refuses.
        """
        leaves = self.cleaning.delete_when is orphans.DeleteWhen.SOURCE_GONE_OR_LEFT
        where = self.where if leaves else None
        return await FindOrphaned(self.records, self.source, self.name, where, limit, after)

    async def plan_pass(self, keys: tuple[Value, ...], request: str) -> tuple[Value, ...]:
        """Look at these documents and write the verdicts.

        Args:
            keys: Their ids, of any type that MongoDB allows.
            request: A unique id of this pass; the ids of new records derive from it.

        Returns:
            The ids whose look may be unwritten: none if the pass succeeded.
        """
        check_name(request, "a pass")
        return await self._looked(keys, request)

    async def plan_and_take(self, keys: tuple[Value, ...], request: str, worker: str, most: int) -> Planned:
        """Look at these documents once, and claim some due ones in the same write.

        THEN look at the claimed ones again, unless a later pass is certain to (`followed`).

        Args:
            keys: The ids of the documents, of any type.
            request: A unique id of this pass, as for `plan_pass`.
            worker: The claiming worker; it takes no other record of this task meanwhile.
            most: How many runs at most; 1 <= most <= FOUND_MAX.

        Returns:
            The runs that began, and the rest for `plan_pass` and `take`.
        """
        check_name(request, "a pass")
        check_name(worker, "a worker")
        check_int(most, "a number of records", 1, FOUND_MAX)
        once = self._once(keys)
        try:
            writes, now = await self._decided(once[:FOUND_MAX], request)
        except (Ambiguous, NotApplied, NotDurable):
            return Planned(once)
        asked: tuple[RecordWrite, ...] = ()
        claims: tuple[KnownRecord, ...] = ()
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
        marks = await self.store.write(asked)
        late = tuple(key for (key, _, _), mark in zip(asked, marks, strict=True) if mark is Sent.HELD)
        unsure = tuple(key for (key, _, _), mark in zip(asked, marks, strict=True) if mark is Sent.OPEN)
        held = tuple(each for each in claims if not is_in(each[0], unsure))
        found = await self.fetcher.held_of(tuple(each for each in claims if is_in(each[0], unsure))) or ()
        left = tuple(key for key in unsure if not is_in(key, tuple(of for of, _ in found)))
        is_unheard = len(held) + len(found) < len(claims)
        runs: tuple[Run, ...] = ()
        if held and await self.followed():
            runs = tuple(Run(key, record, claim_of(record)) for key, record in held if record.snapshot is not None)
            held = tuple(each for each in held if each[1].snapshot is None)  # what its document has left is completed
        begun, idle = await self.fetcher.begin((*held, *found))
        is_unheard = is_unheard or Idle.UNHEARD in idle
        return Planned((*left, *once[FOUND_MAX:]), (*runs, *begun), min(dues, default=None), is_unheard, late)

    async def clean_up(self, keys: tuple[Value, ...]) -> tuple[Value, ...]:
        """Look at the records of these documents: remove the useless ones, plan the others.

        Args:
            keys: The ids of the documents, of any type.

        Returns:
            The ids whose look may be unwritten: none if the pass succeeded.
        """
        return await self._looked(keys, None)

    async def work(self, worker: str) -> NoReturn:
        """Run due records one by one, for ever; poll ever more rarely while none is due.

        A lost race or a missing reply counts as an empty poll.

        Args:
            worker: As for `take`. It also seeds the jitter, so that workers poll at different times.

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
        """Take one due record and run its handler."""
        (worked,) = await self.work_some(worker, 1)
        return worked

    async def work_some(self, worker: str, most: int) -> tuple[Worked, ...]:
        """Take due records, run their handlers one by one, and write their ends.

        Args:
            worker: As for `take`.
            most: How many at most.

        Returns:
            The result of each; `Idle.NOTHING_DUE` if no record is due.
        """
        runs, others = await self.fetcher.take(worker, most)
        ended: tuple[tuple[Run, HandlerAnswer], ...] = ()
        for run in runs:
            answer: HandlerAnswer = run.trouble
            if answer is None:
                try:
                    answer = answered(await self.handle(run.key, run.claim))
                except Failure as failure:
                    answer = failure.reason or str(failure)
            ended = (*ended, (run, answer))
        ends = await self.completer.end(ended)
        return (*(Ran(run.claim, end) for run, end in zip(runs, ends, strict=True)), *others)

    async def handle(self, key: Value, claim: Claim) -> object:
        """Call the handler of a document under a claim.

        Args:
            key: The document's id.
            claim: The run.

        Returns:
            The handler's answer (`answered`).

        Raises:
            Failure: The handler fails.
        """
        return await Call(self.name, (key, claim), catches=True)

    # --- plan, clean up ---

    async def _looked(self, keys: tuple[Value, ...], request: str | None) -> tuple[Value, ...]:
        """Look at these documents, to plan or (no request) to clean up; return those left."""
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
        check_type(keys, tuple, "a tuple of ids")
        return tuple({record_id(self.name, key): key for key in keys}.values())

    async def _look(self, keys: tuple[Value, ...], request: str | None) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Look once; return the keys whose write is uncertain, and those a transaction holds."""
        writes, _ = await self._decided(keys, request)
        marks = await self.store.write(writes)
        left = tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is Sent.OPEN)
        return left, tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is Sent.HELD)

    async def _decided(
        self, keys: tuple[Value, ...], request: str | None
    ) -> tuple[tuple[RecordWrite, ...], Instant | None]:
        """The writes after one look, and its time. It reads records BEFORE documents."""
        known = tuple(zip(keys, await self.store.find(keys), strict=True))
        if request is None:
            known = tuple((key, record) for key, record in known if record is not None)
            if not known:
                return (), None
        documents = await self.reader.find(tuple(key for key, _ in known))
        now = await self.store.now()
        writes: tuple[RecordWrite, ...] = ()
        for (key, record), document in zip(known, documents, strict=True):
            seen = self.reader.seen(document)
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
        verdict = tasks.plan(record, seen, rules=self.rules, now=now, new_id=new_id)
        if self.noted is not None:
            self.noted(seen, verdict, now)
        return verdict

    def _clean_up(self, record: TaskRecord, seen: Seen, now: Instant) -> RemoveRecord | PlanVerdict:
        verdict = orphans.clean_up(record, _SOURCES[type(seen)], self.cleaning, now)
        return verdict if isinstance(verdict, RemoveRecord) else self._plan(record, seen, now, record.id)


_SOURCES: Final[Mapping[type[Seen], Source]] = {
    Matching: Source.MATCHING,
    NotMatching: Source.NOT_MATCHING,
    Gone: Source.GONE,
    NotComputed: Source.UNKNOWN,
}


def _due_at(record: TaskRecord) -> Instant:
    assert record.next_run_at is not None, "what is pending is due"
    return record.next_run_at
