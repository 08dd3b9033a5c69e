"""A lease: who holds a record, for how long, and under which fencing token.

The holder of a lease may act until it ends, unless it is renewed (Gray and Cheriton 1989, "Leases:
an efficient fault-tolerant mechanism for distributed file cache consistency"). Clocks and pauses
break such promises. So each grant has a higher fencing token, and the protected resource refuses
older ones (the sequencer of Burrows 2006, "The Chubby lock service"; Kleppmann 2016, "How to do
distributed locking").

The record is one document, changed by compare-and-set on its version, and never deleted:

    {token, version, holder, request, ttl, stamp}

    take       the token and the version grow by one, the request is the taker's
    renew      the version grows by one
    release    the version grows by one, the holder is None
    expire     no write: a version older than its TTL is void

To take a held lease, wait until one version of it is older than its TTL plus the lock delay. Two
clocks can judge that, each by itself; the clocks of two machines are never compared.

    the store's       judges its own stamp in the filter of the write (`takeover_delay`)
    an observer's     saw the same version that long (`observe`); for stores without a clock

The lock delay is for resources that cannot check a token (Chubby's lock-delay): requests of a
vanished holder may still arrive. After a release there is no delay.

The holder measures its tenure by its own monotonic clock: from BEFORE it sent the granted write,
for the TTL less a margin. The record is written after that and judged later still, so the holder
stops first, at any clock settings. The margin is for different clock rates.

    sent ---- applied, stamped ---- seen by others
    |---- TTL - margin ----|  the holder stops
              |---- TTL ----|---- lock_delay ----|  the store lets others take it
                                  |---- TTL ----|---- lock_delay ----|  an observer takes it

After a lost reply the caller reads the record and decides the take again under the same request: it
finds itself, or the version unchanged and sends the same write again, or another holder. A renewal
is read back.

Laws
    LE1  Tokens strictly grow: each take makes the next one, only takes make tokens, and each change
         makes one version.
    LE2  A held lease is taken only after one version is older than its TTL and the lock delay, by
         one clock.
    LE3  A free lease can be taken: at once if it was never taken or was released, else as soon as
         LE2 allows.
    LE4  Only the request that holds the lease renews and releases it.
    LE5  A holder that lapsed by its own clock does not renew. It takes the lease again, under a new
         token.
    LE6  At no instant do two believe that they hold it, at any clock settings, while the margin
         covers the difference of clock rates.
    LE7  An observation begins when its version was first seen without another in between, never
         before.
    LE8  A resource that admitted a token admits no older one.
    LE9  A request that holds the lease gets `Mine`, however often it is decided again, and no
         second token.

Known not to work
    - A lease without its token: a holder that stalls after it read the clock acts late.
    - A deleted record begins again with token 1 (LE1): release it instead.
    - After an election the store's clock is another machine's. If it is ahead, a lease ends early
      (LE6); tokens still fence.
    - An observation by reads that miss majority writes may be of the past.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never, final

import attrs

from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import SECOND, Duration, Instant, micros, seconds
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.backoff import check_delay

# --- values ---------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Terms:
    """How long a lease lasts, and how it is kept, in microseconds.

    Invariants: 0 < heartbeat; 0 <= margin; heartbeat + margin < ttl <= LONGEST; 0 <= lock_delay <=
    LONGEST.

    Attributes:
        ttl: How long a version is valid. More than the store takes to elect a primary, and some
            seconds.
        heartbeat: The interval of renewals. A third of the TTL tolerates one failed renewal.
        margin: How much sooner than the TTL the holder stops. Two clocks whose rates are off by up
            to d parts per million each need 2 * d parts per million of the TTL.
        lock_delay: How long the lease stays closed after a holder vanished; 0 if the resource is
            fenced.
    """

    ttl: Duration = attrs.field(default=30 * SECOND, converter=micros)
    heartbeat: Duration = attrs.field(default=10 * SECOND, converter=micros)
    margin: Duration = attrs.field(default=1 * SECOND, converter=micros)
    lock_delay: Duration = attrs.field(default=0, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_delay(self.ttl, "a TTL in microseconds", 1)
        check_delay(self.heartbeat, "a heartbeat in microseconds", 1)
        check_delay(self.margin, "a margin in microseconds", 0)
        check_delay(self.lock_delay, "a lock delay in microseconds", 0)
        if self.heartbeat + self.margin >= self.ttl:
            raise Misuse(
                f"a heartbeat of {seconds(self.heartbeat)} and a margin of {seconds(self.margin)} fill "
                f"a TTL of {seconds(self.ttl)}",
                why="the lease would end before it is renewed",
                todo="renew three times in a TTL",
            )


@final
@attrs.frozen
class Lease:
    """The record of a lease; without a record, it was never taken.

    Invariants: 1 <= token <= version <= INT64_MAX; 1 <= ttl <= LONGEST; holder and request are not
    empty.

    Attributes:
        holder: The holder's name, for people; None once it is released.
        request: The id of the granted take. It is unique, so it identifies the holder.
        stamp: When this version was written, by the store's clock; None if the store has none.
    """

    token: int
    version: int
    holder: str | None
    request: str
    ttl: Duration
    stamp: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_int(self.version, "the version of a lease", 1, INT64_MAX)
        check_int(self.token, "the token of a lease", 1, self.version)
        if self.holder is not None:
            check_name(self.holder, "a holder")
        check_name(self.request, "a request")
        check_delay(self.ttl, "a TTL in microseconds", 1)
        if self.stamp is not None:
            check_type(self.stamp, Instant, "the stamp of a lease")

    @property
    def stamped(self) -> Observation | None:
        """The store's observation: this version, since it was written."""
        return None if self.stamp is None else Observation(self.version, self.stamp)

    def __str__(self) -> str:
        held = "released" if self.holder is None else f"held by {self.holder!r}"
        return f"token {self.token} {held}, version {self.version}"


Mark: TypeAlias = int | str
"""What is observed: the version of a lease, or the first claim of a lock."""


@final
@attrs.frozen
class Observation:
    """The mark has been unchanged since then, by one clock."""

    mark: Mark
    since: Instant


@final
@attrs.frozen
class Tenure:
    """What a holder of a lease knows of its own time.

    Attributes:
        lease: The lease as last known to be written.
        since: The holder's own monotonic clock, read BEFORE that write was sent.
    """

    lease: Lease
    since: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.lease, Lease, "the lease of a tenure")
        check_type(self.since, Instant, "the beginning of a tenure")
        if self.lease.holder is None:
            raise Misuse(f"no tenure of a lease that nobody holds: {self.lease}")


# --- its status -----------------------------------------------------------------------------------


@final
@attrs.frozen
class Vacant:
    """The lease was never taken, or it was released."""

    def __str__(self) -> str:
        return "vacant"


@final
@attrs.frozen
class Held:
    """The lease is valid for `left` microseconds more, if it is not renewed."""

    left: Duration

    def __str__(self) -> str:
        return f"held for another {seconds(self.left)}"


@final
@attrs.frozen
class LockDelay:
    """The TTL is over; the lock delay lasts `left` microseconds more."""

    left: Duration

    def __str__(self) -> str:
        return f"closed by its lock delay for another {seconds(self.left)}"


@final
@attrs.frozen
class Expired:
    """The holder vanished, and TTL and lock delay are over."""

    def __str__(self) -> str:
        return "expired"


LeaseStatus: TypeAlias = Vacant | Held | LockDelay | Expired


def observe(before: Observation | None, mark: Mark | None, now: Instant) -> Observation | None:
    """Return an observer's observation after another read, at `now`, read AFTER the record.

    It begins again if the mark has changed or the clock went back; None without a mark.
    """
    check_type(before, (Observation, type(None)), "an observation")
    check_type(now, Instant, "the time")
    if mark is None:
        return None
    if not isinstance(mark, str):
        check_int(mark, "the version of a lease", 0, INT64_MAX)
    is_same = before is not None and before.mark == mark and now - before.since >= 0
    return before if is_same else Observation(mark, now)


def status_of(lease: Lease | None, observation: Observation | None, now: Instant, lock_delay: Duration) -> LeaseStatus:
    """Return the status of the lease, by the clock of the observation.

    Args:
        lease: The record as read, or None.
        observation: `lease.stamped` for the store, `observe` for an observer. With none, or one of
            another version, the lease counts as written just now.
        now: The judge's clock.
        lock_delay: How long it stays closed after a holder vanished, in microseconds.
    """
    check_type(observation, (Observation, type(None)), "an observation")
    check_type(now, Instant, "the time")
    closed = takeover_delay(lease, lock_delay)
    if lease is None or closed == 0:
        return Vacant()
    stood = now - observation.since if observation is not None and observation.mark == lease.version else 0
    left = closed - max(stood, 0)
    if left > lock_delay:
        return Held(left - lock_delay)
    return LockDelay(left) if left > 0 else Expired()


def takeover_delay(lease: Lease | None, lock_delay: Duration) -> Duration:
    """Return how old a version must be before another may take it, in microseconds; 0 if not held.

    A store with a clock judges this in the filter of the take: the version is unchanged, and
    `OlderThan(stamp, takeover_delay)`.
    """
    check_type(lease, (Lease, type(None)), "a lease")
    check_delay(lock_delay, "a lock delay in microseconds", 0)
    return 0 if lease is None or lease.holder is None else lease.ttl + lock_delay


# --- decisions ------------------------------------------------------------------------------------


@final
@attrs.frozen
class Take:
    """Write this, if the record is unchanged. Then the lease is the caller's."""

    lease: Lease

    def __str__(self) -> str:
        return f"take it: {self.lease}"


@final
@attrs.frozen
class Mine:
    """The request holds the lease already: a take of it was applied.

    Its tenure counts from BEFORE the first take of this request was sent. After a lapse use a new
    request.
    """

    lease: Lease

    def __str__(self) -> str:
        return f"mine: {self.lease}"


@final
@attrs.frozen
class Busy:
    """Another request holds it, or vanished; retry in `left` microseconds of the judge's clock."""

    lease: Lease
    left: Duration

    def __str__(self) -> str:
        return f"busy for another {seconds(self.left)}: {self.lease}"


@final
@attrs.frozen
class Release:
    """Write this, if the record is unchanged, AFTER the work under the lease has ended."""

    lease: Lease

    def __str__(self) -> str:
        return f"release it: {self.lease}"


@final
@attrs.frozen
class NotHolder:
    """The request does not hold the lease, and never will under its token."""

    lease: Lease | None

    def __str__(self) -> str:
        return f"not the holder: {'no record' if self.lease is None else self.lease}"


def decide_take(
    lease: Lease | None, *, holder: str, request: str, terms: Terms, observation: Observation | None, now: Instant
) -> Take | Mine | Busy:
    """Decide whether `request` may take the lease.

    Args:
        lease: The record as read, or None.
        holder: The caller's name, for people.
        request: The id of this take; unique, and the same after a lost reply.
        terms: The TTL and the lock delay.
        observation: The judge's observation of the record; see `status_of`.
        now: The judge's clock.
    """
    check_type(terms, Terms, "the terms of a lease")
    check_name(request, "a request")
    status = status_of(lease, observation, now, terms.lock_delay)
    wanted = taken(lease, holder=holder, request=request, ttl=terms.ttl)
    if lease is None:
        return Take(wanted)
    if _holds(lease, request):
        return Mine(lease)
    match status:
        case Vacant() | Expired():
            return Take(wanted)
        case Held(left):
            return Busy(lease, left + terms.lock_delay)
        case LockDelay(left):
            return Busy(lease, left)
        case _:
            assert_never(status)


def decide_release(lease: Lease | None, request: str) -> Release | NotHolder:
    """Decide whether `request`, the id of the granted take, may release the lease."""
    check_type(lease, (Lease, type(None)), "a lease")
    check_name(request, "a request")
    return Release(_changed(lease, holder=None)) if lease is not None and _holds(lease, request) else NotHolder(lease)


def taken(lease: Lease | None, *, holder: str, request: str, ttl: Duration) -> Lease:
    """Return the record after a take. The store makes its stamp."""
    check_type(lease, (Lease, type(None)), "a lease")
    check_name(holder, "a holder")
    before = (0, 0) if lease is None else (lease.token, lease.version)
    return Lease(before[0] + 1, before[1] + 1, holder, request, ttl)


def renewed(tenure: Tenure) -> Lease:
    check_type(tenure, Tenure, "a tenure")
    return _changed(tenure.lease, holder=tenure.lease.holder)


# --- the holder's own time ------------------------------------------------------------------------


@final
@attrs.frozen
class Rest:
    """Continue; nothing is due. Microseconds until the next renewal, and until the end."""

    renew_in: Duration
    left: Duration

    def __str__(self) -> str:
        return f"rest: renew in {seconds(self.renew_in)}, {seconds(self.left)} left"


@final
@attrs.frozen
class Renew:
    """Continue, and write this, if the record is unchanged; `left` microseconds remain."""

    lease: Lease
    left: Duration

    def __str__(self) -> str:
        return f"renew it: {self.lease}, {seconds(self.left)} left"


@final
@attrs.frozen
class Lapsed:
    """Stop now: for `over` microseconds others may have held the lease."""

    over: Duration

    def __str__(self) -> str:
        return f"lapsed {seconds(self.over)} ago"


def next_action(terms: Terms, tenure: Tenure, now: Instant) -> Rest | Renew | Lapsed:
    """Return what a holder must do, and whether it still holds. Ask BEFORE each piece of work.

    A clock that went back counts as standing still.
    """
    check_type(terms, Terms, "the terms of a lease")
    check_type(tenure, Tenure, "a tenure")
    check_type(now, Instant, "the time")
    gone = max(now - tenure.since, 0)
    left = tenure.lease.ttl - terms.margin - gone
    if left <= 0:
        return Lapsed(-left)
    if gone >= terms.heartbeat:
        return Renew(renewed(tenure), left)
    return Rest(terms.heartbeat - gone, left)


@final
@attrs.frozen
class Kept:
    """The holder still holds the lease, for the time of this tenure."""

    tenure: Tenure


def read_back(tenure: Tenure, lease: Lease | None, sent: Instant) -> Kept | NotHolder:
    """Return what a holder knows after reading the record, after a renewal without a reply.

    Args:
        tenure: The tenure before.
        lease: The record as read.
        sent: Its own clock, read BEFORE the first renewal without a reply was sent.

    Returns:
        `Kept`: with a tenure from then on if a renewal was applied, else the old one, also after a
            stale read. `NotHolder` if the record has another token, is released or gone.
    """
    check_type(tenure, Tenure, "a tenure")
    check_type(lease, (Lease, type(None)), "a lease")
    check_type(sent, Instant, "the time")
    if lease is None:
        return NotHolder(None)
    if lease.version <= tenure.lease.version:
        return Kept(tenure)
    if lease.holder is None or lease.token != tenure.lease.token:
        return NotHolder(lease)
    return Kept(Tenure(lease, sent))


# --- the resource's side --------------------------------------------------------------------------


@final
@attrs.frozen
class Admitted:
    """The access is allowed; this is now the highest token seen."""

    token: int


@final
@attrs.frozen
class Fenced:
    """The access is refused: a newer token was seen."""

    token: int
    newer: int

    def __str__(self) -> str:
        return f"fenced: token {self.token} is older than {self.newer}"


def decide_fence(highest: int, token: int) -> Admitted | Fenced:
    """Decide whether the protected resource admits an access under `token`.

    In MongoDB it is one atomic write: filter `Lt(FENCE, token + 1)` and update `Put(FENCE, token)`.
    """
    check_int(highest, "a token", 0, INT64_MAX)
    check_int(token, "a token", 1, INT64_MAX)
    return Admitted(token) if token >= highest else Fenced(token, highest)


# --- helpers --------------------------------------------------------------------------------------


def _holds(lease: Lease, request: str) -> bool:
    return lease.holder is not None and lease.request == request


def _changed(lease: Lease, *, holder: str | None) -> Lease:
    return attrs.evolve(lease, version=lease.version + 1, holder=holder, stamp=None)
