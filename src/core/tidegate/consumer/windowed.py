"""Which windows are in work, what was user code asked for, and which tasks wait for an executor?

This is the third stage of a partition where there is more to a record than a handler: where user code arranges windows, judges
failures, or delivers. `tidegate.consumer.fanout` keeps the accounts of windows; here is what lies between it and user code:
which tasks were given to executors, which wait for one or back off, and what is asked for and not answered
(`tidegate.consumer.outstanding`). Where there are no hooks, what they would be asked is answered here.

A step costs what it is told, a look at what is asked for in the same window, and at the tasks that wait; where windows wait for
tasks of each other, a look at each window.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.backpressure import Load
from tidegate.consumer.commands import Handle, Work
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
from tidegate.consumer.outstanding import AllAsked, Asked, answered, ask, is_asked, running
from tidegate.model.sealed import sealed


def _active(work: Windowed) -> set[int]:
    """The windows in which something is asked for, waits or backs off."""
    waiting = (*work.ready, *work.backing_off)
    return {each.request.window for each in work.asked} | {start.window for start in waiting}


@final
@sealed
class Windowed:
    """What is in work. Invariants: `running` and `load` follow from the rest.

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
        """With these in the place of its own, which differ in what concerns these windows only."""
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
        touched = {work.request.window for work in works if not isinstance(work.request, Handle)}
        asked, more = ask(self.asked, self.windows, works)
        return self._after(touched, self.windows, self.ready, self.backing_off, asked, self.running + more)

    def without(self, these: Collection[Asked]) -> Windowed:
        """Without these in work; nothing is expected of them any more."""
        if not these:
            return self
        asked = tuple(each for each in self.asked if each not in these)
        return Windowed(self.windows, self.ready, self.backing_off, asked)

    def interrupted(self, these: Collection[Asked]) -> Windowed:
        """With these asked to end."""
        asked = tuple(attrs.evolve(each, is_interrupted=True) if each in these else each for each in self.asked)
        return Windowed(self.windows, self.ready, self.backing_off, asked)

    def ending(self, interrupted: Collection[Asked], abandoned: Collection[Asked]) -> Windowed:
        """With the first asked to end, and nothing expected of the others any more."""
        return self.interrupted(interrupted).without(abandoned)

    def not_ready(self) -> Windowed:
        """Without what waits for an executor."""
        return Windowed(self.windows, (), self.backing_off, self.asked)

    def without_retries(self) -> Windowed:
        """Without what backs off."""
        return Windowed(self.windows, self.ready, (), self.asked)

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
        touched = {each.window for each in begun}
        return self._after(touched, self.windows, ready, self.backing_off, self.asked, self.running), tuple(begun)

    def rested(self, start: Start) -> Windowed:
        """What backed off is ready."""
        rest = tuple(each for each in self.backing_off if each != start)
        return Windowed(self.windows, (*self.ready, start), rest, self.asked, self.running, self.load)

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


def _load_in(
    window: int, windows: Fanout, ready: tuple[Start, ...], backing_off: tuple[Start, ...], asked: AllAsked
) -> Load:
    """Where the records of one window are, if something is under way for it."""
    is_active = is_asked(asked, window) or any(each.window == window for each in (*ready, *backing_off))
    return fanout.load_in(windows, window, (window,)) if is_active else Load()


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
