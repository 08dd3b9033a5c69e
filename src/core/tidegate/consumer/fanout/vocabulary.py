"""The types of windows: events, outputs, and the rules between them."""

from __future__ import annotations

from enum import Enum, unique
from itertools import chain
from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.consumer.offsets._offsets import check_numbers, ranges
from tidegate.consumer.offsets.watermark import OFFSET_MAX
from tidegate.model.errors import Misuse, typed
from tidegate.model.values import check_int, check_type

_TASK_NUMBER_MAX: Final = 2**31 - 1

_RETRIES_MAX: Final = 3
"""As in Drakkar."""

_GENERATIONS_MAX: Final = 3
"""Drakkar has no bound. Three, as for retries, allows a fall-back of a fall-back."""

TaskId: TypeAlias = tuple[int, int]
"""(window, number)."""


@final
@attrs.frozen
class Rules:
    """The deliveries of user code, and the bounds of retries. Invariants: 0 <= retries_max; 0 <=
    generations_max.

    By default each level has a delivery, which is the safe side: a delivery that is forgotten shows
    at once, because no record is settled.

    Attributes:
        retries_max: How often a task may be retried.
        generations_max: How many generations of replacements may follow an arranged task.
        task_delivery: Whether the result of a task is delivered.
        record_delivery: Whether a record has a delivery of its own, after its tasks are settled.
        window_delivery: Whether a window has one, after its tasks and records; then its records are
            settled with it.
    """

    retries_max: int = _RETRIES_MAX
    generations_max: int = _GENERATIONS_MAX
    task_delivery: bool = attrs.field(default=True, kw_only=True)
    record_delivery: bool = attrs.field(default=True, kw_only=True)
    window_delivery: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int(self.retries_max, "a number of retries", 0)
        check_int(self.generations_max, "a number of generations", 0)
        for flag in (self.task_delivery, self.record_delivery, self.window_delivery):
            check_type(flag, bool, "whether there is something to deliver")


# --- events -------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Tasks:
    """The tasks that user code requests, in its order.

    Invariants: succeeded and failed are positions in `offsets`, and no position is in both.

    Attributes:
        offsets: For each task, the offsets of its records.
        succeeded: The tasks that do not run because a good result is given.
        failed: The tasks that do not run because a bad result is given.
    """

    offsets: tuple[tuple[int, ...], ...] = ()
    succeeded: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        if type(self.offsets) is not tuple or not {*map(type, self.offsets)} <= {tuple}:
            raise Misuse(f"{typed(self.offsets)} does not list tasks", todo="pass a tuple with a tuple of offsets each")
        check_numbers(tuple(chain.from_iterable(self.offsets)), "offsets", OFFSET_MAX)
        check_numbers(self.succeeded, "positions of tasks", len(self.offsets) - 1)
        check_numbers(self.failed, "positions of tasks", len(self.offsets) - 1)
        if not {*self.succeeded}.isdisjoint(self.failed):
            raise Misuse("a result is given both as good and as bad", todo="list its task once")


@final
@attrs.frozen
class WindowOpened:
    """These records were fetched and wait to be arranged. The window gets the next number."""

    offsets: tuple[int, ...]


@final
@attrs.frozen
class WindowArranged:
    """User code requests these tasks. Without any, the records have no tasks to wait for."""

    window: int
    tasks: Tasks


@final
@attrs.frozen
class ArrangeFailed:
    """User code could not arrange the window, and is not called again for it."""

    window: int


@unique
class Report(Enum):
    """The kind of a report about runs."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Failed, or given up by the runner."""
    DELIVERED = "delivered"
    """The results are settled at their destination: delivered, skipped on purpose, or
    dead-lettered.
    """
    UNDELIVERED = "undelivered"
    """The results could not be delivered, or their hook raised: the runs have failed."""
    RETRIED = "retried"
    """User code retries the failed runs."""
    SKIPPED = "skipped"
    """User code accepts the failures, or raised when called."""


@final
@attrs.frozen
class TasksReported:
    """A report about these tasks of a window, all at this attempt."""

    window: int
    numbers: tuple[int, ...]
    attempt: int
    report: Report


@final
@attrs.frozen
class TaskReplaced:
    """User code replaces the failed run with these tasks."""

    window: int
    number: int
    attempt: int
    tasks: Tasks


@final
@attrs.frozen
class RecordsDelivered:
    """The own deliveries of these records are settled, or their failures are answered for."""

    window: int
    offsets: tuple[int, ...]


@final
@attrs.frozen
class WindowDelivered:
    """The own delivery of the window is settled."""

    window: int


FanoutEvent: TypeAlias = (
    WindowOpened | WindowArranged | ArrangeFailed | TasksReported | TaskReplaced | RecordsDelivered | WindowDelivered
)


# --- what follows -------------------------------------------------------------------------------------------------------


@unique
class Reason(Enum):
    """Why a part of an event is ignored."""

    NO_WINDOW = "no window of that number was opened"
    WINDOW_SETTLED = "the window is settled"
    NOT_ARRANGED = "the window is not arranged yet"
    ARRANGED = "the window was arranged before"
    NO_RUN = "nobody asked for that run"
    EARLIER_ATTEMPT = "the task is at a later attempt"
    RUNNING = "the run has not ended"
    ENDED = "the end of the run was reported before"
    HAS_FAILED = "the run has failed"
    HAS_SUCCEEDED = "the run has succeeded"
    TASK_SETTLED = "the task is settled"
    TASK_REPLACED = "the task was replaced"
    NO_RECORD = "the window has no such record"
    NOT_DUE = "its turn has not come: what comes before is not settled"
    DELIVERED = "its delivery was reported before"
    IN_FLIGHT = "a window in flight has that record"
    NOTHING = "nothing was named"
    NOT_WAITING = "no record of that offset waits for tasks"
    TWICE = "it was named twice"


@unique
class Bar(Enum):
    """Why a task fails for good although user code decided otherwise."""

    RETRIES = "no retry is left"
    GIVEN = "its result was given, and would be the same again"
    GENERATIONS = "no generation of replacements is left"
    NO_REPLACEMENT = "it was replaced by nothing"


@final
@attrs.frozen
class Tally:
    """The counts of tasks by outcome. Invariant: succeeded + failed + replaced <= total.

    Attributes:
        total: All tasks, including replaced ones and replacements.
        succeeded: The tasks that have succeeded, with their results delivered.
        failed: The tasks that have failed for good.
        replaced: The tasks that were replaced.
    """

    total: int
    succeeded: int
    failed: int
    replaced: int

    @property
    def settled(self) -> int:
        """The number of settled tasks."""
        return self.succeeded + self.failed + self.replaced

    @property
    def open(self) -> int:
        """The number of unsettled tasks."""
        return self.total - self.settled

    def __str__(self) -> str:
        parts = (
            ("open", self.open),
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("replaced", self.replaced),
        )
        return ", ".join([f"{self.total} tasks", *(f"{number} {name}" for name, number in parts if number)])


@final
@attrs.frozen
class Arrange:
    """Call user code to arrange these records, in order."""

    window: int
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"arrange window {self.window}: {ranges(self.offsets)}"


@final
@attrs.frozen
class Start:
    """Run these tasks, each at this attempt. `replaced` is the number of the task that they
    replace.
    """

    window: int
    numbers: tuple[int, ...]
    attempt: int
    replaced: int | None = None

    def __str__(self) -> str:
        instead = "" if self.replaced is None else f" instead of {self.replaced}"
        return f"start {_runs(self)}{instead}"


@final
@attrs.frozen
class Judge:
    """Call user code to decide about these failed runs, one by one."""

    window: int
    numbers: tuple[int, ...]
    attempt: int

    def __str__(self) -> str:
        return f"judge {_runs(self)}"


@final
@attrs.frozen
class DeliverTasks:
    """Deliver the results of these runs."""

    window: int
    numbers: tuple[int, ...]
    attempt: int

    def __str__(self) -> str:
        return f"deliver {_runs(self)}"


@final
@attrs.frozen
class DeliverRecords:
    """Make the own deliveries of these records; their tasks are settled.

    Attributes:
        window: The number of their window.
        offsets: The records, in order.
        to_dead_letter: The records with a failure, which user code must answer for: dead-letter,
            mark, ...
    """

    window: int
    offsets: tuple[int, ...]
    to_dead_letter: tuple[int, ...] = ()

    def __str__(self) -> str:
        failed = f", of which {ranges(self.to_dead_letter)} failed" if self.to_dead_letter else ""
        return f"deliver records of window {self.window}: {ranges(self.offsets)}{failed}"


@final
@attrs.frozen
class DeliverWindow:
    """Make the own delivery of the window; its tasks are settled, and its records wait only for it."""

    window: int
    tally: Tally

    def __str__(self) -> str:
        return f"deliver window {self.window}: {self.tally}"


@final
@attrs.frozen
class TaskGivenUp:
    """These tasks have failed for good, although user code decided otherwise."""

    window: int
    numbers: tuple[int, ...]
    bar: Bar

    def __str__(self) -> str:
        return f"gave up {self.window}/{ranges(self.numbers)}: {self.bar.value}"


@final
@attrs.frozen
class RecordsSettled:
    """These records, in order, are done."""

    window: int
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"settled records of window {self.window}: {ranges(self.offsets)}"


@final
@attrs.frozen
class WindowSettled:
    """The window is done."""

    window: int
    tally: Tally

    def __str__(self) -> str:
        return f"settled window {self.window}: {self.tally}"


@final
@attrs.frozen
class Ignored:
    """A part of an event that changes nothing.

    Attributes:
        reason: Why.
        window: The number of the named window; None for a window to be opened.
        what: The ignored tasks (numbers) or records (offsets), each as often as it was ignored;
            empty for a window.
    """

    reason: Reason
    window: int | None
    what: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"ignored {self.window}/{ranges(self.what)}: {self.reason.value}"


UserRequest: TypeAlias = Arrange | Start | Judge | DeliverTasks | DeliverRecords | DeliverWindow
"""A request to user code."""

Output: TypeAlias = UserRequest | TaskGivenUp | RecordsSettled | WindowSettled | Ignored


# --- at the entrance ----------------------------------------------------------------------------------------------------

_EVENTS: Final = get_args(FanoutEvent)


def check_event(event: FanoutEvent) -> None:
    """Check an event from outside. No other function checks it.

    Args:
        event: The event.

    Raises:
        Misuse: It is no event of a window, or a field has the wrong type or is out of range.
    """
    check_type(event, _EVENTS, "an event of a window")
    if not isinstance(event, WindowOpened):
        check_int(event.window, "the number of a window", 0)
    match event:
        case WindowOpened(offsets) | RecordsDelivered(_, offsets):
            check_numbers(offsets, "offsets", OFFSET_MAX)
        case TasksReported(_, numbers, attempt, report):
            check_numbers(numbers, "numbers of tasks", _TASK_NUMBER_MAX)
            check_int(attempt, "the number of an attempt", 1)
            check_type(report, Report, "a report")
        case TaskReplaced(_, number, attempt, tasks):
            check_int(number, "the number of a task", 0, _TASK_NUMBER_MAX)
            check_int(attempt, "the number of an attempt", 1)
            check_type(tasks, Tasks, "what user code asks for")
        case WindowArranged(_, tasks):
            check_type(tasks, Tasks, "what user code asks for")
        case ArrangeFailed() | WindowDelivered():
            pass
        case _:
            assert_never(event)


def _runs(runs: Start | Judge | DeliverTasks) -> str:
    return f"{runs.window}/{ranges(runs.numbers)} (attempt {runs.attempt})"
