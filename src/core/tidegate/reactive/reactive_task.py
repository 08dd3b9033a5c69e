"""The programs of a reactive task: look at documents, take what is due, run the handler, remove what is of no use.

The decisions are `tidegate.reactive.tasks` and `tidegate.reactive.orphans`; this is the way to carry them out, so that they
are right whatever becomes of requests and replies, whoever else is at work and however long one of them stands still.

    plan_pass   for each document: its record, THEN the document, the store's time; write what the look means
    work_one    a record that is due; claim it, look at the document, call the handler, write how it ended
    work        the same for ever, looking ever more rarely while nothing is due (`tidegate.retries.polling`)
    renew       the lease of a run goes on
    clean_up    for each record: the record, THEN the document; remove it if it is of no use, or plan what was seen

Each write is one compare-and-set on all that the decision was taken on. If nothing matches, or nobody answers, the record
is read again and decided anew: a claim that went through shows its owner and its token, an end that went through is no
longer held, and a look that was written finds nothing changed. So nothing needs to be known of a lost reply.

Laws, over the records, the documents, what was handled and where the workers stand:
    RT1  No change is lost: at rest, what a document says was handled, or its run was given up.
    RT2  At most one worker runs under a claim.
    RT3  A worker that runs under a claim whose lease lasts finds its record as it claimed it: the result of an outdated
         run changes nothing.
    RT4  At rest, a document that was deleted has no record.
    RT5  What a document says is handled at most as often as the policy allows attempts, whatever becomes of workers.
    RT6  A record that is finished is not due, and one that is due is not finished: nothing that ends makes work.
    RT7  While the lease of a claim lasts, by the store's clock, nobody else claims its record.

Known not to work
    - A worker that stands still beyond its lease runs beside the one that has taken over, until it learns so at its end.
    - A record's first insert that arrives after the record was inserted, finished and removed brings it back: the
      document is gone, so it is completed without the handler, and removed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from hashlib import sha256
from types import NoneType
from typing import Final, NoReturn, TypeAlias, final

import attrs

from tidegate.model.documents import (
    FILTERS,
    ID,
    AllOf,
    Document,
    Eq,
    Field,
    Filter,
    OlderThan,
    Put,
    Value,
    exactly,
    matches,
    show,
)
from tidegate.model.effects import Ambiguous, Call, Failure, NotApplied, NotDurable, Now, Program, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import PPM, Duration, Instant
from tidegate.model.operations import StoreTime, check_collection, delete_one, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.reactive import orphans, tasks
from tidegate.reactive.orphans import RemoveRecord, Source
from tidegate.reactive.snapshot import NotComputed, Projection, snapshot
from tidegate.reactive.task_documents import (
    DOCUMENT,
    NEXT_RUN_AT,
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
from tidegate.retries import backoff
from tidegate.retries.pauses import PAUSES, Pauses, pause
from tidegate.retries.polling import Ask, PollingBounds, Wait, fresh, turn, woken

__all__ = [
    "PARTS",
    "Idle",
    "Later",
    "Ran",
    "ReactiveTask",
    "ReactiveTaskParts",
    "SetAside",
    "Worked",
]


_KEY: Final = Field[Value](ID.name)

_ATTEMPTS: Final = 8
"""How often a look, a claim or an end is tried before it is left to the next pass, or to the end of the lease."""


# --- answers ----------------------------------------------------------------------------------------------------------


class Idle(Enum):
    """Why no handler was called."""

    NOTHING_DUE = "nothing is due"
    NOT_CLAIMED = "another was faster, or nobody answered"
    GIVEN_UP = "the lease of its last run has ended, and the policy gave up"
    SKIPPED = "its document is gone, or no longer matches"
    STALE = "the claim was lost before the handler began"


@final
@attrs.frozen
class Ran:
    """A handler was called.

    Attributes:
        claim: Under this claim.
        end: Why its end was written, or why it was not; None where nobody knows, and the next claim will find out.
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
    """What a handler answers to be called again after this time, in microseconds: no failure, and no attempt."""

    after: Duration

    def __attrs_post_init__(self) -> None:
        check_int(self.after, "a time in microseconds", 0)


_Answer: TypeAlias = str | Later | None
"""What came of a handler: the text of a failure, a request to be called later, or a success."""


def _answer(reply: object) -> _Answer:
    """What a handler answers: nothing else than these two is taken for a success, or for anything."""
    if reply is None or isinstance(reply, Later):
        return reply
    return f"the handler answered a {type(reply).__name__}: None is a success, Later(...) asks to be called again"


# --- parts ------------------------------------------------------------------------------------------------------------


def _plan(task: ReactiveTask, record: TaskRecord | None, seen: Seen, now: Instant, new_id: str) -> PlanVerdict:
    return tasks.plan(record, seen, rules=task.rules, now=now, new_id=new_id)


def _clean_up(task: ReactiveTask, record: TaskRecord, seen: Seen, now: Instant) -> RemoveRecord | PlanVerdict:
    verdict = orphans.clean_up(record, _SOURCES[type(seen)], task.cleaning, now)
    return verdict if isinstance(verdict, RemoveRecord) else task.parts.plan(task, record, seen, now, record.id)


def _lapsed(task: ReactiveTask, run: Lapsed, now: Instant) -> NextAttempt:
    return _retried(task, run.attempts, run.failing_since, now)


def _finalise(
    task: ReactiveTask, record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, now: Instant
) -> UpdateRecord | Leave:
    return tasks.finalise(record, claim, outcome, rules=task.rules, now=now)


def _by_id(task: ReactiveTask, key: Value) -> Filter:
    return Eq(ID, record_id(task.name, key))


async def _insert(task: ReactiveTask, key: Value, record: TaskRecord) -> bool:
    return await insert_new(task.records, stored(record, task.name, key))


def _unchanged(task: ReactiveTask, key: Value, write: UpdateRecord | RemoveRecord) -> Filter:
    return guarded(record_id(task.name, key), write.on)


def _due(task: ReactiveTask) -> Filter:
    return AllOf((Eq(TASK, task.name), OlderThan(NEXT_RUN_AT, 0)))


async def _store_time() -> Instant:
    return await StoreTime()


async def _handle(task: ReactiveTask, key: Value, claim: Claim) -> object:
    return await Call(task.name, (key, claim), catches=True)


@final
@attrs.frozen
class ReactiveTaskParts:
    """What the programs are made of: `PARTS` are the right ones; specimens and tests put others in their place.

    The simulator compares programs by their values, and these are part of them: plain functions, and no closures.

    Attributes:
        plan: Decides on a look.
        clean_up: Decides on the look of a sweep: whether the record goes, or what is planned.
        lapsed: Asks the policy about a run whose lease has ended.
        finalise: Decides on the end of a run.
        find: What the record of a document is found by.
        insert: Inserts the first record of a document, and answers whether there was none.
        unchanged: What a write is guarded by: the record is still what this was decided on.
        due: What is due, as the store judges.
        now: Asks for the time.
        handle: Calls the handler of a document under a claim.
    """

    plan: Callable[[ReactiveTask, TaskRecord | None, Seen, Instant, str], PlanVerdict] = _plan
    clean_up: Callable[[ReactiveTask, TaskRecord, Seen, Instant], RemoveRecord | PlanVerdict] = _clean_up
    lapsed: Callable[[ReactiveTask, Lapsed, Instant], NextAttempt] = _lapsed
    finalise: Callable[[ReactiveTask, TaskRecord | None, Claim, HandlerOutcome, Instant], UpdateRecord | Leave] = (
        _finalise
    )
    find: Callable[[ReactiveTask, Value], Filter] = _by_id
    insert: Callable[[ReactiveTask, Value, TaskRecord], Program[bool]] = _insert
    unchanged: Callable[[ReactiveTask, Value, UpdateRecord | RemoveRecord], Filter] = _unchanged
    due: Callable[[ReactiveTask], Filter] = _due
    now: Callable[[], Program[Instant]] = _store_time
    handle: Callable[[ReactiveTask, Value, Claim], Program[object]] = _handle


PARTS: Final = ReactiveTaskParts()


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
        attempts: How often each write is tried.
        pauses: How long it waits in between.
        polling: How often `work` looks for what is due.
        parts: What the programs are made of.
    """

    name: str
    source: str
    records: str = attrs.field(default=attrs.Factory(_records_of, takes_self=True))
    watched: Projection = attrs.field(factory=Projection)
    where: Filter | None = None
    rules: tasks.TaskRules = attrs.field(factory=tasks.TaskRules)
    policy: backoff.Policy = attrs.field(factory=backoff.Policy)
    cleaning: orphans.CleanUp = attrs.field(factory=orphans.CleanUp)
    attempts: int = _ATTEMPTS
    pauses: Pauses = PAUSES
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    parts: ReactiveTaskParts = attrs.field(default=PARTS, repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a task")
        check_collection(self.source)
        check_collection(self.records)
        check_type(self.watched, Projection, "what is watched")
        check_type(self.where, (*FILTERS, NoneType), "a filter or None")
        check_type(self.rules, tasks.TaskRules, "how a task is run")
        check_type(self.policy, backoff.Policy, "a policy")
        check_type(self.cleaning, orphans.CleanUp, "when records go")
        check_int(self.attempts, "a number of attempts", 1)
        check_type(self.pauses, Pauses, "what lies between attempts")
        check_type(self.polling, PollingBounds, "the bounds of an interval")
        check_type(self.parts, ReactiveTaskParts, "what programs are made of")

    async def plan_pass(self, keys: tuple[Value, ...], request: str) -> tuple[Value, ...]:
        """Look at these documents, and write down what is to be done.

        Args:
            keys: Their ids, of any type that MongoDB takes for one.
            request: An id of this pass that no other has; new records are named after it.

        Returns:
            The ids whose look is not known to be written: none if the pass has succeeded.
        """
        check_type(keys, tuple, "a tuple of ids")
        check_name(request, "a pass")
        left: tuple[Value, ...] = ()
        for key in keys:
            if not await self._planned(key, record_id(request, key)):
                left = (*left, key)
        return left

    async def work(self, worker: str) -> NoReturn:
        """Run what is due, for ever: one record after the other, and where nothing is due, look ever more rarely.

        Where another was faster, or nobody answers, the next look waits as if nothing had been found.

        Args:
            worker: Who works, as for `work_one`. It also chooses the jitter: workers have intervals of their own.

        Raises:
            Refused: The store refuses for good.
        """
        check_name(worker, "a worker")
        draw = _draw(worker)
        pace = fresh(self.polling, await Now())
        while True:
            now = await Now()
            match turn(self.polling, {self.name: pace}, now, draw):
                case Ask(_, pace):
                    worked = await self.work_one(worker)
                    if worked not in (Idle.NOTHING_DUE, Idle.NOT_CLAIMED):
                        pace = woken(self.polling, pace, now)
                case Wait(_, duration):
                    await Sleep(duration)
                case _:
                    raise AssertionError("there is a source")

    async def work_one(self, worker: str) -> Worked:
        """Take a record that is due, and run its handler.

        Args:
            worker: Who works; another name for each process and each of its lives.
        """
        try:
            due = await find_one(self.records, self.parts.due(self))
            if due is None:
                return Idle.NOTHING_DUE
            read = self._read(due)
            if isinstance(read, str):
                return SetAside(due[ID], read) if await self._set_aside(due, read) else Idle.NOT_CLAIMED
        except (Ambiguous, NotApplied, NotDurable):
            return Idle.NOT_CLAIMED
        key = due[DOCUMENT]
        record = await self._claimed(key, read, worker)
        if isinstance(record, Idle):
            return record
        begun = await self._begun(key, record)
        if isinstance(begun, Idle):
            return begun
        claim = claim_of(begun.record)
        answer: _Answer = begun.trouble
        if answer is None:
            try:
                answer = _answer(await self.parts.handle(self, key, claim))
            except Failure as failure:
                answer = failure.reason or str(failure)
        return Ran(claim, await self._ended(key, begun.record, claim, answer))

    async def renew(self, key: Value, claim: Claim) -> Why | WhyNot | None:
        """Let the lease of a run go on, while its handler runs.

        Args:
            key: The document's id.
            claim: The run.

        Returns:
            `Why.RENEWED`; or why not, and then the handler had better stop; None where nobody knows.
        """
        for attempt in range(self.attempts):
            await pause(self.pauses, attempt)
            try:
                record = await self._record(key)
                now = await self.parts.now()
                verdict = tasks.renew(record, claim, rules=self.rules, now=now)
                if isinstance(verdict, Leave) or await self._written(key, record, verdict):
                    return verdict.why
            except (Ambiguous, NotApplied, NotDurable):
                pass  # to be renewed twice does no harm
        return None

    async def clean_up(self, keys: tuple[Value, ...]) -> tuple[Value, ...]:
        """Look at the records of these documents: remove what is of no use, and write down what else is to be done.

        Args:
            keys: The ids of the documents, of any type.

        Returns:
            The ids whose look is not known to be written: none if the pass has succeeded.
        """
        check_type(keys, tuple, "a tuple of ids")
        left: tuple[Value, ...] = ()
        for key in keys:
            if not await self._cleaned(key):
                left = (*left, key)
        return left

    # --- plan, clean up ---

    async def _planned(self, key: Value, new_id: str) -> bool:
        for attempt in range(self.attempts):
            await pause(self.pauses, attempt)
            try:
                record = await self._record(key)
                document = await find_one(self.source, Eq(_KEY, key))
                now = await self.parts.now()
                verdict = self.parts.plan(self, record, self._seen(document), now, new_id)
                if isinstance(verdict, Leave) or await self._written(key, record, verdict):
                    return True
            except (Ambiguous, NotApplied, NotDurable):
                pass  # the next look finds what became of it
        return False

    async def _cleaned(self, key: Value) -> bool:
        for attempt in range(self.attempts):
            await pause(self.pauses, attempt)
            try:
                record = await self._record(key)
                if record is None:
                    return True
                document = await find_one(self.source, Eq(_KEY, key))
                now = await self.parts.now()
                verdict = self.parts.clean_up(self, record, self._seen(document), now)
                if isinstance(verdict, Leave) or await self._written(key, record, verdict):
                    return True
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return False

    # --- claim ---

    async def _claimed(self, key: Value, record: TaskRecord, worker: str) -> TaskRecord | Idle:
        """The record under a claim of this worker's."""
        try:
            now = await self.parts.now()
        except (Ambiguous, NotApplied):
            return Idle.NOT_CLAIMED
        verdict = tasks.claim(record, worker=worker, rules=self.rules, now=now)
        if isinstance(verdict, Lapsed):
            lapsed = self.parts.lapsed(self, verdict, now)
            verdict = tasks.claim(record, worker=worker, rules=self.rules, now=now, lapsed=lapsed)
        if isinstance(verdict, UpdateRecord):
            try:
                await self._written(key, record, verdict)
            except (Ambiguous, NotApplied, NotDurable):
                return Idle.NOT_CLAIMED
            return Idle.GIVEN_UP
        if not isinstance(verdict, Claimed):
            return Idle.NOT_CLAIMED
        claimed = verdict.write.record
        try:
            is_mine = await self._written(key, record, verdict.write)
        except NotApplied:
            return Idle.NOT_CLAIMED
        except (Ambiguous, NotDurable):
            is_mine = None
        if is_mine is None:
            try:
                found = await self._record(key)
            except (Ambiguous, NotApplied):
                return Idle.NOT_CLAIMED  # its lease will end
            # Nobody else writes this owner and this token.
            is_mine = found is not None and (found.id, found.owner, found.token) == (
                claimed.id,
                claimed.owner,
                claimed.token,
            )
            claimed = found or claimed
        return claimed if is_mine else Idle.NOT_CLAIMED

    # --- begin ---

    async def _begun(self, key: Value, record: TaskRecord) -> _Begun | Idle:
        """Look at the document, now that the record is claimed."""
        claim, known, is_known = claim_of(record), record, True
        may_end = False  # a request of ours to end it may still arrive, and would end the record of a handler that runs
        for attempt in range(self.attempts):
            await pause(self.pauses, attempt)
            try:
                # The record that was written for the claim is as good as a fresh read; after any trouble it is read again.
                if not is_known:
                    found = await self._record(key)
                    if found is None:
                        return Idle.STALE
                    known = found
                is_known = False
                document = await find_one(self.source, Eq(_KEY, key))
                now = await self.parts.now()
                verdict = tasks.begin(known, claim, self._seen(document), rules=self.rules, now=now)
                if isinstance(verdict, Leave):
                    return Idle.STALE
                if isinstance(verdict, Go):
                    return Idle.STALE if may_end else _Begun(known)  # if it is, its lease will end
                may_end = may_end or isinstance(verdict, UpdateRecord)
                write = verdict if isinstance(verdict, UpdateRecord) else verdict.write
                if await self._written(key, known, write):
                    if isinstance(verdict, UpdateRecord):
                        return Idle.SKIPPED
                    return _Begun(write.record, str(verdict.why) if isinstance(verdict, CannotRun) else None)
                may_end = False  # the record has moved on, and no request of ours fits it any more
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return Idle.STALE

    # --- finalise ---

    async def _ended(self, key: Value, record: TaskRecord, claim: Claim, answer: _Answer) -> Why | WhyNot | None:
        """Write down how a run has ended."""
        known: TaskRecord | None = record
        is_known = True
        for attempt in range(self.attempts):
            await pause(self.pauses, attempt)
            try:
                if not is_known:
                    known = await self._record(key)
                is_known = False
                now = await self.parts.now()
                verdict = self.parts.finalise(self, known, claim, self._outcome(claim, answer, now), now)
                if isinstance(verdict, Leave) or await self._written(key, known, verdict):
                    return verdict.why
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return None

    def _outcome(self, claim: Claim, answer: _Answer, now: Instant) -> HandlerOutcome:
        match answer:
            case None:
                return Succeeded()
            case Later(after):
                return Deferred(now + after)
            case _:
                since = now if claim.failing_since is None else claim.failing_since
                return Failed(
                    answer, _retried(self, max(claim.attempts, 1), since, now, _draw(f"{claim.id} {claim.token}"))
                )

    # --- what is read and written ---

    def _seen(self, document: Document | None) -> Seen:
        if document is None:
            return Gone()
        if self.where is not None and not matches(self.where, document, _no_clock):
            return NotMatching()
        taken = snapshot(document, self.watched)
        return taken if isinstance(taken, NotComputed) else Matching(taken)

    async def _record(self, key: Value) -> TaskRecord | None:
        found = await find_one(self.records, self.parts.find(self, key))
        if found is None:
            return None
        read = self._read(found)
        if isinstance(read, TaskRecord):
            return read
        await self._set_aside(found, read, Put(TASK, self.name), Put(DOCUMENT, key))
        return await self._record(key)

    def _read(self, found: Document) -> TaskRecord | str:
        """The record that was found, or why it is none."""
        try:
            record = loaded(found)
            is_mine = matches(self.parts.find(self, needed(found, DOCUMENT)), found, _no_clock)
        except Misuse as unreadable:
            return unreadable.what
        return record if is_mine and found.held(TASK) == self.name else "its id is not that of its task and document"

    async def _set_aside(self, found: Document, why: str, *names: Put[str] | Put[Value]) -> bool:
        now = await self.parts.now()
        still, updates = set_aside(found, why, now)
        return await update_one(self.records, still, *updates, *names) > 0

    async def _written(
        self, key: Value, before: TaskRecord | None, write: InsertRecord | UpdateRecord | RemoveRecord
    ) -> bool:
        """Write it; False if the record is no longer what this was decided on."""
        if isinstance(write, InsertRecord):
            return await self.parts.insert(self, key, write.record)
        still = self.parts.unchanged(self, key, write)
        if isinstance(write, RemoveRecord):
            return await delete_one(self.records, still) > 0
        assert before is not None, "an update is of a record"
        return await update_one(self.records, still, *changes(before, write.record)) > 0


_SOURCES: Final[Mapping[type[Seen], Source]] = {
    Matching: Source.MATCHING,
    NotMatching: Source.NOT_MATCHING,
    Gone: Source.GONE,
    NotComputed: Source.UNKNOWN,
}


@final
@attrs.frozen
class _Begun:
    """A run that has begun: its record, and why what it is to run with cannot be computed, if it cannot."""

    record: TaskRecord
    trouble: str | None = None


def _draw(text: str) -> int:
    """A number from 0 to PPM, for jitter: the same for the same text, and scattered over different ones."""
    return int.from_bytes(sha256(text.encode(errors="replace")).digest()) % (PPM + 1)


def _retried(task: ReactiveTask, attempts: int, since: Instant, now: Instant, draw: int = 0) -> NextAttempt:
    verdict = backoff.decide(task.policy, attempts, since, now, draw)
    return tasks.TryAgain(verdict.at) if isinstance(verdict, backoff.Retry) else tasks.GiveUp()


def _no_clock() -> Instant:
    raise Misuse(
        "a filter of a reactive task asks how old something is", why="no change reports when that becomes true"
    )
