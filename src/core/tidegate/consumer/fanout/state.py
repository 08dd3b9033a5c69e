"""The state of windows: which phase each task is in, and what each record waits for, as bitmaps.

A window numbers its tasks and its records from 0 on, and a bitmap is an integer whose bit i stands for the task, or the
record, of number i. A batch of reports moves its tasks from one phase to another in one operation on integers, whatever
its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer._offsets import ranges
from tidegate.consumer.fanout.vocabulary import Output, Reason, Report, Tally
from tidegate.model.reducer import Step


@unique
class TaskPhase(IntEnum):
    """How a task is doing. The number is its place in the bitmaps of a window.

    The order means how far it is from its end, the furthest first: a record of several tasks waits for the least of them.
    """

    RUNNING = 0
    """It is to be run, or runs."""
    FAILING = 1
    """It has failed, and user code is asked what to do."""
    DELIVERING = 2
    """It has succeeded, and what it resulted in is on its way."""
    SUCCEEDED = 3
    FAILED = 4
    REPLACED = 5


SETTLED: Final = (TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.REPLACED)

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
"""What a report makes of a task, or why it is ignored. A replacement counts as a skip does, but makes it `REPLACED`."""

MOVES: Final[Mapping[Report, tuple[TaskPhase, TaskPhase]]] = {
    report: (phase, after)
    for phase, reports in NEXT.items()
    for report, after in reports.items()
    if isinstance(after, TaskPhase)
}
"""The one phase in which a report changes a task, and the phase after."""


@unique
class WindowStage(IntEnum):
    """How a window is doing."""

    ARRANGING = 0
    WORKING = 1
    DELIVERING = 2


@final
@attrs.frozen
class Loan:
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
class Roll:
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
        settles_as_one: The records are settled with the window, since it has a delivery of its own.
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
    settles_as_one: bool = False
    is_failed: bool = False

    @property
    def everyone(self) -> int:
        """Bitmap of all its records."""
        return (1 << len(self.offsets)) - 1


_Phases: TypeAlias = tuple[int, ...]
"""For each phase, the bitmap of the tasks in it; each task is in one."""


@final
@attrs.frozen
class Window:
    """A window in flight.

    Attributes:
        roll: What it is made of.
        stage: How it is doing.
        phases: How its tasks are doing.
        delivering: Bitmap of the records whose tasks are settled, and whose own delivery is not.
        delivered: Bitmap of those whose own delivery is, or that have none. Invariant: delivered & delivering == 0.
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
        """Bitmap of the tasks that are not settled."""
        running, failing, delivering, *_ = self.phases
        return running | failing | delivering

    @property
    def waiting(self) -> int:
        """Bitmap of the records that wait for tasks."""
        return self.roll.everyone ^ (self.delivering | self.delivered)

    @property
    def unsettled(self) -> int:
        """Bitmap of the records that are not settled."""
        return self.roll.everyone if self.roll.settles_as_one else self.roll.everyone ^ self.delivered

    @property
    def tally(self) -> Tally:
        """Of its tasks."""
        return Tally(len(self.roll.records), *(self.phases[phase].bit_count() for phase in SETTLED))


@final
@attrs.frozen(repr=False)
class Fanout:
    """The windows in flight of one partition, in one assignment. A new one has none.

    Attributes:
        opened: How many windows were opened; the next one has this number.
        windows: Those in flight, in order; read them through the functions of `queries`.
    """

    opened: int = 0
    windows: tuple[Window, ...] = ()

    def __repr__(self) -> str:
        return f"Fanout({'; '.join([f'{self.opened} windows opened', *map(str, self.windows)])})"


FanoutStep: TypeAlias = Step[Fanout, Output]
"""Where all is ignored, the state is the very same."""
