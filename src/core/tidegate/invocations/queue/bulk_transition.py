"""Move many records at once, each from its known state: one guarded bulk, and at most one read
back.

A caller that moved records knows them (`Granted.record`) and settles all of them in two requests.
Each update is that of `tidegate.invocations.record.transition`: guarded by (id, status, owner, version),
with the request id added to the history in the same write. The reply to a bulk is a total:

    all have matched         Each version was made by its request; no read is needed.
    fewer, or no reply       Read all that are left once: each history shows whether the request
                             made the version.

A write that may still arrive is sent again with the same id and version, so it cannot count twice.

Laws
    TB1  TR1 to TR7 hold for each record as if it had been moved alone.
    TB2  Without a fault it is one request, and a second one if fewer than all matched.

Known not to work
    - A deleted record has no history, so its answer is `Unknown`. A transition that missed answers
      `Outdated`.
    - The batch is not atomic: some records may be moved and others not.

Rejected designs (each is a specimen and breaks a law): taking the total for the outcome of each;
not reading back; taking a write that has not arrived for one that never will.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.record.record_documents import RECORD, VERSION, changes, history, unchanged, viewed
from tidegate.invocations.record.status import Accepted, StatusRecord, StatusTable, decide_transition
from tidegate.invocations.record.transition import ATTEMPTS, GaveUp, Granted, Outdated, TransitionOutcome, Unknown
from tidegate.model.documents import ID, UPDATES, Document, In, Update
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.history import Forgotten, Superseded, Won, outcome_of
from tidegate.model.operations import (
    UPDATES_MAX,
    BulkUpdate,
    FindAll,
    bulk_update,
    check_collection,
    find_all,
    update_one,
)
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.attempt_delays import PAUSES, Pauses, begins, check_attempts, goes_on


@final
@attrs.frozen
class RecordMove:
    """One record and its new status. Invariant: the request id is used only for this.

    Attributes:
        key: The record's id.
        expected: The record as known; it is moved only if it still is that.
        target: The status to enter.
        request: The id of the request.
        also: Further changes of the same write.
    """

    key: str
    expected: StatusRecord
    target: str
    request: str
    also: tuple[Update, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "a record")
        check_type(self.expected, StatusRecord, "a record")
        check_name(self.target, "a status")
        check_name(self.request, "a request")
        check_tuple(self.also, UPDATES, "an update")


_Left: TypeAlias = tuple[tuple[RecordMove, Accepted], ...]
"""Pending moves with their decisions."""
_Answers: TypeAlias = tuple[tuple[str, TransitionOutcome], ...]
"""Known outcomes by record id."""


@final
@attrs.frozen
class Settling:
    """One command: `runner` moves these records.

    Invariants: 1 <= len(moves) <= UPDATES_MAX; each of another record; 1 <= attempts.

    Attributes:
        collection: The collection of the records.
        table: The rules.
        moves: The moves.
        runner: The caller; None for an anonymous one.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.
    """

    collection: str
    table: StatusTable
    moves: tuple[RecordMove, ...]
    runner: str | None
    attempts: int | None = ATTEMPTS
    pauses: Pauses = attrs.field(default=PAUSES, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_collection(self.collection)
        check_type(self.table, StatusTable, "a table of statuses")
        check_tuple(self.moves, RecordMove, "a move of a record")
        check_int(len(self.moves), "a number of moves", 1, UPDATES_MAX)
        keys = [move.key for move in self.moves]
        if twice := {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else ():
            raise Misuse(f"two moves of one record: {shown(min(twice))}", todo="settle one after the other")
        if self.runner is not None:
            check_name(self.runner, "a runner")
        check_attempts(self.attempts, self.pauses)

    async def run(self) -> tuple[TransitionOutcome, ...]:
        """The program; it answers in the order of the moves."""
        answers, left = self._decided()
        sent = False  # whether a request of ours may have been applied
        since = await begins(self.pauses)
        attempt = 0
        while left:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                break
            attempt += 1
            matched: int | None = None
            try:
                matched = await self._bulk(left)
            except (Ambiguous, NotDurable):
                pass
            except NotApplied:
                continue
            except Refused as refused:
                if not sent:
                    raise
                return self._in_order(answers, ((move, Unknown(attempt, refused.reason)) for move, _ in left))
            sent = True
            if matched == len(left):
                return self._in_order(answers, ((move, Granted(verdict.record)) for move, verdict in left))
            try:
                found = await self._look(left)
            except (Ambiguous, NotApplied):
                continue
            except Refused as refused:
                return self._in_order(answers, ((move, Unknown(attempt, refused.reason)) for move, _ in left))
            answers, left = _learned(answers, left, found, attempt)
        return self._in_order(answers, ((move, _given_up(move, attempt, sent=sent)) for move, _ in left))

    def _decided(self) -> tuple[_Answers, _Left]:
        """Split into denied and pending moves."""
        verdicts = [
            (move, decide_transition(self.table, move.expected, move.target, self.runner)) for move in self.moves
        ]
        denied = tuple((move.key, verdict) for move, verdict in verdicts if not isinstance(verdict, Accepted))
        return denied, tuple((move, verdict) for move, verdict in verdicts if isinstance(verdict, Accepted))

    def _bulk(self, left: _Left) -> BulkUpdate:
        return bulk_update(
            *(
                update_one(
                    self.collection,
                    unchanged(move.key, move.expected),
                    *changes(self.table, verdict, move.request, *move.also),
                )
                for move, verdict in left
            )
        )

    def _look(self, left: _Left) -> FindAll:
        return find_all(self.collection, In(ID, tuple(move.key for move, _ in left)), limit=len(left), fields=RECORD)

    def _in_order(
        self, known: _Answers, more: Iterable[tuple[RecordMove, TransitionOutcome]]
    ) -> tuple[TransitionOutcome, ...]:
        answers = {**dict(known), **{move.key: answer for move, answer in more}}
        return tuple(answers[move.key] for move in self.moves)


def _given_up(move: RecordMove, attempts: int, *, sent: bool) -> GaveUp | Unknown:
    if sent:
        return Unknown(attempts, "no reply to the last attempt")
    return GaveUp(attempts, move.expected, None)


def _learned(answers: _Answers, left: _Left, found: tuple[Document, ...], attempt: int) -> tuple[_Answers, _Left]:
    """Merge what a read showed; return what must be sent again."""
    records = {record[ID]: record for record in found}
    became = [(move, verdict, _became(move, verdict, records.get(move.key), attempt)) for move, verdict in left]
    known = tuple((move.key, answer) for move, _, answer in became if answer is not None)
    return (*answers, *known), tuple((move, verdict) for move, verdict, answer in became if answer is None)


def _became(move: RecordMove, verdict: Accepted, record: Document | None, attempt: int) -> TransitionOutcome | None:
    """The outcome by the record as read; None if the write may still arrive."""
    if record is None:
        return Unknown(attempt, _FORGOTTEN)
    match outcome_of(needed(record, VERSION), history(record), move.expected.version, move.request):
        case Won():
            return Granted(verdict.record)
        case Superseded():
            return Outdated(move.expected, viewed(record))
        case Forgotten():
            return Unknown(attempt, _FORGOTTEN)
        case _:
            actual = viewed(record)  # of that version, and yet another one: it never was what was expected
            return None if actual == move.expected else Outdated(move.expected, actual)


_FORGOTTEN: Final = "the record does not remember that far back"


async def settle(
    collection: str,
    table: StatusTable,
    moves: tuple[RecordMove, ...],
    *,
    runner: str | None,
    attempts: int | None = ATTEMPTS,
    pauses: Pauses = PAUSES,
) -> tuple[TransitionOutcome, ...]:
    """Move many records, each at most once.

    Args:
        collection: The collection of the records.
        table: The rules.
        moves: The moves, at most `UPDATES_MAX`.
        runner: The caller; None for an anonymous one.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.

    Returns:
        In the order of the moves: `Granted`, a denial with its reason, `Outdated`, `GaveUp` or
        `Unknown`.

    Raises:
        Misuse: an argument is empty or of the wrong type, or two moves are of one record.
        Refused: The store refused for good (not authorized, validation), and no earlier request may
            have been done.
    """
    return await Settling(collection, table, moves, runner, attempts, pauses=pauses).run()
