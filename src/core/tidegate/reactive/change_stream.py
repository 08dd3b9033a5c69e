"""What does the leader do with a stream of changes, and how far may its resume token advance?

The store tells of every change in order, and from which position (a resume token) to go on. A change only says where to
look: a pass reads what is there now, so it may come twice, and the last change of a document stands for those before it.
What may not happen is that a position is saved while a change before it has had no pass. After a crash nobody would ever
hear of it again: the position is a promise, as the committed offset of a log is (`tidegate.consumer.watermark`).

This is a reducer: `step(state, event)` answers the next state and what is commanded. What becomes of a command comes back as
an event, any time later; `event_for` says which. A state knows what it awaits, so what is commanded follows from it: what is
wanted, and neither awaited nor paused.

    Following -- Elected --> Consuming -- asked to stop, all is saved or something fails --> Stopped
        |                        |
        +--- LeadershipLost -----+

    Locate     where does the stream stand now?        only where no position is stored
    Save       store that position                     what follows is told from there
    Read       the changes after a position            they are collected, the last one of each document
    HandleDeleted    look at what was deleted                of each collection that a batch has, first this,
    Plan       look at what changed                    and then this, one pass
    Save       store the position up to which the batch was read
    Reconcile  look at every document (`tidegate.reactive.reconciliation`), for changes that no stream tells of

A batch is flushed when it is full, when its time is over, or when the consumer is to stop. The next one is collected
meanwhile, and read no further than until it is full. What fails is commanded again after a pause; nothing else waits.

Position, flags and checkpoints of reconciliation are of one history: a stretch in which the stream tells everything. If the
server cannot go on from a position (`CANNOT_RESUME`), the history is lost. The next one begins with an empty record, a
position, and then a reconciliation.

Caller's duties
    - `Elected` tells what is stored as it was read AFTER the lease was taken.
    - `Save` and `ResetHistory` are carried out under their epoch and history only, in the write itself.
    - `Read` tells every change of the collections that are watched: the store chooses by collection, and the pass by
      filter. It answers within a bounded time, with no change if there is none.
    - A pass succeeds only if each of its documents was looked at, and what was seen is stored. A document of which
      something cannot be computed is no failure of a pass (`reactive`).

Laws
    CS1  No change is lost: at any time, each change has had a pass since, or is after the stored position, or is where
         reconciliation will look.
    CS2  Once stream and store answer again and somebody leads, each change has had a pass after it happened.
    CS3  A batch asks for each document once, in its collection, as its last change has it; of each collection what was
         deleted comes first, in one pass each.
    CS4  A batch is flushed when it is full, when `wait` is over since its first change, or at the stop; no later change
         puts that off, and no two batches are under way.
    CS5  A position is saved only if no change before it is waiting, and one save is under way at most.
    CS6  While it leads, it awaits something: what failed is tried again.
    CS7  Under an epoch that is over nothing is commanded, and an answer to what is not awaited changes nothing.
    CS8  A reconciliation is asked for once in a history and epoch, AFTER a position of that history was stored and the
         stream could be read.
    CS9  Where nothing changes, the position is saved within `idle` nevertheless.

Where we differ from mongodash
    It saves the token although a collection failed, and the events of a failed batch are gone (CS1). Here they stay.
    Its batch knows documents by their id alone, so of two collections with the same id one event is dropped (CS3).
    Its flushes overlap, and a later one may save its token first (CS4).
    It takes 280 for lost history. What the server says then is 286; with that it restarts for ever. Here all codes count
    with which a stream can never go on from there. It keeps the checkpoints of an interrupted reconciliation, so that what
    changed meanwhile before them is lost. Here they go, with the flags and the position, in one write.
    It saves no position before its first reconciliation. A crash after the first flags were set, and what changed before
    the restart is told by nobody. Here reconciliation waits for a stored position (CS8).
    After another error it restarts its planner from the stored token. Here it reads on from where it had read to, and keeps
    what is collected; only a crash goes back to what is stored. It asks whether it leads by looking at its stream, and its
    token is not fenced. Here `Save` carries the epoch.
    It selects by filter in the stream. Deletions have no document to be matched, and a filter that fails on one document
    fails the stream there for ever. Here selecting is for the pass.

Things that do not work
    Dropping the position first and the flags in a second write: a crash in between, and the stream begins now, while the
    flags say that all was looked at.
    Saving the newest position when a batch is done: what was collected meanwhile is before it.

Known not to work
    - A pass that fails for ever holds the position, and reading ends when the next batch is full. The other collections of
      its batch go on only until then.
    - Positions are not ordered for us. A save without an answer that is applied late takes the stored position back; what
      is told again is looked at again.
    - Each page costs a look at the whole batch: let `Read` answer all that is there, and not one change after the other. A
      batch of 1,000 took 8 us a change in pages of 100, and 480 us one by one.
    - Ids that MongoDB takes for equal but are of two types (1 and 1.0) are two documents here: it costs a second look.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.documents import Value, checked, exactly, show
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import MILLISECOND, SECOND, Duration, seconds
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_name, check_tuple, check_type

CANNOT_RESUME: Final = frozenset({260, 280, 286, 10334})
"""MongoDB's codes after which a stream never goes on from that position: InvalidResumeToken, ChangeStreamFatalError,
ChangeStreamHistoryLost, and BSONObjectTooLarge, for the event that is too large is still the next."""


def _epoch(epoch: object) -> None:
    check_int(epoch, "an epoch", 1, INT64_MAX)


def _history(history: object) -> None:
    check_int(history, "the number of a history", 0, INT64_MAX)


# --- what the stream tells --------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class After:
    """After the event of this resume token (`startAfter`, which goes on behind an invalidation as well)."""

    token: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        checked(self.token, "a resume token")

    def __str__(self) -> str:
        return f"after {show(self.token)}"


@final
@attrs.frozen(cache_hash=True)
class From:
    """From this time of the cluster on (`startAtOperationTime`)."""

    time: Value = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        checked(self.time, "a time of the cluster")

    def __str__(self) -> str:
        return f"from {show(self.time)} on"


Position: TypeAlias = After | From
POSITIONS: Final = (After, From)


@final
@attrs.frozen(cache_hash=True)
class Change:
    """Something happened to a document.

    Attributes:
        collection: Where it is, or was.
        id: Its id.
        is_gone: It was deleted.
    """

    collection: str
    id: Value = attrs.field(eq=exactly)
    is_gone: bool = False

    def __attrs_post_init__(self) -> None:
        check_name(self.collection, "a collection")
        checked(self.id, "the id of a document")
        check_type(self.is_gone, bool, "a flag")

    def __str__(self) -> str:
        return f"{'deleted' if self.is_gone else 'changed'} {self.collection}/{show(self.id)}"


@final
@attrs.frozen
class Page:
    """What a stream told: these changes, in order, and there are no others before this position."""

    changes: tuple[Change, ...]
    position: Position

    def __attrs_post_init__(self) -> None:
        check_tuple(self.changes, Change, "a change")
        check_type(self.position, POSITIONS, "a position")


@final
@attrs.frozen
class Broken:
    """The stream has failed, with this code of the server; None where it gave none."""

    code: int | None

    def __attrs_post_init__(self) -> None:
        if self.code is not None:
            check_int(self.code, "the code of an error", -INT64_MAX, INT64_MAX)


# --- commands -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Locate(Effect[Position]):
    """Ask where the stream stands now: the server's operation time, read BEFORE anything is looked at."""

    epoch: int

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)

    def __str__(self) -> str:
        return "ask where the stream stands"


@final
@attrs.frozen(cache_hash=True)
class Read(Effect["Page | Broken"]):
    """Read what the stream tells from this position on; reading on from where it was read to needs no new stream."""

    epoch: int
    position: Position

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        check_type(self.position, POSITIONS, "a position")

    def __str__(self) -> str:
        return f"read {self.position}"


@final
@attrs.frozen(cache_hash=True)
class HandleDeleted(Effect[None]):
    """Look at the records of documents that were deleted (`reactive.plan`, `orphans.clean_up`)."""

    epoch: int
    batch: int
    collection: str
    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        _check_pass(self)

    def __str__(self) -> str:
        return f"clean up after {len(self.ids)} of {self.collection} (batch {self.batch})"


@final
@attrs.frozen(cache_hash=True)
class Plan(Effect[None]):
    """Look at documents that have changed (`reactive.plan`)."""

    epoch: int
    batch: int
    collection: str
    ids: tuple[Value, ...] = attrs.field(eq=exactly)

    def __attrs_post_init__(self) -> None:
        _check_pass(self)

    def __str__(self) -> str:
        return f"plan {len(self.ids)} of {self.collection} (batch {self.batch})"


@final
@attrs.frozen(cache_hash=True)
class Save(Effect[None]):
    """Store the position, if the lease is still of this epoch and the record of this history; refused if it is not."""

    epoch: int
    history: int
    position: Position

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        _history(self.history)
        check_type(self.position, POSITIONS, "a position")

    def __str__(self) -> str:
        return f"save {self.position} (epoch {self.epoch}, history {self.history})"


@final
@attrs.frozen(cache_hash=True)
class ResetHistory(Effect[None]):
    """Begin this history, if the lease is still of this epoch, and refuse if it is not.

    In one write, on a record of an earlier history: remove the position, and all that reconciliation knows
    (`reconciliation.forgotten`). On a record of this history that has been done, and nothing is written.
    """

    epoch: int
    history: int

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        check_int(self.history, "the number of the next history", 1, INT64_MAX)

    def __str__(self) -> str:
        return f"begin history {self.history} (epoch {self.epoch})"


@final
@attrs.frozen(cache_hash=True)
class Reconcile(Effect[None]):
    """Reconcile what is not reconciled, as a run of its own that ends with the epoch, the history, or for there is no more."""

    epoch: int
    history: int

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        _history(self.history)

    def __str__(self) -> str:
        return f"reconcile (epoch {self.epoch}, history {self.history})"


@final
@attrs.frozen(cache_hash=True)
class Flush:
    """It is time for this batch."""

    epoch: int
    batch: int

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        check_int(self.batch, "the number of a batch", 0)

    def __str__(self) -> str:
        return f"batch {self.batch}"


@final
@attrs.frozen(cache_hash=True)
class Keep:
    """It is time to save the position although nothing changes."""

    epoch: int

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)

    def __str__(self) -> str:
        return "save while nothing changes"


Pass: TypeAlias = HandleDeleted | Plan
Request: TypeAlias = Locate | Read | Pass | Save | ResetHistory
REQUESTS: Final = (Locate, Read, HandleDeleted, Plan, Save, ResetHistory)


@final
@attrs.frozen(cache_hash=True)
class Await(Effect[None]):
    """Wait so long, in microseconds: then it is time for this."""

    then: Request | Flush | Keep
    duration: Duration

    def __attrs_post_init__(self) -> None:
        check_type(self.then, (*REQUESTS, Flush, Keep), "what to wait for")
        check_int(self.duration, "a duration in microseconds", 0)

    def __str__(self) -> str:
        return f"in {seconds(self.duration)}: {self.then}"


StreamCommand: TypeAlias = Request | Reconcile | Await


def _check_pass(each: Pass) -> None:
    _epoch(each.epoch)
    check_int(each.batch, "the number of a batch", 0)
    check_name(each.collection, "a collection")
    check_type(each.ids, tuple, "a tuple of ids")
    for id_ in each.ids:
        checked(id_, "the id of a document")


# --- events -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Elected:
    """It leads, under this epoch, and this is what was stored then.

    Attributes:
        epoch: That of its lease.
        history: That of the stored record; 0 where there is none.
        position: The stored one, if any.
    """

    epoch: int
    history: int
    position: Position | None

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        _history(self.history)
        check_type(self.position, (After, From, NoneType), "a position")


@final
@attrs.frozen
class LeadershipLost:
    """It does not lead under this epoch any more, nor under one before it."""

    epoch: int

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)


@final
@attrs.frozen
class Located:
    """Here the stream stands."""

    command: Locate
    position: Position

    def __attrs_post_init__(self) -> None:
        check_type(self.command, Locate, "a question where the stream stands")
        check_type(self.position, POSITIONS, "a position")


@final
@attrs.frozen
class Received:
    """The stream told this."""

    command: Read
    page: Page

    def __attrs_post_init__(self) -> None:
        check_type(self.command, Read, "a request to read")
        check_type(self.page, Page, "a page")


@final
@attrs.frozen
class StreamFailed:
    """The stream has failed."""

    command: Read
    code: int | None

    def __attrs_post_init__(self) -> None:
        check_type(self.command, Read, "a request to read")
        Broken(self.code)


@final
@attrs.frozen
class Done:
    """It was done."""

    command: Pass | Save | ResetHistory

    def __attrs_post_init__(self) -> None:
        check_type(self.command, (HandleDeleted, Plan, Save, ResetHistory), "a request that can be done")


@final
@attrs.frozen
class Failed:
    """It was not done, not all of it, or nobody knows."""

    command: Locate | Pass | Save | ResetHistory

    def __attrs_post_init__(self) -> None:
        check_type(self.command, (Locate, HandleDeleted, Plan, Save, ResetHistory), "a request that can fail")


@final
@attrs.frozen
class Fenced:
    """It was refused: another epoch or history is stored."""

    command: Save | ResetHistory

    def __attrs_post_init__(self) -> None:
        check_type(self.command, (Save, ResetHistory), "a request under an epoch")


@final
@attrs.frozen
class Due:
    """The time is over that was to be awaited."""

    command: Await

    def __attrs_post_init__(self) -> None:
        check_type(self.command, Await, "a wait")


@final
@attrs.frozen
class StopAsked:
    """The consumer is to stop."""


Answer: TypeAlias = Located | Received | StreamFailed | Done | Failed | Fenced | Due
StreamEvent: TypeAlias = Elected | LeadershipLost | StopAsked | Answer
EVENTS: Final = (Elected, LeadershipLost, StopAsked, Located, Received, StreamFailed, Done, Failed, Fenced, Due)


def event_for(command: Effect[object], reply: object) -> StreamEvent | None:
    """The event that tells what became of a command; None where there is nothing to tell.

    Args:
        command: What was commanded.
        reply: What the world answered, a Failure included.

    Raises:
        Misuse: It is no command of a consumer, or no answer to it.
    """
    match command:
        case Reconcile():
            return None
        case Await():
            return Due(command)
        case Read():
            if isinstance(reply, Page):
                return Received(command, reply)
            if isinstance(reply, (Broken, Failure)):
                return StreamFailed(command, reply.code if isinstance(reply, Broken) else None)
        case Locate():
            if isinstance(reply, POSITIONS):
                return Located(command, reply)
            if isinstance(reply, Failure):
                return Failed(command)
        case HandleDeleted() | Plan() | Save() | ResetHistory():
            if isinstance(reply, Refused) and isinstance(command, (Save, ResetHistory)):
                return Fenced(command)
            if reply is None or isinstance(reply, Failure):
                return Done(command) if reply is None else Failed(command)
        case _:
            raise Misuse(f"a {type(command).__name__} is no command of a consumer")
    raise Misuse(f"{command} was answered a {type(reply).__name__}", todo="answer what it asks for, or a Failure")


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
    """A batch under way: up to where it was read, and the passes that have not succeeded, in order."""

    position: Position
    left: tuple[Pass, ...]

    def __attrs_post_init__(self) -> None:
        check_type(self.position, POSITIONS, "a position")
        check_tuple(self.left, (HandleDeleted, Plan), "a pass")


@final
@attrs.frozen
class Consuming:
    """It leads.

    Attributes:
        epoch: The epoch it leads under.
        history: That of the stored record.
        read: Up to where it has read; None until it knows where the stream stands.
        safe: Up to where everything has had its pass.
        saved: What is known to be stored.
        changes: What is collected, the last one of each document.
        batch: The number of the batch that is collected.
        is_due: The time of that batch is over.
        flushing: The batch under way.
        must_reconcile: A reconciliation has not been asked for yet.
        is_lost: The history is lost, and the next one has not begun.
        is_stopping: It was asked to stop.
        awaited: The commands that have not been answered.
    """

    epoch: int
    history: int = 0
    read: Position | None = None
    safe: Position | None = None
    saved: Position | None = None
    changes: tuple[Change, ...] = ()
    batch: int = 0
    is_due: bool = False
    flushing: Flushing | None = None
    must_reconcile: bool = True
    is_lost: bool = False
    is_stopping: bool = False
    awaited: frozenset[StreamCommand] = frozenset()

    def __attrs_post_init__(self) -> None:
        _epoch(self.epoch)
        _history(self.history)
        for position in (self.read, self.safe, self.saved):
            check_type(position, (After, From, NoneType), "a position")
        check_tuple(self.changes, Change, "a change")
        check_int(self.batch, "the number of a batch", 0)
        check_type(self.flushing, (Flushing, NoneType), "a batch under way")
        for flag in (self.is_due, self.must_reconcile, self.is_lost, self.is_stopping):
            check_type(flag, bool, "a flag")
        check_type(self.awaited, frozenset, "a set of commands")
        for command in self.awaited:
            check_type(command, (*REQUESTS, Await), "a command that is answered")

    @property
    def is_pending(self) -> bool:
        """Tell whether a change that was read waits for its pass."""
        return bool(self.changes) or self.flushing is not None

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


# --- the consumer -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ChangeStreamConsumer:
    """One who consumes a change stream while it leads.

    Invariants: 1 <= size; 0 <= wait, idle; 1 <= pause.

    Attributes:
        size: From how many documents on a batch is full.
        wait: How long the first change of a batch waits for others, in microseconds.
        idle: How long a position waits for changes to be saved with, in microseconds.
        pause: How long what failed waits before it is tried again, in microseconds.
    """

    size: int = 1_000
    wait: Duration = 500 * MILLISECOND
    idle: Duration = 10 * SECOND
    pause: Duration = SECOND

    def __attrs_post_init__(self) -> None:
        check_int(self.size, "the size of a batch", 1)
        check_int(self.wait, "a duration in microseconds", 0)
        check_int(self.idle, "a duration in microseconds", 0)
        check_int(self.pause, "a duration in microseconds", 1)

    def step(self, state: StreamState, event: StreamEvent) -> StreamStep:
        """What happens to the consumer, and what is commanded then.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: It is no state or no event.
        """
        check_type(event, EVENTS, "an event of a consumer")
        match state:
            case Following():
                return self._following(state, event)
            case Consuming():
                return self._consuming(state, event)
            case Stopped():
                return Step(state)
            case _:
                raise Misuse(f"a {type(state).__name__} is no state of a consumer")

    def _following(self, state: Following, event: StreamEvent) -> StreamStep:
        match event:
            case Elected(epoch, history, position) if epoch > state.epoch:
                return self._onward(Consuming(epoch, history, position, position, position))
            case LeadershipLost(epoch):
                return Step(Following(max(epoch, state.epoch)))
            case StopAsked():
                return Step(Stopped())
            case _:
                return Step(state)  # what comes of an epoch that is over

    def _consuming(self, state: Consuming, event: StreamEvent) -> StreamStep:
        match event:
            case Elected(epoch):
                return self._following(Following(state.epoch), event) if epoch > state.epoch else Step(state)
            case LeadershipLost(epoch):
                return Step(Following(epoch)) if epoch >= state.epoch else Step(state)
            case StopAsked():
                # What was told to wait is tried at once, and what is read from now on is for the next leader.
                kept = frozenset(
                    command for command in state.awaited if isinstance(command, (HandleDeleted, Plan, Save))
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
            case StreamFailed(command, code):
                return self._onward(self._lost(state)) if code in CANNOT_RESUME else self._failed(state, command)
            case Done(command):
                return self._onward(self._done(state, command))
            case Failed(command):
                return self._failed(state, command)
            case Fenced():
                return Step(Following(state.epoch))
            case Due(command):
                return self._onward(self._due(state, command))
            case _:
                assert_never(event)

    def _received(self, state: Consuming, page: Page) -> StreamStep:
        """The stream could be read, and from a stored position: so now it may be reconciled."""
        changes = self._collected(state.changes, page.changes)
        after = attrs.evolve(state, read=page.position, changes=changes, must_reconcile=False)
        reconcile = (Reconcile(state.epoch, state.history),) if state.must_reconcile else ()
        return self._onward(after, *reconcile)

    def _collected(self, before: tuple[Change, ...], more: tuple[Change, ...]) -> tuple[Change, ...]:
        return collected(before, more)

    def _lost(self, state: Consuming) -> Consuming:
        """What is collected or under way is dropped, for the next reconciliation looks at everything."""
        return Consuming(state.epoch, state.history, batch=state.batch + 1, is_lost=True)

    def _failed(self, state: Consuming, command: Request) -> StreamStep:
        if state.is_stopping:
            return Step(Stopped())  # what is not saved is told to the next leader
        again = Await(command, self.pause)
        return self._onward(attrs.evolve(state, awaited=state.awaited | {again}), again)

    def _done(self, state: Consuming, command: Pass | Save | ResetHistory) -> Consuming:
        match command:
            case Save(position=position):
                return attrs.evolve(state, saved=position)
            case ResetHistory(history=history):
                return attrs.evolve(state, history=history, is_lost=False)
            case HandleDeleted() | Plan():
                flushing = state.flushing
                if flushing is None or command not in flushing.left:
                    return state  # only in a state that no step has made
                left = tuple(each for each in flushing.left if each != command)
                if left:
                    return attrs.evolve(state, flushing=Flushing(flushing.position, left))
                return attrs.evolve(state, flushing=None, safe=self._safe(state, flushing))
            case _:
                assert_never(command)

    def _safe(self, _: Consuming, flushing: Flushing) -> Position | None:
        return flushing.position

    def _due(self, state: Consuming, command: Await) -> Consuming:
        match command.then:
            case Flush(batch=batch):
                return attrs.evolve(state, is_due=state.is_due or batch == state.batch)
            case Keep():
                return state if state.is_pending else attrs.evolve(state, safe=state.read)
            case _:
                return state  # it is neither awaited nor paused now, so it is commanded if it is still wanted

    # what follows from a state

    def _onward(self, state: Consuming, *already: StreamCommand) -> StreamStep:
        """StreamCommand for what is wanted, and neither awaited nor paused."""
        state = self._flushed(state)
        if state.is_stopping and self._is_over(state):
            return Step(Stopped(), already)
        held = {command.then for command in state.awaited if isinstance(command, Await)} | state.awaited
        commands = tuple(command for command in self._wanted(state) if command not in held)
        return Step(attrs.evolve(state, awaited=state.awaited.union(commands)), already + commands)

    def _flushed(self, state: Consuming) -> Consuming:
        """Begin with the batch that is collected, if it is time for it; at the stop, take what is read for done."""
        if state.is_stopping and not state.is_pending:
            return attrs.evolve(state, safe=state.read)
        is_time = state.is_due or state.is_stopping or len(state.changes) >= self.size
        if state.flushing is not None or not state.changes or not is_time or state.read is None:
            return state
        flushing = Flushing(state.read, self._passes(state))
        return attrs.evolve(state, changes=(), batch=state.batch + 1, is_due=False, flushing=flushing)

    def _passes(self, state: Consuming) -> tuple[Pass, ...]:
        return passes(state.epoch, state.batch, state.changes)

    def _is_over(self, state: Consuming) -> bool:
        return state.is_lost or state.read is None or not (state.is_pending or state.safe != state.saved)

    def _wanted(self, state: Consuming) -> Iterable[StreamCommand]:
        if state.is_lost:
            return [ResetHistory(state.epoch, state.history + 1)]
        if state.read is None:
            return [Locate(state.epoch)]
        wanted: list[StreamCommand] = list(() if state.flushing is None else free(state.flushing.left))
        if state.safe is not None and state.safe != state.saved and not _is_saving(state):
            wanted.append(Save(state.epoch, state.history, state.safe))
        if state.is_stopping:
            return wanted
        if state.saved is not None and len(state.changes) < self.size:
            wanted.append(Read(state.epoch, state.read))
        if state.changes and not state.is_due:
            wanted.append(Await(Flush(state.epoch, state.batch), self.wait))
        if not state.is_pending and state.read != state.safe:
            wanted.append(Await(Keep(state.epoch), self.idle))
        return wanted


def _is_saving(state: Consuming) -> bool:
    """One save at a time, also of those that wait to be tried again, or else the earlier one may be the last."""
    return any(isinstance(command.then if isinstance(command, Await) else command, Save) for command in state.awaited)


# --- batches ----------------------------------------------------------------------------------------------------------


def collected(before: tuple[Change, ...], more: tuple[Change, ...]) -> tuple[Change, ...]:
    """The last change of each document.

    Args:
        before: What was collected before.
        more: What was told since, in order.

    Returns:
        One change for each collection and id, in the order of when these were told.
    """
    check_tuple(before, Change, "a change")
    check_tuple(more, Change, "a change")
    last: dict[object, Change] = {}
    for change in (*before, *more):
        key = (change.collection, exactly(change.id))
        last.pop(key, None)
        last[key] = change
    return tuple(last.values())


def passes(epoch: int, batch: int, changes: tuple[Change, ...]) -> tuple[Pass, ...]:
    """What a batch asks for: what was deleted, one pass for each collection, and then what changed.

    Args:
        epoch: The epoch that it is asked for in.
        batch: The number of the batch.
        changes: One of each document.

    Returns:
        The passes, each to be asked for AFTER those of its collection that stand before it have succeeded (`free`).
    """
    check_tuple(changes, Change, "a change")
    by_kind: dict[bool, dict[str, list[Value]]] = {True: {}, False: {}}
    for change in changes:
        by_kind[change.is_gone].setdefault(change.collection, []).append(change.id)
    gone = [HandleDeleted(epoch, batch, collection, tuple(ids)) for collection, ids in by_kind[True].items()]
    there = [Plan(epoch, batch, collection, tuple(ids)) for collection, ids in by_kind[False].items()]
    return (*gone, *there)


def free(left: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """The passes that no other of their collection stands before."""
    check_tuple(left, (HandleDeleted, Plan), "a pass")
    return tuple(each for place, each in enumerate(left) if each.collection not in {e.collection for e in left[:place]})
