"""The payloads of the windows in work: records, tasks by number, results, outputs and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tidegate.consumer.fanout import TaskReplaced, WindowArranged
from tidegate.consumer.partition.in_flight_windows import Windowed
from tidegate.consumer.partition.partition import Owned, Phase
from tidegate.consumer.protocol.commands import Assigned, Event, Lost, Revoked, Work, WorkReported
from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.worker import ShutdownEvent
from tidegate.model.records import TopicPartition
from tidegate.pipeline.effects import Hook
from tidegate.pipeline.tasks import tasks_after
from tidegate_adapters.kafka.producer import Failed
from tidegate_adapters.pipeline.values import Result, Task
from tidegate_adapters.sinks.outputs import Output


@final
class WindowPayloads:
    """The payloads of a window in work.

    Attributes:
        records: By offset, what the hooks get of each record.
        undecodable: The records that cannot be decoded.
        tasks: The tasks by number; None for one that stands for a failed record.
        arranged: The tasks that arrange has returned so far, before the window has them.
        replacing: The tasks that replace one, by its number, before the window has them.
        results: The last result of each task, by number.
        outputs: What hooks returned, by hook and subject.
        failures: Why each failed record has failed.
        failed_outputs: How often each output has failed, and why.
    """

    __slots__ = (
        "arranged", "failed_outputs", "failures", "outputs", "records", "replacing", "results", "tasks", "undecodable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.records: dict[int, Any] = {}
        self.undecodable: set[int] = set()
        self.tasks: tuple[Task | None, ...] = ()
        self.arranged: list[Task] = []
        self.replacing: dict[int, tuple[Task, ...]] = {}
        self.results: dict[int, Result] = {}
        self.outputs: dict[tuple[Hook, int], Sequence[Output]] = {}
        self.failures: dict[int, Failed] = {}
        self.failed_outputs: dict[tuple[Hook, int, int], tuple[int, BaseException]] = {}


@final
class Windows:
    """Those of a member, by partition, generation and number.

    Args:
        notify: Called with "assigned" or "revoked" and a partition.
        stopped: Called with a partition that has stopped and the first failed offset, perhaps again.
    """

    def __init__(
        self, notify: Callable[[str, TopicPartition], None], stopped: Callable[[TopicPartition, int], None]
    ) -> None:
        self._notify, self._stopped = notify, stopped
        self._windows: dict[tuple[TopicPartition, int], dict[int, WindowPayloads]] = {}

    def follow(self, event: ShutdownEvent, state: ConsumerState) -> None:
        """Number the tasks that a window has got, and forget windows that are settled or have gone."""
        for each in getattr(event, "events", (event,)):
            if not isinstance(each, Event):
                continue
            part = state[each.partition]
            generation = part.generation if isinstance(part, Owned) else None
            for key in [key for key in self._windows if key[0] == each.partition and key[1] != generation]:
                del self._windows[key]
            if isinstance(each, (Assigned, Revoked, Lost)):
                self._notify("assigned" if isinstance(each, Assigned) else "revoked", each.partition)
            elif isinstance(each, WorkReported):
                self._follow_report(each, state)
            if isinstance(part, Owned) and part.phase is Phase.STOPPED and part.failed:
                self._stopped(each.partition, part.failed[0])

    def _follow_report(self, event: WorkReported, state: ConsumerState) -> None:
        windows = self._windows.get((event.partition, event.generation))
        number = getattr(event.what, "window", None)
        if windows is None or number not in windows:
            return
        part = state[event.partition]
        work = part.work if isinstance(part, Owned) and part.generation == event.generation else None
        rolls = (
            [each.roll for each in work.windows.windows if each.roll.number == number]
            if isinstance(work, Windowed)
            else []
        )
        if not rolls:
            del windows[number]
            return
        window, count = windows[number], len(rolls[0].records)
        match event.what:
            case WindowArranged(tasks=tasks):
                made: Sequence[Task | None] = [*window.arranged, *[None] * (len(tasks.offsets) - len(window.arranged))]
                self._number(window, made, count)
                window.arranged = []
            case TaskReplaced(number=replaced):
                self._number(window, window.replacing.pop(replaced, ()), count)
            case _:
                pass

    @staticmethod
    def _number(window: WindowPayloads, made: Sequence[Task | None], count: int) -> None:
        first, window.tasks = len(window.tasks), tasks_after(window.tasks, made, count)
        for number, task in enumerate(window.tasks[first:], first):
            if task is not None and task.result is not None:
                window.results[number] = task.result

    def of(self, work: Work) -> WindowPayloads:
        windows = self._windows.setdefault((work.partition, work.generation), {})
        return windows.setdefault(getattr(work.request, "window", -1), WindowPayloads())

    def live_ids(self, work: Work) -> set[str]:
        """The ids of the tasks of all windows of the partition in work."""
        windows = self._windows.get((work.partition, work.generation), {}).values()
        return {
            task.id for window in windows for task in (*window.tasks, *window.arranged) if task is not None and task.id
        }
