"""When is a record, and when is a window, settled?

The records of a partition are taken in windows. User code arranges a window: it turns records into tasks. A task is for
one record or for several (fan-in), a record may have many tasks (fan-out), a task may fail, be tried again, or be
replaced by others. This module keeps the accounts of one assignment of one partition: `step(state, event, rules)` answers
the next state and what follows from the event. It holds offsets and numbers, and no payloads. Executors, backoff and the
calls of user code are the caller's, who tells what became of them.

It is a termination detector of the counting kind (Mattern 1987), for work that begets work: what is open is known by
name, one bit a task, so that a report which comes twice or late cannot be counted twice.

    task      Running -- succeeded --> Delivering -- delivered --> Succeeded
                 |  ^                      |
              failed  '- tried again    undelivered
                 v     '                 v
              Failing -- user code answers --> Failed, or Replaced by tasks of the next generation
    record   waits for its tasks, then for its own delivery, then for that of its window: settled
    window    is being arranged, waits for its tasks and records, then for its own delivery: settled

Whether there is anything to deliver at a level is a rule. Where there is nothing, the level has no delivery to wait for;
only a record with a failure always waits until somebody has answered for it (dead-lettered it, marked it, ...).

Windows are numbered in the order in which they are opened, the tasks of a window in the order in which user code lists
them, replacements behind. So (window, number) names a task, and (window, number, attempt) a run of it, the same in each
replay, whatever the other windows do.

Laws
    F1  A record is settled at most once, and so is a window.
    F2  A record is settled only after all tasks that are for it, those that replace them included.
    F3  A record is settled only after its own delivery, if it has one. Nothing is delivered of a record before its tasks
        are settled.
    F4  If its window has a delivery of its own and had a task, a record is settled with the window, and that after the
        delivery.
    F5  A window is settled only after all its tasks and records.
    F6  No failure passes in silence: a record with a failed task, or of a window that could not be arranged, is settled
        only after somebody has answered for it.
    F7  A task is run at most 1 + retries_max times, attempt by attempt, never two at once; no generation beyond
        generations_max is started; a result that was given is never run.
    F8  What comes late, twice, or unasked changes nothing, and is ignored with a reason.
    F9  Every task has a record, in flight when the task was made, that waits for it; whatever waited for a task that is
        replaced waits for a replacement.
    F10 Accounts add up: a tally's parts are those of the reports.
    F11 A batch is the same as its parts one by one: the same state, the same things settled.
    F12 Events of windows that share no task commute: the same state, and the same outputs of each.
    F13 Once everything that was asked for is reported, everything is settled and nothing is kept.

How `tidegate.consumer.partition` uses it: what the tracker finds `fresh` is opened as a window AFTER it is `delivered` there; what is
settled here is `completed` there. An offset that was settled may be opened again, for only the tracker remembers; one that
is in flight may not. An assignment begins with `Fanout()`, so the generation of an event is judged before it comes here.

Where we differ from Drakkar
    Its window hook runs after the records of the window are committed, so a crash loses the aggregate. F4 instead.
    Its record is settled by a raising hook or a failed delivery. Here nothing but a report settles, and F6.
    An empty list of replacements hides the failure: neither failed nor all succeeded. Here it is a failure.
    A task none of whose offsets is in flight runs unprotected: a crash loses it. Here its whole window waits for it, and
    a record that no replacement lists waits for all of them (F9).
    Replacements may be replaced for ever. Here there is a cap on generations, F7.
    A given result that is bad may be "tried again", and is as bad each time. Here it has no retries.
    Its tracker is overwritten when an offset is delivered again, which mixes the outcomes. Here an offset in flight is
    not opened twice.
    An offset that is listed twice counts twice there. Here a task is for a record or it is not.
    Its results carry no attempt, so one that was given up and comes late counts for the attempt that runs. F8 instead.
    An offset of another window that is in flight is tracked there as here.

Known not to work
    How many tasks one record, or one replacement, may have is not bounded: the load counts records, and all tasks are
    told at once. Whoever starts them queues them.
    A run that was given up may still go on outside; its effects are not undone.

Things that do not work
    Counting what remains: a report that comes twice is counted twice. And a counter a record is copied with each report.
    One bitmap from the first task of the assignment on: a stuck task makes it grow for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum, unique
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.consumer.backpressure import Load
from tidegate.consumer.watermark import OFFSET_MAX
from tidegate.model._evolving import evolve
from tidegate.model.errors import Misuse
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type

NUMBER_MAX: Final = 2**31 - 1
"""The highest number that a task may be called by."""

RETRIES_MAX: Final = 3
"""As in Drakkar."""

GENERATIONS_MAX: Final = 3
"""Drakkar has no bound; three, as with retries, leaves room for a fall-back of a fall-back."""

TaskId: TypeAlias = tuple[int, int]
"""(window, number)."""


@final
@attrs.frozen
class Rules:
    """What user code has to deliver, and how often it may try. Invariants: 0 <= retries_max; 0 <= generations_max.

    By default there is something to deliver at each level, which is the safe side: to forget that there is nothing shows
    at once, for nothing is settled.

    Attributes:
        retries_max: How often a task may be tried again.
        generations_max: How many generations of replacements may follow a task that was arranged.
        task_delivery: Whether what a task results in is delivered.
        record_delivery: Whether a record has something of its own to deliver, once its tasks are settled.
        window_delivery: Whether a window has, once its tasks and records are; then its records are settled with it.
    """

    retries_max: int = RETRIES_MAX
    generations_max: int = GENERATIONS_MAX
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
    """The tasks that user code asks for, in its order.

    Invariants: succeeded and failed are positions in `offsets`, and no position is in both.

    Attributes:
        offsets: For each task, the offsets of the records that it is for.
        succeeded: Which of them need not be run, since their result is given, and good.
        failed: Which of them need not be run, since their result is given, and bad.
    """

    offsets: tuple[tuple[int, ...], ...] = ()
    succeeded: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        if type(self.offsets) is not tuple or not {*map(type, self.offsets)} <= {tuple}:
            raise Misuse(
                f"a {type(self.offsets).__name__} does not list tasks", todo="pass a tuple with a tuple of offsets each"
            )
        _whole(tuple(chain.from_iterable(self.offsets)), "offsets", OFFSET_MAX)
        _whole(self.succeeded, "positions of tasks", len(self.offsets) - 1)
        _whole(self.failed, "positions of tasks", len(self.offsets) - 1)
        if not {*self.succeeded}.isdisjoint(self.failed):
            raise Misuse("a result is given both as good and as bad", todo="list its task once")


@final
@attrs.frozen
class WindowOpened:
    """These records were fetched, and wait to be arranged. The window has the next number."""

    offsets: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        _whole(self.offsets, "offsets", OFFSET_MAX)


@final
@attrs.frozen
class WindowArranged:
    """User code asks for these tasks. Where it asks for none, the records have nothing to wait for."""

    window: int
    tasks: Tasks

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)
        check_type(self.tasks, Tasks, "what user code asks for")


@final
@attrs.frozen
class ArrangeFailed:
    """User code could not arrange the window, and is not asked again."""

    window: int

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)


@unique
class Report(Enum):
    """What is reported of runs."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Or given up by whoever ran it."""
    DELIVERED = "delivered"
    """What they resulted in is settled where it goes: delivered, skipped by decision, or safely dead-lettered."""
    UNDELIVERED = "undelivered"
    """What they resulted in could not be delivered, or the hook that makes it raised: the runs have failed."""
    RETRIED = "retried"
    """They had failed, and user code wants them tried again."""
    SKIPPED = "skipped"
    """They had failed, and user code lets it be so, or raised when it was asked."""


@final
@attrs.frozen
class TasksReported:
    """Something is reported of these tasks of a window, all at this attempt."""

    window: int
    numbers: tuple[int, ...]
    attempt: int
    report: Report

    def __attrs_post_init__(self) -> None:
        _check_runs(self)
        check_type(self.report, Report, "a report")


@final
@attrs.frozen
class TaskReplaced:
    """The run had failed, and user code wants these tasks instead."""

    window: int
    number: int
    attempt: int
    tasks: Tasks

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)
        _whole((self.number,), "numbers of tasks", NUMBER_MAX)
        check_int(self.attempt, "the number of an attempt", 1)
        check_type(self.tasks, Tasks, "what user code asks for")


@final
@attrs.frozen
class RecordsDelivered:
    """What these records have to deliver of their own is settled, or somebody has answered for their failure."""

    window: int
    offsets: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)
        _whole(self.offsets, "offsets", OFFSET_MAX)


@final
@attrs.frozen
class WindowDelivered:
    """What the window has to deliver of its own is settled."""

    window: int

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)


Event: TypeAlias = (
    WindowOpened | WindowArranged | ArrangeFailed | TasksReported | TaskReplaced | RecordsDelivered | WindowDelivered
)


# --- what follows -------------------------------------------------------------------------------------------------------


@unique
class Reason(Enum):
    """Why something is ignored."""

    NO_WINDOW = "no window of that number was opened"
    WINDOW_SETTLED = "the window is settled"
    NOT_ARRANGED = "the window is not arranged yet"
    ARRANGED = "the window was arranged before"
    NO_RUN = "nobody asked for that run"
    EARLIER_ATTEMPT = "the task is at a later attempt"
    RUNNING = "the run has not ended"
    ENDED = "the end of the run was heard before"
    HAS_FAILED = "the run has failed"
    HAS_SUCCEEDED = "the run has succeeded"
    TASK_SETTLED = "the task is settled"
    TASK_REPLACED = "the task was replaced"
    NO_MESSAGE = "the window has no such record"
    NOT_DUE = "its turn has not come: what comes before is not settled"
    DELIVERED = "that it is delivered was heard before"
    IN_FLIGHT = "a window in flight has that record"
    NOTHING = "nothing was named"
    NOT_WAITING = "no record of that offset waits for tasks"
    TWICE = "it was named twice"


@unique
class Bar(Enum):
    """Why a task has failed for good although user code answered otherwise."""

    RETRIES = "no retry is left"
    GIVEN = "its result was given, and would be the same again"
    GENERATIONS = "no generation of replacements is left"
    NO_REPLACEMENT = "it was replaced by nothing"


@final
@attrs.frozen
class Tally:
    """What became of tasks. Invariants: 0 <= each; open is not negative.

    Attributes:
        total: How many there are, replaced ones and replacements included.
        succeeded: How many have succeeded, with what they resulted in delivered.
        failed: How many have failed for good.
        replaced: How many were replaced.
    """

    total: int
    succeeded: int
    failed: int
    replaced: int

    def __attrs_post_init__(self) -> None:
        for number in (self.total, self.succeeded, self.failed, self.replaced):
            check_int(number, "a number of tasks", 0)
        if self.open < 0:
            raise Misuse(f"{self.settled} of {self.total} tasks cannot be settled", why="the parts make the total")

    @property
    def settled(self) -> int:
        """How many are settled, one way or another."""
        return self.succeeded + self.failed + self.replaced

    @property
    def open(self) -> int:
        """How many are not settled."""
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
    """Ask user code to arrange these records, in order."""

    window: int
    offsets: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)
        _whole(self.offsets, "offsets", OFFSET_MAX)

    def __str__(self) -> str:
        return f"arrange window {self.window}: {_shown(self.offsets)}"


@final
@attrs.frozen
class Start:
    """Run these tasks, each at this attempt; `replaced` is the number of the task that they stand for."""

    window: int
    numbers: tuple[int, ...]
    attempt: int
    replaced: int | None = None

    def __attrs_post_init__(self) -> None:
        _check_runs(self)
        if self.replaced is not None:
            _whole((self.replaced,), "numbers of tasks", NUMBER_MAX)

    def __str__(self) -> str:
        instead = "" if self.replaced is None else f" instead of {self.replaced}"
        return f"start {_runs(self)}{instead}"


@final
@attrs.frozen
class Judge:
    """Ask user code what to do about these failed runs, one by one."""

    window: int
    numbers: tuple[int, ...]
    attempt: int

    def __attrs_post_init__(self) -> None:
        _check_runs(self)

    def __str__(self) -> str:
        return f"judge {_runs(self)}"


@final
@attrs.frozen
class DeliverTasks:
    """Deliver what these runs resulted in."""

    window: int
    numbers: tuple[int, ...]
    attempt: int

    def __attrs_post_init__(self) -> None:
        _check_runs(self)

    def __str__(self) -> str:
        return f"deliver {_runs(self)}"


@final
@attrs.frozen
class DeliverRecords:
    """Deliver what these records have to deliver of their own: their tasks are settled.

    Attributes:
        window: Its number.
        offsets: The records, in order.
        failed: Those of them that somebody has to answer for.
    """

    window: int
    offsets: tuple[int, ...]
    failed: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)
        _whole(self.offsets, "offsets", OFFSET_MAX)
        _whole(self.failed, "offsets", OFFSET_MAX)

    def __str__(self) -> str:
        failed = f", of which {_shown(self.failed)} failed" if self.failed else ""
        return f"deliver records of window {self.window}: {_shown(self.offsets)}{failed}"


@final
@attrs.frozen
class DeliverWindow:
    """Deliver what the window has to deliver of its own: its tasks and records are settled."""

    window: int
    tally: Tally

    def __attrs_post_init__(self) -> None:
        _check_window(self.window)
        check_type(self.tally, Tally, "a tally")

    def __str__(self) -> str:
        return f"deliver window {self.window}: {self.tally}"


@final
@attrs.frozen
class TaskGivenUp:
    """These tasks have failed for good, though user code answered otherwise."""

    window: int
    numbers: tuple[int, ...]
    bar: Bar

    def __str__(self) -> str:
        return f"gave up {self.window}/{_shown(self.numbers)}: {self.bar.value}"


@final
@attrs.frozen
class RecordsSettled:
    """Nothing is left to do about these records, in order; they are done."""

    window: int
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"settled records of window {self.window}: {_shown(self.offsets)}"


@final
@attrs.frozen
class WindowSettled:
    """Nothing is left to do about the window."""

    window: int
    tally: Tally

    def __str__(self) -> str:
        return f"settled window {self.window}: {self.tally}"


@final
@attrs.frozen
class Ignored:
    """Something changes nothing.

    Attributes:
        reason: Why.
        window: The number of the window that was named; None if it was to be opened.
        what: Which tasks (by number) or records (by offset), each as often as it was ignored; empty for a window.
    """

    reason: Reason
    window: int | None
    what: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"ignored {self.window}/{_shown(self.what)}: {self.reason.value}"


Output: TypeAlias = (
    Arrange
    | Start
    | Judge
    | DeliverTasks
    | DeliverRecords
    | DeliverWindow
    | TaskGivenUp
    | RecordsSettled
    | WindowSettled
    | Ignored
)


# --- states -------------------------------------------------------------------------------------------------------------


@unique
class TaskPhase(IntEnum):
    """How a task is doing. The number is its place in the bitmaps of a window."""

    RUNNING = 0
    """It is to be run, or runs."""
    FAILING = 1
    """It has failed, and user code is asked what to do."""
    DELIVERING = 2
    """It has succeeded, and what it resulted in is on its way."""
    SUCCEEDED = 3
    FAILED = 4
    REPLACED = 5


NEXT: Final[Mapping[TaskPhase, Mapping[Report, TaskPhase | Reason]]] = {
    TaskPhase.RUNNING: {
        Report.SUCCEEDED: TaskPhase.DELIVERING,  # or SUCCEEDED, where the rules say that there is nothing to deliver
        Report.FAILED: TaskPhase.FAILING,
        Report.DELIVERED: Reason.RUNNING,
        Report.UNDELIVERED: Reason.RUNNING,
        Report.RETRIED: Reason.RUNNING,
        Report.SKIPPED: Reason.RUNNING,
    },
    TaskPhase.FAILING: {
        Report.SUCCEEDED: Reason.ENDED,
        Report.FAILED: Reason.ENDED,
        Report.DELIVERED: Reason.HAS_FAILED,
        Report.UNDELIVERED: Reason.HAS_FAILED,
        Report.RETRIED: TaskPhase.RUNNING,  # or FAILED, where there is a bar to it
        Report.SKIPPED: TaskPhase.FAILED,
    },
    TaskPhase.DELIVERING: {
        Report.SUCCEEDED: Reason.ENDED,
        Report.FAILED: Reason.ENDED,
        Report.DELIVERED: TaskPhase.SUCCEEDED,
        Report.UNDELIVERED: TaskPhase.FAILING,
        Report.RETRIED: Reason.HAS_SUCCEEDED,
        Report.SKIPPED: Reason.HAS_SUCCEEDED,
    },
    TaskPhase.SUCCEEDED: dict.fromkeys(Report, Reason.TASK_SETTLED),
    TaskPhase.FAILED: dict.fromkeys(Report, Reason.TASK_SETTLED),
    TaskPhase.REPLACED: dict.fromkeys(Report, Reason.TASK_REPLACED),
}
"""What a report makes of a task, or why it is ignored. A replacement is heard as a skip is, and makes it `REPLACED`."""

HEARD: Final[Mapping[Report, tuple[TaskPhase, TaskPhase]]] = {
    report: (phase, after)
    for phase, reports in NEXT.items()
    for report, after in reports.items()
    if isinstance(after, TaskPhase)
}
"""The phase in which a task hears a report, there is but one, and the phase after."""


@unique
class Waits(Enum):
    """What a record in flight waits for."""

    ARRANGE = "to be arranged"
    TASKS = "for its tasks"
    DELIVERY = "for its own delivery"
    WINDOW = "for its window"


@final
@attrs.frozen
class RecordStatus:
    """How a record in flight is doing.

    Attributes:
        window: The number of its window.
        waits: What it waits for.
        tally: Of its tasks.
    """

    window: int
    waits: Waits
    tally: Tally

    def __str__(self) -> str:
        return f"in window {self.window}, waits {self.waits.value}: {self.tally}"


@unique
class _Stage(IntEnum):
    """How a window is doing."""

    ARRANGING = 0
    WORKING = 1
    DELIVERING = 2


@final
@attrs.frozen
class _Loan:
    """A record here is also waiting for a task of another window.

    Attributes:
        window: The other window.
        number: The task.
        record: The position of the record here.
        outcome: The phase in which the task was settled; None until it is.
    """

    window: int
    number: int
    record: int
    outcome: TaskPhase | None = None


@final
@attrs.frozen
class _Roll:
    """What a window is made of. It changes only when there are more tasks, or some are tried again.

    Attributes:
        number: Of the window.
        offsets: Its records, in order.
        records: For each task, the positions of the records of its own window that it is for.
        masks: For each record, (low, bits): bit i stands for task low + i, and is set if the task is for the record.
        generations: For each task, how many were replaced on the way to it.
        attempts: For each task, which attempt it is at.
        retried: Bitmap of the tasks that are beyond their first attempt.
        given: Bitmap of the tasks whose result was given.
        lent: Bitmap of the tasks that records of other windows wait for, too.
        is_held: The records are settled with the window, since it has a delivery of its own.
        is_failed: The window could not be arranged.
    """

    number: int
    offsets: tuple[int, ...]
    records: tuple[tuple[int, ...], ...] = ()
    masks: tuple[tuple[int, int], ...] = ()
    generations: tuple[int, ...] = ()
    attempts: tuple[int, ...] = ()
    retried: int = 0
    given: int = 0
    lent: int = 0
    is_held: bool = False
    is_failed: bool = False


_Phases: TypeAlias = tuple[int, ...]
"""For each phase, the bitmap of the tasks in it; each task is in one."""


@final
@attrs.frozen
class _Window:
    """A window in flight.

    Attributes:
        roll: What it is made of.
        stage: How it is doing.
        phases: How its tasks are doing.
        gathered: Bitmap of the records whose tasks are settled, and whose own delivery is not.
        closed: Bitmap of those whose own delivery is. Invariant: closed & gathered == 0.
        loans: The tasks of other windows that records here wait for.
    """

    roll: _Roll
    stage: _Stage = _Stage.ARRANGING
    phases: _Phases = (0,) * len(TaskPhase)
    gathered: int = 0
    closed: int = 0
    loans: tuple[_Loan, ...] = ()

    def __str__(self) -> str:
        shown = f"{_shown(self.roll.offsets)}, {_tally(self)}"
        return f"window {self.roll.number} ({self.stage.name.lower()}): {shown}"


@final
@attrs.frozen(repr=False)
class Fanout:
    """The windows in flight of one partition, in one assignment. A new one has none.

    Attributes:
        opened: How many windows were opened; the next one has this number.
        windows: Those in flight, in order; read them through the functions of this module.
    """

    opened: int = attrs.field(default=0, init=False)
    windows: tuple[_Window, ...] = attrs.field(default=(), init=False)

    def __repr__(self) -> str:
        return f"Fanout({'; '.join([f'{self.opened} windows opened', *map(str, self.windows)])})"


FanoutStep: TypeAlias = Step[Fanout, Output]
"""Where all is ignored, the state is the very same."""


# --- the machine --------------------------------------------------------------------------------------------------------


def step(state: Fanout, event: Event, rules: Rules) -> FanoutStep:
    """What follows from an event.

    Args:
        state: The windows in flight.
        event: What happened.
        rules: What is delivered, and how often something may be tried; the same ones for the life of a state.

    Returns:
        The state after, what to do and what is settled. Whatever of the event does not fit is ignored with its reason.

    Raises:
        Misuse: An argument is of another type.
    """
    _check_state(state)
    check_type(rules, Rules, "a set of rules")
    check_type(event, _EVENTS, "an event of a window")
    if isinstance(event, WindowOpened):
        return _opened(state, event.offsets)
    window = _window(state, event.window)
    if window is None:
        reason = Reason.WINDOW_SETTLED if event.window < state.opened else Reason.NO_WINDOW
        return Step(state, (Ignored(reason, event.window, _named(event)),))
    if isinstance(event, (WindowArranged, ArrangeFailed)):
        if window.stage is not _Stage.ARRANGING:
            return Step(state, (Ignored(Reason.ARRANGED, event.window),))
        return _arranged(state, window, event, rules)
    if window.stage is _Stage.ARRANGING:
        return Step(state, (Ignored(Reason.NOT_ARRANGED, event.window, _named(event)),))
    match event:
        case TasksReported():
            return _reported(state, window, event, rules)
        case TaskReplaced():
            return _replaced(state, window, event, rules)
        case RecordsDelivered():
            return _messages_delivered(state, window, event.offsets)
        case WindowDelivered():
            return _window_delivered(state, window)
        case _:
            assert_never(event)


def _opened(state: Fanout, offsets: tuple[int, ...]) -> FanoutStep:
    low, high = min(offsets, default=0), max(offsets, default=0)
    new = {*offsets}
    for window in state.windows:
        held = window.roll.offsets
        if held[0] <= high and low <= held[-1]:
            new.difference_update(held)
    ignored: tuple[Output, ...] = ()
    if not new or len(new) < len(offsets):
        ignored = _ignored(None, offsets, new, lambda _: Reason.IN_FLIGHT)
        if not new:
            return Step(state, ignored)
    roll = _Roll(state.opened, tuple(sorted(new)))
    opened = _fanout(state.opened + 1, (*state.windows, _Window(roll)))
    return Step(opened, (Arrange(roll.number, roll.offsets), *ignored))


def _arranged(state: Fanout, window: _Window, event: WindowArranged | ArrangeFailed, rules: Rules) -> FanoutStep:
    everyone = range(len(window.roll.offsets))
    roll = evolve(window.roll, masks=(_NO_TASKS,) * len(everyone))
    if isinstance(event, ArrangeFailed):
        roll = evolve(roll, is_failed=True)
        return _settled(state, evolve(window, stage=_Stage.WORKING, roll=roll), 0, rules, everyone)
    roll = evolve(roll, is_held=rules.window_delivery and bool(event.tasks.offsets))
    window = evolve(window, stage=_Stage.WORKING, roll=roll)
    added = _added(state, window, event.tasks, roll.offsets, rules)
    done = _settled(added.state, added.window, added.settled, rules, everyone)
    return Step(done.state, (*added.outputs, *done.commands, *added.ignored))


def _reported(state: Fanout, window: _Window, event: TasksReported, rules: Rules) -> FanoutStep:
    heard, ignored = _heard(window, event.numbers, event.attempt, event.report)
    if not heard:
        return Step(state, ignored)
    if event.report is Report.RETRIED:
        done = _retried(state, window, heard, event.attempt, rules)
        return Step(done.state, (*done.commands, *ignored))
    before, after = HEARD[event.report]
    if after is _DELIVERING and not rules.task_delivery:
        after = _SUCCEEDED
    window = _moved(window, heard, before, after)
    if after is _DELIVERING or after is _FAILING:
        follows = DeliverTasks if after is _DELIVERING else Judge
        told = follows(event.window, tuple(_ones(heard)), event.attempt)
        return Step(_put(state, window), (told, *ignored))
    done = _settled(state, window, heard, rules)
    return Step(done.state, (*done.commands, *ignored)) if ignored else done


def _retried(state: Fanout, window: _Window, heard: int, attempt: int, rules: Rules) -> FanoutStep:
    roll = window.roll
    given = heard & roll.given
    again = heard ^ given if attempt <= rules.retries_max else 0
    spent = heard ^ given ^ again
    outputs: list[Output] = []
    if again:
        numbers = tuple(_ones(again))
        attempts = list(roll.attempts)
        for number in numbers:
            attempts[number] = attempt + 1
        roll = evolve(roll, attempts=tuple(attempts), retried=roll.retried | again)
        window = _moved(evolve(window, roll=roll), again, _FAILING, _RUNNING)
        outputs.append(Start(roll.number, numbers, attempt + 1))
    if given:
        outputs.append(TaskGivenUp(roll.number, tuple(_ones(given)), Bar.GIVEN))
    if spent:
        outputs.append(TaskGivenUp(roll.number, tuple(_ones(spent)), Bar.RETRIES))
    barred = given | spent
    done = _settled(state, _moved(window, barred, _FAILING, _FAILED), barred, rules)
    return Step(done.state, (*outputs, *done.commands))


def _replaced(state: Fanout, window: _Window, event: TaskReplaced, rules: Rules) -> FanoutStep:
    number, tasks = event.number, event.tasks
    heard, ignored = _heard(window, (number,), event.attempt, Report.SKIPPED)
    if not heard:
        return Step(state, ignored)
    if not tasks.offsets or window.roll.generations[number] >= rules.generations_max:
        bar = Bar.GENERATIONS if tasks.offsets else Bar.NO_REPLACEMENT
        done = _settled(state, _moved(window, heard, _FAILING, _FAILED), heard, rules)
        return Step(done.state, (TaskGivenUp(event.window, (number,), bar), *done.commands))
    heirs = _heirs(state, window, number)
    left = {*heirs}.difference(chain.from_iterable(tasks.offsets))
    if left:  # each of these waits for all replacements, as none of them lists it
        tasks = evolve(tasks, offsets=tuple((*each, *sorted(left)) for each in tasks.offsets))
    added = _added(state, window, tasks, heirs, rules, replaced=number)
    done = _settled(added.state, _moved(added.window, heard, _FAILING, _REPLACED), heard | added.settled, rules)
    return Step(done.state, (*added.outputs, *done.commands, *added.ignored))


def _messages_delivered(state: Fanout, window: _Window, offsets: tuple[int, ...]) -> FanoutStep:
    heard = window.gathered
    if offsets != window.roll.offsets:  # else it is about all of them, as most are
        places = [_place(window.roll, offset) for offset in offsets]
        heard &= _bits({place for place in places if place is not None})
    ignored: tuple[Output, ...] = ()
    if not heard or heard.bit_count() < len(offsets):

        def why(offset: int) -> Reason:
            place = _place(window.roll, offset)
            if place is None:
                return Reason.NO_MESSAGE
            return Reason.DELIVERED if window.closed >> place & 1 else Reason.NOT_DUE

        ignored = _ignored(window.roll.number, offsets, _picked(window.roll.offsets, heard), why)
        if not heard:
            return Step(state, ignored)
    done = _closed(state, window, window.gathered ^ heard, heard)
    return Step(done.state, (*done.commands, *ignored)) if ignored else done


def _window_delivered(state: Fanout, window: _Window) -> FanoutStep:
    number = window.roll.number
    if window.stage is not _Stage.DELIVERING:
        return Step(state, (Ignored(Reason.NOT_DUE, number),))
    settled = (RecordsSettled(number, window.roll.offsets), WindowSettled(number, _tally(window)))
    return Step(_without(state, number), settled)


# --- what is heard ------------------------------------------------------------------------------------------------------


def _heard(window: _Window, numbers: tuple[int, ...], attempt: int, report: Report) -> tuple[int, tuple[Output, ...]]:
    """The bitmap of the tasks that hear the report, and why the others do not."""
    roll = window.roll
    heard = _in_phase(window, numbers, attempt, HEARD[report][0])
    if heard and heard.bit_count() == len(numbers):
        return heard, ()
    return heard, _ignored(roll.number, numbers, _ones(heard), lambda each: _why(window, each, attempt, report))


def _in_phase(window: _Window, numbers: tuple[int, ...], attempt: int, phase: TaskPhase) -> int:
    """The bitmap of those of the tasks that are in this phase, at this attempt."""
    roll = window.roll
    known = numbers
    if numbers and max(numbers) >= len(roll.records):
        known = tuple(number for number in numbers if number < len(roll.records))
    bits = _bits(known) & window.phases[phase]
    if attempt == 1:
        return bits & ~roll.retried
    return _bits([number for number in _ones(bits) if roll.attempts[number] == attempt])


def _why(window: _Window, number: int, attempt: int, report: Report) -> Reason:
    """Why the task does not hear the report of that attempt."""
    if number >= len(window.roll.records):
        return Reason.NO_RUN
    phase = _phase(window, number)
    at = window.roll.attempts[number]
    if phase in _SETTLED or attempt == at:
        reason = NEXT[phase][report]
        assert isinstance(reason, Reason), f"{phase} hears {report}"
        return reason
    return Reason.EARLIER_ATTEMPT if attempt < at else Reason.NO_RUN


def _ignored(
    window: int | None, named: Sequence[int], heard: Iterable[int], why: Callable[[int], Reason]
) -> tuple[Output, ...]:
    """What was named and not heard, by reason; what was heard is ignored when it is named again."""
    if not named:
        return (Ignored(Reason.NOTHING, window),)
    left, known = {*heard}, {*heard}
    ignored: dict[Reason, list[int]] = {}
    for each in named:
        if each in left:
            left.discard(each)
        else:
            ignored.setdefault(Reason.TWICE if each in known else why(each), []).append(each)
    return tuple(Ignored(reason, window, tuple(which)) for reason, which in ignored.items())


def _named(event: Event) -> tuple[int, ...]:
    match event:
        case TasksReported():
            return event.numbers
        case TaskReplaced():
            return (event.number,)
        case RecordsDelivered() | WindowOpened():
            return event.offsets
        case _:
            return ()


# --- what follows -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class _Added:
    """What came of asking for tasks: which of them are settled at birth, and which offsets were listed in vain."""

    state: Fanout
    window: _Window
    outputs: tuple[Output, ...]
    settled: int
    ignored: tuple[Output, ...]


def _added(
    state: Fanout, window: _Window, tasks: Tasks, heirs: tuple[int, ...], rules: Rules, *, replaced: int | None = None
) -> _Added:
    """The window with these tasks; one that lists no record that waits is for all the heirs."""
    roll = window.roll
    first, count = len(roll.records), len(tasks.offsets)
    waiting = _everyone(roll) ^ (window.gathered | window.closed)
    places = dict(zip(_picked(roll.offsets, waiting), _ones(waiting), strict=True))
    records: list[tuple[int, ...]] = []
    masks = list(roll.masks)
    more: dict[int, list[int]] = {}
    loans: dict[int, list[_Loan]] = {}
    vain: dict[int, None] = {}
    alone = _one_each(tasks.offsets, places) if not any(bits for _, bits in masks) else None
    if alone is not None:
        records = [(place,) for place in alone]
        for task, place in enumerate(alone, first):
            masks[place] = (task, 1)
    for task, offsets in () if alone is not None else enumerate(tasks.offsets, first):
        own: tuple[int, ...]
        if len(offsets) == 1 and offsets[0] in places:
            own = (places[offsets[0]],)
        else:
            own, others, lost = _targets(state, places, offsets)
            vain |= dict.fromkeys(lost)
            if not own and not others:
                own, others, _ = _targets(state, places, heirs)
            for home, place in others:
                loans.setdefault(home, []).append(_Loan(roll.number, task, place))
        records.append(own)
        for place in own:
            if not masks[place][1]:
                masks[place] = (task, 1)
            else:
                more.setdefault(place, []).append(task)
    for place, later in more.items():
        low, bits = masks[place]
        masks[place] = (low, bits | _bits([task - low for task in later]))
    for home, lent in loans.items():
        other = _window(state, home)
        assert other is not None, f"window {home} is in flight"
        state = _put(state, evolve(other, loans=(*other.loans, *lent)))
    good, bad = _bits(tasks.succeeded) << first, _bits(tasks.failed) << first
    run = ((1 << count) - 1 << first) ^ good ^ bad
    phases = list(window.phases)
    phases[_RUNNING] |= run
    phases[_FAILING] |= bad
    phases[_DELIVERING if rules.task_delivery else _SUCCEEDED] |= good
    roll = evolve(
        roll,
        records=(*roll.records, *records),
        masks=tuple(masks),
        generations=roll.generations + (0 if replaced is None else roll.generations[replaced] + 1,) * count,
        attempts=roll.attempts + (1,) * count,
        given=roll.given | good | bad,
        lent=roll.lent | _bits({loan.number for lent in loans.values() for loan in lent}),
    )
    outputs: list[Output] = []
    if run:
        outputs.append(Start(roll.number, tuple(_ones(run)), 1, replaced))
    if bad:
        outputs.append(Judge(roll.number, tuple(_ones(bad)), 1))
    if good and rules.task_delivery:
        outputs.append(DeliverTasks(roll.number, tuple(_ones(good)), 1))
    ignored = (Ignored(Reason.NOT_WAITING, roll.number, tuple(vain)),) if vain else ()
    settled = 0 if rules.task_delivery else good
    window = evolve(window, roll=roll, phases=tuple(phases))
    return _Added(state, window, tuple(outputs), settled, ignored)


def _one_each(tasks: tuple[tuple[int, ...], ...], places: Mapping[int, int]) -> list[int] | None:
    """The positions of the records, if each task is for one that waits here and no two for the same, as most are."""
    found = [places.get(offsets[0], -1) if len(offsets) == 1 else -1 for offsets in tasks]
    return found if -1 not in found and len({*found}) == len(found) else None


def _targets(
    state: Fanout, places: Mapping[int, int], offsets: Iterable[int]
) -> tuple[tuple[int, ...], list[tuple[int, int]], list[int]]:
    """Which records these are: positions among those that wait here, (window, position) of others, and offsets of none."""
    own: list[int] = []
    others: list[tuple[int, int]] = []
    lost: list[int] = []
    for offset in dict.fromkeys(offsets):
        here = places.get(offset)
        if here is not None:
            own.append(here)
            continue
        for other in state.windows:
            place = _place(other.roll, offset)
            if place is not None and not (other.gathered | other.closed) >> place & 1:
                others.append((other.roll.number, place))
                break
        else:
            lost.append(offset)
    return tuple(own), others, lost


def _heirs(state: Fanout, window: _Window, number: int) -> tuple[int, ...]:
    """The offsets of the records that wait for the task, here and elsewhere."""
    roll = window.roll
    here = (roll.offsets[place] for place in roll.records[number])
    elsewhere = (
        other.roll.offsets[loan.record]
        for other in state.windows
        for loan in other.loans
        if (loan.window, loan.number) == (roll.number, number)
    )
    return (*here, *elsewhere)


def _settled(
    state: Fanout, window: _Window, bits: int, rules: Rules, touched: Iterable[int] | None = None
) -> FanoutStep:
    """What follows now that these tasks of the window are settled; `touched` are the records that they are for."""
    roll = window.roll
    if touched is None:
        touched = {place for number in _ones(bits) for place in roll.records[number]} if _open(window) else ()
    done = _gathered(state, window, touched, rules)
    if not bits & roll.lent:
        return done
    state, outputs = done.state, list(done.commands)
    for other in state.windows:
        repaid = {
            loan: evolve(loan, outcome=_phase(window, loan.number))
            for loan in other.loans
            if loan.window == roll.number and bits >> loan.number & 1
        }
        if repaid:
            paid = evolve(other, loans=tuple(repaid.get(loan, loan) for loan in other.loans))
            done = _gathered(state, paid, [loan.record for loan in repaid], rules)
            state = done.state
            outputs += done.commands
    return Step(state, tuple(outputs))


def _gathered(state: Fanout, window: _Window, touched: Iterable[int], rules: Rules) -> FanoutStep:
    """What follows for the window and those of these records whose tasks are settled now."""
    if window.stage is _Stage.ARRANGING:
        return Step(_put(state, window))
    roll = window.roll
    ready = _everyone(roll) ^ (window.gathered | window.closed)
    unsettled = _open(window)
    if unsettled:
        masks = roll.masks
        ready &= _bits([place for place in touched if not unsettled >> masks[place][0] & masks[place][1]])
    if window.loans:
        ready &= ~_bits({loan.record for loan in window.loans if loan.outcome is None})
    failed = _failures(window, ready)
    due = ready if rules.record_delivery else failed
    done = _closed(state, window, window.gathered | due, ready ^ due)
    if not due:
        return done
    deliver = DeliverRecords(roll.number, _picked(roll.offsets, due), _picked(roll.offsets, failed))
    return Step(done.state, (deliver, *done.commands))


def _closed(state: Fanout, window: _Window, gathered: int, newly: int) -> FanoutStep:
    """What follows now that nothing is left to deliver of these records, and these others are gathered."""
    roll, phases = window.roll, window.phases
    closed = window.closed | newly
    settled: tuple[Output, ...] = ()
    if newly and not roll.is_held:
        settled = (RecordsSettled(roll.number, _picked(roll.offsets, newly)),)
    if closed != _everyone(roll) or _open(window):
        return Step(_put(state, _Window(roll, window.stage, phases, gathered, closed, window.loans)), settled)
    if roll.is_held:
        window = _Window(roll, _Stage.DELIVERING, phases, gathered, closed, window.loans)
        return Step(_put(state, window), (DeliverWindow(roll.number, _tally(window)),))
    return Step(_without(state, roll.number), (*settled, WindowSettled(roll.number, _tally(window))))


def _failures(window: _Window, ready: int) -> int:
    """Bitmap of those of these records that somebody has to answer for."""
    if window.roll.is_failed:
        return ready
    bits = 0
    failed = window.phases[_FAILED]
    if failed:
        masks = window.roll.masks
        bits = _bits([place for place in _ones(ready) if failed >> masks[place][0] & masks[place][1]])
    if window.loans:
        bits |= _bits({loan.record for loan in window.loans if loan.outcome is _FAILED})
    return bits & ready


# --- what is asked ------------------------------------------------------------------------------------------------------


def records(state: Fanout) -> tuple[int, ...]:
    """The offsets of the records in flight, window by window.

    Args:
        state: The windows in flight.

    Raises:
        Misuse: It is no state of windows.
    """
    _check_state(state)
    return tuple(chain.from_iterable(_picked(window.roll.offsets, _unsettled(window)) for window in state.windows))


def load(state: Fanout, active: Collection[int]) -> Load:
    """Where the records in flight are that anything is under way for, each in one place.

    A record with several tasks is where the one is that is furthest from its end.

    Args:
        state: The windows in flight.
        active: The numbers of the windows in which something is under way. A record of another one counts if it waits
            for a task of these.

    Raises:
        Misuse: It is no state of windows.
    """
    _check_state(state)
    arranging = delivering = 0
    waiting = dict.fromkeys((_RUNNING, _FAILING, _DELIVERING), 0)
    for window in state.windows:
        lenders = {loan.window for loan in window.loans if loan.outcome is None}
        if window.roll.number not in active and lenders.isdisjoint(active):
            continue
        if window.stage is _Stage.ARRANGING:
            arranging += len(window.roll.offsets)
            continue
        left = _everyone(window.roll) ^ (window.gathered | window.closed)
        delivering += _unsettled(window).bit_count() - left.bit_count()
        if not lenders and not window.phases[_FAILING] | window.phases[_DELIVERING]:
            waiting[_RUNNING] += left.bit_count()
            continue
        for place in _ones(left):
            waiting[min(_open_phases(state, window, place))] += 1
    return Load(
        arranging=arranging,
        running=waiting[_RUNNING],
        in_hooks=waiting[_FAILING],
        delivering=waiting[_DELIVERING] + delivering,
    )


def _open_phases(state: Fanout, window: _Window, place: int) -> Iterator[TaskPhase]:
    """The phases of the tasks that the record waits for, those of other windows included."""
    low, bits = window.roll.masks[place]
    for phase in (_RUNNING, _FAILING, _DELIVERING):
        if window.phases[phase] >> low & bits:
            yield phase
    for loan in window.loans:
        if loan.record == place and loan.outcome is None:
            lender = _window(state, loan.window)
            assert lender is not None, "it is in flight while one of its tasks is open"
            yield _phase(lender, loan.number)


Task: TypeAlias = Arrange | Start | Judge | DeliverTasks | DeliverRecords | DeliverWindow
"""What somebody is asked for."""


def offsets_of(state: Fanout, task: Task) -> tuple[int, ...]:
    """The offsets of the records that a task is about, in order.

    Args:
        state: The windows in flight.
        task: What follows from an event.

    Raises:
        Misuse: It is no state of windows, or nothing that is asked for.
    """
    _check_state(state)
    check_type(task, get_args(Task), "what somebody is asked for")
    if isinstance(task, (Arrange, DeliverRecords)):
        return task.offsets
    window = _window(state, task.window)
    if window is None:
        return ()
    if isinstance(task, DeliverWindow):
        return window.roll.offsets
    tasks = window.roll.records
    numbers = [number for number in task.numbers if number < len(tasks)]
    own = _picked(window.roll.offsets, _bits({place for number in numbers for place in tasks[number]}))
    if not _bits(numbers) & window.roll.lent:
        return own
    return tuple(sorted({*own, *chain.from_iterable(_heirs(state, window, number) for number in numbers)}))


def outstanding(state: Fanout, task: Task) -> int:
    """Of how many parts of it (tasks, records, or a window) nothing was heard yet.

    Args:
        state: The windows in flight.
        task: What follows from an event.

    Raises:
        Misuse: It is no state of windows, or nothing that is asked for.
    """
    _check_state(state)
    check_type(task, get_args(Task), "what somebody is asked for")
    window = _window(state, task.window)
    if window is None:
        return 0
    match task:
        case Arrange():
            return int(window.stage is _Stage.ARRANGING)
        case DeliverWindow():
            return int(window.stage is _Stage.DELIVERING)
        case DeliverRecords(_, offsets):
            if offsets == window.roll.offsets:
                return window.gathered.bit_count()
            places = [_place(window.roll, offset) for offset in offsets]
            return (window.gathered & _bits({place for place in places if place is not None})).bit_count()
        case Start() | Judge() | DeliverTasks():
            return _in_phase(window, task.numbers, task.attempt, _ASKED_IN[type(task)]).bit_count()
        case _:
            assert_never(task)


def in_flight(state: Fanout) -> tuple[TaskId, ...]:
    """The tasks that are not settled, in order: what `arrange` may want to know of the windows before its own.

    Args:
        state: The windows in flight.

    Raises:
        Misuse: It is no state of windows.
    """
    _check_state(state)
    return tuple((window.roll.number, number) for window in state.windows for number in _ones(_open(window)))


def record_status(state: Fanout, offset: int) -> RecordStatus | None:
    """How a record is doing; None if it is not in flight: never opened, or settled.

    Args:
        state: The windows in flight.
        offset: The offset of the record.

    Raises:
        Misuse: It is no state of windows, or no offset.
    """
    _check_state(state)
    _whole((offset,), "offsets", OFFSET_MAX)
    for window in state.windows:
        place = _place(window.roll, offset)
        if place is not None and (window.roll.is_held or not window.closed >> place & 1):
            return RecordStatus(window.roll.number, _waits(window, place), _message_tally(window, place))
    return None


def _waits(window: _Window, place: int) -> Waits:
    if window.stage is _Stage.ARRANGING:
        return Waits.ARRANGE
    if window.closed >> place & 1:
        return Waits.WINDOW
    return Waits.DELIVERY if window.gathered >> place & 1 else Waits.TASKS


def _tally(window: _Window) -> Tally:
    """Of the tasks of the window."""
    phases = window.phases
    return Tally(len(window.roll.records), *(phases[phase].bit_count() for phase in _SETTLED))


def _message_tally(window: _Window, place: int) -> Tally:
    """Of the tasks that are for the record, those of other windows included."""
    low, bits = window.roll.masks[place] if window.roll.masks else (0, 0)
    loans = [loan.outcome for loan in window.loans if loan.record == place]
    settled = ((window.phases[phase] >> low & bits).bit_count() + loans.count(phase) for phase in _SETTLED)
    return Tally(bits.bit_count() + len(loans), *settled)


# --- helpers ------------------------------------------------------------------------------------------------------------

_EVENTS: Final = get_args(Event)
_RUNNING, _FAILING, _DELIVERING, _SUCCEEDED, _FAILED, _REPLACED = TaskPhase
_SETTLED: Final = (_SUCCEEDED, _FAILED, _REPLACED)
_NO_TASKS: Final = (0, 0)
_ASKED_IN: Final = {Start: _RUNNING, Judge: _FAILING, DeliverTasks: _DELIVERING}
"""The phase of the tasks that somebody is asked about."""


def _check_state(state: object) -> None:
    if type(state) is not Fanout:
        raise Misuse(f"a {type(state).__name__} is no state of windows", todo="begin with Fanout()")


def _check_runs(runs: Start | Judge | DeliverTasks | TasksReported) -> None:
    _check_window(runs.window)
    _whole(runs.numbers, "numbers of tasks", NUMBER_MAX)
    check_int(runs.attempt, "the number of an attempt", 1)


def _check_window(window: object) -> None:
    check_int(window, "the number of a window", 0)


def _whole(batch: object, what: str, most: int) -> None:
    """Raise Misuse unless it is a tuple of integers, no bools, from 0 to `most`. It may be long, so it is not shown."""
    if type(batch) is not tuple or not {*map(type, batch)} <= {int}:
        raise Misuse(f"these are no {what}", why="they are integers, in a tuple")
    if batch and (min(batch) < 0 or max(batch) > most):
        raise Misuse(f"these are no {what}", why=f"they are from 0 to {most}")


_NUMBER: Final = attrgetter("roll.number")


def _window(state: Fanout, number: int) -> _Window | None:
    """The window of that number, if it is in flight."""
    at = bisect_left(state.windows, number, key=_NUMBER)
    if at < len(state.windows) and state.windows[at].roll.number == number:
        return state.windows[at]
    return None


def _put(state: Fanout, window: _Window) -> Fanout:
    """The state with the window in the place of the one of the same number."""
    at = bisect_left(state.windows, window.roll.number, key=_NUMBER)
    return _fanout(state.opened, (*state.windows[:at], window, *state.windows[at + 1 :]))


def _without(state: Fanout, number: int) -> Fanout:
    return _fanout(state.opened, tuple(window for window in state.windows if window.roll.number != number))


_new: Final = object.__new__
_set_opened: Final = vars(Fanout)["opened"].__set__
_set_windows: Final = vars(Fanout)["windows"].__set__


def _fanout(opened: int, windows: tuple[_Window, ...]) -> Fanout:
    """A state that its constructor does not make, since nobody else may."""
    state = _new(Fanout)
    _set_opened(state, opened)
    _set_windows(state, windows)
    return state


def _place(roll: _Roll, offset: int) -> int | None:
    """The position of the record in its window."""
    at = bisect_left(roll.offsets, offset)
    return at if at < len(roll.offsets) and roll.offsets[at] == offset else None


def _everyone(roll: _Roll) -> int:
    return (1 << len(roll.offsets)) - 1


def _unsettled(window: _Window) -> int:
    """Bitmap of the records that are not settled."""
    return _everyone(window.roll) if window.roll.is_held else _everyone(window.roll) ^ window.closed


def _open(window: _Window) -> int:
    """Bitmap of the tasks that are not settled."""
    running, failing, delivering, *_ = window.phases
    return running | failing | delivering


def _phase(window: _Window, number: int) -> TaskPhase:
    return next(phase for phase in TaskPhase if window.phases[phase] >> number & 1)


def _moved(window: _Window, bits: int, before: TaskPhase, after: TaskPhase) -> _Window:
    """The window with these tasks in another phase."""
    phases = list(window.phases)
    phases[before] ^= bits
    phases[after] ^= bits
    return _Window(window.roll, window.stage, tuple(phases), window.gathered, window.closed, window.loans)


def _bits(numbers: Collection[int]) -> int:
    """The bitmap of these numbers."""
    if len(numbers) < _FEW:
        bits = 0
        for number in numbers:
            bits |= 1 << number
        return bits
    low, high = min(numbers), max(numbers)
    if high - low + 1 == len({*numbers}):  # without gaps, as most are
        return (1 << high - low + 1) - 1 << low
    octets = bytearray((high >> 3) + 1)
    for number in numbers:
        octets[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(octets, "little")


def _ones(bits: int) -> list[int]:
    """The numbers that are set in the bitmap, in order."""
    if not bits & bits + 1:  # without gaps from 0 on
        return [*range(bits.bit_length())]
    if bits.bit_count() >= _FEW:
        return [number for number, bit in enumerate(f"{bits:b}"[::-1]) if bit == "1"]
    numbers: list[int] = []
    while bits:
        lowest = bits & -bits
        numbers.append(lowest.bit_length() - 1)
        bits ^= lowest
    return numbers


_FEW: Final = 8
"""Below it, one by one is cheaper."""


def _picked(offsets: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Those of the offsets whose positions are set."""
    return offsets if bits.bit_count() == len(offsets) else tuple([offsets[place] for place in _ones(bits)])


def _runs(runs: Start | Judge | DeliverTasks) -> str:
    return f"{runs.window}/{_shown(runs.numbers)} (attempt {runs.attempt})"


def _shown(numbers: Sequence[int]) -> str:
    """For people: `3-5 8`."""
    starts = [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number - 1]
    ends = [number for at, number in enumerate(numbers, 1) if at == len(numbers) or numbers[at] != number + 1]
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
