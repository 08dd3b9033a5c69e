"""Claim due invocations in bulk. Each claimed run belongs to one runner from then on.

    find      Read what is due in the runner's queues, of tasks that it knows: higher priority
              first, then longest due. Unknown tasks stay for newer runners.
    choose    Read more than it takes if other runners poll too (`tidegate.retries.contention`), and
              pick evenly from each tenant.
    rates     Meter the sets that may begin only N runs in a time (`tidegate.invocations.limits.rate_limiting`).
              The excess becomes due later and is otherwise unchanged.
    places    Reserve a place for each invocation whose set has a concurrency limit
              (`tidegate.invocations.limits.slots`).
    take      Send one bulk of guarded updates to running; each adds a try and removes `due`. If
              fewer match than were sent, read them all once (`tidegate.invocations.queue.bulk_transition`).
    make way  If more were put off than began, and the queue has more, put off other invocations
              of the same sets from its head, up to a thousand. A poll alone puts off no more than
              it has slots, so ten thousand that wait for one place would block all others.

A take without a reply is repeated until its outcome is known. Recovery ignores the runs of a
living runner, so nobody else would find them. A take therefore lasts as long as the store is away.

Tenants take turns. Each poll continues after the tenants that had theirs (`turn`); invocations
without a tenant come last. A tenant with 100,000 invocations begins as many in a turn as one with
ten.

Laws
    TA1  No two runners run an invocation at one version. Each reported run has a record that is
         running and owned by this runner.
    TA2  A runner that does not crash learns of every run that it took, despite lost messages.
    TA3  If no claims are lost, a tenant's higher priorities are taken first, then the longest due.
    TA4  Between two turns of a tenant, every other tenant with due invocations has a turn.
    TA5  At most the allowed number of a set run at once. A refused invocation waits for a place,
         or has ended.
    TA6  Without a fault a take costs one find and one bulk; one read more if claims are lost; one
         find more if it chooses among more.
    TA7  A poll that finds no due invocation returns the delay until the next one is due.
    TA8  Places of any number of sets cost two more requests, or three if a set is full. Refusals
         cost three more together, beside TA10.
    TA9  At most the admitted number of a set begin in a time. The excess is due later and keeps
         its place in the wait.
    TA10 Among the first FOUND_MAX due, sets that are full or over their rate do not block others.
         After a poll that put some off without a fault, the next one begins a run, or all
         of them are of other such sets. The cost is one find, and two requests per set over its
         rate.

Known not to work
    - An invocation that the rate admits, but that then gets no place or is lost to another runner,
      still counts: fewer begin than might.
    - Rates by key are metered one key after the other, so a poll of many keys takes long.
    - Each poll reads past invocations at the head of a queue whose task no runner knows. Give a
      task that is deployed late a queue of its own.
    - If the store refuses the read that follows a take, the runner owns runs that it does not
      know, until its next heartbeats find them in its name (`tidegate.invocations.worker.heartbeat`).
"""

from __future__ import annotations

from itertools import groupby
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.limits.rate_limit import Admission, Rate
from tidegate.invocations.limits.rate_limiting import Metering
from tidegate.invocations.limits.slots import WAITING, Placed, Placing, Wish
from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record.invocation import CONCURRENCY_CONTROLLED_FINAL, INVOCATION, RUNNING
from tidegate.invocations.record.jobs import Job, job_of
from tidegate.invocations.record.record_documents import (
    DEATHS,
    DUE,
    LATER,
    LIMITED_BY,
    NOTICE,
    PRIORITY,
    QUEUE,
    RATED_BY,
    TASK,
    TENANT,
    TRIES,
    VIEW,
    WAITS,
    unchanged,
    viewed,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, TransitionOutcome
from tidegate.model.documents import (
    ID,
    Add,
    AllOf,
    Ascending,
    Descending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Ge,
    In,
    Lt,
    Not,
    OlderThan,
    Push,
    Put,
    Remove,
    Sort,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Now, Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    Index,
    Indexes,
    StoreTime,
    bulk_update,
    check_collection,
    find_all,
    find_one,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries import contention
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on

URGENT: Final[Sort] = (Descending(TENANT), Descending(PRIORITY), Ascending(DUE))
_BRIEF: Final[Fields] = (*VIEW, TASK, TENANT, PRIORITY, DUE, LIMITED_BY, RATED_BY, TRIES, DEATHS, WAITS)
_OF_NOBODY: Final = Not(Ge(TENANT, ""))
"""A range, which an index keeps in its order; null would be in two places."""
_UNREADABLE: Final = Field[str]("unreadable")
_TEXT_MAX: Final = 1_000


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Takeable:
    """A task that a runner knows. Invariants: the name is not empty; 1 <= at_most, held_back.

    Attributes:
        name: Its name.
        at_most: The concurrency limit of a set (`Job.limited_by`).
        held_back: The first delay, in microseconds, after which a refused invocation is due again
            without a wake-up; None if a refusal ends it.
        rate: The rate limit of a set (`Job.rated_by`); None for no limit.
        is_heard: Triggers are notified of each run that begins (`tidegate.triggers.outbox_relay`).
    """

    name: str
    at_most: int = 1
    held_back: Duration | None = 5 * SECOND
    rate: Rate | None = None
    is_heard: bool = False

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a task")
        check_int(self.at_most, "a number of places", 1)
        if self.held_back is not None:
            check_int(self.held_back, "a time in microseconds", 1)
        check_type(self.rate, (Rate, NoneType), "a rate")
        check_type(self.is_heard, bool, "is_heard")


@final
@attrs.frozen
class TakenRun:
    """A run that has begun.

    Attributes:
        key: The id of the invocation.
        record: Its record now; pass it as `expected` to the next move.
        job: The work.
        tries: The number of runs begun, including this one.
        document: Its record as found, or as read after the take.
        due: Its due time as found.
    """

    key: str
    record: StatusRecord
    job: Job
    tries: int
    document: Document = attrs.field(repr=False)
    due: Instant | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.key!r}: {self.job}, {self.record}"


@final
@attrs.frozen
class Taken:
    """The result of a poll.

    Attributes:
        runs: The runs that have begun, highest priority first.
        lost: The number that other runners took first.
        held_back: The number that got no place.
        postponed: The number over their rate.
        is_more: More may be due.
        turn: Where the next poll begins (`Taker.take`).
        due_in: The delay until the next one is due, in microseconds: of all if none is due, else of
            the postponed. None if unknown.
        unreadable: The ids of unreadable records; they were removed from the queue.
    """

    runs: tuple[TakenRun, ...] = ()
    lost: int = 0
    held_back: int = 0
    postponed: int = 0
    is_more: bool = False
    turn: str | None = None
    due_in: Duration | None = None
    unreadable: tuple[str, ...] = ()


_Found: TypeAlias = tuple[Document, ...]
_Over: TypeAlias = tuple[tuple[Document, Instant | None, Duration | None], ...]
"""Documents over their rate, with new due time and delay; None if the meter does not answer."""


# --- decisions --------------------------------------------------------------------------------------------------------


def next_turn(tenants: tuple[str | None, ...], limit: int) -> str | None:
    """The tenant after which the next poll begins.

    Args:
        tenants: The tenants of the found invocations, in their order.
        limit: The limit of the find.

    Returns:
        The last tenant whose share was not cut short, or the only tenant found. None to restart at
        the first tenant.
    """
    check_tuple(tenants, (str, NoneType), "a tenant")
    check_int(limit, "a number of invocations", 1)
    if len(tenants) < limit or not tenants or tenants[-1] is None:
        return None
    had = [whose for whose, _ in groupby(tenants)]
    return had[-1] if len(had) == 1 else had[-2]


# --- the program ------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Taker:
    """Takes invocations for a runner. Invariants: 1 or more queues and tasks, each once; 1 <=
    attempts.

    Attributes:
        runner: The owner of the runs. Each process, and each restart of it, needs another name.
        queues: The queues to poll.
        tasks: The tasks that it knows.
        records, places, meters: The collections.
        attempts: The attempts of a find. A take that was sent repeats until its outcome is known.
        pauses: The delays between attempts.
    """

    runner: str
    queues: tuple[str, ...]
    tasks: tuple[Takeable, ...]
    records: str = "invocations"
    places: str = "places"
    meters: str = "meters"
    attempts: int | None = 4
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.runner, "a runner")
        check_tuple(self.queues, str, "a queue")
        for queue in self.queues:
            check_name(queue, "a queue")
        check_tuple(self.tasks, Takeable, "a task")
        for names, what in ((self.queues, "queue"), (tuple(each.name for each in self.tasks), "task")):
            if not names or len(set(names)) < len(names):
                raise Misuse(
                    f"a runner that takes from {shown(names)}", todo=f"name each {what} once, and at least one"
                )
        check_collection(self.records)
        check_collection(self.places)
        check_collection(self.meters)
        check_attempts(self.attempts, self.pauses)

    @property
    def indexes(self) -> Indexes:
        """The indexes that limit the reads of a poll to the invocations that it takes."""
        return {
            self.records: (
                Index((Ascending(QUEUE), *URGENT), Exists(DUE)),
                Index((Ascending(LATER),), AllOf((Exists(DUE), Exists(LATER)))),
                WAITING,
            )
        }

    async def take(self, most: int, factor: int = 1, turn: str | None = None) -> Taken:
        """Poll once, and take what is due.

        Args:
            most: The limit; 1 <= most <= FOUND_MAX.
            factor: Choose among `factor * most` if other runners poll too (`spread.widened`).
            turn: `Taken.turn` of the previous poll; None for the first tenant.

        Raises:
            Refused: The store refuses for good.
        """
        check_int(most, "a number of invocations", 1, FOUND_MAX)
        check_int(factor, "a factor", 1, contention.FACTOR_MAX)
        if turn is not None:
            check_name(turn, "a tenant")
        limit = min(factor * most, FOUND_MAX)
        try:
            found = await self.due(limit, turn, None if limit == most else _BRIEF)
            if not found:
                return Taken(due_in=await self._due_in())
        except (Ambiguous, NotApplied):
            return Taken(turn=turn)
        draw = f"{self.runner} {await Now()}"
        tenants = tuple(_tenant(each) for each in found)
        keys = tuple(str(each.held(ID)) for each in found)
        some = tuple(found[at] for at in contention.drawn(keys, most, draw, tenants))
        judged = tuple((each, _trouble(each)) for each in some)
        good = tuple(each for each, trouble in judged if trouble is None)
        unreadable = await self._set_aside(tuple((each, trouble) for each, trouble in judged if trouble is not None))
        good, over = await self._within_rates(good)
        placed = await self._placed(good)
        moves = tuple(self._move(each) for each in good if each.get(LIMITED_BY) is None or each[ID] in placed.has)
        answers = await self._begin(moves) if moves else ()
        records = tuple(
            (move.key, answer.record)
            for move, answer in zip(moves, answers, strict=True)
            if isinstance(answer, Granted)
        )
        refused = tuple(each for each in good if each[ID] in placed.refused)
        is_more = len(found) == limit
        try:
            others = await self._head(turn) if is_more and len(refused) + len(over) > len(records) else ()
            refused = _with(refused, tuple(each for each in others if self._is_full(each, placed)))[:FOUND_MAX]
            await self._refuse(refused, placed)
            lined_up = await self._line_up(_without(others, refused), over)
        except Refused:
            if not records:  # otherwise report the runs; the next poll meets the refusal again
                raise
            lined_up = 0
        docs = found if limit == most else await self._read(tuple(key for key, _ in records))
        runs = _runs(records, docs, found)
        return Taken(
            runs,
            len(good) - len(placed.refused) - len(records),
            len(refused),
            len(over) + lined_up,
            is_more=is_more,
            turn=next_turn(tenants, limit),
            due_in=min((after for _, _, after in over if after is not None), default=None),
            unreadable=unreadable,
        )

    # --- find ---

    async def due(self, limit: int, turn: str | None, fields: Fields | None) -> _Found:
        """The due invocations: after tenant `turn`, then without a tenant, then from the start."""
        ways: tuple[tuple[Filter, ...], ...] = ((),) if turn is None else ((Lt(TENANT, turn),), (_OF_NOBODY,), ())
        found: _Found = ()
        for way in ways:
            where = AllOf((*self._known_to_it, OlderThan(DUE, 0), *way))
            more = await find_all(self.records, where, limit=limit, fields=fields, sort=URGENT)
            found = _with(found, more)[:limit]
            if len(found) == limit:
                break
        return found

    async def _head(self, turn: str | None) -> _Found:
        """The readable invocations at the head of the queue, from the tenant `turn` on."""
        try:
            found = await self.due(FOUND_MAX, turn, _BRIEF)
        except (Ambiguous, NotApplied):
            return ()
        return tuple(each for each in found if _trouble(each) is None)

    @property
    def _known_to_it(self) -> tuple[Filter, ...]:
        return In(QUEUE, self.queues), In(TASK, tuple(each.name for each in self.tasks))

    async def _due_in(self) -> Duration | None:
        where = AllOf((*self._known_to_it, Exists(DUE), Exists(LATER)))
        first = await find_one(self.records, where, fields=(DUE, LATER), sort=(Ascending(LATER),))
        due = None if first is None else first.get(DUE)
        return None if due is None else max(due - await StoreTime(), 0)

    async def _set_aside(self, docs: tuple[tuple[Document, str], ...]) -> tuple[str, ...]:
        """Remove unreadable documents from the queue, which they would block; record why."""
        aside: tuple[str, ...] = ()
        for doc, trouble in docs:
            key = doc.held(ID)
            where = AllOf((Eq(Field[object](ID.name), key), Exists(DUE)))
            try:
                await update_one(self.records, where, Remove(DUE), Put(_UNREADABLE, trouble[:_TEXT_MAX]))
            except (Ambiguous, NotApplied, NotDurable):
                continue  # the next look finds it
            aside = (*aside, str(key))
        return aside

    # --- rates ---

    async def _within_rates(self, found: _Found) -> tuple[_Found, _Over]:
        """Split into those that may begin now and those over their rate."""
        over: _Over = ()
        for name, rate, mine in self._rated(found):
            over = (*over, *await self._over(name, rate, mine))
        await self._put_off(over)
        return _without(found, tuple(doc for doc, _, _ in over)), over

    async def _line_up(self, others: _Found, over: _Over) -> int:
        """Put off others of the sets that are over their rate; return how many."""
        sets = tuple(each[:2] for each in self._rated(tuple(doc for doc, due, _ in over if due is not None)))
        late: _Over = ()
        for name, rate, mine in self._rated(others):
            if (name, rate) in sets:
                late = (*late, *await self._over(name, rate, (), mine))
        await self._put_off(late)
        return len(late)

    async def _put_off(self, over: _Over) -> None:
        """Without a reply they may still be due, which is harmless."""
        updates = tuple(
            update_one(
                self.records,
                AllOf((unchanged(doc[ID], _known(doc)), OlderThan(DUE, 0))),
                Put(DUE, due),
                Put(LATER, due),
            )
            for doc, due, _ in over
            if due is not None
        )
        if updates:
            try:
                await bulk_update(*updates)
            except (Ambiguous, NotApplied, NotDurable):
                return

    def _rated(self, found: _Found) -> tuple[tuple[str, Rate, _Found], ...]:
        sets: dict[tuple[str, Rate], list[Document]] = {}
        for doc in found:
            if (name := doc.get(RATED_BY)) and (rate := self._task(doc[TASK]).rate):
                sets.setdefault((name, rate), []).append(doc)
        return tuple((name, rate, tuple(docs)) for (name, rate), docs in sets.items())

    async def _over(self, name: str, rate: Rate, docs: _Found, behind: _Found = ()) -> _Over:
        answer = await Metering(
            key=name, rate=rate, wanted=len(docs), behind=len(behind), meters=self.meters, attempts=self.attempts, pauses=self.pauses
        ).run()  # fmt: skip
        if not isinstance(answer, Admission):
            return tuple((doc, None, None) for doc in (*docs, *behind))
        late = (*docs[answer.admitted :], *behind)
        return tuple((doc, due, due - answer.at) for doc, due in zip(late, answer.dues, strict=True))

    # --- places ---

    async def _placed(self, found: _Found) -> Placed:
        wishes = self._wishes(found)
        return await self._placing(wishes).place() if wishes else Placed()

    def _wishes(self, found: _Found) -> tuple[Wish, ...]:
        return tuple(
            Wish(
                doc[ID],
                _known(doc),
                needed(doc, LIMITED_BY),
                self._task(doc[TASK]).at_most,
                doc.get(WAITS) or doc.get(DUE),
            )
            for doc in found
            if doc.get(LIMITED_BY) is not None
        )

    def _placing(self, wishes: tuple[Wish, ...]) -> Placing:
        return Placing(wishes=wishes, records=self.records, places=self.places, attempts=self.attempts)

    def _is_full(self, doc: Document, placed: Placed) -> bool:
        """Whether its set has refused an invocation and it has no place."""
        places = dict(placed.by).get(doc.get(LIMITED_BY) or "", ())
        return len(places) >= self._task(doc[TASK]).at_most and all(place.invocation != doc[ID] for place in places)

    async def _refuse(self, refused: _Found, placed: Placed) -> None:
        """A refused invocation waits, or ends if its task has no `held_back`."""
        if not refused:
            return
        ends = tuple(
            RecordMove(doc[ID], _known(doc), CONCURRENCY_CONTROLLED_FINAL, self._request(doc[ID], _known(doc).version))
            for doc in refused
            if self._task(doc[TASK]).held_back is None
        )
        if ends:
            await Settling(self.records, INVOCATION, ends, None, self.attempts, pauses=self.pauses).run()
        for held_back in sorted({self._task(doc[TASK]).held_back or 0 for doc in refused} - {0}):
            some = tuple(doc for doc in refused if self._task(doc[TASK]).held_back == held_back)
            await self._placing(self._wishes(some)).wait(held_back)
        await self._placing(()).look(placed.by)

    def _task(self, name: str) -> Takeable:
        return next(each for each in self.tasks if each.name == name)

    def _request(self, key: str, version: int) -> str:
        """A stable id: a repeated request of this runner has the same one."""
        return f"{self.runner}.{key}.{version}"

    # --- take ---

    def _move(self, doc: Document) -> RecordMove:
        key, known = doc[ID], _known(doc)
        waits = () if doc.get(LIMITED_BY) is None else (Remove(WAITS),)
        heard = (Push(NOTICE, known.version + 1),) if self._task(doc[TASK]).is_heard else ()
        return RecordMove(key, known, RUNNING, self._request(key, known.version), (Add(TRIES, 1), *waits, *heard))

    async def _begin(self, moves: tuple[RecordMove, ...]) -> tuple[TransitionOutcome, ...]:
        return await Settling(self.records, INVOCATION, moves, self.runner, None, pauses=self.pauses).run()

    async def _read(self, keys: tuple[str, ...]) -> _Found:
        """Read the taken documents whole. Retries without a limit, because they run."""
        if not keys:
            return ()
        since = await begins(self.pauses)
        attempt = 0
        while True:
            try:
                return await find_all(self.records, In(ID, keys), limit=len(keys))
            except (Ambiguous, NotApplied):
                attempt += 1
                await goes_on(self.pauses, None, attempt, since)


def _with(found: _Found, more: _Found) -> _Found:
    known = {each.held(ID) for each in found}
    return (*found, *(each for each in more if each.held(ID) not in known))


def _without(found: _Found, those: _Found) -> _Found:
    keys = {each.held(ID) for each in those}
    return tuple(each for each in found if each.held(ID) not in keys)


def _known(doc: Document) -> StatusRecord:
    known = viewed(doc)
    assert known is not None, "it was found"
    return known


def _tenant(doc: Document) -> str | None:
    held = doc.held(TENANT)
    return held if isinstance(held, str) else None


def _trouble(doc: Document) -> str | None:
    """The reason why it cannot be taken, or None."""
    try:
        check_name(doc.held(ID), "an invocation")
        known = _known(doc)
        check_int(doc.held(TRIES), "a number of tries", 0)
        check_int(doc.held(DEATHS) if doc.has(DEATHS) else 0, "a number of deaths", 0)
        if doc.has(QUEUE):
            job_of(doc)
    except Misuse as misuse:
        return misuse.what
    return None if RUNNING in INVOCATION.following(known.status) else f"{known.status!r}, and yet due"


def _runs(records: tuple[tuple[str, StatusRecord], ...], docs: _Found, found: _Found) -> tuple[TakenRun, ...]:
    """The runs of these records. A record that has been deleted since has no run."""
    held, dues = {doc[ID]: doc for doc in docs}, {doc[ID]: doc.get(DUE) for doc in found}
    return tuple(
        TakenRun(key, record, job_of(held[key]), _tries(held[key], record), held[key], dues[key])
        for key, record in records
        if key in held
    )


def _tries(doc: Document, record: StatusRecord) -> int:
    """The number of runs begun. A document read before the take lacks this run."""
    tries = doc.get(TRIES) or 0
    return tries if viewed(doc) == record else tries + 1
