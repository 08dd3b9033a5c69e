"""Take invocations that are due, many in a request: each is begun by one runner, which owns it from then on.

    find      what is due in these queues, of tasks that this runner knows: the more urgent first, and of equal ones what is due
              longest. What a runner does not know stays for newer ones
    choose    among more than are taken, where others look at the same time (`tidegate.retries.spread`), of each tenant alike
    rates     of those of which no more than a number may begin in a time, as many go on as may (`tidegate.invocations.metering`);
              the others are due later, and wait as they were: nothing else of them changes
    places    of those of which no more than a number may run at once, each needs one (`tidegate.invocations.placing`)
    take      one bulk of guarded updates to running, each of which raises the number of tries and removes `due`; one look at
              all where the total is not all (`tidegate.invocations.settling`)
    make way  where more were put off than have begun, and there is more: what else stands at the head of the queue and is of the same
              sets is put off with them, a thousand at a time. Else ten thousand that wait for one place would hold up all others, for
              a look puts off no more than it has slots

A request without a reply is asked again until its outcome is known, for nobody else would ever look after what a living runner
has taken and does not know of; so a take lasts as long as the store is away.

Tenants take turns. A look goes along the tenants and says where the next one begins (`turn`), behind those that had theirs; who
is nobody's comes last. A tenant with a hundred thousand invocations has as many begun in a turn as one with ten.

Laws
    TA1  No two runners run an invocation at one version, and each run that is told is of a record that is running, of this runner.
    TA2  What a runner has taken is told to it, whatever becomes of requests and replies, if it does not crash.
    TA3  Of one tenant, the more urgent is taken first, and of equal ones what is due longest, where no claims are lost.
    TA4  Between two turns of a tenant each other one that has something due has had its turn.
    TA5  No more of a set run at once than may; who is refused waits until a place is free, or has ended.
    TA6  Without a fault it is one find and one bulk; a look where claims are lost; and one more find where it chooses among more.
    TA7  Who finds nothing is told after how long the next one will be due.
    TA8  Places of any number of sets are taken in two requests more, or three where all those of one are taken; who is refused
         takes three more, together, beside TA10.
    TA9  No more of a set begin in a time than were admitted in it; who is over its rate is due later, and waits as it did.
    TA10 Of FOUND_MAX that are due first, those of sets that are full or over their rate do not hold up the others: where a look was
         put off, and nothing fails, the next one begins something, or all of them are of other such sets. It takes a find more, and two
         requests for each set that is over its rate.

Known not to work
    - Who is admitted by its rate and then finds no place, or is taken by others meanwhile, was counted: fewer begin than might.
    - Of rates by key each key is metered by itself, one after the other, so a look at many of them takes as long as all.
    - What no runner knows, at the head of a queue, is read and passed over at each look; give a task that is deployed late a
      queue of its own.
    - Where the store refuses the look that follows a take, what was taken stays with its runner, which does not know of it, until
      its next beats find it in its name (`tidegate.invocations.heeding`).
"""

from __future__ import annotations

from itertools import groupby
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.invocation import CONCURRENCY_CONTROLLED_FINAL, INVOCATION, RUNNING
from tidegate.invocations.jobs import Job, job_of
from tidegate.invocations.metering import Metering
from tidegate.invocations.placing import WAITING, Placed, Placing, Wish
from tidegate.invocations.rates import Admission, Rate
from tidegate.invocations.record_documents import (
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
from tidegate.invocations.settling import RecordMove, Settling
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import Granted, TransitionOutcome
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
from tidegate.retries import spread
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on

URGENT: Final[Sort] = (Descending(TENANT), Descending(PRIORITY), Ascending(DUE))
_BRIEF: Final[Fields] = (*VIEW, TASK, TENANT, PRIORITY, DUE, LIMITED_BY, RATED_BY, TRIES, DEATHS, WAITS)
_OF_NOBODY: Final = Not(Ge(TENANT, ""))
"""As a range, which an index has in its order; it has null at two places."""
_UNREADABLE: Final = Field[str]("unreadable")
_TEXT_MAX: Final = 1_000


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Takeable:
    """A task that a runner knows. Invariants: the name is not empty; 1 <= at_most, held_back.

    Attributes:
        name: Its name.
        at_most: How many invocations of a set (`Job.limited_by`) may run at once.
        held_back: After how long one that gets no place is due again even if nobody wakes it, at first, in microseconds; None if
            it ends then.
        rate: How many of a set (`Job.rated_by`) may begin in a time; None for any number.
        is_heard: Whether triggers hear of each run that begins (`tidegate.triggers.noticing`).
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
        key: The invocation.
        record: What its record is now: whoever moves it on passes this as `expected`.
        job: What is to be done.
        tries: How many runs of it have begun, this one included.
        document: Its record as it was when it was found, or later.
        due: When it was due, as it was found.
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
    """What a look has come to.

    Attributes:
        runs: Those that have begun, the most urgent first.
        lost: How many others have taken meanwhile.
        held_back: How many got no place.
        postponed: How many were over their rate.
        is_more: There may be more that is due.
        turn: Where the next look begins (`Taker.take`).
        due_in: Where nothing is due, after how long the next one will be, in microseconds; else, of those that were postponed. None
            if none is known.
        unreadable: The ids of those that were no records, and were taken out of the queue.
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
"""What is over its rate, as it was found, when it is due, and after how long; None where nobody answers."""


# --- decisions --------------------------------------------------------------------------------------------------------


def next_turn(tenants: tuple[str | None, ...], limit: int) -> str | None:
    """Behind which tenant the next look begins.

    Args:
        tenants: Whose those are that were found, in their order.
        limit: How many were asked for.

    Returns:
        The last one whose share was not cut short, or that had all of this turn; None to begin with the first one.
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
    """Takes invocations for a runner. Invariants: a queue and a task at least, each once; 1 <= attempts.

    Attributes:
        runner: Who owns them then; another name for each process, and each of its lives.
        queues: From where.
        tasks: Which it knows.
        records, places, meters: The collections.
        attempts: How often a look is tried before it is left to the next one; what was asked for is asked for until it is known.
        pauses: How long it waits in between.
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
        """What a look needs: it reads what it takes, however many wait, are due later, or have ended."""
        return {
            self.records: (
                Index((Ascending(QUEUE), *URGENT), Exists(DUE)),
                Index((Ascending(LATER),), AllOf((Exists(DUE), Exists(LATER)))),
                WAITING,
            )
        }

    async def take(self, most: int, factor: int = 1, turn: str | None = None) -> Taken:
        """The program: one look, and what it takes.

        Args:
            most: How many at most; 1 <= most <= FOUND_MAX.
            factor: Among how many times as many it chooses, where others look, too (`spread.widened`).
            turn: Where the look begins: `Taken.turn` of the one before; None for the first tenant.

        Raises:
            Refused: The store refuses for good.
        """
        check_int(most, "a number of invocations", 1, FOUND_MAX)
        check_int(factor, "a factor", 1, spread.FACTOR_MAX)
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
        some = tuple(found[at] for at in spread.drawn(keys, most, draw, tenants))
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
            if not records:  # else what is taken is told, and the next look hears it again
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
        """What is due: behind that tenant, then of nobody in particular, then from the first one on."""
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
        """What stands at the head of the queue, from this tenant's turn on, as far as it is a record."""
        try:
            found = await self.due(FOUND_MAX, turn, _BRIEF)
        except (Ambiguous, NotApplied):
            return ()
        return tuple(each for each in found if _trouble(each) is None)

    @property
    def _known_to_it(self) -> tuple[Filter, ...]:
        return In(QUEUE, self.queues), In(TASK, tuple(each.name for each in self.tasks))

    async def _due_in(self) -> Duration | None:
        """After how long the first of what waits is due."""
        where = AllOf((*self._known_to_it, Exists(DUE), Exists(LATER)))
        first = await find_one(self.records, where, fields=(DUE, LATER), sort=(Ascending(LATER),))
        due = None if first is None else first.get(DUE)
        return None if due is None else max(due - await StoreTime(), 0)

    async def _set_aside(self, docs: tuple[tuple[Document, str], ...]) -> tuple[str, ...]:
        """Take what is no record out of the queue, so that nothing waits behind it; and say why."""
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
        """What may begin now, and what is over its rate, and due later."""
        over: _Over = ()
        for name, rate, mine in self._rated(found):
            over = (*over, *await self._over(name, rate, mine))
        await self._put_off(over)
        return _without(found, tuple(doc for doc, _, _ in over)), over

    async def _line_up(self, others: _Found, over: _Over) -> int:
        """What else is of sets that are over their rate stands in line behind them; how many these are."""
        sets = tuple(each[:2] for each in self._rated(tuple(doc for doc, due, _ in over if due is not None)))
        late: _Over = ()
        for name, rate, mine in self._rated(others):
            if (name, rate) in sets:
                late = (*late, *await self._over(name, rate, (), mine))
        await self._put_off(late)
        return len(late)

    async def _put_off(self, over: _Over) -> None:
        """They are due later; where nobody answers they are due still."""
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
        """The sets that have a rate, in the order in which they were found, and what is of each."""
        sets: dict[tuple[str, Rate], list[Document]] = {}
        for doc in found:
            if (name := doc.get(RATED_BY)) and (rate := self._task(doc[TASK]).rate):
                sets.setdefault((name, rate), []).append(doc)
        return tuple((name, rate, tuple(docs)) for (name, rate), docs in sets.items())

    async def _over(self, name: str, rate: Rate, docs: _Found, behind: _Found = ()) -> _Over:
        """Which of a set are over its rate, when each is due, and after how long; None where nobody answers."""
        answer = await Metering(
            key=name, rate=rate, wanted=len(docs), behind=len(behind), meters=self.meters, attempts=self.attempts, pauses=self.pauses
        ).run()  # fmt: skip
        if not isinstance(answer, Admission):
            return tuple((doc, None, None) for doc in (*docs, *behind))
        late = (*docs[answer.admitted :], *behind)
        return tuple((doc, due, due - answer.at) for doc, due in zip(late, answer.dues, strict=True))

    # --- places ---

    async def _placed(self, found: _Found) -> Placed:
        """Who has a place of those that need one."""
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
        """Whether it is of a set of which somebody was refused, and has no place."""
        places = dict(placed.by).get(doc.get(LIMITED_BY) or "", ())
        return len(places) >= self._task(doc[TASK]).at_most and all(place.invocation != doc[ID] for place in places)

    async def _refuse(self, refused: _Found, placed: Placed) -> None:
        """Who is refused waits, or ends."""
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
        """The same whenever this runner asks for this."""
        return f"{self.runner}.{key}.{version}"

    # --- take ---

    def _move(self, doc: Document) -> RecordMove:
        """It begins."""
        key, known = doc[ID], _known(doc)
        waits = () if doc.get(LIMITED_BY) is None else (Remove(WAITS),)
        heard = (Push(NOTICE, known.version + 1),) if self._task(doc[TASK]).is_heard else ()
        return RecordMove(key, known, RUNNING, self._request(key, known.version), (Add(TRIES, 1), *waits, *heard))

    async def _begin(self, moves: tuple[RecordMove, ...]) -> tuple[TransitionOutcome, ...]:
        """Move them to running, and answer what became of each."""
        return await Settling(self.records, INVOCATION, moves, self.runner, None, pauses=self.pauses).run()

    async def _read(self, keys: tuple[str, ...]) -> _Found:
        """What was taken, whole: asked for until it is there, for it runs."""
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
    """What was found, and what was not found before."""
    known = {each.held(ID) for each in found}
    return (*found, *(each for each in more if each.held(ID) not in known))


def _without(found: _Found, those: _Found) -> _Found:
    """What was found but those."""
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
    """Why it cannot be taken, whatever it is."""
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
    """The runs of these records; one that was deleted meanwhile runs nowhere."""
    held, dues = {doc[ID]: doc for doc in docs}, {doc[ID]: doc.get(DUE) for doc in found}
    return tuple(
        TakenRun(key, record, job_of(held[key]), _tries(held[key], record), held[key], dues[key])
        for key, record in records
        if key in held
    )


def _tries(doc: Document, record: StatusRecord) -> int:
    """How many have begun, by the record as it was found before, or after it was taken."""
    tries = doc.get(TRIES) or 0
    return tries if viewed(doc) == record else tries + 1
