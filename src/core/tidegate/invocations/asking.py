"""What operators and callers ask of invocations: look at them, and cancel, kill, hold, release or repeat them.

    look      list, show: page by page, or one with all that it holds (`tidegate.invocations.invocation_queries`)

    cancel    nobody wants it any more    what nobody runs is cancelled at once; of what is run, the runner is asked
    kill      its run is to end           the runner is asked; the invocation is given back, and run again
    hold      it is to wait               what is available is due no more, until it is released
    release   it need not wait            it is due again when it was
    repeat    run it (again)              what waits for its next try is due now; of what has ended a copy is made

What is asked of a runner stands in the record (`asked`), and stays there: it looks at its next beat, and
obeys (`order`). A kill is said of the run of one version: the run after it is left in peace. Nothing leaves a
final status; so what is repeated has a new id, made of the old one (`copy_id`), and however often it is asked for, there is
one copy.

What is held or due at another time has another version: whoever had read it before, to take it, does not get it.

Each ask is a goal, and each write is guarded by the record that it was decided on. Whoever asks goes through what is meant
once, in pages and in the order of the ids, and writes those of a page in one request. Where fewer match than were sent, or
nobody answers, the page is read and decided anew: what has reached its goal is not written again.

Laws
    AK1  What is answered as done is so, and each that is meant is counted once.
    AK2  What is cancelled stays so, as does whatever had ended; and at rest, what a runner was asked to cancel has ended.
    AK3  A kill is obeyed by the run that it was said of, and by no other.
    AK4  What is held is taken by nobody until it is released; released, it is due when it was.
    AK5  Of what has ended at most one copy is made, and it stays as it is.
    AK6  What is possible with an invocation as it is, is done or told where it is asked; whatever else is asked leaves it.

Known not to work
    - What ends while its runner is being asked has ended.
    - Who is run while it is to be held runs on; hold it once it waits again, or kill it and then hold it. What is not to
      begin at all is paused with its task or its queue (`tidegate.reactive.pausing`).
    - A copy does not ask whether others exclude it from being registered (`tidegate.invocations.registration`).
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.invocations.invocation import CANCELLED, INVOCATION, RETRY
from tidegate.invocations.invocation_queries import (
    BRIEF,
    BRIEF_TIMED,
    NEWEST,
    InvocationPage,
    InvocationQuery,
    InvocationRow,
    row,
)
from tidegate.invocations.jobs import job_of, new_invocation
from tidegate.invocations.record_documents import (
    ASKED,
    ASKED_OF,
    DUE,
    HELD,
    ROOT,
    STATUS,
    VERSION,
    WAITS,
    changes,
    unchanged,
    viewed,
)
from tidegate.invocations.status import Accepted, StatusRecord, decide_transition
from tidegate.model.documents import (
    ID,
    AllOf,
    Ascending,
    Document,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    In,
    Not,
    Put,
    PutServerTime,
    Remove,
    Update,
    Value,
    cursor,
)
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.model.operations import (
    FOUND_MAX,
    UPDATES_MAX,
    Index,
    Indexes,
    StoreTime,
    bulk_update,
    check_collection,
    find_all,
    find_one,
    insert_many,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.pauses import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.repeating import repeat

NEVER: Final = Instant(253_402_300_799 * SECOND)
"""When what is held is due: the last second of the year 9999, which clients and tools can read."""
_KEY: Final = Field[Value](ID.name)
_ATTEMPTS: Final = 8
_CANCEL: Final = "cancel"
_KILL: Final = "kill"


class Command(Enum):
    """What is asked."""

    CANCEL = "cancel"
    KILL = "kill"
    HOLD = "hold"
    RELEASE = "release"
    REPEAT = "repeat"


@final
@attrs.frozen(kw_only=True)
class Asked:
    """What became of the invocations that were meant.

    Attributes:
        done: How many are as was asked: cancelled, held, due again, or repeated.
        told: Of how many a runner is asked, and has not obeyed so far.
        left: How many it cannot be done for, as they are: they have ended, or do not run, or do not wait; or others have
            changed them since.
        unknown: How many may be done, or not: nobody answers.
        unreadable: How many hold no record of an invocation.
        is_complete: It came to the end; where it is False nobody answered any more, so ask again.
    """

    done: int = 0
    told: int = 0
    left: int = 0
    unknown: int = 0
    unreadable: int = 0
    is_complete: bool = True

    def __add__(self, other: Asked) -> Asked:
        return Asked(
            done=self.done + other.done,
            told=self.told + other.told,
            left=self.left + other.left,
            unknown=self.unknown + other.unknown,
            unreadable=self.unreadable + other.unreadable,
            is_complete=self.is_complete and other.is_complete,
        )


def possible(status: str, *, is_held: bool) -> frozenset[Command]:
    """What can be done with an invocation as it is (law AK6).

    Args:
        status: Its status.
        is_held: Somebody holds it.
    """
    definition = INVOCATION[status]
    can = {
        Command.CANCEL: not definition.final,
        Command.KILL: definition.requires_owner,
        Command.HOLD: definition.available and not is_held,
        Command.RELEASE: definition.available and is_held,
        Command.REPEAT: (definition.final or status == RETRY) and not is_held,
    }
    return frozenset(command for command, is_so in can.items() if is_so)


def order(record: Document) -> Command | None:
    """What its runner is to do with the run of an invocation: cancel it, kill it, or nothing but go on.

    Args:
        record: The record as it is; these of its fields are enough: `VERSION`, `ASKED`, `ASKED_OF`.
    """
    check_type(record, Document, "a record")
    match record.held(ASKED):
        case "cancel":
            return Command.CANCEL
        case "kill" if record.held(ASKED_OF) == record.held(VERSION):
            return Command.KILL
        case _:
            return None


def copy_id(key: str) -> str:
    """The id of the invocation that repeats this one: `mail~2` of `mail`, `mail~3` of that.

    Args:
        key: The id of the invocation.
    """
    check_name(key, "an invocation")
    first, mark, number = key.rpartition("~")
    if mark and first and number.isascii() and number.isdecimal() and len(number) < 9:
        return f"{first}~{int(number) + 1}"
    return f"{key}~2"


# --- the decision -------------------------------------------------------------------------------------------------------


class NoChange(Enum):
    """Why nothing is to be written of one."""

    REACHED = "it is as was asked"
    TOLD = "its runner is asked"
    LEFT = "it cannot be done"
    UNREADABLE = "it is no record of an invocation"


@final
@attrs.frozen
class Change:
    """What is written of one: the record changes, if it is still this one.

    Attributes:
        where: The record, as this was decided on.
        updates: What changes.
        reaches: What it is once that is written.
    """

    where: Filter
    updates: tuple[Update, ...]
    reaches: NoChange


@final
@attrs.frozen
class Copy:
    """The invocation that repeats another one."""

    document: Document


Decided: TypeAlias = Change | Copy | NoChange


def _decide(asking: Asking, command: Command, now: Instant | None, first: Document, doc: Document) -> Decided:
    """What is written of an invocation, by what it was when it was read for the first time, and by what it is."""
    try:
        known, before = viewed(doc), viewed(first)
        assert known is not None, "it was found"
        assert before is not None, "it was found"
        match command:
            case Command.CANCEL:
                return _cancel(asking, doc, known, before)
            case Command.KILL:
                return _kill(doc, known, before)
            case Command.HOLD:
                return _hold(asking, doc, known, first)
            case Command.RELEASE:
                return _release(asking, doc, known, first)
            case Command.REPEAT:
                return _repeat(asking, doc, known, first, now)
            case _:
                assert_never(command)
    except Misuse:
        return NoChange.UNREADABLE


def _cancel(asking: Asking, doc: Document, known: StatusRecord, before: StatusRecord) -> Decided:
    key, definition = needed(doc, ID), INVOCATION[known.status]
    if definition.final:
        was_open = not INVOCATION[before.status].final
        return NoChange.REACHED if known.status == CANCELLED and was_open else NoChange.LEFT
    if definition.requires_owner:
        asked = Change(unchanged(key, known), (Put(ASKED, _CANCEL),), NoChange.TOLD)
        return NoChange.TOLD if order(doc) is Command.CANCEL else asked
    verdict = decide_transition(INVOCATION, known, CANCELLED, None)
    assert isinstance(verdict, Accepted), "whatever is not final can be cancelled"
    made = changes(INVOCATION, verdict, f"{asking.request}.{known.version}", Remove(HELD), Remove(WAITS))
    return Change(unchanged(key, known), made, NoChange.REACHED)


def _kill(doc: Document, known: StatusRecord, before: StatusRecord) -> Decided:
    if not INVOCATION[known.status].requires_owner or known.version != before.version:
        return NoChange.LEFT
    if order(doc) is not None:
        return NoChange.TOLD
    still = AllOf((unchanged(needed(doc, ID), known), Not(Eq(ASKED, _CANCEL))))
    return Change(still, (Put(ASKED, _KILL), Put(ASKED_OF, known.version)), NoChange.TOLD)


def _hold(asking: Asking, doc: Document, known: StatusRecord, first: Document) -> Decided:
    if doc.has(HELD):
        return NoChange.LEFT if first.has(HELD) else NoChange.REACHED
    if not INVOCATION[known.status].available:
        return NoChange.LEFT
    return _due(asking, doc, known, Put(HELD, doc.get(WAITS) or needed(doc, DUE)), Put(DUE, NEVER))


def _release(asking: Asking, doc: Document, known: StatusRecord, first: Document) -> Decided:
    if not first.has(HELD) or not INVOCATION[known.status].available:
        return NoChange.LEFT
    if not doc.has(HELD):
        return NoChange.REACHED
    return _due(asking, doc, known, Put(DUE, needed(doc, HELD)), Remove(HELD))


def _repeat(asking: Asking, doc: Document, known: StatusRecord, first: Document, now: Instant | None) -> Decided:
    if known.status != first[STATUS] or doc.has(HELD):
        return NoChange.LEFT
    if INVOCATION[known.status].final:
        assert now is not None, "it was asked for"
        return Copy(new_invocation(copy_id(needed(doc, ID)), job_of(doc), asking.request, now))
    if known.status != RETRY:
        return NoChange.LEFT
    if known.version != first[VERSION]:
        return NoChange.REACHED
    return _due(asking, doc, known, PutServerTime(DUE))


def _due(asking: Asking, doc: Document, known: StatusRecord, *updates: Update) -> Change:
    """Change when it is due, as a version of its own: whoever has read it before, to take it, finds another one.

    It sleeps no more: else whoever frees a place makes it due, though it is held.
    """
    made = changes(
        INVOCATION,
        Accepted(known.status, known.owner, known.version + 1),
        f"{asking.request}.{known.version}",
        *updates,
        Remove(WAITS),
    )
    return Change(unchanged(needed(doc, ID), known), made, NoChange.REACHED)


# --- the programs -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Asking:
    """What is asked of the invocations of one collection. Invariants: 1 <= batch <= UPDATES_MAX; 1 <= attempts.

    Attributes:
        request: An id used for this command only.
        records: The collection of the invocations.
        batch: How many are written in one request.
        attempts: How often each request is tried; None for any number.
        pauses: How long it waits in between.
    """

    request: str
    records: str = "invocations"
    batch: int = UPDATES_MAX
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_name(self.request, "a request")
        check_collection(self.records)
        check_int(self.batch, "a number of invocations", 1, UPDATES_MAX)
        check_attempts(self.attempts, self.pauses)

    @property
    def indexes(self) -> Indexes:
        """What a list needs, of all or of those that one has called: it reads no further than a page, however many there are."""
        return {self.records: (Index(NEWEST), Index((Ascending(ROOT), *NEWEST), Exists(ROOT)))}

    async def list_rows(
        self, query: InvocationQuery, *, limit: int = 50, after: tuple[Value, ...] = (), is_timed: bool = False
    ) -> InvocationPage:
        """Invocations, the newest first, page by page.

        Args:
            query: Which.
            limit: How many at most; 1 <= limit <= FOUND_MAX.
            after: Where the page begins: what the page before answers; empty for the first.
            is_timed: With their histories.

        Raises:
            Misuse: An argument is of the wrong type, or that is not where a page begins.
            Failure: Nobody answers.
        """
        check_type(query, InvocationQuery, "a query")
        check_int(limit, "a number of invocations", 1, FOUND_MAX)
        fields = BRIEF_TIMED if is_timed else BRIEF
        asking = partial(find_all, self.records, query.where, limit=limit, after=after, fields=fields, sort=NEWEST)
        found = await repeat(asking, self.attempts, self.pauses)
        rows = tuple(each for each in map(row, found) if query.wants(each))
        return InvocationPage(rows, cursor(found[-1], NEWEST) if len(found) == limit else ())

    async def show(self, key: str) -> InvocationRow | None:
        """One invocation, with all that it holds; None where there is none.

        Args:
            key: Its id.

        Raises:
            Failure: Nobody answers.
        """
        check_name(key, "an invocation")
        found = await repeat(partial(find_one, self.records, Eq(ID, key)), self.attempts, self.pauses)
        return None if found is None else row(found, is_whole=True)

    async def ask(self, command: Command, query: InvocationQuery) -> Asked:
        """Command this of all that are meant.

        Args:
            command: What.
            query: Of which.

        Returns:
            What became of them; nothing but zeros where none is meant.

        Raises:
            Misuse: An argument is of the wrong type.
            Refused: The store refuses for good; what is done before that is done.
        """
        check_type(command, Command, "what is asked")
        check_type(query, InvocationQuery, "a query")
        fields = None if command is Command.REPEAT else _ASKED_BY
        asked = Asked()
        after: tuple[Value, ...] = ()
        while True:
            page = await self._page(query.where, after, fields)
            if page is None:
                return attrs.evolve(asked, is_complete=False)
            rows = tuple((doc, row(doc, is_whole=fields is None)) for doc in page)
            meant = tuple(doc for doc, each in rows if each.record is not None and query.wants(each))
            asked += Asked(unreadable=sum(each.record is None and query.error is None for _, each in rows))
            if meant:
                asked += await self._brought_about(command, meant, fields)
            if len(page) < self.batch:
                return asked
            after = (needed(page[-1], _KEY),)

    async def _page(
        self, where: Filter, after: tuple[Value, ...], fields: Fields | None
    ) -> tuple[Document, ...] | None:
        """The next ones by their ids; None where nobody answers."""
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                return None
            attempt += 1
            try:
                return await find_all(self.records, where, limit=self.batch, after=after, fields=fields)
            except (Ambiguous, NotApplied):
                continue

    async def _brought_about(self, command: Command, meant: tuple[Document, ...], fields: Fields | None) -> Asked:
        """Have what is asked come true for each of a page."""
        asked = Asked()
        left = tuple((doc, doc) for doc in meant)  # what each was when it was read for the first time, and what it is
        is_fresh = True
        now: Instant | None = None
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                return asked + Asked(unknown=len(left), is_complete=False)
            attempt += 1
            try:
                if now is None and command is Command.REPEAT:
                    now = await StoreTime()
                if not is_fresh:
                    found = await find_all(self.records, _of(left), limit=len(left), fields=fields)
                    asked += Asked(left=len(left) - len(found))
                    left = _read_again(left, found)
                decided = tuple((first, doc, _decide(self, command, now, first, doc)) for first, doc in left)
                asked += _counted(tuple(verdict for _, _, verdict in decided if isinstance(verdict, NoChange)))
                left = tuple((first, doc) for first, doc, verdict in decided if not isinstance(verdict, NoChange))
                is_fresh = False
                if await self._is_written(tuple(verdict for _, _, verdict in decided)):
                    done = tuple(verdict.reaches for _, _, verdict in decided if isinstance(verdict, Change))
                    copies = sum(isinstance(verdict, Copy) for _, _, verdict in decided)
                    return asked + _counted(done) + Asked(done=copies)
            except NotApplied:
                continue
            except (Ambiguous, NotDurable):
                is_fresh = False
        return asked

    async def _is_written(self, decided: tuple[Decided, ...]) -> bool:
        """Write what was decided; whether all of it is known to be."""
        copies = tuple(each.document for each in decided if isinstance(each, Copy))
        updates = tuple(
            update_one(self.records, each.where, *each.updates) for each in decided if isinstance(each, Change)
        )
        if copies:
            await insert_many(self.records, *copies)  # those that are there were made by somebody who asked before
        return not updates or await bulk_update(*updates) == len(updates)


_ASKED_BY: Final[Fields] = (*BRIEF, ASKED_OF, WAITS)


def _of(left: tuple[tuple[Document, Document], ...]) -> Filter:
    return In(ID, tuple(first[ID] for first, _ in left))


def _read_again(
    left: tuple[tuple[Document, Document], ...], found: tuple[Document, ...]
) -> tuple[tuple[Document, Document], ...]:
    """Each with what it is now; what is gone is left out."""
    known = {doc[ID]: doc for doc in found}
    return tuple((first, known[first[ID]]) for first, _ in left if first[ID] in known)


def _counted(verdicts: tuple[NoChange, ...]) -> Asked:
    return Asked(
        done=verdicts.count(NoChange.REACHED),
        told=verdicts.count(NoChange.TOLD),
        left=verdicts.count(NoChange.LEFT),
        unreadable=verdicts.count(NoChange.UNREADABLE),
    )
