"""Fetch due records: claim them, THEN read their documents, whose handlers will run.

A claim may arrive after its worker gave up, which leaves a record in the name of an unaware worker.
A worker that misses a reply reports it (`Idle.UNHEARD`). For as long as such a claim may last, it
checks the records in its name between fetches. It reads before it writes, so its writes match no
run that began since, however late they arrive.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Document,
    Eq,
    Filter,
    Gt,
    In,
    Lt,
    OlderThan,
    Value,
    exactly,
    show,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Now
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import FOUND_MAX, StoreTime, find_all
from tidegate.model.values import check_int, check_name, check_tuple
from tidegate.reactive.record import tasks
from tidegate.reactive.record._record_store import (
    BEHIND,
    DocumentReader,
    FoundDocument,
    RecordStore,
    RecordUpdate,
    Sent,
    found_of,
    is_in,
)
from tidegate.reactive.record.task_documents import DECIDED_ON, DOCUMENT, NEXT_RUN_AT, OWNER, TASK
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.retries import backoff, contention
from tidegate.retries.attempt_delays import Pauses, begins, goes_on

__all__ = ["BEHIND", "Fetcher", "Idle", "KnownRecord", "Run", "SetAside", "dues", "next_attempt"]

KnownRecord: TypeAlias = tuple[Value, TaskRecord]
"""The id of a document, and its record."""
_Claimed: TypeAlias = tuple[Value, tasks.Claim, TaskRecord]
_LONGEST_DUE: Final = (Ascending(NEXT_RUN_AT),)


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
class SetAside:
    """The due entry is not a readable record. It is stored as failed with the reason, so it blocks
    no other.
    """

    record: Value = attrs.field(eq=exactly)
    why: str

    def __str__(self) -> str:
        return f"set {show(self.record)} aside: {self.why}"


@final
@attrs.frozen
class Run:
    """A run that has begun: its handler is to be called under this claim.

    Attributes:
        key: The document's id.
        record: Its record, as written for the run.
        claim: The claim of the run.
        trouble: Why the handler has no argument, which is the result of the run; None if it has
            one.
    """

    key: Value = attrs.field(eq=exactly)
    record: TaskRecord = attrs.field(repr=False)
    claim: tasks.Claim
    trouble: str | None = None

    def __str__(self) -> str:
        return str(self.claim)


async def dues(records: str, tasks: tuple[str, ...], within: Duration) -> tuple[tuple[str, Duration], ...]:
    """Find which of these tasks have due records, or when they will, in one request.

    Args:
        records: The collection of their records.
        tasks: Their names.
        within: The furthest due time, in microseconds from now.

    Returns:
        Microseconds until the first due record of each such task, 0 for now. If more records are
        due
        than one request finds, it counts those due longest.

    Raises:
        Failure: No reply, or the store refuses.
    """
    check_tuple(tasks, str, "the name of a task")
    check_int(within, "a time in microseconds", 0)
    now = await StoreTime(BEHIND)
    mine = Eq(TASK, tasks[0]) if len(tasks) == 1 else In(TASK, tasks)
    due = AllOf((mine, Lt(NEXT_RUN_AT, now + -(-within // MILLISECOND) * MILLISECOND)))
    found = await find_all(records, due, limit=FOUND_MAX, fields=(TASK, NEXT_RUN_AT), sort=_LONGEST_DUE)
    # The reckoned time may be behind the store's: records found due are due now, others slightly
    # later.
    times = ((each.held(TASK), each.held(NEXT_RUN_AT)) for each in reversed(found))
    firsts = {task: max(due - now, 0) for task, due in times if isinstance(due, Instant)}
    return tuple((name, firsts[name]) for name in tasks if name in firsts)


@final
@attrs.frozen
class Fetcher:
    """Claims due records of a task for workers.

    Attributes:
        records: The records.
        documents: Their documents.
        rules, policy, attempts, pauses: As in `ReactiveTask`.
    """

    records: RecordStore
    documents: DocumentReader
    rules: tasks.TaskRules
    policy: backoff.Policy
    attempts: int | None
    pauses: Pauses

    @property
    def due(self) -> Filter:
        """The filter of due records, by the store's clock."""
        return AllOf((Eq(TASK, self.records.task), OlderThan(NEXT_RUN_AT, 0)))

    async def take(
        self, worker: str, most: int, factor: int = 1
    ) -> tuple[tuple[Run, ...], tuple[Idle | SetAside, ...]]:
        """Claim due records and read their documents; their handlers are to run now.

        Args:
            worker: The claiming worker; its name differs for each process and each of its lives.
            most: How many at most; 1 <= most <= FOUND_MAX.
            factor: Claims are drawn among this many times `most` (`tidegate.retries.contention`).

        Returns:
            The runs that have begun, and why others have not.
        """
        check_name(worker, "a worker")
        check_int(most, "a number of records", 1, FOUND_MAX)
        check_int(factor, "a factor", 1, contention.FACTOR_MAX)
        try:
            due = await self._due(worker, most, factor)
            if not due:
                return (), (Idle.NOTHING_DUE if due is None else Idle.NOT_CLAIMED,)
            aside: tuple[Idle | SetAside, ...] = ()
            known: tuple[KnownRecord, ...] = ()
            for each in due:
                read = self.records.read(each)
                if isinstance(read, TaskRecord):
                    known = (*known, (each[DOCUMENT], read))
                elif await self.records.set_aside(each, read):
                    aside = (*aside, SetAside(each[ID], read))
                else:
                    aside = (*aside, Idle.NOT_CLAIMED)
        except (Ambiguous, NotApplied, NotDurable):
            return (), (Idle.NOT_CLAIMED,)
        claimed, others = await self._claimed(known, worker)
        begun, idle = await self.begin(claimed)
        return begun, (*aside, *others, *idle)

    async def give_back(self, worker: str, hands: tuple[Run, ...]) -> int:
        """Return claimed records that the worker does not run: it missed the reply. This is no
        attempt.

        Args:
            worker: As for `take`. None of its fetches of this task is under way, and none begins
                before
                this has ended.
            hands: Its runs of this task, and those whose end is not written yet.

        Returns:
            How many were returned; they are due.

        Raises:
            Failure: No reply, or the store refuses.
        """
        check_name(worker, "a worker")
        check_tuple(hands, Run, "a run")
        known = frozenset(_claim_of(run.record) for run in hands)
        now = await self.records.now()
        last = now + -(-self.rules.lease // MILLISECOND) * MILLISECOND + 2 * BEHIND
        in_name = (Eq(TASK, self.records.task), Gt(NEXT_RUN_AT, now), Lt(NEXT_RUN_AT, last), Eq(OWNER, worker))
        # Earliest end of lease first: the leases of its runs are renewed.
        found = await find_all(
            self.records.collection, AllOf(in_name), limit=FOUND_MAX, fields=DECIDED_ON, sort=_LONGEST_DUE
        )
        records = tuple(
            (each[DOCUMENT], record) for each in found if isinstance(record := self.records.read(each), TaskRecord)
        )
        strays = tuple((key, record) for key, record in records if _claim_of(record) not in known)
        ends = tuple(
            (
                key,
                record,
                tasks.finalise(record, tasks.claim_of(record), tasks.Deferred(now), rules=self.rules, now=now),
            )
            for key, record in strays
        )
        matched, _ = await self.records.update(
            tuple((key, record, end) for key, record, end in ends if isinstance(end, tasks.UpdateRecord))
        )
        return matched

    async def _due(self, worker: str, most: int, factor: int) -> tuple[Document, ...] | None:
        """The records that are due longest, or a draw among more (then only ids are found); None if
        empty.
        """
        where = self.due
        among = min(factor * most, FOUND_MAX)
        if among == most:
            return await found_of(self.records.collection, where, most, _LONGEST_DUE) or None
        found = await find_all(self.records.collection, where, limit=among, fields=(NEXT_RUN_AT,), sort=_LONGEST_DUE)
        if not found:
            return None
        ids = tuple(str(each[ID]) for each in found)
        some = contention.drawn(ids, most, f"{worker} {await Now()}")
        which = In(ID, tuple(found[at][ID] for at in some))
        return await found_of(self.records.collection, AllOf((which, where)), len(some), _LONGEST_DUE)

    async def _claimed(
        self, due: tuple[KnownRecord, ...], worker: str
    ) -> tuple[tuple[KnownRecord, ...], tuple[Idle, ...]]:
        """The records now under a claim of this worker, and why others are not."""
        if not due:
            return (), ()
        missed, unheard = (Idle.NOT_CLAIMED,) * len(due), (Idle.UNHEARD,) * len(due)
        late: tuple[Value, ...] = ()
        try:
            now = await self.records.now()
        except (Ambiguous, NotApplied):
            return (), missed
        writes: tuple[RecordUpdate, ...] = ()
        for key, record in due:
            at = _as_found(record, now)
            verdict = tasks.claim(record, worker=worker, rules=self.rules, now=at)
            if isinstance(verdict, tasks.Lapsed):
                lapsed = next_attempt(self.policy, verdict.attempts, verdict.failing_since, at)
                verdict = tasks.claim(record, worker=worker, rules=self.rules, now=at, lapsed=lapsed)
            if isinstance(verdict, (tasks.Claimed, tasks.UpdateRecord)):
                writes = (*writes, (key, record, verdict.write if isinstance(verdict, tasks.Claimed) else verdict))
        claims = tuple((key, write.record) for key, _, write in writes if write.record.owner is not None)
        given_up = (Idle.GIVEN_UP,) * (len(writes) - len(claims))
        others = missed[len(writes) :]
        try:
            matched, marks = await self.records.update(writes)
            if matched == len(writes):
                return claims, (*others, *given_up)
            late = tuple(key for (key, _, _), mark in zip(writes, marks, strict=True) if mark is Sent.HELD)
            if late:
                given_up = missed[: len(given_up)]
            elif not matched:
                return (), (*others, *given_up, *missed[: len(claims)])
        except NotApplied:
            return (), missed
        except (Ambiguous, NotDurable):
            given_up, missed = missed[: len(given_up)], unheard
        mine = await self.held_of(claims)
        if mine is None:
            return (), (*others, *given_up, *unheard[: len(claims)])
        held = sum(is_in(key, late) and not any(key == own for own, _ in mine) for key, _ in claims)
        return mine, (*others, *given_up, *(Idle.HELD,) * held, *missed[: len(claims) - len(mine) - held])

    async def held_of(self, claims: tuple[KnownRecord, ...]) -> tuple[KnownRecord, ...] | None:
        """Those of these claims that were written, as records; None without a reply."""
        if not claims:
            return ()
        try:
            found = await self.records.find(tuple(key for key, _ in claims))
        except (Ambiguous, NotApplied):
            return None
        mine: tuple[KnownRecord, ...] = ()
        for (key, claimed), read in zip(claims, found, strict=True):
            # No other worker writes this owner and this token.
            if read is not None and _claim_of(read) == _claim_of(claimed):
                mine = (*mine, (key, read))
        return mine

    async def begin(self, claimed: tuple[KnownRecord, ...]) -> tuple[tuple[Run, ...], tuple[Idle, ...]]:
        """Read the documents of claimed records: the runs that begin, and why others do not."""
        if not claimed:
            return (), ()
        begun: tuple[Run, ...] = ()
        idle: tuple[Idle, ...] = ()
        # The claimed records and their time are fresh enough; after an error they are read again.
        left: tuple[_Claimed, ...] = tuple((key, tasks.claim_of(record), record) for key, record in claimed)
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
                known = tuple(record for _, _, record in left) if attempt == 1 else await self.records.find(keys)
                documents = await self.documents.find(keys)
                now = _claimed_at(claimed[0]) if attempt == 1 else await self.records.now()
                looks = tuple(
                    self._beginning(key, claim, record, document, now)
                    for (key, claim, _), record, document in zip(left, known, documents, strict=True)
                )
                going = tuple(each for each in looks if isinstance(each, Run))
                begun = (*begun, *(run for run in going if not is_in(run.key, ending)))
                # A run whose end may still arrive does not begin.
                held = sum(is_in(run.key, ending) for run in going)
                idle = (*idle, *(Idle.STALE,) * sum(each is None for each in looks), *(Idle.UNHEARD,) * held)
                writes = tuple(each for each in looks if isinstance(each, _Beginning))
                left = tuple((each.key, each.claim, each.before) for each in writes)
                ending = (*ending, *(each.key for each in writes if each.run is None))
                matched, marks = await self.records.update(
                    tuple((each.key, each.before, each.write) for each in writes)
                )
                if matched == len(writes):
                    begun = (*begun, *(each.run for each in writes if each.run is not None))
                    return begun, (*idle, *(Idle.SKIPPED for each in writes if each.run is None))
                if Sent.HELD not in marks:
                    ending = ()  # what has not matched has moved on, and no request of ours fits it any more
            except (Ambiguous, NotApplied, NotDurable):
                pass
        return begun, (*idle, *(Idle.UNHEARD,) * len(left))

    def _beginning(
        self, key: Value, claim: tasks.Claim, record: TaskRecord | None, document: FoundDocument, now: Instant
    ) -> Run | _Beginning | None:
        """The result for one claimed record: a run, one that begins once this is written, or none."""
        verdict = tasks.begin(record, claim, self.documents.seen(document), rules=self.rules, now=now)
        if isinstance(verdict, tasks.Leave):
            return None
        assert record is not None, "a run is of a record"
        match verdict:
            case tasks.Go():
                return Run(key, record, tasks.claim_of(record))
            case tasks.UpdateRecord():
                return _Beginning(key, claim, record, verdict, None)
            case _:
                after = verdict.write.record
                trouble = str(verdict.why) if isinstance(verdict, tasks.CannotRun) else None
                return _Beginning(key, claim, record, verdict.write, Run(key, after, tasks.claim_of(after), trouble))


@final
@attrs.frozen
class _Beginning:
    """A run that begins once this is written; None if its lease is over by then."""

    key: Value = attrs.field(eq=exactly)
    claim: tasks.Claim
    before: TaskRecord
    write: tasks.UpdateRecord
    run: Run | None


def _claim_of(record: TaskRecord) -> tuple[str, str | None, int]:
    """Identifies a claim."""
    return record.id, record.owner, record.token


def _as_found(record: TaskRecord, now: Instant) -> Instant:
    """The time of a claim: the due time of the record, if the reckoned time is earlier."""
    due = record.next_run_at
    return due if due is not None and 0 < due - now <= BEHIND else now


def _claimed_at(known: KnownRecord) -> Instant:
    at = known[1].claimed_at
    assert at is not None, "it is claimed"
    return at


def next_attempt(
    policy: backoff.Policy, attempts: int, since: Instant, now: Instant, draw: int = 0
) -> tasks.NextAttempt:
    """The policy's verdict on a failed run."""
    verdict = backoff.decide(policy, attempts, since, now, draw)
    return tasks.TryAgain(verdict.at) if isinstance(verdict, backoff.Retry) else tasks.GiveUp()
