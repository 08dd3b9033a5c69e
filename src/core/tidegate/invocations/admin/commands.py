"""Operator commands on invocations: list and show; cancel, kill, hold, release and repeat.

    look      List page by page, or show one with all that it holds
              (`tidegate.invocations.admin.invocation_queries`).
    cancel    Discard it. If it does not run, it is cancelled at once; otherwise its runner gets an
              order.
    kill      End its run. The runner gets an order; the invocation is requeued and runs again.
    hold      Make it wait. An available invocation is not due until it is released.
    release   End the hold. It has its old due time again.
    repeat    Run it (again). One that waits for a retry is due now; an ended one is copied.

An order to a runner is kept in the record (`asked`). The runner reads it at its next heartbeat and
obeys (`order`). A kill names one version; later runs ignore it. No record leaves a final status,
so a repetition has a new id, derived from the old one (`copy_id`); repeating twice makes one copy.

Holding and changing a due time raise the version, so a runner that read the old record cannot
take it.

Each command is a goal, and each write is guarded by the record that it was decided on. A command
pages once through all matches, ordered by id, with one write request per page. If fewer match than
were sent, or without a reply, the page is read and decided again. Invocations that reached the
goal are not written again.

Laws
    AK1  An invocation counted as done has reached its goal, and each match is counted once.
    AK2  A cancelled invocation stays cancelled, and an ended one stays as it is. At rest, a run
         whose runner was ordered to cancel has ended.
    AK3  A kill ends the run that it names, and no other.
    AK4  No runner takes a held invocation until it is released; then its due time is the old one.
    AK5  An ended invocation is copied at most once, and stays as it is.
    AK6  A command that is possible in the present state is done, or ordered of the runner. Any
         other leaves the invocation unchanged.

Known not to work
    - An invocation that ends while its runner gets the order has ended.
    - A hold does not stop a run. Hold it once it waits again, or kill it first. To stop new runs,
      pause the task or the queue (`tidegate.reactive.admin.pausing`).
    - A copy ignores registration concurrency (`tidegate.invocations.limits.registration`).
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.invocations.admin.invocation_queries import (
    BRIEF,
    BRIEF_TIMED,
    NEWEST,
    InvocationPage,
    InvocationQuery,
    InvocationRow,
    row,
)
from tidegate.invocations.record.invocation import CANCELLED, INVOCATION, RETRY
from tidegate.invocations.record.jobs import job_of, new_invocation
from tidegate.invocations.record.record_documents import (
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
from tidegate.invocations.record.status import Accepted, StatusRecord, decide_transition
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
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on
from tidegate.retries.idempotent import repeat

NEVER: Final = Instant(253_402_300_799 * SECOND)
"""The due time of held invocations: the last second of 9999, which clients and tools can read."""
_KEY: Final = Field[Value](ID.name)
_ATTEMPTS: Final = 8
_CANCEL: Final = "cancel"
_KILL: Final = "kill"


class Command(Enum):
    """The commands."""

    CANCEL = "cancel"
    KILL = "kill"
    HOLD = "hold"
    RELEASE = "release"
    REPEAT = "repeat"


@final
@attrs.frozen(kw_only=True)
class Asked:
    """The counts of a command's matches.

    Attributes:
        done: They reached the goal: cancelled, held, due again, or repeated.
        told: Their runner has the order, and has not obeyed so far.
        left: Unchanged: they ended, do not run or do not wait, or others changed them since.
        unknown: They may have been changed; no reply.
        unreadable: They hold no record of an invocation.
        is_complete: All pages were read. If False the store did not answer; repeat the command.
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
    """The commands that are possible in a state (AK6).

    Args:
        status: The status.
        is_held: The invocation is held.
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
    """The order for the runner: cancel, kill, or None to go on.

    Args:
        record: The present record; `VERSION`, `ASKED` and `ASKED_OF` are enough.
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
    """The id of the copy: `mail~2` of `mail`, `mail~3` of that.

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
    """Why there is no write."""

    REACHED = "it is as was asked"
    TOLD = "its runner is asked"
    LEFT = "it cannot be done"
    UNREADABLE = "it is no record of an invocation"


@final
@attrs.frozen
class Change:
    """An update of a record that is still the one decided on.

    Attributes:
        where: The record as decided on.
        updates: The changes.
        reaches: The result once they are written.
    """

    where: Filter
    updates: tuple[Update, ...]
    reaches: NoChange


@final
@attrs.frozen
class Copy:
    """The copy of an ended invocation."""

    document: Document


Decided: TypeAlias = Change | Copy | NoChange


def _decide(asking: Asking, command: Command, now: Instant | None, first: Document, doc: Document) -> Decided:
    """Decide by the record as first read and as it is now."""
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
    """Change the due time under a new version, so that a runner that read the old one cannot take
    it.

    Remove WAITS: otherwise a freed place would make it due although it is held.
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
    """A command on one collection. Invariants: 1 <= batch <= UPDATES_MAX; 1 <= attempts.

    Attributes:
        request: An id used for this command only.
        records: The collection of the invocations.
        batch: The number of invocations per write request.
        attempts: The attempts of each request; None for no limit.
        pauses: The delays between attempts.
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
        """The indexes by which a list, of all or of one root, reads no more than a page."""
        return {self.records: (Index(NEWEST), Index((Ascending(ROOT), *NEWEST), Exists(ROOT)))}

    async def list_rows(
        self, query: InvocationQuery, *, limit: int = 50, after: tuple[Value, ...] = (), is_timed: bool = False
    ) -> InvocationPage:
        """A page of invocations, newest first.

        Args:
            query: The filter.
            limit: The page size; 1 <= limit <= FOUND_MAX.
            after: The cursor of the previous page; empty for the first.
            is_timed: Include their histories.

        Raises:
            Misuse: An argument is of the wrong type, or `after` is no cursor.
            Failure: The store does not answer.
        """
        check_type(query, InvocationQuery, "a query")
        check_int(limit, "a number of invocations", 1, FOUND_MAX)
        fields = BRIEF_TIMED if is_timed else BRIEF
        asking = partial(find_all, self.records, query.where, limit=limit, after=after, fields=fields, sort=NEWEST)
        found = await repeat(asking, self.attempts, self.pauses)
        rows = tuple(each for each in map(row, found) if query.wants(each))
        return InvocationPage(rows, cursor(found[-1], NEWEST) if len(found) == limit else ())

    async def show(self, key: str) -> InvocationRow | None:
        """One invocation with all that it holds; None if there is none.

        Args:
            key: Its id.

        Raises:
            Failure: The store does not answer.
        """
        check_name(key, "an invocation")
        found = await repeat(partial(find_one, self.records, Eq(ID, key)), self.attempts, self.pauses)
        return None if found is None else row(found, is_whole=True)

    async def ask(self, command: Command, query: InvocationQuery) -> Asked:
        """Apply a command to all matches.

        Args:
            command: The command.
            query: The filter.

        Returns:
            The counts; all zero without a match.

        Raises:
            Misuse: An argument is of the wrong type.
            Refused: The store refuses for good; earlier pages stay done.
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
        """The next page by id; None without a reply."""
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
        """Write the decisions; return whether all are known to be written."""
        copies = tuple(each.document for each in decided if isinstance(each, Copy))
        updates = tuple(
            update_one(self.records, each.where, *each.updates) for each in decided if isinstance(each, Change)
        )
        if copies:
            await insert_many(self.records, *copies)  # existing copies were made by an earlier request
        return not updates or await bulk_update(*updates) == len(updates)


_ASKED_BY: Final[Fields] = (*BRIEF, ASKED_OF, WAITS)


def _of(left: tuple[tuple[Document, Document], ...]) -> Filter:
    return In(ID, tuple(first[ID] for first, _ in left))


def _read_again(
    left: tuple[tuple[Document, Document], ...], found: tuple[Document, ...]
) -> tuple[tuple[Document, Document], ...]:
    """Pair each with its present document; drop deleted ones."""
    known = {doc[ID]: doc for doc in found}
    return tuple((first, known[first[ID]]) for first, _ in left if first[ID] in known)


def _counted(verdicts: tuple[NoChange, ...]) -> Asked:
    return Asked(
        done=verdicts.count(NoChange.REACHED),
        told=verdicts.count(NoChange.TOLD),
        left=verdicts.count(NoChange.LEFT),
        unreadable=verdicts.count(NoChange.UNREADABLE),
    )
