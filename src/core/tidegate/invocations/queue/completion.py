"""Write the ends of runs, many per request, each with its result or error in the same write.

A runner reports the end of each run that it owns (running, at a version):

    Succeeded   success, with the result or the name of its upload
    Failed      retry, due after a delay, while the policy allows another try
                (`tidegate.retries.backoff`); otherwise failed. Both with the error.
    GivenBack   rerouted, due now or later. The run was not completed: the runner shuts down, was
                ordered to kill it, had no room by a rate, or it snoozed. Unless `counts` is set it
                was no try, and it keeps its old due time, ahead of later invocations.
    Cancelled   cancelled

Each is one guarded update (`tidegate.invocations.queue.bulk_transition`). So `Granted` means that the end and
its
result are stored, and a runner that lost the invocation changes nothing. The same write sets the
due
time of what becomes available, and the notice from which triggers learn of the version.

A result too large for a record is uploaded BEFORE its end is written, under a unique name
(`upload_name`). The accepted record names the valid upload; the others are garbage.

A run with a place under a concurrency limit frees it with its end. Then a waiter is woken
(`tidegate.invocations.limits.slots`).

Laws
    EN1  A succeeded record holds the result of the granted run, and of no other.
    EN2  An available invocation is due at some time; a final one is not due.
    EN3  A task is tried as often as its policy allows, and no more. A run given back without
         `counts` is no try.
    EN4  A write leaves a notice of its version exactly if the task has listeners.
    EN6  Waking all waiters for the freed places costs two more requests in total, AFTER the ends
         are stored.
    EN5  A retry is due after the delay of the policy, and a run given back with a delay after
         that, by the store's clock, rounded up to a millisecond.

Known not to work
    - A run whose runner died before ending it counts as a try, and has no error.
"""

from __future__ import annotations

from collections import Counter
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.invocations.limits.slots import Freed, wake
from tidegate.invocations.queue.bulk_transition import RecordMove, Settling
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import upload_stem
from tidegate.invocations.record.record_documents import (
    DUE,
    ERROR,
    FAILING_SINCE,
    NOTICE,
    RESULT,
    RESULT_PAYLOAD,
    TRIES,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import ATTEMPTS, GaveUp, Granted, TransitionOutcome
from tidegate.model.documents import Document, Field, Push, Put, Update, Value, checked, exactly, has_lone_surrogate
from tidegate.model.effects import Ambiguous, Failure, NotApplied
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import UPDATES_MAX, StoreTime, check_collection
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.attempt_delays import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on
from tidegate.retries.backoff import Policy, Retry, check_delay, decide, draw_of

MESSAGE_MAX: Final = 4_000
"""The number of characters kept of a message, from its start."""
TRACEBACK_MAX: Final = 16_000
"""The number of characters kept of a traceback, from its end: the innermost calls."""

_TYPE: Final = Field[str]("type")
_MESSAGE: Final = Field[str]("message")
_TRACEBACK: Final = Field[str]("traceback")
_ABOVE: Final = Field[tuple[str, ...]]("above")
_CUT: Final = "..."


# --- how a run has ended ------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Succeeded:
    """The run has a result. Invariant: it is inline or uploaded, not both.

    Attributes:
        result: The result, as the record keeps it.
        upload: Instead, the name of its upload (`upload_name`).
    """

    result: Value = attrs.field(default=None, eq=exactly, repr=False)
    upload: str | None = None

    def __attrs_post_init__(self) -> None:
        checked(self.result, "a result")
        if self.upload is not None:
            check_name(self.upload, "an upload")
            if self.result is not None:
                raise Misuse("a result that is here, and uploaded", todo="leave one of the two out")


@final
@attrs.frozen
class RunError:
    """The error of a run. Long messages lose their end, long tracebacks their beginning.

    Attributes:
        type: The name of the exception.
        message: Its message.
        traceback: Where it was raised; empty if unknown.
        above: The names of the base classes of the exception, nearest first.
    """

    type: str
    message: str = attrs.field(default="", repr=False)
    traceback: str = attrs.field(default="", repr=False)
    above: tuple[str, ...] = attrs.field(default=(), repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.type, "the type of an error")
        check_type(self.message, str, "the message of an error")
        check_type(self.traceback, str, "a traceback")
        check_tuple(self.above, str, "the name of a class")

    def document(self) -> Document:
        """The stored form; characters without a UTF-8 form are escaped."""
        message, traceback = _storable(self.message), _storable(self.traceback)
        if len(message) > MESSAGE_MAX:
            message = message[: MESSAGE_MAX - len(_CUT)] + _CUT
        if len(traceback) > TRACEBACK_MAX:
            traceback = _CUT + traceback[len(_CUT) - TRACEBACK_MAX :]
        found = Document().put(_TYPE, _storable(self.type)).put(_MESSAGE, message).put(_TRACEBACK, traceback)
        return found.put(_ABOVE, tuple(map(_storable, self.above))) if self.above else found


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode() if has_lone_surrogate(text) else text


def error_of(stored: Document) -> RunError:
    """Read the error of a record.

    Raises:
        Misuse: The document is no error.
    """
    check_type(stored, Document, "an error as it is stored")
    return RunError(
        needed(stored, _TYPE), needed(stored, _MESSAGE), needed(stored, _TRACEBACK), stored.get(_ABOVE) or ()
    )


@final
@attrs.frozen
class Failed:
    """The run has failed.

    Attributes:
        error: The error.
        policy: The retry policy; None for no retry, whatever the task's policy is.
    """

    error: RunError
    policy: Policy | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.error, RunError, "the error of a run")
        check_type(self.policy, (Policy, NoneType), "a policy")


@final
@attrs.frozen
class GivenBack:
    """The run was not completed; another may begin.

    Attributes:
        due: When, by the store's clock. None for now if it counts, else for its old due time.
        counts: It was a try.
        delay: Instead of `due`: the delay after its end is written, in microseconds.
    """

    due: Instant | None = None
    counts: bool = False
    delay: Duration | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.due, (Instant, NoneType), "an instant")
        check_type(self.counts, bool, "counts")
        if self.delay is not None:
            check_delay(self.delay, "a delay in microseconds", 0)
            if self.due is not None:
                raise Misuse("a run that is due then, and after a delay", todo="leave one of the two out")


@final
@attrs.frozen
class Cancelled:
    """The run was cancelled."""


End: TypeAlias = Succeeded | Failed | GivenBack | Cancelled


@final
@attrs.frozen(kw_only=True)
class RunEnd:
    """The end of a run. Invariants: it is owned; 1 <= tries.

    Attributes:
        key: The id of the invocation.
        record: The record as it was when the run began.
        end: How it ended.
        tries: The number of runs begun, including this one.
        failing_since: The time of its first failure; None without one.
        is_listened: Triggers listen to its task.
        limited_by: The set in which it had a place; None if it needed none.
        due: When it was due as it was taken; None if unknown.
    """

    key: str
    record: StatusRecord
    end: End
    tries: int = 1
    failing_since: Instant | None = None
    is_listened: bool = False
    limited_by: str | None = None
    due: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.record, StatusRecord, "a record")
        if self.limited_by is not None:
            check_name(self.limited_by, "a set of invocations")
        if self.record.owner is None:
            raise Misuse(f"{self.key!r} has no owner", why="nobody runs it, so no run of it has ended")
        check_type(self.end, (Succeeded, Failed, GivenBack, Cancelled), "how a run has ended")
        check_int(self.tries, "a number of runs that have begun", 1)
        check_type(self.failing_since, (Instant, NoneType), "an instant")
        check_type(self.is_listened, bool, "is_listened")
        check_type(self.due, (Instant, NoneType), "an instant")


def upload_name(key: str, version: int) -> str:
    """The name under which to upload the result of a run, before its end is written.

    Args:
        key: The id of the invocation.
        version: The version at which the run began; unique per run.
    """
    check_int(version, "the version of a record", 1)
    return f"{upload_stem(key)}@{version}"


# --- the decision -------------------------------------------------------------------------------------------------------


def move_of(run: RunEnd, now: Instant | None) -> RecordMove:
    """The write that ends a run.

    Args:
        run: The end.
        now: The store's time; needed for a failure with a policy and for a delay.

    Raises:
        Misuse: An argument is of the wrong type, or the time is missing.
    """
    check_type(run, RunEnd, "how a run has ended")
    target, also = _written(run, now)
    if run.is_listened:
        also = (*also, Push(NOTICE, run.record.version + 1))
    return RecordMove(run.key, run.record, target, f"{run.record.owner}.{run.record.version}.{target}", also)


def _written(run: RunEnd, now: Instant | None) -> tuple[str, tuple[Update, ...]]:
    """The new status, and the other changes."""
    end = run.end
    match end:
        case Succeeded(result, None):
            return status.SUCCESS, (Put(RESULT, result),)
        case Succeeded(_, upload):
            return status.SUCCESS, (Put(RESULT_PAYLOAD, upload),)
        case Failed(error, policy):
            kept = Put(ERROR, error.document())
            if policy is None:
                return status.FAILED, (kept,)
            check_type(now, Instant, "the store's time")
            assert now is not None
            since = now if run.failing_since is None else run.failing_since
            verdict = decide(policy, run.tries, since, now, draw_of(f"{run.key} {run.tries}"))
            if not isinstance(verdict, Retry):
                return status.FAILED, (kept,)
            return status.RETRY, (kept, Put(FAILING_SINCE, since), Put(DUE, _kept(verdict.at)))
        case GivenBack(due, counts, delay):
            tries = () if counts else (Put(TRIES, run.tries - 1),)
            if delay is not None:
                check_type(now, Instant, "the store's time")
                assert now is not None
                due = now + delay
            due = run.due if due is None and not counts else due  # it stands where it stood
            return status.REROUTED, tries if due is None else (*tries, Put(DUE, _kept(due)))  # else due now
        case Cancelled():
            return status.CANCELLED, ()
        case _:
            assert_never(end)


def _needs_time(end: End) -> bool:
    return (isinstance(end, Failed) and end.policy is not None) or (
        isinstance(end, GivenBack) and end.delay is not None
    )


def _kept(due: Instant) -> Instant:
    """Round up to a millisecond, the resolution of documents."""
    return Instant(-(-due.at // MILLISECOND) * MILLISECOND, due.clock)


# --- the program --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class EndingOutcome(Attempted):
    """The outcome of a batch of ends.

    Attributes:
        answers: The outcome of each run, in order (`tidegate.invocations.queue.bulk_transition`).
        is_more: A waiter for a freed place is due now.
    """

    answers: tuple[TransitionOutcome, ...]
    is_more: bool = False

    @property
    def is_given_up(self) -> bool:
        return any(isinstance(each, Attempted) and each.is_given_up for each in self.answers)


@final
@attrs.frozen(kw_only=True)
class Ending:
    """One command: end these runs of one owner.

    Invariants: 1 <= len(runs) <= UPDATES_MAX; each of another invocation, all of one owner;
    1 <= attempts.

    Attributes:
        runs: The ends.
        records: The collection of the invocations.
        attempts: The number of attempts; None for no limit.
        pauses: The delays between attempts.
    """

    runs: tuple[RunEnd, ...]
    records: str = "invocations"
    attempts: int | None = ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_tuple(self.runs, RunEnd, "how a run has ended")
        check_int(len(self.runs), "a number of runs", 1, UPDATES_MAX)
        if len({run.record.owner for run in self.runs}) > 1:
            raise Misuse("runs of several owners", todo="end those of one after those of the other")
        if len({run.key for run in self.runs}) < len(self.runs):
            raise Misuse("two runs of one invocation", why="it has one owner at a time")
        check_collection(self.records)
        check_attempts(self.attempts, self.pauses)

    async def run(self) -> EndingOutcome:
        """Write the ends and wake waiters.

        Raises:
            Refused: The store refused for good, and no earlier request may have been done.
        """
        now: Instant | None = None
        if any(_needs_time(run.end) for run in self.runs):
            now = await self._now()
            if now is None:
                return EndingOutcome(tuple(GaveUp(self.attempts or 0, run.record, None) for run in self.runs))
        moves = tuple(move_of(run, now) for run in self.runs)
        owner = self.runs[0].record.owner
        answers = await Settling(self.records, INVOCATION, moves, owner, self.attempts, pauses=self.pauses).run()
        freed = Counter(
            run.limited_by
            for run, answer in zip(self.runs, answers, strict=True)
            if run.limited_by is not None and isinstance(answer, Granted)
        )
        return EndingOutcome(answers, is_more=bool(freed) and await self._wake(tuple(sorted(freed.items()))))

    async def _wake(self, freed: Freed) -> bool:
        """Wake waiters AFTER places are free. A failure here does not undo the ends."""
        try:
            return await wake(self.records, freed)
        except Failure:
            return False

    async def _now(self) -> Instant | None:
        """The store's time; None without a reply."""
        since = await begins(self.pauses)
        attempt = 0
        while True:
            if not await goes_on(self.pauses, self.attempts, attempt, since):
                return None
            attempt += 1
            try:
                return await StoreTime()
            except (Ambiguous, NotApplied):
                continue
