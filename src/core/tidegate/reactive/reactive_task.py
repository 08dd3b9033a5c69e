"""The programs of a reactive task: look at documents, take what is due, run the handler, remove what is of no use.

The decisions are `tidegate.reactive.tasks` and `tidegate.reactive.orphans`; this is the way to carry them out, so that they are right
whatever becomes of requests and replies, whoever else is at work and however long one of them stands still.

    plan_pass   for each document: its record, THEN the document, the store's time; write what the look means
    work_one    a record that is due; claim it, look at the document, call the handler, write how it ended
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

Where we differ from mongodash, whose claim is one find-and-modify with the client's time, and whose end of a run is
written by id alone: here the store's time judges, and both are guarded. That costs a read and a question for the time.

Known not to work
    - A worker that stands still beyond its lease runs beside the one that has taken over, until it hears so at its end.
    - A record's first insert that arrives after the record was inserted, finished and removed brings it back: the
      document is gone, so it is completed without the handler, and removed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import FILTERS, ID, AllOf, Document, Eq, Filter, OlderThan, matches
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Call, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import StoreTime, check_collection, delete_one, find_one, insert_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.reactive import orphans, tasks
from tidegate.reactive.orphans import RemoveRecord, Source
from tidegate.reactive.snapshot import NotComputed, Projection, snapshot
from tidegate.reactive.task_documents import DOCUMENT, NEXT_RUN_AT, TASK, changes, guarded, loaded, record_id, stored
from tidegate.reactive.task_records import TaskRecord
from tidegate.reactive.tasks import (
    CannotRun,
    Claim,
    Claimed,
    Deferred,
    Go,
    Gone,
    HandlerOutcome,
    InsertRecord,
    Lapsed,
    Leave,
    Matching,
    NotMatching,
    PlanVerdict,
    Seen,
    Succeeded,
    UpdateRecord,
    Why,
    WhyNot,
)
from tidegate.retries import retry

ATTEMPTS: Final = 8
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
        end: Why its end was written, or why it was not; None where nobody knows, and the lease will tell.
    """

    claim: Claim
    end: Why | WhyNot | None

    def __str__(self) -> str:
        return f"{self.claim}: {'nobody knows' if self.end is None else self.end.value}"


Worked: TypeAlias = Idle | Ran


@final
@attrs.frozen
class Later:
    """What a handler answers to be called again after so long, in microseconds: no failure, and no attempt."""

    after: Duration

    def __attrs_post_init__(self) -> None:
        check_int(self.after, "a time in microseconds", 0)


# --- the task ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReactiveTask:
    """A task that follows the documents of a collection. Invariants: the name is not empty; 1 <= attempts.

    Attributes:
        name: Of the task, and of its handler (`Call`): it is told the document's id, and the claim.
        source: The collection of the documents.
        records: The collection of the task records.
        watched: What is watched of a document.
        where: Which documents it is for; None for all. It asks for no age, for that changes by itself.
        rules: How it is run.
        policy: When a run that failed is tried again.
        cleaning: When records go.
        attempts: How often each write is tried.
    """

    name: str
    source: str
    records: str
    watched: Projection = attrs.field(factory=Projection)
    where: Filter | None = None
    rules: tasks.Task = attrs.field(factory=tasks.Task)
    policy: retry.Policy = attrs.field(factory=retry.Policy)
    cleaning: orphans.CleanUp = attrs.field(factory=orphans.CleanUp)
    attempts: int = ATTEMPTS

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a task")
        check_collection(self.source)
        check_collection(self.records)
        check_type(self.watched, Projection, "what is watched")
        check_type(self.where, (*FILTERS, NoneType), "a filter or None")
        check_type(self.rules, tasks.Task, "how a task is run")
        check_type(self.policy, retry.Policy, "a policy")
        check_type(self.cleaning, orphans.CleanUp, "when records go")
        check_int(self.attempts, "a number of attempts", 1)

    async def plan_pass(self, keys: tuple[str, ...], request: str) -> tuple[str, ...]:
        """Look at these documents, and write down what is to be done.

        Args:
            keys: Their ids.
            request: An id of this pass that no other has; new records are named after it.

        Returns:
            The ids whose look is not known to be written: none if the pass has succeeded.
        """
        left: tuple[str, ...] = ()
        for key in keys:
            if not await self._planned(key, f"{request}/{key}"):
                left = (*left, key)
        return left

    async def work_one(self, worker: str) -> Worked:
        """Take a record that is due, and run its handler.

        Args:
            worker: Who works; another name for each process and each of its lives.
        """
        try:
            due = await find_one(self.records, self._due())
        except (Ambiguous, NotApplied):
            return Idle.NOT_CLAIMED
        if due is None:
            return Idle.NOTHING_DUE
        key = needed(due, DOCUMENT)
        record = await self._claimed(key, loaded(due), worker)
        if isinstance(record, Idle):
            return record
        begun = await self._begun(key, record)
        if isinstance(begun, Idle):
            return begun
        claim = _claim_of(begun.record)
        heard: str | Later | None = begun.trouble
        if heard is None:
            try:
                answer = await self._handled(key, claim)
                heard = answer if isinstance(answer, Later) else None
            except Failure as failure:
                heard = failure.reason or str(failure)
        return Ran(claim, await self._ended(key, begun.record, claim, heard))

    async def renew(self, key: str, claim: Claim) -> Why | WhyNot | None:
        """Let the lease of a run go on, while its handler runs.

        Args:
            key: The document's id.
            claim: The run.

        Returns:
            `Why.RENEWED`; or why not, and then the handler had better stop; None where nobody knows.
        """
        for _ in range(self.attempts):
            try:
                record = await self._record(key)
                now = await self._now()
                verdict = tasks.renew(record, claim, task=self.rules, now=now)
                if isinstance(verdict, Leave) or await self._written(key, record, verdict):
                    return verdict.why
            except (Ambiguous, NotApplied, NotDurable):
                continue  # to be renewed twice does no harm
        return None

    async def clean_up(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Look at the records of these documents: remove what is of no use, and write down what else is to be done.

        Args:
            keys: The ids of the documents.

        Returns:
            The ids whose look is not known to be written: none if the pass has succeeded.
        """
        left: tuple[str, ...] = ()
        for key in keys:
            if not await self._cleaned(key):
                left = (*left, key)
        return left

    def _due(self) -> Filter:
        """What is due, as the store judges."""
        return AllOf((Eq(TASK, self.name), OlderThan(NEXT_RUN_AT, 0)))

    async def _handled(self, key: str, claim: Claim) -> object:
        return await Call(self.name, (key, claim))

    # --- plan, clean up ---

    async def _planned(self, key: str, new_id: str) -> bool:
        for _ in range(self.attempts):
            try:
                record = await self._record(key)
                document = await find_one(self.source, Eq(ID, key))
                now = await self._now()
                verdict = self._plans(record, self._seen(document), now, new_id)
                if isinstance(verdict, Leave) or await self._written(key, record, verdict):
                    return True
            except (Ambiguous, NotApplied, NotDurable):
                continue  # the next look finds what became of it
        return False

    def _plans(self, record: TaskRecord | None, seen: Seen, now: Instant, new_id: str) -> PlanVerdict:
        return tasks.plan(record, seen, task=self.rules, now=now, new_id=new_id)

    async def _cleaned(self, key: str) -> bool:
        for _ in range(self.attempts):
            try:
                record = await self._record(key)
                if record is None:
                    return True
                document = await find_one(self.source, Eq(ID, key))
                now = await self._now()
                if await self._carried_out(key, record, self._of_use(record, document, now)):
                    return True
            except (Ambiguous, NotApplied, NotDurable):
                continue
        return False

    def _of_use(self, record: TaskRecord, document: Document | None, now: Instant) -> RemoveRecord | PlanVerdict:
        """What becomes of a record that is held against its document."""
        seen = self._seen(document)
        verdict = orphans.clean_up(record, SOURCES[type(seen)], self.cleaning, now)
        if isinstance(verdict, RemoveRecord):
            return verdict
        return self._plans(record, seen, now, record.id)

    # --- claim ---

    async def _claimed(self, key: str, record: TaskRecord, worker: str) -> TaskRecord | Idle:
        """The record under a claim of this worker's."""
        try:
            now = await self._now()
        except (Ambiguous, NotApplied):
            return Idle.NOT_CLAIMED
        verdict = self._claims(record, worker, now)
        if isinstance(verdict, UpdateRecord):
            try:
                await self._written(key, record, verdict)
            except (Ambiguous, NotApplied, NotDurable):
                return Idle.NOT_CLAIMED
            return Idle.GIVEN_UP
        if not isinstance(verdict, Claimed):
            return Idle.NOT_CLAIMED
        wanted = verdict.write.record
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
            is_mine = found is not None and self._is_made(found, wanted)
            wanted = found or wanted
        return wanted if is_mine else Idle.NOT_CLAIMED

    def _claims(self, record: TaskRecord, worker: str, now: Instant) -> tasks.ClaimVerdict:
        verdict = tasks.claim(record, worker=worker, task=self.rules, now=now)
        if isinstance(verdict, Lapsed):
            retried = self._retried(verdict.attempts, verdict.failing_since, now)
            return tasks.claim(record, worker=worker, task=self.rules, now=now, lapsed=retried)
        return verdict

    def _is_made(self, found: TaskRecord, wanted: TaskRecord) -> bool:
        """Did our claim make it? Nobody else writes its owner and its token."""
        return (found.id, found.owner, found.token) == (wanted.id, wanted.owner, wanted.token)

    # --- begin ---

    async def _begun(self, key: str, record: TaskRecord) -> Begun | Idle:
        """Look at the document, now that the record is claimed."""
        claim, known, is_known = _claim_of(record), record, True
        for _ in range(self.attempts):
            try:
                if not is_known:
                    found = await self._record(key)
                    if found is None:
                        return Idle.STALE
                    known = found
                is_known = False
                document = await find_one(self.source, Eq(ID, key))
                now = await self._now()
                verdict = tasks.begin(known, claim, self._seen(document), task=self.rules, now=now)
                if isinstance(verdict, Leave):
                    return Idle.STALE
                if isinstance(verdict, Go):
                    return Begun(known)
                write = verdict if isinstance(verdict, UpdateRecord) else verdict.write
                if await self._written(key, known, write):
                    if isinstance(verdict, UpdateRecord):
                        return Idle.SKIPPED
                    return Begun(write.record, str(verdict.why) if isinstance(verdict, CannotRun) else None)
            except (Ambiguous, NotApplied, NotDurable):
                continue
        return Idle.STALE

    # --- finalise ---

    async def _ended(
        self, key: str, record: TaskRecord, claim: Claim, heard: str | Later | None
    ) -> Why | WhyNot | None:
        """Write down how a run has ended."""
        known: TaskRecord | None = record
        is_known = True
        for _ in range(self.attempts):
            try:
                if not is_known:
                    known = await self._record(key)
                is_known = False
                now = await self._now()
                verdict = self._finalises(known, claim, self._outcome(claim, heard, now), now)
                if isinstance(verdict, Leave) or await self._written(key, known, verdict):
                    return verdict.why
            except (Ambiguous, NotApplied, NotDurable):
                continue
        return None

    def _finalises(
        self, record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, now: Instant
    ) -> UpdateRecord | Leave:
        return tasks.finalise(record, claim, outcome, task=self.rules, now=now)

    def _outcome(self, claim: Claim, heard: str | Later | None, now: Instant) -> HandlerOutcome:
        match heard:
            case None:
                return Succeeded()
            case Later(after):
                return Deferred(now + after)
            case _:
                since = now if claim.failing_since is None else claim.failing_since
                return tasks.Failed(heard, self._retried(max(claim.attempts, 1), since, now))

    def _retried(self, attempts: int, since: Instant, now: Instant) -> tasks.NextAttempt:
        verdict = retry.decide(self.policy, attempts, since, now)
        return tasks.TryAgain(verdict.at) if isinstance(verdict, retry.Retry) else tasks.GiveUp()

    # --- what is read and written ---

    async def _now(self) -> Instant:
        return await StoreTime()

    def _seen(self, document: Document | None) -> Seen:
        if document is None:
            return Gone()
        if self.where is not None and not matches(self.where, document, _no_clock):
            return NotMatching()
        taken = snapshot(document, self.watched)
        return taken if isinstance(taken, NotComputed) else Matching(taken)

    async def _record(self, key: str) -> TaskRecord | None:
        found = await find_one(self.records, Eq(ID, record_id(self.name, key)))
        return None if found is None else loaded(found)

    async def _carried_out(self, key: str, record: TaskRecord, verdict: RemoveRecord | PlanVerdict) -> bool:
        if isinstance(verdict, Leave):
            return True
        if isinstance(verdict, RemoveRecord):
            return await delete_one(self.records, self._unchanged(key, verdict)) > 0
        return await self._written(key, record, verdict)

    async def _written(self, key: str, before: TaskRecord | None, write: InsertRecord | UpdateRecord) -> bool:
        """Write it; False if the record is no longer what this was decided on."""
        if isinstance(write, UpdateRecord):
            assert before is not None, "an update is of a record"
            changed = changes(before, write.record)
            return await update_one(self.records, self._unchanged(key, write), *changed) > 0
        try:
            await insert_one(self.records, stored(write.record, self.name, key))
        except Refused as refused:
            if refused.reason != DUPLICATE_KEY:
                raise
            return False
        return True

    def _unchanged(self, key: str, write: UpdateRecord | RemoveRecord) -> Filter:
        """The record is still what this was decided on."""
        return guarded(record_id(self.name, key), write.on)


SOURCES: Final[Mapping[type[Seen], Source]] = {
    Matching: Source.MATCHING,
    NotMatching: Source.NOT_MATCHING,
    Gone: Source.GONE,
    NotComputed: Source.UNKNOWN,
}


@final
@attrs.frozen
class Begun:
    """A run that has begun: its record, and why what it is to run with cannot be computed, if it cannot."""

    record: TaskRecord
    trouble: str | None = None


def _claim_of(record: TaskRecord) -> Claim:
    assert record.owner is not None, "it is claimed"
    return Claim(record.id, record.owner, record.token, record.snapshot, record.attempts, record.first_error_at)


def _no_clock() -> Instant:
    raise Misuse("a filter of a reactive task asks how old something is", why="no change tells when that becomes true")
