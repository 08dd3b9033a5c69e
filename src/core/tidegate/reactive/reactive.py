"""What becomes of the task record of a document?

A reactive task is work that follows a document: when what is watched of it changes (`tidegate.reactive.snapshot`), its handler
runs. For each document and task there is one record (`tidegate.reactive.task_records`). Planners look at documents and write down
what they see, workers take what is due, run the handler, and write down how it ended; nobody waits for anybody. After
mongodash, whose statuses these are.

    plan       a planner has seen the document: it is new, it has changed, it no longer matches, it is gone
    claim      a worker takes what is due, or what another has let lapse; there the attempt is counted
    begin      the worker has seen the document under its claim: whether the handler runs, and with what
    renew      the lease goes on
    finalise   the run has ended: it succeeded, it failed, or it asks to be deferred
    reset      an operator, or a new version of the handler, wants another run

Each decision is taken on a record as it was read, and what it writes is guarded by that record's id, version, owner and
token (its guard): optimistic concurrency control after Kung and Robinson 1981. Versions and tokens only grow, and ids are
never used again, so nothing that is guarded can be mistaken for something that came back (A-B-A). The token is a fencing
token (Burrows 2006): one who lost a lease and does not know it cannot write.

Caller's duties
    - Carry a write out only if the record is still as its guard says, in one step (compare-and-set). If it is not, read
      again and decide again.
    - Look after each change: read the record BEFORE the document, both as a majority has them. Then whatever is written
      was seen after all that the record says; the other way round, a look from the past undoes a later one. Where the
      server tells which documents differ (`snapshot.differs`), those whose record is processed are looked at as well.
    - Send a claim to `begin` BEFORE the handler runs. What `begin` adopts is the claim from then on.
    - `now` is the store's time: whoever judges due times and leases by it agrees with all others.

Laws
    RE1  No change is lost: what is seen to have changed is due, or will be once its run has ended, with what was seen;
         and a look at what is processed makes a version, so that no run begins with what was there before that look.
    RE2  A run begins with what is there: the latest that was seen, and what its document says at that time.
    RE3  What changed while it was processed runs again: the end of that run completes nothing and fails nothing.
    RE4  A stale run changes nothing: only the claim that holds the record renews it, begins under it and finalises it.
    RE5  Attempts are counted at claim: each one counts unless it ends in a deferral, and nothing else does.
    RE6  A-B-A is noticed: each write makes one version, each claim one token, and what comes back is another change.
    RE7  Every write is guarded by what it was decided on: id, version, owner and token.
    RE8  Nobody takes what is not due, what is held, or what is finished; what is due can be taken.
    RE9  What no longer matches is completed, and its handler is not called: it is due once more, and `begin` sees it.
    RE10 A change is due when its debounce says. Only where changes do not reset, a retry may be due later, and stays so.
    RE11 A failure is tried again no earlier than the policy says, and where the policy gives up it has failed.
    RE12 A failing streak began with its first failure; a success, a reset, and a change that resets end it.
    RE13 The history holds the last ends of runs: all but deferrals, those that never came back included.
    RE14 Instants are written in whole milliseconds, as MongoDB keeps them: what has happened is rounded down, what is
         due is rounded up.

Where we differ, and why
    mongodash stores no owner and no token. A worker that stalled past its lease completes what another runs, and its
    change is lost; a renewal makes a completed record claimable (RE4, RE6). Here all writes are guarded.
    Its claim does not look at the status. Here what is finished is never taken (RE8).
    Its limit of attempts is looked at when a run has failed, so a handler that kills its process runs for ever. Here a
    lease that ran out is a failed run, and `claim` asks the policy (RE5).
    There a change zeroes the attempts in every case, so a failing handler that edits its own document gets all of them
    again after its last edit. Here `resets_on_change=False` keeps the attempts, the streak and the wait before the next
    retry, so it is given up with the first failure without an edit (RE3 holds); a success ends all.
    There what was marked dirty by hand keeps its attempts when its run succeeds. Here a success ends the streak.
    There a deferral zeroes the attempts, and its documents say that they are not incremented. Here the attempt that
    asked for it does not count, and those before it do.
    There a retry by an operator keeps the attempts, so a failed record gets one run; its documents say that they are
    reset. Here they are, at once; the last error stays to be read.
    There a document that stops to match leaves its record pending, the handler is called once more, and what comes back
    with the same values is not noticed. Its documents say that leaving removes the record. Here the record is completed
    without the handler, and the snapshot is forgotten: what comes back is seen for the first time.
    There a handler that finds another document than it was started with has its record completed. If the document is
    then what it was, nobody has run with it and nobody notices. Here such a handler is deferred, or begins again.
    There the snapshot is written on every look. Here an equal one (1 for 1.0) writes nothing.
    An error's text is an expression there, so "$x" vanishes, and one that is none makes the record run for ever. Here it
    is text, cut to ERROR_MAX characters that have a UTF-8 form, so that it cannot keep its record from being written.

Things that do not work
    Keeping the snapshot of a run that could not begin, for what is watched could not be computed: it fails, and when its
    document is again what it was, that is no change, and nobody runs it.
    Completing a record at the look that sees its document leave: another look, at what has come back since, may have
    found nothing changed and written nothing. So a look only ever makes things due, and `begin` decides under the claim.
    Leaving a record alone that is processed, where nothing has changed: its run may have seen the document before that
    look, and begin with what is gone. So such a look makes a version.

Known not to work
    - A change and its opposite between two looks leave no trace.
    - A handler that changes what it watches starts itself again, as often as it does that; also where it fails, or kills
      its process, and the policy has given up.
    - While a run is not renewed for longer than its lease, another may run beside it. Its writes to this record are
      refused; what the handler itself writes elsewhere needs the token as well.
    - A record that was written and whose reply was lost looks as if another had written it: read it again, and its token
      (of a claim) or its history (of an end) tells.
    - What was given up because it could not be computed stays failed when it then no longer matches; nothing is due.
    - Tokens are those of one record. Of a document that lost its record and got another they begin again, so what is
      fenced outside compares the id as well.
"""

from __future__ import annotations

from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.documents import Document, equal
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, Duration, Instant
from tidegate.model.values import check_int, check_name, check_type
from tidegate.reactive.debounce import Debounce, due
from tidegate.reactive.snapshot import Digest, Kept, NotComputed, digest, remembered
from tidegate.reactive.task_records import ONCE_MORE, PROCESSED, Ended, Guard, Run, TaskRecord, TaskStatus

ERROR_MAX: Final = 1_000
"""How many characters of an error's text are kept."""


@final
@attrs.frozen(kw_only=True)
class Task:
    """How a task is run.

    Invariants: 1 <= lease; 0 <= history_max; 0 <= snapshot_bytes_max.

    Attributes:
        debounce: How long changes wait for each other.
        lease: How long a claim holds unless it is renewed, in microseconds.
        resets_on_change: A change ends a failing streak: it counts attempts from the beginning, and waits no longer.
        history_max: How many ends of runs are remembered.
        snapshot_bytes_max: How large a snapshot is kept as it is; of a larger one, its digest is.
    """

    debounce: Debounce = attrs.field(factory=Debounce)
    lease: Duration = MINUTE
    resets_on_change: bool = True
    history_max: int = 5
    snapshot_bytes_max: int = 64 * 1024

    def __attrs_post_init__(self) -> None:
        check_type(self.debounce, Debounce, "a debounce")
        check_int(self.lease, "a lease in microseconds", 1)
        check_type(self.resets_on_change, bool, "whether a change resets")
        check_int(self.history_max, "a number of runs", 0)
        check_int(self.snapshot_bytes_max, "a number of bytes", 0)


# --- what was seen, how a run ended -----------------------------------------------------------------------------------


@final
@attrs.frozen
class Matching:
    """The document is there and matches the filter; this is what is watched of it."""

    snapshot: Document

    def __attrs_post_init__(self) -> None:
        check_type(self.snapshot, Document, "a snapshot")


@final
@attrs.frozen
class NotMatching:
    """The document is there and does not match the filter."""


@final
@attrs.frozen
class Gone:
    """There is no document."""


Seen: TypeAlias = Matching | NotMatching | Gone | NotComputed


@final
@attrs.frozen
class TryAgain:
    """The retry policy has it run again, at this instant."""

    at: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.at, Instant, "the time of a retry")


@final
@attrs.frozen
class GiveUp:
    """The retry policy has had enough."""


Retry: TypeAlias = TryAgain | GiveUp
"""What the policy (`tidegate.retries.backoff`, or another) says of a run that failed: after `claim.attempts` attempts, since
`claim.failing_since`."""


@final
@attrs.frozen
class Succeeded:
    """The handler returned."""


def _told(error: object) -> str:
    """An error's text as it can be kept."""
    if not isinstance(error, str):
        raise Misuse(f"a {type(error).__name__} is not the text of an error", why="it is of another type")
    return error.encode("utf-8", "replace").decode()[:ERROR_MAX] or "unknown error"


@final
@attrs.frozen
class Failed:
    """The handler failed, and this is what the policy says.

    Attributes:
        error: The text of the failure. It is cut to `ERROR_MAX` characters that have a UTF-8 form.
        retry: Whether it runs again.
    """

    error: str = attrs.field(repr=False, converter=_told)
    retry: Retry

    def __attrs_post_init__(self) -> None:
        check_type(self.retry, (TryAgain, GiveUp), "what the policy says")


@final
@attrs.frozen
class Deferred:
    """The handler asks to be called later. That is no failure, and no attempt.

    So does a handler that finds another document than it was started with; the next `begin` says what becomes of it.
    """

    until: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.until, Instant, "the time of a deferral")


HandlerOutcome: TypeAlias = Succeeded | Failed | Deferred


# --- verdicts ---------------------------------------------------------------------------------------------------------


class Why(Enum):
    """Why something is written."""

    FIRST_SEEN = "it was seen for the first time"
    CHANGED = "what is watched has changed"
    LEFT = "it no longer matches"
    LOOKED_AT = "its document was seen while it was processed"
    DUE = "it was due"
    TAKEN_OVER = "the lease of another run ran out"
    LATEST = "the run takes what is there now"
    NOT_COMPUTED = "what is watched cannot be computed, and is forgotten"
    RENEWED = "the run goes on"
    SUCCEEDED = "the run succeeded"
    RETRIED = "the run failed, and is tried again"
    GIVEN_UP = "the run failed, and is given up"
    DEFERRED = "the run was deferred"
    RUNS_AGAIN = "it changed while it was processed"
    RESET = "a reset was wanted"


class WhyNot(Enum):
    """Why nothing is written."""

    UNCHANGED = "nothing that is watched has changed"
    NOT_MATCHING = "it does not match"
    NOT_COMPUTED = "what is watched cannot be computed"
    NOT_DUE = "it is not due"
    HELD = "another run holds it"
    FINISHED = "nothing is due"
    NO_RECORD = "there is no record any more"
    ANOTHER_RECORD = "the record was removed, and this is another one"
    ANOTHER_CLAIM = "it is under another claim"
    ENDED = "this run has ended already"


@final
@attrs.frozen
class Insert:
    """Write the first record of this document and task, if there is none."""

    record: TaskRecord
    why: Why

    def __attrs_post_init__(self) -> None:
        check_type(self.record, TaskRecord, "a record")
        check_type(self.why, Why, "a reason to write")

    def __str__(self) -> str:
        return f"insert, for {self.why.value}: {self.record}"


@final
@attrs.frozen
class Update:
    """Write the record, if it is still what it was decided on."""

    on: Guard
    record: TaskRecord
    why: Why

    def __attrs_post_init__(self) -> None:
        check_type(self.on, Guard, "a guard")
        check_type(self.record, TaskRecord, "a record")
        check_type(self.why, Why, "a reason to write")

    def __str__(self) -> str:
        return f"update, for {self.why.value}: {self.record}"


@final
@attrs.frozen
class Leave:
    """Write nothing."""

    why: WhyNot

    def __attrs_post_init__(self) -> None:
        check_type(self.why, WhyNot, "a reason to write nothing")

    def __str__(self) -> str:
        return f"leave: {self.why.value}"


@final
@attrs.frozen
class Wait:
    """Write nothing, and look again at that time."""

    why: WhyNot
    until: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.why, WhyNot, "a reason to write nothing")
        check_type(self.until, Instant, "the time to look again")

    def __str__(self) -> str:
        return f"wait until {self.until}: {self.why.value}"


@final
@attrs.frozen
class Claim:
    """A run: whoever has this may begin, renew and finalise it, once the record is written.

    Attributes:
        id: Of the record.
        owner: Who runs it.
        token: Which claim of the record it is.
        snapshot: What it runs with; a digest where the snapshot is too large to be kept.
        attempts: How many attempts there were since the last reset, this one included.
        failing_since: When the failing streak began, if there is one.
    """

    id: str
    owner: str
    token: int
    snapshot: Kept | None
    attempts: int
    failing_since: Instant | None

    def __attrs_post_init__(self) -> None:
        check_name(self.id, "a record")
        check_name(self.owner, "a worker")
        check_int(self.token, "the token of a claim", 1)
        check_int(self.attempts, "a number of attempts", 0)
        check_type(self.snapshot, (Document, Digest, NoneType), "what is kept of a snapshot")
        check_type(self.failing_since, (Instant, NoneType), "the time of a failure")

    def __str__(self) -> str:
        return f"run {self.token} of {self.id!r} by {self.owner!r}, attempt {self.attempts}"


@final
@attrs.frozen
class Claimed:
    """The run is this one, once the record is written."""

    write: Update
    claim: Claim

    def __attrs_post_init__(self) -> None:
        check_type(self.write, Update, "a write")
        check_type(self.claim, Claim, "a claim")

    def __str__(self) -> str:
        return f"claimed, for {self.write.why.value}: {self.claim}"


@final
@attrs.frozen
class Lapsed:
    """The lease of another run has ended, and the policy has to say whether there is another attempt: claim again with it.

    Attributes:
        attempts: How many attempts there were since the last reset, that one included.
        failing_since: When the failing streak began; now, if it begins with this.
    """

    attempts: int
    failing_since: Instant

    def __attrs_post_init__(self) -> None:
        check_int(self.attempts, "a number of attempts", 0)
        check_type(self.failing_since, Instant, "the time of a failure")

    def __str__(self) -> str:
        return f"lapsed: ask the policy after {self.attempts} attempts"


@final
@attrs.frozen
class Go:
    """The handler runs now, with what was claimed; nothing is written."""

    claim: Claim

    def __attrs_post_init__(self) -> None:
        check_type(self.claim, Claim, "a claim")

    def __str__(self) -> str:
        return f"go: {self.claim}"


@final
@attrs.frozen
class Adopt:
    """The handler runs with what is there now, once the record is written; the claim is this one then."""

    write: Update
    claim: Claim

    def __attrs_post_init__(self) -> None:
        check_type(self.write, Update, "a write")
        check_type(self.claim, Claim, "a claim")

    def __str__(self) -> str:
        return f"adopt: {self.claim}"


@final
@attrs.frozen
class CannotRun:
    """There is nothing to run with: once the record is written, finalise the run as a failure."""

    write: Update
    why: NotComputed

    def __attrs_post_init__(self) -> None:
        check_type(self.write, Update, "a write")
        check_type(self.why, NotComputed, "what cannot be computed")

    def __str__(self) -> str:
        return f"cannot run: {self.why}"


Planned: TypeAlias = Insert | Update | Leave
Claiming: TypeAlias = Claimed | Lapsed | Update | Wait | Leave
Beginning: TypeAlias = Go | Adopt | Update | Leave | CannotRun


# --- plan -------------------------------------------------------------------------------------------------------------


def plan(record: TaskRecord | None, seen: Seen, *, task: Task, now: Instant, new_id: str) -> Planned:
    """What a look at a document means for its record.

    Args:
        record: The record as it was read, BEFORE the document; None where there is none.
        seen: The document as it was read.
        task: How the task is run.
        now: The time, by the store's clock.
        new_id: The id of a new record, which no record has ever had.

    Returns:
        `Insert` or `Update` with what to write, or `Leave`. Where what is watched cannot be computed nothing is written,
        so that nothing is lost: the snapshot stays, and the next look compares with it. Report it.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    check_type(record, (TaskRecord, NoneType), "a record")
    check_type(seen, (Matching, NotMatching, Gone, NotComputed), "what was seen")
    check_type(task, Task, "a task")
    check_type(now, Instant, "the time")
    if isinstance(seen, NotComputed):
        return Leave(WhyNot.NOT_COMPUTED)
    snapshot = seen.snapshot if isinstance(seen, Matching) else None
    if record is None:
        if snapshot is None:
            return Leave(WhyNot.NOT_MATCHING)
        return Insert(_first(snapshot, task, now, new_id), Why.FIRST_SEEN)
    if not _is_same(record.snapshot, snapshot):
        after = _changed(record, snapshot, task, now)
        return Update(record.guard, after, Why.LEFT if snapshot is None else Why.CHANGED)
    if record.status in PROCESSED:  # a run that has seen the document before may be about to write
        return Update(record.guard, attrs.evolve(record, version=record.version + 1), Why.LOOKED_AT)
    return Leave(WhyNot.UNCHANGED)


def _first(snapshot: Document, task: Task, now: Instant, new_id: str) -> TaskRecord:
    at, when = _stamp(now), _whole(due(task.debounce, now, now))
    return TaskRecord(
        id=new_id,
        version=1,
        status=TaskStatus.PENDING,
        snapshot=remembered(snapshot, task.snapshot_bytes_max),
        next_run_at=when,
        due_at=when,
        changed_at=at,
        waiting_since=at,
        created_at=at,
    )


def _changed(record: TaskRecord, snapshot: Document | None, task: Task, now: Instant) -> TaskRecord:
    first = now if record.waiting_since is None else record.waiting_since
    when = _whole(due(task.debounce, first, now))
    status = ONCE_MORE[record.status]
    resets = task.resets_on_change or record.status is TaskStatus.COMPLETED  # a success has ended the streak
    if record.next_run_at is None or (resets and status is TaskStatus.PENDING):
        next_run_at = when
    elif status is TaskStatus.PENDING:
        next_run_at = _later(record.next_run_at, when)
    else:
        next_run_at = record.next_run_at  # the lease
    return attrs.evolve(
        _counted_anew(record) if resets else record,
        version=record.version + 1,
        status=status,
        snapshot=None if snapshot is None else remembered(snapshot, task.snapshot_bytes_max),
        next_run_at=next_run_at,
        due_at=when,
        changed_at=_stamp(now),
        waiting_since=_stamp(first),
    )


# --- claim, begin, renew ----------------------------------------------------------------------------------------------


def claim(record: TaskRecord, *, worker: str, task: Task, now: Instant, lapsed: Retry | None = None) -> Claiming:
    """Whether a worker may run a record now.

    Args:
        record: The record as it was read.
        worker: Who asks; another name for each process that may run at a time.
        task: How the task is run.
        now: The time, by the store's clock.
        lapsed: What the policy says of the run whose lease has ended, where the verdict was `Lapsed`. When it would be
            tried again does not matter: the lease was the wait.

    Returns:
        `Claimed` with what to write and the run that it makes; `Lapsed` where the policy has to be asked; `Update` where
        it gives up; `Wait` for what is not due or held; `Leave` for what is finished.

    Raises:
        Misuse: An argument is of another type or empty, or the clocks differ.
    """
    check_type(record, TaskRecord, "a record")
    check_type(task, Task, "a task")
    check_type(now, Instant, "the time")
    check_type(lapsed, (TryAgain, GiveUp, NoneType), "what the policy says")
    check_name(worker, "a worker")
    if record.next_run_at is None:
        return Leave(WhyNot.FINISHED)
    if now - record.next_run_at < 0:
        return Wait(WhyNot.NOT_DUE if record.owner is None else WhyNot.HELD, record.next_run_at)
    if record.owner is None:
        return _claimed(record.guard, record, worker=worker, task=task, now=now, why=Why.DUE)
    failing = _failing(_ended(record, _run(record, Ended.LOST, now), task), now, Ended.LOST.value)
    if record.status is TaskStatus.PROCESSING_DIRTY:  # the change has not been run with yet
        return _claimed(record.guard, failing, worker=worker, task=task, now=now, why=Why.TAKEN_OVER)
    match lapsed:
        case None:
            return Lapsed(record.attempts, _failing_since(record, now))
        case GiveUp():
            return Update(record.guard, attrs.evolve(failing, status=TaskStatus.FAILED), Why.GIVEN_UP)
        case TryAgain():
            return _claimed(record.guard, failing, worker=worker, task=task, now=now, why=Why.TAKEN_OVER)
        case _:
            assert_never(lapsed)


def _claimed(on: Guard, record: TaskRecord, *, worker: str, task: Task, now: Instant, why: Why) -> Claimed:
    after = attrs.evolve(
        record,
        version=on.version + 1,
        status=TaskStatus.PROCESSING,
        next_run_at=_whole(now + task.lease),
        waiting_since=None,
        attempts=record.attempts + 1,
        token=record.token + 1,
        owner=worker,
        claimed_at=_stamp(now),
    )
    return Claimed(Update(on, after, why), _claim_of(after, worker))


def begin(record: TaskRecord | None, claim: Claim, seen: Seen, *, task: Task, now: Instant) -> Beginning:
    """Whether the handler runs under a claim, now that its document was read.

    Args:
        record: The record as it was read, BEFORE the document and AFTER the claim; that which was written for the claim
            will do. None where there is none any more.
        claim: The run.
        seen: The document as it was read.
        task: How the task is run.
        now: The time, by the store's clock.

    Returns:
        `Go`; `Adopt` with what to write, where there is something newer than what was claimed, and what it then runs
        with; `Update` where it no longer matches, which completes it; `CannotRun` where what is watched cannot be
        computed; `Leave` for a stale claim.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    check_type(seen, (Matching, NotMatching, Gone, NotComputed), "what was seen")
    held = _held(record, claim, task, now)
    if isinstance(held, Leave):
        return held
    match seen:
        case NotComputed():
            forgotten = attrs.evolve(held, version=held.version + 1, snapshot=None)
            return CannotRun(Update(held.guard, forgotten, Why.NOT_COMPUTED), seen)
        case NotMatching() | Gone():
            over = _without_streak(_ended(held, _run(held, Ended.SKIPPED, now), task))
            left = attrs.evolve(over, snapshot=None, changed_at=_stamp(now), waiting_since=None)
            return Update(held.guard, left, Why.LEFT)
        case Matching(snapshot):
            is_same = _is_same(held.snapshot, snapshot)
            if is_same and held.status is TaskStatus.PROCESSING:
                return Go(_claim_of(held, claim.owner))
            resets = task.resets_on_change and not is_same
            after = attrs.evolve(
                _counted_anew(held) if resets else held,
                version=held.version + 1,
                status=TaskStatus.PROCESSING,
                snapshot=remembered(snapshot, task.snapshot_bytes_max),
                changed_at=held.changed_at if is_same else _stamp(now),
                waiting_since=None,
                attempts=1 if resets else max(held.attempts, 1),
            )
            return Adopt(Update(held.guard, after, Why.LATEST), _claim_of(after, claim.owner))
        case _:
            assert_never(seen)


def renew(record: TaskRecord | None, claim: Claim, *, task: Task, now: Instant) -> Update | Leave:
    """Whether a run may go on.

    Args:
        record: The record as it was read; None where there is none any more.
        claim: The run.
        task: How the task is run.
        now: The time, by the store's clock.

    Returns:
        `Update` with a lease from now on, never a shorter one; `Leave` for a stale claim: the handler had better stop.
        A lease that has ended, and that nobody has taken over, is renewed like any other.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    held = _held(record, claim, task, now)
    if isinstance(held, Leave):
        return held
    lease = _whole(now + task.lease)
    until = lease if held.next_run_at is None else _later(held.next_run_at, lease)
    return Update(held.guard, attrs.evolve(held, version=held.version + 1, next_run_at=until), Why.RENEWED)


# --- finalise ---------------------------------------------------------------------------------------------------------


def finalise(
    record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, *, task: Task, now: Instant
) -> Update | Leave:
    """What the end of a run means for its record.

    Args:
        record: The record as it was read; None where there is none any more.
        claim: The run.
        outcome: How it ended.
        task: How the task is run.
        now: The time, by the store's clock.

    Returns:
        `Update` with what to write, or `Leave` for a stale claim, which includes one that was finalised already.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    check_type(outcome, (Succeeded, Failed, Deferred), "the end of a run")
    held = _held(record, claim, task, now)
    if isinstance(held, Leave):
        return held
    over = _over(held, outcome, task, now)
    if held.status is TaskStatus.PROCESSING_DIRTY:
        again = _pending(over, _due_again(held, outcome, task))
        counted = 0 if isinstance(outcome, Succeeded) else again.attempts  # a success ends the streak
        return Update(held.guard, attrs.evolve(again, attempts=counted), Why.RUNS_AGAIN)
    match outcome:
        case Succeeded():
            return Update(held.guard, over, Why.SUCCEEDED)
        case Deferred(until):
            return Update(held.guard, _pending(over, until), Why.DEFERRED)
        case Failed(_, TryAgain(at)):
            return Update(held.guard, _pending(over, at), Why.RETRIED)
        case Failed():
            return Update(held.guard, attrs.evolve(over, status=TaskStatus.FAILED), Why.GIVEN_UP)
        case _:
            assert_never(outcome)


def _over(held: TaskRecord, outcome: HandlerOutcome, task: Task, now: Instant) -> TaskRecord:
    """The record after its run, with what the outcome says of the attempts; completed, unless the caller says more."""
    match outcome:
        case Succeeded():
            run = _run(held, Ended.SUCCEEDED, now)
            return attrs.evolve(_without_streak(_ended(held, run, task)), last_success=run)
        case Failed(error):
            return _failing(_ended(held, _run(held, Ended.FAILED, now, error), task), now, error)
        case Deferred():
            over = _ended(held, _run(held, Ended.SKIPPED, now), task)
            return attrs.evolve(over, attempts=max(held.attempts - 1, 0), history=held.history)
        case _:
            assert_never(outcome)


def _due_again(held: TaskRecord, outcome: HandlerOutcome, task: Task) -> Instant:
    """When what changed while it was processed is due."""
    first = held.changed_at if held.waiting_since is None else held.waiting_since
    when = _whole(due(task.debounce, first, held.changed_at))
    match outcome:
        case Failed(_, TryAgain(at)) | Deferred(at) if held.attempts:  # without, it was reset while it ran
            return _later(when, _whole(at))
        case _:
            return when


# --- reset ------------------------------------------------------------------------------------------------------------


def reset(record: TaskRecord, *, now: Instant) -> Update:
    """What makes a record run again although nothing has changed, its attempts counted anew.

    Args:
        record: The record as it was read.
        now: The time, by the store's clock.

    Returns:
        `Update` with a record that is due now, or dirty while it is processed.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    check_type(record, TaskRecord, "a record")
    check_type(now, Instant, "the time")
    status = ONCE_MORE[record.status]
    is_dirty = status is TaskStatus.PROCESSING_DIRTY
    after = attrs.evolve(
        record,
        version=record.version + 1,
        status=status,
        next_run_at=record.next_run_at if is_dirty else _stamp(now),
        changed_at=_stamp(now),
        waiting_since=_stamp(now) if is_dirty and record.waiting_since is None else record.waiting_since,
        attempts=0,
        first_error_at=None,
    )
    return Update(record.guard, after, Why.RESET)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _is_same(known: Kept | None, snapshot: Document | None) -> bool:
    if known is None or snapshot is None:
        return known is snapshot
    return equal(known, snapshot) if isinstance(known, Document) else known == digest(snapshot)


def _held(record: TaskRecord | None, claim: Claim, task: Task, now: Instant) -> TaskRecord | Leave:
    """The record if the claim holds it, or why it does not."""
    check_type(record, (TaskRecord, NoneType), "a record")
    check_type(claim, Claim, "a claim")
    check_type(task, Task, "a task")
    check_type(now, Instant, "the time")
    if record is None:
        return Leave(WhyNot.NO_RECORD)
    if record.id != claim.id:
        return Leave(WhyNot.ANOTHER_RECORD)
    if record.token != claim.token:
        return Leave(WhyNot.ANOTHER_CLAIM)
    if record.status not in PROCESSED:
        return Leave(WhyNot.ENDED)
    return record if record.owner == claim.owner else Leave(WhyNot.ANOTHER_CLAIM)


def _claim_of(record: TaskRecord, owner: str) -> Claim:
    return Claim(record.id, owner, record.token, record.snapshot, record.attempts, record.first_error_at)


def _ended(record: TaskRecord, run: Run, task: Task) -> TaskRecord:
    """The record after a run, completed and one version further, whatever the end."""
    history = (*record.history, run)
    return attrs.evolve(
        record,
        version=record.version + 1,
        status=TaskStatus.COMPLETED,
        next_run_at=None,
        owner=None,
        finalised_at=run.at,
        history=history[max(len(history) - task.history_max, 0) :],
    )


def _run(record: TaskRecord, ended: Ended, now: Instant, error: str | None = None) -> Run:
    began = now if record.claimed_at is None else record.claimed_at
    return Run(record.token, ended, _stamp(now), max(now - began, 0), error)


def _pending(over: TaskRecord, at: Instant) -> TaskRecord:
    return attrs.evolve(over, status=TaskStatus.PENDING, next_run_at=_whole(at))


def _failing(record: TaskRecord, now: Instant, error: str) -> TaskRecord:
    """The record with a failure in its streak; without attempts, a change or a reset has ended that while it ran."""
    if not record.attempts:
        return record
    return attrs.evolve(record, first_error_at=_failing_since(record, now), last_error=error)


def _failing_since(record: TaskRecord, now: Instant) -> Instant:
    return _stamp(now) if record.first_error_at is None else record.first_error_at


def _without_streak(record: TaskRecord) -> TaskRecord:
    return attrs.evolve(record, first_error_at=None, last_error=None)


def _counted_anew(record: TaskRecord) -> TaskRecord:
    return attrs.evolve(record, attempts=0, first_error_at=None, last_error=None)


def _stamp(now: Instant) -> Instant:
    """The time as MongoDB keeps it."""
    return Instant(now.at // MILLISECOND * MILLISECOND, now.clock)


def _whole(at: Instant) -> Instant:
    """The first whole millisecond that is not before it."""
    return Instant(-(-at.at // MILLISECOND) * MILLISECOND, at.clock)


def _later(one: Instant, other: Instant) -> Instant:
    return one if one - other >= 0 else other
