"""Create invocations, one or many, optionally in the caller's transaction; repeated ids are reused.

The caller chooses the id: a new one, or a key with a meaning (a payment, an order), so that two
requests create one invocation. An insert is refused if the id exists, which reveals a duplicate:

    StoreTime, one insert of all    If all were inserted, this request created each.
    fewer, or no reply              Repeat, then read all that are left. The first entry of each
                                    history shows whether this request created it. One of another
                                    task is no answer.

In a transaction (`looks_first`) a duplicate id would abort the caller's other writes. So each id is
read first and inserted singly; the caller's transaction handles failures. The invocation is
visible,
and runs, only after the commit.

Arguments too large for a record are uploaded BEFORE that, outside of the transaction, under a name
unique to the request (`arguments_name`). If the id exists or the transaction rolls back, no record
refers to the upload, and a sweep deletes it (`tidegate.invocations.upkeep.pruning`).

A call of a task with registration concurrency goes through `tidegate.invocations.limits.registration`.

Laws
    EQ1  An invocation that is answered as registered, or as reused, has a record.
    EQ2  A caller that is answered `Registered` created it; of several with one id, only one is.
    EQ3  Without a fault it costs the time and one insert, and one read if an id exists. In a
         transaction: the time, and a read and an insert each.
    EQ4  In a transaction it exists exactly if the caller's other writes do.
    EQ5  No request overwrites the arguments of an invocation that another has created, or may
         still create.

Known not to work
    - A repeated id whose invocation ended and was deleted creates a new one.
    - If a record has had more versions than it remembers, its creator is answered `Reused`.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.registration import NotRegistered, Registered, RegistrationOutcome, Reused
from tidegate.invocations.record.jobs import Job, new_invocation, upload_stem
from tidegate.invocations.record.record_documents import HISTORY, TASK, history
from tidegate.model.documents import ID, Document, Eq, In
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import (
    INSERTS_MAX,
    StoreTime,
    check_collection,
    find_all,
    find_one,
    insert_many,
    insert_one,
)
from tidegate.model.programs import insert_new
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on

_ATTEMPTS: Final = 8


@final
@attrs.frozen
class NewInvocation:
    """An invocation to create. Invariants: the id is not empty; 0 <= due, if it is a delay.

    Attributes:
        key: Its id.
        job: Its work.
        due: When a runner may take it: an instant of the store's clock, or a delay in microseconds.
    """

    key: str
    job: Job
    due: Instant | Duration = 0

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.job, Job, "a job")
        check_type(self.due, (Instant, int), "an instant or a time in microseconds")
        if not isinstance(self.due, Instant):
            check_int(self.due, "a time in microseconds", 0)


def arguments_name(key: str, request: str) -> str:
    """The name under which to upload the arguments of a new invocation (EQ5).

    Args:
        key: Its id.
        request: An id used for this upload only.

    Raises:
        Misuse: One of them is empty or no string.
    """
    check_name(request, "a request")
    return f"{upload_stem(key)}#{request}"


_Answers: TypeAlias = tuple[tuple[str, RegistrationOutcome], ...]


@final
@attrs.frozen(kw_only=True)
class Enqueue:
    """One command: create these invocations.

    Invariants: 1 <= len(wanted) <= INSERTS_MAX; each has another id; 1 <= attempts.

    Attributes:
        wanted: The invocations.
        request: An id used for this command only.
        looks_first: The command runs in the caller's transaction.
        records: The collection.
        attempts: The number of attempts; None for no limit. In a transaction there is one.
        pauses: The delays between attempts.
    """

    wanted: tuple[NewInvocation, ...]
    request: str
    looks_first: bool = False
    records: str = "invocations"
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_tuple(self.wanted, NewInvocation, "an invocation to be made")
        check_int(len(self.wanted), "a number of invocations", 1, INSERTS_MAX)
        if len({each.key for each in self.wanted}) < len(self.wanted):
            raise Misuse("two invocations of one id", todo="give each its own, or leave one out")
        check_name(self.request, "a request")
        check_type(self.looks_first, bool, "looks_first")
        check_collection(self.records)
        check_attempts(self.attempts, self.pauses)

    async def run(self) -> tuple[RegistrationOutcome, ...]:
        """Create them.

        Returns:
            For each, in order: `Registered` by this command, `Reused` if the id existed,
            `OF_ANOTHER_TASK` if it belongs to another task, or `NotRegistered` without a reply. The
            last
            may still exist; a repetition under its id finds out.

        Raises:
            Refused: The store refused for good, for another reason than the id.
            Failure: In a transaction, any failure.
        """
        if self.looks_first:
            return await self._beside(await StoreTime())
        known: _Answers = ()
        left = self.wanted
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            try:
                inserted = await self._insert(self._documents(left, await StoreTime()))
                if inserted == len(left):
                    known = (*known, *((each.key, Registered(each.key)) for each in left))
                    break
                found = await self._found(left)
            except (Ambiguous, NotApplied, NotDurable):
                continue
            known = (*known, *((each[ID], self._answer(each)) for each in found))
            left = tuple(each for each in left if each.key not in dict(known))
        answers = dict(known)
        return tuple(answers.get(each.key, _NOBODY_ANSWERED) for each in self.wanted)

    async def _beside(self, now: Instant) -> tuple[RegistrationOutcome, ...]:
        """In a transaction, one after the other."""
        known: tuple[RegistrationOutcome, ...] = ()
        for each, doc in zip(self.wanted, self._documents(self.wanted, now), strict=True):
            found = await find_one(self.records, Eq(ID, each.key), fields=(HISTORY, TASK))
            if found is None:
                await insert_one(self.records, doc)
                known = (*known, Registered(each.key))
            else:
                known = (*known, self._answer(found))
        return known

    def _documents(self, left: tuple[NewInvocation, ...], now: Instant) -> tuple[Document, ...]:
        return tuple(
            new_invocation(
                each.key,
                each.job,
                self.request_of(each.key),
                now,
                each.due if isinstance(each.due, Instant) else now + each.due,
            )
            for each in left
        )

    async def _insert(self, docs: tuple[Document, ...]) -> int:
        """Insert those with free ids; return their number."""
        if len(docs) == 1:
            return int(await insert_new(self.records, docs[0]))
        return await insert_many(self.records, *docs)

    async def _found(self, left: tuple[NewInvocation, ...]) -> tuple[Document, ...]:
        keys = tuple(each.key for each in left)
        return await find_all(self.records, In(ID, keys), limit=len(keys), fields=(HISTORY, TASK))

    def _answer(self, found: Document) -> RegistrationOutcome:
        job = next(each.job for each in self.wanted if each.key == found[ID])
        if found.held(TASK) != job.task:
            return OF_ANOTHER_TASK
        key = found[ID]
        is_mine = any(each.request_id == self.request_of(key) for each in history(found))
        return Registered(key) if is_mine else Reused(key)

    def request_of(self, key: str) -> str:
        """The id of the request that creates one invocation of this command."""
        check_name(key, "an invocation")
        return f"{self.request}.{key}"


OF_ANOTHER_TASK: Final = NotRegistered("an invocation of another task has this id")
_NOBODY_ANSWERED: Final = NotRegistered("nobody answered: it may be there, as who asks again under its id finds out")
