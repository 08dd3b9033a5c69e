"""Move a record from one status to another: read, decide, one compare-and-set.

`tidegate.invocations.record.status` decides. This module carries the decision out at most once, and
answers truthfully despite lost, late or repeated messages. A caller that knows the record skips the
read. The write is one atomic update filtered on (id, status, owner, version). It raises the version
and adds the request id to the record's history, so every write can be recognized:

    the reply is lost        Read back: the history shows whether this request made its version.
    no match                 Another writer, or an earlier copy of this request, was first: read
                             back.
    a conflict               Decide again on the present record, a bounded number of times.

The array-push lock needs four round trips. This needs two, or one for the last mover (it passes
`Granted.record` as `expected`). A crash leaves nothing to clean up.

`tidegate.invocations.record.record_documents` defines the document. A new record is dated by the store's
time, read just before the insert. A foreign document is adopted by its first transition: it needs a
`status`, and a missing owner or version counts as no owner and version 0.

Laws, over the full history of a record as a perfect observer has seen it:
    TR1  each version is the one before plus one; none is skipped, none made twice.
    TR2  each change is an edge of the table, by its owner where one is required.
    TR3  a request makes at most one version.
    TR4  every answer is true: Granted(version) if and only if this request made that version;
         GaveUp and the denials only if it never makes one.
    TR5  Unknown is answered only beyond the versions that the record remembers, after the last
         attempt, or if the store refuses after a request that may have been done.
    TR6  each version is in the record's history, with its request, as soon as it exists.
    TR7  A request makes its intended change, or none: a caller that gave up on a success has not
         failed.
    TR8  Attempts are spaced: one without a reply, or that lost, is not retried before its time
         (`tidegate.retries.attempt_delays`, PA1).

Rejected designs (each is a specimen and breaks a law): omitting the version from the filter; not
raising it; a new request id on a retry; remembering only the last version's request; writing
again without reading again; omitting the owner; treating ambiguous as refused; pushing the history
in a second write.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.record.record_documents import (
    KEY,
    OWNER,
    RECORD,
    STATUS,
    VERSION,
    VIEW,
    changes,
    history,
    new_record,
    unchanged,
    viewed,
)
from tidegate.invocations.record.status import Accepted, Denied, StatusRecord, StatusTable, decide_transition
from tidegate.model.documents import UPDATES, Document, Eq, Update, Value, frozen
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.history import Forgotten, RequestOutcome, Superseded, Won, outcome_of
from tidegate.model.instants import Instant
from tidegate.model.operations import StoreTime, check_collection, check_key, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.retries.attempt_delays import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on

ATTEMPTS: Final = 8


@final
@attrs.frozen
class Granted:
    """The request made a version.

    Attributes:
        record: The record of that version. Pass it as `expected` to the next move, which then needs
            no read.
    """

    record: StatusRecord

    @property
    def version(self) -> int:
        return self.record.version

    def __str__(self) -> str:
        return f"granted: version {self.version}"


@final
@attrs.frozen
class GaveUp(Attempted):
    """Every attempt lost, or never reached the store. This request is not, and never will be, done.

    Attributes:
        attempts: The number of attempts.
        expected: The record of the last decision, if any.
        actual: The record as last read, if any.
    """

    attempts: int
    expected: StatusRecord | None
    actual: StatusRecord | None

    def __str__(self) -> str:
        return f"gave up after attempt {self.attempts}: expected {_shown(self.expected)}, actual {_shown(self.actual)}"


@final
@attrs.frozen
class Unknown(Attempted):
    """The request may have been done, and that can no longer be determined."""

    attempts: int
    reason: str

    def __str__(self) -> str:
        return f"unknown after attempt {self.attempts}: {self.reason}"


@final
@attrs.frozen
class Outdated:
    """The record is not the expected one. This request is not, and never will be, done."""

    expected: StatusRecord
    actual: StatusRecord | None

    def __str__(self) -> str:
        return f"outdated: expected {self.expected}, actual {_shown(self.actual)}"


TransitionOutcome: TypeAlias = Granted | Denied | GaveUp | Unknown | Outdated


def _key(key: object) -> Value:
    return key if type(key) is str else frozen(key, "the id of a record")


@final
@attrs.frozen
class Transition:
    """One command: `runner` moves the record `key` to the status `target`.

    Invariants: the request id is used for this command only; 1 <= attempts.

    Attributes:
        collection: The collection of the records.
        table: The rules.
        key: The record's id, as pymongo has it. A missing record can be created under a str, an
            int,
            an ObjectId or a UUID.
        target: The status to enter.
        runner: The caller; None for an anonymous one.
        request: An id used for this command only.
        attempts: The number of attempts; None for no limit.
        expected: The only record to move; None for any. It is read only after the write missed.
        also: Further changes of the same write, to an existing record.
        pauses: The delays between attempts.
    """

    collection: str
    table: StatusTable
    key: Value = attrs.field(converter=_key)
    target: str
    runner: str | None
    request: str
    attempts: int | None = ATTEMPTS
    expected: StatusRecord | None = None
    also: tuple[Update, ...] = attrs.field(default=(), kw_only=True)
    pauses: Pauses = attrs.field(default=PAUSES, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_key(self.key, "a record")
        check_name(self.request, "a request")
        check_attempts(self.attempts, self.pauses)
        check_type(self.expected, (StatusRecord, NoneType), "a record")
        check_tuple(self.also, UPDATES, "an update")
        check_type(self.table, StatusTable, "a table of statuses")
        check_name(self.target, "a status")
        if self.runner is not None:
            check_name(self.runner, "a runner")

    async def run(self) -> TransitionOutcome:
        """The program."""
        known, missed = self.expected, False  # what is known need not be read, unless it is missed
        sent: Accepted | None = None  # what was decided by a request of ours that may have been applied
        expected: StatusRecord | None = None
        actual: StatusRecord | None = None
        attempt, made, since = 0, 0, await begins(self.pauses)
        while True:
            if attempt and not await goes_on(self.pauses, self._looks, attempt, since):  # the first goes on at once
                break
            attempt += 1
            made = attempt if self.attempts is None else min(attempt, self.attempts)
            unread, known = known, None
            if unread is None:
                try:
                    actual, became = await self._look(sent)
                except (Ambiguous, NotApplied):
                    continue  # a read is free to repeat
                except Refused as refused:
                    if sent is None:
                        raise
                    return Unknown(made, refused.reason)
                match became:
                    case Won() if sent is not None:
                        return Granted(sent.record)
                    case Forgotten():
                        return Unknown(made, "the record does not remember that far back")
                    case Superseded():
                        sent = None
                    case _:
                        pass  # it may still arrive: the same again cannot count twice
            if attempt > made:
                break
            verdict = self._decide(expected := unread or actual)
            if not isinstance(verdict, Accepted):
                return verdict
            if missed:
                missed = False  # it is there after all, and is contended for
                continue
            try:
                applied = await self._write(expected, verdict)
            except (Ambiguous, NotDurable):
                sent = verdict
                continue
            except NotApplied:
                continue
            except Refused as refused:
                if sent is None:
                    raise
                return Unknown(made, refused.reason)  # a refusal does not settle the previous request
            if applied:
                return Granted(verdict.record)
            if unread is not None:
                attempt, missed = 0, True  # it is another record, as a look will show
        if sent is not None:
            return Unknown(made, "no reply to the last attempt")
        return GaveUp(made, expected, actual)

    @property
    def _looks(self) -> int | None:
        """One read more than attempts: the last one checks the outcome of the last write."""
        return None if self.attempts is None else self.attempts + 1

    async def _look(self, sent: Accepted | None) -> tuple[StatusRecord | None, RequestOutcome | None]:
        """The record, and the outcome of the request sent earlier, if any."""
        record = await find_one(self.collection, Eq(KEY, self.key), fields=VIEW if sent is None else RECORD)
        return _seen(record), None if sent is None else self._outcome(record, sent.version - 1)

    def _decide(self, actual: StatusRecord | None) -> Accepted | Denied | Outdated:
        if self.expected is not None and actual is not self.expected and actual != self.expected:
            return Outdated(self.expected, actual)
        return decide_transition(self.table, actual, self.target, self.runner)

    async def _write(self, expected: StatusRecord | None, verdict: Accepted) -> bool:
        """Write the decision; False if the record is no longer the one decided on."""
        if expected is None:
            now = await _time()
            due = now if self.table[verdict.status].available else None
            return await insert_new(self.collection, new_record(self.key, verdict.record, self.request, now, due=due))
        made = changes(self.table, verdict, self.request, *self.also)
        return await update_one(self.collection, unchanged(self.key, expected), *made) > 0

    def _outcome(self, record: Document | None, sent: int) -> RequestOutcome:
        if record is None:
            return outcome_of(0, (), sent, self.request)
        return outcome_of(record.get(VERSION) or 0, history(record), sent, self.request)


def _seen(record: Document | None) -> StatusRecord | None:
    """A record without a version is adopted: its next transition makes version 1."""
    if record is None or record.get(VERSION) is not None:
        return viewed(record)
    return StatusRecord(needed(record, STATUS), record.get(OWNER), 0)


async def _time() -> Instant:
    """The store's time. Without a reply, no write was done."""
    try:
        return await StoreTime()
    except Ambiguous as failure:
        raise NotApplied(failure.reason) from None


# --- the same as a function -------------------------------------------------------------------------------------------


async def transition(
    collection: str,
    table: StatusTable,
    key: object,
    target: str,
    *,
    runner: str | None,
    request: str,
    attempts: int | None = ATTEMPTS,
    pauses: Pauses = PAUSES,
) -> TransitionOutcome:
    """Move a record to another status, at most once.

    Args:
        collection: The collection of the records.
        table: The rules.
        key: The record's id, as pymongo has it. A missing record can be created under a str, an
            int,
            an ObjectId or a UUID.
        target: The status to enter.
        runner: The caller; None for an anonymous one.
        request: An id used for this command only.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.

    Returns:
        `Granted`, a denial with its reason, `GaveUp` or `Unknown`.

    Raises:
        Misuse: an argument is empty or of the wrong type.
        Refused: The store refused for good (not authorized, validation), and no earlier request may
            have been done.
    """
    return await Transition(collection, table, key, target, runner, request, attempts, pauses=pauses).run()


def _shown(record: StatusRecord | None) -> str:
    return "nothing" if record is None else str(record)
