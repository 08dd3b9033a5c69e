"""The third stage of a partition with windows: which windows are in work, what user code is
running, and which tasks wait.

It is used where user code arranges windows, judges failures, or delivers.
`tidegate.consumer.fanout` tracks the windows. This module connects it with user code: tasks in
executors, tasks that wait or back off, and unanswered requests (`tidegate.consumer.partition.pending_requests`).
Without hooks, it answers their requests itself.

A step costs the size of its event, the requests of the same window, and the waiting tasks. Where
windows wait for tasks of each other, it costs a scan of all windows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Fanout,
    FanoutEvent,
    Judge,
    RecordsSettled,
    Report,
    Rules,
    Start,
    Tasks,
    TasksReported,
    UserRequest,
    Waits,
    WindowArranged,
    WindowOpened,
)
from tidegate.consumer.flow.backpressure import Load
from tidegate.consumer.partition.pending_requests import AllAsked, Asked, answered, ask, is_asked, running
from tidegate.consumer.protocol.commands import Handle, Work
from tidegate.model.sealed import sealed


def _active(work: Windowed) -> set[int]:
    """The windows with a request, or with a waiting or backing-off task."""
    waiting = (*work.ready, *work.backing_off)
    return {each.request.window for each in work.asked} | {start.window for start in waiting}


@final
@sealed
class Windowed:
    """The windows in work. Invariants: `running` and `load` follow from the other fields.

    Attributes:
        windows: Those in flight.
        ready: The tasks that wait for an executor, in order.
        backing_off: The failed tasks that wait for their next attempt.
        asked: The unanswered requests to user code.
        running: The number of running tasks.
        load: The records in flight with work under way, by place.
    """

    windows: Fanout = Fanout()
    ready: tuple[Start, ...] = ()
    backing_off: tuple[Start, ...] = ()
    asked: AllAsked = ()
    running: int = attrs.field(default=attrs.Factory(lambda self: running(self.asked), takes_self=True), eq=False)
    load: Load = attrs.field(
        default=attrs.Factory(lambda self: fanout.load(self.windows, _active(self)), takes_self=True), eq=False
    )

    def _after(  # noqa: PLR0917  they are its fields
        self,
        touched: Collection[int],
        windows: Fanout,
        ready: tuple[Start, ...],
        backing_off: tuple[Start, ...],
        asked: AllAsked,
        running: int,
    ) -> Windowed:
        """Replace the fields; they differ only in these windows, so the load is updated for them
        alone.
        """
        load = self.load
        for each in touched:
            if not (fanout.waits_alone(self.windows, each) and fanout.waits_alone(windows, each)):
                return Windowed(windows, ready, backing_off, asked)
            was = _load_in(each, self.windows, self.ready, self.backing_off, self.asked)
            now = _load_in(each, windows, ready, backing_off, asked)
            load = load if was == now else load + now - was
        return Windowed(windows, ready, backing_off, asked, running, load)

    @property
    def is_idle(self) -> bool:
        """Whether no request is unanswered."""
        return not self.asked

    @property
    def records(self) -> int:
        """The number of records with work under way."""
        return self.load.records

    @property
    def is_arranging(self) -> bool:
        """Whether user code arranges a window."""
        return bool(self.asked) and isinstance(self.asked[-1].request, Arrange)  # no later window is opened meanwhile

    def asking(self, works: Sequence[Work]) -> Windowed:
        """Add these requests to user code."""
        touched = {work.request.window for work in works if not isinstance(work.request, Handle)}
        asked, more = ask(self.asked, self.windows, works)
        return self._after(touched, self.windows, self.ready, self.backing_off, asked, self.running + more)

    def without(self, these: Collection[Asked]) -> Windowed:
        """Drop these requests; their results no longer matter."""
        if not these:
            return self
        asked = tuple(each for each in self.asked if each not in these)
        return Windowed(self.windows, self.ready, self.backing_off, asked)

    def interrupted(self, these: Collection[Asked]) -> Windowed:
        """Mark these requests as interrupted."""
        asked = tuple(attrs.evolve(each, is_interrupted=True) if each in these else each for each in self.asked)
        return Windowed(self.windows, self.ready, self.backing_off, asked)

    def ending(self, interrupted: Collection[Asked], abandoned: Collection[Asked]) -> Windowed:
        """Mark the first as interrupted, and drop the others."""
        return self.interrupted(interrupted).without(abandoned)

    def not_ready(self) -> Windowed:
        """Drop the tasks that wait for an executor."""
        return Windowed(self.windows, (), self.backing_off, self.asked)

    def without_retries(self) -> Windowed:
        """Drop the tasks that back off."""
        return Windowed(self.windows, self.ready, (), self.asked)

    def started(self, most: int) -> tuple[Windowed, tuple[Start, ...]]:
        """Start at most `most` ready tasks; returns them too."""
        begun: list[Start] = []
        ready = self.ready
        while ready and most > 0:
            first, *others = ready
            now, later = first.numbers[:most], first.numbers[most:]
            ready = (attrs.evolve(first, numbers=later), *others) if later else tuple(others)
            begun.append(attrs.evolve(first, numbers=now) if later else first)
            most -= len(now)
        touched = {each.window for each in begun}
        return self._after(touched, self.windows, ready, self.backing_off, self.asked, self.running), tuple(begun)

    def rested(self, start: Start) -> Windowed:
        """The back-off of these tasks is over."""
        rest = tuple(each for each in self.backing_off if each != start)
        return Windowed(self.windows, (*self.ready, start), rest, self.asked, self.running, self.load)

    def undelivered(self, offsets: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the records whose own delivery has not ended."""
        known = {offset: fanout.record_status(self.windows, offset) for offset in offsets}
        return tuple(offset for offset, at in known.items() if at is not None and at.waits is Waits.DELIVERY)

    def followed(
        self, event: FanoutEvent, rules: Rules, *, hooks: bool, drains: bool, diverts: bool = False
    ) -> Followed:
        """Apply an event of a window.

        Args:
            event: What happened.
            rules: What is delivered, and how often a task may be retried.
            hooks: Whether user code arranges and judges.
            drains: Whether new failures are left to the next owner.
            diverts: Whether a newly opened window is answered for instead of run.
        """
        windows, ready, backing_off = self.windows, list(self.ready), list(self.backing_off)
        requests: list[UserRequest] = []
        done: list[int] = []
        failed: list[DeliverRecords] = []
        # An output may be answered here, without user code, by another event. So the list of events
        # grows while it is processed; the results are in the order of the outputs.
        events = [event]
        while events:
            follows = fanout.step(windows, events.pop(0), rules)
            windows = follows.state
            for output in follows.commands:
                match output:
                    case Start():
                        (backing_off if fanout.failures_before(windows, output) else ready).append(output)
                    case Arrange(window) if diverts:
                        events.append(ArrangeFailed(window))
                    case Arrange(window, offsets) if not hooks:
                        events.append(WindowArranged(window, Tasks(tuple([(offset,) for offset in offsets]))))
                    case Judge() if drains:
                        pass
                    case Judge(window, numbers, attempt) if not hooks:
                        events.append(TasksReported(window, numbers, attempt, Report.RETRIED))
                    case DeliverRecords(window, offsets, to_dead_letter):
                        if to_dead_letter:
                            failed.append(DeliverRecords(window, to_dead_letter, to_dead_letter))
                            offsets = tuple(offset for offset in offsets if offset not in {*to_dead_letter})
                        if offsets:
                            requests.append(DeliverRecords(window, offsets))
                    case RecordsSettled(_, offsets):
                        done += offsets
                    case Arrange() | Judge() | DeliverTasks() | DeliverWindow():
                        requests.append(output)
                    case _:
                        pass  # no effect
        if isinstance(event, WindowOpened):
            touched, (asked, fewer) = windows.opened - 1, (self.asked, 0)
        else:
            touched, (asked, fewer) = event.window, answered(self.asked, windows, event)
        waiting = ((), ()) if drains else (tuple(ready), tuple(backing_off))
        after = self._after((touched,), windows, *waiting, asked, self.running - fewer)
        if drains and (self.ready or self.backing_off):
            after = Windowed(after.windows, (), (), after.asked)
        waits = after.backing_off[len(self.backing_off) :]
        return Followed(after, tuple(done), () if drains else tuple(failed), tuple(requests), waits)


@final
@attrs.frozen
class Followed:
    """The result of an event of a window.

    Attributes:
        work: The windows in work afterwards.
        done: The settled records, in order.
        failed: The records that failed for good, for the failure policy.
        requests: The new requests to user code.
        backing_off: The tasks that back off from now on.
    """

    work: Windowed
    done: tuple[int, ...]
    failed: tuple[DeliverRecords, ...]
    requests: tuple[UserRequest, ...]
    backing_off: tuple[Start, ...]


def _load_in(
    window: int, windows: Fanout, ready: tuple[Start, ...], backing_off: tuple[Start, ...], asked: AllAsked
) -> Load:
    """The records of one window by place, if work is under way for it."""
    is_active = is_asked(asked, window) or any(each.window == window for each in (*ready, *backing_off))
    return fanout.load_in(windows, window, (window,)) if is_active else Load()


def what_fails(request: Arrange | Start | Judge | DeliverTasks) -> FanoutEvent:
    """The event of the window when user code failed at this request."""
    match request:
        case Arrange(window):
            return ArrangeFailed(window)
        case Start(window, numbers, attempt):
            return TasksReported(window, numbers, attempt, Report.FAILED)
        case Judge(window, numbers, attempt):
            return TasksReported(window, numbers, attempt, Report.SKIPPED)
        case DeliverTasks(window, numbers, attempt):
            return TasksReported(window, numbers, attempt, Report.UNDELIVERED)
        case _:
            assert_never(request)
