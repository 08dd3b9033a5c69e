"""The array-push lock: the process that pushed its claim first may write. Shipped for
interoperation.

It follows the protocol of pynenc-mongo to the letter, so that its services and those of tidegate
can move the same records. The claims are in the array `transition_lock` of the record:

    1  Push a claim, `<id>:<seconds since 1970, by the local clock>`.
    2  Read the record. If the own claim is first, the lock is held.
    3  Otherwise pull the own claim. If the first claim is older than the stale threshold by the
       local clock, its owner counts as dead: clear the whole array, including newer claims.
    4  Wait, twice as long each time, and retry; give up after the last attempt.
    5  As the holder: read the record, decide, write status and owner, filtered only by id.
    6  Finally clear the whole array, including other claims.

The protocol ignores a write that matches no document: the record is gone, or others pulled the
claim. Own work under this lock takes it (`ClaimedRecord.take`), filters writes by its claim
(`guarded`), and finally pulls only its claim (`release`); peers see no difference. A process ended
while it takes the lock pulls the claims that it pushed (`leave`).

A request without a reply is repeated up to the number of attempts where that is harmless: a push
(the claim is there twice, and one pull removes both), a read, the pull of the own claim. The clear
is repeated only if it was not done: later, another process may hold the lock.

The guarantees hold while no process stalls beyond the threshold, no request is late and all clocks
agree. Fast holders alone are not enough: a stalled waiter judges a claim by an old read.

Laws
    AL1  at most one process holds the lock.
    AL2  a finished record is not overwritten.
    AL3  a claim stands at most once.
    AL4  at rest no claim remains.
    AL5  a write under a claim (`guarded`) is refused once the claim is gone: despite stalls and
         wrong clocks, it overwrites no write made under the lock.

Known not to work (the simulator shows each in a shortest run; `tidegate.invocations.record.transition`
has none of these faults):
    - a holder that stalls beyond the threshold loses the lock without noticing, and still writes
      (AL1, AL2);
    - a waiter that stalls between steps 2 and 3 finds the claim in its read old and clears the
      array, although that holder is gone and another one holds the lock, each only briefly (AL1);
    - a lost reply to the push leaves the claim twice (AL3);
    - a push that arrives late leaves a claim that is never pulled (AL4); if its owner still works,
      that owner's writes are not refused (AL5);
    - steps 3 and 6 clear claims of others, which may be holders;
    - the clocks of two machines are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.invocations.record.status import Accepted, Denied, StatusRecord, StatusTable, decide_transition
from tidegate.model.documents import AllOf, Contains, Eq, Field, Filter, Pull, Push, Put, PutServerTime, Update
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable, Note, Now, Program
from tidegate.model.instants import MILLISECOND, SECOND, WALL, Duration, Instant
from tidegate.model.operations import UpdateOne, check_collection, find_one, update_one
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.attempt_delays import Pauses, begins, check_attempts, goes_on
from tidegate.retries.backoff import Exponential

T = TypeVar("T")

TRANSITION_LOCK: Final = Field[tuple[str, ...]]("transition_lock")
STATUS: Final = Field[str]("status")
RUNNER: Final = Field[str | None]("status_runner_id")
TIMESTAMP: Final = Field[Instant]("status_timestamp")
INVOCATION_ID: Final = Field[str]("invocation_id")

ATTEMPTS: Final = 4
LOCK_PAUSES: Final = Pauses(Exponential(50 * MILLISECOND, cap=10 * SECOND), jitter_ppm=0)
STALE: Final[Duration] = 5 * SECOND
HOLDS: Final = "holds the lock"
UNREADABLE: Final = "a claim without a time"
"""The note of a process that finds a claim with an unreadable time and clears it. The claim's
author
is at fault. To log it, a runtime handles `Note`; the shipped drivers ignore notes.
"""


@final
@attrs.frozen
class Written:
    """The record now has this status and this owner."""

    status: str
    owner: str | None


@final
@attrs.frozen
class NoRecord:
    """There is no record with this id."""


@final
@attrs.frozen
class RaceCondition:
    """The lock could not be taken; `actual` is the status as last read."""

    attempts: int
    actual: str


LockedOutcome: TypeAlias = Written | Denied | NoRecord | RaceCondition


@final
@attrs.frozen
class ClaimedRecord:
    """The lock of one record. Invariants: the request id is used once; 1 <= attempts; 0 <= stale.

    Attributes:
        collection: The collection of the records; their id is in the field `invocation_id`.
        key: The record's id.
        request: The id from which the claims are made.
        attempts: The number of attempts, for the lock and for each request; None for no limit.
        pauses: The delays between attempts; the protocol uses 50 ms, doubled.
        stale: The age beyond which a claim counts as a dead owner's, in microseconds.
    """

    collection: str
    key: str
    request: str
    attempts: int | None = ATTEMPTS
    pauses: Pauses = LOCK_PAUSES
    stale: Duration = STALE

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_name(self.key, "a record")
        check_name(self.request, "a request")
        check_attempts(self.attempts, self.pauses)
        check_int(self.stale, "a stale threshold", 0)

    async def take(self, then: Callable[[str], Program[T]]) -> T | NoRecord | RaceCondition:
        """Take the lock (steps 1 to 4), and continue under the claim.

        Args:
            then: The work, given the claim; it must leave the lock at its end.
        """
        attempt, since = 0, await begins(self.pauses)
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            claim = claimed(f"{self.request}-{attempt}", await Now())
            attempt += 1
            await self._push(claim)
            record = await self._insist(find_one(self.collection, self.me))
            if record is None:
                return NoRecord()
            claims = record.get(TRANSITION_LOCK) or ()
            if claims and claims[0] == claim:
                return await then(claim)
            await self._insist(update_one(self.collection, self.me, Pull(TRANSITION_LOCK, claim)))
            if claims and await self._is_stale(claims[0]):
                try:  # noqa: SIM105  an await in a `with` would not be merged
                    await self.clear()
                except (Ambiguous, NotDurable):
                    pass  # the next attempt reads what became of it
        record = await self._insist(find_one(self.collection, self.me))
        return NoRecord() if record is None else RaceCondition(attempt, record.get(STATUS) or "")

    @property
    def me(self) -> Filter:
        """The filter of the record."""
        return Eq(INVOCATION_ID, self.key)

    def guarded(self, claim: str, *updates: Update) -> UpdateOne:
        """An update under a claim. It replies 0 if the claim or the record is gone.

        Args:
            claim: The held claim.
            updates: The changes, without the array of claims.
        """
        check_name(claim, "a claim")
        return update_one(self.collection, AllOf((self.me, Contains(TRANSITION_LOCK, claim))), *updates)

    async def release(self, claim: str) -> bool:
        """Pull only the own claim.

        Returns:
            False if it was gone: another process took the lock. Without a reply True; the claim
            goes
            stale.
        """
        is_asked, attempt, since = False, 0, await begins(self.pauses)
        while True:
            if not await goes_on(self.pauses, self.attempts or ATTEMPTS, attempt, since):
                return True
            attempt += 1
            try:
                return await self.guarded(claim, Pull(TRANSITION_LOCK, claim)) > 0 or is_asked
            except (Ambiguous, NotApplied, NotDurable):
                is_asked = True  # and may have been done

    async def leave(self) -> None:
        """Pull all claims of this request, after the process was ended while it took the lock.

        Without a reply they go stale.
        """
        lock = attrs.evolve(self, attempts=self.attempts or ATTEMPTS)
        try:
            record = await lock._insist(find_one(self.collection, self.me))  # noqa: SLF001  it is itself
            claims = () if record is None else record.get(TRANSITION_LOCK) or ()
            for claim in dict.fromkeys(claims):
                if str(claim).startswith(f"{self.request}-"):
                    await lock.release(claim)
        except (Ambiguous, NotApplied, NotDurable):
            pass

    async def clear(self) -> None:
        """Clear the whole array, including other claims; repeat only if it was not done."""
        await self._insist(update_one(self.collection, self.me, Put(TRANSITION_LOCK, ())), (NotApplied,))

    async def _push(self, claim: str) -> None:
        try:  # noqa: SIM105  an await in a `with` would not be merged
            await self._insist(
                update_one(self.collection, self.me, Push(TRANSITION_LOCK, claim)), (Ambiguous, NotApplied)
            )
        except NotDurable:
            pass  # it is done; the read shows whether it stays

    async def _insist(
        self, effect: Effect[T], again: tuple[type[Failure], ...] = (Ambiguous, NotApplied, NotDurable)
    ) -> T:
        """Repeat the effect after these failures."""
        attempt, since = 0, await begins(self.pauses)
        failure: Failure | None = None
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                assert failure is not None
                raise failure
            attempt += 1
            try:
                return await effect
            except again as failed:
                failure = failed.fresh()

    async def _is_stale(self, claim: str) -> bool:
        if claim_time(claim) is None:
            await Note(UNREADABLE, claim)
        return is_stale(claim, await Now(), self.stale)


@final
@attrs.frozen
class ArrayPushLock:
    """One command: `runner` moves the record `key` to the status `target`.

    Invariants: the request id is used for this command only; 1 <= attempts; 0 <= stale.

    Attributes:
        collection: The collection of the records; their id is in the field `invocation_id`.
        table: The rules.
        key: The record's id.
        target: The status to enter.
        runner: The caller.
        request: The id from which the claims are made.
        attempts: The number of attempts, for the lock and for each request; None for no limit.
        pauses: The delays between attempts; the protocol uses 50 ms, doubled.
        stale: The age beyond which a claim counts as a dead owner's, in microseconds.
    """

    collection: str
    table: StatusTable
    key: str
    target: str
    runner: str | None
    request: str
    attempts: int | None = ATTEMPTS
    pauses: Pauses = LOCK_PAUSES
    stale: Duration = STALE

    def __attrs_post_init__(self) -> None:
        _ = self._lock
        decide_transition(self.table, None, self.target, self.runner)  # checks the table, the target and the runner

    @property
    def _lock(self) -> ClaimedRecord:
        return ClaimedRecord(self.collection, self.key, self.request, self.attempts, self.pauses, self.stale)

    async def run(self) -> LockedOutcome:
        """The program."""
        return await self._lock.take(self._holding)

    async def _holding(self, claim: str) -> LockedOutcome:
        """Decide and write; finally clear the array, also after a failure."""
        del claim  # the protocol's writes do not contain it
        await Note(HOLDS, value=True)
        failure: Exception | None = None
        outcome: LockedOutcome = NoRecord()
        try:
            outcome = await self._write()
        except Exception as failed:  # noqa: BLE001  step 6 comes in every case; the failure is raised again
            failure = failed.fresh() if isinstance(failed, Failure) else failed
        await Note(HOLDS, value=False)
        await self._lock.clear()
        if failure is not None:
            raise failure
        return outcome

    async def _write(self) -> LockedOutcome:
        record = await find_one(self.collection, self._lock.me)
        if record is None:
            return NoRecord()
        verdict = decide_transition(
            self.table, StatusRecord(record[STATUS], record.get(RUNNER), 1), self.target, self.runner
        )
        if not isinstance(verdict, Accepted):
            return verdict
        await update_one(
            self.collection,
            self._lock.me,
            Put(STATUS, verdict.status),
            Put(RUNNER, verdict.owner),
            PutServerTime(TIMESTAMP),
        )
        return Written(verdict.status, verdict.owner)


def claimed(claim_id: str, now: Instant) -> str:
    """A claim in the protocol's form: `<id>:<seconds>`."""
    check_name(claim_id, "a claim")
    check_type(now, Instant, "the time")
    return f"{claim_id}:{now.at // SECOND}.{now.at % SECOND:06d}"


_TIME: Final = re.compile(r".*:([0-9]{1,12})(?:\.([0-9]*))?", re.DOTALL)


def claim_time(claim: str) -> Instant | None:
    """The time in the claim; None if unreadable."""
    check_type(claim, str, "a claim")
    parts = _TIME.fullmatch(claim)
    if parts is None:
        return None
    whole, fraction = parts[1], parts[2] or ""
    return Instant(int(whole) * SECOND + int(fraction[:6].ljust(6, "0")), WALL)


def is_stale(claim: str, now: Instant, threshold: Duration) -> bool:
    """Whether the owner counts as dead. An unreadable time counts as stale, or it would block."""
    check_type(now, Instant, "the time")
    check_int(threshold, "a stale threshold", 0)
    since = claim_time(claim)
    return since is None or now - since > threshold


def left_of(claim: str, now: Instant, *, stale: Duration, margin: Duration) -> Duration:
    """How long a holder may continue: until a margin before others count it as dead, in
    microseconds.

    Args:
        claim: The held claim. Without a readable time the answer is 0.
        now: The time by the clock that dated the claim.
        stale: The age beyond which others count its owner as dead, in microseconds.
        margin: How much earlier it stops, in microseconds.
    """
    check_type(now, Instant, "the time")
    check_int(stale, "a stale threshold", 0)
    check_int(margin, "a margin", 0)
    since = claim_time(claim)
    return 0 if since is None else max(0, stale - margin - max(0, now - since))
