"""Which windows are in work, what was user code asked for, and which tasks wait for an executor?

This is the third stage of a partition where there is more to a record than a handler: where user code arranges windows, judges
failures, or delivers. `tidegate.consumer.fanout` keeps the accounts of windows; here is what lies between it and user code:
which tasks were given to executors, which wait for one or back off, and what is asked for and not answered
(`tidegate.consumer.outstanding`). Where there are no hooks, what they would be asked is answered here.

A step costs what it is told, and a look at each window that is in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.backpressure import Load
from tidegate.consumer.commands import Work
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
from tidegate.consumer.outstanding import AllAsked, Asked, answered, ask, running

__all__ = [
    "Followed", "Windowed", "what_fails",
]  # fmt: skip


def _load(work: Windowed) -> Load:
    """Where the records are in whose windows something is asked for, waits or backs off."""
    waiting = (*work.ready, *work.backing_off)
    active = {each.request.window for each in work.asked} | {start.window for start in waiting}
    return fanout.load(work.windows, active)


@final
@attrs.frozen
class Windowed:
    """What is in work.

    Attributes:
        windows: Those in flight.
        ready: Tasks that wait for an executor, in order.
        backing_off: Tasks that have failed, and wait until they are tried again.
        asked: What user code was asked for.
        running: How many tasks run.
        load: Where the records in flight are that something is under way for.
    """

    windows: Fanout = Fanout()
    ready: tuple[Start, ...] = ()
    backing_off: tuple[Start, ...] = ()
    asked: AllAsked = ()
    running: int = attrs.field(default=attrs.Factory(lambda self: running(self.asked), takes_self=True), init=False)
    load: Load = attrs.field(default=attrs.Factory(_load, takes_self=True), init=False)

    @property
    def is_idle(self) -> bool:
        """Whether user code is asked for nothing."""
        return not self.asked

    @property
    def records(self) -> int:
        """How many records something is under way for."""
        return self.load.records

    @property
    def is_arranging(self) -> bool:
        """Whether user code arranges a window."""
        return any(isinstance(each.request, Arrange) for each in self.asked)

    def asking(self, works: Sequence[Work]) -> Windowed:
        """With user code asked for these, too."""
        return attrs.evolve(self, asked=ask(self.asked, self.windows, works)) if works else self

    def without(self, these: Collection[Asked]) -> Windowed:
        """Without these in work; nothing is expected of them any more."""
        return attrs.evolve(self, asked=tuple(each for each in self.asked if each not in these))

    def started(self, most: int) -> tuple[Windowed, tuple[Start, ...]]:
        """What is ready is given to executors, at most so many tasks; which."""
        begun: list[Start] = []
        ready = self.ready
        while ready and most > 0:
            first, *others = ready
            now, later = first.numbers[:most], first.numbers[most:]
            ready = (attrs.evolve(first, numbers=later), *others) if later else tuple(others)
            begun.append(attrs.evolve(first, numbers=now) if later else first)
            most -= len(now)
        return attrs.evolve(self, ready=ready), tuple(begun)

    def rested(self, start: Start) -> Windowed:
        """What backed off is ready."""
        rest = tuple(each for each in self.backing_off if each != start)
        return attrs.evolve(self, backing_off=rest, ready=(*self.ready, start))

    def undelivered(self, offsets: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the records whose own delivery is still on its way."""
        known = {offset: fanout.record_status(self.windows, offset) for offset in offsets}
        return tuple(offset for offset, at in known.items() if at is not None and at.waits is Waits.DELIVERY)

    def followed(
        self, event: FanoutEvent, rules: Rules, *, hooks: bool, drains: bool, diverts: bool = False
    ) -> Followed:
        """What follows from an event of a window.

        Args:
            event: What happened.
            rules: What is delivered, and how often something may be tried.
            hooks: Whether user code arranges and judges.
            drains: Whether what fails now is left to the next owner.
            diverts: Whether a window that is opened is not run, but answered for.
        """
        windows, ready, backing_off = self.windows, list(self.ready), list(self.backing_off)
        requests: list[UserRequest] = []
        done: list[int] = []
        failed: list[DeliverRecords] = []
        # What follows from an event may be answered here, without user code, by another event; so these lists grow while
        # they are worked off, and their order is that of the outputs.
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
                        pass  # nothing follows
        after = Windowed(
            windows,
            () if drains else tuple(ready),
            () if drains else tuple(backing_off),
            self.asked if isinstance(event, WindowOpened) else answered(self.asked, windows, event.window),
        )
        waits = after.backing_off[len(self.backing_off) :]
        return Followed(after, tuple(done), () if drains else tuple(failed), tuple(requests), waits)


@final
@attrs.frozen
class Followed:
    """What follows from an event of a window.

    Attributes:
        work: What is in work then.
        done: The records that are settled, in order.
        failed: The records that have failed for good, to be answered for or not.
        requests: What user code is to be asked for.
        backing_off: The tasks that back off from now on.
    """

    work: Windowed
    done: tuple[int, ...]
    failed: tuple[DeliverRecords, ...]
    requests: tuple[UserRequest, ...]
    backing_off: tuple[Start, ...]


def what_fails(request: Arrange | Start | Judge | DeliverTasks) -> FanoutEvent:
    """What has happened to the window where user code could not do this."""
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
