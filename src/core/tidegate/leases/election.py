"""Leader election: a candidate as a reducer on a lease.

The holder of the lease (`tidegate.leases.lease`) leads. Its token is the epoch, which fences the
work's writes (Burrows 2006, "The Chubby lock service"; Ongaro and Ousterhout 2014 call it a term).
The result of a command arrives as an event, any time later; `event_for` makes it. Every event
carries the time of the candidate's own monotonic clock, so the first event after a stall shows
whether the tenure is over.

    Following -- a take was applied --> Leading -- its work has ended --> Following
        |                                  |
        +---------- asked to stop ---------+--> ... --> Stopped

A follower reads the lease once per heartbeat, and takes it when allowed: by the store's clock,
judged in the write, or by its own observation if the store has no clock. A leader renews once per
heartbeat, independent of its work. The work ends when the leader must stop, its tenure lapses,
another holds the lease, or by itself.

A stopping candidate renews until its work has ended, and only then releases. After a request
without a reply, the candidate reads the lease. A take that won unnoticed starts a tenure from when
it was first sent. If that is over, or the candidate must stop, it releases the lease.

Laws
    EL1  At no instant do two candidates lead, by the store's clock or by observers'.
    EL2  Epochs strictly grow from one leadership to the next.
    EL3  A candidate's work begins only when none runs, and is told to end at most once.
    EL4  A stopping candidate begins no work and takes no lease. It releases a lease only when no
         work runs. It stops when it knows of no lease that it holds, or gets no reply.
    EL5  A candidate that has not stopped awaits a reply, the end of its work, or its timer.
    EL6  A candidate has at most one request in flight.
    EL7  Once faults are over, and work ends when told to, one of the candidates that need not stop
         leads within a TTL, the lock delay, a heartbeat, and the time of its requests.
    EL8  A reply to a request that is not in flight changes nothing.

Known not to work
    - Counting a tenure from the last read that did not find the take: a majority read may be older
      than an applied but unconfirmed write, and the store counts from the application.
    - Work that does not end prevents its candidate from stopping, and from leading again.
    - A take that arrives after its candidate has stopped holds the lease for one TTL without a
      leader.
    - Work that does not check `leads` before it acts, or stalls after it, acts late; the epoch
      fences that.
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

# --- commands -------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Look(Effect["Lease | None"]):
    """Read the record, with all majority writes; the reply is the record, or None."""

    def __str__(self) -> str:
        return "look at the lease"


@final
@attrs.frozen(cache_hash=True)
class Swap(Effect["Lease | None"]):
    """Write the record, if it has this version for this time by the store's clock.

    The reply is the record as written, or None if it was not.

    Attributes:
        version: The version of the record before; 0 without a record.
        stood: The required age of the version, in microseconds; 0 for no condition.
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
    """End the work of this epoch; the reply comes once it has ended."""

    epoch: int

    def __str__(self) -> str:
        return f"end epoch {self.epoch}"


@final
@attrs.frozen(cache_hash=True)
class StartTimer(Effect[None]):
    """Send `TimerFired` after this time, in microseconds; replaces the timer before."""

    duration: Duration

    def __str__(self) -> str:
        return f"wake in {seconds(self.duration)}"


Request: TypeAlias = Look | Swap
ElectionCommand: TypeAlias = Request | Begin | End | StartTimer


# --- events ---------------------------------------------------------------------------------------


@final
@attrs.frozen
class TimerFired:
    """The timer has fired; also the first event of a candidate."""

    at: Instant


@final
@attrs.frozen
class Answered:
    """The store has replied to a request."""

    at: Instant
    request: Request
    lease: Lease | None


@final
@attrs.frozen
class Unanswered:
    """A request was refused, or its result is unknown."""

    at: Instant
    request: Request


@final
@attrs.frozen
class WorkEnded:
    """The work of an epoch has ended, on demand or by itself, well or not."""

    at: Instant
    epoch: int


@final
@attrs.frozen
class StopRequested:
    """The candidate must stop."""

    at: Instant


ElectionEvent: TypeAlias = TimerFired | Answered | Unanswered | WorkEnded | StopRequested


def event_for(command: Effect[object], reply: object, at: Instant) -> ElectionEvent | None:
    """Return the event for the result of a command; None for a command without a result.

    Args:
        command: The command.
        reply: The reply, or a Failure.
        at: The candidate's own monotonic clock, read AFTER the reply.
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


# --- states ---------------------------------------------------------------------------------------


@final
@attrs.frozen
class Flight:
    """A request in flight, and the candidate's own clock BEFORE it was sent."""

    request: Request
    sent: Instant


@final
@attrs.frozen
class Claim:
    """A take of the candidate's own that may hold the lease.

    Attributes:
        since: When its tenure begins: its own clock BEFORE the first copy that may be applied.
        is_over: Its tenure is over; the lease must still be released.
    """

    request: str
    since: Instant
    is_over: bool = False


@final
@attrs.frozen
class Following:
    """The candidate does not lead. A new candidate is `Following()`.

    Attributes:
        claim: A take of its own that may have won unnoticed.
        look_at: When to read the lease next; None for at once.
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
    """The candidate's work runs.

    Attributes:
        next_at: When to send the next request.
        unsure: When the first renewal with an unknown result was sent.
        is_blind: It has not read the lease since.
        is_stopping: It must stop, and renews until its work has ended.
        is_over: The tenure lapsed, or another holds the lease: it no longer renews.
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
        return self.is_stopping or self.is_over

    def __str__(self) -> str:
        why = ", over" if self.is_over else ", to stop" if self.is_stopping else ""
        return f"leading in epoch {self.epoch}{why}"


@final
@attrs.frozen
class Stopped:
    """The candidate has stopped for good."""

    def __str__(self) -> str:
        return "stopped"


ElectionState: TypeAlias = Following | Leading | Stopped


ElectionStep: TypeAlias = Step[ElectionState, ElectionCommand]


@final
@attrs.frozen
class Leads:
    """The candidate leads, under this epoch, for another `left` microseconds."""

    epoch: int
    left: Duration

    def __str__(self) -> str:
        return f"leads in epoch {self.epoch} for another {seconds(self.left)}"


@final
@attrs.frozen
class DoesNotLead:
    """The candidate follows or has stopped, or its tenure is over."""

    def __str__(self) -> str:
        return "does not lead"


# --- the candidate --------------------------------------------------------------------------------


@final
@attrs.frozen
class Candidate:
    """A candidate for leadership. Invariants: name and life are not empty.

    Attributes:
        life: An id that is unique for ever; another one after a restart.
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
        """How long to wait after a request without a reply: a quarter of a heartbeat."""
        return (self.terms.heartbeat + 3) // 4

    def step(self, state: ElectionState, event: ElectionEvent) -> ElectionStep:
        """Return the next state and commands.

        Events come in the order of the candidate's own clock. A timer that fires early does no
        harm.
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
        """Return whether the candidate leads. Its work checks this BEFORE each action."""
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
            case _:  # a reply to no request in flight, or the end of no running work (EL8)
                return self._settled(state, event.at)

    def _follower_answered(
        self, state: Following, request: Request, lease: Lease | None, sent: Instant, at: Instant
    ) -> ElectionStep:
        later = at + self.terms.heartbeat
        if isinstance(request, Look):
            return self._saw(state, lease, at)
        if request.lease.holder is None:  # after a release, others may take it first
            done = attrs.evolve(state, claim=None, look_at=later)
            return self._settled(attrs.evolve(state, look_at=None) if lease is None else done, at)
        if lease is None:  # too soon, or another was faster, or an earlier copy was applied
            is_only = state.claim is not None and state.claim.since == sent
            look_at = None if state.is_stopping else later
            return self._settled(attrs.evolve(state, claim=None if is_only else state.claim, look_at=look_at), at)
        claim = state.claim if state.claim is not None and state.claim.is_over else Claim(lease.request, sent)
        return self._saw(attrs.evolve(state, claim=claim), lease, at)

    def _missed(self, state: Following, request: Request, at: Instant) -> ElectionStep:
        if not state.is_stopping:
            return self._settled(attrs.evolve(state, look_at=at + self.pause), at)
        is_take = isinstance(request, Swap) and request.lease.holder is not None
        return self._sent(state, Look(), at) if is_take else Step(Stopped())

    def _saw(self, state: Following, lease: Lease | None, at: Instant) -> ElectionStep:
        """Lead or release the lease if it is the candidate's own; otherwise take it if allowed."""
        mark = None if lease is None else lease.version
        state = attrs.evolve(state, observation=observe(state.observation, mark, at), look_at=at + self.terms.heartbeat)
        # A request is `life@version`. Split at the last @, because a life may contain others.
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
        """Take the lease if allowed. A store with a clock judges in the write."""
        lock_delay, is_stamped = self.terms.lock_delay, lease is not None and lease.stamp is not None
        version = 0 if lease is None else lease.version
        request = f"{self.life}@{version}"  # the same id at the same version, so it cannot be granted twice
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
            # `left` includes the lock delay while it is held, but reading it is useful once the TTL
            # is over.
            left = verdict.left - lock_delay if verdict.left > lock_delay else verdict.left
            look_at = at + min(left, self.terms.heartbeat)
            return self._settled(attrs.evolve(state, claim=earlier, look_at=look_at), at)
        swap = Swap(version, verdict.lease, 0)
        return self._sent(attrs.evolve(state, claim=earlier or Claim(request, at)), swap, at)

    def _settled(self, state: Following, at: Instant) -> ElectionStep:
        """Read the lease if it is time to. Stop if the candidate must and holds nothing."""
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
                pass  # EL8
        ending = (End(after.epoch),) if after.is_ending and not before.is_ending else ()
        return self._led(after, event.at, *ending)

    def _leader_answered(
        self, state: Leading, request: Request, lease: Lease | None, sent: Instant, at: Instant
    ) -> Leading:
        if isinstance(request, Swap):
            if lease is None:
                return self._doubted(state, request, sent, at)
            since = state.tenure.since if state.is_over else sent  # law LE5
            due = sent + self.terms.heartbeat
            return attrs.evolve(state, tenure=Tenure(lease, since), next_at=due, unsure=None, is_blind=False)
        known = read_back(state.tenure, lease, state.unsure or sent)
        if isinstance(known, NotHolder):
            return attrs.evolve(state, is_over=True)
        # A renewal that was not found may still be applied late, and is sent again; so its time
        # still counts.
        unsure = state.unsure if known.tenure == state.tenure else None
        return attrs.evolve(state, tenure=known.tenure, next_at=at, unsure=unsure, is_blind=False)

    def _doubted(self, state: Leading, request: Request, sent: Instant, next_at: Instant) -> Leading:
        unsure = (state.unsure or sent) if isinstance(request, Swap) else state.unsure
        return attrs.evolve(state, flight=None, unsure=unsure, is_blind=True, next_at=next_at)

    def _ended(self, state: Leading, at: Instant) -> ElectionStep:
        claim = Claim(state.tenure.lease.request, state.tenure.since, is_over=True)
        return self._settled(Following(flight=state.flight, claim=claim, is_stopping=state.is_stopping), at)

    def _led(self, state: Leading, at: Instant, *commands: ElectionCommand) -> ElectionStep:
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
