"""What a decision about a task record is asked with, and what it answers.

What users make (the rules of a task, what was seen, how a run ended, what a policy says) is checked as it is made. Verdicts,
and the claims in them, are made by the decisions alone.
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
"""How many characters of an error's text are kept."""


@final
@attrs.frozen(kw_only=True)
class TaskRules:
    """How a task is run.

    Invariants: 1 <= lease; 0 <= history_max; 0 <= snapshot_bytes_max.

    Attributes:
        debounce: How long changes wait for each other.
        lease: How long a claim holds unless it is renewed, in microseconds.
        resets_on_change: A change ends a failing streak: it counts attempts from the beginning, and waits for no retry.
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
        check_type(self.resets_on_change, bool, "resets_on_change")
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
    """The retry policy lets it run again, at this instant."""

    at: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.at, Instant, "the time of a retry")


@final
@attrs.frozen
class GiveUp:
    """The retry policy gives up."""


NextAttempt: TypeAlias = TryAgain | GiveUp
"""What the policy (`tidegate.retries.backoff`, or another) says of a run that failed: after `claim.attempts` attempts, since
`claim.failing_since`."""


@final
@attrs.frozen
class Succeeded:
    """The handler returned."""


def _kept_text(error: object) -> str:
    """An error's text as it can be kept."""
    if not isinstance(error, str):
        raise Misuse(f"{typed(error)} is not the text of an error", why="it is of another type")
    return error.encode("utf-8", "replace").decode()[:ERROR_MAX] or "unknown error"


@final
@attrs.frozen
class Failed:
    """The handler failed, and this is what the policy says.

    Attributes:
        error: The text of the failure. It is cut to `ERROR_MAX` characters that have a UTF-8 form.
        retry: Whether it runs again.
    """

    error: str = attrs.field(repr=False, converter=_kept_text)
    retry: NextAttempt

    def __attrs_post_init__(self) -> None:
        check_type(self.retry, (TryAgain, GiveUp), "what the policy says")


@final
@attrs.frozen
class Deferred:
    """The handler asks to be called later. That is neither a failure nor an attempt; what changes meanwhile does not wait.

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
    """Write the first record of this document and task, if there is none."""

    record: TaskRecord
    why: Why

    def __str__(self) -> str:
        return f"insert, for {self.why.value}: {self.record}"


@final
@attrs.frozen
class UpdateRecord:
    """Write the record, if it is still what it was decided on."""

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
    """The lease of another run has ended, and the policy has to say whether there is another attempt: claim again with it.

    Attributes:
        attempts: How many attempts there were since the last reset, that one included.
        failing_since: When the failing streak began; now, if it begins with this.
    """

    attempts: int
    failing_since: Instant

    def __str__(self) -> str:
        return f"lapsed: ask the policy after {self.attempts} attempts"


@final
@attrs.frozen
class Go:
    """The handler runs now, with what was claimed; nothing is written."""

    claim: Claim

    def __str__(self) -> str:
        return f"go: {self.claim}"


@final
@attrs.frozen
class Adopt:
    """The handler runs with what is there now, once the record is written; the claim is this one then."""

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
