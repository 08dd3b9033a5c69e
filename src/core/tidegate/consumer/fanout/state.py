"""The state of windows as bitmaps: the phase of each task, and what each record waits for.

A window numbers its tasks and its records from 0. Bit i of a bitmap is the task, or the record, of
number i. One operation on integers moves a whole batch of tasks from one phase to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.fanout.vocabulary import Output, Reason, Report, Tally
from tidegate.consumer.offsets._offsets import ranges
from tidegate.model.reducer import Step


@unique
class TaskPhase(IntEnum):
    """The phase of a task. The number is the index of its bitmap in a window.

    The order is the distance from the end, the furthest first: a record with several tasks waits
    for the smallest.
    """

    RUNNING = 0
    """Waiting to run, or running."""
    FAILING = 1
    """Failed; user code decides what follows."""
    DELIVERING = 2
    """Succeeded; its result is being delivered."""
    SUCCEEDED = 3
    FAILED = 4
    REPLACED = 5


SETTLED: Final = (TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.REPLACED)

NEXT: Final[Mapping[TaskPhase, Mapping[Report, TaskPhase | Reason]]] = {
    TaskPhase.RUNNING: {
        Report.SUCCEEDED: TaskPhase.DELIVERING,  # or SUCCEEDED, if the rules have no task delivery
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
        Report.RETRIED: TaskPhase.RUNNING,  # or FAILED, where a `Bar` applies
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
"""The phase after a report, or the reason to ignore it. A replacement counts as a skip, but ends in
`REPLACED`.
"""

MOVES: Final[Mapping[Report, tuple[TaskPhase, TaskPhase]]] = {
    report: (phase, after)
    for phase, reports in NEXT.items()
    for report, after in reports.items()
    if isinstance(after, TaskPhase)
}
"""For each report, the one phase in which it changes a task, and the phase after."""


@unique
class WindowStage(IntEnum):
    """The stage of a window."""

    ARRANGING = 0
    WORKING = 1
    DELIVERING = 2


@final
@attrs.frozen
class Loan:
    """A record of this window waits for a task of another window.

    Attributes:
        window: The number of the other window.
        number: The number of the task there.
        record: The position of the record here.
        outcome: The phase in which the task was settled; None until then.
    """

    window: int
    number: int
    record: int
    outcome: TaskPhase | None = None


@final
@attrs.frozen
class Roll:
    """The tasks and records of a window. It changes only when tasks are added or retried.

    Attributes:
        number: The number of the window.
        offsets: The offsets of its records, in order.
        records: For each task, the positions of its records in this window.
        masks: For each record, (low, bits): bit i is task low + i, and is set if the task is for
            the record.
        generations: For each task, the number of replacements that led to it.
        attempts: For each task, its current attempt.
        retried: Bitmap of the tasks beyond their first attempt.
        given: Bitmap of the tasks with a given result.
        lent: Bitmap of the tasks that records of other windows wait for, too.
        settles_as_one: Whether the records are settled with the window, because it has a delivery
            of its own.
        is_failed: Whether the window could not be arranged.
        is_one_each: Whether task i is the only one of record i; follows from `records`.
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
    settles_as_one: bool = False
    is_failed: bool = False
    is_one_each: bool = attrs.field(default=False, eq=False, repr=False)

    @property
    def everyone(self) -> int:
        """Bitmap of all its records."""
        return (1 << len(self.offsets)) - 1


_Phases: TypeAlias = tuple[int, ...]
"""For each phase, the bitmap of its tasks; each task is in one phase."""


@final
@attrs.frozen
class Window:
    """A window in flight.

    Attributes:
        roll: Its tasks and records.
        stage: Its stage.
        phases: The phases of its tasks.
        delivering: Bitmap of the records whose tasks are settled, but not their own delivery.
        delivered: Bitmap of the records whose own delivery is settled, or that have none.
            Invariant: delivered & delivering == 0.
        loans: The tasks of other windows that records here wait for.
    """

    roll: Roll
    stage: WindowStage = WindowStage.ARRANGING
    phases: _Phases = (0,) * len(TaskPhase)
    delivering: int = 0
    delivered: int = 0
    loans: tuple[Loan, ...] = ()

    def __str__(self) -> str:
        shown = f"{ranges(self.roll.offsets)}, {self.tally}"
        return f"window {self.roll.number} ({self.stage.name.lower()}): {shown}"

    @property
    def open_tasks(self) -> int:
        """Bitmap of the unsettled tasks."""
        running, failing, delivering, *_ = self.phases
        return running | failing | delivering

    @property
    def waiting(self) -> int:
        """Bitmap of the records that wait for tasks."""
        return self.roll.everyone ^ (self.delivering | self.delivered)

    @property
    def unsettled(self) -> int:
        """Bitmap of the unsettled records."""
        return self.roll.everyone if self.roll.settles_as_one else self.roll.everyone ^ self.delivered

    @property
    def tally(self) -> Tally:
        """The tally of its tasks."""
        return Tally(len(self.roll.records), *(self.phases[phase].bit_count() for phase in SETTLED))


@final
@attrs.frozen(repr=False)
class Fanout:
    """The windows in flight of one partition in one assignment. A new one has none.

    Attributes:
        opened: The number of windows opened so far, and the number of the next one.
        windows: The windows in flight, in order. Read them through the functions of `queries`.
    """

    opened: int = 0
    windows: tuple[Window, ...] = ()

    def __repr__(self) -> str:
        return f"Fanout({'; '.join([f'{self.opened} windows opened', *map(str, self.windows)])})"


FanoutStep: TypeAlias = Step[Fanout, Output]
"""If the whole event is ignored, the state is the same object."""
