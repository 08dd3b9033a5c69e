"""Which runs of reactive tasks are under way in a process, and what is asked for next?

Every process that works has a pool: it looks for what is due, as many at a time as it has room for, has the handlers called,
renews the leases of those that take long, and has the ends written down, many in a request (`tidegate.reactive.reactive_task`,
whose programs carry out what the pool commands). How often it looks is `tidegate.retries.polling`, a pace for each task.

This is a reducer: `step(state, event)` answers the next state and commands. What becomes of a command comes back as an event,
any time later; `pool_event_for` says which. Each event carries the time of the machine's own monotonic clock. A lease is counted
from before the request that claimed or renewed it was sent, so the pool takes it for over before anybody else may. A process may stand
still at any time, and goes on where it was, before it looks at its clock: so whoever carries out `Handle` asks `PoolState.may_call` as
the last thing before it calls a handler.

    Take        claim what is due of a task, so many at most           its runs, which are handled at once
    Glance      ask in how long something of many tasks is due         the tasks, each with when
    Handle      call the handlers of these runs                        what each has come to, one after the other
    Renew       let the leases of these runs go on                     what became of each
    End         write down what these runs have come to                when that is done, and of which nobody knows
    GiveBack    give back what is in its name, and not in these hands  how many were
    Interrupt   cancel the handlers of these runs                      what each has come to
    Granted     so many runs may be claimed by who plans               `RunsTaken`, with those that were
    StartPoolTimer  tell it when this time is over, and not when the one before would have been

A handler is interrupted that takes longer than its task allows (it has failed then), whose lease is lost (nobody hears of its
end), and that still runs when the time to stop is over (it is called again, elsewhere, at once). One that has returned by then
has ended well all the same.

Whoever plans in this process asks first how many runs the pool has room for (`RoomAsked`), and claims so many in the write that plans
them (`ReactiveTask.plan_and_take`): what a pool grants is a look under way that another takes for it. It grants only what no look
that is due wants, so what is due longer is not passed over by what is planned now. Looks under way want whatever room there is, and
end soon, so it waits for those; or else what is planned without a grant makes the next look due, and that the next pass go without.

Tasks whose records are in one collection are polled by one request, however many they are (`PooledTask.records`), and one of them is
looked for when something of it is known to be due. What is due before the next glance is told by this one: a retry, a document
that comes to rest, and a lease that nobody renews, so that what a dead worker had is taken over as its lease ends.

A look that has failed may have claimed what nobody was told of, and so may one of which a claim arrives when nobody waits for it any
more. So the name of the process is looked through then, and again with each twelfth of the lease until such a claim's would be over;
in between looks, for what a look has claimed it may yet tell of.

An end that nobody confirms is asked for again, for as long as it takes: the process is alive, and until the lease is over nobody else
would end that run. It is not given back, for its handler has been called, and that was an attempt.

A task is looked for as soon as something of it is known to be due: because it is announced or glanced, as many were found as were asked for, it
has changed while it was processed, or a handler asked to be called later. Of the times that are known, the first and the last are kept, and in between it
is looked for every `least` of its polling: so many documents that are due one after the other cost no more than that.

Laws
    PW1  No more handlers run, and no more runs are asked for, than there are executors, both together.
    PW2  Each run that was taken is handled at most once, and its end is written down once, unless its lease was lost; it is written
         again only where nobody knew whether it was.
    PW3  A handler whose lease is over, by the clock of its machine, was interrupted; before that it was asked to be renewed.
    PW4  Of each task one look, one renewal and one request to write ends is under way at most, and none of a task that is
         paused, or throttled, is looked for.
    PW5  A handler that has taken longer than its task allows was interrupted, and has failed unless it has returned.
    PW6  Once it is to stop it takes nothing; when the time for that is over, what runs was interrupted; it stops when nothing
         is under way, and not before, but for what is under way still when the time to leave is over, too.
    PW7  Until it stops it awaits an answer or its timer.
    PW8  What is announced is looked for as soon as there is room, whatever is answered to earlier looks.
    PW9  What is known to be due later is looked for then, or within the least interval, where there is room.
    PW10 Room is granted only where no look is due that may be sent: nothing that is due longer waits for what is planned.
    PW11 Who asks for room is answered once: when the looks have ended that were under way, and no later.
    PW12 Tasks of one collection are glanced at together, all that are due for it at once, and none of them is looked for that is not
         known to be due.
    PW13 Where there is room, a glance that is due is sent before any look: one task that has much to do, and takes all room there is,
         keeps no other from being found to be due.
    PW14 A task whose look has failed is looked for again at its pace, ever more rarely, whatever is glanced meanwhile.
    PW15 For as long as a lease lasts after a look that did not tell of all that it may have claimed, what is in the name of the process
         is looked through at each twelfth of that, or as soon as no look is under way.
    PW16 While that is done no look of the task is under way, and all of its runs are named that are in hand: those that are handled,
         and those whose ends are to be written, or just are.
    PW17 An end that nobody confirms is asked for again a twelfth of the lease later, after a second at most and no sooner, until
         somebody tells what became of it.
    PW18 No handler is called, although that was commanded, when its lease may be another's.
    PW19 Where the transaction of a handler holds its record, so that its lease cannot be renewed, the lease is not taken for lost, and
         a renewal is asked for again after a twelfth of the lease.

Known not to work
    - Who stands still between that last look at its clock and the first line of a handler goes on with that line.
    - A handler that will not be cancelled holds its executor. It is left behind when the time to leave is over.
    - What another process plans, and is due at once, is found by the next glance.
    - Who stops does not wait for claims that may arrive late: their leases end.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, TypeVar, assert_never, cast, final

import attrs

from tidegate.model.effects import Effect, Failure
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import PPM, SECOND, Duration, Instant, seconds
from tidegate.model.operations import FOUND_MAX
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.completion import HandlerAnswer, Later
from tidegate.reactive.fetching import Idle, Run, SetAside
from tidegate.reactive.tasks import Claim, Why, WhyNot
from tidegate.retries.polling import Ask, Pace, PollingBounds, Wait, fresh, turn, woken
from tidegate.retries.spread import widened

__all__ = [
    "Announced", "DuesSeen", "End", "EndsWritten", "GiveBack", "GivenBack", "Glance", "Granted", "Handle", "HandlersEnded", "Interrupt", "InterruptReason", "PoolCommand",
    "PoolEvent", "PoolRules", "PoolState", "PoolStep", "PoolStopRequested", "PoolTimerFired", "PooledTask", "Renew",
    "RoomAsked", "RunsRenewed", "RunsTaken", "StartPoolTimer", "Take", "TaskThrottled", "TasksPaused", "Working", "pool_event_for",
]  # fmt: skip


# --- rules ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class PooledTask:
    """What a pool knows of a task.

    Invariants: the name is not empty; 1 <= lease, longest.

    Attributes:
        name: Of the task.
        lease: How long a claim holds unless it is renewed, in microseconds.
        polling: How often it is looked for what is due.
        longest: How long a handler may take, in microseconds; None for any time.
        records: Where its records are, for tasks that are polled together with all others there; None for one that is polled alone.
    """

    name: str
    lease: Duration
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    longest: Duration | None = None
    records: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a task")
        check_int(self.lease, "a lease in microseconds", 1)
        check_type(self.polling, PollingBounds, "the bounds of an interval")
        if self.longest is not None:
            check_int(self.longest, "the longest duration of a handler in microseconds", 1)
        if self.records is not None:
            check_name(self.records, "where records are")


@final
@attrs.frozen(kw_only=True)
class PoolRules:
    """How a process works.

    Invariants: each task has a name of its own; 1 <= executors; 1 <= batch <= FOUND_MAX; 0 <= drain, leave.

    Attributes:
        tasks: The tasks that it works on.
        executors: How many handlers run at a time.
        batch: How many runs are taken at once, at most.
        drain: How long handlers may go on once the pool is to stop, in microseconds.
        leave: How long it may take after that to write down what they have come to, in microseconds.
        draw_ppm: How much of the jitter of its polling is added, from 0 to PPM; another for each process.
    """

    tasks: tuple[PooledTask, ...]
    executors: int = 10
    batch: int = 100
    drain: Duration = 20 * SECOND
    leave: Duration = 5 * SECOND
    draw_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        check_tuple(self.tasks, PooledTask, "a task of a pool")
        names = [each.name for each in self.tasks]
        if len(set(names)) != len(names):
            raise Misuse("two tasks of one name in a pool", todo="give each a name of its own")
        check_int(self.executors, "a number of executors", 1)
        check_int(self.batch, "a number of runs", 1, FOUND_MAX)
        check_int(self.drain, "a time to drain in microseconds", 0)
        check_int(self.leave, "a time to leave in microseconds", 0)
        check_int(self.draw_ppm, "a draw in parts per million", 0, PPM)

    def step(self, state: PoolState, event: PoolEvent) -> PoolStep:
        """What follows from an event.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: An argument is of another type.
        """
        check_type(state, PoolState, "a state of a pool")
        _check_event(event)
        if state.is_stopped:
            return Step(state, _denied((event,) if isinstance(event, RoomAsked) else ()))
        return _onward(self, _told(self, state, event), event.at)

    def task(self, name: str) -> PooledTask | None:
        """The task of this name; None for one that this process does not work on."""
        return next((each for each in self.tasks if each.name == name), None)


# --- commands and events ----------------------------------------------------------------------------------------------

_Of = TypeVar("_Of", bound="tuple[object, ...]")
_Runs: TypeAlias = tuple[Run, ...]
_Answers: TypeAlias = tuple[tuple[Run, HandlerAnswer], ...]


@final
@attrs.frozen(cache_hash=True)
class Take(Effect["tuple[Run, ...]"]):
    """Claim what is due of this task, so many at most, drawn among so many times as many (`Fetcher.take`)."""

    task: str
    most: int
    factor: int = 1

    def __str__(self) -> str:
        return f"take up to {self.most} of {self.task}{f' among {self.factor * self.most}' if self.factor > 1 else ''}"


@final
@attrs.frozen(cache_hash=True)
class Glance(Effect["tuple[tuple[str, Duration], ...]"]):
    """Ask in how long something of these tasks is due, whose records are in one place (`fetching.dues`).

    Attributes:
        records: Where.
        tasks: Their names.
        within: What is due later need not be told, in microseconds.
    """

    records: str
    tasks: tuple[str, ...]
    within: Duration

    def __str__(self) -> str:
        return f"ask what of {len(self.tasks)} tasks of {self.records} is due within {seconds(self.within)}"


@final
@attrs.frozen(cache_hash=True)
class Granted(Effect[None]):
    """Who plans in this process may claim so many runs of a task; a look under way, unless it is none.

    Attributes:
        task: The name of the task.
        request: The id of the pass that asked.
        most: How many at most; whoever ends it need not know.
    """

    task: str
    request: str
    most: int = attrs.field(default=0, eq=False)

    def __str__(self) -> str:
        return f"let who plans {self.task} claim up to {self.most}"


@final
@attrs.frozen(cache_hash=True)
class Handle(Effect["tuple[tuple[Run, HandlerAnswer], ...]"]):
    """Call the handlers of these runs; any number of events tells what they have come to."""

    task: str
    runs: _Runs

    def __str__(self) -> str:
        return f"handle {len(self.runs)} of {self.task}"


@final
@attrs.frozen(cache_hash=True)
class Renew(Effect["tuple[Why | WhyNot | None, ...]"]):
    """Let the leases of these runs go on (`Completer.renew_all`); it replies what became of each."""

    task: str
    runs: _Runs

    def __str__(self) -> str:
        return f"renew {len(self.runs)} of {self.task}"


@final
@attrs.frozen(cache_hash=True)
class End(Effect[None]):
    """Write down what these runs have come to (`Completer.end`)."""

    task: str
    ended: _Answers

    def __str__(self) -> str:
        return f"end {len(self.ended)} of {self.task}"


@final
@attrs.frozen(cache_hash=True)
class GiveBack(Effect[int]):
    """Give back what of a task is in the name of this process, and not in these hands (`Fetcher.give_back`)."""

    task: str
    hands: _Runs

    def __str__(self) -> str:
        return f"give back what of {self.task} is in its name, but for {len(self.hands)} runs"


class InterruptReason(Enum):
    """Why a handler is interrupted."""

    TOO_LONG = "it has taken longer than its task allows"
    LEASE_LOST = "its lease is lost"
    STOPPING = "the time to stop is over"


@final
@attrs.frozen(cache_hash=True)
class Interrupt(Effect[None]):
    """Cancel the handlers of these runs."""

    task: str
    runs: _Runs
    why: InterruptReason

    def __str__(self) -> str:
        return f"interrupt {len(self.runs)} of {self.task}: {self.why.value}"


@final
@attrs.frozen(cache_hash=True)
class StartPoolTimer(Effect[None]):
    """Send `PoolTimerFired` after that time, in microseconds, and not when the last `StartPoolTimer` asked for it."""

    duration: Duration

    def __str__(self) -> str:
        return f"wake in {seconds(self.duration)}"


PoolCommand: TypeAlias = Take | Glance | Handle | Renew | End | GiveBack | Interrupt | Granted | StartPoolTimer


@final
@attrs.frozen
class PoolTimerFired:
    """The timer has fired; also the first event of a pool."""

    at: Instant


@final
@attrs.frozen
class RunsTaken:
    """A look has ended: these runs have begun.

    Attributes:
        at: When.
        command: The look, or what was granted.
        runs: The runs.
        is_more: Whether something was done about others: there may be more that is due.
        lost: How many claims were lost to others.
        has_failed: Nobody knows whether something is due: nobody answers, or the store refuses.
        is_unheard: More may be claimed than it tells of, or come to be (`Idle.UNHEARD`).
    """

    at: Instant
    command: Take | Granted
    runs: _Runs
    is_more: bool = False
    lost: int = 0
    has_failed: bool = False
    is_unheard: bool = False


@final
@attrs.frozen
class DuesSeen:
    """A glance has ended.

    Attributes:
        at: When.
        command: The glance.
        dues: Tasks of which something is due, and in how long, in microseconds; none where it failed.
    """

    at: Instant
    command: Glance
    dues: tuple[tuple[str, Duration], ...] = ()


@final
@attrs.frozen
class HandlersEnded:
    """Handlers have come to their ends."""

    at: Instant
    task: str
    ended: _Answers


@final
@attrs.frozen
class RunsRenewed:
    """What became of the renewals, in the order of the runs; None where nobody knows."""

    at: Instant
    command: Renew
    verdicts: tuple[Why | WhyNot | None, ...]


@final
@attrs.frozen
class EndsWritten:
    """Ends are written down, or nobody knows.

    Attributes:
        at: When.
        command: The request.
        is_more: Whether something has changed while it was processed, and is due again; or may have.
        left: Those of which nobody knows.
    """

    at: Instant
    command: End
    is_more: bool = False
    left: _Answers = ()


@final
@attrs.frozen
class GivenBack:
    """What is in the name of this process was looked through: so many were given back; 0 also where nobody answers."""

    at: Instant
    command: GiveBack
    number: int = 0


@final
@attrs.frozen
class Announced:
    """Something of this task is due, as whoever plans in this process knows.

    Attributes:
        at: When that was said.
        task: The name of the task.
        due: When it is due; None for now.
    """

    at: Instant
    task: str
    due: Instant | None = None


@final
@attrs.frozen
class RoomAsked:
    """So many documents of a task are about to be looked at by who plans in this process: how many runs may be claimed at once?

    `Granted` answers. `RunsTaken` is to follow, whatever becomes of the pass.

    Attributes:
        at: When.
        task: The name of the task.
        most: How many documents.
        request: An id of the pass that no other has.
    """

    at: Instant
    task: str
    most: int
    request: str


@final
@attrs.frozen
class TasksPaused:
    """From now on these tasks are looked at by nobody in this process, and all others are."""

    at: Instant
    tasks: frozenset[str]


@final
@attrs.frozen
class TaskThrottled:
    """Until then no more of this task is taken in this process, as one of its handlers wishes; the latest wish counts."""

    at: Instant
    task: str
    until: Instant


@final
@attrs.frozen
class PoolStopRequested:
    """The pool is to stop; said once more, it gives its handlers no more time."""

    at: Instant


PoolEvent: TypeAlias = (
    PoolTimerFired | RunsTaken | DuesSeen | HandlersEnded | RunsRenewed | EndsWritten | GivenBack
    | Announced | RoomAsked | TasksPaused | TaskThrottled | PoolStopRequested
)  # fmt: skip
_EVENTS: Final = (
    PoolTimerFired, RunsTaken, DuesSeen, HandlersEnded, RunsRenewed, EndsWritten, GivenBack, Announced, RoomAsked, TasksPaused,
    TaskThrottled, PoolStopRequested,
)  # fmt: skip


_NOTHING: Final = (Idle.NOTHING_DUE, Idle.NOT_CLAIMED, Idle.HELD, Idle.UNHEARD)
"""Where another was faster, or nobody answers, the next look waits as if nothing had been found."""


def pool_event_for(command: Effect[object], reply: object, at: Instant) -> PoolEvent | None:
    """The event that says what became of a command; None for an interruption, of which the handler tells.

    Args:
        command: The command.
        reply: What it was answered, a Failure included; of `Take` what `Fetcher.take` returns, of `Handle` the runs that
            have ended, each with its answer.
        at: The machine's monotonic clock, read AFTER the answer.

    Raises:
        Misuse: It is not a command of a pool, not an answer to it, or not a time.
    """
    check_type(at, Instant, "the time")
    event: PoolEvent
    match command:
        case Take() if isinstance(reply, Failure):
            event = RunsTaken(at, command, (), has_failed=True, is_unheard=True)
        case Take():
            check_type(reply, tuple, "runs, and what became of the others")
            runs, others = reply if isinstance(reply, tuple) and len(reply) == 2 else (reply, ())
            check_tuple(others, (Idle, SetAside), "what became of a record")
            is_more = any(each not in _NOTHING for each in others)
            is_unheard = Idle.UNHEARD in others or Idle.HELD in others  # a late write may yet be done
            lost = others.count(Idle.NOT_CLAIMED) + others.count(Idle.HELD)  # so the next look draws among more
            event = RunsTaken(at, command, cast("_Runs", runs), is_more, lost, is_unheard=is_unheard)
        case Glance() if isinstance(reply, Failure):
            event = DuesSeen(at, command)
        case Glance():
            event = DuesSeen(at, command, cast("tuple[tuple[str, Duration], ...]", reply))
        case Handle(task):
            event = HandlersEnded(at, task, cast("_Answers", reply))
        case Renew(_, runs) if isinstance(reply, Failure):
            event = RunsRenewed(at, command, (None,) * len(runs))
        case Renew():
            event = RunsRenewed(at, command, cast("tuple[Why | WhyNot | None, ...]", reply))
        case End(_, ended) if isinstance(reply, Failure):
            event = EndsWritten(at, command, left=ended)
        case End(_, ended):
            verdicts = cast("tuple[Why | WhyNot | None, ...]", reply)
            check_tuple(verdicts, (Why, WhyNot, NoneType), "what became of an end")
            # What had ended before has ended by its handler, or by a request without a reply: nobody has told then what follows.
            is_more = Why.RUNS_AGAIN in verdicts or WhyNot.ENDED in verdicts
            left = tuple(each for each, verdict in zip(ended, verdicts, strict=True) if verdict is None)
            event = EndsWritten(at, command, is_more, left)
        case GiveBack():
            event = GivenBack(at, command, 0 if isinstance(reply, Failure) else cast("int", reply))
        case StartPoolTimer():
            event = PoolTimerFired(at)
        case Interrupt() | Granted():
            return None
        case _:
            raise Misuse(f"{typed(command)} is not a command of a pool")
    _check_event(event)
    return event


# --- states -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Working:
    """A handler that runs.

    Attributes:
        task: Its task.
        run: Its run.
        since: When it was called; None where it is about to be.
        held_until: When its lease is over, if it is not renewed.
        renew_at: When to ask for that.
        why: Why it was interrupted; None where it was not.
    """

    task: str
    run: Run
    since: Instant | None
    held_until: Instant
    renew_at: Instant
    why: InterruptReason | None = None


@final
@attrs.frozen
class PoolState:
    """Where a pool stands; a new one is `PoolState()`.

    Attributes:
        paces: When each task is looked at next, and the interval after that; those that were never looked at are due.
        woken: The tasks of which something is due, as is known, and that are to be looked for.
        glancing: The glances under way.
        looking: The looks under way, what is granted included, and when each was sent.
        asking: Who has asked for room, and waits for looks that were under way then.
        working: The handlers that run.
        renewing: The renewals under way, and when each was sent.
        ended: What has ended, and is not written down yet.
        ending: The requests under way that write ends.
        unconfirmed: The tasks of which nobody knows whether ends are written, when to ask again, and for how many.
        astray: The tasks of which something may be in the name of this process that it was not told of: when to look through that, and
            until when that may be.
        giving: The requests under way that do.
        expected: Of each task of which something is known to be due later, the first of those times, and the last.
        paused: The tasks that are looked at by nobody.
        throttled: The tasks of which no more is taken until then.
        factors: Among how many times what is taken it is drawn (`tidegate.retries.spread`), of tasks where that is not 1.
        stop_at: When handlers are interrupted, because the pool is to stop; None where it is not.
        wake_at: When its timer fires; None where none runs.
        runs_at: Before then no handler that runs is to be renewed or interrupted; None where that is to be found out.
        is_stopped: It does nothing any more.
    """

    paces: tuple[tuple[str, Pace], ...] = ()
    woken: frozenset[str] = frozenset()
    glancing: tuple[Glance, ...] = ()
    looking: tuple[tuple[Take | Granted, Instant], ...] = ()
    asking: tuple[RoomAsked, ...] = ()
    working: tuple[Working, ...] = ()
    renewing: tuple[tuple[Renew, Instant], ...] = ()
    ended: tuple[tuple[str, Run, HandlerAnswer], ...] = ()
    ending: tuple[End, ...] = ()
    unconfirmed: tuple[tuple[str, Instant, int], ...] = ()
    astray: tuple[tuple[str, Instant, Instant], ...] = ()
    giving: tuple[GiveBack, ...] = ()
    expected: tuple[tuple[str, Instant, Instant], ...] = ()
    paused: frozenset[str] = frozenset()
    throttled: tuple[tuple[str, Instant], ...] = ()
    factors: tuple[tuple[str, int], ...] = ()
    stop_at: Instant | None = None
    wake_at: Instant | None = None
    runs_at: Instant | None = None
    is_stopped: bool = False

    def may_call(self, run: Run, at: Instant) -> bool:
        """Whether the handler of a run may be called that is to be; where not, it has come to `Later(0)`: nothing has begun.

        Args:
            run: The run.
            at: The machine's monotonic clock, read last.

        Raises:
            Misuse: An argument is of another type.
        """
        check_type(run, Run, "a run")
        check_type(at, Instant, "the time")
        id_, token = run.claim.id, run.claim.token
        found = (each for each in self.working if each.run.claim.id == id_ and each.run.claim.token == token)
        return any(each.why is None and each.held_until - at > 0 for each in found)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        asked = self.looking or self.glancing or self.renewing or self.ending or self.giving
        return not (asked or self.working or self.ended)

    def __str__(self) -> str:
        how = "stopped" if self.is_stopped else "to stop" if self.stop_at else "at work"
        return f"{how}: {len(self.working)} handlers, {len(self.ended)} ends to write"


PoolStep: TypeAlias = Step[PoolState, PoolCommand]


# --- the pool ---------------------------------------------------------------------------------------------------------


def _check_event(event: object) -> None:
    """Raise Misuse unless it is an event of a pool, made of what it says."""
    check_type(event, _EVENTS, "an event of a pool")
    check_type(getattr(event, "at", None), Instant, "the time")
    match event:
        case RunsTaken(_, command, runs):
            check_type(command, (Take, Granted), "a look")
            check_tuple(runs, Run, "a run")
        case DuesSeen(_, command, dues):
            check_type(command, Glance, "a glance")
            check_tuple(dues, tuple, "a task and in how long something of it is due")
            for due in dues:
                check_int(len(due), "the length of a pair", 2, 2)
                check_name(due[0], "a task")
                check_int(due[1], "a time in microseconds", 0)
        case HandlersEnded(_, task, ended):
            check_name(task, "a task")
            _check_answers(ended)
        case RunsRenewed(_, command, verdicts):
            check_type(command, Renew, "a renewal")
            check_tuple(verdicts, (Why, WhyNot, NoneType), "what became of a renewal")
        case EndsWritten(_, command, _, left):
            check_type(command, End, "a request to write ends")
            _check_answers(left)
        case GivenBack(_, command, number):
            check_type(command, GiveBack, "a request to give back")
            check_int(number, "a number of runs", 0)
        case Announced(_, task, when):
            check_name(task, "a task")
            check_type(when, (Instant, NoneType), "the time at which something is due")
        case RoomAsked(_, task, most, request):
            check_name(task, "a task")
            check_int(most, "a number of documents", 1)
            check_name(request, "a pass")
        case TaskThrottled(_, task, until):
            check_name(task, "a task")
            check_type(until, Instant, "the time until which it is throttled")
        case TasksPaused(_, paused):
            check_type(paused, frozenset, "the tasks that are paused")
            for name in paused:
                check_name(name, "a task")
        case _:
            pass


def _check_answers(ended: _Answers) -> None:
    check_tuple(ended, tuple, "a run and what it has come to")
    for each in ended:
        check_int(len(each), "the length of a pair", 2, 2)
        check_type(each[0], Run, "a run")
        check_type(each[1], (str, Later, NoneType), "the answer of a handler")


def _told(rules: PoolRules, state: PoolState, event: PoolEvent) -> PoolState:
    """The state with what the event tells."""
    match event:
        case PoolTimerFired(at):
            is_over = state.wake_at is not None and state.wake_at - at <= 0
            return attrs.evolve(state, wake_at=None) if is_over else state
        case RunsTaken(_, Granted(_, request)):  # a pass that is given up may be waiting still
            waiting = tuple(each for each in state.asking if each.request != request)
            return _taken(rules, attrs.evolve(state, asking=waiting), event)
        case RunsTaken():
            return _taken(rules, state, event)
        case DuesSeen():
            return _seen(rules, state, event)
        case HandlersEnded(_, task, ended):
            return _handled(state, task, ended)
        case RunsRenewed():
            return _renewed(rules, state, event)
        case EndsWritten():
            return _written(rules, state, event)
        case GivenBack():
            return _given_back(rules, state, event)
        case Announced(at, task, due):
            return _announced(rules, state, task, at) if due is None else _expected(rules, state, task, due)
        case RoomAsked():
            return attrs.evolve(state, asking=(*state.asking, event))
        case TasksPaused(_, paused):
            return attrs.evolve(state, paused=paused)
        case TaskThrottled(_, task, until):
            known = _throttled(state, task)
            later = until if known is None or until - known > 0 else known
            return attrs.evolve(state, throttled=_with(state.throttled, task, (task, later)))
        case PoolStopRequested(at):
            until = at if state.stop_at else at + rules.drain
            is_later = state.stop_at is not None and at - state.stop_at >= 0
            return state if is_later else attrs.evolve(state, stop_at=until, runs_at=None)
        case _:
            assert_never(event)


def _taken(rules: PoolRules, state: PoolState, event: RunsTaken) -> PoolState:
    """A look has ended. What is taken by one who is to stop is left to others at once."""
    since = next((sent for each, sent in state.looking if each == event.command), None)
    task = rules.task(event.command.task)
    if since is None or task is None:
        return state
    state = attrs.evolve(state, looking=tuple(each for each in state.looking if each[0] != event.command))
    if event.is_unheard:
        state = _strayed(state, task, event.at)
    if isinstance(event.command, Take):
        state = _spread(state, task.name, widened(event.command.factor, len(event.runs), event.lost))
    if isinstance(event.command, Take) and event.has_failed:
        # What it was looked for is due still: a glance would only find that, and wake it before its pause is over.
        state = attrs.evolve(state, woken=state.woken | {task.name})
    if isinstance(event.command, Take) and (event.runs or event.is_more):
        # Where fewer were found than asked for, there are no more that nobody announces, for a moment.
        is_all = len(event.runs) + event.lost < event.command.most and not event.is_more
        if is_all:
            soon = woken(task.polling, _pace(state, task, event.at), event.at + task.polling.least)
            state = _paced(state, task.name, soon)
        else:
            state = _announced(rules, state, task.name, event.at)
    able = () if state.stop_at else tuple(run for run in event.runs if run.trouble is None)
    over = tuple(
        (task.name, run, Later(0) if run.trouble is None else run.trouble) for run in event.runs if run not in able
    )
    begun = tuple(Working(task.name, run, None, since + task.lease, since + task.lease // _PART) for run in able)
    return attrs.evolve(state, working=(*state.working, *begun), ended=(*state.ended, *over), runs_at=None)


def _seen(rules: PoolRules, state: PoolState, event: DuesSeen) -> PoolState:
    """A glance has ended: of each task it is known when something is due."""
    state = attrs.evolve(state, glancing=tuple(each for each in state.glancing if each != event.command))
    for name, after in event.dues:
        if after:
            state = _expected(rules, state, name, event.at + after)
    now = {name for name, after in event.dues if not after}
    if not now:
        return state
    known, paces = dict(state.paces), {task.name: task for task in rules.tasks if task.name in now}
    found = {
        name: woken(task.polling, known.get(name) or fresh(task.polling, event.at), event.at)
        for name, task in paces.items()
    }
    return attrs.evolve(state, woken=state.woken.union(found), paces=tuple({**known, **found}.items()))


def _strayed(state: PoolState, task: PooledTask, at: Instant) -> PoolState:
    """Something of the task may be in the name of this process, or come to be, as long as its lease would last."""
    look_at = next((due for name, due, _ in state.astray if name == task.name), at)
    return attrs.evolve(state, astray=_with(state.astray, task.name, (task.name, look_at, at + task.lease)))


def _given_back(rules: PoolRules, state: PoolState, event: GivenBack) -> PoolState:
    """What is in the name of this process was looked through; what was given back is due."""
    name = event.command.task
    task = rules.task(name)
    if task is None:
        return state
    soon = event.at + max(task.lease // _SOON, 1)
    astray = tuple((of, soon if of == name else due, until) for of, due, until in state.astray)
    state = attrs.evolve(state, astray=astray, giving=tuple(each for each in state.giving if each != event.command))
    return _announced(rules, state, name, event.at) if event.number else state


def _spread(state: PoolState, task: str, factor: int) -> PoolState:
    others = tuple(each for each in state.factors if each[0] != task)
    return attrs.evolve(state, factors=others if factor == 1 else (*others, (task, factor)))


def _handled(state: PoolState, task: str, ended: _Answers) -> PoolState:
    """Handlers have ended: those of runs whose lease was lost are nobody's business any more."""
    answers = {_name(task, run.claim): answer for run, answer in ended}
    over = tuple(
        (each.task, each.run, _answer(each, answers[_name(each.task, each.run.claim)]))
        for each in state.working
        if _name(each.task, each.run.claim) in answers and each.why is not InterruptReason.LEASE_LOST
    )
    working = tuple(each for each in state.working if _name(each.task, each.run.claim) not in answers)
    return attrs.evolve(state, working=working, ended=(*state.ended, *over))


def _answer(of: Working, answer: HandlerAnswer) -> HandlerAnswer:
    """What a handler has come to: one that has returned although it was interrupted has ended well."""
    if answer is None or isinstance(answer, Later) or of.why is None:
        return answer
    return Later(0) if of.why is InterruptReason.STOPPING else of.why.value


def _renewed(rules: PoolRules, state: PoolState, event: RunsRenewed) -> PoolState:
    since = next((sent for each, sent in state.renewing if each == event.command), None)
    task = rules.task(event.command.task)
    if since is None or task is None or len(event.verdicts) != len(event.command.runs):
        return state
    of = {_name(task.name, run.claim): verdict for run, verdict in zip(event.command.runs, event.verdicts, strict=True)}

    def after(each: Working) -> Working:
        match of.get(_name(each.task, each.run.claim), each):
            case Why.COMPLETING:  # nobody else claims it as long as that transaction is open, so that is asked often
                held_until = since + task.lease
                return attrs.evolve(each, held_until=held_until, renew_at=event.at + task.lease // _SOON)
            case Why():
                return attrs.evolve(each, held_until=since + task.lease, renew_at=since + task.lease // _PART)
            case WhyNot():  # it is lost already: it is interrupted as soon as that is looked at
                return attrs.evolve(each, held_until=event.at)
            case None:
                soon = min(task.lease // _SOON, (each.held_until - event.at) // 2)
                return attrs.evolve(each, renew_at=event.at + soon)
            case _:
                return each

    return attrs.evolve(
        state,
        working=tuple(map(after, state.working)),
        renewing=tuple(each for each in state.renewing if each[0] != event.command),
        runs_at=None,
    )


def _written(rules: PoolRules, state: PoolState, event: EndsWritten) -> PoolState:
    """Ends are written: what is to be called later is due then, and what has changed meanwhile is now, if its debounce is over. What
    nobody knows of is to be written again.
    """
    name, task = event.command.task, rules.task(event.command.task)
    if event.left and task is not None and event.command in state.ending:
        left = tuple((name, run, answer) for run, answer in event.left)
        most = max(len(event.command.ended) // 2, 1)  # or one that is refused for good would hold up all
        again = name, event.at + max(min(task.lease // _SOON, SECOND), 1), most
        state = attrs.evolve(state, ended=(*state.ended, *left), unconfirmed=_with(state.unconfirmed, name, again))
    state = attrs.evolve(state, ending=tuple(each for each in state.ending if each != event.command))
    for each in event.command.ended:
        if isinstance(each[1], Later) and each not in event.left:
            state = _expected(rules, state, name, event.at + each[1].after)
    return _announced(rules, state, name, event.at) if event.is_more else state


def _announced(rules: PoolRules, state: PoolState, name: str, at: Instant) -> PoolState:
    """The task is due now."""
    task = rules.task(name)
    if task is None:
        return state
    known = attrs.evolve(state, woken=state.woken | {name})
    return _paced(known, name, woken(task.polling, _pace(state, task, at), at))


def _expected(rules: PoolRules, state: PoolState, name: str, due: Instant) -> PoolState:
    """Something of the task is due then."""
    if rules.task(name) is None:
        return state
    first, last = next(((first, last) for of, first, last in state.expected if of == name), (due, due))
    both = (due if due - first < 0 else first, due if due - last > 0 else last)
    return attrs.evolve(state, expected=_with(state.expected, name, (name, *both)))


def _arrived(rules: PoolRules, state: PoolState, at: Instant) -> PoolState:
    """The state in which the times that were expected have come."""
    for name, first, last in state.expected:
        task = rules.task(name)
        if task is None or first - at > 0:
            continue
        left = tuple(each for each in state.expected if each[0] != name)
        if last - at > 0:
            soon = at + task.polling.least
            left = (*left, (name, soon if soon - last < 0 else last, last))
        state = _announced(rules, attrs.evolve(state, expected=left), name, at)
    return state


_PART: Final = 3
"""A lease is renewed when this part of it is over,"""
_SOON: Final = 12
"""and, where nobody knows whether it was, again after this part of it, or after half of what is left. After as much of it what may be in
the name of the process is looked for again, and an end that nobody confirms is asked for again."""


def _onward(rules: PoolRules, state: PoolState, at: Instant) -> PoolStep:
    """What follows from a state: what is interrupted, called, renewed, written down, looked for, granted."""
    commands: list[PoolCommand] = []
    if state.runs_at is None or at - state.runs_at >= 0:
        state = _interrupting(rules, state, at, commands)
        state = _calling(rules, state, at, commands)
        state = _renewing(rules, state, at, commands)
        state = attrs.evolve(state, runs_at=_next_of_runs(rules, state, at))
    state = _ending(rules, state, at, commands)
    state = _giving_back(state, at, commands)
    if state.stop_at is None:
        state = _glancing(rules, _arrived(rules, state, at), at, commands)  # it takes no room from a look
        state = _looking(rules, state, at, commands)
        state = _granting(rules, state, at, commands)
    else:
        commands.extend(_denied(state.asking))
        state = attrs.evolve(state, asking=())
    if state.stop_at is not None and (state.is_idle or at - (state.stop_at + rules.leave) >= 0):
        return Step(attrs.evolve(state, is_stopped=True), tuple(commands))
    wake_at = _next(rules, state, at)
    if wake_at is not None and wake_at != state.wake_at:
        commands.append(StartPoolTimer(max(wake_at - at, 0)))
    return Step(state if wake_at == state.wake_at else attrs.evolve(state, wake_at=wake_at), tuple(commands))


def _interrupting(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    reasons = [_reason(rules, state, each, at) for each in state.working]
    for task in rules.tasks:
        for why in InterruptReason:
            runs = tuple(
                each.run
                for each, reason in zip(state.working, reasons, strict=True)
                if reason is why and each.task == task.name and each.since is not None
            )
            if runs:
                commands.append(Interrupt(task.name, runs, why))
    if not any(reasons):
        return state
    found = [*zip(state.working, reasons, strict=True)]
    # Of what was never called nothing has begun: it is given back, if it is one's own still.
    over = tuple((each.task, each.run, Later(0)) for each, reason in found if reason and each.since is None)
    working = tuple(
        attrs.evolve(each, why=reason) if reason else each for each, reason in found if not reason or each.since
    )
    return attrs.evolve(state, working=working, ended=(*state.ended, *over))


def _reason(rules: PoolRules, state: PoolState, each: Working, at: Instant) -> InterruptReason | None:
    """Why this handler is to be interrupted now."""
    task = rules.task(each.task)
    if each.why is not None or task is None:
        return None
    if at - each.held_until >= 0:
        return InterruptReason.LEASE_LOST
    if task.longest is not None and each.since is not None and at - each.since >= task.longest:
        return InterruptReason.TOO_LONG
    if state.stop_at is not None and at - state.stop_at >= 0:
        return InterruptReason.STOPPING
    return None


def _calling(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    if all(each.since is not None for each in state.working):
        return state
    for task in rules.tasks:
        runs = tuple(each.run for each in state.working if each.task == task.name and each.since is None)
        if runs:
            commands.append(Handle(task.name, runs))
    called = (attrs.evolve(each, since=at) if each.since is None else each for each in state.working)
    return attrs.evolve(state, working=tuple(called))


def _renewing(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    for task in rules.tasks:
        runs = tuple(
            each.run
            for each in state.working
            if each.task == task.name and each.why is None and at - each.renew_at >= 0
        )[:FOUND_MAX]
        if runs and not _is_renewing(state, task.name):
            command = Renew(task.name, runs)
            commands.append(command)
            state = attrs.evolve(state, renewing=(*state.renewing, (command, at)))
    return state


def _ending(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    unconfirmed = {name: (again_at, most) for name, again_at, most in state.unconfirmed}
    for task in rules.tasks:
        again_at, most = unconfirmed.get(task.name, (at, FOUND_MAX))
        ended = tuple((run, answer) for of, run, answer in state.ended if of == task.name)[:most]
        if ended and again_at - at <= 0 and not any(each.task == task.name for each in state.ending):
            command = End(task.name, ended)
            commands.append(command)
            written = {_name(task.name, run.claim) for run, _ in ended}
            left = tuple(each for each in state.ended if _name(each[0], each[1].claim) not in written)
            others = tuple(each for each in state.unconfirmed if each[0] != task.name)
            state = attrs.evolve(state, ended=left, ending=(*state.ending, command), unconfirmed=others)
    return state


def _giving_back(state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    """Look through what is in the name of this process, where something may be that it was not told of."""
    if not state.astray:
        return state
    state = attrs.evolve(state, astray=tuple(each for each in state.astray if each[2] - at > 0))
    for name, due, _ in state.astray:
        if due - at <= 0 and not _is_looked_for(state, name):
            command = GiveBack(name, _hands(state, name))
            commands.append(command)
            state = attrs.evolve(state, giving=(*state.giving, command))
    return state


def _hands(state: PoolState, task: str) -> _Runs:
    """The runs of a task that are handled, or whose ends are to be written, or just are."""
    working = (each.run for each in state.working if each.task == task)
    ended = (run for name, run, _ in state.ended if name == task)
    ending = (run for each in state.ending if each.task == task for run, _ in each.ended)
    return (*working, *ended, *ending)


def _looking(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    """Look for what is due, the task that is due longest first, as long as there is room."""
    paces = _paces(rules, state, at)
    for task in sorted(rules.tasks, key=lambda each: paces[each.name].due - at):
        room = _room(rules, state)
        if not room:
            break
        if not _may_look(state, task.name, at) or _is_glanced(state, task):
            continue
        asked = turn(task.polling, {task.name: paces[task.name]}, at, rules.draw_ppm)
        if isinstance(asked, Ask):
            command = Take(task.name, min(room, rules.batch), dict(state.factors).get(task.name, 1))
            commands.append(command)
            looking = (*state.looking, (command, at))
            state = _paced(attrs.evolve(state, looking=looking, woken=state.woken - {task.name}), task.name, asked.pace)
    return state


def _glancing(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    """Glance at the tasks of each place of which one is due for it, all at once, where there is room for what is found."""
    if not _room(rules, state):
        return state
    paces = dict(_paces(rules, state, at))
    idle: dict[str, list[PooledTask]] = {}
    for task in rules.tasks:
        if task.records is not None and _is_glanced(state, task) and _may_look(state, task.name, at):
            idle.setdefault(task.records, []).append(task)
    for records, tasks in idle.items():
        if _is_under_way(state, tasks[0]) or all(paces[task.name].due - at > 0 for task in tasks):
            continue
        for task in tasks:
            asked = turn(task.polling, {task.name: attrs.evolve(paces[task.name], due=at)}, at, rules.draw_ppm)
            assert isinstance(asked, Ask), "it is due"
            paces[task.name] = asked.pace
        soon = min((paces[task.name].due for task in tasks), key=lambda due: due - at)
        command = Glance(records, tuple(task.name for task in tasks), soon - at)
        commands.append(command)
        state = attrs.evolve(state, glancing=(*state.glancing, command), paces=tuple(paces.items()))
    return state


def _granting(rules: PoolRules, state: PoolState, at: Instant, commands: list[PoolCommand]) -> PoolState:
    """Grant what is left of the room, now that each look that is due is sent, and those have ended that were under way."""
    for asked in state.asking:
        if any(isinstance(each, Take) and sent - asked.at < 0 for each, sent in state.looking):
            continue
        is_free = rules.task(asked.task) is not None and _may_look(state, asked.task, at)
        granted = Granted(
            asked.task, asked.request, min(_room(rules, state), rules.batch, asked.most) if is_free else 0
        )
        commands.append(granted)
        looking = (*state.looking, (granted, at)) if granted.most else state.looking
        state = attrs.evolve(state, asking=tuple(each for each in state.asking if each != asked), looking=looking)
    return state


def _denied(asking: tuple[RoomAsked, ...]) -> tuple[Granted, ...]:
    return tuple(Granted(each.task, each.request) for each in asking)


def _next_of_runs(rules: PoolRules, state: PoolState, at: Instant) -> Instant | None:
    """When a handler that runs is to be renewed or interrupted; None where none is."""
    times: list[Instant] = []
    for each in state.working:
        task = rules.task(each.task)
        if each.why is not None or task is None:
            continue
        times.append(each.held_until)
        if not _is_renewing(state, each.task):
            times.append(each.renew_at)
        if task.longest is not None and each.since is not None:
            times.append(each.since + task.longest)
        if state.stop_at is not None:
            times.append(state.stop_at)
    return min(times, key=lambda time: time - at, default=None)


def _next(rules: PoolRules, state: PoolState, at: Instant) -> Instant | None:
    """When something is to be done although nothing happens."""
    times = [] if state.runs_at is None else [state.runs_at]
    times += [again_at for _, again_at, _ in state.unconfirmed]
    times += [due for name, due, _ in state.astray if not _is_looked_for(state, name)]
    if state.stop_at is not None:
        times.append(state.stop_at if at - state.stop_at < 0 else state.stop_at + rules.leave)
    elif _room(rules, state):
        paces = _paces(rules, state, at)
        for task in rules.tasks:
            if _may_look(state, task.name, at) and not _is_under_way(state, task):
                asked = turn(task.polling, {task.name: paces[task.name]}, at, rules.draw_ppm)
                times.append(asked.until if isinstance(asked, Wait) else at)
        times += [first for name, first, _ in state.expected if _may_look(state, name, at)]
        times += [until for name, until in state.throttled if until - at > 0 and name not in state.paused]
    return min(times, key=lambda time: time - at, default=None)


def _room(rules: PoolRules, state: PoolState) -> int:
    """How many more runs may be asked for. Where ends cannot be written, they hold up what would end next."""
    asked = sum(command.most for command, _ in state.looking)
    return max(rules.executors - len(state.working) - asked - max(len(state.ended) - rules.batch, 0), 0)


def _may_look(state: PoolState, task: str, at: Instant) -> bool:
    until = _throttled(state, task)
    is_held = task in state.paused or (until is not None and until - at > 0)
    return not is_held and not _is_looked_for(state, task)


def _is_looked_for(state: PoolState, task: str) -> bool:
    """Whether a look for it is under way, or one through what is in the name of this process."""
    return any(each.task == task for each, _ in state.looking) or any(each.task == task for each in state.giving)


def _is_glanced(state: PoolState, task: PooledTask) -> bool:
    """Whether it is polled together with others now: nothing of it is known to be due."""
    return task.records is not None and task.name not in state.woken


def _is_under_way(state: PoolState, task: PooledTask) -> bool:
    """Whether a glance is under way that will tell of it."""
    return _is_glanced(state, task) and any(each.records == task.records for each in state.glancing)


def _throttled(state: PoolState, task: str) -> Instant | None:
    return next((until for name, until in state.throttled if name == task), None)


def _is_renewing(state: PoolState, task: str) -> bool:
    return any(each.task == task for each, _ in state.renewing)


def _pace(state: PoolState, task: PooledTask, at: Instant) -> Pace:
    """The pace of a task; one that was never looked at is due."""
    return next((pace for name, pace in state.paces if name == task.name), None) or fresh(task.polling, at)


def _paces(rules: PoolRules, state: PoolState, at: Instant) -> Mapping[str, Pace]:
    """Those of all tasks, for who asks for each: there may be a thousand."""
    known = dict(state.paces)
    return {task.name: known.get(task.name) or fresh(task.polling, at) for task in rules.tasks}


def _paced(state: PoolState, task: str, pace: Pace) -> PoolState:
    return attrs.evolve(state, paces=_with(state.paces, task, (task, pace)))


def _with(known: tuple[_Of, ...], task: str, of: _Of) -> tuple[_Of, ...]:
    """What is known of the tasks, with this of one of them."""
    return (*(each for each in known if each[0] != task), of)


def _name(task: str, claim: Claim) -> tuple[str, str, int]:
    """What tells one run from all others."""
    return task, claim.id, claim.token
