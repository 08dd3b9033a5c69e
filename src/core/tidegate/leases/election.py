"""Which of several candidates leads, under which epoch, and how does leadership pass on?

Leadership is a lease (`tidegate.leases.lease`) with work under it: whoever holds the lease leads, the token is the epoch, and
what is written under an epoch is fenced by it (Burrows 2006, "The Chubby lock service"; Ongaro and Ousterhout 2014 call it a
term). This is the candidate as a reducer: `step(state, event)` gives the next state and commands. What becomes of a command
comes back as an event, any time later; `event_for` says which. Every event carries the time, by the candidate's own
monotonic clock, so the first event after a stall shows whether the tenure is over.

    Following -- a take was applied --> Leading -- its work has ended --> Following
        |                                  |
        +---------- asked to stop ---------+--> ... --> Stopped

A follower looks once in a heartbeat, and takes what it may take: by the store's clock, which judges in the write itself, or
where it stamps nothing, by its own observation. A leader renews once in a heartbeat. It is not the work that renews, so long
work does not cost the lease. It ends when the leader is asked to stop, when its tenure lapses, when another holds the lease,
or by itself.

    End        the work is to end; asked to stop, the candidate renews until it has, and only then releases the lease
    WorkEnded  the work has ended: the lease is looked at, and released if it is still one's own
    StartTimer send `TimerFired` after that time; each one takes the place of the one before

What became of a request without an answer is found out: a take that won unnoticed begins a tenure from when it was first sent, or if
that is over or the candidate is to stop, is released.

Laws
    EL1  At no instant do two candidates lead, by the store's clock or by observers'.
    EL2  Epochs strictly grow from one leadership to the next.
    EL3  Of each candidate, work begins when none runs, and is asked at most once to end.
    EL4  A candidate that is asked to stop begins nothing and takes nothing any more. It releases a lease only when no work runs, and
         stops when it knows of no lease that it holds, or gets no answer.
    EL5  A candidate that has not stopped awaits an answer, the end of its work, or its timer.
    EL6  It has at most one request under way.
    EL7  Once faults are over, and work ends when it is asked to, one of those who are not asked to stop leads within a TTL,
         the lock delay, a heartbeat, and the time that its requests take.
    EL8  An answer to what is not under way changes nothing.

Known not to work
    - Counting a tenure from the last look that did not find the take: a read that sees majority writes may be older than a
      write that is applied and not confirmed yet, and the store counts from when it was applied.
    - Work that does not end keeps its candidate from stopping, and from leading anew.
    - A take that arrives after its candidate has stopped, or crashed, holds the lease for one TTL, and nobody leads.
    - Work that does not ask `leads` before it acts, or stalls after it has, acts late. The epoch is for fencing that.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.leases.lease import (
    Busy,
    Lapsed,
    Lease,
    Mine,
    NotHolder,
    Observation,
    Tenure,
    Terms,
    decide_release,
    decide_take,
    next_action,
    observe,
    read_back,
    renewed,
    taken,
    takeover_delay,
)
from tidegate.model.effects import Effect, Failure
from tidegate.model.errors import INT64_MAX, Misuse, typed
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_name, check_type

# --- commands -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Look(Effect["Lease | None"]):
    """Read the record, with all majority writes; it replies the record, or None where there is none."""

    def __str__(self) -> str:
        return "look at the lease"


@final
@attrs.frozen(cache_hash=True)
class Swap(Effect["Lease | None"]):
    """Write the record, if it is at this version and has been for a time, by the store's clock.

    It replies the record as it was written, stamped by a store that has a clock, or None if it was not written.

    Attributes:
        version: That of the record before; 0 where there is none.
        lease: The record to write.
        stood: That time, in microseconds; 0 for no condition.
    """

    version: int
    lease: Lease
    stood: Duration

    def __str__(self) -> str:
        since = f" for {seconds(self.stood)}" if self.stood else ""
        return f"write the lease at version {self.version}{since}: {self.lease}"


@final
@attrs.frozen(cache_hash=True)
class Begin(Effect[None]):
    """Begin to lead under this epoch."""

    epoch: int

    def __str__(self) -> str:
        return f"begin epoch {self.epoch}"


@final
@attrs.frozen(cache_hash=True)
class End(Effect[None]):
    """End the work of this epoch. It replies once that has ended."""

    epoch: int

    def __str__(self) -> str:
        return f"end epoch {self.epoch}"


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[None]):
    """Send `TimerFired` after that time, in microseconds, and not when the last `StartTimer` asked for it."""

    duration: Duration

    def __str__(self) -> str:
        return f"wake in {seconds(self.duration)}"


Request: TypeAlias = Look | Swap
ElectionCommand: TypeAlias = Request | Begin | End | StartTimer


# --- events -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class TimerFired:
    """The timer has fired; also the first event of a candidate."""

    at: Instant


@final
@attrs.frozen
class Answered:
    """The store has answered a request."""

    at: Instant
    request: Request
    lease: Lease | None


@final
@attrs.frozen
class Unanswered:
    """A request was refused, or nobody knows whether it was done."""

    at: Instant
    request: Request


@final
@attrs.frozen
class WorkEnded:
    """The work of an epoch has ended: when it was asked to or by itself, well or not."""

    at: Instant
    epoch: int


@final
@attrs.frozen
class StopRequested:
    """Somebody asks the candidate to stop."""

    at: Instant


ElectionEvent: TypeAlias = TimerFired | Answered | Unanswered | WorkEnded | StopRequested


def event_for(command: Effect[object], reply: object, at: Instant) -> ElectionEvent | None:
    """The event that says what became of a command; None for a command that nothing comes of.

    Args:
        command: The command.
        reply: What the world answered, a Failure included.
        at: The candidate's own monotonic clock, read AFTER the answer.

    Raises:
        Misuse: It is not a command of a candidate, not an answer to it, or not a time.
    """
    check_type(at, Instant, "the time")
    match command:
        case Look() | Swap():
            if isinstance(reply, Failure):
                return Unanswered(at, command)
            if reply is None or isinstance(reply, Lease):
                return Answered(at, command, reply)
            raise Misuse(f"{command} was answered {typed(reply)}", todo="answer a Lease, None or a Failure")
        case End(epoch):
            return WorkEnded(at, epoch)
        case StartTimer():
            return TimerFired(at)
        case Begin():
            return None
        case _:
            raise Misuse(f"{typed(command)} is not a command of a candidate")


# --- states -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Flight:
    """A request under way, and the candidate's own clock BEFORE it was sent."""

    request: Request
    sent: Instant


@final
@attrs.frozen
class Claim:
    """A take of one's own that may hold the lease.

    Attributes:
        request: Its id.
        since: Since when its tenure counts: one's own clock BEFORE the first of its copies was sent that may be applied.
        is_over: Its tenure is; what is left is to release it.
    """

    request: str
    since: Instant
    is_over: bool = False


@final
@attrs.frozen
class Following:
    """It does not lead. A new candidate is `Following()`.

    Attributes:
        flight: The request under way.
        observation: What it has seen of the record.
        claim: A take of its own that may have won unnoticed.
        look_at: When to look next; None for at once.
        is_stopping: It was asked to stop.
    """

    flight: Flight | None = None
    observation: Observation | None = None
    claim: Claim | None = None
    look_at: Instant | None = None
    is_stopping: bool = False

    def __str__(self) -> str:
        return f"following{', to stop' if self.is_stopping else ''}"


@final
@attrs.frozen
class Leading:
    """Its work runs.

    Attributes:
        tenure: What it knows of its own time.
        next_at: When to send the next request.
        flight: The request under way.
        unsure: When the first of the renewals was sent of which nobody knows whether they were done.
        is_blind: It has not looked since.
        is_stopping: It was asked to stop, and renews until its work has ended.
        is_over: The tenure lapsed, or another holds the lease: nothing is renewed.
    """

    tenure: Tenure
    next_at: Instant
    flight: Flight | None = None
    unsure: Instant | None = None
    is_blind: bool = False
    is_stopping: bool = False
    is_over: bool = False

    @property
    def epoch(self) -> int:
        return self.tenure.lease.token

    @property
    def is_ending(self) -> bool:
        """Whether its work was asked to end."""
        return self.is_stopping or self.is_over

    def __str__(self) -> str:
        why = ", over" if self.is_over else ", to stop" if self.is_stopping else ""
        return f"leading in epoch {self.epoch}{why}"


@final
@attrs.frozen
class Stopped:
    """It does nothing any more."""

    def __str__(self) -> str:
        return "stopped"


ElectionState: TypeAlias = Following | Leading | Stopped


ElectionStep: TypeAlias = Step[ElectionState, ElectionCommand]


@final
@attrs.frozen
class Leads:
    """It leads, under this epoch, for another `left` microseconds if it is not renewed."""

    epoch: int
    left: Duration

    def __str__(self) -> str:
        return f"leads in epoch {self.epoch} for another {seconds(self.left)}"


@final
@attrs.frozen
class DoesNotLead:
    """It follows, or has stopped, or its tenure is over."""

    def __str__(self) -> str:
        return "does not lead"


# --- the candidate ----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Candidate:
    """One who wants to lead.

    Invariants: name and life are not empty.

    Attributes:
        name: Its name, for people.
        life: An id that no other candidate has or had; another one after a restart.
        terms: Those of the lease. The heartbeat is also how often a follower looks.
    """

    name: str
    life: str
    terms: Terms = attrs.field(factory=Terms)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a candidate")
        check_name(self.life, "the life of a candidate")
        check_type(self.terms, Terms, "the terms of a lease")

    @property
    def pause(self) -> Duration:
        """How long to wait after a request without an answer: a quarter of a heartbeat."""
        return (self.terms.heartbeat + 3) // 4

    def step(self, state: ElectionState, event: ElectionEvent) -> ElectionStep:
        """What follows from an event.

        Args:
            state: The state before.
            event: What happened, in the order of its own clock.

        Returns:
            The state after, and commands in order. A timer that fires early does no harm.

        Raises:
            Misuse: An argument is of another type, or the event is of another clock than those before.
        """
        _check_event(event)
        match state:
            case Following():
                return self._following(state, event)
            case Leading():
                return self._leading(state, event)
            case Stopped():
                return Step(state)
            case _:
                raise Misuse(f"{typed(state)} is not a state of a candidate")

    def leads(self, state: ElectionState, now: Instant) -> Leads | DoesNotLead:
        """Whether the candidate leads. Its work asks BEFORE each thing that it does.

        Args:
            state: The newest state.
            now: Its own monotonic clock.

        Raises:
            Misuse: It is not a state, or now was read on another clock.
        """
        check_type(state, (Following, Leading, Stopped), "a state of a candidate")
        if not isinstance(state, Leading) or state.is_over:
            return DoesNotLead()
        verdict = next_action(self.terms, state.tenure, now)
        return DoesNotLead() if isinstance(verdict, Lapsed) else Leads(state.epoch, verdict.left)

    # following: look, take, release

    def _following(self, state: Following, event: ElectionEvent) -> ElectionStep:
        match event:
            case Answered(at, request, lease) if state.flight is not None and state.flight.request == request:
                return self._follower_answered(attrs.evolve(state, flight=None), request, lease, state.flight.sent, at)
            case Unanswered(at, request) if state.flight is not None and state.flight.request == request:
                return self._missed(attrs.evolve(state, flight=None), request, at)
            case StopRequested(at):
                return self._settled(attrs.evolve(state, look_at=None, is_stopping=True), at)
            case _:  # the answer to what is not under way, the end of what does not run
                return self._settled(state, event.at)

    def _follower_answered(
        self, state: Following, request: Request, lease: Lease | None, sent: Instant, at: Instant
    ) -> ElectionStep:
        later = at + self.terms.heartbeat
        if isinstance(request, Look):
            return self._saw(state, lease, at)
        if request.lease.holder is None:  # a release; others may be first to take it then
            done = attrs.evolve(state, claim=None, look_at=later)
            return self._settled(attrs.evolve(state, look_at=None) if lease is None else done, at)
        if lease is None:  # too soon, or another was faster, or an earlier copy of it
            is_only = state.claim is not None and state.claim.since == sent
            look_at = None if state.is_stopping else later
            return self._settled(attrs.evolve(state, claim=None if is_only else state.claim, look_at=look_at), at)
        claim = state.claim if state.claim is not None and state.claim.is_over else Claim(lease.request, sent)
        return self._saw(attrs.evolve(state, claim=claim), lease, at)

    def _missed(self, state: Following, request: Request, at: Instant) -> ElectionStep:
        """Look again soon. Who is to stop looks once more after a take, and else leaves the lease to its TTL."""
        if not state.is_stopping:
            return self._settled(attrs.evolve(state, look_at=at + self.pause), at)
        is_take = isinstance(request, Swap) and request.lease.holder is not None
        return self._sent(state, Look(), at) if is_take else Step(Stopped())

    def _saw(self, state: Following, lease: Lease | None, at: Instant) -> ElectionStep:
        """Lead or release it if it is one's own, else take it if it may be taken."""
        mark = None if lease is None else lease.version
        state = attrs.evolve(state, observation=observe(state.observation, mark, at), look_at=at + self.terms.heartbeat)
        # A request is `life@version`. The last @ counts: a life may have others of its own.
        life = "" if lease is None else lease.request.rpartition("@")[0]
        mine = decide_release(lease, lease.request) if lease is not None and life == self.life else NotHolder(lease)
        if lease is None or isinstance(mine, NotHolder):
            return Step(Stopped()) if state.is_stopping else self._tried(state, lease, at)
        claim = state.claim
        if not state.is_stopping and claim is not None and claim.request == lease.request and not claim.is_over:
            tenure = Tenure(lease, claim.since)
            if not isinstance(next_action(self.terms, tenure, at), Lapsed):
                return self._led(Leading(tenure, tenure.since + self.terms.heartbeat), at, Begin(lease.token))
        return self._sent(state, Swap(lease.version, mine.lease, 0), at)

    def _tried(self, state: Following, lease: Lease | None, at: Instant) -> ElectionStep:
        """Take it, if it may be taken: a store with a clock judges in the write."""
        lock_delay, is_stamped = self.terms.lock_delay, lease is not None and lease.stamp is not None
        version = 0 if lease is None else lease.version
        request = f"{self.life}@{version}"  # the same one at the same version, so it cannot be granted twice
        earlier = state.claim if state.claim is not None and state.claim.request == request else None
        if is_stamped:
            swap = Swap(
                version,
                taken(lease, holder=self.name, request=request, ttl=self.terms.ttl),
                takeover_delay(lease, lock_delay),
            )
            return self._sent(attrs.evolve(state, claim=earlier or Claim(request, at)), swap, at)
        verdict = decide_take(
            lease, holder=self.name, request=request, terms=self.terms, observation=state.observation, now=at
        )
        assert not isinstance(verdict, Mine), "what a life holds is led or released, and not taken"
        if isinstance(verdict, Busy):
            # Where it is held, `left` has the lock delay in it; but when the TTL is over it is worth a look.
            left = verdict.left - lock_delay if verdict.left > lock_delay else verdict.left
            look_at = at + min(left, self.terms.heartbeat)
            return self._settled(attrs.evolve(state, claim=earlier, look_at=look_at), at)
        swap = Swap(version, verdict.lease, 0)
        return self._sent(attrs.evolve(state, claim=earlier or Claim(request, at)), swap, at)

    def _settled(self, state: Following, at: Instant) -> ElectionStep:
        """Look if it is time to; stop if it is to, and holds nothing."""
        if state.flight is not None:
            return Step(state)
        if state.is_stopping and state.claim is None:
            return Step(Stopped())
        left = 0 if state.look_at is None else state.look_at - at
        return Step(state, (StartTimer(left),)) if left > 0 else self._sent(state, Look(), at)

    def _sent(self, state: Following, request: Request, at: Instant) -> ElectionStep:
        return Step(attrs.evolve(state, flight=Flight(request, at)), (request,))

    # leading: renew, look, end

    def _leading(self, before: Leading, event: ElectionEvent) -> ElectionStep:
        lapsed = isinstance(next_action(self.terms, before.tenure, event.at), Lapsed)
        state = after = attrs.evolve(before, is_over=before.is_over or lapsed)
        match event:
            case Answered(at, request, lease) if state.flight is not None and state.flight.request == request:
                after = self._leader_answered(attrs.evolve(state, flight=None), request, lease, state.flight.sent, at)
            case Unanswered(at, request) if state.flight is not None and state.flight.request == request:
                after = self._doubted(state, request, state.flight.sent, at + self.pause)
            case StopRequested():
                after = attrs.evolve(state, is_stopping=True)
            case WorkEnded(at, epoch) if epoch == state.epoch:
                return self._ended(state, at)
            case _:
                pass  # the answer to what is not under way, the end of other work
        ending = (End(after.epoch),) if after.is_ending and not before.is_ending else ()
        return self._led(after, event.at, *ending)

    def _leader_answered(
        self, state: Leading, request: Request, lease: Lease | None, sent: Instant, at: Instant
    ) -> Leading:
        if isinstance(request, Swap):
            if lease is None:
                return self._doubted(state, request, sent, at)
            since = state.tenure.since if state.is_over else sent  # there is no way back
            due = sent + self.terms.heartbeat
            return attrs.evolve(state, tenure=Tenure(lease, since), next_at=due, unsure=None, is_blind=False)
        known = read_back(state.tenure, lease, state.unsure or sent)
        if isinstance(known, NotHolder):
            return attrs.evolve(state, is_over=True)
        # A renewal that was not found may still be done late, and is sent again; so its time still counts.
        unsure = state.unsure if known.tenure == state.tenure else None
        return attrs.evolve(state, tenure=known.tenure, next_at=at, unsure=unsure, is_blind=False)

    def _doubted(self, state: Leading, request: Request, sent: Instant, next_at: Instant) -> Leading:
        """Look next. If that has no answer either, look again."""
        unsure = (state.unsure or sent) if isinstance(request, Swap) else state.unsure
        return attrs.evolve(state, flight=None, unsure=unsure, is_blind=True, next_at=next_at)

    def _ended(self, state: Leading, at: Instant) -> ElectionStep:
        """Look whether there is something to release."""
        claim = Claim(state.tenure.lease.request, state.tenure.since, is_over=True)
        return self._settled(Following(flight=state.flight, claim=claim, is_stopping=state.is_stopping), at)

    def _led(self, state: Leading, at: Instant, *commands: ElectionCommand) -> ElectionStep:
        """Renew or look if it is time to."""
        if state.is_over:
            return Step(state, commands)
        left = state.tenure.since + (state.tenure.lease.ttl - self.terms.margin) - at
        due = state.next_at - at
        if state.flight is not None or due > 0:
            return Step(state, (*commands, StartTimer(left if state.flight is not None else min(due, left))))
        request = Look() if state.is_blind else Swap(state.tenure.lease.version, renewed(state.tenure), 0)
        return Step(attrs.evolve(state, flight=Flight(request, at)), (*commands, request, StartTimer(left)))


_EVENTS: Final = get_args(ElectionEvent)


def _check_event(event: ElectionEvent) -> None:
    """Raise Misuse unless this is an event with fields of the right types."""
    check_type(event, _EVENTS, "an event of a candidate")
    check_type(event.at, Instant, "the time")
    match event:
        case Answered(_, request, lease):
            check_type(request, (Look, Swap), "a request")
            check_type(lease, (Lease, type(None)), "a lease")
        case Unanswered(_, request):
            check_type(request, (Look, Swap), "a request")
        case WorkEnded(_, epoch):
            check_int(epoch, "an epoch", 1, INT64_MAX)
        case TimerFired() | StopRequested():
            pass
        case _:
            assert_never(event)
