"""The programs of a reactive task: look at documents, take what is due, run the handler, remove what is of no use.

The decisions are `tidegate.reactive.tasks` and `tidegate.reactive.orphans`; this is the way to carry them out, so that they
are right whatever becomes of requests and replies, whoever else is at work and however long one of them stands still; for one
document or for a thousand, whose requests are the same in number.

    plan_pass   the records, THEN their documents, the store's time; write what each look means
    plan_and_take   the same, which claims what it makes due; THEN looks again, unless a later pass is certain to
    clean_up    the records, THEN their documents; remove those of no use, and plan what was seen of others
    fetcher.take        records that are due; claim them, THEN look at their documents: their handlers are to run
    fetcher.give_back   what is in the name of a worker, and not in its hands
    completer.end       write how runs have ended
    completer.complete  the same of one that has succeeded, in a transaction of its handler's
    completer.renew     the leases of runs go on
    work        for ever: take one, call its handler, end it, and look ever more rarely while nothing is due

Each write is one compare-and-set on all that the decision was taken on. It answers a total (`_record_store`): where fewer have matched, or
nobody answers, the records are read again and decided anew: a claim that went through shows its owner and its token, an end that
went through is no longer held, and a look that was written finds nothing changed. So nothing needs to be known of a lost reply, nor
of which part of a request was done.

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
from types import NoneType
from typing import Final, NoReturn, TypeAlias, final

import attrs

from tidegate.model.documents import FILTERS, Ascending, Exists, Filter, Value, exactly
from tidegate.model.effects import Ambiguous, Call, Failure, NotApplied, NotDurable, Now, Program, Sleep
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, Index, Indexes, check_collection
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.reactive import orphans, tasks
from tidegate.reactive._record_store import DocumentReader, RecordStore, RecordWrite, Sent, is_in
from tidegate.reactive.completion import Completer, HandlerAnswer, answered
from tidegate.reactive.fetching import Fetcher, Idle, KnownRecord, Run, SetAside
from tidegate.reactive.orphans import RemoveRecord, Source
from tidegate.reactive.plan_queries import FindChanged, FindOrphaned, PlanPage
from tidegate.reactive.snapshot import NotComputed, Projection
from tidegate.reactive.task_documents import DOCUMENT, NEXT_RUN_AT, TASK, record_id
from tidegate.reactive.task_records import TaskRecord
from tidegate.reactive.tasks import Claim, Gone, Leave, Matching, NotMatching, PlanVerdict, Seen, Why, WhyNot, claim_of
from tidegate.retries import backoff
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.polling import Ask, PollingBounds, Wait, fresh, turn, woken

_LIMIT_PART: Final = 24
"""This part of a lease is the time limit of a write that a transaction may hold up;"""
_LIMIT_LEAST: Final = 50 * MILLISECOND
_LIMIT_MOST: Final = 250 * MILLISECOND
"""within these bounds, so that a renewal that runs out of time is sent again long before its lease ends."""
_ATTEMPTS: Final = 8
"""How often a look, a claim or an end is tried before it is left to the next pass, or to the end of the lease."""


# --- answers ----------------------------------------------------------------------------------------------------------


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


Worked: TypeAlias = Idle | Ran | SetAside


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
        store, reader: Its records, and the documents that it follows.
        fetcher: Takes what is due.
        completer: Writes down how runs have ended, and renews the others.
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
        """What a look for what is due needs: it reads the records that it takes, however many are due or finished; and what
        `find_changed` needs to find the record of a document.
        """
        due = Index((Ascending(TASK), Ascending(NEXT_RUN_AT)), Exists(NEXT_RUN_AT))
        return {self.records: (due, Index((Ascending(TASK), Ascending(DOCUMENT))))}

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
            What the handler has returned (`answered`).

        Raises:
            Failure: It fails.
        """
        return await Call(self.name, (key, claim), catches=True)

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
        marks = await self.store.write(writes)
        left = tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is Sent.OPEN)
        return left, tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is Sent.HELD)

    async def _decided(
        self, keys: tuple[Value, ...], request: str | None
    ) -> tuple[tuple[RecordWrite, ...], Instant | None]:
        """What is to be written after one look at each, the record BEFORE the document, and when that was."""
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
        """What a look means."""
        verdict = tasks.plan(record, seen, rules=self.rules, now=now, new_id=new_id)
        if self.noted is not None:
            self.noted(seen, verdict, now)
        return verdict

    def _clean_up(self, record: TaskRecord, seen: Seen, now: Instant) -> RemoveRecord | PlanVerdict:
        """What the look of a sweep means: the record goes, or what is planned."""
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
