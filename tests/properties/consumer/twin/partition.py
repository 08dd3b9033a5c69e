"""The partition before its stages; `tidegate.consumer.partition.partition` has its laws and its limits.

Differences: records are worked on in windows only, there are no batches, and finding the next
record of a key takes time in proportion to the queue.

Designs that do not work: to judge a failure during a drain (an interrupted executor may report a
failure of a good record); to accept an answer without a commit in flight (the floor would pass
uncommitted records); to drop the queue when the partition stops (P4 wants the records before the
failure).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum, unique
from typing import Final, assert_never, final

import attrs
from tests.properties.consumer.twin.commands import (
    Assigned,
    Command,
    Commit,
    CommitRefused,
    Committed,
    CommitUnknown,
    DrainTimerFired,
    Event,
    Fetch,
    Fetched,
    Interrupt,
    Key,
    Lost,
    Measured,
    MetadataRefused,
    Release,
    RetryTimerFired,
    Revoked,
    SlotFreed,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkFailed,
    WorkReported,
    check_event,
)
from tests.properties.consumer.twin.outstanding import AllAsked, Asked, answer, answered, ask, running
from tests.properties.consumer.twin.partition_state import Owned, PartitionState, PartitionStep, Phase, Unassigned

from tidegate.consumer import fanout
from tidegate.consumer.committing.commit_metadata import LIMIT, Alphabet, Survey, decoded, encoded, surveyed, units
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
from tidegate.consumer.flow.backpressure import (
    Free,
    PartitionHold,
    PartitionLimits,
    PartitionPressure,
    decide_partition,
)
from tidegate.consumer.flow.drain import Action, Budget, InFlight, Stage, left, plan, stage
from tidegate.consumer.offsets.watermark import (
    OffsetTracker,
    acknowledged,
    committable,
    completed,
    delivered,
    pending,
    span,
    undelivered,
)
from tidegate.model.effects import Cancel
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Exponential, Fixed, Linear, Series, delay_after

__all__ = [
    "DRAIN", "PARTS", "PLAIN", "RUNNING_MAX", "FailurePolicy", "Ordering", "Owned", "PartitionParts", "PartitionRules",
    "PartitionState", "PartitionStep", "Phase", "Unassigned",
]  # fmt: skip

# --- rules --------------------------------------------------------------------------------------------------------------


@final
@unique
class Ordering(Enum):
    UNORDERED = "none"
    BY_KEY = "those of a key"
    BY_OFFSET = "all of the partition; with hooks, all windows"


@final
@unique
class FailurePolicy(Enum):
    STOP = "the partition takes nothing new"
    BLOCK_KEY = "the rest of the key is held back"
    SKIP = "user code answers for it, and work goes on"
    DIVERT_KEY = "user code answers for it and for the rest of the key, in order"


PLAIN: Final = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
RUNNING_MAX: Final = 4
_REPLAY_MAX: Final = 100
_BACKOFF: Final = Exponential(SECOND // 10, cap=SECOND)
"""As in Kafka's clients (`retry.backoff.ms` and its maximum)."""
DRAIN: Final = Budget(30 * SECOND, cancel=5 * SECOND, commit=5 * SECOND)


# --- the machine --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class PartitionParts:
    position_to_commit: Callable[[PartitionRules, Owned], int | None]
    revoked: Callable[[Owned], Owned]
    stopped_at: Callable[[Owned, tuple[int, ...]], Owned]
    is_diverted: Callable[[PartitionRules, Owned, int], bool]
    fated: Callable[[PartitionRules, Owned, Duration], tuple[Owned, tuple[Command, ...]]]
    answer: Callable[[AllAsked, FanoutEvent], FanoutEvent | None]


@final
@attrs.frozen
class PartitionRules:
    """Invariants: 0 <= running_max; 1 <= window_max, replay_max; 0 <= metadata_max."""

    running_max: int = RUNNING_MAX
    window_max: int = 1
    hooks: bool = False
    fanout: Rules = PLAIN
    ordering: Ordering = Ordering.UNORDERED
    failure_policy: FailurePolicy = FailurePolicy.STOP
    limits: PartitionLimits = PartitionLimits()
    metadata_max: int = LIMIT
    replay_max: int = _REPLAY_MAX
    drain: Budget = DRAIN
    backoff: Exponential | Fixed | Linear | Series = _BACKOFF
    parts: PartitionParts = attrs.field(factory=lambda: PARTS, repr=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int(self.running_max, "a number of tasks", 0)
        check_int(self.window_max, "a number of records", 1)
        check_type(self.hooks, bool, "whether there are hooks")
        check_type(self.fanout, Rules, "rules of fan-out")
        check_type(self.ordering, Ordering, "an ordering")
        check_type(self.failure_policy, FailurePolicy, "what follows a failure")
        check_type(self.limits, PartitionLimits, "the limits of a partition")
        check_int(self.metadata_max, "a number of UTF-16 units", 0)
        check_int(self.replay_max, "a number of offsets", 1)
        check_type(self.drain, Budget, "a budget of time")
        check_type(self.backoff, (Exponential, Fixed, Linear, Series), "a back-off with delays of its own")
        check_type(self.parts, PartitionParts, "the parts of a machine")
        if self.ordering is Ordering.UNORDERED and self.failure_policy in (
            FailurePolicy.BLOCK_KEY,
            FailurePolicy.DIVERT_KEY,
        ):
            raise Misuse(
                f"{self.failure_policy.name} without an order",
                why="records of the same key may be in work, or done, when one fails",
                todo="set ordering=Ordering.BY_KEY or BY_OFFSET",
            )

    @property
    def needs_hooks(self) -> bool:
        delivers = self.fanout.task_delivery or self.fanout.record_delivery or self.fanout.window_delivery
        return self.hooks or delivers or self.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        check_event(event)
        check_type(state, (Unassigned, Owned), "a state of a partition")
        if isinstance(state, Owned) and event.partition != state.partition:
            return Step(state)  # an event of another partition
        return self._stepped(state, event, self.running_max)

    def _stepped(self, state: PartitionState, event: Event, room: int) -> PartitionStep:
        match state:
            case Unassigned():
                return self._unassigned(event, room)
            case Owned():
                return self._owned(state, event, room)
            case _:
                assert_never(state)

    def _unassigned(self, event: Event, room: int) -> PartitionStep:
        match event:
            case Assigned():
                return self._advanced(room, self._assigned(event))
            case Revoked(partition):
                return Step(Unassigned(), (Release(partition),))  # it was given up before
            case _:
                return Step(Unassigned())  # it is not ours, or no longer

    def _assigned(self, event: Assigned) -> Owned:
        tracker = OffsetTracker(event.committed)
        if event.metadata and self.metadata_max:
            tracker = decoded(event.metadata, position=event.committed, end=max(event.committed, event.end)).tracker
        alphabet = Alphabet.WIDE if self.metadata_max else None
        return Owned(event.partition, event.generation, Phase.FLOWING, tracker, alphabet=alphabet)

    def _owned(self, part: Owned, event: Event, room: int) -> PartitionStep:
        if not _is_current(part, event):
            return Step(part)
        match event:
            case Assigned():  # the group forgot to revoke it: a new life all the same
                again = self._advanced(room, self._assigned(event))
                return Step(again.state, (*self._given_up(part), *again.commands))
            case Fetched(_, _, offsets, keys) if part.fetching is not None:
                return self._advanced(room, self._queued(part, offsets, keys))
            case WorkReported(_, _, what):
                named = self.parts.answer(part.asked, what)
                return Step(part) if named is None else self._advanced(room, *self._followed(part, named))
            case WorkFailed(_, _, request):
                return self._work_failed(part, request, room)
            case Committed(_, _, position) if position == part.committing:
                tracker = acknowledged(part.tracker, position)
                return self._advanced(room, attrs.evolve(part, tracker=tracker, committing=None, commit_failures=0))
            case CommitUnknown(_, _, position) if position == part.committing:
                # Committing is idempotent: after a delay the same or a higher position is
                # committed, since the count says that a position that has not moved is worth
                # sending.
                part = attrs.evolve(
                    part,
                    committing=None,
                    commit_failures=part.commit_failures + 1,
                    commit_backs_off=True,
                    unrecorded=max(part.unrecorded, self.replay_max),
                )
                return self._advanced(room, part, (self._retry_timer(part, None),))
            case RetryTimerFired(_, _, None) if part.commit_backs_off:
                return self._advanced(room, attrs.evolve(part, commit_backs_off=False))
            case RetryTimerFired(_, _, Start() as start) if start in part.backing_off:
                backing_off = tuple(each for each in part.backing_off if each != start)
                part = attrs.evolve(part, backing_off=backing_off, ready=(*part.ready, start))
                return self._advanced(room, part)
            case MetadataRefused(_, _, position) if position == part.committing:
                # As if enough was unrecorded: the position is sent again at once, though it has not
                # moved.
                letters = Alphabet.ASCII if part.alphabet is Alphabet.WIDE else None
                again_at_once = attrs.evolve(part, committing=None, alphabet=letters, unrecorded=self.replay_max)
                return self._advanced(room, again_at_once)
            case CommitRefused(_, _, position) if position == part.committing:
                return Step(Unassigned(), self._given_up(part))
            case Lost():
                return Step(Unassigned(), self._given_up(part))
            case Revoked(_, in_flight) if part.phase is not Phase.DRAINING:
                return self._draining(attrs.evolve(self.parts.revoked(part), in_flight=in_flight), 0, room)
            case DrainTimerFired(_, _, during) if part.phase is Phase.DRAINING and during is part.stage:
                return self._draining(part, self._began(part.stage) + self._timer(part).duration, room)
            case Measured(_, _, size, age):
                return self._advanced(room, attrs.evolve(part, size=size, age=age))
            case SlotFreed():
                return self._advanced(room, part)
            case (
                Revoked()
                | Fetched()
                | Committed()
                | CommitRefused()
                | CommitUnknown()
                | MetadataRefused()
                | DrainTimerFired()
                | RetryTimerFired()
            ):
                return Step(part)  # a repetition, or without a request
            case _:
                assert_never(event)

    # --- records come ---

    def _queued(self, part: Owned, offsets: tuple[int, ...], keys: tuple[Key, ...]) -> Owned:
        new = undelivered(part.tracker, offsets)
        known = part.keys
        if self.ordering is Ordering.BY_KEY:
            if len(keys) < len(offsets):
                raise Misuse(
                    f"records of {part.partition} came without their keys",
                    why="each waits for those of the same key",
                    todo="give the keys in Fetched.keys",
                )
            of = dict(zip(offsets, keys, strict=True))
            known = (*known, *((offset, key) for offset in new if (key := of.get(offset)) is not None))
        tracker = delivered(part.tracker, offsets)
        queued = (*part.queued, *new)
        return self._unblocked(attrs.evolve(part, tracker=tracker, queued=queued, keys=known, fetching=None))

    def _unblocked(self, part: Owned) -> Owned:
        if self.failure_policy is not FailurePolicy.BLOCK_KEY or not part.closed:
            return part
        key = _lines(self.ordering, part)
        return attrs.evolve(part, queued=tuple(each for each in part.queued if key.get(each) not in part.closed))

    # --- work ---

    def next_window(self, part: Owned, room: int | None = None) -> tuple[int, ...]:
        """In order, and of each key none before the one before it is settled."""
        check_type(part, Owned, "a partition that is owned")
        if room is None:
            room = self.running_max
        check_int(room, "a number of tasks", 0)
        return self._next_window(part, room)

    def _next_window(self, part: Owned, room: int) -> tuple[int, ...]:
        most = self.window_max if self.hooks else min(self.window_max, room - part.running)
        if self.ordering is Ordering.UNORDERED:
            return part.queued[:most]
        if self.ordering is Ordering.BY_OFFSET and self.hooks and not part.closed:
            return () if fanout.records(part.windows) else part.queued[:most]
        key = _lines(self.ordering, part)
        busy = {key[offset] for offset in fanout.records(part.windows) if offset in key}
        chosen: list[int] = []
        for offset in part.queued:
            own = key.get(offset)
            if own is None or own not in busy:
                if own in part.closed:
                    return tuple(chosen) or (offset,)  # a diverted record is a window of its own
                chosen.append(offset)
            if own is not None:
                busy.add(own)  # whether it was chosen or waits itself, the next of its key waits for it
            if len(chosen) == most:
                break
        return tuple(chosen)

    def _opened(self, part: Owned, room: int) -> tuple[Owned, tuple[Command, ...]]:
        part, commands = self._started(part, room)
        while part.queued and part.running < room and not part.ready:
            if self.hooks and any(isinstance(each.work.request, Arrange) for each in part.asked):
                break
            batch = self._next_window(part, room)
            if not batch:
                break
            rest = part.queued[len(batch) :]
            if part.queued[: len(batch)] != batch:  # some that wait for their key were passed over
                taken = {*batch}
                rest = tuple(offset for offset in part.queued if offset not in taken)
            is_diverted = self.parts.is_diverted(self, part, batch[0])
            opened = attrs.evolve(part, queued=rest)
            part, more = self._followed(opened, WindowOpened(batch), is_diverted=is_diverted)
            part, begun = self._started(part, room)
            commands = (*commands, *more, *begun)
        return part, commands

    def _started(self, part: Owned, room: int) -> tuple[Owned, tuple[Command, ...]]:
        commands: list[Work] = []
        ready, busy = part.ready, part.running
        while ready and busy < room:
            first, *others = ready
            now, later = first.numbers[: room - busy], first.numbers[room - busy :]
            ready = (attrs.evolve(first, numbers=later), *others) if later else tuple(others)
            commands.append(_work(part, attrs.evolve(first, numbers=now) if later else first))
            busy += len(now)
        if commands:
            part = _asking(attrs.evolve(part, ready=ready), commands)
        return part, tuple(commands)

    def _followed(
        self, part: Owned, event: FanoutEvent, *, is_diverted: bool = False
    ) -> tuple[Owned, tuple[Command, ...]]:
        windows, ready, backing_off = part.windows, list(part.ready), list(part.backing_off)
        requests: list[UserRequest] = []
        done: list[int] = []
        failed: list[DeliverRecords] = []
        # An event may answer an output here, without user code, so these lists grow while they are
        # processed, in the order of the outputs.
        events, known = [event], part.backing_off
        is_draining = part.phase is Phase.DRAINING
        while events:
            follows = fanout.step(windows, events.pop(0), self.fanout)
            windows = follows.state
            for output in follows.commands:
                match output:
                    case Start():
                        (backing_off if fanout.failures_before(windows, output) else ready).append(output)
                    case Arrange(window) if is_diverted:
                        events.append(ArrangeFailed(window))
                    case Arrange(window, offsets) if not self.hooks:
                        events.append(WindowArranged(window, Tasks(tuple([(offset,) for offset in offsets]))))
                    case Judge() if is_draining:
                        pass  # what fails now is left to the next owner
                    case Judge(window, numbers, attempt) if not self.hooks:
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
                        pass  # no output
        asked = part.asked
        if asked and not isinstance(event, WindowOpened):
            asked = answered(asked, windows, event.window)
        part = attrs.evolve(
            part,
            windows=windows,
            ready=() if is_draining else tuple(ready),
            backing_off=() if is_draining else tuple(backing_off),
            asked=asked,
            running=running(asked),
            tracker=completed(part.tracker, done) if done else part.tracker,
            unrecorded=part.unrecorded + len(done) if part.alphabet else 0,
        )
        if is_draining:  # failures are left to the next owner, and at a late stage deliveries, too
            failed = []
            requests = requests if part.stage is Stage.WAITING else []
        for each in failed:
            part, answers = self._failed(part, each)
            requests += answers
        works = tuple([_work(part, request) for request in requests])
        timers = [self._retry_timer(part, start) for start in part.backing_off if start not in known]
        return _asking(part, works), (*works, *timers)

    # --- failures ---

    def _failed(self, part: Owned, request: DeliverRecords) -> tuple[Owned, list[UserRequest]]:
        match self.failure_policy:
            case FailurePolicy.SKIP:
                return part, [request]
            case FailurePolicy.DIVERT_KEY:
                return self._closed(part, request.offsets), [request]
            case FailurePolicy.STOP:
                return self.parts.stopped_at(part, self._stuck(part, request)), []
            case FailurePolicy.BLOCK_KEY:
                stuck = self._stuck(part, request)
                part = attrs.evolve(part, failed=_merged(part.failed, stuck))
                return self._unblocked(self._closed(part, stuck)), []
            case _:
                assert_never(self.failure_policy)

    def _stuck(self, part: Owned, request: DeliverRecords) -> tuple[int, ...]:
        """With a delivery of its own, the whole window."""
        if not self.fanout.window_delivery:
            return request.offsets
        at = {offset: fanout.record_status(part.windows, offset) for offset in fanout.records(part.windows)}
        return tuple(offset for offset, status in at.items() if status and status.window == request.window)

    def _closed(self, part: Owned, offsets: tuple[int, ...]) -> Owned:
        key = _lines(self.ordering, part)
        return attrs.evolve(part, closed=part.closed | {key[offset] for offset in offsets if offset in key})

    def _work_failed(self, part: Owned, request: UserRequest, room: int) -> PartitionStep:
        asked = next((each for each in part.asked if each.work.request == request), None)
        if asked is None:
            return Step(part)
        if part.phase is Phase.DRAINING:
            return self._advanced(room, _without(part, (asked,)))
        match request:
            case Arrange(window):
                what: FanoutEvent = ArrangeFailed(window)
            case Start(window, numbers, attempt):
                what = TasksReported(window, numbers, attempt, Report.FAILED)
            case Judge(window, numbers, attempt):
                what = TasksReported(window, numbers, attempt, Report.SKIPPED)
            case DeliverTasks(window, numbers, attempt):
                what = TasksReported(window, numbers, attempt, Report.UNDELIVERED)
            case DeliverRecords(window, offsets, to_dead_letter):
                left = _undelivered(part.windows, offsets)
                bad = DeliverRecords(window, left, left)
                part = _without(part, (asked,))
                if to_dead_letter:  # no other answer is possible
                    return self._advanced(room, self.parts.stopped_at(part, self._stuck(part, bad)))
                part, answers = self._failed(part, bad)
                commands = tuple([_work(part, answer) for answer in answers])
                return self._advanced(room, _asking(part, commands), commands)
            case DeliverWindow():  # no other answer is possible
                return self._advanced(room, self.parts.stopped_at(_without(part, (asked,)), asked.work.offsets))
            case _:
                assert_never(request)
        return self._advanced(room, *self._followed(part, what))

    # --- the end ---

    def _draining(self, part: Owned, elapsed: Duration, room: int) -> PartitionStep:
        now = stage(self.drain, elapsed)
        if now is Stage.OVER:
            return Step(Unassigned(), (*self._cancelled(part), Release(part.partition)))
        part, commands = self.parts.fated(self, attrs.evolve(part, stage=now), elapsed)
        return self._advanced(room, part, (self._timer(part), *commands))

    def _given_up(self, part: Owned) -> tuple[Command, ...]:
        return (*self._cancelled(part), *self._let_go(part))

    def _let_go(self, part: Owned) -> tuple[Command, ...]:
        if part.phase is not Phase.DRAINING:
            return ()
        return Cancel(self._timer(part)), Release(part.partition)

    def _timer(self, part: Owned) -> StartDrainTimer:
        return StartDrainTimer(part.partition, part.generation, part.stage, left(self.drain, self._began(part.stage)))

    def _retry_timer(self, part: Owned, start: Start | None) -> StartRetryTimer:
        failures = part.commit_failures if start is None else fanout.failures_before(part.windows, start)
        return StartRetryTimer(part.partition, part.generation, start, delay_after(self.backoff, failures))

    def _cancelled(self, part: Owned) -> tuple[Cancel, ...]:
        waiting = (*part.backing_off, *((None,) if part.commit_backs_off else ()))
        timers = [self._retry_timer(part, start) for start in waiting]
        return *(Cancel(each.work) for each in part.asked), *map(Cancel, timers), *map(Cancel, _fetches(part))

    def _began(self, during: Stage) -> Duration:
        return {Stage.CANCELLING: self.drain.wait, Stage.COMMITTING: self.drain.commit_at}.get(during, 0)

    # --- the next commands ------

    def _advanced(self, room: int, part: Owned, commands: tuple[Command, ...] = ()) -> PartitionStep:
        """The order matters: opened and held records decide about fetching, done ones commit."""
        if part.phase is Phase.DRAINING and part.backing_off:  # what would be tried again is left to the next owner
            commands = (*commands, *(Cancel(self._retry_timer(part, start)) for start in part.backing_off))
            part = attrs.evolve(part, backing_off=())
        part, begun = self._opened(part, room)
        part = _without_old_keys(part)
        hold, survey = self._hold(part)
        commands = (*commands, *begun)
        fetching, committing, unrecorded = part.fetching, part.committing, part.unrecorded
        if part.phase is not Phase.FLOWING:
            commands = (*commands, *map(Cancel, _fetches(part)))
            fetching = None
        elif fetching is None and isinstance(hold, Free):
            fetching = part.tracker.frontier
            commands = (*commands, Fetch(part.partition, part.generation, fetching))
        position = None if part.commit_backs_off else self.parts.position_to_commit(self, part)
        if position is not None:
            metadata = ""
            if part.alphabet is not None:
                known = surveyed(part.tracker, survey)
                metadata = encoded(known, limit=self.metadata_max, alphabet=part.alphabet).text
            commands = (*commands, Commit(part.partition, part.generation, position, metadata))
            committing, unrecorded = position, 0
        part = attrs.evolve(
            part, fetching=fetching, committing=committing, unrecorded=unrecorded, hold=hold, survey=survey
        )
        if part.phase is Phase.DRAINING and not (part.asked or part.commit_backs_off) and part.committing is None:
            return Step(Unassigned(), (*commands, *self._let_go(part)))
        return Step(part, commands)

    def _hold(self, part: Owned) -> tuple[PartitionHold, Survey | None]:
        pressure, survey = PartitionPressure(), part.survey
        if pending(part.tracker):
            length = 0
            if part.alphabet is not None and self.limits.metadata is not None:
                survey = surveyed(part.tracker, survey)
                length = units(survey, part.alphabet)
            pressure = PartitionPressure(span=span(part.tracker), size=part.size, age=part.age, metadata=length)
        return decide_partition(self.limits, part.hold, pressure), survey


# --- the parts ----------------------------------------------------------------------------------------------------------


def _position_to_commit(rules: PartitionRules, part: Owned) -> int | None:
    if part.committing is not None:
        return None
    enough = 1 if part.phase is Phase.DRAINING else rules.replay_max
    again = part.tracker.floor if part.alphabet is not None and part.unrecorded >= enough else None
    position = committable(part.tracker)
    return again if position is None else position


def _revoked(part: Owned) -> Owned:
    return attrs.evolve(part, phase=Phase.DRAINING, queued=(), ready=())  # what backs off is cancelled as it goes on


def _stopped_at(part: Owned, failed: tuple[int, ...]) -> Owned:
    failed = _merged(part.failed, failed)
    queued = tuple(offset for offset in part.queued if offset < failed[0])
    return attrs.evolve(part, failed=failed, queued=queued, phase=Phase.STOPPED)


def _is_diverted(rules: PartitionRules, part: Owned, offset: int) -> bool:
    return bool(part.closed) and _lines(rules.ordering, part).get(offset) in part.closed


def _fated(rules: PartitionRules, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[Command, ...]]:
    oldest_first = sorted(part.in_flight, key=lambda each: -each.age)  # a record in two works ends with the later one
    known = {each.offset: attrs.evolve(each, age=each.age + elapsed) for each in oldest_first}
    in_work = sorted({offset for each in part.asked for offset in each.work.offsets})
    fates = plan(rules.drain, elapsed, tuple(known.get(offset, InFlight(offset)) for offset in in_work))
    action = {fate.offset: fate.action for fate in fates}
    fate: dict[Asked, Action] = {}
    for each in part.asked:  # work on several records is dealt with as mildly as any of them
        actions = {action[offset] for offset in each.work.offsets}
        fate[each] = next(mildest for mildest in Action if mildest in actions)
    stop = [each for each in part.asked if fate[each] is Action.CANCEL and not each.is_interrupted]
    abandoned = [each for each in part.asked if fate[each] is Action.ABANDON]
    asked = tuple(attrs.evolve(each, is_interrupted=True) if each in stop else each for each in part.asked)
    part = _without(attrs.evolve(part, asked=asked), abandoned)
    return part, (*(Interrupt(each.work) for each in stop), *(Cancel(each.work) for each in abandoned))


PARTS: Final[PartitionParts] = PartitionParts(_position_to_commit, _revoked, _stopped_at, _is_diverted, _fated, answer)

# --- helpers ------------------------------------------------------------------------------------------------------------


def _is_current(part: Owned, event: Event) -> bool:
    """An assignment must be of a newer generation."""
    match event:
        case Revoked() | Lost() | SlotFreed():
            return True
        case Assigned(_, generation):
            return generation > part.generation
        case _:
            return event.generation == part.generation


def _lines(ordering: Ordering, part: Owned) -> dict[int, bytes]:
    if ordering is Ordering.BY_KEY:
        return dict(part.keys)
    return dict.fromkeys((*part.queued, *fanout.records(part.windows)), b"")


def _work(part: Owned, request: UserRequest) -> Work:
    return Work(part.partition, part.generation, request, fanout.offsets_of(part.windows, request))


def _asking(part: Owned, works: Sequence[Work]) -> Owned:
    if not works:
        return part
    asked = ask(part.asked, part.windows, works)
    return attrs.evolve(part, asked=asked, running=running(asked))


def _without(part: Owned, these: Collection[Asked]) -> Owned:
    asked = tuple(each for each in part.asked if each not in these)
    return attrs.evolve(part, asked=asked, running=running(asked))


def _without_old_keys(part: Owned) -> Owned:
    if not part.keys:
        return part
    known = {*part.queued, *fanout.records(part.windows)}
    keys = tuple(each for each in part.keys if each[0] in known)
    return part if len(keys) == len(part.keys) else attrs.evolve(part, keys=keys)


def _undelivered(windows: Fanout, offsets: tuple[int, ...]) -> tuple[int, ...]:
    known = {offset: fanout.record_status(windows, offset) for offset in offsets}
    return tuple(offset for offset, at in known.items() if at is not None and at.waits is Waits.DELIVERY)


def _merged(offsets: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*offsets, *more}))


def _fetches(part: Owned) -> tuple[Fetch, ...]:
    return () if part.fetching is None else (Fetch(part.partition, part.generation, part.fetching),)
