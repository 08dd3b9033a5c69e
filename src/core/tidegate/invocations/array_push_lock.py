"""The array-push lock: who pushed its claim first may write. Shipped for those who must interoperate with it.

It is the protocol of pynenc-mongo, followed to the letter, so that services which use it and services which use tidegate
can move the same records. The claims stand in the array `transition_lock` of the record itself:

    1  Push a claim of one's own, `<id>:<seconds since 1970, by one's own clock>`.
    2  Read the record. If one's claim is the first one, the lock is held.
    3  Else pull one's claim. If the first claim is older than the stale threshold by one's own clock, its owner is
       thought dead: clear the whole array, whoever is in it by now.
    4  Wait, twice as long each time, and try again; after the last attempt, give up.
    5  Holding it: read the record, decide, and write status and owner, filtered by nothing but the id.
    6  In the end clear the whole array, whoever is in it.

That a write of the protocol matches nothing is not looked at: the record is gone, or the claim was pulled by others.
Whoever does work of its own under this lock takes it (`ClaimedRecord.take`), writes with its claim in the filter (`guarded`),
and pulls nothing but its claim in the end (`release`): others, who follow the protocol, see no difference. Who is ended while it
takes the lock pulls what it has pushed (`leave`).

What gets no answer is asked again, as often as the lock is tried for, where that does no harm: a push (twice is a claim that
stands twice, and one pull takes both), a read, the pull of one's own claim. The clearing of all is sent again only where it was
not done: by the next time another may hold the lock.

What it promises holds as long as nobody stalls beyond the threshold, no request is late and all clocks agree. Nobody:
that holders are quick is not enough, for a waiter that stalls judges a claim by an old reading.

Laws
    AL1  at most one process holds the lock.
    AL2  a finished record is not overwritten.
    AL3  a claim stands at most once.
    AL4  at rest no claim remains.
    AL5  what is written under a claim (`guarded`) is refused once the claim is gone: of what was read and written under the
         lock nothing is overwritten, whoever stalls and whatever clocks show.

Known not to work (the simulator shows each in a shortest run; `tidegate.invocations.transition` has none of these faults):
    - a holder that stalls beyond the threshold loses the lock without noticing, and writes all the same (AL1, AL2);
    - a waiter that stalls between steps 2 and 3 finds the claim that it has read old, and clears the array, although its
      holder has long been gone and another holds the lock, each of them for a moment only (AL1);
    - a lost reply to the push makes the claim stand twice (AL3);
    - a push that arrives late leaves a claim that nobody will pull (AL4), and if it is that of one who still works, what that
      one writes is not refused (AL5);
    - steps 3 and 6 clear claims of others, which may be holders;
    - the clocks of two machines are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.invocations.status import Accepted, Denied, StatusRecord, StatusTable, decide_transition
from tidegate.model.documents import AllOf, Contains, Eq, Field, Filter, Pull, Push, Put, PutServerTime, Update
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable, Note, Now, Program
from tidegate.model.instants import MILLISECOND, SECOND, WALL, Duration, Instant
from tidegate.model.operations import UpdateOne, check_collection, find_one, update_one
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.backoff import Exponential
from tidegate.retries.pauses import Pauses, begins, check_attempts, goes_on

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
"""The note of a process that has found a claim whose time cannot be read, and clears it: an error of whoever wrote it.
A runtime that is to log it handles `Note`; the drivers that ship ignore notes."""


@final
@attrs.frozen
class Written:
    """The record is now in this status, under this owner."""

    status: str
    owner: str | None


@final
@attrs.frozen
class NoRecord:
    """There is no record with this id."""


@final
@attrs.frozen
class RaceCondition:
    """The lock was not to be had; what the record is, as far as it could be read."""

    attempts: int
    actual: str


LockedOutcome: TypeAlias = Written | Denied | NoRecord | RaceCondition


@final
@attrs.frozen
class ClaimedRecord:
    """The lock of one record. Invariants: the request id is used once; 1 <= attempts; 0 <= stale.

    Attributes:
        collection: Where the records are; they are found by their field `invocation_id`.
        key: The record's id.
        request: The id that the claims are made of.
        attempts: How often to try, and to ask for what gets no answer; None for any number.
        pauses: How long to wait in between; of all who use the protocol, 50 ms, doubled.
        stale: From which age on a claim is thought to be a dead one's, in microseconds.
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
        """Take the lock, and go on under the claim that is held: a program. Steps 1 to 4.

        Args:
            then: What follows, given the claim; it leaves the lock in the end.
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
        """The record."""
        return Eq(INVOCATION_ID, self.key)

    def guarded(self, claim: str, *updates: Update) -> UpdateOne:
        """An update under a claim: it replies 0 if the claim is gone, or the record.

        Args:
            claim: What is held.
            updates: What is written; not the array of the claims.
        """
        check_name(claim, "a claim")
        return update_one(self.collection, AllOf((self.me, Contains(TRANSITION_LOCK, claim))), *updates)

    async def release(self, claim: str) -> bool:
        """Pull one's own claim, and no other: a program.

        Returns:
            False if it was gone: somebody has taken the lock. Without an answer it is left to the threshold.
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
        """Pull whatever claim of this request stands, for who was ended while it took the lock: a program.

        Without an answer it is left to the threshold.
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
        """Clear the whole array, whoever is in it; again only where it was not done: a program."""
        await self._insist(update_one(self.collection, self.me, Put(TRANSITION_LOCK, ())), (NotApplied,))

    async def _push(self, claim: str) -> None:
        try:  # noqa: SIM105  an await in a `with` would not be merged
            await self._insist(
                update_one(self.collection, self.me, Push(TRANSITION_LOCK, claim)), (Ambiguous, NotApplied)
            )
        except NotDurable:
            pass  # it is done; whether it stays, the read says

    async def _insist(
        self, effect: Effect[T], again: tuple[type[Failure], ...] = (Ambiguous, NotApplied, NotDurable)
    ) -> T:
        """What it is answered; after one of these failures it is asked for again."""
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
    """One command: `runner` wants the record `key` to be in the status `target`.

    Invariants: the request id is used for this command only; 1 <= attempts; 0 <= stale.

    Attributes:
        collection: Where the records are; they are found by their field `invocation_id`.
        table: The rules.
        key: The record's id.
        target: The status to enter.
        runner: Who asks.
        request: The id that the claims are made of.
        attempts: How often to try, and to ask for what gets no answer; None for any number.
        pauses: How long to wait in between; of all who use the protocol, 50 ms, doubled.
        stale: From which age on a claim is thought to be a dead one's, in microseconds.
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
        """Decide and write; clear the array in the end, also after a failure."""
        del claim  # what the protocol writes says nothing of it
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
    """A claim as others read it: `<id>:<seconds>`."""
    check_name(claim_id, "a claim")
    check_type(now, Instant, "the time")
    return f"{claim_id}:{now.at // SECOND}.{now.at % SECOND:06d}"


_TIME: Final = re.compile(r".*:([0-9]{1,12})(?:\.([0-9]*))?", re.DOTALL)


def claim_time(claim: str) -> Instant | None:
    """When the claim says that it was made; None if it does not say."""
    check_type(claim, str, "a claim")
    parts = _TIME.fullmatch(claim)
    if parts is None:
        return None
    whole, fraction = parts[1], parts[2] or ""
    return Instant(int(whole) * SECOND + int(fraction[:6].ljust(6, "0")), WALL)


def is_stale(claim: str, now: Instant, threshold: Duration) -> bool:
    """Whether its owner is thought dead; so is that of a claim whose time cannot be read, for it would block for ever."""
    check_type(now, Instant, "the time")
    check_int(threshold, "a stale threshold", 0)
    since = claim_time(claim)
    return since is None or now - since > threshold


def left_of(claim: str, now: Instant, *, stale: Duration, margin: Duration) -> Duration:
    """For how long a holder may go on: until a margin before others think it dead; 0 for a claim without a time.

    Args:
        claim: What is held.
        now: The time by the clock that the claim was made by.
        stale: From which age on others think its owner dead, in microseconds.
        margin: How much sooner it stops, in microseconds.
    """
    check_type(now, Instant, "the time")
    check_int(stale, "a stale threshold", 0)
    check_int(margin, "a margin", 0)
    since = claim_time(claim)
    return 0 if since is None else max(0, stale - margin - max(0, now - since))
