"""Make invocations, one or many, in the caller's own transaction, too; who asks again under an id gets the one that is there.

The id is the caller's choice: made up for this call, or a key that says what it is for (a payment, an order), so that asking
twice makes one invocation. An insert is refused where the id is taken, and that is how it is recognised:

    StoreTime, then one insert of all of them     as many as were to be inserted: each was made by this request
    fewer, or no reply                            the same again, then a look at all that are left: the first entry of the history
                                                  of each says whether this request made it; one of another task answers nobody

In a transaction (`looks_first`) an id that is taken would end what the caller does beside, so it is looked for first, and there is
one insert of each; what fails is the transaction's to try again. It is seen, and run, once that is committed, or never.

Arguments that are too large for a record are uploaded BEFORE that, and outside of the transaction, under a name that no other
request has (`arguments_name`): what comes to nothing, for the id was taken or the transaction rolled back, is referred to by no
record, and goes by a sweep (`tidegate.invocations.purging`).

A call of a task that may be registered once at a time goes through `tidegate.invocations.registration` instead.

Laws
    EQ1  Where an invocation is said to be registered, or to answer, it has a record.
    EQ2  Who says that he has registered it has: of several who ask under an id, one.
    EQ3  Without a fault it is the time and one insert, and a look where an id is taken; in a transaction the time, and a look and
         an insert of each.
    EQ4  In a transaction it is there exactly if what the caller wrote beside it is.
    EQ5  No request writes the arguments of what another has made, or may yet make.

Known not to work
    - Whoever asks again under an id that is long done, and deleted since, makes it anew.
    - Of a record that has gone through more versions than it remembers, nobody says any more that he has registered it.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.jobs import Job, new_invocation, upload_stem
from tidegate.invocations.record_documents import HISTORY, TASK, history
from tidegate.invocations.registration import NotRegistered, Registered, RegistrationOutcome, Reused
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
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on

_ATTEMPTS: Final = 8


@final
@attrs.frozen
class NewInvocation:
    """An invocation to be made. Invariants: the id is not empty; 0 <= due, where it is a time from now.

    Attributes:
        key: Its id.
        job: What it is to do.
        due: From when on a runner may take it: an instant of the store's clock, or a time from now in microseconds.
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
    """What the arguments of an invocation to be made are uploaded as (EQ5).

    Args:
        key: The id that it is to have.
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
    """One command: these calls become invocations.

    Invariants: 1 <= len(wanted) <= INSERTS_MAX; each has another id; 1 <= attempts.

    Attributes:
        wanted: Which.
        request: An id used for this command only.
        looks_first: It is carried in a transaction of the caller's.
        records: The collection.
        attempts: How often to ask before giving up; None for any number. In a transaction it asks once.
        pauses: How long it waits in between.
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
        """The program; it answers in the order of what is wanted.

        Returns:
            Of each: `Registered` by this command, `Reused` where the id was taken, `OF_ANOTHER_TASK` where it was taken for something
            else, or `NotRegistered` where nobody answers: then it may be there all the same, and whoever asks again under its id finds
            out.

        Raises:
            Refused: The store said no, definitely, for another reason than the id.
            Failure: The same, and whatever else happens, in a transaction.
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
        """In a transaction: one after the other."""
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
        """Their records."""
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
        """Insert those whose ids are free; how many they were."""
        if len(docs) == 1:
            return int(await insert_new(self.records, docs[0]))
        return await insert_many(self.records, *docs)

    async def _found(self, left: tuple[NewInvocation, ...]) -> tuple[Document, ...]:
        """Those that are there."""
        keys = tuple(each.key for each in left)
        return await find_all(self.records, In(ID, keys), limit=len(keys), fields=(HISTORY, TASK))

    def _answer(self, found: Document) -> RegistrationOutcome:
        """What is said of one that is there."""
        job = next(each.job for each in self.wanted if each.key == found[ID])
        if found.held(TASK) != job.task:
            return OF_ANOTHER_TASK
        key = found[ID]
        is_mine = any(each.request_id == self.request_of(key) for each in history(found))
        return Registered(key) if is_mine else Reused(key)

    def request_of(self, key: str) -> str:
        """The id of the request that makes an invocation for this command."""
        check_name(key, "an invocation")
        return f"{self.request}.{key}"


OF_ANOTHER_TASK: Final = NotRegistered("an invocation of another task has this id")
_NOBODY_ANSWERED: Final = NotRegistered("nobody answered: it may be there, as who asks again under its id finds out")
