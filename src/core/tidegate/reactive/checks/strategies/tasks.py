"""Strategies: task records, looks, claims that hold or not, ends of runs, and rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import Document
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.snapshot import Kept, NotComputed, digest
from tidegate.reactive.record.task_records import FINISHED, PROCESSED, Ended, Guard, RunEnd, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import (
    Claim,
    ClaimVerdict,
    Deferred,
    Failed,
    GiveUp,
    Gone,
    HandlerOutcome,
    Matching,
    NextAttempt,
    NotMatching,
    PlanVerdict,
    Seen,
    Succeeded,
    TaskRules,
    TryAgain,
    claim,
    plan,
)

_T = TypeVar("_T")

# Few values, so that looks sometimes repeat and claims sometimes hold.
_DOCUMENTS: Final = tuple(Document((("a", value),)) for value in (0, 0.0, 1, True, "x"))
_KEPT: Final[tuple[Kept, ...]] = (*_DOCUMENTS, *_DOCUMENTS, *map(digest, _DOCUMENTS))
_WORKERS: Final = ("w1", "w2")
_IDS: Final = ("r1", "r2")
_TIMES: Final = range(5_000)
_ERRORS: Final = ("", "it broke", "$x", "\ud800")
_SEEN: Final[tuple[Seen, ...]] = (
    *map(Matching, _DOCUMENTS),
    *(NotMatching(), Gone(), NotComputed("total", "its function raised KeyError")),
)
_ENOUGH: Final = 48  # bytes: integers of that size are drawn small most of the time


@final
class _Dice:
    """Many choices from one number: a record takes twenty, and drawing each takes ten times as
    long.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def choose(self, options: Sequence[_T]) -> _T:
        # The last digit in the base of the number of options; the others are for later choices.
        self.number, place = divmod(self.number, len(options))
        return options[place]

    def time(self) -> Instant:
        return Instant(self.choose(_TIMES) * MILLISECOND)

    def time_or_none(self) -> Instant | None:
        return self.time() if self.choose((True, False)) else None


def times() -> SearchStrategy[Instant]:
    """Times within five seconds, so that they coincide; most in whole milliseconds."""
    return _drawn(lambda dice: dice.time() + dice.choose((0, 0, 0, 1, 999)))


def _drawn(make: Callable[[_Dice], _T]) -> SearchStrategy[_T]:
    return st.binary(min_size=_ENOUGH, max_size=_ENOUGH).map(lambda drawn: make(_Dice(int.from_bytes(drawn))))


def snapshots() -> SearchStrategy[Document]:
    """A few documents, some equal by MongoDB's equality."""
    return st.sampled_from(_DOCUMENTS)


def task_rules() -> SearchStrategy[TaskRules]:
    """Rules with short leases, short histories, and small or large snapshot limits."""
    return _drawn(_rules)


def _rules(dice: _Dice) -> TaskRules:
    quiet = dice.choose(range(1_500))
    return TaskRules(
        debounce=Debounce(
            quiet * MILLISECOND + dice.choose((0, 0, 7)), (quiet + 1 + dice.choose(_TIMES)) * MILLISECOND
        ),
        lease=dice.choose((1, 20 * MILLISECOND, SECOND, 1_234_567)),
        resets_on_change=dice.choose((True, False)),
        history_max=dice.choose(range(4)),
        snapshot_bytes_max=dice.choose((0, 1_000)),
    )


def seens() -> SearchStrategy[Seen]:
    """The results of a look; mostly a match."""
    return st.sampled_from(_SEEN)


def retries() -> SearchStrategy[NextAttempt]:
    """The verdicts of a policy."""
    return _drawn(_retry)


def _retry(dice: _Dice) -> NextAttempt:
    return TryAgain(dice.time() + dice.choose((0, 0, 1))) if dice.choose((True, False)) else GiveUp()


def outcomes() -> SearchStrategy[HandlerOutcome]:
    """The ends of a run."""
    return _drawn(_outcome)


def _outcome(dice: _Dice) -> HandlerOutcome:
    match dice.choose(range(4)):
        case 0:
            return Succeeded()
        case 1:
            return Deferred(dice.time() + dice.choose((0, 0, 1)))
        case _:
            return Failed(dice.choose(_ERRORS), _retry(dice))


def records(statuses: Sequence[TaskStatus] = tuple(TaskStatus)) -> SearchStrategy[TaskRecord]:
    """Records that keep the invariants, reachable or not.

    Args:
        statuses: Their statuses.
    """
    return _drawn(lambda dice: _record(dice, dice.choose(statuses)))


def _record(dice: _Dice, status: TaskStatus) -> TaskRecord:
    is_processed = status in PROCESSED
    history = tuple(_run(dice) for _ in range(dice.choose(range(4))))
    return TaskRecord(
        id=dice.choose(_IDS),
        version=dice.choose(range(1, 6)),
        status=status,
        snapshot=dice.choose((*_KEPT, None, None)),
        next_run_at=None if status in FINISHED else dice.time(),
        due_at=dice.time(),
        changed_at=dice.time(),
        waiting_since=dice.time() if status is TaskStatus.PROCESSING_DIRTY else dice.time_or_none(),
        created_at=dice.time(),
        retry_at=dice.time_or_none() if status is TaskStatus.PENDING else None,
        attempts=dice.choose(range(4)),
        token=dice.choose(range(1 if is_processed else 0, 4)),
        owner=dice.choose(_WORKERS) if is_processed else None,
        claimed_at=dice.time() if is_processed else dice.time_or_none(),
        first_error_at=dice.time_or_none(),
        last_error=dice.choose((None, "it broke")),
        last_success=next((run for run in history if run.ended is Ended.SUCCEEDED), None),
        history=history,
    )


def _run(dice: _Dice) -> RunEnd:
    ended = dice.choose(tuple(Ended))
    return RunEnd(1, ended, dice.time(), 7, "it broke" if ended is Ended.FAILED else None)


def claims(record: TaskRecord | None = None) -> SearchStrategy[Claim]:
    """Claims.

    Args:
        record: The record that most of them hold, or nearly hold; None for any.
    """
    return _drawn(lambda dice: _claim(dice, record))


def _claim(dice: _Dice, record: TaskRecord | None) -> Claim:
    some = Claim(
        id=dice.choose(_IDS),
        owner=dice.choose(_WORKERS),
        token=dice.choose((1, 2, 3)),
        snapshot=dice.choose((*_KEPT, None)),
        attempts=dice.choose((1, 2, 3)),
        failing_since=dice.time_or_none(),
    )
    if record is None or not record.token:
        return some
    owner = some.owner if record.owner is None else record.owner
    holding = attrs.evolve(some, id=record.id, owner=owner, token=record.token, attempts=record.attempts)
    match dice.choose(("", "", "", "id", "owner", "token")):
        case "id":
            return attrs.evolve(holding, id=some.id)
        case "owner":
            return attrs.evolve(holding, owner=some.owner)
        case "token":
            return attrs.evolve(holding, token=some.token)
        case _:
            return holding


@final
@attrs.frozen(kw_only=True)
class Situation:
    """The arguments of a decision.

    Attributes:
        record: The record as read; None for none.
        claim: A claim that mostly holds the record.
        seen: The result of the look.
        outcome: The end of the run.
        lapsed: The policy's verdict on a run with an expired lease; None if it was not asked.
        rules: How the task runs.
        now: The time.
    """

    record: TaskRecord | None
    claim: Claim
    seen: Seen
    outcome: HandlerOutcome
    lapsed: NextAttempt | None
    rules: TaskRules
    now: Instant


def situations(statuses: Sequence[TaskStatus] = tuple(TaskStatus)) -> SearchStrategy[Situation]:
    """Situations, each from one draw.

    Args:
        statuses: Those of the record.
    """
    return _drawn(lambda dice: _situation(dice, _record(dice, dice.choose(statuses))))


def _situation(dice: _Dice, record: TaskRecord) -> Situation:
    return Situation(
        record=None if dice.choose(range(8)) == 7 else record,
        claim=_claim(dice, record),
        seen=dice.choose(_SEEN),
        outcome=_outcome(dice),
        lapsed=dice.choose((None, _retry(dice))),
        rules=_rules(dice),
        now=dice.time() + dice.choose((0, 0, 1, 999)),
    )


def guards() -> SearchStrategy[Guard]:
    """Guards of a write."""
    return records().map(lambda record: record.guard)


@st.composite
def plans(draw: DrawFn) -> PlanVerdict:
    """Verdicts of a look."""
    record = draw(st.one_of(st.none(), records()))
    return plan(record, draw(seens()), rules=draw(task_rules()), now=draw(times()), new_id="r3")


@st.composite
def claimings(draw: DrawFn) -> ClaimVerdict:
    """Verdicts of a claim."""
    lapsed = draw(st.one_of(st.none(), retries()))
    return claim(draw(records()), worker="w3", rules=draw(task_rules()), now=draw(times()), lapsed=lapsed)
