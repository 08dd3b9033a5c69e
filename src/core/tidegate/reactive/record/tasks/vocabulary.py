"""Arguments and verdicts of decisions about a task record.

Values from users (rules, observed documents, ends of runs, policy verdicts) are checked when made.
Only decisions make verdicts, and the claims in them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import MINUTE, Duration, Instant
from tidegate.model.values import check_int, check_type
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.snapshot import Kept, NotComputed
from tidegate.reactive.record.task_records import Guard, TaskRecord

ERROR_MAX: Final = 1_000
"""Characters that are kept of an error's text."""


@final
@attrs.frozen(kw_only=True)
class TaskRules:
    """How a task runs.

    Invariants: 1 <= lease; 0 <= history_max; 0 <= snapshot_bytes_max.

    Attributes:
        debounce: How long changes wait for further ones.
        lease: How long a claim lasts unless renewed, in microseconds.
        resets_on_change: A change ends a failing streak: attempts count from zero, and no retry
            delay
            applies.
        history_max: How many ends of runs the record keeps.
        snapshot_bytes_max: The largest snapshot that is kept whole; of a larger one the digest is.
    """

    debounce: Debounce = attrs.field(factory=Debounce)
    lease: Duration = MINUTE
    resets_on_change: bool = True
    history_max: int = 5
    snapshot_bytes_max: int = 64 * 1024

    def __attrs_post_init__(self) -> None:
        check_type(self.debounce, Debounce, "a debounce")
        check_int(self.lease, "a lease in microseconds", 1)
        check_type(self.resets_on_change, bool, "resets_on_change")
        check_int(self.history_max, "a number of runs", 0)
        check_int(self.snapshot_bytes_max, "a number of bytes", 0)


# --- what was seen, how a run ended -----------------------------------------------------------------------------------


@final
@attrs.frozen
class Matching:
    """The document exists and matches the filter, with these watched values."""

    snapshot: Document

    def __attrs_post_init__(self) -> None:
        check_type(self.snapshot, Document, "a snapshot")


@final
@attrs.frozen
class NotMatching:
    """The document exists and does not match the filter."""


@final
@attrs.frozen
class Gone:
    """There is no document."""


Seen: TypeAlias = Matching | NotMatching | Gone | NotComputed


@final
@attrs.frozen
class TryAgain:
    """The retry policy lets it run again at this instant."""

    at: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.at, Instant, "the time of a retry")


@final
@attrs.frozen
class GiveUp:
    """The retry policy gives up."""


NextAttempt: TypeAlias = TryAgain | GiveUp
"""The policy's verdict (`tidegate.retries.backoff`, or another) on a failed run: after
`claim.attempts` attempts since `claim.failing_since`.
"""


@final
@attrs.frozen
class Succeeded:
    """The handler returned."""


def _kept_text(error: object) -> str:
    """The part of an error's text that can be stored."""
    if not isinstance(error, str):
        raise Misuse(f"{typed(error)} is not the text of an error", why="it is of another type")
    return error.encode("utf-8", "replace").decode()[:ERROR_MAX] or "unknown error"


@final
@attrs.frozen
class Failed:
    """The handler failed, with the policy's verdict.

    Attributes:
        error: The text of the failure, cut to `ERROR_MAX` characters that UTF-8 can encode.
        retry: Whether it runs again.
    """

    error: str = attrs.field(repr=False, converter=_kept_text)
    retry: NextAttempt

    def __attrs_post_init__(self) -> None:
        check_type(self.retry, (TryAgain, GiveUp), "what the policy says")


@final
@attrs.frozen
class Deferred:
    """The handler asks for a later call: neither a failure nor an attempt. Changes meanwhile do not
    wait.

    A handler that finds another document than it was started with does the same; the next `begin`
    decides.
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
    COMPLETING = "the transaction of its own handler holds its record"
    SUCCEEDED = "the run succeeded"
    RETRIED = "the run failed, and is tried again"
    GIVEN_UP = "the run failed, and is given up"
    DEFERRED = "the run was deferred"
    RUNS_AGAIN = "it changed while it was processed"
    RESET = "a reset was asked for"


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
class InsertRecord:
    """Insert the first record of this document and task, if there is none."""

    record: TaskRecord
    why: Why

    def __str__(self) -> str:
        return f"insert, for {self.why.value}: {self.record}"


@final
@attrs.frozen
class UpdateRecord:
    """Write the record, if it is unchanged since the decision."""

    on: Guard
    record: TaskRecord
    why: Why

    def __str__(self) -> str:
        return f"update, for {self.why.value}: {self.record}"


@final
@attrs.frozen
class Leave:
    """Write nothing."""

    why: WhyNot

    def __str__(self) -> str:
        return f"leave: {self.why.value}"


@final
@attrs.frozen
class Wait:
    """Write nothing, and look again at that time."""

    why: WhyNot
    until: Instant

    def __str__(self) -> str:
        return f"wait until {self.until}: {self.why.value}"


@final
@attrs.frozen
class Claim:
    """A run. Its holder may begin, renew and finalise it once the record is written.

    Attributes:
        id: The id of the record.
        owner: The worker that runs it.
        token: Counts the claims of the record.
        snapshot: The watched values it runs with; a digest if the snapshot is too large.
        attempts: Attempts since the last reset, this one included.
        failing_since: The begin of the failing streak, if there is one.
    """

    id: str
    owner: str
    token: int
    snapshot: Kept | None
    attempts: int
    failing_since: Instant | None

    def __str__(self) -> str:
        return f"run {self.token} of {self.id!r} by {self.owner!r}, attempt {self.attempts}"


@final
@attrs.frozen
class Claimed:
    """The run is this one, once the record is written."""

    write: UpdateRecord
    claim: Claim

    def __str__(self) -> str:
        return f"claimed, for {self.write.why.value}: {self.claim}"


@final
@attrs.frozen
class Lapsed:
    """The lease of another run has ended; claim again with the policy's verdict on one more
    attempt.

    Attributes:
        attempts: Attempts since the last reset, that one included.
        failing_since: The begin of the failing streak; now, if it begins with this.
    """

    attempts: int
    failing_since: Instant

    def __str__(self) -> str:
        return f"lapsed: ask the policy after {self.attempts} attempts"


@final
@attrs.frozen
class Go:
    """The handler runs now, with the claimed values; nothing is written."""

    claim: Claim

    def __str__(self) -> str:
        return f"go: {self.claim}"


@final
@attrs.frozen
class Adopt:
    """The handler runs with the current values, once the record is written, under this claim."""

    write: UpdateRecord
    claim: Claim

    def __str__(self) -> str:
        return f"adopt: {self.claim}"


@final
@attrs.frozen
class CannotRun:
    """There is nothing to run with: once the record is written, finalise the run as a failure."""

    write: UpdateRecord
    why: NotComputed

    def __str__(self) -> str:
        return f"cannot run: {self.why}"


PlanVerdict: TypeAlias = InsertRecord | UpdateRecord | Leave
ClaimVerdict: TypeAlias = Claimed | Lapsed | UpdateRecord | Wait | Leave
BeginVerdict: TypeAlias = Go | Adopt | UpdateRecord | Leave | CannotRun
