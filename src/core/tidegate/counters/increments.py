"""One more, exactly once, whatever the network does: the two steps of an increment, and the sweep behind them.

What is decided is in `tidegate.counters.counter`; this is what is asked of the store, and when. An increment reads the
record, decides, and sends the step that is due. A step that matches nothing may have been done before, and one without an
answer may be done yet: it reads again and decides again, for each step finds nothing to do when it comes twice. Its owner may
crash anywhere. What it has noted, a sweep counts.

Laws
    CP1  Each token is counted once or not at all, and the count is how many were.
    CP2  What is noted stays until it is counted.
    CP3  Where the answer is that the increment is counted, or that it is not, that is true.
    CP4  At rest, once sweeps have been over the record, nothing is left in it but the count.

A step that no majority has confirmed is sent again: if it stands it finds nothing to do, and that answer confirms it; if a
failover took it back it is done anew. To look instead would show what may still be taken back.

Known not to work
    - An owner that gives up does not know whether it will be counted: what it noted is, at the next sweep.
    - Sweeps that never come: the record grows until it is full, and refuses.
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
from tidegate.retries.pauses import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on
from tidegate.retries.repeating import PASSING

T = TypeVar("T")

ATTEMPTS: Final = 8
SWEPT_AT_ONCE: Final = 100
"""How many counters are asked for in one request."""


@final
@attrs.frozen
class Unsettled(Attempted):
    """It is not counted yet as far as anybody knows; if a first step of it was applied, a sweep counts it."""

    attempts: int

    def __str__(self) -> str:
        return f"unsettled after {self.attempts} attempts"


IncrementOutcome: TypeAlias = Counted | Full | Forgotten | Unsettled


async def _send(
    update: UpdateOne, made: int, attempts: int | None, pauses: Pauses, since: Instant | None
) -> tuple[bool, int]:
    """Whether an update was applied, for good, and how many attempts there were by then. False says nothing: look again."""
    while True:
        try:
            return await update > 0, made
        except NotDurable:
            pass  # done, and a failover may take it back: sent again it finds nothing to do, or does it anew
        except (Ambiguous, NotApplied):
            return False, made
        if not await goes_on(pauses, attempts, made, since):
            return False, made
        made += 1


def swept(collection: str, key: str, found: Counter) -> tuple[UpdateOne, ...]:
    """The updates of a sweep over a counter as it was read."""
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
        collection: Where the counters are.
        key: The counter's id; its record is there (`new_counter`).
        token: An id used for this increment only.
        attempts: How often to look, or to send a step again, before giving up; None for any number.
        pauses: How long it waits in between.
        tokens_max: From how many tokens on the record is full.

    Returns:
        `Counted`; `Full` if it was not noted; `Forgotten` or `Unsettled` where nobody knows yet.

    Raises:
        Misuse: An argument is of the wrong type or empty, or there is no such counter.
        Refused: The store said no, definitely.
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
    """Count what owners left behind in a counter, and close the round; three sweeps at rest leave nothing but the count.

    What one sweep does not come to do, the next one does.

    Args:
        collection: Where the counters are.
        key: The counter's id.
        attempts: How often to send each request before it is left to the next sweep; None for any number.
        pauses: How long it waits in between.

    Returns:
        Whether all of it is done.

    Raises:
        Misuse: An argument is of the wrong type or empty.
        Refused: The store said no, definitely.
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
    """The same for each counter of a collection in which something is left; the others are passed by where they are.

    What is no counter is left as it is.

    Args:
        collection: Where the counters are.
        attempts: How often to send each request before it is left to the next sweep; None for any number.
        pauses: How long it waits in between.

    Returns:
        Whether all of it is done.

    Raises:
        Misuse: An argument is of the wrong type.
        Refused: The store said no, definitely.
    """
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
    """As far as the store answers. Each is sent again as it is: a sweep that was begun anew might close a second round."""
    for update in updates:
        try:
            await _asked(update, attempts, pauses)
        except PASSING:
            return False
    return True


async def _asked(effect: Effect[T], attempts: int | None, pauses: Pauses) -> T:
    """What it is answered."""
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
