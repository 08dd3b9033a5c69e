"""Which invocations are under way in a process, and what is asked for next?

A process that works has a dispatch: it takes as many invocations as it has room for, has their handlers called, and has what they
came to written down, many in a request (`tidegate.invocations.taking`, `tidegate.invocations.ending`). It is a member
(`tidegate.services.members`), so it beats; and with each beat it is told what was asked of what it runs, and what is its own no more.

This is a reducer: `step(state, event)` answers the next state and commands. What becomes of a command comes back as an event,
any time later; `dispatch_event_for` says which. Each event carries the time of the machine's own monotonic clock.

    Take        take what is due, so much at most, under this life         its runs, which are handled at once
    Handle      call the handlers of these runs                            what each has come to, one after the other
    Resume      let these go on, which have waited for others              nothing; they are under way as before
    Interrupt   end the handlers of these runs                             what each has come to
    WriteEnds   write down what these runs have come to                    which of them are not known to be written, and whether
                                                                           somebody is due by that
    Beat        join under this life, or beat; look after these runs       whether it is alive, and what was asked
    Leave       be no member any more                                      nothing
    StartDispatchTimer  tell it when this time is over, and not when the one before would have been

Lives. A beat counts from before it was sent, so a process knows of its silence before anybody else does. Then its life is over: it
takes nothing, ends what runs, gives that back, and joins again as a new member. Each write is for the owner and the version it knows,
so what others have recovered meanwhile comes to nothing. A process may stand still at any time, and goes on where it was, before it
looks at its clock: so whoever carries out `Handle` asks `DispatchState.may_call` as the last thing before it calls a handler.

Ahead. While a look is under way short handlers end, and what they leave has nothing to do. So a look asks for as many more as would
end within `AHEAD`, or while two looks last, at the rate of late; these wait for a slot, and where that takes longer than `LATE` they are given back, for
others. Of handlers that are long none is taken ahead.

Waiting. A run that waits for others gives its slot away, and takes one again before it goes on: so no number of waiting
runs keeps a process from running what they wait for. Whatever ends its wait, a time-out of its own included, it goes on when it is
resumed, and not before; and who was interrupted is resumed at once, without a slot.

Strays. A look that failed may have taken what nobody was told of, and no one else looks after what a living process has. So with
each beat it is told what is in its name and was not in its hands; what still is so at the next one is given back. A look under way
may yet tell of what it has taken, so until it has ended that is no stray.

An end that nobody confirms is asked for again, for as long as it takes: the process is alive, and nobody else would ever end that
run. One that the store refuses is asked for alone, and then as a failure that says so.

Laws
    DI1  No more handlers are active than there are slots; those that wait are not active, nor who was interrupted while it waited.
         Beside them no more is taken than a batch.
    DI2  Each run that was taken is handled at most once, and no two requests under way write one end; it is written at last, unless the run
         was lost or the time to leave was over.
    DI3  Nothing is taken before a beat of that life is confirmed, nor after its silence; what was taken under a life that is over is
         given back, and not handled.
    DI4  When a life is over, whatever runs under it was interrupted.
    DI5  Of looks, beats and requests to write ends one each is under way at most, and no look while all is held.
    DI6  A handler that has taken longer than its task allows was interrupted, and so was one of which that was asked.
    DI7  Once it is to stop it takes nothing; when the time for that is over, what runs was interrupted; it stops when nothing
         is under way and it has left, and not before, but for what is under way still when the time to leave is over, too.
    DI8  Until it stops it awaits an answer or its timer.
    DI9  What is announced, or due by an end that was written, is looked for as soon as there is room, whatever is answered to
         earlier looks.
    DI10 Who wants its slot again gets the next one that is free, before anything is taken or called.
    DI11 What is found in its name, and neither is in its hands nor may be told by a look under way, is given back with the next
         beat of that life, if it is in its name then; nothing else is.
    DI12 What is taken ahead and has waited for a slot for `LATE` is called or given back.
    DI13 Whoever waits for others, and nobody else, has given its slot away; and who was interrupted waits for none.
    DI14 Whose owners have died `deaths_max` times while they ran it is not handled: it has failed, and says so.
    DI15 No handler is called, although that was commanded, when its process may have been taken for dead.

Known not to work
    - Who stands still between that last look at its clock and the first line of a handler goes on with that line.
    - Who dies takes along what else runs in that process, and a death of each of these is counted.
    - A handler that will not be interrupted holds its slot. It is left behind when the time to leave is over.
    - Tenants take turns by looks, so of short handlers a tenth of a second of one tenant's comes before the next one's.
    - There is no limit to how many runs wait in a process: any would keep it from running what they wait for.
    - Who returns although it was interrupted has returned: what it has done is done. Only who was lost is not heard, and who has
      taken too long has failed, whatever it returns.
"""

from __future__ import annotations

from enum import Enum
from itertools import islice
from types import NoneType
from typing import Final, TypeAlias, assert_never, cast, final

import attrs

from tidegate.invocations.ending import Cancelled, End, Failed, GivenBack, RunError, Succeeded
from tidegate.invocations.status import StatusRecord
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import MILLISECOND, PPM, SECOND, Duration, Instant, seconds
from tidegate.model.operations import UPDATES_MAX
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.backoff import Policy
from tidegate.retries.polling import Ask, Pace, PollingBounds, Wait, fresh, turn, woken
from tidegate.retries.spread import widened
from tidegate.services.membership import DEAD_AFTER

__all__ = [
    "AHEAD",
    "LATE",
    "Active",
    "Announced",
    "Beat",
    "Beaten",
    "DispatchCommand",
    "DispatchEvent",
    "DispatchRules",
    "DispatchState",
    "DispatchStep",
    "DispatchStopRequested",
    "DispatchTimerFired",
    "EndsOutcome",
    "EndsRefused",
    "EndsWritten",
    "Handle",
    "HandlersEnded",
    "Heeded",
    "Held",
    "HeldChanged",
    "Interrupt",
    "InterruptReason",
    "Leave",
    "Left",
    "Outcome",
    "Resume",
    "Run",
    "RunGoesOn",
    "RunWaits",
    "RunsFound",
    "RunsTaken",
    "Slot",
    "StartDispatchTimer",
    "Stray",
    "Take",
    "WriteEnds",
    "dispatch_event_for",
]  # fmt: skip


# --- rules ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class DispatchRules:
    """How a process works.

    Invariants: 1 <= slots, deaths_max; 1 <= batch <= UPDATES_MAX; 0 <= drain, leave; 1 <= beat_every < dead_after; 0 <= draw_ppm <= PPM.

    Attributes:
        slots: How many handlers are active at a time.
        batch: How many runs are taken, or ends written, in a request, at most.
        drain: How long handlers may go on once it is to stop, in microseconds.
        leave: How long it may take after that to write down what they have come to, in microseconds.
        beat_every: How often it beats, in microseconds.
        dead_after: After how much silence it is presumed dead, in microseconds; the same for all who ask.
        polling: How often it is looked for what is due.
        draw_ppm: How much of the jitter of its polling is added; another for each process.
        deaths_max: After how many deaths of its owners an invocation is run no more.
    """

    slots: int = 10
    batch: int = 100
    drain: Duration = 20 * SECOND
    leave: Duration = 5 * SECOND
    beat_every: Duration = 5 * SECOND
    dead_after: Duration = DEAD_AFTER
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    draw_ppm: int = 0
    deaths_max: int = 5

    def __attrs_post_init__(self) -> None:
        check_int(self.slots, "a number of slots", 1)
        check_int(self.batch, "a number of runs", 1, UPDATES_MAX)
        check_int(self.drain, "a time to drain in microseconds", 0)
        check_int(self.leave, "a time to leave in microseconds", 0)
        check_int(self.beat_every, "an interval of beats in microseconds", 1)
        check_int(self.dead_after, "a time of silence in microseconds", self.beat_every + 1)
        check_type(self.polling, PollingBounds, "the bounds of an interval")
        check_int(self.draw_ppm, "a draw in parts per million", 0, PPM)
        check_int(self.deaths_max, "a number of deaths", 1)

    def step(self, state: DispatchState, event: DispatchEvent) -> DispatchStep:
        """What follows from an event.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: An argument is of another type.
        """
        check_type(state, DispatchState, "a state of a dispatch")
        _check_event(event)
        if state.is_stopped:
            return Step(state)
        return _onward(self, _told(self, state, event), event.at)


# --- runs -------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Run:
    """An invocation that runs here.

    Invariants: the key and the task are not empty; 1 <= version, longest, tries; 0 <= deaths.

    Attributes:
        key: Its id.
        version: Of its record, since it runs: whoever writes it is to find it so.
        task: The name of its task.
        longest: How long its handler may take, in microseconds; None for any time.
        policy: When it is tried again, if that is too long; None for never.
        tries: How many runs of it have begun, this one included.
        deaths: How many of these were taken from owners that were gone.
    """

    key: str
    version: int
    task: str
    longest: Duration | None = None
    policy: Policy | None = None
    tries: int = 1
    deaths: int = 0

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_int(self.version, "the version of a record", 1)
        check_name(self.task, "a task")
        if self.longest is not None:
            check_int(self.longest, "the longest duration of a handler in microseconds", 1)
        check_type(self.policy, (Policy, NoneType), "a policy")
        check_int(self.tries, "a number of runs", 1)
        check_int(self.deaths, "a number of deaths", 0)


class InterruptReason(Enum):
    """Why a handler is interrupted."""

    CANCEL = "it was cancelled"
    KILL = "it is to run elsewhere"
    LOST = "it is another's now, or has ended"
    TOO_LONG = "it has taken longer than its task allows"
    SILENT = "this process was silent for too long"
    STOPPING = "the time to stop is over"
    LATE = "it was taken ahead, and has waited for too long"


_ASKED: Final = (InterruptReason.CANCEL, InterruptReason.KILL, InterruptReason.LOST)


@final
@attrs.frozen
class Outcome:
    """What a run has come to.

    Attributes:
        run: The run.
        life: Under which it was taken.
        end: How it has ended.
        is_last: Whether that is all that can be said: if the store refuses it, it is left as it is.
    """

    run: Run
    life: int
    end: End
    is_last: bool = False


# --- commands and events ----------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Stray:
    """An invocation that is in the name of a process, and not known to be in its hands.

    Attributes:
        key: Its id.
        record: What its record is.
        tries: How many runs of it have begun.
        limited_by: The set that it is of; None for none.
    """

    key: str
    record: StatusRecord
    tries: int
    limited_by: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.record, StatusRecord, "a record")
        check_int(self.tries, "a number of runs", 0)
        check_type(self.limited_by, (str, NoneType), "a set of invocations")


_Runs: TypeAlias = tuple[Run, ...]
_Ended: TypeAlias = tuple[tuple[Run, End | None], ...]
_Asked: TypeAlias = tuple[tuple[Run, InterruptReason], ...]


@final
@attrs.frozen
class Held:
    """What nobody takes from: these queues, and these tasks."""

    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()


@final
@attrs.frozen
class RunsFound:
    """What a look has found.

    Attributes:
        runs: The runs that it has begun.
        is_more: Whether there may be more that is due.
        due_in: After how long the next one is due, in microseconds; None where that is not known.
        lost: How many others have taken meanwhile.
        turn: Where the next look begins.
    """

    runs: _Runs = ()
    is_more: bool = False
    due_in: Duration | None = None
    lost: int = 0
    turn: str | None = None


@final
@attrs.frozen(cache_hash=True)
class Take(Effect[RunsFound]):
    """Take what is due, so much at most, and nothing that is held, as the member of this life (`Taker.take`)."""

    life: int
    most: int
    held: Held = Held()
    factor: int = 1
    turn: str | None = None

    def __str__(self) -> str:
        return f"take up to {self.most}"


@final
@attrs.frozen(cache_hash=True)
class Handle(Effect["_Ended"]):
    """Call the handlers of these runs; any number of events tells what they have come to."""

    runs: _Runs

    def __str__(self) -> str:
        return f"handle {len(self.runs)}"


@final
@attrs.frozen(cache_hash=True)
class Resume(Effect[None]):
    """Let these go on, which have waited: they have slots again, or were interrupted."""

    runs: _Runs

    def __str__(self) -> str:
        return f"resume {len(self.runs)}"


@final
@attrs.frozen(cache_hash=True)
class Interrupt(Effect[None]):
    """End the handlers of these runs."""

    runs: _Runs
    why: InterruptReason

    def __str__(self) -> str:
        return f"interrupt {len(self.runs)}: {self.why.value}"


@final
@attrs.frozen(cache_hash=True)
class WriteEnds(Effect["tuple[Outcome, ...]"]):
    """Write down what these runs have come to; it replies those of which nobody knows whether that is done."""

    ends: tuple[Outcome, ...]

    def __str__(self) -> str:
        return f"end {len(self.ends)}"


@final
@attrs.frozen
class Heeded:
    """What a process is told with a beat.

    Attributes:
        asked: Of which runs what was asked, or that they are lost.
        strays: What else is in its name.
    """

    asked: _Asked = ()
    strays: tuple[Stray, ...] = ()


@final
@attrs.frozen(cache_hash=True)
class Beat(Effect["Heeded | None"]):
    """Join as the member of this life, or beat as it; then look after these runs, and give back which of these strays still are
    as they were. It replies None where that member is gone.
    """

    life: int
    runs: _Runs
    strays: tuple[Stray, ...] = ()

    def __str__(self) -> str:
        return f"beat, and look after {len(self.runs)}"


@final
@attrs.frozen(cache_hash=True)
class Leave(Effect[None]):
    """Be no member any more."""

    life: int

    def __str__(self) -> str:
        return "leave"


@final
@attrs.frozen(cache_hash=True)
class StartDispatchTimer(Effect[None]):
    """Send `DispatchTimerFired` after that time, in microseconds, and not when the last one asked for it."""

    duration: Duration

    def __str__(self) -> str:
        return f"wake in {seconds(self.duration)}"


DispatchCommand: TypeAlias = Take | Handle | Resume | Interrupt | WriteEnds | Beat | Leave | StartDispatchTimer


@final
@attrs.frozen
class DispatchTimerFired:
    """The timer has fired; also the first event."""

    at: Instant


@final
@attrs.frozen
class RunsTaken:
    """A look has ended, with nothing where it failed."""

    at: Instant
    command: Take
    found: RunsFound
    has_failed: bool = False


@final
@attrs.frozen
class HandlersEnded:
    """Handlers have come to their ends; None where one was interrupted before it came to anything."""

    at: Instant
    ended: _Ended


@final
@attrs.frozen
class EndsOutcome:
    """What a request to write ends comes to.

    Attributes:
        left: Those of which nobody knows whether they are written.
        is_more: Whether somebody is due by that.
        lost: Those that are not written, for their invocations had gone on without them.
    """

    left: tuple[Outcome, ...] = ()
    is_more: bool = False
    lost: tuple[Outcome, ...] = ()


@final
@attrs.frozen
class EndsWritten:
    """Ends are written, but for those of which nobody knows, and those whose invocations had gone on without them (`lost`); where
    somebody waited for what they had, he is due (`is_more`).
    """

    at: Instant
    command: WriteEnds
    left: tuple[Outcome, ...] = ()
    is_more: bool = False
    lost: tuple[Outcome, ...] = ()


@final
@attrs.frozen
class EndsRefused:
    """The store refuses to write these ends, or one of them."""

    at: Instant
    command: WriteEnds


@final
@attrs.frozen
class Beaten:
    """What became of a beat.

    Attributes:
        at: When.
        command: The beat.
        is_alive: Whether that member is; None where nobody knows.
        heeded: What it was told.
    """

    at: Instant
    command: Beat
    is_alive: bool | None
    heeded: Heeded = Heeded()


@final
@attrs.frozen
class Left:
    """It is no member any more, or nobody knows."""

    at: Instant


@final
@attrs.frozen
class Announced:
    """Something is due.

    Attributes:
        at: When that was said.
        due: When it is due; None for now.
    """

    at: Instant
    due: Instant | None = None


@final
@attrs.frozen
class HeldChanged:
    """From now on nothing is taken from these, and all else is."""

    at: Instant
    held: Held


@final
@attrs.frozen
class RunWaits:
    """A handler waits for others, and needs no slot meanwhile."""

    at: Instant
    run: Run


@final
@attrs.frozen
class RunGoesOn:
    """A handler waits for others no more, for whatever reason: it needs a slot."""

    at: Instant
    run: Run


@final
@attrs.frozen
class DispatchStopRequested:
    """It is to stop; said once more, it gives its handlers no more time."""

    at: Instant


DispatchEvent: TypeAlias = (
    DispatchTimerFired | RunsTaken | HandlersEnded | EndsWritten | EndsRefused | Beaten | Left
    | Announced | HeldChanged | RunWaits | RunGoesOn | DispatchStopRequested
)  # fmt: skip
_EVENTS: Final = (
    DispatchTimerFired, RunsTaken, HandlersEnded, EndsWritten, EndsRefused, Beaten, Left,
    Announced, HeldChanged, RunWaits, RunGoesOn, DispatchStopRequested,
)  # fmt: skip


def dispatch_event_for(command: Effect[object], reply: object, at: Instant) -> DispatchEvent | None:
    """The event that says what became of a command; None for those that are not answered.

    Args:
        command: The command.
        reply: What it was answered, a Failure included.
        at: The machine's monotonic clock, read AFTER the answer.

    Raises:
        Misuse: It is not a command of a dispatch, not an answer to it, or not a time.
    """
    check_type(at, Instant, "the time")
    event: DispatchEvent
    match command:
        case Take():
            has_failed = isinstance(reply, Failure)
            event = RunsTaken(at, command, RunsFound() if has_failed else cast("RunsFound", reply), has_failed)
        case Handle():
            event = HandlersEnded(at, cast("_Ended", reply))
        case WriteEnds() if isinstance(reply, Refused):
            event = EndsRefused(at, command)
        case WriteEnds(ends):
            written = EndsOutcome(ends) if isinstance(reply, Failure) else cast("EndsOutcome", reply)
            check_type(written, EndsOutcome, "what a request to write ends has come to")
            event = EndsWritten(at, command, written.left, written.is_more, written.lost)
        case Beat() if isinstance(reply, Failure):
            event = Beaten(at, command, None)
        case Beat():
            event = Beaten(at, command, reply is not None, Heeded() if reply is None else cast("Heeded", reply))
        case Leave():
            event = Left(at)
        case StartDispatchTimer():
            event = DispatchTimerFired(at)
        case Interrupt() | Resume():
            return None
        case _:
            raise Misuse(f"{typed(command)} is not a command of a dispatch")
    _check_event(event)
    return event


# --- states -----------------------------------------------------------------------------------------------------------


class Slot(Enum):
    """What an active handler has."""

    NEXT = "it is called when there is a slot"
    HAS = "it has a slot"
    AWAY = "it waits for others, and has given its slot away"
    WANTS = "it wants to go on, and waits for a slot"
    WITHOUT = "it was interrupted while it waited, and goes on without a slot"


@final
@attrs.frozen
class Active:
    """A run whose handler has not ended.

    Attributes:
        run: The run.
        life: Under which it was taken.
        taken: When it was taken.
        since: When it was called; None where it is about to be.
        slot: Whether it has a slot.
        asked: What was asked of it, and is to be obeyed; None for nothing.
        why: Why it was interrupted; None where it was not.
    """

    run: Run
    life: int
    taken: Instant
    since: Instant | None = None
    slot: Slot = Slot.NEXT
    asked: InterruptReason | None = None
    why: InterruptReason | None = None


@final
@attrs.frozen
class DispatchState:
    """Where a dispatch stands; a new one is `DispatchState()`.

    Attributes:
        life: The number of its life as a member.
        alive_until: Until then it is known to be alive; None where it is not.
        beat_at: When it beats next; None for now.
        beating: The beat under way, and when it was sent.
        pace: When it looks next, and the interval after that; None where it never has.
        looking: The look under way.
        looked_at: When the last one was sent; None where none was.
        look_took: How long the last one took that was answered, in microseconds.
        handled: How many handlers have ended since then.
        ahead: How many runs are taken ahead of slots.
        factor: Among how many times what is taken it chooses (`tidegate.retries.spread`).
        turn: Where it looks next.
        expected: Of what is known to be due later, the first time, and the last.
        active: The handlers that have not ended, those that wait included.
        ended: What has ended, and is not written down yet.
        alone: How many of those, from the first on, are written one by one.
        ending: The request under way that writes ends.
        end_at: Before then no end is written; None for now.
        held: What is taken from by nobody.
        doubted: What is in its name and not in its hands; the look under way may tell of it.
        strays: What is in its name and not in its hands.
        stop_at: When handlers are interrupted, because it is to stop; None where it is not.
        leaving: Whether it is leaving; None where it has left.
        wake_at: When its timer fires; None where none runs.
        runs_at: Before then no handler is to be interrupted; None where that is to be found out.
        is_stopped: It does nothing any more.
    """

    life: int = 1
    alive_until: Instant | None = None
    beat_at: Instant | None = None
    beating: tuple[Beat, Instant] | None = None
    pace: Pace | None = None
    looking: Take | None = None
    looked_at: Instant | None = None
    look_took: Duration = 0
    handled: int = 0
    ahead: int = 0
    factor: int = 1
    turn: str | None = None
    expected: tuple[Instant, Instant] | None = None
    active: tuple[Active, ...] = ()
    ended: tuple[Outcome, ...] = ()
    alone: int = 0
    ending: WriteEnds | None = None
    end_at: Instant | None = None
    held: Held = Held()
    doubted: tuple[Stray, ...] = ()
    strays: tuple[Stray, ...] = ()
    stop_at: Instant | None = None
    leaving: bool | None = False
    wake_at: Instant | None = None
    runs_at: Instant | None = None
    is_stopped: bool = False

    def may_call(self, at: Instant) -> bool:
        """Whether a handler may be called that is to be, and was not interrupted; where not, it has come to nothing.

        Args:
            at: The machine's monotonic clock, read last.

        Raises:
            Misuse: It is not a time.
        """
        check_type(at, Instant, "the time")
        return self.alive_until is not None and self.alive_until - at > 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that is to be written down."""
        return not (self.looking or self.active or self.ended or self.ending)

    def __str__(self) -> str:
        how = "stopped" if self.is_stopped else "to stop" if self.stop_at else "at work"
        return f"{how}: {len(self.active)} handlers, {len(self.ended)} ends to write"


DispatchStep: TypeAlias = Step[DispatchState, DispatchCommand]


# --- what events tell -------------------------------------------------------------------------------------------------


def _check_event(event: object) -> None:
    """Raise Misuse unless it is an event of a dispatch, made of what it says."""
    check_type(event, _EVENTS, "an event of a dispatch")
    check_type(getattr(event, "at", None), Instant, "the time")
    match event:
        case RunsTaken(_, command, found, has_failed):
            check_type(command, Take, "a look")
            check_type(has_failed, bool, "whether it has failed")
            check_type(found, RunsFound, "what a look has found")
            check_tuple(found.runs, Run, "a run")
        case HandlersEnded(_, ended):
            check_tuple(ended, tuple, "a run and what it has come to")
            for each in ended:
                check_int(len(each), "the length of a pair", 2, 2)
                check_type(each[0], Run, "a run")
                check_type(each[1], (Succeeded, Failed, GivenBack, Cancelled, NoneType), "how a run has ended")
        case EndsWritten(_, command, left, is_more, lost):
            check_type(command, WriteEnds, "a request to write ends")
            check_tuple(left, Outcome, "the end of a run")
            check_tuple(lost, Outcome, "the end of a run")
            check_type(is_more, bool, "whether somebody is due by that")
        case EndsRefused(_, command):
            check_type(command, WriteEnds, "a request to write ends")
        case Beaten(_, command, is_alive, heeded):
            check_type(command, Beat, "a beat")
            check_type(is_alive, (bool, NoneType), "whether a member is alive")
            check_type(heeded, Heeded, "what a process is told")
            check_tuple(heeded.strays, Stray, "an invocation in the name of a process")
            check_tuple(heeded.asked, tuple, "a run and what was asked of it")
            for order in heeded.asked:
                check_int(len(order), "the length of a pair", 2, 2)
                check_type(order[0], Run, "a run")
                if order[1] not in _ASKED:
                    raise Misuse(f"{typed(order[1])} is nothing that is asked of a run")
        case Announced(_, due):
            check_type(due, (Instant, NoneType), "the time at which something is due")
        case HeldChanged(_, held):
            check_type(held, Held, "what is held")
        case RunWaits(_, run) | RunGoesOn(_, run):
            check_type(run, Run, "a run")
        case _:
            pass


def _told(rules: DispatchRules, state: DispatchState, event: DispatchEvent) -> DispatchState:
    """The state with what the event tells."""
    match event:
        case DispatchTimerFired(at):
            is_over = state.wake_at is not None and state.wake_at - at <= 0
            return attrs.evolve(state, wake_at=None) if is_over else state
        case RunsTaken():
            return _strayed(_taken(rules, state, event))
        case HandlersEnded(_, ended):
            return _handled(state, ended)
        case EndsWritten():
            return _written(rules, state, event)
        case EndsRefused():
            return _refused(state, event)
        case Beaten():
            return _beaten(rules, state, event)
        case Left():
            return attrs.evolve(state, leaving=None) if state.leaving else state
        case Announced(at, due):
            return _announced(rules, state, at) if due is None else _expected(state, due)
        case HeldChanged(_, held):
            return attrs.evolve(state, held=held)
        case RunWaits(_, run):
            return _moved(state, run, _ON, Slot.AWAY)
        case RunGoesOn(_, run):
            return _moved(state, run, frozenset({Slot.AWAY}), Slot.WANTS)
        case DispatchStopRequested(at):
            until = at if state.stop_at else at + rules.drain
            is_later = state.stop_at is not None and at - state.stop_at >= 0
            return state if is_later else attrs.evolve(state, stop_at=until, runs_at=None)
        case _:
            assert_never(event)


def _taken(rules: DispatchRules, state: DispatchState, event: RunsTaken) -> DispatchState:
    """A look has ended. What was taken by one who is to stop, or under a life that is over, is given back at once."""
    if state.looking != event.command:
        return state
    at, found = event.at, event.found
    factor = widened(event.command.factor, len(found.runs), found.lost)
    took = 0 if state.looked_at is None else max(at - state.looked_at, 0)
    state = attrs.evolve(state, looking=None, look_took=took, factor=factor, turn=found.turn)
    if found.is_more or len(found.runs) == event.command.most:
        state = _announced(rules, state, at)
    elif found.runs:  # where fewer were found, there are no more that nobody announces, for a moment
        state = _announced(rules, state, at + rules.polling.least)
    if found.due_in is not None:
        state = _expected(state, at + found.due_in)
    life = event.command.life
    if life != state.life or state.stop_at is not None:
        why = InterruptReason.STOPPING if life == state.life else InterruptReason.SILENT
        return attrs.evolve(
            state, ended=(*state.ended, *(Outcome(run, life, _end(run, None, why)) for run in found.runs))
        )
    ends = tuple(Outcome(run, life, _died(run)) for run in found.runs if run.deaths >= rules.deaths_max)
    begun = tuple(Active(run, life, at) for run in found.runs if run.deaths < rules.deaths_max)
    state = attrs.evolve(state, ended=(*state.ended, *ends)) if ends else state
    return attrs.evolve(state, active=(*state.active, *begun), runs_at=None) if begun else state


def _died(run: Run) -> Failed:
    said = f"{run.deaths} times whoever ran it died, or was silent for so long that it was taken for dead"
    return Failed(RunError("ProcessDied", said, above=("Exception", "BaseException")))


def _handled(state: DispatchState, ended: _Ended) -> DispatchState:
    """Handlers have ended; who was lost is heard by nobody."""
    answers = dict(ended)
    over = tuple(
        Outcome(each.run, each.life, _end(each.run, answers[each.run], each.why))
        for each in state.active
        if each.run in answers and each.why is not InterruptReason.LOST
    )
    active = tuple(each for each in state.active if each.run not in answers)
    handled = state.handled + len(state.active) - len(active)
    return attrs.evolve(state, active=active, ended=(*state.ended, *over), handled=handled)


def _end(run: Run, answer: End | None, why: InterruptReason | None) -> End:
    """How a run has ended. Whoever has succeeded although it was interrupted has, unless its time was over; what else an interrupted
    one says is of no account.
    """
    is_late = why is InterruptReason.TOO_LONG
    if answer is not None and (why is None or (isinstance(answer, Succeeded) and not is_late)):
        return answer
    match why:
        case InterruptReason.CANCEL:
            return Cancelled()
        case InterruptReason.TOO_LONG:
            said = f"it took longer than {seconds(run.longest or 0)}"
            return Failed(RunError("TimeoutError", said, above=("OSError", "Exception", "BaseException")), run.policy)
        case _:
            return GivenBack()


_END_AGAIN: Final = SECOND
"""How long it waits before it asks again for what nobody has confirmed."""


def _written(rules: DispatchRules, state: DispatchState, event: EndsWritten) -> DispatchState:
    if event.is_more:
        state = _announced(rules, state, event.at)
    if state.ending != event.command:
        return state
    left = tuple(each for each in event.command.ends if each in event.left)
    end_at = event.at + _END_AGAIN if left else None
    return attrs.evolve(state, ending=None, ended=(*left, *state.ended), end_at=end_at)


def _refused(state: DispatchState, event: EndsRefused) -> DispatchState:
    """Of many, nobody knows whose fault it is: each is asked for alone. One alone has failed; and if that is refused, too, it is left."""
    if state.ending != event.command:
        return state
    ends = event.command.ends
    alone = max(len(ends), state.alone)
    if len(ends) == 1:
        ends = () if ends[0].is_last else (attrs.evolve(ends[0], end=_REFUSED, is_last=True),)
    return attrs.evolve(state, ending=None, ended=(*ends, *state.ended), alone=alone)


_REFUSED: Final = Failed(
    RunError("Refused", "the store refuses to keep what it has come to", above=("Exception", "BaseException"))
)


def _beaten(rules: DispatchRules, state: DispatchState, event: Beaten) -> DispatchState:
    if state.beating is None or state.beating[0] != event.command:
        return state
    sent = state.beating[1]
    state = attrs.evolve(state, beating=None)
    if event.command.life != state.life:
        return state
    if event.is_alive is None:
        return attrs.evolve(state, beat_at=event.at + rules.beat_every // _SOON)
    if not event.is_alive:
        return _over(state)
    asked = dict(event.heeded.asked)
    active = tuple(_asked(each, asked.get(each.run)) for each in state.active) if asked else state.active
    state = attrs.evolve(
        state, alive_until=sent + rules.dead_after, active=active, runs_at=None if asked else state.runs_at
    )
    return _strayed(attrs.evolve(state, strays=(), doubted=event.heeded.strays))


_SOON: Final = 4
"""After a beat that nobody has answered it beats again after this part of the interval."""


def _asked(each: Active, asked: InterruptReason | None) -> Active:
    """Who is interrupted already stays so, and is not heard if it is lost."""
    if each.why is None:
        return attrs.evolve(each, asked=asked or each.asked)
    return attrs.evolve(each, why=asked) if asked is InterruptReason.LOST else each


def _strayed(state: DispatchState) -> DispatchState:
    """What is in its hands is no stray; what else is doubted is known to be one once no look is under way."""
    if not state.doubted:
        return state
    ending = () if state.ending is None else state.ending.ends
    runs = (*(each.run for each in state.active), *(each.run for each in (*state.ended, *ending)))
    hands = {(run.key, run.version) for run in runs}
    strays = tuple(each for each in state.doubted if (each.key, each.record.version) not in hands)
    if state.looking is not None:
        return attrs.evolve(state, doubted=strays)
    return attrs.evolve(state, doubted=(), strays=strays)


def _over(state: DispatchState) -> DispatchState:
    """Its life is over, and another one begins with the next beat."""
    return attrs.evolve(state, life=state.life + 1, alive_until=None, beat_at=None, runs_at=None, doubted=(), strays=())


_ON: Final = frozenset({Slot.HAS, Slot.WANTS, Slot.WITHOUT})
"""Who may wait: also who wants its slot again, for of the tasks of one handler one begins to wait as the last one has waited."""


def _moved(state: DispatchState, run: Run, before: frozenset[Slot], after: Slot) -> DispatchState:
    """Who wants a slot stands behind all others who do."""
    moved = tuple(attrs.evolve(each, slot=after) for each in state.active if each.run == run and each.slot in before)
    if not moved:
        return state
    return attrs.evolve(state, active=(*(each for each in state.active if each.run != run), *moved))


def _announced(rules: DispatchRules, state: DispatchState, at: Instant) -> DispatchState:
    """Something is due now."""
    pace = state.pace or fresh(rules.polling, at)
    return attrs.evolve(state, pace=woken(rules.polling, pace, at))


def _expected(state: DispatchState, due: Instant) -> DispatchState:
    """Something is due then."""
    first, last = state.expected or (due, due)
    return attrs.evolve(state, expected=(due if due - first < 0 else first, due if due - last > 0 else last))


# --- what follows -----------------------------------------------------------------------------------------------------


def _onward(rules: DispatchRules, state: DispatchState, at: Instant) -> DispatchStep:
    """What follows from a state: what is interrupted, called, resumed, written down, looked for."""
    commands: list[DispatchCommand] = []
    if state.alive_until is not None and at - state.alive_until >= 0:
        state = _over(state)
    if state.runs_at is None or at - state.runs_at >= 0:
        state = _interrupting(state, at, commands)
        state = attrs.evolve(state, runs_at=_next_of_runs(state))
    state = _ending(rules, state, at, commands)
    state = _resuming(rules, state, commands)
    state = _calling(rules, state, at, commands)
    is_late = state.stop_at is not None and at - (state.stop_at + rules.leave) >= 0
    if state.stop_at is None:
        state = _looking(rules, _arrived(rules, state, at), at, commands)
    elif is_late or (state.is_idle and state.leaving is None):
        return Step(attrs.evolve(state, is_stopped=True), tuple(commands))
    elif state.is_idle and not state.leaving:
        state = attrs.evolve(state, leaving=True)
        commands.append(Leave(state.life))
    state = _beating(rules, state, at, commands)
    wake_at = _next(rules, state, at)
    if wake_at is not None and wake_at != state.wake_at:
        commands.append(StartDispatchTimer(max(wake_at - at, 0)))
    return Step(attrs.evolve(state, wake_at=wake_at), tuple(commands))


def _interrupting(state: DispatchState, at: Instant, commands: list[DispatchCommand]) -> DispatchState:
    found = [(each, _reason(state, each, at)) for each in state.active]
    if not any(reason for _, reason in found):
        return state
    for why in InterruptReason:
        runs = tuple(each.run for each, reason in found if reason is why and each.since is not None)
        if runs:
            commands.append(Interrupt(runs, why))
    # Of what was never called nothing has begun: that is its end, unless it is another's.
    over = tuple(
        Outcome(each.run, each.life, _end(each.run, None, reason))
        for each, reason in found
        if reason and each.since is None and reason is not InterruptReason.LOST
    )
    active = tuple(
        attrs.evolve(each, why=reason) if reason else each for each, reason in found if not reason or each.since
    )
    return attrs.evolve(state, active=active, ended=(*state.ended, *over))


def _reason(state: DispatchState, each: Active, at: Instant) -> InterruptReason | None:
    """Why this handler is to be interrupted now."""
    if each.why is not None:
        return None
    if each.asked is not None:
        return each.asked
    if each.life != state.life:
        return InterruptReason.SILENT
    if each.run.longest is not None and each.since is not None and at - each.since >= each.run.longest:
        return InterruptReason.TOO_LONG
    if state.stop_at is not None and (each.since is None or at - state.stop_at >= 0):
        return InterruptReason.STOPPING
    return InterruptReason.LATE if each.since is None and at - each.taken >= LATE else None


def _calling(rules: DispatchRules, state: DispatchState, at: Instant, commands: list[DispatchCommand]) -> DispatchState:
    """Slots for what is next, in the order in which it was taken."""
    room = _room(rules, state)
    runs = tuple(islice((each.run for each in state.active if each.since is None), room)) if room else ()
    if not runs:
        return state
    commands.append(Handle(runs))
    chosen = {*runs}
    called = (attrs.evolve(each, since=at, slot=Slot.HAS) if each.run in chosen else each for each in state.active)
    state = attrs.evolve(state, active=tuple(called))
    return attrs.evolve(state, runs_at=_next_of_runs(state)) if any(run.longest for run in runs) else state


def _resuming(rules: DispatchRules, state: DispatchState, commands: list[DispatchCommand]) -> DispatchState:
    """Slots for those who want to go on, in the order in which they wanted to. Who was interrupted goes on in any case."""
    wanting = [each for each in state.active if each.slot is Slot.WANTS]
    if not wanting:
        return state
    whole = [each.run for each in wanting if each.why is None]
    given = {each.run: Slot.WITHOUT for each in wanting if each.why is not None}
    given |= dict.fromkeys(whole[: _room(rules, state)], Slot.HAS)
    if not given:
        return state
    commands.append(Resume(tuple(given)))
    resumed = (attrs.evolve(each, slot=given.get(each.run, each.slot)) for each in state.active)
    return attrs.evolve(state, active=tuple(resumed))


def _ending(rules: DispatchRules, state: DispatchState, at: Instant, commands: list[DispatchCommand]) -> DispatchState:
    if state.ending is not None or not state.ended or (state.end_at is not None and at - state.end_at < 0):
        return state
    most = 1 if state.alone else rules.batch
    found: dict[str, int] = {}  # of each invocation the first end, and of one owner: that is what a request takes
    for number, each in enumerate(state.ended):
        if each.life == state.ended[0].life and len(found) < most:
            found.setdefault(each.run.key, number)
    chosen = {*found.values()}
    command = WriteEnds(tuple(state.ended[number] for number in sorted(chosen)))
    commands.append(command)
    left = tuple(each for number, each in enumerate(state.ended) if number not in chosen)
    return attrs.evolve(state, ended=left, ending=command, end_at=None, alone=max(state.alone - 1, 0))


def _looking(rules: DispatchRules, state: DispatchState, at: Instant, commands: list[DispatchCommand]) -> DispatchState:
    """Look for what is due, as far as there is room."""
    if not _may_look(rules, state):
        return state
    asked = turn(rules.polling, {"": state.pace or fresh(rules.polling, at)}, at, rules.draw_ppm)
    if not isinstance(asked, Ask):
        return state
    state = attrs.evolve(state, ahead=_ahead(rules, state, at))
    most = _most(rules, state)
    if not most:
        return state
    command = Take(state.life, most, state.held, state.factor, state.turn)
    commands.append(command)
    return attrs.evolve(state, looking=command, pace=asked.pace, looked_at=at, handled=0)


AHEAD: Final = 100 * MILLISECOND
"""As many runs are taken ahead of slots as would end in this time, at least."""
LATE: Final = SECOND
"""After so long what was taken ahead is given back, unless it was called."""


def _ahead(rules: DispatchRules, state: DispatchState, at: Instant) -> int:
    """How many would end within `AHEAD`, or while two looks last, at the rate since the last one was sent."""
    if state.looked_at is None:
        return 0
    span = min(max(AHEAD, 2 * state.look_took), LATE // 2)
    return min(state.handled * span // max(at - state.looked_at, 1), rules.batch)


def _most(rules: DispatchRules, state: DispatchState) -> int:
    """How many are asked for: none while half of what is taken ahead waits for slots, or somebody wants its slot again."""
    waiting = sum(each.slot is Slot.NEXT for each in state.active)
    if 2 * waiting > state.ahead or any(each.slot is Slot.WANTS for each in state.active):
        return 0
    return min(max(_room(rules, state) + state.ahead - waiting, 0), rules.batch)


def _arrived(rules: DispatchRules, state: DispatchState, at: Instant) -> DispatchState:
    """The state in which the times that were expected have come."""
    if state.expected is None or state.expected[0] - at > 0:
        return state
    _, last = state.expected
    soon = at + rules.polling.least
    left = (soon if soon - last < 0 else last, last) if last - at > 0 else None
    return _announced(rules, attrs.evolve(state, expected=left), at)


def _beating(rules: DispatchRules, state: DispatchState, at: Instant, commands: list[DispatchCommand]) -> DispatchState:
    """Beat, unless it leaves: who has left does not beat."""
    if not _may_beat(state) or (state.beat_at is not None and at - state.beat_at < 0):
        return state
    runs = tuple(each.run for each in state.active if each.life == state.life and each.why is not InterruptReason.LOST)
    command = Beat(state.life, runs, state.strays)
    commands.append(command)
    return attrs.evolve(state, beating=(command, at), beat_at=at + rules.beat_every)


def _may_beat(state: DispatchState) -> bool:
    return state.beating is None and state.leaving is False


def _next_of_runs(state: DispatchState) -> Instant | None:
    """When a handler is to be interrupted; None where none is."""
    times: list[Instant] = []
    for each in state.active:
        if each.why is not None:
            continue
        if each.since is None:
            times.append(each.taken + LATE)
        elif each.run.longest is not None:
            times.append(each.since + each.run.longest)
        if state.stop_at is not None:
            times.append(state.stop_at)
    return _first(times)


def _next(rules: DispatchRules, state: DispatchState, at: Instant) -> Instant | None:
    """When something is to be done although nothing happens."""
    times = [each for each in (state.runs_at, state.alive_until) if each is not None]
    if state.ended and state.ending is None and state.end_at is not None:
        times.append(state.end_at)
    if _may_beat(state):
        times.append(state.beat_at or at)
    if state.stop_at is not None:
        times.append(state.stop_at if at - state.stop_at < 0 else state.stop_at + rules.leave)
    elif _may_look(rules, state):
        asked = turn(rules.polling, {"": state.pace or fresh(rules.polling, at)}, at, rules.draw_ppm)
        times.append(asked.until if isinstance(asked, Wait) else at)
        times += [] if state.expected is None else [state.expected[0]]
    return _first(times)


def _first(times: list[Instant]) -> Instant | None:
    return min(times, key=lambda each: each - times[0], default=None)


def _room(rules: DispatchRules, state: DispatchState) -> int:
    """How many more handlers may be active. Where ends cannot be written, they hold up what would end next."""
    used = sum(each.slot is Slot.HAS for each in state.active)
    return max(rules.slots - used - max(len(state.ended) - rules.batch, 0), 0)


def _may_look(rules: DispatchRules, state: DispatchState) -> bool:
    return state.looking is None and state.alive_until is not None and _most(rules, state) > 0
