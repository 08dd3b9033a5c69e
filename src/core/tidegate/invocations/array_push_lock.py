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

What it promises holds as long as nobody stalls beyond the threshold, no request is late and all clocks agree. Nobody:
that holders are quick is not enough, for a waiter that stalls judges a claim by an old reading.

Laws
    AL1  at most one process holds the lock.
    AL2  a finished record is not overwritten.
    AL3  a claim stands at most once.
    AL4  at rest no claim remains.

Known not to work (the simulator shows each in a shortest run; `tidegate.invocations.transition` has none of these faults):
    - a holder that stalls beyond the threshold loses the lock without noticing, and writes all the same (AL1, AL2);
    - a waiter that stalls between steps 2 and 3 finds the claim that it has read old, and clears the array, although its
      holder has long been gone and another holds the lock, each of them for a moment only (AL1);
    - a lost reply to the push makes the claim stand twice (AL3);
    - a push that arrives late leaves a claim that nobody will pull (AL4);
    - steps 3 and 6 clear claims of others, which may be holders;
    - the clocks of two machines are compared.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.status import Accepted, Denied, StatusRecord, StatusTable, decide_transition
from tidegate.model.documents import Eq, Field, Filter, Pull, Push, Put, PutServerTime
from tidegate.model.effects import Ambiguous, Failure, Note, Now, Sleep
from tidegate.model.instants import MILLISECOND, SECOND, WALL, Duration, Instant
from tidegate.model.operations import check_collection, find_one, update_one
from tidegate.model.values import check_int, check_name, check_type

__all__ = [
    "ATTEMPTS", "HOLDS", "INVOCATION_ID", "RUNNER", "STALE", "STATUS", "TIMESTAMP", "TRANSITION_LOCK", "UNREADABLE",
    "ArrayPushLock", "LockedOutcome", "NoRecord", "RaceCondition", "Written", "claim_time", "claimed", "is_stale",
]  # fmt: skip

TRANSITION_LOCK: Final = Field[tuple[str, ...]]("transition_lock")
STATUS: Final = Field[str]("status")
RUNNER: Final = Field[str | None]("status_runner_id")
TIMESTAMP: Final = Field[Instant]("status_timestamp")
INVOCATION_ID: Final = Field[str]("invocation_id")

ATTEMPTS: Final = 4
_BACKOFF: Final[Duration] = 50 * MILLISECOND
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
class ArrayPushLock:
    """One command: `runner` wants the record `key` to be in the status `target`.

    Invariants: the request id is used for this command only; 1 <= attempts; 0 <= backoff, stale.

    Attributes:
        collection: Where the records are; they are found by their field `invocation_id`.
        table: The rules.
        key: The record's id.
        target: The status to enter.
        runner: Who asks.
        request: The id that the claims are made of.
        attempts: How often to try.
        backoff: How long to wait after the first attempt, in microseconds; twice as long after each further one.
        stale: From which age on a claim is thought to be a dead one's, in microseconds.
    """

    collection: str
    table: StatusTable
    key: str
    target: str
    runner: str | None
    request: str
    attempts: int = ATTEMPTS
    backoff: Duration = _BACKOFF
    stale: Duration = STALE

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_name(self.key, "a record")
        check_name(self.request, "a request")
        check_int(self.attempts, "a number of attempts", 1)
        check_int(self.backoff, "a backoff", 0)
        check_int(self.stale, "a stale threshold", 0)
        decide_transition(self.table, None, self.target, self.runner)  # checks the table, the target and the runner

    async def run(self) -> LockedOutcome:
        """The program."""
        for attempt in range(self.attempts):
            claim = claimed(f"{self.request}-{attempt}", await Now())
            await self._push(claim)
            record = await find_one(self.collection, self._me)
            if record is None:
                return NoRecord()
            claims = record.get(TRANSITION_LOCK) or ()
            if claims and claims[0] == claim:
                return await self._holding()
            await update_one(self.collection, self._me, Pull(TRANSITION_LOCK, claim))
            if claims and await self._is_stale(claims[0]):
                await self._clear()
            if attempt + 1 < self.attempts:
                await Sleep(self.backoff << attempt)  # twice as long each time
        record = await find_one(self.collection, self._me)
        return NoRecord() if record is None else RaceCondition(self.attempts, record[STATUS])

    @property
    def _me(self) -> Filter:
        return Eq(INVOCATION_ID, self.key)

    async def _push(self, claim: str) -> None:
        """Push the claim; once more if the reply is lost."""
        try:
            await update_one(self.collection, self._me, Push(TRANSITION_LOCK, claim))
        except Ambiguous:
            pass
        else:
            return
        await update_one(self.collection, self._me, Push(TRANSITION_LOCK, claim))

    async def _is_stale(self, claim: str) -> bool:
        if claim_time(claim) is None:
            await Note(UNREADABLE, claim)
        return is_stale(claim, await Now(), self.stale)

    async def _holding(self) -> LockedOutcome:
        """Decide and write; clear the array in the end, also after a failure."""
        await Note(HOLDS, value=True)
        failure: Exception | None = None
        outcome: LockedOutcome = NoRecord()
        try:
            outcome = await self._write()
        except Exception as failed:  # noqa: BLE001  step 6 comes in every case; the failure is raised again
            failure = failed.fresh() if isinstance(failed, Failure) else failed
        await Note(HOLDS, value=False)
        await self._clear()
        if failure is not None:
            raise failure
        return outcome

    async def _write(self) -> LockedOutcome:
        record = await find_one(self.collection, self._me)
        if record is None:
            return NoRecord()
        verdict = decide_transition(
            self.table, StatusRecord(record[STATUS], record.get(RUNNER), 1), self.target, self.runner
        )
        if not isinstance(verdict, Accepted):
            return verdict
        await update_one(
            self.collection, self._me, Put(STATUS, verdict.status), Put(RUNNER, verdict.owner), PutServerTime(TIMESTAMP)
        )
        return Written(verdict.status, verdict.owner)

    async def _clear(self) -> None:
        await update_one(self.collection, self._me, Put(TRANSITION_LOCK, ()))


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
