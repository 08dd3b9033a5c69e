"""The consumer of a change stream: its states and steps (laws CS1 to CS12 of the package)."""

from __future__ import annotations

from typing import TypeAlias, assert_never, final

import attrs

from tidegate.model.documents import Value
from tidegate.model.errors import INT64_MAX, Misuse, typed
from tidegate.model.instants import SECOND, Duration, micros
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type
from tidegate.reactive.planning.change_stream._batches import apart, collected, free, passes
from tidegate.reactive.planning.change_stream.commands import (
    CANNOT_RESUME,
    Again,
    DocumentChange,
    Flush,
    HandleChanged,
    HandleDeleted,
    Locate,
    Page,
    Pass,
    Position,
    Read,
    Reconcile,
    Request,
    ResetHistory,
    Save,
    SaveIdle,
    StartTimer,
    StreamCommand,
)
from tidegate.reactive.planning.change_stream.events import (
    Answer,
    CommandDone,
    CommandFailed,
    Elected,
    Fenced,
    LeadershipLost,
    Located,
    PassLeft,
    Received,
    StopRequested,
    StreamEvent,
    StreamFailed,
    TimerFired,
    check_event,
)

# --- states -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Following:
    """It does not lead, and epochs up to this one are over. A new consumer is `Following()`."""

    epoch: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.epoch, "an epoch", 0, INT64_MAX)

    def __str__(self) -> str:
        return f"following, epoch {self.epoch} is over"


@final
@attrs.frozen
class Flushing:
    """A batch under way: its read position, and the passes that have not succeeded, in order."""

    position: Position
    left: tuple[Pass, ...]


@final
@attrs.frozen
class Consuming:
    """It leads.

    Attributes:
        epoch: Its epoch.
        history: The history of the stored record.
        read: The read position; None until the position of the stream is known.
        safe: Each change before this position had its pass.
        saved: The position known to be stored.
        changes: The collected changes, the last one of each document.
        batch: The number of the collected batch.
        is_due: The time of that batch is over.
        flushing: The batch under way.
        left: Changes that passes have left out, the last one of each document; none is collected.
        is_left_due: It is time for those again.
        must_reconcile: A reconciliation has not been requested yet.
        is_lost: The history is lost, and the next one has not begun.
        is_stopping: It was asked to stop.
        awaited: The commands without a reply.
    """

    epoch: int
    history: int = 0
    read: Position | None = None
    safe: Position | None = None
    saved: Position | None = None
    changes: tuple[DocumentChange, ...] = ()
    batch: int = 0
    is_due: bool = False
    flushing: Flushing | None = None
    left: tuple[DocumentChange, ...] = ()
    is_left_due: bool = False
    must_reconcile: bool = True
    is_lost: bool = False
    is_stopping: bool = False
    awaited: frozenset[StreamCommand] = frozenset()

    @property
    def is_pending(self) -> bool:
        """Whether a change that was read waits for its pass."""
        return bool(self.changes or self.left) or self.flushing is not None

    def __str__(self) -> str:
        what = "has lost its history" if self.is_lost else f"read {self.read}" if self.read else "does not know where"
        return f"consuming in epoch {self.epoch}: {what}, {len(self.changes)} collected"


@final
@attrs.frozen
class Stopped:
    """It does nothing any more."""

    def __str__(self) -> str:
        return "stopped"


StreamState: TypeAlias = Following | Consuming | Stopped
StreamStep: TypeAlias = Step[StreamState, StreamCommand]


def is_followed(state: StreamState, command: Pass, lease_left: Duration) -> bool:
    """Law CS12: whether a later pass, of this leader or the next, is certain for each change since
    this pass began.

    If so, the values of this pass may be used now: the later pass finds any change.

    Args:
        state: The present state.
        command: A pass that it has requested, at any time.
        lease_left: How long the lease of its epoch lasts, in microseconds; 0 if it does not.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(state, (Following, Consuming, Stopped), "the state of a consumer")
    check_type(command, (HandleDeleted, HandleChanged), "a pass")
    check_int(lease_left, "a duration in microseconds", 0)
    return lease_left > 0 and isinstance(state, Consuming) and command in state.awaited


# --- the consumer -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class ChangeStreamConsumer:
    """Consumes a change stream while it leads.

    Invariants: 1 <= size; 0 <= wait, rest, idle; 1 <= pause.

    Attributes:
        size: The number of documents that fills a batch.
        wait: How long the first change of a batch waits for others, in microseconds.
        rest: The time between two saves of the position, in microseconds. The next leader looks
            again
            at changes since the last one, mostly without a result.
        idle: How long a position is unsaved without changes, in microseconds.
        pause: The wait after a failure, in microseconds.
    """

    size: int = 1_000
    wait: Duration = attrs.field(default=0, converter=micros)
    rest: Duration = attrs.field(default=SECOND, converter=micros)
    idle: Duration = attrs.field(default=10 * SECOND, converter=micros)
    pause: Duration = attrs.field(default=SECOND, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_int(self.size, "the size of a batch", 1)
        check_int(self.wait, "a duration in microseconds", 0)
        check_int(self.rest, "a duration in microseconds", 0)
        check_int(self.idle, "a duration in microseconds", 0)
        check_int(self.pause, "a duration in microseconds", 1)

    def step(self, state: StreamState, event: StreamEvent) -> StreamStep:
        """Process an event.

        Args:
            state: The state before.
            event: The event.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: It is no state or no event, or a part of the event has a wrong type.
        """
        check_event(event)
        match state:
            case Following():
                return self._following(state, event)
            case Consuming():
                return self._consuming(state, event)
            case Stopped():
                return Step(state)
            case _:
                raise Misuse(f"{typed(state)} is not a state of a consumer")

    def _following(self, state: Following, event: StreamEvent) -> StreamStep:
        match event:
            case Elected(epoch, history, position) if epoch > state.epoch:
                return self._onward(Consuming(epoch, history, position, position, position))
            case LeadershipLost(epoch):
                return Step(Following(max(epoch, state.epoch)))
            case StopRequested():
                return Step(Stopped())
            case _:
                return Step(state)  # what comes of an epoch that is over

    def _consuming(self, state: Consuming, event: StreamEvent) -> StreamStep:
        match event:
            case Elected(epoch):
                return self._following(Following(state.epoch), event) if epoch > state.epoch else Step(state)
            case LeadershipLost(epoch):
                return Step(Following(epoch)) if epoch >= state.epoch else Step(state)
            case StopRequested():
                # Paused commands are sent now; changes from now on are for the next leader.
                kept = frozenset(
                    command for command in state.awaited if isinstance(command, (HandleDeleted, HandleChanged, Save))
                )
                return self._onward(attrs.evolve(state, is_stopping=True, awaited=kept))
            case _:
                if event.command not in state.awaited:
                    return Step(state)
                return self._answered(attrs.evolve(state, awaited=state.awaited - {event.command}), event)

    def _answered(self, state: Consuming, event: Answer) -> StreamStep:
        match event:
            case Located(_, position):
                return self._onward(attrs.evolve(state, read=position, safe=position))
            case Received(_, page):
                return self._received(state, page)
            case StreamFailed(_, code) if code in CANNOT_RESUME:
                # Collected changes and the batch under way are dropped: the next reconciliation
                # looks at everything.
                return self._onward(Consuming(state.epoch, state.history, batch=state.batch + 1, is_lost=True))
            case PassLeft(command, left):
                return self._left_out(state, command, left)
            case StreamFailed(command) | CommandFailed(command):
                return self._failed(state, command)
            case CommandDone(Save() as command) if self.rest and not state.is_stopping:
                return self._again(_done(state, command), command, self.rest)
            case CommandDone(command):
                return self._onward(_done(state, command))
            case Fenced():
                return Step(Following(state.epoch))
            case TimerFired(command):
                return self._onward(_timed(state, command))
            case _:
                assert_never(event)

    def _received(self, state: Consuming, page: Page) -> StreamStep:
        """The stream was read from a stored position: now it can be reconciled."""
        changes, left = apart(collected(state.changes, page.changes), state.left)
        after = attrs.evolve(state, read=page.position, changes=changes, left=left, must_reconcile=False)
        reconcile = (Reconcile(state.epoch, state.history),) if state.must_reconcile else ()
        return self._onward(after, *reconcile)

    def _left_out(self, state: Consuming, command: Pass, ids: tuple[Value, ...]) -> StreamStep:
        """These go into a batch again after a pause and block no other; unsaved ones are reported
        to the next leader.
        """
        if state.is_stopping:
            return Step(Stopped())
        more = tuple(DocumentChange(command.collection, id_, isinstance(command, HandleDeleted)) for id_ in ids)
        changes, left = apart(state.changes, collected(state.left, more))
        state = _done(attrs.evolve(state, changes=changes, left=left), command)
        again = StartTimer(Again(state.epoch), self.pause)
        if state.is_left_due or again in state.awaited:
            return self._onward(state)
        return self._onward(attrs.evolve(state, awaited=state.awaited | {again}), again)

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        if state.is_stopping:
            return Step(Stopped())  # what is not saved is reported to the next leader
        return self._again(state, command, self.pause)

    def _again(self, state: Consuming, command: Request, after: Duration) -> StreamStep:
        """Send it again after this time; a save then takes the position of that time."""
        again = StartTimer(command, after)
        return self._onward(attrs.evolve(state, awaited=state.awaited | {again}), again)

    # consequences of a state

    def _onward(self, state: Consuming, *already: StreamCommand) -> StreamStep:
        """Commands that are needed, and neither awaited nor paused."""
        state = self._flushed(state)
        if state.is_stopping and _is_over(state):
            return Step(Stopped(), already)
        # A request that waits for its timer is not sent twice.
        held = {command.then for command in state.awaited if isinstance(command, StartTimer)} | state.awaited
        commands = tuple(command for command in self._wanted(state) if command not in held)
        return Step(attrs.evolve(state, awaited=state.awaited.union(commands)), already + commands)

    def _flushed(self, state: Consuming) -> Consuming:
        """Begin with the collected batch if it is time; at a stop, treat the read part as done."""
        if state.is_stopping and not state.is_pending:
            return attrs.evolve(state, safe=state.read)
        if state.flushing is not None or state.read is None:
            return state
        is_time = state.is_due or not self.wait or state.is_stopping or len(state.changes) >= self.size
        left = state.left if state.is_left_due or state.is_stopping else ()
        changes = (*left, *(state.changes if is_time or left else ()))
        if not changes:
            return state
        flushing = Flushing(state.read, passes(state.epoch, state.batch, changes))
        if left:
            state = attrs.evolve(state, left=(), is_left_due=False)
        return attrs.evolve(state, changes=(), batch=state.batch + 1, is_due=False, flushing=flushing)

    def _wanted(self, state: Consuming) -> list[StreamCommand]:
        if state.is_lost:
            return [ResetHistory(state.epoch, state.history + 1)]
        if state.read is None:
            return [Locate(state.epoch)]
        wanted: list[StreamCommand] = [] if state.flushing is None else [*free(state.flushing.left)]
        if state.safe is not None and state.safe != state.saved and not _is_saving(state):
            wanted.append(Save(state.epoch, state.history, state.safe))
        if state.is_stopping:
            return wanted
        if state.saved is not None and state.flushing is None and len(state.changes) + len(state.left) < self.size:
            wanted.append(Read(state.epoch, state.read))
        if state.changes and not state.is_due and self.wait:
            wanted.append(StartTimer(Flush(state.epoch, state.batch), self.wait))
        if not state.is_pending and state.read != state.safe:
            wanted.append(StartTimer(SaveIdle(state.epoch), self.idle))
        return wanted


def _done(state: Consuming, command: Pass | Save | ResetHistory) -> Consuming:
    match command:
        case Save(position=position):
            return attrs.evolve(state, saved=position)
        case ResetHistory(history=history):
            return attrs.evolve(state, history=history, is_lost=False)
        case HandleDeleted() | HandleChanged():
            flushing = state.flushing
            if flushing is None or command not in flushing.left:
                return state  # only in a state that no step has made
            left = tuple(each for each in flushing.left if each != command)
            if left:
                return attrs.evolve(state, flushing=Flushing(flushing.position, left))
            safe = state.safe if state.left else flushing.position  # or what was left out would be before it
            return attrs.evolve(state, flushing=None, safe=safe)
        case _:
            assert_never(command)


def _timed(state: Consuming, command: StartTimer) -> Consuming:
    match command.then:
        case Flush(batch=batch):
            return attrs.evolve(state, is_due=state.is_due or batch == state.batch)
        case Again():
            return attrs.evolve(state, is_left_due=bool(state.left))
        case SaveIdle():
            return state if state.is_pending else attrs.evolve(state, safe=state.read)
        case _:
            return state  # it is neither unanswered nor paused now, so it is asked for if it is still wanted


def _is_over(state: Consuming) -> bool:
    return state.is_lost or state.read is None or not (state.is_pending or state.safe != state.saved)


def _is_saving(state: Consuming) -> bool:
    """One save at a time, retries included, or the earlier could be the last; none during the rest."""
    return any(
        isinstance(command.then if isinstance(command, StartTimer) else command, Save) for command in state.awaited
    )
