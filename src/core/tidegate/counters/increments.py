"""Programs that increment a counter exactly once, and sweep it.

An increment reads the record, decides (`tidegate.counters.counter`), and sends the next step. A
step that matches nothing may have been done, and one without a reply may still be done. So the
program reads and decides again; repeated steps have no effect.

Laws
    CP1  Each token is counted once or not at all, and the count is the number of counted tokens.
    CP2  A noted token stays until it is counted.
    CP3  If the answer is that the increment is counted, or that it is not, it is true.
    CP4  At rest, after enough sweeps, the record holds only the count.

A step that no majority has confirmed is sent again: either the repetition matches nothing, which
confirms it, or it is done again after a failover. A read instead could return data that is reverted
later.

Known not to work
    - An owner that gives up does not know whether the increment counts: a noted token does, at the
      next sweep.
    - Without sweeps the record grows until it is full, and refuses.
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.counters.counter import (
    COUNT,
    ROUND,
    TOKENS_MAX,
    Counted,
    Counter,
    CountToken,
    Forgotten,
    Full,
    Increment,
    NoteToken,
    counter_of,
    decide_increment,
    decide_sweep,
    first_step,
    second_step,
    updates,
)
from tidegate.model.documents import ID, Document, Eq, HasOther, Value
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied, NotDurable
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import UpdateOne, check_collection, find_all, find_one
from tidegate.model.values import check_name
from tidegate.retries.attempt_delays import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on
from tidegate.retries.idempotent import PASSING

T = TypeVar("T")

ATTEMPTS: Final = 8
SWEPT_AT_ONCE: Final = 100
"""The counters read in one request."""


@final
@attrs.frozen
class Unsettled(Attempted):
    """Not known to be counted; if a first step was applied, a sweep counts it."""

    attempts: int

    def __str__(self) -> str:
        return f"unsettled after {self.attempts} attempts"


IncrementOutcome: TypeAlias = Counted | Full | Forgotten | Unsettled


async def _send(
    update: UpdateOne, made: int, attempts: int | None, pauses: Pauses, since: Instant | None
) -> tuple[bool, int]:
    """Whether an update was applied durably, and the attempts so far. False proves nothing: read
    again.
    """
    while True:
        try:
            return await update > 0, made
        except NotDurable:
            pass  # done, but a failover may revert it: a repetition confirms it, or does it again
        except (Ambiguous, NotApplied):
            return False, made
        if not await goes_on(pauses, attempts, made, since):
            return False, made
        made += 1


def swept(collection: str, key: str, found: Counter) -> tuple[UpdateOne, ...]:
    return updates(collection, key, decide_sweep(found))


async def increment(
    collection: str,
    key: str,
    token: str,
    *,
    attempts: int | None = ATTEMPTS,
    pauses: Pauses = PAUSES,
    tokens_max: int = TOKENS_MAX,
) -> IncrementOutcome:
    """Add one to a counter, exactly once.

    Args:
        collection: The collection of the counters.
        key: The counter's id; its record exists (`new_counter`).
        token: An id used for this increment only.
        attempts: The most reads and repetitions before giving up; None for no limit.
        pauses: The delays between attempts.
        tokens_max: The number of tokens of a full record.

    Returns:
        `Counted`; `Full` if it was not noted; `Forgotten` or `Unsettled` if unknown.
    """
    check_collection(collection)
    check_name(key, "a counter")
    check_attempts(attempts, pauses)
    known = Increment(token)
    since = await begins(pauses)
    attempt = 0
    while True:
        if not await goes_on(pauses, attempts, attempt, since):
            break
        attempt += 1
        try:
            record = await find_one(collection, Eq(ID, key))
        except (Ambiguous, NotApplied):
            continue
        if record is None:
            raise Misuse(f"there is no counter {key!r}", todo="insert new_counter(key)")
        verdict = decide_increment(counter_of(record), known, tokens_max)
        if isinstance(verdict, NoteToken):
            known = Increment(token, verdict.in_round)
            first = first_step(collection, key, token, verdict.in_round)
            is_applied, attempt = await _send(first, attempt, attempts, pauses, since)
            if not is_applied:
                continue
            known = Increment(token, verdict.in_round, is_noted=True)
            verdict = CountToken(verdict.in_round)
        if isinstance(verdict, CountToken):
            known = Increment(token, verdict.noted, is_noted=True)
            second = second_step(collection, key, token, verdict.noted)
            is_applied, attempt = await _send(second, attempt, attempts, pauses, since)
            if is_applied:
                return Counted()
            continue
        if isinstance(verdict, (Counted, Full, Forgotten)):
            return verdict
    return Unsettled(attempt)


async def sweep(collection: str, key: str, *, attempts: int | None = 1, pauses: Pauses = PAUSES) -> bool:
    """Count abandoned tokens of a counter, and close the round; whether all is done.

    Three sweeps at rest leave only the count. `attempts` bounds each request (None: no limit); the
    next sweep does the rest.
    """
    check_collection(collection)
    check_name(key, "a counter")
    check_attempts(attempts, pauses)
    try:
        record = await _asked(find_one(collection, Eq(ID, key)), attempts, pauses)
    except PASSING:
        return False
    return record is None or await _sweep(swept(collection, key, counter_of(record)), attempts, pauses)


async def sweep_all(collection: str, *, attempts: int | None = 1, pauses: Pauses = PAUSES) -> bool:
    """Sweep every counter of a collection that holds tokens; other documents are left alone."""
    check_collection(collection)
    check_attempts(attempts, pauses)
    after: tuple[Value, ...] = ()
    is_all = True
    while True:
        look = find_all(collection, HasOther((COUNT, ROUND)), limit=SWEPT_AT_ONCE, after=after)
        try:
            found = await _asked(look, attempts, pauses)
        except PASSING:
            return False
        for record in found:
            is_all &= await _sweep(_found_to_sweep(collection, record), attempts, pauses)
        if len(found) < SWEPT_AT_ONCE:
            return is_all
        after = (found[-1][ID],)


def _found_to_sweep(collection: str, record: Document) -> tuple[UpdateOne, ...]:
    key = record.held(ID)
    try:
        return swept(collection, key, counter_of(record)) if isinstance(key, str) else ()
    except Misuse:
        return ()


async def _sweep(updates: tuple[UpdateOne, ...], attempts: int | None, pauses: Pauses) -> bool:
    """Each update is resent unchanged: a sweep decided anew might close a second round."""
    for update in updates:
        try:
            await _asked(update, attempts, pauses)
        except PASSING:
            return False
    return True


async def _asked(effect: Effect[T], attempts: int | None, pauses: Pauses) -> T:
    attempt, since = 0, await begins(pauses)
    failure: Failure | None = None
    while True:
        if not await goes_on(pauses, attempts, attempt, since):
            assert failure is not None
            raise failure
        attempt += 1
        try:
            return await effect
        except PASSING as passing:
            failure = passing.fresh()
