"""Wait until invocations have ended: one request for all of them, ever more rarely, until each has a result, an error, or none.

    Ended    its status is final; with its result (or the name of the upload that has it), or its error
    Open     it has not ended in the time that was given
    Absent   there is no such invocation: the transaction that makes it is not committed, or retention has removed it

What is final never changes, so what has ended is not asked for again. A wait holds nothing but a few ids: whoever waits in a
run gives its place away for so long (`tidegate.work.worker`), and a thousand results are awaited as one is.

Whoever knows better than a clock when to look (a change stream, a run that ended in the same process) ends the pause: a
`Sleep` may end early.

Laws
    WT1  What is told of an invocation that has ended is what its record says, and will say.
    WT2  At rest, nobody waits for what has ended.
    WT3  A look is one request, for what has not ended so far and for nothing else.
    WT4  Who gives a time waits no longer than that, beside the last look; and that look is not before it.

Known not to work
    - Where nobody answers and no time is given it waits for as long as that lasts.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.ending import RunError, error_of
from tidegate.invocations.invocation import INVOCATION, SUCCESS
from tidegate.invocations.record_documents import ERROR, RESULT, RESULT_PAYLOAD, STATUS
from tidegate.model.documents import ID, Document, Fields, In, Value, exactly
from tidegate.model.effects import Ambiguous, NotApplied, Now, Sleep
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, SECOND, Duration, micros
from tidegate.model.operations import FOUND_MAX, check_collection, find_all
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.backoff import check_delay

AWAITED: Final[Fields] = (STATUS, RESULT, RESULT_PAYLOAD, ERROR)
"""What is read of an invocation that is waited for."""
_FINAL: Final = frozenset(each.status for each in INVOCATION.definitions if each.final)


# --- what is told -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Ended:
    """Its status is final.

    Attributes:
        key: The id of the invocation.
        status: How it ended.
        result: Of a success, unless it was uploaded.
        upload: The name that the result was uploaded under; None if it was not.
        error: Of a failure, where there is one.
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
        status: What it was when somebody looked; None where nobody answered.
    """

    key: str
    status: str | None

    def __str__(self) -> str:
        return f"{self.key!r} has not ended: {'nobody answers' if self.status is None else self.status}"


@final
@attrs.frozen
class Absent:
    """There is no such invocation."""

    key: str

    def __str__(self) -> str:
        return f"there is no {self.key!r}: its transaction is not committed, or retention has removed it"


Awaited: TypeAlias = Ended | Open | Absent


def told(record: Document) -> Ended | Open:
    """What a record tells to whoever waits for it.

    Args:
        record: The record, or these fields of it: `AWAITED`.

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

    Invariants: 1 <= len(keys) <= FOUND_MAX, none of them twice; 0 < least <= most.

    Attributes:
        keys: The ids of the invocations.
        records: Their collection.
        limit: How long to wait, in microseconds or a timedelta; None for as long as it takes.
        least: How long the first pause lasts, in microseconds; each is twice as long as the one before.
        most: How long the longest one lasts.
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
        """The program; it answers in the order of the keys.

        Raises:
            Refused: The store said no, definitely: not authorised.
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
        """What has ended by a look, and what is still open."""
        records = {record[ID]: record for record in found}
        seen = tuple(Absent(each.key) if (record := records.get(each.key)) is None else told(record) for each in left)
        return (
            tuple(each for each in seen if not isinstance(each, Open)),
            tuple(each for each in seen if isinstance(each, Open)),
        )
