"""How runs have ended, written down: many in one request, each with its result or its error in the write that ends it.

A runner that has taken invocations (running, owned by it, at a version) tells how the run of each has ended:

    Succeeded   success                      with the result, or the name of the upload that has it
    Failed      retry, due after a delay     with the error; as long as the policy allows another try (`tidegate.retries.backoff`)
                failed                       with the error; otherwise
    GivenBack   rerouted, due now or then    it was not run to its end: its runner shuts down, or was asked to kill it, or a
                                             rate has no room for it, or it asks to be called later; unless that is said to count, it was no try, and it is
                                             due when it was before, so that it stands behind nothing that came since
    Cancelled   cancelled

Each is one guarded update (`tidegate.invocations.settling`), so what is answered `Granted` is in, together with its result;
and a runner whose invocation was taken from it changes nothing, whatever it has computed. What becomes available has its due
instant from the same write, and triggers that listen hear of the version from the notice that the same write leaves.

A result that is too large for a record is uploaded BEFORE its end is written, under a name of its own (`upload_name`): the
record that was accepted names the one that counts, and the others are of no use to anybody.

Runs that had a place of those that no more than a number may have free it with their end, and whoever waits for one is woken
(`tidegate.invocations.placing`).

Laws
    EN1  A record that has succeeded holds the result of the run that was granted, and of no other.
    EN2  What is available is due at some time, and what is final is not due.
    EN3  A task is tried as often as its policy allows, and no more; what is given back and does not count is no try.
    EN4  A version whose task has listeners is in the notices that its write leaves, and no other version is.
    EN6  Whoever waits for a place that an end has freed is woken by two requests more, all together, AFTER the ends are in.
    EN5  A try that follows a failure is due after the delay of the policy, and what is given back with a delay after that, by
         the store's clock, to the next millisecond.

Known not to work
    - Tries that a runner did not live to end count as tries, and have no error.
"""

from __future__ import annotations

from collections import Counter
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.invocations import invocation as status
from tidegate.invocations.invocation import INVOCATION
from tidegate.invocations.jobs import upload_stem
from tidegate.invocations.placing import Freed, wake
from tidegate.invocations.record_documents import (
    DUE,
    ERROR,
    FAILING_SINCE,
    NOTICE,
    RESULT,
    RESULT_PAYLOAD,
    TRIES,
)
from tidegate.invocations.settling import RecordMove, Settling
from tidegate.invocations.status import StatusRecord
from tidegate.invocations.transition import ATTEMPTS, GaveUp, Granted, TransitionOutcome
from tidegate.model.documents import Document, Field, Push, Put, Update, Value, checked, exactly, has_lone_surrogate
from tidegate.model.effects import Ambiguous, Failure, NotApplied
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Duration, Instant
from tidegate.model.operations import UPDATES_MAX, StoreTime, check_collection
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.backoff import Policy, Retry, check_delay, decide, draw_of
from tidegate.retries.pauses import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on

MESSAGE_MAX: Final = 4_000
"""How many characters of a message are kept, the first ones."""
TRACEBACK_MAX: Final = 16_000
"""How many characters of a traceback are kept, the last ones: the innermost calls."""

_TYPE: Final = Field[str]("type")
_MESSAGE: Final = Field[str]("message")
_TRACEBACK: Final = Field[str]("traceback")
_ABOVE: Final = Field[tuple[str, ...]]("above")
_CUT: Final = "..."


# --- how a run has ended ------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Succeeded:
    """The run has a result. Invariant: it is here or uploaded.

    Attributes:
        result: The result, as the record keeps it.
        upload: Instead of it, the name that it was uploaded under (`upload_name`).
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
    """What a run failed with, as far as it is kept: messages are cut at their end, tracebacks at their beginning.

    Attributes:
        type: The name of the exception.
        message: What it says.
        traceback: Where it was raised; empty if nobody knows.
        above: The names of the classes above that of the exception, the nearest first.
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
        """What is stored of it; what has no UTF-8 form stands there as an escape."""
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
    """The error that a record holds.

    Raises:
        Misuse: It is none.
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
        error: With what.
        policy: When it is tried again; None for never, whatever the task says of other failures.
    """

    error: RunError
    policy: Policy | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.error, RunError, "the error of a run")
        check_type(self.policy, (Policy, NoneType), "a policy")


@final
@attrs.frozen
class GivenBack:
    """The run was not run to its end, and another one may begin.

    Attributes:
        due: When, by the store's clock; None for now, or, where it was no try, for when it was due before.
        counts: Whether it was a try.
        delay: In the place of `due`, how long after its end is written.
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
    """Nobody wants it any more."""


End: TypeAlias = Succeeded | Failed | GivenBack | Cancelled


@final
@attrs.frozen(kw_only=True)
class RunEnd:
    """A run that has ended. Invariants: it is owned; 1 <= tries.

    Attributes:
        key: The id of the invocation.
        record: The record as it was when the run began.
        end: How it has ended.
        tries: How many runs of it have begun, this one included.
        failing_since: When it failed for the first time; None if it has not.
        is_listened: Whether triggers listen to its task.
        limited_by: The set of which it had a place; None if it needed none.
        due: When it was due as it was taken; None if nobody knows.
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
    """What the result of the run at this version of an invocation is uploaded as, before its end is written.

    Args:
        key: The id of the invocation.
        version: The version at which the run began: no two runs have the same.
    """
    check_int(version, "the version of a record", 1)
    return f"{upload_stem(key)}@{version}"


# --- the decision -------------------------------------------------------------------------------------------------------


def move_of(run: RunEnd, now: Instant | None) -> RecordMove:
    """What is written of a run that has ended.

    Args:
        run: How it has ended.
        now: The store's time; None where it does not matter: of all but those that failed and have a policy, or have a delay.

    Raises:
        Misuse: An argument is of the wrong type, or the time is missing.
    """
    check_type(run, RunEnd, "how a run has ended")
    target, also = _written(run, now)
    if run.is_listened:
        also = (*also, Push(NOTICE, run.record.version + 1))
    return RecordMove(run.key, run.record, target, f"{run.record.owner}.{run.record.version}.{target}", also)


def _written(run: RunEnd, now: Instant | None) -> tuple[str, tuple[Update, ...]]:
    """The status entered, and what else changes."""
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
    """Is something due some time after it is written?"""
    return (isinstance(end, Failed) and end.policy is not None) or (
        isinstance(end, GivenBack) and end.delay is not None
    )


def _kept(due: Instant) -> Instant:
    """The first instant from then on that documents can hold."""
    return Instant(-(-due.at // MILLISECOND) * MILLISECOND, due.clock)


# --- the program --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class EndingOutcome(Attempted):
    """What has become of ends.

    Attributes:
        answers: Of each, in the order of the runs, as `tidegate.invocations.settling` answers.
        is_more: Whether somebody is due who waited for a place that is free now.
    """

    answers: tuple[TransitionOutcome, ...]
    is_more: bool = False

    @property
    def is_given_up(self) -> bool:
        return any(isinstance(each, Attempted) and each.is_given_up for each in self.answers)


@final
@attrs.frozen(kw_only=True)
class Ending:
    """One command: these runs of one owner have ended.

    Invariants: 1 <= len(runs) <= UPDATES_MAX; each is of another invocation, and all are of one owner; 1 <= attempts.

    Attributes:
        runs: How they have ended.
        records: The collection of the invocations.
        attempts: How often to ask before giving up; None for any number.
        pauses: How long it waits in between.
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
        """The program.

        Raises:
            Refused: The store said no, definitely, and nothing was asked of it before.
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
        """Whoever waits for a place hears that there is one, AFTER it is free; the ends are written in any case."""
        try:
            return await wake(self.records, freed)
        except Failure:
            return False

    async def _now(self) -> Instant | None:
        """The store's time; None where nobody answers."""
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
