"""Wait until invocations have ended: poll all in one request, with growing intervals.

    Ended    Its status is final. It has its result, the name of its upload, or its error.
    Open     It did not end within the time limit.
    Absent   It does not exist: its transaction is not committed, or retention has deleted it.

A final status never changes, so later polls omit ended invocations. A wait keeps only ids in
memory.
A handler that waits gives up its slot meanwhile (`tidegate.work.worker`); waiting for a thousand
results costs no more requests than waiting for one.

A wake-up source (a change stream, a run that ended in this process) may end the pause: a `Sleep`
may
end early.

Laws
    WT1  The answer for an ended invocation is its record's content, which stays so.
    WT2  At rest, no caller waits for an ended invocation.
    WT3  A poll is one request, for exactly those that have not ended so far.
    WT4  A wait with a limit lasts no longer than that, plus the last poll, which is not earlier.

Known not to work
    - Without a limit, the wait lasts as long as the store does not answer.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.queue.completion import RunError, error_of
from tidegate.invocations.record.invocation import INVOCATION, SUCCESS
from tidegate.invocations.record.record_documents import ERROR, RESULT, RESULT_PAYLOAD, STATUS
from tidegate.model.documents import ID, Document, Fields, In, Value, exactly
from tidegate.model.effects import Ambiguous, NotApplied, Now, Sleep
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, SECOND, Duration, micros
from tidegate.model.operations import FOUND_MAX, check_collection, find_all
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.backoff import check_delay

AWAITED: Final[Fields] = (STATUS, RESULT, RESULT_PAYLOAD, ERROR)
"""The fields that a poll reads."""
_FINAL: Final = frozenset(each.status for each in INVOCATION.definitions if each.final)


# --- what is told -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Ended:
    """Its status is final.

    Attributes:
        key: The id of the invocation.
        status: Its status.
        result: The result of a success, unless uploaded.
        upload: The name of the result's upload; None without one.
        error: The error of a failure, if any.
    """

    key: str
    status: str
    result: Value = attrs.field(default=None, eq=exactly, repr=False)
    upload: str | None = None
    error: RunError | None = None

    def __str__(self) -> str:
        return f"{self.key!r} has ended: {self.status}"


@final
@attrs.frozen
class Open:
    """It has not ended.

    Attributes:
        key: The id of the invocation.
        status: The status as last read; None without a reply.
    """

    key: str
    status: str | None

    def __str__(self) -> str:
        return f"{self.key!r} has not ended: {'nobody answers' if self.status is None else self.status}"


@final
@attrs.frozen
class Absent:
    """It does not exist."""

    key: str

    def __str__(self) -> str:
        return f"there is no {self.key!r}: its transaction is not committed, or retention has removed it"


Awaited: TypeAlias = Ended | Open | Absent


def told(record: Document) -> Ended | Open:
    """The answer for a record.

    Args:
        record: The record; the fields `AWAITED` are enough.

    Raises:
        Misuse: It is no record of an invocation.
    """
    check_type(record, Document, "a record")
    key, status = needed(record, ID), needed(record, STATUS)
    if status not in _FINAL:
        return Open(key, status)
    if status == SUCCESS:
        return Ended(key, status, record.get(RESULT), record.get(RESULT_PAYLOAD))
    error = record.get(ERROR)
    return Ended(key, status, error=None if error is None else error_of(error))


# --- the program --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Waiting:
    """One command: wait until all of these have ended.

    Invariants: 1 <= len(keys) <= FOUND_MAX, all distinct; 0 < least <= most.

    Attributes:
        keys: The ids of the invocations.
        records: Their collection.
        limit: The time limit, in microseconds or as a timedelta; None for no limit.
        least: The first interval, in microseconds; each later one is twice as long.
        most: The longest interval, in microseconds.
    """

    keys: tuple[str, ...]
    records: str = "invocations"
    limit: Duration | None = attrs.field(default=None, converter=attrs.converters.optional(micros))
    least: Duration = 50 * MILLISECOND
    most: Duration = 2 * SECOND

    def __attrs_post_init__(self) -> None:
        check_tuple(self.keys, str, "the id of an invocation")
        check_int(len(self.keys), "a number of invocations to wait for", 1, FOUND_MAX)
        for key in self.keys:
            check_name(key, "an invocation")
        if len({*self.keys}) < len(self.keys):
            twice = next(key for key in self.keys if self.keys.count(key) > 1)
            raise Misuse(f"two waits for {shown(twice)} in one", todo="name each invocation once")
        check_collection(self.records)
        if self.limit is not None:
            check_delay(self.limit, "a time to wait in microseconds", 0)
        check_delay(self.least, "the least pause in microseconds", 1)
        check_delay(self.most, "the longest pause in microseconds", self.least)

    async def run(self) -> tuple[Awaited, ...]:
        """Wait; answer in the order of the keys.

        Raises:
            Refused: The store refused for good: not authorized.
            Misuse: A record is none of an invocation.
        """
        ended: tuple[Ended | Absent, ...] = ()
        left: tuple[Open, ...] = tuple(Open(key, None) for key in self.keys)
        began = await Now() if self.limit else None  # who looks once needs no clock, which may be set meanwhile
        pause = self.least
        while True:
            try:
                over, left = self._learned(left, await self._look(left))
                ended += over
            except (Ambiguous, NotApplied):
                pass
            if not left:
                break
            wait = pause
            if self.limit is not None:
                wait = min(wait, self.limit - (0 if began is None else await Now() - began))
                if wait <= 0:
                    break
            await Sleep(wait)
            pause = min(2 * pause, self.most)
        answers = {each.key: each for each in (*ended, *left)}
        return tuple(answers[key] for key in self.keys)

    async def _look(self, left: tuple[Open, ...]) -> tuple[Document, ...]:
        keys = tuple(each.key for each in left)
        return await find_all(self.records, In(ID, keys), limit=len(keys), fields=AWAITED)

    def _learned(
        self, left: tuple[Open, ...], found: tuple[Document, ...]
    ) -> tuple[tuple[Ended | Absent, ...], tuple[Open, ...]]:
        """Split into ended and open."""
        records = {record[ID]: record for record in found}
        seen = tuple(Absent(each.key) if (record := records.get(each.key)) is None else told(record) for each in left)
        return (
            tuple(each for each in seen if not isinstance(each, Open)),
            tuple(each for each in seen if isinstance(each, Open)),
        )
